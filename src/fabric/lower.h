/* SPDX-License-Identifier: Apache-2.0 */
/* Builds what a fabric lacks from what it has. */
#ifndef PAWL_FABRIC_LOWER_H
#define PAWL_FABRIC_LOWER_H

#include "fabric/fabric.h"

/* What an atomic verb leaves in a word that held `word`. */
u128 fab_verb_result(const struct fab_op *op, u128 word);

/* A masked CAS or FAA on a fabric that has plain CAS only: read, compute, compare-and-swap, until no other came between. */
int fab_lower_masked(struct fab_ep *ep, struct fab_op *op);

#endif
