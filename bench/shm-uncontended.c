/* SPDX-License-Identifier: Apache-2.0 */
/* An uncontended lock, with token and expiry, against a robust process-shared mutex of the C library. */
#include "bench/kit.h"
#include "lib/hash.h"
#include "lib/rng.h"
#include "world/world.h"

#include <pthread.h>
#include <stdlib.h>

#define BLOCK 20000 /* operations of one, then of the other */
#define ROUNDS 101
#define SEQUENCE (1 << 20)
#define MUTEX_BYTES 64
#define NAME_BYTES 32

enum kind { COUNTED, RANDOM, NAMED }; /* keys 0, 1, 2 …; numbers all over; names of 8 to 20 bytes */

struct table {
    uint64_t keys;
    enum kind kind;
    char *mutexes;
    char (*names)[NAME_BYTES];
    uint8_t *name_lens;
    uint32_t *order; /* of keys, the same for both */
    pawl *p;
};

static pthread_mutex_t *mutex_at(const struct table *t, uint64_t key)
{
    return (pthread_mutex_t *)(t->mutexes + key * MUTEX_BYTES);
}

static pawl_key key_at(const struct table *t, uint64_t key)
{
    return t->kind == NAMED ? pawl_bytes(t->names[key], t->name_lens[key]) : pawl_id(t->kind == RANDOM ? mix64(key) : key);
}

static void cycle(const struct table *t, uint64_t key)
{
    pawl_grant g;
    if (pawl_lock(t->p, key_at(t, key), PAWL_EXCLUSIVE, &g) || pawl_unlock(t->p, &g))
        kit_die("could not lock: %s", pawl_explain());
}

static void make_names(struct table *t, struct rng *r)
{
    t->names = calloc(t->keys, sizeof *t->names);
    t->name_lens = calloc(t->keys, 1);
    if (!t->names || !t->name_lens)
        kit_die("no memory");
    for (uint64_t i = 0; i < t->keys; i++) {
        snprintf(t->names[i], NAME_BYTES, "%08x/some-longer-name", (unsigned)i);
        t->name_lens[i] = (uint8_t)rng_between(r, 8, 20);
    }
}

static void fill(struct kit *k, struct table *t)
{
    struct rng r;
    pthread_mutexattr_t attr;
    const pawl_options options = {.keys = t->kind == NAMED ? PAWL_KEYS_NAMED : PAWL_KEYS_SPARSE, .capacity = t->keys};
    rng_seed(&r, t->keys);
    t->mutexes = kit_shared(t->keys * MUTEX_BYTES);
    t->order = calloc(SEQUENCE, sizeof *t->order);
    if (!t->order)
        kit_die("no memory");
    if (t->kind == NAMED)
        make_names(t, &r);
    for (unsigned i = 0; i < SEQUENCE; i++)
        t->order[i] = (uint32_t)rng_below(&r, t->keys);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    t->p = kit_open(k, &options);
    for (uint64_t key = 0; key < t->keys; key++) {
        pthread_mutex_init(mutex_at(t, key), &attr);
        cycle(t, key);
    }
    pthread_mutexattr_destroy(&attr);
}

/* Processor time: no thread sleeps here, and the work of other processes on this core is not counted. */
static uint64_t now(void)
{
    return world_clock(CLOCK_THREAD_CPUTIME_ID);
}

static double measure_mutexes(const struct table *t, const uint32_t *order)
{
    uint64_t start = now();
    for (unsigned i = 0; i < BLOCK; i++) {
        pthread_mutex_t *m = mutex_at(t, order[i]);
        if (pthread_mutex_lock(m) || pthread_mutex_unlock(m))
            kit_die("a mutex could not be locked");
    }
    return (double)(now() - start) / BLOCK;
}

static double measure_pawl(const struct table *t, const uint32_t *order)
{
    uint64_t start = now();
    for (unsigned i = 0; i < BLOCK; i++)
        cycle(t, order[i]);
    return (double)(now() - start) / BLOCK;
}

static void compare(struct kit *k, uint64_t keys, enum kind kind, double bound)
{
    static const char *const kinds[] = {"u64 keys", "random u64 keys", "names"};
    static double base[ROUNDS], ours[ROUNDS], ratio[ROUNDS];
    struct table t = {.keys = keys, .kind = kind};
    unsigned rounds = (unsigned)max_u64(11, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    fill(k, &t);
    for (unsigned i = 0; i < rounds; i++) {
        const uint32_t *order = t.order + (uint64_t)i * BLOCK % (SEQUENCE - BLOCK);
        base[i] = measure_mutexes(&t, order);
        ours[i] = measure_pawl(&t, order);
        ratio[i] = ours[i] / base[i];
    }
    char what[96];
    snprintf(what, sizeof what, "%llu %s: mutex %.1f ns, pawl %.1f ns, ratio", (unsigned long long)keys, kinds[kind],
             kit_percentile(base, rounds, 0.5), kit_percentile(ours, rounds, 0.5));
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", bound);
    pawl_close(t.p);
    kit_drop(k);
    free(t.order);
    free(t.names);
    free(t.name_lens);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "uncontended lock and unlock against a robust process-shared mutex");
    kit_pin(k.cpus[0]);
    printf("one process on core %d, no sleep, processor time; blocks of %d operations in turns, median of the rounds' ratios\n",
           k.cpus[0], BLOCK);
    compare(&k, 1, COUNTED, 1.5);
    compare(&k, 1000, COUNTED, 1.5);
    compare(&k, 1000000, COUNTED, 1.5);
    compare(&k, 1000, RANDOM, 1.5);
    compare(&k, 1000000, RANDOM, 1.5);
    compare(&k, 1000, NAMED, 3.0);
    return kit_end(&k);
}
