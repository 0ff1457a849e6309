/* SPDX-License-Identifier: Apache-2.0 */
/* A small value beside each lock, for one-sided designs with tokens.
 *
 *     floor      the highest token under which the value was read or set
 *     state      which of the two buffers has the value, its length (0: none), and the generation of the lock's cell: a value of
 *                another one belonged to another key
 *     buffers    words, each beside the token of the holder that wrote it
 *
 * Floor and state change together. A holder that sets the value writes the other buffer, then makes it the one that counts by one
 * compare-and-swap, so a death in between leaves the old value. A process that was stopped, and goes on when it has lost the lock,
 * may come in at any step: it overwrites no word of a later token, and its compare-and-swap fails once a later holder has read or
 * set the value, since either raises the floor (I26). */
#ifndef PAWL_DESIGNS_CORE_VALUE_H
#define PAWL_DESIGNS_CORE_VALUE_H

#include "designs/core/seat.h"

#define VALUE_WORDS (PAWL_VALUE_MAX / 8)
#define VALUE_NEEDS FAB_ATOMIC128 /* of the fabric */
#define VALUE_GENERATION_BITS 40

/* Of variants, on purpose (dataplane/mistake.h); the bits of designs lie below. */
#define VALUE_MISTAKE_LATE (UINT64_C(1) << 40) /* tokens are not compared: a holder of the past may set the value */
#define VALUE_MISTAKE_TORN (UINT64_C(1) << 41) /* the buffer that counts is overwritten */

struct value_word {
    _Alignas(16) uint64_t data;
    uint64_t token;
};

/* In lock memory: one for each lock. */
struct value_cell {
    _Alignas(16) uint64_t floor;
    uint64_t state;
    struct value_word buffers[2][VALUE_WORDS];
};

/* Under the hold `h`. 0; -PAWL_ENOTOWNER: a later holder was there, so the hold has ended; or another error. A set is seen by all
 * later holders if it returned 0. After another error it may be, until the next holder has looked. */
int value_set(const struct seat *seat, const struct hold *h, uint64_t generation, const void *bytes, uint32_t len);

/* 0, or -PAWL_ENOVALUE. The caller looks afterwards whether it still holds the lock. */
int value_get(const struct seat *seat, const struct hold *h, uint64_t generation, void *bytes, uint32_t *len);

#endif
