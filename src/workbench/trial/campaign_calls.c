/* SPDX-License-Identifier: Apache-2.0 */
/* Data beside locks, in a campaign: clients that lock and have the lock's data server do something, in one go or under the lock.
 * The data outlast the servers that keep them, as if they were on a disk. What is done is looked at as it is done (I14): once at
 * most, never after its client was told that it was not, in the order of tokens; and the holder of the lock finds what it left
 * there. */
#include "workbench/trial/campaign_ops.h"

#include <inttypes.h>

enum fate { FATE_OPEN, FATE_DONE, FATE_BARRED };

struct order {
    uint64_t number; /* what is to be done; also what is written */
};

struct reply {
    uint64_t before; /* what was there */
};

size_t campaign_apply(void *user, const pawl_work *w, void *out, size_t room)
{
    struct campaign *c = user;
    struct campaign_data *d = &c->data[w->lock];
    struct order o;
    assert(w->len == sizeof o && room >= sizeof(struct reply) && w->lock < c->locks);
    memcpy(&o, w->bytes, sizeof o);
    assert(o.number && o.number <= c->orders && o.number < CAMPAIGN_ORDERS_MAX);
    if (c->fates[o.number] == FATE_DONE)
        oracle_violation(&c->oracle, "I14: order %" PRIu64 " was done twice under lock %" PRIu64, o.number, w->lock);
    if (c->fates[o.number] == FATE_BARRED)
        oracle_violation(&c->oracle, "I14: order %" PRIu64 " was done after its client had heard that it was not", o.number);
    if (w->generation > d->generation) /* another name has the index */
        *d = (struct campaign_data){.generation = w->generation};
    struct campaign_data former = {0};
    if (w->generation < d->generation) /* late: the name that had the index before is gone, and so are its data */
        d = &former;
    if (w->token < d->written || (w->mode == PAWL_EXCLUSIVE && w->token < d->read))
        oracle_violation(&c->oracle, "I14: order %" PRIu64 " was done under token %" PRIu64 " of lock %" PRIu64 ", after %" PRIu64,
                         o.number, w->token, w->lock, max_u64(d->written, d->read));
    const struct reply r = {.before = d->value};
    c->fates[o.number] = FATE_DONE;
    c->done.orders++;
    sim_note(c->sim, "DONE", 0, w->lock, o.number);
    if (w->mode == PAWL_EXCLUSIVE)
        d->value = o.number;
    *(w->mode == PAWL_EXCLUSIVE ? &d->written : &d->read) = w->token;
    memcpy(out, &r, sizeof r);
    return sizeof r;
}

/* Checks that the answer to the client is true. */
static void check_fate(struct actor *a, uint64_t number, int rc)
{
    struct campaign *c = campaign_of(a);
    bool done = c->fates[number] == FATE_DONE;
    if (!rc && !done)
        oracle_violation(&c->oracle, "I14: client %u heard that order %" PRIu64 " was done, and it was not", campaign_who(a),
                         number);
    if (!rc || rc == -PAWL_EUNKNOWN || rc == -PAWL_ELOST || rc == -FAB_EUNKNOWN)
        return;
    if (done)
        oracle_violation(&c->oracle, "I14: client %u heard %s of order %" PRIu64 ", and it was done", campaign_who(a),
                         pawl_strerror(rc), number);
    c->fates[number] = FATE_BARRED;
}

static int call(struct actor *a, uint64_t lock, enum pawl_mode mode, uint64_t deadline, struct hold *h, bool held, uint64_t *number,
                struct reply *r)
{
    struct campaign *c = campaign_of(a);
    const struct order o = {.number = ++c->orders};
    pawl_call order = {.bytes = &o, .len = sizeof o, .reply = r, .room = sizeof *r};
    *number = o.number;
    campaign_maybe_cancel(a);
    int rc = held ? a->ops->hold_call(a, h, deadline, &order) : a->ops->lock_call(a, pawl_id(lock), mode, deadline, &order, h);
    campaign_no_more_cancel(a);
    sim_note(c->sim, rc ? "order failed" : "order", a->process->host->id, o.number, (uint64_t)-rc);
    check_fate(a, o.number, rc);
    if (!rc && order.replied != sizeof *r)
        oracle_violation(&c->oracle, "I14: order %" PRIu64 " has no reply", o.number);
    return rc;
}

static int excused(struct campaign *c, int rc)
{
    c->done.unknown += rc == -PAWL_EUNKNOWN;
    return rc == -PAWL_EUNKNOWN ? 0 : rc;
}

/* Once more under the lock: what is there must be what was there, or what this client has written. */
static int look_again(struct actor *a, uint64_t lock, struct hold *h, uint64_t expected)
{
    struct campaign *c = campaign_of(a);
    struct reply r;
    uint64_t number;
    int rc = call(a, lock, h->mode, campaign_draw_deadline(a), h, true, &number, &r);
    if (!rc && a->ops->valid(a) && r.before != expected)
        oracle_violation(&c->oracle, "I14: client %u holds lock %" PRIu64 " and found %" PRIu64 " there instead of %" PRIu64,
                         campaign_who(a), lock, r.before, expected);
    return rc;
}

/* All tasks may be in the middle of an operation, which gives two orders at most. */
#define ORDERS_UNDER_WAY (2u * CAMPAIGN_TASKS_MAX)

int campaign_order(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct hold h;
    struct reply r;
    uint64_t lock = rng_below(&c->random, c->locks), number;
    enum pawl_mode mode = rng_chance(&c->random, 1, 3) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    bool once = rng_chance(&c->random, 1, 2);
    if (c->orders + ORDERS_UNDER_WAY >= CAMPAIGN_ORDERS_MAX)
        return campaign_one_lock(a);
    int rc = call(a, lock, mode, campaign_draw_deadline(a), once ? NULL : &h, false, &number, &r);
    if (rc || once)
        return excused(c, rc);
    campaign_granted(a, lock, &h);
    a->ops->sleep(a, rng_below(&c->random, 50 * NS_PER_US));
    rc = look_again(a, lock, &h, mode == PAWL_EXCLUSIVE ? number : r.before);
    if (rc == -PAWL_ELOST)
        return rc;
    excused(c, rc);
    return campaign_give_back(a, lock, &h);
}
