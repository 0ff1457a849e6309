/* The host's side: its sessions' requests, sent again until they are answered, and its leases at the switch and at the servers.
 * It does not know who will answer a request. */
#include "designs/netlock/netlock.h"

#include <errno.h>

#define RETRY_DOUBLINGS 6u                /* the pause between retransmissions grows up to 64 times the first */
#define SHOUTS 2u                         /* packets sent before the pause grows */
#define SERIAL_LIFE_SHIFT 30              /* serial numbers of a life: the next one's are others */
#define NETCHAIN_PAUSE_NS (5 * NS_PER_US) /* doubles with every refusal: a round trip to begin with */
#define MOVING_MAX 4u                     /* then somebody waits there */
#define GRANTER_SWITCH 0u                 /* servers are 1 and up */

enum request_state {
    REQUEST_IDLE,
    REQUEST_ASKING, /* ACQUIRE is to be answered */
    REQUEST_HELD,
    REQUEST_RELEASING, /* RELEASE is to be answered */
    REQUEST_QUITTING,  /* CANCEL is to be answered: it may be in a queue, granted, or nowhere */
};

struct request {
    uint64_t nonce, index, token;
    uint64_t next_ns;    /* when to send again */
    uint64_t since_ns;   /* when it began */
    uint32_t next, prev; /* among those that wait for an answer; request + 1, 0: none */
    uint32_t ticket;
    int32_t result;
    uint16_t port, tenant, granter;
    uint8_t state, mode, priority, sent; /* sent: how often, up to a bound */
    uint8_t moving;                      /* how often a try met a lock on the move */
    bool try;
};

struct lease {
    uint64_t until_ns; /* 0: none */
    uint64_t next_ns;  /* when to ask for more */
    uint64_t slots;    /* of a server: whose locks it has, as it said; a bit each */
    uint32_t life;     /* of who gives it, the latest heard of */
    uint16_t port;     /* of a switch: which one reigns, as far as is known */
    uint8_t asked;     /* how often without an answer */
};

/* What almost every event changes. */
struct busy {
    struct packet_drops drops;
    uint64_t serial;               /* of the latest nonce */
    uint32_t pending;              /* first that waits for an answer; request + 1 */
    uint64_t by_switch, by_server; /* grants */
};

struct host {
    struct busy busy;
    struct rack_config config;
    uint32_t life;
    uint16_t machine;
    uint64_t held_at; /* offset of counts: what a session has from a granter */
    uint64_t lost_at; /* of bytes, one per session: 1 if it lost something */
    uint64_t requests_at;
    struct lease leases[RACK_SERVERS_MAX + 1];
};

static unsigned granters(const struct rack_config *c)
{
    return c->servers + 1u;
}

static uint64_t held_bytes(const struct rack_config *c)
{
    return round_up((uint64_t)c->sessions * granters(c) * sizeof(uint32_t), CACHE_LINE);
}

uint64_t netlock_host_bytes(const struct rack_config *c)
{
    return round_up(sizeof(struct host), CACHE_LINE) + held_bytes(c) + round_up((uint64_t)c->sessions, CACHE_LINE) +
           (uint64_t)rack_requests(c) * sizeof(struct request);
}

void netlock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct host *h = host; /* zeroed */
    (void)now;
    assert(rack_requests(config) <= 1u << NETLOCK_SLOT_BITS && config->servers && config->servers <= RACK_SERVERS_MAX);
    h->config = *config;
    h->machine = machine;
    h->life = life;
    h->busy.serial = (uint64_t)life << SERIAL_LIFE_SHIFT;
    h->held_at = round_up(sizeof *h, CACHE_LINE);
    h->lost_at = h->held_at + held_bytes(config);
    h->requests_at = h->lost_at + round_up((uint64_t)config->sessions, CACHE_LINE);
}

const struct packet_drops *netlock_host_drops(const void *host)
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

static uint32_t *held_count(const struct host *h, uint32_t session, unsigned granter)
{
    return (uint32_t *)(void *)((char *)(uintptr_t)h + h->held_at) + (uint64_t)session * granters(&h->config) + granter;
}

static uint8_t *lost(const struct host *h, uint32_t session)
{
    return (uint8_t *)(uintptr_t)h + h->lost_at + session;
}

static void touch_busy(struct host *h, struct outbox *out)
{
    outbox_touch(out, &h->busy, sizeof h->busy);
}

static uint64_t fresh_nonce(struct host *h, const struct request *r)
{
    return ++h->busy.serial * NETLOCK_SERIAL_STEP + number_of(h, r);
}

/* ---- those that wait for an answer ---- */

static bool pends(uint8_t state)
{
    return state != REQUEST_IDLE && state != REQUEST_HELD;
}

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
    if (r->prev) {
        struct request *prev = request_at(h, r->prev - 1);
        outbox_touch(out, prev, sizeof *prev);
        prev->next = r->next;
    } else {
        h->busy.pending = r->next;
    }
    if (r->next) {
        struct request *next = request_at(h, r->next - 1);
        outbox_touch(out, next, sizeof *next);
        next->prev = r->prev;
    }
    r->next = r->prev = 0;
}

/* The only way from one state to another: keeps the list and the counts. */
static void become(struct host *h, struct request *r, enum request_state state, struct outbox *out)
{
    uint8_t was = r->state;
    outbox_touch(out, r, sizeof *r);
    r->state = (uint8_t)state;
    if (pends(was) && !pends(r->state))
        delist(h, r, out);
    if (!pends(was) && pends(r->state))
        enlist(h, r, out);
    if ((was == REQUEST_HELD) != (state == REQUEST_HELD)) {
        uint32_t *count = held_count(h, session_of(h, r), r->granter);
        outbox_touch(out, count, sizeof *count);
        *count += state == REQUEST_HELD ? 1 : UINT32_MAX;
    }
    r->sent = 0;
}

/* ---- sending ---- */

static struct place granter_place(const struct host *h, unsigned granter)
{
    return granter == GRANTER_SWITCH ? (struct place){MACHINE_SWITCH, h->leases[GRANTER_SWITCH].port}
                                     : (struct place){h->config.server[granter - 1], PORT_SERVER};
}

static struct netlock_packet *packet_to(struct host *h, unsigned granter, enum netlock_type type, struct outbox *out)
{
    return netlock_packet_new(out, &h->config, type, h->life, (struct place){h->machine, PORT_POOL}, granter_place(h, granter));
}

/* What the request's state has to say; and when again, should no answer come. */
static void say(struct host *h, struct request *r, uint64_t now, struct outbox *out)
{
    static const uint8_t types[] = {
        [REQUEST_ASKING] = NETLOCK_ACQUIRE, [REQUEST_RELEASING] = NETLOCK_RELEASE, [REQUEST_QUITTING] = NETLOCK_CANCEL};
    outbox_touch(out, r, sizeof *r);
    r->next_ns = now + (h->config.retry_ns << (r->sent > SHOUTS ? r->sent - SHOUTS : 0));
    if (r->state == REQUEST_ASKING && h->leases[GRANTER_SWITCH].until_ns <= now)
        return; /* nothing is granted without a lease: said when there is one */
    unsigned to = r->state == REQUEST_RELEASING ? r->granter : GRANTER_SWITCH;
    struct netlock_packet *p = packet_to(h, to, (enum netlock_type)types[r->state], out);
    if (!p) {
        r->next_ns = now; /* the next tick has room */
        return;
    }
    p->head.index = netlock_word(&h->config, r->index);
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->ticket = r->ticket;
    p->mode = r->mode;
    p->priority = r->priority;
    p->tenant = r->tenant;
    p->flags = r->try || h->config.options & NETLOCK_CHAIN ? NETLOCK_TRY : 0;
    if (r->sent < SHOUTS + RETRY_DOUBLINGS)
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
    become(h, r, r->state == REQUEST_HELD ? REQUEST_RELEASING : REQUEST_QUITTING, out);
    say(h, r, now, out);
}

/* What it was doing is not known any more: the same under another name. A grant of the old name is given back. */
static void ask_anew(struct host *h, struct request *r, uint64_t now, struct outbox *out)
{
    outbox_touch(out, r, sizeof *r);
    r->nonce = fresh_nonce(h, r);
    r->sent = 0;
    r->next_ns = now;
}

/* ---- leases ---- */

/* Whether that one may have the request in its queue, or have granted it. */
static bool may_have(const struct host *h, unsigned granter, const struct request *r)
{
    return granter == GRANTER_SWITCH || h->leases[granter].slots >> netlock_home(&h->config, r->index) & 1;
}

/* The lease is over, or who gave it has forgotten everything: what came from there is not held any more, and who waits asks anew,
 * so that no late grant is taken for an answer. */
static void lapse(struct host *h, unsigned granter, uint64_t now, struct outbox *out)
{
    outbox_touch(out, &h->leases[granter], sizeof h->leases[granter]);
    h->leases[granter].until_ns = 0;
    for (uint32_t i = 0; i < rack_requests(&h->config); i++) {
        struct request *r = request_at(h, i);
        if (r->state == REQUEST_HELD && r->granter == granter) {
            outbox_touch(out, lost(h, session_of(h, r)), 1);
            *lost(h, session_of(h, r)) = 1;
            leave(h, r, -PAWL_ELOST, now, out);
            outbox_wake(out, i);
        } else if (r->state == REQUEST_ASKING && may_have(h, granter, r)) {
            ask_anew(h, r, now, out);
        }
    }
}

static void look_at_lease(struct host *h, unsigned granter, uint64_t now, struct outbox *out)
{
    const struct lease *l = &h->leases[granter];
    if (l->until_ns && l->until_ns <= now && !(h->config.options & NETLOCK_BUST_NO_LAPSE))
        lapse(h, granter, now, out);
}

static void ask_for_lease(struct host *h, unsigned granter, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    struct netlock_packet *p = packet_to(h, granter, NETLOCK_LEASE, out);
    outbox_touch(out, l, sizeof *l);
    if (l->until_ns > now)
        l->asked = 0;
    l->next_ns =
        !p ? now : now + (l->until_ns > now ? h->config.lease_ns / NETLOCK_LEASE_SHARE : netlock_pause(&h->config, &l->asked));
    if (p) {
        p->stamp = now;
        p->life = l->life; /* whoever has heard of this life holds nothing from the one before it */
    }
    /* No answer for a while: another switch may reign by now. */
    bool silent = granter == GRANTER_SWITCH && h->config.switches > 1 && l->until_ns <= now + h->config.lease_ns / 2;
    struct netlock_packet *q = silent ? packet_to(h, granter, NETLOCK_LEASE, out) : NULL;
    if (q) {
        q->head.to.port = 1 - l->port;
        q->stamp = now;
        q->life = l->life;
    }
}

static void on_leased(struct host *h, unsigned granter, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    uint64_t stamp = p->stamp, until = netlock_lease_until(&h->config, stamp);
    if (stamp > now || until <= now || until <= l->until_ns) {
        h->busy.drops.stale++;
        return;
    }
    outbox_touch(out, l, sizeof *l);
    bool first = !l->until_ns;
    l->until_ns = until;
    l->slots = p->token;
    l->next_ns = min_u64(l->next_ns, stamp + h->config.lease_ns / NETLOCK_LEASE_SHARE);
    for (uint32_t i = first ? h->busy.pending : 0; i;) {
        struct request *r = request_at(h, i - 1);
        i = r->next;
        if (r->state != REQUEST_ASKING)
            continue;
        if (granter != GRANTER_SWITCH && may_have(h, granter, r)) {
            /* A grant of a lease that has lapsed there may still be on its way, and must not be taken for one of this. */
            ask_anew(h, r, now, out);
            say(h, r, now, out);
        } else if (granter == GRANTER_SWITCH) {
            say(h, r, now, out); /* waited for a lease */
        }
    }
}

/* ---- calls ---- */

int netlock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    struct request *r = request_at(h, ask->request);
    assert(ask->request < rack_requests(&h->config) && r->state == REQUEST_IDLE);
    if (ask->index >= h->config.locks)
        return -EINVAL;
    look_at_lease(h, GRANTER_SWITCH, now, out);
    if (*lost(h, session_of(h, r)))
        return -PAWL_ELOST;
    outbox_touch(out, r, sizeof *r);
    *r = (struct request){.nonce = fresh_nonce(h, r),
                          .index = ask->index,
                          .since_ns = now,
                          .result = -EINPROGRESS,
                          .port = ask->port,
                          .tenant = ask->tenant,
                          .priority = ask->priority,
                          .mode =
                              ask->mode == PAWL_SHARED && !(h->config.options & NETLOCK_CHAIN) ? NETLOCK_SHARED : NETLOCK_EXCLUSIVE,
                          .try = ask->try};
    become(h, r, REQUEST_ASKING, out);
    say(h, r, now, out);
    return PACKET_WAIT;
}

int netlock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, request);
    touch_busy(h, out);
    if (r->state == REQUEST_ASKING)
        leave(h, r, why, now, out);
    return PACKET_DONE;
}

int netlock_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    struct request *r = request_at(h, request);
    touch_busy(h, out);
    look_at_lease(h, r->granter, now, out);
    if (r->state != REQUEST_HELD)
        return *lost(h, session_of(h, r)) ? -PAWL_ELOST : -PAWL_ENOTOWNER;
    leave(h, r, -PAWL_ENOTOWNER, now, out);
    return 0;
}

int netlock_outcome(const void *host, uint32_t request, struct packet_answer *out)
{
    const struct request *r = request_at(host, request);
    if (r->result == -EINPROGRESS)
        return -EINPROGRESS;
    *out = (struct packet_answer){
        .result = r->result, .mode = r->mode == NETLOCK_SHARED ? PAWL_SHARED : PAWL_EXCLUSIVE, .token = r->token};
    return 0;
}

bool netlock_idle(const void *host, uint32_t request)
{
    return request_at(host, request)->state == REQUEST_IDLE;
}

bool netlock_holds(const void *host, uint32_t request)
{
    return request_at(host, request)->state == REQUEST_HELD;
}

struct packet_grants netlock_host_grants(const void *host)
{
    const struct host *h = host;
    return (struct packet_grants){.by_switch = h->busy.by_switch, .by_server = h->busy.by_server};
}

bool netlock_claim(const void *host, uint32_t request, struct packet_claim *out)
{
    const struct request *r = request_at(host, request);
    bool holds = r->state == REQUEST_HELD;
    *out = (struct packet_claim){.index = r->index, .token = holds ? r->token : 0, .mode = (enum pawl_mode)r->mode, .holds = holds};
    return holds || r->state == REQUEST_ASKING;
}

uint64_t netlock_expiry(const void *host, uint32_t session)
{
    const struct host *h = host;
    uint64_t until = UINT64_MAX;
    if (*lost(h, session))
        return 0;
    for (unsigned g = 0; g < granters(&h->config); g++)
        if (*held_count(h, session, g))
            until = min_u64(until, h->leases[g].until_ns);
    return h->config.options & NETLOCK_BUST_NO_LAPSE ? UINT64_MAX : until;
}

void netlock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    for (uint32_t i = 0; i < h->config.requests; i++) {
        struct request *r = request_at(h, session * h->config.requests + i);
        if (r->state == REQUEST_IDLE)
            continue;
        outbox_touch(out, r, sizeof *r);
        r->port = PORT_POOL; /* nobody listens at its own any more */
        if (r->state == REQUEST_ASKING || r->state == REQUEST_HELD)
            leave(h, r, -PAWL_ELOST, now, out);
    }
    outbox_touch(out, lost(h, session), 1);
    *lost(h, session) = 0;
}

/* ---- packets ---- */

/* Granted what nobody here waits for, or has already: given back to whoever granted it. */
static void give_back(struct host *h, unsigned granter, const struct netlock_packet *p, struct outbox *out)
{
    struct netlock_packet *back = packet_to(h, granter, NETLOCK_RELEASE, out);
    if (!back)
        return;
    back->head.index = p->head.index;
    back->head.nonce = p->head.nonce;
    back->ticket = p->ticket;
    back->mode = p->mode;
}

static void on_grant(struct host *h, struct request *r, unsigned granter, const struct netlock_packet *p, uint64_t now,
                     struct outbox *out)
{
    bool same = (r->nonce == p->head.nonce || h->config.options & NETLOCK_BUST_ANY_GRANT) &&
                netlock_word(&h->config, r->index) == p->head.index;
    if (same && r->state == REQUEST_ASKING) {
        if (h->leases[granter].until_ns <= now && !(h->config.options & NETLOCK_BUST_NO_LAPSE)) {
            h->busy.drops.stale++; /* without a lease it means nothing; it is asked for again */
            return;
        }
        outbox_touch(out, r, sizeof *r);
        r->token = p->token;
        r->ticket = p->ticket;
        r->granter = (uint16_t)granter;
        r->mode = p->mode;
        ++*(granter == GRANTER_SWITCH ? &h->busy.by_switch : &h->busy.by_server);
        become(h, r, REQUEST_HELD, out);
        settle(h, r, 0, out);
        return;
    }
    h->busy.drops.stale++;
    bool held = same && (r->state == REQUEST_HELD || r->state == REQUEST_RELEASING);
    if (held ? r->granter != granter || r->ticket != p->ticket : !same || r->state == REQUEST_IDLE)
        give_back(h, granter, p, out);
}

static void on_refused(struct host *h, struct request *r, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    if (p->code == NETLOCK_MOVING && r->try && r->moving < MOVING_MAX) {
        ask_anew(h, r, now, out);
        r->next_ns = now + (h->config.retry_ns << r->moving++); /* a busy server may take its time */
    } else if (p->code == NETLOCK_HELD && !r->try && h->config.options & NETLOCK_CHAIN) {
        uint64_t pause = r->moving ? NETCHAIN_PAUSE_NS << (r->moving < 8 ? r->moving : 8) : 0; /* at once, then more patiently */
        ask_anew(h, r, now, out);
        r->moving += r->moving < 8;
        r->next_ns = now + pause;
        if (!pause)
            say(h, r, now, out);
    } else if ((p->code == NETLOCK_HELD || p->code == NETLOCK_MOVING) && r->try) {
        become(h, r, REQUEST_IDLE, out);
        settle(h, r, -PAWL_EHELD, out);
    } else if (p->code == NETLOCK_QUOTA && r->try) {
        become(h, r, REQUEST_IDLE, out);
        settle(h, r, -EAGAIN, out);
    } else if (p->code == NETLOCK_QUOTA) {
        ask_anew(h, r, now, out);
        r->next_ns = now + min_u64(p->stamp, h->config.lease_ns);
    } else if (p->code == NETLOCK_POLICY) {
        become(h, r, REQUEST_IDLE, out);
        settle(h, r, -EINVAL, out);
    } else {
        h->busy.drops.bad++;
    }
}

static void on_answer(struct host *h, unsigned granter, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct request *r = request_at(h, netlock_request_of(p->head.nonce));
    if (p->head.type == NETLOCK_GRANT) {
        on_grant(h, r, granter, p, now, out);
        return;
    }
    if (r->nonce != p->head.nonce || netlock_word(&h->config, r->index) != p->head.index) {
        h->busy.drops.stale++;
        return;
    }
    switch ((enum netlock_type)p->head.type) {
    case NETLOCK_RELEASED:
        if (r->state == REQUEST_RELEASING || r->state == REQUEST_QUITTING)
            become(h, r, REQUEST_IDLE, out);
        else
            h->busy.drops.stale++;
        break;
    case NETLOCK_GONE:
        if (r->state == REQUEST_ASKING) {
            ask_anew(h, r, now, out);
            say(h, r, now, out);
        } else {
            h->busy.drops.stale++;
        }
        break;
    case NETLOCK_REFUSED:
        if (r->state == REQUEST_ASKING)
            on_refused(h, r, p, now, out);
        else
            h->busy.drops.stale++;
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* Who sent it: the switch or one of the servers. */
static bool sender(struct host *h, const struct packet_head *p, unsigned *granter)
{
    for (*granter = 0; *granter < granters(&h->config); ++*granter) {
        struct place from = granter_place(h, *granter);
        if (from.machine == p->from.machine && (from.port == p->from.port || (*granter == GRANTER_SWITCH && p->from.port <= 1)))
            return true;
    }
    h->busy.drops.alien++;
    return false;
}

/* Another switch reigns: it is asked for a lease. What this one granted stands until that one has answered. */
static void on_elsewhere(struct host *h, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[GRANTER_SWITCH];
    if (p->head.from.machine != MACHINE_SWITCH || p->life <= l->life || p->round > 1 || p->round == l->port ||
        h->config.switches < 2) {
        h->busy.drops.stale++;
        return;
    }
    struct netlock_packet *q = packet_to(h, GRANTER_SWITCH, NETLOCK_LEASE, out);
    if (!q)
        return;
    q->head.to.port = (uint16_t)p->round;
    q->stamp = now;
    q->life = l->life;
}

void netlock_host_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    const struct packet_head *head = packet_check(data, len, PACKET_NETLOCK, &h->config, &h->busy.drops);
    const struct netlock_packet *p = data;
    unsigned granter;
    if (!head || !sender(h, head, &granter))
        return;
    bool mode = head->type == NETLOCK_GRANT;
    if (len < sizeof *p || head->to.machine != h->machine || netlock_request_of(head->nonce) >= rack_requests(&h->config) ||
        (mode && p->mode != NETLOCK_SHARED && p->mode != NETLOCK_EXCLUSIVE)) {
        h->busy.drops.bad++;
        return;
    }
    struct lease *l = &h->leases[granter];
    look_at_lease(h, granter, now, out);
    if (head->type == NETLOCK_ELSEWHERE) {
        on_elsewhere(h, p, now, out);
        return;
    }
    if (head->epoch < l->life || (head->epoch == l->life && granter == GRANTER_SWITCH && head->from.port != l->port)) {
        h->busy.drops.stale++;
        return;
    }
    if (head->epoch > l->life) {
        if (l->life)
            lapse(h, granter, now, out);
        outbox_touch(out, l, sizeof *l);
        l->life = head->epoch;
        l->port = granter == GRANTER_SWITCH ? head->from.port : 0;
        l->next_ns = now; /* it is waiting to hear that */
    }
    if (head->type == NETLOCK_LEASED)
        on_leased(h, granter, p, now, out);
    else
        on_answer(h, granter, p, now, out);
}

/* ---- time ---- */

uint64_t netlock_host_tick(void *host, uint64_t now, struct outbox *out)
{
    struct host *h = host;
    touch_busy(h, out);
    uint64_t next = UINT64_MAX;
    for (unsigned g = 0; g < granters(&h->config); g++) {
        look_at_lease(h, g, now, out);
        if (h->leases[g].next_ns <= now)
            ask_for_lease(h, g, now, out);
        next = min_u64(next, h->leases[g].next_ns);
        if (h->leases[g].until_ns > now)
            next = min_u64(next, h->leases[g].until_ns);
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
