/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a rack: how long a new one takes, and how many are made a second if 64 clients ask at once, with the coordinator's log
 * in a file and in an etcd of three on this machine.
 *
 * A new name costs a sync of the disk, which no program makes faster. It is measured in the same run, after each new name, so that
 * both see the same disk. The bounds are on the whole; what is left without the sync is printed beside it. TMPDIR=/dev/shm has
 * no disk. */
#include "bench/rack-ask.h"

#include <fcntl.h>
#include <sys/stat.h>

#define NEW_NAMES 1000u
#define BURST_NAMES 40000u

/* Where the log is. */
struct place_of_log {
    const char *name, *store; /* store: null: a file */
    double bound_ms, bound_rate;
};

/* ---- the disk alone ---- */

static int sync_fd = -1;

static void prepare_sync(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/sync", folder);
    sync_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (sync_fd < 0 || posix_fallocate(sync_fd, 0, 1 << 20) || fsync(sync_fd))
        kit_die("%s: %s", path, strerror(errno));
}

/* Microseconds of one sync of a few hundred bytes in a file that has its size, as the log has: no name can take less. */
static double one_sync(void)
{
    static unsigned number;
    char bytes[256];
    memset(bytes, 1, sizeof bytes);
    uint64_t begin = kit_now();
    if (pwrite(sync_fd, bytes, sizeof bytes, (off_t)(number++ % 4096 * sizeof bytes)) < 0 || fdatasync(sync_fd))
        kit_die("%s: %s", folder, strerror(errno));
    return (double)(kit_now() - begin) / NS_PER_US;
}

/* ---- one client ---- */

static double lock_and_unlock(pawl *p, const char *name)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(p, pawl_name(name), PAWL_EXCLUSIVE, &g))
        kit_die("%s: %s", name, pawl_explain());
    uint64_t took = kit_now() - begin;
    pawl_unlock(p, &g);
    return (double)took / NS_PER_US;
}

static double sync_us; /* of the latest run */

static void one_client(struct kit *k, const struct place_of_log *where)
{
    static double fresh[NEW_NAMES], known[NEW_NAMES], syncs[NEW_NAMES];
    char what[96];
    pid_t pid = start("benchone", 1000000, where->store, true);
    pawl *p = open_rack("benchone");
    char name[64];
    for (unsigned i = 0; i < NEW_NAMES; i++) {
        snprintf(name, sizeof name, "customer/%u/account", i);
        fresh[i] = lock_and_unlock(p, name);
        known[i] = lock_and_unlock(p, name);
        syncs[i] = one_sync();
    }
    double a = kit_percentile(fresh, NEW_NAMES, 0.5), b = kit_percentile(known, NEW_NAMES, 0.5);
    printf("locking a new name, %s: %.0f us at the median, %.0f us at the 99th percentile; a known one: %.0f us\n", where->name, a,
           kit_percentile(fresh, NEW_NAMES, 0.99), b);
    snprintf(what, sizeof what, "a new name, %s, beyond the lock itself", where->name);
    kit_judge(k, what, (a - b) / 1000, "ms", where->bound_ms);
    sync_us = kit_percentile(syncs, NEW_NAMES, 0.5);
    printf("one sync of the disk: %.0f us at the median, in the same run; a new name takes %.0f us beyond the lock and one sync\n",
           sync_us, a - b - sync_us);
    pawl_close(p);
    end(pid);
}

/* ---- many at once ---- */

static void at_once(struct kit *k, const struct place_of_log *where)
{
    static struct asker a;
    char what[96];
    pid_t pid = start("benchmany", 1000000, where->store, true);
    asker_open(&a, "benchmany");
    double rate = ask_all(&a, BURST_NAMES, NULL);
    if (a.refused)
        kit_die("%" PRIu64 " names were refused", a.refused);
    snprintf(what, sizeof what, "new names, %s, if 64 clients ask at once", where->name);
    kit_judge_least(k, what, rate / 1000, "K/s", where->bound_rate);
    printf("one sync for the %u that wait allows %.1f K/s on this disk\n", AT_ONCE, AT_ONCE * 1000 / sync_us);
    asker_close(&a);
    end(pid);
}

int main(int argc, char **argv)
{
    struct kit k;
    char store[128];
    const struct place_of_log file = {.name = "file", .bound_ms = 1, .bound_rate = 20};
    const struct place_of_log etcd = {.name = "etcd", .store = store, .bound_ms = 3, .bound_rate = 5};
    kit_begin(&k, argc, argv, "names of a rack");
    board = kit_shared(sizeof *board);
    make_folder();
    prepare_sync();
    one_client(&k, &file);
    at_once(&k, &file);
    if (start_etcd(store)) {
        one_client(&k, &etcd);
        at_once(&k, &etcd);
    }
    return kit_end(&k);
}
