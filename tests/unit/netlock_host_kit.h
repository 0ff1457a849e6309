/* SPDX-License-Identifier: Apache-2.0 */
/* A NetLock host alone, for unit tests: the test is the switch and the server, and gives the answers. */
#ifndef PAWL_TESTS_UNIT_NETLOCK_HOST_KIT_H
#define PAWL_TESTS_UNIT_NETLOCK_HOST_KIT_H

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

static inline void start(void)
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
static inline struct netlock_packet sent(enum netlock_type type, struct place to)
{
    for (unsigned i = 0; i < out.packets; i++) {
        const struct netlock_packet *p = (const struct netlock_packet *)outbox_packet(&out, i);
        if (p->head.type == type && p->head.to.machine == to.machine)
            return *p;
    }
    CHECK_FAIL("no packet of type %d for machine %u among %u", type, to.machine, out.packets);
}

static inline void hears(struct netlock_packet p, enum netlock_type type, struct place from, uint8_t code)
{
    outbox_clear(&out);
    netlock_turn_round(&p, type, from.machine == SERVER ? 7 : 5, from);
    p.code = code;
    p.token = 1; /* LEASED: the server has the locks of slot 0; GRANT: the token */
    p.ticket = 9;
    netlock_host_packet(host, &p, sizeof p, now, &out);
}

static inline void gets_lease(struct place from)
{
    outbox_clear(&out);
    netlock_host_renew(host, now, &out);
    hears(sent(NETLOCK_LEASE, from), NETLOCK_LEASED, from, 0);
}

static inline int result(void)
{
    struct packet_answer a;
    return requests_outcome(host, REQUEST, &a) ? -EINPROGRESS : a.result;
}

static inline struct netlock_packet asks_again(void)
{
    outbox_clear(&out);
    now += 100 * RETRY_NS;
    netlock_host_tick(host, now, &out);
    return sent(NETLOCK_ACQUIRE, the_switch);
}

#endif
