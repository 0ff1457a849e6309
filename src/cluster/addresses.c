/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/addresses.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ITEM_TEXT 280 /* a host name has up to 253 bytes; a port */

struct coord_list coord_list_one(struct net_addr at)
{
    return (struct coord_list){.at = {at}, .count = 1};
}

/* ---- text ---- */

static const char *port_of(const char *item)
{
    const char *bracket = strchr(item, ']');
    return strchr(bracket ? bracket : item, ':');
}

ONCE int coord_list_parse(const char *text, size_t len, struct coord_list *out)
{
    char last[ITEM_TEXT];
    const char *end = text + len, *tail = end;
    struct coord_list l = {.count = 0};
    while (tail > text && tail[-1] != ',')
        tail--;
    if (!len || (size_t)(end - tail) >= sizeof last)
        return -EINVAL;
    snprintf(last, sizeof last, "%.*s", (int)(end - tail), tail);
    const char *port = port_of(last);
    if (!port)
        return -EINVAL;
    for (const char *at = text, *comma; at <= end; at = comma + 1) {
        char item[2 * ITEM_TEXT];
        comma = memchr(at, ',', (size_t)(end - at));
        comma = comma ? comma : end;
        if (comma == at || comma - at >= ITEM_TEXT)
            return -EINVAL;
        if (l.count == COORD_LIST_MAX)
            return -E2BIG;
        snprintf(item, sizeof item, "%.*s", (int)(comma - at), at);
        if (!port_of(item))
            snprintf(item + (comma - at), sizeof item - (size_t)(comma - at), "%s", port);
        int rc = net_addr_resolve(item, &l.at[l.count]);
        if (rc)
            return rc;
        if (!l.at[l.count].port)
            return -EINVAL;
        if (net_addr_is_v4(&l.at[l.count++]) != net_addr_is_v4(&l.at[0]))
            return -EAFNOSUPPORT; /* a member has one address, by which it reaches all of them */
    }
    *out = l;
    return 0;
}

void coord_list_print(const struct coord_list *l, char out[COORD_LIST_TEXT])
{
    size_t used = 0;
    *out = 0;
    for (uint32_t i = 0; i < l->count && i < COORD_LIST_MAX; i++) {
        char text[NET_ADDR_TEXT];
        net_addr_print(l->at[i], text);
        used += (size_t)snprintf(out + used, COORD_LIST_TEXT - used, "%s%s", i ? ", " : "", text);
    }
}

/* ---- the one to which a member sends ---- */

static uint32_t count_of(const struct coord_list *l)
{
    return (uint32_t)min_u64(__atomic_load_n(&l->count, __ATOMIC_ACQUIRE), COORD_LIST_MAX);
}

struct net_addr coord_list_at(const struct coord_list *l)
{
    uint32_t count = count_of(l), now = __atomic_load_n(&l->now, __ATOMIC_ACQUIRE);
    return l->at[count ? now % count : 0];
}

void coord_list_next(struct coord_list *l)
{
    uint32_t count = count_of(l);
    if (count > 1)
        __atomic_store_n(&l->now, (__atomic_load_n(&l->now, __ATOMIC_ACQUIRE) + 1) % count, __ATOMIC_RELEASE);
}

void coord_list_follow(struct coord_list *l, struct net_addr leader)
{
    uint32_t count = count_of(l), i = 0;
    while (i < count && !net_addr_is(l->at[i], leader))
        i++;
    if (!net_addr_known(leader) || !leader.port || i == COORD_LIST_MAX) {
        coord_list_next(l);
        return;
    }
    if (i == count) {
        l->at[i] = leader;
        __atomic_store_n(&l->count, count + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&l->now, i, __ATOMIC_RELEASE);
}
