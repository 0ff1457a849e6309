/* SPDX-License-Identifier: Apache-2.0 */
/* A space of this machine: a file in shared memory, mapped once per process however many handles use it. */
#ifndef PAWL_CLIENT_SEGMENT_H
#define PAWL_CLIENT_SEGMENT_H

#include "cluster/layout.h"

#include <sys/types.h>

#define SEGMENT_DIR "/dev/shm" /* where spaces have names: pawl.USER.NAME */

struct segment {
    void *base;
    uint64_t size;
    const struct layout_header *header;
    char *path;
    dev_t dev;
    ino_t ino;
    unsigned users;
    struct segment *next;
};

/* "" or NAME or /PATH, as after "local:". -EINVAL if it cannot be a name. */
int segment_path(const char *where, char *out, size_t size);

/* -ENOENT, -PAWL_ESEGMENT, -EACCES …, explained. */
int segment_open(const char *path, struct segment **out);

/* Makes the file in one step, so that no process sees half of it. -EEXIST if it is there. */
int segment_create(const char *path, const struct layout_params *p, mode_t permissions);

/* Whether the path still names the file: false once it was removed or replaced. */
bool segment_in_place(const struct segment *s);

void segment_close(struct segment *s);

#endif
