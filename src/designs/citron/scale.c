/* SPDX-License-Identifier: Apache-2.0 */
/* The lock's configuration: m, T_wait, and the tree's height; how they change while clients use them (3.5.5, 3.9).
 *
 * All of it is one word. Every client reads it together with the ancestors (b) and once more after its notifications (d), where the
 * paper reads the root's Exp flag. A change has two phases. In the first one claims are made such that they are right before and
 * after it. When a census shows that all claims are, the change is completed. */
#include "designs/citron/steps.h"

#include <errno.h>

#define WAIT_ROUND_TRIPS_TWICE 15           /* 3.5.5: three round trips, with 5 us reserved for one of 2 us: 7.5 times */
#define WAIT_FIRST_MAX_NS (200 * NS_PER_US) /* a connection may have broken while it was measured; it is doubled if too short */
#define SETTLE_PAUSE_NS (50 * NS_PER_US)

static fab_addr config_addr(const struct citron_job *j)
{
    return job_header(j, offsetof(struct citron_lock, config));
}

static int read_config(struct citron_job *j)
{
    uint64_t word;
    int rc = fab_read64(j->seat->ep, config_addr(j), &word);
    if (!rc)
        plan_config(j, word);
    return rc;
}

/* ---- at first ---- */

static struct citron_config first_config(const struct citron_job *j, uint64_t round_trip_ns)
{
    const struct citron_policy *p = &j->policy;
    uint8_t height = (uint8_t)citron_height_first(j->seat->space);
    /* Where masked verbs are made of other verbs, notifications take many round trips. */
    bool slow = j->near || !fab_has(j->seat->ep->caps, FAB_MASKED);
    bool confirm = p->confirm == 1 || (p->confirm == 2 && slow && !p->wait_ns);
    uint64_t measured = min_u64(round_trip_ns * WAIT_ROUND_TRIPS_TWICE / 2, WAIT_FIRST_MAX_NS);
    uint64_t ns = p->wait_ns ? p->wait_ns : measured;
    uint64_t wait = confirm ? 0 : min_u64(max_u64(ns / CONFIG_WAIT_NS, 1), FIELD_MAX(CONFIG_WAIT_BITS));
    return (struct citron_config){.height = height,
                                  .height_next = height,
                                  .m = (uint8_t)p->m,
                                  .m_next = (uint8_t)p->m,
                                  .wait = (uint32_t)wait,
                                  .set = p->wait_ns};
}

int config_make(struct citron_job *j, uint64_t round_trip_ns)
{
    uint64_t word = config_word(first_config(j, round_trip_ns)), old;
    int rc = fab_cas64(j->seat->ep, config_addr(j), 0, word, &old);
    if (!rc)
        plan_config(j, old ? old : word);
    return rc;
}

/* ---- changing it ---- */

struct straggler {
    struct citron_config to;
    bool found;
};

/* A claim that would be wrong when the change is complete. */
static int is_behind(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct straggler *s = ctx;
    bool made = c->state == CLAIM_FLUX || c->state == CLAIM_HELD; /* or about to be */
    s->found |= made && !c->spill && (c->m > s->to.m_next || c->top < s->to.height_next);
    return 0;
}

/* Positive: the configuration was another one, which the job has now. */
static int swap_config(struct citron_job *j, struct citron_config to)
{
    uint64_t old, was = j->plan.config_word;
    to.version = (j->plan.config.version + 1) & (uint32_t)FIELD_MAX(CONFIG_VERSION_BITS);
    int rc = fab_cas64(j->seat->ep, config_addr(j), was, config_word(to), &old);
    if (rc)
        return rc;
    plan_config(j, old == was ? config_word(to) : old);
    job_remember(j);
    return old != was;
}

int config_tell_crowd(const struct citron_job *j)
{
    for (;;) {
        uint64_t word, old;
        int rc = fab_read64(j->seat->ep, config_addr(j), &word);
        struct citron_config to = config_of(word);
        if (!rc && to.crowded)
            return 0;
        to.crowded = true;
        if (!rc)
            rc = fab_cas64(j->seat->ep, config_addr(j), word, config_word(to), &old);
        if (!rc && old == word)
            return 0;
        if (rc && (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* Completes a change if no claim is behind: 0, or positive: not yet. */
static int complete_change(struct citron_job *j, bool has_spill)
{
    struct citron_config to = j->plan.config;
    struct straggler s = {.to = to};
    bool grows = to.height != to.height_next;
    if (!config_changing(to))
        return 0;
    if (grows && !has_spill)
        return 1; /* only under the spillover: then no other client has anything beyond the tree */
    int rc = citron_census(j, is_behind, &s);
    if (rc || s.found)
        return rc && rc != -EAGAIN ? rc : 1;
    to.height = to.height_next;
    to.m = to.m_next;
    rc = swap_config(j, to);
    if (!rc && grows)
        job_count(j, &citron_stats.grown);
    return rc;
}

/* T_wait needs no second phase (plan_only_wait_changed). So this does not wait for other changes, either: their authors may be
 * gone, and with too short a T_wait clients make slow progress. */
static int change_wait(struct citron_job *j, uint64_t wait)
{
    const struct citron_plan was = j->plan;
    struct citron_config to = was.config;
    to.wait = (uint32_t)min_u64(wait, FIELD_MAX(CONFIG_WAIT_BITS));
    if (!to.wait || to.wait == was.config.wait)
        return 0;
    int rc = swap_config(j, to);
    if (rc) /* the next look finds the new configuration */
        plan_undo_config(j, &was);
    return rc < 0 ? seat_retry(j->seat, rc) : 0;
}

int config_wait_longer(struct citron_job *j)
{
    return j->plan.config.set ? 0 : change_wait(j, 2 * (uint64_t)j->plan.config.wait);
}

int config_wait_shorter(struct citron_job *j)
{
    return j->plan.config.set ? 0 : change_wait(j, j->plan.config.wait / 2);
}

/* Until other clients have followed, or the time is up. */
static int pause_for_others(const struct seat *seat, uint64_t deadline)
{
    uint64_t now = world_now(seat->world);
    if (now >= deadline)
        return -ETIMEDOUT;
    int rc = fab_wait_any(seat->ep, NULL, 0, min_u64(deadline, now + SETTLE_PAUSE_NS));
    return rc == -ETIMEDOUT ? 0 : seat_retry(seat, rc);
}

static int retune_once(struct citron_job *j, unsigned m, uint32_t wait)
{
    int rc = read_config(j);
    if (!rc && !j->plan.config_word)
        rc = config_make(j, 0);
    if (rc)
        return rc;
    struct citron_config to = j->plan.config;
    if (to.height != to.height_next)
        return 1; /* one change at a time */
    if (to.m == m && to.m_next == m && to.wait == wait)
        return 0;
    if (to.m_next == m && to.wait == wait)
        return complete_change(j, false);
    if (to.m != to.m_next)
        return complete_change(j, false) < 0 ? -EAGAIN : 1;
    to.m_next = (uint8_t)m;
    to.wait = wait;
    to.set = true;
    rc = swap_config(j, to);
    return rc < 0 ? rc : 1;
}

int citron_retune(const struct seat *seat, uint64_t index, unsigned m, uint64_t wait_ns, uint64_t deadline)
{
    struct hold h = {.index = index, .record = UINT32_MAX, .mode = PAWL_EXCLUSIVE};
    struct citron_job j;
    uint64_t wait = wait_ns / CONFIG_WAIT_NS;
    if (m < 1 || m > TREE_M_MAX || wait > FIELD_MAX(CONFIG_WAIT_BITS))
        return -EINVAL;
    job_start(&j, seat, &h, deadline);
    for (;;) {
        int rc = retune_once(&j, m, (uint32_t)wait);
        if (!rc || (rc < 0 && rc != -EAGAIN && (rc = seat_retry(seat, rc))))
            return rc;
        if ((rc = pause_for_others(seat, deadline)))
            return rc;
    }
}

/* ---- growing (Algorithm 4) ---- */

/* The job has the spillover exclusively and nothing else. The maximizer (3.9.1) decides how far the tree grows: at least fourfold.
 */
static int grow(struct citron_job *j)
{
    fab_addr maximizer = job_header(j, offsetof(struct citron_lock, maximizer));
    uint64_t wanted, old;
    assert(j->claims.at[j->claims.n - 1].spill && !j->claims.at[j->claims.n - 1].shared);
    int rc = read_config(j);
    if (!rc)
        rc = fab_read64(j->seat->ep, maximizer, &wanted);
    if (rc)
        return rc;
    struct citron_config to = j->plan.config;
    if (!config_changing(to)) {
        if (wanted <= tree_units(to.height) || to.height >= j->height_max)
            return 0;
        unsigned height = tree_height_for(wanted);
        to.height_next = (uint8_t)(height < j->height_max ? height : j->height_max);
        if ((rc = swap_config(j, to)))
            return rc < 0 ? rc : 0;
    }
    rc = complete_change(j, true);
    if (rc)
        return rc < 0 ? rc : 0;
    return fab_mcas64(j->seat->ep, maximizer, wanted, UINT64_MAX, 0, UINT64_MAX, &old);
}

/* Gives back all claims but the last one, the spillover: they notify for the tree as it is. */
static int keep_spill_only(struct citron_job *j)
{
    int rc = 0;
    for (unsigned i = j->claims.n - 1; i-- > 0 && !rc;)
        rc = job_drop(j, i, false);
    return rc;
}

/* A client that has used the spillover exclusively sees whether the tree should grow, at most once per scale_us. */
int scale_before_release(struct citron_job *j)
{
    struct citron_session *me = citron_session(j->seat);
    if (!j->claims.n)
        return 0;
    const struct citron_claim *last = &j->claims.at[j->claims.n - 1];
    if (!last->spill || last->shared || last->joint)
        return 0;
    uint64_t now = world_now(j->seat->world), before = __atomic_load_n(&me->scaled_ns, __ATOMIC_RELAXED);
    if (before && now - before < j->policy.scale_us * NS_PER_US)
        return 0;
    __atomic_store_n(&me->scaled_ns, now, __ATOMIC_RELAXED);
    int rc = keep_spill_only(j);
    if (rc)
        return rc;
    rc = grow(j);
    return rc < 0 ? seat_retry(j->seat, rc) : 0;
}

/* ---- by command ---- */

/* A change of the height that was not completed is taken back: notifications for a taller tree are found in this one, too. */
static int stay(struct citron_job *j)
{
    for (;;) {
        int rc = read_config(j);
        struct citron_config to = j->plan.config;
        if (!rc && to.height == to.height_next)
            return 0;
        to.height_next = to.height;
        if (!rc)
            rc = swap_config(j, to);
        if (!rc || (rc < 0 && (rc = seat_retry(j->seat, rc))))
            return rc;
    }
}

/* One step towards a taller tree: 0 if it is as tall. The job has the spillover exclusively and nothing else. */
static int grow_to(struct citron_job *j, unsigned height)
{
    int rc = read_config(j);
    if (rc)
        return rc;
    struct citron_config to = j->plan.config;
    if (to.height >= height)
        return 0;
    if (!config_changing(to)) {
        to.height_next = (uint8_t)height;
        if ((rc = swap_config(j, to)))
            return rc;
    }
    rc = complete_change(j, true); /* of whatever change is under way */
    return rc ? rc : j->plan.config.height < height;
}

static int scale_up(struct citron_job *j, unsigned height)
{
    if (!j->claims.n || !j->claims.at[j->claims.n - 1].spill)
        return -EAGAIN; /* the tree has grown meanwhile */
    int rc = keep_spill_only(j);
    if (!rc) { /* in the books, too, or the claims would be given back once more with the hold */
        claims_keep_held(j);
        rc = job_say_all(j, CLAIM_HELD);
    }
    if (!rc)
        job_keep(j);
    while (!rc) {
        rc = grow_to(j, height);
        if (!rc)
            return 0;
        rc = rc < 0 && rc != -EAGAIN ? seat_retry(j->seat, rc) : 0;
        if (!rc)
            rc = pause_for_others(j->seat, j->deadline);
    }
    int end = rc == -PAWL_ELOST ? 0 : stay(j);
    return end ? end : rc;
}

/* 3.9.2: blocks. The hold is the whole range; it ends with the change, because clients of the smaller tree do not look as far up.
 */
static int scale_down(struct citron_job *j, unsigned height)
{
    if (j->h->start)
        return -EAGAIN;
    for (;;) {
        int rc = read_config(j);
        struct citron_config to = j->plan.config;
        to.height = to.height_next = (uint8_t)height;
        to.m_next = to.m; /* there is no other claim that would have to follow */
        if (!rc)
            rc = swap_config(j, to);
        if (!rc || (rc < 0 && (rc = seat_retry(j->seat, rc))))
            return rc;
    }
}

int citron_rescale(const struct seat *seat, struct hold *h, uint64_t units, uint64_t deadline)
{
    struct citron_job j;
    unsigned height = tree_height_for(units);
    if (units > RANGE_UNITS_MAX || height < citron_height_first(seat->space) || height > citron_height_last(seat->space))
        return -ERANGE;
    if (h->mode != PAWL_EXCLUSIVE || h->end != RANGE_UNITS_MAX || !citron_holds(seat, h))
        return -PAWL_ENOTOWNER;
    int rc = job_resume(&j, seat, h, deadline);
    if (rc)
        return rc;
    while ((rc = read_config(&j)))
        if ((rc = seat_retry(seat, rc)))
            return rc;
    unsigned now = j.plan.config.height;
    return height == now ? 0 : height > now ? scale_up(&j, height) : scale_down(&j, height);
}

int citron_layout(const struct seat *seat, uint64_t index, struct lock_layout *out)
{
    struct hold h = {.index = index, .record = UINT32_MAX, .mode = PAWL_EXCLUSIVE};
    struct citron_job j;
    uint64_t word;
    job_start(&j, seat, &h, DEADLINE_TRY);
    int rc = fab_read64(seat->ep, config_addr(&j), &word);
    if (rc)
        return rc;
    struct citron_config c = word ? config_of(word) : first_config(&j, 0); /* of an unused lock: as its first user would make it */
    *out = (struct lock_layout){.units = tree_units(c.height),
                                .units_first = tree_units(citron_height_first(seat->space)),
                                .units_max = tree_units(citron_height_last(seat->space)),
                                .bytes = tree_nodes(c.height) * sizeof(uint64_t),
                                .m = c.m,
                                .wait_ns = config_wait_ns(c),
                                .changing = config_changing(c)};
    return 0;
}
