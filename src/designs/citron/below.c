/* SPDX-License-Identifier: Apache-2.0 */
/* Phase (d) of Algorithm 2: waiting for those below. */
#include "designs/citron/citron.h"

#include <errno.h>

/* The nodes of m levels: (4^5 - 1) / 3 at most. Of high ones there are several words each. */
#define BELOW_NODES_MAX 341

struct below {
    unsigned n;                                       /* nodes, from the highest level down */
    uint64_t here;                                    /* the word beside the node itself: its own readers */
    uint64_t writers[BELOW_NODES_MAX * HIGH_STRIPES]; /* from the front, what counts those below high nodes: readers, too */
    uint64_t readers[BELOW_NODES_MAX];
};

struct citron_own job_own_at(const struct citron_job *j, struct tree_node n, bool spill)
{
    struct citron_own own = {0};
    for (unsigned i = 0; i < j->base; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (c->spill != spill)
            continue;
        if (spill || tree_same(c->node, n))
            own.readers_here += c->shared;
        else if (tree_contains(n, c->node) && tree_notifies(c->node.height, c->m, c->top, n.height))
            ++*(c->shared ? &own.readers_below : &own.below);
    }
    return own;
}

static void read_block(struct citron_batch *b, fab_addr addr, uint64_t *to, unsigned words)
{
    for (unsigned n; words; words -= n, addr += n * sizeof *to, to += n) {
        n = words < FAB_LEN_MAX / sizeof *to ? words : FAB_LEN_MAX / sizeof *to;
        batch_read(b, addr, to, (uint16_t)(n * sizeof *to));
    }
}

static unsigned words_of(struct tree_node n)
{
    return node_is_high(n) ? HIGH_STRIPES : 1;
}

/* The node and its internal descendants within m levels: a block of each level. */
static void add_below(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, struct below *out)
{
    unsigned lowest = c->node.height >= config_m_check(j->config) ? c->node.height - config_m_check(j->config) + 1 : 1;
    unsigned words = 0;
    out->n = 0;
    for (unsigned h = c->node.height; h >= lowest && h >= 1; h--) {
        unsigned count = (unsigned)tree_pow4(c->node.height - h);
        struct tree_node first = {.height = (uint8_t)h, .number = c->node.number << (2 * (c->node.height - h))};
        fab_addr addr = node_is_high(first) ? job_stripes(j, first) : job_node(j, first);
        read_block(b, addr, &out->writers[words], count * words_of(first));
        if (!j->shared && !node_is_high(first))
            read_block(b, job_readers(j, first), &out->readers[out->n], count);
        out->n += count;
        words += count * words_of(first);
    }
    if (!j->shared)
        batch_read(b, job_readers(j, c->node), &out->here, sizeof out->here);
}

/* The node of the i-th word. */
static struct tree_node below_at(const struct citron_claim *c, unsigned i)
{
    unsigned depth = 0;
    while (i >= tree_nodes(depth))
        depth++;
    uint64_t first = depth ? tree_nodes(depth - 1) : 0;
    return (struct tree_node){.height = (uint8_t)(c->node.height - depth), .number = (c->node.number << 2 * depth) + i - first};
}

/* What to wait for at a word whose lower half counts writers and the upper half readers. */
static bool half_busy(const struct citron_job *j, struct citron_own own, fab_addr addr, uint64_t word, struct fab_cond *cond)
{
    uint64_t half = readers_here(word) > own.below                          ? UINT32_MAX
                    : !j->shared && readers_below(word) > own.readers_below ? UINT64_C(0xffffffff) << 32
                                                                            : 0;
    *cond = (struct fab_cond){.addr = addr, .mask = half, .value = word & half};
    return half;
}

/* Who is still there? Fills in what to wait for. */
static bool somebody_below(const struct citron_job *j, const struct citron_claim *c, const struct below *d, struct tree_node *who,
                           struct fab_cond *cond)
{
    *who = c->node;
    if (!j->shared && readers_here(d->here) > job_own_at(j, c->node, false).readers_here) {
        *cond = (struct fab_cond){.addr = job_readers(j, c->node), .mask = UINT32_MAX, .value = d->here & UINT32_MAX};
        return true;
    }
    for (unsigned i = 0, word = 0; i < d->n; word += words_of(*who), i++) {
        *who = below_at(c, i);
        const struct citron_own own = job_own_at(j, *who, false), none = {0};
        for (unsigned k = 0; k < HIGH_STRIPES && node_is_high(*who); k++)
            if (half_busy(j, k == j->seat->me->slot % HIGH_STRIPES ? own : none, job_stripes(j, *who) + k * sizeof(uint64_t),
                          d->writers[word + k], cond))
                return true;
        if (node_is_high(*who))
            continue;
        if (node_below(d->writers[word]) > own.below) {
            *cond = (struct fab_cond){.addr = job_node(j, *who), .mask = NODE_D_MASK, .value = d->writers[word] & NODE_D_MASK};
            return true;
        }
        if (!j->shared && readers_below(d->readers[i]) > own.readers_below) {
            const uint64_t half = UINT64_C(0xffffffff) << 32;
            *cond = (struct fab_cond){.addr = job_readers(j, *who), .mask = half, .value = d->readers[i] & half};
            return true;
        }
    }
    return false;
}

/* One look: 0 if nobody is there any more, and then the token, which comes last: above those of all who were. 1: somebody is. */
OWN_FRAME static int look_below(struct citron_job *j, const struct citron_claim *c, struct tree_node *who, struct fab_cond *cond)
{
    struct citron_batch b;
    struct below d;
    d.here = 0;
    batch_start(&b);
    if (c->spill) { /* has readers, and nothing below */
        batch_read(&b, job_claim_readers(j, c), &d.here, sizeof d.here);
    } else {
        add_below(j, &b, c, &d);
    }
    job_draw(j, &b);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    if (c->spill && !j->shared && readers_here(d.here) > job_own_at(j, c->node, true).readers_here) {
        *cond = (struct fab_cond){.addr = job_claim_readers(j, c), .mask = UINT32_MAX, .value = d.here & UINT32_MAX};
        return 1;
    }
    if (!c->spill && somebody_below(j, c, &d, who, cond))
        return 1;
    job_drew(j, &b);
    return 0;
}

/* Waits until nobody is below (line 36). */
int job_drain_below(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims[i];
    for (;;) {
        struct tree_node who = {0};
        struct fab_cond cond;
        int rc = look_below(j, c, &who, &cond);
        if (!rc)
            return 0;
        uint64_t seen;
        rc = rc < 0 ? seat_retry(j->seat, rc) : job_wait_at(j, who, c->spill, &cond, &seen);
        if (rc)
            return rc;
    }
}

/* Line 34: until everybody below who could not know of us has made itself known. t0 is when Occ's verb was complete. */
int job_wait_out(struct citron_job *j)
{
    uint64_t until = add_saturating(j->claimed_ns, config_wait_ns(j->config));
    if (citron_errs(j, CITRON_NO_WAIT))
        return 0;
    while (world_now(j->seat->world) < until) {
        int rc = fab_wait_any(j->seat->ep, NULL, 0, until);
        if (rc && rc != -ETIMEDOUT)
            return rc;
    }
    if (!seat_lives(j->seat))
        return -PAWL_ELOST;
    return config_confirms(j->config) ? 0 : citron_wait_shorter(j);
}
