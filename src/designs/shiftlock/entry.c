/* SPDX-License-Identifier: Apache-2.0 */
/* The lock entry (Figure 3) and the verbs on it. */
#include "designs/shiftlock/shiftlock.h"

const struct shift_form shift_form128 = {
    .width = 16,
    .rel_shift = 64,
    .rel_bits = 64,
    .readers_shift = 40,
    .readers_bits = 23,
    .tail_shift = 0,
    .slot_bits = 12,
    .record_bits = 12,
    .era_shift = 32,
    .era_bits = 8,
    .echo_shift = 24,
    .echo_bits = 8,
    .epoch_shift = 63,
};

const struct shift_form shift_form64 = {
    .width = 8,
    .rel_shift = 0,
    .rel_bits = 24,
    .readers_shift = 53,
    .readers_bits = 10,
    .tail_shift = 24,
    .slot_bits = 12,
    .record_bits = 10,
    .era_shift = 46,
    .era_bits = 7,
    .epoch_shift = 63,
};

static u128 field(uint64_t value, unsigned shift, unsigned bits)
{
    return (u128)(bits == 64 ? value : value & FIELD_MAX(bits)) << shift;
}

static uint64_t unfield(u128 word, unsigned shift, unsigned bits)
{
    uint64_t value = (uint64_t)(word >> shift);
    return bits == 64 ? value : value & FIELD_MAX(bits);
}

/* Inline, for forms that the compiler knows: every shift and mask is then a constant. A lock packs five words. */
static inline __attribute__((always_inline)) u128 pack(const struct shift_form *f, struct shift_entry e)
{
    return field(e.rel, f->rel_shift, f->rel_bits) | field(e.readers, f->readers_shift, f->readers_bits) |
           field(e.tail, f->tail_shift, f->slot_bits + f->record_bits) | field(e.era, f->era_shift, f->era_bits) |
           field(e.rel, f->echo_shift, f->echo_bits) | field(e.epoch, f->epoch_shift, 1);
}

static inline __attribute__((always_inline)) struct shift_entry unpack(const struct shift_form *f, u128 word)
{
    return (struct shift_entry){
        .rel = unfield(word, f->rel_shift, f->rel_bits),
        .readers = (uint32_t)unfield(word, f->readers_shift, f->readers_bits),
        .tail = (uint32_t)unfield(word, f->tail_shift, f->slot_bits + f->record_bits),
        .era = (uint32_t)unfield(word, f->era_shift, f->era_bits),
        .epoch = unfield(word, f->epoch_shift, 1),
    };
}

u128 shift_pack(const struct shift_form *f, struct shift_entry e)
{
    return f == &shift_form64 ? pack(&shift_form64, e) : pack(&shift_form128, e);
}

struct shift_entry shift_unpack(const struct shift_form *f, u128 word)
{
    return f == &shift_form64 ? unpack(&shift_form64, word) : unpack(&shift_form128, word);
}

static inline __attribute__((always_inline)) u128 mask(const struct shift_form *f, unsigned fields)
{
    const struct shift_entry ones = {
        .rel = fields & SHIFT_REL ? UINT64_MAX : 0,
        .readers = fields & SHIFT_READERS ? UINT32_MAX : 0,
        .tail = fields & SHIFT_TAIL ? UINT32_MAX : 0,
        .era = fields & SHIFT_ERA ? UINT32_MAX : 0,
        .epoch = fields & SHIFT_EPOCH,
    };
    return pack(f, ones);
}

static u128 mask_of(const struct shift_form *f, unsigned fields)
{
    return f == &shift_form64 ? mask(&shift_form64, fields) : mask(&shift_form128, fields);
}

bool shift_matches(struct shift_entry a, struct shift_entry b, unsigned fields)
{
    return (!(fields & SHIFT_REL) || a.rel == b.rel) && (!(fields & SHIFT_READERS) || a.readers == b.readers) &&
           (!(fields & SHIFT_TAIL) || a.tail == b.tail) && (!(fields & SHIFT_ERA) || a.era == b.era) &&
           (!(fields & SHIFT_EPOCH) || a.epoch == b.epoch);
}

/* ---- atomics ---- */

/* Inline, as `pack` is. */
static inline __attribute__((always_inline)) void op_cas(const struct shift_form *f, struct shift_entry compare, unsigned compared,
                                                         struct shift_entry swap, unsigned swapped, struct fab_op *op)
{
    op->verb = FAB_CAS;
    op->width = f->width;
    op->len = 0;
    op->masked = compared != SHIFT_ALL || swapped != SHIFT_ALL;
    op->fence = op->again = false;
    op->buf = NULL;
    u128 all = f->width == 16 ? ~(u128)0 : UINT64_MAX;
    op->compare = pack(f, compare);
    op->compare_mask = compared == SHIFT_ALL ? all : mask(f, compared);
    op->swap = pack(f, swap);
    op->swap_mask = swapped == SHIFT_ALL ? all : mask(f, swapped);
}

void shift_op_cas(const struct seat *seat, uint64_t index, struct shift_entry compare, unsigned compared, struct shift_entry swap,
                  unsigned swapped, struct fab_op *op)
{
    op->addr = shift_addr(seat, index);
    if (shift_form(seat) == &shift_form64)
        op_cas(&shift_form64, compare, compared, swap, swapped, op);
    else
        op_cas(&shift_form128, compare, compared, swap, swapped, op);
}

/* ExtFAA of 3.4: no carry leaves RdrCnt. A fabric that lacks it has a plain FAA: a reader that goes too far takes itself out again
 * (shift_readers_max) long before there is a carry, so that a carry would be of a count that is wrong already. */
void shift_op_add_reader(const struct seat *seat, uint64_t index, struct fab_op *op)
{
    const struct shift_form *f = shift_form(seat);
    *op = (struct fab_op){
        .verb = FAB_FAA,
        .width = f->width,
        .masked = fab_has(seat->ep->caps, FAB_MASKED_FAA),
        .addr = shift_addr(seat, index),
        .swap = (u128)1 << f->readers_shift,
        .swap_mask = (u128)1 << (f->readers_shift + f->readers_bits - 1),
    };
}

int shift_cas(const struct seat *seat, uint64_t index, struct shift_entry compare, unsigned compared, struct shift_entry swap,
              unsigned swapped, struct shift_entry *old)
{
    struct fab_op op;
    shift_op_cas(seat, index, compare, compared, swap, swapped, &op);
    int rc = fab_batch(seat->ep, &op, 1);
    if (!rc)
        *old = shift_unpack(shift_form(seat), op.old);
    return rc;
}

int shift_look_and_cas(const struct seat *seat, fab_addr at, struct shift_look *look, uint64_t index, struct shift_entry compare,
                       unsigned compared, struct shift_entry swap, unsigned swapped, struct shift_entry *old)
{
    struct shift_note found;
    struct fab_op ops[2] = {[1] = {.verb = FAB_READ, .len = sizeof found, .buf = &found, .addr = at}};
    shift_op_cas(seat, index, compare, compared, swap, swapped, &ops[0]);
    int rc = fab_batch(seat->ep, ops, countof(ops));
    if (rc)
        return rc;
    look->known = true;
    look->note = found;
    *old = shift_unpack(shift_form(seat), ops[0].old);
    return 0;
}

/* ---- guesses ---- */

/* The session remembers the entries of locks that it has released: one word for each of so many. Where a compare-and-swap of
 * some fields is built from one of the whole word, a lock that no other has used since costs no second round trip. For entries
 * of 64 bits: instead of tail and readers, which are none in a guess, the word has the rest of the lock's number. */

static bool guesses(const struct seat *seat)
{
    return shift_form(seat) == &shift_form64 && seat->me->design_state && !fab_has(seat->ep->caps, FAB_MASKED_CAS);
}

/* Where tail and readers are, the rest of the number. Never the same for two locks of a space: it has fewer than 2^32 *
 * SHIFT_GUESSES. */
static uint64_t with_number(uint64_t word, uint64_t index)
{
    const struct shift_form *f = &shift_form64;
    uint64_t rest = index / SHIFT_GUESSES + 1;
    const struct shift_entry number = {.tail = (uint32_t)(rest & FIELD_MAX(f->slot_bits + f->record_bits)),
                                       .readers = (uint32_t)(rest >> (f->slot_bits + f->record_bits))};
    return word | (uint64_t)pack(f, number);
}

void shift_expect(const struct seat *seat, uint64_t index, struct shift_entry e)
{
    if (!guesses(seat))
        return;
    struct shift_session *me = seat->me->design_state;
    e.tail = e.readers = 0;
    __atomic_store_n(&me->guesses[index % SHIFT_GUESSES], with_number((uint64_t)shift_pack(&shift_form64, e), index),
                     __ATOMIC_RELAXED);
}

struct shift_entry shift_guess(const struct seat *seat, uint64_t index)
{
    const struct shift_session *me = seat->me->design_state;
    uint64_t word = guesses(seat) ? __atomic_load_n(&me->guesses[index % SHIFT_GUESSES], __ATOMIC_RELAXED) : 0;
    struct shift_entry e = shift_unpack(&shift_form64, word);
    e.tail = e.readers = 0;
    uint64_t alone = (uint64_t)shift_pack(&shift_form64, e);
    return word && with_number(alone, index) == word ? e : (struct shift_entry){0};
}

/* ---- reading ---- */

static int look(const struct seat *seat, uint64_t index, bool rel_first, struct shift_entry *out)
{
    const struct shift_form *f = shift_form(seat);
    fab_addr addr = shift_addr(seat, index);
    uint64_t half[2] = {0, 0};
    struct fab_op ops[] = {
        {.verb = FAB_READ, .len = 8, .addr = addr, .buf = &half[0]},
        {.verb = FAB_READ, .len = 8, .addr = addr + 8, .buf = &half[1]},
    };
    if (rel_first) {
        ops[0].addr = addr + 8, ops[0].buf = &half[1];
        ops[1].addr = addr, ops[1].buf = &half[0];
    }
    int rc = f->width == 8 ? fab_read64(seat->ep, addr, &half[0]) : fab_batch(seat->ep, ops, countof(ops));
    if (!rc)
        *out = shift_unpack(f, f->width == 8 ? half[0] : (u128)half[1] << 64 | half[0]);
    return rc;
}

int shift_look_rel_first(const struct seat *seat, uint64_t index, struct shift_entry *out)
{
    return look(seat, index, true, out);
}

int shift_look_rel_last(const struct seat *seat, uint64_t index, struct shift_entry *out)
{
    return look(seat, index, false, out);
}

/* ---- waiting ---- */

static struct fab_cond cond_of(const struct seat *seat, uint64_t index, u128 mask, struct shift_entry seen)
{
    const struct shift_form *f = shift_form(seat);
    u128 value = shift_pack(f, seen) & mask;
    bool upper = !(uint64_t)mask;
    return (struct fab_cond){
        .addr = shift_addr(seat, index) + (upper ? 8 : 0),
        .mask = (uint64_t)(upper ? mask >> 64 : mask),
        .value = (uint64_t)(upper ? value >> 64 : value),
    };
}

static u128 epoch_mask(const struct shift_form *f)
{
    return field(UINT64_MAX, f->era_shift, f->era_bits) | (u128)1 << f->epoch_shift;
}

static u128 rel_mask(const struct shift_form *f)
{
    return field(UINT32_MAX, f->rel_shift, f->rel_bits < 32 ? f->rel_bits : 32);
}

struct fab_cond shift_cond_epoch(const struct seat *seat, uint64_t index, struct shift_entry seen)
{
    return cond_of(seat, index, epoch_mask(shift_form(seat)), seen);
}

struct fab_cond shift_cond_rel(const struct seat *seat, uint64_t index, struct shift_entry seen)
{
    return cond_of(seat, index, rel_mask(shift_form(seat)), seen);
}

/* The halves are of two moments between which RelCnt has moved. */
static bool torn(const struct shift_form *f, u128 word)
{
    return unfield(word, f->rel_shift, f->echo_bits) != unfield(word, f->echo_shift, f->echo_bits);
}

int shift_poll(const struct seat *seat, uint64_t index, unsigned fields, struct shift_entry *e, uint64_t deadline)
{
    const struct shift_form *f = shift_form(seat);
    const u128 mask = mask_of(f, fields);
    const struct fab_pair pair = {
        .addr = shift_addr(seat, index), .width = f->width, .mask = mask, .value = shift_pack(f, *e) & mask};
    u128 seen = 0;
    int rc;
    do
        rc = fab_poll(seat->ep, &pair, deadline, &seen);
    while (!rc && torn(f, seen));
    if (!rc)
        *e = shift_unpack(f, seen);
    return rc;
}

void shift_wake_readers(const struct seat *seat, uint64_t index)
{
    const struct fab_cond c = shift_cond_epoch(seat, index, (struct shift_entry){0});
    fab_wake(seat->ep, c.addr, c.mask, UINT16_MAX);
}

void shift_wake_writer(const struct seat *seat, uint64_t index)
{
    const struct fab_cond c = shift_cond_rel(seat, index, (struct shift_entry){0});
    fab_wake(seat->ep, c.addr, c.mask, UINT16_MAX);
}

/* ---- tokens ---- */

static fab_addr counter_addr(const struct seat *seat, uint64_t index)
{
    return shift_addr(seat, index) + 8;
}

/* Exclusive ones take the next even number, shared ones the odd one above what is there. */
static uint64_t token_of(const struct seat *seat, const struct hold *h, uint64_t counter)
{
    return seat->space->token_base + (h->mode == PAWL_EXCLUSIVE ? 2 * (counter + 1) : 2 * counter + 1);
}

/* A number drawn in vain is left out: numbers need not be successive. Drawn after the step: no hold between that step's grant and
 * this one's end draws, and those before have drawn. A READ may pass the step on some fabrics; there it is an addition of 0, which
 * does not, and needs no fence. */
unsigned shift_op_draw(const struct seat *seat, const struct hold *h, struct fab_op *op, uint64_t *drawn)
{
    if (shift_form(seat)->rel_bits == 64 || fab_is_shm(seat->ep))
        return 0;
    fab_addr addr = counter_addr(seat, h->index);
    bool exclusive = h->mode == PAWL_EXCLUSIVE;
    if (exclusive || !fab_has(seat->ep->caps, FAB_ORDERED))
        *op = (struct fab_op){.verb = FAB_FAA, .width = 8, .again = true, .addr = addr, .swap = exclusive};
    else
        *op = (struct fab_op){.verb = FAB_READ, .len = 8, .again = true, .addr = addr, .buf = drawn};
    return 1;
}

static int token_beside(const struct seat *seat, const struct hold *h, uint64_t *token)
{
    fab_addr counter = counter_addr(seat, h->index);
    for (;;) {
        uint64_t was;
        int rc = h->mode == PAWL_EXCLUSIVE ? fab_faa64(seat->ep, counter, 1, &was) : fab_read64(seat->ep, counter, &was);
        if (!rc) {
            *token = token_of(seat, h, was);
            return 0;
        }
        if ((rc = seat_retry(seat, rc)))
            return rc;
    }
}

static void note_token(const struct seat *seat, const struct hold *h, uint64_t token)
{
    if (h->mode == PAWL_EXCLUSIVE)
        fab_own_store64(seat->ep, shift_token_addr(seat_desc_addr(seat, h->record)), token);
}

int shift_token(const struct seat *seat, const struct hold *h, struct shift_entry seen, uint64_t *token)
{
    uint64_t t = seat->space->token_base + seen.rel + 1;
    int rc = shift_form(seat)->rel_bits < 64 ? token_beside(seat, h, &t) : 0;
    if (rc)
        return rc;
    note_token(seat, h, t);
    *token = t;
    return 0;
}

void shift_token_drawn(const struct seat *seat, struct hold *h, uint64_t drawn)
{
    h->token = token_of(seat, h, drawn);
    note_token(seat, h, h->token);
}

/* ---- records ---- */

int shift_publish_and(const struct seat *seat, const struct hold *h, enum record_state state, struct fab_op *ops, unsigned n)
{
    int rc = hold_publish(seat, h, state);
    fab_keep_order(seat->ep, ops, n);
    return rc ? rc : fab_batch(seat->ep, ops, n);
}

int shift_publish_joining(const struct seat *seat, const struct hold *h, struct fab_op *ops, unsigned n)
{
    int rc = hold_publish(seat, h, RECORD_TRY_X);
    shift_clear_note(seat, h);
    fab_keep_order(seat->ep, ops, n);
    return rc ? rc : fab_batch(seat->ep, ops, n);
}

int shift_claim(const struct seat *seat, const struct hold *h, enum record_state from, enum record_state to)
{
    if (!hold_is(seat, h, from))
        return -PAWL_ENOTOWNER;
    if (from == RECORD_HELD_X && fab_own_load64(seat->ep, shift_token_addr(seat_desc_addr(seat, h->record))) != h->token)
        return -PAWL_ENOTOWNER;
    return hold_change(seat, h, from, to);
}
