/* SPDX-License-Identifier: Apache-2.0 */
/* A directory on disk: every key, in the order in which they came, each with a check. The coordinator writes and syncs a key before
 * it sends the key's index to a client (I7). A coordinator that restarts goes on where its predecessor was. The index of a record
 * that is cut off at the end was never sent. */
#ifndef PAWL_CLUSTER_JOURNAL_H
#define PAWL_CLUSTER_JOURNAL_H

#include "cluster/directory.h"

#define JOURNAL_PATH_LEN 4096

struct journal {
    int fd;
    uint64_t written; /* keys of the directory that are in it */
    uint64_t end;     /* where the next goes */
};

/* Reads what is there into the directory, which is empty; makes the file if there is none. -EBUSY: another coordinator uses it;
 * -EINVAL: it is of another space, kind or size, or no journal; -EBADMSG: damaged in the middle. */
int journal_open(struct journal *j, const char *path, const char *space, struct directory *d);

/* Everything that the directory has beyond what is written. 0 when it is on the disk. */
int journal_write(struct journal *j, const struct directory *d);
void journal_close(struct journal *j);

#endif
