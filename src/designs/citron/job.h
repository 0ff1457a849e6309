/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* A job: one operation under way. It consists of parts, and one file writes each of them:
 *
 *     part       what                                                    written by
 *     policy     the knobs, and what depends on where the memory is      job_start (plan.c), once
 *     plan       the configuration, the range, and how to get it         plan.c
 *     claims     the list of claims                                      plan.c; of holds that change also change.c and split.c
 *       state      how far a claim is                                    batch.c, with what it publishes
 *       ticket     of an internal node                                   look.c
 *       place      of a reader in a leaf; also `took`                    claim.c
 *       marked     that the hold waits for more                          yield.c
 *     look       phases (a) and (b): turns, and how far up to look       look.c
 *     token      the fencing token                                       token.c
 *     wait       how long, and how often in vain, the job has waited     wait.c (and its inline functions in steps.h)
 *     in_flight  counters that the job is about to add to                batch.c
 */
/* clang-format on */
#ifndef PAWL_DESIGNS_CITRON_JOB_H
#define PAWL_DESIGNS_CITRON_JOB_H

#include "designs/citron/citron.h"
#include "designs/citron/mistakes.h"
#include "designs/citron/session.h"

#define JOB_PATIENCE_NS (200 * NS_PER_US) /* at first; it doubles each time that a wait was in vain, up to the space's check_ns */
#define JOB_PATIENCE_FAR_NS NS_PER_MS     /* over a fabric a census takes about that long, and leases are longer */

struct citron_policy {
    unsigned k, m, wait_ns, fast, confirm, scale_us, tokens, blocked, crowd; /* the knobs (design.c) */
    uint64_t patience_ns;
};

struct citron_plan {
    uint64_t config_word;
    struct citron_config config;
    bool shared;
    uint64_t start, end; /* the range in the end */
    bool upgrades;       /* the new claims are for units that the hold reads already: its own readers do not count */
    bool exact;          /* ranges of this session itself were in the way: cover no unit beside the range */
    bool escalated;      /* one internal node for the whole range, where turns are served in order */
    struct tree_node escalate_to;
    bool scrub; /* bits of a leaf stayed set for long: take its parent, and clear the bits that have no owner */
    struct tree_node scrub_at;
};

struct citron_claims {
    unsigned n;
    unsigned base;  /* so many are held already, and stay whatever becomes of the others */
    bool published; /* the record says that this hold may have something */
    bool marked;    /* other sessions know that the hold waits for more than it has (yield.c) */
    struct citron_claim at[CLAIMS_MAX];
};

#define LOOK_TALL_IDLE_MAX 1024

struct citron_look {
    int pending;        /* the claim whose turn is asked for together with the look; -1: none */
    uint64_t looked_ns; /* t1: when the latest look at the ancestors was posted */
    uint64_t limit_ns;  /* T_wait at that time: the claim must be known within it */
    unsigned tall_idle; /* how often in a row, in all acquisitions, tall nodes were read for nothing */
    enum look_reach {
        LOOK_PARENTS,
        LOOK_TALL, /* a tall node is claimed: read these ancestors, too */
        LOOK_HIGH, /* a high node is claimed: read all ancestors */
    } reach;
    bool blind;  /* the claim is made without a look */
    bool peeked; /* only the parent was looked at, or nothing: the head tells after the claim whether a tall node is claimed */
};

#define TOKEN_PARTS 2 /* a hold that lies in up to so many parts has tokens of these (token.c) */

struct citron_token {
    uint64_t value;
    unsigned parts;                   /* in which the hold lies; 0: none, or many */
    unsigned op;                      /* the verb that drew */
    fab_addr first;                   /* the words of the parts, */
    uint64_t words[TOKEN_PARTS];      /* and what they were */
    uint64_t block;                   /* that was taken, if one was */
    uint64_t head[CITRON_HEAD_WORDS]; /* of the lock, read before the token was drawn */
};

struct citron_wait {
    uint32_t ahead;        /* waiting for a turn: how many come first */
    uint64_t moves;        /* bits of the polled word whose changes show that other clients make progress */
    uint64_t poll_ns;      /* how long the latest READ of a poll took; 0: none yet */
    uint64_t patience_ns;  /* until the next census */
    unsigned blocked;      /* how often in a row other clients were quicker to take bits of the same leaf, */
    unsigned passed;       /* and how often they came first at an ancestor */
    unsigned places_tried; /* of a leaf's readers */
    bool unannounced;      /* has waited for bits of a leaf for long, or in a crowd: from now on it waits without notifications */
    bool crowded;          /* has met a queue that was too long: from now on it looks before it draws a ticket */
    bool tried;            /* a job that does not wait has looked whether the claim in its way has an owner */
};

struct citron_in_flight {
    unsigned n;
    uint32_t epoch;
    bool look_first; /* there was a crowd: look before adding */
    uint16_t *buckets[2 * CLAIMS_MAX];
};

struct citron_job {
    const struct seat *seat;
    struct hold *h;
    uint64_t index;
    fab_addr lock;
    unsigned height_max; /* of the array */
    uint64_t deadline;
    bool near;        /* the lock is in shared memory; else behind a fabric. Decided once, by job_start */
    uint64_t trip_ns; /* how long the latest batch took over a fabric */
    struct citron_policy policy;
    struct citron_plan plan;
    struct citron_claims claims;
    struct citron_look look;
    struct citron_token token;
    struct citron_wait wait;
    struct citron_in_flight in_flight;
};

static inline bool citron_errs(const struct citron_job *j, uint32_t mistake)
{
    return MISTAKE(j->seat->space->design->mistakes, mistake);
}

/* The counters of struct citron_stats are for the simulation: the product counts nothing. On shared memory they would be one
 * contended line. */
static inline void job_count(const struct citron_job *j, uint64_t *counter)
{
    if (PAWL_WORKBENCH && !j->near)
        ++*counter;
}

/* Whether a claim that has notified its ancestors but has no bits yet may wait for them in that state. */
static inline bool job_waits_announced(const struct citron_job *j)
{
    return !j->plan.shared && !j->wait.unannounced && !j->plan.upgrades && !j->claims.base && j->deadline != DEADLINE_TRY;
}

/* ---- addresses ---- */

static inline fab_addr job_header(const struct citron_job *j, size_t offset)
{
    return j->lock + offset;
}
static inline fab_addr job_node(const struct citron_job *j, struct tree_node n)
{
    return j->lock + sizeof(struct citron_lock) + (tree_index(n, j->height_max) - 1) * sizeof(uint64_t);
}
static inline fab_addr job_readers(const struct citron_job *j, struct tree_node n) /* of an internal node */
{
    debug_assert(n.height);
    return j->lock + readers_offset(j->height_max) + (tree_index(n, j->height_max) - 1) * sizeof(uint64_t);
}
static inline fab_addr job_stripes(const struct citron_job *j, struct tree_node n) /* of a high node */
{
    debug_assert(node_is_high(n));
    return j->lock + stripes_offset(j->height_max) + (tree_index(n, j->height_max) - 1) * HIGH_STRIPES * sizeof(uint64_t);
}
static inline fab_addr job_part(const struct citron_job *j, uint64_t number)
{
    return j->lock + parts_offset(j->height_max) + number * sizeof(uint64_t);
}
static inline fab_addr job_places(const struct citron_job *j, struct tree_node leaf)
{
    return j->lock + places_offset(j->height_max) + leaf.number * LEAF_READERS_BYTES;
}
static inline fab_addr job_claim_node(const struct citron_job *j, const struct citron_claim *c)
{
    return c->spill ? job_header(j, offsetof(struct citron_lock, spill)) : job_node(j, c->node);
}
static inline fab_addr job_claim_readers(const struct citron_job *j, const struct citron_claim *c)
{
    return c->spill ? job_header(j, offsetof(struct citron_lock, spill_readers)) : job_readers(j, c->node);
}
static inline fab_addr citron_desc_addr(const struct space *s, uint32_t slot, uint32_t record)
{
    return s->descs + ((uint64_t)slot * s->record_count + record) * s->desc_size;
}
static inline fab_addr job_desc(const struct citron_job *j, unsigned claim)
{
    return citron_desc_addr(j->seat->space, j->seat->me->slot, j->h->record) + claim * sizeof(uint64_t);
}

/* The place of a reader in a leaf, and the word that names it. */
static inline fab_addr citron_place_addr(const struct citron_job *j, const struct citron_claim *c)
{
    return job_places(j, c->node) + c->place * sizeof(uint64_t);
}
static inline uint64_t citron_place_word(const struct citron_job *j, const struct citron_claim *c)
{
    return reader_word(j->seat->me->slot, j->seat->me->epoch, j->h->record, j->h->serial, c->ticket);
}

/* Where `above` counts the notifications of this session, and how. */
struct citron_known {
    fab_addr addr;
    uint64_t come, gone, tops;
};

static inline struct citron_known job_known(const struct citron_job *j, struct tree_node above, bool shared)
{
    if (!node_is_high(above) && !shared)
        return (struct citron_known){job_node(j, above), UINT64_C(1) << NODE_DMAX, UINT64_C(1) << NODE_DCNT, NODE_TOPS};
    fab_addr addr =
        !node_is_high(above) ? job_readers(j, above) : job_stripes(j, above) + j->seat->me->slot % HIGH_STRIPES * sizeof(uint64_t);
    if (shared)
        return (struct citron_known){addr, UINT64_C(1) << READERS_DMAX, UINT64_C(1) << READERS_DCNT, READERS_TOPS};
    return (struct citron_known){addr, UINT64_C(1) << READERS_MAX, UINT64_C(1) << READERS_CNT, READERS_TOPS};
}

/* The ancestors that a claim notifies, lowest first; returns how many. */
static inline unsigned claim_notified(const struct citron_claim *c, struct tree_node out[TREE_HEIGHT_MAX])
{
    uint8_t heights[TREE_HEIGHT_MAX];
    unsigned n = c->spill ? 0 : tree_notified(c->node.height, c->m, c->top, heights);
    for (unsigned i = 0; i < n; i++)
        out[i] = tree_above(c->node, heights[i]);
    return n;
}

/* ---- plan.c: how a job begins, its plan, and what stays of it in the session's books ---- */

void job_start(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline);
/* Reads the lock's configuration, and makes it if the lock is unused. */
int job_configure(struct citron_job *j);
static inline struct citron_hint *job_hint(const struct citron_job *j)
{
    return &citron_session(j->seat)->hints[j->index % CITRON_HINTS];
}
/* Writes the claims of a hold into the books of its session; begins a job with the claims that are there. */
void job_keep(struct citron_job *j);
void job_recall(struct citron_job *j);
int job_resume(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline);

static inline uint64_t *citron_kept(const struct seat *seat, const struct hold *h)
{
    return seat->me->descs + (size_t)h->record * DESC_WORDS;
}
/* Algorithm 1 and step 1 of Algorithm 2: the claims of the whole range. */
void plan_range(struct citron_job *j);
/* Claims beside those held: for a larger range; for the same range alone; one node for the whole range. */
void plan_growth(struct citron_job *j);
void plan_upgrade(struct citron_job *j);
void plan_whole(struct citron_job *j);

/* Findings of the job's attempts. */
void plan_config(struct citron_job *j, uint64_t word);
/* Whether only T_wait is different in another configuration; then the plan goes on with that one (3.5.5). */
bool plan_only_wait_changed(struct citron_job *j, uint64_t word);
void plan_undo_config(struct citron_job *j, const struct citron_plan *before);
void plan_anew(struct citron_job *j, uint64_t config);
void plan_reshape(struct citron_job *j, uint64_t start, uint64_t end);
void plan_exclusive(struct citron_job *j);
void plan_exactly(struct citron_job *j);
void plan_scrub(struct citron_job *j, bool scrub, struct tree_node at);
void plan_one_node(struct citron_job *j, struct tree_node at); /* one that contains this one and the whole range */

/* Keeps the claims that are held, and their order. */
void claims_keep_held(struct citron_job *j);
/* The units that a claim keeps from other sessions. */
uint64_t claim_start(const struct citron_job *j, const struct citron_claim *c);
uint64_t claim_end(const struct citron_claim *c);

/* ---- batch.c: batches of verbs ---- */

/* A batch is large, and fibers have small stacks: a function that has one on its stack returns before the fiber waits. */
#define OWN_FRAME __attribute__((noinline))

struct citron_batch {
    unsigned n, said;
    struct fab_op ops[FAB_BATCH_MAX];
    uint64_t values[FAB_BATCH_MAX]; /* what WRITEs write, and what READs of one word find */
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

/* A READ of the lock's head. */
void batch_head(const struct citron_job *j, struct citron_batch *b, uint64_t head[CITRON_HEAD_WORDS]);
/* The verb by which the lock's head counts a claim on a tall node, or no longer does. */
void batch_tall(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come);
/* The verbs that add a claim's notifications (line 31), or take them back (Algorithm 3, line 9). */
void batch_notify(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come);
/* The same for several claims: one verb for each ancestor that they notify, however many of them do. */
struct tally {
    unsigned n;
    unsigned first_op; /* the number of the first verb */
    struct tree_node nodes[FAB_BATCH_MAX];
    struct citron_known known[FAB_BATCH_MAX];
    uint64_t counts[FAB_BATCH_MAX];
};
void tally_add(const struct citron_job *j, struct tally *t, const struct citron_claim *c);
void batch_tally(struct citron_batch *b, struct tally *t, bool come);
/* A WRITE of the state of claims [from, to); the first time also of the record. Intent before effect (I5). */
void job_say(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, enum claim_state state);
/* The job knows more of a claim than it has published. */
void job_know(struct citron_job *j, unsigned i, enum claim_state state);

int job_run(struct citron_job *j, struct citron_batch *b);
/* Runs verbs that may be repeated, until they are done: counts may become too high by that. */
int job_run_surely(struct citron_job *j, struct citron_batch *b);
/* Says the state of claims [from, to) until it is said; of all claims, and the record. After a broken connection job_say_surely
 * says all claims again, job_say_range only these. */
int job_say_range(struct citron_job *j, unsigned from, unsigned to, enum claim_state state);
int job_say_surely(struct citron_job *j, unsigned from, unsigned to, enum claim_state state);
int job_say_all(struct citron_job *j, enum claim_state state);
/* Wakes clients that may sleep on that word. */
void job_wake(const struct citron_job *j, fab_addr addr);

/* ---- batch.c: no counter overflows ---- */

/* Before claims [from, to) look for the last time before they are counted; draws: and that claim draws a ticket, -1: none. Waits
 * while the session has too many in flight, which depends on no other session. */
int flight_begin(struct citron_job *j, unsigned from, unsigned to, int draws);
/* After the job knows what its verbs have found, and has told of crowds. */
void flight_end(struct citron_job *j);
/* Tells the session and the lock of a crowd. */
int flight_tell_crowd(struct citron_job *j);

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
/* Whether claims may be added to the words as read: -PAWL_ELIMIT, or `full` is a word to which no client may add; else null. */
int crowd_see(struct citron_job *j, const struct crowd *w, const struct crowd_word **full);
/* Tells of a crowd that a batch of claims has found. */
int crowd_found(struct citron_job *j, const struct citron_batch *b, unsigned from, unsigned to);
/* The same if the outcome of the batch is unknown. */
int crowd_doubt(struct citron_job *j, unsigned from, unsigned to, int draws);
/* Runs verbs that count claim i of a hold once more, until they are done: counts may become too high by that. */
int crowd_count_surely(struct citron_job *j, unsigned i, const struct citron_claim *as, struct citron_batch *b);

#endif
