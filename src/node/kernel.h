/* SPDX-License-Identifier: Apache-2.0 */
/* The control process of a switch in the kernel: joins the rack, loads the program of the space's design (dataplane/xdp), attaches
 * it, looks after it, and takes it down. The program learns by itself where the rack's machines are. */
#ifndef PAWL_NODE_KERNEL_H
#define PAWL_NODE_KERNEL_H

#include "dataplane/xdp/loader.h"
#include "node/node.h"

/* Prints a line about what was done. */
typedef void (*kernel_report)(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct kernel_params {
    struct station_params station;
    const char *devices;            /* IF[,IF...] */
    const char *loop_out, *loop_in; /* in-path switches: both ends of a veth; null: one-armed */
    enum plane_mode mode;
    const char *pins;   /* null: locks end with this process */
    const char *design; /* demands; null and 0: none */
    uint64_t locks;
    bool remove;         /* at the end the pinned locks go, too */
    void (*ready)(void); /* it decides from now on */
    kernel_report report;
};

/* Runs until *stop. 0, or a negative code, explained. */
int kernel_switch_run(const struct kernel_params *p);

#endif
