/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a host that is the same in all designs whose granters (lock servers, a switch) answer by packet: its leases at the
 * granters, and the way of a request from acquire to release. The design says which packets go to which granter (struct
 * granter_ops), and what an answer means.
 *
 * A host has a lease at each granter. The host counts it from the time of its request, by its own clock. The granter counts it from
 * the arrival of the request, by its own clock, which may run faster by the drift that is allowed. So the host knows first that a
 * lease has lapsed. Then sessions that held grants of that granter are lost, and requests that wait there are sent anew under a
 * fresh nonce, so that a late grant means nothing. A granter that lost its memory has a higher life. That has the same effect,
 * unless the design's granters learn holds from the hosts (`report`): they grant nothing until the leases of their former life are
 * over. A host whose lease still runs reports its holds. Its lease is renewed when all of them are acknowledged, and not before;
 * else the granter would give away a lock that it was not told of. */
#ifndef PAWL_DESIGNS_PACKET_GRANTERS_H
#define PAWL_DESIGNS_PACKET_GRANTERS_H

#include "designs/packet/clients.h"
#include "designs/packet/requests.h"

/* The functions that differ between designs. Those that may be null say so. */
struct granter_ops {
    uint64_t nonce_step;         /* between two nonces of a host, whose low bits are the request's number */
    uint64_t no_lapse;           /* the mistake of a host that believes in leases for ever */
    enum request_state quitting; /* of a request that is given up before it is granted */
    bool wakes_dead;             /* requests of a session that died have an outcome */
    /* Sends the packet that the request's state demands, and notes when to retransmit it. */
    void (*say)(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
    /* The request was not answered for a while. */
    void (*retry)(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
    /* The request waits under another nonce from now on. */
    void (*ask_anew)(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
    /* Whether that granter may have the request in its queue, or have granted it. */
    bool (*may_have)(const struct requests *h, unsigned granter, const struct request *r);
    /* A lease has begun, and the request is to be granted. */
    void (*leased)(struct requests *h, unsigned granter, struct request *r, uint64_t now, struct outbox *out);
    void (*ask_for_lease)(struct requests *h, unsigned granter, uint64_t now, struct outbox *out);
    /* Null, or: tells a granter that lost its memory of a hold. False: the packet has no room. */
    bool (*report)(struct requests *h, struct request *r, uint64_t now, struct outbox *out);
    bool (*learns)(const struct requests *h, unsigned granter); /* null: all granters learn holds so; or whether this one does */
    uint64_t silent;                                            /* the mistake of a host that keeps shared holds without that */
    /* Null, or: the request brings bytes with it; 0 or why not. */
    int (*bring)(struct requests *h, struct request *r, const struct packet_ask *ask, struct outbox *out);
    /* Null, or: whether giving up takes longer, because something must be found out first. */
    bool (*give_up)(struct requests *h, struct request *r, int why, uint64_t now, struct outbox *out);
    /* Null, or: the request has ended without success. */
    void (*failed)(struct requests *h, struct request *r, struct outbox *out);
    /* Null, or: the hold is about to change its mode. */
    void (*converts)(struct requests *h, const struct request *r, struct outbox *out);
};

/* ---- requests ---- */

uint64_t request_fresh_nonce(struct requests *h, const struct granter_ops *ops, const struct request *r);
/* Another nonce: a grant of the old one is given back. */
void request_rename(struct requests *h, const struct granter_ops *ops, struct request *r, struct outbox *out);
/* The request is given up, or lost. */
void request_quit(struct requests *h, const struct granter_ops *ops, struct request *r, int result, uint64_t now,
                  struct outbox *out);
/* The request holds the lock in this mode, by an acquisition or a conversion. */
void request_granted(struct requests *h, struct request *r, uint64_t token, uint8_t mode, struct outbox *out);
/* The hold was not converted, or the conversion was given up before. */
void request_not_converted(struct requests *h, struct request *r, int why, struct outbox *out);
/* The granter has acknowledged the release. */
void request_released(struct requests *h, struct request *r, struct outbox *out);

/* ---- leases ---- */

/* If the lease at a granter has ended, its grants have lapsed. */
void granter_check_lease(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t now, struct outbox *out);
/* LEASED came, which was asked for at `stamp`, from a granter that has those slots. */
void granter_leased(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t stamp, uint64_t slots,
                    uint64_t now, struct outbox *out);
/* The granter's place has been given to another one: packets of lives before this one are not taken any more. */
void granter_since(struct requests *h, unsigned granter, uint32_t life, struct outbox *out);
/* Whether a packet of that life of the granter is current. A granter with a higher life has lost its memory. */
bool granter_is_current(struct requests *h, const struct granter_ops *ops, unsigned granter, uint32_t life, uint64_t now,
                        struct outbox *out);

/* A report was answered: whether the hold is known now, and the granter that has it from now on. */
void granter_reported(struct requests *h, const struct granter_ops *ops, struct request *r, bool known, unsigned granter,
                      uint64_t now, struct outbox *out);

/* ---- as packet.h has them, with the design's table ---- */

/* `granter`: the one whose lease it needs. */
int granters_acquire(struct requests *h, const struct granter_ops *ops, const struct packet_ask *ask, unsigned granter,
                     enum pawl_mode mode, uint64_t now, struct outbox *out);
int granters_convert(struct requests *h, const struct granter_ops *ops, uint32_t request, enum pawl_mode mode, uint64_t now,
                     struct outbox *out);
int granters_give_up(struct requests *h, const struct granter_ops *ops, uint32_t request, int why, uint64_t now,
                     struct outbox *out);
int granters_release(struct requests *h, const struct granter_ops *ops, uint32_t request, uint64_t now, struct outbox *out);
void granters_session_dead(struct requests *h, const struct granter_ops *ops, uint32_t session, uint64_t now, struct outbox *out);
/* The earliest end of a lease from which the session holds something; 0: it has lost something. */
uint64_t granters_expiry(const struct requests *h, const struct granter_ops *ops, uint32_t session);
void granters_renew(struct requests *h, const struct granter_ops *ops, uint64_t now, struct outbox *out);
uint64_t granters_tick(struct requests *h, const struct granter_ops *ops, uint64_t now, struct outbox *out);

#endif
