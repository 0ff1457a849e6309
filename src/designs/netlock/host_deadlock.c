/* SPDX-License-Identifier: Apache-2.0 */
/* The host's part in finding deadlocks: only the host knows whether a request of its own waits or holds. */
#include "designs/netlock/deadlock.h"
#include "designs/netlock/host.h"

#include <errno.h>

/* A request that was sent five times has waited for CHASE_PROBE_FACTOR retry times when it is sent next. */
#define SENT_LONG (REQUEST_BEFORE_BACKOFF + 2u)
static_assert(1u << (SENT_LONG - REQUEST_BEFORE_BACKOFF) == CHASE_PROBE_FACTOR, "as the factor says");

struct event {
    struct requests *h;
    uint64_t now;
    struct outbox *out;
};

uint64_t host_deadlock_bytes(const struct rack_config *c)
{
    return (uint64_t)rack_requests(c) * sizeof(struct suspect);
}

void netlock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    assert(request < rack_requests(&h->config));
    if (request_at(h, request)->thread == thread)
        return;
    outbox_touch(out, request_at(h, request), sizeof(struct request));
    request_at(h, request)->thread = thread;
}

/* ---- what the chase asks ---- */

/* Requests as the chase numbers them: through all parts of a host of several switches. */
static struct requests *part_of(const struct event *e, uint32_t request)
{
    uint32_t part = request / rack_requests(&e->h->config);
    return (struct requests *)(void *)((char *)e->h - e->h->config.rack * e->h->part_bytes + part * e->h->part_bytes);
}

static struct request *request_of(const struct event *e, uint32_t request)
{
    return request_at(part_of(e, request), request % rack_requests(&e->h->config));
}

static uint32_t chase_number(const struct requests *h, uint32_t request)
{
    return h->config.rack * rack_requests(&h->config) + request;
}

static bool upgrades(const struct request *r)
{
    return r->state == REQUEST_CONVERTING && r->want == NETLOCK_EXCLUSIVE;
}

static bool waits(const struct request *r)
{
    return (r->state == REQUEST_ASKING && !r->try) || upgrades(r);
}

static struct suspect *suspect_of(void *ctx, uint32_t request)
{
    struct requests *h = part_of(ctx, request);
    return (struct suspect *)(void *)((char *)h + host_suspects_at(&h->config)) + request % rack_requests(&h->config);
}

/* A wait has a name that is used once: an upgrade has one of its own. */
static struct chase_step wait_of(void *ctx, uint32_t request)
{
    const struct request *r = request_of(ctx, request);
    uint64_t name = upgrades(r) ? suspect_of(ctx, request)->upgrade : r->nonce;
    return (struct chase_step){.id = waits(r) ? name : 0, .term = part_of(ctx, request)->config.rack};
}

void host_deadlock_upgrade(struct requests *h, const struct request *r, struct outbox *out)
{
    struct suspect *s = (struct suspect *)(void *)((char *)h + host_suspects_at(&h->config)) + request_number(h, r);
    outbox_touch(out, s, sizeof *s);
    s->upgrade = request_fresh_nonce(h, &host_ops, r);
}

static bool holds(void *ctx, uint32_t request)
{
    return request_held(request_of(ctx, request));
}

static uint32_t thread_of(void *ctx, uint32_t request)
{
    return request_of(ctx, request)->thread;
}

static void look(void *ctx, uint32_t request, const struct chase_probe *probe)
{
    const struct event *e = ctx;
    const struct request *r = request_of(e, request); /* of this part: see host_deadlock_chase() */
    uint32_t more = (uint32_t)(probe->way.count * sizeof probe->way.step[0]);
    struct netlock_packet *p = host_packet(e->h, GRANTER_SWITCH, NETLOCK_PROBE, more, e->out);
    if (!p)
        return;
    p->head.index = r->index;
    p->head.nonce = r->nonce;
    p->client = p->head.from;
    p->mode = r->want;
    p->flags = probe->sure ? NETLOCK_SURE : 0;
    p->ticket = probe->serial;
    p->room = probe->at;
    p->count = probe->way.count;
    memcpy(p + 1, probe->way.step, more);
}

static void give_up(void *ctx, uint32_t request)
{
    const struct event *e = ctx;
    uint32_t number = request % rack_requests(&e->h->config);
    e->h->busy.deadlocks++;
    if (netlock_give_up(e->h, number, -EDEADLK, e->now, e->out) == PACKET_DONE)
        outbox_wake(e->out, number); /* else when it is known what its data server has done */
}

static struct chase chase_of(struct event *e)
{
    static const struct chase_ops ops = {wait_of, holds, thread_of, suspect_of, look, give_up};
    struct requests *h = e->h;
    return (struct chase){.ops = &ops,
                          .ctx = e,
                          .out = e->out,
                          .drops = &h->busy.drops,
                          .probes = &h->busy.probes,
                          .now = e->now,
                          .retry_ns = h->config.retry_ns,
                          .requests = h->config.requests,
                          .part = rack_requests(&h->config),
                          .parts = (uint16_t)max_u64(h->config.racks, 1),
                          .machine = h->machine,
                          .crowd = MISTAKE(h->config.mistakes, NETLOCK_MISTAKE_CROWD)};
}

void host_deadlock_due(struct requests *h, const struct request *r, uint64_t now, struct outbox *out)
{
    struct event e = {h, now, out};
    const struct chase c = chase_of(&e);
    if (waits(r) && r->sent >= SENT_LONG && !netlock_is_chain(&h->config))
        chase_begin(&c, chase_number(h, request_number(h, r)));
}

/* ---- one of its own is in the way ---- */

/* A request that has ended waits in a queue: its ACQUIRE came late, when switch or server had lost their memory. It would be given
 * back when it is granted. Until then others wait behind it, perhaps in a cycle, which no probe finds, since it has no thread. So
 * it is taken out. */
static void end_late(const struct event *e, const struct netlock_packet *p, uint64_t nonce)
{
    struct netlock_packet *out =
        host_is_own_nonce(e->h, nonce) ? host_packet(e->h, GRANTER_SWITCH, NETLOCK_CANCEL, 0, e->out) : NULL;
    if (!out)
        return; /* the next probe comes here, too */
    out->head.index = p->head.index;
    out->head.nonce = nonce;
    out->mode = NETLOCK_EXCLUSIVE; /* only a waiting writer blocks other waiters */
}

/* The request that waits there; CHASE_NONE: none, or it is not in the way any more. */
static uint32_t next_wait(const struct chase *c, struct requests *h, const struct netlock_packet *p, const struct chase_step *s)
{
    bool stale = MISTAKE(h->config.mistakes, NETLOCK_MISTAKE_STALE);
    uint32_t number = netlock_request_of(s->id);
    if (number >= rack_requests(&h->config))
        return CHASE_NONE;
    const struct request *r = request_at(h, number);
    bool known = r->nonce == s->id && r->index == p->head.index;
    if (stale && !known)
        return chase_wait_behind(c, chase_number(h, number));
    bool over = netlock_newer(r->nonce, s->id) || (r->nonce == s->id && r->state == REQUEST_IDLE);
    if (over && s->kind == CHASE_QUEUED)
        end_late(c->ctx, p, s->id);
    if (!known)
        return CHASE_NONE;
    if (s->kind == CHASE_QUEUED)
        return p->mode == NETLOCK_SHARED && waits(r) && r->want == NETLOCK_EXCLUSIVE ? chase_number(h, number) : CHASE_NONE;
    bool excludes = p->mode == NETLOCK_EXCLUSIVE || r->mode == NETLOCK_EXCLUSIVE || s->kind == CHASE_AHEAD;
    return (request_held(r) && excludes) || stale ? chase_wait_behind(c, chase_number(h, number)) : CHASE_NONE;
}

void host_deadlock_chase(struct requests *h, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct event e = {h, now, out};
    const struct chase c = chase_of(&e);
    struct chase_probe probe;
    if (!deadlock_read(&h->config, p, len, &probe) || !chase_is_for(&c, &probe)) {
        h->busy.drops.bad++;
        return;
    }
    uint32_t request = next_wait(&c, h, p, &probe.way.step[probe.at]);
    if (request == CHASE_NONE)
        return;
    struct event there = {part_of(&e, request), now, out};
    const struct chase go = chase_of(&there);
    requests_touch(there.h, out);
    chase_go_on(&go, request, &probe);
}
