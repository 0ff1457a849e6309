/* SPDX-License-Identifier: Apache-2.0 */
/* The care for a space of `word` in plain memory, where verbs take effect at once: for tests that choose what happens between two
 * of them. */
#ifndef PAWL_TESTS_UNIT_CARE_SITE_H
#define PAWL_TESTS_UNIT_CARE_SITE_H

#include "cluster/keeper.h"
#include "tests/check.h"

static struct care care;
static char *memory;

static inline struct slot *slot_of(uint32_t slot)
{
    return (struct slot *)(void *)(memory + space_slot_addr(&care.space, slot));
}

static inline void execute(struct fab_op *op)
{
    char *at = memory + FAB_OFFSET(op->addr);
    uint64_t *word = (uint64_t *)(void *)at;
    switch (op->verb) {
    case FAB_READ:
        memcpy(op->buf, at, op->len);
        break;
    case FAB_WRITE:
        memcpy(at, op->buf, op->len);
        break;
    default:
        CHECK_EQ(op->verb, FAB_CAS);
        if (op->width == 16) {
            memcpy(&op->old, at, sizeof op->old);
            if (op->old == op->compare)
                memcpy(at, &op->swap, sizeof op->swap);
            break;
        }
        CHECK_EQ(op->width, 8);
        op->old = *word;
        if (*word == (uint64_t)op->compare)
            *word = (uint64_t)op->swap;
    }
}

/* Anew, on an endpoint that has its functions and its world. */
static inline void care_site_begin(struct fab_ep *ep, uint32_t caps)
{
    static struct sighting seen[8];
    const struct layout_params p = {.design = design_find("word"),
                                    .keys = PAWL_KEYS_DENSE,
                                    .capacity = 4,
                                    .sessions = 8,
                                    .holds = 4,
                                    .lease_ns = NS_PER_S,
                                    .margin_ns = NS_PER_MS,
                                    .check_ns = NS_PER_S / 4,
                                    .birth = 1,
                                    .caps = caps};
    free(memory);
    CHECK_EQ(care_format(&care, &p), 0);
    memory = calloc(1, care.header.total_bytes);
    CHECK(memory);
    ep->caps = caps;
    ep->size = care.header.total_bytes;
    CHECK_EQ(care_begin(&care, ep, 0, seen), 0);
}

#endif
