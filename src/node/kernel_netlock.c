/* SPDX-License-Identifier: Apache-2.0 */
/* The control process of NetLock's switch in the kernel. The program and this process have one memory, the switch's own
 * (designs/netlock/switch.h): the program grants, queues and renews leases; the process does what is rare, with the code that a
 * switch in user space runs, and reaches the registers of a lock by orders to the program. */
#include "cluster/host.h"
#include "dataplane/netlock_memory.h"
#include "designs/netlock/kernel.h"
#include "designs/netlock/netlock.h"
#include "node/kernel_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define MAIL_MS 100           /* how often whether to stop */
#define ORDER_BYTES_MAX 1024u /* one page less what a frame needs */

static_assert(sizeof(struct netlock_order) < ORDER_BYTES_MAX, "an order travels as a frame");

struct keeper {
    const struct kernel_params *params;
    struct plane *plane;
    struct station station;
    const struct plane_host *hosts; /* the program's */
    volatile struct plane_seal *seals;
    uint32_t highest;
};

/* ---- orders ---- */

static int give_order(void *ctx, struct netlock_order *order)
{
    struct keeper *k = ctx;
    return plane_order(k->plane, order, sizeof *order);
}

static void grace(void *ctx)
{
    (void)ctx;
    kernel_grace();
}

static void changing(void *ctx, bool begins)
{
    struct keeper *k = ctx;
    __atomic_store_n((uint32_t *)(uintptr_t)&plane_live(k->plane)->torn, begins, __ATOMIC_SEQ_CST);
}

/* ---- addresses ---- */

/* The program learns where hosts are. */
static bool address_of(const struct keeper *k, struct place to, struct net_addr *out)
{
    if (to.machine == MACHINE_NONE || to.machine > k->highest || !k->hosts[to.machine].ip)
        return false;
    const struct plane_host h = k->hosts[to.machine];
    *out = kernel_address(&h, to.machine, to.port == PORT_POOL || to.port == PORT_SERVER ? ntohs(h.pool_port) : to.port);
    return true;
}

/* The roster learns with which of two keys a host tags, too. */
static bool find_host(void *ctx, struct place to, struct net_addr *out)
{
    const struct keeper *k = ctx;
    struct roster *r = k->station.member.roster;
    if (r->ring && to.machine && to.machine <= r->machines && k->seals[to.machine].life == r->host[to.machine].life)
        r->host[to.machine].which = k->seals[to.machine].which & 1;
    return address_of(k, to, out);
}

/* Lock servers on this machine: frames for them go up to the stack. Others are learnt from what they send. */
static int tell_servers(struct keeper *k)
{
    const struct rack_welcome *w = &k->station.member.welcome;
    int rc = 0;
    for (unsigned i = 0; i < w->said.config.servers && !rc; i++) {
        struct plane_host h = {0};
        kernel_set_address(&h, w->said.config.server[i], w->servers[i]);
        if (net_addr_known(w->servers[i]) && net_addr_same_ip(w->servers[i], member_udp(&k->station.member)->at))
            rc = plane_set_host(k->plane, w->said.config.server[i], &h);
    }
    return rc;
}

/* The program refuses packets in the name of a host that are from elsewhere. */
static void told(void *ctx)
{
    struct keeper *k = ctx;
    kernel_tell_hosts((volatile struct plane_host *)(uintptr_t)k->hosts, k->seals, k->station.member.roster);
}

/* A lock server was replaced by one on this machine. If the map does not take the address, the next start tells it. */
static void moved(void *ctx)
{
    (void)tell_servers(ctx);
}

/* A packet for a host has the host's key, one for a lock server that of the member in whose name it is. */
static void bring(void *ctx, const void *data, uint32_t len)
{
    struct keeper *k = ctx;
    const struct packet_head *h = data;
    const struct roster *r = k->station.member.roster;
    struct seal_key key = kernel_key(k->seals, r, h->to.machine <= r->machines ? h->to.machine : h->from.machine);
    struct udp_out out = {.len = len, .data = data, .key = seal_known(&key) ? &key : NULL};
    if (address_of(k, h->to, &out.to))
        udp_send(member_udp(&k->station.member), &out, 1);
}

static void *run_mail(void *arg)
{
    struct keeper *k = arg;
    while (!*k->station.stop && !plane_mail(k->plane, bring, k, MAIL_MS))
        ;
    return NULL;
}

/* ---- state ---- */

/* Memory that the process before left goes on, with the policy that was given. */
static int take_over(struct keeper *k)
{
    struct station *s = &k->station;
    const struct switch_policy *policy = &k->params->station.policy;
    if (!netlock_switch_is(s->memory, &s->config))
        return explain(-EEXIST, "%s has the state of another rack; --fresh begins anew", k->params->pins);
    if (policy->alloc_given)
        netlock_set_random(s->memory, policy->alloc_random);
    if (policy->levels_given)
        netlock_set_priorities(s->memory, policy->levels);
    return 0;
}

/* Opens the program with the memory that another process left, or new memory. */
static int open_memory(struct keeper *k)
{
    struct station *s = &k->station;
    struct netlock_memory m;
    uint64_t bytes;
    netlock_switch_describe(&s->config, &m);
    int rc = kernel_check_memory(k->params->report, "the queues", m.bytes);
    for (bool fresh = k->params->station.fresh; !rc; fresh = true) {
        rc = kernel_open_plane(k->params, &s->member, "netlock", fresh, &m, &k->plane);
        if (!rc)
            rc = plane_map(k->plane, "memory", &s->memory, &bytes);
        if (rc)
            return rc;
        if (bytes < m.bytes)
            return explain(-EIO, "the program's memory is too small");
        if (!plane_found(k->plane)) {
            netlock_switch_init(s->memory, &s->config, s->member.welcome.said.packet.head.generation, host_now());
            return 0;
        }
        if (!plane_live(k->plane)->torn)
            return take_over(k);
        /* The process before died while it changed something: as if the state were lost. */
        k->params->report("the state was being changed when its process died: begins anew");
        plane_close(k->plane, PLANE_LEAVE);
        k->plane = NULL;
    }
    return rc;
}

static int serve(struct keeper *k)
{
    pthread_t mail;
    int rc = tell_servers(k);
    if (rc)
        return rc;
    if (pthread_create(&mail, NULL, run_mail, k))
        return explain(-EAGAIN, "cannot start a thread");
    k->params->report("switch of space '%s' is ready", k->params->station.member.space);
    station_run(&k->station);
    pthread_join(mail, NULL);
    kernel_report_end(k->params, k->plane);
    return 0;
}

static int run(struct keeper *k)
{
    struct station *s = &k->station;
    uint64_t bytes;
    void *hosts;
    int rc = open_memory(k);
    if (!rc)
        rc = plane_map(k->plane, "hosts", &hosts, &bytes);
    if (rc)
        return rc;
    k->hosts = hosts;
    rc = kernel_map_seals(k->plane, k->hosts, s->member.roster, &k->seals);
    if (rc)
        return rc;
    k->highest = (uint32_t)(bytes / sizeof *k->hosts) - 1;
    const struct plane_kernel kernel = {.ctx = k, .order = give_order, .grace = grace};
    netlock_switch_in_kernel(s->memory, &kernel);
    station_meet(s); /* before hosts are let in */
    rc = kernel_attach(k->params, k->plane);
    if (!rc)
        rc = serve(k);
    netlock_switch_in_kernel(s->memory, NULL);
    return rc;
}

int kernel_netlock_run(const struct kernel_params *p, const struct member *m)
{
    struct keeper *k = calloc(1, sizeof *k);
    if (!k)
        return explain(-ENOMEM, "out of memory");
    k->params = p;
    int rc = station_adopt(&k->station, m, &p->station);
    k->station.kernel.ctx = k;
    k->station.kernel.find = find_host;
    k->station.kernel.changing = changing;
    k->station.kernel.told = told;
    k->station.kernel.moved = moved;
    k->station.member.stays = true; /* hosts no longer send to a program whose place is another's */
    if (!rc)
        rc = run(k);
    kernel_close_plane(p, k->plane);
    free(k->station.peers);
    free(k);
    return rc;
}
