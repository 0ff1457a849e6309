/* SPDX-License-Identifier: Apache-2.0 */
/* pawl tune: how a lock with ranges is laid out, and changing that while others use it. */
#include "cli/commands.h"
#include "cli/common.h"
#include "client/memory.h"

#include <errno.h>
#include <inttypes.h>

#define WAIT_DEFAULT_NS (10 * NS_PER_S)

static struct {
    const char *space;
    uint64_t m, wait_ns, units, patience_ns;
    bool has_m, has_wait, has_units, has_patience, json;
} opts;

static const struct arg table[] = {
    {"m", 0, ARG_U64, "N", "announce claims to every N-th ancestor and look N levels down: 1 to 5", &opts.m, &opts.has_m},
    {"t-wait", 0, ARG_DURATION, "TIME", "T_wait, up to 16ms; 0: look twice instead of waiting", &opts.wait_ns, &opts.has_wait},
    {"units", 0, ARG_U64, "N", "lay the lock out for N units, more or fewer than now", &opts.units, &opts.has_units},
    {"wait", 'w', ARG_DURATION, "SECONDS", "how long to wait for other users of the lock; default 10", &opts.patience_ns,
     &opts.has_patience},
    CLI_SPACE_OPTION(&opts.space),
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl tune",
    .usage = "NAME [--m N] [--t-wait TIME] [--units N] [-w SECONDS] [--space URI] [--json]",
    .about = "Shows how a lock with ranges is laid out, in spaces of the design citron; with options, changes it first. Others\n"
             "go on using the lock meanwhile. Only for fewer units all of them must release it, and wait.",
    .after =
        "A layout has 64, 256, 1024, ... units: N is rounded up. It is not smaller than the space was made for (--units of\n"
        "'pawl space create'), nor larger than its memory is reserved for (--max-units). Units beyond the layout are locked as\n"
        "one, and the layout grows when they are used. A space may forget an unused lock, and its layout.\n\n"
        "Exit status: 0 done, 1 no such space, or other users did not release the lock in time, 2 wrong usage, 69 the space cannot "
        "be\n"
        "used, or its design has no such layout.",
    .words_max = 1,
    ARGS_TABLE(table),
};

/* ---- changing ---- */

static int change(const struct locker *l, pawl_key key, struct lock_layout *now)
{
    uint64_t deadline = pawl_in(opts.has_patience ? opts.patience_ns : WAIT_DEFAULT_NS);
    int rc = 0;
    if (opts.has_m || opts.has_wait)
        rc = locker_retune(l, key, opts.has_m ? (unsigned)min_u64(opts.m, UINT32_MAX) : now->m,
                           opts.has_wait ? opts.wait_ns : now->wait_ns, deadline);
    if (!rc && opts.has_units)
        rc = locker_rescale(l, key, opts.units, deadline);
    return rc ? rc : locker_layout(l, key, now);
}

static int complain(int rc, const char *name, const struct lock_layout *now)
{
    switch (rc) {
    case -EINVAL:
        return args_complain(&usage, "--m must be between 1 and 5, and --t-wait at most 16ms");
    case -ERANGE:
        return args_complain(&usage, "the units of '%s' must be between %" PRIu64 " and %" PRIu64 ", not %" PRIu64, name,
                             now->units_first, now->units_max, opts.units);
    case -ETIMEDOUT:
    case -EAGAIN:
        return cli_say("tune", EXIT_NO, "other users of '%s' did not release it in time; try again, or wait longer (-w)", name);
    default:
        return cli_say("tune", EXIT_UNAVAILABLE, "%s", pawl_strerror(rc));
    }
}

/* ---- showing ---- */

static int print(const char *place, pawl_key key, const struct lock_layout *now, uint64_t unit_bytes)
{
    struct json j;
    if (!opts.json) {
        printf("units      %" PRIu64 " of %" PRIu64 " bytes; made for %" PRIu64 ", at most %" PRIu64 "\n", now->units, unit_bytes,
               now->units_first, now->units_max);
        printf("tree       %.1f MiB where all of it is used\n", (double)now->bytes / (1 << 20));
        printf("m          %u%s\n", now->m, now->changing ? ", to be another when all follow" : "");
        if (now->wait_ns)
            printf("T_wait     %" PRIu64 " ns\n", now->wait_ns);
        else
            printf("T_wait     none: a second look instead\n");
        return 0;
    }
    json_open(&j, stdout);
    json_string(&j, "space", place);
    cli_json_key(&j, "name", key);
    json_u64(&j, "unit_bytes", unit_bytes);
    json_u64(&j, "units", now->units);
    json_u64(&j, "units_first", now->units_first);
    json_u64(&j, "units_max", now->units_max);
    json_u64(&j, "tree_bytes", now->bytes);
    json_u64(&j, "m", now->m);
    json_u64(&j, "t_wait_ns", now->wait_ns);
    json_bool(&j, "changing", now->changing);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

static int tune(const struct memory_session *m, const char *place, const char *name)
{
    struct lock_layout now;
    pawl_key key;
    int status = cli_key("tune", m->handle.keys, name, &key);
    if (status)
        return status;
    int rc = locker_layout(&m->locker, key, &now);
    if (rc == -PAWL_ENOTSUP)
        return cli_say("tune", EXIT_UNAVAILABLE, "locks of the design '%s' have no layout to change", m->space.design->name);
    if (!rc)
        rc = change(&m->locker, key, &now);
    return rc ? complain(rc, name, &now) : print(place, key, &now, m->space.unit_bytes);
}

static int run_tune(struct args_rest *rest)
{
    char place[PLACE_LEN];
    pawl *p;
    if (!rest->count)
        return args_complain(&usage, "needs the name of one lock");
    int status = cli_place("tune", opts.space, place);
    if (status)
        return status;
    const pawl_options o = {.flags = PAWL_NO_CREATE};
    int rc = pawl_open(place, &o, &p);
    if (rc == -ENOENT)
        return cli_say("tune", EXIT_NO, "there is no space %s", place);
    if (rc)
        return cli_fail("tune", rc);
    const struct memory_session *m = memory_of(p);
    status = m ? tune(m, place, rest->words[0]) : cli_say("tune", EXIT_UNAVAILABLE, "a rack's locks have no layout to change");
    rc = pawl_close(p);
    return status || !rc ? status : cli_fail("tune", rc);
}

const struct command cmd_tune = {&usage, run_tune};
