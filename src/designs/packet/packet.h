/* SPDX-License-Identifier: Apache-2.0 */
/* Packet designs: lock managers whose clients, switch and servers talk by packets.
 *
 * Free of I/O: an event goes in (a call, a packet, a time), packets and wake-ups come out in an outbox. No sockets, clocks, random
 * numbers or allocations inside, so the simulated rack (workbench/trial/rack.h), processes over UDP and the tests drive the same
 * functions. State is one block of memory with offsets and no pointers: a host's lies in shared memory and is used by all its
 * processes, one at a time; a change is complete when the function returns, or undone (outbox_touch).
 *
 * A host is a machine of the rack with a number, and a life: a number that is larger every time its memory starts anew. Its
 * processes have sessions 0 .. config.sessions-1. A request is a numbered place in the host's memory, what a session holds or waits
 * for: session s has requests s * config.requests and up. The caller chooses one that is idle.
 *
 * Whose session it is, when its process has ended and when its own lease ran out by the host's clock is the caller's business: it
 * then calls session_dead. What the design knows beside that (leases at servers) it tells by `expiry`.
 *
 * Times are nanoseconds of the caller's own clock and never compared with another's. */
#ifndef PAWL_DESIGNS_PACKET_PACKET_H
#define PAWL_DESIGNS_PACKET_PACKET_H

#include "dataplane/mistake.h"
#include "dataplane/shards.h"
#include "designs/core/knobs.h"
#include "lib/base.h"
#include "lib/hash.h"
#include "pawl.h"
#include "wire/packet.h"

#include <string.h>

#define RACK_SERVERS_MAX 64 /* lock servers of one space */
#define RACKS_MAX 8         /* switches of one space */
#define RACKS_DEFAULT 2
#define RACK_DRIFT_DIVISOR 10000u /* clocks run at the same speed to one part in so many (docs/invariants.md) */

/* Which shard belongs to which switch; a later version replaces an earlier one. Version 0: shard s is that of switch s % racks. */
struct rack_rules {
    uint32_t version;
    uint8_t owner[RACK_SHARDS];
};

static inline struct rack_rules rack_rules_first(unsigned racks)
{
    struct rack_rules r = {0};
    for (unsigned s = 0; s < RACK_SHARDS && racks; s++)
        r.owner[s] = (uint8_t)(s % racks);
    return r;
}

static inline bool rack_rules_fine(const struct rack_rules *r, unsigned racks)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->owner[s] >= racks)
            return false;
    return true;
}

/* Which space it is, for good, and which version of its configuration. Travels in every packet to and from the coordinator. */
struct rack_identity {
    uint64_t id[2];    /* chosen once, when the space is made; both 0: not known */
    uint32_t version;  /* of the configuration: rises with every change; 0: not known */
    uint32_t features; /* enum packet_features: those that packets of the space may have; of a JOIN: those that the sender reads */
};
_Static_assert(sizeof(struct rack_identity) == 24, "no padding");

static inline bool rack_id_known(const struct rack_identity *i)
{
    return i->id[0] || i->id[1];
}

static inline bool rack_same_space(const struct rack_identity *a, const struct rack_identity *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

#define RACK_SHORT_STEP 16u /* short ids are multiples of this: those of racks lie between (rack_space_id) */
_Static_assert(RACKS_MAX < RACK_SHORT_STEP, "room for all");

/* The short id: in the head of every packet of the space. Never 0. */
static inline uint32_t rack_short_id(const struct rack_identity *i)
{
    uint32_t id = (uint32_t)mix64(i->id[0] ^ mix64(i->id[1])) & ~(RACK_SHORT_STEP - 1);
    return id ? id : RACK_SHORT_STEP;
}

/* Configuration of a space, known to all parts of a rack. Plain data: it travels in packets and lies in shared memory. */
struct rack_config {
    struct rack_identity identity;
    uint32_t space;    /* its short id */
    uint16_t machines; /* hosts have numbers from 1 to this */
    uint16_t sessions; /* of one host at once */
    uint16_t requests; /* of one session: what it holds and waits for */
    uint16_t servers;
    uint16_t server[RACK_SERVERS_MAX]; /* their machines' numbers; a lock server is at PORT_SERVER there */
    uint16_t switches;                 /* 2: there is a backup, at port 1 of MACHINE_SWITCH; else one */
    uint16_t racks;                    /* switches among which the locks are divided; 0: there is one, or none */
    uint16_t rack;                     /* to a switch: which of them it is */
    uint16_t spare;
    uint32_t member_us; /* the membership lease, in microseconds: for so long a host goes on without its coordinator */
    uint64_t locks;
    uint64_t switch_locks; /* for how many the switch has room, if servers have the others (`spills`); 0: for all */
    uint64_t lease_ns;     /* the lock lease: of a host, at each server or switch that gives leases */
    uint64_t retry_ns;     /* until the first retransmission; then twice as long every time, up to a bound */
    uint64_t options;      /* the design's own: policies */
    uint64_t mistakes;     /* on purpose; 0 but in variants of the workbench (dataplane/mistake.h) */
    uint32_t keys;         /* enum pawl_keys; 0: dense. Others have their indexes from the coordinator (cluster/directory.h) */
    uint32_t group;        /* dense keys that share a lock, for where there are more keys than locks are worth having; 0: one */
};

/* The membership lease, which the coordinator gives. Without a coordinator there is none, and the lock lease stands for it. */
static inline uint64_t rack_member_ns(const struct rack_config *c)
{
    return c->member_us ? c->member_us * UINT64_C(1000) : c->lease_ns;
}

/* How long the giver of a lease waits until it has certainly ended; and until when it lasts by the clock that asked for it. */
static inline uint64_t lease_surely_over(uint64_t lease_ns)
{
    return lease_ns + 2 * (lease_ns / RACK_DRIFT_DIVISOR) + 1;
}

static inline uint64_t lease_valid_until(uint64_t stamp, uint64_t lease_ns)
{
    return stamp + lease_ns - 2 * (lease_ns / RACK_DRIFT_DIVISOR) - 1;
}

#define LEASE_MISTAKE_RECORDED (UINT64_C(1) << 62) /* heartbeats that have come before renew leases, too */

/* Whether a heartbeat was sent later than those before it, by its sender's clock in the sender's life. Only such a one renews a
 * lease: who records heartbeats of a host and sends them again does not keep the leases of the host alive after its death. 0: a
 * sender of another build, which does not tell. */
static inline bool lease_is_news(uint64_t stamp, uint64_t latest, uint64_t mistakes)
{
    return !stamp || stamp > latest || MISTAKE(mistakes, LEASE_MISTAKE_RECORDED);
}

/* Switches that take part in the space. */
static inline unsigned rack_switches(const struct rack_config *c)
{
    return c->racks ? c->racks : c->switches;
}

/* Packets of rack d have the space's number and this: a host's part in each rack is apart from the others. */
static inline uint32_t rack_space_id(const struct rack_config *c, unsigned rack)
{
    return c->space + 1 + rack;
}

/* Which of the switches a packet goes through: its rack's; of an original and its backup, the one that it names. */
static inline unsigned rack_switch_of(const struct rack_config *c, const struct packet_head *h)
{
    uint32_t rack = h->space - rack_space_id(c, 0);
    return c->racks ? (rack < c->racks ? rack : 0) : h->to.machine == MACHINE_SWITCH && h->to.port == 1;
}

static inline uint32_t rack_requests(const struct rack_config *c)
{
    return (uint32_t)c->sessions * c->requests;
}

/* ---- what comes out ---- */

#define OUTBOX_PACKETS 64
#define OUTBOX_WAKES 256
#define OUTBOX_BYTES 16384u

/* The undo log of a change to a host's memory, a line at a time: if a process dies in the middle of a change, the change is undone
 * (cluster/host.h). Before a design changes anything in a *host's* memory it announces that: outbox_touch. The simulated rack
 * checks that it did. Switches and servers need no log: their memory dies with them. */
#define UNDO_LINE 64u

struct undo {
    uint64_t lines;               /* of the memory */
    uint64_t count;               /* entries that are complete */
    uint64_t seen_at, entries_at; /* offsets: a byte per line, 1 if it has an entry; the entries */
};

struct undo_entry {
    uint64_t line;
    uint8_t old[UNDO_LINE];
};

static inline uint64_t undo_bytes(uint64_t memory_bytes)
{
    uint64_t lines = (memory_bytes + UNDO_LINE - 1) / UNDO_LINE;
    return sizeof(struct undo) + round_up(lines, UNDO_LINE) + lines * sizeof(struct undo_entry);
}

static inline void undo_init(struct undo *u, uint64_t memory_bytes) /* zeroed */
{
    u->lines = (memory_bytes + UNDO_LINE - 1) / UNDO_LINE;
    u->seen_at = sizeof *u;
    u->entries_at = u->seen_at + round_up(u->lines, UNDO_LINE);
}

static inline struct undo_entry *undo_entry(const struct undo *u, uint64_t i)
{
    return (struct undo_entry *)(void *)((char *)(uintptr_t)u + u->entries_at) + i;
}

static inline void undo_log(struct undo *u, const char *memory, const void *at, uint64_t len)
{
    uint64_t from = (uint64_t)((const char *)at - memory), to = from + len - 1;
    uint8_t *seen = (uint8_t *)u + u->seen_at;
    for (uint64_t line = from / UNDO_LINE; line <= to / UNDO_LINE; line++) {
        if (seen[line])
            continue;
        struct undo_entry *e = undo_entry(u, u->count);
        e->line = line;
        memcpy(e->old, memory + line * UNDO_LINE, UNDO_LINE);
        /* In this order, for the process that rolls back after a death: entry, count, and only then the change itself. */
        __atomic_store_n(&u->count, u->count + 1, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        seen[line] = 1;
    }
}

/* The change is complete. */
static inline void undo_commit(struct undo *u)
{
    uint8_t *seen = (uint8_t *)u + u->seen_at;
    for (uint64_t i = 0; i < u->count; i++)
        seen[undo_entry(u, i)->line] = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&u->count, 0, __ATOMIC_RELEASE);
}

/* After the death of the process that made the change: the memory is what it was before. Can itself be interrupted and repeated. */
static inline void undo_roll_back(struct undo *u, char *memory)
{
    for (uint64_t i = u->count; i-- > 0;)
        memcpy(memory + undo_entry(u, i)->line * UNDO_LINE, undo_entry(u, i)->old, UNDO_LINE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memset((char *)u + u->seen_at, 0, u->lines);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&u->count, 0, __ATOMIC_RELEASE);
}

/* A packet's head says where it goes: `to`. The outbox is bounded: packets that do not fit are left for a later tick, and the state
 * says so. `crowded`: there were more wakes than room, so every waiting thread must look. */
struct outbox {
    unsigned packets, wakes;
    bool crowded;
    uint32_t used;
    struct {
        uint32_t at;
        uint32_t len;
    } packet[OUTBOX_PACKETS];
    uint32_t wake[OUTBOX_WAKES]; /* requests whose `outcome` has changed */
    struct undo *undo;           /* of the host's memory; null: not needed */
    const char *memory;          /* of the host, which begins on a line */
    _Alignas(8) uint8_t bytes[OUTBOX_BYTES];
};

/* This part of the host's memory is about to change. */
static inline void outbox_touch(struct outbox *o, const void *at, uint64_t len)
{
    if (o->undo)
        undo_log(o->undo, o->memory, at, len);
}

static inline void outbox_clear(struct outbox *o)
{
    o->packets = o->wakes = 0;
    o->used = 0;
    o->crowded = false;
}

/* Room for a packet of that length, 8-byte aligned and zero; null: no more fits. */
static inline void *outbox_add(struct outbox *o, uint32_t len)
{
    uint32_t room = (len + 7u) & ~7u;
    if (o->packets == OUTBOX_PACKETS || room > OUTBOX_BYTES - o->used || len > PACKET_MAX)
        return NULL;
    uint8_t *data = o->bytes + o->used;
    o->packet[o->packets].at = o->used;
    o->packet[o->packets].len = len;
    o->packets++;
    o->used += room;
    memset(data, 0, room);
    return data;
}

static inline const struct packet_head *outbox_packet(const struct outbox *o, unsigned i)
{
    return (const struct packet_head *)(const void *)(o->bytes + o->packet[i].at);
}

static inline void outbox_wake(struct outbox *o, uint32_t request)
{
    if (o->wakes < OUTBOX_WAKES)
        o->wake[o->wakes++] = request;
    else
        o->crowded = true;
}

/* ---- what goes in ---- */

#define PACKET_TENANTS 64u
#define PACKET_PRIORITIES 8u /* that are told apart */

struct packet_ask {
    uint32_t request;
    uint32_t thread; /* that waits for it and holds it then: its own number in the session; 0: none (deadlocks) */
    uint16_t port;   /* where the answer should come: the process's own */
    uint16_t tenant;
    uint16_t limit;    /* shared: of a semaphore; 0: it is none */
    uint8_t priority;  /* 0 is the highest */
    bool try;          /* do not wait */
    bool once;         /* with bytes: given back as soon as they are done */
    const void *bytes; /* for the lock's data server, to be done under the lock; null: none */
    uint32_t len;
    enum pawl_mode mode;
    uint64_t index;
    uint32_t generation; /* of the index; of dense keys: 0 */
};

struct packet_answer {
    int result; /* 0: held; else a negative code, and it is what it was before */
    enum pawl_mode mode;
    uint64_t token;
};

/* The lock that a request holds or waits for, for inspection. */
struct packet_claim {
    uint64_t index, token; /* token: of what it holds */
    enum pawl_mode mode;
    uint32_t generation; /* of the index */
    uint16_t limit;      /* of a semaphore; 0: it is none */
    bool holds;          /* else it waits */
};

/* Which part of the rack decided the grants that a host's requests got. */
struct packet_grants {
    uint64_t by_switch, by_agent, by_server, local; /* local: without a packet; by_agent: by one of another host */
};

/* Why packets were dropped: counted by every part that receives packets. */
struct packet_drops {
    uint64_t bad;        /* short, unknown type, out of range */
    uint64_t alien;      /* another space, or from a machine that does not exist */
    uint64_t stale;      /* from another life, of a request that has ended, or doubled */
    uint64_t unreadable; /* another version, or features that this build does not know */
    uint64_t forged;     /* in the name of a member, and not from its address, or without its secret */
    uint64_t untagged;   /* without a tag, or with that of another key */
    uint64_t limited;    /* more than one address may ask for */
    uint64_t not_admin;  /* commands without the admin key */
};

/* Figures of a lock server or switch, for its operator. Those that a design does not count are PACKET_UNCOUNTED. */
#define PACKET_UNCOUNTED UINT64_MAX
struct packet_figures {
    uint64_t holds, waiting; /* now */
    uint64_t waited;         /* requests that had to wait; of those */
    uint64_t gave_up;        /* ended before they were granted */
    uint64_t refused;        /* tries that found the lock held, or a quota used up */
    uint64_t repeated;       /* requests that came again */
    uint64_t lapsed;         /* hosts whose lease ended */
    uint64_t passed_on;      /* requests that are decided elsewhere */
};

enum { PACKET_DONE = 0, PACKET_WAIT = 1 };

struct packet_design {
    uint8_t family; /* of its packets */

    /* ---- a host ---- */
    uint64_t (*host_bytes)(const struct rack_config *config);
    void (*host_init)(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now); /* zeroed */

    /* PACKET_DONE: the outcome is there; PACKET_WAIT: a wake will tell; negative: refused, nothing was changed. A request that was
     * granted is held until released or lost. Callers have as many requests as the configuration says, and ask with an idle one. */
    int (*acquire)(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
    int (*convert)(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out); /* null: not offered */

    /* Before `convert`: the thread that waits for the conversion, and has the hold from now on. Null: the design does not need
     * it. */
    void (*thread)(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out);

    /* The request is given up, at a deadline or cancelled. PACKET_DONE: the outcome is there (given up, or granted just before);
     * PACKET_WAIT: a wake will tell. */
    int (*give_up)(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);

    /* Ends the hold. Never waits: the release is retransmitted in the background, and the request is not idle until it was
     * acknowledged. -PAWL_ENOTOWNER if it was not held. */
    int (*release)(void *host, uint32_t request, uint64_t now, struct outbox *out);

    /* `call` has the lock's data server do something under the request's hold. The request's outcome is then that of the call, and
     * the hold stays. `reply` gives the server's reply, once, after an outcome of 0 of `call` or of `acquire` with bytes.
     * -PAWL_ELIMIT: too many calls at once; -EMSGSIZE. Null: not offered. */
    int (*call)(void *host, uint32_t request, const void *bytes, uint32_t len, uint64_t now, struct outbox *out);
    int (*reply)(void *host, uint32_t request, void *reply, uint32_t room, uint32_t *len, struct outbox *out);

    /* The short way, if there is one: without packets, and without the undo log. -EAGAIN: not possible now, nothing was changed;
     * use the other functions. The outcome of `local_acquire` comes at once. `local_recover` repairs the memory after a process
     * died in one of these; it can itself be interrupted and repeated. Null: not offered. */
    int (*local_acquire)(void *host, const struct packet_ask *ask, uint64_t now, struct packet_answer *out);
    int (*local_release)(void *host, uint32_t request, uint64_t now);
    void (*local_recover)(void *host);

    /* -EINPROGRESS while there is none. */
    int (*outcome)(const void *host, uint32_t request, struct packet_answer *out);
    bool (*idle)(const void *host, uint32_t request);
    bool (*holds)(const void *host, uint32_t request);
    bool (*claim)(const void *host, uint32_t request, struct packet_claim *out); /* false: it neither holds nor waits */

    /* Whether the host knows of a request that waits for the lock of this one, which is held. Each is told once. If it
     * knows of none, it may ask: a later call knows the answer. Null: not offered. */
    bool (*wanted)(void *host, uint32_t request, uint64_t now, struct outbox *out);

    /* Whether the host has anything of the lock: a request that is not idle, or what other hosts' requests depend on. What it keeps
     * for its own convenience it begins to give up, and says yes until that has ended. Null: indexes cannot be used again. */
    bool (*uses)(void *host, uint64_t index, uint64_t now, struct outbox *out);

    /* Verifies everything; bad packets are counted and dropped. */
    void (*packet)(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);

    /* Retransmissions, leases. Returns when it wants to be called next; UINT64_MAX: not before the next event. */
    uint64_t (*tick)(void *host, uint64_t now, struct outbox *out);

    /* The switch has started anew and should be asked for a lease now. Null: the design does nothing then. */
    void (*rouse)(void *host, uint64_t now, struct outbox *out);

    /* Asks for all leases now, before they are due. */
    void (*renew)(void *host, uint64_t now, struct outbox *out);

    /* Until when what the session holds is certainly its own, as far as the design knows: UINT64_MAX without bound, 0 if something
     * is lost already. Then the session is to be ended. */
    /* Until when the session's holds are certainly valid, as far as the design knows. UINT64_MAX: no bound; 0: a hold is lost
     * already, and the session must be ended. */
    uint64_t (*expiry)(const void *host, uint32_t session);

    /* The lock server on that machine has this life or a later one: packets of earlier lives do not count any more, while what they
     * granted stays until its lease ends. Null: hosts take nothing from lock servers but by way of the switch (`spills`). */
    void (*server_since)(void *host, uint16_t machine, uint32_t life, struct outbox *out);

    /* Another switch has, or will have, the place of this one: packets of its present life do not count any more. Null: switches of
     * the design are not replaced while there are hosts. */
    void (*switch_gone)(void *host, unsigned rack, uint64_t now, struct outbox *out);

    /* Of a host in several racks: in which of them it has a lease, a bit each. Null: it knows one switch only. */
    uint32_t (*racks)(const void *host, uint64_t now);

    /* The process has ended, or the session's lease. Ends the session's holds and waits, and nothing else. The session's number can
     * be reused at once, its requests when they are idle. */
    void (*session_dead)(void *host, uint32_t session, uint64_t now, struct outbox *out);

    /* The host leaves, and holds nothing: what other parts keep for it is free at once. Null: they keep nothing. */
    void (*leave)(void *host, uint64_t now, struct outbox *out);

    /* The space has at least so many locks: it may have grown since the host joined. Null: the design's hosts join anew then. */
    void (*host_grow)(void *host, uint64_t locks, struct outbox *out);
    /* Likewise a lock server, whose memory the caller has made longer, by zeros. The switch stays as it is, and leaves the new
     * locks to the servers until it starts again. Null: granters join anew, and learn from hosts what they hold. */
    void (*server_grow)(void *server, uint64_t locks);

    struct packet_drops (*host_drops)(const void *host);
    struct packet_grants (*host_grants)(const void *host); /* null: it does not count them */

    /* ---- a switch; null: the design needs none, packets go their way ---- */
    uint64_t (*switch_bytes)(const struct rack_config *config);
    void (*switch_init)(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
    /* Only these machines can hold anything from a former life: bit m of word m / 64. Null: it waits for all. */
    void (*switch_expect)(void *state, const uint64_t *machines, unsigned words);
    /* Locks are divided anew. A switch that gets or loses shards by that is started anew, with a higher life, the
     * losing ones first. Null: the design knows one switch only. */
    void (*switch_rules)(void *state, const struct rack_rules *rules);
    /* Searches the locks for a machine, a part of them at each call, and removes it where its lease is over. Returns how many locks
     * named it once it has seen all, and UINT64_MAX before. Null: locks never name machines. */
    uint64_t (*switch_scan)(void *state, uint16_t machine, uint64_t now, struct outbox *out);
    /* A packet of this family and space passes. Packets that leave are in the outbox, this one included if it goes on. */
    void (*switch_packet)(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
    uint64_t (*switch_tick)(void *state, uint64_t now, struct outbox *out); /* null: has no time of its own */
    void (*switch_number)(void *state, uint16_t number);                    /* after switch_init; null: there is no more than one */
    /* Whether a part that it depends on has lost its memory. Then the switch must start anew, with a higher life, as if it had lost
     * its own. Null: it never has to. */
    bool (*switch_stale)(const void *state);
    struct packet_figures (*switch_figures)(const void *state); /* null: it has none */
    uint64_t (*switch_moves)(const void *state);                /* of locks between switch and servers, so far; null: not counted */

    /* ---- the steward, which says which switch and servers decide; null: the design needs none ---- */
    uint64_t (*steward_bytes)(const struct rack_config *config);
    void (*steward_init)(void *state, const struct rack_config *config, uint32_t life, bool fresh, uint64_t now);
    void (*steward_packet)(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out); /* answers its sender */
    uint64_t (*steward_tick)(void *state, uint64_t now, struct outbox *out);
    /* Its terms are above this life from now on, which is the latest that the coordinator gave. Returns its latest term. */
    uint32_t (*steward_since)(void *state, uint32_t life);
    /* The hosts that there are: bit m of word m / 64. No other can hold anything. Null: not known. */
    void (*steward_hosts)(void *state, const uint64_t *hosts, unsigned words);

    /* ---- a lock server; null: the design needs none ---- */
    uint64_t (*server_bytes)(const struct rack_config *config);
    /* life: larger every time its state was lost. Unless it is fresh, it must wait until earlier grants have ended. */
    void (*server_init)(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now);
    void (*server_packet)(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out);
    uint64_t (*server_tick)(void *server, uint64_t now, struct outbox *out);
    const struct packet_drops *(*server_drops)(const void *server);
    struct packet_figures (*server_figures)(const void *server);     /* null: it has none */
    void (*server_apply)(void *server, pawl_apply apply, void *ctx); /* it keeps data; null: not offered */

    /* Whether a server sends the packet in the name of a host, whose address it does not come from. Null: none does. */
    bool (*relayed)(const void *data, uint32_t len);

    bool full_queues; /* a waiter may be behind all holders, a reader behind readers: the queue had no more room */
    bool divides;     /* locks are divided among several switches, for good */
    bool on_hosts;    /* the lock servers run on the clients' machines */
    bool spills;      /* servers have the locks for which the switch has no room; without config.servers it has room for all. Their
                         packets to hosts go by way of the switch */
    uint64_t options; /* into every config of it */
    uint64_t (*tune)(uint64_t options, const struct knobs *knobs); /* the options with what the knobs say; null: it has no knobs */
    uint64_t draws; /* bits of the options that a campaign sets or not, by its seed: policies */
    uint64_t ranks; /* if all of these bits are set, its clients have priorities; 0: never */
};

/* The options with what the knobs say; of null, unchanged. */
static inline uint64_t packet_tuned(const struct packet_design *d, uint64_t options, const struct knobs *knobs)
{
    return d->tune && knobs ? d->tune(options, knobs) : options;
}

/* Whether the locks of a space are divided among switches. */
static inline bool packet_divides(const struct packet_design *d)
{
    return d->switch_rules || d->divides;
}

/* Whether a packet has a head that this build reads, of this family and space, comes from a machine that can exist, and is about
 * one of the first `locks` locks. Counts it if not. */
static inline const struct packet_head *packet_check_locks(const void *data, uint32_t len, uint8_t family,
                                                           const struct rack_config *c, uint64_t locks, struct packet_drops *drops)
{
    const struct packet_head *h = data;
    if (len >= sizeof *h && !packet_readable(h)) {
        drops->unreadable++;
        return NULL;
    }
    if (len < sizeof *h || len > PACKET_MAX || h->family != family) {
        drops->bad++;
        return NULL;
    }
    if (h->space != c->space || h->from.machine == MACHINE_NONE || h->index >= locks) {
        drops->alien++;
        return NULL;
    }
    return h;
}

static inline const struct packet_head *packet_check(const void *data, uint32_t len, uint8_t family, const struct rack_config *c,
                                                     struct packet_drops *drops)
{
    return packet_check_locks(data, len, family, c, c->locks, drops);
}

#endif
