/* SPDX-License-Identifier: Apache-2.0 */
#include "client/inspect.h"
#include "client/far.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (3 * NS_PER_S) /* for which a memory node is asked */

/* ---- from outside ---- */

static int look_near(const char *where, struct observer *o)
{
    enum segment_kind kind = SEGMENT_LOCAL;
    const char *rest = "";
    char path[PATH_MAX];
    int rc = segment_kind(where, &kind, &rest);
    if (!rc && kind == SEGMENT_SYSTEM)
        rc = segment_check_system();
    if (!rc)
        rc = segment_path(kind, rest, path, sizeof path);
    if (!rc)
        rc = segment_open(path, &o->segment);
    if (rc)
        return rc;
    o->header = o->segment->header;
    fab_shm_init(&o->ep, o->segment->base, o->segment->size);
    return 0;
}

/* `node`: of several that the place names; ONLY_NODE: it names one. */
#define ONLY_NODE UINT_MAX

static int look_far(const char *place, unsigned node, struct observer *o)
{
    struct net_where w;
    bool is_node = node != ONLY_NODE;
    int rc = is_node ? 0 : far_is_node(place, &is_node);
    if (!rc && !is_node)
        rc = explain(-PAWL_ENOTSUP, "pawl://%s is a rack: 'pawl ls' and 'pawl show NAME' look at its locks", place);
    if (!rc)
        rc = net_where_parse(place, &w);
    if (!rc && w.coordinators.count > 1 && node == ONLY_NODE)
        rc = explain(-EINVAL, "pawl://%s names %u memory nodes; look at one of them at a time", place, w.coordinators.count);
    if (!rc && node != ONLY_NODE) {
        o->node = w.node = node;
        o->nodes = w.nodes = w.coordinators.count;
        w.coordinators.at[0] = w.coordinators.at[node];
        w.coordinators.count = 1;
        w.coordinators.now = 0;
    }
    char *name = rc ? NULL : far_name(&w);
    if (!rc)
        rc = name ? far_open(&w, name, 0, world_now(&world_real) + LOOK_NS, &o->far) : -ENOMEM;
    if (!rc && o->far->node.can & VERBS_CAN_FABRIC)
        rc = far_fabric_open(o->far, name, world_now(&world_real) + LOOK_NS, &o->fabric);
    if (!rc)
        rc = far_attach(o->fabric ? fab_rdma->ep(o->fabric) : &o->far->node.fab, name, &o->header);
    if (!rc && node != ONLY_NODE)
        rc = far_check_place(&w, name, &o->header);
    free(name);
    o->unjoined.seen = rc ? NULL : calloc(o->header.slot_count, sizeof *o->unjoined.seen);
    return rc ? rc : o->unjoined.seen ? 0 : -ENOMEM;
}

static const char *far_place(const char *where)
{
    static const char scheme[] = "pawl://";
    return strncmp(where, scheme, strlen(scheme)) ? NULL : where + strlen(scheme);
}

int observer_nodes(const char *where, unsigned *count)
{
    struct net_where w;
    bool is_node = false;
    *count = 1;
    if (!far_place(where))
        return 0;
    int rc = net_where_parse(far_place(where), &w);
    if (rc || w.coordinators.count == 1)
        return rc;
    rc = far_is_node(far_place(where), &is_node);
    if (!rc && is_node)
        *count = w.coordinators.count;
    return rc;
}

pawl_key observer_key(const struct observer *o, pawl_key there)
{
    return o->header.keys == PAWL_KEYS_DENSE && !there.name ? pawl_id(there.id * o->nodes + o->node) : there;
}

int observer_open(const char *where, struct observer *o)
{
    return observer_open_node(where, ONLY_NODE, o);
}

int observer_open_node(const char *where, unsigned node, struct observer *o)
{
    explain_nothing();
    memset(o, 0, sizeof *o);
    o->nodes = 1;
    bool far = far_place(where);
    int rc = far ? look_far(far_place(where), node, o) : look_near(where, o);
    if (rc) {
        observer_close(o);
        return rc;
    }
    layout_space(&o->header, 0, &o->space);
    table_init(&o->locker.table, &o->header, 0);
    o->unjoined.slot = UINT32_MAX; /* so that no slot is taken for our own */
    o->unjoined.lease = &o->unjoined.lease_copy;
    struct fab_ep *ep = o->fabric ? fab_rdma->ep(o->fabric) : far ? &o->far->node.fab : &o->ep;
    o->locker.seat = (struct seat){.space = &o->space, .me = &o->unjoined, .ep = ep, .world = &world_real};
    return 0;
}

void observer_close(struct observer *o)
{
    if (o->segment)
        segment_close(o->segment);
    if (o->fabric)
        fab_rdma->close(o->fabric);
    far_close(o->far);
    free(o->unjoined.seen);
}

/* ---- sessions ---- */

const char *session_health_name(enum session_health health)
{
    static const char *const names[] = {"live", "opening", "expired", "dead", "broken"};
    return names[health];
}

static enum session_health health_of(const struct seat *seat, const struct slot *s)
{
    uint32_t life;
    memcpy(&life, s->life, sizeof life);
    if (lease_state(s->lease) == SLOT_LOST)
        return SESSION_BROKEN;
    if (seat->ep->caps & FAB_KERNEL_LIFE && life & FUTEX_OWNER_DIED)
        return SESSION_DEAD;
    if (seat->ep->caps & FAB_SHARED_CLOCK &&
        world_now(seat->world) > add_saturating(lease_expiry_ns(s->lease), seat->space->margin_ns))
        return SESSION_EXPIRED;
    return lease_state(s->lease) == SLOT_TAKEN ? SESSION_OPENING : SESSION_LIVE;
}

/* 1: read; 0: the slot is free. */
static int read_session(const struct seat *seat, uint32_t slot, struct inspect_session *out)
{
    struct slot s;
    int rc = fab_read(seat->ep, space_slot_addr(seat->space, slot), &s, sizeof s);
    if (rc || lease_state(s.lease) == SLOT_FREE)
        return rc;
    bool near = fab_is_shm(seat->ep);
    *out = (struct inspect_session){
        .slot = slot,
        .epoch = lease_epoch(s.lease),
        .pid = near ? fab_shm_proof_pid(s.proof) : 0,
        .client = near ? 0 : (uint32_t)(s.proof >> 32),
        .proof = s.proof,
        .health = health_of(seat, &s),
        .lease_ns = s.lease_ns,
        .expiry_ns = near ? lease_expiry_ns(s.lease) : 0,
        .opened_s = WORLD_BIRTH_EPOCH_S + s.opened,
    };
    memcpy(out->label, s.label, sizeof out->label - 1);
    return 1;
}

struct session_walk {
    const struct seat *seat;
    inspect_session_fn fn;
    void *ctx;
};

static int visit_session(void *ctx, uint32_t slot, uint64_t lease)
{
    const struct session_walk *w = ctx;
    struct inspect_session s = {0};
    int rc = read_session(w->seat, slot, &s);
    return rc > 0 ? w->fn(w->ctx, &s) : rc;
}

int inspect_sessions(const struct locker *l, inspect_session_fn fn, void *ctx)
{
    struct session_walk w = {.seat = &l->seat, .fn = fn, .ctx = ctx};
    return seat_slots(&l->seat, visit_session, &w);
}

/* ---- hold records of all sessions, by lock ---- */

#define EVERY_SLOT UINT32_MAX

struct entry {
    uint64_t index;
    uint32_t slot;
    enum record_state state;
    bool gone;                 /* the session is dead or expired: its claim is void as soon as another session looks after it */
    bool ranges;               /* it is of a range, */
    struct record_range range; /* this one; end 0: sessions on a memory node do not publish it */
};

struct snapshot {
    const struct seat *seat;
    uint32_t slot; /* the session; or EVERY_SLOT */
    bool gone;     /* of the session whose records are being read */
    struct entry *entries;
    size_t count, room;
};

static int add_entry(void *ctx, uint32_t slot, uint32_t record, uint64_t word)
{
    struct snapshot *s = ctx;
    if (record_index(word) >= s->seat->space->lock_count)
        return 0; /* the slot changed hands while we read */
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct entry *more = realloc(s->entries, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        s->entries = more;
        s->room = room;
    }
    struct entry *e = &s->entries[s->count++];
    *e = (struct entry){.index = record_index(word), .slot = slot, .state = record_state(word), .gone = s->gone};
    e->ranges = s->seat->space->range_units;
    return e->ranges && fab_is_shm(s->seat->ep)
               ? fab_read(s->seat->ep, space_range_addr(s->seat->space, slot, record), &e->range, sizeof e->range)
               : 0;
}

/* A lost session's records stay until its slot is taken again, but mean nothing once it was recovered from. */
static int add_slot(void *ctx, uint32_t slot, uint64_t lease)
{
    struct snapshot *s = ctx;
    if (lease_state(lease) != SLOT_LIVE || (s->slot != EVERY_SLOT && s->slot != slot))
        return 0;
    struct inspect_session session = {0};
    int rc = read_session(s->seat, slot, &session);
    if (rc <= 0)
        return rc;
    s->gone = session.health != SESSION_LIVE;
    return seat_records(s->seat, slot, add_entry, s);
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int take_snapshot(const struct seat *seat, uint32_t slot, struct snapshot *out)
{
    *out = (struct snapshot){.seat = seat, .slot = slot};
    int rc = seat_slots(seat, add_slot, out);
    if (rc)
        free(out->entries);
    else if (out->count)
        qsort(out->entries, out->count, sizeof *out->entries, compare_entries);
    return rc;
}

enum meaning { CLAIM_NONE, CLAIM_HOLDS, CLAIM_WAITS };

/* The meaning of a record for a lock that looks like this. A record that says "may hold" is settled by the lock itself; but a lock
 * with ranges has many holders, so there the record says who holds, unless the lock has but one owner. */
static enum meaning meaning(const struct entry *e, const struct lock_view *v)
{
    switch (e->state) {
    case RECORD_TRY_X:
    case RECORD_HELD_X:
        if (e->ranges && v->owner == LOCK_OWNER_UNKNOWN)
            return e->state == RECORD_HELD_X ? CLAIM_HOLDS : CLAIM_WAITS;
        return v->mode == PAWL_EXCLUSIVE && (v->owner == e->slot || v->owner == LOCK_OWNER_UNKNOWN) ? CLAIM_HOLDS : CLAIM_WAITS;
    case RECORD_HELD_S:
        return CLAIM_HOLDS;
    case RECORD_WAIT:
    case RECORD_TRY_S:
        return CLAIM_WAITS;
    default:
        return CLAIM_NONE;
    }
}

/* ---- locks ---- */

struct lock_walk {
    const struct locker *locker;
    struct snapshot snapshot;
    size_t at; /* the first entry that was not looked at yet; indexes are asked for in their order */
    inspect_lock_fn fn;
    void *ctx;
    struct inspect_range *ranges; /* room for those of one lock; null: there are none */
};

static int make_room_for_ranges(struct lock_walk *w)
{
    if (!w->locker->seat.space->range_units || !w->snapshot.count)
        return 0;
    w->ranges = calloc(w->snapshot.count, sizeof *w->ranges);
    return w->ranges ? 0 : -ENOMEM;
}

static void add_range(const struct lock_walk *w, const struct entry *e, struct inspect_lock *lock)
{
    uint64_t unit_bytes = w->locker->seat.space->unit_bytes;
    if (!w->ranges || !e->range.end)
        return;
    w->ranges[lock->range_count++] = (struct inspect_range){.start = e->range.start * unit_bytes,
                                                            .end = e->range.end * unit_bytes,
                                                            .mode = e->state == RECORD_HELD_S ? PAWL_SHARED : PAWL_EXCLUSIVE};
    lock->ranges = w->ranges;
}

static int visit_lock(struct lock_walk *w, uint64_t index)
{
    const struct seat *seat = &w->locker->seat;
    char name[PAWL_NAME_MAX + 1];
    uint64_t id = 0;
    struct inspect_lock lock = {.index = index};
    int rc = table_key_at(seat, &w->locker->table, index, name, &id);
    if (rc <= 0)
        return rc;
    lock.key = (pawl_key){.name = w->locker->table.keys == PAWL_KEYS_NAMED ? name : NULL, .id = id};
    rc = seat->space->design->peek(seat, index, &lock.view);
    if (rc)
        return rc;
    const struct snapshot *s = &w->snapshot;
    while (w->at < s->count && s->entries[w->at].index < index)
        w->at++;
    for (; w->at < s->count && s->entries[w->at].index == index; w->at++) {
        const struct entry *e = &s->entries[w->at];
        enum meaning m = meaning(e, &lock.view);
        lock.holders += m == CLAIM_HOLDS && !e->gone;
        lock.waiters += m == CLAIM_WAITS && !e->gone;
        lock.gone += m == CLAIM_HOLDS && e->gone;
        if (m == CLAIM_HOLDS && !e->gone)
            add_range(w, e, &lock);
    }
    return w->fn(w->ctx, &lock);
}

static int visit_known(struct lock_walk *w)
{
    int rc = 0;
    for (uint64_t i = 0; i < w->locker->seat.space->lock_count && !rc; i++)
        rc = visit_lock(w, i);
    return rc;
}

/* Every hold has a record (I5), so the records name every lock in use. */
static int visit_used(struct lock_walk *w)
{
    int rc = 0;
    while (w->at < w->snapshot.count && !rc) {
        uint64_t index = w->snapshot.entries[w->at].index;
        rc = visit_lock(w, index);
        while (w->at < w->snapshot.count && w->snapshot.entries[w->at].index == index)
            w->at++; /* also where the lock was forgotten in between */
    }
    return rc;
}

int inspect_locks(const struct locker *l, bool all, inspect_lock_fn fn, void *ctx)
{
    struct lock_walk w = {.locker = l, .fn = fn, .ctx = ctx};
    int rc = take_snapshot(&l->seat, EVERY_SLOT, &w.snapshot);
    if (rc)
        return rc;
    rc = make_room_for_ranges(&w);
    if (!rc)
        rc = all ? visit_known(&w) : visit_used(&w);
    free(w.ranges);
    free(w.snapshot.entries);
    return rc;
}

int inspect_locks_of(const struct locker *l, uint32_t slot, inspect_lock_fn fn, void *ctx)
{
    struct lock_walk w = {.locker = l, .fn = fn, .ctx = ctx};
    int rc = take_snapshot(&l->seat, slot, &w.snapshot);
    if (rc)
        return rc;
    rc = make_room_for_ranges(&w);
    if (!rc)
        rc = visit_used(&w);
    free(w.ranges);
    free(w.snapshot.entries);
    return rc;
}

/* ---- both ---- */

static int visit_claim(const struct seat *seat, const struct entry *e, const struct lock_view *v, inspect_claim_fn fn, void *ctx)
{
    struct inspect_claim claim = {0};
    if (meaning(e, v) == CLAIM_NONE)
        return 0;
    int rc = read_session(seat, e->slot, &claim.session);
    if (rc <= 0)
        return rc;
    claim.holds = meaning(e, v) == CLAIM_HOLDS;
    claim.start = e->range.start * seat->space->unit_bytes;
    claim.end = e->range.end * seat->space->unit_bytes;
    claim.mode = !claim.holds ? 0 : e->state == RECORD_HELD_S ? PAWL_SHARED : PAWL_EXCLUSIVE;
    return fn(ctx, &claim);
}

int inspect_claims(const struct locker *l, uint64_t index, inspect_claim_fn fn, void *ctx)
{
    const struct seat *seat = &l->seat;
    struct snapshot s;
    struct lock_view view;
    int rc = take_snapshot(seat, EVERY_SLOT, &s);
    if (rc)
        return rc;
    rc = seat->space->design->peek(seat, index, &view);
    for (int waiters = 0; waiters < 2; waiters++) /* holders first */
        for (size_t i = 0; i < s.count && !rc; i++)
            if (s.entries[i].index == index && (meaning(&s.entries[i], &view) == CLAIM_WAITS) == waiters)
                rc = visit_claim(seat, &s.entries[i], &view, fn, ctx);
    free(s.entries);
    return rc;
}
