/* SPDX-License-Identifier: Apache-2.0 */
/* Values in the simulated rack: a holder asks the coordinator, as the library does (client/net_values.c). */
#include "lib/hash.h"
#include "workbench/trial/rack.h"

#include <errno.h>
#include <string.h>

#define AGAIN_NS NS_PER_MS /* until the question is retransmitted */
#define ASKS_LEASES 8      /* for which the coordinator is asked */
#define LATE_ONE_IN 4

static void ask(const struct actor *a, const struct coord_value *question, struct net_addr coordinator)
{
    const struct rack_client *c = rack_task_of(a)->client;
    const struct sim_addr from = {.host = c->host->host->id, .port = rack_client_port(c)};
    sim_wire_send(c->rack->wire, from, rack_sim_addr(coordinator), question, sizeof *question);
}

/* A copy of a question comes late: some are kept, and sent when a client of the host asks again. */
static void come_late(const struct actor *a, const struct coord_value *question, struct net_addr coordinator)
{
    struct rack_host *h = rack_task_of(a)->client->host;
    const struct rack *r = h->rack;
    uint64_t drawn = mix64(r->params.seed ^ mix64(++h->value_questions));
    if (!(r->sim.faults.active & FAULT_BIT(FAULT_DUPLICATE)) || sim_now(&r->sim) >= r->params.safety_ns)
        return;
    if (h->late_value.sets && drawn % LATE_ONE_IN == 0) {
        ask(a, &h->late_value, coordinator);
        h->late_value.sets = 0;
    }
    if (question->sets && !h->late_value.sets)
        h->late_value = *question;
}

/* Sends it once, and waits for the answer. */
static int ask_once(struct actor *a, struct coord_value *question, struct coord_list *coordinators)
{
    struct rack_task *t = rack_task_of(a);
    t->question.nonce = question->packet.head.nonce;
    t->question.answered = false;
    come_late(a, question, coord_list_at(coordinators));
    ask(a, question, coord_list_at(coordinators));
    t->question.waiter = sim_ticket_take(a->task);
    sim_task_wait(a->task, sim_now(&t->client->rack->sim) + AGAIN_NS);
    t->question.waiter.task = NULL;
    t->question.nonce = 0;
    if (!t->question.answered)
        coord_list_next(coordinators);
    return t->question.answered ? t->question.code : -EAGAIN;
}

/* A set names the term that its holder knows: the holder has held the lock since then, whatever comes of the packet. */
static int converse(struct actor *a, const struct hold *h, struct coord_value *question)
{
    struct rack_task *t = rack_task_of(a);
    struct rack_client *c = t->client;
    struct rack_host *host = c->host;
    struct coord_list coordinators = host->member.core.join.coordinators;
    uint64_t end = sim_now(&c->rack->sim) + ASKS_LEASES * c->rack->params.lease_ns, term = host->member.core.term;
    bool sent = false;
    question->token = h->token;
    while (sim_now(&c->rack->sim) < end) {
        if (!rack_client_valid(c))
            return -PAWL_ELOST;
        uint64_t nonce = mix64(++t->question.serial ^ mix64(c->id * ACTORS_MAX + a->number + UINT64_C(1))) | 1;
        coord_make(&question->packet, COORD_VALUE, "sim", &host->member.core.welcome.said.config.identity, nonce);
        question->packet.head.from = (struct place){host->machine, rack_client_port(c)};
        question->packet.head.index = host->known[h->index].index;
        question->packet.head.generation = host->known[h->index].generation;
        question->packet.term = term;
        int rc = ask_once(a, question, &coordinators);
        if (rc == -ESTALE && question->sets)
            term = t->question.value.packet.term;
        else if (rc != -EAGAIN)
            return rc;
        sent = true;
    }
    return sent && question->sets ? -PAWL_EUNKNOWN : -EAGAIN;
}

int rack_set_value(struct actor *a, const struct hold *h, const void *bytes, uint32_t len)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct coord_value question;
    if (!c->rack->coordinator)
        return -PAWL_ENOTSUP;
    memset(&question, 0, sizeof question);
    question.sets = 1;
    question.step = ++c->host->value_steps;
    question.len = len;
    memcpy(question.bytes, bytes, len);
    return converse(a, h, &question);
}

int rack_get_value(struct actor *a, const struct hold *h, void *bytes, uint32_t *len)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct coord_value question;
    if (!c->rack->coordinator)
        return -PAWL_ENOTSUP;
    memset(&question, 0, sizeof question);
    int rc = converse(a, h, &question);
    if (!rack_client_valid(c))
        return -PAWL_ELOST; /* asked afterwards: no later holder has set another value (I26) */
    *len = rc ? 0 : rack_task_of(a)->question.value.len;
    memcpy(bytes, rack_task_of(a)->question.value.bytes, *len);
    return rc;
}

void rack_valued(struct rack_host *h, const struct coord_value *answer)
{
    if (answer->packet.term < h->member.core.term)
        return; /* I22 */
    struct rack_task *t = rack_answered(h, &answer->packet);
    if (t)
        t->question.value = *answer;
}
