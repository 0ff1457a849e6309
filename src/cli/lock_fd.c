/* SPDX-License-Identifier: Apache-2.0 */
/* When all copies of a descriptor are closed. The kernel tells of that by a lock that belongs to the open file description: the
 * keeper takes one on the descriptor that it was given, on a byte far behind any content, opens the same file anew, and waits for
 * the byte. Locks of flock(2), and those of other processes on the content, are not touched. */
#include "cli/lock.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BYTES_FROM (INT64_C(1) << 61) /* two keepers that watch one file choose different bytes behind this */

struct watch {
    int file, event;
    off_t byte;
};

static void *wait_for_byte(void *arg)
{
    struct watch w = *(struct watch *)arg;
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = w.byte, .l_len = 1};
    const uint64_t one = 1;
    free(arg);
    while (fcntl(w.file, F_OFD_SETLKW, &byte) && errno == EINTR)
        ;
    if (write(w.event, &one, sizeof one) < 0)
        close(w.event); /* which poll reports, too */
    return NULL;
}

int lock_watch_fd(struct lock_job *job)
{
    char path[32];
    pthread_t thread;
    struct watch *w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    w->byte = BYTES_FROM + (off_t)(world_random(&world_real) >> 4);
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = w->byte, .l_len = 1};
    snprintf(path, sizeof path, "/proc/self/fd/%d", job->fd);
    w->event = eventfd(0, EFD_CLOEXEC);
    w->file = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    int event = w->event, rc = event < 0 || w->file < 0 || fcntl(job->fd, F_OFD_SETLK, &byte) ? -errno : 0;
    close(job->fd);
    if (!rc)
        rc = -pthread_create(&thread, NULL, wait_for_byte, w);
    if (!rc)
        return event;
    free(w);
    return rc;
}
