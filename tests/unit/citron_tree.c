/* SPDX-License-Identifier: Apache-2.0 */
/* Citron's tree: the arithmetic against the paper's, the knapsack against trying everything, and meeting in the middle. */
#include "check.h"
#include "designs/citron/tree.h"
#include "lib/rng.h"

static void arithmetic(void)
{
    const unsigned top = 5;
    uint64_t index = 1;
    for (unsigned level = 0; level <= top; level++)
        for (uint64_t i = 0; i < tree_pow4(level); i++, index++) {
            struct tree_node n = {.height = (uint8_t)(top - level), .number = i};
            CHECK_EQ(tree_index(n, top), index);
            CHECK(tree_same(tree_at(index, top), n));
            if (level)
                CHECK_EQ(tree_index(tree_parent(n), top), (index + 2) / 4);
            for (unsigned c = 0; c < 4 && level < top; c++) {
                CHECK_EQ(tree_index(tree_child(n, c), top), 4 * index - 2 + c);
                CHECK(tree_contains(n, tree_child(n, c)) && !tree_contains(tree_child(n, c), n));
            }
        }
    CHECK_EQ(index - 1, tree_nodes(top));
    CHECK_EQ(tree_units(11), UINT64_C(1) << 28);
    CHECK_EQ(tree_units(TREE_HEIGHT_MAX), UINT64_C(1) << 40);
    CHECK_EQ(tree_nodes(11), 5592405); /* 5.6 million nodes (4.1) */
    CHECK_EQ(tree_nodes(11) * 8, 44739240);
    CHECK_EQ(tree_nodes(11) * 8 * 10 / (1 << 20), 426); /* 42.66 MiB, the paper's 42.7 MB */
    CHECK_EQ(tree_height_for(1), 0);
    CHECK_EQ(tree_height_for(64), 0);
    CHECK_EQ(tree_height_for(65), 1);
    CHECK_EQ(tree_height_for(UINT64_C(1) << 40), TREE_HEIGHT_MAX);
}

/* ---- the knapsack ---- */

static uint64_t overlap(struct tree_node n, uint64_t start, uint64_t end)
{
    uint64_t from = max_u64(tree_start(n), start), to = min_u64(tree_end(n), end);
    return from < to ? to - from : 0;
}

/* The least waste of a cover by at most k nodes: tries everything. */
static uint64_t least(struct tree_node n, uint64_t start, uint64_t end, unsigned k)
{
    uint64_t inside = overlap(n, start, end);
    if (!inside)
        return 0;
    if (!k)
        return UINT64_MAX;
    if (!n.height)
        return 0;
    uint64_t best = tree_units(n.height) - inside, sums[TREE_SPLIT_MAX + 1];
    for (unsigned used = 0; used <= k; used++)
        sums[used] = 0;
    for (unsigned c = 0; c < 4; c++) {
        struct tree_node child = tree_child(n, c);
        uint64_t next[TREE_SPLIT_MAX + 1];
        for (unsigned all = 0; all <= k; all++) {
            next[all] = UINT64_MAX;
            for (unsigned own = 0; own <= all; own++) {
                uint64_t waste = least(child, start, end, own);
                if (waste != UINT64_MAX && sums[all - own] != UINT64_MAX)
                    next[all] = min_u64(next[all], waste + sums[all - own]);
            }
        }
        memcpy(sums, next, sizeof sums);
    }
    return min_u64(best, sums[k]);
}

static void check_split(uint64_t start, uint64_t end, unsigned top, unsigned k)
{
    struct tree_node nodes[TREE_SPLIT_MAX];
    unsigned n = tree_split(start, end, top, k, nodes);
    uint64_t covered = 0, waste = 0;
    CHECK(n >= 1 && n <= k);
    for (unsigned i = 0; i < n; i++) {
        CHECK(tree_end(nodes[i]) <= tree_units(top) && overlap(nodes[i], start, end));
        if (i)
            CHECK_EQ(tree_start(nodes[i]), tree_end(nodes[i - 1])); /* ascending, without gap or overlap */
        covered += overlap(nodes[i], start, end);
        waste += nodes[i].height ? tree_units(nodes[i].height) - overlap(nodes[i], start, end) : 0;
    }
    CHECK_EQ(covered, end - start);
    CHECK_EQ(waste, least((struct tree_node){.height = (uint8_t)top}, start, end, k));
    if (end - start <= 64 && k >= 2)
        CHECK(waste == 0 && n <= 2);
}

static void splits(void)
{
    struct rng r;
    rng_seed(&r, 4);
    for (unsigned top = 0; top <= 3; top++)
        for (unsigned k = 1; k <= TREE_SPLIT_MAX; k++)
            for (unsigned i = 0; i < (top < 3 ? 400u : 60u); i++) {
                uint64_t start = rng_below(&r, tree_units(top)), end = start + 1 + rng_below(&r, tree_units(top) - start);
                check_split(start, end, top, k);
            }
    for (unsigned i = 0; i < 200; i++) { /* edges on leaves */
        uint64_t start = 64 * rng_below(&r, 64), end = start + 64 * (1 + rng_below(&r, 64 - start / 64));
        check_split(start, end, 3, 1 + (unsigned)rng_below(&r, TREE_SPLIT_MAX));
    }
    CHECK(tree_same(tree_cover(3, 5, 4), (struct tree_node){.height = 1}));
    CHECK(tree_same(tree_cover(3, 5, 0), (struct tree_node){.height = 0}));
    CHECK(tree_same(tree_cover(255, 257, 4), (struct tree_node){.height = 2}));
}

/* ---- meeting in the middle: a client that looks m levels down finds all claims below its node ---- */

static void check_meets(unsigned m_notify, unsigned m_check, unsigned top, unsigned root)
{
    for (unsigned low = 0; low < root; low++)
        for (unsigned high = low + 1; high <= root; high++) {
            bool met = false;
            for (unsigned at = high; at > low && high - at < m_check; at--)
                met |= tree_notifies(low, m_notify, top, at);
            if (!met)
                CHECK_FAIL("m %u/%u, a tree of %u notified for %u: %u does not see %u", m_notify, m_check, root, top, high, low);
        }
}

static void meeting(void)
{
    for (unsigned m = 1; m <= TREE_M_MAX; m++)
        for (unsigned top = 0; top <= TREE_HEIGHT_MAX; top++) {
            for (unsigned root = 0; root <= top; root++) /* a tree that is about to grow to `top` */
                check_meets(m, m, top, root);
            for (unsigned less = 1; less < m; less++) /* while m changes: the smaller one is used to notify */
                check_meets(less, m, top, top);
            uint8_t heights[TREE_HEIGHT_MAX];
            for (unsigned low = 0; low < top; low++) {
                unsigned n = tree_notified(low, m, top, heights);
                CHECK_EQ(heights[0], low + 1);
                for (unsigned i = 1; i < n; i++) /* the top m - 1 levels are spared */
                    CHECK(heights[i] > heights[i - 1] && heights[i] + m <= top + 1);
            }
        }
}

int main(void)
{
    arithmetic();
    splits();
    meeting();
    return 0;
}
