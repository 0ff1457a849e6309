/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a host's sessions in designs whose granters answer by packet: a table of requests, retransmitted until they are
 * answered, and the host's leases at the granters. The design says which packets go to which granter, and what an answer means. */
#ifndef PAWL_DESIGNS_PACKET_REQUESTS_H
#define PAWL_DESIGNS_PACKET_REQUESTS_H

#include "designs/packet/packet.h"

#define REQUEST_BEFORE_BACKOFF 2u           /* packets sent before the pause between them grows */
#define REQUEST_RETRY_DOUBLINGS 6u          /* the pause between retransmissions grows up to 64 times the first */
#define GRANTERS_MAX (RACK_SERVERS_MAX + 1) /* the servers, and a switch */

enum request_state {
    REQUEST_IDLE,
    REQUEST_ASKING, /* to be granted */
    REQUEST_HELD,
    REQUEST_CONVERTING, /* held in the old mode */
    REQUEST_STAYING,    /* the same, but given up */
    REQUEST_CALLING,    /* held; its data server is to do something */
    REQUEST_VOIDING,    /* given up, not held: waits to learn whether its data server did the call */
    REQUEST_RELEASING,  /* not held any more; waits for the acknowledgement */
    REQUEST_QUITTING,   /* given up, in designs in which that differs from a release: it may be in a queue, granted, or nowhere */
};

struct request {
    uint64_t nonce, index, token;
    uint64_t next_ns;    /* when to send again */
    uint64_t since_ns;   /* when it began */
    uint32_t next, prev; /* among those that wait for an answer; request + 1, 0: none */
    uint32_t ticket;     /* by which its granter knows it, beside the nonce */
    uint32_t step;       /* conversions so far */
    uint32_t thread;     /* that waits for it, and has it then; 0: none */
    uint32_t generation; /* of the index */
    uint32_t call;       /* number of its call to the data server, + 1; 0: none */
    int32_t result;
    int32_t why; /* of giving up */
    uint16_t port, tenant, granter;
    uint16_t limit; /* of a semaphore; 0: it is none */
    uint8_t state, mode, want, priority;
    uint8_t sent;   /* how often, up to a bound */
    uint8_t moving; /* how often a try met a lock on the move */
    bool try;
    bool wanted;     /* held, and another request is known to wait for the lock */
    bool unreported; /* held, and its granter has lost its memory: it is to be told */
    bool doubt; /* asked under another nonce, and the former one may have been granted, too: it is given back when that is heard */
};

struct lease {
    uint64_t until_ns;  /* 0: none */
    uint64_t since_ns;  /* when the host had it first; it has not ended since */
    uint64_t next_ns;   /* when to ask for more */
    uint64_t slots;     /* of a server: the slots whose locks it has, as it said; a bit each */
    uint32_t life;      /* of its granter, the latest heard of */
    uint32_t floor;     /* of its granter: an earlier life was replaced */
    uint16_t port;      /* of a switch: the active one, as far as is known */
    uint8_t asked;      /* how often without an answer */
    uint32_t reports;   /* holds that the granter, which has lost its memory, has not acknowledged yet; */
    uint64_t report_ns; /* when to tell it of them again */
};

/* A host's memory begins with this; behind it are the design's own things, if any, and then the requests. */
struct requests {
    struct { /* the fields that almost every event changes */
        struct packet_drops drops;
        uint64_t serial;               /* of the latest nonce */
        uint32_t pending;              /* first that waits for an answer; request + 1 */
        uint64_t by_switch, by_server; /* grants */
        uint64_t probes, deadlocks;    /* begun; found */
    } busy;
    struct rack_config config;
    uint32_t life;
    uint16_t machine;
    uint16_t granters;
    uint64_t held_at; /* offset of counts: what a session has from a granter */
    uint64_t lost_at; /* of bytes, one per session: 1 if it lost something */
    uint64_t requests_at;
    uint64_t part_bytes; /* of each part of a host of several switches: they lie side by side (parts.h) */
    struct lease leases[GRANTERS_MAX];
};

uint64_t requests_bytes(const struct rack_config *c, unsigned granters);
void requests_init(struct requests *t, const struct rack_config *c, unsigned granters, uint16_t machine,
                   uint32_t life); /* zeroed */

/* Functions of the table in packet.h, for designs that need no others. */
struct packet_drops requests_drops(const void *host);
int requests_outcome(const void *host, uint32_t request, struct packet_answer *out);
bool requests_idle(const void *host, uint32_t request);
bool requests_hold(const void *host, uint32_t request);
bool requests_claim(const void *host, uint32_t request, struct packet_claim *out);
bool requests_use(void *host, uint64_t index, uint64_t now, struct outbox *out);
void requests_grow(void *host, uint64_t locks, struct outbox *out); /* of a design that does not divide locks by their number */

static inline struct request *request_at(const struct requests *t, uint32_t i)
{
    return (struct request *)(void *)((char *)(uintptr_t)t + t->requests_at) + i;
}

static inline uint32_t request_number(const struct requests *t, const struct request *r)
{
    return (uint32_t)(r - request_at(t, 0));
}

static inline uint32_t request_session(const struct requests *t, const struct request *r)
{
    return request_number(t, r) / t->config.requests;
}

static inline bool request_held(const struct request *r)
{
    return r->state == REQUEST_HELD || r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING || r->state == REQUEST_CALLING;
}

/* A granter may grant it, or may have granted it already. */
static inline bool request_asks(const struct request *r)
{
    return r->state == REQUEST_ASKING || r->state == REQUEST_VOIDING;
}

/* How many locks a session has from a granter. */
static inline uint32_t *request_held_count(const struct requests *t, uint32_t session, unsigned granter)
{
    return (uint32_t *)(void *)((char *)(uintptr_t)t + t->held_at) + (uint64_t)session * t->granters + granter;
}

/* Another granter has the hold from now on. */
void request_hand_over(struct requests *t, struct request *r, unsigned granter, struct outbox *out);

/* Whether a session has lost something. */
static inline bool request_lost(const struct requests *t, uint32_t session)
{
    return *((const uint8_t *)t + t->lost_at + session);
}
void request_set_lost(struct requests *t, uint32_t session, bool lost, struct outbox *out);

static inline void requests_touch(struct requests *t, struct outbox *out)
{
    outbox_touch(out, &t->busy, sizeof t->busy);
}

/* The only way from one state to another: keeps the list of those that wait for an answer, and the counts. */
void request_become(struct requests *t, struct request *r, enum request_state state, struct outbox *out);

/* Notes that the request was sent, and when to retransmit it. */
static inline void request_pause(const struct requests *t, struct request *r, uint64_t now, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->next_ns = now + (t->config.retry_ns << (r->sent > REQUEST_BEFORE_BACKOFF ? r->sent - REQUEST_BEFORE_BACKOFF : 0));
}

static inline void request_count(struct request *r)
{
    if (r->sent < REQUEST_BEFORE_BACKOFF + REQUEST_RETRY_DOUBLINGS)
        r->sent++;
}

/* Gives the request its outcome. */
static inline void request_settle(struct requests *t, struct request *r, int result, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->result = result;
    outbox_wake(out, request_number(t, r));
}

/* A try that is not answered for a lease: no granter can say whether the lock is held. */
static inline bool request_vain(const struct requests *t, const struct request *r, uint64_t now)
{
    return r->state == REQUEST_ASKING && r->try && now >= r->since_ns + t->config.lease_ns;
}

#endif
