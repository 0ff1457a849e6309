/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/join.h"
#include "cluster/host.h"
#include "world/world.h"

#include <errno.h>

#define AGAIN_NS (20 * NS_PER_MS)

/* Whether the packet answers the JOIN with this nonce. */
static bool is_answer(const void *data, uint32_t len, uint64_t nonce, const char *space)
{
    const struct coord_packet *p = coord_check(data, len, coord_space_id(space));
    return p && p->head.nonce == nonce && (p->head.type == COORD_WELCOME || p->head.type == COORD_REFUSED);
}

struct coord_packet join_packet(const struct join_params *p)
{
    struct coord_packet ask;
    coord_make(&ask, COORD_JOIN, p->space, p->nonce);
    ask.head.to.port = (uint16_t)p->rack;
    ask.role = p->role;
    ask.at = p->at;
    return ask;
}

int join(struct udp *u, const struct join_params *p, struct coord_welcome *out, uint64_t *stamp)
{
    static _Thread_local struct udp_batch batch;
    struct coord_packet ask = join_packet(p);
    int rc = -ETIMEDOUT;
    if (!p->nonce)
        ask.head.nonce = world_random(&world_real) | 1;
    while (world_now(&world_real) < p->deadline) {
        const struct udp_out packet = {.to = p->coordinator, .len = sizeof ask, .data = &ask};
        uint64_t again = min_u64(world_now(&world_real) + AGAIN_NS, p->deadline);
        ask.stamp = host_now();
        udp_send(u, &packet, 1);
        while (udp_wait(u, &batch, 0, again))
            for (unsigned i = 0; i < batch.count; i++) {
                const struct coord_packet *a = (const struct coord_packet *)(const void *)batch.packet[i].data;
                if (!is_answer(a, batch.packet[i].len, ask.head.nonce, p->space))
                    continue;
                if (a->head.type == COORD_WELCOME) {
                    memcpy(out, a, sizeof *out);
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

int exchange(struct net_addr to, uint32_t self_ip, const struct coord_packet *ask, uint32_t len, enum coord_type type,
             uint64_t deadline, void *answer, uint32_t answer_len)
{
    static _Thread_local struct udp_batch batch;
    struct udp u;
    int rc = udp_open(&u, (struct net_addr){.ip = self_ip});
    if (rc)
        return rc;
    rc = -ETIMEDOUT;
    for (uint64_t pause = AGAIN_NS; rc == -ETIMEDOUT && world_now(&world_real) < deadline; pause = min_u64(2 * pause, NS_PER_S)) {
        const struct udp_out packet = {.to = to, .len = len, .data = ask};
        uint64_t again = min_u64(world_now(&world_real) + pause, deadline);
        udp_send(&u, &packet, 1);
        while (rc == -ETIMEDOUT && udp_wait(&u, &batch, 0, again))
            for (unsigned i = 0; i < batch.count && rc; i++) {
                const struct coord_packet *a = coord_check(batch.packet[i].data, batch.packet[i].len, ask->head.space);
                if (!a || a->head.nonce != ask->head.nonce || a->head.type != type || batch.packet[i].len != answer_len)
                    continue;
                memcpy(answer, a, answer_len);
                rc = 0;
            }
    }
    udp_close(&u);
    return rc;
}
