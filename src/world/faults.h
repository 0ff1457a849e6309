/* SPDX-License-Identifier: Apache-2.0 */
/* The faults that the simulated cluster can inject. A design declares which of them it tolerates. */
#ifndef PAWL_WORLD_FAULTS_H
#define PAWL_WORLD_FAULTS_H

#include "lib/base.h"

enum fault {
    FAULT_LOSS,                            /* a packet or message vanishes; a verb is retransmitted and takes longer */
    FAULT_DUPLICATE,                       /* a message or packet arrives twice */
    FAULT_REORDER,                         /* messages and packets overtake each other (verbs of one connection never do) */
    FAULT_DELAY,                           /* anything takes much longer than usual */
    FAULT_PARTITION,                       /* nothing passes from one host to another, in one direction or both, for a while */
    FAULT_PAUSE,                           /* a host's tasks stop, longer than a lease, and go on */
    FAULT_CRASH_CLIENT,                    /* a client process ends at any point, later another starts in its place */
    FAULT_CRASH_SERVER,                    /* the host of the lock memory restarts with its memory lost */
    FAULT_CRASH_SWITCH,                    /* the switch restarts with its state lost */
    FAULT_UNKNOWN,                         /* a verb's completion is an error that does not tell whether it took effect */
    FAULT_DRIFT,                           /* the hosts' clocks run at different speeds */
    FAULT_DRAWN,                           /* those from here on strike a rack's coordinator, and are drawn by the simulated rack */
    FAULT_CRASH_COORDINATOR = FAULT_DRAWN, /* the coordinator's host restarts, at any event */
    FAULT_DISK,                            /* the coordinator's disk is slow, is full, flips bits, and tears what was not synced */
    FAULT_OPERATOR,                        /* restarts with another lease, another state, another clock; lock servers elsewhere */
    FAULT_ETCD,   /* the state is in etcd, for several coordinators; requests and answers are lost or late, leaders are stopped */
    FAULT_REPLAY, /* somebody records the packets of a rack that has a key, and sends stretches of the recording again */
    FAULT_FORGE,  /* an attacker sends packets in the name of hosts, with lives that no coordinator has given */
    FAULT_KINDS
};

#define FAULT_BIT(kind) (1u << (kind))
#define FAULTS_ALL ((1u << FAULT_DRAWN) - 1)
#define FAULTS_COORDINATOR (((1u << FAULT_REPLAY) - 1) & ~FAULTS_ALL)

/* "loss", "duplicate", … as written on the command line; null beyond the last. */
const char *fault_name(unsigned kind);

/* "all" (without those of the coordinator), "rack" (with them), "none" or a comma-separated list; false if a name is unknown. */
bool faults_parse(const char *list, uint32_t *faults);

#endif
