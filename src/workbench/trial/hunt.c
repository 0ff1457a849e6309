/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/hunt.h"
#include "workbench/trial/reached.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIXED_ONE_IN 4  /* seeds whose mix of operations is campaign 1's; */
#define BESIDE_ONE_IN 4 /* of designs that offer what campaign 3 tries: seeds of that */
#define NODE_ONE_IN 6   /* of designs that are offered on memory nodes: seeds on such nodes */
#define NODE_SALT UINT64_C(0x6e6f6465)
#define FAULTLESS_ONE_IN 8        /* and of those: without faults, where the oracle judges fairness, too */
#define LOOK_NS (100 * NS_PER_MS) /* how often the hunter looks after its workers */
#define SAY_NS NS_PER_S           /* how often it tells of its progress */
#define TRACE_SECONDS_MAX 20      /* of CPU time: a run that hangs has a trace without end */
#define TEXT_LEN 256              /* of what a worker that aborts says last */

/* The seed that a worker runs: shared with the hunter, which reads there the seed of a worker that died. */
struct worker {
    pid_t pid;
    uint64_t task; /* number of the run, + 1; 0: none yet */
    uint64_t seeds, grants, events, faults, cpu_ns;
    bool failed;
    char why[ORACLE_TEXT_LEN];
};

struct hunt {
    uint64_t next;    /* number of the next run */
    uint8_t *reached; /* a mark for each branch; null: none is counted, or none is asked for */
    struct worker workers[HUNT_JOBS_MAX];
};

/* With a campaign that was asked for, a seed runs where 'pawl sim' runs it. */
static bool is_on_node(const struct hunt_params *p, const struct design *d, uint64_t seed)
{
    bool drawn = !p->campaign && d->substrates & DESIGN_ON_NODE && mix64(seed ^ NODE_SALT) % NODE_ONE_IN == 0;
    return p->on == HUNT_ON_NODE || (p->on == HUNT_ON_DRAWN && drawn);
}

static struct campaign_params params_of(const struct hunt_params *p, uint64_t task)
{
    uint64_t seed = p->seed + task / p->count;
    const struct design *d = p->designs[task % p->count];
    uint64_t drawn = mix64(seed);
    bool beside = campaign_has_beside(d) && (drawn >> 32) % BESIDE_ONE_IN == 0;
    unsigned campaign = beside ? CAMPAIGN_BESIDE : drawn % FIXED_ONE_IN ? CAMPAIGN_SWARM : CAMPAIGN_FIXED;
    bool faultless = !p->campaign && campaign == CAMPAIGN_FIXED && drawn / FIXED_ONE_IN % FAULTLESS_ONE_IN == 0;
    return (struct campaign_params){
        .design = d,
        .model = p->model,
        .faults = faultless ? 0 : campaign_faults(d, p->faults),
        .seed = seed,
        .campaign = p->campaign ? p->campaign : campaign,
        .on_node = is_on_node(p, d, seed),
    };
}

/* ---- a worker ---- */

static void add_run(struct worker *w, const struct campaign_result *r)
{
    w->grants += r->grants;
    w->events += r->events;
    w->cpu_ns = world_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
        w->faults += r->faults[kind];
    __atomic_store_n(&w->seeds, w->seeds + 1, __ATOMIC_RELEASE);
}

__attribute__((noreturn)) static void work(struct hunt *h, struct worker *w, const struct hunt_params *p)
{
    for (;;) {
        uint64_t task = __atomic_fetch_add(&h->next, 1, __ATOMIC_RELAXED);
        if (p->seeds && task / p->count >= p->seeds)
            _exit(0);
        __atomic_store_n(&w->task, task + 1, __ATOMIC_RELEASE);
        const struct campaign_params params = params_of(p, task);
        struct campaign_result r;
        if (campaign_run(&params, &r))
            _exit(2);
        if (h->reached)
            reached_mark(h->reached);
        add_run(w, &r);
        if (!r.violations && !r.stuck)
            continue;
        memcpy(w->why, r.why, sizeof w->why);
        w->failed = true;
        _exit(1);
    }
}

/* ---- the hunter ---- */

static uint64_t real_now(void)
{
    return world_now(&world_real);
}

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return 0;
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int start(struct hunt *h, struct worker *w, const struct hunt_params *p)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (!pid)
        work(h, w, p);
    w->pid = pid;
    return 0;
}

static void end(struct worker *w)
{
    if (w->pid <= 0)
        return;
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    w->pid = 0;
}

static void found(struct hunt_failure *out, const struct hunt_params *p, const struct worker *w, const char *why)
{
    out->found = true;
    out->params = params_of(p, w->task - 1);
    snprintf(out->why, sizeof out->why, "%s", why);
}

/* A worker has ended: by a failure, by a signal (an assertion, most likely), or because there is nothing left to do. */
static void reap(struct worker *w, const struct hunt_params *p, int status, struct hunt_failure *out)
{
    char text[TEXT_LEN];
    w->pid = 0;
    if (out->found)
        return;
    if (w->failed)
        found(out, p, w, w->why);
    else if (WIFSIGNALED(status) && w->task) {
        snprintf(text, sizeof text, "the run ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        found(out, p, w, text);
    }
}

/* CPU time that a worker has spent on its present run. */
struct spent {
    uint64_t task, from_ns;
};

static bool hangs(const struct worker *w, struct spent *s, uint64_t limit_ns)
{
    uint64_t task = __atomic_load_n(&w->task, __ATOMIC_ACQUIRE), now = cpu_ns(w->pid);
    if (task != s->task)
        *s = (struct spent){.task = task, .from_ns = now};
    return task && limit_ns && now - s->from_ns > limit_ns;
}

static unsigned look(struct hunt *h, const struct hunt_params *p, struct spent *spent, struct hunt_failure *out)
{
    unsigned alive = 0;
    for (unsigned i = 0; i < p->jobs; i++) {
        struct worker *w = &h->workers[i];
        int status;
        if (w->pid <= 0)
            continue;
        if (waitpid(w->pid, &status, WNOHANG) == w->pid) {
            reap(w, p, status, out);
        } else if (hangs(w, &spent[i], p->seed_ns) && !out->found) {
            found(out, p, w, "the run takes too long: it hangs, or packets storm");
        } else {
            alive++;
        }
    }
    return alive;
}

static void sum_up(const struct hunt *h, unsigned jobs, uint64_t start, struct hunt_sum *sum)
{
    *sum = (struct hunt_sum){.ns = real_now() - start};
    for (unsigned i = 0; i < jobs; i++) {
        const struct worker *w = &h->workers[i];
        sum->seeds += __atomic_load_n(&w->seeds, __ATOMIC_ACQUIRE);
        sum->grants += w->grants;
        sum->events += w->events;
        sum->faults += w->faults;
        sum->cpu_ns += w->cpu_ns;
    }
    if (h->reached) {
        sum->branches = reached_all();
        sum->reached = reached_count(h->reached);
    }
}

static bool goes_on(const struct hunt_params *p, uint64_t start, const struct hunt_failure *out)
{
    return !out->found && !(p->stop && *p->stop) && real_now() - start < p->ns;
}

static void *shared_new(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int hunt_run(const struct hunt_params *p, struct hunt_sum *sum, struct hunt_failure *out)
{
    assert(p->count && p->count <= HUNT_DESIGNS_MAX && p->jobs && p->jobs <= HUNT_JOBS_MAX);
    struct spent spent[HUNT_JOBS_MAX] = {{0}};
    uint64_t began = real_now(), said = began;
    struct hunt *h = shared_new(sizeof *h);
    int rc = h ? 0 : -ENOMEM;
    *out = (struct hunt_failure){.found = false};
    if (rc)
        return rc;
    if (reached_all())
        h->reached = shared_new(reached_all());
    for (unsigned i = 0; i < p->jobs && !rc; i++)
        rc = start(h, &h->workers[i], p);
    while (!rc && look(h, p, spent, out) && goes_on(p, began, out)) {
        nanosleep(&(struct timespec){.tv_nsec = (long)LOOK_NS}, NULL);
        if (p->progress && real_now() - said >= SAY_NS) {
            said = real_now();
            sum_up(h, p->jobs, began, sum);
            p->progress(p->ctx, sum);
        }
    }
    for (unsigned i = 0; i < p->jobs; i++)
        end(&h->workers[i]);
    sum_up(h, p->jobs, began, sum);
    if (h->reached)
        munmap(h->reached, reached_all());
    munmap(h, sizeof *h);
    return rc;
}

/* ---- shrinking ---- */

/* Whether it fails, in a process of its own; why, if so. */
static bool fails(const struct campaign_params *c, uint64_t seed_ns, char why[ORACLE_TEXT_LEN])
{
    const struct hunt_params one = {.designs = {c->design}, .count = 1, .jobs = 1, .seed_ns = seed_ns};
    struct hunt_failure f = {.found = false};
    struct spent spent = {0};
    struct hunt *h = shared_new(sizeof *h);
    if (!h)
        return false;
    struct worker *w = &h->workers[0];
    fflush(NULL);
    w->task = 1;
    pid_t pid = fork();
    if (pid > 0)
        w->pid = pid; /* not by the child: the memory is shared */
    if (!pid) {
        struct campaign_result r;
        if (!freopen("/dev/null", "w", stderr) || campaign_run(c, &r))
            _exit(2);
        w->failed = r.violations || r.stuck;
        memcpy(w->why, r.why, sizeof w->why);
        _exit(w->failed);
    }
    while (look(h, &one, &spent, &f) && !f.found)
        nanosleep(&(struct timespec){.tv_nsec = (long)NS_PER_MS}, NULL);
    end(w);
    munmap(h, sizeof *h);
    memcpy(why, f.why, sizeof f.why);
    return f.found;
}

struct shrinking {
    struct hunt_failure *f;
    uint64_t seed_ns, until;
    unsigned runs;
};

/* Keeps the smaller one if it fails, too. */
static bool try_smaller(struct shrinking *s, const struct campaign_params *smaller)
{
    char why[ORACLE_TEXT_LEN];
    if (real_now() >= s->until)
        return false;
    s->runs++;
    if (!fails(smaller, s->seed_ns, why))
        return false;
    s->f->params = *smaller;
    memcpy(s->f->why, why, sizeof why);
    return true;
}

/* The least number that still fails, from the bottom: 1, 2, 3, 4, 6, 8, 12, 16 … below what it is. */
static bool shrink_number(struct shrinking *s, size_t offset, uint64_t unit, uint64_t most)
{
    for (uint64_t n = 1; n < most; n = n < 4 ? n + 1 : n + n / 2) {
        struct campaign_params smaller = s->f->params;
        uint64_t *limit = (uint64_t *)(void *)((char *)&smaller.limits + offset);
        if (*limit && *limit <= n * unit)
            return false;
        *limit = n * unit;
        if (try_smaller(s, &smaller))
            return true;
    }
    return false;
}

static bool shrink_faults(struct shrinking *s)
{
    bool any = false;
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        struct campaign_params smaller = s->f->params;
        if (!(smaller.faults & FAULT_BIT(kind)))
            continue;
        smaller.faults &= ~FAULT_BIT(kind);
        any |= try_smaller(s, &smaller);
    }
    return any;
}

unsigned hunt_shrink(struct hunt_failure *f, uint64_t seed_ns, uint64_t ns)
{
    struct shrinking s = {.f = f, .seed_ns = seed_ns, .until = real_now() + ns};
    bool again = true;
    while (again && real_now() < s.until) {
        again = shrink_number(&s, offsetof(struct swarm_limits, clients), 1, 16);
        again |= shrink_number(&s, offsetof(struct swarm_limits, locks), 1, 200);
        again |= shrink_number(&s, offsetof(struct swarm_limits, hosts), 1, 6);
        again |= shrink_number(&s, offsetof(struct swarm_limits, tasks), 1, 4);
        again |= shrink_faults(&s);
        again |= shrink_number(&s, offsetof(struct swarm_limits, safety_ns), NS_PER_MS, 400);
    }
    return s.runs;
}

int hunt_trace(const struct hunt_failure *f, FILE *out)
{
    struct campaign_params params = f->params;
    params.trace = out;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (!pid) {
        struct campaign_result r;
        setvbuf(out, NULL, _IOLBF, 0); /* if it aborts, what was written is there */
        setrlimit(RLIMIT_CPU, &(struct rlimit){TRACE_SECONDS_MAX, TRACE_SECONDS_MAX});
        _exit(campaign_run(&params, &r) ? 2 : 0);
    }
    waitpid(pid, NULL, 0);
    return 0;
}
