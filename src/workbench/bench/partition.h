/* SPDX-License-Identifier: Apache-2.0 */
/* A lock table in parts (ALock 6): every host has a space with its part of the locks, and the clients run on these hosts, each with
 * a session in every space. For benchmarks: nothing fails, so leases outlast the run and no session recovers from others.
 *
 * Lock i lies on host i mod N, there at i / N. */
#ifndef PAWL_WORKBENCH_BENCH_PARTITION_H
#define PAWL_WORKBENCH_BENCH_PARTITION_H

#include "workbench/trial/cluster.h"

struct partition_client {
    struct session *sessions; /* by host, as the two below */
    struct space *spaces;
    struct locker *lockers;
};

struct partition {
    struct cluster *cluster;
    struct sim_host *hosts[SIM_HOSTS_MAX];
    struct layout_header headers[SIM_HOSTS_MAX];
    struct partition_client *clients;
};

/* Makes a cluster of `params->hosts` hosts with `params->capacity` locks altogether; cluster_run runs it. The work function uses
 * partition_locker instead of its task's own. 0, or an error, and then nothing is left to be freed. */
int partition_init(struct partition *p, struct cluster *c, const struct cluster_params *params);
void partition_free(struct partition *p); /* and the cluster */

/* The task's way to the locks of a host. */
const struct locker *partition_locker(const struct partition *p, const struct cluster_task *task, unsigned host);

static inline unsigned partition_host(const struct partition *p, uint64_t lock)
{
    return (unsigned)(lock % p->cluster->params.hosts);
}
static inline uint64_t partition_index(const struct partition *p, uint64_t lock)
{
    return lock / p->cluster->params.hosts;
}
/* Where a client runs. */
static inline unsigned partition_home(const struct partition *p, unsigned client)
{
    return client % p->cluster->params.hosts;
}

#endif
