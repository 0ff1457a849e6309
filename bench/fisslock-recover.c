/* SPDX-License-Identifier: Apache-2.0 */
/* How long recovery takes over UDP on this machine, by the number of locks that are held: a rack of four hosts that hold them, half
 * exclusively and half shared, and a fifth that locks and unlocks others all the time.
 *
 *     fisslock-recover [LOCKS]...     default: 1000 10000 100000 1000000
 *
 * First the switch is killed (SIGKILL) and started again at once, without its state. Then a host is killed. A line for each number:
 *
 *     locks held; ms from the kill until the switch decides again (of them: ms until the new process has joined); how many of the
 *     holds are still there; ms from the host's death until one of its locks can be had (its lease is counted
 *     from when it was last renewed); how often the fifth host
 *     got a lock in a second before the host died, and in the second after; the longest that it waited for one meanwhile */
#include "bench/kit.h"
#include "node/node.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDERS 4
#define SESSIONS 4 /* of each holder */
#define LEASE_NS (5 * NS_PER_S)
#define RETRY_NS (5 * NS_PER_MS)
#define SECOND NS_PER_S
#define LIMIT_NS (120 * NS_PER_S)

static struct board {
    uint32_t listening, joined, holding[HOLDERS], look[HOLDERS], seen[HOLDERS], taken;
    uint64_t joined_ns, held[HOLDERS], still[HOLDERS], taken_ns;
    uint64_t probes, last_ns, gap_ns; /* gap: the longest between two probes */
} * board;

static char space[COORD_NAME_LEN];
static struct net_addr coordinator, switch_at;
static uint64_t locks;
static volatile sig_atomic_t never;

static uint64_t per_session(void)
{
    return locks / HOLDERS / SESSIONS;
}

static pid_t start(void (*fn)(unsigned), unsigned arg)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        kit_die("fork: %s", strerror(errno));
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            fn(arg);
        _exit(0);
    }
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- the rack ---- */

static void coordinator_main(unsigned unused)
{
    struct coordinating c = {.stop = &never};
    const struct coord_params p = {.design = design_find("fisslock"),
                                   .space = space,
                                   .locks = 2 * locks,
                                   .lease_ns = LEASE_NS,
                                   .retry_ns = RETRY_NS,
                                   .machines = HOLDERS + 2,
                                   .sessions = SESSIONS + 1,
                                   .requests = (uint16_t)(per_session() + 64),
                                   .life = 1,
                                   .fresh = true};
    if (coordinating_open(&c, &p, NULL, coordinator))
        kit_die("the coordinator cannot start: %s", explained());
    coordinating_run(&c);
}

static void switch_main(unsigned unused)
{
    struct station s;
    const struct station_params p = {.member.at = switch_at,
                                     .member.coordinators = coord_list_one(coordinator),
                                     .member.space = space,
                                     .member.is_switch = true,
                                     .member.deadline = world_now(&world_real) + LIMIT_NS,
                                     .member.stop = &never};
    int rc = station_open(&s, &p);
    if (rc)
        kit_die("the switch cannot start: %s", explained());
    board->joined_ns = kit_now();
    kit_post(&board->joined, 1);
    station_run(&s);
}

static pawl *open_at(unsigned host)
{
    char where[96];
    pawl *p = NULL;
    const pawl_options o = {.lease_ns = 2 * LEASE_NS};
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/%s?host=127.0.0.%u", coordinator.port, space, host + 2);
    int rc = pawl_open(where, &o, &p);
    if (rc)
        kit_die("%s: %s", where, pawl_explain());
    return p;
}

/* ---- hosts ---- */

/* All its locks, many at once. */
static void hold_all(pawl *p, uint64_t first, uint64_t count, pawl_grant *out)
{
    uint64_t asked = 0, got = 0;
    while (got < count) {
        pawl_completion done[PAWL_INFLIGHT_MAX];
        while (asked < count && asked - got < PAWL_INFLIGHT_MAX) {
            const pawl_request r = {.op = PAWL_OP_LOCK,
                                    .key = pawl_id(first + asked),
                                    .mode = asked % 2 ? PAWL_SHARED : PAWL_EXCLUSIVE,
                                    .deadline_ns = pawl_in(LIMIT_NS)};
            uint64_t id;
            if (pawl_submit(p, &r, &id))
                break;
            asked++;
        }
        int n = pawl_reap(p, done, PAWL_INFLIGHT_MAX, pawl_in(LIMIT_NS));
        for (int i = 0; i < n; i++) {
            if (done[i].result)
                kit_die("a lock cannot be had: %s", pawl_strerror(done[i].result));
            out[got++] = done[i].grant;
        }
        if (n <= 0)
            kit_die("no lock can be had: %s", pawl_strerror(n));
    }
}

static void holder_main(unsigned host)
{
    uint64_t count = per_session();
    pawl *p[SESSIONS];
    pawl_grant *g = calloc(SESSIONS * count, sizeof *g);
    if (!g)
        kit_die("no memory");
    for (unsigned s = 0; s < SESSIONS; s++) {
        p[s] = open_at(host);
        hold_all(p[s], (host * SESSIONS + s) * count, count, g + s * count);
    }
    board->held[host] = SESSIONS * count;
    kit_post(&board->holding[host], 1);
    kit_await(&board->look[host], 1);
    for (uint64_t i = 0; i < SESSIONS * count; i++)
        board->still[host] += !pawl_check(p[i / count], &g[i]);
    kit_post(&board->seen[host], 1);
    for (;;)
        pause();
}

static void probe_main(unsigned host)
{
    pawl *p = open_at(host);
    for (uint64_t n = 0;; n++) {
        pawl_grant g;
        if (pawl_lock(p, pawl_id(locks + n * 7919 % locks), PAWL_EXCLUSIVE, &g) || pawl_unlock(p, &g))
            kit_die("the fifth host cannot go on: %s", pawl_explain());
        uint64_t now = kit_now(), gap = board->last_ns ? now - board->last_ns : 0;
        board->gap_ns = max_u64(board->gap_ns, gap);
        __atomic_store_n(&board->last_ns, now, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&board->probes, 1, __ATOMIC_SEQ_CST);
    }
}

/* The locks of the host that is killed. */
static void taker_main(unsigned host)
{
    pawl *p = open_at(host);
    pawl_grant g;
    if (pawl_timedlock(p, pawl_id(0), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g))
        kit_die("a lock of the dead cannot be had: %s", pawl_explain());
    board->taken_ns = kit_now();
    kit_post(&board->taken, 1);
    for (;;)
        pause();
}

/* ---- one number of locks ---- */

static uint64_t probes_in(uint64_t ns)
{
    uint64_t before = board->probes;
    kit_sleep(ns);
    return board->probes - before;
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void remove_memory(void)
{
    char pattern[96];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/dev/shm/pawl.%u.net.%s.*", (unsigned)geteuid(), space);
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void measure(uint64_t count)
{
    pid_t holders[HOLDERS];
    memset(board, 0, sizeof *board);
    locks = count;
    pid_t coordinating = start(coordinator_main, 0), switching = start(switch_main, 0);
    kit_await(&board->joined, 1);
    for (unsigned i = 0; i < HOLDERS; i++)
        holders[i] = start(holder_main, i);
    for (unsigned i = 0; i < HOLDERS; i++)
        kit_await(&board->holding[i], 1);
    pid_t prober = start(probe_main, HOLDERS);
    probes_in(SECOND);

    board->joined = 0;
    stop(switching);
    uint64_t killed_ns = kit_now(), held = 0, still = 0;
    switching = start(switch_main, 0);
    kit_await(&board->joined, 1);
    while (__atomic_load_n(&board->last_ns, __ATOMIC_SEQ_CST) < board->joined_ns)
        kit_sleep(NS_PER_MS / 10);
    uint64_t open_ns = board->last_ns, joined_ns = board->joined_ns;
    kit_sleep(SECOND);
    for (unsigned i = 0; i < HOLDERS; i++) {
        kit_post(&board->look[i], 1);
        kit_await(&board->seen[i], 1);
        held += board->held[i];
        still += board->still[i];
    }

    uint64_t before = probes_in(SECOND);
    pid_t taker = start(taker_main, HOLDERS);
    kit_sleep(SECOND / 5);
    board->gap_ns = 0;
    stop(holders[0]);
    uint64_t dead_ns = kit_now(), after = probes_in(SECOND);
    kit_await(&board->taken, 1);
    uint64_t gap_ns = board->gap_ns;
    printf("%" PRIu64 "\t%.0f\t%.0f\t%" PRIu64 "\t%.0f\t%" PRIu64 "\t%" PRIu64 "\t%.1f\n", held, ms(open_ns - killed_ns),
           ms(joined_ns - killed_ns), still, ms(board->taken_ns - dead_ns), before, after, ms(gap_ns));
    fflush(stdout);
    stop(taker);
    stop(prober);
    for (unsigned i = 1; i < HOLDERS; i++)
        stop(holders[i]);
    stop(switching);
    stop(coordinating);
    remove_memory();
}

int main(int argc, char **argv)
{
    static const uint64_t usual[] = {1000, 10000, 100000, 1000000};
    struct udp a, b;
    board = kit_shared(sizeof *board);
    coordinator = switch_at = net_v4(htonl(INADDR_LOOPBACK), 0);
    if (udp_open(&a, coordinator) || udp_open(&b, coordinator))
        kit_die("no port is free");
    coordinator.port = a.at.port;
    switch_at.port = b.at.port;
    udp_close(&a);
    udp_close(&b);
    snprintf(space, sizeof space, "recover%d", (int)getpid());
    printf("locks held\tms until the switch decides again\tof them until it has joined\tstill held\t"
           "ms until a lock of the dead can be had (lease 5000 ms)\tprobes/s before\tafter\tlongest wait ms\n");
    for (int i = 1; i < argc; i++) {
        uint64_t n = strtoull(argv[i], NULL, 10);
        if (n < 16 || n > 1000000)
            kit_die("LOCKS is from 16 to 1000000, not '%s'", argv[i]);
        measure(n / 16 * 16);
    }
    for (size_t i = 0; argc == 1 && i < countof(usual); i++)
        measure(usual[i] / 16 * 16);
    return 0;
}
