/* SPDX-License-Identifier: Apache-2.0 */
/* A session with several locks: inspection shows all of them, and an operator that breaks one is told which others the session
 * loses. */
#include "client/inspect.h"
#include "client/memory.h"
#include "tests/check.h"

#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/pawl-break-XXXXXX", where[64];
static char output[4096];

/* Runs pawl with these words, stdin not a terminal; its output is left in `output`. */
static int run(const char *words)
{
    const char *build = getenv("PAWL_BUILD");
    char line[1024];
    snprintf(line, sizeof line, "'%s/pawl' %s --space '%s' 2>&1 </dev/null", build ? build : "build", words, where);
    FILE *p = popen(line, "r");
    CHECK(p);
    size_t len = fread(output, 1, sizeof output - 1, p);
    output[len] = 0;
    int status = pclose(p);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int sum_locks(void *ctx, const struct inspect_lock *lock)
{
    uint32_t *sums = ctx;
    sums[0]++;
    sums[1] += lock->holders;
    sums[2] += lock->waiters;
    return 0;
}

static int stop_at_first(void *ctx, const struct inspect_lock *lock)
{
    ++*(int *)ctx;
    return 7;
}

static int sum_claims(void *ctx, const struct inspect_claim *claim)
{
    uint32_t *sums = ctx;
    CHECK_EQ(claim->session.pid, getpid());
    CHECK_EQ(claim->session.health, SESSION_LIVE);
    sums[claim->holds ? 1 : 2]++;
    return 0;
}

static void check_sums(const uint32_t *sums, uint32_t locks, uint32_t holders, uint32_t waiters)
{
    CHECK_EQ(sums[0], locks);
    CHECK_EQ(sums[1], holders);
    CHECK_EQ(sums[2], waiters);
}

/* `p` holds a and b alone and c with `q`, which waits for a. */
static void test_look(pawl *p, pawl *q)
{
    struct observer o;
    uint32_t all[3] = {0}, of_p[3] = {0}, of_q[3] = {0}, of_a[3] = {0};
    int calls = 0;
    struct cell at;
    CHECK_EQ(observer_open(where, &o), 0);
    CHECK_EQ(inspect_locks(&o.locker, false, sum_locks, all), 0);
    check_sums(all, 3, 4, 1);
    CHECK_EQ(inspect_locks_of(&o.locker, memory_of(p)->session.slot, sum_locks, of_p), 0);
    check_sums(of_p, 3, 3, 0);
    CHECK_EQ(inspect_locks_of(&o.locker, memory_of(q)->session.slot, sum_locks, of_q), 0);
    check_sums(of_q, 2, 1, 1);
    CHECK_EQ(table_find(&o.locker.seat, &o.locker.table, pawl_name("a"), &at), 0);
    CHECK_EQ(inspect_claims(&o.locker, at.index, sum_claims, of_a), 0);
    check_sums(of_a, 0, 1, 1);
    CHECK_EQ(inspect_locks(&o.locker, true, stop_at_first, &calls), 7);
    CHECK_EQ(calls, 1);
    observer_close(&o);
}

static void test_break(pawl *p, pawl *q, const pawl_grant *a, const pawl_grant *shared)
{
    pawl_completion done;
    CHECK_EQ(run("break a"), 2);
    CHECK(strstr(output, "--yes"));
    CHECK_EQ(pawl_check(p, a), 0);
    CHECK_EQ(run("break a --yes"), 0);
    const char *also = strstr(output, "also loses: ");
    CHECK(also && strchr(also + strlen("also loses: "), 'b') && strchr(also + strlen("also loses: "), 'c'));
    CHECK_EQ(pawl_check(p, a), -PAWL_ELOST);
    CHECK_EQ(pawl_reap(q, &done, 1, pawl_in(10 * NS_PER_S)), 1);
    CHECK_EQ(done.result, 0);
    CHECK(done.grant.token > a->token);
    CHECK_EQ(pawl_unlock(p, a), -PAWL_ELOST);
    CHECK_EQ(pawl_check(q, &done.grant), 0); /* which the late unlock did not touch */
    CHECK_EQ(pawl_check(q, shared), 0);
    CHECK_EQ(run("break b --yes"), 1);
    CHECK(strstr(output, "no session holds 'b'"));
    CHECK_EQ(run("break c --yes --json"), 0);
    CHECK(strstr(output, "\"also_loses\": [\"a\"]") && strstr(output, "\"broken\": true"));
    CHECK_EQ(pawl_check(q, &done.grant), -PAWL_ELOST);
}

int main(void)
{
    pawl *p, *q;
    pawl_grant a, b, c, shared;
    uint64_t id;
    CHECK(mkdtemp(folder));
    snprintf(where, sizeof where, "local:%s/space", folder);
    CHECK_EQ(pawl_open(where, NULL, &p), 0);
    CHECK_EQ(pawl_open(where, NULL, &q), 0);
    CHECK_EQ(pawl_lock(p, pawl_name("a"), PAWL_EXCLUSIVE, &a), 0);
    CHECK_EQ(pawl_lock(p, pawl_name("b"), PAWL_EXCLUSIVE, &b), 0);
    CHECK_EQ(pawl_lock(p, pawl_name("c"), PAWL_SHARED, &c), 0);
    CHECK_EQ(pawl_lock(q, pawl_name("c"), PAWL_SHARED, &shared), 0);
    const pawl_request request = {
        .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_name("a"), .deadline_ns = UINT64_MAX, .user = NULL};
    CHECK_EQ(pawl_submit(q, &request, &id), 0);
    test_look(p, q);
    test_break(p, q, &a, &shared);
    pawl_close(p);
    pawl_close(q);
    unlink(where + strlen("local:"));
    rmdir(folder);
    return 0;
}
