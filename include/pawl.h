/* SPDX-License-Identifier: Apache-2.0 */
/* pawl: a distributed lock manager.
 *
 *     pawl *p;
 *     pawl_grant g;
 *     if (pawl_open("local:", NULL, &p) == 0 && pawl_lock(p, pawl_name("accounts"), PAWL_EXCLUSIVE, &g) == 0) {
 *         ...                                    // here nobody else holds "accounts"
 *         pawl_unlock(p, &g);
 *     }
 *     pawl_close(p);
 *
 * A *space* is a named set of locks. `pawl_open` joins it with a *session*: a lease that a thread of the library keeps
 * renewing. A *grant* is a lock held: its mode, its fencing token, and the time at which it ends unless the session is renewed.
 *
 * What a lock does not promise
 *   A process can be stopped for longer than its lease, and go on afterwards believing that it holds the lock. The lock manager
 *   has by then given it to another; nothing can prevent the late process from sending one more write. What can be done is to
 *   have the resource refuse it. Every exclusive grant of a lock has a higher token than all before it, so a store that
 *   remembers the highest token it saw tells late writers apart:
 *
 *       int fenced_write(struct store *s, uint64_t token, const void *data)
 *       {
 *           if (token < s->highest_token)
 *               return -ESTALE;                    // somebody was granted the lock after this writer
 *           s->highest_token = token;
 *           return store_write(s, data);
 *       }
 *
 *   Send grant.token with every write. A time-out (-ETIMEDOUT) says that you do not hold the lock, not who does. After
 *   -PAWL_EUNKNOWN the outcome is open: close the session, which settles it. Locks are advisory. Removing a space's segment
 *   file by hand, while it is in use, splits its users into two groups that do not see each other. Fairness is the design's:
 *   `word`, the default, lets newcomers overtake those who sleep.
 *
 * Rules
 *   Calls return 0 or a negative code: -errno, or one of the -PAWL_E... below. Output parameters are written on success only.
 *   Handles belong to no thread: any thread may use any handle at any time, and unlock what another has locked.
 *   Pointers passed in are read during the call and not kept. What is written through a pointer belongs to the caller. The only
 *   object that the library owns is the handle: from pawl_open to pawl_close.
 *   After fork() the child has none of the parent's sessions: its calls return -PAWL_EFORKED until it opens its own.
 *   Times are nanoseconds of CLOCK_MONOTONIC; deadlines are absolute; pawl_in() makes one. */
#ifndef PAWL_H
#define PAWL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAWL_VERSION "0.1.0"
#define PAWL_API __attribute__((visibility("default")))

typedef struct pawl pawl;

/* ---- codes, returned negative; beside them plain errno values, of which these have a fixed meaning:
 *   -ETIMEDOUT   the deadline passed; the lock is not held
 *   -ECANCELED   pawl_cancel was there first; the lock is not held
 *   -EDEADLK     two holders wait for each other, each for more than it has (both convert shared to exclusive, or grow), or a
 *                longer circle (see Deadlocks); this one is to give way, nothing was changed, what was held still is
 *   -EAGAIN      over packets: nobody who could say whether the lock is free has answered for a lease, and you did not want to
 *                wait; or the coordinator has not said for so long, or for 15 s if you wait, which lock a key has
 *   -EINVAL      the call itself is wrong: a range that ends before it starts, an unknown mode, a key of another kind
 *   -ENAMETOOLONG, -ENOSPC, -ENOENT, -EACCES, -ENOMEM as usual ---- */
enum pawl_error {
    PAWL_EHELD = 1001,     /* held by another, and you did not want to wait */
    PAWL_ELOST = 1002,     /* the session was lost: its lease ran out, or an operator broke it. Its grants are void */
    PAWL_EUNKNOWN = 1003,  /* it may have happened or not: the connection broke in between */
    PAWL_ENOTOWNER = 1004, /* this grant is not (or no longer) held by this session: unlocked twice, or another's */
    PAWL_ENOTSUP = 1005,   /* this design does not offer that */
    PAWL_EFORKED = 1006,   /* the handle belongs to the parent process */
    PAWL_ESEGMENT = 1007,  /* not a segment of this version of pawl, or damaged */
    PAWL_ELIMIT = 1008,    /* too many: sessions in the space, holds or requests in the session */
};

/* A sentence for any code that a call returned. Static. */
PAWL_API const char *pawl_strerror(int code);

/* More about this thread's latest failed call: which file, which limit, what to do. Valid until its next call. Completions have
 * their code alone. */
PAWL_API const char *pawl_explain(void);

/* ---- opening ---- */

enum pawl_keys {
    PAWL_KEYS_NAMED = 1,  /* strings of 1 to PAWL_NAME_MAX bytes */
    PAWL_KEYS_SPARSE = 2, /* any u64 */
    PAWL_KEYS_DENSE = 3,  /* 0 .. capacity-1 */
};

#define PAWL_NAME_MAX 255
#define PAWL_LEASE_FOREVER UINT64_MAX /* local spaces: held until released or the process ends, however long it is stopped */

/* What to create a space with if there is none yet, and what to demand of one that is there. Zero: no wish, default or as found. */
typedef struct pawl_options {
    const char *design;  /* default "word" */
    enum pawl_keys keys; /* default named */
    uint64_t capacity; /* locks; default 16,384, with ranges 256. A sparse or named space makes room by forgetting locks that nobody
                          uses */
    uint64_t lease_ns; /* of this session; default 10 s */
    uint32_t sessions; /* that can be open at once; default 256 */
    uint32_t holds;    /* locks (or ranges) that one session can hold or wait for at once; default 256 */
    uint32_t permissions; /* of the segment; default 0600 */
    uint32_t flags;       /* PAWL_NO_CREATE, PAWL_MUST_CREATE */
    /* Designs with ranges. A range is locked in whole units: */
    uint64_t unit_bytes;  /* a power of two up to 8 MiB; default 4,096 */
    uint64_t range_units; /* that a lock is made for; default 65,536. It grows as it is used, and its memory is */
    uint64_t range_max;   /* reserved for so many units, up to 2^40; default 2^20. Beyond that one lock stands for all the rest.
                             Memory is taken where it is used, but addresses for all of it: about 5 bytes per unit and lock */
    /* Racks of the designs netlock (see pawl policy) and fisslock: */
    uint16_t tenant;   /* netlock: whose quota this session counts against, below 64; default 0 */
    uint16_t priority; /* among those who wait: 0, the default, is the highest, and from 7 on all are alike */
} pawl_options;

enum {
    PAWL_NO_CREATE = 1,  /* -ENOENT if the space does not exist */
    PAWL_MUST_CREATE = 2 /* -EEXIST if it does */
};

/* `where`: "local:" or "local:NAME" (shared memory of this machine, no daemon), "local:/PATH" (a segment at a path of your
 * choice), "pawl://ADDRESS:PORT/SPACE" (a rack, whose coordinator is there: pawl serve; the options' design, keys and capacity
 * are demands; who first locks a key by name asks the coordinator for it; "?wire=afxdp" after it asks for a way past the network
 * stack, and if there is none a line on standard error says why). `options` may be null. */
PAWL_API int pawl_open(const char *where, const pawl_options *options, pawl **out);

/* Releases what the session holds, cancels what it waits for, ends it. No other call on the handle may be running. */
PAWL_API int pawl_close(pawl *p);

/* ---- keys and grants ---- */

typedef struct pawl_key {
    const char *name; /* null: the key is `id` */
    uint64_t id;      /* or the name's length */
} pawl_key;

static inline pawl_key pawl_name(const char *name)
{
    pawl_key k = {name, strlen(name)};
    return k;
}

static inline pawl_key pawl_bytes(const void *bytes, size_t len)
{
    pawl_key k = {(const char *)bytes, len};
    return k;
}

static inline pawl_key pawl_id(uint64_t id)
{
    pawl_key k = {NULL, id};
    return k;
}

enum pawl_mode { PAWL_SHARED = 1, PAWL_EXCLUSIVE = 2 };

/* A lock held. Copy it freely; it ends with unlock, with the session, or at expiry_ns. */
typedef struct pawl_grant {
    uint64_t token;     /* fencing token; 0 if the design has none */
    uint64_t expiry_ns; /* of the session when it was granted; renewal moves it on: pawl_check asks */
    uint32_t mode;      /* enum pawl_mode */
    uint32_t hold;      /* the rest is the library's */
    uint64_t index;
    uint64_t serial;
    uint64_t start, end; /* designs with ranges: the bytes that are locked, in whole units; else 0 */
} pawl_grant;

/* ---- locking ---- */

/* Now, on the clock of deadlines and expiries; and a deadline so many nanoseconds from now. */
PAWL_API uint64_t pawl_now(void);
PAWL_API uint64_t pawl_in(uint64_t ns);

PAWL_API int pawl_lock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out);
PAWL_API int pawl_trylock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out); /* -PAWL_EHELD rather than wait */
PAWL_API int pawl_timedlock(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out);
PAWL_API int pawl_unlock(pawl *p, const pawl_grant *grant);

/* Deadlocks
 *   Threads that wait for locks while they hold others may wait in a circle, each for what the next one has. Designs that find that
 *   (pawl doctor --matrix: "deadlock") tell one of them, long before its deadline and even if it has none: its call returns
 *   -EDEADLK. It should give back what it holds, and begin again. Nobody is told who was in no such circle.
 *   What counts is what the library sees: threads, of one session each, that wait in pawl_lock, pawl_timedlock, pawl_lock_all or
 *   pawl_convert for what another has locked in such a call. Operations that were submitted, and a thread that waits for something
 *   else, such as a child process that wants a lock, take no part; use deadlines there. A lock is taken to be the thread's that
 *   locked it. A session in which a thread has given back or converted what another had locked takes no part from then on; what
 *   is handed over for the first time, while the one who locked it waits for another lock, may be taken for a deadlock. */

/* Bytes [start, end) of a file or anything else that has an extent. Designs with ranges only; with them pawl_lock and the others
 * take the whole. What is locked are all units that the range touches: out->start and out->end say which bytes those are. Several
 * ranges of one key can be held at once. But who waits for a range that it holds itself waits for ever, and who waits for one while
 * holding another may meet one who waits for both: take them with pawl_lock_all, or wait with a deadline. deadline_ns may be
 * UINT64_MAX, never, or PAWL_TRY: now or -PAWL_EHELD.
 * -EINVAL if the range is empty or ends before it starts, -EOVERFLOW if it reaches beyond 2^40 units. */
#define PAWL_END UINT64_MAX /* as `end`: to the end, wherever that is */
#define PAWL_TRY UINT64_C(0)
PAWL_API int pawl_lock_range(pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline_ns,
                             pawl_grant *out);

/* Makes a held range larger, which may wait for others, or smaller, which gives back what lies outside of [start, end). One of the
 * two ranges contains the other, else -EINVAL. Those who wait and hold nothing give way to one that grows. Two who grow towards
 * each other wait for each other: `citron` finds out and tells one of them, -EDEADLK, as it does if another hold of the session is
 * in the way; else use a deadline. On failure the grant is what it was. What has grown has another token. */
PAWL_API int pawl_reshape(pawl *p, pawl_grant *grant, uint64_t start, uint64_t end, uint64_t deadline_ns);

/* Cuts a held range in two, each of which then ends, changes and is given back by itself: `grant` ends at byte `at`, *right goes on
 * from there. -EINVAL unless `at` is the first byte of a unit, and not the first, of the range; -PAWL_ELIMIT if the session has as
 * many holds as it can, or if there are so many readers that one more cannot be told apart. On failure nothing has changed. */
PAWL_API int pawl_split(pawl *p, pawl_grant *grant, uint64_t at, pawl_grant *right);

/* All or none. Taken in one order by everybody, so that users of pawl_lock_all do not deadlock with each other.
 * The same lock twice, or ranges of one that overlap, are -EINVAL. Ranges that do not, but share a part that the design locks as
 * one, are -EDEADLK: ask for one that contains both. grants[i] belongs to wants[i]. */
typedef struct pawl_want {
    pawl_key key;
    enum pawl_mode mode;
    uint64_t start, end; /* bytes; both 0: the whole */
} pawl_want;

#define PAWL_ALL_MAX 64 /* wants of one call */
PAWL_API int pawl_lock_all(pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline_ns, pawl_grant *grants);

/* Exclusive to shared always works. Shared to exclusive waits for the other readers, and comes before writers that wait; -EDEADLK
 * if one of the readers wants it too. On failure the grant is what it was. */
PAWL_API int pawl_convert(pawl *p, pawl_grant *grant, enum pawl_mode mode, uint64_t deadline_ns);

/* Renews the session's lease now, and the grant's expiry with it. The library does so by itself every third of a lease. */
PAWL_API int pawl_extend(pawl *p, pawl_grant *grant);

/* 0 while the grant is certainly still held; else -PAWL_ELOST or -PAWL_ENOTOWNER. Cheap: no system call. */
PAWL_API int pawl_check(pawl *p, const pawl_grant *grant);

/* What a lock looks like at this moment. */
typedef struct pawl_state {
    uint32_t mode;    /* 0 if free */
    uint32_t holders; /* sessions that hold it */
    uint32_t waiters; /* sessions that wait for it */
    uint64_t token;   /* of the latest grant; in a rack, of those that hold it, 0 if nobody does */
} pawl_state;

/* In a rack this asks every host: it takes milliseconds, and what it says is not of one moment. -EAGAIN: a host does not answer. */
PAWL_API int pawl_query(pawl *p, pawl_key key, pawl_state *out);

/* ---- data beside the lock ---- */

/* In a rack of design `netlock` whose lock servers keep data (pawl_serve), the server of a lock can do something with the data of
 * that lock: write or read what your bytes say, which are its own business and not pawl's. */
#define PAWL_CALL_MAX 512 /* bytes that are sent, and that come back */

typedef struct pawl_call {
    const void *bytes; /* what is to be done */
    size_t len;
    void *reply; /* where the answer goes; of more than `room` bytes, the first ones */
    size_t room;
    size_t replied; /* how long the answer is */
} pawl_call;

/* Locks, and has it done under the lock: in one round trip if the lock is free. `out` null: it is unlocked at once. It is done once
 * or not at all, however often packets are sent, and only as long as nobody was granted the lock later and did anything.
 *   0                                  it was done, the reply is there, and the lock is held if `out` is not null
 *   -ETIMEDOUT, -PAWL_EHELD, -EAGAIN   it was not done and will not be; the lock is not held
 *   -PAWL_EUNKNOWN, -PAWL_ELOST        nobody can tell whether it was done; the lock is not held. Lock it, and look
 *   -PAWL_ENOTSUP                      the design, or the server of this lock, does not offer that
 *   -PAWL_ELIMIT                       sixteen of this session are under way already
 * The deadline may be overstepped by a lease, until it is known whether it was done. PAWL_TRY: do not wait for the lock. */
PAWL_API int pawl_lock_call(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_call *call, pawl_grant *out);

/* The same under a lock that is held, which stays so whatever comes of it, except with -PAWL_ELOST. */
PAWL_API int pawl_hold_call(pawl *p, const pawl_grant *grant, uint64_t deadline_ns, pawl_call *call);

typedef struct pawl_work {
    uint64_t lock;  /* index: in a space with dense keys, the key */
    uint64_t token; /* under which it is to be done */
    uint32_t mode;  /* enum pawl_mode */
    uint32_t len;
    const void *bytes;
} pawl_work;

/* Does it, and returns how long the reply is, at most `room`. Called by one thread, in the order of tokens, and never twice for the
 * same; it must not wait. */
typedef size_t (*pawl_apply)(void *ctx, const pawl_work *work, void *reply, size_t room);

/* Joins the rack at `where` ("pawl://ADDRESS:PORT/SPACE") as a lock server that keeps data, listens at `at` ("ADDRESS:PORT"; port
 * 0: any), and serves until *stop, which a handler of signals sets. `ready`, unless null, is called when it has joined. */
PAWL_API int pawl_serve(const char *where, const char *at, pawl_apply apply, void *ctx, void (*ready)(void *ctx),
                        const volatile int *stop);

/* ---- asynchronously ---- */

enum pawl_op {
    PAWL_OP_LOCK = 1, /* with a call: pawl_lock_call, and the lock is kept */
    PAWL_OP_UNLOCK = 2,
    PAWL_OP_CONVERT = 3,
    PAWL_OP_RESHAPE = 4,
    PAWL_OP_CALL = 5,      /* pawl_lock_call, and the lock is not kept */
    PAWL_OP_HOLD_CALL = 6, /* pawl_hold_call */
};

typedef struct pawl_request {
    enum pawl_op op;
    enum pawl_mode mode;
    pawl_key key;         /* lock, call; its name is copied */
    pawl_grant grant;     /* unlock, convert, reshape, call under a lock that is held */
    uint64_t deadline_ns; /* UINT64_MAX: none */
    void *user;           /* comes back in the completion */
    uint64_t start, end;  /* lock: both 0: the whole; reshape */
    pawl_call *call;      /* what it points to is copied; the call itself and where its reply goes stay until it is reaped */
} pawl_request;

typedef struct pawl_completion {
    uint64_t id;
    int result; /* as the synchronous call would have returned */
    pawl_grant grant;
    void *user;
} pawl_completion;

#define PAWL_INFLIGHT_MAX 64 /* submitted and not yet reaped, per session: then -PAWL_ELIMIT */

/* Starts an operation. What can be done without waiting is done at once; its completion is reaped like any other. */
PAWL_API int pawl_submit(pawl *p, const pawl_request *request, uint64_t *id);

/* Takes up to max completions, waiting until the deadline for the first one. Returns how many, 0 at the deadline. */
PAWL_API int pawl_reap(pawl *p, pawl_completion *out, unsigned max, uint64_t deadline_ns);

/* Asks a waiting operation to stop: its completion says -ECANCELED, or 0 if it was granted first. -ENOENT: no such operation
 * in flight. */
PAWL_API int pawl_cancel(pawl *p, uint64_t id);

/* Readable (poll, epoll) while there are completions to reap. Belongs to the handle. */
PAWL_API int pawl_fd(pawl *p);

#ifdef __cplusplus
}
#endif
#endif
