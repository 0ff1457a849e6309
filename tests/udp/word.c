/* SPDX-License-Identifier: Apache-2.0 */
/* Clients keep their word, whatever is missing: a try and a deadline end when the switch or lock server is stopped for good;
 * requests whose releases are under way, and sessions of processes that were killed, are not missing; an extension renews the lease
 * that ends first; memory for the host is there or is refused. */
#include "client/net.h"
#include "tests/udp/rack.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#define LEASE_NS (5 * NS_PER_S) /* longer than a busy machine stops a process */
#define HOLDS 128u              /* of a session, as rack.h has it */
#define SESSIONS 16u            /* of a host */

/* ---- requests and sessions ---- */

/* All holds of a session, taken and given back: the next lock is granted. */
static void all_holds(void)
{
    pawl *p = rack_open(0, NULL);
    pawl_grant g[HOLDS];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < HOLDS; i++)
            CHECK_RC(pawl_timedlock(p, pawl_id(i), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g[i]), 0);
        pawl_grant more;
        CHECK_RC(pawl_timedlock(p, pawl_id(HOLDS), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &more), -PAWL_ELIMIT); /* that is the limit */
        for (unsigned i = 0; i < HOLDS; i++)
            CHECK_RC(pawl_unlock(p, &g[i]), 0);
        CHECK_RC(pawl_trylock(p, pawl_id(HOLDS + round), PAWL_EXCLUSIVE, &more), 0);
        CHECK_RC(pawl_unlock(p, &more), 0);
    }
    /* The same by operations that wait without a thread. */
    for (unsigned i = 0; i < HOLDS; i++)
        CHECK_RC(pawl_timedlock(p, pawl_id(i), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g[i]), 0);
    for (unsigned i = 0; i < HOLDS; i++)
        CHECK_RC(pawl_unlock(p, &g[i]), 0);
    uint64_t id;
    pawl_completion done = {0};
    const pawl_request ask = {.op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(7), .deadline_ns = pawl_in(LIMIT_NS)};
    CHECK_RC(pawl_submit(p, &ask, &id), 0);
    CHECK_EQ(pawl_reap(p, &done, 1, pawl_in(LIMIT_NS)), 1);
    CHECK_RC(done.result, 0);
    CHECK_RC(pawl_unlock(p, &done.grant), 0);
    CHECK_RC(pawl_close(p), 0);
}

static uint32_t *opened;

static void opens_all(void *arg)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        pawl *p = rack_open(1, NULL);
        pawl_grant g;
        CHECK_RC(pawl_timedlock(p, pawl_id(200 + i), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g), 0);
        __atomic_add_fetch(opened, 1, __ATOMIC_RELEASE);
    }
    for (;;)
        pause();
}

/* A process with all sessions of its host is killed: the next one has a session at once, and the locks soon. */
static void all_sessions(void)
{
    char where[RACK_WHERE_LEN];
    opened = shared_memory(sizeof *opened);
    pid_t pid = child_start(opens_all, NULL);
    WAIT_FOR(__atomic_load_n(opened, __ATOMIC_ACQUIRE) == SESSIONS);
    pawl *p;
    CHECK_RC(pawl_open(rack_where(1, where), NULL, &p), -PAWL_ELIMIT); /* that is the limit */
    child_kill(pid);
    CHECK_RC(pawl_open(rack_where(1, where), NULL, &p), 0);
    pawl_grant g;
    for (unsigned i = 0; i < SESSIONS; i++) {
        CHECK_RC(pawl_timedlock(p, pawl_id(200 + i), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g), 0);
        CHECK_RC(pawl_unlock(p, &g), 0);
    }
    CHECK_RC(pawl_close(p), 0);
    munmap(opened, sizeof *opened);
}

/* ---- leases ---- */

static void extending(void)
{
    pawl *p = rack_open(0, &(pawl_options){.lease_ns = 60 * NS_PER_S});
    pawl_grant g;
    CHECK_RC(pawl_timedlock(p, pawl_id(3), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g), 0);
    CHECK(g.expiry_ns < pawl_in(LEASE_NS)); /* the rack's leases end before the session's own */
    struct net *n = net_of(p);
    /* As if heartbeats had been lost for most of a lease, once the last one was answered. */
    __atomic_store_n(&n->host.header->beat_ns, host_now() + 2 * LEASE_NS, __ATOMIC_RELEASE);
    pause_ns(300 * NS_PER_MS);
    uint64_t soon = host_now() + LEASE_NS / 4;
    __atomic_store_n(&n->host.header->until_ns, soon, __ATOMIC_RELEASE);
    g.expiry_ns = 0;
    CHECK_RC(pawl_extend(p, &g), 0);
    CHECK(g.expiry_ns > pawl_in(LEASE_NS / 4));
    CHECK_RC(pawl_check(p, &g), 0);
    CHECK_RC(pawl_unlock(p, &g), 0);
    CHECK_RC(pawl_close(p), 0);
}

/* ---- memory ---- */

static void full_memory(void *arg)
{
    char where[RACK_WHERE_LEN];
    pawl *p;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev/shm", "tmpfs", 0, "size=64k"))
        return;                         /* without the right to */
    for (unsigned i = 0; i < 40; i++) { /* a rack has fewer hosts: one that fails leaves no number behind */
        int rc = pawl_open(rack_where(9, where), NULL, &p);
        if (rc != -ENOSPC)
            CHECK_FAIL("pawl_open with a full /dev/shm: %d (%s)", rc, pawl_explain());
        CHECK(strstr(pawl_explain(), "full"));
    }
    CHECK(!umount("/dev/shm"));
    CHECK_RC(pawl_open(rack_where(9, where), NULL, &p), 0);
    CHECK_RC(pawl_close(p), 0);
}

/* ---- nothing answers ---- */

static uint64_t took(uint64_t since)
{
    return pawl_now() - since;
}

static void nothing_answers(void)
{
    pawl *p = rack_open(2, NULL), *q;
    pawl_grant g;
    CHECK_RC(pawl_timedlock(p, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g), 0);
    CHECK_RC(pawl_unlock(p, &g), 0);
    int status;
    pid_t rack = rack_pids[rack_pid_count - 1];
    CHECK_EQ(kill(rack, SIGSTOP), 0);
    CHECK(waitpid(rack, &status, WUNTRACED) == rack && WIFSTOPPED(status)); /* all of its threads */
    uint64_t since = pawl_now();
    int rc = pawl_timedlock(p, pawl_id(50), PAWL_EXCLUSIVE, pawl_in(NS_PER_S), &g);
    if (rc != -ETIMEDOUT && rc != -PAWL_ELOST)
        CHECK_FAIL("a lock with a deadline: %d (%s)", rc, pawl_explain());
    CHECK(took(since) < LIMIT_NS);
    since = pawl_now();
    rc = pawl_trylock(p, pawl_id(51), PAWL_EXCLUSIVE, &g);
    if (rc != -EAGAIN && rc != -PAWL_ELOST)
        CHECK_FAIL("a try: %d (%s)", rc, pawl_explain());
    CHECK(took(since) < LIMIT_NS + LEASE_NS);
    CHECK_RC(pawl_close(p), 0);

    char where[RACK_WHERE_LEN];
    since = pawl_now();
    rc = pawl_open(rack_where(3, where), &(pawl_options){.open_ns = NS_PER_S}, &q);
    CHECK_RC(rc, -ETIMEDOUT);
    CHECK(took(since) < 10 * NS_PER_S); /* without the option it is 15 */
    CHECK_EQ(kill(rack, SIGCONT), 0);
}

int main(void)
{
    const struct rack_test t = {.design = rack_design("srvlock"), .servers = 2, .locks = 1000, .lease_ns = LEASE_NS, .seed = 1};
    rack_begin(&t);
    all_holds();
    all_sessions();
    extending();
    pid_t pid = child_start(full_memory, NULL);
    child_join(pid);
    nothing_answers();
    rack_end();
    return 0;
}
