/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of this machine: recognised by id and start time, so that a reused id is not taken for the one before. */
#include "fabric/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STAT_LEN 1024       /* /proc/PID/stat: 52 numbers and a name of 16 bytes */
#define START_TIME_FIELD 22 /* proc(5); the second field is the name in parentheses and may hold anything */

/* Ticks since boot at which the process started; 0 if there is none. */
static uint32_t start_time(uint32_t pid)
{
    char path[32], text[STAT_LEN];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    if (len <= 0)
        return 0;
    text[len] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < START_TIME_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? (uint32_t)strtoull(at, NULL, 10) : 0;
}

uint64_t fab_shm_proof(void)
{
    uint32_t pid = (uint32_t)getpid();
    return (uint64_t)pid << 32 | start_time(pid);
}

uint32_t fab_shm_proof_pid(uint64_t proof)
{
    return (uint32_t)(proof >> 32);
}

int fab_shm_gone(uint64_t proof, uint64_t patience_ns)
{
    uint32_t pid = fab_shm_proof_pid(proof);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno == ESRCH ? 0 : -EAGAIN;
    int gone = start_time(pid) != (uint32_t)proof;
    if (!gone) {
        struct pollfd ended = {.fd = fd, .events = POLLIN};
        struct timespec patience = {.tv_sec = (time_t)(patience_ns / NS_PER_S), .tv_nsec = (long)(patience_ns % NS_PER_S)};
        gone = ppoll(&ended, 1, &patience, NULL) == 1;
    }
    close(fd);
    return gone ? 0 : -EAGAIN;
}
