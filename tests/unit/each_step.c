/* SPDX-License-Identifier: Apache-2.0 */
/* A try in steps (design.step), as several locks at a memory node are asked for together: of a lock in every state, which may
 * change between two steps, and with each batch of verbs failing once, in turn. The outcome is that of a try at once: two clients
 * never hold the lock (I1), and it can be had when the holders are gone (I9, I11). unit/each_verb does the same with other calls.
 */
#include "tests/unit/each_verb.h"

static enum { FREE, READ, WRITTEN, READ_MEANWHILE, WRITTEN_MEANWHILE, SHUT_OUT, USED_UP, OPEN, FULL, WAITED_FOR, STATES } state;
static enum pawl_mode mode;
static bool beside; /* the other session is on the lock's node: of the other cohort of alock */

static bool is_word(void)
{
    return d->features & DESIGN_SEMAPHORE;
}

static uint64_t *word(void)
{
    return far_word(space_lock_addr(&far.space, 0));
}

static void others_lock(enum pawl_mode how)
{
    other_holds = !lock(OTHER, 0, 0, how, DEADLINE_TRY, &others);
}

/* Before the first step. */
static void prepare(void)
{
    if (state == READ || state == OPEN || state == WAITED_FOR)
        others_lock(PAWL_SHARED);
    if (state == WRITTEN)
        others_lock(PAWL_EXCLUSIVE);
    if (state == USED_UP)
        *word() = word_make(WORD_FREE, 0, WORD_TOKEN_MAX);
    if (state == OPEN)
        *word() = word_make(WORD_SHARED, WORD_COUNT_MAX, word_token(*word()));
    if (state == WAITED_FOR)
        *word() |= WORD_WAITERS;
    if (state == FULL) {
        limit = 1;
        others_lock(PAWL_SHARED);
        limit = 0;
    }
}

/* Between the first step and the next. */
static void meddle(void)
{
    if (state == READ_MEANWHILE)
        others_lock(d->features & DESIGN_SHARED ? PAWL_SHARED : PAWL_EXCLUSIVE);
    if (state == WRITTEN_MEANWHILE)
        others_lock(PAWL_EXCLUSIVE);
    if (state == SHUT_OUT && lease_state(*far.sessions[FIRST].lease) == SLOT_LIVE) {
        fenced = true;
        lose(FIRST);
    }
}

/* As client/locker.c does. */
static int in_steps(struct hold *h)
{
    struct design_try t = {.step = 0};
    struct fab_op ops[TRY_VERBS_MAX];
    struct seat *seat = &far.seats[FIRST];
    int rc = hold_open(seat, 0, h), n = 0;
    if (rc)
        return rc;
    h->mode = mode;
    while (!t.rc && (n = d->step(seat, h, &t, ops)) > 0) {
        t.rc = fab_batch(seat->ep, ops, (unsigned)n);
        t.old = ops[0].old;
        if (t.step == 1u + beside)
            meddle();
    }
    if (t.rc || n)
        rc = d->rest(seat, h, &t);
    if (rc && rc != -PAWL_ELOST)
        hold_close(seat, h);
    if (rc > 0 || (rc && !(rc = seat_retry(seat, rc))))
        rc = lock(FIRST, 0, 0, mode, DEADLINE_TRY, h);
    return !rc && !seat_lives(seat) ? -PAWL_ELOST : rc;
}

static bool play(void)
{
    struct hold h;
    verbs = waits = 0;
    fenced = stopped = other_holds = wrong = false;
    far_lease_ns = LEASE_NS;
    far_open(d, PAWL_KEYS_DENSE, 1, 0);
    far.fence_rc = 0;
    far.eps[OTHER].node = beside ? 0 : FAB_NODE_ELSEWHERE;
    prepare();
    far.before = strike;
    int rc = in_steps(&h);
    wrong |= rc && rc != -PAWL_EHELD && rc != -PAWL_ELOST && rc != -ETIMEDOUT;
    wrong |=
        !rc && other_holds && d->holds(&far.seats[OTHER], &others) && (mode == PAWL_EXCLUSIVE || others.mode == PAWL_EXCLUSIVE);
    if (!struck && state == FREE)
        CHECK_EQ(rc, 0);
    if (!struck && state == WRITTEN)
        CHECK_EQ(rc, -PAWL_EHELD);
    if (!rc)
        rc = unlock(&h);
    far.before = NULL;
    if (other_holds)
        CHECK_EQ(d->release(&far.seats[OTHER], &others), 0);
    if (rc == -PAWL_ELOST || fenced || stopped) {
        fenced = true;
        lose(FIRST);
        for (unsigned i = 0; i < 100 && d->recover(&far.seats[LAST], far.sessions[FIRST].slot, far.sessions[FIRST].epoch); i++)
            ;
    }
    rc = lock(LAST, 0, 0, PAWL_EXCLUSIVE, far.now_ns + PATIENCE_NS, &h);
    if (!rc)
        CHECK_EQ(d->release(&far.seats[LAST], &h), 0);
    far_close();
    return !rc && !wrong;
}

/* Whether all went well. */
static bool play_all(const char *name, unsigned *runs)
{
    *runs = 0;
    d = design_find(name);
    CHECK(d && d->step && d->rest);
    far_node = FAB_NODE_ELSEWHERE;
    for (state = FREE; state < (is_word() ? STATES : USED_UP); state++)
        for (unsigned shared = 0; shared < 1u + !!(d->features & DESIGN_SHARED); shared++)
            for (way = again = 0; way < WAYS; again = (again + 1) % AGAIN_MAX, way += !again)
                for (struck = 0, verbs = UINT32_MAX; struck <= min_u64(verbs, STRUCK_MAX); struck++, ++*runs) {
                    mode = shared ? PAWL_SHARED : PAWL_EXCLUSIVE;
                    beside = !(d->features & DESIGN_SHARED) && *runs % 2;
                    if (!(d->features & DESIGN_SHARED) && (state == READ))
                        continue;
                    if (!play())
                        return false;
                }
    return true;
}

int main(void)
{
    static const char *const designs[] = {"word", "shiftlock", "alock"};
    unsigned runs;
    for (unsigned i = 0; i < countof(designs); i++) {
        if (!play_all(designs[i], &runs))
            CHECK_FAIL("%s: state %u, mode %u: batch %u of %u fails in way %u, and one %u later", designs[i], state, mode, struck,
                       verbs, way, again);
        printf("%s: %u tries in steps\n", designs[i], runs);
    }
    CHECK(!play_all("busted-shiftlock-step", &runs));
    printf("busted-shiftlock-step: try %u: both hold the lock, or no session can have it\n", runs);
    return 0;
}
