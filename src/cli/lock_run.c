/* SPDX-License-Identifier: Apache-2.0 */
/* Running the command under the lock. */
#include "cli/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_EVERY_MS 200 /* how soon a lock that an operator broke is noticed */

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
    return 0;
}

/* Between fork and exec only what is allowed in the child of a process with threads. */
_Noreturn static void become_command(const struct lock_job *job, pid_t parent, int error_fd)
{
    /* If pawl is killed, the lock is granted to another at once, and the command must not go on without it. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_SIGNALLED + SIGTERM); /* the parent died before prctl */
    sigprocmask(SIG_SETMASK, &job->before, NULL);
    execvp(job->command[0], job->command);
    int error = errno;
    _exit(write(error_fd, &error, sizeof error) == sizeof error ? EXIT_CANNOT_EXEC : EXIT_NOT_FOUND); /* not seen */
}

/* Starts the command: its process id, or minus the exit status after a complaint. */
static pid_t start_command(const struct lock_job *job)
{
    int pipe_fds[2], error = 0;
    pid_t parent = getpid();
    if (pipe2(pipe_fds, O_CLOEXEC))
        return -cli_say("lock", EXIT_UNAVAILABLE, "cannot make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        become_command(job, parent, pipe_fds[1]);
    int fork_error = errno;
    close(pipe_fds[1]);
    ssize_t len = pid < 0 ? 0 : read(pipe_fds[0], &error, sizeof error); /* nothing: exec closed it */
    close(pipe_fds[0]);
    if (pid < 0)
        return -cli_say("lock", EXIT_UNAVAILABLE, "cannot fork: %s", strerror(fork_error));
    if (len == sizeof error) {
        waitpid(pid, NULL, 0);
        return -cli_say("lock", error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC, "cannot run '%s': %s", job->command[0],
                        strerror(error));
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

static void check_lock(struct lock_job *job, pid_t child)
{
    if (job->lost)
        return;
    int rc = pawl_check(job->p, &job->grant);
    if (!rc)
        return;
    job->lost = true;
    cli_say("lock", 0, "lost '%s': %s; ending the command", job->name, pawl_strerror(rc));
    kill(child, SIGTERM);
    kill(child, SIGCONT); /* were it stopped, it would not notice */
}

static int wait_for_end(struct lock_job *job, pid_t child)
{
    int status, pid_fd = (int)syscall(SYS_pidfd_open, child, 0);
    if (pid_fd < 0)
        return -errno;
    struct pollfd fds[] = {{.fd = pid_fd, .events = POLLIN}, {.fd = job->signal_fd, .events = POLLIN}};
    do {
        int ready = poll(fds, countof(fds), CHECK_EVERY_MS);
        if (ready > 0 && fds[1].revents)
            forward_signal(job, child);
        check_lock(job, child); /* also when it has ended: what it did last may have been done without the lock */
    } while (!fds[0].revents);
    close(pid_fd);
    return waitpid(child, &status, 0) == child ? status : -errno;
}

int lock_run(struct lock_job *job)
{
    int rc = set_environment(job);
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot set the environment: %s", strerror(-rc));
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would lose the exit status */
    uint64_t start = pawl_now();
    pid_t child = start_command(job);
    if (child < 0)
        return -child;
    rc = wait_for_end(job, child);
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
