/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on a memory node in the kernel against a bare echo by the same program, in turns, across a veth
 * between two network namespaces: costs of processors, not of a network. Needs root. */
#include "bench/node.h"
#include "node/memory_kernel.h"
#include "tests/lab/rack.h"

#include <stdarg.h>

#define NODE_PORT 7070
#define NODE_DEVICE "p1" /* towards the only host: lab_port */

static uint32_t *ready;
static volatile sig_atomic_t stop;

__attribute__((format(printf, 1, 2))) static void be_silent(const char *format, ...) {}

static void node_main(const char *design)
{
    static struct memory_node m;
    struct memory_kernel kernel = {.devices = NODE_DEVICE, .report = be_silent};
    const struct memory_home home = memory_kernel_home(&kernel);
    struct memory_node_params p = node_params(design, net_v4(htonl(lab_address(1, LAB_SWITCH)), NODE_PORT));
    p.home = &home;
    p.spin_ns = 0; /* it has nothing to do */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (lab_enter(&rack, 1, LAB_SWITCH) || memory_node_open(&m, &p))
        kit_die("cannot start the node: %s", pawl_explain());
    kit_post(ready, 1);
    memory_node_run(&m, &stop);
    _exit(0);
}

static void with_design(struct kit *k, const char *design, bool verbs)
{
    *ready = 0;
    pid_t pid = fork();
    if (!pid)
        node_main(design);
    kit_await(ready, 1);
    if (lab_enter(&rack, 1, 1))
        kit_die("%s", explained());
    node_connect(net_v4(htonl(lab_address(1, LAB_SWITCH)), NODE_PORT));
    node_measure(k, design, 1.20, verbs);
    node_disconnect();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "verbs and locks on a memory node in the kernel against a bare echo there");
    ready = kit_shared(sizeof *ready);
    rack_up("node-xdp", 1, true);
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock", true);
    with_design(&k, "shiftlock64", false);
    with_design(&k, "word", false);
    with_design(&k, "citron", false);
    return kit_end(&k);
}
