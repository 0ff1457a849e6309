/* SPDX-License-Identifier: Apache-2.0 */
/* Which thread holds which lock. A deadlock is a circle of threads that wait in calls, each for a lock that the next one has
 * locked, so the design is told which thread waits and which one holds. Threads may also unlock for each other; then whether the
 * thread that locked waits says nothing. A session in which that was seen takes no part in the detection from then on. */
#include "client/net.h"

/* Unlike the kernel's number it is not used again. */
static uint32_t self(void)
{
    static uint32_t last;
    static _Thread_local uint32_t mine;
    while (!mine)
        mine = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return mine;
}

static uint32_t *owner_of(const struct net *n, uint32_t request)
{
    return &n->owners[request % n->host.header->config.requests];
}

uint32_t net_owner(const struct net *n)
{
    return __atomic_load_n(&n->hands_over, __ATOMIC_RELAXED) ? 0 : self();
}

void net_owns(struct net *n, uint32_t request, uint32_t owner)
{
    __atomic_store_n(owner_of(n, request), owner, __ATOMIC_RELAXED);
}

static void forget_owners(struct net *n)
{
    const struct packet_design *d = n->host.design;
    uint32_t requests = n->host.header->config.requests;
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    for (uint32_t i = 0; i < requests && d->thread; i++)
        d->thread(n->host.memory, n->session * requests + i, 0, host_now(), out);
    host_leave(&n->host, out);
    net_flush(n, &n->udp, out);
}

void net_touches(struct net *n, uint32_t request)
{
    uint32_t owner = __atomic_load_n(owner_of(n, request), __ATOMIC_RELAXED);
    if (likely(!owner || owner == self()))
        return;
    if (!__atomic_exchange_n(&n->hands_over, true, __ATOMIC_RELAXED))
        forget_owners(n);
}
