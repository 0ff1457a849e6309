/* SPDX-License-Identifier: Apache-2.0 */
/* The short way: acquiring and releasing on the agent's own host, without packets, timers, lists or the undo log.
 *
 * A hold that came this way has a place in `locals` and nothing else: it is in no queue, bucket or list of holders. Before any
 * other event on this host it is settled, that is, it becomes a hold like others. So only this file knows of the short way.
 *
 * If a process dies in the middle of it, the record of the step says which request it was about (I5). The request's session has
 * died with the process, so the step ends in one way, however far it got: the request is idle, its place is free, and the session's
 * count is without it. Everything else that the step changes (counters, serial numbers, tokens) only rises. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"

#include <errno.h>

/* ---- whether the short way is open ---- */

/* How many requests hold by the short way from this agent; *mode: the mode of their holds. */
static unsigned locals_of(struct fisslock_host *h, const struct agent *a, uint8_t *mode)
{
    unsigned count = 0;
    for (uint64_t left = h->locals.taken; left; left &= left - 1) {
        const struct fiss_request *r = host_request(h, h->locals.request[__builtin_ctzll(left)]);
        if (r->agent != agent_number(h, a))
            continue;
        *mode = r->mode;
        count++;
    }
    return count;
}

/* In a shared tenure with an empty queue: any reader. In an exclusive one, where agents stay: one writer, or readers. */
static bool grants(struct fisslock_host *h, const struct agent *a, uint8_t mode)
{
    uint8_t held;
    if (a->state != AGENT_LIVE || a->waiters.count || a->upgrader.machine)
        return false;
    if (a->right == FISSION_SHARED)
        return mode == FISSION_SHARED;
    if (!h->policy.keep || a->granted >= TOKEN_GRANTS_MAX)
        return false;
    if (a->holders.count)
        held = host_node(h, a->holders.head)->mode;
    else if (!locals_of(h, a, &held))
        return true;
    return held == FISSION_SHARED && mode == FISSION_SHARED;
}

/* Whether the agent has other holders, or stays. Else the release needs a packet. */
static bool remains(struct fisslock_host *h, const struct agent *a)
{
    uint8_t mode;
    if (a->holders.count)
        return true;
    if (a->kept && !h->leaving && (a->right == FISSION_EXCLUSIVE || (a->known == a->seen && !a->doubt)))
        return true;
    return locals_of(h, a, &mode) > 1;
}

/* ---- steps ---- */

/* I5: first the record of the step, then the change. */
static void step_begin(struct fisslock_host *h, const struct fiss_request *r, uint32_t place, uint32_t held)
{
    h->locals.step.request = request_number(h, r);
    h->locals.step.place = place;
    h->locals.step.held = held;
    __atomic_store_n(&h->locals.step.active, 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void step_end(struct fisslock_host *h)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&h->locals.step.active, 0, __ATOMIC_RELEASE);
}

void fisslock_local_recover(void *host)
{
    struct fisslock_host *h = host;
    if (!h->locals.step.active)
        return;
    struct fiss_request *r = host_request(h, h->locals.step.request);
    r->state = FISS_IDLE;
    r->local = false;
    h->locals.taken &= ~(UINT64_C(1) << h->locals.step.place);
    host_session(h, h->locals.step.request)->held = h->locals.step.held;
    step_end(h);
}

/* ---- calls ---- */

int fisslock_local_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct packet_answer *out)
{
    struct fisslock_host *h = host;
    if (ask->request >= h->request_count || ask->index >= h->config.locks || !~h->locals.taken || !lease_runs(h, now))
        return -EAGAIN;
    struct fiss_request *r = host_request(h, ask->request);
    struct agent *a = pool_agent_of(h, ask->index);
    if (!a || r->state > FISS_ENDED || !grants(h, a, (uint8_t)ask->mode))
        return -EAGAIN;
    struct session_state *s = host_session(h, ask->request);
    uint32_t place = (uint32_t)__builtin_ctzll(~h->locals.taken);
    step_begin(h, r, place, s->held);
    if (a->right == FISSION_EXCLUSIVE)
        a->granted++;
    if (a->kept)
        keep_hit(a);
    r->nonce = pool_nonce(h, ask->request);
    r->index = ask->index;
    r->token = agent_token(a);
    r->pause_ns = 0;
    r->term = a->term;
    r->ordinal = 0;
    r->port = ask->port;
    r->mode = (uint8_t)ask->mode;
    r->priority = ask->priority;
    r->try = r->floored = r->barred = false;
    r->local = true;
    r->local_place = (uint8_t)place;
    r->agent = agent_number(h, a);
    r->result = 0;
    r->state = FISS_HELD;
    if (*host_thread(h, ask->request) != ask->thread)
        *host_thread(h, ask->request) = ask->thread;
    s->held++;
    h->locals.request[place] = ask->request;
    h->locals.taken |= UINT64_C(1) << place;
    h->counts.local++;
    *out = (struct packet_answer){.result = 0, .mode = ask->mode, .token = r->token};
    step_end(h);
    return 0;
}

int fisslock_local_release(void *host, uint32_t request, uint64_t now)
{
    struct fisslock_host *h = host;
    if (request >= h->request_count || !lease_runs(h, now))
        return -EAGAIN;
    struct fiss_request *r = host_request(h, request);
    if (!r->local || r->state != FISS_HELD)
        return -EAGAIN;
    const struct agent *a = host_agent(h, r->agent);
    debug_assert(a->state == AGENT_LIVE && a->index == r->index && a->term == r->term);
    if (a->waiters.count || a->upgrader.machine || !remains(h, a))
        return -EAGAIN;
    struct session_state *s = host_session(h, request);
    step_begin(h, r, r->local_place, s->held - 1);
    r->state = FISS_IDLE;
    r->local = false;
    h->locals.taken &= ~(UINT64_C(1) << r->local_place);
    s->held--;
    step_end(h);
    return 0;
}

/* ---- settling ---- */

void local_settle(struct event *e)
{
    struct fisslock_host *h = e->h;
    edit(e, &h->locals);
    for (; h->locals.taken; h->locals.taken &= h->locals.taken - 1) {
        struct fiss_request *r = host_request(h, h->locals.request[__builtin_ctzll(h->locals.taken)]);
        struct agent *a = host_agent(h, r->agent);
        edit(e, r);
        r->local = false;
        pool_request_link(e, r);
        uint32_t node = pool_node_new(e, true);
        assert(node != NONE); /* I1: there is always a node for an own request, so that holders are known */
        *host_node(h, node) = (struct node){r->nonce, e->now, NONE, request_place(h, r), 0, r->mode, r->priority};
        pool_list_append(e, &a->holders, node);
    }
}
