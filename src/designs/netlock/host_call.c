/* SPDX-License-Identifier: Apache-2.0 */
/* Deeds that requests bring for their lock's data server (4.1). The bytes travel with the ACQUIRE: a granter that grants the lock
 * by that very packet sends them on to the data server, which answers with the grant. Otherwise the lock is granted without them,
 * and the host sends them to the data server then. Both ways it is the same deed, which the data server recognises by its number.
 * So it may be sent as often as necessary, also under another nonce. A client that gives up asks the data server not to do it, and
 * learns whether it was done. */
#include "designs/netlock/host.h"

#include <errno.h>

static uint64_t calls_at(const struct rack_config *c)
{
    return round_up(requests_bytes(c, c->servers + 1u), CACHE_LINE);
}

uint64_t call_bytes(const struct rack_config *c)
{
    return calls_at(c) + (uint64_t)c->sessions * HOST_CALLS * sizeof(struct call);
}

static struct call *call_at(const struct requests *h, uint32_t i)
{
    return (struct call *)(void *)((char *)(uintptr_t)h + calls_at(&h->config)) + i;
}

static struct call *call_of(const struct requests *h, const struct request *r)
{
    return r->call ? call_at(h, r->call - 1) : NULL;
}

/* All but its bytes. */
static void touch(struct call *c, struct outbox *out)
{
    outbox_touch(out, c, offsetof(struct call, bytes));
}

/* The lock's first home, whichever server has its locks by now: data do not move. */
static unsigned data_server(const struct requests *h, const struct request *r)
{
    return 1 + netlock_home(&h->config, r->index);
}

int call_begin(struct requests *h, struct request *r, const void *bytes, uint32_t len, bool once, struct outbox *out)
{
    uint32_t first = request_session(h, r) * HOST_CALLS, i = first;
    if (len > NETLOCK_PAYLOAD_MAX)
        return -EMSGSIZE;
    while (i < first + HOST_CALLS && call_at(h, i)->id)
        i++;
    if (i == first + HOST_CALLS)
        return -PAWL_ELIMIT;
    struct call *c = call_at(h, i);
    touch(c, out);
    outbox_touch(out, c->bytes, len ? len : 1);
    outbox_touch(out, r, sizeof *r);
    c->id = request_fresh_nonce(h, &host_ops, r);
    c->since_ns = 0;
    c->life = 0;
    c->len = (uint16_t)len;
    c->once = once;
    c->under = false;
    if (len)
        memcpy(c->bytes, bytes, len);
    r->call = i + 1;
    r->why = 0;
    return 0;
}

void call_end(struct requests *h, struct request *r, struct outbox *out)
{
    struct call *c = call_of(h, r);
    if (!c)
        return;
    touch(c, out);
    outbox_touch(out, r, sizeof *r);
    c->id = 0;
    r->call = 0;
}

/* A deed is meant for one life of the data server: another life might do it again. */
static bool has_life(struct requests *h, const struct request *r, struct call *c, uint64_t now, struct outbox *out)
{
    const struct lease *l = &h->leases[data_server(h, r)];
    if (!c->life && l->until_ns > now) {
        touch(c, out);
        c->life = l->life;
    }
    return c->life;
}

uint32_t call_rides(struct requests *h, const struct request *r, uint64_t now, struct outbox *out)
{
    struct call *c = call_of(h, r);
    return r->state == REQUEST_ASKING && c && has_life(h, r, c, now, out) ? c->len : 0;
}

void call_ride(struct requests *h, const struct request *r, struct netlock_packet *p)
{
    const struct call *c = call_of(h, r);
    if (r->state != REQUEST_ASKING || !c || !c->life)
        return;
    p->flags |= NETLOCK_PAYLOAD;
    p->data = (struct place){h->config.server[data_server(h, r) - 1], PORT_SERVER};
    p->stamp = c->id;
    p->pushed = c->life;
    memcpy(p + 1, c->bytes, c->len);
}

void call_say(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    struct call *c = call_of(h, r);
    assert(c && c->id); /* I14: an operation has its number */
    bool voids = r->why;
    request_pause(h, r, now, out);
    if (!has_life(h, r, c, now, out))
        return; /* nothing is heard of the data server */
    struct netlock_packet *p = host_packet(h, data_server(h, r), NETLOCK_DATA, voids ? 0 : c->len, out);
    if (!p) {
        r->next_ns = now;
        return;
    }
    p->head.index = r->index;
    p->head.generation = r->generation;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->data = p->head.to;
    p->stamp = c->id;
    p->pushed = c->life;
    p->mode = r->state == REQUEST_CALLING ? r->mode : r->want;
    p->token = r->token;
    p->flags = voids ? NETLOCK_VOID : 0;
    if (!voids)
        memcpy(p + 1, c->bytes, c->len);
    request_count(r);
}

/* Not done, or unknown: a hold from before the call stays. */
static void fail(struct requests *h, struct request *r, int result, uint64_t now, struct outbox *out)
{
    if (r->state == REQUEST_CALLING && call_of(h, r)->under) {
        request_become(h, r, REQUEST_HELD, out);
        host_settle(h, r, result, out);
    } else {
        request_quit(h, &host_ops, r, result, now, out);
        outbox_wake(out, request_number(h, r));
    }
}

bool call_give_up(struct requests *h, struct request *r, int why, uint64_t now, struct outbox *out)
{
    struct call *c = call_of(h, r);
    if (!c || (r->state != REQUEST_ASKING && r->state != REQUEST_CALLING) || (!c->life && r->state == REQUEST_ASKING))
        return false;
    if (!c->life) { /* it never went anywhere */
        fail(h, r, why, now, out);
        return true;
    }
    outbox_touch(out, r, sizeof *r);
    touch(c, out);
    r->why = why;
    c->since_ns = now;
    request_become(h, r, r->state == REQUEST_CALLING ? REQUEST_CALLING : REQUEST_VOIDING, out);
    host_say(h, r, now, out);
    return true;
}

bool call_in_vain(const struct requests *h, const struct request *r, uint64_t now)
{
    return (r->state == REQUEST_VOIDING || r->state == REQUEST_CALLING) && r->why &&
           now >= call_of(h, r)->since_ns + h->config.lease_ns;
}

void call_unknown(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    fail(h, r, -PAWL_EUNKNOWN, now, out);
}

/* Done. */
static void succeed(struct requests *h, struct request *r, const struct netlock_packet *p, uint32_t len, uint64_t now,
                    struct outbox *out)
{
    struct call *c = call_of(h, r);
    assert(c->once || r->state == REQUEST_CALLING); /* I14: it was done under this hold */
    touch(c, out);
    outbox_touch(out, c->bytes, sizeof c->bytes);
    c->len = (uint16_t)(len - sizeof *p);
    memcpy(c->bytes, p + 1, c->len);
    if (c->once)
        request_quit(h, &host_ops, r, 0, now, out);
    else
        request_become(h, r, REQUEST_HELD, out);
    host_settle(h, r, 0, out);
}

static void on_done(struct requests *h, struct request *r, const struct netlock_packet *p, uint32_t len, uint64_t now,
                    struct outbox *out)
{
    bool same = r->nonce == p->head.nonce;
    if (r->state == REQUEST_VOIDING && same) { /* so it was granted, and no GRANT has arrived here */
        outbox_touch(out, r, sizeof *r);
        r->why = 0;
        request_become(h, r, REQUEST_ASKING, out);
        host_granted(h, p, p->client, p->life, now, out);
        if (r->state != REQUEST_CALLING)
            request_become(h, r, REQUEST_VOIDING, out);
    } else if (r->state != REQUEST_CALLING) {
        host_granted(h, p, p->client, p->life, now, out); /* if under another name: given back */
        if (r->state == REQUEST_ASKING && same)
            return; /* the grant is worth nothing: it is asked for again */
    }
    if (r->state == REQUEST_CALLING && same) { /* a grant that was said again has a higher token, and the data server has seen it */
        outbox_touch(out, r, sizeof *r);
        r->token = max_u64(r->token, p->token);
    }
    /* Data that were read while the lock was held under another name may be out of date. */
    if (call_of(h, r)->once || (r->state == REQUEST_CALLING && same))
        succeed(h, r, p, len, now, out);
    else
        fail(h, r, -PAWL_EUNKNOWN, now, out);
}

/* The operation was not done: a later holder of the lock has been there. */
static void on_fenced(struct requests *h, struct request *r, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct call *c = call_of(h, r);
    if (r->why) {
        fail(h, r, r->why, now, out);
    } else if (r->state == REQUEST_CALLING && p->head.nonce == r->nonce) {
        request_set_lost(h, request_session(h, r), true, out);
        request_quit(h, &host_ops, r, -PAWL_ELOST, now, out);
        outbox_wake(out, request_number(h, r));
    } else { /* that was a hold of the past: once more, as a new deed */
        touch(c, out);
        c->id = request_fresh_nonce(h, &host_ops, r);
        c->life = 0;
        if (r->state == REQUEST_ASKING)
            host_ask_anew(h, r, now, out);
        host_say(h, r, now, out);
    }
}

void call_on_answer(struct requests *h, struct request *r, const struct netlock_packet *p, uint32_t len, uint64_t now,
                    struct outbox *out)
{
    const struct call *c = call_of(h, r);
    bool waits = r->state == REQUEST_ASKING || r->state == REQUEST_CALLING || r->state == REQUEST_VOIDING;
    if (!c || !waits || c->id != p->stamp || r->index != p->head.index) {
        h->busy.drops.stale++;
        if (p->code == NETLOCK_DONE && p->client.machine != MACHINE_NONE) /* no request waits for the grant */
            host_granted(h, p, p->client, p->life, now, out);
        return;
    }
    switch ((enum netlock_done)p->code) {
    case NETLOCK_DONE:
        on_done(h, r, p, len, now, out);
        break;
    case NETLOCK_VOIDED:
        if (r->why)
            fail(h, r, r->why, now, out);
        else
            h->busy.drops.stale++;
        break;
    case NETLOCK_FENCED:
        on_fenced(h, r, p, now, out);
        break;
    case NETLOCK_FORGOTTEN:
        call_unknown(h, r, now, out);
        break;
    case NETLOCK_NO_SERVICE:
        fail(h, r, -PAWL_ENOTSUP, now, out);
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* ---- calls ---- */

int netlock_call(void *host, uint32_t request, const void *bytes, uint32_t len, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    if (request_lost(h, request_session(h, r)))
        return -PAWL_ELOST;
    if (r->state != REQUEST_HELD)
        return -PAWL_ENOTOWNER;
    int rc = call_begin(h, r, bytes, len, false, out);
    if (rc)
        return rc;
    call_of(h, r)->under = true;
    r->result = -EINPROGRESS;
    request_become(h, r, REQUEST_CALLING, out);
    host_say(h, r, now, out);
    return PACKET_WAIT;
}

int netlock_reply(void *host, uint32_t request, void *reply, uint32_t room, uint32_t *len, struct outbox *out)
{
    struct requests *h = host;
    struct request *r = request_at(h, request);
    const struct call *c = call_of(h, r);
    if (!c)
        return -ENOENT;
    *len = c->len;
    if (room)
        memcpy(reply, c->bytes, min_u64(room, c->len));
    call_end(h, r, out);
    return 0;
}
