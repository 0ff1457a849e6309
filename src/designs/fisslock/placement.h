/* SPDX-License-Identifier: Apache-2.0 */
/* A switch with room for fewer locks than there are: which locks it decides, which server decides the others, and moves between
 * them. A cell is a place for one lock in the switch's memory. */
#ifndef PAWL_DESIGNS_FISSLOCK_PLACEMENT_H
#define PAWL_DESIGNS_FISSLOCK_PLACEMENT_H

#include "designs/fisslock/rebuild.h"
#include "designs/fisslock/spill.h"

#define CELL_NONE UINT32_MAX

enum cell_state {
    CELL_FREE,
    CELL_CALLED,  /* CALL was sent: the lock is still the server's */
    CELL_HERE,    /* the lock is decided here */
    CELL_LEAVING, /* GIVE was sent: the lock is not decided here any more */
};

struct lock_cell {
    uint64_t index, round;
    uint32_t next; /* in its bucket, or among the free */
    uint32_t state;
    struct heat heat;
};

#define MOVES_MAX 128   /* in flight */
#define WANTED_MAX 1024 /* locks that are to come: what servers report in a period */

struct placement_counts {
    uint64_t in, out, forwarded, returned, dead, refused;
};

struct placement {
    struct rack_config config;
    uint32_t life;
    uint32_t capacity;
    uint32_t mask; /* of the buckets */
    uint64_t cells_at, buckets_at;
    uint64_t round;
    uint32_t free, hand;
    uint32_t moves, leaving;
    struct {
        uint32_t cell, sent;
        uint64_t due_ns; /* it is sent again then */
    } move[MOVES_MAX];
    uint32_t wanted_first, wanted_count;
    struct {
        uint64_t index;
        uint32_t count;
    } wanted[WANTED_MAX];
    struct {
        uint32_t life; /* of its server; 0: not heard yet */
        bool skipped;  /* it was missing when hosts reported their holds */
    } ward[RACK_SERVERS_MAX];
    uint64_t patience_ns; /* until then reports wait for missing servers */
    uint64_t ask_ns;      /* when missing servers are asked next */
    bool stale;           /* a server lost its memory: the switch must begin another life */
    struct placement_counts counts;
};

/* Whether the switch has room for fewer locks than there are. */
static inline bool placement_needed(const struct rack_config *c)
{
    return c->servers && c->switch_locks && c->switch_locks < c->locks;
}

uint64_t placement_bytes(const struct rack_config *config);
void placement_init(struct placement *d, const struct rack_config *config, uint32_t life, uint64_t now);

/* The cell of a lock that is decided here; CELL_NONE: it is decided elsewhere. */
uint32_t placement_cell(const struct placement *d, uint64_t index);
/* The lock that is decided in a cell; false: none. */
bool placement_index(const struct placement *d, uint32_t cell, uint64_t *index);
void placement_used(struct placement *d, uint32_t cell, uint64_t now);

/* To the lock's server. */
void placement_forward(struct placement *d, const struct fission_packet *p, uint32_t len, uint16_t flags, struct outbox *out);

/* A REPORT to a switch that lost its state. It first goes to the servers whose locks it names, one after the other, and comes back
 * from each. False: no server is left. */
bool placement_report(struct placement *d, const struct fission_packet *p, uint32_t len, uint64_t now, struct outbox *out);

void placement_packet(struct placement *d, struct rebuild_lock *locks, const void *data, uint32_t len, uint64_t now,
                      struct outbox *out);
uint64_t placement_tick(struct placement *d, struct rebuild_lock *locks, uint64_t now, struct outbox *out);

/* ---- between placement.c and usage.c ---- */

struct lock_cell *placement_cell_at(const struct placement *d, uint32_t cell);
const struct lock_cell *placement_find(const struct placement *d, uint64_t index);
bool placement_open(const struct placement *d, uint64_t index); /* its server has answered */
void placement_call(struct placement *d, uint64_t index, const struct rebuild_lock *locks, uint64_t now, struct outbox *out);
void placement_give(struct placement *d, uint32_t cell, const struct rebuild_lock *locks, uint64_t now, struct outbox *out);

void usage_heard(struct placement *d, const struct fission_packet *heat);
/* Begins moves that are due, as far as there is room for moves. */
void usage_pump(struct placement *d, const struct rebuild_lock *locks, uint64_t now, struct outbox *out);

#endif
