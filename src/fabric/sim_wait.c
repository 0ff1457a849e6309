/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: for a word of the own node by an event, for another node's by polling or, with FAB_WAIT, at that node; for nothing by
 * sleeping. */
#include "fabric/sim_internal.h"

#include <errno.h>

#define PARKED_POLLS 64 /* a waiter that is parked at a node asks again after so many polls: what wakes it may be lost */

static struct sim_watch **watch_bucket(struct sim_node *node, uint64_t offset)
{
    return &node->watches[mix64(offset) % WATCH_BUCKETS];
}

static void watch_add(struct sim_ep *ep, struct sim_node *node, uint64_t offset, uint64_t way_ns, struct sim_ticket ticket)
{
    struct sim_watch *watch = &ep->watches[ep->watching++], **bucket = watch_bucket(node, offset);
    *watch =
        (struct sim_watch){.offset = offset, .node = node, .way_ns = way_ns, .ticket = ticket, .next = *bucket, .link = bucket};
    if (*bucket)
        (*bucket)->link = &watch->next;
    *bucket = watch;
    node->watch_count++;
}

void sim_ep_unwatch(struct sim_ep *ep)
{
    for (; ep->watching; ep->watching--) {
        struct sim_watch *watch = &ep->watches[ep->watching - 1];
        *watch->link = watch->next;
        if (watch->next)
            watch->next->link = watch->link;
        watch->node->watch_count--;
    }
}

void sim_node_changed(struct sim_node *node, uint64_t offset, uint64_t len)
{
    if (likely(!node->watch_count))
        return;
    struct sim *sim = node->host->sim;
    for (uint64_t at = offset; at < offset + len; at += 8)
        for (struct sim_watch *watch = *watch_bucket(node, at); watch; watch = watch->next)
            if (watch->offset == at)
                sim_ticket_wake_at(watch->ticket, sim->now_ns + watch->way_ns);
}

static bool is_local(const struct sim_ep *ep, const struct fab_cond *cond)
{
    return FAB_NODE(cond->addr) == ep->fab.node;
}

static bool cond_holds(const struct fab_cond *cond, uint64_t word)
{
    return (word & cond->mask) == cond->value;
}

/* As the node of the word sees it. */
static bool cond_holds_there(const struct sim_ep *ep, const struct fab_cond *cond)
{
    const struct sim_node *node = sim_node_of(ep->fabric, FAB_NODE(cond->addr));
    return cond_holds(cond, *(uint64_t *)sim_node_ptr(node, cond->addr, 8));
}

/* 1 if a condition on the own node no longer holds. */
static int look_locally(struct sim_ep *ep, const struct fab_cond *conds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (is_local(ep, &conds[i]) && !cond_holds_there(ep, &conds[i]))
            return 1;
    return 0;
}

/* READs all words of other nodes. 1 if a condition no longer holds, or a fabric error. */
static int look_remotely(struct sim_ep *ep, const struct fab_cond *conds, unsigned n)
{
    struct fab_op ops[FAB_CONDS_MAX];
    uint64_t words[FAB_CONDS_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++)
        if (!is_local(ep, &conds[i])) {
            ops[count] = (struct fab_op){.verb = FAB_READ, .addr = conds[i].addr, .len = 8, .buf = &words[count]};
            count++;
        }
    int rc = count ? sim_fab_batch(&ep->fab, ops, count) : 0;
    if (rc)
        return rc;
    for (unsigned i = 0, k = 0; i < n; i++)
        if (!is_local(ep, &conds[i]) && !cond_holds(&conds[i], words[k++]))
            return 1;
    return 0;
}

static bool parks(const struct sim_ep *ep)
{
    return fab_has(ep->fabric->caps, FAB_WAIT);
}

/* Sleeps until a watched word changes or that time has come. */
static int wait_watching(struct sim_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t until_ns)
{
    struct sim *sim = ep->fabric->sim;
    struct sim_task *task = sim_current(sim);
    struct sim_ticket ticket = sim_ticket_take(task);
    for (unsigned i = 0; i < n; i++) {
        struct sim_node *node = sim_node_of(ep->fabric, FAB_NODE(conds[i].addr));
        if (is_local(ep, &conds[i])) {
            watch_add(ep, node, FAB_OFFSET(conds[i].addr), model_get(sim->model, MODEL_local_ns), ticket);
        } else if (parks(ep)) {
            watch_add(ep, node, FAB_OFFSET(conds[i].addr), sim_way_ns(ep, node), ticket);
            if (!cond_holds_there(ep, &conds[i])) /* it has changed since the READ */
                until_ns = min_u64(until_ns, sim->now_ns + sim_way_ns(ep, node));
        }
    }
    int rc = sim_task_wait(task, until_ns);
    sim_ep_unwatch(ep);
    return rc;
}

/* Between two READs of a word of another node. */
static uint64_t pause_ns(const struct sim_ep *ep)
{
    return model_get(ep->fabric->sim->model, MODEL_poll_ns) * (parks(ep) ? PARKED_POLLS : 1);
}

static_assert(FAB_CONDS_MAX <= FAB_BATCH_MAX, "all words of other nodes are read in one batch");

int sim_fab_wait(struct fab_ep *fab, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    struct sim_ep *ep = sim_ep_of(fab);
    struct sim *sim = ep->fabric->sim;
    uint64_t deadline_ns = sim_host_clock_inverse(ep->host, deadline);
    bool remote = false;
    for (unsigned i = 0; i < n; i++)
        remote |= !is_local(ep, &conds[i]);
    sim_ep_drain(ep); /* time passes */
    for (;;) {
        int rc = look_locally(ep, conds, n);
        if (!rc && remote)
            rc = look_remotely(ep, conds, n);
        if (rc)
            return rc < 0 ? rc : 0;
        uint64_t poll_ns = remote ? sim->now_ns + pause_ns(ep) : UINT64_MAX;
        rc = wait_watching(ep, conds, n, min_u64(deadline_ns, poll_ns));
        if (rc == -ECANCELED)
            return rc;
        if (deadline_ns <= sim->now_ns)
            return look_locally(ep, conds, n) ? 0 : -ETIMEDOUT;
    }
}

int sim_fab_poll(struct fab_ep *fab, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    struct sim_ep *ep = sim_ep_of(fab);
    const struct sim *sim = ep->fabric->sim;
    uint64_t deadline_ns = sim_host_clock_inverse(ep->host, deadline), words[2] = {0, 0};
    struct fab_op op = {.verb = FAB_READ, .addr = pair->addr, .len = pair->width, .buf = words};
    const struct fab_cond conds[] = {
        {.addr = pair->addr, .mask = (uint64_t)pair->mask, .value = (uint64_t)pair->value},
        {.addr = pair->addr + 8, .mask = (uint64_t)(pair->mask >> 64), .value = (uint64_t)(pair->value >> 64)},
    };
    for (;;) {
        int rc = sim_fab_batch(fab, &op, 1);
        if (rc)
            return rc;
        *seen = (u128)words[1] << 64 | words[0];
        if ((*seen & pair->mask) != pair->value)
            return 0;
        rc = wait_watching(ep, conds, parks(ep) ? pair->width == 16 ? 2 : 1 : 0, min_u64(deadline_ns, sim->now_ns + pause_ns(ep)));
        if (rc == -ECANCELED)
            return rc;
        if (deadline_ns <= sim->now_ns)
            return -ETIMEDOUT;
    }
}

int sim_fab_wake(struct fab_ep *fab, fab_addr addr, uint64_t mask, unsigned n)
{
    (void)fab, (void)addr, (void)mask, (void)n;
    return 0; /* a change wakes by itself */
}
