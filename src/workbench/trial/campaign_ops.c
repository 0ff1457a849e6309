/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a campaign's clients, each told to the oracle step by step. */
#include "workbench/trial/campaign_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- one operation ---- */

pawl_key campaign_key(const struct actor *a, uint64_t lock, struct key_text *text)
{
    if (a->keys != PAWL_KEYS_NAMED)
        return pawl_id(lock);
    snprintf(text->name, sizeof text->name, "lock-%" PRIu64, lock);
    return pawl_name(text->name);
}

static void cancel_event(void *arg, uint64_t tag)
{
    struct actor *a = arg;
    struct campaign *c = campaign_of(a);
    if (c->op[a->client][a->number] == tag && a->process->alive)
        sim_task_cancel(a->task);
}

void campaign_maybe_cancel(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    if (!swarm_chance(&c->random, c->mix.cancel) || !c->timeout)
        return;
    uint64_t number = ++c->ops;
    c->op[a->client][a->number] = number;
    sim_at_background(c->sim, sim_now(c->sim) + rng_below(&c->random, c->mix.cancel_ns), cancel_event, a, number);
}

void campaign_no_more_cancel(struct actor *a)
{
    campaign_of(a)->op[a->client][a->number] = 0;
    a->task->cancelled = false;
}

uint64_t campaign_draw_deadline(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    uint64_t now = world_now(&a->process->host->world);
    switch ((enum swarm_deadline)c->mix.deadlines[rng_below(&c->random, countof(c->mix.deadlines))]) {
    case DEADLINE_IS_TRY:
        return DEADLINE_TRY;
    case DEADLINE_IS_SHORT:
        return c->timeout ? now + rng_below(&c->random, NS_PER_MS) : DEADLINE_NEVER;
    case DEADLINE_IS_LEASE:
        return c->timeout ? now + rng_below(&c->random, c->mix.lease_ns) : DEADLINE_NEVER;
    case DEADLINE_IS_NONE:
        break;
    }
    return DEADLINE_NEVER;
}

/* From one unit to all, of every length alike, mostly where the lock is laid out for it and sometimes beyond. */
static void draw_range(struct campaign *c, uint64_t *start, uint64_t *end)
{
    *start = 0;
    *end = RANGE_UNITS_MAX;
    if (!c->units || swarm_chance(&c->random, c->mix.whole))
        return;
    uint64_t extent = swarm_chance(&c->random, c->mix.beyond) ? 4 * c->units : c->units;
    uint64_t bits = rng_below(&c->random, 65 - (uint64_t)__builtin_clzll(extent));
    uint64_t length = 1 + rng_below(&c->random, UINT64_C(1) << bits);
    length = min_u64(length, extent);
    *start = rng_below(&c->random, extent - length + 1);
    *end = *start + length;
}

/* Into the trace. */
static void note(const struct actor *a, const char *what, uint64_t x, uint64_t y)
{
    sim_note(a->process->sim, what, a->process->host->id, x, y);
}

void campaign_violated(void *ctx, const char *text)
{
    const struct campaign *c = ctx;
    sim_remark(c->sim, "VIOLATION", text);
}

/* ---- holds that end by themselves ---- */

/* Holder, lock and token travel in an event's tag. */
#define END_TOKEN_BITS 48
#define END_LOCK_BITS 8
static_assert(CAMPAIGN_LOCKS_MAX <= 1 << END_LOCK_BITS &&
                  (CAMPAIGN_CLIENTS_MAX + 1) * ACTORS_MAX <= 1 << (64 - END_TOKEN_BITS - END_LOCK_BITS),
              "fits the tag");

static void end_event(void *arg, uint64_t tag)
{
    struct campaign *c = arg;
    unsigned holder = (unsigned)(tag >> (END_TOKEN_BITS + END_LOCK_BITS));
    oracle_releasing(&c->oracle, holder, field_get(tag, END_TOKEN_BITS, END_LOCK_BITS), PAWL_SHARED,
                     field_get(tag, 0, END_TOKEN_BITS));
}

static uint64_t ends_at(const struct actor *a, const struct hold *h)
{
    const struct design *d = campaign_of(a)->design;
    return d->ends ? sim_host_clock_inverse(a->process->host, d->ends(h)) : DEADLINE_NEVER;
}

/* From then on its holder does not count on it. False: it has ended already. */
static bool will_end(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t at = ends_at(a, h);
    if (at == DEADLINE_NEVER)
        return true;
    assert(h->mode == PAWL_SHARED && h->token <= FIELD_MAX(END_TOKEN_BITS));
    if (at > sim_now(c->sim))
        sim_at_background(c->sim, at, end_event, c,
                          (uint64_t)campaign_who(a) << (END_TOKEN_BITS + END_LOCK_BITS) | lock << END_TOKEN_BITS | h->token);
    return at > sim_now(c->sim);
}

static struct oracle_holder holder_of(const struct actor *a, const struct hold *h)
{
    return (struct oracle_holder){.client = campaign_who(a),
                                  .mode = h->mode,
                                  .token = h->token,
                                  .range = {.start = h->start, .end = h->end},
                                  .limit = h->limit};
}

static void note_range(const struct actor *a, const struct hold *h)
{
    if (campaign_of(a)->units)
        note(a, "  of range", h->start, h->end);
}

void campaign_granted(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    if (!will_end(a, lock, h))
        return;
    note(a, h->mode == PAWL_SHARED ? "GRANTED shared" : "GRANTED exclusive", lock, h->token);
    ++*(h->mode == PAWL_SHARED ? &c->done.shared : &c->done.exclusive);
    note_range(a, h);
    const struct oracle_holder holder = holder_of(a, h);
    oracle_granted_range(&c->oracle, lock, &holder);
}

/* Holding: writes to the resource, most often briefly, sometimes for long. */
static void enjoy(struct actor *a, uint64_t lock, const struct hold *h)
{
    struct campaign *c = campaign_of(a);
    uint64_t ns = rng_below(&c->random, swarm_chance(&c->random, c->mix.long_hold) ? c->long_ns : c->mix.hold_ns);
    const struct oracle_holder holder = holder_of(a, h);
    for (unsigned i = 0; i < 2; i++) {
        a->ops->sleep(a, ns / 2);
        if (h->mode == PAWL_EXCLUSIVE)
            oracle_write_range(&c->oracle, lock, &holder);
    }
}

/* A change of what is held may fail for want of time, or because another holder wants the same, but not for want of room. */
static void check_change(struct actor *a, uint64_t lock, int rc, const char *what, bool always)
{
    struct campaign *c = campaign_of(a);
    if ((rc == -PAWL_ELIMIT || (rc == -EDEADLK && always)) && a->ops->valid(a))
        oracle_violation(&c->oracle, "I10: client %u could not %s what it has of lock %" PRIu64 ": %s", campaign_who(a), what, lock,
                         pawl_strerror(rc));
}

static int convert_until(struct actor *a, uint64_t lock, struct hold *h, uint64_t deadline)
{
    struct campaign *c = campaign_of(a);
    struct oracle_holder from = holder_of(a, h);
    enum pawl_mode to = h->mode == PAWL_SHARED ? PAWL_EXCLUSIVE : PAWL_SHARED;
    if (to == PAWL_SHARED)
        oracle_weakening_range(&c->oracle, lock, &from);
    from.mode = PAWL_SHARED; /* exclusive is weakened first */
    campaign_maybe_cancel(a);
    int rc = a->ops->convert(a, h, to, deadline);
    campaign_no_more_cancel(a);
    note(a, rc ? "could not convert" : "converted", lock, rc ? (uint64_t)-rc : h->token);
    check_change(a, lock, rc, "convert", to == PAWL_SHARED);
    if (rc)
        return rc;
    const struct oracle_holder now = holder_of(a, h);
    oracle_converted_range(&c->oracle, lock, &from, &now);
    ++*(to == PAWL_SHARED ? &c->done.downgrades : &c->done.upgrades);
    return 0;
}

int campaign_convert(struct actor *a, uint64_t lock, struct hold *h)
{
    return convert_until(a, lock, h, world_now(&a->process->host->world) + rng_below(&campaign_of(a)->random, 2 * NS_PER_MS));
}

/* ---- ranges that change ---- */

static int grow(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    const struct oracle_holder from = holder_of(a, h);
    uint64_t start = h->start - rng_below(&c->random, min_u64(h->start, c->units) + 1);
    uint64_t end = h->end + rng_below(&c->random, min_u64(RANGE_UNITS_MAX - h->end, c->units) + 1);
    uint64_t deadline = world_now(&a->process->host->world) + rng_below(&c->random, 2 * NS_PER_MS);
    campaign_maybe_cancel(a);
    int rc = a->ops->reshape(a, h, start, end, c->timeout ? deadline : DEADLINE_TRY);
    campaign_no_more_cancel(a);
    note(a, rc ? "could not grow" : "grown", lock, rc ? (uint64_t)-rc : h->token);
    check_change(a, lock, rc, "grow", false);
    if (rc)
        return rc;
    note_range(a, h);
    const struct oracle_holder now = holder_of(a, h);
    oracle_grown(&c->oracle, lock, &from, &now);
    c->done.grown++;
    return 0;
}

static int shrink(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    const struct oracle_holder from = holder_of(a, h);
    uint64_t start = h->start + rng_below(&c->random, h->end - h->start);
    uint64_t end = start + 1 + rng_below(&c->random, h->end - start);
    oracle_shrinking(&c->oracle, lock, &from, (struct oracle_range){.start = start, .end = end});
    int rc = a->ops->reshape(a, h, start, end, DEADLINE_NEVER);
    note(a, rc ? "could not shrink" : "shrunk", lock, rc ? (uint64_t)-rc : h->token);
    if (rc && rc != -PAWL_ELOST && a->ops->valid(a))
        oracle_violation(&c->oracle, "I10: client %u could not shrink what it has of lock %" PRIu64 ": %s", campaign_who(a), lock,
                         pawl_strerror(rc));
    if (rc)
        return rc;
    note_range(a, h);
    c->done.shrunk++;
    return 0;
}

/* In two, of which one is given back. */
static int split(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    const struct oracle_holder from = holder_of(a, h);
    struct hold right;
    if (h->end - h->start < 2)
        return 0;
    uint64_t at = h->start + 1 + rng_below(&c->random, h->end - h->start - 1);
    int rc = a->ops->split(a, h, at, &right);
    note(a, rc ? "could not split" : "split", lock, rc ? (uint64_t)-rc : at);
    check_change(a, lock, h->mode == PAWL_EXCLUSIVE ? rc : 0, "split", true); /* a reader more may be one too many */
    if (rc)
        return rc;
    oracle_split(&c->oracle, lock, &from, at);
    c->done.splits++;
    bool first = rng_chance(&c->random, 1, 2);
    enjoy(a, lock, &right);
    rc = campaign_give_back(a, lock, first ? h : &right);
    if (first)
        *h = right;
    return rc;
}

static int change_range(struct actor *a, uint64_t lock, struct hold *h)
{
    struct campaign *c = campaign_of(a);
    const struct design *d = c->design;
    switch ((enum swarm_change)c->mix.changes[rng_below(&c->random, countof(c->mix.changes))]) {
    case CHANGE_GROWS:
        return d->reshape ? grow(a, lock, h) : 0;
    case CHANGE_SHRINKS:
        return d->reshape ? shrink(a, lock, h) : 0;
    case CHANGE_SPLITS:
        return d->split ? split(a, lock, h) : 0;
    case CHANGE_NONE:
        break;
    }
    return 0;
}

/* Codes that an operation may end with in a world full of faults, the lock not being held. */
bool campaign_excusable(int rc)
{
    return rc == -PAWL_EHELD || rc == -ETIMEDOUT || rc == -ECANCELED || rc == -EDEADLK || rc == -EAGAIN || rc == -ENOSPC ||
           rc == -PAWL_ELIMIT || rc == -FAB_EUNKNOWN;
}

static void gives_back(struct actor *a, uint64_t lock, const struct hold *h)
{
    note(a, h->mode == PAWL_SHARED ? "releases shared" : "releases exclusive", lock, h->token);
    const struct oracle_holder holder = holder_of(a, h);
    oracle_releasing_range(&campaign_of(a)->oracle, lock, &holder);
}

static int gave_back(struct actor *a, uint64_t lock, const struct hold *h, int rc)
{
    struct campaign *c = campaign_of(a);
    if (rc == -PAWL_ENOTOWNER && ends_at(a, h) <= sim_now(c->sim))
        return 0; /* it had ended by itself */
    if (rc && rc != -PAWL_ELOST && a->ops->valid(a))
        oracle_violation(&c->oracle, "I10: client %u could not release lock %" PRIu64 ": %s", campaign_who(a), lock,
                         pawl_strerror(rc));
    return rc;
}

int campaign_give_back(struct actor *a, uint64_t lock, const struct hold *h)
{
    gives_back(a, lock, h);
    return gave_back(a, lock, h, a->ops->unlock(a, h));
}

int campaign_give_back_several(struct actor *a, const uint64_t *locks, const struct hold *holds, unsigned count, bool together)
{
    together = together && a->ops->unlock_all;
    int rc[ACTOR_WANTS_MAX], first = 0;
    for (unsigned i = 0; i < count && together; i++)
        gives_back(a, locks[i], &holds[i]);
    if (together)
        a->ops->unlock_all(a, holds, count, rc);
    for (unsigned i = 0; i < count; i++) {
        int end = together ? gave_back(a, locks[i], &holds[i], rc[i]) : campaign_give_back(a, locks[i], &holds[i]);
        first = first ? first : end;
    }
    return first;
}

/* The same readers and writers all the time: otherwise all would soon be readers that wait for each other's writers. */
int campaign_busy_lock(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    enum pawl_mode mode = c->shared && campaign_who(a) % 3 == 0 ? PAWL_SHARED : PAWL_EXCLUSIVE;
    oracle_asking(&c->oracle, campaign_who(a), lock, mode);
    int rc = a->ops->lock(a, campaign_key(a, lock, &text), mode, DEADLINE_NEVER, &h);
    if (rc)
        return rc;
    campaign_granted(a, lock, &h);
    a->ops->sleep(a, rng_below(&c->random, CAMPAIGN_BUSY_NS));
    return campaign_give_back(a, lock, &h);
}

int campaign_one_lock(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    struct hold h;
    uint64_t lock = rng_below(&c->random, c->locks);
    enum pawl_mode mode = c->shared && swarm_chance(&c->random, c->mix.shared) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    uint64_t start, end;
    draw_range(c, &start, &end);
    campaign_maybe_cancel(a);
    pawl_key key = campaign_key(a, lock, &text);
    uint64_t deadline = campaign_draw_deadline(a);
    int rc = c->units ? a->ops->lock_range(a, key, start, end, mode, deadline, &h) : a->ops->lock(a, key, mode, deadline, &h);
    campaign_no_more_cancel(a);
    if (rc)
        return rc;
    campaign_granted(a, lock, &h);
    enjoy(a, lock, &h);
    if (c->units) {
        rc = change_range(a, lock, &h);
        if (rc == -PAWL_ELOST)
            return rc;
        enjoy(a, lock, &h);
    }
    if (c->convert && swarm_chance(&c->random, c->mix.convert)) {
        rc = campaign_convert(a, lock, &h);
        if (rc == -PAWL_ELOST)
            return rc;
        enjoy(a, lock, &h);
    }
    return campaign_give_back(a, lock, &h);
}

int campaign_several_locks(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text[3];
    pawl_want wants[3];
    uint64_t locks[3];
    struct hold holds[3];
    unsigned n = 0;
    bool apart = !c->units || rng_chance(&c->random, 1, 2); /* locks; else ranges of one */
    uint64_t step = 0, behind = 0;
    for (uint64_t lock = rng_below(&c->random, c->locks); n < 3 && lock < c->locks; lock += step, n++) {
        enum pawl_mode mode = c->shared && swarm_chance(&c->random, c->mix.shared) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        locks[n] = lock;
        wants[n] = (pawl_want){.key = campaign_key(a, lock, &text[n]), .mode = mode};
        step = apart ? 1 + rng_below(&c->random, 3) : 0;
        if (apart)
            continue;
        wants[n].start = behind + rng_below(&c->random, c->units);
        behind = wants[n].end = wants[n].start + 1 + rng_below(&c->random, c->units / 4);
    }
    assert(n > 0); /* the first draw is below c->locks */
    campaign_maybe_cancel(a);
    int rc = a->ops->lock_all(a, wants, n, campaign_draw_deadline(a), holds);
    campaign_no_more_cancel(a);
    if (rc)
        return rc;
    for (unsigned i = 0; i < n; i++)
        campaign_granted(a, locks[i], &holds[i]);
    enjoy(a, locks[0], &holds[0]);
    return campaign_give_back_several(a, locks, holds, n, holds[0].token % 2); /* so that no number is drawn for it */
}

/* Impatient clients give up at about the time at which a deadlock would be found. */
static uint64_t nested_deadline(const struct actor *a)
{
    struct campaign *c = campaign_of(a);
    return c->patient ? DEADLINE_NEVER : world_now(&a->process->host->world) + rng_below(&c->random, 2 * NS_PER_MS);
}

/* A client that has waited in vain goes on with the locks that it has, and tries another. */
static int nested_lock(struct actor *a, uint64_t *lock, struct hold *out)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    int rc = -ETIMEDOUT;
    for (unsigned tries = 0; tries < 3 && rc == -ETIMEDOUT; tries++) {
        *lock = rng_below(&c->random, c->locks);
        enum pawl_mode mode = c->shared && swarm_chance(&c->random, c->mix.shared) ? PAWL_SHARED : PAWL_EXCLUSIVE;
        campaign_maybe_cancel(a);
        rc = a->ops->lock(a, campaign_key(a, *lock, &text), mode, nested_deadline(a), out);
        campaign_no_more_cancel(a);
    }
    return rc;
}

/* One after the other and in any order, each while the others are held; the same one twice, too. */
int campaign_nested_locks(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    uint64_t locks[3];
    struct hold holds[3];
    unsigned n = 0, count = 2 + (unsigned)rng_below(&c->random, 2);
    int rc = 0;
    while (n < count && !rc) {
        rc = nested_lock(a, &locks[n], &holds[n]);
        if (rc)
            break;
        campaign_granted(a, locks[n], &holds[n]);
        enjoy(a, locks[n], &holds[n]);
        if (c->convert && rng_chance(&c->random, 1, 4))
            rc = convert_until(a, locks[n], &holds[n], nested_deadline(a));
        n++;
    }
    while (n-- > 0 && rc != -PAWL_ELOST) {
        int end = campaign_give_back(a, locks[n], &holds[n]);
        rc = end ? end : rc;
    }
    return rc;
}

/* ---- how locks are laid out ---- */

#define TUNE_WAIT_MAX_NS (100 * NS_PER_US)

static int rescale(struct actor *a, pawl_key key, uint64_t deadline)
{
    struct campaign *c = campaign_of(a);
    struct lock_layout was;
    int rc = a->ops->layout(a, key, &was);
    if (rc)
        return rc;
    unsigned steps = 0;
    while (was.units_first << 2 * steps < was.units_max)
        steps++;
    uint64_t units = was.units_first << 2 * rng_below(&c->random, steps + 1);
    rc = a->ops->rescale(a, key, units, deadline);
    note(a, rc ? "could not rescale" : "rescaled", units, (uint64_t)-rc);
    if (!rc && units != was.units)
        ++*(units > was.units ? &c->done.taller : &c->done.smaller);
    return rc;
}

int campaign_tune(struct actor *a)
{
    struct campaign *c = campaign_of(a);
    struct key_text text;
    pawl_key key = campaign_key(a, rng_below(&c->random, c->locks), &text);
    uint64_t deadline = world_now(&a->process->host->world) + rng_below(&c->random, 4 * NS_PER_MS);
    if (rng_chance(&c->random, 1, 2))
        return rescale(a, key, deadline);
    unsigned m = 1 + (unsigned)rng_below(&c->random, 5);
    uint64_t wait_ns = rng_chance(&c->random, 1, 3) ? 0 : rng_below(&c->random, TUNE_WAIT_MAX_NS);
    int rc = a->ops->retune(a, key, m, wait_ns, deadline);
    note(a, rc ? "could not retune" : "retuned", m, rc ? (uint64_t)-rc : wait_ns);
    c->done.retuned += !rc;
    return rc;
}
