/* SPDX-License-Identifier: Apache-2.0 */
/* A switch with room for half of the locks, a server that decides the others, and a host: whatever arrives, they stay in one piece,
 * a lock is in one cell at most, and no cell is lost.
 *
 * Input: packets, each after a byte that names the receiver (the switch, the server, the host) and one with its length in units of
 * 8 bytes. Packets that come out go to their receivers. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/fisslock/placement.h"
#include "tests/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LOCKS 8
#define ROOM 4
#define DEPTH_MAX 8 /* answers to answers */

static _Alignas(64) char host[1 << 18], server[1 << 14], centre[1 << 16];
static const struct rack_config config = {.space = 7,
                                          .machines = 1,
                                          .sessions = 1,
                                          .requests = 4,
                                          .servers = 1,
                                          .server = {1},
                                          .locks = LOCKS,
                                          .switch_locks = ROOM,
                                          .lease_ns = 1000000,
                                          .retry_ns = 1000};

static void check_placement(void)
{
    unsigned here = 0;
    for (uint64_t i = 0; i < LOCKS; i++)
        here += fisslock_switch_has(centre, i);
    CHECK(here <= ROOM);
}

enum { TO_SWITCH, TO_SERVER, TO_HOST };

static void deliver(unsigned to, const void *packet, uint32_t len, uint64_t now, unsigned depth)
{
    struct outbox *out = calloc(1, sizeof *out);
    CHECK(out != NULL);
    if (to == TO_SWITCH)
        fisslock_switch_packet(centre, packet, len, now, out);
    else if (to == TO_SERVER)
        fisslock_server_packet(server, packet, len, now, out);
    else
        fisslock_packet(host, packet, len, now, out);
    for (unsigned i = 0; i < out->packets && depth < DEPTH_MAX; i++) {
        const struct packet_head *h = outbox_packet(out, i);
        unsigned next = to != TO_SWITCH ? TO_SWITCH : h->to.port == PORT_SERVER ? TO_SERVER : TO_HOST;
        deliver(next, h, out->packet[i].len, now, depth + 1);
    }
    free(out);
}

static void tick(uint64_t now)
{
    static struct outbox out;
    fisslock_tick(host, now, &out);
    fisslock_server_tick(server, now, &out);
    for (unsigned i = 0; i < out.packets; i++)
        deliver(TO_SWITCH, outbox_packet(&out, i), out.packet[i].len, now, 0);
    outbox_clear(&out);
    fisslock_switch_tick(centre, now, &out);
    outbox_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outbox out;
    CHECK(fisslock_host_bytes(&config) <= sizeof host && fisslock_server_bytes(&config) <= sizeof server &&
          fisslock_switch_bytes(&config) <= sizeof centre);
    memset(host, 0, sizeof host);
    memset(server, 0, sizeof server);
    memset(centre, 0, sizeof centre);
    fisslock_switch_init(centre, &config, 1, 0);
    fisslock_server_init(server, &config, 1, 1, true, 0);
    fisslock_host_init(host, &config, 1, 1, 0);
    tick(1); /* a lease, and a welcome */
    for (uint32_t r = 0; r < 2; r++) {
        struct packet_ask ask = {.request = r, .port = 2, .mode = r ? PAWL_EXCLUSIVE : PAWL_SHARED, .index = 3 + r};
        fisslock_acquire(host, &ask, 2, &out);
        for (unsigned i = 0; i < out.packets; i++)
            deliver(TO_SWITCH, outbox_packet(&out, i), out.packet[i].len, 2, 0);
        outbox_clear(&out);
        CHECK(fisslock_holds(host, r)); /* one from the switch, one from the server */
    }
    for (uint64_t now = 10; size >= 2; now += 100) {
        _Alignas(8) uint8_t packet[PACKET_MAX];
        unsigned to = data[0] % 3;
        uint32_t len = (uint32_t)min_u64(min_u64(8u * data[1], size - 2), sizeof packet);
        data += 2;
        size -= 2;
        memcpy(packet, data, len);
        data += len;
        size -= len;
        deliver(to, packet, len, now, 0);
        tick(now);
        check_placement();
    }
    return 0;
}
