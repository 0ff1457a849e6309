/* SPDX-License-Identifier: Apache-2.0 */
/* The record that a thread keeps: the one it closed last, for the next hold that it opens, which spares an atomic.
 *
 * Fibers move between threads, so no code may keep the address of `hold_kept` across a wait: it is touched by hold.c, whose
 * functions are not inlined into any that waits, and by the fast path of the public interface, which never runs on a fiber. */
#ifndef PAWL_DESIGNS_CORE_KEPT_H
#define PAWL_DESIGNS_CORE_KEPT_H

#include "lib/base.h"

struct hold_kept {
    uint64_t session; /* that the record belongs to; 0: none kept */
    uint32_t record;
    bool returns;   /* the thread's end gives it back: set once the thread has kept one */
    uint8_t misses; /* holds of other sessions that this thread has ended since it kept this one */
};

/* initial-exec: one instruction to find, also in the shared library; 16 bytes of static TLS are always to be had. */
extern __attribute__((tls_model("initial-exec"))) _Thread_local struct hold_kept hold_kept;

#endif
