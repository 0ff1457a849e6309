/* SPDX-License-Identifier: Apache-2.0 */
/* A space for people or programs: what `pawl show` and `pawl space show` print. */
#ifndef PAWL_CLI_SHOW_H
#define PAWL_CLI_SHOW_H

#include "cli/common.h"

/* How many sessions of a space are in which state. */
struct session_counts {
    uint32_t live, lost;
};
int count_sessions(const struct observer *o, struct session_counts *out);

/* Opens the space for a look, or complains: 0 or the exit status. */
int open_to_show(const char *command, const char *place, struct observer *o);

/* Shows the space and its sessions. The exit status. */
int show_space(const char *command, const char *place, bool json);

/* Shows all switches of a rack. The exit status. */
int show_switches(const char *space, bool json);

/* Columns of a session in a table, after the caller's own. */
void print_session_header(void);
void print_session(const struct inspect_session *s);

#endif
