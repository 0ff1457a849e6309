/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on a memory node against a bare UDP echo between the same two processes, with the same polling, in
 * turns. The node polls, too, on a core of its own if there are two. */
#include "bench/node.h"

static void with_design(struct kit *k, const char *design, bool verbs)
{
    struct node_started node = node_start_process(k, design);
    node_connect(node.at);
    node_measure(k, design, 1.10, verbs);
    node_disconnect();
    node_end(node.pid);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "verbs and locks on a memory node against a bare UDP echo");
    kit_pin(k.cpus[0]);
    with_design(&k, "shiftlock", true);
    with_design(&k, "shiftlock64", false);
    with_design(&k, "word", false);
    with_design(&k, "citron", false);
    return kit_end(&k);
}
