/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the simulated fabric. */
#ifndef PAWL_FABRIC_SIM_INTERNAL_H
#define PAWL_FABRIC_SIM_INTERNAL_H

#include "fabric/sim.h"

/* Atomics are spaced by address, as NICs do it: by a table of locks indexed by a hash. Large enough that two addresses
 * in use at once rarely share an entry. */
#define ATOMIC_BUCKET_BITS 14
#define WATCH_BUCKETS 256u
#define STORES_MAX 8u     /* a store buffer; real ones have some 50 entries, but fewer make full ones happen */
#define MAILBOX_MAX 256u  /* messages that wait for one process */
#define VERB_DATA_MAX 64u /* bytes of a WRITE kept in the verb itself */

/* A task waits for a word of its own node, or with FAB_WAIT of another one. */
struct sim_watch {
    uint64_t offset;
    struct sim_node *node;
    uint64_t way_ns; /* until the task hears of a change */
    struct sim_ticket ticket;
    struct sim_watch *next, **link;
};

/* A cache line of a node's memory, and the endpoint whose core used it last. */
struct sim_line {
    uint64_t number;
    const void *user;
};
#define LINE_BUCKET_BITS 12

struct sim_node {
    struct sim_host *host;
    uint64_t *atomic_free_ns; /* by bucket; made at the first atomic */
    struct sim_line *lines;   /* by bucket; made at the first access of a CPU, if it matters where lines are */
    uint64_t *fenced;         /* by process: all generations up to this are shut out; made at the first fence */
    bool mixed;               /* plain writes or CPU writes happen here: windows of atomics can be seen */
    struct sim_verb *windows; /* with a chooser: atomics that have read and not yet written */
    unsigned watch_count;
    struct sim_watch *watches[WATCH_BUCKETS];
};

/* Verbs keep or lose their order by class. */
enum sim_class { SIM_READS, SIM_WRITES, SIM_ATOMICS, SIM_CLASSES };

/* Endpoint to node. */
struct sim_conn {
    uint64_t birth;                  /* of the host as connected to; 0: at first use */
    uint64_t arrival_ns, message_ns; /* the last one's: the next one is not earlier */
    uint64_t effect_ns[SIM_CLASSES]; /* the last one's of each class: a verb is behind those that it must not pass */
    uint32_t contexts;               /* counted in the NICs' context caches, at each end */
};

struct sim_store {
    fab_addr addr;
    uint64_t value, sequence;
};

/* With a chooser: whether the task only looks, again and again, and finds what it found before. */
struct sim_looks {
    uint64_t found, before; /* by this request, and by the one before it: hashes */
    bool changed;           /* this request has changed something */
    unsigned same;          /* requests that found the same, one after the other */
};

struct sim_ep {
    struct fab_ep fab;
    struct sim_fabric *fabric;
    struct sim_process *process;
    struct sim_host *host;
    uint64_t generation;
    struct sim_ep *next, *prev; /* of the process's */
    unsigned in_flight;
    bool freed;
    bool rare; /* does not compete for context caches */
    /* The synchronous request under way: verbs of an earlier one no longer report. */
    uint64_t request;
    bool request_done, request_answered;
    unsigned request_left; /* verbs that have not completed */
    uint64_t request_answer_ns;
    int request_error;
    struct sim_ticket ticket;
    int post_error; /* of a posted write: surfaces at the next verb */
    bool resetting; /* a verb's outcome is unknown: the next one waits until nothing is in flight any more */
    bool receiving;
    uint32_t from_remainder, from_divisor; /* of the senders whose messages it receives; divisor 0: of all */
    struct sim_watch watches[FAB_CONDS_MAX];
    unsigned watching;
    struct sim_store stores[STORES_MAX];
    unsigned store_head, store_count;
    uint64_t store_sequence, store_drain_ns;
    struct sim_conn conns[SIM_HOSTS_MAX];
    struct sim_looks looks;
    uint64_t store_drained; /* sequence number of the last store that left the buffer */
};

/* A message in flight. */
struct sim_letter {
    struct sim_fabric *fabric;
    uint32_t to;
    bool served; /* by the receiver's NIC */
    struct fab_msg msg;
    struct sim_letter *next, *next_free;
};

struct sim_mailbox {
    unsigned head, count;
    struct fab_msg messages[MAILBOX_MAX];
};

struct sim_verb {
    struct sim_ep *ep;
    struct sim_node *node;
    struct fab_op op;
    struct fab_op *result; /* the caller's */
    uint64_t request, birth;
    bool last;                  /* its completion is the request's */
    bool posted;                /* no task waits for it */
    bool second_half;           /* the first half has taken effect */
    bool upper_first;           /* torn: the upper part takes effect before the lower */
    uint16_t torn;              /* a READ or WRITE is torn at this byte; 0: it is not */
    uint64_t window_ns;         /* an atomic: between its read and its write */
    u128 next;                  /* what it writes then */
    char *data;                 /* of a WRITE; null while the verb is free */
    struct sim_verb *next_free; /* of the free ones; with a chooser also of those between their halves */
    char inline_data[VERB_DATA_MAX];
};

/* Verbs come in chunks and are recycled, never returned. */
#define VERBS_PER_CHUNK 64u

struct verb_chunk {
    struct verb_chunk *next;
    struct sim_verb verbs[VERBS_PER_CHUNK];
};

struct sim_fabric {
    struct sim *sim;
    uint32_t caps;
    uint32_t mistakes;          /* sim_fabric_break */
    struct sim_strike *strikes; /* sim_fabric_strike */
    unsigned strike_count;
    struct sim_ep *eps[SIM_PROCESSES_MAX];
    struct sim_letter *letters, *free_letters; /* all of them; those not in flight */
    struct sim_verb *free_verbs;
    struct verb_chunk *chunks;
    struct sim_mailbox *mailboxes[SIM_PROCESSES_MAX];
    struct sim_node nodes[SIM_HOSTS_MAX];
};

static inline struct sim_ep *sim_ep_of(struct fab_ep *ep)
{
    return container_of(ep, struct sim_ep, fab);
}

/* Whether all verbs of an endpoint to a node keep their order. */
static inline bool sim_fabric_ordered(const struct sim_fabric *fabric)
{
    return fab_has(fabric->caps, FAB_ORDERED) && !(fabric->mistakes & SIM_FABRIC_UNORDERED);
}

static inline struct sim_node *sim_node_of(struct sim_fabric *fabric, uint32_t id)
{
    assert(id < fabric->sim->host_count);
    struct sim_node *node = &fabric->nodes[id];
    node->host = fabric->sim->hosts[id];
    return node;
}

static inline void *sim_node_ptr(const struct sim_node *node, fab_addr addr, uint64_t len)
{
    assert(FAB_OFFSET(addr) + len <= node->host->memory_bytes); /* a wild address is the protocol's bug */
    return node->host->memory + FAB_OFFSET(addr);
}

/* Still the process that made the endpoint? */
static inline bool sim_ep_alive(const struct sim_ep *ep)
{
    return ep->process->alive && ep->process->generation == ep->generation;
}

static inline uint64_t sim_jitter_ns(struct sim *sim)
{
    return sim_draw(sim, model_get(sim->model, MODEL_jitter_ns) + 1);
}

/* One way between the endpoint's host and a node. */
static inline uint64_t sim_way_ns(const struct sim_ep *ep, const struct sim_node *node)
{
    struct sim *sim = ep->fabric->sim;
    if (node->host == ep->host)
        return model_get(sim->model, MODEL_loopback_ns);
    return model_get(sim->model, MODEL_propagation_ns) + sim_jitter_ns(sim);
}

/* sim.c */
void sim_ep_release(struct sim_ep *ep); /* frees it once it is freed by its owner and nothing is in flight */
void sim_ep_connect(struct sim_ep *ep, struct sim_node *node);

/* sim_send.c */
int sim_fab_batch(struct fab_ep *fab, struct fab_op *ops, unsigned n);
void sim_fab_post(struct fab_ep *fab, const struct fab_op *op);

/* sim_verb.c */
struct sim_verb *sim_verb_new(struct sim_ep *ep, struct sim_node *node, const struct fab_op *op);
void sim_verb_arrive(void *arg, uint64_t tag);

/* When a packet sent at that time gets through, with retransmissions; UINT64_MAX if the connection is given up. And when that is
 * known. */
uint64_t sim_send_again_ns(struct sim *sim, uint32_t from, uint32_t to, uint64_t at_ns);
uint64_t sim_give_up_ns(const struct sim *sim);

/* sim_wait.c */
int sim_fab_wait(struct fab_ep *fab, const struct fab_cond *conds, unsigned n, uint64_t deadline);
int sim_fab_poll(struct fab_ep *fab, const struct fab_pair *pair, uint64_t deadline, u128 *seen);
int sim_fab_wake(struct fab_ep *fab, fab_addr addr, uint64_t mask, unsigned n);
void sim_node_changed(struct sim_node *node, uint64_t offset, uint64_t len);
void sim_ep_unwatch(struct sim_ep *ep);

/* sim_local.c */
uint64_t sim_fab_local(struct fab_ep *fab, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value);
uint64_t sim_fab_own(struct fab_ep *fab, enum fab_own how, fab_addr addr, uint64_t value);
void sim_fab_local_fence(struct fab_ep *fab);
void sim_ep_drain(struct sim_ep *ep);

/* sim_msg.c */
int sim_fab_send(struct fab_ep *fab, uint32_t to, const void *data, uint32_t len);
int sim_fab_recv(struct fab_ep *fab, struct fab_msg *out, uint64_t deadline);
int sim_fab_fence(struct fab_ep *fab, uint32_t peer, uint64_t proof);

static inline bool sim_node_fences(const struct sim_node *node, const struct sim_ep *ep)
{
    return node->fenced && node->fenced[ep->fab.id] >= ep->generation;
}

#endif
