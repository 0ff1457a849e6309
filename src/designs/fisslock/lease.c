/* A host's lease at the decider. While it runs, what the host's requests hold is theirs, and its agents may grant. The host counts
 * from when it asked, the decider from when it heard, so the host knows first that it is over. Then others may take over whatever
 * names this host (5.3), and the host starts anew: its agents are gone, who held has lost it, who waits asks again under another
 * name. */
#include "designs/fisslock/pool.h"

#define LEASE_SHARE 4            /* renewed that often before it ends */
#define LEASE_DRIFT_DIVISOR 5000 /* clocks run at the same speed to one part in 10,000 (docs/invariants.md), each */

bool lease_runs(const struct fisslock_host *h, uint64_t now)
{
    return !h->config.lease_ns || now < h->lease_until || host_is(h, FISSLOCK_BUSTED_LEASE);
}

static void lose(struct event *e, struct request *r)
{
    struct fisslock_host *h = e->h;
    switch (r->state) {
    case REQUEST_HELD:
    case REQUEST_UPGRADING:
        edit(e, host_session(h, request_number(h, r)));
        host_session(h, request_number(h, r))->lost = true;
        request_end(e, r, -PAWL_ELOST);
        break;
    case REQUEST_RELEASING:
        request_end(e, r, 0);
        break;
    case REQUEST_WAITING:
        edit(e, r);
        r->nonce = pool_nonce(e, request_number(h, r));
        r->floored = r->barred = false;
        break;
    default:
        break;
    }
}

void lease_lapse(struct event *e)
{
    struct fisslock_host *h = e->h;
    h->lease_until = 0;
    h->reborn = true;
    h->counts.lapses++;
    edit(e, &h->census);
    h->census.id = 0;
    outbox_touch(e->out, h->ends, sizeof h->ends);
    for (unsigned i = 0; i < ENDS; i++)
        h->ends[i]++; /* what was proven before is not now */
    outbox_touch(e->out, h->takes, sizeof h->takes);
    memset(h->takes, 0, sizeof h->takes);
    for (uint32_t i = 0; i < h->agents_touched && h->agents_used; i++)
        if (host_agent(h, i)->state != AGENT_NONE)
            pool_agent_free(e, host_agent(h, i));
    for (uint32_t i = 0; i < h->request_count; i++)
        lose(e, host_request(h, i));
}

void lease_due(struct event *e)
{
    struct fisslock_host *h = e->h;
    bool runs = h->lease_until > e->now;
    struct fission_packet *p = pool_packet(e, FISSION_LEASE, 0, 0, 0);
    if (p)
        p->token = e->now;
    timers_set(host_timers(h), timer_of_lease(h), e->now + (runs ? h->config.lease_ns / LEASE_SHARE : 4 * h->config.retry_ns),
               e->out);
}

void lease_packet(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    if (p->head.epoch < h->rules.epoch) {
        h->drops.stale++;
        return;
    }
    if (p->head.epoch > h->rules.epoch) { /* a decider that knows nothing: what its former life granted is over */
        if (h->lease_until)
            lease_lapse(e);
        edit(e, &h->rules);
        h->rules.epoch = p->head.epoch;
    }
    uint64_t margin = h->config.lease_ns / LEASE_DRIFT_DIVISOR + 1, until = p->token + h->config.lease_ns - margin;
    if (p->token > e->now || until <= e->now || until <= h->lease_until) {
        h->drops.stale++;
        return;
    }
    bool first = !h->lease_until;
    h->lease_until = until;
    for (uint32_t i = 0; first && i < h->request_count; i++)
        if (host_request(h, i)->state == REQUEST_WAITING)
            request_due(e, host_request(h, i));
    timers_set(host_timers(h), timer_of_lease(h), p->token + h->config.lease_ns / LEASE_SHARE, e->out);
}
