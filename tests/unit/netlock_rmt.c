/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's program on the model of a Tofino-class pipeline: it fits with the paper's 100,000 slots of 20 bytes (5), touches every
 * array once per pass and in order, and resubmits as often as Algorithm 2 says. */
#include "dataplane/netlock.h"
#include "dataplane/rmt.h"
#include "designs/netlock/plane.h"
#include "lib/rng.h"
#include "tests/check.h"

#define SLOTS 100000u
#define LOCKS 16384u    /* in the switch at once */
#define REQUESTS 16384u /* of all hosts */
#define TENANTS 64u

/* Arrays that do not need each other's result lie in the same stages. A slot's are 64 + 32 + 32 + 32 bits. */
static const struct rmt_program program = {
    .name = "netlock",
    .logic_stages = 0, /* which lock it is, is looked up beside the first arrays */
    .arrays = NETLOCK_ARRAYS,
    .array =
        {
            [NETLOCK_BOUNDS] = {"bounds", 64, 0, LOCKS, false},
            [NETLOCK_ROUNDS] = {"rounds", 64, 0, LOCKS, true},
            [NETLOCK_SEEN] = {"seen", 64, 0, REQUESTS, false},
            [NETLOCK_METER] = {"meter", 64, 0, TENANTS, false},
            [NETLOCK_ARRIVALS] = {"arrivals", 32, 0, LOCKS, false},
            [NETLOCK_QUEUES] = {"queues", 64, 0, LOCKS / 4 * NETLOCK_PRIORITIES, true}, /* priorities for a quarter of the locks */
            [NETLOCK_WAITING] = {"waiting", 64, 0, LOCKS, false},
            [NETLOCK_ENDS] = {"ends", 64, 0, LOCKS, false},
            [NETLOCK_PEAK] = {"peak", 32, 0, LOCKS, false},
            [NETLOCK_TICKETS] = {"tickets", 64, 0, REQUESTS, true},
            [NETLOCK_EXCL] = {"excl", 32, 0, LOCKS, true},
            [NETLOCK_NONCE] = {"nonce", 64, 1, 0, false},
            [NETLOCK_PLACE] = {"place", 32, 1, 0, true},
            [NETLOCK_FLAGS] = {"flags", 32, 1, 0, false},
            [NETLOCK_SINCE] = {"since", 32, 1, 0, false},
            [NETLOCK_TOKEN] = {"token", 64, 0, LOCKS, true},
        },
};

static uint64_t read_register(void *ctx, enum netlock_array array, uint32_t index)
{
    return rmt_read(ctx, array, index);
}

static void write_register(void *ctx, enum netlock_array array, uint32_t index, uint64_t value)
{
    rmt_write(ctx, array, value);
}

struct done {
    unsigned resubmissions, grants;
    uint32_t ticket[8];
};

/* Pipes are as many pipelines, each with arrays of its own: a packet goes to the egress pipe of its lock's home, and touches
 * nothing of the others (5). */
#define PIPES 4u
#define HOMES 6u

static struct done run(struct rmt *r, uint8_t op, unsigned who, uint8_t mode, uint32_t ticket)
{
    struct netlock_pass p = {
        .op = op, .mode = mode, .machine = 1, .port = (uint16_t)who, .nonce = NETLOCK_SERIAL_STEP + who, .ticket = ticket};
    struct done d = {0};
    rmt_packet(r);
    for (;;) {
        const struct netlock_registers at = {
            .ctx = r, .read = read_register, .write = write_register, .lock = 5, .request = netlock_request_of(p.nonce)};
        netlock_run(&p, &at);
        if (p.out & NETLOCK_OUT_GRANT)
            d.ticket[d.grants++] = p.out_ticket;
        if (p.next == NETLOCK_OP_NONE)
            return d;
        netlock_resubmit(&p);
        CHECK(rmt_recirculate(r));
        d.resubmissions++;
    }
}

static void check_pipes(const struct rmt_limits *limits)
{
    const struct plane_config config = {.slots = PIPES * SLOTS, .pipes = PIPES, .homes = HOMES};
    struct rmt *pipe[PIPES];
    uint64_t packets[PIPES] = {0};
    for (unsigned i = 0; i < PIPES; i++) {
        pipe[i] = rmt_new(&program, limits, SLOTS);
        CHECK(pipe[i]);
        rmt_poke(pipe[i], NETLOCK_BOUNDS, 5, (uint64_t)16 << 16);
    }
    for (uint64_t index = 0; index < 4 * HOMES; index++) {
        uint32_t at = plane_pipe(&config, index);
        struct done d = run(pipe[at], NETLOCK_OP_ACQUIRE, (unsigned)index, NETLOCK_EXCLUSIVE, 0);
        CHECK_EQ(d.grants, !packets[at]); /* the first in its pipe, whatever the other pipes have */
        packets[at]++;
    }
    for (unsigned i = 0; i < PIPES; i++) {
        CHECK_EQ(rmt_counts(pipe[i])->packets, packets[i]);
        CHECK_EQ(rmt_rules_broken(pipe[i]), 0);
        rmt_free(pipe[i]);
    }
    printf("%u pipes: %u slots, of which a lock can have those of its home's pipe\n", PIPES, config.slots);
}

int main(void)
{
    const struct rmt_limits limits = {.stages = rmt_tofino.stages, .stage_bits = rmt_tofino.stage_bits, .passes = 64};
    CHECK_EQ(rmt_bits_per_unit(&program), 8 * NETLOCK_SLOT_BYTES);
    CHECK(NETLOCK_SLOT_BYTES <= 20);
    printf("netlock: %u stages of %u for %u slots of %u bits; at most %" PRIu64 " slots\n",
           rmt_stages_needed(&program, &limits, SLOTS), limits.stages, SLOTS, rmt_bits_per_unit(&program),
           rmt_units_max(&program, &limits));
    struct rmt *r = rmt_new(&program, &limits, SLOTS);
    CHECK(r); /* it fits */
    rmt_poke(r, NETLOCK_BOUNDS, 5, (uint64_t)70000 << 32 | 16 << 16);

    /* Sequences of modes, released in order: shared to shared, shared to exclusive and exclusive to exclusive resubmit once
     * (line 12), exclusive to k shared k + 1 times (lines 12, 21, 27). */
    static const char *const sequences[] = {"XXXX", "SSSX", "XSSSX", "SXSX", "XSSS", "X", "SS"};
    for (unsigned s = 0; s < sizeof sequences / sizeof *sequences; s++) {
        const char *modes = sequences[s];
        unsigned n = (unsigned)strlen(modes);
        uint32_t ticket[8];
        unsigned base = s * 8, granted = 0;
        for (unsigned i = 0; i < n; i++) {
            struct done d = run(r, NETLOCK_OP_ACQUIRE, base + i, modes[i] == 'X' ? NETLOCK_EXCLUSIVE : NETLOCK_SHARED, 0);
            CHECK_EQ(d.resubmissions, 0); /* line rate */
            for (unsigned g = 0; g < d.grants; g++)
                ticket[granted++] = d.ticket[g];
        }
        for (unsigned i = 0; i < n; i++) {
            unsigned shared = 0;
            while (modes[i] == 'X' && i + 1 + shared < n && modes[i + 1 + shared] == 'S')
                shared++;
            struct done d = run(r, NETLOCK_OP_RELEASE, base + i, 0, ticket[i]);
            CHECK_EQ(d.resubmissions, 1 + shared);
            for (unsigned g = 0; g < d.grants; g++)
                ticket[granted++] = d.ticket[g];
        }
        CHECK_EQ(granted, n);
    }
    CHECK_EQ(rmt_rules_broken(r), 0);
    CHECK_EQ(rmt_peek(r, NETLOCK_EXCL, 5), 0);
    rmt_free(r);
    check_pipes(&limits);
    return 0;
}
