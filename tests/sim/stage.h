/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster for tests that direct its clients: one lock with ranges, and a host with one task for each client. */
#ifndef PAWL_TESTS_SIM_STAGE_H
#define PAWL_TESTS_SIM_STAGE_H

#include "tests/check.h"
#include "workbench/trial/cluster.h"

/* Units: of the lock's range, both when it is made and at the most. */
static inline struct cluster_params stage_of(const struct design *d, const char *model, unsigned clients, uint64_t units,
                                             cluster_work_fn work)
{
    return (struct cluster_params){
        .design = d,
        .model = model_find(model),
        .keys = PAWL_KEYS_DENSE,
        .capacity = 1,
        .range_units = units,
        .range_max = units,
        .clients = clients,
        .hosts = clients,
        .tasks = 1,
        .fabric_caps = SIM_FABRIC_CAPS,
        .seed = 1,
        .time_max_ns = 100 * NS_PER_S,
        .lease_ns = NS_PER_S,
        .work = work,
    };
}

/* To the end of all clients. The caller frees the cluster. */
static inline void stage_run(struct cluster *c, const struct cluster_params *p)
{
    CHECK_EQ(cluster_init(c, p), 0);
    cluster_run(c);
    CHECK_EQ(c->clients_done, p->clients);
}

#endif
