/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges by static segmentation, "SS" in Citron's comparison (4.2): the units of a lock are cut into segments of one size, each
 * with a DSLR lock of its own. A client takes the locks of all segments that its range touches, in ascending order, one after the
 * other. The result depends on the size: `segments-exact` has segments as long as the ranges, `segments-over` eight times as long,
 * `segments-under` has eight for each. How long ranges are is a knob (`length`), as the paper's segments were chosen to fit.
 *
 * The units behind those that the lock was made for are one more segment. Two ranges that share a segment conflict. As with the
 * DSLR locks of ticket_lock.c, there is no recovery and no time-out. */
#include "workbench/baselines/baselines.h"
#include "workbench/baselines/ticket_lock.h"

#define FACTOR 8 /* by which the estimate is wrong */
enum { LENGTH };

static const struct design_knob knobs[] = {
    [LENGTH] = {"length", 1, 1 << 20, 16},
    {0},
};

/* A segment has `units`, or a unit has `per_unit` segments; the other is 1. */
struct cut {
    uint64_t units, per_unit;
};

static struct cut cut_exact(const struct knobs *k)
{
    return (struct cut){.units = k->value[LENGTH], .per_unit = 1};
}

static struct cut cut_over(const struct knobs *k)
{
    return (struct cut){.units = (uint64_t)k->value[LENGTH] * FACTOR, .per_unit = 1};
}

static struct cut cut_under(const struct knobs *k)
{
    uint32_t length = k->value[LENGTH];
    return length >= FACTOR ? (struct cut){.units = length / FACTOR, .per_unit = 1}
                            : (struct cut){.units = 1, .per_unit = FACTOR / length};
}

static struct cut cut_of(const struct space *space)
{
    return space->design == &design_segments_exact  ? cut_exact(&space->knobs)
           : space->design == &design_segments_over ? cut_over(&space->knobs)
                                                    : cut_under(&space->knobs);
}

/* Without the one for the rest. */
static uint64_t segment_count(struct cut cut, uint64_t units)
{
    return (units + cut.units - 1) / cut.units * cut.per_unit;
}

static uint64_t bytes_of(struct cut cut, uint64_t range_units)
{
    return (segment_count(cut, range_units) + 1) * sizeof(struct ticket_lock);
}

static uint64_t exact_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *k)
{
    return bytes_of(cut_exact(k), range_units);
}

static uint64_t over_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *k)
{
    return bytes_of(cut_over(k), range_units);
}

static uint64_t under_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *k)
{
    return bytes_of(cut_under(k), range_units);
}

/* The segments [*first, *last) of a range. */
static void segments_of(const struct space *space, uint64_t start, uint64_t end, uint64_t *first, uint64_t *last)
{
    struct cut cut = cut_of(space);
    uint64_t count = segment_count(cut, space->range_units);
    *first = min_u64(start / cut.units * cut.per_unit, count);
    uint64_t behind = (end - 1) / cut.units * cut.per_unit + cut.per_unit;
    *last = behind > count ? count + 1 : behind;
}

static fab_addr segment_addr(const struct seat *seat, const struct hold *h, uint64_t segment)
{
    return space_lock_addr(seat->space, h->index) + segment * sizeof(struct ticket_lock);
}

/* The releases do not depend on each other, so they go in batches. */
static int unlock_segments(const struct seat *seat, const struct hold *h, uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at < last;) {
        struct fab_op ops[FAB_BATCH_MAX];
        unsigned n = 0;
        for (; n < FAB_BATCH_MAX && at < last; n++, at++)
            ticket_unlock_op(segment_addr(seat, h, at), h->mode, &ops[n]);
        int rc = fab_batch(seat->ep, ops, n);
        if (rc)
            return rc;
    }
    return 0;
}

static int segments_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    uint64_t first, last, at;
    segments_of(seat->space, h->start, h->end, &first, &last);
    h->token = 0;
    hold_note_range(seat, h);
    int rc = hold_publish(seat, h, record_named(h->mode)); /* so that inspection shows the holder */
    for (at = first; at < last && !rc; at += !rc)
        rc = ticket_lock_at(seat, segment_addr(seat, h, at), h->mode, deadline == DEADLINE_TRY);
    if (rc == -PAWL_EHELD) {
        int undo = unlock_segments(seat, h, first, at);
        rc = undo ? undo : rc;
    }
    return rc;
}

static int segments_release(const struct seat *seat, const struct hold *h)
{
    uint64_t first, last;
    int rc = hold_change(seat, h, record_named(h->mode), RECORD_WAIT); /* of two tasks that release it only one does */
    if (rc)
        return rc;
    segments_of(seat->space, h->start, h->end, &first, &last);
    rc = unlock_segments(seat, h, first, last);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static void segments_cover(const struct space *space, uint64_t *start, uint64_t *end)
{
    struct cut cut = cut_of(space);
    uint64_t first, last, count = segment_count(cut, space->range_units);
    segments_of(space, *start, *end, &first, &last);
    *start = first / cut.per_unit * cut.units;
    *end = last > count ? RANGE_UNITS_MAX : last / cut.per_unit * cut.units;
}

/* Shows the first segment that is held. */
static int segments_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    const struct hold whole = {.index = index};
    struct lock_view view = {0};
    uint64_t count = segment_count(cut_of(seat->space), seat->space->range_units);
    int rc = 0;
    for (uint64_t i = 0; i <= count && !rc && !view.mode; i++)
        rc = ticket_peek_at(seat, segment_addr(seat, &whole, i), &view);
    if (!rc)
        *out = view;
    return rc;
}

#define SEGMENTS(id, text, says)                                                                                                   \
    const struct design design_segments_##id = {.name = "segments-" text,                                                          \
                                                .summary = (says),                                                                 \
                                                .kind = DESIGN_BASELINE,                                                           \
                                                .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_RANGES,                      \
                                                .substrates = DESIGN_ON_SIM,                                                       \
                                                .tolerates = BASELINE_TOLERATES_KNOWN,                                             \
                                                .knobs = knobs,                                                                    \
                                                .lock_size = sizeof(struct ticket_lock),                                           \
                                                .lock_bytes = id##_bytes,                                                          \
                                                .acquire = segments_acquire,                                                       \
                                                .release = segments_release,                                                       \
                                                .cover = segments_cover,                                                           \
                                                .holds = hold_is_named,                                                            \
                                                .peek = segments_peek}

SEGMENTS(exact, "exact", "ranges in segments of their own length, each under a dslr lock");
SEGMENTS(over, "over", "the same with segments eight times as long");
SEGMENTS(under, "under", "the same with eight segments for each range");
