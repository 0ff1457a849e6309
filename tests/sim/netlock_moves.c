/* SPDX-License-Identifier: Apache-2.0 */
/* For how long a move stops a lock: the drain of its queue, and no more than two round trips beside it. On the paper's testbed,
 * with locks that move in and out all the time while clients hold and wait for them. */
#include "designs/netlock/switch.h"
#include "lib/rng.h"
#include "tests/check.h"
#include "workbench/trial/rack.h"
#include "world/world.h"

#define LOCKS 8
#define CLIENTS 16
#define ROUNDS 1500
#define HOLD_NS (20 * NS_PER_US)

static struct rng draws;

static bool work(struct actor *a)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        enum pawl_mode mode = rng_chance(&draws, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        struct hold h;
        CHECK_EQ(a->ops->lock(a, pawl_id(rng_below(&draws, LOCKS)), mode, DEADLINE_NEVER, &h), 0);
        a->ops->sleep(a, rng_below(&draws, HOLD_NS));
        CHECK_EQ(a->ops->unlock(a, &h), 0);
    }
    return true;
}

static void check(uint64_t options)
{
    static struct rack r;
    const struct model *model = model_find("netlock-testbed");
    const struct rack_params p = {
        .design = design_find("netlock"),
        .model = model,
        .locks = LOCKS,
        .clients = CLIENTS,
        .hosts = 4,
        .servers = 2,
        .tasks = 1,
        .seed = options,
        .time_max_ns = 10 * NS_PER_S,
        .lease_ns = 10 * NS_PER_MS,
        .retry_ns = 50 * NS_PER_US,
        .options = options | NETLOCK_CHURN | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT,
        .work = work,
    };
    CHECK_EQ(rack_init(&r, &p), 0);
    rack_run(&r);
    CHECK_EQ(r.clients_done, CLIENTS);
    const struct nl_switch *w = r.switch_memory;
    uint64_t in = switch_stop_percentile(w->stops[SWITCH_STOP_IN], 99),
             alone = switch_stop_percentile(w->stops[SWITCH_STOP_IN_ALONE], 99),
             out = switch_stop_percentile(w->stops[SWITCH_STOP_OUT], 99);
    /* Between switch and server: the server's machine takes its time for each packet that comes and goes, and so does the cable. */
    uint64_t trip =
        2 * (model_get(model, MODEL_host_packet_ns) + model_get(model, MODEL_jitter_ns) + model_get(model, MODEL_switch_ns));
    printf("%llu moves in, %llu out; a lock is stopped for up to (p99) %llu ns on its way in, without the drain %llu ns, on its "
           "way out %llu ns; a round "
           "trip takes about %llu ns\n",
           (unsigned long long)w->counts.moved_in, (unsigned long long)w->counts.moved_out, (unsigned long long)in,
           (unsigned long long)alone, (unsigned long long)out, (unsigned long long)trip);
    CHECK(w->counts.moved_in > 20 && w->counts.moved_out > 20);
    CHECK(alone <= 2 * trip && out <= 2 * trip);
    rack_free(&r);
}

int main(void)
{
    rng_seed(&draws, 1);
    check(0);
    check(NETLOCK_PRIORITY);
    return 0;
}
