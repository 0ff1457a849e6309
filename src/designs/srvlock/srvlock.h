/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on servers, asked by packets: `srvlock` on dedicated machines, `parlock` on the clients' own. The baseline of both papers
 * whose switch decides, and what keeps locks that do not fit into a switch.
 *
 *   host to server                              server to host
 *   ACQUIRE  nonce, mode, try                   GRANT     nonce, step, mode, token
 *   ENTER    nonce, limit, try: of a semaphore
 *   RELEASE  nonce: out of it, whatever it was  REFUSED   nonce, step, code
 *   CONVERT  nonce, step, mode                  QUEUED    nonce: no need to hurry with asking again
 *   STAY     nonce, step: gave up converting    RELEASED  nonce
 *   LEASE    stamp                              LEASED    stamp
 *   REPORT   nonce, step, mode, token           REPORTED  nonce, code: 0, or the hold is lost
 *   WATCH    nonce: of a hold                   WANTED    nonce: a request waits for its lock
 *
 * Every packet may be lost, doubled, late and overtaken. The host sends again until it is answered. A nonce names one acquisition:
 * its low bits are the host's request slot, the rest counts. The server remembers for every slot of every host the latest nonce and
 * what became of it; an older one is stale, the same one is answered as before. A slot is used again only after RELEASED or REFUSED
 * was heard, so nothing is forgotten too early, and no window is needed. Conversions of one hold are told apart by `step` likewise.
 *
 * A host has a lease at each server. It counts from when the host asked (its clock), the server counts from when it heard (its
 * clock, which may run faster by what DRIFT_DIVISOR allows): the host knows first that a lease has lapsed. Then the sessions that
 * held something there are lost, and waiting requests are asked anew with a fresh nonce, so that a late grant means nothing.
 *
 * A server that lost its memory has a higher life, and waits for a lease before it grants anything. In that time hosts whose leases
 * still run report their holds, as they do to FissLock's switch (5.3, S1). A host's lease is renewed when the server has
 * acknowledged every report of it. So when the server begins to grant, each hold of its former life is known to it, or its host's
 * lease is over. */
#ifndef PAWL_DESIGNS_SRVLOCK_SRVLOCK_H
#define PAWL_DESIGNS_SRVLOCK_SRVLOCK_H

#include "designs/packet/clients.h"
#include "designs/srvlock/mistakes.h"

#define SRV_SLOT_BITS 20 /* of a nonce: a million requests of one host at once */

enum srv_type {
    SRV_ACQUIRE = 1,
    SRV_RELEASE,
    SRV_CONVERT,
    SRV_STAY,
    SRV_LEASE,
    SRV_GRANT,
    SRV_REFUSED,
    SRV_QUEUED,
    SRV_RELEASED,
    SRV_LEASED,
    SRV_REPORT,
    SRV_REPORTED,
    SRV_WATCH,
    SRV_WANTED,
    SRV_ENTER, /* an ACQUIRE of another type: a server that does not know semaphores drops it */
};

#define SRV_TRY 1u /* flag of ACQUIRE */

struct srv_packet {
    struct packet_head head; /* epoch: the sender's life */
    uint32_t step;           /* of conversions: 0 is the acquisition */
    uint16_t code;           /* REFUSED: a positive code; ENTER, REPORT: the limit of a semaphore, 0: it is none */
    uint8_t mode;
    uint8_t flags;
    uint64_t token;
    uint64_t stamp; /* LEASE: the host's clock when it asked; LEASED repeats it. ACQUIRE, ENTER, REPORT: the life of the server that
                       is to know. Answers about a request: the life of the host that asked */
};
_Static_assert(sizeof(struct srv_packet) == 72, "no padding");

static inline void srv_head(struct srv_packet *p, const struct rack_config *c, enum srv_type type, uint32_t life, struct place from,
                            struct place to)
{
    p->head = (struct packet_head){.version = PACKET_VERSION,
                                   .family = PACKET_SERVER,
                                   .type = (uint8_t)type,
                                   .space = c->space,
                                   .epoch = life,
                                   .from = from,
                                   .to = to};
}

static inline uint32_t srv_slot(uint64_t nonce)
{
    return (uint32_t)(nonce & ((1u << SRV_SLOT_BITS) - 1));
}

/* Ranges of locks lie together, as FissLock's ParLock has them: with Zipf's law its first server has 56.7 % of the work (2.3). */
#define SRV_BY_RANGE (1u << 8)

static inline uint64_t srv_range(const struct rack_config *c)
{
    return (c->locks + c->servers - 1) / c->servers;
}

/* Which of the config's servers has a lock, and at which place there: no two locks have the same. */
static inline unsigned srv_of(const struct rack_config *c, uint64_t index)
{
    assert(c->servers);
    return (unsigned)(c->options & SRV_BY_RANGE ? index / srv_range(c) : index % c->servers);
}

static inline uint64_t srv_place(const struct rack_config *c, uint64_t index)
{
    return c->options & SRV_BY_RANGE ? index % srv_range(c) : index / c->servers;
}

/* ---- the host's side (srv_host.c) ---- */

uint64_t srv_host_bytes(const struct rack_config *config);
void srv_host_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
int srv_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
int srv_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out);
int srv_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);
int srv_release(void *host, uint32_t request, uint64_t now, struct outbox *out);
bool srv_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out);
void srv_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t srv_tick(void *host, uint64_t now, struct outbox *out);
void srv_renew(void *host, uint64_t now, struct outbox *out);
uint64_t srv_expiry(const void *host, uint32_t session);
void srv_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out);
void srv_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out);

/* ---- the server (srv_server.c) ---- */

uint64_t srv_server_bytes(const struct rack_config *config);
void srv_server_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now);
void srv_server_packet(void *memory, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t srv_server_tick(void *memory, uint64_t now, struct outbox *out);
const struct packet_drops *srv_server_drops(const void *server);
struct packet_figures srv_server_figures(const void *server);

#define SRV_HOST                                                                                                                   \
    .family = PACKET_SERVER, .host_bytes = srv_host_bytes, .host_init = srv_host_init, .acquire = srv_acquire,                     \
    .convert = srv_convert, .give_up = srv_give_up, .release = srv_release, .outcome = requests_outcome, .idle = requests_idle,    \
    .holds = requests_hold, .claim = requests_claim, .uses = requests_use, .wanted = srv_wanted, .packet = srv_packet,             \
    .tick = srv_tick, .renew = srv_renew, .expiry = srv_expiry, .server_since = srv_server_since,                                  \
    .session_dead = srv_session_dead, .host_drops = requests_drops

#define SRV_SERVER                                                                                                                 \
    .server_bytes = srv_server_bytes, .server_init = srv_server_init, .server_packet = srv_server_packet,                          \
    .server_tick = srv_server_tick, .server_drops = srv_server_drops, .server_figures = srv_server_figures

#define SRV_FEATURES                                                                                                               \
    (DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_TOKENS | DESIGN_RECOVERY | DESIGN_TIMEOUT | DESIGN_CONVERT | DESIGN_ASYNC |         \
     DESIGN_BAST | DESIGN_SEMAPHORE | DESIGN_VALUES)

extern const struct design design_srvlock;

#endif
