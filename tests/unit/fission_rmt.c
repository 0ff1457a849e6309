/* SPDX-License-Identifier: Apache-2.0 */
/* FissLock's decider on the modelled pipeline: it breaks no rule, decides as on words in memory, and as many locks fit as the paper
 * says. */
#include "dataplane/fission_rmt.h"
#include "lib/base.h"
#include "lib/rng.h"
#include "tests/check.h"

#define LOCKS 4
#define PACKETS 200000

static void check_capacity(void)
{
    /* 7.2: 2 stages for the mode, 3 for machines, 3 for incarnations, 4 for logic. */
    CHECK_EQ(rmt_bits_per_unit(&fission_rmt_bare), 18);
    CHECK_EQ(rmt_units_max(&fission_rmt_bare, &rmt_tofino), 1680000);
    CHECK_EQ(rmt_stages_needed(&fission_rmt_bare, &rmt_tofino, 1680000), 12);
    uint64_t full = rmt_units_max(&fission_rmt_full, &rmt_tofino);
    printf("bare: %u bits per lock, %" PRIu64 " locks; full: %u bits per lock, %" PRIu64 " locks in %u stages\n",
           rmt_bits_per_unit(&fission_rmt_bare), rmt_units_max(&fission_rmt_bare, &rmt_tofino),
           rmt_bits_per_unit(&fission_rmt_full), full, rmt_stages_needed(&fission_rmt_full, &rmt_tofino, full));
    CHECK(full > 100000);
}

/* Likely ones, around what the locks' words say. */
static void draw(struct rng *r, struct fission_packet *p, const uint64_t words[LOCKS])
{
    static const uint8_t types[] = {FISSION_ACQUIRE, FISSION_ACQUIRE, FISSION_ACQUIRE, FISSION_RELEASE, FISSION_FREE,
                                    FISSION_FREE,    FISSION_GRANT,   FISSION_GRANT,   FISSION_FLAGS,   FISSION_LOOK};
    *p = (struct fission_packet){0};
    p->head.index = rng_below(r, LOCKS);
    uint64_t word = words[p->head.index];
    p->head.type = types[rng_below(r, countof(types))];
    p->mode = p->old_mode = FISSION_SHARED;
    if (rng_chance(r, 1, 3))
        p->mode = FISSION_EXCLUSIVE;
    if (!(word & FISSION_WORD_SHARED))
        p->old_mode = FISSION_EXCLUSIVE;
    p->client = p->head.from = (struct place){(uint16_t)rng_between(r, 1, 8), 3};
    p->head.to.machine = (uint16_t)rng_between(r, 1, 8);
    p->term = fission_word_term(word);
    p->inca = fission_word_inca(word);
    if (p->head.type == FISSION_GRANT && rng_chance(r, 4, 5))
        p->flags |= FISSION_AGENT;
    if (rng_chance(r, 1, 4))
        p->term = (p->term - 1) & FISSION_TERM_MASK;
    if (rng_chance(r, 1, 4))
        p->inca--;
    if (rng_chance(r, 1, 4))
        p->flags |= (uint16_t)(rng_next(r) & (FISSION_RETRY | FISSION_BOUNCED | FISSION_COPY | FISSION_NOWAIT | FISSION_WRITERS |
                                              FISSION_STARVES));
    if (p->head.type == FISSION_ACQUIRE && (p->flags & FISSION_RETRY))
        p->mode = rng_chance(r, 1, 2) ? FISSION_PLACE : p->mode;
}

static void check_same(void)
{
    struct rmt *rmt = rmt_new(&fission_rmt_full, &rmt_tofino, 100000);
    uint64_t words[LOCKS] = {0}, tokens[LOCKS] = {0};
    struct rng r;
    CHECK(rmt);
    rng_seed(&r, 1);
    unsigned reached[16] = {0};
    for (unsigned i = 0; i < PACKETS; i++) {
        struct fission_packet p;
        struct fission_meta m, there;
        draw(&r, &p, words);
        struct fission_policy policy = {.options = i < PACKETS / 2 ? 0 : FISSION_WRITE_PREFERRING};
        if (!fission_concerns_lock(&p)) {
            CHECK_EQ(fission_rmt_decide(rmt, &p, &policy, &there), FISSION_TO_NEXT);
            continue;
        }
        uint32_t dest = fission_decide(&p, &policy, &words[p.head.index], &tokens[p.head.index], &m);
        CHECK_EQ(fission_rmt_decide(rmt, &p, &policy, &there), dest);
        CHECK_EQ(there.word, m.word);
        CHECK_EQ(there.token, m.token);
        reached[dest]++;
    }
    CHECK_EQ(rmt_rules_broken(rmt), 0);
    CHECK_EQ(rmt_counts(rmt)->recirculations, 0);
    CHECK_EQ(rmt_counts(rmt)->passes_max, 1);
    CHECK(reached[FISSION_DROP] && reached[FISSION_TO_CLIENT] && reached[FISSION_TO_AGENT] && reached[FISSION_TO_NEXT] &&
          reached[FISSION_BACK] && reached[FISSION_TO_CLIENT | FISSION_TO_AGENT]);
    rmt_free(rmt);
}

/* A datagram with as many requests as fit: decided as the same requests one by one, by as many passes. */
static void check_many(void)
{
    enum { MANY = 15, DATAGRAMS = 2000 };
    struct rmt *one = rmt_new(&fission_rmt_full, &rmt_tofino, 1000), *all = rmt_new(&fission_rmt_full, &rmt_tofino, 1000);
    const struct fission_policy policy = {0};
    uint64_t words[LOCKS] = {0};
    struct rng r;
    CHECK(one && all);
    rng_seed(&r, 2);
    for (unsigned i = 0; i < DATAGRAMS; i++) {
        struct fission_packet p[MANY];
        struct fission_meta m[MANY], single;
        uint32_t destinations[MANY];
        for (unsigned k = 0; k < MANY; k++)
            draw(&r, &p[k], words); /* several are for one lock: they are decided in their order */
        CHECK(fission_rmt_decide_many(all, p, MANY, &policy, m, destinations));
        for (unsigned k = 0; k < MANY; k++) {
            CHECK_EQ(fission_rmt_decide(one, &p[k], &policy, &single), destinations[k]);
            CHECK_EQ(single.word, m[k].word);
            if (fission_concerns_lock(&p[k]))
                words[p[k].head.index] = m[k].word;
        }
    }
    CHECK_EQ(rmt_rules_broken(all), 0);
    CHECK_EQ(rmt_counts(all)->passes_max, MANY);
    CHECK_EQ(rmt_counts(all)->passes, rmt_counts(one)->passes); /* a pipeline gains nothing; hosts and cables do */
    CHECK_EQ(rmt_counts(all)->recirculations, DATAGRAMS * (MANY - 1));
    rmt_free(one);
    rmt_free(all);
}

/* Fig. 12 as printed, where nothing is lost: one lock through the workflows of Fig. 8. */
static void check_bare(void)
{
    struct rmt *rmt = rmt_new(&fission_rmt_bare, &rmt_tofino, 1680000);
    const struct fission_policy bare = {.options = FISSION_BARE};
    struct fission_meta m;
    uint64_t lock = 1679999;
    struct fission_packet acquire = {.head = {.type = FISSION_ACQUIRE, .index = lock}, .client = {1, 3}, .mode = FISSION_SHARED};
    CHECK(rmt);
    CHECK_EQ(fission_rmt_decide(rmt, &acquire, &bare, &m), FISSION_TO_CLIENT);
    acquire.client.machine = 2;
    CHECK_EQ(fission_rmt_decide(rmt, &acquire, &bare, &m), FISSION_TO_CLIENT | FISSION_TO_AGENT);
    CHECK_EQ(m.machine, 1);
    acquire.mode = FISSION_EXCLUSIVE;
    CHECK_EQ(fission_rmt_decide(rmt, &acquire, &bare, &m), FISSION_TO_AGENT);
    struct fission_packet grant = {.head = {.type = FISSION_GRANT, .index = lock, .from = {1, 0}, .to = {2, 3}},
                                   .flags = FISSION_AGENT,
                                   .old_mode = FISSION_SHARED,
                                   .mode = FISSION_EXCLUSIVE,
                                   .inca = 1};
    CHECK_EQ(fission_rmt_decide(rmt, &grant, &bare, &m), FISSION_BACK); /* Fig. 10 */
    grant.inca = 2;
    CHECK_EQ(fission_rmt_decide(rmt, &grant, &bare, &m), FISSION_TO_NEXT);
    acquire.mode = FISSION_SHARED;
    CHECK_EQ(fission_rmt_decide(rmt, &acquire, &bare, &m), FISSION_TO_AGENT);
    CHECK_EQ(m.machine, 2);
    struct fission_packet release = {.head = {.type = FISSION_FREE, .index = lock, .from = {2, 0}}, .old_mode = FISSION_EXCLUSIVE};
    CHECK_EQ(fission_rmt_decide(rmt, &release, &bare, &m), FISSION_BACK);
    CHECK(m.valid && !(m.word & FISSION_WORD_HELD));
    CHECK_EQ(rmt_rules_broken(rmt), 0);
    rmt_free(rmt);
}

/* A lagging token register is brought up to date by the term, round its end, too. */
static void check_token(void)
{
    uint64_t token = UINT64_C(5) << 40;
    for (uint64_t step = 0, term = 0; step < 3 * (UINT64_C(1) << FISSION_TERM_BITS); step += FISSION_TERM_MASK / 3) {
        term = step & FISSION_TERM_MASK;
        token = fission_token_at(token, (uint32_t)term);
        CHECK_EQ(token, (UINT64_C(5) << 40) + step);
    }
}

int main(void)
{
    check_capacity();
    check_same();
    check_many();
    check_bare();
    check_token();
    return 0;
}
