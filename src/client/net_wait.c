/* SPDX-License-Identifier: Apache-2.0 */
/* Sending, receiving and waiting. */
#include "client/net.h"
#include "lib/thread_memory.h"
#include "wire/many.h"
#include "world/world.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_MAX_NS                                                                                                                \
    (100 * NS_PER_MS) /* a wake-up can be lost with the process that should have sent it, so waiters look this often */

#define LISTEN_NS NS_PER_MS /* for which a thread waits for another one that receives */

#define MEMORY_NS (10 * NS_PER_MS) /* between two attempts to get memory */

/* A call that has begun cannot be undone for lack of memory: it waits until there is some. */
struct outbox *net_outbox(void)
{
    static _Thread_local struct outbox *out;
    while (unlikely(!out) && !(out = thread_memory(sizeof *out)))
        nanosleep(&(struct timespec){.tv_nsec = MEMORY_NS}, NULL);
    assert(!out->packets && !out->wakes);
    return out;
}

/* ---- bells ---- */

/* Bit 0 of a bell: a thread sleeps on it. */
static void futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Until the bell is no longer `seen`. */
static void futex_sleep(uint32_t *word, uint32_t seen, uint64_t until)
{
    uint32_t expected = seen;
    if (!__atomic_compare_exchange_n(word, &expected, seen | 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        expected != (seen | 1))
        return;
    const struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)};
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen | 1, &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* A thread that sleeps on its socket is woken by a packet. */
static void wake_by_packet(struct net *n, const struct host_session *s)
{
    struct coord_packet p;
    coord_make(&p, COORD_WAKE, n->host.header->space, &n->host.header->config.identity, 0);
    const struct udp_out out = {.to = net_addr_at_port(n->host.header->pool, s->port), .len = sizeof p, .data = &p};
    udp_send(&n->udp, &out, 1);
}

void net_ring(struct net *n, uint32_t request)
{
    uint32_t *bell = &n->host.bells[request];
    const struct host_session *s = &n->host.sessions[request / n->host.header->config.requests];
    uint32_t old = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(bell, &old, (old & ~1u) + 2, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    if (old & 1)
        futex_wake(bell);
    if (__atomic_load_n(&s->sleeper, __ATOMIC_SEQ_CST) == request + 1)
        wake_by_packet(n, s);
}

/* ---- sending ---- */

/* The address for a packet: that of the lock server or switch that it is for; everything else goes through the switch. */
static bool address_of(const struct host_header *h, const struct packet_head *p, struct net_addr *out)
{
    for (unsigned i = 0; i < h->config.servers && p->to.port == PORT_SERVER; i++)
        if (h->config.server[i] == p->to.machine)
            return host_server(h, i, out);
    return host_switch(h, rack_switch_of(&h->config, p), out);
}

static void flush(struct net *n, struct udp *through, struct outbox *o,
                  void (*send)(struct udp *, const struct udp_out *, unsigned))
{
    struct udp_out out[OUTBOX_PACKETS];
    unsigned count = 0;
    for (unsigned i = 0; i < o->packets; i++) {
        struct packet_head *h = (struct packet_head *)(void *)(o->bytes + o->packet[i].at);
        h->from.port = through == &n->pool ? PORT_POOL : through->at.port; /* where the answer is looked for */
        out[count] = (struct udp_out){.len = o->packet[i].len, .data = h};
        count += address_of(n->host.header, h, &out[count].to);
    }
    if (count)
        send(through, out, count);
    __atomic_add_fetch(&n->sent, count, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < o->wakes; i++)
        net_ring(n, o->wake[i]);
    for (uint32_t i = 0; o->crowded && i < rack_requests(&n->host.header->config); i++)
        net_ring(n, i);
    outbox_clear(o);
}

void net_flush(struct net *n, struct udp *through, struct outbox *o)
{
    flush(n, through, o, udp_send);
}

void net_flush_together(struct net *n, struct udp *through, struct outbox *o)
{
    static_assert(OUTBOX_PACKETS <= UDP_TOGETHER_MAX, "fits");
    flush(n, through, o, udp_send_together);
}

void net_use_key(const struct net *n, struct udp *u)
{
    u->key = n->host.header->key;
    u->opens = seal_known(&u->key);
}

/* ---- receiving ---- */

/* A question for the holders and waiters of this host. */
static void on_claims(struct net *n, struct udp *through, const struct coord_packet *p, struct net_addr from)
{
    const struct host_header *h = n->host.header;
    struct coord_claimed answer;
    memset(&answer, 0, sizeof answer);
    coord_make(&answer.packet, COORD_CLAIMED, h->space, &h->config.identity, p->head.nonce);
    host_claims(&n->host, p->head.index, host_now(), &answer);
    const struct udp_out out = {.to = from, .len = sizeof answer, .data = &answer};
    udp_send(through, &out, 1);
}

/* A coordinator that begins a new space asks whether this host, of which it had a heartbeat, lives (node/coordinating.c). */
static void on_which(struct net *n, struct udp *through, const struct coord_packet *p, struct net_addr from)
{
    const struct host_header *h = n->host.header;
    struct coord_packet answer;
    coord_make(&answer, COORD_THIS, h->space, &h->config.identity, p->head.nonce);
    answer.role = COORD_HOST;
    const struct udp_out out = {.to = from, .len = sizeof answer, .data = &answer};
    udp_send(through, &out, 1);
}

/* An operator takes the locks of a session of this host. */
static void on_break(struct net *n, struct udp *through, const struct coord_packet *p, struct net_addr from, struct outbox *out)
{
    const struct host_header *h = n->host.header;
    struct coord_packet answer;
    coord_make(&answer, COORD_BROKEN, h->space, &h->config.identity, p->head.nonce);
    answer.code = host_break(&n->host, p->role, (uint32_t)p->code, out);
    const struct udp_out packet = {.to = from, .len = sizeof answer, .data = &answer};
    udp_send(through, &packet, 1);
}

/* Keys that the coordinator may retire: the host says which it uses, and forgets the others. */
static void on_retire(struct net *n, struct udp *through, const struct coord_retire *p, struct net_addr from, struct outbox *out)
{
    struct host_header *h = n->host.header;
    struct coord_packet answer;
    uint64_t used;
    if (!n->host.design->uses || !host_lives(&n->host, host_now()) ||
        !host_names_retire(&h->names, p, n->host.design->uses, n->host.memory, host_now(), out, &used))
        return;
    coord_make(&answer, COORD_RETIRED, h->space, &h->config.identity, h->nonce);
    answer.head.from = (struct place){h->machine, PORT_POOL};
    answer.head.epoch = h->life;
    answer.head.index = used;
    answer.stamp = p->round;
    const struct udp_out packet = {.to = from, .len = sizeof answer, .data = &answer};
    udp_send(through, &packet, 1);
}

/* A switch has started anew: tells it our address and our lease. */
static void rouse(struct net *n, struct outbox *out)
{
    if (!n->host.design->rouse)
        return;
    __atomic_store_n(&n->host.header->here_ns, 0, __ATOMIC_RELEASE);
    n->host.design->rouse(n->host.memory, host_now(), out);
}

/* The acknowledgement of a heartbeat: renews the membership lease and says where switches and lock servers are. A late one changes
 * nothing. */
static void on_acknowledged(struct net *n, const struct coord_beat *beat, struct outbox *out)
{
    struct host_header *h = n->host.header;
    uint64_t until = lease_valid_until(beat->packet.stamp, rack_member_ns(&h->config));
    if (beat->packet.stamp > host_now() || until <= __atomic_load_n(&h->until_ns, __ATOMIC_ACQUIRE) ||
        !host_lives(&n->host, host_now()))
        return;
    for (unsigned i = 0; i < RACKS_MAX && n->host.design->switch_gone; i++) {
        struct net_addr before, after = beat->switches[i];
        if (host_switch(h, i, &before) && (net_addr_known(after) || after.port == COORD_AWAY) && !net_addr_is(before, after))
            n->host.design->switch_gone(n->host.memory, i, host_now(), out);
    }
    uint32_t version = host_places_version(h), server = beat->packet.role;
    if (beat->places > version && server && server <= h->config.servers && n->host.design->server_since)
        n->host.design->server_since(n->host.memory, h->config.server[server - 1], (uint32_t)beat->packet.code, out);
    if (host_move(h, beat))
        rouse(n, out);
    if (beat->packet.head.index && beat->packet.head.index <= PACKET_LOCKS_MAX && n->host.design->host_grow)
        n->host.design->host_grow(n->host.memory, beat->packet.head.index, out);
    if (host_places_version(h) != version)
        __atomic_store_n(&h->beat_ns, 0, __ATOMIC_RELEASE); /* the coordinator hears of it at once, and there may be more */
    __atomic_store_n(&h->until_ns, until, __ATOMIC_RELEASE);
}

static void obey(struct net *n, struct udp *through, const struct coord_packet *p, struct net_addr from, struct outbox *out)
{
    if (p->head.type == COORD_CLAIMS)
        on_claims(n, through, p, from);
    if (p->head.type == COORD_BREAK)
        on_break(n, through, p, from, out);
    if (p->head.type == COORD_BEAT_ACK)
        on_acknowledged(n, (const struct coord_beat *)p, out);
    if (p->head.type == COORD_REFUSED && p->code == -ESTALE) {
        host_retire(&n->host); /* all its sessions are lost from now on */
        net_say_leave(n, through);
    }
    if (p->head.type == COORD_ROUSE) {
        __atomic_store_n(&n->host.header->beat_ns, 0, __ATOMIC_RELEASE); /* a lock server may have moved */
        rouse(n, out);
    }
    if (p->head.type == COORD_RETIRE)
        on_retire(n, through, (const struct coord_retire *)p, from, out);
}

/* Whether a coordinator says so, or has said so, and not a program that asks this host. */
static bool is_answer(const struct coord_packet *p)
{
    return p->head.type == COORD_BEAT_ACK || p->head.type == COORD_REFUSED || p->head.type == COORD_ROUSE ||
           p->head.type == COORD_RETIRE;
}

/* A coordinator that stands by says where the leader is: the next heartbeat goes there, now. While a leader answers, that is an old
 * packet. */
static void follow(struct host_header *h, struct net_addr leader)
{
    uint64_t now = host_now();
    if (now < h->heard_ns + h->config.lease_ns / 4 || !net_addr_known(leader) ||
        net_addr_is(leader, coord_list_at(&h->coordinators)))
        return;
    coord_list_follow(&h->coordinators, leader);
    __atomic_store_n(&h->moved_ns, now, __ATOMIC_RELEASE);
    __atomic_store_n(&h->beat_ns, 0, __ATOMIC_RELEASE);
}

/* Whether the packet may be what it says. A coordinator knows the nonce of the host's JOIN. An operator, who breaks a session, has
 * asked the coordinator, and got a ticket. */
static bool is_genuine(struct net *n, const struct coord_packet *p)
{
    struct host_header *h = n->host.header;
    bool genuine = !is_answer(p) || p->head.nonce == h->nonce;
    if (p->head.type == COORD_BREAK)
        genuine = p->stamp == seal_ticket(h->nonce, h->life, p->role, (uint32_t)p->code);
    if (!genuine)
        __atomic_add_fetch(&h->forged, 1, __ATOMIC_RELAXED);
    return genuine;
}

static ONCE void on_coordinator(struct net *n, struct udp *through, const void *data, uint32_t len, struct net_addr from,
                                struct outbox *out)
{
    struct host_header *h = n->host.header;
    const struct coord_packet *p = coord_unpadded(data, len) ? coord_check(data, len, 0) : NULL;
    if (p && !is_genuine(n, p))
        return;
    if (p && p->head.type == COORD_WHICH)
        on_which(n, through, p, from);
    else if (p && coord_stands_by(&h->config.identity, p))
        follow(h, p->at);
    else if (p && !coord_knows(&h->config.identity, p))
        __atomic_add_fetch(&h->foreign, 1, __ATOMIC_RELAXED); /* not the space that this host joined */
    else if (p && p->head.to.machine == h->machine && p->head.epoch == h->life) {
        if (is_answer(p) && !coord_is_current(&h->term, p)) {
            __atomic_add_fetch(&h->foreign, 1, __ATOMIC_RELAXED); /* of a deposed leader: I22 */
            return;
        }
        if (is_answer(p))
            __atomic_store_n(&h->heard_ns, host_now(), __ATOMIC_RELEASE);
        obey(n, through, p, from, out);
    }
}

/* Whether a lock packet comes from a switch or lock server of the rack: hosts hear of locks from no other. With the mutex, so that
 * places do not change meanwhile. */
static bool is_granter(const struct host_header *h, struct net_addr from)
{
    const struct host_places *at = &h->places[h->places_version % 2];
    for (unsigned i = 0; i < rack_switches(&h->config); i++)
        if (net_addr_is(at->switches[i], from))
            return true;
    for (unsigned i = 0; i < h->config.servers; i++)
        if (net_addr_is(at->servers[i], from))
            return true;
    return false;
}

static void dispatch(struct net *n, struct udp *through, const struct packet_head *h, uint32_t len, struct net_addr from,
                     struct outbox *out)
{
    if (len < sizeof *h)
        return;
    if (h->family == PACKET_COORDINATOR)
        on_coordinator(n, through, h, len, from, out);
    else if (likely(is_granter(n->host.header, from)))
        n->host.design->packet(n->host.memory, h, len, host_now(), out);
    else
        __atomic_add_fetch(&n->host.header->forged, 1, __ATOMIC_RELAXED);
}

/* Parts that the switch did not decide: they go their way as single packets (wire/many.h). */
static void send_singly(struct net *n, struct udp *through, const void *data)
{
    const struct packet_head *h;
    uint32_t at = 0, len = 0;
    for (unsigned i = 0; (h = many_next_singly(data, &i, &at, &len));) {
        struct udp_out out = {.len = len, .data = h};
        if (h->from.machine != n->host.header->machine || !address_of(n->host.header, h, &out.to))
            continue;
        udp_send(through, &out, 1);
        __atomic_add_fetch(&n->sent, 1, __ATOMIC_RELAXED);
    }
}

static void dispatch_parts(struct net *n, struct udp *through, const void *data, struct net_addr from, struct outbox *out)
{
    const struct packet_head *h;
    uint32_t at = 0, len = 0;
    send_singly(n, through, data);
    for (unsigned i = 0; (h = many_next(data, &i, &at, &len));)
        dispatch(n, through, h, len, from, out);
}

void net_dispatch(struct net *n, struct udp *through, const struct udp_batch *batch)
{
    if (unlikely(through->refused)) {
        __atomic_add_fetch(&n->host.header->forged, through->refused, __ATOMIC_RELAXED);
        through->refused = 0;
    }
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    for (unsigned i = 0; i < batch->count; i++) {
        const uint8_t *data = batch->packet[i].data;
        const uint32_t len = batch->packet[i].len;
        if (!many_is(data, len))
            dispatch(n, through, (const struct packet_head *)(const void *)data, len, batch->packet[i].from, out);
        else if (many_sound(data, len))
            dispatch_parts(n, through, data, batch->packet[i].from, out);
    }
    host_leave(&n->host, out);
    net_flush_together(n, through, out);
}

static void sleep_on_socket(struct net *n, uint32_t request, uint32_t seen, uint64_t deadline)
{
    struct host_session *s = &n->host.sessions[n->session];
    uint64_t now = world_now(&world_real);
    if (now >= deadline)
        return;
    uint64_t left = min_u64(deadline - now, WAIT_MAX_NS);
    struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    __atomic_store_n(&s->sleeper, request + 1, __ATOMIC_SEQ_CST);
    if (net_bell(n, request) == seen)
        udp_sleep(&n->udp, &patience);
    __atomic_store_n(&s->sleeper, 0, __ATOMIC_SEQ_CST);
}

void net_receive(struct net *n, uint32_t request, uint32_t seen, uint64_t deadline)
{
    uint64_t begin = world_now(&world_real), now, spin = spin_for(&n->spin);
    while (net_bell(n, request) == seen) {
        if (udp_receive(&n->udp, &n->received)) {
            net_dispatch(n, &n->udp, &n->received);
            continue;
        }
        now = world_now(&world_real);
        if (now >= deadline)
            break;
        if (now - begin >= spin)
            sleep_on_socket(n, request, seen, deadline);
    }
    now = world_now(&world_real);
    spin_ended(&n->spin, spin, now - begin);
    __atomic_store_n(&n->busy_ns, now, __ATOMIC_RELAXED);
}

/* ---- waiting ---- */

void net_pass_on(struct net *n)
{
    uint32_t request = UINT32_MAX;
    pthread_mutex_lock(&n->handle.async.lock);
    if (n->waiting_count)
        request = n->waiting[0];
    pthread_mutex_unlock(&n->handle.async.lock);
    if (request != UINT32_MAX)
        net_ring(n, request);
}

static void wait_for_bell(struct net *n, uint32_t request, uint32_t seen, uint64_t until)
{
    pthread_mutex_lock(&n->handle.async.lock);
    n->waiting[n->waiting_count] = request;
    __atomic_add_fetch(&n->waiting_count, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&n->handle.async.lock);
    /* The thread that had the right may have passed it on before we were on the list. */
    if (pthread_mutex_trylock(&n->receiving))
        futex_sleep(&n->host.bells[request], seen, until);
    else
        pthread_mutex_unlock(&n->receiving);
    pthread_mutex_lock(&n->handle.async.lock);
    for (uint32_t i = 0; i < n->waiting_count; i++)
        if (n->waiting[i] == request) {
            n->waiting[i] = n->waiting[n->waiting_count - 1];
            __atomic_sub_fetch(&n->waiting_count, 1, __ATOMIC_SEQ_CST);
            break;
        }
    pthread_mutex_unlock(&n->handle.async.lock);
}

void net_listen(struct net *n, uint64_t until)
{
    struct pollfd done = {.fd = n->handle.async.event_fd, .events = POLLIN};
    uint64_t now = world_now(&world_real);
    if (pthread_mutex_trylock(&n->receiving)) {
        const struct timespec patience = {.tv_nsec = (long)min_u64(until > now ? until - now : 0, LISTEN_NS)};
        ppoll(&done, 1, &patience, NULL);
        return;
    }
    uint64_t spin = spin_for(&n->spin);
    unsigned count = udp_wait(&n->udp, &n->received, spin, until);
    spin_ended(&n->spin, spin, world_now(&world_real) - now);
    if (count)
        net_dispatch(n, &n->udp, &n->received);
    __atomic_store_n(&n->busy_ns, world_now(&world_real), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&n->receiving);
    net_pass_on(n);
    if (!count)
        net_duties(n, &n->udp, true);
}

int net_outcome(struct net *n, uint32_t request, struct outbox *box, struct packet_answer *out, uint64_t *expiry)
{
    host_enter(&n->host, box);
    int rc = n->host.design->outcome(n->host.memory, request, out);
    *expiry = net_expiry_locked(n);
    host_leave(&n->host, box);
    return rc;
}

void net_give_up(struct net *n, uint32_t request, int why, struct outbox *out)
{
    host_enter(&n->host, out);
    n->host.design->give_up(n->host.memory, request, why, host_now(), out);
    host_leave(&n->host, out);
}

/* Until something may have changed, or for a while. */
static void wait_once(struct net *n, uint32_t request, uint32_t seen, uint64_t until)
{
    if (!pthread_mutex_trylock(&n->receiving)) {
        net_receive(n, request, seen, until);
        pthread_mutex_unlock(&n->receiving);
        if (__atomic_load_n(&n->waiting_count, __ATOMIC_SEQ_CST))
            net_pass_on(n);
    } else {
        wait_for_bell(n, request, seen, until);
    }
    if (net_bell(n, request) == seen)
        net_duties(n, &n->udp, true); /* something may have got lost */
}

int net_await(struct net *n, uint32_t request, uint32_t seen, uint64_t deadline, struct packet_answer *out, uint64_t *expiry)
{
    bool given_up = false;
    for (;;) {
        uint64_t now = world_now(&world_real);
        if (now >= deadline && !given_up) {
            struct outbox *box = net_outbox();
            net_give_up(n, request, -ETIMEDOUT, box);
            net_flush(n, &n->udp, box);
            given_up = true;
        } else {
            wait_once(n, request, seen, min_u64(given_up ? DEADLINE_NEVER : deadline, now + n->host.header->config.retry_ns));
        }
        seen = net_bell(n, request);
        if (net_outcome(n, request, net_outbox(), out, expiry) != -EINPROGRESS)
            return out->result;
        if (!host_lives(&n->host, host_now()))
            return -PAWL_ELOST;
    }
}

/* ---- which thread holds which lock ----
 *
 * A deadlock is a circle of threads that wait in calls, each for a lock that the next one has locked, so the design is told which
 * thread waits and which one holds. Threads may also unlock for each other; then whether the thread that locked waits says nothing.
 * A session in which that was seen takes no part in the detection from then on. */

/* Unlike the kernel's number it is not used again. */
static uint32_t self(void)
{
    static uint32_t last;
    static _Thread_local uint32_t mine;
    while (!mine)
        mine = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return mine;
}

static uint32_t *owner_of(const struct net *n, uint32_t request)
{
    return &n->owners[request % n->host.header->config.requests];
}

uint32_t net_owner(const struct net *n)
{
    return __atomic_load_n(&n->hands_over, __ATOMIC_RELAXED) ? 0 : self();
}

void net_owns(struct net *n, uint32_t request, uint32_t owner)
{
    __atomic_store_n(owner_of(n, request), owner, __ATOMIC_RELAXED);
}

static ONCE void forget_owners(struct net *n)
{
    const struct packet_design *d = n->host.design;
    uint32_t requests = n->host.header->config.requests;
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    for (uint32_t i = 0; i < requests && d->thread; i++)
        d->thread(n->host.memory, n->session * requests + i, 0, host_now(), out);
    host_leave(&n->host, out);
    net_flush(n, &n->udp, out);
}

void net_touches(struct net *n, uint32_t request)
{
    uint32_t owner = __atomic_load_n(owner_of(n, request), __ATOMIC_RELAXED);
    if (likely(!owner || owner == self()))
        return;
    if (!__atomic_exchange_n(&n->hands_over, true, __ATOMIC_RELAXED))
        forget_owners(n);
}
