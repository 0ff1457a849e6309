/* SPDX-License-Identifier: Apache-2.0 */
/* alock's queue when connections break: a waiter gives up, the outcome of one of its verbs is unknown, with and without its effect,
 * and another session changes the word between two of its steps. Whatever happens, a client that said that it is out of the queue
 * is out: no client hands the lock to it, the lock is granted at once (I9), and when all sessions have closed it is free (I11). */
#include "cluster/layout.h"
#include "cluster/session.h"
#include "designs/alock/turn.h"
#include "fabric/lower.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>

/* The queue in this order; each on a node of its own, and the lock on node 0: all of the remote cohort. */
enum { HOLDER, NEXT, LEAVER, NEWCOMER, SESSIONS };
#define NODES (SESSIONS + 1)
#define RECORDS 2
#define HOME CACHE_LINE /* 0 is no valid address */
#define VERBS_MAX 24    /* more than the leaver takes from coming to leaving, unless it is told to look again */
#define BETWEEN_MAX 6   /* verbs between what another does and what breaks: from a look to the second step after it */
#define ATTEMPTS_MAX 10 /* until a client that looks for the lock's place again gets it or gives up */
#define WAITS_MAX 1000  /* in one story: a wait that does not end is a failure */
#define NOW_NS NS_PER_S /* a deadline that comes before the next look */
#define LONG_NS (3600 * NS_PER_S)

/* ---- a fabric of plain memory that can be told to break ---- */

static struct site {
    uint64_t *memory[NODES];
    struct space space;
    struct session sessions[SESSIONS];
    uint64_t shadows[SESSIONS][RECORDS];
    struct sighting seen[SESSIONS][SESSIONS];
    struct fab_ep eps[SESSIONS];
    struct seat seats[SESSIONS];
    struct hold holds[SESSIONS];
    struct turn next; /* of NEXT, which waits and then has the baton */
} site;

/* When things happen to the leaver, counted in its verbs, or in its attempts to drop the queue. 0: never. */
static struct plan {
    unsigned verbs, drops;
    unsigned meddle_verb, meddle_drop; /* before this one another session changes the word */
    unsigned break_verb, break_drop;   /* its outcome is unknown, */
    unsigned again_verb;               /* and this one's, which has no effect */
    bool effect;                       /* of the first of them */
    void (*meddle)(void);
    unsigned waits;
} plan;

static void *at(fab_addr addr)
{
    return (char *)site.memory[FAB_NODE(addr)] + FAB_OFFSET(addr);
}

static uint64_t cohort_word(void)
{
    const struct alock *lock = at(space_lock_addr(&site.space, 0));
    return lock->cohort[COHORT_REMOTE];
}

static void execute(struct fab_op *op)
{
    void *memory = at(op->addr);
    u128 word = 0;
    if (op->verb == FAB_READ) {
        memcpy(op->buf, memory, op->len);
    } else if (op->verb == FAB_WRITE) {
        memcpy(memory, op->buf, op->len);
    } else {
        memcpy(&word, memory, op->width);
        op->old = word;
        word = fab_verb_result(op, word);
        memcpy(memory, &word, op->width);
    }
}

static void meddle(void)
{
    void (*fn)(void) = plan.meddle;
    plan.meddle = NULL; /* once, and what it does is not counted */
    if (fn)
        fn();
}

static bool drops_queue(const struct fab_op *op)
{
    fab_addr word = space_lock_addr(&site.space, 0) + offsetof(struct alock, cohort) + COHORT_REMOTE * sizeof(uint64_t);
    return op->verb == FAB_CAS && op->addr == word && alock_era((uint64_t)op->swap) != alock_era((uint64_t)op->compare);
}

static int batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    bool breaks = false, again = false;
    if (ep == &site.eps[LEAVER]) {
        bool drop = drops_queue(ops);
        plan.verbs++;
        plan.drops += drop;
        if (plan.verbs == plan.meddle_verb || (drop && plan.drops == plan.meddle_drop))
            meddle();
        breaks = plan.verbs == plan.break_verb || (drop && plan.drops == plan.break_drop);
        again = plan.verbs == plan.again_verb;
    }
    if ((!breaks && !again) || (breaks && plan.effect))
        for (unsigned i = 0; i < n; i++)
            execute(&ops[i]);
    return breaks || again ? -FAB_EUNKNOWN : 0;
}

/* No other client runs meanwhile: a wait ends with its deadline. */
static int wait_over(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    CHECK(++plan.waits < WAITS_MAX);
    return -ETIMEDOUT;
}

static int wake_none(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    return 0;
}

static uint64_t local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    uint64_t *word = at(addr), old = *word;
    CHECK_EQ(FAB_NODE(addr), ep->node);
    CHECK(verb == FAB_READ || verb == FAB_WRITE); /* the own descriptor; the lock is elsewhere */
    if (verb == FAB_WRITE)
        *word = value;
    return old;
}

static const struct fab_ops ops = {.batch = batch, .wait = wait_over, .wake = wake_none, .local = local};

/* ---- a space, and its sessions ---- */

static void open_session(unsigned who)
{
    const struct session_params p = {.lease_ns = LONG_NS, .proof = who + 1, .label = "test", .home = FAB_ADDR(who + 1, HOME)};
    site.eps[who] = (struct fab_ep){
        .ops = &ops, .world = &world_real, .caps = FAB_ATOMIC128 | FAB_ORDERED | FAB_SHARED_CLOCK, .id = who, .node = who + 1};
    site.sessions[who] = (struct session){.shadow = site.shadows[who], .seen = site.seen[who]};
    site.seats[who] = (struct seat){.space = &site.space, .me = &site.sessions[who], .ep = &site.eps[who], .world = &world_real};
    CHECK_EQ(session_open(&site.seats[who], &p), 0);
}

static struct hold *open_hold(unsigned who)
{
    struct hold *h = &site.holds[who];
    CHECK_EQ(hold_open(&site.seats[who], 0, h), 0);
    h->mode = PAWL_EXCLUSIVE;
    return h;
}

/* A client that is told to look again does so with another hold, as callers do. */
static int lock(unsigned who, uint64_t deadline)
{
    int rc = DESIGN_LOOK_AGAIN;
    for (unsigned i = 0; rc == DESIGN_LOOK_AGAIN && i < ATTEMPTS_MAX; i++) {
        struct hold *h = open_hold(who);
        rc = design_alock.acquire(&site.seats[who], h, deadline);
        if (rc)
            hold_close(&site.seats[who], h);
    }
    return rc;
}

static void unlock(unsigned who)
{
    CHECK_EQ(design_alock.release(&site.seats[who], &site.holds[who]), 0);
}

static void unlock_holder(void)
{
    unlock(HOLDER);
}

/* Queues up, and goes no further. */
static void join_next(void)
{
    const struct hold *h = open_hold(NEXT);
    CHECK_EQ(hold_publish(&site.seats[NEXT], h, RECORD_TRY_X), 0);
    site.next = alock_turn_of(&site.seats[NEXT], h);
    CHECK_EQ(alock_join(&site.next), 0);
}

static void leave_next(void)
{
    CHECK_EQ(alock_drop_queue(&site.next), 0);
    hold_close(&site.seats[NEXT], &site.holds[NEXT]);
}

/* Its turn has come, or the queue was dropped. */
static void await_next(void)
{
    int rc = alock_await_baton(&site.next, DEADLINE_NEVER);
    CHECK(rc == 1 || rc == -ESTALE);
    if (rc < 0)
        hold_close(&site.seats[NEXT], &site.holds[NEXT]);
}

static void end_next(void)
{
    if (!hold_is(&site.seats[NEXT], &site.holds[NEXT], RECORD_TRY_X))
        return;
    CHECK_EQ(alock_give_baton(&site.next, 0), 0);
    hold_close(&site.seats[NEXT], &site.holds[NEXT]);
}

static void begin(const struct plan *p)
{
    const struct layout_params params = {.design = &design_alock,
                                         .keys = PAWL_KEYS_DENSE,
                                         .capacity = 1,
                                         .sessions = SESSIONS,
                                         .holds = RECORDS,
                                         .lease_ns = LONG_NS,
                                         .check_ns = LONG_NS,
                                         .birth = 7};
    struct layout_header header;
    CHECK_EQ(layout_make(&params, &header), 0);
    layout_space(&header, 0, &site.space);
    for (unsigned i = 0; i < NODES; i++) {
        site.memory[i] = calloc(1, i ? HOME + RECORDS * sizeof(struct alock_desc) : header.total_bytes);
        CHECK(site.memory[i]);
    }
    plan = (struct plan){0};
    for (unsigned i = 0; i < SESSIONS; i++)
        open_session(i);
    CHECK_EQ(lock(HOLDER, DEADLINE_TRY), 0);
    join_next();
    plan = *p;
}

/* The word has changed for the last time: nothing of the leaver may be left. */
static void end(const struct plan *p)
{
    plan = (struct plan){0};
    int rc = lock(NEWCOMER, DEADLINE_TRY);
    if (rc)
        CHECK_FAIL("%d: the word says %#" PRIx64 ", the leaver is %#" PRIx64
                   "; changed before verb %u or drop %u, broke at verb %u "
                   "and %u or drop %u, effect %d",
                   rc, cohort_word(), alock_who(site.sessions[LEAVER].slot, site.holds[LEAVER].record), p->meddle_verb,
                   p->meddle_drop, p->break_verb, p->again_verb, p->break_drop, p->effect);
    unlock(NEWCOMER);
    for (unsigned i = 0; i < SESSIONS; i++)
        CHECK_EQ(session_close(&site.seats[i]), 0);
    CHECK(!alock_holder(cohort_word()) && !alock_tail(cohort_word()));
    for (unsigned i = 0; i < NODES; i++)
        free(site.memory[i]);
}

/* The leaver comes, waits, and gives up. It may have been granted the lock if it had to queue up again. */
static void come_and_leave(void)
{
    int rc = lock(LEAVER, world_now(&world_real) + NOW_NS);
    CHECK(rc == 0 || rc == -ETIMEDOUT);
    if (!rc)
        unlock(LEAVER);
    meddle(); /* unless it has been done */
}

/* ---- stories ---- */

/* The leaver is behind one that waits; meanwhile the holder hands that one the baton. */
static void behind_a_waiter(struct plan p)
{
    p.meddle = unlock_holder;
    begin(&p);
    come_and_leave();
    await_next();
    end_next();
    end(&p);
}

/* The leaver is behind the first of a new era, for which the holder has put the baton down; meanwhile that one takes it. */
static void behind_a_first_one(struct plan p)
{
    begin(&(struct plan){0});
    leave_next();
    join_next();
    CHECK(site.next.first);
    unlock(HOLDER);
    plan = p;
    plan.meddle = await_next;
    come_and_leave();
    end_next();
    end(&p);
}

/* The word changes before the leaver's first attempt to drop the queue, which fails, and the outcome of the second is unknown: the
 * word is what the first attempt found, and that says nothing about the second. */
static void test_second_drop_unknown(void)
{
    printf("an attempt to drop the queue fails, and the outcome of the next one is unknown\n");
    for (unsigned effect = 0; effect < 2; effect++) {
        const struct plan p = {.meddle_drop = 1, .break_drop = 2, .effect = effect};
        behind_a_waiter(p);
        behind_a_first_one(p);
    }
}

static void test_unknown_everywhere(void)
{
    unsigned stories = 0;
    for (unsigned change = 1; change < VERBS_MAX; change++)
        for (unsigned broken = 1; broken < change + BETWEEN_MAX; broken++)
            for (unsigned again = 0; again < BETWEEN_MAX; again++)
                for (unsigned effect = 0; effect < 2; effect++, stories += 2) {
                    const struct plan p = {
                        .meddle_verb = change, .break_verb = broken, .again_verb = again ? broken + again : 0, .effect = effect};
                    behind_a_waiter(p);
                    behind_a_first_one(p);
                }
    printf("%u stories of a change between two verbs, and one or two outcomes that are unknown\n", stories);
}

/* A session that was stopped compares the word with the one that it saw: the same word does not come back. */
static void test_victims(void)
{
    printf("a session that is the victim twice writes another word each time\n");
    begin(&(struct plan){0});
    const struct alock *lock = at(space_lock_addr(&site.space, 0));
    struct turn t = alock_turn_of(&site.seats[HOLDER], &site.holds[HOLDER]);
    CHECK_EQ(alock_win_peterson(&t, DEADLINE_NEVER), 0);
    uint64_t first = lock->victim;
    CHECK_EQ(alock_win_peterson(&t, DEADLINE_NEVER), 0);
    CHECK_EQ(lock->victim, first + 1);
    t.victims = (UINT32_C(1) << 19) - 1; /* as many as the word has room for: the next is the first again */
    CHECK_EQ(alock_win_peterson(&t, DEADLINE_NEVER), 0);
    CHECK_EQ(lock->victim, first - 1);
    unlock(HOLDER);
    await_next();
    end_next();
    end(&(struct plan){0});
}

int main(void)
{
    test_victims();
    test_second_drop_unknown();
    test_unknown_everywhere();
    return 0;
}
