/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by pawl serve and pawl switch. */
#ifndef PAWL_CLI_DAEMON_H
#define PAWL_CLI_DAEMON_H

#include "cli/common.h"
#include "node/node.h"

void daemon_catch_signals(void);

/* Until when a coordinator must have answered. */
uint64_t daemon_deadline(void);

/* The address of an option. 0, or the exit status after a complaint. */
int daemon_address(const struct args *usage, const char *option, const char *text, struct net_addr *out);

/* Says that it runs: as a sentence or as one JSON object. */
void daemon_ready(const char *role, const char *space, struct net_addr at, bool json);

/* Runs a lock server or a switch in software until it is stopped. The exit status. */
int daemon_run_station(const char *command, const struct station_params *p, bool json);

#endif
