/* SPDX-License-Identifier: Apache-2.0 */
/* A space on plain memory with a few sessions, for tests of a design's details. Before: SITE_CHECK_NS, how often a waiter checks
 * whether the others live. */
#ifndef PAWL_TESTS_SIM_PLAIN_SITE_H
#define PAWL_TESTS_SIM_PLAIN_SITE_H

#include "cluster/layout.h"
#include "cluster/session.h"
#include "fabric/shm.h"
#include "tests/check.h"

#include <string.h>

#define SITE_SESSIONS 6
#define SITE_RECORDS 8
#define SITE_LOCKS 4

static struct site {
    const struct design *design;
    char *memory;
    struct fab_ep ep;
    struct space space;
    struct session sessions[SITE_SESSIONS];
    struct seat seats[SITE_SESSIONS];
} site;

static inline void site_open(const struct design *d)
{
    struct site *s = &site;
    const struct layout_params p = {.design = d,
                                    .keys = PAWL_KEYS_DENSE,
                                    .capacity = SITE_LOCKS,
                                    .sessions = SITE_SESSIONS,
                                    .holds = SITE_RECORDS,
                                    .lease_ns = 3600 * NS_PER_S,
                                    .check_ns = SITE_CHECK_NS,
                                    .birth = 7,
                                    .caps = FAB_SHM_CAPS};
    struct layout_header h;
    s->design = d;
    CHECK_EQ(layout_make(&p, &h), 0);
    s->memory = aligned_alloc(4096, h.total_bytes);
    CHECK(s->memory);
    memset(s->memory, 0, h.total_bytes);
    layout_space(&h, 0, &s->space);
    fab_shm_init(&s->ep, s->memory, h.total_bytes);
    for (unsigned i = 0; i < SITE_SESSIONS; i++) {
        const struct session_params params = {.lease_ns = PAWL_LEASE_FOREVER, .proof = fab_shm_proof(), .label = "test"};
        s->sessions[i] = (struct session){0};
        s->seats[i] = (struct seat){.space = &s->space, .me = &s->sessions[i], .ep = &s->ep, .world = &world_real};
        CHECK_EQ(session_open(&s->seats[i], &params), 0);
    }
}

static inline void site_close(void)
{
    for (unsigned i = 0; i < SITE_SESSIONS; i++) {
        CHECK_EQ(session_close(&site.seats[i]), 0);
        free(site.sessions[i].design_state);
    }
    free(site.memory);
}

/* ---- lock 0, by one of the sessions ---- */

static inline int lock(unsigned who, enum pawl_mode mode, uint64_t deadline, struct hold *h)
{
    CHECK_EQ(hold_open(&site.seats[who], 0, h), 0);
    h->mode = mode;
    int rc = site.design->acquire(&site.seats[who], h, deadline);
    if (rc)
        hold_close(&site.seats[who], h);
    return rc;
}

static inline struct hold locked(unsigned who, enum pawl_mode mode)
{
    struct hold h;
    CHECK_EQ(lock(who, mode, DEADLINE_TRY, &h), 0);
    CHECK(site.design->holds(&site.seats[who], &h));
    return h;
}

static inline void unlock(unsigned who, const struct hold *h)
{
    CHECK_EQ(site.design->release(&site.seats[who], h), 0);
    CHECK(!site.design->holds(&site.seats[who], h));
}

#endif
