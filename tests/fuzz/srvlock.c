/* SPDX-License-Identifier: Apache-2.0 */
/* A server and a host of srvlock with any packets: they do not crash, and the packets that they send are complete and for machines
 * that exist. */
#include "designs/srvlock/srvlock.h"

#include <stdlib.h>

#define MACHINES 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct outbox *o, const struct rack_config *c)
{
    for (unsigned i = 0; i < o->packets; i++) {
        const struct packet_head *h = outbox_packet(o, i);
        if (o->packet[i].len != sizeof(struct srv_packet) || h->space != c->space || !h->to.machine || h->to.machine > MACHINES + 1)
            abort();
    }
    outbox_clear(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outbox out;
    const struct rack_config c = {.space = 7,
                                  .machines = MACHINES,
                                  .sessions = 2,
                                  .requests = 4,
                                  .servers = 1,
                                  .server = {MACHINES + 1},
                                  .locks = 5,
                                  .lease_ns = NS_PER_S,
                                  .retry_ns = NS_PER_MS};
    void *server = calloc(1, srv_server_bytes(&c)), *host = calloc(1, srv_host_bytes(&c));
    uint64_t now = NS_PER_S;
    if (!server || !host)
        abort();
    outbox_clear(&out);
    srv_server_init(server, &c, MACHINES + 1, 1, true, now);
    srv_host_init(host, &c, 1, 1, now);
    for (uint32_t i = 0; i < 6; i++) {
        const struct packet_ask ask = {.request = i, .port = 9, .mode = PAWL_EXCLUSIVE, .index = i % 5};
        srv_acquire(host, &ask, now, &out);
    }
    srv_tick(host, now, &out);
    check(&out, &c);
    while (size > 4) {
        struct srv_packet p = {0};
        uint8_t how = data[0];
        p.head = (struct packet_head){.version = PACKET_VERSION,
                                      .family = PACKET_SERVER,
                                      .type = data[1] % (SRV_WANTED + 2),
                                      .space = c.space,
                                      .epoch = 1 + data[2] % 2,
                                      .index = data[2] % 6,
                                      .nonce = (uint64_t)(1 + data[3] % 8) << SRV_SLOT_BITS | data[2] % 9,
                                      .from = {(uint16_t)(how & 1 ? 1 + data[3] % 4 : MACHINES + 1), (uint16_t)(how & 1 ? 9 : 1)},
                                      .to = {(uint16_t)(how & 1 ? MACHINES + 1 : 1), 9}};
        p.mode = data[3] % 4;
        p.stamp = now;
        p.step = data[2] % 3;
        data += 4;
        size -= 4;
        size_t take = min_u64(size, sizeof p);
        if (how & 2 && take > 8) /* spoilt */
            memcpy((char *)&p + how % (sizeof p - 8), data, 8);
        uint32_t len = how & 4 ? (uint32_t)take : (uint32_t)sizeof p;
        if (how & 1)
            srv_server_packet(server, &p, len, now, &out);
        else
            srv_packet(host, &p, len, now, &out);
        check(&out, &c);
        now += (uint64_t)how * NS_PER_MS;
        srv_server_tick(server, now, &out);
        check(&out, &c);
        srv_tick(host, now, &out);
        check(&out, &c);
        srv_wanted(host, data[-1] % 6, now, &out);
        check(&out, &c);
        data += how & 2 ? min_u64(take, 8) : 0;
        size -= how & 2 ? min_u64(take, 8) : 0;
    }
    free(server);
    free(host);
    return 0;
}
