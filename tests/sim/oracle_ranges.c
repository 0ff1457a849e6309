/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle on ranges: each invariant broken and kept, where ranges overlap and where they do not. */
#include "tests/sim/oracle_scene.h"

static struct oracle_holder hold(unsigned client, enum pawl_mode mode, uint64_t token, uint64_t start, uint64_t stop)
{
    return (struct oracle_holder){.client = client, .mode = mode, .token = token, .range = {.start = start, .end = stop}};
}

static void grant(unsigned client, enum pawl_mode mode, uint64_t token, uint64_t start, uint64_t stop)
{
    const struct oracle_holder h = hold(client, mode, token, start, stop);
    oracle_granted_range(&o, 0, &h);
}

static void release(unsigned client, enum pawl_mode mode, uint64_t token, uint64_t start, uint64_t stop)
{
    const struct oracle_holder h = hold(client, mode, token, start, stop);
    oracle_releasing_range(&o, 0, &h);
}

static void grow(struct oracle_holder from, struct oracle_holder to)
{
    oracle_grown(&o, 0, &from, &to);
}

static void test_overlap(void)
{
    begin(true);
    grant(1, X, 10, 0, 100);
    grant(2, X, 11, 100, 200);
    grant(3, X, 12, 300, RANGE_UNITS_MAX);
    end("writers side by side", NULL);

    begin(true);
    grant(1, X, 10, 0, 100);
    grant(2, X, 11, 99, 200);
    end("writers that share a unit", "I1");

    begin(true);
    grant(1, X, 10, 50, 60);
    grant(2, S, 11, 0, RANGE_UNITS_MAX);
    end("a reader of all beside a writer of some", "I1");

    begin(true);
    grant(1, S, 10, 0, 100);
    grant(2, S, 10, 50, 150);
    grant(3, X, 11, 150, 151);
    end("readers that overlap, and a writer behind them", NULL);

    begin(true);
    grant(1, X, 10, 0, 100);
    release(1, X, 10, 0, 50);
    grant(2, X, 11, 60, 70);
    end("what was released was another range", "I1");

    begin(true);
    grant(1, X, 10, 0, 100);
    alive[1] = false;
    grant(2, X, 11, 60, 70);
    end("one that is lost holds no range", NULL);
}

static void test_tokens(void)
{
    begin(true);
    grant(1, X, 20, 0, 100);
    grant(2, X, 10, 100, 200);
    release(1, X, 20, 0, 100);
    release(2, X, 10, 100, 200);
    grant(3, X, 15, 100, 150);
    end("tokens need not rise between ranges that do not meet", NULL);

    begin(true);
    grant(1, X, 20, 0, 100);
    grant(2, X, 10, 100, 200);
    release(1, X, 20, 0, 100);
    release(2, X, 10, 100, 200);
    grant(3, X, 15, 99, 150);
    end("but where they do", "I2");

    begin(true);
    grant(1, X, 20, 10, 11);
    release(1, X, 20, 10, 11);
    grant(2, S, 20, 0, 100);
    end("a reader's token must be above a writer's of one of its units", "I2");

    begin(true);
    grant(1, X, 20, 10, 20);
    const struct oracle_holder h = hold(1, X, 20, 10, 20), late = hold(2, X, 19, 0, 11);
    oracle_write_range(&o, 0, &h);
    oracle_write_range(&o, 0, &late);
    end("a write that reaches into another's with a lower token", "I4");
}

static void test_changes(void)
{
    begin(true);
    grant(1, X, 10, 0, 100);
    const struct oracle_holder h = hold(1, X, 10, 0, 100), rest = hold(1, X, 10, 20, 30);
    oracle_shrinking(&o, 0, &h, rest.range);
    grant(2, X, 11, 0, 20);
    grant(3, X, 12, 30, 100);
    end("what was given back can be had", NULL);

    begin(true);
    grant(1, X, 10, 0, 100);
    oracle_shrinking(&o, 0, &h, rest.range);
    grant(2, X, 11, 0, 21);
    end("what was kept cannot", "I1");

    begin(true);
    grant(1, X, 10, 0, 100);
    oracle_split(&o, 0, &h, 40);
    release(1, X, 10, 40, 100);
    grant(2, X, 11, 40, 60);
    end("one half was released", NULL);

    begin(true);
    grant(1, X, 10, 0, 100);
    oracle_split(&o, 0, &h, 40);
    release(1, X, 10, 40, 100);
    grant(2, X, 11, 39, 60);
    end("the other half was not", "I1");

    begin(true);
    grant(1, X, 10, 0, 100);
    grow(hold(1, X, 10, 0, 100), hold(1, X, 10, 0, 200));
    end("a hold that grows into unused units keeps its token", NULL);

    begin(true);
    grant(1, X, 10, 0, 100);
    grant(2, X, 11, 100, 200);
    release(2, X, 11, 100, 200);
    grow(hold(1, X, 10, 0, 100), hold(1, X, 10, 0, 200));
    end("but not if another session has held them", "I2");

    begin(true);
    grant(1, X, 10, 0, 100);
    grant(2, S, 11, 100, 200);
    grow(hold(1, X, 10, 0, 100), hold(1, X, 12, 0, 101));
    end("nor into another's", "I1");
}

int main(void)
{
    test_overlap();
    test_tokens();
    test_changes();
    return 0;
}
