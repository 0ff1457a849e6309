/* SPDX-License-Identifier: Apache-2.0 */
/* Every rack has a space, a coordinator and a switch of its own; or, if the design divides its locks, all have one space, and each
 * its switch. Workers record their holds with times; only holds that were still valid at their end count. Afterwards no two of them
 * that exclude each other may overlap, tokens must rise, and once all faults have ended every worker must make progress. */
#include "workbench/lab/run.h"
#include "dataplane/xdp/loader.h"
#include "designs/core/design.h"
#include "designs/packet/packet.h"
#include "lib/rng.h"
#include "workbench/lab/rack.h"
#include "world/world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORKERS_MAX 64
#define HOT 4 /* locks of a rack that are fought for */
#define LOCKS (HOT * LAB_RACKS_MAX)
#define HOLDS_MAX 200000 /* of one worker that are checked at the end */
#define FORGET_US 60000
#define SERVE_US 300000 /* until coordinators listen */
#define CALM_US 50000
#define MEND_MS 30000 /* until all workers must have made progress */

struct held {
    uint64_t from_ns, to_ns, token;
    uint32_t lock, mode;
};

static struct board {
    uint32_t stop, mended;
    uint64_t progress[WORKERS_MAX], after[WORKERS_MAX], lost[WORKERS_MAX];
    uint64_t holds[WORKERS_MAX];
    struct held hold[WORKERS_MAX][HOLDS_MAX];
} * board;

static const struct lab *lab;
static const struct lab_run *run;
static pid_t workers[WORKERS_MAX];
static struct lab_rack racks[LAB_RACKS_MAX + 1];
static struct lab_outcome *sum;
static bool shares; /* the design has a shared mode */

static uint64_t now_ns(void)
{
    return world_now(&world_real);
}

/* ---- workers ---- */

/* Workers of a host follow each other, and hosts of a rack. */
static unsigned rack_of(unsigned w)
{
    return 1 + w / ((unsigned)run->workers * lab->hosts);
}
static unsigned host_of(unsigned w)
{
    return 1 + w / (unsigned)run->workers % lab->hosts;
}

static bool work(unsigned w, pawl *p, struct rng *rng)
{
    pawl_grant g;
    uint64_t key = rng_below(rng, HOT * (sum->divided ? lab->racks : 1));
    struct held h = {.lock = (uint32_t)((sum->divided ? 0 : HOT * (rack_of(w) - 1)) + key),
                     .mode = rng_chance(rng, 1, 2) && shares ? PAWL_SHARED : PAWL_EXCLUSIVE};
    if (run->careless && !w)
        key = LOCKS; /* a lock that no other worker wants */
    int rc = pawl_timedlock(p, pawl_id(key), (enum pawl_mode)h.mode, pawl_in(2 * NS_PER_S), &g);
    if (rc == -ETIMEDOUT)
        return true;
    if (rc)
        return false;
    h.from_ns = now_ns();
    h.token = g.token;
    if (run->forgetful)
        usleep(FORGET_US);          /* long enough that the switch loses its locks during nearly every hold */
    else if (rng_chance(rng, 1, 8)) /* now and then for longer than it takes to restart a switch */
        usleep((useconds_t)rng_below(rng, rng_chance(rng, 1, 20) ? 1000000 : 3000));
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
    char place[LAB_PLACE], where[LAB_PLACE + 16];
    bool first = w % run->workers == 0; /* only one process of a host can bypass the network stack */
    lab_rack_place(&racks[rack_of(w)], place);
    snprintf(where, sizeof where, "%s%s", place, run->afxdp && first ? "?wire=afxdp" : "");
    rng_seed(&rng, seed);
    if (lab_enter(lab, rack_of(w), host_of(w)))
        _exit(1);
    while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
        pawl *p;
        if (pawl_open(where, NULL, &p)) {
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
    workers[w] = child_fork();
    if (!workers[w])
        worker(w, seed);
}

/* ---- what goes wrong ---- */

static struct plane *noise[LAB_RACKS_MAX + 1][LAB_HOSTS_MAX + 1];

/* Loses, duplicates and delays some of the packets that come in, until it is closed. */
static int make_noise(unsigned rack, unsigned host)
{
    struct plane **n = &noise[rack][host];
    const struct plane_options o = {.program = "noise",
                                    .settings = {.options = (uint32_t)(run->loss_thousandths | run->duplicate_thousandths << 10 |
                                                                       run->late_thousandths << 20)}};
    int rc = lab_enter(lab, rack, host);
    if (!rc)
        rc = plane_open(&o, n);
    return rc ? rc : plane_filter(*n, LAB_DEVICE, "noise_in", "noise_out");
}

/* Removes the filters, and adds up their counters. */
static void sum_noise(void)
{
    for (unsigned i = 0; i < lab->racks * lab->hosts; i++) {
        unsigned rack = 1 + i / lab->hosts, host = 1 + i % lab->hosts;
        struct plane_counters c;
        struct plane *n = noise[rack][host];
        if (!n || lab_enter(lab, rack, host))
            continue;
        if (!plane_count(n, &c)) {
            sum->packets_lost += c.verdict[PLANE_DROPPED];
            sum->packets_doubled += c.verdict[PLANE_DOUBLED];
            sum->packets_late += c.verdict[PLANE_SENT];
        }
        plane_close(n, PLANE_REMOVE);
    }
}

static void pull_cable(unsigned rack, struct rng *rng)
{
    unsigned h = 1 + (unsigned)rng_below(rng, lab->hosts);
    lab_plug(lab, rack, h, false);
    usleep((useconds_t)(200000 + rng_below(rng, 1800000)));
    lab_plug(lab, rack, h, true);
    sum->cables_pulled++;
}

/* The locks are lost; the switch waits until no host can hold anything from before. */
static void lose_locks(unsigned rack)
{
    child_end(&racks[rack].control, SIGTERM);
    lab_rack_forget(&racks[rack]);
    lab_rack_control(&racks[rack], false);
    sum->losses++;
    usleep(2500000); /* closed for a lease */
}

/* Gives some of the locks to another rack. */
static void move_locks(struct rng *rng)
{
    unsigned first = (unsigned)rng_below(rng, RACK_SHARDS), count = 1 + (unsigned)rng_below(rng, RACK_SHARDS - first);
    sum->moves += lab_rack_move(&racks[1], first, first + count, 1 + (unsigned)rng_below(rng, lab->racks));
}

static void something(struct rng *rng)
{
    unsigned w = (unsigned)rng_below(rng, sum->processes), rack = rack_of(w);
    switch (rng_below(rng, lab_rack_has_switch(&racks[rack]) || lab_rack_is_node(&racks[rack]) ? 8 : 4)) {
    case 0:
    case 1:
        pull_cable(rack, rng);
        break;
    case 2:
    case 3:
        child_end(&workers[w], SIGKILL);
        start_worker(w, rng_next(rng));
        sum->processes_killed++;
        break;
    case 4:
    case 5: /* the program goes on; another takes over */
        child_end(&racks[rack].control, SIGKILL);
        usleep(200000);
        lab_rack_control(&racks[rack], false);
        sum->controls_killed++;
        break;
    case 6: /* detached for a while; the locks are as they were */
        child_end(&racks[rack].control, SIGTERM);
        usleep((useconds_t)rng_below(rng, 500000));
        lab_rack_control(&racks[rack], false);
        sum->restarts++;
        break;
    default:
        lose_locks(rack);
    }
    usleep((useconds_t)(300000 + rng_below(rng, 700000)));
}

/* ---- was all well? ---- */

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const struct held *)a)->from_ns, y = ((const struct held *)b)->from_ns;
    return x < y ? -1 : x > y;
}

/* Counts holds that overlap and exclude each other, or have a token that should be higher. */
static void judge(void)
{
    struct held *all = malloc(sizeof(struct held) * WORKERS_MAX * HOLDS_MAX);
    size_t n = 0;
    for (unsigned w = 0; all && w < sum->processes; w++)
        for (uint64_t i = 0; i < board->holds[w]; i++)
            all[n++] = board->hold[w][i];
    if (n)
        qsort(all, n, sizeof all[0], by_time);
    uint64_t writer_until[LOCKS] = {0}, reader_until[LOCKS] = {0}, token[LOCKS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct held *h = &all[i];
        bool writes = h->mode == PAWL_EXCLUSIVE;
        if (h->from_ns < writer_until[h->lock] || (writes && h->from_ns < reader_until[h->lock]))
            sum->violations++; /* I1 */
        if (writes && h->token <= token[h->lock])
            sum->violations++; /* I2 */
        if (writes)
            token[h->lock] = h->token;
        uint64_t *until = writes ? &writer_until[h->lock] : &reader_until[h->lock];
        *until = max_u64(*until, h->to_ns);
    }
    free(all);
    sum->holds = n;
}

/* Waits until all workers make progress (I9). Returns how many do not. */
static unsigned count_stuck(void)
{
    unsigned stuck = sum->processes;
    __atomic_store_n(&board->mended, 1, __ATOMIC_RELEASE);
    for (unsigned ms = 0; ms < MEND_MS && stuck; ms += 100) {
        stuck = 0;
        usleep(100000);
        for (unsigned w = 0; w < sum->processes; w++)
            stuck += __atomic_load_n(&board->after[w], __ATOMIC_RELAXED) <= 3;
    }
    return stuck;
}

/* ---- the run ---- */

static int check(void)
{
    const struct design *d = design_find(run->design);
    sum->processes = (unsigned)min_u64(run->workers, WORKERS_MAX + 1) * lab->hosts * lab->racks;
    sum->divided = lab_rack_can_divide(run->design);
    if (!run->workers || sum->processes > WORKERS_MAX)
        return explain(-EINVAL, "the lab has %u hosts, and all workers together must be between 1 and %d", lab->hosts * lab->racks,
                       WORKERS_MAX);
    bool packets = d && d->packet && d->substrates & DESIGN_ON_UDP && (!packet_divides(d->packet) || sum->divided);
    if (!packets && !(d && d->substrates & DESIGN_ON_NODE_XDP))
        return explain(-EINVAL,
                       "the design '%s' does not run in a lab; fisslock, fisslock-stay, fisslock-racks, netlock, srvlock and those "
                       "on a memory node do",
                       run->design);
    shares = d->features & DESIGN_SHARED;
    if (run->moves && (!sum->divided || lab->racks < 2))
        return explain(-EINVAL, "--moves is for locks that are divided among several racks: --design fisslock-racks");
    return lab_processes(lab) ? explain(-EEXIST, "something runs in this lab already") : 0;
}

static void start_racks(void)
{
    for (unsigned rack = 1; rack <= lab->racks; rack++) {
        racks[rack] = (struct lab_rack){.lab = lab, .rack = rack, .design = run->design, .divided = sum->divided};
        if (rack == 1 || !sum->divided)
            lab_rack_serve(&racks[rack], "--keys dense --locks 1000 --lease 1s", true);
    }
    usleep(SERVE_US);
    for (unsigned rack = 1; rack <= lab->racks; rack++)
        if (lab_rack_has_switch(&racks[rack]))
            lab_rack_control(&racks[rack], true);
}

static int start_noise(void)
{
    int rc = 0;
    if (!run->loss_thousandths && !run->duplicate_thousandths && !run->late_thousandths)
        return 0;
    for (unsigned i = 0; i < lab->racks * lab->hosts && !rc; i++)
        rc = make_noise(1 + i / lab->hosts, 1 + i % lab->hosts);
    return rc;
}

/* The switch loses its locks, and no host is told. */
static void forget_locks(void)
{
    char pins[LAB_PINS];
    lab_rack_pins(&racks[1], pins);
    sum->losses += !plane_forget(pins);
    usleep(FORGET_US);
}

static void make_trouble(struct rng *rng)
{
    for (uint64_t end_ns = now_ns() + run->ns; now_ns() < end_ns;) {
        if (run->moves)
            move_locks(rng);
        if (run->forgetful)
            forget_locks();
        else if (run->faults)
            something(rng);
        else
            usleep(CALM_US);
    }
}

static void stop_all(void)
{
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
    for (unsigned w = 0; w < sum->processes; w++)
        child_end(&workers[w], sum->stuck ? SIGKILL : 0);
    for (unsigned rack = 1; rack <= lab->racks; rack++)
        lab_rack_stop(&racks[rack]);
    sum_noise();
}

int lab_run(const struct lab *l, const struct lab_run *r, struct lab_outcome *out)
{
    struct rng rng;
    lab = l;
    run = r;
    sum = out;
    *out = (struct lab_outcome){.seed = r->seed ? r->seed : world_random(&world_real) >> 32};
    int rc = check();
    if (rc)
        return rc;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (board == MAP_FAILED)
        return explain(-errno, "cannot make the memory that workers share: %s", strerror(errno));
    rng_seed(&rng, out->seed);
    start_racks();
    rc = start_noise();
    for (unsigned w = 0; w < out->processes && !rc; w++)
        start_worker(w, rng_next(&rng));
    if (!rc) {
        make_trouble(&rng);
        out->stuck = count_stuck();
    }
    stop_all();
    judge();
    return rc;
}
