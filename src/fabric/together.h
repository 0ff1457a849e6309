/* SPDX-License-Identifier: Apache-2.0 */
/* Several calls of one task whose verbs leave together.
 *
 * Each call is straight-line code over an endpoint of its own, and runs on a fiber. Where it would wait for a verb it gives way to
 * the others. When all of them wait, their verbs leave as one batch: so n calls of k round trips each take k round trips and not
 * n times k. Calls that wait for memory to change wait until none has a verb to send, and then all at once.
 *
 * The calls must not wait for each other but by fab_wait_any: the other ways of waiting stop all of them. */
#ifndef PAWL_FABRIC_TOGETHER_H
#define PAWL_FABRIC_TOGETHER_H

#include "fabric/fabric.h"

#define TOGETHER_MAX 64u /* calls */

/* The i-th call. `ep` is its own, and void when it has returned. */
typedef void (*together_fn)(void *ctx, unsigned i, struct fab_ep *ep);

/* The stacks and endpoints of one task at a time. Made when first needed, kept for the next time. */
struct together;

/* The memory of a session for its calls: threads that call at the same moment have one each. Zero is an empty shelf. */
#define TOGETHER_SHELVES 4u /* more threads at once than that do without */
struct together_shelf {
    struct together *at[TOGETHER_SHELVES];
    bool taken[TOGETHER_SHELVES];
};

/* Runs so many calls on `ep`, and returns when all have. False, and none has run: there was no memory, or too many threads do so.
 */
bool together_run(struct together_shelf *shelf, struct fab_ep *ep, unsigned count, together_fn fn, void *ctx);

/* Calls that need no stack: `fn` writes the verbs of the i-th call's next step to `ops`, at most `most` of them, and says how many.
 * It is called again when they have ended, with `rc`, and `done` are those verbs with their results; at first there are none. 0:
 * the call is over. `fn` does no verb itself, and stores to words of the session's own by `ep` only. False: as of together_run, or
 * their verbs may not fit one batch. */
typedef unsigned (*together_step_fn)(void *ctx, unsigned i, struct fab_ep *ep, const struct fab_op *done, int rc,
                                     struct fab_op *ops);
bool together_steps(struct together_shelf *shelf, struct fab_ep *ep, unsigned count, unsigned most, together_step_fn fn, void *ctx);

/* Makes what the first call of together_run would make. */
int together_prepare(struct together_shelf *shelf);

/* A process of the simulation has died in the middle: nothing of it goes on. */
void together_reset(struct together_shelf *shelf);
void together_free(struct together_shelf *shelf);

#endif
