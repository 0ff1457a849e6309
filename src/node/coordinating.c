#include "cluster/host.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK_NS (100 * NS_PER_MS) /* how often whether to stop */

int coordinating_open(struct coordinating *c, const struct coord_params *p, struct net_addr at, const char **why)
{
    *why = NULL;
    const volatile sig_atomic_t *stop = c->stop;
    memset(c, 0, sizeof *c);
    c->stop = stop;
    c->members = calloc(p->machines + UINT64_C(1), sizeof *c->members);
    int rc = c->members ? coordinator_init(&c->coordinator, p, c->members, host_now(), why) : -ENOMEM;
    if (!rc)
        rc = udp_open(&c->udp, at);
    if (rc)
        free(c->members);
    return rc;
}

void coordinating_run(struct coordinating *c)
{
    static _Thread_local struct udp_batch batch;
    _Alignas(8) uint8_t answer[PACKET_MAX];
    while (!*c->stop) {
        unsigned n = udp_wait(&c->udp, &batch, 0, world_now(&world_real) + LOOK_NS);
        for (unsigned i = 0; i < n; i++) {
            struct udp_out out = {.to = batch.packet[i].from, .data = answer};
            out.len = coordinator_packet(&c->coordinator, batch.packet[i].data, batch.packet[i].len, out.to, host_now(), answer);
            if (out.len)
                udp_send(&c->udp, &out, 1);
        }
        struct udp_out more = {.data = answer};
        while ((more.len = coordinator_more(&c->coordinator, answer, &more.to)))
            udp_send(&c->udp, &more, 1);
        coordinator_tick(&c->coordinator, host_now());
    }
}

void coordinating_close(struct coordinating *c)
{
    udp_close(&c->udp);
    free(c->members);
}
