/* SPDX-License-Identifier: Apache-2.0 */
/* The filter before the socket of a lock server or switch: datagrams with a right tag pass, of every length, with either of two
 * keys, of hosts, of other granters and of programs that ask; all others end in the kernel, and are counted. */
#include "dataplane/xdp/gate.h"
#include "dataplane/xdp/loader.h"
#include "lib/rng.h"
#include "tests/check.h"
#include "wire/udp.h"

#include <errno.h>

#define MACHINES 5u
#define LIFE 77u
#define SPACE 0x1230u

static const struct seal_ring ring = {.count = 2, .key = {{{1, 2}}, {{3, 4}}}};
static struct gate_filter *filter;
static struct udp at, from;
static struct udp_batch batch;
static uint64_t refused;

static struct seal_key host_key(unsigned which, uint16_t machine)
{
    return seal_host_key(&ring.key[which], SPACE, machine, LIFE);
}

/* Whether a datagram of that length in that name, with that tag, reaches the socket; else it must be counted. */
static bool passes(struct place name, uint32_t len, const struct seal_key *key)
{
    static uint64_t nonce;
    _Alignas(8) uint8_t bytes[PACKET_MAX + 8] = {0};
    struct packet_head h = {
        .version = PACKET_VERSION, .family = PACKET_SERVER, .type = 1, .space = SPACE, .from = name, .nonce = ++nonce};
    for (uint32_t i = sizeof h; i < len; i++)
        bytes[i] = (uint8_t)(i * 31 + nonce);
    memcpy(bytes, &h, sizeof h);
    if (key && len >= sizeof h && len <= PACKET_MAX)
        seal_put(key, bytes, len);
    const struct udp_out out = {.to = at.at, .len = len, .data = bytes};
    udp_send(&from, &out, 1);
    unsigned n = udp_receive(&at, &batch); /* what is sent on loopback is there at once */
    uint64_t sum = gate_refused(filter);
    CHECK_EQ(sum - refused, n ? 0 : 1);
    refused = sum;
    CHECK(!n || (batch.packet[0].len == len && !memcmp(batch.packet[0].data, bytes, len)));
    return n;
}

static void tags(void)
{
    struct rng rng;
    rng_seed(&rng, 1);
    for (unsigned i = 0; i < 4000; i++) {
        uint16_t machine = (uint16_t)(1 + rng_below(&rng, MACHINES));
        uint32_t len = i < 1400
                           ? (uint32_t)(sizeof(struct packet_head) + i % (PACKET_MAX - sizeof(struct packet_head) + 1))
                           : (uint32_t)(sizeof(struct packet_head) + rng_below(&rng, PACKET_MAX - sizeof(struct packet_head) + 1));
        struct seal_key key = host_key(i & 1, machine), other = host_key(i & 1, (uint16_t)(machine % MACHINES + 1)), wrong = key;
        wrong.k[i & 1] ^= UINT64_C(1) << i % 64;
        CHECK(passes((struct place){machine, 7}, len, &key));
        CHECK(!passes((struct place){machine, 7}, len, &wrong));
        CHECK(!passes((struct place){machine, 7}, len, &other));
        CHECK(!passes((struct place){machine, 7}, len, NULL));
    }
}

static void names(void)
{
    for (unsigned i = 0; i < ring.count; i++) {
        struct seal_key own = seal_member_key(&ring.key[i], 0), file = seal_member_key(&ring.key[i], 9), host = host_key(i, 1);
        CHECK(passes((struct place){MACHINE_SWITCH, 0}, 72, &own));
        CHECK(passes((struct place){MACHINE_STEWARD, 0}, 72, &own));
        CHECK(passes((struct place){MACHINES + 1, PORT_SERVER}, 72, &own));
        CHECK(passes((struct place){MACHINE_NONE, 0}, 72, &own));
        CHECK(passes((struct place){MACHINE_NONE, 9}, 72, &file));
        CHECK(!passes((struct place){MACHINE_NONE, 8}, 72, &file));
        CHECK(!passes((struct place){MACHINE_NONE, 9}, 72, &own));
        CHECK(!passes((struct place){MACHINE_SWITCH, 0}, 72, &host));
        CHECK(!passes((struct place){1, 0}, 72, &own));
    }
}

static void lengths(void)
{
    struct seal_key key = host_key(0, 1);
    for (uint32_t len = 1; len < sizeof(struct packet_head); len++)
        CHECK(!passes((struct place){1, 7}, len, &key));
    CHECK(!passes((struct place){1, 7}, PACKET_MAX + 1, &key));
}

int main(void)
{
    struct gate_settings settings = {.machines = MACHINES};
    for (unsigned i = 0; i < ring.count; i++)
        memcpy(settings.key[i], ring.key[i].k, sizeof settings.key[i]);
    if (plane_missing())
        SKIP("%s", plane_missing());
    int rc = gate_open(&settings, &filter);
    if (rc == -EPERM)
        SKIP("%s", explained());
    CHECK_EQ(rc, 0);
    for (uint16_t m = 0; m <= MACHINES; m++)
        for (unsigned i = 0; i < ring.count; i++) {
            struct seal_key key = m ? host_key(i, m) : seal_member_key(&ring.key[i], 0);
            gate_seals(filter)[m].key[i][0] = key.k[0];
            gate_seals(filter)[m].key[i][1] = key.k[1];
        }
    CHECK_EQ(udp_open(&at, net_v4(htonl(INADDR_LOOPBACK), 0)), 0);
    CHECK_EQ(udp_open(&from, net_v4(htonl(INADDR_LOOPBACK), 0)), 0);
    CHECK_EQ(gate_attach(filter, at.fd), 0);
    tags();
    names();
    lengths();
    CHECK_EQ(gate_detach(filter, at.fd), 0);
    const struct udp_out out = {.to = at.at, .len = 8, .data = "anything"};
    udp_send(&from, &out, 1);
    CHECK_EQ(udp_receive(&at, &batch), 1);
    gate_close(filter);
    udp_close(&at);
    udp_close(&from);
    return 0;
}
