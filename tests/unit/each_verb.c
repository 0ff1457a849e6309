/* SPDX-License-Identifier: Apache-2.0 */
/* Each batch of verbs of a session fails once, in turn: it is lost, or only its answer is, or the session has been shut out, or was
 * stopped before the batch until its lease had ended. A story has all that a holder can do, with another session in its way and one
 * that is lost; in a second one the session recovers from a lost one. Whatever fails, the lock can be had when the holders are gone
 * (I9, I11). sim/each_request does so in campaigns, and meets fewer of the steps. */
#include "tests/unit/each_verb.h"

/* ---- stories ---- */

static int recover(unsigned who, unsigned from)
{
    return d->recover(&far.seats[who], far.sessions[from].slot, far.sessions[from].epoch);
}

static void recover_surely(unsigned from)
{
    int rc = -EAGAIN;
    for (unsigned i = 0; rc && i < 100; i++)
        rc = recover(LAST, from);
    CHECK_EQ(rc, 0);
}

/* The holds that are left belong to sessions that are gone. Whether all went well, and the lock can be had. */
static bool end(bool lost)
{
    struct hold h;
    far.waits = NULL;
    if (other_holds)
        CHECK_EQ(d->release(&far.seats[OTHER], &others), 0);
    other_holds = false;
    far.fence_rc = 0;
    if (lost) {
        fenced = true;
        lose(FIRST);
        recover_surely(FIRST);
    }
    struct lock_view view;
    if (d->peek)
        CHECK_EQ(d->peek(&far.seats[LAST], 0, &view), 0);
    int rc = lock(LAST, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, far.now_ns + PATIENCE_NS, &h);
    if (!rc)
        CHECK_EQ(d->release(&far.seats[LAST], &h), 0);
    far_close();
    return !rc && !wrong;
}

static void begin(void)
{
    far_lease_ns = LEASE_NS;
    verbs = waits = 0;
    fenced = stopped = other_holds = wrong = false;
    far_open(d, PAWL_KEYS_DENSE, 1, d->features & DESIGN_RANGES ? UNITS : 0);
}

static bool hold_and_change(void)
{
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, PAWL_EXCLUSIVE, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    far.before = strike;
    far.waits = release_other;
    int rc = everything();
    if (!struck)
        CHECK_EQ(rc, 0);
    wrong |= rc && rc != -PAWL_ELOST && rc != -PAWL_EHELD && rc != -ETIMEDOUT;
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

/* The other session keeps the lock, and the client gives up. The client keeps its own holds. */
static int in_vain(enum pawl_mode mode)
{
    struct hold h;
    int rc = lock(FIRST, 0, 10, PAWL_EXCLUSIVE, DEADLINE_TRY, &h);
    if (rc == -PAWL_EHELD)
        rc = lock(FIRST, 0, 300, PAWL_EXCLUSIVE, far.now_ns + LEASE_NS, &h);
    if (rc != -ETIMEDOUT || !(d->features & DESIGN_SHARED))
        return rc;
    rc = lock(FIRST, 5, 300, PAWL_SHARED, far.now_ns + LEASE_NS, &h);
    if (rc || mode != PAWL_SHARED)
        return rc;
    rc = d->convert ? change(d->convert(&far.seats[FIRST], &h, PAWL_EXCLUSIVE, far.now_ns + LEASE_NS)) : 0;
    return rc ? rc : unlock(&h);
}

static bool give_up(enum pawl_mode mode)
{
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, mode, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    far.before = strike;
    int rc = in_vain(mode);
    if (!struck)
        CHECK_EQ(rc, mode == PAWL_SHARED ? 0 : -ETIMEDOUT);
    wrong |= rc && rc != -PAWL_ELOST && rc != -PAWL_EHELD && rc != -ETIMEDOUT;
    wrong |= !d->holds(&far.seats[OTHER], &others) || (!rc && mode == PAWL_EXCLUSIVE); /* I1 */
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

static bool give_up_writer(void)
{
    return give_up(PAWL_EXCLUSIVE);
}

static bool give_up_reader(void)
{
    return !(d->features & DESIGN_SHARED) || give_up(PAWL_SHARED);
}

static bool recover_from(enum pawl_mode mode)
{
    struct hold h, waiting;
    begin();
    CHECK_EQ(lock(OTHER, 0, 300, mode, DEADLINE_NEVER, &h), 0);
    far.before = strike;
    lose(OTHER);
    far.fence_rc = struck % 2 ? 0 : -EAGAIN;
    recover(FIRST, OTHER);
    far.fence_rc = 0;
    int rc = fenced || stopped ? -PAWL_ELOST : lock(FIRST, 0, 10, PAWL_EXCLUSIVE, soon(), &waiting);
    if (!rc)
        rc = unlock(&waiting);
    recover_surely(OTHER);
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

static bool recover_from_writer(void)
{
    return recover_from(PAWL_EXCLUSIVE);
}

static bool recover_from_reader(void)
{
    return !(d->features & DESIGN_SHARED) || recover_from(PAWL_SHARED);
}

/* ---- stories with a queue ---- */

static enum pawl_mode held, wanted;
static bool acted;
static int result; /* of what the first session has done while another one waited */
static struct hold mine;

/* The first session holds the lock and changes it while another one waits for it, then lets it have it. */
static int act_once(unsigned session)
{
    if (session == FIRST || acted)
        return FAR_WAITS;
    acted = true;
    uint64_t until = far.now_ns + LEASE_NS / 2;
    result = 0;
    if (d->convert && held == PAWL_SHARED)
        result = change(d->convert(&far.seats[FIRST], &mine, PAWL_EXCLUSIVE, until));
    if (d->convert && !result)
        result = change(d->convert(&far.seats[FIRST], &mine, PAWL_SHARED, until));
    if (!result && (mine.mode != held || wanted == PAWL_EXCLUSIVE || held == PAWL_EXCLUSIVE))
        result = unlock(&mine);
    return FAR_WAITS;
}

static bool waited_for(enum pawl_mode first, enum pawl_mode second)
{
    begin();
    held = first;
    wanted = second;
    far.fence_rc = 0;
    far.before = strike;
    far.waits = act_once;
    result = lock(FIRST, 0, 10, held, soon(), &mine);
    acted = result; /* without the lock there is nothing to change */
    int rc = lock(OTHER, 5, 300, wanted, soon(), &others);
    other_holds = !rc;
    if (!acted)
        act_once(OTHER);
    if (!struck)
        CHECK(!rc && !result);
    wrong |= rc != 0; /* the session in its way has gone, or was lost */
    wrong |= result && result != -PAWL_ELOST && result != -PAWL_EHELD && result != -ETIMEDOUT;
    return end(result == -PAWL_ELOST || fenced || stopped);
}

static bool waited_for_by_writer(void)
{
    return waited_for(PAWL_EXCLUSIVE, PAWL_EXCLUSIVE);
}

static bool waited_for_by_reader(void)
{
    return !(d->features & DESIGN_SHARED) || waited_for(PAWL_EXCLUSIVE, PAWL_SHARED);
}

static bool reader_waited_for(void)
{
    return !(d->features & DESIGN_SHARED) || waited_for(PAWL_SHARED, PAWL_EXCLUSIVE);
}

/* While the first session waits, the last one queues up behind it and gives up; meanwhile the other session releases the lock. */
static int come_and_go(unsigned session)
{
    struct hold h;
    if (session == LAST && other_holds) {
        other_holds = false;
        CHECK_EQ(d->release(&far.seats[OTHER], &others), 0);
    }
    if (session != FIRST || acted)
        return FAR_WAITS;
    acted = true;
    int rc = lock(LAST, 0, 10, wanted, far.now_ns + LEASE_NS / 2, &h);
    if (!rc)
        CHECK_EQ(d->release(&far.seats[LAST], &h), 0);
    return FAR_WAITS;
}

static bool queue_of_three(enum pawl_mode first, enum pawl_mode second)
{
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, PAWL_EXCLUSIVE, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    wanted = second;
    acted = false;
    far.fence_rc = 0;
    far.before = strike;
    far.waits = come_and_go;
    int rc = lock(FIRST, 5, 300, first, soon(), &mine);
    wrong |= !rc && other_holds; /* I1 */
    if (!rc)
        rc = unlock(&mine);
    if (!struck)
        CHECK(!rc && acted);
    wrong |= rc && rc != -PAWL_ELOST;
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

static bool writer_before_writer(void)
{
    return queue_of_three(PAWL_EXCLUSIVE, PAWL_EXCLUSIVE);
}

static bool reader_before_writer(void)
{
    return !(d->features & DESIGN_SHARED) || queue_of_three(PAWL_SHARED, PAWL_EXCLUSIVE);
}

static bool writer_before_reader(void)
{
    return !(d->features & DESIGN_SHARED) || queue_of_three(PAWL_EXCLUSIVE, PAWL_SHARED);
}

/* A session that waits is lost, and the holder, or the next client, recovers from it. */
static int be_lost(unsigned session)
{
    if (session != OTHER)
        return FAR_WAITS;
    if (lease_state(*far.sessions[OTHER].lease) == SLOT_LIVE)
        lose(OTHER);
    return -FAB_EFENCED;
}

static bool recover_from_waiter(enum pawl_mode first, enum pawl_mode second)
{
    begin();
    int rc = lock(FIRST, 0, 10, first, soon(), &mine);
    CHECK_EQ(rc, 0);
    far.waits = be_lost;
    far.fence_rc = 0;
    wrong |= !lock(OTHER, 5, 300, second, soon(), &others); /* I1 */
    far.waits = NULL;
    far.before = strike;
    lose(OTHER);
    recover(FIRST, OTHER);
    rc = unlock(&mine);
    if (!rc && !fenced && !stopped && !(rc = lock(FIRST, 0, 300, PAWL_EXCLUSIVE, soon(), &mine)))
        rc = unlock(&mine);
    if (!struck)
        CHECK_EQ(rc, 0);
    wrong |= rc && rc != -PAWL_ELOST;
    far.before = NULL;
    recover_surely(OTHER);
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

static bool recover_from_waiting_writer(void)
{
    return recover_from_waiter(PAWL_EXCLUSIVE, PAWL_EXCLUSIVE);
}

static bool recover_from_waiting_reader(void)
{
    return !(d->features & DESIGN_SHARED) || recover_from_waiter(PAWL_EXCLUSIVE, PAWL_SHARED);
}

static bool recover_beside_reader(void)
{
    return !(d->features & DESIGN_SHARED) || recover_from_waiter(PAWL_SHARED, PAWL_EXCLUSIVE);
}

/* Under an exclusive hold of the whole lock, tokens are raised: by little, or beyond what one word of the lock counts. The next
 * holder has a higher one, if the holder was told that they are raised (I2). */
static bool raise_by(uint64_t by)
{
    struct hold h;
    if (!d->raise)
        return true;
    begin();
    far.before = strike;
    int rc = lock(FIRST, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, soon(), &h), raised = rc;
    uint64_t floor = 0;
    if (!rc) {
        floor = h.token + by;
        raised = d->raise(&far.seats[FIRST], &h, floor);
        wrong |= !raised && h.token <= floor;
        rc = unlock(&h);
    }
    if (!struck)
        CHECK(!rc && !raised);
    wrong |= rc && rc != -PAWL_ELOST;
    bool lost = rc == -PAWL_ELOST || fenced || stopped;
    if (!lost && !lock(OTHER, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE, soon(), &others)) {
        other_holds = true;
        wrong |= !raised && others.token <= floor;
    }
    return end(lost);
}

static bool raise_little(void)
{
    return raise_by(5);
}

static bool raise_much(void)
{
    return raise_by(UINT64_C(1) << 44);
}

/* ---- a lock that is looked at ---- */

/* Another session has the lock, and perhaps the last one waits for it, or the holder is lost: a client that looks sees who has it.
 */
static bool looked_at(enum pawl_mode mode, bool is_lost)
{
    struct lock_view view;
    if (!d->peek)
        return true;
    begin();
    CHECK_EQ(lock(OTHER, 0, 10, mode, DEADLINE_NEVER, &others), 0);
    other_holds = !is_lost;
    if (is_lost)
        lose(OTHER);
    far.fence_rc = 0;
    far.before = strike;
    int rc = d->peek(&far.seats[FIRST], 0, &view);
    if (!rc && !is_lost)
        wrong |= view.mode != mode || view.token < others.token;
    if (!struck)
        CHECK_EQ(rc, 0);
    wrong |= rc && rc != -FAB_EUNKNOWN && rc != -FAB_EFENCED && rc != -PAWL_ELOST && rc != -EAGAIN;
    far.before = NULL;
    if (is_lost)
        recover_surely(OTHER);
    return end(fenced || stopped);
}

static bool writer_looked_at(void)
{
    return looked_at(PAWL_EXCLUSIVE, false);
}

static bool reader_looked_at(void)
{
    return !(d->features & DESIGN_SHARED) || looked_at(PAWL_SHARED, false);
}

static bool lost_writer_looked_at(void)
{
    return looked_at(PAWL_EXCLUSIVE, true);
}

static bool lost_reader_looked_at(void)
{
    return !(d->features & DESIGN_SHARED) || looked_at(PAWL_SHARED, true);
}

/* ---- an open lock of `word`: its readers are not counted ---- */

static bool is_word(void)
{
    return d->features & DESIGN_SEMAPHORE && !far.space.range_units;
}

/* The first session's readers open the lock; then it wants a place of a semaphore, an exclusive hold, or looks. */
static bool opened(void)
{
    struct hold h[2], place;
    struct lock_view view;
    begin();
    if (!is_word())
        return end(false);
    far.space.knobs = *tuned(d, "open-every", 1);
    CHECK_EQ(lock(OTHER, 0, 0, PAWL_SHARED, DEADLINE_NEVER, &others), 0);
    other_holds = true;
    far.before = strike;
    int rc = lock(FIRST, 0, 0, PAWL_SHARED, soon(), &h[0]);
    rc = rc ? rc : lock(FIRST, 0, 0, PAWL_SHARED, soon(), &h[1]);
    if (!rc) {
        d->peek(&far.seats[FIRST], 0, &view);
        limit = 2;
        int full = lock(FIRST, 0, 0, PAWL_SHARED, DEADLINE_TRY, &place);
        limit = 0;
        wrong |= !full; /* I25 */
        rc = full == -PAWL_ELOST ? full : 0;
    }
    if (!rc)
        rc = change(d->convert(&far.seats[FIRST], &h[0], PAWL_EXCLUSIVE, far.now_ns + LEASE_NS));
    wrong |= !rc && h[0].mode == PAWL_EXCLUSIVE; /* I1 */
    for (unsigned i = 0; i < countof(h) && !rc; i++)
        rc = unlock(&h[i]);
    wrong |= rc && rc != -PAWL_ELOST;
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

/* The tokens of the word are used up: the next ones begin with a higher first part (I2). */
static bool last_token(void)
{
    struct hold h;
    begin();
    if (!is_word())
        return end(false);
    *far_word(space_lock_addr(&far.space, 0)) = word_make(WORD_FREE, 0, WORD_TOKEN_MAX);
    far.before = strike;
    int rc = lock(FIRST, 0, 0, PAWL_EXCLUSIVE, soon(), &h);
    wrong |= !rc && h.token <= WORD_TOKEN_MAX;
    rc = rc ? rc : unlock(&h);
    if (!struck)
        CHECK_EQ(rc, 0);
    wrong |= rc && rc != -PAWL_ELOST;
    return end(rc == -PAWL_ELOST || fenced || stopped);
}

static const struct story {
    const char *name;
    bool (*play)(void);
} stories[] = {
    {"a holder that changes", hold_and_change},
    {"a writer keeps the lock", give_up_writer},
    {"a reader keeps the lock", give_up_reader},
    {"recovery from a writer", recover_from_writer},
    {"recovery from a reader", recover_from_reader},
    {"a writer waits for a writer", waited_for_by_writer},
    {"a reader waits for a writer", waited_for_by_reader},
    {"a writer waits for a reader", reader_waited_for},
    {"a writer waits before a writer", writer_before_writer},
    {"a reader waits before a writer", reader_before_writer},
    {"a writer waits before a reader", writer_before_reader},
    {"recovery from a writer that waits", recover_from_waiting_writer},
    {"recovery from a reader that waits", recover_from_waiting_reader},
    {"recovery from a writer that waits for a reader", recover_beside_reader},
    {"tokens are raised a little", raise_little},
    {"tokens are raised much", raise_much},
    {"a look at a writer", writer_looked_at},
    {"a look at a reader", reader_looked_at},
    {"a look at a lost writer", lost_writer_looked_at},
    {"a look at a lost reader", lost_reader_looked_at},
    {"an open lock", opened},
    {"the last token of a word", last_token},
};

/* The story that fails; null: there is none. At first nothing fails. */
static const struct story *find_failure(const char *name, uint32_t node, uint32_t caps, unsigned *runs)
{
    *runs = 0;
    far_node = node;
    far_caps = caps;
    d = design_find(name);
    CHECK(d);
    for (way = again = 0; way < WAYS; again = (again + 1) % AGAIN_MAX, way += !again)
        for (size_t i = 0; i < countof(stories); i++)
            for (struck = 0, verbs = UINT32_MAX; struck <= min_u64(verbs, STRUCK_MAX); struck++, ++*runs)
                if (!stories[i].play())
                    return &stories[i];
    return NULL;
}

/* On the node of the lock memory, or elsewhere: there alock has nothing but verbs, and shiftlock reads its notes by verbs. With all
 * that a fabric can do, and with neither order nor masked verbs. */
static const struct {
    const char *design;
    uint32_t node, caps;
} sound[] = {
    {"word", 0, FAR_CAPS},
    {"word", 0, FAB_ATOMIC128 | FAB_SHARED_CLOCK},
    {"shiftlock", 0, FAR_CAPS},
    {"shiftlock", FAB_NODE_ELSEWHERE, FAR_CAPS},
    {"shiftlock", FAB_NODE_ELSEWHERE, FAB_ATOMIC128 | FAB_SHARED_CLOCK},
    {"shiftlock64", 0, FAR_CAPS},
    {"shiftlock64", FAB_NODE_ELSEWHERE, FAR_CAPS},
    {"shiftlock64", FAB_NODE_ELSEWHERE, FAB_ATOMIC128 | FAB_SHARED_CLOCK},
    {"alock", FAB_NODE_ELSEWHERE, FAR_CAPS},
    {"citron", 0, FAR_CAPS},
    {"citron", 0, FAB_ATOMIC128 | FAB_SHARED_CLOCK},
    {"citron", FAB_NODE_ELSEWHERE, FAR_CAPS & ~FAB_SHARED_CLOCK},
};

int main(void)
{
    static const char *const ways[] = {"lost", "done, and its answer lost", "fenced", "late"};
    const struct story *failed;
    unsigned runs;
    for (size_t i = 0; i < countof(sound); i++) {
        if ((failed = find_failure(sound[i].design, sound[i].node, sound[i].caps, &runs)))
            CHECK_FAIL("%s: %s: batch %u of %u is %s, and one lost %u later: both hold the lock, or no session can have it",
                       sound[i].design, failed->name, struck, verbs, ways[way], again);
        printf("%s%s%s: %u stories in which one or two batches fail\n", sound[i].design, sound[i].node ? " elsewhere" : "",
               sound[i].caps == FAR_CAPS ? "" : ", with a lesser fabric", runs);
        fflush(stdout);
    }
    CHECK((failed = find_failure("busted-unknown-is-success", 0, FAR_CAPS, &runs)));
    printf("busted-unknown-is-success: %s: batch %u is %s: both hold the lock, or no session can have it\n", failed->name, struck,
           ways[way]);
    return 0;
}
