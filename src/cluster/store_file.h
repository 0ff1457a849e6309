/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The log as a local file.
 *
 *   block 0            head: magic, version, the space's name and 128-bit id; a checksum of the whole block
 *   spare 0, spare 1   the latest two appends, alternating: number, where it begins in the log, its bytes, a checksum of the spare
 *   log                records, the configuration first; each append ends with a COMMIT. Each record has a checksum that continues
 *                      the one before it
 *   zeros              up to the size that the spares name
 *
 * Each append is written twice, to the log and to a spare, and both are synced together. So a torn append and damage can be told
 * apart, which a log alone cannot do:
 *
 * - *Nothing that was acknowledged is lost.* When append n was acknowledged, both of its copies were synced. Append n+1 changes
 *   neither: it goes behind n in the log, and to the other spare. If one copy of n is damaged, the other one is whole and is used.
 * - *A torn append is dropped.* If both copies of the latest append are bad, it was not synced, so it was not acknowledged.
 * - *Damage is found.* The valid spare with the highest number says how far the log must be whole; a bad record before that is an
 *   error that names the byte. Both spares bad is an error: an append writes to one of them.
 * - *A file that was cut is found.* The size in the spares is synced before the first append beyond the old size; a crash does not
 *   make a synced file shorter. So a file that is shorter than its spares say is an error.
 *
 * A snapshot is a new file that takes the old one's name in one step. Another process is kept away by a lock on a file beside it,
 * which stays when the log is replaced. */
/* clang-format on */
#ifndef PAWL_CLUSTER_STORE_FILE_H
#define PAWL_CLUSTER_STORE_FILE_H

#include "cluster/store.h"
#include "world/disk.h"

#define STORE_PATH_LEN 4096
#define STORE_SPACE_LEN 32
#define STORE_VERSION 2u /* of the file, and of all that records contain: addresses, rules, configurations */

struct store_identity {
    char space[STORE_SPACE_LEN];
    uint64_t id[2];
};

struct store_file {
    struct store store;
    struct disk *disk;
    struct disk_file *lock, *file;
    struct store_identity identity;
    char path[STORE_PATH_LEN];
    uint64_t seq;    /* of the latest append */
    uint64_t end;    /* where the next one goes */
    uint64_t extent; /* to which the file is filled with zeros */
    uint64_t chain;  /* the checksum of the latest record */
    uint8_t *buffer; /* of one append, and of what is read */
};

enum store_how {
    STORE_CONTINUE, /* with what is there, and with nothing else */
    STORE_RESTORE,  /* with what is there before the first damage */
    STORE_FRESH,    /* with nothing; what is there is kept beside it, under another name */
};

/* Opens the log at `path` and hands its records to `take`. STORE_FRESH: makes it with that identity, and the records of `each`.
 * Otherwise *identity has the space's name, and its id is filled in. Errors are explained (lib/explain.h), with file and offset:
 * -EBUSY: another process uses it; -ENOENT: it is missing; -EINVAL: another space's, or no log; -EBADMSG: damaged. */
int store_file_open(struct store_file *s, struct disk *disk, const char *path, enum store_how how, struct store_identity *identity,
                    store_take take, int (*each)(void *ctx, store_take take, void *to), void *ctx);

#endif
