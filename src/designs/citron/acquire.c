/* Algorithm 2. For a range of several nodes it differs in one point: first all turns at internal nodes are taken (a), in ascending
 * order, and then the nodes are claimed (b, c, d), in ascending order; and nobody waits for an ancestor (b) with a claim on
 * anything. As printed, three clients can wait for each other: one at a high node for a leaf below it, its holder for a turn at
 * another node below, and who has that turn for the first one to leave. */
#include "designs/citron/citron.h"

#include <errno.h>
#include <string.h>

#define DRIFT_PER_10000 2 /* delta of 3.5.5 for both clocks: each is off by up to 1e-4 */
#define ABORTS_MAX 2      /* of one acquisition: then T_wait is doubled; */
#define ABORTS_SET_MAX 16 /* or if it was set */
#define BACK_OFF_DOUBLINGS 6
#define LOOK_MAX 40       /* ancestors that one batch looks at */
#define BATCH_ROOM 50     /* for what is made known and looked at, of the 64 verbs of a batch */
#define GROUP_MAX 2       /* leaves that are claimed at once: so many have room for their ancestors in a batch */

/* ---- phase (b): looking up ---- */

struct look {
    unsigned n;
    struct tree_node nodes[LOOK_MAX];
    uint64_t words[LOOK_MAX];
};

/* The ancestors of a group of claims, each once. Neighbours share most of theirs. High ones only if somebody has any. */
static void list_ancestors(const struct citron_job *j, unsigned from, unsigned to, struct look *l)
{
    unsigned top = j->look_high || j->config.height < citron_high ? j->config.height : citron_high - 1;
    l->n = 0;
    for (unsigned i = from; i < to; i++)
        for (unsigned h = j->claims[i].node.height + 1u; h <= top && !j->claims[i].spill; h++) {
            struct tree_node above = tree_above(j->claims[i].node, h);
            bool known = false;
            for (unsigned k = 0; k < l->n && !known; k++)
                known = tree_same(l->nodes[k], above);
            if (known)
                break; /* and so are all above it */
            assert(l->n < LOOK_MAX);
            l->nodes[l->n++] = above;
        }
}

static void add_look(const struct citron_job *j, struct citron_batch *b, struct look *l)
{
    for (unsigned i = 0; i < l->n; i++)
        batch_read(b, job_node(j, l->nodes[i]), &l->words[i], sizeof l->words[i]);
}

/* The lowest ancestor that somebody has or wants for itself, if any: readers pass readers. */
static int find_occupied(const struct citron_job *j, const struct look *l)
{
    uint64_t flags = NODE_OCC | (j->shared ? 0 : NODE_SHARED);
    int lowest = -1;
    for (unsigned i = 0; i < l->n; i++)
        if (l->words[i] & flags && (lowest < 0 || l->nodes[i].height < l->nodes[lowest].height))
            lowest = (int)i;
    return lowest;
}

/* Steps back from what is not certain to be had: says that claims [from, to) have nothing but their turns. */
OWN_FRAME static int say_waiting(struct citron_job *j, unsigned from, unsigned to)
{
    struct citron_batch b;
    batch_start(&b);
    for (unsigned i = from; i < to; i++)
        if (j->claims[i].state == CLAIM_FLUX)
            job_say(j, &b, i, i + 1, claim_internal(&j->claims[i]) ? CLAIM_TURN : CLAIM_WAIT);
    int rc = job_run(j, &b);
    while (rc && !(rc = seat_retry(j->seat, rc)))
        rc = job_run(j, &b);
    return rc;
}

/* The smallest node that contains this one and the whole range. */
static struct tree_node containing(const struct citron_job *j, struct tree_node n)
{
    uint64_t end = min_u64(j->end, tree_units(j->config.height));
    struct tree_node cover = tree_cover(j->start, end, j->config.height);
    while (!tree_contains(n, cover))
        n = tree_parent(n);
    return n;
}

/* From now on one node for the whole range: there turns are taken, and served in order. */
int job_escalate(struct citron_job *j, struct tree_node to)
{
    j->escalated = true;
    j->escalate_to = containing(j, to);
    j->blocked = j->passed = 0;
    int rc = job_drop_all(j, j->base, false);
    if (!fab_is_shm(j->seat->ep))
        citron_stats.escalated++;
    return rc ? rc : JOB_AGAIN;
}

/* Somebody has an ancestor: waits for it to leave, without a claim on anything (W2 in the document). */
static int wait_for_ancestor(struct citron_job *j, unsigned from, unsigned to, struct tree_node above, uint64_t word)
{
    int rc = say_waiting(j, from, to);
    if (!rc && from > j->base)
        rc = job_drop_all(j, j->base, true);
    if (rc)
        return rc;
    if (++j->passed > citron_blocked && j->deadline != DEADLINE_TRY)
        return job_escalate(j, above);
    if (!fab_is_shm(j->seat->ep))
        citron_stats.blocked++;
    uint64_t flag = word & NODE_OCC ? NODE_OCC : NODE_SHARED;
    const struct fab_cond cond = {.addr = job_node(j, above), .mask = flag, .value = flag};
    uint64_t seen;
    j->moves = NODE_T_MASK;
    rc = job_wait_at(j, above, false, &cond, &seen);
    j->moves = 0;
    return rc ? rc : JOB_WAITED;
}

/* Bits of a leaf that others have. After a while: is there anybody? */
static int wait_for_leaf(struct citron_job *j, unsigned i, uint64_t bits)
{
    struct citron_claim *c = &j->claims[i];
    if (++j->blocked > citron_blocked && j->deadline != DEADLINE_TRY)
        return job_escalate(j, tree_parent(c->node)); /* lines 23 and 24 */
    uint64_t seen;
    int rc = job_wait_bits(j, c->node, bits, &seen);
    if (rc <= 0)
        return rc ? rc : JOB_WAITED;
    rc = citron_own_way(j, c);
    if (rc > 0 && !j->exact && !j->base) {
        j->exact = true;
        rc = job_drop_all(j, 0, false);
        return rc ? rc : JOB_AGAIN;
    }
    if (rc >= 0)
        rc = citron_leaf_owned(j, c->node, bits);
    if (rc < 0)
        return rc == -EAGAIN ? JOB_WAITED : seat_retry(j->seat, rc) ? seat_retry(j->seat, rc) : JOB_WAITED;
    if (rc > 0)
        return JOB_WAITED;
    if (j->base)
        return job_escalate(j, tree_parent(c->node)); /* whoever holds something goes around them */
    j->scrub_at = tree_parent(c->node);
    j->scrub = true; /* nobody: whoever has the parent for itself may clear them (3.10, line 22) */
    rc = job_drop_all(j, 0, false);
    return rc ? rc : JOB_AGAIN;
}

/* The configuration has changed since the job was planned. If it is T_wait alone, all that was planned and made known is right
 * (3.5.5): a look that was posted before that was known must be followed up within the shorter time, and who claims an internal
 * node waits the longer one, for it has not yet begun to. */
static bool only_wait_changed(struct citron_job *j, uint64_t config)
{
    struct citron_config now = config_of(config), was = j->config;
    if (config_confirms(now) || config_confirms(was) || now.height != was.height || now.height_next != was.height_next ||
        now.m != was.m || now.m_next != was.m_next)
        return false;
    j->config_word = config;
    j->config = now;
    j->config.wait = now.wait > was.wait ? now.wait : was.wait;
    j->limit_ns = min_u64(j->limit_ns, config_wait_ns(now));
    job_remember(j);
    return true;
}

static int start_anew(struct citron_job *j, uint64_t config)
{
    int rc = job_drop_all(j, j->base, false);
    j->config_word = config;
    j->config = config_of(config);
    j->escalated = j->scrub = false;
    job_remember(j);
    return rc ? rc : JOB_AGAIN;
}

/* What looking up has found. */
struct seen {
    uint64_t head[CITRON_HEAD_WORDS];
    uint64_t turn;    /* the word of the node whose turn was asked for */
    int occupied;     /* of the ancestors; -1: none */
    struct tree_node above;
    uint64_t word;
};

/* Somebody has a high node, and high ancestors were not looked at: so once more. This time, and the next times, too. */
static bool high_unseen(struct citron_job *j, uint64_t high)
{
    bool unseen = high_count(high) && !j->look_high && j->config.height >= citron_high;
    j->look_high = high_count(high);
    job_remember(j);
    return unseen;
}

/* (a) and (b) in one batch (3.8): a ticket, or whether its turn has come, with the look. Returns the verb. */
static unsigned ask_for_turn(struct citron_job *j, struct citron_batch *b)
{
    if (j->pending < 0)
        return 0;
    unsigned i = (unsigned)j->pending;
    struct citron_claim *c = &j->claims[i];
    if (c->state == CLAIM_TURN) {
        if (c->said != CLAIM_TURN)
            job_say(j, b, i, i + 1, CLAIM_TURN);
        return batch_read64(b, job_claim_node(j, c));
    }
    job_say(j, b, i, i + 1, CLAIM_QUEUE);
    return batch_mfaa(b, job_claim_node(j, c), UINT64_C(1) << NODE_TMAX, NODE_TOPS);
}

static int see_turn(struct citron_job *j, const struct citron_batch *b, unsigned turn, struct seen *out)
{
    unsigned i = (unsigned)j->pending;
    bool drawn = j->claims[i].state == CLAIM_QUEUE;
    out->turn = drawn ? batch_old(b, turn) : b->values[turn];
    int rc = drawn ? job_take_ticket(j, i, out->turn) : 0;
    if (!rc && !turns_ahead(&j->claims[i], out->turn))
        j->pending = -1;
    return rc;
}

/* In the middle of a step from before it looks (see citron_scrub): all but one that does not know its ticket yet. */
static void say_looking(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to)
{
    unsigned pending = j->pending < 0 ? to : (unsigned)j->pending;
    if (pending > from)
        job_say(j, b, from, pending < to ? pending : to, CLAIM_FLUX);
    if (pending + 1 < to)
        job_say(j, b, pending + 1, to, CLAIM_FLUX);
}

/* Reads all ancestors, and the leaves of the group with the places of their readers, in one batch. */
OWN_FRAME static int read_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *out)
{
    struct citron_batch b;
    struct look l;
    batch_start(&b);
    list_ancestors(j, from, to, &l);
    unsigned turn = ask_for_turn(j, &b);
    say_looking(j, &b, from, to);
    citron_add_head(j, &b, out->head);
    add_look(j, &b, &l);
    citron_leaves_look(j, &b, from, to, leaves);
    j->looked_ns = world_now(j->seat->world); /* t1 is when the read is posted */
    j->limit_ns = config_wait_ns(config_of(j->config_word));
    int rc = job_run(j, &b);
    if (rc == -FAB_EUNKNOWN && j->pending >= 0 && j->claims[j->pending].state == CLAIM_QUEUE)
        j->claims[j->pending].state = CLAIM_WAIT; /* it was nobody's ticket */
    if (!rc && j->pending >= 0)
        rc = see_turn(j, &b, turn, out);
    if (rc)
        return rc;
    out->occupied = find_occupied(j, &l);
    if (out->occupied >= 0) {
        out->above = l.nodes[out->occupied];
        out->word = l.words[out->occupied];
    }
    for (unsigned i = from; i < to; i++)
        for (unsigned k = 0; k < l.n; k++)
            if (l.nodes[k].height == 1 && tree_contains(l.nodes[k], j->claims[i].node))
                leaves->below |= leaves->flagged[i] = l.words[k] & NODE_BELOW;
    return 0;
}

/* Looks until it is its turn, too. Who is next asks for both at once; others sleep meanwhile. */
static int read_up_in_turn(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *seen)
{
    uint64_t until = add_saturating(world_now(j->seat->world), j->patience_ns);
    for (;;) {
        int rc = read_up(j, from, to, leaves, seen);
        if (rc || j->pending < 0)
            return rc;
        bool in_vain = world_now(j->seat->world) >= min_u64(until, j->deadline);
        bool near = turns_ahead(&j->claims[j->pending], seen->turn) <= 1 && !fab_is_shm(j->seat->ep);
        if (near && !in_vain)
            continue;
        rc = say_waiting(j, from, to);
        if (!rc)
            rc = job_await_turn(j, (unsigned)j->pending, &seen->turn, near || fab_is_shm(j->seat->ep) ? 0 : 1);
        if (rc)
            return rc;
        until = add_saturating(world_now(j->seat->world), j->patience_ns);
    }
}

static int look_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves)
{
    struct seen seen = {.occupied = -1};
    int rc = read_up_in_turn(j, from, to, leaves, &seen);
    if (rc) {
        rc = seat_retry(j->seat, rc);
        return rc ? rc : JOB_WAITED;
    }
    if (seen.head[HEAD_CONFIG] != j->config_word && !only_wait_changed(j, seen.head[HEAD_CONFIG])) {
        rc = say_waiting(j, from, to);
        return rc ? rc : start_anew(j, seen.head[HEAD_CONFIG]);
    }
    if (high_unseen(j, seen.head[HEAD_HIGH]))
        return JOB_WAITED;
    if (seen.occupied >= 0)
        return wait_for_ancestor(j, from, to, seen.above, seen.word);
    for (unsigned i = from; i < to; i++) {
        uint64_t busy = claim_internal(&j->claims[i]) ? 0 : leaves->bits[i] & bounds_mask(j->claims[i].ticket);
        if (!busy || job_waits_known(j))
            continue;
        rc = say_waiting(j, from, to);
        return rc ? rc : wait_for_leaf(j, i, busy);
    }
    return 0;
}

/* ---- phases (c) and (d): claiming and making known ---- */

/* Who made known what is not known to whom it concerns within T_wait must not go on (inequation 1, t2 at completion). */
static bool too_late(const struct citron_job *j, const struct citron_claim *c)
{
    if (c->spill || c->node.height >= j->config.height)
        return false; /* nobody is above */
    uint64_t took = j->claimed_ns - j->looked_ns, limit = j->limit_ns;
    return !config_confirms(j->config) && took > limit - limit * DRIFT_PER_10000 / 10000 && !(citron_busted(j) & CITRON_NO_ABORT);
}

struct notified {
    unsigned n;
    struct tree_node nodes[CLAIMS_MAX * TREE_HEIGHT_MAX];
};

/* It took too long. If that is because many are at it, all of them would be late again: so they come back at different times, and
 * less often, until it is quick enough. And if it is T_wait that is too short, nobody ever comes in time: then it becomes longer. */
static int after_abort(struct citron_job *j)
{
    unsigned doublings = j->aborts < BACK_OFF_DOUBLINGS ? j->aborts : BACK_OFF_DOUBLINGS;
    uint64_t now = world_now(j->seat->world), span = j->trip_ns << doublings;
    int rc = 0;
    j->aborts++;
    if (j->deadline != DEADLINE_TRY) /* nobody has it: one that does not wait comes back at once */
        rc = fab_wait_any(j->seat->ep, NULL, 0, min_u64(j->deadline, now + 1 + world_random(j->seat->world) % span));
    if (rc == -ETIMEDOUT && world_now(j->seat->world) < j->deadline)
        rc = 0;
    if (!rc && j->aborts % (citron_wait_ns ? ABORTS_SET_MAX : ABORTS_MAX) == 0)
        rc = citron_wait_longer(j);
    return rc;
}

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
    citron_add_high(j, b, c, true);
    if (!j->shared)
        return batch_mcas(b, addr, turn, NODE_T_MASK, NODE_OCC, NODE_OCC);
    /* A reader is counted, and passes the turn on: others may read with it. */
    batch_mfaa(b, job_claim_readers(j, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    return batch_mcas(b, addr, turn, NODE_T_MASK, (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT | NODE_SHARED,
                      NODE_T_MASK | NODE_SHARED);
}

/* How many of them a word can count. */
static uint32_t known_max(struct tree_node above, bool shared)
{
    return shared || node_is_high(above) ? READERS_CLAIMS_MAX : NODE_CLAIMS_MAX;
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
static bool claim_low(const struct citron_claim *c)
{
    return citron_fast == FAST_LOW && !c->spill && c->node.height == 1;
}
static bool claim_quick(const struct citron_claim *c)
{
    return !claim_internal(c) || claim_low(c);
}

OWN_FRAME static int claim_batch(struct citron_job *j, unsigned from, unsigned to, struct claimed *out)
{
    struct citron_batch b;
    unsigned ops[CLAIMS_MAX];
    bool confirm = config_confirms(j->config);
    batch_start(&b);
    for (unsigned i = from; i < to; i++)
        if (j->claims[i].state == CLAIM_TURN) /* it has just learned which */
            job_say(j, &b, i, i + 1, CLAIM_FLUX);
    for (unsigned i = from; i < to; i++)
        ops[i] = add_claim(j, &b, i, &out->leaves);
    for (unsigned i = from; i < to; i++)
        if (claim_low(&j->claims[i]) && !j->shared)
            batch_read(&b, job_readers(j, j->claims[i].node), &out->readers[i], sizeof out->readers[i]);
    citron_whole_add(j, &b, from, &out->whole);
    struct notified known;
    unsigned first = b.n;
    add_notifications(j, &b, from, to, &known);
    citron_leaves_check(j, &b, from, to, &out->leaves);
    if (confirm) {
        list_ancestors(j, from, to, &out->look);
        add_look(j, &b, &out->look);
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
        if (known_count(known.nodes[i], j->shared, old) >= known_max(known.nodes[i], j->shared))
            rc = -PAWL_ELIMIT;
    }
    for (unsigned i = from; i < to; i++)
        if (!claim_internal(&j->claims[i]) && j->shared)
            see_parent(j, tree_parent(j->claims[i].node), out->leaves.parents[i], out);
    for (unsigned i = from; i < to; i++) /* the verb before the claim's own has counted it */
        if (claim_internal(&j->claims[i]) && j->shared && readers_here(batch_old(&b, ops[i] - 1)) >= READERS_CLAIMS_MAX)
            rc = -PAWL_ELIMIT;
    return rc;
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
    while (claim_quick(&j->claims[from]) && to < j->count && claim_quick(&j->claims[to]) && to - from < group)
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
    int rc = claim_low(&j->claims[i]) ? 0 : job_wait_out(j);
    if (!rc)
        rc = job_drain_below(j, i);
    return rc;
}

/* Those who look once more after they have made themselves known find somebody at a high node only now. */
OWN_FRAME static int look_again(struct citron_job *j, unsigned from, unsigned to, struct claimed *c)
{
    if (!high_unseen(j, j->draw.head[HEAD_HIGH]))
        return 0;
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        list_ancestors(j, from, to, &c->look);
        add_look(j, &b, &c->look);
        job_draw(j, &b); /* who was there and is gone has a later token than the one that was drawn before */
        int rc = job_run(j, &b);
        if (!rc)
            job_drew(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* After the batch: is it all ours? *to becomes less if only the first are. */
static int settle_group(struct citron_job *j, unsigned from, unsigned *to, struct claimed *c)
{
    if (j->draw.head[HEAD_CONFIG] != j->config_word && !only_wait_changed(j, j->draw.head[HEAD_CONFIG]))
        return start_anew(j, j->draw.head[HEAD_CONFIG]);
    int at = -1, seen = config_confirms(j->config) ? look_again(j, from, *to, c) : 0;
    if (seen < 0)
        return seen;
    if (config_confirms(j->config))
        at = find_occupied(j, &c->look);
    bool late = too_late(j, &j->claims[from]);
    if (late || at >= 0 || c->parent_word) {
        int rc = job_drop_all(j, from, true);
        if (!fab_is_shm(j->seat->ep))
            citron_stats.aborts += late;
        if (rc)
            return rc;
        if (c->parent_word)
            return wait_for_ancestor(j, from, *to, c->parent, c->parent_word);
        if (at >= 0)
            return wait_for_ancestor(j, from, *to, c->look.nodes[at], c->look.words[at]);
        rc = after_abort(j);
        return rc ? rc : JOB_WAITED;
    }
    for (unsigned i = from; i < *to; i++) {
        bool leaf = !claim_internal(&j->claims[i]);
        if (leaf ? citron_leaf_good(j, i, &c->leaves) : claim_low(&j->claims[i]) && low_good(j, i, c))
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

static int claim_group(struct citron_job *j, unsigned from, unsigned *to)
{
    struct claimed c;
    j->look_high |= !j->claims[from].spill && node_is_high(j->claims[from].node); /* it will be there itself */
    citron_leaves_start(&c.leaves);
    c.whole.had = c.whole.tried = false;
    c.parent_word = 0;
    int rc = look_up(j, from, *to, &c.leaves);
    if (rc)
        return rc;
    rc = claim_batch(j, from, *to, &c);
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
    bool with_look = j->deadline != DEADLINE_TRY && !j->upgrades && !j->claims[last].spill;
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
            n = tree_split(j->h->start, end, j->config.height, j->exact ? TREE_SPLIT_MAX : citron_k, nodes);
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
    h->token = citron_tokens ? seat->space->token_base + j.token : 0;
    job_keep(&j);
    if (!fab_is_shm(seat->ep))
        citron_stats.acquires++;
    return 0;
}
