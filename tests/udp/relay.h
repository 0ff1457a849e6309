/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between hosts and a lock server or switch that loses, doubles and delays packets, as a bad network would, on loopback. To
 * each host's socket it looks like the server, to the server each host's socket has an address of its own. */
#ifndef PAWL_TESTS_UDP_RELAY_H
#define PAWL_TESTS_UDP_RELAY_H

#include "lib/rng.h"
#include "tests/check.h"
#include "wire/udp.h"
#include "world/world.h"

#include <poll.h>

#define RELAY_CLIENTS 400 /* sockets of hosts: those of the dead stay */
#define RELAY_LATE 512    /* packets that are under way, delayed */

struct relay_faults {
    unsigned loss, duplicate, late; /* of a thousand packets */
    uint64_t late_ns;               /* by how much, at most */
};

struct relay {
    struct udp front; /* where hosts send to */
    struct net_addr server;
    struct relay_faults faults;
    struct rng rng;
    struct {
        struct net_addr client;
        struct udp up; /* the client's address, to the server */
    } clients[RELAY_CLIENTS];
    unsigned count, next; /* next: whose place the next one takes when all are taken */
    struct {
        uint64_t at_ns; /* 0: none */
        struct udp *through;
        struct net_addr to;
        uint32_t len;
        uint8_t data[PACKET_MAX + 8];
    } late[RELAY_LATE];
    struct pollfd fds[RELAY_CLIENTS + 1];
    uint64_t passed, lost, duplicated, delayed;
};

static inline void relay_open(struct relay *r, struct net_addr at, struct net_addr server, const struct relay_faults *f,
                              uint64_t seed)
{
    memset(r, 0, sizeof *r);
    CHECK_EQ(udp_open(&r->front, at), 0);
    r->server = server;
    r->faults = *f;
    rng_seed(&r->rng, seed);
    r->fds[0] = (struct pollfd){.fd = r->front.fd, .events = POLLIN};
}

static inline void relay_send(struct relay *r, struct udp *through, struct net_addr to, const void *data, uint32_t len)
{
    const struct udp_out out = {.to = to, .len = len, .data = data};
    if (rng_below(&r->rng, 1000) >= r->faults.late) {
        udp_send(through, &out, 1);
        r->passed++;
        return;
    }
    for (unsigned i = 0; i < RELAY_LATE; i++)
        if (!r->late[i].at_ns) {
            r->late[i].at_ns = world_now(&world_real) + rng_below(&r->rng, r->faults.late_ns);
            r->late[i].through = through;
            r->late[i].to = to;
            r->late[i].len = len;
            memcpy(r->late[i].data, data, len);
            r->delayed++;
            return;
        }
}

static inline void relay_pass(struct relay *r, struct udp *through, struct net_addr to, const void *data, uint32_t len)
{
    if (rng_below(&r->rng, 1000) < r->faults.loss) {
        r->lost++;
        return;
    }
    relay_send(r, through, to, data, len);
    if (rng_below(&r->rng, 1000) < r->faults.duplicate) {
        r->duplicated++;
        relay_send(r, through, to, data, len);
    }
}

/* The socket that is this client for the server. */
static inline struct udp *relay_client(struct relay *r, struct net_addr client)
{
    for (unsigned i = 0; i < r->count; i++)
        if (net_addr_is(r->clients[i].client, client))
            return &r->clients[i].up;
    unsigned i = r->count < RELAY_CLIENTS ? r->count++ : r->next++ % RELAY_CLIENTS;
    if (net_addr_known(r->clients[i].client))
        udp_close(&r->clients[i].up);
    struct net_addr any = net_addr_at_port(r->front.at, 0);
    CHECK_EQ(udp_open(&r->clients[i].up, any), 0);
    r->clients[i].client = client;
    r->fds[i + 1] = (struct pollfd){.fd = r->clients[i].up.fd, .events = POLLIN};
    return &r->clients[i].up;
}

static inline void relay_late(struct relay *r)
{
    uint64_t now = world_now(&world_real);
    for (unsigned i = 0; i < RELAY_LATE; i++)
        if (r->late[i].at_ns && now >= r->late[i].at_ns) {
            const struct udp_out out = {.to = r->late[i].to, .len = r->late[i].len, .data = r->late[i].data};
            udp_send(r->late[i].through, &out, 1);
            r->late[i].at_ns = 0;
        }
}

/* Until it is killed. */
static inline void relay_run(struct relay *r)
{
    static struct udp_batch batch;
    for (;;) {
        poll(r->fds, r->count + 1, 1);
        relay_late(r);
        while (udp_receive(&r->front, &batch))
            for (unsigned i = 0; i < batch.count; i++)
                relay_pass(r, relay_client(r, batch.packet[i].from), r->server, batch.packet[i].data, batch.packet[i].len);
        for (unsigned c = 0; c < r->count; c++)
            while (r->fds[c + 1].revents && udp_receive(&r->clients[c].up, &batch)) {
                for (unsigned i = 0; i < batch.count; i++)
                    relay_pass(r, &r->front, r->clients[c].client, batch.packet[i].data, batch.packet[i].len);
                if (batch.count < UDP_BATCH)
                    break;
            }
    }
}

#endif
