/* SPDX-License-Identifier: Apache-2.0 */
/* Between break.c and break_rack.c. */
#ifndef PAWL_CLI_BREAK_H
#define PAWL_CLI_BREAK_H

#include "cli/common.h"

/* Asks the person at the terminal about so many sessions. */
bool break_agreed(uint64_t count);

/* The exit status. */
int break_on_rack(const char *place, const char *name, bool yes, bool json);

#endif
