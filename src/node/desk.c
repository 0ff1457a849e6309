/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's lock server or switch and its operator: the operator's commands, and the log of hosts that send too much. The station
 * itself is part of the library, too: the lock server of a program has no operator. */
#include "cluster/host.h"
#include "dataplane/netlock_wire.h"
#include "node/node.h"
#include "world/world.h"

static void on_limited(struct station *s, uint16_t machine, struct net_addr from)
{
    char at[NET_ADDR_TEXT];
    uint64_t withheld;
    if (!log_may(&s->limited, s->came_ns, &withheld))
        return;
    net_addr_print(from, at);
    log_event(LOG_LEVEL_WARNING, "host limited", LOG_TEXT("space", s->member.join.space), LOG_NUMBER("host", machine),
              LOG_TEXT("at", at), LOG_NUMBER("packets", s->member.roster->host[machine].limited), LOG_NUMBER("withheld", withheld),
              LOG_TEXT("why", "it sends more packets a second than --host-packets allows"));
}

/* A policy that an operator sets, or may not set. */
static void say_policy(struct station *s, const void *data, uint32_t len, struct net_addr from, bool refused)
{
    static const char *const names[] = {[NETLOCK_COMMAND_QUOTA] = "quota",
                                        [NETLOCK_COMMAND_RANDOM] = "random allocation",
                                        [NETLOCK_COMMAND_PRIORITIES] = "priorities"};
    const struct netlock_packet *p = data;
    struct netlock_command c;
    char at[NET_ADDR_TEXT];
    uint64_t withheld = 0;
    if (p->head.family != PACKET_NETLOCK || p->head.type != NETLOCK_COMMAND || len != NETLOCK_COMMAND_BYTES)
        return;
    memcpy(&c, p + 1, sizeof c);
    if (c.kind >= countof(names) || !names[c.kind] || (refused && !log_may(&s->commands, host_now(), &withheld)))
        return;
    net_addr_print(from, at);
    const char *why = refused ? "it came with the cluster's key, and needs the admin key" : "an operator asked for it";
    log_event(refused ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, refused ? "policy command refused" : "policy command",
              LOG_TEXT("space", s->member.join.space), LOG_TEXT("from", at),
              LOG_TEXT("key", seal_role(s->member.roster->ring, !refused)), LOG_TEXT("policy", names[c.kind]),
              LOG_NUMBER("tenant", c.tenant), LOG_NUMBER("value", c.rate), LOG_NUMBER("burst", c.burst),
              LOG_NUMBER("withheld", withheld), LOG_TEXT("why", why));
}

/* Whether an operator's command counts: it has the proof of the admin key, if there is one, and repeats a number that this process
 * has told, and that changes with each command. So a recorded packet changes nothing. The operator of one that does not count is
 * told why, and the number. */
static bool on_command(struct station *s, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used)
{
    const struct seal_ring *ring = s->member.roster->ring;
    union {
        struct netlock_packet p;
        uint8_t bytes[NETLOCK_COMMAND_BYTES];
    } a;
    struct netlock_command c;
    if (((const struct packet_head *)data)->family != PACKET_NETLOCK || len != sizeof a)
        return true; /* which the switch says is none */
    memcpy(&a, data, sizeof a);
    memcpy(&c, &a.p + 1, sizeof c);
    if (a.p.head.type != NETLOCK_COMMAND || c.kind == NETLOCK_COMMAND_STATUS)
        return true;
    bool may = !ring || seal_proved(ring, &a, sizeof a, sizeof a.p + offsetof(struct netlock_command, proof)),
         is_new = may && s->challenge && a.p.stamp == s->challenge;
    s->counts.not_admin += !may;
    if (!may)
        say_policy(s, data, len, from, true);
    if (is_new || !s->challenge)
        s->challenge = world_random(&world_real) | 1;
    if (is_new) {
        say_policy(s, data, len, from, false);
        return true;
    }
    a.p.head.type = NETLOCK_COMMANDED;
    a.p.head.to = a.p.head.from;
    a.p.head.from = (struct place){MACHINE_SWITCH, PORT_POOL};
    a.p.head.index = s->challenge;
    a.p.stamp = (uint64_t)(may ? -COORD_ANEW : -COORD_ADMIN_ONLY);
    const struct udp_out out = {.to = from, .len = sizeof a, .data = &a, .key = seal_known(used) ? used : NULL};
    udp_send(member_udp(&s->member), &out, 1);
    return false;
}

const struct station_desk station_desk = {.command = on_command, .limited = on_limited};
