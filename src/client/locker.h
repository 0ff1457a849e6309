/* SPDX-License-Identifier: Apache-2.0 */
/* Locking by key: what the public interface, the simulation and the benchmarks all go through. */
#ifndef PAWL_CLIENT_LOCKER_H
#define PAWL_CLIENT_LOCKER_H

#include "cluster/table.h"
#include "fabric/together.h"

/* A session's way into one space. */
struct locker {
    struct seat seat;
    struct table table;
    /* Whether the session does nothing but the present call, and no other thread can release its locks. Null: that is not known. */
    bool (*alone)(const struct locker *l);
    struct together_shelf *together; /* of the session: how several locks are asked for at once; null: one by one */
};

int locker_lock(const struct locker *l, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out);
/* A place of a semaphore. */
int locker_semaphore(const struct locker *l, pawl_key key, uint32_t limit, uint64_t deadline, struct hold *out);
/* Units [start, end); locker_lock is of all of them. -EINVAL: empty or reversed, -EOVERFLOW: beyond RANGE_UNITS_MAX. */
int locker_lock_range(const struct locker *l, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      struct hold *out);

/* Makes a hold larger or smaller: one of the ranges contains the other, else -EINVAL. On failure the hold is what it was. */
int locker_reshape(const struct locker *l, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline);

/* Cuts a hold in two: `h` ends at `at`, *right goes on from there. -EINVAL unless that is inside. */
int locker_split(const struct locker *l, struct hold *h, uint64_t at, struct hold *right);

int locker_unlock(const struct locker *l, const struct hold *h);
int locker_convert(const struct locker *l, struct hold *h, enum pawl_mode mode, uint64_t deadline);
/* Whether the session is lost: every call says so from now on. */
bool locker_lost(const struct locker *l);
int locker_check(const struct locker *l, const struct hold *h);
/* Whether another request waits for the lock of this hold: 1, 0 or an error. */
int locker_wanted(const struct locker *l, const struct hold *h);
/* The value beside the lock of this hold. `bytes` has room for any. */
int locker_set_value(const struct locker *l, const struct hold *h, const void *bytes, uint32_t len);
int locker_get_value(const struct locker *l, const struct hold *h, void *bytes, uint32_t *len);
int locker_query(const struct locker *l, pawl_key key, pawl_state *out);

/* How a lock with ranges is laid out; and changing that while others use it (design.h). Larger or smaller: in between it has the
 * part behind the present layout for itself, or the whole, and waits for that until the deadline. */
int locker_layout(const struct locker *l, pawl_key key, struct lock_layout *out);
int locker_retune(const struct locker *l, pawl_key key, unsigned m, uint64_t wait_ns, uint64_t deadline);
int locker_rescale(const struct locker *l, pawl_key key, uint64_t units, uint64_t deadline);

/* All or none. Ranges are units here: 0 to 0 is the whole. Their verbs leave together, where that saves round trips; those that
 * are held by others are waited for in the order of the keys (designs/packet/gather.h). -EINVAL: two of them overlap; -EDEADLK:
 * they do not, but to this design they are the same lock. */
int locker_lock_all(const struct locker *l, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds);

/* Ends all of them. The result of each is in `rc`, as of locker_unlock. */
void locker_unlock_all(const struct locker *l, const struct hold *holds, unsigned count, int *rc);

#endif
