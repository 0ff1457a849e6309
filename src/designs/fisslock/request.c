/* SPDX-License-Identifier: Apache-2.0 */
/* The client: what Fig. 6 does, and what it takes to do it over a network that loses packets. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"

#include <errno.h>

static_assert((int)FISSION_SHARED == (int)PAWL_SHARED && (int)FISSION_EXCLUSIVE == (int)PAWL_EXCLUSIVE, "modes are one thing");

/* ---- a request's life ---- */

struct place request_place(struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct place){h->machine, r->port};
}

static void repeat(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = pool_pause(e->h, r->pause_ns);
    timers_set(host_timers(e->h), request_number(e->h, r), e->now + r->pause_ns, e->out);
}

static void still(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = 0;
    timers_stop(host_timers(e->h), request_number(e->h, r), e->out);
}

static void count_held(struct event *e, const struct fiss_request *r, int change)
{
    struct session_state *s = host_session(e->h, request_number(e->h, r));
    edit(e, s);
    s->held += (uint32_t)change;
}

bool request_wants(struct fisslock_host *h, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(h, nonce);
    return r && r->state == FISS_WAITING;
}

bool request_holds(struct fisslock_host *h, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(h, nonce);
    return r && (r->state == FISS_HELD || r->state == FISS_UPGRADING);
}

static bool request_upgrades(struct fisslock_host *h, struct who who)
{
    const struct fiss_request *r = who.machine == h->machine ? pool_request_of(h, who.nonce) : NULL;
    return r && r->state == FISS_UPGRADING;
}

void request_grant(struct event *e, struct fiss_request *r, uint8_t mode, uint64_t token, uint32_t term, uint16_t ordinal)
{
    debug_assert(r->state == FISS_WAITING || r->state == FISS_UPGRADING);
    if (r->state == FISS_WAITING) {
        e->h->waiting--;
        count_held(e, r, 1);
    }
    still(e, r);
    r->state = FISS_HELD;
    r->mode = mode;
    r->token = token;
    r->term = term;
    r->ordinal = ordinal;
    r->result = 0;
    outbox_wake(e->out, request_number(e->h, r));
}

void request_end(struct event *e, struct fiss_request *r, int result)
{
    if (r->state == FISS_WAITING)
        e->h->waiting--;
    else if (r->state != FISS_RELEASING)
        count_held(e, r, -1);
    still(e, r);
    pool_request_unlink(e, r);
    r->state = result ? FISS_ENDED : FISS_IDLE;
    r->result = result;
    if (result)
        outbox_wake(e->out, request_number(e->h, r));
}

void request_deny_upgrade(struct event *e, struct fiss_request *r, int result)
{
    still(e, r);
    r->state = FISS_HELD;
    r->result = result;
    outbox_wake(e->out, request_number(e->h, r));
}

/* ---- what it says ---- */

static void say_acquire(struct event *e, struct fiss_request *r, uint16_t flags)
{
    if (!lease_runs(e->h, e->now))
        return; /* said when there is one */
    struct fission_packet *p = pool_packet(e, FISSION_ACQUIRE, r->index, r->nonce, 0);
    if (!p)
        return;
    bool upgrade = r->state == FISS_UPGRADING;
    p->head.from = p->client = request_place(e->h, r);
    p->mode = upgrade ? FISSION_EXCLUSIVE : r->mode;
    p->priority = r->priority;
    p->flags = flags | (upgrade ? FISSION_UPGRADE : 0) | (r->try ? FISSION_NOWAIT : 0);
    if (r->try && host_is(e->h, FISSLOCK_KEEP)) /* the agent alone knows whether somebody has it, or it only stays */
        p->flags |= FISSION_RETRY;
    if (upgrade && r->term != TERM_NONE) { /* by what it holds, should the agent not know */
        p->term = r->term;
        p->inca = r->ordinal;
    }
}

static void say_release(struct event *e, uint64_t index, uint64_t nonce, struct place client, uint32_t term, uint16_t ordinal,
                        uint16_t flags)
{
    struct fission_packet *p = pool_packet(e, FISSION_RELEASE, index, nonce, 0);
    if (!p)
        return;
    p->head.from = p->client = client; /* where the answer goes */
    p->term = term == TERM_NONE ? 0 : term;
    p->inca = ordinal;
    p->flags = flags;
}

/* An agent waits for one who has gone: what said so was lost. */
void request_not_waiting(struct event *e, uint64_t index, uint64_t nonce)
{
    const struct fiss_request *r = pool_request_of(e->h, nonce);
    struct place client = {e->h->machine, PORT_POOL};
    if (!r)
        say_release(e, index, nonce, client, 0, 0, FISSION_DONE);
    else if (r->index == index && r->state == FISS_HELD)
        say_release(e, index, nonce, client, r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
}

/* Of an agent here. Who comes second would wait for the first, which waits for it. If the first is not here, it may have given up
 * in the meantime. */
static void ask_upgrade(struct event *e, struct agent *a, struct fiss_request *r)
{
    struct fisslock_host *h = e->h;
    bool sure = request_upgrades(h, a->upgrader);
    if (agent_upgrade(e, a, (struct who){r->nonce, h->machine}) != AGENT_REFUSES)
        return;
    if (sure)
        request_deny_upgrade(e, r, -EDEADLK);
    else
        deadlock_second(e, r);
}

void request_due(struct event *e, struct fiss_request *r)
{
    struct agent *a = pool_agent_of(e->h, r->index);
    switch (r->state) {
    case FISS_WAITING:
    case FISS_UPGRADING:
        /* In the queue here: nothing can have been lost. */
        if (!a || a->state != AGENT_LIVE ||
            (r->state == FISS_WAITING && pool_list_find(e->h, &a->waiters, (struct who){r->nonce, e->h->machine}) == NONE)) {
            e->h->counts.retries++;
            say_acquire(e, r, FISSION_RETRY);
        } else if (r->state == FISS_UPGRADING && a->term == r->term) {
            ask_upgrade(e, a, r); /* the one before it may have given up */
        }
        deadlock_due(e, r);
        if (r->state == FISS_WAITING || r->state == FISS_UPGRADING)
            repeat(e, r);
        break;
    case FISS_RELEASING:
        e->h->counts.retries++;
        say_release(e, r->index, r->nonce, (struct place){e->h->machine, PORT_POOL}, r->term, r->ordinal, 0);
        repeat(e, r);
        break;
    default:
        break;
    }
}

/* ---- calls ---- */

int fisslock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (ask->request >= h->request_count || ask->index >= h->config.locks ||
        (ask->mode != PAWL_SHARED && ask->mode != PAWL_EXCLUSIVE))
        return -EINVAL;
    struct fiss_request *r = host_request(h, ask->request);
    if (r->state != FISS_IDLE && r->state != FISS_ENDED)
        return -EBUSY;
    /* Whoever waits may be given the agent: a place for it is kept. */
    if (h->agent_count - h->agents_used <= h->waiting)
        return -PAWL_ELIMIT;

    edit(&e, r);
    *r = (struct fiss_request){
        .nonce = pool_nonce(&e, ask->request),
        .index = ask->index,
        .port = ask->port,
        .state = FISS_WAITING,
        .mode = (uint8_t)ask->mode,
        .priority = ask->priority,
        .try = ask->try,
    };
    h->waiting++;
    pool_request_link(&e, r);
    deadlock_thread(&e, ask->request, ask->thread);

    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->state == AGENT_LIVE) { /* Fig. 6 line 1 */
        struct asking asking = {r->nonce, request_place(h, r), r->mode, r->priority, r->try};
        if (agent_ask(&e, a, &asking) == AGENT_REFUSES)
            request_end(&e, r, -PAWL_EHELD);
        else if (r->state == FISS_WAITING)
            repeat(&e, r);
        else
            h->counts.local++;
    } else { /* Fig. 6 line 5 */
        say_acquire(&e, r, 0);
        repeat(&e, r);
    }
    return r->state == FISS_WAITING ? PACKET_WAIT : PACKET_DONE;
}

int fisslock_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (request >= h->request_count)
        return -EINVAL;
    struct fiss_request *r = host_request(h, request);
    if (r->state != FISS_HELD && r->state != FISS_UPGRADING)
        return -PAWL_ENOTOWNER;
    still(&e, r);
    e.port = r->port;
    count_held(&e, r, -1);
    r->state = FISS_RELEASING; /* from here on it does not hold */
    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->term == r->term) { /* Fig. 6 line 9 */
        agent_release(&e, a, (struct who){r->nonce, h->machine}, r->term, r->ordinal);
        request_end(&e, r, 0);
        agent_serve(&e, a);
    } else { /* Fig. 6 line 12 */
        say_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, 0);
        repeat(&e, r);
    }
    return 0;
}

int fisslock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (request >= h->request_count)
        return -EINVAL;
    struct fiss_request *r = host_request(h, request);
    struct agent *a = pool_agent_of(h, r->index);
    bool here = a && a->state == AGENT_LIVE;
    if (r->state == FISS_WAITING) {
        /* It is out of it at once: a GRANT that comes later finds nobody. The agent is told, so that others need not wait for that.
         */
        uint64_t nonce = r->nonce;
        if (!here)
            say_release(&e, r->index, nonce, request_place(h, r), 0, 0, FISSION_DONE);
        request_end(&e, r, why);
        if (here) {
            agent_release(&e, a, (struct who){nonce, h->machine}, 0, 0);
            agent_serve(&e, a);
        }
    } else if (r->state == FISS_UPGRADING) {
        if (here && a->term == r->term)
            agent_cancel_upgrade(&e, a, (struct who){r->nonce, h->machine});
        else
            say_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
        request_deny_upgrade(&e, r, why);
    }
    return PACKET_DONE;
}

int fisslock_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    if (request >= h->request_count || (mode != PAWL_SHARED && mode != PAWL_EXCLUSIVE))
        return -EINVAL;
    struct fiss_request *r = host_request(h, request);
    if (r->state != FISS_HELD)
        return -PAWL_ENOTOWNER;
    struct agent *a = pool_agent_of(h, r->index);
    bool here = a && a->state == AGENT_LIVE && a->term == r->term;
    edit(&e, r);
    r->result = 0;
    if (r->mode == (uint8_t)mode)
        return PACKET_DONE;
    if (mode == PAWL_SHARED) {
        if (here) {
            agent_downgrade(&e, a, r);
        } else if (r->term == TERM_NONE) { /* the agent went with the decider's state: whoever brings it back finds it so */
            r->mode = FISSION_SHARED;
            r->token++;
        } else { /* an exclusive holder has the agent, or is none */
            return -PAWL_ENOTOWNER;
        }
        return PACKET_DONE;
    }
    r->state = FISS_UPGRADING;
    deadlock_upgrade(&e, r);
    if (here) {
        ask_upgrade(&e, a, r);
    } else {
        say_acquire(&e, r, FISSION_RETRY);
    }
    if (r->state == FISS_UPGRADING)
        repeat(&e, r);
    return r->state == FISS_UPGRADING ? PACKET_WAIT : PACKET_DONE;
}

int fisslock_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    if (request >= h->request_count)
        return -EINVAL;
    const struct fiss_request *r = host_request(h, request);
    if (r->state == FISS_WAITING || r->state == FISS_UPGRADING)
        return -EINPROGRESS;
    bool held = r->state == FISS_HELD;
    *out = (struct packet_answer){
        .result = held || r->result ? r->result : -PAWL_ENOTOWNER, .mode = (enum pawl_mode)r->mode, .token = r->token};
    return 0;
}

bool fisslock_idle(const void *host, uint32_t request)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    return host_request(h, request)->state <= FISS_ENDED;
}

bool fisslock_holds(const void *host, uint32_t request)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    uint8_t state = host_request(h, request)->state;
    return state == FISS_HELD || state == FISS_UPGRADING;
}

bool fisslock_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    const struct fiss_request *r = host_request(h, request);
    bool holds = fisslock_holds(host, request);
    *out = (struct packet_claim){.index = r->index, .token = holds ? r->token : 0, .mode = (enum pawl_mode)r->mode, .holds = holds};
    return holds || r->state == FISS_WAITING;
}

void fisslock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    assert(session < h->config.sessions);
    struct event e = event_begin(host, now, out);
    struct session_state *s = host_session(h, session * h->config.requests);
    edit(&e, s);
    s->lost = false;
    for (uint32_t i = session * h->config.requests; i < (session + 1) * h->config.requests; i++) {
        outbox_touch(out, host_request(h, i), sizeof(struct fiss_request));
        host_request(h, i)->port = PORT_POOL; /* nobody is there to hear answers */
        if (host_request(h, i)->state == FISS_WAITING)
            fisslock_give_up(host, i, -PAWL_ELOST, now, out);
        else if (fisslock_holds(host, i))
            fisslock_release(host, i, now, out);
    }
}

void request_carry(void *from, void *to, uint32_t request, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(from, now, out);
    struct fiss_request *r = host_request(e.h, request);
    if (r->state != FISS_HELD && r->state != FISS_UPGRADING)
        return; /* its lease ended just now */
    struct fiss_request was = *r;
    uint32_t thread = *host_thread(e.h, request);
    count_held(&e, r, -1);
    still(&e, r);
    pool_request_unlink(&e, r);
    r->state = FISS_IDLE;

    e = event_begin(to, now, out);
    r = host_request(e.h, request);
    edit(&e, r);
    *r = was;
    r->nonce = pool_nonce(&e, request);
    r->term = TERM_NONE;
    r->ordinal = 0;
    pool_request_link(&e, r);
    count_held(&e, r, 1);
    deadlock_thread(&e, request, thread);
    if (r->state == FISS_UPGRADING) {
        deadlock_upgrade(&e, r);
        repeat(&e, r);
    }
    if (!lease_runs(e.h, now))
        lease_lapse(&e); /* nobody there knows of it, and nobody waits for this host */
}

/* ---- packets for requests ---- */

/* Whether a GRANT can be true for a request that waits for one. A tenure that ended here, or an ordinal that this host has given up
 * in a census, cannot. */
static bool credible(struct fisslock_host *h, const struct fiss_request *r, uint32_t term, uint16_t ordinal)
{
    if (r->floored && fission_term_after(r->floor, term) && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR))
        return false;
    return !(r->barred && ordinal && term == r->barred_term && ordinal <= r->barred_inca);
}

static void on_shared_grant(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct fiss_request *r = pool_request_of(h, p->head.nonce);
    struct agent *a = pool_agent_of(h, p->head.index);
    bool by_switch = p->head.from.machine == MACHINE_SWITCH;
    uint16_t ordinal = by_switch ? p->inca : 0;
    if (r && r->index != p->head.index)
        r = NULL;
    bool here = a && a->term == p->term;
    bool news = !(here && ordinal) || agent_know(e, a, ordinal);
    if (r && r->state == FISS_WAITING) {
        if (!news || !credible(h, r, p->term, ordinal))
            return;
        if (here && !agent_hold(e, a, &(struct asking){r->nonce, request_place(h, r), FISSION_SHARED, r->priority, false}, ordinal))
            return;
        ++*(by_switch ? &h->counts.by_switch : &h->counts.by_agent);
        request_grant(e, r, FISSION_SHARED, p->token << TOKEN_GRANT_BITS | 1, p->term, ordinal);
    } else if (r && (r->state == FISS_HELD || r->state == FISS_UPGRADING)) {
        if (here && r->term == p->term) /* held before the agent came here: it must know of the holder, not of the ordinal alone */
            agent_hold(e, a, &(struct asking){r->nonce, request_place(h, r), r->mode, r->priority, false}, r->ordinal);
        if (ordinal && !r->ordinal && r->term == p->term) {
            edit(e, r);
            r->ordinal = ordinal; /* granted twice: its release accounts for both */
        }
    } else if (p->client.machine == h->machine) {
        /* Nobody is here any more. */
        h->counts.orphans++;
        say_release(e, p->head.index, p->head.nonce, p->client, p->term, ordinal, FISSION_DONE);
    }
}

void request_packet(struct event *e, const struct fission_packet *p)
{
    struct fiss_request *r = pool_request_of(e->h, p->head.nonce);
    if (p->head.type == FISSION_GRANT) {
        on_shared_grant(e, p);
        return;
    }
    if (!r || r->index != p->head.index) {
        e->h->drops.stale++;
        return;
    }
    if (p->head.type == FISSION_ACK && r->state == FISS_RELEASING)
        request_end(e, r, 0);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_WAITING && r->try)
        request_end(e, r, -PAWL_EHELD);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_UPGRADING && (p->flags & FISSION_UPGRADE))
        deadlock_second(e, r); /* the other may have given up meanwhile */
}
