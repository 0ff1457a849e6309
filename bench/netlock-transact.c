/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction in one round trip (NetLock 4.1) against lock, data, unlock: the time until the client has lock and data. First in
 * the simulated rack with the model of the paper's testbed (virtual time; the same figures on every machine), then over UDP on this
 * machine, in turns. With locks in the switch, where the paper promises one round trip instead of 1.5 (the lock from the
 * switch, half a way away, then the data), and on servers, where it is one instead of two; and with clients that fight for few
 * locks. */
#include "bench/kit.h"
#include "designs/netlock/netlock.h"
#include "lib/rng.h"
#include "workbench/lab/loopback.h"
#include "workbench/trial/rack.h"

#include <stdlib.h>
#include <string.h>

#define LOCKS 1000
#define TURNS 2000
#define CLIENTS_MAX 16
#define START_NS (20 * NS_PER_MS) /* until then the locks are where they are to be */
#define LEASE_NS (100 * NS_PER_MS)
#define RETRY_NS NS_PER_MS

static size_t apply(void *ctx, const pawl_work *w, void *reply, size_t room)
{
    memcpy(reply, w->bytes, w->len);
    return w->len;
}

/* ---- in the simulated rack ---- */

struct trial {
    struct rack rack;
    struct rng random;
    uint64_t locks;
    double one[TURNS * CLIENTS_MAX], three[TURNS * CLIENTS_MAX];
    unsigned ones, threes;
    int error;
};

static int three_steps(struct actor *a, uint64_t lock, pawl_call *call, uint64_t begin, double *took)
{
    struct trial *t = a->user;
    struct hold h;
    int rc = a->ops->lock(a, pawl_id(lock), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h);
    if (!rc)
        rc = a->ops->hold_call(a, &h, DEADLINE_NEVER, call);
    *took = (double)(sim_now(&t->rack.sim) - begin);
    return rc ? rc : a->ops->unlock(a, &h);
}

static bool work(struct actor *a)
{
    struct trial *t = a->user;
    uint64_t value = 1, reply;
    a->ops->sleep(a, START_NS);
    for (unsigned i = 0; i < TURNS && !t->error; i++) {
        pawl_call call = {.bytes = &value, .len = sizeof value, .reply = &reply, .room = sizeof reply};
        uint64_t lock = rng_below(&t->random, t->locks), begin = sim_now(&t->rack.sim);
        if (rng_below(&t->random, 2)) {
            t->error = a->ops->lock_call(a, pawl_id(lock), PAWL_EXCLUSIVE, DEADLINE_NEVER, &call, NULL);
            t->one[t->ones++] = (double)(sim_now(&t->rack.sim) - begin);
        } else {
            t->error = three_steps(a, lock, &call, begin, &t->three[t->threes++]);
        }
        a->ops->sleep(a, 1000 + rng_below(&t->random, 1000));
    }
    return true;
}

static void simulate(const char *where, uint64_t options, unsigned clients, uint64_t locks)
{
    static struct trial t;
    memset(&t, 0, sizeof t);
    t.locks = locks;
    rng_seed(&t.random, 1);
    const struct rack_params p = {.design = design_find("netlock"),
                                  .model = model_find("netlock-testbed"),
                                  .locks = LOCKS,
                                  .clients = clients,
                                  .hosts = clients < 4 ? clients : 4,
                                  .servers = 2,
                                  .cores = (unsigned)model_get(model_find("netlock-testbed"), MODEL_server_cores),
                                  .tasks = 1,
                                  .seed = 1,
                                  .time_max_ns = 100 * NS_PER_S,
                                  .lease_ns = LEASE_NS,
                                  .retry_ns = RETRY_NS,
                                  .options = options,
                                  .apply = apply,
                                  .work = work,
                                  .user = &t};
    if (rack_init(&t.rack, &p))
        kit_die("cannot set up the simulated rack");
    rack_run(&t.rack);
    if (t.error || !t.ones || !t.threes)
        kit_die("the trial ended with %d", t.error);
    double one = kit_percentile(t.one, t.ones, 0.5), three = kit_percentile(t.three, t.threes, 0.5);
    printf("  %-46s %7.2f us %7.2f us  %.2fx\n", where, one / 1000, three / 1000, three / one);
    rack_free(&t.rack);
}

/* ---- over UDP ---- */

static double one_step(pawl *p, uint64_t lock, pawl_call *call)
{
    uint64_t begin = kit_now();
    if (pawl_lock_call(p, pawl_id(lock), PAWL_EXCLUSIVE, UINT64_MAX, call, NULL))
        kit_die("a transaction: %s", pawl_explain());
    return (double)(kit_now() - begin);
}

static double in_three(pawl *p, uint64_t lock, pawl_call *call)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(p, pawl_id(lock), PAWL_EXCLUSIVE, &g) || pawl_hold_call(p, &g, UINT64_MAX, call))
        kit_die("lock and data: %s", pawl_explain());
    double took = (double)(kit_now() - begin);
    if (pawl_unlock(p, &g))
        kit_die("unlock: %s", pawl_explain());
    return took;
}

static void over_udp(struct kit *k, const char *where, const struct knobs *knobs)
{
    static double one[TURNS], three[TURNS];
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN];
    pawl *p;
    uint64_t value = 1, reply;
    pawl_call call = {.bytes = &value, .len = sizeof value, .reply = &reply, .room = sizeof reply};
    unsigned turns = (unsigned)max_u64(100, min_u64(TURNS, (uint64_t)(TURNS * k->scale)));
    const struct loopback_params lp = {.design = design_find("netlock"),
                                       .knobs = knobs,
                                       .machines = 4,
                                       .sessions = 4,
                                       .requests = 256,
                                       .servers = 1,
                                       .locks = LOCKS,
                                       .apply = apply};
    if (loopback_start(&l, &lp))
        kit_die("cannot start a rack on loopback");
    loopback_place(&l, 0, place);
    if (pawl_open(place, NULL, &p))
        kit_die("cannot open %s: %s", place, pawl_explain());
    for (unsigned i = 0; i < 200; i++)
        in_three(p, i % LOCKS, &call);
    for (unsigned i = 0; i < turns; i++) {
        if (i % 2)
            one[i] = one_step(p, i * 7919 % LOCKS, &call);
        three[i] = in_three(p, i * 7907 % LOCKS, &call);
        if (i % 2 == 0)
            one[i] = one_step(p, i * 7919 % LOCKS, &call);
    }
    double a = kit_percentile(one, turns, 0.5), b = kit_percentile(three, turns, 0.5);
    printf("  %-46s %7.2f us %7.2f us  %.2fx\n", where, a / 1000, b / 1000, b / a);
    pawl_close(p);
    loopback_stop(&l);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "a transaction in one round trip against lock, data, unlock: medians until lock and data are there");
    printf("  %-46s %10s %10s\n", "", "one", "three");
    simulate("simulated, locks in the switch", 0, 1, LOCKS);
    simulate("simulated, locks on servers", NETLOCK_SERVERS_ONLY, 1, LOCKS);
    simulate("simulated, 16 clients on 1,000 locks", 0, CLIENTS_MAX, LOCKS);
    simulate("simulated, 16 clients on 4 locks", 0, CLIENTS_MAX, 4);
    struct knobs servers_only = design_knobs(design_find("netlock"));
    if (design_tune(design_find("netlock"), &servers_only, "servers-only", 1))
        kit_die("netlock cannot have its locks on servers only");
    over_udp(&k, "UDP on this machine, locks in the switch", NULL);
    over_udp(&k, "UDP on this machine, locks on the server", &servers_only);
    return kit_end(&k);
}
