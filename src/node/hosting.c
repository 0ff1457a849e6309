/* SPDX-License-Identifier: Apache-2.0 */
#include "node/hosting.h"
#include "cluster/host.h"
#include "cluster/seals.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS (100 * NS_PER_MS) /* how often whether to stop */
#define JOIN_LOOK_NS (2 * NS_PER_MS)
#define OWN_PORT 10u   /* own granters listen at the coordinator's port and this and up: hosts find them there after a restart */
#define OWN_PORTS 256u /* of them */
#define LIST_NS (NS_PER_S / 2) /* how often the list of spaces in etcd is read: sooner than a leader's lease ends */
#define VACANT_SHARE 8u        /* of a lock lease, after which the own switch begins again: its hosts must report to it in time */

bool hosting_has_decider(const struct design *d)
{
    const struct packet_design *p = d->packet;
    return p && p->switch_packet && p->switch_expect && !packet_divides(p) && !p->steward_packet;
}

/* ---- the table ---- */

struct hosted *hosting_find(struct hosting *h, const char *name)
{
    for (unsigned i = 0; i < h->count; i++)
        if (!strncmp(h->space[i]->name, name, sizeof h->space[i]->name))
            return h->space[i];
    return NULL;
}

struct hosted *hosting_make(const char *name, const char *path)
{
    struct hosted *s = calloc(1, sizeof *s);
    if (!s || mailbox_init(&s->box)) {
        free(s);
        return NULL;
    }
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->path, sizeof s->path, "%s", path ? path : "");
    return s;
}

static void drop_entry(struct hosting *h, const struct hosted *s)
{
    pthread_mutex_lock(&h->mutex);
    for (unsigned i = 0; i < h->count; i++)
        if (h->space[i] == s)
            h->space[i--] = h->space[--h->count];
    pthread_mutex_unlock(&h->mutex);
}

void hosting_free(struct hosted *s)
{
    mailbox_destroy(&s->box);
    if (s->own_etcd)
        s->etcd.close(s->etcd.etcd);
    free(s->granters);
    free(s);
}

int hosting_add(struct hosting *h, struct hosted *s, const struct coord_params *p, const struct state_params *state)
{
    struct coord_params params = *p;
    struct state_params where = *state;
    params.space = s->name;
    where.path = *s->path ? s->path : NULL;
    s->c = (struct coordinating){.stop = h->p->stop,
                                 .ring = h->p->ring,
                                 .etcd = h->p->etcd ? &s->etcd : NULL,
                                 .box = &s->box,
                                 .udp = h->udp,
                                 .listen_ns = h->count ? 0 : h->p->listen_ns};
    pthread_mutex_lock(&h->mutex);
    bool room = h->count < HOSTING_SPACES;
    if (room)
        h->space[h->count++] = s; /* its members may speak to it from now on */
    pthread_mutex_unlock(&h->mutex);
    int rc = room ? coordinating_open(&s->c, &params, &where, h->udp.at)
                  : explain(-ENOSPC, "the service has %u spaces, and has room for no more", HOSTING_SPACES);
    if (rc) {
        drop_entry(h, s);
        hosting_free(s);
        return rc;
    }
    s->c.stop = &s->stop;
    const struct rack_state *logged = &s->c.service.state;
    for (unsigned i = 0; i < RACK_SERVERS_MAX; i++)
        s->place[i] = s->decider ? logged->switch_[0].at : logged->server[i].at;
    return 0;
}

void hosting_remove(struct hosting *h, struct hosted *s)
{
    hosting_stop_granters(s);
    hosting_stop(s);
    drop_entry(h, s);
    coordinating_close(&s->c);
    hosting_free(s);
}

/* ---- the coordinator's thread ---- */

static void *run_coordinator(void *arg)
{
    coordinating_run(arg);
    return NULL;
}

int hosting_start(struct hosting *h, struct hosted *s)
{
    (void)h;
    __atomic_store_n(&s->stop, 0, __ATOMIC_RELEASE);
    bool runs = !pthread_create(&s->thread, NULL, run_coordinator, &s->c);
    __atomic_store_n(&s->running, runs, __ATOMIC_RELEASE);
    return runs ? 0 : explain(-EAGAIN, "cannot start a thread");
}

void hosting_stop(struct hosted *s)
{
    if (!s->running)
        return;
    __atomic_store_n(&s->stop, SIGTERM, __ATOMIC_RELEASE);
    pthread_join(s->thread, NULL);
    __atomic_store_n(&s->running, false, __ATOMIC_RELEASE);
}

/* ---- granters ---- */

static void *run_granter(void *arg)
{
    struct granter *g = arg;
    int rc = station_open(&g->station, &g->params);
    if (rc) {
        g->failed = rc;
        snprintf(g->why, sizeof g->why, "%s", explained());
        __atomic_store_n(&g->state, GRANTER_FAILED, __ATOMIC_RELEASE);
        return NULL;
    }
    __atomic_store_n(&g->state, GRANTER_JOINED, __ATOMIC_RELEASE);
    station_run(&g->station);
    station_close(&g->station);
    __atomic_store_n(&g->state, GRANTER_ENDED, __ATOMIC_RELEASE);
    return NULL;
}

static uint16_t first_own_port(const struct hosting *h)
{
    uint16_t port = h->udp.at.port;
    return (uint16_t)(port > UINT16_MAX - OWN_PORT - OWN_PORTS ? port - OWN_PORT - OWN_PORTS : port + OWN_PORT);
}

static bool is_own_port(const struct hosting *h, uint16_t port)
{
    return port >= first_own_port(h) && port < first_own_port(h) + OWN_PORTS;
}

/* Whether a granter of this service has the port, now or before the service was restarted. */
static bool is_given(const struct hosting *h, uint16_t port)
{
    for (unsigned i = 0; i < h->count; i++)
        for (unsigned n = 0; n < h->space[i]->own; n++)
            if (h->space[i]->place[n].port == port)
                return true;
    return false;
}

static bool is_free(struct net_addr at)
{
    struct udp probe;
    if (udp_open(&probe, at))
        return false;
    udp_close(&probe);
    return true;
}

/* Where the n-th own granter listens: where it was before, or at the first port that is free; port 0, which is any, if none is. */
static struct net_addr own_address(const struct hosting *h, const struct hosted *s, unsigned n)
{
    struct net_addr before = net_addr_at_port(h->udp.at, s->place[n].port), at = net_addr_at_port(h->udp.at, 0);
    if (is_own_port(h, before.port) && is_free(before))
        return before;
    for (unsigned i = 0; i < OWN_PORTS; i++) {
        at.port = (uint16_t)(first_own_port(h) + i);
        if (!is_given(h, at.port) && is_free(at))
            return at;
    }
    return net_addr_at_port(at, 0);
}

static int start_granter(struct hosting *h, struct hosted *s, unsigned n, bool fresh)
{
    struct granter *g = &s->granters[n];
    memset(g, 0, sizeof *g);
    g->params = (struct station_params){.member = {.space = s->name,
                                                   .at = own_address(h, s, n),
                                                   .coordinators = coord_list_one(h->udp.at),
                                                   .ring = &h->p->ring,
                                                   .is_switch = s->decider,
                                                   .patient = true,
                                                   .stop = &s->stop_granters},
                                        .fresh = fresh,
                                        .spin_ns = h->p->spin_ns,
                                        .desk = &station_desk,
                                        .host_packets = h->p->host_packets,
                                        .gate = h->p->gate};
    s->place[n] = g->params.member.at;
    if (s->decider)
        coordinating_own_switch(&s->c, s->place[n]);
    g->state = GRANTER_JOINING;
    if (!pthread_create(&g->thread, NULL, run_granter, g))
        return 0;
    g->state = GRANTER_NONE;
    return explain(-EAGAIN, "cannot start a thread");
}

int hosting_start_granters(struct hosting *h, struct hosted *s, bool fresh)
{
    int rc = 0;
    if (!s->granters && s->own && !(s->granters = calloc(s->own, sizeof *s->granters)))
        return explain(-ENOMEM, "out of memory");
    __atomic_store_n(&s->stop_granters, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < s->own && !rc; i++)
        rc = start_granter(h, s, i, fresh);
    return rc;
}

/* The own switch came second: another one has joined since the service began to listen. It begins when that one has stopped. */
static bool came_second(const struct hosting *h, const struct hosted *s, const struct granter *g)
{
    return s->decider && h->p->stays_away && granter_state(g) == GRANTER_FAILED && g->failed == -EBUSY;
}

int hosting_join_granters(struct hosting *h, struct hosted *s, uint64_t deadline)
{
    const struct timespec moment = {.tv_nsec = JOIN_LOOK_NS};
    for (unsigned i = 0; i < s->own && s->granters;) {
        const struct granter *g = &s->granters[i];
        enum granter_state state = granter_state(g);
        if (state == GRANTER_FAILED && !came_second(h, s, g))
            return *h->p->stop ? -EINTR : explain(-EIO, "%s", g->why);
        if (state != GRANTER_JOINING) {
            i++;
            continue;
        }
        if (*h->p->stop)
            return -EINTR;
        if (world_now(&world_real) >= deadline)
            return -ETIMEDOUT;
        nanosleep(&moment, NULL);
    }
    return 0;
}

void hosting_stop_granters(struct hosted *s)
{
    __atomic_store_n(&s->stop_granters, SIGTERM, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < s->own && s->granters; i++) {
        if (granter_state(&s->granters[i]) != GRANTER_NONE)
            pthread_join(s->granters[i].thread, NULL);
        __atomic_store_n(&s->granters[i].state, GRANTER_NONE, __ATOMIC_RELEASE);
    }
}

/* ---- the own switch ---- */

static bool runs_here(const struct hosted *s)
{
    return s->granters && granter_state(&s->granters[0]) != GRANTER_NONE;
}

/* Stops the own switch if another one wants its place, and starts it again if that one has stopped, or did not come. */
static void look_after_decider(struct hosting *h, struct hosted *s)
{
    struct coordinating_status now = coordinating_status(&s->c);
    uint64_t ns = world_now(&world_real);
    if (runs_here(s) && now.yield) {
        hosting_stop_granters(s);
        s->vacant_ns = 0;
        return;
    }
    if (runs_here(s) || !now.vacant || !now.leads) {
        s->vacant_ns = 0;
        return;
    }
    s->vacant_ns = s->vacant_ns ? s->vacant_ns : ns;
    if (ns - s->vacant_ns > now.config.lease_ns / VACANT_SHARE)
        hosting_start_granters(h, s, false);
}

/* Own granters that could not join, after the start: the operator is told. */
static void look_after_failures(const struct hosting *h, struct hosted *s)
{
    for (unsigned i = 0; i < s->own && s->granters; i++) {
        struct granter *g = &s->granters[i];
        if (granter_state(g) != GRANTER_FAILED)
            continue;
        pthread_join(g->thread, NULL);
        if (!came_second(h, s, g))
            h->p->report(s->name, g->why);
        __atomic_store_n(&g->state, GRANTER_NONE, __ATOMIC_RELEASE);
    }
}

/* ---- the socket ---- */

/* Packets of a design that has a steward: they name the space by its short id. */
static struct hosted *find_short(struct hosting *h, uint32_t id)
{
    for (unsigned i = 0; i < h->count; i++)
        if (h->count == 1 || (__atomic_load_n(&h->space[i]->running, __ATOMIC_ACQUIRE) &&
                              coordinating_status(&h->space[i]->c).config.space == (id & ~(RACK_SHORT_STEP - 1))))
            return h->space[i];
    return NULL;
}

/* A packet whose tag is wrong, or that no key opens: the space's coordinator counts it, and says so. */
static void deliver_shut(struct hosting *h, const void *data, uint32_t len, struct net_addr from, const struct seal_key *none)
{
    const struct coord_packet *p = data;
    bool named = len >= sizeof *p && p->head.family == PACKET_COORDINATOR && !p->space[sizeof p->space - 1];
    struct hosted *s = named ? hosting_find(h, p->space) : find_short(h, p->head.space);
    if (s)
        mailbox_put(&s->box, data, len, from, none);
}

static void deliver(struct hosting *h, void *data, uint32_t len, struct net_addr from)
{
    const struct packet_head *head = data;
    struct seal_key key = {.k = {0}};
    if (len < sizeof *head || len > PACKET_MAX)
        return;
    if (h->p->ring.count ? !seals_open(&h->p->ring, data, len, &key) : seal_is_tagged(data, len)) {
        deliver_shut(h, data, len, from, &key);
        return;
    }
    if (head->family != PACKET_COORDINATOR) {
        struct hosted *s = find_short(h, head->space);
        if (s)
            mailbox_put(&s->box, data, len, from, &key);
        return;
    }
    const struct coord_packet *p = coord_check(data, len, 0);
    if (!p)
        return;
    if (p->head.type == COORD_SPACE) {
        mailbox_put(&h->desk, data, len, from, &key);
        return;
    }
    struct hosted *s = hosting_find(h, p->space);
    if (s) {
        mailbox_put(&s->box, data, len, from, &key);
        return;
    }
    if (!__atomic_load_n(&h->opened, __ATOMIC_ACQUIRE))
        return; /* the space may be one of those that are still to be read */
    struct coord_packet answer;
    const struct udp_out out = {
        .to = from, .len = coord_unknown_space(p, &answer), .data = &answer, .key = seal_known(&key) ? &key : NULL};
    if (out.len)
        udp_send(&h->udp, &out, 1);
}

static void *read_socket(void *arg)
{
    struct hosting *h = arg;
    struct udp_batch *batch = calloc(1, sizeof *batch);
    while (batch && !__atomic_load_n(&h->ending, __ATOMIC_ACQUIRE)) {
        unsigned n = udp_wait(&h->udp, batch, 0, world_now(&world_real) + LOOK_NS);
        pthread_mutex_lock(&h->mutex);
        for (unsigned i = 0; i < n; i++)
            deliver(h, batch->packet[i].data, batch->packet[i].len, batch->packet[i].from);
        for (unsigned i = 0; i < h->count && *h->p->stop; i++) /* granters that wait to join give up */
            __atomic_store_n(&h->space[i]->stop_granters, SIGTERM, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&h->mutex);
    }
    free(batch);
    return NULL;
}

/* ---- the run ---- */

/* The own switch begins unless the log has another one, elsewhere, which may be running. */
static bool begins(const struct hosting *h, const struct hosted *s)
{
    uint16_t port = s->place[0].port;
    return !s->decider || !h->p->stays_away || !port || is_own_port(h, port);
}

static int open_all(struct hosting *h)
{
    const struct hosting_params *p = h->p;
    struct hosted *first = hosting_make(p->coord.space, p->state.path);
    if (!first)
        return explain(-ENOMEM, "out of memory");
    if (p->etcd)
        first->etcd = *p->etcd;
    first->own = p->own;
    first->decider = p->own && hosting_has_decider(p->coord.design) && !p->coord.servers;
    int rc = hosting_add(h, first, &p->coord, &p->state);
    return rc ? rc : hosting_load(h);
}

static int start_all(struct hosting *h)
{
    int rc = 0;
    for (unsigned i = 0; i < h->count && !rc; i++) {
        struct hosted *s = h->space[i];
        rc = hosting_start(h, s);
        if (!rc && begins(h, s))
            rc = hosting_start_granters(h, s, i == 0 && h->p->coord.fresh);
    }
    return rc ? rc : hosting_join_granters(h, h->space[0], DEADLINE_NEVER);
}

/* A further space whose state in etcd is another one now does not end the service: it is taken up anew, if it is in the list. */
static int why_ended(const struct hosting *h, unsigned i)
{
    return i && h->list ? 0 : __atomic_load_n(&h->space[i]->c.ended, __ATOMIC_ACQUIRE);
}

static void look_at_list(struct hosting *h)
{
    uint64_t now = world_now(&world_real);
    if (!h->list || now - h->look_ns < LIST_NS)
        return;
    hosting_etcd_look(h, true); /* if etcd does not answer, the coordinators say so */
    h->look_ns = world_now(&world_real);
}

static int run_all(struct hosting *h)
{
    static _Thread_local struct udp_batch batch;
    int rc = 0;
    h->p->ready(h->udp.at);
    while (!*h->p->stop && !rc) {
        unsigned n = mailbox_wait(&h->desk, &batch, world_now(&world_real) + LOOK_NS);
        for (unsigned i = 0; i < n; i++)
            hosting_answer(h, batch.packet[i].data, batch.packet[i].len, batch.packet[i].from, &batch.packet[i].key);
        for (unsigned i = 0; i < h->count && !rc; i++) {
            look_after_failures(h, h->space[i]);
            if (h->space[i]->decider)
                look_after_decider(h, h->space[i]);
            rc = why_ended(h, i);
        }
        look_at_list(h);
    }
    return rc;
}

int hosting_run(const struct hosting_params *p)
{
    struct hosting *h = calloc(1, sizeof *h);
    pthread_t reader;
    if (!h || mailbox_init(&h->desk)) {
        free(h);
        return explain(-ENOMEM, "out of memory");
    }
    h->p = p;
    pthread_mutex_init(&h->mutex, NULL);
    int rc = coordinating_listen(&h->udp, p->at); /* first: a service that cannot listen leaves the states alone */
    bool reads = !rc && !pthread_create(&reader, NULL, read_socket, h);
    if (!rc && !reads)
        rc = explain(-EAGAIN, "cannot start a thread");
    if (!rc)
        rc = hosting_etcd_open(h);
    if (!rc)
        rc = open_all(h);
    __atomic_store_n(&h->opened, !rc, __ATOMIC_RELEASE);
    if (!rc)
        rc = start_all(h);
    if (!rc)
        rc = run_all(h);
    for (unsigned i = 0; i < h->count; i++) /* all at once, so that their ends take as long as one */
        __atomic_store_n(&h->space[i]->stop_granters, SIGTERM, __ATOMIC_RELEASE);
    while (h->count)
        hosting_remove(h, h->space[h->count - 1]);
    __atomic_store_n(&h->ending, 1, __ATOMIC_RELEASE);
    if (reads)
        pthread_join(reader, NULL);
    udp_close(&h->udp);
    hosting_etcd_close(h);
    mailbox_destroy(&h->desk);
    pthread_mutex_destroy(&h->mutex);
    free(h);
    return rc == -EINTR ? 0 : rc;
}
