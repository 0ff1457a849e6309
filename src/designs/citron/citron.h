/* SPDX-License-Identifier: Apache-2.0 */
/* Citron (FAST'23): ranges locked on a segment tree by one-sided verbs. docs/designs/citron.md has the argument and says where this
 * departs from the paper.
 *
 *     tree.c     node arithmetic, splitting a range (3.3, 3.5.1)
 *     words.c    the words that nodes and claims are made of, and batches of verbs on them (3.4)
 *     crowd.c    that no counter runs over
 *     turn.c     Algorithm 2 (a): turns at internal nodes; waiting
 *     look.c     Algorithm 2 (b): looking up
 *     acquire.c  Algorithm 2 (c): claiming; a range
 *     below.c    Algorithm 2 (d): looking down
 *     leaf.c     leaves, and readers in them (not in the paper)
 *     token.c    fencing tokens (not in the paper)
 *     release.c  Algorithm 3, and the ways back out of an acquisition
 *     change.c   grow, shrink, up and down (not in the paper)
 *     split.c    cutting a hold in two, and nodes that two holds have together
 *     yield.c    who waits gives way to a holder that changes
 *     scale.c    the lock's configuration: m, T_wait, and trees that grow (3.5.5, 3.9)
 *     recover.c  counting anew what the dead and those of unknown outcome have left (3.10)
 *     funeral.c  all that a dead session had
 *     design.c   the tables: citron, and the busted ones */
#ifndef PAWL_DESIGNS_CITRON_CITRON_H
#define PAWL_DESIGNS_CITRON_CITRON_H

#include "designs/citron/mistakes.h"
#include "designs/citron/tree.h"
#include "designs/core/design.h"

/* ---- internal nodes (3.4): {DCnt, DMax, TCnt, TMax} of 15 bits, Occ, and two flags for readers ---- */

/* What is waited for together lies in one half, as futexes need it. */
#define NODE_COUNT_BITS 15
extern unsigned citron_count_bits; /* so many of them count: all; fewer only in tests, which have fewer clients */
#define NODE_COUNT_MAX ((uint32_t)FIELD_MAX(citron_count_bits))
#define NODE_DCNT 0
#define NODE_DMAX 15
#define NODE_BELOW (UINT64_C(1) << 30)  /* there were readers in a leaf below (height 1 only) */
#define NODE_SHARED (UINT64_C(1) << 31) /* readers have this node */
#define NODE_TCNT 32
#define NODE_TMAX 47
#define NODE_OCC (UINT64_C(1) << 62) /* a writer has this node, or is about to */
#define NODE_COUNT_TOPS(bits)                                                                                                      \
    (UINT64_C(1) << (NODE_DCNT + (bits)-1) | UINT64_C(1) << (NODE_DMAX + (bits)-1) | UINT64_C(1) << (NODE_TCNT + (bits)-1) |       \
     UINT64_C(1) << (NODE_TMAX + (bits)-1))
#define NODE_TOPS                                                                                                                  \
    (NODE_COUNT_TOPS(citron_count_bits) | NODE_COUNT_TOPS(NODE_COUNT_BITS) | NODE_BELOW | NODE_SHARED | NODE_OCC |                 \
     UINT64_C(1) << 63)
#define NODE_T_MASK FIELD_MASK(NODE_TCNT, NODE_COUNT_BITS)
#define NODE_D_MASK FIELD_MASK(NODE_DCNT, 2 * NODE_COUNT_BITS)

/* Beside every internal node, for readers: those that have it, and those below it that have made themselves known to it. */
#define READERS_CNT 0
#define READERS_MAX 16
#define READERS_DCNT 32
#define READERS_DMAX 48
#define READERS_TOPS (UINT64_C(1) << 15 | UINT64_C(1) << 31 | UINT64_C(1) << 47 | UINT64_C(1) << 63)

/* 32,767 can be counted (3.4). Whoever finds a crowd steps back and waits without being counted. Those who hold something stay, and
 * are fewer than that: there are 4,096 units below the largest of these nodes. Nobody adds to a word in which it has seen half of
 * what that can count; the other half is for those who could not know that (crowd.c). */
#define NODE_LIMIT (NODE_COUNT_MAX / 2 + 1)
#define NODE_CROWD (1u << (NODE_COUNT_BITS - 2))
#define READERS_CLAIMS_MAX 32767u /* half of what 16 bits count; more are refused */

static inline uint32_t node_field(uint64_t w, unsigned shift)
{
    return (uint32_t)field_get(w, shift, NODE_COUNT_BITS);
}
static inline uint32_t node_below(uint64_t w) /* claims made known to it and not yet taken back */
{
    return (node_field(w, NODE_DMAX) - node_field(w, NODE_DCNT)) & NODE_COUNT_MAX;
}
static inline uint32_t node_queue(uint64_t w)
{
    return (node_field(w, NODE_TMAX) - node_field(w, NODE_TCNT)) & NODE_COUNT_MAX;
}
static inline uint32_t node_ticket_next(uint32_t ticket)
{
    return (ticket + 1) & NODE_COUNT_MAX;
}
static inline uint32_t readers_here(uint64_t w)
{
    return (uint32_t)((field_get(w, READERS_MAX, 16) - field_get(w, READERS_CNT, 16)) & 0xffff);
}
static inline uint32_t readers_below(uint64_t w)
{
    return (uint32_t)((field_get(w, READERS_DMAX, 16) - field_get(w, READERS_DCNT, 16)) & 0xffff);
}

/* ---- high nodes ----
 *
 * Whatever is locked makes itself known to a few high ancestors, and those are the same for many: an address where atomics queue
 * up. So the claims below a high node are counted in several words, each session in its own one; who looks reads them all at
 * once. */

extern unsigned citron_high; /* from which height on: 4, that is 16,384 units; another only in tests, where trees are small */
#define HIGH_STRIPES 4       /* two per machine of a small cluster; a READ of 64 nodes, as m = 4 makes it, is 2 KiB */

/* Writers' DCnt and DMax lie in the lower half of each, where `readers` has Cnt and Max; readers' are where they are there. */
static inline bool node_is_high(struct tree_node n)
{
    return n.height >= citron_high;
}

/* ---- tall nodes ----
 *
 * Who claims a leaf and who has its parent see each other in one word. All other nodes that one could meet are tall ones, of height
 * 2 and more: 1,024 units. Few lock them. So the lock's head counts those who do, on high ones and, in several words, on others;
 * and as long as there are none nobody looks at ancestors but parents, and nobody who makes itself known can be too late. */

#define NODE_TALL 2
#define TALL_WORDS (1 + HIGH_STRIPES)
#define TALL_CNT 0
#define TALL_MAX 32
#define TALL_TOPS (UINT64_C(1) << 31 | UINT64_C(1) << 63)

static inline bool node_is_tall(struct tree_node n)
{
    return n.height >= NODE_TALL;
}
static inline unsigned tall_word(struct tree_node n, uint32_t slot) /* in which of them a session counts its claim */
{
    return node_is_high(n) ? 0 : 1 + slot % HIGH_STRIPES;
}
static inline uint32_t tall_count(uint64_t w)
{
    return (uint32_t)(w >> TALL_MAX) - (uint32_t)w;
}

/* ---- readers of a leaf: each in a place of its own, that says who and which units ---- */

#define LEAF_READERS 16 /* more of them go to the parent */
#define LEAF_READERS_BYTES (LEAF_READERS * sizeof(uint64_t))

/* valid 1, first 6, last 6, epoch's lower 3, serial 16; slot 12, record 12, serial's upper 4, epoch's next 4. Sessions that had the
 * slot before began to count serials where this one did: only the epoch tells what they have left from its own. */
static inline uint64_t reader_word(uint32_t slot, uint32_t epoch, uint32_t record, uint64_t serial, uint32_t bounds)
{
    return 1 | (uint64_t)bounds << 1 | (uint64_t)(epoch & 7) << 13 | (serial & 0xffff) << 16 | (uint64_t)slot << 32 |
           (uint64_t)record << 44 | serial >> 16 << 56 | (uint64_t)(epoch >> 3 & 15) << 60;
}
#define READER_OWNER (~UINT64_C(0x1fff)) /* all but the bounds */
static inline uint32_t reader_bounds(uint64_t w)
{
    return (uint32_t)field_get(w, 1, 12);
}

/* Which units of a leaf: the first and the last. */
static inline uint32_t bounds_of(struct tree_node leaf, uint64_t start, uint64_t end)
{
    uint64_t first = max_u64(start, tree_start(leaf)) - tree_start(leaf),
             last = min_u64(end, tree_end(leaf)) - tree_start(leaf) - 1;
    return (uint32_t)(first | last << 6);
}
static inline uint64_t bounds_mask(uint32_t bounds)
{
    return (UINT64_MAX >> (63 - (bounds >> 6))) & (UINT64_MAX << (bounds & 63));
}

/* ---- a lock in memory ---- */

struct citron_lock {
    uint64_t config;           /* below */
    uint64_t oldest;           /* beside it, so that one READ has all: the oldest block of tokens that is not void (token.c), */
    uint64_t tall[TALL_WORDS]; /* and the claims on tall nodes, as {Cnt, Max} of 32 bits each */
    uint64_t maximizer;
    uint64_t sleepers; /* shared memory: how many may be asleep, so that the others need not wake */
    uint64_t changers; /* holders that wait for more, at least: those in their way need not look for them while it is 0 */
    _Alignas(CACHE_LINE) uint64_t blocks; /* of tokens: how many have been taken */
    _Alignas(CACHE_LINE) uint64_t spill;  /* [N, infinity): a node without ancestors and descendants */
    uint64_t spill_readers;
    char pad[CACHE_LINE - 16];
};
static_assert(sizeof(struct citron_lock) % CACHE_LINE == 0, "what follows has lines of its own");

/* What is read of the head, at once. */
enum { HEAD_CONFIG, HEAD_OLDEST, HEAD_TALL, CITRON_HEAD_WORDS = HEAD_TALL + TALL_WORDS };
static_assert(offsetof(struct citron_lock, oldest) == HEAD_OLDEST * sizeof(uint64_t) &&
                  offsetof(struct citron_lock, tall) == HEAD_TALL * sizeof(uint64_t),
              "read together");

/* Then: the nodes, in level order; the words beside the internal ones; those below high ones; the tokens'
 * words, by part; and the readers' places, by leaf. */
uint64_t citron_lock_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *knobs);

/* ---- the configuration, one word: height + 1 (0: nobody has been here) and m, each as it is and as it is to be; T_wait ---- */

#define CONFIG_WAIT_NS 64 /* T_wait counts these: up to 16 ms */
#define CONFIG_WAIT_BITS 18

struct citron_config {
    uint8_t height, height_next;
    uint8_t m, m_next;
    uint32_t wait;       /* 0: those below look up once more instead, and nobody waits */
    uint32_t generation; /* so that no two configurations in a row look alike */
    bool set;            /* T_wait was set, and stays as it is */
    bool crowded;        /* there was a crowd: whoever comes looks before it adds (crowd.c) */
};
#define CONFIG_GENERATION_BITS 28

uint64_t config_word(struct citron_config c);
struct citron_config config_of(uint64_t word);

static inline bool config_changing(struct citron_config c)
{
    return c.height != c.height_next || c.m != c.m_next;
}
/* While it changes (3.5.5), claims are made known for the smaller m and the larger tree, and looked for by the larger m. */
static inline unsigned config_m_notify(struct citron_config c)
{
    return c.m < c.m_next ? c.m : c.m_next;
}
static inline unsigned config_m_check(struct citron_config c)
{
    return c.m > c.m_next ? c.m : c.m_next;
}
static inline unsigned config_height_notify(struct citron_config c)
{
    return c.height > c.height_next ? c.height : c.height_next;
}
static inline bool config_confirms(struct citron_config c)
{
    return !c.wait;
}
static inline uint64_t config_wait_ns(struct citron_config c)
{
    return (uint64_t)c.wait * CONFIG_WAIT_NS;
}

/* ---- claims: what a hold has, or is about to have, of one node; a word each, in the hold's descriptor ---- */

enum claim_state {
    CLAIM_NONE,  /* nothing */
    CLAIM_WAIT,  /* wants it and has nothing of it */
    CLAIM_QUEUE, /* may have a ticket, nobody knows which */
    CLAIM_TURN,  /* has a ticket and nothing else */
    CLAIM_FLUX,  /* has a ticket (internal nodes), and may have the rest: in the middle of a step */
    CLAIM_HELD,  /* all steps were taken; the first of them may have failed: then a step back follows */
};

#define CLAIM_NODE_BITS 35 /* level order in the largest tree; 0: the spillover */
#define CLAIM_TICKET 35    /* or, of a leaf, its bounds, */
#define CLAIM_BOUNDS_BITS 12
#define CLAIM_PLACE 47 /* and, of a reader there, the lower bits of its place */
#define CLAIM_PLACE_HIGH 59
#define CLAIM_TOP 50 /* for which height and m it is made known */
#define CLAIM_M 55
#define CLAIM_ALL (UINT64_C(1) << 58)                 /* with all bits of the leaves below (second fast path of 3.8) */
#define CLAIM_JOINT (UINT64_C(1) << CLAIM_PLACE_HIGH) /* of a writer's internal node: another hold of the session has it, too */
#define CLAIM_SHARED (UINT64_C(1) << 60)
#define CLAIM_STATE 61

#define CLAIMS_MAX 8
#define DESC_TOKEN CLAIMS_MAX        /* behind them, on the session's own books: the hold's token */
#define DESC_CHANGE (CLAIMS_MAX + 1) /* for others to read: that the hold waits for more (yield.c), 0 if not */
#define DESC_WORDS (CLAIMS_MAX + 2)  /* a multiple of 16 bytes */
static_assert(TREE_SPLIT_MAX + 1 <= CLAIMS_MAX, "a range's nodes and the spillover");

struct citron_claim {
    enum claim_state state;
    bool shared, all, joint;
    bool spill;
    struct tree_node node;
    uint32_t ticket; /* bounds, if a leaf */
    uint8_t m, top;
    uint8_t place;   /* of a reader in a leaf */
    uint8_t said;    /* the state as last published */
    bool granted;    /* known from the record, where that says so: on shared memory */
    uint32_t serial; /* likewise: which use of the record, */
    uint32_t epoch;  /* and of the slot */
    bool cut;        /* the other half of it is another hold's */
    bool changes;    /* known from the census: its hold waits for more, */
    bool wanted;     /* and this is what it waits for */
    bool took;       /* known to its owner alone: the bits of the leaf, or the place, are really its own */
};

uint64_t claim_word(const struct citron_claim *c, unsigned height_max);
struct citron_claim claim_of(uint64_t word, unsigned height_max);

static inline bool claim_internal(const struct citron_claim *c)
{
    return c->spill || c->node.height > 0;
}

/* ---- batches ---- */

/* A batch is large, and fibers have small stacks: a function that fills one returns before anybody waits. */
#define OWN_FRAME __attribute__((noinline))

struct citron_batch {
    unsigned n, said;
    struct fab_op ops[FAB_BATCH_MAX];
    uint64_t values[FAB_BATCH_MAX]; /* what WRITEs write and READs of one word find */
    uint64_t words[4 * CLAIMS_MAX]; /* what WRITEs of claims write */
};

static inline void batch_start(struct citron_batch *b)
{
    b->n = b->said = 0;
}

/* Each returns the verb's number. */
unsigned batch_read(struct citron_batch *b, fab_addr addr, void *buf, uint16_t len);
unsigned batch_read64(struct citron_batch *b, fab_addr addr);
unsigned batch_write64(struct citron_batch *b, fab_addr addr, uint64_t value);
unsigned batch_mcas(struct citron_batch *b, fab_addr addr, uint64_t compare, uint64_t compare_mask, uint64_t swap,
                    uint64_t swap_mask);
unsigned batch_mfaa(struct citron_batch *b, fab_addr addr, uint64_t add, uint64_t tops);
unsigned batch_faa(struct citron_batch *b, fab_addr addr, uint64_t add);
static inline uint64_t batch_old(const struct citron_batch *b, unsigned i)
{
    return (uint64_t)b->ops[i].old;
}

/* ---- one operation under way ---- */

#define TOKEN_PARTS 2 /* a hold that lies in so many parts has tokens of these; see token.c */

#define JOB_PATIENCE_NS (200 * NS_PER_US) /* at first; each time in vain it doubles, up to the space's check_ns */
#define JOB_PATIENCE_FAR_NS NS_PER_MS     /* where asking everybody takes about that long, and the dead have leases of many */

struct citron_job {
    const struct seat *seat;
    struct hold *h;
    uint64_t index;
    fab_addr lock;
    unsigned height_max; /* of the array */
    uint64_t config_word;
    struct citron_config config;
    uint64_t deadline;
    bool shared;
    uint64_t start, end; /* what is wanted in the end */
    bool published;      /* the record says that this hold may have something */
    unsigned base;       /* so many claims are held already, and stay whatever becomes of the others */
    bool upgrades;       /* the others are for what is read already: this hold's own readers do not count */
    bool marked;         /* others know that it waits for more than it has */
    unsigned count;      /* of claims */
    struct citron_claim claims[CLAIMS_MAX];
    struct citron_draw {
        unsigned parts;                   /* in which the hold lies; 0: none, or many */
        unsigned op;                      /* the verb that drew */
        fab_addr first;                   /* the words of the parts, */
        uint64_t words[TOKEN_PARTS];      /* and what they were */
        uint64_t block;                   /* that was taken, if one was */
        uint64_t head[CITRON_HEAD_WORDS]; /* read before that */
    } draw;                               /* of a token, the latest */
    uint64_t token;
    uint32_t ahead;       /* waiting for a turn: how many come first */
    uint64_t moves;       /* waiting far away: bits whose changes show that those in the way get on */
    int pending;          /* the claim whose turn is asked for together with the look at the ancestors; -1: none */
    uint64_t trip_ns;     /* how long the latest batch took, if far away */
    uint64_t poll_ns;     /* and the latest READ of one that waits; 0: none yet */
    uint64_t looked_ns;   /* t1: when the latest look at the ancestors was posted, */
    uint64_t limit_ns;    /* within which time of it claims must be known, */
    uint64_t claimed_ns;  /* t2, and t0: when they were */
    uint64_t patience_ns; /* until the next look after those in the way */
    struct citron_flight {
        unsigned n;
        uint32_t epoch;
        bool wary; /* there was a crowd: look first */
        uint16_t *buckets[2 * CLAIMS_MAX];
    } flight;           /* what is in the air (crowd.c) */
    unsigned blocked;   /* how often in a row others were quicker to take bits of the same leaf, */
    unsigned passed;    /* and how often others came before it at an ancestor */
    unsigned tall_idle; /* how often in a row, in all acquisitions, that was for nothing */
    enum look_reach {
        LOOK_PARENTS,
        LOOK_TALL, /* somebody has a tall node: read those ancestors, too, */
        LOOK_HIGH, /* and it is a high one: all of them */
    } reach;
    bool blind;   /* the latest claim was made without a look */
    bool peeked;  /* the latest look was at the parent alone, or there was none: whether somebody has a tall node is known after the
                     claim */
    bool meek;    /* has waited for bits of a leaf for long, or with many: from now on without having made itself known */
    bool crowded; /* has met a queue that was too long: from now on looks before it draws a ticket */
    bool tried;   /* one that does not wait has looked after those in its way */
    bool exact;   /* ranges of this session itself were in the way: waste nothing */
    bool escalated; /* one internal node for all of it, where turns are taken in order */
    struct tree_node escalate_to;
    unsigned places_tried;
    unsigned pieces; /* a release in more than one batch */
    bool scrub;      /* bits of a leaf stayed set for long: whoever has the parent looks whether somebody owns them */
    struct tree_node scrub_at;
};

static inline uint64_t job_patience_ns(const struct citron_job *j)
{
    return fab_is_shm(j->seat->ep) ? JOB_PATIENCE_NS : JOB_PATIENCE_FAR_NS;
}
void job_start(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline);

/* Addresses. */
fab_addr job_node(const struct citron_job *j, struct tree_node n);
fab_addr job_readers(const struct citron_job *j, struct tree_node n); /* of an internal node */
fab_addr job_places(const struct citron_job *j, struct tree_node leaf);
fab_addr job_stripes(const struct citron_job *j, struct tree_node n); /* of a high one */
fab_addr job_part(const struct citron_job *j, uint64_t number);
fab_addr job_claim_node(const struct citron_job *j, const struct citron_claim *c);
fab_addr job_claim_readers(const struct citron_job *j, const struct citron_claim *c);
fab_addr job_desc(const struct citron_job *j, unsigned claim);
static inline fab_addr job_header(const struct citron_job *j, size_t offset)
{
    return j->lock + offset;
}
fab_addr citron_desc_addr(const struct space *s, uint32_t slot, uint32_t record);

/* Heights of the tree at first, and at most. */
unsigned citron_height_first(const struct space *s);
unsigned citron_height_last(const struct space *s);

/* Where this session is counted by those who look down from `above`, and how. */
struct citron_known {
    fab_addr addr;
    uint64_t come, gone, tops;
};
struct citron_known job_known(const struct citron_job *j, struct tree_node above, bool shared);
/* How many the word at such an address counts. */
uint32_t known_count(struct tree_node above, bool shared, uint64_t word);
/* Adds the verb by which the lock's head counts a claim on a tall node, or no longer does. */
void citron_add_head(const struct citron_job *j, struct citron_batch *b, uint64_t head[CITRON_HEAD_WORDS]);
void citron_add_tall(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come);

/* Adds a WRITE of what claims [from, to) have become; the first time also of the record. Intent before effect (I5). */
void job_say(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, enum claim_state state);
int job_run(struct citron_job *j, struct citron_batch *b);

/* Wakes who may sleep on that word. */
void job_wake(const struct citron_job *j, fab_addr addr);

/* ---- crowd.c ---- */

/* Before claims [from, to) look for the last time before they count themselves; draws: and one draws a ticket, -1: none. Waits as
 * long as the session has too many in the air, which depends on nobody else. */
int job_take_off(struct citron_job *j, unsigned from, unsigned to, int draws);
/* After it is known what they have found, and crowds have been told of. */
void job_land(struct citron_job *j);
int job_tell_crowd(struct citron_job *j);

/* Words that claims add to. */
enum crowd_kind { CROWD_TURNS, CROWD_BELOW, CROWD_READERS, CROWD_READERS_BELOW };
struct crowd_word {
    fab_addr addr;
    enum crowd_kind kind;
    struct tree_node node;
    uint64_t value;
};
struct crowd {
    unsigned n;
    struct crowd_word words[3 * (TREE_HEIGHT_MAX + 1)];
};
void crowd_list(const struct citron_job *j, unsigned from, unsigned to, struct crowd *out);
/* Whether claims may be added to what was read: -PAWL_ELIMIT, or `full` is one to which nobody must add; else it is null. */
int crowd_see(struct citron_job *j, const struct crowd *w, const struct crowd_word **full);
/* What a batch that made claims has found: tells of a crowd. */
int crowd_found(struct citron_job *j, const struct citron_batch *b, unsigned from, unsigned to);
/* Likewise if the outcome is not known. */
int crowd_doubt(struct citron_job *j, unsigned from, unsigned to, int draws);
/* Runs verbs that count claim i of a hold once more, until that is certain: what is counted twice is too high. */
int job_count_surely(struct citron_job *j, unsigned i, const struct citron_claim *as, struct citron_batch *b);
/* Of each session, per word. */
uint16_t citron_flights_max(uint32_t slot_count);

/* ---- turn.c ---- */

#define JOB_AGAIN 1        /* nothing is held: plan anew */
#define JOB_WAITED 2       /* look again */
#define JOB_YIELD (-EBUSY) /* somebody who holds a part of it already wants the rest: give way */

/* Waits until the condition no longer holds: 0, and what the word is then; or, when that has taken too long, 1. */
int job_wait(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen);
/* A few polls of another host's memory with short pauses: 0 if the condition no longer holds, or 1. */
int job_poll_briefly(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen);
/* The same for bits of a leaf: they may be another's each time that one looks. */
int job_wait_bits(struct citron_job *j, struct tree_node leaf, uint64_t busy, uint64_t *seen);
/* The same for a word of an internal node; after a while looks whether anybody is behind what it says. */
int job_wait_at(struct citron_job *j, struct tree_node n, bool spill, const struct fab_cond *cond, uint64_t *seen);
/* Of claims [base, to): each in its turn. */
int job_take_turns(struct citron_job *j, unsigned to);
/* Waits until no more than so many come before it; `seen` is the node's word, and then what it is at last. */
int job_await_turn(struct citron_job *j, unsigned i, uint64_t *seen, uint32_t ahead);
/* A ticket that was drawn by a verb that found this. JOB_WAITED: there are too many, it was given back. */
int job_take_ticket(struct citron_job *j, unsigned i, uint64_t found);
static inline uint32_t turns_ahead(const struct citron_claim *c, uint64_t word)
{
    return (c->ticket - node_field(word, NODE_TCNT)) & NODE_COUNT_MAX;
}

/* ---- acquire.c ---- */

int citron_acquire(const struct seat *seat, struct hold *h, uint64_t deadline);
/* Whether a claim that is known but has no bits yet may wait for them as it is. */
static inline bool job_waits_known(const struct citron_job *j)
{
    return !j->shared && !j->meek && !j->upgrades && !j->base && j->deadline != DEADLINE_TRY;
}
/* Claims [from, to) of a batch whose outcome is not known: they have nothing any more, but turns. */
int job_doubt_all(struct citron_job *j, unsigned from, unsigned to);
/* Gets all claims of a job beyond its base. */
int job_acquire(struct citron_job *j);
/* Adds claims on nodes, or beyond the tree, as the configuration has it. */
void job_add(struct citron_job *j, struct tree_node n, uint64_t start, uint64_t end);
void job_add_spill(struct citron_job *j);
/* From now on one node for the whole range, which contains this one. */
int job_escalate(struct citron_job *j, struct tree_node to);

/* ---- look.c ---- */

struct citron_leaves;

#define LOOK_MAX 40 /* ancestors that one batch looks at */

struct look {
    unsigned n;
    struct tree_node nodes[LOOK_MAX];
    uint64_t words[LOOK_MAX];
};

/* The ancestors of a group of claims, each once. Tall ones only if somebody has any. */
void look_list(const struct citron_job *j, unsigned from, unsigned to, struct look *l);
void look_add(const struct citron_job *j, struct citron_batch *b, struct look *l);
/* The lowest that somebody has or wants for itself; -1: none. */
int look_find(const struct citron_job *j, const struct look *l);
/* Waits for whoever has that ancestor, without a claim on anything (W2 in the document). */
int look_wait(struct citron_job *j, unsigned from, unsigned to, struct tree_node above, uint64_t word);
/* How far up others are, as the head counts them. */
enum look_reach look_reach(const struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS]);
/* Whether ancestors should have been looked at and were not. */
bool look_misses_tall(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS]);
/* All of phase (b) for claims [from, to), and the last turn if that is pending. */
int look_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves);
/* The configuration is another: whether that matters to what was planned and claimed; and if it does. */
bool job_only_wait_changed(struct citron_job *j, uint64_t config);
int job_start_anew(struct citron_job *j, uint64_t config);

/* ---- below.c ---- */

/* How much of what a node, or the spillover, counts is what this job's hold has already, and not in its way. */
struct citron_own {
    uint32_t below, readers_here, readers_below;
};
struct citron_own job_own_at(const struct citron_job *j, struct tree_node n, bool spill);
int job_wait_out(struct citron_job *j);
int job_drain_below(struct citron_job *j, unsigned i);

/* ---- leaf.c ---- */

/* What is known of the leaves of a group, by claim. */
struct citron_leaves {
    bool below;               /* readers may be in one of them */
    bool looked, checked;     /* read before claiming; after */
    bool flagged[CLAIMS_MAX]; /* the parent says already that there are readers */
    uint64_t bits[CLAIMS_MAX];
    uint64_t parents[CLAIMS_MAX]; /* of readers: read after claiming */
    uint64_t places[CLAIMS_MAX][LEAF_READERS];
};

/* The second fast path as printed: what has come of it. */
struct citron_whole {
    bool tried, had;
    bool took[4];
    unsigned ops[4], readers;
    uint64_t places[4 * LEAF_READERS];
};

void citron_leaves_start(struct citron_leaves *l);
void citron_leaves_look(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l);
unsigned citron_leaf_add(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *l);
void citron_leaves_check(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l);
void citron_leaf_see(struct citron_job *j, unsigned i, uint64_t old, struct citron_leaves *l);
bool citron_leaf_good(const struct citron_job *j, unsigned i, const struct citron_leaves *l);
int citron_leaf_settle(struct citron_job *j, unsigned i, struct citron_leaves *l);
/* Changes a reader's place from one word to another; exactly once, whatever breaks. 1: it was not the first. */
int citron_swap_place(const struct citron_job *j, const struct citron_claim *c, uint64_t from, uint64_t to);
uint64_t citron_place_word(const struct citron_job *j, const struct citron_claim *c);
/* Takes a free place for a claim that has none. */
int citron_take_place(struct citron_job *j, struct citron_claim *c);
int citron_read_places(struct citron_job *j, struct tree_node leaf, uint64_t places[LEAF_READERS]);
fab_addr citron_place_addr(const struct citron_job *j, const struct citron_claim *c);
void citron_whole_add(struct citron_job *j, struct citron_batch *b, unsigned i, struct citron_whole *w);
void citron_whole_see(struct citron_job *j, const struct citron_batch *b, unsigned i, struct citron_whole *w);
int citron_whole_leave(struct citron_job *j, unsigned i, struct citron_whole *w);

/* ---- token.c ---- */

/* Adds a READ of the lock's head and the verbs that draw a token, behind those after which the conflict is over; and takes what
 * they found. Without tokens, as the paper's protocol is, nothing is drawn. */
void job_draw(struct citron_job *j, struct citron_batch *b);
void job_drew(struct citron_job *j, const struct citron_batch *b);
/* Makes a token of what was drawn last. Usually without a round trip. */
int job_settle_token(struct citron_job *j);
int job_new_token(struct citron_job *j);
/* Of the latest grant that took a block: of locks that are taken as a whole the latest. Where ranges are, tokens of the same block
 * and of parts may be a few above it. */
int citron_newest_token(const struct citron_job *j, uint64_t *token);
int citron_raise(const struct seat *seat, struct hold *h, uint64_t floor);

/* ---- release.c ---- */

int citron_release(const struct seat *seat, const struct hold *h);
bool citron_holds(const struct seat *seat, const struct hold *h);

/* Takes a claim back. `keep_turn`: its ticket stays, if it has one and is not shared. */
int job_drop(struct citron_job *j, unsigned i, bool keep_turn);
/* All of them from that one on, the last one first. */
int job_drop_all(struct citron_job *j, unsigned from, bool keep_turns);
/* A claim's last step may have been taken or not: what it may have left is counted anew by whom it bothers. */
int job_doubt(struct citron_job *j, unsigned i);
/* Verbs that add a claim's notifications, and take them back. */
void citron_add_known(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c);
void citron_add_unknown(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c);
void citron_wake_after(const struct citron_job *j, const struct citron_claim *c);
/* Writes what a hold has into the books of its session, and reads it from there. */
void job_keep(struct citron_job *j);
int job_resume(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline);

static inline uint64_t *citron_kept(const struct seat *seat, const struct hold *h)
{
    return seat->me->claims + (size_t)h->record * DESC_WORDS;
}

/* ---- recover.c ---- */

/* Whether what an internal node or the spillover counts is backed by the living: 0; corrects it if not: CITRON_REPAIRED. 1:
 * somebody is in the middle of a step, ask again. */
#define CITRON_REPAIRED 2
int citron_repair(const struct citron_job *j, struct tree_node n, bool spill);
/* The same of several nodes by one census; what is in the middle of a step stays as it is. */
#define REPAIR_MAX 8
int citron_repair_some(const struct citron_job *j, const struct tree_node *nodes, unsigned n, bool spill);
/* Clears bits that nobody owns in the leaves below a node that this job has for itself. */
int citron_scrub(struct citron_job *j, struct tree_node parent);
/* A reader's place: whether its owner still has it; frees it if not. */
int citron_repair_place(const struct citron_job *j, struct tree_node leaf, unsigned place, uint64_t word);
/* Whether those bits of a leaf may be somebody's. */
int citron_leaf_owned(const struct citron_job *j, struct tree_node leaf, uint64_t bits);
/* Whether this very session holds, with another hold, what is in the way of that claim. */
int citron_own_way(const struct citron_job *j, const struct citron_claim *c);
int citron_peek(const struct seat *seat, uint64_t index, struct lock_view *out);

/* Calls fn for every claim that is not NONE of a living session on that lock. A session that is lost is shut out first; -EAGAIN
 * while that is not certain, or while somebody is changing its books. */
typedef int (*claim_fn)(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c);
int citron_census(const struct citron_job *j, claim_fn fn, void *ctx);

/* ---- funeral.c ---- */

int citron_recover(const struct seat *seat, uint32_t dead, uint32_t epoch);

/* ---- scale.c ---- */

/* Reads the lock's configuration, and makes it if nobody has. */
int job_configure(struct citron_job *j);
/* Says in it that there was a crowd. */
int citron_tell_crowd(const struct citron_job *j);
/* Begins to change it; and completes that if nobody uses what was before: 0, or positive: not yet. */
int citron_retune(const struct seat *seat, uint64_t index, unsigned m, uint64_t wait_ns, uint64_t deadline);
int citron_settle(struct citron_job *j, bool has_spill);
/* T_wait is much too short, as one sees who was late; or much too long, as one sees who has waited it out. */
int citron_wait_longer(struct citron_job *j);
int citron_wait_shorter(struct citron_job *j);
void job_remember(struct citron_job *j);
/* Whether this session has lately met somebody above its leaves, and looks up before it claims some; that it has. */
bool job_is_shy(const struct citron_job *j);
void job_be_shy(const struct citron_job *j);
/* Notes how far a range reaches beyond the tree; and, when such a hold ends, sees whether the tree should grow. */
void citron_note_end(struct citron_job *j, struct citron_batch *b);
int citron_before_release(struct citron_job *j);
int citron_rescale(const struct seat *seat, struct hold *h, uint64_t units, uint64_t deadline);
int citron_layout(const struct seat *seat, uint64_t index, struct lock_layout *out);

/* ---- yield.c ---- */

/* What a waiting job owes to holders that change: JOB_YIELD, or for one that changes itself -EDEADLK, or 0. */
int citron_give_way(struct citron_job *j);
/* Gives back everything and waits until those who change have what they want: JOB_AGAIN. */
int citron_yield(struct citron_job *j);
/* Tells the others that this job holds something and wants more; and that it no longer does. */
int citron_mark(struct citron_job *j);
int citron_unmark(struct citron_job *j);
/* The mark of a record's present use. */
bool citron_is_marked(uint64_t mark, uint64_t serial, uint32_t epoch, unsigned *base);

/* ---- change.c ---- */

/* The units that a claim keeps from others. */
uint64_t claim_start(const struct citron_job *j, const struct citron_claim *c);
uint64_t claim_end(const struct citron_claim *c);
/* Writes all claims as they are now. */
int citron_say_all(struct citron_job *j, enum claim_state state);
/* Runs verbs that may be repeated: what is counted twice is too high. */
int citron_run_surely(struct citron_job *j, struct citron_batch *b);
int citron_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline);
int citron_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline);

/* ---- split.c ---- */

int citron_split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right);
/* A node that several holds of the session have together is given back by the last of them: false, the claim is then its alone.
 * Else this one leaves it to the others. */
bool citron_leave_joint(const struct citron_job *j, unsigned i);
bool citron_is_joint(const struct citron_job *j, unsigned i);
/* Before a range grows: -EDEADLK if another hold of the session has a part of what it wants in a node that both have. */
int citron_reserve_joint(const struct citron_job *j);

/* ---- design.c ---- */

static inline bool citron_errs(const struct citron_job *j, uint32_t mistake)
{
    return MISTAKE(j->seat->space->design->mistakes, mistake);
}

/* ---- what can be set, and what is counted ---- */

/* BLOCKED: so often in vain at one place, then a turn is taken where turns are served in order. CROWD: so many at a node. */
enum citron_knob {
    CITRON_K,
    CITRON_M,
    CITRON_WAIT_NS,
    CITRON_FAST,
    CITRON_CONFIRM,
    CITRON_SCALE_US,
    CITRON_TOKENS,
    CITRON_BLOCKED,
    CITRON_CROWD
};

static inline uint32_t citron_knob(const struct citron_job *j, enum citron_knob knob)
{
    return j->seat->space->knobs.value[knob];
}

/* What CITRON_FAST can be: T_wait is waited out at all internal nodes; not if all bits of the leaves below were had (3.8); not
 * right above leaves, for whoever claims one of them sees in the very word where it makes itself known that the parent is taken. */
enum { FAST_NOT, FAST_PRINTED, FAST_LOW };

struct citron_stats {
    uint64_t acquires, late, aborts, blocked, escalated, repaired, grown, censuses, yielded, rivals, joint, crowded;
};
extern struct citron_stats citron_stats; /* of this process; the simulation is one */

extern const struct design design_citron;

#endif
