/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/core/value.h"
#include "designs/core/design.h"

#include <errno.h>
#include <string.h>

/* The state: generation 40, changes 16, length 7, buffer 1. */
#define LEN_SHIFT 1
#define LEN_BITS 7
#define CHANGES_SHIFT 8
#define CHANGES_BITS 16
#define GENERATION_SHIFT 24

struct head {
    uint64_t floor, state;
};

static u128 wide(struct head h)
{
    return (u128)h.state << 64 | h.floor;
}

static unsigned buffer_of(uint64_t state)
{
    return state & 1;
}

static uint32_t length_of(uint64_t state)
{
    return (uint32_t)field_get(state, LEN_SHIFT, LEN_BITS);
}

static uint64_t next_state(uint64_t state, uint64_t generation, uint32_t len, unsigned buffer)
{
    uint64_t changes = (field_get(state, CHANGES_SHIFT, CHANGES_BITS) + 1) & FIELD_MAX(CHANGES_BITS);
    return (generation & FIELD_MAX(VALUE_GENERATION_BITS)) << GENERATION_SHIFT | changes << CHANGES_SHIFT |
           (uint64_t)len << LEN_SHIFT | buffer;
}

static fab_addr cell_of(const struct seat *seat, const struct hold *h)
{
    return seat->space->values + h->index * sizeof(struct value_cell);
}

static fab_addr word_of(const struct seat *seat, const struct hold *h, unsigned buffer, unsigned i)
{
    return cell_of(seat, h) + offsetof(struct value_cell, buffers) + (buffer * VALUE_WORDS + i) * sizeof(struct value_word);
}

/* Not one atomic access: a compare-and-swap tells whether the two belong together. */
static int read_head(const struct seat *seat, const struct hold *h, struct head *out)
{
    u128 both;
    int rc = fab_read128(seat->ep, cell_of(seat, h), &both);
    *out = (struct head){(uint64_t)both, (uint64_t)(both >> 64)};
    return rc;
}

/* Writes the words of a buffer, over any that are not of a later token. */
static int write_words(const struct seat *seat, const struct hold *h, unsigned buffer, const uint64_t *words, uint32_t count)
{
    fab_addr at = word_of(seat, h, buffer, 0);
    for (bool all = false; !all;) {
        struct value_word there[VALUE_WORDS];
        struct fab_op ops[VALUE_WORDS];
        unsigned n = 0;
        int rc = count ? fab_read(seat->ep, at, there, (uint16_t)(count * sizeof *there)) : 0;
        for (uint32_t i = 0; i < count && !rc; i++) {
            if (there[i].token > h->token)
                return -PAWL_ENOTOWNER;
            if (there[i].token == h->token && there[i].data == words[i])
                continue;
            ops[n++] = (struct fab_op){.verb = FAB_CAS,
                                       .width = 16,
                                       .addr = at + i * sizeof *there,
                                       .compare = (u128)there[i].token << 64 | there[i].data,
                                       .compare_mask = ~(u128)0,
                                       .swap = (u128)h->token << 64 | words[i],
                                       .swap_mask = ~(u128)0};
        }
        if (!rc && n)
            rc = fab_batch(seat->ep, ops, n);
        if (rc)
            return rc;
        all = true;
        for (unsigned i = 0; i < n; i++)
            all &= ops[i].old == ops[i].compare;
    }
    return 0;
}

/* One attempt: 1: set; 0: the head changed, or a connection broke: look again. */
static int try_set(const struct seat *seat, const struct hold *h, uint64_t generation, const uint64_t *words, uint32_t len,
                   uint64_t *wrote)
{
    bool blind = MISTAKE(seat->space->design->mistakes, VALUE_MISTAKE_LATE);
    bool torn = MISTAKE(seat->space->design->mistakes, VALUE_MISTAKE_TORN);
    struct head seen;
    u128 old;
    int rc = read_head(seat, h, &seen);
    if (rc)
        return rc;
    if (seen.floor > h->token && !blind)
        return -PAWL_ENOTOWNER;
    if (*wrote && seen.floor == h->token && seen.state == *wrote) /* the compare-and-swap of unknown outcome took effect */
        return 1;
    unsigned buffer = torn ? buffer_of(seen.state) : !buffer_of(seen.state);
    rc = write_words(seat, h, buffer, words, (len + 7) / 8);
    if (rc)
        return rc;
    const struct head next = {max_u64(h->token, blind ? seen.floor : 0), next_state(seen.state, generation, len, buffer)};
    assert(next.floor >= seen.floor && (torn || buffer_of(next.state) != buffer_of(seen.state))); /* I26 */
    *wrote = next.state;
    rc = fab_cas128(seat->ep, cell_of(seat, h), wide(seen), wide(next), &old);
    if (rc)
        return rc;
    *wrote = 0;
    return old == wide(seen);
}

int value_set(const struct seat *seat, const struct hold *h, uint64_t generation, const void *bytes, uint32_t len)
{
    uint64_t words[VALUE_WORDS] = {0}, wrote = 0;
    assert(len <= PAWL_VALUE_MAX && h->index < seat->space->lock_count && h->mode == PAWL_EXCLUSIVE);
    memcpy(words, bytes, len);
    for (;;) {
        int rc = try_set(seat, h, generation, words, len, &wrote);
        if (rc > 0)
            return 0;
        rc = seat_retry(seat, rc);
        if (rc)
            return rc;
    }
}

/* No holder with a lower token changes the value from now on. */
static int raise_floor(const struct seat *seat, const struct hold *h, struct head *seen)
{
    while (seen->floor < h->token) {
        const struct head next = {h->token, seen->state};
        u128 old;
        int rc = fab_cas128(seat->ep, cell_of(seat, h), wide(*seen), wide(next), &old);
        if (rc)
            return rc;
        bool done = old == wide(*seen);
        *seen = done ? next : (struct head){(uint64_t)old, (uint64_t)(old >> 64)};
    }
    return 0;
}

/* One look: 1: *len bytes are in `words`; 0: they changed meanwhile. */
static int try_get(const struct seat *seat, const struct hold *h, uint64_t generation, uint64_t *words, uint32_t *len)
{
    struct value_word found[VALUE_WORDS];
    struct head seen;
    uint64_t again;
    int rc = read_head(seat, h, &seen);
    if (!rc && !MISTAKE(seat->space->design->mistakes, VALUE_MISTAKE_LATE))
        rc = raise_floor(seat, h, &seen);
    if (rc)
        return rc;
    *len = length_of(seen.state);
    if (seat_damaged(seat, *len > PAWL_VALUE_MAX))
        return -PAWL_ESEGMENT;
    if (!*len || seen.state >> GENERATION_SHIFT != (generation & FIELD_MAX(VALUE_GENERATION_BITS)))
        return -PAWL_ENOVALUE;
    const uint32_t count = (*len + 7) / 8;
    rc = fab_read(seat->ep, word_of(seat, h, buffer_of(seen.state), 0), found, (uint16_t)(count * sizeof *found));
    if (!rc)
        rc = fab_read64(seat->ep, cell_of(seat, h) + offsetof(struct value_cell, state), &again);
    for (uint32_t i = 0; i < count && !rc; i++)
        words[i] = found[i].data;
    return rc ? rc : again == seen.state;
}

int value_get(const struct seat *seat, const struct hold *h, uint64_t generation, void *bytes, uint32_t *len)
{
    uint64_t words[VALUE_WORDS] = {0};
    assert(h->index < seat->space->lock_count);
    for (;;) {
        int rc = try_get(seat, h, generation, words, len);
        if (rc > 0) {
            memcpy(bytes, words, *len);
            return 0;
        }
        rc = seat_retry(seat, rc);
        if (rc)
            return rc;
    }
}
