/* The coordinator's packets, as anybody might send them: whatever comes, it does not fall over, its answers are whole, and nobody
 * is given a number that somebody live has. */
#include "cluster/coordinator.h"

#include <stdlib.h>

#define MACHINES 4
#define CHUNK sizeof(struct coord_packet)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct coordinator *c, const void *answer, uint32_t len)
{
    if (!len)
        return;
    const struct coord_packet *a = coord_check(answer, len, c->config.space);
    if (!a)
        abort();
    if (a->head.type == COORD_WELCOME && a->role == COORD_HOST) {
        uint16_t m = a->head.to.machine;
        if (!m || m > MACHINES || !c->members[m].live || c->members[m].life != a->head.generation)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct coord_member members[MACHINES + 1];
    static struct coordinator c;
    _Alignas(8) uint8_t answer[PACKET_MAX];
    const char *why;
    uint64_t now = NS_PER_S;
    const struct coord_params p = {.design = design_find("srvlock"),
                                   .space = "fuzz",
                                   .locks = 100,
                                   .lease_ns = NS_PER_S,
                                   .retry_ns = NS_PER_MS,
                                   .machines = MACHINES,
                                   .sessions = 2,
                                   .requests = 2,
                                   .servers = 1,
                                   .life = 1,
                                   .fresh = size % 2 == 0};
    if (coordinator_init(&c, &p, members, now, &why))
        abort();
    while (size > 2) {
        struct coord_packet packet;
        uint8_t how = data[0], length = data[1];
        data += 2;
        size -= 2;
        size_t take = min_u64(size, CHUNK);
        coord_make(&packet, (enum coord_type)(how % 10), how & 0x40 ? "fuzz" : "other", how);
        packet.head.space = how & 0x80 ? c.config.space : packet.head.space;
        packet.head.from.machine = how % (MACHINES + 2);
        packet.head.epoch = how % 8;
        packet.role = how % 5;
        if (how & 0x20) /* as it is */
            memcpy(&packet, data, take);
        else if (take > 16) /* somewhere in it */
            memcpy((char *)&packet + length % (CHUNK - 16), data, 16);
        uint32_t len = how & 0x10 ? length : (uint32_t)sizeof packet;
        const struct net_addr from = {.ip = 1 + length % 3, .port = 7};
        check(&c, answer, coordinator_packet(&c, &packet, len > sizeof packet ? sizeof packet : len, from, now, answer));
        now += (uint64_t)length * 10 * NS_PER_MS;
        data += take;
        size -= take;
    }
    return 0;
}
