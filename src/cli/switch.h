/* What the parts of pawl switch share. */
#ifndef PAWL_CLI_SWITCH_H
#define PAWL_CLI_SWITCH_H

#include "cli/common.h"

struct switch_options {
    const char *devices; /* IF[,IF...] */
    const char *design;
    const char *machines; /* ADDRESS[@IF][,...]: machines 1 and up */
    const char *mode;
    const char *pins;
    const char *loop; /* OUT,IN: for in-path switches */
    uint64_t locks, space, port, life;
    bool fresh, show, remove, json;
};

/* Runs a switch in the kernel until SIGTERM or SIGINT. The exit status. */
int switch_xdp(const struct switch_options *o);

/* What a switch that is pinned has counted; whether it runs or not. */
int switch_show(const struct switch_options *o);

#endif
