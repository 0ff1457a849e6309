/* SPDX-License-Identifier: Apache-2.0 */
/* A look at a rack's space from outside: its hosts are asked what they hold and wait for. No session, and nothing is joined. What
 * is seen is a moment old, and not of one moment. */
#ifndef PAWL_CLIENT_RACK_LOOK_H
#define PAWL_CLIENT_RACK_LOOK_H

#include "client/inspect.h"
#include "client/net_where.h"

struct rack_claim {
    struct coord_claim claim;
    uint32_t machine, life; /* of its host */
    struct net_addr at;     /* where its host answers */
};

struct rack_look {
    struct net_where where;
    struct coord_hosts about; /* the space; of the hosts only the last few */
    struct rack_host {
        struct coord_host host;
        bool silent;           /* it did not answer */
    } * list;                  /* all of them: `hosts` */
    struct rack_claim *claims; /* by index */
    uint64_t count, room;
    unsigned hosts, silent; /* that are there; that did not answer: what they have is missing */
};

/* `place` is what comes after "pawl://". Errors are explained. */
int rack_look_open(const char *place, struct rack_look *l);
void rack_look_close(struct rack_look *l);

enum pawl_keys rack_look_keys(const struct rack_look *l);

/* The index of a key; -ENOENT: no client ever asked for it. */
int rack_look_find(const struct rack_look *l, pawl_key key, uint64_t *index);

/* Declares the session of a claim lost. -ENOENT: it has ended by itself; others are explained. */
int rack_look_break(const struct rack_look *l, const struct rack_claim *c);

/* As inspect.h has them. */
int rack_look_locks(const struct rack_look *l, inspect_lock_fn fn, void *ctx);
int rack_look_claims(const struct rack_look *l, uint64_t index, inspect_claim_fn fn, void *ctx);
void rack_look_lock(const struct rack_look *l, uint64_t index, struct inspect_lock *out); /* without its key */

#endif
