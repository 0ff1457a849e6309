/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rules.h"

#include <errno.h>

void rules_init(struct rules *r, unsigned racks)
{
    r->now = r->before = rack_rules_first(racks);
}

int rules_move(const struct rules *r, unsigned racks, unsigned first, unsigned end, unsigned rack, struct rules *out)
{
    struct rules next = {.now = r->now, .before = r->now};
    bool news = false;
    if (first >= end || end > RACK_SHARDS || rack >= racks || r->now.version == UINT32_MAX)
        return -EINVAL;
    for (unsigned s = first; s < end; s++) {
        news |= next.now.owner[s] != rack;
        next.now.owner[s] = (uint8_t)rack;
    }
    next.now.version++;
    assert(next.now.version > r->now.version && rack_rules_fine(&next.now, racks));
    if (news)
        *out = next;
    return news ? 0 : -EALREADY;
}

bool rules_loses(const struct rules *r, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->before.owner[s] == rack && r->now.owner[s] != rack)
            return true;
    return false;
}

bool rules_gains(const struct rules *r, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->before.owner[s] != rack && r->now.owner[s] == rack)
            return true;
    return false;
}

bool rules_concern(const struct rack_rules *a, const struct rack_rules *b, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if ((a->owner[s] == rack) != (b->owner[s] == rack))
            return true;
    return false;
}
