/* SPDX-License-Identifier: Apache-2.0 */
/* `pawl lock` is two processes. The *keeper* has the session: it gets the lock, and keeps it until the command and all processes
 * that have inherited its descriptor are gone. The *front*, which the user started, runs the command, passes signals on to it, and
 * returns its exit status. So the lock outlives a front that is killed, as that of flock(1) does by the descriptor that its
 * children inherit.
 *
 * The two talk by a socket. The keeper says GRANTED or FAILED, then perhaps LOST, and at the end RELEASED or KEPT. The front says
 * which process the command is, and when it has ended. A front that is gone, or that wants no more, has closed its end. */
#ifndef PAWL_CLI_LOCK_H
#define PAWL_CLI_LOCK_H

#include "cli/common.h"

#include <signal.h>
#include <sys/types.h>

struct lock_job {
    /* From the command line. */
    const char *name;
    char place[PLACE_LEN];
    char reach[PLACE_LEN]; /* the same, and how to get there: for pawl alone, not for COMMAND */
    enum pawl_mode mode;
    uint32_t limit; /* of a semaphore; 0: it is none */
    bool nonblock, has_range, verbose, no_create;
    bool named;    /* the user chose the space with --space */
    bool closes;   /* the command does not inherit the descriptor: the lock ends with it */
    bool replaces; /* the front becomes the command */
    int fd;        /* the lock is held until all copies of this descriptor are closed; -1: there is a command */
    struct arg_range range;
    uint64_t start_ns; /* when the command began: deadlines count from there */
    uint64_t wait_ns;  /* UINT64_MAX: for as long as it takes */
    uint64_t lease_ns;
    uint16_t tenant, priority;
    int conflict_status;
    char **command; /* ends with null */

    /* The state while it runs. */
    pawl *p; /* the keeper's */
    pawl_key key;
    pawl_grant grant;
    int control;     /* each its end of the socket */
    int inherited;   /* front: the descriptor that the command inherits, the writing end of a pipe; keeper: the reading end */
    int signal_fd;   /* SIGINT and its kind arrive here rather than at a handler: waiting can be broken off, a child told */
    sigset_t before; /* the mask that the command gets */
    pid_t keeper;

    /* How it went. */
    bool granted, lost, cancelled;
    bool kept; /* processes that the command has left behind keep the lock */
    uint64_t waited_ns, held_ns;
    int signal; /* that ended the waiting or the command; 0: none */
};

enum lock_news_kind { NEWS_GRANTED = 1, NEWS_FAILED, NEWS_LOST, NEWS_RELEASED, NEWS_KEPT };

/* From the keeper to the front. */
struct lock_news {
    enum lock_news_kind kind;
    int status; /* of FAILED: the exit status; it was explained on standard error */
    int why;    /* of LOST */
    uint64_t waited_ns;
    pawl_grant grant;
};

/* From the front to the keeper: the command's process; 0: it has ended. */
struct lock_order {
    pid_t command;
};

/* Blocks the signals that a user or an operator sends, and makes them readable. */
int lock_catch_signals(struct lock_job *job);

/* ---- the keeper (lock_keep.c, lock_wait.c, lock_fd.c) ---- */

/* Starts the keeper: 0, or the exit status after a complaint. */
int lock_start_keeper(struct lock_job *job);

/* On a rack: asks which lock has the name, if that must be asked. */
int lock_find(struct lock_job *job);

/* Gets the lock: 0; -PAWL_EHELD, -ETIMEDOUT; -EDEADLK: a process above this one holds it; -EINTR: the front wants no more; or
 * another code of the library. */
int lock_acquire(struct lock_job *job);

/* Says which process holds the lock, as far as that is known. */
void lock_tell_holder(const struct lock_job *job, const char *what);

/* A descriptor that becomes readable when all copies of job->fd outside of this process are closed; closes this process's own. Or a
 * negative errno. */
int lock_watch_fd(struct lock_job *job);

/* ---- the front (lock.c, lock_run.c) ---- */

/* Runs the command and waits for its end; returns the exit status. */
int lock_run(struct lock_job *job);

/* Becomes the command; returns the exit status if that is not possible. */
int lock_become(struct lock_job *job);

/* ---- locks of processes above this one (lock_held.c) ---- */

/* PAWL_HELD for the command: what this process has inherited, and this lock. 0 or a negative errno. */
int lock_note_held(const struct lock_job *job);

/* Whether a process above this one held the lock with that token. */
bool lock_held_above(const struct lock_job *job, uint64_t token);

#endif
