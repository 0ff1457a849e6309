/* SPDX-License-Identifier: Apache-2.0 */
/* A reference on one machine: the kernel's byte-range locks of open file descriptions (fcntl, F_OFD_SETLK), on the segment's own
 * file. A lock belongs to a description, so two holds of one session exclude each other only if each has a description of its own:
 * every hold record opens one when it is first used and keeps it.
 *
 * The kernel frees the locks of a dead process, unless a child that it forked still has the descriptions. It keeps all locks of a
 * file in one list, and it has no wait with a deadline. */
#include "workbench/baselines/baselines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX_MAX (UINT64_C(1) << (63 - RANGE_UNITS_BITS)) /* locks lie one behind the other in 63 bits of offset */

/* A session's descriptions, by record and 1; 0: not opened yet. */
struct descriptions {
    uint64_t session; /* session.id */
    struct descriptions *next;
    uint32_t count;
    int fds[];
};

static struct descriptions *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct descriptions *latest; /* of this thread: most lookups are for the same session as the one before */

/* ---- descriptions ---- */

/* The segment's path, as the kernel shows it for the mapping. */
static int path_of(const struct seat *seat, char path[PATH_MAX])
{
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    int rc = -ENOENT;
    while (maps && rc && fgets(line, sizeof line, maps)) {
        char *at;
        uintptr_t from = strtoul(line, &at, 16), to = *at == '-' ? strtoul(at + 1, NULL, 16) : 0;
        const char *name = strchr(line, '/');
        if ((uintptr_t)seat->ep->base >= from && (uintptr_t)seat->ep->base < to && name) {
            line[strcspn(line, "\n")] = 0;
            rc = snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? 0 : -ENAMETOOLONG;
        }
    }
    if (maps)
        fclose(maps);
    return rc;
}

static int open_one(const struct seat *seat)
{
    char path[PATH_MAX];
    int rc = path_of(seat, path);
    int fd = rc ? rc : open(path, O_RDWR | O_CLOEXEC);
    return rc ? rc : fd < 0 ? -errno : fd;
}

static struct descriptions *find(const struct seat *seat)
{
    struct descriptions *d = latest;
    if (likely(d && d->session == seat->me->id))
        return d;
    pthread_mutex_lock(&all_lock);
    for (d = all; d && d->session != seat->me->id; d = d->next)
        ;
    if (!d && (d = calloc(1, sizeof *d + seat->space->record_count * sizeof *d->fds))) {
        d->session = seat->me->id;
        d->count = seat->space->record_count;
        d->next = all;
        all = d;
    }
    pthread_mutex_unlock(&all_lock);
    latest = d;
    return d;
}

/* The description of a record; a record is one task's at a time. */
static int fd_of(const struct seat *seat, const struct hold *h)
{
    struct descriptions *d = find(seat);
    if (!d)
        return -ENOMEM;
    int fd = __atomic_load_n(&d->fds[h->record], __ATOMIC_ACQUIRE) - 1;
    if (unlikely(fd < 0)) {
        fd = open_one(seat);
        if (fd >= 0)
            __atomic_store_n(&d->fds[h->record], fd + 1, __ATOMIC_RELEASE);
    }
    return fd;
}

/* The session has ended: so do its descriptions, and with them its locks. The structure stays allocated, because a thread may still
 * refer to it; it is small. */
static void close_all(const struct seat *seat)
{
    struct descriptions *d = find(seat);
    for (uint32_t i = 0; d && i < d->count; i++) {
        int fd = __atomic_exchange_n(&d->fds[i], 0, __ATOMIC_ACQ_REL) - 1;
        if (fd >= 0)
            close(fd);
    }
}

/* ---- locks ---- */

static int change(int fd, const struct hold *h, short type, int command)
{
    struct flock lock = {.l_type = type,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(h->index << RANGE_UNITS_BITS | h->start),
                         .l_len = (off_t)(h->end - h->start)};
    int rc;
    do
        rc = fcntl(fd, command, &lock);
    while (rc && errno == EINTR);
    return rc ? -errno : 0;
}

static int ofd_acquire(const struct seat *seat, struct hold *h, uint64_t deadline)
{
    if (h->index >= INDEX_MAX)
        return -ERANGE;
    int fd = fd_of(seat, h);
    if (unlikely(fd < 0))
        return fd;
    hold_note_range(seat, h);
    hold_publish(seat, h, RECORD_WAIT); /* for inspection only; the kernel needs no records */
    h->token = 0;
    int rc = change(fd, h, h->mode == PAWL_SHARED ? F_RDLCK : F_WRLCK, deadline == DEADLINE_TRY ? F_OFD_SETLK : F_OFD_SETLKW);
    if (likely(!rc))
        return hold_publish(seat, h, record_held(h->mode));
    return rc == -EAGAIN || rc == -EACCES ? -PAWL_EHELD : rc;
}

static int ofd_release(const struct seat *seat, const struct hold *h)
{
    int rc = hold_change(seat, h, record_held(h->mode), RECORD_WAIT);
    int fd = rc ? rc : fd_of(seat, h);
    if (fd >= 0)
        rc = change(fd, h, F_UNLCK, F_OFD_SETLK);
    if (fd < 0 || rc)
        return fd < 0 ? fd : rc;
    hold_close(seat, h);
    return 0;
}

static int ofd_recover(const struct seat *seat, uint32_t dead, uint32_t epoch)
{
    if (dead == seat->me->slot && epoch == seat->me->epoch)
        close_all(seat);
    return 0;
}

static int ofd_peek(const struct seat *seat, uint64_t index, struct lock_view *out)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(index << RANGE_UNITS_BITS), .l_len = (off_t)RANGE_UNITS_MAX};
    int fd = open_one(seat);
    if (fd < 0)
        return fd;
    int rc = fcntl(fd, F_OFD_GETLK, &lock) ? -errno : 0;
    close(fd);
    if (!rc)
        *out = (struct lock_view){.mode = lock.l_type == F_UNLCK   ? 0
                                          : lock.l_type == F_RDLCK ? PAWL_SHARED
                                                                   : PAWL_EXCLUSIVE,
                                  .owner = LOCK_OWNER_UNKNOWN};
    return rc;
}

const struct design design_ofd = {
    .name = "ofd",
    .summary = "the kernel's byte-range locks of open file descriptions",
    .kind = DESIGN_REFERENCE,
    .features = DESIGN_EXCLUSIVE | DESIGN_SHARED | DESIGN_RECOVERY | DESIGN_RANGES,
    .substrates = DESIGN_ON_SHM,
    .lock_size = 16,
    .acquire = ofd_acquire,
    .release = ofd_release,
    .holds = hold_is_held,
    .recover = ofd_recover,
    .peek = ofd_peek,
};

/* ---- for benchmarks ---- */

/* Locks the whole span at once, and then unlocks from the end the units that are not to be held: the kernel then finds them at the
 * front of its list. Taking one lock after the other would walk over all locks that are there (12 minutes for 100,000). */
int ofd_hold_apart(const struct seat *seat, uint64_t index, uint64_t start, uint64_t stride, uint64_t count, int *fd)
{
    struct hold h = {.index = index, .start = start, .end = start + (count - 1) * stride + 1};
    *fd = open_one(seat);
    int rc = *fd < 0 ? *fd : count ? change(*fd, &h, F_WRLCK, F_OFD_SETLK) : 0;
    for (uint64_t i = count; i > 1 && stride > 1 && !rc; i--) {
        h.end = start + (i - 1) * stride;
        h.start = h.end - stride + 1;
        rc = change(*fd, &h, F_UNLCK, F_OFD_SETLK);
    }
    return rc;
}
