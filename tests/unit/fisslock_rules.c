/* SPDX-License-Identifier: Apache-2.0 */
/* A switch of several racks tells which switch has which lock with every lease that it gives. With little room for packets it gives
 * none: a host that has a lease and an old table would go to a switch that has lost the lock. */
#include "dataplane/fission.h"
#include "designs/fisslock/racks.h"
#include "tests/check.h"

#include <stdlib.h>

#define LIFE 7

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
    free(state);
    return 0;
}
