/* SPDX-License-Identifier: Apache-2.0 */
/* Where the memory of a memory node lies for clients on its own machine: one file for each life. Processes of another user or of
 * another pid namespace do not find it: the node could not tell when they end. */
#ifndef PAWL_CLIENT_NEAR_PATH_H
#define PAWL_CLIENT_NEAR_PATH_H

#include "client/segment.h"
#include "wire/verbs.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEAR_PATH (sizeof SEGMENT_DIR + VERBS_NAME_LEN + 64)

static inline void near_path(const char *space, uint32_t life, char out[NEAR_PATH])
{
    struct stat pids;
    unsigned long which = stat("/proc/self/ns/pid", &pids) ? 0 : (unsigned long)pids.st_ino;
    snprintf(out, NEAR_PATH, SEGMENT_DIR "/pawl.%u.node.%s.%08x.%lx", (unsigned)geteuid(), space, life, which);
}

#endif
