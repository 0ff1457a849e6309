/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side: its sessions' requests, sent again until they are answered, and its leases at the servers. */
#include "designs/packet/granters.h"
#include "designs/srvlock/srvlock.h"

#include <errno.h>

static const struct granter_ops ops;

/* Serial numbers of a life begin elsewhere than those of the life before, so that late answers to that one mean nothing (I1). Above
 * them a bit is left for a life with more requests. */
#define SERIAL_LIFE_SHIFT 31
#define SERIAL_LIVES 4096u
static_assert(SERIAL_LIVES <= 1u << (64 - SRV_SLOT_BITS - SERIAL_LIFE_SHIFT - 1), "fits");

uint64_t srv_host_bytes(const struct rack_config *c)
{
    return requests_bytes(c, c->servers);
}

void srv_host_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct requests *h = memory; /* zeroed */
    (void)now;
    assert(rack_requests(config) <= 1u << SRV_SLOT_BITS);
    requests_init(h, config, config->servers, machine, life);
    h->busy.serial = (uint64_t)(life % SERIAL_LIVES) << SERIAL_LIFE_SHIFT;
}

/* ---- sending ---- */

static struct srv_packet *packet_to(struct requests *h, unsigned server, enum srv_type type, struct outbox *out)
{
    struct srv_packet *p = outbox_add(out, sizeof *p);
    if (p)
        srv_head(p, &h->config, type, h->life, (struct place){h->machine, PORT_POOL},
                 (struct place){h->config.server[server], PORT_SERVER});
    return p;
}

/* Sends the packet that the request's state demands, and sets the time to retransmit it. */
static void say(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    static const uint8_t types[] = {[REQUEST_ASKING] = SRV_ACQUIRE,
                                    [REQUEST_CONVERTING] = SRV_CONVERT,
                                    [REQUEST_STAYING] = SRV_STAY,
                                    [REQUEST_RELEASING] = SRV_RELEASE};
    request_pause(h, r, now, out);
    if (r->state == REQUEST_ASKING && h->leases[r->granter].until_ns <= now)
        return; /* nothing is granted without a lease: said when there is one */
    bool enters = r->state == REQUEST_ASKING && r->limit;
    struct srv_packet *p = packet_to(h, r->granter, enters ? SRV_ENTER : (enum srv_type)types[r->state], out);
    if (!p) {
        r->next_ns = now; /* the next tick has room */
        return;
    }
    p->head.index = r->index;
    p->head.generation = r->generation;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->step = r->step;
    p->mode = r->want;
    p->flags = r->try ? SRV_TRY : 0;
    p->code = enters ? r->limit : 0;
    p->stamp = h->leases[r->granter].life;
    request_count(r);
}

/* The server lost its memory: what it must know of a hold. A conversion under way is asked for again. One to shared may have been
 * granted, and others beside it. */
static bool report(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    (void)now;
    bool converts = r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING;
    struct srv_packet *p = packet_to(h, r->granter, SRV_REPORT, out);
    if (!p)
        return false;
    p->head.index = r->index;
    p->head.generation = r->generation;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->step = r->step - converts;
    p->mode = converts && r->want == PAWL_SHARED ? PAWL_SHARED : r->mode;
    p->code = MISTAKE(h->config.mistakes, SRV_MISTAKE_BLANK) ? 0 : r->limit;
    p->token = r->token;
    p->stamp = h->leases[r->granter].life;
    return true;
}

/* ---- leases ---- */

static void ask_anew(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    (void)now;
    request_rename(h, &ops, r, out);
}

static bool may_have(const struct requests *h, unsigned server, const struct request *r)
{
    (void)h;
    return r->granter == server;
}

static void leased(struct requests *h, unsigned server, struct request *r, uint64_t now, struct outbox *out)
{
    if (r->granter == server)
        say(h, r, now, out);
}

static void ask_for_lease(struct requests *h, unsigned server, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[server];
    struct srv_packet *p = packet_to(h, server, SRV_LEASE, out);
    outbox_touch(out, l, sizeof *l);
    l->next_ns = p ? now + (l->until_ns > now ? h->config.lease_ns / LEASE_SHARE : h->config.retry_ns * 4) : now;
    if (p)
        p->stamp = now;
}

void srv_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out)
{
    struct requests *h = host;
    unsigned server = rack_server_on(&h->config, machine);
    if (server < h->config.servers && !MISTAKE(h->config.mistakes, SRV_MISTAKE_CREDULOUS))
        granter_since(h, server, life, out);
}

/* ---- calls ---- */

int srv_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    const struct requests *h = host;
    unsigned server = ask->index < h->config.locks ? srv_of(&h->config, ask->index) : 0;
    return granters_acquire(host, &ops, ask, server, ask->mode, now, out);
}

int srv_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    const struct request *r = request_at(host, request);
    if (request_held(r) && r->limit)
        return -PAWL_ENOTSUP; /* a place of a semaphore is no share of the lock */
    return granters_convert(host, &ops, request, mode, now, out);
}

int srv_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    return granters_give_up(host, &ops, request, why, now, out);
}

int srv_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    return granters_release(host, &ops, request, now, out);
}

/* Asked again by the caller as often as it wants to know. */
bool srv_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    (void)now;
    if (!request_held(r))
        return false;
    if (r->wanted) { /* told once: the next caller wants to know of the time from now on */
        outbox_touch(out, r, sizeof *r);
        r->wanted = false;
        return true;
    }
    struct srv_packet *p = packet_to(h, r->granter, SRV_WATCH, out);
    if (p) {
        p->head.index = r->index;
        p->head.generation = r->generation;
        p->head.nonce = r->nonce;
        p->head.from.port = r->port;
    }
    return false;
}

uint64_t srv_expiry(const void *host, uint32_t session)
{
    return granters_expiry(host, &ops, session);
}

void srv_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    granters_session_dead(host, &ops, session, now, out);
}

/* ---- packets ---- */

static void on_grant(struct requests *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    bool asked = r->state == REQUEST_ASKING && !p->step;
    bool converted = (r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step;
    if ((asked || converted) && p->mode == r->want)
        request_granted(h, r, p->token, p->mode, out);
    else
        h->busy.drops.stale++;
}

static void on_refused(struct requests *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    if (r->state == REQUEST_ASKING && !p->step && (r->try || p->code == PAWL_ELIMITS)) {
        request_become(h, r, REQUEST_IDLE, out);
        request_settle(h, r, -(int)p->code, out);
    } else if ((r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step) {
        request_not_converted(h, r, -(int)p->code, out);
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
        r->sent = (uint8_t)(r->sent > REQUEST_BEFORE_BACKOFF + 2 ? r->sent : REQUEST_BEFORE_BACKOFF + 2);
        r->next_ns = max_u64(r->next_ns, now + (h->config.retry_ns << 2));
        break;
    case SRV_RELEASED:
        request_released(h, r, out);
        break;
    case SRV_REPORTED:
        granter_reported(h, &ops, r, !p->code, r->granter, now, out);
        break;
    case SRV_WANTED:
        outbox_touch(out, r, sizeof *r);
        r->wanted = request_held(r);
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* The number of the server that sent it. */
static bool sender(struct requests *h, const struct packet_head *p, unsigned *server)
{
    *server = rack_server_on(&h->config, p->from.machine);
    if (*server < h->config.servers && p->from.port == PORT_SERVER)
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
    granter_check_lease(h, &ops, server, now, out);
    if (!granter_is_current(h, &ops, server, head->epoch, now, out))
        return;
    if (head->type == SRV_LEASED) {
        granter_leased(h, &ops, server, p->stamp, 0, now, out);
        return;
    }
    uint32_t slot = srv_slot(head->nonce);
    if (slot >= rack_requests(&h->config)) {
        h->busy.drops.bad++;
        return;
    }
    struct request *r = request_at(h, slot);
    if (r->state == REQUEST_IDLE || (r->nonce != head->nonce && !MISTAKE(h->config.mistakes, SRV_MISTAKE_NO_NONCE)) ||
        r->index != head->index || r->generation != head->generation) {
        h->busy.drops.stale++;
        return;
    }
    on_answer(h, r, p, now, out);
}

/* ---- time ---- */

static void retry(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    if (r->next_ns <= now)
        say(h, r, now, out);
}

void srv_renew(void *host, uint64_t now, struct outbox *out)
{
    granters_renew(host, &ops, now, out);
}

uint64_t srv_tick(void *host, uint64_t now, struct outbox *out)
{
    return granters_tick(host, &ops, now, out);
}

static const struct granter_ops ops = {.nonce_step = UINT64_C(1) << SRV_SLOT_BITS,
                                       .no_lapse = SRV_MISTAKE_NO_LAPSE,
                                       .silent = SRV_MISTAKE_SILENT,
                                       .report = report,
                                       .quitting = REQUEST_RELEASING,
                                       .wakes_dead = true,
                                       .say = say,
                                       .retry = retry,
                                       .ask_anew = ask_anew,
                                       .may_have = may_have,
                                       .leased = leased,
                                       .ask_for_lease = ask_for_lease};
