/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a session on memory, and its library thread. */
#include "client/grant.h"
#include "client/memory.h"
#include "cluster/keeper.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_CAPACITY 16384
#define DEFAULT_CAPACITY_RANGES 256 /* files, say: each has an extent */
#define DEFAULT_DESIGN "word"
#define DEFAULT_SESSIONS 256
#define DEFAULT_HOLDS 256
#define DEFAULT_LEASE_NS (10 * NS_PER_S)
#define DEFAULT_PERMISSIONS 0600
#define SYSTEM_PERMISSIONS 0666
#define MARGIN_NS (2 * WORLD_COARSE_LAG_NS)
#define CHECK_NS (100 * NS_PER_MS) /* the kernel reports deaths; this is for those that it does not report */
#define TEND_NS (500 * NS_PER_MS)  /* how often a session looks after the slots of the dead */
#define BUSY_TRIES_MAX 5000        /* milliseconds for a process that was stopped in the middle of removing a segment */
#define OPEN_TRIES_MAX 10          /* of losing the race between "not there" and "there already" */

/* ---- the library's thread ---- */

static void keep(struct memory_session *m, struct keeper *keeper)
{
    /* A segment that was removed has no other users any more: processes that open the space later make another segment, and would
     * not see the locks of this session. */
    if (!segment_in_place(m->segment)) {
        __atomic_store_n(&m->removed, true, __ATOMIC_RELEASE);
        session_break(&m->locker.seat, m->session.slot, m->session.epoch);
    } else {
        keeper_step(keeper);
    }
    memory_notice_loss(m);
}

static int open_session(struct memory_session *m)
{
    char name[WORLD_NAME_LEN];
    world_process_name(name);
    struct session_params params = {.lease_ns = m->lease_ns, .proof = fab_shm_proof(), .label = name};
    int rc = session_open(&m->locker.seat, &params);
    if (rc)
        return rc;
    m->ep.id = m->session.slot;
    hold_keeping_begin(&m->session);
    fast_init(m->handle.fast, &m->locker, grant_identity(&m->session));
    return 0;
}

ONCE static void *library_thread(void *arg)
{
    struct memory_session *m = arg;
    int rc = open_session(m);
    handle_started(&m->handle, rc);
    if (rc)
        return NULL;
    struct keeper keeper;
    keeper_init(&keeper, &m->locker.seat, TEND_NS);
    keeper.tend_every = (unsigned)(TEND_NS / keeper.pause_ns);
    keeper.tend_slots = 0; /* all: a look costs no verb here */
    session_tend(&m->locker.seat);
    uint64_t next = add_saturating(world_now(&world_real), keeper.pause_ns);
    while (!__atomic_load_n(&m->handle.stop, __ATOMIC_ACQUIRE)) {
        uint64_t now = world_now(&world_real);
        if (now >= next) {
            keep(m, &keeper);
            next = now + keeper.pause_ns;
        }
        async_look_at_watches(&m->handle);
        memory_serve(m, async_watches(&m->handle.async) ? min_u64(next, now + ASYNC_WATCH_NS) : next);
    }
    hold_keeping_end(&m->session);
    m->close_result = session_close(&m->locker.seat);
    return NULL;
}

/* ---- options ---- */

int memory_check_requirements(const pawl_options *o, const struct layout_header *h, const char *path)
{
    if (o->design && strncmp(o->design, h->design, LAYOUT_DESIGN_LEN))
        return explain(-EINVAL, "%s has the design '%.32s', not '%s'", path, h->design, o->design);
    if (o->keys && o->keys != h->keys)
        return explain(-EINVAL, "%s has %s keys, not %s ones", path, handle_keys_name(h->keys), handle_keys_name(o->keys));
    if (o->capacity > h->capacity)
        return explain(-EINVAL, "%s has room for %llu locks, not %llu", path, (unsigned long long)h->capacity,
                       (unsigned long long)o->capacity);
    if (o->sessions > h->slot_count)
        return explain(-EINVAL, "%s has room for %u sessions, not %u", path, h->slot_count, o->sessions);
    if (o->unit_bytes && o->unit_bytes != h->unit_bytes)
        return explain(-EINVAL, "%s has units of %llu bytes, not %llu", path, (unsigned long long)h->unit_bytes,
                       (unsigned long long)o->unit_bytes);
    if (o->range_units > h->range_max || o->range_max > h->range_max)
        return explain(-EINVAL, "%s has room for %llu units of a lock, not %llu", path, (unsigned long long)h->range_max,
                       (unsigned long long)max_u64(o->range_units, o->range_max));
    if (o->holds > h->record_count)
        return explain(-EINVAL, "%s has room for %u holds of each session, not %u", path, h->record_count, o->holds);
    return 0;
}

static int create(const char *path, const pawl_options *o, const struct knobs *knobs)
{
    const struct design *design = design_find(o->design ? o->design : DEFAULT_DESIGN);
    if (!(design->substrates & DESIGN_ON_SHM))
        return explain(-PAWL_ENOTSUP,
                       "the design '%s' does not run on shared memory; start a rack with 'pawl serve --design %s' and open "
                       "pawl://ADDRESS:PORT/SPACE",
                       design->name, design->name);
    bool ranges = design->features & DESIGN_RANGES;
    if (!ranges && (o->unit_bytes || o->range_units || o->range_max))
        return explain(-PAWL_ENOTSUP, "the design '%s' has no ranges", design->name);
    const struct layout_params params = {
        .design = design,
        .keys = o->keys ? o->keys : PAWL_KEYS_NAMED,
        .capacity = o->capacity ? o->capacity
                    : ranges    ? DEFAULT_CAPACITY_RANGES
                                : DEFAULT_CAPACITY,
        .sessions = o->sessions ? o->sessions : DEFAULT_SESSIONS,
        .holds = o->holds ? o->holds : DEFAULT_HOLDS,
        .ring_bytes = (uint32_t)fab_shm_ring_bytes(),
        .lease_ns = HANDLE_LEASE_MAX_NS,
        .margin_ns = MARGIN_NS,
        .check_ns = CHECK_NS,
        .birth = world_birth(&world_real),
        .caps = FAB_SHM_CAPS,
        .unit_bytes = o->unit_bytes,
        .range_units = o->range_units,
        .range_max = o->range_max,
        .knobs = knobs,
    };
    return segment_create(path, &params, o->permissions ? o->permissions : DEFAULT_PERMISSIONS);
}

static int open_existing(const char *path, struct segment **out)
{
    int rc = segment_open(path, out);
    for (int i = 0; rc == -EAGAIN && i < BUSY_TRIES_MAX; i++) { /* another process is removing one of an earlier layout */
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        rc = segment_open(path, out);
    }
    return rc;
}

/* The segment is refused. Whether to look again: it was of an earlier layout and is gone, or another process may have replaced it
 * since. That is asked once; a segment that is refused twice has another fault. */
static bool look_again(const char *path, bool *asked)
{
    int rc = segment_remove_older(path);
    bool again = !rc || (rc == -ESTALE && !*asked);
    *asked |= rc == -ESTALE;
    return again;
}

static int open_or_create(const char *path, const pawl_options *o, const struct knobs *knobs, struct segment **out)
{
    bool asked = false;
    for (int i = 0; i < OPEN_TRIES_MAX; i++) {
        if (!(o->flags & PAWL_MUST_CREATE)) {
            int rc = open_existing(path, out);
            if (!rc && (rc = memory_check_requirements(o, &(*out)->header, path)))
                segment_close(*out);
            if (rc == -PAWL_ESEGMENT && !(o->flags & PAWL_NO_CREATE) && look_again(path, &asked))
                continue;
            if (rc != -ENOENT || o->flags & PAWL_NO_CREATE)
                return rc;
        }
        int rc = create(path, o, knobs);
        if (rc == -EEXIST && !(o->flags & PAWL_MUST_CREATE))
            continue;
        return rc ? rc : segment_open(path, out);
    }
    return explain(-EAGAIN, "%s was removed repeatedly while opening", path);
}

/* ---- handles ---- */

static void free_session(struct memory_session *m)
{
    if (m->pool_ready)
        fiber_pool_free(&m->pool);
    free(m->session.seen);
    free(m->session.design_state);
    handle_free(&m->handle);
    free(m);
}

/* On failure the segment stays the caller's. */
static int make_session(struct segment *s, const pawl_options *o, struct pawl **out)
{
    struct memory_session *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->segment = s;
    m->lease_ns = o->lease_ns ? o->lease_ns : DEFAULT_LEASE_NS;
    layout_space(&s->header, 0, &m->space);
    fab_shm_init(&m->ep, s->base, s->size);
    m->ep.rings = s->header.slot_count;
    m->ep.ring0 = s->header.rings;
    table_init(&m->locker.table, &s->header, 0);
    m->locker.seat = (struct seat){.space = &m->space, .me = &m->session, .ep = &m->ep, .world = &world_real};
    m->locker.alone = memory_alone;
    m->session.seen = calloc(m->space.slot_count, sizeof *m->session.seen);
    int rc = m->session.seen ? handle_init(&m->handle, &memory_ops) : -ENOMEM;
    if (!rc)
        rc = layout_adopt(&s->header, &m->ep);
    m->handle.design = m->space.design;
    m->handle.keys = m->locker.table.keys;
    if (!rc)
        rc = handle_start(&m->handle, library_thread, m);
    if (rc == -PAWL_ELIMIT)
        explain(rc, "%s: all %u sessions are in use", s->path, m->space.slot_count);
    if (rc) {
        free_session(m);
        return rc;
    }
    *out = &m->handle;
    return 0;
}

/* Users of system: do not trust each other. */
static int check_distrust(const char *name)
{
    const struct design *d = design_find(name);
    return !d || d->distrusts
               ? 0
               : explain(-PAWL_ENOTSUP,
                         "the design '%s' trusts all users of its segment, so system: does not offer it; 'word' does "
                         "not, and local:/PATH with permissions is for users that trust each other",
                         name);
}

ONCE static int open_at(const char *path, enum segment_kind kind, const pawl_options *o, const struct knobs *knobs,
                        struct pawl **out)
{
    struct segment *s;
    int rc = open_or_create(path, o, knobs, &s);
    if (rc)
        return rc;
    if (kind == SEGMENT_SYSTEM)
        rc = check_distrust(s->header.design);
    if (!rc)
        rc = make_session(s, o, out);
    if (rc)
        segment_close(s);
    return rc;
}

int memory_open(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out)
{
    char path[PATH_MAX];
    int rc = segment_path(SEGMENT_LOCAL, place, path, sizeof path);
    return rc ? rc : open_at(path, SEGMENT_LOCAL, o, knobs, out);
}

int memory_open_system(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out)
{
    char path[PATH_MAX];
    pawl_options for_all = *o;
    int rc = segment_path(SEGMENT_SYSTEM, place, path, sizeof path);
    if (!rc)
        rc = segment_check_system();
    if (!rc && o->design)
        rc = check_distrust(o->design);
    if (!o->permissions)
        for_all.permissions = SYSTEM_PERMISSIONS;
    return rc ? rc : open_at(path, SEGMENT_SYSTEM, &for_all, knobs, out);
}

int memory_close(struct pawl *p)
{
    struct memory_session *m = memory_of(p);
    struct segment *s = m->segment;
    int rc = 0;
    if (handle_is_ours(p)) {
        memory_drain(m);
        handle_stop(p, memory_changed);
        rc = m->close_result;
    }
    free_session(m);
    segment_close(s);
    return rc;
}
