/* SPDX-License-Identifier: Apache-2.0 */
/* A bank whose accounts are in Redis: what its parts share. */
#ifndef PAWL_BENCH_BANK_H
#define PAWL_BENCH_BANK_H

#include "bench/crowd.h"
#include "lib/rng.h"
#include "lib/zipf.h"

#include <hiredis/hiredis.h>

#define TXN_SLOTS 3        /* an amalgamation has three */
#define BALANCE_FIRST 1000 /* of every balance */
#define REDLOCK_VALUE 24

/* A slot is a balance with a lock: an account's (mobile banking), or savings and checking of a customer (SmallBank). */
struct bank_txn {
    unsigned count;
    bool locks;     /* SmallBank looks at balances without a lock */
    unsigned names; /* customers that are looked up first, */
    uint64_t customer[2];
    uint64_t slot[TXN_SLOTS]; /* each once, ascending */
    bool writes[TXN_SLOTS];
    int64_t change[TXN_SLOTS];
    bool all[TXN_SLOTS]; /* the whole balance goes from this slot ... */
    unsigned to;         /* ... to that one */
    bool moves_all;
};

struct bank {
    struct crowd_place at;   /* of pawl's locks; place null: RedLock */
    const char *workload;    /* mobile or smallbank */
    const char *tag;         /* of the fences in Redis: tokens of different spaces are not comparable */
    bool unfenced;           /* writes go without tokens */
    uint64_t port, db;       /* of Redis */
    uint64_t accounts, zipf; /* exponent in thousandths */
    uint64_t lifetime_ns;    /* RedLock: after which a lock ends by itself */
    uint64_t delay_ns;       /* RedLock: the longest pause before the next try */
    struct zipf zipf_table;
};

struct bank_client {
    const struct bank *bank;
    unsigned number;
    struct crowd_report *report;
    redisContext *redis;
    pawl *p;
    pawl_grant grants[TXN_SLOTS];
    char value[TXN_SLOTS][REDLOCK_VALUE]; /* RedLock's */
    struct rng rng;
};

static inline uint64_t bank_slots(const struct bank *b)
{
    return *b->workload == 's' ? 2 * b->accounts : b->accounts;
}

/* ---- Redis (bank_store.c); a failure ends the process ---- */

redisContext *store_connect(const struct bank *b);
void store_fill(const struct bank *b, redisContext *r);
int64_t store_missing(const struct bank *b, redisContext *r); /* money that should be there and is not; negative: too much */
void store_look_up(struct bank_client *c, const struct bank_txn *t);
void store_read(struct bank_client *c, const struct bank_txn *t, int64_t balance[TXN_SLOTS]);

/* All balances or none: false if a token is lower than one that the slot has seen. */
bool store_write(struct bank_client *c, const struct bank_txn *t, const int64_t balance[TXN_SLOTS], int64_t sum);

/* RedLock on one server, as the documentation of Redis has it. */
void redlock_take(struct bank_client *c, unsigned i, uint64_t slot);
void redlock_give(struct bank_client *c, unsigned i, uint64_t slot);

/* ---- the application (bank_app.c) ---- */

void bank_draw(struct bank_client *c, struct bank_txn *t);

/* In three steps, between which the client may be stopped. take and write: 0, or -PAWL_ELOST: it is not done. */
int bank_take(struct bank_client *c, const struct bank_txn *t);
int bank_write(struct bank_client *c, const struct bank_txn *t, const int64_t balance[TXN_SLOTS]);
void bank_give(struct bank_client *c, const struct bank_txn *t);

int bank_connect(struct bank_client *c, const struct bank *b, unsigned number); /* Redis, and a session */
void bank_work(struct crowd *crowd, unsigned number);                           /* of a crowd whose user is the bank */

#endif
