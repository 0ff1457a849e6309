/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous operations on shared memory. */
#include "tests/async_calls.h"

static pawl *open_one(void)
{
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = ASYNC_CAPACITY, .sessions = 8, .holds = ASYNC_HOLDS};
    return space_open(&o);
}

/* Programs need not read pawl_fd themselves; one that does is still told of the next completion. */
static void drained(void)
{
    pawl *p = open_one();
    struct pollfd fd = {.fd = pawl_fd(p), .events = POLLIN};
    pawl_completion c;
    uint64_t id, counter;
    for (unsigned i = 0; i < 2; i++) {
        const pawl_request lock = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(7), .deadline_ns = PAWL_TRY};
        CHECK_EQ(pawl_submit(p, &lock, &id), 0);
        CHECK_EQ(poll(&fd, 1, 0), 1);
        CHECK(i || read(fd.fd, &counter, sizeof counter) == sizeof counter);
        CHECK_EQ(pawl_reap(p, &c, 1, PAWL_TRY), 1);
        CHECK_EQ(pawl_unlock(p, &c.grant), 0);
        CHECK_EQ(poll(&fd, 1, 0), 0);
    }
    pawl_close(p);
}

int main(void)
{
    async_place.open = open_one; /* and an operation that need not wait ends while it is submitted */
    drained();
    async_calls();
    return 0;
}
