/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of benchmarks on this machine share this: the parent (shm.c) and its clients (shm_client.c). */
#ifndef PAWL_WORKBENCH_BENCH_SHM_H
#define PAWL_WORKBENCH_BENCH_SHM_H

#include "workbench/bench/place.h"

#include <pthread.h>

#define BENCH_HOLDERS_MAX 32 /* sessions that hold ranges all the while */

/* A client's results, in memory that it shares with the parent. */
struct client_report {
    _Alignas(CACHE_LINE) uint64_t ops; /* as it goes */
    uint64_t aborts, timeouts, violations, peak_rss, end_ns;
    struct packet_grants grants; /* over packets: of its host so far */
    bool finished, fast;
    int error;
    char why[BENCH_WHY_LEN];
    struct hist hist;
};

struct control {
    uint32_t ready; /* clients with a session */
    uint32_t stop;
};

struct bench_shm {
    const struct bench_params *params;
    const struct design *design;
    struct bench_place place;
    struct control *control;
    struct client_report *reports;
    struct validator *validators;
    struct range_slot *slots;         /* with ranges */
    struct hist *types;               /* of transactions: of each client by type */
    pawl *holders[BENCH_HOLDERS_MAX]; /* sessions that hold ranges all the while */
    unsigned holder_count;
    int held_fd;
    struct zipf zipf;
    int start_pipe[2]; /* a byte for each client: go */
    unsigned round;
};

struct client {
    struct bench_shm *bench;
    unsigned number;
    pthread_t thread;
    pid_t pid;
};

int bench_fail(char why[BENCH_WHY_LEN], int rc, const char *what);

/* The thread, or the process, of a client: a struct client. */
void *bench_client_main(void *arg);

static inline uint64_t validator_bytes(const struct bench_shm *b)
{
    return b->params->workload.locks * sizeof *b->validators;
}

#endif
