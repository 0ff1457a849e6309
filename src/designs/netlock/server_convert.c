/* SPDX-License-Identifier: Apache-2.0 */
/* The lock server: holds that change their mode (pawl_convert). */
#include "designs/netlock/server.h"

/* A hold's mode is this from now on, or has been. */
static void say_converted(struct server *s, struct lock *l, struct entry *e, uint8_t mode, struct outbox *out)
{
    assert(e->state == ENTRY_HELD && (mode == NETLOCK_SHARED || l->holders == 1)); /* I1 */
    e->mode = l->mode = mode;
    l->token = server_token(s, l) + 1;
    struct netlock_packet *p = server_answer(s, e, NETLOCK_CONVERTED, out);
    if (!p)
        return;
    p->token = l->token;
    p->count = e->step;
}

/* A reader that converts to exclusive becomes the writer once it is the only holder, before all waiters. */
void server_strengthen(struct server *s, struct lock *l, uint64_t now, struct outbox *out)
{
    if (!l->upgrader || l->holders != 1 || !server_rules(s, now))
        return;
    struct entry *e = server_entry(s, l->upgrader - 1);
    l->upgrader = 0;
    say_converted(s, l, e, NETLOCK_EXCLUSIVE, out);
}

static void refuse_conversion(struct server *s, const struct entry *e, struct outbox *out)
{
    struct netlock_packet *a = server_answer(s, e, NETLOCK_REFUSED, out);
    if (!a)
        return;
    a->code = NETLOCK_DEADLOCK;
    a->count = e->step;
}

/* CONVERT and STAY. One that comes late is of an earlier step. */
void server_on_convert(struct server *s, struct entry *e, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct lock *l = server_lock(s, p->head.index);
    bool fresh = p->count > e->step, own = l->upgrader == server_link(s, e);
    if (p->head.nonce != e->nonce || e->state != ENTRY_HELD || p->count < e->step)
        return;
    if (!server_rules(s, now))
        return; /* I2: the steward may have given the slot to another server, whose tokens are not above those of a term since then
                 */
    if (p->head.type == NETLOCK_CONVERT && server_awaits_reports(s, l, now) && !MISTAKE(s->config.mistakes, NETLOCK_MISTAKE_RASH))
        return; /* another reader may be there, who has not reported yet. The host asks again */
    e->step = p->count;
    if (e->mode == p->mode || (e->mode == NETLOCK_EXCLUSIVE && p->head.type == NETLOCK_STAY)) {
        say_converted(s, l, e, e->mode, out);
    } else if (p->head.type == NETLOCK_STAY) {
        l->upgrader = own ? 0 : l->upgrader;
        refuse_conversion(s, e, out);
        server_pump(s, l, now, out);
    } else if (p->mode == NETLOCK_SHARED) {
        say_converted(s, l, e, NETLOCK_SHARED, out);
        server_pump(s, l, now, out);
    } else if (!own && (l->upgrader || !fresh)) {
        refuse_conversion(s, e, out);
    } else {
        l->upgrader = server_link(s, e);
        server_strengthen(s, l, now, out);
    }
}
