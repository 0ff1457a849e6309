/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks over UDP on this machine: ten free locks by one pawl_lock_all against one lock, and a transaction of ten locks,
 * taken and given back together against one by one, in turns. */
#include "bench/kit.h"
#include "workbench/lab/loopback.h"

#include <stdlib.h>

#define ROUNDS 21
#define TURNS 200
#define TOGETHER 10
#define LOCKS 100000
#define STRIDE 7919 /* a prime: neighbours in time are not neighbours in memory */

static uint64_t next_key(void)
{
    static uint64_t n;
    return ++n * STRIDE % LOCKS;
}

static void must(int rc, const char *what)
{
    if (rc)
        kit_die("cannot %s: %s", what, pawl_explain());
}

/* The time of one lock and of its transaction. */
static void one(pawl *p, double *lock, double *both)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    must(pawl_lock(p, pawl_id(next_key()), PAWL_EXCLUSIVE, &g), "lock");
    *lock = (double)(kit_now() - begin);
    must(pawl_unlock(p, &g), "unlock");
    *both = (double)(kit_now() - begin);
}

static void ten_in_turn(pawl *p, double *both)
{
    pawl_grant g[TOGETHER];
    uint64_t begin = kit_now();
    for (unsigned i = 0; i < TOGETHER; i++)
        must(pawl_lock(p, pawl_id(next_key()), PAWL_EXCLUSIVE, &g[i]), "lock");
    for (unsigned i = 0; i < TOGETHER; i++)
        must(pawl_unlock(p, &g[i]), "unlock");
    *both = (double)(kit_now() - begin);
}

static void ten_together(pawl *p, double *lock, double *both)
{
    pawl_want wants[TOGETHER];
    pawl_grant g[TOGETHER];
    for (unsigned i = 0; i < TOGETHER; i++)
        wants[i] = (pawl_want){.key = pawl_id(next_key()), .mode = PAWL_EXCLUSIVE};
    uint64_t begin = kit_now();
    must(pawl_lock_all(p, wants, TOGETHER, UINT64_MAX, g), "lock ten");
    *lock = (double)(kit_now() - begin);
    must(pawl_unlock_all(p, g, TOGETHER), "unlock ten");
    *both = (double)(kit_now() - begin);
}

static void measure(struct kit *k, const char *name)
{
    static double lock1[TURNS], both1[TURNS], turn[TURNS], lock10[TURNS], both10[TURNS], time1[ROUNDS], time10[ROUNDS],
        ratio[ROUNDS], faster[ROUNDS];
    const unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    const struct loopback_params lp = {
        .design = design_find(name), .machines = 4, .sessions = 4, .requests = 256, .servers = 1, .locks = LOCKS};
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN], what[128];
    pawl *p;
    if (!lp.design || loopback_start(&l, &lp))
        kit_die("cannot start a rack of %s on loopback", name);
    loopback_place(&l, 0, place);
    must(pawl_open(place, NULL, &p), "open");
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < TURNS; i++) {
            one(p, &lock1[i], &both1[i]);
            ten_together(p, &lock10[i], &both10[i]);
            ten_in_turn(p, &turn[i]);
        }
        time1[r] = kit_percentile(lock1, TURNS, 0.5);
        time10[r] = kit_percentile(lock10, TURNS, 0.5);
        ratio[r] = time10[r] / time1[r];
        faster[r] = kit_percentile(turn, TURNS, 0.5) / kit_percentile(both10, TURNS, 0.5);
    }
    snprintf(what, sizeof what, "%s: one lock %.1f us, ten by pawl_lock_all %.1f us, ratio", name,
             kit_percentile(time1, rounds, 0.5) / 1000, kit_percentile(time10, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", 1.5);
    snprintf(what, sizeof what, "%s: ten locks, taken and given back together, faster than in turn by", name);
    kit_judge_least(k, what, kit_percentile(faster, rounds, 0.5), "x", 5);
    pawl_close(p);
    loopback_stop(&l);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "ten locks over UDP on loopback at once, against one and against one by one");
    printf("medians of rounds of %d turns each; the client spins, then sleeps\n", TURNS);
    measure(&k, "srvlock");
    measure(&k, "fisslock");
    measure(&k, "netlock");
    return kit_end(&k);
}
