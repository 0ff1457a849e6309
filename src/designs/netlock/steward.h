/* SPDX-License-Identifier: Apache-2.0 */
/* The steward decides which switch and which servers may grant (4.5). It elects the active switch, the original or its backup, and
 * gives each steward's slot to a server. Every election and assignment holds for a lease, which switches and servers renew by
 * heartbeats (BEAT). Without a lease from the steward no switch or server grants, or gives leases to hosts. So when the lease of a
 * switch or server is certainly over, the steward can give its role or slots to another one, which waits until the hosts' leases
 * are over. The steward runs with the rack's coordinator. Where there is another switch or server to take over, that lease is as
 * long as the lock lease, so that it does so soon; of a switch with a backup it is a quarter of that, so that hosts hear of the
 * backup while their leases from the switch still run. Where there is none, it is the membership lease: an outage of the
 * coordinator that is shorter costs no client its holds.
 *
 * Every election and assignment has a term, which rises; tokens begin with it. A steward that lost its memory assigns nothing until
 * all members have reported their assignments, or until the leases that it gave before are over. Of one switch and one server it is
 * enough that neither has a lease any more. */
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
    uint32_t term;  /* 0: no server has had it */
    uint32_t life;  /* of the owner */
    uint16_t owner; /* number of a server */
    bool first;     /* no server has had these locks before, in any life */
};

struct steward {
    struct rack_config config;
    struct netlock_policy policy;
    struct packet_drops drops;
    uint64_t began_ns, open_ns; /* assigns from then on */
    uint32_t life;
    uint32_t term;    /* the latest */
    uint32_t floor;   /* of terms: the coordinator's latest life; 0: there is no coordinator */
    bool fresh;       /* nothing was assigned before this life */
    bool heard_lease; /* a switch or server still has one from before */
    bool hosts_known; /* which hosts there are: */
    uint64_t hosts[NETLOCK_HOST_WORDS];
    struct steward_member switches[STEWARD_SWITCHES], servers[RACK_SERVERS_MAX];
    struct steward_slot slots[RACK_SERVERS_MAX];
    uint32_t active_term; /* of the active switch; 0: none yet */
    uint32_t active_life; /* of its memory */
    uint64_t elected_ns;  /* when it began, or when this steward heard of it */
    uint16_t active;      /* which switch */
    bool clean;           /* no client holds anything from the term before */
    bool retire;          /* its queues are to drain: the original is back */
    struct {
        uint64_t assigned, elected, returns;
    } counts;
};

#endif
