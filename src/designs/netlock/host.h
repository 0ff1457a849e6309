/* The host's side, between host.c and host_deadlock.c. */
#ifndef PAWL_DESIGNS_NETLOCK_HOST_H
#define PAWL_DESIGNS_NETLOCK_HOST_H

#include "designs/netlock/netlock.h"
#include "designs/requests.h"

#define GRANTER_SWITCH 0u /* servers are 1 and up */

struct place host_granter_place(const struct requests *h, unsigned granter);

/* The memory of host_deadlock.c is behind the table of requests. */
uint64_t host_suspects_at(const struct rack_config *c);
uint64_t host_deadlock_bytes(const struct rack_config *c);
/* The request was asked for once more. */
void host_deadlock_due(struct requests *h, const struct request *r, uint64_t now, struct outbox *out);
void host_deadlock_chase(struct requests *h, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);

#endif
