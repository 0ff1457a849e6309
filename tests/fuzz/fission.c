/* SPDX-License-Identifier: Apache-2.0 */
/* Decider and hosts with any packets: nothing is read beyond the packet, no client that did not ask gets a hold, and a packet that
 * the stateless check refuses changes nothing.
 *
 * Input: packets, each after a byte that names the receiver (0: the decider) and one with its length in units of 8 bytes. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "tests/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS 2
#define LOCKS 8

static void check_state(struct fisslock_host *h)
{
    unsigned nodes = 0;
    for (uint32_t n = h->node_free; n != NONE; n = host_node(h, n)->next)
        nodes++;
    CHECK_EQ(nodes + h->nodes_used, h->nodes_touched);
    for (uint32_t i = 0; i < h->request_count; i++)
        CHECK(host_request(h, i)->state <= FISS_RELEASING);
    for (uint32_t i = 3; i < h->request_count; i++)
        CHECK_EQ(host_request(h, i)->state, FISS_IDLE); /* never asked */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(64) char host[HOSTS + 1][1 << 18], decider[1 << 14];
    static struct outbox out;
    const struct rack_config c = {.space = 7, .machines = HOSTS, .sessions = 1, .requests = 4, .locks = LOCKS, .retry_ns = 1000};
    CHECK(fisslock_host_bytes(&c) <= sizeof host[0] && fisslock_switch_bytes(&c) <= sizeof decider);
    outbox_clear(&out);
    fisslock_switch_init(decider, &c, 1, 0);
    for (uint16_t i = 1; i <= HOSTS; i++) {
        memset(host[i], 0, fisslock_host_bytes(&c));
        fisslock_host_init(host[i], &c, i, 1, 0);
        struct packet_ask ask = {.request = 0, .port = 2, .mode = PAWL_SHARED, .index = 3};
        fisslock_acquire(host[i], &ask, 0, &out);
        ask = (struct packet_ask){.request = 1, .port = 2, .mode = PAWL_EXCLUSIVE, .index = 4};
        fisslock_acquire(host[i], &ask, 0, &out);
        ask = (struct packet_ask){.request = 2, .port = 2, .mode = PAWL_SHARED, .index = 5, .limit = 1};
        fisslock_acquire(host[i], &ask, 0, &out);
        outbox_clear(&out);
    }
    for (uint64_t now = 1; size >= 2; now += 100) {
        _Alignas(8) uint8_t packet[PACKET_MAX];
        unsigned to = data[0] % (HOSTS + 1);
        uint32_t len = (uint32_t)min_u64(min_u64(8u * data[1], size - 2), sizeof packet);
        data += 2;
        size -= 2;
        memcpy(packet, data, len);
        data += len;
        size -= len;
        if (to == 0) {
            uint64_t before[LOCKS];
            struct fission_rules rules = {.space = 7, .machines = HOSTS, .locks = LOCKS};
            const struct packet_drops *d = fisslock_switch_drops(decider);
            for (uint64_t i = 0; i < LOCKS; i++)
                before[i] = fisslock_switch_word(decider, i);
            fisslock_switch_packet(decider, packet, len, now, &out);
            if (fission_verify(packet, len, &rules) != FISSION_FINE) {
                CHECK_EQ(out.packets, 0);
                for (uint64_t i = 0; i < LOCKS; i++)
                    CHECK_EQ(fisslock_switch_word(decider, i), before[i]);
                CHECK(d->bad + d->alien + d->stale + d->unreadable > 0);
            }
        } else {
            fisslock_packet(host[to], packet, len, now, &out);
            outbox_clear(&out);
            fisslock_tick(host[to], now, &out);
            check_state((struct fisslock_host *)host[to]);
        }
        outbox_clear(&out);
    }
    return 0;
}
