/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of NetLock, internal: host.c, calls to data servers (host_call.c), and the host's part in finding deadlocks
 * (host_deadlock.c). */
#ifndef PAWL_DESIGNS_NETLOCK_HOST_H
#define PAWL_DESIGNS_NETLOCK_HOST_H

#include "designs/netlock/netlock.h"
#include "designs/packet/granters.h"

#define GRANTER_SWITCH 0u /* servers are 1 and up */
#define HOST_CALLS 16u    /* deeds for data servers, of one session at once */

/* A deed that a data server is to do under a lock; afterwards, its reply. */
struct call {
    uint64_t id;       /* its number at the data server, made like a nonce; 0: none */
    uint64_t since_ns; /* since when it is given up */
    uint32_t life;     /* of the data server when it was first sent; 0: it never was */
    uint16_t len;
    bool once;  /* the lock is given back as soon as it is done */
    bool under; /* the lock was held before, and stays so */
    uint8_t bytes[NETLOCK_PAYLOAD_MAX];
};

/* ---- host.c ---- */

/* For granters.h. */
extern const struct granter_ops host_ops;
/* A packet with so many bytes behind it; null: no room. */
struct netlock_packet *host_packet(struct requests *h, unsigned granter, enum netlock_type type, uint32_t more, struct outbox *out);
/* Whether the number is one of this life of the host. */
bool host_is_own_nonce(const struct requests *h, uint64_t nonce);
/* Sends the packet that the request's state demands, and sets the time to retransmit it. */
void host_say(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
void host_settle(struct requests *h, struct request *r, int result, struct outbox *out);
void host_ask_anew(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
/* The request was granted, by that granter in that life. A grant that no request waits for is given back. */
void host_granted(struct requests *h, const struct netlock_packet *p, struct place granter, uint32_t life, uint64_t now,
                  struct outbox *out);

/* ---- host_call.c ---- */

uint64_t call_bytes(const struct rack_config *c);
/* The request brings something for the lock's data server: -PAWL_ELIMIT, -EMSGSIZE. */
int call_begin(struct requests *h, struct request *r, const void *bytes, uint32_t len, bool once, struct outbox *out);
/* How many bytes travel with an ACQUIRE; puts them into it. */
uint32_t call_rides(struct requests *h, const struct request *r, uint64_t now, struct outbox *out);
void call_ride(struct requests *h, const struct request *r, struct netlock_packet *p);
/* The request is being done, or given up, by its data server. */
void call_say(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
/* The call is given up. True: its outcome is unknown, and is found out first. */
bool call_give_up(struct requests *h, struct request *r, int why, uint64_t now, struct outbox *out);
void call_on_answer(struct requests *h, struct request *r, const struct netlock_packet *p, uint32_t len, uint64_t now,
                    struct outbox *out);
/* The data server does not answer whether it was done. */
bool call_in_vain(const struct requests *h, const struct request *r, uint64_t now);
void call_unknown(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
void call_end(struct requests *h, struct request *r, struct outbox *out);

/* ---- host_deadlock.c ---- */

/* Its memory is behind that of host_call.c. */
uint64_t host_suspects_at(const struct rack_config *c);
uint64_t host_deadlock_bytes(const struct rack_config *c);
/* The request was asked for once more. */
/* A conversion to exclusive: a wait under another name. */
void host_deadlock_upgrade(struct requests *h, const struct request *r, struct outbox *out);
void host_deadlock_due(struct requests *h, const struct request *r, uint64_t now, struct outbox *out);
void host_deadlock_chase(struct requests *h, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out);

#endif
