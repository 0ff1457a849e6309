/* SPDX-License-Identifier: Apache-2.0 */
/* How an agent comes and goes. A tenure begins with a GRANT that brings the agent, and ends with FREE or with a GRANT to the next.
 */
#include "designs/fisslock/pool.h"

/* ---- the end ---- */

static void say_free(struct event *e, struct agent *a)
{
    struct fission_packet *p = pool_packet(e, FISSION_FREE, a->index, 0, 0);
    if (!p)
        return;
    p->head.from.port = a->pause_ns ? PORT_POOL : e->port;
    p->term = a->term;
    p->inca = a->sent_inca;
    p->old_mode = a->right;
}

/* The queue goes with it, as much as fits; the rest is sent on when the agent has arrived: see tenure_end(). */
static void say_move(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    bool to_itself = a->to == h->machine;
    unsigned entries = to_itself ? 0 : (unsigned)min_u64(a->waiters.count, FISSION_ENTRIES_MAX);
    const struct node *grantee = a->grantee == NONE ? NULL : host_node(h, a->grantee);
    struct fission_packet *p = pool_packet(e, FISSION_GRANT, a->index, grantee ? grantee->nonce : 0, entries);
    if (!p)
        return;
    p->head.from.port = a->pause_ns ? PORT_POOL : e->port;
    p->head.to.machine = a->to;
    p->head.to.port = grantee && !a->pause_ns ? grantee->client.port : PORT_POOL; /* first to the process, which may be gone */
    p->client = p->head.to;                                                       /* where the agent goes */
    p->term = a->term;
    p->inca = a->sent_inca;
    p->mode = a->to_mode;
    p->old_mode = a->right;
    p->flags = FISSION_AGENT;
    if (a->to_mode == FISSION_SHARED && a->writers && host_is(h, FISSION_WRITE_PREFERRING))
        p->flags |= FISSION_WRITERS;
    uint32_t node = a->waiters.head;
    for (unsigned i = 0; i < entries; i++, node = host_node(h, node)->next) {
        const struct node *n = host_node(h, node);
        pool_entries(p)[i] = (struct fission_entry){n->nonce, n->client, 0, n->mode, n->priority};
    }
}

void tenure_say_again(struct event *e, struct agent *a)
{
    if (a->state == AGENT_FREEING)
        say_free(e, a);
    else
        say_move(e, a);
    edit(e, a);
    a->pause_ns = pool_pause(e->h, a->pause_ns);
    timers_set(host_timers(e->h), timer_of_agent(e->h, a), e->now + a->pause_ns, e->out);
}

static void leave(struct event *e, struct agent *a, enum agent_state state)
{
    edit(e, a);
    keep_forget(e, a);
    a->state = (uint8_t)state;
    a->sent_inca = a->known;
    a->pause_ns = 0;
    tenure_say_again(e, a);
}

void tenure_free(struct event *e, struct agent *a)
{
    leave(e, a, AGENT_FREEING);
}

void tenure_move(struct event *e, struct agent *a, uint32_t grantee, uint16_t to, uint8_t mode)
{
    edit(e, a);
    a->grantee = grantee;
    a->grantee_holds = false;
    a->to = to;
    a->to_mode = mode;
    leave(e, a, AGENT_MOVING);
}

/* Refused: somebody holds whom the agent does not know of. It stays (4.2). */
static void restore(struct event *e, struct agent *a, uint64_t word)
{
    struct fisslock_host *h = e->h;
    h->counts.denied++;
    edit(e, a);
    a->state = AGENT_LIVE;
    a->seen = (uint16_t)max_u64(a->seen, fission_word_inca(word)); /* the refusal may have been overtaken */
    if (MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_CENSUS)) {
        a->known = a->seen;
        a->known_bits = 0;
    }
    if (a->grantee != NONE) {
        struct node *n = host_node(h, a->grantee);
        edit(e, n);
        if (a->grantee_holds) {
            pool_list_append(e, &a->holders, a->grantee);
            n->mode = FISSION_SHARED;
            a->upgrader = (struct who){n->nonce, n->client.machine};
        } else {
            pool_list_push(e, &a->waiters, a->grantee);
            a->writers += n->mode == FISSION_EXCLUSIVE;
        }
        a->grantee = NONE;
    }
    a->pause_ns = 0;
    timers_stop(host_timers(h), timer_of_agent(h, a), e->out);
    agent_serve(e, a);
}

/* The tenure is over, and known to be. What is late from it can do no harm any more: requests that wait here take no GRANT of it,
 * and packets that were sent back before do not count as proof that the agent is here. */
void tenure_end(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (struct fiss_request *r = pool_request_first(h, a->index); r; r = pool_request_next(h, r))
        if (r->state == FISS_WAITING) {
            edit(e, r);
            r->floor = (a->term + 1) & FISSION_TERM_MASK;
            r->floored = true;
        }
    edit(e, host_ends(h, a->index));
    ++*host_ends(h, a->index);
    keep_end(e, a);
    if (a->state == AGENT_MOVING && a->to != h->machine) {
        /* Those for whom the packet had no room (pitfall 6). Should this be lost, they ask again themselves. */
        uint32_t node = a->waiters.head;
        for (unsigned i = 0; node != NONE; i++, node = host_node(h, node)->next) {
            const struct node *n = host_node(h, node);
            if (i < FISSION_ENTRIES_MAX)
                continue;
            struct fission_packet *p = pool_packet(e, FISSION_ACQUIRE, a->index, n->nonce, 0);
            if (!p)
                break;
            p->client = n->client;
            p->mode = n->mode;
            p->priority = n->priority;
            p->flags = FISSION_BOUNCED;
            p->bouncer = h->machine;
            p->stamp = *host_ends(h, a->index);
        }
    }
    pool_agent_free(e, a);
}

void tenure_answer(struct event *e, const struct fission_packet *p)
{
    struct agent *a = pool_agent_of(e->h, p->head.index);
    if (!a || a->state != AGENT_FREEING || a->term != p->term || a->sent_inca != p->inca)
        e->h->drops.stale++;
    else if (p->flags & FISSION_DENIED)
        restore(e, a, p->word);
    else if (p->flags & FISSION_DONE)
        tenure_end(e, a);
}

/* The agent has arrived where it was sent. */
void tenure_ack(struct event *e, const struct fission_packet *p)
{
    struct agent *a = pool_agent_of(e->h, p->head.index);
    if (a && a->state == AGENT_MOVING && a->term == p->term && a->to == p->head.from.machine)
        tenure_end(e, a);
    else
        e->h->drops.stale++;
}

/* ---- the beginning ---- */

void tenure_begin(struct event *e, struct agent *a, uint64_t word, uint64_t token)
{
    bool shared = word & FISSION_WORD_SHARED;
    edit(e, a);
    a->state = AGENT_LIVE;
    a->right = shared ? FISSION_SHARED : FISSION_EXCLUSIVE;
    a->term = fission_word_term(word);
    a->token = token;
    a->known = shared; /* ordinal 1 is this host's */
    a->known_bits = 0;
    a->seen = shared ? (uint16_t)max_u64(1, fission_word_inca(word)) : 0;
    a->granted = 0;
    a->starves = false;
    a->doubt = false;
    a->pause_ns = 0;
    timers_stop(host_timers(e->h), timer_of_agent(e->h, a), e->out);
}

static void say_arrived(struct event *e, const struct fission_packet *grant)
{
    struct fission_packet *p = pool_packet(e, FISSION_ACK, grant->head.index, grant->head.nonce, 0);
    if (!p)
        return;
    p->head.to = grant->head.from;
    p->term = grant->term;
    p->flags = FISSION_AGENT;
}

/* What it held by an earlier tenure, it holds by this one: the ordinal it had there is none here. */
static void into_tenure(struct event *e, struct fiss_request *r, const struct agent *a)
{
    edit(e, r);
    if (r->term != a->term)
        r->ordinal = 0;
    r->term = a->term;
}

/* A request that was queued gets the lock with the agent, one that is upgraded keeps it. */
static void receive(struct event *e, struct agent *a, uint64_t nonce, uint8_t mode)
{
    struct fisslock_host *h = e->h;
    struct fiss_request *r = pool_request_of(h, nonce);
    if (!r || r->index != a->index || (r->state != FISS_WAITING && !request_holds(h, nonce)))
        return;
    /* An upgrade that was given up meanwhile leaves a shared holder in an exclusive tenure. */
    bool gets = r->state == FISS_WAITING || (r->state == FISS_UPGRADING && mode == FISSION_EXCLUSIVE);
    uint8_t holds = gets ? mode : r->mode;
    if (!agent_hold(e, a, &(struct asking){nonce, request_place(h, r), holds, r->priority, false},
                    r->term == a->term ? r->ordinal : 0))
        return;
    if (gets) {
        if (a->right == FISSION_EXCLUSIVE)
            a->granted++; /* tenure_begin() has announced it */
        request_grant(e, r, holds, agent_token(a), a->term, a->right == FISSION_SHARED);
    }
    into_tenure(e, r, a);
}

static void know_own(struct event *e, struct agent *a, const struct fiss_request *r)
{
    if (r->term == a->term && r->ordinal)
        agent_know(e, a, r->ordinal);
}

/* Requests of this host that the decider granted before the agent came. */
static void claim_own(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (struct fiss_request *r = pool_request_first(h, a->index); r; r = pool_request_next(h, r))
        if (request_holds(h, r->nonce) && r->term == a->term) {
            know_own(e, a, r);
            agent_hold(e, a, &(struct asking){r->nonce, request_place(h, r), r->mode, r->priority, false}, r->ordinal);
        }
}

void tenure_arrived(struct event *e, struct agent *a, uint64_t word, uint64_t token)
{
    struct fisslock_host *h = e->h;
    uint32_t grantee = a->grantee;
    edit(e, a);
    a->grantee = NONE;
    tenure_begin(e, a, word, token);
    for (uint32_t i = a->holders.head; i != NONE; i = host_node(h, i)->next) {
        struct fiss_request *r = pool_request_of(h, host_node(h, i)->nonce);
        if (r)
            into_tenure(e, r, a);
    }
    claim_own(e, a);
    if (grantee != NONE) {
        uint64_t nonce = host_node(h, grantee)->nonce;
        pool_node_free(e, grantee);
        receive(e, a, nonce, a->right);
    }
    agent_serve(e, a);
}

/* The queue that came with the agent, without those that are known already. */
static void take_queue(struct event *e, struct agent *a, const struct fission_packet *p)
{
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    for (unsigned i = 0; i < p->count; i++) {
        struct fission_entry entry = entries[i];
        if ((entry.mode != FISSION_SHARED && entry.mode != FISSION_EXCLUSIVE) || entry.client.machine == MACHINE_SWITCH ||
            !fission_place_exists(entry.client, &e->h->rules)) {
            e->h->drops.bad++;
            continue;
        }
        struct who who = {entry.nonce, entry.client.machine};
        if (pool_list_find(e->h, &a->holders, who) == NONE && pool_list_find(e->h, &a->waiters, who) == NONE)
            agent_queue(e, a, &(struct asking){entry.nonce, entry.client, entry.mode, entry.priority, false});
    }
}

/* Whom a GRANT with agent can be for: one who waits, or one who holds and asked for more. */
static bool expected(struct fisslock_host *h, const struct fission_packet *p, uint32_t term)
{
    const struct fiss_request *r = pool_request_of(h, p->head.nonce);
    if (!r || r->index != p->head.index || (p->mode == FISSION_SHARED) != !!(p->word & FISSION_WORD_SHARED))
        return false;
    if (r->state == FISS_WAITING)
        return !r->floored || !fission_term_after(r->floor, term) || MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR);
    return (r->state == FISS_HELD || r->state == FISS_UPGRADING) && r->term == p->term && p->head.from.machine != MACHINE_SWITCH;
}

void tenure_grant(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct agent *a = pool_agent_of(h, p->head.index);
    uint32_t term = fission_word_term(p->word);
    bool by_switch = p->head.from.machine == MACHINE_SWITCH;

    if (p->flags & (FISSION_DENIED | FISSION_DONE)) { /* on its way back */
        if (!a || a->state != AGENT_MOVING || a->term != p->term || a->sent_inca != p->inca)
            h->drops.stale++;
        else if (p->flags & FISSION_DENIED)
            restore(e, a, p->word);
        else
            tenure_end(e, a);
        return;
    }
    if (a && a->state == AGENT_MOVING && a->to == h->machine && term == ((a->term + 1) & FISSION_TERM_MASK)) {
        tenure_arrived(e, a, p->word, p->token);
        return;
    }
    if (a && a->state != AGENT_LIVE && fission_term_after(term, a->term)) {
        tenure_end(e, a); /* otherwise this one would not have begun */
        a = NULL;
    }
    if (!by_switch)
        say_arrived(e, p);
    if (a) { /* here already: adopted, or this is a duplicate */
        if (a->state == AGENT_LIVE && a->term == term && a->adopted) {
            edit(e, a);
            a->adopted = false;
            take_queue(e, a, p);
            agent_serve(e, a);
        }
        return;
    }
    if (!expected(h, p, term) || !(a = pool_agent_new(e, p->head.index))) {
        /* Too late, or for one who has gone: the tenure may be over, or nobody's. */
        h->counts.orphans++;
        tenure_look(e, p->head.index);
        return;
    }
    ++*(by_switch ? &h->counts.by_switch : &h->counts.by_agent);
    tenure_begin(e, a, p->word, p->token);
    keep_begin(e, a, by_switch);
    claim_own(e, a);
    receive(e, a, p->head.nonce, p->mode);
    take_queue(e, a, p);
    agent_serve(e, a);
}

/* ---- agents that nobody told us of ---- */

/* Asks the decider. If the answer finds this host as it is now, and says that the agent is here, it is: see forward_packet(). */
void tenure_look(struct event *e, uint64_t index)
{
    struct fission_packet *p = pool_packet(e, FISSION_LOOK, index, 0, 0);
    if (!p)
        return;
    p->flags = FISSION_BOUNCED;
    p->bouncer = e->h->machine;
    p->stamp = *host_ends(e->h, index);
}

/* The tenure may be one that this host had before it lost its memory or its lease, so that others may hold by grants of an agent
 * that is no more. It gets a new number, and with it whoever adopts it knows that it must ask. */
static void say_take(struct event *e, uint64_t index, uint32_t term)
{
    struct fisslock_host *h = e->h;
    struct fission_packet *p = pool_packet(e, FISSION_TAKE, index, 0, 0);
    if (!p)
        return;
    for (struct fiss_request *r = pool_request_first(h, index); r; r = pool_request_next(h, r))
        if (r->state == FISS_WAITING) { /* from now on that tenure is not ours */
            edit(e, r);
            r->floor = (term + 1) & FISSION_TERM_MASK;
            r->floored = true;
        }
    p->client = (struct place){h->machine, PORT_POOL};
    p->term = term;
    p->old_mode = FISSION_EXCLUSIVE;
    p->flags = FISSION_BOUNCED;
    p->bouncer = h->machine;
    p->stamp = *host_ends(h, index);
}

/* The agent is here, in this tenure. Is it the one that was asked for? Which that was is remembered, so that none is used that a
 * request under way may end. */
bool tenure_taken(struct event *e, uint64_t index, uint32_t term)
{
    struct take *t = &e->h->takes[mix64(index) % TAKES];
    bool same = t->asked && t->index == index;
    if (same && term == ((t->term + 1) & FISSION_TERM_MASK)) {
        edit(e, t);
        t->asked = false;
        return true;
    }
    /* If two took turns here, neither would ever get what it asked for. */
    if (t->asked && e->now - t->since < e->h->config.retry_ns && (!same || t->term == term))
        return false;
    edit(e, t);
    *t = (struct take){.index = index, .since = e->now, .term = term, .asked = true};
    say_take(e, index, term);
    return false;
}

/* The tenure is this host's, and the GRANT that should have told it was lost or is late. It had no holder when it began but the one
 * that the GRANT is for, who is here: one of those who wait, one who holds and wanted more, or one who has gone. Who was queued
 * asks again. */
struct agent *tenure_adopt(struct event *e, uint64_t index, uint64_t word, uint64_t token)
{
    struct fisslock_host *h = e->h;
    struct agent *a = pool_agent_new(e, index);
    if (!a)
        return NULL;
    h->counts.adopted++;
    tenure_begin(e, a, word, token);
    a->adopted = true;
    a->doubt = (word & FISSION_WORD_TAKEN) && a->right == FISSION_SHARED && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_DOUBT);
    for (struct fiss_request *r = pool_request_first(h, index); r; r = pool_request_next(h, r)) {
        if (request_holds(h, r->nonce)) {
            know_own(e, a, r);
            receive(e, a, r->nonce, a->right);
        } else if (r->state == FISS_WAITING && !r->try) {
            uint32_t node = pool_node_new(e, true);
            if (node == NONE)
                break;
            *host_node(h, node) = (struct node){r->nonce, e->now, NONE, request_place(h, r), 0, r->mode, r->priority};
            a->writers += r->mode == FISSION_EXCLUSIVE;
            if (host_is(h, FISSLOCK_PRIORITY))
                pool_list_insert(e, &a->waiters, node);
            else
                pool_list_push(e, &a->waiters, node); /* the latest comes first here */
        }
    }
    agent_watch(e, a); /* the packet by which it was found may be news of nothing else, and who waits here will not ask again */
    return a;
}
