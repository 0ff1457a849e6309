/* SPDX-License-Identifier: Apache-2.0 */
/* Getting the lock, in a way that a signal can break off. */
#include "cli/lock.h"
#include "client/memory.h"
#include "client/net.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TELL_AFTER_NS (2 * NS_PER_S) /* before that a person does not wonder yet */
#define TELL_EVERY_NS (1 * NS_PER_S)
#define ASK_EVERY_MS 10

int lock_catch_signals(struct lock_job *job)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t ours;
    sigemptyset(&ours);
    for (size_t i = 0; i < countof(signals); i++) {
        /* A signal that the parent process ignores (nohup does) stays ignored; blocked, it would become pending. */
        struct sigaction now;
        if (!sigaction(signals[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaddset(&ours, signals[i]);
    }
    if (sigprocmask(SIG_BLOCK, &ours, &job->before))
        return -errno;
    job->signal_fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd < 0 ? -errno : 0;
}

/* ---- the holder ---- */

struct telling {
    bool watched;      /* by a person at a terminal, or with --verbose */
    uint32_t told_pid; /* the process that the latest line named */
    uint64_t next_ns;
};

static struct telling start_telling(const struct lock_job *job)
{
    return (struct telling){.watched = job->verbose || isatty(STDERR_FILENO), .next_ns = pawl_in(TELL_AFTER_NS)};
}

struct first_holder {
    struct inspect_session session;
    uint32_t holders;
};

static int note_holder(void *ctx, const struct inspect_claim *claim)
{
    struct first_holder *f = ctx;
    if (claim->holds && !f->holders++)
        f->session = claim->session;
    return 0;
}

/* One line when the first two seconds are over, and another whenever the holder is another one. */
static void tell(const struct lock_job *job, const struct locker *l, const char *what, struct telling *t)
{
    struct first_holder f = {0};
    struct cell at;
    char command[COMMAND_LEN];
    if (table_find(&l->seat, &l->table, job->key, &at) || inspect_claims(l, at.index, note_holder, &f) || !f.holders ||
        f.session.pid == t->told_pid)
        return;
    cli_command_of(&f.session, command);
    fprintf(stderr, "pawl lock: %s '", what);
    cli_put_key(stderr, job->key);
    fprintf(stderr, "', held by process %" PRIu32 " (", f.session.pid);
    cli_put_text(stderr, command, strlen(command));
    fprintf(stderr, f.holders > 1 ? ") and %" PRIu32 " more\n" : ")\n", f.holders - 1);
    t->told_pid = f.session.pid;
}

void lock_tell_holder(const struct lock_job *job, const char *what)
{
    const struct memory_session *m = memory_of(job->p);
    struct telling t = {0};
    if (m && m->segment)
        tell(job, &m->locker, what, &t);
    if (!t.told_pid)
        cli_say("lock", 0, "%s '%s' ('pawl show' says which sessions hold it)", what, job->name);
}

static void tell_in_time(const struct lock_job *job, struct telling *t)
{
    if (!t->watched || pawl_now() < t->next_ns)
        return;
    const struct memory_session *m = memory_of(job->p);
    if (m && m->segment) /* on a rack only servers know, and on a memory node processes have no numbers here */
        tell(job, &m->locker, "waiting for", t);
    t->next_ns = pawl_in(TELL_EVERY_NS);
}

/* ---- waiting ---- */

/* How long to poll: for ever, or until there may be something to tell. */
static int patience_ms(const struct telling *t)
{
    uint64_t now = pawl_now();
    if (!t->watched)
        return -1;
    return now >= t->next_ns ? 0 : (int)((t->next_ns - now) / NS_PER_MS + 1);
}

/* The operation is in flight: 0 once it was reaped. */
static int wait_for_completion(struct lock_job *job, uint64_t id, pawl_completion *out)
{
    struct telling t = start_telling(job);
    struct pollfd fds[] = {{.fd = pawl_fd(job->p), .events = POLLIN}, {.fd = job->control, .events = POLLIN}};
    for (;;) {
        int ready = poll(fds, countof(fds), patience_ms(&t));
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready > 0 && fds[1].revents && !job->cancelled) {
            job->cancelled = true;
            fds[1].fd = -1;
            pawl_cancel(job->p, id); /* if it was granted just now, its completion says so */
        }
        int n = pawl_reap(job->p, out, 1, PAWL_TRY);
        if (n)
            return n < 0 ? n : 0;
        tell_in_time(job, &t);
    }
}

static int try_once(struct lock_job *job)
{
    if (job->limit)
        return pawl_semaphore(job->p, job->key, job->limit, PAWL_TRY, &job->grant);
    return job->has_range ? pawl_lock_range(job->p, job->key, job->range.from, job->range.to, job->mode, PAWL_TRY, &job->grant)
                          : pawl_trylock(job->p, job->key, job->mode, &job->grant);
}

/* Where an operation cannot wait and be called off at the same time (baselines, a memory node) it is tried again and again. */
static int ask_until(struct lock_job *job, uint64_t deadline)
{
    struct pollfd fd = {.fd = job->control, .events = POLLIN};
    struct telling t = start_telling(job);
    for (;;) {
        if (poll(&fd, 1, ASK_EVERY_MS) > 0) {
            job->cancelled = true;
            return -EINTR;
        }
        int rc = try_once(job);
        if (rc != -PAWL_EHELD || pawl_now() >= deadline)
            return rc;
        tell_in_time(job, &t);
    }
}

static int wait_for_lock(struct lock_job *job, uint64_t deadline)
{
    if (!(job->p->design->features & DESIGN_ASYNC))
        return ask_until(job, deadline);
    const pawl_request request = {.op = PAWL_OP_LOCK,
                                  .mode = job->mode,
                                  .limit = job->limit,
                                  .key = job->key,
                                  .deadline_ns = deadline,
                                  .start = job->has_range ? job->range.from : 0,
                                  .end = job->has_range ? job->range.to : 0};
    pawl_completion done = {0};
    uint64_t id;
    int rc = pawl_submit(job->p, &request, &id);
    if (!rc)
        rc = wait_for_completion(job, id, &done);
    const struct net *n = net_of(job->p);
    if (!rc && done.result) /* completions come without a sentence */
        rc = n ? net_failed(n, done.result) : explain(done.result, "%s", pawl_strerror(done.result));
    if (!rc)
        job->grant = done.grant;
    if (job->cancelled) {
        if (!rc)
            pawl_unlock(job->p, &job->grant);
        return -EINTR;
    }
    return rc;
}

int lock_find(struct lock_job *job)
{
    struct net *n = net_of(job->p);
    struct host_name name;
    uint64_t deadline = add_saturating(job->start_ns, job->wait_ns);
    return n ? net_find(n, job->key, job->mode, false, job->nonblock ? DEADLINE_TRY : deadline, &name) : 0;
}

/* Whether a process above this one holds the lock: it waits for this one to end. */
static bool waits_for_itself(const struct lock_job *job)
{
    pawl_state now;
    return getenv("PAWL_HELD") && !pawl_query(job->p, job->key, &now) && now.mode &&
           (now.mode == PAWL_EXCLUSIVE || job->mode == PAWL_EXCLUSIVE) && lock_held_above(job, now.token);
}

int lock_acquire(struct lock_job *job)
{
    uint64_t start = pawl_now(), deadline = add_saturating(job->start_ns, job->wait_ns);
    bool once = job->nonblock || start >= deadline;
    int rc;
    if (!once && waits_for_itself(job))
        return explain(-EDEADLK, "a process above this one holds the lock");
    if (net_of(job->p) && job->p->design->features & DESIGN_ASYNC) {
        rc = wait_for_lock(job, once ? PAWL_TRY : deadline); /* also a try, which takes long if nothing answers */
    } else {
        rc = try_once(job);
        if ((rc == -PAWL_EHELD || rc == -EAGAIN) && !once)
            rc = wait_for_lock(job, deadline);
    }
    job->waited_ns = pawl_now() - start;
    job->granted = !rc;
    return rc;
}
