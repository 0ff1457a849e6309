/* Phase (d) of Algorithm 2: waiting for those below. */
#include "designs/citron/citron.h"

#include <errno.h>

#define BELOW_WORDS_MAX 341 /* (4^5 - 1) / 3 */

struct below {
    unsigned n;
    uint64_t words[BELOW_WORDS_MAX];
    uint64_t readers[BELOW_WORDS_MAX];
};

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
        if (node_below(d->words[i])) {
            *cond = (struct fab_cond){.addr = job_node(j, *who), .mask = NODE_D_MASK, .value = d->words[i] & NODE_D_MASK};
            return true;
        }
        uint64_t half = 0;
        if (!j->shared && readers_below(d->readers[i]))
            half = UINT64_C(0xffffffff) << 32;
        else if (!j->shared && !i && readers_here(d->readers[i]) > (j->upgrades ? 1 : 0))
            half = UINT32_MAX;
        if (half) {
            *cond = (struct fab_cond){.addr = job_readers(j, *who), .mask = half, .value = d->readers[i] & half};
            return true;
        }
    }
    return false;
}

/* Readers of the spillover: it has nothing below. */
static int drain_spill(struct citron_job *j, struct citron_claim *c)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        unsigned op = batch_read64(&b, job_claim_readers(j, c)), token = batch_faa(&b, j->lock + offsetof(struct citron_lock, token), 1);
        int rc = job_run(j, &b);
        if (!rc && (j->shared || readers_here(b.values[op]) <= (j->upgrades ? 1 : 0))) {
            j->token = batch_old(&b, token) + 1;
            return 0;
        }
        struct fab_cond cond = {.addr = job_claim_readers(j, c), .mask = UINT32_MAX};
        if (!rc)
            cond.value = b.values[op] & UINT32_MAX;
        rc = rc ? seat_retry(j->seat, rc) : job_wait_at(j, c->node, true, &cond);
        if (rc)
            return rc;
    }
}

/* Waits until nobody is below (line 36). The token comes last: above those of all who were. */
int job_drain_below(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims[i];
    if (c->spill)
        return drain_spill(j, c);
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        struct below d;
        struct tree_node who;
        struct fab_cond cond;
        add_below(j, &b, c, &d);
        unsigned token = batch_faa(&b, j->lock + offsetof(struct citron_lock, token), 1);
        int rc = job_run(j, &b);
        if (!rc && !somebody_below(j, c, &d, &who, &cond)) {
            j->token = batch_old(&b, token) + 1;
            return 0;
        }
        rc = rc ? seat_retry(j->seat, rc) : job_wait_at(j, who, false, &cond);
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
