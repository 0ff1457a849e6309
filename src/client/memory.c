/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a session on memory: turns grants into holds and back, bytes into units, and explains what a locker refused. */
#include "client/memory.h"
#include "client/grant.h"
#include "lib/explain.h"

#include <errno.h>

int memory_failed(const struct memory_session *m, int rc, pawl_key key)
{
    if (rc && *explained())
        return rc; /* by the function that decided it */
    switch (rc) {
    case 0:
        return 0;
    case -EINVAL:
        return explain(rc, "this space has %s keys, and a name has 1 to %d bytes; the mode must be shared or exclusive",
                       m->handle.keys == PAWL_KEYS_NAMED ? "named" : "u64", PAWL_NAME_MAX);
    case -ENAMETOOLONG:
        return explain(rc, "the name has %llu bytes, more than %d", (unsigned long long)key.id, PAWL_NAME_MAX);
    case -ERANGE:
        return explain(rc, "the key %llu is not below the space's capacity, %llu", (unsigned long long)key.id,
                       (unsigned long long)m->locker.table.capacity);
    case -ENOSPC:
        return explain(rc, "%s has no room for another lock: every lock in it is in use", m->segment ? m->segment->path : m->name);
    case -PAWL_ESEGMENT:
        return explain(rc,
                       "%s is damaged: a program that is not pawl, or another user, has written to it; drop it and make it anew",
                       m->segment ? m->segment->path : m->name);
    case -EDEADLK:
        return explain(rc,
                       "two holders of the lock wait for each other, or the two ranges share an internal lock of the design '%s'",
                       m->space.design->name);
    case -PAWL_ELIMIT:
        return explain(rc, "this session already holds or waits for %u locks, or the lock has too many holders",
                       m->space.record_count);
    case -PAWL_ENOTSUP:
        return handle_not_offered(&m->handle);
    default:
        return explain(rc, "%s", pawl_strerror(rc));
    }
}

/* A failed call, or the grant of the hold that it has left. */
HANDOVER static int ended(const struct memory_session *m, int rc, pawl_key key, const struct hold *h, pawl_grant *out)
{
    if (unlikely(rc))
        return memory_failed(m, rc, key);
    *out = grant_of(&m->locker.seat, h);
    return 0;
}

HANDOVER static int lock(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    struct memory_session *m = memory_of(p);
    struct hold h;
    int rc = locker_lock(&m->locker, key, mode, deadline, &h);
    return ended(m, rc, key, &h, out);
}

static int semaphore(struct pawl *p, pawl_key key, uint32_t limit, uint64_t deadline, pawl_grant *out)
{
    struct memory_session *m = memory_of(p);
    struct hold h;
    int rc = locker_semaphore(&m->locker, key, limit, deadline, &h);
    return ended(m, rc, key, &h, out);
}

static int unlock(struct pawl *p, const pawl_grant *g)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    return memory_failed(m, locker_unlock(&m->locker, &h), pawl_id(0));
}

static int convert(struct pawl *p, pawl_grant *g, enum pawl_mode mode, uint64_t deadline)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    int rc = locker_convert(&m->locker, &h, mode, deadline);
    return ended(m, rc, pawl_id(0), &h, g);
}

static int check(struct pawl *p, const pawl_grant *g)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    return locker_check(&m->locker, &h);
}

static int wanted(struct pawl *p, const pawl_grant *g)
{
    struct memory_session *m = memory_of(p);
    struct hold h = hold_of(&m->locker.seat, g);
    return locker_wanted(&m->locker, &h);
}

ONCE static int extend(struct pawl *p, pawl_grant *g)
{
    struct memory_session *m = memory_of(p);
    int rc = seat_renew(&m->locker.seat);
    if (!rc)
        rc = check(p, g);
    if (!rc)
        g->expiry_ns = max_u64(g->expiry_ns, seat_expiry_ns(&m->locker.seat));
    return memory_failed(m, rc, pawl_id(0));
}

static int query(struct pawl *p, pawl_key key, pawl_state *out)
{
    struct memory_session *m = memory_of(p);
    return memory_failed(m, locker_lost(&m->locker) ? -PAWL_ELOST : locker_query(&m->locker, key, out), key);
}

bool memory_alone(const struct locker *l)
{
    struct memory_session *m = container_of((struct locker *)(uintptr_t)l, struct memory_session, locker);
    pthread_mutex_lock(&m->handle.async.lock);
    bool idle = !m->handle.async.in_flight;
    pthread_mutex_unlock(&m->handle.async.lock);
    return idle && handle_only_thread();
}

/* ---- ranges ---- */

/* Bytes as units; what is wrong with them is explained. */
static int to_units(const struct memory_session *m, uint64_t start, uint64_t end, uint64_t *first, uint64_t *last)
{
    unsigned long long from = start, to = end;
    int rc = units_of(&m->space, start, end, first, last);
    if (rc == -EINVAL)
        explain(rc, "the range %llu:%llu is empty or ends before it starts", from, to);
    else if (rc == -EOVERFLOW)
        explain(rc, "the range %llu:%llu reaches beyond 2^%d units of %llu bytes", from, to, RANGE_UNITS_BITS,
                (unsigned long long)m->space.unit_bytes);
    else if (rc)
        memory_failed(m, rc, pawl_id(0));
    return rc;
}

static int lock_range(struct pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      pawl_grant *out)
{
    struct memory_session *m = memory_of(p);
    struct hold h;
    uint64_t first, last;
    int rc = to_units(m, start, end, &first, &last);
    if (rc)
        return rc;
    rc = locker_lock_range(&m->locker, key, first, last, mode, deadline, &h);
    return ended(m, rc, key, &h, out);
}

ONCE static int reshape(struct pawl *p, pawl_grant *g, uint64_t start, uint64_t end, uint64_t deadline)
{
    struct memory_session *m = memory_of(p);
    uint64_t first, last;
    int rc = to_units(m, start, end, &first, &last);
    if (rc)
        return rc;
    struct hold h = hold_of(&m->locker.seat, g);
    rc = locker_reshape(&m->locker, &h, first, last, deadline);
    if (rc == -EINVAL)
        return explain(rc, "a range of %llu:%llu can grow or shrink to one that contains it or lies in it, not to %llu:%llu",
                       (unsigned long long)g->start, (unsigned long long)g->end, (unsigned long long)start,
                       (unsigned long long)end);
    return ended(m, rc, pawl_id(0), &h, g);
}

ONCE static int split(struct pawl *p, pawl_grant *g, uint64_t at, pawl_grant *right)
{
    struct memory_session *m = memory_of(p);
    const uint64_t unit = m->space.unit_bytes;
    if (!unit)
        return handle_not_offered(p);
    struct hold h = hold_of(&m->locker.seat, g), r;
    int rc = at % unit ? -EINVAL : locker_split(&m->locker, &h, at / unit, &r);
    if (rc == -EINVAL)
        return explain(rc, "%llu is not the first byte of a unit of %llu bytes inside of %llu:%llu", (unsigned long long)at,
                       (unsigned long long)unit, (unsigned long long)g->start, (unsigned long long)g->end);
    if (!rc)
        *right = grant_of(&m->locker.seat, &r);
    return ended(m, rc, pawl_id(0), &h, g);
}

/* ---- the end of the session ---- */

static enum pawl_why why(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    if (!locker_lost(&m->locker))
        return 0;
    /* Others declare a session lost only when its lease has ended by all clocks. So one that ended earlier was broken. */
    return __atomic_load_n(&m->removed, __ATOMIC_ACQUIRE)             ? PAWL_WHY_REMOVED
           : seat_expiry_ns(&m->locker.seat) > world_now(&world_real) ? PAWL_WHY_BROKEN
                                                                      : PAWL_WHY_LEASE;
}

void memory_notice_loss(struct memory_session *m)
{
    enum pawl_why reason = why(&m->handle);
    if (reason)
        async_lost(&m->handle.async, reason);
}

/* ---- several at once ---- */

static int lock_all(struct pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants)
{
    struct memory_session *m = memory_of(p);
    struct hold holds[PAWL_ALL_MAX];
    pawl_want units[PAWL_ALL_MAX];
    assert(count > 0 && count <= PAWL_ALL_MAX);
    for (unsigned i = 0; i < count; i++) {
        units[i] = wants[i];
        bool whole = !wants[i].start && !wants[i].end;
        int rc = whole ? 0 : to_units(m, wants[i].start, wants[i].end, &units[i].start, &units[i].end);
        if (rc)
            return rc;
    }
    int rc = locker_lock_all(&m->locker, units, count, deadline, holds);
    for (unsigned i = 0; i < count && !rc; i++)
        grants[i] = grant_of(&m->locker.seat, &holds[i]);
    return memory_failed(m, rc, wants[0].key);
}

static int unlock_all(struct pawl *p, const pawl_grant *grants, unsigned count)
{
    struct memory_session *m = memory_of(p);
    struct hold holds[PAWL_ALL_MAX];
    int rc[PAWL_ALL_MAX], first = 0;
    assert(count > 0 && count <= PAWL_ALL_MAX);
    for (unsigned i = 0; i < count; i++)
        holds[i] = hold_of(&m->locker.seat, &grants[i]);
    locker_unlock_all(&m->locker, holds, count, rc);
    for (unsigned i = 0; i < count; i++)
        first = first ? first : rc[i];
    return memory_failed(m, first, pawl_id(0));
}

#define CALLS                                                                                                                      \
    .on_memory = true, .lock = lock, .semaphore = semaphore, .unlock = unlock, .lock_all = lock_all, .unlock_all = unlock_all,     \
    .convert = convert, .extend = extend, .check = check, .query = query, .wanted = wanted, .why = why, .lock_range = lock_range,  \
    .reshape = reshape, .split = split, .begin = memory_begin, .pump = memory_pump, .cancel = memory_cancel, .admit = memory_admit

const struct session_ops memory_ops = {
    .scheme = "local:",
    .open = memory_open,
    .close = memory_close,
    .wait = memory_wait,
    .changed = memory_changed,
    CALLS,
};

/* Sessions that it opens have memory_ops. */
const struct session_ops memory_system_ops = {.scheme = "system:", .open = memory_open_system};

const struct session_ops memory_far_ops = {
    .close = memory_far_close,
    .wait = memory_far_wait,
    .changed = memory_far_changed,
    CALLS,
};
