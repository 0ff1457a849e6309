/* SPDX-License-Identifier: Apache-2.0 */
/* Agents that stay (beyond the paper): when the last holder has released and no request waits, the host may keep the agent, so that
 * the next acquisition on this host costs no packet. To the decider the lock is held, by this host. The request of another host is
 * forwarded to the agent, which has no holder and moves there: one round trip more than for a free lock.
 *
 * That pays where the next request is most often of the same host. The terms show it: if a host frees a tenure of term t and is
 * next granted the lock by the decider in term t + 1, no other host had it in between. Each lock has a score: one up every time
 * that it came back here, two down every time that another host had it. The agent stays where the score is high: where more than
 * two of three acquisitions are of this host. */
#include "designs/fisslock/host.h"

#define SCORE_MAX 7
#define SCORE_DOWN 2
#define SCORE_KEEP 2
#define SCORE_BITS 4
#define EVICT_TRIES 4 /* agents in use are passed over */

/* The next tenure if no other host gets the lock, and the score. Of two locks that share a place in the table the later is
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
    const struct habit *habit = habit_of(h, a->index);
    bool known = habit->index == (uint32_t)a->index && habit->next;
    uint8_t score = known ? habit->next & ((1u << SCORE_BITS) - 1) : 0;
    bool again = known && by_decider && habit->next >> SCORE_BITS == a->term;
    edit(e, a);
    a->score = again ? (uint8_t)min_u64(score + 1u, SCORE_MAX) : score > SCORE_DOWN ? (uint8_t)(score - SCORE_DOWN) : 0;
}

void keep_end(struct event *e, const struct agent *a)
{
    if (!e->h->policy.keep)
        return;
    struct habit *habit = habit_of(e->h, a->index);
    edit(e, habit);
    habit->index = (uint32_t)a->index;
    habit->next = term_after(a->term) << SCORE_BITS | a->score;
}

/* The lock came back without a packet. */
void keep_hit(struct agent *a)
{
    if (a->score < SCORE_MAX)
        a->score++;
}

static bool wants(const struct fisslock_host *h, const struct agent *a)
{
    if (h->policy.placed)
        return is_home(h, a->index);
    return h->policy.keep && a->score >= SCORE_KEEP;
}

/* ---- the list of agents that stay, the oldest first ---- */

void keep_forget(struct event *e, struct agent *a)
{
    if (!a->kept)
        return;
    edit(e, a);
    a->kept = false;
    pool_chain_take(e, CHAIN_KEPT, a);
}

static void remember(struct event *e, struct agent *a)
{
    edit(e, a);
    a->kept = true;
    pool_chain_append(e, CHAIN_KEPT, a);
}

/* Frees the agent that has stayed longest. One in use leaves the list, and joins it again when it is not in use. */
static void evict(struct event *e)
{
    struct fisslock_host *h = e->h;
    for (unsigned i = 0; i < EVICT_TRIES && h->chain[CHAIN_KEPT].count > h->kept_max; i++) {
        struct agent *a = host_agent(h, h->chain[CHAIN_KEPT].first);
        keep_forget(e, a);
        if (a->state == AGENT_LIVE && !a->holders.count && !a->waiters.count)
            tenure_free(e, a);
    }
}

/* No request holds or waits. Whether the agent stays. */
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
