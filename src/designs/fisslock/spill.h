/* SPDX-License-Identifier: Apache-2.0 */
/* Locks beyond the switch's capacity: the packets between the switch and the servers that decide those locks, and what both
 * deciders have in common. docs/designs/fisslock.md, "More locks than the switch holds". */
#ifndef PAWL_DESIGNS_FISSLOCK_SPILL_H
#define PAWL_DESIGNS_FISSLOCK_SPILL_H

#include "dataplane/fission.h"
#include "designs/fisslock/mistakes.h"
#include "designs/fisslock/options.h"
#include "designs/fisslock/rebuild.h"
#include "designs/packet/packet.h"

/* Beyond the types that hosts may send (fission_verify). head.epoch is the switch's life, but in HELLO; head.nonce is the round of
 * a move. */
enum spill_type {
    SPILL_HELLO = 32, /* server -> switch: its heartbeat; stamp: the server's life */
    SPILL_WELCOME,    /* switch -> server; stamp: that life; word: the switch's capacity, which is in it when it begins */
    SPILL_CALL,       /* switch -> server: the switch wants this lock */
    SPILL_HAND,       /* server -> switch: the lock's word and token, generation and base (stamp) */
    SPILL_GIVE,       /* switch -> server: the same, to be the server's again */
    SPILL_GIVEN,      /* server -> switch: acknowledges GIVE */
    SPILL_HEAT,       /* server -> switch: its locks that were asked for most; entries: nonce is the index, inca the count */
};

/* Of lock packets between switch and servers; those of enum fission_flags lie below. */
enum spill_flags {
    SPILL_SERVED = 1 << 13, /* decided by a server: it only passes the switch */
    SPILL_DEAD = 1 << 14,   /* returned to the server: the host that the packet was for is lost */
    SPILL_MOVING = 1 << 15, /* returned to the switch: the server does not have the lock */
};

#define SPILL_HEAT_ENTRIES 64 /* of one HEAT */
static_assert(FISSION_ENTRIES_MAX >= SPILL_HEAT_ENTRIES, "fits");

/* A ward: the locks of one server. */
static inline unsigned ward_of(const struct rack_config *c, uint64_t index)
{
    return (unsigned)(index % c->servers);
}

/* Whether it is one of these packets, by its form. */
static inline bool spill_is_control(const void *data, uint32_t len)
{
    const struct packet_head *h = (const struct packet_head *)data;
    return len >= sizeof *h && h->family == PACKET_FISSION && h->type >= SPILL_HELLO && h->type <= SPILL_HEAT;
}

static inline bool spill_verify(const struct fission_packet *p, uint32_t len, const struct rack_config *c)
{
    return len >= sizeof *p && len <= PACKET_MAX && packet_readable(&p->head) && p->count <= FISSION_ENTRIES_MAX &&
           len == sizeof *p + (uint32_t)p->count * sizeof(struct fission_entry) && p->head.space == c->space &&
           p->head.index < c->locks;
}

static inline struct fission_packet *spill_packet(struct outbox *out, enum spill_type type, uint32_t space, uint32_t life,
                                                  struct place from, struct place to, unsigned entries)
{
    struct fission_packet *p =
        (struct fission_packet *)outbox_add(out, (uint32_t)(sizeof *p + entries * sizeof(struct fission_entry)));
    if (!p)
        return NULL;
    p->head = (struct packet_head){.version = PACKET_VERSION,
                                   .family = PACKET_FISSION,
                                   .type = (uint8_t)type,
                                   .space = space,
                                   .epoch = life,
                                   .from = from,
                                   .to = to};
    p->count = (uint16_t)entries;
    return p;
}

/* Whether `hops` counts how often the packet was bounced. In a PROBE it is the step under examination, of up to CHASE_STEPS_MAX. */
static inline bool spill_counts_hops(const struct fission_packet *p)
{
    return p->head.type != FISSION_PROBE;
}

/* ---- what the deciders in memory have in common ---- */

static inline struct fission_policy policy_of(const struct rack_config *c)
{
    return (struct fission_policy){(uint32_t)c->options, (uint32_t)MISTAKES(c->mistakes)};
}

static inline struct fission_rules rules_of(const struct rack_config *c)
{
    bool names = c->keys == PAWL_KEYS_NAMED || c->keys == PAWL_KEYS_SPARSE;
    return (struct fission_rules){.space = c->space, .machines = c->machines, .names = names, .locks = c->locks};
}

/* The lock that a HAND or GIVE carries. */
static inline struct rebuild_lock spill_lock_in(const struct fission_packet *p)
{
    return (struct rebuild_lock){p->word, p->token, {p->head.generation, p->stamp}};
}

static inline void spill_count_fault(struct packet_drops *drops, enum fission_fault fault)
{
    ++*(fault == FISSION_BAD          ? &drops->bad
        : fault == FISSION_ALIEN      ? &drops->alien
        : fault == FISSION_UNREADABLE ? &drops->unreadable
                                      : &drops->stale);
}

/* Of decider.c. A copy of the packet that leaves; null: the outbox is full. */
struct fission_packet *spill_copy(struct outbox *out, const struct fission_packet *p, uint32_t len);
/* The stages of fission.h on one lock. `life`: of the switch. The packet leaves for each of its destinations. `lost`: the host that
 * it is for is. */
void spill_decide(struct rebuild_lock *lock, const struct fission_policy *policy, uint32_t life, const struct fission_packet *p,
                  uint32_t len, uint16_t flags, bool lost, struct outbox *out);
/* Whether the packet is of the lock's generation, or of a later one, which begins then. */
bool spill_is_of_lock(struct rebuild_lock *lock, const struct fission_policy *policy, const struct fission_packet *p);
/* An agent wants to end its tenure, which is over: it is told so. Nothing else is changed. */
void spill_say_over(const struct fission_packet *p, uint32_t len, uint16_t flags, struct outbox *out);
/* The agent was lost with its host. The client's host has it from now on, in a new tenure; it finds that out (forward.c), and finds
 * the holders (census.c). On a pipeline this is a second pass. */
void spill_take_over(struct rebuild_lock *lock, const struct fission_policy *policy, struct place client);

/* ---- how often a lock was asked for: halved every period ---- */

struct heat {
    uint32_t count;
    uint32_t period;
};

static inline uint32_t heat_now(struct heat h, uint32_t period)
{
    uint32_t age = period - h.period;
    return age > 31 ? 0 : h.count >> age;
}

static inline uint32_t heat_add(struct heat *h, uint32_t period)
{
    *h = (struct heat){heat_now(*h, period) + 1, period};
    return h->count;
}

#endif
