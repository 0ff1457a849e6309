/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinators of the simulated rack: their processes (rack_coordinator.c), and what happens to them (rack_trouble.c). */
#ifndef PAWL_WORKBENCH_TRIAL_RACK_COORDINATOR_H
#define PAWL_WORKBENCH_TRIAL_RACK_COORDINATOR_H

#include "workbench/trial/rack.h"
#include "world/sim_disk.h"
#include "world/sim_etcd.h"

#define RACK_LOG "state"   /* its path */
#define INBOX 256u         /* packets that wait: a socket's buffer */
#define BATCH 8u           /* packets that are answered together */
#define WALL_BEGIN 100000u /* of a coordinator's clock, in lives */

/* The etcd of several coordinators. */
struct rack_etcd {
    struct sim_etcd server;
    unsigned coordinators;
    uint64_t lease_ns; /* of leaders */
    bool begun;        /* the space exists */
};

struct rack_coordinator {
    struct rack *rack;
    unsigned number;
    struct sim_etcd_client client; /* if there is etcd, and: */
    struct store_etcd store;
    bool up; /* it stands by, or leads */
    struct sim_host *host;
    struct sim_process *process;
    struct sim_disk disk;
    struct service service;
    bool open, begun; /* begun: the space exists */
    struct rng random;
    uint32_t active; /* faults in this run */
    /* Set by the operator: */
    uint64_t lease_ns, member_ns, locks;
    bool elsewhere; /* it is to find its log at another path, where there is none */
    uint32_t wall;  /* the clock, in lives */
    /* Faults of the disk: */
    uint64_t slow_ns, log_end;
    struct {
        bool is;
        uint64_t at;
        uint8_t bits;
    } flip;
    struct sim_ticket sleeper;
    unsigned first, count;
    struct {
        struct net_addr from;
        uint32_t len;
        _Alignas(8) uint8_t data[PACKET_MAX];
    } inbox[INBOX];
    struct service_answer answers[BATCH];
    struct design design; /* with the options that the seed has drawn */
    struct packet_design packet;
};

static inline unsigned rack_coordinator_count(const struct rack *r)
{
    return r->etcd ? r->etcd->coordinators : 1;
}

static inline bool rack_strikes(const struct rack_coordinator *k, enum fault kind)
{
    return (k->active & FAULT_BIT(kind)) && sim_now(&k->rack->sim) < k->rack->params.safety_ns;
}

static inline void rack_count_fault(const struct rack_coordinator *k, enum fault kind)
{
    k->rack->sim.faults.counts[kind]++;
}

/* ---- rack_trouble.c ---- */

/* Before the process starts: what the disk has done meanwhile, and what the operator says. */
void rack_trouble_meanwhile(struct rack_coordinator *k);
/* A sync has begun, and ends then. ctx: the coordinator. */
void rack_trouble_on_sync(void *ctx, uint64_t until_ns);
/* From now on trouble comes to this coordinator, and, beside the first, to the rack. */
void rack_trouble_begin(struct rack_coordinator *k);
/* From now on leaders are stopped and cut off from etcd. */
void rack_trouble_begin_etcd(struct rack *r);

#endif
