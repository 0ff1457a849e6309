/* Who opens a session may find its slot taken at the last moment, by one that died right then. It has taken the mutex from the dead
 * and puts it back, and with that goes the kernel's mark. The dead session must be found out all the same: here it has no lease
 * that would run out. */
#include "client/segment.h"
#include "cluster/life.h"
#include "tests/shm/space.h"

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
    layout_space(s->header, 0, &space);
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

int main(void)
{
    struct segment *s;
    pawl_grant g;
    uint32_t *holding = shared_memory(sizeof *holding);
    space_where();
    pid_t child = child_start(holder, holding);
    WAIT_FOR(__atomic_load_n(holding, __ATOMIC_SEQ_CST));
    child_kill(child);
    CHECK_EQ(segment_open(space_path(), &s), 0);
    CHECK_EQ(take_and_put_back(s), 1);
    segment_close(s);
    pawl *p = space_open(&options);
    CHECK_OK(pawl_timedlock(p, pawl_id(1), PAWL_EXCLUSIVE, pawl_in(LIMIT_NS), &g));
    CHECK_OK(pawl_close(p));
    return 0;
}
