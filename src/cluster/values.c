/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/values.h"
#include "lib/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 64

void values_free(struct values *v)
{
    free(v->value);
    free(v->buckets);
    free(v->changed);
    memset(v, 0, sizeof *v);
}

static uint64_t *bucket_of(const struct values *v, uint64_t index)
{
    uint64_t i = mix64(index) & (v->bucket_count - 1);
    while (v->buckets[i] && v->value[v->buckets[i] - 1].index != index)
        i = (i + 1) & (v->bucket_count - 1);
    return &v->buckets[i];
}

/* Twice the room; half of the buckets stay empty. */
static bool grow(struct values *v)
{
    uint64_t room = v->room ? 2 * v->room : ROOM_MIN;
    struct value *value = calloc(room, sizeof *value);
    if (!value)
        return false;
    if (v->value)
        memcpy(value, v->value, v->count * sizeof *value);
    free(v->value);
    v->value = value;
    uint64_t *changed = realloc(v->changed, room * sizeof *changed);
    if (!changed)
        return false;
    v->changed = changed;
    uint64_t *buckets = calloc(2 * room, sizeof *buckets);
    if (!buckets)
        return false;
    free(v->buckets);
    v->buckets = buckets;
    v->bucket_count = 2 * room;
    v->room = room;
    for (uint64_t i = 0; i < v->count; i++)
        *bucket_of(v, v->value[i].index) = i + 1;
    return true;
}

static struct value *find(const struct values *v, uint64_t index)
{
    const uint64_t *at = v->bucket_count ? bucket_of(v, index) : NULL;
    return at && *at ? &v->value[*at - 1] : NULL;
}

struct value *values_of(struct values *v, uint64_t index, uint32_t generation)
{
    struct value *value = find(v, index);
    if (value && value->generation >= generation)
        return value->generation == generation ? value : NULL;
    if (!value) {
        if (v->count == v->room && !grow(v))
            return NULL;
        assert(v->value && v->count < v->room);
        *bucket_of(v, index) = v->count + 1;
        value = &v->value[v->count++];
        value->listed = false;
    }
    *value = (struct value){.index = index, .generation = generation, .listed = value->listed};
    return value;
}

bool values_has(const struct values *v, uint64_t index, uint32_t generation)
{
    const struct value *value = find(v, index);
    return value && value->generation == generation && value->len;
}

static bool is_later(const struct value *v, uint64_t token, uint64_t step)
{
    return v->token != token ? v->token > token : v->step > step;
}

int values_set(struct values *v, struct value *value, uint64_t token, uint64_t step, const void *bytes, uint32_t len)
{
    assert(len <= PAWL_VALUE_MAX);
    assert(value->floor >= value->token); /* I26: a set raises the floor */
    if (token < value->floor)
        return -PAWL_ENOTOWNER;
    if (is_later(value, token, step) || (value->token == token && value->step == step))
        return 0; /* a duplicate: what it set may have been replaced since, by the same holder */
    if (!value->listed)
        v->changed[v->changed_count++] = (uint64_t)(value - v->value);
    value->listed = value->unwritten = true;
    value->floor = value->token = token;
    value->step = step;
    value->len = (uint8_t)len;
    memcpy(value->bytes, bytes, len);
    assert(value->unwritten && v->changed_count <= v->count); /* I26: no answer before the log has it */
    return 0;
}

void values_wrote(struct values *v, uint64_t changes)
{
    if (!changes) /* there may be no list yet */
        return;
    for (uint64_t i = 0; i < changes; i++)
        v->value[v->changed[i]].listed = v->value[v->changed[i]].unwritten = false;
    v->changed_count -= changes;
    memmove(v->changed, v->changed + changes, v->changed_count * sizeof *v->changed);
}

int values_put(struct values *v, const struct value *value)
{
    struct value *at = find(v, value->index);
    if (at && at->generation > value->generation)
        return 0; /* of a former generation: forgotten */
    at = values_of(v, value->index, value->generation);
    if (!at)
        return -ENOMEM;
    *at = *value;
    at->floor = value->token;
    at->unwritten = at->listed = false;
    return 0;
}
