/* SPDX-License-Identifier: Apache-2.0 */
/* Fencing tokens (I2r). One counter for the whole lock would be a word that every grant adds to, and NICs do few atomics on one
 * address: 2.24 million per second in the models. So each part of the tree, the units below one node of the lowest high level, has
 * a block of tokens of its own, and takes the next free block of the lock when that is used up.
 *
 * A grant within one part adds one to the part's word. One that lies across two parts takes a free block for itself and puts it
 * into both of them. Any other takes a free block, too, and before it is granted it publishes that all older ones are void
 * (`oldest`). All of them draw when their conflict is over; and read the head between that and drawing: who was in their way has
 * published by then, and the next who is in their way waits for them. For the same reason one that finds nobody at a tall node
 * there, however late it is, has a token above those of all who were. So of two that conflict, the later one
 *   - within a part after another there has a later number of the same block, or a later block, for blocks in a part only rise;
 *   - has, if it takes a free block, one that was free when the earlier one had its own already;
 *   - has, if the earlier one took a free block, that block or a later one in its part, or one that is not void.
 * Blocks are small, for tokens are to rise more slowly than 2^32 per second (token_base) even if each grant voids all blocks. */
#include "designs/citron/citron.h"

#define BLOCK_TOKENS 256
#define NUMBER_BITS 16 /* many more than a block has may find it used up before it is replaced, and must not touch the rest */
#define NUMBER_TOPS (UINT64_C(1) << (NUMBER_BITS - 1) | UINT64_C(1) << 63)
#define BLOCK_MASK (UINT64_MAX << NUMBER_BITS)

static uint64_t block_of(uint64_t part_word)
{
    return part_word >> NUMBER_BITS;
}

static uint64_t token_of(uint64_t block, uint64_t number)
{
    return block * BLOCK_TOKENS + number + 1;
}

static fab_addr blocks_addr(const struct citron_job *j)
{
    return job_header(j, offsetof(struct citron_lock, blocks));
}

/* In how many parts the hold lies, as far as that matters: 0 means more than two, or nodes that are not in one. */
static unsigned parts_of(const struct citron_job *j, uint64_t *first)
{
    uint64_t from = UINT64_MAX, to = 0;
    for (unsigned i = 0; i < j->count; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (c->spill || node_is_high(c->node))
            return 0;
        uint64_t part = tree_above(c->node, citron_high).number;
        from = min_u64(from, part);
        to = max_u64(to, part);
    }
    *first = from;
    return j->count && to - from < TOKEN_PARTS ? (unsigned)(to - from + 1) : 0;
}

void job_draw(struct citron_job *j, struct citron_batch *b)
{
    uint64_t first = 0;
    struct citron_draw *d = &j->draw;
    d->parts = citron_knob(j, CITRON_TOKENS) ? parts_of(j, &first) : 0;
    d->first = d->parts ? job_part(j, first) : 0;
    citron_add_head(j, b, d->head);
    if (d->parts == 1)
        d->op = batch_mfaa(b, d->first, 1, NUMBER_TOPS);
    else if (citron_knob(j, CITRON_TOKENS))
        d->op = batch_faa(b, blocks_addr(j), 1);
    if (d->parts > 1)
        batch_read(b, d->first, d->words, (uint16_t)(d->parts * sizeof *d->words));
}

void job_drew(struct citron_job *j, const struct citron_batch *b)
{
    struct citron_draw *d = &j->draw;
    if (!citron_knob(j, CITRON_TOKENS))
        return;
    if (d->parts == 1)
        d->words[0] = batch_old(b, d->op);
    else
        d->block = batch_old(b, d->op) + 1;
}

/* Raises a word to a block, unless it has a later one. Any number may do so at once: blocks do not return. */
static int raise_to(const struct citron_job *j, fab_addr addr, uint64_t seen, uint64_t block)
{
    while (block_of(seen) < block) {
        uint64_t old, compare = seen & BLOCK_MASK;
        int rc = fab_mcas64(j->seat->ep, addr, compare, BLOCK_MASK, block << NUMBER_BITS | 1, UINT64_MAX, &old);
        if (!rc && (old & BLOCK_MASK) == compare)
            return 0;
        if (!rc)
            seen = old;
        else if ((rc = seat_retry(j->seat, rc)))
            return rc;
    }
    return 0;
}

static int take_block(struct citron_job *j)
{
    uint64_t old;
    int rc;
    while ((rc = fab_faa64(j->seat->ep, blocks_addr(j), 1, &old)))
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    j->draw.block = old + 1;
    return 0;
}

/* Puts the block that was taken where those who come later find that it is taken. */
static int publish(struct citron_job *j)
{
    const struct citron_draw *d = &j->draw;
    int rc = 0;
    for (unsigned i = 0; i < d->parts && !rc; i++)
        rc = raise_to(j, d->first + i * sizeof(uint64_t), d->words[i], d->block);
    if (!d->parts)
        rc = raise_to(j, job_header(j, offsetof(struct citron_lock, oldest)), d->head[HEAD_OLDEST], d->block + 1);
    j->token = token_of(d->block, 0);
    return rc;
}

int job_settle_token(struct citron_job *j)
{
    const struct citron_draw *d = &j->draw;
    if (!citron_knob(j, CITRON_TOKENS))
        return 0;
    if (d->parts == 1) {
        uint64_t number = field_get(d->words[0], 0, NUMBER_BITS);
        if (number < BLOCK_TOKENS && block_of(d->words[0]) >= block_of(d->head[HEAD_OLDEST])) {
            j->token = token_of(block_of(d->words[0]), number);
            return 0;
        }
        int rc = take_block(j);
        if (rc)
            return rc;
    }
    return publish(j);
}

OWN_FRAME static int draw_alone(struct citron_job *j)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        job_draw(j, &b);
        int rc = job_run(j, &b);
        if (!rc)
            job_drew(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

int job_new_token(struct citron_job *j)
{
    int rc = draw_alone(j);
    return rc ? rc : job_settle_token(j);
}

int citron_newest_token(const struct citron_job *j, uint64_t *token)
{
    uint64_t blocks;
    int rc = fab_read64(j->seat->ep, blocks_addr(j), &blocks);
    if (!rc)
        *token = j->seat->space->token_base + token_of(blocks, 0);
    return rc;
}

/* While we hold all of it exclusively nobody else takes tokens that count. */
int citron_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    struct citron_job j;
    uint64_t base = seat->space->token_base, was, old;
    job_start(&j, seat, h, DEADLINE_NEVER);
    while (h->token <= floor) {
        int rc = fab_read64(seat->ep, blocks_addr(&j), &was);
        j.draw.block = max_u64((floor - base) / BLOCK_TOKENS + 1, was + 1);
        if (!rc)
            rc = fab_cas64(seat->ep, blocks_addr(&j), was, j.draw.block, &old);
        if (!rc && old == was && !(rc = publish(&j))) {
            h->token = base + j.token;
            __atomic_store_n(&citron_kept(seat, h)[DESC_TOKEN], h->token, __ATOMIC_RELAXED);
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
    return 0;
}
