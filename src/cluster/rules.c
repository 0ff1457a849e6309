/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rules.h"
#include "lib/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3130726b6c776170) /* "pawlkr01", as it lies there */
#define PERMISSIONS 0600

struct file {
    uint64_t magic;
    char space[32];
    uint32_t racks, pad;
    struct rules rules;
    uint64_t check;
};

void rules_init(struct rules *r, unsigned racks)
{
    r->now = r->before = rack_rules_first(racks);
}

int rules_move(const struct rules *r, unsigned racks, unsigned first, unsigned end, unsigned rack, struct rules *out)
{
    struct rules next = {.now = r->now, .before = r->now};
    bool news = false;
    if (first >= end || end > RACK_SHARDS || rack >= racks || r->now.version == UINT32_MAX)
        return -EINVAL;
    for (unsigned s = first; s < end; s++) {
        news |= next.now.owner[s] != rack;
        next.now.owner[s] = (uint8_t)rack;
    }
    next.now.version++;
    assert(next.now.version > r->now.version && rack_rules_fine(&next.now, racks));
    if (news)
        *out = next;
    return news ? 0 : -EALREADY;
}

bool rules_loses(const struct rules *r, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->before.owner[s] == rack && r->now.owner[s] != rack)
            return true;
    return false;
}

bool rules_gains(const struct rules *r, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if (r->before.owner[s] != rack && r->now.owner[s] == rack)
            return true;
    return false;
}

bool rules_concern(const struct rack_rules *a, const struct rack_rules *b, unsigned rack)
{
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        if ((a->owner[s] == rack) != (b->owner[s] == rack))
            return true;
    return false;
}

/* ---- the file ---- */

static void fill(struct file *f, const char *space, unsigned racks, const struct rules *r)
{
    memset(f, 0, sizeof *f);
    f->magic = MAGIC;
    snprintf(f->space, sizeof f->space, "%s", space);
    f->racks = racks;
    f->rules = *r;
    f->check = hash_bytes(f, offsetof(struct file, check), 0);
}

int rules_load(const char *path, const char *space, unsigned racks, struct rules *r)
{
    struct file f, like;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? rules_save(path, space, racks, r) : -errno;
    ssize_t got = read(fd, &f, sizeof f);
    int rc = got < 0 ? -errno : 0;
    close(fd);
    if (rc)
        return rc;
    if (got != sizeof f || !rack_rules_fine(&f.rules.now, racks) || !rack_rules_fine(&f.rules.before, racks))
        return -EINVAL;
    fill(&like, space, racks, &f.rules);
    if (memcmp(&f, &like, sizeof f) != 0)
        return -EINVAL;
    *r = f.rules;
    return 0;
}

/* The new name is on the disk when its folder is. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
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

int rules_save(const char *path, const char *space, unsigned racks, const struct rules *r)
{
    char temporary[PATH_MAX];
    struct file f;
    fill(&f, space, racks, r);
    if (snprintf(temporary, sizeof temporary, "%s.new", path) >= (int)sizeof temporary)
        return -ENAMETOOLONG;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, PERMISSIONS);
    if (fd < 0)
        return -errno;
    ssize_t put = write(fd, &f, sizeof f);
    int rc = put == sizeof f ? (fsync(fd) ? -errno : 0) : put < 0 ? -errno : -EIO;
    close(fd);
    if (!rc && rename(temporary, path))
        rc = -errno;
    return rc ? rc : sync_folder(path);
}
