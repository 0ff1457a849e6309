/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a session on a memory node, and its library thread. */
#include "client/far.h"
#include "client/grant.h"
#include "client/memory.h"
#include "cluster/keeper.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUND_NS (500 * NS_PER_MS) /* how often the session is renewed, if its lease is longer than three of these */
#define FLUSH_NS (1 * NS_PER_MS)   /* how long a store to a word of the session's own may wait for a verb that takes it along */
#define BUSY_ROUNDS 16 /* flushes without anything to send, after which the library's thread sleeps until it is called */

/* ---- the library's thread ---- */

/* Asleep, or waiting for packets of operations in flight, until it is called or its time has come; else it looks every FLUSH_NS,
 * and need not be called. */
enum { AWAKE = 0, ASLEEP = 1, SERVING = 2 };

/* With the endpoint's lock. */
static void ring(struct memory_session *m)
{
    switch (__atomic_exchange_n(&m->doorbell, AWAKE, __ATOMIC_ACQ_REL)) {
    case ASLEEP:
        syscall(SYS_futex, &m->doorbell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        break;
    case SERVING:
        node_udp_nudge(m->far);
        break;
    default:
        break;
    }
}

/* Operations may have nearer deadlines than the threads know that wait for packets. */
void memory_far_changed(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    struct fab_node *n = &m->far->node;
    n->io->lock(n);
    m->called = true;
    ring(m);
    node_udp_nudge(m->far);
    n->io->unlock(n);
}

/* With the endpoint's lock. */
static void on_pending(void *ctx)
{
    struct memory_session *m = ctx;
    if (__atomic_load_n(&m->doorbell, __ATOMIC_RELAXED) != AWAKE)
        ring(m);
}

/* Without it. */
static void on_gathered(void *ctx)
{
    struct memory_session *m = ctx;
    struct fab_node *n = &m->far->node;
    n->io->lock(n);
    on_pending(m);
    n->io->unlock(n);
}

/* From now on `ring` wakes this thread. False: there was a call that did not. */
static bool lie_down(struct memory_session *m, uint32_t how)
{
    struct fab_node *n = &m->far->node;
    n->io->lock(n);
    bool gathers = n->open || (m->fabric && fab_rdma->gathers(m->fabric));
    bool idle = !gathers && !m->called && !__atomic_load_n(&m->handle.stop, __ATOMIC_ACQUIRE);
    m->called = false;
    __atomic_store_n(&m->doorbell, idle ? how : AWAKE, __ATOMIC_RELEASE);
    n->io->unlock(n);
    return idle;
}

static void sleep_until(struct memory_session *m, uint64_t until)
{
    uint64_t now = world_now(&world_real), left = until > now ? until - now : 0;
    struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    if (lie_down(m, ASLEEP))
        syscall(SYS_futex, &m->doorbell, FUTEX_WAIT_PRIVATE, ASLEEP, &patience, NULL, 0);
    __atomic_store_n(&m->doorbell, AWAKE, __ATOMIC_RELEASE);
}

/* Operations in flight, while there are any. False: there are none, or a thread that reaps sees to them. */
static bool serve_until(struct memory_session *m, uint64_t until, bool idle)
{
    if (!idle || !lie_down(m, SERVING))
        until = min_u64(until, world_now(&world_real) + FLUSH_NS);
    bool served = memory_far_serve(m, until);
    __atomic_store_n(&m->doorbell, AWAKE, __ATOMIC_RELEASE);
    return served;
}

static void nap(void)
{
    const struct timespec moment = {.tv_nsec = FLUSH_NS};
    nanosleep(&moment, NULL);
}

/* The node's process has the session's holds at its mercy, so the thread that keeps it does nothing that could wait for long. */
static void keep(struct memory_session *m)
{
    struct fab_node *n = &m->far->node;
    struct keeper keeper;
    keeper_init(&keeper, &m->locker.seat, ROUND_NS);
    uint64_t next = world_now(&world_real) + keeper.pause_ns, sent = 0, watch = 0;
    unsigned idle = 0;
    while (!__atomic_load_n(&m->handle.stop, __ATOMIC_ACQUIRE)) {
        uint64_t now = world_now(&world_real);
        if (now >= next) {
            /* A client that was fenced does not read that its session was declared lost, and its lease may have long to run. */
            int rc = keeper_step(&keeper);
            if (rc == -PAWL_ELOST || rc == -FAB_EFENCED)
                __atomic_store_n(&m->session.ended, true, __ATOMIC_RELEASE);
            memory_notice_loss(m);
            next = world_now(&world_real) + keeper.pause_ns;
        }
        uint64_t until = next;
        if (async_watches(&m->handle.async)) {
            if (now >= watch) {
                async_look_at_watches(&m->handle);
                watch = world_now(&world_real) + ASYNC_WATCH_NS;
            }
            until = min_u64(next, watch);
        }
        uint64_t requests, due = fab_node_tick(n, &requests);
        bool flushed = m->fabric && fab_rdma->flush(m->fabric);
        idle = requests != sent || due != UINT64_MAX || flushed ? 0 : idle + 1;
        sent = requests;
        if (serve_until(m, until, idle >= BUSY_ROUNDS))
            continue;
        if (idle < BUSY_ROUNDS || __atomic_load_n(&m->reapers, __ATOMIC_ACQUIRE))
            nap();
        else
            sleep_until(m, until);
    }
}

static int open_session(struct memory_session *m)
{
    char name[WORLD_NAME_LEN];
    world_process_name(name);
    struct session_params params = {.lease_ns = m->lease_ns, .proof = fab_node_proof(&m->far->node), .label = name};
    struct session_place place;
    int rc = m->fabric ? far_fabric_assign(m->far, m->fabric, m->name, m->lease_ns, &place) : 0;
    params.place = m->fabric ? &place : NULL;
    if (!rc)
        rc = session_open(&m->locker.seat, &params);
    if (rc == -PAWL_ELIMIT)
        return explain(rc, "%s: all %u sessions are in use", m->name, m->space.slot_count);
    uint64_t own = (uint64_t)m->space.record_count * m->space.desc_size;
    if (rc || !own || m->near.memory.base)
        return rc;
    return m->fabric ? fab_rdma->set_own(m->fabric, m->session.home, own) : fab_node_set_own(&m->far->node, m->session.home, own);
}

ONCE static void *library_thread(void *arg)
{
    struct memory_session *m = arg;
    int rc = open_session(m);
    handle_started(&m->handle, rc);
    if (rc)
        return NULL;
    keep(m);
    m->close_result = session_close(&m->locker.seat);
    if (m->close_result == -FAB_EFENCED || m->close_result == -FAB_EUNKNOWN)
        m->close_result = 0; /* others will find it dead */
    fab_node_leave(&m->far->node, world_now(&world_real) + m->far->node.patience_ns);
    return NULL;
}

/* ---- opening ---- */

/* A process that said that it would use the memory directly, and cannot, connects once more without saying so. */
static int connect_near(struct memory_session *m, const struct net_where *w)
{
    int rc = far_open(w, m->name, w->through_node ? 0 : fab_shm_proof(), w->deadline, &m->far);
    if (rc || !(m->far->node.can & VERBS_CAN_NEAR))
        return rc;
    m->near.memory.base = far_map(m->far, w->space);
    if (m->near.memory.base)
        return 0;
    far_close(m->far);
    m->far = NULL;
    return far_open(w, m->name, 0, w->deadline, &m->far);
}

static int connect_node(struct memory_session *m, const struct net_where *w)
{
    int rc = connect_near(m, w);
    if (rc || !(m->far->node.can & VERBS_CAN_FABRIC))
        return rc;
    return far_fabric_open(m->far, m->name, w->deadline, &m->fabric);
}

static int attach(struct memory_session *m, const struct net_where *w, const pawl_options *o)
{
    struct layout_header header;
    const struct layout_header *h = &header;
    struct fab_ep *ep = m->fabric ? fab_rdma->ep(m->fabric) : &m->far->node.fab;
    int rc = far_attach(ep, m->name, &header);
    if (!rc)
        rc = far_check_place(w, m->name, h);
    if (!rc)
        rc = memory_check_requirements(o, h, m->name);
    if (rc)
        return rc;
    layout_space(h, 0, &m->space);
    table_init(&m->locker.table, h, 0);
    if (m->near.memory.base) {
        const struct fab_near_way way = {.far = ep,
                                         .dead = m->fabric ? fab_rdma->dead(m->fabric) : &m->far->node.dead,
                                         .changes = &m->far->node.changes,
                                         .base = m->near.memory.base};
        far_near(&m->near, &way, &m->space);
        ep = &m->near.ep;
    }
    m->locker.seat = (struct seat){.space = &m->space, .me = &m->session, .ep = ep, .world = &world_real};
    m->locker.alone = memory_alone;
    m->locker.together = &m->together;
    m->handle.design = m->space.design;
    m->handle.keys = m->locker.table.keys;
    /* Leases of others are judged by the longest that a session may have, so a longer one cannot be had. */
    m->lease_ns = o->lease_ns ? min_u64(o->lease_ns, m->space.lease_ns) : m->space.lease_ns;
    return 0;
}

static int make_books(struct memory_session *m)
{
    const struct space *s = &m->space;
    bool ranges = s->design->features & DESIGN_RANGES;
    m->session.seen = calloc(s->slot_count, sizeof *m->session.seen);
    m->session.shadow = calloc(s->record_count, sizeof *m->session.shadow);
    m->session.ranges = ranges ? calloc(s->record_count, sizeof *m->session.ranges) : NULL;
    m->session.descs = ranges && s->desc_size ? calloc(s->record_count, s->desc_size) : NULL;
    bool made = m->session.seen && m->session.shadow && (!ranges || (m->session.ranges && (m->session.descs || !s->desc_size)));
    return made ? 0 : -ENOMEM;
}

static void free_far(struct memory_session *m)
{
    if (m->near.memory.base)
        munmap(m->near.memory.base, m->far->node.fab.size);
    if (m->fabric)
        fab_rdma->close(m->fabric);
    far_close(m->far);
    if (m->pool_ready)
        fiber_pool_free(&m->pool);
    together_free(&m->together);
    free(m->session.seen);
    free(m->session.shadow);
    free(m->session.ranges);
    free(m->session.descs);
    free(m->session.design_state);
    free(m->name);
    handle_free(&m->handle);
    free(m);
}

ONCE int memory_far_open(const struct net_where *w, const pawl_options *o, struct pawl **out)
{
    struct memory_session *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->name = far_name(w);
    int rc = m->name ? 0 : -ENOMEM;
    if (!rc && o->flags & PAWL_MUST_CREATE)
        rc = explain(-EEXIST, "%s is there already", m->name);
    if (!rc)
        rc = handle_init(&m->handle, &memory_far_ops);
    if (!rc)
        rc = connect_node(m, w);
    if (!rc)
        rc = attach(m, w, o);
    if (!rc)
        rc = make_books(m);
    if (!rc) {
        m->far->on_pending = on_pending;
        m->far->ctx = m;
        if (m->fabric)
            fab_rdma->on_pending(m->fabric, on_gathered, m);
        rc = handle_start(&m->handle, library_thread, m);
    }
    if (rc) {
        free_far(m);
        return rc;
    }
    *out = &m->handle;
    return 0;
}

int memory_far_close(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    if (!handle_is_ours(p)) /* thread and connection are the parent's: a child leaves its copies alone */
        return 0;
    memory_far_drain(m);
    handle_stop(p, memory_far_changed);
    int rc = m->close_result;
    free_far(m);
    return rc;
}
