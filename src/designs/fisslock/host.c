/* FissLock as a packet design: where packets and timers go. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"

static void host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    pool_init(host, config, machine, life);
}

static void host_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = {h, now, out};
    const struct fission_packet *p = data;
    enum fission_fault fault = fission_verify(data, len, &h->rules);
    if (fault == FISSION_FINE && p->head.to.machine != h->machine)
        fault = FISSION_ALIEN;
    if (fault != FISSION_FINE) {
        ++*(fault == FISSION_BAD ? &h->drops.bad : fault == FISSION_ALIEN ? &h->drops.alien : &h->drops.stale);
        return;
    }
    switch (p->head.type) {
    case FISSION_ACQUIRE:
    case FISSION_RELEASE:
    case FISSION_LOOK:
        forward_packet(&e, p);
        break;
    case FISSION_GRANT:
        if (p->flags & FISSION_AGENT)
            tenure_grant(&e, p);
        else
            request_packet(&e, p);
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
    default: /* FLAGS end at the decider */
        h->drops.bad++;
        break;
    }
}

static uint64_t host_tick(void *host, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = {h, now, out};
    uint32_t timer;
    while (out->packets < OUTBOX_PACKETS / 2 && timers_pop(host_timers(h), now, &timer)) {
        if (timer < h->request_count)
            request_due(&e, host_request(h, timer));
        else if (timer < h->request_count + h->agent_count)
            agent_due(&e, host_agent(h, timer - h->request_count));
        else
            census_due(&e);
    }
    return timers_next(host_timers(h));
}

static uint64_t host_expiry(const void *host, uint32_t session)
{
    return UINT64_MAX;
}

static const struct packet_drops *host_drops(const void *host)
{
    return &((const struct fisslock_host *)host)->drops;
}

const struct fisslock_counts *fisslock_counts(const void *host)
{
    return &((const struct fisslock_host *)host)->counts;
}

const struct packet_design fisslock_packets = {
    .family = PACKET_FISSION,
    .host_bytes = pool_bytes,
    .host_init = host_init,
    .acquire = fisslock_acquire,
    .convert = fisslock_convert,
    .give_up = fisslock_give_up,
    .release = fisslock_release,
    .outcome = fisslock_outcome,
    .idle = fisslock_idle,
    .holds = fisslock_holds,
    .packet = host_packet,
    .tick = host_tick,
    .expiry = host_expiry,
    .session_dead = fisslock_session_dead,
    .host_drops = host_drops,
    .switch_bytes = fisslock_switch_bytes,
    .switch_init = fisslock_switch_init,
    .switch_packet = fisslock_switch_packet,
};
