/* SPDX-License-Identifier: Apache-2.0 */
/* As many sessions on one memory node as there can be, each of which has locked, waited and released: what they cost the node's
 * process in memory. Sessions here have no thread, so that one process can have them all. */
#include "client/locker.h"
#include "cluster/session.h"
#include "fabric/node_udp.h"
#include "lib/hash.h"
#include "tests/udp/memory.h"

#include <sys/resource.h>

#define SESSIONS SLOTS_MAX
#define HOLDS 16
#define LOCKS 64
#define BYTES_MAX 4096            /* of each session, in the node's process */
#define LEASE_NS (600 * NS_PER_S) /* no session is renewed here */

static struct one {
    struct node_udp far;
    struct session session;
    struct locker locker;
} * all;
static struct space space; /* the same for all */
static struct layout_header header;

static void wide_node(void *arg)
{
    static struct memory_node m;
    const struct memory_node_params p = {.layout = {.design = arg,
                                                    .keys = PAWL_KEYS_DENSE,
                                                    .capacity = LOCKS,
                                                    .sessions = SESSIONS,
                                                    .holds = HOLDS,
                                                    .lease_ns = LEASE_NS,
                                                    .check_ns = NS_PER_S},
                                         .space = rack_space,
                                         .at = net_v4(RACK_LOCALHOST, 0),
                                         .fresh = true};
    CHECK_EQ(memory_node_open(&m, &p), 0);
    node_board->port = m.udp.at.port;
    __atomic_store_n(&node_board->ready, 1, __ATOMIC_RELEASE);
    memory_node_run(&m, &rack_stop);
}

/* Pages that are the process's own: the program's are shared with this one. */
static uint64_t own_bytes(pid_t pid)
{
    char path[64];
    unsigned long total, resident, shared;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "r");
    CHECK(f && fscanf(f, "%lu %lu %lu", &total, &resident, &shared) == 3);
    fclose(f);
    return (uint64_t)(resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A session looks for a free slot from a place on that depends on its proof: here each finds one where it looks first. */
static uint64_t proof_for(uint64_t slot)
{
    uint64_t proof = slot << 32;
    while (mix64(proof) % SESSIONS != slot)
        proof++;
    return proof;
}

static void open_one(struct one *o, uint64_t slot)
{
    CHECK_EQ(node_udp_open(&o->far, net_v4(RACK_LOCALHOST, (uint16_t)node_board->port), (struct net_addr){0}), 0);
    int rc = fab_node_connect(&o->far.node, rack_space, slot + 1, pawl_in(LIMIT_NS));
    CHECK_EQ(rc, 0);
    o->far.node.patience_ns = LIMIT_NS;
    CHECK_EQ(fab_read(&o->far.node.fab, 0, &header, round_up(sizeof header, 8)), 0);
    CHECK_EQ(layout_adopt(&header, &o->far.node.fab), 0);
    layout_space(&header, 0, &space);
    table_init(&o->locker.table, &header, 0);
    o->session.seen = calloc(1, SESSIONS * sizeof *o->session.seen);
    o->session.shadow = calloc(HOLDS, sizeof *o->session.shadow);
    CHECK(o->session.seen && o->session.shadow);
    o->locker.seat = (struct seat){.space = &space, .me = &o->session, .ep = &o->far.node.fab, .world = &world_real};
    const struct session_params params = {.lease_ns = LEASE_NS, .proof = proof_for(slot), .label = "many"};
    CHECK_EQ(session_open(&o->locker.seat, &params), 0);
}

/* Each waits for a lock that another one holds, so that its WAITs are parked, and gets one. */
static void use(struct one *o, uint64_t i)
{
    struct hold h;
    CHECK_EQ(locker_lock(&o->locker, pawl_id(0), PAWL_EXCLUSIVE, pawl_in(200 * NS_PER_US), &h), -ETIMEDOUT);
    CHECK_EQ(locker_lock(&o->locker, pawl_id(1 + i % (LOCKS - 1)), PAWL_EXCLUSIVE, DEADLINE_NEVER, &h), 0);
    CHECK_EQ(locker_unlock(&o->locker, &h), 0);
}

int main(void)
{
    struct rlimit files;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    if (files.rlim_max < 2 * SESSIONS + 64)
        SKIP("a process can open %llu files here, and two for each session are needed", (unsigned long long)files.rlim_max);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(rack_space, sizeof rack_space, "many%d", (int)getpid());
    node_board = shared_memory(sizeof *node_board);
    pid_t node = child_start(wide_node, (void *)(uintptr_t)design_find("word"));
    WAIT_FOR(__atomic_load_n(&node_board->ready, __ATOMIC_ACQUIRE));
    all = calloc(SESSIONS, sizeof *all);
    CHECK(all);
    struct hold held;
    open_one(&all[0], 0);
    CHECK_EQ(locker_lock(&all[0].locker, pawl_id(0), PAWL_EXCLUSIVE, DEADLINE_NEVER, &held), 0);
    uint64_t before = own_bytes(node);
    for (uint64_t i = 1; i < SESSIONS; i++) {
        open_one(&all[i], i);
        use(&all[i], i);
    }
    uint64_t each = (own_bytes(node) - before) / (SESSIONS - 1);
    printf("%d sessions on one node: %" PRIu64 " bytes of the node's memory each\n", SESSIONS, each);
    CHECK(each <= BYTES_MAX);
    CHECK_EQ(locker_unlock(&all[0].locker, &held), 0);
    child_kill(node);
    return 0;
}
