/* SPDX-License-Identifier: Apache-2.0 */
/* A lab for tests in C: sockets of all its hosts and the switch's control process in one thread, which enters one namespace after
 * the other. */
#ifndef PAWL_TESTS_LAB_RACK_H
#define PAWL_TESTS_LAB_RACK_H

#include "dataplane/xdp/loader.h"
#include "tests/check.h"
#include "workbench/lab/lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RACK_PORT 4747
#define RACK_SPACE 5

static struct lab rack;
static uint64_t rack_lease_ns; /* 0: no host is ever taken for dead */

static pid_t rack_owner;

static void rack_down(void)
{
    if (getpid() == rack_owner) /* not a child that fails */
        lab_down(rack.name);
}

static inline void rack_up(const char *name, unsigned hosts, bool in_path)
{
    rack = (struct lab){.racks = 1, .hosts = hosts, .in_path = in_path};
    snprintf(rack.name, sizeof rack.name, "%s-%d", name, (int)getpid());
    if (plane_missing())
        SKIP("%s", plane_missing());
    int rc = lab_up(&rack);
    if (rc == -EPERM || rc == -ENOENT)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    static bool once;
    rack_owner = getpid();
    if (!once)
        atexit(rack_down);
    once = true;
}

/* A socket of a host, connected to the switch: packets of the switch come from that address. */
static inline int rack_socket(unsigned host, uint16_t port)
{
    CHECK_EQ(lab_enter(&rack, 1, host), 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(lab_address(1, host))};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(RACK_PORT), .sin_addr.s_addr = htonl(lab_address(1, LAB_SWITCH))};
    int room = 4 << 20; /* in native mode every frame weighs a page or more */
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The program, in the switch's namespace; not attached yet. */
static inline struct plane *rack_plane(const char *program, uint32_t locks, const char *pins, bool fresh)
{
    struct plane *p;
    struct plane_options o = {
        .program = program,
        .settings = {.port = htons(RACK_PORT),
                     .machines = (uint16_t)rack.hosts,
                     .space = RACK_SPACE,
                     .locks = locks,
                     .lease_ns = rack_lease_ns},
        .locks_max = locks,
        .pins = pins,
        .fresh = fresh,
    };
    CHECK_EQ(lab_enter(&rack, 1, LAB_SWITCH), 0);
    int rc = plane_open(&o, &p);
    if (rc == -EPERM)
        SKIP("%s", explained());
    if (rc)
        CHECK_FAIL("%s", explained());
    return p;
}

static inline void rack_attach(struct plane *p, enum plane_mode mode)
{
    enum plane_mode got;
    char port[16];
    uint8_t mac[6];
    if (plane_double_by(p, rack.in_path ? LAB_LOOP_OUT : LAB_UPLINK, rack.in_path ? LAB_LOOP_IN : NULL, mode))
        CHECK_FAIL("%s", explained());
    for (unsigned h = 1; h <= rack.hosts; h++) {
        struct plane_host host = {.pool_port = htons(RACK_PORT), .ip = htonl(lab_address(1, h))};
        lab_port(&rack, h, port);
        CHECK_EQ(plane_port(p, port), 0);
        CHECK_EQ(plane_device(port, &host.ifindex, mac), 0);
        lab_mac(1, h, (uint8_t *)host.mac);
        CHECK_EQ(plane_set_host(p, (uint16_t)h, &host), 0);
    }
    for (unsigned h = 1; h <= (rack.in_path ? rack.hosts : 1); h++) {
        lab_port(&rack, h, port);
        if (plane_attach(p, port, mode, &got))
            CHECK_FAIL("%s", explained());
    }
}

/* Length of the next packet, or 0 after so long. */
static inline size_t rack_receive(int fd, void *data, size_t room, int ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, ms) <= 0)
        return 0;
    ssize_t n = recv(fd, data, room, MSG_DONTWAIT);
    return n > 0 ? (size_t)n : 0;
}

/* A subcommand of pawl in a member's namespace, until it is ended. */
static inline pid_t rack_start_at(unsigned member, const char *words)
{
    char line[1024];
    const char *build = getenv("PAWL_BUILD");
    snprintf(line, sizeof line, "exec %s/pawl %s >/dev/null", build ? build : "build", words);
    fflush(stdout);
    pid_t pid = fork();
    if (pid)
        return pid;
    CHECK_EQ(lab_enter(&rack, 1, member), 0);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

static inline pid_t rack_start(const char *words)
{
    return rack_start_at(LAB_SWITCH, words);
}

static inline void rack_end(pid_t pid)
{
    int status;
    kill(pid, SIGTERM);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

#endif
