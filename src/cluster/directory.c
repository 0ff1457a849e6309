/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/directory.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 1024

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

void directory_init(struct directory *d, enum pawl_keys keys, uint64_t locks)
{
    assert(locks);
    *d = (struct directory){.keys = keys, .locks = locks, .step = 1, .unstep = 1};
    if (locks < 3)
        return;
    /* The golden section: after any number of keys, their indexes are spread evenly. */
    for (d->step = (uint64_t)((u128)locks * 618034 / 1000000); !(d->unstep = inverse(d->step, locks)); d->step++)
        ;
}

void directory_free(struct directory *d)
{
    free(d->key);
    free(d->bytes);
    free(d->buckets);
}

static bool is_key(const struct directory *d, uint32_t len)
{
    return d->keys == PAWL_KEYS_NAMED ? len - 1 < DIRECTORY_KEY_MAX : d->keys == PAWL_KEYS_SPARSE && len == sizeof(uint64_t);
}

/* A bucket has the order + 1, and above it a part of the hash, so that most other keys are told apart without a look at them. */
#define ORDER_BITS 40
#define ORDER_MASK ((UINT64_C(1) << ORDER_BITS) - 1)

static uint64_t order_in(uint64_t bucket)
{
    return (bucket & ORDER_MASK) - 1;
}

/* The bucket of the key, or the free one where it would go. */
static uint64_t bucket_of(const struct directory *d, const void *bytes, uint32_t len, uint64_t hash)
{
    uint64_t i = hash & (d->bucket_count - 1);
    for (; d->buckets[i]; i = (i + 1) & (d->bucket_count - 1)) {
        if ((d->buckets[i] ^ hash) >> ORDER_BITS)
            continue;
        const struct directory_key *k = &d->key[order_in(d->buckets[i])];
        if (k->len == len && !memcmp(d->bytes + k->at, bytes, len))
            break;
    }
    return i;
}

int directory_find(const struct directory *d, const void *bytes, uint32_t len, uint64_t *index)
{
    if (!is_key(d, len))
        return -EINVAL;
    uint64_t bucket = d->bucket_count ? d->buckets[bucket_of(d, bytes, len, hash_bytes(bytes, len, 0))] : 0;
    if (!bucket)
        return -ENOENT;
    *index = times(order_in(bucket), d->step, d->locks);
    return 0;
}

/* Room for one more key of that length: everything doubles when it is full. */
static int make_room(struct directory *d, uint32_t len)
{
    if (d->count == d->room) {
        uint64_t room = d->room ? 2 * d->room : BUCKETS_MIN / 2;
        struct directory_key *key = realloc(d->key, room * sizeof *key);
        if (!key)
            return -ENOMEM;
        d->key = key;
        d->room = room;
    }
    if (d->bytes_room - d->bytes_used < len) {
        uint64_t room = 2 * d->bytes_room + BUCKETS_MIN * sizeof(uint64_t);
        char *bytes = realloc(d->bytes, room);
        if (!bytes)
            return -ENOMEM;
        d->bytes = bytes;
        d->bytes_room = room;
    }
    if (2 * d->count < d->bucket_count)
        return 0;
    uint64_t count = d->bucket_count ? 2 * d->bucket_count : BUCKETS_MIN, *buckets = calloc(count, sizeof *buckets);
    if (!buckets)
        return -ENOMEM;
    free(d->buckets);
    d->buckets = buckets;
    d->bucket_count = count;
    for (uint64_t i = 0; i < d->count; i++) {
        uint64_t hash = hash_bytes(d->bytes + d->key[i].at, d->key[i].len, 0);
        d->buckets[bucket_of(d, d->bytes + d->key[i].at, d->key[i].len, hash)] = (hash & ~ORDER_MASK) | (i + 1);
    }
    return 0;
}

int directory_add(struct directory *d, const void *bytes, uint32_t len, uint64_t *index)
{
    if (!is_key(d, len))
        return -EINVAL;
    int rc = make_room(d, len);
    if (rc)
        return rc;
    uint64_t hash = hash_bytes(bytes, len, 0), bucket = bucket_of(d, bytes, len, hash);
    if (d->buckets[bucket]) {
        *index = times(order_in(d->buckets[bucket]), d->step, d->locks);
        return 0;
    }
    if (d->count == d->locks)
        return -ENOSPC;
    memcpy(d->bytes + d->bytes_used, bytes, len);
    d->key[d->count] = (struct directory_key){.at = d->bytes_used, .len = len};
    d->bytes_used += len;
    *index = times(d->count, d->step, d->locks);
    d->buckets[bucket] = (hash & ~ORDER_MASK) | ++d->count;
    assert(d->count <= ORDER_MASK);
    assert(times(*index, d->unstep, d->locks) == d->count - 1); /* I7: the index leads back to this key alone */
    return 0;
}

uint64_t directory_order(const struct directory *d, uint64_t index)
{
    return index < d->locks ? times(index, d->unstep, d->locks) : UINT64_MAX;
}

int directory_key_of(const struct directory *d, uint64_t index, const char **bytes, uint32_t *len)
{
    uint64_t order = directory_order(d, index);
    if (order >= d->count)
        return -ENOENT;
    *bytes = d->bytes + d->key[order].at;
    *len = d->key[order].len;
    return 0;
}
