/* SPDX-License-Identifier: Apache-2.0 */
/* The file that the processes of a walk share (scripts/walk reads it). */
#ifndef PAWL_TESTS_WALK_H
#define PAWL_TESTS_WALK_H

#include <stdint.h>

#define WALK_STEPS (1u << 20)
#define WALK_ROUNDS 60u /* what is entered in many of them belongs to the walk, and not to a heartbeat */

struct walk_step {
    uint64_t function;
    uint32_t pid, thread;
    uint32_t round;
    uint32_t spare;
};

struct walk {
    uint32_t open; /* functions are noted */
    uint32_t count;
    uint32_t round;
    uint32_t spare;
    struct walk_step steps[WALK_STEPS];
};

#endif
