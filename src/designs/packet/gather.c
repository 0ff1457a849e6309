/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/gather.h"
#include "pawl.h"

#include <assert.h>
#include <errno.h>

static bool has_to_wait(int rc)
{
    return rc == -PAWL_EHELD || rc == -EAGAIN || rc == -EBUSY;
}

static void give_back(const struct gather_ops *ops, void *caller, unsigned from, unsigned to)
{
    while (to-- > from)
        ops->give_back(caller, to);
    ops->send(caller);
}

/* Asks for the locks from `from` on, all at once. Returns the first that is missing, with *why, and none behind it is held; or
 * `count`. */
static unsigned ask_all(const struct gather_ops *ops, void *caller, unsigned from, unsigned count, int *why)
{
    int rc[GATHER_MAX];
    unsigned missing = count;
    for (unsigned i = from; i < count; i++)
        rc[i] = ops->ask(caller, i, false);
    ops->send(caller);
    for (unsigned i = from; i < count; i++) {
        rc[i] = rc[i] ? rc[i] : ops->answer(caller, i, false);
        if (rc[i] && missing == count)
            missing = i;
    }
    for (unsigned i = missing + 1; i < count; i++)
        if (!rc[i])
            ops->give_back(caller, i);
    if (missing < count) {
        ops->send(caller);
        *why = rc[missing];
    }
    return missing;
}

static int ask_one(const struct gather_ops *ops, void *caller, unsigned i)
{
    int rc = ops->ask(caller, i, true);
    ops->send(caller);
    return rc ? rc : ops->answer(caller, i, true);
}

int gather(const struct gather_ops *ops, void *caller, unsigned count, bool wait)
{
    unsigned held = 0;
    assert(count <= GATHER_MAX);
    while (held < count) {
        int rc = -PAWL_EHELD;
        bool last = wait && held + 1 == count;
        unsigned missing = last ? held : ask_all(ops, caller, held, count, &rc);
        if (missing == count)
            return 0;
        if (wait && has_to_wait(rc))
            rc = ask_one(ops, caller, missing);
        if (rc) {
            give_back(ops, caller, 0, missing);
            return rc;
        }
        held = missing + 1;
    }
    return 0;
}
