/* SPDX-License-Identifier: Apache-2.0 */
/* The host: the calls of its sessions (the client of Fig. 6), and where its packets and timers go.
 *
 * The paper's client assumes that packets arrive. Here it retransmits until it is answered, and takes only GRANTs that can be true
 * for it (docs/designs/fisslock.md, "A request"). */
#include "designs/fisslock/host.h"
#include "designs/fisslock/fisslock.h"

#include <errno.h>

static_assert((int)FISSION_SHARED == (int)PAWL_SHARED && (int)FISSION_EXCLUSIVE == (int)PAWL_EXCLUSIVE, "modes have one encoding");

/* ---- a request's states ---- */

struct place request_place(struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct place){h->machine, r->port};
}

void request_retransmit_later(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = pool_pause(e->h, r->pause_ns);
    timers_set(host_timers(e->h), request_number(e->h, r), e->now + r->pause_ns, e->out);
}

void request_stop_timer(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = 0;
    timers_stop(host_timers(e->h), request_number(e->h, r), e->out);
}

void request_count_held(struct event *e, const struct fiss_request *r, int change)
{
    struct session_state *s = host_session(e->h, request_number(e->h, r));
    edit(e, s);
    s->held += (uint32_t)change;
}

bool request_wants(struct fisslock_host *h, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(h, nonce);
    return r && r->state == FISS_WAITING;
}

bool request_holds(struct fisslock_host *h, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(h, nonce);
    return r && request_is_held(r);
}

void request_grant(struct event *e, struct fiss_request *r, uint8_t mode, uint64_t token, uint32_t term, uint16_t ordinal)
{
    assert(r->state == FISS_WAITING || r->state == FISS_UPGRADING); /* I5: the request was written down before it was sent */
    host_assert(e->h, lease_runs(e->h, e->now));                    /* I1: its host may still act */
    if (r->state == FISS_WAITING) {
        e->h->waiting--;
        request_count_held(e, r, 1);
    }
    request_stop_timer(e, r);
    r->state = FISS_HELD;
    r->mode = mode;
    r->token = token;
    r->term = term;
    r->ordinal = ordinal;
    r->result = 0;
    outbox_wake(e->out, request_number(e->h, r));
}

void request_end(struct event *e, struct fiss_request *r, int result)
{
    assert(r->state >= FISS_WAITING);
    if (r->state == FISS_WAITING)
        e->h->waiting--;
    else if (r->state != FISS_RELEASING)
        request_count_held(e, r, -1);
    request_stop_timer(e, r);
    pool_request_unlink(e, r);
    r->state = result ? FISS_ENDED : FISS_IDLE;
    r->result = result;
    if (result)
        outbox_wake(e->out, request_number(e->h, r));
}

/* The thread that waits for the request, or holds it. */
void request_thread(struct event *e, uint32_t request, uint32_t thread)
{
    uint32_t *at = host_thread(e->h, request);
    if (*at == thread)
        return; /* nearly always */
    edit(e, at);
    *at = thread;
}

/* ---- packets that it sends ---- */

void request_send_acquire(struct event *e, struct fiss_request *r, uint16_t flags)
{
    assert(r->state == FISS_WAITING || r->state == FISS_UPGRADING); /* I5 */
    if (!lease_runs(e->h, e->now))
        return; /* lease_packet() sends it when there is a lease */
    struct fission_packet *p = pool_packet(e, FISSION_ACQUIRE, r->index, r->nonce, 0);
    if (!p)
        return;
    bool upgrade = r->state == FISS_UPGRADING;
    p->head.from = p->client = request_place(e->h, r);
    p->mode = upgrade ? FISSION_EXCLUSIVE : r->mode;
    p->priority = r->priority;
    p->flags = flags | (upgrade ? FISSION_UPGRADE : 0) | (r->try ? FISSION_NOWAIT : 0);
    if (r->try && e->h->policy.keep) /* only the agent knows whether the lock is held, or the agent only stays */
        p->flags |= FISSION_RETRY;
    if (upgrade && r->term != TERM_NONE) { /* the hold, in case the agent does not know it */
        p->term = r->term;
        p->inca = r->ordinal;
    }
}

void request_send_release(struct event *e, uint64_t index, uint64_t nonce, struct place client, uint32_t term, uint16_t ordinal,
                          uint16_t flags)
{
    struct fission_packet *p = pool_packet(e, FISSION_RELEASE, index, nonce, 0);
    if (!p)
        return;
    p->head.from = p->client = client; /* where the answer goes */
    p->term = term == TERM_NONE ? 0 : term;
    p->inca = ordinal;
    p->flags = flags;
}

void request_not_waiting(struct event *e, uint64_t index, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(e->h, nonce);
    struct place client = {e->h->machine, PORT_POOL};
    if (!r)
        request_send_release(e, index, nonce, client, 0, 0, FISSION_DONE);
    else if (r->index == index && r->state == FISS_HELD)
        request_send_release(e, index, nonce, client, r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
}

void request_due(struct event *e, struct fiss_request *r)
{
    struct agent *a = pool_agent_of(e->h, r->index);
    switch (r->state) {
    case FISS_WAITING:
    case FISS_UPGRADING:
        /* In the queue of an agent on this host nothing can have been lost. */
        if (!a || a->state != AGENT_LIVE ||
            (r->state == FISS_WAITING && pool_list_find(e->h, &a->waiters, request_who(e->h, r)) == NONE)) {
            e->h->counts.retries++;
            request_send_acquire(e, r, FISSION_RETRY);
        } else if (r->state == FISS_UPGRADING && a->term == r->term) {
            request_ask_upgrade(e, a, r); /* the upgrade before it may have been given up */
        }
        deadlock_due(e, r);
        if (r->state == FISS_WAITING || r->state == FISS_UPGRADING)
            request_retransmit_later(e, r);
        break;
    case FISS_RELEASING:
        e->h->counts.retries++;
        request_send_release(e, r->index, r->nonce, (struct place){e->h->machine, PORT_POOL}, r->term, r->ordinal, 0);
        request_retransmit_later(e, r);
        break;
    default:
        break;
    }
}

/* ---- calls ---- */

/* acquire() of Fig. 6. */
int fisslock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (ask->request >= h->request_count || ask->index >= h->config.locks ||
        (ask->mode != PAWL_SHARED && ask->mode != PAWL_EXCLUSIVE))
        return -EINVAL;
    struct fiss_request *r = host_request(h, ask->request);
    if (r->state != FISS_IDLE && r->state != FISS_ENDED)
        return -EBUSY;
    /* Every waiting request may be given the agent: there is room for it. */
    if (h->agent_count - h->agents_used <= h->waiting)
        return -PAWL_ELIMIT;

    edit(&e, r);
    *r = (struct fiss_request){
        .nonce = pool_nonce(h, ask->request),
        .index = ask->index,
        .port = ask->port,
        .state = FISS_WAITING,
        .mode = (uint8_t)ask->mode,
        .priority = ask->priority,
        .try = ask->try,
    };
    h->waiting++;
    pool_request_link(&e, r);
    request_thread(&e, ask->request, ask->thread);

    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->state == AGENT_LIVE) { /* Fig. 6 line 1 */
        struct asking asking = {r->nonce, request_place(h, r), r->mode, r->priority, r->try};
        if (agent_ask(&e, a, &asking) == AGENT_REFUSES)
            request_end(&e, r, -PAWL_EHELD);
        else if (r->state == FISS_WAITING)
            request_retransmit_later(&e, r);
        else
            h->counts.local++;
    } else { /* Fig. 6 line 5 */
        request_send_acquire(&e, r, 0);
        request_retransmit_later(&e, r);
    }
    assert(r->state != FISS_WAITING || timers_runs(host_timers(h), ask->request)); /* I9 */
    return r->state == FISS_WAITING ? PACKET_WAIT : PACKET_DONE;
}

/* release() of Fig. 6. */
int fisslock_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (request >= h->request_count)
        return -EINVAL;
    struct fiss_request *r = host_request(h, request);
    if (!request_is_held(r))
        return -PAWL_ENOTOWNER;
    request_stop_timer(&e, r);
    e.port = r->port;
    request_count_held(&e, r, -1);
    r->state = FISS_RELEASING; /* from here on it does not hold */
    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->term == r->term) { /* Fig. 6 line 9 */
        agent_release(&e, a, request_who(h, r), r->term, r->ordinal);
        request_end(&e, r, 0);
        agent_serve(&e, a);
    } else { /* Fig. 6 line 12 */
        request_send_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, 0);
        request_retransmit_later(&e, r);
    }
    return 0;
}

int fisslock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (request >= h->request_count)
        return -EINVAL;
    struct fiss_request *r = host_request(h, request);
    struct agent *a = pool_agent_of(h, r->index);
    bool here = a && a->state == AGENT_LIVE;
    struct who who = request_who(h, r);
    if (r->state == FISS_WAITING) {
        /* It ends at once: a GRANT that comes later finds no request of its nonce. The agent is told, so that others need not wait
         * for that. */
        if (!here)
            request_send_release(&e, r->index, r->nonce, request_place(h, r), 0, 0, FISSION_DONE);
        request_end(&e, r, why);
        if (here) {
            agent_release(&e, a, who, 0, 0);
            agent_serve(&e, a);
        }
    } else if (r->state == FISS_UPGRADING) {
        if (here && a->term == r->term)
            agent_cancel_upgrade(&e, a, who);
        else
            request_send_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
        request_deny_upgrade(&e, r, why);
    }
    return PACKET_DONE;
}

void fisslock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    if (request < e.h->request_count)
        request_thread(&e, request, thread);
}

int fisslock_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    if (request >= h->request_count)
        return -EINVAL;
    const struct fiss_request *r = host_request(h, request);
    if (r->state == FISS_WAITING || r->state == FISS_UPGRADING)
        return -EINPROGRESS;
    bool held = r->state == FISS_HELD;
    *out = (struct packet_answer){
        .result = held || r->result ? r->result : -PAWL_ENOTOWNER, .mode = (enum pawl_mode)r->mode, .token = r->token};
    return 0;
}

bool fisslock_idle(const void *host, uint32_t request)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    return host_request(h, request)->state <= FISS_ENDED;
}

bool fisslock_holds(const void *host, uint32_t request)
{
    return request_is_held(host_request((struct fisslock_host *)(uintptr_t)host, request));
}

bool fisslock_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    const struct fiss_request *r = host_request(h, request);
    bool holds = request_is_held(r);
    *out = (struct packet_claim){.index = r->index, .token = holds ? r->token : 0, .mode = (enum pawl_mode)r->mode, .holds = holds};
    return holds || r->state == FISS_WAITING;
}

void fisslock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    assert(session < h->config.sessions);
    struct event e = event_begin(host, now, out);
    struct session_state *s = host_session(h, session * h->config.requests);
    edit(&e, s);
    s->lost = false;
    for (uint32_t i = session * h->config.requests; i < (session + 1) * h->config.requests; i++) {
        struct fiss_request *r = host_request(h, i);
        edit(&e, r);
        r->port = PORT_POOL; /* its process does not hear answers any more */
        if (r->state == FISS_WAITING)
            fisslock_give_up(host, i, -PAWL_ELOST, now, out);
        else if (request_is_held(r))
            fisslock_release(host, i, now, out);
    }
    assert(!s->held); /* I6: a lost session holds nothing */
}

/* ---- packets for requests ---- */

/* Whether a GRANT can be true for a request that waits. One of a tenure that ended here, or of an ordinal that this host has given
 * up in a census, cannot. */
static bool credible(struct fisslock_host *h, const struct fiss_request *r, uint32_t term, uint16_t ordinal)
{
    if (r->floored && fission_term_after(r->floor, term) && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR))
        return false;
    return !(r->barred && ordinal && term == r->barred_term && ordinal <= r->barred_inca);
}

/* A GRANT without agent: shared, by the decider (with an ordinal) or by the agent. */
static void on_shared_grant(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct fiss_request *r = pool_request_of(h, p->head.nonce);
    struct agent *a = pool_agent_of(h, p->head.index);
    bool by_switch = p->head.from.machine == MACHINE_SWITCH;
    uint16_t ordinal = by_switch ? p->inca : 0;
    if (r && r->index != p->head.index)
        r = NULL;
    bool here = a && a->term == p->term;
    bool news = !(here && ordinal) || agent_know(e, a, ordinal);
    if (r && r->state == FISS_WAITING) {
        if (!news || !credible(h, r, p->term, ordinal))
            return;
        if (here && !agent_hold(e, a, &(struct asking){r->nonce, request_place(h, r), FISSION_SHARED, r->priority, false}, ordinal))
            return;
        ++*(by_switch ? &h->counts.by_switch : &h->counts.by_agent);
        request_grant(e, r, FISSION_SHARED, p->token << TOKEN_GRANT_BITS | 1, p->term, ordinal);
    } else if (r && request_is_held(r)) {
        if (here && r->term == p->term) /* held before the agent came here: it must know the holder, not only the ordinal */
            agent_hold(e, a, &(struct asking){r->nonce, request_place(h, r), r->mode, r->priority, false}, r->ordinal);
        if (ordinal && !r->ordinal && r->term == p->term) {
            edit(e, r);
            r->ordinal = ordinal; /* granted twice: its release accounts for both */
        }
    } else if (p->client.machine == h->machine) { /* the request has ended */
        h->counts.orphans++;
        request_send_release(e, p->head.index, p->head.nonce, p->client, p->term, ordinal, FISSION_DONE);
    }
}

/* ACK or REFUSED. */
static void on_reply(struct event *e, const struct fission_packet *p)
{
    struct fiss_request *r = pool_request_of(e->h, p->head.nonce);
    if (!r || r->index != p->head.index)
        e->h->drops.stale++;
    else if (p->head.type == FISSION_ACK && r->state == FISS_RELEASING)
        request_end(e, r, 0);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_WAITING && r->try)
        request_end(e, r, -PAWL_EHELD);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_UPGRADING && (p->flags & FISSION_UPGRADE))
        deadlock_second(e, r); /* the other upgrade may have been given up meanwhile */
}

/* ---- where packets and timers go ---- */

static void on_grant(struct event *e, const struct fission_packet *p)
{
    if (!(p->flags & FISSION_AGENT))
        on_shared_grant(e, p);
    else if (p->flags & (FISSION_DENIED | FISSION_DONE))
        tenure_answer(e, p); /* sent back by the decider */
    else
        agent_arrives(e, p);
}

static void dispatch(struct event *e, const struct fission_packet *p)
{
    switch (p->head.type) {
    case FISSION_ACQUIRE:
    case FISSION_RELEASE:
    case FISSION_LOOK:
    case FISSION_TAKE:
        forward_packet(e, p);
        break;
    case FISSION_GRANT:
        on_grant(e, p);
        break;
    case FISSION_FREE:
        tenure_answer(e, p);
        break;
    case FISSION_ACK:
        if (p->flags & FISSION_AGENT)
            tenure_ack(e, p);
        else
            on_reply(e, p);
        break;
    case FISSION_REFUSED:
        on_reply(e, p);
        break;
    case FISSION_LEASE:
        lease_packet(e, p);
        break;
    case FISSION_REPORT:
        report_packet(e, p);
        break;
    case FISSION_CENSUS:
    case FISSION_ANSWER:
        census_packet(e, p);
        break;
    case FISSION_PROBE:
        deadlock_probe(e, p);
        break;
    case FISSION_CHASE:
        deadlock_chase(e, p);
        break;
    default: /* FLAGS end at the decider */
        e->h->drops.bad++;
        break;
    }
}

void fisslock_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    const struct fission_packet *p = data;
    enum fission_fault fault = fission_verify(data, len, &h->rules);
    if (fault == FISSION_FINE && p->head.to.machine != h->machine)
        fault = FISSION_ALIEN;
    if (fault == FISSION_FINE && p->head.type != FISSION_LEASE && !lease_runs(h, now))
        fault = FISSION_STALE; /* without a lease no packet proves anything */
    if (fault == FISSION_FINE)
        dispatch(&e, p);
    else
        ++*(fault == FISSION_BAD ? &h->drops.bad : fault == FISSION_ALIEN ? &h->drops.alien : &h->drops.stale);
}

uint64_t fisslock_tick(void *host, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    uint32_t timer;
    while (out->packets < OUTBOX_PACKETS / 2 && timers_pop(host_timers(h), now, &timer, out)) {
        if (timer < h->request_count)
            request_due(&e, host_request(h, timer));
        else if (timer < h->request_count + h->agent_count)
            agent_due(&e, host_agent(h, timer - h->request_count));
        else if (timer == timer_of_census(h))
            census_due(&e);
        else if (timer == timer_of_lease(h))
            lease_due(&e);
        else
            report_due(&e);
    }
    return min_u64(timers_next(host_timers(h)), h->lease_until ? h->lease_until : UINT64_MAX);
}

/* ---- counters ---- */

const struct packet_drops *fisslock_host_drops(const void *host)
{
    return &((const struct fisslock_host *)host)->drops;
}

const struct fisslock_counts *fisslock_counts(const void *host)
{
    return &((const struct fisslock_host *)host)->counts;
}

struct packet_grants fisslock_host_grants(const void *host)
{
    const struct fisslock_counts *c = fisslock_counts(host);
    return (struct packet_grants){.by_switch = c->by_switch, .by_agent = c->by_agent, .local = c->local};
}
