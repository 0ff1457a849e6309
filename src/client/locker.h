/* Locking by key: what the public interface, the simulation and the benchmarks all go through. */
#ifndef PAWL_CLIENT_LOCKER_H
#define PAWL_CLIENT_LOCKER_H

#include "cluster/table.h"

/* A session's way into one space. */
struct locker {
    struct seat seat;
    struct table table;
};

int locker_lock(const struct locker *l, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out);
int locker_unlock(const struct locker *l, const struct hold *h);
int locker_convert(const struct locker *l, struct hold *h, enum pawl_mode mode, uint64_t deadline);
int locker_check(const struct locker *l, const struct hold *h);
int locker_query(const struct locker *l, pawl_key key, pawl_state *out);

/* All or none, in the order of the keys. */
int locker_lock_all(const struct locker *l, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds);

#endif
