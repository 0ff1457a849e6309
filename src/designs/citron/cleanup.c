/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a dead session had (3.10). Its share of a node is gone when the node has been counted once without it. So its
 * nodes are collected, each once, and counted several at a time, however many holds it had. */
#include "designs/citron/steps.h"

#include <errno.h>

#define SEEN_MAX 64 /* a cache of the nodes of one lock that have been collected */

struct cleanup {
    const struct seat *seat;
    uint32_t epoch;
    bool certain; /* none of its verbs can take effect any more: it is the session that closes */
    struct hold h;
    struct citron_job j; /* on the lock of `waiting` and `seen` */
    unsigned count;
    struct tree_node waiting[REPAIR_MAX];
    struct tree_node seen[SEEN_MAX];
};

static int settled(int rc)
{
    return rc > 0 || rc == -EAGAIN ? 0 : rc; /* a client that waits for the node counts again */
}

static int count_waiting(struct cleanup *f)
{
    int rc = f->count ? citron_repair_some(&f->j, f->waiting, f->count, false) : 0;
    f->count = 0;
    return settled(rc);
}

/* Another lock: none of its nodes was collected yet. UINT8_MAX is the height of no node. */
static int begin_lock(struct cleanup *f, uint64_t index)
{
    int rc = count_waiting(f);
    f->h = (struct hold){.index = index, .record = UINT32_MAX, .mode = PAWL_EXCLUSIVE};
    job_start(&f->j, f->seat, &f->h, DEADLINE_NEVER);
    for (unsigned i = 0; i < SEEN_MAX; i++)
        f->seen[i].height = UINT8_MAX;
    return rc;
}

static int clean_up_node(struct cleanup *f, struct tree_node n)
{
    struct tree_node *seen = &f->seen[(n.number * 7 + n.height) % SEEN_MAX];
    if (tree_same(*seen, n))
        return 0;
    *seen = n;
    assert(f->count < REPAIR_MAX);
    f->waiting[f->count++] = n;
    return f->count == REPAIR_MAX ? count_waiting(f) : 0;
}

/* `place`: the word of the claim's place while it belongs to the dead session. */
static int clean_up_claim(struct cleanup *f, const struct citron_claim *c, uint64_t place)
{
    struct tree_node above[TREE_HEIGHT_MAX];
    if (c->spill)
        return settled(citron_repair(&f->j, c->node, true));
    int rc = claim_internal(c) ? clean_up_node(f, c->node) : 0;
    unsigned n = c->state < CLAIM_FLUX ? 0 : claim_notified(c, above);
    for (unsigned i = 0; i < n && !rc; i++)
        rc = clean_up_node(f, above[i]);
    if (!rc && !claim_internal(c) && c->shared && c->state >= CLAIM_FLUX && f->certain)
        rc = settled(leaf_swap_place(&f->j, c, place, 0));
    return rc;
}

static int clean_up_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct cleanup *f = ctx;
    const struct seat *seat = f->seat;
    uint64_t words[CLAIMS_MAX], lease;
    if (record_state(word) == RECORD_WAIT)
        return 0;
    if (record_index(word) >= seat->space->lock_count)
        return -EFAULT; /* the memory is corrupt */
    int rc = fab_read(seat->ep, citron_desc_addr(seat->space, slot, record), words, sizeof words);
    if (!rc) /* after the claims: these then belong to the dead session, not to its successor in the slot (I6) */
        rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), &lease);
    if (rc)
        return rc;
    if (lease_state(lease) != SLOT_LOST || lease_epoch(lease) != f->epoch)
        return 1;
    if (!f->j.seat || f->j.index != record_index(word))
        rc = begin_lock(f, record_index(word));
    for (unsigned i = 0; i < CLAIMS_MAX && !rc; i++) {
        struct citron_claim c = claim_of(words[i], f->j.height_max);
        if (c.state != CLAIM_NONE && c.state != CLAIM_WAIT && (c.spill || c.node.height <= f->j.height_max))
            rc = clean_up_claim(f, &c, reader_word(slot, f->epoch, record, record_serial(word), c.ticket));
    }
    return rc;
}

int citron_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    struct cleanup f = {.seat = seat, .epoch = epoch, .certain = dead == seat->me->slot};
    int rc = seat_records(seat, dead, clean_up_record, &f);
    return rc < 0 ? rc : count_waiting(&f);
}
