/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/seals.h"

/* Lock servers and switches say that they are some, and have the cluster's key. */
static bool is_of_host(const struct packet_head *h, uint32_t len)
{
    const struct coord_packet *p = (const struct coord_packet *)h;
    return h->family == PACKET_COORDINATOR && len >= sizeof *p && h->from.machine && p->role != COORD_SERVER &&
           p->role != COORD_SWITCH;
}

bool seals_open(const struct seal_ring *ring, void *data, uint32_t len, struct seal_key *used)
{
    const struct packet_head *h = data;
    for (unsigned i = 0; i < ring->count && seal_is_tagged(data, len); i++) {
        *used = is_of_host(h, len) ? seal_host_key(&ring->key[i], h->space, h->from.machine, h->epoch)
                                   : seal_member_key(&ring->key[i], h->from.machine ? 0 : h->from.port);
        if (seal_open(used, data, len))
            return true;
    }
    memset(used, 0, sizeof *used);
    return false;
}

void seals_hand_out(const struct seal_ring *ring, const struct seal_key *used, const void *ask, void *answer)
{
    uint16_t number = ((const struct packet_head *)ask)->from.port;
    struct coord_packet *p = answer;
    const struct packet_head *h = &p->head;
    if (!ring->count || h->type != COORD_WELCOME || p->role != COORD_HOST)
        return;
    for (unsigned i = 0; i < ring->count; i++) {
        struct seal_key member = seal_member_key(&ring->key[i], number);
        if (memcmp(&member, used, sizeof member) != 0)
            continue;
        struct seal_key key = seal_host_key(&ring->key[i], h->space, h->to.machine, h->generation);
        key = seal_wrap(&key, used, h->nonce, h->generation);
        memcpy(p->at.ip, &key, sizeof key);
    }
}

struct seal_key seals_for_host(const struct seal_ring *ring, unsigned which, const void *packet)
{
    const struct packet_head *h = packet;
    assert(which < ring->count);
    return seal_host_key(&ring->key[which], h->space, h->to.machine, h->epoch);
}

bool seals_admit(const struct seal_ring *ring, const void *data, uint32_t len)
{
    const struct coord_packet *p = data;
    bool command = p->head.family == PACKET_COORDINATOR && len >= sizeof *p && !p->head.from.machine && !p->head.from.port &&
                   (p->head.type == COORD_BREAK || (p->head.type == COORD_RULES && p->code));
    return !command || seal_proved(ring, data, sizeof *p, offsetof(struct coord_packet, term));
}

uint32_t seals_refuse(const void *data, uint32_t len, int code, struct coord_packet *answer)
{
    struct coord_packet ask;
    if (len < sizeof ask || !coord_unpadded(data, len))
        return 0;
    memcpy(&ask, data, sizeof ask);
    ask.head.features = 0;
    ask.head.tag = 0;
    if (!coord_check(&ask, sizeof ask, 0) || !coord_unknown_space(&ask, answer))
        return 0;
    answer->code = code;
    return sizeof *answer;
}
