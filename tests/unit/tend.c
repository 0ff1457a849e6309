/* SPDX-License-Identifier: Apache-2.0 */
/* Looking after a lost session while another session does the same, frees the slot and takes it: the successor is not fenced. And a
 * session that closes while others look after it already: it is fenced, and its close has succeeded. */
#include "cluster/keeper.h"
#include "tests/check.h"
#include "world/world.h"

#define LOST_PEER 7u
#define NEXT_PEER 9u
#define SLOT 1u
#define EPOCH 3u

static struct care care;
static char *memory;
static bool takes;  /* another session is faster, before the proof is read */
static bool fences; /* the peer whose verbs these are, once its lease word says that the session is lost */
static unsigned fenced[16];

static struct slot *slot_of(uint32_t slot)
{
    return (struct slot *)(void *)(memory + space_slot_addr(&care.space, slot));
}

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
        uint64_t *word = (uint64_t *)(void *)at;
        switch (ops[i].verb) {
        case FAB_READ:
            memcpy(ops[i].buf, at, ops[i].len);
            break;
        case FAB_WRITE:
            memcpy(at, ops[i].buf, ops[i].len);
            break;
        default:
            CHECK_EQ(ops[i].verb, FAB_CAS);
            CHECK_EQ(ops[i].width, 8);
            ops[i].old = *word;
            if (*word == (uint64_t)ops[i].compare)
                *word = (uint64_t)ops[i].swap;
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

static struct fab_ep ep;

static void begin(void)
{
    static const struct fab_ops ops = {.batch = batch, .fence = fence};
    static struct sighting seen[8];
    const struct layout_params p = {.design = design_find("word"),
                                    .keys = PAWL_KEYS_DENSE,
                                    .capacity = 4,
                                    .sessions = 8,
                                    .holds = 4,
                                    .lease_ns = NS_PER_S,
                                    .check_ns = NS_PER_S / 4,
                                    .birth = 1,
                                    .caps = FAB_ATOMIC128 | FAB_MASKED | FAB_ORDERED};
    CHECK_EQ(care_format(&care, &p), 0);
    memory = calloc(1, care.header.total_bytes);
    CHECK(memory);
    ep = (struct fab_ep){.ops = &ops, .world = &world_real, .caps = p.caps, .size = care.header.total_bytes};
    CHECK_EQ(care_begin(&care, &ep, 0, seen), 0);
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
    free(memory);
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

int main(void)
{
    close_while_tended();
    tend(false);
    CHECK_EQ(fenced[LOST_PEER], 1);
    CHECK_EQ(lease_state(slot_of(SLOT)->lease), SLOT_FREE);
    free(memory);
    tend(true);
    CHECK(!takes); /* it was faster */
    CHECK_EQ(fenced[NEXT_PEER], 0);
    CHECK_EQ(lease_state(slot_of(SLOT)->lease), SLOT_TAKEN);
    CHECK_EQ(lease_epoch(slot_of(SLOT)->lease), EPOCH + 1);
    free(memory);
    return 0;
}
