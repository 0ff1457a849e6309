/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated disk of a host: a few files, each as the process sees it and as a crash would leave it.
 *
 * Writes that were not synced are lost in a crash, are there, or are torn: each of their sectors is there or not, by the seed. A
 * sync takes time if a task of the simulation calls it, and a crash during that time is a crash before it. Tests and campaigns also
 * flip bits, fill the disk and exchange files by hand. */
#ifndef PAWL_WORLD_SIM_DISK_H
#define PAWL_WORLD_SIM_DISK_H

#include "lib/rng.h"
#include "world/disk.h"
#include "world/sim.h"

#define SIM_DISK_FILES 8u     /* of one coordinator: state, its successor, lock, and those of an operator's mistake */
#define SIM_DISK_PENDING 256u /* writes between two syncs that are told apart; beyond, the last one grows */
#define SIM_DISK_SECTOR 512u  /* is written as a whole or not at all */
#define SIM_DISK_PATH 64u

struct sim_disk_content {
    char *bytes;
    uint64_t size, room;
};

struct sim_disk_entry {
    char path[SIM_DISK_PATH]; /* empty: the entry is free */
    struct sim_disk_content seen, durable;
    struct {
        uint64_t at, len;
    } pending[SIM_DISK_PENDING];
    unsigned pending_count;
    bool locked;
};

struct sim_disk {
    struct disk disk;
    struct sim *sim; /* null: syncs take no time */
    struct rng random;
    uint64_t sync_ns;    /* that a sync takes at most */
    uint64_t bytes_max;  /* of all files; 0: without bound */
    unsigned syncs_left; /* so many less one succeed, then all fail with -EIO: the power is going; 0: all succeed */
    struct sim_disk_entry files[SIM_DISK_FILES];
    struct sim_disk_open *open;                    /* files that are; a crash closes them */
    void (*on_sync)(void *ctx, uint64_t until_ns); /* one begins, and ends then; null: of no interest */
    void *ctx;
    uint64_t syncs, torn; /* counts: torn: writes that a crash cut */
};

void sim_disk_init(struct sim_disk *d, struct sim *sim, uint64_t seed);
void sim_disk_free(struct sim_disk *d);

/* The host of the disk has crashed: what was not synced is lost, there or torn; locks are free. */
void sim_disk_crash(struct sim_disk *d);

/* By hand: the file's entry, or null; another byte there, now and after a crash; the file ends there; it is gone. */
struct sim_disk_entry *sim_disk_find(struct sim_disk *d, const char *path);
void sim_disk_flip(struct sim_disk_entry *e, uint64_t at, uint8_t bits);
void sim_disk_cut(struct sim_disk_entry *e, uint64_t size);
void sim_disk_remove(struct sim_disk_entry *e);

#endif
