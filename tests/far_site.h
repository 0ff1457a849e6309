/* SPDX-License-Identifier: Apache-2.0 */
/* A space with a few sessions on a fabric of plain memory that a test can break: before each batch of verbs the test is asked what
 * becomes of it, and may do what other sessions do meanwhile. Time is counted by the questions for it, and passes in a pause:
 * nothing waits, and there are no threads. */
#ifndef PAWL_TESTS_FAR_SITE_H
#define PAWL_TESTS_FAR_SITE_H

#include "cluster/layout.h"
#include "cluster/session.h"
#include "fabric/lower.h"
#include "lib/hash.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAR_SESSIONS 3
#define FAR_RECORDS 8
#define FAR_DESC_WORDS 32 /* of a hold's descriptor, in the books of its session */
#define FAR_CAPS (FAB_ATOMIC128 | FAB_ORDERED | FAB_MASKED | FAB_SHARED_CLOCK)
#define FAR_TICK_NS 100 /* that pass with each look at the clock */
#define FAR_WAITS 1
#define FAR_ANSWER_LOST 1 /* the verbs take effect, and their outcome is unknown */

/* Of the sites that are opened from now on; and the node that the sessions are on, of which 0 has the lock memory. */
static uint64_t far_lease_ns = 3600 * NS_PER_S;
static uint32_t far_caps = FAR_CAPS;
static uint32_t far_node;

static struct far_site {
    struct world world; /* the first */
    uint64_t now_ns, randoms;
    char *memory;
    struct layout_header header;
    struct space space;
    struct session sessions[FAR_SESSIONS];
    uint64_t shadows[FAR_SESSIONS][FAR_RECORDS];
    struct record_range ranges[FAR_SESSIONS][FAR_RECORDS];
    uint64_t descs[FAR_SESSIONS][FAR_RECORDS * FAR_DESC_WORDS];
    struct sighting seen[FAR_SESSIONS][FAR_SESSIONS];
    struct fab_ep eps[FAR_SESSIONS];
    struct seat seats[FAR_SESSIONS];
    /* 0: the batch takes place; FAR_ANSWER_LOST; or the error with which it fails, without effect. Null: all take place. */
    int (*before)(unsigned session, const struct fab_op *ops, unsigned n);
    int (*waits)(unsigned session); /* the outcome of a wait, or FAR_WAITS: until a word has changed, or its deadline */
    int fence_rc;
    unsigned fences; /* how often one was asked for */
} far;

static inline void *far_at(fab_addr addr)
{
    return far.memory + FAB_OFFSET(addr);
}

static inline uint64_t *far_word(fab_addr addr)
{
    return far_at(addr);
}

static inline void far_execute(const struct fab_op *op, u128 *old)
{
    u128 word = 0;
    if (op->verb == FAB_READ) {
        memcpy(op->buf, far_at(op->addr), op->len);
    } else if (op->verb == FAB_WRITE) {
        memcpy(far_at(op->addr), op->buf, op->len);
    } else {
        memcpy(&word, far_at(op->addr), op->width);
        *old = word;
        word = fab_verb_result(op, word);
        memcpy(far_at(op->addr), &word, op->width);
    }
}

static int far_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n)
{
    int rc = far.before ? far.before(ep->id, ops, n) : 0;
    for (unsigned i = 0; i < n && rc >= 0; i++)
        far_execute(&ops[i], &ops[i].old);
    return rc > 0 ? -FAB_EUNKNOWN : rc;
}

static void far_post(struct fab_ep *ep, const struct fab_op *op)
{
    u128 old;
    far_execute(op, &old);
}

static int far_wait(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline)
{
    int rc = far.waits ? far.waits(ep->id) : FAR_WAITS;
    far.now_ns += FAR_TICK_NS;
    for (unsigned i = 0; i < n && rc == FAR_WAITS; i++)
        if ((*far_word(conds[i].addr) & conds[i].mask) != conds[i].value)
            rc = 0;
    if (rc != FAR_WAITS)
        return rc;
    CHECK(deadline != DEADLINE_NEVER); /* nothing else would happen */
    far.now_ns = max_u64(far.now_ns, deadline);
    return -ETIMEDOUT;
}

/* Looks twice, with a pause between that lasts until the deadline. */
static int far_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen)
{
    *seen = 0;
    for (unsigned looks = 0; looks < 2; looks++) {
        struct fab_op op = {.verb = FAB_READ, .len = pair->width, .addr = pair->addr, .buf = seen};
        int rc = far_batch(ep, &op, 1);
        if (rc || (*seen & pair->mask) != pair->value)
            return rc;
        far_wait(ep, NULL, 0, deadline);
    }
    return -ETIMEDOUT;
}

/* The same with several words. */
static int far_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned n, uint64_t deadline)
{
    uint64_t was[FAB_WATCH_MAX];
    memcpy(was, words, n * sizeof *was);
    for (unsigned looks = 0; looks < 2; looks++) {
        struct fab_op op = {.verb = FAB_READ, .len = (uint16_t)(n * sizeof *was), .addr = addr, .buf = words};
        int rc = far_batch(ep, &op, 1);
        if (rc || memcmp(was, words, n * sizeof *was) != 0)
            return rc;
        far_wait(ep, NULL, 0, deadline);
    }
    return -ETIMEDOUT;
}

static int far_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n)
{
    return 0;
}

static int far_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof)
{
    far.fences++;
    return far.fence_rc;
}

/* All memory is node 0's, and that of every session, too. */
static uint64_t far_local(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value)
{
    uint64_t old = *far_word(addr);
    if (verb == FAB_WRITE || verb == FAB_SWAP || (verb == FAB_CAS && old == compare))
        *far_word(addr) = value;
    else if (verb == FAB_FAA)
        *far_word(addr) = old + value;
    return old;
}

static uint64_t far_own(struct fab_ep *ep, enum fab_own how, fab_addr addr, uint64_t value)
{
    return far_local(ep, how == FAB_OWN_LOAD ? FAB_READ : FAB_WRITE, addr, 0, value);
}

static void far_local_fence(struct fab_ep *ep) {}

static const struct fab_ops far_ops = {.batch = far_batch,
                                       .post = far_post,
                                       .wait = far_wait,
                                       .poll = far_poll,
                                       .watch = far_watch,
                                       .wake = far_wake,
                                       .fence = far_fence,
                                       .local = far_local,
                                       .own = far_own,
                                       .local_fence = far_local_fence};

static uint64_t far_now(struct world *w)
{
    return far.now_ns += FAR_TICK_NS;
}

static uint64_t far_random(struct world *w)
{
    return mix64(++far.randoms);
}

static uint64_t far_birth(struct world *w)
{
    return UINT64_C(1) << 32;
}

static const struct world_ops far_world = {.now = far_now, .random = far_random, .birth = far_birth};

static inline struct session_params far_session(unsigned i)
{
    return (struct session_params){.lease_ns = far.header.lease_ns, .proof = i + 1, .label = "test"};
}

/* Units, and room to grow fourfold, only for designs with ranges. */
static inline void far_open(const struct design *design, enum pawl_keys keys, uint64_t capacity, uint64_t units)
{
    const struct layout_params p = {.design = design,
                                    .keys = keys,
                                    .capacity = capacity,
                                    .sessions = FAR_SESSIONS,
                                    .holds = FAR_RECORDS,
                                    .lease_ns = far_lease_ns,
                                    .check_ns = NS_PER_MS,
                                    .caps = far_caps,
                                    .range_units = units,
                                    .range_max = 4 * units,
                                    .birth = 7};
    memset(&far, 0, sizeof far);
    far.world.ops = &far_world;
    far.now_ns = NS_PER_S;
    far.fence_rc = -EAGAIN;
    CHECK_EQ(layout_make(&p, &far.header), 0);
    far.memory = calloc(1, far.header.total_bytes);
    CHECK(far.memory);
    layout_space(&far.header, 0, &far.space);
    CHECK(far.space.desc_size <= FAR_DESC_WORDS * sizeof(uint64_t));
    for (unsigned i = 0; i < FAR_SESSIONS; i++) {
        const struct session_params params = far_session(i);
        far.eps[i] = (struct fab_ep){.ops = &far_ops, .world = &far.world, .caps = far_caps, .id = i, .node = far_node};
        far.sessions[i] =
            (struct session){.shadow = far.shadows[i], .ranges = far.ranges[i], .descs = far.descs[i], .seen = far.seen[i]};
        far.seats[i] = (struct seat){.space = &far.space, .me = &far.sessions[i], .ep = &far.eps[i], .world = &far.world};
        CHECK_EQ(session_open(&far.seats[i], &params), 0);
    }
}

static inline void far_close(void)
{
    for (unsigned i = 0; i < FAR_SESSIONS; i++)
        free(far.sessions[i].design_state);
    free(far.memory);
}

#endif
