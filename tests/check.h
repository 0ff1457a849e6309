/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions of tests. The first failure prints where and what, and ends the program with status 1. */
#ifndef PAWL_TESTS_CHECK_H
#define PAWL_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_FAIL(...)                                                                                                            \
    do {                                                                                                                           \
        fflush(stdout);                                                                                                            \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__);                                                              \
        fprintf(stderr, __VA_ARGS__);                                                                                              \
        fputc('\n', stderr);                                                                                                       \
        exit(1);                                                                                                                   \
    } while (0)

#define CHECK(condition)                                                                                                           \
    do {                                                                                                                           \
        if (!(condition))                                                                                                          \
            CHECK_FAIL("not true: %s", #condition);                                                                                \
    } while (0)

/* Of integers. */
#define CHECK_EQ(got, want)                                                                                                        \
    do {                                                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                                                              \
        if (got_ != want_)                                                                                                         \
            CHECK_FAIL("%s is %lld (0x%llx), not %lld (0x%llx)", #got, got_, got_, want_, want_);                                  \
    } while (0)

#define CHECK_BETWEEN(got, low, high)                                                                                              \
    do {                                                                                                                           \
        uint64_t got_ = (uint64_t)(got), low_ = (uint64_t)(low), high_ = (uint64_t)(high);                                         \
        if (got_ < low_ || got_ > high_)                                                                                           \
            CHECK_FAIL("%s is %" PRIu64 ", not within %" PRIu64 " and %" PRIu64, #got, got_, low_, high_);                         \
    } while (0)

#define CHECK_STR(got, want)                                                                                                       \
    do {                                                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                                                 \
        if (strcmp(got_, want_))                                                                                                   \
            CHECK_FAIL("%s is \"%s\", not \"%s\"", #got, got_, want_);                                                             \
    } while (0)

/* A test that cannot run here says why and counts as skipped. */
#define SKIP(...)                                                                                                                  \
    do {                                                                                                                           \
        printf("SKIP: ");                                                                                                          \
        printf(__VA_ARGS__);                                                                                                       \
        putchar('\n');                                                                                                             \
        exit(77);                                                                                                                  \
    } while (0)

/* How long a torture test may take: PAWL_TEST_SECONDS, 60 unless the environment says otherwise; of that one part in
 * PAWL_TEST_PART, for tests that are run for several designs. */
static inline unsigned test_seconds(void)
{
    const char *text = getenv("PAWL_TEST_SECONDS"), *part = getenv("PAWL_TEST_PART");
    unsigned long seconds = text ? strtoul(text, NULL, 10) : 0, parts = part ? strtoul(part, NULL, 10) : 1;
    seconds = (seconds ? seconds : 60) / (parts ? parts : 1);
    return seconds ? (unsigned)seconds : 1;
}

#endif
