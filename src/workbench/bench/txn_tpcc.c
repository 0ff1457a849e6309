/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C's transactions by their locks: 121 of each warehouse, numbered by table in the order of `tables`, warehouse by warehouse.
 */
#include "workbench/bench/txn.h"

#define DISTRICTS 10
#define REMOTE_PERCENT 15 /* payments for a customer of another host's warehouse */
#define BY_NAME_PERCENT 60
#define STOCK_DRAWS 10
#define WAREHOUSE_LOCKS 121

enum table { WAREHOUSE, DISTRICT, CUSTOMER, ORDER, HISTORY, NEW_ORDER, ORDER_LINE, STOCK, ITEM, TABLES };
static const struct {
    uint8_t first, locks;
} tables[TABLES] = {
    [WAREHOUSE] = {0, 1},   [DISTRICT] = {1, 10},    [CUSTOMER] = {11, 30}, [ORDER] = {41, 10}, [HISTORY] = {51, 10},
    [NEW_ORDER] = {61, 10}, [ORDER_LINE] = {71, 10}, [STOCK] = {81, 30},    [ITEM] = {111, 10}, /* never taken */
};
_Static_assert(TABLES == 9, "tables");

uint64_t tpcc_locks(const struct txn_params *p)
{
    return p->scale * p->hosts * WAREHOUSE_LOCKS;
}

static uint64_t row(uint64_t warehouse, enum table table, uint64_t row_number)
{
    return warehouse * WAREHOUSE_LOCKS + tables[table].first + row_number % tables[table].locks;
}

/* A row that is inserted. */
static uint64_t next_row(struct txn_stream *s, uint64_t warehouse, enum table table)
{
    static const uint8_t counter[TABLES] = {[ORDER] = 0, [HISTORY] = 1, [NEW_ORDER] = 2, [ORDER_LINE] = 3};
    return row(warehouse, table, s->inserts[counter[table]]++);
}

static uint64_t any_row(struct txn_stream *s, uint64_t warehouse, enum table table)
{
    return row(warehouse, table, rng_below(&s->random, tables[table].locks));
}

uint64_t tpcc_non_uniform(struct txn_stream *s, uint64_t a, uint64_t n)
{
    return (rng_below(&s->random, a) | rng_below(&s->random, n)) % n;
}

static uint64_t customer(struct txn_stream *s, uint64_t warehouse)
{
    bool by_name = rng_chance(&s->random, BY_NAME_PERCENT, 100);
    return row(warehouse, CUSTOMER, by_name ? tpcc_non_uniform(s, 256, 1000) : tpcc_non_uniform(s, 1024, 3000));
}

static uint64_t warehouse_of(struct txn_stream *s, unsigned host)
{
    return host * s->params->scale + rng_below(&s->random, s->params->scale);
}

static void new_order(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, row(w, WAREHOUSE, 0), PAWL_SHARED);
    txn_add(out, any_row(s, w, DISTRICT), PAWL_EXCLUSIVE);
    txn_add(out, customer(s, w), PAWL_SHARED);
    txn_add(out, next_row(s, w, ORDER), PAWL_EXCLUSIVE);
    txn_add(out, next_row(s, w, NEW_ORDER), PAWL_EXCLUSIVE);
    for (unsigned i = 0; i < STOCK_DRAWS; i++)
        txn_add(out, any_row(s, w, STOCK), PAWL_EXCLUSIVE);
    txn_add(out, next_row(s, w, ORDER_LINE), PAWL_EXCLUSIVE);
}

static void payment(struct txn_stream *s, uint64_t w, struct txn *out)
{
    uint64_t of = w;
    if (s->params->hosts > 1 && rng_chance(&s->random, REMOTE_PERCENT, 100)) {
        unsigned host = (unsigned)rng_below(&s->random, s->params->hosts - 1);
        of = warehouse_of(s, host + (host >= s->host));
    }
    txn_add(out, row(w, WAREHOUSE, 0), PAWL_EXCLUSIVE);
    txn_add(out, any_row(s, w, DISTRICT), PAWL_EXCLUSIVE);
    txn_add(out, customer(s, of), PAWL_EXCLUSIVE);
    txn_add(out, next_row(s, w, HISTORY), PAWL_EXCLUSIVE);
}

static void order_status(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, customer(s, w), PAWL_SHARED);
    txn_add(out, any_row(s, w, ORDER), PAWL_SHARED);
    txn_add(out, any_row(s, w, ORDER_LINE), PAWL_SHARED);
}

static void delivery(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, any_row(s, w, NEW_ORDER), PAWL_EXCLUSIVE);
    txn_add(out, any_row(s, w, ORDER), PAWL_EXCLUSIVE);
    txn_add(out, any_row(s, w, ORDER_LINE), PAWL_SHARED);
    txn_add(out, customer(s, w), PAWL_EXCLUSIVE);
}

static void stock_level(struct txn_stream *s, uint64_t w, struct txn *out)
{
    txn_add(out, any_row(s, w, DISTRICT), PAWL_SHARED);
    txn_add(out, any_row(s, w, ORDER_LINE), PAWL_SHARED);
    txn_add(out, any_row(s, w, STOCK), PAWL_SHARED);
}

enum tpcc_type tpcc_draw_type(struct txn_stream *s)
{
    static const uint8_t percent[TPCC_TYPES] = {45, 43, 4, 4, 4};
    uint64_t draw = rng_below(&s->random, 100);
    unsigned type = 0;
    while (draw >= percent[type])
        draw -= percent[type++];
    return type;
}

void tpcc_next(struct txn_stream *s, struct txn *out)
{
    static void (*const make[TPCC_TYPES])(struct txn_stream * s, uint64_t w, struct txn * out) = {
        [TPCC_NEW_ORDER] = new_order, [TPCC_PAYMENT] = payment,         [TPCC_ORDER_STATUS] = order_status,
        [TPCC_DELIVERY] = delivery,   [TPCC_STOCK_LEVEL] = stock_level,
    };
    out->type = tpcc_draw_type(s);
    make[out->type](s, warehouse_of(s, s->host), out);
}
