/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/join.h"
#include "cluster/host.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

#define AGAIN_NS (20 * NS_PER_MS)

/* Whether the packet answers the JOIN: of the space that was asked for, by its name and, if the caller knows it, its identity. */
static bool is_answer(const struct coord_packet *p, const struct coord_packet *ask)
{
    if (!p || p->head.nonce != ask->head.nonce || memcmp(p->space, ask->space, sizeof p->space) != 0)
        return false;
    if (p->head.type == COORD_REFUSED)
        return p->code == COORD_FOREIGN || !rack_id_known(&ask->identity) || coord_knows(&ask->identity, p);
    return p->head.type == COORD_WELCOME && rack_id_known(&p->identity) &&
           (!rack_id_known(&ask->identity) || coord_knows(&ask->identity, p));
}

struct coord_packet join_packet(const struct join_params *p)
{
    struct coord_packet ask;
    coord_make(&ask, COORD_JOIN, p->space, rack_id_known(&p->identity) ? &p->identity : NULL, p->nonce);
    ask.identity.features = PACKET_FEATURES;
    ask.head.to.port = (uint16_t)p->rack;
    ask.role = p->role;
    ask.code = p->force ? COORD_FORCE : 0;
    ask.at = p->at;
    return ask;
}

bool join_take(struct rack_welcome *known, const struct coord_welcome *w)
{
    const struct rack_config *c = &w->config;
    if (!rack_same_space(&c->identity, &w->packet.identity) || c->space != w->packet.head.space ||
        c->space != rack_short_id(&c->identity) || c->identity.features & ~PACKET_FEATURES || c->servers > RACK_SERVERS_MAX ||
        c->racks > RACKS_MAX || w->first_server > c->servers)
        return false;
    for (unsigned i = 0; i < COORD_WELCOME_SERVERS && w->first_server + i < c->servers; i++)
        known->servers[w->first_server + i] = w->servers[i];
    uint32_t places = w->first_server ? known->said.places : w->places; /* of the earliest answer: later changes are told again */
    known->said = *w;
    known->said.places = places;
    known->said.design[sizeof known->said.design - 1] = 0;
    return true;
}

/* One JOIN, retransmitted until it is answered. */
static int ask_once(struct udp *u, struct coord_packet *ask, const struct join_params *p, struct udp_batch *batch,
                    struct rack_welcome *out, uint64_t *stamp)
{
    int rc = -ETIMEDOUT;
    while (world_now(&world_real) < p->deadline) {
        const struct udp_out packet = {.to = p->coordinator, .len = sizeof *ask, .data = ask};
        uint64_t again = min_u64(world_now(&world_real) + AGAIN_NS, p->deadline);
        ask->stamp = host_now();
        udp_send(u, &packet, 1);
        while (udp_wait(u, batch, 0, again))
            for (unsigned i = 0; i < batch->count; i++) {
                const struct coord_packet *a = coord_check(batch->packet[i].data, batch->packet[i].len, 0);
                if (!is_answer(a, ask))
                    continue;
                if (a->head.type == COORD_WELCOME) {
                    if (!join_take(out, (const struct coord_welcome *)a))
                        return -EPROTO;
                    *stamp = a->stamp;
                    return 0;
                }
                rc = a->code;
                if (rc != -EAGAIN)
                    return rc < 0 ? rc : -EPROTO;
            }
    }
    return rc;
}

/* Asks until the addresses of all lock servers have come. The lease counts from the first answer: each answer renews nothing. */
int join(struct udp *u, const struct join_params *p, struct rack_welcome *out, uint64_t *stamp)
{
    struct coord_packet ask = join_packet(p);
    struct udp_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return -ENOMEM;
    if (!p->nonce)
        ask.head.nonce = world_random(&world_real) | 1;
    int rc = ask_once(u, &ask, p, batch, out, stamp);
    for (uint64_t ignored; !rc && ask.head.index + COORD_WELCOME_SERVERS < out->said.config.servers;) {
        ask.head.index += COORD_WELCOME_SERVERS;
        rc = ask_once(u, &ask, p, batch, out, &ignored);
    }
    free(batch);
    return rc;
}

int exchange(struct net_addr to, struct net_addr self, const struct coord_packet *ask, uint32_t len, enum coord_type type,
             uint64_t deadline, void *answer, uint32_t answer_len)
{
    struct udp u;
    int rc = udp_open(&u, net_addr_at_port(self, 0));
    if (rc)
        return rc;
    struct udp_batch *batch = calloc(1, sizeof *batch);
    rc = batch ? -ETIMEDOUT : -ENOMEM;
    for (uint64_t pause = AGAIN_NS; rc == -ETIMEDOUT && world_now(&world_real) < deadline; pause = min_u64(2 * pause, NS_PER_S)) {
        const struct udp_out packet = {.to = to, .len = len, .data = ask};
        uint64_t again = min_u64(world_now(&world_real) + pause, deadline);
        udp_send(&u, &packet, 1);
        while (rc == -ETIMEDOUT && udp_wait(&u, batch, 0, again))
            for (unsigned i = 0; i < batch->count && rc; i++) {
                const struct coord_packet *a = coord_check(batch->packet[i].data, batch->packet[i].len, 0);
                if (!a || a->head.nonce != ask->head.nonce || memcmp(a->space, ask->space, sizeof a->space) != 0)
                    continue;
                if (a->head.type == COORD_REFUSED && (a->code == COORD_FOREIGN || a->code == -ENOENT || a->code == -EPROTOTYPE)) {
                    rc = a->code;
                    break;
                }
                if (a->head.type != type || batch->packet[i].len != answer_len)
                    continue;
                memcpy(answer, a, answer_len);
                rc = 0;
            }
    }
    free(batch);
    udp_close(&u);
    return rc;
}
