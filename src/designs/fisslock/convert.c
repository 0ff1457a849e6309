/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the mode of a hold: the calls, and what the agent does. Beyond the paper.
 *
 * A downgrade makes the exclusive tenure a shared one, by a move of the agent to its own host. An upgrade waits until its holder is
 * the only one, and then moves the agent to that holder in an exclusive tenure. Of two upgrades of one lock the second would wait
 * for the first, which waits for it: it is the victim of that deadlock. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"

#include <errno.h>

/* ---- at the agent ---- */

static bool same(struct who a, struct who b)
{
    return a.nonce == b.nonce && a.machine == b.machine;
}

enum agent_says agent_upgrade(struct event *e, struct agent *a, struct who who)
{
    if (pool_list_find(e->h, &a->holders, who) == NONE)
        return AGENT_QUEUES;
    if (a->upgrader.machine && !same(a->upgrader, who))
        return AGENT_REFUSES; /* each would wait for the other */
    edit(e, a);
    bool news = !a->upgrader.machine;
    a->upgrader = who;
    if (news)
        agent_tell_writers(e, a, true);
    agent_serve(e, a);
    return AGENT_QUEUES;
}

void agent_cancel_upgrade(struct event *e, struct agent *a, struct who who)
{
    if (!a->upgrader.machine || !same(a->upgrader, who))
        return;
    edit(e, a);
    a->upgrader.machine = MACHINE_NONE;
    if (a->state == AGENT_LIVE) {
        agent_tell_writers(e, a, false);
        agent_serve(e, a);
    }
}

bool agent_serve_upgrader(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    uint32_t node = a->holders.head;
    if (!a->upgrader.machine || a->holders.count != 1 || !node_is(host_node(h, node), a->upgrader) || !agent_accounted(a))
        return false;
    struct node *n = host_node(h, node);
    edit(e, n);
    edit(e, a);
    a->upgrader.machine = MACHINE_NONE;
    if (a->right == FISSION_EXCLUSIVE && n->client.machine == h->machine && a->granted < TOKEN_GRANTS_MAX) {
        struct fiss_request *r = pool_request_of(h, n->nonce);
        a->granted++;
        n->mode = FISSION_EXCLUSIVE;
        if (r && r->state == FISS_UPGRADING)
            request_grant(e, r, FISSION_EXCLUSIVE, agent_token(a), a->term, 0);
        return true;
    }
    pool_list_take(e, &a->holders, node);
    n->mode = FISSION_EXCLUSIVE;
    tenure_move(e, a, node, n->client.machine, FISSION_EXCLUSIVE);
    a->grantee_holds = true;
    return true;
}

void agent_downgrade(struct event *e, struct agent *a, struct fiss_request *r)
{
    uint32_t node = pool_list_find(e->h, &a->holders, request_who(e->h, r));
    debug_assert((node != NONE && a->right == FISSION_EXCLUSIVE) || MISTAKES(e->h->config.mistakes));
    if (node == NONE)
        return;
    edit(e, host_node(e->h, node));
    edit(e, a);
    edit(e, r);
    host_node(e->h, node)->mode = FISSION_SHARED;
    a->granted++;
    r->mode = FISSION_SHARED;
    r->token = agent_token(a);
    /* The decider is told, so that it lets other readers in. */
    tenure_move(e, a, NONE, e->h->machine, FISSION_SHARED);
}

/* ---- at the request's host ---- */

void request_deny_upgrade(struct event *e, struct fiss_request *r, int result)
{
    assert(r->state == FISS_UPGRADING); /* I1: it goes on to hold in the old mode */
    request_stop_timer(e, r);
    r->state = FISS_HELD;
    r->result = result;
    outbox_wake(e->out, request_number(e->h, r));
}

static bool upgrades_here(struct fisslock_host *h, struct who who)
{
    const struct fiss_request *r = who.machine == h->machine ? pool_request_of(h, who.nonce) : NULL;
    return r && r->state == FISS_UPGRADING;
}

/* Asks an agent on this host. The second of two upgrades is the victim; if the first is on another host, it may have been given up
 * meanwhile, so that the second has to find out. */
void request_ask_upgrade(struct event *e, struct agent *a, struct fiss_request *r)
{
    bool sure = upgrades_here(e->h, a->upgrader);
    if (agent_upgrade(e, a, request_who(e->h, r)) != AGENT_REFUSES)
        return;
    if (sure)
        request_deny_upgrade(e, r, -EDEADLK); /* I13 */
    else
        deadlock_second(e, r);
}

static int downgrade(struct event *e, struct agent *a, struct fiss_request *r)
{
    if (a) {
        agent_downgrade(e, a, r);
    } else if (r->term == TERM_NONE) { /* the agent was lost with the decider's state: its next host finds the hold shared */
        r->mode = FISSION_SHARED;
        r->token++;
    } else { /* an exclusive holder has the agent, or does not hold */
        return -PAWL_ENOTOWNER;
    }
    return PACKET_DONE;
}

int fisslock_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    assert(request < h->request_count && (mode == PAWL_SHARED || mode == PAWL_EXCLUSIVE));
    struct fiss_request *r = host_request(h, request);
    if (r->state != FISS_HELD)
        return -PAWL_ENOTOWNER;
    if (r->limit)
        return -PAWL_ENOTSUP; /* a place of a semaphore is no share of the lock */
    struct agent *a = pool_agent_of(h, r->index);
    if (a && (a->state != AGENT_LIVE || a->term != r->term))
        a = NULL;
    edit(&e, r);
    r->result = 0;
    if (r->mode == (uint8_t)mode)
        return PACKET_DONE;
    if (mode == PAWL_SHARED)
        return downgrade(&e, a, r);
    r->state = FISS_UPGRADING;
    r->floored = false;
    deadlock_upgrade(&e, r);
    if (a)
        request_ask_upgrade(&e, a, r);
    else
        request_send_acquire(&e, r, FISSION_RETRY);
    if (r->state == FISS_UPGRADING)
        request_retransmit_later(&e, r);
    return r->state == FISS_UPGRADING ? PACKET_WAIT : PACKET_DONE;
}
