/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the switches decides: the steward says so, for a lease (steward.h). */
#include "designs/netlock/switch.h"

bool switch_is_active(const struct nl_switch *w, uint64_t now)
{
    return w->life && (now < w->until_ns || MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_SUPERSEDED));
}

/* An answer counts once: what is said later is answered later. */
void switch_on_term(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now)
{
    struct netlock_table t;
    if (p->head.type != NETLOCK_TERM || netlock_table_read(&w->config, p, len, &t)) {
        w->drops.bad++;
        return;
    }
    uint64_t until = lease_until(&w->config, p->stamp);
    if (p->ticket != w->own_life || p->stamp > now || p->stamp <= w->stamp || until <= now) {
        w->drops.stale++;
        return;
    }
    bool mine = t.term && t.number == w->number && t.active_life == w->own_life;
    w->stamp = p->stamp;
    w->leased_ns = until;
    if (mine && t.term != w->life)
        switch_begin(w, t.term, p->flags & NETLOCK_TERM_CLEAN, now);
    __atomic_store_n(&w->until_ns, mine ? until : 0, __ATOMIC_SEQ_CST); /* the kernel looks at it, too */
    w->table = t;
    w->retire = mine && (w->retired || p->flags & NETLOCK_TERM_RETIRE) && !w->policy.chain;
    memset(w->owner, 0, sizeof w->owner);
    for (uint32_t i = 0; i < t.count; i++)
        w->owner[t.slots[i].slot] = (uint16_t)(t.slots[i].owner + 1);
}

uint64_t switch_beat(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    bool active = switch_is_active(w, now), hasty = MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_HASTY_RETURN);
    bool drained = active && w->retire && (hasty || !switch_plane(w)->used);
    if (now < w->beat_ns && (!drained || w->retired))
        return w->beat_ns;
    struct netlock_packet *p = netlock_table_write(&w->config, &w->table, NETLOCK_BEAT, w->own_life, switch_place(w),
                                                   (struct place){MACHINE_STEWARD, PORT_POOL}, out);
    if (!p)
        return now;
    w->retired = w->retired || drained;
    p->stamp = now;
    p->flags = (uint8_t)((active && w->retired ? NETLOCK_BEAT_EMPTY : 0) | (now < w->leased_ns ? NETLOCK_BEAT_LEASED : 0));
    bool settled = active && !w->retire && w->table.count == w->config.servers;
    if (settled)
        w->asked = 0;
    w->beat_ns = now + (settled ? w->config.lease_ns / LEASE_SHARE : netlock_pause(&w->config, &w->asked));
    return w->beat_ns;
}

void switch_say_elsewhere(struct nl_switch *w, const struct packet_head *h, struct outbox *out)
{
    if (!w->table.term || w->table.number == w->number)
        return;
    struct netlock_packet *a = netlock_packet_new(out, &w->config, NETLOCK_ELSEWHERE, w->own_life, switch_place(w), h->from);
    if (!a)
        return;
    a->life = w->table.term;
    a->round = w->table.number;
}
