/* SPDX-License-Identifier: Apache-2.0 */
/* Each batch of verbs fails once, in turn, while a session breaks another one, lists the keys of the space, closes and opens again:
 * the batch is lost, or only its answer is, or the session has been shut out. The call fails with the error, or finds out what
 * became of the batch. Whatever fails, another session recovers from what is left and has the lock (I9, I11). */
#include "cluster/table.h"
#include "tests/far_site.h"

#define LEASE_NS (4 * NS_PER_MS)
#define PATIENCE_NS (100 * LEASE_NS)
#define VERBS_MAX 500
#define TRIES 20

enum { FIRST, OTHER, LAST };
enum { LOST, ANSWER_LOST, FENCED, WAYS };

static unsigned verbs, struck, way;
static bool fenced;
static struct table table;

static int strike(unsigned session, const struct fab_op *ops, unsigned n)
{
    if (session != FIRST)
        return 0;
    fenced |= ++verbs == struck && way == FENCED;
    if (fenced)
        return -FAB_EFENCED;
    return verbs != struck ? 0 : way == LOST ? -FAB_EUNKNOWN : FAR_ANSWER_LOST;
}

static bool may_fail_so(int rc)
{
    return !rc || rc == -FAB_EUNKNOWN || rc == -FAB_EFENCED || rc == -PAWL_ELOST || rc == -EAGAIN || rc == -ENOENT;
}

static void lock(const struct design *d, unsigned who, struct hold *h)
{
    int rc = DESIGN_LOOK_AGAIN;
    while (rc == DESIGN_LOOK_AGAIN) {
        CHECK_EQ(hold_open(&far.seats[who], 0, h), 0);
        h->mode = PAWL_EXCLUSIVE;
        h->end = far.space.range_units ? RANGE_UNITS_MAX : 0;
        rc = d->acquire(&far.seats[who], h, far.now_ns + PATIENCE_NS);
    }
    if (rc)
        CHECK_FAIL("%s: batch %u fails in way %u: session %u does not get the lock: %d", d->name, struck, way, who, rc);
}

/* The last session ends another one, if it still lives, and does what is left to do for it. */
static void recover_from(const struct design *d, const struct session *s)
{
    int rc = session_condemn(&far.seats[LAST], s->slot, s->epoch);
    uint64_t lease = *far_word(space_slot_addr(&far.space, s->slot)); /* the slot may be free, or be taken again */
    CHECK(!rc || lease_state(lease) != SLOT_LIVE || lease_epoch(lease) != s->epoch);
    for (unsigned i = 0; i < TRIES && seat_still_lost(&far.seats[LAST], s->slot, s->epoch) > 0; i++)
        if (!d->recover(&far.seats[LAST], s->slot, s->epoch))
            break;
}

/* The first session's calls. */
static void break_and_list(void)
{
    const struct seat *seat = &far.seats[FIRST];
    CHECK_EQ(session_break(seat, far.space.slot_count, 1), -EINVAL);
    int rc = session_break(seat, far.sessions[OTHER].slot, far.sessions[OTHER].epoch + 1); /* of another session there */
    CHECK(rc && may_fail_so(rc));
    CHECK(may_fail_so(session_break(seat, far.sessions[OTHER].slot, far.sessions[OTHER].epoch)));
    for (uint64_t i = 0; i < far.space.lock_count; i++) {
        char name[PAWL_NAME_MAX + 1];
        uint64_t len;
        rc = table_key_at(seat, &table, i, name, &len);
        CHECK(rc == 0 || rc == 1 || may_fail_so(rc));
        if (rc == 1 && table.keys == PAWL_KEYS_NAMED)
            CHECK(len == 1 && *name == 'x');
    }
}

static void close_and_open(void)
{
    struct seat *seat = &far.seats[FIRST];
    const struct session_params params = far_session(FIRST);
    CHECK(may_fail_so(session_close(seat)));
    int rc = session_open(seat, &params);
    CHECK(may_fail_so(rc) || rc == -PAWL_ELIMIT);
}

/* Whether a batch was struck. */
static bool play(const struct design *d, enum pawl_keys keys)
{
    struct hold others, h;
    struct cell cell = {0};
    verbs = 0;
    fenced = false;
    far_lease_ns = LEASE_NS;
    far_open(d, keys, keys == PAWL_KEYS_DENSE ? 1 : 4, d->features & DESIGN_RANGES ? 64 : 0);
    far.fence_rc = 0;
    table_init(&table, &far.header, 0);
    if (keys == PAWL_KEYS_NAMED)
        CHECK_EQ(table_find_or_insert(&far.seats[LAST], &table, pawl_name("x"), &cell), 0);
    lock(d, OTHER, &others);
    const struct session first = far.sessions[FIRST]; /* before it opens again */
    far.before = strike;
    break_and_list();
    close_and_open();
    far.before = NULL;
    recover_from(d, &far.sessions[OTHER]);
    recover_from(d, &first);
    lock(d, LAST, &h);
    CHECK_EQ(d->release(&far.seats[LAST], &h), 0);
    far_close();
    return verbs >= struck;
}

int main(void)
{
    static const char *const designs[] = {"word", "shiftlock", "shiftlock64", "citron", "alock"};
    unsigned runs = 0;
    for (unsigned i = 0; i < countof(designs); i++) {
        const struct design *d = design_find(designs[i]);
        CHECK(d);
        far_node = strcmp(d->name, "alock") ? 0 : FAB_NODE_ELSEWHERE;
        for (way = LOST; way < WAYS; way++)
            for (unsigned named = 0; named < 2; named++)
                for (struck = 1; play(d, named && !(d->features & DESIGN_RANGES) ? PAWL_KEYS_NAMED : PAWL_KEYS_DENSE); struck++) {
                    CHECK(struck < VERBS_MAX);
                    runs++;
                }
    }
    printf("%u runs in which a batch fails\n", runs);
    return 0;
}
