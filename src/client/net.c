/* SPDX-License-Identifier: Apache-2.0 */
/* The synchronous calls of a session on a rack. */
#include "client/net.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BUSY_NS NS_PER_MS                /* how often a call that needs an idle request looks for one */
#define CONVERT_NS (20 * NS_PER_MS)      /* for which a conversion that does not wait for others waits for its answer */
#define EXTEND_NS (200 * NS_PER_MS)      /* for which pawl_extend waits for the answers to its renewals */
#define EXTEND_AGAIN_NS (20 * NS_PER_MS) /* until they are retransmitted */

/* ---- requests and grants ---- */

/* The spare request was idle when it was given back, as the short way needs it. */
static bool take_spare(struct net *n, uint32_t *out)
{
    *out = __atomic_exchange_n(&n->spare, NET_NONE, __ATOMIC_ACQUIRE);
    return *out != NET_NONE;
}

static void give_spare(struct net *n, uint32_t request)
{
    uint32_t none = NET_NONE;
    if (!__atomic_compare_exchange_n(&n->spare, &none, request, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        net_give_request(n, false, request);
}

int net_take_request(struct net *n, bool locked, uint32_t *out)
{
    int rc = 0;
    if (!locked)
        pthread_mutex_lock(&n->handle.async.lock);
    if (n->idle_count) {
        *out = n->idle[n->idle_first];
        n->idle_first = (n->idle_first + 1) % n->host.header->config.requests;
        n->idle_count--;
    } else if (!take_spare(n, out)) {
        rc = -PAWL_ELIMIT;
    }
    if (!locked)
        pthread_mutex_unlock(&n->handle.async.lock);
    return rc;
}

void net_give_request(struct net *n, bool locked, uint32_t request)
{
    const uint32_t requests = n->host.header->config.requests;
    if (!locked)
        pthread_mutex_lock(&n->handle.async.lock);
    assert(n->idle_count < requests);
    n->idle[(n->idle_first + n->idle_count++) % requests] = request;
    if (!locked)
        pthread_mutex_unlock(&n->handle.async.lock);
}

/* The session's number and its serial, and the request's. */
static uint64_t serial_of(const struct net *n, uint32_t request)
{
    return (uint64_t)n->serial << 32 | __atomic_load_n(&n->host.uses[request], __ATOMIC_RELAXED);
}

/* On the host's clock. */
uint64_t net_expiry_locked(const struct net *n)
{
    const struct host_session *s = &n->host.sessions[n->session];
    if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) != HOST_SESSION_OPEN ||
        __atomic_load_n(&n->host.header->dead, __ATOMIC_ACQUIRE))
        return 0;
    uint64_t until =
        min_u64(__atomic_load_n(&s->until_ns, __ATOMIC_ACQUIRE), __atomic_load_n(&n->host.header->until_ns, __ATOMIC_ACQUIRE));
    return min_u64(until, n->host.design->expiry(n->host.memory, n->session));
}

bool net_valid(struct net *n)
{
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    bool valid = host_now() < net_expiry_locked(n);
    host_leave(&n->host, out);
    return valid;
}

/* The reason for which net_expiry_locked has passed; 0: it has not. */
static enum pawl_why why_locked(const struct net *n, uint64_t now)
{
    const struct host_session *s = &n->host.sessions[n->session];
    const struct host_header *h = n->host.header;
    if (now < net_expiry_locked(n))
        return 0;
    if (s->why)
        return s->why;
    if (__atomic_load_n(&h->dead, __ATOMIC_ACQUIRE) || now >= __atomic_load_n(&h->until_ns, __ATOMIC_ACQUIRE))
        return PAWL_WHY_COORDINATOR;
    return now >= __atomic_load_n(&s->until_ns, __ATOMIC_ACQUIRE) ? PAWL_WHY_LEASE : PAWL_WHY_GRANTER;
}

ONCE enum pawl_why net_why(struct pawl *p)
{
    struct net *n = net_of(p);
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    enum pawl_why why = why_locked(n, host_now());
    host_leave(&n->host, out);
    return why;
}

/* From the host's clock, which goes on while the machine sleeps, to that of grants. A process that is stopped between the two
 * readings gets an earlier expiry, never a later one. */
static uint64_t grant_clock(uint64_t at, uint64_t grants_now, uint64_t hosts_now)
{
    return at > hosts_now ? add_saturating(grants_now, at - hosts_now) : 0;
}

uint64_t net_grant_clock(uint64_t at)
{
    uint64_t now = world_now(&world_real);
    return grant_clock(at, now, host_now());
}

pawl_grant net_grant(const struct net *n, uint32_t request, uint64_t index, const struct packet_answer *a, uint64_t expiry)
{
    return (pawl_grant){.token = a->token,
                        .mode = a->mode,
                        .hold = request,
                        .index = index,
                        .serial = serial_of(n, request),
                        .expiry_ns = net_grant_clock(expiry)};
}

int net_request_of(struct net *n, const pawl_grant *g, uint32_t *out)
{
    uint32_t requests = n->host.header->config.requests;
    if (g->hold / requests != n->session || g->serial != serial_of(n, g->hold))
        return net_valid(n) ? -PAWL_ENOTOWNER : -PAWL_ELOST;
    *out = g->hold;
    assert(*out < rack_requests(&n->host.header->config));
    return 0;
}

int net_failed(const struct net *n, int rc)
{
    if (!rc)
        return 0;
    if (rc == -PAWL_ELIMIT)
        return explain(rc, "this session already holds or waits for %u locks", n->host.header->config.requests);
    if (rc == -PAWL_ENOTSUP)
        return explain(rc, "the design '%s' does not offer that", n->host.header->design);
    if (rc == -EAGAIN)
        return explain(
            rc, "the lock's server does not answer: it has stopped, cannot be reached, or has just started and waits out a lease");
    if (rc == -EDEADLK)
        return explain(rc, "a deadlock: a holder of the lock waits, directly or through others, for a lock that this thread holds; "
                           "release that, then try again");
    return explain(rc, "%s", pawl_strerror(rc));
}

/* ---- what synchronous and asynchronous calls begin alike ---- */

static int start(struct net *n, struct packet_ask *ask, const struct host_name *name, struct outbox *out)
{
    int rc = -EBUSY;
    ask->index = name->index;
    ask->generation = name->generation;
    ask->port = n->udp.at.port;
    ask->tenant = n->tenant;
    ask->priority = n->priority;
    host_enter(&n->host, out);
    if (host_now() >= net_expiry_locked(n)) {
        rc = -PAWL_ELOST;
    } else if (!host_names_know(&n->host.header->names, name)) {
        rc = -ESTALE;
    } else if (n->host.design->idle(n->host.memory, ask->request)) {
        __atomic_add_fetch(&n->host.uses[ask->request], 1, __ATOMIC_RELAXED);
        net_owns(n, ask->request, ask->thread);
        rc = n->host.design->acquire(n->host.memory, ask, host_now(), out);
    }
    host_leave(&n->host, out);
    return rc;
}

/* With a request whose last release has been acknowledged; the few others will be. */
int net_begin_lock(struct net *n, struct packet_ask *ask, const struct host_name *name, const pawl_call *call, bool locked,
                   uint32_t *bell, struct outbox *out)
{
    if (call) {
        ask->bytes = call->bytes ? call->bytes : "";
        ask->len = (uint32_t)call->len;
    }
    for (uint32_t tries = n->host.header->config.requests; tries > 0; tries--) {
        int rc = net_take_request(n, locked, &ask->request);
        if (rc)
            return rc;
        *bell = net_bell(n, ask->request);
        rc = start(n, ask, name, out);
        if (rc == PACKET_DONE)
            *bell = NET_LOOK_AT_ONCE;
        if (rc < 0)
            net_give_request(n, locked, ask->request);
        if (rc != -EBUSY)
            return rc;
    }
    return -EBUSY;
}

int net_begin_convert(struct net *n, uint32_t request, enum pawl_mode mode, uint32_t thread, uint32_t *bell, struct outbox *out)
{
    const struct packet_design *d = n->host.design;
    int rc = -PAWL_ELOST;
    if (!d->convert)
        return -PAWL_ENOTSUP;
    net_touches(n, request);
    *bell = net_bell(n, request);
    host_enter(&n->host, out);
    if (d->thread)
        d->thread(n->host.memory, request, thread, host_now(), out);
    if (host_now() < net_expiry_locked(n))
        rc = d->convert(n->host.memory, request, mode, host_now(), out);
    host_leave(&n->host, out);
    if (rc == PACKET_DONE)
        *bell = NET_LOOK_AT_ONCE;
    return rc;
}

int net_begin_call(struct net *n, uint32_t request, const pawl_call *call, uint32_t *bell, struct outbox *out)
{
    int rc = -PAWL_ELOST;
    *bell = net_bell(n, request);
    host_enter(&n->host, out);
    if (host_now() < net_expiry_locked(n))
        rc = n->host.design->call(n->host.memory, request, call->bytes, (uint32_t)call->len, host_now(), out);
    host_leave(&n->host, out);
    return rc;
}

int net_end(struct net *n, uint32_t request, bool locked, struct outbox *out)
{
    net_touches(n, request);
    host_enter(&n->host, out);
    bool lost = host_now() >= net_expiry_locked(n);
    int rc = n->host.design->release(n->host.memory, request, host_now(), out);
    if (!rc)
        __atomic_add_fetch(&n->host.uses[request], 1, __ATOMIC_RELAXED); /* the grant is void */
    host_leave(&n->host, out);
    if (!rc)
        net_owns(n, request, 0);
    if (!rc)
        net_give_request(n, locked, request);
    return lost ? -PAWL_ELOST : rc;
}

/* ---- what a thread would wait for itself ---- */

/* Whether some request of the session is in use. The lock keeps a request from being counted both as idle and as the spare one. */
static bool any_in_use(struct net *n)
{
    pthread_mutex_lock(&n->handle.async.lock);
    uint32_t unused = n->idle_count + (__atomic_load_n(&n->spare, __ATOMIC_RELAXED) != NET_NONE);
    pthread_mutex_unlock(&n->handle.async.lock);
    return unused < n->host.header->config.requests;
}

/* Whether the calling thread holds that lock, with a request other than `but`, in a mode that excludes the one that is wanted: it
 * would wait for itself (net_wait.c says when owners are known). Each lock that is not granted at once comes here: a session that
 * holds nothing must not look at all its requests. A semaphore with a limit: whether the thread has all of its places. */
static int waits_for_itself(struct net *n, uint64_t index, enum pawl_mode mode, uint32_t limit, uint32_t but)
{
    const uint32_t requests = n->host.header->config.requests, owner = net_owner(n);
    uint32_t places = 0; /* of a semaphore with this limit */
    bool held = false;
    if (!n->host.design->claim || !owner || !any_in_use(n))
        return 0;
    for (uint32_t i = 0; i < requests && !held; i++) {
        const uint32_t request = n->session * requests + i;
        struct packet_claim claim;
        if (__atomic_load_n(&n->owners[i], __ATOMIC_RELAXED) != owner || request == but)
            continue;
        host_lock(&n->host);
        bool ours = n->host.design->claim(n->host.memory, request, &claim) && claim.holds && claim.index == index;
        host_unlock(&n->host);
        places += ours && limit && claim.limit == limit;
        held = ours && (claim.mode == PAWL_EXCLUSIVE || mode == PAWL_EXCLUSIVE || (limit && places == limit));
    }
    return held ? explain(-EDEADLK, "this thread holds the lock already, and would wait for itself") : 0;
}

/* ---- calls ---- */

static int end_request(struct net *n, uint32_t request)
{
    struct outbox *out = net_outbox();
    int rc = net_end(n, request, false, out);
    net_flush(n, &n->udp, out);
    return rc;
}

/* One look at each clock. The coarse one lags, so that the grant seems to end a little earlier than it does. */
bool net_lock_at_once(struct net *n, const struct host_name *name, enum pawl_mode mode, pawl_grant *out)
{
    const struct packet_design *d = n->host.design;
    struct packet_ask ask = {
        .thread = net_owner(n), .port = n->udp.at.port, .mode = mode, .index = name->index, .generation = name->generation};
    struct packet_answer answer;
    if (!d->local_acquire || (!take_spare(n, &ask.request) && net_take_request(n, false, &ask.request)))
        return false;
    uint64_t grants_now = world_clock(CLOCK_MONOTONIC_COARSE), expiry = 0;
    host_lock(&n->host);
    uint64_t now = host_now();
    bool got = now < net_expiry_locked(n) && host_names_know(&n->host.header->names, name) &&
               !d->local_acquire(n->host.memory, &ask, now, &answer);
    if (got) {
        expiry = net_expiry_locked(n); /* now that the session holds a lock; 0 if the session was lost just now */
        __atomic_store_n(&n->host.uses[ask.request], n->host.uses[ask.request] + 1, __ATOMIC_RELAXED);
        net_owns(n, ask.request, ask.thread);
    }
    host_unlock(&n->host);
    if (!got)
        give_spare(n, ask.request);
    else if (!expiry)
        end_request(n, ask.request);
    if (!got || !expiry)
        return false;
    *out = (pawl_grant){.token = answer.token,
                        .mode = mode,
                        .hold = ask.request,
                        .index = name->index,
                        .serial = serial_of(n, ask.request),
                        .expiry_ns = grant_clock(expiry, grants_now, now)};
    return true;
}

int net_take_reply(struct net *n, uint32_t request, pawl_call *call, struct outbox *out)
{
    uint32_t len = 0;
    host_enter(&n->host, out);
    int rc = n->host.design->reply(n->host.memory, request, call->reply, (uint32_t)min_u64(call->room, PAWL_CALL_MAX), &len, out);
    host_leave(&n->host, out);
    if (!rc)
        call->replied = len;
    return rc;
}

/* Waits for the acknowledgement of a release, if every request that is not held waits for one. */
static int begin_lock(struct net *n, struct packet_ask *ask, const struct host_name *name, const pawl_call *call, uint64_t until,
                      uint32_t *bell)
{
    for (;;) {
        struct outbox *out = net_outbox();
        int rc = net_begin_lock(n, ask, name, call, false, bell, out);
        net_flush(n, &n->udp, out);
        uint64_t now = world_now(&world_real);
        if (rc != -EBUSY || now >= until || !host_lives(&n->host, host_now()))
            return rc == -EBUSY ? -PAWL_ELIMIT : rc;
        net_listen(n, min_u64(until, now + BUSY_NS));
    }
}

int net_lock_name(struct net *n, const struct host_name *name, enum pawl_mode mode, uint32_t limit, uint64_t deadline,
                  pawl_call *call, pawl_grant *out)
{
    struct packet_answer answer;
    uint64_t expiry = 0;
    uint32_t bell = 0;
    if (!call && !limit && net_lock_at_once(n, name, mode, out))
        return 0;
    if (deadline != DEADLINE_TRY && waits_for_itself(n, name->index, mode, limit, NET_NONE))
        return -EDEADLK;
    uint64_t now = world_now(&world_real), until = net_patience(n, deadline, now);
    bool late = net_late(deadline, now);
    struct packet_ask ask = {.thread = net_owner(n),
                             .mode = mode,
                             .limit = (uint16_t)limit,
                             .try = late || deadline == DEADLINE_TRY,
                             .once = call && !out};
    int rc = begin_lock(n, &ask, name, call, until, &bell);
    if (rc == -ESTALE)
        return rc;
    if (rc < 0)
        return net_failed(n, rc);
    rc = net_await(n, ask.request, bell, until, &answer, &expiry);
    if (rc == -ETIMEDOUT && deadline == DEADLINE_TRY)
        rc = -EAGAIN;
    if (rc == -PAWL_EHELD && late)
        rc = -ETIMEDOUT;
    if (!rc && call)
        rc = net_take_reply(n, ask.request, call, net_outbox());
    if (rc || !out)
        net_give_request(n, false, ask.request);
    if (rc)
        return net_failed(n, net_valid(n) ? rc : -PAWL_ELOST);
    if (!out)
        return 0;
    pawl_grant g = net_grant(n, ask.request, name->index, &answer, expiry);
    if (!g.expiry_ns) { /* I1: asked afterwards */
        end_request(n, ask.request);
        return net_failed(n, -PAWL_ELOST);
    }
    *out = g;
    return 0;
}

static int lock_key(struct net *n, pawl_key key, enum pawl_mode mode, uint32_t limit, uint64_t deadline, pawl_call *call,
                    pawl_grant *out)
{
    struct host_name name;
    uint64_t began = 0; /* when the key was found to be retired for the first time */
    for (;;) {
        int rc = net_find(n, key, mode, false, deadline, &name);
        rc = rc ? rc : net_lock_name(n, &name, mode, limit, deadline, call, out);
        if (likely(rc != -ESTALE))
            return rc;
        began = began ? began : world_now(&world_real);
        rc = net_find_again(n, deadline, began);
        if (rc)
            return net_failed(n, rc);
    }
}

ONCE static int semaphore(struct pawl *p, pawl_key key, uint32_t limit, uint64_t deadline, pawl_grant *out)
{
    return lock_key(net_of(p), key, PAWL_SHARED, limit, deadline, NULL, out);
}

static int lock(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out)
{
    return lock_key(net_of(p), key, mode, 0, deadline, NULL, out);
}

int net_check_call(struct net *n, const pawl_call *call)
{
    if (!n->host.design->call)
        return net_failed(n, -PAWL_ENOTSUP);
    if (call->reserved[0] || call->reserved[1])
        return explain(-EINVAL, "a reserved field of the call is not 0: initialise the struct as a whole");
    if (call->len > PAWL_CALL_MAX)
        return explain(-EMSGSIZE, "the call has %zu bytes, more than the %d that a data server takes", call->len, PAWL_CALL_MAX);
    net_say_here(n);
    return 0;
}

ONCE static int lock_call(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_call *call, pawl_grant *out)
{
    struct net *n = net_of(p);
    int rc = net_check_call(n, call);
    return rc ? rc : lock_key(n, key, mode, 0, deadline, call, out);
}

static int hold_call(struct pawl *p, const pawl_grant *g, uint64_t deadline, pawl_call *call)
{
    struct net *n = net_of(p);
    struct packet_answer answer;
    uint64_t expiry = 0;
    uint32_t request, bell;
    int rc = net_check_call(n, call);
    if (rc)
        return rc;
    rc = net_request_of(n, g, &request);
    if (rc)
        return net_failed(n, rc);
    struct outbox *out = net_outbox();
    rc = net_begin_call(n, request, call, &bell, out);
    net_flush(n, &n->udp, out);
    if (rc >= 0)
        rc = net_await(n, request, bell, net_patience(n, deadline, world_now(&world_real)), &answer, &expiry);
    if (!rc)
        rc = net_take_reply(n, request, call, net_outbox());
    return net_failed(n, rc);
}

bool net_unlock_at_once(struct net *n, uint32_t request)
{
    const struct packet_design *d = n->host.design;
    if (!d->local_release)
        return false;
    host_lock(&n->host);
    uint64_t now = host_now();
    bool done = now < net_expiry_locked(n) && !d->local_release(n->host.memory, request, now);
    if (done) /* the grant is void */
        __atomic_store_n(&n->host.uses[request], n->host.uses[request] + 1, __ATOMIC_RELAXED);
    host_unlock(&n->host);
    if (done) {
        net_owns(n, request, 0);
        give_spare(n, request);
    }
    return done;
}

static int unlock(struct pawl *p, const pawl_grant *g)
{
    struct net *n = net_of(p);
    uint32_t request;
    int rc = net_request_of(n, g, &request);
    if (rc)
        return net_failed(n, rc);
    net_touches(n, request);
    return net_unlock_at_once(n, request) ? 0 : net_failed(n, end_request(n, request));
}

ONCE static int convert(struct pawl *p, pawl_grant *g, enum pawl_mode mode, uint64_t deadline)
{
    struct net *n = net_of(p);
    struct packet_answer answer;
    struct outbox *out = net_outbox();
    uint64_t expiry = 0;
    uint32_t request, bell;
    int rc = net_request_of(n, g, &request);
    if (!rc && mode != PAWL_SHARED && mode != PAWL_EXCLUSIVE)
        rc = -EINVAL;
    if (!rc && mode == PAWL_EXCLUSIVE && deadline != DEADLINE_TRY && waits_for_itself(n, g->index, mode, 0, request))
        return -EDEADLK;
    if (!rc)
        rc = net_begin_convert(n, request, mode, net_owner(n), &bell, out);
    net_flush(n, &n->udp, out);
    if (rc < 0)
        return net_failed(n, rc);
    bool try = deadline == DEADLINE_TRY;
    rc = net_await(n, request, bell, try ? world_now(&world_real) + CONVERT_NS : deadline, &answer, &expiry);
    if (rc == -ETIMEDOUT && try)
        rc = -PAWL_EHELD;
    if (!net_grant_clock(expiry))
        rc = -PAWL_ELOST;
    if (!rc)
        *g = net_grant(n, request, g->index, &answer, expiry);
    assert(rc || g->mode == mode);
    return net_failed(n, rc);
}

static int check(struct pawl *p, const pawl_grant *g)
{
    struct net *n = net_of(p);
    uint32_t request;
    int rc = net_request_of(n, g, &request);
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    if (host_now() >= net_expiry_locked(n))
        rc = -PAWL_ELOST;
    else if (!rc && !n->host.design->holds(n->host.memory, request))
        rc = -PAWL_ENOTOWNER;
    host_leave(&n->host, out);
    return rc;
}

static uint64_t expiry_of(struct net *n)
{
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    uint64_t expiry = net_expiry_locked(n);
    host_leave(&n->host, out);
    return expiry;
}

/* The hold ends with the first of three leases: the session's own, the host's at the coordinator, and the host's at the granter.
 * The first is renewed here. The others are renewed by packets several times per lease; if that has not worked lately they are
 * asked for now, and the answers are waited for. */
ONCE static int extend(struct pawl *p, pawl_grant *g)
{
    struct net *n = net_of(p);
    int rc = check(p, g);
    if (rc)
        return net_failed(n, rc);
    struct host_session *s = &n->host.sessions[n->session];
    uint64_t begin = host_now(), wanted = begin + min_u64(n->lease_ns, n->host.header->config.lease_ns) / 2;
    __atomic_store_n(&s->until_ns, add_saturating(begin, n->lease_ns), __ATOMIC_RELEASE);
    uint64_t expiry = expiry_of(n), again = 0;
    for (uint64_t now = begin; expiry && expiry < wanted && now < expiry && now < begin + EXTEND_NS; now = host_now()) {
        if (now >= again) {
            net_renew(n);
            again = now + EXTEND_AGAIN_NS;
        }
        net_listen(n, world_now(&world_real) + BUSY_NS);
        expiry = expiry_of(n);
    }
    expiry = net_grant_clock(expiry);
    if (!expiry)
        return net_failed(n, -PAWL_ELOST);
    g->expiry_ns = max_u64(g->expiry_ns, expiry); /* clocks are read one after the other: what was promised stays */
    return 0;
}

static int wanted(struct pawl *p, const pawl_grant *g)
{
    struct net *n = net_of(p);
    uint32_t request;
    int rc = check(p, g);
    if (rc || (rc = net_request_of(n, g, &request)))
        return rc;
    struct outbox *out = net_outbox();
    host_enter(&n->host, out);
    bool known = n->host.design->wanted(n->host.memory, request, host_now(), out);
    host_leave(&n->host, out);
    net_flush(n, &n->udp, out);
    rc = known ? check(p, g) : 0; /* the request may have been used anew since the first check */
    return rc ? rc : known;
}

const struct session_ops net_ops = {
    .scheme = NET_SCHEME,
    .open = net_open,
    .close = net_close,
    .lock = lock,
    .semaphore = semaphore,
    .unlock = unlock,
    .lock_all = net_lock_all,
    .unlock_all = net_unlock_all,
    .convert = convert,
    .extend = extend,
    .check = check,
    .query = net_query,
    .wanted = wanted,
    .why = net_why,
    .lock_call = lock_call,
    .hold_call = hold_call,
    .admit = net_admit,
    .begin = net_begin,
    .pump = net_pump,
    .cancel = net_cancel,
    .wait = net_wait,
    .hear = net_hear,
    .fd = net_fd,
};
