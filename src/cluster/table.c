/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/table.h"
#include "lib/hash.h"

#include <errno.h>
#include <string.h>

/* ---- meta: state 3, generation 27; and of the session whose work is under way: tag 4, slot 12, epoch 18 ---- */

#define META_GENERATION_SHIFT 34
#define META_GENERATION_BITS 27
#define META_TAG_SHIFT 30 /* tells insertions of one session apart that are under way at the same time */
#define META_TAG_BITS 4
#define META_SLOT_SHIFT 18
#define META_SLOT_BITS 12
#define META_EPOCH_BITS 18

/* How far a key may lie from its home. At three quarters full, sequences beyond this practically do not occur; a table that is
 * fuller than it was made for forgets locks instead of searching longer. */
#define PROBE_MAX 256

#define RAISE_NS (2 * NS_PER_S)          /* long for a step of another session, short for a caller with a deadline */
#define INSERT_TRIES_MAX 1000            /* against others that insert at the same time */
#define INSERT_PAUSE_NS (20 * NS_PER_US) /* for another's insertion of the same key */

static enum cell_state meta_state(uint64_t meta)
{
    return (enum cell_state)(meta >> CELL_STATE_SHIFT);
}
static uint64_t meta_generation(uint64_t meta)
{
    return field_get(meta, META_GENERATION_SHIFT, META_GENERATION_BITS);
}

static uint64_t meta_make(enum cell_state state, uint64_t generation)
{
    return (uint64_t)state << CELL_STATE_SHIFT | generation << META_GENERATION_SHIFT;
}

/* The same cell in a state that is ours to end. */
static uint64_t meta_ours(const struct seat *seat, enum cell_state state, uint64_t generation)
{
    return meta_make(state, generation) | (uint64_t)seat->me->slot << META_SLOT_SHIFT |
           (seat->me->epoch & FIELD_MAX(META_EPOCH_BITS));
}

static uint64_t meta_claim(const struct seat *seat, uint64_t meta)
{
    uint64_t tag = __atomic_add_fetch(&seat->me->insertions, 1, __ATOMIC_RELAXED) & FIELD_MAX(META_TAG_BITS);
    return meta_ours(seat, CELL_CLAIMED, (meta_generation(meta) + 1) & FIELD_MAX(META_GENERATION_BITS)) | tag << META_TAG_SHIFT;
}

/* Another state of the same work: same generation, same session. */
static uint64_t meta_turn(uint64_t meta, enum cell_state state)
{
    return (meta & FIELD_MAX(CELL_STATE_SHIFT)) | (uint64_t)state << CELL_STATE_SHIFT;
}

/* ---- cells ---- */

struct bucket {
    uint64_t key, meta;
};

static u128 wide(struct bucket b)
{
    return (u128)b.meta << 64 | b.key;
}

static fab_addr cell_addr(const struct table *t, uint64_t i)
{
    return t->cells + i * t->cell_bytes;
}
static fab_addr name_addr(const struct table *t, uint64_t i)
{
    return t->names + i * LAYOUT_NAME_BYTES;
}

/* Meta is read on both sides of the key: the same twice means that they belong together. */
static int read_bucket(const struct seat *seat, const struct table *t, uint64_t i, struct bucket *out)
{
    fab_addr at = cell_addr(t, i);
    if (!fab_is_shm(seat->ep)) {
        u128 both;
        int rc = fab_read128(seat->ep, at, &both);
        *out = (struct bucket){(uint64_t)both, (uint64_t)(both >> 64)};
        return rc;
    }
    uint64_t again;
    do {
        fab_read64(seat->ep, at + 8, &out->meta);
        fab_read64(seat->ep, at, &out->key);
        fab_read64(seat->ep, at + 8, &again);
    } while (unlikely(again != out->meta));
    return 0;
}

/* 1: changed; 0: it was no longer `from`. After an unknown outcome it tries again while the session lives, or a claim could stay
 * behind without its session's knowledge. Generation and claim make the session's own value recognisable. */
static int change_bucket(const struct seat *seat, const struct table *t, uint64_t i, struct bucket from, struct bucket to)
{
    bool doubt = false;
    for (;;) {
        u128 old;
        int rc = fab_cas128(seat->ep, cell_addr(t, i), wide(from), wide(to), &old);
        if (!rc)
            return old == wide(from) || (doubt && old == wide(to));
        doubt = rc == -FAB_EUNKNOWN;
        rc = seat_retry(seat, rc);
        if (rc)
            return rc;
    }
}

/* ---- keys ---- */

void table_init(struct table *t, const struct layout_header *h, fab_addr base)
{
    *t = (struct table){
        .cells = base + h->cells,
        .names = base + h->names,
        .floor = base + offsetof(struct layout_header, token_floor),
        .buckets = h->buckets,
        .capacity = h->capacity,
        .home_shift = 64 - (uint32_t)__builtin_ctzll(h->buckets),
        .cell_bytes = h->cell_bytes,
        .keys = (enum pawl_keys)h->keys,
    };
}

int table_check_key(const struct table *t, pawl_key key)
{
    if ((t->keys == PAWL_KEYS_NAMED) != (key.name != NULL))
        return -EINVAL;
    if (key.name)
        return key.id == 0 ? -EINVAL : key.id > PAWL_NAME_MAX ? -ENAMETOOLONG : 0;
    return t->keys == PAWL_KEYS_DENSE && key.id >= t->capacity ? -ERANGE : 0;
}

/* The content of the bucket, and the position at which the search begins. */
static uint64_t bucket_key(pawl_key key)
{
    return key.name ? hash_bytes(key.name, key.id, 0) : key.id;
}
static uint64_t home(const struct table *t, uint64_t bucket_key)
{
    return table_home(bucket_key, t->home_shift);
}

/* Names are padded with zeroes to whole words and begin with their length, so that equal names are equal words. */
struct name_words {
    uint64_t words[LAYOUT_NAME_BYTES / 8];
    uint16_t bytes; /* in use, a multiple of 8 */
};

static void pack_name(pawl_key key, struct name_words *out)
{
    assert(key.name && key.id <= PAWL_NAME_MAX);
    out->bytes = (uint16_t)round_up(key.id + 1, UINT64_C(8));
    out->words[out->bytes / 8 - 1] = 0;
    unsigned char *at = (unsigned char *)out->words;
    at[0] = (unsigned char)key.id;
    memcpy(at + 1, key.name, key.id);
}

enum { KEY_OTHER, KEY_SAME, KEY_CHANGED };

/* Whether the cell, which had this bucket, has this very key. KEY_CHANGED: its bucket is another by now, so there is no telling,
 * and it must be looked at again: it may have been condemned, and be the key's all the same. */
static int same_key(const struct seat *seat, const struct table *t, uint64_t i, struct bucket b, const struct name_words *name)
{
    if (!name)
        return KEY_SAME;
    uint64_t there[LAYOUT_NAME_BYTES / 8], meta;
    int rc = fab_read(seat->ep, name_addr(t, i), there, name->bytes);
    if (!rc)
        rc = fab_read64(seat->ep, cell_addr(t, i) + 8, &meta);
    if (rc)
        return rc;
    if (meta != b.meta)
        return KEY_CHANGED;
    return memcmp(there, name->words, name->bytes) ? KEY_OTHER : KEY_SAME;
}

/* ---- looking ---- */

static int find(const struct seat *seat, const struct table *t, uint64_t key, const struct name_words *name, struct cell *out)
{
    uint64_t start = home(t, key);
    for (uint64_t n = 0; n < PROBE_MAX && n < t->buckets; n++) {
        uint64_t i = (start + n) & (t->buckets - 1);
        struct bucket b = {0, 0};
        int rc = read_bucket(seat, t, i, &b);
        if (unlikely(rc))
            return rc;
        if (meta_state(b.meta) == CELL_EMPTY)
            return -ENOENT;
        bool live = meta_state(b.meta) == CELL_LIVE;
        if (b.key != key || (!live && meta_state(b.meta) != CELL_CONDEMNED))
            continue;
        rc = same_key(seat, t, i, b, name);
        if (rc < 0)
            return rc;
        if (rc == KEY_SAME) {
            *out = (struct cell){.index = i, .meta = b.meta};
            return live ? 0 : -EBUSY;
        }
        if (rc == KEY_CHANGED)
            n--;
    }
    return -ENOENT;
}

__attribute__((noinline)) static int find_name(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out)
{
    struct name_words name;
    pack_name(key, &name);
    return find(seat, t, bucket_key(key), &name, out);
}

int table_find(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out)
{
    if (t->keys == PAWL_KEYS_NAMED)
        return find_name(seat, t, key, out);
    if (t->keys == PAWL_KEYS_SPARSE)
        return find(seat, t, key.id, NULL, out);
    *out = (struct cell){.index = key.id};
    return 0;
}

int table_key_at(const struct seat *seat, const struct table *t, uint64_t index, char *name, uint64_t *id_or_len)
{
    if (t->keys == PAWL_KEYS_DENSE) {
        *id_or_len = index;
        return 1;
    }
    struct bucket b = {0, 0};
    int rc = read_bucket(seat, t, index, &b);
    if (rc || meta_state(b.meta) != CELL_LIVE)
        return rc;
    if (t->keys == PAWL_KEYS_SPARSE) {
        *id_or_len = b.key;
        return 1;
    }
    unsigned char bytes[LAYOUT_NAME_BYTES];
    _Alignas(8) uint64_t words[LAYOUT_NAME_BYTES / 8];
    struct cell p = {.index = index, .meta = b.meta};
    rc = fab_read(seat->ep, name_addr(t, index), words, sizeof words);
    if (!rc)
        rc = table_confirm(seat, t, &p);
    if (rc <= 0)
        return rc;
    memcpy(bytes, words, sizeof bytes);
    *id_or_len = bytes[0];
    memcpy(name, bytes + 1, bytes[0]);
    name[bytes[0]] = 0;
    return 1;
}

int table_generation(const struct seat *seat, const struct table *t, uint64_t index, uint64_t *out)
{
    const struct cell c = {.index = index};
    uint64_t meta = 0;
    int rc = t->keys == PAWL_KEYS_DENSE ? 0 : seat_read64(seat, table_meta_addr(t, &c), &meta);
    *out = meta_generation(meta);
    return seat_retry(seat, rc);
}

/* ---- forgetting ---- */

static int raise_floor(const struct seat *seat, const struct table *t, uint64_t token)
{
    uint64_t floor, old;
    int rc = fab_read64(seat->ep, t->floor, &floor);
    while (!rc && floor < token) {
        rc = fab_cas64(seat->ep, t->floor, floor, token, &old);
        if (rc == -FAB_EUNKNOWN)
            rc = fab_read64(seat->ep, t->floor, &old); /* it only rises: whatever it is now is a fact */
        else if (!rc && old == floor)
            break;
        floor = old;
    }
    return rc;
}

/* The session whose work is under way in this cell is gone, or has begun another life: 1. */
static int worker_gone(const struct seat *seat, uint64_t meta)
{
    uint32_t slot = (uint32_t)field_get(meta, META_SLOT_SHIFT, META_SLOT_BITS);
    uint64_t lease = 0;
    if (slot >= seat->space->slot_count)
        return -PAWL_ESEGMENT;
    int dead = slot == seat->me->slot ? 0 : seat_peer_dead(seat, slot, &lease);
    if (dead)
        return dead;
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), &lease);
    return rc ? rc : (lease_epoch(lease) & FIELD_MAX(META_EPOCH_BITS)) != field_get(meta, 0, META_EPOCH_BITS);
}

/* A cell that was condemned by a session that is gone becomes live again. */
static int lift_sentence(const struct seat *seat, const struct table *t, uint64_t i, struct bucket b)
{
    int rc = worker_gone(seat, b.meta);
    if (rc > 0)
        rc = change_bucket(seat, t, i, b, (struct bucket){b.key, meta_make(CELL_LIVE, meta_generation(b.meta))});
    return rc < 0 ? rc : 0;
}

/* Under the cell's own lock: 1 if it is dead now. */
static int execute(const struct seat *seat, const struct table *t, uint64_t i, struct bucket condemned)
{
    const struct design *design = seat->space->design;
    struct bucket dead = {condemned.key, meta_make(CELL_DEAD, meta_generation(condemned.meta))};
    struct hold h;
    int rc = hold_open(seat, i, &h);
    if (rc)
        return rc;
    h.mode = PAWL_EXCLUSIVE;
    rc = design->acquire(seat, &h, DEADLINE_TRY);
    if (rc) {
        if (rc != -PAWL_ELOST)
            hold_close(seat, &h);
        return rc == -PAWL_EHELD ? 0 : rc;
    }
    rc = raise_floor(seat, t, h.token); /* I2: before the cell can get another key */
    if (!rc)
        rc = change_bucket(seat, t, i, condemned, dead);
    int end = design->release(seat, &h);
    return rc < 0 ? rc : end ? end : rc;
}

/* Forgets the lock in this cell if no session holds it: 1. */
static int forget(const struct seat *seat, const struct table *t, uint64_t i)
{
    struct bucket b = {0, 0};
    int rc = read_bucket(seat, t, i, &b);
    if (!rc && meta_state(b.meta) == CELL_CONDEMNED)
        return lift_sentence(seat, t, i, b);
    if (rc || meta_state(b.meta) != CELL_LIVE)
        return rc;
    struct bucket condemned = {b.key, meta_ours(seat, CELL_CONDEMNED, meta_generation(b.meta))};
    rc = change_bucket(seat, t, i, b, condemned);
    if (rc <= 0)
        return rc;
    rc = execute(seat, t, i, condemned);
    if (rc <= 0) {
        int undo = change_bucket(seat, t, i, condemned, b); /* if it is no longer condemned, others declared this session lost */
        return rc ? rc : undo < 0 ? undo : 0;
    }
    return rc;
}

/* Makes a dead cell somewhere in the sequence. */
static int make_room(const struct seat *seat, const struct table *t, uint64_t key)
{
    if (!seat->space->design->raise)
        return -ENOSPC; /* what is made anew could not start above the tokens of what was forgotten */
    uint64_t start = home(t, key);
    for (uint64_t n = 0; n < PROBE_MAX && n < t->buckets; n++) {
        int rc = forget(seat, t, (start + n) & (t->buckets - 1));
        if (rc)
            return rc < 0 ? rc : 0;
    }
    return -ENOSPC;
}

/* ---- inserting ---- */

struct insertion {
    const struct seat *seat;
    const struct table *t;
    const struct name_words *name; /* null: the key is all there is */
    uint64_t key;
    uint64_t at;         /* the cell that it claimed */
    struct bucket claim; /* and the value that it wrote there */
};

/* Can nothing that this session began take effect any more? Its slot is free again, or serves another session, only once that
 * is certain, and then the new session need not be fenced. */
static int shut_out(const struct seat *seat, uint64_t meta)
{
    uint32_t slot = (uint32_t)field_get(meta, META_SLOT_SHIFT, META_SLOT_BITS);
    uint64_t lease;
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, lease), &lease);
    if (rc)
        return rc;
    bool same = (lease_epoch(lease) & FIELD_MAX(META_EPOCH_BITS)) == field_get(meta, 0, META_EPOCH_BITS);
    return !same || lease_state(lease) == SLOT_FREE || !seat_fence(seat, slot, lease_epoch(lease));
}

/* A claim, or a dropped one: once its session is certainly gone, the cell can be used again. */
static int clear_claim(const struct insertion *in, uint64_t i, struct bucket b)
{
    int rc = worker_gone(in->seat, b.meta);
    if (rc > 0 && meta_state(b.meta) == CELL_CLAIMED) {
        struct bucket zombie = {b.key, meta_turn(b.meta, CELL_ZOMBIE)};
        rc = change_bucket(in->seat, in->t, i, b, zombie);
        b = zombie;
    }
    if (rc > 0)
        rc = shut_out(in->seat, b.meta);
    if (rc > 0)
        rc = change_bucket(in->seat, in->t, i, b, (struct bucket){b.key, meta_make(CELL_DEAD, meta_generation(b.meta))});
    return rc < 0 ? rc : 0;
}

/* Claims the first cell that is free. 1: claimed; 0: another session was faster; -ENOSPC: there is none. */
static int claim_cell(struct insertion *in)
{
    uint64_t start = home(in->t, in->key);
    for (uint64_t n = 0; n < PROBE_MAX && n < in->t->buckets; n++) {
        uint64_t i = (start + n) & (in->t->buckets - 1);
        struct bucket b = {0, 0};
        int rc = read_bucket(in->seat, in->t, i, &b);
        if (!rc && (meta_state(b.meta) == CELL_CLAIMED || meta_state(b.meta) == CELL_ZOMBIE)) {
            rc = clear_claim(in, i, b);
            if (!rc)
                rc = read_bucket(in->seat, in->t, i, &b); /* it may be free now, and there may be no other */
        }
        if (rc)
            return rc;
        if (meta_state(b.meta) != CELL_EMPTY && meta_state(b.meta) != CELL_DEAD)
            continue;
        in->at = i;
        in->claim = (struct bucket){in->key, meta_claim(in->seat, b.meta)};
        return change_bucket(in->seat, in->t, i, b, in->claim);
    }
    return -ENOSPC;
}

/* Gives up the claim, whether or not another session has dropped it: nothing more is written there. */
static int give_way(const struct insertion *in)
{
    struct bucket gone = {in->key, meta_make(CELL_DEAD, meta_generation(in->claim.meta))};
    struct bucket zombie = {in->key, meta_turn(in->claim.meta, CELL_ZOMBIE)};
    int rc = change_bucket(in->seat, in->t, in->at, in->claim, gone);
    if (!rc)
        rc = change_bucket(in->seat, in->t, in->at, zombie, gone);
    return rc < 0 ? rc : 0;
}

/* Is there another cell for this key? 1: ours is the only claim; 0: it is not, or another's claim had to be dropped first. */
static int sole_claim(const struct insertion *in)
{
    uint64_t start = home(in->t, in->key);
    bool before = true; /* the cells before its own */
    for (uint64_t n = 0; n < PROBE_MAX && n < in->t->buckets; n++) {
        uint64_t i = (start + n) & (in->t->buckets - 1);
        struct bucket b = {0, 0};
        int rc = read_bucket(in->seat, in->t, i, &b);
        if (rc)
            return rc;
        if (i == in->at) {
            before = false;
            continue;
        }
        if (meta_state(b.meta) == CELL_EMPTY)
            break;
        if (b.key != in->key)
            continue;
        if (meta_state(b.meta) == CELL_LIVE || meta_state(b.meta) == CELL_CONDEMNED) {
            rc = same_key(in->seat, in->t, i, b, in->name);
            if (rc < 0 || rc == KEY_SAME)
                return rc < 0 ? rc : 0;
            if (rc == KEY_CHANGED)
                n--;
        } else if (meta_state(b.meta) == CELL_CLAIMED) {
            if (before)
                return 0;
            /* The claim further back gives way; should it commit first, the next look finds it live. */
            struct bucket zombie = {b.key, meta_turn(b.meta, CELL_ZOMBIE)};
            rc = change_bucket(in->seat, in->t, i, b, zombie);
            if (rc < 0)
                return rc;
            if (!rc)
                n--; /* it has changed: look at it again */
        }
    }
    return 1;
}

/* The key may have had a lock before that was forgotten: tokens must start above those of that lock (I2). */
static int raise_lock(const struct insertion *in)
{
    const struct design *design = in->seat->space->design;
    uint64_t floor;
    int rc = fab_read64(in->seat->ep, in->t->floor, &floor);
    if (rc || !floor || !design->raise)
        return rc;
    struct hold h;
    /* On shared memory another user of the segment may have written that the lock is held, and no session releases it then. */
    uint64_t until = fab_is_shm(in->seat->ep) ? add_saturating(world_now(in->seat->world), RAISE_NS) : DEADLINE_NEVER;
    do {
        rc = hold_open(in->seat, in->at, &h);
        if (rc)
            return rc;
        h.mode = PAWL_EXCLUSIVE;
        /* A session that still looks for the cell's former key may hold the lock; it finds out and releases it at once. */
        rc = design->acquire(in->seat, &h, until);
        if (rc && rc != -PAWL_ELOST) /* after a loss it may be held, and recovery needs the record */
            hold_close(in->seat, &h);
    } while (rc == DESIGN_LOOK_AGAIN); /* the claim is still ours */
    if (rc)
        return rc == -ETIMEDOUT ? -EAGAIN : rc;
    rc = design->raise(in->seat, &h, floor);
    int end = design->release(in->seat, &h);
    return rc ? rc : end;
}

/* One attempt. 1: inserted; 0: try again. */
static int insert_once(struct insertion *in, struct cell *out)
{
    int rc = claim_cell(in);
    if (rc <= 0)
        return rc;
    rc = in->name ? fab_write(in->seat->ep, name_addr(in->t, in->at), in->name->words, in->name->bytes) : 0;
    if (!rc)
        rc = sole_claim(in);
    if (rc > 0) { /* not earlier: the key may have been forgotten elsewhere until the look, and its tokens count */
        rc = raise_lock(in);
        rc = rc ? rc : 1;
    }
    if (rc <= 0) {
        int undo = give_way(in);
        return rc ? rc : undo;
    }
    assert(meta_state(in->claim.meta) == CELL_CLAIMED && in->claim.key == in->key); /* I7 */
    struct bucket live = {in->key, meta_make(CELL_LIVE, meta_generation(in->claim.meta))};
    rc = change_bucket(in->seat, in->t, in->at, in->claim, live);
    if (rc > 0) {
        *out = (struct cell){.index = in->at, .meta = live.meta};
        return 1;
    }
    int undo = give_way(in);
    return rc ? rc : undo;
}

__attribute__((noinline)) static int insert(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out)
{
    struct name_words name;
    if (key.name)
        pack_name(key, &name);
    struct insertion in = {.seat = seat, .t = t, .key = bucket_key(key), .name = key.name ? &name : NULL};
    for (int i = 0; i < INSERT_TRIES_MAX; i++) {
        int rc = table_find(seat, t, key, out);
        if (rc == -EBUSY)
            rc = lift_sentence(seat, t, out->index, (struct bucket){in.key, out->meta});
        else if (rc != -ENOENT)
            return rc;
        else if ((rc = insert_once(&in, out)) > 0)
            return 0;
        else if (rc == -ENOSPC)
            rc = make_room(seat, t, in.key);
        rc = seat_retry(seat, rc);
        if (rc)
            return rc;
        uint64_t pause = INSERT_PAUSE_NS + world_random(seat->world) % INSERT_PAUSE_NS;
        rc = fab_wait_any(seat->ep, NULL, 0, add_saturating(world_now(seat->world), pause));
        if (rc && rc != -ETIMEDOUT)
            return rc;
    }
    return -EAGAIN;
}

int table_find_or_insert(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out)
{
    int rc = table_find(seat, t, key, out);
    return likely(rc != -ENOENT && rc != -EBUSY) ? rc : insert(seat, t, key, out);
}
