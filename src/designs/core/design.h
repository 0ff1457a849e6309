/* SPDX-License-Identifier: Apache-2.0 */
/* A design: one way to lock. Each is a table of functions over a seat; the session, the hold records, keys and names, and the
 * public interface around it are common to all. */
#ifndef PAWL_DESIGNS_CORE_DESIGN_H
#define PAWL_DESIGNS_CORE_DESIGN_H

#include "dataplane/mistake.h"
#include "designs/core/seat.h"
#include "world/faults.h"

enum design_features {
    DESIGN_EXCLUSIVE = 1 << 0,
    DESIGN_SHARED = 1 << 1,
    DESIGN_TOKENS = 1 << 2,
    DESIGN_RECOVERY = 1 << 3, /* survives the death of a holder or waiter */
    DESIGN_TIMEOUT = 1 << 4,  /* a waiter can give up, at a deadline or because it was cancelled */
    DESIGN_CONVERT = 1 << 5,
    DESIGN_RANGES = 1 << 6,
    DESIGN_ASYNC = 1 << 7,      /* an operation can wait in a fiber: needs TIMEOUT, and no thread of its own */
    DESIGN_DEADLOCK = 1 << 8,   /* deadlocks among threads are detected, and a victim is chosen */
    DESIGN_CALLS = 1 << 9,      /* lock servers may keep data and execute calls on them under the lock */
    DESIGN_SPLIT = 1 << 10,     /* a held range can be cut in two */
    DESIGN_BAST = 1 << 11,      /* a holder can be told that a request waits for its lock */
    DESIGN_SEMAPHORE = 1 << 12, /* shared holds with a limit for each key */
    DESIGN_VALUES = 1 << 13,    /* a small value beside each lock; one-sided designs: value.h, which needs TOKENS */
};
#define DESIGN_FEATURES 14

enum design_substrates {
    DESIGN_ON_SHM = 1 << 0,
    DESIGN_ON_SIM = 1 << 1,
    DESIGN_ON_UDP = 1 << 2,
    DESIGN_ON_NODE = 1 << 3,     /* a memory node, a process: one-sided designs between machines */
    DESIGN_ON_NODE_XDP = 1 << 4, /* a memory node in the kernel */
    DESIGN_ON_OFI = 1 << 5,      /* a memory node under libfabric, whose providers have atomics of 64 bits */
    DESIGN_ON_VERBS = 1 << 6,    /* one under libibverbs, likewise */
};
#define DESIGN_SUBSTRATES 7
#define DESIGN_ON_NODES (DESIGN_ON_NODE | DESIGN_ON_NODE_XDP)
#define DESIGN_ON_RDMA (DESIGN_ON_OFI | DESIGN_ON_VERBS)

enum design_kind {
    DESIGN_MAIN,      /* offered to users */
    DESIGN_BASELINE,  /* as good as its paper and no better; to compare with */
    DESIGN_REFERENCE, /* what the machine itself offers; to compare with */
    DESIGN_BUSTED,    /* wrong on purpose; the suite must catch it */
};

#define LOCK_OWNER_UNKNOWN UINT32_MAX /* the lock is held, but does not say by which session */

#define DESIGN_LOOK_AGAIN 1

struct lock_view {
    enum pawl_mode mode; /* 0 if free */
    uint32_t owner;      /* slot, if exclusive */
    uint32_t readers;
    uint32_t limit; /* of a semaphore that is held; 0: it is none */
    uint64_t token;
};

/* How a lock with ranges is laid out at present, for designs in which that can change while it is used. */
struct lock_layout {
    uint64_t units, units_first, units_max; /* that it is laid out for; when it was made; at most */
    uint64_t bytes;                         /* that all of it takes if all of it is used; readers not counted */
    unsigned m;                             /* citron: how many levels up and down one looks, */
    uint64_t wait_ns;                       /* and T_wait; 0: a session that claims looks a second time instead */
    bool changing;                          /* some sessions have yet to follow the change */
};

struct overtaking {
    unsigned exclusive, shared;
};

/* Grants to others while a request is in flight to the lock: a handover takes at least one network delay, a round trip takes two.
 */
#define OVERTAKING_ON_THE_WAY 4

/* A try in steps (design.step): of one hold among several whose verbs leave together. */
struct design_try {
    unsigned step;    /* how many steps were taken */
    int rc;           /* how the verbs of the latest one ended, */
    u128 old;         /* and what its first verb found, if that is an atomic */
    uint64_t seen[7]; /* the design's: what READs found, say */
};

#define TRY_VERBS_MAX 4 /* of one step */
#define TRY_OTHERWISE (-1)

struct packet_design; /* designs/packet/packet.h */

/* A counter of a design, for the whole process, where a verb is expensive enough to count. */
struct design_counter {
    const char *name; /* null ends a list */
    const uint64_t *value;
};

struct design {
    const char *name;
    const char *summary; /* one line for lists */
    enum design_kind kind;
    uint32_t features;
    uint32_t substrates;
    uint32_t tolerates; /* FAULT_BIT()s */
    /* One-sided designs: capabilities of the fabric (FAB_*) without which it cannot run. Masked verbs and an order are never among
     * them: lower.c builds the former, and verbs that rely on the latter say so (fab_op.fence). */
    uint32_t needs;
    const char *instead; /* the design to choose where they are missing; null: none does the same */
    bool distrusts;      /* every index that it reads from memory is checked, so other users of a segment cannot end a process */
    uint32_t lock_size;  /* bytes per lock; a multiple of 16 */
    /* For a lock whose size depends on the units that it is made for and may grow to: its bytes, 0 if it cannot be. Its memory is
     * sparse: zero, and taken from the machine where it is first touched. Null: lock_size. */
    uint64_t (*lock_bytes)(uint64_t range_units, uint64_t range_max, const struct knobs *knobs);
    uint32_t session_bytes; /* what the design keeps for each session, private to its process (session->design_state); 0: nothing */
    uint32_t desc_size;     /* bytes of a queue descriptor, one per hold record, in the session's own memory; 0: none */
    /* Not 0: a hold record lies at this offset of its descriptor, in the session's own memory, where writing it costs no verb. It
     * can be read while the session lives, and is not needed afterwards. On shared memory records lie where they do without this.
     */
    uint32_t desc_record;
    const void *variant; /* what tells the designs of one family apart, for their own code; null: nothing does */
    uint64_t mistakes;   /* on purpose: 0 but in variants of the workbench (dataplane/mistake.h) */
    bool local;          /* only for clients on the node of the lock memory */
    bool node_tends;     /* clients on that node use CPU instructions, and only those on it can recover from one that is lost: the
                          * node itself looks after its sessions */

    /* A packet design: this and nothing of what follows but `knobs`. Null: a one-sided design. */
    const struct packet_design *packet;

    uint64_t clocks_ns;                    /* needs clocks of hosts that differ by this at most; 0: by whatever */
    const struct design_knob *knobs;       /* null: none */
    const struct design_counter *counters; /* null: none */

    /* Makes one lock of fresh, zeroed memory. Null if zeroes are a free lock. */
    int (*format)(const struct seat *seat, uint64_t index);

    /* `h` has index, mode and an open record; on success also the token. On failure the lock is not held, and nothing of this
     * attempt remains but the record, which the caller closes; except after -PAWL_ELOST, when recovery does. DESIGN_LOOK_AGAIN is
     * a failure, too: it was out of the queue for a moment, so find the lock's place again before the next attempt. */
    int (*acquire)(const struct seat *seat, struct hold *h, uint64_t deadline);

    /* At a memory node: what `acquire` does for a try of a lock that is free, without a stack of its own. `step` writes the verbs
     * of the next step and says how many they are; it is called again when they have ended well. 0: the lock is held, if the
     * session lives. TRY_OTHERWISE: it is not that simple, or a verb has failed (then `step` is not asked), and `rest` goes on from
     * there, to an end as of `acquire`. `step` executes no verb itself. Null: not offered. */
    int (*step)(const struct seat *seat, struct hold *h, struct design_try *t, struct fab_op *ops);
    int (*rest)(const struct seat *seat, struct hold *h, struct design_try *t);

    /* Ends the hold and closes its record. -PAWL_ENOTOWNER if the session does not have it. */
    int (*release)(const struct seat *seat, const struct hold *h);

    /* When the hold ends by itself, by the holder's clock; its release then says -PAWL_ENOTOWNER. Null: when it is released. */
    uint64_t (*ends)(const struct hold *h);

    /* If nothing fails and no waiter gives up: how many grants of a lock to others, exclusive and shared, there are at most between
     * a request and its grant, when so many others compete for it (I12). Null: no bound is promised. */
    struct overtaking (*overtaking)(unsigned others, enum pawl_mode mode);

    /* A lock server. Each of the node's cores runs `serve`, which does not return; they share `server_bytes` of the node's private
     * memory, at first zero. A request takes service_ns of a core, and its reply reply_ns after it was sent. Null: the node's CPU
     * has no part in locking. */
    uint64_t (*server_bytes)(const struct space *space);
    void (*serve)(const struct seat *seat, void *server, uint64_t service_ns, uint64_t reply_ns);

    /* Null: not offered. On failure the hold is what it was. */
    int (*convert)(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline);

    /* Ranges: makes the held [start, end) of `h` larger (at either end or both) or smaller, never both at once; and cuts it in two
     * at a unit inside of it: `h` keeps what lies before, `right`, which has an open record, gets the rest, with the same mode and
     * token. The caller knows that the range of `h` is what the books say. On failure the hold is what it was, and `right` is not
     * held. A range that grows gets a token above all earlier grants of its new units (I2r). Null: not offered. */
    int (*reshape)(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline);
    int (*split)(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right);

    /* Ranges: how a lock is laid out, and how that changes while others use it. `rescale` has a hold for itself that reaches to the
     * end, from the first unit behind the present layout for a larger one, from 0 for a smaller one: else -EAGAIN. Afterwards the
     * caller must release that hold and do nothing else with it. -ERANGE: not less than when it was made, not more than there is
     * room for; -EINVAL: no such m or T_wait; -ETIMEDOUT: claims of others that are not compatible stayed for too long. Null: not
     * offered. */
    int (*layout)(const struct seat *seat, uint64_t index, struct lock_layout *out);
    int (*retune)(const struct seat *seat, uint64_t index, unsigned m, uint64_t wait_ns, uint64_t deadline);
    int (*rescale)(const struct seat *seat, struct hold *h, uint64_t units, uint64_t deadline);

    /* The units that a lock of [*start, *end) keeps from others, where those are more than were asked for. Null: no more. */
    void (*cover)(const struct space *space, uint64_t *start, uint64_t *end);

    /* Whether the session has this hold on record. Cheap. */
    bool (*holds)(const struct seat *seat, const struct hold *h);

    /* Whether a request of another hold waits for the lock of this one, which is held: 1, 0 or an error. Never waits. Null: not
     * offered. */
    int (*wanted)(const struct seat *seat, const struct hold *h);

    /* The recovery contract: frees what session `dead` of `epoch` held and passes on what it waited for. Idempotent, may be
     * interrupted at any point and repeated, by several at once; touches nothing that the dead session has no record of. */
    int (*recover)(const struct seat *seat, uint32_t dead, uint32_t epoch);

    /* The state of the lock. Never waits. */
    int (*peek)(const struct seat *seat, uint64_t index, struct lock_view *out);

    /* Under an exclusive hold: from now on tokens of this lock are above `floor`. Null: no tokens. */
    int (*raise)(const struct seat *seat, struct hold *h, uint64_t floor);
};

/* The designs of this build, made from the lists of designs/meson.build and workbench/meson.build. libpawl.a has designs as weak
 * symbols, null unless the program links them; the workbench has variants beside its tables. */
extern const struct design *const design_tables[];
extern const unsigned design_tables_count;
extern const struct design *(*const design_variants)(size_t i); /* null: none */

/* The names of the designs that libpawl offers, linked into this program or not; null ends the list. */
extern const char *const design_offered[];

/* The first design of this build (`before` null), the one after it, null beyond the last; and one by name, or null. */
const struct design *design_next(const struct design *before);
const struct design *design_find(const char *name);

/* The values of a design's knobs unless tuned. */
struct knobs design_knobs(const struct design *d);

/* Null if the design has no knob of that name. */
const struct design_knob *design_knob(const struct design *d, const char *name);

/* Sets one of them. -ENOENT if the design has no such knob, -ERANGE if the value is not between its `min` and `max`. */
int design_tune(const struct design *d, struct knobs *knobs, const char *name, uint64_t value);

/* Whether all values could have been set so. */
bool design_knobs_fine(const struct design *d, const struct knobs *knobs);

/* "shared", "tokens", … in the order of the bits; likewise "shm", "sim", "udp", "node". */
const char *design_feature_name(unsigned bit);
const char *design_substrate_name(unsigned bit);

#endif
