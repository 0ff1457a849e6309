/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks of the kernel's switch: a lab, FissLock's packets from a plain socket, and our own switch in
 * software. */
#ifndef PAWL_BENCH_XDP_RACK_H
#define PAWL_BENCH_XDP_RACK_H

#include "bench/kit.h"
#include "dataplane/fission.h"
#include "designs/fisslock/fisslock.h"
#include "designs/packet/packet.h"
#include "lib/rng.h"
#include "tests/lab/rack.h"
#include "wire/udp.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SOFT_PORT 4848
#define CLIENT_PORT 6000
#define BENCH_LEASE_NS (3600 * NS_PER_S) /* longer than any measurement */

static inline struct fission_packet bench_packet(uint16_t port, uint8_t type, uint8_t mode, uint64_t index, uint64_t nonce)
{
    struct fission_packet f = {
        .head = {.version = PACKET_VERSION,
                 .family = PACKET_FISSION,
                 .type = type,
                 .space = RACK_SPACE,
                 .index = index,
                 .nonce = nonce,
                 .from = {1, port},
                 .to = {MACHINE_SWITCH, 0}},
        .mode = mode,
        .old_mode = mode,
        .client = {1, port},
    };
    return f;
}

/* Sends and looks for the answer until it is there; nanoseconds, or 0 if it was lost. */
static inline uint64_t bench_ask(int fd, const struct fission_packet *f, struct fission_packet *answer)
{
    uint64_t start = kit_now();
    if (send(fd, f, sizeof *f, 0) != sizeof *f)
        kit_die("send: %s", strerror(errno));
    for (;;) {
        ssize_t n = recv(fd, answer, sizeof *answer, MSG_DONTWAIT);
        uint64_t now = kit_now();
        if (n == sizeof *answer && answer->head.nonce == f->head.nonce)
            return now - start;
        if (now - start > 100 * NS_PER_MS)
            return 0;
    }
}

/* Hosts tell the switch that they live, as they would. */
static inline void bench_lease(void)
{
    for (unsigned h = 1; h <= rack.hosts; h++) {
        struct fission_packet f = bench_packet(PORT_POOL, FISSION_LEASE, 0, 0, 1), a;
        int fd = rack_socket(h, CLIENT_PORT + 999);
        f.head.from.machine = (uint16_t)h;
        if (!bench_ask(fd, &f, &a) && !bench_ask(fd, &f, &a))
            kit_die("host %u: no lease", h);
        close(fd);
    }
}

/* A switch in software: the same stages in a process, answers to where the packet came from. Until it is killed. */
static inline pid_t bench_soft(unsigned member, uint16_t port, uint64_t locks, int cpu)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kit_pin(cpu);
    if (lab_enter(&rack, 1, member))
        _exit(1);
    struct udp u;
    const struct rack_config c = {.space = RACK_SPACE, .machines = 8, .sessions = 1, .requests = 1, .locks = locks};
    void *state = calloc(1, fisslock_switch_bytes(&c));
    struct udp_batch *batch = malloc(sizeof *batch);
    struct outbox *out = calloc(1, sizeof *out);
    if (!state || !batch || !out || udp_open(&u, net_v4(htonl(lab_address(1, member)), port)))
        _exit(1);
    fisslock_switch_init(state, &c, 1, 0);
    for (;;) {
        unsigned n = udp_wait(&u, batch, 0, UINT64_MAX);
        for (unsigned i = 0; i < n; i++) {
            outbox_clear(out);
            fisslock_switch_packet(state, batch->packet[i].data, batch->packet[i].len, 0, out);
            for (unsigned k = 0; k < out->packets; k++) {
                const struct udp_out one = {.to = batch->packet[i].from, .len = out->packet[k].len, .data = outbox_packet(out, k)};
                udp_send(&u, &one, 1);
            }
        }
    }
}

static inline void bench_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A socket of host 1 to a port of a member. */
static inline int bench_socket(uint16_t own, unsigned member, uint16_t port)
{
    int fd = rack_socket(1, own);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(lab_address(1, member))};
    if (connect(fd, (struct sockaddr *)&to, sizeof to))
        kit_die("connect: %s", strerror(errno));
    return fd;
}

#endif
