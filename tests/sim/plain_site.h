/* A space on plain memory with a few sessions, for tests of a design's details. */
#ifndef PAWL_TESTS_SIM_PLAIN_SITE_H
#define PAWL_TESTS_SIM_PLAIN_SITE_H

#include "cluster/layout.h"
#include "cluster/life.h"
#include "cluster/session.h"
#include "fabric/shm.h"
#include "tests/check.h"

#include <string.h>

#define SITE_SESSIONS 6
#define SITE_RECORDS 8
#define SITE_LOCKS 4

struct site {
    char *memory;
    struct fab_ep ep;
    struct space space;
    struct session sessions[SITE_SESSIONS];
    struct seat seats[SITE_SESSIONS];
};

static inline void site_open(struct site *s, const struct design *d)
{
    const struct layout_params p = {.design = d,
                                    .keys = PAWL_KEYS_DENSE,
                                    .capacity = SITE_LOCKS,
                                    .sessions = SITE_SESSIONS,
                                    .holds = SITE_RECORDS,
                                    .lease_ns = 3600 * NS_PER_S,
                                    .check_ns = NS_PER_MS,
                                    .birth = 7};
    struct layout_header h;
    CHECK_EQ(layout_make(&p, &h), 0);
    s->memory = aligned_alloc(4096, h.total_bytes);
    CHECK(s->memory);
    memset(s->memory, 0, h.total_bytes);
    layout_space(&h, 0, &s->space);
    fab_shm_init(&s->ep, s->memory, h.total_bytes);
    for (uint32_t i = 0; i < SITE_SESSIONS; i++)
        CHECK_EQ(life_format(fab_shm_ptr(&s->ep, space_slot_addr(&s->space, i))), 0);
    for (unsigned i = 0; i < SITE_SESSIONS; i++) {
        const struct session_params params = {.lease_ns = PAWL_LEASE_FOREVER, .proof = fab_shm_proof(), .label = "test"};
        s->sessions[i] = (struct session){0};
        s->seats[i] = (struct seat){.space = &s->space, .me = &s->sessions[i], .ep = &s->ep, .world = &world_real};
        CHECK_EQ(session_open(&s->seats[i], &params), 0);
    }
}

static inline void site_close(struct site *s)
{
    for (unsigned i = 0; i < SITE_SESSIONS; i++)
        CHECK_EQ(session_close(&s->seats[i]), 0);
    free(s->memory);
}

#endif
