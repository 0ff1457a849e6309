/* SPDX-License-Identifier: Apache-2.0 */
/* A small world by a seed, for hunts: all of its schedules are few enough to be run in seconds, most of the time. */
#include "lib/rng.h"
#include "workbench/trial/exhaust.h"

#include <string.h>

#define SCHEDULES_MAX 60000 /* of one world: some seconds */

static bool one_in(struct rng *r, unsigned n)
{
    return !rng_below(r, n);
}

static char draw_letter(struct rng *r, const struct design *d)
{
    bool shared = d->features & DESIGN_SHARED && one_in(r, 3), impatient = d->features & DESIGN_TIMEOUT && one_in(r, 3);
    return shared ? (impatient ? 's' : 'S') : impatient ? 'x' : 'X';
}

/* A client among three has one operation, one of them sometimes two. With three clients one is preempted and struck. */
static void draw_plan(struct rng *r, const struct design *d, struct exhaust_plan *out)
{
    *out = (struct exhaust_plan){.clients = one_in(r, 3) ? 2 : 3};
    const bool three = out->clients == 3;
    unsigned busy = three && !one_in(r, 2) ? EXHAUST_CLIENTS_MAX : (unsigned)rng_below(r, out->clients);
    for (unsigned i = 0; i < out->clients; i++) {
        unsigned ops = !three || i == busy ? 2 : 1;
        for (unsigned k = 0; k < ops; k++)
            out->ops[i][k] = draw_letter(r, d);
        if (d->features & DESIGN_RANGES && one_in(r, 3))
            out->parts |= 1u << i;
    }
    if (three)
        out->spared = 7u & ~(1u << rng_below(r, 3));
    if (d->node_tends && one_in(r, 3))
        out->residents = 1;
}

/* One of three writers gives up, and it alone is preempted and struck: queues are undone then, while others come. */
static void draw_giving_up(struct rng *r, struct exhaust_plan *out)
{
    const unsigned gives_up = (unsigned)rng_below(r, 3), other = (gives_up + 1 + (unsigned)rng_below(r, 2)) % 3;
    *out = (struct exhaust_plan){.clients = 3, .spared = 7u & ~(1u << gives_up)};
    for (unsigned i = 0; i < out->clients; i++)
        out->ops[i][0] = i == gives_up ? 'x' : 'X';
    if (one_in(r, 2))
        out->ops[other][1] = 'X';
}

/* Of the connection or the network. */
static uint32_t way_faults(const struct design *d)
{
    return d->packet ? FAULT_BIT(FAULT_LOSS) | FAULT_BIT(FAULT_DUPLICATE) | FAULT_BIT(FAULT_REORDER) : FAULT_BIT(FAULT_UNKNOWN);
}

static uint32_t draw_faults(struct rng *r, const struct design *d, uint32_t allowed)
{
    const uint32_t kinds[] = {way_faults(d), FAULT_BIT(FAULT_CRASH_CLIENT), FAULT_BIT(FAULT_PAUSE), 0};
    uint64_t n = rng_below(r, 6);
    return (n < 3 ? kinds[0] : kinds[n - 2]) & allowed & d->tolerates;
}

void exhaust_draw(const struct design *d, uint32_t faults, uint64_t seed, struct exhaust_params *out)
{
    struct rng r;
    rng_seed(&r, seed);
    *out = (struct exhaust_params){.design = d, .preemptions = 1, .early = one_in(&r, 4), .schedules_max = SCHEDULES_MAX};
    if (d->features & DESIGN_TIMEOUT && one_in(&r, 2)) {
        draw_giving_up(&r, &out->plan);
        out->early = 0;
        out->faults = way_faults(d) & faults & d->tolerates;
    } else {
        draw_plan(&r, d, &out->plan);
        out->faults = draw_faults(&r, d, faults);
    }
    out->strikes = out->faults != 0;
    out->preemptions += out->plan.clients == 2 && !out->faults;
}
