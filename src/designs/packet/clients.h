/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a rack as a lock server knows them: each has a life, and a lease without which it holds nothing from here. The other
 * side of granters.h. */
#ifndef PAWL_DESIGNS_PACKET_CLIENTS_H
#define PAWL_DESIGNS_PACKET_CLIENTS_H

#include "designs/packet/packet.h"

#define LEASE_SHARE 4u /* a lease is renewed four times before it ends */
#define LEASE_DRIFT_DIVISOR RACK_DRIFT_DIVISOR

/* Of lock leases, as packet.h has them of any. */
static inline uint64_t lease_over(const struct rack_config *c)
{
    return lease_surely_over(c->lease_ns);
}

static inline uint64_t lease_until(const struct rack_config *c, uint64_t stamp)
{
    return lease_valid_until(stamp, c->lease_ns);
}

struct client {
    uint64_t until_ns; /* its lease */
    uint64_t said_ns;  /* when it sent the heartbeat that renewed it last, by the host's clock */
    uint32_t life;
    bool live; /* it has one */
};

/* Ends everything that a host has at the server. `anew`: the host started anew, and numbers its requests from the beginning. */
typedef void (*client_end_fn)(void *server, uint16_t machine, bool anew, uint64_t now, struct outbox *out);

/* Whether a packet is of its host's latest life. A host that started anew, or whose lease has ended, loses what it had. */
bool client_admit(struct client *c, const struct packet_head *h, struct packet_drops *drops, client_end_fn end, void *server,
                  uint64_t now, struct outbox *out);

/* Ends what belongs to leases that have ended; returns when the next lease ends. `clients`: by the number of the machine. */
uint64_t clients_lapse(struct client *clients, const struct rack_config *c, client_end_fn end, void *server, uint64_t now,
                       struct outbox *out);

static inline void client_renew(struct client *c, const struct rack_config *config, uint64_t now)
{
    c->live = true;
    c->until_ns = now + config->lease_ns;
}

/* Whether a LEASE of the host is no duplicate of an earlier one, and none that a later one has overtaken. */
static inline bool client_hears(const struct client *c, uint64_t stamp, const struct rack_config *config,
                                struct packet_drops *drops)
{
    bool news = lease_is_news(stamp, c->said_ns, config->mistakes);
    drops->stale += !news;
    return news;
}

/* The number of the server on that machine; config.servers: there is none. */
static inline unsigned rack_server_on(const struct rack_config *c, uint16_t machine)
{
    unsigned i = 0;
    while (i < c->servers && c->server[i] != machine)
        i++;
    return i;
}

#endif
