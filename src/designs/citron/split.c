/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a hold in two (not in the paper). Claims are dealt to the halves. A leaf that both need is claimed twice, by the bits of
 * each, and a reader of an internal node is counted twice. A writer's internal node has one turn, which cannot be: both halves have
 * it, and the one that goes last gives it back. They are holds of one session, so that is settled on its own books; if the session
 * dies, both go. */
#include "designs/citron/citron.h"

#include <errno.h>
#include <pthread.h>

/* ---- nodes that several holds of a session have together ---- */

static pthread_mutex_t joint_lock = PTHREAD_MUTEX_INITIALIZER; /* held for a look at the session's own books, never while waiting */

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

/* Whether that other hold has it, too. */
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
    struct citron_claim leaving = j->claims[i];
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
    bool others = others_have(j, &j->claims[i]);
    pthread_mutex_unlock(&joint_lock);
    return others;
}

/* Part of a range that grows may lie in a node that this hold has already, together with others: then those must not have it. Two
 * that grow into the same part are told apart by the books, which have the new range from here on. */
int citron_reserve_joint(const struct citron_job *j)
{
    struct hold larger = *j->h;
    int rc = 0;
    larger.start = j->start;
    larger.end = j->end;
    pthread_mutex_lock(&joint_lock);
    for (uint32_t record = 0; record < j->seat->space->record_count && !rc; record++) {
        const struct record_range *range = &j->seat->me->ranges[record];
        for (unsigned i = 0; i < j->count && !rc; i++)
            if (j->claims[i].joint && has_joint(j, record, &j->claims[i]) &&
                ranges_overlap(j->start, j->end, range->start, range->end))
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

/* The right half's claims. One that both halves need becomes two; a writer's internal node belongs to both. */
static void deal(const struct citron_job *left, struct citron_job *right, uint64_t at, const struct hold *h)
{
    for (unsigned i = 0; i < left->count; i++) {
        struct citron_claim c = left->claims[i];
        if (!needed(left, &c, at, h->end))
            continue;
        c.cut = needed(left, &c, h->start, at);
        c.joint |= c.cut && claim_internal(&c) && !c.shared;
        if (c.cut && !claim_internal(&c))
            c.ticket = bounds_of(c.node, at, claim_end(&c));
        right->claims[right->count++] = c;
    }
}

/* What has become two counts twice. */
static int count_cuts(struct citron_job *right)
{
    int rc = 0;
    for (unsigned i = 0; i < right->count && !rc; i++) {
        struct citron_claim *c = &right->claims[i];
        struct citron_batch b;
        if (!c->cut)
            continue;
        batch_start(&b);
        if (claim_internal(c) && c->shared)
            batch_mfaa(&b, job_claim_readers(right, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
        else if (c->shared)
            rc = citron_take_place(right, c);
        citron_add_tall(right, &b, c, true);
        citron_add_known(right, &b, c);
        if (!rc)
            rc = job_count_surely(right, i, c, &b);
    }
    return rc;
}

/* Readers' places name the hold. */
static int rename_places(struct citron_job *left, struct citron_job *right)
{
    for (unsigned i = 0; i < right->count; i++) {
        struct citron_claim *c = &right->claims[i];
        if (claim_internal(c) || !c->shared || c->cut)
            continue;
        int rc = citron_swap_place(left, c, citron_place_word(left, c), citron_place_word(right, c));
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What the left half keeps. The bits of a leaf that was cut stay: some of them are the right half's now. */
static int keep_left(struct citron_job *l, uint64_t start, uint64_t at, uint64_t right_end)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < l->count; i++)
        if (needed(l, &l->claims[i], start, at))
            l->claims[kept++] = l->claims[i];
    l->count = kept;
    for (unsigned i = 0; i < l->count; i++) {
        struct citron_claim *c = &l->claims[i], was = *c;
        c->joint |= claim_internal(c) && !c->shared && needed(l, c, at, right_end);
        if (claim_internal(c) || claim_end(c) <= at)
            continue;
        c->ticket = bounds_of(c->node, claim_start(l, c), at);
        int rc = c->shared ? citron_swap_place(l, c, citron_place_word(l, &was), citron_place_word(l, c)) : 0;
        if (rc < 0)
            return rc;
    }
    return citron_say_all(l, CLAIM_HELD);
}

int citron_split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right)
{
    struct citron_job l, r;
    int rc = job_resume(&l, seat, h, DEADLINE_NEVER);
    if (rc)
        return rc;
    job_start(&r, seat, right, DEADLINE_NEVER);
    r.config = l.config;
    deal(&l, &r, at, h);
    rc = citron_say_all(&r, CLAIM_FLUX); /* intent before effect (I5) */
    if (!rc)
        rc = count_cuts(&r);
    if (rc == -PAWL_ELIMIT && r.published) { /* no place left for a reader: what was counted for it so far is nobody's */
        int back = citron_say_all(&r, CLAIM_WAIT);
        return back ? back : rc;
    }
    if (!rc)
        rc = citron_say_all(&r, CLAIM_HELD);
    if (!rc)
        rc = rename_places(&l, &r);
    if (!rc)
        rc = keep_left(&l, h->start, at, h->end);
    if (rc)
        return rc == -FAB_EFENCED || !seat_lives(seat) ? -PAWL_ELOST : rc;
    for (unsigned i = 0; i < r.count && !fab_is_shm(seat->ep); i++)
        citron_stats.joint += r.claims[i].joint;
    h->end = at;
    job_keep(&l);
    job_keep(&r);
    return 0;
}
