/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous operations on shared memory. */
#include "tests/async_calls.h"

static pawl *open_one(void)
{
    const pawl_options o = {.keys = PAWL_KEYS_SPARSE, .capacity = ASYNC_CAPACITY, .sessions = 8, .holds = ASYNC_HOLDS};
    return space_open(&o);
}

int main(void)
{
    async_place.open = open_one; /* and an operation that need not wait ends while it is submitted */
    async_calls();
    return 0;
}
