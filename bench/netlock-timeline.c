/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock over time, in the simulated rack with the model of its testbed (virtual time; the same figures on every machine):
 *
 *     netlock-timeline failure OUTAGE_MS      the switch stops and comes back empty (6.5, Fig. 15)
 *     netlock-timeline priority 0|1           two tenants of five clients; the second has the high priority (6.3, Fig. 12a)
 *     netlock-timeline quota 0|1              seven clients of one tenant, three of another; each half of the rate (Fig. 12b)
 *
 * Prints a line per millisecond: time, grants per second of the first tenant, of the second. */
#include "designs/netlock/netlock.h"
#include "lib/rng.h"
#include "workbench/trial/rack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TENANTS 2
#define BUCKETS 120
#define BUCKET_NS NS_PER_MS
#define LEASE_NS (10 * NS_PER_MS) /* the paper gives none */
#define START_NS (20 * NS_PER_MS) /* the second tenant; until then the hot locks have moved in */
#define CRASH_NS (40 * NS_PER_MS)

enum what { FAILURE, PRIORITY, QUOTA };

struct timeline {
    struct rack rack;
    enum what what;
    bool on;
    unsigned first; /* clients of the first tenant */
    uint64_t locks;
    struct rng random;
    uint64_t grants[TENANTS][BUCKETS];
};

static bool work(struct actor *a)
{
    struct timeline *t = a->user;
    unsigned tenant = a->client >= t->first;
    if (tenant && t->what == PRIORITY && sim_now(&t->rack.sim) < START_NS)
        a->ops->sleep(a, START_NS - sim_now(&t->rack.sim));
    for (;;) {
        struct hold h;
        uint64_t bucket = sim_now(&t->rack.sim) / BUCKET_NS;
        if (bucket >= BUCKETS)
            return true;
        int rc = a->ops->lock(a, pawl_id(rng_below(&t->random, t->locks)), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h);
        if (rc == -PAWL_ELOST)
            return false; /* another session takes its place */
        if (rc)
            continue;
        bucket = sim_now(&t->rack.sim) / BUCKET_NS;
        if (bucket < BUCKETS)
            t->grants[tenant][bucket]++;
        if (a->ops->unlock(a, &h) == -PAWL_ELOST)
            return false;
    }
}

static void crash(void *arg, uint64_t tag)
{
    struct timeline *t = arg;
    if (tag)
        sim_switch_restart(t->rack.wire);
    else
        sim_switch_crash(t->rack.wire);
}

/* The same for both: what three clients can use. */
static void set_quotas(struct timeline *t)
{
    for (uint16_t tenant = 0; tenant < TENANTS; tenant++)
        if (netlock_set_quota(t->rack.switch_memory, tenant, 380000, 16))
            abort();
}

static int run(struct timeline *t, uint64_t outage_ns)
{
    bool failure = t->what == FAILURE;
    unsigned clients = failure ? 80 : 10;
    const struct rack_params p = {
        .design = design_find("netlock"),
        .model = model_find("netlock-testbed"),
        .locks = t->locks,
        .clients = clients,
        .hosts = 10,
        .servers = 2, /* 6.3 */
        .cores = 8,
        .tasks = 1,
        .seed = 1,
        .lease_ns = LEASE_NS,
        .retry_ns = 100 * NS_PER_US,
        .options = t->what == PRIORITY && t->on ? NETLOCK_PRIORITY : 0,
        .work = work,
        .user = t,
    };
    int rc = rack_init(&t->rack, &p);
    if (rc)
        return rc;
    for (unsigned i = 0; i < clients; i++) {
        t->rack.clients[i].tenant = i >= t->first;
        t->rack.clients[i].priority = i >= t->first ? 0 : 7;
    }
    if (t->what == QUOTA && t->on)
        set_quotas(t);
    if (failure) {
        sim_at(&t->rack.sim, CRASH_NS, crash, t, 0);
        sim_at(&t->rack.sim, CRASH_NS + outage_ns, crash, t, 1);
    }
    rack_run(&t->rack);
    rack_free(&t->rack);
    return 0;
}

int main(int argc, char **argv)
{
    struct timeline *t = calloc(1, sizeof *t);
    const char *const names[] = {"failure", "priority", "quota"};
    unsigned long number = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    unsigned what = 0;
    while (argc == 3 && what < countof(names) && strcmp(argv[1], names[what]))
        what++;
    if (argc != 3 || what == countof(names) || !t || number > 60) {
        fprintf(stderr, "usage: netlock-timeline failure OUTAGE_MS | priority 0|1 | quota 0|1\n");
        return 2;
    }
    t->what = (enum what)what;
    t->on = number != 0;
    t->first = what == FAILURE ? 80 : what == PRIORITY ? 5 : 7;
    t->locks = what == FAILURE ? 1000 : what == PRIORITY ? 2 : 100;
    rng_seed(&t->random, 1);
    int rc = run(t, number * NS_PER_MS);
    if (rc) {
        fprintf(stderr, "netlock-timeline: %s\n", strerror(-rc));
        return 1;
    }
    for (unsigned i = 0; i < BUCKETS; i++)
        printf("%u\t%" PRIu64 "\t%" PRIu64 "\n", i, t->grants[0][i] * (NS_PER_S / BUCKET_NS),
               t->grants[1][i] * (NS_PER_S / BUCKET_NS));
    free(t);
    return 0;
}
