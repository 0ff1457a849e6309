/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by pawl switch, policy and show. */
#ifndef PAWL_CLI_SWITCH_H
#define PAWL_CLI_SWITCH_H

#include "cli/common.h"

/* on, off, or how many priorities have a waiting queue in the switch; false: neither. */
bool cli_priorities(const char *word, uint32_t *out);
#define CLI_PRIORITIES_WRONG "--priorities is on, off, or how many of 8 wait in the switch"

/* The counters of a pinned switch, whether it runs or not. */
int switch_show(const char *pins, bool json);

#endif
