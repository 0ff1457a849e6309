/* SPDX-License-Identifier: Apache-2.0 */
/* Clients lock in any order, and so run into deadlocks. Clients that wait without a deadline finish, because one of each deadlock
 * is told. Only clients in a deadlock are told (I13). Designs with mistakes are caught. */
#include "designs/fisslock/host.h"
#include "designs/netlock/netlock.h"
#include "lib/rng.h"
#include "tests/check.h"
#include "workbench/trial/rack.h"
#include "world/world.h"

#include <errno.h>

#define HOSTS 3
#define SERVERS 2 /* if the design has any */
#define CLIENTS 6
#define TASKS 2
#define LOCKS 5
#define ROUNDS 12 /* that every task must complete */
#define MOST 3    /* locks at once */
#define RETRY_NS (100 * NS_PER_US)
#define LEASE_NS (20 * NS_PER_MS)
#define SAFETY_NS (60 * NS_PER_MS)
#define TIME_MAX_NS (20 * NS_PER_S)
#define SEEDS 8
#define SEEDS_TO_CATCH 100

static struct trial {
    struct rack rack;
    const struct design *design;
    struct rng random;
    bool patient;
    uint64_t told, falsely, timeouts, rounds;
} t;

static void on_deadlock(void *user, unsigned client, unsigned task, bool true_one)
{
    t.told++;
    t.falsely += !true_one;
}

/* Clients with a deadline give up at about the time at which a deadlock may be found. */
static uint64_t deadline_of(const struct actor *a)
{
    return t.patient ? DEADLINE_NEVER : world_now(&a->process->host->world) + 4 * RETRY_NS + rng_below(&t.random, 12 * RETRY_NS);
}

/* A client that gave up keeps its holds and tries other locks: the deadlock that it was part of has ended, and no lock is free. */
static int lock_one(struct actor *a, struct hold *out)
{
    int rc = -ETIMEDOUT;
    for (unsigned tries = 0; tries < 4 && rc == -ETIMEDOUT; tries++) {
        enum pawl_mode mode = rng_chance(&t.random, 1, 3) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        rc = a->ops->lock(a, pawl_id(rng_below(&t.random, LOCKS)), mode, deadline_of(a), out);
        if (!rc || rc == -ETIMEDOUT)
            a->ops->sleep(a, rng_below(&t.random, 100 * NS_PER_US));
    }
    return rc;
}

/* A few locks in any order, each while the others are held. */
static int try_round(struct actor *a)
{
    struct hold holds[MOST];
    unsigned n = 0, count = 2 + (unsigned)rng_below(&t.random, MOST - 1);
    int rc = 0;
    for (; n < count && !rc; n += !rc)
        rc = lock_one(a, &holds[n]);
    if (!rc && t.design->features & DESIGN_CONVERT && holds[0].mode == PAWL_SHARED && rng_chance(&t.random, 1, 2))
        rc = a->ops->convert(a, &holds[0], PAWL_EXCLUSIVE, deadline_of(a));
    while (n-- > 0 && rc != -PAWL_ELOST) {
        int end = a->ops->unlock(a, &holds[n]);
        rc = end ? end : rc;
    }
    return rc;
}

static bool work(struct actor *a)
{
    for (unsigned done = 0; done < ROUNDS;) {
        int rc = try_round(a);
        if (rc == -PAWL_ELOST)
            return false;
        CHECK(!rc || rc == -EDEADLK || rc == -ETIMEDOUT || rc == -PAWL_ELIMIT);
        if (rc == -PAWL_ELIMIT) /* its releases were not acknowledged yet */
            a->ops->sleep(a, NS_PER_MS);
        t.timeouts += rc == -ETIMEDOUT;
        t.rounds += !rc;
        done += !rc || rc == -ETIMEDOUT;
    }
    return true;
}

/* Whether all clients finished. */
static bool run(const struct design *d, uint32_t faults, uint64_t seed, bool patient, uint64_t mistakes)
{
    const struct rack_params p = {
        .design = d,
        .model = model_find("default"),
        .locks = LOCKS,
        .clients = CLIENTS,
        .mortals = CLIENTS,
        .hosts = HOSTS,
        .servers = SERVERS,
        .backup = seed % 3 == 1,
        .tasks = TASKS,
        .racks = 2 + (unsigned)(seed % 3),
        .moves = faults != 0,
        .mortal_hosts = seed % 2,
        .check_undo = seed % 4 == 0,
        .watch_waits = true,
        .faults = faults,
        .seed = seed,
        .safety_ns = SAFETY_NS,
        .time_max_ns = TIME_MAX_NS,
        .lease_ns = LEASE_NS,
        .retry_ns = RETRY_NS,
        .mistakes = mistakes,
        .options = seed & 1 ? d->packet->draws : 0,
        .work = work,
        .on_deadlock = on_deadlock,
    };
    memset(&t, 0, sizeof t);
    t.design = d;
    t.patient = patient;
    rng_seed(&t.random, seed);
    CHECK_EQ(rack_init(&t.rack, &p), 0);
    rack_run(&t.rack);
    bool done = t.rack.clients_done == CLIENTS;
    rack_free(&t.rack);
    return done;
}

static void check_clean(const struct design *d, uint32_t faults, bool patient)
{
    uint64_t told = 0, timeouts = 0, rounds = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        if (!run(d, faults, seed, patient, 0))
            CHECK_FAIL("seed %llu, faults %x: a client waits for ever", (unsigned long long)seed, faults);
        if (t.falsely)
            CHECK_FAIL("seed %llu, faults %x: told of a deadlock, and there was none", (unsigned long long)seed, faults);
        CHECK(!patient || !t.timeouts);
        told += t.told;
        timeouts += t.timeouts;
        rounds += t.rounds;
    }
    printf("%s, %s, %s: %llu rounds, %llu deadlocks, %llu timeouts\n", d->name, patient ? "patient" : "impatient",
           faults ? "faults" : "calm", (unsigned long long)rounds, (unsigned long long)told, (unsigned long long)timeouts);
    CHECK(told && (patient || timeouts));
}

static void check_caught(const struct design *d, const char *what, uint64_t wrong)
{
    for (uint64_t seed = 0; seed < SEEDS_TO_CATCH; seed++) {
        run(d, d->tolerates, seed, seed % 4 == 3, wrong);
        if (t.falsely) {
            printf("%s: seed %llu\n", what, (unsigned long long)seed);
            return;
        }
    }
    CHECK_FAIL("%s: no client was told falsely", what);
}

int main(void)
{
    static const struct {
        const char *design;
        uint64_t crowd, stale; /* 0: as another */
    } trials[] = {
        {"fisslock", FISSLOCK_MISTAKE_CROWD, FISSLOCK_MISTAKE_STALE},
        {"fisslock-racks", 0, 0}, /* deadlocks through several racks, too */
        {"netlock", NETLOCK_MISTAKE_CROWD, NETLOCK_MISTAKE_STALE},
        {"netlock-switches", 0, 0}, /* deadlocks through several switches */
    };
    for (size_t i = 0; i < countof(trials); i++) {
        const struct design *d = design_find(trials[i].design);
        for (unsigned patient = 0; patient < 2; patient++) {
            check_clean(d, 0, patient);
            check_clean(d, d->tolerates, patient);
        }
        if (!trials[i].crowd)
            continue;
        check_caught(d, "a session is taken for one thread", trials[i].crowd);
        check_caught(d, "a client that held once is taken for a holder", trials[i].stale);
    }
    return 0;
}
