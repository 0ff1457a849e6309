/* SPDX-License-Identifier: Apache-2.0 */
/* Data beside locks over real UDP that loses, doubles and delays packets, with locks in the switch and on servers: processes have
 * their lock's data server count, in one round trip or under a lock that they hold, and some of them are killed. The data server
 * records what it did, and that must agree with the replies that the processes got. */
#include "lib/rng.h"
#include "tests/tuned.h"
#include "tests/udp/rack.h"

#include <errno.h>
#include <inttypes.h>

#define LOCKS 8
#define HOSTS 2
#define WORKERS 6
#define LIVES 10
#define ORDERS_STEP 8     /* numbers that a turn of a worker's can use */
#define ORDERS_EACH 20000 /* of one life of a worker: more than it gets done before it is killed */
#define ORDERS (LIVES * ORDERS_EACH)
#define LEASE_NS (1 * NS_PER_S)

struct order {
    uint32_t worker, number;
};

enum told { TOLD_NOTHING, TOLD_DONE, TOLD_NOT };

static struct ledger {
    uint8_t done[WORKERS][ORDERS], told[WORKERS][ORDERS]; /* how often; enum told */
    uint64_t count[LOCKS], token[LOCKS];                  /* of writes */
    uint64_t successes, kept, together, timeouts, unknown, lost;
    uint32_t stop;
} * ledger;

static size_t apply(void *ctx, const pawl_work *w, void *reply, size_t room)
{
    struct order o;
    (void)ctx;
    CHECK(w->len == sizeof o && w->lock < LOCKS && room >= sizeof(uint64_t));
    memcpy(&o, w->bytes, sizeof o);
    CHECK(o.worker < WORKERS && o.number < ORDERS);
    __atomic_add_fetch(&ledger->done[o.worker][o.number], 1, __ATOMIC_SEQ_CST);
    CHECK(w->token >= ledger->token[w->lock]);
    uint64_t before = ledger->count[w->lock];
    if (w->mode == PAWL_EXCLUSIVE) {
        ledger->token[w->lock] = w->token;
        ledger->count[w->lock]++;
    }
    memcpy(reply, &before, sizeof before);
    return sizeof before;
}

struct worker {
    unsigned number;
    uint64_t seed;
};

/* Once more under the lock: no other client has counted meanwhile, while it is certainly held. */
static int again(pawl *p, const pawl_grant *g, struct order o, uint64_t expected)
{
    uint64_t found = 0;
    pawl_call call = {.bytes = &o, .len = sizeof o, .reply = &found, .room = sizeof found};
    int rc = pawl_hold_call(p, g, pawl_in(LEASE_NS), &call);
    if (!rc && !pawl_check(p, g))
        CHECK_EQ(found, expected);
    return rc;
}

static void note(const struct worker *w, uint32_t number, int rc)
{
    bool open = rc == -PAWL_EUNKNOWN || rc == -PAWL_ELOST;
    if (rc && !open && rc != -ECANCELED && rc != -ETIMEDOUT && rc != -PAWL_EHELD && rc != -EAGAIN)
        CHECK_FAIL("order %u of worker %u: %d (%s; %s)", number, w->number, rc, pawl_strerror(rc), pawl_explain());
    __atomic_store_n(&ledger->told[w->number][number], open ? TOLD_NOTHING : rc ? TOLD_NOT : TOLD_DONE, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(!rc ? &ledger->successes : open ? &ledger->unknown : &ledger->timeouts, 1, __ATOMIC_SEQ_CST);
}

#define TOGETHER 6 /* orders in the air at once, of one worker */

/* One of several that were submitted; its order's number is in `user`. */
static pawl_completion reap(pawl *p)
{
    pawl_completion c;
    CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(LIMIT_NS)), 1);
    return c;
}

static uint64_t submit(pawl *p, pawl_request r, uint32_t number, pawl_call *call)
{
    uint64_t id;
    r.call = call;
    r.user = (void *)(uintptr_t)number;
    CHECK_OK(pawl_submit(p, &r, &id));
    return id;
}

/* Several at once, of which the first keeps its lock, and does something under it. Whether the session was lost. */
static bool work_together(const struct worker *w, pawl *p, struct rng *rng, uint32_t n)
{
    struct order orders[TOGETHER + 1];
    uint64_t replies[TOGETHER + 1], keeper = 0;
    pawl_call calls[TOGETHER + 1];
    pawl_grant kept = {0};
    uint64_t first = rng_below(rng, LOCKS);
    bool lost = false;
    for (unsigned i = 0; i <= TOGETHER; i++) {
        orders[i] = (struct order){.worker = w->number, .number = n + i};
        calls[i] = (pawl_call){.bytes = &orders[i], .len = sizeof orders[i], .reply = &replies[i], .room = sizeof replies[i]};
    }
    for (unsigned i = 0; i < TOGETHER; i++) {
        const pawl_request r = {.op = i ? PAWL_OP_CALL : PAWL_OP_LOCK,
                                .mode = rng_below(rng, 3) ? PAWL_EXCLUSIVE : PAWL_SHARED,
                                .key =
                                    pawl_id((first + (i ? 1 + rng_below(rng, LOCKS - 1) : 0)) % LOCKS), /* else it waits for us */
                                .deadline_ns = pawl_in(NS_PER_S / 2)};
        uint64_t id = submit(p, r, n + i, &calls[i]);
        keeper = i ? keeper : id;
        if (i && rng_below(rng, 16) == 0)
            pawl_cancel(p, id);
    }
    for (unsigned i = 0; i < TOGETHER; i++) {
        pawl_completion c = reap(p);
        note(w, (uint32_t)(uintptr_t)c.user, c.result);
        lost |= c.result == -PAWL_ELOST;
        if (c.id == keeper && !c.result)
            kept = c.grant;
        else
            CHECK(c.result || !c.grant.serial);
    }
    if (kept.serial) {
        submit(p, (pawl_request){.op = PAWL_OP_HOLD_CALL, .grant = kept, .deadline_ns = pawl_in(LEASE_NS)}, n + TOGETHER,
               &calls[TOGETHER]);
        pawl_completion c = reap(p);
        note(w, n + TOGETHER, c.result);
        if (!c.result && !pawl_check(p, &kept))
            CHECK_EQ(replies[TOGETHER], replies[0] + (kept.mode == PAWL_EXCLUSIVE));
        submit(p, (pawl_request){.op = PAWL_OP_UNLOCK, .grant = kept}, 0, NULL);
        c = reap(p);
        CHECK(!c.result || c.result == -PAWL_ELOST);
        lost |= c.result == -PAWL_ELOST;
        __atomic_add_fetch(&ledger->together, 1, __ATOMIC_SEQ_CST);
    }
    return lost;
}

static pawl *open_anew(const struct worker *w, pawl *p)
{
    __atomic_add_fetch(&ledger->lost, 1, __ATOMIC_SEQ_CST);
    pawl_close(p);
    return rack_open(w->number % HOSTS, NULL);
}

static void work(void *arg)
{
    const struct worker *w = arg;
    struct rng rng;
    pawl *p = rack_open(w->number % HOSTS, NULL);
    rng_seed(&rng, w->seed);
    uint32_t n = (uint32_t)w->seed, last = n + ORDERS_EACH; /* another process may have had the numbers before */
    for (; !__atomic_load_n(&ledger->stop, __ATOMIC_ACQUIRE); n += ORDERS_STEP) {
        if (n == last) { /* on a very quick machine */
            pause_ns(NS_PER_MS);
            n -= ORDERS_STEP;
            continue;
        }
        if (rng_below(&rng, 4) == 0) {
            if (work_together(w, p, &rng, n))
                p = open_anew(w, p);
            continue;
        }
        struct order o = {.worker = w->number, .number = n}, second = {.worker = w->number, .number = n + 1};
        uint64_t lock = rng_below(&rng, LOCKS), before = 0;
        enum pawl_mode mode = rng_below(&rng, 3) ? PAWL_EXCLUSIVE : PAWL_SHARED;
        bool keeps = rng_below(&rng, 3) == 0;
        pawl_call call = {.bytes = &o, .len = sizeof o, .reply = &before, .room = sizeof before};
        pawl_grant g;
        uint64_t deadline = rng_below(&rng, 8) ? pawl_in(NS_PER_S / 2) : rng_below(&rng, 2) ? PAWL_TRY : pawl_in(NS_PER_MS);
        int rc = pawl_lock_call(p, pawl_id(lock), mode, deadline, &call, keeps ? &g : NULL);
        note(w, n, rc);
        if (!rc && keeps) {
            rc = again(p, &g, second, before + (mode == PAWL_EXCLUSIVE));
            note(w, n + 1, rc);
            int end = pawl_unlock(p, &g);
            CHECK(!end || end == -PAWL_ELOST);
            __atomic_add_fetch(&ledger->kept, 1, __ATOMIC_SEQ_CST);
        }
        if (rc == -PAWL_ELOST)
            p = open_anew(w, p);
    }
    CHECK_OK(pawl_close(p));
}

static uint64_t check_ledger(void)
{
    uint64_t done = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        for (unsigned n = 0; n < ORDERS; n++) {
            uint8_t times = ledger->done[i][n], told = ledger->told[i][n];
            done += times;
            if (times > 1 || (told == TOLD_DONE && !times) || (told == TOLD_NOT && times))
                CHECK_FAIL("order %u of worker %u: done %u times, its client was told %u", n, i, times, told);
        }
    return done;
}

static bool has_done_enough(void)
{
    return __atomic_load_n(&ledger->successes, __ATOMIC_SEQ_CST) > 100 && __atomic_load_n(&ledger->kept, __ATOMIC_SEQ_CST) > 10 &&
           __atomic_load_n(&ledger->together, __ATOMIC_SEQ_CST) > 10;
}

/* For so long, and on a machine that has little time for us until something was done. */
static void campaign(const struct rack_test *t, uint64_t ns)
{
    struct worker workers[WORKERS];
    pid_t pids[WORKERS];
    uint64_t seed = 0;
    memset(ledger, 0, sizeof *ledger);
    rack_begin(t);
    uint64_t end = pawl_in(ns), limit = pawl_in(ns + LIMIT_NS);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.number = i};
        pids[i] = child_start(work, &workers[i]);
    }
    for (unsigned victim = 0; pawl_now() < (has_done_enough() ? end : limit); victim = (victim + 1) % WORKERS) {
        nanosleep(&(struct timespec){.tv_nsec = 300 * NS_PER_MS}, NULL);
        seed += ORDERS_EACH;
        if (seed + ORDERS_EACH > ORDERS)
            continue;
        child_kill(pids[victim]);
        workers[victim].seed = seed;
        pids[victim] = child_start(work, &workers[victim]);
    }
    __atomic_store_n(&ledger->stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < WORKERS; i++)
        child_join(pids[i]);
    uint64_t done = check_ledger();
    printf("%" PRIu64 " orders done, %" PRIu64 " told of, %" PRIu64 " with the lock kept, %" PRIu64 " of them submitted; %" PRIu64
           " given up, %" PRIu64 " unknown, %" PRIu64 " sessions lost\n",
           done, ledger->successes, ledger->kept + ledger->together, ledger->together, ledger->timeouts, ledger->unknown,
           ledger->lost);
    CHECK(has_done_enough());
    rack_end();
}

int main(void)
{
    struct rack_test t = {.design = "netlock",
                          .servers = 2,
                          .locks = LOCKS,
                          .lease_ns = LEASE_NS,
                          .apply = apply,
                          .faults = {.loss = 30, .duplicate = 100, .late = 50, .late_ns = 20 * NS_PER_MS},
                          .seed = 1};
    ledger = shared_memory(sizeof *ledger);
    uint64_t ns = min_u64(test_seconds(), 60) * NS_PER_S / 24;
    campaign(&t, ns);
    t.knobs = tuned(design_find("netlock"), "servers-only", 1); /* locks and data on the same server */
    campaign(&t, ns);
    return 0;
}
