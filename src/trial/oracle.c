#include "trial/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

int oracle_init(struct oracle *o, uint64_t lock_count, bool tokens, oracle_valid_fn valid, void *ctx)
{
    *o = (struct oracle){.lock_count = lock_count, .tokens = tokens, .valid = valid, .ctx = ctx};
    o->locks = calloc(lock_count, sizeof *o->locks);
    return o->locks ? 0 : -ENOMEM;
}

void oracle_free(struct oracle *o)
{
    free(o->locks);
}

void oracle_violation(struct oracle *o, const char *format, ...)
{
    if (o->violations++ == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(o->first, sizeof o->first, format, args);
        va_end(args);
    }
}

static const char *mode_name(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? "shared" : "exclusive";
}

static void remove_at(struct oracle_lock *l, unsigned i)
{
    l->holders[i] = l->holders[--l->count];
}

/* Those who are dead or whose lease has run out hold nothing any more. */
static void drop_void(struct oracle *o, struct oracle_lock *l)
{
    for (unsigned i = l->count; i-- > 0;)
        if (!o->valid(o->ctx, l->holders[i].client))
            remove_at(l, i);
}

/* I1 and I2 for a new hold. */
static void check_hold(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token)
{
    struct oracle_lock *l = &o->locks[lock];
    for (unsigned i = 0; i < l->count; i++)
        if (mode == PAWL_EXCLUSIVE || l->holders[i].mode == PAWL_EXCLUSIVE)
            oracle_violation(o,
                             "I1: lock %" PRIu64 " granted to client %u (%s, token %" PRIu64
                             ") while client %u holds it (%s, token %" PRIu64 ")",
                             lock, client, mode_name(mode), token, l->holders[i].client, mode_name(l->holders[i].mode),
                             l->holders[i].token);
    if (!o->tokens)
        return;
    if (mode == PAWL_EXCLUSIVE && token <= l->highest)
        oracle_violation(o, "I2: lock %" PRIu64 ": exclusive token %" PRIu64 " is not above %" PRIu64, lock, token, l->highest);
    if (mode == PAWL_SHARED && token <= l->last_exclusive)
        oracle_violation(o, "I2: lock %" PRIu64 ": shared token %" PRIu64 " is not above the exclusive %" PRIu64, lock, token,
                         l->last_exclusive);
    l->highest = max_u64(l->highest, token);
    if (mode == PAWL_EXCLUSIVE)
        l->last_exclusive = token;
}

static void add(struct oracle_lock *l, unsigned client, enum pawl_mode mode, uint64_t token)
{
    assert(l->count < ORACLE_HOLDERS_MAX);
    l->holders[l->count++] = (struct oracle_holder){.client = client, .mode = mode, .token = token};
}

void oracle_asking(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode)
{
    struct oracle_lock *l = &o->locks[lock];
    if (!o->overtaking)
        return;
    assert(l->waiting < ORACLE_WAITERS_MAX);
    l->waiters[l->waiting++] = (struct oracle_waiter){.client = client, .mode = mode};
}

/* I12: one that waited has been granted; for the others it is one more before them. */
static void check_overtaking(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode)
{
    struct oracle_lock *l = &o->locks[lock];
    for (unsigned i = l->waiting; i-- > 0;) {
        struct oracle_waiter *w = &l->waiters[i];
        if (w->client != client) {
            ++*(mode == PAWL_SHARED ? &w->by.shared : &w->by.exclusive);
            continue;
        }
        const struct overtaking most = o->overtaking(o->others, w->mode);
        if (w->by.exclusive > most.exclusive || w->by.shared > most.shared)
            oracle_violation(o, "I12: lock %" PRIu64 ": client %u waited (%s) for %u exclusive and %u shared grants to others",
                             lock, client, mode_name(mode), w->by.exclusive, w->by.shared);
        o->most.exclusive = w->by.exclusive > o->most.exclusive ? w->by.exclusive : o->most.exclusive;
        o->most.shared = w->by.shared > o->most.shared ? w->by.shared : o->most.shared;
        *w = l->waiters[--l->waiting];
    }
}

void oracle_granted(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token)
{
    struct oracle_lock *l = &o->locks[lock];
    o->grants++;
    drop_void(o, l);
    if (!o->valid(o->ctx, client))
        oracle_violation(o, "I8: lock %" PRIu64 " granted to client %u, whose session is dead", lock, client);
    check_hold(o, client, lock, mode, token);
    if (o->overtaking)
        check_overtaking(o, client, lock, mode);
    add(l, client, mode, token);
}

static bool take_out(struct oracle_lock *l, unsigned client, enum pawl_mode mode, uint64_t token)
{
    for (unsigned i = 0; i < l->count; i++)
        if (l->holders[i].client == client && l->holders[i].mode == mode && l->holders[i].token == token) {
            remove_at(l, i);
            return true;
        }
    return false;
}

void oracle_releasing(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token)
{
    o->releases++;
    take_out(&o->locks[lock], client, mode, token); /* not there if its lease ran out */
}

void oracle_weakening(struct oracle *o, unsigned client, uint64_t lock, uint64_t token)
{
    struct oracle_lock *l = &o->locks[lock];
    for (unsigned i = 0; i < l->count; i++)
        if (l->holders[i].client == client && l->holders[i].token == token)
            l->holders[i].mode = PAWL_SHARED;
}

void oracle_converted(struct oracle *o, unsigned client, uint64_t lock, const struct oracle_holder *from, enum pawl_mode mode,
                      uint64_t token)
{
    struct oracle_lock *l = &o->locks[lock];
    drop_void(o, l);
    take_out(l, client, from->mode, from->token);
    check_hold(o, client, lock, mode, token);
    add(l, client, mode, token);
}

void oracle_write(struct oracle *o, unsigned client, uint64_t lock, uint64_t token)
{
    struct oracle_lock *l = &o->locks[lock];
    o->writes++;
    if (!o->tokens)
        return;
    if (token >= l->fence)
        l->fence = token;
    else if (o->valid(o->ctx, client))
        oracle_violation(
            o, "I4: lock %" PRIu64 ": client %u holds it with token %" PRIu64 ", and its write is refused: %" PRIu64 " was there",
            lock, client, token, l->fence);
}

void oracle_gone(struct oracle *o, unsigned client)
{
    for (uint64_t lock = 0; lock < o->lock_count; lock++)
        for (unsigned i = o->locks[lock].count; i-- > 0;)
            if (o->locks[lock].holders[i].client == client)
                remove_at(&o->locks[lock], i);
}
