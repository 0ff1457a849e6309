/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: where-strings, options, the library's thread. */
#include "client/grant.h"
#include "client/handle.h"
#include "cluster/session.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_CAPACITY 16384
#define DEFAULT_CAPACITY_RANGES 256 /* files, say: each has an extent */
#define DEFAULT_DESIGN "word"
#define DEFAULT_SESSIONS 256
#define DEFAULT_HOLDS 256
#define DEFAULT_LEASE_NS (10 * NS_PER_S)
#define DEFAULT_PERMISSIONS 0600
#define LEASE_MIN_NS (100 * NS_PER_MS)            /* ten ticks of the coarse clock at its coarsest */
#define LEASE_MAX_NS (UINT64_C(86400) * NS_PER_S) /* a day: beyond that FOREVER is meant */
#define MARGIN_NS (2 * WORLD_COARSE_LAG_NS)
#define CHECK_NS (100 * NS_PER_MS) /* the kernel tells of deaths; this is for what it does not tell */
#define TEND_NS (500 * NS_PER_MS)  /* how often a session looks after the slots of the dead */
#define OPEN_TRIES_MAX 10          /* of losing the race between "not there" and "there already" */

/* ---- the library's thread ---- */

static void tell_started(struct pawl *p, int result)
{
    pthread_mutex_lock(&p->started_lock);
    p->start_result = result;
    p->started = true;
    pthread_cond_signal(&p->started_cond);
    pthread_mutex_unlock(&p->started_lock);
}

static void renew(struct pawl *p)
{
    /* A segment that was removed has no other users any more: those who come later make another, and would not see our locks. */
    if (!segment_in_place(p->segment))
        session_break(&p->locker.seat, p->session.slot, p->session.epoch);
    else
        seat_renew(&p->locker.seat);
}

static void *library_thread(void *arg)
{
    struct pawl *p = arg;
    char name[SLOT_LABEL_LEN] = "";
    FILE *comm = fopen("/proc/self/comm", "re");
    if (comm) {
        if (fgets(name, sizeof name, comm))
            name[strcspn(name, "\n")] = 0;
        fclose(comm);
    }
    struct session_params params = {.lease_ns = p->lease_ns, .proof = fab_shm_proof(), .label = name};
    int rc = session_open(&p->locker.seat, &params);
    if (!rc) {
        p->ep.id = p->session.slot;
        hold_keeping_begin(&p->session);
        fast_init(p->fast, &p->locker, grant_identity(&p->session));
    }
    tell_started(p, rc);
    if (rc)
        return NULL;
    const uint64_t third = min_u64(p->lease_ns / 3, TEND_NS);
    uint64_t next_renewal = add_saturating(world_now(&world_real), third), next_round = 0;
    while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
        uint64_t now = world_now(&world_real);
        if (now >= next_renewal) {
            renew(p);
            next_renewal = now + third;
        }
        if (now >= next_round) {
            session_tend(&p->locker.seat);
            next_round = now + TEND_NS;
        }
        async_serve(&p->async, min_u64(next_renewal, next_round));
    }
    hold_keeping_end(&p->session);
    p->close_result = session_close(&p->locker.seat);
    return NULL;
}

/* Signals are the application's: none is delivered to the library's thread. */
static int start_thread(struct pawl *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_init(&p->started_lock, NULL);
    pthread_cond_init(&p->started_cond, NULL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&p->thread, NULL, library_thread, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return explain(-rc, "cannot start the library's thread: %s", strerror(rc));
    pthread_mutex_lock(&p->started_lock);
    while (!p->started)
        pthread_cond_wait(&p->started_cond, &p->started_lock);
    pthread_mutex_unlock(&p->started_lock);
    if (p->start_result)
        pthread_join(p->thread, NULL);
    if (p->start_result == -PAWL_ELIMIT)
        return explain(-PAWL_ELIMIT, "%s: all %u sessions are in use", p->segment->path, p->space.slot_count);
    return p->start_result;
}

/* ---- options ---- */

static int check_options(const pawl_options *o)
{
    if (o->design && !design_find(o->design))
        return explain(-EINVAL, "there is no design '%s'; 'pawl sim --list' names those there are", o->design);
    if (o->keys > PAWL_KEYS_DENSE)
        return explain(-EINVAL, "there is no kind of keys %u", (unsigned)o->keys);
    if (o->lease_ns && o->lease_ns != PAWL_LEASE_FOREVER && (o->lease_ns < LEASE_MIN_NS || o->lease_ns > LEASE_MAX_NS))
        return explain(-EINVAL, "a lease lasts from 100 ms to a day, or for ever");
    if (o->flags & ~(uint32_t)(PAWL_NO_CREATE | PAWL_MUST_CREATE))
        return explain(-EINVAL, "unknown flags 0x%x", o->flags);
    if (o->flags & PAWL_NO_CREATE && o->flags & PAWL_MUST_CREATE)
        return explain(-EINVAL, "a space cannot be there already and made now: PAWL_NO_CREATE contradicts PAWL_MUST_CREATE");
    if (o->unit_bytes > LAYOUT_UNIT_BYTES_MAX || o->unit_bytes & (o->unit_bytes - 1))
        return explain(-EINVAL, "a unit has a power of two of bytes, up to %llu", (unsigned long long)LAYOUT_UNIT_BYTES_MAX);
    if (o->range_units > RANGE_UNITS_MAX || o->range_max > RANGE_UNITS_MAX || (o->range_max && o->range_units > o->range_max))
        return explain(-EINVAL, "a lock has up to 2^%d units, and is made for no more than it may have", RANGE_UNITS_BITS);
    if (o->permissions & ~0777u)
        return explain(-EINVAL, "permissions 0%o are not those of a file", o->permissions);
    return 0;
}

/* Does the space that is there have what was asked for? */
static int check_wishes(const pawl_options *o, const struct layout_header *h, const char *path)
{
    static const char *const kinds[] = {"", "named", "sparse", "dense"};
    if (o->design && strncmp(o->design, h->design, LAYOUT_DESIGN_LEN))
        return explain(-EINVAL, "%s has the design '%.32s', not '%s'", path, h->design, o->design);
    if (o->keys && o->keys != h->keys)
        return explain(-EINVAL, "%s has %s keys, not %s ones", path, kinds[h->keys], kinds[o->keys]);
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
        return explain(-PAWL_ENOTSUP, "the design '%s' does not run on shared memory", design->name);
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
        .lease_ns = LEASE_MAX_NS,
        .margin_ns = MARGIN_NS,
        .check_ns = CHECK_NS,
        .birth = world_birth(&world_real),
        .unit_bytes = o->unit_bytes,
        .range_units = o->range_units,
        .range_max = o->range_max,
        .knobs = knobs,
    };
    return segment_create(path, &params, o->permissions ? o->permissions : DEFAULT_PERMISSIONS);
}

static int open_or_create(const char *path, const pawl_options *o, const struct knobs *knobs, struct segment **out)
{
    for (int i = 0; i < OPEN_TRIES_MAX; i++) {
        if (!(o->flags & PAWL_MUST_CREATE)) {
            int rc = segment_open(path, out);
            if (!rc && (rc = check_wishes(o, (*out)->header, path)))
                segment_close(*out);
            if (rc != -ENOENT || o->flags & PAWL_NO_CREATE)
                return rc;
        }
        int rc = create(path, o, knobs);
        if (rc == -EEXIST && !(o->flags & PAWL_MUST_CREATE))
            continue;
        return rc ? rc : segment_open(path, out);
    }
    return explain(-EAGAIN, "%s comes and goes; somebody keeps removing it", path);
}

/* ---- handles ---- */

static struct fast *make_fast_page(void)
{
    struct fast *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    madvise(page, sizeof *page, MADV_WIPEONFORK);
    return page;
}

static void free_handle(struct pawl *p)
{
    free(p->session.seen);
    if (p->fast)
        munmap(p->fast, sizeof *p->fast);
    if (p->segment)
        segment_close(p->segment);
    free(p);
}

static int make_handle(struct segment *s, const pawl_options *o, struct pawl **out)
{
    struct pawl *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->lease_ns = o->lease_ns ? o->lease_ns : DEFAULT_LEASE_NS;
    p->fast = make_fast_page();
    layout_space(s->header, 0, &p->space);
    fab_shm_init(&p->ep, s->base, s->size);
    p->ep.rings = s->header->slot_count;
    p->ep.ring0 = s->header->rings;
    table_init(&p->locker.table, s->header, 0);
    p->locker.seat = (struct seat){.space = &p->space, .me = &p->session, .ep = &p->ep, .world = &world_real};
    p->session.seen = calloc(p->space.slot_count, sizeof *p->session.seen);
    int rc = p->fast && p->session.seen ? async_init(&p->async) : -ENOMEM;
    if (!rc) {
        p->segment = s;
        rc = start_thread(p);
        if (rc) {
            async_free(&p->async);
            p->segment = NULL; /* stays the caller's */
        }
    }
    if (rc) {
        free_handle(p);
        return rc;
    }
    *out = p;
    return 0;
}

static int open_net(const char *place, const pawl_options *o, struct pawl **out)
{
    struct pawl *p = calloc(1, sizeof *p);
    int rc = p && (p->fast = make_fast_page()) ? 0 : -ENOMEM;
    if (!rc)
        rc = net_open(place, o, &p->net);
    if (rc) {
        if (p)
            free_handle(p);
        return rc;
    }
    p->fast->alive = FAST_ALIVE;
    p->space.design = design_find(p->net->host.header->design); /* for who asks what is offered, and which keys there are */
    uint32_t keys = p->net->host.header->config.keys;
    p->locker.table.keys = keys ? (enum pawl_keys)keys : PAWL_KEYS_DENSE;
    p->locker.table.capacity = p->net->host.header->config.locks;
    *out = p;
    return 0;
}

int pawl_open_tuned(const char *where, const pawl_options *options, const struct knobs *knobs, pawl **out)
{
    static const pawl_options defaults;
    const pawl_options *o = options ? options : &defaults;
    char path[PATH_MAX];
    explain_nothing();
    if (!where || !out)
        return explain(-EINVAL, "pawl_open needs a place and somewhere to put the handle");
    int rc = check_options(o);
    if (!rc && !strncmp(where, NET_SCHEME, strlen(NET_SCHEME)))
        return open_net(where + strlen(NET_SCHEME), o, out);
    if (strncmp(where, "local:", strlen("local:")))
        return explain(
            -EINVAL, "'%s' is no place this release knows; it knows local:, local:NAME, local:/PATH and pawl://ADDRESS:PORT/SPACE",
            where);
    struct segment *s;
    if (!rc)
        rc = segment_path(where + strlen("local:"), path, sizeof path);
    if (!rc)
        rc = open_or_create(path, o, knobs, &s);
    if (rc)
        return rc;
    rc = make_handle(s, o, out);
    if (rc)
        segment_close(s);
    return rc;
}

int pawl_open(const char *where, const pawl_options *options, pawl **out)
{
    return pawl_open_tuned(where, options, NULL, out);
}

int pawl_close(pawl *p)
{
    if (!p)
        return -EINVAL;
    int rc = 0;
    if (p->net) {
        if (handle_is_ours(p)) /* else it is the parent's, and so are its threads and its memory */
            rc = net_close(p->net);
        free_handle(p);
        return rc;
    }
    if (handle_is_ours(p)) {
        async_drain(&p->async);
        __atomic_store_n(&p->stop, true, __ATOMIC_RELEASE);
        async_ring(&p->async);
        pthread_join(p->thread, NULL);
        rc = p->close_result;
    }
    async_free(&p->async);
    free_handle(p);
    return rc;
}
