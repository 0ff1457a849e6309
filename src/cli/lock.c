/* SPDX-License-Identifier: Apache-2.0 */
/* pawl lock: runs a command while holding a lock. */
#include "cli/lock.h"
#include "cli/commands.h"
#include "client/net.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define OPEN_NS (2 * NS_PER_S) /* for which -n waits for a rack to answer at all: longer than a busy machine needs for that */

static struct {
    bool shared, exclusive, nonblock, json;
    bool has_wait, has_lease, has_code;
    uint64_t wait_ns, lease_ns, code, tenant, priority;
    const char *range, *space, *wire;
} opts = {.code = EXIT_NO};

static const struct arg table[] = {
    {"shared", 's', ARG_FLAG, NULL, "share the lock with others that share it", &opts.shared, NULL},
    {"exclusive", 'x', ARG_FLAG, NULL, "hold the lock alone (the default)", &opts.exclusive, NULL},
    {"nonblock", 'n', ARG_FLAG, NULL, "give up at once if another session holds the lock", &opts.nonblock, NULL},
    {"wait", 'w', ARG_DURATION, "SECONDS", "give up after this time, such as 0.5, 500ms or 2min", &opts.wait_ns, &opts.has_wait},
    {"conflict-exit-code", 'E', ARG_U64, "CODE", "exit status after giving up; default 1", &opts.code, &opts.has_code},
    {"range", 0, ARG_STRING, "A:B", "lock bytes A up to B, such as 0:4096, 4K:1M or 1G:; only in spaces with ranges", &opts.range,
     NULL},
    {"lease", 0, ARG_DURATION, "SECONDS", "lose the lock when stopped for longer than this; default: keep it", &opts.lease_ns,
     &opts.has_lease},
    {"tenant", 0, ARG_U64, "N", "tenant whose quota the request counts against (netlock, see pawl policy); default 0", &opts.tenant,
     NULL},
    {"priority", 0, ARG_U64, "N", "priority among waiters, 0 to 7 (netlock, fisslock); default 0, the highest", &opts.priority,
     NULL},
    CLI_SPACE_OPTION(&opts.space),
    CLI_WIRE_OPTION(&opts.wire),
    {"json", 0, ARG_FLAG, NULL, "at the end print one JSON object on stderr", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl lock",
    .usage = "NAME [OPTION]... -- COMMAND...",
    .about =
        "Runs COMMAND while holding the lock NAME, like flock(1). The lock is free again when pawl ends, however it ends.\n"
        "COMMAND finds the fencing token, a decimal number that rises with every exclusive grant, in PAWL_TOKEN, and the\n"
        "lock's name and space in PAWL_NAME and PAWL_SPACE; with --range the bytes that are locked, whole units of the space,\n"
        "in PAWL_RANGE.",
    .after = "Without --lease the lock is kept for as long as pawl exists, also while it is stopped (Ctrl-Z), as flock(1) does.\n"
             "SIGINT, SIGTERM, SIGHUP and SIGQUIT end the waiting; once COMMAND runs they are passed on to it. If pawl is killed\n"
             "(SIGKILL) the next in line has the lock at once, and COMMAND, though not its own children, gets SIGTERM. If an\n"
             "operator breaks the lock ('pawl break') COMMAND gets SIGTERM too.\n\n"
             "Exit status: COMMAND's, or 128 and the number of the signal that ended it, or\n"
             "  1      the lock was not granted in time (or the CODE of -E)\n"
             "  2      wrong usage: an unknown option, a name that is too long, a malformed range\n"
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
        return args_complain(&usage, "option '--range' needs bytes A:B such as 0:4096, 4K:1M or 1G:, not '%s'", text);
    if (out->from >= out->to)
        return args_complain(&usage, "the range '%s' is empty or ends before it starts", text);
    return 0;
}

static int read_wishes(struct lock_job *job, const struct args_rest *rest)
{
    rest->words[rest->count] = NULL; /* exec needs an end where the parser left an older word */
    if (opts.tenant > 63 || opts.priority > 7)
        return args_complain(&usage, "--tenant must be between 0 and 63, and --priority between 0 and 7");
    if (rest->split == 0)
        return args_complain(&usage, "needs the name of a lock");
    if (rest->split > 1)
        return args_complain(&usage, "unexpected argument '%s'; put '--' before the command", rest->words[1]);
    if (rest->count == rest->split)
        return args_complain(&usage, "needs a command, after '--'");
    if (opts.shared && opts.exclusive)
        return args_complain(&usage, "--shared and --exclusive exclude each other");
    if (opts.nonblock && opts.has_wait)
        return args_complain(&usage, "--nonblock and --wait exclude each other");
    if (opts.code > 255)
        return args_complain(&usage, "--conflict-exit-code must be at most 255");
    *job = (struct lock_job){
        .name = rest->words[0],
        .command = rest->words + rest->split,
        .mode = opts.shared ? PAWL_SHARED : PAWL_EXCLUSIVE,
        .nonblock = opts.nonblock,
        .has_range = opts.range,
        .wait_ns = opts.has_wait ? opts.wait_ns : UINT64_MAX,
        .lease_ns = opts.has_lease ? opts.lease_ns : PAWL_LEASE_FOREVER,
        .signal_fd = -1,
    };
    if (opts.has_lease && !opts.lease_ns)
        return args_complain(&usage, "--lease must be more than 0");
    int status = opts.range ? parse_range(opts.range, &job->range) : 0;
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
    json_u64_if(&j, "token", job->granted, job->grant.token);
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

static int not_granted(const struct lock_job *job, int rc)
{
    switch (rc) {
    case -EINTR:
        return 128 + job->signal;
    case -PAWL_EHELD:
    case -ETIMEDOUT:
        return (int)opts.code; /* without a word, as flock(1): scripts try and go on */
    case -EOVERFLOW:
        return args_complain(&usage, "%s", pawl_explain());
    case -PAWL_ELOST: /* before anything was granted */
        if (net_of(job->p))
            return cli_say("lock", EXIT_UNAVAILABLE,
                           "the rack has not answered for a lease, and this host has lost its place in it");
        return cli_fail("lock", rc);
    default:
        return cli_fail("lock", rc);
    }
}

static int lock_and_run(struct lock_job *job)
{
    assert(job->p);
    int status = cli_key("lock", job->p->keys, job->name, &job->key);
    if (status)
        return status;
    int rc = lock_find(job);
    if (rc)
        return not_granted(job, rc);
    /* Until here a signal ends the process, which holds nothing. From here on it ends the waiting in order, or is the command's. */
    rc = lock_catch_signals(job);
    if (rc)
        return cli_say("lock", EXIT_UNAVAILABLE, "cannot watch for signals: %s", strerror(-rc));
    rc = lock_acquire(job);
    if (rc)
        return not_granted(job, rc);
    status = lock_run(job);
    if (!job->lost)
        pawl_unlock(job->p, &job->grant);
    return status;
}

/* A space that is missing is made with a design that has what is asked for. */
static int open_space(struct lock_job *job)
{
    pawl_options o = {.lease_ns = job->lease_ns,
                      .flags = job->has_range ? PAWL_NO_CREATE : 0,
                      .tenant = (uint16_t)opts.tenant,
                      .priority = (uint16_t)opts.priority};
    if (job->wait_ns != UINT64_MAX || job->nonblock) /* deadlines hold from here on */
        o.open_ns = job->nonblock || job->wait_ns < OPEN_NS ? OPEN_NS : job->wait_ns;
    int rc = pawl_open(job->reach, &o, &job->p);
    if (rc != -ENOENT || !job->has_range)
        return rc;
    o.flags = 0;
    o.design = design_find("citron") ? "citron" : "mutex";
    return pawl_open(job->reach, &o, &job->p);
}

static int run_lock(struct args_rest *rest)
{
    struct lock_job job = {.signal_fd = -1};
    int status = read_wishes(&job, rest);
    if (status)
        return status;
    job.start_ns = pawl_now();
    int rc = open_space(&job);
    if (rc) {
        status = cli_fail("lock", rc);
    } else {
        status = lock_and_run(&job);
        pawl_close(job.p);
    }
    if (opts.json)
        report(&job, status);
    if (job.signal_fd >= 0)
        close(job.signal_fd);
    return status;
}

const struct command cmd_lock = {&usage, run_lock};
