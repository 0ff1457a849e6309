/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of `pawl lock`: the process that has the session. */
#include "cli/lock.h"
#include "client/net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_EVERY_MS 200     /* how soon a lock that an operator broke is noticed, should the event be missed */
#define OPEN_NS (2 * NS_PER_S) /* for which -n waits for a rack to answer at all: longer than a busy machine needs for that */
#define INHERITED_FD_MIN 64    /* scripts use small numbers for descriptors of their own */

/* ---- the lock ---- */

static int not_granted(const struct lock_job *job, int rc)
{
    switch (rc) {
    case -EINTR:
        return 0; /* the front knows which signal it was */
    case -PAWL_EHELD:
    case -ETIMEDOUT:
        if (job->verbose)
            lock_tell_holder(job, rc == -PAWL_EHELD ? "not granted" : "not granted in time");
        return job->conflict_status; /* else without a word, as flock(1): scripts try and go on */
    case -EDEADLK:
        return cli_say("lock", EXIT_USAGE, "a process above this one holds '%s' and waits for it: this one would wait for itself",
                       job->name);
    case -PAWL_ELIMITS:
    case -EOVERFLOW:
        cli_fail("lock", rc);
        return EXIT_USAGE;
    case -PAWL_ELOST: /* before anything was granted */
        if (net_of(job->p))
            return cli_say("lock", EXIT_UNAVAILABLE,
                           "the rack has not answered for a lease, and this host has lost its place in it");
        return cli_fail("lock", rc);
    default:
        return cli_fail("lock", rc);
    }
}

/* A space that is missing is made, with a design that has what is asked for. If the user named it, that is said: it may be a
 * mistake. */
static int open_space(struct lock_job *job)
{
    pawl_options o = {.lease_ns = job->lease_ns, .flags = PAWL_NO_CREATE, .tenant = job->tenant, .priority = job->priority};
    if (job->wait_ns != UINT64_MAX || job->nonblock) /* deadlines hold from here on */
        o.open_ns = job->nonblock || job->wait_ns < OPEN_NS ? OPEN_NS : job->wait_ns;
    bool local = strncmp(job->place, NET_SCHEME, strlen(NET_SCHEME)) != 0;
    int rc = pawl_open(job->reach, &o, &job->p);
    if (rc != -ENOENT || !local)
        return rc ? cli_fail("lock", rc) : 0;
    if (job->no_create)
        return cli_say("lock", EXIT_UNAVAILABLE, "there is no space %s; 'pawl space create' makes one, 'pawl space list' lists all",
                       job->place);
    o.flags = 0;
    bool system = !strncmp(job->place, "system:", strlen("system:")); /* whose users do not trust each other */
    if (job->has_range)
        o.design = !system && design_find("citron") ? "citron" : "mutex";
    rc = pawl_open(job->reach, &o, &job->p);
    if (rc)
        return cli_fail("lock", rc);
    char users[USERS_LEN];
    cli_place_users(job->place, users);
    if (job->named)
        cli_say("lock", 0, "there was no space %s; it was made (--no-create refuses that), and %s", job->place, users);
    return 0;
}

/* 0, or the exit status. */
static int get_lock(struct lock_job *job)
{
    int status = open_space(job);
    if (!status)
        status = cli_key("lock", job->p->keys, job->name, &job->key);
    if (status)
        return status;
    int rc = lock_find(job);
    if (!rc)
        rc = lock_acquire(job);
    return rc ? not_granted(job, rc) : 0;
}

/* ---- what the keeper is told, and says ---- */

static bool say(const struct lock_job *job, struct lock_news news)
{
    return send(job->control, &news, sizeof news, MSG_NOSIGNAL) == (ssize_t)sizeof news;
}

/* The lock as it is kept. */
struct keeping {
    struct lock_job *job;
    int watched;     /* --fd: readable when the last copy is closed; -1: there is a command */
    int command_fd;  /* pidfd of the command; -1: none yet, or it has ended */
    pid_t command;   /* 0: not known yet */
    bool front_gone; /* the other end of the socket is closed */
    bool ended;      /* the front says that the command has ended */
    bool told_kept;
};

static void take_order(struct keeping *k)
{
    struct lock_order order;
    ssize_t len = recv(k->job->control, &order, sizeof order, MSG_DONTWAIT);
    if (len != (ssize_t)sizeof order) {
        k->front_gone |= len == 0 || (errno != EAGAIN && errno != EINTR);
        return;
    }
    if (!order.command) {
        k->ended = true;
        return;
    }
    k->command = order.command;
    k->command_fd = (int)syscall(SYS_pidfd_open, order.command, 0);
}

static bool hung_up(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) == 1;
}

/* Whether nothing uses the lock any more. */
static bool is_over(struct keeping *k)
{
    struct pollfd command = {.fd = k->command_fd, .events = POLLIN};
    if (k->watched >= 0)
        return false; /* its own event says so */
    if (k->command_fd >= 0 && poll(&command, 1, 0) == 1) {
        close(k->command_fd);
        k->command_fd = -1;
    }
    return (k->ended || k->front_gone) && k->command_fd < 0 && (k->job->closes || hung_up(k->job->inherited));
}

/* A signal to the keeper, whose process 'pawl ls' shows, is meant for the command. Those of a terminal go to the whole group. True:
 * there is no command, and the keeper ends. */
static bool take_signal(struct keeping *k)
{
    struct signalfd_siginfo got;
    if (read(k->job->signal_fd, &got, sizeof got) != (ssize_t)sizeof got || got.ssi_code == SI_KERNEL)
        return false;
    if (k->command_fd >= 0)
        syscall(SYS_pidfd_send_signal, k->command_fd, (int)got.ssi_signo, NULL, 0);
    return k->watched >= 0;
}

static int tell_loss(struct keeping *k)
{
    struct lock_job *job = k->job;
    say(job, (struct lock_news){.kind = NEWS_LOST, .why = pawl_why(job->p, &job->grant)});
    if (k->front_gone && k->command_fd >= 0) { /* else the front ends it */
        syscall(SYS_pidfd_send_signal, k->command_fd, SIGTERM, NULL, 0);
        syscall(SYS_pidfd_send_signal, k->command_fd, SIGCONT, NULL, 0);
    }
    return EXIT_LOST;
}

static int keep(struct keeping *k)
{
    struct lock_job *job = k->job;
    for (bool over = false; !over;) {
        struct pollfd fds[] = {{.fd = k->front_gone ? -1 : job->control, .events = POLLIN},
                               {.fd = k->command_fd, .events = POLLIN},
                               {.fd = k->front_gone || k->ended ? job->inherited : -1},
                               {.fd = k->watched, .events = POLLIN},
                               {.fd = job->signal_fd, .events = POLLIN},
                               {.fd = pawl_fd(job->p), .events = POLLIN}};
        poll(fds, countof(fds), CHECK_EVERY_MS);
        if (pawl_check(job->p, &job->grant))
            return tell_loss(k);
        if (fds[0].revents)
            take_order(k);
        over = is_over(k) || (fds[3].revents & POLLIN) || (fds[4].revents && take_signal(k));
        if (k->ended && !over && !k->told_kept) { /* its children have the descriptor */
            say(job, (struct lock_news){.kind = NEWS_KEPT});
            k->told_kept = true;
        }
    }
    if (pawl_unlock(job->p, &job->grant))
        return tell_loss(k);
    return 0;
}

/* ---- the process ---- */

static void close_others(const struct lock_job *job)
{
    const int kept[] = {job->control, job->inherited, job->fd};
    unsigned from = 3;
    for (int next; from; from = next < 0 ? 0 : (unsigned)next + 1) {
        next = -1;
        for (size_t i = 0; i < countof(kept); i++)
            if (kept[i] >= (int)from && (next < 0 || kept[i] < next))
                next = kept[i];
        if (next < 0 || (unsigned)next > from)
            syscall(SYS_close_range, from, next < 0 ? ~0u : (unsigned)next - 1, 0);
    }
}

/* From now on it may outlive the front: it must not keep the ends of pipes that were the front's. */
static void leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    if (null > 2)
        close(null);
}

_Noreturn static void keeper_main(struct lock_job *job)
{
    struct keeping k = {.job = job, .watched = -1, .command_fd = -1};
    close_others(job);
    job->signal_fd = -1;
    int status = get_lock(job), rc = lock_catch_signals(job);
    if (!status && rc)
        status = cli_say("lock", EXIT_UNAVAILABLE, "cannot watch for signals: %s", strerror(-rc));
    if (!status && job->granted && job->fd >= 0) {
        k.watched = lock_watch_fd(job);
        if (k.watched < 0)
            status = cli_say("lock", EXIT_USAGE, "cannot watch descriptor %d: %s (it must be a file that is open for writing)",
                             job->fd, strerror(-k.watched));
    }
    bool kept = !status && job->granted;
    struct lock_news news = {.kind = kept ? NEWS_GRANTED : NEWS_FAILED,
                             .status = status,
                             .waited_ns = job->waited_ns,
                             .grant = job->granted ? job->grant : (pawl_grant){0}};
    if (say(job, news) && kept) {
        leave_terminal();
        status = keep(&k);
    }
    if (job->p)
        pawl_close(job->p);
    say(job, (struct lock_news){.kind = NEWS_RELEASED});
    exit(status);
}

/* The front becomes the command, which must not have a child that it did not start. */
static void leave_front(const struct lock_job *job)
{
    if (job->replaces && fork() != 0)
        _exit(0);
}

int lock_start_keeper(struct lock_job *job)
{
    int sockets[2], ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) || pipe2(ends, O_CLOEXEC))
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot make a socket or a pipe: %s", strerror(errno));
    job->keeper = fork();
    if (job->keeper < 0)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot fork: %s", strerror(errno));
    if (!job->keeper) {
        job->control = sockets[1];
        job->inherited = ends[0];
        leave_front(job);
        keeper_main(job);
    }
    if (job->replaces)
        waitpid(job->keeper, NULL, 0);
    close(sockets[1]);
    close(ends[0]);
    job->control = sockets[0];
    job->inherited = fcntl(ends[1], F_DUPFD_CLOEXEC, INHERITED_FD_MIN);
    if (job->inherited < 0)
        job->inherited = ends[1];
    else
        close(ends[1]);
    return 0;
}
