/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlocks: see designs/packet/chase.h. Here the queue of a lock is its agent's, and the term of the queue is the agent's tenure.
 * Whether a request holds, the second round asks its host directly, which knows more than the agent. A cycle may go through several
 * racks (racks.c): then a host has a part in each. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"

#include <errno.h>

static_assert(sizeof(struct chase_step) == sizeof(struct fission_entry), "counted alike");
static_assert(CHASE_STEPS_MAX <= FISSION_ENTRIES_MAX, "all fit");

/* ---- waits and holds ---- */

void fisslock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    assert(request < e.h->request_count);
    request_thread(&e, request, thread);
}

static uint8_t wanted(const struct fiss_request *r)
{
    return r->state == FISS_UPGRADING ? FISSION_EXCLUSIVE : r->mode;
}

/* A request for a place of a semaphore waits for any one of its holders, and not for all: it is part of no cycle. */
static bool waits(const struct fiss_request *r)
{
    return (r->state == FISS_WAITING && !r->try && !r->limit) || r->state == FISS_UPGRADING;
}

/* The chase numbers requests through all parts of the host. */
static struct fisslock_host *part_of(const struct event *e, uint32_t request)
{
    return host_part(e->h, request / e->h->request_count);
}

static struct fiss_request *request_of(const struct event *e, uint32_t request)
{
    return host_request(part_of(e, request), request % e->h->request_count);
}

static uint32_t chase_number(struct fisslock_host *h, const struct fiss_request *r)
{
    return h->config.rack * h->request_count + request_number(h, r);
}

static struct chase_step wait_of(void *ctx, uint32_t request)
{
    struct fisslock_host *h = part_of(ctx, request);
    const struct fiss_request *r = request_of(ctx, request);
    const struct suspect *s = host_suspect(h, r);
    bool upgrades = r->state == FISS_UPGRADING;
    if (!waits(r))
        return (struct chase_step){0};
    return (struct chase_step){.id = upgrades ? s->upgrade : r->nonce, .term = h->config.rack, .second = upgrades && s->second};
}

static bool holds(void *ctx, uint32_t request)
{
    struct fisslock_host *h = part_of(ctx, request);
    return fisslock_holds(h, request % h->request_count);
}

static uint32_t thread_of(void *ctx, uint32_t request)
{
    struct fisslock_host *h = part_of(ctx, request);
    return *host_thread(h, request % h->request_count);
}

static struct suspect *suspect_of(void *ctx, uint32_t request)
{
    return host_suspect(part_of(ctx, request), request_of(ctx, request));
}

/* ---- packets ---- */

static bool read_probe(struct event *e, const struct fission_packet *p, struct chase_probe *out)
{
    bool good = chase_read((const struct chase_step *)(const void *)(p + 1), p->count, e->h->config.machines, &out->way);
    out->at = p->hops;
    out->serial = p->stamp;
    out->sure = p->flags & FISSION_SURE;
    e->h->drops.bad += !good;
    return good;
}

static struct fission_packet *make(struct event *e, enum fission_type type, uint64_t index, uint64_t nonce,
                                   const struct chase_probe *probe)
{
    struct fission_packet *p = pool_packet(e, type, index, nonce, probe->way.count);
    if (!p)
        return NULL;
    p->stamp = probe->serial;
    p->hops = (uint8_t)probe->at;
    memcpy(p + 1, probe->way.step, probe->way.count * sizeof probe->way.step[0]);
    return p;
}

static void look(void *ctx, uint32_t request, const struct chase_probe *probe)
{
    struct event *e = ctx;
    const struct fiss_request *r = request_of(e, request); /* of this part: see deadlock_chase() */
    bool direct = probe->sure && probe->way.step[probe->at].kind == CHASE_HOLD;
    struct fission_packet *p = make(e, direct ? FISSION_CHASE : FISSION_PROBE, r->index, r->nonce, probe);
    if (!p)
        return;
    p->client = (struct place){e->h->machine, PORT_POOL};
    p->mode = wanted(r);
    p->flags = (uint16_t)((probe->sure ? FISSION_SURE : 0) | (r->state == FISS_UPGRADING ? FISSION_UPGRADE : 0));
    if (direct)
        p->head.to = (struct place){probe->way.step[probe->at].machine, PORT_POOL};
}

/* ---- how a chase begins and ends ---- */

static void give_up(void *ctx, uint32_t request)
{
    struct event *e = ctx;
    assert(waits(request_of(e, request))); /* I13: the victim waits */
    e->h->counts.deadlocks++;
    fisslock_give_up(e->h, request % e->h->request_count, -EDEADLK, e->now, e->out);
}

static struct chase chase_of(struct event *e)
{
    static const struct chase_ops ops = {wait_of, holds, thread_of, suspect_of, look, give_up};
    struct fisslock_host *h = e->h;
    return (struct chase){.ops = &ops,
                          .ctx = e,
                          .out = e->out,
                          .drops = &h->drops,
                          .probes = &h->counts.probes,
                          .now = e->now,
                          .retry_ns = h->config.retry_ns,
                          .requests = h->config.requests,
                          .part = h->request_count,
                          .parts = (uint16_t)host_parts(h),
                          .machine = h->machine,
                          .crowd = MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_CROWD),
                          .rash = MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_RASH)};
}

void deadlock_due(struct event *e, struct fiss_request *r)
{
    const struct chase c = chase_of(e);
    if (r->pause_ns >= CHASE_PROBE_FACTOR * e->h->config.retry_ns && waits(r))
        chase_begin(&c, chase_number(e->h, r));
}

void deadlock_upgrade(struct event *e, struct fiss_request *r)
{
    struct suspect *s = host_suspect(e->h, r);
    edit(e, s);
    s->upgrade = pool_nonce(e->h, request_number(e->h, r));
    s->second = false;
    s->began_ns = 0;
}

/* Two upgrades of one lock: the second is the victim, at once, if the chase confirms it. */
void deadlock_second(struct event *e, struct fiss_request *r)
{
    const struct chase c = chase_of(e);
    struct suspect *s = host_suspect(e->h, r);
    edit(e, s);
    s->second = true;
    chase_begin_soon(&c, chase_number(e->h, r));
}

/* ---- at the agent: which requests block the waiter? ---- */

static void add(struct chase_blockers *b, const struct agent *a, struct who who, enum chase_kind kind)
{
    chase_block(b, who.nonce, who.machine, a->term, kind);
}

static struct who who_is(const struct node *n)
{
    return (struct who){n->nonce, n->client.machine};
}

/* All holders but one, or the writers among them; beginning at another one every time, should there be too many. */
static void add_holders(struct chase_blockers *b, struct fisslock_host *h, const struct agent *a, struct who but, bool writers,
                        uint32_t turn)
{
    uint32_t skip = a->holders.count > CHASE_FANOUT_MAX ? turn * CHASE_FANOUT_MAX % a->holders.count : 0, i = a->holders.head;
    for (; skip; skip--)
        i = host_node(h, i)->next;
    for (uint32_t n = 0; n < a->holders.count; n++) {
        const struct node *node = host_node(h, i);
        if (!node_is(node, but) && (!writers || node->mode == FISSION_EXCLUSIVE))
            add(b, a, who_is(node), CHASE_HOLD);
        i = node->next == NONE ? a->holders.head : node->next;
    }
}

/* A reader that queues behind a writer. The first such writer stands for all: they wait for the same holders. */
static void add_queued(struct chase_blockers *b, const struct event *e, const struct agent *a, uint32_t reader)
{
    if (a->right == FISSION_SHARED && agent_open(e->h, a))
        return;
    if (a->upgrader.machine) {
        add(b, a, a->upgrader, CHASE_QUEUED);
        return;
    }
    for (uint32_t i = a->waiters.head; i != reader; i = host_node(e->h, i)->next)
        if (host_node(e->h, i)->mode == FISSION_EXCLUSIVE) {
            add(b, a, who_is(host_node(e->h, i)), CHASE_QUEUED);
            return;
        }
}

/* The holders block the waiter whether the agent knows the waiter or not: an upgrade of a hold from before the decider lost its
 * state may stay unknown to the agent until the other holders have gone. */
static void find_blockers(struct chase_blockers *b, const struct event *e, const struct agent *a, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct who who = {p->head.nonce, p->client.machine};
    bool reads = p->mode == FISSION_SHARED;
    uint32_t node = reads ? pool_list_find(h, &a->waiters, who) : NONE;
    if (node != NONE)
        add_queued(b, e, a, node);
    add_holders(b, h, a, who, reads, p->stamp);
}

void deadlock_probe(struct event *e, const struct fission_packet *p)
{
    const struct agent *a = pool_agent_of(e->h, p->head.index);
    struct chase_blockers found = {0};
    struct chase_probe probe;
    bool bad;
    if (!read_probe(e, p, &probe) || !a || a->state != AGENT_LIVE)
        return;
    if (!chase_turn(&probe, &bad)) {
        e->h->drops.bad += bad;
        return;
    }
    find_blockers(&found, e, a, p);
    for (unsigned i = 0; i < found.count; i++) {
        struct fission_packet *out =
            chase_take(&probe, &found.step[i]) ? make(e, FISSION_CHASE, p->head.index, p->head.nonce, &probe) : NULL;
        if (!out)
            continue;
        out->head.to = (struct place){found.step[i].machine, PORT_POOL};
        out->client = p->client;
        out->mode = p->mode;
        out->flags = p->flags;
    }
}

/* ---- at the host of a blocking request: does its thread wait, too? ---- */

/* The request for which that thread waits; CHASE_NONE: it does not wait, or does not block any more. */
static uint32_t next_wait(const struct chase *c, struct fisslock_host *h, const struct fission_packet *p,
                          const struct chase_step *s)
{
    bool stale = MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_STALE);
    struct fiss_request *r = pool_request_of(h, s->id);
    if (!r && stale && NONCE_REQUEST(s->id) < h->request_count)
        return chase_wait_behind(c, chase_number(h, host_request(h, NONCE_REQUEST(s->id))));
    if (!r || r->index != p->head.index)
        return CHASE_NONE;
    uint32_t number = chase_number(h, r);
    if (s->kind == CHASE_QUEUED)
        return p->mode == FISSION_SHARED && waits(r) && wanted(r) == FISSION_EXCLUSIVE ? number : CHASE_NONE;
    bool excludes = p->mode == FISSION_EXCLUSIVE || r->mode == FISSION_EXCLUSIVE;
    return (request_is_held(r) && excludes) || stale ? chase_wait_behind(c, number) : CHASE_NONE;
}

/* The agent takes the request for a waiter that must be served first, and it does not wait: a packet that said so was lost. */
static void not_waiting(struct event *e, uint64_t index, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(e->h, nonce);
    struct place client = {e->h->machine, PORT_POOL};
    if (!r)
        request_send_release(e, index, nonce, client, 0, 0, FISSION_DONE);
    else if (r->index == index && r->state == FISS_HELD)
        request_send_release(e, index, nonce, client, r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
}

void deadlock_ask(struct event *e, const struct fission_packet *p)
{
    const struct fiss_request *r = pool_request_of(e->h, p->head.nonce);
    if (!r || r->index != p->head.index || !waits(r))
        not_waiting(e, p->head.index, p->head.nonce);
}

void deadlock_chase(struct event *e, const struct fission_packet *p)
{
    const struct chase c = chase_of(e);
    struct chase_probe probe;
    if (!read_probe(e, p, &probe))
        return;
    if (!chase_is_for(&c, &probe)) {
        e->h->drops.bad++;
        return;
    }
    const struct chase_step *s = &probe.way.step[probe.at];
    uint32_t request = next_wait(&c, e->h, p, s);
    if (request == CHASE_NONE) {
        if (s->kind == CHASE_QUEUED)
            not_waiting(e, p->head.index, s->id);
        return;
    }
    struct fisslock_host *part = part_of(e, request);
    struct event there = part == e->h ? *e : event_begin(part, e->now, e->out);
    const struct chase go = chase_of(&there);
    if (wait_of(&there, request).id) /* else its lease in that part ended just now */
        chase_go_on(&go, request, &probe);
}
