/* SPDX-License-Identifier: Apache-2.0 */
/* A try by a NetLock host that has just joined, packet by packet. It asks when it has a lease at the switch, and under another
 * nonce when it has one at the server. If the switch granted the former nonce, the try is refused because of itself: that is not
 * the answer. */
#include "dataplane/netlock_packets.h"
#include "designs/netlock/host.h"
#include "designs/packet/requests.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>

#define SERVER 3
#define LEASE_NS NS_PER_S
#define RETRY_NS NS_PER_MS
#define REQUEST 1u

static const struct place the_switch = {MACHINE_SWITCH, PORT_POOL}, the_server = {SERVER, PORT_SERVER};
static struct rack_config config;
static void *host;
static struct outbox out;
static uint64_t now;

static void start(void)
{
    config = (struct rack_config){.space = 16,
                                  .machines = 2,
                                  .sessions = 1,
                                  .requests = 4,
                                  .servers = 1,
                                  .server = {SERVER},
                                  .switches = 1,
                                  .locks = 4,
                                  .lease_ns = LEASE_NS,
                                  .retry_ns = RETRY_NS};
    now = 10 * NS_PER_S;
    free(host);
    host = calloc(1, netlock_host_bytes(&config));
    outbox_clear(&out);
    netlock_host_init(host, &config, 1, 1, now);
}

/* The packet of that type for that place among those that were sent. */
static struct netlock_packet sent(enum netlock_type type, struct place to)
{
    for (unsigned i = 0; i < out.packets; i++) {
        const struct netlock_packet *p = (const struct netlock_packet *)outbox_packet(&out, i);
        if (p->head.type == type && p->head.to.machine == to.machine)
            return *p;
    }
    CHECK_FAIL("no packet of type %d for machine %u among %u", type, to.machine, out.packets);
}

static void hears(struct netlock_packet p, enum netlock_type type, struct place from, uint8_t code)
{
    outbox_clear(&out);
    netlock_turn_round(&p, type, from.machine == SERVER ? 7 : 5, from);
    p.code = code;
    p.token = 1; /* LEASED: the server has the locks of slot 0; GRANT: the token */
    p.ticket = 9;
    netlock_host_packet(host, &p, sizeof p, now, &out);
}

static void gets_lease(struct place from)
{
    outbox_clear(&out);
    netlock_host_renew(host, now, &out);
    hears(sent(NETLOCK_LEASE, from), NETLOCK_LEASED, from, 0);
}

static void tries(void)
{
    const struct packet_ask a = {.request = REQUEST, .port = 100, .mode = PAWL_EXCLUSIVE, .index = 0, .try = true};
    outbox_clear(&out);
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
}

static int result(void)
{
    struct packet_answer a;
    return requests_outcome(host, REQUEST, &a) ? -EINPROGRESS : a.result;
}

static struct netlock_packet asks_again(void)
{
    outbox_clear(&out);
    now += 100 * RETRY_NS;
    netlock_host_tick(host, now, &out);
    return sent(NETLOCK_ACQUIRE, the_switch);
}

/* The second packet of a try whose first one the switch has granted. */
static struct netlock_packet first_and_second(struct netlock_packet *first)
{
    start();
    tries();
    gets_lease(the_switch);
    *first = sent(NETLOCK_ACQUIRE, the_switch);
    gets_lease(the_server);
    struct netlock_packet second = sent(NETLOCK_ACQUIRE, the_switch);
    CHECK(second.head.nonce != first->head.nonce && second.flags & NETLOCK_TRY);
    return second;
}

int main(void)
{
    struct netlock_packet first, second = first_and_second(&first);
    hears(second, NETLOCK_REFUSED, the_switch, NETLOCK_HELD); /* by the first */
    CHECK_EQ(result(), -EINPROGRESS);
    hears(first, NETLOCK_GRANT, the_switch, 0); /* its grant was slower, and is given back */
    CHECK_EQ(sent(NETLOCK_RELEASE, the_switch).head.nonce, first.head.nonce);
    CHECK_EQ(result(), -EINPROGRESS);
    struct netlock_packet third = asks_again();
    CHECK(third.head.nonce != second.head.nonce);
    hears(third, NETLOCK_GRANT, the_switch, 0);
    CHECK_EQ(result(), 0);

    /* Another session holds it for long: that is said after a bounded number of refusals. */
    second = first_and_second(&first);
    unsigned refusals = 0;
    for (; result() == -EINPROGRESS && refusals < 20; refusals++) {
        hears(second, NETLOCK_REFUSED, the_switch, NETLOCK_HELD);
        if (result() == -EINPROGRESS)
            second = asks_again();
    }
    CHECK_EQ(result(), -PAWL_EHELD);
    CHECK(refusals < 10);

    /* Without another nonce a refusal is believed. */
    start();
    gets_lease(the_switch);
    gets_lease(the_server);
    tries();
    hears(sent(NETLOCK_ACQUIRE, the_switch), NETLOCK_REFUSED, the_switch, NETLOCK_HELD);
    CHECK_EQ(result(), -PAWL_EHELD);
    free(host);
    return 0;
}
