/* SPDX-License-Identifier: Apache-2.0 */
#include "world/sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED_DISK UINT64_C(0x4449534b)

struct sim_disk_open {
    struct disk_file file;
    struct sim_disk_entry *entry;
    struct sim_disk_open *next;
    bool lock;
};

static struct sim_disk *disk_of(struct disk *d)
{
    return container_of(d, struct sim_disk, disk);
}

static struct sim_disk_entry *entry_of(const struct disk_file *f)
{
    return container_of(f, struct sim_disk_open, file)->entry;
}

/* ---- contents ---- */

static void resize(struct sim_disk_content *c, uint64_t size)
{
    if (size > c->room) {
        c->room = max_u64(size, 2 * c->room);
        c->bytes = realloc(c->bytes, c->room);
        assert(c->bytes);
    }
    if (size > c->size)
        memset(c->bytes + c->size, 0, size - c->size);
    c->size = size;
}

static void copy(struct sim_disk_content *to, const struct sim_disk_content *from)
{
    resize(to, from->size);
    if (from->size)
        memcpy(to->bytes, from->bytes, from->size);
}

void sim_disk_remove(struct sim_disk_entry *e)
{
    free(e->seen.bytes);
    free(e->durable.bytes);
    *e = (struct sim_disk_entry){.path = ""};
}

/* ---- files ---- */

struct sim_disk_entry *sim_disk_find(struct sim_disk *d, const char *path)
{
    for (unsigned i = 0; i < SIM_DISK_FILES; i++)
        if (!strcmp(d->files[i].path, path))
            return &d->files[i];
    return NULL;
}

static int add(struct sim_disk *d, const char *path, struct sim_disk_entry **out)
{
    *out = sim_disk_find(d, "");
    if (!*out || strlen(path) >= SIM_DISK_PATH)
        return -ENFILE;
    snprintf((*out)->path, SIM_DISK_PATH, "%s", path);
    return 0;
}

static int hand_out(struct disk *d, struct sim_disk_entry *e, bool lock, struct disk_file **out)
{
    struct sim_disk_open *o = malloc(sizeof *o);
    if (!o)
        return -ENOMEM;
    *o = (struct sim_disk_open){.file.disk = d, .entry = e, .next = disk_of(d)->open, .lock = lock};
    disk_of(d)->open = o;
    *out = &o->file;
    return 0;
}

static int disk_open(struct disk *d, const char *path, enum disk_open how, struct disk_file **out)
{
    struct sim_disk_entry *e = sim_disk_find(disk_of(d), path);
    int rc = e ? 0 : how == DISK_EXISTING ? -ENOENT : add(disk_of(d), path, &e);
    if (rc)
        return rc;
    if (how == DISK_EMPTY) {
        resize(&e->seen, 0);
        e->pending_count = 0;
    }
    return hand_out(d, e, false, out);
}

static int disk_lock(struct disk *d, const char *path, struct disk_file **out)
{
    struct sim_disk_entry *e = sim_disk_find(disk_of(d), path);
    int rc = e ? (e->locked ? -EBUSY : 0) : add(disk_of(d), path, &e);
    if (!rc)
        rc = hand_out(d, e, true, out);
    if (!rc)
        e->locked = true;
    return rc;
}

static void end_open(struct sim_disk_open *o)
{
    if (o->lock)
        o->entry->locked = false;
    free(o);
}

static void close_all(struct sim_disk *d)
{
    for (struct sim_disk_open *o = d->open, *next; o; o = next) {
        next = o->next;
        end_open(o);
    }
    d->open = NULL;
}

static void disk_close(struct disk_file *f)
{
    struct sim_disk_open *o = container_of(f, struct sim_disk_open, file);
    struct sim_disk_open **at = &disk_of(f->disk)->open;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    end_open(o);
}

static int disk_size(struct disk_file *f, uint64_t *out)
{
    *out = entry_of(f)->seen.size;
    return 0;
}

static int disk_read(struct disk_file *f, void *to, uint64_t len, uint64_t at)
{
    const struct sim_disk_content *c = &entry_of(f)->seen;
    if (at > c->size || len > c->size - at)
        return -ENODATA;
    if (len)
        memcpy(to, c->bytes + at, len);
    return 0;
}

static int make_room(struct sim_disk *d, const struct sim_disk_entry *e, uint64_t size)
{
    uint64_t sum = size > e->seen.size ? size - e->seen.size : 0;
    for (unsigned i = 0; i < SIM_DISK_FILES && sum; i++)
        sum += d->files[i].seen.size;
    return sum && d->bytes_max && sum > d->bytes_max ? -ENOSPC : 0;
}

static void note(struct sim_disk_entry *e, uint64_t at, uint64_t len)
{
    if (e->pending_count < SIM_DISK_PENDING) {
        e->pending[e->pending_count].at = at;
        e->pending[e->pending_count++].len = len;
        return;
    }
    uint64_t from = min_u64(at, e->pending[SIM_DISK_PENDING - 1].at);
    uint64_t end = max_u64(at + len, e->pending[SIM_DISK_PENDING - 1].at + e->pending[SIM_DISK_PENDING - 1].len);
    e->pending[SIM_DISK_PENDING - 1].at = from;
    e->pending[SIM_DISK_PENDING - 1].len = end - from;
}

static int disk_write(struct disk_file *f, const void *from, uint64_t len, uint64_t at)
{
    struct sim_disk_entry *e = entry_of(f);
    int rc = make_room(disk_of(f->disk), e, at + len);
    if (rc)
        return rc;
    if (at + len > e->seen.size)
        resize(&e->seen, at + len);
    if (len)
        memcpy(e->seen.bytes + at, from, len);
    note(e, at, len);
    return 0;
}

static int disk_extend(struct disk_file *f, uint64_t bytes)
{
    struct sim_disk_entry *e = entry_of(f);
    int rc = make_room(disk_of(f->disk), e, bytes);
    if (rc || bytes <= e->seen.size)
        return rc;
    note(e, e->seen.size, bytes - e->seen.size);
    resize(&e->seen, bytes);
    return 0;
}

static int disk_sync(struct disk_file *f)
{
    struct sim_disk *d = disk_of(f->disk);
    struct sim_disk_entry *e = entry_of(f);
    if (d->sim && d->sim->current && d->sync_ns) {
        uint64_t until = sim_now(d->sim) + rng_between(&d->random, d->sync_ns / 4, d->sync_ns);
        if (d->on_sync)
            d->on_sync(d->ctx, until);
        while (sim_task_wait(sim_current(d->sim), until) != -ETIMEDOUT)
            ;
    }
    if (d->syncs_left && d->syncs_left-- == 1) {
        d->syncs_left = 1;
        return -EIO;
    }
    d->syncs++;
    copy(&e->durable, &e->seen);
    e->pending_count = 0;
    return 0;
}

static int disk_rename(struct disk *d, const char *from, const char *to)
{
    struct sim_disk_entry *e = sim_disk_find(disk_of(d), from), *old = sim_disk_find(disk_of(d), to);
    if (!e)
        return -ENOENT;
    if (old) /* open files of the old one keep their entry: it moves to the new one's place, and has no name */
        sim_disk_remove(old);
    snprintf(e->path, sizeof e->path, "%s", to);
    return 0;
}

static int disk_remove(struct disk *d, const char *path)
{
    struct sim_disk_entry *e = sim_disk_find(disk_of(d), path);
    if (!e)
        return -ENOENT;
    sim_disk_remove(e);
    return 0;
}

static const struct disk_ops ops = {
    .lock = disk_lock,
    .open = disk_open,
    .close = disk_close,
    .size = disk_size,
    .read = disk_read,
    .write = disk_write,
    .extend = disk_extend,
    .sync = disk_sync,
    .rename = disk_rename,
    .remove = disk_remove,
};

/* ---- by hand ---- */

void sim_disk_init(struct sim_disk *d, struct sim *sim, uint64_t seed)
{
    memset(d, 0, sizeof *d);
    d->disk.ops = &ops;
    d->sim = sim;
    rng_seed(&d->random, seed ^ SEED_DISK);
}

void sim_disk_free(struct sim_disk *d)
{
    close_all(d);
    for (unsigned i = 0; i < SIM_DISK_FILES; i++)
        sim_disk_remove(&d->files[i]);
}

/* Some sectors of a write that was not synced are there. */
static void tear(struct sim_disk *d, struct sim_disk_entry *e, uint64_t at, uint64_t len)
{
    unsigned how = (unsigned)rng_below(&d->random, 3); /* none, all, or some */
    d->torn += how == 2;
    for (uint64_t from = at; from < at + len; from = (from / SIM_DISK_SECTOR + 1) * SIM_DISK_SECTOR) {
        uint64_t end = min_u64((from / SIM_DISK_SECTOR + 1) * SIM_DISK_SECTOR, at + len);
        if (how == 0 || (how == 2 && (rng_next(&d->random) & 1)))
            continue;
        if (end > e->durable.size)
            resize(&e->durable, end);
        memcpy(e->durable.bytes + from, e->seen.bytes + from, end - from);
    }
}

void sim_disk_crash(struct sim_disk *d)
{
    close_all(d);
    for (unsigned i = 0; i < SIM_DISK_FILES; i++) {
        struct sim_disk_entry *e = &d->files[i];
        e->locked = false;
        if (!*e->path)
            continue;
        for (unsigned k = 0; k < e->pending_count; k++)
            tear(d, e, e->pending[k].at, e->pending[k].len);
        e->pending_count = 0;
        copy(&e->seen, &e->durable);
    }
}

void sim_disk_flip(struct sim_disk_entry *e, uint64_t at, uint8_t bits)
{
    assert(at < e->seen.size && at < e->durable.size);
    e->seen.bytes[at] = (char)(e->seen.bytes[at] ^ bits);
    e->durable.bytes[at] = (char)(e->durable.bytes[at] ^ bits);
}

void sim_disk_cut(struct sim_disk_entry *e, uint64_t size)
{
    e->pending_count = 0;
    resize(&e->seen, size);
    resize(&e->durable, size);
}
