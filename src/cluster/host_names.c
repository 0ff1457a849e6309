/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host_names.h"

bool host_names_listed(const struct host_names *n, const struct host_name *name)
{
    if (name->round < n->floor)
        return false;
    for (unsigned i = 0; i < HOST_NAMES_GONE; i++) {
        const struct host_name *g = &n->gone[i];
        if (g->index == name->index && g->generation == name->generation && g->round > name->round)
            return false;
    }
    return true;
}

static bool is_listed(const struct host_names *n, const struct coord_retire_key *k, uint64_t round)
{
    for (unsigned i = 0; i < HOST_NAMES_GONE; i++)
        if (n->gone[i].index == k->index && n->gone[i].generation == k->generation && n->gone[i].round == round)
            return true;
    return false;
}

/* If the process dies in between, the oldest entry may be gone or half of the new one be there: the floor says so before. */
static void forget(struct host_names *n, const struct coord_retire_key *k, uint64_t round)
{
    struct host_name *g = &n->gone[n->next % HOST_NAMES_GONE];
    if (is_listed(n, k, round))
        return; /* the question came twice */
    __atomic_store_n(&n->floor, max_u64(n->floor, g->round), __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    *g = (struct host_name){.index = k->index, .generation = k->generation, .round = round};
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    n->next++;
}

bool host_names_retire(struct host_names *n, const struct coord_retire *p, host_uses uses, void *host, uint64_t now,
                       struct outbox *out, uint64_t *used)
{
    *used = 0;
    if (p->round < n->round)
        return false;
    for (uint32_t i = 0; i < p->count; i++) {
        if (uses(host, p->key[i].index, now, out))
            *used |= UINT64_C(1) << i;
        else
            forget(n, &p->key[i], p->round);
    }
    __atomic_store_n(&n->round, p->round, __ATOMIC_RELEASE); /* after the list: processes that look at the round alone rely on it */
    return true;
}
