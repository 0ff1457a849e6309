/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/txn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- named workloads ---- */

/* Execution times and time-outs: FissLock 7.4, ShiftLock 4.4 and 4.5. Where the artifact and the paper differ, the paper's. What
 * else a transaction does is as in the artifacts: trace.rs and client.rs of ShiftLock's, client.c and console.py of NetLock's. */
const struct txn_preset txn_presets[] = {
    {"tpcc", "FissLock 7.4", TXN_TPCC, 1200, .hold_ns = 10 * NS_PER_US, .timeout_ns = 10 * NS_PER_MS},
    {"tatp", "FissLock 7.4", TXN_TATP, 100000, .hold_ns = 2 * NS_PER_US, .timeout_ns = 10 * NS_PER_MS},
    {"smallbank", "ShiftLock 4.5", TXN_SMALLBANK, 1000000, .sorted = true},
    {"tpcc-shiftlock", "ShiftLock 4.4", TXN_TPCC, 100, .sorted = true, .moves_data = true, .hold_ns = 7 * NS_PER_US},
    {"tatp-shiftlock", "ShiftLock 4.4", TXN_TATP, 100000, .sorted = true, .moves_data = true, .hold_ns = 2800},
    {"tpcc-netlock", "NetLock 6.3", TXN_TPCC_ROWS, 10, .together = true, .retries = true, .timeout_ns = 2 * NS_PER_MS},
};
const unsigned txn_preset_count = countof(txn_presets);

const struct txn_preset *txn_preset_find(const char *name)
{
    for (unsigned i = 0; i < txn_preset_count; i++)
        if (!strcmp(txn_presets[i].name, name))
            return &txn_presets[i];
    return NULL;
}

unsigned txn_types(enum txn_kind kind)
{
    static const unsigned types[] = {[TXN_TPCC] = TPCC_TYPES,
                                     [TXN_TPCC_ROWS] = TPCC_TYPES,
                                     [TXN_TATP] = TATP_TYPES,
                                     [TXN_SMALLBANK] = BANK_TYPES,
                                     [TXN_TRACE] = TXN_TYPES_MAX};
    return types[kind];
}

#define TPCC_NAMES                                                                                                                 \
    {                                                                                                                              \
        "new-order", "payment", "order-status", "delivery", "stock-level"                                                          \
    }

const char *txn_type_name(enum txn_kind kind, unsigned type)
{
    static const char *const names[][TXN_TYPES_MAX] = {
        [TXN_TPCC] = TPCC_NAMES,
        [TXN_TPCC_ROWS] = TPCC_NAMES,
        [TXN_TATP] = {"get-subscriber", "get-destination", "get-access", "update-subscriber", "update-location",
                      "insert-forwarding", "delete-forwarding"},
        [TXN_SMALLBANK] = {"amalgamate", "balance", "deposit", "payment", "savings", "check"},
        [TXN_TRACE] = {"0", "1", "2", "3", "4", "5", "6", "7"},
    };
    return names[kind][type];
}

/* ---- SmallBank ---- */

/* Each account has two locks: savings, and checking. A balance is read without a lock. */
static uint64_t savings(uint64_t account)
{
    return 2 * account;
}

static uint64_t checking(uint64_t account)
{
    return 2 * account + 1;
}

static void smallbank_next(struct txn_stream *s, struct txn *out)
{
    static const uint8_t shares[BANK_TYPES] = {15, 15, 15, 25, 15, 15};
    uint64_t draw = rng_below(&s->random, 100), a = rng_below(&s->random, s->params->scale), b = a;
    while (b == a && s->params->scale > 1)
        b = rng_below(&s->random, s->params->scale);
    while (draw >= shares[out->type])
        draw -= shares[out->type++];
    switch ((enum smallbank_type)out->type) {
    case BANK_AMALGAMATE:
        txn_add(out, savings(a), PAWL_EXCLUSIVE);
        txn_add(out, checking(a), PAWL_EXCLUSIVE);
        txn_add(out, checking(b), PAWL_EXCLUSIVE);
        break;
    case BANK_PAYMENT:
        txn_add(out, checking(a), PAWL_EXCLUSIVE);
        txn_add(out, checking(b), PAWL_EXCLUSIVE);
        break;
    case BANK_CHECK:
        txn_add(out, savings(a), PAWL_SHARED);
        txn_add(out, checking(a), PAWL_EXCLUSIVE);
        break;
    case BANK_DEPOSIT:
        txn_add(out, checking(a), PAWL_EXCLUSIVE);
        break;
    case BANK_SAVINGS:
        txn_add(out, savings(a), PAWL_EXCLUSIVE);
        break;
    case BANK_BALANCE:
    case BANK_TYPES:
        break;
    }
}

/* ---- all kinds ---- */

void txn_add(struct txn *t, uint64_t lock, enum pawl_mode mode)
{
    for (unsigned i = 0; i < t->count; i++)
        if (t->locks[i].lock == lock) {
            t->locks[i].mode = mode == PAWL_EXCLUSIVE ? mode : t->locks[i].mode;
            return;
        }
    assert(t->count < TXN_LOCKS_MAX);
    t->locks[t->count++] = (struct txn_lock){lock, mode};
}

int txn_prepare(struct txn_params *p)
{
    assert(p->hosts && (p->scale || p->kind == TXN_TRACE));
    return p->kind == TXN_TATP ? tatp_prepare(p) : 0;
}

void txn_release(struct txn_params *p)
{
    free(p->first_row);
    txn_trace_free(&p->trace);
}

uint64_t txn_locks(const struct txn_params *p)
{
    switch (p->kind) {
    case TXN_TPCC:
        return tpcc_locks(p);
    case TXN_TPCC_ROWS:
        return tpcc_rows_locks(p);
    case TXN_TATP:
        return tatp_locks(p);
    case TXN_SMALLBANK:
        return 2 * p->scale;
    case TXN_TRACE:
        return p->trace.locks;
    case TXN_NONE:
        break;
    }
    return 0;
}

void txn_start(struct txn_stream *s, const struct txn_params *p, unsigned client, unsigned clients, uint64_t seed)
{
    *s = (struct txn_stream){.params = p, .host = client % p->hosts, .next = client, .step = clients};
    rng_seed(&s->random, seed ^ (uint64_t)(client + 1) << 40);
}

static int by_lock(const void *a, const void *b)
{
    const struct txn_lock *x = a, *y = b;
    return (x->lock > y->lock) - (x->lock < y->lock);
}

void txn_next(struct txn_stream *s, struct txn *out)
{
    const struct txn_params *p = s->params;
    if (s->has_again) {
        *out = s->again;
        s->has_again = false;
        return;
    }
    out->type = out->count = 0;
    switch (p->kind) {
    case TXN_TPCC:
        tpcc_next(s, out);
        break;
    case TXN_TPCC_ROWS:
        tpcc_rows_next(s, out);
        break;
    case TXN_TATP:
        tatp_next(s, out);
        break;
    case TXN_SMALLBANK:
        smallbank_next(s, out);
        break;
    case TXN_TRACE: /* client i takes transactions i, i + clients, ..., round and round */
        *out = p->trace.txns[s->next % p->trace.count];
        s->next += s->step;
        break;
    case TXN_NONE:
        break;
    }
    if (p->sorted)
        qsort(out->locks, out->count, sizeof out->locks[0], by_lock);
}
