/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of `citron` that campaigns reach once in many thousand seeds, one by one, on a fabric of plain memory: nodes that two holds
 * have together, holds that change and wait for each other, a parent that is polled, crowds, and connections that break in a
 * release, in a change of the layout and in a census. */
#include "designs/citron/steps.h"
#include "tests/far_site.h"

#define UNITS 4096 /* a tree of height 3 */
#define LEAF_END TREE_LEAF_UNITS
#define NODE_END (4 * TREE_LEAF_UNITS) /* of the first node right above leaves */

static void begin(const char *what)
{
    printf("%s\n", what);
    far_open(design_find("citron"), PAWL_KEYS_DENSE, 2, UNITS);
}

/* ---- holds and jobs ---- */

static struct hold open_hold(unsigned who, uint64_t index, uint64_t start, uint64_t end, enum pawl_mode mode)
{
    struct hold h;
    CHECK_EQ(hold_open(&far.seats[who], index, &h), 0);
    h.start = start;
    h.end = end;
    h.mode = mode;
    return h;
}

static struct hold locked(unsigned who, uint64_t index, uint64_t start, uint64_t end, enum pawl_mode mode)
{
    struct hold h = open_hold(who, index, start, end, mode);
    CHECK_EQ(citron_acquire(&far.seats[who], &h, DEADLINE_NEVER), 0);
    return h;
}

static void unlock(unsigned who, const struct hold *h)
{
    CHECK_EQ(citron_release(&far.seats[who], h), 0);
}

/* A job for that hold, with the claims of its plan. */
static void plan(struct citron_job *j, unsigned who, struct hold *h, uint64_t deadline)
{
    job_start(j, &far.seats[who], h, deadline);
    CHECK_EQ(job_configure(j), 0);
    plan_range(j);
}

static void resume(struct citron_job *j, unsigned who, struct hold *h)
{
    CHECK_EQ(job_resume(j, &far.seats[who], h, DEADLINE_NEVER), 0);
    CHECK(j->claims.n);
}

static struct hold split(unsigned who, struct hold *h, uint64_t at)
{
    struct hold right = open_hold(who, h->index, at, h->end, h->mode);
    right.token = h->token;
    CHECK_EQ(citron_split(&far.seats[who], h, at, &right), 0);
    return right;
}

static struct citron_lock *lock_memory(void)
{
    return far_at(space_lock_addr(&far.space, 0));
}

static uint64_t *leaf_word(uint64_t number)
{
    struct hold h = {.index = 0};
    struct citron_job j;
    job_start(&j, &far.seats[0], &h, DEADLINE_TRY);
    return far_word(job_node(&j, (struct tree_node){.number = number}));
}

/* ---- other holds of the same session ---- */

static int own_way(unsigned who, struct hold *h, const struct citron_claim *c)
{
    struct citron_job j;
    job_start(&j, &far.seats[who], h, DEADLINE_TRY);
    return citron_own_way(&j, c);
}

static void test_own_way(void)
{
    begin("only other holds of the same session are in its own way, and the spillover is in the way of no node");
    const struct citron_claim first_leaf = {.state = CLAIM_WAIT, .ticket = 63 << 6}, spill = {.spill = true};
    struct hold held = locked(0, 0, 0, 10, PAWL_EXCLUSIVE), wanted = open_hold(0, 0, 5, 15, PAWL_EXCLUSIVE);
    struct hold foreign = open_hold(1, 0, 5, 15, PAWL_EXCLUSIVE);
    CHECK_EQ(own_way(0, &wanted, &first_leaf), 1);
    CHECK_EQ(own_way(0, &held, &first_leaf), 0);
    CHECK_EQ(own_way(1, &foreign, &first_leaf), 0);
    CHECK_EQ(own_way(0, &wanted, &spill), 0);
    unlock(0, &held);
    held = locked(0, 0, UNITS, UNITS + 10, PAWL_EXCLUSIVE);
    CHECK_EQ(own_way(0, &wanted, &first_leaf), 0);
    unlock(0, &held);
    far_close();
}

static void test_joint(void)
{
    begin("a node belongs to two holds until one of them leaves, whatever else the session has together");
    struct hold left = locked(0, 0, 0, NODE_END, PAWL_EXCLUSIVE), right = split(0, &left, 100);
    struct hold left2 = locked(0, 0, NODE_END, 2 * NODE_END, PAWL_EXCLUSIVE), right2 = split(0, &left2, NODE_END + 100);
    struct citron_job j;
    resume(&j, 0, &left);
    CHECK(j.claims.at[0].joint && citron_is_joint(&j, 0));
    unlock(0, &right);
    resume(&j, 0, &left);
    CHECK(!citron_is_joint(&j, 0));
    unlock(0, &left2);
    unlock(0, &right2);
    unlock(0, &left);
    left = locked(1, 0, 0, 2 * NODE_END, PAWL_EXCLUSIVE);
    unlock(1, &left);
    far_close();
}

static void test_reserve_joint(void)
{
    begin("of two holds that grow into the same part of their node the second one is refused");
    struct hold left = locked(0, 0, 0, NODE_END, PAWL_EXCLUSIVE), right = split(0, &left, 100);
    CHECK_EQ(citron_reshape(&far.seats[0], &right, 200, NODE_END, DEADLINE_NEVER), 0);
    struct citron_job j;
    resume(&j, 0, &left);
    plan_reshape(&j, 0, 180);
    CHECK_EQ(citron_reserve_joint(&j), 0);
    CHECK_EQ(far.ranges[0][left.record].start, 0);
    CHECK_EQ(far.ranges[0][left.record].end, 180);
    resume(&j, 0, &right);
    plan_reshape(&j, 150, NODE_END);
    CHECK_EQ(citron_reserve_joint(&j), -EDEADLK);
    far_close();
}

/* ---- holds that change ---- */

static void want_upgrade(struct citron_job *j, unsigned who, struct hold *h)
{
    resume(j, who, h);
    j->claims.base = j->claims.n;
    plan_exclusive(j);
    plan_upgrade(j);
    CHECK_EQ(job_say_range(j, j->claims.base, CLAIMS_MAX, CLAIM_WAIT), 0);
    CHECK_EQ(citron_mark(j), 0);
}

static void test_mark(void)
{
    begin("a hold that waits for more is marked and counted, once, until it no longer waits");
    struct hold h = locked(0, 0, 0, 10, PAWL_SHARED);
    struct citron_job j;
    want_upgrade(&j, 0, &h);
    CHECK(j.claims.marked);
    CHECK_EQ(lock_memory()->changers, 1);
    CHECK_EQ(citron_unmark(&j), 0);
    CHECK(!j.claims.marked);
    CHECK_EQ(lock_memory()->changers, 0);
    unlock(0, &h);
    far_close();
}

/* The records are in the other order, and do not count. */
static void test_rivals(void)
{
    begin("of two holds that change and wait for each other that of the higher slot gives up");
    const unsigned low = far.sessions[0].slot < far.sessions[1].slot ? 0 : 1, high = 1 - low;
    struct hold other = locked(low, 1, 0, 10, PAWL_EXCLUSIVE);
    struct hold first = locked(low, 0, 0, 10, PAWL_SHARED), second = locked(high, 0, 0, 10, PAWL_SHARED);
    struct citron_job j, k;
    CHECK(first.record > second.record);
    want_upgrade(&j, low, &first);
    want_upgrade(&k, high, &second);
    CHECK_EQ(citron_give_way(&j), 0);
    CHECK_EQ(citron_give_way(&k), -EDEADLK);
    unlock(low, &other);
    far_close();
}

static void test_yield(void)
{
    begin("a waiter that has given way comes again when no hold changes any more");
    struct hold h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    plan(&j, 0, &h, DEADLINE_NEVER);
    CHECK_EQ(citron_yield(&j), JOB_AGAIN);
    far_close();
}

/* ---- looking ---- */

static void test_stale_turn(void)
{
    begin("a plan begins without a turn that an earlier plan has asked for");
    struct hold h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    plan(&j, 0, &h, DEADLINE_NEVER);
    j.look.pending = 0;
    CHECK_EQ(job_acquire(&j), 0);
    CHECK_EQ(*leaf_word(0), 0x3ff);
    far_close();
}

static void test_shorter_wait(void)
{
    begin("a look from before T_wait became shorter is followed up within the shorter time");
    struct hold h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    uint64_t head[CITRON_HEAD_WORDS] = {0};
    plan(&j, 0, &h, DEADLINE_NEVER);
    struct citron_config c = j.plan.config;
    c.wait = 10;
    plan_config(&j, config_word(c));
    j.look.limit_ns = config_wait_ns(c);
    c.wait = 5;
    head[HEAD_CONFIG] = config_word(c);
    CHECK(look_same_config(&j, head));
    CHECK_EQ(j.look.limit_ns, 5 * CONFIG_WAIT_NS);
    CHECK_EQ(j.plan.config.wait, 10); /* a claim waits the longer of both */
    far_close();
}

static struct hold above; /* of session 1: the parent; released when session 0 has polled it for the third time */
static unsigned polls;

static int release_above(unsigned session, const struct fab_op *ops, unsigned n)
{
    if (!session && n == 1 && ops[0].verb == FAB_READ && ++polls == 3)
        unlock(1, &above);
    return 0;
}

static int look_below(uint64_t start, uint64_t end, struct citron_job *j)
{
    struct hold h = open_hold(0, 0, start, end, PAWL_EXCLUSIVE);
    struct citron_leaves leaves = {0};
    polls = 0;
    above = locked(1, 0, 0, NODE_END, PAWL_EXCLUSIVE);
    plan(j, 0, &h, DEADLINE_NEVER);
    j->wait.passed = 1; /* so that it looks before it claims */
    far.before = release_above;
    int rc = look_up(j, 0, claim_group_end(j, 0), &leaves);
    far.before = NULL;
    CHECK(polls >= 3);
    CHECK(!citron_holds(&far.seats[1], &above));
    flight_end(j);
    return rc;
}

static void test_poll_parent(void)
{
    begin("the poll that finds the parent free is the look, if the claims have no other parent");
    struct citron_job j;
    CHECK_EQ(look_below(0, 10, &j), 0);
    CHECK(j.look.peeked);
    CHECK_EQ(look_below(NODE_END - 5, NODE_END + 5, &j), JOB_WAITED);
    CHECK(!j.look.peeked);
    far_close();
}

/* ---- crowds ---- */

#define CROWD_BELOW_WORD(count) ((uint64_t)(count) << NODE_DMAX)

static bool is_told(void)
{
    return config_of(lock_memory()->config).crowded;
}

static void test_crowd_found(void)
{
    begin("a crowd in the first of the words that a claim adds to is told");
    struct hold h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    struct citron_batch b;
    struct crowd words;
    plan(&j, 0, &h, DEADLINE_NEVER);
    crowd_list(&j, 0, 1, &words);
    batch_start(&b);
    unsigned op = batch_mfaa(&b, words.words[0].addr, CROWD_BELOW_WORD(1), NODE_TOPS);
    b.ops[op].old = CROWD_BELOW_WORD(j.policy.crowd - 1);
    CHECK_EQ(crowd_found(&j, &b, 0, 1), 0);
    CHECK(!is_told());
    b.ops[op].old = CROWD_BELOW_WORD(j.policy.crowd);
    CHECK_EQ(crowd_found(&j, &b, 0, 1), 0);
    CHECK(is_told());
    far_close();
}

static unsigned counted; /* batches that count a claim */
static bool told_before; /* the second of them */

static int break_first_count(unsigned session, const struct fab_op *ops, unsigned n)
{
    if (ops[0].verb != FAB_FAA)
        return 0;
    if (++counted == 2)
        told_before = is_told();
    return counted == 1 ? -FAB_EUNKNOWN : 0;
}

static void test_crowd_unknown(void)
{
    begin("a crowd is told of before a count of unknown outcome is repeated");
    struct hold h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    struct citron_batch b;
    struct crowd words;
    plan(&j, 0, &h, DEADLINE_NEVER);
    crowd_list(&j, 0, 1, &words);
    *far_word(words.words[0].addr) = CROWD_BELOW_WORD(j.policy.crowd);
    batch_start(&b);
    batch_notify(&j, &b, &j.claims.at[0], true);
    counted = 0;
    far.before = break_first_count;
    CHECK_EQ(crowd_count_surely(&j, 0, &j.claims.at[0], &b), 0);
    CHECK_EQ(counted, 2);
    CHECK(told_before);
    far_close();
}

/* ---- connections that break ---- */

static fab_addr spill_desc; /* the word that says how far the claim on the spillover is */
static unsigned releases;   /* batches that pass its turn on */
static bool says_flux;      /* the last of them says so first (I5) */

static int break_first_release(unsigned session, const struct fab_op *ops, unsigned n)
{
    bool passes = false;
    for (unsigned i = 0; i < n; i++)
        passes |= ops[i].verb == FAB_CAS && ops[i].addr == space_lock_addr(&far.space, 0) + offsetof(struct citron_lock, spill);
    if (!passes)
        return 0;
    says_flux = false;
    for (unsigned i = 0; i < n; i++)
        if (ops[i].verb == FAB_WRITE && ops[i].addr <= spill_desc && spill_desc < ops[i].addr + ops[i].len)
            says_flux = ((const uint64_t *)ops[i].buf)[(spill_desc - ops[i].addr) / 8] >> CLAIM_STATE == CLAIM_FLUX;
    return ++releases == 1 ? -FAB_EUNKNOWN : 0;
}

/* The claim on the tree is given back before (scale_before_release), and that on the spillover is not the first one. */
static void test_release_anew(void)
{
    begin("a release of which no step was taken begins anew, and says first what it is about to do");
    struct hold h = locked(0, 0, UNITS - 10, UNITS + 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    resume(&j, 0, &h);
    CHECK(j.claims.n == 2 && j.claims.at[1].spill);
    spill_desc = job_desc(&j, 1);
    releases = 0;
    far.before = break_first_release;
    unlock(0, &h);
    far.before = NULL;
    CHECK_EQ(releases, 2);
    CHECK(says_flux);
    h = locked(1, 0, UNITS - 10, UNITS + 10, PAWL_EXCLUSIVE);
    unlock(1, &h);
    far_close();
}

static int fenced(unsigned session, const struct fab_op *ops, unsigned n)
{
    return session ? 0 : -FAB_EFENCED;
}

static void test_errors_of_census(void)
{
    begin("a session that is shut out learns it from a census, too");
    struct hold held = locked(1, 0, 0, 10, PAWL_EXCLUSIVE), h = open_hold(0, 0, 0, 10, PAWL_EXCLUSIVE);
    struct citron_job j;
    struct lock_view view;
    plan(&j, 0, &h, DEADLINE_TRY);
    CHECK_EQ(wait_leaf(&j, 0, 0x3ff), JOB_WAITED); /* the holder lives */
    j.wait.tried = false;
    far.before = fenced;
    CHECK_EQ(wait_leaf(&j, 0, 0x3ff), -PAWL_ELOST);
    CHECK_EQ(citron_peek(&far.seats[0], 0, &view), -FAB_EFENCED);
    far.before = NULL;
    CHECK_EQ(citron_peek(&far.seats[0], 0, &view), 0);
    CHECK_EQ(view.mode, PAWL_EXCLUSIVE);
    unlock(1, &held);
    far_close();
}

static bool growing(void)
{
    struct citron_config c = config_of(lock_memory()->config);
    return c.height_next > c.height;
}

static unsigned changes; /* of the configuration, while the tree is to grow */

/* The census of a tree that is to grow never ends in time; when the change is taken back, the configuration has just changed. */
static int grow_in_vain(unsigned session, const struct fab_op *ops, unsigned n)
{
    if (!growing() || ops[0].addr == space_lock_addr(&far.space, 0)) {
        if (growing() && ops[0].verb == FAB_CAS && !changes++)
            lock_memory()->config |= CONFIG_CROWDED;
        return 0;
    }
    return -EAGAIN;
}

static void test_stay(void)
{
    begin("a tree that could not grow in time stays as it is, if the configuration changes meanwhile, too");
    struct hold h = locked(0, 0, 0, RANGE_UNITS_MAX, PAWL_EXCLUSIVE);
    const unsigned height = config_of(lock_memory()->config).height;
    changes = 0;
    far.before = grow_in_vain;
    CHECK_EQ(citron_rescale(&far.seats[0], &h, 4 * UNITS, 1), -ETIMEDOUT);
    far.before = NULL;
    CHECK_EQ(changes, 2);
    CHECK(!growing());
    CHECK_EQ(config_of(lock_memory()->config).height, height);
    unlock(0, &h);
    far_close();
}

int main(void)
{
    test_own_way();
    test_joint();
    test_reserve_joint();
    test_mark();
    test_rivals();
    test_yield();
    test_stale_turn();
    test_shorter_wait();
    test_poll_parent();
    test_crowd_found();
    test_crowd_unknown();
    test_release_anew();
    test_errors_of_census();
    test_stay();
    return 0;
}
