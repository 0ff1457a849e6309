/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of verbs: what they say about claims, how they run near and far, and that no counter overflows by them. */
#include "designs/citron/steps.h"

#include <errno.h>

struct citron_stats citron_stats;

/* ---- verbs ---- */

static struct fab_op *next_op(struct citron_batch *b)
{
    assert(b->n < FAB_BATCH_MAX);
    return &b->ops[b->n++];
}

unsigned batch_read(struct citron_batch *b, fab_addr addr, void *buf, uint16_t len)
{
    *next_op(b) = (struct fab_op){.verb = FAB_READ, .addr = addr, .buf = buf, .len = len};
    return b->n - 1;
}

unsigned batch_read64(struct citron_batch *b, fab_addr addr)
{
    return batch_read(b, addr, &b->values[b->n], sizeof(uint64_t));
}

unsigned batch_write64(struct citron_batch *b, fab_addr addr, uint64_t value)
{
    uint64_t *at = &b->values[b->n];
    *at = value;
    *next_op(b) = (struct fab_op){.verb = FAB_WRITE, .addr = addr, .buf = at, .len = sizeof(uint64_t)};
    return b->n - 1;
}

unsigned batch_mcas(struct citron_batch *b, fab_addr addr, uint64_t compare, uint64_t compare_mask, uint64_t swap,
                    uint64_t swap_mask)
{
    *next_op(b) = (struct fab_op){.verb = FAB_CAS,
                                  .width = 8,
                                  .masked = compare_mask != UINT64_MAX || swap_mask != UINT64_MAX,
                                  .addr = addr,
                                  .compare = compare,
                                  .compare_mask = compare_mask,
                                  .swap = swap,
                                  .swap_mask = swap_mask};
    return b->n - 1;
}

unsigned batch_mfaa(struct citron_batch *b, fab_addr addr, uint64_t add, uint64_t tops)
{
    *next_op(b) = (struct fab_op){.verb = FAB_FAA, .width = 8, .masked = true, .addr = addr, .swap = add, .swap_mask = tops};
    return b->n - 1;
}

unsigned batch_faa(struct citron_batch *b, fab_addr addr, uint64_t add)
{
    *next_op(b) = (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = addr, .swap = add};
    return b->n - 1;
}

void batch_head(const struct citron_job *j, struct citron_batch *b, uint64_t head[CITRON_HEAD_WORDS])
{
    batch_read(b, job_header(j, 0), head, CITRON_HEAD_WORDS * sizeof(uint64_t));
}

void batch_tall(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come)
{
    if (c->spill || !node_is_tall(c->node))
        return;
    const size_t word = HEAD_TALL + tall_word(c->node, j->seat->me->slot);
    batch_mfaa(b, job_header(j, word * sizeof(uint64_t)), UINT64_C(1) << (come ? TALL_MAX : TALL_CNT), TALL_TOPS);
}

void batch_notify(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come)
{
    struct tree_node above[TREE_HEIGHT_MAX];
    for (unsigned i = 0, n = claim_notified(c, above); i < n; i++) {
        struct citron_known k = job_known(j, above[i], c->shared);
        batch_mfaa(b, k.addr, come ? k.come : k.gone, k.tops);
    }
}

void tally_add(const struct citron_job *j, struct tally *t, const struct citron_claim *c)
{
    struct tree_node above[TREE_HEIGHT_MAX];
    for (unsigned i = 0, n = claim_notified(c, above); i < n; i++) {
        struct citron_known k = job_known(j, above[i], c->shared);
        unsigned at = 0;
        while (at < t->n && (t->known[at].addr != k.addr || t->known[at].gone != k.gone))
            at++;
        if (at == t->n) {
            assert(t->n < countof(t->known));
            t->nodes[t->n] = above[i];
            t->known[t->n] = k;
            t->counts[t->n++] = 0;
        }
        t->counts[at]++;
    }
}

void batch_tally(struct citron_batch *b, struct tally *t, bool come)
{
    t->first_op = b->n;
    for (unsigned i = 0; i < t->n; i++)
        batch_mfaa(b, t->known[i].addr, t->counts[i] * (come ? t->known[i].come : t->known[i].gone), t->known[i].tops);
}

/* ---- what a batch says about claims ---- */

/* A copy of claims [from, to): the same batch may say something else later. */
static void write_claims(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to)
{
    assert(b->said + (to - from) <= countof(b->words));
    uint64_t *words = &b->words[b->said];
    for (unsigned i = from; i < to; i++)
        words[i - from] = i < j->claims.n ? claim_word(&j->claims.at[i], j->height_max) : 0;
    b->said += to - from;
    *next_op(b) = (struct fab_op){
        .verb = FAB_WRITE, .addr = job_desc(j, from), .buf = words, .len = (uint16_t)((to - from) * sizeof(uint64_t))};
}

void job_say(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, enum claim_state state)
{
    for (unsigned i = from; i < to; i++)
        j->claims.at[i].state = j->claims.at[i].said = state;
    if (j->claims.published) {
        write_claims(j, b, from, to);
        return;
    }
    write_claims(j, b, 0, CLAIMS_MAX);
    enum record_state may = j->plan.shared ? RECORD_TRY_S : RECORD_TRY_X;
    uint64_t word = record_word(may, j->h->serial, j->h->index);
    batch_write64(b, space_record_addr(j->seat->space, j->seat->me->slot, j->h->record), word);
    if (!j->near)
        __atomic_store_n(&j->seat->me->shadow[j->h->record], word, __ATOMIC_RELEASE);
    j->claims.published = true;
}

void job_know(struct citron_job *j, unsigned i, enum claim_state state)
{
    j->claims.at[i].state = state;
}

/* ---- near: a batch on shared memory, verb by verb ---- */

static uint64_t verb_result(const struct fab_op *op, uint64_t word)
{
    uint64_t compared = (uint64_t)op->compare_mask, swapped = (uint64_t)op->swap_mask;
    if (op->verb == FAB_FAA)
        return op->masked ? masked_add64(word, (uint64_t)op->swap, swapped) : word + (uint64_t)op->swap;
    if ((word ^ (uint64_t)op->compare) & compared)
        return word;
    return (word & ~swapped) | ((uint64_t)op->swap & swapped);
}

/* On shared memory a process that is merely stopped cannot be shut out. So between its load of a word and its compare-and-swap it
 * looks whether its session was declared lost (I6). If it was, a census may have counted without it. If a census does so later, the
 * compare-and-swap fails: the word has changed, for counters do not return. */
static int atomic_here(const struct seat *seat, struct fab_op *op)
{
    uint64_t *word = fab_shm_ptr(seat->ep, op->addr), seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    const uint64_t live = lease_word(SLOT_LIVE, seat->me->epoch, 0) >> LEASE_EPOCH_SHIFT;
    for (;;) {
        if (unlikely(__atomic_load_n(seat->me->lease, __ATOMIC_ACQUIRE) >> LEASE_EPOCH_SHIFT != live))
            return -FAB_EFENCED;
        if (likely(__atomic_compare_exchange_n(word, &seen, verb_result(op, seen), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)))
            break;
    }
    op->old = seen;
    return 0;
}

static void copy_here(uint64_t *to, const uint64_t *from, unsigned words)
{
    for (unsigned i = 0; i < words; i++)
        __atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static int run_here(const struct seat *seat, struct citron_batch *b)
{
    for (unsigned i = 0; i < b->n; i++) {
        struct fab_op *op = &b->ops[i];
        if (op->verb == FAB_READ)
            copy_here(op->buf, fab_shm_ptr(seat->ep, op->addr), op->len / 8);
        else if (op->verb == FAB_WRITE)
            copy_here(fab_shm_ptr(seat->ep, op->addr), op->buf, op->len / 8);
        else if (atomic_here(seat, op))
            return -FAB_EFENCED;
    }
    return 0;
}

/* ---- far: a batch over a fabric ---- */

/* After a broken connection it is unknown what was said, so all of it is said again. Until then other clients may take the claims
 * for claims that queue, and wait for them (say_turns in wait.c). */
static void forget_said(struct citron_job *j)
{
    j->claims.published = false;
    for (unsigned i = 0; i < j->claims.n; i++)
        j->claims.at[i].said = CLAIM_QUEUE;
}

static int run_far(struct citron_job *j, struct citron_batch *b)
{
    if (!b->n)
        return 0;
    uint64_t before = world_now(j->seat->world);
    fab_keep_order(j->seat->ep, b->ops, b->n); /* what is said before what is done, what is done before the look around */
    int rc = fab_batch(j->seat->ep, b->ops, b->n);
    j->trip_ns = world_now(j->seat->world) - before;
    if (unlikely(rc))
        forget_said(j);
    return rc;
}

/* ---- either ---- */

int job_run(struct citron_job *j, struct citron_batch *b)
{
    return j->near ? run_here(j->seat, b) : run_far(j, b);
}

int job_run_surely(struct citron_job *j, struct citron_batch *b)
{
    int rc;
    while ((rc = job_run(j, b)))
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    return 0;
}

OWN_FRAME int job_say_surely(struct citron_job *j, unsigned from, unsigned to, enum claim_state state)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        job_say(j, &b, from, to, state);
        int rc = job_run(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

OWN_FRAME int job_say_range(struct citron_job *j, unsigned from, unsigned to, enum claim_state state)
{
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, from, to, state);
    return job_run_surely(j, &b);
}

int job_say_all(struct citron_job *j, enum claim_state state)
{
    j->claims.published = false;
    return job_say_surely(j, 0, j->claims.n, state);
}

void job_wake(const struct citron_job *j, fab_addr addr)
{
    uint64_t sleepers;
    if (!j->near)
        return;
    fab_read64(j->seat->ep, job_header(j, offsetof(struct citron_lock, sleepers)), &sleepers);
    if (likely(!sleepers))
        return;
    fab_wake(j->seat->ep, addr, UINT32_MAX, UINT16_MAX);
    fab_wake(j->seat->ep, addr, UINT64_C(0xffffffff) << 32, UINT16_MAX);
}

/* ---- no counter overflows (3.4 has 15 bits for each, and relies on there being no more clients) ----
 *
 * Verbs add blindly, so a word may count more than the clients that added to it could know. Two rules bound it. First, a session
 * has no more than a few claims in flight per word: from before it last reads the word until it knows what its own verb has found
 * there. Second, a client that finds a crowd tells of it before its flight ends: its own session, whose next claims read a word
 * before they add to it, and the lock, for sessions that are yet to come. Recovery does so for a dead session. Consider the last
 * moment at which a word counted less than its limit. After that only those claims of each session add to it that were in flight
 * when the session's first one learned of the crowd. So the word counts less than its limit plus what all sessions have in flight,
 * whether these are waiting, held, or left over from dead sessions and broken connections. */

#define FLIGHT_LOOK_FIRST UINT16_C(0x8000) /* a crowd was met */
#define FLIGHT_COUNT UINT16_C(0x7fff)
#define FLIGHT_PAUSE_NS NS_PER_US
#define IN_FLIGHT_MAX 1024 /* less than a crowd, so that the claims of one session are none */
static_assert((1u << (NODE_COUNT_BITS - 1)) / SLOTS_MAX >= 2, "two claims that lie side by side count themselves together");

static uint16_t in_flight_max(uint64_t room, uint32_t sessions)
{
    return (uint16_t)min_u64(room / sessions, IN_FLIGHT_MAX);
}

uint16_t citron_in_flight_max(uint32_t slot_count)
{
    return in_flight_max(NODE_LIMIT, slot_count);
}

/* Of a high node each session counts in one of its words. */
static uint16_t in_flight_high_max(uint32_t slot_count)
{
    return in_flight_max(UINT16_MAX - READERS_CLAIMS_MAX, (slot_count + HIGH_STRIPES - 1) / HIGH_STRIPES);
}

static unsigned bucket_of(const struct citron_job *j, struct tree_node n)
{
    uint64_t x = (n.number * 31 + n.height) * 0x9e3779b97f4a7c15 + j->index;
    return (unsigned)((x ^ x >> 32) % CITRON_FLIGHTS);
}

/* All low nodes that a claim notifies lie below one highest low node; high nodes count by session. */
static struct tree_node area_of(const struct citron_claim *c)
{
    unsigned height = c->node.height < citron_high - 1 ? citron_high - 1 : c->node.height;
    return c->spill ? (struct tree_node){.height = UINT8_MAX} : tree_above(c->node, height);
}

static bool take_bucket(struct citron_job *j, uint16_t *bucket, uint16_t most)
{
    uint16_t now = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    do
        if ((now & FLIGHT_COUNT) >= most)
            return false;
    while (!__atomic_compare_exchange_n(bucket, &now, (uint16_t)(now + 1), true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    j->in_flight.look_first |= now & FLIGHT_LOOK_FIRST;
    assert(j->in_flight.n < countof(j->in_flight.buckets));
    j->in_flight.buckets[j->in_flight.n++] = bucket;
    return true;
}

static bool take_buckets(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    struct citron_flights *f = &citron_session(j->seat)->flights;
    const uint32_t slots = j->seat->space->slot_count;
    const uint16_t most = citron_in_flight_max(slots), most_high = in_flight_high_max(slots);
    bool all = true;
    for (unsigned i = from; i < to && all; i++)
        all = take_bucket(j, &f->below[bucket_of(j, area_of(&j->claims.at[i]))], most) &&
              take_bucket(j, &f->locks[j->index % countof(f->locks)], most_high);
    if (all && draws >= 0) {
        const struct citron_claim *c = &j->claims.at[draws];
        all = take_bucket(j, &f->turns[bucket_of(j, c->spill ? area_of(c) : c->node)], most);
    }
    return all;
}

int flight_begin(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    for (;;) {
        flight_end(j);
        j->in_flight.epoch = j->seat->me->epoch;
        j->in_flight.look_first = j->plan.config.crowded;
        if (likely(take_buckets(j, from, to, draws)))
            return 0;
        flight_end(j); /* a job that waits has nothing in flight */
        int rc =
            fab_wait_any(j->seat->ep, NULL, 0, add_saturating(world_now(j->seat->world), max_u64(j->trip_ns, FLIGHT_PAUSE_NS)));
        if (rc && rc != -ETIMEDOUT && (rc = seat_retry(j->seat, rc)))
            return rc;
        if (!seat_lives(j->seat))
            return -PAWL_ELOST;
    }
}

void flight_end(struct citron_job *j)
{
    /* If the session was lost meanwhile, the buckets belong to its successor (I6). */
    for (unsigned i = 0; i < j->in_flight.n && j->in_flight.epoch == j->seat->me->epoch; i++)
        __atomic_sub_fetch(j->in_flight.buckets[i], 1, __ATOMIC_ACQ_REL);
    j->in_flight.n = 0;
}

int flight_tell_crowd(struct citron_job *j)
{
    job_count(j, &citron_stats.crowded);
    for (unsigned i = 0; i < j->in_flight.n && j->in_flight.epoch == j->seat->me->epoch; i++)
        __atomic_or_fetch(j->in_flight.buckets[i], FLIGHT_LOOK_FIRST, __ATOMIC_ACQ_REL);
    return config_tell_crowd(j);
}

/* ---- the words that claims add to ---- */

static void add_word(struct crowd *w, struct crowd_word word)
{
    assert(w->n < countof(w->words));
    w->words[w->n++] = word;
}

/* The words that a claim adds to, but for its turn. */
static void list_words(const struct citron_job *j, const struct citron_claim *c, struct crowd *out)
{
    struct tree_node above[TREE_HEIGHT_MAX];
    for (unsigned i = 0, n = claim_notified(c, above); i < n; i++)
        add_word(out, (struct crowd_word){.addr = job_known(j, above[i], c->shared).addr,
                                          .kind = c->shared ? CROWD_READERS_BELOW : CROWD_BELOW,
                                          .node = above[i]});
    if (claim_internal(c) && c->shared)
        add_word(out, (struct crowd_word){.addr = job_claim_readers(j, c), .kind = CROWD_READERS});
}

void crowd_list(const struct citron_job *j, unsigned from, unsigned to, struct crowd *out)
{
    out->n = 0;
    for (unsigned i = from; i < to; i++)
        list_words(j, &j->claims.at[i], out);
}

static uint32_t count_in(const struct crowd_word *w)
{
    if (w->kind == CROWD_TURNS)
        return node_queue(w->value);
    if (w->kind == CROWD_READERS_BELOW)
        return readers_below(w->value);
    return w->kind == CROWD_READERS || node_is_high(w->node) ? readers_here(w->value) : node_below(w->value);
}

/* Counters of 16 bits: claims beyond their limit are refused. */
static bool is_wide(const struct crowd_word *w)
{
    return w->kind == CROWD_READERS || w->kind == CROWD_READERS_BELOW || (w->kind == CROWD_BELOW && node_is_high(w->node));
}

static bool is_crowd(const struct citron_job *j, const struct crowd_word *w)
{
    return count_in(w) >= (is_wide(w) ? READERS_CLAIMS_MAX : j->policy.crowd);
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
        wait_unannounced(j);
        if (count_in(&w->words[i]) >= NODE_LIMIT)
            *full = &w->words[i];
    }
    return 0;
}

/* The values that the verbs of a batch found. */
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
    int rc = flight_tell_crowd(j);
    return rc ? rc : crowd_see(j, &w, &full);
}

/* The words as they are now: not less than the verbs found, but for claims that were taken back since. */
static int see_after(struct citron_job *j, struct crowd *w)
{
    int rc = read_words(j, w);
    return rc || !any_crowd(j, w) ? rc : flight_tell_crowd(j);
}

int crowd_doubt(struct citron_job *j, unsigned from, unsigned to, int draws)
{
    struct crowd w;
    crowd_list(j, from, to, &w);
    if (draws >= 0)
        add_word(&w, (struct crowd_word){.addr = job_claim_node(j, &j->claims.at[draws]), .kind = CROWD_TURNS});
    return see_after(j, &w);
}

static int look_for_room(struct citron_job *j, struct crowd *w)
{
    const struct crowd_word *full;
    int rc = read_words(j, w);
    if (!rc)
        rc = crowd_see(j, w, &full);
    return rc ? rc : full ? -PAWL_ELIMIT : 0;
}

int crowd_count_surely(struct citron_job *j, unsigned i, const struct citron_claim *as, struct citron_batch *b)
{
    struct crowd w = {.n = 0};
    list_words(j, as, &w);
    for (;;) {
        int rc = flight_begin(j, i, i + 1, -1), told = 0;
        if (!rc && j->in_flight.look_first)
            rc = look_for_room(j, &w);
        if (!rc && !(rc = job_run(j, b))) {
            take_found(b, &w);
            told = any_crowd(j, &w) ? flight_tell_crowd(j) : 0;
        } else if (rc == -FAB_EUNKNOWN) {
            told = see_after(j, &w);
        }
        flight_end(j);
        if (told)
            return told;
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}
