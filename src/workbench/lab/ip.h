/* SPDX-License-Identifier: Apache-2.0 */
/* How a lab's network is made: by ip(8). */
#ifndef PAWL_WORKBENCH_LAB_IP_H
#define PAWL_WORKBENCH_LAB_IP_H

#include "workbench/lab/lab.h"

/* Namespaces, cables, addresses, in a lab whose plan is written. After a failure, the parts that were made stay. */
int lab_build(const struct lab *lab);

#endif
