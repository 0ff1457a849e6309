/* SPDX-License-Identifier: Apache-2.0 */
/* pawl top: the locks of a space, those that are waited for longest first, again and again. */
#include "cli/top.h"
#include "cli/commands.h"
#include "client/net.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define ALL_MAX 65536                    /* of larger spaces, and on memory nodes, only locks in use are looked at */
#define INTERVAL_MIN_NS (50 * NS_PER_MS) /* a look reads the records of all sessions */

static struct {
    const char *space;
    uint64_t interval_ns;
    bool once, json;
} opts = {.interval_ns = NS_PER_S};

static const struct arg table[] = {
    CLI_SPACE_OPTION(&opts.space),
    {"interval", 'i', ARG_DURATION, "SECONDS", "time between two looks, such as 0.5 or 2s; default 1", &opts.interval_ns, NULL},
    {"once", 0, ARG_FLAG, NULL, "print one table, of two looks, and exit", &opts.once, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object per table", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl top",
    .usage = "[--space URI] [--interval SECONDS] [--once] [--json]",
    .about =
        "Shows the locks of a space that are held, waited for or granted, those that are waited for longest first: for how long\n"
        "waiters have been seen, their number, the holders, how many grants there are per second, and the first holder. On a\n"
        "terminal the table is drawn anew until 'q' or Ctrl-C; elsewhere one table follows the other.",
    .after =
        "Waiting is counted from the look at which a waiter was first seen. Grants are counted by tokens: readers that share a\n"
        "lock count once, and on a rack, a memory node or in a space of more than 65,536 locks a lock counts while it is in use "
        "at\n"
        "every look. Looking needs no session and takes no "
        "lock.\n\n"
        "Exit status: 0 ended by 'q', a signal or --once, 1 no such space, 2 wrong usage, 69 the space cannot be used.",
    ARGS_TABLE(table),
};

/* ---- a look ---- */

static int add_row(void *ctx, const struct inspect_lock *lock)
{
    struct top_look *l = ctx;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct top_row *more = realloc(l->rows, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        l->rows = more;
        l->room = room;
    }
    struct top_row *r = &l->rows[l->count++];
    *r = (struct top_row){.index = lock->index,
                          .named = lock->key.name != NULL,
                          .id = lock->key.id,
                          .mode = lock->view.mode,
                          .token = lock->view.token,
                          .holders = lock->holders,
                          .waiters = lock->waiters,
                          .gone = lock->gone};
    if (r->named)
        memcpy(r->name, lock->key.name, min_u64(lock->key.id, sizeof r->name));
    return 0;
}

static bool same_lock(const struct top_row *a, const struct top_row *b)
{
    return a->index == b->index && a->named == b->named && a->id == b->id && (!a->named || !memcmp(a->name, b->name, a->id));
}

/* Both are in the order of indexes. */
static void compare(const struct top_look *before, struct top_look *l)
{
    uint64_t ns = l->at_ns - before->at_ns;
    for (size_t i = 0, j = 0; i < l->count; i++) {
        struct top_row *r = &l->rows[i];
        while (j < before->count && before->rows[j].index < r->index)
            j++;
        const struct top_row *was = j < before->count && same_lock(&before->rows[j], r) ? &before->rows[j] : NULL;
        if (r->waiters)
            r->waits_since_ns = was && was->waits_since_ns ? was->waits_since_ns : l->at_ns;
        if (was && was->token && r->token > was->token && ns)
            r->grants_per_s = (double)(r->token - was->token) * NS_PER_S / (double)ns;
        l->grants_per_s += r->grants_per_s;
    }
}

/* 0, or the exit status. */
static int look(const char *place, bool rack, struct top_look *out)
{
    memset(out, 0, sizeof *out);
    int rc = rack ? rack_look_open(place + strlen(NET_SCHEME), &out->rack) : observer_open(place, &out->observer);
    if (rc == -ENOENT && !rack)
        return cli_say("top", EXIT_NO, "there is no space %s; 'pawl space list' lists those of this user and of system:", place);
    if (rc)
        return cli_fail("top", rc);
    out->is_rack = rack;
    out->is_open = true;
    out->at_ns = world_now(&world_real);
    /* All locks: one that is free at both looks may have been granted in between. */
    bool all = !rack && out->observer.segment && out->observer.space.lock_count <= ALL_MAX;
    rc = rack ? rack_look_locks(&out->rack, add_row, out) : inspect_locks(&out->observer.locker, all, add_row, out);
    return rc ? cli_fail("top", rc) : 0;
}

static void look_away(struct top_look *l)
{
    if (l->is_open && l->is_rack)
        rack_look_close(&l->rack);
    else if (l->is_open)
        observer_close(&l->observer);
    l->is_open = false;
}

int top_claims(const struct top_look *l, uint64_t index, inspect_claim_fn fn, void *ctx)
{
    return l->is_rack ? rack_look_claims(&l->rack, index, fn, ctx) : inspect_claims(&l->observer.locker, index, fn, ctx);
}

/* ---- the order of rows ---- */

static int compare_rows(const void *a, const void *b)
{
    const struct top_row *x = a, *y = b;
    if (x->waits_since_ns != y->waits_since_ns) /* 0 is not waiting: last */
        return x->waits_since_ns - 1 < y->waits_since_ns - 1 ? -1 : 1;
    if (x->waiters != y->waiters)
        return x->waiters > y->waiters ? -1 : 1;
    if (x->grants_per_s != y->grants_per_s)
        return x->grants_per_s > y->grants_per_s ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The rows that are worth a line, the most important first. Returns how many there are. */
static size_t choose(struct top_look *l, struct top_row **out)
{
    size_t count = 0;
    struct top_row *rows = malloc((l->count + 1) * sizeof *rows);
    for (size_t i = 0; rows && i < l->count; i++) {
        const struct top_row *r = &l->rows[i];
        if (r->holders || r->waiters || r->gone || r->grants_per_s > 0)
            rows[count++] = *r;
    }
    if (rows)
        qsort(rows, count, sizeof *rows, compare_rows);
    *out = rows;
    return count;
}

/* ---- on and on ---- */

static struct termios as_found;
static bool changed;

/* Keys are read one at a time, and not shown. */
static void listen_to_keys(void)
{
    struct termios t;
    if (tcgetattr(STDIN_FILENO, &as_found))
        return;
    t = as_found;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    changed = !tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

static void leave_terminal(void)
{
    if (changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &as_found);
}

/* Sleeps for the interval. False: it is time to end. */
static bool go_on_after(uint64_t until_ns)
{
    for (;;) {
        uint64_t now = world_now(&world_real);
        if (cli_signal)
            return false;
        if (now >= until_ns)
            return true;
        struct pollfd keys = {.fd = changed ? STDIN_FILENO : -1, .events = POLLIN};
        char key;
        struct timespec left = {.tv_sec = (time_t)((until_ns - now) / NS_PER_S), .tv_nsec = (long)((until_ns - now) % NS_PER_S)};
        if (ppoll(&keys, 1, &left, NULL) > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
            return false;
    }
}

static int watch(const char *place, bool rack, bool live)
{
    struct top_look before = {0}, now = {0};
    int status = look(place, rack, &before);
    look_away(&before);
    while (!status && go_on_after(before.at_ns + opts.interval_ns)) {
        struct top_row *rows = NULL;
        status = look(place, rack, &now);
        if (!status) {
            compare(&before, &now);
            size_t count = choose(&now, &rows);
            status = opts.json ? top_json(place, &now, rows, count) : top_table(place, &now, rows, count, live);
        }
        look_away(&now);
        free(rows);
        free(before.rows);
        before = now;
        now = (struct top_look){0};
        if (opts.once)
            break;
    }
    free(before.rows);
    free(now.rows);
    return status;
}

static int run_top(struct args_rest *rest)
{
    char place[PLACE_LEN];
    if (opts.interval_ns < INTERVAL_MIN_NS)
        return args_complain(&usage, "--interval must be at least 50ms");
    int status = cli_place("top", opts.space, place);
    bool rack = false, live = !opts.once && !opts.json && isatty(STDOUT_FILENO);
    if (!status)
        status = cli_is_rack("top", place, &rack);
    if (status)
        return status;
    cli_catch(SIGINT, 0);
    cli_catch(SIGTERM, 0);
    cli_catch(SIGPIPE, 0);
    if (live && isatty(STDIN_FILENO))
        listen_to_keys();
    status = watch(place, rack, live);
    leave_terminal();
    if (live)
        top_leave();
    return status;
}

const struct command cmd_top = {&usage, run_top};
