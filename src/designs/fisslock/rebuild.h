/* SPDX-License-Identifier: Apache-2.0 */
/* A decider that lost its state is rebuilt from what the living hold (5.3, S1 to S3): for the decider in memory and for the control
 * process of one in the kernel.
 *
 * It is closed: nothing is decided until nobody can hold anything that it does not know of. That is so when each machine has told
 * it all; or has not been heard, and the lease that the life before may have given it is over; or was heard, and then its lease
 * ended. While it is closed nobody is granted anything, so that what a host has told stays all that it holds. */
#ifndef PAWL_DESIGNS_FISSLOCK_REBUILD_H
#define PAWL_DESIGNS_FISSLOCK_REBUILD_H

#include "dataplane/fission.h"

#define REBUILD_MACHINES_MAX 1024

enum rebuild_state {
    REBUILD_SILENT,
    REBUILD_HEARD,
    REBUILD_TOLD,
    REBUILD_APART, /* is not waited for: whatever it thinks it holds is lost */
};

struct rebuild {
    bool closed;
    uint16_t machines;
    uint64_t silent_until; /* the leases of those that were not heard are over then */
    uint64_t held;         /* locks */
    uint64_t bad;          /* what was told and cannot be */
    uint8_t state[REBUILD_MACHINES_MAX];
};

/* One of the words in which the decider keeps its locks. */
struct rebuild_lock {
    uint64_t word, token;
};

void rebuild_begin(struct rebuild *r, uint16_t machines, uint64_t silent_until);

/* Only these can hold anything from before: bit m of word m / 64. */
void rebuild_expect(struct rebuild *r, const uint64_t *machines, unsigned words);

/* The machine is given a lease of this life. What the answer says beside. */
uint16_t rebuild_heard(struct rebuild *r, uint16_t machine);

/* A REPORT that was found to be fine. True: it is to be answered. */
bool rebuild_report(struct rebuild *r, struct rebuild_lock *locks, uint64_t count, const struct fission_packet *p);

/* Opens if it can. `lives` says whether a lease of this life runs. */
bool rebuild_closed(struct rebuild *r, uint64_t now, bool (*lives)(const void *ctx, uint16_t machine, uint64_t now),
                    const void *ctx);

/* The machine that this lock names is gone. What it held exclusively is free; of a shared lock others may hold, so that the heir,
 * if there is one, takes over and is to be told: *look, if it is for a machine, with space, epoch, index and the life in its token
 * still to be filled in. False: somebody else has changed the lock meanwhile. */
bool rebuild_clear(struct rebuild_lock *lock, uint32_t options, uint16_t heir, struct fission_packet *look);

#endif
