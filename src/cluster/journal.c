/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/journal.h"
#include "lib/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3130796b6c776170) /* "pawlky01", as it lies there */
#define PERMISSIONS 0600
#define BUFFER 65536u

struct head {
    uint64_t magic, locks;
    uint32_t keys, pad;
    char space[32];
    uint64_t check;
};

/* Before each key's bytes. */
struct record {
    uint32_t len;
    uint32_t check; /* of the key and how many came before it */
};

static uint32_t check_of(const void *bytes, uint32_t len, uint64_t order)
{
    return (uint32_t)hash_bytes(bytes, len, order + 1);
}

static struct head head_of(const struct directory *d, const char *space)
{
    struct head h;
    memset(&h, 0, sizeof h);
    h.magic = MAGIC;
    h.locks = d->locks;
    h.keys = d->keys;
    snprintf(h.space, sizeof h.space, "%s", space);
    h.check = hash_bytes(&h, offsetof(struct head, check), 0);
    return h;
}

static int read_all(int fd, void *to, uint32_t len, uint64_t at)
{
    ssize_t got = pread(fd, to, len, (off_t)at);
    return got < 0 ? -errno : got == (ssize_t)len ? 0 : -ENODATA;
}

static int write_all(int fd, const void *from, uint64_t len, uint64_t at)
{
    const char *p = from;
    while (len) {
        ssize_t put = pwrite(fd, p, len, (off_t)at);
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

static int begin(struct journal *j, const struct head *h)
{
    int rc = write_all(j->fd, h, sizeof *h, 0);
    if (!rc && fdatasync(j->fd))
        rc = -errno;
    j->end = sizeof *h;
    return rc;
}

/* Reads until the end, or until a record that its writer did not complete. Such a record must be the last, or the file is damaged.
 */
static int load(struct journal *j, struct directory *d, uint64_t size)
{
    struct record r;
    char bytes[DIRECTORY_KEY_MAX];
    uint64_t index;
    for (j->end = sizeof(struct head); j->end < size; j->end += sizeof r + r.len) {
        bool whole = !read_all(j->fd, &r, sizeof r, j->end) && r.len - 1 < sizeof bytes &&
                     !read_all(j->fd, bytes, r.len, j->end + sizeof r) && r.check == check_of(bytes, r.len, d->count);
        if (!whole && size - j->end > BUFFER + sizeof r + sizeof bytes)
            return -EBADMSG; /* more than one write can have left behind */
        if (!whole)
            break;
        uint64_t before = d->count;
        int rc = directory_add(d, bytes, r.len, &index);
        if (rc || d->count != before + 1)
            return rc ? rc : -EBADMSG;
    }
    j->written = d->count;
    return j->end < size && ftruncate(j->fd, (off_t)j->end) ? -errno : 0;
}

int journal_open(struct journal *j, const char *path, const char *space, struct directory *d)
{
    struct head want = head_of(d, space), have;
    struct stat s;
    *j = (struct journal){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, PERMISSIONS)};
    if (j->fd < 0)
        return -errno;
    int rc = flock(j->fd, LOCK_EX | LOCK_NB) ? (errno == EWOULDBLOCK ? -EBUSY : -errno) : 0;
    if (!rc && fstat(j->fd, &s))
        rc = -errno;
    if (!rc && (uint64_t)s.st_size < sizeof have)
        rc = begin(j, &want);
    else if (!rc && (rc = read_all(j->fd, &have, sizeof have, 0)) == 0)
        rc = memcmp(&have, &want, sizeof have) ? -EINVAL : load(j, d, (uint64_t)s.st_size);
    if (rc)
        journal_close(j);
    return rc;
}

int journal_write(struct journal *j, const struct directory *d)
{
    char buffer[BUFFER];
    uint64_t order = j->written, end = j->end;
    if (order == d->count)
        return 0;
    while (order < d->count) {
        uint32_t used = 0;
        for (; order < d->count; order++) {
            const struct directory_key *k = &d->key[order];
            struct record r = {k->len, check_of(d->bytes + k->at, k->len, order)};
            if (used + sizeof r + k->len > sizeof buffer)
                break;
            memcpy(buffer + used, &r, sizeof r);
            memcpy(buffer + used + sizeof r, d->bytes + k->at, k->len);
            used += (uint32_t)sizeof r + k->len;
        }
        int rc = write_all(j->fd, buffer, used, end);
        if (rc)
            return rc; /* written again next time, at the same place */
        end += used;
    }
    if (fdatasync(j->fd))
        return -errno;
    j->written = order;
    j->end = end;
    assert(j->written == d->count);
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        close(j->fd);
    j->fd = -1;
}
