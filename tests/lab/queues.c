/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's queues in the kernel on real interfaces, in both shapes and modes: processes on two hosts fight for a few locks, so
 * that releases let others in (several packets out of one), queues overflow into the server and come back, and locks move. */
#include "client/net.h"
#include "lib/base.h"
#include "tests/lab/rack.h"
#include "workbench/lab/child.h"

#include <fcntl.h>
#include <glob.h>
#include <pawl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS 4 /* of each host */
#define KEYS 2
#define EACH 300
#define EXCHANGE_PACKETS 100 /* before and after one program follows another */
#define PATIENCE_NS (20 * NS_PER_S)

static char space[32], where[64], serve[160]; /* of this process alone: a test that was killed leaves its hosts' memories behind */

static struct board {
    _Atomic int inside[KEYS]; /* readers, or -1 */
    _Atomic uint64_t token[KEYS];
    _Atomic bool on_and_on; /* workers work until this is taken back */
} * board;

static void use(pawl *p, unsigned i)
{
    pawl_grant g;
    unsigned key = i % KEYS;
    enum pawl_mode mode = i % 3 ? PAWL_SHARED : PAWL_EXCLUSIVE;
    if (pawl_timedlock(p, pawl_id(key), mode, pawl_in(PATIENCE_NS), &g))
        CHECK_FAIL("%s", pawl_explain());
    if (mode == PAWL_SHARED) {
        CHECK(__atomic_fetch_add((int *)&board->inside[key], 1, __ATOMIC_SEQ_CST) >= 0);
        CHECK(__atomic_fetch_sub((int *)&board->inside[key], 1, __ATOMIC_SEQ_CST) > 0);
    } else {
        int nobody = 0;
        CHECK(__atomic_compare_exchange_n((int *)&board->inside[key], &nobody, -1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        CHECK(g.token > board->token[key]);
        board->token[key] = g.token;
        __atomic_store_n((int *)&board->inside[key], 0, __ATOMIC_SEQ_CST);
    }
    CHECK_EQ(pawl_unlock(p, &g), 0);
}

static void worker(unsigned host, unsigned number)
{
    pawl *p;
    CHECK_EQ(lab_enter(&rack, 1, host), 0);
    int rc = pawl_open(where, NULL, &p);
    if (rc)
        CHECK_FAIL("%s", pawl_explain());
    for (unsigned i = 0; i < EACH || board->on_and_on; i++)
        use(p, number + i);
    pawl_close(p);
    exit(0);
}

static pid_t workers[2 * WORKERS];

static void start_workers(bool on_and_on)
{
    memset(board, 0, sizeof *board);
    board->on_and_on = on_and_on;
    for (unsigned w = 0; w < 2 * WORKERS; w++) {
        fflush(stdout);
        workers[w] = fork();
        if (!workers[w])
            worker(1 + w % 2, w);
    }
}

/* They end by themselves, as they should. */
static void end_workers(void)
{
    for (unsigned w = 0; w < 2 * WORKERS; w++) {
        int status;
        CHECK_EQ(waitpid(workers[w], &status, 0), workers[w]);
        CHECK_EQ(status, 0);
    }
}

/* Native XDP_TX and redirects on veth reach only an end that has a native program, too. */
static struct plane *lend_program(const char *device, unsigned namespace)
{
    enum plane_mode got;
    struct plane *p;
    const struct plane_options o = {.program = "echo"};
    CHECK_EQ(lab_enter(&rack, 1, namespace), 0);
    CHECK_EQ(plane_open(&o, &p), 0);
    if (plane_attach_program(p, device, "pass_all", PLANE_NATIVE, &got))
        CHECK_FAIL("%s", explained());
    return p;
}

/* A start that tries its interfaces, and finds that natively nothing leaves: it says so, and leaves nothing behind. */
static void refused(const char *words)
{
    int status;
    pid_t control = rack_start(words);
    CHECK_EQ(waitpid(control, &status, 0), control);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 69);
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    CHECK(plane_is_bare(rack.in_path ? "p1" : LAB_UPLINK));
}

static void try_shape(bool in_path, bool native)
{
    char bpf[LAB_PATH], pins[LAB_PATH + 8], words[768];
    struct plane *lent[2] = {0};
    struct plane_live live;
    struct plane_counters c;
    rack_up("queues", 2, in_path);
    lab_bpf(&rack, bpf);
    snprintf(pins, sizeof pins, "%s/sw", bpf);
    pid_t coordinator = rack_start(serve);
    snprintf(words, sizeof words,
             "switch --dev %s --mode %s --join 10.77.1.254:7070 --listen 10.77.1.254:4747 --space %s --pin %s --fresh",
             in_path ? "p1,p2 --loop " LAB_LOOP_OUT "," LAB_LOOP_IN : LAB_UPLINK, native ? "native" : "generic", space, pins);
    if (native)
        refused(words);
    if (native && in_path) {
        lent[0] = lend_program(LAB_DEVICE, 1);
        lent[1] = lend_program(LAB_DEVICE, 2);
    } else if (native) {
        lent[0] = lend_program("psw", LAB_CORE);
    }
    pid_t control = rack_start(words);
    start_workers(false);
    end_workers();
    CHECK_EQ(plane_peek(pins, &live, &c), 0);
    printf("%s, %s: %" PRIu64 " answered, %" PRIu64 " sent, %" PRIu64 " became several, %" PRIu64
           " for the control process, %" PRIu64 " dropped\n",
           in_path ? "in-path" : "one-armed", native ? "native" : "generic", c.verdict[PLANE_ANSWERED], c.verdict[PLANE_SENT],
           c.verdict[PLANE_DOUBLED], c.reason[PLANE_CONTROL], c.verdict[PLANE_DROPPED]);
    CHECK(c.verdict[PLANE_DOUBLED] > EACH / 4 && c.verdict[PLANE_SENT] > EACH);
    CHECK_EQ(c.reason[PLANE_LOST_TWIN], 0);
    rack_end(control);
    rack_end(coordinator);
    for (unsigned i = 0; i < 2; i++)
        plane_close(lent[i], PLANE_REMOVE);
    CHECK_EQ(lab_down(rack.name), 0);
}

/* Not in the middle of a change of its own: then the locks would count as lost, which tests/lab/faults is about. */
static void kill_control(pid_t pid, const char *pins)
{
    struct plane_live live;
    struct plane_counters c;
    int status;
    for (;; usleep(1000)) {
        kill(pid, SIGSTOP);
        CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
        CHECK(WIFSTOPPED(status));
        CHECK_EQ(plane_peek(pins, &live, &c), 0);
        if (!live.torn)
            break;
        kill(pid, SIGCONT);
    }
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static uint64_t packets_so_far(const char *pins)
{
    struct plane_live live;
    struct plane_counters c;
    CHECK_EQ(plane_peek(pins, &live, &c), 0);
    return c.verdict[PLANE_ANSWERED] + c.verdict[PLANE_SENT] + c.verdict[PLANE_DOUBLED];
}

static void await_packets(const char *pins)
{
    uint64_t before = packets_so_far(pins), until = pawl_in(PATIENCE_NS);
    for (; packets_so_far(pins) < before + EXCHANGE_PACKETS; usleep(1000))
        CHECK(pawl_now() < until);
}

/* Which program the switch's interface has, as ip(8) tells. */
static unsigned program_there(void)
{
    char text[4096] = "";
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    FILE *ip = popen("ip link show dev " LAB_UPLINK, "re");
    CHECK(ip);
    CHECK(fread(text, 1, sizeof text - 1, ip));
    CHECK_EQ(pclose(ip), 0);
    const char *id = strstr(text, "prog/xdp id ");
    CHECK(id);
    return (unsigned)strtoul(id + strlen("prog/xdp id "), NULL, 10);
}

static void await_other(unsigned than)
{
    for (uint64_t until = pawl_in(PATIENCE_NS); program_there() == than; usleep(1000))
        CHECK(pawl_now() < until);
}

/* A client that is killed leaves the memory of its host behind, here as if by another release of pawl. The next lab's namespaces
 * may have the inode numbers of this one's; they are other hosts all the same. */
static void leave_memory(void)
{
    char pattern[96];
    glob_t found;
    int status;
    pid_t pid = child_fork();
    if (!pid) {
        pawl *p;
        CHECK_EQ(lab_enter(&rack, 1, 1), 0);
        CHECK_EQ(pawl_open(where, NULL, &p), 0);
        raise(SIGKILL);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    snprintf(pattern, sizeof pattern, "/dev/shm/pawl.%u.net.%s.*", (unsigned)geteuid(), space);
    CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = open(found.gl_pathv[i], O_WRONLY | O_CLOEXEC);
        CHECK(fd >= 0 && pwrite(fd, "anyhost", 8, 0) == 8);
        close(fd);
    }
    globfree(&found);
}

static void remove_memories(void)
{
    if (getpid() == rack_owner)
        net_remove_hosts(space);
}

/* The program is exchanged while packets flow, again and again: locks stay held, and the switch keeps its life. */
static void survives(void)
{
    char bpf[LAB_PATH], pins[LAB_PATH + 8], words[512];
    struct plane_live before, live;
    struct plane_counters c;
    pawl *p, *q;
    pawl_grant g, other;
    const unsigned exchanges = 3;
    rack_up("queues", 2, false);
    lab_bpf(&rack, bpf);
    snprintf(pins, sizeof pins, "%s/sw", bpf);
    snprintf(words, sizeof words,
             "switch --dev " LAB_UPLINK " --join 10.77.1.254:7070 --listen 10.77.1.254:4747 --space %s --pin %s", space, pins);
    pid_t coordinator = rack_start(serve), control;
    char fresh[sizeof words + 16];
    snprintf(fresh, sizeof fresh, "%s --fresh", words);
    control = rack_start(fresh);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    if (pawl_open(where, NULL, &p))
        CHECK_FAIL("%s", pawl_explain());
    CHECK_EQ(lab_enter(&rack, 1, 2), 0);
    if (pawl_open(where, NULL, &q))
        CHECK_FAIL("%s", pawl_explain());
    CHECK_EQ(pawl_timedlock(p, pawl_id(50), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g), 0);
    CHECK_EQ(plane_peek(pins, &before, &c), 0);
    for (unsigned i = 0; i < exchanges; i++) {
        unsigned program = program_there();
        start_workers(true);
        await_packets(pins);
        kill_control(control, pins);
        control = rack_start(words);
        await_other(program);
        await_packets(pins);
        CHECK_EQ(pawl_trylock(q, pawl_id(50), PAWL_SHARED, &other), -PAWL_EHELD);
        board->on_and_on = false;
        end_workers();
    }
    CHECK_EQ(plane_peek(pins, &live, &c), 0);
    CHECK_EQ(live.life, before.life);
    CHECK_EQ(pawl_check(p, &g), 0);
    CHECK_EQ(pawl_unlock(p, &g), 0);
    CHECK_EQ(pawl_timedlock(q, pawl_id(50), PAWL_SHARED, pawl_in(PATIENCE_NS), &other), 0);
    CHECK(other.token > g.token);
    CHECK_EQ(pawl_close(q), 0);
    CHECK_EQ(pawl_close(p), 0);
    printf("the program was exchanged %u times while packets flowed\n", exchanges);
    leave_memory();
    rack_end(control);
    rack_end(coordinator);
    CHECK_EQ(lab_down(rack.name), 0);
}

int main(void)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    snprintf(space, sizeof space, "queues%d", (int)getpid());
    snprintf(where, sizeof where, "pawl://10.77.1.254:7070/%s", space);
    snprintf(serve, sizeof serve,
             "serve --insecure --listen 10.77.1.254:7070 --space %s --design netlock --keys dense --locks 100 --lease 20s --fresh",
             space);
    atexit(remove_memories);
    survives();
    for (int i = 0; i < 4; i++)
        try_shape(i & 1, i & 2);
    return 0;
}
