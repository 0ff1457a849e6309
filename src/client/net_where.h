/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rack is, or the memory nodes of a space: what comes after "pawl://". */
#ifndef PAWL_CLIENT_NET_WHERE_H
#define PAWL_CLIENT_NET_WHERE_H

#include "cluster/addresses.h"
#include "cluster/coordinator.h"

struct net_where {
    struct coord_list coordinators;
    struct seal_ring ring; /* of the key file; none: packets are not tagged */
    struct net_addr self;  /* ip of this host; 0: whatever leads to the coordinator */
    char space[COORD_NAME_LEN];
    uint32_t node, nodes; /* of a memory node: which one of how many it has to be */
    bool through_node;    /* on a memory node's own machine, too, its memory is used by verbs alone */
    bool afxdp;           /* packets go past the network stack, if that is possible */
    uint64_t deadline;    /* of opening (CLOCK_MONOTONIC): the caller's to set */
};

/* ADDRESS[:PORT][,ADDRESS]...:PORT/SPACE[?host=ADDRESS][&wire=afxdp][&memory=verbs]. Errors are explained. */
int net_where_parse(const char *place, struct net_where *w);

/* The key file is this one, and not that of $PAWL_KEY. Explained. */
int net_where_key(struct net_where *w, const char *path);

/* -ENOENT: the coordinators at that address have no such space. Explained. */
int net_where_no_space(const char *space, const char *address);

#endif
