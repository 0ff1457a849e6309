/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/granters.h"
#include "dataplane/mistake.h"

#include <errno.h>

/* ---- requests ---- */

uint64_t request_fresh_nonce(struct requests *h, const struct granter_ops *ops, const struct request *r)
{
    assert(request_number(h, r) < ops->nonce_step);
    return ++h->busy.serial * ops->nonce_step + request_number(h, r);
}

void request_rename(struct requests *h, const struct granter_ops *ops, struct request *r, struct outbox *out)
{
    assert(request_asks(r));
    outbox_touch(out, r, sizeof *r);
    r->nonce = request_fresh_nonce(h, ops, r);
    r->sent = 0;
}

/* The hold ends, or is known. */
static void report_needless(struct requests *h, struct request *r, struct outbox *out)
{
    struct lease *l = &h->leases[r->granter];
    if (!r->unreported)
        return;
    assert(l->reports);
    outbox_touch(out, l, sizeof *l);
    l->reports--;
    r->unreported = false;
}

void request_quit(struct requests *h, const struct granter_ops *ops, struct request *r, int result, uint64_t now,
                  struct outbox *out)
{
    assert(r->state != REQUEST_IDLE);
    outbox_touch(out, r, sizeof *r);
    if (result && ops->failed)
        ops->failed(h, r, out);
    r->result = result;
    bool known = request_held(r) && !r->unreported; /* else a report of it may be on its way */
    report_needless(h, r, out);
    request_become(h, r, known ? REQUEST_RELEASING : ops->quitting, out);
    ops->say(h, r, now, out);
}

void request_granted(struct requests *h, struct request *r, uint64_t token, uint8_t mode, struct outbox *out)
{
    assert(mode == PAWL_SHARED || mode == PAWL_EXCLUSIVE);
    outbox_touch(out, r, sizeof *r);
    r->token = token;
    r->mode = mode;
    request_become(h, r, REQUEST_HELD, out);
    request_settle(h, r, 0, out);
}

void request_not_converted(struct requests *h, struct request *r, int why, struct outbox *out)
{
    assert(r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING);
    int result = r->state == REQUEST_STAYING ? r->why : why;
    request_become(h, r, REQUEST_HELD, out);
    request_settle(h, r, result, out);
}

void request_released(struct requests *h, struct request *r, struct outbox *out)
{
    if (r->state == REQUEST_RELEASING || r->state == REQUEST_QUITTING)
        request_become(h, r, REQUEST_IDLE, out);
    else
        h->busy.drops.stale++;
}

/* ---- leases ---- */

/* The lease is over, or the granter has lost its memory: its grants are not valid any more (I1, I8), and requests that wait there
 * are sent anew. */
static void lapse(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t now, struct outbox *out)
{
    assert(granter < h->granters);
    outbox_touch(out, &h->leases[granter], sizeof h->leases[granter]);
    h->leases[granter].until_ns = 0;
    for (uint32_t i = 0; i < rack_requests(&h->config); i++) {
        struct request *r = request_at(h, i);
        if (request_held(r) && r->granter == granter) {
            request_set_lost(h, request_session(h, r), true, out);
            request_quit(h, ops, r, -PAWL_ELOST, now, out);
            outbox_wake(out, i);
        } else if (request_asks(r) && ops->may_have(h, granter, r)) {
            ops->ask_anew(h, r, now, out);
        }
    }
}

/* The granter has lost its memory, and learns holds from the hosts. */
static void survive(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    outbox_touch(out, l, sizeof *l);
    l->reports = 0;
    l->report_ns = now;
    for (uint32_t i = 0; i < rack_requests(&h->config); i++) {
        struct request *r = request_at(h, i);
        if (MISTAKE(h->config.mistakes, ops->silent) && request_held(r) && r->mode == PAWL_SHARED)
            continue;
        if (request_held(r) && r->granter == granter) {
            outbox_touch(out, r, sizeof *r);
            r->unreported = true;
            l->reports++;
        } else if (request_asks(r) && ops->may_have(h, granter, r)) {
            ops->ask_anew(h, r, now, out);
        }
    }
}

/* Tells the granter of holds that it has not acknowledged: as many as there is room for. When to go on. */
static uint64_t report_holds(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    bool room = true;
    if (!l->reports || l->until_ns <= now)
        return UINT64_MAX;
    if (l->report_ns > now)
        return l->report_ns;
    for (uint32_t i = 0; i < rack_requests(&h->config) && room; i++)
        if (request_at(h, i)->unreported && request_at(h, i)->granter == granter)
            room = ops->report(h, request_at(h, i), now, out);
    outbox_touch(out, l, sizeof *l);
    l->report_ns = now + h->config.retry_ns;
    return l->report_ns;
}

void granter_reported(struct requests *h, const struct granter_ops *ops, struct request *r, bool known, unsigned granter,
                      uint64_t now, struct outbox *out)
{
    const unsigned before = r->granter;
    const struct lease *l = &h->leases[before];
    if (!r->unreported) {
        h->busy.drops.stale++;
        return;
    }
    outbox_touch(out, r, sizeof *r);
    if (known) {
        report_needless(h, r, out);
        request_hand_over(h, r, granter, out);
    } else {
        request_set_lost(h, request_session(h, r), true, out);
        request_quit(h, ops, r, -PAWL_ELOST, now, out);
        outbox_wake(out, request_number(h, r));
    }
    if (!l->reports)
        ops->ask_for_lease(h, before, now, out); /* which is renewed from now on */
}

void granter_check_lease(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t now, struct outbox *out)
{
    const struct lease *l = &h->leases[granter];
    if (l->until_ns && l->until_ns <= now && !MISTAKE(h->config.mistakes, ops->no_lapse))
        lapse(h, ops, granter, now, out);
}

void granter_leased(struct requests *h, const struct granter_ops *ops, unsigned granter, uint64_t stamp, uint64_t slots,
                    uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    uint64_t until = lease_until(&h->config, stamp);
    if (stamp > now || until <= now || until <= l->until_ns) {
        h->busy.drops.stale++;
        return;
    }
    if (l->reports) {
        report_holds(h, ops, granter, now, out);
        return;
    }
    outbox_touch(out, l, sizeof *l);
    bool first = !l->until_ns;
    l->since_ns = first ? now : l->since_ns;
    l->until_ns = until;
    l->slots = slots;
    l->next_ns = min_u64(l->next_ns, stamp + h->config.lease_ns / LEASE_SHARE);
    for (uint32_t i = first ? h->busy.pending : 0; i;) {
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (request_asks(r))
            ops->leased(h, granter, r, now, out);
    }
}

void granter_since(struct requests *h, unsigned granter, uint32_t life, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    if (life <= l->floor)
        return;
    outbox_touch(out, l, sizeof *l);
    l->floor = life;
}

static bool learns(const struct requests *h, const struct granter_ops *ops, unsigned granter)
{
    return ops->report && (!ops->learns || ops->learns(h, granter));
}

bool granter_is_current(struct requests *h, const struct granter_ops *ops, unsigned granter, uint32_t life, uint64_t now,
                        struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    if (life < max_u64(l->life, l->floor)) {
        h->busy.drops.stale++;
        return false;
    }
    if (life > l->life) {
        if (l->life && learns(h, ops, granter) && l->until_ns > now)
            survive(h, ops, granter, now, out);
        else if (l->life)
            lapse(h, ops, granter, now, out);
        outbox_touch(out, l, sizeof *l);
        l->life = life;
    }
    assert(l->life >= l->floor); /* I17: nothing is taken of a granter that has a successor */
    return true;
}

/* ---- calls ---- */

int granters_acquire(struct requests *h, const struct granter_ops *ops, const struct packet_ask *ask, unsigned granter,
                     enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    struct request *r = request_at(h, ask->request);
    assert(ask->request < rack_requests(&h->config) && r->state == REQUEST_IDLE);
    requests_touch(h, out);
    if (ask->index >= h->config.locks)
        return -EINVAL;
    granter_check_lease(h, ops, granter, now, out);
    if (request_lost(h, request_session(h, r)))
        return -PAWL_ELOST;
    outbox_touch(out, r, sizeof *r);
    *r = (struct request){.nonce = request_fresh_nonce(h, ops, r),
                          .index = ask->index,
                          .generation = ask->generation,
                          .since_ns = now,
                          .result = -EINPROGRESS,
                          .port = ask->port,
                          .thread = ask->thread,
                          .tenant = ask->tenant,
                          .limit = ask->limit,
                          .granter = (uint16_t)granter,
                          .priority = ask->priority,
                          .want = (uint8_t)mode,
                          .try = ask->try};
    int rc = ops->bring ? ops->bring(h, r, ask, out) : 0;
    if (rc)
        return rc;
    request_become(h, r, REQUEST_ASKING, out);
    ops->say(h, r, now, out);
    return PACKET_WAIT;
}

int granters_convert(struct requests *h, const struct granter_ops *ops, uint32_t request, enum pawl_mode mode, uint64_t now,
                     struct outbox *out)
{
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    granter_check_lease(h, ops, r->granter, now, out);
    if (request_lost(h, request_session(h, r)))
        return -PAWL_ELOST;
    if (r->state != REQUEST_HELD)
        return -PAWL_ENOTOWNER;
    outbox_touch(out, r, sizeof *r);
    r->step++;
    r->want = (uint8_t)mode;
    r->why = 0;
    if (ops->converts)
        ops->converts(h, r, out);
    r->result = -EINPROGRESS;
    request_become(h, r, REQUEST_CONVERTING, out);
    ops->say(h, r, now, out);
    return PACKET_WAIT;
}

int granters_give_up(struct requests *h, const struct granter_ops *ops, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    if (ops->give_up && ops->give_up(h, r, why, now, out))
        return PACKET_WAIT;
    if (r->state == REQUEST_CONVERTING &&
        r->want == PAWL_EXCLUSIVE) { /* a conversion to shared always succeeds, once the granter has heard of it */
        outbox_touch(out, r, sizeof *r);
        r->why = why;
        request_become(h, r, REQUEST_STAYING, out);
        ops->say(h, r, now, out);
    }
    if (r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING)
        return PACKET_WAIT;
    if (r->state == REQUEST_ASKING || r->state == REQUEST_CALLING)
        request_quit(h, ops, r, why, now, out);
    return PACKET_DONE;
}

int granters_release(struct requests *h, const struct granter_ops *ops, uint32_t request, uint64_t now, struct outbox *out)
{
    struct request *r = request_at(h, request);
    requests_touch(h, out);
    granter_check_lease(h, ops, r->granter, now, out);
    if (r->state != REQUEST_HELD)
        return request_lost(h, request_session(h, r)) ? -PAWL_ELOST : -PAWL_ENOTOWNER;
    request_quit(h, ops, r, -PAWL_ENOTOWNER, now, out);
    assert(!request_held(r)); /* I10 */
    return 0;
}

void granters_session_dead(struct requests *h, const struct granter_ops *ops, uint32_t session, uint64_t now, struct outbox *out)
{
    requests_touch(h, out);
    for (uint32_t i = 0; i < h->config.requests; i++) {
        struct request *r = request_at(h, session * h->config.requests + i);
        if (ops->failed)
            ops->failed(h, r, out); /* the session is dead: its outcome is not needed */
        if (r->state == REQUEST_IDLE)
            continue;
        outbox_touch(out, r, sizeof *r);
        r->port = PORT_POOL; /* its own process is gone */
        if (request_asks(r) || request_held(r)) {
            request_quit(h, ops, r, -PAWL_ELOST, now, out);
            if (ops->wakes_dead)
                outbox_wake(out, request_number(h, r));
        }
        assert(r->state == REQUEST_RELEASING || r->state == REQUEST_QUITTING); /* I11 */
    }
    request_set_lost(h, session, false, out);
}

uint64_t granters_expiry(const struct requests *h, const struct granter_ops *ops, uint32_t session)
{
    uint64_t until = UINT64_MAX;
    if (request_lost(h, session))
        return 0;
    for (unsigned g = 0; g < h->granters && !MISTAKE(h->config.mistakes, ops->no_lapse); g++)
        if (*request_held_count(h, session, g))
            until = min_u64(until, h->leases[g].until_ns);
    return until;
}

/* ---- time ---- */

static uint64_t tend_leases(struct requests *h, const struct granter_ops *ops, uint64_t now, struct outbox *out)
{
    uint64_t next = UINT64_MAX;
    for (unsigned g = 0; g < h->granters; g++) {
        granter_check_lease(h, ops, g, now, out);
        if (h->leases[g].next_ns <= now)
            ops->ask_for_lease(h, g, now, out);
        next = min_u64(next, min_u64(h->leases[g].next_ns, report_holds(h, ops, g, now, out)));
        if (h->leases[g].until_ns > now)
            next = min_u64(next, h->leases[g].until_ns);
    }
    return next;
}

uint64_t granters_tick(struct requests *h, const struct granter_ops *ops, uint64_t now, struct outbox *out)
{
    requests_touch(h, out);
    uint64_t next = tend_leases(h, ops, now, out);
    for (uint32_t i = h->busy.pending; i;) {
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (!request_vain(h, r, now)) {
            ops->retry(h, r, now, out);
        } else if (!ops->give_up || !ops->give_up(h, r, -EAGAIN, now, out)) {
            request_quit(h, ops, r, -EAGAIN, now, out); /* no granter can say whether it is held */
            outbox_wake(out, request_number(h, r));
        }
        next = min_u64(next, r->next_ns);
    }
    return next;
}

void granters_renew(struct requests *h, const struct granter_ops *ops, uint64_t now, struct outbox *out)
{
    requests_touch(h, out);
    for (unsigned g = 0; g < h->granters; g++)
        ops->ask_for_lease(h, g, now, out);
}
