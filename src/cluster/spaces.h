/* SPDX-License-Identifier: Apache-2.0 */
/* An operator's questions about the spaces of a service, and the answers. The space is named by packet.space. */
#ifndef PAWL_CLUSTER_SPACES_H
#define PAWL_CLUSTER_SPACES_H

#include "cluster/coordinator.h"

enum spaces_verb { SPACES_LIST = 1, SPACES_CREATE, SPACES_DROP, SPACES_GROW };

/* COORD_SPACE. LIST: head.index: where to go on. A question that is retransmitted keeps its nonce, and is executed once. Those that
 * change something repeat in packet.stamp what the service said in its refusal COORD_ANEW, so that a recorded one is worth nothing.
 */
struct spaces_ask {
    struct coord_packet packet;
    uint32_t verb;
    uint32_t force; /* DROP, GROW: though there are hosts, whose sessions are lost */
    /* CREATE: 0 or empty: the service's default. GROW: locks */
    char design[COORD_NAME_LEN];
    uint64_t locks, lease_ns, member_ns;
    uint32_t keys, hosts, sessions, holds, servers, group;
};
static_assert(sizeof(struct spaces_ask) == 240, "no padding");

#define SPACES_TEXT 320u
#define SPACES_ENTRIES 4u

/* COORD_SPACES: packet.code: 0, or a negative code with a sentence in `text`; head.index: where LIST goes on; 0: that was all. */
struct spaces_answer {
    struct coord_packet packet;
    char text[SPACES_TEXT];
    uint32_t count, pad;
    struct spaces_entry {
        char name[COORD_NAME_LEN], design[COORD_NAME_LEN];
        struct rack_identity identity;
        struct net_addr granter; /* the switch or the first lock server; none: unknown */
        uint64_t locks, keys_used, lease_ns, member_ns;
        uint32_t keys, hosts, hosts_max, sessions, holds, servers;
        uint32_t leads, own; /* own: granters in the service's process */
    } entry[SPACES_ENTRIES];
};
static_assert(sizeof(struct spaces_answer) <= PACKET_MAX, "fits");

#endif
