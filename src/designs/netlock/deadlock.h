/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlocks in NetLock: what hosts, the switch and lock servers say to each other about them. See designs/packet/chase.h.
 *
 *   PROBE  host to the switch, which may pass it to the server: nonce, mode, client of the waiter; count steps follow
 *   CHASE  from the switch or server that has the queue, to the host of a request that is in the way; the switch sends it by way of
 *          the server if the waiter is not in its own queue: the server knows whether it is in q2 */
#ifndef PAWL_DESIGNS_NETLOCK_DEADLOCK_H
#define PAWL_DESIGNS_NETLOCK_DEADLOCK_H

#include "designs/netlock/server.h"
#include "designs/netlock/switch.h"
#include "designs/packet/chase.h"

/* Whether a PROBE or CHASE of that length is complete, and the way it has come. */
bool deadlock_read(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, struct chase_probe *out);

void deadlock_at_switch(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);
void deadlock_at_server(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);

#endif
