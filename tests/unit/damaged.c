/* SPDX-License-Identifier: Apache-2.0 */
/* Records and claims of a lost session that foreign code has overwritten, and calls of holders that hold nothing: recovery writes
 * nowhere else and says so, and the calls are refused. Where a record only tells less than it should, the lock can be had again
 * (I9).
 */
#include "designs/citron/steps.h"
#include "designs/shiftlock/shiftlock.h"
#include "tests/far_site.h"

#define UNITS 4096
#define PATIENCE_NS (100 * NS_PER_S)

enum { FIRST, OTHER, LAST };

static const struct design *d;

static void begin(const char *name, uint32_t node)
{
    d = design_find(name);
    CHECK(d);
    far_node = node;
    far_lease_ns = 3600 * NS_PER_S;
    far_open(d, PAWL_KEYS_DENSE, 2, d->features & DESIGN_RANGES ? UNITS : 0);
    far.space.desc_record = 0; /* as on shared memory, where others read all records */
    far.fence_rc = 0;
}

static int lock(unsigned who, enum pawl_mode mode, struct hold *h)
{
    int rc = DESIGN_LOOK_AGAIN;
    while (rc == DESIGN_LOOK_AGAIN) {
        CHECK_EQ(hold_open(&far.seats[who], 0, h), 0);
        h->mode = mode;
        h->end = far.space.range_units ? RANGE_UNITS_MAX : 0;
        rc = d->acquire(&far.seats[who], h, far.now_ns + PATIENCE_NS);
        if (rc)
            hold_close(&far.seats[who], h);
    }
    return rc;
}

static uint64_t *record_of(unsigned who, const struct hold *h)
{
    return far_word(space_record_addr(&far.space, far.sessions[who].slot, h->record));
}

static int recover(unsigned from)
{
    const struct session *s = &far.sessions[from];
    if (lease_state(*far_word(space_slot_addr(&far.space, s->slot))) == SLOT_LIVE)
        CHECK_EQ(session_condemn(&far.seats[LAST], s->slot, s->epoch), 0);
    return d->recover(&far.seats[LAST], s->slot, s->epoch);
}

static uint64_t sum(void)
{
    return hash_bytes(far.memory, far.header.total_bytes, 0);
}

/* ---- recovery ---- */

/* The lost session's record names a lock that there is not. */
static void no_such_lock(const char *name, uint32_t node)
{
    struct hold h;
    begin(name, node);
    CHECK_EQ(lock(OTHER, PAWL_EXCLUSIVE, &h), 0);
    uint64_t *record = record_of(OTHER, &h), was = *record;
    *record = record_word(record_state(was), record_serial(was), far.space.lock_count);
    CHECK_EQ(session_condemn(&far.seats[LAST], far.sessions[OTHER].slot, far.sessions[OTHER].epoch), 0);
    uint64_t before = sum();
    CHECK_EQ(recover(OTHER), -EFAULT);
    CHECK_EQ(sum(), before);
    *record = was;
    CHECK_EQ(recover(OTHER), 0);
    CHECK_EQ(lock(FIRST, PAWL_EXCLUSIVE, &h), 0);
    CHECK_EQ(d->release(&far.seats[FIRST], &h), 0);
    far_close();
}

/* The lost session only wants the lock, so it has nothing in it. */
static void only_wants(const char *name)
{
    struct hold h;
    begin(name, 0);
    CHECK_EQ(hold_open(&far.seats[OTHER], 0, &h), 0);
    CHECK_EQ(hold_publish(&far.seats[OTHER], &h, RECORD_WAIT), 0);
    CHECK_EQ(recover(OTHER), 0);
    CHECK_EQ(lock(FIRST, PAWL_EXCLUSIVE, &h), 0);
    far_close();
}

/* ---- a predecessor whose record tells of another hold, or of none ---- */

static unsigned spoilt; /* how */
static struct hold first;

static int spoil(unsigned session)
{
    static const enum record_state states[] = {RECORD_WAIT, RECORD_FREE, RECORD_SPARE, RECORD_HELD_X};
    if (session == OTHER && far.waits)
        *record_of(FIRST, &first) = record_word(states[spoilt], first.serial, spoilt == 3); /* the last one: of another lock */
    return FAR_WAITS;
}

/* No living session has the lock then: the waiter gets it, after a count. */
static void strange_predecessor(const char *name)
{
    struct hold h;
    for (spoilt = 0; spoilt < 4; spoilt++) {
        begin(name, FAB_NODE_ELSEWHERE);
        CHECK_EQ(lock(FIRST, PAWL_EXCLUSIVE, &first), 0);
        far.waits = spoil;
        CHECK_EQ(lock(OTHER, PAWL_EXCLUSIVE, &h), 0);
        far.waits = NULL;
        CHECK(h.token > first.token);          /* I2 */
        d->release(&far.seats[FIRST], &first); /* changes nothing */
        CHECK_EQ(d->release(&far.seats[OTHER], &h), 0);
        CHECK_EQ(lock(LAST, PAWL_EXCLUSIVE, &h), 0);
        far_close();
    }
}

static void names_of_nobody(const char *name)
{
    fab_addr at = 7;
    begin(name, 0);
    const struct hold none = {.record = far.space.record_count};
    CHECK_EQ(shift_find_desc(&far.seats[FIRST], shift_name(&far.seats[FIRST], &none), true, &at), -EFAULT);
    far.sessions[OTHER].slot = far.space.slot_count;
    CHECK_EQ(shift_find_desc(&far.seats[FIRST], shift_name(&far.seats[OTHER], &(struct hold){0}), true, &at), -EFAULT);
    CHECK_EQ(at, 7);
    far_close();
}

/* A record whose number is beyond those that the lock's word can name. */
static void no_name(const char *name)
{
    struct design_try t = {.step = 0};
    struct fab_op ops[TRY_VERBS_MAX];
    struct hold h;
    begin(name, FAB_NODE_ELSEWHERE);
    CHECK_EQ(hold_open(&far.seats[FIRST], 0, &h), 0);
    h.mode = PAWL_EXCLUSIVE;
    uint64_t before = sum();
    struct hold far_off = h;
    far_off.record = UINT32_MAX - 1;
    CHECK_EQ(d->acquire(&far.seats[FIRST], &far_off, far.now_ns + PATIENCE_NS), -PAWL_ELIMIT);
    if (d->step) {
        CHECK_EQ(d->step(&far.seats[FIRST], &far_off, &t, ops), TRY_OTHERWISE);
        CHECK_EQ(d->rest(&far.seats[FIRST], &far_off, &t), -PAWL_ELIMIT);
    }
    CHECK_EQ(sum(), before);
    far_close();
}

/* ---- calls of holders that hold nothing, or something else ---- */

static void calls_of_others(void)
{
    struct hold h, wrong;
    begin("citron", 0);
    const struct seat *seat = &far.seats[FIRST];
    CHECK_EQ(lock(FIRST, PAWL_EXCLUSIVE, &h), 0);
    uint64_t before = sum();
    CHECK_EQ(citron_rescale(seat, &h, RANGE_UNITS_MAX, far.now_ns + PATIENCE_NS), -ERANGE);
    CHECK_EQ(citron_rescale(seat, &h, (uint64_t)RANGE_UNITS_MAX + 1, far.now_ns + PATIENCE_NS), -ERANGE);
    CHECK_EQ(citron_rescale(seat, &h, 1, far.now_ns + PATIENCE_NS), -ERANGE);
    for (unsigned i = 0; i < 6; i++) {
        wrong = h;
        wrong.mode = i == 0 ? PAWL_SHARED : h.mode;
        wrong.end -= i == 1;
        wrong.start += i == 2;
        wrong.token += i == 3;
        wrong.serial += i == 4;
        wrong.record = i == 5 ? h.record + 1 : h.record;
        CHECK_EQ(citron_rescale(seat, &wrong, 2 * UNITS, far.now_ns + PATIENCE_NS), -PAWL_ENOTOWNER);
        CHECK_EQ(citron_release(seat, &wrong), -PAWL_ENOTOWNER);
        CHECK(!citron_holds(seat, &wrong));
    }
    wrong.record = far.space.record_count;
    CHECK_EQ(citron_release(seat, &wrong), -PAWL_ENOTOWNER);
    CHECK_EQ(sum(), before);
    CHECK_EQ(citron_release(seat, &h), 0);
    far_close();
}

int main(void)
{
    static const char *const designs[] = {"shiftlock", "shiftlock64", "citron", "alock"};
    for (unsigned i = 0; i < countof(designs); i++) {
        no_such_lock(designs[i], strcmp(designs[i], "alock") ? 0 : FAB_NODE_ELSEWHERE);
        if (strcmp(designs[i], "alock") != 0)
            only_wants(designs[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        strange_predecessor(designs[i]);
        names_of_nobody(designs[i]);
        no_name(designs[i]);
    }
    calls_of_others();
    return 0;
}
