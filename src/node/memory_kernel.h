/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node in the kernel, seen from its process: an XDP program executes the verbs where their frames arrive, on maps that the
 * process has mapped, too. The process connects clients, fences them and answers what else comes.
 *
 * With `pins`, maps and attachments outlive the process. While there is none, the program goes on with the verbs of clients that
 * are connected; none connects and none is fenced. The next process takes over. */
#ifndef PAWL_NODE_MEMORY_KERNEL_H
#define PAWL_NODE_MEMORY_KERNEL_H

#include "node/kernel.h"
#include "node/memory.h"

#include <limits.h>

struct memory_kernel {
    /* The caller's. */
    const char *devices; /* IF[,IF...] */
    enum plane_mode mode;
    const char *pins; /* null: the memory ends with this process */
    bool remove;      /* at the end the pinned memory goes, too */
    kernel_report report;
    /* The rest is of memory_kernel.c. */
    struct plane *plane;
    char pinned[PATH_MAX]; /* the map of memory */
    struct net_addr at;
    bool found, begun;
};

/* 128-bit atomics are under a latch that CPU instructions do not take, and the program cannot park a WAIT. */
#define MEMORY_KERNEL_CAPS (FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED)

/* For memory_node_open; `k` does not move while the node is open. */
struct memory_home memory_kernel_home(struct memory_kernel *k);

#endif
