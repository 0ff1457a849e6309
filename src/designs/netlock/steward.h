/* SPDX-License-Identifier: Apache-2.0 */
/* The steward: who may decide (4.5). It says which switch reigns, the original or its backup, and which server has which locks;
 * each for a lease, which switches and servers ask for (BEAT). Without a lease from the steward nobody grants and nobody gives
 * leases to hosts, so what the steward takes from one it can give to another as soon as that lease is surely over; the other then
 * waits until the hosts' leases are. Runs with the rack's coordinator.
 *
 * Every assignment has a term, which rises; tokens begin with it. A steward that lost its memory gives out nothing until it has
 * heard what everybody has, or until the leases that it gave before are over. */
#ifndef PAWL_DESIGNS_NETLOCK_STEWARD_H
#define PAWL_DESIGNS_NETLOCK_STEWARD_H

#include "designs/netlock/netlock.h"

#define STEWARD_SWITCHES 2u /* the original and its backup */

struct steward_member {
    uint64_t until_ns; /* then its lease is surely over */
    uint64_t stamp;    /* of its latest BEAT, by its clock */
    uint32_t life;     /* 0: never heard of */
};

struct steward_slot {
    uint32_t term;  /* 0: nobody has had it */
    uint32_t life;  /* of the owner */
    uint16_t owner; /* number of a server */
    bool first;     /* nobody has had these locks before, in any life */
};

struct steward {
    struct rack_config config;
    struct netlock_policy policy;
    struct packet_drops drops;
    uint64_t began_ns, open_ns; /* assigns from then on */
    uint32_t life;
    uint32_t term;    /* the latest */
    bool fresh;       /* nobody had anything before this life */
    bool heard_lease; /* from somebody who still has one from before */
    struct steward_member switches[STEWARD_SWITCHES], servers[RACK_SERVERS_MAX];
    struct steward_slot slots[RACK_SERVERS_MAX];
    uint32_t reign; /* 0: none yet */
    uint32_t reign_life;
    uint64_t crowned_ns; /* when it began, or when this steward heard of it */
    uint16_t reigns;     /* which switch */
    bool clean;          /* nobody holds anything from the reign before */
    bool retire;         /* its queues are to drain: the original is back */
    struct {
        uint64_t assigned, reigns, returns;
    } counts;
};

#endif
