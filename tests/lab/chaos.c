/* SPDX-License-Identifier: Apache-2.0 */
/* Three coordinators on an etcd of three, 16 clients on four hosts, each host in a network namespace of its own, for every packet
 * design. Leaders, members of etcd, lock servers, switches and clients are killed and stopped at random, and cables are pulled. No
 * two clients hold a lock at once, tokens rise, no hold is lost while its host reaches its granter, and after the last fault every
 * client makes progress. Some designs run side by side, each in a lab of its own. PAWL_TEST_SECONDS: for all of it, 20 minutes at
 * most. PAWL_TEST_DESIGN: one design alone, with faults for so long. PAWL_TEST_SEED: the faults that are drawn. */
#include "tests/lab/chaos.h"

#define SECONDS_MAX 1200u
#define LANES 3u     /* labs side by side */
#define AROUND_S 16u /* that a design takes to start, to make progress again and to end */
#define FAULTS_S 3u  /* for which there are faults, at least */
#define ETCD 5u      /* members 5 to 7 of the lab have a member of etcd and a coordinator each */
#define TRIO 3u      /* of them */
#define GRANTERS 8u  /* member 8 has lock servers and the first switch, 9 the second one */
#define MEMBERS 9u
#define START_NS (60 * NS_PER_S)
#define COORDINATORS "10.77.1.5,10.77.1.6,10.77.1.7:7070"
#define STORE "etcd://10.77.1.5:2379,10.77.1.6:2379,10.77.1.7:2379/chaos"

struct part {
    const char *what; /* for messages */
    unsigned member;  /* of the lab */
    enum fault_kind kind;
    char program[256], words[768], out[128];
    pid_t pid;
};

enum { ETCD_AT = 0, COORDINATOR_AT = TRIO, GRANTER_AT = 2 * TRIO, PARTS_MAX = GRANTER_AT + 4 };

static struct part parts[PARTS_MAX];
static unsigned part_count;
static struct lab lab;
static pid_t workers[WORKERS], holders[HOSTS], owner, watch;
static char scratch[64], place[128], space[32];
static const char *other; /* the command of another build; null: there is none */
static struct {
    unsigned killed, stopped, cut, clients;
} counts;

/* ---- processes ---- */

static void clean_up(void)
{
    char line[160];
    if (getpid() != owner)
        return;
    for (unsigned i = 0; i < WORKERS; i++)
        child_end(&workers[i], SIGKILL);
    for (unsigned i = 0; i < part_count; i++)
        child_end(&parts[i].pid, SIGKILL);
    for (unsigned i = 0; i < HOSTS; i++)
        child_end(&holders[i], SIGKILL);
    child_end(&watch, SIGKILL);
    lab_down(lab.name);
    snprintf(line, sizeof line, "rm -rf '%s' /dev/shm/pawl.*.net.c%d-*", scratch, (int)owner);
    (void)!system(line); /* the names were made here; the last are of hosts whose processes were killed */
}

static void start(struct part *p)
{
    char line[1408];
    snprintf(line, sizeof line, "exec %s %s >'%s' 2>>'%s.err'", p->program, p->words, p->out, p->out);
    unlink(p->out);
    p->pid = child_fork();
    if (p->pid)
        return;
    if (!lab_enter(&lab, 1, p->member))
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

/* Whether it says where it listens. */
static bool is_ready(const struct part *p)
{
    char text[256] = "";
    FILE *f = fopen(p->out, "re");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return strstr(text, " at ") != NULL;
}

/* Waits until it listens. One that gives up, since etcd has no leader for a moment, or another one of its kind has its place still,
 * is started again. */
static void await(struct part *p)
{
    for (uint64_t limit = now_ns() + START_NS; !is_ready(p); pause_for(20 * NS_PER_MS)) {
        int status;
        if (now_ns() > limit) {
            char line[256];
            snprintf(line, sizeof line, "tail -n 5 '%s.err' >&2", p->out);
            (void)!system(line);
            CHECK_FAIL("%s does not start", p->what);
        }
        if (p->pid > 0 && waitpid(p->pid, &status, WNOHANG) == p->pid) {
            pause_for(200 * NS_PER_MS);
            start(p);
        }
    }
}

static const char *present(void)
{
    static char path[256];
    const char *build = getenv("PAWL_BUILD");
    snprintf(path, sizeof path, "%s/pawl", build ? build : "build");
    return path;
}

static struct part *add(const char *what, unsigned member, enum fault_kind kind)
{
    struct part *p = &parts[part_count++];
    CHECK(part_count <= PARTS_MAX);
    *p = (struct part){.what = what, .member = member, .kind = kind};
    snprintf(p->program, sizeof p->program, "%s", other ? other : present());
    snprintf(p->out, sizeof p->out, "%s/%s-%u-%u", scratch, what, member, part_count);
    return p;
}

/* ---- the rack ---- */

static void start_etcd(void)
{
    for (unsigned i = 0; i < TRIO; i++) {
        struct part *p = add("etcd", ETCD + i, FAULT_OTHER);
        unsigned m = ETCD + i;
        snprintf(p->program, sizeof p->program, "etcd");
        snprintf(p->words, sizeof p->words,
                 "--name m%u --data-dir %s/m%u --listen-client-urls http://10.77.1.%u:2379 --advertise-client-urls "
                 "http://10.77.1.%u:2379 "
                 "--listen-peer-urls http://10.77.1.%u:2380 --initial-advertise-peer-urls http://10.77.1.%u:2380 --log-level error "
                 "--initial-cluster m5=http://10.77.1.5:2380,m6=http://10.77.1.6:2380,m7=http://10.77.1.7:2380",
                 m, scratch, m, m, m, m, m);
        start(p);
    }
}

/* Among two switches. */
static bool is_divided(const char *design)
{
    return strstr(design, "-racks") || strstr(design, "-switches");
}

static void add_coordinators(const char *design)
{
    bool divided = is_divided(design);
    for (unsigned i = 0; i < TRIO; i++) {
        struct part *p = add("coordinator", ETCD + i, FAULT_OTHER);
        snprintf(p->words, sizeof p->words,
                 "serve --insecure --space %s --design %s --listen 10.77.1.%u:7070 --store " STORE
                 " --locks 1000 --lease " LEASE_TEXT " --membership-lease 60 --own 0%s",
                 space, design, ETCD + i, divided ? " --racks 2" : "");
        char words[768];
        snprintf(words, sizeof words, "%s", p->words);
        if (!i)
            snprintf(p->words, sizeof p->words, "%.740s --fresh", words);
        start(p);
        await(p);
        snprintf(p->words, sizeof p->words, "%s", words);
    }
}

static void add_granters(const char *design)
{
    bool divided = is_divided(design);
    unsigned servers = !strcmp(design, "fisslock") || !strcmp(design, "fisslock-stay") || !strcmp(design, "fisslock-racks") ? 0
                       : divided                                                                                            ? 2
                                                                                                                            : 1;
    unsigned switches = !strcmp(design, "srvlock") ? 0 : divided ? 2 : 1, first = part_count;
    for (unsigned i = 0; i < servers; i++) {
        struct part *p = add("server", GRANTERS, FAULT_GRANTER);
        snprintf(p->words, sizeof p->words, "serve --insecure --join " COORDINATORS " --space %s --listen 10.77.1.8:%u", space,
                 7080 + i);
        start(p);
    }
    for (unsigned i = 0; i < servers; i++)
        await(&parts[first + i]);
    for (unsigned i = 0; i < switches; i++) {
        char number[16] = "";
        struct part *p = add("switch", GRANTERS + i, FAULT_GRANTER);
        if (divided)
            snprintf(number, sizeof number, "--rack %u", i + 1);
        snprintf(p->words, sizeof p->words, "switch --soft --join " COORDINATORS " --space %s --listen 10.77.1.%u:7071 %s", space,
                 GRANTERS + i, number);
        start(p);
    }
    for (unsigned i = first + servers; i < part_count; i++)
        await(&parts[i]);
}

static void start_worker(unsigned w, uint64_t seed)
{
    workers[w] = child_fork();
    if (!workers[w])
        worker(&lab, w, place, seed);
}

/* ---- faults ---- */

static void kill_part(struct part *p, struct rng *rng)
{
    struct fault *f = begin_fault(p->kind, 0);
    child_end(&p->pid, rng_chance(rng, 1, 4) ? SIGTERM : SIGKILL);
    pause_for(rng_below(rng, 1500 * NS_PER_MS));
    start(p);
    if (strcmp(p->what, "etcd") != 0)
        await(p);
    f->to_ns = now_ns();
    counts.killed++;
}

static void stop_part(struct part *p, struct rng *rng)
{
    struct fault *f = begin_fault(p->kind, 0);
    kill(p->pid, SIGSTOP);
    pause_for(rng_below(rng, rng_chance(rng, 1, 4) ? 2 * LEASE_NS : 2 * NS_PER_S));
    kill(p->pid, SIGCONT);
    f->to_ns = now_ns();
    counts.stopped++;
}

static void pull_cable(unsigned member, struct rng *rng)
{
    struct fault *f = begin_fault(member <= HOSTS ? FAULT_HOST : member >= GRANTERS ? FAULT_GRANTER : FAULT_OTHER, member);
    lab_plug(&lab, 1, member, false);
    pause_for(rng_below(rng, rng_chance(rng, 1, 4) ? 2 * LEASE_NS : 2 * NS_PER_S));
    lab_plug(&lab, 1, member, true);
    f->to_ns = now_ns();
    counts.cut++;
}

static void disturb_client(struct rng *rng)
{
    unsigned w = (unsigned)rng_below(rng, WORKERS);
    struct fault *f = begin_fault(FAULT_HOST, 1 + w % HOSTS);
    if (rng_chance(rng, 1, 2)) {
        child_end(&workers[w], SIGKILL);
        start_worker(w, rng_next(rng));
    } else {
        kill(workers[w], SIGSTOP);
        pause_for(rng_below(rng, LEASE_NS * 5 / 4));
        kill(workers[w], SIGCONT);
    }
    f->to_ns = now_ns();
    counts.clients++;
}

static void something(struct rng *rng)
{
    struct part *p = &parts[rng_below(rng, part_count)];
    switch (rng_below(rng, 6)) {
    case 0:
    case 1:
        kill_part(p, rng);
        break;
    case 2:
        stop_part(p, rng);
        break;
    case 3:
        pull_cable(1 + (unsigned)rng_below(rng, MEMBERS), rng);
        break;
    case 4: /* the coordinators are what this test is about */
        kill_part(&parts[COORDINATOR_AT + rng_below(rng, TRIO)], rng);
        break;
    default:
        disturb_client(rng);
    }
    pause_for(rng_below(rng, 600 * NS_PER_MS));
}

/* ---- an upgrade ---- */

/* A client of the other build on every host, in the memory that it shares with those of the present one: it holds a lock until all
 * is restarted. */
static void start_holders(void)
{
    for (unsigned h = 0; h < HOSTS; h++) {
        char line[768];
        snprintf(line, sizeof line,
                 "exec %s lock --space %s -w 60 hold-%u -- sh -c 'touch %s/held-%u; until test -e %s/go; do sleep 0.1; done' "
                 "2>>%s/holder.err",
                 other, place, h, scratch, h, scratch, scratch);
        holders[h] = child_fork();
        if (holders[h])
            continue;
        if (!lab_enter(&lab, 1, 1 + h))
            execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    for (unsigned h = 0; h < HOSTS; h++) {
        char path[96];
        snprintf(path, sizeof path, "%s/held-%u", scratch, h);
        for (uint64_t limit = now_ns() + START_NS; access(path, F_OK); pause_for(20 * NS_PER_MS))
            if (now_ns() > limit)
                CHECK_FAIL("a client of the other build gets no lock");
        unlink(path);
    }
}

/* They have kept their locks, unless the design loses them with its switch or lock server. */
static void end_holders(bool kept)
{
    char path[96];
    snprintf(path, sizeof path, "%s/go", scratch);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (unsigned h = 0; h < HOSTS; h++) {
        int status = 0;
        while (waitpid(holders[h], &status, 0) < 0 && errno == EINTR)
            ;
        holders[h] = 0;
        if (kept && status)
            CHECK_FAIL("a client of the other build on host %u ended with status 0x%x: its lock was lost", 1 + h, (unsigned)status);
    }
    unlink(path);
}

static void upgrade(struct rng *rng)
{
    for (unsigned i = COORDINATOR_AT; i < part_count; i++) {
        struct fault *f = begin_fault(parts[i].kind, 0);
        child_end(&parts[i].pid, SIGTERM);
        snprintf(parts[i].program, sizeof parts[i].program, "%s", present());
        start(&parts[i]);
        await(&parts[i]);
        f->to_ns = now_ns();
        counts.killed++;
        pause_for(NS_PER_S); /* of load with this mixture of builds */
    }
    for (unsigned w = 0; w < WORKERS; w++) {
        struct fault *f = begin_fault(FAULT_HOST, 1 + w % HOSTS);
        child_end(&workers[w], SIGKILL);
        start_worker(w, rng_next(rng));
        f->to_ns = now_ns();
        counts.clients++;
    }
}

/* ---- one design ---- */

static void await_progress(void)
{
    uint64_t before[WORKERS], limit = now_ns() + MEND_NS;
    for (unsigned w = 0; w < WORKERS; w++)
        before[w] = __atomic_load_n(&board->turns[w], __ATOMIC_ACQUIRE);
    for (unsigned w = 0; w < WORKERS;) {
        if (__atomic_load_n(&board->turns[w], __ATOMIC_ACQUIRE) >= before[w] + 3)
            w++;
        else if (now_ns() > limit)
            CHECK_FAIL("I9: worker %u makes no progress though all faults have ended", w);
        else
            pause_for(20 * NS_PER_MS);
    }
}

static void end_workers(void)
{
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
    for (unsigned w = 0; w < WORKERS; w++) {
        int status = 0;
        for (uint64_t limit = now_ns() + START_NS; workers[w] && waitpid(workers[w], &status, WNOHANG) != workers[w];
             pause_for(5 * NS_PER_MS))
            if (now_ns() > limit)
                CHECK_FAIL("I10: worker %u does not end", w);
        workers[w] = 0;
        if (status)
            CHECK_FAIL("worker %u ended with status 0x%x", w, (unsigned)status);
    }
}

static void run(const char *design, uint64_t ns, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    memset(&counts, 0, sizeof counts);
    memset(board, 0, offsetof(struct board, hold));
    board->faults = 0;
    board->calm = 1;
    snprintf(space, sizeof space, "c%d-%.16s", (int)getpid(), design);
    snprintf(place, sizeof place, "pawl://" COORDINATORS "/%s", space);
    part_count = COORDINATOR_AT;
    add_coordinators(design);
    add_granters(design);
    for (unsigned w = 0; w < WORKERS; w++)
        start_worker(w, rng_next(&rng));
    await_progress();
    __atomic_store_n(&board->calm, 0, __ATOMIC_RELEASE);
    if (other) {
        start_holders();
        upgrade(&rng);
    }
    for (uint64_t end = now_ns() + ns; now_ns() < end && !other;)
        something(&rng);
    await_progress();
    if (other)
        end_holders(!strstr(design, "netlock"));
    end_workers();
    /* A lock server of srvlock and FissLock's switch learn from the hosts what they hold. NetLock's do not. */
    uint64_t lost = judge_losses(strstr(design, "netlock") ? 0 : LEASE_NS / 2), holds = judge_holds();
    CHECK(holds > WORKERS);
    printf("%s: %" PRIu64 " holds, %" PRIu64
           " lost with a reason; %u processes killed, %u stopped, %u cables pulled, %u clients disturbed\n",
           design, holds, lost, counts.killed, counts.stopped, counts.cut, counts.clients);
    while (part_count > COORDINATOR_AT)
        child_end(&parts[--part_count].pid, SIGKILL);
}

/* Every LANES-th design from this one on, in a lab of its own. */
static void run_lane(unsigned lane, uint64_t seconds, uint64_t seed)
{
    static const char *const designs[] = {"srvlock", "fisslock", "netlock", "fisslock-stay", "fisslock-racks", "netlock-switches"};
    const char *only = getenv("PAWL_TEST_DESIGN");
    const unsigned each = (countof(designs) + LANES - 1) / LANES;
    owner = getpid();
    snprintf(scratch, sizeof scratch, "/tmp/pawl-chaos-XXXXXX");
    CHECK(mkdtemp(scratch));
    lab = (struct lab){.racks = 1, .hosts = MEMBERS};
    snprintf(lab.name, sizeof lab.name, "chaos-%d", (int)getpid());
    int rc = lab_up(&lab);
    atexit(clean_up);
    if (rc == -EPERM || rc == -ENOENT)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(board != MAP_FAILED);
    watch = start_watch();
    start_etcd();
    for (size_t i = 0; i < countof(designs); i++) {
        uint64_t of_faults = only ? seconds : max_u64(seconds / each, AROUND_S + FAULTS_S) - AROUND_S;
        if (only ? !strcmp(only, designs[i]) : i % LANES == lane)
            run(designs[i], of_faults * NS_PER_S, seed + i);
    }
    exit(0);
}

/* The first status of a lane that is not 0, or 0. */
static int run_lanes(uint64_t seconds, uint64_t seed)
{
    const unsigned count = getenv("PAWL_TEST_DESIGN") ? 1 : LANES;
    pid_t lanes[LANES];
    int result = 0;
    for (unsigned i = 0; i < count; i++) {
        lanes[i] = child_fork();
        if (!lanes[i])
            run_lane(i, seconds, seed);
    }
    for (unsigned i = 0; i < count; i++) {
        int status;
        CHECK_EQ(waitpid(lanes[i], &status, 0), lanes[i]);
        if (!result && status)
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    return result;
}

int main(void)
{
    const char *given = getenv("PAWL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : world_random(&world_real) >> 32;
    uint64_t seconds = min_u64(test_seconds(), SECONDS_MAX);
    const char *path = getenv("PATH");
    other = getenv("PAWL_TEST_OTHER");
    char wider[4096];
    snprintf(wider, sizeof wider, "%s:/usr/sbin", path ? path : "/usr/bin");
    setenv("PATH", wider, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (system("command -v etcd >/dev/null"))
        SKIP("etcd is missing (Debian: etcd-server)");
    if (system("${PAWL_BUILD:-build}/pawl serve --space x --store etcd:// 2>&1 | grep -q 'this build has no etcd'") == 0)
        SKIP("this build has no etcd");
    printf("seed %" PRIu64 "\n", seed);
    return run_lanes(seconds, seed);
}
