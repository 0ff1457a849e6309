/* SPDX-License-Identifier: Apache-2.0 */
/* Phases (c) and (d) of Algorithm 2: claiming a node, notifying its ancestors, and waiting for its descendants. Both phases are one
 * batch (3.8), which is all there is for leaves and nodes right above leaves if nothing is in the way. This file writes the places
 * and `took` of the job's claims.
 *
 * In a leaf, writers set bits and readers take places. A writer sets its bits and then reads the places; a reader takes its place
 * and then reads the bits. So one of them sees the other: the reader steps back, the writer stays and waits for the readers that
 * were there before (leaf.c). A writer reads the places only if the parent says that there have been readers, which it learns when
 * it notifies the parent. */
#include "designs/citron/steps.h"

#include <errno.h>
#include <string.h>

#define DRIFT_PER_10000 2 /* delta of 3.5.5 for both clocks: each is off by up to 1e-4 */
#define BATCH_ROOM 50     /* verbs for notifications and looks, of the 64 of a batch */
#define GROUP_MAX 2       /* leaves that are claimed together: a batch has room for the ancestors of so many */
#define WAIT_MUCH 16      /* T_wait is too long if it is so many times what a claim takes; at first it is about four times that */

void claim_init(struct claimed *c)
{
    c->leaves.below = c->leaves.looked = false;
    memset(c->leaves.flagged, 0, sizeof c->leaves.flagged);
    c->whole.had = c->whole.tried = false;
    c->parent_word = 0;
}

/* ---- groups ---- */

/* An internal node with leaves below it and nothing else: it needs no T_wait (FAST_LOW). */
static bool is_low(const struct citron_job *j, const struct citron_claim *c)
{
    return j->policy.fast == FAST_LOW && !c->spill && c->node.height == 1;
}

static bool is_quick(const struct citron_job *j, const struct citron_claim *c)
{
    return !claim_internal(c) || is_low(j, c);
}

unsigned claim_group_end(const struct citron_job *j, unsigned from)
{
    unsigned to = from + 1, height = config_height_notify(j->plan.config);
    unsigned group = 2 * (height / config_m_notify(j->plan.config) + height) > BATCH_ROOM ? 1 : GROUP_MAX;
    while (is_quick(j, &j->claims.at[from]) && to < j->claims.n && is_quick(j, &j->claims.at[to]) && to - from < group)
        to++;
    return to;
}

/* ---- leaves ---- */

/* A place that was free when it was read; without a look, one that other sessions rarely choose. */
static unsigned choose_place(const struct citron_job *j, unsigned i, const struct citron_leaves *l)
{
    unsigned first = (unsigned)((j->seat->me->slot * 5 + j->h->record + j->wait.places_tried) % LEAF_READERS);
    for (unsigned n = 0; n < LEAF_READERS && l->looked; n++)
        if (!l->places[i][(first + n) % LEAF_READERS])
            return (first + n) % LEAF_READERS;
    return first;
}

/* Lines 21 and 22. */
unsigned claim_leaf(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims.at[i];
    const uint64_t mask = bounds_mask(c->ticket);
    if (!j->plan.shared)
        return batch_mcas(b, job_node(j, c->node), 0, mask, mask, mask);
    c->place = (uint8_t)choose_place(j, i, l);
    unsigned op = batch_mcas(b, citron_place_addr(j, c), 0, UINT64_MAX, citron_place_word(j, c), UINT64_MAX);
    if (!l->flagged[i])
        batch_mcas(b, job_node(j, tree_parent(c->node)), 0, 0, NODE_BELOW, NODE_BELOW);
    return op;
}

void claim_leaf_check(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l)
{
    l->checked = j->plan.shared || l->below;
    for (unsigned i = from; i < to; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if (claim_internal(c))
            continue;
        if (j->plan.shared) {
            batch_read(b, job_node(j, c->node), &l->bits[i], sizeof l->bits[i]);
            batch_read(b, job_node(j, tree_parent(c->node)), &l->parents[i], sizeof l->parents[i]);
        } else if (l->below) {
            batch_read(b, job_places(j, c->node), l->places[i], LEAF_READERS_BYTES);
        }
    }
}

void claim_leaf_see(struct citron_job *j, unsigned i, uint64_t old, struct citron_leaves *l)
{
    struct citron_claim *c = &j->claims.at[i];
    if (claim_internal(c)) {
        /* A turn has one owner, and ends with the writer's Occ: the node has this turn, and no other writer (I1). */
        assert((node_field(old, NODE_TCNT) == c->ticket && !(old & NODE_OCC)) || citron_errs(j, CITRON_ANY));
        return;
    }
    c->took = j->plan.shared ? !old : !(old & bounds_mask(c->ticket));
    if (!j->plan.shared)
        l->bits[i] = old;
}

/* A hold that upgrades is not in its own way. */
int claim_find_reader(const struct citron_job *j, const struct citron_claim *c, const uint64_t places[LEAF_READERS])
{
    uint64_t own = citron_place_word(j, c);
    for (unsigned n = 0; n < LEAF_READERS; n++)
        if (places[n] && bounds_mask(c->ticket) & bounds_mask(reader_bounds(places[n])) &&
            !(j->plan.upgrades && (places[n] & READER_OWNER) == (own & READER_OWNER)))
            return (int)n;
    return -1;
}

/* ---- (c) and lines 29 to 31: one batch ---- */

/* Lines 20 to 28: the node itself. Returns the verb that tells whether it was had. */
static unsigned add_node(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *leaves)
{
    const struct citron_claim *c = &j->claims.at[i];
    uint64_t turn = (uint64_t)c->ticket << NODE_TCNT, next = (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT;
    if (!claim_internal(c))
        return claim_leaf(j, b, i, leaves);
    batch_tall(j, b, c, true);
    if (!j->plan.shared)
        return batch_mcas(b, job_claim_node(j, c), turn, NODE_T_MASK, NODE_OCC, NODE_OCC);
    /* A reader is counted, and passes the turn on: other readers may read with it. */
    batch_mfaa(b, job_claim_readers(j, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    return batch_mcas(b, job_claim_node(j, c), turn, NODE_T_MASK, next | NODE_SHARED, NODE_T_MASK | NODE_SHARED);
}

/* A client that has looked has said FLUX already, but for a claim that has just learned its ticket. */
static void say_claiming(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to)
{
    if (j->look.blind)
        job_say(j, b, from, to, CLAIM_FLUX);
    for (unsigned i = from; i < to; i++)
        if (j->claims.at[i].state == CLAIM_TURN)
            job_say(j, b, i, i + 1, CLAIM_FLUX);
    for (unsigned i = from; i < to; i++)
        assert(j->claims.at[i].state == CLAIM_FLUX); /* I5 */
}

/* A leaf's parent, in the word that counts the notification or that was read after it: if it is taken, its owner need not wait for
 * this claim. */
static void see_parent(const struct citron_job *j, struct tree_node parent, uint64_t word, struct claimed *c)
{
    if (!(word & (NODE_OCC | (j->plan.shared ? 0 : NODE_SHARED))))
        return;
    c->parent = parent;
    c->parent_word = word;
}

static void see_parents(const struct citron_job *j, const struct citron_batch *b, unsigned from, unsigned to,
                        const struct tally *known, struct claimed *c)
{
    for (unsigned i = 0; i < known->n && !j->plan.shared; i++) {
        uint64_t old = batch_old(b, known->first_op + i);
        if (known->nodes[i].height == 1) {
            c->leaves.below |= old & NODE_BELOW;
            see_parent(j, known->nodes[i], old, c);
        }
    }
    for (unsigned i = from; i < to && j->plan.shared; i++)
        if (!claim_internal(&j->claims.at[i]))
            see_parent(j, tree_parent(j->claims.at[i].node), c->leaves.parents[i], c);
}

OWN_FRAME static int claim_batch(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    struct citron_batch b;
    struct tally known;
    unsigned ops[CLAIMS_MAX];
    known.n = 0;
    batch_start(&b);
    say_claiming(j, &b, from, to);
    for (unsigned i = from; i < to; i++) /* lines 20 to 28 */
        ops[i] = add_node(j, &b, i, &c->leaves);
    for (unsigned i = from; i < to; i++)
        if (is_low(j, &j->claims.at[i]) && !j->plan.shared)
            batch_read(&b, job_readers(j, j->claims.at[i].node), &c->readers[i], sizeof c->readers[i]);
    if (j->policy.fast == FAST_PRINTED)
        leaf_whole_add(j, &b, from, &c->whole);
    for (unsigned i = from; i < to; i++) /* lines 30 and 31 */
        tally_add(j, &known, &j->claims.at[i]);
    batch_tally(&b, &known, true);
    claim_leaf_check(j, &b, from, to, &c->leaves);
    if (config_confirms(j->plan.config)) {
        look_list(j, from, to, &c->look);
        look_add(j, &b, &c->look);
    }
    token_draw(j, &b); /* and a READ of the head, which stands for the root of line 31 */
    job_say(j, &b, from, to, CLAIM_HELD);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    token_drew(j, &b);
    c->at_ns = world_now(j->seat->world); /* line 29: t0, and t2 */
    for (unsigned i = from; i < to; i++) {
        c->old[i] = batch_old(&b, ops[i]);
        claim_leaf_see(j, i, c->old[i], &c->leaves);
    }
    if (c->whole.tried)
        leaf_whole_see(&b, &c->whole);
    see_parents(j, &b, from, to, &known, c);
    return crowd_found(j, &b, from, to);
}

int claim_nodes(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    int rc = claim_batch(j, from, to, c), told = rc == -FAB_EUNKNOWN ? crowd_doubt(j, from, to, -1) : 0;
    return told ? told : rc;
}

/* Bits of leaves that other clients have stay, whatever becomes of the claim: what the claim says must be true before it is given
 * back. */
static int leave_whole(struct citron_job *j, unsigned i, const struct citron_whole *w)
{
    return w->tried && !w->had ? leaf_whole_leave(j, i, w) : 0;
}

int claim_undo(struct citron_job *j, unsigned from, unsigned to, struct claimed *c, int rc)
{
    if (rc == -FAB_EUNKNOWN)
        return job_doubt_all(j, from, to);
    int left = rc == -PAWL_ELIMIT ? leave_whole(j, from, &c->whole) : 0;
    return left ? left : rc;
}

/* ---- (d), lines 32 and 33: was the claim known in time? ---- */

/* From the look until the ancestors were notified: t2 - t1. */
static uint64_t took_ns(const struct citron_job *j, const struct claimed *c)
{
    return c->at_ns - j->look.looked_ns;
}

/* A client that has not notified its ancestors within T_wait (inequation 1), or has not looked at them, must look once more. This
 * is about tall nodes only: if none was claimed after the notifications, every later client finds them. */
static bool too_late(const struct citron_job *j, unsigned from, const struct claimed *c)
{
    const struct citron_claim *claim = &j->claims.at[from];
    if (claim->spill || claim->node.height >= j->plan.config.height)
        return false; /* it has no ancestors */
    uint64_t limit = j->look.limit_ns;
    bool late = j->look.peeked || took_ns(j, c) > limit - limit * DRIFT_PER_10000 / 10000;
    return !config_confirms(j->plan.config) && late && look_reach(j, j->token.head) && !citron_errs(j, CITRON_NO_ABORT);
}

struct group {
    unsigned from, to;
    struct look *look;
};

static void add_look(struct citron_job *j, struct citron_batch *b, void *ctx)
{
    const struct group *g = ctx;
    look_list(j, g->from, g->to, g->look);
    look_add(j, b, g->look);
}

/* A look after the notifications finds every client that has an ancestor and missed them, and later clients miss nothing. With it
 * comes another token: a client that had an ancestor and is gone has a later one than was drawn before. A job that confirms has
 * looked in the batch of its notifications, but at tall nodes only if it knew of any. Returns whether there is a look, or an error.
 */
static int second_look(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    struct group g = {from, to, &c->look};
    bool confirms = config_confirms(j->plan.config), late = too_late(j, from, c);
    bool missed = (confirms || late) && look_misses_tall(j, j->token.head);
    if (late)
        job_count(j, &citron_stats.late);
    int rc = late || missed ? token_after(j, add_look, &g) : 0;
    if (!rc && late && took_ns(j, c) > 2 * j->look.limit_ns)
        rc = config_wait_longer(j);
    return rc ? rc : confirms || late;
}

int claim_check(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    int rc = leave_whole(j, from, &c->whole);
    if (rc)
        return rc;
    if (!look_same_config(j, j->token.head)) /* line 33 */
        return job_start_anew(j, j->token.head[HEAD_CONFIG]);
    int looked = second_look(j, from, to, c); /* line 32 */
    if (looked < 0)
        return looked;
    int at = looked ? look_find(j, &c->look) : -1;
    if (at < 0 && !c->parent_word)
        return 0;
    rc = job_drop_all(j, from, true);
    look_skip_blind(j);
    if (at >= 0)
        job_count(j, &citron_stats.aborts);
    if (rc)
        return rc;
    return c->parent_word ? wait_ancestor(j, from, to, c->parent, c->parent_word)
                          : wait_ancestor(j, from, to, c->look.nodes[at], c->look.words[at]);
}

/* ---- (d), lines 34 to 36: waiting for descendants ---- */

/* The nodes of m levels: (4^5 - 1) / 3 at most. High nodes have several words each. */
#define BELOW_NODES_MAX 341

struct below {
    unsigned n;    /* nodes, from the highest level down */
    uint64_t here; /* the word beside the node itself: its own readers */
    uint64_t
        writers[BELOW_NODES_MAX * HIGH_STRIPES]; /* the nodes' words, and the stripes of high nodes, which count readers, too */
    uint64_t readers[BELOW_NODES_MAX];
};

/* How much of what a node, or the spillover, counts belongs to this job's hold already, and is not in its way. */
struct own {
    uint32_t below, readers_here, readers_below;
};

static struct own own_at(const struct citron_job *j, struct tree_node n, bool spill)
{
    struct own own = {0};
    for (unsigned i = 0; i < j->claims.base; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if (c->spill != spill)
            continue;
        if (spill || tree_same(c->node, n))
            own.readers_here += c->shared;
        else if (tree_contains(n, c->node) && tree_notifies(c->node.height, c->m, c->top, n.height))
            ++*(c->shared ? &own.readers_below : &own.below);
    }
    return own;
}

static void read_block(struct citron_batch *b, fab_addr addr, uint64_t *to, unsigned words)
{
    for (unsigned n; words; words -= n, addr += n * sizeof *to, to += n) {
        n = words < FAB_LEN_MAX / sizeof *to ? words : FAB_LEN_MAX / sizeof *to;
        batch_read(b, addr, to, (uint16_t)(n * sizeof *to));
    }
}

static unsigned words_of(struct tree_node n)
{
    return node_is_high(n) ? HIGH_STRIPES : 1;
}

/* Line 35: the node and its internal descendants within m levels, a block of each level. The spillover has readers, and nothing
 * below it. */
static void add_below(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, struct below *out)
{
    const unsigned top = c->node.height, m = config_m_check(j->plan.config), lowest = top >= m ? top - m + 1 : 1;
    unsigned words = 0;
    out->n = 0;
    for (unsigned h = top; h >= lowest && !c->spill; h--) {
        unsigned count = (unsigned)tree_pow4(top - h);
        struct tree_node first = {.height = (uint8_t)h, .number = c->node.number << (2 * (top - h))};
        fab_addr addr = node_is_high(first) ? job_stripes(j, first) : job_node(j, first);
        read_block(b, addr, &out->writers[words], count * words_of(first));
        if (!j->plan.shared && !node_is_high(first))
            read_block(b, job_readers(j, first), &out->readers[out->n], count);
        out->n += count;
        words += count * words_of(first);
    }
    out->here = 0;
    if (!j->plan.shared || c->spill)
        batch_read(b, job_claim_readers(j, c), &out->here, sizeof out->here);
}

/* The node of the i-th word. */
static struct tree_node below_at(const struct citron_claim *c, unsigned i)
{
    unsigned depth = 0;
    while (i >= tree_nodes(depth))
        depth++;
    uint64_t first = depth ? tree_nodes(depth - 1) : 0;
    return (struct tree_node){.height = (uint8_t)(c->node.height - depth), .number = (c->node.number << 2 * depth) + i - first};
}

/* A condition that holds while one half of a word stays as it is; 1 for the lower half, 2 for the upper. */
static bool wait_for_half(fab_addr addr, uint64_t word, unsigned half, struct fab_cond *cond)
{
    const uint64_t mask = half == 1 ? UINT32_MAX : UINT64_C(0xffffffff) << 32;
    *cond = (struct fab_cond){.addr = addr, .mask = half ? mask : 0, .value = half ? word & mask : 0};
    return half;
}

/* A stripe of a high node: the lower half counts writers and the upper half readers. */
static bool stripe_busy(const struct citron_job *j, struct own own, fab_addr addr, uint64_t word, struct fab_cond *cond)
{
    unsigned upper = !j->plan.shared && readers_below(word) > own.readers_below ? 2 : 0;
    return wait_for_half(addr, word, readers_here(word) > own.below ? 1 : upper, cond);
}

/* Whether a claim is still there: at which node, and the condition that holds until it changes. */
static bool find_below(const struct citron_job *j, const struct citron_claim *c, const struct below *d, struct tree_node *at,
                       struct fab_cond *cond)
{
    *at = c->node;
    if (!j->plan.shared && readers_here(d->here) > own_at(j, c->node, c->spill).readers_here)
        return wait_for_half(job_claim_readers(j, c), d->here, 1, cond);
    for (unsigned i = 0, word = 0; i < d->n; word += words_of(*at), i++) {
        *at = below_at(c, i);
        const struct own own = own_at(j, *at, false), none = {0};
        for (unsigned k = 0; k < HIGH_STRIPES && node_is_high(*at); k++)
            if (stripe_busy(j, k == j->seat->me->slot % HIGH_STRIPES ? own : none, job_stripes(j, *at) + k * sizeof(uint64_t),
                            d->writers[word + k], cond))
                return true;
        if (node_is_high(*at))
            continue;
        if (node_below(d->writers[word]) > own.below) {
            *cond = (struct fab_cond){.addr = job_node(j, *at), .mask = NODE_D_MASK, .value = d->writers[word] & NODE_D_MASK};
            return true;
        }
        if (!j->plan.shared && readers_below(d->readers[i]) > own.readers_below)
            return wait_for_half(job_readers(j, *at), d->readers[i], 2, cond);
    }
    return false;
}

/* One look: 0 if no claim is there any more. Then the token, which was drawn last, lies above those of all claims that were. */
OWN_FRAME static int look_below(struct citron_job *j, const struct citron_claim *c, struct tree_node *at, struct fab_cond *cond)
{
    struct citron_batch b;
    struct below d;
    batch_start(&b);
    add_below(j, &b, c, &d);
    token_draw(j, &b);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    if (find_below(j, c, &d, at, cond))
        return 1;
    token_drew(j, &b);
    return 0;
}

/* Lines 35 and 36. */
static int drain_below(struct citron_job *j, const struct citron_claim *c)
{
    for (;;) {
        struct tree_node at = {0};
        struct fab_cond cond;
        uint64_t seen;
        int rc = look_below(j, c, &at, &cond);
        if (!rc)
            return 0;
        rc = rc < 0 ? seat_retry(j->seat, rc) : job_wait_at(j, at, c->spill, &cond, &seen);
        if (rc)
            return rc;
    }
}

/* Line 34: until every client below that could not know of this claim has notified it. t0 is when the verb of Occ was complete. */
static int wait_out(struct citron_job *j, const struct claimed *c)
{
    uint64_t wait_ns = config_wait_ns(j->plan.config), until = add_saturating(c->at_ns, wait_ns);
    if (citron_errs(j, CITRON_NO_WAIT))
        return 0;
    while (world_now(j->seat->world) < until) {
        int rc = fab_wait_any(j->seat->ep, NULL, 0, until);
        if (rc && rc != -ETIMEDOUT)
            return rc;
    }
    if (!seat_lives(j->seat))
        return -PAWL_ELOST;
    bool much = !config_confirms(j->plan.config) && !j->plan.config.set && took_ns(j, c) <= wait_ns / WAIT_MUCH;
    return much ? config_wait_shorter(j) : 0;
}

/* No claim was known below at the moment of Occ, and later clients see Occ: neither T_wait nor a look down is needed. */
static bool low_good(const struct citron_job *j, unsigned i, const struct claimed *c)
{
    const struct own own = own_at(j, j->claims.at[i].node, false);
    return node_below(c->old[i]) <= own.below && (j->plan.shared || (readers_here(c->readers[i]) <= own.readers_here &&
                                                                     readers_below(c->readers[i]) <= own.readers_below));
}

/* Whether all of the leaf was had at once. */
static bool leaf_good(const struct citron_job *j, unsigned i, const struct citron_leaves *l)
{
    const struct citron_claim *c = &j->claims.at[i];
    if (!c->took)
        return false;
    return j->plan.shared ? !(l->bits[i] & bounds_mask(c->ticket))
                          : !l->below || (l->checked && claim_find_reader(j, c, l->places[i]) < 0);
}

static int settle_internal(struct citron_job *j, unsigned i, const struct claimed *c)
{
    if (c->whole.had)
        return 0;
    int rc = is_low(j, &j->claims.at[i]) ? 0 : wait_out(j, c);
    return rc ? rc : drain_below(j, &j->claims.at[i]);
}

int claim_settle(struct citron_job *j, unsigned from, unsigned *to, struct claimed *c)
{
    for (unsigned i = from; i < *to; i++) {
        bool leaf = !claim_internal(&j->claims.at[i]);
        assert(j->claims.at[i].state == CLAIM_HELD); /* I5: published, whether it is complete or not */
        if (leaf ? leaf_good(j, i, &c->leaves) : is_low(j, &j->claims.at[i]) && low_good(j, i, c))
            continue;
        int rc = i + 1 < *to ? job_drop_all(j, i + 1, true) : 0; /* a job that waits has no claims further up */
        *to = i + 1;
        if (!rc)
            rc = leaf ? leaf_settle(j, i, &c->leaves) : settle_internal(j, i, c);
        if (rc != JOB_WAITED || i == from)
            return rc;
        *to = i; /* the claims before it stay */
        return 0;
    }
    return 0;
}
