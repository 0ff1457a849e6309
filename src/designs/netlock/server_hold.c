/* SPDX-License-Identifier: Apache-2.0 */
/* The lock server: holds that the switch of an earlier term granted. The switch's queues are gone. A lock that was lent to it is
 * this server's again, and nothing of it is granted until every host has confirmed the new term, or its leases from the old switch
 * have ended. Hosts report before they confirm. From the answer on a hold is one from here, under the host's lease here. */
#include "designs/netlock/server.h"

bool server_awaits_reports(struct server *s, const struct lock *l, uint64_t now)
{
    return now < max_u64(l->from_ns, server_slot(s, server_lock_index(s, l))->open_ns);
}

static void say_known(struct server *s, const struct netlock_packet *p, bool known, struct outbox *out)
{
    struct netlock_packet *a =
        netlock_packet_new(out, &s->config, NETLOCK_KNOWN, s->life, (struct place){s->machine, PORT_SERVER}, p->head.from);
    if (!a)
        return; /* it is reported again */
    a->head.index = p->head.index;
    a->head.nonce = p->head.nonce;
    a->stamp = p->stamp;
    a->code = known ? 0 : NETLOCK_LATE;
}

/* Whether it was ended here, or may have ended, or the lock may be another client's by now. */
static bool is_late(struct server *s, const struct lock *l, const struct entry *e, const struct netlock_packet *p, uint64_t now)
{
    bool same = e->nonce == p->head.nonce;
    return (same && e->state == ENTRY_DONE) || !server_awaits_reports(s, l, now) || l->place == LOCK_LENT ||
           !server_fits(l, p->mode);
}

static void take(struct server *s, struct lock *l, struct entry *e, const struct netlock_packet *p, uint64_t now,
                 struct outbox *out)
{
    if (e->nonce != p->head.nonce)
        server_end(s, e, now, out); /* the host is done with what it was */
    else if (e->state == ENTRY_WAITING)
        server_take_out(s, l, e); /* it was pushed, and the switch granted it */
    *e = (struct entry){.nonce = p->head.nonce,
                        .index = p->head.index,
                        .port = p->head.from.port,
                        .mode = p->mode,
                        .priority = p->priority,
                        .tenant = p->tenant,
                        .step = p->count,
                        .kept = true};
    server_hold(s, l, e);
}

/* Whether host and server mean each other's present lives and leases, and the present term. */
static bool is_current(struct server *s, const struct client *c, const struct netlock_packet *p, uint64_t now)
{
    server_hear_of_term(s, p->life, now);
    return server_rules(s, now) && c->live && p->pushed == s->life && s->synced && server_slot(s, p->head.index)->synced &&
           p->life == s->switch_life;
}

void server_on_hold(struct server *s, const struct client *c, struct entry *e, const struct netlock_packet *p, uint64_t now,
                    struct outbox *out)
{
    struct lock *l = server_lock(s, p->head.index);
    bool same = e->nonce == p->head.nonce, travels = e->state == ENTRY_WAITING && e->pushed;
    if (!is_current(s, c, p, now) || travels) {
        s->drops.stale++; /* it is reported again */
    } else if ((same && e->index != p->head.index) || p->token >> NETLOCK_TOKEN_BITS >= p->life) {
        s->drops.bad++; /* I2: tokens of this term are above those of earlier ones */
    } else if (same && e->state == ENTRY_HELD) {
        say_known(s, p, true, out);
    } else if ((e->nonce && (int64_t)(p->head.nonce - e->nonce) < 0) || is_late(s, l, e, p, now)) {
        say_known(s, p, false, out);
    } else {
        take(s, l, e, p, now, out);
        say_known(s, p, true, out);
    }
}
