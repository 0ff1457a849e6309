/* What a unit test needs: exit 0 if all held, 1 at the first that did not, 77 to skip with a printed reason. */
#ifndef PAWL_TESTS_CHECK_H
#define PAWL_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond)                                                                                                                \
    do {                                                                                                                           \
        if (!(cond)) {                                                                                                             \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #cond);                                       \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

/* Integers, printed when they differ. */
#define CHECK_EQ(a, b)                                                                                                             \
    do {                                                                                                                           \
        int64_t check_a = (int64_t)(a), check_b = (int64_t)(b);                                                                    \
        if (check_a != check_b) {                                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s is %" PRId64 ", not %" PRId64 "\n", __FILE__, __LINE__, __func__, #a, check_a,          \
                    check_b);                                                                                                      \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

#define CHECK_BETWEEN(x, low, high)                                                                                                \
    do {                                                                                                                           \
        uint64_t check_x = (uint64_t)(x), check_low = (uint64_t)(low), check_high = (uint64_t)(high);                              \
        if (check_x < check_low || check_x > check_high) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %s is %" PRIu64 ", not within %" PRIu64 " and %" PRIu64 "\n", __FILE__, __LINE__,          \
                    __func__, #x, check_x, check_low, check_high);                                                                 \
            exit(1);                                                                                                               \
        }                                                                                                                          \
    } while (0)

#define SKIP(reason)                                                                                                               \
    do {                                                                                                                           \
        printf("skipped: %s\n", reason);                                                                                           \
        exit(77);                                                                                                                  \
    } while (0)

#endif
