/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/baselines/queue.h"

#include <errno.h>

#define LOWER FIELD_MAX(32)
#define GO_OFFSET offsetof(struct queue_desc, go)

static bool own_memory(const struct seat *seat, fab_addr desc)
{
    return FAB_NODE(desc) == seat->ep->node;
}

static int own_clear(const struct seat *seat, fab_addr desc)
{
    const struct queue_desc clear = {0};
    if (!own_memory(seat, desc))
        return fab_write(seat->ep, desc, &clear, 16);
    fab_local_store64(seat->ep, desc, 0);
    fab_local_store64(seat->ep, desc + GO_OFFSET, 0);
    return 0; /* in the store buffer; the swap is posted after it */
}

static int own_load(const struct seat *seat, fab_addr addr, uint64_t *value)
{
    if (!own_memory(seat, addr))
        return fab_read64(seat->ep, addr, value);
    *value = fab_local_load64(seat->ep, addr);
    return 0;
}

/* Waits until a word of the own descriptor is not 0. */
static int own_await(const struct seat *seat, fab_addr addr, uint64_t *value)
{
    for (;;) {
        int rc = own_load(seat, addr, value);
        if (rc || *value)
            return rc;
        rc = fab_wait(seat->ep, addr, LOWER, 0, DEADLINE_NEVER);
        if (rc && rc != -ECANCELED)
            return rc;
    }
}

/* Each lost race means that another client has joined: a client loses at most as many as there are others before it. */
static int swap_by_cas(const struct seat *seat, fab_addr tail, fab_addr desc, uint64_t *pred)
{
    uint64_t expected = 0, old;
    int rc;
    while (!(rc = fab_cas64(seat->ep, tail, expected, desc, &old)) && old != expected)
        expected = old;
    *pred = expected;
    return rc;
}

int queue_join(const struct seat *seat, fab_addr tail, fab_addr desc, enum queue_join how, uint64_t *go)
{
    uint64_t pred = 0;
    int rc = own_clear(seat, desc);
    if (!rc)
        rc = how == QUEUE_ONCE   ? fab_cas64(seat->ep, tail, 0, desc, &pred)
             : how == QUEUE_LOOP ? swap_by_cas(seat, tail, desc, &pred)
                                 : fab_swap64(seat->ep, tail, desc, &pred);
    if (rc || !pred)
        return rc;
    if (how == QUEUE_ONCE)
        return -PAWL_EHELD;
    rc = fab_write64(seat->ep, pred, desc);
    fab_wake(seat->ep, pred, LOWER, 1);
    return rc ? rc : own_await(seat, desc + GO_OFFSET, go);
}

int queue_next(const struct seat *seat, fab_addr desc, uint64_t *next)
{
    return own_load(seat, desc, next);
}

int queue_end(const struct seat *seat, fab_addr tail, fab_addr desc, uint64_t *next)
{
    uint64_t old;
    int rc = fab_cas64(seat->ep, tail, desc, 0, &old);
    *next = 0;
    return !rc && old != desc ? own_await(seat, desc, next) : rc;
}

int queue_go(const struct seat *seat, fab_addr next, uint64_t go)
{
    int rc = fab_write64(seat->ep, next + GO_OFFSET, go);
    fab_wake(seat->ep, next + GO_OFFSET, LOWER, 1);
    return rc;
}
