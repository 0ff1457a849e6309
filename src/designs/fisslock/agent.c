/* SPDX-License-Identifier: Apache-2.0 */
/* An agent: who holds the lock, who waits for it, and who is next (Fig. 7). */
#include "designs/fisslock/pool.h"

#include <errno.h>

#define CHECK_FACTOR 4  /* retransmission times until an agent first asks its holders */
#define STARVE_FACTOR 8 /* until a writer behind readers is taken to starve */

static bool here(const struct event *e, struct place client)
{
    return client.machine == e->h->machine;
}

uint64_t agent_token(const struct agent *a)
{
    return a->token << TOKEN_GRANT_BITS | (a->right == FISSION_SHARED ? 1 : a->granted);
}

void agent_watch(struct event *e, struct agent *a)
{
    uint32_t timer = timer_of_agent(e->h, a);
    if (timers_runs(host_timers(e->h), timer))
        return;
    edit(e, a);
    a->pause_ns = a->pause_ns ? pool_pause(e->h, a->pause_ns) : CHECK_FACTOR * e->h->config.retry_ns;
    timers_set(host_timers(e->h), timer, e->now + a->pause_ns, e->out);
}

/* ---- ordinals ---- */

bool agent_knows(const struct agent *a, uint32_t ordinal)
{
    return ordinal <= a->known || ordinal - a->known - 1 >= 64 || (a->known_bits >> (ordinal - a->known - 1) & 1);
}

/* An ordinal of this tenure is accounted for: its holder is among the holders, or does not hold. False: it was already, or lies
 * too far ahead of one that is missing; then it stays open until its release or a census. */
bool agent_know(struct event *e, struct agent *a, uint32_t ordinal)
{
    if (a->right != FISSION_SHARED)
        return true;
    edit(e, a);
    if (ordinal > a->seen)
        a->seen = (uint16_t)ordinal;
    if (agent_knows(a, ordinal))
        return false;
    a->known_bits |= UINT64_C(1) << (ordinal - a->known - 1);
    while (a->known_bits & 1) {
        a->known_bits >>= 1;
        a->known++;
    }
    return true;
}

/* Nobody can hold whom the agent does not know: only then can the tenure end (Fig. 10). */
static bool accounted(const struct agent *a)
{
    return a->right == FISSION_EXCLUSIVE || (a->known == a->seen && !a->doubt);
}

/* ---- writers ---- */

bool agent_open(const struct event *e, const struct agent *a)
{
    return !a->upgrader.machine && !(a->writers && (a->starves || host_is(e->h, FISSION_WRITE_PREFERRING)));
}

void agent_tell_writers(struct event *e, struct agent *a, bool starves)
{
    edit(e, a);
    a->starves = starves;
    if (a->right != FISSION_SHARED)
        return;
    struct fission_packet *p = pool_packet(e, FISSION_FLAGS, a->index, 0, 0);
    if (!p)
        return;
    p->term = a->term;
    p->flags = (starves ? FISSION_STARVES : 0) | (a->writers && host_is(e->h, FISSION_WRITE_PREFERRING) ? FISSION_WRITERS : 0);
}

/* A writer is no longer in the queue. Readers must not wait for one that is gone (pitfall 13). */
static void writer_gone(struct event *e, struct agent *a)
{
    edit(e, a);
    if (--a->writers == 0 && a->state == AGENT_LIVE && (a->starves || host_is(e->h, FISSION_WRITE_PREFERRING)) &&
        !MISTAKE(e->h->config.mistakes, FISSLOCK_MISTAKE_STICKY))
        agent_tell_writers(e, a, a->upgrader.machine != 0);
}

/* ---- holders ---- */

/* To the process that asked; once that may be gone, to whoever serves its host. */
static void say_grant(struct event *e, struct agent *a, const struct node *n, bool again)
{
    struct fission_packet *p = pool_packet(e, FISSION_GRANT, a->index, n->nonce, 0);
    if (!p)
        return; /* it will ask again */
    p->head.to = p->client = n->client;
    if (again)
        p->head.to.port = PORT_POOL;
    p->mode = n->mode;
    p->term = a->term;
    p->token = a->token;
}

/* The node becomes a holder. An own request that does not want it any more is forgotten. */
static void grant(struct event *e, struct agent *a, uint32_t node)
{
    edit(e, a);
    struct node *n = host_node(e->h, node);
    if (here(e, n->client)) {
        struct fiss_request *r = pool_request_of(e->h, n->nonce);
        if (!r || r->index != a->index || r->state != FISS_WAITING) {
            pool_node_free(e, node);
            return;
        }
        if (a->right == FISSION_EXCLUSIVE)
            a->granted++;
        request_grant(e, r, n->mode, agent_token(a), a->term, n->ordinal);
    } else {
        debug_assert(a->right == FISSION_SHARED && n->mode == FISSION_SHARED);
        say_grant(e, a, n, false);
    }
    pool_list_append(e, &a->holders, node);
}

static uint32_t node_for(struct event *e, const struct asking *asking, uint16_t ordinal)
{
    uint32_t node = pool_node_new(e, here(e, asking->client));
    if (node != NONE)
        *host_node(e->h, node) =
            (struct node){asking->nonce, e->now, NONE, asking->client, ordinal, asking->mode, asking->priority};
    else
        e->h->counts.crowded++;
    return node;
}

/* It holds already, by the decider's grant. */
bool agent_hold(struct event *e, struct agent *a, const struct asking *asking, uint16_t ordinal)
{
    struct fisslock_host *h = e->h;
    struct who who = {asking->nonce, asking->client.machine};
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE || (a->grantee != NONE && a->grantee_holds && node_is(host_node(h, a->grantee), who)))
        return true; /* the latter comes back to the holders if the move is refused */
    node = pool_list_find(h, &a->waiters, who);
    if (node != NONE) {
        edit(e, a);
        a->writers -= host_node(h, node)->mode == FISSION_EXCLUSIVE;
        pool_list_take(e, &a->waiters, node);
        host_node(h, node)->mode = asking->mode;
    } else if ((node = node_for(e, asking, ordinal)) == NONE) {
        return false;
    }
    edit(e, host_node(h, node));
    host_node(h, node)->ordinal = ordinal;
    pool_list_append(e, &a->holders, node);
    return true;
}

/* ---- asking and releasing ---- */

bool agent_queue(struct event *e, struct agent *a, const struct asking *asking)
{
    uint32_t node = node_for(e, asking, 0);
    if (node == NONE)
        return false;
    if (host_is(e->h, FISSLOCK_PRIORITY))
        pool_list_insert(e, &a->waiters, node);
    else
        pool_list_append(e, &a->waiters, node);
    edit(e, a);
    a->writers += asking->mode == FISSION_EXCLUSIVE;
    return true;
}

/* With an exclusive right the agent grants to its own host as it likes: one writer, or readers. */
static bool grants_here(const struct event *e, const struct agent *a, const struct asking *asking)
{
    if (!host_is(e->h, FISSLOCK_KEEP) || !here(e, asking->client) || a->right != FISSION_EXCLUSIVE || a->waiters.count ||
        a->upgrader.machine || a->granted >= TOKEN_GRANTS_MAX)
        return false;
    return !a->holders.count || (asking->mode == FISSION_SHARED && host_node(e->h, a->holders.head)->mode == FISSION_SHARED);
}

/* Nobody has it, and it can go to whoever asks. */
static bool is_spare(const struct agent *a)
{
    return a->state == AGENT_LIVE && a->kept && !a->holders.count && !a->waiters.count && accounted(a);
}

/* acquire() of Fig. 7, for one here or one that the decider did not grant. */
enum agent_says agent_ask(struct event *e, struct agent *a, const struct asking *asking)
{
    struct fisslock_host *h = e->h;
    struct who who = {asking->nonce, asking->client.machine};
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE) { /* it was granted, and that was lost */
        if (!here(e, asking->client))
            say_grant(e, a, host_node(h, node), false);
        return AGENT_GRANTS;
    }
    if (pool_list_find(h, &a->waiters, who) != NONE || (a->grantee != NONE && node_is(host_node(h, a->grantee), who)))
        return AGENT_QUEUES;
    bool open = asking->mode == FISSION_SHARED && a->right == FISSION_SHARED && agent_open(e, a);
    if (a->state == AGENT_LIVE && (open || grants_here(e, a, asking))) {
        if (a->kept && !a->holders.count && here(e, asking->client)) {
            edit(e, a);
            keep_hit(a);
        }
        if ((node = node_for(e, asking, 0)) == NONE)
            return AGENT_REFUSES;
        grant(e, a, node);
        return AGENT_GRANTS;
    }
    if (asking->nowait && !is_spare(a))
        return AGENT_REFUSES;
    if (!agent_queue(e, a, asking))
        return AGENT_QUEUES; /* it will ask again */
    if (asking->mode == FISSION_EXCLUSIVE && a->right == FISSION_SHARED && host_is(h, FISSION_WRITE_PREFERRING) &&
        here(e, asking->client))
        agent_tell_writers(e, a, a->starves); /* the decider has not seen this one */
    agent_serve(e, a);
    return AGENT_QUEUES;
}

/* release() of Fig. 7, of a holder or of one who waits. False: not settled here, since whom the agent is moved with is said
 * already; the new agent must hear of it (pitfall 8). */
bool agent_release(struct event *e, struct agent *a, struct who who, uint32_t term, uint16_t ordinal)
{
    struct fisslock_host *h = e->h;
    bool counts = term == a->term && ordinal;
    bool to_itself = a->state == AGENT_MOVING && a->to == h->machine;
    edit(e, a);
    if (counts)
        agent_know(e, a, ordinal);
    agent_cancel_upgrade(e, a, who);
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE) {
        pool_list_take(e, &a->holders, node);
        pool_node_free(e, node);
        return true;
    }
    if (to_itself && a->grantee != NONE && node_is(host_node(h, a->grantee), who)) {
        pool_node_free(e, a->grantee);
        a->grantee = NONE;
        return true;
    }
    if (a->state != AGENT_LIVE && !to_itself)
        return counts;
    node = pool_list_find(h, &a->waiters, who);
    if (node != NONE) {
        bool writer = host_node(h, node)->mode == FISSION_EXCLUSIVE;
        pool_list_take(e, &a->waiters, node);
        pool_node_free(e, node);
        if (writer)
            writer_gone(e, a);
    }
    return true; /* who neither holds nor waits has nothing to release (pitfall 7) */
}

/* ---- changing the mode of a hold ---- */

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

void agent_downgrade(struct event *e, struct agent *a, struct fiss_request *r)
{
    uint32_t node = pool_list_find(e->h, &a->holders, (struct who){r->nonce, e->h->machine});
    debug_assert(node != NONE && a->right == FISSION_EXCLUSIVE);
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

/* ---- who is next ---- */

/* Fig. 7 lines 20 to 22. Read-preferring: all readers; else, or if a writer starves, those who came before the first writer. */
static void serve_readers(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    bool all = !a->starves && !host_is(h, FISSION_WRITE_PREFERRING), behind = false;
    if (a->upgrader.machine || a->waiters.count == a->writers)
        return;
    struct list queue = a->waiters;
    edit(e, a);
    a->waiters = (struct list){NONE, NONE, 0};
    for (uint32_t node = queue.head, next; node != NONE; node = next) {
        next = host_node(h, node)->next;
        behind |= host_node(h, node)->mode == FISSION_EXCLUSIVE;
        if (host_node(h, node)->mode == FISSION_SHARED && (all || !behind))
            grant(e, a, node);
        else
            pool_list_append(e, &a->waiters, node);
    }
}

static bool serve_upgrader(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    uint32_t node = a->holders.head;
    if (!a->upgrader.machine || a->holders.count != 1 || !node_is(host_node(h, node), a->upgrader) || !accounted(a))
        return false;
    struct node *n = host_node(h, node);
    edit(e, n);
    edit(e, a);
    a->upgrader.machine = MACHINE_NONE;
    if (a->right == FISSION_EXCLUSIVE && here(e, n->client) && a->granted < TOKEN_GRANTS_MAX) {
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

/* The first in the queue that still wants it; whether one of this host does is known here. */
static uint32_t next_waiter(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (;;) {
        uint32_t node = pool_list_pop(e, &a->waiters);
        if (node == NONE)
            return NONE;
        struct node *n = host_node(h, node);
        edit(e, a);
        a->writers -= n->mode == FISSION_EXCLUSIVE;
        if (!here(e, n->client) || request_wants(h, n->nonce))
            return node;
        pool_node_free(e, node);
    }
}

/* In an exclusive tenure all holders may be readers: one that has given up its upgrade, or those of an agent that stays. Other
 * readers need not wait for them, nor must they: of two such that wait for each other nobody could say why. */
static bool share_tenure(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (a->right != FISSION_EXCLUSIVE || a->upgrader.machine || a->waiters.count == a->writers)
        return false;
    if (!agent_open(e, a) && host_node(h, a->waiters.head)->mode == FISSION_EXCLUSIVE)
        return false;
    for (uint32_t i = a->holders.head; i != NONE; i = host_node(h, i)->next)
        if (host_node(h, i)->mode == FISSION_EXCLUSIVE)
            return false;
    tenure_move(e, a, NONE, h->machine, FISSION_SHARED);
    return true;
}

/* Whatever has changed: who can be granted is; if nobody holds or waits the lock is freed; if nobody holds and some wait the agent
 * goes to the next. */
void agent_serve(struct event *e, struct agent *a)
{
    if (a->state != AGENT_LIVE)
        return;
    if (a->right == FISSION_SHARED)
        serve_readers(e, a);
    if (serve_upgrader(e, a))
        return;
    if (a->holders.count) {
        if (!share_tenure(e, a) && (a->waiters.count || a->upgrader.machine))
            agent_watch(e, a);
        return;
    }
    if (!accounted(a)) {
        agent_watch(e, a);
        return;
    }
    uint32_t node = next_waiter(e, a);
    if (node == NONE) {
        if (!keep_agent(e, a))
            tenure_free(e, a);
        return;
    }
    struct node *n = host_node(e->h, node);
    if (a->right == FISSION_EXCLUSIVE && n->mode == FISSION_EXCLUSIVE && here(e, n->client) && a->granted < TOKEN_GRANTS_MAX) {
        e->h->counts.local++;
        grant(e, a, node);
        if (a->waiters.count)
            agent_watch(e, a);
    } else {
        tenure_move(e, a, node, n->client.machine, n->mode);
    }
}

/* ---- now and then ---- */

static void look_for_starving(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (a->right != FISSION_SHARED || !a->writers)
        return;
    edit(e, a);
    for (uint32_t i = a->waiters.head; i != NONE && !a->starves; i = host_node(h, i)->next)
        if (host_node(h, i)->mode == FISSION_EXCLUSIVE && e->now - host_node(h, i)->since >= STARVE_FACTOR * h->config.retry_ns)
            a->starves = true;
    /* Again and again: the packet may have been lost. */
    if (a->starves || host_is(h, FISSION_WRITE_PREFERRING))
        agent_tell_writers(e, a, a->starves);
}

/* Others wait: do those who hold still hold? */
static void check_holders(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (uint32_t i = a->holders.head, next; i != NONE; i = next) {
        struct node *n = host_node(h, i);
        next = n->next;
        h->counts.checks++;
        if (!here(e, n->client)) {
            say_grant(e, a, n, true);
        } else if (!request_holds(h, n->nonce)) {
            pool_list_take(e, &a->holders, i);
            pool_node_free(e, i);
        }
    }
}

void agent_due(struct event *e, struct agent *a)
{
    switch (a->state) {
    case AGENT_FREEING:
    case AGENT_MOVING:
        e->h->counts.retries++;
        tenure_say_again(e, a);
        break;
    case AGENT_LIVE:
        if (a->waiters.count || a->upgrader.machine) {
            look_for_starving(e, a);
            check_holders(e, a);
        }
        if ((!a->holders.count || a->upgrader.machine) && !accounted(a))
            census_start(e, a);
        agent_serve(e, a);
        break;
    default:
        break;
    }
}
