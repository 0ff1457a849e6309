/* SPDX-License-Identifier: Apache-2.0 */
/* Several locks on a memory node, against one and against one by one (all.h): a node that is a process on loopback, and one in the
 * kernel across a veth between two network namespaces. Costs of processors, not of a network. Needs root. */
#include "bench/all.h"
#include "bench/node-kernel.h"

static void with_design(struct kit *k, const char *design, bool kernel)
{
    struct node_started node = kernel ? node_start_kernel(design) : node_start_process(k, design);
    char name[64];
    if (kernel && lab_enter(&rack, 1, 1))
        kit_die("%s", explained());
    node_connect(node.at);
    snprintf(name, sizeof name, "%s, %s", design, kernel ? "kernel" : "process");
    all_measure(k, name, node_session, NODE_LOCKS);
    node_disconnect();
    node_end(node.pid);
}

int main(int argc, char **argv)
{
    static const char *const designs[] = {"word", "shiftlock", "alock"};
    struct kit k;
    kit_begin(&k, argc, argv, "ten locks on a memory node at once, against one and against one by one");
    printf("medians of rounds of %d turns each\n", ALL_TURNS);
    kit_pin(k.cpus[0]);
    for (unsigned i = 0; i < countof(designs); i++)
        with_design(&k, designs[i], false);
    rack_up("node-all", 1, true);
    for (unsigned i = 0; i < countof(designs); i++)
        with_design(&k, designs[i], true);
    return kit_end(&k);
}
