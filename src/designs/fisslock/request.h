/* SPDX-License-Identifier: Apache-2.0 */
/* A request: what a session of this host holds or waits for. The client of Fig. 6 (host.c, convert.c).
 *
 * The requests are the authority on holds: a request that is HELD holds, any other does not. */
#ifndef PAWL_DESIGNS_FISSLOCK_REQUEST_H
#define PAWL_DESIGNS_FISSLOCK_REQUEST_H

#include "designs/packet/packet.h"

enum fiss_state {
    FISS_IDLE,
    FISS_ENDED, /* refused or given up: idle, and the outcome can still be read */
    FISS_WAITING,
    FISS_HELD,
    FISS_UPGRADING, /* held shared, waits to be exclusive */
    FISS_RELEASING, /* not held; the agent has not yet acknowledged */
};

struct fiss_request {
    uint64_t nonce;
    uint64_t index;
    uint64_t token;
    uint64_t pause_ns;    /* until the next retransmission */
    uint32_t next;        /* in its bucket */
    uint32_t term;        /* held: the tenure; TERM_NONE: one of a decider that lost its state */
    uint32_t floor;       /* waiting or upgrading, if `floored`: tenures before this one are over */
    uint32_t barred_term; /* waiting, if `barred`: in this tenure */
    uint16_t barred_inca; /* ordinals up to this one were given up in a census */
    uint16_t ordinal;     /* held: by the decider's grant of that number; 0: by the agent */
    uint16_t port;
    uint16_t limit; /* of a semaphore; 0: it is none */
    uint8_t state;
    uint8_t mode;
    uint8_t priority;
    bool try, floored, barred;
    bool wanted; /* held: requests wait at the agent, which is on another host */
    bool local;  /* held by the short way */
    uint8_t local_place;
    uint32_t agent; /* if `local` */
    uint32_t generation;
    int32_t result;
};

#define TERM_NONE UINT32_MAX /* the term of no tenure */

static inline bool request_is_held(const struct fiss_request *r)
{
    return r->state == FISS_HELD || r->state == FISS_UPGRADING;
}

/* A nonce names one request of one host, once: number 20, serial 32, life of the host 12. */
#define NONCE_REQUEST_BITS 20
#define NONCE_SERIAL_BITS 32
#define NONCE_REQUEST(nonce) ((uint32_t)((nonce) & ((1u << NONCE_REQUEST_BITS) - 1)))

struct session_state {
    uint32_t held; /* requests */
    bool lost;     /* a hold of the session was lost; until fisslock_session_dead */
};

struct event;
struct agent;
struct fisslock_host;
struct fission_packet;

/* ---- host.c ---- */

struct place request_place(struct fisslock_host *h, const struct fiss_request *r);
bool request_wants(struct fisslock_host *h, uint64_t nonce); /* waits for a grant */
bool request_holds(struct fisslock_host *h, uint64_t nonce);
void request_grant(struct event *e, struct fiss_request *r, uint8_t mode, uint64_t token, uint32_t term, uint16_t ordinal);
void request_end(struct event *e, struct fiss_request *r, int result);
void request_count_held(struct event *e, const struct fiss_request *r, int change);
void request_retransmit_later(struct event *e, struct fiss_request *r);
void request_stop_timer(struct event *e, struct fiss_request *r);
void request_send_acquire(struct event *e, struct fiss_request *r, uint16_t flags);
void request_send_release(struct event *e, uint64_t index, uint64_t nonce, struct place client, uint32_t term, uint16_t ordinal,
                          uint16_t flags);
void request_thread(struct event *e, uint32_t request, uint32_t thread);
void request_due(struct event *e, struct fiss_request *r);

/* Holds that came by the short way, and the step that is under way. */
#define LOCALS 64

struct locals {
    uint64_t taken;           /* a bit per place */
    uint32_t request[LOCALS]; /* by place */
    struct {
        uint32_t request, place;
        uint32_t held; /* the session's count without this request */
        uint32_t active;
    } step;
};

void local_settle(struct event *e); /* holds that came by the short way become like others */

/* ---- convert.c ---- */

void request_ask_upgrade(struct event *e, struct agent *a, struct fiss_request *r);
void request_deny_upgrade(struct event *e, struct fiss_request *r, int result);

/* ---- deadlock.c ---- */

void deadlock_upgrade(struct event *e, struct fiss_request *r); /* an upgrade begins */
void deadlock_second(struct event *e, struct fiss_request *r);  /* its agent says that another upgrade came before */
void deadlock_due(struct event *e, struct fiss_request *r);     /* the request still waits */
void deadlock_probe(struct event *e, const struct fission_packet *p);
void deadlock_chase(struct event *e, const struct fission_packet *p);
void deadlock_ask(struct event *e, const struct fission_packet *p); /* a queue has a request of this host as a writer that waits */

#endif
