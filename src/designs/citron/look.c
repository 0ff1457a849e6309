/* SPDX-License-Identifier: Apache-2.0 */
/* Phase (b) of Algorithm 2: looking up, and waiting for whoever is there. */
#include "designs/citron/citron.h"

#include <errno.h>

/* The ancestors of a group of claims, each once. Neighbours share most of theirs. Tall ones only if somebody has any. */
void look_list(const struct citron_job *j, unsigned from, unsigned to, struct look *l)
{
    unsigned reach = j->reach == LOOK_HIGH ? TREE_HEIGHT_MAX : j->reach == LOOK_TALL ? citron_high - 1 : NODE_TALL - 1;
    unsigned top = j->config.height < reach ? j->config.height : reach;
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

void look_add(const struct citron_job *j, struct citron_batch *b, struct look *l)
{
    for (unsigned i = 0; i < l->n; i++)
        batch_read(b, job_node(j, l->nodes[i]), &l->words[i], sizeof l->words[i]);
}

/* The lowest ancestor that somebody has or wants for itself, if any: readers pass readers. */
int look_find(const struct citron_job *j, const struct look *l)
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
    job_land(j);
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
int look_wait(struct citron_job *j, unsigned from, unsigned to, struct tree_node above, uint64_t word)
{
    int rc = say_waiting(j, from, to);
    if (!rc && from > j->base)
        rc = job_drop_all(j, j->base, true);
    if (rc)
        return rc;
    if (++j->passed > citron_knob(j, CITRON_BLOCKED) && j->deadline != DEADLINE_TRY)
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
    if (++j->blocked > citron_knob(j, CITRON_BLOCKED) && j->deadline != DEADLINE_TRY)
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
bool job_only_wait_changed(struct citron_job *j, uint64_t config)
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

int job_start_anew(struct citron_job *j, uint64_t config)
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
    uint64_t turn; /* the word of the node whose turn was asked for */
    int occupied;  /* of the ancestors; -1: none */
    struct tree_node above;
    uint64_t word;
    struct crowd_word full; /* nobody must add to this one, if it is one */
};

enum look_reach look_reach(const struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS])
{
    uint32_t high = tall_count(head[HEAD_TALL]), lower = 0, own_high = 0, own_lower = 0;
    for (unsigned i = 1; i < TALL_WORDS; i++)
        lower += tall_count(head[HEAD_TALL + i]);
    for (unsigned i = 0; i < j->count; i++)
        if (!j->claims[i].spill && node_is_tall(j->claims[i].node) && j->claims[i].state == CLAIM_HELD)
            ++*(node_is_high(j->claims[i].node) ? &own_high : &own_lower);
    return high > own_high ? LOOK_HIGH : lower > own_lower ? LOOK_TALL : LOOK_PARENTS;
}

/* Somebody has a tall node, and ancestors as tall were not looked at: so once more. This time, and the next times, too. */
bool look_misses_tall(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS])
{
    enum look_reach reach = look_reach(j, head);
    bool unseen = reach > j->reach && j->config.height >= NODE_TALL;
    j->reach = reach;
    j->tall_idle = reach ? j->tall_idle : 0;
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
    /* The tickets of the living stay in the row (leave_queue). On shared memory one that was lost may still read what it is now. */
    assert(drawn || turns_ahead(&j->claims[i], out->turn) < node_queue(out->turn) || fab_is_shm(j->seat->ep) ||
           citron_errs(j, CITRON_ANY));
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
    struct crowd crowd = {.n = 0};
    batch_start(&b);
    look_list(j, from, to, &l);
    unsigned turn = ask_for_turn(j, &b);
    say_looking(j, &b, from, to);
    citron_add_head(j, &b, out->head);
    look_add(j, &b, &l);
    citron_leaves_look(j, &b, from, to, leaves);
    if (j->flight.wary)
        crowd_list(j, from, to, &crowd);
    for (unsigned i = 0; i < crowd.n; i++)
        batch_read(&b, crowd.words[i].addr, &crowd.words[i].value, sizeof crowd.words[i].value);
    j->looked_ns = world_now(j->seat->world); /* t1 is when the read is posted */
    j->peeked = false;
    j->limit_ns = config_wait_ns(config_of(j->config_word));
    int rc = job_run(j, &b);
    if (rc == -FAB_EUNKNOWN && j->pending >= 0 && j->claims[j->pending].state == CLAIM_QUEUE)
        j->claims[j->pending].state = CLAIM_WAIT; /* it was nobody's ticket */
    if (!rc && j->pending >= 0)
        rc = see_turn(j, &b, turn, out);
    if (rc)
        return rc;
    out->occupied = look_find(j, &l);
    if (out->occupied >= 0) {
        out->above = l.nodes[out->occupied];
        out->word = l.words[out->occupied];
    }
    for (unsigned i = from; i < to; i++)
        for (unsigned k = 0; k < l.n; k++)
            if (l.nodes[k].height == 1 && tree_contains(l.nodes[k], j->claims[i].node))
                leaves->below |= leaves->flagged[i] = l.words[k] & NODE_BELOW;
    const struct crowd_word *full;
    rc = crowd_see(j, &crowd, &full);
    out->full = full ? *full : (struct crowd_word){.addr = 0};
    return rc;
}

/* The same in the air. One that would draw a ticket where there was a crowd looks before it does (turn.c). */
static int read_up_once(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *out)
{
    int draws = j->pending >= 0 && j->claims[j->pending].state != CLAIM_TURN ? j->pending : -1;
    int rc = job_take_off(j, from, to, draws);
    if (rc)
        return rc;
    if (draws >= 0 && j->flight.wary) {
        j->crowded = true;
        return JOB_WAITED;
    }
    rc = read_up(j, from, to, leaves, out);
    int told = rc == -FAB_EUNKNOWN && draws >= 0 ? crowd_doubt(j, from, from, draws) : 0;
    return told ? told : rc;
}

/* Looks until it is its turn, too. Who is next asks for both at once; others sleep meanwhile. Not for longer than it takes to lose
 * patience at first: while it looks it is in the middle of a step, and nobody can clean up in its leaves. */
static int read_up_in_turn(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *seen)
{
    uint64_t until = add_saturating(world_now(j->seat->world), job_patience_ns(j));
    for (;;) {
        int rc = read_up_once(j, from, to, leaves, seen);
        if (rc || j->pending >= 0)
            job_land(j);
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
        until = add_saturating(world_now(j->seat->world), job_patience_ns(j));
    }
}

/* A word counts as many as whoever sees that may add to: waits until it is others, or fewer. What nobody accounts for goes. */
static int wait_for_room(struct citron_job *j, unsigned from, unsigned to, const struct crowd_word *full)
{
    const struct fab_cond cond = {.addr = full->addr, .mask = NODE_D_MASK, .value = full->value & NODE_D_MASK};
    uint64_t seen;
    int rc = say_waiting(j, from, to);
    if (!rc && from > j->base)
        rc = job_drop_all(j, j->base, true);
    if (!rc)
        rc = job_wait_at(j, full->node, false, &cond, &seen);
    return rc ? rc : JOB_WAITED;
}

/* Claims on leaves of one parent, and nobody has a tall node: then all that there is to look at is that parent. */
static bool sees_all_in(const struct citron_job *j, unsigned from, unsigned to, struct tree_node parent)
{
    for (unsigned i = from; i < to; i++)
        if (claim_internal(&j->claims[i]) || !tree_same(tree_parent(j->claims[i].node), parent))
            return false;
    return parent.height == 1 && j->reach == LOOK_PARENTS;
}

/* Somebody has the parent. Between two that have it one after the other there is less time than it takes to see that, to look up
 * and to claim; who does all of this each time comes too late each time. So for a while it stays in the middle of its step, polls
 * the parent, and as soon as that is free it has looked up. 0: it has; positive: it waits like others. */
static int wait_for_parent(struct citron_job *j, unsigned from, unsigned to, const struct seen *s, struct citron_leaves *leaves)
{
    if (fab_is_shm(j->seat->ep) || j->shared || j->base || from || j->deadline == DEADLINE_TRY || j->flight.wary ||
        !sees_all_in(j, from, to, s->above) || j->passed >= citron_knob(j, CITRON_BLOCKED))
        return 1;
    const uint64_t flags = NODE_OCC | NODE_SHARED;
    struct fab_cond cond = {.addr = job_node(j, s->above), .mask = s->word & flags, .value = s->word & flags};
    uint64_t seen;
    job_land(j);
    int rc = job_poll_briefly(j, &cond, &seen);
    if (rc)
        return rc < 0 && (rc = seat_retry(j->seat, rc)) ? rc : 1;
    if (seen & flags)
        return 1;
    rc = job_take_off(j, from, to, -1);
    if (rc || j->flight.wary)
        return rc ? rc : 1;
    citron_stats.blocked++;
    j->peeked = true;
    leaves->below |= seen & NODE_BELOW;
    return 0;
}

int look_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves)
{
    struct seen seen = {.occupied = -1};
    int rc = read_up_in_turn(j, from, to, leaves, &seen);
    if (rc == JOB_WAITED) { /* too many in the queue */
        rc = say_waiting(j, from, to);
        return rc ? rc : JOB_WAITED;
    }
    if (rc) {
        rc = seat_retry(j->seat, rc);
        return rc ? rc : JOB_WAITED;
    }
    if (seen.head[HEAD_CONFIG] != j->config_word && !job_only_wait_changed(j, seen.head[HEAD_CONFIG])) {
        rc = say_waiting(j, from, to);
        return rc ? rc : job_start_anew(j, seen.head[HEAD_CONFIG]);
    }
    if (look_misses_tall(j, seen.head))
        return JOB_WAITED;
    if (seen.occupied >= 0) {
        rc = wait_for_parent(j, from, to, &seen, leaves);
        return rc > 0 ? look_wait(j, from, to, seen.above, seen.word) : rc;
    }
    if (seen.full.addr)
        return wait_for_room(j, from, to, &seen.full);
    j->tall_idle += j->reach != LOOK_PARENTS;
    for (unsigned i = from; i < to; i++) {
        uint64_t busy = claim_internal(&j->claims[i]) ? 0 : leaves->bits[i] & bounds_mask(j->claims[i].ticket);
        if (!busy || job_waits_known(j))
            continue;
        rc = say_waiting(j, from, to);
        return rc ? rc : wait_for_leaf(j, i, busy);
    }
    return 0;
}
