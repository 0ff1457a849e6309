/* SPDX-License-Identifier: Apache-2.0 */
/* The synchronous calls of pawl.h: the uncontended path of `word` inline, everything else through the session's table. */
#include "client/handle.h"

#include <errno.h>

int handle_forked(void)
{
    return explain(-PAWL_EFORKED, "this handle was opened before fork(); the child has no session of its own until it opens one");
}

int handle_not_offered(const struct pawl *p)
{
    return explain(-PAWL_ENOTSUP, "the design '%s' does not offer that", p->design->name);
}

int handle_until(const struct pawl *p, uint64_t deadline_ns, uint64_t *out)
{
    if (!handle_is_ours(p))
        return handle_forked();
    if (!deadline_ns)
        return explain(-EINVAL, "the deadline is 0; UINT64_MAX is none, PAWL_TRY does not wait, and pawl_in() makes one");
    *out = deadline_ns == PAWL_TRY ? DEADLINE_TRY : deadline_ns;
    return 0;
}

uint32_t pawl_version(void)
{
    return PAWL_VERSION_NUMBER;
}

uint64_t pawl_now(void)
{
    return world_now(&world_real);
}

uint64_t pawl_in(uint64_t ns)
{
    return add_saturating(world_now(&world_real), ns);
}

/* ---- locking ---- */

__attribute__((noinline, cold)) static int lock_with_care(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline,
                                                          pawl_grant *out)
{
    return HANDLE_CALL(p, lock, key, mode, deadline, out);
}

/* The cell was given to another key just as we took its lock, or the session is lost. */
__attribute__((noinline, cold)) static int lock_again(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline,
                                                      pawl_grant *out)
{
    p->ops->unlock(p, out);
    *out = (pawl_grant){0};
    return lock_with_care(p, key, mode, deadline, out);
}

/* The lock is not free. */
__attribute__((noinline)) HANDOVER static int lock_held(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline,
                                                        pawl_grant *out)
{
    enum fast_result result = fast_wait(p->fast, key, mode, deadline, out);
    if (unlikely(result == FAST_NO))
        return lock_with_care(p, key, mode, deadline, out);
    return unlikely(result == FAST_STRAY) ? lock_again(p, key, mode, deadline, out) : 0;
}

INLINED int lock_cell(pawl *p, pawl_key key, char *cell, uint64_t index, uint64_t meta, enum pawl_mode mode, uint64_t deadline,
                      pawl_grant *out)
{
    enum fast_result result = fast_lock(p->fast, cell, index, meta, mode, out);
    if (likely(result == FAST_HELD))
        return 0;
    return result == FAST_NO ? lock_held(p, key, mode, deadline, out) : lock_again(p, key, mode, deadline, out);
}

INLINED int lock_number(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    const struct fast *f = p->fast;
    uint64_t index, meta;
    char *cell = NULL;
    if (likely(f->cells && f->keys != PAWL_KEYS_NAMED))
        cell = fast_find(f, key.id, &index, &meta);
    if (unlikely(!cell))
        return lock_with_care(p, key, mode, deadline, out);
    return lock_cell(p, key, cell, index, meta, mode, deadline, out);
}

/* Not inlined: an exclusive lock of a number must not pay for what names and readers need. */
__attribute__((noinline)) static int lock_other(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    const struct fast *f = p->fast;
    struct cell place = {.index = UINT64_MAX};
    char *cell = NULL;
    if (!f->cells || !key.name == (f->keys == PAWL_KEYS_NAMED))
        return lock_with_care(p, key, mode, deadline, out);
    if (!key.name)
        cell = fast_find(f, key.id, &place.index, &place.meta);
    else if (key.id - 1 < PAWL_NAME_MAX && (place = fast_find_name(f, key)).index != UINT64_MAX)
        cell = f->cells + (place.index << f->cell_shift);
    if (unlikely(!cell))
        return lock_with_care(p, key, mode, deadline, out);
    return lock_cell(p, key, cell, place.index, place.meta, mode, deadline, out);
}

INLINED int lock_until(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    if (unlikely(mode != PAWL_EXCLUSIVE) || key.name)
        return lock_other(p, key, mode, deadline, out);
    return lock_number(p, key, PAWL_EXCLUSIVE, deadline, out);
}

HANDOVER int pawl_lock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out)
{
    return lock_until(p, key, mode, DEADLINE_NEVER, out);
}

/* For calls with a deadline, which share it. */
__attribute__((noinline)) static int lock_by(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    return lock_until(p, key, mode, deadline, out);
}

int pawl_trylock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out)
{
    return lock_by(p, key, mode, DEADLINE_TRY, out);
}

int pawl_timedlock(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : lock_by(p, key, mode, until, out);
}

__attribute__((noinline, cold)) static int unlock_with_care(pawl *p, const pawl_grant *grant)
{
    return HANDLE_CALL(p, unlock, grant);
}

HANDOVER int pawl_unlock(pawl *p, const pawl_grant *grant)
{
    if (likely(fast_unlock(p->fast, grant)))
        return 0;
    return unlock_with_care(p, grant);
}

int handle_check_limit(const struct pawl *p, uint64_t limit)
{
    if (!p->ops->semaphore || !(p->design->features & DESIGN_SEMAPHORE))
        return explain(-PAWL_ENOTSUP, "the design '%s' has no semaphores", p->design->name);
    if (!limit || limit > PAWL_SEMAPHORE_MAX)
        return explain(-EINVAL, "the limit of a semaphore is between 1 and %d, not %llu", PAWL_SEMAPHORE_MAX,
                       (unsigned long long)limit);
    return 0;
}

int pawl_semaphore(pawl *p, pawl_key key, uint32_t limit, uint64_t deadline_ns, pawl_grant *out)
{
    uint64_t until = 0;
    explain_nothing();
    int rc = handle_until(p, deadline_ns, &until);
    if (!rc)
        rc = handle_check_limit(p, limit);
    return rc ? rc : HANDLE_CALL(p, semaphore, key, limit, until, out);
}

int pawl_lock_all(pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline_ns, pawl_grant *grants)
{
    if (handle_is_ours(p) && (!count || count > PAWL_ALL_MAX))
        return explain(-EINVAL, "pawl_lock_all takes 1 to %d locks", PAWL_ALL_MAX);
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    for (unsigned i = 0; i < count && !rc; i++)
        if (wants[i].reserved)
            rc = explain(-EINVAL, "the reserved field of want %u is not 0", i);
    return rc ? rc : HANDLE_CALL(p, lock_all, wants, count, until, grants);
}

static int unlock_each(struct pawl *p, const pawl_grant *grants, unsigned count)
{
    int first = 0;
    for (unsigned i = 0; i < count; i++) {
        int rc = pawl_unlock(p, &grants[i]);
        first = first ? first : rc;
    }
    return first;
}

int pawl_unlock_all(pawl *p, const pawl_grant *grants, unsigned count)
{
    if (handle_is_ours(p) && (!count || count > PAWL_ALL_MAX))
        return explain(-EINVAL, "pawl_unlock_all takes 1 to %d grants", PAWL_ALL_MAX);
    return p->ops->unlock_all ? HANDLE_CALL(p, unlock_all, grants, count) : unlock_each(p, grants, count);
}

int pawl_convert(pawl *p, pawl_grant *grant, enum pawl_mode mode, uint64_t deadline_ns)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : HANDLE_CALL(p, convert, grant, mode, until);
}

int pawl_extend(pawl *p, pawl_grant *grant)
{
    return HANDLE_CALL(p, extend, grant);
}

int pawl_check(pawl *p, const pawl_grant *grant)
{
    return HANDLE_CALL(p, check, grant);
}

int pawl_query(pawl *p, pawl_key key, pawl_state *out)
{
    return HANDLE_CALL(p, query, key, out);
}

/* ---- ranges ---- */

int pawl_lock_range(pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : HANDLE_CALL(p, lock_range, key, start, end, mode, until, out);
}

int pawl_reshape(pawl *p, pawl_grant *grant, uint64_t start, uint64_t end, uint64_t deadline_ns)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : HANDLE_CALL(p, reshape, grant, start, end, until);
}

int pawl_split(pawl *p, pawl_grant *grant, uint64_t at, pawl_grant *right)
{
    return HANDLE_CALL(p, split, grant, at, right);
}

/* ---- data beside the lock ---- */

int pawl_lock_call(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_call *call, pawl_grant *out)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : HANDLE_CALL(p, lock_call, key, mode, until, call, out);
}

int pawl_hold_call(pawl *p, const pawl_grant *grant, uint64_t deadline_ns, pawl_call *call)
{
    uint64_t until = 0;
    int rc = handle_until(p, deadline_ns, &until);
    return rc ? rc : HANDLE_CALL(p, hold_call, grant, until, call);
}
