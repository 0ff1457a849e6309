/* SPDX-License-Identifier: Apache-2.0 */
/* A rack of a lab at work: its coordinator and, if the design has one, its switch, in the kernel; or a memory node in the kernel.
 * All are commands of pawl, in the namespace of the rack's switch, and end with this process. */
#ifndef PAWL_WORKBENCH_LAB_RACK_H
#define PAWL_WORKBENCH_LAB_RACK_H

#include "workbench/lab/child.h"
#include "workbench/lab/lab.h"

#define LAB_PINS (LAB_PATH + 16)
#define LAB_PLACE 64

struct lab_rack {
    const struct lab *lab;
    unsigned rack;
    const char *design;
    bool divided;               /* one space of all racks, with the first one's coordinator: the locks are divided among them */
    const char *options;        /* of `pawl serve`: what lab_rack_serve was told */
    pid_t coordinator, control; /* control: the switch's, or the memory node's `pawl serve`; 0: does not run */
};

bool lab_rack_has_switch(const struct lab_rack *r);
bool lab_rack_is_node(const struct lab_rack *r); /* a memory node instead of coordinator and switch */
bool lab_rack_can_divide(const char *design);    /* among switches in the kernel */

/* Further options of `pawl serve`, which stay where they are. If locks are divided, of the first rack. Hosts can open the space,
 * which is named after the lab, a moment later. fresh: no host holds anything from before. */
void lab_rack_serve(struct lab_rack *r, const char *options, bool fresh);

/* Starts the process that looks after the program in the kernel, for the first time or again. */
void lab_rack_control(struct lab_rack *r, bool fresh);

/* Gives slots to another rack: `pawl rules`, in the first one's switch. True: done. */
bool lab_rack_move(const struct lab_rack *first, unsigned slot, unsigned end, unsigned to);

/* Ends both, and removes the switch's state. */
void lab_rack_stop(struct lab_rack *r);

/* Where hosts of the rack find the space. */
void lab_rack_place(const struct lab_rack *r, char out[LAB_PLACE]);

/* Where the switch's locks are pinned. */
void lab_rack_pins(const struct lab_rack *r, char out[LAB_PINS]);
void lab_rack_forget(const struct lab_rack *r);

#endif
