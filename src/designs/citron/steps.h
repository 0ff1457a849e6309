/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of Citron offer each other, file by file, in the order of an acquire. job.h has the job itself. */
#ifndef PAWL_DESIGNS_CITRON_STEPS_H
#define PAWL_DESIGNS_CITRON_STEPS_H

#include "designs/citron/job.h"

/* How a step ends if it does not end with 0 or an error. */
#define JOB_AGAIN 1        /* the job has nothing any more: plan anew */
#define JOB_WAITED 2       /* look again */
#define JOB_YIELD (-EBUSY) /* a holder of a part of the range waits for the rest: give way */

/* ---- acquire.c ---- */

/* Gets all claims of a job beyond its base. */
int job_acquire(struct citron_job *j);

/* ---- look.c: phases (a) and (b) ---- */

#define LOOK_MAX 40 /* ancestors that one batch reads */

struct look {
    unsigned n;
    struct tree_node nodes[LOOK_MAX];
    uint64_t words[LOOK_MAX];
};

/* Knowledge of the leaves of a group, by claim. */
struct citron_leaves {
    bool below;               /* readers may be in one of them */
    bool looked, checked;     /* read before claiming; after */
    bool flagged[CLAIMS_MAX]; /* the parent says already that there are readers */
    uint64_t bits[CLAIMS_MAX];
    uint64_t parents[CLAIMS_MAX]; /* for readers: read after claiming */
    uint64_t places[CLAIMS_MAX][LEAF_READERS];
};

/* Before the first look of a plan. */
void look_start(struct citron_job *j);
/* For the session's next job on this lock: the configuration and how far up to look; and what the latest job knew of the latter. */
void job_remember(struct citron_job *j);
void look_recall(struct citron_job *j, uint64_t hint);
/* (a), lines 9 to 11: turns at all internal nodes beyond the base, but for the last one, which look_up asks for. *at becomes the
 * base if turns were needed. */
int look_take_turns(struct citron_job *j, unsigned *at);
/* (b), lines 12 to 19, for claims [from, to): 0 when no ancestor is taken. */
int look_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves);

/* The ancestors of a group of claims, each once; tall ones only if one of them may be taken. READs of them. The lowest that is
 * taken; -1: none. */
void look_list(const struct citron_job *j, unsigned from, unsigned to, struct look *l);
void look_add(const struct citron_job *j, struct citron_batch *b, struct look *l);
int look_find(const struct citron_job *j, const struct look *l);
/* How far up other sessions have claims, as the head counts them; whether ancestors should have been read and were not. */
enum look_reach look_reach(const struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS]);
bool look_misses_tall(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS]);
/* Lines 15 and 33: whether the configuration is still the one of the plan. T_wait may be another one. */
bool look_same_config(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS]);
/* This session has met a claim above its leaves: for a while it looks before it claims leaves. */
void look_skip_blind(const struct citron_job *j);
/* Tall nodes were read in vain for long. */
void look_doubt_tall(struct citron_job *j);

/* ---- claim.c: phases (c) and (d) ---- */

/* The second fast path as printed: its outcome (leaf.c). */
struct citron_whole {
    bool tried, had;
    bool took[4];
    unsigned ops[4], readers;
    uint64_t places[4 * LEAF_READERS];
};

/* Results of a batch of claims. */
struct claimed {
    uint64_t at_ns;               /* t2, and t0: when the batch was complete */
    struct look look;             /* at the ancestors, after they were notified */
    uint64_t old[CLAIMS_MAX];     /* the node, before the verb that claims it */
    uint64_t readers[CLAIMS_MAX]; /* the word beside the node, after that */
    struct tree_node parent;      /* of a leaf: it is taken if parent_word is not 0 */
    uint64_t parent_word;
    struct citron_leaves leaves;
    struct citron_whole whole;
};

void claim_init(struct claimed *c);
/* The end of the group of claims from that one on which go through the phases together. */
unsigned claim_group_end(const struct citron_job *j, unsigned from);
/* (c), and lines 29 to 31 of (d), in one batch. */
int claim_nodes(struct citron_job *j, unsigned from, unsigned to, struct claimed *c);
/* After that has failed: nothing is left but turns. Returns how to go on. */
int claim_undo(struct citron_job *j, unsigned from, unsigned to, struct claimed *c, int rc);
/* (d), lines 32 and 33: steps back if the claim came too late, or for another configuration. */
int claim_check(struct citron_job *j, unsigned from, unsigned to, struct claimed *c);
/* (d), lines 34 to 36: waits for the claims below, and in leaves. *to becomes less if only the first claims are had. */
int claim_settle(struct citron_job *j, unsigned from, unsigned *to, struct claimed *c);

/* Of a leaf: the verb that takes its units; the READs behind it; what the verb found; a reader in the way, or -1. */
unsigned claim_leaf(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *l);
void claim_leaf_check(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l);
void claim_leaf_see(struct citron_job *j, unsigned i, uint64_t old, struct citron_leaves *l);
int claim_find_reader(const struct citron_job *j, const struct citron_claim *c, const uint64_t places[LEAF_READERS]);

/* ---- token.c ---- */

/* Adds a READ of the lock's head and the verbs that draw a token, behind those after which the conflict is over; and takes what
 * they found. Without tokens, as in the paper, nothing is drawn. */
void token_draw(struct citron_job *j, struct citron_batch *b);
void token_drew(struct citron_job *j, const struct citron_batch *b);
/* Makes a token of what was drawn last, usually without a round trip. */
int token_settle(struct citron_job *j);
int token_renew(struct citron_job *j);
/* Runs a batch and takes a token behind it; repeats what `fill` adds until it is done. */
int token_after(struct citron_job *j, void (*fill)(struct citron_job *, struct citron_batch *, void *), void *ctx);
/* The token of the latest grant that took a block: for locks that are taken as a whole the latest token. Where ranges are locked,
 * other tokens may be a few above it. */
int token_newest(const struct citron_job *j, uint64_t *token);

/* ---- wait.c ---- */

/* Waits until the condition no longer holds: 0, and the word then; or, when that has taken too long, 1. */
int job_wait(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen);
/* The same for bits of a leaf: they may belong to another client each time. */
int job_wait_bits(struct citron_job *j, struct tree_node leaf, uint64_t busy, uint64_t *seen);
/* The same for a word of an internal node; after a while a census tells whether its counts have owners. */
int job_wait_at(struct citron_job *j, struct tree_node n, bool spill, const struct fab_cond *cond, uint64_t *seen);
/* Waits until no more than `ahead` come before the claim's turn (line 11); `seen` is the node's word, before and after. */
int wait_turn(struct citron_job *j, unsigned i, uint64_t *seen, uint32_t ahead);
/* A few polls over a fabric with short pauses: 0 if the condition no longer holds, or 1. asked_ns: when the latest was posted. */
int wait_briefly(struct citron_job *j, const struct fab_cond *cond, uint64_t *seen, uint64_t *asked_ns);
/* Says that claims [from, to) have nothing but their turns. */
int wait_step_back(struct citron_job *j, unsigned from, unsigned to);
/* Waits, without a claim on anything: for an ancestor that is taken; for bits of a leaf; until a word counts fewer. */
int wait_ancestor(struct citron_job *j, unsigned from, unsigned to, struct tree_node above, uint64_t word);
int wait_leaf(struct citron_job *j, unsigned i, uint64_t bits);
int wait_room(struct citron_job *j, unsigned from, unsigned to, const struct crowd_word *full);

static inline void wait_over(struct citron_job *j) /* the claim was had */
{
    j->wait.patience_ns = j->policy.patience_ns;
    j->wait.blocked = j->wait.passed = 0;
}
static inline bool wait_blocked(struct citron_job *j) /* bits were taken by another client; true: too often in a row */
{
    return ++j->wait.blocked > j->policy.blocked && j->deadline != DEADLINE_TRY;
}
static inline bool wait_place_taken(struct citron_job *j) /* a place was; true: all may be taken */
{
    return ++j->wait.places_tried > LEAF_READERS;
}
static inline void wait_unannounced(struct citron_job *j)
{
    j->wait.unannounced = true;
}
static inline void wait_met_crowd(struct citron_job *j)
{
    j->wait.crowded = true;
}

/* ---- leaf.c ---- */

/* Waits until the claim of a batch on a leaf is complete. JOB_WAITED: it was given back. */
int leaf_settle(struct citron_job *j, unsigned i, struct citron_leaves *l);
/* Changes a reader's place from one word to another; exactly once, whatever breaks. 1: it was not the first. */
int leaf_swap_place(const struct citron_job *j, const struct citron_claim *c, uint64_t from, uint64_t to);
/* Takes a free place for a claim that has none. */
int leaf_take_place(struct citron_job *j, struct citron_claim *c);
/* All bits of four leaves at once (3.8): adds the verbs, sees what they found, gives back the bits if not all were had. */
void leaf_whole_add(struct citron_job *j, struct citron_batch *b, unsigned i, struct citron_whole *w);
void leaf_whole_see(const struct citron_batch *b, struct citron_whole *w);
int leaf_whole_leave(struct citron_job *j, unsigned i, const struct citron_whole *w);

/* ---- release.c ---- */

/* Takes a claim back. `keep_turn`: its ticket stays, if it has one and is not shared. */
int job_drop(struct citron_job *j, unsigned i, bool keep_turn);
/* All claims from that one on, the last one first. */
static inline int job_drop_all(struct citron_job *j, unsigned from, bool keep_turns)
{
    int rc = 0;
    for (unsigned i = j->claims.n; i-- > from && !rc;)
        if (j->claims.at[i].state == CLAIM_HELD || j->claims.at[i].state == CLAIM_TURN)
            rc = job_drop(j, i, keep_turns);
    return rc;
}
/* The outcome of a claim's last step, or of those of [from, to), is unknown: they have nothing any more, but turns. Counts that may
 * be too high by that are corrected by the client that waits for them. */
int job_doubt(struct citron_job *j, unsigned i);
int job_doubt_all(struct citron_job *j, unsigned from, unsigned to);
/* From now on one node for the whole range (lines 23 and 24), which contains this one; another configuration. JOB_AGAIN. */
int job_escalate(struct citron_job *j, struct tree_node to);
int job_start_anew(struct citron_job *j, uint64_t config);
/* Wakes the clients that may wait for a claim that has gone. */
void job_wake_after(const struct citron_job *j, const struct citron_claim *c);

/* ---- recover.c ---- */

/* Whether an internal node or the spillover counts no more than live sessions claim: 0; corrects it if not: CITRON_REPAIRED. 1: a
 * claim is in the middle of a step, ask again. */
#define CITRON_REPAIRED 2
int citron_repair(const struct citron_job *j, struct tree_node n, bool spill);
/* The same for several nodes by one census; a node with a claim in the middle of a step stays as it is. */
#define REPAIR_MAX 8
int citron_repair_some(const struct citron_job *j, const struct tree_node *nodes, unsigned n, bool spill);
/* Clears bits without an owner in the leaves below a node that this job has exclusively. */
int citron_scrub(struct citron_job *j, struct tree_node parent);
/* Frees a reader's place if its owner does not claim it. */
int citron_repair_place(const struct citron_job *j, struct tree_node leaf, unsigned place, uint64_t word);
/* Whether a live session may own those bits of a leaf. */
int citron_leaf_owned(const struct citron_job *j, struct tree_node leaf, uint64_t bits);
/* Whether another hold of this session is in the way of the claim. */
int citron_own_way(const struct citron_job *j, const struct citron_claim *c);

/* Calls fn for every claim that is not NONE of a live session on that lock. A session that is lost is shut out first; -EAGAIN while
 * that is not certain, or while a session changes its books. */
typedef int (*claim_fn)(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c);
int citron_census(const struct citron_job *j, claim_fn fn, void *ctx);

/* ---- scale.c ---- */

/* The configuration of a lock that is unused; round_trip_ns as measured. */
int config_make(struct citron_job *j, uint64_t round_trip_ns);
/* Says in the configuration that there was a crowd. */
int config_tell_crowd(const struct citron_job *j);
/* T_wait is much too short for a job that was late; or much too long for a job that has waited it out. One that was set stays. */
int config_wait_longer(struct citron_job *j);
int config_wait_shorter(struct citron_job *j);
/* When a hold that reaches beyond the tree ends: lets the tree grow if it should. */
int scale_before_release(struct citron_job *j);

/* ---- yield.c ---- */

/* Whether a waiting job must give way to holders that change: JOB_YIELD, or -EDEADLK for a job that changes itself, or 0. */
int citron_give_way(struct citron_job *j);
/* Gives back everything and waits until the holders that change have what they want: JOB_AGAIN. */
int citron_yield(struct citron_job *j);
/* Tells other sessions that this job holds something and waits for more; and that it no longer does. */
int citron_mark(struct citron_job *j);
int citron_unmark(struct citron_job *j);
/* Whether that is the mark of a record's present use. */
bool citron_is_marked(uint64_t mark, uint64_t serial, uint32_t epoch, unsigned *base);

/* ---- split.c ---- */

/* Leaves a node that several holds of the session have together: true. False: this was the last of them, and gives it back. */
bool citron_leave_joint(const struct citron_job *j, unsigned i);
bool citron_is_joint(const struct citron_job *j, unsigned i);
/* Before a range grows: -EDEADLK if another hold of the session has a part of it in a node that both have. */
int citron_reserve_joint(const struct citron_job *j);

#endif
