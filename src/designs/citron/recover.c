/* SPDX-License-Identifier: Apache-2.0 */
/* Counting anew (3.10). The paper resets a counter that has stood still for a lease; but a hold may last longer than that, and a
 * release that comes after a reset counts for somebody else. Here it is known who lives (sessions have leases, the lost are shut
 * out) and what each of them has (claims are published before their effect), so whoever is stuck counts the claims of the living,
 * and sets the node to that by a compare-and-swap from exactly what it was before the census. Only ever downwards: what is not
 * known to have been taken back counts as there, and what is not known to have been taken is taken once more. */
#include "designs/citron/citron.h"
#include "lib/hash.h"

#include <errno.h>
#include <string.h>

/* ---- the census ---- */

struct census {
    const struct seat *seat;
    uint64_t index;
    claim_fn fn;
    void *ctx;
    unsigned height_max;
    uint64_t lease;
    uint64_t books; /* of the present slot: a sum over its records that are about this lock */
    bool checked;   /* its owner lives, */
    bool stopped;   /* or is lost, but cannot be shut out yet: what it is in the middle of may go on */
};

#define READ_TRIES_MAX 4
#define BOOKS_TRIES_MAX 16

/* Whether a slot's session lives. 0: no, and nothing of it can take effect any more. */
static int check_life(struct census *c, uint32_t slot)
{
    const struct seat *seat = c->seat;
    uint64_t lease = c->lease, proof;
    if (slot == seat->me->slot)
        return lease_state(lease) == SLOT_LIVE;
    int dead = seat_peer_dead(seat, slot, &lease);
    if (dead <= 0)
        return dead < 0 ? dead : 1;
    if (lease_state(lease) != SLOT_LOST)
        return 0; /* closed: it has shut itself out */
    if (MISTAKE(seat->space->design->mistakes, CITRON_NO_FENCE))
        return 0;
    /* Proof first, lease second: the proof is then that session's, not its successor's in the slot. */
    fab_addr at = space_slot_addr(seat->space, slot);
    uint64_t again;
    int rc = fab_read64(seat->ep, at + offsetof(struct slot, proof), &proof);
    if (!rc)
        rc = fab_read64(seat->ep, at + offsetof(struct slot, lease), &again);
    if (rc)
        return rc;
    if (lease_state(again) != SLOT_LOST || lease_epoch(again) != lease_epoch(lease))
        return 0;
    rc = seat_fence(seat, slot);
    if (rc != -EAGAIN || !fab_is_shm(seat->ep))
        return rc;
    c->stopped = true; /* see atomic_here: only a step that it has said to be under way can still take place */
    return 1;
}

/* Claims and the record that they belong to, read so that they are of one use of it. */
static int read_claims(struct census *c, uint32_t slot, uint32_t record, uint64_t words[DESC_WORDS], uint64_t *word)
{
    fab_addr at = space_record_addr(c->seat->space, slot, record);
    for (unsigned n = 0; n < READ_TRIES_MAX; n++) {
        uint64_t before, after;
        struct fab_op ops[] = {
            {.verb = FAB_READ, .len = sizeof before, .addr = at, .buf = &before},
            {.verb = FAB_READ,
             .len = DESC_WORDS * sizeof *words,
             .addr = citron_desc_addr(c->seat->space, slot, record),
             .buf = words},
            {.verb = FAB_READ, .len = sizeof after, .addr = at, .buf = &after},
        };
        int rc = fab_batch(c->seat->ep, ops, countof(ops));
        if (rc)
            return rc;
        if (before != after)
            continue;
        *word = before;
        return 0;
    }
    return -EAGAIN;
}

static int sum_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct census *c = ctx;
    if (record_index(word) == c->index)
        c->books += mix64(word ^ (uint64_t)record << RECORD_SERIAL_BITS); /* a record that is used again has another serial */
    return 0;
}

static int census_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct census *c = ctx;
    uint64_t words[DESC_WORDS];
    unsigned base;
    if (record_index(word) != c->index)
        return 0;
    sum_record(ctx, slot, record, word);
    if (!c->checked) {
        int rc = check_life(c, slot);
        if (rc <= 0)
            return rc ? rc : 1;
        c->checked = true;
    }
    int rc = read_claims(c, slot, record, words, &word);
    enum record_state state = rc ? RECORD_FREE : record_state(word);
    bool changes = !rc && citron_is_marked(words[DESC_CHANGE], record_serial(word), lease_epoch(c->lease), &base);
    bool any = state != RECORD_FREE && state != RECORD_SPARE && state != RECORD_WAIT && record_index(word) == c->index;
    for (unsigned i = 0; i < CLAIMS_MAX && !rc && any; i++)
        if (words[i] >> CLAIM_STATE) {
            struct citron_claim claim = claim_of(words[i], c->height_max);
            bool midway = claim.state == CLAIM_FLUX || claim.state == CLAIM_QUEUE;
            if (c->stopped && !midway)
                continue;
            if (c->stopped)
                return -EAGAIN;
            claim.serial = (uint32_t)record_serial(word);
            claim.epoch = lease_epoch(c->lease);
            claim.changes = changes;
            claim.wanted = changes && i >= base;
            claim.granted = state == RECORD_HELD_X || state == RECORD_HELD_S;
            rc = c->fn(c->ctx, slot, record, &claim);
        }
    return rc;
}

/* A hold that is cut in two hands claims to a record that may have been free when it was looked at; and if the other half then
 * goes, so does the record that they were in, and nothing tells of that in the tree. So if other records are in use afterwards all
 * are asked once more. Who is counted twice for that is there. */
static int census_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    struct census *c = ctx;
    c->lease = lease;
    c->checked = c->stopped = false;
    for (unsigned tries = 0; tries < BOOKS_TRIES_MAX; tries++) {
        c->books = 0;
        int rc = seat_records(c->seat, slot, census_record, c);
        if (rc)
            return rc > 0 ? 0 : rc;
        uint64_t before = c->books;
        c->books = 0;
        rc = seat_records(c->seat, slot, sum_record, c);
        if (rc || c->books == before)
            return rc;
    }
    return -EAGAIN;
}

int citron_census(const struct citron_job *j, claim_fn fn, void *ctx)
{
    if (!fab_is_shm(j->seat->ep))
        citron_stats.censuses++;
    struct census c = {.seat = j->seat, .index = j->index, .fn = fn, .ctx = ctx, .height_max = j->height_max};
    return seat_slots(j->seat, census_slot, &c);
}

/* ---- a node ---- */

static bool is_high(struct tree_node n, bool spill)
{
    return !spill && node_is_high(n);
}

static bool is_tall(struct tree_node n, bool spill)
{
    return !spill && node_is_tall(n);
}

struct count {
    struct tree_node node;
    bool spill;
    uint32_t first;                                                          /* the ticket that is being served */
    uint32_t next;                                                           /* how far behind it the next living one is */
    uint32_t below[HIGH_STRIPES], readers_here, readers_below[HIGH_STRIPES]; /* of nodes that are not high, the first */
    uint32_t tall[TALL_WORDS];                                               /* claims on tall nodes, wherever */
    bool unsure, tall_unsure;
};

/* What a living claim accounts for. */
static int count_claim(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct count *n = ctx;
    bool flux = c->state == CLAIM_FLUX || c->state == CLAIM_QUEUE;
    bool same = c->spill == n->spill && (c->spill || tree_same(c->node, n->node));
    unsigned stripe = n->spill || !node_is_high(n->node) ? 0 : slot % HIGH_STRIPES;
    if (!c->spill && node_is_tall(c->node)) {
        n->tall[tall_word(c->node, slot)] += c->state == CLAIM_HELD;
        n->tall_unsure |= c->state == CLAIM_FLUX;
    }
    if (same && claim_internal(c)) {
        n->unsure |= flux;
        if (c->state == CLAIM_TURN || (c->state == CLAIM_HELD && !c->shared)) {
            uint32_t distance = (c->ticket - n->first) & NODE_COUNT_MAX;
            n->next = distance < n->next ? distance : n->next;
        }
        n->readers_here += c->state == CLAIM_HELD && c->shared;
    }
    if (same || c->spill || n->spill || !tree_contains(n->node, c->node) ||
        !tree_notifies(c->node.height, c->m, c->top, n->node.height))
        return 0;
    n->unsure |= c->state == CLAIM_FLUX; /* one that queues has made nothing known */
    n->below[stripe] += c->state == CLAIM_HELD && !c->shared;
    n->readers_below[stripe] += c->state == CLAIM_HELD && c->shared;
    return 0;
}

/* What counting anew is about. */
struct words {
    uint64_t node, readers;
    uint64_t stripes[HIGH_STRIPES];
    uint64_t tall[TALL_WORDS];
};

/* {Cnt, Max} of 16 bits each from `shift` on, such that it counts no more than so many. */
static void lower_to(uint64_t *word, unsigned shift, uint32_t count)
{
    uint64_t max = field_get(*word, shift + 16, 16);
    if (((max - field_get(*word, shift, 16)) & 0xffff) > count)
        *word = field_set(*word, shift, 16, (max - count) & 0xffff);
}

/* The words as the living account for them. */
static void correct(const struct count *n, struct words *w)
{
    uint64_t *word = &w->node;
    uint32_t queue = node_queue(*word);
    if (queue && n->next) { /* whose turn it is: nobody's */
        uint32_t skip = n->next < queue ? n->next : queue;
        *word = field_set(*word, NODE_TCNT, NODE_COUNT_BITS, (n->first + skip) & NODE_COUNT_MAX) & ~NODE_OCC;
    }
    lower_to(&w->readers, READERS_CNT, n->readers_here);
    if (!n->readers_here && !readers_here(w->readers))
        *word &= ~NODE_SHARED;
    for (unsigned i = 0; i < TALL_WORDS && !n->tall_unsure; i++)
        if (tall_count(w->tall[i]) > n->tall[i])
            w->tall[i] = field_set(w->tall[i], TALL_CNT, 32, (uint32_t)((w->tall[i] >> TALL_MAX) - n->tall[i]));
    for (unsigned i = 0; i < HIGH_STRIPES; i++) {
        lower_to(&w->stripes[i], READERS_CNT, n->below[i]);
        lower_to(&w->stripes[i], READERS_DCNT, n->readers_below[i]);
    }
    if (is_high(n->node, n->spill))
        return;
    if (node_below(*word) > n->below[0])
        *word = field_set(*word, NODE_DCNT, NODE_COUNT_BITS, (node_field(*word, NODE_DMAX) - n->below[0]) & NODE_COUNT_MAX);
    lower_to(&w->readers, READERS_DCNT, n->readers_below[0]);
}

static int replace(const struct citron_job *j, fab_addr addr, uint64_t from, uint64_t to)
{
    uint64_t old;
    if (from == to)
        return 0;
    int rc = fab_cas64(j->seat->ep, addr, from, to, &old);
    if (rc || old != from)
        return rc ? rc : 1;
    if (!fab_is_shm(j->seat->ep))
        citron_stats.repaired++;
    job_wake(j, addr);
    return 0;
}

struct counts {
    unsigned n;
    struct count at[REPAIR_MAX];
};

static int count_each(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct counts *counts = ctx;
    for (unsigned i = 0; i < counts->n; i++)
        count_claim(&counts->at[i], slot, record, c);
    return 0;
}

static fab_addr tall_addr(const struct citron_job *j, unsigned stripe)
{
    return job_header(j, (HEAD_TALL + stripe) * sizeof(uint64_t));
}

static unsigned add_words(const struct citron_job *j, struct tree_node n, bool spill, struct words *was, struct fab_op *ops)
{
    const struct citron_claim at = {.spill = spill, .node = n};
    unsigned reads = 0;
    ops[reads++] = (struct fab_op){.verb = FAB_READ, .len = sizeof was->node, .addr = job_claim_node(j, &at), .buf = &was->node};
    ops[reads++] =
        (struct fab_op){.verb = FAB_READ, .len = sizeof was->readers, .addr = job_claim_readers(j, &at), .buf = &was->readers};
    if (is_high(n, spill))
        ops[reads++] =
            (struct fab_op){.verb = FAB_READ, .len = sizeof was->stripes, .addr = job_stripes(j, n), .buf = was->stripes};
    if (is_tall(n, spill))
        ops[reads++] = (struct fab_op){.verb = FAB_READ, .len = sizeof was->tall, .addr = tall_addr(j, 0), .buf = was->tall};
    return reads;
}

/* What was counted of one node, put there if it is still as it was when it was read. */
static int put_right(const struct citron_job *j, const struct count *n, const struct words *was)
{
    const struct citron_claim at = {.spill = n->spill, .node = n->node};
    struct words right = *was;
    if (n->unsure)
        return 1;
    correct(n, &right);
    int rc = replace(j, job_claim_readers(j, &at), was->readers, right.readers);
    if (!rc)
        rc = replace(j, job_claim_node(j, &at), was->node, right.node);
    for (unsigned i = 0; i < HIGH_STRIPES && is_high(n->node, n->spill) && !rc; i++)
        rc = replace(j, job_stripes(j, n->node) + i * sizeof(uint64_t), was->stripes[i], right.stripes[i]);
    for (unsigned i = 0; i < TALL_WORDS && is_tall(n->node, n->spill) && !rc; i++)
        rc = replace(j, tall_addr(j, i), was->tall[i], right.tall[i]);
    return rc ? rc : memcmp(was, &right, sizeof right) ? CITRON_REPAIRED : 0;
}

/* Whether one that is lost may have found a crowd, with as much as it had in the air: it cannot tell of it (crowd.c). */
static bool may_be_crowd(const struct citron_job *j, const struct words *w, bool high)
{
    const uint32_t more = citron_flights_max(j->seat->space->slot_count);
    uint32_t most = node_queue(w->node), most_wide = readers_here(w->readers);
    if (!high)
        most = (uint32_t)max_u64(most, node_below(w->node));
    most_wide = (uint32_t)max_u64(most_wide, readers_below(w->readers));
    for (unsigned i = 0; i < HIGH_STRIPES && high; i++)
        most_wide = (uint32_t)max_u64(most_wide, max_u64(readers_here(w->stripes[i]), readers_below(w->stripes[i])));
    return most + more >= citron_knob(j, CITRON_CROWD) || most_wide + HIGH_STRIPES * 2 * more >= READERS_CLAIMS_MAX;
}

int citron_repair_some(const struct citron_job *j, const struct tree_node *nodes, unsigned n, bool spill)
{
    struct fab_op ops[4 * REPAIR_MAX];
    struct words was[REPAIR_MAX];
    struct counts counts = {.n = n};
    unsigned reads = 0;
    assert(n <= REPAIR_MAX);
    memset(was, 0, sizeof was);
    for (unsigned i = 0; i < n; i++)
        reads += add_words(j, nodes[i], spill, &was[i], &ops[reads]);
    int rc = fab_batch(j->seat->ep, ops, reads);
    for (unsigned i = 0; i < n && !rc; i++)
        rc = may_be_crowd(j, &was[i], is_high(nodes[i], spill)) ? citron_tell_crowd(j) : 0;
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        counts.at[i] =
            (struct count){.node = nodes[i], .spill = spill, .first = node_field(was[i].node, NODE_TCNT), .next = NODE_COUNT_MAX};
    rc = citron_census(j, count_each, &counts);
    for (unsigned i = 0; i < n && rc >= 0; i++) {
        int put = put_right(j, &counts.at[i], &was[i]);
        rc = n == 1 || put < 0 ? put : 0;
    }
    return rc;
}

int citron_repair(const struct citron_job *j, struct tree_node n, bool spill)
{
    return citron_repair_some(j, &n, 1, spill);
}

/* ---- leaves ---- */

struct leaf_search {
    struct tree_node parent;
    struct tree_node leaf;
    uint64_t bits;
    const struct citron_job *j;
    bool found;
};

static int may_own_bits(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct leaf_search *s = ctx;
    if (c->spill || c->shared || (c->state != CLAIM_FLUX && c->state != CLAIM_HELD))
        return 0;
    if (c->node.height == 1)
        s->found |= tree_same(c->node, s->parent);
    else if (!c->node.height)
        s->found |= tree_same(c->node, s->leaf) && bounds_mask(c->ticket) & s->bits;
    return 0;
}

int citron_leaf_owned(const struct citron_job *j, struct tree_node leaf, uint64_t bits)
{
    struct leaf_search s = {.parent = tree_parent(leaf), .leaf = leaf, .bits = bits};
    int rc = citron_census(j, may_own_bits, &s);
    return rc ? rc : s.found;
}

static int is_below(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct leaf_search *s = ctx;
    bool own = slot == s->j->seat->me->slot && record == s->j->h->record;
    if (!own && !c->spill && c->state != CLAIM_WAIT && c->state != CLAIM_TURN && c->state != CLAIM_QUEUE &&
        tree_contains(s->parent, c->node))
        s->found = true;
    return 0;
}

OWN_FRAME static int clear_leaves(struct citron_job *j, struct tree_node parent, const uint64_t words[4])
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = 0; i < 4; i++)
        if (words[i])
            batch_mcas(&b, job_node(j, tree_child(parent, i)), words[i], words[i], 0, words[i]);
    if (!fab_is_shm(j->seat->ep))
        citron_stats.repaired += b.n;
    return job_run(j, &b);
}

/* The parent's word, and then its leaves. */
static int read_leaves(const struct citron_job *j, struct tree_node parent, uint64_t *word, uint64_t leaves[4])
{
    struct fab_op ops[] = {
        {.verb = FAB_READ, .len = sizeof *word, .addr = job_node(j, parent), .buf = word},
        {.verb = FAB_READ, .len = 4 * sizeof *leaves, .addr = job_node(j, tree_child(parent, 0)), .buf = leaves},
    };
    return fab_batch(j->seat->ep, ops, countof(ops));
}

/* This job has the parent for itself, and waited until nobody was below. Whoever set bits that were read, and is not gone, has said
 * that it is in the middle of a step before it set them: before it looked up, if it did, and that was before this job had the
 * parent. One that did not look may be gone when it is asked for; but it has counted itself since. So if nobody says so, and the
 * parent has counted nobody from before the bits were read until after everybody was asked, they are nobody's. They stay that, and
 * as they are: who wants them does not get them. Positive: ask again. */
static int scrub_once(struct citron_job *j, struct tree_node parent)
{
    struct leaf_search s = {.parent = parent, .j = j};
    uint64_t words[4], before, after;
    int rc = read_leaves(j, parent, &before, words);
    if (!rc)
        rc = citron_census(j, is_below, &s);
    if (rc || s.found)
        return rc == -EAGAIN ? 0 : rc;
    rc = fab_read64(j->seat->ep, job_node(j, parent), &after);
    if (rc)
        return rc;
    if (node_below(before) || (before ^ after) & NODE_D_MASK)
        return 1;
    rc = clear_leaves(j, parent, words);
    for (unsigned i = 0; i < 4; i++)
        job_wake(j, job_node(j, tree_child(parent, i)));
    return rc;
}

int citron_scrub(struct citron_job *j, struct tree_node parent)
{
    int rc = 1;
    for (unsigned tries = 0; rc > 0 && tries < READ_TRIES_MAX; tries++)
        rc = scrub_once(j, parent);
    return rc > 0 ? 0 : rc;
}

struct place_search {
    uint64_t word;
    struct tree_node leaf;
    const struct citron_job *j;
    bool found;
};

/* The word names slot, epoch, record and serial; the census has what lives. It was read before the lease that the epoch is from. */
static int owns_place(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct place_search *s = ctx;
    uint64_t owner = reader_word(slot, c->epoch, record, c->serial, 0) & READER_OWNER;
    if (owner == (s->word & READER_OWNER) && !c->spill && /* on its way down it is not yet shared */
        tree_same(c->node, s->leaf) && (c->state == CLAIM_FLUX || c->state == CLAIM_HELD))
        s->found = true;
    return 0;
}

int citron_repair_place(const struct citron_job *j, struct tree_node leaf, unsigned place, uint64_t word)
{
    struct place_search s = {.word = word, .leaf = leaf, .j = j};
    int rc = citron_census(j, owns_place, &s);
    if (rc || s.found)
        return rc;
    return replace(j, job_places(j, leaf) + place * sizeof(uint64_t), word, 0);
}

/* ---- this session itself ---- */

struct own_search {
    const struct citron_job *j;
    const struct citron_claim *claim;
    bool found;
};

static int in_own_way(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct own_search *s = ctx;
    if (slot != s->j->seat->me->slot || record == s->j->h->record || c->state != CLAIM_HELD || c->spill || s->claim->spill)
        return 0;
    s->found |= tree_contains(c->node, s->claim->node) || tree_contains(s->claim->node, c->node);
    return 0;
}

int citron_own_way(const struct citron_job *j, const struct citron_claim *c)
{
    struct own_search s = {.j = j, .claim = c};
    int rc = citron_census(j, in_own_way, &s);
    return rc ? rc : s.found;
}

/* ---- what it looks like ---- */

struct view {
    struct lock_view *out;
    uint32_t slot, record; /* of the latest that was counted */
    bool records_tell;     /* who was granted; elsewhere one that waits for others below counts, too */
};

static int view_claim(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct view *v = ctx;
    if (c->state != CLAIM_HELD || (v->records_tell && !c->granted))
        return 0;
    if (!c->shared) {
        v->out->mode = PAWL_EXCLUSIVE;
        v->out->owner = slot;
    } else if (v->out->mode != PAWL_EXCLUSIVE) {
        v->out->mode = PAWL_SHARED;
    }
    v->out->readers += c->shared && (slot != v->slot || record != v->record);
    v->slot = slot;
    v->record = record;
    return 0;
}

int citron_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct hold h = {.index = index, .record = UINT32_MAX, .mode = PAWL_EXCLUSIVE};
    struct citron_job j;
    struct lock_view view = {0};
    struct view v = {.out = &view, .slot = UINT32_MAX, .records_tell = fab_is_shm(seat->ep)};
    job_start(&j, seat, &h, DEADLINE_TRY);
    int rc = citron_newest_token(&j, &view.token);
    if (!rc)
        rc = citron_census(&j, view_claim, &v);
    if (rc && rc != -EAGAIN)
        return rc;
    *out = view;
    return 0;
}
