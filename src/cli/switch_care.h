/* SPDX-License-Identifier: Apache-2.0 */
/* What the control process of a switch in the kernel does while it runs: rebuilds state that was lost, tells the coordinator that
 * it is there, looks for machines that are gone, and begins anew with other locks if the coordinator says so (as node/station.c
 * does for one in software). */
#ifndef PAWL_CLI_SWITCH_CARE_H
#define PAWL_CLI_SWITCH_CARE_H

#include "cluster/join.h"
#include "dataplane/xdp/loader.h"
#include "designs/fisslock/rebuild.h"

struct care {
    struct udp *udp;
    struct coord_welcome welcome;
    struct join_params join;
    struct rack_config config; /* the rack's own: with its number of the space */
    struct rack_rules rules;   /* by which it goes, if locks are divided */
    uint64_t nonce_next;       /* it is joining anew by this JOIN; 0: it is not */
    uint64_t joining_until_ns; /* for so long the program is quiet */
    volatile struct plane_live *live;
    volatile struct plane_host *hosts; /* the kernel's */
    struct rebuild_lock *locks;
    struct rebuild rebuild;
    uint64_t heard[REBUILD_MACHINES_MAX];    /* as it was when last looked at, */
    uint64_t heard_ns[REBUILD_MACHINES_MAX]; /* and when it had changed */
    uint64_t beat_ns;
    uint16_t look_for; /* a machine that the coordinator asked about; 0: none */
    uint64_t look_next, look_found;
    struct udp_batch batch;
};

/* 0 or a negative errno. Afterwards packets may come: the program is attached now, or before. */
int care_begin(struct care *c, struct plane *p, struct udp *udp, const struct coord_welcome *w, const struct join_params *j);

/* A while of it. True: it has opened just now. */
bool care_round(struct care *c);

#endif
