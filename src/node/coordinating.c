/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/host.h"
#include "node/node.h"
#include "world/world.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#define LOOK_NS (100 * NS_PER_MS) /* how often whether to stop */
#define LOOK_MS 100
#define OWN_PORT 10 /* lock servers listen at the coordinator's port and this and up: hosts find them there after a restart */

static int open_journal(struct coordinating *c, const char *path, const char **why)
{
    int rc = journal_open(&c->journal, path, c->coordinator.space, &c->directory);
    if (rc == -EBUSY)
        *why = "another coordinator uses the file with the keys of this space";
    else if (rc == -EINVAL)
        *why = "the file with the keys belongs to another space, or to another kind or number of keys; it goes with --keys and "
               "--locks";
    else if (rc == -EBADMSG)
        *why = "the file with the keys is damaged; start with a new file only when no client holds a lock";
    return rc;
}

static int open_rules(struct coordinating *c, const char *path, const char **why)
{
    struct rules rules = c->coordinator.rules;
    int rc = rules_load(path, c->coordinator.space, c->coordinator.config.racks, &rules);
    if (rc == -EINVAL)
        *why = "the file with the rules is damaged, or belongs to another space or number of racks; it goes with --racks";
    if (rc)
        return rc;
    coordinator_set_rules(&c->coordinator, &rules);
    c->rules = path;
    return 0;
}

int coordinating_open(struct coordinating *c, const struct coord_params *params, struct net_addr at, const char **why)
{
    struct coord_params p = *params;
    *why = NULL;
    const volatile sig_atomic_t *stop = c->stop;
    memset(c, 0, sizeof *c);
    c->stop = stop;
    c->journal.fd = c->udp.fd = -1;
    bool keys = p.keys == PAWL_KEYS_NAMED || p.keys == PAWL_KEYS_SPARSE;
    if (keys && p.locks)
        directory_init(&c->directory, p.keys, p.locks);
    p.directory = keys ? &c->directory : NULL;
    c->members = calloc(p.machines + UINT64_C(1), sizeof *c->members);
    int rc = c->members ? coordinator_init(&c->coordinator, &p, c->members, host_now(), why) : -ENOMEM;
    if (!rc && keys && p.journal)
        rc = open_journal(c, p.journal, why);
    if (!rc && c->coordinator.config.racks && p.rules)
        rc = open_rules(c, p.rules, why);
    c->design = p.design->packet;
    if (!rc && c->design->steward_packet) {
        c->steward = calloc(1, c->design->steward_bytes(&c->coordinator.config));
        c->out = calloc(1, sizeof *c->out);
        rc = c->steward && c->out ? 0 : -ENOMEM;
    }
    if (!rc && c->steward)
        c->design->steward_init(c->steward, &c->coordinator.config, p.life, p.fresh, host_now());
    if (!rc)
        rc = udp_open(&c->udp, at);
    if (rc)
        coordinating_close(c);
    return rc;
}

/* For the steward, which answers the sender. */
static void one_packet(struct coordinating *c, const void *data, uint32_t len, struct net_addr from)
{
    outbox_clear(c->out);
    c->design->steward_packet(c->steward, data, len, host_now(), c->out);
    for (unsigned i = 0; i < c->out->packets; i++) {
        const struct udp_out out = {.to = from, .len = c->out->packet[i].len, .data = outbox_packet(c->out, i)};
        udp_send(&c->udp, &out, 1);
    }
}

/* Drops the answers about keys: while the disk does not take new keys, no client may hear of them (I7). Clients ask again. */
static unsigned without_keys(struct udp_out *out, unsigned count)
{
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++)
        if (((const struct packet_head *)out[i].data)->type != COORD_FOUND)
            out[left++] = out[i];
    return left;
}

/* Likewise rules: while the disk does not take new ones, the old ones stay. */
static void keep_rules(struct coordinating *c)
{
    const struct coordinator *k = &c->coordinator;
    const struct rules *wanted = coordinator_wants(k);
    if (wanted && (!c->rules || !rules_save(c->rules, k->space, k->config.racks, wanted)))
        coordinator_set_rules(&c->coordinator, wanted);
}

void coordinating_run(struct coordinating *c)
{
    static _Thread_local struct udp_batch batch;
    static _Thread_local struct {
        _Alignas(8) uint8_t bytes[PACKET_MAX];
    } answers[UDP_BATCH];
    while (!*c->stop) {
        struct udp_out out[UDP_BATCH];
        unsigned n = udp_wait(&c->udp, &batch, 0, world_now(&world_real) + LOOK_NS), count = 0;
        for (unsigned i = 0; i < n; i++) {
            const struct packet_head *h = (const struct packet_head *)(const void *)batch.packet[i].data;
            struct net_addr from = batch.packet[i].from;
            if (c->steward && batch.packet[i].len >= sizeof *h && h->family == c->design->family) {
                one_packet(c, h, batch.packet[i].len, from);
                continue;
            }
            out[count] = (struct udp_out){.to = from, .data = answers[count].bytes};
            out[count].len = coordinator_packet(&c->coordinator, batch.packet[i].data, batch.packet[i].len, from, host_now(),
                                                answers[count].bytes);
            count += out[count].len != 0;
        }
        if (c->journal.fd >= 0 && journal_write(&c->journal, &c->directory))
            count = without_keys(out, count);
        else
            assert(c->journal.fd < 0 || c->journal.written == c->directory.count); /* I7 */
        udp_send(&c->udp, out, count);
        struct udp_out more = {.data = answers[0].bytes};
        while ((more.len = coordinator_more(&c->coordinator, answers[0].bytes, &more.to)))
            udp_send(&c->udp, &more, 1);
        keep_rules(c);
        coordinator_tick(&c->coordinator, host_now());
        if (c->steward) {
            outbox_clear(c->out);
            c->design->steward_tick(c->steward, host_now(), c->out);
        }
    }
}

void coordinating_close(struct coordinating *c)
{
    udp_close(&c->udp);
    journal_close(&c->journal);
    directory_free(&c->directory);
    free(c->members);
    free(c->steward);
    free(c->out);
}

/* ---- with lock servers in the same process ---- */

static void *run_coordinator(void *arg)
{
    coordinating_run(arg);
    return NULL;
}

static void *run_station(void *arg)
{
    station_run(arg);
    return NULL;
}

/* Where the n-th lock server listens; port 0, which is any, if its own port is taken. */
static struct net_addr own_address(struct net_addr coordinator, unsigned n)
{
    struct udp probe;
    struct net_addr at = coordinator;
    at.port = 0;
    if (coordinator.port > UINT16_MAX - OWN_PORT - RACK_SERVERS_MAX)
        return at;
    at.port = (uint16_t)(coordinator.port + OWN_PORT + n);
    if (udp_open(&probe, at))
        at.port = 0;
    else
        udp_close(&probe);
    return at;
}

static int start_server(struct coordinating *c, struct station *s, unsigned n, const struct station_params *like, pthread_t *thread)
{
    struct station_params p = *like;
    p.member.at = own_address(c->udp.at, n);
    p.member.coordinator = c->udp.at;
    int rc = station_open(s, &p);
    if (!rc && pthread_create(thread, NULL, run_station, s)) {
        station_close(s);
        rc = explain(-EAGAIN, "cannot start a thread");
    }
    return rc;
}

int coordinating_serve(struct coordinating *c, unsigned servers, const struct station_params *like, volatile sig_atomic_t *stop,
                       void (*ready)(void))
{
    struct station *stations = calloc(servers ? servers : 1, sizeof *stations);
    pthread_t coordinator, threads[RACK_SERVERS_MAX];
    unsigned running = 0;
    assert(servers <= RACK_SERVERS_MAX && c->stop == stop);
    if (!stations)
        return explain(-ENOMEM, "out of memory");
    if (pthread_create(&coordinator, NULL, run_coordinator, c)) {
        free(stations);
        return explain(-EAGAIN, "cannot start a thread");
    }
    int rc = 0;
    while (running < servers && !rc) {
        rc = start_server(c, &stations[running], running, like, &threads[running]);
        running += !rc;
    }
    if (!rc) {
        ready();
        while (!*stop) /* a signal may come between the look and the sleep */
            poll(NULL, 0, LOOK_MS);
    }
    *stop = *stop ? *stop : SIGTERM;
    for (unsigned i = 0; i < running; i++) {
        pthread_join(threads[i], NULL);
        station_close(&stations[i]);
    }
    pthread_join(coordinator, NULL);
    free(stations);
    return rc;
}
