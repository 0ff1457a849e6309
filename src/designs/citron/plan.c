/* SPDX-License-Identifier: Apache-2.0 */
/* How a job begins, and its plan: the lock's configuration, splitting a range into nodes (3.5.1), and the claims on them. This file
 * writes the job's policy and plan, and decides which claims it has. */
#include "designs/citron/steps.h"

#include <string.h>

#if PAWL_WORKBENCH
unsigned citron_high = CITRON_HIGH, citron_count_bits = NODE_COUNT_BITS;
#endif

/* ---- how a job begins ---- */

/* The only reader of the knobs. */
static struct citron_policy policy_of(const struct space *space, bool near)
{
    const uint32_t *knob = space->knobs.value;
    return (struct citron_policy){
        .k = knob[CITRON_K],
        .m = knob[CITRON_M],
        .wait_ns = knob[CITRON_WAIT_NS],
        .fast = knob[CITRON_FAST],
        .confirm = knob[CITRON_CONFIRM],
        .scale_us = knob[CITRON_SCALE_US],
        .tokens = knob[CITRON_TOKENS],
        .blocked = knob[CITRON_BLOCKED],
        .crowd = knob[CITRON_CROWD],
        .patience_ns = near ? JOB_PATIENCE_NS : JOB_PATIENCE_FAR_NS,
    };
}

void job_start(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline)
{
    memset(j, 0, sizeof *j);
    j->seat = seat;
    j->h = h;
    j->index = h->index;
    j->lock = space_lock_addr(seat->space, h->index);
    j->height_max = citron_height_last(seat->space);
    j->deadline = deadline;
    j->near = fab_is_shm(seat->ep);
    j->trip_ns = 1; /* every job runs a batch before it waits */
    j->policy = policy_of(seat->space, j->near);
    j->plan.shared = h->mode == PAWL_SHARED;
    j->plan.exact = h->exact;
    plan_reshape(j, h->start, h->end);
    look_start(j);
    wait_over(j);
}

/* ---- the configuration ---- */

int job_configure(struct citron_job *j)
{
    const struct citron_hint *hint = job_hint(j);
    if (!j->near && hint->index == j->index && hint->word) {
        plan_config(j, hint->word);
        look_recall(j, hint->more);
        return 0;
    }
    do {
        uint64_t word = 0, before = world_now(j->seat->world);
        int rc = fab_read64(j->seat->ep, job_header(j, offsetof(struct citron_lock, config)), &word);
        if (word) /* even if the READ failed after it was done: every look reads the configuration again */
            plan_config(j, word);
        else if (!rc)
            rc = config_make(j, world_now(j->seat->world) - before);
        if (rc && (rc = seat_retry(j->seat, rc)))
            return rc;
    } while (!j->plan.config_word);
    job_remember(j);
    return 0;
}

void plan_config(struct citron_job *j, uint64_t word)
{
    j->plan.config_word = word;
    j->plan.config = config_of(word);
}

/* If only T_wait has changed, the plan and all notifications are right (3.5.5): a client that claims an internal node waits the
 * longer of both, for it has not yet begun to. */
bool plan_only_wait_changed(struct citron_job *j, uint64_t word)
{
    struct citron_config now = config_of(word), was = j->plan.config;
    if (config_confirms(now) || config_confirms(was) || now.height != was.height || now.height_next != was.height_next ||
        now.m != was.m || now.m_next != was.m_next)
        return false;
    plan_config(j, word);
    j->plan.config.wait = now.wait > was.wait ? now.wait : was.wait;
    return true;
}

void plan_undo_config(struct citron_job *j, const struct citron_plan *before)
{
    j->plan.config_word = before->config_word;
    j->plan.config = before->config;
}

void plan_anew(struct citron_job *j, uint64_t config)
{
    plan_config(j, config);
    j->plan.escalated = j->plan.scrub = false;
    job_remember(j);
}

/* ---- what the job learned while it tried ---- */

void plan_reshape(struct citron_job *j, uint64_t start, uint64_t end)
{
    j->plan.start = start;
    j->plan.end = end;
}

void plan_exclusive(struct citron_job *j)
{
    j->plan.escalated = j->plan.shared = false;
    j->plan.upgrades = true;
}

void plan_exactly(struct citron_job *j)
{
    j->plan.exact = true;
}

void plan_scrub(struct citron_job *j, bool scrub, struct tree_node at)
{
    j->plan.scrub = scrub;
    j->plan.scrub_at = at;
}

void plan_one_node(struct citron_job *j, struct tree_node at)
{
    uint64_t end = min_u64(j->plan.end, tree_units(j->plan.config.height));
    struct tree_node cover = tree_cover(j->plan.start, end, j->plan.config.height);
    while (!tree_contains(at, cover))
        at = tree_parent(at);
    j->plan.escalated = true;
    j->plan.escalate_to = at;
}

/* ---- claims ---- */

static void add_claim(struct citron_job *j, struct citron_claim c)
{
    c.state = CLAIM_WAIT;
    c.shared = j->plan.shared;
    c.m = (uint8_t)config_m_notify(j->plan.config);
    c.top = (uint8_t)config_height_notify(j->plan.config);
    assert(j->claims.n < CLAIMS_MAX);
    j->claims.at[j->claims.n++] = c;
}

static void add_node(struct citron_job *j, struct tree_node n, uint64_t start, uint64_t end)
{
    add_claim(j, (struct citron_claim){.node = n, .ticket = n.height ? 0 : bounds_of(n, start, end)});
}

static void add_spill(struct citron_job *j)
{
    add_claim(j, (struct citron_claim){.spill = true});
}

uint64_t claim_start(const struct citron_job *j, const struct citron_claim *c)
{
    if (c->spill)
        return tree_units(j->plan.config.height);
    return tree_start(c->node) + (c->node.height ? 0 : c->ticket & 63);
}

uint64_t claim_end(const struct citron_claim *c)
{
    if (c->spill)
        return RANGE_UNITS_MAX;
    return c->node.height ? tree_end(c->node) : tree_start(c->node) + (c->ticket >> 6) + 1;
}

static bool comes_after(const struct citron_claim *a, const struct citron_claim *b)
{
    return a->spill || (!b->spill && (tree_start(a->node) > tree_start(b->node)));
}

void claims_keep_held(struct citron_job *j)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < j->claims.n; i++)
        if (j->claims.at[i].state == CLAIM_HELD) {
            struct citron_claim c = j->claims.at[i];
            unsigned at = kept++;
            for (; at > 0 && comes_after(&j->claims.at[at - 1], &c); at--)
                j->claims.at[at] = j->claims.at[at - 1];
            j->claims.at[at] = c;
        }
    j->claims.n = kept;
    j->claims.base = 0;
}

/* ---- plans ---- */

/* Algorithm 1: the part of the range that lies in the tree, split into nodes, and the part that lies beyond it. */
void plan_range(struct citron_job *j)
{
    const struct citron_plan *p = &j->plan;
    uint64_t units = tree_units(p->config.height), end = min_u64(p->end, units);
    struct tree_node nodes[TREE_SPLIT_MAX];
    unsigned n = 0;
    j->plan.shared = j->h->mode == PAWL_SHARED && !p->scrub;
    if (p->start < units) {
        if (p->scrub || p->escalated)
            nodes[n++] = p->scrub ? p->scrub_at : p->escalate_to;
        else
            n = tree_split(p->start, end, p->config.height, p->exact ? TREE_SPLIT_MAX : j->policy.k, nodes);
    }
    j->claims.n = 0;
    for (unsigned i = 0; i < n; i++)
        add_node(j, nodes[i], p->start, p->end);
    if (p->end > units && !p->scrub)
        add_spill(j);
    j->claims.published = false; /* all words of the descriptor change */
}

static bool has_spill(const struct citron_job *j)
{
    for (unsigned i = 0; i < j->claims.n; i++)
        if (j->claims.at[i].spill && j->claims.at[i].shared == j->plan.shared)
            return true;
    return false;
}

/* One node for the part of the range that lies in the tree. */
static void plan_one(struct citron_job *j)
{
    uint64_t units = tree_units(j->plan.config.height);
    if (j->plan.start < units) {
        struct tree_node n = tree_cover(j->plan.start, min_u64(j->plan.end, units), j->plan.config.height);
        add_node(j, j->plan.escalated ? j->plan.escalate_to : n, j->plan.start, j->plan.end);
    }
    if (j->plan.end > units && !has_spill(j))
        add_spill(j);
}

/* Adds claims for the part of [start, end) that lies in the tree. */
static void plan_part(struct citron_job *j, uint64_t start, uint64_t end, unsigned k)
{
    struct tree_node nodes[TREE_SPLIT_MAX];
    uint64_t last = min_u64(end, tree_units(j->plan.config.height));
    unsigned n = start < last ? tree_split(start, last, j->plan.config.height, k, nodes) : 0;
    for (unsigned i = 0; i < n; i++)
        add_node(j, nodes[i], start, end);
}

/* Nodes of the part before the hold and of the part behind it may contain each other. */
static void drop_contained(struct citron_job *j)
{
    unsigned kept = j->claims.base;
    for (unsigned i = j->claims.base; i < j->claims.n; i++) {
        bool contained = false;
        for (unsigned k = j->claims.base; k < j->claims.n && !contained; k++)
            contained = k != i && j->claims.at[k].node.height && tree_contains(j->claims.at[k].node, j->claims.at[i].node) &&
                        !(tree_same(j->claims.at[k].node, j->claims.at[i].node) && k > i);
        if (!contained)
            j->claims.at[kept++] = j->claims.at[i];
    }
    j->claims.n = kept;
}

/* So few that the hold can grow again. */
void plan_growth(struct citron_job *j)
{
    uint64_t from = UINT64_MAX, to = 0, units = tree_units(j->plan.config.height);
    j->claims.n = j->claims.base;
    for (unsigned i = 0; i < j->claims.base; i++) {
        from = min_u64(from, claim_start(j, &j->claims.at[i]));
        to = max_u64(to, claim_end(&j->claims.at[i]));
    }
    unsigned parts = (j->plan.start < from) + (j->plan.end > to && to < units);
    unsigned room = j->claims.base < TREE_SPLIT_MAX ? TREE_SPLIT_MAX - j->claims.base : 0;
    if (j->plan.escalated || room < parts) {
        plan_one(j);
        return;
    }
    if (j->plan.start < from)
        plan_part(j, j->plan.start, min_u64(from, j->plan.end), room - parts + 1);
    unsigned before = j->claims.n - j->claims.base;
    if (j->plan.end > to)
        plan_part(j, max_u64(to, j->plan.start), j->plan.end, room - before ? room - before : 1);
    drop_contained(j);
    if (j->plan.end > units && j->plan.end > to && !has_spill(j))
        add_spill(j);
}

/* The same nodes once more, exclusively. */
void plan_upgrade(struct citron_job *j)
{
    j->claims.n = j->claims.base;
    if (j->plan.escalated) {
        plan_one(j);
        return;
    }
    for (unsigned i = 0; i < j->claims.base; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if (c->spill && c->shared)
            add_spill(j);
        else if (c->shared)
            add_node(j, c->node, claim_start(j, c), claim_end(c));
    }
}

void plan_whole(struct citron_job *j)
{
    j->claims.n = j->claims.base;
    plan_one(j);
}

/* ---- the session's books ---- */

void job_keep(struct citron_job *j)
{
    const struct seat *seat = j->seat;
    uint64_t *words = citron_kept(seat, j->h);
    if (!j->near) /* on shared memory the descriptor itself is the book */
        for (unsigned i = 0; i < CLAIMS_MAX; i++)
            words[i] = i < j->claims.n ? claim_word(&j->claims.at[i], j->height_max) : 0;
    __atomic_store_n(&words[DESC_TOKEN], j->h->token, __ATOMIC_RELAXED);
    hold_note_range(seat, j->h);
    uint64_t word = record_word(record_held(j->h->mode), j->h->serial, j->h->index);
    __atomic_store_n(&seat->me->shadow[j->h->record], word, __ATOMIC_RELEASE);
}

void job_recall(struct citron_job *j)
{
    const uint64_t *words = citron_kept(j->seat, j->h);
    for (unsigned i = 0; i < CLAIMS_MAX; i++)
        if (words[i] >> CLAIM_STATE == CLAIM_HELD)
            j->claims.at[j->claims.n++] = claim_of(words[i], j->height_max);
    j->claims.published = true;
}

int job_resume(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline)
{
    job_start(j, seat, h, deadline);
    job_recall(j);
    return job_configure(j);
}

/* ---- step 1: splitting a range (3.5.1) ---- */

#define IMPOSSIBLE UINT64_MAX

/* On the way from a boundary of the range up to the node where both ways meet: the best covers of the part of the range that lies
 * in the present node. */
struct cover {
    uint64_t waste[TREE_SPLIT_MAX + 1]; /* by the number of nodes that may be used: units covered beside the range */
    uint8_t whole[TREE_SPLIT_MAX + 1];  /* the height at which a node on the way is taken as it is */
};

/* Of the children of a node that lies across the boundary one lies across it, too. Those on the inner side are covered, and cost a
 * node each, unless the parent is taken as it is, with all units that it has too much. */
static void climb(struct cover *c, unsigned height, uint64_t inside, unsigned full, unsigned k)
{
    uint64_t all = tree_units(height) - inside;
    for (unsigned n = k; n > 0; n--) {
        uint64_t parts = n > full ? c->waste[n - full] : IMPOSSIBLE;
        if (parts <= all) {
            c->waste[n] = parts;
            c->whole[n] = c->whole[n - full];
        } else {
            c->waste[n] = all;
            c->whole[n] = (uint8_t)height;
        }
    }
}

static struct tree_node leaf_of(uint64_t unit)
{
    return (struct tree_node){.height = 0, .number = unit >> TREE_LEAF_BITS};
}

/* From the leaf of the boundary, which is covered by one node without waste (zeros), up to below `height`. `left`: the range lies
 * to the right of the boundary. */
static void climb_to(struct cover *c, uint64_t unit, bool left, unsigned height, unsigned k)
{
    struct tree_node leaf = leaf_of(unit);
    for (unsigned at = 1; at < height; at++) {
        struct tree_node node = tree_above(leaf, at), child = tree_above(leaf, at - 1);
        uint64_t inside = left ? tree_end(node) - unit : unit + 1 - tree_start(node);
        unsigned full = left ? 3 - (child.number & 3) : (unsigned)(child.number & 3);
        climb(c, at, inside, full, k);
    }
}

/* The nodes of one side's cover, from the boundary inwards. */
static unsigned collect(const struct cover *c, uint64_t unit, bool left, unsigned height, unsigned n, struct tree_node *out)
{
    struct tree_node leaf = leaf_of(unit);
    unsigned count = 0, at = c->whole[n];
    out[count++] = tree_above(leaf, at);
    for (at++; at < height; at++) {
        struct tree_node child = tree_above(leaf, at - 1);
        unsigned own = child.number & 3;
        for (unsigned i = 1; left ? own + i <= 3 : i <= own; i++)
            out[count++] = (struct tree_node){.height = child.height, .number = left ? child.number + i : child.number - i};
    }
    return count;
}

struct tree_node tree_cover(uint64_t start, uint64_t end, unsigned top)
{
    unsigned height = top ? 1 : 0;
    while (tree_above(leaf_of(start), height).number != tree_above(leaf_of(end - 1), height).number)
        height++;
    return tree_above(leaf_of(start), height);
}

unsigned tree_split(uint64_t start, uint64_t end, unsigned top, unsigned k, struct tree_node out[TREE_SPLIT_MAX])
{
    assert(start < end && end <= tree_units(top) && k >= 1 && k <= TREE_SPLIT_MAX);
    struct tree_node first = leaf_of(start), last = leaf_of(end - 1);
    unsigned meet = 0; /* the height at which the boundaries' ways meet */
    while (tree_above(first, meet).number != tree_above(last, meet).number)
        meet++;
    struct tree_node common = tree_above(first, meet);
    uint64_t waste = meet ? tree_units(meet) - (end - start) : 0;
    if (meet == 0 || waste == 0 || k == 1) {
        out[0] = common;
        return 1;
    }
    struct cover left = {0}, right = {0};
    climb_to(&left, start, true, meet, k);
    climb_to(&right, end - 1, false, meet, k);
    unsigned between = (unsigned)((tree_above(last, meet - 1).number & 3) - (tree_above(first, meet - 1).number & 3)) - 1;
    unsigned best = 0;
    for (unsigned i = 1; i + 1 + between <= k; i++) {
        uint64_t sum = left.waste[i] + right.waste[k - between - i];
        if (sum < waste) {
            waste = sum;
            best = i;
        }
    }
    if (!best) {
        out[0] = common;
        return 1;
    }
    struct tree_node inwards[TREE_SPLIT_MAX];
    unsigned n = collect(&left, start, true, meet, best, out);
    for (unsigned i = 1; i <= between; i++)
        out[n++] = (struct tree_node){.height = (uint8_t)(meet - 1), .number = tree_above(first, meet - 1).number + i};
    unsigned m = collect(&right, end - 1, false, meet, k - between - best, inwards);
    while (m > 0)
        out[n++] = inwards[--m];
    assert(n <= k);
    return n;
}

unsigned tree_notified(unsigned height, unsigned m, unsigned top, uint8_t out[TREE_HEIGHT_MAX])
{
    unsigned n = 0, spared = top + 1 > m ? top + 1 - m : 0; /* the m-th level from the top */
    if (height >= top)
        return 0;
    out[n++] = (uint8_t)(height + 1);
    for (unsigned at = height + 1 + m; at <= top; at += m) {
        if (at > spared) {
            assert(spared > out[n - 1]); /* at - m: for at is not above the top */
            out[n++] = (uint8_t)spared;
            break;
        }
        out[n++] = (uint8_t)at;
    }
    return n;
}
