/* SPDX-License-Identifier: Apache-2.0 */
/* A host's lease at the decider. While it runs, the host's requests hold and its agents may grant. The host counts from when it
 * sent the heartbeat, the decider from when it heard it, so the host knows first that the lease is over (I6). Then other hosts may
 * take over the tenures that name this host (5.3), and this host starts anew: its agents are gone, its holds are lost, and its
 * waiting requests ask again with new nonces. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"

#define LEAVE_TIMES 2            /* packets, since none is retransmitted; if all are lost, the lease ends by itself */
#define LEASE_SHARE 4            /* heartbeats in a lease */
#define LEASE_LOOK_FACTOR 4      /* retransmission times between two questions whether the decider has opened */
#define LEASE_DRIFT_DIVISOR 5000 /* clocks run at the same speed to one part in 10,000 (docs/invariants.md), each */

/* The lease is over: the request's hold is lost, and its waiting place is. */
static void lose(struct event *e, struct fiss_request *r)
{
    struct fisslock_host *h = e->h;
    switch (r->state) {
    case FISS_HELD:
    case FISS_UPGRADING:
        edit(e, host_session(h, request_number(h, r)));
        host_session(h, request_number(h, r))->lost = true;
        request_end(e, r, -PAWL_ELOST);
        break;
    case FISS_RELEASING:
        request_end(e, r, 0);
        break;
    case FISS_WAITING:
        edit(e, r);
        r->nonce = pool_nonce(e->h, request_number(h, r));
        r->floored = r->barred = false;
        break;
    default:
        break;
    }
}

/* A mistake on purpose. */
static bool outlasts(const struct fisslock_host *h, const struct agent *a)
{
    return MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_KEEP) && a->kept && !a->holders.count && !a->waiters.count;
}

/* No agent is here any more. Nothing that packets proved before counts now: which tenures are over, and which were taken over. */
static void forget_agents(struct event *e)
{
    struct fisslock_host *h = e->h;
    edit(e, &h->census);
    h->census.id = 0;
    outbox_touch(e->out, h->ends, sizeof h->ends);
    for (unsigned i = 0; i < ENDS; i++)
        h->ends[i]++;
    outbox_touch(e->out, h->takes, sizeof h->takes);
    memset(h->takes, 0, sizeof h->takes);
    for (uint32_t i = 0; i < h->agents_touched && h->agents_used; i++)
        if (host_agent(h, i)->state != AGENT_NONE && !outlasts(h, host_agent(h, i)))
            pool_agent_free(e, host_agent(h, i));
}

void lease_lapse(struct event *e)
{
    struct fisslock_host *h = e->h;
    h->lease_until = 0;
    h->reborn = true;
    h->counts.lapses++;
    forget_agents(e);
    for (uint32_t i = 0; i < h->request_count; i++)
        lose(e, host_request(h, i));
    host_assert(h, !h->agents_used); /* I6: nothing that began under the lost lease goes on */
}

/* The decider lost its state and waits for this host's report. Holds go on, by no tenure that the decider knows. Waiting requests
 * ask again, and are answered when the decider has opened. */
static void survive(struct event *e)
{
    struct fisslock_host *h = e->h;
    h->counts.survived++;
    forget_agents(e);
    for (uint32_t i = 0; i < h->request_count; i++) {
        struct fiss_request *r = host_request(h, i);
        if (r->state == FISS_IDLE || r->state == FISS_ENDED)
            continue;
        edit(e, r);
        if (r->state == FISS_RELEASING) {
            request_end(e, r, 0); /* the decider does not know of the hold any more */
        } else if (r->state == FISS_WAITING) {
            r->floored = r->barred = false;
        } else {
            r->term = TERM_NONE;
            r->ordinal = 0;
        }
    }
}

void lease_due(struct event *e)
{
    struct fisslock_host *h = e->h;
    unsigned room = h->config.racks ? RULES_ENTRIES : 0; /* for the answer: a switch in the kernel makes no packet longer */
    struct fission_packet *p = pool_packet(e, FISSION_LEASE, 0, h->life, room);
    if (p) {
        p->token = e->now;
        memset(p + 1, 0, room * sizeof(struct fission_entry));
    }
    h->lease_pause_ns = min_u64(pool_pause(h, h->lease_pause_ns), h->config.lease_ns / (2 * LEASE_SHARE));
    timers_set(host_timers(h), timer_of_lease(h), e->now + h->lease_pause_ns, e->out);
}

/* Gives the lease back: from now on the next request for a lock takes over its agent from this host. */
void fisslock_leave(void *host, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    e.h->leaving = true;
    for (unsigned i = 0; i < LEAVE_TIMES && e.h->config.lease_ns; i++) {
        struct fission_packet *p = pool_packet(&e, FISSION_LEASE, 0, e.h->life, 0);
        if (p)
            p->flags = FISSION_DONE;
    }
}

/* A decider of another life. Holds that the former one granted are lost, unless this one collects reports. */
static void other_life(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    bool closed = p->flags & FISSION_CLOSED;
    if (h->lease_until && closed && !(p->flags & FISSION_DENIED))
        survive(e);
    else if (h->lease_until)
        lease_lapse(e);
    edit(e, &h->rules);
    h->rules.life = p->head.epoch;
    h->closed = closed;
}

void lease_packet(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    bool news = p->head.epoch > h->rules.life;
    if (p->flags & FISSION_RETRY) { /* the decider asks for a heartbeat */
        if (news)
            lease_due(e);
        return;
    }
    uint64_t margin = h->config.lease_ns / LEASE_DRIFT_DIVISOR + 1, until = p->token + h->config.lease_ns - margin;
    if (p->head.epoch < h->rules.life || p->token > e->now || until <= e->now || (!news && until <= h->lease_until)) {
        h->drops.stale++;
        return;
    }
    bool open = !h->closed && h->lease_until;
    if (news)
        other_life(e, p);
    else if (h->closed && !(p->flags & FISSION_CLOSED))
        h->closed = false;
    h->lease_until = until;
    h->lease_pause_ns = 0;
    if (news && h->closed)
        report_start(e);
    else if (!h->closed && h->report.active)
        report_stop(e);
    for (uint32_t i = 0; !h->closed && (!open || news) && i < h->request_count; i++)
        if (host_request(h, i)->state == FISS_WAITING)
            request_due(e, host_request(h, i));
    /* While the decider is closed: to hear when it opens. */
    timers_set(host_timers(h), timer_of_lease(h),
               h->closed ? e->now + LEASE_LOOK_FACTOR * h->config.retry_ns : p->token + h->config.lease_ns / LEASE_SHARE, e->out);
}

/* The old decider may live, and take this host's holds, or another's, for lost before the new one does: a grant of it could come
 * beside a hold that was reported to its successor. */
void fisslock_switch_gone(void *host, unsigned rack, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    (void)rack;
    e.h->deaf = e.h->rules.life;
}

void fisslock_host_grow(void *host, uint64_t locks, struct outbox *out)
{
    struct fisslock_host *h = host;
    if (locks <= h->config.locks)
        return;
    outbox_touch(out, &h->config, sizeof h->config);
    outbox_touch(out, &h->rules, sizeof h->rules);
    h->config.locks = h->rules.locks = locks;
}

void fisslock_rouse(void *host, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    if (e.h->config.lease_ns)
        lease_due(&e);
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
