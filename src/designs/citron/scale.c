/* SPDX-License-Identifier: Apache-2.0 */
/* The lock's configuration: m, T_wait, and the tree's height; how they change while others use them (3.5.5, 3.9).
 *
 * All of it is one word, which everybody reads together with the ancestors (b) and once more after having made itself known (d):
 * where the paper reads the root's Exp flag. A change has two phases. In the first, claims are made such that they are right before
 * and after it; when the census shows that all are, it is complete. */
#include "designs/citron/citron.h"

#include <errno.h>

unsigned citron_high = 4, citron_count_bits = NODE_COUNT_BITS;

struct citron_stats citron_stats;

#define WAIT_ROUND_TRIPS_TWICE 15 /* 3.5.5: 5 us are reserved for a round trip of 2, and there are three of them: 7.5 times */
#define WAIT_FIRST_MAX_NS                                                                                                          \
    (200 * NS_PER_US) /* whatever was measured: a connection may just have broken. It is doubled if too short */
#define WAIT_MUCH 16  /* times what it takes to make oneself known: at first it is some four times that */
#define SHY_TIMES 1024
#define SETTLE_PAUSE_NS (50 * NS_PER_US)

static fab_addr config_addr(const struct citron_job *j)
{
    return j->lock + offsetof(struct citron_lock, config);
}

/* ---- hints: so that the configuration need not be read before it is read ---- */

static struct session_hint *hint_of(const struct citron_job *j)
{
    return &j->seat->me->hints[j->index % countof(j->seat->me->hints)];
}

void job_remember(struct citron_job *j)
{
    struct session_hint *hint = hint_of(j);
    if (fab_is_shm(j->seat->ep))
        return;
    hint->index = j->index;
    hint->word = j->config_word;
    hint->more = (uint64_t)j->tall_idle << 2 | j->reach;
}

bool job_is_shy(const struct citron_job *j)
{
    struct session_hint *hint = hint_of(j);
    if (!hint->shy)
        return false;
    hint->shy--;
    return true;
}

void job_be_shy(const struct citron_job *j)
{
    hint_of(j)->shy = SHY_TIMES;
}

static uint32_t wait_for(const struct citron_job *j, uint64_t round_trip_ns)
{
    /* Where masked verbs are made of others, making oneself known takes many round trips. */
    bool slow = fab_is_shm(j->seat->ep) || !(j->seat->ep->caps & FAB_MASKED);
    bool confirm =
        citron_knob(j, CITRON_CONFIRM) == 1 || (citron_knob(j, CITRON_CONFIRM) == 2 && slow && !citron_knob(j, CITRON_WAIT_NS));
    uint64_t measured = min_u64(round_trip_ns * WAIT_ROUND_TRIPS_TWICE / 2, WAIT_FIRST_MAX_NS);
    uint64_t ns = citron_knob(j, CITRON_WAIT_NS) ? citron_knob(j, CITRON_WAIT_NS) : measured;
    if (confirm)
        return 0;
    return (uint32_t)min_u64(max_u64(ns / CONFIG_WAIT_NS, 1), FIELD_MAX(CONFIG_WAIT_BITS));
}

static int make_config(struct citron_job *j, uint64_t round_trip_ns)
{
    uint8_t height = (uint8_t)citron_height_first(j->seat->space);
    uint32_t wait = wait_for(j, round_trip_ns);
    struct citron_config c = {.height = height,
                              .height_next = height,
                              .m = (uint8_t)citron_knob(j, CITRON_M),
                              .m_next = (uint8_t)citron_knob(j, CITRON_M),
                              .wait = wait,
                              .set = citron_knob(j, CITRON_WAIT_NS)};
    uint64_t old;
    int rc = fab_cas64(j->seat->ep, config_addr(j), 0, config_word(c), &old);
    if (!rc)
        j->config_word = old ? old : config_word(c);
    return rc;
}

int job_configure(struct citron_job *j)
{
    const struct session_hint *hint = hint_of(j);
    if (!fab_is_shm(j->seat->ep) && hint->index == j->index && hint->word) {
        j->config_word = hint->word;
        j->config = config_of(j->config_word);
        j->reach = (enum look_reach)(hint->more & 3);
        j->tall_idle = (unsigned)(hint->more >> 2);
        return 0;
    }
    int rc;
    do {
        uint64_t before = world_now(j->seat->world);
        rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
        if (!rc && !j->config_word)
            rc = make_config(j, world_now(j->seat->world) - before);
        if (rc && (rc = seat_retry(j->seat, rc)))
            return rc;
    } while (!j->config_word);
    j->config = config_of(j->config_word);
    job_remember(j);
    return 0;
}

/* ---- changing it ---- */

struct straggler {
    const struct citron_job *j;
    struct citron_config to;
    bool found;
};

/* A claim that is not what it must be when the change is complete. */
static int is_behind(void *ctx, uint32_t slot, uint32_t record, const struct citron_claim *c)
{
    struct straggler *s = ctx;
    bool made = c->state == CLAIM_FLUX || c->state == CLAIM_HELD; /* or about to be */
    s->found |= made && !c->spill && (c->m > s->to.m_next || c->top < s->to.height_next);
    return 0;
}

static int swap_config(struct citron_job *j, struct citron_config to)
{
    uint64_t old;
    to.generation = (j->config.generation + 1) & (uint32_t)FIELD_MAX(CONFIG_GENERATION_BITS);
    int rc = fab_cas64(j->seat->ep, config_addr(j), j->config_word, config_word(to), &old);
    if (rc)
        return rc;
    bool done = old == j->config_word;
    j->config_word = done ? config_word(to) : old;
    j->config = config_of(j->config_word);
    job_remember(j);
    return !done;
}

int citron_tell_crowd(const struct citron_job *j)
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

int citron_settle(struct citron_job *j, bool has_spill)
{
    struct citron_config to = j->config;
    struct straggler s = {.j = j, .to = to};
    if (!config_changing(to))
        return 0;
    if (to.height != to.height_next && !has_spill)
        return 1; /* only under the spillover: nobody has anything beyond the tree then */
    int rc = citron_census(j, is_behind, &s);
    if (rc || s.found)
        return rc == -EAGAIN ? 1 : rc ? rc : 1;
    bool grows = to.height != to.height_next;
    to.height = to.height_next;
    to.m = to.m_next;
    rc = swap_config(j, to);
    if (!rc && grows && !fab_is_shm(j->seat->ep))
        citron_stats.grown++;
    return rc;
}

/* T_wait needs no second phase (job_only_wait_changed). So it does not wait for other changes, either: whoever has begun one may be
 * gone, and with too short a T_wait nobody gets on. */
static int change_wait(struct citron_job *j, uint64_t wait)
{
    struct citron_config to = j->config;
    to.wait = (uint32_t)min_u64(wait, FIELD_MAX(CONFIG_WAIT_BITS));
    if (!to.wait || to.wait == j->config.wait)
        return 0;
    const struct citron_config was = j->config;
    const uint64_t word = j->config_word;
    int rc = swap_config(j, to);
    if (rc) { /* whatever it is now is found by the next look */
        j->config = was;
        j->config_word = word;
    }
    return rc < 0 ? seat_retry(j->seat, rc) : 0;
}

/* One that was set stays as it is. */
int citron_wait_longer(struct citron_job *j)
{
    return j->config.set ? 0 : change_wait(j, 2 * (uint64_t)j->config.wait);
}

int citron_wait_shorter(struct citron_job *j)
{
    uint64_t took_ns = j->claimed_ns - j->looked_ns;
    return j->config.set || took_ns > config_wait_ns(j->config) / WAIT_MUCH ? 0 : change_wait(j, j->config.wait / 2);
}

/* Until others have followed, or for as long as there is time. */
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
    int rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
    if (!rc && !j->config_word)
        rc = make_config(j, 0);
    if (rc)
        return rc;
    j->config = config_of(j->config_word);
    struct citron_config to = j->config;
    if (to.height != to.height_next)
        return 1; /* one change at a time */
    if (to.m == m && to.m_next == m && to.wait == wait)
        return 0;
    if (to.m_next == m && to.wait == wait)
        return citron_settle(j, false);
    if (to.m != to.m_next)
        return citron_settle(j, false) < 0 ? -EAGAIN : 1;
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

/* ---- growing ---- */

/* This job has the spillover for itself and nothing else. What the maximizer says (3.9.1) decides how far: at least fourfold. */
static int grow(struct citron_job *j)
{
    fab_addr maximizer = j->lock + offsetof(struct citron_lock, maximizer);
    uint64_t wanted, old;
    int rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
    if (!rc)
        rc = fab_read64(j->seat->ep, maximizer, &wanted);
    if (rc)
        return rc;
    j->config = config_of(j->config_word);
    struct citron_config to = j->config;
    if (!config_changing(to)) {
        if (wanted <= tree_units(to.height) || to.height >= j->height_max)
            return 0;
        unsigned height = tree_height_for(wanted);
        to.height_next = (uint8_t)(height < j->height_max ? height : j->height_max);
        if ((rc = swap_config(j, to)))
            return rc < 0 ? rc : 0;
    }
    rc = citron_settle(j, true);
    if (rc)
        return rc < 0 ? rc : 0;
    return fab_mcas64(j->seat->ep, maximizer, wanted, UINT64_MAX, 0, UINT64_MAX, &old);
}

/* Who has used the spillover for itself sees whether the tree should grow. Not more often than somebody who polls would. */
int citron_before_release(struct citron_job *j)
{
    struct citron_claim *last = &j->claims[j->count - 1];
    struct session *me = j->seat->me;
    if (!j->count || !last->spill || last->shared || last->joint)
        return 0;
    uint64_t now = world_now(j->seat->world), before = __atomic_load_n(&me->scaled_ns, __ATOMIC_RELAXED);
    if (before && now - before < citron_knob(j, CITRON_SCALE_US) * NS_PER_US)
        return 0;
    __atomic_store_n(&me->scaled_ns, now, __ATOMIC_RELAXED);
    /* Its other claims were made known for the tree as it is: they go first. */
    for (unsigned i = j->count - 1; i-- > 0;) {
        int rc = job_drop(j, i, false);
        if (rc)
            return rc;
    }
    int rc = grow(j);
    return rc < 0 ? seat_retry(j->seat, rc) : 0;
}

void citron_note_end(struct citron_job *j, struct citron_batch *b)
{
    uint64_t end = j->h->end;
    if (end < RANGE_UNITS_MAX)
        batch_mcas(b, j->lock + offsetof(struct citron_lock, maximizer), 0, 0, end, end);
}

/* ---- by command ---- */

/* What was to be taller stays as it is: what is made known for a taller tree is found in this one, too. */
static int stay(struct citron_job *j)
{
    for (;;) {
        int rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
        j->config = config_of(j->config_word);
        struct citron_config to = j->config;
        if (!rc && to.height == to.height_next)
            return 0;
        to.height_next = to.height;
        if (!rc)
            rc = swap_config(j, to);
        if (!rc || (rc < 0 && (rc = seat_retry(j->seat, rc))))
            return rc;
    }
}

/* One step towards a taller tree: 0 if it is there. The job has the spillover for itself and nothing else. */
static int grow_to(struct citron_job *j, unsigned height)
{
    int rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
    if (rc)
        return rc;
    j->config = config_of(j->config_word);
    struct citron_config to = j->config;
    if (to.height >= height)
        return 0;
    if (!config_changing(to)) {
        to.height_next = (uint8_t)height;
        if ((rc = swap_config(j, to)))
            return rc;
    }
    rc = citron_settle(j, true); /* of whatever change is under way */
    return rc ? rc : j->config.height < height;
}

static int scale_up(struct citron_job *j, unsigned height)
{
    int rc = 0;
    if (!j->count || !j->claims[j->count - 1].spill)
        return -EAGAIN; /* the tree has grown meanwhile */
    for (unsigned i = j->count - 1; i-- > 0 && !rc;)
        rc = job_drop(j, i, false); /* made known for the tree as it is */
    if (!rc) {                      /* on the books, too, or it would be given back once more with the hold */
        j->claims[0] = j->claims[j->count - 1];
        j->count = 1;
        rc = citron_say_all(j, CLAIM_HELD);
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

/* 3.9.2: blocks. The hold is all there is; it ends with this, for who comes to the smaller tree does not look as far up. */
static int scale_down(struct citron_job *j, unsigned height)
{
    if (j->h->start)
        return -EAGAIN;
    for (;;) {
        int rc = fab_read64(j->seat->ep, config_addr(j), &j->config_word);
        j->config = config_of(j->config_word);
        struct citron_config to = j->config;
        to.height = to.height_next = (uint8_t)height;
        to.m_next = to.m; /* nobody is there who would have to follow */
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
    uint64_t word;
    while ((rc = fab_read64(seat->ep, config_addr(&j), &word)))
        if ((rc = seat_retry(seat, rc)))
            return rc;
    struct citron_config now = config_of(word);
    return height == now.height ? 0 : height > now.height ? scale_up(&j, height) : scale_down(&j, height);
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
    unsigned first = citron_height_first(seat->space);
    struct citron_config c = config_of(word);
    if (!word) /* nobody has been here: what the first one would make of it */
        c = (struct citron_config){.height = (uint8_t)first,
                                   .height_next = (uint8_t)first,
                                   .m = (uint8_t)citron_knob(&j, CITRON_M),
                                   .m_next = (uint8_t)citron_knob(&j, CITRON_M),
                                   .wait = wait_for(&j, 0)};
    *out = (struct lock_layout){.units = tree_units(c.height),
                                .units_first = tree_units(first),
                                .units_max = tree_units(citron_height_last(seat->space)),
                                .bytes = tree_nodes(c.height) * sizeof(uint64_t),
                                .m = c.m,
                                .wait_ns = config_wait_ns(c),
                                .changing = config_changing(c)};
    return 0;
}
