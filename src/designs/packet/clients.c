/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/clients.h"

/* If the host's lease has ended, ends everything that the host had here. */
static void lapse_if_over(struct client *c, uint16_t machine, client_end_fn end, void *server, uint64_t now, struct outbox *out)
{
    if (!c->live || now < c->until_ns)
        return;
    end(server, machine, false, now, out);
    c->live = false;
}

bool client_admit(struct client *c, const struct packet_head *h, struct packet_drops *drops, client_end_fn end, void *server,
                  uint64_t now, struct outbox *out)
{
    if (h->epoch < c->life) {
        drops->stale++;
        return false;
    }
    if (h->epoch > c->life) {
        end(server, h->from.machine, true, now, out);
        *c = (struct client){.life = h->epoch};
    }
    lapse_if_over(c, h->from.machine, end, server, now, out);
    assert(c->life == h->epoch && (!c->live || now < c->until_ns)); /* I8 */
    return true;
}

uint64_t clients_lapse(struct client *clients, const struct rack_config *c, client_end_fn end, void *server, uint64_t now,
                       struct outbox *out)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 1; i <= c->machines; i++) {
        lapse_if_over(&clients[i], (uint16_t)i, end, server, now, out);
        if (clients[i].live)
            next = min_u64(next, clients[i].until_ns);
    }
    return next;
}
