/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a session in flight at once, on one memory node or several. udp/node_async has more of them. */
#ifndef PAWL_TESTS_UDP_IN_FLIGHT_H
#define PAWL_TESTS_UDP_IN_FLIGHT_H

#include "tests/shm/space.h"

#include <poll.h>

#define IN_FLIGHT 8

/* All but the first, which waits. */
static void reap_others(pawl *p, pawl_completion done[IN_FLIGHT])
{
    for (int got = 0, more; got < IN_FLIGHT - 1; got += more) {
        more = pawl_reap(p, done + got, (unsigned)(IN_FLIGHT - 1 - got), pawl_in(LIMIT_NS));
        CHECK(more > 0);
    }
    for (int i = 0; i < IN_FLIGHT - 1; i++)
        CHECK_OK(done[i].result);
}

/* Locks from key `first` on: the first waits for q, which has it until the others were granted and released. p then has the first.
 */
static pawl_grant in_flight_together(pawl *p, pawl *q, uint64_t first)
{
    pawl_completion done[IN_FLIGHT];
    pawl_request r = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .deadline_ns = UINT64_MAX};
    pawl_grant held;
    uint64_t id, waits = 0;
    CHECK_OK(pawl_lock(q, pawl_id(first), PAWL_EXCLUSIVE, &held));
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
        r.key = pawl_id(first + i);
        CHECK_OK(pawl_submit(p, &r, &id));
        waits = i ? waits : id;
    }
    reap_others(p, done);
    for (int i = 0; i < IN_FLIGHT - 1; i++) {
        const pawl_request back = {.op = PAWL_OP_UNLOCK, .grant = done[i].grant};
        CHECK_OK(pawl_check(p, &done[i].grant));
        CHECK_OK(pawl_submit(p, &back, &id));
    }
    reap_others(p, done);
    CHECK_OK(pawl_unlock(q, &held));
    struct pollfd told = {.fd = pawl_fd(p), .events = POLLIN};
    CHECK_EQ(poll(&told, 1, (int)(LIMIT_NS / NS_PER_MS)), 1); /* no thread reaps */
    CHECK_EQ(pawl_reap(p, done, 1, PAWL_TRY), 1);
    CHECK(done[0].id == waits && !done[0].result && done[0].grant.token > held.token);
    return done[0].grant;
}

#endif
