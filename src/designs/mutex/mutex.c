/* SPDX-License-Identifier: Apache-2.0 */
/* The coarsest way to lock ranges: one reader-writer lock for the whole of what they are of, `word`'s. As good as a mutex per
 * inode, which Citron (4.3) compares with, and trivially right, which is what it is good for beside that: everything around ranges
 * can be tested with it.
 *
 * A range that grows is locked already. Cutting one in two is not offered: a word has one owner. */
#include "designs/word/word.h"

static int mutex_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    hold_note_range(seat, h);
    return design_word.acquire(seat, h, deadline);
}

static int mutex_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    h->start = start;
    h->end = end;
    hold_note_range(seat, h);
    return 0;
}

static void mutex_cover(const struct space *space, uint64_t *start, uint64_t *end)
{
    *start = 0;
    *end = RANGE_UNITS_MAX;
}

const struct design design_mutex = {
    .name = "mutex",
    .summary = "ranges under one reader-writer lock for the whole",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT |
                DESIGN_RANGES | DESIGN_ASYNC,
    .substrates = DESIGN_ON_SHM | DESIGN_ON_SIM,
    .tolerates = FAULTS_ALL,
    .lock_size = 16,
    .distrusts = true,
    .knobs = word_knobs,
    .acquire = mutex_acquire,
    .release = word_release,
    .convert = word_convert,
    .reshape = mutex_reshape,
    .cover = mutex_cover,
    .holds = hold_is_named,
    .recover = word_recover,
    .peek = word_peek,
    .raise = word_raise,
};
