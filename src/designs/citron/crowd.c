/* SPDX-License-Identifier: Apache-2.0 */
/* That no counter runs over, whoever comes when (3.4 has 15 bits for each, and trusts that there are no more clients).
 *
 * Verbs add blindly, so what a word counts may be more than whoever added to it could know. Two rules bound it. A session has no
 * more than a few claims in the air per word: from before it last looks at it until it knows what its own verb has found there. And
 * whoever finds a crowd says so before it lands: to its own session, whose next claims look at a word before they add to it, and to
 * the lock, for sessions that are yet to come; so does who buries the dead. Let a word have had less than its limit for the last
 * time. Of each session those add to it after that who were in the air when its first one learned of it, and nobody else: it counts
 * less than its limit and what all sessions have in the air. Whether what it counts is waiting, held, or left over by the dead and
 * by broken connections does not matter. */
#include "designs/citron/citron.h"

#include <errno.h>

#define FLIGHT_WARY UINT16_C(0x8000) /* a crowd was met: look first */
#define FLIGHT_COUNT UINT16_C(0x7fff)
#define FLIGHT_PAUSE_NS NS_PER_US
#define FLIGHTS_MAX                                                                                                                \
    1024 /* where sessions are few: fewer than a crowd, so that what one of them may add is no reason to tell of one */
static_assert((1u << (NODE_COUNT_BITS - 1)) / SLOTS_MAX >= 2, "two claims that lie side by side count themselves together");

/* ---- so many in the air ---- */

static uint16_t in_the_air_max(uint64_t room, uint32_t sessions)
{
    return (uint16_t)min_u64(room / sessions, FLIGHTS_MAX);
}

uint16_t citron_flights_max(uint32_t slot_count)
{
    return in_the_air_max(NODE_LIMIT, slot_count);
}

/* Of a high node each session counts in one of its words. */
static uint16_t flights_high_max(uint32_t slot_count)
{
    return in_the_air_max(UINT16_MAX - READERS_CLAIMS_MAX, (slot_count + HIGH_STRIPES - 1) / HIGH_STRIPES);
}

static unsigned bucket_of(const struct citron_job *j, struct tree_node n)
{
    uint64_t x = (n.number * 31 + n.height) * 0x9e3779b97f4a7c15 + j->index;
    return (unsigned)((x ^ x >> 32) % SESSION_FLIGHTS);
}

/* All low nodes that a claim is made known to lie below one highest low node; what is higher counts by session. */
static struct tree_node area_of(const struct citron_claim *c)
{
    unsigned height = c->node.height < citron_high - 1 ? citron_high - 1 : c->node.height;
    return c->spill ? (struct tree_node){.height = UINT8_MAX} : tree_above(c->node, height);
}

static bool take_seat(struct citron_job *j, uint16_t *bucket, uint16_t most)
{
    uint16_t now = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    do
        if ((now & FLIGHT_COUNT) >= most)
            return false;
    while (!__atomic_compare_exchange_n(bucket, &now, (uint16_t)(now + 1), true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    j->flight.wary |= now & FLIGHT_WARY;
    assert(j->flight.n < countof(j->flight.buckets));
    j->flight.buckets[j->flight.n++] = bucket;
    return true;
}

static bool board(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    struct session_flights *f = &j->seat->me->flights;
    const uint32_t slots = j->seat->space->slot_count;
    const uint16_t most = citron_flights_max(slots), most_high = flights_high_max(slots);
    bool all = true;
    for (unsigned i = from; i < to && all; i++)
        all = take_seat(j, &f->below[bucket_of(j, area_of(&j->claims[i]))], most) &&
              take_seat(j, &f->locks[j->index % countof(f->locks)], most_high);
    if (all && draws >= 0) {
        const struct citron_claim *c = &j->claims[draws];
        all = take_seat(j, &f->turns[bucket_of(j, c->spill ? area_of(c) : c->node)], most);
    }
    return all;
}

int job_take_off(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    for (;;) {
        job_land(j);
        j->flight.epoch = j->seat->me->epoch;
        j->flight.wary = j->config.crowded;
        if (likely(board(j, from, to, draws)))
            return 0;
        job_land(j); /* nobody waits with a seat taken */
        int rc =
            fab_wait_any(j->seat->ep, NULL, 0, add_saturating(world_now(j->seat->world), max_u64(j->trip_ns, FLIGHT_PAUSE_NS)));
        if (rc && rc != -ETIMEDOUT && (rc = seat_retry(j->seat, rc)))
            return rc;
        if (!seat_lives(j->seat))
            return -PAWL_ELOST;
    }
}

void job_land(struct citron_job *j)
{
    /* What was in the air for a session that was lost meanwhile is not its successor's. */
    for (unsigned i = 0; i < j->flight.n && j->flight.epoch == j->seat->me->epoch; i++)
        __atomic_sub_fetch(j->flight.buckets[i], 1, __ATOMIC_ACQ_REL);
    j->flight.n = 0;
}

int job_tell_crowd(struct citron_job *j)
{
    if (!fab_is_shm(j->seat->ep))
        citron_stats.crowded++;
    for (unsigned i = 0; i < j->flight.n && j->flight.epoch == j->seat->me->epoch; i++)
        __atomic_or_fetch(j->flight.buckets[i], FLIGHT_WARY, __ATOMIC_ACQ_REL);
    return citron_tell_crowd(j);
}

/* ---- what words count ---- */

static void add_word(struct crowd *w, struct crowd_word word)
{
    assert(w->n < countof(w->words));
    w->words[w->n++] = word;
}

/* What a claim adds to when it is made, but for its turn. */
static void list_words(const struct citron_job *j, const struct citron_claim *c, struct crowd *out)
{
    uint8_t heights[TREE_HEIGHT_MAX];
    unsigned n = c->spill ? 0 : tree_notified(c->node.height, c->m, c->top, heights);
    for (unsigned i = 0; i < n; i++) {
        struct tree_node above = tree_above(c->node, heights[i]);
        add_word(out, (struct crowd_word){.addr = job_known(j, above, c->shared).addr,
                                          .kind = c->shared ? CROWD_READERS_BELOW : CROWD_BELOW,
                                          .node = above});
    }
    if (claim_internal(c) && c->shared)
        add_word(out, (struct crowd_word){.addr = job_claim_readers(j, c), .kind = CROWD_READERS});
}

void crowd_list(const struct citron_job *j, unsigned from, unsigned to, struct crowd *out)
{
    out->n = 0;
    for (unsigned i = from; i < to; i++)
        list_words(j, &j->claims[i], out);
}

static uint32_t count_in(const struct crowd_word *w)
{
    switch (w->kind) {
    case CROWD_TURNS:
        return node_queue(w->value);
    case CROWD_READERS:
        return readers_here(w->value);
    default:
        return known_count(w->node, w->kind == CROWD_READERS_BELOW, w->value);
    }
}

/* Counters of 16 bits are for holders, of whom too many are refused. */
static bool is_wide(const struct crowd_word *w)
{
    return w->kind == CROWD_READERS || w->kind == CROWD_READERS_BELOW || (w->kind == CROWD_BELOW && node_is_high(w->node));
}

static bool is_crowd(const struct citron_job *j, const struct crowd_word *w)
{
    return count_in(w) >= (is_wide(w) ? READERS_CLAIMS_MAX : citron_knob(j, CITRON_CROWD));
}

static bool any_crowd(const struct citron_job *j, const struct crowd *w)
{
    for (unsigned i = 0; i < w->n; i++)
        if (is_crowd(j, &w->words[i]))
            return true;
    return false;
}

int crowd_see(struct citron_job *j, const struct crowd *w, const struct crowd_word **full)
{
    *full = NULL;
    for (unsigned i = 0; i < w->n; i++) {
        if (!is_crowd(j, &w->words[i]))
            continue;
        if (is_wide(&w->words[i]))
            return -PAWL_ELIMIT;
        j->meek = true;
        if (count_in(&w->words[i]) >= NODE_LIMIT)
            *full = &w->words[i];
    }
    return 0;
}

/* ---- what verbs have found ---- */

/* What a batch found where it added. */
static void take_found(const struct citron_batch *b, struct crowd *w)
{
    for (unsigned i = 0; i < w->n; i++)
        for (unsigned op = 0; op < b->n; op++)
            if (b->ops[op].verb == FAB_FAA && b->ops[op].addr == w->words[i].addr)
                w->words[i].value = batch_old(b, op);
}

static int read_words(const struct citron_job *j, struct crowd *w)
{
    for (unsigned i = 0; i < w->n;) {
        int rc = fab_read64(j->seat->ep, w->words[i].addr, &w->words[i].value);
        if (rc && (rc = seat_retry(j->seat, rc)))
            return rc;
        i += !rc;
    }
    return 0;
}

int crowd_found(struct citron_job *j, const struct citron_batch *b, unsigned from, unsigned to)
{
    struct crowd w;
    const struct crowd_word *full;
    crowd_list(j, from, to, &w);
    take_found(b, &w);
    if (likely(!any_crowd(j, &w)))
        return 0;
    int rc = job_tell_crowd(j);
    return rc ? rc : crowd_see(j, &w, &full);
}

/* As they are now: not less than what the verbs found, but for what was taken back since. */
static int see_after(struct citron_job *j, struct crowd *w)
{
    int rc = read_words(j, w);
    return rc || !any_crowd(j, w) ? rc : job_tell_crowd(j);
}

int crowd_doubt(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    struct crowd w;
    crowd_list(j, from, to, &w);
    if (draws >= 0)
        add_word(&w, (struct crowd_word){.addr = job_claim_node(j, &j->claims[draws]), .kind = CROWD_TURNS});
    return see_after(j, &w);
}

/* ---- a hold that counts once more ---- */

static int look_for_room(struct citron_job *j, struct crowd *w)
{
    const struct crowd_word *full;
    int rc = read_words(j, w);
    if (!rc)
        rc = crowd_see(j, w, &full);
    return rc ? rc : full ? -PAWL_ELIMIT : 0;
}

/* Claim i, as it is to be counted beside what it is. */
int job_count_surely(struct citron_job *j, unsigned i, const struct citron_claim *as, struct citron_batch *b)
{
    struct crowd w = {.n = 0};
    list_words(j, as, &w);
    for (;;) {
        int rc = job_take_off(j, i, i + 1, -1), told = 0;
        if (!rc && j->flight.wary)
            rc = look_for_room(j, &w);
        if (!rc && !(rc = job_run(j, b))) {
            take_found(b, &w);
            told = any_crowd(j, &w) ? job_tell_crowd(j) : 0;
        } else if (rc == -FAB_EUNKNOWN) {
            told = see_after(j, &w);
        }
        job_land(j);
        if (told)
            return told;
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}
