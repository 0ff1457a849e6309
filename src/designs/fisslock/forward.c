/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that the decider forwards to the agent's host: requests, releases, and questions whether the agent is there. */
#include "designs/fisslock/host.h"
#include "designs/fisslock/spill.h"

#include <errno.h>

/* The agent is not here, yet or any more: back to the decider, marked, to be routed again (4.2, Fig. 9). */
static void bounce(struct event *e, const struct fission_packet *in)
{
    if (in->hops >= FISSION_HOPS_MAX) {
        e->h->drops.stale++; /* its sender retransmits */
        return;
    }
    struct fission_packet *p = pool_packet(e, in->head.type, in->head.index, in->head.nonce, 0);
    if (!p)
        return;
    struct place from = p->head.from, to = p->head.to;
    *p = *in;
    p->head.from = from;
    p->head.to = to;
    p->count = 0;
    p->hops++;
    p->flags = (uint16_t)((p->flags & ~SPILL_SERVED) | FISSION_BOUNCED);
    p->bouncer = e->h->machine;
    p->stamp = *host_ends(e->h, in->head.index);
    e->h->counts.bounces++;
}

static void reply(struct event *e, enum fission_type type, const struct fission_packet *in, uint16_t flags)
{
    struct fission_packet *p = pool_packet(e, type, in->head.index, in->head.nonce, 0);
    if (!p)
        return;
    p->head.to = p->client = in->client;
    p->term = in->term;
    p->flags = flags;
}

/* The agent; null: nothing proves that it is here. The decider writes the lock's word on every packet. If this host bounced the
 * packet before that, and no tenure of the lock has ended here since (the stamp), the word is still true. */
static struct agent *agent_for(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct agent *a = pool_agent_of(h, p->head.index);
    uint32_t term = fission_word_term(p->word);
    bool mine = (p->word & FISSION_WORD_HELD) && fission_word_machine(p->word) == h->machine;
    if (a && a->state != AGENT_LIVE && fission_term_after(term, a->term)) {
        bool next = term == term_after(a->term);
        if (a->state == AGENT_MOVING && a->to == h->machine && next && mine) {
            agent_moved_here(e, a, p->word, p->token);
        } else if (a->state == AGENT_FREEING || !next) {
            tenure_end(e, a);
        }
        a = pool_agent_of(h, p->head.index);
    }
    if (a || !mine)
        return a;
    bool proven = (p->flags & FISSION_BOUNCED) && p->bouncer == h->machine && p->stamp == *host_ends(h, p->head.index);
    if (!proven && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_ADOPT))
        return NULL;
    if (h->reborn && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_REUSE) && !tenure_taken(e, p->head.index, term))
        return NULL;
    return agent_adopt(e, p->head.index, p->word, p->token);
}

static struct who who_of(const struct fission_packet *p)
{
    return (struct who){p->head.nonce, p->client.machine};
}

static bool queues_here(const struct event *e, const struct agent *a)
{
    return a->state == AGENT_LIVE || (a->state == AGENT_MOVING && a->to == e->h->machine);
}

static void on_upgrade(struct event *e, struct agent *a, const struct fission_packet *p)
{
    if (!queues_here(e, a)) {
        bounce(e, p);
        return;
    }
    /* The agent may not know this hold. */
    struct asking asking = {p->head.nonce, p->client, FISSION_SHARED, p->priority, false, 0};
    if (p->term == a->term && p->inca && !agent_knows(a, p->inca) && agent_hold(e, a, &asking, p->inca))
        agent_know(e, a, p->inca);
    if (agent_upgrade(e, a, who_of(p)) == AGENT_REFUSES)
        reply(e, FISSION_REFUSED, p, FISSION_UPGRADE);
}

/* The copy of an ACQUIRE that the decider granted (Fig. 8b). */
static void on_copy(struct event *e, struct agent *a, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    if (p->term != a->term || a->right != FISSION_SHARED || agent_knows(a, p->inca)) {
        h->drops.stale++; /* of a tenure that has ended, and accounted for it; or a duplicate */
        return;
    }
    struct asking asking = {p->head.nonce, p->client, FISSION_SHARED, p->priority, false, 0};
    if (p->client.machine != h->machine || request_holds(h, p->head.nonce)) {
        if (!agent_hold(e, a, &asking, p->inca))
            return; /* no room: the ordinal stays open */
    } else if (request_wants(h, p->head.nonce) && agent_hold(e, a, &asking, p->inca)) {
        h->counts.by_switch++;
        request_grant(e, pool_request_of(h, p->head.nonce), FISSION_SHARED, agent_token(a), a->term, p->inca);
    }
    agent_know(e, a, p->inca);
    agent_serve(e, a);
}

static void on_acquire(struct event *e, struct agent *a, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    if (p->flags & FISSION_UPGRADE) {
        on_upgrade(e, a, p);
        return;
    }
    if (p->flags & FISSION_COPY) {
        on_copy(e, a, p);
        return;
    }
    bool place = p->mode == FISSION_PLACE;
    if (!place && p->term == a->term && p->inca)
        agent_know(e, a, p->inca);
    if (p->client.machine == h->machine && !request_wants(h, p->head.nonce)) {
        h->drops.stale++;
        agent_serve(e, a);
        return;
    }
    if (!queues_here(e, a)) {
        bounce(e, p);
        return;
    }
    struct asking asking = {p->head.nonce,      p->client, place ? FISSION_SHARED : p->mode, p->priority, p->flags & FISSION_NOWAIT,
                            place ? p->inca : 0};
    enum agent_says says = agent_ask(e, a, &asking);
    if (says == AGENT_REFUSES_LIMIT) {
        places_refuse(e, a, p->head.nonce, p->client);
    } else if (says == AGENT_REFUSES) {
        if (p->client.machine != h->machine)
            reply(e, FISSION_REFUSED, p, 0);
        else
            request_end(e, pool_request_of(h, p->head.nonce), -PAWL_EHELD);
    }
    agent_serve(e, a);
}

static void on_release(struct event *e, struct agent *a, const struct fission_packet *p)
{
    if (p->flags & FISSION_UPGRADE) {
        agent_cancel_upgrade(e, a, who_of(p));
        return;
    }
    if (!agent_release(e, a, who_of(p), p->term, p->inca)) {
        bounce(e, p);
        return;
    }
    if (!(p->flags & FISSION_DONE))
        reply(e, FISSION_ACK, p, 0);
    agent_serve(e, a);
}

void forward_packet(struct event *e, const struct fission_packet *p)
{
    struct agent *a = agent_for(e, p);
    if (!a) {
        if (p->head.type != FISSION_TAKE && p->head.type != FISSION_LOOK)
            bounce(e, p);
        else if (!((p->flags & FISSION_BOUNCED) && p->bouncer == e->h->machine))
            tenure_look(e, p->head.index); /* the decider says that the agent is here */
        return;
    }
    if (a->state == AGENT_LIVE && fission_term_after(fission_word_term(p->word), a->term)) {
        e->h->drops.bad++; /* the decider cannot be ahead of a live agent */
        return;
    }
    if (a->state == AGENT_LIVE && a->right == FISSION_SHARED && fission_word_term(p->word) == a->term &&
        fission_word_inca(p->word) > a->seen) {
        edit(e, a);
        a->seen = fission_word_inca(p->word);
    }
    switch (p->head.type) {
    case FISSION_ACQUIRE:
        on_acquire(e, a, p);
        break;
    case FISSION_RELEASE:
        on_release(e, a, p);
        break;
    default: /* LOOK, TAKE */
        agent_serve(e, a);
        break;
    }
}
