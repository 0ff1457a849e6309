/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/crowd.h"
#include "lib/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPENING_NS (120 * NS_PER_S) /* until all clients are ready: on a busy machine sessions take long to open */
#define ENDING_NS (120 * NS_PER_S)  /* until all clients have ended: locks of killed ones may have to expire first */
#define LOOK_NS (2 * NS_PER_MS)
#define NAMESPACE_MAX 128

/* ---- clients ---- */

void crowd_ready(struct crowd *c, unsigned number)
{
    __atomic_store_n(&c->reports[number].ready, 1, __ATOMIC_SEQ_CST);
    kit_await(&c->control->go, 1);
}

bool crowd_over(const struct crowd *c)
{
    return __atomic_load_n(&c->control->stop, __ATOMIC_RELAXED) != 0;
}

void crowd_fail(struct crowd *c, unsigned number, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(c->reports[number].why, CROWD_WHY, format, list);
    va_end(list);
    _exit(1);
}

static int enter_namespace(const char *all, unsigned number)
{
    char path[NAMESPACE_MAX];
    unsigned count = 1, at;
    for (const char *s = all; *s; s++)
        count += *s == ',';
    for (at = number % count; at; at--)
        all = strchr(all, ',') + 1;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(all, ","), all);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 || setns(fd, CLONE_NEWNET) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

int crowd_open(const struct crowd_place *at, unsigned number, pawl **out)
{
    char place[256];
    int rc = at->namespaces ? enter_namespace(at->namespaces, number) : 0;
    if (rc)
        return rc;
    if (at->hosts)
        snprintf(place, sizeof place, "%s?host=127.0.0.%u", at->place, 2 + number % (unsigned)at->hosts);
    else
        snprintf(place, sizeof place, "%s", at->place);
    return pawl_open(place, &at->options, out);
}

/* ---- the parent ---- */

static pid_t start_client(struct crowd *c, unsigned number)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        kit_die("cannot start client %u: %s", number, strerror(errno));
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    signal(SIGINT, SIG_DFL);
    c->work(c, number);
    _exit(0);
}

/* Whether the client has ended; *failed if it was not at its own will. */
static bool has_ended(pid_t *pid, bool *failed)
{
    int status;
    if (!*pid)
        return true;
    if (waitpid(*pid, &status, WNOHANG) != *pid)
        return false;
    *failed = *failed || status != 0;
    *pid = 0;
    return true;
}

static bool await_ready(struct crowd *c, pid_t *pids)
{
    bool failed = false;
    for (uint64_t until = kit_now() + OPENING_NS; !failed; kit_sleep(LOOK_NS)) {
        unsigned ready = 0;
        for (unsigned i = 0; i < c->clients; i++) {
            ready += __atomic_load_n(&c->reports[i].ready, __ATOMIC_SEQ_CST);
            failed = has_ended(&pids[i], &failed) || failed;
        }
        if (ready == c->clients)
            return true;
        if (kit_now() > until)
            return false;
    }
    return false;
}

static void kill_one(struct crowd *c, pid_t *pids, struct rng *rng)
{
    unsigned i = (unsigned)rng_below(rng, c->clients);
    if (!pids[i])
        return;
    kill(pids[i], SIGKILL);
    waitpid(pids[i], NULL, 0);
    pids[i] = start_client(c, i);
}

static void stop_one(const struct crowd *c, const pid_t *pids, struct rng *rng)
{
    pid_t pid = pids[rng_below(rng, c->clients)];
    if (!pid)
        return;
    kill(pid, SIGSTOP);
    kit_sleep(c->stop_ns);
    kill(pid, SIGCONT);
}

/* Until the time is over. Kills and stops take turns, evenly spread. */
static bool watch(struct crowd *c, pid_t *pids)
{
    uint64_t start = kit_now(), troubles = c->kills + c->stops, done = 0;
    bool failed = false;
    struct rng rng;
    rng_seed(&rng, start);
    while ((kit_now() - start < c->ns || done < troubles) && !failed) {
        if (done < troubles && kit_now() - start >= c->ns * (done + 1) / (troubles + 1)) {
            if (done % 2 ? done / 2 < c->stops : done / 2 >= c->kills)
                stop_one(c, pids, &rng);
            else
                kill_one(c, pids, &rng);
            done++;
        }
        kit_sleep(LOOK_NS);
        for (unsigned i = 0; i < c->clients; i++)
            failed = has_ended(&pids[i], &failed) || failed;
    }
    return !failed;
}

static bool end_clients(struct crowd *c, pid_t *pids)
{
    uint64_t until = kit_now() + ENDING_NS;
    bool failed = false;
    __atomic_store_n(&c->control->stop, 1, __ATOMIC_SEQ_CST);
    kit_post(&c->control->go, 1);
    for (unsigned i = 0; i < c->clients; i++) {
        while (!has_ended(&pids[i], &failed) && kit_now() < until)
            kit_sleep(LOOK_NS);
        if (!pids[i])
            continue;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        fprintf(stderr, "client %u did not end\n", i);
        failed = true;
    }
    return !failed;
}

int crowd_run(struct crowd *c)
{
    pid_t pids[CROWD_CLIENTS_MAX];
    struct rusage before, after;
    if (!c->clients || c->clients > CROWD_CLIENTS_MAX)
        kit_die("clients: 1 to %u", CROWD_CLIENTS_MAX);
    c->reports = kit_shared(c->clients * sizeof *c->reports);
    c->control = kit_shared(sizeof *c->control);
    getrusage(RUSAGE_CHILDREN, &before);
    for (unsigned i = 0; i < c->clients; i++) {
        hist_init(&c->reports[i].hist);
        pids[i] = start_client(c, i);
    }
    bool ok = await_ready(c, pids);
    uint64_t start = kit_now();
    kit_post(&c->control->go, 1);
    ok = ok && watch(c, pids);
    c->seconds = (double)(kit_now() - start) / NS_PER_S;
    ok = end_clients(c, pids) && ok;
    getrusage(RUSAGE_CHILDREN, &after);
    c->cpu_seconds =
        (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
        (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
    for (unsigned i = 0; i < c->clients; i++)
        if (c->reports[i].why[0])
            fprintf(stderr, "client %u: %s\n", i, c->reports[i].why);
    return ok ? 0 : -EIO;
}

void crowd_free(struct crowd *c)
{
    munmap(c->reports, c->clients * sizeof *c->reports);
    munmap(c->control, sizeof *c->control);
}

void crowd_json(const struct crowd *c, struct json *j)
{
    static struct hist all;
    uint64_t ops = 0, refused = 0, lost = 0, conflicts = 0;
    hist_init(&all);
    for (unsigned i = 0; i < c->clients; i++) {
        const struct crowd_report *r = &c->reports[i];
        ops += r->ops;
        refused += r->refused;
        lost += r->lost;
        conflicts += r->conflicts;
        hist_merge(&all, &r->hist);
    }
    json_u64(j, "clients", c->clients);
    json_double(j, "seconds", c->seconds);
    json_u64(j, "ops", ops);
    json_double(j, "ops_per_s", (double)ops / c->seconds);
    json_u64(j, "p50_ns", hist_percentile(&all, HIST_P50));
    json_u64(j, "p99_ns", hist_percentile(&all, HIST_P99));
    json_double(j, "client_cpu_s", c->cpu_seconds);
    json_u64(j, "refused", refused);
    json_u64(j, "lost", lost);
    json_u64(j, "conflicts", conflicts);
    json_u64(j, "kills", c->kills);
    json_u64(j, "stops", c->stops);
}
