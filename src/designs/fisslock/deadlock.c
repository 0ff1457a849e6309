/* Deadlocks: threads that wait in a circle, each for what the next one has.
 *
 * Edge chasing in the manner of Chandy, Misra and Haas (1983), AND model. Who has waited for long and holds something sends a PROBE
 * to the agent of the lock; that passes it, as CHASE, to the host of everybody who is in the way; if such a one waits, too, its
 * host appends that and sends the PROBE to the agent of *that* lock. What comes back to where it began has found a circle, of steps
 * that were true one after the other. They were true at the same time if all of them are still true when a second round has gone
 * along the same way: a wait has a name that is used once, and so has a hold; what is there before and after the moment at which
 * the first round ended was there in that moment. So:
 *
 *     No false victims (I13): who is told of a deadlock was part of one at a moment during its wait, SURE_FACTOR retransmission
 *     times ago at most.
 *
 * What is true is looked up where it is true: that a request waits or holds, in the memory of its host. An agent is believed only
 * that one who waits keeps out another (readers behind a writer), and that is asked of it in both rounds, of one tenure. Packets
 * that are lost, late or doubled find nothing, or find it again; nothing else depends on them.
 *
 * Of a circle one is the victim: the one of highest rank. A probe does not pass one who outranks whoever began it. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/pool.h"

#include <errno.h>

#define PROBE_FACTOR 4 /* a wait is looked into when it is that many retransmission times until the next: after seven of them */
#define SURE_FACTOR 8  /* retransmission times, within which the second round must be back */
#define FANOUT_MAX 16  /* of those in the way: others come next time */

#define PASSES_MAX 16 /* others' probes that a wait sends on within a retransmission time */

#define STEPS_MAX FISSION_ENTRIES_MAX
static_assert(STEPS_MAX < UINT8_MAX, "a step's number fits into hops");

/* ---- who waits, and has what ---- */

void deadlock_thread(struct event *e, uint32_t request, uint32_t thread)
{
    uint32_t *at = host_thread(e->h, request);
    if (*at == thread)
        return; /* nearly always */
    edit(e, at);
    *at = thread;
}

void fisslock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out)
{
    struct event e = event_begin(host, now, out);
    if (request < e.h->request_count)
        deadlock_thread(&e, request, thread);
}

static uint8_t wanted(const struct request *r)
{
    return r->state == REQUEST_UPGRADING ? FISSION_EXCLUSIVE : r->mode;
}

/* The name of the wait; 0: it does not. */
static uint64_t wait_of(struct fisslock_host *h, const struct request *r)
{
    return r->state == REQUEST_WAITING && !r->try ? r->nonce : r->state == REQUEST_UPGRADING ? host_suspect(h, r)->upgrade : 0;
}

static bool same_thread(struct fisslock_host *h, uint32_t a, struct fisslock_host *other, uint32_t b)
{
    return host_is(h, FISSLOCK_BUSTED_CROWD) || (*host_thread(h, a) && *host_thread(h, a) == *host_thread(other, b));
}

/* A request, and the part of its host that it is in: a circle may go through several racks (racks.c). */
struct wait {
    struct fisslock_host *h;
    struct request *r; /* null: there is none */
};

/* What the thread that has `r` waits for, in its call, in whatever rack; if nothing, it may give `r` back at any time. An upgrade
 * waits itself. */
static struct wait wait_behind(struct fisslock_host *h, struct request *r)
{
    uint32_t number = request_number(h, r), first = number - number % h->config.requests;
    if (r->state == REQUEST_UPGRADING)
        return (struct wait){h, r};
    for (unsigned d = 0; d < host_parts(h); d++) {
        struct fisslock_host *part = host_part(h, d);
        for (uint32_t i = first; i < first + h->config.requests; i++)
            if (wait_of(part, host_request(part, i)) && same_thread(h, number, part, i))
                return (struct wait){part, host_request(part, i)};
    }
    return (struct wait){NULL, NULL};
}

/* Whether others can wait for the thread that waits for `r`. */
static bool has_something(struct fisslock_host *h, const struct request *r)
{
    uint32_t number = request_number(h, r), first = number - number % h->config.requests;
    if (r->state == REQUEST_UPGRADING)
        return true;
    for (unsigned d = 0; d < host_parts(h); d++)
        for (uint32_t i = first; i < first + h->config.requests; i++)
            if (fisslock_holds(host_part(h, d), i) && same_thread(h, number, host_part(h, d), i))
                return true;
    return false;
}

/* Another for every wait, so that it is not always the same who loses; and the same for everybody who asks. */
static uint64_t rank_of(const struct fission_step *s)
{
    return (mix64(s->id ^ mix64(s->machine | (uint64_t)s->term << 16)) >> 1 | 1) | (uint64_t)s->second << 63;
}

/* Nonces are a rack's own, so its number belongs to the name. */
static struct fission_step step_of(struct fisslock_host *h, const struct request *r)
{
    return (struct fission_step){.id = wait_of(h, r),
                                 .term = h->config.rack,
                                 .machine = h->machine,
                                 .kind = FISSION_STEP_WAIT,
                                 .second = r->state == REQUEST_UPGRADING && host_suspect(h, r)->second};
}

static bool same_wait(const struct fission_step *a, const struct fission_step *b)
{
    return a->id == b->id && a->machine == b->machine && a->term == b->term;
}

/* Those who have nothing are nobody's victims: without them the others would wait all the same. */
static uint64_t rank_here(struct fisslock_host *h, const struct request *r)
{
    const struct fission_step s = step_of(h, r);
    return has_something(h, r) ? rank_of(&s) : 0;
}

/* ---- packets ---- */

struct way {
    unsigned count;
    struct fission_step step[STEPS_MAX];
};

/* Waits and what they wait for take turns. */
static bool read_way(struct event *e, const struct fission_packet *p, struct way *way)
{
    way->count = p->count;
    memcpy(way->step, p + 1, p->count * sizeof way->step[0]);
    bool good = p->count > 0;
    for (unsigned i = 0; i < p->count; i++) {
        const struct fission_step *s = &way->step[i];
        bool wait = s->kind == FISSION_STEP_WAIT;
        good &= wait == !(i & 1) && s->kind >= FISSION_STEP_WAIT && s->kind <= FISSION_STEP_QUEUED && s->second <= 1;
        good &= s->machine != MACHINE_NONE && s->machine <= e->h->config.machines;
    }
    e->h->drops.bad += !good;
    return good;
}

static struct fission_packet *say(struct event *e, enum fission_type type, uint64_t index, uint64_t nonce, const struct way *way,
                                  unsigned at, uint32_t serial)
{
    struct fission_packet *p = pool_packet(e, type, index, nonce, way->count);
    if (!p)
        return NULL;
    p->stamp = serial;
    p->hops = (uint8_t)at;
    memcpy(p + 1, way->step, way->count * sizeof way->step[0]);
    return p;
}

static void from_wait(struct event *e, struct fission_packet *p, const struct request *r, uint16_t flags)
{
    p->client = (struct place){e->h->machine, PORT_POOL};
    p->mode = wanted(r);
    p->flags = flags | (r->state == REQUEST_UPGRADING ? FISSION_UPGRADE : 0);
}

/* The first round: to the agent, which will say who is in the way. */
static void look_on(struct event *e, const struct request *r, const struct way *way, uint32_t serial)
{
    struct fission_packet *p = say(e, FISSION_PROBE, r->index, r->nonce, way, way->count, serial);
    if (p)
        from_wait(e, p, r, 0);
}

/* The second: step `at` is what was in the way of `r`. */
static void look_again(struct event *e, const struct request *r, const struct way *way, unsigned at, uint32_t serial)
{
    bool held = way->step[at].kind == FISSION_STEP_HOLD; /* then its host knows more than the agent */
    struct fission_packet *p = say(e, held ? FISSION_CHASE : FISSION_PROBE, r->index, r->nonce, way, at, serial);
    if (!p)
        return;
    from_wait(e, p, r, FISSION_SURE);
    if (held)
        p->head.to = (struct place){way->step[at].machine, PORT_POOL};
}

/* ---- where it begins, and ends ---- */

static void begin(struct event *e, struct request *r)
{
    struct fisslock_host *h = e->h;
    struct suspect *s = host_suspect(h, r);
    if (!has_something(h, r))
        return;
    edit(e, s);
    s->serial++;
    s->sure = false;
    s->began_ns = e->now;
    h->counts.probes++;
    struct way way = {.count = 1, .step = {step_of(h, r)}};
    look_on(e, r, &way, s->serial);
}

void deadlock_due(struct event *e, struct request *r)
{
    if (r->pause_ns >= PROBE_FACTOR * e->h->config.retry_ns && wait_of(e->h, r))
        begin(e, r);
}

/* Somebody has a reason to think that it is part of a deadlock. */
static void begin_soon(struct event *e, struct request *r)
{
    uint64_t before = host_suspect(e->h, r)->began_ns;
    if (!before || e->now - before >= e->h->config.retry_ns)
        begin(e, r);
}

void deadlock_upgrade(struct event *e, struct request *r)
{
    struct suspect *s = host_suspect(e->h, r);
    edit(e, s);
    s->upgrade = pool_nonce(e, request_number(e->h, r));
    s->second = false;
    s->began_ns = 0;
}

/* Two readers of one lock that both want to write: the second is the victim, and at once, if that is true. */
void deadlock_second(struct event *e, struct request *r)
{
    struct suspect *s = host_suspect(e->h, r);
    edit(e, s);
    s->second = true;
    begin_soon(e, r);
}

static void give_up(struct event *e, struct request *r)
{
    e->h->counts.deadlocks++;
    fisslock_give_up(e->h, request_number(e->h, r), -EDEADLK, e->now, e->out);
}

/* A probe of its own has come back to `r`, which still waits. */
static void came_back(struct event *e, struct request *r, const struct fission_packet *p, const struct way *way, unsigned at)
{
    struct fisslock_host *h = e->h;
    struct suspect *s = host_suspect(h, r);
    if (p->stamp != s->serial || s->sure != !!(p->flags & FISSION_SURE) || at != way->count - 1) {
        h->drops.stale++;
        return;
    }
    if (!s->sure && !host_is(h, FISSLOCK_BUSTED_RASH)) {
        edit(e, s);
        s->sure = true;
        s->began_ns = e->now; /* if it comes back again, everything was true in this moment */
        look_again(e, r, way, 1, s->serial);
    } else if (e->now - s->began_ns > SURE_FACTOR * h->config.retry_ns) {
        h->drops.stale++; /* it was; perhaps it is long ago */
    } else {
        give_up(e, r);
    }
}

/* ---- at the agent: who is in the way? ---- */

struct blockers {
    unsigned count;
    struct fission_step step[FANOUT_MAX];
};

static void add(struct blockers *b, const struct agent *a, struct who who, enum fission_step_kind kind)
{
    if (b->count < FANOUT_MAX)
        b->step[b->count++] =
            (struct fission_step){.id = who.nonce, .term = a->term, .machine = who.machine, .kind = (uint8_t)kind};
}

static struct who who_is(const struct node *n)
{
    return (struct who){n->nonce, n->client.machine};
}

/* All holders but one, or those who write; beginning elsewhere every time, should there be too many. */
static void add_holders(struct blockers *b, struct fisslock_host *h, const struct agent *a, struct who but, bool writers,
                        uint32_t turn)
{
    uint32_t skip = a->holders.count > FANOUT_MAX ? turn * FANOUT_MAX % a->holders.count : 0, i = a->holders.head;
    for (; skip; skip--)
        i = host_node(h, i)->next;
    for (uint32_t n = 0; n < a->holders.count; n++) {
        const struct node *node = host_node(h, i);
        if (!node_is(node, but) && (!writers || node->mode == FISSION_EXCLUSIVE))
            add(b, a, who_is(node), FISSION_STEP_HOLD);
        i = node->next == NONE ? a->holders.head : node->next;
    }
}

/* A reader that is kept out by one who waits to write. The first of those is as good as all: they wait for the same holders. */
static void add_queued(struct blockers *b, const struct event *e, const struct agent *a, uint32_t reader)
{
    if (a->right == FISSION_SHARED && agent_open(e, a))
        return;
    if (a->upgrader.machine) {
        add(b, a, a->upgrader, FISSION_STEP_QUEUED);
        return;
    }
    for (uint32_t i = a->waiters.head; i != reader; i = host_node(e->h, i)->next)
        if (host_node(e->h, i)->mode == FISSION_EXCLUSIVE) {
            add(b, a, who_is(host_node(e->h, i)), FISSION_STEP_QUEUED);
            return;
        }
}

/* Whether the agent has heard of the one who asks makes no difference to those who hold: they are in its way. One that holds since
 * before the decider lost its state, and wants more, it may not hear of until they have gone. */
static void find_blockers(struct blockers *b, const struct event *e, const struct agent *a, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct who who = {p->head.nonce, p->client.machine};
    bool reads = p->mode == FISSION_SHARED;
    uint32_t node = reads ? pool_list_find(h, &a->waiters, who) : NONE;
    if (node != NONE)
        add_queued(b, e, a, node);
    add_holders(b, h, a, who, reads, p->stamp);
}

static void pass_on(struct event *e, const struct fission_packet *p, const struct way *way, unsigned at)
{
    struct fission_packet *out = say(e, FISSION_CHASE, p->head.index, p->head.nonce, way, at, p->stamp);
    if (!out)
        return;
    out->head.to = (struct place){way->step[at].machine, PORT_POOL};
    out->client = p->client;
    out->mode = p->mode;
    out->flags = p->flags;
}

static bool same_step(const struct fission_step *a, const struct fission_step *b)
{
    return a->id == b->id && a->machine == b->machine && a->kind == b->kind && a->term == b->term;
}

void deadlock_probe(struct event *e, const struct fission_packet *p)
{
    const struct agent *a = pool_agent_of(e->h, p->head.index);
    struct blockers found = {0};
    struct way way;
    if (!read_way(e, p, &way) || !a || a->state != AGENT_LIVE)
        return;
    bool sure = p->flags & FISSION_SURE;
    unsigned at = sure ? p->hops : way.count;
    if (at % 2 == 0 || at >= STEPS_MAX || (sure && at >= way.count)) {
        e->h->drops.bad += sure; /* else it has gone too far */
        return;
    }
    find_blockers(&found, e, a, p);
    if (!sure)
        way.count++;
    for (unsigned i = 0; i < found.count; i++) {
        if (sure && !same_step(&found.step[i], &way.step[at]))
            continue;
        way.step[at] = found.step[i];
        pass_on(e, p, &way, at);
    }
}

/* ---- at the host of one who is in the way: does it wait, too? ---- */

/* The request that waits there; none: it is not in the way any more. */
static struct wait next_wait(struct fisslock_host *h, const struct fission_packet *p, const struct fission_step *s)
{
    bool stale = host_is(h, FISSLOCK_BUSTED_STALE);
    struct request *r = pool_request_of(h, s->id);
    if (!r && stale && NONCE_SLOT(s->id) < h->request_count)
        return wait_behind(h, host_request(h, NONCE_SLOT(s->id)));
    if (!r || r->index != p->head.index)
        return (struct wait){NULL, NULL};
    if (s->kind == FISSION_STEP_QUEUED) {
        bool in_the_way = p->mode == FISSION_SHARED && wait_of(h, r) && wanted(r) == FISSION_EXCLUSIVE;
        return (struct wait){h, in_the_way ? r : NULL};
    }
    bool holds = r->state == REQUEST_HELD || r->state == REQUEST_UPGRADING;
    bool excludes = p->mode == FISSION_EXCLUSIVE || r->mode == FISSION_EXCLUSIVE;
    return (holds && excludes) || stale ? wait_behind(h, r) : (struct wait){NULL, NULL};
}

/* Once per probe and round, as far as it is remembered: beyond this point it has been everywhere. And not more often than so, since
 * a network that doubles packets doubles them at every step. */
static bool may_pass(struct event *e, const struct request *r, const struct fission_packet *p, const struct fission_step *first)
{
    struct suspect *s = host_suspect(e->h, r);
    uint64_t probe = mix64(first->id ^ mix64(first->machine | (uint64_t)first->term << 16)) + 2 * (uint64_t)p->stamp +
                     !!(p->flags & FISSION_SURE);
    for (unsigned i = 0; i < SUSPECT_PASSES; i++)
        if (s->passed[i] == probe)
            return false;
    edit(e, s);
    if (e->now - s->passes_ns >= e->h->config.retry_ns) {
        s->passes_ns = e->now;
        s->passes = 0;
    }
    if (s->passes == PASSES_MAX)
        return false;
    s->passed[s->passes++ % SUSPECT_PASSES] = probe;
    return true;
}

static bool on_the_way(const struct way *way, const struct fission_step *s)
{
    for (unsigned i = 0; i < way->count; i += 2)
        if (same_wait(&way->step[i], s))
            return true;
    return false;
}

static bool outranks(struct event *e, struct request *r, const struct fission_step *first)
{
    if (rank_here(e->h, r) <= rank_of(first))
        return false;
    begin_soon(e, r); /* the other will not; this one can */
    return true;
}

/* What was in the way has led to `r`, of this event's host: step `at` of the way was the last. */
static void go_on(struct event *e, struct request *r, const struct fission_packet *p, struct way *way, unsigned at)
{
    const struct fission_step here = step_of(e->h, r), *first = &way->step[0];
    bool sure = p->flags & FISSION_SURE;
    if (same_wait(&here, first)) {
        came_back(e, r, p, way, at);
    } else if (outranks(e, r, first)) {
        return;
    } else if (sure) {
        if (at + 2 < way->count && same_wait(&here, &way->step[at + 1]) && may_pass(e, r, p, first))
            look_again(e, r, way, at + 2, p->stamp);
    } else if (way->count + 1 < STEPS_MAX && !on_the_way(way, &here) && may_pass(e, r, p, first)) {
        way->step[way->count++] = here;
        look_on(e, r, way, p->stamp);
    }
}

void deadlock_chase(struct event *e, const struct fission_packet *p)
{
    struct fisslock_host *h = e->h;
    struct way way;
    if (!read_way(e, p, &way))
        return;
    bool sure = p->flags & FISSION_SURE;
    unsigned at = p->hops;
    if (at % 2 == 0 || at >= way.count || (!sure && at != way.count - 1) || way.step[at].machine != h->machine) {
        h->drops.bad++;
        return;
    }
    struct wait next = next_wait(h, p, &way.step[at]);
    if (!next.r) {
        if (way.step[at].kind == FISSION_STEP_QUEUED)
            request_not_waiting(e, p->head.index, way.step[at].id);
        return;
    }
    struct event there = next.h == h ? *e : event_begin(next.h, e->now, e->out);
    if (wait_of(there.h, next.r)) /* else its lease there ended just now */
        go_on(&there, next.r, p, &way, at);
}
