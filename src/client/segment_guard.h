/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that other users can write to: one of them could make the file shorter, and a process that touches a page that is gone
 * gets SIGBUS, whose default ends the process. While such a segment is mapped, a handler puts empty private memory in the place of
 * the whole segment. There the session's slot is free, so every call of the session returns -PAWL_ELOST.
 *
 * The handler passes on every other SIGBUS. A program that sets a handler of its own afterwards has that one alone, and a
 * thread that blocks SIGBUS is not protected. */
#ifndef PAWL_CLIENT_SEGMENT_GUARD_H
#define PAWL_CLIENT_SEGMENT_GUARD_H

#include "lib/base.h"

/* -ENOSPC if the process has too many of them. Callers exclude each other. */
int segment_guard_add(void *base, uint64_t size);
void segment_guard_remove(const void *base);

#endif
