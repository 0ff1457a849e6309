/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence of grants and releases that is told to an oracle by hand, and what it made of it. */
#ifndef PAWL_TESTS_SIM_ORACLE_SCENE_H
#define PAWL_TESTS_SIM_ORACLE_SCENE_H

#include "tests/check.h"
#include "workbench/trial/oracle.h"

#include <string.h>

#define X PAWL_EXCLUSIVE
#define S PAWL_SHARED
#define CLIENTS 8

static bool alive[CLIENTS];
static struct oracle o;

static inline bool is_alive(void *ctx, unsigned client, uint64_t lock)
{
    return ((const bool *)ctx)[client];
}

static inline void begin(bool tokens)
{
    memset(alive, true, sizeof alive);
    CHECK_EQ(oracle_init(&o, 2, tokens, is_alive, alive), 0);
}

/* Ends a sequence. It must have found nothing (null), or one violation of that invariant. */
static inline void end(const char *what, const char *invariant)
{
    printf("%s: %s\n", what, o.violations ? o.first : "nothing");
    CHECK_EQ(o.violations, invariant ? 1 : 0);
    if (invariant)
        CHECK(!strncmp(o.first, invariant, strlen(invariant)) && o.first[strlen(invariant)] == ':');
    oracle_free(&o);
}

#endif
