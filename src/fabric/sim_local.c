/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the own node, by CPU instructions, with a store buffer (x86-TSO): stores wait in order, the own loads see
 * them, others do not until they drain; atomics and fences drain first. */
#include "fabric/sim_internal.h"

static void store_apply(struct sim_ep *ep, const struct sim_store *store)
{
    struct sim_node *node = sim_node_of(ep->fabric, ep->fab.node);
    uint64_t *word = sim_node_ptr(node, store->addr, 8);
    *word = store->value;
    node->mixed = true;
    sim_note(ep->fabric->sim, "store", ep->fab.node, store->addr, store->value);
    sim_node_changed(node, FAB_OFFSET(store->addr), 8);
}

static void drain_until(struct sim_ep *ep, uint64_t sequence)
{
    while (ep->store_count && ep->stores[ep->store_head].sequence <= sequence) {
        store_apply(ep, &ep->stores[ep->store_head]);
        ep->store_drained = ep->stores[ep->store_head].sequence;
        ep->in_flight -= ep->fabric->sim->config.chooser ? 1 : 0; /* its event will not come */
        ep->store_head = (ep->store_head + 1) % STORES_MAX;
        ep->store_count--;
    }
}

void sim_ep_drain(struct sim_ep *ep)
{
    drain_until(ep, UINT64_MAX);
}

static void drain_event(void *arg, uint64_t sequence)
{
    struct sim_ep *ep = arg;
    drain_until(ep, sequence);
    ep->in_flight -= ep->fabric->sim->config.chooser ? 0 : 1;
    if (unlikely(ep->resetting) && !ep->in_flight)
        sim_ticket_wake_at(ep->ticket, ep->fabric->sim->now_ns);
    sim_ep_release(ep);
}

static void store_put(struct sim_ep *ep, fab_addr addr, uint64_t value)
{
    struct sim *sim = ep->fabric->sim;
    if (ep->store_count == STORES_MAX)
        drain_until(ep, ep->stores[ep->store_head].sequence);
    uint64_t sequence = ++ep->store_sequence;
    ep->stores[(ep->store_head + ep->store_count++) % STORES_MAX] =
        (struct sim_store){.addr = addr, .value = value, .sequence = sequence};
    uint64_t drain_ns = sim->now_ns + 1 + sim_draw(sim, model_get(sim->model, MODEL_store_drain_ns));
    ep->store_drain_ns = max_u64(ep->store_drain_ns, drain_ns); /* first in, first out */
    ep->in_flight++;                                            /* keeps the endpoint until then */
    sim_at_drain(sim, ep->store_drain_ns, &ep->store_drained, drain_event, ep, sequence);
}

static uint64_t load(const struct sim_ep *ep, const uint64_t *word, fab_addr addr)
{
    for (unsigned i = ep->store_count; i-- > 0;) {
        const struct sim_store *store = &ep->stores[(ep->store_head + i) % STORES_MAX];
        if (store->addr == addr)
            return store->value;
    }
    return *word;
}

/* The cost of an access: a line that another core has used since is transferred from there. A bucket forgets the line before. */
static uint64_t access_ns(struct sim_ep *ep, fab_addr addr)
{
    const struct sim *sim = ep->fabric->sim;
    struct sim_node *node = sim_node_of(ep->fabric, FAB_NODE(addr));
    uint64_t hit_ns = model_get(sim->model, MODEL_local_hit_ns), number = FAB_OFFSET(addr) / CACHE_LINE;
    if (!hit_ns)
        return model_get(sim->model, MODEL_local_ns);
    if (!node->lines && !(node->lines = sim_alloc(sizeof *node->lines << LINE_BUCKET_BITS)))
        return model_get(sim->model, MODEL_local_ns);
    struct sim_line *line = &node->lines[mix64(number) >> (64 - LINE_BUCKET_BITS)];
    bool hit = line->user == ep && line->number == number;
    *line = (struct sim_line){.number = number, .user = ep};
    return hit ? hit_ns : model_get(sim->model, MODEL_local_ns);
}

/* Other tasks run meanwhile. Between one and twice the model's time less one, so that interleavings vary. */
static void pass_local_time(struct sim_ep *ep, uint64_t ns)
{
    struct sim *sim = ep->fabric->sim;
    struct sim_task *task = sim_current(sim);
    uint64_t local_ns = max_u64(ns, 1);
    sim_task_wake_at(task, sim->now_ns + 1 + sim_draw(sim, 2 * local_ns - 1));
    sim_task_block(task);
}

uint64_t sim_fab_local(struct fab_ep *fab, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    struct sim_ep *ep = sim_ep_of(fab);
    assert(FAB_NODE(addr) == fab->node && addr % 8 == 0);
    pass_local_time(ep, access_ns(ep, addr));
    struct sim_node *node = sim_node_of(ep->fabric, fab->node);
    uint64_t *word = sim_node_ptr(node, addr, 8);
    if (verb == FAB_READ)
        return load(ep, word, addr);
    if (verb == FAB_WRITE) {
        store_put(ep, addr, value);
        return 0;
    }
    sim_ep_drain(ep);
    node->mixed = true;
    uint64_t old = *word;
    if (verb == FAB_FAA)
        *word = old + value;
    else if (verb == FAB_SWAP || old == compare)
        *word = value;
    sim_note(ep->fabric->sim, "local", fab->node, addr, *word);
    if (*word != old)
        sim_node_changed(node, FAB_OFFSET(addr), 8);
    return old;
}

uint64_t sim_fab_own(struct fab_ep *fab, enum fab_own how, fab_addr addr, uint64_t value)
{
    struct sim_ep *ep = sim_ep_of(fab);
    assert(FAB_NODE(addr) == fab->node && addr % 8 == 0);
    if (how == FAB_OWN_LOAD)
        return load(ep, sim_node_ptr(sim_node_of(ep->fabric, fab->node), addr, 8), addr);
    store_put(ep, addr, value);
    return 0;
}

void sim_fab_local_fence(struct fab_ep *fab)
{
    struct sim_ep *ep = sim_ep_of(fab);
    uint64_t hit_ns = model_get(ep->fabric->sim->model, MODEL_local_hit_ns);
    pass_local_time(ep, hit_ns ? hit_ns : model_get(ep->fabric->sim->model, MODEL_local_ns));
    sim_ep_drain(ep);
}
