/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side: its sessions' requests, sent again until they are answered, and its leases at the servers. */
#include "designs/packet/requests.h"
#include "designs/srvlock/srvlock.h"

#include <errno.h>

uint64_t srv_host_bytes(const struct rack_config *c)
{
    return requests_bytes(c, c->servers);
}

void srv_host_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    (void)now;
    assert(rack_requests(config) <= 1u << SRV_SLOT_BITS);
    requests_init(memory, config, config->servers, machine, life);
}

static uint64_t fresh_nonce(struct requests *h, const struct request *r)
{
    return ++h->busy.serial << SRV_SLOT_BITS | request_number(h, r);
}

/* ---- sending ---- */

static struct srv_packet *packet_to(struct requests *h, unsigned server, enum srv_type type, struct outbox *out)
{
    struct srv_packet *p = outbox_add(out, sizeof *p);
    if (!p)
        return NULL;
    p->head = (struct packet_head){.version = PACKET_VERSION,
                                   .head_len = sizeof p->head,
                                   .family = PACKET_SERVER,
                                   .type = (uint8_t)type,
                                   .space = h->config.space,
                                   .epoch = h->life,
                                   .from = {h->machine, PORT_POOL},
                                   .to = {h->config.server[server], PORT_SERVER}};
    return p;
}

static enum srv_type type_of(const struct request *r)
{
    static const uint8_t types[] = {[REQUEST_ASKING] = SRV_ACQUIRE,
                                    [REQUEST_CONVERTING] = SRV_CONVERT,
                                    [REQUEST_STAYING] = SRV_STAY,
                                    [REQUEST_RELEASING] = SRV_RELEASE};
    return (enum srv_type)types[r->state];
}

/* What the request's state has to say to the server; and when again, should no answer come. */
static void say(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    unsigned server = r->granter;
    request_pause(h, r, now, out);
    if (r->state == REQUEST_ASKING && h->leases[server].until_ns <= now)
        return; /* nothing is granted without a lease: said when there is one */
    struct srv_packet *p = packet_to(h, server, type_of(r), out);
    if (!p) {
        r->next_ns = now; /* the next tick has room */
        return;
    }
    p->head.index = r->index;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->step = r->step;
    p->mode = r->want;
    p->flags = r->try ? SRV_TRY : 0;
    request_count(r);
}

static void leave(struct requests *h, struct request *r, int result, uint64_t now, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->result = result;
    request_become(h, r, REQUEST_RELEASING, out);
    say(h, r, now, out);
}

/* ---- leases ---- */

/* The lease at a server is over, or the server has forgotten everything: what is held there is not any more, and who waits there
 * asks anew, so that no late grant is taken for an answer. */
static void lapse(struct requests *h, unsigned server, uint64_t now, struct outbox *out)
{
    outbox_touch(out, &h->leases[server], sizeof h->leases[server]);
    h->leases[server].until_ns = 0;
    for (uint32_t i = 0; i < rack_requests(&h->config); i++) {
        struct request *r = request_at(h, i);
        if (r->state == REQUEST_IDLE || r->granter != server)
            continue;
        if (request_held(r)) {
            request_set_lost(h, request_session(h, r), true, out);
            leave(h, r, -PAWL_ELOST, now, out);
            outbox_wake(out, i);
        } else if (r->state == REQUEST_ASKING) {
            outbox_touch(out, r, sizeof *r);
            r->nonce = fresh_nonce(h, r);
            r->sent = 0;
        }
    }
}

static void look_at_lease(struct requests *h, unsigned server, uint64_t now, struct outbox *out)
{
    const struct lease *l = &h->leases[server];
    if (l->until_ns && l->until_ns <= now && !MISTAKE(h->config.mistakes, SRV_MISTAKE_NO_LAPSE))
        lapse(h, server, now, out);
}

static void ask_for_lease(struct requests *h, unsigned server, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[server];
    struct srv_packet *p = packet_to(h, server, SRV_LEASE, out);
    outbox_touch(out, l, sizeof *l);
    l->next_ns = p ? now + (l->until_ns > now ? h->config.lease_ns / SRV_LEASE_SHARE : h->config.retry_ns * 4) : now;
    if (p)
        p->stamp = now;
}

static void on_leased(struct requests *h, unsigned server, uint64_t stamp, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[server];
    uint64_t margin = 2 * (h->config.lease_ns / SRV_DRIFT_DIVISOR) + 1;
    uint64_t until = stamp + h->config.lease_ns - margin;
    if (stamp > now || until <= now || until <= l->until_ns) {
        h->busy.drops.stale++;
        return;
    }
    bool first = !l->until_ns;
    outbox_touch(out, l, sizeof *l);
    l->until_ns = until;
    l->next_ns = min_u64(l->next_ns, stamp + h->config.lease_ns / SRV_LEASE_SHARE);
    for (uint32_t i = first ? h->busy.pending : 0; i;) { /* who waited for a lease goes ahead */
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (r->state == REQUEST_ASKING && r->granter == server)
            say(h, r, now, out);
    }
}

/* ---- calls ---- */

int srv_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, ask->request);
    assert(ask->request < rack_requests(&h->config) && r->state == REQUEST_IDLE);
    if (ask->index >= h->config.locks)
        return -EINVAL;
    requests_touch(h, out);
    look_at_lease(h, srv_of(&h->config, ask->index), now, out);
    if (request_lost(h, request_session(h, r)))
        return -PAWL_ELOST;
    outbox_touch(out, r, sizeof *r);
    *r = (struct request){.nonce = fresh_nonce(h, r),
                          .index = ask->index,
                          .since_ns = now,
                          .result = -EINPROGRESS,
                          .port = ask->port,
                          .granter = (uint16_t)srv_of(&h->config, ask->index),
                          .want = (uint8_t)ask->mode,
                          .try = ask->try};
    request_become(h, r, REQUEST_ASKING, out);
    say(h, r, now, out);
    return PACKET_WAIT;
}

int srv_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    look_at_lease(h, r->granter, now, out);
    if (request_lost(h, request_session(h, r)))
        return -PAWL_ELOST;
    if (r->state != REQUEST_HELD)
        return -PAWL_ENOTOWNER;
    outbox_touch(out, r, sizeof *r);
    r->step++;
    r->want = (uint8_t)mode;
    r->result = -EINPROGRESS;
    request_become(h, r, REQUEST_CONVERTING, out);
    say(h, r, now, out);
    return PACKET_WAIT;
}

int srv_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    if (r->state == REQUEST_ASKING) {
        leave(h, r, why, now, out);
    } else if (r->state == REQUEST_CONVERTING && r->want == PAWL_EXCLUSIVE) { /* to weaken always works, once it is heard */
        outbox_touch(out, r, sizeof *r);
        r->why = why;
        request_become(h, r, REQUEST_STAYING, out);
        say(h, r, now, out);
    }
    return r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING ? PACKET_WAIT : PACKET_DONE;
}

int srv_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    look_at_lease(h, r->granter, now, out);
    if (r->state != REQUEST_HELD)
        return request_lost(h, request_session(h, r)) ? -PAWL_ELOST : -PAWL_ENOTOWNER;
    leave(h, r, -PAWL_ENOTOWNER, now, out);
    return 0;
}

uint64_t srv_expiry(const void *host, uint32_t session)
{
    const struct requests *h = host;
    uint64_t until = requests_expiry(h, session);
    return until && MISTAKE(h->config.mistakes, SRV_MISTAKE_NO_LAPSE) ? UINT64_MAX : until;
}

void srv_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    requests_touch(h, out);
    for (uint32_t i = 0; i < h->config.requests; i++) {
        struct request *r = request_at(h, session * h->config.requests + i);
        if (r->state == REQUEST_IDLE)
            continue;
        outbox_touch(out, r, sizeof *r);
        r->port = PORT_POOL; /* nobody listens at its own any more */
        if (r->state == REQUEST_RELEASING)
            continue;
        leave(h, r, -PAWL_ELOST, now, out);
        outbox_wake(out, request_number(h, r));
    }
    request_set_lost(h, session, false, out);
}

/* ---- packets ---- */

static void on_grant(struct requests *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    bool asked = r->state == REQUEST_ASKING && !p->step;
    bool converted = (r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step;
    if ((!asked && !converted) || p->mode != r->want) {
        h->busy.drops.stale++;
        return;
    }
    outbox_touch(out, r, sizeof *r);
    r->token = p->token;
    r->mode = p->mode;
    request_become(h, r, REQUEST_HELD, out);
    request_settle(h, r, 0, out);
}

static void on_refused(struct requests *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    if (r->state == REQUEST_ASKING && !p->step && r->try) {
        request_become(h, r, REQUEST_IDLE, out);
        request_settle(h, r, -(int)p->code, out);
    } else if ((r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step) {
        int why = r->state == REQUEST_STAYING ? r->why : -(int)p->code;
        request_become(h, r, REQUEST_HELD, out);
        request_settle(h, r, why, out);
    } else {
        h->busy.drops.stale++;
    }
}

static void on_answer(struct requests *h, struct request *r, const struct srv_packet *p, uint64_t now, struct outbox *out)
{
    switch ((enum srv_type)p->head.type) {
    case SRV_GRANT:
        on_grant(h, r, p, out);
        break;
    case SRV_REFUSED:
        on_refused(h, r, p, out);
        break;
    case SRV_QUEUED: /* asks again now and then, should the grant get lost */
        outbox_touch(out, r, sizeof *r);
        r->sent = (uint8_t)(r->sent > REQUEST_SHOUTS + 2 ? r->sent : REQUEST_SHOUTS + 2);
        r->next_ns = max_u64(r->next_ns, now + (h->config.retry_ns << 2));
        break;
    case SRV_RELEASED:
        if (r->state == REQUEST_RELEASING)
            request_become(h, r, REQUEST_IDLE, out);
        else
            h->busy.drops.stale++;
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* The number of the server that sent it. */
static bool sender(struct requests *h, const struct packet_head *p, unsigned *server)
{
    for (*server = 0; *server < h->config.servers; ++*server)
        if (h->config.server[*server] == p->from.machine && p->from.port == PORT_SERVER)
            return true;
    h->busy.drops.alien++;
    return false;
}

void srv_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    requests_touch(h, out);
    const struct packet_head *head = packet_check(data, len, PACKET_SERVER, &h->config, &h->busy.drops);
    const struct srv_packet *p = data;
    unsigned server;
    if (!head || !sender(h, head, &server))
        return;
    if (len != sizeof *p || head->to.machine != h->machine) {
        h->busy.drops.bad++;
        return;
    }
    struct lease *l = &h->leases[server];
    look_at_lease(h, server, now, out);
    if (head->epoch < l->life) {
        h->busy.drops.stale++;
        return;
    }
    if (head->epoch > l->life) {
        if (l->life)
            lapse(h, server, now, out);
        outbox_touch(out, l, sizeof *l);
        l->life = head->epoch;
    }
    if (head->type == SRV_LEASED) {
        on_leased(h, server, p->stamp, now, out);
        return;
    }
    uint32_t slot = srv_slot(head->nonce);
    if (slot >= rack_requests(&h->config)) {
        h->busy.drops.bad++;
        return;
    }
    struct request *r = request_at(h, slot);
    if (r->state == REQUEST_IDLE || (r->nonce != head->nonce && !MISTAKE(h->config.mistakes, SRV_MISTAKE_NO_NONCE)) ||
        r->index != head->index) {
        h->busy.drops.stale++;
        return;
    }
    on_answer(h, r, p, now, out);
}

/* ---- time ---- */

uint64_t srv_tick(void *host, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    uint64_t next = UINT64_MAX;
    requests_touch(h, out);
    for (unsigned s = 0; s < h->config.servers; s++) {
        look_at_lease(h, s, now, out);
        if (h->leases[s].next_ns <= now)
            ask_for_lease(h, s, now, out);
        next = min_u64(next, h->leases[s].next_ns);
        if (h->leases[s].until_ns > now)
            next = min_u64(next, h->leases[s].until_ns);
    }
    for (uint32_t i = h->busy.pending; i;) {
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (request_vain(h, r, now)) {
            leave(h, r, -EAGAIN, now, out); /* nobody there who could say whether it is held */
            outbox_wake(out, request_number(h, r));
        } else if (r->next_ns <= now) {
            say(h, r, now, out);
        }
        next = min_u64(next, r->next_ns);
    }
    return next;
}
