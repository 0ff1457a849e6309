/* SPDX-License-Identifier: Apache-2.0 */
/* Another user of a shared segment writes anything to any part of it, or makes it shorter, while processes use it: their calls
 * fail, and no process ends or hangs. */
#include "client/inspect.h"
#include "client/segment.h"
#include "lib/rng.h"
#include "tests/shm/space.h"

#include <fcntl.h>

#define ROUNDS 16
#define ROUND_NS (120 * NS_PER_MS)
#define USERS 2
#define KEYS 16
#define STOP_NS (40 * NS_PER_S) /* for users to end once the memory is left alone: leases of processes that were declared lost */

struct round {
    unsigned number;
    bool shorter; /* the file is truncated, too */
    bool header;  /* which keeps processes from opening the segment: not in every round */
    enum pawl_keys keys;
    const char *design;
    uint32_t stop;
    uint64_t calls[USERS], failures[USERS];
};

/* ---- a process that uses the space ---- */

static void count(struct round *r, unsigned user, int rc)
{
    r->calls[user]++;
    r->failures[user] += rc < 0;
}

static int see_lock(void *ctx, const struct inspect_lock *lock)
{
    return lock->key.name && lock->key.id > PAWL_NAME_MAX;
}

static int see_claim(void *ctx, const struct inspect_claim *claim)
{
    return 0;
}

static int see_session(void *ctx, const struct inspect_session *s)
{
    return memchr(s->label, 0, sizeof s->label) == NULL;
}

static void inspect(void)
{
    struct observer o;
    if (observer_open(space_where(), &o))
        return;
    CHECK(inspect_locks(&o.locker, true, see_lock, NULL) <= 0);
    CHECK(inspect_sessions(&o.locker, see_session, NULL) <= 0);
    inspect_claims(&o.locker, 1, see_claim, NULL);
    observer_close(&o);
}

static pawl_key some_key(const struct round *r, struct rng *rng, char name[16])
{
    uint64_t which = rng_below(rng, KEYS);
    snprintf(name, 16, "key %u", (unsigned)which);
    return r->keys == PAWL_KEYS_NAMED ? pawl_name(name) : pawl_id(which);
}

static void submit_one(struct round *r, unsigned user, pawl *p, pawl_key key, enum pawl_mode mode)
{
    pawl_request request = {.op = PAWL_OP_LOCK, .mode = mode, .key = key, .deadline_ns = pawl_in(NS_PER_MS)};
    pawl_completion done;
    uint64_t id;
    count(r, user, pawl_submit(p, &request, &id));
    while (pawl_reap(p, &done, 1, pawl_in(5 * NS_PER_MS)) == 1)
        if (done.op == PAWL_OP_LOCK && !done.result)
            count(r, user, pawl_unlock(p, &done.grant));
}

static void use_once(struct round *r, unsigned user, pawl *p, struct rng *rng)
{
    char name[16];
    pawl_grant g;
    pawl_state state;
    enum pawl_mode mode = rng_below(rng, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    pawl_key key = some_key(r, rng, name);
    switch (rng_below(rng, 8)) {
    case 0:
        count(r, user, pawl_query(p, key, &state));
        break;
    case 1:
        submit_one(r, user, p, key, mode);
        break;
    case 2:
        inspect();
        break;
    default: {
        int rc = pawl_timedlock(p, key, mode, pawl_in(2 * NS_PER_MS), &g);
        count(r, user, rc);
        if (rc)
            break;
        count(r, user, pawl_check(p, &g));
        if (rng_below(rng, 3) == 0)
            count(r, user, pawl_convert(p, &g, mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED, pawl_in(NS_PER_MS)));
        count(r, user, pawl_unlock(p, &g));
    }
    }
}

static void use(struct round *r, unsigned user)
{
    struct rng rng;
    rng_seed(&rng, r->number * USERS + user);
    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        pawl_options o = {.flags = PAWL_NO_CREATE, .lease_ns = NS_PER_S};
        pawl *p;
        int rc = pawl_open(space_where(), &o, &p);
        count(r, user, rc);
        if (rc) {
            pause_ns(NS_PER_MS);
            continue;
        }
        for (unsigned i = 0; i < 200 && !__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE); i++)
            use_once(r, user, p, &rng);
        count(r, user, pawl_close(p));
    }
}

static void first_user(void *arg)
{
    use(arg, 0);
}

static void second_user(void *arg)
{
    use(arg, 1);
}

/* ---- the one that writes ---- */

/* Places that the code reads numbers from. Sessions should live for a while: their slots, and the rest of the memory, are rare. */
static uint64_t some_place(const struct round *r, const struct layout_header *h, struct rng *rng)
{
    uint64_t cell = h->cells + rng_below(rng, h->buckets) * h->cell_bytes;
    uint64_t area = rng_below(rng, 1000);
    if (area < 700)
        return cell + 16 + rng_below(rng, 16) / 12 * 8; /* the lock's word, or the high part of its token */
    if (area < 850)
        return h->records + rng_below(rng, (uint64_t)h->slot_count * h->record_count) * 8;
    if (area < 950)
        return cell + rng_below(rng, 16); /* key and state */
    if (area < 996)
        return h->names + rng_below(rng, h->total_bytes - h->names + 1);
    if (area < 998)
        return h->slots + rng_below(rng, h->slot_count * sizeof(struct slot));
    return r->header ? rng_below(rng, sizeof *h) : rng_below(rng, h->total_bytes - LAYOUT_HEADER_BYTES) + LAYOUT_HEADER_BYTES;
}

/* Numbers that fields of words have: all zeroes, all ones, one field, anything. */
static uint64_t some_value(struct rng *rng, uint64_t was)
{
    switch (rng_below(rng, 6)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return was ^ UINT64_C(1) << rng_below(rng, 64);
    case 3:
        return was ^ rng_next(rng) << 32;
    case 4:
        return (was & FIELD_MAX(36)) | rng_next(rng) << 36;
    default:
        return rng_next(rng);
    }
}

static void scribble(void *arg)
{
    struct round *r = arg;
    struct rng rng;
    rng_seed(&rng, 1000 + r->number);
    int fd = open(space_path(), O_RDWR | O_CLOEXEC);
    struct layout_header h;
    CHECK_EQ(pread(fd, &h, sizeof h, 0), (ssize_t)sizeof h);
    uint64_t *words = mmap(NULL, h.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(words != MAP_FAILED);
    uint64_t until = pawl_in(ROUND_NS), half = pawl_in(ROUND_NS / 2);
    while (pawl_now() < until && (!r->shorter || pawl_now() < half)) {
        uint64_t *at = &words[some_place(r, &h, &rng) % h.total_bytes / 8];
        __atomic_store_n(at, some_value(&rng, *at), __ATOMIC_RELAXED);
        if (rng_below(&rng, 16) == 0)
            pause_ns(10 * NS_PER_US);
    }
    if (r->shorter) /* the mapping here must not be touched any more */
        CHECK_EQ(ftruncate(fd, (off_t)rng_below(&rng, h.total_bytes)), 0);
    while (pawl_now() < until)
        pause_ns(NS_PER_MS);
}

/* ---- rounds ---- */

static void join_in_time(pid_t pid, const struct round *r)
{
    int status;
    uint64_t limit = pawl_in(STOP_NS);
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (pawl_now() > limit)
            CHECK_FAIL("round %u: a process hangs although the memory is left alone", r->number);
        pause_ns(NS_PER_MS);
    }
    CHECK_EQ(got, pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        CHECK_FAIL("round %u: a process ended with status 0x%x", r->number, (unsigned)status);
}

static uint64_t run_round(struct round *r)
{
    pawl_options o = {.design = r->design, .keys = r->keys, .capacity = 64, .sessions = 8, .holds = 8, .permissions = 0666};
    pawl *p;
    space_reset();
    CHECK_OK(pawl_open(space_where(), &o, &p));
    CHECK_OK(pawl_close(p));
    pid_t users[] = {child_start(first_user, r), child_start(second_user, r)};
    WAIT_FOR(r->calls[0] && r->calls[1]);
    child_join(child_start(scribble, r));
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < USERS; i++)
        join_in_time(users[i], r);
    return r->failures[0] + r->failures[1];
}

/* ---- a process that does nothing while the file becomes shorter ---- */

static void note_loss(void *ctx, int why)
{
    __atomic_store_n((int *)ctx, why, __ATOMIC_RELEASE);
}

static void idle_user(void *arg)
{
    uint32_t *ready = arg;
    pawl_options o = {.flags = PAWL_NO_CREATE, .lease_ns = NS_PER_S};
    pawl_grant g;
    pawl *p;
    int why = 0;
    CHECK_OK(pawl_open(space_where(), &o, &p));
    CHECK_OK(pawl_on_lost(p, note_loss, &why));
    CHECK_OK(pawl_lock(p, pawl_name("idle"), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(ready, 1, __ATOMIC_RELEASE);
    WAIT_FOR(__atomic_load_n(&why, __ATOMIC_ACQUIRE)); /* the library's thread is the first to touch the memory */
    CHECK_RC(pawl_check(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    pawl_close(p);
}

static void shorter_while_idle(void)
{
    pawl_options o = {.sessions = 8, .permissions = 0666};
    uint32_t *ready = shared_memory(sizeof *ready);
    pawl *p;
    space_reset();
    CHECK_OK(pawl_open(space_where(), &o, &p));
    CHECK_OK(pawl_close(p));
    pid_t user = child_start(idle_user, ready);
    WAIT_FOR(__atomic_load_n(ready, __ATOMIC_ACQUIRE));
    CHECK_EQ(truncate(space_path(), 0), 0);
    child_join(user);
}

int main(void)
{
    struct round *r = shared_memory(sizeof *r);
    uint64_t failures = 0, shorter = 0;
    space_where();
    shorter_while_idle();
    for (unsigned i = 0; i < ROUNDS; i++) {
        memset(r, 0, sizeof *r);
        r->number = i;
        r->shorter = i % 4 == 3;
        r->header = i % 4 == 1;
        r->keys = i % 3 == 0 ? PAWL_KEYS_SPARSE : PAWL_KEYS_NAMED;
        r->design = i % 5 == 4 ? "mutex" : "word";
        uint64_t failed = run_round(r);
        failures += failed;
        shorter += r->shorter ? failed : 0;
    }
    CHECK(failures > 0 && shorter > 0); /* else the writer wrote nothing that matters */
    printf("%u rounds, %" PRIu64 " calls failed and no process did\n", ROUNDS, failures);
    return 0;
}
