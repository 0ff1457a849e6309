/* SPDX-License-Identifier: Apache-2.0 */
/* A switch with room for fewer locks than there are: the invariant is that of every lock either the switch or its server decides,
 * never both (I1). docs/designs/fisslock.md, "More locks than the switch holds". */
#include "designs/fisslock/placement.h"
#include "lib/hash.h"

#define MOVE_DOUBLINGS 6u /* of the pause before a move is sent again: a busy server gets no more than it can answer */
#define PATIENCE_SHARE 4  /* of a lease: after that reports do not wait for a missing server */

/* ---- cells ---- */

static uint32_t buckets_for(uint64_t capacity)
{
    uint32_t buckets = 16;
    while (buckets < capacity)
        buckets *= 2;
    return buckets;
}

static uint64_t cells_at(void)
{
    return round_up(sizeof(struct placement), CACHE_LINE);
}

static uint64_t buckets_at(const struct rack_config *c)
{
    return cells_at() + c->switch_locks * sizeof(struct lock_cell);
}

uint64_t placement_bytes(const struct rack_config *config)
{
    return buckets_at(config) + buckets_for(config->switch_locks) * sizeof(uint32_t);
}

struct lock_cell *placement_cell_at(const struct placement *d, uint32_t cell)
{
    return (struct lock_cell *)((char *)(uintptr_t)d + d->cells_at) + cell;
}

static uint32_t *bucket_of(const struct placement *d, uint64_t index)
{
    return (uint32_t *)((char *)(uintptr_t)d + d->buckets_at) + (mix64(index) & d->mask);
}

static uint32_t find(const struct placement *d, uint64_t index)
{
    uint32_t cell = *bucket_of(d, index);
    while (cell != CELL_NONE && placement_cell_at(d, cell)->index != index)
        cell = placement_cell_at(d, cell)->next;
    return cell;
}

const struct lock_cell *placement_find(const struct placement *d, uint64_t index)
{
    uint32_t cell = find(d, index);
    return cell == CELL_NONE ? NULL : placement_cell_at(d, cell);
}

uint32_t placement_cell(const struct placement *d, uint64_t index)
{
    uint32_t cell = find(d, index);
    return cell != CELL_NONE && placement_cell_at(d, cell)->state == CELL_HERE ? cell : CELL_NONE;
}

bool placement_index(const struct placement *d, uint32_t cell, uint64_t *index)
{
    const struct lock_cell *s = placement_cell_at(d, cell);
    if (s->state != CELL_HERE)
        return false;
    *index = s->index;
    return true;
}

static void put(struct placement *d, uint32_t cell, uint64_t index, enum cell_state state)
{
    debug_assert(find(d, index) == CELL_NONE); /* I7: a lock has one cell */
    uint32_t *bucket = bucket_of(d, index);
    *placement_cell_at(d, cell) = (struct lock_cell){.index = index, .next = *bucket, .state = state};
    *bucket = cell;
}

static void drop(struct placement *d, uint32_t cell)
{
    struct lock_cell *s = placement_cell_at(d, cell);
    uint32_t *at = bucket_of(d, s->index);
    while (*at != cell)
        at = &placement_cell_at(d, *at)->next;
    *at = s->next;
    s->state = CELL_FREE;
    s->next = d->free;
    d->free = cell;
}

/* When it begins, the first locks are here. Servers know that (WELCOME). */
ONCE void placement_init(struct placement *d, const struct rack_config *config, uint32_t life, uint64_t now)
{
    assert(config->switch_locks < CELL_NONE);
    memset(d, 0, sizeof *d);
    d->config = *config;
    d->life = life;
    d->patience_ns = now + config->lease_ns / PATIENCE_SHARE;
    d->capacity = (uint32_t)config->switch_locks;
    d->mask = buckets_for(d->capacity) - 1;
    d->cells_at = cells_at();
    d->buckets_at = buckets_at(config);
    d->free = CELL_NONE;
    for (uint32_t i = 0; i <= d->mask; i++)
        ((uint32_t *)((char *)d + d->buckets_at))[i] = CELL_NONE;
    for (uint32_t i = 0; i < d->capacity; i++)
        put(d, i, i, CELL_HERE);
}

/* ---- wards ---- */

bool placement_open(const struct placement *d, uint64_t index)
{
    return d->ward[ward_of(&d->config, index)].life;
}

static struct place server_of(const struct placement *d, unsigned ward)
{
    return (struct place){d->config.server[ward], PORT_SERVER};
}

void placement_forward(struct placement *d, const struct fission_packet *p, uint32_t len, uint16_t flags, struct outbox *out)
{
    uint64_t index = p->head.index;
    bool strays = spill_counts_hops(p) && p->hops >= FISSION_HOPS_MAX;
    if (strays || !placement_open(d, index)) {
        d->counts.refused++; /* its sender retransmits */
        return;
    }
    struct fission_packet *copy = spill_copy(out, p, len);
    if (!copy)
        return;
    copy->head.to = server_of(d, ward_of(&d->config, index));
    copy->flags = (uint16_t)((p->flags & ~(SPILL_SERVED | SPILL_DEAD | SPILL_MOVING)) | flags);
    d->counts.forwarded++;
    d->counts.dead += (flags & SPILL_DEAD) != 0;
}

/* The first entry of this ward whose lock is not decided here. */
static const struct fission_entry *entry_for(const struct placement *d, const struct fission_packet *p, unsigned ward)
{
    const struct fission_entry *entries = (const struct fission_entry *)(p + 1);
    for (unsigned i = 0; i < p->count; i++)
        if (entries[i].nonce < d->config.locks && ward_of(&d->config, entries[i].nonce) == ward &&
            !placement_find(d, entries[i].nonce))
            return &entries[i];
    return NULL;
}

bool placement_report(struct placement *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out)
{
    for (unsigned ward = p->hops; ward < d->config.servers; ward++) { /* hops: servers that have got it */
        const struct fission_entry *e = entry_for(d, p, ward);
        if (!e)
            continue;
        if (!d->ward[ward].life && now >= d->patience_ns) {
            d->ward[ward].skipped = true; /* no lock of it is decided before its server answers, and then hosts report anew */
            continue;
        }
        struct fission_packet *copy = placement_open(d, e->nonce) ? spill_copy(out, p, len) : NULL;
        if (!copy)
            return true; /* the host retransmits */
        copy->head.index = e->nonce;
        copy->head.to = server_of(d, ward);
        return true;
    }
    return false;
}

/* ---- moves ---- */

static struct fission_packet *send(struct placement *d, enum spill_type type, unsigned ward, struct outbox *out)
{
    return spill_packet(out, type, d->config.space, d->life, (struct place){MACHINE_SWITCH, PORT_POOL}, server_of(d, ward), 0);
}

static void send_move(struct placement *d, uint32_t cell, const struct rebuild_lock *locks, struct outbox *out)
{
    const struct lock_cell *s = placement_cell_at(d, cell);
    bool gives = s->state == CELL_LEAVING;
    struct fission_packet *p = send(d, gives ? SPILL_GIVE : SPILL_CALL, ward_of(&d->config, s->index), out);
    if (!p)
        return; /* placement_tick() retransmits */
    p->head.index = s->index;
    p->head.nonce = s->round;
    if (!gives)
        return;
    p->word = locks[cell].word;
    p->token = locks[cell].token;
    p->head.generation = locks[cell].age.generation;
    p->stamp = locks[cell].age.base;
    if (MISTAKE(d->config.mistakes, FISSLOCK_MISTAKE_BLANK) && !(p->word & FISSION_WORD_HELD))
        p->word = p->token = 0;
}

static void begin_move(struct placement *d, uint32_t cell, const struct rebuild_lock *locks, uint64_t now, struct outbox *out)
{
    assert(d->moves < MOVES_MAX);
    d->move[d->moves].cell = cell;
    d->move[d->moves].sent = 0;
    d->move[d->moves++].due_ns = now + d->config.retry_ns;
    d->leaving += placement_cell_at(d, cell)->state == CELL_LEAVING;
    send_move(d, cell, locks, out);
}

static void end_move(struct placement *d, uint32_t cell)
{
    unsigned i = 0;
    while (i < d->moves && d->move[i].cell != cell)
        i++;
    assert(i < d->moves);
    d->move[i] = d->move[--d->moves];
    d->leaving -= placement_cell_at(d, cell)->state == CELL_LEAVING;
}

void placement_call(struct placement *d, uint64_t index, const struct rebuild_lock *locks, uint64_t now, struct outbox *out)
{
    uint32_t cell = d->free;
    d->free = placement_cell_at(d, cell)->next;
    put(d, cell, index, CELL_CALLED);
    placement_cell_at(d, cell)->round = ++d->round;
    begin_move(d, cell, locks, now, out);
}

void placement_give(struct placement *d, uint32_t cell, const struct rebuild_lock *locks, uint64_t now, struct outbox *out)
{
    placement_cell_at(d, cell)->state = CELL_LEAVING; /* not decided here from now on */
    begin_move(d, cell, locks, now, out);
}

static void on_hand(struct placement *d, struct rebuild_lock *locks, const struct fission_packet *p)
{
    uint32_t cell = find(d, p->head.index);
    struct lock_cell *s = cell == CELL_NONE ? NULL : placement_cell_at(d, cell);
    if (!s || s->state != CELL_CALLED || (s->round != p->head.nonce && !MISTAKE(d->config.mistakes, FISSLOCK_MISTAKE_ROUND)))
        return; /* of another round, or a duplicate */
    end_move(d, cell);
    locks[cell] = spill_lock_in(p);
    s->state = CELL_HERE;
    d->counts.in++;
}

static void on_given(struct placement *d, const struct fission_packet *p)
{
    uint32_t cell = find(d, p->head.index);
    struct lock_cell *s = cell == CELL_NONE ? NULL : placement_cell_at(d, cell);
    if (!s || s->state != CELL_LEAVING || s->round != p->head.nonce)
        return;
    end_move(d, cell);
    drop(d, cell);
    d->counts.out++;
}

/* ---- servers ---- */

/* Life 0 is no server's: then it only asks for HELLO. */
static void send_welcome(struct placement *d, unsigned ward, struct outbox *out)
{
    struct fission_packet *p = send(d, SPILL_WELCOME, ward, out);
    if (!p)
        return; /* the server retransmits HELLO */
    p->stamp = d->ward[ward].life;
    p->word = d->capacity;
}

/* A server whose life began after the switch's has lost the words of its locks, which only the hosts can tell now. A server of an
 * earlier life may have lost them, too, but before the switch began: it has got the hosts' reports, unless it came too late. */
static void on_hello(struct placement *d, unsigned ward, const struct fission_packet *p, struct outbox *out)
{
    uint32_t life = p->stamp;
    if (life < d->ward[ward].life || !life)
        return; /* of a former life */
    if ((life > d->life || d->ward[ward].skipped) && !MISTAKE(d->config.mistakes, FISSLOCK_MISTAKE_AMNESIA)) {
        d->stale = true;
        return;
    }
    d->ward[ward].life = life;
    send_welcome(d, ward, out);
}

void placement_packet(struct placement *d, struct rebuild_lock *locks, const void *data, uint32_t len, uint64_t now,
                      struct outbox *out)
{
    const struct fission_packet *p = data;
    unsigned ward = 0;
    if (!spill_verify(p, len, &d->config))
        return;
    while (ward < d->config.servers && d->config.server[ward] != p->head.from.machine)
        ward++;
    if (ward == d->config.servers || p->head.from.port != PORT_SERVER)
        return;
    if (p->head.type == SPILL_HELLO) {
        on_hello(d, ward, p, out);
        return;
    }
    if (p->head.epoch != d->life || (p->head.type != SPILL_HEAT && ward_of(&d->config, p->head.index) != ward))
        return;
    switch (p->head.type) {
    case SPILL_HAND:
        on_hand(d, locks, p);
        break;
    case SPILL_GIVEN:
        on_given(d, p);
        break;
    case SPILL_HEAT:
        usage_heard(d, p);
        break;
    default:
        return;
    }
    usage_pump(d, locks, now, out);
}

/* Asks servers that have not answered yet. Returns when they are asked next. */
static uint64_t ask_servers(struct placement *d, uint64_t now, struct outbox *out)
{
    bool missing = false;
    for (unsigned i = 0; i < d->config.servers; i++) {
        missing |= !d->ward[i].life;
        if (!d->ward[i].life && now >= d->ask_ns)
            send_welcome(d, i, out);
    }
    if (now >= d->ask_ns)
        d->ask_ns = now + d->config.retry_ns;
    return missing ? d->ask_ns : UINT64_MAX;
}

uint64_t placement_tick(struct placement *d, struct rebuild_lock *locks, uint64_t now, struct outbox *out)
{
    uint64_t next = ask_servers(d, now, out);
    for (unsigned i = 0; i < d->moves && out->packets < OUTBOX_PACKETS / 2; i++) {
        if (d->move[i].due_ns <= now) {
            send_move(d, d->move[i].cell, locks, out);
            d->move[i].sent += d->move[i].sent < MOVE_DOUBLINGS;
            d->move[i].due_ns = now + (d->config.retry_ns << d->move[i].sent);
        }
        next = min_u64(next, d->move[i].due_ns);
    }
    usage_pump(d, locks, now, out);
    return next;
}
