/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the simulated rack: a client asks the coordinator which lock a key's name has, and its host remembers the answer until
 * it forgets the key, as the library does (client/net_names.c). */
#include "cluster/mistakes.h"
#include "dataplane/fission.h"
#include "dataplane/netlock_wire.h"
#include "designs/packet/clients.h"
#include "lib/hash.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdio.h>

#define AGAIN_NS NS_PER_MS /* until the question is retransmitted */

static void ask(const struct actor *a, uint64_t key, uint64_t first, struct net_addr coordinator)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct coord_key k;
    memset(&k, 0, sizeof k);
    coord_make(&k.packet, COORD_FIND, "sim", &c->host->member.core.welcome.said.config.identity, rack_task_of(a)->question.nonce);
    k.packet.stamp = first;
    k.packet.head.from = (struct place){c->host->machine, rack_client_port(c)};
    k.len = (uint32_t)snprintf(k.bytes, sizeof k.bytes, "key %u", (unsigned)key);
    const struct sim_addr from = {.host = c->host->host->id, .port = rack_client_port(c)};
    sim_wire_send(c->rack->wire, from, rack_sim_addr(coordinator), &k, sizeof k);
}

/* The host may have forgotten the key since. */
static bool is_known(const struct rack_host *h, uint64_t key)
{
    return h->known[key].generation && host_names_know(&h->names, &h->known[key]);
}

bool rack_knows(const struct rack_host *h, uint64_t key, const struct packet_ask *ask)
{
    return is_known(h, key) && h->known[key].index == ask->index && h->known[key].generation == ask->generation;
}

int rack_find(struct actor *a, uint64_t key, uint64_t deadline, struct packet_ask *out)
{
    struct rack_task *t = rack_task_of(a);
    struct rack_client *c = t->client;
    struct rack_host *h = c->host;
    struct sim *sim = &c->rack->sim;
    struct coord_list coordinators = h->member.core.join.coordinators;
    uint64_t first = 0; /* the round that the first answer has named */
    while (!is_known(h, key)) {
        t->question.nonce = mix64(++t->question.serial ^ mix64(c->id * ACTORS_MAX + a->number + UINT64_C(1))) | 1;
        t->question.answered = false;
        ask(a, key, first, coord_list_at(&coordinators));
        t->question.waiter = sim_ticket_take(a->task);
        uint64_t until =
            deadline == DEADLINE_TRY || deadline == DEADLINE_NEVER ? UINT64_MAX : sim_host_clock_inverse(h->host, deadline);
        int rc = sim_task_wait(a->task, min_u64(until, sim_now(sim) + AGAIN_NS));
        t->question.waiter.task = NULL;
        t->question.nonce = 0;
        if (!t->question.answered)
            coord_list_next(&coordinators); /* it stands by, or is gone */
        if (!rack_client_valid(c))
            return -PAWL_ELOST;
        if (t->question.answered && !first)
            first = t->question.name.round;
        bool current = t->question.answered && host_names_current(&h->names, t->question.name.round);
        if (current && !t->question.code) {
            rack_host_grow(&h->member, t->question.name.index + 1); /* the space may have grown since the host joined */
            h->known[key] = t->question.name;
        } else if (rc == -ECANCELED || sim_now(sim) >= until)
            return rc == -ECANCELED ? rc : -ETIMEDOUT;
        else if (current && t->question.code == -ENOSPC)
            return -ENOSPC;
        else if (t->question.answered) /* it retires keys, or could not write */
            a->ops->sleep(a, c->rack->config.retry_ns);
        if (!rack_client_valid(c))
            return -PAWL_ELOST;
    }
    out->index = h->known[key].index;
    out->generation = h->known[key].generation;
    return 0;
}

struct rack_task *rack_answered(struct rack_host *h, const struct coord_packet *answer)
{
    for (uint32_t s = 0; s < h->rack->config.sessions; s++)
        for (unsigned i = 0; h->clients[s] && i < ACTORS_MAX; i++) {
            struct rack_task *t = &h->clients[s]->tasks[i];
            if (!t->question.nonce || t->question.nonce != answer->head.nonce)
                continue;
            t->question.answered = true;
            t->question.code = answer->code;
            if (t->question.waiter.task)
                sim_ticket_wake_at(t->question.waiter, sim_now(&h->rack->sim));
            return t;
        }
    return NULL;
}

void rack_found(struct rack_host *h, const struct coord_key *answer)
{
    const struct coord_packet *p = &answer->packet;
    if (p->term < h->member.core.term && !MISTAKE(h->rack->config.mistakes, COORD_MISTAKE_DEPOSED))
        return; /* I22 */
    struct rack_task *t = rack_answered(h, p);
    if (t)
        t->question.name = (struct host_name){.index = p->head.index, .generation = p->head.generation, .round = p->stamp};
}

void rack_retire(struct rack_host *h, const struct coord_retire *p, struct sim_addr from)
{
    struct rack *r = h->rack;
    struct coord_packet answer;
    uint64_t used;
    bool ours = rack_host_joined(h) && rack_member_lives(&h->member) &&
                coord_knows(&h->member.core.welcome.said.config.identity, &p->packet) &&
                p->packet.head.epoch == h->member.core.welcome.said.packet.head.generation &&
                p->packet.head.to.machine == h->machine;
    if (!ours)
        return;
    bool tells = host_names_retire(&h->names, p, r->design->uses, h->memory, rack_clock(h), rack_host_outbox(h), &used);
    rack_host_flush(h);
    if (!tells)
        return;
    coord_make(&answer, COORD_RETIRED, "sim", &h->member.core.welcome.said.config.identity, h->member.core.join.nonce);
    answer.head.from = (struct place){h->machine, PORT_POOL};
    answer.head.epoch = p->packet.head.epoch;
    answer.head.index = used;
    answer.stamp = p->round;
    sim_wire_send(r->wire, (struct sim_addr){.host = h->host->id, .port = PORT_POOL}, from, &answer, sizeof answer);
}

/* I7: no two keys share a lock that is held. */
void rack_watch_index(const struct rack *r, uint64_t index, uint64_t key)
{
    struct packet_claim claim;
    for (unsigned i = 0; i < r->params.clients && r->params.on_shared_index; i++) {
        const struct rack_client *c = &r->clients[i];
        for (uint32_t q = c->session * r->config.requests; q < (c->session + 1) * r->config.requests && rack_client_valid(c); q++)
            if (c->host->keys[q] != key && r->design->claim(c->host->memory, q, &claim) && claim.holds && claim.index == index)
                r->params.on_shared_index(r->params.user, index, key, c->host->keys[q]);
    }
}

/* ---- packets of earlier generations ---- */

/* FissLock's decider lets pass what is between hosts, and tells an agent that its tenure is over. */
static bool is_for_decider(const struct rack *r, const struct packet_head *h)
{
    return r->design->family != PACKET_FISSION || fission_concerns_lock((const struct fission_packet *)(const void *)h);
}

/* The sender should renew its lease: of no lock. */
static bool is_hint(const struct rack *r, const struct packet_head *h)
{
    return r->design->family == PACKET_FISSION && h->type == FISSION_LEASE;
}

/* NetLock's switch passes requests on to lock servers, which compare the generation as well. It does not compare it for locks that
 * the space has got since the switch was set up. */
static bool is_passed_on(const struct rack *r, const struct packet_head *h, const struct packet_head *out)
{
    return r->design->family == PACKET_NETLOCK && out->type == h->type &&
           rack_server_on(&r->config, out->to.machine) < r->config.servers;
}

/* Any packet of a host whose lease has ended makes NetLock's switch or server end all requests of that host. One of them may be the
 * request that the packet repeats: its end has nothing to do with the packet's generation, and grants nothing. */
static bool is_end(const struct rack *r, const struct packet_head *h, const struct packet_head *out)
{
    return r->design->family == PACKET_NETLOCK && h->type == NETLOCK_ACQUIRE && out->type == NETLOCK_RELEASED;
}

void rack_watch_generation(struct rack *r, uint32_t *newest, const struct packet_head *h)
{
    if (!newest || !h->generation || h->index >= r->config.locks || !is_for_decider(r, h)) /* 0: about leases */
        return;
    bool outdated = h->generation < newest[h->index], acts = false, passes = false;
    for (unsigned i = 0; i < r->outbox.packets; i++) {
        const struct packet_head *out = outbox_packet(&r->outbox, i);
        if (out->index != h->index || out->nonce != h->nonce || is_hint(r, out))
            continue; /* of another request */
        passes = true;
        acts |= (out->type != h->type || out->to.machine != h->from.machine) && !is_passed_on(r, h, out) && !is_end(r, h, out);
    }
    if (outdated && acts && r->params.on_outdated)
        r->params.on_outdated(r->params.user, h->index, h->generation, newest[h->index]);
    if (!outdated && passes) /* else the granter may not have taken it: it is closed, or the sender has no lease */
        newest[h->index] = h->generation;
}

#define LATE_ONE_IN 8 /* packets is kept */

void rack_come_late(struct rack *r, uint32_t *newest, const void *data, uint32_t len,
                    void (*deliver)(void *granter, const void *data, uint32_t len), void *granter)
{
    const struct packet_head *h = data;
    if (!newest || !(r->sim.faults.active & FAULT_BIT(FAULT_DUPLICATE)) || sim_now(&r->sim) >= r->params.safety_ns ||
        h->index >= r->config.locks || !h->generation)
        return;
    for (unsigned i = 0; i < RACK_LATE_MAX; i++) {
        struct rack_late late = r->late[i];
        const struct packet_head *old = (const struct packet_head *)(const void *)late.data;
        if (!late.len || late.newest != newest || old->generation >= newest[old->index])
            continue;
        r->late[i].len = 0;
        deliver(granter, late.data, late.len);
    }
    uint64_t drawn = mix64(r->params.seed ^ mix64(++r->late_serial));
    if (drawn % LATE_ONE_IN)
        return;
    struct rack_late *keep = &r->late[drawn / LATE_ONE_IN % RACK_LATE_MAX];
    memcpy(keep->data, data, len);
    keep->len = len;
    keep->newest = newest;
}
