/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between clients (3.2). The paper SENDs; here a note is one WRITE into the receiver's descriptor, which lies in the
 * receiver's own memory. Either it arrives or the sender knows that it may not have. It needs no posted buffers, and no thread that
 * receives: the receiver reads its own memory when it wants to. A note may be late, or come from a session that is long lost; so it
 * names the lock, its era and the attempt that it is for. */
#include "designs/shiftlock/shiftlock.h"
#include "lib/hash.h"

#include <errno.h>

#define WHAT_ERA_SHIFT 40
#define WHAT_KIND_SHIFT 56

static uint64_t what_of(uint64_t index, uint32_t era, enum shift_kind kind)
{
    return (uint64_t)kind << WHAT_KIND_SHIFT | (uint64_t)era << WHAT_ERA_SHIFT | index;
}

/* Includes the life of the lock memory: after that was lost, everything counts from 0 again. Never 0. */
static uint64_t sum_of(const struct seat *seat, const struct shift_note *n)
{
    uint64_t sum = mix64(seat->space->token_base ^ n->nonce);
    sum = mix64(sum ^ n->what);
    sum = mix64(sum ^ n->value);
    return mix64(sum ^ n->extra) | 1;
}

/* Where a session's descriptors are. The address in memory may be that of an earlier session in the slot: `again` reads it anew. */
static int find_home(const struct seat *seat, uint32_t slot, bool again, uint64_t *home)
{
    struct sighting *seen = seat->me->seen ? &seat->me->seen[slot] : NULL;
    *home = 0;
    if (fab_is_shm(seat->ep))
        return 0;
    if (seen && !again)
        *home = __atomic_load_n(&seen->home, __ATOMIC_RELAXED);
    if (*home)
        return 0;
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, home), home);
    if (!rc && seen)
        __atomic_store_n(&seen->home, *home, __ATOMIC_RELAXED);
    return rc;
}

int shift_find_desc(const struct seat *seat, uint32_t name, bool again, fab_addr *out)
{
    const struct shift_form *f = shift_form(seat);
    const struct space *s = seat->space;
    uint32_t slot = shift_name_slot(f, name), record = shift_name_record(f, name);
    uint64_t home;
    if (slot >= s->slot_count || record >= s->record_count)
        return -EFAULT; /* foreign code has overwritten the memory */
    int rc = find_home(seat, slot, again, &home);
    if (rc)
        return rc;
    if (!home)
        home = s->descs + (uint64_t)slot * s->record_count * s->desc_size;
    *out = home + (uint64_t)record * s->desc_size;
    return 0;
}

static struct shift_note signed_note(const struct seat *seat, uint64_t index, uint32_t era, enum shift_kind kind,
                                     struct shift_note note)
{
    note.what = what_of(index, era, kind);
    note.sum = sum_of(seat, &note);
    return note;
}

void shift_post_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, enum shift_kind kind,
                     struct shift_note note)
{
    note = signed_note(seat, index, era, kind, note);
    fab_post(seat->ep, at, &note, sizeof note);
}

int shift_leave_and_look(const struct seat *seat, fab_addr to, uint64_t index, uint32_t era, enum shift_kind kind,
                         struct shift_note note, fab_addr at, struct shift_look *look)
{
    struct shift_note found;
    note = signed_note(seat, index, era, kind, note);
    struct fab_op ops[] = {{.verb = FAB_WRITE, .len = sizeof note, .buf = &note, .addr = to},
                           {.verb = FAB_READ, .len = sizeof found, .buf = &found, .addr = at}};
    assert(shift_is_far(seat, at) && look->known);
    int rc = fab_batch(seat->ep, ops, countof(ops));
    if (!rc)
        look->note = found;
    return rc;
}

int shift_leave_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, enum shift_kind kind,
                     struct shift_note note)
{
    note = signed_note(seat, index, era, kind, note);
    int rc = fab_write(seat->ep, at, &note, sizeof note);
    if (!rc)
        fab_wake(seat->ep, at + offsetof(struct shift_note, sum), UINT32_MAX, UINT16_MAX);
    return rc;
}

bool shift_is_far(const struct seat *seat, fab_addr at)
{
    return !fab_is_shm(seat->ep) && FAB_NODE(at) != seat->ep->node;
}

/* The first load fetches the line, the others find it. Should the note change meanwhile, its sum is wrong. */
static struct shift_note load(const struct seat *seat, fab_addr at)
{
    if (shift_is_far(seat, at)) {
        struct shift_note far;
        return fab_read(seat->ep, at, &far, sizeof far) ? (struct shift_note){0} : far; /* an error surfaces at the next verb */
    }
    struct shift_note n = {.sum = fab_local_load64(seat->ep, at + offsetof(struct shift_note, sum))};
    n.nonce = fab_own_load64(seat->ep, at + offsetof(struct shift_note, nonce));
    n.what = fab_own_load64(seat->ep, at + offsetof(struct shift_note, what));
    n.value = fab_own_load64(seat->ep, at + offsetof(struct shift_note, value));
    n.extra = fab_own_load64(seat->ep, at + offsetof(struct shift_note, extra));
    return n;
}

bool shift_read_note(const struct seat *seat, fab_addr at, uint64_t index, uint32_t era, const struct shift_look *look,
                     struct shift_note *out)
{
    struct shift_note n = look && look->known ? look->note : load(seat, at);
    if (n.sum != sum_of(seat, &n))
        return false;
    bool ours = n.what == what_of(index, era, shift_note_kind(&n));
    if (!ours && !shift_errs(seat, SHIFT_NAMELESS))
        return false;
    *out = n;
    return true;
}

/* The sum is wrong without the nonce. Its first word: the record lies before it, and both are then one WRITE. */
void shift_clear_note(const struct seat *seat, const struct hold *h)
{
    fab_addr next = seat_desc_addr(seat, h->record) + offsetof(struct shift_desc, next);
    fab_local_store64(seat->ep, next + offsetof(struct shift_note, nonce), 0);
}

/* First word and last: whichever part of a torn note comes second changes one of them. */
void shift_look_note(const struct seat *seat, fab_addr at, struct shift_look *out)
{
    fab_addr sum = at + offsetof(struct shift_note, sum), nonce = at + offsetof(struct shift_note, nonce);
    uint64_t first, last;
    out->n = 2;
    out->known = shift_is_far(seat, at);
    if (out->known) {
        out->note = load(seat, at);
        first = out->note.sum;
        last = out->note.nonce;
    } else {
        first = fab_local_load64(seat->ep, sum);
        last = fab_local_load64(seat->ep, nonce);
    }
    out->conds[0] = (struct fab_cond){.addr = sum, .mask = UINT32_MAX, .value = first & UINT32_MAX};
    out->conds[1] = (struct fab_cond){.addr = nonce, .mask = UINT32_MAX, .value = last & UINT32_MAX};
}

int shift_wait_note(const struct seat *seat, fab_addr at, struct shift_look *look, uint64_t deadline)
{
    if (!look->known)
        return fab_wait_any(seat->ep, look->conds, look->n, deadline);
    struct shift_note *n = &look->note;
    uint64_t words[] = {n->nonce, n->what, n->value, n->extra, n->sum};
    static_assert(sizeof words == sizeof *n, "every word of a note is watched");
    int rc = fab_watch(seat->ep, at, words, countof(words), deadline);
    if (!rc)
        *n = (struct shift_note){words[0], words[1], words[2], words[3], words[4]};
    return rc;
}

/* ---- the owner's own notes ---- */

static fab_addr own(const struct seat *seat, const struct hold *h, size_t offset)
{
    return seat_desc_addr(seat, h->record) + offset;
}

#define WRITERS_SHIFT 4

void shift_remember(const struct seat *seat, const struct hold *h, struct shift_entry e, struct shift_run run)
{
    u128 word = shift_pack(shift_form(seat), e);
    fab_private_store64(seat->ep, own(seat, h, offsetof(struct shift_desc, mine[0])), (uint64_t)word);
    fab_private_store64(seat->ep, own(seat, h, offsetof(struct shift_desc, mine[1])), (uint64_t)(word >> 64));
    fab_private_store64(seat->ep, own(seat, h, offsetof(struct shift_desc, writers)), run.writers << WRITERS_SHIFT | run.lag);
}

struct shift_entry shift_recall(const struct seat *seat, const struct hold *h, struct shift_run *run)
{
    uint64_t low = fab_own_load64(seat->ep, own(seat, h, offsetof(struct shift_desc, mine[0])));
    uint64_t high = fab_own_load64(seat->ep, own(seat, h, offsetof(struct shift_desc, mine[1])));
    uint64_t both = fab_own_load64(seat->ep, own(seat, h, offsetof(struct shift_desc, writers)));
    *run = (struct shift_run){.writers = both >> WRITERS_SHIFT, .lag = (unsigned)field_get(both, 0, WRITERS_SHIFT)};
    return shift_unpack(shift_form(seat), (u128)high << 64 | low);
}

void shift_join(const struct seat *seat, const struct hold *h, uint64_t rel)
{
    fab_private_store64(seat->ep, own(seat, h, offsetof(struct shift_desc, joined)), rel);
}

uint64_t shift_joined(const struct seat *seat, const struct hold *h)
{
    return fab_own_load64(seat->ep, own(seat, h, offsetof(struct shift_desc, joined)));
}
