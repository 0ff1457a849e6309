/* How a lab's network is made: by ip(8). */
#ifndef PAWL_TRIAL_LAB_IP_H
#define PAWL_TRIAL_LAB_IP_H

#include "trial/lab.h"

/* Namespaces, cables, addresses, in a lab whose plan is written. What fails leaves the rest where it is. */
int lab_build(const struct lab *lab);

#endif
