/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlocks: threads that wait in a cycle, each for a lock that the next one holds.
 *
 * Edge chasing after Chandy, Misra and Haas (1983), in the AND model. A thread that has waited for long and holds something sends a
 * PROBE to the owner of the lock's queue. That passes it on, as CHASE, to the host of every request that blocks the waiter. If the
 * thread of such a request waits, too, its host appends that wait and sends the probe to the queue of *that* lock. A probe that
 * comes back to its first wait has found a cycle, of steps that were true one after the other.
 *
 * They were true at the same time if all of them are still true when a second round has gone along the same path: a wait and a hold
 * have names that are used once, and what is there before and after the moment at which the first round ended was there at that
 * moment. So:
 *
 *     No false victims (I13): a thread that is told of a deadlock was part of one at a moment during its wait, at most
 *     CHASE_SURE_FACTOR times its patience ago.
 *
 * A new probe makes the wait's earlier one void. If a probe needs longer for its way than the wait has patience, no probe ever
 * comes back. So the patience begins with a retransmission time, and doubles with every probe of the same wait.
 *
 * Every step is checked where it is true: that a request waits or holds, in the memory of its host. The queue is asked only which
 * requests it serves first (writers before readers, or the holders of a full queue), in both rounds, and in one term. Lost, late or
 * duplicated packets find nothing, or find it again; nothing else depends on them.
 *
 * The victim of a cycle is the wait of the highest rank. A probe does not pass a wait that outranks its first one.
 *
 * A design has the packets, the queues and the requests; here is what the designs have in common. */
#ifndef PAWL_DESIGNS_PACKET_CHASE_H
#define PAWL_DESIGNS_PACKET_CHASE_H

#include "designs/packet/packet.h"

#define CHASE_PROBE_FACTOR 4  /* a wait is examined when its pause until the next retransmission is that many times the first */
#define CHASE_SURE_FACTOR 8   /* times its patience, within which the second round must be back */
#define CHASE_DOUBLINGS_MAX 6 /* of the patience: as the pause between retransmissions, which grows to 64 times the first */
#define CHASE_FANOUT_MAX 16   /* blocking requests that one probe is passed on to: the next probe takes others */
#define CHASE_STEPS_MAX 80    /* they fit into a packet; a cycle has two for each thread */
#define CHASE_NONE UINT32_MAX
#define CHASE_PASSES 4 /* probes of other waits that a wait remembers */

enum chase_kind {
    CHASE_WAIT = 1,   /* id: of the wait */
    CHASE_HOLD = 2,   /* id: nonce of a request that holds the lock and excludes the wait before */
    CHASE_QUEUED = 3, /* id: nonce of a request that waits and is served before, according to the queue of `term` */
    CHASE_AHEAD = 4,  /* id: nonce of a holder that must release first, excluding or not, according to the queue */
};

/* The path in PROBE and CHASE: a wait, a request that blocks it, the wait of that request's thread, and so on. */
struct chase_step {
    uint64_t id;
    uint32_t term; /* WAIT: the part of its host; else of the queue */
    uint16_t machine;
    uint8_t kind;
    uint8_t second; /* WAIT: the second of two upgrades */
};
static_assert(sizeof(struct chase_step) == 16, "no padding");

struct chase_way {
    unsigned count;
    struct chase_step step[CHASE_STEPS_MAX];
};

/* A probe. Waits and blocking requests alternate in its path. */
struct chase_probe {
    struct chase_way way;
    unsigned at;     /* the step under examination */
    uint32_t serial; /* which probe of its first wait */
    bool sure;       /* the second round */
};

/* A request that waits long, and may be part of a deadlock. Kept apart from the request, since most are not. */
struct suspect {
    uint64_t upgrade;              /* the name of its latest upgrade; a wait for a grant has the nonce */
    uint64_t began_ns;             /* when the latest round of its own probe began */
    uint64_t passed[CHASE_PASSES]; /* probes of other waits that were passed on last */
    uint64_t passes_ns;            /* from when on they are counted */
    uint64_t probed;               /* the wait that its own probes began with */
    uint32_t passes;
    uint32_t serial;   /* of its own probes */
    uint8_t doublings; /* of its patience */
    bool sure;         /* the second round is in flight */
    bool second;       /* upgrading: the second of two upgrades */
};

/* The questions of the chase to a host, about requests by their number. A host may have parts, each with as many requests. */
struct chase_ops {
    struct chase_step (*wait)(void *ctx, uint32_t request); /* id 0: it does not wait */
    bool (*holds)(void *ctx, uint32_t request);
    uint32_t (*thread)(void *ctx, uint32_t request); /* 0: none */
    struct suspect *(*suspect)(void *ctx, uint32_t request);
    /* Sends a PROBE to the queue of the lock that the request waits for; sure: step `at` is the request that blocked it. */
    void (*look)(void *ctx, uint32_t request, const struct chase_probe *probe);
    void (*give_up)(void *ctx, uint32_t request);
};

/* A host, for one event. */
struct chase {
    const struct chase_ops *ops;
    void *ctx;
    struct outbox *out;
    struct packet_drops *drops;
    uint64_t *probes; /* counts probes that begin here */
    uint64_t now, retry_ns;
    uint32_t requests; /* of a session, in each part */
    uint32_t part;     /* requests of a part; the numbers of the next part follow */
    uint16_t parts;
    uint16_t machine;
    bool crowd, rash; /* mistakes on purpose: a session is taken for one thread; one round for two */
};

/* The path of a packet with so many steps; false: it is malformed. */
bool chase_read(const struct chase_step *steps, unsigned count, uint16_t machines, struct chase_way *way);

/* The request still waits: a probe finds out whether it is part of a deadlock. Soon: there is a sign that it is; a probe that is in
 * flight goes on, as far as the patience for it reaches. */
void chase_begin(const struct chase *c, uint32_t request);
void chase_begin_soon(const struct chase *c, uint32_t request);

/* The request for which the thread that holds `request` waits, in a call; CHASE_NONE: it does not wait and may release at any time.
 */
uint32_t chase_wait_behind(const struct chase *c, uint32_t request);

/* Whether a CHASE is for this host. */
bool chase_is_for(const struct chase *c, const struct chase_probe *p);
/* The rest of a CHASE: the thread behind the step under examination waits for `request`. */
void chase_go_on(const struct chase *c, uint32_t request, struct chase_probe *p);

/* ---- at the queue: which requests block the waiter? ---- */

struct chase_blockers {
    unsigned count;
    struct chase_step step[CHASE_FANOUT_MAX];
};

static inline void chase_block(struct chase_blockers *b, uint64_t id, uint16_t machine, uint32_t term, enum chase_kind kind)
{
    if (b->count < CHASE_FANOUT_MAX)
        b->step[b->count++] = (struct chase_step){.id = id, .term = term, .machine = machine, .kind = (uint8_t)kind};
}

/* Makes room for a blocking request in the path; false: the path is too long, or (bad) malformed. */
bool chase_turn(struct chase_probe *p, bool *bad);
/* Whether to pass the probe on to this blocking request, which is then step `at`. */
bool chase_take(struct chase_probe *p, const struct chase_step *blocker);

#endif
