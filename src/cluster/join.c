/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/join.h"
#include "cluster/host.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

#define AGAIN_NS (20 * NS_PER_MS)
#define UNANSWERED_MAX 3u            /* a leader with etcd may take longer than AGAIN_NS */
#define SEVERAL_NS (100 * NS_PER_MS) /* between two questions, at most, if there are several to ask */

static bool is_about_key(int code)
{
    return code == COORD_WRONG_KEY || code == COORD_NO_KEY;
}

bool join_is_hint(const struct seal_asker *asker, int code)
{
    return seal_known(&asker->key) && is_about_key(code);
}

/* Whether the packet answers the JOIN: of the space that was asked for, by its name and, if the caller knows it, its identity. */
static bool is_answer(const struct coord_packet *p, const struct coord_packet *ask)
{
    if (!p || p->head.nonce != ask->head.nonce || memcmp(p->space, ask->space, sizeof p->space) != 0)
        return false;
    if (p->head.type == COORD_REFUSED)
        return p->code == COORD_FOREIGN || p->code == COORD_NOT_LEADER || is_about_key(p->code) || !rack_id_known(&ask->identity) ||
               coord_knows(&ask->identity, p);
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
    ask.head.generation = p->generation;
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

/* After the answer of one that stands by. Whether the leader can be asked at once: else it is not known, or the list leads back. */
static bool move_on(struct coord_list *l, struct net_addr leader)
{
    struct net_addr before = coord_list_at(l);
    coord_list_follow(l, leader);
    return net_addr_is(coord_list_at(l), leader) && !net_addr_is(before, leader);
}

void join_send(struct udp *u, struct net_addr to, const struct seal_asker *asker, const void *ask, uint32_t len,
               uint32_t answer_len)
{
    _Alignas(8) uint8_t bytes[PACKET_MAX] = {0};
    struct packet_head *h = (struct packet_head *)(void *)bytes;
    struct udp_out out = {.to = to, .len = (uint32_t)max_u64(len, answer_len), .data = bytes};
    assert(out.len <= sizeof bytes);
    memcpy(bytes, ask, len);
    if (seal_known(&asker->key)) {
        out.key = &asker->key;
        if (!h->from.machine)
            h->from.port = (uint16_t)asker->number;
    }
    udp_send(u, &out, 1);
}

bool join_opens(const struct seal_asker *asker, void *data, uint32_t len)
{
    const struct coord_packet *p = data;
    if (!seal_known(&asker->key) || seal_open(&asker->key, data, len))
        return true;
    p = coord_check(data, len, 0);
    return p && p->head.type == COORD_REFUSED && (p->code == COORD_WRONG_KEY || p->code == COORD_NO_KEY);
}

/* The key that the WELCOME gives the host. */
static void take_key(struct rack_welcome *known, const struct seal_asker *asker)
{
    const struct packet_head *h = &known->said.packet.head;
    struct seal_key wrapped;
    memset(&known->key, 0, sizeof known->key);
    if (!seal_known(&asker->key) || known->said.packet.role != COORD_HOST)
        return;
    static_assert(sizeof wrapped == sizeof known->said.packet.at.ip, "fits");
    memcpy(&wrapped, known->said.packet.at.ip, sizeof wrapped);
    known->key = seal_wrap(&wrapped, &asker->key, h->nonce, h->generation);
}

/* One JOIN, retransmitted until it is answered. With no answer the next coordinator is asked. */
ONCE static int ask_once(struct udp *u, struct coord_packet *ask, struct join_params *p, struct udp_batch *batch,
                         struct rack_welcome *out, uint64_t *stamp)
{
    const struct seal_asker *asker = &p->coordinators.asker;
    unsigned unanswered = 0;
    int rc = -ETIMEDOUT;
    while (world_now(&world_real) < p->deadline) {
        const struct net_addr to = coord_list_at(&p->coordinators);
        uint64_t again = min_u64(world_now(&world_real) + AGAIN_NS, p->deadline);
        bool answered = false, follow = false;
        ask->stamp = host_now();
        join_send(u, to, asker, ask, sizeof *ask, sizeof(struct coord_welcome));
        while (!follow && udp_wait(u, batch, 0, again))
            for (unsigned i = 0; i < batch->count; i++) {
                if (!join_opens(asker, batch->packet[i].data, batch->packet[i].len))
                    continue;
                const struct coord_packet *a = coord_check(batch->packet[i].data, batch->packet[i].len, 0);
                if (!is_answer(a, ask))
                    continue;
                if (a->head.type == COORD_WELCOME) {
                    if (!join_take(out, (const struct coord_welcome *)a))
                        return -EPROTO;
                    take_key(out, asker);
                    *stamp = a->stamp;
                    return 0;
                }
                rc = a->code;
                follow = rc == COORD_NOT_LEADER && net_addr_is(batch->packet[i].from, to) && move_on(&p->coordinators, a->at);
                answered = true;
                if (rc == COORD_ANEW) {
                    follow = a->head.generation > ask->head.generation;
                    ask->head.generation = p->generation = a->head.generation;
                    rc = -EAGAIN;
                }
                if (rc != -EAGAIN && rc != COORD_NOT_LEADER && !join_is_hint(asker, rc))
                    return rc < 0 ? rc : -EPROTO;
            }
        unanswered = answered ? 0 : unanswered + 1;
        if (unanswered == UNANSWERED_MAX) {
            coord_list_next(&p->coordinators);
            unanswered = 0;
        }
    }
    return rc;
}

/* Asks until the addresses of all lock servers have come. The lease counts from the first answer: each answer renews nothing. */
int join(struct udp *u, struct join_params *p, struct rack_welcome *out, uint64_t *stamp)
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

/* Takes the answer from a batch. 0; -ETIMEDOUT: it is not there; COORD_NOT_LEADER: *leader is asked next; or a refusal. */
static int find_answer(struct udp_batch *batch, const struct seal_asker *asker, const struct coord_packet *ask,
                       enum coord_type type, uint64_t term, void *answer, uint32_t answer_len, struct net_addr *leader)
{
    int rc = -ETIMEDOUT;
    for (unsigned i = 0; i < batch->count; i++) {
        if (!join_opens(asker, batch->packet[i].data, batch->packet[i].len))
            continue;
        const struct coord_packet *a = coord_check(batch->packet[i].data, batch->packet[i].len, 0);
        if (!a || a->head.nonce != ask->head.nonce || memcmp(a->space, ask->space, sizeof a->space) != 0)
            continue;
        if (a->head.type == COORD_REFUSED && (a->code == COORD_FOREIGN || a->code == -ENOENT || a->code == -EPROTOTYPE ||
                                              a->code == -EACCES || a->code == COORD_ADMIN_ONLY || is_about_key(a->code)))
            return a->code;
        if (a->head.type == COORD_REFUSED && a->code == COORD_NOT_LEADER) {
            rc = COORD_NOT_LEADER;
            *leader = a->at;
        }
        if (a->head.type != type || batch->packet[i].len != answer_len || a->term < term)
            continue;
        memcpy(answer, a, answer_len);
        return 0;
    }
    return rc;
}

ONCE int ask_leader(struct coord_list *l, uint64_t term, struct net_addr self, const struct coord_packet *ask, uint32_t len,
                    enum coord_type type, uint64_t deadline, void *answer, uint32_t answer_len)
{
    uint64_t pause_max = l->count > 1 ? SEVERAL_NS : NS_PER_S;
    struct udp u;
    int rc = udp_open(&u, net_addr_at_port(self, 0)), hint = 0;
    if (rc)
        return rc;
    struct udp_batch *batch = calloc(1, sizeof *batch);
    rc = batch ? -ETIMEDOUT : -ENOMEM;
    for (uint64_t pause = AGAIN_NS; rc == -ETIMEDOUT && world_now(&world_real) < deadline; pause = min_u64(2 * pause, pause_max)) {
        uint64_t again = min_u64(world_now(&world_real) + pause, deadline);
        bool told = false;
        join_send(&u, coord_list_at(l), &l->asker, ask, len, answer_len);
        while (rc == -ETIMEDOUT && udp_wait(&u, batch, 0, again)) {
            struct net_addr leader;
            rc = find_answer(batch, &l->asker, ask, type, term, answer, answer_len, &leader);
            if (join_is_hint(&l->asker, rc)) {
                hint = rc; /* another sender may say so */
                rc = -ETIMEDOUT;
            }
            if (rc != COORD_NOT_LEADER)
                continue;
            rc = -ETIMEDOUT; /* until the leader answers */
            told = true;
            if (move_on(l, leader))
                break;
        }
        if (!told && rc == -ETIMEDOUT)
            coord_list_next(l);
    }
    free(batch);
    udp_close(&u);
    return rc == -ETIMEDOUT && hint ? hint : rc;
}

int exchange(struct net_addr to, const struct seal_asker *asker, struct net_addr self, const struct coord_packet *ask, uint32_t len,
             enum coord_type type, uint64_t deadline, void *answer, uint32_t answer_len)
{
    struct coord_list one = coord_list_one(to);
    one.asker = *asker;
    return ask_leader(&one, 0, self, ask, len, type, deadline, answer, answer_len);
}
