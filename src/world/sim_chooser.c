/* SPDX-License-Identifier: Apache-2.0 */
#include "world/sim_chooser.h"
#include "world/sim.h"

#include <string.h>

/* ---- what is pending ---- */

void sim_chooser_push(struct sim *sim, const struct sim_pending *p)
{
    struct sim_chooser *c = sim->config.chooser;
    unsigned at = c->count;
    for (unsigned i = 0; p->timer && i < c->count; i++)
        if (c->pending[i].timer && c->pending[i].fn == p->fn && c->pending[i].arg == p->arg)
            at = i; /* set anew: the earlier setting is void */
    if (at == SIM_PENDING_MAX) {
        c->crowded = true;
        return;
    }
    c->pending[at] = *p;
    c->pending[at].sequence = c->sequence++;
    c->count += at == c->count;
}

static bool is_stale(const struct sim_pending *p)
{
    return p->task && p->task->turn != p->tag;
}

static void drop_stale(struct sim_chooser *c)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < c->count; i++)
        if (!is_stale(&c->pending[i])) {
            if (kept != i)
                c->pending[kept] = c->pending[i];
            kept++;
        }
    c->count = kept;
}

static bool comes_before(const struct sim_pending *a, const struct sim_pending *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->sequence < b->sequence);
}

/* A store buffer is of its process's thread, and drains when that has nothing else to do: drained earlier, or later, it costs. */
static uint32_t thread_of(const struct sim_pending *p)
{
    return p->thread & ~SIM_THREAD_APART;
}

static bool is_apart(const struct sim_pending *p)
{
    return p->thread & SIM_THREAD_APART;
}

/* A timer whose time has come is an event like another. */
static bool is_timer(const struct sim_pending *p, uint64_t now_ns)
{
    return p->timer && p->at_ns > now_ns;
}

/* Whether no event of its lane comes before it. Timers have no lane. */
static bool is_head(const struct sim_chooser *c, unsigned at)
{
    const struct sim_pending *p = &c->pending[at];
    for (unsigned i = 0; !p->timer && i < c->count; i++)
        if (i != at && !c->pending[i].timer && c->pending[i].lane == p->lane && comes_before(&c->pending[i], p))
            return false;
    return true;
}

/* ---- what may come next ---- */

/* The pending events that may come next, by what they cost. */
struct ways {
    uint16_t own[SIM_PENDING_MAX], others[SIM_PENDING_MAX], timers[SIM_PENDING_MAX]; /* each in the order of time */
    unsigned own_count, other_count, timer_count;
    bool yields; /* the thread that ran last gives way */
};

static void add_sorted(const struct sim_chooser *c, uint16_t *list, unsigned *count, unsigned which)
{
    unsigned i = (*count)++;
    for (; i; i--) {
        const struct sim_pending *p = &c->pending[which], *before = &c->pending[list[i - 1]];
        if (is_apart(p) == is_apart(before) ? !comes_before(p, before) : is_apart(p))
            break;
        list[i] = list[i - 1];
    }
    list[i] = (uint16_t)which;
}

static void find_ways(const struct sim_chooser *c, uint64_t now_ns, struct ways *w)
{
    w->own_count = w->other_count = w->timer_count = 0;
    w->yields = c->alone >= SIM_ALONE_MAX;
    for (unsigned i = 0; i < c->count; i++) {
        const struct sim_pending *p = &c->pending[i];
        if (is_timer(p, now_ns)) {
            add_sorted(c, w->timers, &w->timer_count, i);
        } else if (!is_head(c, i)) {
            continue;
        } else if (thread_of(p) == c->thread) {
            add_sorted(c, w->own, &w->own_count, i);
            w->yields |= p->yields;
        } else {
            add_sorted(c, w->others, &w->other_count, i);
        }
    }
}

static unsigned ask(struct sim_chooser *c, enum sim_question question, unsigned answers)
{
    unsigned answer = answers > 1 ? c->choose(c, question, answers) : 0;
    assert(answer < answers || (!answers && !answer));
    return answer;
}

static unsigned copy(uint16_t *to, const uint16_t *from, unsigned count)
{
    memcpy(to, from, count * sizeof *to);
    return count;
}

/* The answers in their order: those without cost, then preemptions, then early timers. */
static unsigned choose_next(struct sim_chooser *c, const struct ways *w)
{
    uint16_t answers[2 * SIM_PENDING_MAX];
    bool gives_way = !w->own_count || w->yields;
    unsigned n = copy(answers, w->own, w->own_count ? 1 : 0), own = n;
    if (gives_way)
        n += copy(answers + n, w->others, w->other_count);
    unsigned late = n ? 0 : 1; /* nothing but timers: the first one is not early */
    n += copy(answers + n, w->timers, late);
    unsigned cheap = n;
    if (c->preemptions) {
        n += copy(answers + n, w->own + own, w->own_count - own);
        n += copy(answers + n, w->others, gives_way ? 0 : w->other_count);
    }
    unsigned early = n;
    if (c->preemptions && c->early)
        n += copy(answers + n, w->timers + late, w->timer_count - late);
    if (c->fresh)
        c->beyond += w->own_count + w->other_count + w->timer_count - n;
    unsigned answer = ask(c, SIM_ASK_NEXT, n);
    c->preemptions -= answer >= cheap;
    c->early -= answer >= early;
    return answers[answer];
}

/* The first of all, or the first of what follows at once; SIM_PENDING_MAX if there is nothing of that. */
static unsigned find_first(const struct sim_chooser *c, bool at_once)
{
    unsigned first = SIM_PENDING_MAX;
    for (unsigned i = 0; i < c->count; i++)
        if ((!at_once || c->pending[i].at_once) && (first == SIM_PENDING_MAX || comes_before(&c->pending[i], &c->pending[first])))
            first = i;
    return first;
}

bool sim_chooser_pop(struct sim *sim, struct sim_pending *out)
{
    struct sim_chooser *c = sim->config.chooser;
    struct ways w;
    drop_stale(c);
    if (!c->count)
        return false;
    unsigned which = find_first(c, c->open);
    if (which == SIM_PENDING_MAX) {
        find_ways(c, sim->now_ns, &w);
        which = choose_next(c, &w);
    }
    *out = c->pending[which];
    c->pending[which] = c->pending[--c->count];
    c->alone = thread_of(out) == c->thread ? c->alone + 1 : 0;
    c->thread = thread_of(out);
    return true;
}

/* ---- faults ---- */

bool sim_chooser_strikes(struct sim *sim, enum fault kind)
{
    struct sim_chooser *c = sim->config.chooser;
    if (!c->open || !(sim->faults.active & FAULT_BIT(kind)))
        return false;
    if (!c->strikes) {
        c->beyond += c->fresh;
        return false;
    }
    if (!ask(c, SIM_ASK_FAULT, 2))
        return false;
    c->strikes--;
    sim->faults.counts[kind]++;
    return true;
}

unsigned sim_chooser_fate(struct sim *sim, unsigned fates)
{
    struct sim_chooser *c = sim->config.chooser;
    return c->open ? ask(c, SIM_ASK_FATE, fates) : 0;
}
