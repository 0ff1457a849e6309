/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/trial/waits.h"
#include "world/sim_arena.h"

#include <errno.h>
#include <string.h>

int waits_init(struct waits *w, unsigned actors, bool full, uint64_t window_ns)
{
    *w = (struct waits){.count = actors, .full = full, .window_ns = window_ns};
    w->actors = sim_alloc(actors * sizeof *w->actors);
    w->seen = sim_alloc(actors * sizeof *w->seen);
    return w->actors && w->seen ? 0 : -ENOMEM;
}

void waits_free(struct waits *w)
{
    sim_give_back(w->actors);
    sim_give_back(w->seen);
}

/* ---- the graph ---- */

static bool blocks(const struct waits *w, const struct waits_actor *a, const struct waits_actor *b)
{
    for (unsigned i = 0; i < b->count; i++) {
        const struct waits_hold *h = &b->holds[i];
        bool own = a == b && h->request == a->request; /* what it holds, and wants more of */
        if (h->lock == a->lock && !own && (w->full || h->mode == PAWL_EXCLUSIVE || a->mode == PAWL_EXCLUSIVE))
            return true;
    }
    return a != b && b->waiting && b->lock == a->lock && a->mode == PAWL_SHARED && b->mode == PAWL_EXCLUSIVE;
}

/* Whether `to` can be reached from what `from` waits for. */
static bool reaches(struct waits *w, unsigned from, unsigned to)
{
    for (unsigned i = 0; i < w->count; i++) {
        if (w->seen[i] || !blocks(w, &w->actors[from], &w->actors[i]))
            continue;
        w->seen[i] = true;
        if (w->actors[i].waiting && (i == to || reaches(w, i, to)))
            return true;
    }
    return false;
}

bool waits_in_circle(struct waits *w, unsigned actor)
{
    memset(w->seen, 0, w->count * sizeof *w->seen);
    return w->actors[actor].waiting && reaches(w, actor, actor);
}

static struct waits_hold *find(struct waits_actor *a, uint32_t request)
{
    for (unsigned i = 0; i < a->count; i++)
        if (a->holds[i].request == request)
            return &a->holds[i];
    return NULL;
}

/* Of two that convert, one has died; the other is told as if it had not, until its lease is over. */
static bool meets_ghost(struct waits *w, unsigned actor, uint64_t now)
{
    struct waits_actor *a = &w->actors[actor];
    if (!a->waiting || !find(a, a->request))
        return false;
    for (unsigned i = 0; i < w->count; i++)
        if (w->actors[i].ghost_ns && w->actors[i].ghost_lock == a->lock && now - w->actors[i].ghost_ns <= w->lease_ns)
            return true;
    return false;
}

/* Of two that convert, the granter refuses the second by what it knows: it may not have heard yet that the first one has given up,
 * which is repeated until it is acknowledged or the lease is over. Other circles are looked up again before a verdict. */
bool waits_deadlocked(struct waits *w, unsigned actor, uint64_t now)
{
    struct waits_actor *a = &w->actors[actor];
    uint64_t window = find(a, a->request) ? max_u64(w->lease_ns, w->window_ns) : w->window_ns;
    return waits_in_circle(w, actor) || meets_ghost(w, actor, now) || (a->waiting && a->circle_ns && now - a->circle_ns <= window);
}

/* An actor is about to leave, and circles may end with that. */
static void remember(struct waits *w, uint64_t now)
{
    for (unsigned i = 0; i < w->count; i++)
        if (waits_in_circle(w, i))
            w->actors[i].circle_ns = now;
}

/* ---- what happens ---- */

void waits_begin(struct waits *w, unsigned actor, uint32_t request, uint64_t lock, enum pawl_mode mode)
{
    struct waits_actor *a = &w->actors[actor];
    assert(!a->waiting);
    a->waiting = true;
    a->request = request;
    a->lock = lock;
    a->mode = mode;
    a->circle_ns = 0;
}

/* An actor that gives up a conversion says so first, and hears of it later than actors that are granted by that. */
static bool anybody_converts(struct waits *w)
{
    for (unsigned i = 0; i < w->count; i++)
        if (w->actors[i].waiting && find(&w->actors[i], w->actors[i].request))
            return true;
    return false;
}

void waits_granted(struct waits *w, unsigned actor, uint64_t now)
{
    struct waits_actor *a = &w->actors[actor];
    if (anybody_converts(w))
        remember(w, now);
    struct waits_hold *h = find(a, a->request);
    assert(a->waiting && (h || a->count < WAITS_HOLDS_MAX));
    if (!h)
        h = &a->holds[a->count++];
    *h = (struct waits_hold){.request = a->request, .lock = a->lock, .mode = a->mode};
    a->waiting = false;
}

void waits_ended(struct waits *w, unsigned actor, uint64_t now)
{
    remember(w, now);
    w->actors[actor].waiting = false;
}

void waits_weakened(struct waits *w, unsigned actor, uint32_t request)
{
    struct waits_hold *h = find(&w->actors[actor], request);
    if (h)
        h->mode = PAWL_SHARED;
}

void waits_released(struct waits *w, unsigned actor, uint32_t request, uint64_t now)
{
    struct waits_actor *a = &w->actors[actor];
    struct waits_hold *h = find(a, request);
    if (a->waiting)
        remember(w, now); /* by another's hand */
    if (h)
        *h = a->holds[--a->count];
}

void waits_gone(struct waits *w, unsigned actor, uint64_t now)
{
    struct waits_actor *a = &w->actors[actor];
    remember(w, now);
    if (a->waiting && find(a, a->request)) {
        a->ghost_ns = now;
        a->ghost_lock = a->lock;
    }
    a->waiting = false;
    a->count = 0;
}
