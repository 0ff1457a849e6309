/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the switches decides: the steward says so, for a lease (steward.h). */
#include "designs/netlock/switch.h"

/* Whether the host may have something from an earlier term, as far as the steward has said. */
static bool is_named(struct nl_switch *w, uint16_t machine)
{
    if (MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_HEARSAY))
        return __atomic_load_n(&switch_machine(w, machine)->until_ns, __ATOMIC_ACQUIRE);
    return !w->hosts_known || w->hosts[machine / 64] >> (machine % 64) & 1;
}

void switch_look_whether_clean(struct nl_switch *w, struct outbox *out)
{
    if (w->clean)
        return;
    for (uint16_t i = 1; i <= w->config.machines; i++)
        if (!switch_machine(w, i)->clean && is_named(w, i))
            return;
    w->clean = true;
    for (unsigned i = 0; i < w->config.servers; i++)
        if (w->servers[i].life)
            switch_say_synced(w, i, 0, out);
}

bool switch_is_active(const struct nl_switch *w, uint64_t now)
{
    return w->term && (now < w->until_ns || MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_SUPERSEDED));
}

void switch_on_term(struct nl_switch *w, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    struct netlock_table t;
    uint32_t steward = w->table.steward;
    uint64_t until = netlock_table_hear(&w->config, p, len, w->life, w->stamp, now, &w->drops, &w->table.steward, &t);
    if (!until && w->table.steward > steward)
        w->beat_ns = now; /* FOLLOW: the steward waits for a BEAT that says so */
    if (!until)
        return;
    bool mine = t.term && t.number == w->number && t.active_life == w->life;
    w->stamp = p->stamp;
    w->leased_ns = until;
    if (mine && t.term != w->term)
        switch_begin(w, t.term, p->flags & NETLOCK_TERM_CLEAN, now);
    __atomic_store_n(&w->until_ns, mine ? until : 0, __ATOMIC_SEQ_CST); /* the kernel looks at it, too */
    w->table = t;
    w->retire = mine && (w->retired || p->flags & NETLOCK_TERM_RETIRE) && !w->policy.chain;
    memset(w->owner, 0, sizeof w->owner);
    for (uint32_t i = 0; i < t.count; i++)
        w->owner[t.slots[i].slot] = (uint16_t)(t.slots[i].owner + 1);
    const uint64_t *hosts = netlock_hosts_read(p, len);
    if (!mine || !hosts)
        return;
    w->hosts_known = true;
    memcpy(w->hosts, hosts, sizeof w->hosts);
    switch_look_whether_clean(w, out);
}

uint64_t switch_beat(struct nl_switch *w, uint64_t now, struct outbox *out)
{
    bool active = switch_is_active(w, now), hasty = MISTAKE(w->config.mistakes, NETLOCK_MISTAKE_HASTY_RETURN);
    bool drained = active && w->retire && (hasty || !switch_plane(w)->used);
    if (now < w->beat_ns && (!drained || w->retired))
        return w->beat_ns;
    struct netlock_packet *p = netlock_beat(&w->config, &w->table, w->life, switch_place(w), now, w->leased_ns, out);
    if (!p)
        return now;
    w->retired = w->retired || drained;
    p->flags |= active && w->retired ? NETLOCK_BEAT_EMPTY : 0;
    bool settled = active && !w->retire && w->table.count == w->config.servers;
    if (settled)
        w->asked = 0;
    w->beat_ns = now + (settled ? min_u64(w->config.lease_ns, netlock_switch_term_ns(&w->config)) / LEASE_SHARE
                                : netlock_pause(&w->config, &w->asked));
    return w->beat_ns;
}

void switch_say_elsewhere(struct nl_switch *w, const struct packet_head *h, struct outbox *out)
{
    if (!w->table.term || w->table.number == w->number)
        return;
    struct netlock_packet *a = netlock_packet_new(out, &w->config, NETLOCK_ELSEWHERE, w->life, switch_place(w), h->from);
    if (!a)
        return;
    a->life = w->table.term;
    a->round = w->table.number;
}
