/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/requests.h"

#include <errno.h>

static uint64_t held_bytes(const struct rack_config *c, unsigned granters)
{
    return round_up((uint64_t)c->sessions * granters * sizeof(uint32_t), CACHE_LINE);
}

uint64_t requests_bytes(const struct rack_config *c, unsigned granters)
{
    return round_up(sizeof(struct requests), CACHE_LINE) + held_bytes(c, granters) + round_up((uint64_t)c->sessions, CACHE_LINE) +
           (uint64_t)rack_requests(c) * sizeof(struct request);
}

void requests_init(struct requests *t, const struct rack_config *c, unsigned granters, uint16_t machine, uint32_t life)
{
    assert(c->servers && c->servers <= RACK_SERVERS_MAX && granters <= GRANTERS_MAX);
    t->config = *c;
    t->machine = machine;
    t->life = life;
    t->granters = (uint16_t)granters;
    t->held_at = round_up(sizeof *t, CACHE_LINE);
    t->lost_at = t->held_at + held_bytes(c, granters);
    t->requests_at = t->lost_at + round_up((uint64_t)c->sessions, CACHE_LINE);
}

/* ---- what is asked of a design ---- */

struct packet_drops requests_drops(const void *host)
{
    return ((const struct requests *)host)->busy.drops;
}

int requests_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    const struct request *r = request_at(host, request);
    if (r->result == -EINPROGRESS)
        return -EINPROGRESS;
    *out = (struct packet_answer){.result = r->result, .mode = (enum pawl_mode)r->mode, .token = r->token};
    return 0;
}

bool requests_idle(const void *host, uint32_t request)
{
    return request_at(host, request)->state == REQUEST_IDLE;
}

bool requests_hold(const void *host, uint32_t request)
{
    return request_held(request_at(host, request));
}

bool requests_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    const struct request *r = request_at(host, request);
    bool held = request_held(r);
    *out = (struct packet_claim){.index = r->index,
                                 .token = held ? r->token : 0,
                                 .mode = (enum pawl_mode)(held ? r->mode : r->want),
                                 .generation = r->generation,
                                 .limit = r->limit,
                                 .holds = held};
    return held || r->state == REQUEST_ASKING;
}

/* Requests that wait for an answer are in a list; those that hold are in sessions that have something from a granter. */
void requests_grow(void *host, uint64_t locks, struct outbox *out)
{
    struct requests *h = host;
    if (locks <= h->config.locks)
        return;
    outbox_touch(out, &h->config, sizeof h->config);
    h->config.locks = locks;
}

bool requests_use(void *host, uint64_t index, uint64_t now, struct outbox *out)
{
    const struct requests *t = host;
    (void)now;
    (void)out;
    for (uint32_t i = t->busy.pending; i; i = request_at(t, i - 1)->next)
        if (request_at(t, i - 1)->index == index)
            return true;
    for (uint32_t s = 0; s < t->config.sessions; s++) {
        uint32_t held = 0;
        for (unsigned g = 0; g < t->granters; g++)
            held += *request_held_count(t, s, g);
        for (uint32_t i = s * t->config.requests; held && i < (s + 1) * t->config.requests; i++)
            if (request_at(t, i)->index == index && request_at(t, i)->state != REQUEST_IDLE)
                return true;
    }
    return false;
}

void request_hand_over(struct requests *t, struct request *r, unsigned granter, struct outbox *out)
{
    uint32_t *before = request_held_count(t, request_session(t, r), r->granter);
    uint32_t *after = request_held_count(t, request_session(t, r), granter);
    assert(request_held(r) && *before);
    outbox_touch(out, before, sizeof *before);
    outbox_touch(out, after, sizeof *after);
    outbox_touch(out, r, sizeof *r);
    --*before;
    ++*after;
    r->granter = (uint16_t)granter;
}

void request_set_lost(struct requests *t, uint32_t session, bool lost, struct outbox *out)
{
    uint8_t *at = (uint8_t *)t + t->lost_at + session;
    outbox_touch(out, at, 1);
    *at = lost;
}

/* ---- those that wait for an answer ---- */

static void enlist(struct requests *t, struct request *r, struct outbox *out)
{
    r->prev = 0;
    r->next = t->busy.pending;
    if (r->next) {
        struct request *next = request_at(t, r->next - 1);
        outbox_touch(out, next, sizeof *next);
        next->prev = request_number(t, r) + 1;
    }
    t->busy.pending = request_number(t, r) + 1;
}

static void delist(struct requests *t, struct request *r, struct outbox *out)
{
    if (r->prev) {
        struct request *prev = request_at(t, r->prev - 1);
        outbox_touch(out, prev, sizeof *prev);
        prev->next = r->next;
    } else {
        t->busy.pending = r->next;
    }
    if (r->next) {
        struct request *next = request_at(t, r->next - 1);
        outbox_touch(out, next, sizeof *next);
        next->prev = r->prev;
    }
    r->next = r->prev = 0;
}

void request_become(struct requests *t, struct request *r, enum request_state state, struct outbox *out)
{
    bool pended = r->state != REQUEST_IDLE && r->state != REQUEST_HELD, held = request_held(r);
    bool pends = state != REQUEST_IDLE && state != REQUEST_HELD;
    outbox_touch(out, r, sizeof *r);
    r->state = (uint8_t)state;
    if (pended && !pends)
        delist(t, r, out);
    if (!pended && pends)
        enlist(t, r, out);
    if (held != request_held(r)) {
        uint32_t *count = request_held_count(t, request_session(t, r), r->granter);
        outbox_touch(out, count, sizeof *count);
        assert(!held || *count);
        *count += held ? UINT32_MAX : 1;
    }
    r->sent = 0;
}
