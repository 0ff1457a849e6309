/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks of memory nodes in the kernel: a node in the switch's namespace of a lab with one host. */
#ifndef PAWL_BENCH_NODE_KERNEL_H
#define PAWL_BENCH_NODE_KERNEL_H

#include "bench/node.h"
#include "node/memory_kernel.h"
#include "tests/lab/rack.h"

#define NODE_PORT 7070
#define NODE_DEVICE "p1" /* towards the only host: lab_port */

__attribute__((format(printf, 1, 2))) static inline void node_be_silent(const char *format, ...) {}

static inline void node_enter_switch(void)
{
    if (lab_enter(&rack, 1, LAB_SWITCH))
        kit_die("%s", explained());
}

static inline struct net_addr node_kernel_at(void)
{
    return net_v4(htonl(lab_address(1, LAB_SWITCH)), NODE_PORT);
}

static inline struct node_started node_start_kernel(const char *design)
{
    struct memory_kernel kernel = {.devices = NODE_DEVICE, .report = node_be_silent};
    const struct memory_home home = memory_kernel_home(&kernel);
    struct memory_node_params p = node_params(design, node_kernel_at());
    p.home = &home;
    p.spin_ns = 0; /* it has nothing to do */
    return node_start(&p, NODE_ANY_CPU, node_enter_switch);
}

#endif
