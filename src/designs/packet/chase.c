/* SPDX-License-Identifier: Apache-2.0 */
#include "designs/packet/chase.h"
#include "lib/hash.h"

#define PASSES_MAX 16 /* probes of other waits that a wait passes on within a retransmission time */

static_assert(CHASE_STEPS_MAX < UINT8_MAX, "a step's number fits into a byte");

bool chase_read(const struct chase_step *steps, unsigned count, uint16_t machines, struct chase_way *way)
{
    if (!count || count > CHASE_STEPS_MAX)
        return false;
    way->count = count;
    memcpy(way->step, steps, count * sizeof way->step[0]);
    for (unsigned i = 0; i < count; i++) {
        const struct chase_step *s = &way->step[i];
        if ((s->kind == CHASE_WAIT) != !(i & 1) || s->kind < CHASE_WAIT || s->kind > CHASE_AHEAD || s->second > 1 ||
            s->machine == MACHINE_NONE || s->machine > machines)
            return false;
    }
    return true;
}

/* ---- waits and holds ---- */

static bool waits(const struct chase *c, uint32_t request)
{
    return c->ops->wait(c->ctx, request).id;
}

static bool same_thread(const struct chase *c, uint32_t a, uint32_t b)
{
    uint32_t thread = c->ops->thread(c->ctx, a);
    return c->crowd || (thread && thread == c->ops->thread(c->ctx, b));
}

/* An upgrade is both a hold and a wait. */
uint32_t chase_wait_behind(const struct chase *c, uint32_t request)
{
    uint32_t first = request % c->part - request % c->part % c->requests;
    if (waits(c, request))
        return request;
    for (uint32_t part = 0; part < c->parts; part++)
        for (uint32_t i = part * c->part + first, n = c->requests; n; n--, i++)
            if (waits(c, i) && same_thread(c, request, i))
                return i;
    return CHASE_NONE;
}

/* Whether other threads can wait for the thread of this wait: only then is it part of a cycle. */
static bool has_something(const struct chase *c, uint32_t request)
{
    uint32_t first = request % c->part - request % c->part % c->requests;
    if (c->ops->holds(c->ctx, request))
        return true;
    for (uint32_t part = 0; part < c->parts; part++)
        for (uint32_t i = part * c->part + first, n = c->requests; n; n--, i++)
            if (c->ops->holds(c->ctx, i) && same_thread(c, request, i))
                return true;
    return false;
}

/* A name is unique within a part of a host. */
static uint64_t hash_of(const struct chase_step *s)
{
    return mix64(s->id ^ mix64(s->machine | (uint64_t)s->term << 16));
}

/* Another rank for every wait, so that the victim is not always the same thread; and the same rank at every host. */
static uint64_t rank_of(const struct chase_step *s)
{
    return (hash_of(s) >> 1 | 1) | (uint64_t)s->second << 63;
}

static struct chase_step step_of(const struct chase *c, uint32_t request)
{
    struct chase_step s = c->ops->wait(c->ctx, request);
    s.machine = c->machine;
    s.kind = CHASE_WAIT;
    return s;
}

/* A thread that holds nothing has no rank: the other waits would not end with its own. */
static uint64_t rank_here(const struct chase *c, uint32_t request)
{
    const struct chase_step s = step_of(c, request);
    return has_something(c, request) ? rank_of(&s) : 0;
}

static bool same_wait(const struct chase_step *a, const struct chase_step *b)
{
    return a->id == b->id && a->machine == b->machine && a->term == b->term;
}

/* ---- how a probe begins and ends ---- */

static uint64_t patience_ns(const struct chase *c, const struct suspect *s)
{
    return c->retry_ns << s->doublings;
}

void chase_begin(const struct chase *c, uint32_t request)
{
    struct suspect *s = c->ops->suspect(c->ctx, request);
    const struct chase_step first = step_of(c, request);
    if (!has_something(c, request))
        return;
    outbox_touch(c->out, s, sizeof *s);
    if (s->probed != first.id)
        s->doublings = 0;
    else if (s->doublings < CHASE_DOUBLINGS_MAX)
        s->doublings++;
    s->probed = first.id;
    s->serial++;
    s->sure = false;
    s->began_ns = c->now;
    ++*c->probes;
    const struct chase_probe p = {.way = {.count = 1, .step = {first}}, .at = 1, .serial = s->serial};
    c->ops->look(c->ctx, request, &p);
}

void chase_begin_soon(const struct chase *c, uint32_t request)
{
    const struct suspect *s = c->ops->suspect(c->ctx, request);
    bool same = s->probed == step_of(c, request).id;
    if (!s->began_ns || c->now - s->began_ns >= (same ? patience_ns(c, s) : c->retry_ns))
        chase_begin(c, request);
}

/* The probe has come back to its first wait, which goes on. */
static void came_back(const struct chase *c, uint32_t request, struct chase_probe *p)
{
    struct suspect *s = c->ops->suspect(c->ctx, request);
    if (p->serial != s->serial || s->sure != p->sure || p->at != p->way.count - 1) {
        c->drops->stale++;
        return;
    }
    if (!s->sure && !c->rash) {
        outbox_touch(c->out, s, sizeof *s);
        s->sure = true;
        s->began_ns = c->now; /* if it comes back again, every step was true at this moment */
        p->sure = true;
        p->at = 1;
        c->ops->look(c->ctx, request, p);
    } else if (c->now - s->began_ns > CHASE_SURE_FACTOR * patience_ns(c, s)) {
        c->drops->stale++; /* there was a deadlock, perhaps long ago */
    } else {
        assert(waits(c, request)); /* I13 */
        c->ops->give_up(c->ctx, request);
    }
}

/* ---- at the host of a blocking request ---- */

bool chase_is_for(const struct chase *c, const struct chase_probe *p)
{
    return p->at % 2 == 1 && p->at < p->way.count && (p->sure || p->at == p->way.count - 1) &&
           p->way.step[p->at].machine == c->machine;
}

/* Once per probe and round, as far as probes are remembered: the probe has been everywhere beyond this wait. And a bounded number
 * of times, since a network that duplicates packets duplicates them at every step. */
static bool may_pass(const struct chase *c, uint32_t request, const struct chase_probe *p)
{
    struct suspect *s = c->ops->suspect(c->ctx, request);
    uint64_t probe = hash_of(&p->way.step[0]) + 2 * (uint64_t)p->serial + p->sure;
    for (unsigned i = 0; i < CHASE_PASSES; i++)
        if (s->passed[i] == probe)
            return false;
    outbox_touch(c->out, s, sizeof *s);
    if (c->now - s->passes_ns >= c->retry_ns) {
        s->passes_ns = c->now;
        s->passes = 0;
    }
    if (s->passes == PASSES_MAX)
        return false;
    s->passed[s->passes++ % CHASE_PASSES] = probe;
    return true;
}

static bool on_the_way(const struct chase_way *way, const struct chase_step *s)
{
    for (unsigned i = 0; i < way->count; i += 2)
        if (same_wait(&way->step[i], s))
            return true;
    return false;
}

static bool outranks(const struct chase *c, uint32_t request, const struct chase_step *first)
{
    if (rank_here(c, request) <= rank_of(first))
        return false;
    chase_begin_soon(c, request); /* this wait may be the victim, the first one not */
    return true;
}

void chase_go_on(const struct chase *c, uint32_t request, struct chase_probe *p)
{
    const struct chase_step here = step_of(c, request), *first = &p->way.step[0];
    if (same_wait(&here, first)) {
        came_back(c, request, p);
    } else if (outranks(c, request, first)) {
        return;
    } else if (p->sure) {
        if (p->at + 2 < p->way.count && same_wait(&here, &p->way.step[p->at + 1]) && may_pass(c, request, p)) {
            p->at += 2;
            c->ops->look(c->ctx, request, p);
        }
    } else if (p->way.count + 1 < CHASE_STEPS_MAX && !on_the_way(&p->way, &here) && may_pass(c, request, p)) {
        p->way.step[p->way.count++] = here;
        p->at = p->way.count;
        c->ops->look(c->ctx, request, p);
    }
}

/* ---- at the queue ---- */

bool chase_turn(struct chase_probe *p, bool *bad)
{
    p->at = p->sure ? p->at : p->way.count;
    *bad = p->sure && (p->at % 2 == 0 || p->at >= p->way.count);
    if (*bad || p->at % 2 == 0 || p->at >= CHASE_STEPS_MAX)
        return false;
    if (!p->sure)
        p->way.count++;
    return true;
}

bool chase_take(struct chase_probe *p, const struct chase_step *b)
{
    struct chase_step *s = &p->way.step[p->at];
    if (p->sure && !(b->id == s->id && b->machine == s->machine && b->kind == s->kind && b->term == s->term))
        return false;
    *s = *b;
    return true;
}
