/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in a B-tree of disjoint ranges, behind messages, in the manner of the kernel's maple tree: "MT" in Citron's comparison.
 * Nodes have 16 places; a leaf's are spans of units that are held in the same way, so that ranges which readers share are cut where
 * another begins or ends. One core at a time works in it. A node that has become empty is taken out, but half-empty ones are not
 * joined, because ranges come and go all the time. */
#include "workbench/baselines/rpc.h"

#include <string.h>

#define PLACES 16 /* MAPLE_RANGE64_SLOTS */
#define WRITER UINT32_MAX
#define DEPTH_MAX 16

struct span {
    uint64_t start, end;
    uint32_t readers; /* or WRITER */
};

struct node {
    uint32_t count; /* of places in use */
    uint32_t leaf;
    union {
        struct span spans[PLACES];
        struct {
            uint64_t first; /* no span below it starts before this, but in the first of all */
            uint32_t child; /* number of a node and 1 */
        } inner[PLACES];
        uint32_t free_next;
    };
};

struct tree {
    uint32_t root;   /* number of a node and 1; 0: nothing is held */
    uint32_t unused; /* nodes come after the trees, and are aligned to 8 */
};

struct pool {
    uint32_t used; /* nodes that were taken from the beginning of the array */
    uint32_t free; /* number of one that was given back, and 1 */
};

/* A hold cuts two spans at most, so there are at most two spans more with each; a node has at least one span below it, and there
 * are no more inner nodes than leaves at each of a few levels. */
static uint64_t node_count(uint64_t entries, uint64_t locks)
{
    return 4 * (entries + 1) + locks;
}

static uint64_t bytes(const struct space *space, uint64_t entries)
{
    return sizeof(struct pool) + space->lock_count * sizeof(struct tree) +
           node_count(entries, space->lock_count) * sizeof(struct node);
}

static struct tree *tree_of(const struct rpc_desk *desk, uint64_t index)
{
    return (struct tree *)((struct pool *)desk->memory + 1) + index;
}

static struct node *node_of(const struct rpc_desk *desk, uint32_t number)
{
    return (struct node *)(tree_of(desk, desk->space->lock_count)) + (number - 1);
}

static uint32_t node_new(struct rpc_desk *desk, bool leaf)
{
    struct pool *p = desk->memory;
    uint32_t number = p->free;
    if (number) {
        p->free = node_of(desk, number)->free_next;
    } else {
        number = ++p->used;
        assert(number <= node_count((uint64_t)desk->space->slot_count * desk->space->record_count, desk->space->lock_count));
    }
    *node_of(desk, number) = (struct node){.leaf = leaf};
    return number;
}

static void node_free(struct rpc_desk *desk, uint32_t number)
{
    struct pool *p = desk->memory;
    node_of(desk, number)->free_next = p->free;
    p->free = number;
}

/* ---- finding ---- */

/* The way from the root to a place: `at` is the number of the child taken, or of the span. */
struct step {
    uint32_t node;
    uint32_t at;
};

struct path {
    struct step steps[DEPTH_MAX];
    unsigned depth;
};

static void down(struct rpc_desk *desk, struct path *p, uint32_t number, uint64_t unit, bool first)
{
    for (;;) {
        const struct node *n = node_of(desk, number);
        uint32_t at = 0;
        desk->visits++;
        assert(p->depth < DEPTH_MAX);
        if (n->leaf) {
            while (!first && at < n->count && n->spans[at].end <= unit)
                at++;
            p->steps[p->depth++] = (struct step){number, at};
            return;
        }
        while (!first && at + 1 < n->count && n->inner[at + 1].first <= unit)
            at++;
        p->steps[p->depth++] = (struct step){number, at};
        number = n->inner[at].child;
    }
}

/* At the end of a leaf: on to the next one. False: there is none. */
static bool settle(struct rpc_desk *desk, struct path *p)
{
    if (p->steps[p->depth - 1].at < node_of(desk, p->steps[p->depth - 1].node)->count)
        return true;
    for (unsigned up = p->depth - 1; up-- > 0;) {
        struct step *s = &p->steps[up];
        const struct node *n = node_of(desk, s->node);
        if (s->at + 1 < n->count) {
            s->at++;
            p->depth = up + 1;
            down(desk, p, n->inner[s->at].child, 0, true);
            return true;
        }
    }
    return false;
}

/* The first span that ends behind `unit`; null: there is none. The path is to where one that starts there belongs. */
static struct span *find(struct rpc_desk *desk, const struct tree *t, uint64_t unit, struct path *p)
{
    p->depth = 0;
    if (!t->root)
        return NULL;
    down(desk, p, t->root, unit, false);
    struct path next = *p;
    if (!settle(desk, &next))
        return NULL;
    if (next.depth != p->depth || memcmp(&next.steps, &p->steps, next.depth * sizeof *next.steps))
        *p = next;
    const struct step *s = &p->steps[p->depth - 1];
    return &node_of(desk, s->node)->spans[s->at];
}

/* ---- changing ---- */

/* A node in two halves; the second is put behind the first in its parent, which may have to be cut, too. */
static void cut_node(struct rpc_desk *desk, struct tree *t, struct path *p, unsigned level)
{
    uint32_t left_number = p->steps[level].node;
    if (level == 0) {
        uint32_t root = node_new(desk, false);
        struct node *n = node_of(desk, root);
        n->count = 1;
        n->inner[0].child = left_number;
        n->inner[0].first = 0;
        t->root = root;
        assert(p->depth < DEPTH_MAX);
        memmove(p->steps + 1, p->steps, p->depth * sizeof *p->steps);
        p->steps[0] = (struct step){root, 0};
        p->depth++;
        level = 1;
    } else if (node_of(desk, p->steps[level - 1].node)->count == PLACES) {
        unsigned depth = p->depth;
        cut_node(desk, t, p, level - 1);
        level += p->depth - depth;
    }
    uint32_t right_number = node_new(desk, node_of(desk, left_number)->leaf);
    struct node *left = node_of(desk, left_number), *right = node_of(desk, right_number);
    struct step *above = &p->steps[level - 1];
    struct node *parent = node_of(desk, above->node);
    uint32_t half = left->count / 2;
    right->count = left->count - half;
    left->count = half;
    if (left->leaf)
        memcpy(right->spans, left->spans + half, right->count * sizeof *right->spans);
    else
        memcpy(right->inner, left->inner + half, right->count * sizeof *right->inner);
    memmove(&parent->inner[above->at + 2], &parent->inner[above->at + 1], (parent->count - above->at - 1) * sizeof *parent->inner);
    parent->count++;
    parent->inner[above->at + 1].child = right_number;
    parent->inner[above->at + 1].first = left->leaf ? right->spans[0].start : right->inner[0].first;
    /* A span that is to be put between the two comes last in the first, for it starts before the second. */
    if (p->steps[level].at >= half + left->leaf) {
        above->at++;
        p->steps[level] = (struct step){right_number, p->steps[level].at - half};
    }
    desk->visits += 2;
}

/* The border of the next leaf must not lie inside a span: a search for those units would go to the next leaf, and the span starts
 * before it. */
static void raise_border(struct rpc_desk *desk, const struct path *p, uint64_t end)
{
    for (unsigned level = p->depth - 1; level-- > 0;) {
        const struct step *s = &p->steps[level];
        struct node *n = node_of(desk, s->node);
        if (s->at + 1 < n->count) {
            n->inner[s->at + 1].first = max_u64(n->inner[s->at + 1].first, end);
            return;
        }
    }
}

/* A new span, where none is. */
static void insert(struct rpc_desk *desk, struct tree *t, struct span span)
{
    struct path p = {.depth = 0};
    if (!t->root)
        t->root = node_new(desk, true);
    down(desk, &p, t->root, span.start, false);
    struct step *s = &p.steps[p.depth - 1];
    if (node_of(desk, s->node)->count == PLACES) {
        cut_node(desk, t, &p, p.depth - 1);
        s = &p.steps[p.depth - 1];
    }
    struct node *n = node_of(desk, s->node);
    memmove(&n->spans[s->at + 1], &n->spans[s->at], (n->count - s->at) * sizeof *n->spans);
    n->spans[s->at] = span;
    n->count++;
    raise_border(desk, &p, span.end);
}

static void take_out(struct rpc_desk *desk, struct tree *t, struct path *p)
{
    struct step *s = &p->steps[p->depth - 1];
    struct node *n = node_of(desk, s->node);
    memmove(&n->spans[s->at], &n->spans[s->at + 1], (n->count - s->at - 1) * sizeof *n->spans);
    n->count--;
    for (unsigned level = p->depth - 1; !node_of(desk, p->steps[level].node)->count; level--) {
        node_free(desk, p->steps[level].node);
        if (level == 0) {
            t->root = 0;
            return;
        }
        s = &p->steps[level - 1];
        n = node_of(desk, s->node);
        memmove(&n->inner[s->at], &n->inner[s->at + 1], (n->count - s->at - 1) * sizeof *n->inner);
        n->count--;
        desk->visits++;
    }
}

/* No span reaches across `unit` afterwards. */
static void cut_span(struct rpc_desk *desk, struct tree *t, uint64_t unit)
{
    struct path p;
    struct span *s = find(desk, t, unit, &p);
    if (!s || s->start >= unit)
        return;
    struct span rest = {.start = unit, .end = s->end, .readers = s->readers};
    s->end = unit;
    insert(desk, t, rest);
}

/* ---- the store ---- */

static bool admits(struct rpc_desk *desk, const struct rpc_entry *e)
{
    struct path p;
    const struct tree *t = tree_of(desk, e->index);
    const struct span *s = find(desk, t, e->start, &p);
    while (s && s->start < e->end) {
        if (e->mode == PAWL_EXCLUSIVE || s->readers == WRITER)
            return false;
        p.steps[p.depth - 1].at++;
        if (!settle(desk, &p))
            break;
        s = &node_of(desk, p.steps[p.depth - 1].node)->spans[p.steps[p.depth - 1].at];
    }
    return true;
}

static void enter(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct tree *t = tree_of(desk, e->index);
    struct path p;
    cut_span(desk, t, e->start);
    cut_span(desk, t, e->end);
    for (uint64_t at = e->start; at < e->end;) {
        struct span *s = find(desk, t, at, &p);
        if (s && s->start <= at) { /* others read it, too */
            assert(s->readers != WRITER && e->mode == PAWL_SHARED);
            s->readers++;
            at = s->end;
            continue;
        }
        uint64_t end = s && s->start < e->end ? s->start : e->end;
        insert(desk, t, (struct span){.start = at, .end = end, .readers = e->mode == PAWL_SHARED ? 1 : WRITER});
        at = end;
    }
}

static void leave(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct tree *t = tree_of(desk, e->index);
    struct path p;
    for (uint64_t at = e->start; at < e->end;) {
        struct span *s = find(desk, t, at, &p);
        assert(s && s->start == at && s->end <= e->end); /* cut when it entered, and never joined */
        at = s->end;
        if (s->readers == WRITER || --s->readers == 0)
            take_out(desk, t, &p);
    }
}

static const struct rpc_store store = {
    .bytes = bytes, .admits = admits, .enter = enter, .leave = leave, .visits = true, .serialised = true};

const struct design design_maple = {
    .name = "maple",
    .summary = "ranges in a B-tree of disjoint ranges, kept by a server's cores",
    RPC_COMMON(DESIGN_RANGES, rpc_acquire, store),
};
