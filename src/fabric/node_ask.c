/* SPDX-License-Identifier: Apache-2.0 */
/* The memory node's endpoint: connecting, waiting and fencing, which are not numbered: each can be repeated without harm. */
#include "fabric/node_internal.h"

#include <errno.h>
#include <string.h>

#define PARK_NS (100 * NS_PER_MS) /* how long the node keeps a WAIT */
#define WAIT_AGAIN_SHARE 4 /* a WAIT that is not answered is repeated after so many retransmission times, then twice as many, … */
#define WAIT_AGAIN_MAX_NS (PARK_NS / 2)
#define FENCE_SHARE 8 /* of a lease: how long a fence is waited for; a session is renewed three times per lease */

/* ---- asking ---- */

static void ask_begin(struct fab_node *n, struct node_ask *a)
{
    a->done = false;
    a->next = n->asks;
    n->asks = a;
}

static void ask_end(struct fab_node *n, const struct node_ask *a)
{
    struct node_ask **at = &n->asks;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
}

void node_asked(struct fab_node *n, const struct verbs_head *h)
{
    for (struct node_ask *a = n->asks; a; a = a->next) {
        uint64_t id = h->sequence;
        if ((a->type | VERBS_ANSWER) != h->type || h->len != a->len || a->done)
            continue;
        if (a->type == VERBS_CONNECT)
            id = ((const struct verbs_connect *)(const void *)h)->nonce;
        if (id != a->id)
            continue;
        memcpy(a->answer, h, a->len);
        a->done = true;
        return;
    }
    n->counts.strays++;
}

/* Waits for the answer until that time. Retransmits what else is due meanwhile. */
static int await_answer(struct fab_node *n, const struct node_ask *a, uint64_t until, bool cancellable)
{
    int rc = 0;
    while (!a->done && !n->dead && !rc && world_now(n->fab.world) < until)
        rc = n->io->wait(n, min_u64(node_retransmit(n), until), cancellable);
    return a->done ? 0 : n->dead ? n->dead : rc ? rc : -ETIMEDOUT;
}

/* ---- connecting ---- */

ONCE int fab_node_connect(struct fab_node *n, const char *space, uint64_t nonce, uint64_t deadline)
{
    return fab_node_connect_near(n, space, nonce, 0, deadline);
}

ONCE int fab_node_connect_near(struct fab_node *n, const char *space, uint64_t nonce, uint64_t process, uint64_t deadline)
{
    struct verbs_connect c = {.nonce = nonce, .bytes = process}, answer;
    struct node_ask a = {.type = VERBS_CONNECT, .id = nonce, .answer = &answer, .len = sizeof answer};
    size_t len = strlen(space);
    if (len >= sizeof c.name)
        return -ENAMETOOLONG;
    memcpy(c.name, space, len);
    c.head = node_head(n, VERBS_CONNECT, sizeof c, 0);
    n->io->lock(n);
    ask_begin(n, &a);
    int rc = -ETIMEDOUT;
    while (rc == -ETIMEDOUT && world_now(n->fab.world) < deadline) {
        n->io->send(n, &c, sizeof c);
        rc = await_answer(n, &a, min_u64(deadline, world_now(n->fab.world) + n->retransmit_ns), false);
    }
    ask_end(n, &a);
    static const int codes[] = {
        [VERBS_OK] = 0,         [VERBS_FENCED] = -EPROTO,  [VERBS_BAD] = -EPROTO,           [VERBS_AGAIN] = -EAGAIN,
        [VERBS_FULL] = -ENOSPC, [VERBS_UNKNOWN] = -ENOENT, [VERBS_OTHER] = -EPROTONOSUPPORT};
    if (!rc)
        rc = answer.head.status < countof(codes) ? codes[answer.head.status] : -EPROTO;
    if (!rc) {
        n->space = answer.head.space;
        n->node_life = answer.head.node_life;
        n->client = answer.head.client;
        n->life = answer.head.life;
        n->tag = answer.head.tag;
        n->lease_ns = answer.lease_ns;
        n->can = answer.can;
        n->fab.id = n->client;
        n->fab.size = answer.bytes;
        n->fab.caps = FAB_ORDERED | (n->can & VERBS_CAN_ATOMIC128 ? FAB_ATOMIC128 : 0) |
                      (n->can & VERBS_CAN_MASKED ? FAB_MASKED : 0) | (n->can & VERBS_CAN_WAIT ? FAB_WAIT : 0) |
                      (n->can & VERBS_CAN_CPU ? FAB_CPU_ATOMIC64 | FAB_CPU_ATOMIC128 : 0);
    }
    n->io->unlock(n);
    return rc;
}

ONCE int fab_node_attach(struct fab_node *n, struct verbs_attach *a, uint64_t deadline)
{
    struct verbs_attach answer;
    n->io->lock(n);
    a->head = node_head(n, VERBS_ATTACH, sizeof *a, ++n->ask_id);
    struct node_ask ask = {.type = VERBS_ATTACH, .id = a->head.sequence, .answer = &answer, .len = sizeof answer};
    int rc = n->dead ? n->dead : -ETIMEDOUT;
    ask_begin(n, &ask);
    for (uint64_t now; rc == -ETIMEDOUT && (now = world_now(n->fab.world)) < deadline;) {
        n->io->send(n, a, sizeof *a);
        rc = await_answer(n, &ask, min_u64(deadline, now + n->retransmit_max_ns), false);
    }
    ask_end(n, &ask);
    n->io->unlock(n);
    if (rc)
        return rc;
    if (answer.head.status != VERBS_OK)
        return -EPROTO;
    *a = answer;
    return 0;
}

/* ---- waiting ---- */

/* Nothing but time, and what others have in flight. An operation that was cancelled is told even if that time has come. */
static int sleep_until(struct fab_node *n, uint64_t deadline)
{
    int rc;
    do
        rc = n->io->wait(n, min_u64(node_retransmit(n), deadline), true);
    while (!rc && world_now(n->fab.world) < deadline);
    return rc ? rc : -ETIMEDOUT;
}

/* Asks once, until it is answered or that time has come. The answer has the words. */
static int ask_wait(struct fab_node *n, struct verbs_wait *w, uint64_t until)
{
    struct verbs_wait answer;
    w->head.sequence = ++n->ask_id;
    struct node_ask a = {.type = VERBS_WAIT, .id = w->head.sequence, .answer = &answer, .len = w->head.len};
    uint64_t again = WAIT_AGAIN_SHARE * n->retransmit_ns;
    int rc = -ETIMEDOUT;
    ask_begin(n, &a);
    n->counts.waits++;
    while (rc == -ETIMEDOUT && world_now(n->fab.world) < until) {
        n->io->send(n, w, w->head.len);
        rc = await_answer(n, &a, min_u64(until, add_saturating(world_now(n->fab.world), again)), true);
        again = min_u64(2 * again, WAIT_AGAIN_MAX_NS);
    }
    ask_end(n, &a);
    if (!rc && answer.head.status == VERBS_BAD)
        return n->dead = -EFAULT;
    if (!rc)
        memcpy(w, &answer, w->head.len);
    return rc;
}

/* Until one of the conditions no longer holds. `words`: what they were then. */
static int wait_for(struct fab_node *n, const struct verbs_cond *conds, unsigned count, uint64_t deadline, uint64_t *words)
{
    bool parks = n->can & VERBS_CAN_WAIT;
    for (;;) {
        uint32_t len = (uint32_t)(offsetof(struct verbs_wait, cond) + count * sizeof *conds);
        struct verbs_wait w = {.head = node_head(n, VERBS_WAIT, len, 0), .park_ns = parks ? PARK_NS : 0};
        w.head.count = (uint16_t)count;
        memcpy(w.cond, conds, count * sizeof *conds);
        int rc = ask_wait(n, &w, deadline);
        if (rc)
            return rc;
        bool over = false;
        for (unsigned i = 0; i < count; i++) {
            words[i] = w.cond[i].value;
            over |= (words[i] & conds[i].mask) != conds[i].value;
        }
        if (over)
            return 0;
        uint64_t now = world_now(n->fab.world);
        if (now >= deadline)
            return -ETIMEDOUT;
        if (!parks && (rc = sleep_until(n, min_u64(deadline, now + n->poll_ns))) != -ETIMEDOUT)
            return rc;
    }
}

int node_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned count, uint64_t deadline)
{
    struct fab_node *n = fab_node_of(ep);
    struct verbs_cond c[VERBS_CONDS_MAX];
    uint64_t words[VERBS_CONDS_MAX];
    n->io->lock(n);
    node_flush(n);
    int rc;
    if (!count) {
        rc = sleep_until(n, deadline);
    } else {
        /* More than one WAIT takes: looks at the others, too, when the caller looks again. */
        unsigned fit = count < VERBS_CONDS_MAX ? count : VERBS_CONDS_MAX;
        uint64_t until = fit == count ? deadline : min_u64(deadline, world_now(n->fab.world) + n->poll_ns);
        for (unsigned i = 0; i < fit; i++)
            c[i] = (struct verbs_cond){.offset = FAB_OFFSET(conds[i].addr), .mask = conds[i].mask, .value = conds[i].value};
        rc = wait_for(n, c, fit, until, words);
        if (rc == -ETIMEDOUT && until < deadline)
            rc = 0;
    }
    n->io->unlock(n);
    return rc;
}

int node_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    struct fab_node *n = fab_node_of(ep);
    struct verbs_cond c[2];
    uint64_t words[2] = {0, 0}, offset = FAB_OFFSET(pair->addr);
    unsigned count = pair->width / 8u;
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct verbs_cond){
            .offset = offset + 8 * i, .mask = (uint64_t)(pair->mask >> 64 * i), .value = (uint64_t)(pair->value >> 64 * i)};
    n->io->lock(n);
    node_flush(n);
    int rc = wait_for(n, c, count, deadline, words);
    n->io->unlock(n);
    *seen = (u128)words[1] << 64 | words[0];
    return rc;
}

int node_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned count, uint64_t deadline)
{
    struct fab_node *n = fab_node_of(ep);
    struct verbs_cond c[VERBS_CONDS_MAX];
    static_assert(FAB_WATCH_MAX <= VERBS_CONDS_MAX, "one WAIT is enough");
    for (unsigned i = 0; i < count; i++)
        c[i] = (struct verbs_cond){.offset = FAB_OFFSET(addr) + 8 * i, .mask = UINT64_MAX, .value = words[i]};
    n->io->lock(n);
    node_flush(n);
    int rc = wait_for(n, c, count, deadline, words);
    n->io->unlock(n);
    return rc;
}

/* ---- fencing ---- */

/* Where the kernel executes the verbs, the process that fences may be away for long, and the thread that asks has a session to
 * renew: it waits for a part of a lease, and then lets the same time pass before it waits again. */
int node_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    struct fab_node *n = fab_node_of(ep);
    struct verbs_fence f = {.peer = peer, .peer_life = (uint32_t)proof}, answer;
    n->io->lock(n);
    node_flush(n);
    f.head = node_head(n, VERBS_FENCE, sizeof f, ++n->ask_id);
    struct node_ask a = {.type = VERBS_FENCE, .id = f.head.sequence, .answer = &answer, .len = sizeof answer};
    uint64_t now = world_now(n->fab.world), patience_ns = min_u64(n->patience_ns, n->lease_ns / FENCE_SHARE);
    uint64_t until = now < n->fence_after_ns ? now : now + patience_ns;
    int rc = n->dead ? n->dead : -ETIMEDOUT;
    ask_begin(n, &a);
    while (rc == -ETIMEDOUT && world_now(n->fab.world) < until) {
        n->io->send(n, &f, sizeof f);
        rc = await_answer(n, &a, min_u64(until, world_now(n->fab.world) + n->retransmit_ns), false);
    }
    ask_end(n, &a);
    ep->counts.sends++;
    if (rc == -ETIMEDOUT && now >= n->fence_after_ns)
        n->fence_after_ns = until + patience_ns;
    n->io->unlock(n);
    if (rc == -ETIMEDOUT || (!rc && answer.head.status == VERBS_AGAIN))
        return -EAGAIN;
    return rc ? rc : answer.head.status == VERBS_OK ? 0 : -EPROTO;
}
