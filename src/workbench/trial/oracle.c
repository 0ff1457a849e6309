/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/oracle.h"
#include "world/sim_arena.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

int oracle_init(struct oracle *o, uint64_t lock_count, bool tokens, oracle_valid_fn valid, void *ctx)
{
    *o = (struct oracle){.lock_count = lock_count, .tokens = tokens, .valid = valid, .ctx = ctx};
    o->locks = sim_alloc(lock_count * sizeof *o->locks);
    return o->locks ? 0 : -ENOMEM;
}

void oracle_free(struct oracle *o)
{
    for (uint64_t i = 0; o->locks && i < o->lock_count; i++)
        sim_give_back(o->locks[i].spans);
    sim_give_back(o->locks);
}

void oracle_violation(struct oracle *o, const char *format, ...)
{
    char text[ORACLE_TEXT_LEN];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (o->violations++ == 0)
        memcpy(o->first, text, sizeof text);
    if (o->told)
        o->told(o->ctx, text);
}

static const char *mode_name(enum pawl_mode mode)
{
    return mode == PAWL_SHARED ? "shared" : "exclusive";
}

static void remove_at(struct oracle_lock *l, unsigned i)
{
    l->holders[i] = l->holders[--l->count];
}

/* Clients that are dead or whose lease has run out hold nothing any more. */
static void drop_void(struct oracle *o, struct oracle_lock *l)
{
    for (unsigned i = l->count; i-- > 0;)
        if (!o->valid(o->ctx, l->holders[i].client, (uint64_t)(l - o->locks)))
            remove_at(l, i);
}

/* ---- what is known of each unit ---- */

/* A span that begins at `at`, by cutting the one that it lies in. The whole starts as one. */
static unsigned span_at(struct oracle_lock *l, uint64_t at)
{
    unsigned i = 0;
    uint64_t start = 0;
    while (i < l->span_count && l->spans[i].end <= at)
        start = l->spans[i++].end;
    if (i < l->span_count && start == at)
        return i;
    bool first = !l->span_count;
    if (!first && i == l->span_count)
        return i; /* the end of all */
    struct oracle_span *spans = sim_realloc(l->spans, l->span_count * sizeof *spans, (l->span_count + 2) * sizeof *spans);
    assert(spans);
    l->spans = spans;
    if (first) {
        spans[0] = (struct oracle_span){.end = RANGE_UNITS_MAX};
        l->span_count = 1;
        return span_at(l, at);
    }
    memmove(&spans[i + 1], &spans[i], (l->span_count - i) * sizeof *spans);
    l->span_count++;
    spans[i].end = at;
    return i + 1;
}

static bool same_history(const struct oracle_span *a, const struct oracle_span *b)
{
    return a->last_exclusive == b->last_exclusive && a->highest == b->highest && a->fence == b->fence;
}

/* Spans that have become alike are one again. */
static void join_spans(struct oracle_lock *l)
{
    unsigned kept = 0;
    for (unsigned i = 1; i < l->span_count; i++) {
        if (same_history(&l->spans[kept], &l->spans[i]))
            l->spans[kept].end = l->spans[i].end;
        else
            l->spans[++kept] = l->spans[i];
    }
    l->span_count = l->span_count ? kept + 1 : 0;
}

static bool overlap(struct oracle_range a, struct oracle_range b)
{
    return ranges_overlap(a.start, a.end, b.start, b.end);
}

/* ---- I1 and I2 for a new hold ---- */

/* A hold that has only grown may keep its token: `own`; 0: it is a new one. */
static void check_span(struct oracle *o, uint64_t lock, const struct oracle_holder *h, uint64_t own, struct oracle_span *s)
{
    bool same = own && own == h->token && s->highest == own;
    if (h->mode == PAWL_EXCLUSIVE && h->token <= s->highest && !same)
        oracle_violation(o, "I2: lock %" PRIu64 ": exclusive token %" PRIu64 " is not above %" PRIu64, lock, h->token, s->highest);
    if (h->mode == PAWL_SHARED && h->token <= s->last_exclusive)
        oracle_violation(o, "I2: lock %" PRIu64 ": shared token %" PRIu64 " is not above the exclusive %" PRIu64, lock, h->token,
                         s->last_exclusive);
    s->highest = max_u64(s->highest, h->token);
    if (h->mode == PAWL_EXCLUSIVE)
        s->last_exclusive = h->token;
}

static void check_hold(struct oracle *o, uint64_t lock, const struct oracle_holder *h, uint64_t own)
{
    struct oracle_lock *l = &o->locks[lock];
    for (unsigned i = 0; i < l->count; i++) {
        const struct oracle_holder *other = &l->holders[i];
        if (overlap(h->range, other->range) && (h->mode == PAWL_EXCLUSIVE || other->mode == PAWL_EXCLUSIVE))
            oracle_violation(o,
                             "I1: lock %" PRIu64 " (%" PRIu64 ":%" PRIu64 ") granted to client %u (%s, token %" PRIu64
                             ") while client %u holds it (%" PRIu64 ":%" PRIu64 ", %s, token %" PRIu64 ")",
                             lock, h->range.start, h->range.end, h->client, mode_name(h->mode), h->token, other->client,
                             other->range.start, other->range.end, mode_name(other->mode), other->token);
    }
    if (!o->tokens)
        return;
    unsigned from = span_at(l, h->range.start), to = span_at(l, h->range.end);
    for (unsigned i = from; i < to; i++)
        check_span(o, lock, h, own, &l->spans[i]);
    join_spans(l);
}

/* ---- events ---- */

static void add(struct oracle_lock *l, const struct oracle_holder *h)
{
    assert(l->count < ORACLE_HOLDERS_MAX && h->range.start < h->range.end && h->range.end <= RANGE_UNITS_MAX);
    l->holders[l->count++] = *h;
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

static struct oracle_holder *find(struct oracle_lock *l, const struct oracle_holder *h)
{
    for (unsigned i = 0; i < l->count; i++) {
        struct oracle_holder *at = &l->holders[i];
        if (at->client == h->client && at->mode == h->mode && at->token == h->token && at->range.start == h->range.start &&
            at->range.end == h->range.end)
            return at;
    }
    return NULL; /* its lease ran out */
}

static void take_out(struct oracle_lock *l, const struct oracle_holder *h)
{
    struct oracle_holder *at = find(l, h);
    if (at)
        remove_at(l, (unsigned)(at - l->holders));
}

void oracle_granted_range(struct oracle *o, uint64_t lock, const struct oracle_holder *h)
{
    struct oracle_lock *l = &o->locks[lock];
    o->grants++;
    drop_void(o, l);
    if (!o->valid(o->ctx, h->client, lock))
        oracle_violation(o, "I8: lock %" PRIu64 " granted to client %u, whose session is dead", lock, h->client);
    check_hold(o, lock, h, 0);
    if (o->overtaking)
        check_overtaking(o, h->client, lock, h->mode);
    add(l, h);
}

void oracle_releasing_range(struct oracle *o, uint64_t lock, const struct oracle_holder *h)
{
    o->releases++;
    take_out(&o->locks[lock], h);
}

void oracle_weakening_range(struct oracle *o, uint64_t lock, const struct oracle_holder *h)
{
    struct oracle_holder *at = find(&o->locks[lock], h);
    if (at)
        at->mode = PAWL_SHARED;
}

void oracle_shrinking(struct oracle *o, uint64_t lock, const struct oracle_holder *h, struct oracle_range range)
{
    struct oracle_holder *at = find(&o->locks[lock], h);
    if (at)
        at->range = range;
}

static void become(struct oracle *o, uint64_t lock, const struct oracle_holder *from, const struct oracle_holder *to, uint64_t own)
{
    struct oracle_lock *l = &o->locks[lock];
    drop_void(o, l);
    take_out(l, from);
    check_hold(o, lock, to, own);
    add(l, to);
}

void oracle_converted_range(struct oracle *o, uint64_t lock, const struct oracle_holder *from, const struct oracle_holder *to)
{
    become(o, lock, from, to, 0);
}

void oracle_grown(struct oracle *o, uint64_t lock, const struct oracle_holder *from, const struct oracle_holder *to)
{
    become(o, lock, from, to, from->token);
}

void oracle_split(struct oracle *o, uint64_t lock, const struct oracle_holder *h, uint64_t at)
{
    struct oracle_lock *l = &o->locks[lock];
    struct oracle_holder *left = find(l, h), right = *h;
    if (!left)
        return;
    left->range.end = at;
    right.range.start = at;
    add(l, &right);
}

void oracle_write_range(struct oracle *o, uint64_t lock, const struct oracle_holder *h)
{
    struct oracle_lock *l = &o->locks[lock];
    o->writes++;
    if (!o->tokens)
        return;
    unsigned from = span_at(l, h->range.start), to = span_at(l, h->range.end);
    for (unsigned i = from; i < to; i++) {
        struct oracle_span *s = &l->spans[i];
        if (h->token >= s->fence)
            s->fence = h->token;
        else if (o->valid(o->ctx, h->client, lock))
            oracle_violation(o,
                             "I4: lock %" PRIu64 ": client %u holds it with token %" PRIu64 ", and its write is refused: %" PRIu64
                             " was there",
                             lock, h->client, h->token, s->fence);
    }
    join_spans(l);
}

/* ---- without ranges ---- */

static struct oracle_holder whole(unsigned client, enum pawl_mode mode, uint64_t token)
{
    return (struct oracle_holder){.client = client, .mode = mode, .token = token, .range = ORACLE_WHOLE};
}

void oracle_granted(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token)
{
    const struct oracle_holder h = whole(client, mode, token);
    oracle_granted_range(o, lock, &h);
}

void oracle_releasing(struct oracle *o, unsigned client, uint64_t lock, enum pawl_mode mode, uint64_t token)
{
    const struct oracle_holder h = whole(client, mode, token);
    oracle_releasing_range(o, lock, &h);
}

void oracle_weakening(struct oracle *o, unsigned client, uint64_t lock, uint64_t token)
{
    const struct oracle_holder h = whole(client, PAWL_EXCLUSIVE, token);
    oracle_weakening_range(o, lock, &h);
}

void oracle_converted(struct oracle *o, unsigned client, uint64_t lock, const struct oracle_holder *from, enum pawl_mode mode,
                      uint64_t token)
{
    const struct oracle_holder before = whole(client, from->mode, from->token), after = whole(client, mode, token);
    oracle_converted_range(o, lock, &before, &after);
}

void oracle_write(struct oracle *o, unsigned client, uint64_t lock, uint64_t token)
{
    const struct oracle_holder h = whole(client, PAWL_EXCLUSIVE, token);
    oracle_write_range(o, lock, &h);
}

void oracle_gone(struct oracle *o, unsigned client)
{
    for (uint64_t lock = 0; lock < o->lock_count; lock++)
        for (unsigned i = o->locks[lock].count; i-- > 0;)
            if (o->locks[lock].holders[i].client == client)
                remove_at(&o->locks[lock], i);
}
