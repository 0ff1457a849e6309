/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"
#include "pawl.h"

#include <errno.h>
#include <string.h>

const char *pawl_explain(void)
{
    return explained();
}

const char *pawl_strerror(int code)
{
    switch (code < 0 ? -code : code) {
    case 0:
        return "done";
    case PAWL_EHELD:
        return "another session holds the lock";
    case PAWL_ELOST:
        return "the session was lost: its lease ran out or an operator broke it, and its grants are void";
    case PAWL_EUNKNOWN:
        return "the outcome is unknown: the connection broke in between";
    case PAWL_ENOTOWNER:
        return "this session does not hold that grant";
    case PAWL_ENOTSUP:
        return "this design does not offer that";
    case PAWL_EFORKED:
        return "the handle belongs to the parent process; open one in the child";
    case PAWL_ESEGMENT:
        return "not a usable pawl segment";
    case PAWL_ELIMIT:
        return "too many sessions, holds or requests";
    case ETIMEDOUT:
        return "the deadline passed";
    case ECANCELED:
        return "the operation was cancelled";
    case EDEADLK:
        return "a deadlock: holders wait for each other";
    default:
        return strerror(code < 0 ? -code : code);
    }
}
