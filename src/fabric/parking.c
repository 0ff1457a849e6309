/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/parking.h"

static _Thread_local struct fab_parking *current;

/* Not inlined: the address of `current` is another one when another thread has resumed the fiber. */
__attribute__((noinline)) void fab_parking_set(struct fab_parking *p)
{
    current = p;
}

__attribute__((noinline)) struct fab_parking *fab_parking_get(void)
{
    __asm__ volatile(""); /* so that two calls are not taken for one */
    return current;
}
