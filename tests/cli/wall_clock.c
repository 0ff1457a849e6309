/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded by cli/state: a wall clock that was set back by PAWL_TEST_BACK_S seconds. Other clocks are as they are. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const char *back = getenv("PAWL_TEST_BACK_S");
    int rc = (int)syscall(SYS_clock_gettime, clock, out);
    if (!rc && back && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec -= strtoll(back, NULL, 10);
    return rc;
}
