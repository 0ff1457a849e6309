/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by pawl serve and pawl switch. */
#ifndef PAWL_CLI_DAEMON_H
#define PAWL_CLI_DAEMON_H

#include "cli/common.h"
#include "node/node.h"

/* Options of every daemon. */
struct daemon_options {
    const char *log, *http, *config, *check;
};
/* clang-format off */
#define DAEMON_OPTIONS(to_)                                                                                                        \
    CLI_KEY_OPTION,                                                                                                                \
    {"log", 0, ARG_STRING, "FORMAT", "format of the log on standard error: text or json; default text", &(to_)->log, NULL},                        \
    {"http", 0, ARG_STRING, "[ADDRESS:]PORT", "where to answer HTTP: the live page, /metrics, /healthz, /readyz; default nowhere; a port alone: on loopback", \
     &(to_)->http, NULL},                                                                                                                   \
    {"config", 0, ARG_STRING, "FILE", "options from a file: a line is OPTION = VALUE; those on the command line count where both are given", \
     &(to_)->config, NULL},                                                                                                                 \
    {"check", 0, ARG_STRING, "FILE", "check such a file, and exit", &(to_)->check, NULL}
/* clang-format on */

/* Signals end it, its log begins, and it listens for HTTP. 0, or the exit status after a complaint. */
int daemon_begin(const struct args *usage, const struct daemon_options *o);

/* The keys of --key, which must be the cluster's; none: packets are not tagged. The exit status after a complaint, or 0. */
int daemon_keys(const struct args *usage, const struct seal_ring **out);

/* DAEMON_RUN; or, with --check, the exit status: all options are fine. */
#define DAEMON_RUN (-1)
int daemon_checked(const struct daemon_options *o);

/* Tells the service manager that the daemon does its work from now on. */
void daemon_runs(void);
void daemon_end(void);

/* Of the option --host-packets. 0, or the exit status after a complaint. */
int daemon_host_packets(const struct args *usage, uint64_t packets);

/* Until when a coordinator must have answered. */
uint64_t daemon_deadline(void);

/* The address of an option. 0, or the exit status after a complaint. */
int daemon_address(const struct args *usage, const char *option, const char *text, struct net_addr *out);

/* The same for addresses of coordinators, with commas between them. */
int daemon_addresses(const struct args *usage, const char *option, const char *text, struct coord_list *out);

/* Says that it runs: as a sentence or as one JSON object. */
void daemon_ready(const char *role, const char *space, struct net_addr at, bool json);

/* The exit status of a run that ended with that code, which is explained on stderr. A signal is no failure, not even before the
 * start. */
int daemon_status(const char *command, int rc);

/* Runs a lock server or a switch in software until it is stopped. The exit status. */
int daemon_run_station(const char *command, const struct station_params *p, bool json);

#endif
