/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/session.h"
#include "cluster/life.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static fab_addr lease_addr(const struct seat *seat, uint32_t slot)
{
    return space_slot_addr(seat->space, slot) + offsetof(struct slot, lease);
}

/* ---- opening ---- */

/* The previous owner's records mean nothing to the new session. While the slot is TAKEN no session reads them. */
static int clear_records(const struct seat *seat, uint32_t slot, fab_addr home)
{
    const struct space *s = seat->space;
    if (seat_records_home(seat)) { /* visible before the slot says LIVE */
        for (uint32_t i = 0; i < s->record_count; i++)
            fab_own_store64(seat->ep, home + (uint64_t)i * s->desc_size + s->desc_record, 0);
        return 0;
    }
    uint64_t zeroes[64] = {0};
    for (uint32_t at = 0; at < seat->space->record_count; at += countof(zeroes)) {
        uint32_t n = seat->space->record_count - at < countof(zeroes) ? seat->space->record_count - at : countof(zeroes);
        int rc = fab_write(seat->ep, space_record_addr(seat->space, slot, at), zeroes, (uint16_t)(n * sizeof *zeroes));
        if (rc)
            return rc;
    }
    return 0;
}

/* Descriptors of sessions without memory of their own lie in the space. */
static fab_addr home_of(const struct seat *seat, uint32_t slot, const struct session_params *p)
{
    fab_addr in_space = seat->space->descs + (uint64_t)slot * seat->space->record_count * seat->space->desc_size;
    if (seat->ep->node == FAB_NODE_ELSEWHERE)
        in_space = FAB_ADDR(FAB_NODE_HELD, FAB_OFFSET(in_space));
    return p->home ? p->home : in_space;
}

static int describe(const struct seat *seat, uint32_t slot, const struct session_params *p)
{
    struct slot s = {.lease_ns = p->lease_ns, .opened = world_birth(seat->world) >> 32, .home = home_of(seat, slot, p)};
    strncpy(s.label, p->label ? p->label : "", sizeof s.label - 1);
    fab_addr at = space_slot_addr(seat->space, slot) + offsetof(struct slot, lease_ns);
    return fab_write(seat->ep, at, &s.lease_ns, offsetof(struct slot, life) - offsetof(struct slot, lease_ns));
}

static int set_state(const struct seat *seat, uint32_t slot, uint64_t from, enum slot_state state)
{
    uint64_t old;
    int rc = seat_sure_cas(seat, lease_addr(seat, slot), from, lease_word(state, lease_epoch(from), lease_stamp(from)), &old);
    return rc ? rc : old == from;
}

/* Lease and proof change in one step, so that other sessions that see the slot taken know which peer to fence. `again`: the
 * connection broke while the session claimed this slot or moved in, and it does not know how far it came. 1: taken, *taken its
 * lease. */
static int claim(const struct seat *seat, uint32_t slot, const struct session_params *p, bool again, uint64_t *taken)
{
    u128 expect, old;
    int rc = fab_read128(seat->ep, lease_addr(seat, slot), &expect);
    if (rc)
        return rc;
    uint64_t was = (uint64_t)expect;
    bool own = (uint64_t)(expect >> 64) == p->proof;
    if (own && (lease_state(was) == SLOT_TAKEN || (lease_state(was) == SLOT_LIVE && again))) {
        *taken = was;
        return 1;
    }
    if (own && lease_state(was) == SLOT_LOST && again) { /* it took longer than a lease, and has held nothing */
        rc = set_state(seat, slot, was, SLOT_FREE);
        return rc < 0 ? rc : 0;
    }
    if (lease_state(was) != SLOT_FREE)
        return 0;
    uint32_t epoch = (lease_epoch(was) + 1) & (uint32_t)FIELD_MAX(LEASE_EPOCH_BITS);
    uint64_t word = lease_word(SLOT_TAKEN, epoch, lease_stamp_for(seat, p->lease_ns));
    u128 desired = (u128)p->proof << 64 | word;
    rc = fab_cas128(seat->ep, lease_addr(seat, slot), expect, desired, &old);
    if (rc || old != expect)
        return rc;
    *taken = word;
    return 1;
}

/* `taken` may be LIVE if the client did not hear that it had moved in already. */
ONCE static int move_in(struct seat *seat, uint32_t slot, uint64_t taken, const struct session_params *p)
{
    assert(lease_state(taken) == SLOT_TAKEN || lease_state(taken) == SLOT_LIVE); /* I6 */
    uint64_t old, live = lease_word(SLOT_LIVE, lease_epoch(taken), lease_stamp_for(seat, p->lease_ns));
    int rc = clear_records(seat, slot, home_of(seat, slot, p));
    if (!rc)
        rc = describe(seat, slot, p);
    if (!rc)
        rc = seat_sure_cas(seat, lease_addr(seat, slot), taken, live, &old);
    if (rc)
        return rc;
    if (old != taken)
        return -PAWL_ELOST; /* it took longer than a lease */
    struct session *me = seat->me;
    me->slot = slot;
    me->epoch = lease_epoch(live);
    me->lease_ns = p->lease_ns;
    me->home = home_of(seat, slot, p);
    me->ended = false;
    me->records_used = 0;
    me->lease_copy = live;
    me->lease = fab_is_shm(seat->ep) ? fab_shm_ptr(seat->ep, lease_addr(seat, slot)) : &me->lease_copy;
    if (fab_is_shm(seat->ep))
        me->shadow = fab_shm_ptr(seat->ep, space_record_addr(seat->space, slot, 0));
    else
        memset(me->shadow, 0, seat->space->record_count * sizeof *me->shadow);
    if (fab_is_shm(seat->ep) && seat->space->range_units)
        me->ranges = fab_shm_ptr(seat->ep, space_range_addr(seat->space, slot, 0));
    if (fab_is_shm(seat->ep) && seat->space->desc_size)
        me->descs = fab_shm_ptr(seat->ep, seat->space->descs + (uint64_t)slot * seat->space->record_count * seat->space->desc_size);
    if (me->design_state)
        memset(me->design_state, 0, seat->space->design->session_bytes);
    return 0;
}

static struct slot *slot_here(const struct seat *seat, uint32_t slot)
{
    return fab_shm_ptr(seat->ep, space_slot_addr(seat->space, slot));
}

/* Declared lost before it was used: there is nothing to recover, and others would leave the slot alone until this process ends. */
static void give_back(const struct seat *seat, uint32_t slot, uint64_t taken)
{
    uint64_t lease;
    if (!fab_read64(seat->ep, lease_addr(seat, slot), &lease) && lease_state(lease) == SLOT_LOST &&
        lease_epoch(lease) == lease_epoch(taken))
        set_state(seat, slot, lease, SLOT_FREE);
}

/* 1: the session's now; 0: not available. */
static int try_slot(struct seat *seat, uint32_t slot, const struct session_params *p)
{
    uint64_t taken = 0;
    bool kernel = seat->ep->caps & FAB_KERNEL_LIFE;
    if (kernel) {
        uint64_t lease;
        fab_read64(seat->ep, lease_addr(seat, slot), &lease);
        if (lease_state(lease) != SLOT_FREE || life_take(slot_here(seat, slot)))
            return 0;
    }
    bool again = seat->me->claims == slot + 1;
    seat->me->claims = slot + 1;
    int rc = claim(seat, slot, p, again, &taken);
    if (rc > 0) {
        rc = move_in(seat, slot, taken, p);
        rc = rc ? rc : 1;
    }
    if (rc == -PAWL_ELOST && kernel) { /* it was stopped for longer than a lease before the session began: another slot */
        give_back(seat, slot, taken);
        rc = 0;
    }
    if (rc <= 0 && kernel)
        life_drop(slot_here(seat, slot));
    if (rc >= 0)
        seat->me->claims = 0;
    return rc;
}

static int move_in_assigned(struct seat *seat, const struct session_params *p)
{
    const struct session_place *place = p->place;
    if (place->life != seat->space->token_base)
        return -ESTALE;
    return place->slot < seat->space->slot_count ? move_in(seat, place->slot, place->lease, p) : -EINVAL;
}

ONCE int session_open(struct seat *seat, const struct session_params *p)
{
    if (!p->place && !fab_has(seat->ep->caps, FAB_ATOMIC128))
        return -EOPNOTSUPP;
    if (p->lease_ns == PAWL_LEASE_FOREVER && !(seat->ep->caps & FAB_KERNEL_LIFE))
        return -EINVAL;
    if (p->lease_ns > seat->space->lease_ns && !(seat->ep->caps & FAB_SHARED_CLOCK))
        return -EINVAL;
    size_t bytes = seat->space->design->session_bytes;
    if (bytes && !seat->me->design_state && !(seat->me->design_state = calloc(1, bytes)))
        return -ENOMEM;
    seat->me->slot = UINT32_MAX; /* none yet: session_tend looks after all slots */
    seat->me->lease_copy = 0;
    seat->me->lease = &seat->me->lease_copy;
    if (p->place)
        return move_in_assigned(seat, p);
    /* Sessions that open at the same time start at different slots. One that tries again starts at the slot that it may have
     * claimed when the connection broke: a slot before it may be free by now, and no session frees a second slot of a live client.
     */
    uint32_t start = seat->me->claims ? seat->me->claims - 1 : (uint32_t)(mix64(p->proof) % seat->space->slot_count);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < seat->space->slot_count; i++) {
            int rc = try_slot(seat, (start + i) % seat->space->slot_count, p);
            if (rc)
                return rc > 0 ? 0 : rc;
        }
        if (pass == 0)
            session_tend(seat); /* the dead may have left slots */
    }
    return -PAWL_ELIMIT;
}

/* ---- assigning ---- */

struct applicant {
    const struct seat *seat;
    uint64_t proof;
    bool found;
    struct session_place place;
};

/* A slot that is not free: is it the applicant's? */
static int is_applicants(void *ctx, uint32_t slot, uint64_t lease)
{
    struct applicant *a = ctx;
    uint64_t proof;
    int rc = fab_read64(a->seat->ep, space_slot_addr(a->seat->space, slot) + offsetof(struct slot, proof), &proof);
    if (rc || proof != a->proof)
        return rc;
    a->found = true;
    a->place = (struct session_place){.slot = slot, .lease = lease, .life = a->seat->space->token_base};
    return 1;
}

/* The node alone takes slots here. So it writes the proof first, while the slot is free and the proof means nothing. 1: taken. */
static int claim_alone(const struct seat *seat, uint32_t slot, const struct session_params *p, uint64_t *taken)
{
    uint64_t was, old;
    int rc = fab_read64(seat->ep, lease_addr(seat, slot), &was);
    if (rc || lease_state(was) != SLOT_FREE)
        return rc;
    uint32_t epoch = (lease_epoch(was) + 1) & (uint32_t)FIELD_MAX(LEASE_EPOCH_BITS);
    uint64_t word = lease_word(SLOT_TAKEN, epoch, lease_stamp_for(seat, p->lease_ns));
    rc = fab_write64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, proof), p->proof);
    if (!rc)
        rc = seat_sure_cas(seat, lease_addr(seat, slot), was, word, &old);
    if (rc || old != was)
        return rc;
    *taken = word;
    return 1;
}

int session_assign(struct seat *node, uint64_t proof, uint64_t lease_ns, struct session_place *out)
{
    const uint32_t slots = node->space->slot_count;
    const struct session_params p = {.lease_ns = lease_ns, .proof = proof};
    struct applicant a = {.seat = node, .proof = proof};
    if (lease_ns > node->space->lease_ns)
        return -EINVAL;
    int rc = seat_slots(node, is_applicants, &a);
    if (rc < 0)
        return rc;
    if (a.found) {
        *out = a.place;
        return lease_state(a.place.lease) == SLOT_LOST ? -PAWL_ELOST : 0;
    }
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < slots; i++) {
            uint32_t slot = (uint32_t)((mix64(proof) + i) % slots);
            rc = fab_has(node->ep->caps, FAB_ATOMIC128) ? claim(node, slot, &p, false, &out->lease)
                                                        : claim_alone(node, slot, &p, &out->lease);
            if (rc > 0) {
                out->slot = slot;
                out->life = node->space->token_base;
            }
            if (rc)
                return rc > 0 ? 0 : rc;
        }
        if (pass == 0)
            session_tend(node); /* the dead may have left slots */
    }
    return -PAWL_ELIMIT;
}

/* ---- ending ---- */

ONCE int session_close(const struct seat *seat)
{
    struct session *me = seat->me;
    uint64_t lease;
    bool lived = false;
    assert(me->slot < seat->space->slot_count);
    int rc = fab_read64(seat->ep, lease_addr(seat, me->slot), &lease);
    if (!rc && lease_state(lease) == SLOT_LIVE && lease_epoch(lease) == me->epoch) {
        rc = set_state(seat, me->slot, lease, SLOT_LOST);
        lived = rc > 0;
    }
    if (rc >= 0 && seat->space->design->recover)
        rc = seat->space->design->recover(seat, me->slot, me->epoch);
    if (!rc)
        rc = fab_read64(seat->ep, lease_addr(seat, me->slot), &lease);
    if (!rc && lease_state(lease) == SLOT_LOST && lease_epoch(lease) == me->epoch)
        rc = set_state(seat, me->slot, lease, SLOT_FREE);
    if (seat->ep->caps & FAB_KERNEL_LIFE)
        life_drop(slot_here(seat, me->slot));
    if (lived && (rc == -PAWL_ELOST || rc == -FAB_EFENCED))
        return 0; /* another session has found it lost and does the rest: it was fenced for that */
    return rc < 0 ? rc : 0;
}

/* ---- looking after the others ---- */

static int any_record(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    return 1;
}

static int tend_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    const struct seat *seat = ctx;
    if (slot == seat->me->slot)
        return 0;
    int dead = seat_peer_dead(seat, slot, &lease);
    if (dead <= 0 || lease_state(lease) != SLOT_LOST)
        return dead < 0 ? dead : 0;
    const struct design *design = seat->space->design;
    int rc = 0;
    if (design->recover)
        rc = design->recover(seat, slot, lease_epoch(lease));
    else if (!(design->features & DESIGN_RECOVERY)) /* its locks stay held for ever, and so does the slot that they name */
        rc = seat_records(seat, slot, any_record, NULL);
    if (rc)
        return rc < 0 ? rc : 0;
    /* Recovers once more after the session was fenced: verbs in flight may have arrived since. Then the slot can serve another. */
    rc = seat_fence(seat, slot, lease_epoch(lease));
    if (rc)
        return rc == -EAGAIN ? 0 : rc;
    rc = design->recover ? design->recover(seat, slot, lease_epoch(lease)) : 0;
    assert(lease_state(lease) == SLOT_LOST); /* I6: lost, recovered from and fenced before it is free */
    if (!rc)
        rc = set_state(seat, slot, lease, SLOT_FREE);
    return rc < 0 ? rc : 0;
}

int session_tend(const struct seat *seat)
{
    return seat_slots(seat, tend_slot, (void *)seat);
}

int session_tend_some(const struct seat *seat, uint32_t *next)
{
    uint32_t from = *next % seat->space->slot_count;
    uint32_t to = from + (uint32_t)min_u64(seat->space->slot_count - from, SESSION_TEND_AT_ONCE);
    *next = to;
    return seat_slots_of(seat, from, to, tend_slot, (void *)seat);
}

static int condemn(const struct seat *seat, uint32_t slot, uint32_t epoch, uint64_t *lease)
{
    if (slot >= seat->space->slot_count)
        return -EINVAL;
    int rc = fab_read64(seat->ep, lease_addr(seat, slot), lease);
    if (!rc && (lease_state(*lease) != SLOT_LIVE || lease_epoch(*lease) != epoch))
        return -ENOENT;
    if (!rc)
        rc = set_state(seat, slot, *lease, SLOT_LOST);
    return rc < 0 ? rc : rc ? 0 : -EAGAIN;
}

int session_break(const struct seat *seat, uint32_t slot, uint32_t epoch)
{
    uint64_t lease;
    int rc = condemn(seat, slot, epoch, &lease);
    if (rc)
        return rc;
    rc = seat->space->design->recover ? seat->space->design->recover(seat, slot, lease_epoch(lease)) : 0;
    return rc < 0 ? rc : 0; /* more than 0: sessions that may recover from it do so */
}

int session_condemn(const struct seat *seat, uint32_t slot, uint32_t epoch)
{
    uint64_t lease;
    return condemn(seat, slot, epoch, &lease);
}
