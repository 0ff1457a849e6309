/* SPDX-License-Identifier: Apache-2.0 */
/* A lease that has run out on shared memory is withdrawn first; its session is lost only after the grace that follows (seat.h). */
#include "tests/unit/care_site.h"

#define SLOT 1u
#define EPOCH 3u
#define STAMP UINT64_C(5000) /* about five seconds */

static uint64_t now_ns;

static uint64_t now(struct world *w)
{
    (void)w;
    return now_ns;
}

static int batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    (void)ep;
    for (unsigned i = 0; i < n; i++)
        execute(&ops[i]);
    return 0;
}

static uint64_t *lease_of(void)
{
    return &slot_of(SLOT)->lease;
}

static int dead(void)
{
    uint64_t lease;
    return seat_peer_dead(&care.seat, SLOT, &lease);
}

static void begin(struct fab_ep *ep, uint32_t caps)
{
    care_site_begin(ep, caps);
    *lease_of() = lease_word(SLOT_LIVE, EPOCH, STAMP);
    now_ns = lease_expiry_ns(*lease_of());
}

int main(void)
{
    static const struct fab_ops fabric = {.batch = batch};
    static const struct world_ops ops = {.now = now};
    struct world world = {.ops = &ops};
    struct fab_ep ep = {.ops = &fabric, .world = &world};
    const uint32_t caps = FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED;

    /* One clock: withdrawn at the first look, lost when the grace is over. */
    begin(&ep, caps | FAB_SHARED_CLOCK);
    CHECK_EQ(dead(), 0);
    CHECK(!lease_withdrawn(*lease_of())); /* the lease runs */
    now_ns += 2 * NS_PER_MS;
    CHECK_EQ(dead(), 0);
    CHECK(lease_withdrawn(*lease_of()) && lease_state(*lease_of()) == SLOT_LIVE && lease_stamp(*lease_of()) == STAMP);
    now_ns += 10 * SEAT_GRACE_NS; /* the observer was stopped: the grace counts from when it sees that the lease is withdrawn */
    CHECK_EQ(dead(), 0);
    now_ns += SEAT_GRACE_NS;
    CHECK_EQ(dead(), 0);

    /* The owner renews: the grace of the next withdrawal begins anew. */
    *lease_of() = lease_word(SLOT_LIVE, EPOCH, STAMP + 1);
    CHECK_EQ(dead(), 0);
    CHECK(lease_withdrawn(*lease_of())); /* that has run out, too */
    CHECK_EQ(dead(), 0);
    now_ns += SEAT_GRACE_NS;
    CHECK_EQ(dead(), 0);
    now_ns += 1;
    CHECK_EQ(dead(), 1);
    CHECK_EQ(lease_state(*lease_of()), SLOT_LOST);
    CHECK_EQ(lease_stamp(*lease_of()), STAMP + 1);

    /* A session that is still opening grants nothing: no grace. */
    begin(&ep, caps | FAB_SHARED_CLOCK);
    *lease_of() = lease_word(SLOT_TAKEN, EPOCH, STAMP);
    now_ns += 2 * NS_PER_MS;
    CHECK_EQ(dead(), 1);

    /* Clocks of different hosts: those clients read their own. */
    begin(&ep, caps);
    CHECK_EQ(dead(), 0);
    now_ns += 2 * NS_PER_S;
    CHECK_EQ(dead(), 1);
    free(memory);
    return 0;
}
