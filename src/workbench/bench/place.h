/* SPDX-License-Identifier: Apache-2.0 */
/* Where the clients of a benchmark on this machine find their space: in shared memory, on a rack over loopback, in a lab, or on a
 * memory node. */
#ifndef PAWL_WORKBENCH_BENCH_PLACE_H
#define PAWL_WORKBENCH_BENCH_PLACE_H

#include "workbench/bench/bench.h"
#include "workbench/bench/lab.h"
#include "workbench/lab/loopback.h"

#define BENCH_SESSIONS_SPARE 8

struct bench_place {
    const struct bench_params *params;
    const struct design *design;
    char at[128];         /* "local:" and the segment's path, or the memory node's place; else empty */
    char folder[64];      /* of the segment */
    struct loopback rack; /* over UDP */
    struct bench_lab lab;
    pid_t node; /* the process of a memory node; 0: none */
};

/* Makes what the clients need, but for a segment, of which it makes the folder. bench_place_close cleans up, also after an error.
 */
int bench_place_open(struct bench_place *b, const struct bench_params *p, const struct design *design, char why[BENCH_WHY_LEN]);
void bench_place_close(struct bench_place *b);

/* A session of the client with that number; in a lab its process enters its host first. */
int bench_place_session(const struct bench_place *b, unsigned number, pawl **out);

#endif
