/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the unit tests of coordinators: the rack that they begin with. */
#ifndef PAWL_TESTS_UNIT_COORDINATOR_KIT_H
#define PAWL_TESTS_UNIT_COORDINATOR_KIT_H

#include "cluster/coordinator.h"

/* A small rack of that design, whose coordinator starts for the first time. */
static inline struct coord_params coordinator_rack(const char *design, uint16_t machines)
{
    return (struct coord_params){.design = design_find(design),
                                 .space = "test",
                                 .locks = 10,
                                 .lease_ns = NS_PER_S,
                                 .retry_ns = NS_PER_MS,
                                 .machines = machines,
                                 .sessions = 2,
                                 .requests = 2,
                                 .servers = 1,
                                 .life = 50,
                                 .fresh = true};
}

#endif
