/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions: the locks that each takes, in which mode and order, as the generators of the papers' artifacts make them.
 *
 * TPC-C and TATP follow the lock generators of FissLock's artifact (github.com/SJTU-IPADS/fisslock, which ShiftLock's traces come
 * from, too), where a warehouse has 121 locks. SmallBank follows the bank of ShiftLock's (github.com/thustorage/shiftlock).
 * NetLock's traces are not public: its TPC-C is the standard's, one lock for each row. */
#ifndef PAWL_WORKBENCH_BENCH_TXN_H
#define PAWL_WORKBENCH_BENCH_TXN_H

#include "lib/rng.h"
#include "pawl.h"

#define TXN_LOCKS_MAX 32 /* of a transaction: TPC-C's new order has up to 16 */
#define TXN_TYPES_MAX 8

enum txn_kind { TXN_NONE, TXN_TPCC, TXN_TPCC_ROWS, TXN_TATP, TXN_SMALLBANK, TXN_TRACE };
enum tpcc_type { TPCC_NEW_ORDER, TPCC_PAYMENT, TPCC_ORDER_STATUS, TPCC_DELIVERY, TPCC_STOCK_LEVEL, TPCC_TYPES };
enum tatp_type { TATP_GS, TATP_GD, TATP_GA, TATP_US, TATP_UL, TATP_IF, TATP_DF, TATP_TYPES };
enum smallbank_type { BANK_AMALGAMATE, BANK_BALANCE, BANK_DEPOSIT, BANK_PAYMENT, BANK_SAVINGS, BANK_CHECK, BANK_TYPES };

struct txn {
    unsigned type, count;
    struct txn_lock {
        uint64_t lock;
        enum pawl_mode mode;
    } locks[TXN_LOCKS_MAX]; /* each once */
};

/* A trace in memory (txn_trace.c). */
struct txn_trace {
    struct txn *txns;
    uint64_t count, locks; /* one more than the highest lock */
};

struct txn_params {
    enum txn_kind kind;
    uint64_t scale; /* TPC-C: warehouses of each host, with a lock for each row: of all; TATP: subscribers; SmallBank: accounts */
    unsigned hosts;
    bool sorted; /* locks in ascending order; else in the order of the generator */
    struct txn_trace trace;
    uint32_t *first_row; /* TATP: by subscriber (txn_tatp.c) */
};

/* One client's transactions. */
struct txn_stream {
    const struct txn_params *params;
    struct rng random;
    unsigned host;
    uint64_t inserts[4]; /* TPC-C: rows of order, history, new-order and order-line are used in turn */
    uint64_t next;       /* of a trace */
    uint64_t step;
    struct txn again; /* one that was given up and is the next: */
    bool has_again;
};

/* Named workloads; null: there is none of that name. `hold_ns` and `timeout_ns` are what its paper says, 0: nothing. */
struct txn_preset {
    const char *name, *source;
    enum txn_kind kind;
    uint64_t scale;
    bool sorted, together, retries, moves_data; /* see struct workload */
    uint64_t hold_ns, timeout_ns;
};
extern const struct txn_preset txn_presets[];
extern const unsigned txn_preset_count;
const struct txn_preset *txn_preset_find(const char *name);

/* Before anything else, and at the end. 0 or -ENOMEM. A trace is read before. */
int txn_prepare(struct txn_params *p);
void txn_release(struct txn_params *p);

/* The number of locks; of a trace: of those that it names. */
uint64_t txn_locks(const struct txn_params *p);
unsigned txn_types(enum txn_kind kind);
const char *txn_type_name(enum txn_kind kind, unsigned type);

void txn_start(struct txn_stream *s, const struct txn_params *p, unsigned client, unsigned clients, uint64_t seed);
void txn_next(struct txn_stream *s, struct txn *out);

/* ---- for the generators (txn_tpcc.c, txn_tpcc_rows.c, txn_tatp.c) ---- */

void txn_add(struct txn *t, uint64_t lock, enum pawl_mode mode); /* a lock that is there already gets the stronger mode */
void tpcc_next(struct txn_stream *s, struct txn *out);
void tpcc_rows_next(struct txn_stream *s, struct txn *out);
enum tpcc_type tpcc_draw_type(struct txn_stream *s);
uint64_t tpcc_non_uniform(struct txn_stream *s, uint64_t a, uint64_t n); /* TPC-C's draw of 0 to n - 1 */
void tatp_next(struct txn_stream *s, struct txn *out);
uint64_t tpcc_locks(const struct txn_params *p);
uint64_t tpcc_rows_locks(const struct txn_params *p);
uint64_t tatp_locks(const struct txn_params *p);
int tatp_prepare(struct txn_params *p);

/* ---- traces (txn_trace.c): lines of txn,type,lock,mode; mode is S or X ---- */

/* 0, or a negative code with file, line and reason in `why`. The types are numbers. */
#define TXN_WHY_LEN 320
int txn_trace_read(const char *path, struct txn_trace *out, char why[TXN_WHY_LEN]);
void txn_trace_free(struct txn_trace *t);

/* Writes so many transactions of a workload as clients of that many hosts would make them in turn. */
int txn_trace_write(const char *path, const struct txn_params *p, unsigned clients, uint64_t count, uint64_t seed,
                    char why[TXN_WHY_LEN]);

#endif
