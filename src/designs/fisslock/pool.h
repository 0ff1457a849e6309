/* SPDX-License-Identifier: Apache-2.0 */
/* A host's part of FissLock: its requests (the client of Fig. 6) and its agent pool (Fig. 7, 11), in one block of memory.
 *
 * The truth about who holds is in the requests: a request that is HELD holds, any other does not. Everything else (an agent's
 * holders and queue, the decider's word) is kept in line with that by packets, and where packets were lost by asking again:
 *
 *     a client that waits repeats its ACQUIRE; so a queue that was lost, or a GRANT, comes again
 *     an agent that others wait for repeats its GRANT to the holders it knows; one that does not hold answers RELEASE
 *     an agent that cannot account for all ordinals of its tenure takes a census
 *     a host that is said to have an agent and knows nothing of it adopts it
 *
 * Nonces are never used twice, so whatever arrives for a request that has ended finds nobody. */
#ifndef PAWL_DESIGNS_FISSLOCK_POOL_H
#define PAWL_DESIGNS_FISSLOCK_POOL_H

#include "dataplane/fission.h"
#include "designs/fisslock/mistakes.h"
#include "designs/fisslock/options.h"
#include "designs/packet/chase.h"
#include "designs/packet/packet.h"
#include "designs/packet/timers.h"
#include "lib/hash.h"

#define NONE UINT32_MAX

/* ---- requests ---- */

enum fiss_state {
    FISS_IDLE,
    FISS_ENDED, /* refused or given up; idle, and the outcome can still be read */
    FISS_WAITING,
    FISS_HELD,
    FISS_UPGRADING, /* held shared, wants to be exclusive */
    FISS_RELEASING, /* not held; the agent has not yet said that it knows */
};

struct fiss_request {
    uint64_t nonce;
    uint64_t index;
    uint64_t token;
    uint64_t pause_ns; /* until the next retransmission */
    uint32_t next;     /* in its bucket */
    uint32_t term;     /* held: the tenure; TERM_NONE: one of a decider that lost its state */
    uint32_t floor;    /* waiting: earlier tenures are over (if `floored`) */
    uint32_t barred_term;
    uint16_t barred_inca; /* waiting: ordinals up to this of that tenure were given up in a census (if `barred`) */
    uint16_t ordinal;     /* held: by the decider's grant of that number; 0: by the agent */
    uint16_t port;
    uint8_t state;
    uint8_t mode;
    uint8_t priority;
    bool try, floored, barred;
    bool local; /* held by the short way: local.c */
    uint8_t local_place;
    uint32_t agent; /* if `local` */
    int32_t result;
};

#define TERM_NONE UINT32_MAX /* no tenure has it */

/* A nonce: slot 20, serial 32, life of the host 12. */
#define NONCE_REQUEST_BITS 20
#define NONCE_SERIAL_BITS 32
#define NONCE_REQUEST(nonce) ((uint32_t)((nonce) & ((1u << NONCE_REQUEST_BITS) - 1)))

/* ---- agents ---- */

/* Whose request: nonces are one host's. */
struct who {
    uint64_t nonce;
    uint16_t machine;
};

/* One who holds, or one who waits. */
struct node {
    uint64_t nonce;
    uint64_t since; /* when it came here */
    uint32_t next;
    struct place client;
    uint16_t ordinal;
    uint8_t mode;
    uint8_t priority;
};

enum agent_state {
    AGENT_NONE,
    AGENT_LIVE,
    AGENT_FREEING, /* FREE was sent */
    AGENT_MOVING,  /* GRANT with agent was sent; to this host itself, if the mode changes */
};

struct list {
    uint32_t head, tail, count;
};

struct agent {
    uint64_t index;
    uint64_t token; /* of the tenure */
    uint64_t pause_ns;
    uint32_t next; /* in its bucket, or among the free */
    uint32_t term;
    struct list holders, waiters;
    uint32_t writers;    /* among the waiters */
    struct who upgrader; /* the holder that wants to be exclusive; machine 0: none */

    /* Ordinals of a shared tenure: all up to `known` are accounted for, and known + 1 + i if bit i is set; `seen` exists. */
    uint64_t known_bits;
    uint16_t known, seen;

    uint16_t sent_inca; /* freeing, moving: the incarnation that was sent */
    uint32_t grantee;   /* moving: node of the next holder, or NONE */
    bool grantee_holds; /* it is a holder that is upgraded */
    uint16_t to;        /* moving: to this machine */
    uint8_t to_mode;
    uint8_t state;
    uint8_t right;    /* what the decider says: in an exclusive tenure the agent may grant as it likes, in a shared one shared */
    uint8_t score;    /* keep.c */
    uint16_t granted; /* exclusive tenure: counts grants, for the low bits of tokens */
    bool starves;     /* a writer has waited too long: readers queue */
    bool adopted;
    bool doubt; /* taken over: whoever holds by an earlier tenure must be asked for */
    bool kept;  /* is among those that stay, between these two: */
    uint32_t kept_before, kept_after;
};

struct habit {
    uint32_t index;
    uint32_t next; /* term and score; 0: none */
};

#define TOKEN_GRANT_BITS 14
static_assert(FISSION_TOKEN_LIFE_SHIFT + TOKEN_GRANT_BITS + 32 <= 64, "a token keeps the whole life");
#define TOKEN_GRANTS_MAX                                                                                                           \
    ((1u << TOKEN_GRANT_BITS) - 6) /* then through the decider, for a new tenure; some are left for downgrades */

/* ---- the host ---- */

#define ENDS 1024          /* counters of ended tenures; those of different locks may coincide, which costs one more bounce */
#define ENDS_LIFE_SHIFT 22 /* they begin with the host's life: what was sent in another one proves nothing */
#define MACHINES_MAX 1024

struct fiss_census {
    uint64_t id; /* 0: none */
    uint64_t index;
    uint32_t term;
    bool all; /* who holds by earlier tenures, whatever the ordinal; else by these: */
    uint16_t low, high;
    uint16_t left; /* machines that have not answered */
    uint64_t pause_ns;
    uint64_t answered[MACHINES_MAX / 64];
};

/* What is being told to a decider that lost its state: requests from `next` on are still to be looked at, and these parts have not
 * been answered. */
#define REPORT_PARTS 32

struct report {
    bool active;
    uint32_t next;
    uint32_t first, count; /* of the ring */
    uint64_t pause_ns;
    struct {
        uint32_t from, to; /* requests */
        bool heard;
    } part[REPORT_PARTS];
};

struct fisslock_counts {
    uint64_t by_switch, by_agent, local; /* grants, by who decided them */
    uint64_t retries, bounces, adopted, denied, censuses, orphans, checks, crowded, lapses, survived, reported;
    uint64_t probes, deadlocks; /* begun; found */
};

#define TAKES 64 /* that are under way at once; of two that coincide the later waits */

struct take {
    uint64_t index;
    uint64_t since; /* when it was asked for */
    uint32_t term;  /* that was to end */
    bool asked;
};

struct session_state {
    uint32_t held; /* requests */
    bool lost;     /* something that it held; until it is told (fisslock_session_dead) */
};

/* Holds that came by the short way, and the one step of it that is under way: local.c. */
#define LOCALS 64

struct locals {
    uint64_t taken;           /* a bit per place */
    uint32_t request[LOCALS]; /* by place */
    struct {
        uint32_t request, place;
        uint32_t held; /* what the session holds without it */
        uint32_t active;
    } step;
};

struct fisslock_host {
    struct rack_config config;
    struct fission_rules rules;
    uint64_t nonce_high; /* life, in place */
    uint32_t request_count, agent_count, node_count;
    uint32_t request_mask, agent_mask; /* of the bucket arrays */
    uint64_t requests_at, agents_at, nodes_at, request_buckets_at, agent_buckets_at, timers_at, sessions_at, habits_at;
    uint64_t suspects_at, threads_at;
    uint64_t part_bytes; /* of each part of a host in several racks: they lie side by side (racks.c) */
    uint32_t habit_mask, kept_max;
    uint32_t life;
    uint16_t machine;

    /* What nearly every event changes. */
    _Alignas(CACHE_LINE) struct fisslock_counts counts;
    struct packet_drops drops;
    uint64_t serial;
    uint64_t lease_until; /* by the host's clock; 0: none */
    uint64_t lease_pause_ns;
    bool closed; /* the decider lost its state, and is being told */
    bool reborn; /* it has lost its memory, or its lease, before: agents that nobody told of are to be taken over */
    uint32_t agent_free, node_free;         /* those that were used before; then: */
    uint32_t agents_touched, nodes_touched; /* those beyond never were */
    uint32_t agents_used, nodes_used, waiting;
    uint32_t kept_first, kept_last, kept_count;
    bool leaving;

    _Alignas(CACHE_LINE) struct locals locals;
    uint32_t ends[ENDS];
    struct take takes[TAKES];
    struct fiss_census census;
    struct report report;
};

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
#define TIMERS_BESIDE 3 /* those of requests and agents */
static inline struct session_state *host_session(struct fisslock_host *h, uint32_t request)
{
    return (struct session_state *)((char *)h + h->sessions_at) + request / h->config.requests;
}
static inline struct suspect *host_suspect(struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct suspect *)((char *)h + h->suspects_at) + request_number(h, r);
}
/* The thread that asked for it, or asks for more: its own number in its session; 0: none waits for it. */
static inline uint32_t *host_thread(struct fisslock_host *h, uint32_t request)
{
    return (uint32_t *)((char *)h + h->threads_at) + request;
}
/* The parts of a host in several racks, one of which this is. */
static inline unsigned host_parts(const struct fisslock_host *h)
{
    return h->config.racks ? h->config.racks : 1;
}
static inline struct fisslock_host *host_part(struct fisslock_host *h, unsigned rack)
{
    return (struct fisslock_host *)(void *)((char *)h - h->config.rack * h->part_bytes + rack * h->part_bytes);
}
static inline bool host_is(const struct fisslock_host *h, uint64_t option)
{
    return h->config.options & option;
}
static inline uint32_t *host_ends(struct fisslock_host *h, uint64_t index)
{
    return &h->ends[mix64(index) % ENDS];
}

/* One event: the host, the time, and where packets go. */
struct event {
    struct fisslock_host *h;
    uint64_t now;
    struct outbox *out;
    uint16_t port; /* of the process that calls; PORT_POOL: none does */
};

/* This is about to change; if its process dies before the event is over, it is undone. */
#define edit(e, object) outbox_touch((e)->out, (object), sizeof *(object))

/* ---- lease.c ---- */

bool lease_runs(const struct fisslock_host *h, uint64_t now);
void lease_lapse(struct event *e);
void lease_due(struct event *e);
void lease_packet(struct event *e, const struct fission_packet *p);

/* ---- local.c ---- */

void local_settle(struct event *e); /* holds that came by the short way become like others */

static inline struct event event_begin(void *host, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = (struct fisslock_host *)host;
    outbox_touch(out, &h->counts, offsetof(struct fisslock_host, locals) - offsetof(struct fisslock_host, counts));
    struct event e = {h, now, out, PORT_POOL};
    if (unlikely(h->locals.taken))
        local_settle(&e);
    if (unlikely(h->lease_until && h->lease_until <= now) && !lease_runs(h, now))
        lease_lapse(&e);
    return e;
}

/* ---- report.c: what is told to a decider that lost its state ---- */

void report_start(struct event *e);
void report_stop(struct event *e);
void report_due(struct event *e);
void report_packet(struct event *e, const struct fission_packet *p);

/* ---- pool.c: memory, packets, timers ---- */

uint64_t pool_bytes(const struct rack_config *config);
void pool_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life);

/* A packet to fill in, addressed to the decider; null if the outbox is full: everything is said again. */
struct fission_packet *pool_packet(struct event *e, enum fission_type type, uint64_t index, uint64_t nonce, unsigned entries);
struct fission_entry *pool_entries(struct fission_packet *p);

uint64_t pool_nonce(struct event *e, uint32_t request);                        /* a new one */
struct fiss_request *pool_request_of(struct fisslock_host *h, uint64_t nonce); /* null: nobody has it any more */
void pool_request_link(struct event *e, struct fiss_request *r);
void pool_request_unlink(struct event *e, struct fiss_request *r);
struct fiss_request *pool_request_first(struct fisslock_host *h, uint64_t index); /* of those that are about this lock */
struct fiss_request *pool_request_next(struct fisslock_host *h, const struct fiss_request *r);

struct agent *pool_agent_of(struct fisslock_host *h, uint64_t index);
struct agent *pool_agent_new(struct event *e, uint64_t index);
void pool_agent_free(struct event *e, struct agent *a); /* its nodes, too */

/* For one of this host, or another's; NONE: there are none left. Those of this host's own requests never run out: that they hold
 * must be known. */
uint32_t pool_node_new(struct event *e, bool own);
void pool_node_free(struct event *e, uint32_t node);
void pool_list_append(struct event *e, struct list *l, uint32_t node);
void pool_list_push(struct event *e, struct list *l, uint32_t node);
void pool_list_insert(struct event *e, struct list *l, uint32_t node); /* behind those of its priority */
uint32_t pool_list_pop(struct event *e, struct list *l);
uint32_t pool_list_find(struct fisslock_host *h, const struct list *l, struct who who);
bool pool_list_take(struct event *e, struct list *l, uint32_t node);

/* The next pause of something that is repeated. */
#define PAUSE_FACTOR_MAX 32 /* of the first retransmission's */
uint64_t pool_pause(const struct fisslock_host *h, uint64_t pause_ns);

/* ---- request.c: the client ---- */

bool request_wants(struct fisslock_host *h, uint64_t nonce); /* waits for a grant */
bool request_holds(struct fisslock_host *h, uint64_t nonce);
void request_grant(struct event *e, struct fiss_request *r, uint8_t mode, uint64_t token, uint32_t term, uint16_t ordinal);
void request_end(struct event *e, struct fiss_request *r, int result);
void request_deny_upgrade(struct event *e, struct fiss_request *r, int result);
void request_packet(struct event *e, const struct fission_packet *p);
void request_due(struct event *e, struct fiss_request *r);
void request_not_waiting(struct event *e, uint64_t index, uint64_t nonce);
/* What it holds, from one pool of this host to another: the lock is in another rack now. */
void request_carry(void *from, void *to, uint32_t request, uint64_t now, struct outbox *out);
struct place request_place(struct fisslock_host *h, const struct fiss_request *r);

/* ---- agent.c: what an agent does ---- */

struct asking {
    uint64_t nonce;
    struct place client;
    uint8_t mode, priority;
    bool nowait;
};

enum agent_says { AGENT_GRANTS, AGENT_QUEUES, AGENT_REFUSES };

enum agent_says agent_ask(struct event *e, struct agent *a, const struct asking *asking);
enum agent_says agent_upgrade(struct event *e, struct agent *a, struct who who);
void agent_cancel_upgrade(struct event *e, struct agent *a, struct who who);
bool agent_know(struct event *e, struct agent *a, uint32_t ordinal);
bool agent_knows(const struct agent *a, uint32_t ordinal); /* or could not remember it */
bool agent_release(struct event *e, struct agent *a, struct who who, uint32_t term, uint16_t ordinal);
void agent_downgrade(struct event *e, struct agent *a, struct fiss_request *r);
void agent_serve(struct event *e, struct agent *a);
void agent_due(struct event *e, struct agent *a);
void agent_tell_writers(struct event *e, struct agent *a, bool starves);
uint64_t agent_token(const struct agent *a);
bool agent_queue(struct event *e, struct agent *a, const struct asking *asking);
bool agent_open(const struct event *e, const struct agent *a);
void agent_watch(struct event *e, struct agent *a); /* from now on look again from time to time */
bool agent_hold(struct event *e, struct agent *a, const struct asking *asking, uint16_t ordinal); /* false: no room */

/* ---- tenure.c: how an agent comes and goes ---- */

void tenure_begin(struct event *e, struct agent *a, uint64_t word, uint64_t token);
void tenure_end(struct event *e, struct agent *a);
void tenure_free(struct event *e, struct agent *a);
void tenure_move(struct event *e, struct agent *a, uint32_t grantee, uint16_t to, uint8_t mode);
void tenure_say_again(struct event *e, struct agent *a);                              /* FREE or GRANT with agent */
void tenure_arrived(struct event *e, struct agent *a, uint64_t word, uint64_t token); /* a move to this host itself */
void tenure_grant(struct event *e, const struct fission_packet *p);                   /* GRANT with agent, or its way back */
void tenure_answer(struct event *e, const struct fission_packet *p);                  /* FREE, on its way back */
void tenure_ack(struct event *e, const struct fission_packet *p);
struct agent *tenure_adopt(struct event *e, uint64_t index, uint64_t word, uint64_t token);
void tenure_look(struct event *e, uint64_t index);
bool tenure_taken(struct event *e, uint64_t index, uint32_t term);

/* ---- keep.c: agents that stay ---- */

void keep_begin(struct event *e, struct agent *a, bool by_decider);
void keep_end(struct event *e, const struct agent *a);
void keep_hit(struct agent *a);
bool keep_agent(struct event *e, struct agent *a);
void keep_forget(struct event *e, struct agent *a);

/* ---- forward.c: what the decider sends to the agent ---- */

void forward_packet(struct event *e, const struct fission_packet *p);

/* ---- census.c ---- */

void census_start(struct event *e, struct agent *a);
void census_packet(struct event *e, const struct fission_packet *p);
void census_due(struct event *e);

/* ---- deadlock.c ---- */

void deadlock_thread(struct event *e, uint32_t request, uint32_t thread);
void deadlock_upgrade(struct event *e, struct fiss_request *r); /* it begins */
void deadlock_second(struct event *e, struct fiss_request *r);  /* it is said to have come when there was one */
void deadlock_due(struct event *e, struct fiss_request *r);     /* it still waits */
void deadlock_probe(struct event *e, const struct fission_packet *p);
void deadlock_chase(struct event *e, const struct fission_packet *p);

#endif
