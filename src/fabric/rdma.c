/* SPDX-License-Identifier: Apache-2.0 */
/* A client's endpoint: flights of verbs, their completions, and going on under a new key. */
#include "fabric/lower.h"
#include "fabric/parking.h"
#include "fabric/rdma_internal.h"
#include "lib/explain.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (500 * NS_PER_MS) /* after which the outcome of a verb is called unknown, as on a memory node */
#define CONNECT_NS (2 * NS_PER_S)     /* the same for the first verb of a connection, which the provider makes for it */
#define SPIN_NS (200 * NS_PER_US)     /* a waiting thread looks without a pause for some round trips over TCP, */
#define YIELD_NS (500 * NS_PER_US)    /* then lets others run between two looks, */
#define EVENT_MS 10                   /* then sleeps until a verb ends, and at most so long, */
#define NAP_NS (50 * NS_PER_US)       /* or for so long where the library does not tell, or another thread is told */
#define COMPLETIONS 16                /* read at once */

uint64_t rdma_patience(const struct fab_rdma *o)
{
    uint64_t slow_ns = o->kind->tells_loss ? o->io.lease_ns / 4 : 0; /* a quarter: the session must still be renewed in time */
    return world_now(o->ep.world) + max_u64(slow_ns, o->connected ? PATIENCE_NS : CONNECT_NS);
}

/* ---- flights ---- */

/* Until a verb ends. With the lock, which it gives back meanwhile. False: that cannot be waited for. One thread waits: it consumes
 * the event, and another one would go on sleeping. */
static bool await_event(struct fab_rdma *o)
{
    if (!o->kind->arm || o->exchanging || o->sleeps)
        return false;
    unsigned before = o->in_flight;
    struct pollfd readable = {.fd = o->kind->arm(o->port), .events = POLLIN};
    rdma_look(o);
    if (o->in_flight != before)
        return true; /* one had ended before */
    o->sleeps = true;
    pthread_mutex_unlock(&o->mutex);
    poll(&readable, 1, EVENT_MS); /* another thread may close the port meanwhile: then it waits in vain, and not for long */
    pthread_mutex_lock(&o->mutex);
    o->sleeps = false;
    return true;
}

/* How long a look may wait. With the lock, which it gives back meanwhile. */
static void pass_time(struct fab_rdma *o, uint64_t begin)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct fab_parking *fiber = o->io.changes ? fab_parking_get() : NULL;
    uint64_t now = world_now(o->ep.world);
    if (!fiber && now - begin > YIELD_NS && await_event(o))
        return;
    if (fiber)
        fiber->seen = __atomic_load_n(o->io.changes, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&o->mutex);
    if (fiber)
        fiber->park(fiber, now + NAP_NS, false);
    else if (now - begin > YIELD_NS)
        nanosleep(&nap, NULL);
    else if (now - begin > SPIN_NS)
        sched_yield();
    pthread_mutex_lock(&o->mutex);
}

static void take_result(const struct flight *f)
{
    if (f->op->verb == FAB_READ)
        memcpy((char *)f->op->buf + f->skip, f->buffers->result, f->words * sizeof(uint64_t));
    else if (f->op->verb != FAB_WRITE)
        f->op->old = f->buffers->result[0];
}

/* The verb has ended. After an error it took effect or did not, and a store is issued again under the next key. */
static void end_flight(struct fab_rdma *o, struct flight *f, int error)
{
    if (f->state != FLIGHT_SENT)
        return;
    o->in_flight--;
    o->connected |= !error;
    if (f->call) {
        if (!error)
            take_result(f);
        else
            f->call->error = -FAB_EUNKNOWN;
        f->call->left--;
    }
    o->broken |= error != 0;
    f->state = error && f->store ? FLIGHT_KEPT : FLIGHT_FREE;
    f->call = NULL;
}

void rdma_look(struct fab_rdma *o)
{
    struct rdma_done done[COMPLETIONS];
    if (o->exchanging)
        return;
    int n = o->kind->look(o->port, done, COMPLETIONS);
    if (n < 0)
        o->broken = true;
    for (int i = 0; i < n; i++) {
        if (done[i].flight)
            end_flight(o, done[i].flight, done[i].error);
        if (done[i].error) {
            o->error = done[i].error;
            o->broken = true;
        }
    }
}

/* Whether verbs may be issued under the key that was the endpoint's when the caller began. */
static int state_of(const struct fab_rdma *o, uint64_t attempt)
{
    return o->dead ? o->dead : o->broken || o->attempt != attempt ? -FAB_EUNKNOWN : 0;
}

/* Until none are in flight. -FAB_EUNKNOWN at that time, or if the connection broke. */
static int await_flights(struct fab_rdma *o, uint64_t attempt, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        rdma_look(o);
        int rc = state_of(o, attempt);
        if (rc || !o->in_flight)
            return rc;
        if (world_now(o->ep.world) >= until)
            return -FAB_EUNKNOWN;
        pass_time(o, begin);
    }
}

/* The provider takes the verb at once, or when no other is in flight: then a connection that it makes anew has lost none. */
static int transmit(struct fab_rdma *o, struct flight *f, uint64_t attempt, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        int rc = o->stalled ? await_flights(o, attempt, until) : state_of(o, attempt);
        if (!rc && world_now(o->ep.world) >= until)
            rc = -FAB_EUNKNOWN;
        if (rc) {
            o->broken |= o->attempt == attempt;
            return rc;
        }
        int refused = o->kind->give(o->port, &o->way, f);
        o->stalled = refused == -EAGAIN;
        if (!refused) {
            f->state = FLIGHT_SENT;
            o->in_flight++;
            return 0;
        }
        if (o->stalled) {
            pass_time(o, begin);
            continue;
        }
        o->error = -refused;
        o->broken = true;
    }
}

/* A place for a flight. Null at that time, or if the connection broke. */
static struct flight *free_flight(struct fab_rdma *o, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        for (unsigned i = 0; i < FLIGHTS; i++)
            if (o->flights[i].state == FLIGHT_FREE)
                return &o->flights[i];
        rdma_look(o);
        if (o->dead || o->broken || world_now(o->ep.world) >= until)
            return NULL;
        pass_time(o, begin);
    }
}

/* ---- going on under a new key ---- */

/* Verbs of unknown outcome end, and stores are issued again in their order: to repeat one changes nothing. */
static int begin_again(struct fab_rdma *o, uint64_t until)
{
    for (unsigned i = 0; i < FLIGHTS; i++)
        end_flight(o, &o->flights[i], ECONNABORTED);
    assert(!o->in_flight);
    o->broken = o->stalled = false;
    o->open = NULL; /* issued here, too */
    for (;;) {
        struct flight *next = NULL;
        for (unsigned i = 0; i < FLIGHTS; i++)
            if (o->flights[i].state == FLIGHT_KEPT && (!next || o->flights[i].sequence < next->sequence))
                next = &o->flights[i];
        if (!next) {
            o->kind->push(o->port);
            return 0;
        }
        int rc = transmit(o, next, o->attempt, until);
        if (rc)
            return rc;
    }
}

static void close_port(struct fab_rdma *o, struct rdma_port **port)
{
    if (*port)
        o->kind->close(*port);
    *port = NULL;
}

/* Asks the node for access to its memory by an end that no verb was issued on. The end is kept until the node has answered: a
 * question that is asked again must be the same. Without the lock; no other thread uses the port meanwhile. */
static int exchange_port(struct fab_rdma *o, uint64_t until)
{
    struct verbs_way way = {0};
    int rc = o->next ? 0 : o->kind->open(&o->way, o->port, o->buffers, &o->next, &o->mine);
    if (!rc) {
        way = o->mine;
        rc = o->io.renew(o->io.ctx, o->number + 1, until, &way);
    }
    if (rc)
        return rc;
    o->number++;
    rc = o->kind->connect(o->next, &way);
    if (rc) {
        close_port(o, &o->next);
        return rc;
    }
    close_port(o, &o->port);
    o->way = way;
    o->port = o->next;
    o->port->mistakes = o->io.mistakes;
    o->next = NULL;
    o->connected = false;
    return 0;
}

/* A node that has not answered for a lease. No session of this client could be renewed meanwhile, so all have ended: the endpoint
 * ends, too, and its callers are told now, not after as many tries as each makes. */
static int note_silence(struct fab_rdma *o, uint64_t since, int rc)
{
    if (rc != -ETIMEDOUT) {
        o->silent_since = 0;
        return rc;
    }
    o->silent_since = o->silent_since ? o->silent_since : since;
    return world_now(o->ep.world) >= o->silent_since + o->io.lease_ns ? -FAB_EFENCED : rc;
}

int rdma_ready(struct fab_rdma *o, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world); o->renewing && !o->dead;) {
        if (world_now(o->ep.world) >= until)
            return -FAB_EUNKNOWN;
        pass_time(o, begin);
    }
    if (o->dead || !o->broken)
        return o->dead;
    uint64_t begin = world_now(o->ep.world), silence_ends = o->silent_since ? o->silent_since + o->io.lease_ns : UINT64_MAX;
    o->renewing = o->exchanging = true;
    o->attempt++;
    pthread_mutex_unlock(&o->mutex);
    int rc = exchange_port(o, min_u64(until, silence_ends));
    pthread_mutex_lock(&o->mutex);
    o->exchanging = false;
    rc = note_silence(o, begin, rc);
    if (!rc)
        rc = begin_again(o, max_u64(until, rdma_patience(o)));
    else if (rc == -FAB_EFENCED)
        __atomic_store_n(&o->dead, rc, __ATOMIC_RELAXED);
    o->renewing = false;
    return rc && rc != -FAB_EFENCED ? -FAB_EUNKNOWN : rc;
}

/* ---- verbs ---- */

static void fill(struct fab_rdma *o, struct flight *f, struct fab_op *op, uint32_t skip, bool last)
{
    struct flight_buffers *b = f->buffers;
    bool moves = op->verb <= FAB_WRITE;
    f->words = moves ? (uint32_t)min_u64((op->len - skip) / 8, FLIGHT_WORDS) : 1;
    f->range[0].offset = FAB_OFFSET(op->addr) + skip;
    f->range[0].words = f->words;
    f->ranges = 1;
    f->sequence = ++o->sequence;
    f->skip = skip;
    f->verb = op->verb;
    f->masked = op->masked;
    f->fence = op->fence && !skip;
    f->last = last;
    switch (op->verb) {
    case FAB_READ:
        break;
    case FAB_WRITE:
        memcpy(b->operand, (const char *)op->buf + skip, f->words * sizeof(uint64_t));
        break;
    default:
        b->operand[0] = (uint64_t)op->swap;
        b->compare[0] = (uint64_t)(op->verb == FAB_CAS ? op->compare : op->swap_mask);
    }
}

static void count_op(struct fab_counts *counts, const struct fab_op *op)
{
    counts->atomics += op->verb > FAB_WRITE;
    counts->reads += op->verb == FAB_READ;
    counts->writes += op->verb == FAB_WRITE;
}

/* A verb, in as many pieces as it needs. */
static int issue(struct fab_rdma *o, struct fab_op *op, bool last, struct call *call, uint64_t until)
{
    uint32_t bytes = op->verb <= FAB_WRITE ? op->len : 8;
    assert(op->verb <= FAB_WRITE || op->width == 8); /* FAB_ATOMIC128 is not among the capabilities */
    if (FAB_OFFSET(op->addr) > o->ep.size || o->ep.size - FAB_OFFSET(op->addr) < bytes)
        return -EFAULT;
    for (uint32_t skip = 0; skip < bytes;) {
        struct flight *f = free_flight(o, until);
        if (!f)
            return o->dead ? o->dead : -FAB_EUNKNOWN;
        fill(o, f, op, skip, last && skip + FLIGHT_WORDS * 8 >= bytes);
        f->op = op;
        f->call = call;
        f->store = false;
        f->state = FLIGHT_HELD;
        call->left++;
        int rc = transmit(o, f, call->attempt, until);
        if (rc) {
            call->left--;
            f->call = NULL;
            f->state = FLIGHT_FREE;
            return rc;
        }
        skip += f->words * 8;
        if (!o->port->ordered && (rc = await_flights(o, call->attempt, until)))
            return rc;
    }
    return 0;
}

/* Verbs that are still in flight go on without this call. */
static void abandon(struct fab_rdma *o, const struct call *call)
{
    for (unsigned i = 0; i < FLIGHTS; i++)
        if (o->flights[i].call == call)
            o->flights[i].call = NULL;
}

/* In one round trip. */
static int together(struct fab_ep *ep, struct fab_op *ops, unsigned count)
{
    struct fab_rdma *o = rdma_of(ep);
    struct call call = {0};
    uint64_t begin = world_now(ep->world);
    pthread_mutex_lock(&o->mutex);
    uint64_t until = rdma_patience(o);
    rdma_flush(o);
    int rc = rdma_ready(o, until);
    call.attempt = o->attempt;
    until = max_u64(until, rdma_patience(o));
    for (unsigned i = 0; i < count && !rc; i++) {
        count_op(&ep->counts, &ops[i]);
        rc = issue(o, &ops[i], i + 1 == count, &call, until);
    }
    ep->counts.round_trips++;
    while (!rc && call.left) {
        rdma_look(o);
        if (!call.left)
            break;
        if (o->dead || call.error || world_now(ep->world) >= until) {
            rc = o->dead ? o->dead : -FAB_EUNKNOWN;
            o->broken |= o->attempt == call.attempt; /* later verbs must not pass those of this batch */
        } else {
            pass_time(o, begin);
        }
    }
    abandon(o, &call);
    pthread_mutex_unlock(&o->mutex);
    return rc ? rc : call.error;
}

/* A library without a SWAP has compare-and-swaps instead, which split the batch. */
int rdma_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count)
{
    unsigned from = 0;
    for (unsigned i = 0; i < count && !rdma_of(ep)->swaps; i++) {
        if (ops[i].verb != FAB_SWAP)
            continue;
        int rc = from < i ? together(ep, ops + from, i - from) : 0;
        if (!rc) {
            ops[i].swap_mask = UINT64_MAX;
            rc = fab_lower_masked(ep, &ops[i], 0);
        }
        if (rc)
            return rc;
        from = i + 1;
    }
    return from < count ? together(ep, ops + from, count - from) : 0;
}

/* A place for a store. If the stores before it do not end, they are issued again under a new key. Null: not for a lease. */
static struct flight *store_flight(struct fab_rdma *o)
{
    uint64_t until = add_saturating(world_now(o->ep.world), o->io.lease_ns);
    for (;;) {
        struct flight *f = free_flight(o, min_u64(until, rdma_patience(o)));
        if (f || o->dead || world_now(o->ep.world) >= until)
            return f;
        o->broken |= !o->renewing;
        rdma_ready(o, rdma_patience(o));
    }
}

/* Into the flight that is open: in place of an earlier value, behind its latest range, or as a further range. A message takes
 * effect as a whole, so the order in it does not matter. */
static bool join_open(struct fab_rdma *o, uint64_t offset, uint64_t value)
{
    struct flight *f = o->open;
    if (!f || f->state != FLIGHT_KEPT)
        return false;
    for (unsigned i = 0, at = 0; i < f->ranges; at += f->range[i++].words)
        if (offset - f->range[i].offset < 8 * (uint64_t)f->range[i].words) {
            f->buffers->operand[at + (offset - f->range[i].offset) / 8] = value;
            return true;
        }
    unsigned last = f->ranges - 1;
    bool behind = offset == f->range[last].offset + 8 * (uint64_t)f->range[last].words;
    if (f->words == FLIGHT_WORDS || (!behind && f->ranges >= min_u64(o->port->ranges, FLIGHT_RANGES)))
        return false;
    if (!behind) {
        f->range[f->ranges].offset = offset;
        f->range[f->ranges++].words = 0;
    }
    f->range[f->ranges - 1].words++;
    f->buffers->operand[f->words++] = value;
    return true;
}

void rdma_flush(struct fab_rdma *o)
{
    struct flight *f = o->open;
    o->open = NULL;
    if (!f || f->state != FLIGHT_KEPT || o->broken || o->renewing)
        return; /* it is issued under the next key, before any later verb */
    if (transmit(o, f, o->attempt, rdma_patience(o)))
        return;
    if (!o->port->ordered)
        o->broken |= await_flights(o, o->attempt, rdma_patience(o)) != 0;
}

void rdma_flush_now(struct fab_rdma *o)
{
    rdma_flush(o);
    if (!o->exchanging)
        o->kind->push(o->port);
}

void rdma_store(struct fab_rdma *o, const struct fab_op *op)
{
    struct fab_op write = *op;
    uint64_t value;
    memcpy(&value, op->buf, sizeof value);
    count_op(&o->ep.counts, op);
    if (op->len == sizeof value && join_open(o, FAB_OFFSET(op->addr), value))
        return;
    for (uint32_t skip = 0; skip < op->len;) {
        rdma_flush(o);
        struct flight *f = store_flight(o);
        if (!f) { /* the node has not answered for a lease, and later verbs must not take effect without this store */
            __atomic_store_n(&o->dead, o->dead ? o->dead : -FAB_EFENCED, __ATOMIC_RELAXED);
            return;
        }
        fill(o, f, &write, skip, true);
        f->op = NULL;
        f->call = NULL;
        f->store = true;
        f->state = FLIGHT_KEPT;
        o->open = f;
        skip += f->words * 8;
    }
}

/* ---- opening ---- */

static int explain_unreachable(const struct fab_rdma *o, const struct verbs_way *way)
{
    if (o->error == EACCES || o->error == EKEYREJECTED)
        return explain(-EACCES, "the node refuses this client's key by the provider '%s'", way->provider);
    return explain(-EHOSTUNREACH,
                   "the node answers by UDP, and not by the provider '%s'%s%s: its link is down, or a firewall drops its packets",
                   way->provider, o->error ? ": " : "", o->error ? o->kind->error(o->error) : "");
}

static int first_port(struct fab_rdma *o, uint64_t deadline)
{
    if (o->kind->exchanges) {
        int rc = exchange_port(o, deadline);
        return rc && o->next ? explain(rc, "the node grants no access by the provider '%s': %s", o->way.provider, strerror(-rc))
                             : rc;
    }
    int rc = o->kind->open(&o->way, NULL, o->buffers, &o->port, &o->mine);
    if (rc)
        return rc;
    o->port->mistakes = o->io.mistakes;
    return o->kind->connect(o->port, &o->way);
}

ONCE int fab_rdma_open(const struct verbs_way *way, uint64_t size, const struct fab_rdma_io *io, uint64_t deadline,
                       struct fab_rdma **out)
{
    struct fab_rdma *o = calloc(1, sizeof *o);
    void *buffers = NULL;
    if (!o || posix_memalign(&buffers, 4096, FLIGHTS * sizeof *o->buffers)) {
        free(o);
        return explain(-ENOMEM, "out of memory for an endpoint");
    }
    memset(buffers, 0, FLIGHTS * sizeof *o->buffers);
    o->buffers = buffers;
    o->io = *io;
    o->way = *way;
    o->kind = rdma_kind_of(way->provider);
    for (unsigned i = 0; i < FLIGHTS; i++)
        o->flights[i].buffers = &o->buffers[i];
    pthread_mutex_init(&o->mutex, NULL);
    o->ep = (struct fab_ep){.ops = &rdma_ops, .world = &world_real, .node = FAB_NODE_ELSEWHERE, .size = size};
    int rc = first_port(o, deadline);
    if (!rc) {
        uint64_t first;
        o->ep.caps = o->port->caps;
        o->swaps = o->port->swaps;
        do
            rc = fab_read64(&o->ep, 0, &first);
        while (rc == -FAB_EUNKNOWN && world_now(&world_real) < deadline);
        if (rc)
            rc = explain_unreachable(o, way);
    }
    if (rc) {
        fab_rdma_close(o);
        return rc;
    }
    *out = o;
    return 0;
}

bool fab_rdma_flush(struct fab_rdma *o)
{
    pthread_mutex_lock(&o->mutex);
    bool gathered = o->open;
    if (gathered)
        rdma_flush_now(o);
    pthread_mutex_unlock(&o->mutex);
    return gathered;
}

bool fab_rdma_gathers(struct fab_rdma *o)
{
    pthread_mutex_lock(&o->mutex);
    bool gathered = o->open;
    pthread_mutex_unlock(&o->mutex);
    return gathered;
}

uint32_t fab_rdma_renewals(const struct fab_rdma *o)
{
    return o->number;
}

const int *fab_rdma_dead(const struct fab_rdma *o)
{
    return &o->dead;
}

struct fab_ep *fab_rdma_ep(struct fab_rdma *o)
{
    return &o->ep;
}

void fab_rdma_close(struct fab_rdma *o)
{
    if (!o)
        return;
    close_port(o, &o->port);
    close_port(o, &o->next);
    pthread_mutex_destroy(&o->mutex);
    own_free(&o->own);
    free(o->buffers);
    free(o);
}

const struct fab_rdma_driver driver_rdma = {
    .open = fab_rdma_open,
    .ep = fab_rdma_ep,
    .close = fab_rdma_close,
    .renewals = fab_rdma_renewals,
    .dead = fab_rdma_dead,
    .on_pending = fab_rdma_on_pending,
    .flush = fab_rdma_flush,
    .gathers = fab_rdma_gathers,
    .set_own = fab_rdma_set_own,
};
