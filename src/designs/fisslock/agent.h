/* SPDX-License-Identifier: Apache-2.0 */
/* An agent (Fig. 7, 11): the holders and the queue of one lock, at the host that has its tenure.
 *
 * An agent follows the requests by packets. Where packets were lost, retransmission brings it back in line:
 *
 *     a client that waits retransmits its ACQUIRE, so that a lost queue entry or a lost GRANT comes again;
 *     an agent with waiters retransmits its GRANTs to the holders that it knows, and a host without such a holder answers RELEASE;
 *     an agent that cannot account for all ordinals of its tenure takes a census (census.c);
 *     a host that is named by the decider's word and knows nothing of the agent adopts it (agent_adopt).
 *
 * Nonces are never used twice, so a packet for a request that has ended has no effect. */
#ifndef PAWL_DESIGNS_FISSLOCK_AGENT_H
#define PAWL_DESIGNS_FISSLOCK_AGENT_H

#include "dataplane/fission.h"
#include "lib/base.h"

/* A request, of any host: nonces are one host's. */
struct who {
    uint64_t nonce;
    uint16_t machine;
};

/* A holder or a waiter. */
struct node {
    uint64_t nonce;
    uint64_t since; /* when it came to this agent */
    uint32_t next;
    struct place client;
    uint16_t ordinal;
    uint8_t mode;
    uint8_t priority;
    uint16_t limit; /* of a place of a semaphore; 0: it is none */
};

struct list {
    uint32_t head, tail, count;
};

enum agent_state {
    AGENT_NONE,
    AGENT_LIVE,
    AGENT_FREEING, /* FREE was sent */
    AGENT_MOVING,  /* GRANT with agent was sent; to this host itself, if the mode changes */
};

/* Lists of agents. */
enum agent_chain { CHAIN_KEPT, CHAIN_CENSUS, CHAINS };

struct agent {
    uint64_t index;
    uint64_t token; /* of the tenure */
    uint64_t pause_ns;
    uint32_t next; /* in its bucket, or among the free */
    uint32_t term;
    uint32_t generation;
    struct list holders, waiters;
    uint32_t writers;    /* among the waiters */
    struct who upgrader; /* the holder that waits to be exclusive; machine 0: none */

    /* Ordinals of a shared tenure: all up to `known` are accounted for, and known + 1 + i if bit i is set; `seen` was given out. */
    uint64_t known_bits;
    uint16_t known, seen;

    uint16_t sent_inca; /* freeing, moving: the incarnation that was sent */
    uint32_t grantee;   /* moving: node of the next holder, or NONE */
    bool grantee_holds; /* moving: the grantee is a holder that is upgraded */
    uint16_t to;        /* moving: to this machine */
    uint8_t to_mode;
    uint8_t state;
    uint8_t right;    /* of the decider's word: exclusive: the agent grants as it likes on this host; shared: it grants shared */
    uint8_t score;    /* keep.c */
    uint16_t granted; /* exclusive tenure: counts grants, for the low bits of tokens */
    bool starves;     /* a writer has waited too long: readers queue */
    bool closed;      /* shared tenure: the decider lets no reader in, so that there may be a semaphore */
    uint16_t limit;   /* closed: of the holders; 0: they are readers */
    bool adopted;
    bool doubt;   /* taken over: there may be holders by an earlier tenure, which a census must find */
    bool kept;    /* stays without holders and waiters: in CHAIN_KEPT */
    bool in_line; /* needs a census: in CHAIN_CENSUS */
    struct {
        uint32_t before, after;
    } link[CHAINS];
};

#define TOKEN_GRANT_BITS 14
#define TOKEN_GRANTS_SPARE 6                                             /* for downgrades */
#define TOKEN_GRANTS_MAX ((1u << TOKEN_GRANT_BITS) - TOKEN_GRANTS_SPARE) /* then the agent asks the decider for a new tenure */
static_assert(FISSION_TOKEN_LIFE_SHIFT + TOKEN_GRANT_BITS + 32 <= 64, "a token keeps the whole life");

/* A request that asks, or that holds already. */
struct asking {
    uint64_t nonce;
    struct place client;
    uint8_t mode, priority;
    bool nowait;
    uint16_t limit;
};

enum agent_says { AGENT_GRANTS, AGENT_QUEUES, AGENT_REFUSES, AGENT_REFUSES_LIMIT };

struct event;
struct fisslock_host;
struct fiss_request;

/* ---- agent.c: how it arrives, its holders, its queue, and which request is next ---- */

void agent_arrives(struct event *e, const struct fission_packet *p);                    /* GRANT with agent */
void agent_moved_here(struct event *e, struct agent *a, uint64_t word, uint64_t token); /* a move to this host itself is done */
struct agent *agent_adopt(struct event *e, uint64_t index, uint64_t word, uint64_t token);
enum agent_says agent_ask(struct event *e, struct agent *a, const struct asking *asking);
bool agent_hold(struct event *e, struct agent *a, const struct asking *asking, uint16_t ordinal); /* false: no room */
bool agent_release(struct event *e, struct agent *a, struct who who, uint32_t term, uint16_t ordinal);
void agent_serve(struct event *e, struct agent *a);
void agent_watch(struct event *e, struct agent *a); /* from now on agent_due comes from time to time */
/* Do the holders still hold? Requests wait, or the index is to be retired. */
void agent_check_holders(struct event *e, struct agent *a);
bool agent_know(struct event *e, struct agent *a, uint32_t ordinal);
bool agent_knows(const struct agent *a, uint32_t ordinal); /* or could not remember it */
bool agent_accounted(const struct agent *a);
bool agent_open(const struct fisslock_host *h, const struct agent *a); /* readers need not queue */
void agent_tell_writers(struct event *e, struct agent *a, bool starves);
void agent_send_grant(struct event *e, struct agent *a, const struct node *n, bool again);
uint64_t agent_token(const struct agent *a);
struct asking agent_asking(struct fisslock_host *h, const struct fiss_request *r, uint8_t mode);

/* ---- places.c: semaphores ---- */

/* Of a shared request. PLACES_MOVE: the tenure is open to readers, and must end first. */
enum places_say { PLACES_GRANT, PLACES_FULL, PLACES_MOVE, PLACES_REFUSE };

enum places_say places_for(const struct fisslock_host *h, const struct agent *a, uint16_t limit);
struct fission_entry places_entry(const struct node *n);
bool places_read(const struct fission_entry *entry, struct asking *out); /* false: not a request */
void places_refuse(struct event *e, const struct agent *a, uint64_t nonce, struct place client);

/* ---- convert.c: changing the mode of a hold ---- */

enum agent_says agent_upgrade(struct event *e, struct agent *a, struct who who);
void agent_cancel_upgrade(struct event *e, struct agent *a, struct who who);
void agent_downgrade(struct event *e, struct agent *a, struct fiss_request *r);
bool agent_serve_upgrader(struct event *e, struct agent *a);

/* ---- tenure.c: how a tenure ends, and tenures that this host was not told of ---- */

void tenure_free(struct event *e, struct agent *a);
void tenure_move(struct event *e, struct agent *a, uint32_t grantee, uint16_t to, uint8_t mode);
void tenure_retransmit(struct event *e, struct agent *a);            /* FREE or GRANT with agent */
void tenure_answer(struct event *e, const struct fission_packet *p); /* FREE or GRANT with agent, sent back by the decider */
void tenure_ack(struct event *e, const struct fission_packet *p);
void tenure_end(struct event *e, struct agent *a);
void tenure_look(struct event *e, uint64_t index);
bool tenure_taken(struct event *e, uint64_t index, uint32_t term);

/* ---- forward.c: packets that the decider forwards to the agent ---- */

void forward_packet(struct event *e, const struct fission_packet *p);

/* ---- keep.c: agents that stay ---- */

struct habit {
    uint32_t index;
    uint32_t next; /* term and score; 0: none */
};

void keep_begin(struct event *e, struct agent *a, bool by_decider);
void keep_end(struct event *e, const struct agent *a);
void keep_hit(struct agent *a);
bool keep_agent(struct event *e, struct agent *a);
void keep_forget(struct event *e, struct agent *a);

#endif
