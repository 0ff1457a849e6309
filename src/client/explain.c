#include "client/explain.h"
#include "pawl.h"

#include <stdarg.h>
#include <stdio.h>

#define SENTENCE_LEN 512 /* a path and what is wrong with it */

static _Thread_local char sentence[SENTENCE_LEN];

int explain(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return code;
}

void explain_nothing(void)
{
    sentence[0] = 0;
}

const char *pawl_explain(void)
{
    return sentence;
}

const char *pawl_strerror(int code)
{
    switch (code < 0 ? -code : code) {
    case 0:
        return "done";
    case PAWL_EHELD:
        return "the lock is held by another";
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
        return "a deadlock: each waits for what the other holds";
    default:
        return strerror(code < 0 ? -code : code);
    }
}
