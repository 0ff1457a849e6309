/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's program, driven by hand: one packet in, its verdict and what comes out. */
#ifndef PAWL_TESTS_XDP_FISSION_HAND_H
#define PAWL_TESTS_XDP_FISSION_HAND_H

#include "dataplane/fission.h"
#include "designs/fisslock/rebuild.h"
#include "lib/rng.h"
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

static inline struct fission_packet request(uint8_t type, uint8_t mode, uint64_t index)
{
    struct fission_packet f = {.head = test_head(PACKET_FISSION, type), .mode = mode, .old_mode = mode, .client = {1, 5001}};
    f.head.index = index;
    return f;
}

/* For the locks as they are. */
static inline struct fission_packet random_packet(struct rng *rng, const struct rebuild_lock *locks, uint64_t count)
{
    static const uint8_t types[] = {FISSION_ACQUIRE, FISSION_RELEASE, FISSION_FREE, FISSION_GRANT,  FISSION_ACK,
                                    FISSION_REFUSED, FISSION_FLAGS,   FISSION_LOOK, FISSION_ANSWER, FISSION_TAKE,
                                    FISSION_PROBE,   FISSION_CHASE,   FISSION_ASK};
    struct fission_packet f =
        request(types[rng_below(rng, countof(types))], (uint8_t)(1 + rng_below(rng, 2)), rng_below(rng, count));
    uint64_t word = locks[f.head.index].word;
    f.old_mode = (uint8_t)(1 + rng_below(rng, 2));
    f.client = (struct place){(uint16_t)(1 + rng_below(rng, 3)), (uint16_t)(5000 + rng_below(rng, 3))};
    f.head.from = rng_below(rng, 4) ? f.client : (struct place){(uint16_t)(1 + rng_below(rng, 3)), PORT_POOL};
    f.head.to = (struct place){(uint16_t)(1 + rng_below(rng, 3)), (uint16_t)(5000 * rng_below(rng, 2))};
    f.head.nonce = rng_next(rng);
    f.flags = (uint16_t)(rng_next(rng) & rng_next(rng) & 0x3ff);
    uint32_t term = fission_word_term(word), former = (term - 1) & FISSION_TERM_MASK;
    uint64_t dice = rng_below(rng, 16);
    f.term = dice > 1 ? term : dice ? former : (uint32_t)rng_below(rng, FISSION_TERM_MASK);
    f.inca = (uint16_t)(rng_below(rng, 4) ? fission_word_inca(word) : rng_below(rng, 3));
    if (f.head.type == FISSION_ACQUIRE && (f.flags & FISSION_RETRY) && !(f.flags & (FISSION_COPY | FISSION_UPGRADE)) &&
        f.term % 2) {
        f.mode = FISSION_PLACE;
        f.inca = (uint16_t)(1 + f.head.nonce % FISSION_LIMIT_MAX);
    }
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
