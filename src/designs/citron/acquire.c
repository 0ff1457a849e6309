/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithm 2. For a range of several nodes it differs in one point: first all turns at internal nodes are taken (a), in ascending
 * order, and then the nodes are claimed (b, c, d), in ascending order; and nobody waits for an ancestor (b) with a claim on
 * anything. As printed, three clients can wait for each other: one at a high node for a leaf below it, its holder for a turn at
 * another node below, and who has that turn for the first one to leave. */
#include "designs/citron/citron.h"

#include <errno.h>
#include <string.h>

#define DRIFT_PER_10000 2 /* delta of 3.5.5 for both clocks: each is off by up to 1e-4 */
#define BATCH_ROOM 50     /* for what is made known and looked at, of the 64 verbs of a batch */
#define TALL_IDLE_MAX 1024
#define GROUP_MAX 2 /* leaves that are claimed at once: so many have room for their ancestors in a batch */

/* ---- phases (c) and (d): claiming and making known ---- */

/* How long it took from the look to having made itself known (t2 at completion). */
static uint64_t took_ns(const struct citron_job *j)
{
    return j->claimed_ns - j->looked_ns;
}

/* Who was not known within T_wait to whom it concerns must not go on (inequation 1) without having looked once more, nor who has
 * not looked at them at all. It concerns those who have a tall node: if there was none after all was known, whoever comes finds it.
 */
static bool too_late(const struct citron_job *j, const struct citron_claim *c)
{
    if (c->spill || c->node.height >= j->config.height)
        return false; /* nobody is above */
    uint64_t limit = j->limit_ns;
    bool late = j->peeked || took_ns(j) > limit - limit * DRIFT_PER_10000 / 10000;
    return !config_confirms(j->config) && late && look_reach(j, j->draw.head) && !citron_errs(j, CITRON_NO_ABORT);
}

struct notified {
    unsigned n;
    struct tree_node nodes[CLAIMS_MAX * TREE_HEIGHT_MAX];
};

/* Each notified ancestor once, with as many as there are. */
static void add_notifications(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct notified *out)
{
    struct tree_node *nodes = out->nodes;
    uint64_t counts[CLAIMS_MAX * TREE_HEIGHT_MAX];
    unsigned n = 0;
    for (unsigned i = from; i < to; i++) {
        const struct citron_claim *c = &j->claims[i];
        uint8_t heights[TREE_HEIGHT_MAX];
        unsigned notified = c->spill ? 0 : tree_notified(c->node.height, c->m, c->top, heights);
        for (unsigned k = 0; k < notified; k++) {
            struct tree_node above = tree_above(c->node, heights[k]);
            unsigned at = 0;
            while (at < n && !tree_same(nodes[at], above))
                at++;
            if (at == n) {
                nodes[n] = above;
                counts[n++] = 0;
            }
            counts[at]++;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        struct citron_known k = job_known(j, nodes[i], j->shared);
        batch_mfaa(b, k.addr, counts[i] * k.come, k.tops);
    }
    out->n = n;
}

/* The node of a group's claim itself. Returns the verb that tells whether it was had. */
static unsigned add_claim(struct citron_job *j, struct citron_batch *b, unsigned i, const struct citron_leaves *leaves)
{
    struct citron_claim *c = &j->claims[i];
    fab_addr addr = job_claim_node(j, c);
    uint64_t turn = (uint64_t)c->ticket << NODE_TCNT;
    if (!claim_internal(c))
        return citron_leaf_add(j, b, i, leaves);
    citron_add_tall(j, b, c, true);
    if (!j->shared)
        return batch_mcas(b, addr, turn, NODE_T_MASK, NODE_OCC, NODE_OCC);
    /* A reader is counted, and passes the turn on: others may read with it. */
    batch_mfaa(b, job_claim_readers(j, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    return batch_mcas(b, addr, turn, NODE_T_MASK, (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT | NODE_SHARED,
                      NODE_T_MASK | NODE_SHARED);
}

/* What a batch of claims has come to. */
struct claimed {
    struct look look;
    uint64_t old[CLAIMS_MAX];     /* what the verb that claims found */
    uint64_t readers[CLAIMS_MAX]; /* beside the node, after that */
    struct tree_node parent;      /* of a leaf: somebody has it, */
    uint64_t parent_word;         /* if this is not 0 */
    struct citron_leaves leaves;
    struct citron_whole whole;
};

/* A leaf's parent, in the word that counts the claim or read after it was counted: who has it need not wait for late ones. */
static void see_parent(const struct citron_job *j, struct tree_node parent, uint64_t word, struct claimed *out)
{
    if (!(word & (NODE_OCC | (j->shared ? 0 : NODE_SHARED))))
        return;
    out->parent = parent;
    out->parent_word = word;
}

/* An internal node that has leaves below it and nothing else. */
static bool claim_low(const struct citron_job *j, const struct citron_claim *c)
{
    return citron_knob(j, CITRON_FAST) == FAST_LOW && !c->spill && c->node.height == 1;
}
static bool claim_quick(const struct citron_job *j, const struct citron_claim *c)
{
    return !claim_internal(c) || claim_low(j, c);
}

OWN_FRAME static int claim_batch(struct citron_job *j, unsigned from, unsigned to, struct claimed *out)
{
    struct citron_batch b;
    unsigned ops[CLAIMS_MAX];
    bool confirm = config_confirms(j->config);
    batch_start(&b);
    if (j->blind)
        job_say(j, &b, from, to, CLAIM_FLUX);
    for (unsigned i = from; i < to; i++)
        if (j->claims[i].state == CLAIM_TURN) /* it has just learned which */
            job_say(j, &b, i, i + 1, CLAIM_FLUX);
    for (unsigned i = from; i < to; i++)
        ops[i] = add_claim(j, &b, i, &out->leaves);
    for (unsigned i = from; i < to; i++)
        if (claim_low(j, &j->claims[i]) && !j->shared)
            batch_read(&b, job_readers(j, j->claims[i].node), &out->readers[i], sizeof out->readers[i]);
    citron_whole_add(j, &b, from, &out->whole);
    struct notified known;
    unsigned first = b.n;
    add_notifications(j, &b, from, to, &known);
    citron_leaves_check(j, &b, from, to, &out->leaves);
    if (confirm) {
        look_list(j, from, to, &out->look);
        look_add(j, &b, &out->look);
    }
    job_draw(j, &b);
    job_say(j, &b, from, to, CLAIM_HELD);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    job_drew(j, &b);
    j->claimed_ns = world_now(j->seat->world);
    for (unsigned i = from; i < to; i++) {
        out->old[i] = batch_old(&b, ops[i]);
        citron_leaf_see(j, i, out->old[i], &out->leaves);
    }
    citron_whole_see(j, &b, from, &out->whole);
    for (unsigned i = 0; i < known.n; i++) {
        uint64_t old = batch_old(&b, first + i);
        if (known.nodes[i].height == 1 && !j->shared) {
            out->leaves.below |= old & NODE_BELOW;
            see_parent(j, known.nodes[i], old, out);
        }
    }
    for (unsigned i = from; i < to; i++)
        if (!claim_internal(&j->claims[i]) && j->shared)
            see_parent(j, tree_parent(j->claims[i].node), out->leaves.parents[i], out);
    return crowd_found(j, &b, from, to);
}

int job_doubt_all(struct citron_job *j, unsigned from, unsigned to)
{
    int rc = seat_retry(j->seat, -FAB_EUNKNOWN);
    for (unsigned i = from; i < to && !rc; i++)
        rc = job_doubt(j, i);
    return rc ? rc : JOB_WAITED;
}

/* ---- a group: one internal node, or leaves and nodes right above them in a row ---- */

static unsigned group_end(const struct citron_job *j, unsigned from)
{
    unsigned to = from + 1, height = config_height_notify(j->config);
    unsigned group = 2 * (height / config_m_notify(j->config) + height) > BATCH_ROOM ? 1 : GROUP_MAX;
    while (claim_quick(j, &j->claims[from]) && to < j->count && claim_quick(j, &j->claims[to]) && to - from < group)
        to++;
    return to;
}

/* Nobody was known at the very moment of Occ, and whoever comes later sees that: neither T_wait nor a look down. */
static bool low_good(const struct citron_job *j, unsigned i, const struct claimed *c)
{
    const struct citron_own own = job_own_at(j, j->claims[i].node, false);
    return node_below(c->old[i]) <= own.below &&
           (j->shared || (readers_here(c->readers[i]) <= own.readers_here && readers_below(c->readers[i]) <= own.readers_below));
}

static int claim_internal_node(struct citron_job *j, unsigned i, const struct citron_whole *whole)
{
    if (whole->had)
        return 0;
    int rc = claim_low(j, &j->claims[i]) ? 0 : job_wait_out(j);
    if (!rc)
        rc = job_drain_below(j, i);
    return rc;
}

/* A look after one is known: whoever has an ancestor and missed that is found, and whoever comes later misses nothing. With it the
 * token once more: who was there and is gone has a later one than was drawn before. */
OWN_FRAME static int look_again(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        look_list(j, from, to, &c->look);
        look_add(j, &b, &c->look);
        job_draw(j, &b);
        int rc = job_run(j, &b);
        if (!rc)
            job_drew(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* Who confirms has looked in the batch that made it known, but at tall nodes only if it knew of any. Who was late has not. Returns
 * whether there is a look, or an error. */
static int second_look(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    bool confirms = config_confirms(j->config), late = too_late(j, &j->claims[from]);
    bool missed = (confirms || late) && look_misses_tall(j, j->draw.head);
    if (late && !fab_is_shm(j->seat->ep))
        citron_stats.late++;
    int rc = late || missed ? look_again(j, from, to, c) : 0;
    if (!rc && late && took_ns(j) > 2 * j->limit_ns)
        rc = citron_wait_longer(j);
    return rc ? rc : confirms || late;
}

/* After the batch: is it all ours? *to becomes less if only the first are. */
static int settle_group(struct citron_job *j, unsigned from, unsigned *to, struct claimed *c)
{
    if (j->draw.head[HEAD_CONFIG] != j->config_word && !job_only_wait_changed(j, j->draw.head[HEAD_CONFIG]))
        return job_start_anew(j, j->draw.head[HEAD_CONFIG]);
    int looked = second_look(j, from, *to, c);
    if (looked < 0)
        return looked;
    int at = looked ? look_find(j, &c->look) : -1;
    if (at >= 0 || c->parent_word) {
        int rc = job_drop_all(j, from, true);
        job_be_shy(j);
        if (!fab_is_shm(j->seat->ep))
            citron_stats.aborts += at >= 0;
        if (rc)
            return rc;
        return c->parent_word ? look_wait(j, from, *to, c->parent, c->parent_word)
                              : look_wait(j, from, *to, c->look.nodes[at], c->look.words[at]);
    }
    for (unsigned i = from; i < *to; i++) {
        bool leaf = !claim_internal(&j->claims[i]);
        if (leaf ? citron_leaf_good(j, i, &c->leaves) : claim_low(j, &j->claims[i]) && low_good(j, i, c))
            continue;
        int rc = i + 1 < *to ? job_drop_all(j, i + 1, true) : 0; /* who waits has nothing further up */
        *to = i + 1;
        if (!rc)
            rc = leaf ? citron_leaf_settle(j, i, &c->leaves) : claim_internal_node(j, i, &c->whole);
        if (rc != JOB_WAITED || i == from)
            return rc;
        *to = i; /* those before it stay */
        return 0;
    }
    return 0;
}

static int claim_in_air(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    int rc = claim_batch(j, from, to, c), told = rc == -FAB_EUNKNOWN ? crowd_doubt(j, from, to, -1) : 0;
    return told ? told : rc;
}

/* Leaves of somebody who is far away, and nobody is known to have a node above them: then there is nothing to look at first. Who
 * has the parent is seen in the word that counts the claim, and whether somebody has a tall node in the head, which is read after
 * that. */
static bool may_claim_blindly(const struct citron_job *j, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        if (claim_internal(&j->claims[i]))
            return false;
    return !fab_is_shm(j->seat->ep) && !config_confirms(j->config) && j->reach == LOOK_PARENTS && job_waits_known(j) &&
           j->pending < 0 && !j->passed && !job_is_shy(j);
}

/* Not if there was a crowd: then it looks (1). */
static int start_blindly(struct citron_job *j, unsigned from, unsigned to)
{
    int rc = job_take_off(j, from, to, -1);
    if (rc || j->flight.wary)
        return rc ? rc : 1;
    j->looked_ns = world_now(j->seat->world);
    j->limit_ns = config_wait_ns(config_of(j->config_word));
    j->blind = j->peeked = true;
    return 0;
}

static int claim_group(struct citron_job *j, unsigned from, unsigned *to)
{
    struct claimed c;
    citron_leaves_start(&c.leaves);
    c.whole.had = c.whole.tried = false;
    c.parent_word = 0;
    j->blind = false;
    int rc = may_claim_blindly(j, from, *to) ? start_blindly(j, from, *to) : 1;
    if (rc > 0)
        rc = look_up(j, from, *to, &c.leaves);
    if (!rc)
        rc = claim_in_air(j, from, *to, &c);
    job_land(j);
    if (rc == -FAB_EUNKNOWN)
        return job_doubt_all(j, from, *to);
    if (rc && rc != -PAWL_ELIMIT)
        return rc;
    /* Bits that are others' stay, whatever becomes of the rest: what the claim says it has must be true before it is given back. */
    int left = c.whole.tried && !c.whole.had ? citron_whole_leave(j, from, &c.whole) : 0;
    if (left || rc)
        return left ? left : rc;
    return settle_group(j, from, to, &c);
}

/* Whoever waits for a turn has turns before it and nothing else. A reader that stepped back needs another turn. */
static int turns_first(struct citron_job *j, unsigned *at)
{
    unsigned first = j->base;
    while (first < j->count && (!claim_internal(&j->claims[first]) || j->claims[first].state > CLAIM_QUEUE))
        first++;
    if (first == j->count)
        return 0;
    int rc = job_drop_all(j, j->base, true);
    if (!rc)
        rc = job_drop_all(j, first + 1, false);
    *at = j->base;
    unsigned last = j->count - 1;
    while (!claim_internal(&j->claims[last]))
        last--;
    bool with_look = j->deadline != DEADLINE_TRY && !j->upgrades && !j->claims[last].spill && !j->crowded && !j->config.crowded;
    j->pending = -1;
    if (!rc)
        rc = job_take_turns(j, with_look ? last : j->count);
    if (!rc && with_look)
        j->pending = (int)last; /* its turn is asked for when looking up */
    return rc;
}

int job_acquire(struct citron_job *j)
{
    for (unsigned i = j->base; i < j->count;) {
        int rc = turns_first(j, &i);
        unsigned to = group_end(j, i);
        if (!rc)
            rc = claim_group(j, i, &to);
        if (rc == JOB_WAITED) {
            /* Whoever waited for an ancestor has given back what it had. */
            while (i > j->base && j->claims[i - 1].state != CLAIM_HELD)
                i--;
            continue;
        }
        if (rc)
            return rc;
        j->patience_ns = job_patience_ns(j);
        j->blocked = j->passed = 0;
        i = to;
    }
    return 0;
}

/* ---- a range ---- */

static void add(struct citron_job *j, struct citron_claim c)
{
    c.state = CLAIM_WAIT;
    c.shared = j->shared;
    c.m = (uint8_t)config_m_notify(j->config);
    c.top = (uint8_t)config_height_notify(j->config);
    assert(j->count < CLAIMS_MAX);
    j->claims[j->count++] = c;
}

void job_add(struct citron_job *j, struct tree_node n, uint64_t start, uint64_t end)
{
    add(j, (struct citron_claim){.node = n, .ticket = n.height ? 0 : bounds_of(n, start, end)});
}

void job_add_spill(struct citron_job *j)
{
    add(j, (struct citron_claim){.spill = true});
}

/* Algorithm 1: what lies in the tree, split into nodes, and what lies beyond it. */
static void plan(struct citron_job *j)
{
    uint64_t units = tree_units(j->config.height), end = min_u64(j->h->end, units);
    struct tree_node nodes[TREE_SPLIT_MAX];
    unsigned n = 0;
    j->shared = j->h->mode == PAWL_SHARED && !j->scrub;
    if (j->h->start < units) {
        if (j->scrub)
            nodes[n++] = j->scrub_at;
        else if (j->escalated)
            nodes[n++] = j->escalate_to;
        else
            n = tree_split(j->h->start, end, j->config.height, j->exact ? TREE_SPLIT_MAX : citron_knob(j, CITRON_K), nodes);
    }
    j->count = 0;
    j->pending = -1;
    for (unsigned i = 0; i < n; i++)
        job_add(j, nodes[i], j->h->start, j->h->end);
    if (j->h->end > units && !j->scrub)
        job_add_spill(j);
    j->published = false; /* the whole descriptor is another */
}

OWN_FRAME static int say_flux(struct citron_job *j)
{
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, 0, 1, CLAIM_FLUX);
    int rc = job_run(j, &b);
    j->claims[0].state = CLAIM_HELD;
    return rc;
}

/* What was acquired is not the range, but the parent of a leaf that has bits of nobody. */
static int clean_up(struct citron_job *j)
{
    int rc = say_flux(j);
    if (!rc)
        rc = citron_scrub(j, j->scrub_at);
    j->scrub = false;
    rc = seat_retry(j->seat, rc);
    if (!rc)
        rc = job_drop_all(j, 0, false);
    return rc ? rc : JOB_AGAIN;
}

static int acquire_all(struct citron_job *j)
{
    int rc = job_configure(j);
    while (!rc) {
        plan(j);
        rc = job_acquire(j);
        if (!rc && j->scrub)
            rc = clean_up(j);
        if (rc == JOB_YIELD)
            rc = citron_yield(j);
        if (rc != JOB_AGAIN)
            return rc;
        rc = 0;
    }
    return rc;
}

/* What says that somebody has a tall node may be left over from one whose connection broke when it released. It harms nobody, but
 * makes everybody read more: so now and then somebody counts. */
static void doubt_tall(struct citron_job *j)
{
    if (j->tall_idle < TALL_IDLE_MAX || j->claims[0].spill)
        return;
    j->tall_idle = 0;
    job_remember(j);
    citron_repair(j, tree_above(j->claims[0].node, (unsigned)max_u64(NODE_TALL, j->claims[0].node.height)), false);
}

int citron_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    struct citron_job j;
    job_start(&j, seat, h, deadline);
    int rc = acquire_all(&j);
    if (rc == -FAB_EFENCED)
        rc = -PAWL_ELOST;
    if (!rc)
        rc = job_settle_token(&j);
    if (!rc && !seat_lives(seat))
        rc = -PAWL_ELOST;
    if (rc) {
        int end = rc == -PAWL_ELOST ? rc : job_drop_all(&j, 0, false);
        return end == -PAWL_ELOST ? end : rc;
    }
    doubt_tall(&j);
    h->token = citron_knob(&j, CITRON_TOKENS) ? seat->space->token_base + j.token : 0;
    job_keep(&j);
    if (!fab_is_shm(seat->ep))
        citron_stats.acquires++;
    return 0;
}
