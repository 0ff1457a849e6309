/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a coordinator, for its operator: the coordinator is free of I/O and keeps its members in tables, so a look at the
 * tables after each round of packets finds the members that joined, left, were lost or came back. */
#ifndef PAWL_NODE_WATCH_H
#define PAWL_NODE_WATCH_H

#include "cluster/service.h"
#include "lib/log.h"

/* Why the coordinator refused, as it says in REFUSED. */
enum watch_refusal {
    WATCH_NOT_YET,       /* ask again: it waits for granters, leases or hosts */
    WATCH_FULL,          /* all numbers or places are taken */
    WATCH_STALE,         /* the life of the member is over */
    WATCH_FOREIGN,       /* another space of that name, or an older configuration */
    WATCH_UNKNOWN_SPACE, /* no space of that name */
    WATCH_TAKEN,         /* another switch has the place */
    WATCH_UNSUPPORTED,   /* the design, the version or the features do not fit */
    WATCH_ANEW,          /* a JOIN that is to be repeated with a life that is told: one that was recorded is not */
    WATCH_OTHER,
    WATCH_REFUSALS
};
const char *watch_refusal_name(enum watch_refusal r);

struct watch_counts {
    uint64_t hosts_joined, hosts_left, hosts_lost;
    uint64_t granters_joined, granters_stopped, granters_lost, granters_back;
    uint64_t refused[WATCH_REFUSALS];
    uint64_t recoveries, recovery_ns; /* places of lost granters that have a living one again, and how long they had none */
    uint64_t led;                     /* how often this coordinator began to lead */
};

struct watch_host {
    uint64_t until_ns;
    uint32_t life;
    bool live, unheard;
    struct net_addr at;
};

struct watch_granter {
    uint32_t life;
    bool known, stopped, silent;
    uint64_t lost_ns; /* when it was heard last, until the place has a living one again; 0: it has */
    struct net_addr at;
};

struct watch {
    struct watch_counts counts;
    uint64_t term; /* of the coordinator that was looked at last; 0: none */
    uint32_t machines;
    struct watch_host *hosts; /* by number */
    struct watch_granter server[RACK_SERVERS_MAX], switch_[RACKS_MAX];
    struct packet_drops drops; /* as they were when the log had them last */
    uint64_t failed;           /* the same of appends to the log */
    struct log_limit limit[WATCH_REFUSALS], dropping, failing;
};

/* Once in a round: writes what has changed to the log. */
void watch_service(struct watch *w, const struct service *s, uint64_t now);

/* Lock servers and switches that were heard of within a lease. */
unsigned watch_granters(const struct watch *w);

/* An answer that the coordinator is about to send. */
void watch_answer(struct watch *w, const char *space, const void *answer, struct net_addr to, uint64_t now);

/* The coordinator does not lead any more, or ends: the next look begins anew. */
void watch_forget(struct watch *w);

#endif
