/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/rmt.h"

#include <assert.h>
#include <stdlib.h>

const struct rmt_limits rmt_tofino = {.stages = 12, .stage_bits = UINT64_C(560) * 1000 * 8, .passes = 64};

#define UNITS_LIMIT (UINT64_C(1) << 40) /* beyond any switch; keeps the products below 2^64 */

/* ---- how much fits ---- */

static uint64_t registers(const struct rmt_array *a, uint64_t units)
{
    return a->fixed + a->per_unit * units;
}

/* A register does not straddle two stages. */
static uint64_t stages_of(const struct rmt_array *a, const struct rmt_limits *limits, uint64_t units)
{
    uint64_t per_stage = limits->stage_bits / a->bits;
    return (registers(a, units) + per_stage - 1) / per_stage;
}

unsigned rmt_stages_needed(const struct rmt_program *program, const struct rmt_limits *limits, uint64_t units)
{
    uint64_t total = program->logic_stages;
    assert(units <= UNITS_LIMIT);
    for (unsigned i = 0; i < program->arrays;) {
        /* Arrays that are joined share their stages' memory. */
        uint64_t bits = 0, longest = 0;
        unsigned first = i;
        do {
            uint64_t stages = stages_of(&program->array[i], limits, units);
            bits += registers(&program->array[i], units) * program->array[i].bits;
            longest = stages > longest ? stages : longest;
            i++;
        } while (i < program->arrays && program->array[i].joined);
        uint64_t packed = (bits + limits->stage_bits - 1) / limits->stage_bits;
        total += i - first == 1 || longest > packed ? longest : packed;
    }
    return total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
}

uint64_t rmt_units_max(const struct rmt_program *program, const struct rmt_limits *limits)
{
    uint64_t low = 0, high = UNITS_LIMIT;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (rmt_stages_needed(program, limits, middle) <= limits->stages)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

unsigned rmt_bits_per_unit(const struct rmt_program *program)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < program->arrays; i++)
        bits += (unsigned)program->array[i].per_unit * program->array[i].bits;
    return bits;
}

/* ---- running ---- */

#define NOTHING UINT64_MAX

struct rmt {
    struct rmt_program program;
    struct rmt_limits limits;
    struct rmt_counts counts;
    uint64_t size[RMT_ARRAYS_MAX];
    void *memory[RMT_ARRAYS_MAX]; /* registers, each in the least number of bytes */
    uint64_t passes;              /* of this packet */
    bool touched[RMT_ARRAYS_MAX]; /* in this pass */
    int last;                     /* array that was touched last in it; -1: none */
    uint64_t open;                /* register that may be written: of array `last` */
};

struct rmt *rmt_new(const struct rmt_program *program, const struct rmt_limits *limits, uint64_t units)
{
    if (units > rmt_units_max(program, limits))
        return NULL;
    struct rmt *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->program = *program;
    r->limits = *limits;
    for (unsigned i = 0; i < program->arrays; i++) {
        unsigned bits = program->array[i].bits;
        assert(bits == 1 || bits == 8 || bits == 16 || bits == 32 || bits == 64);
        r->size[i] = registers(&program->array[i], units);
        r->memory[i] = calloc(r->size[i] ? r->size[i] : 1, bits == 1 ? 1 : bits / 8);
        if (!r->memory[i]) {
            rmt_free(r);
            return NULL;
        }
    }
    r->last = -1;
    r->open = NOTHING;
    return r;
}

void rmt_free(struct rmt *rmt)
{
    if (!rmt)
        return;
    for (unsigned i = 0; i < RMT_ARRAYS_MAX; i++)
        free(rmt->memory[i]);
    free(rmt);
}

static void new_pass(struct rmt *r)
{
    for (unsigned i = 0; i < RMT_ARRAYS_MAX; i++)
        r->touched[i] = false;
    r->last = -1;
    r->open = NOTHING;
    r->counts.passes++;
    if (++r->passes > r->counts.passes_max)
        r->counts.passes_max = r->passes;
}

void rmt_packet(struct rmt *rmt)
{
    rmt->counts.packets++;
    rmt->passes = 0;
    new_pass(rmt);
}

bool rmt_recirculate(struct rmt *rmt)
{
    if (rmt->passes >= rmt->limits.passes) {
        rmt->counts.too_many_passes++;
        return false;
    }
    rmt->counts.recirculations++;
    new_pass(rmt);
    return true;
}

static uint64_t load(const struct rmt *r, unsigned array, uint64_t index)
{
    const void *memory = r->memory[array];
    switch (r->program.array[array].bits) {
    case 16:
        return ((const uint16_t *)memory)[index];
    case 32:
        return ((const uint32_t *)memory)[index];
    case 64:
        return ((const uint64_t *)memory)[index];
    default:
        return ((const uint8_t *)memory)[index];
    }
}

static void store(struct rmt *r, unsigned array, uint64_t index, uint64_t value)
{
    void *memory = r->memory[array];
    switch (r->program.array[array].bits) {
    case 16:
        ((uint16_t *)memory)[index] = (uint16_t)value;
        break;
    case 32:
        ((uint32_t *)memory)[index] = (uint32_t)value;
        break;
    case 64:
        ((uint64_t *)memory)[index] = value;
        break;
    default:
        ((uint8_t *)memory)[index] = (uint8_t)value;
    }
}

/* Joined arrays lie side by side: between them there is no order. */
static int place(const struct rmt *r, int array)
{
    while (array > 0 && r->program.array[array].joined)
        array--;
    return array;
}

uint64_t rmt_read(struct rmt *rmt, unsigned array, uint64_t index)
{
    assert(array < rmt->program.arrays);
    rmt->open = NOTHING;
    if (rmt->touched[array]) {
        rmt->counts.twice++;
        return 0;
    }
    if (place(rmt, (int)array) < place(rmt, rmt->last)) {
        rmt->counts.backwards++;
        return 0;
    }
    rmt->touched[array] = true;
    rmt->last = (int)array;
    if (index >= rmt->size[array]) {
        rmt->counts.out_of_range++;
        return 0;
    }
    rmt->open = index;
    return load(rmt, array, index);
}

void rmt_write(struct rmt *rmt, unsigned array, uint64_t value)
{
    assert(array < rmt->program.arrays);
    unsigned bits = rmt->program.array[array].bits;
    if (rmt->open == NOTHING || rmt->last != (int)array)
        rmt->counts.without_register++;
    else if (bits < 64 && value >> bits)
        rmt->counts.too_wide++;
    else
        store(rmt, array, rmt->open, value);
    rmt->open = NOTHING;
}

const struct rmt_counts *rmt_counts(const struct rmt *rmt)
{
    return &rmt->counts;
}

uint64_t rmt_rules_broken(const struct rmt *rmt)
{
    const struct rmt_counts *c = &rmt->counts;
    return c->twice + c->backwards + c->out_of_range + c->too_many_passes + c->too_wide + c->without_register;
}

uint64_t rmt_peek(const struct rmt *rmt, unsigned array, uint64_t index)
{
    assert(array < rmt->program.arrays && index < rmt->size[array]);
    return load(rmt, array, index);
}

void rmt_poke(struct rmt *rmt, unsigned array, uint64_t index, uint64_t value)
{
    assert(array < rmt->program.arrays && index < rmt->size[array]);
    store(rmt, array, index, value);
}
