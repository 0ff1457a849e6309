/* SPDX-License-Identifier: Apache-2.0 */
/* Builds what a fabric lacks from what it has. */
#ifndef PAWL_FABRIC_LOWER_H
#define PAWL_FABRIC_LOWER_H

#include "fabric/fabric.h"

/* The new value of a word that held `word`, after an atomic verb. */
u128 fab_verb_result(const struct fab_op *op, u128 word);

/* Whether a fabric with these capabilities lacks that verb. */
bool fab_must_lower(uint32_t caps, const struct fab_op *op);

/* Puts the one verb in its place that does the same, if the fabric has it: a masked SWAP for a masked CAS that compares nothing,
 * and the other way round. So it stays in its batch. */
bool fab_stand_in(uint32_t caps, struct fab_op *op);

/* How many verbs behind the first of n can travel with it (fab_op.again). */
unsigned fab_riders(const struct fab_op *ops, unsigned n);

/* Does a masked verb by others: a masked SWAP and a masked CAS that compares nothing stand in for each other; else by plain CAS of
 * the whole word, from `op->compare` as a guess, then from what the last one found, until no other came between. A right guess
 * costs one round trip, a wrong one what a READ would. The riders behind it travel with each CAS. */
int fab_lower_masked(struct fab_ep *ep, struct fab_op *op, unsigned riders);

#endif
