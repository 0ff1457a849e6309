/* SPDX-License-Identifier: Apache-2.0 */
/* How long an acquire takes through the kernel's switch, against a bare echo by the same program and the same client, and against
 * grants by a process. All kinds take turns packet by packet, in a lab: these are costs of processors, not of a network. */
#include "bench/xdp-rack.h"

#define SAMPLES 4000
#define WARM_UP 100
#define GOODPUT_ROUNDS 21

enum kind { ECHO, ACQUIRE, SHARED, SOFT, RELAYED, KINDS };
static const char *const names[] = {"echo", "acquire exclusive, free", "acquire shared, doubled to the agent",
                                    "acquire from a process on the switch", "acquire from a process behind the switch"};

static int to_switch, agent, to_soft;
static uint64_t nonce;
static double samples[KINDS][SAMPLES];

/* One request and, not measured, what undoes it. Before it an echo, that every kind finds the same things in the caches. */
static double once(enum kind kind, uint64_t locks, struct rng *rng)
{
    struct fission_packet f = bench_packet(CLIENT_PORT, FISSION_ACQUIRE, FISSION_EXCLUSIVE, 1 + rng_below(rng, locks - 1), ++nonce),
                          a;
    int fd = kind == SOFT ? to_soft : to_switch;
    struct fission_packet warm = bench_packet(CLIENT_PORT, 0, 0, 0, ++nonce);
    warm.head.family = PACKET_ECHO;
    bench_ask(to_switch, &warm, &a);
    f.head.nonce = ++nonce;
    if (kind == ECHO)
        f.head.family = PACKET_ECHO;
    if (kind == SHARED) {
        f.mode = f.old_mode = FISSION_SHARED;
        f.head.index = 0; /* the agent of which is host 3 */
    }
    if (kind == RELAYED) {
        f.head.family = PACKET_SERVER; /* not the switch's business: it goes where its head says */
        f.head.to = (struct place){2, PORT_POOL};
    }
    if (kind == SOFT)
        f.head.from.port = f.client.port = CLIENT_PORT + 1;
    uint64_t ns = bench_ask(fd, &f, &a);
    if (!ns)
        return 0;
    if ((kind == ACQUIRE || kind == SOFT || kind == SHARED) && a.head.type != FISSION_GRANT)
        kit_die("%s: an answer of type %u", names[kind], a.head.type);
    if (kind == SHARED) /* the count of readers is 16 bits wide: a rest for the lock */
        return ns;
    f.head.nonce = ++nonce;
    f.term = a.term;
    f.head.type = f.head.family == PACKET_FISSION ? FISSION_FREE : f.head.type;
    bench_ask(fd, &f, &a);
    return ns;
}

/* Host 2: a lock server behind the switch, which answers by way of it. */
static pid_t relayed_server(int cpu)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(cpu);
    const struct rack_config c = {.space = RACK_SPACE, .machines = 8, .sessions = 1, .requests = 1, .locks = 1000000};
    void *state = calloc(1, fisslock_switch_bytes(&c));
    struct outbox *out = calloc(1, sizeof *out);
    int fd = rack_socket(2, RACK_PORT);
    if (!state || !out)
        _exit(1);
    fisslock_switch_init(state, &c, 1, 0);
    for (;;) {
        struct fission_packet f;
        if (recv(fd, &f, sizeof f, 0) != sizeof f || f.head.family != PACKET_SERVER)
            continue; /* a copy of a shared grant, for the agent */
        f.head.family = PACKET_FISSION;
        f.head.index %= 1000000;
        outbox_clear(out);
        fisslock_switch_packet(state, &f, sizeof f, 0, out);
        if (!out->packets)
            continue;
        memcpy(&f, outbox_packet(out, 0), sizeof f);
        f.head.family = PACKET_SERVER;
        f.head.to = f.client;
        (void)!send(fd, &f, sizeof f, 0);
    }
}

/* The lock whose grants are doubled: held shared, with host 3 as its agent. No process sleeps there: waking one on the other core
 * of this machine would be a cost of the agent, not of the grant. */
static void prepare_shared(struct plane *p)
{
    static uint64_t *locks;
    uint64_t bytes;
    if (plane_map(p, "locks", (void **)&locks, &bytes))
        kit_die("%s", explained());
    __atomic_store_n(&locks[0], FISSION_WORD_HELD | FISSION_WORD_SHARED | UINT64_C(3) << FISSION_WORD_MACHINE_SHIFT | 1,
                     __ATOMIC_SEQ_CST);
}

/* The first `kinds` of them. */
static void measure(struct kit *k, struct plane *p, uint64_t locks, int kinds)
{
    struct rng rng;
    unsigned n = (unsigned)(SAMPLES * k->scale), lost = 0;
    rng_seed(&rng, 1);
    prepare_shared(p);
    for (unsigned i = 0; i < WARM_UP; i++)
        for (int kind = 0; kind < kinds; kind++)
            once(kind, locks, &rng);
    for (unsigned i = 0; i < n; i++)
        for (int kind = 0; kind < kinds; kind++) {
            double ns = once(kind, locks, &rng);
            lost += ns == 0;
            samples[kind][i] = ns ? ns : 1e9;
        }
    double median[KINDS];
    for (int kind = 0; kind < kinds; kind++) {
        median[kind] = kit_percentile(samples[kind], n, 0.5);
        printf("  %-44s median %6.2f us, p99 %7.2f us, %5.2f x the echo\n", names[kind], median[kind] / 1e3,
               kit_percentile(samples[kind], n, 0.99) / 1e3, median[kind] / median[ECHO]);
    }
    printf("  %u of %u answers were lost\n", lost, n * (unsigned)kinds);
    kit_judge(k, "an acquire, against an echo", median[ACQUIRE] / median[ECHO], "x", locks > 1000000 ? 1.25 : 1.10);
    kit_judge(k, "a grant that is doubled, against an echo", median[SHARED] / median[ECHO], "x", 1.6);
    if (kinds < KINDS)
        return;
    kit_judge_least(k, "a process on the switch, against its kernel", median[SOFT] / median[ACQUIRE], "x", 2);
    kit_judge_least(k, "a process behind the switch, against the switch", median[RELAYED] / median[ACQUIRE], "x", 2);
}

/* Pairs per second of one client on locks drawn evenly from so many. */
static double goodput(uint64_t locks, struct rng *rng)
{
    uint64_t start = kit_now(), pairs = 0;
    while (kit_now() - start < 60 * NS_PER_MS) {
        struct fission_packet f = bench_packet(CLIENT_PORT, FISSION_ACQUIRE, FISSION_EXCLUSIVE, 1 + rng_below(rng, locks - 1),
                                               ++nonce),
                              a;
        if (!bench_ask(to_switch, &f, &a))
            continue;
        f.head.type = FISSION_FREE;
        f.head.nonce = ++nonce;
        f.term = a.term;
        pairs += bench_ask(to_switch, &f, &a) != 0;
    }
    return (double)pairs / (double)(kit_now() - start);
}

static void many_against_few(struct kit *k, uint64_t many)
{
    double ratio[GOODPUT_ROUNDS];
    struct rng rng;
    rng_seed(&rng, 2);
    for (unsigned i = 0; i < GOODPUT_ROUNDS; i++) {
        double few = goodput(1000, &rng);
        ratio[i] = goodput(many, &rng) / few;
    }
    kit_judge_least(k, "goodput on 100 M locks, against 1 K", kit_percentile(ratio, GOODPUT_ROUNDS, 0.5), "x", 0.8);
}

static void try(struct kit *k, bool in_path, uint64_t locks, int kinds)
{
    pid_t soft = 0, server = 0;
    printf(" %s, generic mode, %" PRIu64 " M locks\n", in_path ? "in-path" : "one-armed", locks / 1000000);
    rack_up("latency", 3, in_path);
    if (kinds == KINDS) {
        soft = bench_soft(LAB_SWITCH, SOFT_PORT, 1000000, k->cpus[1]);
        server = relayed_server(k->cpus[1]);
    }
    to_switch = rack_socket(1, CLIENT_PORT);
    agent = rack_socket(3, RACK_PORT);
    to_soft = bench_socket(CLIENT_PORT + 1, LAB_SWITCH, SOFT_PORT);
    struct plane *p = rack_plane("fission", (uint32_t)locks, NULL, false);
    rack_attach(p, PLANE_GENERIC);
    bench_lease();
    kit_pin(k->cpus[0]);
    measure(k, p, locks, kinds);
    if (locks > 1000000)
        many_against_few(k, locks);
    plane_close(p, PLANE_REMOVE);
    close(to_switch);
    close(agent);
    close(to_soft);
    if (soft)
        bench_end(soft);
    if (server)
        bench_end(server);
    lab_down(rack.name);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "acquire through the kernel's switch, in a lab (processors, not a network)");
    rack_lease_ns = BENCH_LEASE_NS;
    try(&k, false, 1000000, KINDS);
    try(&k, true, 1000000, SHARED + 1);
    try(&k, false, 100000000, SHARED + 1);
    return kit_end(&k);
}
