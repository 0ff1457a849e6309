/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks in one round trip (designs/packet/gather.h): all or none, nothing behind a lock that is waited for is in hand, one
 * round trip if all are free, and at most as many waits as locks. */
#include "designs/packet/gather.h"
#include "lib/hash.h"
#include "pawl.h"
#include "tests/check.h"

#include <errno.h>
#include <string.h>

#define LOCKS 10u

struct table {
    int says[LOCKS];    /* the answer to a request that does not wait */
    int at_last[LOCKS]; /* the answer to one that waits */
    bool asked[LOCKS], held[LOCKS];
    unsigned sent, waits; /* round trips; calls that wait */
    bool unsent;
    uint64_t dice; /* not 0: after each wait others take and leave locks at random */
};

static int ask(void *caller, unsigned i, bool wait)
{
    struct table *t = caller;
    CHECK(!t->asked[i] && !t->held[i]);
    if (!wait && t->says[i] == -EBUSY)
        return -EBUSY;
    t->asked[i] = t->unsent = true;
    return 0;
}

static void send_out(void *caller)
{
    struct table *t = caller;
    t->sent += t->unsent;
    t->unsent = false;
}

static int answer(void *caller, unsigned i, bool wait)
{
    struct table *t = caller;
    CHECK(t->asked[i] && !t->unsent);
    t->asked[i] = false;
    for (unsigned k = 0; wait && k < LOCKS; k++) {
        CHECK(k < i || !t->held[k]); /* nothing behind it */
        CHECK(k >= i || t->held[k]); /* all before it */
        CHECK(k == i || !t->asked[k]);
    }
    t->waits += wait;
    int rc = wait ? t->at_last[i] : t->says[i];
    t->held[i] = !rc;
    for (unsigned k = i + 1; wait && t->dice && k < LOCKS; k++)
        t->says[k] = (t->dice = mix64(t->dice)) % 3 ? 0 : -PAWL_EHELD;
    return rc;
}

static void give_back(void *caller, unsigned i)
{
    struct table *t = caller;
    CHECK(t->held[i]);
    t->held[i] = false;
    t->unsent = true;
}

static const struct gather_ops ops = {.ask = ask, .send = send_out, .answer = answer, .give_back = give_back};

static unsigned held(const struct table *t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < LOCKS; i++)
        n += t->held[i];
    CHECK(!t->unsent);
    return n;
}

static void free_locks(void)
{
    struct table t = {.sent = 0};
    CHECK_EQ(gather(&ops, &t, LOCKS, true), 0);
    CHECK_EQ(held(&t), LOCKS);
    CHECK_EQ(t.sent, 1u);
    CHECK_EQ(t.waits, 0u);
}

static void held_by_others(void)
{
    struct table t = {.says = {[3] = -PAWL_EHELD, [7] = -EAGAIN, [8] = -EBUSY}};
    CHECK_EQ(gather(&ops, &t, LOCKS, true), 0);
    CHECK_EQ(held(&t), LOCKS);
    CHECK_EQ(t.waits, 4u); /* the last one is never asked for twice */
    memset(&t, 0, sizeof t);
    t.says[3] = -PAWL_EHELD;
    CHECK_EQ(gather(&ops, &t, LOCKS, false), -PAWL_EHELD); /* a try does not wait */
    CHECK_EQ(held(&t), 0u);
    CHECK_EQ(t.waits, 0u);
}

static void failures(void)
{
    for (unsigned i = 0; i < LOCKS; i++) {
        struct table t = {.says = {[0] = -PAWL_EHELD}};
        t.says[i] = -PAWL_EHELD;
        t.at_last[i] = -ETIMEDOUT;
        CHECK_EQ(gather(&ops, &t, LOCKS, true), -ETIMEDOUT);
        CHECK_EQ(held(&t), 0u);
        struct table lost = {.sent = 0};
        lost.says[i] = -PAWL_ELOST; /* waiting would not help */
        CHECK_EQ(gather(&ops, &lost, LOCKS, true), -PAWL_ELOST);
        CHECK_EQ(held(&lost), 0u);
    }
}

/* Others come and go: as many waits as locks at most. */
static void contended(void)
{
    for (uint64_t seed = 1; seed < 5000; seed++) {
        struct table t = {.dice = seed};
        for (unsigned i = 0; i < LOCKS; i++)
            t.says[i] = mix64(seed * LOCKS + i) % 2 ? 0 : -PAWL_EHELD;
        CHECK_EQ(gather(&ops, &t, LOCKS, true), 0);
        CHECK_EQ(held(&t), LOCKS);
        CHECK(t.waits <= LOCKS);
    }
}

static void one(void)
{
    struct table t = {.says = {-PAWL_EHELD}};
    CHECK_EQ(gather(&ops, &t, 1, true), 0); /* waits at once */
    CHECK_EQ(t.sent, 1u);
    CHECK_EQ(t.waits, 1u);
    CHECK_EQ(held(&t), 1u);
}

int main(void)
{
    free_locks();
    held_by_others();
    failures();
    contended();
    one();
    return 0;
}
