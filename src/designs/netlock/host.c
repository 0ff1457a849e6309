/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side: its sessions' requests, retransmitted until they are answered, and its leases at the switch and at the servers.
 * It does not know which of them will answer a request. */
#include "designs/netlock/host.h"

#include <errno.h>

#define SERIAL_LIFE_SHIFT 30              /* serial numbers of a life: the next one's are others */
#define NETCHAIN_PAUSE_NS (5 * NS_PER_US) /* doubles with every refusal: a round trip to begin with */
#define MOVING_MAX 4u                     /* then another request waits there */
#define DOUBT_MAX 6u                      /* the former nonce is given back by then, however busy the machine is */

uint64_t host_suspects_at(const struct rack_config *c)
{
    return round_up(call_bytes(c), CACHE_LINE);
}

uint64_t netlock_host_bytes(const struct rack_config *c)
{
    return host_suspects_at(c) + host_deadlock_bytes(c);
}

void netlock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct requests *h = host; /* zeroed */
    (void)now;
    assert(rack_requests(config) <= 1u << NETLOCK_SLOT_BITS);
    requests_init(h, config, config->servers + 1u, machine, life);
    h->busy.serial = (uint64_t)life << SERIAL_LIFE_SHIFT;
}

/* ---- sending ---- */

static struct place granter_place(const struct requests *h, unsigned granter)
{
    return granter == GRANTER_SWITCH ? (struct place){MACHINE_SWITCH, h->leases[GRANTER_SWITCH].port}
                                     : (struct place){h->config.server[granter - 1], PORT_SERVER};
}

struct netlock_packet *host_packet(struct requests *h, unsigned granter, enum netlock_type type, uint32_t more, struct outbox *out)
{
    struct netlock_packet *p = outbox_add(out, (uint32_t)sizeof *p + more);
    if (p)
        netlock_head(p, h->config.space, type, h->life, (struct place){h->machine, PORT_POOL}, granter_place(h, granter));
    return p;
}

void host_say(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    static const uint8_t types[] = {[REQUEST_ASKING] = NETLOCK_ACQUIRE,
                                    [REQUEST_CONVERTING] = NETLOCK_CONVERT,
                                    [REQUEST_STAYING] = NETLOCK_STAY,
                                    [REQUEST_RELEASING] = NETLOCK_RELEASE,
                                    [REQUEST_QUITTING] = NETLOCK_CANCEL};
    if (r->state == REQUEST_CALLING || r->state == REQUEST_VOIDING) {
        call_say(h, r, now, out);
        return;
    }
    request_pause(h, r, now, out);
    if (r->unreported)
        return; /* no granter can convert it yet */
    if (r->state == REQUEST_ASKING && h->leases[GRANTER_SWITCH].until_ns <= now)
        return; /* nothing is granted without a lease: sent when there is one */
    unsigned to = r->state == REQUEST_RELEASING || request_held(r) ? r->granter : GRANTER_SWITCH;
    struct netlock_packet *p = host_packet(h, to, (enum netlock_type)types[r->state], call_rides(h, r, now, out), out);
    if (!p) {
        r->next_ns = now; /* the next tick has room */
        return;
    }
    p->head.index = netlock_word(&h->config, r->index);
    p->head.generation = r->state == REQUEST_ASKING ? r->generation : 0;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->ticket = r->ticket;
    p->mode = r->want;
    p->priority = r->priority;
    p->tenant = r->tenant;
    p->count = r->step;
    p->flags = r->try || netlock_is_chain(&h->config) ? NETLOCK_TRY : 0;
    call_ride(h, r, p);
    request_count(r);
}

/* There is a reply only if it was done. */
void host_settle(struct requests *h, struct request *r, int result, struct outbox *out)
{
    if (result)
        call_end(h, r, out);
    request_settle(h, r, result, out);
}

/* The granter does not know the request any more: it is sent anew under another nonce. */
void host_ask_anew(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    request_rename(h, &host_ops, r, out);
    r->next_ns = now;
}

/* The same, but a granter may have granted it under the former nonce. */
static void ask_in_doubt(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    host_ask_anew(h, r, now, out);
    r->doubt = true;
}

/* ---- leases ---- */

/* Whether the granter may have the request in its queue, or have granted it. */
static bool may_have(const struct requests *h, unsigned granter, const struct request *r)
{
    return granter == GRANTER_SWITCH || h->leases[granter].slots >> netlock_home(&h->config, r->index) & 1;
}

/* LEASE to a granter, or to that switch. A granter that hears its own life knows that the host holds nothing from the one before
 * that servers have not heard of. */
static bool say_lease(struct requests *h, unsigned granter, uint16_t port, uint64_t now, struct outbox *out)
{
    struct netlock_packet *p = host_packet(h, granter, NETLOCK_LEASE, 0, out);
    if (!p)
        return false;
    p->head.to.port = port;
    p->stamp = now;
    bool heard = !h->leases[granter].reports || MISTAKE(h->config.mistakes, NETLOCK_MISTAKE_MUMBLE);
    p->life = heard ? h->leases[granter].life : 0;
    return true;
}

static void ask_for_lease(struct requests *h, unsigned granter, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    bool said = say_lease(h, granter, granter_place(h, granter).port, now, out);
    /* No answer for a while: another switch may be active by now. */
    bool doubt = granter == GRANTER_SWITCH && h->config.switches > 1 && l->until_ns <= now + h->config.lease_ns / 2;
    bool settled = l->until_ns > now && !doubt;
    outbox_touch(out, l, sizeof *l);
    if (settled)
        l->asked = 0;
    l->next_ns = !said ? now : now + (settled ? h->config.lease_ns / LEASE_SHARE : netlock_pause(&h->config, &l->asked));
    if (doubt)
        say_lease(h, granter, 1 - l->port, now, out);
}

/* Only the switch, whose locks are the servers' again in a new term. Of netchain's words there is no other copy. */
static bool learns(const struct requests *h, unsigned granter)
{
    return granter == GRANTER_SWITCH && !netlock_is_chain(&h->config);
}

/* The server that has the lock if the switch does not have it; 0: none is known to which the host has a lease. */
static unsigned server_of(const struct requests *h, const struct request *r, uint64_t now)
{
    for (unsigned g = GRANTER_SWITCH + 1; g < h->granters; g++)
        if (may_have(h, g, r) && h->leases[g].until_ns > now)
            return g;
    return 0;
}

/* The switch's locks are servers' again. A conversion under way is asked for again. One to shared may have been granted, and others
 * beside it. */
static bool report(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    bool converts = r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING;
    unsigned server = server_of(h, r, now);
    struct netlock_packet *p = server ? host_packet(h, server, NETLOCK_HOLD, 0, out) : NULL;
    if (!p)
        return !server;
    p->head.index = r->index;
    p->head.generation = r->generation;
    p->head.nonce = r->nonce;
    p->head.from.port = r->port;
    p->count = r->step - converts;
    p->mode = converts && r->want == PAWL_SHARED ? PAWL_SHARED : r->mode;
    p->priority = r->priority;
    p->tenant = r->tenant;
    p->token = r->token;
    p->stamp = now;
    p->life = h->leases[GRANTER_SWITCH].life;
    p->pushed = h->leases[server].life;
    return true;
}

/* The server's answer. It counts under the lease under which the hold was reported: the server ends its holds with the lease. */
static void on_known(struct requests *h, unsigned granter, struct request *r, const struct netlock_packet *p, uint64_t now,
                     struct outbox *out)
{
    const struct lease *l = &h->leases[granter];
    if (granter == GRANTER_SWITCH || !r->unreported || l->until_ns <= now || p->stamp <= l->since_ns) {
        h->busy.drops.stale++;
        return;
    }
    bool known = !p->code, waits = known && r->state != REQUEST_HELD;
    outbox_touch(out, r, sizeof *r);
    if (known)
        r->ticket = 0;
    granter_reported(h, &host_ops, r, known, granter, now, out);
    if (waits) /* a conversion, or a call */
        host_say(h, r, now, out);
}

static void leased(struct requests *h, unsigned granter, struct request *r, uint64_t now, struct outbox *out)
{
    if (granter != GRANTER_SWITCH && may_have(h, granter, r)) {
        /* A grant under a lapsed lease may still be in flight, and must not be taken for one under this lease. */
        ask_in_doubt(h, r, now, out);
        host_say(h, r, now, out);
    } else if (granter == GRANTER_SWITCH) {
        host_say(h, r, now, out); /* waited for a lease */
    }
}

/* ---- calls ---- */

static int bring(struct requests *h, struct request *r, const struct packet_ask *ask, struct outbox *out)
{
    return ask->bytes ? call_begin(h, r, ask->bytes, ask->len, ask->once, out) : 0;
}

int netlock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out)
{
    const struct requests *h = host;
    return granters_acquire(host, &host_ops, ask, GRANTER_SWITCH, netlock_is_chain(&h->config) ? PAWL_EXCLUSIVE : ask->mode, now,
                            out);
}

int netlock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out)
{
    return granters_give_up(host, &host_ops, request, why, now, out);
}

int netlock_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out)
{
    return granters_convert(host, &host_ops, request, mode, now, out);
}

int netlock_release(void *host, uint32_t request, uint64_t now, struct outbox *out)
{
    return granters_release(host, &host_ops, request, now, out);
}

struct packet_grants netlock_host_grants(const void *host)
{
    const struct requests *h = host;
    return (struct packet_grants){.by_switch = h->busy.by_switch, .by_server = h->busy.by_server};
}

uint64_t netlock_expiry(const void *host, uint32_t session)
{
    return granters_expiry(host, &host_ops, session);
}

void netlock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out)
{
    granters_session_dead(host, &host_ops, session, now, out);
}

/* ---- packets ---- */

bool host_is_own_nonce(const struct requests *h, uint64_t nonce)
{
    const uint64_t serials = UINT64_MAX / NETLOCK_SERIAL_STEP, first = (uint64_t)h->life << SERIAL_LIFE_SHIFT;
    return ((nonce / NETLOCK_SERIAL_STEP - first) & serials) <= ((h->busy.serial - first) & serials);
}

/* A grant that no request here waits for, or that it has already, is given back to its granter. A server takes the number that it
 * gets for the latest one of that request, and has ended what a former life of this host had as soon as it hears of this one: a
 * former life's number must not come to it, since those of this life may count as older. */
static void give_back(struct requests *h, unsigned granter, const struct netlock_packet *p, struct outbox *out)
{
    if (granter != GRANTER_SWITCH && !host_is_own_nonce(h, p->head.nonce))
        return;
    struct netlock_packet *back = host_packet(h, granter, NETLOCK_RELEASE, 0, out);
    if (!back)
        return;
    back->head.index = p->head.index;
    back->head.nonce = p->head.nonce;
    back->ticket = p->ticket;
    back->mode = p->mode;
}

/* Whether a request waited for the grant. */
static bool on_grant(struct requests *h, struct request *r, unsigned granter, const struct netlock_packet *p, uint64_t now,
                     struct outbox *out)
{
    bool same = (r->nonce == p->head.nonce || MISTAKE(h->config.mistakes, NETLOCK_MISTAKE_ANY_GRANT)) &&
                netlock_word(&h->config, r->index) == p->head.index;
    if (same && r->state == REQUEST_ASKING) {
        if (h->leases[granter].until_ns <= now && !MISTAKE(h->config.mistakes, NETLOCK_MISTAKE_NO_LAPSE)) {
            h->busy.drops.stale++; /* without a lease it means nothing; it is asked for again */
            return false;
        }
        outbox_touch(out, r, sizeof *r);
        r->token = p->token;
        r->ticket = p->ticket;
        r->granter = (uint16_t)granter;
        r->mode = p->mode;
        ++*(granter == GRANTER_SWITCH ? &h->busy.by_switch : &h->busy.by_server);
        request_become(h, r, r->call ? REQUEST_CALLING : REQUEST_HELD, out);
        if (!r->call)
            request_settle(h, r, 0, out);
        return true;
    }
    h->busy.drops.stale++;
    if (same && r->unreported)
        return false; /* by a server that took the report, and says so for itself */
    bool held = same && (request_held(r) || r->state == REQUEST_RELEASING);
    if (held ? r->granter != granter || r->ticket != p->ticket : !same || r->state == REQUEST_IDLE)
        give_back(h, granter, p, out);
    return false;
}

/* The request was refused. If it brought bytes for a data server, a late packet of it must not be granted. */
static void turn_away(struct requests *h, struct request *r, int why, uint64_t now, struct outbox *out)
{
    if (call_give_up(h, r, why, now, out))
        return;
    request_become(h, r, REQUEST_IDLE, out);
    host_settle(h, r, why, out);
}

static void on_refused(struct requests *h, struct request *r, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    /* The holder may be the request itself, by its former nonce. */
    bool perhaps = p->code == NETLOCK_MOVING || (p->code == NETLOCK_HELD && r->doubt);
    if (perhaps && r->try && r->moving < (r->doubt ? DOUBT_MAX : MOVING_MAX)) {
        host_ask_anew(h, r, now, out);
        r->next_ns = now + (h->config.retry_ns << r->moving++); /* a busy server may take its time */
    } else if (p->code == NETLOCK_HELD && !r->try && netlock_is_chain(&h->config)) {
        uint64_t pause = r->moving ? NETCHAIN_PAUSE_NS << (r->moving < 8 ? r->moving : 8) : 0; /* at once, then more patiently */
        host_ask_anew(h, r, now, out);
        r->moving += r->moving < 8;
        r->next_ns = now + pause;
        if (!pause)
            host_say(h, r, now, out);
    } else if ((p->code == NETLOCK_HELD || p->code == NETLOCK_MOVING) && r->try) {
        turn_away(h, r, -PAWL_EHELD, now, out);
    } else if (p->code == NETLOCK_QUOTA && r->try) {
        turn_away(h, r, -EAGAIN, now, out);
    } else if (p->code == NETLOCK_QUOTA) {
        host_ask_anew(h, r, now, out);
        r->next_ns = now + min_u64(p->stamp, h->config.lease_ns);
    } else if (p->code == NETLOCK_POLICY) {
        turn_away(h, r, -EINVAL, now, out);
    } else {
        h->busy.drops.bad++;
    }
}

/* Whether an answer is of the present conversion, by the granter of the hold. */
static bool is_of_step(const struct request *r, unsigned granter, const struct netlock_packet *p)
{
    return (r->state == REQUEST_CONVERTING || r->state == REQUEST_STAYING) && r->granter == granter &&
           p->count % NETLOCK_STEPS == r->step % NETLOCK_STEPS;
}

static void on_answer(struct requests *h, unsigned granter, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct request *r = request_at(h, netlock_request_of(p->head.nonce));
    if (p->head.type == NETLOCK_GRANT) {
        if (on_grant(h, r, granter, p, now, out) && r->call)
            host_say(h, r, now, out);
        return;
    }
    if (r->nonce != p->head.nonce || netlock_word(&h->config, r->index) != p->head.index) {
        h->busy.drops.stale++;
        return;
    }
    switch ((enum netlock_type)p->head.type) {
    case NETLOCK_RELEASED:
        request_released(h, r, out);
        break;
    case NETLOCK_GONE:
        if (r->state == REQUEST_ASKING) {
            host_ask_anew(h, r, now, out);
            host_say(h, r, now, out);
        } else {
            h->busy.drops.stale++;
        }
        break;
    case NETLOCK_CONVERTED:
        if (is_of_step(r, granter, p) && p->mode == r->want)
            request_granted(h, r, p->token, p->mode, out);
        else
            h->busy.drops.stale++;
        break;
    case NETLOCK_KNOWN:
        on_known(h, granter, r, p, now, out);
        break;
    case NETLOCK_REFUSED:
        if (p->code == NETLOCK_DEADLOCK && is_of_step(r, granter, p))
            request_not_converted(h, r, -EDEADLK, out);
        else if (r->state == REQUEST_ASKING)
            on_refused(h, r, p, now, out);
        else
            h->busy.drops.stale++;
        break;
    default:
        h->busy.drops.bad++;
        break;
    }
}

/* The granter that sent it: the switch or one of the servers. */
static bool sender(struct requests *h, const struct packet_head *p, unsigned *granter)
{
    for (*granter = 0; *granter < h->granters; ++*granter) {
        struct place from = granter_place(h, *granter);
        if (from.machine == p->from.machine && (from.port == p->from.port || (*granter == GRANTER_SWITCH && p->from.port <= 1)))
            return true;
    }
    h->busy.drops.alien++;
    return false;
}

/* Another switch is active: the host asks it for a lease. Grants of the former switch stay valid until the new one has answered. */
static void on_elsewhere(struct requests *h, const struct netlock_packet *p, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[GRANTER_SWITCH];
    if (p->head.from.machine != MACHINE_SWITCH || p->life <= l->life || p->round > 1 || p->round == l->port ||
        h->config.switches < 2) {
        h->busy.drops.stale++;
        return;
    }
    say_lease(h, GRANTER_SWITCH, (uint16_t)p->round, now, out);
}

/* A switch that has not heard of the successor yet passes requests on to the old server. Its grants are of an earlier life. */
void netlock_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out)
{
    struct requests *h = host;
    unsigned server = rack_server_on(&h->config, machine);
    if (server < h->config.servers)
        granter_since(h, GRANTER_SWITCH + 1 + server, life, out);
}

/* Whether a packet of the granter, in that life, is current. Packets of a former life are not. */
static bool is_current(struct requests *h, unsigned granter, uint32_t life, uint16_t port, uint64_t now, struct outbox *out)
{
    struct lease *l = &h->leases[granter];
    bool anew = life > l->life;
    if (life == l->life && granter == GRANTER_SWITCH && port != l->port) {
        h->busy.drops.stale++;
        return false;
    }
    if (!granter_is_current(h, &host_ops, granter, life, now, out))
        return false;
    if (anew) {
        l->port = granter == GRANTER_SWITCH ? port : 0;
        l->next_ns = now; /* the granter waits for a packet that shows that this host knows its new life */
    }
    return true;
}

void host_granted(struct requests *h, const struct netlock_packet *p, struct place granter, uint32_t life, uint64_t now,
                  struct outbox *out)
{
    const struct packet_head head = {.from = granter};
    unsigned g;
    if (!sender(h, &head, &g))
        return;
    granter_check_lease(h, &host_ops, g, now, out);
    if (is_current(h, g, life, granter.port, now, out))
        on_grant(h, request_at(h, netlock_request_of(p->head.nonce)), g, p, now, out);
}

static void on_done(struct requests *h, const struct netlock_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    uint32_t request = netlock_request_of(p->stamp);
    if (request != netlock_request_of(p->head.nonce) || len - sizeof *p > NETLOCK_PAYLOAD_MAX)
        h->busy.drops.bad++;
    else
        call_on_answer(h, request_at(h, request), p, len, now, out);
}

void netlock_host_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    struct requests *h = host;
    requests_touch(h, out);
    const struct packet_head *head = packet_check(data, len, PACKET_NETLOCK, &h->config, &h->busy.drops);
    const struct netlock_packet *p = data;
    unsigned granter;
    if (!head || !sender(h, head, &granter))
        return;
    bool mode = head->type == NETLOCK_GRANT || head->type == NETLOCK_ANSWER || head->type == NETLOCK_CONVERTED;
    if (len < sizeof *p || head->to.machine != h->machine || netlock_request_of(head->nonce) >= rack_requests(&h->config) ||
        (mode && p->mode != NETLOCK_SHARED && p->mode != NETLOCK_EXCLUSIVE)) {
        h->busy.drops.bad++;
        return;
    }
    granter_check_lease(h, &host_ops, granter, now, out);
    if (head->type == NETLOCK_ELSEWHERE) {
        on_elsewhere(h, p, now, out);
        return;
    }
    if (!is_current(h, granter, head->epoch, head->from.port, now, out))
        return;
    if (head->type == NETLOCK_LEASED)
        granter_leased(h, &host_ops, granter, p->stamp, p->token, now, out);
    else if (head->type == NETLOCK_CHASE)
        host_deadlock_chase(h, p, len, now, out);
    else if (head->type == NETLOCK_ANSWER)
        on_done(h, p, len, now, out);
    else
        on_answer(h, granter, p, now, out);
}

/* ---- time ---- */

static void retry(struct requests *h, struct request *r, uint64_t now, struct outbox *out)
{
    if (call_in_vain(h, r, now)) {
        call_unknown(h, r, now, out);
    } else if (r->next_ns <= now) {
        host_say(h, r, now, out);
        host_deadlock_due(h, r, now, out);
    }
}

void netlock_host_renew(void *host, uint64_t now, struct outbox *out)
{
    granters_renew(host, &host_ops, now, out);
}

uint64_t netlock_host_tick(void *host, uint64_t now, struct outbox *out)
{
    return granters_tick(host, &host_ops, now, out);
}

const struct granter_ops host_ops = {.nonce_step = NETLOCK_SERIAL_STEP,
                                     .no_lapse = NETLOCK_MISTAKE_NO_LAPSE,
                                     .quitting = REQUEST_QUITTING,
                                     .say = host_say,
                                     .retry = retry,
                                     .ask_anew = ask_in_doubt,
                                     .report = report,
                                     .learns = learns,
                                     .may_have = may_have,
                                     .leased = leased,
                                     .ask_for_lease = ask_for_lease,
                                     .bring = bring,
                                     .give_up = call_give_up,
                                     .failed = call_end,
                                     .converts = host_deadlock_upgrade};
