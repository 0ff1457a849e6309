/* SPDX-License-Identifier: Apache-2.0 */
/* Holds that outlast a switch of NetLock, packet by packet: what a host reports when it hears of another term, and when it confirms
 * the term; which reports a lock server takes, and what it does not do before all hosts have reported. */
#include "tests/term.h"
#include "tests/unit/netlock_host_kit.h"

#define TERM 5u /* of the switch, as the kit has it; the next one: */
#define NEXT 6u
#define SERVER_LIFE 7u
#define NONCE ((UINT64_C(1) << 30) * NETLOCK_SERIAL_STEP)

/* ---- the host ---- */

static struct netlock_packet asked;

static void hears_of(struct netlock_packet p, enum netlock_type type, struct place from, uint32_t life)
{
    outbox_clear(&out);
    netlock_turn_round(&p, type, life, from);
    netlock_host_packet(host, &p, sizeof p, now, &out);
}

static void holds(enum pawl_mode mode)
{
    const struct packet_ask a = {.request = REQUEST, .port = 100, .mode = mode, .index = 2};
    start();
    gets_lease(the_switch);
    gets_lease(the_server);
    now += RETRY_NS;
    outbox_clear(&out);
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
    asked = sent(NETLOCK_ACQUIRE, the_switch);
    hears(asked, NETLOCK_GRANT, the_switch, 0);
    CHECK(result() == 0 && requests_hold(host, REQUEST));
}

static void ticks(uint64_t ns)
{
    now += ns;
    outbox_clear(&out);
    netlock_host_tick(host, now, &out);
}

static bool sends(enum netlock_type type)
{
    bool found = false;
    for (unsigned i = 0; i < out.packets; i++)
        found = found || ((const struct packet_head *)outbox_packet(&out, i))->type == type;
    return found;
}

/* The host hears of the next term, and reports. */
static struct netlock_packet reports(void)
{
    struct netlock_packet lease = {.head = {.version = PACKET_VERSION, .family = PACKET_NETLOCK, .space = config.space}};
    lease.head.from = (struct place){1, PORT_POOL};
    lease.stamp = now;
    hears_of(lease, NETLOCK_LEASED, the_switch, NEXT);
    if (!sends(NETLOCK_HOLD))
        ticks(RETRY_NS);
    struct netlock_packet p = sent(NETLOCK_HOLD, the_server);
    CHECK(p.life == NEXT && p.pushed == SERVER_LIFE && p.head.nonce == asked.head.nonce && p.head.index == 2);
    return p;
}

static uint32_t confirmed(void)
{
    return sent(NETLOCK_LEASE, the_switch).life;
}

static void kept(void)
{
    holds(PAWL_EXCLUSIVE);
    uint64_t before = netlock_expiry(host, 0);
    struct netlock_packet p = reports();
    CHECK(requests_hold(host, REQUEST) && p.mode == NETLOCK_EXCLUSIVE && p.token == 1 && !p.count);
    outbox_clear(&out);
    netlock_host_renew(host, now, &out);
    CHECK_EQ(confirmed(), 0); /* not before the server knows */
    CHECK_EQ(netlock_expiry(host, 0), before);
    hears_of(asked, NETLOCK_GRANT, the_server, SERVER_LIFE); /* which repeats grants of its holders: that is no answer */
    CHECK(requests_hold(host, REQUEST) && !out.packets);
    hears_of(p, NETLOCK_KNOWN, the_server, SERVER_LIFE);
    CHECK_EQ(confirmed(), NEXT);
    outbox_clear(&out);
    CHECK_EQ(netlock_release(host, REQUEST, now, &out), 0);
    CHECK_EQ(sent(NETLOCK_RELEASE, the_server).head.nonce, asked.head.nonce);
}

static void refused(void)
{
    holds(PAWL_SHARED);
    struct netlock_packet p = reports();
    p.code = NETLOCK_LATE;
    hears_of(p, NETLOCK_KNOWN, the_server, SERVER_LIFE);
    CHECK(!requests_hold(host, REQUEST) && netlock_expiry(host, 0) == 0);
    CHECK_EQ(sent(NETLOCK_CANCEL, the_switch).head.nonce, asked.head.nonce);
    CHECK_EQ(confirmed(), NEXT);
}

/* A release before the answer must reach the server, which may have the report, or get it late. */
static void released(void)
{
    holds(PAWL_EXCLUSIVE);
    struct netlock_packet p = reports();
    outbox_clear(&out);
    CHECK_EQ(netlock_release(host, REQUEST, now, &out), 0);
    CHECK_EQ(sent(NETLOCK_CANCEL, the_switch).head.nonce, asked.head.nonce);
    hears_of(p, NETLOCK_KNOWN, the_server, SERVER_LIFE);
    CHECK(!requests_hold(host, REQUEST));
    netlock_host_renew(host, now, &out);
    CHECK_EQ(confirmed(), NEXT);
}

/* An answer counts only under the lease under which the hold was reported. */
static void lapsed(void)
{
    holds(PAWL_EXCLUSIVE);
    ((struct requests *)host)->leases[GRANTER_SWITCH].until_ns += LEASE_NS; /* it was renewed later than the server's */
    struct netlock_packet p = reports();
    now = ((struct requests *)host)->leases[1].until_ns;
    ticks(0);
    gets_lease(the_server);
    hears_of(p, NETLOCK_KNOWN, the_server, SERVER_LIFE);
    CHECK(requests_hold(host, REQUEST));
    ticks(RETRY_NS);
    CHECK(sends(NETLOCK_HOLD)); /* asked once more */
}

/* A conversion is asked for again when the server has the hold. One to shared may have been done. */
static void converted(enum pawl_mode mode, enum pawl_mode want)
{
    holds(mode);
    outbox_clear(&out);
    CHECK_EQ(netlock_convert(host, REQUEST, want, now, &out), PACKET_WAIT);
    CHECK(sends(NETLOCK_CONVERT));
    struct netlock_packet p = reports();
    CHECK(p.mode == NETLOCK_SHARED && !p.count);
    ticks(100 * RETRY_NS);
    CHECK(!sends(NETLOCK_CONVERT));
    hears_of(p, NETLOCK_KNOWN, the_server, SERVER_LIFE);
    struct netlock_packet c = sent(NETLOCK_CONVERT, the_server);
    CHECK(c.count == 1 && c.mode == want);
}

/* ---- the server ---- */

static struct server *server;

static void begin(void)
{
    free(server);
    start();
    config.machines = 3;
    server = calloc(1, netlock_server_bytes(&config));
    netlock_server_init(server, &config, SERVER, 1, false, now);
    term_server(server, &config, TERM, now);
    now++;
    struct netlock_packet p = {.stamp = now, .pushed = 1, .round = 2};
    netlock_head(&p, config.space, NETLOCK_SYNCED, TERM, the_switch, the_server);
    netlock_server_packet(server, &p, sizeof p, now, &out);
    for (uint16_t m = 1; m <= 3; m++) {
        netlock_head(&p, config.space, NETLOCK_LEASE, 1, (struct place){m, PORT_POOL}, the_server);
        netlock_server_packet(server, &p, sizeof p, now, &out);
    }
}

static struct netlock_packet of_host(enum netlock_type type, uint16_t machine, uint8_t mode)
{
    struct netlock_packet p = {.mode = mode, .stamp = now, .life = TERM, .pushed = 1, .round = 3, .token = 9};
    netlock_head(&p, config.space, type, 1, (struct place){machine, PORT_POOL}, the_server);
    p.head.nonce = NONCE;
    p.head.index = 2;
    p.flags = type == NETLOCK_CANCEL ? NETLOCK_FORWARDED : 0;
    return p;
}

/* The type of the answer, 0: none; of KNOWN, plus its code times 256. */
static unsigned says(const struct netlock_packet *p)
{
    outbox_clear(&out);
    netlock_server_packet(server, p, sizeof *p, now, &out);
    for (unsigned i = 0; i < out.packets; i++) {
        const struct netlock_packet *a = (const void *)outbox_packet(&out, i);
        if (a->head.to.machine == p->head.from.machine)
            return a->head.type + 256u * a->code;
    }
    return 0;
}

static unsigned takes(uint16_t machine, uint8_t mode)
{
    const struct netlock_packet p = of_host(NETLOCK_HOLD, machine, mode);
    return says(&p);
}

#define LATE (NETLOCK_KNOWN + 256u * NETLOCK_LATE)

static void takes_reports(void)
{
    begin();
    CHECK_EQ(takes(1, NETLOCK_SHARED), NETLOCK_KNOWN);
    CHECK_EQ(takes(1, NETLOCK_SHARED), NETLOCK_KNOWN); /* again */
    CHECK_EQ(takes(2, NETLOCK_SHARED), NETLOCK_KNOWN);
    CHECK_EQ(takes(3, NETLOCK_EXCLUSIVE), LATE);
    CHECK_EQ(server_lock(server, 2)->holders, 2);
    begin();
    struct netlock_packet p = of_host(NETLOCK_HOLD, 1, NETLOCK_EXCLUSIVE);
    p.pushed = 2; /* to another life of the server */
    CHECK_EQ(says(&p), 0);
    p.pushed = 1;
    p.life = NEXT; /* of a term that it has not heard of */
    CHECK_EQ(says(&p), 0);
    p.life = TERM;
    p.token = (uint64_t)TERM << NETLOCK_TOKEN_BITS; /* of this term */
    CHECK_EQ(says(&p), 0);
    const struct netlock_packet gone = of_host(NETLOCK_CANCEL, 1, 0);
    CHECK_EQ(says(&gone), NETLOCK_RELEASED);
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), LATE); /* it came later than the end of the hold */
    p = of_host(NETLOCK_HOLD, 1, NETLOCK_EXCLUSIVE);
    p.head.nonce -= NETLOCK_SERIAL_STEP; /* of an earlier request */
    CHECK_EQ(says(&p), LATE);
    CHECK(!server_lock(server, 2)->holders);
    server->until_ns = now; /* the steward's lease */
    CHECK_EQ(takes(2, NETLOCK_EXCLUSIVE), 0);
    begin();
    now = server->slots[0].open_ns - 1;
    server->until_ns = server->clients[1].until_ns = now + LEASE_NS;
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), NETLOCK_KNOWN);
    begin();
    now = server->slots[0].open_ns;
    server->until_ns = server->clients[1].until_ns = now + LEASE_NS;
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), LATE);
}

/* Reports that cannot be now: of a request that travels to the switch, or has another lock, of a lock that the switch has, or
 * before the switch has said its term. They change nothing. */
static void takes_no_other_reports(void)
{
    struct netlock_packet p = of_host(NETLOCK_HOLD, 1, NETLOCK_EXCLUSIVE);
    begin();
    server->synced = false;
    CHECK_EQ(says(&p), 0);
    server->synced = true;
    CHECK_EQ(says(&p), NETLOCK_KNOWN);
    p.head.index = 1;
    uint64_t bad = server->drops.bad;
    CHECK_EQ(says(&p), 0);
    CHECK(server->drops.bad == bad + 1 && !server_lock(server, 1)->holders);
    begin();
    server_lock(server, 2)->place = LOCK_LENT;
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), LATE);
    CHECK(!server_lock(server, 2)->holders);
    begin();
    struct netlock_packet a = of_host(NETLOCK_ACQUIRE, 1, NETLOCK_EXCLUSIVE);
    a.flags = NETLOCK_FORWARDED | NETLOCK_OVERFLOW;
    CHECK_EQ(says(&a), 0); /* it waits until all hosts have reported */
    struct entry *e = server_entry(server, 0);
    while (e->nonce != NONCE)
        e++;
    CHECK_EQ(e->state, ENTRY_WAITING);
    e->pushed = true; /* the switch may have it */
    uint64_t stale = server->drops.stale;
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), 0);
    CHECK(server->drops.stale == stale + 1 && e->state == ENTRY_WAITING);
    e->pushed = false; /* it was granted by the switch that is gone, and waits here no more */
    CHECK_EQ(takes(1, NETLOCK_EXCLUSIVE), NETLOCK_KNOWN);
    CHECK(e->state == ENTRY_HELD && server_lock(server, 2)->holders == 1 && !server_lock(server, 2)->first);
}

/* Nothing is converted while other readers may not have reported, nor without the steward's lease: the token might be another's. */
static void converts_late(void)
{
    begin();
    CHECK_EQ(takes(1, NETLOCK_SHARED), NETLOCK_KNOWN);
    struct netlock_packet c = of_host(NETLOCK_CONVERT, 1, NETLOCK_EXCLUSIVE);
    c.count = 1;
    CHECK_EQ(says(&c), 0);
    CHECK_EQ(takes(2, NETLOCK_SHARED), NETLOCK_KNOWN);
    now = server->slots[0].open_ns;
    server->clients[1].until_ns = server->clients[2].until_ns = now + LEASE_NS;
    server->until_ns = now; /* its lease from the steward is over */
    CHECK_EQ(says(&c), 0);
    server->until_ns = now + LEASE_NS;
    CHECK_EQ(says(&c), 0); /* waits for the other reader */
    CHECK(server_lock(server, 2)->upgrader);
    const struct netlock_packet r = of_host(NETLOCK_RELEASE, 2, NETLOCK_SHARED);
    server->until_ns = now;
    CHECK_EQ(says(&r), NETLOCK_RELEASED);
    CHECK(server_lock(server, 2)->upgrader);
    server->until_ns = now + LEASE_NS;
    CHECK_EQ(says(&c), NETLOCK_CONVERTED);
    CHECK(server_lock(server, 2)->mode == NETLOCK_EXCLUSIVE && server_lock(server, 2)->token >> NETLOCK_TOKEN_BITS >= TERM);
}

/* The lock is to move while it is held by the grant of the old switch: other readers need not wait for that holder. */
static void lets_readers_in(void)
{
    begin();
    CHECK_EQ(takes(1, NETLOCK_SHARED), NETLOCK_KNOWN);
    struct netlock_packet p = {.round = 5, .life = TERM};
    netlock_head(&p, config.space, NETLOCK_TAKE, TERM, the_switch, the_server);
    p.head.index = 2;
    netlock_server_packet(server, &p, sizeof p, now, &out);
    CHECK_EQ(server_lock(server, 2)->place, LOCK_LENDING);
    now = server->slots[0].open_ns;
    server->until_ns = server->clients[1].until_ns = server->clients[2].until_ns = server->clients[3].until_ns = now + LEASE_NS;
    struct netlock_packet a = of_host(NETLOCK_ACQUIRE, 2, NETLOCK_SHARED);
    a.flags = NETLOCK_FORWARDED | NETLOCK_OVERFLOW;
    a.round = 5;
    CHECK_EQ(says(&a), NETLOCK_GRANT);
    const struct netlock_packet r = of_host(NETLOCK_RELEASE, 1, NETLOCK_SHARED);
    CHECK_EQ(says(&r), NETLOCK_RELEASED);
    CHECK_EQ(server_lock(server, 2)->kept, 0);
    a = of_host(NETLOCK_ACQUIRE, 3, NETLOCK_SHARED); /* now the lock moves */
    a.flags = NETLOCK_FORWARDED | NETLOCK_OVERFLOW;
    a.round = 5;
    CHECK_EQ(says(&a), 0);
    struct netlock_packet last = of_host(NETLOCK_RELEASE, 2, NETLOCK_SHARED);
    CHECK_EQ(says(&last), NETLOCK_RELEASED);
    CHECK_EQ(server_lock(server, 2)->place, LOCK_LENT);
}

int main(void)
{
    kept();
    refused();
    released();
    lapsed();
    converted(PAWL_EXCLUSIVE, PAWL_SHARED);
    converted(PAWL_SHARED, PAWL_EXCLUSIVE);
    takes_reports();
    takes_no_other_reports();
    converts_late();
    lets_readers_in();
    free(host);
    free(server);
    return 0;
}
