/* SPDX-License-Identifier: Apache-2.0 */
/* Which locks should be in the switch: those that are asked for most. All locks have the same size, so that NetLock's knapsack
 * (4.3) is a comparison. Servers report their hot locks; a hot lock replaces the least used of a few locks that a clock hand
 * passes. */
#include "designs/fisslock/placement.h"

#define LOOKS 8     /* cells that the hand passes at once */
#define HOTTER_BY 2 /* times as often asked for, and */
#define HOTTER_MORE 2

static uint32_t period_of(const struct placement *d, uint64_t now)
{
    return (uint32_t)(now / d->config.retry_ns);
}

void placement_used(struct placement *d, uint32_t cell, uint64_t now)
{
    heat_add(&placement_cell_at(d, cell)->heat, period_of(d, now));
}

void usage_heard(struct placement *d, const struct fission_packet *heat)
{
    const struct fission_entry *entries = (const struct fission_entry *)(heat + 1);
    for (unsigned i = 0; i < heat->count && d->wanted_count < WANTED_MAX; i++) {
        uint64_t index = entries[i].nonce;
        if (index >= d->config.locks || placement_find(d, index))
            continue;
        uint32_t at = (d->wanted_first + d->wanted_count++) % WANTED_MAX;
        d->wanted[at].index = index;
        d->wanted[at].count = entries[i].inca;
    }
}

/* A cell whose lock should make room for one that was asked for `count` times; CELL_NONE: none of those that the hand passed. */
static uint32_t coolest(struct placement *d, uint32_t count, uint64_t now)
{
    bool restless = d->config.options & FISSLOCK_RESTLESS;
    uint32_t best = CELL_NONE, best_count = 0;
    for (unsigned i = 0; i < LOOKS && i < d->capacity; i++) {
        d->hand = (d->hand + 1) % d->capacity;
        const struct lock_cell *s = placement_cell_at(d, d->hand);
        if (s->state != CELL_HERE || !placement_open(d, s->index))
            continue;
        uint32_t here = heat_now(s->heat, period_of(d, now));
        if (best == CELL_NONE || here < best_count) {
            best = d->hand;
            best_count = here;
        }
    }
    return best != CELL_NONE && (restless || HOTTER_BY * best_count + HOTTER_MORE <= count) ? best : CELL_NONE;
}

static void next_wanted(struct placement *d)
{
    d->wanted_first = (d->wanted_first + 1) % WANTED_MAX;
    d->wanted_count--;
}

void usage_pump(struct placement *d, const struct rebuild_lock *locks, uint64_t now, struct outbox *out)
{
    while (d->wanted_count && d->moves < MOVES_MAX && out->packets < OUTBOX_PACKETS / 2) {
        uint64_t index = d->wanted[d->wanted_first].index;
        if (placement_find(d, index) || !placement_open(d, index)) {
            next_wanted(d);
        } else if (d->free != CELL_NONE) {
            placement_call(d, index, locks, now, out);
            next_wanted(d);
        } else if (d->leaving >= d->wanted_count) {
            break; /* enough locks are leaving */
        } else {
            uint32_t cell = coolest(d, d->wanted[d->wanted_first].count, now);
            if (cell == CELL_NONE)
                next_wanted(d);
            else
                placement_give(d, cell, locks, now, out);
        }
    }
}
