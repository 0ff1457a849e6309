/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node in the kernel, across network namespaces that lose, double and overtake packets: eight clients lock, and add to
 * words of the node's memory, while `pawl serve` is killed and started again under them. Sums are exact, no session is lost, and
 * clients go on while there is no process. Then a client is killed, and another stopped beyond its lease. PAWL_TEST_DESIGN:
 * shiftlock (the default), or another one-sided design. */
#include "fabric/node_udp.h"
#include "tests/lab/noise.h"
#include "tests/udp/node_calls.h"

#define CLIENTS 8
#define HOSTS 2
#define KILLS 3
#define TURNS_BETWEEN 8 /* of each client, between two events */
#define PATIENCE_NS (90 * NS_PER_S)
#define SPACE "node"
#define NODE "10.77.1.254:7070"
#define WHERE "pawl://" NODE "/" SPACE
#define LOCK 7

/* Words of the header's page that no header reaches. */
#define WORD 3072
#define PAIR 3088
#define FIELDS 3104

static struct {
    uint32_t stop;
    struct turns all;
    uint64_t turns[CLIENTS];
    uint32_t holds, learnt;
} * board;

/* ---- the node ---- */

static pid_t start_node(const char *more)
{
    char words[512], bpf[LAB_PATH];
    lab_bpf(&rack, bpf);
    snprintf(words, sizeof words,
             "serve --insecure --design %s --space " SPACE " --listen " NODE " --dev " LAB_UPLINK
             " --pin %s/node --keys dense --locks 64 --sessions 32 --holds 16 --lease 6s %s",
             design->name, bpf, more);
    return rack_start(words);
}

static void end_by(pid_t pid, int signal)
{
    int status;
    CHECK_EQ(kill(pid, signal), 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
}

/* Its session, once a node listens. */
static pawl *open_session(void)
{
    pawl *p;
    for (uint64_t limit = pawl_in(PATIENCE_NS); pawl_open(WHERE, NULL, &p); pause_ns(20 * NS_PER_MS))
        if (pawl_now() > limit)
            CHECK_FAIL("pawl_open: %s", pawl_explain());
    return p;
}

/* ---- clients ---- */

static void connect_verbs(struct node_udp *u, uint64_t nonce)
{
    CHECK_EQ(node_udp_open(u, net_v4(htonl(lab_address(1, LAB_SWITCH)), 7070), (struct net_addr){0}), 0);
    CHECK_EQ(fab_node_connect(&u->node, SPACE, nonce, pawl_in(PATIENCE_NS)), 0);
    u->node.patience_ns = PATIENCE_NS; /* an unknown outcome would spoil the sums */
}

/* Fields of 16 bits: a sum of one does not spill into the next. */
static void add(struct node_udp *u)
{
    struct fab_op ops[] = {
        {.verb = FAB_FAA, .width = 8, .addr = WORD, .swap = 1},
        {.verb = FAB_FAA, .width = 16, .addr = PAIR, .swap = (u128)1 << 64 | UINT64_MAX}, /* carries but once */
        {.verb = FAB_FAA, .width = 8, .addr = FIELDS, .swap = UINT64_C(0xffff0001), .swap_mask = UINT64_C(0x8000800080008000)},
    };
    CHECK_EQ(fab_batch(&u->node.fab, ops, countof(ops)), 0);
}

static void client(void *arg)
{
    static struct node_udp verbs;
    unsigned number = (unsigned)(uintptr_t)arg;
    CHECK_EQ(lab_enter(&rack, 1, 1 + number % HOSTS), 0);
    pawl *p = open_session();
    connect_verbs(&verbs, 100 + number);
    while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
        take_turn(&board->all, p, pawl_id(LOCK), pawl_in(PATIENCE_NS));
        add(&verbs);
        __atomic_fetch_add(&board->turns[number], 1, __ATOMIC_RELEASE);
    }
    CHECK_OK(pawl_close(p));
    fab_node_leave(&verbs.node, pawl_in(LIMIT_NS));
    node_udp_close(&verbs);
}

/* Until each has had so many more turns. A client that has ended has failed. */
static void await_turns(const pid_t *pids, uint64_t more)
{
    uint64_t goal[CLIENTS], limit = pawl_in(PATIENCE_NS);
    for (unsigned i = 0; i < CLIENTS; i++)
        goal[i] = __atomic_load_n(&board->turns[i], __ATOMIC_ACQUIRE) + more;
    for (unsigned i = 0; i < CLIENTS;) {
        int status;
        if (waitpid(pids[i], &status, WNOHANG) == pids[i])
            CHECK_FAIL("client %u ended with status 0x%x", i, (unsigned)status);
        if (pawl_now() > limit)
            CHECK_FAIL("client %u has had %" PRIu64 " turns, not %" PRIu64, i, board->turns[i], goal[i]);
        if (__atomic_load_n(&board->turns[i], __ATOMIC_ACQUIRE) >= goal[i])
            i++;
        else
            pause_ns(NS_PER_MS);
    }
}

static void check_sums(void)
{
    static struct node_udp verbs;
    uint64_t turns = 0, word, fields;
    u128 pair;
    for (unsigned i = 0; i < CLIENTS; i++)
        turns += board->turns[i];
    CHECK_EQ(board->all.sum, turns);
    connect_verbs(&verbs, 99);
    CHECK_EQ(fab_read64(&verbs.node.fab, WORD, &word), 0);
    CHECK_EQ(fab_read128(&verbs.node.fab, PAIR, &pair), 0);
    CHECK_EQ(fab_read64(&verbs.node.fab, FIELDS, &fields), 0);
    CHECK_EQ(word, turns);
    CHECK(pair == (u128)turns * ((u128)1 << 64 | UINT64_MAX));
    CHECK_EQ(fields, (turns & 0xffff) | (uint64_t)((uint16_t)-turns) << 16);
    fab_node_leave(&verbs.node, pawl_in(LIMIT_NS));
    node_udp_close(&verbs);
    printf("%" PRIu64 " turns of %d clients: the sums are exact\n", turns, CLIENTS);
}

/* ---- ends ---- */

static void hold_until_lost(void *arg)
{
    pawl_grant g;
    (void)arg;
    CHECK_EQ(lab_enter(&rack, 1, 2), 0);
    pawl *p = open_session();
    CHECK_OK(pawl_lock(p, pawl_id(9), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(&board->holds, 1, __ATOMIC_RELEASE);
    for (uint64_t limit = pawl_in(PATIENCE_NS); !pawl_check(p, &g); pause_ns(NS_PER_MS))
        CHECK(pawl_now() < limit);
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_trylock(p, pawl_id(10), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
    __atomic_store_n(&board->learnt, 1, __ATOMIC_RELEASE);
}

/* The lock of a client that is killed, or stopped beyond its lease, goes to the next. The process is away meanwhile, and comes
 * back: until then no client is fenced. */
static void lost_client(pid_t *node, bool stop)
{
    pawl_grant g;
    board->holds = board->learnt = 0;
    pid_t pid = child_start(hold_until_lost, NULL);
    WAIT_FOR(__atomic_load_n(&board->holds, __ATOMIC_ACQUIRE));
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    pawl *p = open_session();
    CHECK_RC(pawl_trylock(p, pawl_id(9), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    end_by(*node, SIGKILL);
    if (stop)
        CHECK_EQ(kill(pid, SIGSTOP), 0);
    else
        child_kill(pid);
    CHECK_RC(pawl_trylock(p, pawl_id(9), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    *node = start_node("");
    CHECK_OK(pawl_timedlock(p, pawl_id(9), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g));
    if (stop) {
        CHECK_EQ(kill(pid, SIGCONT), 0);
        child_join(pid);
        CHECK(board->learnt);
    }
    CHECK_OK(pawl_check(p, &g)); /* the verbs that the stopped one sent afterwards have changed nothing */
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

/* Clients on the node's own machine come by the loopback interface: the process has the program execute their requests. */
static void from_here(void)
{
    pawl_grant g;
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    pawl *p = open_session();
    CHECK_OK(pawl_timedlock(p, pawl_id(LOCK), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g));
    const pawl_request next = {
        .op = PAWL_OP_LOCK, .mode = PAWL_EXCLUSIVE, .key = pawl_id(LOCK), .deadline_ns = pawl_in(PATIENCE_NS)};
    pawl_completion c;
    uint64_t id;
    if (!pawl_watch(p, &g)) { /* else the design does not offer it */
        CHECK_OK(pawl_submit(p, &next, &id));
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(PATIENCE_NS)), 1);
        CHECK_EQ(c.op, PAWL_OP_WANTED);
        CHECK_OK(pawl_unlock(p, &g));
        CHECK_EQ(pawl_reap(p, &c, 1, pawl_in(PATIENCE_NS)), 1);
        g = c.grant;
    }
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
}

/* A process that cannot take over changes nothing: the program goes on, and the next process finds everything. */
static void wrong_shape(pid_t *node)
{
    static const char *const wrong[] = {"--locks 65", "--lease 7s", "--space other"};
    pawl_grant g;
    int status;
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    pawl *p = open_session();
    end_by(*node, SIGKILL);
    for (size_t i = 0; i < countof(wrong); i++) {
        pid_t pid = start_node(wrong[i]);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(WEXITSTATUS(status), 69);
        CHECK_EQ(lab_enter(&rack, 1, 1), 0);
        CHECK_OK(pawl_timedlock(p, pawl_id(11), PAWL_EXCLUSIVE, pawl_in(PATIENCE_NS), &g));
        CHECK_OK(pawl_unlock(p, &g));
    }
    *node = start_node("");
    CHECK_OK(pawl_close(p));
}

int main(void)
{
    pid_t pids[CLIENTS];
    const char *name = getenv("PAWL_TEST_DESIGN");
    design = design_find(name ? name : "shiftlock");
    CHECK(design && design->substrates & DESIGN_ON_NODE_XDP);
    rack_up("node", HOSTS, false);
    board = shared_memory(sizeof *board);
    pid_t node = start_node("--fresh");
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    pawl *p = open_session(), *q = open_session();
    node_calls(p, q);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    noise_begin(HOSTS);
    for (unsigned i = 0; i < CLIENTS; i++)
        pids[i] = child_start(client, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < KILLS; i++) {
        await_turns(pids, TURNS_BETWEEN);
        end_by(node, SIGKILL);
        await_turns(pids, TURNS_BETWEEN); /* there is no process */
        node = start_node("");
    }
    await_turns(pids, TURNS_BETWEEN);
    __atomic_store_n(&board->stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < CLIENTS; i++)
        child_join(pids[i]);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    check_sums();
    noise_end(HOSTS);
    from_here();
    lost_client(&node, false);
    lost_client(&node, true);
    wrong_shape(&node);
    CHECK_EQ(lab_enter(&rack, 1, 1), 0);
    CHECK_OK(pawl_close(open_session())); /* it serves, so it has its signals */
    rack_end(node);
    return 0;
}
