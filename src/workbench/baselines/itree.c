/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges in an interval tree, behind messages, as Lustre keeps them: "IT" in Citron's comparison. A search tree in the order in
 * which ranges begin, each node of which knows how far its subtree reaches, so that whole subtrees are passed over. It is balanced
 * by random priorities (a treap). One core at a time works in a lock's tree. */
#include "lib/hash.h"
#include "workbench/baselines/rpc.h"

/* The node of the entry with the same number. Links are numbers of nodes + 1; 0: none. */
struct node {
    uint32_t left, right;
    uint64_t reach;   /* the largest end in its subtree */
    uint64_t reach_x; /* and of those that hold exclusively; 0: none does */
};

struct tree {
    uint32_t root;
    uint32_t unused; /* nodes come after the trees, and are aligned to 8 */
};

static uint64_t bytes(const struct space *space, uint64_t entries)
{
    return space->lock_count * sizeof(struct tree) + (entries + 1) * sizeof(struct node);
}

static struct tree *tree_of(const struct rpc_desk *desk, uint64_t index)
{
    return (struct tree *)desk->memory + index;
}

static struct node *node_of(const struct rpc_desk *desk, uint32_t link)
{
    return (struct node *)((struct tree *)desk->memory + desk->space->lock_count) + link;
}

/* By start, and those that start alike by number. */
static bool is_before(const struct rpc_desk *desk, uint32_t a, uint32_t b)
{
    uint64_t start_a = rpc_entry_at(desk, a)->start, start_b = rpc_entry_at(desk, b)->start;
    return start_a != start_b ? start_a < start_b : a < b;
}

static uint64_t priority(uint32_t link)
{
    return mix64(link);
}

static void update(const struct rpc_desk *desk, uint32_t at)
{
    const struct rpc_entry *e = rpc_entry_at(desk, at);
    struct node *n = node_of(desk, at);
    const struct node *l = node_of(desk, n->left), *r = node_of(desk, n->right); /* of 0: all zero */
    n->reach = max_u64(e->end, max_u64(l->reach, r->reach));
    n->reach_x = max_u64(e->mode == PAWL_EXCLUSIVE ? e->end : 0, max_u64(l->reach_x, r->reach_x));
}

/* Splits a subtree: nodes before `key` to the left, the rest to the right. */
static void split(struct rpc_desk *desk, uint32_t at, uint32_t key, uint32_t *left, uint32_t *right)
{
    if (!at) {
        *left = *right = 0;
        return;
    }
    struct node *n = node_of(desk, at);
    desk->visits++;
    if (is_before(desk, at, key)) {
        split(desk, n->right, key, &n->right, right);
        *left = at;
    } else {
        split(desk, n->left, key, left, &n->left);
        *right = at;
    }
    update(desk, at);
}

static uint32_t merge(struct rpc_desk *desk, uint32_t left, uint32_t right)
{
    if (!left || !right)
        return left ? left : right;
    desk->visits++;
    bool up = priority(left) > priority(right);
    struct node *n = node_of(desk, up ? left : right);
    if (up)
        n->right = merge(desk, n->right, right);
    else
        n->left = merge(desk, left, n->left);
    update(desk, up ? left : right);
    return up ? left : right;
}

static uint32_t insert(struct rpc_desk *desk, uint32_t at, uint32_t me)
{
    struct node *n = node_of(desk, at ? at : me);
    desk->visits++;
    if (!at || priority(me) > priority(at)) {
        struct node *mine = node_of(desk, me);
        split(desk, at, me, &mine->left, &mine->right);
        at = me;
    } else if (is_before(desk, me, at)) {
        n->left = insert(desk, n->left, me);
    } else {
        n->right = insert(desk, n->right, me);
    }
    update(desk, at);
    return at;
}

static uint32_t take_out(struct rpc_desk *desk, uint32_t at, uint32_t me)
{
    assert(at); /* it is there */
    struct node *n = node_of(desk, at);
    desk->visits++;
    if (at == me)
        return merge(desk, n->left, n->right);
    if (is_before(desk, me, at))
        n->left = take_out(desk, n->left, me);
    else
        n->right = take_out(desk, n->right, me);
    update(desk, at);
    return at;
}

/* Whether a node of this subtree conflicts. */
static bool meets(struct rpc_desk *desk, uint32_t at, const struct rpc_entry *e)
{
    while (at) {
        const struct node *n = node_of(desk, at);
        const struct rpc_entry *other = rpc_entry_at(desk, at);
        desk->visits++;
        if ((e->mode == PAWL_EXCLUSIVE ? n->reach : n->reach_x) <= e->start)
            return false;
        if (meets(desk, n->left, e))
            return true;
        if (other->start >= e->end)
            return false; /* and so do all to its right */
        if (other->end > e->start && (e->mode == PAWL_EXCLUSIVE || other->mode == PAWL_EXCLUSIVE))
            return true;
        at = n->right;
    }
    return false;
}

static bool admits(struct rpc_desk *desk, const struct rpc_entry *e)
{
    return !meets(desk, tree_of(desk, e->index)->root, e);
}

static void enter(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct tree *t = tree_of(desk, e->index);
    *node_of(desk, rpc_link(desk, e)) = (struct node){0};
    t->root = insert(desk, t->root, rpc_link(desk, e));
}

static void leave(struct rpc_desk *desk, struct rpc_entry *e)
{
    struct tree *t = tree_of(desk, e->index);
    t->root = take_out(desk, t->root, rpc_link(desk, e));
}

static const struct rpc_store store = {
    .bytes = bytes, .admits = admits, .enter = enter, .leave = leave, .visits = true, .serialised = true};

const struct design design_itree = {
    .name = "itree",
    .summary = "ranges in an interval tree, kept by a server's cores",
    RPC_COMMON(DESIGN_RANGES, rpc_acquire, store),
};
