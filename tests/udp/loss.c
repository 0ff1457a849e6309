/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a session is an event, on every substrate: the descriptor becomes readable, pawl_reap delivers it once, the callback
 * is called, grants say why they ended. The session's lease ends while its process is stopped, an operator breaks it, its space is
 * removed, its lock server or switch is gone. */
#include "cluster/session.h"
#include "tests/udp/places.h"

#include <poll.h>

#define SHORT_NS (1 * NS_PER_S) /* a lease that is to end */

static uint32_t calls;
static int called_why;

static void on_lost(void *ctx, int why)
{
    CHECK(ctx == &calls);
    called_why = why;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELEASE);
}

static bool readable(pawl *p, int patience_ms)
{
    struct pollfd fd = {.fd = pawl_fd(p), .events = POLLIN};
    return poll(&fd, 1, patience_ms) == 1;
}

/* Nothing of a session that lives. */
static void lives(pawl *p, const pawl_grant *g)
{
    pawl_completion c;
    CHECK(!readable(p, 0));
    CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 0);
    CHECK_EQ(pawl_why(p, g), PAWL_WHY_HELD);
    CHECK_OK(pawl_on_lost(p, on_lost, &calls));
    calls = 0;
}

/* The loss of p is told, and once. */
static void is_told(pawl *p, const pawl_grant *g, enum pawl_why why)
{
    pawl_completion c = {0};
    CHECK(readable(p, (int)(LIMIT_NS / NS_PER_MS)));
    CHECK_EQ(pawl_why(p, g), why);
    CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 1);
    CHECK_EQ(c.id, 0);
    CHECK_EQ(c.op, PAWL_OP_LOST);
    CHECK_RC(c.result, -PAWL_ELOST);
    CHECK_EQ(c.why, why);
    WAIT_FOR(__atomic_load_n(&calls, __ATOMIC_ACQUIRE) == 1);
    CHECK_EQ(called_why, why);
    CHECK(!readable(p, 50));
    CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 0);
    CHECK_RC(pawl_on_lost(p, on_lost, &calls), -PAWL_ELOST);
    CHECK(*pawl_explain());
    CHECK_OK(pawl_on_lost(p, NULL, NULL));
    CHECK_RC(pawl_check(p, g), -PAWL_ELOST);
    CHECK_EQ(calls, 1);
}

static pawl_grant lock_1(pawl *p)
{
    pawl_grant g;
    CHECK_OK(pawl_timedlock(p, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    return g;
}

/* ---- the lease ends ---- */

static uint32_t *holds;

static void stopped_main(void *arg)
{
    (void)arg;
    pawl *p = place_open(1, SHORT_NS);
    pawl_grant g = lock_1(p);
    lives(p, &g);
    __atomic_store_n(holds, 1, __ATOMIC_RELEASE);
    is_told(p, &g, PAWL_WHY_LEASE);
    CHECK_OK(pawl_close(p));
}

static void stopped(void)
{
    pawl *q = place_open(1, 0); /* of a rack: on the same host, whose leases it renews */
    holds = shared_memory(sizeof *holds);
    pid_t pid = child_start(stopped_main, NULL);
    WAIT_FOR(__atomic_load_n(holds, __ATOMIC_ACQUIRE));
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    pawl_grant g = lock_1(q);
    CHECK_EQ(kill(pid, SIGCONT), 0);
    child_join(pid);
    CHECK_OK(pawl_unlock(q, &g));
    CHECK_OK(pawl_close(q));
    munmap(holds, sizeof *holds);
}

/* ---- other ends ---- */

static void broken(void)
{
    pawl *p = place_open(0, 0), *q = place_open(0, 0);
    pawl_grant g = lock_1(p), other;
    lives(p, &g);
    place_break(p, q);
    is_told(p, &g, PAWL_WHY_BROKEN);
    other = lock_1(q);
    CHECK_EQ(pawl_why(q, &other), PAWL_WHY_HELD);
    CHECK_OK(pawl_unlock(q, &other));
    CHECK_EQ(pawl_why(q, &other), PAWL_WHY_UNLOCKED);
    CHECK(!readable(q, 0));
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

/* Completions that were there before come first, and the loss is not lost where they fill the room. */
static void behind_completions(void)
{
    pawl *p = place_open(0, 0), *q = place_open(0, 0);
    pawl_completion c;
    uint64_t id;
    const pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(2), .deadline_ns = UINT64_MAX};
    if (!pawl_submit(p, &r, &id)) { /* memory nodes have no asynchronous operations */
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
        CHECK_EQ(c.op, PAWL_OP_LOCK);
        const pawl_request back = {.op = PAWL_OP_UNLOCK, .grant = c.grant, .deadline_ns = UINT64_MAX};
        CHECK_OK(pawl_submit(p, &back, &id));
        WAIT_FOR(readable(p, 0));
        place_break(p, q);
        WAIT_FOR(__atomic_load_n(&p->async.why, __ATOMIC_ACQUIRE));
        CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 1);
        CHECK_EQ(c.op, PAWL_OP_UNLOCK);
        CHECK_OK(c.result);
        CHECK(readable(p, 0));
        CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 1);
        CHECK_EQ(c.op, PAWL_OP_LOST);
        CHECK(!readable(p, 0));
    }
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
}

static void removed(void)
{
    pawl *p = place_open(0, 0);
    pawl_grant g = lock_1(p);
    lives(p, &g);
    space_reset();
    is_told(p, &g, PAWL_WHY_REMOVED);
    CHECK_OK(pawl_close(p));
}

/* The callback takes itself off, and a callback that was taken off is not called. */
static void note_loss(void *ctx, int why)
{
    CHECK_OK(pawl_on_lost(ctx, NULL, NULL));
    __atomic_store_n(&called_why, why, __ATOMIC_RELEASE);
}

static void taken_off(void)
{
    pawl *p = place_open(0, 0), *q = place_open(0, 0), *r = place_open(0, 0);
    called_why = 0;
    calls = 0;
    CHECK_OK(pawl_on_lost(p, note_loss, p));
    CHECK_OK(pawl_on_lost(q, on_lost, &calls));
    CHECK_OK(pawl_on_lost(q, NULL, NULL));
    place_break(q, r);
    CHECK(readable(q, (int)(LIMIT_NS / NS_PER_MS)));
    place_break(p, r);
    WAIT_FOR(__atomic_load_n(&called_why, __ATOMIC_ACQUIRE) == PAWL_WHY_BROKEN);
    CHECK_OK(pawl_close(q)); /* its thread has ended: it would have called */
    CHECK_EQ(calls, 0);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(r));
}

/* Nothing answers any more: the lease at the granter ends long before the membership lease. */
static void granters_gone(void)
{
    pawl *p = place_open(0, 0);
    pawl_grant g = lock_1(p);
    lives(p, &g);
    place_kill();
    is_told(p, &g, place.test->on == ON_RACK ? PAWL_WHY_GRANTER : PAWL_WHY_LEASE);
    pawl_close(p);
}

static void membership_over(void)
{
    pawl *p = place_open(0, 0);
    pawl_grant g = lock_1(p);
    lives(p, &g);
    host_retire(&net_of(p)->host); /* as when the coordinator says that its number is another's */
    is_told(p, &g, PAWL_WHY_COORDINATOR);
    pawl_close(p);
}

static void forked(void)
{
    pawl *p = place_open(0, 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        const pawl_grant none = {0};
        bool refused = pawl_on_lost(p, on_lost, &calls) == -PAWL_EFORKED && pawl_why(p, &none) == -PAWL_EFORKED;
        _exit(!refused);
    }
    child_join(pid);
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    static const struct place_test tests[] = {
        {.design = "word", .on = ON_SHM, .keys = PAWL_KEYS_DENSE},
        {.design = "shiftlock", .on = ON_SHM, .keys = PAWL_KEYS_DENSE},
        {.design = "citron", .on = ON_SHM, .keys = PAWL_KEYS_DENSE},
        {.design = "word", .on = ON_NODE, .keys = PAWL_KEYS_DENSE},
        {.design = "srvlock", .on = ON_RACK, .keys = PAWL_KEYS_DENSE},
        {.design = "fisslock", .on = ON_RACK, .keys = PAWL_KEYS_DENSE},
        {.design = "netlock", .on = ON_RACK, .keys = PAWL_KEYS_DENSE},
    };
    for (unsigned i = 0; i < countof(tests); i++) {
        const char *only = getenv("PAWL_TEST_DESIGN");
        if (only && strcmp(only, tests[i].design))
            continue;
        place_begin(&tests[i]);
        forked();
        broken();
        behind_completions();
        taken_off();
        stopped();
        if (tests[i].on == ON_SHM)
            removed();
        if (tests[i].on == ON_RACK)
            membership_over();
        if (tests[i].on != ON_SHM)
            granters_gone();
        if (tests[i].on == ON_SHM)
            place_end();
        else if (tests[i].on == ON_RACK)
            rack_cleanup();
    }
    return 0;
}
