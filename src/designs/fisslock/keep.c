/* SPDX-License-Identifier: Apache-2.0 */
/* Agents that stay (beyond the paper): when the last holder has gone and nobody waits, the host may keep the agent, so that its
 * next acquisition costs no packet. To the decider the lock is held, by this host. Another's request is sent to the agent, as ever,
 * which finds nobody and goes there: one round trip more than if the lock had been free.
 *
 * That pays where the next to ask is most often of the same host. Whether it was is known exactly: who frees a tenure of term t,
 * and is next granted the lock by the decider, finds term t + 1 if nobody else had it in between. Each lock has a score: one up for
 * every time that it came back here, two down for every time that somebody else had it. The agent stays where the score is high:
 * where more than two of three acquisitions are of this host. */
#include "designs/fisslock/pool.h"

#define SCORE_MAX 7
#define SCORE_DOWN 2
#define SCORE_KEEP 2
#define SCORE_BITS 4
#define EVICT_TRIES 4 /* those that are in use just now are passed over */

/* Which tenure comes next if nobody else does, and the score. One per place of a table: of two locks that coincide the later is
 * remembered. */
static struct habit *habit_of(struct fisslock_host *h, uint64_t index)
{
    return (struct habit *)((char *)h + h->habits_at) + (mix64(index) & h->habit_mask);
}

/* Placed: by ranges, as parlock's servers are. */
static bool is_home(const struct fisslock_host *h, uint64_t index)
{
    return (uint64_t)((u128)index * h->config.machines / h->config.locks) + 1 == h->machine;
}

void keep_begin(struct event *e, struct agent *a, bool by_decider)
{
    struct fisslock_host *h = e->h;
    if (!host_is(h, FISSLOCK_KEEP))
        return;
    const struct habit *habit = habit_of(h, a->index);
    bool known = habit->index == (uint32_t)a->index && habit->next;
    uint8_t score = known ? habit->next & ((1u << SCORE_BITS) - 1) : 0;
    bool again = known && by_decider && habit->next >> SCORE_BITS == a->term;
    edit(e, a);
    a->score = again ? (uint8_t)min_u64(score + 1u, SCORE_MAX) : score > SCORE_DOWN ? (uint8_t)(score - SCORE_DOWN) : 0;
}

void keep_end(struct event *e, const struct agent *a)
{
    if (!host_is(e->h, FISSLOCK_KEEP))
        return;
    struct habit *habit = habit_of(e->h, a->index);
    edit(e, habit);
    habit->index = (uint32_t)a->index;
    habit->next = ((a->term + 1) & FISSION_TERM_MASK) << SCORE_BITS | a->score;
}

/* It came back without a packet. */
void keep_hit(struct agent *a)
{
    if (a->score < SCORE_MAX)
        a->score++;
}

static bool wants(const struct fisslock_host *h, const struct agent *a)
{
    if (host_is(h, FISSLOCK_PLACED))
        return is_home(h, a->index);
    return host_is(h, FISSLOCK_KEEP) && a->score >= SCORE_KEEP;
}

/* ---- those that stay, in the order in which they began to ---- */

void keep_forget(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (!a->kept)
        return;
    struct agent *before = a->kept_before == NONE ? NULL : host_agent(h, a->kept_before);
    struct agent *after = a->kept_after == NONE ? NULL : host_agent(h, a->kept_after);
    edit(e, a);
    if (before) {
        edit(e, before);
        before->kept_after = a->kept_after;
    } else {
        h->kept_first = a->kept_after;
    }
    if (after) {
        edit(e, after);
        after->kept_before = a->kept_before;
    } else {
        h->kept_last = a->kept_before;
    }
    a->kept = false;
    h->kept_count--;
}

static void remember(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    edit(e, a);
    a->kept = true;
    a->kept_before = h->kept_last;
    a->kept_after = NONE;
    if (h->kept_last == NONE) {
        h->kept_first = agent_number(h, a);
    } else {
        edit(e, host_agent(h, h->kept_last));
        host_agent(h, h->kept_last)->kept_after = agent_number(h, a);
    }
    h->kept_last = agent_number(h, a);
    h->kept_count++;
}

/* The one that has been here longest is given back; if it is in use, it will come again when it is not. */
static void evict(struct event *e)
{
    struct fisslock_host *h = e->h;
    for (unsigned i = 0; i < EVICT_TRIES && h->kept_count > h->kept_max; i++) {
        struct agent *a = host_agent(h, h->kept_first);
        keep_forget(e, a);
        if (a->state == AGENT_LIVE && !a->holders.count && !a->waiters.count)
            tenure_free(e, a);
    }
}

/* Nobody holds, nobody waits. Whether the agent stays. */
bool keep_agent(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (!wants(h, a) || h->leaving)
        return false;
    edit(e, a);
    a->pause_ns = 0;
    timers_stop(host_timers(h), timer_of_agent(h, a), e->out);
    if (!a->kept)
        remember(e, a);
    evict(e);
    return true;
}
