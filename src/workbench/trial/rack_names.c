/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the simulated rack: a client asks the coordinator which lock a key's name has, and its host remembers the answer for its
 * present life, as the library does (client/net_names.c). */
#include "cluster/mistakes.h"
#include "lib/hash.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <stdio.h>

#define AGAIN_NS NS_PER_MS /* until the question is retransmitted */

static void ask(const struct actor *a, uint64_t key, struct net_addr coordinator)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct coord_key k;
    memset(&k, 0, sizeof k);
    coord_make(&k.packet, COORD_FIND, "sim", NULL, rack_task_of(a)->question.nonce);
    k.packet.head.from = (struct place){c->host->machine, rack_client_port(c)};
    k.len = (uint32_t)snprintf(k.bytes, sizeof k.bytes, "key %u", (unsigned)key);
    const struct sim_addr from = {.host = c->host->host->id, .port = rack_client_port(c)};
    sim_wire_send(c->rack->wire, from, rack_sim_addr(coordinator), &k, sizeof k);
}

int rack_find(struct actor *a, uint64_t key, uint64_t deadline, uint64_t *index)
{
    struct rack_task *t = rack_task_of(a);
    struct rack_client *c = t->client;
    struct rack_host *h = c->host;
    struct sim *sim = &c->rack->sim;
    struct coord_list coordinators = h->member.coordinators;
    while (!h->indexes[key]) {
        t->question.nonce = mix64(sim_now(sim) ^ mix64(c->id * ACTORS_MAX + a->number + UINT64_C(1))) | 1;
        t->question.answered = false;
        ask(a, key, coord_list_at(&coordinators));
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
        if (t->question.answered && !t->question.code)
            h->indexes[key] = t->question.index + 1;
        else if (rc == -ECANCELED || sim_now(sim) >= until)
            return rc == -ECANCELED ? rc : -ETIMEDOUT;
    }
    *index = h->indexes[key] - 1;
    return 0;
}

void rack_found(struct rack_host *h, const struct coord_key *answer)
{
    if (answer->packet.term < h->member.term && !MISTAKE(h->rack->config.mistakes, COORD_MISTAKE_DEPOSED))
        return; /* I22 */
    for (uint32_t s = 0; s < h->rack->config.sessions; s++)
        for (unsigned i = 0; h->clients[s] && i < ACTORS_MAX; i++) {
            struct rack_task *t = &h->clients[s]->tasks[i];
            if (!t->question.nonce || t->question.nonce != answer->packet.head.nonce)
                continue;
            t->question.answered = true;
            t->question.code = answer->packet.code;
            t->question.index = answer->packet.head.index;
            if (t->question.waiter.task)
                sim_ticket_wake_at(t->question.waiter, sim_now(&h->rack->sim));
        }
}
