/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a hold in two (not in the paper). Each half gets the claims that it needs. A leaf that both need is claimed twice, by the
 * bits of each, and a reader of an internal node is counted twice. A writer's internal node has one turn, which cannot be counted
 * twice: both halves have the node, and the half that goes last gives it back. Both are holds of one session, so the session's
 * books tell which is the last; if the session dies, both go. */
#include "designs/citron/steps.h"

#include <errno.h>
#include <pthread.h>

/* ---- nodes that several holds of a session have together ---- */

static pthread_mutex_t joint_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the session's books; never held while waiting */

static bool same_turn(const struct citron_job *j, uint64_t word, const struct citron_claim *c)
{
    struct citron_claim other = claim_of(word, j->height_max);
    return other.state == CLAIM_HELD && other.joint && !other.shared && other.ticket == c->ticket && other.spill == c->spill &&
           (c->spill || tree_same(other.node, c->node));
}

/* The session's word for this claim in that record, or null. */
static uint64_t *joint_word(const struct citron_job *j, uint32_t record, const struct citron_claim *c)
{
    uint64_t *words = j->seat->me->descs + (size_t)record * DESC_WORDS;
    for (unsigned i = 0; i < CLAIMS_MAX; i++)
        if (same_turn(j, __atomic_load_n(&words[i], __ATOMIC_ACQUIRE), c))
            return &words[i];
    return NULL;
}

/* Whether the hold of that record has the node, too. */
static bool has_joint(const struct citron_job *j, uint32_t record, const struct citron_claim *c)
{
    uint64_t word = __atomic_load_n(&j->seat->me->shadow[record], __ATOMIC_ACQUIRE);
    enum record_state state = record_state(word);
    return record != j->h->record && state != RECORD_FREE && state != RECORD_SPARE && state != RECORD_WAIT &&
           record_index(word) == j->index && joint_word(j, record, c);
}

static bool others_have(const struct citron_job *j, const struct citron_claim *c)
{
    for (uint32_t record = 0; record < j->seat->space->record_count; record++)
        if (has_joint(j, record, c))
            return true;
    return false;
}

bool citron_leave_joint(const struct citron_job *j, unsigned i)
{
    struct citron_claim leaving = j->claims.at[i];
    pthread_mutex_lock(&joint_lock);
    uint64_t *own = joint_word(j, j->h->record, &leaving);
    bool others = !own || others_have(j, &leaving); /* without a word of its own it has left already */
    leaving.state = CLAIM_FLUX;
    if (own)
        __atomic_store_n(own, claim_word(&leaving, j->height_max), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&joint_lock);
    return others;
}

bool citron_is_joint(const struct citron_job *j, unsigned i)
{
    pthread_mutex_lock(&joint_lock);
    bool others = others_have(j, &j->claims.at[i]);
    pthread_mutex_unlock(&joint_lock);
    return others;
}

/* A part of the larger range may lie in a node that this hold has together with other holds: then none of these may have that part.
 * Of two holds that grow into the same part the second one finds the first one's new range in the books. */
int citron_reserve_joint(const struct citron_job *j)
{
    struct hold larger = *j->h;
    int rc = 0;
    larger.start = j->plan.start;
    larger.end = j->plan.end;
    pthread_mutex_lock(&joint_lock);
    for (uint32_t record = 0; record < j->seat->space->record_count && !rc; record++) {
        const struct record_range *range = &j->seat->me->ranges[record];
        for (unsigned i = 0; i < j->claims.n && !rc; i++)
            if (j->claims.at[i].joint && has_joint(j, record, &j->claims.at[i]) &&
                ranges_overlap(j->plan.start, j->plan.end, range->start, range->end))
                rc = -EDEADLK;
    }
    if (!rc)
        hold_note_range(j->seat, &larger);
    pthread_mutex_unlock(&joint_lock);
    return rc;
}

/* ---- cutting ---- */

static bool needed(const struct citron_job *j, const struct citron_claim *c, uint64_t start, uint64_t end)
{
    return claim_start(j, c) < end && claim_end(c) > start;
}

/* The right half's claims. A claim that both halves need becomes two; a writer's internal node belongs to both. */
static void deal(const struct citron_job *left, struct citron_job *right, uint64_t at, const struct hold *h)
{
    for (unsigned i = 0; i < left->claims.n; i++) {
        struct citron_claim c = left->claims.at[i];
        if (!needed(left, &c, at, h->end))
            continue;
        c.cut = needed(left, &c, h->start, at);
        c.joint |= c.cut && claim_internal(&c) && !c.shared;
        if (c.cut && !claim_internal(&c))
            c.ticket = bounds_of(c.node, at, claim_end(&c));
        assert(right->claims.n < CLAIMS_MAX);
        right->claims.at[right->claims.n++] = c;
    }
}

/* Claims that have become two are counted once more. */
static int count_cuts(struct citron_job *right)
{
    int rc = 0;
    for (unsigned i = 0; i < right->claims.n && !rc; i++) {
        struct citron_claim *c = &right->claims.at[i];
        struct citron_batch b;
        if (!c->cut)
            continue;
        batch_start(&b);
        if (claim_internal(c) && c->shared)
            batch_mfaa(&b, job_claim_readers(right, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
        else if (c->shared)
            rc = leaf_take_place(right, c);
        batch_tall(right, &b, c, true);
        batch_notify(right, &b, c, true);
        if (!rc)
            rc = crowd_count_surely(right, i, c, &b);
    }
    return rc;
}

/* Readers' places name the hold, so they are renamed. */
static int rename_places(struct citron_job *left, struct citron_job *right)
{
    for (unsigned i = 0; i < right->claims.n; i++) {
        struct citron_claim *c = &right->claims.at[i];
        if (claim_internal(c) || !c->shared || c->cut)
            continue;
        int rc = leaf_swap_place(left, c, citron_place_word(left, c), citron_place_word(right, c));
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The left half's claims. The bits of a leaf that was cut stay: some of them belong to the right half now. */
static int keep_left(struct citron_job *l, uint64_t start, uint64_t at, uint64_t right_end)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < l->claims.n; i++)
        if (needed(l, &l->claims.at[i], start, at))
            l->claims.at[kept++] = l->claims.at[i];
    l->claims.n = kept;
    for (unsigned i = 0; i < l->claims.n; i++) {
        struct citron_claim *c = &l->claims.at[i], was = *c;
        c->joint |= claim_internal(c) && !c->shared && needed(l, c, at, right_end);
        if (claim_internal(c) || claim_end(c) <= at)
            continue;
        c->ticket = bounds_of(c->node, claim_start(l, c), at);
        int rc = c->shared ? leaf_swap_place(l, c, citron_place_word(l, &was), citron_place_word(l, c)) : 0;
        if (rc < 0)
            return rc;
    }
    return job_say_all(l, CLAIM_HELD);
}

ONCE int citron_split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right)
{
    struct citron_job l, r;
    assert(h->start < at && at < h->end);
    int rc = job_resume(&l, seat, h, DEADLINE_NEVER);
    if (rc)
        return rc;
    job_start(&r, seat, right, DEADLINE_NEVER);
    plan_config(&r, l.plan.config_word);
    deal(&l, &r, at, h);
    rc = job_say_all(&r, CLAIM_FLUX); /* intent before effect (I5) */
    if (!rc)
        rc = count_cuts(&r);
    if (rc == -PAWL_ELIMIT && r.claims.published) { /* no place left for a reader: counts for the right half have no owner */
        int back = job_say_all(&r, CLAIM_WAIT);
        return back ? back : rc;
    }
    if (!rc)
        rc = job_say_all(&r, CLAIM_HELD);
    if (!rc)
        rc = rename_places(&l, &r);
    if (!rc)
        rc = keep_left(&l, h->start, at, h->end);
    if (rc)
        return rc == -FAB_EFENCED || !seat_lives(seat) ? -PAWL_ELOST : rc;
    for (unsigned i = 0; i < r.claims.n && !r.near; i++)
        citron_stats.joint += r.claims.at[i].joint;
    h->end = at;
    job_keep(&l);
    job_keep(&r);
    return 0;
}
