/* SPDX-License-Identifier: Apache-2.0 */
/* An agent (Fig. 7): how it arrives, its holders, its queue, and which request is next. */
#include "designs/fisslock/host.h"

#define CHECK_FACTOR 4 /* retransmission times until an agent first asks its holders */

static bool here(const struct event *e, struct place client)
{
    return client.machine == e->h->machine;
}

struct asking agent_asking(struct fisslock_host *h, const struct fiss_request *r, uint8_t mode)
{
    return (struct asking){r->nonce, request_place(h, r), mode, r->priority, false, r->limit};
}

/* Tokens rise (I2): the tenure's, and below it the number of the grant. */
uint64_t agent_token(const struct agent *a)
{
    assert(a->granted < 1u << TOKEN_GRANT_BITS); /* I2 */
    return a->token << TOKEN_GRANT_BITS | (a->right == FISSION_SHARED ? 1 : a->granted);
}

void agent_watch(struct event *e, struct agent *a)
{
    uint32_t timer = timer_of_agent(e->h, a);
    if (timers_runs(host_timers(e->h), timer))
        return;
    edit(e, a);
    a->pause_ns = a->pause_ns ? pool_pause(e->h, a->pause_ns) : CHECK_FACTOR * e->h->config.retry_ns;
    timers_set(host_timers(e->h), timer, e->now + a->pause_ns, e->out);
}

/* ---- ordinals ---- */

bool agent_knows(const struct agent *a, uint32_t ordinal)
{
    return ordinal <= a->known || ordinal - a->known - 1 >= 64 || (a->known_bits >> (ordinal - a->known - 1) & 1);
}

/* An ordinal of this tenure is accounted for: its holder is among the holders, or does not hold. False: it was accounted for
 * before, or lies too far ahead of a missing one; then it stays open until its RELEASE or a census. */
bool agent_know(struct event *e, struct agent *a, uint32_t ordinal)
{
    if (a->right != FISSION_SHARED)
        return true;
    edit(e, a);
    if (ordinal > a->seen)
        a->seen = (uint16_t)ordinal;
    if (agent_knows(a, ordinal))
        return false;
    a->known_bits |= UINT64_C(1) << (ordinal - a->known - 1);
    while (a->known_bits & 1) {
        a->known_bits >>= 1;
        a->known++;
    }
    return true;
}

/* The agent knows every holder: only then can the tenure end (Fig. 10). */
bool agent_accounted(const struct agent *a)
{
    return a->right == FISSION_EXCLUSIVE || (a->known == a->seen && !a->doubt);
}

/* ---- writers ---- */

bool agent_open(const struct fisslock_host *h, const struct agent *a)
{
    return !a->upgrader.machine && !(a->writers && (a->starves || h->policy.write_preferring));
}

void agent_tell_writers(struct event *e, struct agent *a, bool starves)
{
    edit(e, a);
    a->starves = starves;
    if (a->right != FISSION_SHARED)
        return;
    struct fission_packet *p = pool_packet(e, FISSION_FLAGS, a->index, 0, 0);
    if (!p)
        return;
    p->term = a->term;
    p->flags = (starves || a->closed ? FISSION_STARVES : 0) | (a->writers && e->h->policy.write_preferring ? FISSION_WRITERS : 0);
}

/* A writer has left the queue. Readers must not wait for a writer that is gone (pitfall 13). */
static void writer_gone(struct event *e, struct agent *a)
{
    edit(e, a);
    if (--a->writers == 0 && a->state == AGENT_LIVE && (a->starves || e->h->policy.write_preferring) &&
        !MISTAKE(e->h->config.mistakes, FISSLOCK_MISTAKE_STICKY))
        agent_tell_writers(e, a, a->upgrader.machine != 0);
}

/* ---- holders ---- */

/* To the process that asked; again, to see whether it holds: to any process of its host, since that one may have ended. */
void agent_send_grant(struct event *e, struct agent *a, const struct node *n, bool again)
{
    struct fission_packet *p = pool_packet(e, FISSION_GRANT, a->index, n->nonce, 0);
    if (!p)
        return; /* the client retransmits */
    p->head.to = p->client = n->client;
    if (again) {
        p->head.to.port = PORT_POOL;
        p->flags = a->waiters.count || a->upgrader.machine ? FISSION_WANTED : 0;
    }
    p->mode = n->mode;
    p->term = a->term;
    p->token = a->token;
}

/* A semaphore keeps its limit until the last holder has gone, also if that one is a reader without a limit. */
static void add_holder(struct event *e, struct agent *a, uint32_t node)
{
    uint16_t limit = host_node(e->h, node)->limit;
    edit(e, a);
    if (limit || !a->holders.count)
        a->limit = limit;
    pool_list_append(e, &a->holders, node);
}

/* The node becomes a holder. One of this host whose request does not wait any more is dropped. */
static void grant(struct event *e, struct agent *a, uint32_t node)
{
    edit(e, a);
    struct node *n = host_node(e->h, node);
    host_assert(e->h, n->mode == FISSION_SHARED || !a->holders.count); /* I1 */
    if (here(e, n->client)) {
        struct fiss_request *r = pool_request_of(e->h, n->nonce);
        if (!r || r->index != a->index || r->state != FISS_WAITING) {
            pool_node_free(e, node);
            return;
        }
        if (a->right == FISSION_EXCLUSIVE)
            a->granted++;
        request_grant(e, r, n->mode, agent_token(a), a->term, n->ordinal);
    } else {
        debug_assert((a->right == FISSION_SHARED && n->mode == FISSION_SHARED) || MISTAKES(e->h->config.mistakes));
        agent_send_grant(e, a, n, false);
    }
    add_holder(e, a, node);
    host_assert(e->h, !a->closed || !a->limit || a->holders.count <= a->limit); /* I25 */
}

static uint32_t node_for(struct event *e, const struct asking *asking, uint16_t ordinal)
{
    uint32_t node = pool_node_new(e, here(e, asking->client));
    if (node != NONE)
        *host_node(e->h, node) =
            (struct node){asking->nonce, e->now, NONE, asking->client, ordinal, asking->mode, asking->priority, asking->limit};
    else
        e->h->counts.crowded++;
    return node;
}

/* The request holds already, by the decider's grant or by an earlier tenure. */
bool agent_hold(struct event *e, struct agent *a, const struct asking *asking, uint16_t ordinal)
{
    struct fisslock_host *h = e->h;
    struct who who = {asking->nonce, asking->client.machine};
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE || (a->grantee != NONE && a->grantee_holds && node_is(host_node(h, a->grantee), who)))
        return true; /* the latter comes back to the holders if the move is refused */
    node = pool_list_find(h, &a->waiters, who);
    if (node != NONE) {
        edit(e, a);
        a->writers -= host_node(h, node)->mode == FISSION_EXCLUSIVE;
        pool_list_take(e, &a->waiters, node);
        host_node(h, node)->mode = asking->mode;
    } else if ((node = node_for(e, asking, ordinal)) == NONE) {
        return false;
    }
    edit(e, host_node(h, node));
    host_node(h, node)->ordinal = ordinal;
    add_holder(e, a, node);
    return true;
}

/* ---- arriving ---- */

/* A tenure begins here, as the decider's word says. */
static void begin(struct event *e, struct agent *a, uint64_t word, uint64_t token)
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
    a->closed = shared && (word & FISSION_WORD_STARVES);
    a->limit = 0;
    a->doubt = false;
    a->pause_ns = 0;
    timers_stop(host_timers(e->h), timer_of_agent(e->h, a), e->out);
}

/* A hold by an earlier tenure is one by this tenure now; its ordinal has no meaning here. */
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
    if (!r || r->index != a->index || (r->state != FISS_WAITING && !request_is_held(r)))
        return;
    /* An upgrade that was given up meanwhile leaves a shared holder in an exclusive tenure. */
    bool gets = r->state == FISS_WAITING || (r->state == FISS_UPGRADING && mode == FISSION_EXCLUSIVE);
    struct asking asking = agent_asking(h, r, gets ? mode : r->mode);
    if (!agent_hold(e, a, &asking, r->term == a->term ? r->ordinal : 0))
        return;
    if (gets) {
        if (a->right == FISSION_EXCLUSIVE)
            a->granted++; /* begin() has announced the change */
        request_grant(e, r, asking.mode, agent_token(a), a->term, a->right == FISSION_SHARED);
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
            struct asking asking = agent_asking(h, r, r->mode);
            agent_hold(e, a, &asking, r->ordinal);
        }
}

void agent_moved_here(struct event *e, struct agent *a, uint64_t word, uint64_t token)
{
    struct fisslock_host *h = e->h;
    uint32_t grantee = a->grantee;
    edit(e, a);
    a->grantee = NONE;
    begin(e, a, word, token);
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

static bool queue(struct event *e, struct agent *a, const struct asking *asking)
{
    uint32_t node = node_for(e, asking, 0);
    if (node == NONE)
        return false;
    if (e->h->policy.priority)
        pool_list_insert(e, &a->waiters, node);
    else
        pool_list_append(e, &a->waiters, node);
    edit(e, a);
    a->writers += asking->mode == FISSION_EXCLUSIVE;
    return true;
}

/* The queue that came with the agent, without requests that are known already. */
static void take_queue(struct event *e, struct agent *a, const struct fission_packet *p)
{
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    for (unsigned i = 0; i < p->count; i++) {
        struct fission_entry entry = entries[i];
        struct asking asking;
        if (!places_read(&entry, &asking) || entry.client.machine == MACHINE_SWITCH ||
            !fission_place_exists(entry.client, &e->h->rules)) {
            e->h->drops.bad++;
            continue;
        }
        struct who who = {entry.nonce, entry.client.machine};
        if (pool_list_find(e->h, &a->holders, who) == NONE && pool_list_find(e->h, &a->waiters, who) == NONE)
            queue(e, a, &asking);
    }
}

/* Whether a GRANT with agent can be true: for a request that waits, or for a holder that asked for more. */
static bool expected(struct fisslock_host *h, const struct fission_packet *p, uint32_t term)
{
    const struct fiss_request *r = pool_request_of(h, p->head.nonce);
    if (!r || r->index != p->head.index || (p->mode == FISSION_SHARED) != !!(p->word & FISSION_WORD_SHARED))
        return false;
    bool over = r->floored && fission_term_after(r->floor, term) && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR);
    if (over || r->state == FISS_WAITING)
        return !over;
    return request_is_held(r) && r->term == p->term && p->head.from.machine != MACHINE_SWITCH;
}

/* To the previous agent, which retransmits until it hears this. */
static void send_arrived(struct event *e, const struct fission_packet *grant)
{
    struct fission_packet *p = pool_packet(e, FISSION_ACK, grant->head.index, grant->head.nonce, 0);
    if (!p)
        return;
    p->head.to = grant->head.from;
    p->term = grant->term;
    p->flags = FISSION_AGENT;
}

/* A GRANT for an agent that is here already: a duplicate; or the agent was adopted, and this brings its queue. */
static void arrives_again(struct event *e, struct agent *a, const struct fission_packet *p)
{
    if (a->state != AGENT_LIVE || a->term != fission_word_term(p->word) || !a->adopted)
        return;
    edit(e, a);
    a->adopted = false;
    take_queue(e, a, p);
    agent_serve(e, a);
}

/* A GRANT with agent: from the decider, for a lock that was free (Fig. 8a), or from the previous agent, with its queue (Fig. 8c).
 */
void agent_arrives(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct agent *a = pool_agent_of(h, p->head.index);
    uint32_t term = fission_word_term(p->word);
    bool by_switch = p->head.from.machine == MACHINE_SWITCH;

    if (a && a->state == AGENT_MOVING && a->to == h->machine && term == term_after(a->term)) {
        agent_moved_here(e, a, p->word, p->token);
        return;
    }
    if (a && a->state != AGENT_LIVE && fission_term_after(term, a->term)) {
        tenure_end(e, a); /* a later tenure has begun */
        a = NULL;
    }
    if (!by_switch)
        send_arrived(e, p);
    if (a) {
        arrives_again(e, a, p);
        return;
    }
    if (!expected(h, p, term) || !(a = pool_agent_new(e, p->head.index))) {
        /* Too late, or for a request that has ended: is the agent here, and unused? */
        h->counts.orphans++;
        tenure_look(e, p->head.index);
        return;
    }
    ++*(by_switch ? &h->counts.by_switch : &h->counts.by_agent);
    begin(e, a, p->word, p->token);
    if (h->policy.keep)
        keep_begin(e, a, by_switch);
    claim_own(e, a);
    receive(e, a, p->head.nonce, p->mode);
    take_queue(e, a, p);
    agent_serve(e, a);
}

/* The tenure is this host's, and the GRANT that should have told so was lost or is late. When it began it had no holder but the
 * request of that GRANT, which is one of this host: one that waits, a holder that wanted more, or one that has ended. Requests in
 * the queue of that GRANT retransmit. */
struct agent *agent_adopt(struct event *e, uint64_t index, uint64_t word, uint64_t token)
{
    struct fisslock_host *h = e->h;
    struct agent *a = pool_agent_new(e, index);
    if (!a)
        return NULL;
    h->counts.adopted++;
    begin(e, a, word, token);
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
            *host_node(h, node) = (struct node){r->nonce, e->now, NONE, request_place(h, r), 0, r->mode, r->priority, r->limit};
            a->writers += r->mode == FISSION_EXCLUSIVE;
            if (h->policy.priority)
                pool_list_insert(e, &a->waiters, node);
            else
                pool_list_push(e, &a->waiters, node); /* the latest comes first in the bucket */
        }
    }
    agent_watch(e, a); /* waiters of this host do not retransmit any more, and the packet at hand may bring nothing */
    return a;
}

/* ---- asking and releasing ---- */

/* With an exclusive right the agent grants to its own host as it likes: one writer, or readers. */
static bool grants_here(const struct event *e, const struct agent *a, const struct asking *asking)
{
    if (!e->h->policy.keep || asking->limit || !here(e, asking->client) || a->right != FISSION_EXCLUSIVE || a->waiters.count ||
        a->upgrader.machine || a->granted >= TOKEN_GRANTS_MAX)
        return false;
    return !a->holders.count || (asking->mode == FISSION_SHARED && host_node(e->h, a->holders.head)->mode == FISSION_SHARED);
}

/* No request holds or waits: the agent can move to the one that asks. */
static bool is_spare(const struct agent *a)
{
    return a->state == AGENT_LIVE && a->kept && !a->holders.count && !a->waiters.count && agent_accounted(a);
}

/* acquire() of Fig. 7, for a request of this host or one that the decider did not grant. */
enum agent_says agent_ask(struct event *e, struct agent *a, const struct asking *asking)
{
    struct fisslock_host *h = e->h;
    struct who who = {asking->nonce, asking->client.machine};
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE) { /* it was granted, and the GRANT was lost */
        if (!here(e, asking->client))
            agent_send_grant(e, a, host_node(h, node), false);
        return AGENT_GRANTS;
    }
    if (pool_list_find(h, &a->waiters, who) != NONE || (a->grantee != NONE && node_is(host_node(h, a->grantee), who)))
        return AGENT_QUEUES;
    bool shared = asking->mode == FISSION_SHARED && a->right == FISSION_SHARED && a->state == AGENT_LIVE;
    enum places_say place = shared ? places_for(h, a, asking->limit) : PLACES_MOVE;
    if (place == PLACES_REFUSE)
        return AGENT_REFUSES_LIMIT;
    bool open = place == PLACES_GRANT && agent_open(h, a);
    if (a->state == AGENT_LIVE && (open || grants_here(e, a, asking))) {
        if (a->kept && !a->holders.count && here(e, asking->client)) {
            edit(e, a);
            keep_hit(a);
        }
        if ((node = node_for(e, asking, 0)) == NONE)
            return AGENT_REFUSES;
        grant(e, a, node);
        return AGENT_GRANTS;
    }
    if (asking->nowait && !is_spare(a))
        return AGENT_REFUSES;
    if (!queue(e, a, asking))
        return AGENT_QUEUES; /* no room: the client retransmits */
    if (asking->mode == FISSION_EXCLUSIVE && a->right == FISSION_SHARED && h->policy.write_preferring && here(e, asking->client))
        agent_tell_writers(e, a, a->starves); /* the decider has not seen this writer */
    agent_serve(e, a);
    return AGENT_QUEUES;
}

/* release() of Fig. 7, of a holder or of a waiter. False: not settled here, since the packet that moves the agent may name it; the
 * next agent must hear of it (pitfall 8). */
bool agent_release(struct event *e, struct agent *a, struct who who, uint32_t term, uint16_t ordinal)
{
    struct fisslock_host *h = e->h;
    bool counts = term == a->term && ordinal;
    bool to_itself = a->state == AGENT_MOVING && a->to == h->machine;
    edit(e, a);
    if (counts)
        agent_know(e, a, ordinal);
    agent_cancel_upgrade(e, a, who);
    uint32_t node = pool_list_find(h, &a->holders, who);
    if (node != NONE) {
        pool_list_take(e, &a->holders, node);
        pool_node_free(e, node);
        return true;
    }
    if (to_itself && a->grantee != NONE && node_is(host_node(h, a->grantee), who)) {
        pool_node_free(e, a->grantee);
        a->grantee = NONE;
        return true;
    }
    if (a->state != AGENT_LIVE && !to_itself)
        return counts;
    node = pool_list_find(h, &a->waiters, who);
    if (node != NONE) {
        bool writer = host_node(h, node)->mode == FISSION_EXCLUSIVE;
        pool_list_take(e, &a->waiters, node);
        pool_node_free(e, node);
        if (writer)
            writer_gone(e, a);
    }
    return true; /* a request that neither holds nor waits has nothing to release (pitfall 7) */
}

/* ---- which request is next ---- */

/* Fig. 7 lines 20 to 22. Read-preferring: all readers; else, or if a writer starves, the readers before the first writer. */
static void serve_readers(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    bool all = !a->starves && !h->policy.write_preferring, behind = false;
    if (a->upgrader.machine || a->waiters.count == a->writers)
        return;
    struct list queued = a->waiters;
    edit(e, a);
    a->waiters = (struct list){NONE, NONE, 0};
    for (uint32_t node = queued.head, next; node != NONE; node = next) {
        next = host_node(h, node)->next;
        const struct node *n = host_node(h, node);
        behind |= n->mode == FISSION_EXCLUSIVE;
        enum places_say place = n->mode == FISSION_SHARED && (all || !behind) ? places_for(h, a, n->limit) : PLACES_FULL;
        if (place == PLACES_GRANT) {
            grant(e, a, node);
        } else if (place == PLACES_REFUSE) {
            places_refuse(e, a, n->nonce, n->client);
            pool_node_free(e, node);
        } else {
            pool_list_append(e, &a->waiters, node);
        }
    }
}

/* The first in the queue that still waits, as far as this host knows. */
static uint32_t next_waiter(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    for (;;) {
        uint32_t node = pool_list_pop(e, &a->waiters);
        if (node == NONE)
            return NONE;
        struct node *n = host_node(h, node);
        edit(e, a);
        a->writers -= n->mode == FISSION_EXCLUSIVE;
        if (!here(e, n->client) || request_wants(h, n->nonce))
            return node;
        pool_node_free(e, node);
    }
}

/* In an exclusive tenure all holders may be readers: one that gave up its upgrade, or those of an agent that stays. Other readers
 * need not wait for them, and must not: if two such readers waited for each other, no deadlock would be found. */
static bool share_tenure(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    if (a->right != FISSION_EXCLUSIVE || a->upgrader.machine || a->waiters.count == a->writers)
        return false;
    if (!agent_open(h, a) && host_node(h, a->waiters.head)->mode == FISSION_EXCLUSIVE)
        return false;
    for (uint32_t i = a->holders.head; i != NONE; i = host_node(h, i)->next)
        if (host_node(h, i)->mode == FISSION_EXCLUSIVE)
            return false;
    tenure_move(e, a, NONE, h->machine, FISSION_SHARED);
    return true;
}

/* Without holders: granted on this host if the tenure allows it, else the agent moves to the next, or the lock is freed. */
static void serve_next(struct event *e, struct agent *a)
{
    uint32_t node = next_waiter(e, a);
    if (node == NONE) {
        if (!keep_agent(e, a))
            tenure_free(e, a);
        return;
    }
    struct node *n = host_node(e->h, node);
    if (a->right == FISSION_EXCLUSIVE && n->mode == FISSION_EXCLUSIVE && here(e, n->client) && a->granted < TOKEN_GRANTS_MAX) {
        e->h->counts.local++;
        grant(e, a, node);
        if (a->waiters.count)
            agent_watch(e, a);
    } else {
        tenure_move(e, a, node, n->client.machine, n->mode);
    }
}

/* Something has changed: grants what can be granted now. */
void agent_serve(struct event *e, struct agent *a)
{
    if (a->state != AGENT_LIVE)
        return;
    assert(a->writers <= a->waiters.count);
    if (a->right == FISSION_SHARED)
        serve_readers(e, a);
    if (a->upgrader.machine && agent_serve_upgrader(e, a))
        return;
    if (a->holders.count) {
        if (!share_tenure(e, a) && (a->waiters.count || a->upgrader.machine))
            agent_watch(e, a);
    } else if (!agent_accounted(a)) {
        agent_watch(e, a);
    } else {
        serve_next(e, a);
    }
}
