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
    return p->last && *p->last > p->stale_above;
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

/* Whether no event of its lane comes before it. */
static bool is_head(const struct sim_chooser *c, unsigned at)
{
    const struct sim_pending *p = &c->pending[at];
    for (unsigned i = 0; i < c->count; i++)
        if (i != at && !c->pending[i].timer && c->pending[i].lane == p->lane &&
            (c->pending[i].front || (!p->front && comes_before(&c->pending[i], p))))
            return false;
    return true;
}

/* ---- what may come next ---- */

/* The pending events that may come next, by what they cost. */
struct ways {
    uint16_t own[SIM_PENDING_MAX];    /* of the thread that ran last, in their order */
    uint16_t others[SIM_PENDING_MAX]; /* of other threads: the first event of each, then the rest */
    uint16_t deadlines[SIM_PENDING_MAX], timers[SIM_PENDING_MAX];
    unsigned own_count, other_count, other_firsts, deadline_count, timer_count;
    bool yields; /* the thread that ran last gives way */
};

static bool goes_first(const struct sim_pending *a, const struct sim_pending *b)
{
    return is_apart(a) == is_apart(b) ? comes_before(a, b) : is_apart(b);
}

static void add_sorted(const struct sim_chooser *c, uint16_t *list, unsigned *count, unsigned which)
{
    unsigned i = (*count)++;
    for (; i && goes_first(&c->pending[which], &c->pending[list[i - 1]]); i--)
        list[i] = list[i - 1];
    list[i] = (uint16_t)which;
}

/* The first event of each thread to the front, all else in their order. */
static void put_firsts_first(const struct sim_chooser *c, struct ways *w)
{
    uint16_t rest[SIM_PENDING_MAX];
    unsigned firsts = 0, left = 0;
    for (unsigned i = 0; i < w->other_count; i++) {
        bool first = true;
        for (unsigned k = 0; k < firsts; k++)
            first &= thread_of(&c->pending[w->others[k]]) != thread_of(&c->pending[w->others[i]]);
        if (first)
            w->others[firsts++] = w->others[i];
        else
            rest[left++] = w->others[i];
    }
    memcpy(w->others + firsts, rest, left * sizeof *rest);
    w->other_firsts = firsts;
}

static void find_ways(const struct sim_chooser *c, struct ways *w)
{
    w->own_count = w->other_count = w->deadline_count = w->timer_count = 0;
    w->yields = c->alone >= SIM_ALONE_MAX;
    for (unsigned i = 0; i < c->count; i++) {
        const struct sim_pending *p = &c->pending[i];
        if (p->timer && p->task && p->task->any_deadline) {
            add_sorted(c, w->deadlines, &w->deadline_count, i);
        } else if (p->timer) {
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
    put_firsts_first(c, w);
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

static bool is_spared(const struct sim_chooser *c, uint32_t thread)
{
    return thread < 64 && (c->spared >> thread & 1);
}

/* Timers that may come early: those of threads that are not spared. */
static unsigned copy_timers(const struct sim_chooser *c, uint16_t *to, const uint16_t *from, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        if (!is_spared(c, thread_of(&c->pending[from[i]])))
            to[n++] = from[i];
    return n;
}

static bool deadline_is_first(const struct sim_chooser *c, const struct ways *w)
{
    return w->deadline_count && comes_before(&c->pending[w->deadlines[0]], &c->pending[w->timers[0]]);
}

/* The answers in their order: those without cost, then preemptions, then early timers. */
static unsigned choose_next(struct sim_chooser *c, const struct ways *w)
{
    uint16_t answers[2 * SIM_PENDING_MAX];
    bool gives_way = !w->own_count || w->yields;
    unsigned n = copy(answers, w->own, w->own_count ? 1 : 0), own = n;
    unsigned others = gives_way ? w->other_firsts : 0, deadlines = gives_way ? w->deadline_count : 0;
    n += copy(answers + n, w->others, others);
    /* Nothing but timers: the first one is not early. If it is a deadline, it is the first answer. */
    unsigned late = !n && w->timer_count && !deadline_is_first(c, w) ? 1 : 0;
    n += copy(answers + n, w->timers, late);
    n += copy(answers + n, w->deadlines, deadlines);
    unsigned cheap = n;
    if (c->preemptions && !is_spared(c, c->thread)) {
        n += copy(answers + n, w->own + own, w->own_count - own);
        n += copy(answers + n, w->others + others, w->other_count - others);
        n += copy(answers + n, w->deadlines + deadlines, w->deadline_count - deadlines);
    }
    unsigned early = n;
    if (c->preemptions && c->early)
        n += copy_timers(c, answers + n, w->timers + late, w->timer_count - late);
    if (c->fresh)
        c->beyond += w->own_count + w->other_count + w->deadline_count + w->timer_count - n;
    unsigned answer = ask(c, SIM_ASK_NEXT, n);
    c->preemptions -= answer >= cheap;
    c->early -= answer >= early;
    return answers[answer];
}

/* The first of all, or the first of what follows at once; SIM_PENDING_MAX if there is nothing of that. */
static unsigned find_first(const struct sim_chooser *c, bool at_once)
{
    unsigned first = SIM_PENDING_MAX;
    for (unsigned i = 0; i < c->count; i++) {
        const struct sim_pending *p = &c->pending[i];
        if (at_once ? !p->at_once : c->no_timers && p->timer)
            continue;
        if (first == SIM_PENDING_MAX || comes_before(p, &c->pending[first]))
            first = i;
    }
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
    if (which == SIM_PENDING_MAX && !c->open)
        return false;
    if (which == SIM_PENDING_MAX) {
        find_ways(c, &w);
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
    if (!c->open || !(sim->faults.active & FAULT_BIT(kind)) || is_spared(c, c->thread))
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
