/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of NetLock's program in the kernel per packet, by BPF_PROG_TEST_RUN: nothing of drivers, queues or sockets. Its state is
 * a queue that every packet changes, so each run is one packet after a system call, which leaves less in the caches. The bare echo
 * is measured in the same way, in turns. */
#include "bench/kit.h"
#include "tests/xdp/netlock_hand.h"

#define SAMPLES 4000

static struct plane *echo_plane;
static uint64_t latest = 10;
static double samples[SAMPLES], echoes[SAMPLES];

static double run_once(int program, const struct netlock_packet *p, uint32_t verdict, struct netlock_packet *out)
{
    static struct test_frame back;
    struct test_frame f = kit_frame(p, sizeof *p);
    f.udp.check = 0; /* as senders on the same machine leave it: nothing is added up */
    struct plane_run r = {.in = f.bytes, .in_len = f.len, .out = back.bytes, .out_len = sizeof back.bytes, .repeat = 1};
    int rc = plane_run(program, &r);
    if (rc || r.verdict != verdict)
        kit_die("verdict %u, not %u: %s", r.verdict, verdict, strerror(-rc));
    memcpy(out, back.packet, sizeof *out);
    return r.ns;
}

static uint32_t acquire(uint16_t machine, unsigned request, uint8_t mode, double *ns, uint32_t verdict)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, machine, request, latest, mode, LOCK), g = {0};
    double took = run_once(plane_program(kit, "plane"), &p, verdict, &g);
    if (ns)
        *ns = took;
    return g.ticket;
}

static void release(uint16_t machine, unsigned request, uint32_t ticket, double *ns, uint32_t verdict)
{
    struct netlock_packet p = ask(NETLOCK_RELEASE, machine, request, latest, 0, LOCK), g;
    p.ticket = ticket;
    double took = run_once(plane_program(kit, "plane"), &p, verdict, &g);
    if (ns)
        *ns = took;
}

/* Each leaves the lock free. Tickets of waiters follow the holder's. */
static void free_exclusive(double *ns)
{
    release(1, 0, acquire(1, 0, NETLOCK_EXCLUSIVE, ns, XDP_TX), NULL, XDP_TX);
}
static void free_shared(double *ns)
{
    release(1, 0, acquire(1, 0, NETLOCK_SHARED, ns, XDP_TX), NULL, XDP_TX);
}
static void doubled(double *ns)
{
    acquire(1, 0, NETLOCK_EXCLUSIVE, NULL, XDP_TX);
    release(1, 0, acquire(1, 0, NETLOCK_EXCLUSIVE, ns, XDP_TX), NULL, XDP_TX);
}
static void last_release(double *ns)
{
    release(1, 0, acquire(1, 0, NETLOCK_EXCLUSIVE, NULL, XDP_TX), ns, XDP_TX);
}
static uint32_t after(uint32_t ticket)
{
    const uint64_t *bounds = (const void *)((const uint8_t *)kit_memory + kit_at.arrays_at[NETLOCK_BOUNDS]);
    const uint64_t *open = (const void *)((const uint8_t *)kit_memory + kit_at.open_at);
    uint32_t lock = 0;
    while (open[lock] != LOCK + 1)
        lock++;
    return netlock_after(ticket, (uint32_t)(bounds[lock] >> 16) & 0xffff);
}
static void queues(double *ns)
{
    uint32_t first = acquire(1, 0, NETLOCK_EXCLUSIVE, NULL, XDP_TX);
    acquire(2, 1, NETLOCK_EXCLUSIVE, ns, XDP_DROP);
    release(1, 0, first, NULL, XDP_REDIRECT);
    release(2, 1, after(first), NULL, XDP_TX);
}
static void hands_over(double *ns)
{
    uint32_t first = acquire(1, 0, NETLOCK_EXCLUSIVE, NULL, XDP_TX);
    acquire(2, 1, NETLOCK_EXCLUSIVE, NULL, XDP_DROP);
    release(1, 0, first, ns, XDP_REDIRECT);
    release(2, 1, after(first), NULL, XDP_TX);
}
static void lets_eight_in(double *ns)
{
    uint32_t ticket = acquire(1, 0, NETLOCK_EXCLUSIVE, NULL, XDP_TX);
    for (unsigned i = 1; i <= 8; i++)
        acquire(2, i, NETLOCK_SHARED, NULL, XDP_DROP);
    release(1, 0, ticket, ns, XDP_REDIRECT);
    for (unsigned i = 1; i <= 8; i++)
        release(2, i, ticket = after(ticket), NULL, XDP_TX);
}
static void cold(double *ns)
{
    struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 5, latest, NETLOCK_SHARED, COLD), g;
    *ns = run_once(plane_program(kit, "plane"), &p, XDP_TX, &g); /* to the server behind the same interface */
}
static void renew(double *ns)
{
    struct netlock_packet p = packet(NETLOCK_LEASE, 1, PORT_POOL, 0), g;
    p.life = KIT_LIFE;
    *ns = run_once(plane_program(kit, "plane"), &p, XDP_TX, &g);
}

static const struct scene {
    const char *name;
    void (*run)(double *ns);
} scenes[] = {
    {"ACQUIRE exclusive, free", free_exclusive},
    {"ACQUIRE shared, free", free_shared},
    {"ACQUIRE again: its grant once more", doubled},
    {"ACQUIRE exclusive, held: into the queue", queues},
    {"RELEASE, no waiter", last_release},
    {"RELEASE, one waits: two out", hands_over},
    {"RELEASE, eight readers wait: nine out", lets_eight_in},
    {"ACQUIRE of a lock that is not here: to its server", cold},
    {"LEASE", renew},
};

int main(int argc, char **argv)
{
    struct kit k;
    struct plane_options o = {.program = "echo"};
    kit_begin(&k, argc, argv, "NetLock's program in the kernel, per packet (BPF_PROG_TEST_RUN, one packet a run)");
    unsigned n = (unsigned)(SAMPLES * k.scale);
    set_up(3600 * NS_PER_S);
    bring_in(LOCK);
    if (plane_open(&o, &echo_plane))
        kit_die("%s", explained());
    kit_pin(k.cpus[0]);
    for (size_t s = 0; s < countof(scenes); s++) {
        for (unsigned i = 0; i < n; i++) {
            struct netlock_packet p = ask(NETLOCK_ACQUIRE, 1, 0, 1, NETLOCK_EXCLUSIVE, LOCK), g;
            echoes[i] = run_once(plane_program(echo_plane, "echo"), &p, XDP_TX, &g);
            latest++;
            scenes[s].run(&samples[i]);
        }
        double ns = kit_percentile(samples, n, 0.5), echo = kit_percentile(echoes, n, 0.5);
        printf("  %-50s %7.1f ns %6.2f x the bare echo, %.1f ns\n", scenes[s].name, ns, ns / echo, echo);
    }
    printf("  the verifier went through %" PRIu32 " instructions\n", plane_verified(kit));
    plane_close(echo_plane, PLANE_REMOVE);
    kit_close();
    return kit_end(&k);
}
