/* SPDX-License-Identifier: Apache-2.0 */
/* One transaction, whatever it runs on: its locks, its work, its end. */
#ifndef PAWL_WORKBENCH_BENCH_TXN_RUN_H
#define PAWL_WORKBENCH_BENCH_TXN_RUN_H

#include "workbench/bench/txn.h"
#include "workbench/bench/workload.h"

/* The calls of a substrate. Grants are kept by the substrate, by the lock's place in the transaction. */
struct txn_calls {
    /* 0, -ETIMEDOUT or -EDEADLK: the transaction is given up; else an error. */
    int (*lock)(void *ctx, unsigned at, const struct txn_lock *l, uint64_t deadline);
    int (*lock_all)(void *ctx, const struct txn *t, uint64_t deadline); /* null: the substrate has none */
    int (*unlock)(void *ctx, unsigned at);
    int (*unlock_all)(void *ctx, unsigned count); /* null: one by one */
    uint64_t (*token)(void *ctx, unsigned at);
    uint64_t (*now)(void *ctx);
    void (*pause)(void *ctx, uint64_t ns);
    void (*work)(void *ctx, uint64_t ns);     /* occupies the client's core; null: a pause */
    int (*move)(void *ctx, enum pawl_mode m); /* the data under one lock: PAWL_SHARED: fetched, else written; null: none are */
    uint64_t forever;                         /* the deadline that never comes */
};

struct txn_run {
    const struct txn_calls *calls;
    void *ctx;
    struct validator *validators; /* by lock */
    uint64_t hold_ns, timeout_ns; /* timeout 0: none */
    bool together;                /* all locks by one call */
    bool retries;                 /* one that was given up is tried again */
    bool exclusive;               /* the design has no shared locks: readers exclude each other */
    /* Results of one transaction: */
    uint64_t locked_ns; /* from its begin until it had all locks */
    unsigned violations;
    bool aborted; /* it did not get all of them, and gave back those that it had */
};

/* As the workload says. */
void txn_run_init(struct txn_run *r, const struct workload *w);

/* The client's next transaction, which is left in *t. 0, or an error after which the client cannot go on. */
int txn_run(struct txn_run *r, struct txn_stream *s, struct txn *t);

#endif
