/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the design. */
#include "designs/citron/citron.h"
#include "designs/citron/session.h"

static uint64_t lock_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *unused)
{
    unsigned height = citron_height_for(max_u64(range_units, range_max));
    return places_offset(height) + tree_pow4(height) * LEAF_READERS_BYTES;
}

static void cover_at(unsigned height, uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
    struct tree_node nodes[TREE_SPLIT_MAX];
    uint64_t units = tree_units(height);
    if (end > units) { /* beyond the tree there is one node */
        *from = min_u64(*from, units);
        *to = RANGE_UNITS_MAX;
    }
    if (start >= units)
        return;
    unsigned n = tree_split(start, min_u64(end, units), height, TREE_SPLIT_MAX, nodes);
    if (nodes[0].height)
        *from = min_u64(*from, tree_start(nodes[0]));
    if (nodes[n - 1].height)
        *to = max_u64(*to, tree_end(nodes[n - 1]));
}

/* Whatever the height of the tree is at present. */
static void cover(const struct space *space, uint64_t *start, uint64_t *end)
{
    uint64_t from = *start, to = *end;
    for (unsigned height = citron_height_first(space); height <= citron_height_last(space); height++)
        cover_at(height, *start, *end, &from, &to);
    *start = min_u64(*start, from);
    *end = max_u64(*end, to);
}

static const struct design_knob knobs[] = {
    [CITRON_K] = {"k", 1, TREE_SPLIT_MAX, 2},
    [CITRON_M] = {"m", 1, TREE_M_MAX, 4},
    [CITRON_WAIT_NS] = {"wait-ns", 0, CONFIG_WAIT_NS *(uint32_t)FIELD_MAX(CONFIG_WAIT_BITS), 0},
    [CITRON_FAST] = {"fast", FAST_NOT, FAST_LOW, FAST_LOW},
    [CITRON_CONFIRM] = {"confirm", 0, 2, 2},
    [CITRON_SCALE_US] = {"scale-us", 0, UINT32_MAX, 10000},
    [CITRON_TOKENS] = {"tokens", 0, 1, 1},
    [CITRON_BLOCKED] = {"blocked", 1, 65536, 24},
    [CITRON_CROWD] = {"crowd", 1, 65536, NODE_CROWD},
    {0},
};

static const struct design_counter counters[] = {
    {"acquires", &citron_stats.acquires},
    {"late", &citron_stats.late},
    {"aborts", &citron_stats.aborts},
    {"blocked", &citron_stats.blocked},
    {"escalated", &citron_stats.escalated},
    {"repaired", &citron_stats.repaired},
    {"grown", &citron_stats.grown},
    {"censuses", &citron_stats.censuses},
    {"yielded", &citron_stats.yielded},
    {"rivals", &citron_stats.rivals},
    {"joint", &citron_stats.joint},
    {"crowded", &citron_stats.crowded},
    {0},
};

const struct design design_citron = {
    .name = "citron",
    .summary = "ranges on a segment tree, one-sided",
    .kind = DESIGN_MAIN,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT |
                DESIGN_RANGES | DESIGN_ASYNC | DESIGN_SPLIT,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM | DESIGN_ON_NODES | DESIGN_ON_RDMA,
    .tolerates = FAULTS_ALL,
    .lock_size = sizeof(struct citron_lock),
    .lock_bytes = lock_bytes,
    .desc_size = DESC_WORDS * sizeof(uint64_t),
    .session_bytes = sizeof(struct citron_session),
    .acquire = citron_acquire,
    .release = citron_release,
    .convert = citron_convert,
    .reshape = citron_reshape,
    .split = citron_split,
    .cover = cover,
    .layout = citron_layout,
    .retune = citron_retune,
    .rescale = citron_rescale,
    .holds = citron_holds,
    .recover = citron_recover,
    .peek = citron_peek,
    .raise = citron_raise,
    .knobs = knobs,
    .counters = counters,
};
