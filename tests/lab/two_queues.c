/* SPDX-License-Identifier: Apache-2.0 */
/* A switch in the kernel whose interface has two receive queues: processes on both CPUs fight for one lock, and their packets come
 * by both queues. FissLock and NetLock, in generic and native mode. */
#include "client/net.h"
#include "lib/base.h"
#include "tests/lab/channels.h"

#include <pawl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS 4 /* of each host */
#define EACH 250
#define PATIENCE_NS (20 * NS_PER_S)
#define KEY 7
#define AGAIN_MAX 10 /* the queue of a socket's packets follows from its port: all may have the same one by chance */

static char space[32], where[64];

static struct board {
    _Atomic int inside; /* readers, or -1 */
    _Atomic uint64_t token;
} * board;

static void use(pawl *p, unsigned i)
{
    pawl_grant g;
    enum pawl_mode mode = i % 4 ? PAWL_EXCLUSIVE : PAWL_SHARED;
    if (pawl_timedlock(p, pawl_id(KEY), mode, pawl_in(PATIENCE_NS), &g))
        CHECK_FAIL("%s", pawl_explain());
    if (mode == PAWL_SHARED) {
        CHECK(__atomic_fetch_add((int *)&board->inside, 1, __ATOMIC_SEQ_CST) >= 0);
        CHECK(__atomic_fetch_sub((int *)&board->inside, 1, __ATOMIC_SEQ_CST) > 0);
    } else {
        int none = 0;
        CHECK(__atomic_compare_exchange_n((int *)&board->inside, &none, -1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        CHECK(g.token > board->token);
        board->token = g.token;
        __atomic_store_n((int *)&board->inside, 0, __ATOMIC_SEQ_CST);
    }
    CHECK_EQ(pawl_unlock(p, &g), 0);
}

static void worker(unsigned number)
{
    pawl *p;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number / 2 % 2, &one);
    sched_setaffinity(0, sizeof one, &one); /* a machine with one CPU runs all of them there */
    CHECK_EQ(lab_enter(&rack, 1, 1 + number % 2), 0);
    if (pawl_open(where, NULL, &p))
        CHECK_FAIL("%s", pawl_explain());
    for (unsigned i = 0; i < EACH; i++)
        use(p, number + i);
    pawl_close(p);
    exit(0);
}

static void fight(void)
{
    pid_t workers[2 * WORKERS];
    memset(board, 0, sizeof *board);
    for (unsigned w = 0; w < countof(workers); w++) {
        fflush(stdout);
        workers[w] = fork();
        if (!workers[w])
            worker(w);
    }
    for (unsigned w = 0; w < countof(workers); w++) {
        int status;
        CHECK_EQ(waitpid(workers[w], &status, 0), workers[w]);
        CHECK_EQ(status, 0);
    }
}

static struct plane *lend_program(const char *device, unsigned member)
{
    enum plane_mode got;
    struct plane *p;
    const struct plane_options o = {.program = "echo"};
    CHECK_EQ(lab_enter(&rack, 1, member), 0);
    CHECK_EQ(plane_open(&o, &p), 0);
    if (plane_attach_program(p, device, "pass_all", PLANE_NATIVE, &got))
        CHECK_FAIL("%s", explained());
    return p;
}

static void try_design(const char *design, bool native)
{
    char words[512];
    rack_up("two-queues", 2, false);
    channels_set(LAB_CORE, "psw", 2);
    channels_set(LAB_SWITCH, LAB_UPLINK, 2);
    snprintf(
        words, sizeof words,
        "serve --insecure --listen 10.77.1.254:7070 --space %s --design %s --own %d --keys dense --locks 100 --lease 20s --fresh",
        space, design, !strcmp(design, "netlock")); /* a lock server; the switch in the kernel is the only one */
    pid_t coordinator = rack_start(words);
    struct plane *lent = native ? lend_program("psw", LAB_CORE) : NULL;
    snprintf(words, sizeof words,
             "switch --dev " LAB_UPLINK " --mode %s --join 10.77.1.254:7070 --listen 10.77.1.254:4747 --space %s --fresh",
             native ? "native" : "generic", space);
    pid_t control = rack_start(words);
    fight();
    if (native) {
        uint64_t came[2];
        channels_count(LAB_SWITCH, LAB_UPLINK, came);
        for (unsigned i = 0; i < AGAIN_MAX && (came[0] <= EACH || came[1] <= EACH); i++) {
            fight();
            channels_count(LAB_SWITCH, LAB_UPLINK, came);
        }
        printf("%s, native: %" PRIu64 " frames by the first queue, %" PRIu64 " by the second\n", design, came[0], came[1]);
        CHECK(came[0] > EACH && came[1] > EACH);
    } else {
        printf("%s, generic: %u holds by %u processes\n", design, 2 * WORKERS * EACH, 2 * WORKERS);
    }
    rack_end(control);
    rack_end(coordinator);
    plane_close(lent, PLANE_REMOVE);
    CHECK_EQ(lab_down(rack.name), 0);
    net_remove_hosts(space);
}

int main(void)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    snprintf(space, sizeof space, "two-queues%d", (int)getpid());
    snprintf(where, sizeof where, "pawl://10.77.1.254:7070/%s", space);
    for (int native = 0; native < 2; native++) {
        try_design("fisslock", native);
        try_design("netlock", native);
    }
    return 0;
}
