/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's program, driven by hand: one packet in, its verdict and what comes out. */
#ifndef PAWL_TESTS_XDP_FISSION_HAND_H
#define PAWL_TESTS_XDP_FISSION_HAND_H

#include "dataplane/fission.h"
#include "tests/xdp/packets.h"

static struct plane *p;

static inline struct fission_packet packet_in(uint32_t space, uint8_t type, uint16_t machine, uint64_t index)
{
    struct fission_packet f = {.head = test_head(PACKET_FISSION, type), .mode = FISSION_EXCLUSIVE, .client = {machine, 5001}};
    f.head.from = f.client;
    f.head.index = index;
    f.head.space = space;
    return f;
}

static inline struct fission_packet expect(const char *what, const struct fission_packet *f, uint32_t verdict,
                                           enum plane_reason why)
{
    struct test_frame in = test_frame(f, sizeof *f), out;
    uint32_t got = test_pass(p, &in, &out);
    if (got != verdict)
        CHECK_FAIL("%s: verdict %u, not %u", what, got, verdict);
    if (verdict == XDP_PASS)
        CHECK(out.len == in.len && !memcmp(out.bytes, in.bytes, in.len));
    test_reason(p, why);
    struct fission_packet content;
    memcpy(&content, out.packet, sizeof content);
    return content;
}

#endif
