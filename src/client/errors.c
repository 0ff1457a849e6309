/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base.h"
#include "lib/explain.h"
#include "pawl.h"

#include <errno.h>
#include <string.h>

const char *pawl_explain(void)
{
    return explained();
}

const char *pawl_strwhy(int why)
{
    switch (why) {
    case PAWL_WHY_HELD:
        return "the grant is held";
    case PAWL_WHY_UNLOCKED:
        return "the grant was unlocked, or is not one of this session";
    case PAWL_WHY_LEASE:
        return "the lease of the session ended before it was renewed";
    case PAWL_WHY_BROKEN:
        return "an operator broke the session, or its memory node started anew";
    case PAWL_WHY_REMOVED:
        return "the space was removed";
    case PAWL_WHY_GRANTER:
        return "the lock server or switch of a lock that the session held was away for a lease";
    case PAWL_WHY_COORDINATOR:
        return "the coordinator was away for the membership lease, or has ended the membership of this host";
    default:
        return "no such reason";
    }
}

const char *pawl_strerror(int code)
{
    static const struct {
        int code;
        const char *text;
    } own[] = {
        {0, "done"},
        {PAWL_EHELD, "another session holds the lock"},
        {PAWL_ELOST, "the session was lost: its lease ran out or an operator broke it, and its grants are void"},
        {PAWL_EUNKNOWN, "the outcome is unknown: the connection broke in between"},
        {PAWL_ENOTOWNER, "this session does not hold that grant"},
        {PAWL_ENOTSUP, "this design does not offer that"},
        {PAWL_EFORKED, "the handle belongs to the parent process; open one in the child"},
        {PAWL_ESEGMENT, "not a usable pawl segment"},
        {PAWL_ELIMIT, "too many sessions, holds or requests"},
        {PAWL_ENOVALUE, "the lock has no value: none was set, or it was forgotten with the lock"},
        {PAWL_ELIMITS, "the semaphore is held with another limit, or its key is locked without one"},
        {ETIMEDOUT, "the deadline passed"},
        {ECANCELED, "the operation was cancelled"},
        {EDEADLK, "a deadlock: holders wait for each other"},
    };
    int positive = code < 0 ? -code : code;
    for (unsigned i = 0; i < countof(own); i++)
        if (own[i].code == positive)
            return own[i].text;
    return strerror(positive);
}
