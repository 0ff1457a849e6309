/* SPDX-License-Identifier: Apache-2.0 */
/* A client's endpoint over libfabric: flights of verbs, their completions, and going on under a new key. */
#include "fabric/ofi_internal.h"
#include "fabric/parking.h"
#include "lib/explain.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (500 * NS_PER_MS) /* after which the outcome of a verb is called unknown, as on a memory node */
#define CONNECT_NS (2 * NS_PER_S)     /* the same for the first verb of a connection, which the provider makes for it */
#define SPIN_NS (200 * NS_PER_US)     /* a waiting thread looks without a pause for some round trips over TCP, */
#define YIELD_NS (500 * NS_PER_US)    /* then lets others run between two looks, */
#define NAP_NS (50 * NS_PER_US)       /* then sleeps */
#define COMPLETIONS 16                /* read at once */

uint64_t ofi_patience(const struct fab_ofi *o)
{
    return world_now(o->ep.world) + (o->connected ? PATIENCE_NS : CONNECT_NS);
}

/* ---- flights ---- */

/* How long a look may wait. With the lock, which it gives back meanwhile. */
static void pass_time(struct fab_ofi *o, uint64_t begin)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct fab_parking *fiber = o->io.changes ? fab_parking_get() : NULL;
    uint64_t now = world_now(o->ep.world);
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
static void end_flight(struct fab_ofi *o, struct flight *f, int error)
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

void ofi_look(struct fab_ofi *o)
{
    struct fi_cq_entry done[COMPLETIONS];
    if (o->exchanging)
        return;
    ssize_t n = fi_cq_read(o->port.cq, done, COMPLETIONS);
    for (ssize_t i = 0; i < n; i++)
        end_flight(o, container_of(done[i].op_context, struct flight, context), 0);
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        if (fi_cq_readerr(o->port.cq, &error, 0) > 0 && error.op_context)
            end_flight(o, container_of(error.op_context, struct flight, context), error.err ? error.err : FI_EIO);
        o->error = error.err;
        o->broken = true;
    } else if (n < 0 && n != -FI_EAGAIN) {
        o->broken = true;
    }
}

/* Whether verbs may be issued under the key that was the endpoint's when the caller began. */
static int state_of(const struct fab_ofi *o, uint64_t attempt)
{
    return o->dead ? o->dead : o->broken || o->attempt != attempt ? -FAB_EUNKNOWN : 0;
}

/* Until none are in flight. -FAB_EUNKNOWN at that time, or if the connection broke. */
static int await_flights(struct fab_ofi *o, uint64_t attempt, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        ofi_look(o);
        int rc = state_of(o, attempt);
        if (rc || !o->in_flight)
            return rc;
        if (world_now(o->ep.world) >= until)
            return -FAB_EUNKNOWN;
        pass_time(o, begin);
    }
}

/* Gathered stores: several ranges in one message. */
static ssize_t give_ranges(struct fab_ofi *o, struct flight *f)
{
    struct fi_ioc from = {.addr = f->buffers->operand, .count = f->words}, found = {.addr = f->buffers->result, .count = f->words};
    struct fi_rma_ioc to[FLIGHT_RANGES];
    for (unsigned i = 0; i < f->ranges; i++)
        to[i] = (struct fi_rma_ioc){.addr = o->way.base + f->range[i].offset, .count = f->range[i].words, .key = o->way.key};
    const struct fi_msg_atomic m = {.msg_iov = &from,
                                    .desc = &o->desc,
                                    .iov_count = 1,
                                    .addr = o->peer,
                                    .rma_iov = to,
                                    .rma_iov_count = f->ranges,
                                    .datatype = FI_UINT64,
                                    .op = f->how,
                                    .context = &f->context};
    return fi_fetch_atomicmsg(o->port.ep, &m, &found, &o->desc, 1, FI_COMPLETION);
}

static ssize_t give_to_provider(struct fab_ofi *o, struct flight *f)
{
    struct flight_buffers *b = f->buffers;
    uint64_t at = o->way.base + f->range[0].offset;
    if (f->ranges > 1)
        return give_ranges(o, f);
    if (OFI_MISTAKE(o->io.mistakes, OFI_MISTAKE_MIXED) && (f->how == FI_ATOMIC_READ || f->is_read))
        return fi_read(o->port.ep, b->result, f->words * sizeof(uint64_t), o->desc, o->peer, at, o->way.key, &f->context);
    if (f->how == FI_CSWAP || f->how == FI_MSWAP)
        return fi_compare_atomic(o->port.ep, b->operand, f->words, o->desc, b->compare, o->desc, b->result, o->desc, o->peer, at,
                                 o->way.key, FI_UINT64, f->how, &f->context);
    return fi_fetch_atomic(o->port.ep, b->operand, f->words, o->desc, b->result, o->desc, o->peer, at, o->way.key, FI_UINT64,
                           f->how, &f->context);
}

/* The provider takes the verb at once, or when no other is in flight: then a connection that it makes anew has lost none. */
static int transmit(struct fab_ofi *o, struct flight *f, uint64_t attempt, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        int rc = o->stalled ? await_flights(o, attempt, until) : state_of(o, attempt);
        if (!rc && world_now(o->ep.world) >= until)
            rc = -FAB_EUNKNOWN;
        if (rc) {
            o->broken |= o->attempt == attempt;
            return rc;
        }
        ssize_t refused = give_to_provider(o, f);
        o->stalled = refused == -FI_EAGAIN;
        if (!refused) {
            f->state = FLIGHT_SENT;
            o->in_flight++;
            return 0;
        }
        if (o->stalled) {
            pass_time(o, begin);
            continue;
        }
        o->error = (int)-refused;
        o->broken = true;
    }
}

/* A place for a flight. Null at that time, or if the connection broke. */
static struct flight *free_flight(struct fab_ofi *o, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world);;) {
        for (unsigned i = 0; i < FLIGHTS; i++)
            if (o->flights[i].state == FLIGHT_FREE)
                return &o->flights[i];
        ofi_look(o);
        if (o->dead || o->broken || world_now(o->ep.world) >= until)
            return NULL;
        pass_time(o, begin);
    }
}

/* ---- going on under a new key ---- */

/* Verbs of unknown outcome end, and stores are issued again in their order: to repeat one changes nothing. */
static int begin_again(struct fab_ofi *o, uint64_t until)
{
    for (unsigned i = 0; i < FLIGHTS; i++)
        end_flight(o, &o->flights[i], FI_ECONNABORTED);
    assert(!o->in_flight);
    o->broken = o->stalled = false;
    o->open = NULL; /* issued here, too */
    for (;;) {
        struct flight *next = NULL;
        for (unsigned i = 0; i < FLIGHTS; i++)
            if (o->flights[i].state == FLIGHT_KEPT && (!next || o->flights[i].sequence < next->sequence))
                next = &o->flights[i];
        if (!next)
            return 0;
        int rc = transmit(o, next, o->attempt, until);
        if (rc)
            return rc;
    }
}

static int connect_port(struct fab_ofi *o, const struct verbs_way *way, struct ofi_port *port, struct fid_mr **local,
                        fi_addr_t *peer)
{
    *local = NULL;
    int rc = o->port.ep ? ofi_port_again(port, &o->port) : ofi_port_open(port, way->provider, way, NULL, false);
    if (rc)
        return rc;
    const struct fi_ep_attr *end = port->info->ep_attr;
    if (end->protocol != way->protocol || end->protocol_version != way->protocol_version)
        rc =
            explain(-EPROTO,
                    "the provider '%s' of the node speaks protocol %u version %u, and that of this machine %u version %u: the same "
                    "version of libfabric is needed on both",
                    way->provider, way->protocol, way->protocol_version, end->protocol, end->protocol_version);
    if (!rc && fi_av_insert(port->av, way->address, 1, peer, 0, NULL) != 1)
        rc = explain(-EADDRNOTAVAIL, "the provider '%s' does not take the node's address", way->provider);
    if (!rc && port->info->domain_attr->mr_mode & FI_MR_LOCAL) {
        rc = fi_mr_reg(port->domain, o->buffers, FLIGHTS * sizeof *o->buffers, FI_READ | FI_WRITE | FI_SEND | FI_RECV, 0, 0, 0,
                       local, NULL);
        if (rc)
            ofi_explain_registration(rc, way->provider, FLIGHTS * sizeof *o->buffers, 0);
    }
    if (rc)
        ofi_port_close(port);
    return rc;
}

static void close_port(struct fab_ofi *o)
{
    if (o->local)
        fi_close(&o->local->fid);
    o->local = NULL;
    if (o->port.ep)
        ofi_port_close(&o->port);
}

/* Without the lock; no other thread uses the port meanwhile. */
static int exchange_port(struct fab_ofi *o, uint64_t until)
{
    struct verbs_way way;
    struct ofi_port port;
    struct fid_mr *local;
    fi_addr_t peer;
    int rc = o->io.renew(o->io.ctx, o->number + 1, until, &way);
    if (!rc)
        rc = connect_port(o, &way, &port, &local, &peer);
    if (rc)
        return rc;
    close_port(o);
    o->way = way;
    o->port = port;
    o->local = local;
    o->desc = local ? fi_mr_desc(local) : NULL;
    o->peer = peer;
    o->number++;
    o->connected = false;
    return 0;
}

int ofi_ready(struct fab_ofi *o, uint64_t until)
{
    for (uint64_t begin = world_now(o->ep.world); o->renewing && !o->dead;) {
        if (world_now(o->ep.world) >= until)
            return -FAB_EUNKNOWN;
        pass_time(o, begin);
    }
    if (o->dead || !o->broken)
        return o->dead;
    o->renewing = o->exchanging = true;
    o->attempt++;
    pthread_mutex_unlock(&o->mutex);
    int rc = exchange_port(o, until);
    pthread_mutex_lock(&o->mutex);
    o->exchanging = false;
    if (!rc)
        rc = begin_again(o, max_u64(until, ofi_patience(o)));
    else if (rc == -FAB_EFENCED)
        o->dead = rc;
    o->renewing = false;
    return rc && rc != -FAB_EFENCED ? -FAB_EUNKNOWN : rc;
}

/* ---- verbs ---- */

static void fill(struct fab_ofi *o, struct flight *f, struct fab_op *op, uint32_t skip, bool last)
{
    struct flight_buffers *b = f->buffers;
    bool moves = op->verb <= FAB_WRITE;
    f->words = moves ? (uint32_t)min_u64((op->len - skip) / 8, FLIGHT_WORDS) : 1;
    f->range[0].offset = FAB_OFFSET(op->addr) + skip;
    f->range[0].words = f->words;
    f->ranges = 1;
    f->sequence = ++o->sequence;
    f->skip = skip;
    f->is_read = op->verb == FAB_READ;
    switch (op->verb) {
    case FAB_READ: /* later verbs in flight may pass a READ, and not an addition */
        f->how = last ? FI_ATOMIC_READ : FI_SUM;
        memset(b->operand, 0, f->words * sizeof(uint64_t));
        break;
    case FAB_WRITE:
        f->how = FI_ATOMIC_WRITE;
        memcpy(b->operand, (const char *)op->buf + skip, f->words * sizeof(uint64_t));
        break;
    case FAB_FAA:
        f->how = FI_SUM;
        b->operand[0] = (uint64_t)op->swap;
        break;
    case FAB_SWAP:
        f->how = op->masked ? FI_MSWAP : FI_ATOMIC_WRITE;
        b->operand[0] = (uint64_t)op->swap;
        b->compare[0] = (uint64_t)op->swap_mask;
        break;
    default:
        f->how = FI_CSWAP;
        b->operand[0] = (uint64_t)op->swap;
        b->compare[0] = (uint64_t)op->compare;
    }
}

static void count_op(struct fab_counts *counts, const struct fab_op *op)
{
    counts->atomics += op->verb > FAB_WRITE;
    counts->reads += op->verb == FAB_READ;
    counts->writes += op->verb == FAB_WRITE;
}

/* A verb, in as many pieces as it needs. */
static int issue(struct fab_ofi *o, struct fab_op *op, bool last, struct call *call, uint64_t until)
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
        if (!o->port.provider.ordered && (rc = await_flights(o, call->attempt, until)))
            return rc;
    }
    return 0;
}

/* Verbs that are still in flight go on without this call. */
static void abandon(struct fab_ofi *o, const struct call *call)
{
    for (unsigned i = 0; i < FLIGHTS; i++)
        if (o->flights[i].call == call)
            o->flights[i].call = NULL;
}

int ofi_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count)
{
    struct fab_ofi *o = ofi_of(ep);
    struct call call = {0};
    uint64_t begin = world_now(ep->world);
    pthread_mutex_lock(&o->mutex);
    uint64_t until = ofi_patience(o);
    ofi_flush(o);
    int rc = ofi_ready(o, until);
    call.attempt = o->attempt;
    until = max_u64(until, ofi_patience(o));
    for (unsigned i = 0; i < count && !rc; i++) {
        count_op(&ep->counts, &ops[i]);
        rc = issue(o, &ops[i], i + 1 == count, &call, until);
    }
    ep->counts.round_trips++;
    while (!rc && call.left) {
        ofi_look(o);
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

/* A place for a store. If the stores before it do not end, they are issued again under a new key. Null: not for a lease. */
static struct flight *store_flight(struct fab_ofi *o)
{
    uint64_t until = add_saturating(world_now(o->ep.world), o->io.lease_ns);
    for (;;) {
        struct flight *f = free_flight(o, min_u64(until, ofi_patience(o)));
        if (f || o->dead || world_now(o->ep.world) >= until)
            return f;
        o->broken |= !o->renewing;
        ofi_ready(o, ofi_patience(o));
    }
}

/* Into the flight that is open: in place of an earlier value, behind its latest range, or as a further range. A message takes
 * effect as a whole, so the order in it does not matter. */
static bool join_open(struct fab_ofi *o, uint64_t offset, uint64_t value)
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
    if (f->words == FLIGHT_WORDS || (!behind && f->ranges >= min_u64(o->port.ranges, FLIGHT_RANGES)))
        return false;
    if (!behind) {
        f->range[f->ranges].offset = offset;
        f->range[f->ranges++].words = 0;
    }
    f->range[f->ranges - 1].words++;
    f->buffers->operand[f->words++] = value;
    return true;
}

void ofi_flush(struct fab_ofi *o)
{
    struct flight *f = o->open;
    o->open = NULL;
    if (!f || f->state != FLIGHT_KEPT || o->broken || o->renewing)
        return; /* it is issued under the next key, before any later verb */
    if (!transmit(o, f, o->attempt, ofi_patience(o)) && !o->port.provider.ordered)
        o->broken |= await_flights(o, o->attempt, ofi_patience(o)) != 0;
}

void ofi_store(struct fab_ofi *o, const struct fab_op *op)
{
    struct fab_op write = *op;
    uint64_t value;
    memcpy(&value, op->buf, sizeof value);
    count_op(&o->ep.counts, op);
    if (op->len == sizeof value && join_open(o, FAB_OFFSET(op->addr), value))
        return;
    for (uint32_t skip = 0; skip < op->len;) {
        ofi_flush(o);
        struct flight *f = store_flight(o);
        if (!f) { /* the node has not answered for a lease, and later verbs must not take effect without this store */
            o->dead = o->dead ? o->dead : -FAB_EFENCED;
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

static int explain_unreachable(const struct fab_ofi *o, const struct verbs_way *way)
{
    if (o->error == FI_EACCES || o->error == FI_EKEYREJECTED)
        return explain(-EACCES, "the node refuses this client's key by the provider '%s'", way->provider);
    return explain(-EHOSTUNREACH,
                   "the node answers by UDP, and not by the provider '%s'%s%s: its link is down, or a firewall drops its packets",
                   way->provider, o->error ? ": " : "", o->error ? ofi_error(o->error) : "");
}

int fab_ofi_open(const struct verbs_way *way, uint64_t size, const struct fab_ofi_io *io, uint64_t deadline, struct fab_ofi **out)
{
    struct fab_ofi *o = calloc(1, sizeof *o);
    void *buffers = NULL;
    if (!o || posix_memalign(&buffers, 4096, FLIGHTS * sizeof *o->buffers)) {
        free(o);
        return explain(-ENOMEM, "out of memory for an endpoint");
    }
    memset(buffers, 0, FLIGHTS * sizeof *o->buffers);
    o->buffers = buffers;
    o->io = *io;
    o->way = *way;
    for (unsigned i = 0; i < FLIGHTS; i++)
        o->flights[i].buffers = &o->buffers[i];
    pthread_mutex_init(&o->mutex, NULL);
    o->ep = (struct fab_ep){.ops = &ofi_ops, .world = &world_real, .node = FAB_NODE_ELSEWHERE, .size = size};
    int rc = connect_port(o, way, &o->port, &o->local, &o->peer);
    if (!rc) {
        uint64_t first;
        o->desc = o->local ? fi_mr_desc(o->local) : NULL;
        o->ep.caps = o->port.provider.caps;
        do
            rc = fab_read64(&o->ep, 0, &first);
        while (rc == -FAB_EUNKNOWN && world_now(&world_real) < deadline);
        if (rc)
            rc = explain_unreachable(o, way);
    }
    if (rc) {
        fab_ofi_close(o);
        return rc;
    }
    *out = o;
    return 0;
}

bool fab_ofi_flush(struct fab_ofi *o)
{
    pthread_mutex_lock(&o->mutex);
    bool gathered = o->open;
    ofi_flush(o);
    pthread_mutex_unlock(&o->mutex);
    return gathered;
}

bool fab_ofi_gathers(struct fab_ofi *o)
{
    pthread_mutex_lock(&o->mutex);
    bool gathered = o->open;
    pthread_mutex_unlock(&o->mutex);
    return gathered;
}

uint32_t fab_ofi_renewals(const struct fab_ofi *o)
{
    return o->number;
}

struct fab_ep *fab_ofi_ep(struct fab_ofi *o)
{
    return &o->ep;
}

void fab_ofi_close(struct fab_ofi *o)
{
    if (!o)
        return;
    close_port(o);
    pthread_mutex_destroy(&o->mutex);
    own_free(&o->own);
    free(o->buffers);
    free(o);
}
