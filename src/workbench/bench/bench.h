/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmarks: clients that lock and unlock, on shared memory or in the simulated cluster, and the cost of that.
 *
 * A run has rounds. With several designs the rounds take turns (A B C A B C …), so that other work of the machine affects all of
 * them alike. Each figure is the median of the rounds, and a ratio is the median of the ratios of adjacent rounds. */
#ifndef PAWL_WORKBENCH_BENCH_BENCH_H
#define PAWL_WORKBENCH_BENCH_BENCH_H

#include "designs/core/design.h"
#include "designs/core/steps.h"
#include "designs/packet/packet.h"
#include "fabric/fabric.h"
#include "lib/hist.h"
#include "lib/progress.h"
#include "workbench/bench/workload.h"
#include "world/model.h"
#include "world/sim.h"

#include <signal.h>

#define BENCH_DESIGNS_MAX 8
#define BENCH_ROUNDS_MAX 101
#define BENCH_CLIENTS_MAX 2000 /* of the simulation's 4,096 tasks each takes two, of a space's 4,096 sessions one */
#define BENCH_WHY_LEN 320
#define BENCH_HELD_MAX 100000
#define BENCH_SERIES_MAX 500
#define BENCH_PERCENTILES 5

struct bench_params {
    const struct design *designs[BENCH_DESIGNS_MAX];
    unsigned design_count;
    const struct knobs *knobs; /* of each design; null: the usual ones */
    bool simulated;
    bool packets;              /* over UDP on this machine; then `nodes` hosts */
    bool node;                 /* over UDP on this machine, on a memory node */
    bool verbs;                /* node: its memory is reached by libibverbs, */
    const char *provider;      /* by this device of it (null: the first); else by this provider of libfabric; null: over UDP */
    bool lab;                  /* packets, node: in a lab of so many hosts; the memory node is then in the kernel */
    const char *place;         /* packets, node: one that runs already, and all clients on this host; null: one on loopback */
    const char *fast_place;    /* the same, for clients that bypass the network stack: */
    bool fast;                 /* packets: the first client of each host does */
    const struct model *model; /* simulated: not null */
    unsigned nodes;            /* simulated: hosts of clients */
    bool partitioned;          /* simulated: the locks lie on these hosts, too, in parts; no `residents` then, but: */
    uint64_t local;            /* thousandths of the operations that are on locks of the client's own host */
    bool by_key;               /* partitioned: the number that chooses the lock also says whether it is a local operation */
    bool parted;               /* simulated, packet designs: the same, of locks by ranges of as many as there are hosts */
    unsigned residents;        /* simulated: clients that run on the host of the lock memory */
    unsigned clients;
    bool threads; /* shared memory: of one process, instead of processes */
    struct workload workload;
    uint64_t deaths;     /* simulated: one operation in so many ends with the death of its client, which holds the lock; 0: none */
    uint64_t warmup_ns;  /* simulated: before the measuring begins */
    uint64_t seconds_ns; /* of one round, virtual in the simulation; */
    uint64_t ops;        /* or, if not 0, so many operations of all clients together */
    uint64_t room;       /* simulated: locks that the switch of a design with servers for the others has room for; 0: all */
    unsigned racks;      /* simulated, designs whose locks are divided among switches: so many; 0: the default */
    uint64_t lease_ns;   /* simulated; 0: the model's, and for packet designs none that could end */
    uint64_t series_ns;  /* simulated: count operations by intervals of so long; 0: do not */
    unsigned rounds;
    const volatile sig_atomic_t *interrupted; /* a signal came: finish with the rounds so far */
    struct progress *progress;
};

/* Where the time of operations went: sums. */
struct bench_steps {
    uint64_t ns[3], count[3]; /* of acquisitions exclusive and shared, and of releases */
    uint64_t parts[3][STEPS]; /* how long each step of them took */
};

/* Acquisitions that were timed, and how they ended. */
struct bench_round {
    uint64_t ops;
    uint64_t elapsed_ns; /* virtual in the simulation */
    uint64_t wall_ns;
    uint64_t peak_rss; /* bytes, of the largest process */
    uint64_t aborts, timeouts, violations;
    uint64_t latency_ns[BENCH_PERCENTILES];
    double fairness; /* standard deviation of the clients' counts, in parts of their mean */
    bool counted;    /* the substrate counts verbs and times every step: */
    struct bench_steps steps;
    struct fab_counts cycle;
    uint64_t acquire_round_trips;
    uint64_t length_ops[WORKLOAD_LENGTHS_MAX]; /* with ranges: of the clients of each length */
    uint64_t bytes;                            /* moved under locks */
    uint32_t series[BENCH_SERIES_MAX];         /* operations by time, if that was asked for */
    uint64_t packets;                          /* that hosts and servers sent; packet designs */
    bool granted;                              /* the granters are known: */
    struct packet_grants grants;
    unsigned fast; /* clients whose packets went past the network stack */
    struct bench_type {
        uint64_t count, p50_ns, p90_ns, p99_ns; /* until all locks were held */
    } types[TXN_TYPES_MAX];                     /* of transactions */
};

extern const uint32_t bench_percentiles[BENCH_PERCENTILES]; /* 50, 90, 99, 99.9, and 20 %, which is printed with --json only */

struct bench_result {
    const struct design *design;
    struct bench_round rounds[BENCH_ROUNDS_MAX];
    unsigned round_count;
};

/* Medians and sums of a design's rounds. */
struct bench_summary {
    uint64_t ops, elapsed_ns, wall_ns, peak_rss, aborts, timeouts, violations; /* of all rounds; peak_rss the largest */
    double goodput, fairness;
    uint64_t latency_ns[BENCH_PERCENTILES];
    double per_cycle[4]; /* atomics, reads, writes, sends */
    double acquire_round_trips;
    double packets; /* per cycle */
    bool granted;
    struct packet_grants grants; /* of all rounds; over UDP with what went before the measuring */
    unsigned fast;               /* clients past the network stack: in the round with the fewest */
    double mean_ns[3];           /* acquisitions exclusive and shared, releases; 0 if there were none */
    double part_ns[3][STEPS];    /* of these */
    double ratio;                /* of the goodput to the last design's */
    struct bench_type types[TXN_TYPES_MAX];
};

/* Runs all rounds; results[i] belongs to designs[i]. 0, or an error with its reason in words. Interrupted is not an error: the
 * rounds so far count, the one that was cut short too. */
int bench_run(const struct bench_params *p, struct bench_result *results, char why[BENCH_WHY_LEN]);

void bench_summarize(const struct bench_result *result, const struct bench_result *last, struct bench_summary *out);

/* Changes the order. 0 of nothing. */
double bench_median(double *values, unsigned n);
double bench_goodput(const struct bench_round *r); /* operations per second */
double bench_root(double x);                       /* square root */

/* ---- the substrates ---- */

/* For all rounds of a design: a space of its own, in a folder of its own. */
struct bench_shm;
int bench_shm_open(const struct bench_params *p, const struct design *design, struct bench_shm **out, char why[BENCH_WHY_LEN]);
int bench_shm_round(struct bench_shm *b, unsigned round, struct bench_round *out, char why[BENCH_WHY_LEN]);
void bench_shm_close(struct bench_shm *b); /* of null: nothing */

int bench_sim_round(const struct bench_params *p, const struct design *design, unsigned round, struct bench_round *out,
                    char why[BENCH_WHY_LEN]);

int bench_rack_round(const struct bench_params *p, const struct design *design, unsigned round, struct bench_round *out,
                     char why[BENCH_WHY_LEN]);

static inline const struct knobs *bench_knobs(const struct bench_params *p, const struct design *design)
{
    for (unsigned i = 0; p->knobs && i < p->design_count; i++)
        if (p->designs[i] == design)
            return &p->knobs[i];
    return NULL;
}

/* How many operations a client does of those that all together do. */
static inline uint64_t bench_share(const struct bench_params *p, unsigned client)
{
    return p->ops / p->clients + (client < p->ops % p->clients);
}

/* The measurement of every simulated round. */
struct bench_window {
    const struct bench_params *params;
    const struct design *design;
    unsigned round;
    struct sim *sim;
    struct zipf zipf;
    struct validator *validators;
    uint64_t *counts;                       /* operations that count, by client */
    uint64_t *core_free_ns;                 /* of each core that clients take turns on, by host */
    struct hist hist, types[TXN_TYPES_MAX]; /* of transactions by type, too */
    uint64_t start_ns, end_ns;              /* virtual: of the measuring, and of the last operation in it */
    uint64_t ops;
    uint64_t stop_ns; /* real: a signal came, and the simulation ends then at the latest; 0: none came */
    int error;        /* the first that is not the loss of a session */
    struct bench_round *out;
};

static inline uint64_t bench_now(const struct bench_window *w)
{
    return sim_now(w->sim);
}

/* Clears `out`, too. 0 or an error. The window was all zero before; it is closed in any case. */
int bench_window_open(struct bench_window *w, const struct bench_params *p, const struct design *design, unsigned round,
                      struct bench_round *out);
void bench_window_close(struct bench_window *w);

/* Whether an operation that ends now counts. Operations that end after the time is up do not: while the last of a queue get their
 * turn no other client joins it. */
bool bench_measures(const struct bench_window *w);
bool bench_is_over(const struct bench_window *w, unsigned client);

/* The client's own core works for it. Returns how long that takes, with the turns of the host's other clients on that core before.
 */
uint64_t bench_core(struct bench_window *w, unsigned client, uint64_t ns);

/* An operation that counts has ended. */
void bench_count(struct bench_window *w, unsigned client, enum pawl_mode mode, uint64_t acquire_ns, uint64_t release_begin_ns);
void bench_window_progress(const struct bench_window *w);
void bench_sim_watch(struct bench_window *w); /* a signal ends the simulation, also if clients wait for locks in vain */

/* A transaction has ended: had all its locks after so long, or was given up. */
struct txn_run;
void bench_count_txn(struct bench_window *w, unsigned client, const struct txn *t, const struct txn_run *r);

/* Whether a simulated round is valid: all clients came to their end, without an error, and have done operations. */
int bench_sim_verdict(const struct bench_window *w, enum sim_end end, unsigned clients_done, char why[BENCH_WHY_LEN]);

/* Collects the results at the end of a simulated round. */
void bench_sim_collect(const struct bench_window *w, uint64_t wall_begin_ns);

/* Adds to a struct that has nothing but uint64_t the difference of two others of its kind; from null: all of upto. */
static inline void bench_add(void *to, const void *from, const void *upto, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
        ((uint64_t *)to)[i] += ((const uint64_t *)upto)[i] - (from ? ((const uint64_t *)from)[i] : 0);
}

void bench_fairness(struct bench_round *out, const uint64_t *counts, unsigned clients);
void bench_latencies(struct bench_round *out, const struct hist *hist);
void bench_type_latencies(struct bench_type *out, const struct hist *hist);

/* How far the run is: so many operations or nanoseconds of this round. */
void bench_progress(const struct bench_params *p, unsigned round, const struct design *design, uint64_t done);
uint64_t bench_progress_total(const struct bench_params *p);

#endif
