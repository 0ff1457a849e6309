/* SPDX-License-Identifier: Apache-2.0 */
/* Phases (a) and (b) of Algorithm 2: a turn at each internal node, and a look at the ancestors. Both are one batch if the turn
 * comes at once (3.8). This file writes the job's `look`, and the tickets of its claims. */
#include "designs/citron/steps.h"

#define SKIP_BLIND_TIMES 1024 /* acquisitions that look before they claim leaves, after one that met a claim above its leaves */
#define NOT_DRAWN 1           /* a ticket would not be served at once */

/* ---- what the session remembers ---- */

void look_start(struct citron_job *j)
{
    j->look.pending = -1;
}

/* Over a fabric a session remembers the configuration of its latest locks, so that it need not be read first: every look reads it
 * anyway. */
void job_remember(struct citron_job *j)
{
    struct citron_hint *hint = job_hint(j);
    if (j->near)
        return;
    hint->index = j->index;
    hint->word = j->plan.config_word;
    hint->more = (uint64_t)j->look.tall_idle << 2 | j->look.reach;
}

void look_recall(struct citron_job *j, uint64_t hint)
{
    j->look.reach = (enum look_reach)(hint & 3);
    j->look.tall_idle = (unsigned)(hint >> 2);
}

void look_skip_blind(const struct citron_job *j)
{
    job_hint(j)->skip_blind = SKIP_BLIND_TIMES;
}

static bool skips_blind(const struct citron_job *j)
{
    struct citron_hint *hint = job_hint(j);
    return hint->skip_blind && hint->skip_blind--;
}

/* The head may count a claim on a tall node that is left over from a broken connection. Then all clients read more ancestors, so a
 * client that has read them in vain for long has the claims counted anew. */
void look_doubt_tall(struct citron_job *j)
{
    const struct citron_claim *c = &j->claims.at[0];
    if (c->spill)
        return;
    j->look.tall_idle = 0;
    job_remember(j);
    citron_repair(j, tree_above(c->node, (unsigned)max_u64(NODE_TALL, c->node.height)), false);
}

/* ---- phase (a), lines 9 to 11: turns ---- */

/* Reads the node, and waits outside of its queue while that is longer than `most`. */
static int look_at_queue(struct citron_job *j, const struct citron_claim *c, uint32_t most, uint64_t *seen)
{
    fab_addr addr = job_claim_node(j, c);
    int rc = fab_read64(j->seat->ep, addr, seen);
    if (rc || node_queue(*seen) <= most)
        return rc;
    const struct fab_cond cond = {.addr = addr, .mask = NODE_T_MASK, .value = *seen & NODE_T_MASK};
    flight_end(j);
    rc = job_wait_at(j, c->node, c->spill, &cond, seen);
    return rc ? rc : JOB_WAITED;
}

/* 3.9.1: the maximizer notes how far a range reaches beyond the tree. */
static void note_end(const struct citron_job *j, struct citron_batch *b)
{
    uint64_t end = j->h->end;
    if (end < RANGE_UNITS_MAX)
        batch_mcas(b, job_header(j, offsetof(struct citron_lock, maximizer)), 0, 0, end, end);
}

/* A ticket was drawn by a verb that found this. JOB_WAITED: the queue is too long, it was given back. */
static int take_drawn(struct citron_job *j, unsigned i, uint64_t found)
{
    struct citron_claim *c = &j->claims.at[i];
    job_know(j, i, CLAIM_TURN);
    c->ticket = node_field(found, NODE_TMAX);
    if (likely(node_queue(found) < j->policy.crowd))
        return 0;
    wait_met_crowd(j);
    int rc = flight_tell_crowd(j);
    if (!rc)
        rc = job_drop(j, i, false);
    return rc ? rc : JOB_WAITED;
}

/* Line 10. `at_once`: only if the word is as expected, else NOT_DRAWN. */
OWN_FRAME static int draw_ticket(struct citron_job *j, unsigned i, bool at_once, uint64_t expect, uint64_t *seen)
{
    struct citron_claim *c = &j->claims.at[i];
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_QUEUE);
    if (c->spill)
        note_end(j, &b);
    uint64_t with = masked_add64(expect, UINT64_C(1) << NODE_TMAX, NODE_TOPS);
    unsigned op = at_once ? batch_mcas(&b, job_claim_node(j, c), expect, UINT64_MAX, with, UINT64_MAX)
                          : batch_mfaa(&b, job_claim_node(j, c), UINT64_C(1) << NODE_TMAX, NODE_TOPS);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    *seen = batch_old(&b, op);
    return at_once && *seen != expect ? NOT_DRAWN : 0;
}

/* Where there was a crowd the job looks first, and waits until the queue is short enough. */
static int draw_in_flight(struct citron_job *j, unsigned i, uint64_t *seen)
{
    int rc = flight_begin(j, i, i, (int)i);
    if (!rc && (j->in_flight.look_first || j->wait.crowded))
        rc = look_at_queue(j, &j->claims.at[i], j->policy.crowd - 1, seen);
    if (rc)
        return rc;
    rc = draw_ticket(j, i, false, 0, seen);
    int told = rc == -FAB_EUNKNOWN ? crowd_doubt(j, i, i, (int)i) : 0;
    return told ? told : rc;
}

/* A job that does not wait draws a ticket only if its turn comes at once: by a compare-and-swap, which adds nothing to a crowd. */
static int draw_at_once(struct citron_job *j, unsigned i, uint64_t *seen)
{
    uint64_t expect = 0;
    int rc = look_at_queue(j, &j->claims.at[i], 0, &expect);
    return rc ? rc : draw_ticket(j, i, true, expect, seen);
}

static int take_ticket(struct citron_job *j, unsigned i, uint64_t *seen)
{
    int rc = j->deadline == DEADLINE_TRY ? draw_at_once(j, i, seen) : draw_in_flight(j, i, seen);
    if (!rc) {
        rc = take_drawn(j, i, *seen);
    } else if (rc == -FAB_EUNKNOWN || rc == NOT_DRAWN) { /* a ticket of unknown number has no owner */
        job_know(j, i, CLAIM_WAIT);
        rc = rc < 0 ? seat_retry(j->seat, rc) : 0;
        rc = rc ? rc : JOB_WAITED;
    }
    flight_end(j);
    return rc;
}

/* Lines 10 and 11 for each internal node of claims [base, to). */
static int take_turns(struct citron_job *j, unsigned to)
{
    for (unsigned i = j->claims.base; i < to;) {
        const struct citron_claim *c = &j->claims.at[i];
        uint64_t seen = 0;
        if (!claim_internal(c) || c->state >= CLAIM_TURN) {
            i++;
            continue;
        }
        int rc = take_ticket(j, i, &seen);
        if (rc == JOB_WAITED)
            continue;
        if (!rc && turns_ahead(c, seen))
            rc = wait_turn(j, i, &seen, 0);
        if (rc)
            return rc;
        i++;
    }
    return 0;
}

/* A job that waits for a turn has turns at nodes before it and nothing else. A reader that stepped back needs another turn. */
int look_take_turns(struct citron_job *j, unsigned *at)
{
    const struct citron_claims *all = &j->claims;
    unsigned first = all->base, last = all->n - 1;
    while (first < all->n && (!claim_internal(&all->at[first]) || all->at[first].state > CLAIM_QUEUE))
        first++;
    if (first == all->n)
        return 0;
    int rc = job_drop_all(j, all->base, true);
    if (!rc)
        rc = job_drop_all(j, first + 1, false);
    while (!claim_internal(&all->at[last]))
        last--;
    *at = all->base;
    bool with_look =
        j->deadline != DEADLINE_TRY && !j->plan.upgrades && !all->at[last].spill && !j->wait.crowded && !j->plan.config.crowded;
    j->look.pending = -1;
    if (!rc)
        rc = take_turns(j, with_look ? last : all->n);
    if (!rc && with_look)
        j->look.pending = (int)last; /* look_up asks for its turn */
    return rc;
}

/* ---- the ancestors ---- */

/* Neighbours share most of their ancestors. */
void look_list(const struct citron_job *j, unsigned from, unsigned to, struct look *l)
{
    unsigned reach = j->look.reach == LOOK_HIGH ? TREE_HEIGHT_MAX : j->look.reach == LOOK_TALL ? citron_high - 1 : NODE_TALL - 1;
    unsigned top = j->plan.config.height < reach ? j->plan.config.height : reach;
    l->n = 0;
    for (unsigned i = from; i < to; i++)
        for (unsigned h = j->claims.at[i].node.height + 1u; h <= top && !j->claims.at[i].spill; h++) {
            struct tree_node above = tree_above(j->claims.at[i].node, h);
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

/* Line 16. Readers pass readers. */
int look_find(const struct citron_job *j, const struct look *l)
{
    uint64_t flags = NODE_OCC | (j->plan.shared ? 0 : NODE_SHARED);
    int lowest = -1;
    for (unsigned i = 0; i < l->n; i++)
        if (l->words[i] & flags && (lowest < 0 || l->nodes[i].height < l->nodes[lowest].height))
            lowest = (int)i;
    return lowest;
}

enum look_reach look_reach(const struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS])
{
    uint32_t high = tall_count(head[HEAD_TALL]), lower = 0, own_high = 0, own_lower = 0;
    for (unsigned i = 1; i < TALL_WORDS; i++)
        lower += tall_count(head[HEAD_TALL + i]);
    for (unsigned i = 0; i < j->claims.n; i++)
        if (!j->claims.at[i].spill && node_is_tall(j->claims.at[i].node) && j->claims.at[i].state == CLAIM_HELD)
            ++*(node_is_high(j->claims.at[i].node) ? &own_high : &own_lower);
    return high > own_high ? LOOK_HIGH : lower > own_lower ? LOOK_TALL : LOOK_PARENTS;
}

/* A tall node is claimed, and ancestors of that height were not read: they are from now on. */
bool look_misses_tall(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS])
{
    enum look_reach reach = look_reach(j, head);
    bool unseen = reach > j->look.reach && j->plan.config.height >= NODE_TALL;
    j->look.reach = reach;
    j->look.tall_idle = reach ? j->look.tall_idle : 0;
    job_remember(j);
    return unseen;
}

bool look_same_config(struct citron_job *j, const uint64_t head[CITRON_HEAD_WORDS])
{
    if (head[HEAD_CONFIG] == j->plan.config_word)
        return true;
    if (!plan_only_wait_changed(j, head[HEAD_CONFIG]))
        return false;
    /* A look that was posted before the change was known must be followed up within the shorter time (3.5.5). */
    j->look.limit_ns = min_u64(j->look.limit_ns, config_wait_ns(config_of(head[HEAD_CONFIG])));
    job_remember(j);
    return true;
}

/* ---- one batch with the turn and the look ---- */

/* Results of the batch. */
struct seen {
    uint64_t head[CITRON_HEAD_WORDS];
    uint64_t turn;          /* the word of the node whose turn was asked for */
    struct tree_node above; /* the lowest ancestor that is taken, */
    uint64_t word;          /* with its word; 0: none is */
    struct crowd_word full; /* no client may add to this word; its address is 0 if there is none */
};

/* A ticket, or a READ that tells whether its turn has come. Returns the verb. */
static unsigned ask_for_turn(struct citron_job *j, struct citron_batch *b)
{
    if (j->look.pending < 0)
        return 0;
    unsigned i = (unsigned)j->look.pending;
    struct citron_claim *c = &j->claims.at[i];
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
    unsigned i = (unsigned)j->look.pending;
    bool drawn = j->claims.at[i].state == CLAIM_QUEUE;
    out->turn = drawn ? batch_old(b, turn) : b->values[turn];
    /* The tickets of live sessions stay in the queue (leave_queue). On shared memory a lost session may still read later words. */
    assert(drawn || turns_ahead(&j->claims.at[i], out->turn) < node_queue(out->turn) || j->near || citron_errs(j, CITRON_ANY));
    int rc = drawn ? take_drawn(j, i, out->turn) : 0;
    if (!rc && !turns_ahead(&j->claims.at[i], out->turn))
        j->look.pending = -1;
    return rc;
}

/* Claims say FLUX before the look (see citron_scrub), but for a claim that does not know its ticket yet (I5). */
static void say_looking(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to)
{
    unsigned pending = j->look.pending < 0 ? to : (unsigned)j->look.pending;
    if (pending > from)
        job_say(j, b, from, pending < to ? pending : to, CLAIM_FLUX);
    if (pending + 1 < to)
        job_say(j, b, pending + 1, to, CLAIM_FLUX);
}

static void read_leaves(const struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, struct citron_leaves *l)
{
    l->looked = true;
    for (unsigned i = from; i < to; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if (claim_internal(c))
            continue;
        batch_read(b, job_node(j, c->node), &l->bits[i], sizeof l->bits[i]);
        if (j->plan.shared)
            batch_read(b, job_places(j, c->node), l->places[i], LEAF_READERS_BYTES);
    }
}

/* Whether leaves have had readers, as their parents tell. */
static void see_flags(const struct citron_job *j, unsigned from, unsigned to, const struct look *l, struct citron_leaves *leaves)
{
    for (unsigned i = from; i < to; i++)
        for (unsigned k = 0; k < l->n; k++)
            if (l->nodes[k].height == 1 && tree_contains(l->nodes[k], j->claims.at[i].node))
                leaves->below |= leaves->flagged[i] = l->words[k] & NODE_BELOW;
}

/* Line 14: the head, all ancestors, and the leaves of the group with the places of their readers. */
OWN_FRAME static int read_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *out)
{
    struct citron_batch b;
    struct look l;
    struct crowd crowd = {.n = 0};
    batch_start(&b);
    look_list(j, from, to, &l);
    unsigned turn = ask_for_turn(j, &b);
    say_looking(j, &b, from, to);
    batch_head(j, &b, out->head);
    look_add(j, &b, &l);
    read_leaves(j, &b, from, to, leaves);
    if (j->in_flight.look_first)
        crowd_list(j, from, to, &crowd);
    for (unsigned i = 0; i < crowd.n; i++)
        batch_read(&b, crowd.words[i].addr, &crowd.words[i].value, sizeof crowd.words[i].value);
    j->look.looked_ns = world_now(j->seat->world); /* t1: when the READs are posted */
    j->look.peeked = false;
    j->look.limit_ns = config_wait_ns(config_of(j->plan.config_word));
    int rc = job_run(j, &b);
    if (rc == -FAB_EUNKNOWN && j->look.pending >= 0 && j->claims.at[j->look.pending].state == CLAIM_QUEUE)
        job_know(j, (unsigned)j->look.pending, CLAIM_WAIT); /* a ticket of unknown number has no owner */
    if (!rc && j->look.pending >= 0)
        rc = see_turn(j, &b, turn, out);
    if (rc)
        return rc;
    int taken = look_find(j, &l);
    out->word = taken < 0 ? 0 : l.words[taken];
    if (out->word)
        out->above = l.nodes[taken];
    see_flags(j, from, to, &l, leaves);
    const struct crowd_word *full;
    rc = crowd_see(j, &crowd, &full);
    out->full = full ? *full : (struct crowd_word){.addr = 0};
    return rc;
}

/* The same in flight. Where there was a crowd the job draws no ticket with the look (draw_in_flight). */
static int read_up_once(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *out)
{
    int draws = j->look.pending >= 0 && j->claims.at[j->look.pending].state != CLAIM_TURN ? j->look.pending : -1;
    int rc = flight_begin(j, from, to, draws);
    if (rc)
        return rc;
    if (draws >= 0 && j->in_flight.look_first) {
        wait_met_crowd(j);
        return JOB_WAITED;
    }
    rc = read_up(j, from, to, leaves, out);
    int told = rc == -FAB_EUNKNOWN && draws >= 0 ? crowd_doubt(j, from, from, draws) : 0;
    return told ? told : rc;
}

/* Looks until its turn has come, too. The client that is next asks for both at once, the others sleep meanwhile. But not for longer
 * than the first patience: a job that looks is in the middle of a step, and bits without an owner in its leaves stay. */
static int read_up_in_turn(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves, struct seen *seen)
{
    uint64_t until = add_saturating(world_now(j->seat->world), j->policy.patience_ns);
    for (;;) {
        int rc = read_up_once(j, from, to, leaves, seen);
        if (rc || j->look.pending >= 0)
            flight_end(j);
        if (rc || j->look.pending < 0)
            return rc;
        bool in_vain = world_now(j->seat->world) >= min_u64(until, j->deadline);
        bool next = turns_ahead(&j->claims.at[j->look.pending], seen->turn) <= 1 && !j->near;
        if (next && !in_vain)
            continue;
        rc = wait_step_back(j, from, to);
        if (!rc)
            rc = wait_turn(j, (unsigned)j->look.pending, &seen->turn, next || j->near ? 0 : 1);
        if (rc)
            return rc;
        until = add_saturating(world_now(j->seat->world), j->policy.patience_ns);
    }
}

/* ---- phase (b), lines 12 to 19 ---- */

/* Claims on leaves over a fabric, while no claim above them is known, need no look: the word that is notified tells whether the
 * parent is taken, and the head, which is read after that, tells whether a tall node is. */
static bool may_claim_blindly(const struct citron_job *j, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        if (claim_internal(&j->claims.at[i]))
            return false;
    return !j->near && !config_confirms(j->plan.config) && j->look.reach == LOOK_PARENTS && job_waits_announced(j) &&
           j->look.pending < 0 && !j->wait.passed && !skips_blind(j);
}

/* 1: there was a crowd, so the job looks. */
static int start_blindly(struct citron_job *j, unsigned from, unsigned to)
{
    int rc = flight_begin(j, from, to, -1);
    if (rc || j->in_flight.look_first)
        return rc ? rc : 1;
    j->look.looked_ns = world_now(j->seat->world);
    j->look.limit_ns = config_wait_ns(config_of(j->plan.config_word));
    j->look.blind = j->look.peeked = true;
    return 0;
}

/* Whether the parent is all that there is to look at: claims on leaves below it, while no tall node is claimed. */
static bool sees_all_in(const struct citron_job *j, unsigned from, unsigned to, struct tree_node parent)
{
    for (unsigned i = from; i < to; i++)
        if (claim_internal(&j->claims.at[i]) || !tree_same(tree_parent(j->claims.at[i].node), parent))
            return false;
    return parent.height == 1 && j->look.reach == LOOK_PARENTS;
}

/* The parent is taken. The time between two holders of it is shorter than it takes to see that it is free, to look up and to claim:
 * a client that does all of this each time comes too late each time. So for a while it stays in the middle of its step and polls
 * the parent; the poll that finds it free is the look. 0: it is free; positive: the client waits as for any ancestor. */
static int poll_parent(struct citron_job *j, unsigned from, unsigned to, const struct seen *s, struct citron_leaves *leaves)
{
    if (j->near || j->plan.shared || j->claims.base || from || j->deadline == DEADLINE_TRY || j->in_flight.look_first ||
        !sees_all_in(j, from, to, s->above) || j->wait.passed >= j->policy.blocked)
        return 1;
    const uint64_t flags = NODE_OCC | NODE_SHARED;
    const struct fab_cond cond = {.addr = job_node(j, s->above), .mask = s->word & flags, .value = s->word & flags};
    uint64_t seen, asked_ns = j->look.looked_ns;
    flight_end(j);
    int rc = wait_briefly(j, &cond, &seen, &asked_ns);
    if (rc)
        return rc < 0 && (rc = seat_retry(j->seat, rc)) ? rc : 1;
    if (seen & flags)
        return 1;
    rc = flight_begin(j, from, to, -1);
    if (rc || j->in_flight.look_first)
        return rc ? rc : 1;
    citron_stats.blocked++;
    j->look.looked_ns = asked_ns;
    j->look.peeked = true;
    leaves->below |= seen & NODE_BELOW;
    return 0;
}

/* A job that may not wait for bits as an announced claim waits for them here, with nothing but its turns. */
static int wait_for_bits(struct citron_job *j, unsigned from, unsigned to, const struct citron_leaves *leaves)
{
    for (unsigned i = from; i < to && !job_waits_announced(j); i++) {
        uint64_t busy = claim_internal(&j->claims.at[i]) ? 0 : leaves->bits[i] & bounds_mask(j->claims.at[i].ticket);
        if (!busy)
            continue;
        int rc = wait_step_back(j, from, to);
        return rc ? rc : wait_leaf(j, i, busy);
    }
    return 0;
}

static int look_at_ancestors(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves)
{
    struct seen seen = {.word = 0};
    int rc = read_up_in_turn(j, from, to, leaves, &seen); /* line 14 */
    if (rc) {                                             /* JOB_WAITED: the queue is too long */
        rc = rc == JOB_WAITED ? wait_step_back(j, from, to) : seat_retry(j->seat, rc);
        return rc ? rc : JOB_WAITED;
    }
    if (!look_same_config(j, seen.head)) { /* line 15 */
        rc = wait_step_back(j, from, to);
        return rc ? rc : job_start_anew(j, seen.head[HEAD_CONFIG]);
    }
    if (look_misses_tall(j, seen.head))
        return JOB_WAITED;
    if (seen.word) { /* lines 16 to 19 */
        rc = poll_parent(j, from, to, &seen, leaves);
        return rc > 0 ? wait_ancestor(j, from, to, seen.above, seen.word) : rc;
    }
    if (seen.full.addr)
        return wait_room(j, from, to, &seen.full);
    if (j->look.reach != LOOK_PARENTS) {
        j->look.tall_idle++;
        job_remember(j);
    }
    return wait_for_bits(j, from, to, leaves);
}

int look_up(struct citron_job *j, unsigned from, unsigned to, struct citron_leaves *leaves)
{
    for (unsigned i = from; i < to; i++) /* (a) comes before (b) */
        assert(!claim_internal(&j->claims.at[i]) || j->claims.at[i].state >= CLAIM_TURN || (int)i == j->look.pending);
    j->look.blind = false;
    int rc = may_claim_blindly(j, from, to) ? start_blindly(j, from, to) : 1;
    return rc > 0 ? look_at_ancestors(j, from, to, leaves) : rc;
}
