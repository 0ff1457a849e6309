/* SPDX-License-Identifier: Apache-2.0 */
/* Files that outlast the process: what the coordinator keeps. Code that decides asks a disk, never the operating system, so the
 * same code runs on a real file system and on a simulated one, which loses and tears writes that were not synced (sim_disk.h).
 *
 * The only promise of a disk: after `sync` the file's bytes are there after a crash. Writes before that may each be
 * there, be missing or be torn, in any order. `rename` is atomic and durable when it returns. */
#ifndef PAWL_WORLD_DISK_H
#define PAWL_WORLD_DISK_H

#include "lib/base.h"

struct disk;

/* Embedded in what the implementation knows of a file. */
struct disk_file {
    struct disk *disk;
};

enum disk_open { DISK_EXISTING, DISK_EMPTY /* made, or emptied */ };

/* All return 0 or a negative errno. */
struct disk_ops {
    /* Held until the file is closed or the process ends; made if it is missing. -EBUSY: another process holds it. */
    int (*lock)(struct disk *d, const char *path, struct disk_file **out);
    int (*open)(struct disk *d, const char *path, enum disk_open how, struct disk_file **out);
    void (*close)(struct disk_file *f);
    int (*size)(struct disk_file *f, uint64_t *out);
    int (*read)(struct disk_file *f, void *to, uint64_t len, uint64_t at); /* -ENODATA: the file ends before that */
    int (*write)(struct disk_file *f, const void *from, uint64_t len, uint64_t at);
    int (*extend)(struct disk_file *f, uint64_t bytes); /* with zeros, and room for them is reserved; -ENOSPC */
    int (*sync)(struct disk_file *f);
    int (*rename)(struct disk *d, const char *from, const char *to); /* and syncs the folder */
    int (*remove)(struct disk *d, const char *path);                 /* of a lock: only while it is held */
};

struct disk {
    const struct disk_ops *ops;
};

extern struct disk disk_real;

#endif
