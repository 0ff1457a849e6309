/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A model of a switch with a reconfigurable match-action pipeline (RMT; Tofino's kind): a program that such a switch could not run
 * fails here.
 *
 * A program keeps its state in register arrays. A packet goes through the stages once, in one direction, and in each pass
 *
 *     touches an array once at most: one register is read and written back, the rest of the array is out of reach;
 *     touches the arrays in the order of their places: what a later stage read cannot change what an earlier one wrote.
 *
 * An array's registers have 1, 8, 16, 32 or 64 bits. An array that does not fit one stage is cut into ranges that lie in
 * consecutive stages; it is still touched once. A packet that needs more goes around again (recirculates), which is counted and
 * bounded. Stages that only compute are counted, too. The model does not check how much a stage computes: the stage functions are
 * short, and what they compare and add is at hand. */
#ifndef PAWL_DATAPLANE_RMT_H
#define PAWL_DATAPLANE_RMT_H

#include <stdbool.h>
#include <stdint.h>

#define RMT_ARRAYS_MAX 32

/* The resources of the hardware. FissLock, 7.2: 12 stages of about 560 KB; the count that they name, 1.68 M, takes a KB for 1,000
 * bytes. */
struct rmt_limits {
    unsigned stages;
    uint64_t stage_bits; /* of register memory in one stage */
    unsigned passes;     /* of one packet, at most */
};
extern const struct rmt_limits rmt_tofino;

/* One register array of a program. Arrays are listed in the order in which a packet visits them. */
struct rmt_array {
    const char *name;
    unsigned bits;     /* of one register: 1, 8, 16, 32 or 64 */
    uint64_t per_unit; /* registers per unit: 1 for what a lock has one of. A unit's are neighbours */
    uint64_t fixed;    /* registers beside those */
    bool joined;       /* in the same stages as the array before it: neither depends on what the other read */
};

struct rmt_program {
    const char *name;
    unsigned logic_stages; /* that only compute: parsing, selecting, destinations */
    unsigned arrays;
    struct rmt_array array[RMT_ARRAYS_MAX];
};

/* How many stages the program takes for that many units (locks), and how many units fit. */
unsigned rmt_stages_needed(const struct rmt_program *program, const struct rmt_limits *limits, uint64_t units);
uint64_t rmt_units_max(const struct rmt_program *program, const struct rmt_limits *limits);
unsigned rmt_bits_per_unit(const struct rmt_program *program);

/* ---- running one ---- */

struct rmt_counts {
    uint64_t packets, passes, recirculations;
    uint64_t passes_max;       /* of one packet */
    uint64_t twice;            /* broken rule: an array touched again in one pass */
    uint64_t backwards;        /* broken rule: an array before the last one touched */
    uint64_t out_of_range;     /* broken rule: no such register */
    uint64_t too_many_passes;  /* broken rule */
    uint64_t too_wide;         /* broken rule: a value that the register cannot hold */
    uint64_t without_register; /* broken rule: a write that followed no read */
};

struct rmt;

/* Null if there is no memory, or the program with that many units does not fit. */
struct rmt *rmt_new(const struct rmt_program *program, const struct rmt_limits *limits, uint64_t units);
void rmt_free(struct rmt *rmt);

/* A packet arrives; it goes around once more. False: it has already gone around as often as it may. */
void rmt_packet(struct rmt *rmt);
bool rmt_recirculate(struct rmt *rmt);

/* One access: the register is read, and written back if the stage wants. A broken rule is counted, reads as 0, and writes nothing.
 */
uint64_t rmt_read(struct rmt *rmt, unsigned array, uint64_t index);
void rmt_write(struct rmt *rmt, unsigned array, uint64_t value);

const struct rmt_counts *rmt_counts(const struct rmt *rmt);
uint64_t rmt_rules_broken(const struct rmt *rmt);

/* From the control plane, between packets: no rules. */
uint64_t rmt_peek(const struct rmt *rmt, unsigned array, uint64_t index);
void rmt_poke(struct rmt *rmt, unsigned array, uint64_t index, uint64_t value);

#endif
