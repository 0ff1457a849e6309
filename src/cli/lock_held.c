/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that processes above this one hold. `pawl lock a -- pawl lock a` would wait for itself. A command finds in PAWL_HELD, for
 * each lock above it, the token and a hash of space and name. A lock whose present token is one of those is held by a process that
 * waits for this one. The token is compared, because a process may outlive the lock under which it was started. */
#include "cli/lock.h"
#include "lib/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HELD "PAWL_HELD"
#define ENTRY_LEN 40 /* a token, a hash and two separators */
#define HELD_MAX 64  /* entries that are passed on: more commands than that are not nested */

static void entry_of(const struct lock_job *job, uint64_t token, char out[ENTRY_LEN])
{
    uint64_t place = hash_bytes(job->place, strlen(job->place), 0);
    snprintf(out, ENTRY_LEN, "%" PRIu64 "/%016" PRIx64 ",", token, hash_bytes(job->name, strlen(job->name), place));
}

int lock_note_held(const struct lock_job *job)
{
    char all[HELD_MAX * ENTRY_LEN], entry[ENTRY_LEN];
    const char *above = getenv(HELD);
    entry_of(job, job->grant.token, entry);
    if (!above || strlen(above) + strlen(entry) >= sizeof all)
        above = "";
    snprintf(all, sizeof all, "%s%s", above, entry);
    return setenv(HELD, all, 1) ? -errno : 0;
}

bool lock_held_above(const struct lock_job *job, uint64_t token)
{
    char entry[ENTRY_LEN];
    const char *above = getenv(HELD), *found = NULL;
    entry_of(job, token, entry);
    for (const char *at = above; at && (found = strstr(at, entry)) && found != above && found[-1] != ',';)
        at = found + 1;
    return token && found;
}
