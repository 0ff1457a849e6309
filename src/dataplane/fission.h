/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* clang-format off */
/* FissLock's packets and its decider: the six stages of Fig. 12, as a switch runs them, in C that the kernel's verifier accepts.
 * Shared by the switch in the kernel, the switch in user space, the model of a pipeline and the hosts.
 *
 * Each stage gets the packet (const), the findings of earlier stages (fission_meta), and its own register, which it may change
 * once. fission_rewrite() rewrites the packet after the last stage. The order of the stages is the pipeline's and cannot be
 * changed:
 *
 *     stage        register                    what it does
 *     ---------    ------------------------    ----------------------------------------------------------------------
 *     select       -                           finds the part of the arrays in which the lock lies
 *     check        term, incarnation           accepts a FREE or GRANT of this tenure; gives a shared ACQUIRE its ordinal
 *     free         held                        held or free
 *     rw           shared                      shared or exclusive;
 *                  writers, starves, taken     beside it: write-waiter and starvation bit (section 6), tenure taken over
 *     mid          machine                     the machine that has the agent
 *     token        token                       brought up to date by the term
 *     destination  -                           to the client, to the agent, on to the next host, or back
 *
 * `check` comes before the lock is known to be free or shared. So every unmarked shared ACQUIRE raises the incarnation, granted or
 * not, and the agent accounts for each by its ordinal. In an exclusive tenure the incarnation has no meaning.
 *
 * The lock's word (all fields in 64 bits) is what XDP exchanges by compare-and-swap; on a pipeline each field has its own array. */
/* clang-format on */
#ifndef PAWL_DATAPLANE_FISSION_H
#define PAWL_DATAPLANE_FISSION_H

#include "dataplane/mistake.h"
#include "dataplane/shards.h"
#include "wire/packet.h"

#include <stdbool.h>

/* ---- packets: the four types of Table 2, and what acknowledging, refusing, writers' flags and loss need. Little-endian, no
 * padding ---- */

enum fission_type {
    FISSION_ACQUIRE = 1, /* client -> decider [-> agent] */
    FISSION_RELEASE = 2, /* client -> decider -> agent */
    FISSION_FREE = 3,    /* agent -> decider, and back as the answer */
    FISSION_GRANT = 4,   /* decider or agent -> client; with FISSION_AGENT the lock's agent comes with it */
    FISSION_ACK = 5,     /* of a RELEASE: to the client; of a GRANT with the agent: to the previous agent */
    FISSION_REFUSED = 6, /* to a client that does not wait, or whose upgrade is impossible */
    FISSION_FLAGS = 7,   /* agent -> decider: whether writers wait */
    FISSION_LOOK = 8,    /* host -> decider -> agent's host: is the agent there? */
    FISSION_CENSUS = 9,  /* agent -> host: which of the host's requests hold by these ordinals? */
    FISSION_ANSWER = 10, /* host -> agent: the answer to a CENSUS */
    FISSION_LEASE = 11,  /* host -> decider and back: the host's heartbeat. token: the host's clock when it was sent */
    FISSION_TAKE = 12,   /* host -> decider [-> agent's host]: begin a new tenure; the agent's former memory was lost */
    FISSION_REPORT = 13, /* host -> decider that lost its state, and back: what the host holds. stamp: part; DONE: the last */
    FISSION_PROBE = 14,  /* waiter's host -> decider -> agent: which requests does the waiter wait for? */
    FISSION_CHASE = 15,  /* agent -> host of such a request: does its thread wait, too? */
    FISSION_ASK = 16,    /* agent -> host of a writer in its queue that keeps readers out: does the writer still wait? */
};

/* PLACE: a shared hold with a limit, that is, a place of a semaphore. Only an ACQUIRE and entries have it: the hold itself is a
 * shared one. The limit is where a shared request has its ordinal (inca), which a place does not get: its ACQUIRE is marked from
 * the beginning, and its tenure is closed to readers at the decider, so that the agent knows every holder. REFUSED: with another
 * limit. */
enum fission_mode { FISSION_SHARED = 1, FISSION_EXCLUSIVE = 2, FISSION_PLACE = 3 };
#define FISSION_LIMIT_MAX 2047u

/* clang-format off */
enum fission_flags {
    FISSION_AGENT   = 1 << 0,  /* GRANT: the agent comes with it */
    FISSION_RETRY   = 1 << 1,  /* ACQUIRE: a retransmission. Routed, or granted if the lock is free; never counted (pitfall 3).
                                * LEASE from the decider: send a heartbeat now */
    FISSION_BOUNCED = 1 << 2,  /* sent back by a host without the agent: routed only (pitfall 10) */
    FISSION_COPY    = 1 << 3,  /* ACQUIRE: the decider has granted it; this copy is for the agent */
    FISSION_NOWAIT  = 1 << 4,  /* ACQUIRE: refuse rather than queue */
    FISSION_DONE    = 1 << 5,  /* FREE or GRANT with agent, on the way back: that tenure is over. RELEASE: no ACK is needed.
                                * LEASE: the host gives its lease back. REPORT: the last part */
    FISSION_DENIED  = 1 << 6,  /* FREE or GRANT with agent, on the way back: not accepted, the incarnation differs.
                                * LEASE from the decider: holds from before do not count */
    FISSION_WRITERS = 1 << 7,  /* GRANT with agent, FLAGS: the write-waiter bit */
    FISSION_STARVES = 1 << 8,  /* GRANT with agent, FLAGS: the starvation bit; also of a semaphore */
    FISSION_UPGRADE = 1 << 9,  /* ACQUIRE, RELEASE, REFUSED, PROBE: of a shared hold that is to become exclusive */
    FISSION_CLOSED  = 1 << 10, /* LEASE, from the decider: it lost its state and collects REPORTs */
    FISSION_SURE    = 1 << 11, /* PROBE, CHASE: the second round, along the path of the first */
    FISSION_WANTED  = 1 << 12, /* GRANT without agent, repeated: requests wait at the agent */
};
/* clang-format on */

/* A tenure is the time from a host getting a lock's agent until the agent is freed or moves to the next host. Its number is the
 * term. FREE and GRANT with agent end the tenure that they name and no other, so duplicates and late packets end nothing. */
#define FISSION_TERM_BITS 27
#define FISSION_TERM_MASK ((1u << FISSION_TERM_BITS) - 1)
#define FISSION_INCA_MAX 0xffffu

struct fission_packet {
    struct packet_head head; /* nonce: of the request; of FREE, FLAGS, LOOK and CENSUS: the sender's own */
    uint64_t token;          /* from the decider: the tenure's token */
    uint64_t word;           /* from the decider: the lock's word after this packet */
    struct place client;     /* the client that asked */
    uint32_t term;           /* ACQUIRE: tenure in which it got its ordinal; FREE, GRANT: tenure that ends, or began */
    uint32_t stamp;          /* of the host that bounced it: tenures that ended there (tenure.c); PROBE, CHASE: serial number */
    uint16_t bouncer;        /* machine of the host that bounced it */
    uint16_t inca; /* ACQUIRE, RELEASE: the ordinal, 0 if none, or the limit; FREE, GRANT with agent: the expected incarnation */
    uint16_t flags;
    uint8_t mode;     /* wanted or granted */
    uint8_t old_mode; /* FREE, GRANT with agent: the mode that ends (pitfall 12) */
    uint8_t priority; /* 0 is the highest */
    uint8_t hops;     /* how often it was bounced; PROBE, CHASE: the step under examination */
    uint16_t count;   /* entries that follow */
};
_Static_assert(sizeof(struct fission_packet) == 88, "no padding");

/* GRANT with agent: a waiter. ANSWER: a holder. In mode PLACE inca is the limit. REPORT: a hold; its client is the sender, and the
 * generation of the index is in the client's place. (PROBE and CHASE carry steps: designs/packet/chase.h.) */
struct fission_entry {
    uint64_t nonce; /* REPORT: the lock's index */
    struct place client;
    uint16_t inca; /* ANSWER: its ordinal; of a place: the limit */
    uint8_t mode;
    uint8_t priority;
};
_Static_assert(sizeof(struct fission_entry) == 16, "no padding");

static inline struct place fission_place_of_generation(uint32_t generation)
{
    return (struct place){(uint16_t)generation, (uint16_t)(generation >> 16)};
}
static inline uint32_t fission_generation_of_place(struct place p)
{
    return p.machine | (uint32_t)p.port << 16;
}

/* LEASE, if locks are divided among switches: the answer carries the table of owners, and the question has room for it. */
#define RULES_ENTRIES (RACK_SHARDS / sizeof(struct fission_entry))
_Static_assert(RACK_SHARDS % sizeof(struct fission_entry) == 0, "a table is whole entries");

#define FISSION_HOPS_MAX 16 /* bounces of one packet: after that its sender's retransmission is routed anew */
#define FISSION_ENTRIES_MAX ((PACKET_MAX - sizeof(struct fission_packet)) / sizeof(struct fission_entry))

/* Fields that every packet of a space must carry. */
struct fission_rules {
    uint32_t space;
    uint32_t life; /* the decider's, in head.epoch. A host learns it with its lease */
    uint16_t machines;
    bool names; /* keys have names, and so indexes have generations */
    uint64_t locks;
};

enum fission_fault { FISSION_FINE, FISSION_BAD, FISSION_UNREADABLE, FISSION_ALIEN, FISSION_STALE };

static inline bool fission_place_exists(struct place p, const struct fission_rules *r)
{
    return (p.machine != MACHINE_NONE && p.machine <= r->machines) || p.machine == MACHINE_SWITCH;
}

static inline __attribute__((always_inline)) bool fission_mode_exists(const struct fission_packet *p)
{
    if (p->mode == FISSION_PLACE)
        return p->head.type == FISSION_ACQUIRE && (p->flags & FISSION_RETRY) && !(p->flags & (FISSION_COPY | FISSION_UPGRADE)) &&
               p->inca && p->inca <= FISSION_LIMIT_MAX;
    return p->mode == FISSION_SHARED || p->mode == FISSION_EXCLUSIVE;
}

/* Every check that needs no state. Hosts and deciders drop packets that are not fine, and count them. */
static inline enum fission_fault fission_verify(const void *data, uint32_t len, const struct fission_rules *r)
{
    const struct fission_packet *p = (const struct fission_packet *)data;
    if (len < sizeof *p || len > PACKET_MAX)
        return FISSION_BAD;
    if (!packet_readable(&p->head))
        return FISSION_UNREADABLE;
    if (p->head.family != PACKET_FISSION || p->head.type < FISSION_ACQUIRE || p->head.type > FISSION_ASK)
        return FISSION_BAD;
    if (p->count > FISSION_ENTRIES_MAX || len != sizeof *p + (uint32_t)p->count * sizeof(struct fission_entry))
        return FISSION_BAD;
    if (p->head.space != r->space || p->head.index >= r->locks)
        return FISSION_ALIEN;
    if (!fission_place_exists(p->head.from, r) || !fission_place_exists(p->head.to, r))
        return FISSION_ALIEN;
    if (p->head.type != FISSION_LEASE && (p->head.epoch != r->life || (!r->names && p->head.generation)))
        return FISSION_STALE;
    if (p->term & ~FISSION_TERM_MASK)
        return FISSION_BAD;
    bool has_mode = p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_GRANT;
    if (has_mode && !fission_mode_exists(p))
        return FISSION_BAD;
    bool ends = p->head.type == FISSION_FREE || (p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT));
    if (ends && p->old_mode != FISSION_SHARED && p->old_mode != FISSION_EXCLUSIVE)
        return FISSION_BAD;
    bool has_client = p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE || p->head.type == FISSION_TAKE ||
                      p->head.type == FISSION_PROBE || p->head.type == FISSION_CHASE || p->head.type == FISSION_ASK;
    if (has_client && (p->client.machine == MACHINE_SWITCH || !fission_place_exists(p->client, r)))
        return FISSION_ALIEN;
    return FISSION_FINE;
}

/* ---- the word: held 1, shared 1, writers 1, starves 1, taken 1, machine 16, term 27, incarnation 16 ---- */

#define FISSION_WORD_HELD (UINT64_C(1) << 63)
#define FISSION_WORD_SHARED (UINT64_C(1) << 62)
#define FISSION_WORD_WRITERS (UINT64_C(1) << 61)
#define FISSION_WORD_STARVES (UINT64_C(1) << 60)
#define FISSION_WORD_TAKEN                                                                                                         \
    (UINT64_C(1) << 59) /* taken over from a lost host: there may be holders that the agent does not know                          \
                         */
#define FISSION_WORD_MACHINE_SHIFT 43
#define FISSION_WORD_TERM_SHIFT 16

static inline uint16_t fission_word_machine(uint64_t word)
{
    return (uint16_t)(word >> FISSION_WORD_MACHINE_SHIFT);
}
static inline uint32_t fission_word_term(uint64_t word)
{
    return (uint32_t)(word >> FISSION_WORD_TERM_SHIFT) & FISSION_TERM_MASK;
}
static inline uint16_t fission_word_inca(uint64_t word)
{
    return (uint16_t)word;
}

/* Whether term a comes after b; terms wrap. */
static inline bool fission_term_after(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & FISSION_TERM_MASK;
    return ahead != 0 && ahead < (1u << (FISSION_TERM_BITS - 1));
}

/* ---- policies ---- */

enum fission_options {
    FISSION_WRITE_PREFERRING = 1 << 0,
    FISSION_BARE = 1 << 1, /* Fig. 12 as printed, 18 bits per lock: no terms, tokens, writers' bits; 8 bits of incarnation */
};

struct fission_policy {
    uint32_t options;  /* enum fission_options */
    uint32_t mistakes; /* enum fission_mistakes: on purpose, in the workbench only */
};

/* Metadata between the stages; a pipeline carries it beside the packet. */
struct fission_meta {
    bool valid;       /* check: FREE, GRANT or FLAGS of this tenure, and every holder is known to the agent */
    bool repeated;    /* check: a GRANT with agent that has been accepted already */
    bool current;     /* check: the packet's term is the lock's */
    bool full;        /* check: no more ordinals */
    bool was_free;    /* free */
    bool shared;      /* rw: the lock's mode before this packet */
    bool closed;      /* rw: writers go first */
    uint16_t ordinal; /* check: of this ACQUIRE; 0: none */
    uint16_t machine; /* mid: after this packet */
    uint64_t word;    /* gathered from the stages */
    uint64_t token;
};

static inline bool fission_ends_tenure(const struct fission_packet *p)
{
    return p->head.type == FISSION_FREE || p->head.type == FISSION_TAKE ||
           (p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT));
}

/* FREE or GRANT with agent: a host that has the agent sends it until it is answered. */
static inline bool fission_has_agent(const struct fission_packet *p)
{
    return fission_ends_tenure(p) && p->head.type != FISSION_TAKE;
}

/* Whether the packet concerns the lock's state; others only pass. */
static inline bool fission_concerns_lock(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE || p->head.type == FISSION_FLAGS ||
           p->head.type == FISSION_LOOK || p->head.type == FISSION_PROBE || fission_ends_tenure(p);
}

/* A request that the decider may still grant. */
static inline bool fission_asks(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE && !(p->flags & FISSION_COPY);
}

/* A request that must not be counted: it was sent before, or holds already. */
static inline bool fission_marked(const struct fission_packet *p, const struct fission_policy *policy)
{
    return (p->flags & (FISSION_RETRY | FISSION_BOUNCED | FISSION_UPGRADE)) && !MISTAKE(policy->mistakes, FISSION_MISTAKE_RETRY);
}

/* ---- the stages ---- */

static inline void fission_check(const struct fission_packet *p, const struct fission_policy *policy, struct fission_meta *m,
                                 uint32_t *term, uint16_t *inca)
{
    bool bare = policy->options & FISSION_BARE;
    uint32_t max = bare ? 0xff : FISSION_INCA_MAX;
    m->current = bare || MISTAKE(policy->mistakes, FISSION_MISTAKE_TERM) || p->term == *term;
    if (fission_asks(p) && p->mode == FISSION_SHARED && !fission_marked(p, policy)) {
        m->full = *inca == max; /* it must not wrap to a value that is in use (pitfall 4) */
        if (!m->full)
            m->ordinal = ++*inca;
    } else if (fission_asks(p) && p->mode != FISSION_EXCLUSIVE && *inca == 0) {
        *inca = 1; /* should the lock be free: the first holder of a shared tenure has ordinal 1 */
    } else if (fission_ends_tenure(p)) {
        m->valid = m->current && (p->old_mode == FISSION_EXCLUSIVE || p->head.type == FISSION_TAKE || p->inca == *inca ||
                                  MISTAKE(policy->mistakes, FISSION_MISTAKE_INCA));
        m->repeated = !m->current && ((p->term + 1) & FISSION_TERM_MASK) == *term;
        if (m->valid) {
            if (!bare)
                *term = (*term + 1) & FISSION_TERM_MASK;
            *inca = p->head.type == FISSION_TAKE || (p->head.type == FISSION_GRANT && p->mode == FISSION_SHARED);
        }
    } else if (p->head.type == FISSION_FLAGS) {
        m->valid = m->current;
    }
    m->word |= (uint64_t)*term << FISSION_WORD_TERM_SHIFT | *inca;
}

/* The pipeline sets, resets or reads a register of one bit, whatever its value was. */
static inline void fission_free(const struct fission_packet *p, struct fission_meta *m, bool *held)
{
    m->was_free = !*held;
    if (fission_asks(p))
        *held = true;
    else if (p->head.type == FISSION_FREE && m->valid)
        *held = false;
    m->word |= *held ? FISSION_WORD_HELD : 0;
}

static inline void fission_rw(const struct fission_packet *p, struct fission_meta *m, bool *shared)
{
    m->shared = *shared && !m->was_free;
    if ((fission_asks(p) && m->was_free) || (p->head.type == FISSION_GRANT && m->valid))
        *shared = p->mode != FISSION_EXCLUSIVE;
    m->word |= *shared ? FISSION_WORD_SHARED : 0;
}

/* The write-waiter and the starvation bit (section 6). Set by a writer that finds readers, or by the agent. Reset when a tenure
 * begins, and by the agent when the last writer has left its queue (pitfall 13). In a tenure that begins with a place of a
 * semaphore the starvation bit is set from its first packet to its last, and stays if the tenure is taken over. */
static inline bool fission_tells_writers(const struct fission_packet *p, const struct fission_meta *m)
{
    return (p->head.type == FISSION_GRANT || p->head.type == FISSION_FLAGS) && m->valid;
}
static inline bool fission_begins_anew(const struct fission_packet *p, const struct fission_meta *m)
{
    return (fission_asks(p) && m->was_free) || (p->head.type == FISSION_FREE && m->valid);
}

static inline void fission_writers(const struct fission_packet *p, const struct fission_policy *policy, struct fission_meta *m,
                                   bool *writers)
{
    m->closed |= *writers && !m->was_free;
    if (fission_tells_writers(p, m))
        *writers = p->flags & FISSION_WRITERS;
    else if (fission_begins_anew(p, m))
        *writers = false;
    else if (fission_asks(p) && p->mode == FISSION_EXCLUSIVE && m->shared && (policy->options & FISSION_WRITE_PREFERRING))
        *writers = true;
    m->word |= *writers ? FISSION_WORD_WRITERS : 0;
}

static inline void fission_starves(const struct fission_packet *p, const struct fission_policy *policy, struct fission_meta *m,
                                   bool *starves)
{
    m->closed |= *starves && !m->was_free;
    if (fission_tells_writers(p, m))
        *starves = p->flags & FISSION_STARVES;
    else if (fission_begins_anew(p, m))
        *starves = p->mode == FISSION_PLACE && p->head.type == FISSION_ACQUIRE && !MISTAKE(policy->mistakes, FISSION_MISTAKE_OPEN);
    m->word |= *starves ? FISSION_WORD_STARVES : 0;
}

/* Whether this tenure was taken over from a lost host. */
static inline void fission_taken(const struct fission_packet *p, struct fission_meta *m, bool *taken)
{
    if (p->head.type == FISSION_TAKE && m->valid)
        *taken = !m->was_free;
    else if (fission_begins_anew(p, m) || (p->head.type == FISSION_GRANT && m->valid))
        *taken = false;
    m->word |= *taken ? FISSION_WORD_TAKEN : 0;
}

static inline void fission_mid(const struct fission_packet *p, struct fission_meta *m, uint16_t *machine)
{
    bool taken = p->head.type == FISSION_TAKE && m->valid && !m->was_free;
    if ((fission_asks(p) && m->was_free) || taken)
        *machine = p->client.machine;
    else if (p->head.type == FISSION_GRANT && m->valid)
        *machine = p->head.to.machine;
    else if (p->head.type == FISSION_FREE && m->valid)
        *machine = MACHINE_NONE;
    m->machine = *machine;
    m->word |= (uint64_t)*machine << FISSION_WORD_MACHINE_SHIFT;
}

/* Tokens rise across a loss of the switch's state (I2): they begin with 0 in every life, and the life is added above them. Lives
 * rise by four a second (cluster/coordinator.c), and no lock has 2^18 tenures in that time, each of which takes a round trip. An
 * agent's own 14 bits and the 32 bits of a life fill the rest of a token. */
#define FISSION_TOKEN_LIFE_SHIFT 18

/* The token of a tenure: its low bits are the term, the others count how often the term wrapped. The register may lag behind the
 * word: between XDP's exchange of the word and its store of the token another packet sees the old one. */
static inline uint64_t fission_token_at(uint64_t token, uint32_t term)
{
    uint64_t low = token & FISSION_TERM_MASK, next = (token & ~(uint64_t)FISSION_TERM_MASK) | term;
    return term < low ? next + (UINT64_C(1) << FISSION_TERM_BITS) : next;
}

static inline void fission_token(struct fission_meta *m, uint64_t *token)
{
    m->token = *token = fission_token_at(*token, fission_word_term(m->word));
}

/* ---- generations ---- */

/* An index that is used again for another key has a higher generation (cluster/coordinator_names.c). Both fields are one word, so
 * that XDP reads and exchanges them together. */
struct fission_age {
    uint32_t generation; /* of the packets that reach the stages; earlier ones change nothing */
    uint32_t base; /* life that is added to the lock's tokens, if it is above the decider's; FISSION_AGE_BUSY: see fission.bpf.c */
};
_Static_assert(sizeof(struct fission_age) == 8, "one word");
#define FISSION_AGE_BUSY UINT32_MAX

/* The life to be added to the lock's tokens. */
static inline uint64_t fission_base(struct fission_age age, uint32_t life)
{
    return (uint64_t)(age.base > life ? age.base : life) << FISSION_TOKEN_LIFE_SHIFT;
}

/* The base of a new generation, which is a life that was given after all tokens that its key may have had before: tokens begin
 * above it, and less than one life above it (I2). The tenures so far are part of the token, and are taken off. */
static inline uint32_t fission_base_of(struct fission_age age, uint32_t generation, uint64_t token)
{
    uint64_t tenures = token >> FISSION_TOKEN_LIFE_SHIFT;
    uint32_t base = tenures < generation ? generation - (uint32_t)tenures : 0;
    return base > age.base ? base : age.base;
}

/* The lock's word when a new generation begins: free, in a further tenure, so that no packet of an earlier one is of this one. No
 * host uses the lock: what the word says of a host is outdated. */
static inline uint64_t fission_word_anew(uint64_t word)
{
    return (uint64_t)((fission_word_term(word) + 1) & FISSION_TERM_MASK) << FISSION_WORD_TERM_SHIFT;
}

/* ---- rebuilding ---- */

/* A host reports that it holds this lock since before the state was lost (5.3, S3). The first host to report gets the agent; if the
 * lock is shared there may be other holders, which that agent must find, as after taking over. If one of them has a place of a
 * semaphore, the tenure is closed to readers. A repeated report changes nothing. False: the report contradicts an earlier one. */
static inline bool fission_reported(uint64_t *word, uint64_t *token, uint16_t machine, uint8_t mode)
{
    uint64_t closed = mode == FISSION_PLACE ? FISSION_WORD_STARVES : 0;
    if ((*word & FISSION_WORD_HELD) && (*word & FISSION_WORD_SHARED)) {
        *word |= closed;
        return mode != FISSION_EXCLUSIVE;
    }
    if (*word & FISSION_WORD_HELD)
        return fission_word_machine(*word) == machine;
    uint32_t term = (fission_word_term(*word) + 1) & FISSION_TERM_MASK;
    *word = FISSION_WORD_HELD | (uint64_t)machine << FISSION_WORD_MACHINE_SHIFT | (uint64_t)term << FISSION_WORD_TERM_SHIFT;
    if (mode != FISSION_EXCLUSIVE)
        *word |= FISSION_WORD_SHARED | FISSION_WORD_TAKEN | closed | 1;
    *token = fission_token_at(*token, term);
    return true;
}

/* ---- machines that have asked ---- */

/* A bit per machine, beside the locks: whether an ACQUIRE of it has passed. A machine that never asked holds nothing, and may not
 * exist; the decider answers a CENSUS in its place. */
static inline uint16_t fission_presence_of(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE ? p->client.machine : p->head.type == FISSION_CENSUS ? p->head.to.machine : MACHINE_NONE;
}

/* True: the decider answers the packet for a machine that never asked. */
static inline bool fission_absent(const struct fission_packet *p, bool *asked)
{
    if (p->head.type == FISSION_ACQUIRE)
        *asked = true;
    return p->head.type == FISSION_CENSUS && !*asked;
}

static inline void fission_answer_for_absent(struct fission_packet *p)
{
    struct place asker = p->head.from;
    p->head.type = FISSION_ANSWER;
    p->stamp = UINT32_MAX; /* the answer is complete */
    p->head.from = p->head.to;
    p->head.to = asker;
}

/* An agent asks another host whether a request there still holds (GRANT), or whether a writer still waits (ASK). */
static inline bool fission_asks_request(const struct fission_packet *p)
{
    bool holder = p->head.type == FISSION_GRANT && !(p->flags & FISSION_AGENT);
    return (holder || p->head.type == FISSION_ASK) && p->head.from.machine != MACHINE_SWITCH;
}

/* The lease of the request's host is over, so its hold or wait has ended, and that host may never send a packet again: the decider
 * releases in its place. */
static inline void fission_release_for_lost(struct fission_packet *p)
{
    struct place agent = p->head.from;
    p->head.type = FISSION_RELEASE;
    p->head.from = p->head.to;
    p->head.to = agent;
    p->flags = FISSION_DONE;
    p->inca = 0;
    p->word =
        FISSION_WORD_HELD | (uint64_t)agent.machine << FISSION_WORD_MACHINE_SHIFT | (uint64_t)p->term << FISSION_WORD_TERM_SHIFT;
}

/* ---- destination ---- */

enum fission_dest {
    FISSION_DROP = 0,
    FISSION_TO_CLIENT = 1 << 0, /* a GRANT, an ACK or a refusal */
    FISSION_TO_AGENT = 1 << 1,
    FISSION_TO_NEXT = 1 << 2, /* to the place in the packet's head */
    FISSION_BACK = 1 << 3,    /* to the agent that sent it */
};

static inline bool fission_grants_shared(const struct fission_packet *p, const struct fission_policy *policy,
                                         const struct fission_meta *m)
{
    return fission_asks(p) && p->mode == FISSION_SHARED && m->shared && !m->closed && !m->full && !fission_marked(p, policy);
}

/* A GRANT with agent that was accepted before is sent on again, since it may have been lost after the decider. Unless the present
 * tenure is another one: taken over from the sender, whose GRANT came too late. */
static inline bool fission_once_more(const struct fission_packet *p, const struct fission_meta *m)
{
    return m->repeated && !m->was_free && m->machine == p->head.to.machine && !(m->word & FISSION_WORD_TAKEN) &&
           m->shared == (p->mode == FISSION_SHARED);
}

static inline uint32_t fission_destination(const struct fission_packet *p, const struct fission_policy *policy,
                                           const struct fission_meta *m)
{
    switch (p->head.type) {
    case FISSION_ACQUIRE:
        if (p->flags & FISSION_COPY)
            return m->was_free ? FISSION_DROP : FISSION_TO_AGENT;
        if (m->was_free)
            return FISSION_TO_CLIENT;
        if (fission_grants_shared(p, policy, m))
            return FISSION_TO_CLIENT | FISSION_TO_AGENT;
        /* Not if it has an ordinal: the agent must account for that. */
        if ((p->flags & FISSION_NOWAIT) && !fission_marked(p, policy) && !(p->mode == FISSION_SHARED && m->shared))
            return FISSION_TO_CLIENT;
        return FISSION_TO_AGENT;
    case FISSION_RELEASE: /* of a free lock: nothing changes (pitfall 7) */
        return !m->was_free ? FISSION_TO_AGENT : p->flags & FISSION_DONE ? FISSION_DROP : FISSION_TO_CLIENT;
    case FISSION_LOOK:
    case FISSION_TAKE:
    case FISSION_PROBE:
        return m->was_free ? FISSION_DROP : FISSION_TO_AGENT;
    case FISSION_FLAGS:
        return FISSION_DROP;
    case FISSION_FREE:
        return FISSION_BACK;
    case FISSION_GRANT:
        if (!(p->flags & FISSION_AGENT) || m->valid)
            return FISSION_TO_NEXT;
        return fission_once_more(p, m) ? FISSION_TO_NEXT : FISSION_BACK;
    default:
        return FISSION_TO_NEXT;
    }
}

/* The agent is to move to a host whose lease is over, and which may never answer. It ends where it was, as if it had arrived: a
 * request for the lock takes the tenure over. */
static inline uint32_t fission_destination_unless_lost(const struct fission_packet *p, uint32_t dest, bool lost)
{
    return lost && dest == FISSION_TO_NEXT && fission_has_agent(p) ? FISSION_BACK : dest;
}

/* ---- after the commit ---- */

static inline void fission_to_pool(struct fission_packet *p, uint16_t machine)
{
    p->head.to.machine = machine;
    p->head.to.port = PORT_POOL;
}

/* The packet as it leaves for one of its destinations. */
static inline void fission_rewrite(struct fission_packet *p, const struct fission_policy *policy, const struct fission_meta *m,
                                   uint32_t dest)
{
    bool grants = fission_asks(p) && (m->was_free || fission_grants_shared(p, policy, m));
    p->word = m->word;
    p->token = m->token;
    if (fission_asks(p) && !fission_marked(p, policy)) {
        p->inca = m->ordinal;
        p->term = fission_word_term(m->word);
    }
    if (dest == FISSION_TO_CLIENT) {
        p->flags &= (uint16_t)~FISSION_AGENT;
        if (p->head.type == FISSION_RELEASE) {
            p->head.type = FISSION_ACK;
        } else if (grants) {
            p->head.type = FISSION_GRANT;
            p->term = fission_word_term(m->word);
            p->mode = p->mode == FISSION_EXCLUSIVE ? FISSION_EXCLUSIVE : FISSION_SHARED;
            p->old_mode = p->mode;
            if (m->was_free) {
                p->flags |= FISSION_AGENT;
                p->inca = p->mode == FISSION_SHARED;
            }
        } else {
            p->head.type = FISSION_REFUSED;
        }
        p->head.from.machine = MACHINE_SWITCH;
        p->head.from.port = PORT_POOL;
        p->head.to = p->client;
    } else if (dest == FISSION_TO_AGENT) {
        if (grants)
            p->flags |= FISSION_COPY;
        fission_to_pool(p, m->machine);
    } else if (dest == FISSION_BACK) {
        p->flags |= !m->valid && m->current && !m->was_free ? FISSION_DENIED : FISSION_DONE;
        p->head.to = p->head.from;
    }
}

/* All stages on a copy of the lock's word and token. */
static inline uint32_t fission_decide(const struct fission_packet *p, const struct fission_policy *policy, uint64_t *word,
                                      uint64_t *token, struct fission_meta *m)
{
    uint32_t term = fission_word_term(*word);
    uint16_t inca = fission_word_inca(*word), machine = fission_word_machine(*word);
    bool held = *word & FISSION_WORD_HELD, shared = *word & FISSION_WORD_SHARED;
    bool writers = *word & FISSION_WORD_WRITERS, starves = *word & FISSION_WORD_STARVES, taken = *word & FISSION_WORD_TAKEN;

    *m = (struct fission_meta){0};
    fission_check(p, policy, m, &term, &inca);
    fission_free(p, m, &held);
    fission_rw(p, m, &shared);
    fission_writers(p, policy, m, &writers);
    fission_starves(p, policy, m, &starves);
    fission_taken(p, m, &taken);
    fission_mid(p, m, &machine);
    if (MISTAKE(policy->mistakes, FISSION_MISTAKE_FREES) && p->head.type == FISSION_RELEASE && p->client.machine == machine)
        m->word &= ~FISSION_WORD_HELD;
    fission_token(m, token);
    *word = m->word;
    return fission_destination(p, policy, m);
}

#endif
