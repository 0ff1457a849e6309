/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of racks: changes. The log that keeps them: unit/store. */
#include "cluster/rules.h"
#include "tests/check.h"

#include <errno.h>

#define RACKS 3

static void changes(void)
{
    struct rules r, next = {0};
    rules_init(&r, RACKS);
    CHECK_EQ(rules_move(&r, RACKS, 0, 1, 0, &next), -EALREADY);
    CHECK_EQ(rules_move(&r, RACKS, 2, 2, 0, &next), -EINVAL);
    CHECK_EQ(rules_move(&r, RACKS, 0, RACK_SHARDS + 1, 0, &next), -EINVAL);
    CHECK_EQ(rules_move(&r, RACKS, 0, 1, RACKS, &next), -EINVAL);
    CHECK_EQ(next.now.version, 0);
    CHECK_EQ(rules_move(&r, RACKS, 0, 2, 2, &next), 0); /* slots 0 and 1, of racks 0 and 1 */
    CHECK_EQ(next.now.version, 1);
    CHECK(rules_loses(&next, 0) && rules_loses(&next, 1) && !rules_loses(&next, 2));
    CHECK(!rules_gains(&next, 0) && !rules_gains(&next, 1) && rules_gains(&next, 2));
    CHECK(rules_concern(&next.before, &next.now, 0) && rules_concern(&next.before, &next.now, 2));
    struct rules third;
    CHECK_EQ(rules_move(&next, RACKS, 0, 1, 0, &third), 0);
    CHECK(!rules_concern(&third.before, &third.now, 1) && !rules_loses(&third, 1));
}

/* Every shard has an owner that exists. */
static void owners(void)
{
    struct rules r;
    rules_init(&r, RACKS);
    CHECK(rack_rules_fine(&r.now, RACKS) && !rack_rules_fine(&r.now, RACKS - 1));
    for (unsigned s = 0; s < RACK_SHARDS; s++) {
        uint8_t owner = r.now.owner[s];
        r.now.owner[s] = RACKS;
        CHECK(!rack_rules_fine(&r.now, RACKS) && rack_rules_fine(&r.now, RACKS + 1));
        r.now.owner[s] = owner;
    }
}

int main(void)
{
    changes();
    owners();
    return 0;
}
