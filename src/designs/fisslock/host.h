/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a host: its requests (request.h), its agents (agent.h), and what it needs to recover (recover.h), in one block
 * without pointers. pool.c lays it out. */
#ifndef PAWL_DESIGNS_FISSLOCK_HOST_H
#define PAWL_DESIGNS_FISSLOCK_HOST_H

#include "designs/fisslock/agent.h"
#include "designs/fisslock/mistakes.h"
#include "designs/fisslock/options.h"
#include "designs/fisslock/recover.h"
#include "designs/fisslock/request.h"
#include "designs/fisslock/timers.h"
#include "designs/packet/chase.h"
#include "lib/hash.h"

#define NONE UINT32_MAX
#define ENDS 1024          /* counters of ended tenures; locks may share one, which costs one more bounce */
#define ENDS_LIFE_SHIFT 22 /* they begin with the host's life: a packet of another life proves nothing */
#define TAKES 64           /* TAKEs in flight; of two that share a place the later waits */

struct fisslock_counts {
    uint64_t by_switch, by_agent, local; /* grants, by decider */
    uint64_t retries, bounces, adopted, denied, censuses, orphans, checks, crowded, lapses, survived, reported;
    uint64_t probes, deadlocks; /* begun; found */
};

struct take {
    uint64_t index;
    uint64_t since; /* when TAKE was sent */
    uint32_t term;  /* the tenure that it ends */
    bool asked;
};

struct fisslock_host {
    struct rack_config config;
    struct fisslock_policy policy;
    struct fission_rules rules;
    uint64_t nonce_high; /* life, in place */
    uint32_t request_count, agent_count, node_count;
    uint32_t request_mask, agent_mask, habit_mask; /* of tables, whose lengths are powers of two */
    uint64_t requests_at, agents_at, nodes_at, request_buckets_at, agent_buckets_at, timers_at, sessions_at, habits_at;
    uint64_t suspects_at, threads_at;
    uint64_t part_bytes; /* of each part of a host in several racks: they lie side by side (racks.c) */
    uint32_t kept_max;
    uint32_t life;
    uint16_t machine;

    /* Fields that nearly every event changes. */
    _Alignas(CACHE_LINE) struct fisslock_counts counts;
    struct packet_drops drops;
    uint64_t serial;
    uint64_t lease_until; /* by the host's clock; 0: none */
    uint64_t lease_pause_ns;
    uint32_t deaf;                          /* to deciders of lives up to this one: they were replaced */
    bool closed;                            /* the decider lost its state and collects reports */
    bool reborn;                            /* the host lost its memory or its lease before: agents of its former life may exist */
    uint32_t agent_free, node_free;         /* lists of those that were used before; */
    uint32_t agents_touched, nodes_touched; /* those beyond were never used */
    uint32_t agents_used, nodes_used, waiting;
    struct chain {
        uint32_t first, last, count;
    } chain[CHAINS];
    bool leaving;

    _Alignas(CACHE_LINE) struct locals locals;
    uint32_t ends[ENDS];
    struct take takes[TAKES];
    struct fiss_census census;
    struct report report;
};

/* An invariant of docs/invariants.md. A variant that is wrong on purpose may break it: then the oracle must notice. */
#define host_assert(h, holds) assert((holds) || MISTAKES((h)->config.mistakes))

static inline struct fiss_request *host_request(struct fisslock_host *h, uint32_t i)
{
    return (struct fiss_request *)((char *)h + h->requests_at) + i;
}
static inline struct agent *host_agent(struct fisslock_host *h, uint32_t i)
{
    return (struct agent *)((char *)h + h->agents_at) + i;
}
static inline struct node *host_node(struct fisslock_host *h, uint32_t i)
{
    return (struct node *)((char *)h + h->nodes_at) + i;
}
static inline bool node_is(const struct node *n, struct who who)
{
    return n->nonce == who.nonce && n->client.machine == who.machine;
}
static inline struct timers *host_timers(struct fisslock_host *h)
{
    return (struct timers *)((char *)h + h->timers_at);
}
static inline uint32_t request_number(struct fisslock_host *h, const struct fiss_request *r)
{
    return (uint32_t)(r - host_request(h, 0));
}
static inline struct who request_who(const struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct who){r->nonce, h->machine};
}
static inline uint32_t agent_number(struct fisslock_host *h, const struct agent *a)
{
    return (uint32_t)(a - host_agent(h, 0));
}
static inline uint32_t timer_of_agent(struct fisslock_host *h, const struct agent *a)
{
    return h->request_count + agent_number(h, a);
}
static inline uint32_t timer_of_census(const struct fisslock_host *h)
{
    return h->request_count + h->agent_count;
}
static inline uint32_t timer_of_lease(const struct fisslock_host *h)
{
    return timer_of_census(h) + 1;
}
static inline uint32_t timer_of_report(const struct fisslock_host *h)
{
    return timer_of_lease(h) + 1;
}
#define TIMERS_BESIDE 3 /* beside those of requests and agents */
static inline struct session_state *host_session(struct fisslock_host *h, uint32_t request)
{
    return (struct session_state *)((char *)h + h->sessions_at) + request / h->config.requests;
}
static inline struct suspect *host_suspect(struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct suspect *)((char *)h + h->suspects_at) + request_number(h, r);
}
/* The thread that waits for the request or holds it: its number in its session; 0: none. */
static inline uint32_t *host_thread(struct fisslock_host *h, uint32_t request)
{
    return (uint32_t *)((char *)h + h->threads_at) + request;
}
/* The parts of a host in several racks, of which h is one. */
static inline unsigned host_parts(const struct fisslock_host *h)
{
    return h->config.racks ? h->config.racks : 1;
}
static inline struct fisslock_host *host_part(struct fisslock_host *h, unsigned rack)
{
    return (struct fisslock_host *)(void *)((char *)h - h->config.rack * h->part_bytes + rack * h->part_bytes);
}
static inline uint32_t *host_ends(struct fisslock_host *h, uint64_t index)
{
    return &h->ends[mix64(index) % ENDS];
}
static inline uint32_t term_after(uint32_t term)
{
    return (term + 1) & FISSION_TERM_MASK;
}

/* Whether the host's lease at the decider runs (lease.c). */
static inline bool lease_runs(const struct fisslock_host *h, uint64_t now)
{
    return !h->config.lease_ns || now < h->lease_until || MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_LEASE);
}

/* ---- events ---- */

/* A call, a packet or a time: the host, the clock, and the outbox for its packets. */
struct event {
    struct fisslock_host *h;
    uint64_t now;
    struct outbox *out;
    uint16_t port;       /* of the process that calls; PORT_POOL: none */
    uint32_t generation; /* of the packet that came; 0: none did */
};

/* The object is about to change. The change is undone if its process dies before the event is over (I5). */
#define edit(e, object) outbox_touch((e)->out, (object), sizeof *(object))

static inline struct event event_begin(void *host, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = (struct fisslock_host *)host;
    outbox_touch(out, &h->counts, offsetof(struct fisslock_host, locals) - offsetof(struct fisslock_host, counts));
    struct event e = {h, now, out, PORT_POOL, 0};
    if (unlikely(h->locals.taken))
        local_settle(&e);
    if (unlikely(h->lease_until && h->lease_until <= now) && !lease_runs(h, now))
        lease_lapse(&e);
    return e;
}

/* ---- pool.c: memory, packets ---- */

/* A packet to fill in, addressed to the decider. Null if the outbox is full: every packet is retransmitted. */
struct fission_packet *pool_packet(struct event *e, enum fission_type type, uint64_t index, uint64_t nonce, unsigned entries);
struct fission_entry *pool_entries(struct fission_packet *p);

uint64_t pool_nonce(struct fisslock_host *h, uint32_t request);                /* a new one */
struct fiss_request *pool_request_of(struct fisslock_host *h, uint64_t nonce); /* null: that request has ended */
void pool_request_link(struct event *e, struct fiss_request *r);
void pool_request_unlink(struct event *e, struct fiss_request *r);
struct fiss_request *pool_request_first(struct fisslock_host *h, uint64_t index); /* of those for this lock */
struct fiss_request *pool_request_next(struct fisslock_host *h, const struct fiss_request *r);
void pool_request_floor(struct event *e, uint64_t index, uint32_t term); /* requests that wait take no GRANT of earlier tenures */

/* The generation of a lock of which this host has an agent or a request; else that of the packet that came. */
uint32_t pool_generation(struct event *e, uint64_t index);
/* An agent of an earlier generation than this one is outdated: no host uses it. It is forgotten. */
void pool_forget_outdated(struct event *e, uint64_t index, uint32_t generation);

struct agent *pool_agent_of(struct fisslock_host *h, uint64_t index);
struct agent *pool_agent_new(struct event *e, uint64_t index);
void pool_agent_free(struct event *e, struct agent *a); /* with its nodes */
void pool_chain_append(struct event *e, enum agent_chain chain, struct agent *a);
void pool_chain_take(struct event *e, enum agent_chain chain, struct agent *a);

/* `own`: for a request of this host. NONE: none are left; for own requests there are always some, since holders must be known. */
uint32_t pool_node_new(struct event *e, bool own);
void pool_node_free(struct event *e, uint32_t node);
void pool_list_append(struct event *e, struct list *l, uint32_t node);
void pool_list_push(struct event *e, struct list *l, uint32_t node);
void pool_list_insert(struct event *e, struct list *l, uint32_t node); /* behind those of its priority */
uint32_t pool_list_pop(struct event *e, struct list *l);
uint32_t pool_list_find(struct fisslock_host *h, const struct list *l, struct who who);
void pool_list_take(struct event *e, struct list *l, uint32_t node);

/* The next pause of a retransmission: twice the last, up to this many times the first. */
#define PAUSE_FACTOR_MAX 32
uint64_t pool_pause(const struct fisslock_host *h, uint64_t pause_ns);

#endif
