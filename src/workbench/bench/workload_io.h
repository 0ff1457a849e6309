/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of Citron's evaluation that move data under their locks (4.3, 4.5), as streams of operations for the simulated testbed.
 */
#ifndef PAWL_WORKBENCH_BENCH_WORKLOAD_IO_H
#define PAWL_WORKBENCH_BENCH_WORKLOAD_IO_H

#include "workbench/bench/workload.h"

/* 4.3.1: NAS BT-IO class D. A grid of 408^3 points of 40 bytes; units are points. The processes, a square number of them, have a
 * diagonal multi-partition of it, so that each writes pieces of rows, 408 divided by the root of their number long, beside those of
 * others. */
#define BTIO_EDGE UINT64_C(408)
#define BTIO_POINT_BYTES 40

/* 4.3.2: Filebench OLTP. Units are pages; lock 0 is the log, the others are data files. Of every machine's clients the first writes
 * the log, ten write data, all others read. */
#define OLTP_FILES 11
#define OLTP_PAGES 2560

/* 4.5: IO500's hard write: 47,008 bytes each, one behind the other, the clients in turn. Locks only, no data. */
#define IO500_BYTES UINT64_C(47008)

#define IO_PAGE UINT64_C(4096)

const char *workload_io_name(enum workload_io io);

/* Why the workload cannot run with so many clients on so many hosts; null: it can. */
const char *workload_io_fault(enum workload_io io, unsigned clients, unsigned hosts);

/* The next operation; .end 0: it is not this client's turn yet, ask again later. */
struct workload_op workload_io_next(struct workload_stream *s);

/* ---- the data path: RDMA between the clients' machines, which store the files' data (4.3) ---- */

struct io_wires {
    struct {
        uint64_t out_free_ns, in_free_ns; /* when that machine's NIC is done with what was given to it */
    } hosts[64];
};

/* When data that is moved between `from` and `to` from now on has arrived and that is known. */
uint64_t io_move(struct io_wires *w, unsigned from, unsigned to, uint64_t bytes, uint64_t now_ns);

#endif
