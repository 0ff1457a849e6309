/* The host's side: its sessions' requests, sent again until they are answered, and its leases at the servers. */
#include "designs/srvlock/srv.h"

#include <errno.h>

enum request_state {
    REQUEST_IDLE,
    REQUEST_ASKING, /* ACQUIRE is to be answered */
    REQUEST_HELD,
    REQUEST_CONVERTING, /* CONVERT is to be answered; held in the old mode */
    REQUEST_STAYING,    /* the same, but given up: STAY is to be answered */
    REQUEST_LEAVING,    /* RELEASE is to be answered; not held */
};

struct request {
    uint64_t nonce, index, token;
    uint64_t next_ns;    /* when to send again */
    uint64_t since_ns;   /* when it began */
    uint32_t next, prev; /* among those that wait for an answer; request + 1, 0: none */
    int32_t result;
    int32_t why; /* of giving up */
    uint32_t step;
    uint16_t port;
    uint8_t state, mode, want, sent; /* sent: how often, up to a bound */
    bool try;
};

struct lease {
    uint64_t until_ns; /* 0: none */
    uint64_t next_ns;  /* when to ask for more */
    uint32_t life;     /* of the server, the latest heard of */
};

/* What almost every event changes. */
struct busy {
    struct packet_drops drops;
    uint64_t serial;  /* of the latest nonce */
    uint32_t pending; /* first that waits for an answer; request + 1 */
};

struct host {
    struct busy busy;
    struct rack_config config;
    uint32_t life;
    uint16_t machine;
    uint64_t held_at; /* offset of counts: what a session holds at a server */
    uint64_t lost_at; /* of bytes, one per session: 1 if it lost something */
    uint64_t requests_at;
    struct lease leases[RACK_SERVERS_MAX];
};

static uint64_t held_bytes(const struct rack_config *c)
{
    return round_up((uint64_t)c->sessions * c->servers * sizeof(uint32_t), CACHE_LINE);
}

uint64_t srv_host_bytes(const struct rack_config *c)
{
    return round_up(sizeof(struct host), CACHE_LINE) + held_bytes(c) + round_up((uint64_t)c->sessions, CACHE_LINE) +
           (uint64_t)rack_requests(c) * sizeof(struct request);
}

void srv_host_init(void *memory, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct host *h = memory; /* zeroed */
    (void)now;
    assert(rack_requests(config) <= 1u << SRV_SLOT_BITS && config->servers && config->servers <= RACK_SERVERS_MAX);
    h->config = *config;
    h->machine = machine;
    h->life = life;
    h->held_at = round_up(sizeof *h, CACHE_LINE);
    h->lost_at = h->held_at + held_bytes(config);
    h->requests_at = h->lost_at + round_up((uint64_t)config->sessions, CACHE_LINE);
}

const struct packet_drops *srv_host_drops(const void *host)
{
    return &((const struct host *)host)->busy.drops;
}

static struct request *request_at(const struct host *h, uint32_t i)
{
    return (struct request *)(void *)((char *)(uintptr_t)h + h->requests_at) + i;
}

static uint32_t number_of(const struct host *h, const struct request *r)
{
    return (uint32_t)(r - request_at(h, 0));
}

static uint32_t session_of(const struct host *h, const struct request *r)
{
    return number_of(h, r) / h->config.requests;
}

static uint32_t *held_count(const struct host *h, uint32_t session, unsigned server)
{
    return (uint32_t *)(void *)((char *)(uintptr_t)h + h->held_at) + (uint64_t)session * h->config.servers + server;
}

static uint8_t *lost(const struct host *h, uint32_t session)
{
    return (uint8_t *)(uintptr_t)h + h->lost_at + session;
}

static bool is_held(const struct request *r)
{
    return r->state == REQUEST_HELD || r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING;
}

static void touch_busy(struct host *h, struct outbox *out)
{
    outbox_touch(out, &h->busy, sizeof h->busy);
}

static uint64_t fresh_nonce(struct host *h, const struct request *r)
{
    return ++h->busy.serial << SRV_SLOT_BITS | number_of(h, r);
}

/* ---- those that wait for an answer ---- */

static void enlist(struct host *h, struct request *r, struct outbox *out)
{
    r->prev = 0;
    r->next = h->busy.pending;
    if (h->busy.pending) {
        struct request *next = request_at(h, h->busy.pending - 1);
        outbox_touch(out, next, sizeof *next);
        next->prev = number_of(h, r) + 1;
    }
    h->busy.pending = number_of(h, r) + 1;
}

static void delist(struct host *h, struct request *r, struct outbox *out)
{
    struct request *prev = r->prev ? request_at(h, r->prev - 1) : NULL, *next = r->next ? request_at(h, r->next - 1) : NULL;
    if (prev) {
        outbox_touch(out, prev, sizeof *prev);
        prev->next = r->next;
    } else {
        h->busy.pending = r->next;
    }
    if (next) {
        outbox_touch(out, next, sizeof *next);
        next->prev = r->prev;
    }
    r->next = r->prev = 0;
}

/* The only way from one state to another: keeps the list and the counts. */
static void become(struct host *h, struct request *r, enum request_state state, struct outbox *out)
{
    bool pended = r->state != REQUEST_IDLE && r->state != REQUEST_HELD;
    bool pends = state != REQUEST_IDLE && state != REQUEST_HELD;
    bool held = is_held(r);
    outbox_touch(out, r, sizeof *r);
    r->state = (uint8_t)state;
    if (pended && !pends)
        delist(h, r, out);
    if (!pended && pends)
        enlist(h, r, out);
    if (held != is_held(r)) {
        uint32_t *count = held_count(h, session_of(h, r), srv_of(&h->config, r->index));
        outbox_touch(out, count, sizeof *count);
        *count += held ? UINT32_MAX : 1;
    }
    r->sent = 0;
}

/* ---- sending ---- */

static struct srv_packet *packet_to(struct host *h, unsigned server, enum srv_type type, struct outbox *out)
{
    struct srv_packet *p = outbox_add(out, sizeof *p);
    if (!p)
        return NULL;
    p->head = (struct packet_head){.version = PACKET_VERSION,
                                   .head_len = sizeof p->head,
                                   .family = PACKET_SERVER,
                                   .type = (uint8_t)type,
                                   .space = h->config.space,
                                   .epoch = h->life,
                                   .from = {h->machine, PORT_POOL},
                                   .to = {h->config.server[server], PORT_SERVER}};
    return p;
}

static enum srv_type type_of(const struct request *r)
{
    static const uint8_t types[] = {[REQUEST_ASKING] = SRV_ACQUIRE,
                                    [REQUEST_CONVERTING] = SRV_CONVERT,
                                    [REQUEST_STAYING] = SRV_STAY,
                                    [REQUEST_LEAVING] = SRV_RELEASE};
    return (enum srv_type)types[r->state];
}

/* What the request's state has to say to the server; and when again, should no answer come. */
static void say(struct host *h, struct request *r, uint64_t now, struct outbox *out)
{
    unsigned server = srv_of(&h->config, r->index);
    outbox_touch(out, r, sizeof *r);
    r->next_ns = now + (h->config.retry_ns << (r->sent > SRV_SHOUTS ? r->sent - SRV_SHOUTS : 0));
    if (r->state == REQUEST_ASKING && h->leases[server].until_ns <= now)
        return; /* nothing is granted without a lease: said when there is one */
    struct srv_packet *p = packet_to(h, server, type_of(r), out);
    if (!p) {
        r->next_ns = now; /* the next tick has room */
        return;
    }
    p->head.index = r->index;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->step = r->step;
    p->mode = r->want;
    p->flags = r->try ? SRV_TRY : 0;
    if (r->sent < SRV_SHOUTS + SRV_RETRY_DOUBLINGS)
        r->sent++;
}

static void settle(struct host *h, struct request *r, int result, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->result = result;
    outbox_wake(out, number_of(h, r));
}

static void leave(struct host *h, struct request *r, int result, uint64_t now, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->result = result;
    become(h, r, REQUEST_LEAVING, out);
    say(h, r, now, out);
}

/* ---- leases ---- */

/* The lease at a server is over, or the server has forgotten everything: what is held there is not any more, and who waits there
 * asks anew, so that no late grant is taken for an answer. */
static void lapse(struct host *h, unsigned server, uint64_t now, struct outbox *out)
{
    outbox_touch(out, &h->leases[server], sizeof h->leases[server]);
    h->leases[server].until_ns = 0;
    for (uint32_t i = 0; i < rack_requests(&h->config); i++) {
        struct request *r = request_at(h, i);
        if (r->state == REQUEST_IDLE || srv_of(&h->config, r->index) != server)
            continue;
        if (is_held(r)) {
            outbox_touch(out, lost(h, session_of(h, r)), 1);
            *lost(h, session_of(h, r)) = 1;
            leave(h, r, -PAWL_ELOST, now, out);
            outbox_wake(out, i);
        } else if (r->state == REQUEST_ASKING) {
            outbox_touch(out, r, sizeof *r);
            r->nonce = fresh_nonce(h, r);
            r->sent = 0;
        }
    }
}

static void look_at_lease(struct host *h, unsigned server, uint64_t now, struct outbox *out)
{
    const struct lease *l = &h->leases[server];
    if (l->until_ns && l->until_ns <= now && !(h->config.options & SRV_NO_LAPSE))
        lapse(h, server, now, out);
}

static void ask_for_lease(struct host *h, unsigned server, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[server];
    struct srv_packet *p = packet_to(h, server, SRV_LEASE, out);
    outbox_touch(out, l, sizeof *l);
    l->next_ns = p ? now + (l->until_ns > now ? h->config.lease_ns / SRV_LEASE_SHARE : h->config.retry_ns * 4) : now;
    if (p)
        p->stamp = now;
}

static void on_leased(struct host *h, unsigned server, uint64_t stamp, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[server];
    uint64_t margin = 2 * (h->config.lease_ns / SRV_DRIFT_DIVISOR) + 1;
    uint64_t until = stamp + h->config.lease_ns - margin;
    if (stamp > now || until <= now || until <= l->until_ns) {
        h->busy.drops.stale++;
        return;
    }
    bool first = !l->until_ns;
    outbox_touch(out, l, sizeof *l);
    l->until_ns = until;
    l->next_ns = min_u64(l->next_ns, stamp + h->config.lease_ns / SRV_LEASE_SHARE);
    for (uint32_t i = first ? h->busy.pending : 0; i;) { /* who waited for a lease goes ahead */
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (r->state == REQUEST_ASKING && srv_of(&h->config, r->index) == server)
            say(h, r, now, out);
    }
}

/* ---- calls ---- */

int srv_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, ask->request);
    assert(ask->request < rack_requests(&h->config) && r->state == REQUEST_IDLE);
    if (ask->index >= h->config.locks)
        return -EINVAL;
    touch_busy(h, out);
    look_at_lease(h, srv_of(&h->config, ask->index), now, out);
    if (*lost(h, session_of(h, r)))
        return -PAWL_ELOST;
    outbox_touch(out, r, sizeof *r);
    *r = (struct request){.nonce = fresh_nonce(h, r),
                          .index = ask->index,
                          .since_ns = now,
                          .result = -EINPROGRESS,
                          .port = ask->port,
                          .want = (uint8_t)ask->mode,
                          .try = ask->try};
    become(h, r, REQUEST_ASKING, out);
    say(h, r, now, out);
    return PACKET_WAIT;
}

int srv_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, request);
    touch_busy(h, out);
    look_at_lease(h, srv_of(&h->config, r->index), now, out);
    if (*lost(h, session_of(h, r)))
        return -PAWL_ELOST;
    if (r->state != REQUEST_HELD)
        return -PAWL_ENOTOWNER;
    outbox_touch(out, r, sizeof *r);
    r->step++;
    r->want = (uint8_t)mode;
    r->result = -EINPROGRESS;
    become(h, r, REQUEST_CONVERTING, out);
    say(h, r, now, out);
    return PACKET_WAIT;
}

int srv_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, request);
    touch_busy(h, out);
    if (r->state == REQUEST_ASKING) {
        leave(h, r, why, now, out);
    } else if (r->state == REQUEST_CONVERTING && r->want == PAWL_EXCLUSIVE) { /* to weaken always works, once it is heard */
        outbox_touch(out, r, sizeof *r);
        r->why = why;
        become(h, r, REQUEST_STAYING, out);
        say(h, r, now, out);
    }
    return r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING ? PACKET_WAIT : PACKET_DONE;
}

int srv_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, request);
    touch_busy(h, out);
    look_at_lease(h, srv_of(&h->config, r->index), now, out);
    if (r->state != REQUEST_HELD)
        return *lost(h, session_of(h, r)) ? -PAWL_ELOST : -PAWL_ENOTOWNER;
    leave(h, r, -PAWL_ENOTOWNER, now, out);
    return 0;
}

int srv_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    const struct request *r = request_at(host, request);
    if (r->result == -EINPROGRESS)
        return -EINPROGRESS;
    *out = (struct packet_answer){.result = r->result, .mode = (enum pawl_mode)r->mode, .token = r->token};
    return 0;
}

bool srv_idle(const void *host, uint32_t request)
{
    return request_at(host, request)->state == REQUEST_IDLE;
}

bool srv_holds(const void *host, uint32_t request)
{
    return is_held(request_at(host, request));
}

bool srv_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    const struct request *r = request_at(host, request);
    *out = (struct packet_claim){.index = r->index,
                                 .token = is_held(r) ? r->token : 0,
                                 .mode = (enum pawl_mode)(is_held(r) ? r->mode : r->want),
                                 .holds = is_held(r)};
    return is_held(r) || r->state == REQUEST_ASKING;
}

uint64_t srv_expiry(const void *host, uint32_t session)
{
    const struct host *h = host;
    uint64_t until = UINT64_MAX;
    if (*lost(h, session))
        return 0;
    for (unsigned s = 0; s < h->config.servers; s++)
        if (*held_count(h, session, s))
            until = min_u64(until, h->leases[s].until_ns);
    return h->config.options & SRV_NO_LAPSE ? UINT64_MAX : until;
}

void srv_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    for (uint32_t i = 0; i < h->config.requests; i++) {
        struct request *r = request_at(h, session * h->config.requests + i);
        if (r->state == REQUEST_IDLE)
            continue;
        outbox_touch(out, r, sizeof *r);
        r->port = PORT_POOL; /* nobody listens at its own any more */
        if (r->state == REQUEST_LEAVING)
            continue;
        leave(h, r, -PAWL_ELOST, now, out);
        outbox_wake(out, number_of(h, r));
    }
    outbox_touch(out, lost(h, session), 1);
    *lost(h, session) = 0;
}

/* ---- packets ---- */

static void on_grant(struct host *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    bool asked = r->state == REQUEST_ASKING && !p->step;
    bool converted = (r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step;
    if ((!asked && !converted) || p->mode != r->want) {
        h->busy.drops.stale++;
        return;
    }
    outbox_touch(out, r, sizeof *r);
    r->token = p->token;
    r->mode = p->mode;
    become(h, r, REQUEST_HELD, out);
    settle(h, r, 0, out);
}

static void on_refused(struct host *h, struct request *r, const struct srv_packet *p, struct outbox *out)
{
    if (r->state == REQUEST_ASKING && !p->step && r->try) {
        become(h, r, REQUEST_IDLE, out);
        settle(h, r, -(int)p->code, out);
    } else if ((r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && p->step == r->step) {
        int why = r->state == REQUEST_STAYING ? r->why : -(int)p->code;
        become(h, r, REQUEST_HELD, out);
        settle(h, r, why, out);
    } else {
        h->busy.drops.stale++;
    }
}

static void on_answer(struct host *h, struct request *r, const struct srv_packet *p, uint64_t now, struct outbox *out)
{
    switch ((enum srv_type)p->head.type) {
    case SRV_GRANT:
        on_grant(h, r, p, out);
        break;
    case SRV_REFUSED:
        on_refused(h, r, p, out);
        break;
    case SRV_QUEUED: /* asks again now and then, should the grant get lost */
        outbox_touch(out, r, sizeof *r);
        r->sent = (uint8_t)(r->sent > SRV_SHOUTS + 2 ? r->sent : SRV_SHOUTS + 2);
        r->next_ns = max_u64(r->next_ns, now + (h->config.retry_ns << 2));
        break;
    case SRV_RELEASED:
        if (r->state == REQUEST_LEAVING)
            become(h, r, REQUEST_IDLE, out);
        else
            h->busy.drops.stale++;
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* The number of the server that sent it. */
static bool sender(struct host *h, const struct packet_head *p, unsigned *server)
{
    for (*server = 0; *server < h->config.servers; ++*server)
        if (h->config.server[*server] == p->from.machine && p->from.port == PORT_SERVER)
            return true;
    h->busy.drops.alien++;
    return false;
}

void srv_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    const struct packet_head *head = packet_check(data, len, PACKET_SERVER, &h->config, &h->busy.drops);
    const struct srv_packet *p = data;
    unsigned server;
    if (!head || !sender(h, head, &server))
        return;
    if (len != sizeof *p || head->to.machine != h->machine) {
        h->busy.drops.bad++;
        return;
    }
    struct lease *l = &h->leases[server];
    look_at_lease(h, server, now, out);
    if (head->epoch < l->life) {
        h->busy.drops.stale++;
        return;
    }
    if (head->epoch > l->life) {
        if (l->life)
            lapse(h, server, now, out);
        outbox_touch(out, l, sizeof *l);
        l->life = head->epoch;
    }
    if (head->type == SRV_LEASED) {
        on_leased(h, server, p->stamp, now, out);
        return;
    }
    uint32_t slot = srv_slot(head->nonce);
    if (slot >= rack_requests(&h->config)) {
        h->busy.drops.bad++;
        return;
    }
    struct request *r = request_at(h, slot);
    if (r->state == REQUEST_IDLE || (r->nonce != head->nonce && !(h->config.options & SRV_NO_NONCE)) || r->index != head->index) {
        h->busy.drops.stale++;
        return;
    }
    on_answer(h, r, p, now, out);
}

/* ---- time ---- */

uint64_t srv_tick(void *host, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    uint64_t next = UINT64_MAX;
    touch_busy(h, out);
    for (unsigned s = 0; s < h->config.servers; s++) {
        look_at_lease(h, s, now, out);
        if (h->leases[s].next_ns <= now)
            ask_for_lease(h, s, now, out);
        next = min_u64(next, h->leases[s].next_ns);
        if (h->leases[s].until_ns > now)
            next = min_u64(next, h->leases[s].until_ns);
    }
    for (uint32_t i = h->busy.pending; i;) {
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (r->state == REQUEST_ASKING && r->try && now - r->since_ns >= h->config.lease_ns) {
            leave(h, r, -EAGAIN, now, out); /* nobody there who could say whether it is held */
            outbox_wake(out, number_of(h, r));
        } else if (r->next_ns <= now) {
            say(h, r, now, out);
        }
        next = min_u64(next, r->next_ns);
    }
    return next;
}
