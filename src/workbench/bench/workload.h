/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a benchmark's clients: which lock next, shared or not; and a validator per lock that notices two holders where one
 * is allowed, without an atomic of its own that would be measured too. */
#ifndef PAWL_WORKBENCH_BENCH_WORKLOAD_H
#define PAWL_WORKBENCH_BENCH_WORKLOAD_H

#include "lib/zipf.h"
#include "pawl.h"
#include "workbench/bench/txn.h"

#define WORKLOAD_LENGTHS_MAX 8

enum workload_io { IO_NONE, IO_BTIO, IO_OLTP, IO_IO500 }; /* workload_io.h */

struct workload {
    uint64_t locks;
    uint64_t reads;   /* thousandths of the operations */
    uint64_t zipf;    /* exponent in thousandths; 0: all locks alike; with ranges: of where they begin */
    uint64_t objects; /* that the distribution is over, evenly divided among the locks; 0: over the locks */
    bool names;
    uint64_t hold_ns, think_ns;
    uint64_t seed;
    uint64_t hot, hot_every_ns; /* half of the operations are on so many locks, which change so often, to and fro; 0: none are */
    /* Ranges: */
    uint64_t lengths[WORKLOAD_LENGTHS_MAX]; /* in units; of the clients in turn */
    unsigned length_count;                  /* 0: whole locks */
    uint64_t units;                         /* that a lock has */
    uint64_t max_units;                     /* that it may grow to; 0: no more */
    enum workload_io io;
    const struct txn_params *txn; /* transactions instead of single locks; null: none */
    uint64_t timeout_ns;          /* of a transaction, from its begin; 0: none */
    bool together;                /* a transaction takes all its locks by one call */
    bool retries;                 /* one that was given up is tried again after a while; else it is forgotten */
    bool moves_data;              /* simulated, one-sided: it READs 64 bytes for every lock, and WRITEs them for exclusive ones */
    uint64_t held;                /* ranges that are held all the while, in the upper half; clients then use the lower */
};

static inline uint64_t workload_units(const struct workload *w)
{
    return w->held ? w->units / 2 : w->units;
}

/* The number of items that a workload draws from. */
static inline uint64_t workload_items(const struct workload *w)
{
    return w->length_count ? workload_units(w) : w->objects ? w->objects : w->locks;
}

/* One client's operations. */
struct workload_stream {
    const struct workload *workload;
    const struct zipf *zipf;
    struct rng random;
    uint64_t length; /* of this client's ranges; 0: whole locks */
    /* workload_io.h: */
    unsigned client, clients, hosts;
    uint64_t made;                  /* operations so far */
    struct workload_tally *tallies; /* by machine */
};

struct workload_tally {
    uint64_t reads, writes, log_writes;
};

struct workload_op {
    uint64_t lock;
    enum pawl_mode mode;
    uint64_t start, end; /* units; end 0: the whole lock */
    uint64_t bytes;      /* that are moved under the lock, */
    unsigned host;       /* to this one or, */
    bool fetches;        /* from it */
    bool timed;          /* workload_io: its latency counts */
};

static inline void workload_start(struct workload_stream *s, const struct workload *w, const struct zipf *zipf, unsigned client)
{
    *s =
        (struct workload_stream){.workload = w, .zipf = zipf, .length = w->length_count ? w->lengths[client % w->length_count] : 0};
    rng_seed(&s->random, w->seed ^ (uint64_t)(client + 1) << 40);
}

static inline uint64_t workload_lock(struct workload_stream *s)
{
    uint64_t item = zipf_next(s->zipf, &s->random);
    return s->workload->objects ? item % s->workload->locks : item;
}

static inline struct workload_op workload_next(struct workload_stream *s)
{
    const struct workload *w = s->workload;
    bool reads = w->reads && rng_chance(&s->random, w->reads, 1000);
    struct workload_op op = {.lock = workload_lock(s), .mode = reads ? PAWL_SHARED : PAWL_EXCLUSIVE};
    if (!s->length)
        return op;
    op.start = op.lock; /* the distribution is of where ranges begin (Citron 4.2), on all but the last units */
    while (op.start + s->length > workload_units(w))
        op.start = zipf_next(s->zipf, &s->random);
    op.end = op.start + s->length;
    op.lock = w->locks > 1 ? rng_below(&s->random, w->locks) : 0;
    return op;
}

/* Half of the operations go to the hotspot, the others to all other locks alike (FissLock 7.5). It goes to and fro between two
 * places. */
static inline uint64_t workload_hot(struct workload_stream *s, uint64_t now_ns)
{
    const struct workload *w = s->workload;
    uint64_t first = (1 + now_ns / w->hot_every_ns % 2) * w->locks / 3, cool = rng_below(&s->random, w->locks - w->hot);
    if (rng_chance(&s->random, 1, 2))
        return first + rng_below(&s->random, w->hot);
    return cool < first ? cool : cool + w->hot;
}

/* The key of a lock; a name is written to `text`. Names have 12 bytes and cost a few nanoseconds: printf would be measured too. */
#define WORKLOAD_NAME_LEN 12
pawl_key workload_key(const struct workload *w, uint64_t lock, char text[WORKLOAD_NAME_LEN]);

/* ---- the validator ---- */

/* An exclusive holder makes `turns` odd on entering and even on leaving; no other client may enter or leave meanwhile. Tokens rise.
 */
struct validator {
    uint64_t turns;
    uint64_t token;
};

struct validation {
    struct validator *at;
    uint64_t turns; /* as it must be on leaving */
    enum pawl_mode mode;
};

/* Of ranges: each client has a slot for the range that it holds. A client that enters writes its own and then reads the others': of
 * two that must not be there together, the later one sees the earlier. */
struct range_slot {
    _Alignas(64) uint64_t turns; /* odd: held */
    uint64_t lock, mode, start, end;
};

unsigned range_enter(struct range_slot *slots, unsigned count, unsigned me, const struct workload_op *op);
void range_leave(struct range_slot *slots, unsigned me);

/* Each returns how many violations it saw. A token of 0 is none. */
unsigned validator_enter(struct validator *v, enum pawl_mode mode, uint64_t token, struct validation *out);
unsigned validator_leave(const struct validation *v);

#endif
