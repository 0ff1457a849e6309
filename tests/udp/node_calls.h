/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of two sessions on a memory node: modes, tokens, time-outs, conversion, several locks, ranges, operations in flight. */
#ifndef PAWL_TESTS_UDP_NODE_CALLS_H
#define PAWL_TESTS_UDP_NODE_CALLS_H

#include "client/memory.h"
#include "designs/core/design.h"
#include "tests/udp/in_flight.h"

#define LOCKS 64 /* of the space; their keys are dense */

static const struct design *design;

static bool has(enum design_features f)
{
    return design->features & f;
}

static void basics(pawl *p, pawl *q)
{
    pawl_grant g, h;
    pawl_state state;
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
    CHECK(g.token && g.mode == PAWL_EXCLUSIVE && g.expiry_ns > pawl_now());
    CHECK_OK(pawl_check(p, &g));
    CHECK_RC(pawl_trylock(q, pawl_id(1), PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
    CHECK_OK(pawl_query(q, pawl_id(1), &state));
    bool draws = !strcmp(design->name, "shiftlock64"); /* the failed try has drawn a token, too */
    CHECK(state.mode == PAWL_EXCLUSIVE && (draws ? state.token >= g.token : state.token == g.token));
    CHECK_RC(pawl_timedlock(q, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(20 * NS_PER_MS), &h), -ETIMEDOUT);
    CHECK_OK(pawl_extend(p, &g));
    CHECK_RC(pawl_unlock(q, &g), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ENOTOWNER);
    CHECK_RC(pawl_check(p, &g), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_timedlock(q, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
    CHECK(h.token > g.token);
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_lock(p, pawl_id(LOCKS), PAWL_EXCLUSIVE, &g), -ERANGE);
    CHECK_RC(pawl_lock(p, pawl_name("name"), PAWL_EXCLUSIVE, &g), -EINVAL);
}

static void sharing(pawl *p, pawl *q)
{
    pawl_grant g, h;
    CHECK_OK(pawl_lock(p, pawl_id(2), PAWL_SHARED, &g));
    CHECK_OK(pawl_timedlock(q, pawl_id(2), PAWL_SHARED, pawl_in(LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(q, &h));
    uint64_t before = g.token;
    CHECK_OK(pawl_convert(p, &g, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS)));
    CHECK(g.token > before && g.mode == PAWL_EXCLUSIVE);
    CHECK_RC(pawl_trylock(q, pawl_id(2), PAWL_SHARED, &h), -PAWL_EHELD);
    CHECK_OK(pawl_convert(p, &g, PAWL_SHARED, pawl_in(LIMIT_NS)));
    CHECK_OK(pawl_timedlock(q, pawl_id(2), PAWL_SHARED, pawl_in(LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_unlock(q, &h));
}

#define SEVERAL 10
#define PACKETS_MAX 4 /* of so many free locks: those of one are two with most designs */

/* Requests that the session has sent to its only node; 0: it has several, or uses the memory without them. */
static uint64_t requests_of(pawl *p)
{
    const struct memory_session *m = memory_of(p);
    return m && m->far && !m->near.memory.base && !m->fabric ? m->far->node.counts.requests : 0;
}

static void several(pawl *p, pawl *q)
{
    pawl_want wants[SEVERAL];
    pawl_grant g[SEVERAL], h;
    for (uint64_t i = 0; i < SEVERAL; i++)
        wants[i] = (pawl_want){.key = pawl_id(20 - i), .mode = PAWL_EXCLUSIVE};
    uint64_t before = requests_of(p);
    CHECK_OK(pawl_lock_all(p, wants, SEVERAL, UINT64_MAX, g));
    CHECK(!has(DESIGN_TIMEOUT) || has(DESIGN_RANGES) || !strcmp(design->name, "alock") ||
          requests_of(p) - before <= PACKETS_MAX + 1); /* one more may be the library's thread's */
    for (uint64_t i = 0; i < SEVERAL; i++) {
        CHECK_OK(pawl_check(p, &g[i]));
        CHECK_RC(pawl_trylock(q, wants[i].key, PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
    }
    CHECK_RC(pawl_unlock_all(q, g, SEVERAL), -PAWL_ENOTOWNER);
    CHECK_OK(pawl_unlock_all(p, g, SEVERAL));
    CHECK_RC(pawl_unlock_all(p, g, SEVERAL), -PAWL_ENOTOWNER);
    /* One of them is held: none is left behind. */
    CHECK_OK(pawl_timedlock(q, pawl_id(15), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
    CHECK_RC(pawl_lock_all(p, wants, SEVERAL, PAWL_TRY, g), -PAWL_EHELD);
    CHECK_RC(pawl_lock_all(p, wants, SEVERAL, pawl_in(20 * NS_PER_MS), g), -ETIMEDOUT);
    for (uint64_t i = 0; i < SEVERAL; i++) {
        if (wants[i].key.id == 15)
            continue;
        CHECK_OK(pawl_timedlock(q, wants[i].key, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g[i]));
        CHECK_OK(pawl_unlock(q, &g[i]));
    }
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_OK(pawl_lock_all(p, wants, SEVERAL, pawl_in(LIMIT_NS), g));
    for (int i = 0; i < SEVERAL; i++)
        CHECK_OK(pawl_unlock(p, &g[i]));
}

static void ranges(pawl *p, pawl *q)
{
    pawl_grant g, h;
    CHECK_OK(pawl_lock_range(p, pawl_id(3), 0, 64 * 4096, PAWL_EXCLUSIVE, UINT64_MAX, &g));
    CHECK_OK(pawl_lock_range(q, pawl_id(3), 512 * 4096, 520 * 4096, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_RC(pawl_lock_range(q, pawl_id(3), 4096, 8192, PAWL_EXCLUSIVE, PAWL_TRY, &h), -PAWL_EHELD);
    if (has(DESIGN_SPLIT)) {
        CHECK_OK(pawl_split(p, &g, 32 * 4096, &h));
        CHECK_OK(pawl_unlock(p, &h));
        CHECK_OK(pawl_lock_range(q, pawl_id(3), 32 * 4096, 64 * 4096, PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
        CHECK_OK(pawl_unlock(q, &h));
    }
    CHECK_OK(pawl_unlock(p, &g));
}

static void asynchronous(pawl *p, pawl *q)
{
    pawl_grant g = in_flight_together(p, q, 30);
    CHECK_OK(pawl_unlock(p, &g));
}

static void node_calls(pawl *p, pawl *q)
{
    basics(p, q);
    if (has(DESIGN_SHARED) && has(DESIGN_CONVERT))
        sharing(p, q);
    several(p, q);
    if (has(DESIGN_ASYNC))
        asynchronous(p, q);
    if (has(DESIGN_RANGES))
        ranges(p, q);
}

#endif
