/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's hosts around its decider, with packets carried by hand: in order, unless a test keeps, drops or doubles some. */
#ifndef PAWL_TESTS_UNIT_FISSLOCK_KIT_H
#define PAWL_TESTS_UNIT_FISSLOCK_KIT_H

#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "tests/check.h"

#define KIT_HOSTS_MAX 8
#define KIT_PACKETS_MAX 4096
#define KIT_RETRY_NS (100 * NS_PER_US)

struct kit_packet {
    bool passed; /* the switch */
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
};

struct kit {
    struct rack_config config;
    void *host[KIT_HOSTS_MAX + 1];
    void *decider;
    void *server; /* of the locks for which the switch has no room; on machine 1 */
    uint64_t now;
    bool dead[KIT_HOSTS_MAX + 1]; /* neither hears nor ticks */
    struct outbox out;
    unsigned queued, kept, delivered;
    struct kit_packet *queue, *keep; /* on their way; kept back by the test */
    /* The fate of a packet: 0 it goes on, 1 it is kept, 2 it is lost. */
    int (*fate)(const struct fission_packet *p, bool passed);
    void (*forge)(struct fission_packet *p, bool passed); /* alters a packet on its way; null: none is */
};

static uint64_t kit_mistakes; /* of the racks that are made from now on */

static inline void kit_init_leased(struct kit *k, unsigned hosts, uint16_t requests, uint64_t options, uint64_t lease_ns)
{
    memset(k, 0, sizeof *k);
    k->config = (struct rack_config){.space = 7,
                                     .machines = (uint16_t)hosts,
                                     .sessions = 1,
                                     .requests = requests,
                                     .locks = 16,
                                     .lease_ns = lease_ns,
                                     .retry_ns = KIT_RETRY_NS,
                                     .options = options,
                                     .mistakes = kit_mistakes};
    k->queue = calloc(KIT_PACKETS_MAX, sizeof *k->queue);
    k->keep = calloc(KIT_PACKETS_MAX, sizeof *k->keep);
    k->decider = calloc(1, fisslock_switch_bytes(&k->config));
    fisslock_switch_init(k->decider, &k->config, 1, 0);
    for (unsigned i = 1; i <= hosts; i++) {
        k->host[i] = calloc(1, fisslock_host_bytes(&k->config));
        fisslock_host_init(k->host[i], &k->config, (uint16_t)i, 1, 0);
    }
}

/* Its memory was lost. */
static inline void kit_host_again(struct kit *k, unsigned host, uint32_t life)
{
    memset(k->host[host], 0, fisslock_host_bytes(&k->config));
    fisslock_host_init(k->host[host], &k->config, (uint16_t)host, life, k->now);
}

/* The switch has room for so many of the locks, and a server decides the others. */
static inline void kit_init_spilled(struct kit *k, unsigned hosts, uint64_t options, uint64_t lease_ns, uint64_t room)
{
    kit_init_leased(k, hosts, 2, options, lease_ns);
    k->config.switch_locks = room;
    k->config.servers = 1;
    k->config.server[0] = 1;
    free(k->decider);
    k->decider = calloc(1, fisslock_switch_bytes(&k->config));
    k->server = calloc(1, fisslock_server_bytes(&k->config));
    CHECK(k->decider && k->server);
    fisslock_switch_init(k->decider, &k->config, 1, 0);
    fisslock_server_init(k->server, &k->config, 1, 1, true, 0);
    for (unsigned i = 1; i <= hosts; i++)
        kit_host_again(k, i, 1);
}

/* Without leases: all hosts live for ever. */
static inline void kit_init(struct kit *k, unsigned hosts, uint16_t requests, uint64_t options)
{
    kit_init_leased(k, hosts, requests, options, 0);
}

static inline void kit_free(struct kit *k)
{
    for (unsigned i = 1; i <= k->config.machines; i++)
        free(k->host[i]);
    free(k->decider);
    free(k->server);
    free(k->queue);
    free(k->keep);
}

static inline void kit_put(struct kit *k, const void *data, uint32_t len, bool passed)
{
    int fate = k->fate ? k->fate(data, passed) : 0;
    if (fate == 2)
        return;
    struct kit_packet *p = fate == 1 ? &k->keep[k->kept++] : &k->queue[k->queued++];
    CHECK(k->queued < KIT_PACKETS_MAX && k->kept < KIT_PACKETS_MAX);
    p->passed = passed;
    p->len = len;
    memcpy(p->data, data, len);
    if (k->forge)
        k->forge((struct fission_packet *)p->data, passed);
}

static inline void kit_flush(struct kit *k, bool passed)
{
    for (unsigned i = 0; i < k->out.packets; i++)
        kit_put(k, outbox_packet(&k->out, i), k->out.packet[i].len, passed);
    outbox_clear(&k->out);
}

static inline void kit_deliver(struct kit *k, const struct kit_packet *p)
{
    const struct packet_head *head = (const void *)p->data;
    k->delivered++;
    if (!p->passed) {
        fisslock_switch_packet(k->decider, p->data, p->len, k->now, &k->out);
        if (fisslock_switch_stale(k->decider)) /* above all lives that tests have */
            fisslock_switch_init(k->decider, &k->config, 100 + (uint32_t)k->delivered, k->now);
    } else if (k->server && head->to.port == PORT_SERVER)
        fisslock_server_packet(k->server, p->data, p->len, k->now, &k->out);
    else if (!k->dead[head->to.machine])
        fisslock_packet(k->host[head->to.machine], p->data, p->len, k->now, &k->out);
    kit_flush(k, !p->passed);
}

/* Until nothing is on its way. */
static inline void kit_run(struct kit *k)
{
    static struct kit_packet p;
    for (unsigned i = 0; k->queued; i++) {
        CHECK(i < 100000);
        p = k->queue[0];
        memmove(k->queue, k->queue + 1, --k->queued * sizeof *k->queue);
        kit_deliver(k, &p);
    }
}

/* Sends the packets that were kept on, in the order in which they came. */
static inline void kit_let_go(struct kit *k)
{
    k->fate = NULL;
    for (unsigned i = 0; i < k->kept; i++)
        k->queue[k->queued++] = k->keep[i];
    k->kept = 0;
    kit_run(k);
}

static inline void kit_wait(struct kit *k, uint64_t ns)
{
    for (uint64_t end = k->now + ns; k->now < end; k->now += KIT_RETRY_NS / 4) {
        if (k->server) {
            fisslock_server_tick(k->server, k->now, &k->out);
            kit_flush(k, false);
            fisslock_switch_tick(k->decider, k->now, &k->out);
            kit_flush(k, true);
        }
        for (unsigned i = 1; i <= k->config.machines; i++) {
            if (k->dead[i])
                continue;
            fisslock_tick(k->host[i], k->now, &k->out);
            kit_flush(k, false);
            kit_run(k);
        }
    }
}

static inline int kit_ask(struct kit *k, unsigned host, uint32_t request, enum pawl_mode mode, bool try)
{
    struct packet_ask ask = {.request = request, .port = (uint16_t)(2 + request), .mode = mode, .index = 5, .try = try};
    int rc = fisslock_acquire(k->host[host], &ask, k->now, &k->out);
    kit_flush(k, false);
    return rc;
}

static inline int kit_acquire(struct kit *k, unsigned host, uint32_t request, enum pawl_mode mode)
{
    int rc = kit_ask(k, host, request, mode, false);
    kit_run(k);
    return rc;
}

static inline void kit_release(struct kit *k, unsigned host, uint32_t request)
{
    CHECK_EQ(fisslock_release(k->host[host], request, k->now, &k->out), 0);
    kit_flush(k, false);
    kit_run(k);
}

static inline void kit_give_up(struct kit *k, unsigned host, uint32_t request)
{
    fisslock_give_up(k->host[host], request, -110, k->now, &k->out);
    kit_flush(k, false);
    kit_run(k);
}

static inline int kit_convert(struct kit *k, unsigned host, uint32_t request, enum pawl_mode mode)
{
    int rc = fisslock_convert(k->host[host], request, mode, k->now, &k->out);
    kit_flush(k, false);
    kit_run(k);
    return rc;
}

static inline bool kit_holds(struct kit *k, unsigned host, uint32_t request)
{
    return fisslock_holds(k->host[host], request);
}

static inline uint64_t kit_token(struct kit *k, unsigned host, uint32_t request)
{
    struct packet_answer answer;
    CHECK_EQ(fisslock_outcome(k->host[host], request, &answer), 0);
    CHECK_EQ(answer.result, 0);
    return answer.token;
}

static inline uint64_t kit_word(struct kit *k)
{
    return fisslock_switch_word(k->decider, 5);
}

/* Nothing is left: the lock is free, and no host has an agent. */
static inline void kit_check_free(struct kit *k)
{
    CHECK(!(kit_word(k) & FISSION_WORD_HELD));
    for (unsigned i = 1; i <= k->config.machines; i++) {
        const struct fisslock_host *h = k->host[i];
        CHECK_EQ(h->agents_used, 0);
        CHECK_EQ(h->nodes_used, 0);
        CHECK_EQ(h->waiting, 0);
    }
}

#endif
