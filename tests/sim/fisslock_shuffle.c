/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's hosts and decider around a bag of packets, from which they are taken in any order, some twice and some never. Small
 * and fast, and harsher than a network: it finds most mistakes. Afterwards the bag is fair, and all requests must be served.
 *
 * fisslock_shuffle [FIRST SEEDS [OPTIONS]] runs other seeds than the test's. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/fisslock/spill.h"
#include "lib/rng.h"
#include "tests/check.h"

#include <errno.h>

#define HOSTS_MAX 5
#define BAG_MAX 4096
#define STEPS 6000
#define HEALING_STEPS 60000
#define BUSTED_SEEDS 3000
#define RETRY_NS (100 * NS_PER_US)
#define PLACES_LOCK 0   /* some readers of this lock ask for a place of a semaphore, */
#define PLACES 2        /* which has so many */
#define ROOM_BYTES 200u /* of an outbox that is nearly full, once or twice: for one packet, or a few */

struct parcel {
    uint64_t due;
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
};

struct hold_note {
    uint64_t until; /* healing: releases by then */
    uint64_t token;
};

struct world_state {
    struct rng random, room;
    struct rack_config config;
    unsigned hosts;
    uint32_t nodes; /* of a host that has the usual room */
    void *host[HOSTS_MAX + 1];
    void *server[HOSTS_MAX + 1]; /* on the host of that number; null: none there */
    void *decider;
    uint64_t now;
    bool healed, narrow;  /* narrow: pools and outboxes have little room */
    unsigned loss, twice; /* in a hundred */
    unsigned parcels;
    struct parcel *bag;
    struct outbox out;
    uint64_t token_x[8], token_s[8]; /* highest seen */
    uint64_t grants, violations, ops;
    bool quiet;
    uint64_t paused_until[HOSTS_MAX + 1];       /* neither hears nor does anything */
    uint32_t life[HOSTS_MAX + 1], central_life; /* the latter of switch and servers */
    struct hold_note *notes[HOSTS_MAX + 1];
};

static const struct packet_design *const d = &fisslock_packets;
static bool tracing; /* for one seed */
static uint64_t moves;

static void trace(const struct world_state *w, const char *where, const void *data)
{
    static const char *const types[] = {"?",     "ACQUIRE", "RELEASE", "FREE",   "GRANT", "ACK",  "REFUSED",
                                        "FLAGS", "LOOK",    "CENSUS",  "ANSWER", "LEASE", "TAKE", "REPORT"};
    const struct fission_packet *p = data;
    if (tracing)
        printf("%9" PRIu64 " %-8s %-8s lock %" PRIu64 " %d>%d nonce %" PRIx64 " client %d mode %d/%d flags %03x term %u inca %u "
               "word %" PRIx64 " count %u\n",
               w->now, where, types[p->head.type], p->head.index, p->head.from.machine, p->head.to.machine, p->head.nonce,
               p->client.machine, p->old_mode, p->mode, p->flags, p->term, p->inca, p->word, p->count);
}

static void trace_call(const struct world_state *w, const char *what, unsigned host, uint32_t r, uint64_t lock, unsigned mode)
{
    if (tracing)
        printf("%9" PRIu64 " host %u request %u %s lock %" PRIu64 " mode %u\n", w->now, host, r, what, lock, mode);
}

static void violation(struct world_state *w, const char *what, uint64_t lock)
{
    if (!w->violations++ && !w->quiet)
        fprintf(stderr, "violation: %s, lock %" PRIu64 ", at %" PRIu64 " ns\n", what, lock, w->now);
}

/* ---- the bag ---- */

static void drop_in(struct world_state *w, const void *data, uint32_t len)
{
    if (w->parcels == BAG_MAX || (!w->healed && rng_chance(&w->random, w->loss, 100)))
        return;
    struct parcel *p = &w->bag[w->parcels++];
    uint64_t delay = w->healed ? 2000 : rng_below(&w->random, rng_chance(&w->random, 1, 20) ? 30 * RETRY_NS : 5000);
    p->due = w->now + delay;
    p->len = len;
    memcpy(p->data, data, len);
}

/* For the next event. */
static void clear_outbox(struct world_state *w)
{
    outbox_clear(&w->out);
    if (w->narrow && !w->healed && rng_chance(&w->room, 1, 20))
        w->out.used = OUTBOX_BYTES - (uint32_t)rng_below(&w->room, 3) * ROOM_BYTES;
}

static void send_all(struct world_state *w)
{
    struct outbox *o = &w->out;
    for (unsigned i = 0; i < o->packets; i++) {
        drop_in(w, outbox_packet(o, i), o->packet[i].len);
        if (!w->healed && rng_chance(&w->random, w->twice, 100))
            drop_in(w, outbox_packet(o, i), o->packet[i].len);
    }
    clear_outbox(w);
}

/* Every packet passes the decider once. Packets that it has passed are marked. */
#define PASSED (1u << 31)

static void switch_sends(struct world_state *w)
{
    struct outbox *o = &w->out;
    for (unsigned i = 0; i < o->packets; i++) {
        unsigned copies = 1 + (!w->healed && rng_chance(&w->random, w->twice, 100));
        while (copies--) {
            unsigned before = w->parcels;
            drop_in(w, outbox_packet(o, i), o->packet[i].len);
            if (w->parcels > before)
                w->bag[before].len |= PASSED;
        }
    }
    clear_outbox(w);
}

static void deliver(struct world_state *w, unsigned which)
{
    static struct parcel p;
    p = w->bag[which];
    w->bag[which] = w->bag[--w->parcels];
    if (!(p.len & PASSED)) {
        trace(w, "switch", p.data);
        d->switch_packet(w->decider, p.data, p.len, w->now, &w->out);
        if (d->switch_stale(w->decider)) {
            outbox_clear(&w->out);
            d->switch_init(w->decider, &w->config, ++w->central_life, w->now);
        }
        switch_sends(w);
        return;
    }
    const struct packet_head *head = (const void *)p.data;
    unsigned to = head->to.machine;
    CHECK(to >= 1 && to <= w->hosts);
    if (w->paused_until[to] > w->now)
        return;
    bool serves = head->to.port == PORT_SERVER && w->server[to];
    trace(w, serves ? "server" : "host", p.data);
    if (serves)
        d->server_packet(w->server[to], p.data, p.len & ~PASSED, w->now, &w->out);
    else
        d->packet(w->host[to], p.data, p.len & ~PASSED, w->now, &w->out);
    send_all(w);
}

/* ---- holders ---- */

static void check_holders(struct world_state *w)
{
    unsigned readers[8] = {0}, writers[8] = {0}, places = 0;
    for (unsigned i = 1; i <= w->hosts; i++)
        for (uint32_t r = 0; r < rack_requests(&w->config); r++) {
            struct packet_answer answer;
            if (!d->holds(w->host[i], r) || w->now >= d->expiry(w->host[i], r / w->config.requests))
                continue;
            const struct fiss_request *request = host_request(w->host[i], r);
            uint64_t lock = request->index;
            ++*(request->mode == PAWL_SHARED ? &readers[lock] : &writers[lock]);
            places += request->limit != 0;
            if (d->outcome(w->host[i], r, &answer) || w->notes[i][r].token == answer.token)
                continue;
            trace_call(w, "GRANTED", i, r, lock, answer.mode);
            w->notes[i][r] = (struct hold_note){w->now + rng_below(&w->random, 20 * NS_PER_US), answer.token};
            w->grants++;
            if (answer.mode == PAWL_EXCLUSIVE) {
                if (answer.token <= w->token_x[lock] || answer.token <= w->token_s[lock])
                    violation(w, "an exclusive token that is not above all", lock);
                w->token_x[lock] = max_u64(answer.token, w->token_x[lock]);
            } else {
                if (answer.token <= w->token_x[lock])
                    violation(w, "a shared token that is not above all exclusive ones", lock);
                w->token_s[lock] = max_u64(answer.token, w->token_s[lock]);
            }
        }
    if (places && readers[PLACES_LOCK] > PLACES)
        violation(w, "more holders than places", PLACES_LOCK); /* I25 */
    for (uint64_t lock = 0; lock < w->config.locks; lock++)
        if (writers[lock] > 1 || (writers[lock] && readers[lock])) {
            for (unsigned i = 1; tracing && i <= w->hosts; i++)
                for (uint32_t r = 0; r < rack_requests(&w->config); r++)
                    if (d->holds(w->host[i], r) && host_request(w->host[i], r)->index == lock)
                        trace_call(w, "HOLDS", i, r, lock, host_request(w->host[i], r)->mode);
            violation(w, "incompatible holders", lock);
        }
}

/* ---- what tasks do ---- */

/* Whether agents may stay; then the short way is gone, too. */
static bool stays(const struct world_state *w)
{
    return w->config.options & FISSLOCK_KEEP;
}

static void act(struct world_state *w, unsigned host, uint32_t r)
{
    void *h = w->host[host];
    const struct fiss_request *request = host_request(h, r);
    struct packet_ask ask = {
        .request = r, .port = (uint16_t)(PORT_SERVER + 1 + r), .index = rng_below(&w->random, w->config.locks)};
    ask.mode = rng_chance(&w->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE;
    ask.priority = (uint8_t)rng_below(&w->random, 3);
    ask.try = !w->healed && rng_chance(&w->random, 1, 6);
    if (ask.index == PLACES_LOCK && ask.mode == PAWL_SHARED && ask.priority)
        ask.limit = PLACES;
    if (d->idle(h, r)) {
        w->notes[host][r] = (struct hold_note){0};
        trace_call(w, "acquire", host, r, ask.index, ask.mode);
        struct packet_answer answer;
        if (!stays(w) || d->local_acquire(h, &ask, w->now, &answer))
            d->acquire(h, &ask, w->now, &w->out);
        w->ops++;
    } else if (d->holds(h, r)) {
        if (host_request(h, r)->state == FISS_UPGRADING) {
            trace_call(w, "maybe stops upgrading", host, r, request->index, request->mode);
            if (rng_chance(&w->random, 1, 3))
                d->give_up(h, r, -ETIMEDOUT, w->now, &w->out);
        } else if (!w->healed && rng_chance(&w->random, 1, 5)) {
            trace_call(w, "convert", host, r, request->index, request->mode);
            d->convert(h, r, rng_chance(&w->random, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE, w->now, &w->out);
        } else if (!w->healed || w->notes[host][r].until <= w->now) {
            trace_call(w, "release", host, r, request->index, request->mode);
            if (!stays(w) || d->local_release(h, r, w->now))
                d->release(h, r, w->now, &w->out);
        }
    } else if (!w->healed && rng_chance(&w->random, 1, 4)) {
        d->give_up(h, r, -ETIMEDOUT, w->now, &w->out);
    }
    send_all(w);
}

static void tick_all(struct world_state *w)
{
    for (unsigned i = 1; i <= w->hosts; i++) {
        if (w->paused_until[i] > w->now)
            continue;
        d->tick(w->host[i], w->now, &w->out);
        if (w->server[i])
            d->server_tick(w->server[i], w->now, &w->out);
        send_all(w);
    }
    d->switch_tick(w->decider, w->now, &w->out);
    switch_sends(w);
}

static void start_host(struct world_state *w, unsigned host, uint32_t life)
{
    struct fisslock_host *h = w->host[host];
    memset(h, 0, d->host_bytes(&w->config));
    d->host_init(h, &w->config, (uint16_t)host, life, w->now);
    w->nodes = h->node_count;
    if (w->narrow)
        h->node_count = 2 * h->request_count + (uint32_t)rng_below(&w->room, 4);
}

static void start_server(struct world_state *w, unsigned host, uint32_t life)
{
    memset(w->server[host], 0, d->server_bytes(&w->config));
    d->server_init(w->server[host], &w->config, (uint16_t)host, life, life == 1, w->now);
}

/* Where there are leases: hosts that fall silent, hosts and deciders that forget. */
static void strike(struct world_state *w, unsigned host)
{
    if (rng_chance(&w->random, 1, 600)) {
        w->paused_until[host] = w->now + rng_below(&w->random, 3 * w->config.lease_ns);
    } else if (rng_chance(&w->random, 1, 2000)) {
        start_host(w, host, ++w->life[host]);
        memset(w->notes[host], 0, rack_requests(&w->config) * sizeof *w->notes[host]);
        if (w->server[host])
            start_server(w, host, ++w->central_life);
    } else if (rng_chance(&w->random, 1, 4000)) {
        moves += d->switch_moves(w->decider);
        d->switch_init(w->decider, &w->config, ++w->central_life, w->now);
    }
}

static void end_lost_sessions(struct world_state *w)
{
    for (unsigned i = 1; i <= w->hosts; i++)
        for (uint32_t session = 0; session < w->config.sessions && w->paused_until[i] <= w->now; session++)
            if (d->expiry(w->host[i], session) <= w->now) {
                d->session_dead(w->host[i], session, w->now, &w->out);
                send_all(w);
            }
}

static void step(struct world_state *w, bool acts)
{
    w->now += rng_below(&w->random, 2000);
    unsigned host = 1 + (unsigned)rng_below(&w->random, w->hosts);
    if (w->config.lease_ns) {
        if (!w->healed)
            strike(w, host);
        end_lost_sessions(w);
    }
    if (w->paused_until[host] > w->now)
        acts = false;
    if (!w->healed && rng_chance(&w->random, 1, 2000) && w->paused_until[host] <= w->now) {
        d->session_dead(w->host[host], (uint32_t)rng_below(&w->random, w->config.sessions), w->now, &w->out);
        send_all(w);
    }
    if (acts && rng_chance(&w->random, 1, 3))
        act(w, host, (uint32_t)rng_below(&w->random, rack_requests(&w->config)));
    for (unsigned i = 0; i < w->parcels && i < 3; i++) {
        unsigned which = (unsigned)rng_below(&w->random, w->parcels);
        if (w->bag[which].due <= w->now)
            deliver(w, which);
        check_holders(w);
    }
    if (rng_chance(&w->random, 1, 8))
        tick_all(w);
    check_holders(w);
}

/* ---- a run ---- */

/* The switch has room for some of the locks only. */
static void draw_spill(struct world_state *w)
{
    w->config.switch_locks = 1 + rng_below(&w->random, w->config.locks - 1);
    w->config.servers = (uint16_t)(1 + rng_below(&w->random, min_u64(w->hosts, 2)));
    for (uint16_t i = 0; i < w->config.servers; i++)
        w->config.server[i] = (uint16_t)(i + 1);
    if (rng_chance(&w->random, 2, 3))
        w->config.options |= FISSLOCK_RESTLESS;
}

static void make(struct world_state *w, uint64_t seed, uint64_t options, uint64_t mistakes, bool narrow)
{
    memset(w, 0, sizeof *w);
    rng_seed(&w->random, seed);
    rng_seed(&w->room, ~seed);
    w->narrow = narrow;
    w->hosts = 2 + (unsigned)rng_below(&w->random, HOSTS_MAX - 1);
    w->config = (struct rack_config){
        .space = 7,
        .machines = (uint16_t)w->hosts,
        .sessions = 2,
        .requests = 2,
        .locks = 1 + rng_below(&w->random, 3),
        .retry_ns = RETRY_NS,
        .mistakes = mistakes,
        .options = options | (rng_chance(&w->random, 1, 2) ? FISSION_WRITE_PREFERRING : 0) |
                   (rng_chance(&w->random, 1, 3) ? FISSLOCK_PRIORITY : 0),
    };
    w->loss = rng_chance(&w->random, 1, 3) ? 0 : (unsigned)rng_below(&w->random, 25);
    w->twice = rng_chance(&w->random, 1, 3) ? 0 : (unsigned)rng_below(&w->random, 25);
    if (rng_chance(&w->random, 1, 2))
        w->config.lease_ns = 40 * RETRY_NS;
    if (w->config.lease_ns && w->config.locks > 1 && rng_chance(&w->random, 2, 3))
        draw_spill(w);
    w->bag = calloc(BAG_MAX, sizeof *w->bag);
    w->decider = calloc(1, d->switch_bytes(&w->config));
    CHECK(w->bag && w->decider);
    w->now = 1;
    w->central_life = 1;
    d->switch_init(w->decider, &w->config, 1, w->now);
    for (unsigned i = 1; i <= w->hosts; i++) {
        w->host[i] = calloc(1, d->host_bytes(&w->config));
        w->notes[i] = calloc(rack_requests(&w->config), sizeof *w->notes[i]);
        CHECK(w->host[i] && w->notes[i]);
        w->life[i] = 1;
        start_host(w, i, 1);
    }
    for (unsigned i = 1; i <= w->config.servers; i++) {
        w->server[i] = calloc(1, d->server_bytes(&w->config));
        CHECK(w->server[i]);
        start_server(w, i, 1);
    }
}

static void unmake(struct world_state *w)
{
    for (unsigned i = 1; i <= w->hosts; i++) {
        free(w->host[i]);
        free(w->server[i]);
        free(w->notes[i]);
    }
    free(w->decider);
    free(w->bag);
}

static unsigned not_idle(struct world_state *w)
{
    unsigned count = 0;
    for (unsigned i = 1; i <= w->hosts; i++)
        for (uint32_t r = 0; r < rack_requests(&w->config); r++)
            count += !d->idle(w->host[i], r);
    return count;
}

static void let_go(struct world_state *w)
{
    for (unsigned i = 1; i <= w->hosts; i++)
        for (uint32_t r = 0; r < rack_requests(&w->config); r++)
            if (d->holds(w->host[i], r) && w->notes[i][r].until <= w->now) {
                if (host_request(w->host[i], r)->state == FISS_UPGRADING)
                    d->give_up(w->host[i], r, -ETIMEDOUT, w->now, &w->out);
                d->release(w->host[i], r, w->now, &w->out);
                send_all(w);
            }
}

static bool is_held(const struct world_state *w, uint64_t lock)
{
    uint64_t word = fisslock_switch_word(w->decider, lock);
    if (w->config.servers && !(word & FISSION_WORD_HELD))
        word = fisslock_server_word(w->server[1 + lock % w->config.servers], lock);
    return word & FISSION_WORD_HELD;
}

/* Agents but for those that stay. */
static uint32_t left_over(const struct fisslock_host *h)
{
    return h->agents_used - h->chain[CHAIN_KEPT].count;
}

/* All waiters are served, and at the end the lock is free, or its agent stays. */
static const char *heal(struct world_state *w)
{
    w->healed = true;
    outbox_clear(&w->out);
    for (unsigned i = 1; i <= w->hosts; i++)
        ((struct fisslock_host *)w->host[i])->node_count = w->nodes;
    memset(w->paused_until, 0, sizeof w->paused_until);
    for (unsigned i = 0; i < HEALING_STEPS && not_idle(w); i++) {
        let_go(w);
        step(w, false);
    }
    if (not_idle(w))
        return "a request is stuck";
    /* Every lock once more, exclusively. */
    for (uint64_t lock = 0; lock < w->config.locks; lock++) {
        struct packet_ask ask = {.request = 0, .port = PORT_SERVER + 1, .mode = PAWL_EXCLUSIVE, .index = lock};
        w->notes[1][0] = (struct hold_note){0};
        d->acquire(w->host[1], &ask, w->now, &w->out);
        send_all(w);
        for (unsigned i = 0; i < HEALING_STEPS && !d->holds(w->host[1], 0); i++) {
            if (d->idle(w->host[1], 0))
                d->acquire(w->host[1], &ask, w->now, &w->out); /* its session had been lost */
            send_all(w);
            step(w, false);
        }
        if (!d->holds(w->host[1], 0))
            return "a lock cannot be had";
        d->release(w->host[1], 0, w->now, &w->out);
        send_all(w);
        for (unsigned i = 0; i < HEALING_STEPS && !d->idle(w->host[1], 0); i++)
            step(w, false);
    }
    for (unsigned i = 0; i < HEALING_STEPS; i++) {
        bool busy = w->parcels;
        for (unsigned k = 1; k <= w->hosts; k++)
            busy |= left_over(w->host[k]) != 0;
        if (!busy)
            break;
        step(w, false);
    }
    for (uint64_t lock = 0; lock < w->config.locks; lock++)
        if (!stays(w) && is_held(w, lock))
            return "a lock is not free";
    for (unsigned i = 1; i <= w->hosts; i++) {
        struct fisslock_host *h = w->host[i];
        unsigned nodes = 0;
        for (uint32_t n = h->node_free; n != NONE; n = host_node(h, n)->next)
            nodes++;
        if (left_over(h) || h->waiting || nodes != h->nodes_touched)
            return "something has leaked";
    }
    return NULL;
}

static struct fisslock_counts totals;

static const char *run(uint64_t seed, uint64_t options, uint64_t mistakes, bool narrow, uint64_t *violations, bool quiet)
{
    static struct world_state w;
    make(&w, seed, options, mistakes, narrow);
    w.quiet = quiet;
    for (unsigned i = 0; i < STEPS && !w.violations; i++)
        step(&w, true);
    const char *stuck = w.violations ? NULL : heal(&w);
    *violations = w.violations;
    moves += d->switch_moves(w.decider);
    for (unsigned i = 1; i <= w.hosts; i++) {
        const struct fisslock_counts *c = fisslock_counts(w.host[i]);
        totals.by_switch += c->by_switch, totals.by_agent += c->by_agent, totals.local += c->local;
        totals.retries += c->retries, totals.bounces += c->bounces, totals.adopted += c->adopted, totals.denied += c->denied;
        totals.censuses += c->censuses, totals.orphans += c->orphans, totals.checks += c->checks, totals.crowded += c->crowded;
    }
    unmake(&w);
    return stuck;
}

/* Each mistake must be found, at the latest by the seed that once found it. */
static void check_busted(void)
{
    static const struct {
        const char *name;
        uint64_t options, mistakes;
        uint64_t seed; /* tried first */
    } busted[] = {
        {"term", 0, FISSION_MISTAKE_TERM, 4},           {"inca", 0, FISSION_MISTAKE_INCA, 8},
        {"frees", 0, FISSION_MISTAKE_FREES, 0},         {"nonce", 0, FISSLOCK_MISTAKE_NONCE, 8},
        {"adopt", 0, FISSLOCK_MISTAKE_ADOPT, 2},        {"floor", 0, FISSLOCK_MISTAKE_FLOOR, 2006},
        {"census", 0, FISSLOCK_MISTAKE_CENSUS, 116},    {"keep", FISSLOCK_KEEP | FISSLOCK_PLACED, FISSLOCK_MISTAKE_KEEP, 700},
        {"unpaused", 0, FISSLOCK_MISTAKE_UNPAUSED, 24}, {"blank", 0, FISSLOCK_MISTAKE_BLANK, 5},
        {"round", 0, FISSLOCK_MISTAKE_ROUND, 7167},     {"amnesia", 0, FISSLOCK_MISTAKE_AMNESIA, 999},
        {"places", 0, FISSLOCK_MISTAKE_PLACES, 0},      {"open", 0, FISSION_MISTAKE_OPEN, 0},
        {"guess", 0, FISSLOCK_MISTAKE_GUESS, 0},
    };
    for (unsigned i = 0; i < countof(busted); i++) {
        uint64_t tried = 0, violations = 0;
        for (; tried < BUSTED_SEEDS && !violations; tried++)
            run(busted[i].seed + tried, busted[i].options, busted[i].mistakes, false, &violations, true);
        printf("busted %s: caught by seed %" PRIu64 "\n", busted[i].name, busted[i].seed + tried - 1);
        if (!violations)
            CHECK_FAIL("busted %s was not caught", busted[i].name);
    }
}

int main(int argc, char **argv)
{
    tracing = getenv("PAWL_TRACE");
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 200;
    uint64_t options = argc > 3 ? strtoull(argv[3], NULL, 0) : 0, violations;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        const char *stuck = run(seed, options, 0, false, &violations, false);
        if (violations || stuck)
            CHECK_FAIL("seed %" PRIu64 ": %s", seed, violations ? "violation" : stuck);
    }
    for (uint64_t seed = first; seed < first + seeds && !options; seed++) {
        const char *stuck = run(seed, FISSLOCK_KEEP | (seed % 2 ? FISSLOCK_PLACED : 0), 0, false, &violations, false);
        if (violations || stuck)
            CHECK_FAIL("agents that stay, seed %" PRIu64 ": %s", seed, violations ? "violation" : stuck);
    }
    for (uint64_t seed = first; seed < first + seeds && !options; seed++) {
        const char *stuck = run(seed, seed % 3 ? 0 : FISSLOCK_KEEP, 0, true, &violations, false);
        if (violations || stuck)
            CHECK_FAIL("little room, seed %" PRIu64 ": %s", seed, violations ? "violation" : stuck);
    }
    CHECK(totals.crowded || argc > 1);
    printf("grants: %" PRIu64 " by switch, %" PRIu64 " by agents, %" PRIu64 " local\n", totals.by_switch, totals.by_agent,
           totals.local);
    printf("%" PRIu64 " moves between switch and servers\n", moves);
    CHECK(moves || argc > 1);
    printf("%" PRIu64 " retries, %" PRIu64 " bounces, %" PRIu64 " adopted, %" PRIu64 " denied, %" PRIu64 " censuses, %" PRIu64
           " orphans, %" PRIu64 " checks, %" PRIu64 " crowded\n",
           totals.retries, totals.bounces, totals.adopted, totals.denied, totals.censuses, totals.orphans, totals.checks,
           totals.crowded);
    if (argc == 1)
        check_busted();
    return 0;
}
