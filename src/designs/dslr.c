/* DSLR (Yoon et al., SIGMOD'18), as ShiftLock (4.1) compares with: Lamport's bakery in one word, four counters of 16 bits moved by
 * fetch-and-add. maxX and maxS are the next tickets of writers and readers, nX and nS count those that have left. A writer waits
 * until all before it have left, a reader until all writers before it have; they look again after a time in proportion to how many
 * are before them.
 *
 * Counters end at half their range, and then the word starts anew. The original takes its ticket back by adding -1, which corrupts
 * the word if that has just been reset. Here whoever comes too late leaves its ticket where it is and waits; whoever drew the last
 * one in range notes beside the word how many there were; and of those who wait, one writes zeroes over all counters once that many
 * have left. It must not be the holder that waits for the others to leave: they may wait for another lock that it holds. Until then
 * each client adds one at most, and the other half of the range is for that.
 *
 * Not here: the leases by which the original passes a client that does not release. Its word has no room to tell the release that
 * comes after that from the one that is due; see docs/designs/baselines.md. So no recovery, and no unknown outcomes: a ticket of
 * which nobody knows stops the queue. Who has a ticket cannot leave, so no time-out. */
#include "designs/dslr.h"
#include "designs/all.h"

#include <errno.h>

unsigned dslr_count_max = DSLR_COUNT_MAX;

#define WAIT_NS (2 * NS_PER_US)      /* per client before us: about a round trip */
#define WAIT_MAX_NS (64 * NS_PER_US) /* so that a long holder in front does not put everybody to sleep for long */

#define LAST (UINT64_C(1) << 63)

struct tickets {
    unsigned max_x, max_s, n_x, n_s;
};

#define ADD_MAX_X (UINT64_C(1) << 48)
#define ADD_MAX_S (UINT64_C(1) << 32)
#define ADD_N_X (UINT64_C(1) << 16)
#define ADD_N_S UINT64_C(1)

static struct tickets unpack(uint64_t w)
{
    return (struct tickets){
        .max_x = (uint16_t)(w >> 48), .max_s = (uint16_t)(w >> 32), .n_x = (uint16_t)(w >> 16), .n_s = (uint16_t)w};
}

static bool in_range(struct tickets t)
{
    return t.max_x < dslr_count_max && t.max_s < dslr_count_max;
}

/* Whether the ticket that was drawn from `mine` may go in. */
static bool is_turn(struct tickets mine, struct tickets now, enum pawl_mode mode)
{
    return now.n_x == mine.max_x && (mode == PAWL_SHARED || now.n_s == mine.max_s);
}

/* In proportion to those before us. */
static int wait_for(const struct seat *seat, unsigned before)
{
    uint64_t ns = min_u64((before ? before : 1) * WAIT_NS, WAIT_MAX_NS);
    int rc = fab_wait_any(seat->ep, NULL, 0, add_saturating(world_now(seat->world), ns));
    return rc == -ETIMEDOUT || rc == -ECANCELED ? 0 : rc; /* there is no way out of the queue */
}

/* Drew a ticket in range; if no other will be, says how many there are. */
static int note_last(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t drawn)
{
    struct tickets t = unpack(drawn);
    unsigned writers = t.max_x + (mode != PAWL_SHARED), readers = t.max_s + (mode == PAWL_SHARED);
    if (writers < dslr_count_max && readers < dslr_count_max)
        return 0;
    return fab_write64(seat->ep, addr + offsetof(struct dslr_lock, last), LAST | (uint64_t)writers << 16 | readers);
}

/* The counters have ended: if all who had a ticket in range have left, one of those who look starts the word anew. */
static int start_anew(const struct seat *seat, fab_addr addr, uint64_t w)
{
    uint64_t last, old;
    struct tickets now = unpack(w);
    int rc = fab_read64(seat->ep, addr + offsetof(struct dslr_lock, last), &last);
    if (rc || last != (LAST | (uint64_t)now.n_x << 16 | now.n_s))
        return rc;
    rc = fab_cas64(seat->ep, addr + offsetof(struct dslr_lock, last), last, 0, &old);
    if (rc || old != last)
        return rc; /* another does it */
    do {           /* only tickets out of range are drawn meanwhile */
        rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            rc = fab_cas64(seat->ep, addr, w, 0, &old);
    } while (!rc && old != w);
    return rc;
}

static int try_once(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t *drawn)
{
    uint64_t w, old;
    int rc = fab_read64(seat->ep, addr, &w);
    if (!rc && !in_range(unpack(w))) {
        rc = start_anew(seat, addr, w);
        if (!rc)
            rc = fab_read64(seat->ep, addr, &w);
    }
    if (!rc && (!in_range(unpack(w)) || !is_turn(unpack(w), unpack(w), mode)))
        return -PAWL_EHELD;
    if (!rc)
        rc = fab_cas64(seat->ep, addr, w, w + (mode == PAWL_SHARED ? ADD_MAX_S : ADD_MAX_X), &old);
    if (!rc && old != w)
        return -PAWL_EHELD;
    *drawn = w;
    return rc ? rc : note_last(seat, addr, mode, w);
}

/* Draws a ticket that is in range; what was drawn out of it is wiped when the word starts anew. */
static int draw(const struct seat *seat, fab_addr addr, enum pawl_mode mode, uint64_t *drawn)
{
    for (;;) {
        int rc = fab_faa64(seat->ep, addr, mode == PAWL_SHARED ? ADD_MAX_S : ADD_MAX_X, drawn);
        if (!rc && in_range(unpack(*drawn)))
            return note_last(seat, addr, mode, *drawn);
        uint64_t w = 0;
        while (!rc) {
            rc = fab_read64(seat->ep, addr, &w);
            if (!rc && in_range(unpack(w)))
                break;
            if (!rc)
                rc = start_anew(seat, addr, w);
            if (!rc)
                rc = wait_for(seat, 1);
        }
        if (rc)
            return rc;
    }
}

static unsigned before(struct tickets mine, struct tickets now, enum pawl_mode mode)
{
    unsigned writers = mine.max_x - now.n_x, readers = mine.max_s - now.n_s;
    return mode == PAWL_SHARED ? writers : writers + readers;
}

int dslr_lock_at(const struct seat *seat, fab_addr addr, enum pawl_mode mode, bool once)
{
    uint64_t drawn = 0, w;
    int rc = once ? try_once(seat, addr, mode, &drawn) : draw(seat, addr, mode, &drawn);
    struct tickets mine = unpack(drawn), now = mine;
    while (!rc && !is_turn(mine, now, mode)) {
        rc = wait_for(seat, before(mine, now, mode));
        if (!rc)
            rc = fab_read64(seat->ep, addr, &w);
        if (!rc)
            now = unpack(w);
    }
    return rc;
}

void dslr_unlock_op(fab_addr addr, enum pawl_mode mode, struct fab_op *out)
{
    *out =
        (struct fab_op){.verb = FAB_FAA, .width = sizeof(uint64_t), .addr = addr, .swap = mode == PAWL_SHARED ? ADD_N_S : ADD_N_X};
}

static int dslr_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    int rc = hold_publish(seat, h, h->mode == PAWL_SHARED ? RECORD_HELD_S : RECORD_TRY_X); /* for people to see who holds what */
    if (!rc)
        rc = dslr_lock_at(seat, space_lock_addr(seat->space, h->index), h->mode, deadline == DEADLINE_TRY);
    h->token = 0;
    return rc;
}

static int dslr_release(const struct seat *seat, const struct hold *h)
{
    fab_addr addr = space_lock_addr(seat->space, h->index);
    bool shared = h->mode == PAWL_SHARED;
    uint64_t old;
    /* Adding twice would let two in: of two that release the same hold only one does. */
    int rc = hold_change(seat, h, shared ? RECORD_HELD_S : RECORD_TRY_X, RECORD_WAIT);
    if (rc)
        return rc;
    rc = fab_faa64(seat->ep, addr, shared ? ADD_N_S : ADD_N_X, &old);
    if (!rc)
        hold_close(seat, h);
    return rc;
}

static bool dslr_holds(const struct seat *seat, const struct hold *h)
{
    return hold_is(seat, h, h->mode == PAWL_SHARED ? RECORD_HELD_S : RECORD_TRY_X);
}

int dslr_peek_at(const struct seat *seat, fab_addr addr, struct lock_view *out)
{
    uint64_t w;
    int rc = fab_read64(seat->ep, addr, &w);
    if (rc)
        return rc;
    struct tickets t = unpack(w);
    bool writers = t.max_x != t.n_x, readers = t.max_s != t.n_s;
    *out = (struct lock_view){.mode = writers   ? PAWL_EXCLUSIVE
                                      : readers ? PAWL_SHARED
                                                : 0,
                              .owner = LOCK_OWNER_UNKNOWN,
                              .readers = writers ? 0 : t.max_s - t.n_s};
    return 0;
}

static int dslr_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    return dslr_peek_at(seat, space_lock_addr(seat->space, index), out);
}

const struct design design_dslr = {
    .name = "dslr",
    .summary = "tickets of readers and writers by fetch-and-add, without its leases (SIGMOD'18)",
    .kind = DESIGN_BASELINE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED,
    .substrates = DESIGN_ON_SIM,
    .tolerates = DSLR_TOLERATES,
    .lock_size = sizeof(struct dslr_lock),
    .acquire = dslr_acquire,
    .release = dslr_release,
    .holds = dslr_holds,
    .peek = dslr_peek,
};
