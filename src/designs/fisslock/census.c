/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's upkeep while requests wait: it asks the holders that it knows whether they still hold, and the writer that keeps
 * readers out whether it still waits. It takes a census of holders that it does not know.
 *
 * A census: the decider has given out ordinals of which the agent never heard. The agent asks every host for its holders by these
 * ordinals. A host answers with them, and promises that its waiting requests will take no GRANT by the others (credible() in
 * host.c). When all hosts have answered, an ordinal that no host named has no holder.
 *
 * One at a time per host. After a host or a decider was lost, many agents of a host need one, and their timers may run in step. So
 * they stand in line, and when a census is over the next one begins at once: they wait for each other's round trips, not for each
 * other's timers (I9). A host that does not answer holds up all of them, but each of them needs its answer. */
#include "designs/fisslock/host.h"

#define CENSUS_SPAN 64 /* ordinals at once: the width of an agent's window, and they fit into an answer */
static_assert(FISSION_ENTRIES_MAX >= CENSUS_SPAN, "an answer has room");
#define STARVE_FACTOR 8 /* retransmission times until a writer behind readers is taken to starve */

static void ask(struct event *e, uint16_t machine, uint32_t from)
{
    struct fiss_census *c = &e->h->census;
    struct fission_packet *p = pool_packet(e, FISSION_CENSUS, c->index, c->id, 0);
    if (!p)
        return;
    p->head.to = (struct place){machine, PORT_POOL};
    p->term = c->term;
    p->inca = c->all ? 0 : c->low;
    p->stamp = c->all ? from : c->high;
}

/* ---- the line ---- */

static bool needs_census(const struct agent *a)
{
    bool places = a->closed && a->doubt && a->waiters.count; /* without the holders it is not known how many are taken */
    return a->state == AGENT_LIVE && (!a->holders.count || a->upgrader.machine || places) && !agent_accounted(a);
}

static void stand_in_line(struct event *e, struct agent *a)
{
    if (a->in_line)
        return;
    edit(e, a);
    a->in_line = true;
    pool_chain_append(e, CHAIN_CENSUS, a);
}

void census_forget(struct event *e, struct agent *a)
{
    if (!a->in_line)
        return;
    edit(e, a);
    a->in_line = false;
    pool_chain_take(e, CHAIN_CENSUS, a);
}

/* ---- a census ---- */

static bool has_answered(const struct fiss_census *c, uint16_t machine)
{
    return c->answered[machine / 64] >> (machine % 64) & 1;
}

static struct fission_entry entry_of(struct fisslock_host *h, const struct fiss_request *r, uint16_t ordinal)
{
    return (struct fission_entry){r->nonce, request_place(h, r), r->limit ? r->limit : ordinal, r->limit ? FISSION_PLACE : r->mode,
                                  r->priority};
}

/* This host's answer: its holders by these ordinals, and the promise. */
static unsigned answer(struct event *e, uint64_t index, uint32_t term, uint16_t low, uint16_t high,
                       struct fission_entry entries[CENSUS_SPAN])
{
    struct fisslock_host *h = e->h;
    unsigned count = 0;
    for (struct fiss_request *r = pool_request_first(h, index); r; r = pool_request_next(h, r)) {
        if (request_is_held(r) && r->term == term && r->ordinal >= low && r->ordinal <= high && count < CENSUS_SPAN) {
            entries[count++] = entry_of(h, r, r->ordinal);
        } else if (r->state == FISS_WAITING &&
                   (!r->barred || fission_term_after(term, r->barred_term) || (r->barred_term == term && r->barred_inca < high))) {
            edit(e, r);
            r->barred = true;
            r->barred_term = term;
            r->barred_inca = high;
        }
    }
    return count;
}

/* The same for all earlier tenures, from a request on; *next is where to go on, or NONE. */
static unsigned answer_all(struct event *e, uint64_t index, uint32_t term, uint32_t *next,
                           struct fission_entry entries[CENSUS_SPAN])
{
    struct fisslock_host *h = e->h;
    unsigned count = 0;
    uint32_t from = *next;
    *next = NONE;
    pool_request_floor(e, index, term);
    for (uint32_t i = from; i < h->request_count; i++) {
        const struct fiss_request *r = host_request(h, i);
        if (r->index != index || !request_holds(h, r->nonce) || r->term == term)
            continue;
        if (count == CENSUS_SPAN) {
            *next = i;
            break;
        }
        entries[count++] = entry_of(h, r, 0);
    }
    return count;
}

/* False: there is no room for one of them, so that the answer does not count. */
static bool take(struct event *e, struct agent *a, const struct fission_entry *entries, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fission_entry entry = entries[i];
        uint16_t ordinal = entry.mode == FISSION_PLACE ? 0 : entry.inca;
        struct asking asking;
        if (!places_read(&entry, &asking) || !fission_place_exists(entry.client, &e->h->rules) ||
            entry.client.machine == MACHINE_SWITCH) {
            e->h->drops.bad++;
            continue;
        }
        asking.mode = FISSION_SHARED;
        if (ordinal && agent_knows(a, ordinal))
            continue;
        if (!agent_hold(e, a, &asking, ordinal))
            return false;
        if (ordinal)
            agent_know(e, a, ordinal);
    }
    return true;
}

static void finish(struct event *e, struct agent *a)
{
    assert(!e->h->census.left); /* I1: every host has answered */
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
    if (needs_census(a))
        stand_in_line(e, a); /* there are more ordinals */
}

static struct agent *census_agent(struct event *e)
{
    const struct fiss_census *c = &e->h->census;
    struct agent *a = c->id ? pool_agent_of(e->h, c->index) : NULL;
    return a && a->state == AGENT_LIVE && a->term == c->term ? a : NULL;
}

static void ask_all(struct event *e)
{
    struct fisslock_host *h = e->h;
    struct fiss_census *c = &h->census;
    for (uint16_t m = 1; m <= h->config.machines; m++)
        if (!has_answered(c, m))
            ask(e, m, 0);
    c->pause_ns = pool_pause(h, c->pause_ns);
    timers_set(host_timers(h), timer_of_census(h), e->now + c->pause_ns, e->out);
}

static void census_start(struct event *e, struct agent *a)
{
    edit(e, &e->h->census);
    struct fisslock_host *h = e->h;
    struct fiss_census *c = &h->census;
    h->counts.censuses++;
    *c = (struct fiss_census){.id = h->nonce_high | ++h->serial << NONCE_REQUEST_BITS, .index = a->index, .term = a->term};
    c->low = (uint16_t)(a->known + 1);
    c->high = (uint16_t)min_u64(a->seen, (uint64_t)a->known + CENSUS_SPAN);
    c->left = h->config.machines;
    c->all = a->doubt;

    struct fission_entry entries[CENSUS_SPAN];
    for (uint32_t from = 0; from != NONE;) {
        unsigned count =
            c->all ? answer_all(e, c->index, c->term, &from, entries) : answer(e, c->index, c->term, c->low, c->high, entries);
        if (!c->all)
            from = NONE;
        if (!take(e, a, entries, count)) {
            c->id = 0;
            return;
        }
    }
    c->answered[h->machine / 64] |= UINT64_C(1) << (h->machine % 64);
    if (--c->left == 0)
        finish(e, a);
    else
        ask_all(e);
}

/* If no census is under way: that of the next agent in line. */
static void census_next(struct event *e)
{
    struct fisslock_host *h = e->h;
    while (h->chain[CHAIN_CENSUS].count && !census_agent(e)) {
        struct agent *a = host_agent(h, h->chain[CHAIN_CENSUS].first);
        census_forget(e, a);
        if (needs_census(a))
            census_start(e, a);
    }
}

void census_due(struct event *e)
{
    edit(e, &e->h->census);
    if (census_agent(e)) {
        ask_all(e);
        return;
    }
    e->h->census.id = 0; /* the agent is gone, or has heard of its holders in another way */
    census_next(e);
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
    if (c->all && p->stamp != NONE && p->stamp) { /* the host has more */
        ask(e, machine, p->stamp);
        return;
    }
    c->answered[machine / 64] |= UINT64_C(1) << (machine % 64);
    if (--c->left)
        return;
    finish(e, a);
    if (!MISTAKE(e->h->config.mistakes, FISSLOCK_MISTAKE_LINE))
        census_next(e);
}

void census_packet(struct event *e, const struct fission_packet *p)
{
    if (p->head.type == FISSION_CENSUS)
        on_census(e, p);
    else
        on_answer(e, p);
}

/* ---- an agent, from time to time ---- */

static void look_for_starving(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (a->right != FISSION_SHARED || !a->writers)
        return;
    edit(e, a);
    for (uint32_t i = a->waiters.head; i != NONE && !a->starves; i = host_node(h, i)->next)
        if (host_node(h, i)->mode == FISSION_EXCLUSIVE && e->now - host_node(h, i)->since >= STARVE_FACTOR * h->config.retry_ns)
            a->starves = true;
    /* Every time: the packet may have been lost. */
    if (a->starves || h->policy.write_preferring)
        agent_tell_writers(e, a, a->starves);
}

void agent_check_holders(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (uint32_t i = a->holders.head, next; i != NONE; i = next) {
        struct node *n = host_node(h, i);
        next = n->next;
        h->counts.checks++;
        if (n->client.machine != h->machine) {
            agent_send_grant(e, a, n, true);
        } else if (!request_holds(h, n->nonce)) {
            pool_list_take(e, &a->holders, i);
            pool_node_free(e, i);
        }
    }
}

/* The request that readers wait for, beside the holders; its machine is MACHINE_NONE if there is none. */
static struct place keeps_readers_out(struct fisslock_host *h, const struct agent *a, uint64_t *nonce)
{
    if (agent_open(h, a) || a->waiters.count == a->writers)
        return (struct place){MACHINE_NONE, 0};
    *nonce = a->upgrader.nonce;
    if (a->upgrader.machine)
        return (struct place){a->upgrader.machine, PORT_POOL};
    uint32_t i = a->waiters.head;
    while (host_node(h, i)->mode != FISSION_EXCLUSIVE)
        i = host_node(h, i)->next;
    *nonce = host_node(h, i)->nonce;
    return host_node(h, i)->client;
}

/* Readers wait for a writer that waits: does it? Its host may be lost, or the packet by which it gave up. The holders may be
 * waiting for these readers, so that the queue does not get on by itself (I9). */
static void check_writer(struct event *e, const struct agent *a)
{
    uint64_t nonce;
    struct place client = keeps_readers_out(e->h, a, &nonce);
    if (client.machine == MACHINE_NONE || client.machine == e->h->machine)
        return;
    struct fission_packet *p = pool_packet(e, FISSION_ASK, a->index, nonce, 0);
    if (!p)
        return;
    p->head.to = (struct place){client.machine, PORT_POOL};
    p->client = client;
    p->term = a->term;
}

void agent_due(struct event *e, struct agent *a)
{
    switch (a->state) {
    case AGENT_FREEING:
    case AGENT_MOVING:
        e->h->counts.retries++;
        tenure_retransmit(e, a);
        break;
    case AGENT_LIVE:
        if (a->waiters.count || a->upgrader.machine) {
            look_for_starving(e, a);
            agent_check_holders(e, a);
            check_writer(e, a);
        }
        if (needs_census(a) && census_agent(e) != a) {
            stand_in_line(e, a);
            census_next(e);
        }
        agent_serve(e, a);
        break;
    default:
        break;
    }
}
