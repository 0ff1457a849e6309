/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FissLock's packets: the four types of Table 2, and what acknowledging, refusing, writers' flags and loss need beside them.
 * The switch's program and the hosts share this file; little-endian, no padding. */
#ifndef PAWL_DATAPLANE_FISSION_PACKET_H
#define PAWL_DATAPLANE_FISSION_PACKET_H

#include "dataplane/slots.h"
#include "wire/packet.h"

#include <stdbool.h>

enum fission_type {
    FISSION_ACQUIRE = 1, /* client -> decider [-> agent] */
    FISSION_RELEASE = 2, /* client -> decider -> agent */
    FISSION_FREE = 3,    /* agent -> decider, and back as the answer */
    FISSION_GRANT = 4,   /* decider or agent -> client; with FISSION_AGENT the lock's agent comes with it */
    FISSION_ACK = 5,     /* of a RELEASE: to the client; of a GRANT with the agent: to the agent that was */
    FISSION_REFUSED = 6, /* to a client that would not wait, or whose upgrade cannot be */
    FISSION_FLAGS = 7,   /* agent -> decider: whether writers wait */
    FISSION_LOOK = 8,    /* host -> decider -> agent's host: is it here? */
    FISSION_CENSUS = 9,  /* agent -> a host: who of yours holds by these ordinals? */
    FISSION_ANSWER = 10, /* and back */
    FISSION_LEASE = 11,  /* host -> decider: I live; and back: heard. token: the host's clock when it asked */
    FISSION_TAKE =
        12, /* host -> decider [-> agent's host]: a new tenure for the agent that I have, or that was lost with its host */
    FISSION_REPORT =
        13, /* host -> decider that lost its state: what I hold; and back: heard. stamp: which part; DONE: that is all */
    FISSION_PROBE = 14, /* host of one who waits -> decider -> agent: whom does it wait for? */
    FISSION_CHASE = 15, /* and from there to the host of such a one: does that wait, too? */
};

enum fission_mode { FISSION_SHARED = 1, FISSION_EXCLUSIVE = 2 };

enum fission_flags {
    FISSION_AGENT = 1 << 0, /* GRANT: the agent comes with it */
    FISSION_RETRY =
        1 << 1, /* ACQUIRE: sent before. Routed, or granted if the lock is free; raises nothing (pitfall 3); LEASE: ask */
    FISSION_BOUNCED = 1 << 2, /* sent back by a host without the agent: routed only (pitfall 10) */
    FISSION_COPY = 1 << 3,    /* ACQUIRE: the decider has granted it; the agent is told */
    FISSION_NOWAIT = 1 << 4,  /* ACQUIRE: refuse rather than queue */
    FISSION_DONE =
        1 << 5, /* FREE, GRANT with agent, on their way back: that tenure is over; RELEASE: no answer is needed; LEASE: over */
    FISSION_DENIED = 1 << 6,  /* likewise: not accepted, the incarnation differs; LEASE: nor does what you hold from before count */
    FISSION_WRITERS = 1 << 7, /* GRANT with agent, FLAGS: the write-waiter bit */
    FISSION_STARVES = 1 << 8, /* likewise the starvation bit */
    FISSION_UPGRADE = 1 << 9, /* ACQUIRE, RELEASE, REFUSED, PROBE: of a shared hold that wants to be exclusive */
    FISSION_CLOSED = 1 << 10, /* LEASE, from the decider: it lost its state and is being told who holds what */
    FISSION_SURE = 1 << 11,   /* PROBE, CHASE: once more along the way on which the first came back */
};

/* A tenure is the time between a lock's agent being given to a host and being freed or given to the next. Its number, the term,
 * is what tells duplicates and stragglers from news: FREE and GRANT with agent end the tenure that they name and no other. */
#define FISSION_TERM_BITS 27
#define FISSION_TERM_MASK ((1u << FISSION_TERM_BITS) - 1)
#define FISSION_INCA_MAX 0xffffu

struct fission_packet {
    struct packet_head head; /* nonce: of the request; for FREE, FLAGS, LOOK and CENSUS the sender's own */
    uint64_t token;          /* from the decider: the tenure's token */
    uint64_t word;           /* from the decider: the lock's word after this packet */
    struct place client;     /* who asked */
    uint32_t term;           /* ACQUIRE: tenure in which it got its ordinal; FREE, GRANT: tenure that ends, or began */
    uint32_t stamp;          /* of the host that sent it back: see agent_adopt(); PROBE, CHASE: which probe of its wait */
    uint16_t bouncer;        /* its machine */
    uint16_t inca;           /* ACQUIRE, RELEASE: the ordinal, 0 if none; FREE, GRANT with agent: the expected incarnation */
    uint16_t flags;
    uint8_t mode;     /* wanted or granted */
    uint8_t old_mode; /* FREE, GRANT with agent: the mode that ends (pitfall 12) */
    uint8_t priority; /* 0 is the highest */
    uint8_t hops;     /* how often it was sent back; PROBE, CHASE: the step that is looked at */
    uint16_t count;   /* entries that follow */
};
_Static_assert(sizeof(struct fission_packet) == 80, "no padding");

/* GRANT with agent: one who waits. ANSWER: one who holds. REPORT: a hold. (PROBE and CHASE have steps: designs/packet/chase.h.) */
struct fission_entry {
    uint64_t nonce; /* REPORT: the lock's index */
    struct place client;
    uint16_t inca; /* ANSWER: its ordinal */
    uint8_t mode;
    uint8_t priority;
};
_Static_assert(sizeof(struct fission_entry) == 16, "no padding");

/* LEASE, if locks are divided among switches: the table of who has which slot, in the answer; the question has room for it. */
#define RULES_ENTRIES (RACK_SLOTS / sizeof(struct fission_entry))
_Static_assert(RACK_SLOTS % sizeof(struct fission_entry) == 0, "a table is whole entries");

#define FISSION_HOPS_MAX 16
#define FISSION_ENTRIES_MAX ((PACKET_MAX - sizeof(struct fission_packet)) / sizeof(struct fission_entry))

/* What a space's packets must look like. */
struct fission_rules {
    uint32_t space;
    uint32_t epoch; /* the decider's life. A host learns it with its lease */
    uint32_t generation;
    uint16_t machines;
    uint64_t locks;
};

enum fission_fault { FISSION_FINE, FISSION_BAD, FISSION_ALIEN, FISSION_STALE };

static inline bool fission_place_exists(struct place p, const struct fission_rules *r)
{
    return (p.machine != MACHINE_NONE && p.machine <= r->machines) || p.machine == MACHINE_SWITCH;
}

/* Everything that can be checked without the state. Both ends drop what is not fine, and count it. */
static inline enum fission_fault fission_verify(const void *data, uint32_t len, const struct fission_rules *r)
{
    const struct fission_packet *p = (const struct fission_packet *)data;
    if (len < sizeof *p || len > PACKET_MAX || p->head.version != PACKET_VERSION || p->head.head_len != sizeof p->head ||
        p->head.family != PACKET_FISSION || p->head.type < FISSION_ACQUIRE || p->head.type > FISSION_CHASE)
        return FISSION_BAD;
    if (p->count > FISSION_ENTRIES_MAX || len != sizeof *p + (uint32_t)p->count * sizeof(struct fission_entry))
        return FISSION_BAD;
    if (p->head.space != r->space || p->head.index >= r->locks)
        return FISSION_ALIEN;
    if (!fission_place_exists(p->head.from, r) || !fission_place_exists(p->head.to, r))
        return FISSION_ALIEN;
    if (p->head.type != FISSION_LEASE && (p->head.epoch != r->epoch || p->head.generation != r->generation))
        return FISSION_STALE;
    if (p->term & ~FISSION_TERM_MASK)
        return FISSION_BAD;
    bool has_mode = p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_GRANT;
    if (has_mode && p->mode != FISSION_SHARED && p->mode != FISSION_EXCLUSIVE)
        return FISSION_BAD;
    bool ends = p->head.type == FISSION_FREE || (p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT));
    if (ends && p->old_mode != FISSION_SHARED && p->old_mode != FISSION_EXCLUSIVE)
        return FISSION_BAD;
    bool has_client = p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE || p->head.type == FISSION_TAKE ||
                      p->head.type == FISSION_PROBE || p->head.type == FISSION_CHASE;
    if (has_client && (p->client.machine == MACHINE_SWITCH || !fission_place_exists(p->client, r)))
        return FISSION_ALIEN;
    return FISSION_FINE;
}

#endif
