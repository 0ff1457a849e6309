/* SPDX-License-Identifier: Apache-2.0 */
/* The census of a lock's holders: a session that is lost counts for nothing once it is shut out, and until then the count is not
 * sure. Live sessions and slots that are free need no fence. */
#include "designs/core/census.h"
#include "designs/word/word.h"
#include "tests/far_site.h"

static struct census count(bool for_good)
{
    struct census c;
    far.fences = 0;
    CHECK_EQ(census_take(&far.seats[0], 0, for_good, NULL, &c), 0);
    return c;
}

static struct hold locked(unsigned who)
{
    struct hold h;
    CHECK_EQ(hold_open(&far.seats[who], 0, &h), 0);
    h.mode = PAWL_SHARED;
    CHECK_EQ(design_word.acquire(&far.seats[who], &h, DEADLINE_TRY), 0);
    return h;
}

int main(void)
{
    far_open(&design_word, PAWL_KEYS_DENSE, 1, 0);
    struct hold h = locked(2);
    locked(1);
    CHECK_EQ(count(true).readers, 2);
    CHECK_EQ(far.fences, 0);

    CHECK_EQ(session_condemn(&far.seats[0], far.sessions[1].slot, far.sessions[1].epoch), 0);
    struct census c = count(true);
    CHECK_EQ(far.fences, 1);
    CHECK(c.readers == 1 && c.unsure == 1);
    c = count(false); /* only which holders live */
    CHECK_EQ(far.fences, 0);
    CHECK(c.readers == 1 && !c.unsure);

    far.fence_rc = 0;
    c = count(true);
    CHECK_EQ(far.fences, 1);
    CHECK(c.readers == 1 && !c.unsure);
    far.fence_rc = -EIO;
    CHECK_EQ(census_take(&far.seats[0], 0, true, NULL, &c), -EIO);

    CHECK_EQ(design_word.release(&far.seats[2], &h), 0);
    CHECK_EQ(session_close(&far.seats[2]), 0);
    far.fence_rc = 0;
    CHECK_EQ(count(true).readers, 0);
    CHECK_EQ(far.fences, 1);
    far_close();
    return 0;
}
