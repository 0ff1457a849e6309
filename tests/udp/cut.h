/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the TCP connections of this process, as a switch that restarts would: both ends find them broken. */
#ifndef PAWL_TESTS_UDP_CUT_H
#define PAWL_TESTS_UDP_CUT_H

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

/* How many there were. */
static inline unsigned cut_connections(void)
{
    unsigned count = 0;
    DIR *fds = opendir("/proc/self/fd");
    for (const struct dirent *e = fds ? readdir(fds) : NULL; e; e = readdir(fds)) {
        struct sockaddr_storage peer = {0};
        socklen_t len = sizeof peer, type_len = sizeof(int);
        int fd = atoi(e->d_name), type = 0;
        if (e->d_name[0] == '.' || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) || type != SOCK_STREAM)
            continue;
        if (!getpeername(fd, (struct sockaddr *)&peer, &len) && peer.ss_family != AF_UNIX)
            count += !shutdown(fd, SHUT_RDWR);
    }
    if (fds)
        closedir(fds);
    return count;
}

#endif
