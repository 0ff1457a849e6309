/* SPDX-License-Identifier: Apache-2.0 */
/* Which locks are this server's: the steward says so, for a lease (steward.h). */
#include "designs/netlock/server.h"

bool server_rules(const struct server *s, uint64_t now)
{
    return now < s->until_ns || MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_NO_STEWARD);
}

bool server_open(struct server *s, const struct lock *l, uint64_t now)
{
    const struct server_slot *slot = server_slot(s, server_lock_index(s, l));
    return s->synced && slot->term && slot->synced && now >= slot->open_ns && now >= l->from_ns && server_rules(s, now);
}

/* Another server has these locks now, or will. Waiters must request anew. Holders by grants of this server must learn that they
 * hold nothing any more: it gives no leases until all have ended. */
static void forget(struct server *s, unsigned slot, uint64_t now)
{
    if (!MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_LOUD))
        s->quiet_ns = now + lease_over(&s->config);
    uint64_t entries = (s->config.machines + UINT64_C(1)) * rack_requests(&s->config);
    for (uint64_t i = 0; i < entries; i++) {
        struct entry *e = server_entry(s, i);
        if (e->nonce && netlock_home(&s->config, e->index) == slot) {
            e->state = ENTRY_DONE;
            e->pushed = false;
        }
    }
    for (uint64_t i = slot; i < s->config.locks; i += s->config.servers) {
        struct lock *l = server_lock(s, i);
        /* `arrivals` says that it is on the list of those to be reported. */
        const struct lock kept = {.arrivals = l->arrivals, .generation = l->generation, .fence = l->fence};
        server_set_busy(s, l, false);
        *l = kept;
    }
    s->slots[slot] = (struct server_slot){0};
}

/* Holds that the former owner granted must have ended: it gives no leases any more. */
static void adopt(struct server *s, const struct netlock_slot *given, uint64_t now)
{
    bool first = given->first && s->fresh;
    s->slots[given->slot] =
        (struct server_slot){.term = given->term,
                             .adopted_ns = now,
                             .open_ns = first || server_hasty(s, given->slot) ? now : now + lease_over(&s->config),
                             .whole = first};
    s->revive_ns = min_u64(s->revive_ns, s->slots[given->slot].open_ns);
    s->sync_ns = now;
}

void server_on_term(struct server *s, const struct netlock_packet *p, uint32_t len, uint64_t now)
{
    struct netlock_table t;
    uint32_t steward = s->table.steward;
    uint64_t mine = 0, until = netlock_table_hear(&s->config, p, len, s->life, s->stamp, now, &s->drops, &s->table.steward, &t);
    if (!until && s->table.steward > steward)
        s->beat_ns = now; /* FOLLOW: the steward waits for a BEAT that says so */
    if (!until)
        return;
    if (now >= s->until_ns)
        s->revive_ns = now; /* requests that came meanwhile wait */
    s->stamp = p->stamp;
    s->until_ns = until;
    s->table = t;
    for (uint32_t i = 0; i < t.count; i++)
        if (t.slots[i].owner == s->number && t.slots[i].life == s->life)
            mine |= (uint64_t)(s->slots[t.slots[i].slot].term == t.slots[i].term) << t.slots[i].slot;
    for (unsigned i = 0; i < s->config.servers; i++)
        if (s->slots[i].term && !(mine >> i & 1))
            forget(s, i, now);
    for (uint32_t i = 0; i < t.count; i++)
        if (t.slots[i].owner == s->number && t.slots[i].life == s->life && !(mine >> t.slots[i].slot & 1))
            adopt(s, &t.slots[i], now);
    if (t.term > s->switch_life) { /* another switch: SYNC asks which locks it has */
        s->switch_number = t.number;
        s->sync_ns = now;
    }
}

void server_hear_of_term(struct server *s, uint32_t term, uint64_t now)
{
    if (term > s->switch_life)
        s->sync_ns = now;
    if (term > s->table.term)
        s->beat_ns = min_u64(s->beat_ns, now + s->config.retry_ns);
}

uint64_t server_beat(struct server *s, uint64_t now, struct outbox *out)
{
    if (now < s->beat_ns)
        return s->beat_ns;
    if (!netlock_beat(&s->config, &s->table, s->life, (struct place){s->machine, PORT_SERVER}, now, s->until_ns, out))
        return now;
    bool settled = now < s->until_ns && s->table.term == s->switch_life && s->synced;
    if (settled)
        s->beats = 0;
    s->beat_ns = now + (settled ? s->config.lease_ns / LEASE_SHARE : netlock_pause(&s->config, &s->beats));
    return s->beat_ns;
}
