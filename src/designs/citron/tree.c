/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/citron/tree.h"

unsigned tree_notified(unsigned height, unsigned m, unsigned top, uint8_t out[TREE_HEIGHT_MAX])
{
    unsigned n = 0, spared = top + 1 > m ? top + 1 - m : 0; /* the m-th level from the top */
    if (height >= top)
        return 0;
    out[n++] = (uint8_t)(height + 1);
    for (unsigned at = height + 1 + m; at <= top; at += m) {
        if (at > spared) {
            if (spared > out[n - 1])
                out[n++] = (uint8_t)spared;
            break;
        }
        out[n++] = (uint8_t)at;
    }
    return n;
}

/* ---- splitting ---- */

#define IMPOSSIBLE UINT64_MAX

/* The best covers of that part of a range that lies in one node on the way from a boundary of the range to where both ways meet. */
struct cover {
    uint64_t waste[TREE_SPLIT_MAX + 1]; /* by the number of nodes that may be used: units covered beside those asked for */
    uint8_t whole[TREE_SPLIT_MAX + 1];  /* the height at which a node on the way is taken as it is */
};

/* Of the children of a node that lies across the boundary one is across it, too, and those on the inner side are covered: they cost
 * a node each, unless the parent is taken with all that it has too much. */
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

static void start_at_leaf(struct cover *c, unsigned k)
{
    for (unsigned n = 0; n <= k; n++) {
        c->waste[n] = n ? 0 : IMPOSSIBLE;
        c->whole[n] = 0;
    }
}

static struct tree_node leaf_of(uint64_t unit)
{
    return (struct tree_node){.height = 0, .number = unit >> TREE_LEAF_BITS};
}

/* From the leaf of the boundary up to below `height`. `left`: the range lies to the right of the boundary. */
static void climb_to(struct cover *c, uint64_t unit, bool left, unsigned height, unsigned k)
{
    struct tree_node leaf = leaf_of(unit);
    start_at_leaf(c, k);
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
