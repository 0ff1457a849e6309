/* SPDX-License-Identifier: Apache-2.0 */
/* `pawl top`: top.c looks, top_print.c prints. */
#ifndef PAWL_CLI_TOP_H
#define PAWL_CLI_TOP_H

#include "cli/common.h"
#include "client/rack_look.h"

/* A lock at one look. */
struct top_row {
    uint64_t index;
    char name[PAWL_NAME_MAX];
    bool named;
    uint64_t id; /* or the name's length */
    enum pawl_mode mode;
    uint64_t token;
    uint32_t holders, waiters, gone;
    uint64_t waits_since_ns; /* when a waiter was first seen; 0: there is none */
    double grants_per_s;
};

struct top_look {
    uint64_t at_ns;
    struct top_row *rows; /* by index */
    size_t count, room;
    double grants_per_s; /* of all locks */
    bool is_rack, is_open;
    struct rack_look rack;
    struct observer observer;
};

/* Holders and waiters of a lock, while the look is open. */
int top_claims(const struct top_look *l, uint64_t index, inspect_claim_fn fn, void *ctx);

/* `rows` in the order in which they are shown. 0, or the exit status. `live`: draws over the table before. */
int top_table(const char *place, const struct top_look *l, const struct top_row *rows, size_t count, bool live);
int top_json(const char *place, const struct top_look *l, const struct top_row *rows, size_t count);
void top_leave(void); /* gives a terminal back as it was found */

#endif
