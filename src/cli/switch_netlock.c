/* SPDX-License-Identifier: Apache-2.0 */
/* The control process of NetLock's switch in the kernel. The program and this process have one memory, the switch's own
 * (designs/netlock/switch.h): the program grants, queues and renews leases; the process does what is rare, with the code that a
 * switch in user space runs, and reaches the registers of a lock by orders to the program. */
#include "cli/switch.h"
#include "cluster/host.h"
#include "dataplane/netlock_memory.h"
#include "dataplane/xdp/loader.h"
#include "designs/netlock/kernel.h"
#include "designs/netlock/netlock.h"
#include "node/node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAIL_MS 100           /* how often whether to stop */
#define GRACE_US 100000       /* where the kernel cannot say when packets that passed have passed */
#define ORDER_BYTES_MAX 1024u /* one page less what a frame needs */

static_assert(sizeof(struct netlock_order) < ORDER_BYTES_MAX, "an order travels as a frame");

struct keeper {
    struct plane *plane;
    struct station station;
    const struct plane_host *hosts; /* the program's */
    uint32_t highest;
};

/* ---- orders ---- */

static int give_order(void *ctx, struct netlock_order *order)
{
    struct keeper *k = ctx;
    return plane_order(k->plane, order, sizeof *order);
}

/* A packet passes the program under the kernel's read lock: when all that were taken have been given back, it has. */
static void grace(void *ctx)
{
    (void)ctx;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
        usleep(GRACE_US);
}

static void changing(void *ctx, bool begins)
{
    struct keeper *k = ctx;
    __atomic_store_n((uint32_t *)(uintptr_t)&plane_live(k->plane)->torn, begins, __ATOMIC_SEQ_CST);
}

/* ---- addresses ---- */

/* The program learns where hosts are. */
static bool find_host(void *ctx, struct place to, struct net_addr *out)
{
    const struct keeper *k = ctx;
    if (to.machine == MACHINE_NONE || to.machine > k->highest || !k->hosts[to.machine].ip)
        return false;
    const struct plane_host h = k->hosts[to.machine];
    *out = (struct net_addr){.ip = h.ip, .port = to.port == PORT_POOL || to.port == PORT_SERVER ? ntohs(h.pool_port) : to.port};
    return true;
}

/* Lock servers on this machine: frames for them go up to the stack. Others are learnt from what they send. */
static int tell_servers(struct keeper *k)
{
    const struct coord_welcome *w = &k->station.welcome;
    int rc = 0;
    for (unsigned i = 0; i < w->config.servers && !rc; i++) {
        const struct plane_host h = {.ip = w->servers[i].ip, .pool_port = htons(w->servers[i].port)};
        if (h.ip == k->station.udp.at.ip)
            rc = plane_set_host(k->plane, w->config.server[i], &h);
    }
    return rc ? cli_say("switch", EXIT_UNAVAILABLE, "%s", explained()) : 0;
}

static void bring(void *ctx, const void *data, uint32_t len)
{
    struct keeper *k = ctx;
    const struct packet_head *h = data;
    struct udp_out out = {.len = len, .data = data};
    if (find_host(k, h->to, &out.to))
        udp_send(&k->station.udp, &out, 1);
}

static void *run_mail(void *arg)
{
    struct keeper *k = arg;
    while (!*k->station.stop && !plane_mail(k->plane, bring, k, MAIL_MS))
        ;
    return NULL;
}

/* ---- state ---- */

/* Opens the program with the memory that somebody left, or new memory. */
static int open_memory(struct keeper *k, const struct switch_options *o, const struct coord_welcome *w, void **memory)
{
    struct netlock_memory m;
    uint64_t bytes;
    netlock_switch_describe(&w->config, &m);
    int status = switch_check_memory("the queues", m.bytes);
    for (bool fresh = o->fresh; !status; fresh = true) {
        status = switch_open_plane(o, w, "netlock", fresh, &m, &k->plane);
        if (status)
            return status;
        if (plane_map(k->plane, "memory", memory, &bytes) || bytes < m.bytes)
            return cli_say("switch", EXIT_UNAVAILABLE, "%s", explained());
        if (!plane_found(k->plane)) {
            netlock_switch_init(*memory, &w->config, w->packet.head.generation, host_now());
            return 0;
        }
        if (!plane_live(k->plane)->torn) {
            if (!netlock_switch_is(*memory, &w->config))
                return cli_say("switch", EXIT_UNAVAILABLE, "%s has the state of another rack; --fresh begins anew", o->pins);
            if (o->alloc)
                netlock_set_random(*memory, !strcmp(o->alloc, "random"));
            if (o->levels_seen)
                netlock_set_priorities(*memory, o->levels);
            return 0;
        }
        /* Whoever kept it died while it changed something: as if it were lost. */
        puts("the state was being changed when its process died: begins anew");
        plane_close(k->plane, PLANE_LEAVE);
        k->plane = NULL;
    }
    return status;
}

static int serve(struct keeper *k, const struct switch_options *o)
{
    pthread_t mail;
    int status = tell_servers(k);
    if (status)
        return status;
    if (pthread_create(&mail, NULL, run_mail, k))
        return cli_say("switch", EXIT_UNAVAILABLE, "cannot start a thread");
    printf("switch of space '%s' is ready\n", o->space);
    fflush(stdout);
    station_run(&k->station);
    pthread_join(mail, NULL);
    switch_print_end(k->plane);
    return 0;
}

static int run(struct keeper *k, const struct switch_options *o, const struct coord_welcome *w)
{
    struct station *s = &k->station;
    uint64_t bytes;
    void *hosts;
    int status = open_memory(k, o, w, &s->memory);
    if (status)
        return status;
    if (plane_map(k->plane, "hosts", &hosts, &bytes))
        return cli_say("switch", EXIT_UNAVAILABLE, "%s", explained());
    k->hosts = hosts;
    k->highest = (uint32_t)(bytes / sizeof *k->hosts) - 1;
    const struct plane_kernel kernel = {.ctx = k, .order = give_order, .grace = grace};
    netlock_switch_in_kernel(s->memory, &kernel);
    station_meet(s); /* before hosts are let in */
    status = switch_attach_all(k->plane, o);
    if (!status)
        status = serve(k, o);
    netlock_switch_in_kernel(s->memory, NULL);
    return status;
}

int switch_netlock(const struct switch_options *o, struct udp *udp, const struct coord_welcome *w, const struct join_params *j)
{
    struct coord_welcome tuned = *w;
    struct keeper *k = calloc(1, sizeof *k);
    const struct design *d = design_find(w->design);
    if (k)
        k->station.peers = calloc(1, sizeof *k->station.peers);
    if (!k || !k->station.peers || !d) {
        free(k);
        return cli_say("switch", EXIT_UNAVAILABLE, "out of memory");
    }
    k->station.udp = *udp;
    k->station.join = *j;
    k->station.is_switch = true;
    k->station.design = d->packet;
    k->station.welcome = *w;
    k->station.stop = o->stop;
    k->station.kernel.ctx = k;
    k->station.kernel.find = find_host;
    k->station.kernel.changing = changing;
    tuned.config.options = packet_tuned(d->packet, tuned.config.options, &o->knobs);
    int status = run(k, o, &tuned);
    plane_close(k->plane, o->remove || !o->pins ? PLANE_REMOVE : PLANE_DETACH);
    free(k->station.peers);
    free(k);
    return status;
}
