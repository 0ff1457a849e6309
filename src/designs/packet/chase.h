/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlocks: threads that wait in a circle, each for what the next one has.
 *
 * Edge chasing in the manner of Chandy, Misra and Haas (1983), AND model. Who has waited for long and holds something asks whoever
 * has the lock's queue (a PROBE); that passes the question, as CHASE, to the host of everybody who is in the way; if such a one
 * waits, too, its host appends that and asks the queue of *that* lock. What comes back to where it began has found a circle, of
 * steps that were true one after the other. They were true at the same time if all of them are still true when a second round has
 * gone along the same way: a wait has a name that is used once, and so has a hold; what is there before and after the moment at
 * which the first round ended was there in that moment. So:
 *
 *     No false victims (I13): who is told of a deadlock was part of one at a moment during its wait, CHASE_SURE_FACTOR
 *     retransmission times ago at most.
 *
 * What is true is looked up where it is true: that a request waits or holds, in the memory of its host. A queue is believed only
 * that one keeps out another that it need not (readers behind a writer, or behind a queue that is full), and that is asked of it in
 * both rounds, of one term. Packets that are lost, late or doubled find nothing, or find it again; nothing else depends on them.
 *
 * Of a circle one is the victim: the one of highest rank. A probe does not pass one who outranks whoever began it.
 *
 * A design has the packets, the queues and the requests; here is what they have in common. */
#ifndef PAWL_DESIGNS_PACKET_CHASE_H
#define PAWL_DESIGNS_PACKET_CHASE_H

#include "designs/packet/packet.h"

#define CHASE_PROBE_FACTOR 4 /* a wait is looked into when it is that many retransmission times until the next */
#define CHASE_SURE_FACTOR 8  /* retransmission times, within which the second round must be back */
#define CHASE_FANOUT_MAX 16  /* of those in the way: others come next time */
#define CHASE_STEPS_MAX 80   /* what fits into a packet beside its head; a circle has two for each thread */
#define CHASE_NONE UINT32_MAX
#define CHASE_PASSES 4 /* others' that a wait remembers */

enum chase_kind {
    CHASE_WAIT = 1,   /* id: of the wait */
    CHASE_HOLD = 2,   /* id: nonce of a request that holds what the one before waits for, and excludes it */
    CHASE_QUEUED = 3, /* id: nonce of a request that waits and must be served before; says the queue of `term` */
    CHASE_AHEAD = 4,  /* id: nonce of a request that holds and, whether or not it excludes it, must go before; says the queue */
};

/* What follows PROBE and CHASE: one who waits, what it waits for, who waits and has that, and so on. */
struct chase_step {
    uint64_t id;
    uint32_t term; /* WAIT: the part of its host; else of the queue */
    uint16_t machine;
    uint8_t kind;
    uint8_t second; /* WAIT: an upgrade that came when there was one */
};
static_assert(sizeof(struct chase_step) == 16, "no padding");

struct chase_way {
    unsigned count;
    struct chase_step step[CHASE_STEPS_MAX];
};

/* What travels. Waits and what they wait for take turns in the way. */
struct chase_probe {
    struct chase_way way;
    unsigned at;     /* the step that is looked at */
    uint32_t serial; /* which probe of its first wait */
    bool sure;       /* the second round */
};

/* A request that waits long, and may be part of a deadlock. Apart from the request, since most are not. */
struct suspect {
    uint64_t upgrade;              /* names its latest upgrade, as the nonce does one that waits for a grant */
    uint64_t began_ns;             /* when the latest round of its own began */
    uint64_t passed[CHASE_PASSES]; /* others' that were sent on from here last */
    uint64_t passes_ns;            /* from when on they are counted */
    uint32_t passes;
    uint32_t serial; /* of its own probes */
    bool sure;       /* the second round is under way */
    bool second;     /* upgrading: there was one before */
};

/* What the chase asks of a host, about requests by their number. A host may have parts, each with as many requests. */
struct chase_ops {
    struct chase_step (*wait)(void *ctx, uint32_t request); /* id 0: it does not wait */
    bool (*holds)(void *ctx, uint32_t request);
    uint32_t (*thread)(void *ctx, uint32_t request); /* 0: none */
    struct suspect *(*suspect)(void *ctx, uint32_t request);
    /* Sends a PROBE to the queue of what the request waits for; sure: step `at` is what was in its way. */
    void (*look)(void *ctx, uint32_t request, const struct chase_probe *probe);
    void (*give_up)(void *ctx, uint32_t request);
};

/* A host, for one event. */
struct chase {
    const struct chase_ops *ops;
    void *ctx;
    struct outbox *out;
    struct packet_drops *drops;
    uint64_t *probes; /* counts those that begin here */
    uint64_t now, retry_ns;
    uint32_t requests; /* of a session, in each part */
    uint32_t part;     /* all requests of a part: the next one's go on */
    uint16_t parts;
    uint16_t machine;
    bool crowd, rash; /* wrong on purpose: a session is taken for one thread; one round for two */
};

/* The way of a packet with so many steps; false: it is not one. */
bool chase_read(const struct chase_step *steps, unsigned count, uint16_t machines, struct chase_way *way);

/* The request still waits: if it is part of a deadlock, that is found out. Soon: somebody has a reason to think so. */
void chase_begin(const struct chase *c, uint32_t request);
void chase_begin_soon(const struct chase *c, uint32_t request);

/* What the thread that has the request waits for, in its call; CHASE_NONE: nothing, it may give it back at any time. */
uint32_t chase_wait_behind(const struct chase *c, uint32_t request);

/* Whether a CHASE is for this host. */
bool chase_is_for(const struct chase *c, const struct chase_probe *p);
/* And its end: the request waits, and is behind the step that it looks at. */
void chase_go_on(const struct chase *c, uint32_t request, struct chase_probe *p);

/* ---- at the queue: who is in the way? ---- */

struct chase_blockers {
    unsigned count;
    struct chase_step step[CHASE_FANOUT_MAX];
};

static inline void chase_block(struct chase_blockers *b, uint64_t id, uint16_t machine, uint32_t term, enum chase_kind kind)
{
    if (b->count < CHASE_FANOUT_MAX)
        b->step[b->count++] = (struct chase_step){.id = id, .term = term, .machine = machine, .kind = (uint8_t)kind};
}

/* Where those who are in the way come into it; false: it has gone too far, or (bad) cannot be. */
bool chase_turn(struct chase_probe *p, bool *bad);
/* Whether to pass the probe on to this one, which is then its step `at`. */
bool chase_take(struct chase_probe *p, const struct chase_step *blocker);

#endif
