/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies after exactly so many instructions. */
#ifndef PAWL_TESTS_UDP_STEP_H
#define PAWL_TESTS_UDP_STEP_H

#include "tests/shm/space.h"
#include "tests/trap.h"

#define STEPS_MAX 20000

static struct steps {
    uint64_t death, made;
    uint32_t survived;
} * steps; /* shared_memory() */

PLAIN static void on_step(int signal)
{
    if (steps->made++ == steps->death)
        trap_die();
}

static void begin(void)
{
    trap_begin(on_step);
}

static void end(void)
{
    trap_end();
    steps->survived = 1;
}

#endif
