/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch: the data plane, and the control plane beside it, which has a clock. */
#ifndef PAWL_DESIGNS_NETLOCK_SWITCH_H
#define PAWL_DESIGNS_NETLOCK_SWITCH_H

#include "designs/netlock/netlock.h"
#include "designs/netlock/plane.h"

#define SWITCH_TENANTS PACKET_TENANTS
static_assert(NETLOCK_PRIORITIES == PACKET_PRIORITIES, "what a session may have, the switch has queues for");

/* Where a lock in the switch is on its way in and out. */
enum control_state {
    CONTROL_NONE,
    CONTROL_TAKING,   /* TAKE is to be answered by HANDOVER */
    CONTROL_LIVE,     /* the switch grants it */
    CONTROL_DRAINING, /* newcomers go to the server; until the queue is empty */
    CONTROL_GIVING,   /* GIVE is to be answered by GIVEN */
};

struct control {
    uint64_t next_ns;  /* when to say again what the state demands */
    uint64_t since_ns; /* when the state began */
    uint64_t moved_ns; /* when it began to move */
    uint64_t drain_ns; /* how long its holders took at the server, on the way in */
    uint32_t arrivals; /* at the latest look */
    uint32_t rate;     /* arrivals between the latest two looks */
    uint32_t peak, old_peak;
    uint32_t next, prev; /* among the restless; lock + 1, 0: none */
    uint8_t state;
    bool unwanted; /* to go once it is LIVE */
    bool stopped;  /* LIVE, and no waiter from the server was granted yet */
    bool restless; /* on the move, or overflowing: has something to say again */
    uint8_t sent;  /* on the move: retransmissions so far, for the next pause */
};

struct switch_counts {
    uint64_t switch_grants; /* that the switch made */
    uint64_t passed_on;     /* requests for servers: cold locks, and */
    uint64_t overflowed;    /* q2 */
    uint64_t moved_in, moved_out, refused_quota, expired;
};

/* How long moves stopped locks: in buckets that are a quarter of a power of two wide. */
#define SWITCH_STOP_BUCKETS 256u
enum { SWITCH_STOP_IN, SWITCH_STOP_IN_ALONE, SWITCH_STOP_OUT, SWITCH_STOPS }; /* ALONE, and OUT: without the drain of the queue */
static inline unsigned switch_stop_bucket(uint64_t ns)
{
    if (ns < 4)
        return (unsigned)ns;
    unsigned shift = 61 - (unsigned)__builtin_clzll(ns);
    return (shift << 2) + (unsigned)(ns >> shift);
}
/* The percentile of stop times; 0: there were none. */
uint64_t switch_stop_percentile(const uint32_t *stops, unsigned percent);

/* Candidates for Algorithm 3, as the servers report them. */
#define SWITCH_REPORTED_MAX 65536u
struct demand {
    uint64_t index;
    uint32_t rate, contention;
    uint32_t slots; /* what it gets */
    uint32_t in;    /* lock number + 1, if it is in the switch */
};

struct nl_switch {
    struct rack_config config;
    struct netlock_policy policy;
    struct packet_drops drops;
    struct switch_counts counts;
    uint16_t number;              /* 0: the original, 1: its backup */
    uint32_t life;                /* of its memory */
    uint64_t leased_ns, until_ns; /* its lease from the steward; and until when it is active */
    uint64_t stamp, beat_ns;
    uint8_t asked;                    /* BEATs without a settled answer */
    struct netlock_table table;       /* what the steward said last */
    uint16_t owner[RACK_SERVERS_MAX]; /* of each slot: number of a server + 1; 0: none */
    bool retire, retired;             /* its queues are to drain; have drained */
    bool filling;                     /* all locks fit, and not all of them are here yet */
    uint32_t taking;                  /* locks that are on their way here */
    uint32_t term;                    /* as the active switch, its own; 0: none */
    uint32_t version;                 /* of the table: rounds are numbered by it */
    bool clean;                       /* no host has anything from an earlier term that servers have not heard of */
    bool hosts_known;                 /* which hosts there are, as the steward said: */
    uint64_t hosts[NETLOCK_HOST_WORDS];
    uint64_t control_ns, churn_ns, allocate_ns;
    uint64_t open_ns;    /* netchain: grants from then on */
    uint64_t unfinished; /* plane's, at the latest look */
    uint64_t dice;
    uint32_t reported; /* demands since the latest allocation */
    uint32_t planned; /* demands of the latest allocation, behind the reported ones; those before `leaving` and from `coming` are to
                       * be looked at still */
    uint32_t leaving, coming;
    uint32_t reports_max;
    bool twin; /* for tests: behaves like a switch in the kernel, whose control process finds an empty queue only at its next check
                */
    bool remake; /* queues of another kind move out */
    uint32_t stops[SWITCH_STOPS][SWITCH_STOP_BUCKETS];
    bool tight;           /* the latest plan needs all slots */
    uint32_t restless;    /* first; lock + 1 */
    uint32_t restless_at; /* to be looked at next; 0: the first */
    uint64_t restless_ns; /* and when */
    uint32_t over_at;     /* the same, of all in the kernel */
    uint32_t slide_next;  /* where the latest defragmentation ended */
    struct netlock_lent servers[RACK_SERVERS_MAX];
    uint64_t plane_at, control_at, machines_at, demands_at;
    uint64_t generations_at; /* by index, of all locks; behind everything else, since it outlasts a term */
};

static inline struct plane *switch_plane(struct nl_switch *w)
{
    return (struct plane *)(void *)((char *)w + w->plane_at);
}
static inline struct control *switch_control(struct nl_switch *w, uint32_t lock)
{
    return (struct control *)(void *)((char *)w + w->control_at) + lock;
}
static inline struct netlock_machine *switch_machine(struct nl_switch *w, uint16_t machine)
{
    return (struct netlock_machine *)(void *)((char *)w + w->machines_at) + machine;
}
/* The latest generation of an index that was requested. */
static inline uint32_t *switch_generation(struct nl_switch *w, uint64_t index)
{
    return (uint32_t *)(void *)((char *)w + w->generations_at) + index;
}
static inline struct demand *switch_reports(struct nl_switch *w)
{
    return (struct demand *)(void *)((char *)w + w->demands_at);
}
static inline struct demand *switch_plan(struct nl_switch *w)
{
    return switch_reports(w) + w->reports_max;
}

static inline struct place switch_place(const struct nl_switch *w)
{
    return (struct place){MACHINE_SWITCH, w->number};
}

/* The server that has the locks of a slot, if they are not in the switch: its number + 1; 0: none. */
static inline unsigned switch_slot_owner(const struct nl_switch *w, unsigned slot)
{
    return w->owner[slot];
}

static inline unsigned switch_owner(const struct nl_switch *w, uint64_t index)
{
    return switch_slot_owner(w, netlock_home(&w->config, index));
}

static inline bool switch_slot_there(const struct nl_switch *w, unsigned slot)
{
    return w->owner[slot] && w->servers[w->owner[slot] - 1].life;
}

/* Where the server of the lock is; MACHINE_NONE if no server has it. */
static inline struct place switch_server_place(const struct nl_switch *w, uint64_t index)
{
    unsigned owner = switch_owner(w, index);
    return (struct place){owner ? w->config.server[owner - 1] : MACHINE_NONE, PORT_SERVER};
}

/* A lock's queue: its head and tail, as tickets. */
static inline uint64_t switch_ends(struct nl_switch *w, uint32_t lock)
{
    return plane_get(switch_plane(w), NETLOCK_ENDS, lock);
}

static inline uint32_t switch_head(uint64_t ends)
{
    return (uint32_t)(ends >> 32) & NETLOCK_TICKET;
}

static inline uint32_t switch_tail(uint64_t ends)
{
    return (uint32_t)ends & NETLOCK_TICKET;
}

/* ---- the term (term.c) ---- */

/* Whether the switch is the active one, and may grant. */
bool switch_is_active(const struct nl_switch *w, uint64_t now);
void switch_on_term(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);
/* When no host has anything any more that a former life of the switch granted, servers need not wait for the leases that it gave.
 */
void switch_look_whether_clean(struct nl_switch *w, struct outbox *out);
/* Asks the steward; returns when next. */
uint64_t switch_beat(struct nl_switch *w, uint64_t now, struct outbox *out);
/* To a host that asks a switch which is not active. */
void switch_say_elsewhere(struct nl_switch *w, const struct packet_head *h, struct outbox *out);
/* Everything starts anew. */
void switch_begin(struct nl_switch *w, uint32_t term, bool clean, uint64_t now);

/* A packet through the stages, with its resubmissions; what leaves is in the outbox. */
void switch_run(struct nl_switch *w, uint32_t lock, struct netlock_pass *pass, uint64_t now, struct outbox *out);
/* A message of the switch itself to the home of a lock; null: no room. */
struct netlock_packet *switch_to_server(struct nl_switch *w, uint64_t index, enum netlock_type type, struct outbox *out);
/* Tells the home that there is room for its waiters. */
void switch_notify(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out);

/* Questions of an operator (command.c). */
void switch_on_command(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);

/* The token of a lock that comes to the switch with this one: its name may have had higher ones with another lock. */
uint64_t switch_token(struct nl_switch *w, uint64_t index, uint64_t token);

/* ---- the control plane (move.c, control.c) ---- */

/* Begins to move a lock in, with a queue of so many slots (and waiting queues), or out. 0, or why not: -EEXIST, -ENOSPC, -EINVAL,
 * -ENOENT, -EBUSY (it is just moving). */
int switch_move_in(struct nl_switch *w, uint64_t index, uint32_t size, uint32_t wait_size, uint64_t now, struct outbox *out);
int switch_move_out(struct nl_switch *w, uint64_t index, uint64_t now, struct outbox *out);
/* Begins to move locks of a slot in before clients ask for them, as many as fit into one packet: those of the slot's locks, from
 * number `first` on, that are not here yet. Returns the number to go on with. */
uint64_t switch_move_in_many(struct nl_switch *w, unsigned slot, uint64_t first, uint32_t size, uint32_t wait_size, uint64_t now,
                             struct outbox *out);
/* If it is to move out and its queue is empty, it goes. */
void switch_give(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out);
/* A restless lock has something to retransmit. */
void switch_set_restless(struct nl_switch *w, uint32_t lock, bool restless);

/* Retransmits what the state of a lock demands, if it is time. */
void switch_say_again(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out);
/* Whether requests may wait at the server for the queue to be empty. */
bool switch_has_others(struct nl_switch *w, uint32_t lock);

void switch_on_server(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);
/* Tells a server the term of the switch, and whether clients may still hold something from an earlier one. */
void switch_say_synced(struct nl_switch *w, unsigned server, uint64_t stamp, struct outbox *out);
/* From now on all packets of this host go to the control process. False: the kernel has just renewed the host's lease. */
bool switch_bar(struct nl_switch *w, struct netlock_machine *m, uint64_t until);
/* Calls fn for every slot in use of a lock; `waiting`: it is in a priority's queue, else in the lock's. */
typedef void (*switch_slot_fn)(struct nl_switch *w, uint32_t lock, uint32_t slot, uint32_t ticket, bool waiting, void *ctx,
                               uint64_t now, struct outbox *out);
void switch_each_slot(struct nl_switch *w, uint32_t lock, switch_slot_fn fn, void *ctx, uint64_t now, struct outbox *out);
/* Waiters of a lock that their hosts have abandoned leave its queues. */
void switch_end_abandoned(struct nl_switch *w, uint32_t lock, uint64_t now, struct outbox *out);
/* Everything that a host has in the switch ends. */
void switch_end_machine(struct nl_switch *w, uint16_t machine, uint64_t now, struct outbox *out);

#endif
