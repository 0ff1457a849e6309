/* SPDX-License-Identifier: Apache-2.0 */
/* A host's memory: its layout, its requests, agents and nodes, its timers, and the packets that it makes. */
#include "designs/fisslock/fisslock.h"
#include "designs/fisslock/host.h"
#include "designs/fisslock/spill.h"

/* ---- sizes ---- */

/* Agents: two per own request; and as many as the rack can have holders, since the agent of a shared lock outlives its first
 * holder's hold. */
#define AGENTS_SPARE 64
#define AGENTS_MAX (1u << 16)
#define NODES_OWN 2 /* per request: it may be in the queue of an agent that leaves and in that of the next */
#define NODES_SPARE 256
#define NODES_MAX (1u << 17) /* waiters beyond that are not queued, and retransmit; memory for them is reserved */

/* Agents that stay: the host's share of the locks, and half as much again. */
#define KEPT_MAX (1u << 18)
#define HABITS_MIN 16u

static uint32_t buckets_for(uint32_t n)
{
    uint32_t buckets = 16;
    while (buckets < n)
        buckets *= 2;
    return buckets;
}

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = round_up(here + bytes, CACHE_LINE);
    return here;
}

/* Counts and offsets of the block. Returns its bytes. */
static uint64_t lay_out(struct fisslock_host *h, const struct rack_config *c)
{
    uint32_t requests = rack_requests(c);
    assert(requests < 1u << NONCE_REQUEST_BITS && c->machines < MACHINES_MAX);
    bool keeps = c->options & FISSLOCK_KEEP;
    h->kept_max = keeps ? (uint32_t)min_u64(c->locks, min_u64(c->locks / c->machines * 3 / 2 + AGENTS_SPARE, KEPT_MAX)) : 0;
    h->request_count = requests;
    h->agent_count = (uint32_t)min_u64((uint64_t)requests * c->machines, AGENTS_MAX) + 2 * requests + AGENTS_SPARE + h->kept_max;
    h->node_count = (uint32_t)min_u64((uint64_t)requests * c->machines + NODES_SPARE, NODES_MAX) + NODES_OWN * requests;
    h->request_mask = buckets_for(requests) - 1;
    h->agent_mask = buckets_for(h->agent_count) - 1;
    h->habit_mask = (h->kept_max ? buckets_for(2 * h->kept_max) : HABITS_MIN) - 1;
    uint64_t at = round_up(sizeof *h, CACHE_LINE);
    h->requests_at = place(&at, requests * sizeof(struct fiss_request));
    h->agents_at = place(&at, h->agent_count * sizeof(struct agent));
    h->nodes_at = place(&at, h->node_count * sizeof(struct node));
    h->request_buckets_at = place(&at, (h->request_mask + 1) * sizeof(uint32_t));
    h->agent_buckets_at = place(&at, (h->agent_mask + 1) * sizeof(uint32_t));
    h->timers_at = place(&at, timers_bytes(requests + h->agent_count + TIMERS_BESIDE));
    h->sessions_at = place(&at, c->sessions * sizeof(struct session_state));
    h->suspects_at = place(&at, requests * sizeof(struct suspect));
    h->threads_at = place(&at, requests * sizeof(uint32_t));
    h->habits_at = place(&at, (h->habit_mask + 1) * sizeof(struct habit));
    return at;
}

uint64_t fisslock_host_bytes(const struct rack_config *config)
{
    struct fisslock_host unused;
    return lay_out(&unused, config);
}

static uint32_t *request_bucket(struct fisslock_host *h, uint64_t index)
{
    return (uint32_t *)((char *)h + h->request_buckets_at) + (mix64(index) & h->request_mask);
}

static uint32_t *agent_bucket(struct fisslock_host *h, uint64_t index)
{
    return (uint32_t *)((char *)h + h->agent_buckets_at) + (mix64(index) & h->agent_mask);
}

ONCE void fisslock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now)
{
    struct fisslock_host *h = host; /* zero, and most of it is not touched before it is needed */
    lay_out(h, config);
    h->config = *config;
    h->policy = (struct fisslock_policy){.write_preferring = config->options & FISSION_WRITE_PREFERRING,
                                         .priority = config->options & FISSLOCK_PRIORITY,
                                         .keep = config->options & FISSLOCK_KEEP,
                                         .placed = config->options & FISSLOCK_PLACED};
    h->rules = rules_of(config);
    h->machine = machine;
    h->nonce_high = (uint64_t)life << (NONCE_REQUEST_BITS + NONCE_SERIAL_BITS);
    for (unsigned i = 0; i < CHAINS; i++)
        h->chain[i].first = h->chain[i].last = NONE;
    h->life = life;
    h->reborn = life > 1;
    for (unsigned i = 0; i < ENDS; i++)
        h->ends[i] = life << ENDS_LIFE_SHIFT;
    memset((char *)h + h->request_buckets_at, 0xff, (h->request_mask + 1) * sizeof(uint32_t)); /* NONE */
    memset((char *)h + h->agent_buckets_at, 0xff, (h->agent_mask + 1) * sizeof(uint32_t));
    h->agent_free = h->node_free = NONE;
    timers_init(host_timers(h), h->request_count + h->agent_count + TIMERS_BESIDE);
    if (config->lease_ns) {
        struct outbox unused = {0};
        timers_set(host_timers(h), timer_of_lease(h), 0, &unused);
    }
}

/* ---- packets ---- */

uint32_t pool_generation(struct event *e, uint64_t index)
{
    if (!e->h->rules.names)
        return 0;
    const struct agent *a = pool_agent_of(e->h, index);
    const struct fiss_request *r = a ? NULL : pool_request_first(e->h, index);
    return a ? a->generation : r ? r->generation : e->generation;
}

void pool_forget_outdated(struct event *e, uint64_t index, uint32_t generation)
{
    struct agent *a = e->h->rules.names ? pool_agent_of(e->h, index) : NULL;
    if (a && a->generation < generation)
        pool_agent_free(e, a);
}

struct fission_packet *pool_packet(struct event *e, enum fission_type type, uint64_t index, uint64_t nonce, unsigned entries)
{
    struct fisslock_host *h = e->h;
    struct fission_packet *p = outbox_add(e->out, (uint32_t)(sizeof *p + entries * sizeof(struct fission_entry)));
    if (!p) {
        h->counts.crowded++;
        return NULL;
    }
    p->head = (struct packet_head){
        .version = PACKET_VERSION,
        .family = PACKET_FISSION,
        .type = (uint8_t)type,
        .space = h->rules.space,
        .epoch = h->rules.life,
        .generation = type == FISSION_LEASE || type == FISSION_REPORT ? 0 : pool_generation(e, index),
        .index = index,
        .nonce = nonce,
        .from = {h->machine, PORT_POOL},
        .to = {MACHINE_SWITCH, PORT_POOL},
    };
    p->count = (uint16_t)entries;
    return p;
}

struct fission_entry *pool_entries(struct fission_packet *p)
{
    return (struct fission_entry *)(p + 1);
}

uint64_t pool_pause(const struct fisslock_host *h, uint64_t pause_ns)
{
    return pause_ns ? min_u64(2 * pause_ns, PAUSE_FACTOR_MAX * h->config.retry_ns) : h->config.retry_ns;
}

/* ---- requests ---- */

uint64_t pool_nonce(struct fisslock_host *h, uint32_t request)
{
    return h->nonce_high | (++h->serial & ((UINT64_C(1) << NONCE_SERIAL_BITS) - 1)) << NONCE_REQUEST_BITS | request;
}

struct fiss_request *pool_request_of(struct fisslock_host *h, uint64_t nonce)
{
    uint32_t number = NONCE_REQUEST(nonce);
    if (number >= h->request_count)
        return NULL;
    struct fiss_request *r = host_request(h, number);
    if (r->state == FISS_IDLE || r->state == FISS_ENDED)
        return NULL;
    return r->nonce == nonce || MISTAKE(h->config.mistakes, FISSLOCK_MISTAKE_NONCE) ? r : NULL;
}

void pool_request_link(struct event *e, struct fiss_request *r)
{
    struct fisslock_host *h = e->h;
    uint32_t *bucket = request_bucket(h, r->index);
    edit(e, bucket);
    edit(e, r);
    r->next = *bucket;
    *bucket = request_number(h, r);
}

void pool_request_unlink(struct event *e, struct fiss_request *r)
{
    struct fisslock_host *h = e->h;
    uint32_t *at = request_bucket(h, r->index), number = request_number(h, r);
    while (*at != number)
        at = &host_request(h, *at)->next;
    edit(e, at);
    *at = r->next;
}

static struct fiss_request *of_lock(struct fisslock_host *h, uint32_t number, uint64_t index)
{
    while (number != NONE && host_request(h, number)->index != index)
        number = host_request(h, number)->next;
    return number == NONE ? NULL : host_request(h, number);
}

struct fiss_request *pool_request_first(struct fisslock_host *h, uint64_t index)
{
    return of_lock(h, *request_bucket(h, index), index);
}

struct fiss_request *pool_request_next(struct fisslock_host *h, const struct fiss_request *r)
{
    return of_lock(h, r->next, r->index);
}

void pool_request_floor(struct event *e, uint64_t index, uint32_t term)
{
    for (struct fiss_request *r = pool_request_first(e->h, index); r; r = pool_request_next(e->h, r))
        if (r->state == FISS_WAITING || r->state == FISS_UPGRADING) {
            edit(e, r);
            r->floor = term;
            r->floored = true;
        }
}

/* ---- agents ---- */

struct agent *pool_agent_of(struct fisslock_host *h, uint64_t index)
{
    uint32_t i = *agent_bucket(h, index);
    while (i != NONE && host_agent(h, i)->index != index)
        i = host_agent(h, i)->next;
    return i == NONE ? NULL : host_agent(h, i);
}

struct agent *pool_agent_new(struct event *e, uint64_t index)
{
    struct fisslock_host *h = e->h;
    bool fresh = h->agent_free == NONE;
    if (fresh && h->agents_touched == h->agent_count)
        return NULL;
    uint32_t *bucket = agent_bucket(h, index), number = fresh ? h->agents_touched++ : h->agent_free;
    struct agent *a = host_agent(h, number);
    edit(e, bucket);
    edit(e, a);
    if (!fresh)
        h->agent_free = a->next;
    h->agents_used++;
    *a = (struct agent){.index = index, .next = *bucket, .grantee = NONE, .generation = pool_generation(e, index)};
    a->holders = a->waiters = (struct list){.head = NONE, .tail = NONE};
    *bucket = number;
    return a;
}

void pool_agent_free(struct event *e, struct agent *a)
{
    struct fisslock_host *h = e->h;
    uint32_t *at = agent_bucket(h, a->index), number = agent_number(h, a), node;
    edit(e, a);
    while ((node = pool_list_pop(e, &a->holders)) != NONE || (node = pool_list_pop(e, &a->waiters)) != NONE)
        pool_node_free(e, node);
    if (a->grantee != NONE)
        pool_node_free(e, a->grantee);
    timers_stop(host_timers(h), timer_of_agent(h, a), e->out);
    keep_forget(e, a);
    census_forget(e, a);
    while (*at != number)
        at = &host_agent(h, *at)->next;
    edit(e, at);
    *at = a->next;
    a->state = AGENT_NONE;
    a->next = h->agent_free;
    h->agent_free = number;
    h->agents_used--;
}

void pool_chain_append(struct event *e, enum agent_chain chain, struct agent *a)
{
    struct fisslock_host *h = e->h;
    struct chain *c = &h->chain[chain]; /* event_begin() has announced the change */
    uint32_t number = agent_number(h, a);
    edit(e, a);
    a->link[chain].before = c->last;
    a->link[chain].after = NONE;
    if (c->last == NONE) {
        c->first = number;
    } else {
        edit(e, host_agent(h, c->last));
        host_agent(h, c->last)->link[chain].after = number;
    }
    c->last = number;
    c->count++;
}

void pool_chain_take(struct event *e, enum agent_chain chain, struct agent *a)
{
    struct fisslock_host *h = e->h;
    struct chain *c = &h->chain[chain];
    uint32_t before = a->link[chain].before, after = a->link[chain].after;
    if (before == NONE) {
        c->first = after;
    } else {
        edit(e, host_agent(h, before));
        host_agent(h, before)->link[chain].after = after;
    }
    if (after == NONE) {
        c->last = before;
    } else {
        edit(e, host_agent(h, after));
        host_agent(h, after)->link[chain].before = before;
    }
    c->count--;
}

/* ---- nodes and their lists ---- */

uint32_t pool_node_new(struct event *e, bool own)
{
    struct fisslock_host *h = e->h;
    uint32_t node = h->node_free;
    bool fresh = node == NONE;
    if (!own && h->node_count - h->nodes_used <= NODES_OWN * h->request_count)
        return NONE;
    if (fresh && h->nodes_touched == h->node_count)
        return NONE;
    if (fresh)
        node = h->nodes_touched++;
    edit(e, host_node(h, node));
    h->nodes_used++;
    if (!fresh)
        h->node_free = host_node(h, node)->next;
    *host_node(h, node) = (struct node){.next = NONE};
    return node;
}

void pool_node_free(struct event *e, uint32_t node)
{
    struct fisslock_host *h = e->h;
    edit(e, host_node(h, node));
    host_node(h, node)->next = h->node_free;
    h->node_free = node;
    h->nodes_used--;
}

void pool_list_append(struct event *e, struct list *l, uint32_t node)
{
    struct fisslock_host *h = e->h;
    edit(e, l);
    edit(e, host_node(h, node));
    host_node(h, node)->next = NONE;
    if (l->tail == NONE) {
        l->head = node;
    } else {
        edit(e, host_node(h, l->tail));
        host_node(h, l->tail)->next = node;
    }
    l->tail = node;
    l->count++;
}

void pool_list_push(struct event *e, struct list *l, uint32_t node)
{
    struct fisslock_host *h = e->h;
    edit(e, l);
    edit(e, host_node(h, node));
    host_node(h, node)->next = l->head;
    l->head = node;
    if (l->tail == NONE)
        l->tail = node;
    l->count++;
}

void pool_list_insert(struct event *e, struct list *l, uint32_t node)
{
    struct fisslock_host *h = e->h;
    uint8_t priority = host_node(h, node)->priority;
    uint32_t after = NONE;
    for (uint32_t i = l->head; i != NONE && host_node(h, i)->priority <= priority; i = host_node(h, i)->next)
        after = i;
    if (after == NONE) {
        pool_list_push(e, l, node);
        return;
    }
    edit(e, l);
    edit(e, host_node(h, node));
    edit(e, host_node(h, after));
    host_node(h, node)->next = host_node(h, after)->next;
    host_node(h, after)->next = node;
    if (l->tail == after)
        l->tail = node;
    l->count++;
}

uint32_t pool_list_pop(struct event *e, struct list *l)
{
    uint32_t node = l->head;
    if (node != NONE)
        pool_list_take(e, l, node);
    return node;
}

uint32_t pool_list_find(struct fisslock_host *h, const struct list *l, struct who who)
{
    uint32_t i = l->head;
    while (i != NONE && !node_is(host_node(h, i), who))
        i = host_node(h, i)->next;
    return i;
}

void pool_list_take(struct event *e, struct list *l, uint32_t node)
{
    struct fisslock_host *h = e->h;
    uint32_t before = NONE;
    for (uint32_t i = l->head; i != node; i = host_node(h, i)->next) {
        assert(i != NONE); /* callers have found the node in this list */
        before = i;
    }
    uint32_t next = host_node(h, node)->next;
    edit(e, l);
    edit(e, host_node(h, node));
    if (before == NONE) {
        l->head = next;
    } else {
        edit(e, host_node(h, before));
        host_node(h, before)->next = next;
    }
    if (l->tail == node)
        l->tail = before;
    l->count--;
    host_node(h, node)->next = NONE;
}

/* ---- timers: a heap, by when they are due ---- */

static void put_timer(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    outbox_touch(o, &timers_heap(t)[place], sizeof(uint32_t));
    outbox_touch(o, &timers_places(t)[number], sizeof(uint32_t));
    timers_heap(t)[place] = number;
    timers_places(t)[number] = place + 1;
}

static void rise(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    uint32_t *heap = timers_heap(t);
    while (place > 0 && t->memory[heap[(place - 1) / 2]] > t->memory[number]) {
        put_timer(t, place, heap[(place - 1) / 2], o);
        place = (place - 1) / 2;
    }
    put_timer(t, place, number, o);
}

static void sink(struct timers *t, uint32_t place, uint32_t number, struct outbox *o)
{
    uint32_t *heap = timers_heap(t);
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= t->running)
            break;
        if (child + 1 < t->running && t->memory[heap[child + 1]] < t->memory[heap[child]])
            child++;
        if (t->memory[heap[child]] >= t->memory[number])
            break;
        put_timer(t, place, heap[child], o);
        place = child;
    }
    put_timer(t, place, number, o);
}

void timers_set(struct timers *t, uint32_t number, uint64_t due, struct outbox *o)
{
    assert(number < t->capacity);
    outbox_touch(o, t, sizeof *t);
    outbox_touch(o, &t->memory[number], sizeof(uint64_t));
    if (!timers_runs(t, number)) {
        t->memory[number] = due;
        rise(t, t->running++, number, o);
        return;
    }
    uint32_t place = timers_places(t)[number] - 1;
    bool earlier = due < t->memory[number];
    t->memory[number] = due;
    if (earlier)
        rise(t, place, number, o);
    else
        sink(t, place, number, o);
}

void timers_stop(struct timers *t, uint32_t number, struct outbox *o)
{
    assert(number < t->capacity);
    if (!timers_runs(t, number))
        return;
    outbox_touch(o, t, sizeof *t);
    outbox_touch(o, &timers_places(t)[number], sizeof(uint32_t));
    uint32_t place = timers_places(t)[number] - 1, last = timers_heap(t)[--t->running];
    timers_places(t)[number] = 0;
    if (last == number)
        return;
    if (place > 0 && t->memory[timers_heap(t)[(place - 1) / 2]] > t->memory[last])
        rise(t, place, last, o);
    else
        sink(t, place, last, o);
}

bool timers_pop(struct timers *t, uint64_t now, uint32_t *number, struct outbox *o)
{
    if (timers_next(t) > now)
        return false;
    *number = timers_heap(t)[0];
    timers_stop(t, *number, o);
    return true;
}
