/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/lab/loopback.h"
#include "client/net.h"
#include "wire/key_file.h"
#include "workbench/lab/child.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LEASE_NS (10 * NS_PER_S)
#define RETRY_NS (20 * NS_PER_MS) /* on loopback packets are lost only if a buffer is full */
#define START_NS (10 * NS_PER_S)

static volatile sig_atomic_t never;

static struct net_addr localhost(void)
{
    return net_v4(htonl(INADDR_LOOPBACK), 0);
}

static struct seal_ring ring; /* of $PAWL_KEY: with it the cost of tags is measured */

static void *coordinator_thread(void *c)
{
    coordinating_run(c);
    return NULL;
}

static void *station_thread(void *s)
{
    station_run(s);
    return NULL;
}

static bool start_station(const struct loopback *l, const struct loopback_params *p, struct net_addr coordinator, bool is_switch,
                          struct net_addr *at)
{
    struct station *s = calloc(1, sizeof *s);
    pthread_t thread;
    const struct station_params sp = {.member.at = localhost(),
                                      .member.coordinators = coord_list_one(coordinator),
                                      .member.space = l->space,
                                      .member.ring = &ring,
                                      .member.is_switch = is_switch,
                                      .fresh = true,
                                      .spin_ns = p->spin_ns,
                                      .member.deadline = world_now(&world_real) + START_NS,
                                      .member.stop = &never};
    if (!s || station_open(s, &sp))
        return false;
    if (p->apply && !is_switch)
        s->member.design->server_apply(s->memory, p->apply, NULL);
    if (pthread_create(&thread, NULL, station_thread, s))
        return false;
    *at = member_udp(&s->member)->at;
    return true;
}

/* The child: tells its addresses through the pipe and stays until it is killed. */
static void node_main(struct loopback *l, const struct loopback_params *p, int fd)
{
    if (key_file_find(NULL, &ring))
        return;
    struct coordinating c = {.stop = &never, .ring = ring};
    pthread_t thread;
    const struct coord_params cp = {.design = p->design,
                                    .knobs = p->knobs,
                                    .space = l->space,
                                    .locks = p->locks,
                                    .lease_ns = LEASE_NS,
                                    .retry_ns = RETRY_NS,
                                    .machines = p->machines,
                                    .sessions = p->sessions,
                                    .requests = p->requests,
                                    .servers = p->design->packet->server_packet && !p->design->packet->spills ? p->servers : 0,
                                    .life = 1,
                                    .fresh = true};
    bool ok = !coordinating_open(&c, &cp, NULL, localhost()) && !pthread_create(&thread, NULL, coordinator_thread, &c);
    for (unsigned i = 0; i < cp.servers && ok; i++) {
        struct net_addr at;
        ok = start_station(l, p, c.udp.at, false, &at);
        l->station = i ? l->station : at;
    }
    for (unsigned i = 0; i < max_u64(c.service.coordinator.config.racks, p->design->packet->switch_packet != NULL) && ok; i++)
        ok = start_station(l, p, c.udp.at, true, &l->station);
    l->coordinator = c.udp.at;
    if (!ok || write(fd, l, sizeof *l) != (ssize_t)sizeof *l)
        _exit(1);
    close(fd);
    for (;;)
        pause();
}

int loopback_start(struct loopback *l, const struct loopback_params *p)
{
    int fds[2];
    memset(l, 0, sizeof *l);
    snprintf(l->space, sizeof l->space, "loopback%d", (int)getpid());
    if (pipe(fds))
        return -errno;
    pid_t pid = child_fork();
    if (!pid) {
        close(fds[0]);
        signal(SIGINT, SIG_IGN); /* the parent says when to end */
        node_main(l, p, fds[1]);
    }
    int rc = pid < 0 ? -errno : 0;
    close(fds[1]);
    if (!rc && read(fds[0], l, sizeof *l) != (ssize_t)sizeof *l)
        rc = -EIO;
    close(fds[0]);
    l->pid = pid;
    if (rc)
        loopback_stop(l);
    return rc;
}

void loopback_place(const struct loopback *l, unsigned host, char out[LOOPBACK_PLACE_LEN])
{
    snprintf(out, LOOPBACK_PLACE_LEN, "pawl://127.0.0.1:%u/%s?host=127.0.0.%u", l->coordinator.port, l->space, 2 + host % 250);
}

void loopback_stop(struct loopback *l)
{
    child_end(&l->pid, SIGKILL);
    l->pid = 0; /* fork may have failed */
    net_remove_hosts(l->space);
}
