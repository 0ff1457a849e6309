/* SPDX-License-Identifier: Apache-2.0 */
/* A turn: the state of one acquire or release, shared by the parts of ALock: queue.c (the queue of one cohort), peterson.c (between
 * the two cohorts) and alock.c (the whole). */
#ifndef PAWL_DESIGNS_ALOCK_TURN_H
#define PAWL_DESIGNS_ALOCK_TURN_H

#include "designs/alock/alock.h"

struct turn {
    const struct seat *seat;
    const struct hold *h;
    enum cohort cohort;
    fab_addr lock, word, desc;
    uint64_t me;
    uint64_t era;     /* of the queue that it is in */
    uint64_t seen;    /* the cohort's word, if `looked` */
    bool looked;      /* it was read by the look before a try, and the next step into the queue expects it */
    bool queued;      /* it may be in the queue, or hold the baton */
    bool first;       /* it is the first of its era, behind a holder of an earlier one */
    unsigned budget;  /* 0: the Peterson lock is not ours (any more) */
    uint64_t count;   /* the lock's `token` as it is during this hold */
    uint64_t token;   /* of the grant */
    uint32_t victims; /* how many times it has been the victim */
};

struct turn alock_turn_of(const struct seat *seat, const struct hold *h);

static inline fab_addr alock_other_word(const struct turn *t)
{
    return t->lock + offsetof(struct alock, cohort) + !t->cohort * sizeof(uint64_t);
}

/* A client of a memory node, to which a packet is the price and not a verb: what can leave together does. */
static inline bool alock_is_far(const struct turn *t)
{
    return t->seat->ep->node == FAB_NODE_ELSEWHERE;
}

/* Our own descriptor: by CPU if it lies on our own node. */
#define OWN(field) offsetof(struct alock_desc, field)
int alock_own_load(const struct turn *t, size_t offset, uint64_t *value);
void alock_own_store(const struct turn *t, size_t offset, uint64_t value);

/* Words of it that no other session reads: a client of a memory node keeps them. */
uint64_t alock_noted(const struct turn *t, size_t offset);
void alock_note(const struct turn *t, size_t offset, uint64_t value);

/* The token of a grant, from the lock's token and both skips. */
void alock_set_token(struct turn *t, const uint64_t sum[3]);
void alock_read_token(struct turn *t);

/* A session that waits at a place that was given to another key, while it holds other locks, breaks the order in which locks are
 * taken. A place is given away only while no hold is queued or has a baton, so one look after joining is enough. -ESTALE: it was.
 */
int alock_confirm_place(const struct turn *t);

/* ---- queue.c ---- */

/* No successor and no predecessor have written to our descriptor so far. */
void alock_clear(const struct turn *t);
/* Joins the queue. 1: with the baton. */
int alock_join(struct turn *t);
/* Waits for the baton. 1: we have it; -ESTALE: queue up again. */
int alock_await_baton(struct turn *t, uint64_t deadline);
/* Drops the queue of our era, ourselves with it. 0: we are out of it; 1: we have the baton. */
int alock_drop_queue(struct turn *t);
/* Hands the baton on, or puts it down. `budget` is the successor's. */
int alock_give_baton(const struct turn *t, unsigned budget);

/* ---- peterson.c ---- */

/* Wins the Peterson lock for the leader of a cohort. */
int alock_win_peterson(struct turn *t, uint64_t deadline);

/* Its first step of a remote session, for a batch: writes that we are the victim, and the verbs that look across to `words`. */
#define ALOCK_ACROSS_VERBS 3u
#define ALOCK_ACROSS_WORDS 5u
void alock_look_across(struct turn *t, uint64_t *words, struct fab_op *ops);
/* Whether that won it. */
bool alock_won(struct turn *t, const uint64_t *words);

#endif
