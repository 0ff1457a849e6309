/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a simulated world, kept and put back: its arena and the stacks of its tasks. Everything is put back where it was, so
 * addresses stay what they were. Only pages that were ever written are put back: the others are read-only until they are. The
 * sanitizers keep books of stacks of their own, so their builds start each world anew. */
#ifndef PAWL_WORKBENCH_TRIAL_EXHAUST_IMAGE_H
#define PAWL_WORKBENCH_TRIAL_EXHAUST_IMAGE_H

#include "world/sim.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EXHAUST_IMAGES false
#else
#define EXHAUST_IMAGES true
#endif

struct exhaust_stack {
    char *copy;
    size_t bytes;
};

struct exhaust_image {
    struct sim_arena arena;
    char *copy; /* of the arena, and how much of it */
    size_t bytes;
    size_t page_bytes;
    uint32_t *written; /* the pages of it that are not as in the copy, or may not be */
    uint32_t written_count;
    struct fiber_pool *pool;
    struct fiber *fibers;         /* copies, */
    struct exhaust_stack *stacks; /* and what is on their stacks */
};

/* An empty arena, of which the worlds that are made from now on have their memory. 0 or -ENOMEM. */
int exhaust_image_open(struct exhaust_image *image);
void exhaust_image_close(struct exhaust_image *image);

/* Between events. 0 or -ENOMEM. */
int exhaust_image_keep(struct exhaust_image *image, struct fiber_pool *pool);
void exhaust_image_put_back(struct exhaust_image *image);

#endif
