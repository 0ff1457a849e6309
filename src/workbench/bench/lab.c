/* SPDX-License-Identifier: Apache-2.0 */
#include "client/handle.h"
#include "workbench/bench/place.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS (20 * NS_PER_S) /* a program with many locks takes its time to load */
#define PREFIX "bench-"          /* then this process's id, and the design */
#define LOOK_US 20000

int bench_lab_enter(const struct bench_lab *l, unsigned host, char place[LAB_PLACE])
{
    lab_rack_place(&l->rack, place);
    return lab_enter(&l->lab, 1, 1 + host % l->lab.hosts);
}

/* In a process on the first host: whether a lock was granted in time. */
static int try_a_lock(const struct bench_lab *l)
{
    char place[LAB_PLACE];
    uint64_t until = world_clock(CLOCK_MONOTONIC) + START_NS;
    pawl_grant grant;
    pawl *p;
    if (bench_lab_enter(l, 0, place))
        return 1;
    while (pawl_open(place, NULL, &p)) {
        if (world_clock(CLOCK_MONOTONIC) > until)
            return 1;
        usleep(LOOK_US);
    }
    return pawl_timedlock(p, pawl_id(0), PAWL_EXCLUSIVE, until, &grant) || pawl_unlock(p, &grant);
}

static int await_lock(const struct bench_lab *l)
{
    int status = 1;
    pid_t pid = child_fork();
    if (!pid)
        _exit(try_a_lock(l));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid < 0 ? -errno : status ? -ETIMEDOUT : 0;
}

/* Removes labs of benchmarks that were killed. */
static void remove_leftovers(void)
{
    DIR *all = opendir(LAB_DIR);
    for (struct dirent *d; all && (d = readdir(all));) {
        long pid = strncmp(d->d_name, PREFIX, strlen(PREFIX)) ? 0 : strtol(d->d_name + strlen(PREFIX), NULL, 10);
        if (pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH)
            lab_down(d->d_name);
    }
    if (all)
        closedir(all);
}

int bench_lab_start(struct bench_lab *l, const struct bench_params *p, const struct design *design, char why[BENCH_WHY_LEN])
{
    *l = (struct bench_lab){.lab = {.racks = 1, .hosts = p->nodes}, .rack = {.lab = &l->lab, .rack = 1, .design = design->name}};
    snprintf(l->lab.name, sizeof l->lab.name, PREFIX "%d-%s", (int)getpid(), design->name);
    remove_leftovers();
    int rc = lab_up(&l->lab);
    if (rc) {
        snprintf(why, BENCH_WHY_LEN, "a lab: %s", explained());
        l->lab.name[0] = 0; /* another's */
        return rc;
    }
    snprintf(l->options, sizeof l->options, "--keys %s --locks %" PRIu64 " --sessions %u", p->workload.names ? "named" : "dense",
             p->workload.locks, p->clients / (lab_rack_is_node(&l->rack) ? 1 : p->nodes) + BENCH_SESSIONS_SPARE);
    lab_rack_serve(&l->rack, l->options, true);
    usleep(LOOK_US);
    if (lab_rack_has_switch(&l->rack))
        lab_rack_control(&l->rack, true);
    rc = await_lock(l);
    if (rc)
        snprintf(why, BENCH_WHY_LEN, "the lab's rack does not come up");
    return rc;
}

void bench_lab_stop(struct bench_lab *l)
{
    if (!l->lab.name[0])
        return;
    lab_rack_stop(&l->rack);
    lab_down(l->lab.name);
    l->lab.name[0] = 0;
}
