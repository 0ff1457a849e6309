/* SPDX-License-Identifier: Apache-2.0 */
/* A try by a NetLock host that has just joined, packet by packet. It asks when it has a lease at the switch, and under another
 * nonce when it has one at the server. If the switch granted the former nonce, the try is refused because of itself: that is not
 * the answer. */
#include "tests/unit/netlock_host_kit.h"

static void tries(void)
{
    const struct packet_ask a = {.request = REQUEST, .port = 100, .mode = PAWL_EXCLUSIVE, .index = 0, .try = true};
    outbox_clear(&out);
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
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
