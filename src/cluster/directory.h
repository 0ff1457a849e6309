/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The keys of a rack's named or sparse space: which dense index each has. Names are bytes, numbers are 8 of them.
 *
 * A key gets an index, with a generation, when a client first asks for it. It keeps both until it is retired, which the coordinator
 * does when no host uses the key (coordinator_names.c). An index that is used again has a higher generation, so no two keys ever
 * have the same index and generation (I7).
 *
 *   FREE     no key; the cell is in the list of free cells, or was never used
 *   USED     a key; clients may have heard of it if it is `written`
 *   LEAVING  no host uses the key; that is not in the log yet
 *   RESTING  that is in the log. The cell is free when the next generation has begun: then a name that comes back has a higher
 *            generation, whichever index it gets, and so higher tokens (I2)
 *
 * Cells are numbered in the order in which they are first used. Indexes are spread over the whole space, since lock servers share it
 * by ranges. If the space grows, the new indexes are a further part, spread likewise. */
/* clang-format on */
#ifndef PAWL_CLUSTER_DIRECTORY_H
#define PAWL_CLUSTER_DIRECTORY_H

#include "lib/base.h"
#include "pawl.h"

#define DIRECTORY_KEY_MAX PAWL_NAME_MAX
#define DIRECTORY_PARTS_MAX                                                                                                        \
    64u /* how often a space can grow: from one lock to more than there can be, if it doubles every time                           \
         */

enum directory_state { DIRECTORY_FREE, DIRECTORY_USED, DIRECTORY_LEAVING, DIRECTORY_RESTING };

struct directory_key {
    uint64_t at; /* in the bytes; of a free cell: the next free one + 1 */
    uint32_t generation;
    uint16_t len;
    uint8_t state;
    bool written : 1; /* to the log */
    bool asked : 1;   /* for, since the coordinator last looked for keys to retire */
};
static_assert(sizeof(struct directory_key) == 16, "a million keys in little memory");

/* Indexes `first` and up; index = first + number in the part * step modulo count, and back. */
struct directory_part {
    uint64_t first, count, step, unstep;
};

/* A growing list of cells. */
struct directory_list {
    uint64_t *cell;
    uint64_t count, room;
};

struct directory {
    enum pawl_keys keys;
    uint64_t locks;
    struct directory_part part[DIRECTORY_PARTS_MAX];
    unsigned parts;
    uint64_t count, room;           /* cells that were ever used; for which there is memory */
    uint64_t used;                  /* cells that are not free */
    struct directory_key *key;      /* by cell */
    uint64_t free_first, free_last; /* list of free cells, the one that waited longest first; cell + 1 */
    bool loading;                   /* the list is not kept: directory_loaded makes it */
    struct directory_list changed;  /* cells whose latest change is not in the log, in its order */
    struct directory_list resting;
    char *bytes;
    uint64_t bytes_used, bytes_room, bytes_live;
    uint64_t *buckets; /* cell + 1, by hash, with a part of the hash above; 0: none */
    uint64_t bucket_count;
};

void directory_init(struct directory *d, enum pawl_keys keys, uint64_t locks);
void directory_free(struct directory *d);

/* More locks than before. -ERANGE: not more, or the space has grown too often. */
int directory_grow(struct directory *d, uint64_t locks);

/* ---- keys ---- */

/* The cell of a key; -ENOENT; -EINVAL: not a key of this space. */
int directory_find(const struct directory *d, const void *bytes, uint32_t len, uint64_t *cell);

/* A cell for a key that has none. -ENOSPC: no cell is free; -ENOMEM. The caller writes the change to the log. */
int directory_add(struct directory *d, const void *bytes, uint32_t len, uint32_t generation, uint64_t *cell);

/* No host uses the key: USED becomes LEAVING. -ENOMEM. */
int directory_retire(struct directory *d, uint64_t cell);

/* The first changes are in the log. */
void directory_wrote(struct directory *d, uint64_t changes);

/* The next generation has begun: RESTING becomes FREE. */
void directory_wake(struct directory *d);

/* ---- from the log ---- */

/* A key with its index and generation. Again the same: no change. -EINVAL: it contradicts what is there. */
int directory_put(struct directory *d, uint64_t index, uint32_t generation, const void *bytes, uint32_t len);
/* A key that was retired. If that generation of the index is not there: no change. */
int directory_gone(struct directory *d, uint64_t index, uint32_t generation);
void directory_loaded(struct directory *d);

/* ---- cells and indexes ---- */

uint64_t directory_index(const struct directory *d, uint64_t cell);
uint64_t directory_cell(const struct directory *d, uint64_t index); /* UINT64_MAX: there is no such index */

/* The key that has this index; -ENOENT. */
int directory_key_of(const struct directory *d, uint64_t index, const char **bytes, uint32_t *len);

static inline const char *directory_bytes(const struct directory *d, uint64_t cell)
{
    return d->bytes + d->key[cell].at;
}

#endif
