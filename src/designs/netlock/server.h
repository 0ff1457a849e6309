/* SPDX-License-Identifier: Apache-2.0 */
/* A lock server of NetLock: its state. Queues per lock, and the latest of each request of each host. */
#ifndef PAWL_DESIGNS_NETLOCK_SERVER_H
#define PAWL_DESIGNS_NETLOCK_SERVER_H

#include "designs/netlock/netlock.h"
#include "designs/packet/clients.h"

enum entry_state {
    ENTRY_DONE,
    ENTRY_WAITING,
    ENTRY_HELD,
    ENTRY_MOVED, /* pushed to the switch, and it said so */
};

/* The latest of one request of one host. */
struct entry {
    uint64_t nonce; /* 0: none yet */
    uint64_t index;
    uint32_t next, prev; /* in the lock's queue, or among its holders; entry + 1, 0: none */
    uint32_t count;      /* OVERFLOW: the order in which the switch passed it on */
    uint32_t push;       /* number of its push, if `pushed` */
    uint16_t port, tenant;
    uint8_t state, mode, priority;
    bool pushed;   /* and not yet known to have come */
    bool try;      /* a try: waits only while the lock is moving */
    bool old;      /* held when the server last looked */
    bool kept;     /* held, by the grant of a switch of an earlier term */
    uint32_t step; /* of conversions: the latest */
};

enum lock_place {
    LOCK_OWNED,   /* this server grants it */
    LOCK_LENDING, /* asked for by the switch: lent as soon as no client holds it; nothing is granted until then (but see kept) */
    LOCK_LENT,    /* the switch grants it; the queue is q2 */
};

/* The highest tokens under which the data of a lock were written and read. */
struct fence {
    uint64_t written, read;
};

struct lock {
    uint64_t token;   /* of the latest grant */
    uint64_t from_ns; /* not granted before */
    uint64_t next_ns; /* when to say again what its place demands */
    uint64_t said_ns; /* when it said LAST */
    struct fence fence;
    uint64_t drain_ns;    /* LENDING: since when; LENT: how long it took until no client held it */
    uint32_t first, last; /* the waiters */
    uint32_t held;        /* the holders; the latest first */
    uint32_t holders;
    uint32_t kept; /* of them, by grants of a switch of an earlier term. While there are any it is granted here, also if LENDING */
    uint32_t round;
    uint32_t push, acked, credit;     /* the next push, all below have come, there is room for all below */
    uint32_t closed;                  /* q2 was empty then: requests passed on no later come too late */
    uint32_t closed_low;              /* the same of those whose priority has no queue in the switch */
    uint32_t run;                     /* such a request may be the push of that number, */
    uint32_t busy_next, busy_prev;    /* among the locks that have something to say again; lock + 1 */
    uint32_t arrivals, peak, waiters; /* for Algorithm 3 */
    uint32_t generation;              /* of the index: the latest that was requested */
    uint32_t upgrader;                /* the reader that wants to write; entry + 1, 0: none */
    uint8_t mode, place;
    uint8_t levels;       /* how many priorities have queues in the switch; 0: all, or none */
    uint8_t run_mode;     /* if it and those before it of the same call, which have this mode, can share; 0: it is the first */
    bool called;          /* and none else */
    bool busy, confirmed; /* the switch has it and said so */
    bool empty;           /* handed over with an empty q2: requests passed on before that come too late */
};

/* The latest deed of one request of one host (server_data.c). */
struct deed {
    uint32_t life; /* of the host: one of another life, in the same number, counts its deeds from elsewhere on */
    uint64_t id;   /* 0: none yet */
    uint64_t nonce, token;
    uint32_t ticket, granter_life;
    struct place granter; /* of the hold; machine 0: not known */
    uint16_t len;
    uint8_t code, mode; /* code: enum netlock_done */
    uint8_t bytes[NETLOCK_PAYLOAD_MAX];
};

#define SERVER_TOUCHED_MAX 16384u /* the first ones: locks that are asked for often come early */

/* A steward's slot: the locks whose index is its number modulo the number of servers: the steward says whose they are. */
struct server_slot {
    uint64_t open_ns;    /* grants from then on */
    uint64_t adopted_ns; /* since when it has the slot */
    uint32_t term;       /* of the steward; 0: not this server's */
    uint32_t version;    /* of the switch's table, when it answered */
    bool synced;         /* the switch has answered since */
    bool whole;          /* no server had it before: nothing is lent that this server does not know of */
};

/* Where its parts lie, in bytes from the beginning. */
struct server_layout {
    uint64_t entries, deeds, locks, bytes;
};

struct server {
    struct rack_config config;
    struct packet_drops drops;
    uint64_t until_ns; /* its lease from the steward */
    uint64_t stamp, beat_ns;
    uint8_t beats, syncs;       /* without an answer */
    uint64_t quiet_ns;          /* no leases to hosts before: those it gave for locks that it lost must end */
    struct netlock_table table; /* what the steward said last */
    uint64_t sync_ns;           /* when to ask the switch again */
    uint64_t report_ns;
    uint64_t remind_ns;
    uint64_t remind_at; /* the next entry to look at */
    uint64_t revive_ns; /* when locks that waited for leases to end are looked at; UINT64_MAX: none */
    uint32_t life, switch_life;
    uint16_t switch_number;
    bool synced;
    bool clean; /* no client holds anything from a former life of the switch */
    bool fresh;
    uint16_t machine, number;
    struct server_slot slots[RACK_SERVERS_MAX];
    uint32_t busy;    /* first; lock + 1 */
    uint32_t touched; /* locks asked for and not yet reported */
    uint32_t touched_lock[SERVER_TOUCHED_MAX];
    struct server_layout at;
    pawl_apply apply; /* null: it keeps no data */
    void *apply_ctx;
    const struct netlock_packet *carried; /* the request that is looked at just now, if it brings something for a data server */
    uint32_t carried_len;
    struct client clients[]; /* by the machine's number, from 0 on; then entries, deeds, locks */
};

static inline struct lock *server_lock(struct server *s, uint64_t index)
{
    return (struct lock *)(void *)((char *)s + s->at.locks) + index;
}

/* There is room for all locks: this server may have to take over those of others. */
static inline uint64_t server_lock_index(struct server *s, const struct lock *l)
{
    return (uint64_t)(l - (struct lock *)(void *)((char *)s + s->at.locks));
}

static inline struct server_slot *server_slot(struct server *s, uint64_t index)
{
    return &s->slots[netlock_home(&s->config, index)];
}

static inline bool server_owns(const struct server *s, uint64_t index)
{
    return s->slots[netlock_home(&s->config, index)].term != 0;
}

/* The first lock after that one that is this server's; config.locks: none. Start with UINT64_MAX. */
static inline uint64_t server_next_lock(const struct server *s, uint64_t index)
{
    do {
        index++;
    } while (index < s->config.locks && !server_owns(s, index));
    return index;
}

/* The latest token that may have been given for a lock, or for its name when that had another lock. */
static inline uint64_t server_token(struct server *s, const struct lock *l)
{
    const struct server_slot *slot = server_slot(s, server_lock_index(s, l));
    uint64_t life = max_u64(s->switch_life, slot->term);
    if (!MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_FLOOR))
        life = max_u64(life, l->generation);
    return max_u64(l->token, life << NETLOCK_TOKEN_BITS);
}

static inline struct place server_switch(const struct server *s)
{
    return (struct place){MACHINE_SWITCH, s->switch_number};
}

/* ---- what the steward says (server_slots.c) ---- */

/* A mistake on purpose: leases that a former owner of the slot gave are not waited for. */
static inline bool server_hasty(const struct server *s, unsigned slot)
{
    return MISTAKE(s->config.mistakes, slot == s->number ? NETLOCK_MISTAKE_HASTY_SERVER : NETLOCK_MISTAKE_HASTY_HEIR);
}

/* Whether it may grant, give leases, and make tokens (I2): another server's terms are above those of which this one heard before.
 */
bool server_rules(const struct server *s, uint64_t now);
void server_on_term(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now);
uint64_t server_beat(struct server *s, uint64_t now, struct outbox *out);
/* A packet is of that term of the switch: if it is a new one, the server asks the steward soon, and SYNCs. */
void server_hear_of_term(struct server *s, uint32_t term, uint64_t now);
/* Whether this lock may be granted, or lent, now: every lease that others may have given for it has ended. */
bool server_open(struct server *s, const struct lock *l, uint64_t now);

static inline struct entry *server_entry(struct server *s, uint64_t i)
{
    return (struct entry *)(void *)((char *)s + s->at.entries) + i;
}

static inline uint32_t server_link(struct server *s, const struct entry *e)
{
    return (uint32_t)(e - server_entry(s, 0)) + 1;
}

static inline uint16_t server_machine_of(struct server *s, const struct entry *e)
{
    assert(rack_requests(&s->config));
    return (uint16_t)((uint64_t)(e - server_entry(s, 0)) / rack_requests(&s->config));
}

/* To the client of an entry, or to the switch. Null: no room, as if it were lost on its way. */
struct netlock_packet *server_answer(struct server *s, const struct entry *e, enum netlock_type type, struct outbox *out);
struct netlock_packet *server_to_switch(struct server *s, const struct lock *l, enum netlock_type type, struct outbox *out);

/* Requests that gave up on their way to a switch leave the queue, the others may be granted here again. */
void server_recall(struct server *s, struct lock *l);
/* Grants the waiters that can be granted now; of a lent lock, pushes as far as there is room. */
void server_pump(struct server *s, struct lock *l, uint64_t now, struct outbox *out);
void server_append(struct server *s, struct lock *l, struct entry *e);
/* Ends a request in any state. */
void server_end(struct server *s, struct entry *e, uint64_t now, struct outbox *out);
void server_take_out(struct server *s, struct lock *l, struct entry *e);

/* Notes that a lock was asked for; tells the switch which were. */
void server_touch(struct server *s, struct lock *l);
void server_report(struct server *s, uint64_t now, struct outbox *out);

/* Makes the request a holder of the lock. */
void server_hold(struct server *s, struct lock *l, struct entry *e);
/* Whether one more of that mode may hold the lock. */
bool server_fits(const struct lock *l, uint8_t mode);

/* ---- holds from an earlier term (server_hold.c) ---- */

void server_on_hold(struct server *s, const struct client *c, struct entry *e, const struct netlock_packet *p, uint64_t now,
                    struct outbox *out);
/* Whether clients may hold the lock of which this server has not heard. */
bool server_awaits_reports(struct server *s, const struct lock *l, uint64_t now);

/* ---- conversions (server_convert.c) ---- */

void server_on_convert(struct server *s, struct entry *e, const struct netlock_packet *p, uint64_t now, struct outbox *out);
/* Makes the reader that converts to exclusive the writer, before all waiters, if it is the only holder. */
void server_strengthen(struct server *s, struct lock *l, uint64_t now, struct outbox *out);

/* ---- data (server_data.c) ---- */

bool server_sound_data(const struct server *s, const struct netlock_packet *p, uint32_t len);
void server_on_data(struct server *s, const struct netlock_packet *p, uint32_t len, struct outbox *out);
/* Whether the bytes of the request were sent on to the data server, now that it is granted with that token. */
bool server_forwards(struct server *s, const struct entry *e, uint64_t token, struct outbox *out);

/* ---- lending (server_lend.c) ---- */

void server_on_take(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out);
bool server_sound_many(const struct server *s, const struct netlock_packet *p, uint32_t len);
void server_on_take_many(struct server *s, const struct netlock_packet *p, uint64_t now, struct outbox *out);
void server_on_taken_many(struct server *s, const struct netlock_packet *p);
void server_on_give(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out);
void server_on_notify(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out);
void server_on_pushed(struct server *s, struct lock *l, const struct netlock_packet *p, uint64_t now, struct outbox *out);
void server_on_synced(struct server *s, const struct netlock_packet *p, uint64_t now, struct outbox *out);
void server_hand_over(struct server *s, struct lock *l, uint64_t now, struct outbox *out);
/* How many priorities have queues in the switch, as it says in this round. */
void server_note_levels(struct lock *l, const struct netlock_packet *p);
void server_push(struct server *s, struct lock *l, uint64_t now, struct outbox *out);
/* Whether it has something to say again. */
void server_set_busy(struct server *s, struct lock *l, bool busy);
/* Says again what is not answered; returns when next. */
uint64_t server_lend_tick(struct server *s, uint64_t now, struct outbox *out);

#endif
