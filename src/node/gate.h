/* SPDX-License-Identifier: Apache-2.0 */
/* The filter in the kernel that a lock server or switch puts before its socket while packets with wrong tags flood it. */
#ifndef PAWL_NODE_GATE_H
#define PAWL_NODE_GATE_H

#include "node/node.h"

extern const struct station_gate gate_in_kernel;

#endif
