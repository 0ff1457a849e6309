/* SPDX-License-Identifier: Apache-2.0 */
/* One test on every substrate: a space of a design on shared memory, on a memory node or in a rack, whose sessions are opened in
 * the same way. */
#ifndef PAWL_TESTS_UDP_PLACES_H
#define PAWL_TESTS_UDP_PLACES_H

#include "client/memory.h"
#include "client/net.h"
#include "node/memory.h"
#include "tests/udp/rack.h"

#define PLACE_LOCKS 64
#define PLACE_LEASE_NS (6 * NS_PER_S) /* a busy machine may stop any process for seconds, and none shall be lost by that */

enum substrate { ON_SHM, ON_NODE, ON_RACK };

struct place_test {
    const char *design;
    enum substrate on;
    uint64_t lease_ns; /* 0: PLACE_LEASE_NS */
    enum pawl_keys keys;
};

static struct {
    const struct place_test *test;
    const struct design *design;
    struct rack_test rack;
    pid_t node;
    uint32_t *node_ready;
    uint16_t node_port;
} place;

static inline bool place_has(enum design_features f)
{
    return place.design->features & f;
}

static inline uint64_t place_lease(void)
{
    return place.test->lease_ns ? place.test->lease_ns : PLACE_LEASE_NS;
}

static inline void place_node_main(void *arg)
{
    static struct memory_node m;
    bool ranges = place_has(DESIGN_RANGES);
    (void)arg;
    const struct memory_node_params p = {
        .layout = {.design = place.design,
                   .keys = place.test->keys,
                   .capacity = PLACE_LOCKS,
                   .sessions = 16,
                   .holds = 32,
                   .range_units = ranges ? 1024 : 0,
                   .range_max = ranges ? 4096 : 0,
                   .lease_ns = place_lease(),
                   .check_ns = place_lease() / 8},
        .space = rack_space,
        .at = net_v4(RACK_LOCALHOST, place.node_port),
        .fresh = true,
    };
    int rc = memory_node_open(&m, &p);
    if (rc)
        CHECK_FAIL("memory_node_open: %d (%s)", rc, pawl_explain());
    __atomic_store_n(place.node_ready, 1, __ATOMIC_RELEASE);
    memory_node_run(&m, &rack_stop);
}

static inline void place_begin(const struct place_test *t)
{
    printf("%s on %s\n", t->design, t->on == ON_SHM ? "shared memory" : t->on == ON_NODE ? "a memory node" : "a rack");
    fflush(stdout);
    place.test = t;
    place.design = design_find(t->design);
    CHECK(place.design != NULL);
    if (t->on == ON_RACK) {
        place.rack = (struct rack_test){.design = t->design,
                                        .servers = 2,
                                        .locks = PLACE_LOCKS,
                                        .lease_ns = place_lease(),
                                        .member_ns = 10 * place_lease(),
                                        .keys = t->keys,
                                        .seed = 1};
        rack_begin(&place.rack);
    } else if (t->on == ON_NODE) {
        snprintf(rack_space, sizeof rack_space, "node%d", (int)getpid());
        place.node_ready = shared_memory(sizeof *place.node_ready);
        place.node_port = rack_port_pair();
        place.node = child_start(place_node_main, NULL);
        WAIT_FOR(__atomic_load_n(place.node_ready, __ATOMIC_ACQUIRE));
    }
}

/* All granters are gone at once. */
static inline void place_kill(void)
{
    if (place.test->on == ON_RACK) {
        rack_end();
    } else if (place.test->on == ON_NODE) {
        child_kill(place.node);
        munmap(place.node_ready, sizeof *place.node_ready);
    }
}

static inline void place_end(void)
{
    place_kill();
    if (place.test->on == ON_RACK)
        rack_cleanup();
    space_reset();
}

/* A session with that lease; 0: that of the place. Of racks on a host of its own for each `host`. */
static inline pawl *place_open(unsigned host, uint64_t lease_ns)
{
    char where[RACK_WHERE_LEN];
    pawl *p = NULL;
    pawl_options o = {.lease_ns = lease_ns ? lease_ns : place_lease()};
    if (place.test->on == ON_SHM) {
        o.design = place.test->design;
        o.keys = place.test->keys;
        o.capacity = PLACE_LOCKS;
        return space_open(&o);
    }
    if (place.test->on == ON_RACK)
        return rack_open(host, &o);
    snprintf(where, sizeof where, "pawl://127.0.0.1:%u/%s", place.node_port, rack_space);
    int rc = pawl_open(where, &o, &p);
    if (rc)
        CHECK_FAIL("pawl_open(%s): %d: %s (%s)", where, rc, pawl_strerror(rc), pawl_explain());
    return p;
}

/* Ends p's session as `pawl break` does; `by` is another session of the same host. */
static inline void place_break(pawl *p, pawl *by)
{
    if (memory_of(p)) {
        const struct session *victim = &memory_of(p)->session;
        WAIT_FOR(session_break(&memory_of(by)->locker.seat, victim->slot, victim->epoch) != -EAGAIN); /* renewed meanwhile */
        return;
    }
    struct net *n = net_of(p), *other = net_of(by);
    struct outbox *out = net_outbox();
    host_enter(&other->host, out);
    int rc = host_break(&other->host, n->session, n->serial, out);
    host_leave(&other->host, out);
    net_flush(other, &other->udp, out);
    CHECK_OK(rc);
}

#endif
