/* SPDX-License-Identifier: Apache-2.0 */
/* pawl: a distributed lock manager.
 *
 *     pawl *p;
 *     pawl_grant g;
 *     if (pawl_open("local:", NULL, &p) == 0 && pawl_lock(p, pawl_name("accounts"), PAWL_EXCLUSIVE, &g) == 0) {
 *         ...                                    // no other session holds "accounts" here
 *         pawl_unlock(p, &g);
 *     }
 *     pawl_close(p);
 *
 * A *space* is a named set of locks. `pawl_open` joins it with a *session*: a lease that a thread of the library keeps
 * renewing. A *grant* is a lock held: its mode, its fencing token, and the time at which it ends unless the session is renewed.
 *
 * Limits of a lock
 *   A process can be stopped for longer than its lease, and go on afterwards believing that it holds the lock. By then the lock
 *   manager has granted the lock to another, and nothing can prevent the late process from sending one more write. But the resource
 *   can refuse that write. Every exclusive grant of a lock has a higher token than all before it, so a store that remembers the
 *   highest token it saw recognises late writers:
 *
 *       int fenced_write(struct store *s, uint64_t token, const void *data)
 *       {
 *           if (token < s->highest_token)
 *               return -ESTALE;                    // the lock was granted again after this writer's grant
 *           s->highest_token = token;
 *           return store_write(s, data);
 *       }
 *
 *   Send grant.token with every write. A time-out (-ETIMEDOUT) says that you do not hold the lock, not which session does.
 *   After -PAWL_EUNKNOWN the outcome is open: close the session, which settles it. Locks are advisory. If a space's segment
 *   file is removed by hand while it is in use, its users are split into two groups that do not see each other. Fairness
 *   depends on the design: with `word`, the default, newcomers may overtake sleeping waiters.
 *
 * Users that do not trust each other
 *   Every user who can open a segment (system:, or local:/PATH with permissions) can write to all of it: hold its locks for ever,
 *   take locks from others, forge tokens, or destroy it. Such a user is not kept from that; for that there are racks, whose servers
 *   check. But no such user can end or take over another user's process: with the designs word and mutex every index that is read
 *   from a segment is checked, calls return -PAWL_ESEGMENT or -PAWL_ELOST instead, and a segment that is made shorter is noticed by
 *   a handler for SIGBUS, which the library has while such a segment is open, and which passes on every other SIGBUS. The other
 *   designs are for users that trust each other.
 *
 * Rules
 *   Calls return 0 or a negative code: -errno, or one of the -PAWL_E... below. Output parameters are written on success only.
 *   Handles belong to no thread: any thread may use any handle at any time, and unlock a lock that another thread has locked.
 *   Pointers passed in are read during the call and not kept. Results belong to the caller. The only object that the library
 *   owns is the handle: from pawl_open to pawl_close.
 *   After fork() the child has none of the parent's sessions: its calls return -PAWL_EFORKED until it opens its own.
 *   Times are nanoseconds of CLOCK_MONOTONIC. Deadlines are absolute, and pawl_in() makes one. UINT64_MAX: no deadline;
 *   PAWL_TRY: the call does not wait (-PAWL_EHELD); 0, which a struct that was not filled in has: -EINVAL. A deadline in the
 *   past does not wait either, and a free lock is granted all the same; else -ETIMEDOUT.
 *   A call that would wait for a lock that its own thread holds returns -EDEADLK where that can be known: in a process whose only
 *   thread it is, and in racks also of a thread among others, unless threads of the session release locks for each other. Shared
 *   holds do not wait for each other, unless they are all places of a semaphore. Submitted operations are not looked at: the
 *   program may unlock while they wait.
 *
 * Versions
 *   Programs that were compiled with an earlier header run with a later library of the same soname (libpawl.so.0). It removes no
 *   function, and changes no struct's size, no value of an enum and no documented meaning. Symbols have versions (PAWL_0.1), so a
 *   program that needs a later library is refused by the loader, by name. New fields take the room of those called `reserved`. In
 *   structs that the program fills in, reserved fields are 0, else -EINVAL: initialise the struct as a whole, = {.field = value}.
 *   In structs that the library fills in it sets them to 0. Ignore completions with an op that you do not know. */
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
#define PAWL_VERSION_NUMBER 0x000100 /* 0x010203 is 1.2.3 */
#define PAWL_API __attribute__((visibility("default")))

typedef struct pawl pawl;

/* PAWL_VERSION_NUMBER of the library that the program runs with. */
PAWL_API uint32_t pawl_version(void);

/* ---- codes, returned negative; beside them plain errno values, of which these have a fixed meaning:
 *   -ETIMEDOUT   the deadline passed; the lock is not held
 *   -ECANCELED   pawl_cancel came before the grant; the lock is not held
 *   -EDEADLK     a deadlock: the caller's thread holds the lock itself (see Rules), two holders wait for each other (both convert
 *                shared to exclusive, or both grow), or threads wait in a longer cycle (see Deadlocks). The caller was chosen
 *                as the victim. Nothing was changed, locks held are still held
 *   -EAGAIN      racks: a call that does not wait got no answer from the lock's server for a lease; or the coordinator did not
 *                answer which lock a key has, for a lease, or for 15 s if the call waits
 *   -EINVAL      the call itself is wrong: a range that ends before it starts, an unknown mode, a key of another kind
 *   -ENAMETOOLONG, -ENOSPC, -ENOENT, -EACCES, -ENOMEM as usual ---- */
enum pawl_error {
    PAWL_EHELD = 1001,     /* another session holds the lock, and the call does not wait */
    PAWL_ELOST = 1002,     /* the session was lost: its lease ran out, or an operator broke it. Its grants are void */
    PAWL_EUNKNOWN = 1003,  /* the outcome is unknown: the connection broke in between */
    PAWL_ENOTOWNER = 1004, /* this session does not (or no longer) hold the grant: unlocked twice, or of another session */
    PAWL_ENOTSUP = 1005,   /* this design does not offer that */
    PAWL_EFORKED = 1006,   /* the handle belongs to the parent process */
    PAWL_ESEGMENT = 1007,  /* not a segment of this version of pawl, or damaged */
    PAWL_ELIMIT = 1008,    /* too many: sessions in the space, holds or requests in the session */
    PAWL_ELIMITS = 1009,   /* the semaphore is held with another limit, or its key is locked without one */
    PAWL_ENOVALUE = 1010,  /* the lock has no value: none was set, or it was forgotten with the lock */
};

/* A sentence for any code that a call returned. Static. */
PAWL_API const char *pawl_strerror(int code);

/* More about this thread's latest failed call: which file, which limit, what to do. Valid until the thread's next call. Completions
 * have a code and no explanation. */
PAWL_API const char *pawl_explain(void);

/* ---- opening ---- */

enum pawl_keys {
    PAWL_KEYS_NAMED = 1,  /* strings of 1 to PAWL_NAME_MAX bytes */
    PAWL_KEYS_SPARSE = 2, /* any u64 */
    PAWL_KEYS_DENSE = 3,  /* 0 .. capacity-1 */
};

#define PAWL_NAME_MAX 255
#define PAWL_LEASE_FOREVER UINT64_MAX /* local spaces: held until released or the process ends, however long it is stopped */

/* With what a space is created if it does not exist, and what an existing one must have. 0: the default when creating, any value
 * when opening. */
typedef struct pawl_options {
    const char *design;  /* default "word"; also shiftlock, shiftlock64, alock, citron, mutex; on racks the others of pawl serve */
    enum pawl_keys keys; /* default named */
    uint64_t capacity;   /* locks; default 16,384, with ranges 256. A sparse or named space makes room by forgetting unused locks */
    uint64_t lease_ns;   /* of this session; default 10 s */
    uint32_t sessions;   /* open at once; default 256 */
    uint32_t holds;      /* locks (or ranges) that one session can hold or wait for at once; default 256 */
    uint32_t permissions; /* of the segment; default 0600, of system: 0666 */
    uint32_t flags;       /* PAWL_NO_CREATE, PAWL_MUST_CREATE */
    /* Designs with ranges. A range is locked in whole units: */
    uint64_t unit_bytes;  /* a power of two up to 8 MiB; default 4,096 */
    uint64_t range_units; /* units that a lock is laid out for at first; default 65,536. The layout grows as the lock is used */
    uint64_t range_max;   /* units that it can grow to, up to 2^40; default 2^20. All units beyond are locked as one. Addresses are
                             reserved for range_max, about 5 bytes per unit and lock; memory is taken where it is used */
    /* Racks of the designs netlock (see pawl policy) and fisslock: */
    uint16_t tenant;   /* netlock: the tenant whose quota this session counts against, below 64; default 0 */
    uint16_t priority; /* among waiters: 0, the default, is the highest; 7 and above are equal */
    /* Racks: */
    uint64_t open_ns; /* how long pawl_open waits for a coordinator to answer, and for the rack to be complete; default 15 s */
    const char *key;  /* key file of the rack; default $PAWL_KEY; neither: packets are not tagged. See pawl key */
    uint64_t reserved[3];
} pawl_options;

enum {
    PAWL_NO_CREATE = 1,  /* -ENOENT if the space does not exist */
    PAWL_MUST_CREATE = 2 /* -EEXIST if it does */
};

/* clang-format off */
/* `where` is one of
 *   local:, local:NAME          shared memory of this machine, for this user alone; no daemon is needed
 *   system:, system:NAME        the same, shared by all users of this machine. Root makes its place once (pawl doctor --fix, or the
 *                               package). Designs word and mutex. See "Users that do not trust each other"
 *   local:/PATH                 a segment at a path of your choice
 *   pawl://ADDRESS:PORT/SPACE   a rack, at the address of its coordinator (pawl serve): an IPv4 address, an IPv6 address in brackets
 *                               or a host name, which the resolver is asked for. Several coordinators of one rack have commas
 *                               between them, pawl://A,B,C:PORT/SPACE, and so have several memory nodes of one space, all of
 *                               them in their order. The space exists already, so the options'
 *                               design, keys and capacity are requirements. The first use of a key asks the coordinator.
 *                               "?wire=afxdp" behind SPACE bypasses the network stack; where that is impossible a line on standard
 *                               error says why
 * `options` may be null. A design that libpawl does not offer is refused: -EINVAL. */
/* clang-format on */
PAWL_API int pawl_open(const char *where, const pawl_options *options, pawl **out);

/* Releases what the session holds, cancels what it waits for, and ends it. No other call on the handle may be running. */
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

/* A lock held. It may be copied. It ends with unlock, with the session, or at expiry_ns. Its size is fixed. */
typedef struct pawl_grant {
    uint64_t token;     /* fencing token; 0 if the design has none */
    uint64_t expiry_ns; /* of the session, as of its last renewal. Later renewals extend it: see pawl_check */
    uint32_t mode;      /* enum pawl_mode */
    uint32_t hold;      /* hold, index and serial are for the library */
    uint64_t index;
    uint64_t serial;
    uint64_t start, end; /* designs with ranges: the bytes that are locked, whole units; else 0 */
} pawl_grant;

/* ---- locking ---- */

#define PAWL_TRY UINT64_C(1) /* as a deadline: the call does not wait */

/* The present time on the clock of deadlines and expiries, and a deadline `ns` nanoseconds from now. */
PAWL_API uint64_t pawl_now(void);
PAWL_API uint64_t pawl_in(uint64_t ns);

PAWL_API int pawl_lock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out);
PAWL_API int pawl_trylock(pawl *p, pawl_key key, enum pawl_mode mode, pawl_grant *out); /* does not wait: -PAWL_EHELD */
PAWL_API int pawl_timedlock(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_grant *out);
PAWL_API int pawl_unlock(pawl *p, const pawl_grant *grant);

/* Takes one of `limit` places of a semaphore: a shared hold, with a token, a deadline, an end and recovery like any other, of which
 * there are at most `limit` at once. Designs with `semaphore` (pawl doctor --matrix). The key's limit is that of the present
 * holders: while there are any, a call with another limit fails with -PAWL_ELIMITS, and a free one takes the limit of the next
 * call. An exclusive lock of the key waits until all places are free, and keeps them. A plain shared lock of it takes a place while
 * some are taken; if it came first, the call fails with -PAWL_ELIMITS. A place cannot be converted (-PAWL_ENOTSUP). -EINVAL: the
 * limit is 0 or above PAWL_SEMAPHORE_MAX. */
#define PAWL_SEMAPHORE_MAX 2047
PAWL_API int pawl_semaphore(pawl *p, pawl_key key, uint32_t limit, uint64_t deadline_ns, pawl_grant *out);

/* Deadlocks
 *   Threads that wait for locks while they hold others may wait in a cycle, each for a lock that the next one holds. Designs
 *   with deadlock detection (pawl doctor --matrix: "deadlock") choose one of the threads as the victim, long before its
 *   deadline and even if it has none: its call returns -EDEADLK. The victim should release what it holds and start over. A
 *   thread that was in no cycle is never a victim.
 *   Detection covers threads that wait in pawl_lock, pawl_timedlock, pawl_lock_all or pawl_convert, each with one session, for
 *   locks that other threads have locked in such a call. It does not cover submitted operations, nor a thread that waits for
 *   something else, such as a child process that wants a lock: use deadlines there. A lock belongs to the thread that locked
 *   it. A session is no longer covered once one of its threads has released or converted a lock of another. The first time,
 *   while the thread that locked it waits for another lock, that may be mistaken for a deadlock. */

/* Locks bytes [start, end) of a file or anything else that has an extent. Designs with ranges only; with them pawl_lock and the
 * others lock the whole. All units that the range touches are locked: out->start and out->end say which bytes those are. Several
 * ranges of one key can be held at once. A session that waits for a range while it holds another may deadlock with one that waits
 * for both: take them with pawl_lock_all, or use a deadline.
 * -EINVAL if the range is empty or ends before it starts, -EOVERFLOW if it reaches beyond 2^40 units. */
#define PAWL_END UINT64_MAX /* as `end`: to the end, wherever that is */
PAWL_API int pawl_lock_range(pawl *p, pawl_key key, uint64_t start, uint64_t end, enum pawl_mode mode, uint64_t deadline_ns,
                             pawl_grant *out);

/* Makes a held range larger, which may wait for others, or smaller, which releases what lies outside of [start, end). One of the
 * two ranges must contain the other, else -EINVAL. A waiter that holds nothing gives way to a range that grows. Two ranges that
 * grow towards each other wait for each other: `citron` detects that and chooses a victim (-EDEADLK), also if another hold of the
 * session is in the way; with other designs use a deadline. On failure the grant is unchanged. A range that has grown has another
 * token. */
PAWL_API int pawl_reshape(pawl *p, pawl_grant *grant, uint64_t start, uint64_t end, uint64_t deadline_ns);

/* Designs with `split` (pawl doctor --matrix). Cuts a held range in two, which are then changed and released separately: `grant`
 * ends at byte `at`, *right goes on from there. -EINVAL unless `at` is the first byte of a unit of the range other than its first
 * unit; -PAWL_ELIMIT if the session has no room for another hold, or the design none for another reader. On failure nothing has
 * changed. */
PAWL_API int pawl_split(pawl *p, pawl_grant *grant, uint64_t at, pawl_grant *right);

/* Locks all or none. Every caller waits for them in the same order, so users of pawl_lock_all do not deadlock with each other. In
 * racks and on memory nodes the requests leave together: free locks take as many round trips as one does.
 * -EINVAL: the same lock twice, or ranges of one lock that overlap. -EDEADLK: two ranges share an internal lock of the design; lock
 * one range that contains both. grants[i] belongs to wants[i]. */
typedef struct pawl_want {
    pawl_key key;
    enum pawl_mode mode;
    uint32_t reserved;
    uint64_t start, end; /* bytes; both 0: the whole */
} pawl_want;

#define PAWL_ALL_MAX 64 /* wants of one call */
PAWL_API int pawl_lock_all(pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline_ns, pawl_grant *grants);

/* Releases all of them, whether they were granted together or not; in racks and on memory nodes their packets leave together.
 * Returns the first error, as pawl_unlock does; the others are released nevertheless. -EINVAL: none, or more than PAWL_ALL_MAX;
 * nothing is released. */
PAWL_API int pawl_unlock_all(pawl *p, const pawl_grant *grants, unsigned count);

/* Exclusive to shared always succeeds. Shared to exclusive waits for the other readers, ahead of waiting writers; -EDEADLK if one
 * of the readers converts, too. On failure the grant is unchanged. */
PAWL_API int pawl_convert(pawl *p, pawl_grant *grant, enum pawl_mode mode, uint64_t deadline_ns);

/* Renews the session's lease now, and the grant's expiry with it, which is never set to an earlier time. The library renews the
 * lease by itself every third of a lease. */
PAWL_API int pawl_extend(pawl *p, pawl_grant *grant);

/* 0 while the grant is certainly held; else -PAWL_ELOST or -PAWL_ENOTOWNER. Makes no system call. */
PAWL_API int pawl_check(pawl *p, const pawl_grant *grant);

/* ---- the end of grants ----
 *
 * A grant ends when it is unlocked, or with its session. The loss of a session is an event: within half a second of it pawl_fd is
 * readable and pawl_reap delivers a completion with op PAWL_OP_LOST, once. Programs without a loop set a callback. A process that
 * is stopped is told when it goes on: pawl_check before a step, and tokens with every write, are still needed. */
enum pawl_why {
    PAWL_WHY_HELD = 0,     /* the grant is certainly held */
    PAWL_WHY_UNLOCKED = 1, /* it was unlocked, or is not one of this session's */
    PAWL_WHY_LEASE = 2,    /* the session's lease ended: the process was stopped, or did not reach the memory node, for too long */
    PAWL_WHY_BROKEN = 3,   /* an operator broke the session (pawl break), or the memory node started anew */
    PAWL_WHY_REMOVED = 4,  /* the space was removed (pawl space drop) */
    PAWL_WHY_GRANTER = 5,  /* racks: the lock server or switch that granted a lock of the session was away for a lease */
    PAWL_WHY_COORDINATOR = 6, /* racks: the coordinator was away for the membership lease, or has ended this host's membership */
};

/* Why the grant ended, as one of enum pawl_why, or a negative code. After the loss of the session the answer is that of the session
 * for all of its grants. */
PAWL_API int pawl_why(pawl *p, const pawl_grant *grant);

/* A sentence for it. Static. */
PAWL_API const char *pawl_strwhy(int why);

/* Calls `lost(ctx, why)` once, in the library's thread, when the session is lost; -PAWL_ELOST: it is lost already. The callback
 * must not block for long, and must not close the handle. `lost` null: no callback any more; when that has returned, none runs. */
PAWL_API int pawl_on_lost(pawl *p, void (*lost)(void *ctx, int why), void *ctx);

/* ---- waiters ----
 *
 * A holder can ask to be told that others wait for its lock (the BAST of other lock managers), so that it keeps a lock as long as
 * no other request wants it. Designs with `bast` (pawl doctor --matrix). */
#define PAWL_WATCH_MAX 64 /* holds of a session that are watched, or whose event is not reaped yet: then -PAWL_ELIMIT */

/* Tells once that, since the lock was granted, another request has waited for it; at once if one waits now. The event comes some
 * tens of milliseconds after the request: pawl_fd is readable, and pawl_reap delivers a completion with op PAWL_OP_WANTED and this
 * grant. It is advice: by then the request may have given up. Watch again to be told again. A watch ends with its grant, without an
 * event. */
PAWL_API int pawl_watch(pawl *p, const pawl_grant *grant);

/* From now on these events go to `wanted(ctx, grant)`, in the library's thread, and not to pawl_reap. The callback must not block
 * for long, and must not close the handle. It may unlock or convert the grant, and watch. `wanted` null: no callback any more; when
 * that has returned, none runs. */
PAWL_API int pawl_on_wanted(pawl *p, void (*wanted)(void *ctx, const pawl_grant *grant), void *ctx);

/* The state of a lock at this moment. */
typedef struct pawl_state {
    uint32_t mode;    /* 0 if free */
    uint32_t holders; /* sessions that hold it */
    uint32_t waiters; /* sessions that wait for it */
    uint32_t reserved;
    uint64_t token; /* of the latest grant (shiftlock64: or above it); on a rack, of the holders, 0 if the lock is free */
    uint64_t reserved2[2];
} pawl_state;

/* -PAWL_ELOST of a lost session, like every call. On a rack this asks every host, which takes milliseconds; the answers are not of
 * one moment. -EAGAIN: a host does not answer. */
PAWL_API int pawl_query(pawl *p, pawl_key key, pawl_state *out);

/* ---- data beside the lock ---- */

/* A value of up to PAWL_VALUE_MAX bytes, beside the lock. Designs with `values` (pawl doctor --matrix). It is set under an
 * exclusive hold, and a holder in any mode reads the value that the last exclusive holder set. A set that has returned 0 is seen by
 * every later holder. One that failed with -PAWL_ELOST or -PAWL_EUNKNOWN, or whose process died, took place as a whole or not at
 * all, and before the next holder read the value. The value outlasts holders, sessions, and in racks switches, lock servers and
 * coordinators (it is in the coordinator's log, and costs a round trip to the coordinator). It is forgotten when the memory of a
 * segment or of a memory node is, and with its lock: a space with sparse or named keys that needs room forgets locks that no
 * session holds.
 *
 * -PAWL_ENOVALUE: pawl_get_value, there is none.
 * -EMSGSIZE: the value is longer than PAWL_VALUE_MAX, or than the room for it.
 * -EINVAL: pawl_set_value, the hold is not exclusive.
 * -EAGAIN: pawl_get_value, racks: the coordinator does not answer.
 * -PAWL_EUNKNOWN: pawl_set_value, racks: the coordinator did not answer; set it again.
 * -ENOSPC: the machine has no memory for it.
 * -PAWL_ENOTOWNER, -PAWL_ELOST and -PAWL_ENOTSUP as usual.
 *
 * After an error other than -PAWL_EUNKNOWN and -PAWL_ELOST nothing has changed. */
#define PAWL_VALUE_MAX 64

/* `len` 0: the lock has no value any more. */
PAWL_API int pawl_set_value(pawl *p, const pawl_grant *grant, const void *bytes, size_t len);

/* *len is the room at `bytes`, and then the length of the value. */
PAWL_API int pawl_get_value(pawl *p, const pawl_grant *grant, void *bytes, size_t *len);

/* In a rack of the design `netlock` whose lock servers keep data (pawl_serve), the server of a lock can work on the data of that
 * lock. pawl passes the bytes of a call to it and the bytes of its reply back, and does not interpret them. */
#define PAWL_CALL_MAX 512 /* bytes of a call, and of a reply */

typedef struct pawl_call {
    const void *bytes;
    size_t len;
    void *reply; /* where the reply is written; of more than `room` bytes, the first ones */
    size_t room;
    size_t replied; /* length of the reply */
    uint64_t reserved[2];
} pawl_call;

/* Locks, and executes the call under the lock: in one round trip if the lock is free. `out` null: unlocks at once. The call is
 * executed at most once, however often packets are retransmitted, and not after a call under a later grant of the lock.
 *   0                                  executed, the reply is there, and the lock is held if `out` is not null
 *   -ETIMEDOUT, -PAWL_EHELD, -EAGAIN   not executed, and never will be; the lock is not held
 *   -PAWL_EUNKNOWN, -PAWL_ELOST        it is unknown whether it was executed; the lock is not held. Lock it, and look
 *   -PAWL_ENOTSUP                      the design, or the server of this lock, does not offer calls
 *   -PAWL_ELIMIT                       sixteen calls of this session are in flight already
 * The call may return up to a lease after the deadline, when it is known whether it was executed. PAWL_TRY: does not wait for the
 * lock. */
PAWL_API int pawl_lock_call(pawl *p, pawl_key key, enum pawl_mode mode, uint64_t deadline_ns, pawl_call *call, pawl_grant *out);

/* The same under a lock that is held. The lock stays held, except after -PAWL_ELOST. */
PAWL_API int pawl_hold_call(pawl *p, const pawl_grant *grant, uint64_t deadline_ns, pawl_call *call);

typedef struct pawl_work {
    uint64_t lock;  /* index: in a space with dense keys, the key */
    uint64_t token; /* of the grant under which it is executed */
    uint32_t mode;  /* enum pawl_mode */
    uint32_t len;
    const void *bytes;
    uint64_t generation; /* of the index: another one is of another name, which has the index after it. Of dense keys 0 */
    uint64_t reserved[1];
} pawl_work;

/* Executes a call and returns the length of the reply, at most `room`. Called by one thread, in the order of tokens, and once for
 * each call; it must not block. */
typedef size_t (*pawl_apply)(void *ctx, const pawl_work *work, void *reply, size_t room);

/* Joins the rack at `where` ("pawl://ADDRESS:PORT/SPACE") as a lock server that keeps data, listens at `at` ("ADDRESS:PORT"; port
 * 0: any), and serves until *stop is not 0, which a signal handler may set. `ready`, unless null, is called when it has joined. */
PAWL_API int pawl_serve(const char *where, const char *at, pawl_apply apply, void *ctx, void (*ready)(void *ctx),
                        const volatile int *stop);

/* ---- asynchronously ---- */

enum pawl_op {
    PAWL_OP_LOCK = 1, /* with a call: pawl_lock_call that keeps the lock */
    PAWL_OP_UNLOCK = 2,
    PAWL_OP_CONVERT = 3,
    PAWL_OP_RESHAPE = 4,
    PAWL_OP_CALL = 5,      /* pawl_lock_call that does not keep the lock */
    PAWL_OP_HOLD_CALL = 6, /* pawl_hold_call */
    PAWL_OP_LOST = 7,      /* not for requests: the completion that tells of the session's loss; */
    PAWL_OP_WANTED = 8,    /* likewise that others wait for a lock that is watched (pawl_watch) */
};

typedef struct pawl_request {
    enum pawl_op op;
    enum pawl_mode mode;
    pawl_key key;         /* lock, call; the name is copied */
    pawl_grant grant;     /* unlock, convert, reshape, hold_call */
    uint64_t deadline_ns; /* not of unlock */
    void *user;           /* comes back in the completion */
    uint64_t start, end;  /* lock (both 0: the whole), reshape */
    pawl_call *call;      /* its bytes are copied; the struct and the room for its reply must stay until the completion is reaped */
    uint64_t limit;       /* lock, in mode shared: a place of a semaphore with this limit; 0: a plain lock */
    uint64_t more;        /* not 0: pawl_submit or pawl_reap follows at once, and the packet may leave with others */
    uint64_t reserved[1];
} pawl_request;

typedef struct pawl_completion {
    uint64_t id;      /* 0: of no request */
    int result;       /* as of the synchronous call; -PAWL_ELOST of PAWL_OP_LOST */
    uint32_t op;      /* enum pawl_op of the request; or, without a request, PAWL_OP_LOST (once) or PAWL_OP_WANTED */
    pawl_grant grant; /* of PAWL_OP_WANTED: the one that is watched */
    void *user;
    uint32_t why; /* enum pawl_why, of PAWL_OP_LOST; else 0 */
    uint32_t reserved[3];
} pawl_completion;

#define PAWL_INFLIGHT_MAX 64 /* submitted and not yet reaped, per session: then -PAWL_ELIMIT */

/* Starts an operation, and never waits. It may complete at once; its completion is reaped like any other. A request that is wrong
 * in itself is refused here (-EINVAL, -ENAMETOOLONG, -ERANGE, -PAWL_ENOTSUP, -PAWL_ELIMIT); every other outcome is a completion. */
PAWL_API int pawl_submit(pawl *p, const pawl_request *request, uint64_t *id);

/* Takes up to `max` completions, and waits for the first one until the deadline. Returns their number; 0: the deadline passed. */
PAWL_API int pawl_reap(pawl *p, pawl_completion *out, unsigned max, uint64_t deadline_ns);

/* Asks a waiting operation to stop: its completion says -ECANCELED, or 0 if it was granted first. -ENOENT: no such operation
 * in flight. */
PAWL_API int pawl_cancel(pawl *p, uint64_t id);

/* Readable (poll, epoll) while there are completions to reap, that of a lost session among them. While operations are in flight on
 * a rack it may be readable without: packets have come, and pawl_reap with PAWL_TRY, which handles them, returns 0. Belongs to the
 * handle. */
PAWL_API int pawl_fd(pawl *p);

#ifdef __cplusplus
}
#endif
#endif
