/* SPDX-License-Identifier: Apache-2.0 */
/* How much one address may ask for. Each address has a budget that fills up again with time. Addresses that share an entry of the
 * table take turns with it, and begin with a full budget: a sender that changes its address is not limited by this. */
#ifndef PAWL_CLUSTER_LIMITS_H
#define PAWL_CLUSTER_LIMITS_H

#include "lib/hash.h"
#include "wire/udp.h"

#define LIMITS_ADDRESSES 256u /* told apart at once: more than a rack has hosts, as a rule */

struct limits {
    struct {
        uint8_t ip[16];
        uint64_t at_ns; /* when it was used last */
        uint64_t used;  /* of the budget, in billionths */
    } entry[LIMITS_ADDRESSES];
};

/* Whether the address may have one more: `burst` at once, and `rate` a second. */
static inline bool limits_take(struct limits *l, struct net_addr from, uint64_t rate, uint64_t burst, uint64_t now)
{
    unsigned i = (unsigned)(hash_bytes((const char *)from.ip, sizeof from.ip, 0) % LIMITS_ADDRESSES);
    if (memcmp(l->entry[i].ip, from.ip, sizeof from.ip) != 0) {
        memcpy(l->entry[i].ip, from.ip, sizeof from.ip);
        l->entry[i].used = 0;
    }
    uint64_t passed = now > l->entry[i].at_ns ? now - l->entry[i].at_ns : 0;
    uint64_t back = min_u64(passed, burst * NS_PER_S / rate) * rate;
    l->entry[i].used -= min_u64(l->entry[i].used, back);
    l->entry[i].at_ns = now;
    if (l->entry[i].used + NS_PER_S > burst * NS_PER_S)
        return false;
    l->entry[i].used += NS_PER_S;
    return true;
}

#endif
