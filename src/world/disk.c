/* SPDX-License-Identifier: Apache-2.0 */
/* The file system of this machine. */
#include "world/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PERMISSIONS 0600 /* names of locks are private to their user */

/* A process that was killed keeps its locks until the kernel has ended it, and its successor may start before that. */
#define LOCK_LOOK_NS (10 * NS_PER_MS)
#define LOCK_LOOKS 300

struct real_file {
    struct disk_file file;
    int fd;
};

static int fd_of(const struct disk_file *f)
{
    return container_of(f, struct real_file, file)->fd;
}

static int open_as(struct disk *d, const char *path, int flags, struct disk_file **out)
{
    struct real_file *f = malloc(sizeof *f);
    if (!f)
        return -ENOMEM;
    *f = (struct real_file){.file.disk = d, .fd = open(path, flags | O_CLOEXEC, PERMISSIONS)};
    if (f->fd < 0) {
        int rc = errno ? -errno : -EIO;
        free(f);
        return rc;
    }
    *out = &f->file;
    return 0;
}

static void real_close(struct disk_file *f)
{
    close(fd_of(f));
    free(container_of(f, struct real_file, file));
}

static int real_open(struct disk *d, const char *path, enum disk_open how, struct disk_file **out)
{
    return open_as(d, path, how == DISK_EMPTY ? O_RDWR | O_CREAT | O_TRUNC : O_RDWR, out);
}

/* Whether the name still leads to the file that is open: the process that held the lock may have removed it since. */
static bool is_there(const char *path, int fd)
{
    struct stat named, held;
    return !stat(path, &named) && !fstat(fd, &held) && named.st_ino == held.st_ino && named.st_dev == held.st_dev;
}

static int real_lock(struct disk *d, const char *path, struct disk_file **out)
{
    struct disk_file *f = NULL;
    for (unsigned i = 0; i < LOCK_LOOKS; i++) {
        int rc = f ? 0 : open_as(d, path, O_RDWR | O_CREAT, &f);
        if (rc)
            return rc;
        assert(f);
        if (!flock(fd_of(f), LOCK_EX | LOCK_NB)) {
            if (is_there(path, fd_of(f))) {
                *out = f;
                return 0;
            }
            real_close(f);
            f = NULL;
            continue;
        }
        if (errno != EWOULDBLOCK) {
            rc = -errno;
            real_close(f);
            return rc;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)LOCK_LOOK_NS}, NULL);
    }
    if (f)
        real_close(f);
    return -EBUSY;
}

static int real_size(struct disk_file *f, uint64_t *out)
{
    struct stat s;
    if (fstat(fd_of(f), &s))
        return -errno;
    *out = (uint64_t)s.st_size;
    return 0;
}

static int real_read(struct disk_file *f, void *to, uint64_t len, uint64_t at)
{
    for (char *p = to; len;) {
        ssize_t got = pread(fd_of(f), p, len, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        p += got;
        at += (uint64_t)got;
        len -= (uint64_t)got;
    }
    return 0;
}

static int real_write(struct disk_file *f, const void *from, uint64_t len, uint64_t at)
{
    for (const char *p = from; len;) {
        ssize_t put = pwrite(fd_of(f), p, len, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        p += put;
        at += (uint64_t)put;
        len -= (uint64_t)put;
    }
    return 0;
}

static int real_extend(struct disk_file *f, uint64_t bytes)
{
    int rc = posix_fallocate(fd_of(f), 0, (off_t)bytes);
    return -rc;
}

static int real_sync(struct disk_file *f)
{
    return fdatasync(fd_of(f)) ? -errno : 0;
}

/* A name is on the disk when its folder is. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return -ENAMETOOLONG;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = fsync(fd) ? -errno : 0;
    close(fd);
    return rc;
}

static int real_rename(struct disk *d, const char *from, const char *to)
{
    (void)d;
    return rename(from, to) ? -errno : sync_folder(to);
}

static int real_remove(struct disk *d, const char *path)
{
    (void)d;
    return unlink(path) ? -errno : 0;
}

static const struct disk_ops ops = {
    .lock = real_lock,
    .open = real_open,
    .close = real_close,
    .size = real_size,
    .read = real_read,
    .write = real_write,
    .extend = real_extend,
    .sync = real_sync,
    .rename = real_rename,
    .remove = real_remove,
};

struct disk disk_real = {.ops = &ops};
