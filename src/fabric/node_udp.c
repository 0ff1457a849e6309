/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/node_udp.h"
#include "fabric/node_internal.h"
#include "fabric/parking.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RETRANSMIT_NS (5 * NS_PER_MS)       /* a round trip on one busy machine; lost packets are rarer than slow ones */
#define RETRANSMIT_MAX_NS (100 * NS_PER_MS) /* a node that was stopped is found again soon after it goes on */
#define PATIENCE_NS (500 * NS_PER_MS)
#define POLL_NS (100 * NS_PER_US)
#define SPIN_NS (50 * NS_PER_US) /* a round trip on one machine, most often */
#define DRAIN_MAX 16             /* packets that are handled before the thread looks whether it has what it waits for */

static struct node_udp *udp_of(struct fab_node *n)
{
    return container_of(n, struct node_udp, node);
}

static void lock(struct fab_node *n)
{
    pthread_mutex_lock(&udp_of(n)->mutex);
}

static void unlock(struct fab_node *n)
{
    pthread_mutex_unlock(&udp_of(n)->mutex);
}

/* A packet that cannot be sent is lost, and is retransmitted. */
static void send_packet(struct fab_node *n, const void *packet, uint32_t len)
{
    const struct node_udp *u = udp_of(n);
    _Alignas(8) uint8_t tagged[VERBS_PACKET_MAX + sizeof(struct seal_trail)];
    if (seal_known(&u->asker.key) && len <= VERBS_PACKET_MAX) {
        memcpy(tagged, packet, len);
        len = seal_trail_put(&u->asker, tagged, len);
        packet = tagged;
    }
    send(u->fd, packet, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A datagram that is there: its length; 0: there is none, or one with a wrong tag. */
static uint32_t take(const struct node_udp *u, void *packet, uint32_t room)
{
    ssize_t got = recv(u->fd, packet, room, MSG_DONTWAIT);
    uint32_t len = got > 0 ? (uint32_t)got : 0;
    return !len || !seal_known(&u->asker.key) || seal_trail_open(&u->asker.key, packet, &len) ? len : 0;
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* The next packet, or 0 at the latest at that time. */
static uint32_t receive(struct node_udp *u, struct spin *s, void *packet, uint32_t room, uint64_t until)
{
    uint64_t begin = world_now(&world_real), now = begin, spin = spin_for(s);
    for (; now - begin < spin && now < until; now = world_now(&world_real)) {
        uint32_t len = take(u, packet, room);
        if (!len)
            continue;
        spin_ended(s, spin, now - begin);
        return len;
    }
    if (now >= until)
        return take(u, packet, room);
    struct timespec patience = to_timespec(until - now);
    struct pollfd readable[] = {{.fd = u->fd, .events = POLLIN}, {.fd = u->bell, .events = POLLIN}};
    uint64_t rings;
    if (ppoll(readable, countof(readable), until == UINT64_MAX ? NULL : &patience, NULL) > 0 && readable[1].revents &&
        read(u->bell, &rings, sizeof rings) < 0)
        assert(errno == EAGAIN); /* another thread has heard it */
    spin_ended(s, spin, world_now(&world_real) - begin);
    return take(u, packet, room);
}

static void wake_threads(struct node_udp *u)
{
    if (u->waiting)
        pthread_cond_broadcast(&u->changed);
}

static void wake_all(struct fab_node *n)
{
    __atomic_store_n(&n->changes, n->changes + 1, __ATOMIC_RELEASE);
    wake_threads(udp_of(n));
}

static int wait_until(struct fab_node *n, uint64_t until, bool cancellable)
{
    struct node_udp *u = udp_of(n);
    struct fab_parking *fiber = fab_parking_get();
    if (fiber) {
        fiber->seen = n->changes;
        unlock(n);
        int rc = fiber->park(fiber, until, cancellable);
        lock(n);
        return rc;
    }
    if (u->receiving) {
        struct timespec at = to_timespec(until);
        u->waiting++;
        if (until == UINT64_MAX)
            pthread_cond_wait(&u->changed, &u->mutex);
        else
            pthread_cond_timedwait(&u->changed, &u->mutex, &at);
        u->waiting--;
        return 0;
    }
    struct {
        _Alignas(8) uint8_t bytes[VERBS_PACKET_MAX + sizeof(struct seal_trail) + 8];
    } packet;
    u->receiving = true;
    uint32_t len = take(u, packet.bytes, sizeof packet.bytes); /* a node in the kernel has answered when `send` returns */
    if (!len) {
        struct spin *s = &u->spin[fab_node_expects(n) && !n->asks];
        unlock(n);
        len = receive(u, s, packet.bytes, sizeof packet.bytes, until);
        lock(n);
    }
    for (unsigned i = 0; len && i < DRAIN_MAX; i++) {
        fab_node_packet(n, packet.bytes, len);
        if (!fab_node_expects(n))
            break; /* a look for nothing would cost as much as a part of a round trip */
        len = take(u, packet.bytes, sizeof packet.bytes);
    }
    u->receiving = false;
    wake_threads(u); /* another takes the right */
    return 0;
}

void node_udp_await(struct node_udp *u, uint64_t seen, uint64_t until)
{
    struct fab_node *n = &u->node;
    lock(n);
    if (n->changes == seen)
        wait_until(n, min_u64(node_retransmit(n), until), false);
    unlock(n);
}

void node_udp_nudge(struct node_udp *u)
{
    const uint64_t one = 1;
    wake_all(&u->node);
    if (u->receiving && write(u->bell, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
}

static void pending(struct fab_node *n)
{
    struct node_udp *u = udp_of(n);
    if (u->on_pending)
        u->on_pending(u->ctx);
}

static const struct fab_node_io udp_io = {
    .lock = lock,
    .unlock = unlock,
    .send = send_packet,
    .wait = wait_until,
    .wake = wake_all,
    .pending = pending,
};

ONCE int node_udp_open(struct node_udp *u, struct net_addr to, struct net_addr from)
{
    struct udp socket;
    union net_name there = {0};
    memset(u, 0, sizeof *u);
    int rc = net_addr_known(from) ? 0 : udp_source_for(to, &from);
    if (!rc)
        rc = udp_open(&socket, net_addr_at_port(from, 0));
    if (rc)
        return rc;
    socklen_t len = net_addr_name(&to, &there);
    u->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->bell < 0 || connect(socket.fd, &there.any, len)) {
        rc = -errno;
        udp_close(&socket);
        if (u->bell >= 0)
            close(u->bell);
        return rc;
    }
    u->fd = socket.fd;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&u->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&u->mutex, NULL);
    fab_node_init(&u->node, &udp_io, &world_real);
    u->node.retransmit_ns = RETRANSMIT_NS;
    u->node.retransmit_max_ns = RETRANSMIT_MAX_NS;
    u->node.patience_ns = PATIENCE_NS;
    u->node.poll_ns = POLL_NS;
    u->spin[false].most_ns = u->spin[true].most_ns = SPIN_NS;
    return 0;
}

void node_udp_close(struct node_udp *u)
{
    fab_node_free(&u->node);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->mutex);
    close(u->fd);
    close(u->bell);
}
