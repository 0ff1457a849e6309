/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock beside the lock's own agent, over the whole way that a user has it: pawl_lock and pawl_unlock of a handle on
 * pawl://ADDRESS:PORT/SPACE whose host has the agent; the host's mutex, leases and safety against kill -9 included. That the agent
 * decided, and that the process sent nothing, is counted. */
#include "bench/kit.h"
#include "client/net.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "workbench/lab/loopback.h"

#include <string.h>

#define CYCLES 100000
#define ROUNDS 21
#define KEY 5

static double cycle_ns(pawl *p, enum pawl_mode mode)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    for (unsigned i = 0; i < CYCLES; i++)
        if (pawl_lock(p, pawl_id(KEY), mode, &g) || pawl_unlock(p, &g))
            kit_die("cannot lock: %s", pawl_explain());
    return (double)(kit_now() - begin) / CYCLES;
}

static void measure(struct kit *k, pawl *p, enum pawl_mode mode, const char *what)
{
    static double ns[ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    const struct fisslock_counts *counts = fisslock_counts(net_of(p)->host.memory);
    cycle_ns(p, mode);
    uint64_t local = counts->local, packets = net_of(p)->sent;
    for (unsigned i = 0; i < rounds; i++)
        ns[i] = cycle_ns(p, mode);
    local = counts->local - local;
    packets = net_of(p)->sent - packets;
    printf("%s: %.4f of the grants by the own agent, %.4f packets per grant\n", what, (double)local / ((double)rounds * CYCLES),
           (double)packets / ((double)rounds * CYCLES));
    kit_judge(k, what, kit_percentile(ns, rounds, 0.5), "ns", 300);
}

/* The lock is free, and the agent stays. */
static void alone(struct kit *k)
{
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN];
    pawl *p;
    const struct loopback_params lp = {
        .design = design_find("fisslock-stay"), .machines = 4, .sessions = 4, .requests = 64, .locks = 1000};
    if (loopback_start(&l, &lp))
        kit_die("cannot start a rack on loopback");
    loopback_place(&l, 0, place);
    if (pawl_open(place, NULL, &p))
        kit_die("cannot open %s: %s", place, pawl_explain());
    measure(k, p, PAWL_EXCLUSIVE, "exclusive, with an agent that stays");
    measure(k, p, PAWL_SHARED, "shared, with an agent that stays");
    pawl_close(p);
    loopback_stop(&l);
}

static void beside_another(struct kit *k)
{
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN];
    pawl *p, *other;
    pawl_grant held;
    const struct loopback_params lp = {
        .design = design_find("fisslock"), .machines = 4, .sessions = 4, .requests = 64, .locks = 1000};
    if (loopback_start(&l, &lp))
        kit_die("cannot start a rack on loopback");
    loopback_place(&l, 0, place);
    if (pawl_open(place, NULL, &p) || pawl_open(place, NULL, &other))
        kit_die("cannot open %s: %s", place, pawl_explain());
    if (pawl_lock(other, pawl_id(KEY), PAWL_SHARED, &held))
        kit_die("cannot lock: %s", pawl_explain());
    measure(k, p, PAWL_SHARED, "shared, while another of the host holds it");
    pawl_unlock(other, &held);
    pawl_close(other);
    pawl_close(p);
    loopback_stop(&l);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "acquire and release beside the lock's own agent, over pawl://");
    beside_another(&k);
    alone(&k);
    return kit_end(&k);
}
