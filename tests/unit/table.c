/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys when connections break: a verb's outcome is unknown at every place in turn, with and without its effect, and
 * another session inserts the same key in between. Whatever happens, both find one lock, and no cell stays claimed or condemned. */
#include "cluster/table.h"
#include "designs/word/word.h"
#include "tests/far_site.h"

#define VERBS_MAX 60 /* more than any insertion here takes */

/* ---- two sessions, and connections that break ---- */

static struct table table;

static struct plan {
    unsigned verbs;              /* of the first session, so far */
    unsigned break_at, again_at; /* unknown outcomes; 0: none */
    bool effect;                 /* the first of them took effect nevertheless */
    unsigned meddle_at;          /* before this one the other session inserts the key */
    pawl_key key;
    struct cell other;
} plan;

static int meddle_or_break(unsigned session, const struct fab_op *ops, unsigned n)
{
    if (!session && ++plan.verbs == plan.meddle_at) {
        int rc = table_find_or_insert(&far.seats[1], &table, plan.key, &plan.other);
        CHECK(!rc || rc == -EAGAIN); /* it waits in vain for the first one's claim, which stands still meanwhile */
    }
    if (session || (plan.verbs != plan.break_at && plan.verbs != plan.again_at))
        return 0;
    return plan.effect && plan.verbs == plan.break_at ? FAR_ANSWER_LOST : -FAB_EUNKNOWN;
}

static void begin(enum pawl_keys keys, uint64_t capacity)
{
    plan = (struct plan){0};
    far_open(&design_word, keys, capacity, 0);
    table_init(&table, &far.header, 0);
    far.before = meddle_or_break;
}

static uint64_t *meta_of(uint64_t cell)
{
    return far_word(table.cells + cell * table.cell_bytes + 8);
}

static enum cell_state state_of(uint64_t cell)
{
    return (enum cell_state)(*meta_of(cell) >> CELL_STATE_SHIFT);
}

static void end(void)
{
    for (uint64_t i = 0; i < table.buckets; i++)
        if (state_of(i) == CELL_CLAIMED || state_of(i) == CELL_CONDEMNED || state_of(i) == CELL_ZOMBIE)
            CHECK_FAIL("cell %u is left in state %u: broke at %u and %u, other at %u", (unsigned)i, state_of(i), plan.break_at,
                       plan.again_at, plan.meddle_at);
    far_close();
}

/* The first session inserts, and must find the lock of the other one, should that have inserted meanwhile or come later. */
static void insert(void)
{
    struct cell mine;
    int rc = table_find_or_insert(&far.seats[0], &table, plan.key, &mine);
    plan.verbs = 1000 * VERBS_MAX; /* from here on nothing happens */
    while (rc == -FAB_EUNKNOWN)    /* as callers do */
        rc = table_find_or_insert(&far.seats[0], &table, plan.key, &mine);
    CHECK_EQ(rc, 0);
    CHECK_EQ(table_find_or_insert(&far.seats[1], &table, plan.key, &plan.other), 0);
    CHECK_EQ(mine.index, plan.other.index);
}

static void one_key_two_sessions(enum pawl_keys keys)
{
    pawl_key key = keys == PAWL_KEYS_NAMED ? pawl_name("another") : pawl_id(7);
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
                for (; used < table.buckets; used++)
                    CHECK_EQ(table_find_or_insert(&far.seats[1], &table, pawl_id(used), &place), 0);
                plan.key = pawl_id(used);
                uint64_t home = table_home(used, table.home_shift); /* the first to be looked at is held */
                CHECK_EQ(hold_open(&far.seats[1], home, &h), 0);
                h.mode = PAWL_EXCLUSIVE;
                CHECK_EQ(design_word.acquire(&far.seats[1], &h, DEADLINE_TRY), 0);
                plan.verbs = 0;
                plan.break_at = at;
                plan.again_at = again ? at + again : 0;
                plan.effect = effect;
                insert();
                CHECK(design_word.holds(&far.seats[1], &h));
                CHECK_EQ(design_word.release(&far.seats[1], &h), 0);
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
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_name("another"), &place), 0);
    CHECK_EQ(table_key_at(&far.seats[0], &table, place.index, name, &id_or_len), 1);
    CHECK_STR(name, "another");
    CHECK_EQ(id_or_len, strlen("another"));
    CHECK_EQ(table_key_at(&far.seats[0], &table, (place.index + 1) % table.buckets, name, &id_or_len), 0);
    CHECK_EQ(table.buckets, 16);
    end();
    begin(PAWL_KEYS_SPARSE, 8);
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_id(77), &place), 0);
    CHECK_EQ(table_key_at(&far.seats[0], &table, place.index, name, &id_or_len), 1);
    CHECK_EQ(id_or_len, 77);
    end();
    begin(PAWL_KEYS_DENSE, 8);
    CHECK_EQ(table_key_at(&far.seats[0], &table, 3, name, &id_or_len), 1);
    CHECK_EQ(id_or_len, 3);
    end();
}

/* ---- names ---- */

/* While session 0 looks at the cell of its key, another session condemns it and then spares it. */
static uint64_t condemned_cell;
static unsigned finds;

static int condemn_and_spare(unsigned session, const struct fab_op *ops, unsigned n)
{
    const uint64_t condemned = (uint64_t)CELL_CONDEMNED << CELL_STATE_SHIFT, live = (uint64_t)CELL_LIVE << CELL_STATE_SHIFT;
    if (++finds == 3) /* the cell, the name, and now whether the cell is still the same */
        *meta_of(condemned_cell) ^= condemned ^ live;
    if (finds == 4)
        *meta_of(condemned_cell) ^= condemned ^ live;
    return 0;
}

static void names(void)
{
    struct cell made, found;
    begin(PAWL_KEYS_NAMED, 8);
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_name("another"), &made), 0);
    condemned_cell = made.index;
    finds = 0;
    far.before = condemn_and_spare;
    CHECK_EQ(table_find(&far.seats[0], &table, pawl_name("another"), &found), 0); /* looks again */
    CHECK_EQ(finds, 6);
    CHECK_EQ(found.index, made.index);
    far.before = NULL;
    ++*(char *)far_at(table.names + made.index * LAYOUT_NAME_BYTES + 1); /* another name of the same hash */
    CHECK_EQ(table_find(&far.seats[0], &table, pawl_name("another"), &found), -ENOENT);
    end();
}

/* ---- claims of other sessions ---- */

#define NEVER_INSERTED UINT64_MAX

/* Two keys that are looked for from the same cell on. */
static pawl_key neighbour_of(uint64_t id)
{
    uint64_t other = id + 1;
    while (table_home(other, table.home_shift) != table_home(id, table.home_shift))
        other++;
    return pawl_id(other);
}

static uint64_t claimed_cell(void)
{
    for (uint64_t i = 0; i < table.buckets; i++)
        if (state_of(i) == CELL_CLAIMED || state_of(i) == CELL_ZOMBIE)
            return i;
    return NEVER_INSERTED;
}

static int fence_second(unsigned session, const struct fab_op *ops, unsigned n)
{
    return session == 1 ? -FAB_EFENCED : 0;
}

/* Session 1 has claimed a cell. Session 0 inserts another key that belongs there. */
static int insert_beside(unsigned session, const struct fab_op *ops, unsigned n)
{
    struct cell place;
    if (session != 1 || claimed_cell() == NEVER_INSERTED)
        return 0;
    uint64_t cell = claimed_cell(), meta = *meta_of(cell);
    far.before = NULL;
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, neighbour_of(7), &place), 0);
    CHECK(place.index != cell);
    CHECK_EQ(*meta_of(cell), meta); /* a live session's claim stays */
    far.before = fence_second;
    return -FAB_EFENCED;
}

/* The cell is used again only when no verb of the lost session can change it any more. */
static void claims_of_others(void)
{
    struct cell place;
    begin(PAWL_KEYS_SPARSE, 16);
    far.before = insert_beside;
    CHECK_EQ(table_find_or_insert(&far.seats[1], &table, pawl_id(7), &place), -PAWL_ELOST);
    uint64_t cell = claimed_cell();
    CHECK_EQ(state_of(cell), CELL_CLAIMED);
    CHECK_EQ(session_condemn(&far.seats[0], far.sessions[1].slot, far.sessions[1].epoch), 0);
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_id(7), &place), 0);
    CHECK(place.index != cell);
    CHECK_EQ(state_of(cell), CELL_ZOMBIE);
    far.fence_rc = 0;
    CHECK_EQ(table_find_or_insert(&far.seats[2], &table, neighbour_of(neighbour_of(7).id), &place), 0);
    CHECK_EQ(place.index, cell);
    CHECK_EQ(state_of(cell), CELL_LIVE);
    end();
}

/* ---- a key that may have been forgotten ---- */

static struct hold former; /* of session 1: the lock of the cell's former key */
static bool cancelled;

static int release_former(unsigned session)
{
    if (cancelled)
        return -ECANCELED;
    CHECK_EQ(design_word.release(&far.seats[1], &former), 0);
    return 0;
}

static unsigned records_in_use(unsigned session)
{
    unsigned used = 0;
    for (unsigned i = 0; i < FAR_RECORDS; i++)
        used += record_state(far.shadows[session][i]) != RECORD_FREE;
    return used;
}

/* An insertion waits for a session that still has the lock of the cell's former key. */
static void lock_of_former_key(void)
{
    struct cell place;
    begin(PAWL_KEYS_SPARSE, 16);
    *far_word(table.floor) = 5;
    CHECK_EQ(hold_open(&far.seats[1], table_home(7, table.home_shift), &former), 0);
    former.mode = PAWL_EXCLUSIVE;
    CHECK_EQ(design_word.acquire(&far.seats[1], &former, DEADLINE_TRY), 0);
    far.waits = release_former;
    cancelled = true;
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_id(7), &place), -ECANCELED);
    CHECK_EQ(records_in_use(0), 0);
    cancelled = false;
    CHECK_EQ(table_find_or_insert(&far.seats[0], &table, pawl_id(7), &place), 0);
    CHECK(!design_word.holds(&far.seats[1], &former));
    CHECK_EQ(place.index, former.index);
    CHECK_EQ(records_in_use(0), 0);
    end();
}

/* ---- sessions ---- */

/* The memory that a design keeps for a session is made once, and is empty whenever the session opens. */
static void session_state(void)
{
    far_open(design_find("citron"), PAWL_KEYS_DENSE, 2, 64);
    for (unsigned i = 0; i < FAR_SESSIONS; i++) {
        const struct session_params p = far_session(i);
        char *state = far.sessions[i].design_state;
        CHECK(state);
        *state = 1;
        CHECK_EQ(session_close(&far.seats[i]), 0);
        CHECK_EQ(session_open(&far.seats[i], &p), 0);
        CHECK(far.sessions[i].design_state == state);
        CHECK_EQ(*state, 0);
    }
    far_close();
}

static void session_refusals(void)
{
    struct session_params p;
    far_open(design_find("citron"), PAWL_KEYS_DENSE, 2, 64);
    p = far_session(0);
    CHECK_EQ(session_close(&far.seats[0]), 0);
    far.eps[0].caps &= ~(uint32_t)FAB_ATOMIC128; /* no step takes a slot and says who it is */
    CHECK_EQ(session_open(&far.seats[0], &p), -EOPNOTSUPP);
    far.eps[0].caps = FAR_CAPS & ~(uint32_t)FAB_SHARED_CLOCK; /* others judge a lease by how long they see it unchanged */
    p.lease_ns = far.space.lease_ns + 1;
    CHECK_EQ(session_open(&far.seats[0], &p), -EINVAL);
    far.eps[0].caps = FAR_CAPS;
    p.lease_ns = PAWL_LEASE_FOREVER;
    CHECK_EQ(session_open(&far.seats[0], &p), -EINVAL);
    p = far_session(0);
    p.label = NULL;
    CHECK_EQ(session_open(&far.seats[0], &p), 0);
    far_close();
}

/* ---- layouts ---- */

/* A design that needs more than the fabric has is refused, with another design to take. */
static void needs(void)
{
    unsigned refused = 0;
    for (const struct design *d = NULL; (d = design_next(d));) {
        int rc = layout_check_caps(d, PAWL_KEYS_DENSE, 0);
        CHECK_EQ(rc, d->needs ? -PAWL_ENOTSUP : 0);
        CHECK_EQ(layout_check_caps(d, PAWL_KEYS_DENSE, UINT32_MAX), 0);
        refused += rc != 0;
    }
    CHECK(refused);
}

static uint64_t buckets(enum pawl_keys keys, uint64_t capacity)
{
    const struct layout_params p = {.design = &design_word,
                                    .keys = keys,
                                    .capacity = capacity,
                                    .sessions = FAR_SESSIONS,
                                    .holds = FAR_RECORDS,
                                    .caps = FAR_CAPS,
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
    names();
    claims_of_others();
    lock_of_former_key();
    session_state();
    session_refusals();
    needs();
    one_key_two_sessions(PAWL_KEYS_SPARSE);
    one_key_two_sessions(PAWL_KEYS_NAMED);
    full_table();
    return 0;
}
