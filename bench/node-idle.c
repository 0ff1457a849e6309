/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of an idle memory node and of idle clients, which renew their leases and do nothing else: the processor time of the
 * node, and of each client with all its threads. */
#include "bench/node.h"
#include "world/world.h"

#define CLIENTS 8
#define SETTLE_NS NS_PER_S /* a client that has just opened its session is awake for a while */
#define SECONDS 10
#define BOUND_PERCENT 1

static uint64_t used_ns(pid_t pid)
{
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock))
        kit_die("a process is gone");
    return world_clock(clock);
}

static pid_t start_client(struct net_addr at, uint32_t *ready)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    pawl_grant g;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    node_connect(at);
    if (pawl_lock(node_session, pawl_id(1), PAWL_EXCLUSIVE, &g) || pawl_unlock(node_session, &g))
        kit_die("cannot lock: %s", pawl_explain());
    kit_post(ready, 1);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    struct kit k;
    pid_t pids[CLIENTS];
    kit_begin(&k, argc, argv, "an idle memory node and its idle clients");
    uint64_t span_ns = max_u64(NS_PER_S, (uint64_t)(SECONDS * k.scale * (double)NS_PER_S)), before[CLIENTS], clients = 0;
    struct memory_node_params p = node_params("shiftlock", net_v4(htonl(INADDR_LOOPBACK), 0));
    p.spin_ns = 0;
    p.layout.lease_ns = 2 * NS_PER_S; /* as of 'pawl serve' */
    p.layout.check_ns = p.layout.lease_ns / 4;
    struct node_started node = node_start(&p, NODE_ANY_CPU, NULL);
    uint32_t *ready = kit_shared(sizeof *ready * CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++) {
        pids[i] = start_client(node.at, &ready[i]);
        kit_await(&ready[i], 1);
    }
    kit_sleep(SETTLE_NS);
    uint64_t begin = kit_now(), node_before = used_ns(node.pid);
    for (unsigned i = 0; i < CLIENTS; i++)
        before[i] = used_ns(pids[i]);
    kit_sleep(span_ns);
    for (unsigned i = 0; i < CLIENTS; i++)
        clients += used_ns(pids[i]) - before[i];
    double wall = (double)(kit_now() - begin);
    printf("%d clients over %.1f s\n", CLIENTS, wall / (double)NS_PER_S);
    kit_judge(&k, "the node, of one core", 100 * (double)(used_ns(node.pid) - node_before) / wall, " %", BOUND_PERCENT);
    kit_judge(&k, "all clients together, of one core", 100 * (double)clients / wall, " %", BOUND_PERCENT);
    for (unsigned i = 0; i < CLIENTS; i++)
        node_end(pids[i]);
    node_end(node.pid);
    return kit_end(&k);
}
