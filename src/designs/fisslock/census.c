/* SPDX-License-Identifier: Apache-2.0 */
/* A census: an agent whose decider has given out ordinals that it never heard of asks every host who holds by them.
 *
 * A host answers with those that hold, and promises that none of its requests will take a GRANT by the others (request.c,
 * credible()). When all have answered, an ordinal that nobody named is nobody's. One at a time per host: it is rare. */
#include "designs/fisslock/pool.h"

#define CENSUS_SPAN 64 /* ordinals at once: what an agent's window has, and an answer holds */
static_assert(FISSION_ENTRIES_MAX >= CENSUS_SPAN, "an answer has room");

static void ask(struct event *e, uint16_t machine, uint32_t slot)
{
    struct fiss_census *c = &e->h->census;
    struct fission_packet *p = pool_packet(e, FISSION_CENSUS, c->index, c->id, 0);
    if (!p)
        return;
    p->head.to = (struct place){machine, PORT_POOL};
    p->term = c->term;
    p->inca = c->all ? 0 : c->low;
    p->stamp = c->all ? slot : c->high;
}

static bool has_answered(const struct fiss_census *c, uint16_t machine)
{
    return c->answered[machine / 64] >> (machine % 64) & 1;
}

/* This host's own answer: who holds by these ordinals, and the promise. */
static unsigned answer(struct event *e, uint64_t index, uint32_t term, uint16_t low, uint16_t high,
                       struct fission_entry entries[CENSUS_SPAN])
{
    struct fisslock_host *h = e->h;
    unsigned count = 0;
    for (struct fiss_request *r = pool_request_first(h, index); r; r = pool_request_next(h, r)) {
        bool holds = r->state == FISS_HELD || r->state == FISS_UPGRADING;
        if (holds && r->term == term && r->ordinal >= low && r->ordinal <= high && count < CENSUS_SPAN) {
            entries[count++] = (struct fission_entry){r->nonce, request_place(h, r), r->ordinal, r->mode, r->priority};
        } else if (r->state == FISS_WAITING && (!r->barred || r->barred_term != term || r->barred_inca < high)) {
            edit(e, r);
            r->barred = true;
            r->barred_term = term;
            r->barred_inca = high;
        }
    }
    return count;
}

/* The same about all earlier tenures, from a slot on; *next is where to go on, or NONE. */
static unsigned answer_all(struct event *e, uint64_t index, uint32_t term, uint32_t *next,
                           struct fission_entry entries[CENSUS_SPAN])
{
    struct fisslock_host *h = e->h;
    unsigned count = 0;
    uint32_t from = *next;
    *next = NONE;
    for (struct fiss_request *r = pool_request_first(h, index); r; r = pool_request_next(h, r))
        if (r->state == FISS_WAITING) {
            edit(e, r);
            r->floor = term;
            r->floored = true;
        }
    for (uint32_t slot = from; slot < h->request_count; slot++) {
        const struct fiss_request *r = host_request(h, slot);
        if (r->index != index || !request_holds(h, r->nonce) || r->term == term)
            continue;
        if (count == CENSUS_SPAN) {
            *next = slot;
            break;
        }
        entries[count++] = (struct fission_entry){r->nonce, request_place(h, r), 0, r->mode, r->priority};
    }
    return count;
}

/* False: there is no room for one of them, so that the answer counts for nothing. */
static bool take(struct event *e, struct agent *a, const struct fission_entry *entries, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fission_entry entry = entries[i];
        struct asking asking = {entry.nonce, entry.client, FISSION_SHARED, entry.priority, false};
        if (!fission_place_exists(entry.client, &e->h->rules) || entry.client.machine == MACHINE_SWITCH)
            e->h->drops.bad++;
        else if (!entry.inca || !agent_knows(a, entry.inca)) {
            if (!agent_hold(e, a, &asking, entry.inca))
                return false;
            if (entry.inca)
                agent_know(e, a, entry.inca);
        }
    }
    return true;
}

static void finish(struct event *e, struct agent *a)
{
    edit(e, &e->h->census);
    struct fiss_census *c = &e->h->census;
    if (c->all) {
        edit(e, a);
        a->doubt = false;
    }
    for (uint32_t ordinal = c->low; !c->all && ordinal <= c->high; ordinal++)
        agent_know(e, a, ordinal);
    c->id = 0;
    timers_stop(host_timers(e->h), timer_of_census(e->h), e->out);
    agent_serve(e, a);
}

static struct agent *census_agent(struct event *e)
{
    const struct fiss_census *c = &e->h->census;
    struct agent *a = c->id ? pool_agent_of(e->h, c->index) : NULL;
    return a && a->state == AGENT_LIVE && a->term == c->term ? a : NULL;
}

void census_due(struct event *e)
{
    edit(e, &e->h->census);
    struct fisslock_host *h = e->h;
    struct fiss_census *c = &h->census;
    if (!census_agent(e)) {
        c->id = 0;
        return;
    }
    for (uint16_t m = 1; m <= h->config.machines; m++)
        if (!has_answered(c, m))
            ask(e, m, 0);
    c->pause_ns = pool_pause(h, c->pause_ns);
    timers_set(host_timers(h), timer_of_census(h), e->now + c->pause_ns, e->out);
}

void census_start(struct event *e, struct agent *a)
{
    edit(e, &e->h->census);
    struct fisslock_host *h = e->h;
    struct fiss_census *c = &h->census;
    if (census_agent(e))
        return; /* one at a time */
    h->counts.censuses++;
    *c = (struct fiss_census){.id = h->nonce_high | ++h->serial << NONCE_REQUEST_BITS, .index = a->index, .term = a->term};
    c->low = (uint16_t)(a->known + 1);
    c->high = (uint16_t)min_u64(a->seen, (uint64_t)a->known + CENSUS_SPAN);
    c->left = h->config.machines;
    c->all = a->doubt;

    struct fission_entry entries[CENSUS_SPAN];
    for (uint32_t slot = 0; slot != NONE;) {
        unsigned count =
            c->all ? answer_all(e, c->index, c->term, &slot, entries) : answer(e, c->index, c->term, c->low, c->high, entries);
        if (!c->all)
            slot = NONE;
        if (!take(e, a, entries, count)) {
            c->id = 0;
            return;
        }
    }
    c->answered[h->machine / 64] |= UINT64_C(1) << (h->machine % 64);
    if (--c->left == 0)
        finish(e, a);
    else
        census_due(e);
}

static void on_census(struct event *e, const struct fission_packet *p)
{
    struct fission_entry entries[CENSUS_SPAN];
    bool all = p->inca == 0;
    uint32_t next = all ? p->stamp : NONE;
    if (!all && (p->stamp < p->inca || p->stamp - p->inca >= CENSUS_SPAN || p->stamp > FISSION_INCA_MAX)) {
        e->h->drops.bad++;
        return;
    }
    unsigned count = all ? answer_all(e, p->head.index, p->term, &next, entries)
                         : answer(e, p->head.index, p->term, p->inca, (uint16_t)p->stamp, entries);
    struct fission_packet *reply = pool_packet(e, FISSION_ANSWER, p->head.index, p->head.nonce, count);
    if (!reply)
        return;
    reply->head.to = p->head.from;
    reply->term = p->term;
    reply->stamp = next;
    memcpy(pool_entries(reply), entries, count * sizeof entries[0]);
}

static void on_answer(struct event *e, const struct fission_packet *p)
{
    edit(e, &e->h->census);
    struct fiss_census *c = &e->h->census;
    struct agent *a = census_agent(e);
    uint16_t machine = p->head.from.machine;
    if (!a || p->head.nonce != c->id || p->head.index != c->index || machine > e->h->config.machines || has_answered(c, machine)) {
        e->h->drops.stale++;
        return;
    }
    if (!take(e, a, (const struct fission_entry *)(p + 1), p->count))
        return;
    if (c->all && p->stamp != NONE && p->stamp) { /* it has more */
        ask(e, machine, p->stamp);
        return;
    }
    c->answered[machine / 64] |= UINT64_C(1) << (machine % 64);
    if (--c->left == 0)
        finish(e, a);
}

void census_packet(struct event *e, const struct fission_packet *p)
{
    if (p->head.type == FISSION_CENSUS)
        on_census(e, p);
    else
        on_answer(e, p);
}
