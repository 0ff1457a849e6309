/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a rack's coordinators, of which one leads. A member sends to one of them. It goes on to the next when there is
 * no answer, and to the leader when a coordinator that stands by says where that is. Lists lie in a host's shared memory, too:
 * addresses are only added, and any thread may read while one changes it. */
#ifndef PAWL_CLUSTER_ADDRESSES_H
#define PAWL_CLUSTER_ADDRESSES_H

#include "wire/udp.h"

#define COORD_LIST_MAX 8u /* three or five are usual */
#define COORD_LIST_TEXT (COORD_LIST_MAX * (NET_ADDR_TEXT + 2))

struct coord_list {
    struct net_addr at[COORD_LIST_MAX];
    uint32_t count, now;     /* now: the one to which the member sends */
    struct seal_asker asker; /* by whose key they are asked; it does not change */
};

struct coord_list coord_list_one(struct net_addr at);

/* "a:7070,b:7071" or "a,b,c:7070", `len` bytes: an address without a port has the last one's. Errors as of net_addr_resolve;
 * -E2BIG: too many; -EAFNOSUPPORT: of IPv4 and of IPv6. */
int coord_list_parse(const char *text, size_t len, struct coord_list *out);
void coord_list_print(const struct coord_list *l, char out[COORD_LIST_TEXT]);

struct net_addr coord_list_at(const struct coord_list *l);
void coord_list_next(struct coord_list *l);

/* The leader is there: by what a stand-by says. Unknown, or no room: tries the next one. */
void coord_list_follow(struct coord_list *l, struct net_addr leader);

#endif
