/* SPDX-License-Identifier: Apache-2.0 */
/* pawl lab run: processes on the lab's hosts lock and unlock through their rack's switch, while things go wrong if asked for. Every
 * rack has a space, a coordinator and a switch of its own; or, if the design divides its locks, all have one space, and each its
 * switch. Workers note when they held what; only holds that were still valid at
 * their end count. Afterwards: no two of them that exclude each other overlap, tokens rise, and once everything is mended everybody
 * gets on. */
#include "cli/lab.h"
#include "dataplane/xdp/loader.h"
#include "designs/core/design.h"
#include "designs/packet/packet.h"
#include "lib/rng.h"
#include "workbench/lab/rack.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS_MAX 64
#define HOT 4 /* locks of a rack that are fought for */
#define LOCKS (HOT * LAB_RACKS_MAX)
#define HOLDS_MAX 200000 /* of one worker that are looked at in the end */
#define FORGET_US 60000
#define MEND_MS 30000 /* until everybody must have got on */

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
static unsigned worker_count;
static bool divided; /* one space of all racks; else one of each */
static unsigned pulled, killed, controls, restarts, losses, moves;
static uint64_t lost, twice, late; /* packets */

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
    uint64_t key = rng_below(rng, HOT * (divided ? lab->racks : 1));
    struct held h = {.lock = (uint32_t)((divided ? 0 : HOT * (rack_of(w) - 1)) + key),
                     .mode = rng_chance(rng, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE};
    if (run->careless && !w)
        key = LOCKS; /* a lock that nobody else wants */
    int rc = pawl_timedlock(p, pawl_id(key), (enum pawl_mode)h.mode, pawl_in(2 * NS_PER_S), &g);
    if (rc == -ETIMEDOUT)
        return true;
    if (rc)
        return false;
    h.from_ns = now_ns();
    h.token = g.token;
    if (run->forgetful)
        usleep(FORGET_US);          /* nearly all holds are forgotten while they last */
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
    bool first = w % run->workers == 0; /* one process of a host can have the way past the stack */
    lab_rack_place(&racks[rack_of(w)], place);
    snprintf(where, sizeof where, "%s%s", place, run->afxdp && first ? "?wire=afxdp" : "");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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
    workers[w] = fork();
    if (!workers[w])
        worker(w, seed);
}

/* ---- what goes wrong ---- */

static struct plane *noise[LAB_RACKS_MAX + 1][LAB_HOSTS_MAX + 1];

/* Loses, doubles and delays some of what comes in, until it is closed. */
static int make_noise(unsigned rack, unsigned host)
{
    struct plane **n = &noise[rack][host];
    const struct plane_options o = {
        .program = "noise",
        .settings = {.options = (uint32_t)(run->loss_thousandths | run->twice_thousandths << 10 | run->late_thousandths << 20)}};
    int rc = lab_enter(lab, rack, host);
    if (!rc && (plane_open(&o, n) || plane_filter(*n, LAB_DEVICE, "noise_in", "noise_out")))
        return cli_say("lab", EXIT_UNAVAILABLE, "%s", explained());
    return rc ? cli_say("lab", EXIT_UNAVAILABLE, "%s", explained()) : 0;
}

/* Takes it away, and counts what it did. */
static void sum_noise(void)
{
    for (unsigned i = 0; i < lab->racks * lab->hosts; i++) {
        unsigned rack = 1 + i / lab->hosts, host = 1 + i % lab->hosts;
        struct plane_counters c;
        struct plane *n = noise[rack][host];
        if (!n || lab_enter(lab, rack, host))
            continue;
        if (!plane_count(n, &c)) {
            lost += c.verdict[PLANE_DROPPED];
            twice += c.verdict[PLANE_DOUBLED];
            late += c.verdict[PLANE_SENT];
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
    pulled++;
}

/* The locks are lost; the switch waits until nobody can hold anything from before. */
static void lose_locks(unsigned rack)
{
    lab_rack_end(&racks[rack].control, SIGTERM);
    lab_rack_forget(&racks[rack]);
    lab_rack_switch(&racks[rack], false);
    losses++;
    usleep(2500000); /* closed for a lease */
}

/* Some of the locks are another rack's from now on. */
static void move_locks(struct rng *rng)
{
    unsigned first = (unsigned)rng_below(rng, RACK_SLOTS), count = 1 + (unsigned)rng_below(rng, RACK_SLOTS - first);
    moves += lab_rack_move(&racks[1], first, first + count, 1 + (unsigned)rng_below(rng, lab->racks));
}

static void something(struct rng *rng)
{
    unsigned w = (unsigned)rng_below(rng, worker_count), rack = rack_of(w);
    switch (rng_below(rng, lab_rack_has_switch(&racks[rack]) ? 8 : 4)) {
    case 0:
    case 1:
        pull_cable(rack, rng);
        break;
    case 2:
    case 3:
        lab_rack_end(&workers[w], SIGKILL);
        start_worker(w, rng_next(rng));
        killed++;
        break;
    case 4:
    case 5: /* the program goes on; another takes over */
        lab_rack_end(&racks[rack].control, SIGKILL);
        usleep(200000);
        lab_rack_switch(&racks[rack], false);
        controls++;
        break;
    case 6: /* detached for a while; the locks are as they were */
        lab_rack_end(&racks[rack].control, SIGTERM);
        usleep((useconds_t)rng_below(rng, 500000));
        lab_rack_switch(&racks[rack], false);
        restarts++;
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

/* How many holds overlap that exclude each other, or have a token that should be higher. */
static uint64_t judge(uint64_t *valid)
{
    struct held *all = malloc(sizeof(struct held) * WORKERS_MAX * HOLDS_MAX);
    size_t n = 0;
    uint64_t wrong = 0;
    for (unsigned w = 0; all && w < worker_count; w++)
        for (uint64_t i = 0; i < board->holds[w]; i++)
            all[n++] = board->hold[w][i];
    if (n)
        qsort(all, n, sizeof all[0], by_time);
    uint64_t writer_until[LOCKS] = {0}, reader_until[LOCKS] = {0}, token[LOCKS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct held *h = &all[i];
        bool writes = h->mode == PAWL_EXCLUSIVE;
        if (h->from_ns < writer_until[h->lock] || (writes && h->from_ns < reader_until[h->lock]))
            wrong++;
        if (writes && h->token <= token[h->lock])
            wrong++;
        if (writes)
            token[h->lock] = h->token;
        uint64_t *until = writes ? &writer_until[h->lock] : &reader_until[h->lock];
        *until = max_u64(*until, h->to_ns);
    }
    free(all);
    *valid = n;
    return wrong;
}

/* How many do not. */
static unsigned who_is_stuck(void)
{
    unsigned stuck = worker_count;
    __atomic_store_n(&board->mended, 1, __ATOMIC_RELEASE);
    for (unsigned ms = 0; ms < MEND_MS && stuck; ms += 100) {
        stuck = 0;
        usleep(100000);
        for (unsigned w = 0; w < worker_count; w++)
            stuck += __atomic_load_n(&board->after[w], __ATOMIC_RELAXED) <= 3;
    }
    return stuck;
}

static int report(uint64_t seed, uint64_t valid, uint64_t wrong, unsigned stuck)
{
    struct json j;
    if (run->json) {
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_string(&j, "design", run->design);
        json_u64(&j, "seed", seed);
        json_u64(&j, "racks", lab->racks);
        json_u64(&j, "holds", valid);
        json_u64(&j, "cables_pulled", pulled);
        json_u64(&j, "processes_killed", killed);
        json_u64(&j, "controls_killed", controls);
        json_u64(&j, "switch_restarts", restarts);
        json_u64(&j, "switch_losses", losses);
        json_u64(&j, "moves", moves);
        json_u64(&j, "packets_lost", lost);
        json_u64(&j, "packets_doubled", twice);
        json_u64(&j, "packets_late", late);
        json_u64(&j, "violations", wrong);
        json_u64(&j, "stuck", stuck);
        json_end(&j);
        if (json_finish(&j))
            return EXIT_UNAVAILABLE;
    } else {
        printf("%s, seed %" PRIu64 ": %" PRIu64 " holds by %u processes on %u hosts of %u rack%s\n", run->design, seed, valid,
               worker_count, lab->racks * lab->hosts, lab->racks, lab->racks > 1 ? "s" : "");
        printf(
            "  %u cables pulled, %u processes killed, %u control processes killed, %u switch restarts, %u of them without locks\n",
            pulled, killed, controls, restarts + losses, losses);
        if (divided)
            printf("  locks divided anew %u times\n", moves);
        if (lost || twice || late)
            printf("  %" PRIu64 " packets lost, %" PRIu64 " doubled, %" PRIu64 " late\n", lost, twice, late);
        printf("  %" PRIu64 " violations, %u stuck\n", wrong, stuck);
    }
    return wrong || stuck ? EXIT_NO : 0;
}

int lab_run(const struct lab *l, const struct lab_run *r)
{
    struct rng rng;
    uint64_t valid = 0, seed = r->seed ? r->seed : world_random(&world_real) >> 32;
    int status = 0;
    lab = l;
    run = r;
    worker_count = (unsigned)min_u64(r->workers, WORKERS_MAX + 1) * l->hosts * l->racks;
    if (!r->workers || worker_count > WORKERS_MAX)
        return cli_say("lab", EXIT_USAGE, "1 to %d processes in all", WORKERS_MAX);
    const struct design *d = design_find(r->design);
    divided = lab_rack_can_divide(r->design);
    if (!d || !d->packet || !(d->substrates & DESIGN_ON_UDP) || (packet_divides(d->packet) && !divided))
        return cli_say("lab", EXIT_USAGE,
                       "the design '%s' is not for a lab; fisslock, fisslock-stay, fisslock-racks, netlock and srvlock are",
                       r->design);
    if (r->moves && (!divided || l->racks < 2))
        return cli_say("lab", EXIT_USAGE, "--moves is for locks that are divided among several racks: --design fisslock-racks");
    if (lab_processes(l))
        return cli_say("lab", EXIT_NO, "something runs in this lab already");
    rng_seed(&rng, seed);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (board == MAP_FAILED)
        return cli_say("lab", EXIT_UNAVAILABLE, "%s", strerror(errno));
    for (unsigned rack = 1; rack <= l->racks; rack++) {
        racks[rack] = (struct lab_rack){.lab = l, .rack = rack, .design = r->design, .divided = divided};
        if (rack == 1 || !divided)
            lab_rack_serve(&racks[rack], "--keys dense --locks 1000 --lease 1s --fresh");
    }
    usleep(300000);
    for (unsigned rack = 1; rack <= l->racks; rack++)
        if (lab_rack_has_switch(&racks[rack]))
            lab_rack_switch(&racks[rack], true);
    bool noisy = r->loss_thousandths || r->twice_thousandths || r->late_thousandths;
    for (unsigned i = 0; i < l->racks * l->hosts && noisy && !status; i++)
        status = make_noise(1 + i / l->hosts, 1 + i % l->hosts);
    for (unsigned w = 0; w < worker_count && !status; w++)
        start_worker(w, rng_next(&rng));
    for (uint64_t end_ns = now_ns() + r->ns; now_ns() < end_ns && !status;) {
        if (r->moves)
            move_locks(&rng);
        if (r->forgetful) {
            char pins[LAB_PINS];
            lab_rack_pins(&racks[1], pins);
            losses += !plane_forget(pins);
            usleep(FORGET_US);
        } else if (r->faults)
            something(&rng);
        else
            usleep(50000);
    }
    unsigned stuck = status ? 0 : who_is_stuck();
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
    for (unsigned w = 0; w < worker_count; w++)
        lab_rack_end(&workers[w], stuck ? SIGKILL : 0);
    for (unsigned rack = 1; rack <= l->racks; rack++)
        lab_rack_stop(&racks[rack]);
    sum_noise();
    uint64_t wrong = judge(&valid);
    return status ? status : report(seed, valid, wrong, stuck);
}
