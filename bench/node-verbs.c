/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on a memory node against a bare UDP echo between the same two processes, with the same polling, in
 * turns. The node polls, too, on a core of its own if there are two. */
#include "bench/node.h"

#include <arpa/inet.h>

static struct board {
    uint32_t ready;
    uint16_t port;
} * board;
static volatile sig_atomic_t stop;

static void node_main(const struct kit *k, const char *design)
{
    static struct memory_node m;
    const struct memory_node_params p = node_params(design, net_v4(htonl(INADDR_LOOPBACK), 0));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(k->cpus[1]);
    if (memory_node_open(&m, &p))
        kit_die("cannot start the node: %s", pawl_explain());
    board->port = m.udp.at.port;
    kit_post(&board->ready, 1);
    memory_node_run(&m, &stop);
    _exit(0);
}

static void with_design(struct kit *k, const char *design, bool verbs)
{
    board->ready = 0;
    pid_t pid = fork();
    if (!pid)
        node_main(k, design);
    kit_await(&board->ready, 1);
    node_connect(net_v4(htonl(INADDR_LOOPBACK), board->port));
    node_measure(k, design, 1.10, verbs);
    node_disconnect();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "verbs and locks on a memory node against a bare UDP echo");
    board = kit_shared(sizeof *board);
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock", true);
    with_design(&k, "shiftlock64", false);
    with_design(&k, "word", false);
    with_design(&k, "citron", false);
    return kit_end(&k);
}
