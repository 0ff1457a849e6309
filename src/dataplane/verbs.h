/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The executor of a memory node: what a request does to memory and to the client's reply cache. Free of I/O, and C that the
 * kernel's verifier accepts: a process and an XDP program include this file and differ in how they reach a word of memory and in
 * their 128-bit atomics.
 *
 * A request is checked as a whole before its first verb is executed, so a malformed one changes nothing. */
#ifndef PAWL_DATAPLANE_VERBS_H
#define PAWL_DATAPLANE_VERBS_H

#include "dataplane/verbs_client.h"

#include <stddef.h>

/* ---- admission ---- */

enum verbs_verdict {
    VERBS_EXECUTE, /* the next request */
    VERBS_REPEAT,  /* executed before: what it found is in the cache */
    VERBS_REFUSE,  /* the client is shut out */
    VERBS_DROP,    /* too old, or one before it is missing: no answer */
};

VERBS_INLINE enum verbs_verdict verbs_admit(const struct verbs_client *c, uint64_t sequence, uint64_t mistakes)
{
    if (!verbs_connected(c) && !MISTAKE(mistakes, VERBS_MISTAKE_FENCE))
        return VERBS_REFUSE;
    if (MISTAKE(mistakes, VERBS_MISTAKE_ORDER) && sequence > c->last && sequence < c->last + VERBS_WINDOW)
        return c->kept[sequence % VERBS_WINDOW].sequence == sequence ? VERBS_REPEAT : VERBS_EXECUTE;
    if (sequence == c->last + 1)
        return VERBS_EXECUTE;
    if (sequence > c->last || sequence + VERBS_WINDOW <= c->last || !sequence)
        return VERBS_DROP;
    return MISTAKE(mistakes, VERBS_MISTAKE_CACHE) ? VERBS_EXECUTE : VERBS_REPEAT;
}

/* ---- a request under way ---- */

/* Calls step(number, run) until it returns 1, at most so often. A kernel program has it as a helper, whose step is verified once.
 */
#ifndef VERBS_LOOP
#define VERBS_LOOP(most, step, run)                                                                                                \
    for (uint32_t number_ = 0; number_ < (most) && !step(number_, run); number_++) {                                               \
    }
#endif

struct verbs_memory; /* the includer's: where the node's words are */

struct verbs_run {
    struct verbs_memory *memory;
    struct verbs_kept *kept;
#ifdef VERBS_FRAME
    VERBS_FRAME *frame; /* where the packet is: a kernel program finds its bounds anew each time */
#else
    uint8_t *data, *end; /* the packet */
#endif
    uint64_t bytes; /* of memory */
    uint64_t mistakes;
    uint32_t len;     /* of the packet */
    uint32_t count;   /* verbs */
    uint32_t index;   /* of the next verb, */
    uint32_t at;      /* and where in the packet it is */
    uint32_t changes; /* verbs up to the last one that changes memory */
    uint32_t words;   /* of the results that are kept, so far */
    uint32_t reads;   /* first pass: words of READs behind the last change */
    /* A READ or WRITE under way. */
    uint64_t move_offset;
    uint32_t move_at, move_left; /* in the packet; words */
    bool move_reads, move_kept;
    bool stored; /* CPUs that have the memory mapped may not see a store of this request yet */
    bool repeat;
    bool bad;
};

VERBS_INLINE void verbs_begin(struct verbs_run *r, const struct verbs_head *h)
{
    r->len = h->len;
    r->count = h->count;
    r->index = 0;
    r->at = sizeof *h;
    r->changes = 0;
    r->words = r->reads = 0;
    r->stored = r->repeat = false;
    r->bad = !h->count || h->count > VERBS_COUNT_MAX;
}

/* So many bytes of the packet, or null. */
#ifdef VERBS_FRAME
VERBS_INLINE void *verbs_place(const struct verbs_run *r, uint32_t at, uint32_t bytes);
#else
VERBS_INLINE void *verbs_place(const struct verbs_run *r, uint32_t at, uint32_t bytes)
{
    if (at > VERBS_PACKET_MAX)
        return NULL;
    uint8_t *p = r->data + at;
    return p + bytes > r->end ? NULL : p;
}
#endif

/* Whether the cache keeps what a READ found: if a change follows it. */
VERBS_INLINE bool verbs_keeps_read(const struct verbs_run *r)
{
    return r->index + 1 < r->changes && !MISTAKE(r->mistakes, VERBS_MISTAKE_READS);
}

/* ---- first pass: is it sound? ---- */

VERBS_INLINE bool verbs_sound(const struct verbs_run *r, const struct verbs_op *op)
{
    uint32_t operands = verbs_operands(op->verb), bytes = operands ? op->width : op->room;
    if (op->unused || op->offset % 8 || op->room % 8 || !op->room || op->offset > r->bytes || bytes > r->bytes - op->offset)
        return false;
    if (!operands)
        return (op->verb == VERBS_READ || op->verb == VERBS_WRITE) && !op->width;
    return (op->width == 8 || op->width == 16) && op->offset % op->width == 0 && op->room == operands * op->width;
}

/* One verb. 1: there are no more, or the request is bad. */
static long verbs_check_step(uint32_t i, void *run)
{
    struct verbs_run *r = run;
    const struct verbs_op *op = verbs_place(r, r->at, sizeof *op);
    if (r->bad || r->index >= r->count || !op || !verbs_sound(r, op)) {
        r->bad = true;
        return 1;
    }
    r->index++;
    r->at += (uint32_t)sizeof *op + op->room;
    if (op->verb == VERBS_READ) {
        r->reads += op->room / 8u;
    } else {
        r->words += MISTAKE(r->mistakes, VERBS_MISTAKE_READS) ? 0 : r->reads;
        r->words += verbs_operands(op->verb) ? op->width / 8u : 0;
        r->reads = 0;
        r->changes = r->index;
    }
    return r->index >= r->count;
}

/* Whether the packet ends where its verbs do, and its results fit the cache, or are as many as were kept. Then the second pass may
 * begin. */
VERBS_INLINE bool verbs_check_end(struct verbs_run *r)
{
    if (r->bad || r->index != r->count || r->at != r->len || r->words > VERBS_KEPT_WORDS)
        return false;
    if (r->repeat && r->words != r->kept->words)
        return false;
    r->index = 0;
    r->words = 0;
    r->at = sizeof(struct verbs_head);
    return true;
}

/* ---- arithmetic, in halves: kernel programs have no 128-bit numbers ---- */

VERBS_INLINE uint64_t verbs_add64(uint64_t a, uint64_t b, uint64_t top)
{
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}

/* The new value of a word that held `old`, after an atomic. `in` are its operands. */
VERBS_INLINE uint64_t verbs_next64(uint8_t verb, const uint64_t *in, uint64_t old)
{
    switch (verb) {
    case VERBS_CAS:
        return old == in[0] ? in[1] : old;
    case VERBS_MCAS:
        return (old ^ in[0]) & in[1] ? old : (old & ~in[3]) | (in[2] & in[3]);
    case VERBS_FAA:
        return old + in[0];
    case VERBS_MFAA:
        return verbs_add64(old, in[0], in[1]);
    default:
        return in[0];
    }
}

VERBS_INLINE void verbs_add128(const uint64_t a[2], const uint64_t *b, const uint64_t top[2], uint64_t out[2])
{
    uint64_t a0 = a[0] & ~top[0], b0 = b[0] & ~top[0], low = a0 + b0, carry = low < a0;
    uint64_t high = (a[1] & ~top[1]) + (b[1] & ~top[1]) + carry;
    out[0] = low ^ ((a[0] ^ b[0]) & top[0]);
    out[1] = high ^ ((a[1] ^ b[1]) & top[1]);
}

VERBS_INLINE void verbs_next128(uint8_t verb, const uint64_t *in, const uint64_t old[2], uint64_t out[2])
{
    const uint64_t none[2] = {0, 0};
    bool same;
    out[0] = old[0], out[1] = old[1];
    switch (verb) {
    case VERBS_CAS:
        if (old[0] == in[0] && old[1] == in[1])
            out[0] = in[2], out[1] = in[3];
        break;
    case VERBS_MCAS:
        same = !((old[0] ^ in[0]) & in[2]) && !((old[1] ^ in[1]) & in[3]);
        if (same) {
            out[0] = (old[0] & ~in[6]) | (in[4] & in[6]);
            out[1] = (old[1] & ~in[7]) | (in[5] & in[7]);
        }
        break;
    case VERBS_FAA:
        verbs_add128(old, in, none, out);
        break;
    case VERBS_MFAA:
        verbs_add128(old, in, in + 2, out);
        break;
    default:
        out[0] = in[0], out[1] = in[1];
    }
}

/* ---- second pass: execution ---- */

/* The includer's: a word of memory, null beyond it; an atomic, whose old value replaces the first operand; a store, `upper`: of the
 * other word of the pair, too; and a fence between stores and the loads that follow. A store need not be seen before a fence; what
 * ends a request is one. */
VERBS_INLINE uint64_t *verbs_word(struct verbs_memory *m, uint64_t offset);
VERBS_INLINE void verbs_atomic(const struct verbs_run *r, const struct verbs_op *op, uint32_t at);
VERBS_INLINE void verbs_store(struct verbs_memory *m, uint64_t offset, uint64_t value, const uint64_t *upper);
VERBS_INLINE void verbs_fence(void);

/* Before a READ: CPUs that have the memory mapped see the stores before it first (alock's cohorts). */
VERBS_INLINE void verbs_show(struct verbs_run *r)
{
    if (r->stored)
        verbs_fence();
    r->stored = false;
}

VERBS_INLINE void verbs_keep(struct verbs_run *r, uint64_t *room)
{
    uint32_t at = r->words++;
    if (at >= VERBS_KEPT_WORDS)
        return;
    if (r->repeat)
        *room = r->kept->word[at];
    else
        r->kept->word[at] = *room;
}

/* READ and WRITE: each aligned 8 bytes are of one moment, one after the other in the order of their addresses. A step stores a pair
 * of words: a kernel program takes one latch for both. */
static long verbs_move_step(uint32_t i, void *run)
{
    struct verbs_run *r = run;
    uint64_t *room = verbs_place(r, r->move_at, 8), *word;
    uint32_t words = 1;
    if (!r->move_left || !room)
        return 1;
    if (!r->move_reads && !r->repeat) {
        const uint64_t *upper = r->move_left > 1 && r->move_offset % 16 == 0 ? verbs_place(r, r->move_at + 8, 8) : NULL;
        verbs_store(r->memory, r->move_offset, *room, upper);
        r->stored = true;
        words = upper ? 2 : 1;
    } else if (r->move_reads && !(r->move_kept && r->repeat)) {
        word = verbs_word(r->memory, r->move_offset);
        if (word)
            *room = *(volatile uint64_t *)word;
    }
    if (r->move_kept)
        verbs_keep(r, room);
    r->move_at += 8 * words;
    r->move_offset += 8 * words;
    r->move_left -= words;
    return r->move_left == 0;
}

/* A READ of one or two words that is not kept, and a WRITE of a word or a pair: most of them, so without a loop. */
VERBS_INLINE bool verbs_move_short(struct verbs_run *r, const struct verbs_op *op, uint32_t at)
{
    bool two = op->room == 16;
    uint64_t *low = verbs_place(r, at, 8), *high = two ? verbs_place(r, at + 8, 8) : NULL, *word;
    if (op->room > 16 || !low || (two && !high))
        return false;
    if (op->verb == VERBS_WRITE) {
        if (r->repeat)
            return true;
        if (two && op->offset % 16)
            return false;
        verbs_store(r->memory, op->offset, *low, high);
        r->stored = true;
        return true;
    }
    verbs_show(r);
    if (verbs_keeps_read(r))
        return false;
    word = verbs_word(r->memory, op->offset);
    if (word)
        *low = *(volatile uint64_t *)word;
    word = high ? verbs_word(r->memory, op->offset + 8) : NULL;
    if (word)
        *high = *(volatile uint64_t *)word;
    return true;
}

VERBS_INLINE void verbs_move(struct verbs_run *r, const struct verbs_op *op, uint32_t at)
{
    if (verbs_move_short(r, op, at))
        return;
    r->move_reads = op->verb == VERBS_READ;
    if (r->move_reads)
        verbs_show(r);
    r->move_kept = r->move_reads && verbs_keeps_read(r);
    r->move_left = op->room / 8u;
    r->move_offset = op->offset;
    r->move_at = at;
    VERBS_LOOP(VERBS_PACKET_MAX / 8, verbs_move_step, r);
}

static long verbs_execute_step(uint32_t i, void *run)
{
    struct verbs_run *r = run;
    const struct verbs_op *op = verbs_place(r, r->at, sizeof *op);
    if (!op)
        return 1;
    uint32_t at = r->at + (uint32_t)sizeof *op, operands = verbs_operands(op->verb);
    uint64_t *room = verbs_place(r, at, 8);
    r->at = at + op->room;
    if (!operands) {
        verbs_move(r, op, at);
    } else if (room) {
        if (!r->repeat)
            verbs_atomic(r, op, at);
        verbs_keep(r, room);
        uint64_t *upper = op->width == 16 ? verbs_place(r, at + 8, 8) : NULL;
        if (upper)
            verbs_keep(r, upper);
    }
    r->index++;
    return r->index >= r->count;
}

#endif
