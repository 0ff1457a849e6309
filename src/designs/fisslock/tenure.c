/* SPDX-License-Identifier: Apache-2.0 */
/* How a tenure ends: with FREE, or with a GRANT that takes the agent to the next holder (4.2). And tenures that name this host
 * without its knowing: because the GRANT was lost, or the host's memory was. */
#include "designs/fisslock/host.h"

/* ---- the end ---- */

static void send_free(struct event *e, struct agent *a)
{
    struct fission_packet *p = pool_packet(e, FISSION_FREE, a->index, 0, 0);
    if (!p)
        return;
    p->head.from.port = a->pause_ns ? PORT_POOL : e->port;
    p->term = a->term;
    p->inca = a->sent_inca;
    p->old_mode = a->right;
}

/* The queue goes with the agent, as much as fits; the rest is sent on when the agent has arrived (send_rest). */
static void send_move(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    bool to_itself = a->to == h->machine;
    unsigned entries = to_itself ? 0 : (unsigned)min_u64(a->waiters.count, FISSION_ENTRIES_MAX);
    const struct node *grantee = a->grantee == NONE ? NULL : host_node(h, a->grantee);
    struct fission_packet *p = pool_packet(e, FISSION_GRANT, a->index, grantee ? grantee->nonce : 0, entries);
    if (!p)
        return;
    p->head.from.port = a->pause_ns ? PORT_POOL : e->port;
    p->head.to.machine = a->to;
    p->head.to.port = grantee && !a->pause_ns ? grantee->client.port : PORT_POOL; /* first to the process, which may have ended */
    p->client = p->head.to;                                                       /* where the agent goes */
    p->term = a->term;
    p->inca = a->sent_inca;
    p->mode = a->to_mode;
    p->old_mode = a->right;
    p->flags = FISSION_AGENT;
    if (a->to_mode == FISSION_SHARED && a->writers && h->policy.write_preferring)
        p->flags |= FISSION_WRITERS;
    if (grantee && grantee->limit)
        p->flags |= FISSION_STARVES; /* closed to readers: see places.c */
    uint32_t node = a->waiters.head;
    for (unsigned i = 0; i < entries; i++, node = host_node(h, node)->next)
        pool_entries(p)[i] = places_entry(host_node(h, node));
}

void tenure_retransmit(struct event *e, struct agent *a)
{
    if (a->state == AGENT_FREEING)
        send_free(e, a);
    else
        send_move(e, a);
    edit(e, a);
    a->pause_ns = pool_pause(e->h, a->pause_ns);
    if (a->state == AGENT_FREEING && MISTAKE(e->h->config.mistakes, FISSLOCK_MISTAKE_LEAK))
        return;
    timers_set(host_timers(e->h), timer_of_agent(e->h, a), e->now + a->pause_ns, e->out);
}

static void leave(struct event *e, struct agent *a, enum agent_state state)
{
    edit(e, a);
    keep_forget(e, a);
    a->state = (uint8_t)state;
    a->sent_inca = a->known;
    a->pause_ns = 0;
    tenure_retransmit(e, a);
}

void tenure_free(struct event *e, struct agent *a)
{
    assert(!a->holders.count); /* I1 */
    leave(e, a, AGENT_FREEING);
}

void tenure_move(struct event *e, struct agent *a, uint32_t grantee, uint16_t to, uint8_t mode)
{
    assert(to == e->h->machine || !a->holders.count); /* I1 */
    edit(e, a);
    a->grantee = grantee;
    a->grantee_holds = false;
    a->to = to;
    a->to_mode = mode;
    leave(e, a, AGENT_MOVING);
}

/* Refused: there is a holder that the agent does not know. The agent stays (4.2). */
static void restore(struct event *e, struct agent *a, uint64_t word)
{
    struct fisslock_host *h = e->h;
    h->counts.denied++;
    edit(e, a);
    a->state = AGENT_LIVE;
    a->seen = (uint16_t)max_u64(a->seen, fission_word_inca(word)); /* the refusal may have been overtaken */
    if (MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_CENSUS)) {
        a->known = a->seen;
        a->known_bits = 0;
    }
    if (a->grantee != NONE) {
        struct node *n = host_node(h, a->grantee);
        edit(e, n);
        if (a->grantee_holds) {
            pool_list_append(e, &a->holders, a->grantee);
            n->mode = FISSION_SHARED;
            a->upgrader = (struct who){n->nonce, n->client.machine};
        } else {
            pool_list_push(e, &a->waiters, a->grantee);
            a->writers += n->mode == FISSION_EXCLUSIVE;
        }
        a->grantee = NONE;
    }
    a->pause_ns = 0;
    timers_stop(host_timers(h), timer_of_agent(h, a), e->out);
    agent_serve(e, a);
}

/* The waiters for which the packet had no room (pitfall 6). Should this be lost, they retransmit themselves. */
static void send_rest(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    uint32_t node = a->waiters.head;
    for (unsigned i = 0; node != NONE; i++, node = host_node(h, node)->next) {
        const struct node *n = host_node(h, node);
        if (i < FISSION_ENTRIES_MAX)
            continue;
        struct fission_packet *p = pool_packet(e, FISSION_ACQUIRE, a->index, n->nonce, 0);
        if (!p)
            break;
        struct fission_entry entry = places_entry(n);
        p->client = n->client;
        p->mode = entry.mode;
        p->inca = entry.inca;
        p->priority = n->priority;
        p->flags = FISSION_BOUNCED | (n->limit ? FISSION_RETRY : 0);
        p->bouncer = h->machine;
        p->stamp = *host_ends(h, a->index);
    }
}

/* The tenure is over, and this host knows it. Late packets of it have no effect from now on: requests that wait here take no GRANT
 * of it, and a packet that this host bounced before does not prove that the agent is here. */
void tenure_end(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    pool_request_floor(e, a->index, term_after(a->term));
    edit(e, host_ends(h, a->index));
    ++*host_ends(h, a->index);
    keep_end(e, a);
    if (a->state == AGENT_MOVING && a->to != h->machine)
        send_rest(e, a);
    pool_agent_free(e, a);
}

void tenure_answer(struct event *e, const struct fission_packet *p)
{
    struct agent *a = pool_agent_of(e->h, p->head.index);
    enum agent_state state = p->head.type == FISSION_FREE ? AGENT_FREEING : AGENT_MOVING;
    if (!a || a->state != state || a->term != p->term || a->sent_inca != p->inca)
        e->h->drops.stale++;
    else if (p->flags & FISSION_DENIED)
        restore(e, a, p->word);
    else if (p->flags & FISSION_DONE)
        tenure_end(e, a);
}

/* The agent has arrived where it was sent. */
void tenure_ack(struct event *e, const struct fission_packet *p)
{
    struct agent *a = pool_agent_of(e->h, p->head.index);
    if (a && a->state == AGENT_MOVING && a->term == p->term && a->to == p->head.from.machine)
        tenure_end(e, a);
    else
        e->h->drops.stale++;
}

/* ---- tenures that this host was not told of ---- */

/* Sends LOOK to the decider. If the answer says that the agent is here, and no tenure has ended here meanwhile, it is: see
 * agent_for() in forward.c. */
void tenure_look(struct event *e, uint64_t index)
{
    struct fission_packet *p = pool_packet(e, FISSION_LOOK, index, 0, 0);
    if (!p)
        return;
    p->flags = FISSION_BOUNCED;
    p->bouncer = e->h->machine;
    p->stamp = *host_ends(e->h, index);
}

/* The tenure may be one that this host had before it lost its memory or its lease: then other hosts may hold by grants of an agent
 * that is lost. TAKE makes it a new tenure, marked as taken over, so that the host that adopts it looks for holders. */
static void send_take(struct event *e, uint64_t index, uint32_t term)
{
    struct fisslock_host *h = e->h;
    struct fission_packet *p = pool_packet(e, FISSION_TAKE, index, 0, 0);
    if (!p)
        return;
    pool_request_floor(e, index, term_after(term)); /* from now on that tenure is not this host's */
    p->client = (struct place){h->machine, PORT_POOL};
    p->term = term;
    p->old_mode = FISSION_EXCLUSIVE;
    p->flags = FISSION_BOUNCED;
    p->bouncer = h->machine;
    p->stamp = *host_ends(h, index);
}

/* The decider says that the agent is here, in this tenure. True: it is the one that this host's TAKE began. The tenure that TAKE
 * ends is remembered, so that no tenure is adopted that a TAKE in flight may end. */
bool tenure_taken(struct event *e, uint64_t index, uint32_t term)
{
    struct take *t = &e->h->takes[mix64(index) % TAKES];
    bool same = t->asked && t->index == index;
    if (same && term == term_after(t->term)) {
        edit(e, t);
        t->asked = false;
        return true;
    }
    /* If two locks took turns at this place, neither would get the tenure that it asked for. */
    if (t->asked && e->now - t->since < e->h->config.retry_ns && (!same || t->term == term))
        return false;
    edit(e, t);
    *t = (struct take){.index = index, .since = e->now, .term = term, .asked = true};
    send_take(e, index, term);
    return false;
}
