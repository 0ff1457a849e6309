/* SPDX-License-Identifier: Apache-2.0 */
/* A space of this machine: a file in shared memory, mapped once per process however many handles use it. */
#ifndef PAWL_CLIENT_SEGMENT_H
#define PAWL_CLIENT_SEGMENT_H

#include "cluster/layout.h"

#include <sys/types.h>

#define SEGMENT_DIR "/dev/shm"                 /* where spaces have names: pawl.USER.NAME */
#define SEGMENT_SYSTEM_DIR SEGMENT_DIR "/pawl" /* where all users have theirs: NAME */
#define SEGMENT_SYSTEM_MODE 01777              /* of that folder: every user makes spaces, and removes none but their own */

struct segment {
    void *base;
    uint64_t size;
    struct layout_header header; /* as it was when it was checked: other users may write to the segment */
    char *path;
    dev_t dev;
    ino_t ino;
    unsigned users;
    bool guarded; /* other users can write to it */
    struct segment *next;
};

/* The kinds of places on this machine. */
enum segment_kind {
    SEGMENT_LOCAL,  /* local:, local:NAME: of this user; local:/PATH: of the users that the file's permissions admit */
    SEGMENT_SYSTEM, /* system:, system:NAME: of all users */
};

/* The kind of a place by its scheme, which *rest has behind it; -EINVAL, explained, if it is not on this machine. */
int segment_kind(const char *place, enum segment_kind *kind, const char **rest);

/* -EINVAL, and which places there are. */
int segment_no_place(const char *place);

/* "" or NAME or (local) /PATH, as after the scheme. -EINVAL if it cannot be a name. */
int segment_path(enum segment_kind kind, const char *where, char *out, size_t size);

/* Both in one. */
int segment_place(const char *place, char *out, size_t size);

/* Whether the folder of system: can be used: 0, or -ENOTDIR (there is none), -EACCES (others than root could replace what is in
 * it), explained. */
int segment_check_system(void);

/* -ENOENT, -PAWL_ESEGMENT, -EACCES …, explained. */
int segment_open(const char *path, struct segment **out);

/* Makes the file in one step, so that no process sees half of it. -EEXIST if it is there. */
int segment_create(const char *path, const struct layout_params *p, mode_t permissions);

/* Takes the file's memory: all of it now, since a page that cannot be had later would be a SIGBUS in the middle of a lock
 * operation. But locks that could grow to more than there is take their memory as they are used, and for them that is the price.
 * Memory for a value is taken before it is used (segment_take). 0 or an errno. */
int segment_reserve(int fd, const struct layout_header *h);

/* Removes a named space of an earlier layout if no process uses it, so that nothing is held there: 0. -EBUSY: a process uses it.
 * -ESTALE: what is there now is not of an earlier layout; another process may have replaced one just now. A value beside a lock
 * would be lost, but layouts before 10 have none. */
int segment_remove_older(const char *path);

/* Whether the path still names the file: false once it was removed, replaced or made shorter. */
bool segment_in_place(const struct segment *s);

/* Takes memory for a part of it that is sparse: -ENOSPC, explained, if there is none, which would be a SIGBUS later. */
int segment_take(const struct segment *s, uint64_t offset, uint64_t bytes);

void segment_close(struct segment *s);

#endif
