/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/memnode.h"
#include "dataplane/verbs.h"
#include "lib/base.h"
#include "lib/hash.h"

#include <stdlib.h>
#include <string.h>

#define PARK_NS_MAX (200 * NS_PER_MS) /* a client asks again before that; what it does not want any more costs no longer */
#define SILENT_LEASES 2
#define WATCH_BUCKETS 1024u /* lists of words that are waited for: as long as few of them are, each is short */
#define NONE UINT32_MAX

/* A parked WAIT. Its number is client * MEMNODE_PARKS + place. */
struct park {
    uint32_t life;
    uint16_t count;
    bool used, woken;
    uint64_t id, until_ns, since_ns;
    struct memnode_from from;
    uint32_t next_woken;
    struct verbs_cond cond[VERBS_CONDS_MAX];
    uint32_t next[VERBS_CONDS_MAX]; /* in the list of the condition's word: park * VERBS_CONDS_MAX + condition */
};

struct verbs_memory {
    char *base;
    uint64_t bytes;
};

struct memnode {
    struct memnode_params p;
    struct verbs_memory memory;
    bool ready;
    uint32_t next_client; /* numbers are given in turn, so that one is used again late */
    struct verbs_client *clients, *made;
    struct memnode_from *connected_from; /* by client's number */
    struct park *parks;
    uint32_t parked, woken_first, woken_last;
    uint32_t watch[WATCH_BUCKETS];
    uint64_t tick_ns;
    struct memnode_counts counts;
};
#define CLIENT_BYTES (sizeof(struct verbs_client) + sizeof(struct memnode_from) + MEMNODE_PARKS * sizeof(struct park))
static_assert(CLIENT_BYTES <= 4096, "a client costs the node no more than 4 KiB");

uint64_t memnode_bytes_per_client(void)
{
    return CLIENT_BYTES;
}

/* ---- memory, by the CPU's atomics ---- */

static inline uint64_t *verbs_word(struct verbs_memory *m, uint64_t offset)
{
    return (uint64_t *)(void *)(m->base + offset);
}

static inline void verbs_store(struct verbs_memory *m, uint64_t offset, uint64_t value, const uint64_t *upper)
{
    __atomic_store_n(verbs_word(m, offset), value, __ATOMIC_RELEASE);
    if (upper)
        __atomic_store_n(verbs_word(m, offset + 8), *upper, __ATOMIC_RELEASE);
}

static inline void verbs_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void atomic64(uint64_t *word, uint8_t verb, uint64_t *room)
{
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(word, &seen, verbs_next64(verb, room, seen), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        ;
    room[0] = seen;
}

static void atomic128(u128 *word, uint8_t verb, uint64_t *room)
{
    u128 found, seen = __sync_val_compare_and_swap(word, 0, 0); /* the only atomic 16-byte load there is */
    for (;; seen = found) {
        uint64_t old[2] = {(uint64_t)seen, (uint64_t)(seen >> 64)}, next[2];
        verbs_next128(verb, room, old, next);
        found = __sync_val_compare_and_swap(word, seen, (u128)next[1] << 64 | next[0]);
        if (found == seen)
            break;
    }
    room[0] = (uint64_t)seen;
    room[1] = (uint64_t)(seen >> 64);
}

static inline void verbs_atomic(const struct verbs_run *r, const struct verbs_op *op, uint32_t at)
{
    uint64_t *room = (uint64_t *)(void *)(r->data + at), *word = verbs_word(r->memory, op->offset);
    if (op->width == 16)
        atomic128((u128 *)(void *)word, op->verb, room);
    else
        atomic64(word, op->verb, room);
}

/* ---- parked WAITs ---- */

static uint32_t *bucket_of(struct memnode *n, uint64_t offset)
{
    return &n->watch[mix64(offset) % WATCH_BUCKETS];
}

static struct park *park_of(struct memnode *n, uint32_t watch)
{
    return &n->parks[watch / VERBS_CONDS_MAX];
}

static bool holds(struct memnode *n, const struct verbs_cond *c)
{
    return (__atomic_load_n(verbs_word(&n->memory, c->offset), __ATOMIC_ACQUIRE) & c->mask) == c->value;
}

static void unlist(struct memnode *n, struct park *k)
{
    uint32_t first = (uint32_t)(k - n->parks) * VERBS_CONDS_MAX;
    for (uint32_t i = 0; i < k->count; i++) {
        uint32_t *at = bucket_of(n, k->cond[i].offset);
        while (*at != first + i) {
            assert(*at != NONE); /* a parked condition is in its list */
            at = &park_of(n, *at)->next[*at % VERBS_CONDS_MAX];
        }
        *at = k->next[i];
    }
    n->parked--;
}

static void drop_park(struct memnode *n, struct park *k)
{
    if (!k->used || k->woken)
        return; /* one that is woken goes when its answer is fetched */
    unlist(n, k);
    k->used = false;
}

static void wake(struct memnode *n, struct park *k)
{
    uint32_t number = (uint32_t)(k - n->parks);
    unlist(n, k);
    k->woken = true;
    k->next_woken = NONE;
    if (n->woken_last == NONE)
        n->woken_first = number;
    else
        n->parks[n->woken_last].next_woken = number;
    n->woken_last = number;
}

/* A word may have changed. */
static void changed(struct memnode *n, uint64_t offset)
{
    for (uint32_t at = *bucket_of(n, offset), next; at != NONE; at = next) {
        struct park *k = park_of(n, at);
        const struct verbs_cond *c = &k->cond[at % VERBS_CONDS_MAX];
        next = k->next[at % VERBS_CONDS_MAX];
        if (c->offset != offset || holds(n, c))
            continue;
        wake(n, k);
        next = *bucket_of(n, offset); /* the park may have been in this list more than once: from the start */
    }
}

/* Of a batch that was executed: the offsets still stand in it. */
static void tell_waiters(struct memnode *n, const uint8_t *packet, uint32_t count)
{
    uint32_t at = sizeof(struct verbs_head);
    for (uint32_t i = 0; i < count && n->parked; i++) {
        const struct verbs_op *op = (const struct verbs_op *)(const void *)(packet + at);
        uint32_t bytes = verbs_operands(op->verb) ? op->width : op->room;
        for (uint32_t b = 0; b < bytes && op->verb != VERBS_READ; b += 8)
            changed(n, op->offset + b);
        at += (uint32_t)sizeof *op + op->room;
    }
}

static void answer_wait(struct memnode *n, struct verbs_wait *w)
{
    for (uint32_t i = 0; i < w->head.count; i++)
        w->cond[i].value = __atomic_load_n(verbs_word(&n->memory, w->cond[i].offset), __ATOMIC_ACQUIRE);
}

uint32_t memnode_more(struct memnode *n, void *packet, struct memnode_from *to)
{
    if (n->woken_first == NONE)
        return 0;
    uint32_t number = n->woken_first, client = number / MEMNODE_PARKS;
    struct park *k = &n->parks[number];
    struct verbs_wait *w = packet;
    n->woken_first = k->next_woken;
    if (n->woken_first == NONE)
        n->woken_last = NONE;
    k->used = k->woken = false;
    w->head = (struct verbs_head){.magic = VERBS_MAGIC,
                                  .version = VERBS_VERSION,
                                  .type = VERBS_WAIT | VERBS_ANSWER,
                                  .count = k->count,
                                  .len = (uint16_t)(offsetof(struct verbs_wait, cond) + k->count * sizeof *k->cond),
                                  .space = n->p.id,
                                  .node_life = n->p.life,
                                  .client = client,
                                  .life = k->life,
                                  .sequence = k->id,
                                  .tag = n->clients[client].tag};
    w->park_ns = 0;
    memcpy(w->cond, k->cond, k->count * sizeof *k->cond);
    answer_wait(n, w);
    *to = k->from;
    n->counts.wakes++;
    return w->head.len;
}

/* ---- requests of connected clients ---- */

static uint32_t answer(struct verbs_head *h, enum verbs_status status)
{
    h->type |= VERBS_ANSWER;
    h->status = (uint8_t)status;
    return h->len;
}

static uint32_t malformed(struct memnode *n, struct verbs_head *h)
{
    n->counts.malformed++;
    return answer(h, VERBS_BAD);
}

static uint32_t on_batch(struct memnode *n, struct verbs_head *h, struct verbs_client *c)
{
    struct verbs_kept *kept = &c->kept[h->sequence % VERBS_WINDOW];
    struct verbs_run r = {.memory = &n->memory,
                          .kept = kept,
                          .data = (uint8_t *)h,
                          .end = (uint8_t *)h + h->len,
                          .bytes = n->p.bytes,
                          .mistakes = n->p.mistakes};
    enum verbs_verdict verdict = verbs_admit(c, h->sequence, n->p.mistakes);
    if (verdict == VERBS_REFUSE || verdict == VERBS_DROP) {
        n->counts.refused += verdict == VERBS_REFUSE;
        n->counts.dropped += verdict == VERBS_DROP;
        return verdict == VERBS_REFUSE ? answer(h, VERBS_FENCED) : 0;
    }
    verbs_begin(&r, h);
    r.repeat = verdict == VERBS_REPEAT;
    VERBS_LOOP(VERBS_COUNT_MAX, verbs_check_step, &r)
    if (!verbs_check_end(&r))
        return malformed(n, h);
    VERBS_LOOP(VERBS_COUNT_MAX, verbs_execute_step, &r)
    verbs_show(&r);
    if (r.repeat) {
        n->counts.repeats++;
        return answer(h, VERBS_OK);
    }
    kept->sequence = h->sequence;
    kept->words = r.words;
    while (c->last < h->sequence && c->kept[(c->last + 1) % VERBS_WINDOW].sequence == c->last + 1)
        c->last++;
    n->counts.requests++;
    n->counts.verbs += r.count;
    if (n->parked)
        tell_waiters(n, (const uint8_t *)h, r.count);
    return answer(h, VERBS_OK);
}

/* The place of a WAIT: of the same one that came before, or a free one, or that of the oldest. */
static struct park *place_for(struct memnode *n, uint32_t client, uint64_t id)
{
    struct park *parks = &n->parks[(size_t)client * MEMNODE_PARKS], *place = NULL;
    for (uint32_t i = 0; i < MEMNODE_PARKS; i++)
        if (parks[i].used && !parks[i].woken && parks[i].id == id)
            return &parks[i];
    for (uint32_t i = 0; i < MEMNODE_PARKS; i++) {
        struct park *k = &parks[i];
        if (!k->used)
            return k;
        if (!k->woken && (!place || k->since_ns < place->since_ns))
            place = k;
    }
    return place;
}

static void park(struct memnode *n, const struct verbs_wait *w, const struct memnode_from *from, uint64_t now_ns)
{
    struct park *k = place_for(n, w->head.client, w->head.sequence);
    if (!k)
        return; /* all of them are about to be answered: the client asks again */
    drop_park(n, k);
    k->life = w->head.life;
    k->count = w->head.count;
    k->used = true;
    k->woken = false;
    k->id = w->head.sequence;
    k->from = *from;
    k->since_ns = now_ns;
    k->until_ns = now_ns + min_u64(w->park_ns, PARK_NS_MAX);
    memcpy(k->cond, w->cond, k->count * sizeof *k->cond);
    for (uint32_t i = 0; i < k->count; i++) {
        uint32_t *bucket = bucket_of(n, k->cond[i].offset);
        k->next[i] = *bucket;
        *bucket = (uint32_t)(k - n->parks) * VERBS_CONDS_MAX + i;
    }
    n->parked++;
}

static uint32_t on_wait(struct memnode *n, struct verbs_wait *w, const struct memnode_from *from, uint64_t now_ns)
{
    uint32_t count = w->head.count;
    if (!count || count > VERBS_CONDS_MAX || w->head.len != offsetof(struct verbs_wait, cond) + count * sizeof *w->cond)
        return malformed(n, &w->head);
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = w->cond[i].offset;
        if (offset % 8 || offset > n->p.bytes || n->p.bytes - offset < 8)
            return malformed(n, &w->head);
        all &= holds(n, &w->cond[i]);
    }
    n->counts.waits++;
    if (all && w->park_ns && n->p.can & VERBS_CAN_WAIT) {
        park(n, w, from, now_ns);
        return 0;
    }
    answer_wait(n, w);
    return answer(&w->head, VERBS_OK);
}

/* The kernel's node says that it is busy first and looks at the fence second. So if it is not busy now, it executes nothing more of
 * a life that is fenced. A process that changes memory by itself can be stopped anywhere: only its end is certain. */
static bool is_busy(const struct memnode *n, const struct verbs_client *c)
{
    return __atomic_load_n(&c->busy, __ATOMIC_SEQ_CST) || (c->near && !n->p.ended(c->near));
}

static void close_out(struct memnode *n, struct verbs_client *c, uint32_t up_to)
{
    __atomic_store_n(&c->fenced, up_to, __ATOMIC_SEQ_CST);
    if (n->p.shut && !verbs_connected(c))
        n->p.shut(n->p.ctx, (uint32_t)(c - n->clients));
}

static uint32_t on_fence(struct memnode *n, struct verbs_fence *f)
{
    /* A client may shut out a former life of its own number, which it is anyway, but not itself. */
    bool itself = f->peer == f->head.client && f->peer_life >= f->head.life;
    if (f->head.len != sizeof *f || f->peer >= n->p.clients || itself)
        return malformed(n, &f->head);
    struct verbs_client *c = &n->clients[f->peer];
    uint32_t up_to = f->peer_life < c->life ? f->peer_life : c->life; /* a life that is yet to come is not shut out */
    if (c->fenced < up_to) {
        close_out(n, c, up_to);
        n->counts.fences++;
    }
    return answer(&f->head, is_busy(n, c) ? VERBS_AGAIN : VERBS_OK);
}

/* ---- connecting ---- */

/* Other machines can connect then, however many clients this one makes up. */
static bool has_share(const struct memnode *n, uint32_t clients)
{
    return n->p.same_machine && clients >= (n->p.clients + 1) / 2;
}

static struct verbs_client *number_for(struct memnode *n, uint64_t nonce, const struct memnode_from *from)
{
    uint32_t of_machine = 0;
    for (uint32_t i = 0; i < n->p.clients; i++) {
        if (!verbs_connected(&n->clients[i]))
            continue;
        if (n->clients[i].nonce == nonce)
            return &n->clients[i];
        of_machine += n->p.same_machine && n->p.same_machine(&n->connected_from[i], from);
    }
    if (has_share(n, of_machine))
        return NULL;
    for (uint32_t i = 0; i < n->p.clients; i++) {
        uint32_t number = (n->next_client + i) % n->p.clients;
        struct verbs_client *c = &n->clients[number];
        if (verbs_connected(c) || c->life == UINT32_MAX || is_busy(n, c))
            continue;
        n->next_client = number + 1;
        return c;
    }
    return NULL;
}

/* The kernel's node may read it meanwhile: the life comes last. */
static void begin_life(struct verbs_client *c, uint64_t nonce, uint64_t tag, uint64_t near, uint64_t now_ns)
{
    c->near = near;
    c->last = 0;
    c->tag = tag;
    c->nonce = nonce;
    c->heard_ns = now_ns;
    memset(c->kept, 0, sizeof c->kept);
    __atomic_store_n(&c->life, c->life + 1, __ATOMIC_RELEASE);
}

static uint32_t on_connect(struct memnode *n, struct verbs_connect *k, const struct memnode_from *from, uint64_t now_ns,
                           uint64_t random)
{
    if (k->head.len != sizeof *k || !k->nonce || k->name[VERBS_NAME_LEN - 1])
        return malformed(n, &k->head);
    if (strcmp(k->name, n->p.space) != 0) {
        n->counts.foreign++;
        return answer(&k->head, VERBS_UNKNOWN);
    }
    if (!n->ready)
        return answer(&k->head, VERBS_AGAIN);
    struct verbs_client *c = number_for(n, k->nonce, from);
    if (!c) {
        n->counts.full++;
        return answer(&k->head, VERBS_FULL);
    }
    if (!verbs_connected(c)) { /* else it is this client, which asks again */
        n->connected_from[c - n->clients] = *from;
        begin_life(c, k->nonce, random | 1, n->p.ended ? k->bytes : 0, now_ns);
        n->counts.connects++;
    }
    c->heard_ns = now_ns;
    k->head.space = n->p.id;
    k->head.node_life = n->p.life;
    k->head.client = (uint32_t)(c - n->clients);
    k->head.life = c->life;
    k->head.tag = c->tag;
    k->bytes = n->p.bytes;
    k->lease_ns = n->p.lease_ns;
    k->can = n->p.can | (c->near ? VERBS_CAN_NEAR : 0);
    return answer(&k->head, VERBS_OK);
}

/* ---- packets ---- */

static uint32_t of_client(struct memnode *n, struct verbs_head *h, const struct memnode_from *from, uint64_t now_ns)
{
    if (h->node_life != n->p.life) { /* everything that the client knew of is gone */
        n->counts.refused++;
        return answer(h, VERBS_FENCED);
    }
    struct verbs_client *c = h->client < n->p.clients ? &n->clients[h->client] : NULL;
    if (!c || h->life > c->life) {
        n->counts.forged++;
        return 0;
    }
    bool shut_out = h->life <= c->fenced && !MISTAKE(n->p.mistakes, VERBS_MISTAKE_FENCE);
    if (h->life != c->life || shut_out) {
        n->counts.refused++;
        return answer(h, VERBS_FENCED);
    }
    if (h->tag != c->tag) {
        n->counts.forged++;
        return 0;
    }
    c->heard_ns = now_ns;
    switch (h->type) {
    case VERBS_BATCH:
        return on_batch(n, h, c);
    case VERBS_WAIT:
        return on_wait(n, (struct verbs_wait *)(void *)h, from, now_ns);
    case VERBS_FENCE:
        return on_fence(n, (struct verbs_fence *)(void *)h);
    case VERBS_LEAVE:
        close_out(n, c, c->life);
        c->near = 0; /* it has done its last verb */
        n->counts.leaves++;
        return 0;
    default:
        return malformed(n, h);
    }
}

uint32_t memnode_packet(struct memnode *n, void *packet, uint32_t len, const struct memnode_from *from, uint64_t now_ns,
                        uint64_t random)
{
    struct verbs_head *h = packet;
    n->counts.packets++;
    if (len < sizeof *h || len > VERBS_PACKET_MAX || h->magic != VERBS_MAGIC || h->len != len || h->type & VERBS_ANSWER ||
        h->status) {
        n->counts.malformed++;
        return 0;
    }
    bool connects = h->type == VERBS_CONNECT;
    bool other = h->version != VERBS_VERSION || h->features & ~VERBS_FEATURES;
    if (other || (!connects && h->space != n->p.id)) {
        n->counts.foreign++;
        if (!connects)
            return 0;
        h->version = VERBS_VERSION;
        return answer(h, VERBS_OTHER);
    }
    return connects ? on_connect(n, packet, from, now_ns, random) : of_client(n, h, from, now_ns);
}

void memnode_tick(struct memnode *n, uint64_t now_ns)
{
    /* A node that was stopped itself has not heard of clients that were not silent. */
    bool stopped = now_ns - n->tick_ns > n->p.lease_ns / 2;
    n->tick_ns = now_ns;
    for (uint32_t i = 0; i < n->p.clients; i++) {
        struct verbs_client *c = &n->clients[i];
        if (!verbs_connected(c))
            continue;
        if (stopped)
            __atomic_store_n(&c->heard_ns, now_ns, __ATOMIC_RELAXED);
        uint64_t heard_ns = __atomic_load_n(&c->heard_ns, __ATOMIC_RELAXED); /* the kernel's node may have written a later one */
        if (now_ns > heard_ns && now_ns - heard_ns > SILENT_LEASES * n->p.lease_ns) {
            close_out(n, c, c->life);
            n->counts.silent++;
        }
    }
    for (uint32_t i = 0; i < n->p.clients * MEMNODE_PARKS && n->parked; i++)
        if (n->parks[i].used && now_ns > n->parks[i].until_ns)
            drop_park(n, &n->parks[i]);
}

/* ---- making one ---- */

struct memnode *memnode_new(const struct memnode_params *p)
{
    assert(p->clients && p->clients <= MEMNODE_CLIENTS_MAX && strlen(p->space) < VERBS_NAME_LEN && (uintptr_t)p->memory % 16 == 0);
    struct memnode *n = calloc(1, sizeof *n);
    struct park *parks = calloc((size_t)p->clients * MEMNODE_PARKS, sizeof *parks);
    struct verbs_client *made = p->table ? NULL : calloc(p->clients, sizeof *made);
    struct memnode_from *connected_from = calloc(p->clients, sizeof *connected_from);
    if (!n || !parks || !connected_from || (!made && !p->table)) {
        free(n);
        free(parks);
        free(connected_from);
        free(made);
        return NULL;
    }
    n->p = *p;
    n->memory = (struct verbs_memory){.base = p->memory, .bytes = p->bytes};
    n->made = made;
    n->clients = made ? made : p->table;
    n->parks = parks;
    n->connected_from = connected_from;
    n->woken_first = n->woken_last = NONE;
    for (unsigned i = 0; i < WATCH_BUCKETS; i++)
        n->watch[i] = NONE;
    return n;
}

void memnode_free(struct memnode *n)
{
    if (!n)
        return;
    free(n->made);
    free(n->connected_from);
    free(n->parks);
    free(n);
}

void memnode_ready(struct memnode *n)
{
    n->ready = true;
}

const struct memnode_counts *memnode_counts(const struct memnode *n)
{
    return &n->counts;
}

uint32_t memnode_clients(const struct memnode *n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->p.clients; i++)
        count += verbs_connected(&n->clients[i]);
    return count;
}
