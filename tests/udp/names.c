/* SPDX-License-Identifier: Apache-2.0 */
/* Names that come and go on a real rack: more names than locks. Each gets a lock, since the locks of names that no host uses become
 * free. Names in use keep their locks; tokens of a name rise, also if it comes back; only if all locks are in use there is none. */
#include "tests/udp/rack.h"

#include <errno.h>
#include <inttypes.h>

#define LEASE_NS (20 * NS_PER_S)
#define LOCKS 1000u
#define NAMES 1500u
#define HELD 20u
#define FEW 20u

static uint64_t tokens[NAMES]; /* the latest of each name */

static pawl_key key_of(unsigned i, char text[32])
{
    snprintf(text, 32, "customer/%u", i);
    return pawl_name(text);
}

static pawl_grant take(pawl *p, unsigned i)
{
    char text[32];
    pawl_grant g;
    int rc = pawl_timedlock(p, key_of(i, text), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g);
    if (rc)
        CHECK_FAIL("name %u: %d: %s", i, rc, pawl_explain());
    if (i < NAMES) {
        CHECK(g.token > tokens[i]); /* I2 */
        tokens[i] = g.token;
    }
    return g;
}

static void pass_through(pawl *p, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        pawl_grant g = take(p, i);
        CHECK_EQ(pawl_unlock(p, &g), 0);
    }
}

/* A process that is killed while it holds names. */
static void hold_and_die(void *arg)
{
    uint32_t *ready = arg;
    pawl *p = rack_open(0, &(pawl_options){.lease_ns = LEASE_NS});
    for (unsigned i = 0; i < HELD; i++)
        take(p, NAMES - 1 - i);
    __atomic_store_n(ready, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

static void more_names_than_locks(void)
{
    const pawl_options o = {.lease_ns = LEASE_NS};
    pawl_grant held[HELD], g;
    char text[32];
    uint32_t *ready = shared_memory(sizeof *ready);
    pawl *p = rack_open(0, &o), *other = rack_open(1, &o);
    for (unsigned i = 0; i < HELD; i++)
        held[i] = take(i % 2 ? p : other, i);
    pass_through(p, HELD, NAMES);
    pid_t child = child_start(hold_and_die, ready);
    WAIT_FOR(__atomic_load_n(ready, __ATOMIC_ACQUIRE));
    child_kill(child);
    for (unsigned round = 0; round < 2; round++) {
        pass_through(other, HELD, NAMES - HELD);
        pass_through(p, HELD, NAMES - HELD);
        pawl_close(p); /* what it remembered is gone with it */
        if (round) {
            p = rack_open(0, &o);
            continue;
        }
        for (unsigned i = 1; i < HELD; i += 2)
            held[i] = (pawl_grant){0};
        p = rack_open(0, &o);
        for (unsigned i = 1; i < HELD; i += 2)
            held[i] = take(other, i);
    }
    for (unsigned i = 0; i < HELD; i++) { /* those of this handle have never let go */
        CHECK_EQ(pawl_check(other, &held[i]), 0);
        CHECK_EQ(pawl_trylock(p, key_of(i, text), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    }
    for (unsigned i = NAMES - HELD; i < NAMES; i++) { /* those of the killed process are free; it did not tell its tokens */
        tokens[i] = 0;
        g = take(p, i);
        CHECK_EQ(pawl_unlock(p, &g), 0);
    }
    for (unsigned i = 0; i < HELD; i++)
        CHECK_EQ(pawl_unlock(other, &held[i]), 0);
    pass_through(p, 0, NAMES);
    pawl_close(p);
    pawl_close(other);
}

/* As many as there are locks, all held: another name has no lock. When one is released it has. */
static void all_in_use(void)
{
    const pawl_options o = {.lease_ns = LEASE_NS};
    pawl *p = rack_open(0, &o), *other = rack_open(1, &o);
    pawl_grant held[FEW], g;
    char text[32];
    for (unsigned i = 0; i < FEW; i++)
        held[i] = take(i % 2 ? p : other, i);
    int rc = pawl_timedlock(p, key_of(FEW, text), PAWL_EXCLUSIVE, pawl_in(NS_PER_S), &g);
    CHECK(rc == -EAGAIN || rc == -ENOSPC || rc == -ETIMEDOUT);
    CHECK_EQ(pawl_unlock(other, &held[0]), 0);
    g = take(p, FEW);
    for (unsigned i = 1; i < FEW; i++)
        CHECK_EQ(pawl_check(i % 2 ? p : other, &held[i]), 0);
    for (unsigned i = 1; i < FEW; i++)
        CHECK_EQ(pawl_unlock(i % 2 ? p : other, &held[i]), 0);
    CHECK_EQ(pawl_unlock(p, &g), 0);
    pawl_close(p);
    pawl_close(other);
}

/* More names at once than there are locks: each that is found takes the lock of another one. The call ends at its deadline. */
static void too_many_at_once(void)
{
    pawl *p = rack_open(0, &(pawl_options){.lease_ns = LEASE_NS});
    pawl_want wants[FEW + 1];
    pawl_grant grants[FEW + 1];
    char text[FEW + 1][32];
    for (unsigned i = 0; i <= FEW; i++)
        wants[i] = (pawl_want){.key = key_of(i, text[i]), .mode = PAWL_EXCLUSIVE};
    uint64_t began = pawl_now();
    int rc = pawl_lock_all(p, wants, FEW + 1, pawl_in(NS_PER_S / 2), grants);
    if (rc != -ETIMEDOUT && rc != -ENOSPC && rc != -EAGAIN)
        CHECK_FAIL("%d: %s", rc, pawl_explain());
    CHECK(pawl_now() - began < LIMIT_NS);
    CHECK_EQ(pawl_lock_all(p, wants, FEW, pawl_in(LIMIT_NS), grants), 0); /* as many as there are */
    CHECK_EQ(pawl_unlock_all(p, grants, FEW), 0);
    pawl_close(p);
}

int main(void)
{
    struct rack_test t = {
        .design = rack_design("srvlock"), .servers = 2, .locks = LOCKS, .lease_ns = LEASE_NS, .keys = PAWL_KEYS_NAMED};
    rack_begin(&t);
    more_names_than_locks();
    rack_end();
    t.locks = FEW;
    rack_begin(&t);
    memset(tokens, 0, sizeof tokens);
    all_in_use();
    too_many_at_once();
    rack_end();
    return 0;
}
