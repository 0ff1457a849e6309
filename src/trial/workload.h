/* What the clients of a benchmark do: which lock next, shared or not; and a validator per lock that notices two holders where one
 * is allowed, without an atomic of its own that would be measured too. */
#ifndef PAWL_TRIAL_WORKLOAD_H
#define PAWL_TRIAL_WORKLOAD_H

#include "lib/zipf.h"
#include "pawl.h"

struct workload {
    uint64_t locks;
    uint64_t reads; /* thousandths of the operations */
    uint64_t zipf;  /* exponent in thousandths; 0: all locks alike */
    bool names;
    uint64_t hold_ns, think_ns;
    uint64_t seed;
};

/* One client's operations. */
struct workload_stream {
    const struct workload *workload;
    const struct zipf *zipf;
    struct rng random;
};

struct workload_op {
    uint64_t lock;
    enum pawl_mode mode;
};

static inline void workload_start(struct workload_stream *s, const struct workload *w, const struct zipf *zipf, unsigned client)
{
    *s = (struct workload_stream){.workload = w, .zipf = zipf};
    rng_seed(&s->random, w->seed ^ (uint64_t)(client + 1) << 40);
}

static inline struct workload_op workload_next(struct workload_stream *s)
{
    bool reads = s->workload->reads && rng_chance(&s->random, s->workload->reads, 1000);
    return (struct workload_op){.lock = zipf_next(s->zipf, &s->random), .mode = reads ? PAWL_SHARED : PAWL_EXCLUSIVE};
}

/* The key of a lock; a name is written to `text`. Names have 12 bytes and cost a few nanoseconds: printf would be measured too. */
#define WORKLOAD_NAME_LEN 12
pawl_key workload_key(const struct workload *w, uint64_t lock, char text[WORKLOAD_NAME_LEN]);

/* ---- the validator ---- */

/* Who holds a lock exclusively makes `turns` odd on entering and even on leaving; nobody may come or go meanwhile. Tokens rise. */
struct validator {
    uint64_t turns;
    uint64_t token;
};

struct validation {
    struct validator *at;
    uint64_t turns; /* as it must be on leaving */
    enum pawl_mode mode;
};

/* Each returns how many violations it saw. A token of 0 is none. */
unsigned validator_enter(struct validator *v, enum pawl_mode mode, uint64_t token, struct validation *out);
unsigned validator_leave(const struct validation *v);

#endif
