/* SPDX-License-Identifier: Apache-2.0 */
/* Commands to NetLock's switch, and what it says. */
#ifndef PAWL_CLI_POLICY_H
#define PAWL_CLI_POLICY_H

#include "cluster/join.h"
#include "dataplane/netlock_wire.h"
#include "lib/json.h"

struct policy_switch {
    struct net_addr at;
    const char *space; /* its name */
    uint32_t rack;     /* netlock-switches: its number; else 0 */
    struct seal_ring ring;
    uint32_t id; /* short id of the space; 0: not asked for yet */
};

/* 0 and the status, what the switch says, or -ETIMEDOUT. */
int policy_ask(struct policy_switch *s, const struct netlock_command *c, struct netlock_status *out);

/* The quotas of tenants: a line each, or with `j` a list "quotas". A switch that does not answer has none. */
void policy_quotas(struct policy_switch *s, struct json *j);

#endif
