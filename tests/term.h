/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's parts without a steward: sets the assignments that it would make, for good. */
#ifndef PAWL_TESTS_TERM_H
#define PAWL_TESTS_TERM_H

#include "designs/netlock/server.h"
#include "designs/netlock/switch.h"

#include <string.h>

/* The switch is active, in the term with the number of its life; each server has the locks of its own number. */
static inline void term_say(const struct rack_config *c, uint32_t switch_life, uint32_t life, struct place to, uint64_t now,
                            struct outbox *out)
{
    struct netlock_table t = {.term = switch_life, .active_life = switch_life, .count = c->servers};
    for (uint16_t i = 0; i < c->servers; i++)
        t.slots[i] = (struct netlock_slot){.slot = i, .owner = i, .term = 1, .life = 1, .first = 1};
    outbox_clear(out);
    struct netlock_packet *p = netlock_table_write(c, &t, NETLOCK_TERM, 1, (struct place){MACHINE_STEWARD, PORT_POOL}, to, out);
    p->stamp = now;
    p->ticket = life;
}

static inline void term_switch(void *state, const struct rack_config *c, uint32_t life, uint64_t now)
{
    static struct outbox said, out;
    struct nl_switch *w = state;
    term_say(c, life, life, (struct place){MACHINE_SWITCH, PORT_POOL}, now, &said);
    netlock_switch_packet(state, outbox_packet(&said, 0), said.packet[0].len, now, &out);
    outbox_clear(&out);
    w->until_ns = w->beat_ns = UINT64_MAX;
}

/* A server in its first life. */
static inline void term_server(void *server, const struct rack_config *c, uint32_t switch_life, uint64_t now)
{
    static struct outbox said, out;
    struct server *s = server;
    term_say(c, switch_life, 1, (struct place){s->machine, PORT_SERVER}, now, &said);
    netlock_server_packet(server, outbox_packet(&said, 0), said.packet[0].len, now, &out);
    outbox_clear(&out);
    s->until_ns = s->beat_ns = UINT64_MAX;
}

#endif
