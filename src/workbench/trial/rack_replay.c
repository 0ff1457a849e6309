/* SPDX-License-Identifier: Apache-2.0 */
/* Attackers of a rack. An attacker without the rack's key records every packet, and sends stretches of the recording
 * again, from one packet to all, at once or as they came, to the switch or past it. A tag is right as long as its key is, which is
 * that of a host's number and life (wire/seal.h): packets of a host's former lives are dropped by their receivers, so none of them
 * is sent. JOINs, WELCOMEs and packets between coordinators, lock servers and switches have a key for good. And while a host is
 * dead, the attacker goes on with its heartbeats, for the whole run: no lease of the dead host may last longer by that.
 *
 * In a rack without a key, an attacker that forges the address of a host sends such a packet with a life that no coordinator has
 * given. */
#include "cluster/roster.h"
#include "dataplane/netlock_wire.h"
#include "designs/srvlock/srvlock.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 2048u
#define SHORT 24u       /* packets of most stretches */
#define LONG_ONE_IN 12u /* stretches are long */
#define PAUSES 40u      /* between two stretches: of the time in which there are faults */
#define REPLAY_SALT UINT64_C(0x7265706c)
#define FORGE_SALT UINT64_C(0x666f7267)
#define FORGED_AT_ONCE 4u
#define LOOKS 32u            /* for a recorded packet of a host, with its life */
#define LIVES_BEYOND 100000u /* the latest life: more than are given in a run */
#define GRANTERS 12u         /* to which a host sends heartbeats: as many as a rack of campaigns has, and the coordinators */
#define BEATS_OF_LEASE 8u    /* recorded heartbeats of a dead host, to each granter */

struct rack_replay {
    struct rng random, forger;
    uint64_t count; /* of packets that were recorded; the latest RECORDS of them are here */
    struct record {
        struct sim_packet packet;
        uint64_t at_ns;
        uint32_t life; /* of the host whose key tags it; 0: another key */
        uint16_t machine;
        bool down;
    } record[RECORDS];
    struct heart { /* a host's latest heartbeat to each granter, by its number */
        uint32_t life;
        unsigned count;
        struct sim_packet beat[GRANTERS];
    } * hearts;
};

/* The host whose key tags the packet on that leg; 0: another key. */
static uint16_t tagger(const struct rack *r, const struct packet_head *h, bool down)
{
    uint16_t machines = r->config.machines, first = down ? h->to.machine : h->from.machine,
             second = down ? h->from.machine : h->to.machine;
    if (h->family == PACKET_COORDINATOR && (h->type == COORD_JOIN || h->type == COORD_WELCOME))
        return 0;
    return first && first <= machines ? first : second && second <= machines ? second : 0;
}

static uint32_t life_of(const struct rack *r, uint16_t machine)
{
    uint32_t life = 0;
    for (unsigned i = 0; i < r->params.hosts; i++)
        if (r->hosts[i].machine == machine && r->hosts[i].life > life)
            life = r->hosts[i].life;
    return life;
}

/* ---- heartbeats of hosts that are dead ---- */

static bool is_heartbeat(const struct packet_head *h)
{
    return (h->family == PACKET_COORDINATOR && h->type == COORD_BEAT) || (h->family == PACKET_SERVER && h->type == SRV_LEASE) ||
           (h->family == PACKET_NETLOCK && h->type == NETLOCK_LEASE) || (h->family == PACKET_FISSION && h->type == FISSION_LEASE);
}

/* In place of the one before that went to the same granter. */
static void take_heartbeat(struct heart *heart, const struct sim_packet *packet, uint32_t life)
{
    const struct packet_head *h = (const struct packet_head *)(const void *)packet->data;
    unsigned i = 0;
    if (life < heart->life)
        return;
    heart->count = life == heart->life ? heart->count : 0;
    heart->life = life;
    for (; i < heart->count; i++) {
        const struct packet_head *old = (const struct packet_head *)(const void *)heart->beat[i].data;
        if (old->family == h->family && old->space == h->space && heart->beat[i].to.host == packet->to.host &&
            heart->beat[i].to.port == packet->to.port)
            break;
    }
    if (i == GRANTERS)
        return;
    heart->beat[i] = *packet;
    heart->count += i == heart->count;
}

static bool is_alive(const struct rack *r, uint16_t machine, uint32_t life)
{
    bool alive = false;
    for (unsigned i = 0; i < r->params.hosts; i++)
        alive = alive || (r->hosts[i].machine == machine && r->hosts[i].life == life && r->hosts[i].host->up &&
                          rack_host_joined(&r->hosts[i]));
    return alive;
}

static void beat_for_dead(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    uint64_t now = sim_now(&r->sim);
    for (uint16_t m = 1; m <= r->config.machines; m++) {
        const struct heart *heart = &r->replays->hearts[m];
        for (unsigned i = 0; i < heart->count && !is_alive(r, m, heart->life); i++) {
            r->sim.faults.counts[FAULT_REPLAY]++;
            sim_wire_inject(r->wire, &heart->beat[i], false, now);
        }
    }
    sim_at_background(&r->sim, now + r->params.lease_ns / BEATS_OF_LEASE, beat_for_dead, r, tag);
}

/* ---- stretches of the recording ---- */

static void take_down(void *ctx, const struct sim_packet *packet, bool down)
{
    struct rack *r = ctx;
    const struct packet_head *h = (const struct packet_head *)(const void *)packet->data;
    if (packet->len < sizeof *h)
        return;
    struct record *record = &r->replays->record[r->replays->count++ % RECORDS];
    record->packet = *packet;
    record->at_ns = sim_now(&r->sim);
    record->machine = tagger(r, h, down);
    record->life = record->machine ? life_of(r, record->machine) : 0;
    record->down = down;
    bool of_host = record->life && !down && record->machine == h->from.machine;
    if (of_host && is_heartbeat(h) && r->replays->hearts)
        take_heartbeat(&r->replays->hearts[record->machine], packet, record->life);
}

/* Whether the packet's key still counts: until another host has the number. */
static bool is_tagged(const struct rack *r, const struct record *record)
{
    return !record->machine || record->life >= max_u64(life_of(r, record->machine), r->replays->hearts[record->machine].life);
}

/* Once more, if its tag is still right. */
static void send_again(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    const struct record *record = &r->replays->record[tag % RECORDS];
    uint64_t now = sim_now(&r->sim);
    bool kept = tag + RECORDS >= r->replays->count;
    if (!kept || !is_tagged(r, record) || now >= r->params.safety_ns)
        return;
    r->sim.faults.counts[FAULT_REPLAY]++;
    sim_wire_inject(r->wire, &record->packet, record->down, now);
}

static void replay(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    struct rack_replay *p = r->replays;
    uint64_t now = sim_now(&r->sim), kept = min_u64(p->count, RECORDS);
    if (now >= r->params.safety_ns)
        return;
    if (kept) {
        uint64_t most = rng_chance(&p->random, 1, LONG_ONE_IN) ? kept : min_u64(kept, SHORT);
        uint64_t count = 1 + rng_below(&p->random, most), first = p->count - kept + rng_below(&p->random, kept - count + 1);
        bool at_once = rng_chance(&p->random, 1, 2);
        uint64_t begin_ns = p->record[first % RECORDS].at_ns;
        for (uint64_t i = first; i < first + count; i++)
            sim_at(&r->sim, now + 1 + (at_once ? i - first : p->record[i % RECORDS].at_ns - begin_ns), send_again, r, i);
    }
    sim_at(&r->sim, now + 1 + rng_below(&p->random, 2 * r->params.safety_ns / PAUSES), replay, r, tag + 1);
}

/* ---- lives that no coordinator has given ---- */

/* One that none of the coordinators will give within the run. */
static uint32_t other_life(const struct rack *r, struct rng *random)
{
    uint32_t latest = 0;
    for (uint16_t m = 1; m <= r->config.machines; m++)
        latest = (uint32_t)max_u64(latest, life_of(r, m));
    return rng_chance(random, 1, 2) ? UINT32_MAX : latest + LIVES_BEYOND + (uint32_t)rng_below(random, LIVES_BEYOND);
}

/* Sends a recorded packet of a host with another life. False: this one has none. */
static bool forge_one(struct rack *r, const struct record *record)
{
    struct rack_replay *p = r->replays;
    struct sim_packet packet = record->packet;
    struct packet_head *h = (struct packet_head *)(void *)packet.data;
    uint32_t life = other_life(r, &p->forger);
    if (record->down || h->features || h->family != r->design->family || !h->from.machine || h->from.machine > r->config.machines ||
        !roster_life_of(h))
        return false;
    if (h->family == PACKET_FISSION)
        h->nonce = life; /* of a LEASE */
    else
        h->epoch = life;
    r->sim.faults.counts[FAULT_FORGE]++;
    sim_wire_inject(r->wire, &packet, false, sim_now(&r->sim));
    return true;
}

static void forge(void *arg, uint64_t tag)
{
    struct rack *r = arg;
    struct rack_replay *p = r->replays;
    uint64_t now = sim_now(&r->sim), kept = min_u64(p->count, RECORDS);
    unsigned wanted = 1 + (unsigned)rng_below(&p->forger, FORGED_AT_ONCE);
    if (now >= r->params.safety_ns)
        return;
    for (unsigned i = 0; i < LOOKS && wanted && kept; i++)
        wanted -= forge_one(r, &p->record[(p->count - 1 - rng_below(&p->forger, kept)) % RECORDS]);
    sim_at(&r->sim, now + 1 + rng_below(&p->forger, 2 * r->params.safety_ns / PAUSES), forge, r, tag + 1);
}

static int forge_begin(struct rack *r)
{
    if (!r->coordinator)
        return 0; /* a rack without a coordinator gives no lives */
    rng_seed(&r->replays->forger, r->params.seed ^ FORGE_SALT);
    sim_at(&r->sim, 1, forge, r, 1);
    return 0;
}

int rack_replay_begin(struct rack *r)
{
    r->replays = sim_alloc(sizeof *r->replays);
    if (!r->replays)
        return -ENOMEM;
    sim_wire_watch(r->wire, take_down, r);
    if (r->params.faults & FAULT_BIT(FAULT_REPLAY)) {
        r->replays->hearts = sim_alloc((r->config.machines + UINT64_C(1)) * sizeof *r->replays->hearts);
        if (!r->replays->hearts)
            return -ENOMEM;
        rng_seed(&r->replays->random, r->params.seed ^ REPLAY_SALT);
        sim_at(&r->sim, 1, replay, r, 1);
        sim_at_background(&r->sim, 1, beat_for_dead, r, 1);
    }
    return r->params.faults & FAULT_BIT(FAULT_FORGE) ? forge_begin(r) : 0;
}

void rack_replay_free(struct rack *r)
{
    if (r->replays)
        sim_give_back(r->replays->hearts);
    sim_give_back(r->replays);
}
