/* SPDX-License-Identifier: Apache-2.0 */
/* For unit/netlock_order and unit/netlock_kernel: hosts, switch and a server with one lock, packets carried by hand. */
#ifndef PAWL_TESTS_UNIT_NETLOCK_ORDER_KIT_H
#define PAWL_TESTS_UNIT_NETLOCK_ORDER_KIT_H

#include "designs/netlock/server.h"
#include "designs/netlock/switch.h"
#include "designs/packet/requests.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>

#define HOSTS 4
#define REQUESTS 8
#define ALL (HOSTS * REQUESTS)
#define FLIGHT 4096
#define HOP_NS 1000
/* When a request comes, a LAST may be in flight, then NOTIFY and PUSH; and so may be the grant of another request. */
#define KNOWN_NS (5 * HOP_NS)

struct flying {
    uint64_t at_ns;
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
};

enum { IDLE, ASKED, SEEN, HELD };

struct bench {
    struct rack_config config;
    void *host[HOSTS + 1], *sw, *server, *steward;
    uint16_t dead; /* a host that hears nothing */
    struct flying *flight;
    unsigned flying;
    uint64_t now, arrivals;
    struct rng random;
    struct {
        uint64_t arrival, nonce, seen_ns;
        uint8_t state, mode, priority;
    } request[ALL];
    struct outbox out;
    uint64_t grants, overflowed, low, calls, lasts, gone, seed;
    uint64_t overtaken, inverted; /* violations of the order: within a priority, and between priorities */
};

/* A program in the kernel that has the switch's registers, too. */
static struct kernel {
    struct bench *b;
    struct plane *plane;                   /* null: there is no such program */
    bool busy;                             /* it has another packet of the lock at first, */
    bool stuck;                            /* or all the time */
    bool deaf, gone;                       /* it carries no order out; it is not there any more */
    void (*before_close)(struct bench *b); /* a packet that passes just before the lock is closed */
    unsigned orders[NETLOCK_ORDER_REMOVE + 1];
} kernel;

/* Every path keeps its order: all packets take the same time. */
static void send(struct bench *b)
{
    for (unsigned i = 0; i < b->out.packets; i++) {
        CHECK(b->flying < FLIGHT);
        struct flying *f = &b->flight[b->flying++];
        f->at_ns = b->now + HOP_NS;
        f->len = b->out.packet[i].len;
        memcpy(f->data, outbox_packet(&b->out, i), f->len);
    }
    outbox_clear(&b->out);
}

static unsigned number_of(const struct netlock_packet *p, uint16_t machine)
{
    return (machine - 1u) * REQUESTS + netlock_request_of(p->head.nonce);
}

/* The first time that the switch sees it is its place in the order. */
static void note_arrival(struct bench *b, const struct netlock_packet *p)
{
    if (p->head.type != NETLOCK_ACQUIRE || p->head.to.machine != MACHINE_SWITCH)
        return;
    unsigned i = number_of(p, p->head.from.machine);
    if (b->request[i].state != ASKED && b->request[i].nonce == p->head.nonce)
        return;
    b->request[i].nonce = p->head.nonce;
    b->request[i].arrival = ++b->arrivals;
    b->request[i].state = SEEN;
    b->request[i].seen_ns = b->now;
}

/* A granted request must not overtake an earlier one of its priority that it conflicts with. */
static void note_grant(struct bench *b, const struct netlock_packet *p)
{
    unsigned i = number_of(p, p->head.to.machine);
    if (p->head.type != NETLOCK_GRANT || b->request[i].state != SEEN || b->request[i].nonce != p->head.nonce)
        return;
    for (unsigned j = 0; j < ALL; j++) {
        bool waits = j != i && b->request[j].state == SEEN;
        b->overtaken += waits && b->request[j].priority == b->request[i].priority &&
                        b->request[j].arrival < b->request[i].arrival &&
                        (b->request[i].mode == PAWL_EXCLUSIVE || b->request[j].mode == PAWL_EXCLUSIVE);
        b->inverted += waits && b->request[j].priority < b->request[i].priority && b->now - b->request[j].seen_ns > KNOWN_NS;
    }
    b->request[i].state = HELD;
    b->grants++;
}

static void deliver(struct bench *b)
{
    struct flying f = b->flight[0];
    memmove(b->flight, b->flight + 1, --b->flying * sizeof f);
    const struct netlock_packet *p = (const struct netlock_packet *)(const void *)f.data;
    b->now = f.at_ns;
    if (p->head.to.machine == MACHINE_STEWARD) {
        netlock_steward_packet(b->steward, p, f.len, b->now, &b->out);
    } else if (p->head.to.machine == MACHINE_SWITCH) {
        note_arrival(b, p);
        b->lasts += p->head.type == NETLOCK_LAST;
        netlock_switch_packet(b->sw, p, f.len, b->now, &b->out);
    } else if (p->head.to.machine == HOSTS + 1) {
        b->overflowed += (p->flags & NETLOCK_OVERFLOW) != 0;
        b->low += p->head.type == NETLOCK_ACQUIRE && p->flags & NETLOCK_LOW;
        b->calls += p->head.type == NETLOCK_NOTIFY && p->flags & NETLOCK_LOW;
        netlock_server_packet(b->server, p, f.len, b->now, &b->out);
    } else if (p->head.to.machine != b->dead) {
        note_grant(b, p);
        b->gone += p->head.type == NETLOCK_GONE;
        netlock_host_packet(b->host[p->head.to.machine], p, f.len, b->now, &b->out);
    }
    send(b);
}

static void settle(struct bench *b, unsigned packets)
{
    for (unsigned i = 0; i < packets && b->flying; i++)
        deliver(b);
}

static void tick_all(struct bench *b)
{
    for (unsigned h = 1; h <= HOSTS; h++) {
        netlock_host_tick(b->host[h], b->now, &b->out);
        send(b);
    }
    netlock_switch_tick(b->sw, b->now, &b->out);
    send(b);
    netlock_server_tick(b->server, b->now, &b->out);
    send(b);
}

/* As the kernel does: on the same registers. */
static int give_order(void *ctx, struct netlock_order *o)
{
    struct kernel *k = ctx;
    struct plane *p = k->plane;
    void (*pass)(struct bench *) = o->kind == NETLOCK_ORDER_CLOSE ? k->before_close : NULL;
    if (k->gone)
        return -ENODEV;
    o->pad = k->stuck || (k->busy && ++k->orders[0] % 3);
    if (o->pad || k->deaf)
        return 0;
    k->orders[o->kind]++;
    if (pass) {
        k->before_close = NULL;
        pass(k->b);
    }
    p->in_kernel = false;
    if (o->kind == NETLOCK_ORDER_PASS)
        plane_pass(p, o->lock, &o->pass);
    o->done = o->kind != NETLOCK_ORDER_IF_EMPTY || plane_shut_if_empty(p, o->lock);
    p->in_kernel = true;
    return 0;
}

static void no_grace(void *ctx)
{
    (void)ctx;
}

static void attach_kernel(struct bench *b, struct plane *p)
{
    kernel = (struct kernel){.b = b, .plane = p};
    plane_in_kernel(p, &(struct plane_kernel){.ctx = &kernel, .order = give_order, .grace = no_grace});
}

static void detach_kernel(void)
{
    if (kernel.plane)
        plane_in_kernel(kernel.plane, NULL);
    kernel.plane = NULL;
}

static struct bench *set_up(uint64_t seed, uint64_t options)
{
    struct bench *b = calloc(1, sizeof *b);
    CHECK(b);
    rng_seed(&b->random, seed);
    b->seed = seed;
    b->config = (struct rack_config){.space = 1,
                                     .machines = HOSTS,
                                     .sessions = 1,
                                     .requests = REQUESTS,
                                     .servers = 1,
                                     .server = {HOSTS + 1},
                                     .locks = 1,
                                     .lease_ns = NS_PER_S,
                                     .retry_ns = 100 * NS_PER_MS,
                                     .options = NETLOCK_CHURN | options};
    b->flight = calloc(FLIGHT, sizeof *b->flight);
    b->sw = calloc(1, netlock_switch_bytes(&b->config));
    b->server = calloc(1, netlock_server_bytes(&b->config));
    b->steward = calloc(1, netlock_steward_bytes(&b->config));
    CHECK(b->flight && b->sw && b->server && b->steward);
    b->now = NS_PER_MS;
    netlock_steward_init(b->steward, &b->config, (uint32_t)(1 + seed), true, b->now);
    netlock_switch_init(b->sw, &b->config, (uint32_t)(1 + seed), b->now);
    netlock_server_init(b->server, &b->config, HOSTS + 1, 1, true, b->now);
    for (unsigned h = 1; h <= HOSTS; h++) {
        CHECK(b->host[h] = calloc(1, netlock_host_bytes(&b->config)));
        netlock_host_init(b->host[h], &b->config, (uint16_t)h, 1, b->now);
    }
    for (unsigned i = 0; i < 8; i++) { /* until all know each other */
        tick_all(b);
        settle(b, FLIGHT);
        b->now += b->config.retry_ns;
    }
    return b;
}

static void tear_down(struct bench *b)
{
    detach_kernel();
    for (unsigned h = 1; h <= HOSTS; h++)
        free(b->host[h]);
    free(b->sw);
    free(b->server);
    free(b->steward);
    free(b->flight);
    free(b);
}

/* Moves the lock to the switch, with queues of that size. */
static void move_in_anew(struct bench *b, uint32_t size, uint32_t wait_size)
{
    for (unsigned i = 0; switch_move_out(b->sw, 0, b->now, &b->out) != -ENOENT; i++) { /* if the trial had moved it */
        CHECK(i < 100);
        send(b);
        settle(b, FLIGHT);
    }
    CHECK_EQ(switch_move_in(b->sw, 0, size, wait_size, b->now, &b->out), 0);
    send(b);
    settle(b, FLIGHT);
}

/* The lock stays in the switch, with room for all whose priority has a queue there. */
static struct bench *set_up_low(uint64_t seed, uint32_t levels)
{
    struct bench *b = set_up(seed, NETLOCK_PRIORITY | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT);
    ((struct nl_switch *)b->sw)->churn_ns = UINT64_MAX;
    ((struct nl_switch *)b->sw)->policy.levels = levels;
    move_in_anew(b, ALL, ALL);
    return b;
}

static void ask_in_mode(struct bench *b, unsigned i, enum pawl_mode mode, uint8_t priority)
{
    const struct packet_ask ask = {.request = i % REQUESTS, .mode = mode, .priority = priority};
    b->request[i].mode = (uint8_t)mode;
    b->request[i].priority = priority;
    b->request[i].state = ASKED;
    CHECK_EQ(netlock_acquire(b->host[1 + i / REQUESTS], &ask, b->now, &b->out), PACKET_WAIT);
}

static void ask_for(struct bench *b, unsigned i, uint8_t priority)
{
    ask_in_mode(b, i, PAWL_EXCLUSIVE, priority);
}

static void release(struct bench *b, unsigned host)
{
    CHECK_EQ(netlock_release(b->host[host], 0, b->now, &b->out), 0);
    send(b);
}

/* A host is lost, and never comes back under its number (kept seeds 100155 and 100841). */
static void lose_host(struct bench *b, uint16_t host)
{
    b->dead = host;
    switch_bar(b->sw, switch_machine(b->sw, host), switch_machine(b->sw, host)->until_ns);
    switch_end_machine(b->sw, host, b->now, &b->out);
    send(b);
}

#endif
