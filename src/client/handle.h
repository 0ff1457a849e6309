/* SPDX-License-Identifier: Apache-2.0 */
/* A handle of pawl.h: what every session has, and the table of operations of its kind.
 *
 * There are three kinds: a session on memory (memory.h), of this machine or of a memory node; one on several memory nodes
 * (nodes.h); and one on a rack (net.h).
 * pawl_open chooses the table by the scheme of the place (open.c), and is the only function that names them; everything else goes
 * through the table. The exception is the uncontended path of `word` on shared memory, which is inline (fast.h). */
#ifndef PAWL_CLIENT_HANDLE_H
#define PAWL_CLIENT_HANDLE_H

#include "client/async.h"
#include "client/fast.h"
#include "lib/explain.h"

#include <semaphore.h>

#define HANDLE_LEASE_MAX_NS (UINT64_C(86400) * NS_PER_S) /* a day: PAWL_LEASE_FOREVER is for more */

/* Operations return 0 or a negative code, which they have explained. Null: not offered. */
struct session_ops {
    const char *scheme; /* of its places: "local:"; null: another kind opens it */
    bool on_memory;     /* the session is a struct memory_session */

    /* `place` is the part behind the scheme. The options have been checked as far as that is possible without the space. */
    int (*open)(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out);
    /* Also called in a child of the process that opened the handle: there it frees what belongs to the child. */
    int (*close)(struct pawl *p);

    int (*lock)(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_grant *out);
    int (*semaphore)(struct pawl *p, pawl_key key, uint32_t limit, uint64_t deadline, pawl_grant *out);
    int (*unlock)(struct pawl *p, const pawl_grant *g);
    int (*lock_all)(struct pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants);
    int (*unlock_all)(struct pawl *p, const pawl_grant *grants, unsigned count); /* null: one by one */
    int (*convert)(struct pawl *p, pawl_grant *g, enum pawl_mode mode, uint64_t deadline);
    int (*extend)(struct pawl *p, pawl_grant *g);
    int (*check)(struct pawl *p, const pawl_grant *g);
    int (*query)(struct pawl *p, pawl_key key, pawl_state *out);
    /* Whether another request waits for the lock of this grant: 1, 0 or a negative code. By the library's thread. Null: not
     * offered. */
    int (*wanted)(struct pawl *p, const pawl_grant *g);
    /* Why the session is lost; 0: it is not. For all but the library's thread it may be outdated. */
    enum pawl_why (*why)(struct pawl *p);

    /* Ranges, in bytes. */
    int (*lock_range)(struct pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline,
                      pawl_grant *out);
    int (*reshape)(struct pawl *p, pawl_grant *g, uint64_t start, uint64_t end, uint64_t deadline);
    int (*split)(struct pawl *p, pawl_grant *g, uint64_t at, pawl_grant *right);

    /* Data servers. `out` null: the lock is not kept. */
    int (*lock_call)(struct pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline, pawl_call *call, pawl_grant *out);
    int (*hold_call)(struct pawl *p, const pawl_grant *g, uint64_t deadline, pawl_call *call);

    /* Asynchronous operations (async.h). `admit` runs without the ring's lock and may block for a while: whether the request can be
     * begun, and where its key's lock is, if the session wants to know that beforehand. The others have the ring's lock. `begin`
     * finishes the operation or leaves it waiting. `pump` finishes what can be. `cancel` makes the next pump finish that one. */
    int (*admit)(struct pawl *p, const pawl_request *r, uint64_t *index);
    int (*begin)(struct pawl *p, struct async_op *op);
    void (*pump)(struct pawl *p);
    void (*cancel)(struct pawl *p, struct async_op *op);
    /* Without the lock: until an operation may have finished, or the deadline; and, unless null, that the set of waiting operations
     * has changed. */
    int (*wait)(struct pawl *p, uint64_t deadline);
    void (*changed)(struct pawl *p);
    /* Likewise, and unless null: takes note of what has come, without waiting; and what pawl_fd says. */
    void (*hear)(struct pawl *p);
    int (*fd)(struct pawl *p);
};

struct pawl {
    struct fast *fast; /* sessions other than those of `word` on shared memory use its `alive` alone */
    const struct session_ops *ops;
    const struct design *design; /* of the space, */
    enum pawl_keys keys;         /* and its kind of keys */
    struct async async;
    pthread_mutex_t setting; /* a value: one at a time */
    /* The library's thread: opens the session, renews it, looks after the dead, and closes it. */
    pthread_t thread;
    bool stop;
    sem_t started;
    int start_result;
};

/* The parts that every kind has; its own open and close call these. */
int handle_init(struct pawl *p, const struct session_ops *ops);
void handle_free(struct pawl *p);

/* Starts the library's thread and waits until it has called handle_started: 0, or the result that it gave there; then the thread
 * has ended. Signals belong to the application, so all are blocked in the thread. handle_stop waits until it has ended, too; `wake`
 * makes it look whether it is to stop, unless null. */
int handle_start(struct pawl *p, void *(*run)(void *), void *arg);
void handle_started(struct pawl *p, int result);
void handle_stop(struct pawl *p, void (*wake)(struct pawl *p));

/* As pawl_open, for benchmarks and tests. A segment that it makes has these knobs; null: the design's usual ones. */
int pawl_open_tuned(const char *where, const pawl_options *options, const struct knobs *knobs, pawl **out);

/* False in a child of the process that opened the handle. */
static inline bool handle_is_ours(const struct pawl *p)
{
    return likely(p->fast->alive == FAST_ALIVE);
}

static inline const char *handle_keys_name(enum pawl_keys keys)
{
    return keys == PAWL_KEYS_NAMED ? "named" : keys == PAWL_KEYS_SPARSE ? "sparse" : "dense";
}

int handle_forked(void);

/* A deadline of the public interface as designs have it. -EINVAL: it is 0; -PAWL_EFORKED. */
int handle_until(const struct pawl *p, uint64_t deadline_ns, uint64_t *out);

/* A thread of the library has been started beside those of handle_start, or has ended. */
void handle_count_threads(int change);

/* Whether no thread but the caller can release a lock of this process's sessions: the others are the library's. */
bool handle_only_thread(void);

/* The operation of this handle, unless the handle is the parent process's or its session does not offer it. The explanation of an
 * earlier call ends here. */
#define HANDLE_CALL(p, op, ...)                                                                                                    \
    (explain_nothing(), !handle_is_ours(p) ? handle_forked() : !(p)->ops->op ? handle_not_offered(p) : (p)->ops->op(p, __VA_ARGS__))
int handle_not_offered(const struct pawl *p);

/* Whether the design has semaphores, and the limit is one of them. */
int handle_check_limit(const struct pawl *p, uint64_t limit);

#endif
