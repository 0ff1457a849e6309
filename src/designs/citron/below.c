/* Phase (d) of Algorithm 2: waiting for those below. */
#include "designs/citron/citron.h"

#include <errno.h>

#define BELOW_WORDS_MAX 341 /* (4^5 - 1) / 3 */

struct below {
    unsigned n;
    uint64_t words[BELOW_WORDS_MAX];
    uint64_t readers[BELOW_WORDS_MAX];
};

/* What this job's hold has already does not count: how much of what a node says is its own. */
struct own {
    uint32_t below, readers_here, readers_below;
};

static struct own own_at(const struct citron_job *j, struct tree_node n, bool spill)
{
    struct own own = {0};
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

/* The node and its internal descendants within m levels: a block of each level. */
static void add_below(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, struct below *out)
{
    unsigned lowest = c->node.height >= config_m_check(j->config) ? c->node.height - config_m_check(j->config) + 1 : 1;
    out->n = 0;
    for (unsigned h = c->node.height; h >= lowest && h >= 1; h--) {
        unsigned count = (unsigned)tree_pow4(c->node.height - h);
        struct tree_node first = {.height = (uint8_t)h, .number = c->node.number << (2 * (c->node.height - h))};
        batch_read(b, job_node(j, first), &out->words[out->n], (uint16_t)(count * sizeof(uint64_t)));
        if (!j->shared)
            batch_read(b, job_readers(j, first), &out->readers[out->n], (uint16_t)(count * sizeof(uint64_t)));
        out->n += count;
    }
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

/* Who is still there? Fills in what to wait for. */
static bool somebody_below(const struct citron_job *j, const struct citron_claim *c, const struct below *d, struct tree_node *who,
                           struct fab_cond *cond)
{
    for (unsigned i = 0; i < d->n; i++) {
        *who = below_at(c, i);
        const struct own own = own_at(j, *who, false);
        if (node_below(d->words[i]) > own.below) {
            *cond = (struct fab_cond){.addr = job_node(j, *who), .mask = NODE_D_MASK, .value = d->words[i] & NODE_D_MASK};
            return true;
        }
        uint64_t half = 0;
        if (!j->shared && readers_below(d->readers[i]) > own.readers_below)
            half = UINT64_C(0xffffffff) << 32;
        else if (!j->shared && !i && readers_here(d->readers[i]) > own.readers_here)
            half = UINT32_MAX;
        if (half) {
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
    d.readers[0] = 0;
    batch_start(&b);
    if (c->spill) { /* has readers, and nothing below */
        d.n = 0;
        batch_read(&b, job_claim_readers(j, c), &d.readers[0], sizeof d.readers[0]);
    } else {
        add_below(j, &b, c, &d);
    }
    unsigned token = job_draw(j, &b);
    int rc = job_run(j, &b);
    if (rc)
        return rc;
    if (c->spill && !j->shared && readers_here(d.readers[0]) > own_at(j, c->node, true).readers_here) {
        *cond = (struct fab_cond){.addr = job_claim_readers(j, c), .mask = UINT32_MAX, .value = d.readers[0] & UINT32_MAX};
        return 1;
    }
    if (!c->spill && somebody_below(j, c, &d, who, cond))
        return 1;
    job_drew(j, &b, token);
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
        rc = rc < 0 ? seat_retry(j->seat, rc) : job_wait_at(j, who, c->spill, &cond);
        if (rc)
            return rc;
    }
}

/* Line 34: until everybody below who could not know of us has made itself known. t0 is when Occ's verb was complete. */
int job_wait_out(struct citron_job *j)
{
    uint64_t until = add_saturating(world_now(j->seat->world), config_wait_ns(j->config));
    if (citron_busted(j) & CITRON_NO_WAIT)
        return 0;
    while (world_now(j->seat->world) < until) {
        int rc = fab_wait_any(j->seat->ep, NULL, 0, until);
        if (rc && rc != -ETIMEDOUT)
            return rc;
    }
    return seat_lives(j->seat) ? 0 : -PAWL_ELOST;
}
