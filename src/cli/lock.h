/* SPDX-License-Identifier: Apache-2.0 */
/* The three acts of `pawl lock`: getting the lock, running the command, telling how it went. */
#ifndef PAWL_CLI_LOCK_H
#define PAWL_CLI_LOCK_H

#include "cli/common.h"

#include <signal.h>

struct lock_job {
    /* From the command line. */
    const char *name;
    char place[PLACE_LEN];
    char reach[PLACE_LEN]; /* the same, and how to get there: for pawl alone, not for COMMAND */
    enum pawl_mode mode;
    bool nonblock, has_range;
    struct arg_range range;
    uint64_t start_ns; /* when the command began: deadlines count from there */
    uint64_t wait_ns;  /* UINT64_MAX: for as long as it takes */
    uint64_t lease_ns;
    char **command; /* ends with null */

    /* The state while it runs. */
    pawl *p;
    pawl_key key;
    pawl_grant grant;
    int signal_fd;   /* SIGINT and its kind arrive here rather than at a handler: waiting can be broken off, a child told */
    sigset_t before; /* the mask that the command gets */

    /* How it went. */
    bool granted, lost;
    uint64_t waited_ns, held_ns;
    int signal; /* that ended the waiting or the command; 0: none */
};

/* Blocks the signals that a user or an operator sends, and makes them readable. */
int lock_catch_signals(struct lock_job *job);

/* On a rack: asks which lock has the name, if that must be asked. */
int lock_find(struct lock_job *job);

/* Gets the lock: 0; -PAWL_EHELD, -ETIMEDOUT; -EINTR after a signal (job->signal); or another code of the library. */
int lock_acquire(struct lock_job *job);

/* Runs the command and waits for its end; returns the exit status. */
int lock_run(struct lock_job *job);

#endif
