/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on a memory node in the kernel against a bare echo by the same program, in turns, across a veth
 * between two network namespaces: costs of processors, not of a network. Needs root. */
#include "bench/node-kernel.h"

static void with_design(struct kit *k, const char *design, bool verbs)
{
    struct node_started node = node_start_kernel(design);
    if (lab_enter(&rack, 1, 1))
        kit_die("%s", explained());
    node_connect(node.at);
    node_measure(k, design, 1.20, verbs);
    node_disconnect();
    node_end(node.pid);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "verbs and locks on a memory node in the kernel against a bare echo there");
    rack_up("node-xdp", 1, true);
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock", true);
    with_design(&k, "shiftlock64", false);
    with_design(&k, "word", false);
    with_design(&k, "citron", false);
    return kit_end(&k);
}
