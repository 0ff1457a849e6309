/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of pawl switch share. */
#ifndef PAWL_CLI_SWITCH_H
#define PAWL_CLI_SWITCH_H

#include "cli/common.h"
#include "designs/core/knobs.h"
#include "wire/udp.h"

#include <signal.h>

struct switch_options {
    const char *devices; /* IF[,IF...] */
    const char *space, *mode, *pins;
    const char *design; /* demands; null and 0: none */
    uint64_t locks;
    unsigned rack;     /* from 1 on; 0: whichever is free */
    const char *alloc; /* null: as it was, or the knapsack */
    uint32_t levels;   /* of priorities, if there is a wish */
    bool levels_seen;
    struct knobs knobs; /* of CLI_ALLOC_DESIGN: what both of these say */
    const char *loop;   /* OUT,IN: for in-path switches */
    struct net_addr at, coordinator;
    bool fresh, remove, json;
    const volatile sig_atomic_t *stop;
};

#define CLI_ALLOC_DESIGN "netlock"
#define CLI_ALLOC_OTHER "--alloc and --priorities: the space has the design '%s', which has nothing to choose"

/* on, off, or how many priorities have a waiting queue in the switch; false: neither. */
bool cli_priorities(const char *word, uint32_t *out);
#define CLI_PRIORITIES_WRONG "--priorities is on, off, or how many of 8 wait in the switch"

/* Runs a switch in the kernel until *stop. The exit status. */
int switch_xdp(const struct switch_options *o);

/* NetLock's: the program has the queues, the process moves locks and keeps leases. Returns when *stop. The exit status. */
struct coord_welcome;
struct join_params;
int switch_netlock(const struct switch_options *o, struct udp *udp, const struct coord_welcome *w, const struct join_params *j);

/* Parts of switch_xdp.c. Each says what failed, and returns an exit status. */
struct plane;
struct netlock_memory;
int switch_check_memory(const char *what, uint64_t need);
int switch_open_plane(const struct switch_options *o, const struct coord_welcome *w, const char *program, bool fresh,
                      const struct netlock_memory *memory, struct plane **out);
int switch_attach_all(struct plane *p, const struct switch_options *o);
void switch_print_end(const struct plane *p);

/* What a switch that is pinned has counted, whether it runs or not. */
int switch_show(const char *pins, bool json);

#endif
