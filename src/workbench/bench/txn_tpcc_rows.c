/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C with a lock for each row, as NetLock (6.1) has it. Its traces are not public; these follow the standard (TPC-C 5.11, clause
 * 2): rows that are read or updated have locks, rows that are inserted belong to their transaction alone. Each warehouse has
 * 700,000 numbers, as in NetLock's artifact (github.com/netx-repo/NetLock, console.py), and all hosts work on all warehouses. */
#include "workbench/bench/txn.h"

#define WAREHOUSE_NUMBERS 700000
#define DISTRICTS 10
#define CUSTOMERS 3000 /* of a district */
#define NAMES 1000     /* of customers: three have the same, and the middle one is meant */
#define ITEMS 100000
#define LINES_MIN 5 /* of an order */
#define LINES_MAX 15
#define BY_NAME_PERCENT 60

enum { FIRST_DISTRICT = 1, FIRST_CUSTOMER = FIRST_DISTRICT + DISTRICTS, FIRST_STOCK = FIRST_CUSTOMER + DISTRICTS * CUSTOMERS };
_Static_assert(FIRST_STOCK + ITEMS <= WAREHOUSE_NUMBERS, "a warehouse's rows have their numbers");
_Static_assert(3 + LINES_MAX <= TXN_LOCKS_MAX && DISTRICTS <= TXN_LOCKS_MAX, "a new order; a delivery");

uint64_t tpcc_rows_locks(const struct txn_params *p)
{
    return p->scale * WAREHOUSE_NUMBERS;
}

static uint64_t any_district(struct txn_stream *s)
{
    return rng_below(&s->random, DISTRICTS);
}

static uint64_t customer(struct txn_stream *s, uint64_t warehouse, uint64_t district, bool by_name)
{
    uint64_t number = by_name ? tpcc_non_uniform(s, 256, NAMES) * (CUSTOMERS / NAMES) + 1 : tpcc_non_uniform(s, 1024, CUSTOMERS);
    return warehouse + FIRST_CUSTOMER + district * CUSTOMERS + number;
}

static bool by_name(struct txn_stream *s)
{
    return rng_chance(&s->random, BY_NAME_PERCENT, 100);
}

static void new_order(struct txn_stream *s, uint64_t w, struct txn *out)
{
    uint64_t district = any_district(s);
    txn_add(out, w, PAWL_SHARED);
    txn_add(out, w + FIRST_DISTRICT + district, PAWL_EXCLUSIVE);
    txn_add(out, customer(s, w, district, false), PAWL_SHARED);
    for (uint64_t lines = rng_between(&s->random, LINES_MIN, LINES_MAX); lines; lines--)
        txn_add(out, w + FIRST_STOCK + tpcc_non_uniform(s, 8192, ITEMS), PAWL_EXCLUSIVE);
}

static void payment(struct txn_stream *s, uint64_t w, struct txn *out)
{
    uint64_t district = any_district(s);
    txn_add(out, w, PAWL_EXCLUSIVE);
    txn_add(out, w + FIRST_DISTRICT + district, PAWL_EXCLUSIVE);
    txn_add(out, customer(s, w, any_district(s), by_name(s)), PAWL_EXCLUSIVE);
}

static void order_status(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, customer(s, w, any_district(s), by_name(s)), PAWL_SHARED);
}

/* The oldest order of every district: its customer was drawn as of a new order. */
static void delivery(struct txn_stream *s, uint64_t w, struct txn *out)
{
    for (uint64_t district = 0; district < DISTRICTS; district++)
        txn_add(out, customer(s, w, district, false), PAWL_EXCLUSIVE);
}

/* The standard lets it read stock without locks that last (clause 2.8.2.3). */
static void stock_level(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, w + FIRST_DISTRICT + any_district(s), PAWL_SHARED);
}

void tpcc_rows_next(struct txn_stream *s, struct txn *out)
{
    static void (*const make[TPCC_TYPES])(struct txn_stream * s, uint64_t w, struct txn * out) = {
        [TPCC_NEW_ORDER] = new_order, [TPCC_PAYMENT] = payment,         [TPCC_ORDER_STATUS] = order_status,
        [TPCC_DELIVERY] = delivery,   [TPCC_STOCK_LEVEL] = stock_level,
    };
    uint64_t w = rng_below(&s->random, s->params->scale) * WAREHOUSE_NUMBERS;
    out->type = tpcc_draw_type(s);
    make[out->type](s, w, out);
}
