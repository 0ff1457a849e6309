/* SPDX-License-Identifier: Apache-2.0 */
/* A switch of several racks tells which switch has which lock with every lease that it gives. With little room for packets it gives
 * none: a host that has a lease and an old table would go to a switch that has lost the lock. And it takes no report of a hold that
 * is another switch's by its own table: a host may know a later one. */
#include "dataplane/fission.h"
#include "designs/fisslock/racks.h"
#include "tests/check.h"

#include <stdlib.h>

#define LIFE 7
#define OPEN_NS (NS_PER_S * 13 / 10) /* the switch does not wait for silent hosts any more */

static struct rack_config config = {.machines = 2, .sessions = 1, .requests = 2, .racks = 2, .locks = 64, .retry_ns = NS_PER_MS};
static struct outbox out;

static struct fission_packet *heartbeat(void)
{
    static _Alignas(8) uint8_t bytes[sizeof(struct fission_packet) + RACK_SHARDS];
    struct fission_packet *p = (struct fission_packet *)(void *)bytes;
    memset(bytes, 0, sizeof bytes);
    p->head.version = PACKET_VERSION;
    p->head.family = PACKET_FISSION;
    p->head.type = FISSION_LEASE;
    p->head.space = rack_space_id(&config, config.rack);
    p->head.epoch = LIFE;
    p->head.nonce = 1;
    p->head.from = (struct place){1, PORT_POOL};
    p->head.to = (struct place){MACHINE_SWITCH, PORT_POOL};
    p->count = RULES_ENTRIES;
    return p;
}

/* How many leases leave, each with its table. */
static unsigned leases(void *state, uint32_t room)
{
    const struct rack_rules first = rack_rules_first(config.racks);
    unsigned found = 0;
    outbox_clear(&out);
    out.used = OUTBOX_BYTES - room;
    racks_switch_packet(state, heartbeat(), sizeof(struct fission_packet) + RACK_SHARDS, NS_PER_S, &out);
    for (unsigned i = 0; i < out.packets; i++) {
        const struct fission_packet *p = (const void *)outbox_packet(&out, i);
        if (p->head.type != FISSION_LEASE || p->flags & FISSION_RETRY)
            continue;
        CHECK_EQ(out.packet[i].len, sizeof *p + RACK_SHARDS);
        CHECK(p->count == RULES_ENTRIES && !memcmp(p + 1, first.owner, RACK_SHARDS));
        found++;
    }
    return found;
}

/* The first lock that this rack's switch has by the first table. */
static uint64_t lock_of(unsigned rack)
{
    const struct rack_rules first = rack_rules_first(config.racks);
    uint64_t index = 0;
    while (first.owner[parts_shard(index)] != rack)
        index++;
    return index;
}

/* The switch's answer to the release of a reported hold. FISSION_RELEASE: it goes to the hold's agent; FISSION_ACK: there is no
 * such hold. */
static uint8_t released(void *state, uint64_t index)
{
    struct fission_packet p = *heartbeat();
    p.head.type = FISSION_RELEASE;
    p.head.index = index;
    p.client = (struct place){1, PORT_POOL};
    p.count = 0;
    outbox_clear(&out);
    racks_switch_packet(state, &p, sizeof p, OPEN_NS, &out);
    CHECK_EQ(out.packets, 1);
    return ((const struct packet_head *)outbox_packet(&out, 0))->type;
}

static void reports(void *state)
{
    struct {
        struct fission_packet p;
        struct fission_entry e[2];
    } r = {.p = *heartbeat()};
    r.p.head.type = FISSION_REPORT;
    r.p.flags = FISSION_DONE;
    r.p.count = 2;
    for (unsigned i = 0; i < 2; i++)
        r.e[i] = (struct fission_entry){.nonce = lock_of(i), .mode = FISSION_EXCLUSIVE};
    memset(state, 0, racks_switch_bytes(&config));
    racks_switch_init(state, &config, LIFE, 0);
    racks_switch_packet(state, heartbeat(), sizeof(struct fission_packet) + RACK_SHARDS, NS_PER_S / 2, &out);
    outbox_clear(&out);
    racks_switch_packet(state, &r, sizeof r, NS_PER_S / 2, &out);
    CHECK_EQ(out.packets, 1); /* it is acknowledged */
    racks_switch_packet(state, heartbeat(), sizeof(struct fission_packet) + RACK_SHARDS, OPEN_NS, &out);
    CHECK_EQ(released(state, lock_of(0)), FISSION_RELEASE);
    CHECK_EQ(released(state, lock_of(1)), FISSION_ACK);
}

int main(void)
{
    config.identity = (struct rack_identity){.id = {1, 2}, .version = 1};
    config.space = rack_short_id(&config.identity);
    config.lease_ns = NS_PER_S;
    void *state = calloc(1, racks_switch_bytes(&config));
    CHECK(state);
    racks_switch_init(state, &config, LIFE, 0);
    unsigned with = 0, without = 0;
    for (uint32_t room = 0; room <= sizeof(struct fission_packet) + 2 * RACK_SHARDS; room += 8)
        leases(state, room) ? with++ : without++;
    CHECK(with && without);
    CHECK_EQ(leases(state, OUTBOX_BYTES), 1);
    reports(state);
    free(state);
    return 0;
}
