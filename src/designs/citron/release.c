/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithm 3, and the ways back out of an acquisition. Claims go in reverse order. */
#include "designs/citron/steps.h"

#define LEAVE_TRIES_MAX 8 /* in each of them another client took or passed a turn meanwhile */

/* ---- one claim ---- */

static void add_pass_turn(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool keep_turn)
{
    uint64_t turn = (uint64_t)c->ticket << NODE_TCNT, next = (uint64_t)node_ticket_next(c->ticket) << NODE_TCNT;
    if (citron_errs(j, CITRON_BLIND_RELEASE)) { /* as printed: Occ - 1, TCnt + 1, whatever has happened since */
        batch_mfaa(b, job_claim_node(j, c), NODE_OCC | (keep_turn ? 0 : UINT64_C(1) << NODE_TCNT), NODE_TOPS);
        return;
    }
    /* Bound to the ticket: a verb that comes late, or twice, changes nothing. */
    batch_mcas(b, job_claim_node(j, c), turn, NODE_T_MASK, keep_turn ? turn : next, NODE_T_MASK | NODE_OCC);
}

static void add_release_node(const struct citron_job *j, struct citron_batch *b, unsigned i, bool keep_turn)
{
    const struct citron_claim *c = &j->claims.at[i];
    uint64_t mask = claim_internal(c) ? 0 : bounds_mask(c->ticket);
    if (claim_internal(c) && c->shared) {
        batch_mfaa(b, job_claim_readers(j, c), UINT64_C(1) << READERS_CNT, READERS_TOPS);
    } else if (claim_internal(c) && c->joint && !citron_errs(j, CITRON_BLIND_SPLIT)) {
        /* other holds of this session have the node, too: the last of them gives it back */
    } else if (claim_internal(c)) {
        for (unsigned n = 0; n < 4 && c->all; n++)
            batch_mcas(b, job_node(j, tree_child(c->node, n)), UINT64_MAX, UINT64_MAX, 0, UINT64_MAX);
        add_pass_turn(j, b, c, keep_turn);
    } else if (c->shared && c->took) {
        batch_mcas(b, citron_place_addr(j, c), citron_place_word(j, c), UINT64_MAX, 0, UINT64_MAX);
    } else if (c->took) {
        batch_mcas(b, job_node(j, c->node), mask, mask, 0, mask);
    }
    batch_tall(j, b, c, false);
}

void job_wake_after(const struct citron_job *j, const struct citron_claim *c)
{
    struct tree_node above[TREE_HEIGHT_MAX];
    if (!j->near)
        return;
    job_wake(j, job_claim_node(j, c));
    if (c->shared)
        job_wake(j, claim_internal(c) ? job_claim_readers(j, c) : citron_place_addr(j, c));
    for (unsigned i = 0; i < 4 && c->all; i++)
        job_wake(j, job_node(j, tree_child(c->node, i)));
    for (unsigned i = 0, n = claim_notified(c, above); i < n; i++)
        job_wake(j, job_known(j, above[i], c->shared).addr);
}

/* The last reader of an internal node lowers Shared, unless a turn was taken there since the node was read: then a reader may have
 * come, or a writer has lowered it. `seen` was read before the reader left. */
static void lower_flag(const struct citron_job *j, const struct citron_claim *c, uint64_t seen, uint64_t readers)
{
    uint64_t old;
    if (readers_here(readers) != 1 || !(seen & NODE_SHARED))
        return;
    fab_mcas64(j->seat->ep, job_claim_node(j, c), seen & NODE_T_MASK, NODE_T_MASK, 0, NODE_SHARED, &old);
    job_wake(j, job_claim_node(j, c)); /* if this fails, a client that waits for the flag corrects it */
}

/* ---- turns ---- */

/* Gives a ticket back: it is passed on if its turn has come, and taken back if it is the last one. Else it stays in the queue
 * without an owner, and the next client that waits behind it skips it.
 *
 * The invariant: every ticket of a queue, [TCnt, TMax), has one owner at most. Turns only go forward, so a number that was passed
 * on is not drawn again, and passing it on can be repeated. A number that was taken back is drawn by the next client. So a client
 * that does not know whether its ticket was taken back has none from then on: a ticket of that number may be another client's. If
 * it is still in the queue it has no owner. */
static int leave_queue(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims.at[i];
    fab_addr addr = job_claim_node(j, c);
    const uint64_t max = FIELD_MASK(NODE_TMAX, NODE_COUNT_BITS);
    assert(claim_internal(c) && c->state == CLAIM_TURN);
    for (unsigned n = 0; n < LEAVE_TRIES_MAX; n++) {
        uint64_t seen, old;
        uint64_t turn = (uint64_t)c->ticket << NODE_TCNT, next = node_ticket_next(c->ticket);
        int rc = fab_read64(j->seat->ep, addr, &seen);
        bool served = !rc && node_field(seen, NODE_TCNT) == c->ticket;
        bool last = !rc && !served && node_field(seen, NODE_TMAX) == next;
        if (!rc && turns_ahead(c, seen) >= node_queue(seen))
            break; /* it was passed on already, when the connection broke */
        if (served)
            rc = fab_mcas64(j->seat->ep, addr, turn, NODE_T_MASK, next << NODE_TCNT, NODE_T_MASK | NODE_OCC, &old);
        else if (last) /* DCnt and DMax both rise: no word returns */
            rc = fab_cas64(j->seat->ep, addr, seen,
                           masked_add64((seen & ~max) | (uint64_t)c->ticket << NODE_TMAX,
                                        UINT64_C(1) << NODE_DCNT | UINT64_C(1) << NODE_DMAX, NODE_TOPS),
                           &old);
        else if (!rc)
            break;
        if (!rc && (served ? node_field(old, NODE_TCNT) == c->ticket : old == seen)) {
            job_wake(j, addr);
            break;
        }
        bool doubt = rc == -FAB_EUNKNOWN;
        if (rc && (rc = seat_retry(j->seat, rc)))
            return rc;
        if (doubt && last && !citron_errs(j, CITRON_TWICE_BACK))
            break;
    }
    return job_say_surely(j, i, i + 1, CLAIM_WAIT); /* a ticket is skipped only when no claim says that it has it */
}

/* ---- ways back out of an acquisition ---- */

OWN_FRAME int job_doubt(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims.at[i];
    struct citron_batch b;
    enum claim_state then = CLAIM_WAIT;
    batch_start(&b);
    if (claim_internal(c) && c->joint) {
        /* other holds have its turn, too */
    } else if (claim_internal(c)) {
        /* A writer keeps its turn. A reader starts over: it may have passed its turn on. */
        add_pass_turn(j, &b, c, !c->shared);
        then = c->shared ? CLAIM_WAIT : CLAIM_TURN;
        c->all = false; /* bits that may have stayed have no owner */
    } else if (c->shared) {
        c->took = true;
        add_release_node(j, &b, i, false); /* the place names its owner, so this is exact */
    }
    int rc = job_run_surely(j, &b);
    if (!rc)
        rc = job_say_surely(j, i, i + 1, then);
    if (!rc)
        job_wake_after(j, c);
    return rc;
}

OWN_FRAME int job_drop(struct citron_job *j, unsigned i, bool keep_turn)
{
    struct citron_claim *c = &j->claims.at[i];
    if (c->state == CLAIM_TURN && !keep_turn)
        return leave_queue(j, i);
    if (c->state != CLAIM_HELD)
        return 0;
    if (c->joint)
        c->joint = citron_leave_joint(j, i);
    struct citron_batch b;
    bool turn = keep_turn && claim_internal(c) && !c->shared;
    unsigned seen = 0, left = 0;
    batch_start(&b);
    job_say(j, &b, i, i + 1, CLAIM_FLUX);
    if (claim_internal(c) && c->shared)
        seen = batch_read64(&b, job_claim_node(j, c));
    left = b.n;
    add_release_node(j, &b, i, turn);
    batch_notify(j, &b, c, false);
    struct citron_claim was = *c;
    c->all = false;
    job_say(j, &b, i, i + 1, turn ? CLAIM_TURN : CLAIM_WAIT);
    int rc = job_run(j, &b);
    if (rc == -FAB_EUNKNOWN) {
        *c = was;
        rc = seat_retry(j->seat, rc);
        rc = rc ? rc : job_doubt(j, i);
        if (!rc && !turn && c->state == CLAIM_TURN)
            rc = leave_queue(j, i);
        return rc;
    }
    if (rc)
        return rc;
    if (claim_internal(c) && c->shared)
        lower_flag(j, c, b.values[seen], batch_old(&b, left));
    job_wake_after(j, &was);
    return 0;
}

int job_doubt_all(struct citron_job *j, unsigned from, unsigned to)
{
    int rc = seat_retry(j->seat, -FAB_EUNKNOWN);
    for (unsigned i = from; i < to && !rc; i++)
        rc = job_doubt(j, i);
    return rc ? rc : JOB_WAITED;
}

int job_start_anew(struct citron_job *j, uint64_t config)
{
    int rc = job_drop_all(j, j->claims.base, false);
    plan_anew(j, config);
    return rc ? rc : JOB_AGAIN;
}

/* ---- a hold ---- */

static bool has_token(const struct seat *seat, const struct hold *h)
{
    return __atomic_load_n(&citron_kept(seat, h)[DESC_TOKEN], __ATOMIC_RELAXED) == h->token;
}

bool citron_holds(const struct seat *seat, const struct hold *h)
{
    return hold_is_held(seat, h) && hold_has_range(seat, h) && has_token(seat, h);
}

/* Of readers of internal nodes: the READ of the node, and the verb by which they left. */
struct left {
    bool pieces; /* there was more than one batch */
    unsigned seen[CLAIMS_MAX], op[CLAIMS_MAX];
};

/* All claims in one batch, the last one first; then the record, which makes them visible. */
static int release_batch(struct citron_job *j, struct citron_batch *b, struct left *l)
{
    struct tally t;
    t.n = 0;
    batch_start(b);
    for (unsigned i = 0, to; i < j->claims.n; i = to) { /* scale_before_release may have given back some */
        for (to = i; to < j->claims.n && j->claims.at[to].state == CLAIM_HELD; to++)
            ;
        if (to > i)
            job_say(j, b, i, to, CLAIM_FLUX);
        to += to == i;
    }
    for (unsigned i = j->claims.n; i-- > 0;) {
        const struct citron_claim *c = &j->claims.at[i];
        if (c->state != CLAIM_FLUX)
            continue;
        if (b->n + t.n + 12 + TREE_HEIGHT_MAX > FAB_BATCH_MAX) { /* many nodes, or a small m: in pieces, each exact by itself */
            batch_tally(b, &t, false);
            t.n = 0;
            int rc = job_run(j, b);
            if (rc)
                return rc;
            b->n = 0;
            l->pieces = true;
        }
        if (claim_internal(c) && c->shared)
            l->seen[i] = batch_read64(b, job_claim_node(j, c));
        l->op[i] = b->n;
        add_release_node(j, b, i, false);
        tally_add(j, &t, c);
    }
    batch_tally(b, &t, false);
    /* On shared memory the record is the session's book, too: citron_release closes it. */
    fab_addr record = space_record_addr(j->seat->space, j->seat->me->slot, j->h->record);
    if (!j->near)
        batch_write64(b, record, record_word(RECORD_FREE, j->h->serial, 0));
    return job_run(j, b);
}

OWN_FRAME static int release_surely(struct citron_job *j, unsigned i)
{
    struct citron_claim *c = &j->claims.at[i];
    for (;;) {
        struct citron_batch b;
        batch_start(&b);
        if (claim_internal(c) && !c->shared && !c->joint)
            add_pass_turn(j, &b, c, false);
        else if (!claim_internal(c) && c->shared)
            add_release_node(j, &b, i, false);
        int rc = job_run(j, &b);
        if (!rc || (rc = seat_retry(j->seat, rc)))
            return rc;
    }
}

/* The connection broke in the middle. If no step was taken, the release begins anew. Else turns are passed on, which can be
 * repeated; counts that may be too high are corrected by the client that waits for them. */
static int release_again(struct citron_job *j, bool *done)
{
    uint64_t word = 0;
    unsigned first = 0;
    int rc;
    while (j->claims.at[first].state != CLAIM_FLUX)
        first++;
    while ((rc = fab_read64(j->seat->ep, job_desc(j, first), &word)))
        if ((rc = seat_retry(j->seat, rc)))
            return rc;
    if (claim_of(word, j->height_max).state == CLAIM_HELD) {
        for (unsigned i = 0; i < j->claims.n; i++)
            if (j->claims.at[i].state == CLAIM_FLUX)
                job_know(j, i, CLAIM_HELD); /* so that FLUX is said again before the first step (I5) */
        return 0;
    }
    *done = true;
    for (unsigned i = j->claims.n; i-- > 0 && !rc;)
        if (j->claims.at[i].state == CLAIM_FLUX && (claim_internal(&j->claims.at[i]) || j->claims.at[i].shared))
            rc = release_surely(j, i);
    return rc ? rc : hold_write(j->seat, j->h, record_word(RECORD_FREE, j->h->serial, 0));
}

OWN_FRAME static int release_job(struct citron_job *j)
{
    struct citron_batch b;
    struct left l = {0};
    for (;;) {
        bool done = false;
        int rc = release_batch(j, &b, &l);
        if (!rc)
            break;
        rc = seat_retry(j->seat, rc);
        if (!rc)
            rc = release_again(j, &done);
        if (rc || done)
            return rc;
    }
    for (unsigned i = j->claims.n; i-- > 0;) {
        const struct citron_claim *c = &j->claims.at[i];
        if (c->state == CLAIM_FLUX && claim_internal(c) && c->shared && !l.pieces)
            lower_flag(j, c, b.values[l.seen[i]], batch_old(&b, l.op[i]));
        job_wake_after(j, c);
    }
    return 0;
}

int citron_release(const struct seat *seat, const struct hold *h)
{
    struct citron_job j;
    struct hold own = *h;
    uint64_t held = record_word(record_held(h->mode), h->serial, h->index);
    uint64_t leaving = record_word(record_try(h->mode), h->serial, h->index);
    if (h->record >= seat->space->record_count || !hold_has_range(seat, h) || !has_token(seat, h) ||
        !__atomic_compare_exchange_n(&seat->me->shadow[h->record], &held, leaving, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return -PAWL_ENOTOWNER;
    job_start(&j, seat, &own, DEADLINE_NEVER);
    job_recall(&j);
    for (unsigned i = 0; i < j.claims.n; i++)
        if (j.claims.at[i].joint)
            j.claims.at[i].joint = citron_leave_joint(&j, i);
    int rc = scale_before_release(&j);
    if (!rc)
        rc = release_job(&j);
    if (rc)
        return rc == -FAB_EFENCED ? -PAWL_ELOST : rc;
    if (j.near)
        hold_close(seat, h);
    else
        hold_forget(seat, h);
    return 0;
}
