/* SPDX-License-Identifier: Apache-2.0 */
/* Several transactions of a process at once, as FissLock's application has them: tellers, each a state machine, share one
 * connection to Redis, whose commands leave together, and one session, whose locks are submitted. */
#include "bench/bank.h"

#include <poll.h>
#include <string.h>

#define WAIT_NS (60 * NS_PER_S)
#define IDLE_MS 2 /* the longest sleep: a teller's pause may end */

enum step { NAMES, LOCK, PAUSE, BALANCES, WRITE, RELEASE };

struct teller {
    enum step step;
    struct bank_txn t;
    unsigned locked;       /* locks that it has */
    unsigned awaited;      /* replies to its releases */
    uint64_t begin, until; /* until: of a pause */
    int64_t balance[TXN_SLOTS];
    pawl_grant grants[TXN_SLOTS];
    char value[TXN_SLOTS][REDLOCK_VALUE];
};

struct flow {
    struct bank_client c;
    struct crowd *crowd;
    struct teller tellers[TELLERS_MAX];
    struct teller *queue[TELLERS_MAX * (TXN_SLOTS + 1)]; /* whose reply is next: Redis answers in order */
    unsigned head, queued, pausing;
    bool ending; /* no new transactions */
    bool asks;   /* a lock was submitted; it leaves with the next pawl_reap */
    unsigned busy;
};

static void await_reply(struct flow *f, struct teller *t)
{
    assert(f->queued < countof(f->queue));
    f->queue[(f->head + f->queued++) % countof(f->queue)] = t;
}

static void next_lock(struct flow *f, struct teller *t);

static void begin(struct flow *f, struct teller *t)
{
    if (f->ending) {
        f->busy--;
        return;
    }
    bank_draw(&f->c, &t->t);
    t->locked = 0;
    t->begin = kit_now();
    if (!t->t.names) {
        next_lock(f, t);
        return;
    }
    t->step = NAMES;
    store_ask_names(&f->c, &t->t);
    await_reply(f, t);
}

static void next_lock(struct flow *f, struct teller *t)
{
    if (!t->t.locks || t->locked == t->t.count) {
        t->step = BALANCES;
        store_ask_balances(&f->c, &t->t);
        await_reply(f, t);
        return;
    }
    uint64_t slot = t->t.slot[t->locked], id;
    t->step = LOCK;
    if (!f->c.p) {
        redlock_ask(&f->c, slot, t->value[t->locked]);
        await_reply(f, t);
        return;
    }
    const pawl_request r = {.op = PAWL_OP_LOCK,
                            .mode = t->t.writes[t->locked] ? PAWL_EXCLUSIVE : PAWL_SHARED,
                            .key = pawl_id(slot),
                            .deadline_ns = pawl_in(WAIT_NS),
                            .user = t,
                            .more = 1}; /* take_grants reaps before the process sleeps */
    int rc = pawl_submit(f->c.p, &r, &id);
    f->asks = true;
    if (rc == -PAWL_ELIMIT) { /* releases are in flight: when they have ended */
        t->step = PAUSE;
        t->until = 0;
        f->pausing++;
        return;
    }
    if (rc)
        crowd_fail(f->crowd, f->c.number, "cannot lock: %s (%s)", pawl_strerror(rc), pawl_explain());
}

static void release(struct flow *f, struct teller *t)
{
    hist_add(&f->c.report->hist, kit_now() - t->begin);
    f->c.report->ops++;
    t->step = RELEASE;
    t->awaited = f->c.p ? 0 : t->locked;
    for (unsigned i = 0; i < t->locked; i++) {
        const pawl_request r = {.op = PAWL_OP_UNLOCK, .grant = t->grants[i], .more = 1};
        uint64_t id;
        if (!f->c.p) {
            redlock_give(&f->c, t->t.slot[i], t->value[i]);
            await_reply(f, t);
        } else if (pawl_submit(f->c.p, &r, &id))
            pawl_unlock(f->c.p, &t->grants[i]);
    }
    if (!t->awaited)
        begin(f, t);
}

/* A reply of Redis to the teller whose turn it is. */
static void take_reply(struct flow *f, const redisReply *reply)
{
    struct teller *t = f->queue[f->head];
    int64_t after[TXN_SLOTS] = {0};
    assert(f->queued);
    f->head = (f->head + 1) % countof(f->queue);
    f->queued--;
    switch (t->step) {
    case NAMES:
        store_take_names(&t->t, reply);
        next_lock(f, t);
        return;
    case LOCK:
        if (redlock_take(reply)) {
            t->locked++;
            next_lock(f, t);
            return;
        }
        f->c.report->conflicts++;
        t->step = PAUSE;
        t->until = kit_now() + redlock_pause(&f->c);
        f->pausing++;
        return;
    case BALANCES:
        store_take_balances(&t->t, reply, t->balance);
        if (!bank_writes(&t->t)) {
            release(f, t);
            return;
        }
        t->step = WRITE;
        store_ask_write(&f->c, &t->t, t->grants, after, bank_after(&t->t, t->balance, after));
        await_reply(f, t);
        return;
    case WRITE:
        if (!store_take_write(reply))
            crowd_fail(f->crowd, f->c.number, "a write was refused: the session was lost");
        release(f, t);
        return;
    case RELEASE:
        if (!--t->awaited)
            begin(f, t);
        return;
    case PAUSE:
        break;
    }
    assert(false);
}

static void take_replies(struct flow *f)
{
    redisReply *reply;
    if (redisBufferRead(f->c.redis) != REDIS_OK)
        kit_die("Redis: %s", f->c.redis->errstr);
    while (redisReaderGetReply(f->c.redis->reader, (void **)&reply) == REDIS_OK && reply) {
        take_reply(f, reply);
        freeReplyObject(reply);
    }
}

static void take_grants(struct flow *f)
{
    pawl_completion done[PAWL_INFLIGHT_MAX];
    f->asks = false;
    int n = f->c.p ? pawl_reap(f->c.p, done, countof(done), PAWL_TRY) : 0;
    for (int i = 0; i < n; i++) {
        struct teller *t = done[i].user;
        if (done[i].op != PAWL_OP_LOCK)
            continue;
        if (done[i].result)
            crowd_fail(f->crowd, f->c.number, "cannot lock: %s", pawl_strerror(done[i].result));
        t->grants[t->locked++] = done[i].grant;
        next_lock(f, t);
    }
}

static void end_pauses(struct flow *f)
{
    uint64_t now = f->pausing ? kit_now() : 0;
    for (unsigned i = 0; i < f->c.bank->tellers && f->pausing; i++)
        if (f->tellers[i].step == PAUSE && f->tellers[i].until <= now) {
            f->pausing--;
            next_lock(f, &f->tellers[i]);
        }
}

/* All commands of a round leave together. */
static void send_out(struct flow *f)
{
    for (int written = 0; !written;)
        if (redisBufferWrite(f->c.redis, &written) != REDIS_OK)
            kit_die("Redis: %s", f->c.redis->errstr);
}

void bank_flow(struct crowd *crowd, unsigned number)
{
    static struct flow f;
    f.crowd = crowd;
    f.c.report = &crowd->reports[number];
    int rc = bank_connect(&f.c, crowd->user, number);
    if (rc)
        crowd_fail(crowd, number, "cannot open %s: %s (%s)", f.c.bank->at.place, pawl_strerror(rc), pawl_explain());
    crowd_ready(crowd, number);
    f.busy = (unsigned)f.c.bank->tellers;
    for (unsigned i = 0; i < f.c.bank->tellers; i++)
        begin(&f, &f.tellers[i]);
    while (f.busy) {
        struct pollfd p[2] = {{.fd = f.c.redis->fd, .events = POLLIN}, {.fd = f.c.p ? pawl_fd(f.c.p) : -1, .events = POLLIN}};
        do
            take_grants(&f);
        while (f.asks);
        end_pauses(&f);
        send_out(&f);
        poll(p, 2, IDLE_MS);
        f.ending = crowd_over(crowd);
        if (p[0].revents)
            take_replies(&f);
    }
    if (f.c.p)
        pawl_close(f.c.p);
    redisFree(f.c.redis);
}
