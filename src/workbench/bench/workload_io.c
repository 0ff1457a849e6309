/* SPDX-License-Identifier: Apache-2.0 */
#include "workbench/bench/workload_io.h"

#define OLTP_WRITERS 10 /* per machine, beside the one of the log */
#define OLTP_IO_PAGES 2 /* 8 KB */
#define OLTP_LOG_PAGES 64
#define OLTP_READS_PER_WRITE 10 /* 100 writes per 1,000 reads, */
#define OLTP_READS_PER_LOG 3200 /* one of the log per 3,200 */

const char *workload_io_name(enum workload_io io)
{
    static const char *const names[] = {NULL, "btio", "oltp", "io500"};
    return io < countof(names) ? names[io] : NULL;
}

static uint64_t root_of(uint64_t n)
{
    uint64_t q = 1;
    while ((q + 1) * (q + 1) <= n)
        q++;
    return q;
}

const char *workload_io_fault(enum workload_io io, unsigned clients, unsigned hosts)
{
    uint64_t q = root_of(clients);
    if (io == IO_BTIO && (q * q != clients || BTIO_EDGE % q))
        return "BT-IO has a square number of clients, the root of which divides 408: 1, 4, 9, 16, 36, 64, 144";
    if (io == IO_OLTP && clients < (2 + OLTP_WRITERS) * hosts)
        return "OLTP has a writer of the log, ten of data and at least one reader on every machine";
    return NULL;
}

/* The n-th piece of a process (px, py): cell by cell along the diagonal, in each plane by plane and row by row. */
static struct workload_op btio(struct workload_stream *s)
{
    uint64_t q = root_of(s->clients), edge = BTIO_EDGE / q, n = s->made++ % (q * edge * edge);
    uint64_t cell = n / (edge * edge), z = cell * edge + n / edge % edge, px = s->client % q, py = s->client / q;
    uint64_t y = (py + cell) % q * edge + n % edge, row = z * BTIO_EDGE + y;
    uint64_t start = row * BTIO_EDGE + (px + cell) % q * edge;
    return (struct workload_op){.mode = PAWL_EXCLUSIVE,
                                .start = start,
                                .end = start + edge,
                                .bytes = edge * BTIO_POINT_BYTES,
                                .host = (unsigned)(row % s->hosts),
                                .timed = true};
}

static struct workload_op oltp(struct workload_stream *s)
{
    unsigned role = s->client / s->hosts;
    struct workload_tally *t = &s->tallies[s->client % s->hosts];
    struct workload_op op = {.mode = PAWL_EXCLUSIVE};
    if (role == 0 && t->log_writes * OLTP_READS_PER_LOG < t->reads) {
        t->log_writes++;
        op.start = rng_below(&s->random, OLTP_PAGES / OLTP_LOG_PAGES) * OLTP_LOG_PAGES;
        op.end = op.start + OLTP_LOG_PAGES;
    } else if (role > OLTP_WRITERS || (role && t->writes * OLTP_READS_PER_WRITE < t->reads)) {
        bool reads = role > OLTP_WRITERS;
        ++*(reads ? &t->reads : &t->writes);
        op.lock = 1 + rng_below(&s->random, OLTP_FILES - 1);
        op.start = rng_below(&s->random, OLTP_PAGES / OLTP_IO_PAGES) * OLTP_IO_PAGES;
        op.end = op.start + OLTP_IO_PAGES;
        op.timed = op.fetches = reads;
        op.mode = reads && s->workload->reads ? PAWL_SHARED : PAWL_EXCLUSIVE;
    }
    op.bytes = (op.end - op.start) * IO_PAGE;
    op.host = (unsigned)((op.lock + op.start / OLTP_LOG_PAGES) % s->hosts);
    return op;
}

static struct workload_op io500(struct workload_stream *s)
{
    uint64_t at = (s->made++ * s->clients + s->client) * IO500_BYTES;
    return (struct workload_op){
        .mode = PAWL_EXCLUSIVE, .start = at / IO_PAGE, .end = (at + IO500_BYTES - 1) / IO_PAGE + 1, .timed = true};
}

struct workload_op workload_io_next(struct workload_stream *s)
{
    return s->workload->io == IO_BTIO ? btio(s) : s->workload->io == IO_OLTP ? oltp(s) : io500(s);
}

/* ---- the data path ---- */

#define ROUND_TRIP_NS 2000        /* 3.5.5: RDMA's round trip is around 2 us */
#define WIRE_BYTES_PER_US 12600   /* assumed: PCIe 3.0 x16 less its headers, which is below the NIC's 200 Gb/s (4.1) */
#define MEMORY_BYTES_PER_US 10000 /* assumed: one core's copy, DDR4-2666 (4.1) */

uint64_t io_move(struct io_wires *w, unsigned from, unsigned to, uint64_t bytes, uint64_t now_ns)
{
    if (from == to)
        return now_ns + bytes * NS_PER_US / MEMORY_BYTES_PER_US;
    uint64_t *out = &w->hosts[from].out_free_ns, *in = &w->hosts[to].in_free_ns;
    uint64_t begin = max_u64(now_ns, max_u64(*out, *in)), end = begin + bytes * NS_PER_US / WIRE_BYTES_PER_US;
    *out = *in = end;
    return end + ROUND_TRIP_NS;
}
