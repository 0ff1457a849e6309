/* SPDX-License-Identifier: Apache-2.0 */
/* A decider that lost its state is rebuilt from the holds of live hosts (5.3, S1 to S3): used by the decider in memory, and by the
 * control process of one in the kernel.
 *
 * The decider is closed: it decides nothing until every hold is known to it. That is so when of each machine one is true: its
 * report is complete; or it has not sent a heartbeat, and the lease that the life before may have given it is over; or it sent one,
 * and then its lease ended. While the decider is closed nothing is granted, so a host's report stays complete. */
#ifndef PAWL_DESIGNS_FISSLOCK_REBUILD_H
#define PAWL_DESIGNS_FISSLOCK_REBUILD_H

#include "dataplane/fission.h"

#define REBUILD_MACHINES_MAX 1024

enum rebuild_state {
    REBUILD_SILENT, /* no heartbeat yet */
    REBUILD_HEARD,
    REBUILD_TOLD,  /* its report is complete */
    REBUILD_APART, /* is not waited for: its holds are lost */
};

struct rebuild {
    bool closed;
    uint16_t machines;
    uint64_t silent_until; /* then the leases of silent machines are over */
    uint64_t held;         /* locks */
    uint64_t bad;          /* reported holds that contradict others */
    uint8_t state[REBUILD_MACHINES_MAX];
};

/* A lock, as the decider keeps it. */
struct rebuild_lock {
    uint64_t word, token;
    struct fission_age age;
};

void rebuild_begin(struct rebuild *r, uint16_t machines, uint64_t silent_until);

/* Only these machines can have holds from before: bit m of word m / 64. */
void rebuild_expect(struct rebuild *r, const uint64_t *machines, unsigned words);

/* The machine gets a lease of this life. Returns the flags of the answer. */
uint16_t rebuild_heard(struct rebuild *r, uint16_t machine);

/* A verified REPORT. True: it is to be acknowledged. */
bool rebuild_report(struct rebuild *r, struct rebuild_lock *locks, uint64_t count, const struct fission_packet *p);

/* One of its entries. False: it contradicts another. */
bool rebuild_reported(struct rebuild_lock *l, uint16_t machine, const struct fission_entry *e);

/* Whether it is still closed. `lives` says whether a lease of this life runs. */
bool rebuild_closed(struct rebuild *r, uint64_t now, bool (*lives)(const void *ctx, uint16_t machine, uint64_t now),
                    const void *ctx);

/* The machine that this lock names is lost. An exclusive lock becomes free. A shared lock may have holders on other machines: the
 * heir, if there is one, takes over its agent and is told by *look, if that is addressed to a machine; space, epoch, index and the
 * life in its token are still to be filled in. False: another packet has changed the lock meanwhile. */
bool rebuild_clear(struct rebuild_lock *lock, uint32_t options, uint16_t heir, struct fission_packet *look);

#endif
