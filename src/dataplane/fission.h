/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FissLock's decider: the six stages of Fig. 12, as a switch runs them, in C that the kernel's verifier accepts.
 *
 * Each stage gets the packet (const), what earlier stages found out, and its own register, which it may change once. The packet is
 * rewritten after the last stage: fission_rewrite(). Their order is the pipeline's and cannot be otherwise:
 *
 *     select    which part of the arrays the lock lies in
 *     check     term and incarnation: is a FREE or GRANT current? A shared ACQUIRE raises the incarnation and takes it for its
 * ordinal free      held or free rw        shared or exclusive, and beside it the write-waiter and starvation bits mid       the
 * agent's machine token     brought up to date by the term destination
 *
 * Since `check` comes before anybody knows whether the lock is free or shared, every unmarked shared ACQUIRE raises the
 * incarnation, granted or not; the agent hears of each by its ordinal. In an exclusive tenure nobody asks for the incarnation.
 *
 * The lock's word (all fields in 64 bits) is what XDP exchanges by compare-and-swap; on a pipeline each field has its own array. */
#ifndef PAWL_DATAPLANE_FISSION_H
#define PAWL_DATAPLANE_FISSION_H

#include "dataplane/fission_packet.h"
#include "dataplane/mistake.h"

/* ---- the word: held 1, shared 1, writers 1, starves 1, taken 1, machine 16, term 27, incarnation 16 ---- */

#define FISSION_WORD_HELD (UINT64_C(1) << 63)
#define FISSION_WORD_SHARED (UINT64_C(1) << 62)
#define FISSION_WORD_WRITERS (UINT64_C(1) << 61)
#define FISSION_WORD_STARVES (UINT64_C(1) << 60)
#define FISSION_WORD_TAKEN (UINT64_C(1) << 59) /* over from a host that was lost: others may hold of whom nobody knows */
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

/* Whether term a comes after b; they wrap. */
static inline bool fission_term_after(uint32_t a, uint32_t b)
{
    uint32_t ahead = (a - b) & FISSION_TERM_MASK;
    return ahead != 0 && ahead < (1u << (FISSION_TERM_BITS - 1));
}

/* ---- what the program is set to ---- */

enum fission_options {
    FISSION_WRITE_PREFERRING = 1 << 0,
    FISSION_BARE = 1 << 1, /* Fig. 12 as printed, 18 bits per lock: no terms, tokens, writers' bits; 8 bits of incarnation */
};

/* What the stages tell each other; a pipeline carries it beside the packet. */
struct fission_meta {
    bool valid;    /* check: FREE, GRANT, FLAGS of this tenure, and nobody unknown holds */
    bool repeated; /* check: a GRANT with agent that has been accepted already */
    bool current;  /* check: the packet's term is the lock's */
    bool full;     /* check: no more ordinals */
    bool was_free; /* free */
    bool shared;   /* rw: the lock's mode before */
    bool closed;   /* rw: writers go first */
    uint16_t ordinal;
    uint16_t machine; /* mid: after */
    uint16_t was_machine;
    uint64_t word; /* gathered from the stages */
    uint64_t token;
};

static inline bool fission_ends_tenure(const struct fission_packet *p)
{
    return p->head.type == FISSION_FREE || p->head.type == FISSION_TAKE ||
           (p->head.type == FISSION_GRANT && (p->flags & FISSION_AGENT));
}

/* Whether the packet is for the lock's state at all; others only pass. */
static inline bool fission_concerns_lock(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE || p->head.type == FISSION_RELEASE || p->head.type == FISSION_FLAGS ||
           p->head.type == FISSION_LOOK || p->head.type == FISSION_PROBE || fission_ends_tenure(p);
}

/* A request that may still be granted here. */
static inline bool fission_asks(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE && !(p->flags & FISSION_COPY);
}

static inline bool fission_marked(const struct fission_packet *p, uint32_t options)
{
    return (p->flags & (FISSION_RETRY | FISSION_BOUNCED | FISSION_UPGRADE)) && !MISTAKE(options, FISSION_BUSTED_RETRY);
}

/* ---- the stages ---- */

/* select: the lock's range of an array that is cut into parts, and its place there. */
static inline void fission_select(uint64_t index, uint32_t per_part, uint32_t *part, uint32_t *offset)
{
    *part = (uint32_t)(index / per_part);
    *offset = (uint32_t)(index % per_part);
}

static inline void fission_check(const struct fission_packet *p, uint32_t options, struct fission_meta *m, uint32_t *term,
                                 uint16_t *inca)
{
    uint32_t max = options & FISSION_BARE ? 0xff : FISSION_INCA_MAX;
    m->current = (options & FISSION_BARE) || MISTAKE(options, FISSION_BUSTED_TERM) || p->term == *term;
    if (fission_asks(p) && p->mode == FISSION_SHARED && !fission_marked(p, options)) {
        m->full = *inca == max; /* it must not come round to a value that is in use (pitfall 4) */
        if (!m->full)
            m->ordinal = ++*inca;
    } else if (fission_asks(p) && p->mode == FISSION_SHARED && *inca == 0) {
        *inca = 1; /* should the lock be free: the first of a shared tenure has ordinal 1, always */
    } else if (fission_ends_tenure(p)) {
        m->valid = m->current && (p->old_mode == FISSION_EXCLUSIVE || p->head.type == FISSION_TAKE || p->inca == *inca ||
                                  MISTAKE(options, FISSION_BUSTED_INCA));
        m->repeated = !m->current && ((p->term + 1) & FISSION_TERM_MASK) == *term;
        if (m->valid) {
            if (!(options & FISSION_BARE))
                *term = (*term + 1) & FISSION_TERM_MASK;
            *inca = p->head.type == FISSION_TAKE || (p->head.type == FISSION_GRANT && p->mode == FISSION_SHARED);
        }
    } else if (p->head.type == FISSION_FLAGS) {
        m->valid = m->current;
    }
    m->word |= (uint64_t)*term << FISSION_WORD_TERM_SHIFT | *inca;
}

/* A register of one bit is set, reset or read whatever it was. */
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
        *shared = p->mode == FISSION_SHARED;
    m->word |= *shared ? FISSION_WORD_SHARED : 0;
}

/* The write-waiter and the starvation bit (section 6). Set: by a writer that finds readers, or by the agent. Reset: by whatever
 * begins a tenure, and by the agent when the last writer has left its queue (pitfall 13). */
static inline bool fission_tells_writers(const struct fission_packet *p, const struct fission_meta *m)
{
    return (p->head.type == FISSION_GRANT || p->head.type == FISSION_FLAGS) && m->valid;
}
static inline bool fission_begins_anew(const struct fission_packet *p, const struct fission_meta *m)
{
    return (fission_asks(p) && m->was_free) || (p->head.type == FISSION_FREE && m->valid);
}

static inline void fission_writers(const struct fission_packet *p, uint32_t options, struct fission_meta *m, bool *writers)
{
    m->closed |= *writers && !m->was_free;
    if (fission_tells_writers(p, m))
        *writers = p->flags & FISSION_WRITERS;
    else if (fission_begins_anew(p, m))
        *writers = false;
    else if (fission_asks(p) && p->mode == FISSION_EXCLUSIVE && m->shared && (options & FISSION_WRITE_PREFERRING))
        *writers = true;
    m->word |= *writers ? FISSION_WORD_WRITERS : 0;
}

static inline void fission_starves(const struct fission_packet *p, struct fission_meta *m, bool *starves)
{
    m->closed |= *starves && !m->was_free;
    if (fission_tells_writers(p, m))
        *starves = p->flags & FISSION_STARVES;
    else if (fission_begins_anew(p, m))
        *starves = false;
    m->word |= *starves ? FISSION_WORD_STARVES : 0;
}

/* Beside them: whether this tenure was taken over. */
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
    m->was_machine = *machine;
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

/* What was granted before the switch last lost its state lies below: tokens begin with 0 in every life, and the life is added in
 * front. Lives rise by four a second (cluster/coordinator.c), and no lock has 2^18 tenures in that time, each of which takes a
 * round trip. With an agent's own 14 bits and a life's 32 that is all of a token. */
#define FISSION_TOKEN_LIFE_SHIFT 18

/* The token of a tenure: its low bits are the term, the rest counts how often that came round. The register may lag
 * behind the word: between XDP's exchange of the word and its store of the token another packet sees the old one. */
static inline uint64_t fission_token_at(uint64_t token, uint32_t term)
{
    uint64_t low = token & FISSION_TERM_MASK, next = (token & ~(uint64_t)FISSION_TERM_MASK) | term;
    return term < low ? next + (UINT64_C(1) << FISSION_TERM_BITS) : next;
}

static inline void fission_token(struct fission_meta *m, uint64_t *token)
{
    m->token = *token = fission_token_at(*token, fission_word_term(m->word));
}

/* ---- rebuilding ---- */

/* A host holds this lock, from before the state was lost (5.3, S3). Whoever tells first has the agent; if the lock is shared there
 * may be others, whom it must ask for, as if it had taken over. Told again it is what it was. False: that cannot be. */
static inline bool fission_reported(uint64_t *word, uint64_t *token, uint16_t machine, uint8_t mode)
{
    if (*word & FISSION_WORD_HELD)
        return *word & FISSION_WORD_SHARED ? mode == FISSION_SHARED : fission_word_machine(*word) == machine;
    uint32_t term = (fission_word_term(*word) + 1) & FISSION_TERM_MASK;
    *word = FISSION_WORD_HELD | (uint64_t)machine << FISSION_WORD_MACHINE_SHIFT | (uint64_t)term << FISSION_WORD_TERM_SHIFT;
    if (mode == FISSION_SHARED)
        *word |= FISSION_WORD_SHARED | FISSION_WORD_TAKEN | 1;
    *token = fission_token_at(*token, term);
    return true;
}

/* ---- who has ever asked ---- */

/* A bit per machine, beside the locks: whether an ACQUIRE of it has passed. One that never asked holds nothing, and the decider
 * answers a CENSUS for it: machines that do not exist cannot. */
static inline uint16_t fission_presence_of(const struct fission_packet *p)
{
    return p->head.type == FISSION_ACQUIRE ? p->client.machine : p->head.type == FISSION_CENSUS ? p->head.to.machine : MACHINE_NONE;
}

/* True: the packet is to be answered for a machine that never asked. */
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
    p->stamp = UINT32_MAX; /* and that is all */
    p->head.from = p->head.to;
    p->head.to = asker;
}

/* ---- destination ---- */

enum fission_dest {
    FISSION_DROP = 0,
    FISSION_TO_CLIENT = 1 << 0, /* a GRANT, an ACK or a refusal */
    FISSION_TO_AGENT = 1 << 1,
    FISSION_TO_NEXT = 1 << 2, /* to whom the packet itself says */
    FISSION_BACK = 1 << 3,    /* to the agent that sent it */
};

static inline bool fission_grants_shared(const struct fission_packet *p, uint32_t options, const struct fission_meta *m)
{
    return fission_asks(p) && p->mode == FISSION_SHARED && m->shared && !m->closed && !m->full && !fission_marked(p, options);
}

/* A GRANT with agent that was accepted goes to the next once more, since it may have been lost after that. Unless this tenure is
 * another: taken over from the sender, whose GRANT came too late. */
static inline bool fission_once_more(const struct fission_packet *p, const struct fission_meta *m)
{
    return m->repeated && !m->was_free && m->machine == p->head.to.machine && !(m->word & FISSION_WORD_TAKEN) &&
           m->shared == (p->mode == FISSION_SHARED);
}

static inline uint32_t fission_destination(const struct fission_packet *p, uint32_t options, const struct fission_meta *m)
{
    switch (p->head.type) {
    case FISSION_ACQUIRE:
        if (p->flags & FISSION_COPY)
            return m->was_free ? FISSION_DROP : FISSION_TO_AGENT;
        if (m->was_free)
            return FISSION_TO_CLIENT;
        if (fission_grants_shared(p, options, m))
            return FISSION_TO_CLIENT | FISSION_TO_AGENT;
        /* Not if it has an ordinal that counts: the agent must hear of that. */
        if ((p->flags & FISSION_NOWAIT) && !fission_marked(p, options) && !(p->mode == FISSION_SHARED && m->shared))
            return FISSION_TO_CLIENT;
        return FISSION_TO_AGENT;
    case FISSION_RELEASE: /* of a free lock: there is nothing to release, and nothing changes (pitfall 7) */
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

/* ---- after the commit ---- */

static inline void fission_to_pool(struct fission_packet *p, uint16_t machine)
{
    p->head.to.machine = machine;
    p->head.to.port = PORT_POOL;
}

/* The packet as it leaves for one of its destinations. */
static inline void fission_rewrite(struct fission_packet *p, uint32_t options, const struct fission_meta *m, uint32_t dest)
{
    bool grants = fission_asks(p) && (m->was_free || fission_grants_shared(p, options, m));
    p->word = m->word;
    p->token = m->token;
    if (fission_asks(p) && !fission_marked(p, options)) {
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
static inline uint32_t fission_decide(const struct fission_packet *p, uint32_t options, uint64_t *word, uint64_t *token,
                                      struct fission_meta *m)
{
    uint32_t term = fission_word_term(*word);
    uint16_t inca = fission_word_inca(*word), machine = fission_word_machine(*word);
    bool held = *word & FISSION_WORD_HELD, shared = *word & FISSION_WORD_SHARED;
    bool writers = *word & FISSION_WORD_WRITERS, starves = *word & FISSION_WORD_STARVES, taken = *word & FISSION_WORD_TAKEN;

    *m = (struct fission_meta){0};
    fission_check(p, options, m, &term, &inca);
    fission_free(p, m, &held);
    fission_rw(p, m, &shared);
    fission_writers(p, options, m, &writers);
    fission_starves(p, m, &starves);
    fission_taken(p, m, &taken);
    fission_mid(p, m, &machine);
    if (MISTAKE(options, FISSION_BUSTED_FREES) && p->head.type == FISSION_RELEASE && p->client.machine == machine)
        m->word &= ~FISSION_WORD_HELD;
    fission_token(m, token);
    *word = m->word;
    return fission_destination(p, options, m);
}

#endif
