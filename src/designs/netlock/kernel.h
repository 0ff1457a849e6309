/* SPDX-License-Identifier: Apache-2.0 */
/* How the control process reaches a program in the kernel that has the registers, too. */
#ifndef PAWL_DESIGNS_NETLOCK_KERNEL_H
#define PAWL_DESIGNS_NETLOCK_KERNEL_H

#include "dataplane/netlock_memory.h"

/* Carries out orders in the kernel, if a program there has the registers, too: it runs while the control process does. */
struct plane_kernel {
    void *ctx;
    int (*order)(void *ctx, struct netlock_order *order); /* 0, or why it could not be given */
    void (*grace)(void *ctx);                             /* returns when every packet that passed before has passed */
};

#endif
