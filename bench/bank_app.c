/* SPDX-License-Identifier: Apache-2.0 */
/* The bank's transactions, the same under all locks: look up names, lock, read, write, unlock.
 *
 * "mobile" is FissLock's (OSDI'24, 7.9): 90 % look at a balance, 10 % transfer between two accounts, accounts by Zipf. "smallbank"
 * is ShiftLock's (FAST'25, 4.5): SmallBank's six transactions in the shares of its artifact, customers evenly. */
#include "bench/bank.h"

#include <errno.h>
#include <string.h>

#define LOOKS_PERCENT 90
#define TRANSFER_MAX 50
#define WAIT_NS (60 * NS_PER_S) /* longer than a lease: a killed client's locks become free within one */

/* ---- drawing ---- */

static void add(struct bank_txn *t, uint64_t slot, bool writes, int64_t change)
{
    t->slot[t->count] = slot;
    t->writes[t->count] = writes;
    t->change[t->count] = change;
    t->all[t->count++] = false;
}

/* Ascending: RedLock takes locks one by one, and must not deadlock. */
static void sort(struct bank_txn *t)
{
    for (unsigned i = 1; i < t->count; i++)
        for (unsigned k = i; k && t->slot[k - 1] > t->slot[k]; k--) {
            const struct bank_txn old = *t;
            for (unsigned side = 0; side < 2; side++) {
                unsigned from = k - side, to = k - 1 + side;
                t->slot[to] = old.slot[from];
                t->writes[to] = old.writes[from];
                t->change[to] = old.change[from];
                t->all[to] = old.all[from];
                if (old.to == from)
                    t->to = to;
            }
        }
}

static void draw_mobile(struct bank_client *c, struct bank_txn *t)
{
    const struct bank *b = c->bank;
    uint64_t first = zipf_next(&b->zipf_table, &c->rng), second;
    t->locks = true;
    if (rng_chance(&c->rng, LOOKS_PERCENT, 100)) {
        add(t, first, false, 0);
        return;
    }
    do
        second = zipf_next(&b->zipf_table, &c->rng);
    while (second == first);
    int64_t amount = (int64_t)rng_between(&c->rng, 1, TRANSFER_MAX);
    add(t, first, true, -amount);
    add(t, second, true, amount);
}

static void draw_smallbank(struct bank_client *c, struct bank_txn *t)
{
    uint64_t kind = rng_below(&c->rng, 100), accounts = c->bank->accounts, one = rng_below(&c->rng, accounts),
             two = (one + 1 + rng_below(&c->rng, accounts - 1)) % accounts;
    int64_t amount = (int64_t)rng_between(&c->rng, 1, TRANSFER_MAX);
    uint64_t savings = 2 * one, checking = savings + 1, other = 2 * two + 1;
    t->names = 1;
    t->customer[0] = one;
    t->customer[1] = two;
    t->locks = true;
    if (kind < 15) { /* amalgamate: all of the first customer's money to the second's checking */
        add(t, savings, true, 0);
        add(t, checking, true, 0);
        add(t, other, true, 0);
        t->all[0] = t->all[1] = t->moves_all = true;
        t->to = 2;
        t->names = 2;
    } else if (kind < 30) { /* balance */
        add(t, savings, false, 0);
        add(t, checking, false, 0);
        t->locks = false;
    } else if (kind < 45) /* deposit checking */
        add(t, checking, true, amount);
    else if (kind < 70) { /* send payment */
        add(t, checking, true, -amount);
        add(t, other, true, amount);
        t->names = 2;
    } else if (kind < 85) /* transact savings */
        add(t, savings, true, amount);
    else { /* write check: the total is looked at */
        add(t, savings, false, 0);
        add(t, checking, true, -amount);
    }
}

void bank_draw(struct bank_client *c, struct bank_txn *t)
{
    *t = (struct bank_txn){0};
    if (*c->bank->workload == 's')
        draw_smallbank(c, t);
    else
        draw_mobile(c, t);
    t->locks = t->locks && !c->bank->unlocked;
    sort(t);
}

/* ---- doing ---- */

int bank_connect(struct bank_client *c, const struct bank *b, unsigned number)
{
    *c = (struct bank_client){.bank = b, .number = number, .report = c->report, .redis = store_connect(b)};
    rng_seed(&c->rng, kit_now() ^ (uint64_t)number << 32);
    return b->at.place ? crowd_open(&b->at, number, &c->p) : 0;
}

int bank_take(struct bank_client *c, const struct bank_txn *t)
{
    pawl_want wants[TXN_SLOTS];
    if (!t->locks)
        return 0;
    for (unsigned i = 0; i < t->count; i++) {
        for (bool granted = c->p != NULL; !granted;) {
            redlock_ask(c, t->slot[i], c->value[i]);
            redisReply *reply = store_reply(c);
            granted = redlock_take(reply);
            freeReplyObject(reply);
            c->report->conflicts += !granted;
            if (!granted)
                kit_sleep(redlock_pause(c));
        }
        wants[i] = (pawl_want){.key = pawl_id(t->slot[i]), .mode = t->writes[i] ? PAWL_EXCLUSIVE : PAWL_SHARED};
    }
    return !c->p           ? 0
           : t->count == 1 ? pawl_timedlock(c->p, wants[0].key, wants[0].mode, pawl_in(WAIT_NS), c->grants)
                           : pawl_lock_all(c->p, wants, t->count, pawl_in(WAIT_NS), c->grants);
}

void bank_read(struct bank_client *c, const struct bank_txn *t, int64_t balance[TXN_SLOTS])
{
    store_ask_balances(c, t);
    redisReply *reply = store_reply(c);
    store_take_balances(t, reply, balance);
    freeReplyObject(reply);
}

bool bank_writes(const struct bank_txn *t)
{
    bool any = false;
    for (unsigned i = 0; i < t->count; i++)
        any = any || t->writes[i];
    return any;
}

int64_t bank_after(const struct bank_txn *t, const int64_t balance[TXN_SLOTS], int64_t after[TXN_SLOTS])
{
    int64_t sum = 0;
    for (unsigned i = 0; i < t->count; i++)
        after[i] = t->all[i] ? 0 : balance[i] + t->change[i];
    for (unsigned i = 0; i < t->count && t->moves_all; i++)
        after[t->to] += t->all[i] ? balance[i] : 0;
    for (unsigned i = 0; i < t->count; i++)
        sum += after[i] - balance[i];
    return sum;
}

int bank_write(struct bank_client *c, const struct bank_txn *t, const int64_t balance[TXN_SLOTS])
{
    int64_t after[TXN_SLOTS] = {0}, made = bank_after(t, balance, after);
    if (!bank_writes(t))
        return 0;
    store_ask_write(c, t, c->grants, after, made);
    redisReply *reply = store_reply(c);
    bool written = store_take_write(reply);
    freeReplyObject(reply);
    return written ? 0 : -PAWL_ELOST;
}

void bank_give(struct bank_client *c, const struct bank_txn *t)
{
    if (!t->locks)
        return;
    for (unsigned i = 0; i < t->count && !c->p; i++) {
        redlock_give(c, t->slot[i], c->value[i]);
        freeReplyObject(store_reply(c));
    }
    if (c->p && t->count == 1)
        pawl_unlock(c->p, c->grants);
    else if (c->p)
        pawl_unlock_all(c->p, c->grants, t->count);
}

static void transaction(struct bank_client *c, struct crowd *crowd)
{
    struct bank_txn t;
    int64_t balance[TXN_SLOTS];
    bank_draw(c, &t);
    uint64_t begin = kit_now();
    if (t.names) {
        store_ask_names(c, &t);
        redisReply *reply = store_reply(c);
        store_take_names(&t, reply);
        freeReplyObject(reply);
    }
    int rc = bank_take(c, &t);
    if (!rc) {
        bank_read(c, &t, balance);
        rc = bank_write(c, &t, balance);
        c->report->refused += rc != 0;
        bank_give(c, &t); /* of a lost session: in vain */
        if (!rc) {
            hist_add(&c->report->hist, kit_now() - begin);
            c->report->ops++;
        }
    }
    if (!rc)
        return;
    if (rc != -PAWL_ELOST)
        crowd_fail(crowd, c->number, "cannot lock: %s (%s)", pawl_strerror(rc), pawl_explain());
    c->report->lost++;
    pawl_close(c->p);
    rc = crowd_open(&c->bank->at, c->number, &c->p);
    if (rc)
        crowd_fail(crowd, c->number, "cannot open %s again: %s (%s)", c->bank->at.place, pawl_strerror(rc), pawl_explain());
}

void bank_work(struct crowd *crowd, unsigned number)
{
    static struct bank_client c;
    c.report = &crowd->reports[number];
    int rc = bank_connect(&c, crowd->user, number);
    if (rc)
        crowd_fail(crowd, number, "cannot open %s: %s (%s)", c.bank->at.place, pawl_strerror(rc), pawl_explain());
    crowd_ready(crowd, number);
    while (!crowd_over(crowd))
        transaction(&c, crowd);
    if (c.p)
        pawl_close(c.p);
    redisFree(c.redis);
}
