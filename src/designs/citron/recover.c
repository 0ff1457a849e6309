/* SPDX-License-Identifier: Apache-2.0 */
/* Counting anew (3.10). The paper resets a counter that has stood still for a lease. But a hold may last longer than that, and a
 * release that comes after a reset is then counted for another client. Here it is known which sessions live (they have leases, and
 * lost sessions are shut out, I6) and what each of them has (claims are published before their effect, I5). So a client that is
 * stuck counts the claims of live sessions, and sets the node to that by a compare-and-swap from exactly the word that it read
 * before the census. Counts only ever become lower by that: a claim of which it is unknown whether it was taken back counts as
 * there. */
#include "designs/citron/steps.h"
#include "lib/hash.h"

#include <errno.h>
#include <string.h>

/* ---- the census ---- */

struct census {
    const struct citron_job *j;
    const struct seat *seat;
    claim_fn fn;
    void *ctx;
    uint64_t lease;
    uint64_t books; /* of the present slot: a sum over its records that are about this lock */
    bool checked;   /* its session lives, */
    bool stopped;   /* or is lost, but cannot be shut out yet: a step that it is in the middle of may go on */
};

#define READ_TRIES_MAX 4
#define BOOKS_TRIES_MAX 16

/* Whether a slot's session lives. 0: no, and none of its verbs can take effect any more. */
static int check_alive(struct census *c, uint32_t slot)
{
    const struct seat *seat = c->seat;
    uint64_t lease = c->lease;
    if (slot == seat->me->slot)
        return lease_state(lease) == SLOT_LIVE;
    int dead = seat_peer_dead(seat, slot, &lease);
    if (dead <= 0)
        return dead < 0 ? dead : 1;
    if (lease_state(lease) != SLOT_LOST)
        return 0; /* closed: it has shut itself out */
    if (MISTAKE(seat->space->design->mistakes, CITRON_NO_FENCE))
        return 0;
    int rc = seat_fence(seat, slot, lease_epoch(lease));
    if (rc != -EAGAIN || !c->j->near)
        return rc;
    c->stopped = true; /* see atomic_here: only a step that it has published as under way can still take place */
    return 1;
}

/* Claims and their record, of one use of the record. */
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
    if (record_index(word) == c->j->index)
        c->books += mix64(word ^ (uint64_t)record << RECORD_SERIAL_BITS); /* a record that is used again has another serial */
    return 0;
}

static int census_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct census *c = ctx;
    uint64_t words[DESC_WORDS];
    unsigned base;
    if (record_index(word) != c->j->index)
        return 0;
    sum_record(ctx, slot, record, word);
    if (!c->checked) {
        int rc = check_alive(c, slot);
        if (rc <= 0)
            return rc ? rc : 1;
        c->checked = true;
    }
    int rc = read_claims(c, slot, record, words, &word);
    enum record_state state = rc ? RECORD_FREE : record_state(word);
    bool changes = !rc && citron_is_marked(words[DESC_CHANGE], record_serial(word), lease_epoch(c->lease), &base);
    bool any = state != RECORD_FREE && state != RECORD_SPARE && state != RECORD_WAIT && record_index(word) == c->j->index;
    for (unsigned i = 0; i < CLAIMS_MAX && !rc && any; i++)
        if (words[i] >> CLAIM_STATE) {
            struct citron_claim claim = claim_of(words[i], c->j->height_max);
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

/* A hold that is cut in two hands claims to a record that may have been free when it was read. If the other half then goes, so does
 * the record that had them, and the tree does not show it. So if other records are in use afterwards, all are read once more.
 * Claims that are counted twice by that are there. */
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
    job_count(j, &citron_stats.censuses);
    struct census c = {.j = j, .seat = j->seat, .fn = fn, .ctx = ctx};
    return seat_slots(j->seat, census_slot, &c);
}

/* ---- a node ---- */

struct count {
    struct tree_node node;
    bool spill;
    uint32_t first;                                                          /* the ticket that is being served */
    uint32_t next;                                                           /* how far behind it the next one with an owner is */
    uint32_t below[HIGH_STRIPES], readers_here, readers_below[HIGH_STRIPES]; /* of nodes that are not high, the first */
    uint32_t tall[TALL_WORDS];                                               /* claims on tall nodes, wherever */
    bool unsure, tall_unsure;
};

/* Adds what the claim of a live session accounts for. */
static int count_claim(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct count *n = ctx;
    bool flux = c->state == CLAIM_FLUX || c->state == CLAIM_QUEUE;
    bool same = c->spill == n->spill && (c->spill || tree_same(c->node, n->node));
    unsigned stripe = node_is_high(n->node) ? slot % HIGH_STRIPES : 0;
    if (node_is_tall(c->node)) {
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
    n->unsure |= c->state == CLAIM_FLUX; /* a claim that queues has notified no ancestor */
    n->below[stripe] += c->state == CLAIM_HELD && !c->shared;
    n->readers_below[stripe] += c->state == CLAIM_HELD && c->shared;
    return 0;
}

/* The words that are counted anew. */
struct words {
    uint64_t node, readers;
    uint64_t stripes[HIGH_STRIPES];
    uint64_t tall[TALL_WORDS];
};

/* {Cnt, Max} of 16 bits each from `shift` on: lowers the count. */
static void lower_to(uint64_t *word, unsigned shift, uint32_t count)
{
    uint64_t max = field_get(*word, shift + 16, 16);
    if (((max - field_get(*word, shift, 16)) & 0xffff) > count)
        *word = field_set(*word, shift, 16, (max - count) & 0xffff);
}

/* The words as the live sessions account for them. */
static void correct(const struct count *n, struct words *w)
{
    uint64_t *word = &w->node;
    uint32_t queue = node_queue(*word);
    if (queue && n->next) { /* the ticket that is served has no owner */
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
    if (node_is_high(n->node))
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
    job_count(j, &citron_stats.repaired);
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

static void add_words(const struct citron_job *j, struct citron_batch *b, struct tree_node n, bool spill, struct words *was)
{
    const struct citron_claim at = {.spill = spill, .node = n};
    batch_read(b, job_claim_node(j, &at), &was->node, sizeof was->node);
    batch_read(b, job_claim_readers(j, &at), &was->readers, sizeof was->readers);
    if (node_is_high(n))
        batch_read(b, job_stripes(j, n), was->stripes, sizeof was->stripes);
    if (node_is_tall(n))
        batch_read(b, tall_addr(j, 0), was->tall, sizeof was->tall);
}

OWN_FRAME static int read_words(const struct citron_job *j, const struct tree_node *nodes, unsigned n, bool spill,
                                struct words *was)
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = 0; i < n; i++)
        add_words(j, &b, nodes[i], spill, &was[i]);
    return fab_batch(j->seat->ep, b.ops, b.n);
}

/* Sets a node to its count if its words are still what they were before the census. */
static int put_right(const struct citron_job *j, const struct count *n, const struct words *was)
{
    const struct citron_claim at = {.spill = n->spill, .node = n->node};
    struct words right = *was;
    if (n->unsure)
        return 1;
    correct(n, &right);
    assert(readers_here(right.readers) <= readers_here(was->readers) &&
           readers_below(right.readers) <= readers_below(was->readers));
    assert(node_below(right.node) <= node_below(was->node) && node_queue(right.node) <= node_queue(was->node)); /* I3 */
    int rc = replace(j, job_claim_readers(j, &at), was->readers, right.readers);
    if (!rc)
        rc = replace(j, job_claim_node(j, &at), was->node, right.node);
    for (unsigned i = 0; i < HIGH_STRIPES && node_is_high(n->node) && !rc; i++)
        rc = replace(j, job_stripes(j, n->node) + i * sizeof(uint64_t), was->stripes[i], right.stripes[i]);
    for (unsigned i = 0; i < TALL_WORDS && node_is_tall(n->node) && !rc; i++)
        rc = replace(j, tall_addr(j, i), was->tall[i], right.tall[i]);
    return rc ? rc : memcmp(was, &right, sizeof right) ? CITRON_REPAIRED : 0;
}

/* Whether a lost session may have found a crowd, with all claims that it had in flight: it cannot tell of it (batch.c). */
static bool may_be_crowd(const struct citron_job *j, const struct words *w, bool high)
{
    const uint32_t more = citron_in_flight_max(j->seat->space->slot_count);
    uint32_t most = node_queue(w->node), most_wide = readers_here(w->readers);
    if (!high)
        most = (uint32_t)max_u64(most, node_below(w->node));
    most_wide = (uint32_t)max_u64(most_wide, readers_below(w->readers));
    for (unsigned i = 0; i < HIGH_STRIPES && high; i++)
        most_wide = (uint32_t)max_u64(most_wide, max_u64(readers_here(w->stripes[i]), readers_below(w->stripes[i])));
    return most + more >= j->policy.crowd || most_wide + HIGH_STRIPES * 2 * more >= READERS_CLAIMS_MAX;
}

int citron_repair_some(const struct citron_job *j, const struct tree_node *nodes, unsigned n, bool spill)
{
    struct words was[REPAIR_MAX];
    struct counts counts = {.n = n};
    assert(n <= REPAIR_MAX && (!spill || !nodes[0].height)); /* the spillover is neither high nor tall */
    memset(was, 0, sizeof was);
    int rc = read_words(j, nodes, n, spill, was);
    for (unsigned i = 0; i < n && !rc; i++)
        rc = may_be_crowd(j, &was[i], node_is_high(nodes[i])) ? config_tell_crowd(j) : 0;
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

/* ---- searches by census ---- */

struct search {
    const struct citron_job *j;
    struct tree_node node; /* a leaf, or the parent of leaves */
    uint64_t bits;         /* of that leaf, or the word of a place in it */
    const struct citron_claim *claim;
    bool found;
};

static int search(struct search *s, claim_fn fn)
{
    int rc = citron_census(s->j, fn, s);
    return rc ? rc : s->found;
}

static int may_own_bits(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct search *s = ctx;
    if (c->spill || c->shared || (c->state != CLAIM_FLUX && c->state != CLAIM_HELD))
        return 0;
    if (c->node.height == 1)
        s->found |= tree_same(c->node, tree_parent(s->node));
    else if (!c->node.height)
        s->found |= tree_same(c->node, s->node) && bounds_mask(c->ticket) & s->bits;
    return 0;
}

int citron_leaf_owned(const struct citron_job *j, struct tree_node leaf, uint64_t bits)
{
    return search(&(struct search){.j = j, .node = leaf, .bits = bits}, may_own_bits);
}

/* The word names slot, epoch, record and serial; the census has the claims of live sessions. A claim that is being downgraded owns
 * a place before it is shared. */
static int owns_place(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct search *s = ctx;
    uint64_t owner = reader_word(slot, c->epoch, record, c->serial, 0) & READER_OWNER;
    s->found |= owner == (s->bits & READER_OWNER) && !c->spill && tree_same(c->node, s->node) &&
                (c->state == CLAIM_FLUX || c->state == CLAIM_HELD);
    return 0;
}

int citron_repair_place(const struct citron_job *j, struct tree_node leaf, unsigned place, uint64_t word)
{
    int rc = search(&(struct search){.j = j, .node = leaf, .bits = word}, owns_place);
    return rc < 0 ? rc : rc ? 0 : replace(j, job_places(j, leaf) + place * sizeof(uint64_t), word, 0);
}

static int in_own_way(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct search *s = ctx;
    if (slot != s->j->seat->me->slot || record == s->j->h->record || c->state != CLAIM_HELD || c->spill || s->claim->spill)
        return 0;
    s->found |= tree_contains(c->node, s->claim->node) || tree_contains(s->claim->node, c->node);
    return 0;
}

int citron_own_way(const struct citron_job *j, const struct citron_claim *c)
{
    return search(&(struct search){.j = j, .claim = c}, in_own_way);
}

/* ---- bits without an owner ---- */

static int is_below(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct search *s = ctx;
    bool own = slot == s->j->seat->me->slot && record == s->j->h->record;
    s->found |= !own && !c->spill && c->state >= CLAIM_FLUX && tree_contains(s->node, c->node);
    return 0;
}

OWN_FRAME static int clear_leaves(struct citron_job *j, struct tree_node parent, const uint64_t words[4])
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = 0; i < 4; i++)
        if (words[i]) {
            batch_mcas(&b, job_node(j, tree_child(parent, i)), words[i], words[i], 0, words[i]);
            job_count(j, &citron_stats.repaired);
        }
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

/* The job has the parent exclusively, and has waited until no claim was below. A client that set the bits, and is not gone,
 * published FLUX before it set them. If it looked up, it published FLUX before that, and that was before the job had the parent. If
 * it did not look, it may be gone when the census asks; but then it has notified the parent since. So if the census finds no claim,
 * and the parent has counted none from before the bits were read until after the census, they have no owner. They stay like that: a
 * client that wants them does not get them. Positive: ask again. */
static int scrub_once(struct citron_job *j, struct tree_node parent)
{
    uint64_t words[4], before, after;
    int rc = read_leaves(j, parent, &before, words);
    if (!rc)
        rc = search(&(struct search){.j = j, .node = parent}, is_below);
    if (rc)
        return rc == -EAGAIN ? 1 : rc;
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

/* Clients that look keep claims in the middle of a step for as long as the first patience (read_up_in_turn), and may begin when the
 * job gives its turn at another node to the next one. They step back while the job has the parent: it waits for that. */
int citron_scrub(struct citron_job *j, struct tree_node parent)
{
    assert(j->claims.n == 1 && tree_same(j->claims.at[0].node, parent) && !j->claims.at[0].shared); /* I1: no other client has it */
    uint64_t until = add_saturating(world_now(j->seat->world), 2 * j->policy.patience_ns);
    int rc = scrub_once(j, parent);
    for (unsigned tries = 1; rc > 0 && (tries < READ_TRIES_MAX || world_now(j->seat->world) < until); tries++)
        rc = scrub_once(j, parent);
    return rc > 0 ? 0 : rc;
}

/* ---- what the lock looks like ---- */

struct view {
    struct lock_view *out;
    uint32_t slot, record; /* of the latest claim that was counted */
    bool records_tell;     /* records tell which holds were granted; else a claim that waits for descendants counts, too */
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
    job_start(&j, seat, &h, DEADLINE_TRY);
    struct view v = {.out = &view, .slot = UINT32_MAX, .records_tell = j.near};
    int rc = token_newest(&j, &view.token);
    if (!rc)
        rc = citron_census(&j, view_claim, &v);
    if (rc && rc != -EAGAIN)
        return rc;
    *out = view;
    return 0;
}
