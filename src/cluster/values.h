/* SPDX-License-Identifier: Apache-2.0 */
/* The values beside the locks of a rack, which the coordinator keeps (I26).
 *
 * A value has the token of the hold under which it was set, and the number of the set among those of that hold (step). A packet
 * that comes late sets nothing: not after a set of a higher token or step, and not after a holder with a higher token has read the
 * value. The latter is not in the log. A coordinator that restarts refuses sets of before its term instead: a client sends its set
 * anew, under the new term, if it still holds the lock then. */
#ifndef PAWL_CLUSTER_VALUES_H
#define PAWL_CLUSTER_VALUES_H

#include "lib/base.h"
#include "pawl.h"

struct value {
    uint64_t index;
    uint64_t token, step;
    uint64_t floor; /* the highest token under which it was read or set */
    uint32_t generation;
    uint8_t len;    /* 0: there is none */
    bool unwritten; /* the log does not have it yet */
    bool listed;    /* among those that have changed */
    uint8_t bytes[PAWL_VALUE_MAX];
};

struct values {
    struct value *value;
    uint64_t count, room;
    uint64_t *buckets; /* number + 1, by index; 0: none */
    uint64_t bucket_count;
    uint64_t *changed; /* numbers of values that are to be written to the log */
    uint64_t changed_count;
};

void values_free(struct values *v);

/* The value of a lock, and of this generation of its index: one of a former generation is forgotten. Null: out of memory, or the
 * generation is a former one. */
struct value *values_of(struct values *v, uint64_t index, uint32_t generation);

/* Whether this generation of the index has a value. */
bool values_has(const struct values *v, uint64_t index, uint32_t generation);

/* A holder reads it. */
static inline void value_read(struct value *v, uint64_t token)
{
    v->floor = max_u64(v->floor, token);
}

/* A holder sets it: 0, also if it has been set so before; or -PAWL_ENOTOWNER: a later holder was there. */
int values_set(struct values *v, struct value *value, uint64_t token, uint64_t step, const void *bytes, uint32_t len);

/* The first so many of those that have changed are in the log. */
void values_wrote(struct values *v, uint64_t changes);

/* From the log. */
int values_put(struct values *v, const struct value *value);

#endif
