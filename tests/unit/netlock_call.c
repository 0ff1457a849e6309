/* SPDX-License-Identifier: Apache-2.0 */
/* Data beside NetLock's locks, packet by packet: two hosts, the switch and a lock server that keeps a number per lock, and a
 * network whose packets this test passes on, holds back and doubles by hand. */
#include "designs/netlock/host.h"
#include "designs/packet/requests.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>

#define HOSTS 2
#define SERVER 3
#define LOCKS 4
#define LEASE_NS (10 * NS_PER_MS)
#define RETRY_NS (100 * NS_PER_US)
#define PACKETS 4096

struct wire_packet {
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
};

static struct {
    struct rack_config config;
    void *host[HOSTS], *net_switch, *server, *steward;
    uint64_t now;
    struct wire_packet queue[PACKETS];
    unsigned first, count;
    struct wire_packet kept; /* held back */
    uint8_t keep;            /* the next packet of this type is */
    unsigned stopped;        /* a host that does nothing; HOSTS: none */
    bool cut;                /* host 0 and the server do not hear each other */
    unsigned seen[NETLOCK_TYPES];
    uint64_t value[LOCKS], done;
} rack;

static struct outbox out;

static size_t apply(void *ctx, const pawl_work *w, void *reply, size_t room)
{
    uint64_t n;
    CHECK(ctx == &rack && w->len == sizeof n && room >= sizeof n);
    memcpy(&n, w->bytes, sizeof n);
    memcpy(reply, &rack.value[w->lock], sizeof n);
    rack.value[w->lock] = n;
    rack.done++;
    return sizeof n;
}

static void send_all(void)
{
    for (unsigned i = 0; i < out.packets; i++) {
        struct wire_packet *p = &rack.queue[(rack.first + rack.count++) % PACKETS];
        CHECK(rack.count < PACKETS);
        p->len = out.packet[i].len;
        memcpy(p->data, outbox_packet(&out, i), p->len);
    }
    outbox_clear(&out);
}

static void start(uint64_t options)
{
    rack.config = (struct rack_config){.space = 1,
                                       .machines = HOSTS,
                                       .sessions = 2,
                                       .requests = HOST_CALLS + 1,
                                       .servers = 1,
                                       .server = {SERVER},
                                       .switches = 1,
                                       .locks = LOCKS,
                                       .lease_ns = LEASE_NS,
                                       .retry_ns = RETRY_NS,
                                       .options = options,
                                       .mistakes = options}; /* policies and mistakes have bits of their own */
    const struct rack_config *c = &rack.config;
    rack.now = NS_PER_S;
    rack.first = rack.count = 0;
    rack.done = 0;
    memset(rack.value, 0, sizeof rack.value);
    for (unsigned i = 0; i < HOSTS; i++) {
        free(rack.host[i]);
        rack.host[i] = calloc(1, netlock_host_bytes(c));
        netlock_host_init(rack.host[i], c, (uint16_t)(1 + i), 1, rack.now);
    }
    free(rack.net_switch);
    free(rack.steward);
    free(rack.server);
    rack.net_switch = calloc(1, netlock_switch_bytes(c));
    rack.steward = calloc(1, netlock_steward_bytes(c));
    rack.server = calloc(1, netlock_server_bytes(c));
    netlock_switch_init(rack.net_switch, c, 1, rack.now);
    netlock_steward_init(rack.steward, c, 1000, true, rack.now);
    netlock_server_init(rack.server, c, SERVER, 1, true, rack.now);
    netlock_server_apply(rack.server, apply, &rack);
}

/* The server has lost its memory; its data are on a disk. */
static void restart_server(void)
{
    memset(rack.server, 0, netlock_server_bytes(&rack.config));
    netlock_server_init(rack.server, &rack.config, SERVER, 2, false, rack.now);
    netlock_server_apply(rack.server, apply, &rack);
}

static bool is_cut(const struct packet_head *h)
{
    return rack.cut && ((h->from.machine == 1 && h->to.machine == SERVER) || (h->from.machine == SERVER && h->to.machine == 1));
}

static void deliver(const struct wire_packet *p)
{
    const struct packet_head *h = (const void *)p->data;
    if (is_cut(h))
        return;
    rack.seen[h->type]++;
    if (h->to.machine == MACHINE_SWITCH)
        netlock_switch_packet(rack.net_switch, h, p->len, rack.now, &out);
    else if (h->to.machine == MACHINE_STEWARD)
        netlock_steward_packet(rack.steward, h, p->len, rack.now, &out);
    else if (h->to.machine == SERVER)
        netlock_server_packet(rack.server, h, p->len, rack.now, &out);
    else if (h->to.machine != rack.stopped + 1)
        netlock_host_packet(rack.host[h->to.machine - 1], h, p->len, rack.now, &out);
    send_all();
}

static void deliver_all(void)
{
    while (rack.count) {
        struct wire_packet p = rack.queue[rack.first];
        rack.first = (rack.first + 1) % PACKETS;
        rack.count--;
        if (rack.keep && ((const struct packet_head *)(const void *)p.data)->type == rack.keep) {
            rack.kept = p;
            rack.keep = 0;
            continue;
        }
        deliver(&p);
    }
}

static void pass_time(uint64_t ns, unsigned stopped)
{
    rack.stopped = stopped;
    for (uint64_t end = rack.now + ns; rack.now < end; rack.now += RETRY_NS / 2) {
        for (unsigned i = 0; i < HOSTS; i++)
            if (i != stopped) {
                netlock_host_tick(rack.host[i], rack.now, &out);
                send_all();
            }
        netlock_switch_tick(rack.net_switch, rack.now, &out);
        send_all();
        netlock_server_tick(rack.server, rack.now, &out);
        send_all();
        netlock_steward_tick(rack.steward, rack.now, &out);
        send_all();
        deliver_all();
    }
}

static void ask(unsigned host, uint32_t request, uint64_t lock, uint64_t value, bool once)
{
    const struct packet_ask a = {
        .request = request, .port = 100, .mode = PAWL_EXCLUSIVE, .index = lock, .bytes = &value, .len = sizeof value, .once = once};
    CHECK_EQ(netlock_acquire(rack.host[host], &a, rack.now, &out), PACKET_WAIT);
    send_all();
}

static int result(unsigned host, uint32_t request)
{
    struct packet_answer a;
    return requests_outcome(rack.host[host], request, &a) ? -EINPROGRESS : a.result;
}

static uint64_t reply(unsigned host, uint32_t request)
{
    uint64_t n = UINT64_MAX;
    uint32_t len = 0;
    CHECK_EQ(netlock_reply(rack.host[host], request, &n, sizeof n, &len, &out), 0);
    CHECK_EQ(len, sizeof n);
    return n;
}

static void release(unsigned host, uint32_t request)
{
    CHECK_EQ(netlock_release(rack.host[host], request, rack.now, &out), 0);
    send_all();
    pass_time(4 * RETRY_NS, HOSTS);
    CHECK(requests_idle(rack.host[host], request));
}

static void begin(uint64_t options)
{
    start(options);
    pass_time(3 * LEASE_NS, HOSTS);
    memset(rack.seen, 0, sizeof rack.seen);
}

/* A free lock, in the switch and on the server: no GRANT, and the client sends nothing more. */
static void one_round_trip(uint64_t options)
{
    begin(options);
    ask(0, 0, 1, 5, false);
    deliver_all();
    CHECK_EQ(result(0, 0), 0);
    CHECK_EQ(reply(0, 0), 0);
    CHECK(requests_hold(rack.host[0], 0));
    CHECK_EQ(rack.value[1], 5);
    CHECK_EQ(rack.seen[NETLOCK_ACQUIRE], options & NETLOCK_SERVERS_ONLY ? 2 : 1);
    CHECK_EQ(rack.seen[NETLOCK_DATA], options & NETLOCK_SERVERS_ONLY ? 0 : 1); /* there, lock and data are in one place */
    CHECK_EQ(rack.seen[NETLOCK_ANSWER], 1);
    CHECK_EQ(rack.seen[NETLOCK_GRANT], 0);
    release(0, 0);
    ask(0, 1, 1, 6, true); /* given back at once */
    deliver_all();
    CHECK_EQ(result(0, 1), 0);
    CHECK_EQ(reply(0, 1), 5);
    CHECK(requests_idle(rack.host[0], 1));
}

/* A lock that is not free: the bytes of the request are dropped, and sent again when it has been granted. */
static void dropped_and_sent_again(uint64_t options)
{
    begin(options);
    ask(0, 0, 1, 5, false);
    deliver_all();
    CHECK_EQ(reply(0, 0), 0);
    ask(1, 0, 1, 6, false);
    deliver_all();
    CHECK_EQ(result(1, 0), -EINPROGRESS);
    CHECK_EQ(rack.value[1], 5);
    unsigned before = rack.seen[NETLOCK_GRANT];
    CHECK_EQ(netlock_release(rack.host[0], 0, rack.now, &out), 0);
    send_all();
    deliver_all();
    CHECK_EQ(rack.seen[NETLOCK_GRANT], before + 1);
    CHECK_EQ(result(1, 0), 0);
    CHECK_EQ(reply(1, 0), 5);
    CHECK_EQ(rack.value[1], 6);
    CHECK_EQ(rack.done, 2);
    release(1, 0);
}

/* Every packet of it comes three times, some very late. */
static void done_once(void)
{
    begin(0);
    rack.keep = NETLOCK_DATA;
    ask(0, 0, 1, 5, true);
    deliver_all();
    struct wire_packet late = rack.kept;
    pass_time(4 * RETRY_NS, HOSTS); /* asked again, and done */
    CHECK_EQ(result(0, 0), 0);
    CHECK_EQ(rack.done, 1);
    deliver(&late);
    deliver(&late);
    deliver_all();
    CHECK_EQ(rack.done, 1);
    CHECK_EQ(reply(0, 0), 0);
    ask(0, 1, 1, 6, true);
    deliver_all();
    deliver(&late);
    deliver_all();
    CHECK_EQ(rack.done, 2);
    CHECK_EQ(rack.value[1], 6);
}

/* It comes when its host has long lost the lock, and another has written: refused. */
static void fenced(bool busted)
{
    begin(busted ? NETLOCK_MISTAKE_FENCE : 0);
    rack.keep = NETLOCK_DATA;
    ask(0, 0, 1, 5, true);
    deliver_all();
    struct wire_packet late = rack.kept;
    pass_time(2 * LEASE_NS, 0);
    ask(1, 0, 1, 6, true);
    pass_time(2 * LEASE_NS, 0);
    CHECK_EQ(result(1, 0), 0);
    CHECK_EQ(rack.value[1], 6);
    deliver(&late);
    CHECK_EQ(rack.value[1], busted ? 5 : 6);
}

/* Given up while its outcome is unknown: it was not done, and never is. */
static void given_up(void)
{
    begin(0);
    rack.keep = NETLOCK_DATA;
    ask(0, 0, 1, 5, false);
    deliver_all();
    struct wire_packet late = rack.kept;
    CHECK_EQ(netlock_give_up(rack.host[0], 0, -ETIMEDOUT, rack.now, &out), PACKET_WAIT);
    send_all();
    CHECK_EQ(result(0, 0), -EINPROGRESS);
    deliver_all();
    CHECK_EQ(result(0, 0), -ETIMEDOUT);
    deliver(&late);
    pass_time(4 * RETRY_NS, HOSTS);
    CHECK_EQ(rack.done, 0);
    CHECK(requests_idle(rack.host[0], 0));
    /* The same, but it had been: then the lock is held, too. */
    rack.keep = NETLOCK_ANSWER;
    ask(0, 1, 1, 6, false);
    deliver_all();
    CHECK_EQ(rack.done, 1);
    CHECK_EQ(netlock_give_up(rack.host[0], 1, -ETIMEDOUT, rack.now, &out), PACKET_WAIT);
    send_all();
    deliver_all();
    CHECK_EQ(result(0, 1), 0);
    CHECK_EQ(reply(0, 1), 0);
    release(0, 1);
}

/* Given up while the lease at the server lapses. The lock is another host's when the answer comes: it is not held by both. */
static void given_up_and_lapsed(void)
{
    begin(NETLOCK_SERVERS_ONLY);
    rack.keep = NETLOCK_ANSWER;
    ask(0, 0, 1, 5, false);
    deliver_all();
    CHECK_EQ(rack.done, 1);
    rack.cut = true;
    pass_time(LEASE_NS * 7 / 10, HOSTS);
    CHECK_EQ(netlock_give_up(rack.host[0], 0, -ETIMEDOUT, rack.now, &out), PACKET_WAIT);
    send_all();
    ask(1, 0, 1, 6, false);
    pass_time(LEASE_NS * 45 / 100, HOSTS);
    CHECK_EQ(result(1, 0), 0);
    CHECK_EQ(result(0, 0), -EINPROGRESS);
    rack.cut = false;
    pass_time(LEASE_NS * 4 / 10, HOSTS);
    CHECK(requests_hold(rack.host[1], 0) && !requests_hold(rack.host[0], 0));
    CHECK_EQ(result(0, 0), -PAWL_EUNKNOWN); /* it was done, and the reply is of a lost hold */
    CHECK_EQ(rack.value[1], 6);
    release(1, 0);
}

/* The data server has lost its memory: the outcome is unknown, and the server's next life does not do it again. */
static void forgotten(void)
{
    begin(0);
    rack.keep = NETLOCK_ANSWER;
    ask(0, 0, 1, 5, false);
    deliver_all();
    CHECK_EQ(rack.done, 1);
    restart_server();
    pass_time(4 * LEASE_NS, HOSTS);
    CHECK_EQ(result(0, 0), -PAWL_EUNKNOWN);
    CHECK_EQ(rack.done, 1);
    CHECK(requests_idle(rack.host[0], 0));
    ask(0, 1, 1, 6, true);
    pass_time(4 * RETRY_NS, HOSTS);
    CHECK_EQ(result(0, 1), 0);
    CHECK_EQ(reply(0, 1), 5);
}

/* Under a lock that is held, as often as one likes; giving up does not cost the lock. */
static void under_a_hold(void)
{
    begin(0);
    ask(0, 0, 1, 5, false);
    deliver_all();
    CHECK_EQ(reply(0, 0), 0);
    for (uint64_t n = 6; n < 9; n++) {
        CHECK_EQ(netlock_call(rack.host[0], 0, &n, sizeof n, rack.now, &out), PACKET_WAIT);
        send_all();
        deliver_all();
        CHECK_EQ(result(0, 0), 0);
        CHECK_EQ(reply(0, 0), n - 1);
    }
    uint64_t n = 9;
    rack.keep = NETLOCK_DATA;
    CHECK_EQ(netlock_call(rack.host[0], 0, &n, sizeof n, rack.now, &out), PACKET_WAIT);
    send_all();
    deliver_all();
    CHECK_EQ(netlock_give_up(rack.host[0], 0, -ETIMEDOUT, rack.now, &out), PACKET_WAIT);
    send_all();
    deliver_all();
    CHECK_EQ(result(0, 0), -ETIMEDOUT);
    CHECK(requests_hold(rack.host[0], 0));
    CHECK_EQ(rack.value[1], 8);
    release(0, 0);
    CHECK_EQ(netlock_call(rack.host[0], 0, &n, sizeof n, rack.now, &out), -PAWL_ENOTOWNER);
}

/* More than can be at once, and more than fits. */
static void limits(void)
{
    uint8_t large[NETLOCK_PAYLOAD_MAX + 1] = {0};
    struct packet_ask a = {.mode = PAWL_EXCLUSIVE, .bytes = large, .len = sizeof large};
    begin(0);
    CHECK_EQ(netlock_acquire(rack.host[0], &a, rack.now, &out), -EMSGSIZE);
    outbox_clear(&out);
    for (uint32_t first = 0; first <= HOST_CALLS + 1; first += HOST_CALLS + 1) { /* each session has so many */
        for (uint32_t i = 0; i < HOST_CALLS; i++)
            ask(0, first + i, 1, i, false);
        a = (struct packet_ask){.request = first + HOST_CALLS, .mode = PAWL_EXCLUSIVE, .index = 1, .bytes = large, .len = 1};
        CHECK_EQ(netlock_acquire(rack.host[0], &a, rack.now, &out), -PAWL_ELIMIT);
        outbox_clear(&out);
    }
}

/* Packets that are wrong are counted and change nothing. */
static void bad_packets(void)
{
    static struct wire_packet good, bad;
    struct netlock_packet *p = (void *)bad.data;
    begin(0);
    for (unsigned data = 0; data < 2; data++) { /* an ACQUIRE at the switch, DATA at the server */
        rack.keep = data ? NETLOCK_DATA : NETLOCK_ACQUIRE;
        ask(0, data, 1 + data, 5, true);
        deliver_all();
        good = rack.kept;
        uint64_t done = rack.done;
        for (unsigned i = 0; i < 6; i++) {
            bad = good;
            if (i == 0)
                p->data.machine = 1; /* not a server */
            else if (i == 1)
                p->data.port = 7;
            else if (i == 2)
                bad.len = sizeof *p + NETLOCK_PAYLOAD_MAX + 1;
            else if (i == 3)
                p->stamp++; /* another request's */
            else if (i == 4)
                p->mode = 3;
            else
                bad.len = sizeof *p - 1;
            deliver(&bad);
            CHECK_EQ(rack.count, 0);
        }
        CHECK_EQ(rack.done, done);
        deliver(&good);
        deliver_all();
        CHECK_EQ(rack.done, done + 1);
        CHECK_EQ(result(0, data), 0);
    }
    CHECK(netlock_server_drops(rack.server)->bad >= 5);
}

int main(void)
{
    one_round_trip(0);
    one_round_trip(NETLOCK_SERVERS_ONLY);
    dropped_and_sent_again(0);
    dropped_and_sent_again(NETLOCK_SERVERS_ONLY);
    done_once();
    fenced(false);
    fenced(true);
    given_up();
    given_up_and_lapsed();
    forgotten();
    under_a_hold();
    limits();
    bad_packets();
    return 0;
}
