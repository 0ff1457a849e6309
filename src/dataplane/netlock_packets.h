/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's switch program at its edges: which packets are in order, what of a packet a pass begins with, and the packets that
 * leave after a pass. Shared by the switch in software (designs/netlock) and the one in the kernel (xdp/netlock.bpf.c). */
#ifndef PAWL_DATAPLANE_NETLOCK_PACKETS_H
#define PAWL_DATAPLANE_NETLOCK_PACKETS_H

#include "dataplane/netlock.h"

/* ---- in ---- */

/* A request's registers: one cell for each request of each host, while there are enough. Beyond that, two requests may share one,
 * and duplicates of the one that was there before are not known as such. */
static inline uint32_t netlock_request_cell(uint16_t machine, uint64_t nonce, uint32_t stride, uint32_t requests)
{
    return (uint32_t)(((uint64_t)machine * stride + netlock_request_of(nonce)) % requests);
}

static inline bool netlock_sound_mode(const struct netlock_packet *p)
{
    return p->mode == NETLOCK_SHARED || p->mode == NETLOCK_EXCLUSIVE;
}

/* Whether a nonce names one of so many requests of a host. */
static inline bool netlock_sound_nonce(const struct netlock_packet *p, uint32_t stride)
{
    return netlock_request_of(p->head.nonce) < stride && p->head.nonce >> NETLOCK_SLOT_BITS;
}

/* PUSH: of a host's request. Without a mode, the request was given up. */
static inline bool netlock_sound_push(const struct netlock_packet *p, uint32_t machines, uint32_t stride, uint32_t tenants)
{
    return p->client.machine != MACHINE_NONE && p->client.machine <= machines && p->mode <= NETLOCK_EXCLUSIVE &&
           netlock_request_of(p->head.nonce) < stride && p->priority < NETLOCK_PRIORITIES && p->tenant < tenants;
}

/* Fields that packets of hosts and of servers have in common. Without priorities all requests have the highest. */
static inline void netlock_pass_of(struct netlock_pass *pass, const struct netlock_packet *p, struct place client, bool ranked)
{
    pass->mode = p->mode;
    pass->priority = ranked ? p->priority % NETLOCK_PRIORITIES : 0;
    pass->machine = client.machine;
    pass->port = client.port;
    pass->tenant = p->tenant;
    pass->nonce = p->head.nonce;
}

/* ACQUIRE, RELEASE, CANCEL, CONVERT or STAY of a host. The pass is zeroed. */
static inline void netlock_pass_of_request(struct netlock_pass *pass, const struct netlock_packet *p, bool ranked)
{
    uint8_t type = p->head.type;
    netlock_pass_of(pass, p, p->head.from, ranked);
    pass->op = type == NETLOCK_ACQUIRE   ? NETLOCK_OP_ACQUIRE
               : type == NETLOCK_RELEASE ? NETLOCK_OP_RELEASE
               : type == NETLOCK_CANCEL  ? NETLOCK_OP_CANCEL
               : type == NETLOCK_CONVERT ? NETLOCK_OP_CONVERT
                                         : NETLOCK_OP_STAY;
    pass->flags = p->flags & (NETLOCK_TRY | NETLOCK_PAYLOAD);
    pass->ticket = p->ticket;
    pass->step = type == NETLOCK_CONVERT || type == NETLOCK_STAY ? (uint16_t)(p->count % NETLOCK_STEPS) : 0;
}

/* PUSH or LAST of a server. The pass is zeroed. `host_life`: the latest life of the client's host; a request of a former one has
 * ended. */
static inline void netlock_pass_of_push(struct netlock_pass *pass, const struct netlock_packet *p, uint32_t host_life, bool ranked)
{
    netlock_pass_of(pass, p, p->client, ranked);
    if (p->stamp && p->stamp < host_life)
        pass->mode = 0;
    pass->op = p->head.type == NETLOCK_PUSH ? NETLOCK_OP_PUSH : NETLOCK_OP_LAST;
    pass->flags = p->flags & (NETLOCK_TRY | NETLOCK_LOW);
    pass->round = p->round;
    pass->count = p->count;
    pass->pushed = p->pushed;
}

/* ---- out ---- */

/* Input of the switch when it makes packets of a pass. */
struct netlock_sender {
    /* A packet of zeros that will leave; null: no room, as if it were lost on its way. */
    struct netlock_packet *(*add)(void *ctx);
    void *ctx;
    uint64_t index;      /* of the lock */
    uint32_t generation; /* of the index, of requests that are passed on */
    uint32_t space;      /* of the rack's packets */
    uint32_t term;       /* of the switch */
    uint32_t host_life;  /* of the host whose request is passed on */
    struct place self;   /* the switch */
    struct place server; /* that has the lock; no machine: none has */
    bool notifies;       /* while a lock moves, nothing is to be pushed */
};

static inline struct netlock_packet *netlock_to_client(const struct netlock_sender *s, enum netlock_type type, uint64_t nonce,
                                                       struct place to)
{
    struct netlock_packet *p = s->add(s->ctx);
    if (!p)
        return 0;
    netlock_head(p, s->space, type, s->term, s->self, to);
    p->head.index = s->index;
    p->head.nonce = nonce;
    return p;
}

/* GRANT, CONVERTED. */
static inline void netlock_emit_hold(const struct netlock_pass *pass, const struct netlock_sender *s, enum netlock_type type)
{
    struct netlock_packet *p = netlock_to_client(s, type, pass->out_nonce, pass->out_place);
    if (!p)
        return;
    p->mode = pass->out_mode;
    p->token = pass->out_token;
    p->ticket = type == NETLOCK_GRANT ? pass->out_ticket : 0;
    p->count = type == NETLOCK_CONVERTED ? pass->step : 0;
}

static inline void netlock_emit_refusal(const struct netlock_pass *pass, const struct netlock_sender *s)
{
    struct place client = {pass->machine, pass->port};
    struct netlock_packet *p = netlock_to_client(s, NETLOCK_REFUSED, pass->nonce, client);
    if (!p)
        return;
    bool quota = pass->out & NETLOCK_OUT_QUOTA, deadlock = pass->out & NETLOCK_OUT_DEADLOCK;
    p->code = quota ? NETLOCK_QUOTA : pass->out & NETLOCK_OUT_MOVING ? NETLOCK_MOVING : deadlock ? NETLOCK_DEADLOCK : NETLOCK_HELD;
    p->count = deadlock ? pass->step : 0;
    p->stamp = quota ? (uint64_t)pass->out_wait << 10 : 0;
}

/* To the lock's server, with what it must know about where the lock is. */
static inline struct netlock_packet *netlock_to_server(const struct netlock_pass *pass, const struct netlock_sender *s,
                                                       enum netlock_type type, uint32_t life, struct place from)
{
    struct netlock_packet *p = s->server.machine ? s->add(s->ctx) : 0;
    if (!p)
        return 0;
    netlock_head(p, s->space, type, life, from, s->server);
    p->head.index = s->index;
    p->life = s->term;
    p->round = pass->round;
    p->count = pass->count;
    p->ticket = pass->levels;
    return p;
}

/* A request goes on to the server. */
static inline void netlock_emit_forward(const struct netlock_pass *pass, const struct netlock_sender *s)
{
    enum netlock_type type = pass->op == NETLOCK_OP_CANCEL ? NETLOCK_CANCEL : NETLOCK_ACQUIRE;
    struct netlock_packet *p = netlock_to_server(pass, s, type, s->host_life, (struct place){pass->machine, pass->port});
    if (!p)
        return;
    p->head.generation = type == NETLOCK_ACQUIRE ? s->generation : 0;
    p->head.nonce = pass->nonce;
    p->mode = pass->mode;
    p->priority = pass->priority;
    p->tenant = pass->tenant;
    p->flags = (uint8_t)((pass->flags & NETLOCK_TRY) | NETLOCK_FORWARDED | NETLOCK_OVERFLOW | (pass->low ? NETLOCK_LOW : 0));
}

/* NOTIFY, PUSHED. */
static inline void netlock_emit_pushes(const struct netlock_pass *pass, const struct netlock_sender *s)
{
    enum netlock_type type = pass->out & NETLOCK_OUT_NOTIFY ? NETLOCK_NOTIFY : NETLOCK_PUSHED;
    struct netlock_packet *p = netlock_to_server(pass, s, type, s->term, s->self);
    if (!p)
        return;
    p->pushed = pass->pushed;
    p->room = pass->out_room;
    p->flags = pass->vacant ? NETLOCK_LOW : 0;
}

/* All packets that leave after a pass; but for NETLOCK_OUT_DATA, which needs the packet's bytes. */
static inline void netlock_emit(const struct netlock_pass *pass, const struct netlock_sender *s)
{
    struct place client = {pass->machine, pass->port};
    if (pass->out & NETLOCK_OUT_GRANT)
        netlock_emit_hold(pass, s, NETLOCK_GRANT);
    if (pass->out & NETLOCK_OUT_RELEASED)
        netlock_to_client(s, NETLOCK_RELEASED, pass->nonce, client);
    if (pass->out & NETLOCK_OUT_GONE)
        netlock_to_client(s, NETLOCK_GONE, pass->nonce, client);
    if (pass->out & (NETLOCK_OUT_HELD | NETLOCK_OUT_QUOTA | NETLOCK_OUT_MOVING | NETLOCK_OUT_DEADLOCK))
        netlock_emit_refusal(pass, s);
    if (pass->out & NETLOCK_OUT_CONVERTED)
        netlock_emit_hold(pass, s, NETLOCK_CONVERTED);
    if (pass->out & NETLOCK_OUT_FORWARD)
        netlock_emit_forward(pass, s);
    if (pass->out & NETLOCK_OUT_PUSHED || (pass->out & NETLOCK_OUT_NOTIFY && s->notifies))
        netlock_emit_pushes(pass, s);
}

/* A request for a lock that is not in the switch, as its server gets it. Algorithm 1, line 12. */
static inline void netlock_forward(struct netlock_packet *p, struct place server, bool ranked, uint32_t life, uint32_t version)
{
    p->head.to = server;
    p->flags = (uint8_t)((p->flags & (NETLOCK_TRY | NETLOCK_PAYLOAD)) | NETLOCK_FORWARDED);
    p->priority = ranked ? p->priority : 0;
    p->life = life;
    p->round = version;
}

/* The same packet back to its sender. */
static inline void netlock_turn_round(struct netlock_packet *p, enum netlock_type type, uint32_t life, struct place self)
{
    p->head.type = (uint8_t)type;
    p->head.epoch = life;
    p->head.to = p->head.from;
    p->head.from = self;
}

#endif
