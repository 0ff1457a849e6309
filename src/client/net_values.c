/* SPDX-License-Identifier: Apache-2.0 */
/* Values beside the locks of a rack: its coordinator keeps them (cluster/values.h). */
#include "client/net.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <string.h>

/* Of the index of a hold. */
static uint32_t generation_of(struct net *n, const pawl_grant *g)
{
    struct packet_claim claim = {.generation = 0};
    uint32_t request;
    if (net_request_of(n, g, &request))
        return 0;
    host_lock(&n->host);
    n->host.design->claim(n->host.memory, request, &claim);
    host_unlock(&n->host);
    return claim.generation;
}

/* Asks until the coordinator answers, in the time for which it is asked for keys, too. A set names the coordinator's term: when it
 * is sent, its holder knows that it has held the lock in that term (I26). */
static int converse(struct pawl *p, const pawl_grant *g, struct coord_value *question, struct coord_value *answer)
{
    struct net *n = net_of(p);
    const struct host_header *h = n->host.header;
    struct coord_list coordinators = h->coordinators;
    uint64_t term = __atomic_load_n(&h->term, __ATOMIC_ACQUIRE);
    bool gives_up;
    uint64_t until = net_ask_until(n, DEADLINE_NEVER, world_now(&world_real), &gives_up);
    if (h->config.group > 1)
        return explain(-PAWL_ENOTSUP, "the space '%s' has no values: its keys share locks", h->space);
    question->token = g->token;
    for (;;) {
        int rc = net_ops.check(p, g);
        if (rc)
            return rc;
        coord_make(&question->packet, COORD_VALUE, h->space, &h->config.identity, world_random(&world_real) | 1);
        question->packet.head.index = g->index;
        question->packet.head.generation = generation_of(n, g);
        question->packet.term = term;
        rc = ask_leader(&coordinators, term, n->udp.at, &question->packet, sizeof *question, COORD_VALUED, until, answer,
                        sizeof *answer);
        if (!rc)
            rc = answer->packet.code;
        if (rc != -ESTALE)
            return rc;
        term = answer->packet.term;
    }
}

static int failed(struct net *n, int rc)
{
    if (rc == -EAGAIN || rc == -PAWL_EUNKNOWN)
        return explain(rc, "the coordinator, which keeps the values beside locks, does not answer");
    return net_failed(n, rc);
}

int net_set_value(struct pawl *p, const pawl_grant *g, const void *bytes, uint32_t len)
{
    struct coord_value question, answer;
    memset(&question, 0, sizeof question);
    question.sets = 1;
    question.len = len;
    memcpy(question.bytes, bytes, len);
    pthread_mutex_lock(&p->setting); /* those of one hold are told apart by their steps: one after the other */
    question.step = ++net_of(p)->value_steps;
    int rc = converse(p, g, &question, &answer);
    pthread_mutex_unlock(&p->setting);
    return failed(net_of(p), rc == -ETIMEDOUT ? -PAWL_EUNKNOWN : rc);
}

int net_get_value(struct pawl *p, const pawl_grant *g, void *bytes, uint32_t *len)
{
    struct coord_value question, answer = {.len = 0};
    memset(&question, 0, sizeof question);
    int rc = converse(p, g, &question, &answer);
    int held = net_ops.check(p, g); /* after it was read: no later holder has set another one (I26) */
    if (rc || held)
        return failed(net_of(p), held ? held : rc == -ETIMEDOUT ? -EAGAIN : rc);
    if (answer.len > PAWL_VALUE_MAX)
        return explain(-EPROTO, "the coordinator's answer has a value of %u bytes, and none is longer than %d", answer.len,
                       PAWL_VALUE_MAX);
    *len = answer.len;
    memcpy(bytes, answer.bytes, answer.len);
    return 0;
}
