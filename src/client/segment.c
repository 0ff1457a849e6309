/* SPDX-License-Identifier: Apache-2.0 */
#include "client/segment.h"
#include "client/offered.h"
#include "client/segment_guard.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_NAME_MAX 64 /* leaves room in a file name for the prefix and a user id */
#define SEGMENT_DEFAULT "default"
#define LEASE_TRIES_MAX 200 /* of finding no other process that looks at a segment of an earlier layout */
#define LEASE_PAUSE_NS NS_PER_MS
#define RESERVE_MAX (UINT64_C(64) << 20) /* bytes of a sparse space that are taken at once all the same */

/* Mappings of this process by inode. Handles that share one also show their races to a sanitizer. */
static struct segment *mapped;
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

int segment_kind(const char *place, enum segment_kind *kind, const char **rest)
{
    static const char *const schemes[] = {[SEGMENT_LOCAL] = "local:", [SEGMENT_SYSTEM] = "system:"};
    for (unsigned i = 0; i < countof(schemes); i++)
        if (!strncmp(place, schemes[i], strlen(schemes[i]))) {
            *kind = (enum segment_kind)i;
            *rest = place + strlen(schemes[i]);
            return 0;
        }
    return segment_no_place(place);
}

int segment_no_place(const char *place)
{
    return explain(
        -EINVAL,
        "'%s' is not a place; places are local:, local:NAME, local:/PATH, system:, system:NAME and pawl://ADDRESS:PORT/SPACE",
        place);
}

int segment_place(const char *place, char *out, size_t size)
{
    enum segment_kind kind = SEGMENT_LOCAL;
    const char *rest = "";
    int rc = segment_kind(place, &kind, &rest);
    return rc ? rc : segment_path(kind, rest, out, size);
}

int segment_check_system(void)
{
    struct stat st;
    if (lstat(SEGMENT_SYSTEM_DIR, &st))
        return explain(-ENOTDIR, "this machine has no place for system: yet (%s: %s); 'pawl doctor --fix' as root makes it",
                       SEGMENT_SYSTEM_DIR, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022 && !(st.st_mode & S_ISVTX)))
        return explain(
            -EACCES,
            "%s is not a folder of root's with the sticky bit, so any user could replace what is in it; 'pawl doctor --fix' "
            "as root mends it",
            SEGMENT_SYSTEM_DIR);
    return 0;
}

int segment_path(enum segment_kind kind, const char *where, char *out, size_t size)
{
    int len;
    if (where[0] == '/' && kind == SEGMENT_SYSTEM)
        return explain(-EINVAL, "system: has names and no paths; local:%s is a segment at that path", where);
    if (where[0] == '/') {
        len = snprintf(out, size, "%s", where);
    } else {
        const char *name = where[0] ? where : SEGMENT_DEFAULT;
        if (strlen(name) > SEGMENT_NAME_MAX)
            return explain(-ENAMETOOLONG, "the space name '%.80s' is longer than %d bytes", name, SEGMENT_NAME_MAX);
        for (const char *c = name; *c; c++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *c))
                return explain(-EINVAL, "the space name '%s' may have letters, digits, '-', '_' and '.'; a path begins with '/'",
                               name);
        if (kind == SEGMENT_SYSTEM && name[0] == '.')
            return explain(-EINVAL, "the space name '%s' of system: must not begin with '.'", name);
        len = kind == SEGMENT_SYSTEM ? snprintf(out, size, SEGMENT_SYSTEM_DIR "/%s", name)
                                     : snprintf(out, size, SEGMENT_DIR "/pawl.%u.%s", (unsigned)geteuid(), name);
    }
    return len < 0 || (size_t)len >= size ? explain(-ENAMETOOLONG, "the path of the space is too long") : 0;
}

static void read_boot_id(uint8_t out[LAYOUT_BOOT_ID_LEN])
{
    char text[40] = "";
    memset(out, 0, LAYOUT_BOOT_ID_LEN);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    unsigned nibble = 0;
    for (ssize_t i = 0; i < len && nibble < 2 * LAYOUT_BOOT_ID_LEN; i++) {
        char digit[2] = {text[i], 0};
        if (text[i] == '-')
            continue;
        out[nibble / 2] = (uint8_t)(out[nibble / 2] << 4 | (uint8_t)strtoul(digit, NULL, 16));
        nibble++;
    }
}

/* ---- opening ---- */

/* Says how to remove a segment that cannot be used. Files that are neither under the names of spaces nor made by pawl may be
 * anything: they are to stay. */
static int refuse_segment(const char *path, const char *fault, bool is_pawls)
{
    char ours[64];
    int len = snprintf(ours, sizeof ours, SEGMENT_DIR "/pawl.%u.", (unsigned)geteuid());
    if (!strncmp(path, ours, (size_t)len))
        return explain(-PAWL_ESEGMENT,
                       "%s: %s; choose another name, or end the processes that use it ('fuser %s' lists them) and remove it: pawl "
                       "space drop --force %s",
                       path, fault, path, path + len);
    if (is_pawls)
        return explain(-PAWL_ESEGMENT,
                       "%s: %s; choose another name, or end the processes that use it ('fuser %s' lists them) and remove it: rm %s",
                       path, fault, path, path);
    return explain(-PAWL_ESEGMENT, "%s: %s; choose another name", path, fault);
}

/* The user that the name of a segment promises: another user could have put a file there on purpose. */
static bool belongs_as_named(const char *path, const struct stat *st)
{
    static const char ours[] = SEGMENT_DIR "/pawl.";
    char *end;
    if (strncmp(path, ours, strlen(ours)))
        return true;
    errno = 0;
    unsigned long user = strtoul(path + strlen(ours), &end, 10);
    return *end != '.' || errno || user == st->st_uid;
}

static int check_file(int fd, const char *path, struct stat *st)
{
    if (fstat(fd, st))
        return explain(-errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st->st_mode))
        return explain(-PAWL_ESEGMENT, "%s is not a regular file", path);
    if (!belongs_as_named(path, st))
        return explain(-EACCES, "%s belongs to user %u, not to the one in its name; choose another name", path,
                       (unsigned)st->st_uid);
    if (st->st_size < LAYOUT_HEADER_BYTES)
        return refuse_segment(path, "it is too short for a pawl segment", false);
    return 0;
}

static int check_header(const struct layout_header *h, uint64_t size, const char *path)
{
    const char *fault = layout_fault(h, size);
    char design[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(design, h->design, LAYOUT_DESIGN_LEN);
    if (fault && !design_find(design) && design_is_offered(design))
        return refuse_design(design);
    if (fault)
        return refuse_segment(path, fault, h->magic == LAYOUT_MAGIC);
    uint8_t boot[LAYOUT_BOOT_ID_LEN];
    read_boot_id(boot);
    if (memcmp(boot, h->boot_id, sizeof boot))
        return refuse_segment(path, "it was left from before the machine restarted", true);
    if (h->ring_bytes != fab_shm_ring_bytes())
        return refuse_segment(path, "its message rings have another size; it was made by another release of pawl", true);
    return 0;
}

static int map_file(int fd, const char *path, const struct stat *st, struct segment **out)
{
    uint64_t size = (uint64_t)st->st_size;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return explain(-errno, "%s: cannot map %llu bytes: %s", path, (unsigned long long)size, strerror(errno));
    /* Of a segment that others can write to, only the copy is sure to be what was checked. */
    bool guarded = st->st_uid != geteuid() || st->st_mode & (S_IWGRP | S_IWOTH);
    struct layout_header header;
    int rc = guarded ? segment_guard_add(base, size) : 0;
    if (!rc) {
        memcpy(&header, base, sizeof header);
        rc = check_header(&header, size, path);
    }
    struct segment *s = rc ? NULL : calloc(1, sizeof *s);
    char *copy = s ? strdup(path) : NULL;
    if (!copy) {
        free(s);
        segment_guard_remove(base);
        munmap(base, size);
        return rc ? rc : -ENOMEM;
    }
    *s = (struct segment){.base = base,
                          .size = size,
                          .header = header,
                          .path = copy,
                          .dev = st->st_dev,
                          .ino = st->st_ino,
                          .users = 1,
                          .guarded = guarded};
    *out = s;
    return 0;
}

ONCE int segment_open(const char *path, struct segment **out)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return explain(-errno, "%s: %s", path, strerror(errno));
    int rc = check_file(fd, path, &st);
    if (!rc) {
        pthread_mutex_lock(&mapped_lock);
        struct segment *s = mapped;
        while (s && (s->dev != st.st_dev || s->ino != st.st_ino))
            s = s->next;
        if (s) {
            s->users++;
        } else if (!(rc = map_file(fd, path, &st, &s))) {
            assert(s); /* an errno of 0 would be news */
            s->next = mapped;
            mapped = s;
        }
        if (!rc)
            *out = s;
        pthread_mutex_unlock(&mapped_lock);
    }
    close(fd);
    return rc;
}

static bool is_older(int fd, const char *path)
{
    struct layout_header h;
    struct stat st;
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && belongs_as_named(path, &st) && pread(fd, &h, sizeof h, 0) == sizeof h &&
           h.magic == LAYOUT_MAGIC && h.byte_order == LAYOUT_BYTE_ORDER && h.version < LAYOUT_VERSION;
}

static bool names(const char *path, int fd)
{
    struct stat st, there;
    return !fstat(fd, &st) && !lstat(path, &there) && there.st_dev == st.st_dev && there.st_ino == st.st_ino;
}

/* The kernel gives the lease only if no other process has the file open or mapped. While it lasts, those that open it are told to
 * try again (EAGAIN). The kernel tells its holder of them by a signal, here one that is ignored unless the program wants it. */
static int remove_if_unused(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    if (!is_older(fd, path))
        rc = 0; /* it was replaced just now, or the caller finds out what else is wrong */
    else if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_WRLCK) || (names(path, fd) && unlink(path)))
        rc = errno;
    close(fd); /* ends the lease */
    return rc;
}

int segment_remove_older(const char *path)
{
    if (strncmp(path, SEGMENT_DIR "/", strlen(SEGMENT_DIR "/")))
        return -ESTALE;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool older = fd >= 0 ? is_older(fd, path) : errno == EAGAIN;
    if (fd >= 0)
        close(fd);
    for (int i = 0; older && i < LEASE_TRIES_MAX; i++) {
        int rc = remove_if_unused(path);
        if (rc != EAGAIN)
            return rc ? -EBUSY : 0;
        /* Another process may be looking at it just now, as this one is. */
        nanosleep(&(struct timespec){.tv_nsec = LEASE_PAUSE_NS + LEASE_PAUSE_NS * (getpid() % 8) / 8}, NULL);
    }
    return older ? -EBUSY : -ESTALE;
}

bool segment_in_place(const struct segment *s)
{
    struct stat st;
    return !stat(s->path, &st) && st.st_dev == s->dev && st.st_ino == s->ino && (uint64_t)st.st_size == s->size;
}

void segment_close(struct segment *s)
{
    pthread_mutex_lock(&mapped_lock);
    if (--s->users == 0) {
        for (struct segment **at = &mapped; *at; at = &(*at)->next)
            if (*at == s) {
                *at = s->next;
                break;
            }
        segment_guard_remove(s->base);
        munmap(s->base, s->size);
        free(s->path);
        free(s);
    }
    pthread_mutex_unlock(&mapped_lock);
}

/* ---- creating ---- */

int segment_take(const struct segment *s, uint64_t offset, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset / page * page;
    /* -EINVAL: a kernel before 5.14, which cannot tell */
    if (!madvise((char *)s->base + from, round_up(offset + bytes, page) - from, MADV_POPULATE_WRITE) || errno == EINVAL)
        return 0;
    return explain(-ENOSPC, "%s: no memory for another value: %s", s->path, errno == EFAULT ? strerror(ENOSPC) : strerror(errno));
}

/* The locks of a design whose free lock is not all zeroes. */
static int format(void *base, const struct layout_header *h)
{
    struct space space;
    struct fab_ep ep;
    layout_space(h, 0, &space);
    fab_shm_init(&ep, base, h->total_bytes);
    struct seat seat = {.space = &space, .ep = &ep, .world = &world_real};
    int rc = 0;
    for (uint64_t i = 0; i < space.lock_count && !rc && space.design->format; i++)
        rc = space.design->format(&seat, i);
    return rc;
}

int segment_reserve(int fd, const struct layout_header *h)
{
    if (ftruncate(fd, (off_t)h->total_bytes))
        return errno;
    if (!layout_is_sparse(h) || h->total_bytes <= RESERVE_MAX)
        return posix_fallocate(fd, 0, (off_t)(layout_values(h) ? layout_values(h) : h->total_bytes));
    int rc = posix_fallocate(fd, 0, (off_t)h->cells);
    return rc || h->names == h->total_bytes ? rc : posix_fallocate(fd, (off_t)h->names, (off_t)(h->total_bytes - h->names));
}

static int fill(int fd, const char *path, const struct layout_params *p)
{
    struct layout_header h;
    int rc = layout_make(p, &h);
    if (rc)
        return rc == -PAWL_ENOTSUP ? rc
                                   : explain(rc, "%s: a space of %llu locks, %u sessions and %u holds each is out of bounds", path,
                                             (unsigned long long)p->capacity, p->sessions, p->holds);
    layout_set_boot_id(&h, read_boot_id);
    rc = segment_reserve(fd, &h);
    if (rc)
        return explain(-rc, "%s: no room for %llu bytes: %s", path, (unsigned long long)h.total_bytes, strerror(rc));
    void *base = mmap(NULL, h.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return explain(-errno, "%s: cannot map %llu bytes: %s", path, (unsigned long long)h.total_bytes, strerror(errno));
    rc = format(base, &h);
    memcpy(base, &h, sizeof h);
    munmap(base, h.total_bytes);
    return rc;
}

ONCE int segment_create(const char *path, const struct layout_params *p, mode_t permissions)
{
    char dir[PATH_MAX], self[64];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return explain(-errno, "%s: cannot create a file there: %s", dir, strerror(errno));
    int rc = fill(fd, path, p);
    if (!rc && fchmod(fd, permissions))
        rc = explain(-errno, "%s: %s", path, strerror(errno));
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!rc && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
        rc = explain(-errno, "%s: %s", path, strerror(errno));
    close(fd);
    return rc;
}
