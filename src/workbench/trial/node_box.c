/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/node_box.h"

#include <errno.h>
#include <string.h>

static uint64_t clock_of(const struct node_box *b)
{
    return sim_host_clock(b->process->host, sim_now(b->process->host->sim));
}

static void send_to(struct node_box *b, const struct memnode_from *to, const void *packet, uint32_t len)
{
    const struct sim_addr at = {.host = (uint32_t)to->opaque[0], .port = (uint16_t)to->opaque[1]};
    sim_wire_send(b->wire, node_box_addr(b), at, packet, len);
}

static void on_packet(void *ctx, const void *packet, uint32_t len, struct sim_addr from)
{
    struct node_box *b = ctx;
    struct {
        _Alignas(8) uint8_t bytes[SIM_PACKET_MAX];
    } copy;
    memcpy(copy.bytes, packet, len);
    struct memnode_from to = {.opaque = {from.host, from.port}};
    uint64_t random = mix64(b->process->host->sim->config.seed ^ ++b->randoms);
    uint32_t answer = memnode_packet(b->node, copy.bytes, len, &to, clock_of(b), random);
    if (answer)
        send_to(b, &to, copy.bytes, answer);
    while ((answer = memnode_more(b->node, copy.bytes, &to)))
        send_to(b, &to, copy.bytes, answer);
}

int node_box_start(struct node_box *b, struct sim_wire *wire, struct sim_process *process, const struct node_box_params *p)
{
    const struct memnode_params params = {.space = NODE_BOX_SPACE,
                                          .id = 7,
                                          .life = (uint32_t)process->host->births,
                                          .lease_ns = p->lease_ns,
                                          .clients = p->clients,
                                          .can = p->can,
                                          .mistakes = p->mistakes,
                                          .memory = process->host->memory,
                                          .bytes = process->host->memory_bytes};
    node_box_free(b);
    b->wire = wire;
    b->process = process;
    b->node = memnode_new(&params);
    return b->node ? sim_wire_bind(wire, process, NODE_BOX_PORT, 0, 0, on_packet, b) : -ENOMEM;
}

void node_box_tick(struct node_box *b)
{
    memnode_tick(b->node, clock_of(b));
}

void node_box_free(struct node_box *b)
{
    memnode_free(b->node);
    b->node = NULL;
}
