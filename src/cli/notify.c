/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/notify.h"

#include "lib/args.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (!len || len >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (*path == '@')
        to.sun_path[0] = 0; /* in the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    (void)sent; /* the service manager's loss */
    close(fd);
}

uint64_t notify_watchdog_ns(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t value, process;
    if (!us || args_u64(us, &value) || !value || value > UINT64_MAX / NS_PER_US)
        return 0;
    if (pid && (args_u64(pid, &process) || process != (uint64_t)getpid()))
        return 0;
    return value * NS_PER_US;
}
