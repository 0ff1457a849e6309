/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/directory.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 1024

/* ---- cells and indexes ---- */

static uint64_t times(uint64_t a, uint64_t b, uint64_t modulus)
{
    if (likely(!((a | b) >> 32))) /* a division of 128 bits takes several times as long */
        return a * b % modulus;
    return (uint64_t)((u128)a * b % modulus);
}

/* The number whose product with a is 1 modulo m, by Euclid; 0 if they have a common factor. */
static uint64_t inverse(uint64_t a, uint64_t m)
{
    __int128 r0 = m, r1 = a, t0 = 0, t1 = 1;
    while (r1) {
        __int128 q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1;
        r1 = r;
        t0 = t1;
        t1 = t;
    }
    return r0 == 1 ? (uint64_t)(t0 < 0 ? t0 + m : t0) : 0;
}

static struct directory_part part_of(uint64_t first, uint64_t count)
{
    struct directory_part p = {.first = first, .count = count, .step = 1, .unstep = 1};
    if (count < 3)
        return p;
    /* The golden section: after any number of keys, their indexes are spread evenly. */
    for (p.step = (uint64_t)((u128)count * 618034 / 1000000); !(p.unstep = inverse(p.step, count)); p.step++)
        ;
    return p;
}

uint64_t directory_index(const struct directory *d, uint64_t cell)
{
    unsigned i = d->parts - 1;
    assert(cell < d->locks);
    while (cell < d->part[i].first)
        i--;
    const struct directory_part *p = &d->part[i];
    return p->first + times(cell - p->first, p->step, p->count);
}

uint64_t directory_cell(const struct directory *d, uint64_t index)
{
    if (index >= d->locks)
        return UINT64_MAX;
    unsigned i = d->parts - 1;
    while (index < d->part[i].first)
        i--;
    const struct directory_part *p = &d->part[i];
    uint64_t cell = p->first + times(index - p->first, p->unstep, p->count);
    assert(directory_index(d, cell) == index); /* I7: each cell has one index, and each index one cell */
    return cell;
}

void directory_init(struct directory *d, enum pawl_keys keys, uint64_t locks)
{
    assert(locks);
    *d = (struct directory){.keys = keys, .locks = locks, .parts = 1};
    d->part[0] = part_of(0, locks);
}

int directory_grow(struct directory *d, uint64_t locks)
{
    if (locks <= d->locks || d->parts == DIRECTORY_PARTS_MAX)
        return -ERANGE;
    d->part[d->parts++] = part_of(d->locks, locks - d->locks);
    d->locks = locks;
    return 0;
}

void directory_free(struct directory *d)
{
    free(d->key);
    free(d->bytes);
    free(d->buckets);
    free(d->changed.cell);
    free(d->resting.cell);
}

/* ---- memory ---- */

/* Room for one more. */
static int list_room(struct directory_list *l)
{
    if (l->count < l->room)
        return 0;
    uint64_t room = l->room ? 2 * l->room : 64, *cell = realloc(l->cell, room * sizeof *cell);
    if (!cell)
        return -ENOMEM;
    l->cell = cell;
    l->room = room;
    return 0;
}

/* Memory for cells up to this one, free. */
static int cell_room(struct directory *d, uint64_t cell)
{
    if (cell < d->room)
        return 0;
    uint64_t room = max_u64(cell + 1, d->room ? 2 * d->room : BUCKETS_MIN / 2);
    struct directory_key *key = realloc(d->key, room * sizeof *key);
    if (!key)
        return -ENOMEM;
    memset(key + d->room, 0, (room - d->room) * sizeof *key);
    d->key = key;
    d->room = room;
    return 0;
}

static bool has_bytes(const struct directory *d, uint64_t cell)
{
    return d->key[cell].state != DIRECTORY_FREE;
}

/* Room for the bytes of one more key. Those of keys that are gone are left out when the memory is full. */
static int byte_room(struct directory *d, uint32_t len)
{
    if (d->bytes_room - d->bytes_used >= len)
        return 0;
    uint64_t room = max_u64(2 * d->bytes_live, d->bytes_live + len) + BUCKETS_MIN * sizeof(uint64_t), used = 0;
    char *bytes = malloc(room);
    if (!bytes)
        return -ENOMEM;
    for (uint64_t cell = 0; cell < d->count; cell++) {
        if (!has_bytes(d, cell))
            continue;
        memcpy(bytes + used, directory_bytes(d, cell), d->key[cell].len);
        d->key[cell].at = used;
        used += d->key[cell].len;
    }
    assert(used == d->bytes_live);
    free(d->bytes);
    d->bytes = bytes;
    d->bytes_used = used;
    d->bytes_room = room;
    return 0;
}

/* ---- buckets ---- */

/* A bucket has the cell + 1, and above it a part of the hash, so that most other keys are told apart without a look at them. */
#define CELL_BITS 40
#define CELL_MASK ((UINT64_C(1) << CELL_BITS) - 1)

static uint64_t cell_in(uint64_t bucket)
{
    return (bucket & CELL_MASK) - 1;
}

/* The bucket of the key, or the free one where it would go. */
static uint64_t bucket_of(const struct directory *d, const void *bytes, uint32_t len, uint64_t hash)
{
    uint64_t i = hash & (d->bucket_count - 1);
    for (; d->buckets[i]; i = (i + 1) & (d->bucket_count - 1)) {
        if ((d->buckets[i] ^ hash) >> CELL_BITS)
            continue;
        uint64_t cell = cell_in(d->buckets[i]);
        if (d->key[cell].len == len && !memcmp(directory_bytes(d, cell), bytes, len))
            break;
    }
    return i;
}

static uint64_t hash_of(const struct directory *d, uint64_t cell)
{
    return hash_bytes(directory_bytes(d, cell), d->key[cell].len, 0);
}

static void put_into_bucket(struct directory *d, uint64_t cell)
{
    uint64_t hash = hash_of(d, cell), i = bucket_of(d, directory_bytes(d, cell), d->key[cell].len, hash);
    assert(!d->buckets[i]); /* I7: one key never has two cells */
    d->buckets[i] = (hash & ~CELL_MASK) | (cell + 1);
}

static int bucket_room(struct directory *d)
{
    if (2 * d->used < d->bucket_count)
        return 0;
    uint64_t count = d->bucket_count ? 2 * d->bucket_count : BUCKETS_MIN, *buckets = calloc(count, sizeof *buckets);
    if (!buckets)
        return -ENOMEM;
    free(d->buckets);
    d->buckets = buckets;
    d->bucket_count = count;
    for (uint64_t cell = 0; cell < d->count; cell++)
        if (has_bytes(d, cell))
            put_into_bucket(d, cell);
    return 0;
}

/* Takes the key out. Later buckets that its own has kept from their place move up. */
static void take_from_bucket(struct directory *d, uint64_t cell)
{
    uint64_t mask = d->bucket_count - 1, hole = bucket_of(d, directory_bytes(d, cell), d->key[cell].len, hash_of(d, cell));
    assert(d->buckets[hole] && cell_in(d->buckets[hole]) == cell);
    for (uint64_t i = (hole + 1) & mask; d->buckets[i]; i = (i + 1) & mask) {
        uint64_t home = hash_of(d, cell_in(d->buckets[i])) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* its home lies behind the hole */
        d->buckets[hole] = d->buckets[i];
        hole = i;
    }
    d->buckets[hole] = 0;
}

/* ---- keys ---- */

static bool is_key(const struct directory *d, uint32_t len)
{
    return d->keys == PAWL_KEYS_NAMED ? len - 1 < DIRECTORY_KEY_MAX : d->keys == PAWL_KEYS_SPARSE && len == sizeof(uint64_t);
}

int directory_find(const struct directory *d, const void *bytes, uint32_t len, uint64_t *cell)
{
    if (!is_key(d, len))
        return -EINVAL;
    uint64_t bucket = d->bucket_count ? d->buckets[bucket_of(d, bytes, len, hash_bytes(bytes, len, 0))] : 0;
    if (!bucket)
        return -ENOENT;
    *cell = cell_in(bucket);
    return 0;
}

/* A key in a cell that is free. There is room for everything but its bytes. */
static int occupy(struct directory *d, uint64_t cell, const void *bytes, uint32_t len, uint32_t generation)
{
    int rc = byte_room(d, len);
    if (!rc)
        rc = bucket_room(d);
    if (rc)
        return rc;
    assert(d->key[cell].state == DIRECTORY_FREE && cell < CELL_MASK);
    d->key[cell] = (struct directory_key){
        .at = d->bytes_used, .generation = generation, .len = (uint16_t)len, .state = DIRECTORY_USED, .asked = true};
    memcpy(d->bytes + d->bytes_used, bytes, len);
    d->bytes_used += len;
    d->bytes_live += len;
    d->used++;
    put_into_bucket(d, cell);
    return 0;
}

static void append_free(struct directory *d, uint64_t cell)
{
    *(d->free_last ? &d->key[d->free_last - 1].at : &d->free_first) = cell + 1;
    d->free_last = cell + 1;
}

static void vacate(struct directory *d, uint64_t cell)
{
    take_from_bucket(d, cell);
    d->bytes_live -= d->key[cell].len;
    d->used--;
    d->key[cell] = (struct directory_key){.state = DIRECTORY_FREE};
    if (!d->loading)
        append_free(d, cell);
}

int directory_add(struct directory *d, const void *bytes, uint32_t len, uint32_t generation, uint64_t *cell)
{
    bool again = d->free_first != 0; /* indexes that were used before first: the memory of granters stays small */
    *cell = again ? d->free_first - 1 : d->count;
    assert(is_key(d, len) && !d->loading);
    if (*cell == d->locks)
        return -ENOSPC;
    int rc = cell_room(d, *cell);
    if (!rc)
        rc = list_room(&d->changed);
    uint64_t next = rc || !again ? 0 : d->key[*cell].at;
    if (!rc)
        rc = occupy(d, *cell, bytes, len, generation);
    if (rc)
        return rc;
    if (again) {
        d->free_first = next;
        d->free_last = next ? d->free_last : 0;
    } else {
        d->count++;
    }
    d->changed.cell[d->changed.count++] = *cell;
    return 0;
}

int directory_retire(struct directory *d, uint64_t cell)
{
    int rc = list_room(&d->changed);
    if (!rc && d->resting.room < d->used) { /* now: when it is in the log there is no way back */
        uint64_t *resting = realloc(d->resting.cell, 2 * d->used * sizeof *resting);
        rc = resting ? 0 : -ENOMEM;
        d->resting.cell = resting ? resting : d->resting.cell;
        d->resting.room = resting ? 2 * d->used : d->resting.room;
    }
    if (rc)
        return rc;
    assert(d->key[cell].state == DIRECTORY_USED && d->key[cell].written);
    d->key[cell].state = DIRECTORY_LEAVING;
    d->changed.cell[d->changed.count++] = cell;
    return 0;
}

void directory_wrote(struct directory *d, uint64_t changes)
{
    struct directory_list *l = &d->changed;
    assert(changes <= l->count);
    for (uint64_t i = 0; i < changes; i++) {
        struct directory_key *k = &d->key[l->cell[i]];
        if (k->state == DIRECTORY_LEAVING) {
            assert(d->resting.count < d->resting.room);
            k->state = DIRECTORY_RESTING;
            d->resting.cell[d->resting.count++] = l->cell[i];
        }
        k->written = true;
    }
    l->count -= changes;
    memmove(l->cell, l->cell + changes, l->count * sizeof *l->cell);
}

void directory_wake(struct directory *d)
{
    for (uint64_t i = 0; i < d->resting.count; i++)
        vacate(d, d->resting.cell[i]);
    d->resting.count = 0;
}

/* ---- from the log ---- */

int directory_put(struct directory *d, uint64_t index, uint32_t generation, const void *bytes, uint32_t len)
{
    uint64_t cell = directory_cell(d, index), other;
    d->loading = true;
    if (cell == UINT64_MAX || !is_key(d, len))
        return -EINVAL;
    int rc = cell_room(d, cell);
    if (rc)
        return rc;
    bool known = !directory_find(d, bytes, len, &other);
    if (known && other == cell && d->key[cell].generation == generation)
        return 0;
    if (known || d->key[cell].state != DIRECTORY_FREE)
        return -EINVAL;
    d->count = max_u64(d->count, cell + 1);
    rc = occupy(d, cell, bytes, len, generation);
    if (!rc)
        d->key[cell].written = true;
    return rc;
}

int directory_gone(struct directory *d, uint64_t index, uint32_t generation)
{
    uint64_t cell = directory_cell(d, index);
    d->loading = true;
    if (cell == UINT64_MAX)
        return -EINVAL;
    if (cell < d->count && d->key[cell].state != DIRECTORY_FREE && d->key[cell].generation == generation)
        vacate(d, cell);
    return 0;
}

void directory_loaded(struct directory *d)
{
    d->loading = false;
    d->free_first = d->free_last = 0;
    for (uint64_t cell = 0; cell < d->count; cell++)
        if (d->key[cell].state == DIRECTORY_FREE) {
            d->key[cell].at = 0;
            append_free(d, cell);
        }
}

int directory_key_of(const struct directory *d, uint64_t index, const char **bytes, uint32_t *len)
{
    uint64_t cell = directory_cell(d, index);
    if (cell >= d->count || d->key[cell].state == DIRECTORY_FREE)
        return -ENOENT;
    *bytes = directory_bytes(d, cell);
    *len = d->key[cell].len;
    return 0;
}
