/* SPDX-License-Identifier: Apache-2.0 */
/* From keys to locks: exact, readable one-sidedly, inserted by compare-and-swap.
 *
 * A sparse or named space is a table with open addressing. A cell is a 16-byte bucket {key, meta} and right behind it the lock
 * itself, so that finding and locking touch one line. For names the key is the name's hash, and the name stands in an array of its
 * own at the cell's place. meta is a state, a generation that rises each time the cell gets another key, and the session that
 * works on it:
 *
 *     EMPTY      never used; a probe sequence ends here
 *     CLAIMED    being inserted by a session, not to be used yet
 *     LIVE       the key's lock
 *     CONDEMNED  about to be forgotten by a session, to make room
 *     DEAD       forgotten; may be claimed again
 *     ZOMBIE     a claim that another has dropped while its session may still be writing the name; DEAD once it cannot
 *
 * Two sessions that insert the same key at once claim two cells. Each looks through the whole sequence again before it commits, and
 * the claim further back gives way (I7). A lock is forgotten only under its own exclusive hold, and a session that has acquired a
 * lock checks again that the cell still has the key. So no session ever holds a lock of another key. The cell is condemned first: a
 * session that is lost while it forgets a lock finds, however late, that the cell is no longer condemned. Tokens of keys that are
 * inserted later start above those of all forgotten locks (I2). */
#ifndef PAWL_CLUSTER_TABLE_H
#define PAWL_CLUSTER_TABLE_H

#include "cluster/layout.h"

enum cell_state { CELL_EMPTY, CELL_CLAIMED, CELL_LIVE, CELL_CONDEMNED, CELL_DEAD, CELL_ZOMBIE };
#define CELL_STATE_SHIFT 61 /* in meta */

struct table {
    fab_addr cells, names, floor;
    uint64_t buckets;
    uint64_t capacity;
    uint32_t home_shift; /* 64 less the bits of an index */
    uint64_t cell_bytes;
    enum pawl_keys keys;
};

/* Where a key's lock is. */
struct cell {
    uint64_t index;
    uint64_t meta; /* as it was when found; 0 in a dense space */
};

/* Where a key, or the hash of a name, is looked for first. Multiplying by the golden ratio spreads numbers that count 0, 1, 2 …
 * evenly (Knuth, The Art of Computer Programming, 6.4), so that such keys hardly ever meet; it is part of the layout. */
static inline uint64_t table_home(uint64_t bucket_key, uint32_t home_shift)
{
    return bucket_key * UINT64_C(0x9e3779b97f4a7c15) >> home_shift;
}

void table_init(struct table *t, const struct layout_header *h, fab_addr base);

/* -EINVAL, -ENAMETOOLONG, -ERANGE: not a key of this space. */
int table_check_key(const struct table *t, pawl_key key);

/* -ENOENT if the key has no lock yet, -EBUSY if it is just being forgotten. */
int table_find(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out);

/* Makes one if needed; -ENOSPC if every place it could have is in use. */
int table_find_or_insert(const struct seat *seat, const struct table *t, pawl_key key, struct cell *out);

static inline fab_addr table_meta_addr(const struct table *t, const struct cell *p)
{
    return t->cells + p->index * t->cell_bytes + 8;
}

/* Whether the place is still that key's; certain while the lock is held. */
static inline int table_confirm(const struct seat *seat, const struct table *t, const struct cell *p)
{
    uint64_t meta;
    if (t->keys == PAWL_KEYS_DENSE)
        return 1;
    int rc = fab_read64(seat->ep, table_meta_addr(t, p), &meta);
    return unlikely(rc) ? rc : meta == p->meta;
}

/* The generation of a cell: that of its key, while the key's lock is held. Of dense keys 0. */
int table_generation(const struct seat *seat, const struct table *t, uint64_t index, uint64_t *out);

/* The key at an index, for lists: 1 and name and length or id, 0 if the cell has none. `name` has room for PAWL_NAME_MAX + 1. */
int table_key_at(const struct seat *seat, const struct table *t, uint64_t index, char *name, uint64_t *id_or_len);

#endif
