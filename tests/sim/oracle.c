/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle by itself: each invariant it watches, broken and kept. */
#include "tests/sim/oracle_scene.h"

/* ---- I1 ---- */

static void test_exclusion(void)
{
    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_granted(&o, 2, 0, X, 11);
    end("two writers", "I1");

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    oracle_granted(&o, 2, 0, X, 11);
    end("a writer beside a reader", "I1");

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_granted(&o, 2, 0, S, 11);
    end("a reader beside a writer", "I1");

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_granted(&o, 1, 0, X, 11);
    end("the same client twice", "I1");

    begin(false);
    oracle_granted(&o, 1, 0, X, 0);
    oracle_granted(&o, 2, 0, X, 0);
    end("two writers without tokens", "I1");

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    oracle_granted(&o, 2, 0, S, 10);
    oracle_granted(&o, 3, 1, X, 1);
    end("readers together, a writer elsewhere", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_releasing(&o, 1, 0, X, 10);
    oracle_granted(&o, 2, 0, X, 11);
    CHECK_EQ(o.grants, 2);
    CHECK_EQ(o.releases, 1);
    end("one after the other", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_releasing(&o, 1, 0, X, 9);
    oracle_granted(&o, 2, 0, X, 11);
    end("the release of another hold ends none", "I1");
}

static void test_expiry(void)
{
    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    alive[1] = false;
    oracle_granted(&o, 2, 0, X, 11);
    oracle_releasing(&o, 1, 0, X, 10); /* too late, and harmless */
    oracle_releasing(&o, 2, 0, X, 11);
    end("a holder whose lease has run out is none", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_granted(&o, 1, 1, S, 5);
    oracle_gone(&o, 1);
    oracle_granted(&o, 2, 0, X, 11);
    oracle_granted(&o, 2, 1, X, 6);
    end("a session that is gone holds nothing", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_gone(&o, 2);
    oracle_granted(&o, 3, 0, X, 11);
    end("another's end frees nothing", "I1");
}

/* ---- I2 ---- */

static void exclusive(unsigned client, uint64_t token)
{
    oracle_granted(&o, client, 0, X, token);
    oracle_releasing(&o, client, 0, X, token);
}

static void shared(unsigned client, uint64_t token)
{
    oracle_granted(&o, client, 0, S, token);
    oracle_releasing(&o, client, 0, S, token);
}

static void test_tokens(void)
{
    begin(true);
    exclusive(1, 10);
    exclusive(2, 10);
    end("an exclusive token again", "I2");

    begin(true);
    exclusive(1, 10);
    exclusive(2, 9);
    end("an exclusive token below", "I2");

    begin(true);
    shared(1, 10);
    exclusive(2, 10);
    end("an exclusive token not above a shared one", "I2");

    begin(true);
    exclusive(1, 10);
    shared(2, 10);
    end("a shared token not above the exclusive one", "I2");

    begin(true);
    exclusive(1, 10);
    shared(2, 12);
    shared(3, 11);
    shared(3, 12);
    exclusive(1, 13);
    end("shared tokens between exclusive ones, in any order", NULL);

    begin(false);
    exclusive(1, 0);
    exclusive(2, 0);
    end("a design without tokens has none to order", NULL);
}

/* ---- conversions ---- */

static void convert(unsigned client, enum pawl_mode from, uint64_t was, enum pawl_mode to, uint64_t token)
{
    const struct oracle_holder before = {.client = client, .mode = from, .token = was};
    oracle_converted(&o, client, 0, &before, to, token);
}

static void test_conversion(void)
{
    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_weakening(&o, 1, 0, 10);
    oracle_granted(&o, 2, 0, S, 11); /* before the first one's call has returned */
    convert(1, S, 10, S, 11);
    end("a downgrade lets readers in", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    convert(1, S, 10, X, 11);
    oracle_releasing(&o, 1, 0, X, 11);
    oracle_granted(&o, 2, 0, S, 12);
    end("an upgrade of the only reader", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    oracle_granted(&o, 2, 0, S, 10);
    convert(1, S, 10, X, 11);
    end("an upgrade beside a reader", "I1");

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    convert(1, S, 10, X, 10);
    end("an upgrade without a new token", "I2");

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_weakening(&o, 1, 0, 10);
    convert(1, S, 10, S, 10);
    end("a downgrade without a new token", "I2");

    begin(true);
    oracle_granted(&o, 1, 0, S, 10);
    oracle_granted(&o, 2, 0, S, 10);
    alive[2] = false;
    convert(1, S, 10, X, 11);
    end("an upgrade beside a reader whose lease has run out", NULL);
}

/* ---- I4, I8 ---- */

static void test_fence(void)
{
    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_write(&o, 1, 0, 10);
    oracle_write(&o, 1, 0, 10);
    alive[1] = false;
    oracle_granted(&o, 2, 0, X, 11);
    oracle_write(&o, 2, 0, 11);
    oracle_write(&o, 1, 0, 10); /* refused, as it should be */
    CHECK_EQ(o.locks[0].spans[0].fence, 11);
    CHECK_EQ(o.writes, 4);
    end("the late write of a lost holder is refused", NULL);

    begin(true);
    oracle_granted(&o, 1, 0, X, 10);
    oracle_write(&o, 1, 0, 11);
    oracle_write(&o, 1, 0, 10);
    end("the write of a valid holder is refused", "I4");
}

static void test_dead(void)
{
    begin(true);
    alive[1] = false;
    oracle_granted(&o, 1, 0, X, 10);
    end("a grant to the dead", "I8");

    begin(true);
    oracle_violation(&o, "I%d: %s", 11, "something");
    CHECK_STR(o.first, "I11: something");
    end("what others find", "I11");

    begin(true);
    oracle_violation(&o, "I10: first");
    oracle_violation(&o, "I11: second");
    CHECK_EQ(o.violations, 2);
    CHECK_STR(o.first, "I10: first");
    oracle_free(&o);
}

int main(void)
{
    test_exclusion();
    test_expiry();
    test_tokens();
    test_conversion();
    test_fence();
    test_dead();
    return 0;
}
