/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface over a locker: checks the handle, turns holds into grants and back. */
#include "client/grant.h"
#include "client/handle.h"
#include "cluster/session.h"
#include "lib/explain.h"

#include <errno.h>

static int forked(void)
{
    return explain(-PAWL_EFORKED, "this handle was opened before fork(); the child has no session of its own until it opens one");
}

static int not_over_packets(void)
{
    return explain(-PAWL_ENOTSUP, "not offered over packets (pawl://)");
}

/* The first sentence about what a locker refused; its codes say the rest. */
static int failed(const pawl *p, int rc, pawl_key key)
{
    switch (rc) {
    case -EINVAL:
        return explain(rc, "this space has %s keys, and a name has 1 to %d bytes; the mode is shared or exclusive",
                       p->locker.table.keys == PAWL_KEYS_NAMED ? "named" : "u64", PAWL_NAME_MAX);
    case -ENAMETOOLONG:
        return explain(rc, "the name has %llu bytes, more than %d", (unsigned long long)key.id, PAWL_NAME_MAX);
    case -ERANGE:
        return explain(rc, "the key %llu is not below the space's capacity, %llu", (unsigned long long)key.id,
                       (unsigned long long)p->locker.table.capacity);
    case -ENOSPC:
        return explain(rc, "%s has no room for another lock: all that it could forget are held", p->segment->path);
    case -EDEADLK:
        return explain(rc, "two who hold it wait for each other; or two of these ranges are one lock to the design '%s'",
                       p->space.design->name);
    case -PAWL_ELIMIT:
        return explain(rc, "this session already holds or waits for %u locks, or too many hold this one", p->space.record_count);
    case -PAWL_ENOTSUP:
        return explain(rc, "the design '%s' does not offer that", p->space.design->name);
    default:
        return explain(rc, "%s", pawl_strerror(rc));
    }
}

uint64_t pawl_now(void)
{
    return world_now(&world_real);
}

uint64_t pawl_in(uint64_t ns)
{
    return add_saturating(world_now(&world_real), ns);
}

/* Not inlined: numbers must not pay for what names need. */
__attribute__((noinline)) static struct cell find_name_at_once(const struct fast *f, pawl_key key)
{
    bool is_name = f->keys == PAWL_KEYS_NAMED && key.id - 1 < PAWL_NAME_MAX;
    return is_name ? fast_find_name(f, key) : (struct cell){.index = UINT64_MAX};
}

/* Where the key's lock is, if that can be said without searching far. */
static inline char *find_at_once(const struct fast *f, pawl_key key, uint64_t *index, uint64_t *meta)
{
    if (likely(!key.name))
        return f->keys != PAWL_KEYS_NAMED ? fast_find(f, key.id, index, meta) : NULL;
    struct cell place = find_name_at_once(f, key);
    *index = place.index;
    *meta = place.meta;
    return place.index != UINT64_MAX ? f->cells + (place.index << f->cell_shift) : NULL;
}

__attribute__((noinline)) static int lock_with_care(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    struct hold h;
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_lock(p->net, key, mode, deadline, out);
    int rc = locker_lock(&p->locker, key, mode, deadline, &h);
    if (rc)
        return failed(p, rc, key);
    *out = grant_of(&p->locker.seat, &h);
    return 0;
}

/* The cell was given to another key just as we took its lock, or the session is lost. */
__attribute__((noinline)) static void undo(pawl *p, uint64_t index, uint64_t token, uint64_t serial, uint32_t record,
                                           enum pawl_mode mode)
{
    struct hold h = {.index = index, .token = token, .serial = serial, .record = record, .mode = mode};
    locker_unlock(&p->locker, &h);
}

static inline int lock_until(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    uint64_t index, meta;
    char *cell = NULL;
    if (likely(p->fast->cells))
        cell = find_at_once(p->fast, key, &index, &meta);
    if (unlikely(!cell))
        return lock_with_care(p, key, mode, deadline, out);
    struct hold h;
    enum fast_result result = fast_lock(p->fast, cell, index, meta, mode, &h);
    uint64_t lease = likely(result == FAST_HELD) ? fast_lease(p->fast) : 0;
    if (likely(lease)) {
        out->token = h.token;
        out->expiry_ns = lease_expiry_ns(lease);
        out->mode = mode;
        out->hold = h.record;
        out->index = index;
        out->serial = p->fast->identity | h.serial;
        out->start = out->end = 0;
        return 0;
    }
    if (result != FAST_NO) /* by value: a hold that nobody points to stays in registers */
        undo(p, h.index, h.token, h.serial, h.record, h.mode);
    return lock_with_care(p, key, mode, deadline, out);
}

int pawl_lock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out)
{
    return lock_until(p, key, mode, DEADLINE_NEVER, out);
}

int pawl_trylock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out)
{
    return lock_until(p, key, mode, DEADLINE_TRY, out);
}

int pawl_timedlock(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out)
{
    /* A deadline that has passed is still one: the answer is a time-out, not "held". */
    return lock_until(p, key, mode, deadline_ns == DEADLINE_TRY ? 1 : deadline_ns, out);
}

__attribute__((noinline)) static int unlock_with_care(pawl *p, const pawl_grant *grant)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_unlock(p->net, grant);
    struct hold h = hold_of(&p->locker.seat, grant);
    int rc = locker_unlock(&p->locker, &h);
    return rc ? failed(p, rc, pawl_id(0)) : 0;
}

int pawl_unlock(pawl *p, const pawl_grant *grant)
{
    if (likely(fast_unlock(p->fast, grant)))
        return 0;
    return unlock_with_care(p, grant);
}

/* ---- ranges ---- */

/* What is wrong with a range, in words. */
static int range_failed(const pawl *p, int rc, uint64_t start, uint64_t end)
{
    unsigned long long from = start, to = end;
    switch (rc) {
    case -EINVAL:
        return explain(rc, "the range %llu:%llu is empty or ends before it starts", from, to);
    case -EOVERFLOW:
        return explain(rc, "the range %llu:%llu reaches beyond 2^%d units of %llu bytes", from, to, RANGE_UNITS_BITS,
                       (unsigned long long)p->space.unit_bytes);
    default:
        return failed(p, rc, pawl_id(0));
    }
}

int pawl_lock_range(pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out)
{
    struct hold h;
    uint64_t first, last;
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return not_over_packets();
    int rc = units_of(&p->space, start, end, &first, &last);
    if (rc)
        return range_failed(p, rc, start, end);
    rc = locker_lock_range(&p->locker, key, first, last, mode, deadline_ns, &h);
    if (rc)
        return failed(p, rc, key);
    *out = grant_of(&p->locker.seat, &h);
    return 0;
}

int pawl_reshape(pawl *p, pawl_grant *grant, uint64_t start, uint64_t end, uint64_t deadline_ns)
{
    uint64_t first, last;
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return not_over_packets();
    int rc = units_of(&p->space, start, end, &first, &last);
    if (rc)
        return range_failed(p, rc, start, end);
    struct hold h = hold_of(&p->locker.seat, grant);
    rc = locker_reshape(&p->locker, &h, first, last, deadline_ns);
    if (rc == -EINVAL)
        return explain(rc, "a range of %llu:%llu can grow or shrink to one that contains it or lies in it, not to %llu:%llu",
                       (unsigned long long)grant->start, (unsigned long long)grant->end, (unsigned long long)start,
                       (unsigned long long)end);
    if (rc)
        return failed(p, rc, pawl_id(0));
    *grant = grant_of(&p->locker.seat, &h);
    return 0;
}

int pawl_split(pawl *p, pawl_grant *grant, uint64_t at, pawl_grant *right)
{
    struct hold h, r;
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return not_over_packets();
    if (!p->space.unit_bytes)
        return failed(p, -PAWL_ENOTSUP, pawl_id(0));
    h = hold_of(&p->locker.seat, grant);
    int rc = at % p->space.unit_bytes ? -EINVAL : locker_split(&p->locker, &h, at / p->space.unit_bytes, &r);
    if (rc == -EINVAL)
        return explain(rc, "%llu is not where a unit of %llu bytes begins inside of %llu:%llu", (unsigned long long)at,
                       (unsigned long long)p->space.unit_bytes, (unsigned long long)grant->start, (unsigned long long)grant->end);
    if (rc)
        return failed(p, rc, pawl_id(0));
    *grant = grant_of(&p->locker.seat, &h);
    *right = grant_of(&p->locker.seat, &r);
    return 0;
}

/* ---- several at once ---- */

/* The same wants in units. */
static int in_units(const pawl *p, const pawl_want *wants, unsigned count, pawl_want *out)
{
    for (unsigned i = 0; i < count; i++) {
        out[i] = wants[i];
        if (!wants[i].start && !wants[i].end)
            continue;
        int rc = units_of(&p->space, wants[i].start, wants[i].end, &out[i].start, &out[i].end);
        if (rc)
            return range_failed(p, rc, wants[i].start, wants[i].end);
    }
    return 0;
}

int pawl_lock_all(pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline_ns, pawl_grant *grants)
{
    struct hold holds[PAWL_ALL_MAX];
    pawl_want units[PAWL_ALL_MAX];
    if (!handle_is_ours(p))
        return forked();
    if (!count || count > PAWL_ALL_MAX)
        return explain(-EINVAL, "pawl_lock_all takes 1 to %d locks", PAWL_ALL_MAX);
    if (unlikely(p->net))
        return net_lock_all(p->net, wants, count, deadline_ns, grants);
    int rc = in_units(p, wants, count, units);
    if (rc)
        return rc;
    rc = locker_lock_all(&p->locker, units, count, deadline_ns, holds);
    if (rc)
        return failed(p, rc, wants[0].key);
    for (unsigned i = 0; i < count; i++)
        grants[i] = grant_of(&p->locker.seat, &holds[i]);
    return 0;
}

int pawl_convert(pawl *p, pawl_grant *grant, enum pawl_mode mode, uint64_t deadline_ns)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_convert(p->net, grant, mode, deadline_ns);
    struct hold h = hold_of(&p->locker.seat, grant);
    int rc = locker_convert(&p->locker, &h, mode, deadline_ns);
    if (rc)
        return failed(p, rc, pawl_id(0));
    *grant = grant_of(&p->locker.seat, &h);
    return 0;
}

int pawl_lock_call(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_call *call, pawl_grant *out)
{
    if (!handle_is_ours(p))
        return forked();
    return p->net ? net_lock_call(p->net, key, mode, deadline_ns, call, out) : failed(p, -PAWL_ENOTSUP, key);
}

int pawl_hold_call(pawl *p, const pawl_grant *grant, uint64_t deadline_ns, pawl_call *call)
{
    if (!handle_is_ours(p))
        return forked();
    return p->net ? net_hold_call(p->net, grant, deadline_ns, call) : failed(p, -PAWL_ENOTSUP, pawl_id(0));
}

int pawl_extend(pawl *p, pawl_grant *grant)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_extend(p->net, grant);
    struct hold h = hold_of(&p->locker.seat, grant);
    int rc = seat_renew(&p->locker.seat);
    if (!rc)
        rc = locker_check(&p->locker, &h);
    if (rc)
        return failed(p, rc, pawl_id(0));
    grant->expiry_ns = seat_expiry_ns(&p->locker.seat);
    return 0;
}

int pawl_check(pawl *p, const pawl_grant *grant)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_check(p->net, grant);
    struct hold h = hold_of(&p->locker.seat, grant);
    return locker_check(&p->locker, &h);
}

int pawl_query(pawl *p, pawl_key key, pawl_state *out)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_query(p->net, key, out);
    int rc = locker_query(&p->locker, key, out);
    return rc ? failed(p, rc, key) : 0;
}

int pawl_submit(pawl *p, const pawl_request *request, uint64_t *id)
{
    if (!handle_is_ours(p))
        return forked();
    if (unlikely(p->net))
        return net_submit(p->net, request, id);
    int rc = async_submit(&p->async, &p->locker, request, id);
    if (rc == -PAWL_ELIMIT)
        return explain(rc, "%d operations are in flight or unreaped; reap some first", PAWL_INFLIGHT_MAX);
    return rc ? failed(p, rc, request->key) : 0;
}

int pawl_reap(pawl *p, pawl_completion *out, unsigned max, uint64_t deadline_ns)
{
    if (!handle_is_ours(p))
        return forked();
    return p->net ? net_reap(p->net, out, max, deadline_ns) : async_reap(&p->async, out, max, deadline_ns);
}

int pawl_cancel(pawl *p, uint64_t id)
{
    if (!handle_is_ours(p))
        return forked();
    return p->net ? net_cancel(p->net, id) : async_cancel(&p->async, id);
}

int pawl_fd(pawl *p)
{
    if (!handle_is_ours(p))
        return forked();
    return p->net ? p->net->event_fd : p->async.event_fd;
}
