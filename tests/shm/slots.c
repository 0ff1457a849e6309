/* SPDX-License-Identifier: Apache-2.0 */
/* Opening sessions when others die, or take one for dead, at the worst moment. */
#include "client/segment.h"
#include "cluster/life.h"
#include "cluster/session.h"
#include "fabric/shm.h"
#include "tests/shm/space.h"
#include "world/world.h"

static const pawl_options options = {.keys = PAWL_KEYS_SPARSE, .sessions = 4, .lease_ns = PAWL_LEASE_FOREVER};

static void holder(void *arg)
{
    uint32_t *holding = arg;
    pawl_grant g;
    pawl *p = space_open(&options);
    CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
    __atomic_store_n(holding, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause_ns(NS_PER_S);
}

static unsigned take_and_put_back(const struct segment *s)
{
    struct space space;
    unsigned dead = 0;
    layout_space(&s->header, 0, &space);
    for (uint32_t i = 0; i < space.slot_count; i++) {
        struct slot *slot = (struct slot *)((char *)s->base + space_slot_addr(&space, i));
        if (lease_state(slot->lease) == SLOT_FREE)
            continue;
        CHECK_EQ(life_take(slot), 0);
        life_drop(slot);
        dead++;
    }
    return dead;
}

/* A process that opens a session may find its slot taken at the last moment, by a session that died right then. It has taken the
 * mutex of the dead session and releases it, which clears the kernel's mark. The dead session must be found nevertheless: here it
 * has no lease that would run out. */
static void dead_at_the_last_moment(void)
{
    struct segment *s;
    pawl_grant g;
    uint32_t *holding = shared_memory(sizeof *holding);
    pid_t child = child_start(holder, holding);
    WAIT_FOR(__atomic_load_n(holding, __ATOMIC_SEQ_CST));
    child_kill(child);
    CHECK_EQ(segment_open(space_path(), &s), 0);
    CHECK_EQ(take_and_put_back(s), 1);
    segment_close(s);
    pawl *p = space_open(&options);
    CHECK_OK(pawl_timedlock(p, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_close(p));
}

/* ---- a process that is stopped for longer than its lease while it opens a session ---- */

static struct segment *opened;
static unsigned verdicts;

static unsigned slots_in(enum slot_state state, enum slot_state becomes)
{
    struct space space;
    unsigned count = 0;
    layout_space(&opened->header, 0, &space);
    for (uint32_t i = 0; i < space.slot_count; i++) {
        struct slot *slot = (struct slot *)((char *)opened->base + space_slot_addr(&space, i));
        uint64_t lease = slot->lease;
        if (lease_state(lease) != state)
            continue;
        slot->lease = lease_word(becomes, lease_epoch(lease), lease_stamp(lease));
        count++;
    }
    return count;
}

/* The first time that it looks at the clock with a slot in hand another takes it for lost. */
static uint64_t late(struct world *w)
{
    if (!verdicts)
        verdicts = slots_in(SLOT_TAKEN, SLOT_LOST);
    return world_now(&world_real);
}

static uint64_t birth(struct world *w)
{
    return world_birth(&world_real);
}

static void lost_while_it_opens(void)
{
    const struct world_ops ops = {.now = late, .birth = birth};
    const struct session_params params = {.lease_ns = NS_PER_S, .proof = fab_shm_proof(), .label = "late"};
    struct world world = {.ops = &ops};
    struct space space;
    struct session me = {.slot = 0};
    struct fab_ep ep;
    CHECK_EQ(segment_open(space_path(), &opened), 0);
    layout_space(&opened->header, 0, &space);
    fab_shm_init(&ep, opened->base, opened->size);
    struct seat seat = {.space = &space, .me = &me, .ep = &ep, .world = &world};
    CHECK_OK(session_open(&seat, &params)); /* no session had begun in that slot: another is taken */
    CHECK_EQ(verdicts, 1);
    CHECK_EQ(slots_in(SLOT_LIVE, SLOT_LIVE), 1);
    CHECK_EQ(slots_in(SLOT_LOST, SLOT_LOST), 0); /* and no slot is gone for as long as the process lives */
    CHECK_OK(session_close(&seat));
    segment_close(opened);
}

/* ---- knobs ---- */

/* Only the first of two handles sets the values, and both use them: they lie in the segment. */
static void knobs_of_the_segment(void)
{
    const struct design *d = design_find("word");
    struct segment *s;
    struct space space;
    space_reset();
    space_knobs = tuned(d, "open-every", 7);
    pawl *first = space_open(&options);
    space_knobs = NULL;
    pawl *second = space_open(&options);
    CHECK_EQ(segment_open(space_path(), &s), 0);
    layout_space(&s->header, 0, &space);
    CHECK_EQ(space.knobs.value[0], 7);
    segment_close(s);
    CHECK_OK(pawl_close(first));
    CHECK_OK(pawl_close(second));
    space_reset();
}

/* A thread keeps a record of the session that it used last. It gives the record back when it uses another session for long. */
static void record_goes_back(void)
{
    pawl_options few = options;
    pawl_grant g;
    few.holds = 1;
    space_reset();
    pawl *left = space_open(&few), *used = space_open(&few);
    for (unsigned i = 0; i < 100; i++) {
        pawl *p = i ? used : left;
        CHECK_OK(pawl_lock(p, pawl_id(1), PAWL_EXCLUSIVE, &g));
        CHECK_OK(pawl_unlock(p, &g));
    }
    CHECK_OK(pawl_lock(left, pawl_id(1), PAWL_EXCLUSIVE, &g));
    CHECK_OK(pawl_close(left));
    CHECK_OK(pawl_close(used));
    space_reset();
}

int main(void)
{
    space_where();
    knobs_of_the_segment();
    record_goes_back();
    dead_at_the_last_moment();
    lost_while_it_opens();
    return 0;
}
