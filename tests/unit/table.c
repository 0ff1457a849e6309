/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys when connections break: a verb's outcome is unknown at every place in turn, with and without its effect, and
 * another session inserts the same key in between. Whatever happens, both find one lock, and no cell stays claimed or condemned. */
#include "cluster/table.h"
#include "cluster/session.h"
#include "designs/word/word.h"
#include "fabric/lower.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS 2
#define RECORDS 8
#define SITE_CAPS (FAB_ATOMIC128 | FAB_ORDERED | FAB_SHARED_CLOCK)
#define VERBS_MAX 60 /* more than any insertion here takes */

/* ---- a fabric of plain memory that can be told to break ---- */

static struct site {
    char *memory;
    struct layout_header header;
    struct space space;
    struct table table;
    struct session sessions[SESSIONS];
    uint64_t shadows[SESSIONS][RECORDS];
    struct sighting seen[SESSIONS][SESSIONS];
    struct fab_ep eps[SESSIONS];
    struct seat seats[SESSIONS];
} site;

static struct plan {
    unsigned verbs;              /* of the first session, so far */
    unsigned break_at, again_at; /* unknown outcomes; 0: none */
    bool effect;                 /* the first of them took effect nevertheless */
    unsigned meddle_at;          /* before this one the other session inserts the key */
    pawl_key key;
    struct cell other;
} plan;

static void execute(struct fab_op *op)
{
    void *at = site.memory + FAB_OFFSET(op->addr);
    u128 word = 0;
    if (op->verb == FAB_READ) {
        memcpy(op->buf, at, op->len);
    } else if (op->verb == FAB_WRITE) {
        memcpy(at, op->buf, op->len);
    } else {
        memcpy(&word, at, op->width);
        op->old = word;
        word = fab_verb_result(op, word);
        memcpy(at, &word, op->width);
    }
}

static int batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    bool first = ep == &site.eps[0];
    if (first && ++plan.verbs == plan.meddle_at) {
        int rc = table_find_or_insert(&site.seats[1], &site.table, plan.key, &plan.other);
        CHECK(!rc || rc == -EAGAIN); /* it waits in vain for the first one's claim, which stands still meanwhile */
    }
    bool breaks = first && (plan.verbs == plan.break_at || plan.verbs == plan.again_at);
    if (!breaks || (plan.effect && plan.verbs == plan.break_at))
        for (unsigned i = 0; i < n; i++)
            execute(&ops[i]);
    return breaks ? -FAB_EUNKNOWN : 0;
}

static void post(struct fab_ep *ep, const struct fab_op *op)
{
    struct fab_op copy = *op;
    execute(&copy);
}

static int wait_none(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    return n ? 0 : -ETIMEDOUT;
}

static int wake_none(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    return 0;
}

static int fence_none(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    return -EAGAIN;
}

static const struct fab_ops ops = {.batch = batch, .post = post, .wait = wait_none, .wake = wake_none, .fence = fence_none};

/* ---- a space with two sessions ---- */

static void begin(enum pawl_keys keys, uint64_t capacity)
{
    const struct layout_params p = {.design = &design_word,
                                    .keys = keys,
                                    .capacity = capacity,
                                    .sessions = SESSIONS,
                                    .holds = RECORDS,
                                    .lease_ns = 3600 * NS_PER_S,
                                    .check_ns = NS_PER_MS,
                                    .caps = SITE_CAPS,
                                    .birth = 7};
    plan = (struct plan){0};
    CHECK_EQ(layout_make(&p, &site.header), 0);
    site.memory = calloc(1, site.header.total_bytes);
    CHECK(site.memory);
    layout_space(&site.header, 0, &site.space);
    table_init(&site.table, &site.header, 0);
    for (unsigned i = 0; i < SESSIONS; i++) {
        const struct session_params params = {.lease_ns = p.lease_ns, .proof = i + 1, .label = "test"};
        site.eps[i] = (struct fab_ep){.ops = &ops, .world = &world_real, .caps = SITE_CAPS, .id = i};
        site.sessions[i] = (struct session){.shadow = site.shadows[i], .seen = site.seen[i]};
        site.seats[i] = (struct seat){.space = &site.space, .me = &site.sessions[i], .ep = &site.eps[i], .world = &world_real};
        CHECK_EQ(session_open(&site.seats[i], &params), 0);
    }
    plan.verbs = 0;
}

static void end(void)
{
    for (uint64_t i = 0; i < site.table.buckets; i++) {
        uint64_t meta;
        memcpy(&meta, site.memory + site.table.cells + i * site.table.cell_bytes + 8, sizeof meta);
        unsigned state = (unsigned)(meta >> CELL_STATE_SHIFT);
        if (state == CELL_CLAIMED || state == CELL_CONDEMNED || state == CELL_ZOMBIE)
            CHECK_FAIL("cell %u is left in state %u: broke at %u and %u, other at %u", (unsigned)i, state, plan.break_at,
                       plan.again_at, plan.meddle_at);
    }
    free(site.memory);
}

/* The first session inserts, and must find the lock of the other one, should that have inserted meanwhile or come later. */
static void insert(void)
{
    struct cell mine;
    int rc = table_find_or_insert(&site.seats[0], &site.table, plan.key, &mine);
    plan.verbs = 1000 * VERBS_MAX; /* from here on nothing happens */
    while (rc == -FAB_EUNKNOWN)    /* as callers do */
        rc = table_find_or_insert(&site.seats[0], &site.table, plan.key, &mine);
    CHECK_EQ(rc, 0);
    CHECK_EQ(table_find_or_insert(&site.seats[1], &site.table, plan.key, &plan.other), 0);
    CHECK_EQ(mine.index, plan.other.index);
}

static void one_key_two_sessions(enum pawl_keys keys)
{
    pawl_key key = keys == PAWL_KEYS_NAMED ? pawl_name("somebody") : pawl_id(7);
    for (unsigned meddle = 1; meddle < VERBS_MAX; meddle += 1)
        for (unsigned at = meddle; at < meddle + 12; at++)
            for (unsigned again = 0; again < 4; again++)
                for (unsigned effect = 0; effect < 2; effect++) {
                    begin(keys, 8);
                    plan.key = key;
                    plan.meddle_at = meddle;
                    plan.break_at = at;
                    plan.again_at = again ? at + again : 0;
                    plan.effect = effect;
                    insert();
                    end();
                }
}

/* No room: idle locks are forgotten for the new one, and the one that is held is spared. */
static void full_table(void)
{
    for (unsigned at = 1; at < VERBS_MAX; at++)
        for (unsigned again = 0; again < 4; again++)
            for (unsigned effect = 0; effect < 2; effect++) {
                struct cell place;
                struct hold h;
                begin(PAWL_KEYS_SPARSE, 2);
                uint64_t used = 0;
                for (; used < site.table.buckets; used++)
                    CHECK_EQ(table_find_or_insert(&site.seats[1], &site.table, pawl_id(used), &place), 0);
                plan.key = pawl_id(used);
                uint64_t home = table_home(used, site.table.home_shift); /* the first to be looked at is held */
                CHECK_EQ(hold_open(&site.seats[1], home, &h), 0);
                h.mode = PAWL_EXCLUSIVE;
                CHECK_EQ(design_word.acquire(&site.seats[1], &h, DEADLINE_TRY), 0);
                plan.verbs = 0;
                plan.break_at = at;
                plan.again_at = again ? at + again : 0;
                plan.effect = effect;
                insert();
                CHECK(design_word.holds(&site.seats[1], &h));
                CHECK_EQ(design_word.release(&site.seats[1], &h), 0);
                end();
            }
}

/* The key's part in a cell, and spare room of the table. */
static void keys_of_cells(void)
{
    char name[PAWL_NAME_MAX + 1] = "";
    uint64_t id_or_len = 0;
    struct cell place;
    begin(PAWL_KEYS_NAMED, 8);
    CHECK_EQ(table_find_or_insert(&site.seats[0], &site.table, pawl_name("somebody"), &place), 0);
    CHECK_EQ(table_key_at(&site.seats[0], &site.table, place.index, name, &id_or_len), 1);
    CHECK_STR(name, "somebody");
    CHECK_EQ(id_or_len, strlen("somebody"));
    CHECK_EQ(table_key_at(&site.seats[0], &site.table, (place.index + 1) % site.table.buckets, name, &id_or_len), 0);
    CHECK_EQ(site.table.buckets, 16);
    end();
    begin(PAWL_KEYS_SPARSE, 8);
    CHECK_EQ(table_find_or_insert(&site.seats[0], &site.table, pawl_id(77), &place), 0);
    CHECK_EQ(table_key_at(&site.seats[0], &site.table, place.index, name, &id_or_len), 1);
    CHECK_EQ(id_or_len, 77);
    end();
}

static uint64_t buckets(enum pawl_keys keys, uint64_t capacity)
{
    const struct layout_params p = {.design = &design_word,
                                    .keys = keys,
                                    .capacity = capacity,
                                    .sessions = SESSIONS,
                                    .holds = RECORDS,
                                    .caps = SITE_CAPS,
                                    .lease_ns = NS_PER_S};
    struct layout_header h;
    struct table t;
    CHECK_EQ(layout_make(&p, &h), 0);
    table_init(&t, &h, 0);
    return t.buckets;
}

/* At most three quarters full; sparse keys of a size that leaves the cache have sixteen times the room. */
static void sizes(void)
{
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 3), 4);
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 4), 8);
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 255), 512);
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 256), 4096);
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 4096), 65536);
    CHECK_EQ(buckets(PAWL_KEYS_SPARSE, 4097), 8192);
    CHECK_EQ(buckets(PAWL_KEYS_NAMED, 1024), 2048);
}

#define LAYOUT(design_, ...)                                                                                                       \
    ({                                                                                                                             \
        struct layout_params p = {.design = design_find(design_),                                                                  \
                                  .keys = PAWL_KEYS_DENSE,                                                                         \
                                  .capacity = 4,                                                                                   \
                                  .sessions = 2,                                                                                   \
                                  .holds = 2,                                                                                      \
                                  .lease_ns = NS_PER_S};                                                                           \
        struct layout_header h;                                                                                                    \
        __VA_ARGS__;                                                                                                               \
        layout_make(&p, &h);                                                                                                       \
    })

/* Spaces that cannot be. */
static void limits(void)
{
    struct knobs knobs = design_knobs(design_find("citron"));
    CHECK_EQ(LAYOUT("word", (void)0), 0);
    CHECK_EQ(LAYOUT("word", p.capacity = 0), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.capacity = LAYOUT_CAPACITY_MAX + 1), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.sessions = 0), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.sessions = SLOTS_MAX), 0);
    CHECK_EQ(LAYOUT("word", p.sessions = SLOTS_MAX + 1), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.holds = 0), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.holds = RECORDS_MAX + 1), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.keys = 0), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.keys = PAWL_KEYS_DENSE + 1), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.nodes = 2, p.node = 1), 0);
    CHECK_EQ(LAYOUT("word", p.nodes = 2, p.node = 2), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.range_units = 1), -EINVAL); /* it has no ranges */
    CHECK_EQ(LAYOUT("word", p.range_max = 1), -EINVAL);
    CHECK_EQ(LAYOUT("word", p.unit_bytes = 1), -EINVAL);
    CHECK_EQ(LAYOUT("citron", p.range_units = 64, p.range_max = 64, p.unit_bytes = 4096), 0);
    CHECK_EQ(LAYOUT("citron", p.range_units = 65, p.range_max = 64), -EINVAL);
    CHECK_EQ(LAYOUT("citron", p.range_max = RANGE_UNITS_MAX + 1), -EINVAL);
    CHECK_EQ(LAYOUT("citron", p.unit_bytes = 3), -EINVAL);
    CHECK_EQ(LAYOUT("citron", p.unit_bytes = LAYOUT_UNIT_BYTES_MAX * 2), -EINVAL);
    CHECK_EQ(LAYOUT("citron", p.capacity = LAYOUT_CAPACITY_MAX, p.range_units = UINT64_C(1) << 30), -EFBIG);
    CHECK_EQ(LAYOUT("citron", p.knobs = &knobs), 0);
    knobs.value[0] = UINT32_MAX;
    CHECK_EQ(LAYOUT("citron", p.knobs = &knobs), -EINVAL);
}

int main(void)
{
    keys_of_cells();
    sizes();
    limits();
    one_key_two_sessions(PAWL_KEYS_SPARSE);
    one_key_two_sessions(PAWL_KEYS_NAMED);
    full_table();
    return 0;
}
