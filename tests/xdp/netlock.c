/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's queues in the kernel, packet in and packets out, by hand: one release that lets many in, bad packets that change
 * nothing, leases, locks that are shut; and both CPUs at once. That it does what the switch in user space does is
 * tests/xdp/netlock_same.c. */
#include "lib/rng.h"
#include "tests/xdp/netlock_hand.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* ---- one release lets many in ---- */

static uint64_t serial = 10;

/* Notes which requests the packets out grant, none of them twice. Returns how many. */
static unsigned note_grants(bool granted[KIT_HOSTS + 1][REQUESTS], struct netlock_packet *releases)
{
    unsigned n = 0;
    for (unsigned i = 0; i < outs.count; i++) {
        const struct netlock_packet *g = out(i);
        unsigned request = netlock_request_of(g->head.nonce);
        if (g->head.type != NETLOCK_GRANT)
            continue;
        CHECK_EQ(g->head.nonce, nonce_of(request, serial));
        CHECK_EQ(g->head.to.port, 5000 + request);
        CHECK(!granted[g->head.to.machine][request]);
        granted[g->head.to.machine][request] = true;
        releases[n] = ask(NETLOCK_RELEASE, g->head.to.machine, request, serial, 0, LOCK);
        releases[n++].ticket = g->ticket;
    }
    return n;
}

static void release_to(unsigned readers)
{
    static struct netlock_packet releases[KIT_HOSTS * REQUESTS];
    static struct outbox box;
    bool granted[KIT_HOSTS + 1][REQUESTS] = {0};
    serial++;
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 15, serial, NETLOCK_EXCLUSIVE, LOCK);
    send_it(&p);
    uint32_t ticket = only(NETLOCK_GRANT)->ticket;
    for (unsigned i = 0; i < readers; i++) {
        p = ask(NETLOCK_ACQUIRE, (uint16_t)(1 + i % KIT_HOSTS), i / KIT_HOSTS, serial, NETLOCK_SHARED, LOCK);
        send_it(&p);
        CHECK_EQ(outs.count, 0);
    }
    p = ask(NETLOCK_RELEASE, 1, 15, serial, 0, LOCK);
    p.ticket = ticket;
    send_it(&p);
    CHECK_EQ(count_of(NETLOCK_RELEASED), 1);
    unsigned total = note_grants(granted, releases);
    CHECK_EQ(total, readers < 28 ? readers : 28); /* of 32 copies four are kept free for one more pass */
    outbox_clear(&box);
    netlock_switch_tick(kit_memory, host_now(), &box); /* the control process goes on with what is left */
    outs.count = 0;
    kit_add_outbox(&outs, &box);
    total += note_grants(granted, releases + total);
    CHECK_EQ(total, readers);
    for (unsigned i = 0; i < total; i++) {
        send_it(&releases[i]);
        only(NETLOCK_RELEASED);
    }
}

/* ---- bad packets ---- */

static void expect_nothing(const char *what, const struct test_frame *f, enum plane_reason why)
{
    void *before = malloc(kit_at.bytes);
    bool control;
    CHECK(before);
    memcpy(before, kit_memory, kit_at.bytes);
    outs.count = 0;
    if (kit_pass(f, &outs, &control) != XDP_DROP || outs.count)
        CHECK_FAIL("%s: something left", what);
    if (memcmp(before, kit_memory, kit_at.bytes) != 0)
        CHECK_FAIL("%s: something changed", what);
    free(before);
    test_reason(kit, why);
}

static void expect_bad(const char *what, const struct netlock_packet *p, enum plane_reason why)
{
    struct test_frame f = kit_frame(p, sizeof *p);
    expect_nothing(what, &f, why);
}

static void bad_packets(void)
{
    const struct netlock_packet good = ask(NETLOCK_ACQUIRE, 1, 3, 99, NETLOCK_EXCLUSIVE, LOCK);
    struct netlock_packet p = good;
    struct test_frame f = kit_frame(&good, sizeof good - 8);
    test_reason(kit, ANY_REASON); /* from here on */
    expect_nothing("too short", &f, PLANE_SHORT);
    f = kit_frame(&good, sizeof good);
    f.packet[60] ^= 1;
    expect_nothing("checksum", &f, PLANE_CHECKSUM);
    f = kit_frame(&good, sizeof good);
    f.packet[0] = PACKET_VERSION + 1;
    test_udp_sum(&f);
    expect_nothing("version", &f, PLANE_VERSION);
    f = kit_frame(&good, sizeof good);
    f.packet[1] = test_is_keyed() ? 4 : PACKET_TAGGED;
    test_udp_sum(&f);
    expect_nothing("features", &f, PLANE_VERSION);
    p.head.index = LOCKS; /* of a space that has grown: its lock server's, or for the control process, which passes it on */
    f = kit_frame(&p, sizeof p);
    outs.count = 0;
    bool control;
    CHECK(kit_pass(&f, &outs, &control) != XDP_DROP && (control || outs.count == 1));
    p.head.index = UINT64_C(1) << 32 | LOCK;
    expect_bad("an index of more than 32 bits", &p, PLANE_ALIEN);
    p = good;
    p.head.from.machine = MACHINE_NONE;
    expect_bad("from no machine", &p, test_is_keyed() ? PLANE_UNTAGGED : PLANE_ALIEN);
    p.head.from.machine = KIT_HOSTS + KIT_SERVERS + 1;
    expect_bad("from a machine that does not exist", &p, PLANE_ALIEN);
    p = good;
    p.head.space++;
    expect_bad("another space", &p, PLANE_ALIEN);
    p = good;
    p.head.epoch = 0;
    expect_bad("a life that is over", &p, PLANE_EPOCH);
    p = good;
    p.mode = 3;
    expect_bad("mode", &p, PLANE_TYPE);
    p = good;
    p.head.nonce = 3;
    expect_bad("a nonce without a serial number", &p, PLANE_TYPE);
    p.head.nonce = nonce_of(REQUESTS, 99);
    expect_bad("a request beyond the host's", &p, PLANE_TYPE);
    for (unsigned type = 0; type < 256; type++) {
        bool rare = type == NETLOCK_CONVERT || type == NETLOCK_STAY || type == NETLOCK_PROBE; /* those are the process's */
        if ((type >= NETLOCK_ACQUIRE && type <= NETLOCK_LEASE) || rare)
            continue;
        p = good;
        p.head.type = (uint8_t)type;
        expect_bad("a type that hosts do not send", &p, PLANE_TYPE);
    }
    p = from_server(NETLOCK_GRANT, LOCK);
    expect_bad("a type that servers do not send", &p, PLANE_TYPE);
    p = from_server(NETLOCK_PUSH, LOCK);
    p.head.nonce = nonce_of(1, 99);
    p.mode = NETLOCK_SHARED;
    expect_bad("a push for no client", &p, PLANE_TYPE);
    p.client = (struct place){KIT_HOSTS + 1, 5000};
    expect_bad("a push for a server", &p, PLANE_TYPE);
    p.client.machine = 1;
    p.mode = 3;
    expect_bad("a push with a mode that there is not", &p, PLANE_TYPE);
}

/* Bytes for a data server: the control process has the same stages and sends them on, if the lock is free. */
static void with_data(void)
{
    struct {
        struct netlock_packet p;
        char bytes[24];
    } m = {ask(NETLOCK_ACQUIRE, 1, 7, 700, NETLOCK_EXCLUSIVE, LOCK), "what is to be done"};
    const uint16_t server = config.server[LOCK % KIT_SERVERS];
    bool control;
    m.p.flags = NETLOCK_PAYLOAD;
    m.p.data = (struct place){server, PORT_SERVER};
    m.p.stamp = nonce_of(7, 699);
    struct test_frame f = kit_frame(&m, sizeof m);
    outs.count = 0;
    CHECK_EQ(kit_pass(&f, &outs, &control), XDP_PASS);
    CHECK(control && !outs.count);
    kit_packet(&m, sizeof m, host_now(), &outs);
    const struct netlock_packet *d = only(NETLOCK_DATA);
    CHECK(d->head.to.machine == server && d->head.from.machine == 1 && d->client.machine == MACHINE_SWITCH && d->token);
    CHECK(!memcmp(d + 1, m.bytes, sizeof m.bytes));
    uint32_t ticket = d->ticket;
    m.p.head = ask(NETLOCK_ACQUIRE, 2, 8, 700, NETLOCK_EXCLUSIVE, LOCK).head;
    m.p.stamp = nonce_of(8, 699);
    kit_packet(&m, sizeof m, host_now(), &outs); /* it waits, and what it brought is dropped */
    CHECK_EQ(outs.count, 0);
    struct netlock_packet p = ask(NETLOCK_RELEASE, 1, 7, 700, 0, LOCK);
    p.ticket = ticket;
    send_it(&p);
    CHECK(outs.count == 2 && count_of(NETLOCK_GRANT) == 1);
    ticket = out(out(0)->head.type != NETLOCK_GRANT)->ticket;
    p = ask(NETLOCK_RELEASE, 2, 8, 700, 0, LOCK);
    p.ticket = ticket;
    send_it(&p);
    only(NETLOCK_RELEASED);
}

/* Late and forged ones: heard, and without effect. */
static void without_effect(void)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 3, 200, NETLOCK_EXCLUSIVE, LOCK);
    send_it(&p);
    uint32_t ticket = only(NETLOCK_GRANT)->ticket;
    uint64_t token = out(0)->token;
    send_it(&p); /* doubled: its grant again */
    CHECK_EQ(only(NETLOCK_GRANT)->ticket, ticket);
    CHECK(out(0)->token > token);
    struct netlock_packet r = ask(NETLOCK_RELEASE, 2, 3, 200, NETLOCK_EXCLUSIVE, LOCK); /* another host's: nothing ends */
    r.ticket = ticket;
    send_it(&r);
    only(NETLOCK_RELEASED);
    struct netlock_packet other = ask(NETLOCK_ACQUIRE, 2, 4, 200, NETLOCK_EXCLUSIVE, LOCK);
    other.flags = NETLOCK_TRY;
    send_it(&other);
    CHECK_EQ(only(NETLOCK_REFUSED)->code, NETLOCK_HELD);
    r = ask(NETLOCK_RELEASE, 1, 3, 200, 0, LOCK);
    r.ticket = ticket;
    for (int i = 0; i < 2; i++) { /* doubled */
        send_it(&r);
        only(NETLOCK_RELEASED);
    }
    send_it(&p); /* late */
    only(NETLOCK_GONE);
    p = ask(NETLOCK_CANCEL, 1, 3, 201, 0, LOCK);
    send_it(&p);
    only(NETLOCK_RELEASED);
    p = ask(NETLOCK_ACQUIRE, 1, 3, 201, NETLOCK_EXCLUSIVE, LOCK); /* it gave up before it came */
    send_it(&p);
    CHECK_EQ(outs.count, 0);
}

static void not_here(void)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 5, 300, NETLOCK_SHARED, COLD);
    send_it(&p);
    CHECK_EQ(only(NETLOCK_ACQUIRE)->flags, NETLOCK_FORWARDED);
    CHECK_EQ(out(0)->head.to.machine, config.server[COLD % KIT_SERVERS]);
    CHECK_EQ(out(0)->head.from.machine, 1);
    CHECK_EQ(out(0)->life, KIT_LIFE);
    p.head.type = NETLOCK_CANCEL;
    send_it(&p);
    only(NETLOCK_CANCEL);
    p.head.type = NETLOCK_RELEASE;
    send_it(&p);
    CHECK_EQ(only(NETLOCK_RELEASED)->head.nonce, p.head.nonce);
    p = from_server(NETLOCK_GRANT, COLD); /* a server's word to a host passes by */
    p.head.to = (struct place){3, 5001};
    send_it(&p);
    CHECK_EQ(only(NETLOCK_GRANT)->head.to.machine, 3);
}

static void shut_lock(void)
{
    struct netlock_order o = {.kind = NETLOCK_ORDER_PASS, .lock = kit_at.locks};
    CHECK(plane_order(kit, &o, sizeof o)); /* there is no such lock */
    uint32_t lock = 0;
    const uint64_t *open = (const void *)((const uint8_t *)kit_memory + kit_at.open_at);
    while (lock < kit_at.locks && open[lock] != LOCK + 1)
        lock++;
    CHECK(lock < kit_at.locks);
    o = (struct netlock_order){.kind = NETLOCK_ORDER_IF_EMPTY, .lock = lock, .index = LOCK};
    CHECK(!plane_order(kit, &o, sizeof o) && o.done);
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 6, 400, NETLOCK_EXCLUSIVE, LOCK);
    send_it(&p);
    CHECK_EQ(outs.count, 0);
    o = (struct netlock_order){.kind = NETLOCK_ORDER_OPEN, .lock = lock, .index = LOCK};
    CHECK(!plane_order(kit, &o, sizeof o) && o.done);
    send_it(&p);
    uint32_t ticket = only(NETLOCK_GRANT)->ticket;
    o = (struct netlock_order){.kind = NETLOCK_ORDER_IF_EMPTY, .lock = lock, .index = LOCK};
    CHECK(!plane_order(kit, &o, sizeof o) && !o.done); /* its queue is not empty */
    p = ask(NETLOCK_RELEASE, 1, 6, 400, 0, LOCK);
    p.ticket = ticket;
    send_it(&p);
    only(NETLOCK_RELEASED);
}

static void leases(void)
{
    const uint64_t lease_ns = 4 * NS_PER_S; /* a host that the machine stops for a while shall not lose it by that */
    bool control;
    set_up(lease_ns);
    bring_in(LOCK);
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 0, 5, NETLOCK_EXCLUSIVE, LOCK);
    struct test_frame f = kit_frame(&p, sizeof p);
    CHECK_EQ(kit_pass(&f, &outs, &control), XDP_TX);
    p = ask(NETLOCK_ACQUIRE, 2, 0, 5, NETLOCK_EXCLUSIVE, LOCK);
    send_it(&p);
    CHECK_EQ(outs.count, 0);
    for (int i = 0; i < 9; i++) {
        usleep((useconds_t)(lease_ns / 8000));
        lease(2);
    }
    /* Host 1 was silent: its packets go to the control process, which ends its holds; host 2 is next. */
    p = ask(NETLOCK_ACQUIRE, 1, 1, 6, NETLOCK_EXCLUSIVE, LOCK);
    f = kit_frame(&p, sizeof p);
    CHECK_EQ(kit_pass(&f, &outs, &control), XDP_PASS);
    CHECK(control);
    send_it(&p);
    bool next = false;
    for (unsigned i = 0; i < outs.count; i++)
        next = next || (out(i)->head.type == NETLOCK_GRANT && out(i)->head.to.machine == 2);
    CHECK(next);
    kit_close();
}

/* ---- two CPUs ---- */

#define GRANTS 20000
#define HANDLES 8

static _Atomic int inside[2];
static _Atomic uint64_t tokens[2];
static _Atomic unsigned done_grants, stop_orders, shuts;
static struct grant {
    uint64_t nonce, token;
    uint32_t ticket;
} granted_to[3][HANDLES];
static pthread_mutex_t granting = PTHREAD_MUTEX_INITIALIZER;

/* One packet through the program; grants are put where their owners look. Whether RELEASED came. */
static bool pass_one(const struct netlock_packet *p)
{
    static _Thread_local struct kit_outs o;
    struct test_frame f = kit_frame(p, sizeof *p);
    bool control, released = false;
    o.count = 0;
    kit_pass(&f, &o, &control);
    CHECK(!control);
    for (unsigned i = 0; i < o.count; i++) {
        const struct netlock_packet *g = (const void *)o.out[i].bytes;
        unsigned request = netlock_request_of(g->head.nonce);
        if (g->head.type == NETLOCK_GRANT && request < HANDLES) {
            pthread_mutex_lock(&granting);
            granted_to[g->head.to.machine][request] = (struct grant){g->head.nonce, g->token, g->ticket};
            pthread_mutex_unlock(&granting);
        }
        released = released || g->head.type == NETLOCK_RELEASED;
    }
    return released;
}

static void enter_and_leave(const struct netlock_packet *p, uint64_t token)
{
    unsigned which = p->head.index == LOCK;
    if (p->mode == NETLOCK_SHARED) {
        CHECK(atomic_fetch_add(&inside[which], 1) >= 0);
        CHECK(atomic_fetch_sub(&inside[which], 1) > 0);
    } else {
        int free_ = 0;
        CHECK(atomic_compare_exchange_strong(&inside[which], &free_, -1));
        CHECK(token > tokens[which]);
        tokens[which] = token;
        CHECK_EQ(atomic_exchange(&inside[which], 0), -1);
    }
    done_grants++;
}

static void *contend(void *arg)
{
    uint16_t me = (uint16_t)(intptr_t)arg;
    struct netlock_packet asked[HANDLES] = {0};
    struct rng rng;
    uint64_t latest = 1000;
    unsigned ended = 0;
    rng_seed(&rng, me);
    test_pin_to(me - 1);
    for (bool draining = false; !draining || ended < HANDLES; draining = done_grants >= GRANTS) {
        unsigned h = (unsigned)rng_below(&rng, HANDLES);
        struct netlock_packet *p = &asked[h];
        pthread_mutex_lock(&granting);
        const struct grant g = granted_to[me][h];
        pthread_mutex_unlock(&granting);
        if (!p->head.type && !draining) {
            *p = ask(NETLOCK_ACQUIRE, me, h, ++latest, rng_chance(&rng, 1, 2) ? NETLOCK_SHARED : NETLOCK_EXCLUSIVE,
                     rng_chance(&rng, 1, 2) ? LOCK : REMOTE);
            pass_one(p);
        } else if (p->head.type && g.nonce == p->head.nonce) {
            struct netlock_packet r = ask(NETLOCK_RELEASE, me, h, 0, 0, p->head.index);
            enter_and_leave(p, g.token);
            r.head.nonce = p->head.nonce;
            r.ticket = g.ticket;
            while (!pass_one(&r)) /* dropped while the lock was shut */
                ;
            p->head.type = 0;
        } else if (p->head.type && rng_chance(&rng, 1, 50)) {
            pass_one(p); /* the packet or its grant may be lost */
        }
        for (ended = 0; ended < HANDLES && !asked[ended].head.type;)
            ended++;
    }
    return NULL;
}

/* Meanwhile the control process looks in. */
static void *look_in(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !stop_orders; i++) {
        const uint64_t *open = (const void *)((const uint8_t *)kit_memory + kit_at.open_at);
        for (uint32_t lock = 0; lock < kit_at.locks; lock++) {
            uint64_t index = open[lock] - 1;
            struct netlock_order o = {.kind = i % 2 ? NETLOCK_ORDER_CLOSE : NETLOCK_ORDER_IF_EMPTY, .lock = lock, .index = index};
            if (!open[lock])
                continue;
            do { /* packets that are under way go on */
                CHECK_EQ(plane_order(kit, &o, sizeof o), 0);
            } while (i % 2 && !o.done);
            if (!o.done)
                continue;
            shuts++;
            o.kind = NETLOCK_ORDER_OPEN;
            CHECK(!plane_order(kit, &o, sizeof o) && o.done);
        }
        usleep(50); /* so that the others find locks open, too */
    }
    return NULL;
}

static void both_cpus(void)
{
    pthread_t t[3];
    for (intptr_t i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, contend, (void *)(i + 1)), 0);
    CHECK_EQ(pthread_create(&t[2], NULL, look_in, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    stop_orders = 1;
    pthread_join(t[2], NULL);
    CHECK(done_grants >= GRANTS && shuts > 10);
    printf("%u grants on two CPUs, while locks were shut %u times\n", done_grants, shuts);
    /* No request is left in a queue. */
    for (uint64_t index = LOCK; index <= REMOTE; index++) {
        struct netlock_packet p = ask(NETLOCK_ACQUIRE, 3, 0, 5000 + index, NETLOCK_EXCLUSIVE, index);
        send_it(&p);
        uint32_t ticket = only(NETLOCK_GRANT)->ticket;
        p = ask(NETLOCK_RELEASE, 3, 0, 5000 + index, 0, index);
        p.ticket = ticket;
        send_it(&p);
        only(NETLOCK_RELEASED);
    }
}

int main(void)
{
    set_up(3600 * NS_PER_S);
    test_verified(kit);
    bring_in(LOCK);
    bring_in(REMOTE);
    static const unsigned counts[] = {1, 2, 3, 4, 7, 8, 15, 16, 27, 30, 40};
    for (size_t i = 0; i < countof(counts); i++)
        release_to(counts[i]);
    without_effect();
    not_here();
    shut_lock();
    with_data();
    bad_packets();
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        both_cpus();
    kit_close();
    leases();
    return 0;
}
