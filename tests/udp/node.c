/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of pawl.h on a memory node: modes, tokens, time-outs, conversion, several locks, ranges, threads that share a
 * handle, processes over a network that loses, doubles and delays packets, one that is killed, one that is stopped, and a node that
 * loses its memory. PAWL_TEST_DESIGN: word (the default), shiftlock, shiftlock64, alock or citron. */
#include "tests/udp/memory.h"
#include "tests/udp/node_calls.h"
#include "tests/udp/team.h"

#define CHILDREN 4
#define TURNS 60

static struct {
    uint32_t relay_ready;
    struct turns turns;
} * board;

/* ---- one process ---- */

static void forked(pawl *p)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        pawl_grant g;
        _exit(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g) == -PAWL_EFORKED && pawl_close(p) == 0 ? 0 : 1);
    }
    child_join(pid);
}

/* ---- several processes ---- */

static void worker(void *arg)
{
    (void)arg;
    pawl *p = node_open();
    for (int i = 0; i < TURNS; i++)
        take_turn(&board->turns, p, pawl_id(20), UINT64_MAX);
    CHECK_OK(pawl_close(p));
}

static void crowd(void)
{
    pid_t pids[CHILDREN];
    board->turns = (struct turns){0};
    for (int i = 0; i < CHILDREN; i++)
        pids[i] = child_start(worker, NULL);
    for (int i = 0; i < CHILDREN; i++)
        child_join(pids[i]);
    CHECK_EQ(board->turns.sum, CHILDREN * TURNS);
}

struct relay_test {
    uint16_t front, back;
};

static void relay_main(void *arg)
{
    static struct relay relay;
    const struct relay_test *t = arg;
    const struct relay_faults faults = {.loss = 100, .duplicate = 100, .late = 100, .late_ns = 3 * NS_PER_MS};
    relay_open(&relay, net_v4(RACK_LOCALHOST, t->front), net_v4(RACK_LOCALHOST, t->back), &faults, t->front);
    __atomic_store_n(&board->relay_ready, 1, __ATOMIC_RELEASE);
    relay_run(&relay);
}

/* Ten of a hundred packets are lost, ten doubled, ten overtaken, each way. */
static void bad_network(void)
{
    struct relay_test t = {.front = rack_port_pair()};
    t.back = (uint16_t)node_board->port;
    pid_t relay = child_start(relay_main, &t);
    WAIT_FOR(__atomic_load_n(&board->relay_ready, __ATOMIC_ACQUIRE));
    node_board->port = t.front;
    crowd();
    child_kill(relay);
    node_board->port = t.back;
}

/* ---- ends ---- */

static void hold_for_ever(void *arg)
{
    uint32_t *told = arg;
    pawl_grant g;
    pawl *p = node_open();
    CHECK_OK(pawl_lock(p, pawl_id(60), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(told, 1, __ATOMIC_RELEASE);
    uint64_t limit = pawl_in(3 * LIMIT_NS);
    while (!pawl_check(p, &g)) {
        CHECK(pawl_now() < limit);
        pause_ns(NS_PER_MS);
    }
    __atomic_store_n(told, 2, __ATOMIC_RELEASE); /* it was stopped, or its node lost its memory, and it has found out */
    CHECK_RC(pawl_unlock(p, &g), -PAWL_ELOST);
    CHECK_RC(pawl_trylock(p, pawl_id(61), PAWL_EXCLUSIVE, &g), -PAWL_ELOST);
    CHECK_OK(pawl_close(p));
}

static void killed(pawl *p, bool stop)
{
    uint32_t *told = shared_memory(sizeof *told);
    pid_t pid = child_start(hold_for_ever, told);
    pawl_grant g;
    WAIT_FOR(__atomic_load_n(told, __ATOMIC_ACQUIRE));
    CHECK_RC(pawl_trylock(p, pawl_id(60), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    if (stop)
        CHECK_EQ(kill(pid, SIGSTOP), 0);
    else
        child_kill(pid);
    CHECK_OK(pawl_timedlock(p, pawl_id(60), PAWL_EXCLUSIVE, pawl_in(3 * LIMIT_NS), &g));
    if (stop) {
        CHECK_EQ(kill(pid, SIGCONT), 0);
        child_join(pid);
        CHECK_EQ(*told, 2);
    }
    CHECK_OK(pawl_check(p, &g)); /* what the one that was stopped did afterwards has changed nothing */
    CHECK_OK(pawl_unlock(p, &g));
    munmap(told, sizeof *told);
}

/* The node is killed and starts anew: its memory is gone, and its clients learn that. Nothing is granted for a lease. */
static void new_life(const struct node_test *t, pid_t *node)
{
    uint32_t *told = shared_memory(sizeof *told);
    pid_t pid = child_start(hold_for_ever, told);
    pawl_grant g;
    WAIT_FOR(__atomic_load_n(told, __ATOMIC_ACQUIRE));
    child_kill(*node);
    struct node_test again = *t;
    again.fresh = false;
    *node = node_start(&again);
    pawl *p = node_open(); /* waits for the lease */
    CHECK_OK(pawl_lock(p, pawl_id(60), PAWL_EXCLUSIVE, &g));
    WAIT_FOR(__atomic_load_n(told, __ATOMIC_ACQUIRE) == 2);
    child_join(pid);
    CHECK_OK(pawl_unlock(p, &g));
    CHECK_OK(pawl_close(p));
    munmap(told, sizeof *told);
}

/* Many more names than places: places are given to other names, with another generation. `q` knows the places that names had first,
 * and is not misled: a name that is held stays held, and its tokens rise. */
static void places_again(pawl *p, pawl *q)
{
    char name[16];
    uint64_t token[4];
    pawl_grant held, g;
    CHECK_OK(pawl_lock(p, pawl_name("held"), PAWL_EXCLUSIVE, &held));
    for (unsigned i = 0; i < 8 * LOCKS; i++) {
        snprintf(name, sizeof name, "name%u", i);
        pawl *by = i < countof(token) ? q : p;
        CHECK_OK(pawl_timedlock(by, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
        if (i < countof(token))
            token[i] = g.token;
        CHECK_OK(pawl_unlock(by, &g));
    }
    CHECK_RC(pawl_trylock(q, pawl_name("held"), PAWL_EXCLUSIVE, &g), -PAWL_EHELD);
    for (unsigned i = 0; i < countof(token); i++) { /* and back, from both sides */
        pawl_grant other;
        snprintf(name, sizeof name, "name%u", i);
        CHECK_OK(pawl_timedlock(q, pawl_name(name), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
        CHECK(g.token > token[i]);
        CHECK_RC(pawl_trylock(p, pawl_name(name), PAWL_EXCLUSIVE, &other), -PAWL_EHELD);
        CHECK_OK(pawl_unlock(q, &g));
    }
    CHECK_OK(pawl_check(p, &held));
    CHECK_OK(pawl_unlock(p, &held));
}

static void keys(const struct node_test *t)
{
    struct node_test named = *t;
    named.keys = PAWL_KEYS_NAMED;
    named.port = rack_port_pair();
    pid_t node = node_start(&named);
    pawl *p = node_open(), *q = node_open(), *none;
    pawl_grant g, h;
    char where[RACK_WHERE_LEN + 32];
    CHECK_OK(pawl_lock(p, pawl_name("one"), PAWL_EXCLUSIVE, &g));
    CHECK_RC(pawl_trylock(q, pawl_name("one"), PAWL_EXCLUSIVE, &h), -PAWL_EHELD);
    CHECK_OK(pawl_timedlock(q, pawl_name("other"), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &h));
    CHECK_OK(pawl_unlock(q, &h));
    CHECK_OK(pawl_unlock(p, &g));
    places_again(p, q);
    /* Errors name the wrong option. */
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/elsewhere", node_board->port);
    CHECK_RC(pawl_open(where, NULL, &none), -ENOENT);
    node_where("", where);
    const pawl_options dense = {.keys = PAWL_KEYS_DENSE}, other = {.design = "mutex"}, many = {.capacity = LOCKS + 1};
    CHECK_RC(pawl_open(where, &dense, &none), -EINVAL);
    CHECK_RC(pawl_open(where, &other, &none), -EINVAL);
    CHECK_RC(pawl_open(where, &many, &none), -EINVAL);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    child_kill(node);
    node_board->port = t->port;
}

int main(void)
{
    const char *name = rack_design("word");
    design = design_find(name);
    CHECK(design && design->substrates & DESIGN_ON_NODE);
    snprintf(rack_space, sizeof rack_space, "node%d", (int)getpid());
    board = shared_memory(sizeof *board);
    const struct node_test t = {.design = design,
                                .port = rack_port_pair(),
                                .keys = PAWL_KEYS_DENSE,
                                .capacity = LOCKS,
                                .sessions = 32,
                                .holds = 32,
                                .fresh = true};
    pid_t node = node_start(&t);
    pawl *p = node_open(), *q = node_open();
    node_calls(p, q);
    team_takes_turns(p, CHILDREN, TURNS);
    forked(p);
    crowd();
    bad_network();
    killed(p, false);
    killed(p, true);
    CHECK_OK(pawl_close(p));
    CHECK_OK(pawl_close(q));
    keys(&t);
    new_life(&t, &node);
    child_kill(node);
    munmap(board, sizeof *board);
    return 0;
}
