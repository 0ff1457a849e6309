/* SPDX-License-Identifier: Apache-2.0 */
/* The generators of transactions against facts of their papers and artifacts: mixes, locks per transaction, shares of exclusive
 * locks, numbers of locks. And traces: what is written is read again, and bad lines are refused by file, line and reason. */
#include "workbench/bench/txn.h"
#include "tests/check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TXNS 400000u
#define CLIENTS 16

struct sum {
    double types[TXN_TYPES_MAX], per_type[TXN_TYPES_MAX]; /* shares; locks */
    double locks, exclusive, away;                        /* per transaction; share of locks; share of payments on other hosts */
    uint64_t highest;
};

static struct sum look_at(struct txn_params *p)
{
    struct txn_stream streams[CLIENTS];
    struct sum s = {.highest = 0};
    uint64_t locks = 0, exclusive = 0, away = 0, counts[TXN_TYPES_MAX] = {0}, sizes[TXN_TYPES_MAX] = {0};
    for (unsigned i = 0; i < CLIENTS; i++)
        txn_start(&streams[i], p, i, CLIENTS, 7);
    for (unsigned n = 0; n < TXNS; n++) {
        struct txn t;
        txn_next(&streams[n % CLIENTS], &t);
        CHECK(t.type < txn_types(p->kind));
        counts[t.type]++;
        sizes[t.type] += t.count;
        locks += t.count;
        for (unsigned i = 0; i < t.count; i++) {
            CHECK(t.locks[i].lock < txn_locks(p));
            s.highest = max_u64(s.highest, t.locks[i].lock);
            exclusive += t.locks[i].mode == PAWL_EXCLUSIVE;
            away += p->kind == TXN_TPCC && t.locks[i].lock / (p->scale * 121) != streams[n % CLIENTS].host;
            for (unsigned k = 0; k < i; k++)
                CHECK(p->sorted ? t.locks[k].lock < t.locks[i].lock : t.locks[k].lock != t.locks[i].lock);
        }
    }
    for (unsigned i = 0; i < TXN_TYPES_MAX; i++) {
        s.types[i] = 100.0 * (double)counts[i] / TXNS;
        s.per_type[i] = counts[i] ? (double)sizes[i] / (double)counts[i] : 0;
    }
    s.locks = (double)locks / TXNS;
    s.exclusive = 100.0 * (double)exclusive / (double)locks;
    s.away = counts[TPCC_PAYMENT] ? 100.0 * (double)away / (double)counts[TPCC_PAYMENT] : 0;
    return s;
}

static void near(const char *what, double is, double should, double by)
{
    printf("%s: %.2f (%.2f)\n", what, is, should);
    if (fabs(is - should) > by)
        CHECK_FAIL("%s is %.3f, not within %.2f of %.2f", what, is, by, should);
}

static struct txn_params params_of(const char *preset, unsigned hosts)
{
    const struct txn_preset *p = txn_preset_find(preset);
    CHECK(p);
    struct txn_params out = {.kind = p->kind, .scale = p->scale, .sorted = p->sorted, .hosts = hosts};
    CHECK_EQ(txn_prepare(&out), 0);
    return out;
}

static void mix(enum txn_kind kind, const struct sum *s, const unsigned *percent)
{
    for (unsigned i = 0; i < txn_types(kind); i++)
        near(txn_type_name(kind, i), s->types[i], percent[i], 0.5);
}

static void tpcc(void)
{
    struct txn_params p = params_of("tpcc", 8), small = params_of("tpcc-shiftlock", 5);
    CHECK_EQ(txn_locks(&p), 1161600);
    CHECK_EQ(txn_locks(&small) - 10, 60490); /* the last ten, items, are never taken */
    struct sum s = look_at(&p), t = look_at(&small);
    mix(TXN_TPCC, &s, (const unsigned[]){45, 43, 4, 4, 4});
    near("TPC-C: locks of a transaction", s.locks, 8.7, 0.05);
    near("TPC-C: locks of a new order", s.per_type[TPCC_NEW_ORDER], 14.6, 0.1);
    near("TPC-C: exclusive locks", s.exclusive, 86.4, 0.5);
    near("TPC-C: payments for customers of other hosts", s.away, 15, 0.5);
    near("TPC-C of ShiftLock: exclusive locks", t.exclusive, 86.5, 0.5);
    CHECK(t.highest < 60490);
    txn_release(&p);
    txn_release(&small);
}

/* NetLock's artifact (console.py) has the share of TPC-C's requests that the switch would serve, by slots. With a slot for each of
 * the most wanted locks, this generator must come near where contention is: the first few thousand. */
static int falling(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

static void tpcc_rows(void)
{
    static const struct {
        unsigned slots;
        double percent;
    } published[] = {{2000, 32.9}, {4000, 37.2}, {6000, 39.8}, {8000, 41.7}, {10000, 43.2}, {20000, 48.1}};
    struct txn_params p = params_of("tpcc-netlock", 10);
    CHECK_EQ(txn_locks(&p), 7000000);
    struct sum s = look_at(&p);
    mix(TXN_TPCC_ROWS, &s, (const unsigned[]){45, 43, 4, 4, 4});
    near("TPC-C by rows: locks of a new order", s.per_type[TPCC_NEW_ORDER], 13, 0.1);
    uint32_t *wanted = calloc(txn_locks(&p), sizeof *wanted);
    CHECK(wanted);
    struct txn_stream stream;
    uint64_t all = 0, sum = 0;
    txn_start(&stream, &p, 0, 1, 3);
    for (unsigned n = 0; n < TXNS; n++) {
        struct txn t;
        txn_next(&stream, &t);
        all += t.count;
        for (unsigned i = 0; i < t.count; i++)
            wanted[t.locks[i].lock]++;
    }
    qsort(wanted, txn_locks(&p), sizeof *wanted, falling);
    for (unsigned i = 0, at = 0; i < countof(published); i++) {
        while (at < published[i].slots)
            sum += wanted[at++];
        near("TPC-C by rows: requests for the most wanted locks", 100.0 * (double)sum / (double)all, published[i].percent, 3);
    }
    free(wanted);
    txn_release(&p);
}

static void tatp(void)
{
    struct txn_params p = params_of("tatp", 8);
    near("TATP: thousands of locks", (double)txn_locks(&p) / 1000, 680.236, 2);
    struct sum s = look_at(&p);
    mix(TXN_TATP, &s, (const unsigned[]){35, 10, 35, 2, 14, 2, 2});
    near("TATP: exclusive locks", s.exclusive, 19.5, 0.5);
    txn_release(&p);
}

static void smallbank(void)
{
    struct txn_params p = params_of("smallbank", 5);
    CHECK_EQ(txn_locks(&p), 2000000);
    struct sum s = look_at(&p);
    mix(TXN_SMALLBANK, &s, (const unsigned[]){15, 15, 15, 25, 15, 15});
    CHECK(s.per_type[BANK_BALANCE] == 0);
    txn_release(&p);
}

/* ---- traces ---- */

static char path[] = "/tmp/pawl-txn-XXXXXX";

static void traces(void)
{
    struct txn_params p = params_of("tpcc-shiftlock", 5);
    struct txn_params again = {.kind = TXN_TRACE, .hosts = 5};
    struct txn_stream generator[3], reader[3];
    char why[TXN_WHY_LEN] = "";
    CHECK_EQ(txn_trace_write(path, &p, 3, 300, 9, why), 0);
    CHECK_EQ(txn_trace_read(path, &again.trace, why), 0);
    CHECK_EQ(again.trace.count, 300);
    for (unsigned i = 0; i < 3; i++) {
        txn_start(&generator[i], &p, i, 3, 9);
        txn_start(&reader[i], &again, i, 3, 1);
    }
    for (unsigned n = 0; n < 300; n++) {
        struct txn made, read;
        txn_next(&generator[n % 3], &made);
        txn_next(&reader[n % 3], &read);
        CHECK(made.type == read.type && made.count == read.count);
        for (unsigned i = 0; i < made.count; i++)
            CHECK(made.locks[i].lock == read.locks[i].lock && made.locks[i].mode == read.locks[i].mode);
    }
    txn_release(&again);
    txn_release(&p);
}

static void refused(const char *text, const char *words)
{
    struct txn_trace t;
    char why[TXN_WHY_LEN] = "";
    FILE *f = fopen(path, "we");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
    CHECK_EQ(txn_trace_read(path, &t, why), -EINVAL);
    CHECK(strstr(why, path));
    if (!strstr(why, words))
        CHECK_FAIL("'%s' is refused with '%s', not with '%s'", text, why, words);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    tpcc();
    tpcc_rows();
    tatp();
    smallbank();
    traces();
    refused("", "no transactions");
    refused("# only a remark\n", "no transactions");
    refused("1,0,5,X\nnonsense\n", "line 2: 'nonsense' does not begin");
    refused("1,0,5,X\n-1,0,5,X\n", "line 2");
    refused("1,8,5,X\n", "line 1: the type");
    refused("1,0,1099511627776,X\n", "line 1: the lock");
    refused("1,0,99999999999999999999,X\n", "line 1: the lock");
    refused("1,0,5,Y\n", "neither S nor X");
    refused("1,0,5\n", "line 1");
    refused("1,0,5,X\n1,1,6,X\n", "line 2: transaction 1 has the types 0 and 1");
    refused("1,0,5,X\n1,0,5,S\n", "line 2: transaction 1 takes lock 5 twice");
    char many[TXN_LOCKS_MAX * 16 + 64] = "";
    for (unsigned i = 0; i <= TXN_LOCKS_MAX; i++)
        sprintf(many + strlen(many), "1,0,%u,S\n", i);
    refused(many, "more than 32 locks");
    char line[400];
    memset(line, '1', sizeof line - 2);
    line[sizeof line - 2] = '\n';
    line[sizeof line - 1] = 0;
    refused(line, "longer than");
    struct txn_trace t;
    char why[TXN_WHY_LEN];
    unlink(path);
    CHECK_EQ(txn_trace_read(path, &t, why), -ENOENT);
    return 0;
}
