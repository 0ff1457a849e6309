/* SPDX-License-Identifier: Apache-2.0 */
/* Looking after a lost session while another session does the same, frees the slot and takes it: the successor is not fenced. And a
 * session that closes while others look after it already: it is fenced, and its close has succeeded. And a session that opens over
 * a connection that breaks: it has one slot in the end. */
#include "lib/hash.h"
#include "tests/unit/care_site.h"

#define LOST_PEER 7u
#define NEXT_PEER 9u
#define SLOT 1u
#define EPOCH 3u

static bool takes;  /* another session is faster, before the proof is read */
static bool breaks; /* the connection, when a slot has been claimed */
static bool fences; /* the peer whose verbs these are, once its lease word says that the session is lost */
static unsigned fenced[16];

static void successor(void)
{
    slot_of(SLOT)->lease = lease_word(SLOT_TAKEN, EPOCH + 1, 1000);
    slot_of(SLOT)->proof = (uint64_t)NEXT_PEER << 32 | 1;
    takes = false;
}

static int batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    (void)ep;
    if (fences && lease_state(slot_of(SLOT)->lease) == SLOT_LOST)
        return -FAB_EFENCED;
    for (unsigned i = 0; i < n; i++) {
        char *at = memory + FAB_OFFSET(ops[i].addr);
        bool proof = at <= (char *)&slot_of(SLOT)->proof && at + ops[i].len > (char *)&slot_of(SLOT)->proof;
        if (ops[i].verb == FAB_READ && proof && takes)
            successor();
        execute(&ops[i]);
        if (breaks && ops[i].verb == FAB_CAS && ops[i].width == 16) {
            breaks = false;
            return -FAB_EUNKNOWN;
        }
    }
    return 0;
}

static int fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    (void)ep, (void)proof;
    fenced[peer]++;
    return 0;
}

static const struct fab_ops fabric = {.batch = batch, .fence = fence};
static struct fab_ep ep = {.ops = &fabric, .world = &world_real};

static void begin(void)
{
    care_site_begin(&ep, FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED);
}

static void close_while_tended(void)
{
    struct session me = {.slot = SLOT, .epoch = EPOCH};
    const struct seat seat = {.space = &care.space, .me = &me, .ep = &ep, .world = &world_real};
    begin();
    fences = true;
    slot_of(SLOT)->lease = lease_word(SLOT_LIVE, EPOCH, 1000);
    CHECK_EQ(session_close(&seat), 0);
    CHECK_EQ(lease_state(slot_of(SLOT)->lease), SLOT_LOST);
    CHECK_EQ(session_close(&seat), -FAB_EFENCED); /* it did not live */
    fences = false;
}

static void tend(bool raced)
{
    begin();
    slot_of(SLOT)->lease = lease_word(SLOT_LOST, EPOCH, 1000);
    slot_of(SLOT)->proof = (uint64_t)LOST_PEER << 32 | 1;
    memset(fenced, 0, sizeof fenced);
    takes = raced;
    CHECK_EQ(session_tend(&care.seat), 0);
}

/* The first slot is another session's when it claims the next one, and free when it tries again (seed 51000292 of shiftlock on a
 * memory node: no session frees a second slot of a live client). `came_to`: how far it came before the connection broke. It may
 * have moved in (seed 234 of alock there), or another session may have seen since that its lease has run out. */
static void open_again(enum slot_state came_to)
{
    bool late = came_to == SLOT_LOST;
    uint64_t shadow[16];
    struct session me = {.shadow = shadow};
    struct seat seat = {.space = &care.space, .me = &me, .ep = &ep, .world = &world_real};
    const struct session_params p = {.lease_ns = NS_PER_S, .proof = (uint64_t)LOST_PEER << 32 | 1};
    begin();
    CHECK(care.space.record_count <= countof(shadow));
    uint32_t first = (uint32_t)(mix64(p.proof) % care.space.slot_count), second = (first + 1) % care.space.slot_count;
    slot_of(first)->lease = lease_word(SLOT_LIVE, EPOCH, LEASE_STAMP_FOREVER);
    breaks = true;
    CHECK_EQ(session_open(&seat, &p), -FAB_EUNKNOWN);
    CHECK_EQ(lease_state(slot_of(second)->lease), SLOT_TAKEN);
    slot_of(first)->lease = lease_word(SLOT_FREE, EPOCH, 0);
    slot_of(second)->lease = lease_word(came_to, lease_epoch(slot_of(second)->lease), 1);
    CHECK_EQ(session_open(&seat, &p), 0);
    CHECK_EQ(me.slot, late ? (second + 1) % care.space.slot_count : second);
    CHECK_EQ(lease_state(slot_of(second)->lease), late ? SLOT_FREE : SLOT_LIVE);
    CHECK_EQ(lease_state(slot_of(first)->lease), SLOT_FREE);
    free(me.design_state);
}

int main(void)
{
    open_again(SLOT_TAKEN);
    open_again(SLOT_LIVE);
    open_again(SLOT_LOST);
    close_while_tended();
    tend(false);
    CHECK_EQ(fenced[LOST_PEER], 1);
    CHECK_EQ(lease_state(slot_of(SLOT)->lease), SLOT_FREE);
    tend(true);
    CHECK(!takes); /* it was faster */
    CHECK_EQ(fenced[NEXT_PEER], 0);
    CHECK_EQ(lease_state(slot_of(SLOT)->lease), SLOT_TAKEN);
    CHECK_EQ(lease_epoch(slot_of(SLOT)->lease), EPOCH + 1);
    free(memory);
    return 0;
}
