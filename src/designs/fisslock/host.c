/* SPDX-License-Identifier: Apache-2.0 */
/* The host: the calls of its sessions (the client of Fig. 6), the short way, and where its packets and timers go.
 *
 * The paper's client assumes that packets arrive. Here it retransmits until it is answered, and takes only GRANTs that can be true
 * for it (docs/designs/fisslock.md, "A request"). */
#include "designs/fisslock/host.h"
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/spill.h"

#include <errno.h>

static_assert((int)FISSION_SHARED == (int)PAWL_SHARED && (int)FISSION_EXCLUSIVE == (int)PAWL_EXCLUSIVE, "modes have one encoding");
static_assert(FISSION_LIMIT_MAX == PAWL_SEMAPHORE_MAX, "every limit has room");

/* ---- a request's states ---- */

struct place request_place(struct fisslock_host *h, const struct fiss_request *r)
{
    return (struct place){h->machine, r->port};
}

void request_retransmit_later(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = pool_pause(e->h, r->pause_ns);
    timers_set(host_timers(e->h), request_number(e->h, r), e->now + r->pause_ns, e->out);
}

void request_stop_timer(struct event *e, struct fiss_request *r)
{
    edit(e, r);
    r->pause_ns = 0;
    timers_stop(host_timers(e->h), request_number(e->h, r), e->out);
}

void request_count_held(struct event *e, const struct fiss_request *r, int change)
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
    return r && request_is_held(r);
}

void request_grant(struct event *e, struct fiss_request *r, uint8_t mode, uint64_t token, uint32_t term, uint16_t ordinal)
{
    assert(r->state == FISS_WAITING || r->state == FISS_UPGRADING); /* I5: the request was written down before it was sent */
    host_assert(e->h, lease_runs(e->h, e->now));                    /* I1: its host may still act */
    if (r->state == FISS_WAITING) {
        e->h->waiting--;
        request_count_held(e, r, 1);
    }
    request_stop_timer(e, r);
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
    assert(r->state >= FISS_WAITING);
    if (r->state == FISS_WAITING)
        e->h->waiting--;
    else if (r->state != FISS_RELEASING)
        request_count_held(e, r, -1);
    request_stop_timer(e, r);
    pool_request_unlink(e, r);
    r->state = result ? FISS_ENDED : FISS_IDLE;
    r->result = result;
    if (result)
        outbox_wake(e->out, request_number(e->h, r));
}

/* The thread that waits for the request, or holds it. */
void request_thread(struct event *e, uint32_t request, uint32_t thread)
{
    uint32_t *at = host_thread(e->h, request);
    if (*at == thread)
        return; /* nearly always */
    edit(e, at);
    *at = thread;
}

/* ---- packets that it sends ---- */

void request_send_acquire(struct event *e, struct fiss_request *r, uint16_t flags)
{
    assert(r->state == FISS_WAITING || r->state == FISS_UPGRADING); /* I5 */
    if (!lease_runs(e->h, e->now))
        return; /* lease_packet() sends it when there is a lease */
    struct fission_packet *p = pool_packet(e, FISSION_ACQUIRE, r->index, r->nonce, 0);
    if (!p)
        return;
    bool upgrade = r->state == FISS_UPGRADING;
    p->head.from = p->client = request_place(e->h, r);
    p->mode = upgrade ? FISSION_EXCLUSIVE : r->mode;
    p->priority = r->priority;
    p->flags = flags | (upgrade ? FISSION_UPGRADE : 0) | (r->try ? FISSION_NOWAIT : 0);
    if (r->try && e->h->policy.keep) /* only the agent knows whether the lock is held, or the agent only stays */
        p->flags |= FISSION_RETRY;
    if (r->limit) {
        p->mode = FISSION_PLACE;
        p->inca = r->limit;
        p->flags |= FISSION_RETRY;
    }
    if (upgrade && r->term != TERM_NONE) { /* the hold, in case the agent does not know it */
        p->term = r->term;
        p->inca = r->ordinal;
    }
}

void request_send_release(struct event *e, uint64_t index, uint64_t nonce, struct place client, uint32_t term, uint16_t ordinal,
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

void request_due(struct event *e, struct fiss_request *r)
{
    struct agent *a = pool_agent_of(e->h, r->index);
    switch (r->state) {
    case FISS_WAITING:
    case FISS_UPGRADING:
        /* In the queue of an agent on this host nothing can have been lost. */
        if (!a || a->state != AGENT_LIVE ||
            (r->state == FISS_WAITING && pool_list_find(e->h, &a->waiters, request_who(e->h, r)) == NONE)) {
            e->h->counts.retries++;
            request_send_acquire(e, r, FISSION_RETRY);
        } else if (r->state == FISS_UPGRADING && a->term == r->term) {
            request_ask_upgrade(e, a, r); /* the upgrade before it may have been given up */
        }
        deadlock_due(e, r);
        if (r->state == FISS_WAITING || r->state == FISS_UPGRADING)
            request_retransmit_later(e, r);
        break;
    case FISS_RELEASING:
        e->h->counts.retries++;
        request_send_release(e, r->index, r->nonce, (struct place){e->h->machine, PORT_POOL}, r->term, r->ordinal, 0);
        request_retransmit_later(e, r);
        break;
    default:
        break;
    }
}

/* ---- calls ---- */

/* acquire() of Fig. 6. */
int fisslock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    assert(ask->request < h->request_count && (ask->mode == PAWL_SHARED || ask->mode == PAWL_EXCLUSIVE));
    if (ask->index >= h->config.locks)
        return -EINVAL;
    struct fiss_request *r = host_request(h, ask->request);
    assert(r->state == FISS_IDLE || r->state == FISS_ENDED);
    /* Every waiting request may be given the agent: there is room for it. */
    if (h->agent_count - h->agents_used <= h->waiting)
        return -PAWL_ELIMIT;

    pool_forget_outdated(&e, ask->index, ask->generation);
    edit(&e, r);
    *r = (struct fiss_request){
        .nonce = pool_nonce(h, ask->request),
        .index = ask->index,
        .generation = ask->generation,
        .port = ask->port,
        .state = FISS_WAITING,
        .mode = (uint8_t)ask->mode,
        .priority = ask->priority,
        .limit = ask->limit,
        .try = ask->try,
    };
    h->waiting++;
    pool_request_link(&e, r);
    request_thread(&e, ask->request, ask->thread);

    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->state == AGENT_LIVE) { /* Fig. 6 line 1 */
        struct asking asking = agent_asking(h, r, r->mode);
        asking.nowait = r->try;
        enum agent_says says = agent_ask(&e, a, &asking);
        if (says == AGENT_REFUSES || says == AGENT_REFUSES_LIMIT)
            request_end(&e, r, says == AGENT_REFUSES ? -PAWL_EHELD : -PAWL_ELIMITS);
        else if (r->state == FISS_WAITING)
            request_retransmit_later(&e, r);
        else
            h->counts.local++;
    } else { /* Fig. 6 line 5 */
        request_send_acquire(&e, r, 0);
        request_retransmit_later(&e, r);
    }
    assert(r->state != FISS_WAITING || timers_runs(host_timers(h), ask->request)); /* I9 */
    return r->state == FISS_WAITING ? PACKET_WAIT : PACKET_DONE;
}

/* release() of Fig. 6. */
int fisslock_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    assert(request < h->request_count);
    struct fiss_request *r = host_request(h, request);
    if (!request_is_held(r))
        return -PAWL_ENOTOWNER;
    request_stop_timer(&e, r);
    e.port = r->port;
    request_count_held(&e, r, -1);
    r->state = FISS_RELEASING; /* from here on it does not hold */
    struct agent *a = pool_agent_of(h, r->index);
    if (a && a->term == r->term) { /* Fig. 6 line 9 */
        agent_release(&e, a, request_who(h, r), r->term, r->ordinal);
        request_end(&e, r, 0);
        agent_serve(&e, a);
    } else { /* Fig. 6 line 12 */
        request_send_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, 0);
        request_retransmit_later(&e, r);
    }
    return 0;
}

int fisslock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    assert(request < h->request_count);
    struct fiss_request *r = host_request(h, request);
    struct agent *a = pool_agent_of(h, r->index);
    bool here = a && a->state == AGENT_LIVE;
    struct who who = request_who(h, r);
    if (r->state == FISS_WAITING) {
        /* The request ends at once: a GRANT that comes later finds no request of its nonce. The agent is told, so that others need
         * not wait for that. */
        if (!here)
            request_send_release(&e, r->index, r->nonce, request_place(h, r), 0, 0, FISSION_DONE);
        request_end(&e, r, why);
        if (here) {
            agent_release(&e, a, who, 0, 0);
            agent_serve(&e, a);
        }
    } else if (r->state == FISS_UPGRADING) {
        if (here && a->term == r->term)
            agent_cancel_upgrade(&e, a, who);
        else
            request_send_release(&e, r->index, r->nonce, request_place(h, r), r->term, r->ordinal, FISSION_UPGRADE | FISSION_DONE);
        request_deny_upgrade(&e, r, why);
    }
    return PACKET_DONE;
}

uint64_t fisslock_expiry(const void *host, uint32_t session)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    const struct session_state *s = host_session(h, session * h->config.requests);
    if (s->lost)
        return 0;
    return s->held && h->config.lease_ns && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_LEASE) ? h->lease_until : UINT64_MAX;
}

int fisslock_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    struct fisslock_host *h = (struct fisslock_host *)(uintptr_t)host;
    assert(request < h->request_count);
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

/* ---- the short way: on the agent's own host, without packets, timers, lists or the undo log ----
 *
 * A hold that came this way has a place in `locals` and nothing else: it is in no queue, bucket or list of holders. Before any
 * other event on this host it is settled, that is, it becomes a hold like others. So only this section knows of the short way.
 *
 * If a process dies in the middle of it, the record of the step says which request it was about (I5). The request's session has
 * died with the process, so the step ends in one way, however far it got: the request is idle, its place is free, and the session's
 * count is without it. Everything else that the step changes (counters, serial numbers, tokens) only rises. */

/* How many requests hold by the short way from this agent; *mode: the mode of their holds. */
static unsigned locals_of(struct fisslock_host *h, const struct agent *a, uint8_t *mode)
{
    unsigned count = 0;
    for (uint64_t left = h->locals.taken; left; left &= left - 1) {
        const struct fiss_request *r = host_request(h, h->locals.request[__builtin_ctzll(left)]);
        if (r->agent != agent_number(h, a))
            continue;
        *mode = r->mode;
        count++;
    }
    return count;
}

/* In a shared tenure with an empty queue: any reader, if there is no semaphore. In an exclusive one, where agents stay: one writer,
 * or readers. */
static bool local_grants(struct fisslock_host *h, const struct agent *a, uint8_t mode)
{
    uint8_t held;
    if (a->state != AGENT_LIVE || a->waiters.count || a->upgrader.machine)
        return false;
    if (a->right == FISSION_SHARED)
        return mode == FISSION_SHARED && !a->closed;
    if (!h->policy.keep || a->granted >= TOKEN_GRANTS_MAX)
        return false;
    if (a->holders.count)
        held = host_node(h, a->holders.head)->mode;
    else if (!locals_of(h, a, &held))
        return true;
    return held == FISSION_SHARED && mode == FISSION_SHARED;
}

/* Whether the agent has other holders, or stays. Else the release needs a packet. */
static bool local_remains(struct fisslock_host *h, const struct agent *a)
{
    uint8_t mode;
    if (a->holders.count)
        return true;
    if (a->kept && !h->leaving && (a->right == FISSION_EXCLUSIVE || (a->known == a->seen && !a->doubt)))
        return true;
    return locals_of(h, a, &mode) > 1;
}

/* I5: first the record of the step, then the change. */
static void step_begin(struct fisslock_host *h, const struct fiss_request *r, uint32_t place, uint32_t held)
{
    h->locals.step.request = request_number(h, r);
    h->locals.step.place = place;
    h->locals.step.held = held;
    __atomic_store_n(&h->locals.step.active, 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void step_end(struct fisslock_host *h)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&h->locals.step.active, 0, __ATOMIC_RELEASE);
}

void fisslock_local_recover(void *host)
{
    struct fisslock_host *h = host;
    if (!h->locals.step.active)
        return;
    struct fiss_request *r = host_request(h, h->locals.step.request);
    r->state = FISS_IDLE;
    r->local = false;
    h->locals.taken &= ~(UINT64_C(1) << h->locals.step.place);
    host_session(h, h->locals.step.request)->held = h->locals.step.held;
    step_end(h);
}

int fisslock_local_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct packet_answer *out)
{
    struct fisslock_host *h = host;
    debug_assert(ask->request < h->request_count);
    if (ask->index >= h->config.locks || !~h->locals.taken || !lease_runs(h, now))
        return -EAGAIN;
    struct fiss_request *r = host_request(h, ask->request);
    struct agent *a = pool_agent_of(h, ask->index);
    if (!a || a->generation != ask->generation || r->state > FISS_ENDED || !local_grants(h, a, (uint8_t)ask->mode))
        return -EAGAIN;
    struct session_state *s = host_session(h, ask->request);
    uint32_t place = (uint32_t)__builtin_ctzll(~h->locals.taken);
    step_begin(h, r, place, s->held);
    if (a->right == FISSION_EXCLUSIVE)
        a->granted++;
    if (a->kept)
        keep_hit(a);
    r->nonce = pool_nonce(h, ask->request);
    r->index = ask->index;
    r->generation = ask->generation;
    r->token = agent_token(a);
    r->pause_ns = 0;
    r->term = a->term;
    r->ordinal = 0;
    r->port = ask->port;
    r->mode = (uint8_t)ask->mode;
    r->priority = ask->priority;
    r->limit = 0;
    r->try = r->floored = r->barred = r->wanted = false;
    r->local = true;
    r->local_place = (uint8_t)place;
    r->agent = agent_number(h, a);
    r->result = 0;
    r->state = FISS_HELD;
    if (*host_thread(h, ask->request) != ask->thread)
        *host_thread(h, ask->request) = ask->thread;
    s->held++;
    h->locals.request[place] = ask->request;
    h->locals.taken |= UINT64_C(1) << place;
    h->counts.local++;
    *out = (struct packet_answer){.result = 0, .mode = ask->mode, .token = r->token};
    step_end(h);
    return 0;
}

int fisslock_local_release(void *host, uint32_t request, uint64_t now)
{
    struct fisslock_host *h = host;
    debug_assert(request < h->request_count);
    if (!lease_runs(h, now))
        return -EAGAIN;
    struct fiss_request *r = host_request(h, request);
    if (!r->local || r->state != FISS_HELD)
        return -EAGAIN;
    const struct agent *a = host_agent(h, r->agent);
    debug_assert((a->state == AGENT_LIVE && a->index == r->index && a->term == r->term) || MISTAKES(h->config.mistakes));
    if (a->waiters.count || a->upgrader.machine || !local_remains(h, a))
        return -EAGAIN;
    struct session_state *s = host_session(h, request);
    step_begin(h, r, r->local_place, s->held - 1);
    r->state = FISS_IDLE;
    r->local = false;
    h->locals.taken &= ~(UINT64_C(1) << r->local_place);
    s->held--;
    step_end(h);
    return 0;
}

void local_settle(struct event *e)
{
    struct fisslock_host *h = e->h;
    edit(e, &h->locals);
    for (; h->locals.taken; h->locals.taken &= h->locals.taken - 1) {
        struct fiss_request *r = host_request(h, h->locals.request[__builtin_ctzll(h->locals.taken)]);
        struct agent *a = host_agent(h, r->agent);
        edit(e, r);
        r->local = false;
        pool_request_link(e, r);
        uint32_t node = pool_node_new(e, true);
        assert(node != NONE); /* I1: there is always a node for an own request, so that holders are known */
        *host_node(h, node) = (struct node){r->nonce, e->now, NONE, request_place(h, r), 0, r->mode, r->priority, 0};
        pool_list_append(e, &a->holders, node);
    }
}

/* ---- packets for requests ---- */

/* Whether a GRANT can be true for a request that waits. One of a tenure that ended here, or of an ordinal that this host has given
 * up in a census, cannot. */
static bool credible(struct fisslock_host *h, const struct fiss_request *r, uint32_t term, uint16_t ordinal)
{
    if (r->floored && fission_term_after(r->floor, term) && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR))
        return false;
    /* A census of a tenure is the end of those before it: promises about them hold, though only the latest is written down. */
    bool over = fission_term_after(r->barred_term, term) && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_FLOOR);
    return !(r->barred && ordinal && (over || (term == r->barred_term && ordinal <= r->barred_inca)));
}

/* A GRANT without agent: shared, by the decider (with an ordinal) or by the agent. */
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
        struct asking asking = agent_asking(h, r, FISSION_SHARED);
        if (here && !agent_hold(e, a, &asking, ordinal))
            return;
        ++*(by_switch ? &h->counts.by_switch : &h->counts.by_agent);
        request_grant(e, r, FISSION_SHARED, p->token << TOKEN_GRANT_BITS | 1, p->term, ordinal);
    } else if (r && request_is_held(r)) {
        if (p->flags & FISSION_WANTED) {
            edit(e, r);
            r->wanted = true;
        }
        struct asking asking = agent_asking(h, r, r->mode);
        if (here && r->term == p->term) /* held before the agent came here: it must know the holder, not only the ordinal */
            agent_hold(e, a, &asking, r->ordinal);
        if (ordinal && !r->ordinal && r->term == p->term) {
            edit(e, r);
            r->ordinal = ordinal; /* granted twice: its release accounts for both */
        }
    } else if (p->client.machine == h->machine) { /* the request has ended */
        h->counts.orphans++;
        request_send_release(e, p->head.index, p->head.nonce, p->client, p->term, ordinal, FISSION_DONE);
    }
}

/* ACK or REFUSED. */
static void on_reply(struct event *e, const struct fission_packet *p)
{
    struct fiss_request *r = pool_request_of(e->h, p->head.nonce);
    if (!r || r->index != p->head.index)
        e->h->drops.stale++;
    else if (p->head.type == FISSION_ACK && r->state == FISS_RELEASING)
        request_end(e, r, 0);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_WAITING && r->limit && p->mode == FISSION_PLACE)
        request_end(e, r, -PAWL_ELIMITS);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_WAITING && r->try)
        request_end(e, r, -PAWL_EHELD);
    else if (p->head.type == FISSION_REFUSED && r->state == FISS_UPGRADING && (p->flags & FISSION_UPGRADE))
        deadlock_second(e, r); /* the other upgrade may have been given up meanwhile */
}

/* ---- where packets and timers go ---- */

static void on_grant(struct event *e, const struct fission_packet *p)
{
    if (!(p->flags & FISSION_AGENT))
        on_shared_grant(e, p);
    else if (p->flags & (FISSION_DENIED | FISSION_DONE))
        tenure_answer(e, p); /* sent back by the decider */
    else
        agent_arrives(e, p);
}

static void dispatch(struct event *e, const struct fission_packet *p)
{
    switch (p->head.type) {
    case FISSION_ACQUIRE:
    case FISSION_RELEASE:
    case FISSION_LOOK:
    case FISSION_TAKE:
        forward_packet(e, p);
        break;
    case FISSION_GRANT:
        on_grant(e, p);
        break;
    case FISSION_FREE:
        tenure_answer(e, p);
        break;
    case FISSION_ACK:
        if (p->flags & FISSION_AGENT)
            tenure_ack(e, p);
        else
            on_reply(e, p);
        break;
    case FISSION_REFUSED:
        on_reply(e, p);
        break;
    case FISSION_LEASE:
        lease_packet(e, p);
        break;
    case FISSION_REPORT:
        report_packet(e, p);
        break;
    case FISSION_CENSUS:
    case FISSION_ANSWER:
        census_packet(e, p);
        break;
    case FISSION_PROBE:
        deadlock_probe(e, p);
        break;
    case FISSION_CHASE:
        deadlock_chase(e, p);
        break;
    case FISSION_ASK:
        deadlock_ask(e, p);
        break;
    default: /* FLAGS end at the decider */
        e->h->drops.bad++;
        break;
    }
}

/* Whether the packet is of an earlier generation of the index than the one that this host knows. */
static bool is_outdated(struct event *e, const struct fission_packet *p)
{
    if (!e->h->rules.names || p->head.type == FISSION_LEASE || p->head.type == FISSION_REPORT)
        return false;
    e->generation = p->head.generation;
    pool_forget_outdated(e, p->head.index, p->head.generation);
    return p->head.generation < pool_generation(e, p->head.index);
}

/* The agent knows which requests wait. While requests wait, it repeats the GRANTs of holds on other hosts (agent_check_holders). */
bool fisslock_wanted(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    struct fisslock_host *h = e.h;
    struct fiss_request *r = host_request(h, request);
    const struct agent *a = pool_agent_of(h, r->index);
    if (!request_is_held(r))
        return false;
    if (a) {
        bool converts = a->upgrader.machine && (a->upgrader.machine != h->machine || a->upgrader.nonce != r->nonce);
        return a->waiters.count || converts || MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_RUMOUR);
    }
    bool told = r->wanted && !MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_MUTE);
    edit(&e, r);
    r->wanted = false;
    return told;
}

/* Agents that stay are given up: they may stay again when the lock comes back. Others may have a holder that does not hold: one
 * whose late request was granted after its host was lost. While no request waits, the agent would not find out, and the index would
 * be lost (I11). */
bool fisslock_uses(void *host, uint64_t index, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    struct agent *a = pool_agent_of(e.h, index);
    bool used = a || pool_request_first(e.h, index);
    if (!a || a->state != AGENT_LIVE || a->waiters.count)
        return used;
    if (a->holders.count) {
        agent_check_holders(&e, a);
        agent_serve(&e, a);
    } else if (a->kept) {
        tenure_free(&e, a);
    }
    return used;
}

void fisslock_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    const struct fission_packet *p = data;
    enum fission_fault fault = fission_verify(data, len, &h->rules);
    if (fault == FISSION_FINE && p->head.to.machine != h->machine)
        fault = FISSION_ALIEN;
    if (fault == FISSION_FINE && p->head.type != FISSION_LEASE && !lease_runs(h, now))
        fault = FISSION_STALE; /* without a lease no packet proves anything */
    if (fault == FISSION_FINE && ((h->deaf && p->head.epoch <= h->deaf) || is_outdated(&e, p)))
        fault = FISSION_STALE;
    if (fault == FISSION_FINE)
        dispatch(&e, p);
    else
        spill_count_fault(&h->drops, fault);
}

uint64_t fisslock_tick(void *host, uint64_t now, struct outbox *out)
{
    struct fisslock_host *h = host;
    struct event e = event_begin(host, now, out);
    uint32_t timer;
    while (out->packets < OUTBOX_PACKETS / 2 && timers_pop(host_timers(h), now, &timer, out)) {
        if (timer < h->request_count)
            request_due(&e, host_request(h, timer));
        else if (timer < h->request_count + h->agent_count)
            agent_due(&e, host_agent(h, timer - h->request_count));
        else if (timer == timer_of_census(h))
            census_due(&e);
        else if (timer == timer_of_lease(h))
            lease_due(&e);
        else
            report_due(&e);
    }
    return min_u64(timers_next(host_timers(h)), h->lease_until ? h->lease_until : UINT64_MAX);
}
