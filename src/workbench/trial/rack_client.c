/* SPDX-License-Identifier: Apache-2.0 */
/* The clients of the simulated rack: sessions, and what an actor calls. */
#include "designs/packet/gather.h"
#include "workbench/trial/rack.h"

#include <errno.h>

#define KEEPER_NS (4 * NS_PER_MS) /* how often a session's keeper looks up, if its lease is longer than three of these */
#define SHORT_WAY_LINES 4
#define RETRY_NS (1 * NS_PER_MS) /* until a process takes the place of one whose session was lost */
#define TIDY_LEASES 10           /* until nothing of ended sessions may be left */

static const struct packet_design *design_of(const struct rack_client *c)
{
    return c->rack->design;
}

bool rack_client_valid(const struct rack_client *c)
{
    if (!c->open || c->lost || !c->process->alive || (c->rack->coordinator && !rack_member_lives(&c->host->member)))
        return false;
    uint64_t now = rack_clock(c->host);
    return now < c->until_ns && now < design_of(c)->expiry(c->host->memory, c->session);
}

/* ---- waiting ---- */

/* For a wake of this request, until a deadline of the host's clock. 0, -ETIMEDOUT or -ECANCELED. */
static int wait_for(struct rack_client *c, struct sim_task *task, uint32_t request, uint64_t deadline)
{
    struct rack_host *h = c->host;
    h->waiters[request] = sim_ticket_take(task);
    int rc = sim_task_wait(task, deadline == DEADLINE_NEVER ? UINT64_MAX : sim_host_clock_inverse(h->host, deadline));
    h->waiters[request].task = NULL;
    return rc;
}

/* The answer to what was asked; at the deadline or when cancelled it is not wanted any more. */
static int answer_of(struct rack_client *c, struct sim_task *task, uint32_t request, uint64_t deadline, struct packet_answer *out)
{
    const struct packet_design *d = design_of(c);
    struct rack_host *h = c->host;
    int why = 0;
    while (d->outcome(h->memory, request, out) == -EINPROGRESS) {
        int rc = wait_for(c, task, request, why ? DEADLINE_NEVER : deadline);
        if (!rc || why || d->outcome(h->memory, request, out) != -EINPROGRESS)
            continue;
        why = rc;
        d->give_up(h->memory, request, why, rack_clock(h), rack_host_outbox(h));
        rack_host_flush(h);
    }
    return out->result;
}

/* ---- the graph of waits ---- */

static unsigned number_of(const struct actor *a)
{
    return a->client * ACTORS_MAX + a->number;
}

static void note_wait(const struct actor *a, uint32_t request, uint64_t lock, enum pawl_mode mode)
{
    struct rack *r = rack_task_of(a)->client->rack;
    if (r->params.watch_waits)
        waits_begin(&r->waits, number_of(a), request, lock, mode);
}

static void note_end(const struct actor *a, bool granted)
{
    struct rack *r = rack_task_of(a)->client->rack;
    if (!r->params.watch_waits)
        return;
    if (granted)
        waits_granted(&r->waits, number_of(a), sim_now(&r->sim));
    else
        waits_ended(&r->waits, number_of(a), sim_now(&r->sim));
}

/* ---- what an actor calls ---- */

static int idle_request(const struct rack_client *c, uint32_t *out)
{
    uint32_t n = c->rack->config.requests;
    for (uint32_t i = 0; i < n; i++) {
        *out = c->session * n + i;
        if (design_of(c)->idle(c->host->memory, *out) && !c->host->waiters[*out].task)
            return 0;
    }
    return -PAWL_ELIMIT;
}

/* Not granted for sure, or not any more: gives it back. */
static int too_late(struct rack_client *c, uint32_t request)
{
    design_of(c)->release(c->host->memory, request, rack_clock(c->host), rack_host_outbox(c->host));
    rack_host_flush(c->host);
    return -PAWL_ELOST;
}

/* The short way is not for nothing: the lines of the host's mutex, the agent, the request and the session change cores. Real ones
 * take half as long without contention (bench/fisslock-local). */
static void take_time(struct rack_client *c, struct sim_task *task)
{
    uint64_t until = sim_now(&c->rack->sim) + SHORT_WAY_LINES * model_get(c->rack->sim.model, MODEL_local_ns);
    bool cancelled = task->cancelled;
    task->cancelled = false;
    while (sim_task_wait(task, until) != -ETIMEDOUT)
        ;
    task->cancelled = cancelled;
}

static int local_acquire(struct rack_client *c, const struct packet_ask *ask, struct packet_answer *out)
{
    rack_host_changes_alone(c->host);
    return design_of(c)->local_acquire(c->host->memory, ask, rack_clock(c->host), out);
}

/* The short way, if the design has one and it leads there; else by packets. */
static int ask_for(struct rack_client *c, struct sim_task *task, const struct packet_ask *ask, uint64_t deadline,
                   struct packet_answer *out)
{
    const struct packet_design *d = design_of(c);
    if (d->local_acquire && !ask->limit && !local_acquire(c, ask, out)) {
        take_time(c, task);
        return 0;
    }
    int rc = d->acquire(c->host->memory, ask, rack_clock(c->host), rack_host_outbox(c->host));
    rack_host_flush(c->host);
    return rc < 0 ? rc : answer_of(c, task, ask->request, deadline == DEADLINE_TRY ? DEADLINE_NEVER : deadline, out);
}

static int take_reply(struct rack_client *c, uint32_t request, pawl_call *call)
{
    uint32_t len = 0;
    int rc = design_of(c)->reply(c->host->memory, request, call->reply, (uint32_t)call->room, &len, rack_host_outbox(c->host));
    rack_host_flush(c->host);
    call->replied = len;
    return rc;
}

/* Everything of a request but its number. */
static struct packet_ask ask_of(const struct actor *a, pawl_key key, enum pawl_mode mode, bool try)
{
    const struct rack_client *c = rack_task_of(a)->client;
    return (struct packet_ask){.thread = a->number + 1,
                               .tenant = c->tenant,
                               .priority = c->priority,
                               .port = rack_client_port(c),
                               .mode = mode,
                               .index = key.id,
                               .try = try};
}

/* After the answer: the hold, unless the session has ended meanwhile. */
static int take_hold(struct rack_client *c, pawl_key key, const struct packet_ask *ask, const struct packet_answer *answer,
                     struct hold *out)
{
    if (!rack_client_valid(c))
        return too_late(c, ask->request); /* I1: asked afterwards */
    if (c->rack->coordinator)
        rack_watch_index(c->rack, ask->index, key.id);
    *out = (struct hold){.index = key.id,
                         .token = answer->token,
                         .record = ask->request,
                         .mode = ask->mode,
                         .end = RANGE_UNITS_MAX,
                         .limit = ask->limit};
    return 0;
}

/* `call`: something to be done under the lock; `out` is then null if the lock is not kept. */
static int lock_with(struct actor *a, pawl_key key, enum pawl_mode mode, uint32_t limit, uint64_t deadline, pawl_call *call,
                     struct hold *out)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct packet_ask ask = ask_of(a, key, mode, deadline == DEADLINE_TRY);
    ask.bytes = call ? call->bytes : NULL;
    ask.len = call ? (uint32_t)call->len : 0;
    ask.once = !out;
    ask.limit = (uint16_t)limit;
    struct packet_answer answer;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    int rc = c->rack->coordinator ? rack_find(a, key.id, deadline, &ask) : 0;
    if (!rc)
        rc = idle_request(c, &ask.request);
    if (rc)
        return rc;
    note_wait(a, ask.request, key.id, mode);
    if (c->rack->coordinator)
        c->host->keys[ask.request] = key.id;
    rc = ask_for(c, a->task, &ask, deadline, &answer);
    if (!rc && call)
        rc = take_reply(c, ask.request, call);
    if (!rc && !out) { /* done, and given back */
        note_end(a, false);
        return 0;
    }
    note_end(a, !rc && rack_client_valid(c));
    if (rc)
        return rack_client_valid(c) ? rc : -PAWL_ELOST;
    return take_hold(c, key, &ask, &answer, out);
}

static int actor_lock(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, struct hold *out)
{
    return lock_with(a, key, mode, 0, deadline, NULL, out);
}

static int actor_semaphore(struct actor *a, pawl_key key, uint32_t limit, uint64_t deadline, struct hold *out)
{
    return lock_with(a, key, PAWL_SHARED, limit, deadline, NULL, out);
}

static int actor_lock_call(struct actor *a, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_call *call, struct hold *out)
{
    return lock_with(a, key, mode, 0, deadline, call, out);
}

static int actor_hold_call(struct actor *a, const struct hold *h, uint64_t deadline, pawl_call *call)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct packet_answer answer;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    int rc = design_of(c)->call(c->host->memory, h->record, call->bytes, (uint32_t)call->len, rack_clock(c->host),
                                rack_host_outbox(c->host));
    rack_host_flush(c->host);
    if (rc >= 0)
        rc = answer_of(c, a->task, h->record, deadline == DEADLINE_TRY ? DEADLINE_NEVER : deadline, &answer);
    return rc ? rc : take_reply(c, h->record, call);
}

/* Its packets leave with the host's next ones. *at_once: the design's short way did it, which takes its time. */
static int release(struct actor *a, const struct hold *h, bool *at_once)
{
    struct rack_client *c = rack_task_of(a)->client;
    const struct packet_design *d = design_of(c);
    if (c->rack->params.watch_waits)
        waits_released(&c->rack->waits, number_of(a), h->record, sim_now(&c->rack->sim));
    if (d->local_release)
        rack_host_changes_alone(c->host);
    *at_once = d->local_release && !d->local_release(c->host->memory, h->record, rack_clock(c->host));
    return *at_once ? 0 : d->release(c->host->memory, h->record, rack_clock(c->host), rack_host_outbox(c->host));
}

static int actor_unlock(struct actor *a, const struct hold *h)
{
    struct rack_client *c = rack_task_of(a)->client;
    bool at_once;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    int rc = release(a, h, &at_once);
    if (at_once)
        take_time(c, a->task);
    else
        rack_host_flush(c->host);
    return rc;
}

static void actor_unlock_all(struct actor *a, const struct hold *holds, unsigned count, int *rc)
{
    struct rack_client *c = rack_task_of(a)->client;
    unsigned short_ways = 0, left = 0;
    for (unsigned i = 0; i < count; i++) {
        bool at_once = false, valid = rack_client_valid(c);
        rc[i] = valid ? release(a, &holds[i], &at_once) : -PAWL_ELOST;
        rack_host_commit(c->host);
        short_ways += at_once;
        left += valid && !at_once;
    }
    if (left)
        rack_host_flush(c->host);
    while (short_ways--)
        take_time(c, a->task);
}

static int actor_convert(struct actor *a, struct hold *h, enum pawl_mode mode, uint64_t deadline)
{
    struct rack_client *c = rack_task_of(a)->client;
    struct packet_answer answer;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    if (!design_of(c)->convert)
        return -PAWL_ENOTSUP;
    if (c->rack->params.watch_waits && mode == PAWL_SHARED)
        waits_weakened(&c->rack->waits, number_of(a), h->record);
    note_wait(a, h->record, h->index, mode);
    int rc = design_of(c)->convert(c->host->memory, h->record, mode, rack_clock(c->host), rack_host_outbox(c->host));
    rack_host_flush(c->host);
    if (rc >= 0)
        rc = answer_of(c, a->task, h->record, deadline, &answer);
    note_end(a, !rc && rack_client_valid(c));
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    if (rc)
        return rc;
    h->mode = mode;
    h->token = answer.token;
    return 0;
}

/* ---- several locks at once, in the order in which they are given (campaigns) ---- */

struct rack_gathering {
    struct actor *a;
    const pawl_want *wants;
    uint64_t deadline;
    struct hold *holds;
    struct packet_ask asks[ACTOR_WANTS_MAX];
    struct packet_answer answers[ACTOR_WANTS_MAX];
    bool at_once[ACTOR_WANTS_MAX]; /* by the short way */
    bool lost;
};

static void gather_send(void *caller)
{
    const struct rack_gathering *g = caller;
    rack_host_flush(rack_task_of(g->a)->client->host);
}

static int gather_ask(void *caller, unsigned i, bool wait)
{
    struct rack_gathering *g = caller;
    struct rack_client *c = rack_task_of(g->a)->client;
    const struct packet_design *d = design_of(c);
    if (wait) /* gather_answer does all of it */
        return 0;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    if (c->rack->coordinator && !rack_knows(c->host, g->wants[i].key.id, &g->asks[i]))
        return -ESTALE; /* the host has forgotten the key since it was found: I7 */
    int rc = idle_request(c, &g->asks[i].request);
    if (rc)
        return rc;
    c->host->waiters[g->asks[i].request] = sim_ticket_take(g->a->task); /* not for another task, even if it is answered soon */
    if (c->rack->coordinator)
        c->host->keys[g->asks[i].request] = g->wants[i].key.id;
    g->at_once[i] = d->local_acquire && !local_acquire(c, &g->asks[i], &g->answers[i]);
    if (g->at_once[i])
        return 0;
    rc = d->acquire(c->host->memory, &g->asks[i], rack_clock(c->host), rack_host_outbox(c->host));
    rack_host_commit(c->host);
    if (rc < 0)
        c->host->waiters[g->asks[i].request].task = NULL;
    return rc < 0 ? rc : 0;
}

static int gather_answer(void *caller, unsigned i, bool wait)
{
    struct rack_gathering *g = caller;
    struct rack_client *c = rack_task_of(g->a)->client;
    if (wait)
        return actor_lock(g->a, g->wants[i].key, g->wants[i].mode, g->deadline, &g->holds[i]);
    int rc = 0;
    if (g->at_once[i])
        take_time(c, g->a->task);
    else
        rc = answer_of(c, g->a->task, g->asks[i].request, g->deadline == DEADLINE_TRY ? DEADLINE_NEVER : g->deadline,
                       &g->answers[i]);
    c->host->waiters[g->asks[i].request].task = NULL;
    if (rc)
        return rack_client_valid(c) ? rc : -PAWL_ELOST;
    note_wait(g->a, g->asks[i].request, g->wants[i].key.id, g->wants[i].mode); /* it has not waited, but now it holds */
    note_end(g->a, rack_client_valid(c));
    return take_hold(c, g->wants[i].key, &g->asks[i], &g->answers[i], &g->holds[i]);
}

static void gather_give_back(void *caller, unsigned i)
{
    struct rack_gathering *g = caller;
    if (actor_unlock(g->a, &g->holds[i]) == -PAWL_ELOST)
        g->lost = true;
}

static int lock_all_once(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    static const struct gather_ops ops = {
        .ask = gather_ask, .send = gather_send, .answer = gather_answer, .give_back = gather_give_back};
    struct rack_client *c = rack_task_of(a)->client;
    struct rack_gathering g = {.a = a, .wants = wants, .deadline = deadline, .holds = holds};
    int rc = 0;
    for (unsigned i = 0; i < count && !rc; i++) {
        g.asks[i] = ask_of(a, wants[i].key, wants[i].mode, true);
        rc = c->rack->coordinator ? rack_find(a, wants[i].key.id, deadline, &g.asks[i]) : 0;
    }
    rc = rc ? rc : gather(&ops, &g, count, deadline != DEADLINE_TRY);
    return rc && g.lost ? -PAWL_ELOST : rc;
}

/* As client/net_all.c does: where there are fewer indexes than names, each name that is found may take the index of another one. */
static int lock_all(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    const struct rack_client *c = rack_task_of(a)->client;
    uint64_t began = rack_clock(c->host);
    for (;;) {
        int rc = lock_all_once(a, wants, count, deadline, holds);
        uint64_t now = rack_clock(c->host);
        if (rc != -ESTALE)
            return rc;
        if (deadline != DEADLINE_TRY && now >= deadline)
            return -ETIMEDOUT;
        if (now - began >= c->rack->config.lease_ns)
            return deadline == DEADLINE_TRY ? -EAGAIN : -ENOSPC;
    }
}

/* In the order of the keys, as all clients do; RACK_BATCH_ORDER: half of the clients in the opposite order. */
static int actor_lock_all(struct actor *a, const pawl_want *wants, unsigned count, uint64_t deadline, struct hold *holds)
{
    const struct rack_client *c = rack_task_of(a)->client;
    bool opposite = MISTAKE(c->rack->config.mistakes, RACK_BATCH_ORDER) && c->id % 2 == 0;
    pawl_want sorted[ACTOR_WANTS_MAX] = {{.mode = PAWL_EXCLUSIVE}};
    struct hold held[ACTOR_WANTS_MAX] = {{0}};
    unsigned order[ACTOR_WANTS_MAX];
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i;
        for (; at && (wants[order[at - 1]].key.id > wants[i].key.id) != opposite; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (unsigned i = 0; i < count; i++)
        sorted[i] = wants[order[i]];
    int rc = lock_all(a, sorted, count, deadline, held);
    for (unsigned i = 0; i < count && !rc; i++)
        holds[order[i]] = held[i];
    return rc;
}

static int actor_wanted(struct actor *a, const struct hold *h)
{
    struct rack_client *c = rack_task_of(a)->client;
    if (!rack_client_valid(c))
        return -PAWL_ELOST;
    int known = design_of(c)->wanted(c->host->memory, h->record, rack_clock(c->host), rack_host_outbox(c->host));
    rack_host_flush(c->host);
    return known;
}

static int actor_query(struct actor *a, pawl_key key, pawl_state *out)
{
    return -PAWL_ENOTSUP;
}

static void actor_sleep(struct actor *a, uint64_t ns)
{
    const struct rack_host *h = rack_task_of(a)->client->host;
    uint64_t until = sim_host_clock_inverse(h->host, rack_clock(h) + ns);
    bool cancelled = a->task->cancelled;
    a->task->cancelled = false;
    while (sim_task_wait(a->task, until) != -ETIMEDOUT)
        ;
    a->task->cancelled = cancelled;
}

static bool actor_valid(const struct actor *a)
{
    return rack_client_valid(rack_task_of(a)->client);
}

/* All requests of all hosts are idle, the actor's own among them. */
static bool all_idle(const struct rack *r)
{
    for (unsigned i = 0; i < r->params.hosts; i++)
        for (uint32_t q = 0; q < rack_requests(&r->config) && rack_host_joined(&r->hosts[i]); q++)
            if (!r->design->idle(r->hosts[i].memory, q))
                return false;
    return true;
}

/* No host uses any lock: agents are gone, too. Else its key could never be retired, and its index would be lost. */
static bool none_used(struct rack *r)
{
    bool used = false;
    for (unsigned i = 0; i < r->params.hosts && r->coordinator && r->design->uses; i++)
        for (uint64_t index = 0; index < r->config.locks && rack_host_joined(&r->hosts[i]); index++) {
            used |= r->design->uses(r->hosts[i].memory, index, rack_clock(&r->hosts[i]), rack_host_outbox(&r->hosts[i]));
            rack_host_flush(&r->hosts[i]);
        }
    return !used;
}

/* For ten leases, of the longest that an operator has set: a coordinator waits until that one is over, and after it a steward. */
static int actor_tidy(struct actor *a)
{
    struct rack *r = rack_task_of(a)->client->rack;
    for (uint64_t i = 0; i < TIDY_LEASES * r->longest_ns / r->params.lease_ns; i++) {
        if (all_idle(r) && none_used(r))
            return 0;
        actor_sleep(a, r->params.lease_ns);
    }
    return actor_valid(a) ? -EBUSY : -PAWL_ELOST;
}

const struct actor_ops rack_actor_ops = {
    .lock = actor_lock,
    .lock_all = actor_lock_all,
    .semaphore = actor_semaphore,
    .lock_call = actor_lock_call,
    .hold_call = actor_hold_call,
    .unlock = actor_unlock,
    .unlock_all = actor_unlock_all,
    .convert = actor_convert,
    .wanted = actor_wanted,
    .set_value = rack_set_value,
    .get_value = rack_get_value,
    .query = actor_query,
    .tidy = actor_tidy,
    .sleep = actor_sleep,
    .valid = actor_valid,
};

/* ---- sessions ---- */

static void restart_client(void *arg, uint64_t tag)
{
    struct rack_client *c = arg;
    if (!c->process->alive && c->process->host->up && c->process->generation == tag)
        sim_process_restart(c->process);
}

/* The session is lost: another process takes this one's place. */
static void start_again(struct rack_client *c)
{
    struct sim *sim = &c->rack->sim;
    sim_at_timer(sim, sim_now(sim) + RETRY_NS, restart_client, c, c->process->generation);
    sim_process_crash(c->process); /* does not return to its tasks */
}

static void work_task(void *arg)
{
    struct rack_task *t = arg;
    if (!t->client->rack->params.work(&t->actor))
        start_again(t->client);
    t->done = true;
    t->client->working--;
}

static void pause_for(struct rack_client *c, uint64_t ns)
{
    struct sim_task *self = sim_current(&c->rack->sim);
    uint64_t until = sim_host_clock_inverse(c->host->host, rack_clock(c->host) + ns);
    while (sim_task_wait(self, until) != -ETIMEDOUT)
        ;
}

/* Opens the session, renews it until the work is done, closes it. */
static void keeper_task(void *arg)
{
    struct rack_client *c = arg;
    struct rack *r = c->rack;
    while (!rack_host_joined(c->host))
        pause_for(c, RETRY_NS);
    rack_session_dead(c); /* whatever the one before it left */
    c->lost = false;
    c->open = true;
    c->until_ns = rack_clock(c->host) + r->params.lease_ns;
    r->sessions++;
    c->working = 0;
    for (unsigned i = 0; i < r->params.tasks; i++) {
        struct rack_task *t = &c->tasks[i];
        if (t->done)
            continue;
        c->working++;
        t->actor.task = sim_spawn(c->process, "work", work_task, t);
        assert(t->actor.task);
    }
    while (c->working) {
        pause_for(c, min_u64(r->params.lease_ns / 3, KEEPER_NS));
        if (!rack_client_valid(c)) {
            pause_for(c, r->params.lease_ns / 3); /* the tasks find out by themselves at their next step, and start again */
            start_again(c);
        }
        c->until_ns = rack_clock(c->host) + r->params.lease_ns;
    }
    c->open = false;
    rack_session_dead(c);
    c->finished = true;
    c->process->crashable = false;
    r->clients_done++;
    sim_process_crash(c->process); /* it exits */
}

void rack_client_start(struct rack_client *c)
{
    const struct sim_task *task = sim_spawn(c->process, "keeper", keeper_task, c);
    assert(task);
}
