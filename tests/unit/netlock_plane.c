/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch program: Algorithm 2 case by case, its resubmissions, what it does with doubled, late and forged packets, and
 * passes of many packets in any order. The busted variants show that the checks can fail. */
#include "designs/netlock/plane.h"
#include "lib/rng.h"
#include "tests/check.h"

#define HOSTS 4
#define PER_HOST 8
#define LOCK 7

static struct plane *plane_few(uint16_t size, uint16_t wait_size, uint16_t levels, uint16_t mistakes, uint32_t *lock)
{
    const struct plane_config config = {.slots = 512, .locks = 4, .requests = 64, .stride = PER_HOST, .tenants = 4};
    struct plane *p = calloc(1, plane_bytes(&config));
    CHECK(p);
    plane_init(p, &config);
    p->mistakes = mistakes;
    const struct plane_region r = {.left = 16, .size = size, .wait_size = wait_size, .levels = levels};
    CHECK_EQ(plane_install(p, LOCK, &r, lock), 0);
    CHECK_EQ(plane_match(p, LOCK), *lock);
    CHECK_EQ(plane_match(p, LOCK + 1), PLANE_NO_LOCK);
    return p;
}

static struct plane *plane_new(uint16_t size, uint16_t wait_size, uint16_t mistakes, uint32_t *lock)
{
    return plane_few(size, wait_size, 0, mistakes, lock);
}

struct result {
    unsigned passes, grants, out;
    bool lows; /* after the last pass: requests of low priorities may wait at the server */
    uint64_t granted[16];
    uint32_t ticket[16];
    uint16_t port[16];
};

static struct netlock_pass packet(uint8_t op, unsigned who, uint64_t serial, uint8_t mode)
{
    return (struct netlock_pass){.op = op,
                                 .mode = mode,
                                 .machine = (uint16_t)(1 + who / PER_HOST),
                                 .port = (uint16_t)who,
                                 .nonce = serial * NETLOCK_SERIAL_STEP + who % PER_HOST};
}

static struct result run(struct plane *p, uint32_t lock, struct netlock_pass pass)
{
    struct result r = {.passes = 0};
    do {
        if (r.passes++)
            netlock_resubmit(&pass);
        plane_pass(p, lock, &pass);
        r.out |= pass.out;
        r.lows = pass.lows;
        if (pass.out & NETLOCK_OUT_GRANT) {
            r.ticket[r.grants] = pass.out_ticket;
            r.port[r.grants] = pass.out_place.port;
            r.granted[r.grants++] = pass.out_nonce;
        }
        CHECK(r.passes < 100);
    } while (pass.next != NETLOCK_OP_NONE);
    return r;
}

static struct result acquire(struct plane *p, uint32_t lock, unsigned who, uint8_t mode)
{
    return run(p, lock, packet(NETLOCK_OP_ACQUIRE, who, 1, mode));
}

static struct result release(struct plane *p, uint32_t lock, unsigned who, uint32_t ticket)
{
    struct netlock_pass pass = packet(NETLOCK_OP_RELEASE, who, 1, NETLOCK_SHARED); /* says shared whatever it has */
    pass.ticket = ticket;
    return run(p, lock, pass);
}

#define S NETLOCK_SHARED
#define X NETLOCK_EXCLUSIVE

/* The four cases of Fig. 6; resubmissions as Algorithm 2 has them. */
static void test_cases(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    struct result r = acquire(p, lock, 0, X);
    CHECK(r.grants == 1 && r.passes == 1);
    CHECK_EQ(acquire(p, lock, 1, X).grants, 0);
    CHECK_EQ(acquire(p, lock, 2, S).grants, 0);
    CHECK_EQ(acquire(p, lock, 3, S).grants, 0);
    CHECK_EQ(acquire(p, lock, 4, X).grants, 0);
    r = release(p, lock, 0, r.ticket[0]); /* exclusive to exclusive: lines 12, 16 */
    CHECK(r.grants == 1 && r.passes == 2 && r.out & NETLOCK_OUT_RELEASED && r.granted[0] % (1u << NETLOCK_SLOT_BITS) == 1);
    r = release(p, lock, 1, r.ticket[0]); /* exclusive to two shared: lines 12, 21, 27 */
    CHECK(r.grants == 2 && r.passes == 4);
    CHECK_EQ(acquire(p, lock, 5, S).grants, 0); /* behind a writer */
    struct result two = r;
    r = release(p, lock, 2, two.ticket[0]); /* shared to shared */
    CHECK(r.grants == 0 && r.passes == 2);
    r = release(p, lock, 3, two.ticket[1]); /* shared to exclusive */
    CHECK(r.grants == 1 && r.passes == 2);
    r = release(p, lock, 4, r.ticket[0]);
    CHECK(r.grants == 1 && r.passes == 3);
    r = release(p, lock, 5, r.ticket[0]); /* the last one: the end of the queue is seen */
    CHECK(r.grants == 0 && r.passes == 2);
    CHECK_EQ(plane_get(p, NETLOCK_EXCL, lock), 0);
    free(p);
}

/* Readers release in any order: as many resubmissions altogether. */
static void test_out_of_order(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    uint32_t ticket[3];
    for (unsigned i = 0; i < 3; i++)
        ticket[i] = acquire(p, lock, i, S).ticket[0];
    CHECK_EQ(acquire(p, lock, 3, X).grants, 0);
    unsigned passes = 0;
    struct result r = release(p, lock, 2, ticket[2]);
    passes += r.passes;
    CHECK_EQ(r.grants, 0);
    r = release(p, lock, 1, ticket[1]);
    passes += r.passes;
    CHECK_EQ(r.grants, 0);
    r = release(p, lock, 0, ticket[0]);
    passes += r.passes;
    CHECK_EQ(r.grants, 1);
    CHECK_EQ(passes, 6);
    free(p);
}

/* Pitfalls 1 and 2: doubled, late and forged releases change nothing; a doubled ACQUIRE is answered as before. */
static void test_doubles(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    uint32_t first = acquire(p, lock, 0, X).ticket[0];
    CHECK_EQ(acquire(p, lock, 1, X).grants, 0);
    struct result again = acquire(p, lock, 0, X);
    CHECK(again.grants == 1 && again.ticket[0] == first && again.passes == 1);
    CHECK_EQ(acquire(p, lock, 1, X).grants, 0);
    CHECK_EQ(release(p, lock, 5, first).grants, 0); /* not its own */
    struct result r = release(p, lock, 0, first);
    CHECK_EQ(r.grants, 1);
    CHECK_EQ(release(p, lock, 0, first).grants, 0);
    CHECK_EQ(release(p, lock, 0, r.ticket[0]).grants, 0); /* another's ticket */
    CHECK_EQ(release(p, lock, 0, NETLOCK_NO_TICKET).grants, 0);
    CHECK(acquire(p, lock, 0, X).out & NETLOCK_OUT_GONE); /* late: it was granted and has ended */
    CHECK_EQ(plane_get(p, NETLOCK_EXCL, lock), 1);
    free(p);
}

/* Any process of a host may ask for another, and be gone when the grant comes: it goes to where the request was last asked from. */
static void test_asked_by_another(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    struct netlock_pass holds = packet(NETLOCK_OP_ACQUIRE, 0, 1, X), waits = packet(NETLOCK_OP_ACQUIRE, 1, 1, X);
    uint32_t first = run(p, lock, holds).ticket[0];
    holds.port = 77;
    struct result r = run(p, lock, holds);
    CHECK(r.grants == 1 && r.ticket[0] == first && r.port[0] == 77);
    CHECK_EQ(run(p, lock, waits).grants, 0);
    waits.port = 78;
    CHECK_EQ(run(p, lock, waits).grants, 0);
    waits.machine++; /* another host's request of the same number is another request */
    waits.port = 79;
    CHECK_EQ(run(p, lock, waits).grants, 0);
    r = release(p, lock, 0, first);
    CHECK(r.grants == 1 && r.port[0] == 78);
    free(p);
}

/* Pitfall 5: waiters that gave up are skipped, readers behind a writer that gave up go ahead; a cancel that comes first wins. */
static void test_giving_up(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    uint32_t first = acquire(p, lock, 0, S).ticket[0];
    CHECK_EQ(acquire(p, lock, 1, X).grants, 0);
    CHECK_EQ(acquire(p, lock, 2, S).grants, 0);
    CHECK_EQ(acquire(p, lock, 3, X).grants, 0);
    struct result r = run(p, lock, packet(NETLOCK_OP_CANCEL, 1, 1, 0));
    CHECK(r.grants == 1 && r.out & NETLOCK_OUT_RELEASED);
    uint32_t reader = r.ticket[0];
    CHECK_EQ(run(p, lock, packet(NETLOCK_OP_CANCEL, 1, 1, 0)).grants, 0);
    CHECK_EQ(release(p, lock, 0, first).grants, 0);
    r = release(p, lock, 2, reader);
    CHECK_EQ(r.grants, 1);
    CHECK(run(p, lock, packet(NETLOCK_OP_CANCEL, 3, 1, 0)).out & NETLOCK_OUT_RELEASED); /* gives back what it was granted */
    CHECK_EQ(plane_get(p, NETLOCK_EXCL, lock), 0);
    CHECK(run(p, lock, packet(NETLOCK_OP_CANCEL, 4, 2, 0)).out & NETLOCK_OUT_RELEASED);
    r = run(p, lock, packet(NETLOCK_OP_ACQUIRE, 4, 2, X));
    CHECK(r.grants == 0 && !r.out);
    CHECK_EQ(run(p, lock, packet(NETLOCK_OP_ACQUIRE, 4, 3, X)).grants, 1);
    /* A mere try leaves nothing behind. */
    struct netlock_pass try = packet(NETLOCK_OP_ACQUIRE, 5, 1, X);
    try.flags = NETLOCK_TRY;
    CHECK(run(p, lock, try).out & NETLOCK_OUT_HELD);
    CHECK_EQ(plane_get(p, NETLOCK_EXCL, lock), 1);
    free(p);
}

/* Overflow: a request that finds q1 full is passed on, and so are all later ones; pushes are counted; LAST counts only if no
 * request came since. */
static void test_overflow(void)
{
    uint32_t lock;
    struct plane *p = plane_new(2, 0, 0, &lock);
    uint32_t a = acquire(p, lock, 0, X).ticket[0];
    CHECK_EQ(acquire(p, lock, 1, X).out, 0);
    CHECK(acquire(p, lock, 2, X).out & NETLOCK_OUT_FORWARD);
    CHECK(acquire(p, lock, 2, X).out & NETLOCK_OUT_FORWARD); /* sent again: still not here */
    struct result r = release(p, lock, 0, a);
    CHECK(r.grants == 1 && !(r.out & NETLOCK_OUT_NOTIFY));
    CHECK(acquire(p, lock, 3, S).out & NETLOCK_OUT_FORWARD); /* there is room, but q2 comes first */
    r = release(p, lock, 1, r.ticket[0]);
    CHECK(r.out & NETLOCK_OUT_NOTIFY);
    struct netlock_pass push = packet(NETLOCK_OP_PUSH, 2, 1, X);
    push.pushed = 1;
    r = run(p, lock, push);
    CHECK(r.grants == 0 && r.out & NETLOCK_OUT_PUSHED); /* not its turn */
    push.pushed = 0;
    CHECK_EQ(run(p, lock, push).grants, 1);
    CHECK_EQ(run(p, lock, push).grants, 0);     /* doubled */
    CHECK_EQ(acquire(p, lock, 2, X).grants, 1); /* now known here: the grant again */
    struct netlock_pass last = packet(NETLOCK_OP_LAST, 0, 0, 0);
    last.count = 4;
    run(p, lock, last);
    CHECK(acquire(p, lock, 4, X).out & NETLOCK_OUT_FORWARD); /* five came: it is not over */
    last.count = 6;
    run(p, lock, last);
    CHECK_EQ(run(p, lock, packet(NETLOCK_OP_ACQUIRE, 5, 1, X)).out, 0); /* queued */
    free(p);
}

/* Pitfall 8: a low-priority holder releases while a high-priority one waits. */
static void test_priorities(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 4, 0, &lock);
    struct netlock_pass low = packet(NETLOCK_OP_ACQUIRE, 0, 1, X), mid = packet(NETLOCK_OP_ACQUIRE, 1, 1, S),
                        high = packet(NETLOCK_OP_ACQUIRE, 2, 1, X), third = packet(NETLOCK_OP_ACQUIRE, 3, 1, S);
    low.priority = 7;
    mid.priority = third.priority = 3;
    uint32_t ticket = run(p, lock, low).ticket[0];
    CHECK_EQ(run(p, lock, mid).grants, 0);
    CHECK_EQ(run(p, lock, high).grants, 0);
    CHECK_EQ(run(p, lock, third).grants, 0);
    struct result r = release(p, lock, 0, ticket);
    CHECK(r.grants == 1 && netlock_request_of(r.granted[0]) == 2);
    r = release(p, lock, 2, r.ticket[0]);
    CHECK(r.grants == 2 && netlock_request_of(r.granted[0]) == 1 && netlock_request_of(r.granted[1]) == 3);
    /* One that gave up while waiting is dropped. */
    struct netlock_pass late = packet(NETLOCK_OP_ACQUIRE, 4, 1, X);
    CHECK_EQ(run(p, lock, late).grants, 0);
    CHECK(run(p, lock, packet(NETLOCK_OP_CANCEL, 4, 1, 0)).out & NETLOCK_OUT_RELEASED);
    CHECK_EQ(plane_get(p, NETLOCK_WAITING, lock), 0);
    CHECK_EQ(release(p, lock, 1, r.ticket[0]).grants, 0);
    CHECK_EQ(release(p, lock, 3, r.ticket[1]).grants, 0);
    CHECK_EQ(acquire(p, lock, 5, X).grants, 1);
    free(p);
}

/* A waiting queue that is full: NOTIFY must say that there is no room, else a request that is pushed then is in no queue. */
static void test_full_priorities(void)
{
    uint32_t lock;
    struct plane *p = plane_new(2, 1, 0, &lock);
    acquire(p, lock, 0, X);
    acquire(p, lock, 1, X); /* waits; there is room for one */
    CHECK(acquire(p, lock, 2, X).out & NETLOCK_OUT_FORWARD);
    struct netlock_pass last = packet(NETLOCK_OP_LAST, 0, 0, 0);
    last.count = 2; /* the server has not heard of the third */
    CHECK(!(run(p, lock, last).out & NETLOCK_OUT_NOTIFY));
    /* A request that is pushed nevertheless is in no queue, and its client learns that. */
    struct result r = run(p, lock, packet(NETLOCK_OP_PUSH, 2, 1, X));
    CHECK((r.out & (NETLOCK_OUT_FORWARD | NETLOCK_OUT_PUSHED)) == NETLOCK_OUT_PUSHED);
    CHECK(acquire(p, lock, 2, X).out & NETLOCK_OUT_GONE);
    free(p);
}

/* A CALL that comes while the lock is held does not call the server: the release does. */
static void test_call_too_early(void)
{
    uint32_t lock;
    struct plane *p = plane_few(8, 4, 2, 0, &lock);
    struct netlock_pass low = packet(NETLOCK_OP_ACQUIRE, 1, 1, X);
    uint32_t ticket = acquire(p, lock, 0, X).ticket[0];
    low.priority = 7;
    struct result r = run(p, lock, low);
    CHECK(r.out == NETLOCK_OUT_FORWARD && r.lows); /* the control plane is told */
    CHECK(plane_lows(p, lock) && !plane_waiting(p, lock));
    CHECK_EQ(run(p, lock, packet(NETLOCK_OP_CALL, 0, 0, 0)).out, 0);
    CHECK(release(p, lock, 0, ticket).out & NETLOCK_OUT_NOTIFY);
    free(p);
}

/* Of eight priorities two have a queue here: the others wait at the server, and come when they are called. */
static void test_low(void)
{
    uint32_t lock;
    struct plane *p = plane_few(8, 4, 2, 0, &lock);
    CHECK_EQ(plane_region_slots(&(struct plane_region){.size = 8, .wait_size = 4, .levels = 2}), 16);
    struct netlock_pass low = packet(NETLOCK_OP_ACQUIRE, 0, 1, X), other = packet(NETLOCK_OP_ACQUIRE, 1, 1, S),
                        high = packet(NETLOCK_OP_ACQUIRE, 2, 1, X), last = packet(NETLOCK_OP_LAST, 0, 0, 0);
    low.priority = 2;
    other.priority = 7;
    high.priority = 1;
    struct result r = run(p, lock, low); /* it need not wait: it is granted */
    CHECK(r.grants == 1 && r.passes == 1);
    uint32_t ticket = r.ticket[0];
    r = run(p, lock, other);
    CHECK(!r.grants && r.passes == 2 && r.out == NETLOCK_OUT_FORWARD);
    CHECK(plane_lows(p, lock) && !plane_waiting(p, lock));
    CHECK_EQ(run(p, lock, high).out, 0); /* waits here */
    r = release(p, lock, 0, ticket);
    CHECK(r.grants == 1 && netlock_request_of(r.granted[0]) == 2 && !(r.out & NETLOCK_OUT_NOTIFY));
    struct netlock_pass early = packet(NETLOCK_OP_PUSH, 1, 1, S);
    early.priority = 7;
    struct plane *q = plane_few(8, 4, 2, 0, &lock); /* of another lock: not called, and not let in */
    run(q, lock, high);
    CHECK_EQ(run(q, lock, early).out, NETLOCK_OUT_PUSHED);
    CHECK(run(q, lock, other).out & NETLOCK_OUT_GONE);
    free(q);
    r = release(p, lock, 2, r.ticket[0]);
    CHECK(!r.grants && r.out & NETLOCK_OUT_NOTIFY);                                     /* the call */
    CHECK(run(p, lock, packet(NETLOCK_OP_ACQUIRE, 3, 1, X)).out & NETLOCK_OUT_FORWARD); /* after the one that is called */
    CHECK_EQ(run(p, lock, early).grants, 1);
    last.count = 5;
    last.flags = NETLOCK_LOW;
    CHECK_EQ(run(p, lock, last).out, 0); /* five came, the call among them; others wait there still */
    CHECK(plane_lows(p, lock) && !(plane_get(p, NETLOCK_ENDS, lock) & NETLOCK_OVER));
    CHECK_EQ(run(p, lock, packet(NETLOCK_OP_CANCEL, 4, 1, 0)).out, NETLOCK_OUT_FORWARD);
    last.flags = 0;
    last.count = 4;
    run(p, lock, last);
    CHECK(plane_lows(p, lock)); /* a request has come since */
    last.count = 5;
    run(p, lock, last);
    CHECK(!plane_lows(p, lock));
    free(p);
}

static void test_quota(void)
{
    uint32_t lock;
    struct plane *p = plane_new(8, 0, 0, &lock);
    const struct netlock_quota quota = {.rate = 1024, .burst = 2}; /* one in about a millisecond */
    CHECK_EQ(plane_quota(p, 1, &quota), 0);
    CHECK_EQ(plane_quota(p, 4, &quota), -22);
    unsigned refused = 0, wait = 0;
    for (unsigned i = 0; i < 20; i++) {
        struct netlock_pass pass = packet(NETLOCK_OP_ACQUIRE, i % 8, 1 + i, S);
        pass.tenant = 1;
        pass.now = 100000 + 100 * i;
        plane_pass(p, lock, &pass);
        if (pass.out & NETLOCK_OUT_QUOTA) {
            refused++;
            wait = pass.out_wait;
        } else {
            pass.op = NETLOCK_OP_RELEASE;
            pass.ticket = pass.out_ticket;
            run(p, lock, pass);
        }
    }
    CHECK_BETWEEN(refused, 16, 17);
    CHECK_BETWEEN(wait, 1, 1024);
    /* Another CPU looked at its clock just before, and comes after: that fills nothing. */
    for (unsigned i = 0; i < 4; i++)
        CHECK(plane_charge(p, 1, 1, 100 + i, 100000 + 1900 - i));
    CHECK_EQ(plane_charge(p, 1, 1, 200, 100000 + 1900 + 2048), 0);
    CHECK_EQ(plane_charge(p, 1, 1, 201, 100000 + 1900), 0);
    CHECK(plane_charge(p, 1, 1, 202, 100000 + 1900 + 10));
    CHECK_EQ(plane_charge(p, 1, 1, 201, 100000 + 1900 + 10), 0); /* the same request once more: it has paid */
    free(p);
}

static void test_regions(void)
{
    uint32_t lock, other, left;
    struct plane *p = plane_new(8, 0, 0, &lock);
    struct plane_region r = {.left = 20, .size = 8};
    CHECK_EQ(plane_install(p, LOCK, &r, &other), -17);
    CHECK_EQ(plane_install(p, 1, &r, &other), -22); /* overlaps */
    r = (struct plane_region){.left = 508, .size = 8};
    CHECK_EQ(plane_install(p, 1, &r, &other), -22); /* beyond the end */
    r = (struct plane_region){.left = 30, .size = 0};
    CHECK_EQ(plane_install(p, 1, &r, &other), -22);
    static const struct plane_region wrong[] = {
        {.left = 30, .size = NETLOCK_SIZE_MAX + 1},
        {.left = 30, .size = 8, .wait_size = UINT8_MAX + 1},
        {.left = 30, .size = 8, .levels = NETLOCK_PRIORITIES + 1},
        {.left = 0, .size = NETLOCK_SIZE_MAX, .wait_size = UINT8_MAX, .levels = NETLOCK_PRIORITIES}};
    for (unsigned i = 0; i < countof(wrong); i++)
        CHECK_EQ(plane_install(p, 1, &wrong[i], &other), -22);
    CHECK_EQ(plane_resize(p, lock, 0), -22);
    CHECK_EQ(plane_resize(p, lock, NETLOCK_SIZE_MAX + 1), -22);
    CHECK_EQ(plane_charge(p, 4, 1, NETLOCK_SERIAL_STEP, 1), 0); /* of no tenant that has a quota */
    CHECK_EQ(plane_room(p, LOCK, 17, &left), 0);
    CHECK_EQ(left, 24);
    CHECK_EQ(plane_room(p, LOCK, 16, &left), 0);
    CHECK_EQ(left, 0);
    CHECK_EQ(plane_room(p, LOCK, 489, &left), -28);
    for (uint64_t i = 0; i < 3; i++) {
        r = (struct plane_region){.left = (uint32_t)(30 + i), .size = 1};
        CHECK_EQ(plane_install(p, i, &r, &other), 0);
    }
    r.left = 40;
    CHECK_EQ(plane_install(p, 99, &r, &other), -28);
    plane_remove(p, plane_match(p, 1));
    CHECK_EQ(plane_match(p, 1), PLANE_NO_LOCK);
    CHECK(plane_match(p, 0) != PLANE_NO_LOCK && plane_match(p, 2) != PLANE_NO_LOCK && plane_match(p, LOCK) == lock);
    CHECK_EQ(plane_install(p, 99, &r, &other), 0);
    free(p);
}

/* A lock that slides to the left leaves its old slots free, and one that cannot slide keeps its own. */
static void test_slide(void)
{
    uint32_t lock, other, left;
    struct plane *p = plane_new(8, 0, 0, &lock); /* slots 16 to 23 */
    struct plane_region r = {.left = 40, .size = 4};
    CHECK_EQ(plane_install(p, 1, &r, &other), 0);
    CHECK(plane_slide(p, other));
    CHECK_EQ(plane_region(p, other).left, 0);
    CHECK(!plane_slide(p, other)); /* nothing is free to its left */
    CHECK_EQ(plane_region(p, other).left, 0);
    CHECK_EQ(plane_room(p, 1, 488, &left), 0); /* all that there is behind the other lock */
    CHECK_EQ(left, 24);
    CHECK(plane_slide(p, lock));
    CHECK_EQ(plane_region(p, lock).left, 4);
    CHECK_EQ(plane_room(p, 1, 500, &left), 0);
    CHECK_EQ(left, 12);
    CHECK_EQ(plane_resize(p, lock, 0), -22);
    CHECK_EQ(plane_resize(p, lock, 500), 0);
    CHECK_EQ(plane_region(p, lock).size, 500);
    CHECK_EQ(plane_resize(p, lock, 509), -28);
    CHECK_EQ(plane_region(p, lock).size, 500);
    CHECK_EQ(plane_room(p, 1, 9, &left), -28);
    CHECK_EQ(plane_room(p, 1, 8, &left), 0);
    free(p);
}

/* ---- passes in any order ---- */

#define FLIGHT 32
#define CLIENTS (HOSTS * PER_HOST)

struct client {
    uint64_t serial;
    uint32_t ticket;
    uint64_t order; /* of its entry into the queue */
    uint8_t mode, priority, state;
    uint8_t want;  /* CONVERTS, STAYS: instead of mode; a writer that converts to shared is a reader at once */
    uint16_t step; /* of its conversions */
};

enum { IDLE, WAITS, HOLDS, CONVERTS, STAYS, LEAVES };

struct shuffle {
    struct plane *plane;
    uint32_t lock;
    struct rng random;
    struct netlock_pass flight[FLIGHT];
    unsigned flying;
    struct client clients[CLIENTS];
    uint64_t token, grants, violations, unwanted, upgrades, downgrades, deadlocks;
    /* A server, as simple as can be: a queue of requests that were passed to it; one push at a time, and only when it is called. */
    struct netlock_pass queue[CLIENTS];
    unsigned queued;
    uint64_t passed[CLIENTS]; /* the latest serial of each that came here */
    struct netlock_pass push; /* on its way; without a nonce: none */
    uint32_t closed;
    uint64_t low_grants, overflowed;
};

static void launch(struct shuffle *s, struct netlock_pass pass)
{
    if (s->flying < FLIGHT)
        s->flight[s->flying++] = pass;
}

static struct netlock_pass of_client(struct shuffle *s, unsigned who, uint8_t op)
{
    struct netlock_pass pass = packet(op, who, s->clients[who].serial, s->clients[who].mode);
    pass.ticket = s->clients[who].ticket;
    pass.priority = s->clients[who].priority;
    pass.step = s->clients[who].step % NETLOCK_STEPS;
    if (op == NETLOCK_OP_CONVERT || op == NETLOCK_OP_STAY)
        pass.mode = s->clients[who].want;
    return pass;
}

static bool is_held(const struct client *c)
{
    return c->state == HOLDS || c->state == CONVERTS || c->state == STAYS;
}

static void check_holders(struct shuffle *s)
{
    unsigned readers = 0, writers = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        readers += is_held(&s->clients[i]) && s->clients[i].mode == S;
        writers += is_held(&s->clients[i]) && s->clients[i].mode == X;
    }
    s->violations += writers > 1 || (writers && readers);
}

static void on_grant(struct shuffle *s, const struct netlock_pass *p)
{
    unsigned who = (p->out_place.machine - 1u) * PER_HOST + netlock_request_of(p->out_nonce);
    struct client *c = &s->clients[who];
    bool same = p->out_nonce >> NETLOCK_SLOT_BITS == c->serial * 2;
    s->violations += p->out_token <= s->token;
    s->token = p->out_token;
    if (same && c->state == WAITS) {
        c->state = HOLDS;
        c->ticket = p->out_ticket;
        s->grants++;
        check_holders(s);
    } else if (!same || (is_held(c) && c->ticket != p->out_ticket) || c->state == IDLE) {
        struct netlock_pass back = packet(NETLOCK_OP_RELEASE, who, 0, X);
        back.nonce = p->out_nonce;
        back.ticket = p->out_ticket;
        s->unwanted++;
        launch(s, back);
    }
}

/* It is not a writer any more as it asks; it is one when it hears. */
static void begin_conversion(struct shuffle *s, unsigned who)
{
    struct client *c = &s->clients[who];
    c->want = c->mode == S ? X : S;
    c->mode = S;
    c->step++;
    c->state = CONVERTS;
    launch(s, of_client(s, who, NETLOCK_OP_CONVERT));
    if (rng_chance(&s->random, 1, 4))
        launch(s, of_client(s, who, NETLOCK_OP_CONVERT));
}

static void on_converted(struct shuffle *s, const struct netlock_pass *p)
{
    struct client *c = &s->clients[(p->out_place.machine - 1u) * PER_HOST + netlock_request_of(p->out_nonce)];
    bool same = p->out_nonce >> NETLOCK_SLOT_BITS == c->serial * 2 && p->step == c->step % NETLOCK_STEPS;
    s->violations += p->out_token <= s->token;
    s->token = p->out_token;
    if (!same || (c->state != CONVERTS && c->state != STAYS) || p->out_mode != c->want)
        return;
    c->state = HOLDS;
    c->mode = c->want;
    ++*(c->mode == X ? &s->upgrades : &s->downgrades);
    check_holders(s);
}

static void step_client(struct shuffle *s)
{
    unsigned who = (unsigned)rng_below(&s->random, CLIENTS);
    struct client *c = &s->clients[who];
    switch (c->state) {
    case IDLE:
        c->serial++;
        c->mode = rng_chance(&s->random, 1, 2) ? S : X;
        c->priority = (uint8_t)rng_below(&s->random, NETLOCK_PRIORITIES);
        c->state = WAITS;
        launch(s, of_client(s, who, NETLOCK_OP_ACQUIRE));
        break;
    case WAITS:
        if (rng_chance(&s->random, 1, 10)) {
            c->state = LEAVES;
            launch(s, of_client(s, who, NETLOCK_OP_CANCEL));
        } else {
            launch(s, of_client(s, who, NETLOCK_OP_ACQUIRE));
        }
        break;
    case CONVERTS:
        if (c->want == X && rng_chance(&s->random, 1, 6))
            c->state = STAYS;
        launch(s, of_client(s, who, c->state == STAYS ? NETLOCK_OP_STAY : NETLOCK_OP_CONVERT));
        break;
    case STAYS:
        launch(s, of_client(s, who, NETLOCK_OP_STAY));
        break;
    case HOLDS:
        if (rng_chance(&s->random, 1, 3)) {
            begin_conversion(s, who);
            break;
        }
        c->step = 0;
        c->state = IDLE;
        launch(s, of_client(s, who, NETLOCK_OP_RELEASE));
        if (rng_chance(&s->random, 1, 4))
            launch(s, of_client(s, who, NETLOCK_OP_RELEASE));
        break;
    default:
        launch(s, of_client(s, who, NETLOCK_OP_CANCEL));
        break;
    }
}

static void server_passed(struct shuffle *s, const struct netlock_pass *p)
{
    unsigned who = (p->machine - 1u) * PER_HOST + netlock_request_of(p->nonce);
    uint64_t serial = p->nonce / NETLOCK_SERIAL_STEP;
    for (unsigned i = 0; i < s->queued; i++)
        if (s->queue[i].machine == p->machine && netlock_request_of(s->queue[i].nonce) == netlock_request_of(p->nonce)) {
            if (p->op == NETLOCK_OP_CANCEL || s->queue[i].nonce != p->nonce) /* given up, or asked for anew since */
                memmove(&s->queue[i], &s->queue[i + 1], (--s->queued - i) * sizeof s->queue[0]);
            break;
        }
    if (p->op == NETLOCK_OP_CANCEL && s->clients[who].serial == serial && s->clients[who].state == LEAVES)
        s->clients[who].state = IDLE;
    if (serial <= s->passed[who])
        return;
    s->passed[who] = serial;
    if (p->op != NETLOCK_OP_CANCEL)
        s->queue[s->queued++] = *p;
}

static void server_last(struct shuffle *s, uint32_t count)
{
    struct netlock_pass last = {.op = NETLOCK_OP_LAST, .machine = 1, .count = count, .flags = s->queued ? NETLOCK_LOW : 0};
    for (unsigned i = 0; i < s->queued; i++)
        if (!s->queue[i].low) /* it has a queue there: it comes with the next call */
            return;
    s->closed = count;
    launch(s, last);
}

static void server_hears(struct shuffle *s, const struct netlock_pass *p)
{
    if (s->push.nonce && (int32_t)(p->pushed - s->push.pushed) > 0)
        s->push.nonce = 0;
    if (s->push.nonce)
        return;
    bool called = p->out & NETLOCK_OUT_NOTIFY && p->vacant && (int32_t)(p->count - s->closed) > 0;
    if (s->plane->mistakes & NETLOCK_MISTAKE_LOW) /* any word of the switch is as good */
        called = true;
    if (!called || !s->queued) {
        server_last(s, p->count);
        return;
    }
    unsigned first = 0;
    for (unsigned i = 1; i < s->queued; i++)
        first = s->queue[i].priority < s->queue[first].priority ? i : first;
    const struct netlock_pass *q = &s->queue[first];
    s->push = (struct netlock_pass){.op = NETLOCK_OP_PUSH,
                                    .mode = q->mode,
                                    .priority = q->priority,
                                    .machine = q->machine,
                                    .port = q->port,
                                    .nonce = q->nonce,
                                    .pushed = p->pushed};
    s->low_grants += q->low;
    memmove(&s->queue[first], &s->queue[first + 1], (--s->queued - first) * sizeof s->queue[0]);
    launch(s, s->push);
}

/* The control plane and the server say again what may have been lost. */
static void say_again(struct shuffle *s)
{
    if (s->push.nonce)
        launch(s, s->push);
    else if (plane_get(s->plane, NETLOCK_ENDS, s->lock) & NETLOCK_OVER || plane_lows(s->plane, s->lock))
        launch(s, (struct netlock_pass){
                      .op = NETLOCK_OP_LAST, .machine = 1, .count = ~(uint32_t)plane_get(s->plane, NETLOCK_ARRIVALS, s->lock)});
}

static void step_packet(struct shuffle *s)
{
    unsigned i = (unsigned)rng_below(&s->random, s->flying);
    struct netlock_pass *p = &s->flight[i];
    plane_pass(s->plane, s->lock, p);
    struct netlock_pass done = *p;
    if (p->next != NETLOCK_OP_NONE)
        netlock_resubmit(p);
    else
        *p = s->flight[--s->flying];
    unsigned who = (done.machine - 1u) * PER_HOST + netlock_request_of(done.nonce);
    struct client *c = &s->clients[who];
    bool same = done.nonce >> NETLOCK_SLOT_BITS == c->serial * 2;
    if (done.op == NETLOCK_OP_CANCEL && done.out & NETLOCK_OUT_RELEASED && same && c->state == LEAVES)
        c->state = IDLE;
    if (done.out & NETLOCK_OUT_GONE && same && c->state == WAITS)
        c->state = IDLE;
    if (done.out & NETLOCK_OUT_FORWARD) {
        s->overflowed++;
        server_passed(s, &done);
    }
    if (done.out & (NETLOCK_OUT_NOTIFY | NETLOCK_OUT_PUSHED))
        server_hears(s, &done);
    if (done.out & NETLOCK_OUT_GRANT)
        on_grant(s, &done);
    if (done.out & NETLOCK_OUT_CONVERTED)
        on_converted(s, &done);
    if (done.out & NETLOCK_OUT_DEADLOCK && same && done.step == c->step % NETLOCK_STEPS &&
        (c->state == CONVERTS || c->state == STAYS)) {
        s->deadlocks += c->state == CONVERTS;
        c->state = HOLDS;
    }
}

/* Repeats the grants of holders: if a push came between the two passes of a repeated ACQUIRE, only its slot knows of it. */
static void remind(struct shuffle *s)
{
    const struct plane_region r = plane_region(s->plane, s->lock);
    uint64_t ends = plane_get(s->plane, NETLOCK_ENDS, s->lock);
    uint32_t ticket = (uint32_t)(ends >> 32) & NETLOCK_TICKET, tail = (uint32_t)ends & NETLOCK_TICKET;
    for (; ticket != tail; ticket = netlock_after(ticket, r.size)) {
        uint32_t slot = r.left + (ticket & 0xffffu), place = (uint32_t)plane_get(s->plane, NETLOCK_PLACE, slot);
        uint64_t token = plane_get(s->plane, NETLOCK_TOKEN, s->lock) + 1;
        if ((plane_get(s->plane, NETLOCK_FLAGS, slot) & (NETLOCK_GRANTED | NETLOCK_ENDED)) != NETLOCK_GRANTED)
            continue;
        plane_set(s->plane, NETLOCK_TOKEN, s->lock, token);
        on_grant(s, &(struct netlock_pass){.out_place = {(uint16_t)(place >> 16), (uint16_t)place},
                                           .out_nonce = plane_get(s->plane, NETLOCK_NONCE, slot),
                                           .out_ticket = ticket,
                                           .out_token = token});
    }
}

static struct shuffle shuffle(uint64_t seed, uint16_t wait_size, uint16_t levels, uint16_t mistakes)
{
    struct shuffle s = {.closed = UINT32_MAX};
    rng_seed(&s.random, seed);
    s.plane = plane_few(250, wait_size, levels, mistakes, &s.lock);
    for (unsigned i = 0; i < 12000; i++) {
        if (s.flying < FLIGHT / 2 && rng_chance(&s.random, 1, 2))
            step_client(&s);
        else if (s.flying)
            step_packet(&s);
        if (i % 64 == 0)
            say_again(&s);
    }
    /* All clients leave; nothing may remain. */
    for (unsigned round = 0; round < 100 && !s.violations; round++) {
        say_again(&s);
        if (s.overflowed)
            remind(&s);
        for (unsigned i = 0; i < 4 * CLIENTS; i++) {
            while (s.flying)
                step_packet(&s);
            if (s.clients[i % CLIENTS].state == WAITS || s.clients[i % CLIENTS].state == LEAVES) {
                s.clients[i % CLIENTS].state = LEAVES;
                launch(&s, of_client(&s, i % CLIENTS, NETLOCK_OP_CANCEL));
            } else if (is_held(&s.clients[i % CLIENTS])) {
                s.clients[i % CLIENTS].state = IDLE;
                s.clients[i % CLIENTS].step = 0;
                launch(&s, of_client(&s, i % CLIENTS, NETLOCK_OP_RELEASE));
            }
        }
    }
    return s;
}

static void test_shuffle(void)
{
    uint64_t grants = 0, low = 0, unwanted = 0, upgrades = 0, downgrades = 0, deadlocks = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct shuffle s = shuffle(seed, seed % 2 ? 20 : 0, seed % 4 == 1 ? 1 + seed / 4 % 7 : 0, 0);
        if (s.violations)
            CHECK_FAIL("seed %" PRIu64 ": %" PRIu64 " violations", seed, s.violations);
        uint64_t ends = plane_get(s.plane, NETLOCK_ENDS, s.lock);
        if (((ends >> 32 ^ ends) & NETLOCK_TICKET) || plane_get(s.plane, NETLOCK_EXCL, s.lock) ||
            plane_get(s.plane, NETLOCK_WAITING, s.lock))
            CHECK_FAIL("seed %" PRIu64 ": something is left: %" PRIx64 ", %" PRIu64 " writers, waiting %" PRIx64, seed, ends,
                       plane_get(s.plane, NETLOCK_EXCL, s.lock), plane_get(s.plane, NETLOCK_WAITING, s.lock));
        grants += s.grants;
        low += s.low_grants;
        unwanted += s.unwanted;
        upgrades += s.upgrades;
        downgrades += s.downgrades;
        deadlocks += s.deadlocks;
        free(s.plane);
    }
    printf("%" PRIu64 " grants, %" PRIu64 " of them unwanted; %" PRIu64 " upgrades, %" PRIu64 " downgrades, %" PRIu64
           " deadlocks\n",
           grants, unwanted, upgrades, downgrades, deadlocks);
    printf("%" PRIu64 " were called from the server\n", low);
    CHECK(grants > 5000 && low > 200 && upgrades > 500 && downgrades > 500 && deadlocks > 100);
}

/* Each mistake is noticed: a client is granted what another holds, or something is left. */
static void test_busted(uint16_t mistakes, uint16_t wait_size, uint16_t levels)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct shuffle s = shuffle(seed, wait_size, levels, mistakes);
        uint64_t ends = plane_get(s.plane, NETLOCK_ENDS, s.lock);
        bool left = ((ends >> 32 ^ ends) & NETLOCK_TICKET) || plane_get(s.plane, NETLOCK_EXCL, s.lock);
        free(s.plane);
        if (s.violations || left)
            return;
    }
    CHECK_FAIL("mistake %u was not noticed", mistakes);
}

/* Pipes share no state: a lock has its slots in the pipe of its home, or none, however much room others have. */
static void test_pipes(void)
{
    const struct plane_config config = {
        .slots = 64, .locks = 16, .requests = 64, .stride = PER_HOST, .tenants = 4, .pipes = 2, .homes = 3};
    struct plane *p = calloc(1, plane_bytes(&config));
    uint32_t left, lock;
    CHECK(p);
    plane_init(p, &config);
    CHECK(plane_pipe(&config, 0) == 0 && plane_pipe(&config, 1) == 1 && plane_pipe(&config, 2) == 0);
    for (uint64_t index = 1; index < 6; index += 3) { /* home 1 */
        CHECK_EQ(plane_room(p, index, 16, &left), 0);
        CHECK(left >= 32);
        const struct plane_region r = {.left = left, .size = 16};
        CHECK_EQ(plane_install(p, index, &r, &lock), 0);
    }
    CHECK_EQ(plane_room(p, 7, 1, &left), -28); /* full */
    CHECK_EQ(plane_room(p, 0, 32, &left), 0);
    CHECK_EQ(left, 0);
    CHECK_EQ(plane_room(p, 0, 33, &left), -28);
    CHECK_EQ(plane_install(p, 7, &(struct plane_region){.left = 0, .size = 4}, &lock), -22); /* another's pipe */
    CHECK_EQ(plane_install(p, 0, &(struct plane_region){.left = 30, .size = 4}, &lock), -22);
    CHECK(!plane_pipe_used(p, 0) && plane_pipe_used(p, 1) == 32);
    free(p);
}

int main(void)
{
    test_pipes();
    test_cases();
    test_out_of_order();
    test_doubles();
    test_asked_by_another();
    test_giving_up();
    test_overflow();
    test_priorities();
    test_full_priorities();
    test_call_too_early();
    test_low();
    test_quota();
    test_regions();
    test_slide();
    test_shuffle();
    test_busted(NETLOCK_MISTAKE_BLIND_RELEASE, 0, 0);
    test_busted(NETLOCK_MISTAKE_TRUST_MODE, 0, 0);
    test_busted(NETLOCK_MISTAKE_NO_END, 0, 0);
    test_busted(NETLOCK_MISTAKE_UPGRADE, 0, 0);
    test_busted(NETLOCK_MISTAKE_LOW, 20, 2);
    return 0;
}
