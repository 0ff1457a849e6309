/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet frames with IPv4 and UDP, for sockets that bypass the network stack: taken apart and put together. Everything is
 * checked, since the stack has not. */
#ifndef PAWL_WIRE_FRAME_H
#define PAWL_WIRE_FRAME_H

#include "wire/udp.h"

#define FRAME_HEADS 42u /* bytes of Ethernet, IPv4 and UDP before the packet */
#define FRAME_MAC 6

/* The payload of a frame. `data` lies in the frame. */
struct frame_packet {
    struct net_addr from;
    uint8_t mac[FRAME_MAC]; /* the sender's */
    uint32_t len;           /* at most PACKET_MAX */
    const uint8_t *data;
};

/* Whether it is a whole, unfragmented IPv4 frame without tag and options, with sound lengths and checksums, and a UDP packet to
 * `at`. */
bool frame_take_apart(const uint8_t *frame, uint32_t len, struct net_addr at, struct frame_packet *out);

/* Writes FRAME_HEADS + p->len bytes; p->len is at most PACKET_MAX. */
void frame_put_together(uint8_t *frame, struct net_addr at, const uint8_t from[FRAME_MAC], const uint8_t to[FRAME_MAC],
                        const struct udp_out *p);

#endif
