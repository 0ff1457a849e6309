/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of a benchmark as processes: they open what they need, begin together, count operations, and end together. Some may be
 * killed or stopped meanwhile. Shared by the benchmarks that compare pawl with other systems. */
#ifndef PAWL_BENCH_CROWD_H
#define PAWL_BENCH_CROWD_H

#include "bench/kit.h"
#include "lib/args.h"
#include "lib/hist.h"
#include "lib/json.h"

#define CROWD_CLIENTS_MAX 1024u
#define CROWD_WHY 240

/* Where clients find pawl's locks. */
struct crowd_place {
    const char *place;      /* as of pawl_open */
    const char *namespaces; /* files of network namespaces, with commas between them: client i enters number i modulo their count */
    uint64_t hosts;         /* not 0: client i is on host i modulo this, addresses 127.0.0.2 and up */
    pawl_options options;
};

struct crowd_report {
    _Alignas(CACHE_LINE) uint64_t ops;
    uint64_t refused;   /* writes with a token that was too low */
    uint64_t lost;      /* sessions */
    uint64_t conflicts; /* locks that another client had, where the client is told */
    uint32_t ready;
    char why[CROWD_WHY]; /* why it could not go on; else empty */
    struct hist hist;    /* of operations, nanoseconds */
};

struct crowd {
    uint64_t clients;
    uint64_t ns;    /* how long they work */
    uint64_t kills; /* clients that are killed in that time; others take their places */
    uint64_t stops; /* clients that are stopped one after the other, each for */
    uint64_t stop_ns;
    void (*work)(struct crowd *c, unsigned number); /* in the client's process: calls crowd_ready, then works until crowd_over */
    void *user;
    /* by crowd_run: */
    struct crowd_report *reports;
    struct crowd_control {
        uint32_t go, stop;
    } * control;
    double seconds, cpu_seconds; /* that passed; of all clients' processors */
};

/* 0, or -EIO after a complaint on standard error: a client failed. */
int crowd_run(struct crowd *c);
void crowd_free(struct crowd *c);

/* For clients. crowd_ready waits for the common start. */
void crowd_ready(struct crowd *c, unsigned number);
bool crowd_over(const struct crowd *c);
__attribute__((format(printf, 3, 4), noreturn)) void crowd_fail(struct crowd *c, unsigned number, const char *format, ...);

/* A session for the client with that number. */
int crowd_open(const struct crowd_place *at, unsigned number, pawl **out);

/* Operations per second, percentiles, and what went wrong, as elements of an object. */
void crowd_json(const struct crowd *c, struct json *j);

#endif
