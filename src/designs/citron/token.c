/* SPDX-License-Identifier: Apache-2.0 */
/* Fencing tokens (I2r). One counter for the whole lock would be a word that every grant adds to, and NICs do few atomics on one
 * address: 2.24 million per second in the models. So each part of the tree, the units below one node of the lowest high level, has
 * a block of tokens of its own, and takes the next free block of the lock when that is used up.
 *
 * A grant within one part adds one to the part's word. A grant across two parts takes a free block for itself and puts it into both
 * of them. Any other grant takes a free block, too, and before it returns it publishes that all older blocks are void (`oldest`).
 * Every client draws when its conflict is over, and reads the head between that and drawing. By then the clients that were in its
 * way have published, and the next clients that conflict with it wait. For the same reason a client that finds no claim on a tall
 * node in the head, however late it is, has a token above those of all claims that were there. So of two grants that conflict,
 *   - if both lie within one part, the later one has a later number of the same block, or a later block: blocks in a part only
 * rise;
 *   - if the later one takes a free block, that was free when the earlier one had its token already;
 *   - if the earlier one took a free block, the later one has that block or a later one in its part, or one that is not void.
 * Blocks are small: tokens must rise more slowly than 2^32 per second (token_base) even if each grant voids all blocks. */
#include "designs/citron/steps.h"

#define BLOCK_TOKENS 256
#define NUMBER_BITS 16 /* many more clients than a block has tokens may add before it is replaced, and must not touch the rest */
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

/* In how many parts the hold lies; 0: in more than two, or in nodes that are larger than a part. */
static unsigned parts_of(const struct citron_job *j, uint64_t *first)
{
    uint64_t from = UINT64_MAX, to = 0;
    for (unsigned i = 0; i < j->claims.n; i++) {
        const struct citron_claim *c = &j->claims.at[i];
        if (c->spill || node_is_high(c->node))
            return 0;
        uint64_t part = tree_above(c->node, citron_high).number;
        from = min_u64(from, part);
        to = max_u64(to, part);
    }
    *first = from;
    return j->claims.n && to - from < TOKEN_PARTS ? (unsigned)(to - from + 1) : 0;
}

void token_draw(struct citron_job *j, struct citron_batch *b)
{
    uint64_t first = 0;
    struct citron_token *d = &j->token;
    d->parts = j->policy.tokens ? parts_of(j, &first) : 0;
    d->first = d->parts ? job_part(j, first) : 0;
    batch_head(j, b, d->head);
    if (d->parts == 1)
        d->op = batch_mfaa(b, d->first, 1, NUMBER_TOPS);
    else if (j->policy.tokens)
        d->op = batch_faa(b, blocks_addr(j), 1);
    if (d->parts > 1)
        batch_read(b, d->first, d->words, (uint16_t)(d->parts * sizeof *d->words));
}

void token_drew(struct citron_job *j, const struct citron_batch *b)
{
    struct citron_token *d = &j->token;
    if (!j->policy.tokens)
        return;
    if (d->parts == 1)
        d->words[0] = batch_old(b, d->op);
    else
        d->block = batch_old(b, d->op) + 1;
}

/* Raises a word to a block, unless it has a later one. Several clients may do so at once: blocks do not return. */
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
    j->token.block = old + 1;
    return 0;
}

/* Puts the block that was taken where later grants find it. */
static int publish(struct citron_job *j)
{
    const struct citron_token *d = &j->token;
    int rc = 0;
    for (unsigned i = 0; i < d->parts && !rc; i++)
        rc = raise_to(j, d->first + i * sizeof(uint64_t), d->words[i], d->block);
    if (!d->parts)
        rc = raise_to(j, job_header(j, offsetof(struct citron_lock, oldest)), d->head[HEAD_OLDEST], d->block + 1);
    j->token.value = token_of(d->block, 0);
    return rc;
}

int token_settle(struct citron_job *j)
{
    const struct citron_token *d = &j->token;
    if (!j->policy.tokens)
        return 0;
    if (d->parts == 1) {
        uint64_t number = field_get(d->words[0], 0, NUMBER_BITS);
        if (number < BLOCK_TOKENS && block_of(d->words[0]) >= block_of(d->head[HEAD_OLDEST])) {
            j->token.value = token_of(block_of(d->words[0]), number);
            return 0;
        }
        int rc = take_block(j);
        if (rc)
            return rc;
    }
    return publish(j);
}

OWN_FRAME int token_after(struct citron_job *j, void (*fill)(struct citron_job *, struct citron_batch *, void *), void *ctx)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        if (fill)
            fill(j, &b, ctx);
        token_draw(j, &b);
        int rc = job_run(j, &b);
        if (!rc)
            token_drew(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

int token_renew(struct citron_job *j)
{
    int rc = token_after(j, NULL, NULL);
    return rc ? rc : token_settle(j);
}

int token_newest(const struct citron_job *j, uint64_t *token)
{
    uint64_t blocks;
    int rc = fab_read64(j->seat->ep, blocks_addr(j), &blocks);
    if (!rc)
        *token = j->seat->space->token_base + token_of(blocks, 0);
    return rc;
}

/* The hold is the whole range, exclusively: no other grant takes tokens meanwhile. */
int citron_raise(const struct seat *seat, struct hold *h, uint64_t floor)
{
    struct citron_job j;
    uint64_t base = seat->space->token_base, was, old;
    job_start(&j, seat, h, DEADLINE_NEVER);
    while (h->token <= floor) {
        int rc = fab_read64(seat->ep, blocks_addr(&j), &was);
        j.token.block = max_u64((floor - base) / BLOCK_TOKENS + 1, was + 1);
        if (!rc)
            rc = fab_cas64(seat->ep, blocks_addr(&j), was, j.token.block, &old);
        if (!rc && old == was && !(rc = publish(&j))) {
            h->token = base + j.token.value;
            __atomic_store_n(&citron_kept(seat, h)[DESC_TOKEN], h->token, __ATOMIC_RELAXED);
        }
        if (rc && (rc = seat_retry(seat, rc)))
            return rc;
    }
    return 0;
}
