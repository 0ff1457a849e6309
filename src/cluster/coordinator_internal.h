/* SPDX-License-Identifier: Apache-2.0 */
/* Between coordinator.c and the parts of it: hosts, lock servers, switches. */
#ifndef PAWL_CLUSTER_COORDINATOR_INTERNAL_H
#define PAWL_CLUSTER_COORDINATOR_INTERNAL_H

#include "cluster/coordinator.h"

#define RULES_NONE UINT32_MAX
#define COORD_SETTLE_NS NS_PER_S /* in which a lock server or switch that lives sends ten heartbeats */

/* A coordinator that has just started does not know which members have the places that look free. Another member that starts at the
 * same time could be given the place of one that lives. */
static inline bool coord_unsettled(const struct coordinator *c, unsigned places, uint64_t now)
{
    return places > 1 && !c->fresh && now - c->start_ns < COORD_SETTLE_NS;
}

/* Whether a JOIN of a lock server or switch may be a recorded one: with a key, if it was made before the member joined that has the
 * place at its address, or the latest of all. */
bool coord_is_recorded(const struct coordinator *c, const struct coord_packet *p, const struct coord_station *stations,
                       unsigned count, struct net_addr at);
/* The answer to one: a sender that lives asks anew. */
uint32_t coord_ask_anew(const struct coordinator *c, const struct coord_packet *p, void *answer);

uint32_t coord_refuse(const struct coordinator *c, const struct coord_packet *p, int code, void *answer);
uint32_t coord_welcome(const struct coordinator *c, const struct coord_packet *p, uint16_t machine, uint32_t life, uint64_t now,
                       void *answer);
uint32_t coord_next_life(struct coordinator *c, uint64_t now); /* 0: none is reserved */
/* Whether it may have the place now: not before hosts of a former configuration are gone (I16). */
bool coord_is_held_back(const struct coordinator *c, uint64_t now);
/* No heartbeat for longer than a lease. */
bool coord_is_silent(const struct coordinator *c, const struct coord_station *s, uint64_t now);
/* The member in that place lives: it says so by a packet that is later than those before it. */
void coord_hear_station(const struct coordinator *c, struct coord_station *s, const struct coord_packet *p, uint64_t now);
/* A lock server or switch that joined a former coordinator takes its place again. */
uint32_t coord_beat_station(struct coordinator *c, const struct coord_beat *beat, uint64_t now, struct coord_station *s,
                            void *answer);

/* Whether a member has the configuration of today, but for the number of locks: the space may have grown since it joined. */
bool coord_is_of_today(const struct coordinator *c, int32_t sum);
void coord_tell_size(const struct coordinator *c, struct coord_beat *ack); /* if it has grown */

uint32_t coord_acknowledge(const struct coordinator *c, const struct coord_packet *p, void *answer);

/* ---- coordinator_hosts.c ---- */

/* Whether the host itself sends the packet: from the address from which it joined, with the nonce of its JOIN, which no other
 * program knows. Those of a host that joined a former coordinator are not known until it is heard of. Counts the packet if not. */
bool coord_is_from_host(struct coordinator *c, const struct coord_member *m, const struct coord_packet *p, struct net_addr from);
/* Whether a machine of the rack has this address: a host, a lock server, a switch or the coordinator. */
bool coord_is_of_rack(const struct coordinator *c, struct net_addr from);
bool coord_may_command(const struct coordinator *c, struct net_addr from); /* an operator there; a tag was looked at before */

void coord_hosts_begin(struct coordinator *c, const struct coord_params *p, uint64_t now);
uint32_t coord_join_host(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer);
uint32_t coord_beat_host(struct coordinator *c, const struct coord_beat *beat, struct net_addr from, uint64_t now, void *answer);
void coord_host_leaves(struct coordinator *c, const struct coord_packet *p, struct net_addr from);
unsigned coord_look_after_hosts(struct coordinator *c, uint64_t now); /* how many are live */
uint32_t coord_on_who(const struct coordinator *c, const struct coord_packet *p, void *answer);

/* ---- coordinator_server.c ---- */

void coord_servers_begin(struct coordinator *c); /* after a restart */
uint32_t coord_join_server(struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now, void *answer);
uint32_t coord_places(const struct coordinator *c);                       /* the latest version */
struct net_addr coord_server_at(const struct coordinator *c, unsigned i); /* as hosts hear of it */
/* The next change of a place that the host does not know, if there is one. */
void coord_tell_place(const struct coordinator *c, const struct coord_member *m, struct coord_beat *ack);

/* ---- coordinator_names.c ---- */

uint32_t coord_on_key(struct coordinator *c, const struct coord_key *p, struct net_addr from, uint64_t now, void *answer);
void coord_on_retired(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now);
uint32_t coord_retire_more(struct coordinator *c, void *packet, struct net_addr *to); /* as coordinator_more */
void coord_look_after_names(struct coordinator *c, uint64_t now);

/* ---- coordinator_values.c ---- */

uint32_t coord_on_value(struct coordinator *c, const struct coord_value *p, void *answer);

/* ---- coordinator_switch.c ---- */

bool coord_is_complete(const struct coordinator *c);                                   /* hosts can be let in */
bool coord_is_clean(const struct coordinator *c, const struct coord_member *m);        /* its number can be used again */
void coord_switches(const struct coordinator *c, struct net_addr switches[RACKS_MAX]); /* where they are */
uint32_t coord_join_switch(struct coordinator *c, const struct coord_packet *p, struct net_addr at, uint64_t now, void *answer);
uint32_t coord_beat_switch(struct coordinator *c, const struct coord_beat *beat, uint64_t now, void *answer);
uint32_t coord_on_rules(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now, void *answer);
void coord_look_after_switches(struct coordinator *c, uint64_t now);

#endif
