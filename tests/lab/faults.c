/* A rack with a switch in the kernel, and everything that can go wrong with it: packets lost, cables pulled, processes killed, the
 * switch's control process killed, the switch ended and started with its locks and without. Workers note when they held what; only
 * holds that were still valid at their end count. Afterwards: no two of them that exclude each other overlap, tokens rise, and once
 * everything is mended everybody gets on. */
#include "lib/rng.h"
#include "pawl.h"
#include "tests/lab/rack.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define HOSTS 3
#define PER_HOST 2
#define WORKERS (HOSTS * PER_HOST)
#define HOT 4
#define HOLDS_MAX 100000 /* of one worker */
#define LOSS_PERMILLE 20
#define WHERE "pawl://10.77.1.254:7070/faults"

struct hold {
    uint64_t from_ns, to_ns, token;
    uint32_t lock, mode;
};

static struct board {
    uint32_t stop, mended;
    uint64_t progress[WORKERS], after[WORKERS], lost[WORKERS];
    uint64_t holds[WORKERS];
    struct hold hold[WORKERS][HOLDS_MAX];
} * board;

static pid_t workers[WORKERS], coordinator, control;
static char pins[LAB_PATH + 8], command[512];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- workers ---- */

static bool work(unsigned w, pawl *p, struct rng *rng)
{
    pawl_grant g;
    struct hold h = {.lock = (uint32_t)rng_below(rng, HOT), .mode = rng_chance(rng, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE};
    int rc = pawl_timedlock(p, pawl_id(h.lock), (enum pawl_mode)h.mode, pawl_in(2 * NS_PER_S), &g);
    if (rc == -ETIMEDOUT)
        return true;
    if (rc)
        return false;
    h.from_ns = now_ns();
    h.token = g.token;
    if (rng_chance(rng, 1, 8))
        usleep((useconds_t)rng_below(rng, 3000));
    h.to_ns = now_ns();
    if (!pawl_check(p, &g) && board->holds[w] < HOLDS_MAX)
        board->hold[w][board->holds[w]++] = h;
    __atomic_fetch_add(&board->progress[w], 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&board->mended, __ATOMIC_ACQUIRE))
        __atomic_fetch_add(&board->after[w], 1, __ATOMIC_RELAXED);
    return !pawl_unlock(p, &g);
}

static void worker(unsigned w, uint64_t seed)
{
    struct rng rng;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rng_seed(&rng, seed);
    if (lab_enter(&rack, 1, 1 + w / PER_HOST))
        _exit(1);
    while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
        pawl *p;
        if (pawl_open(WHERE, NULL, &p)) {
            usleep(50000);
            continue;
        }
        while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE) && work(w, p, &rng))
            ;
        board->lost[w]++;
        pawl_close(p);
    }
    _exit(0);
}

static void start_worker(unsigned w, uint64_t seed)
{
    workers[w] = fork();
    if (!workers[w])
        worker(w, seed);
}

/* ---- coordinator and switch ---- */

/* A subcommand of pawl, in the switch's namespace. */
static pid_t start(const char *words)
{
    char line[2048];
    snprintf(line, sizeof line, "exec '%s' %s >/dev/null", command, words);
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!lab_enter(&rack, 1, LAB_SWITCH))
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static void start_coordinator(void)
{
    coordinator = start("serve --listen 10.77.1.254:7070 --space faults --design fisslock --locks 1000 --lease 1s --fresh");
}

static void start_switch(bool fresh)
{
    char words[512];
    snprintf(words, sizeof words,
             "switch --dev " LAB_UPLINK " --join 10.77.1.254:7070 --listen 10.77.1.254:4747 --space faults --pin %s %s", pins,
             fresh ? "--fresh" : "");
    control = start(words);
}

static void end(pid_t pid, int how)
{
    kill(pid, how);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static void forget_locks(void)
{
    char line[600];
    snprintf(line, sizeof line, "rm -rf '%s'", pins);
    CHECK_EQ(system(line), 0);
}

static void make_lossy(unsigned host)
{
    struct plane *p;
    enum plane_mode got;
    struct plane_options o = {.program = "lossy", .settings = {.options = LOSS_PERMILLE}};
    CHECK_EQ(lab_enter(&rack, 1, host), 0);
    if (plane_open(&o, &p) || plane_attach(p, LAB_DEVICE, PLANE_GENERIC, &got))
        CHECK_FAIL("%s", plane_explain());
}

/* ---- what goes wrong ---- */

static unsigned pulled, killed, controls, restarts, losses;

static void pull_cable(struct rng *rng)
{
    unsigned h = 1 + (unsigned)rng_below(rng, HOSTS);
    CHECK_EQ(lab_plug(&rack, 1, h, false), 0);
    usleep((useconds_t)(200000 + rng_below(rng, 1800000)));
    CHECK_EQ(lab_plug(&rack, 1, h, true), 0);
    pulled++;
}

static void something(struct rng *rng)
{
    unsigned w = (unsigned)rng_below(rng, WORKERS);
    switch (rng_below(rng, 8)) {
    case 0:
    case 1:
        pull_cable(rng);
        break;
    case 2:
    case 3:
        end(workers[w], SIGKILL);
        start_worker(w, rng_next(rng));
        killed++;
        break;
    case 4:
    case 5: /* the program goes on; another takes over */
        end(control, SIGKILL);
        usleep(200000);
        start_switch(false);
        controls++;
        break;
    case 6: /* detached for a while; the locks are as they were */
        end(control, SIGTERM);
        usleep((useconds_t)rng_below(rng, 500000));
        start_switch(false);
        restarts++;
        break;
    default: /* the locks are lost, too */
        end(control, SIGTERM);
        forget_locks();
        start_switch(false);
        losses++;
        usleep(2500000); /* closed for a lease */
    }
    usleep((useconds_t)(300000 + rng_below(rng, 700000)));
}

/* ---- was all well? ---- */

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct hold *)a)->from_ns, y = ((const struct hold *)b)->from_ns;
    return x < y ? -1 : x > y;
}

static void judge(void)
{
    static struct hold all[WORKERS * HOLDS_MAX];
    size_t n = 0, overlaps = 0;
    for (unsigned w = 0; w < WORKERS; w++)
        for (uint64_t i = 0; i < board->holds[w]; i++)
            all[n++] = board->hold[w][i];
    qsort(all, n, sizeof all[0], by_time);
    uint64_t writer_until[HOT] = {0}, reader_until[HOT] = {0}, token[HOT] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct hold *h = &all[i];
        bool writes = h->mode == PAWL_EXCLUSIVE;
        if (h->from_ns < writer_until[h->lock] || (writes && h->from_ns < reader_until[h->lock]))
            overlaps++;
        if (writes && h->token <= token[h->lock])
            CHECK_FAIL("lock %u: token %" PRIx64 " after %" PRIx64, h->lock, h->token, token[h->lock]);
        if (writes)
            token[h->lock] = h->token;
        uint64_t *until = writes ? &writer_until[h->lock] : &reader_until[h->lock];
        if (*until < h->to_ns)
            *until = h->to_ns;
    }
    printf("%zu valid holds; %u cables pulled, %u processes killed, %u control processes killed, %u restarts, %u of them without "
           "locks\n",
           n, pulled, killed, controls, restarts + losses, losses);
    CHECK_EQ(overlaps, 0);
    CHECK(n > 100);
}

static void everybody_gets_on(void)
{
    __atomic_store_n(&board->mended, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 300; i++) {
        unsigned served = 0;
        for (unsigned w = 0; w < WORKERS; w++)
            served += __atomic_load_n(&board->after[w], __ATOMIC_RELAXED) > 3;
        if (served == WORKERS)
            return;
        usleep(100000);
    }
    for (unsigned w = 0; w < WORKERS; w++)
        printf("worker %u: %" PRIu64 " holds, %" PRIu64 " after everything was mended\n", w, board->progress[w], board->after[w]);
    CHECK_FAIL("somebody is stuck");
}

int main(void)
{
    struct rng rng;
    uint64_t seed = getenv("PAWL_TEST_SEED") ? strtoull(getenv("PAWL_TEST_SEED"), NULL, 0) : (uint64_t)getpid();
    const char *build = getenv("PAWL_BUILD");
    snprintf(command, sizeof command, "%s/pawl", build ? build : "build");
    printf("seed %" PRIu64 "\n", seed);
    fflush(stdout);
    rng_seed(&rng, seed);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    rack_up("faults", HOSTS, false);
    char bpf[LAB_PATH];
    lab_bpf(&rack, bpf);
    snprintf(pins, sizeof pins, "%s/sw", bpf);
    start_coordinator();
    usleep(300000);
    start_switch(true);
    for (unsigned h = 1; h <= HOSTS; h++)
        make_lossy(h);
    for (unsigned w = 0; w < WORKERS; w++)
        start_worker(w, rng_next(&rng));
    for (uint64_t end_ns = now_ns() + test_seconds() * NS_PER_S / 3; now_ns() < end_ns;)
        something(&rng);
    everybody_gets_on();
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
    for (unsigned w = 0; w < WORKERS; w++)
        end(workers[w], 0);
    end(control, SIGTERM);
    end(coordinator, SIGTERM);
    judge();
    return 0;
}
