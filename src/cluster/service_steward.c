/* SPDX-License-Identifier: Apache-2.0 */
/* The steward of a design that has one. It runs with the coordinator that leads, and begins anew with every coordinator that takes
 * over: it learns from its members what its predecessor assigned. Only the steward of a space that has just begun knows that
 * nothing was assigned before; a coordinator that leads for the second time, in the same process, does not. */
#include "cluster/mistakes.h"
#include "cluster/service.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdlib.h>

static const struct packet_design *design_of(const struct service *s)
{
    return s->coordinator.design->packet;
}

int service_steward_open(struct service *s, bool fresh)
{
    if (!design_of(s)->steward_packet)
        return 0;
    s->steward.memory = calloc(1, design_of(s)->steward_bytes(&s->coordinator.config));
    s->steward.out = calloc(1, sizeof *s->steward.out);
    s->steward.fresh = fresh || MISTAKE(s->coordinator.config.mistakes, COORD_MISTAKE_STEWARD);
    return s->steward.memory && s->steward.out ? 0 : explain(-ENOMEM, "out of memory");
}

void service_steward_close(struct service *s)
{
    free(s->steward.memory);
    free(s->steward.out);
    s->steward.memory = NULL;
    s->steward.out = NULL;
    s->steward.runs = false;
}

/* A steward gives leases by today's configuration: it begins when hosts of a former one are gone. */
static bool runs(struct service *s, uint64_t now)
{
    const struct coordinator *c = &s->coordinator;
    if (s->steward.memory && !s->steward.runs && !c->changed) {
        design_of(s)->steward_init(s->steward.memory, &c->config, s->first_life, s->steward.fresh, now);
        s->steward.runs = true;
    }
    return s->steward.runs;
}

#define TERMS_MAX (2u * RACKS_MAX) /* of one packet or tick: one for the slots of each switch, and one for the switch */

/* Terms are lives, and within those that the log has reserved. The steward hears of the hosts that there are: one that joins later
 * can hold nothing of an earlier term. False: there are too few lives left. */
static bool lend_lives(struct service *s, uint64_t now)
{
    const struct coordinator *c = &s->coordinator;
    uint64_t live[COORD_LIVE_WORDS];
    if (c->lives - c->life < TERMS_MAX)
        return false;
    bool known = coordinator_live(c, live, now);
    design_of(s)->steward_since(s->steward.memory, c->life);
    design_of(s)->steward_hosts(s->steward.memory, known ? live : NULL, COORD_LIVE_WORDS);
    return true;
}

static void take_lives(struct service *s)
{
    struct coordinator *c = &s->coordinator;
    uint32_t term = design_of(s)->steward_since(s->steward.memory, 0);
    c->life = (uint32_t)max_u64(c->life, min_u64(term, c->lives)); /* I15; members of an older build may know a higher one */
}

bool service_is_for_steward(const struct service *s, const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    return s->steward.memory && len >= sizeof *h && h->family == design_of(s)->family;
}

const struct outbox *service_steward_packet(struct service *s, const void *data, uint32_t len, uint64_t now)
{
    assert(service_is_for_steward(s, data, len));
    outbox_clear(s->steward.out);
    if (runs(s, now) && lend_lives(s, now)) {
        design_of(s)->steward_packet(s->steward.memory, data, len, now, s->steward.out);
        take_lives(s);
    }
    if (s->steward.out->packets && !service_leads(s))
        outbox_clear(s->steward.out); /* I22 */
    return s->steward.out;
}

void service_steward_tick(struct service *s, uint64_t now)
{
    if (!runs(s, now) || !lend_lives(s, now))
        return;
    outbox_clear(s->steward.out);
    design_of(s)->steward_tick(s->steward.memory, now, s->steward.out);
    take_lives(s);
}
