/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of frames of a client that bypasses the network stack, with any bytes, and with sound heads around them if the first
 * byte says so. An accepted packet lies in the frame, nothing is read beyond it, and the frame that is built from it is accepted
 * again. */
#include "tests/check.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct net_addr at = net_v4(0x0100000a, 4000);
    struct net_addr other = net_v4(0x0200000a, 5000);
    uint8_t mac[FRAME_MAC] = {2}, again[FRAME_HEADS + PACKET_MAX];
    struct frame_packet p, q;
    if (size < 2 || size > 2048)
        return 0;
    uint8_t how = data[0];
    uint32_t len = (uint32_t)size - 1;
    uint8_t *frame = malloc(len); /* its end is the end of what may be read */
    CHECK(frame);
    memcpy(frame, data + 1, len);
    if (how & 1 && len >= FRAME_HEADS && len - FRAME_HEADS <= PACKET_MAX) {
        const struct udp_out out = {.to = at, .len = len - FRAME_HEADS, .data = data + 1 + FRAME_HEADS};
        frame_put_together(frame, other, mac, mac, &out);
        if (how & 2 && how >> 2 < FRAME_HEADS)
            frame[how >> 2] = data[1 + (how >> 2)]; /* and one byte of the heads as it was */
    }
    if (frame_take_apart(frame, len, at, &p)) {
        CHECK(p.data == frame + FRAME_HEADS && p.len <= PACKET_MAX && p.len <= len - FRAME_HEADS);
        const struct udp_out out = {.to = at, .len = p.len, .data = p.data};
        frame_put_together(again, p.from, p.mac, mac, &out);
        CHECK(frame_take_apart(again, FRAME_HEADS + p.len, at, &q));
        CHECK(net_addr_is(p.from, q.from) && p.len == q.len && !memcmp(p.data, q.data, p.len) && !memcmp(p.mac, q.mac, FRAME_MAC));
    } else if ((how & 3) == 1 && len >= FRAME_HEADS && len - FRAME_HEADS <= PACKET_MAX) {
        CHECK_FAIL("a sound frame was refused");
    }
    free(frame);
    return 0;
}
