/* SPDX-License-Identifier: Apache-2.0 */
/* The lock tree of Citron (3.3): a quaternary segment tree over units, 64 of them in a leaf, as arithmetic on numbers.
 *
 * A node is a height (0: leaf) and a number at that height; it stands for 64 * 4^height units. Nodes lie in one flat array in level
 * order, as in Figure 2. The array is that of the largest tree that the lock may grow to; memory is used where it is touched. A
 * smaller tree is the leftmost subtree of it. So a tree that grows (3.9) moves nothing, and the nodes of one level below a node are
 * always one block. */
#ifndef PAWL_DESIGNS_CITRON_TREE_H
#define PAWL_DESIGNS_CITRON_TREE_H

#include "lib/base.h"

#define TREE_LEAF_BITS 6
#define TREE_LEAF_UNITS (UINT64_C(1) << TREE_LEAF_BITS)
#define TREE_HEIGHT_MAX 17 /* 64 * 4^17 = 2^40 units */
#define TREE_SPLIT_MAX 6   /* nodes of one range: k */
#define TREE_M_MAX 5       /* (4^5 - 1) / 3 = 341 nodes to look at, the largest that one batch holds */

struct tree_node {
    uint8_t height;
    uint64_t number;
};

/* 4^n */
static inline uint64_t tree_pow4(unsigned n)
{
    assert(n <= TREE_HEIGHT_MAX + 1);
    return UINT64_C(1) << (2 * n);
}

/* Nodes of a tree of that height: (4^(height+1) - 1) / 3. */
static inline uint64_t tree_nodes(unsigned height)
{
    return (tree_pow4(height + 1) - 1) / 3;
}

static inline uint64_t tree_units(unsigned height)
{
    return TREE_LEAF_UNITS << (2 * height);
}

/* The height of the smallest tree that has so many units. */
static inline unsigned tree_height_for(uint64_t units)
{
    unsigned height = 0;
    while (height < TREE_HEIGHT_MAX && tree_units(height) < units)
        height++;
    return height;
}

static inline uint64_t tree_start(struct tree_node n)
{
    return n.number << (TREE_LEAF_BITS + 2 * n.height);
}
static inline uint64_t tree_end(struct tree_node n)
{
    return (n.number + 1) << (TREE_LEAF_BITS + 2 * n.height);
}

static inline struct tree_node tree_parent(struct tree_node n)
{
    return (struct tree_node){.height = (uint8_t)(n.height + 1), .number = n.number >> 2};
}
static inline struct tree_node tree_child(struct tree_node n, unsigned i)
{
    return (struct tree_node){.height = (uint8_t)(n.height - 1), .number = n.number << 2 | i};
}

/* The ancestor (or node itself) at that height. */
static inline struct tree_node tree_above(struct tree_node n, unsigned height)
{
    return (struct tree_node){.height = (uint8_t)height, .number = n.number >> (2 * (height - n.height))};
}

static inline bool tree_same(struct tree_node a, struct tree_node b)
{
    return a.height == b.height && a.number == b.number;
}

/* `a` contains `b`, or is it. */
static inline bool tree_contains(struct tree_node a, struct tree_node b)
{
    return a.height >= b.height && tree_above(b, a.height).number == a.number;
}

/* Its place in the level order of a tree of height `top`, from 1: there CHILD(x, i) = 4x - 2 + i and PARENT(x) = (x + 2) / 4. */
static inline uint64_t tree_index(struct tree_node n, unsigned top)
{
    return (tree_pow4(top - n.height) - 1) / 3 + 1 + n.number;
}
static inline struct tree_node tree_at(uint64_t index, unsigned top)
{
    unsigned level = 0;
    while (level < top && index > tree_nodes(level))
        level++;
    return (struct tree_node){.height = (uint8_t)(top - level), .number = index - (level ? tree_nodes(level - 1) : 0) - 1};
}

/* The heights at which a claim on a node of height `height` notifies ancestors (3.5.5), lowest first: the parent, and from there
 * every m-th ancestor; those in the top m - 1 levels of a tree of height `top` are replaced by the one in the m-th level.
 * Notifications for a tree are found in every smaller one, too. */
unsigned tree_notified(unsigned height, unsigned m, unsigned top, uint8_t out[TREE_HEIGHT_MAX]);

static inline bool tree_notifies(unsigned height, unsigned m, unsigned top, unsigned ancestor)
{
    uint8_t heights[TREE_HEIGHT_MAX];
    unsigned n = tree_notified(height, m, top, heights);
    for (unsigned i = 0; i < n; i++)
        if (heights[i] == ancestor)
            return true;
    return false;
}

/* Covers [start, end) by up to k nodes of a tree of height `top`, in ascending order, with as few other units as possible: a tree
 * knapsack (3.5.1). In a leaf no other units are covered. Returns the number of nodes. */
unsigned tree_split(uint64_t start, uint64_t end, unsigned top, unsigned k, struct tree_node out[TREE_SPLIT_MAX]);

/* The smallest internal node (or, in a tree that has none, the leaf) that contains [start, end). */
struct tree_node tree_cover(uint64_t start, uint64_t end, unsigned top);

#endif
