/* SPDX-License-Identifier: Apache-2.0 */
/* The library's thread of a session on a rack: holds the session's life, renews it, and if this process serves the host's pool,
 * receives its packets and does what is due for the host. */
#include "client/net.h"
#include "world/world.h"

#include <errno.h>
#include <poll.h>

#define ROUND_NS (10 * NS_PER_MS)   /* how often it looks up */
#define LOOK_NS (20 * NS_PER_MS)    /* how often it looks for processes of the host that have ended */
#define OVERDUE_NS (50 * NS_PER_MS) /* after which other processes do the duties of the serving one, which may be stopped */
#define LINGER_NS (500 * NS_PER_MS) /* for which the last session of a host waits until its releases are acknowledged */
#define BEATS 4                     /* per lease */
#define SILENT_NS (100 * NS_PER_MS) /* after which an answer to a heartbeat is missing */

/* ---- duties ---- */

/* Claims a duty that is due: of several threads that find it so, one does it. */
static bool is_due(uint64_t *at_ns, uint64_t now, uint64_t again_ns)
{
    uint64_t at = __atomic_load_n(at_ns, __ATOMIC_ACQUIRE);
    return now >= at && __atomic_compare_exchange_n(at_ns, &at, now + again_ns, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void tell(struct net *n, struct udp *through, enum coord_type type, struct net_addr to)
{
    const struct host_header *h = n->host.header;
    struct coord_beat p;
    memset(&p, 0, sizeof p);
    coord_make(&p.packet, type, h->space, &h->config.identity, type == COORD_HERE ? 1 : h->nonce);
    p.packet.head.from = (struct place){h->machine, through == &n->pool ? PORT_POOL : through->at.port};
    p.packet.head.epoch = h->life;
    p.packet.stamp = host_now();
    p.packet.code = coord_config_sum(&h->config);
    if (n->host.design->racks)
        p.packet.head.index =
            n->host.design->racks(n->host.memory, p.packet.stamp); /* without the mutex: an old answer is good enough */
    for (unsigned i = 0; i < RACKS_MAX; i++)
        host_switch(h, i, &p.switches[i]);
    p.places = host_places_version(h);
    const struct udp_out out = {.to = to, .len = type == COORD_BEAT ? sizeof p : sizeof p.packet, .data = &p};
    udp_send(through, &out, 1);
}

void net_renew(struct net *n)
{
    struct outbox *out = net_outbox();
    tell(n, &n->udp, COORD_BEAT, coord_list_at(&n->host.header->coordinators));
    host_enter(&n->host, out);
    if (n->host.design->renew)
        n->host.design->renew(n->host.memory, host_now(), out);
    host_leave(&n->host, out);
    net_flush(n, &n->udp, out);
}

void net_say_here(struct net *n)
{
    const struct host_header *h = n->host.header;
    struct net_addr at;
    if (is_due(&n->here_ns, host_now(), h->config.lease_ns))
        for (unsigned i = 0; i < h->config.servers; i++)
            if (host_server(h, i, &at))
                tell(n, &n->udp, COORD_HERE, at);
}

void net_say_leave(struct net *n, struct udp *through)
{
    tell(n, through, COORD_LEAVE, coord_list_at(&n->host.header->coordinators));
}

/* The clock is read inside, as everywhere: changes that others made while we waited for the mutex must not lie in the future. */
static void tick(struct net *n, struct udp *through)
{
    struct host_header *h = n->host.header;
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    uint64_t now = host_now();
    uint64_t next = n->host.design->tick(n->host.memory, now, out);
    host_leave(&n->host, out);
    __atomic_store_n(&h->tick_ns, min_u64(next, now + h->config.retry_ns), __ATOMIC_RELEASE);
    /* Packets of a lost datagram are due at the same moment, and leave together again. Every second time it goes singly: the way
     * may lose long datagrams. */
    if (__atomic_add_fetch(&n->ticks, 1, __ATOMIC_RELAXED) % 2)
        net_flush_together(n, through, out);
    else
        net_flush(n, through, out);
}

static void look_after_all(struct net *n, struct udp *through)
{
    uint32_t session = 0;
    struct outbox *out = net_outbox();
    while (host_look_after(&n->host, &session, out))
        net_flush(n, through, out);
}

/* A heartbeat if one is due. While the coordinator to which the host sends does not answer, it asks more often, and another one if
 * there are several. */
static void beat(struct net *n, struct udp *through, uint64_t now)
{
    struct host_header *h = n->host.header;
    uint64_t lease = h->config.lease_ns, heard = __atomic_load_n(&h->heard_ns, __ATOMIC_ACQUIRE);
    bool several = __atomic_load_n(&h->coordinators.count, __ATOMIC_ACQUIRE) > 1;
    uint64_t moved = __atomic_load_n(&h->moved_ns, __ATOMIC_ACQUIRE);
    bool silent = several && now > heard + lease / BEATS + SILENT_NS;
    if (!is_due(&h->beat_ns, now, silent ? SILENT_NS : lease / BEATS))
        return;
    if (silent && now >= moved + SILENT_NS) {
        coord_list_next(&h->coordinators);
        __atomic_store_n(&h->moved_ns, now, __ATOMIC_RELEASE);
    }
    tell(n, through, COORD_BEAT, coord_list_at(&h->coordinators));
}

void net_duties(struct net *n, struct udp *through, bool must_tick)
{
    struct host_header *h = n->host.header;
    uint64_t now = host_now(), lease = h->config.lease_ns;
    if (!host_lives(&n->host, now)) {
        host_retire(&n->host);
        return;
    }
    if (n->serves &&
        is_due(&h->here_ns, now, lease / BEATS)) { /* first, so that servers and switches know the address of the pool */
        struct net_addr at;
        for (unsigned i = 0; i < h->config.servers; i++)
            if (host_server(h, i, &at))
                tell(n, &n->pool, COORD_HERE, at);
        for (unsigned i = 0; i < rack_switches(&h->config); i++) {
            if (host_switch(h, i, &at))
                tell(n, &n->pool, COORD_HERE, at);
        }
    }
    if (must_tick || now >= __atomic_load_n(&h->tick_ns, __ATOMIC_ACQUIRE))
        tick(n, through);
    beat(n, through, now);
    if (is_due(&h->look_ns, now, LOOK_NS))
        look_after_all(n, through);
}

/* ---- serving the pool ---- */

static void try_to_serve(struct net *n)
{
    struct host_header *h = n->host.header;
    if (!n->serves) {
        int rc = pthread_mutex_trylock(&h->serving);
        if (rc == EOWNERDEAD)
            pthread_mutex_consistent(&h->serving);
        else if (rc)
            return;
        n->serves = true;
    }
    if (n->pool.fd < 0 && udp_open(&n->pool, h->pool)) /* the port of the process that served before may not be free yet */
        n->pool.fd = -1;
    else
        net_use_key(n, &n->pool);
    if (n->pool.fd >= 0)
        h->pool.port = n->pool.at.port;
    h->here_ns = 0;
}

static void receive_all(struct net *n, struct udp *from, struct udp_batch *batch)
{
    for (unsigned i = 0; i < 64 && udp_receive(from, batch); i++)
        net_dispatch(n, from, batch);
}

/* For one round, or until a packet comes to the pool; or to the own socket, if no other thread has received there lately, which is
 * returned, and none is told of packets. */
static bool listen_a_while(struct net *n)
{
    uint64_t now = world_now(&world_real);
    bool idle = now - __atomic_load_n(&n->busy_ns, __ATOMIC_RELAXED) > ROUND_NS,
         hears = __atomic_load_n(&n->hears, __ATOMIC_RELAXED);
    struct pollfd fds[1 + UDP_FDS] = {{.fd = n->pool.fd, .events = POLLIN}};
    const struct timespec patience = {.tv_nsec = ROUND_NS};
    udp_poll_fds(&n->udp, fds + 1);
    ppoll(fds, idle && !hears ? 1 + UDP_FDS : 1, &patience, NULL);
    if (n->pool.fd >= 0 && fds[0].revents)
        receive_all(n, &n->pool, &n->served);
    if (idle && (hears || fds[1].revents || fds[2].revents) && !pthread_mutex_trylock(&n->receiving)) {
        receive_all(n, &n->udp, &n->received);
        pthread_mutex_unlock(&n->receiving);
        net_pass_on(n);
    }
    return idle;
}

/* ---- the thread ---- */

static void renew(struct net *n)
{
    struct host_session *s = &n->host.sessions[n->session];
    uint64_t now = host_now();
    if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == HOST_SESSION_OPEN && now < __atomic_load_n(&s->until_ns, __ATOMIC_ACQUIRE))
        __atomic_store_n(&s->until_ns, add_saturating(now, n->lease_ns), __ATOMIC_RELEASE);
}

/* Tells the application if the session was lost. */
static void notice_loss(struct net *n)
{
    enum pawl_why why = n->handle.async.why ? 0 : net_why(&n->handle);
    if (why)
        async_lost(&n->handle.async, why);
}

static bool is_last(struct net *n)
{
    for (uint32_t i = 0; i < n->host.header->config.sessions; i++)
        if (__atomic_load_n(&n->host.sessions[i].state, __ATOMIC_ACQUIRE) != HOST_SESSION_FREE)
            return false;
    return true;
}

/* The host ends with its last session, once the servers have acknowledged all of its releases. */
static void close_host(struct net *n)
{
    uint64_t until = world_now(&world_real) + LINGER_NS;
    while (is_last(n) && host_lives(&n->host, host_now()) && world_now(&world_real) < until) {
        struct outbox *out = net_outbox();
        bool gone = host_retire_if_idle(&n->host, out);
        net_flush(n, &n->udp, out);
        if (gone) {
            net_say_leave(n, &n->udp);
            return;
        }
        receive_all(n, &n->udp, &n->received);
        if (n->pool.fd >= 0)
            receive_all(n, &n->pool, &n->served);
        net_duties(n, &n->udp, true);
        const struct timespec moment = {.tv_nsec = NS_PER_MS};
        nanosleep(&moment, NULL);
    }
}

static void close_session(struct net *n)
{
    struct outbox *out = net_outbox();
    host_session_close(&n->host, n->session, out);
    net_flush(n, &n->udp, out);
    close_host(n);
    if (n->serves)
        pthread_mutex_unlock(&n->host.header->serving);
}

void *net_thread(void *arg)
{
    struct net *n = arg;
    struct pawl *p = &n->handle;
    int rc = host_session_open(&n->host, n->udp.at.port, add_saturating(host_now(), n->lease_ns), net_outbox(), &n->session);
    if (rc == -PAWL_ELIMIT) { /* their processes may have ended just now, and no other process of the host has looked yet */
        look_after_all(n, &n->udp);
        rc = host_session_open(&n->host, n->udp.at.port, add_saturating(host_now(), n->lease_ns), net_outbox(), &n->session);
    }
    n->serial = rc ? 0 : n->host.sessions[n->session].serial;
    handle_started(p, rc);
    if (rc)
        return NULL;
    uint64_t watch = 0;
    while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
        renew(n);
        if (!n->serves || n->pool.fd < 0)
            try_to_serve(n);
        bool overdue = host_now() > __atomic_load_n(&n->host.header->tick_ns, __ATOMIC_ACQUIRE) + OVERDUE_NS;
        if (n->serves)
            net_duties(n, n->pool.fd >= 0 ? &n->pool : &n->udp, false);
        else if (overdue)
            net_duties(n, &n->udp, false);
        bool idle = listen_a_while(n);
        notice_loss(n);
        if (async_watches(&p->async) && host_now() >= watch) {
            async_look_at_watches(p);
            watch = host_now() + ASYNC_WATCH_NS;
        }
        pthread_mutex_lock(&p->async.lock);
        net_pump(p);
        if (idle && n->hears && !p->async.in_flight)
            net_set_hears(n, false);
        pthread_mutex_unlock(&p->async.lock);
    }
    close_session(n);
    return NULL;
}
