/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node's endpoint: requests, their window, and the verbs in them. */
#include "fabric/node_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A batch under way: how many of its requests are not answered. On its caller's stack. */
struct node_call {
    unsigned left;
    int error;
};

struct verbs_head node_head(const struct fab_node *n, enum verbs_type type, uint32_t len, uint64_t sequence)
{
    return (struct verbs_head){.magic = VERBS_MAGIC,
                               .version = VERBS_VERSION,
                               .type = (uint8_t)type,
                               .len = (uint16_t)len,
                               .space = n->space,
                               .node_life = n->node_life,
                               .client = n->client,
                               .life = n->life,
                               .sequence = sequence,
                               .tag = n->tag};
}

/* ---- the window ---- */

static struct node_request *request_of(struct fab_node *n, uint64_t sequence)
{
    return &n->requests[sequence % VERBS_WINDOW];
}

static void transmit(struct fab_node *n, struct node_request *r, uint64_t now)
{
    uint64_t pause = n->retransmit_ns << (r->tries < 6 ? r->tries : 6);
    r->due_ns = now + min_u64(pause, n->retransmit_max_ns);
    r->tries++;
    n->io->send(n, r->packet, r->len);
}

/* All from the first on that is not answered, in order: the node executes none before the one that is missing. */
static uint64_t retransmit_at(struct fab_node *n, uint64_t now)
{
    const struct node_request *first = n->base < n->next ? request_of(n, n->base) : NULL;
    if (!first || first->state != REQUEST_SENT || n->dead)
        return UINT64_MAX;
    for (uint64_t s = n->base, late = now >= first->due_ns; late && s < n->next; s++) {
        struct node_request *r = request_of(n, s);
        if (r->state != REQUEST_SENT)
            continue;
        transmit(n, r, now);
        n->counts.retransmits++;
    }
    return first->due_ns;
}

uint64_t node_retransmit(struct fab_node *n)
{
    return retransmit_at(n, world_now(n->fab.world));
}

/* Waits for a while, and does what has become due. */
static void pass_time(struct fab_node *n, uint64_t now, uint64_t until)
{
    n->io->wait(n, min_u64(retransmit_at(n, now), until), false);
}

/* Writes the stores of the open request into it; another that comes later joins none of them. */
static void put_stores(struct fab_node *n)
{
    struct node_request *r = n->open;
    uint8_t *at = n->store_count ? r->packet + n->stores_at : NULL;
    for (unsigned i = 0; i < n->store_count; i++) {
        const struct node_store *s = &n->stores[i];
        const struct verbs_op write = {.verb = VERBS_WRITE, .room = (uint16_t)s->room, .offset = s->offset};
        r->latest = (uint32_t)(at - r->packet);
        memcpy(at, &write, sizeof write);
        at += sizeof write;
        for (uint32_t k = 0; k < s->room / sizeof s->word[0]; k++, at += sizeof s->word[0])
            memcpy(at, &s->word[k], sizeof s->word[0]);
    }
    n->store_count = 0;
    n->store_places = 0;
}

static void flush_at(struct fab_node *n, uint64_t now)
{
    struct node_request *r = n->open;
    if (!r)
        return;
    put_stores(n);
    struct verbs_head head = node_head(n, VERBS_BATCH, r->len, r->sequence);
    head.count = (uint16_t)r->count;
    memcpy(r->packet, &head, sizeof head);
    r->state = REQUEST_SENT;
    n->open = NULL;
    n->counts.requests++;
    n->counts.verbs += r->count;
    n->counts.bytes += r->len;
    transmit(n, r, now);
}

void node_flush(struct fab_node *n)
{
    if (n->open)
        flush_at(n, world_now(n->fab.world));
}

/* The request that verbs are added to. Waits for its place in the window. *now: the time; read again after a wait. */
ONCE static int open_request(struct fab_node *n, uint64_t *now, uint64_t until, struct node_request **out)
{
    while (!n->open && n->next - n->base >= VERBS_WINDOW && !n->dead) {
        if (*now >= until)
            return -FAB_EUNKNOWN; /* it was not sent, and never will be */
        pass_time(n, *now, until);
        *now = world_now(n->fab.world);
    }
    if (n->dead)
        return n->dead;
    if (!n->open) {
        struct node_request *r = n->open = request_of(n, n->next);
        assert(r->state == REQUEST_FREE);
        r->sequence = n->next++;
        r->state = REQUEST_OPEN;
        r->again = false;
        r->tries = 0;
        r->len = sizeof(struct verbs_head);
        r->count = r->kept = r->reads = 0;
        r->call = NULL;
        r->ops = NULL;
    }
    *out = n->open;
    return 0;
}

/* ---- verbs ---- */

static uint8_t verb_of(const struct fab_op *op)
{
    u128 all = op->width == 16 ? ~(u128)0 : UINT64_MAX;
    switch (op->verb) {
    case FAB_READ:
        return VERBS_READ;
    case FAB_WRITE:
        return VERBS_WRITE;
    case FAB_FAA:
        return op->swap_mask ? VERBS_MFAA : VERBS_FAA;
    case FAB_SWAP:
        return (op->swap_mask & all) == all || !op->masked ? VERBS_SWAP : VERBS_MCAS;
    default:
        return (op->compare_mask & all) == all && (op->swap_mask & all) == all ? VERBS_CAS : VERBS_MCAS;
    }
}

static void put_operand(uint8_t **at, u128 value, uint8_t width)
{
    const uint64_t low = (uint64_t)value, high = (uint64_t)(value >> 64);
    memcpy(*at, &low, sizeof low);
    if (width == 16)
        memcpy(*at + 8, &high, sizeof high);
    *at += width;
}

/* A masked SWAP is a masked CAS that compares nothing. */
static void put_operands(uint8_t *at, uint8_t verb, const struct fab_op *op)
{
    if (verb == VERBS_CAS || verb == VERBS_MCAS)
        put_operand(&at, op->compare, op->width);
    if (verb == VERBS_MCAS)
        put_operand(&at, op->verb == FAB_SWAP ? 0 : op->compare_mask, op->width);
    put_operand(&at, op->swap, op->width);
    if (verb == VERBS_MCAS || verb == VERBS_MFAA)
        put_operand(&at, op->swap_mask, op->width);
}

/* A READ of the words behind those of the request's latest verb, a READ of the same call, becomes a part of that one: the node
 * reads words in the order of their addresses. How many bytes; 0: it is none, or does not fit. */
static uint32_t join_read(struct node_request *r, const struct fab_op *op, uint32_t skip)
{
    struct verbs_op latest;
    if (op->verb != FAB_READ || r->len == r->from)
        return 0;
    memcpy(&latest, r->packet + r->latest, sizeof latest);
    uint32_t room = op->len - skip;
    if (latest.verb != VERBS_READ || latest.offset + latest.room != FAB_OFFSET(op->addr) + skip || room > VERBS_PACKET_MAX - r->len)
        return 0;
    latest.room = (uint16_t)(latest.room + room);
    memcpy(r->packet + r->latest, &latest, sizeof latest);
    memset(r->packet + r->len, 0, room);
    r->len += room;
    r->reads += room / 8;
    return room;
}

/* Adds a verb, or what fits of a READ or WRITE from byte `skip` on. How many bytes of it (of an atomic: its width); 0: none fit. */
static uint32_t put_verb(struct node_request *r, const struct fab_op *op, uint32_t skip)
{
    uint32_t joined = join_read(r, op, skip);
    if (joined)
        return joined;
    uint8_t verb = verb_of(op);
    uint32_t operands = verbs_operands(verb), left = VERBS_PACKET_MAX - r->len;
    uint32_t head = sizeof(struct verbs_op), room = operands * op->width;
    if (r->count == VERBS_COUNT_MAX || left < head + 8)
        return 0;
    if (!operands)
        room = (uint32_t)min_u64(op->len - skip, (left - head) / 8 * 8);
    uint32_t kept = operands ? op->width / 8u : 0;
    bool change = verb != VERBS_READ;
    if (head + room > left || r->kept + kept + (change ? r->reads : 0) > VERBS_KEPT_WORDS)
        return 0;
    struct verbs_op out = {
        .verb = verb, .width = operands ? op->width : 0, .room = (uint16_t)room, .offset = FAB_OFFSET(op->addr) + skip};
    memcpy(r->packet + r->len, &out, sizeof out);
    r->latest = r->len;
    uint8_t *at = r->packet + r->len + head;
    if (operands)
        put_operands(at, verb, op);
    else if (change)
        memcpy(at, (const char *)op->buf + skip, room);
    else
        memset(at, 0, room);
    r->len += head + room;
    r->count++;
    r->kept += kept + (change ? r->reads : 0);
    r->reads = change ? 0 : r->reads + room / 8;
    return operands ? op->width : room;
}

/* Of a READ, which may be of several of the caller's. The next one of those. */
static struct fab_op *take_words(struct fab_op *op, uint32_t skip, uint32_t room, const uint8_t *words)
{
    while (room) {
        uint32_t n = (uint32_t)min_u64(op->len - skip, room);
        memcpy((char *)op->buf + skip, words, n);
        words += n;
        room -= n;
        skip = 0;
        op++;
    }
    return op;
}

/* Results of the caller's verbs. The lengths are those that were sent, whatever the answer says. */
static void take_results(struct node_request *r, const uint8_t *answer)
{
    struct fab_op *op = r->ops;
    uint32_t skip = r->skip;
    for (uint32_t at = r->from; r->call && at < r->len; skip = 0) {
        struct verbs_op sent;
        memcpy(&sent, r->packet + at, sizeof sent);
        at += (uint32_t)sizeof sent;
        if (sent.verb == VERBS_READ) {
            op = take_words(op, skip, sent.room, answer + at);
        } else if (sent.verb == VERBS_WRITE) {
            op++;
        } else {
            uint64_t low, high = 0;
            memcpy(&low, answer + at, sizeof low);
            if (sent.width == 16)
                memcpy(&high, answer + at + 8, sizeof high);
            op++->old = (u128)high << 64 | low;
        }
        at += sent.room;
    }
}

/* ---- batches ---- */

static unsigned count_op(struct fab_counts *counts, const struct fab_op *op)
{
    counts->atomics += op->verb > FAB_WRITE;
    counts->reads += op->verb == FAB_READ;
    counts->writes += op->verb == FAB_WRITE;
    return op->verb != FAB_READ;
}

/* *now: as in open_request. An answer that is there at once costs no look at the clock. */
static int await(struct fab_node *n, const struct node_call *call, uint64_t *now, uint64_t until)
{
    while (call->left && !n->dead) {
        if (*now >= until)
            return -FAB_EUNKNOWN;
        pass_time(n, *now, until);
        if (call->left)
            *now = world_now(n->fab.world);
    }
    return call->left ? n->dead : call->error;
}

/* The requests of this call go on without it. */
static void abandon(struct fab_node *n, const struct node_call *call)
{
    for (unsigned i = 0; i < VERBS_WINDOW; i++)
        if (n->requests[i].call == call)
            n->requests[i].call = NULL;
}

/* Sends the verbs, in as many requests as they need. A READ is asked for again if its answer is lost, and then must not see later
 * changes of this batch: where both do not fit into one request, the changes wait for the answer. */
static int send_batch(struct fab_node *n, struct fab_op *ops, unsigned count, struct node_call *call, uint64_t *now, uint64_t until)
{
    unsigned changes = 0;
    bool reads = false;
    for (unsigned i = 0; i < count; i++)
        changes += count_op(&n->fab.counts, &ops[i]);
    uint32_t skip = 0;
    for (unsigned i = 0; i < count;) {
        struct node_request *r;
        int rc = reads && changes ? await(n, call, now, until) : 0;
        if (!rc)
            rc = open_request(n, now, until, &r);
        if (rc)
            return rc;
        put_stores(n);
        r->from = r->len;
        r->skip = skip;
        r->ops = &ops[i];
        while (i < count) {
            uint32_t put = put_verb(r, &ops[i], skip);
            bool change = ops[i].verb != FAB_READ, whole = ops[i].verb > FAB_WRITE || skip + put == ops[i].len;
            if (put)
                reads |= !change;
            changes -= put && whole && change;
            skip = whole ? 0 : skip + put;
            if (!put || !whole)
                break;
            i++;
        }
        if (r->len > r->from) {
            r->call = call;
            call->left++;
        }
        flush_at(n, *now);
    }
    return 0;
}

static uint64_t give_up_at(struct fab_node *n, uint64_t now)
{
    return add_saturating(now, n->io->patience ? n->io->patience(n) : n->patience_ns);
}

int node_batch(struct fab_ep *ep, struct fab_op *ops, unsigned count)
{
    struct fab_node *n = fab_node_of(ep);
    struct node_call call = {0};
    assert(count && count <= FAB_BATCH_MAX);
    n->io->lock(n);
    uint64_t now = world_now(n->fab.world), until = give_up_at(n, now);
    ep->counts.round_trips++;
    int rc = send_batch(n, ops, count, &call, &now, until);
    if (!rc)
        rc = await(n, &call, &now, until);
    if (rc) {
        abandon(n, &call);
        n->counts.unknown += rc == -FAB_EUNKNOWN;
    }
    n->io->unlock(n);
    return rc;
}

/* ---- writes that no task waits for ---- */

#define PLACE_BYTES 32u /* words of one hold that are stored so lie within, those of the next descriptor beyond */

/* The places that words from `offset` on lie in, one bit for each; places of different descriptors may share one. */
static uint64_t place_of(uint64_t offset)
{
    return 1ull << offset / PLACE_BYTES % 64;
}

/* Of a word nearby there is a store only if it has one of these places. */
static uint64_t places_near(uint64_t offset)
{
    return place_of(offset - PLACE_BYTES) | place_of(offset) | place_of(offset + PLACE_BYTES);
}

/* A store to a word that a store of the open request has, or to the word behind it, becomes a part of that one. So a session that
 * gives back several locks and takes others sends each of its records once. Only such stores follow it in the request, and none of
 * them to words nearby: so words of one hold keep their order (those of one WRITE: that of their addresses). Words of different
 * holds may pass each other, as they do when different threads use them. */
static bool join_store(struct fab_node *n, uint64_t offset, uint64_t value)
{
    if (!(n->store_places & places_near(offset)))
        return false;
    unsigned i = n->store_count;
    while (i > 0 && (offset + PLACE_BYTES <= n->stores[i - 1].offset ||
                     offset >= n->stores[i - 1].offset + n->stores[i - 1].room + PLACE_BYTES))
        i--;
    struct node_store *near = i ? &n->stores[i - 1] : NULL;
    if (!near || offset < near->offset || offset > near->offset + near->room)
        return false;
    if (offset == near->offset + near->room) {
        if (near->room == sizeof near->word || n->open->len + sizeof value > VERBS_PACKET_MAX)
            return false;
        near->room += (uint32_t)sizeof value;
        n->open->len += (uint32_t)sizeof value;
        n->store_places |= place_of(offset);
    }
    near->word[(offset - near->offset) / sizeof value] = value;
    return true;
}

/* The open request, for what no task waits for. Null: the endpoint is dead. */
static struct node_request *open_later(struct fab_node *n)
{
    struct node_request *r;
    bool waits = !n->open && n->next - n->base >= VERBS_WINDOW; /* only then it is worth to know the time */
    uint64_t now = waits ? world_now(n->fab.world) : 0;
    if (!open_request(n, &now, add_saturating(now, n->lease_ns), &r))
        return r;
    /* The node has not answered for a lease, and what comes after must not take effect without this. */
    n->dead = n->dead ? n->dead : -FAB_EFENCED;
    return NULL;
}

static void put_later(struct fab_node *n, const struct fab_op *op)
{
    for (uint32_t skip = 0; skip < op->len;) {
        struct node_request *r = open_later(n);
        if (!r)
            return;
        put_stores(n); /* no later store passes it */
        skip += put_verb(r, op, skip);
        if (skip < op->len)
            node_flush(n);
    }
}

/* The caller's next verb takes it along: one packet for both. */
static void node_post(struct fab_ep *ep, const struct fab_op *op)
{
    struct fab_node *n = fab_node_of(ep);
    assert(op->verb == FAB_WRITE);
    n->io->lock(n);
    n->fab.counts.writes++;
    put_later(n, op);
    if (n->io->pending)
        n->io->pending(n);
    n->io->unlock(n);
}

/* ---- words of the session's own ---- */

int fab_node_set_own(struct fab_node *n, fab_addr base, uint64_t bytes)
{
    struct own_words own;
    int rc = own_make(&own, base, bytes);
    if (rc)
        return rc;
    n->io->lock(n);
    own_free(&n->own);
    n->own = own;
    n->io->unlock(n);
    return 0;
}

/* Such a store is one of the request's verbs, so `stores` has room for it. */
static void store_later(struct fab_node *n, fab_addr addr, uint64_t value)
{
    n->fab.counts.writes++;
    if (join_store(n, FAB_OFFSET(addr), value))
        return; /* the library's thread knows of the open request */
    const uint32_t len = (uint32_t)(sizeof(struct verbs_op) + sizeof value);
    bool opens = !n->open;
    struct node_request *r = open_later(n);
    if (r && (r->count == VERBS_COUNT_MAX || r->len + len > VERBS_PACKET_MAX)) {
        node_flush(n);
        opens = true;
        r = open_later(n);
    }
    if (!r)
        return;
    if (!n->store_count)
        n->stores_at = r->len;
    struct node_store *s = &n->stores[n->store_count++];
    s->offset = FAB_OFFSET(addr);
    s->room = sizeof value;
    s->word[0] = value;
    n->store_places |= place_of(s->offset);
    r->len += len;
    r->count++;
    if (opens && n->io->pending)
        n->io->pending(n);
}

/* A word of the node's memory. Should the node not answer, it is 0, and the next verb says why. */
static uint64_t load_word(struct fab_ep *ep, fab_addr addr)
{
    uint64_t value = 0;
    struct fab_op op = {.verb = FAB_READ, .addr = addr, .buf = &value, .len = sizeof value};
    return node_batch(ep, &op, 1) ? 0 : value;
}

static void node_enter(struct fab_ep *ep)
{
    struct fab_node *n = fab_node_of(ep);
    n->io->lock(n);
}

static void node_leave(struct fab_ep *ep)
{
    struct fab_node *n = fab_node_of(ep);
    n->io->unlock(n);
}

static uint64_t node_own(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    struct fab_node *n = fab_node_of(ep);
    if (how == FAB_OWN_LOAD)
        return own_get(&n->own, addr, &value) ? value : load_word(ep, addr);
    if (own_put(&n->own, addr, value) && how == FAB_OWN_PRIVATE)
        return 0;
    node_enter(ep);
    store_later(n, addr, value);
    node_leave(ep);
    return 0;
}

static uint64_t node_own_inside(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    struct fab_node *n = fab_node_of(ep);
    if (how == FAB_OWN_LOAD && own_get(&n->own, addr, &value))
        return value;
    if (how == FAB_OWN_LOAD) {
        node_leave(ep);
        value = load_word(ep, addr);
        node_enter(ep);
        return value;
    }
    bool kept = how != FAB_OWN_LOCAL && own_put(&n->own, addr, value);
    if (!kept || how != FAB_OWN_PRIVATE)
        store_later(n, addr, value);
    return 0;
}

static uint64_t node_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    struct fab_node *n = fab_node_of(ep);
    uint64_t old = 0;
    if (verb == FAB_READ)
        return load_word(ep, addr);
    if (verb == FAB_WRITE) {
        node_enter(ep);
        store_later(n, addr, value);
        node_leave(ep);
    } else if (fab_atomic64(ep, verb, addr, compare, value, &old)) {
        return 0;
    }
    return old;
}

static void node_local_fence(struct fab_ep *ep)
{
    (void)ep; /* later verbs are executed after the stores */
}

/* ---- the rest of the table ---- */

static int node_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned count)
{
    (void)ep, (void)addr, (void)mask, (void)count;
    return 0; /* a change wakes by itself */
}

static int node_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len)
{
    (void)ep, (void)to, (void)data, (void)len;
    return -ENOTCONN;
}

static int node_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline)
{
    (void)out;
    return node_wait(ep, NULL, 0, deadline);
}

static const struct fab_ops node_ops = {
    .batch = node_batch,
    .post = node_post,
    .wait = node_wait,
    .poll = node_poll,
    .watch = node_watch,
    .wake = node_wake,
    .send = node_send,
    .recv = node_recv,
    .fence = node_fence,
    .local = node_local,
    .own = node_own,
    .enter = node_enter,
    .leave = node_leave,
    .own_inside = node_own_inside,
    .local_fence = node_local_fence,
};

void fab_node_init(struct fab_node *n, const struct fab_node_io *io, struct world *world)
{
    memset(n, 0, sizeof *n);
    n->fab = (struct fab_ep){.ops = &node_ops, .world = world, .node = FAB_NODE_ELSEWHERE};
    n->io = io;
    n->next = n->base = 1;
}

void fab_node_free(struct fab_node *n)
{
    own_free(&n->own);
}

/* ---- packets that come ---- */

static void on_answer(struct fab_node *n, const struct verbs_head *h)
{
    struct node_request *r = request_of(n, h->sequence);
    if (r->state != REQUEST_SENT || r->sequence != h->sequence || h->len != r->len) {
        n->counts.strays++;
        return;
    }
    if (h->status == VERBS_BAD)
        n->dead = -EFAULT; /* an address beyond the node's memory: a bug, or foreign code has overwritten the memory */
    if (h->status != VERBS_OK)
        return;
    if (r->call) {
        take_results(r, (const uint8_t *)h);
        r->call->left--;
        r->call = NULL;
    }
    r->state = REQUEST_FREE;
    for (uint64_t s = n->base; s < h->sequence; s++) { /* those before it were executed: their answers were lost or are late */
        struct node_request *before = request_of(n, s);
        if (before->state == REQUEST_SENT && !before->again) {
            before->again = true;
            before->due_ns = 0;
        }
    }
    while (n->base < n->next && request_of(n, n->base)->state == REQUEST_FREE)
        n->base++;
}

void fab_node_packet(struct fab_node *n, const void *packet, uint32_t len)
{
    const struct verbs_head *h = packet;
    bool whole = len >= sizeof *h && h->magic == VERBS_MAGIC && h->len == len && h->type & VERBS_ANSWER;
    bool connects = whole && h->type == (VERBS_CONNECT | VERBS_ANSWER);
    bool known = whole && (h->version == VERBS_VERSION || (connects && h->status == VERBS_OTHER));
    if (!known) {
        n->counts.strays++;
        return;
    }
    if (!connects && (h->space != n->space || h->client != n->client || h->life != n->life || h->tag != n->tag || !n->life)) {
        n->counts.strays++;
        return;
    }
    if (!connects && h->status == VERBS_FENCED)
        n->dead = n->dead ? n->dead : -FAB_EFENCED;
    else if (h->type == (VERBS_BATCH | VERBS_ANSWER))
        on_answer(n, h);
    else
        node_asked(n, h);
    n->io->wake(n);
}

uint64_t fab_node_tick(struct fab_node *n, uint64_t *requests)
{
    n->io->lock(n);
    node_flush(n);
    uint64_t due = node_retransmit(n);
    *requests = n->counts.requests;
    n->io->unlock(n);
    return due;
}

ONCE void fab_node_leave(struct fab_node *n, uint64_t deadline)
{
    n->io->lock(n);
    node_flush(n);
    for (uint64_t now; n->base < n->next && !n->dead && (now = world_now(n->fab.world)) < deadline;)
        pass_time(n, now, deadline);
    const struct verbs_head h = node_head(n, VERBS_LEAVE, sizeof h, 0);
    if (n->life && !n->dead)
        n->io->send(n, &h, sizeof h);
    n->dead = n->dead ? n->dead : -FAB_EFENCED;
    n->io->unlock(n);
}
