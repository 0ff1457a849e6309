/* What the parts of pawl switch share. */
#ifndef PAWL_CLI_SWITCH_H
#define PAWL_CLI_SWITCH_H

#include "cli/common.h"
#include "wire/udp.h"

#include <signal.h>

struct switch_options {
    const char *devices; /* IF[,IF...] */
    const char *space, *mode, *pins;
    const char *loop; /* OUT,IN: for in-path switches */
    struct net_addr at, coordinator;
    bool fresh, show, remove, json;
    const volatile sig_atomic_t *stop;
};

/* Runs a switch in the kernel until *stop. The exit status. */
int switch_xdp(const struct switch_options *o);

/* What a switch that is pinned has counted, whether it runs or not. */
int switch_show(const char *pins, bool json);

#endif
