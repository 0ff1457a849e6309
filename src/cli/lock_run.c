/* SPDX-License-Identifier: Apache-2.0 */
/* Running the command under the lock. */
#include "cli/lock.h"

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

#define EXIT_CANNOT_EXEC 126 /* as of env(1) and the shells */
#define EXIT_NOT_FOUND 127
#define EXIT_SIGNALLED 128 /* and the signal's number */

static int set_environment(const struct lock_job *job)
{
    char token[24], range[48];
    snprintf(token, sizeof token, "%llu", (unsigned long long)job->grant.token);
    if (setenv("PAWL_TOKEN", token, 1) || setenv("PAWL_NAME", job->name, 1) || setenv("PAWL_SPACE", job->place, 1))
        return -errno;
    snprintf(range, sizeof range, "%llu:%llu", (unsigned long long)job->grant.start, (unsigned long long)job->grant.end);
    if (job->has_range && setenv("PAWL_RANGE", range, 1))
        return -errno;
    return lock_note_held(job);
}

/* Tells the keeper, then becomes the command. Between fork and exec only what is allowed in the child of a process with threads.
 * The exit status is not seen: the error is told. */
_Noreturn static void become_command(const struct lock_job *job, int error_fd)
{
    const struct lock_order order = {.command = getpid()};
    int error = send(job->control, &order, sizeof order, MSG_NOSIGNAL) == (ssize_t)sizeof order ? 0 : errno;
    if (!job->closes)
        fcntl(job->inherited, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &job->before, NULL);
    if (!error)
        execvp(job->command[0], job->command);
    error = error ? error : errno;
    _exit(write(error_fd, &error, sizeof error) == sizeof error ? EXIT_CANNOT_EXEC : EXIT_NOT_FOUND);
}

static int cannot_run(const struct lock_job *job, int error)
{
    return cli_say("lock", error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC, "cannot run '%s': %s", job->command[0],
                   strerror(error));
}

/* Starts the command: its process id, or minus the exit status after a complaint. */
static pid_t start_command(const struct lock_job *job)
{
    int pipe_fds[2], error = 0;
    if (pipe2(pipe_fds, O_CLOEXEC))
        return -cli_say("lock", EXIT_UNAVAILABLE, "cannot make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        become_command(job, pipe_fds[1]);
    int fork_error = errno;
    close(pipe_fds[1]);
    ssize_t len = pid < 0 ? 0 : read(pipe_fds[0], &error, sizeof error); /* nothing: exec closed it */
    close(pipe_fds[0]);
    if (pid < 0)
        return -cli_say("lock", EXIT_UNAVAILABLE, "cannot fork: %s", strerror(fork_error));
    if (len == sizeof error) {
        waitpid(pid, NULL, 0);
        return -cannot_run(job, error);
    }
    return pid;
}

/* A signal to pawl is meant for the command. The terminal's signals (Ctrl-C) go to the whole group, so the command has them
 * already; those of a process go to pawl alone. */
static void forward_signal(const struct lock_job *job, pid_t child)
{
    struct signalfd_siginfo got;
    if (read(job->signal_fd, &got, sizeof got) == sizeof got && got.ssi_code != SI_KERNEL)
        kill(child, (int)got.ssi_signo);
}

static void on_loss(struct lock_job *job, const char *why)
{
    job->lost = true;
    cli_say("lock", 0, "lost '%s': %s; ending the command", job->name, why);
}

/* Takes a message of the keeper. True: it was the last. */
static bool take_news(struct lock_job *job)
{
    struct lock_news news;
    ssize_t len = recv(job->control, &news, sizeof news, 0);
    if (len < 0 && errno == EINTR)
        return false;
    if (len == (ssize_t)sizeof news && news.kind != NEWS_LOST) {
        job->kept = news.kind == NEWS_KEPT;
        return true;
    }
    if (!job->lost)
        on_loss(job, len == (ssize_t)sizeof news ? pawl_strwhy(news.why) : "the process that kept the lock has ended");
    return true;
}

static int wait_for_end(struct lock_job *job, pid_t child)
{
    int status, pid_fd = (int)syscall(SYS_pidfd_open, child, 0);
    if (pid_fd < 0)
        return -errno;
    struct pollfd fds[] = {
        {.fd = pid_fd, .events = POLLIN}, {.fd = job->signal_fd, .events = POLLIN}, {.fd = job->control, .events = POLLIN}};
    do {
        int ready = poll(fds, countof(fds), -1);
        if (ready > 0 && fds[1].revents)
            forward_signal(job, child);
        if (ready > 0 && fds[2].revents) {
            take_news(job);
            fds[2].fd = -1;
            kill(child, SIGTERM);
            kill(child, SIGCONT); /* were it stopped, it would not notice */
        }
    } while (!fds[0].revents);
    close(pid_fd);
    return waitpid(child, &status, 0) == child ? status : -errno;
}

/* The command has ended: when this returns, the lock is free, or processes that the command has left behind keep it. If the
 * lock was lost shortly before, the command's last steps were without it, and the keeper says so. */
static void end_keeping(struct lock_job *job)
{
    const struct lock_order ended = {.command = 0};
    close(job->inherited);
    if (job->lost)
        return;
    send(job->control, &ended, sizeof ended, MSG_NOSIGNAL);
    while (!take_news(job))
        ;
}

int lock_become(struct lock_job *job)
{
    const struct lock_order order = {.command = getpid()};
    int rc = set_environment(job);
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot set the environment: %s", strerror(-rc));
    if (send(job->control, &order, sizeof order, MSG_NOSIGNAL) < 0)
        return cli_say("lock", EXIT_LOST, "the process that keeps the lock has ended");
    if (!job->closes)
        fcntl(job->inherited, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &job->before, NULL);
    execvp(job->command[0], job->command);
    return cannot_run(job, errno);
}

int lock_run(struct lock_job *job)
{
    int rc = set_environment(job);
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot set the environment: %s", strerror(-rc));
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would lose the exit status */
    uint64_t start = pawl_now();
    pid_t child = start_command(job);
    if (child < 0) {
        end_keeping(job);
        return -child;
    }
    rc = wait_for_end(job, child);
    end_keeping(job);
    job->held_ns = pawl_now() - start;
    if (rc < 0) {
        kill(child, SIGTERM);
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot wait for the command: %s", strerror(-rc));
    }
    if (WIFSIGNALED(rc))
        job->signal = WTERMSIG(rc);
    if (job->lost)
        return EXIT_LOST;
    return WIFSIGNALED(rc) ? EXIT_SIGNALLED + WTERMSIG(rc) : WEXITSTATUS(rc);
}
