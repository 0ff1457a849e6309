/* SPDX-License-Identifier: Apache-2.0 */
/* pawl lock: runs a command while holding a lock. The front (lock.h). */
#include "cli/lock.h"
#include "cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    bool shared, exclusive, nonblock, json, close, no_fork, verbose, no_create;
    bool has_wait, has_lease, has_fd, has_limit;
    uint64_t wait_ns, lease_ns, tenant, priority, fd, limit;
    const char *range, *space, *wire, *code, *shell;
} opts;

static const struct arg table[] = {
    {"shared", 's', ARG_FLAG, NULL, "share the lock with others that share it", &opts.shared, NULL},
    {"exclusive", 'x', ARG_FLAG, NULL, "hold the lock alone (the default)", &opts.exclusive, NULL},
    {"limit", 0, ARG_U64, "N", "a semaphore: at most N hold NAME at once, all with the same N", &opts.limit, &opts.has_limit},
    {"nonblock", 'n', ARG_FLAG, NULL, "give up at once if another session holds the lock", &opts.nonblock, NULL},
    {"wait", 'w', ARG_DURATION, "SECONDS", "give up after this time, such as 0.5, 500ms or 2min", &opts.wait_ns, &opts.has_wait},
    {"conflict-exit-code", 'E', ARG_STRING, "CODE", "exit status after giving up, 0 to 255; default 1", &opts.code, NULL},
    {"command", 'c', ARG_STRING, "TEXT", "run TEXT by $SHELL, else /bin/sh, instead of COMMAND", &opts.shell, NULL},
    {"fd", 0, ARG_U64, "N", "no COMMAND: hold the lock until every copy of descriptor N is closed", &opts.fd, &opts.has_fd},
    {"close", 'o', ARG_FLAG, NULL, "the lock ends with COMMAND, whatever processes it leaves behind", &opts.close, NULL},
    {"no-fork", 'F', ARG_FLAG, NULL, "become COMMAND: its process id is that of pawl", &opts.no_fork, NULL},
    {"range", 0, ARG_STRING, "A:B", "lock bytes A up to B, such as 0:4096, 4Ki:1Mi or 1Gi:; only in spaces with ranges",
     &opts.range, NULL},
    {"lease", 0, ARG_DURATION, "SECONDS", "lose the lock when stopped for longer than this; default: keep it", &opts.lease_ns,
     &opts.has_lease},
    {"tenant", 0, ARG_U64, "N", "tenant whose quota the request counts against (netlock, see pawl policy); default 0", &opts.tenant,
     NULL},
    {"priority", 0, ARG_U64, "N", "priority among waiters, 0 to 7 (netlock, fisslock); default 0, the highest", &opts.priority,
     NULL},
    CLI_SPACE_OPTION(&opts.space),
    CLI_WIRE_OPTION(&opts.wire),
    {"no-create", 0, ARG_FLAG, NULL, "do not make a local space that does not exist", &opts.no_create, NULL},
    {"verbose", 0, ARG_FLAG, NULL, "say how long it took, and which process holds the lock if it was not granted", &opts.verbose,
     NULL},
    {"json", 0, ARG_FLAG, NULL, "at the end print one JSON object on stderr", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl lock",
    .usage = "NAME [OPTION]... -- COMMAND... | NAME [OPTION]... -c TEXT | NAME [OPTION]... --fd N",
    .about =
        "Runs COMMAND while holding the lock NAME, like flock(1).\n"
        "COMMAND finds the fencing token, a decimal number that rises with every exclusive grant, in PAWL_TOKEN, and the\n"
        "lock's name and space in PAWL_NAME and PAWL_SPACE; with --range the bytes that are locked, whole units of the space,\n"
        "in PAWL_RANGE.",
    .after =
        "A second process, the keeper, has the lock until COMMAND has ended and all processes that COMMAND has started and that\n"
        "still have its inherited descriptor are gone, also if pawl is killed; --close: until COMMAND has ended. If the keeper\n"
        "is killed, COMMAND gets SIGTERM. With --fd the shell holds the lock: 'exec 9>FILE; pawl lock NAME --fd 9; ...;\n"
        "exec 9>&-'. Without --lease the lock is kept while both are stopped (Ctrl-Z), too, as flock(1) does. SIGINT, SIGTERM,\n"
        "SIGHUP and SIGQUIT end the waiting; once COMMAND runs they are passed on to it. If an operator breaks the lock\n"
        "('pawl break') COMMAND gets SIGTERM. A lock that a process above COMMAND holds is not waited for: PAWL_HELD names\n"
        "those.\n\n"
        "Exit status: COMMAND's, or 128 and the number of the signal that ended it, or\n"
        "  1      the lock was not granted in time (or the CODE of -E)\n"
        "  2      wrong usage: an unknown option, a name that is too long, a malformed range, a lock that would wait for itself,\n"
        "         a semaphore that is held with another limit\n"
        "  69     the space cannot be used, or its design does not offer the operation\n"
        "  75     the lock was lost while COMMAND ran\n"
        "  126    COMMAND cannot be run\n"
        "  127    COMMAND was not found\n"
        "  128+n  signal n ended the waiting",
    .words_max = INT_MAX,
    ARGS_TABLE(table),
};

/* ---- what was asked for ---- */

static int parse_range(const char *text, struct arg_range *out)
{
    const char *colon = strchr(text, ':');
    int rc = colon ? cli_bytes(text, (size_t)(colon - text), &out->from) : -EINVAL;
    out->to = PAWL_END;
    if (!rc && colon[1])
        rc = cli_bytes(colon + 1, strlen(colon + 1), &out->to);
    if (rc == -ERANGE)
        return args_complain(&usage, "--range: '%s' is beyond 2^64 bytes", text);
    if (rc)
        return args_complain(&usage, "option '--range' needs bytes A:B such as 0:4096, 4Ki:1Mi or 1Gi:, not '%s'", text);
    if (out->from >= out->to)
        return args_complain(&usage, "the range '%s' is empty or ends before it starts", text);
    return 0;
}

/* Options that contradict each other, and words that are too many or too few. */
static int check_wishes(const struct args_rest *rest)
{
    bool command = rest->count > rest->split;
    if (opts.tenant > 63 || opts.priority > 7)
        return args_complain(&usage, "--tenant must be between 0 and 63, and --priority between 0 and 7");
    if (rest->split == 0)
        return args_complain(&usage, "needs the name of a lock");
    if (!rest->words[0][0])
        return args_complain(&usage, "the name of the lock is empty; a name has 1 to %d bytes", PAWL_NAME_MAX);
    if (rest->split > 1)
        return args_complain(&usage, "unexpected argument '%s'; put '--' before the command", rest->words[1]);
    if (command + !!opts.shell + opts.has_fd > 1)
        return args_complain(&usage, "a command after '--', -c TEXT and --fd N exclude each other");
    if (!command && !opts.shell && !opts.has_fd)
        return args_complain(&usage, "needs a command, after '--', or -c TEXT, or --fd N");
    if (opts.has_fd && (opts.close || opts.no_fork))
        return args_complain(&usage, "--close and --no-fork are about a command, and --fd has none");
    if (opts.has_fd && (opts.fd > INT_MAX || fcntl((int)opts.fd, F_GETFD) < 0))
        return args_complain(&usage, "descriptor %llu is not open (a shell opens one with 'exec 9>FILE')",
                             (unsigned long long)opts.fd);
    if (opts.no_fork && opts.json)
        return args_complain(&usage, "--json reports at the end, and with --no-fork pawl has no end of its own");
    if (opts.shared && opts.exclusive)
        return args_complain(&usage, "--shared and --exclusive exclude each other");
    if (opts.has_limit && (!opts.limit || opts.limit > PAWL_SEMAPHORE_MAX))
        return args_complain(&usage, "--limit must be between 1 and %d", PAWL_SEMAPHORE_MAX);
    if (opts.has_limit && (opts.exclusive || opts.range))
        return args_complain(&usage, "--limit shares the whole lock: --exclusive and --range do not go with it");
    if (opts.nonblock && opts.has_wait)
        return args_complain(&usage, "--nonblock and --wait exclude each other");
    if (opts.has_lease && !opts.lease_ns)
        return args_complain(&usage, "--lease must be more than 0");
    return 0;
}

static int read_code(int *out)
{
    uint64_t code = EXIT_NO;
    if (opts.code && (args_u64(opts.code, &code) || code > 255))
        return args_complain(&usage, "--conflict-exit-code (-E) needs an exit status between 0 and 255, not '%s'", opts.code);
    *out = (int)code;
    return 0;
}

static char **shell_command(void)
{
    static char flag[] = "-c", *words[4] = {NULL, flag};
    const char *shell = getenv("SHELL");
    words[0] = (char *)(uintptr_t)(shell && *shell ? shell : "/bin/sh");
    words[2] = (char *)(uintptr_t)opts.shell;
    return words;
}

static int read_wishes(struct lock_job *job, const struct args_rest *rest)
{
    rest->words[rest->count] = NULL; /* exec needs an end where the parser left an older word */
    int code = EXIT_NO, status = check_wishes(rest);
    if (!status)
        status = read_code(&code);
    if (status)
        return status;
    *job = (struct lock_job){
        .name = rest->words[0],
        .command = opts.shell ? shell_command() : rest->words + rest->split,
        .mode = opts.shared || opts.has_limit ? PAWL_SHARED : PAWL_EXCLUSIVE,
        .limit = (uint32_t)opts.limit,
        .nonblock = opts.nonblock,
        .has_range = opts.range,
        .verbose = opts.verbose,
        .no_create = opts.no_create,
        .named = opts.space,
        .closes = opts.close,
        .replaces = opts.no_fork,
        .fd = opts.has_fd ? (int)opts.fd : -1,
        .wait_ns = opts.has_wait ? opts.wait_ns : UINT64_MAX,
        .lease_ns = opts.has_lease ? opts.lease_ns : PAWL_LEASE_FOREVER,
        .tenant = (uint16_t)opts.tenant,
        .priority = (uint16_t)opts.priority,
        .conflict_status = code,
        .control = -1,
        .signal_fd = -1,
    };
    status = opts.range ? parse_range(opts.range, &job->range) : 0;
    if (!status)
        status = cli_place("lock", opts.space, job->place);
    memcpy(job->reach, job->place, sizeof job->reach);
    return status ? status : cli_wire("lock", opts.wire, job->reach);
}

/* ---- how it went ---- */

static void report(const struct lock_job *job, int status)
{
    struct json j;
    json_open(&j, stderr);
    json_string(&j, "name", job->name);
    json_string(&j, "space", job->place);
    json_string(&j, "mode", cli_mode_name(job->mode));
    json_bool(&j, "granted", job->granted);
    cli_json_token(&j, job->granted, job->grant.token);
    if (job->has_range && job->granted) {
        json_u64(&j, "start", job->grant.start);
        json_u64(&j, "end", job->grant.end);
    }
    json_u64(&j, "waited_ns", job->waited_ns);
    json_u64(&j, "held_ns", job->held_ns);
    json_bool(&j, "lost", job->lost);
    if (job->signal)
        json_i64(&j, "signal", job->signal);
    else
        json_null(&j, "signal");
    json_i64(&j, "exit_status", status);
    json_finish(&j);
}

/* ---- the front ---- */

#define CANCEL_MS 1000 /* for which a keeper that is told to stop waiting may take; it then holds nothing of value */

/* The next thing that the keeper says; -EINTR after a signal; -EPIPE: it has ended. */
static int next_news(struct lock_job *job, int patience_ms, struct lock_news *out)
{
    struct pollfd fds[] = {{.fd = job->control, .events = POLLIN}, {.fd = job->signal ? -1 : job->signal_fd, .events = POLLIN}};
    struct signalfd_siginfo got;
    for (;;) {
        int ready = poll(fds, countof(fds), patience_ms);
        if (ready == 0)
            return -ETIMEDOUT;
        if (ready > 0 && fds[0].revents)
            return recv(job->control, out, sizeof *out, 0) == (ssize_t)sizeof *out ? 0 : -EPIPE;
        if (ready > 0 && read(job->signal_fd, &got, sizeof got) == (ssize_t)sizeof got) {
            job->signal = (int)got.ssi_signo;
            return -EINTR;
        }
    }
}

/* Waits until the keeper has the lock: 0, or the exit status. */
static int wait_for_keeper(struct lock_job *job)
{
    struct lock_news news = {0};
    int rc = next_news(job, -1, &news);
    if (rc == -EINTR) {
        shutdown(job->control, SHUT_WR);
        if (next_news(job, CANCEL_MS, &news) == -ETIMEDOUT && !job->replaces)
            kill(job->keeper, SIGKILL);
        return 128 + job->signal;
    }
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "the process that was to keep the lock has ended");
    job->waited_ns = news.waited_ns;
    if (news.kind != NEWS_GRANTED)
        return news.status;
    job->granted = true;
    job->grant = news.grant;
    if (job->verbose) {
        char users[USERS_LEN];
        cli_place_users(job->place, users);
        cli_say("lock", 0, "granted '%s' after %.3f s, token %llu; %s %s", job->name, (double)job->waited_ns / NS_PER_S,
                (unsigned long long)job->grant.token, job->place, users);
    }
    return 0;
}

static int lock_and_run(struct lock_job *job)
{
    int status = lock_start_keeper(job);
    if (status)
        return status;
    int rc = lock_catch_signals(job);
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot watch for signals: %s", strerror(-rc));
    status = wait_for_keeper(job);
    if (!job->granted || job->fd >= 0)
        return status;
    if (job->replaces)
        return lock_become(job);
    return lock_run(job);
}

static int run_lock(struct args_rest *rest)
{
    struct lock_job job = {.signal_fd = -1, .control = -1};
    int status = read_wishes(&job, rest);
    if (status)
        return status;
    job.start_ns = pawl_now();
    status = lock_and_run(&job);
    if (job.control >= 0)
        close(job.control);
    if (job.keeper > 0 && job.fd < 0 && !job.replaces && !job.kept)
        waitpid(job.keeper, NULL, 0); /* its session is closed when the command returns */
    if (opts.json)
        report(&job, status);
    if (job.signal_fd >= 0)
        close(job.signal_fd);
    return status;
}

const struct command cmd_lock = {&usage, run_lock};
