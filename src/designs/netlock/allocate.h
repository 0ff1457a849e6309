/* SPDX-License-Identifier: Apache-2.0 */
/* Which locks are in the switch, and with how many slots (4.3). */
#ifndef PAWL_DESIGNS_NETLOCK_ALLOCATE_H
#define PAWL_DESIGNS_NETLOCK_ALLOCATE_H

#include "designs/netlock/switch.h"

/* The slots of the switch, divided equally among its pipes; each pipe is for the locks of its homes (5). */
struct netlock_share {
    uint64_t slots;
    uint32_t pipes, homes; /* 0: all are in one */
};

/* Algorithm 3: gives slots to the demands in the order of rate / contention, until their pipes have none left. Returns how many
 * slots are used. */
uint64_t netlock_allocate(struct demand *demands, uint64_t count, const struct netlock_share *share);

/* The strawman of 6.4: the same, but in an order drawn from the seed. */
uint64_t netlock_allocate_random(struct demand *demands, uint64_t count, const struct netlock_share *share, uint64_t seed);

/* How many servers are needed for the requests that the switch does not serve (4.3). `demands`: requests per second of each lock;
 * `per_server`: of one server. */
uint64_t netlock_servers_needed(const struct demand *demands, uint64_t count, uint64_t per_server);

/* A server's report of its locks that were asked for. */
void switch_on_report(struct nl_switch *w, const struct netlock_packet *p, const struct netlock_demand *demands);

/* Measures, makes a new plan from time to time, and moves locks accordingly, a few at a time. Returns when to call it next. */
uint64_t switch_place_locks(struct nl_switch *w, uint64_t now, struct outbox *out);

#endif
