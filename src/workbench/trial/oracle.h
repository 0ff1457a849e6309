/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: watches every grant and release of a run and says which invariant was broken, if one was. It knows what no client
 * knows: the true time, which clients are dead, and whose lease has run out by whose clock. Invariants are numbered in
 * docs/invariants.md. */
#ifndef PAWL_WORKBENCH_TRIAL_ORACLE_H
#define PAWL_WORKBENCH_TRIAL_ORACLE_H

#include "designs/core/design.h"

#include <stdio.h>

#define ORACLE_HOLDERS_MAX 256 /* of one lock, readers of all clients and tasks */
#define ORACLE_TEXT_LEN 320

struct oracle;

/* Whether a holder is alive and its lease runs, now. */
typedef bool (*oracle_valid_fn)(void *ctx, unsigned client, uint64_t lock);

/* Units [start, end) of a lock. Locks without ranges have one, the whole. */
struct oracle_range {
    uint64_t start, end;
};
#define ORACLE_WHOLE ((struct oracle_range){.start = 0, .end = RANGE_UNITS_MAX})

struct oracle_holder {
    unsigned client;
    enum pawl_mode mode;
    uint64_t token;
    struct oracle_range range;
    uint32_t limit; /* of the semaphore that it has a place of; 0: of none */
};

/* Knowledge about units that have the same history. */
struct oracle_span {
    uint64_t end;            /* it starts where the one before it ends */
    uint64_t last_exclusive; /* token */
    uint64_t highest;        /* token of any grant */
    uint64_t fence;          /* the highest token that the resource behind this part of the lock has accepted */
};

struct oracle_waiter {
    unsigned client;
    enum pawl_mode mode;
    struct overtaking by; /* grants to others since it asked */
};

#define ORACLE_WAITERS_MAX 64 /* of one lock: tasks of all clients */

struct oracle_lock {
    struct oracle_holder holders[ORACLE_HOLDERS_MAX];
    unsigned count;
    struct oracle_span *spans; /* of all units, in order; null: as at the beginning */
    unsigned span_count;
    struct oracle_waiter waiters[ORACLE_WAITERS_MAX];
    unsigned waiting;
};

struct oracle {
    struct oracle_lock *locks;
    uint64_t lock_count;
    bool tokens; /* the design has them */
    oracle_valid_fn valid;
    void (*told)(void *ctx, const char *text); /* of each violation, when it is known; null: only the first is kept */
    void *ctx;
    uint64_t grants, releases, writes;
    struct overtaking (*overtaking)(unsigned others, enum pawl_mode mode); /* null: no bound is checked */
    unsigned others;
    struct overtaking most; /* that any met */
    uint64_t violations;
    char first[ORACLE_TEXT_LEN]; /* the first violation in words */
};

int oracle_init(struct oracle *o, uint64_t lock_count, bool tokens, oracle_valid_fn valid, void *ctx);
void oracle_free(struct oracle *o);

/* A client asks for a lock, and will be granted it after no more than so many grants to others (I12). */
void oracle_asking(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode);

/* A client's call has returned with the lock, or a range of it: as holder->client, mode, token and range. */
void oracle_granted_range(struct oracle *o, uint64_t lock, const struct oracle_holder *holder);

/* A client is about to call unlock: from now on it does not count on the lock. */
void oracle_releasing_range(struct oracle *o, uint64_t lock, const struct oracle_holder *holder);

/* About to convert to shared: from now on it does not count on more; or about to give back all units but these. */
void oracle_weakening_range(struct oracle *o, uint64_t lock, const struct oracle_holder *holder);
void oracle_shrinking(struct oracle *o, uint64_t lock, const struct oracle_holder *holder, struct oracle_range range);

/* A conversion or a growth that succeeded: the old hold became the new one without a gap. */
void oracle_converted_range(struct oracle *o, uint64_t lock, const struct oracle_holder *from, const struct oracle_holder *to);
void oracle_grown(struct oracle *o, uint64_t lock, const struct oracle_holder *from, const struct oracle_holder *to);

/* A hold was cut in two. */
void oracle_split(struct oracle *o, uint64_t lock, const struct oracle_holder *holder, uint64_t at);

/* A holder writes to the resource that the lock protects, with its token. */
void oracle_write_range(struct oracle *o, uint64_t lock, const struct oracle_holder *holder);

/* The same for locks without ranges. */
void oracle_granted(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token);
void oracle_releasing(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token);
void oracle_weakening(struct oracle *o, unsigned client, uint64_t lock, uint64_t token);
void oracle_converted(struct oracle *o, unsigned client, uint64_t lock, const struct oracle_holder *from, enum pawl_mode mode,
                      uint64_t token);
void oracle_write(struct oracle *o, unsigned client, uint64_t lock, uint64_t token);

/* The client is dead or has learnt that its session is lost: it holds nothing. */
void oracle_gone(struct oracle *o, unsigned client);

__attribute__((format(printf, 2, 3))) void oracle_violation(struct oracle *o, const char *format, ...);

#endif
