/* A hold that changes: grows, shrinks, is cut in two, goes up or down. None of it is in the paper.
 *
 * Growing and going up get further claims beside those held, and wait for them with those in hand; so they give way (-EDEADLK) to
 * whoever waits for what is held. Everything else waits for nobody. What is added is added before anything is taken away: the
 * connection may break at any point, and counts may be too high then, but never too low. */
#include "designs/citron/citron.h"

#include <errno.h>

/* The units that a claim keeps from others. */
static uint64_t claim_start(const struct citron_job *j, const struct citron_claim *c)
{
    if (c->spill)
        return tree_units(j->config.height);
    return tree_start(c->node) + (c->node.height ? 0 : c->ticket & 63);
}
static uint64_t claim_end(const struct citron_claim *c)
{
    if (c->spill)
        return RANGE_UNITS_MAX;
    return c->node.height ? tree_end(c->node) : tree_start(c->node) + (c->ticket >> 6) + 1;
}

/* Writes all claims as they are now. */
static int say_all(struct citron_job *j, enum claim_state state)
{
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        j->published = false;
        job_say(j, &b, 0, j->count, state);
        int rc = job_run(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* Runs verbs that may be repeated: what is counted twice is too high. */
static int run_surely(struct citron_job *j, struct citron_batch *b)
{
    int rc;
    while ((rc = job_run(j, b)))
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    return 0;
}

/* What a change has come to: one who was lost meanwhile need not hear why else it failed. */
static int outcome(const struct seat *seat, int rc)
{
    return rc == -FAB_EFENCED || (rc && !seat_lives(seat)) ? -PAWL_ELOST : rc;
}

/* ---- shrinking ---- */

/* A leaf of which less is needed. First the books, then the bits: should the connection break they are nobody's. */
static int trim(struct citron_job *j, unsigned i, uint32_t bounds)
{
    struct citron_claim *c = &j->claims[i];
    uint64_t was = citron_place_word(j, c), gone = bounds_mask(c->ticket) & ~bounds_mask(bounds), old;
    if (c->ticket == bounds)
        return 0;
    if (c->shared) {
        struct citron_claim place = *c;
        c->ticket = bounds;
        int rc = citron_swap_place(j, &place, was, citron_place_word(j, c));
        return rc < 0 ? rc : say_all(j, CLAIM_HELD);
    }
    c->ticket = bounds;
    int rc = say_all(j, CLAIM_HELD);
    if (!rc)
        rc = fab_mcas64(j->seat->ep, job_node(j, c->node), gone, gone, 0, gone, &old);
    job_wake(j, job_node(j, c->node));
    return rc == -FAB_EUNKNOWN ? seat_retry(j->seat, rc) : rc;
}

static int shrink(struct citron_job *j, uint64_t start, uint64_t end)
{
    unsigned kept = 0;
    int rc = 0;
    for (unsigned i = j->count; i-- > 0 && !rc;)
        if (claim_start(j, &j->claims[i]) >= end || claim_end(&j->claims[i]) <= start)
            rc = job_drop(j, i, false);
    for (unsigned i = 0; i < j->count; i++)
        if (j->claims[i].state == CLAIM_HELD)
            j->claims[kept++] = j->claims[i];
    j->count = kept;
    if (!rc)
        rc = say_all(j, CLAIM_HELD);
    for (unsigned i = 0; i < j->count && !rc; i++)
        if (!claim_internal(&j->claims[i])) {
            struct tree_node leaf = j->claims[i].node;
            uint64_t from = max_u64(start, claim_start(j, &j->claims[i])), to = min_u64(end, claim_end(&j->claims[i]));
            rc = trim(j, i, bounds_of(leaf, from, to));
        }
    return rc;
}

/* ---- growing ---- */

/* Adds claims for [start, end) that touch nothing held already. */
static int plan_part(struct citron_job *j, uint64_t start, uint64_t end)
{
    struct tree_node nodes[TREE_SPLIT_MAX];
    uint64_t units = tree_units(j->config.height);
    unsigned room = CLAIMS_MAX - j->count - (end > units);
    if (start < units && start < end) {
        if (!room || j->count >= CLAIMS_MAX)
            return -PAWL_ELIMIT;
        unsigned n = tree_split(start, min_u64(end, units), j->config.height, room < TREE_SPLIT_MAX ? room : TREE_SPLIT_MAX, nodes);
        for (unsigned i = 0; i < n; i++)
            for (unsigned k = 0; k < j->base; k++)
                if (nodes[i].height && !j->claims[k].spill && tree_contains(nodes[i], j->claims[k].node))
                    return -PAWL_ELIMIT; /* in too many pieces */
        for (unsigned i = 0; i < n; i++)
            job_add(j, nodes[i], start, end);
    }
    if (end > units && start < end) {
        if (j->count >= CLAIMS_MAX)
            return -PAWL_ELIMIT;
        job_add_spill(j);
    }
    return 0;
}

static int plan_growth(struct citron_job *j, uint64_t start, uint64_t end)
{
    uint64_t from = UINT64_MAX, to = 0;
    j->count = j->base;
    for (unsigned i = 0; i < j->base; i++) {
        from = min_u64(from, claim_start(j, &j->claims[i]));
        to = max_u64(to, claim_end(&j->claims[i]));
    }
    int rc = start < from ? plan_part(j, start, from) : 0;
    return rc ? rc : end > to ? plan_part(j, to, end) : 0;
}

/* Gets what is planned beside what is held. On failure all is as it was. */
static int acquire_more(struct citron_job *j, int (*plan)(struct citron_job *, uint64_t, uint64_t), uint64_t start, uint64_t end)
{
    int rc;
    do {
        rc = plan(j, start, end);
        if (!rc)
            rc = job_acquire(j);
    } while (rc == JOB_AGAIN);
    if (!rc && j->count > j->base)
        rc = job_settle_token(j);
    if (rc == -PAWL_ELOST || !rc)
        return rc;
    int back = job_drop_all(j, j->base, false);
    j->count = j->base;
    if (!back)
        back = say_all(j, CLAIM_HELD);
    if (!back)
        job_keep(j);
    return back ? back : rc;
}

int citron_reshape(const struct seat *seat, struct hold *h, uint64_t start, uint64_t end, uint64_t deadline)
{
    struct citron_job j;
    int rc = job_resume(&j, seat, h, deadline);
    if (rc)
        return rc;
    if (start >= h->start && end <= h->end) {
        rc = shrink(&j, start, end);
    } else {
        j.base = j.count;
        rc = acquire_more(&j, plan_growth, start, end);
        if (!rc && j.count == j.base) /* its nodes cover that already */
            rc = job_new_token(&j);
        if (!rc)
            h->token = seat->space->token_base + j.token;
    }
    if (rc)
        return outcome(seat, rc);
    h->start = start;
    h->end = end;
    job_keep(&j);
    return 0;
}

/* ---- up ---- */

static int plan_upgrade(struct citron_job *j, uint64_t start, uint64_t end)
{
    j->count = j->base;
    if (2 * j->base > CLAIMS_MAX)
        return -PAWL_ELIMIT;
    for (unsigned i = 0; i < j->base; i++) {
        const struct citron_claim *c = &j->claims[i];
        if (c->spill)
            job_add_spill(j);
        else
            job_add(j, c->node, claim_start(j, c), claim_end(c));
    }
    return 0;
}

/* The same nodes once more, for oneself; then the readers' claims go. */
static int upgrade(struct citron_job *j)
{
    j->base = j->count;
    j->shared = false;
    j->upgrades = true;
    int rc = acquire_more(j, plan_upgrade, 0, 0);
    if (rc)
        return rc;
    for (unsigned i = 0; i < j->base && !rc; i++)
        rc = job_drop(j, i, false);
    for (unsigned i = j->base; i < j->count; i++)
        j->claims[i - j->base] = j->claims[i];
    j->count -= j->base;
    return rc ? rc : say_all(j, CLAIM_HELD);
}

/* ---- down ---- */

static int take_places(struct citron_job *j)
{
    int rc = 0;
    unsigned i = 0;
    for (; i < j->count && !rc; i++)
        if (!claim_internal(&j->claims[i]))
            rc = citron_take_place(j, &j->claims[i]);
    if (!rc || rc == -PAWL_ELOST)
        return rc;
    for (i--; i-- > 0;)
        if (!claim_internal(&j->claims[i]) && citron_swap_place(j, &j->claims[i], citron_place_word(j, &j->claims[i]), 0) < 0)
            return -PAWL_ELOST;
    return rc;
}

/* Counted as a reader, and made known as one. */
static int add_reader(struct citron_job *j, unsigned i)
{
    struct citron_claim reader = j->claims[i];
    struct citron_batch b;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_FLUX);
    reader.shared = true;
    if (claim_internal(&reader))
        batch_mfaa(&b, job_claim_readers(j, &reader), UINT64_C(1) << READERS_MAX, READERS_TOPS);
    else
        batch_mcas(&b, job_node(j, tree_parent(reader.node)), 0, 0, NODE_BELOW, NODE_BELOW);
    citron_add_known(j, &b, &reader);
    return run_surely(j, &b);
}

/* No longer counted as a writer. The first batch must not be repeated, the turn may be passed on twice. */
static int remove_writer(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims[i], was = *c;
    uint64_t mask = claim_internal(c) ? 0 : bounds_mask(c->ticket), turn = (uint64_t)c->ticket << NODE_TCNT;
    uint64_t next = (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT | NODE_SHARED;
    int rc = 0;
    for (bool first = true; first || rc; first = false) {
        struct citron_batch b;
        batch_start(&b);
        for (unsigned n = 0; n < 4 && was.all && first; n++)
            batch_mcas(&b, job_node(j, tree_child(c->node, n)), UINT64_MAX, UINT64_MAX, 0, UINT64_MAX);
        if (claim_internal(c))
            batch_mcas(&b, job_claim_node(j, c), turn, NODE_T_MASK, next, NODE_T_MASK | NODE_OCC | NODE_SHARED);
        else if (first)
            batch_mcas(&b, job_node(j, c->node), mask, mask, 0, mask);
        if (first)
            citron_add_unknown(j, &b, &was);
        c->shared = true;
        c->all = false;
        job_say(j, &b, i, i + 1, CLAIM_HELD);
        rc = job_run(j, &b);
        if (rc && seat_retry(j->seat, rc))
            return -PAWL_ELOST;
    }
    citron_wake_after(j, &was);
    return 0;
}

static int downgrade(struct citron_job *j)
{
    int rc = take_places(j);
    for (unsigned i = 0; i < j->count && !rc; i++)
        rc = add_reader(j, i);
    if (!rc)
        rc = job_new_token(j);
    for (unsigned i = 0; i < j->count && !rc; i++)
        rc = remove_writer(j, i);
    return rc;
}

int citron_convert(const struct seat *seat, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    struct citron_job j;
    if (mode == h->mode)
        return 0;
    int rc = job_resume(&j, seat, h, deadline);
    if (!rc)
        rc = mode == PAWL_SHARED ? downgrade(&j) : upgrade(&j);
    if (rc)
        return outcome(seat, rc);
    h->mode = mode;
    h->token = seat->space->token_base + j.token;
    job_keep(&j);
    return 0;
}

/* ---- cutting in two ---- */

static bool needed(const struct citron_job *j, const struct citron_claim *c, uint64_t start, uint64_t end)
{
    return claim_start(j, c) < end && claim_end(c) > start;
}

/* The right half's claims. One that both halves need becomes two, but a turn cannot be shared. */
static int deal(const struct citron_job *left, struct citron_job *right, uint64_t at, const struct hold *h)
{
    for (unsigned i = 0; i < left->count; i++) {
        struct citron_claim c = left->claims[i];
        if (!needed(left, &c, at, h->end))
            continue;
        c.cut = needed(left, &c, h->start, at);
        if (c.cut && claim_internal(&c) && !c.shared)
            return -PAWL_ELIMIT; /* its units are locked as one */
        if (c.cut && !claim_internal(&c))
            c.ticket = bounds_of(c.node, at, claim_end(&c));
        right->claims[right->count++] = c;
    }
    return 0;
}

/* What has become two counts twice. */
static int count_cuts(struct citron_job *right)
{
    int rc = 0;
    for (unsigned i = 0; i < right->count && !rc; i++) {
        struct citron_claim *c = &right->claims[i];
        struct citron_batch b;
        if (!c->cut)
            continue;
        batch_start(&b);
        if (claim_internal(c))
            batch_mfaa(&b, job_claim_readers(right, c), UINT64_C(1) << READERS_MAX, READERS_TOPS);
        else if (c->shared)
            rc = citron_take_place(right, c);
        citron_add_high(right, &b, c, true);
        citron_add_known(right, &b, c);
        if (!rc)
            rc = run_surely(right, &b);
    }
    return rc;
}

/* Readers' places name the hold. */
static int rename_places(struct citron_job *left, struct citron_job *right)
{
    for (unsigned i = 0; i < right->count; i++) {
        struct citron_claim *c = &right->claims[i];
        if (claim_internal(c) || !c->shared || c->cut)
            continue;
        int rc = citron_swap_place(left, c, citron_place_word(left, c), citron_place_word(right, c));
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What the left half keeps. The bits of a leaf that was cut stay: some of them are the right half's now. */
static int keep_left(struct citron_job *l, uint64_t start, uint64_t at)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < l->count; i++)
        if (needed(l, &l->claims[i], start, at))
            l->claims[kept++] = l->claims[i];
    l->count = kept;
    for (unsigned i = 0; i < l->count; i++) {
        struct citron_claim *c = &l->claims[i], was = *c;
        if (claim_internal(c) || claim_end(c) <= at)
            continue;
        c->ticket = bounds_of(c->node, claim_start(l, c), at);
        int rc = c->shared ? citron_swap_place(l, c, citron_place_word(l, &was), citron_place_word(l, c)) : 0;
        if (rc < 0)
            return rc;
    }
    return say_all(l, CLAIM_HELD);
}

int citron_split(const struct seat *seat, struct hold *h, uint64_t at, struct hold *right)
{
    struct citron_job l, r;
    int rc = job_resume(&l, seat, h, DEADLINE_NEVER);
    if (rc)
        return rc;
    job_start(&r, seat, right, DEADLINE_NEVER);
    r.config = l.config;
    rc = deal(&l, &r, at, h);
    if (!rc)
        rc = say_all(&r, CLAIM_FLUX); /* intent before effect (I5) */
    if (!rc)
        rc = count_cuts(&r);
    if (rc == -PAWL_ELIMIT && r.published) { /* no place left for a reader: what was counted for it so far is nobody's */
        int back = say_all(&r, CLAIM_WAIT);
        return back ? back : rc;
    }
    if (!rc)
        rc = say_all(&r, CLAIM_HELD);
    if (!rc)
        rc = rename_places(&l, &r);
    if (!rc)
        rc = keep_left(&l, h->start, at);
    if (rc)
        return outcome(seat, rc);
    h->end = at;
    job_keep(&l);
    job_keep(&r);
    return 0;
}
