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
    c->design = p->design->packet;
    if (!rc && c->design->steward_packet) {
        c->steward = calloc(1, c->design->steward_bytes(&c->coordinator.config));
        c->out = calloc(1, sizeof *c->out);
        rc = c->steward && c->out ? 0 : -ENOMEM;
    }
    if (!rc && c->steward)
        c->design->steward_init(c->steward, &c->coordinator.config, p->life, p->fresh, host_now());
    c->udp.fd = -1;
    if (!rc)
        rc = udp_open(&c->udp, at);
    if (rc)
        coordinating_close(c);
    return rc;
}

/* For the steward: it answers whoever asks. */
static void one_packet(struct coordinating *c, const void *data, uint32_t len, struct net_addr from)
{
    outbox_clear(c->out);
    c->design->steward_packet(c->steward, data, len, host_now(), c->out);
    for (unsigned i = 0; i < c->out->packets; i++) {
        const struct udp_out out = {.to = from, .len = c->out->packet[i].len, .data = outbox_packet(c->out, i)};
        udp_send(&c->udp, &out, 1);
    }
}

void coordinating_run(struct coordinating *c)
{
    static _Thread_local struct udp_batch batch;
    _Alignas(8) uint8_t answer[PACKET_MAX];
    while (!*c->stop) {
        unsigned n = udp_wait(&c->udp, &batch, 0, world_now(&world_real) + LOOK_NS);
        for (unsigned i = 0; i < n; i++) {
            const struct packet_head *h = (const struct packet_head *)(const void *)batch.packet[i].data;
            struct udp_out out = {.to = batch.packet[i].from, .data = answer};
            if (c->steward && batch.packet[i].len >= sizeof *h && h->family == c->design->family) {
                one_packet(c, h, batch.packet[i].len, out.to);
                continue;
            }
            out.len = coordinator_packet(&c->coordinator, batch.packet[i].data, batch.packet[i].len, out.to, host_now(), answer);
            if (out.len)
                udp_send(&c->udp, &out, 1);
        }
        coordinator_tick(&c->coordinator, host_now());
        if (c->steward) {
            outbox_clear(c->out);
            c->design->steward_tick(c->steward, host_now(), c->out);
        }
    }
}

void coordinating_close(struct coordinating *c)
{
    udp_close(&c->udp);
    free(c->members);
    free(c->steward);
    free(c->out);
}
