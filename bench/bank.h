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
#define TELLERS_MAX 20u /* each may have a lock and two releases in flight, of PAWL_INFLIGHT_MAX */

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
    bool unlocked;           /* no locks at all: what the application itself takes */
    uint64_t port, db;       /* of Redis */
    uint64_t accounts, zipf; /* exponent in thousandths */
    uint64_t lifetime_ns;    /* RedLock: after which a lock ends by itself */
    uint64_t tellers;        /* transactions of a process at once; 1: it waits for each reply */
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

/* A transaction's commands are sent by store_ask_..., and their replies are taken in that order. */
void store_ask_names(struct bank_client *c, const struct bank_txn *t);
void store_take_names(const struct bank_txn *t, const redisReply *reply);
void store_ask_balances(struct bank_client *c, const struct bank_txn *t);
void store_take_balances(const struct bank_txn *t, const redisReply *reply, int64_t balance[TXN_SLOTS]);
/* All balances or none: false if a token is lower than one that the slot has seen. */
void store_ask_write(struct bank_client *c, const struct bank_txn *t, const pawl_grant *grants, const int64_t balance[TXN_SLOTS],
                     int64_t sum);
bool store_take_write(const redisReply *reply);
redisReply *store_reply(struct bank_client *c); /* waits for the next one */

/* RedLock on one server, as the documentation of Redis has it. `value` tells the client's lock from others'. */
void redlock_ask(struct bank_client *c, uint64_t slot, char value[REDLOCK_VALUE]);
bool redlock_take(const redisReply *reply);
uint64_t redlock_pause(struct bank_client *c); /* before the next try: half of the delay to all of it, as the libraries draw it */
void redlock_give(struct bank_client *c, uint64_t slot, const char *value);

/* ---- the application (bank_app.c) ---- */

void bank_draw(struct bank_client *c, struct bank_txn *t);

void bank_read(struct bank_client *c, const struct bank_txn *t, int64_t balance[TXN_SLOTS]);

/* In three steps, between which the client may be stopped. take and write: 0, or -PAWL_ELOST: it is not done. */
int bank_take(struct bank_client *c, const struct bank_txn *t);
int bank_write(struct bank_client *c, const struct bank_txn *t, const int64_t balance[TXN_SLOTS]);
int64_t bank_after(const struct bank_txn *t, const int64_t balance[TXN_SLOTS], int64_t after[TXN_SLOTS]); /* money made */
bool bank_writes(const struct bank_txn *t);
void bank_give(struct bank_client *c, const struct bank_txn *t);

int bank_connect(struct bank_client *c, const struct bank *b, unsigned number); /* Redis, and a session */
void bank_work(struct crowd *crowd, unsigned number);                           /* of a crowd whose user is the bank */
void bank_flow(struct crowd *crowd, unsigned number); /* the same, several transactions of a process at once (bank_flow.c) */

#endif
