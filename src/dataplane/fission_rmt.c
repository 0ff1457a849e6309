/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/fission_rmt.h"

/* The arrays' order is the stages' of Fig. 12. */
enum { BARE_INCA, BARE_FREE, BARE_RW, BARE_MID };
enum { FULL_ASKED, FULL_CHECK, FULL_FREE, FULL_RW, FULL_WRITERS, FULL_STARVES, FULL_TAKEN, FULL_MID, FULL_TOKEN };

#define LOGIC_STAGES 4 /* 7.2: occupied by control and computing */

const struct rmt_program fission_rmt_bare = {
    .name = "fission, bare",
    .logic_stages = LOGIC_STAGES,
    .arrays = 4,
    .array =
        {
            [BARE_INCA] = {"inca", 8, 1, 0, false},
            [BARE_FREE] = {"free", 1, 1, 0, false},
            [BARE_RW] = {"r/w", 1, 1, 0, false},
            [BARE_MID] = {"mid", 8, 1, 0, false},
        },
};

/* Term and incarnation are one register: both halves are compared and changed at once, as the pipeline's paired words are. The
 * writers' bits lie beside r/w: after `free` the change to each is known. */
const struct rmt_program fission_rmt_full = {
    .name = "fission, full",
    .logic_stages = LOGIC_STAGES,
    .arrays = 9,
    .array =
        {
            [FULL_ASKED] = {"asked", 1, 0, UINT16_MAX + 1, false},
            [FULL_CHECK] = {"term, inca", 64, 1, 0, true},
            [FULL_FREE] = {"free", 1, 1, 0, false},
            [FULL_RW] = {"r/w", 1, 1, 0, false},
            [FULL_WRITERS] = {"writers", 1, 1, 0, false},
            [FULL_STARVES] = {"starves", 1, 1, 0, true},
            [FULL_TAKEN] = {"taken", 1, 1, 0, true},
            [FULL_MID] = {"mid", 16, 1, 0, false},
            [FULL_TOKEN] = {"token", 64, 1, 0, false},
        },
};

static bool read_bit(struct rmt *rmt, unsigned array, uint64_t index)
{
    return rmt_read(rmt, array, index) != 0;
}

static uint32_t pass(struct rmt *rmt, const struct fission_packet *p, const struct fission_policy *policy, struct fission_meta *m)
{
    bool bare = policy->options & FISSION_BARE;
    uint64_t index = p->head.index;
    *m = (struct fission_meta){0};
    uint16_t who = bare ? MACHINE_NONE : fission_presence_of(p);
    if (who != MACHINE_NONE) {
        bool asked = read_bit(rmt, FULL_ASKED, who);
        if (fission_absent(p, &asked))
            return FISSION_BACK;
        rmt_write(rmt, FULL_ASKED, asked);
    }
    if (!fission_concerns_lock(p))
        return fission_destination(p, policy, m);

    uint64_t check = rmt_read(rmt, bare ? BARE_INCA : FULL_CHECK, index);
    uint32_t term = bare ? 0 : (uint32_t)(check >> 32);
    uint16_t inca = (uint16_t)check;
    fission_check(p, policy, m, &term, &inca);
    rmt_write(rmt, bare ? BARE_INCA : FULL_CHECK, (uint64_t)term << 32 | inca);

    bool held = read_bit(rmt, bare ? BARE_FREE : FULL_FREE, index);
    fission_free(p, m, &held);
    rmt_write(rmt, bare ? BARE_FREE : FULL_FREE, held);

    bool shared = read_bit(rmt, bare ? BARE_RW : FULL_RW, index);
    fission_rw(p, m, &shared);
    rmt_write(rmt, bare ? BARE_RW : FULL_RW, shared);

    if (!bare) {
        bool writers = read_bit(rmt, FULL_WRITERS, index);
        fission_writers(p, policy, m, &writers);
        rmt_write(rmt, FULL_WRITERS, writers);
        bool starves = read_bit(rmt, FULL_STARVES, index);
        fission_starves(p, policy, m, &starves);
        rmt_write(rmt, FULL_STARVES, starves);
        bool taken = read_bit(rmt, FULL_TAKEN, index);
        fission_taken(p, m, &taken);
        rmt_write(rmt, FULL_TAKEN, taken);
    }

    unsigned mid = bare ? BARE_MID : FULL_MID;
    uint16_t machine = (uint16_t)rmt_read(rmt, mid, index);
    fission_mid(p, m, &machine);
    rmt_write(rmt, mid, machine);

    if (!bare) {
        uint64_t token = rmt_read(rmt, FULL_TOKEN, index);
        fission_token(m, &token);
        rmt_write(rmt, FULL_TOKEN, token);
    }
    return fission_destination(p, policy, m);
}

uint32_t fission_rmt_decide(struct rmt *rmt, const struct fission_packet *p, const struct fission_policy *policy,
                            struct fission_meta *m)
{
    rmt_packet(rmt);
    return pass(rmt, p, policy, m);
}

bool fission_rmt_decide_many(struct rmt *rmt, const struct fission_packet *p, unsigned count, const struct fission_policy *policy,
                             struct fission_meta *m, uint32_t *destinations)
{
    rmt_packet(rmt);
    for (unsigned i = 0; i < count; i++) {
        if (i && !rmt_recirculate(rmt))
            return false;
        destinations[i] = pass(rmt, &p[i], policy, &m[i]);
    }
    return true;
}
