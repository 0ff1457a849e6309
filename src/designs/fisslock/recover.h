/* SPDX-License-Identifier: Apache-2.0 */
/* A host after packets, hosts or the decider's state are lost: its lease, the census of an agent, the report to a decider.
 */
#ifndef PAWL_DESIGNS_FISSLOCK_RECOVER_H
#define PAWL_DESIGNS_FISSLOCK_RECOVER_H

#include "dataplane/fission.h"

struct agent;
struct event;

/* ---- lease.c ---- */

void lease_lapse(struct event *e);
void lease_due(struct event *e);
void lease_packet(struct event *e, const struct fission_packet *p);

/* ---- census.c: an agent's upkeep ---- */

#define MACHINES_MAX 1024

struct fiss_census {
    uint64_t id; /* 0: none */
    uint64_t index;
    uint32_t term;
    bool all;           /* asks for holders by earlier tenures, whatever the ordinal; else by these: */
    uint16_t low, high; /* ordinals */
    uint16_t left;      /* machines that have not answered */
    uint64_t pause_ns;
    uint64_t answered[MACHINES_MAX / 64];
};

void agent_due(struct event *e, struct agent *a);
void census_packet(struct event *e, const struct fission_packet *p);
void census_due(struct event *e);
void census_forget(struct event *e, struct agent *a); /* it does not need one any more */

/* ---- report.c ---- */

/* To a decider that lost its state. Requests from `next` on are still to be reported; these parts have not been acknowledged. */
#define REPORT_PARTS 32

struct report {
    bool active;
    uint32_t next;
    uint32_t first, count; /* of the ring */
    uint64_t pause_ns;
    struct {
        uint32_t from, to; /* requests */
        bool heard;
    } part[REPORT_PARTS];
};

void report_start(struct event *e);
void report_stop(struct event *e);
void report_due(struct event *e);
void report_packet(struct event *e, const struct fission_packet *p);

#endif
