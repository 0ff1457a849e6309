/* SPDX-License-Identifier: Apache-2.0 */
/* Holders and waiters, for people and their tools. Reads a space without joining it, so that a full one, or one in which sessions
 * are stuck, can be inspected. The results may be out of date by the time they are shown. */
#ifndef PAWL_CLIENT_INSPECT_H
#define PAWL_CLIENT_INSPECT_H

#include "client/locker.h"
#include "client/segment.h"

/* A look at a space from outside: no session, no thread. */
struct observer {
    struct locker locker;
    struct space space;
    struct fab_ep ep;
    struct session unjoined;     /* without a slot: an observer takes none */
    struct segment *segment;     /* null on a memory node, */
    struct node_udp *far;        /* which this reaches */
    struct fab_rdma *fabric;     /* and this, where the node's verbs are not packets */
    struct layout_header header; /* as it was when opened */
    unsigned node, nodes;        /* which one of so many memory nodes; else 0 of 1 */
};

/* `where` as for pawl_open, but no rack; never creates the space. -ENOENT and others, explained. `o` does not move while it is
 * open. */
int observer_open(const char *where, struct observer *o);
void observer_close(struct observer *o);

/* How many memory nodes it names; 1 for every other place. Then one of them, from 0 on. */
int observer_nodes(const char *where, unsigned *count);
int observer_open_node(const char *where, unsigned node, struct observer *o);

/* A key of the node as clients of all nodes call it. */
pawl_key observer_key(const struct observer *o, pawl_key there);

/* ---- sessions ---- */

enum session_health {
    SESSION_LIVE,
    SESSION_OPENING,
    SESSION_EXPIRED, /* its lease ran out: its locks are recovered when another session wants them; not on a memory node, where
                        sessions have clocks of their own, and such a session is live until another one declares it lost */
    SESSION_DEAD,    /* its process ended without closing it: likewise */
    SESSION_BROKEN,  /* declared lost */
};

const char *session_health_name(enum session_health health);

struct inspect_session {
    uint32_t slot, epoch;
    uint32_t machine; /* the host's number in a rack; 0: this machine, in shared memory */
    char host[48];    /* its address; empty: this machine, or unknown */
    uint32_t pid;     /* 0 on a memory node, which knows it by its */
    uint32_t client;  /* number */
    uint64_t proof;   /* by which fab_shm_gone recognises the process */
    enum session_health health;
    uint64_t lease_ns;  /* PAWL_LEASE_FOREVER: none */
    uint64_t expiry_ns; /* on the monotonic clock; UINT64_MAX: never; 0: unknown, by the clock of another machine */
    uint64_t opened_s;  /* seconds since 1970 */
    char label[SLOT_LABEL_LEN];
};

typedef int (*inspect_session_fn)(void *ctx, const struct inspect_session *s);
int inspect_sessions(const struct locker *l, inspect_session_fn fn, void *ctx);

/* ---- locks ---- */

/* Bytes. */
struct inspect_range {
    uint64_t start, end;
    enum pawl_mode mode;
};

struct inspect_lock {
    uint64_t index;
    pawl_key key; /* valid during the call */
    struct lock_view view;
    uint32_t holders, waiters; /* of living sessions */
    uint32_t gone;             /* holders that are dead or expired: the lock is recovered when the next session asks for it */
    /* Designs with ranges: those that are held, one for each holder. Valid during the call. */
    const struct inspect_range *ranges;
    uint32_t range_count;
};

/* Calls fn for every lock that is held or waited for, with `all` for every lock that the space knows; by index, until fn returns
 * non-zero. */
typedef int (*inspect_lock_fn)(void *ctx, const struct inspect_lock *lock);
int inspect_locks(const struct locker *l, bool all, inspect_lock_fn fn, void *ctx);

/* The same for what one session holds or waits for; holders and waiters count this session alone. */
int inspect_locks_of(const struct locker *l, uint32_t slot, inspect_lock_fn fn, void *ctx);

/* ---- both ---- */

struct inspect_claim {
    struct inspect_session session;
    bool holds;          /* else it waits */
    enum pawl_mode mode; /* of a hold; the mode that a waiter wants is not published */
    uint64_t start, end; /* designs with ranges: bytes; else 0 */
};

/* The holders and waiters of a lock. */
typedef int (*inspect_claim_fn)(void *ctx, const struct inspect_claim *claim);
int inspect_claims(const struct locker *l, uint64_t index, inspect_claim_fn fn, void *ctx);

#endif
