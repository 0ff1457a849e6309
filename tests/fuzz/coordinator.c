/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator with any packets: it does not crash, its answers are complete, no host is given the number of a live one, and no
 * key the index of another. */
#include "cluster/coordinator.h"

#include <stdlib.h>

#define MACHINES 4
#define CHUNK sizeof(struct coord_packet)
#define LOCKS 100

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct coordinator *c, const uint8_t *answer, uint32_t len)
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
    if (a->head.type == COORD_FOUND && !a->code) {
        const struct coord_key *k = (const struct coord_key *)(const void *)answer;
        const char *bytes;
        uint32_t found;
        if (a->head.index >= LOCKS || directory_key_of(c->directory, a->head.index, &bytes, &found) || found != k->len ||
            memcmp(bytes, k->bytes, found))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct coord_member members[MACHINES + 1];
    static struct coordinator c;
    _Alignas(8) uint8_t answer[PACKET_MAX];
    struct directory directory;
    const char *why;
    uint64_t now = NS_PER_S;
    bool named = size % 3 == 0;
    directory_init(&directory, PAWL_KEYS_NAMED, LOCKS);
    bool racks = size % 5 == 0;
    const struct coord_params p = {.design = design_find(racks ? "fisslock-racks" : "srvlock"),
                                   .space = "fuzz",
                                   .locks = LOCKS,
                                   .lease_ns = NS_PER_S,
                                   .retry_ns = NS_PER_MS,
                                   .machines = MACHINES,
                                   .sessions = 2,
                                   .requests = 2,
                                   .servers = racks ? 0 : 1,
                                   .life = 1,
                                   .fresh = size % 2 == 0,
                                   .keys = named ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE,
                                   .directory = named ? &directory : NULL};
    if (coordinator_init(&c, &p, members, now, &why))
        abort();
    while (size > 2) {
        union {
            struct coord_packet packet;
            struct coord_key key;
            struct coord_beat beat;
        } u = {.key = {.look = 0}};
        uint8_t how = data[0], length = data[1];
        data += 2;
        size -= 2;
        size_t take = min_u64(size, CHUNK);
        coord_make(&u.packet, (enum coord_type)(how % (COORD_THIS + 1)), how & 0x40 ? "fuzz" : "other",
                   how & 8 ? NULL : &c.config.identity, how);
        u.packet.head.space = how & 0x80 ? c.config.space : u.packet.head.space;
        u.packet.head.from.machine = how % (MACHINES + 2);
        u.packet.head.epoch = how % 8;
        u.packet.head.index = length;
        u.packet.role = how % 5;
        bool is_key = u.packet.head.type >= COORD_FIND && u.packet.head.type <= COORD_FOUND;
        if (how & 0x20) /* as it is */
            memcpy(&u, data, take);
        else if (take > 16 && !is_key) /* somewhere in it */
            memcpy((char *)&u + length % (CHUNK - 16), data, 16);
        else if (take > 16) {
            u.key.len = length;
            u.key.look = data[0] & 1;
            memcpy(u.key.bytes, data, 16);
        }
        bool is_beat = u.packet.head.type == COORD_BEAT;
        uint32_t whole = is_key ? sizeof u.key : is_beat ? sizeof u.beat : sizeof u.packet, len = how & 0x10 ? length : whole;
        const struct net_addr from = net_v4(1 + length % 3, 7);
        check(&c, answer, coordinator_packet(&c, &u, len > whole ? whole : len, from, now, answer));
        if (coordinator_wants(&c))
            coordinator_set_rules(&c, coordinator_wants(&c));
        now += (uint64_t)length * 10 * NS_PER_MS;
        data += take;
        size -= take;
    }
    directory_free(&directory);
    return 0;
}
