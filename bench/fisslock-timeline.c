/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock over time, in the simulated rack with the model of its testbed (virtual time; the same figures on every machine):
 *
 *     fisslock-timeline recover LOCKS      eight hosts hold so many locks; the switch loses its state, and one host fails with it
 *                                          (7.8, Fig. 17 middle): locks held, us until the survivors have told the switch what they
 *                                          hold, of them until it has heard the first, us until it decides again */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/rebuild.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS 8
#define CLIENTS 160
#define READS_OF_TEN 9 /* read-mostly, as 7.7 has it */

#define RECOVER_LEASE_NS (100 * NS_PER_MS) /* the paper gives none: its coordinator notices failures by heartbeats */
#define LOOK_NS NS_PER_US
#define GATHER_NS (100 * NS_PER_US) /* until every host has its leases */

struct recover {
    struct rack rack;
    uint64_t locks, per_client, held, failed_ns, first_ns, told_ns, open_ns;
    unsigned ready;
};

static void watch(void *arg, uint64_t tag)
{
    struct recover *t = arg;
    const struct rebuild *r = fisslock_switch_rebuild(t->rack.switch_memory);
    unsigned heard = 0, told = 0;
    for (uint16_t m = 1; m <= HOSTS; m++) {
        heard += r->state[m] >= REBUILD_HEARD;
        told += r->state[m] == REBUILD_TOLD;
    }
    uint64_t now = sim_now(&t->rack.sim);
    if (heard && !t->first_ns)
        t->first_ns = now;
    if (told >= HOSTS - 1 && !t->told_ns)
        t->told_ns = now;
    if (!r->closed)
        t->open_ns = now;
    else
        sim_at(&t->rack.sim, now + LOOK_NS, watch, t, 0);
}

static void fail(void *arg, uint64_t tag)
{
    struct recover *t = arg;
    t->failed_ns = sim_now(&t->rack.sim);
    sim_host_crash(t->rack.hosts[0].host);
    sim_switch_crash(t->rack.wire);
    sim_switch_restart(t->rack.wire);
    for (unsigned i = 1; i < HOSTS; i++) { /* as a coordinator does, which has noticed */
        struct rack_host *h = &t->rack.hosts[i];
        fisslock_rouse(h->memory, rack_clock(h), rack_host_outbox(h));
        rack_host_flush(h);
    }
    watch(t, 0);
}

static bool recover_work(struct actor *a)
{
    struct recover *t = a->user;
    a->ops->sleep(a, GATHER_NS);
    for (uint64_t i = 0; i < t->per_client && !t->failed_ns; i++) {
        struct hold h;
        if (!a->ops->lock(a, pawl_id(a->client * t->per_client + i), i % 10 < READS_OF_TEN ? PAWL_SHARED : PAWL_EXCLUSIVE,
                          DEADLINE_NEVER, &h))
            t->held++;
    }
    if (++t->ready == CLIENTS)
        sim_at(&t->rack.sim, sim_now(&t->rack.sim) + NS_PER_MS, fail, t, 0);
    while (!t->open_ns)
        a->ops->sleep(a, NS_PER_MS);
    return true;
}

static int recover(uint64_t locks)
{
    struct recover *t = calloc(1, sizeof *t);
    if (!t || locks < CLIENTS || locks > 1000000)
        return -EINVAL;
    t->per_client = locks / CLIENTS;
    t->locks = t->per_client * CLIENTS;
    const struct rack_params p = {.design = design_find("fisslock"),
                                  .model = model_find("fisslock-testbed"),
                                  .locks = t->locks,
                                  .clients = CLIENTS,
                                  .hosts = HOSTS,
                                  .requests = (uint16_t)(t->per_client + 1),
                                  .pool_cores = 1,
                                  .tasks = 1,
                                  .seed = 1,
                                  .lease_ns = RECOVER_LEASE_NS,
                                  .retry_ns = NS_PER_MS,
                                  .work = recover_work,
                                  .user = t};
    int rc = rack_init(&t->rack, &p);
    if (rc)
        return rc;
    while (!t->open_ns && sim_run(&t->rack.sim, sim_now(&t->rack.sim) + NS_PER_MS) == SIM_UNTIL)
        ; /* the clients of the host that failed never end */
    printf("%" PRIu64 "\t%.1f\t%.1f\t%.1f\n", t->held, (double)(t->told_ns - t->failed_ns) / 1e3,
           (double)(t->first_ns - t->failed_ns) / 1e3, (double)(t->open_ns - t->failed_ns) / 1e3);
    rack_free(&t->rack);
    free(t);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = argc == 3 && !strcmp(argv[1], "recover") ? recover(strtoull(argv[2], NULL, 10)) : 2;
    if (rc == 2)
        fprintf(stderr, "usage: fisslock-timeline recover LOCKS\n");
    else if (rc)
        fprintf(stderr, "fisslock-timeline: %s\n", strerror(-rc));
    return rc < 0 ? 1 : rc;
}
