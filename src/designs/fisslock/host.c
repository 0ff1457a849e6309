/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock as a packet design: where packets and timers go. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"
#include "designs/fisslock/spill.h"

uint64_t fisslock_host_bytes(const struct rack_config *config)
{
    return pool_bytes(config);
}

void fisslock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    pool_init(host, config, machine, life);
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
        fault = FISSION_STALE; /* whatever it is, it must not be believed */
    if (fault != FISSION_FINE) {
        ++*(fault == FISSION_BAD ? &h->drops.bad : fault == FISSION_ALIEN ? &h->drops.alien : &h->drops.stale);
        return;
    }
    switch (p->head.type) {
    case FISSION_ACQUIRE:
    case FISSION_RELEASE:
    case FISSION_LOOK:
    case FISSION_TAKE:
        forward_packet(&e, p);
        break;
    case FISSION_GRANT:
        if (p->flags & FISSION_AGENT)
            tenure_grant(&e, p);
        else
            request_packet(&e, p);
        break;
    case FISSION_LEASE:
        lease_packet(&e, p);
        break;
    case FISSION_REPORT:
        report_packet(&e, p);
        break;
    case FISSION_FREE:
        tenure_answer(&e, p);
        break;
    case FISSION_ACK:
        if (p->flags & FISSION_AGENT)
            tenure_ack(&e, p);
        else
            request_packet(&e, p);
        break;
    case FISSION_REFUSED:
        request_packet(&e, p);
        break;
    case FISSION_CENSUS:
    case FISSION_ANSWER:
        census_packet(&e, p);
        break;
    case FISSION_PROBE:
        deadlock_probe(&e, p);
        break;
    case FISSION_CHASE:
        deadlock_chase(&e, p);
        break;
    default: /* FLAGS end at the decider */
        h->drops.bad++;
        break;
    }
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

void fisslock_rouse(void *host, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    if (e.h->config.lease_ns)
        lease_due(&e);
}

uint64_t fisslock_expiry(const void *host, uint32_t session)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    const struct session_state *s = host_session(h, session * h->config.requests);
    if (s->lost)
        return 0;
    return s->held && h->config.lease_ns && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_LEASE) ? h->lease_until : UINT64_MAX;
}

const struct packet_drops *fisslock_host_drops(const void *host)
{
    return &((const struct fisslock_host *)host)->drops;
}

struct packet_grants fisslock_host_grants(const void *host)
{
    const struct fisslock_counts *c = fisslock_counts(host);
    return (struct packet_grants){.by_switch = c->by_switch, .by_agent = c->by_agent, .local = c->local};
}

const struct fisslock_counts *fisslock_counts(const void *host)
{
    return &((const struct fisslock_host *)host)->counts;
}

const struct packet_design fisslock_packets = {FISSLOCK_PACKETS, .draws = FISSLOCK_DRAWS | FISSLOCK_RESTLESS};
