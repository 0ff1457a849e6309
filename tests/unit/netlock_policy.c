/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's policies (4.4) in a small rack, packets carried by hand: what an operator asks of a running switch, what it refuses,
 * and quotas as hosts meet them, for locks in the switch and on the server. And a server that lost its memory. */
#include "designs/netlock/server.h"
#include "designs/netlock/switch.h"
#include "designs/packet/requests.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>

#define REQUESTS 8
#define SERVER 2
#define FLIGHT 256
#define OPERATOR 1234 /* its port */

static struct rack_config config;
static void *host, *sw, *server, *steward;
static uint64_t now;
static struct outbox out;
static struct {
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
} flight[FLIGHT], commanded;
static unsigned flying;
static uint16_t grant_port; /* of the process that the latest GRANT was sent to */

static void take(void)
{
    for (unsigned i = 0; i < out.packets; i++) {
        CHECK(flying < FLIGHT);
        flight[flying].len = out.packet[i].len;
        memcpy(flight[flying++].data, outbox_packet(&out, i), out.packet[i].len);
    }
    outbox_clear(&out);
}

static void settle(void)
{
    take();
    for (unsigned n = 0; flying; n++) {
        CHECK(n < 10000);
        static _Alignas(8) uint8_t data[PACKET_MAX];
        uint32_t len = flight[0].len;
        memcpy(data, flight[0].data, len);
        memmove(flight, flight + 1, --flying * sizeof *flight);
        const struct packet_head *h = (const void *)data;
        if (h->type == NETLOCK_GRANT)
            grant_port = h->to.port;
        if (h->type == NETLOCK_COMMANDED) {
            commanded.len = len;
            memcpy(commanded.data, data, len);
        } else if (h->to.machine == MACHINE_STEWARD)
            netlock_steward_packet(steward, data, len, now, &out);
        else if (h->to.machine == MACHINE_SWITCH)
            netlock_switch_packet(sw, data, len, now, &out);
        else if (h->to.machine == SERVER)
            netlock_server_packet(server, data, len, now, &out);
        else
            netlock_host_packet(host, data, len, now, &out);
        take();
    }
}

static void pass(uint64_t ns)
{
    for (uint64_t end = now + ns; now < end;) {
        now = min_u64(now + config.retry_ns, end);
        netlock_host_tick(host, now, &out);
        take();
        netlock_server_tick(server, now, &out);
        take();
        netlock_switch_tick(sw, now, &out);
        settle();
    }
}

static void *made(uint64_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory);
    return memory;
}

static void begin(uint64_t options)
{
    config = (struct rack_config){.space = 1,
                                  .machines = 1,
                                  .sessions = 1,
                                  .requests = REQUESTS,
                                  .servers = 1,
                                  .server = {SERVER},
                                  .locks = 4,
                                  .lease_ns = NS_PER_S,
                                  .retry_ns = NS_PER_MS,
                                  .options = options | UINT64_C(64) << NETLOCK_SLOTS_SHIFT};
    now = NS_PER_S;
    flying = 0;
    sw = made(netlock_switch_bytes(&config));
    server = made(netlock_server_bytes(&config));
    steward = made(netlock_steward_bytes(&config));
    host = made(netlock_host_bytes(&config));
    netlock_steward_init(steward, &config, 1, true, now);
    netlock_switch_init(sw, &config, 1, now);
    netlock_server_init(server, &config, SERVER, 1, true, now);
    netlock_host_init(host, &config, 1, 1, now);
    pass(20 * NS_PER_MS);
}

static void end(void)
{
    CHECK_EQ(((const struct nl_switch *)sw)->drops.alien, 0);
    free(sw);
    free(server);
    free(steward);
    free(host);
}

static const struct netlock_status *status(void)
{
    return (const void *)(commanded.data + sizeof(struct netlock_packet));
}

/* 0, or why not. */
static int command(uint32_t kind, uint32_t tenant, uint64_t rate, uint32_t burst)
{
    union {
        struct {
            struct netlock_packet p;
            struct netlock_command c;
        };
        uint8_t bytes[NETLOCK_COMMAND_BYTES]; /* as long as the answer */
    } b = {.c = {.kind = kind, .tenant = tenant, .rate = rate, .burst = burst}};
    netlock_head(&b.p, config.space, NETLOCK_COMMAND, 0, (struct place){MACHINE_OPERATOR, OPERATOR},
                 (struct place){MACHINE_SWITCH, 0});
    b.p.head.nonce = 77;
    commanded.len = 0;
    netlock_switch_packet(sw, &b, sizeof b, now, &out);
    take();
    for (unsigned i = 0; i < flying; i++)
        if (((const struct packet_head *)(const void *)flight[i].data)->type == NETLOCK_COMMANDED)
            commanded = (typeof(commanded))flight[i];
    flying = 0;
    const struct netlock_packet *a = (const void *)commanded.data;
    CHECK_EQ(commanded.len, sizeof b);
    CHECK(a->head.nonce == 77 && a->head.to.port == OPERATOR);
    netlock_switch_packet(sw, &b, sizeof b - 1, now, &out); /* cut short: not answered */
    CHECK_EQ(out.packets, 0);
    return (int)a->stamp;
}

static void commands(void)
{
    begin(0);
    CHECK_EQ(command(NETLOCK_COMMAND_STATUS, 0, 0, 0), 0);
    CHECK(status()->active == 1 && status()->slots == 64 && status()->pipes == 1 && !status()->random && !status()->priorities);
    CHECK(status()->term == ((struct nl_switch *)sw)->term && status()->servers_needed == 0);
    CHECK_EQ(status()->bad, 0);
    CHECK_EQ(command(NETLOCK_COMMAND_STATUS, 0, 1000000, 0), 0);
    CHECK_EQ(status()->bad, 1);
    CHECK_EQ(command(NETLOCK_COMMAND_RANDOM, 0, 1, 0), 0);
    CHECK_EQ(status()->random, 1);
    CHECK_EQ(command(NETLOCK_COMMAND_RANDOM, 0, 2, 0), EINVAL);
    CHECK_EQ(status()->random, 1);
    CHECK_EQ(command(NETLOCK_COMMAND_RANDOM, 0, 0, 0), 0);
    CHECK_EQ(status()->random, 0);
    CHECK_EQ(command(NETLOCK_COMMAND_PRIORITIES, 0, NETLOCK_PRIORITIES, 0), 0);
    CHECK_EQ(status()->priorities, NETLOCK_PRIORITIES);
    CHECK_EQ(command(NETLOCK_COMMAND_PRIORITIES, 0, NETLOCK_PRIORITIES + 1, 0), EINVAL);
    CHECK_EQ(status()->priorities, NETLOCK_PRIORITIES);
    CHECK_EQ(command(NETLOCK_COMMAND_QUOTA, 3, 1000, 10), 0);
    CHECK(plane_quota_of(switch_plane(sw), 3).burst == 10);
    CHECK_EQ(command(NETLOCK_COMMAND_QUOTA, 65536 + 3, 2000, 20), EINVAL);
    CHECK(plane_quota_of(switch_plane(sw), 3).burst == 10 && !plane_quota_of(switch_plane(sw), UINT16_MAX).rate);
    CHECK_EQ(command(NETLOCK_COMMAND_PRIORITIES + 1, 0, 0, 0), EINVAL);
    CHECK_EQ(command(0, 0, 0, 0), EINVAL);
    now += 10 * NS_PER_S; /* its lease from the steward has ended */
    CHECK_EQ(command(NETLOCK_COMMAND_RANDOM, 0, 1, 0), EAGAIN);
    CHECK(!status()->active && !status()->random);
    end();
}

/* Every kind of lock goes on while queues are made anew. */
static void priorities_change(void)
{
    begin(0);
    for (uint64_t levels = 0; levels <= NETLOCK_PRIORITIES; levels++) {
        CHECK_EQ(command(NETLOCK_COMMAND_PRIORITIES, 0, levels, 0), 0);
        pass(50 * NS_PER_MS);
        for (uint32_t i = 0; i < 4; i++) {
            const struct packet_ask ask = {.request = i, .mode = PAWL_EXCLUSIVE, .index = i, .priority = 3};
            CHECK_EQ(netlock_acquire(host, &ask, now, &out), PACKET_WAIT);
            settle();
        }
        pass(50 * NS_PER_MS);
        for (uint32_t i = 0; i < 4; i++) {
            CHECK(requests_hold(host, i));
            CHECK_EQ(netlock_release(host, i, now, &out), 0);
            settle();
        }
        pass(50 * NS_PER_MS);
    }
    end();
}

static int ask(uint32_t request, uint64_t index, bool try)
{
    const struct packet_ask a = {.request = request, .mode = PAWL_SHARED, .index = index, .tenant = 5, .try = try};
    struct packet_answer answer;
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
    settle();
    return requests_outcome(host, request, &answer) ? 1 : answer.result;
}

/* A tenant or a priority that there is not: the switch refuses it, whatever else its policy is. */
static void no_such_policy(uint64_t levels)
{
    begin(0);
    CHECK_EQ(command(NETLOCK_COMMAND_PRIORITIES, 0, levels, 0), 0);
    pass(50 * NS_PER_MS);
    for (unsigned i = 0; i < 3; i++) {
        const struct packet_ask a = {.request = i,
                                     .mode = PAWL_SHARED,
                                     .index = 1,
                                     .tenant = i == 1 ? PACKET_TENANTS : 0,
                                     .priority = i == 2 ? NETLOCK_PRIORITIES : 0};
        bool fine = !i || (i == 2 && !levels); /* without priorities their number is not looked at */
        struct packet_answer answer;
        CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
        settle();
        CHECK_EQ(requests_outcome(host, i, &answer), 0);
        CHECK_EQ(answer.result, fine ? 0 : -EINVAL);
    }
    end();
}

/* So many at once, then one by one: a try is refused, the others wait for their turn. */
static void quota(uint64_t options)
{
    begin(options);
    CHECK_EQ(command(NETLOCK_COMMAND_QUOTA, 5, 10, 2), 0);
    pass(NS_PER_MS);
    CHECK_EQ(ask(0, 1, false), 0);
    CHECK_EQ(ask(1, 2, false), 0);
    CHECK_EQ(ask(2, 1, true), -EAGAIN);
    CHECK_EQ(ask(3, 2, false), 1);
    uint64_t until = request_at(host, 3)->next_ns;
    CHECK(until > now + 50 * NS_PER_MS && until < now + 120 * NS_PER_MS);
    CHECK_EQ(command(NETLOCK_COMMAND_STATUS, 0, 0, 0), 0);
    CHECK_EQ(status()->over_quota, 2);
    pass(50 * NS_PER_MS);
    CHECK(!requests_hold(host, 3));
    pass(until - now);
    CHECK(requests_hold(host, 3));
    const struct packet_ask another = {.request = 4, .mode = PAWL_SHARED, .index = 1, .tenant = 6};
    CHECK_EQ(netlock_acquire(host, &another, now, &out), PACKET_WAIT); /* another tenant has no quota */
    settle();
    CHECK(requests_hold(host, 4));
    CHECK_EQ(command(NETLOCK_COMMAND_QUOTA, 5, 0, 0), 0);
    CHECK_EQ(ask(5, 1, false), 0);
    CHECK_EQ(ask(6, 1, false), 0);
    end();
}

/* A host whose lease has ended gets nothing by an ACQUIRE that was under way for long: it would not know that it holds the lock. */
static void late_request(void)
{
    begin(0);
    const struct packet_ask a = {.request = 0, .mode = PAWL_EXCLUSIVE, .index = 1};
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
    CHECK_EQ(out.packets, 1);
    static struct netlock_packet late;
    memcpy(&late, outbox_packet(&out, 0), sizeof late);
    outbox_clear(&out);
    for (uint64_t until = now + 3 * config.lease_ns; now < until; now += config.retry_ns) { /* the host is silent */
        netlock_server_tick(server, now, &out);
        take();
        netlock_switch_tick(sw, now, &out);
        settle();
    }
    for (unsigned i = 0; i < 2; i++) {
        uint64_t stale = ((const struct nl_switch *)sw)->drops.stale;
        netlock_switch_packet(sw, &late, sizeof late, now, &out);
        CHECK_EQ(out.packets, 0);
        CHECK_EQ(((const struct nl_switch *)sw)->drops.stale, stale + 1);
    }
    end();
}

/* A grant goes to the process that asked. If that one has ended, another process of its host asks again, and is told. */
static void ports(uint64_t options)
{
    begin(options);
    const struct packet_ask first = {.request = 0, .port = 9, .mode = PAWL_EXCLUSIVE, .index = 1},
                            second = {.request = 1, .port = 11, .mode = PAWL_EXCLUSIVE, .index = 1};
    CHECK_EQ(netlock_acquire(host, &first, now, &out), PACKET_WAIT);
    settle();
    CHECK(requests_hold(host, 0) && grant_port == 9);
    CHECK_EQ(netlock_acquire(host, &second, now, &out), PACKET_WAIT);
    CHECK_EQ(out.packets, 1);
    struct netlock_packet again;
    memcpy(&again, outbox_packet(&out, 0), sizeof again);
    settle();
    again.head.from.port = 12;
    if (again.head.to.machine == SERVER)
        netlock_server_packet(server, &again, sizeof again, now, &out);
    else
        netlock_switch_packet(sw, &again, sizeof again, now, &out);
    settle();
    CHECK_EQ(netlock_release(host, 0, now, &out), 0);
    settle();
    CHECK(requests_hold(host, 1) && grant_port == 12);
    end();
}

/* A probe for deadlocks without a step is wrong, and not merely late. */
static void bad_probe(void)
{
    begin(NETLOCK_SERVERS_ONLY);
    const struct packet_drops *d = &((const struct server *)server)->drops;
    struct netlock_packet p;
    memset(&p, 0, sizeof p);
    netlock_head(&p, config.space, NETLOCK_PROBE, 1, (struct place){1, PORT_POOL}, (struct place){SERVER, PORT_SERVER});
    p.head.index = 1;
    p.head.nonce = UINT64_C(1) << NETLOCK_SLOT_BITS;
    p.flags = NETLOCK_FORWARDED;
    p.mode = NETLOCK_SHARED;
    p.client = (struct place){1, PORT_POOL};
    uint64_t bad = d->bad, stale = d->stale;
    netlock_server_packet(server, &p, sizeof p, now, &out);
    CHECK(d->bad == bad + 1 && d->stale == stale && !out.packets);
    end();
}

/* A server that lost its memory does not know who holds: it grants once the leases that it may have given have ended. Whether the
 * next holder came too early. */
static bool restarted_server(uint64_t mistakes)
{
    begin(NETLOCK_SERVERS_ONLY);
    const struct packet_ask first = {.request = 0, .mode = PAWL_EXCLUSIVE, .index = 1},
                            second = {.request = 1, .mode = PAWL_EXCLUSIVE, .index = 1};
    CHECK_EQ(netlock_acquire(host, &first, now, &out), PACKET_WAIT);
    settle();
    CHECK(requests_hold(host, 0));
    uint64_t until =
        netlock_expiry(host, 0); /* so long the first client holds, unless it hears otherwise, which it does not here */
    CHECK(until > now && until < UINT64_MAX);
    memset(server, 0, netlock_server_bytes(&config));
    config.mistakes = mistakes;
    netlock_server_init(server, &config, SERVER, 2, false, now);
    CHECK_EQ(netlock_acquire(host, &second, now, &out), PACKET_WAIT);
    settle();
    while (!requests_hold(host, 1)) {
        CHECK(now < until + 2 * config.lease_ns);
        pass(NS_PER_MS);
    }
    bool early = now < until;
    end();
    return early;
}

/* A packet needed too many passes: the control plane goes on with it, and counts the writers of every lock. None was wrong. */
static void recounts(void)
{
    begin(0);
    struct plane *plane = switch_plane(sw);
    for (uint32_t i = 0; i < 3; i++) {
        const struct packet_ask a = {.request = i, .mode = i < 2 ? PAWL_EXCLUSIVE : PAWL_SHARED, .index = 1};
        CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
        settle();
    }
    uint32_t lock = plane_match(plane, 1);
    CHECK(lock != PLANE_NO_LOCK && plane_get(plane, NETLOCK_EXCL, lock) == 2);
    plane->counts.unfinished++;
    pass(10 * NS_PER_MS);
    CHECK_EQ(((const struct nl_switch *)sw)->unfinished, plane->counts.unfinished);
    CHECK_EQ(plane_get(plane, NETLOCK_EXCL, lock), 2);
    CHECK(requests_hold(host, 0) && !requests_hold(host, 1) && !requests_hold(host, 2));
    end();
}

int main(void)
{
    CHECK(!restarted_server(0));
    CHECK(restarted_server(NETLOCK_MISTAKE_HASTY_SERVER)); /* of busted-netlock-hasty */
    recounts();
    bad_probe();
    ports(0);
    ports(NETLOCK_SERVERS_ONLY);
    late_request();
    commands();
    priorities_change();
    no_such_policy(0);
    no_such_policy(2);
    quota(0);
    quota(NETLOCK_SERVERS_ONLY);
    return 0;
}
