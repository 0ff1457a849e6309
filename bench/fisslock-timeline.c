/* FissLock over time, in the simulated rack with the model of its testbed (virtual time; the same figures on every machine):
 *
 *     fisslock-timeline hotspot DESIGN     half of the requests go to 2,500 of 1 M locks, and these are others from 300 ms on
 *                                          (7.5, Fig. 16 left): a line per 10 ms: time, cycles per second
 *     fisslock-timeline recover LOCKS      eight hosts hold so many locks; the switch loses its state, and one host fails with it
 *                                          (7.8, Fig. 17 middle): locks held, us until the survivors have told the switch what they
 *                                          hold, of them until it has heard the first, us until it decides again */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/rebuild.h"
#include "lib/rng.h"
#include "trial/rack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS 8
#define CLIENTS 160
#define READS_OF_TEN 9 /* read-mostly, as 7.6 and 7.7 have it; 7.5 does not say */

/* ---- the hotspot ---- */

#define LOCKS 1000000u
#define HOT 2500u
#define MOVES_NS (300 * NS_PER_MS)
#define END_NS (400 * NS_PER_MS)
#define BUCKET_NS (10 * NS_PER_MS)
#define GATHER_NS (100 * NS_PER_US) /* until every host has its leases */

struct hotspot {
    struct rack rack;
    struct rng random;
    uint64_t cycles[END_NS / BUCKET_NS];
};

static uint64_t pick(struct hotspot *t, uint64_t now)
{
    uint64_t first = now < MOVES_NS ? 0 : LOCKS / 2;
    return rng_chance(&t->random, 1, 2) ? first + rng_below(&t->random, HOT) : rng_below(&t->random, LOCKS);
}

static bool hotspot_work(struct actor *a)
{
    struct hotspot *t = a->user;
    a->ops->sleep(a, GATHER_NS);
    for (uint64_t now; (now = sim_now(&t->rack.sim)) < END_NS;) {
        struct hold h;
        enum pawl_mode mode = rng_below(&t->random, 10) < READS_OF_TEN ? PAWL_SHARED : PAWL_EXCLUSIVE;
        int rc = a->ops->lock(a, pawl_id(pick(t, now)), mode, DEADLINE_NEVER, &h);
        if (rc == -PAWL_ELIMIT)
            a->ops->sleep(a, NS_PER_US);
        if (rc)
            continue;
        a->ops->unlock(a, &h);
        if (sim_now(&t->rack.sim) < END_NS)
            t->cycles[sim_now(&t->rack.sim) / BUCKET_NS]++;
    }
    return true;
}

static int hotspot(const char *design)
{
    struct hotspot *t = calloc(1, sizeof *t);
    const struct design *d = design_find(design);
    if (!t || !d || !d->packet)
        return -EINVAL;
    const struct model *model = model_find("fisslock-testbed");
    unsigned cores = (unsigned)model_get(model, MODEL_server_cores);
    bool spread = d->packet->on_hosts;
    const struct rack_params p = {.design = d,
                                  .model = model,
                                  .locks = LOCKS,
                                  .clients = CLIENTS,
                                  .hosts = HOSTS,
                                  .servers = spread ? HOSTS : 1,
                                  .cores = spread ? cores / HOSTS : cores,
                                  .pool_cores = d->packet->switch_packet ? 1 : 0,
                                  .tasks = 1,
                                  .seed = 1,
                                  .lease_ns = 3600 * NS_PER_S,
                                  .retry_ns = 10 * NS_PER_MS,
                                  .work = hotspot_work,
                                  .user = t};
    rng_seed(&t->random, 1);
    int rc = rack_init(&t->rack, &p);
    if (rc)
        return rc;
    rack_run(&t->rack);
    rack_free(&t->rack);
    for (unsigned i = 0; i < countof(t->cycles); i++)
        printf("%u\t%" PRIu64 "\n", i * (unsigned)(BUCKET_NS / NS_PER_MS), t->cycles[i] * (NS_PER_S / BUCKET_NS));
    free(t);
    return 0;
}

/* ---- recovery ---- */

#define RECOVER_LEASE_NS (100 * NS_PER_MS) /* the paper gives none: its coordinator notices failures by heartbeats */
#define LOOK_NS NS_PER_US

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
    int rc = argc == 3 && !strcmp(argv[1], "hotspot")   ? hotspot(argv[2])
             : argc == 3 && !strcmp(argv[1], "recover") ? recover(strtoull(argv[2], NULL, 10))
                                                        : 2;
    if (rc == 2)
        fprintf(stderr, "usage: fisslock-timeline hotspot DESIGN | recover LOCKS\n");
    else if (rc)
        fprintf(stderr, "fisslock-timeline: %s\n", strerror(-rc));
    return rc < 0 ? 1 : rc;
}
