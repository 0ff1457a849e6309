/* SPDX-License-Identifier: Apache-2.0 */
/* pawl ls: the locks of a space. */
#include "cli/commands.h"
#include "cli/common.h"
#include "client/net.h"
#include "client/rack_look.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static struct {
    const char *space;
    bool all, json;
} opts;

static const struct arg table[] = {
    CLI_SPACE_OPTION(&opts.space),
    {"all", 'a', ARG_FLAG, NULL, "list all locks of the space, free ones too", &opts.all, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl ls",
    .usage = "[--space URI] [--all] [--json]",
    .about = "Lists the locks of a space that are held or waited for, with the token of the latest grant, and, if the space has\n"
             "ranges, the bytes that are held.",
    .after = "A lock whose holder died shows 'dead' beside the mode until the next client takes it.\n"
             "A default space that does not exist yet has no locks; a space named by --space must exist.\n\n"
             "Exit status: 0 listed, 1 no such space, 2 wrong usage, 69 the space cannot be used.",
    .words_max = 1,
    ARGS_TABLE(table),
};

struct listing {
    struct json j;
    uint64_t count;
    bool ranges;              /* the space has */
    const struct observer *o; /* null: of a rack, or of nothing */
};

static pawl_key key_of(const struct listing *l, const struct inspect_lock *lock)
{
    return l->o ? observer_key(l->o, lock->key) : lock->key;
}

static int print_lock(void *ctx, const struct inspect_lock *lock)
{
    struct listing *l = ctx;
    if (!l->count++)
        printf("%-15s %20s %8s %8s  %s\n", "MODE", "TOKEN", "HOLDERS", "WAITERS", "NAME");
    char mode[32];
    snprintf(mode, sizeof mode, "%s%s", cli_mode_name(lock->view.mode), lock->gone ? ", dead" : "");
    printf("%-15s %20" PRIu64 " %8" PRIu32 " %8" PRIu32 "  ", mode, lock->view.token, lock->holders, lock->waiters);
    cli_put_key(stdout, key_of(l, lock));
    if (lock->range_count)
        printf("  %" PRIu64 ":%" PRIu64, lock->ranges[0].start, lock->ranges[0].end);
    if (lock->range_count > 1)
        printf(" and %" PRIu32 " more", lock->range_count - 1);
    putchar('\n');
    return 0;
}

static int json_lock(void *ctx, const struct inspect_lock *lock)
{
    struct listing *l = ctx;
    struct json *j = &l->j;
    json_object(j, NULL);
    cli_json_key(j, "name", key_of(l, lock));
    json_string(j, "mode", cli_mode_name(lock->view.mode));
    cli_json_token(j, true, lock->view.token);
    json_u64(j, "holders", lock->holders);
    json_u64(j, "waiters", lock->waiters);
    json_u64(j, "dead_holders", lock->gone);
    if (l->ranges) {
        json_array(j, "ranges");
        for (uint32_t i = 0; i < lock->range_count; i++) {
            json_object(j, NULL);
            json_u64(j, "start", lock->ranges[i].start);
            json_u64(j, "end", lock->ranges[i].end);
            json_string(j, "mode", cli_mode_name(lock->ranges[i].mode));
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
    return 0;
}

/* Of a segment, of a rack, or of nothing. */
static int each_lock(const struct observer *o, const struct rack_look *rack, inspect_lock_fn fn, void *ctx)
{
    if (rack)
        return rack_look_locks(rack, fn, ctx);
    return o ? inspect_locks(&o->locker, opts.all, fn, ctx) : 0;
}

static int list(const struct observer *o, const struct rack_look *rack, const char *place)
{
    struct listing l = {.ranges = o && o->space.range_units, .o = o};
    if (!opts.json)
        return each_lock(o, rack, print_lock, &l);
    json_open(&l.j, stdout);
    json_string(&l.j, "space", place);
    json_array(&l.j, "locks");
    int rc = each_lock(o, rack, json_lock, &l);
    json_end(&l.j);
    if (rack)
        json_u64(&l.j, "hosts_silent", rack->silent);
    int lost = json_finish(&l.j);
    return rc ? rc : lost;
}

/* All that answer, in their order. */
static int each_node(const char *place, unsigned nodes, struct listing *l, unsigned *silent)
{
    int rc = 0;
    for (unsigned i = 0; i < nodes && !rc; i++) {
        struct observer o;
        int opened = observer_open_node(place, i, &o);
        if (opened && opened != -ETIMEDOUT)
            return opened;
        if (opened) {
            cli_say("ls", 0, "%s; its locks are missing", explained());
            ++*silent;
            continue;
        }
        l->ranges = o.space.range_units;
        l->o = &o;
        rc = inspect_locks(&o.locker, opts.all, opts.json ? json_lock : print_lock, l);
        observer_close(&o);
    }
    return rc;
}

static int list_nodes(const char *place, unsigned nodes)
{
    struct listing l = {0};
    unsigned silent = 0;
    int lost = 0;
    if (opts.json) {
        json_open(&l.j, stdout);
        json_string(&l.j, "space", place);
        json_array(&l.j, "locks");
    }
    int rc = each_node(place, nodes, &l, &silent);
    if (opts.json) {
        json_end(&l.j);
        json_u64(&l.j, "nodes_silent", silent);
        lost = json_finish(&l.j);
    }
    return rc || lost ? cli_fail("ls", rc ? rc : lost) : silent ? EXIT_UNAVAILABLE : 0;
}

static int list_rack(const char *place)
{
    struct rack_look rack;
    if (opts.all)
        return cli_say("ls", EXIT_USAGE, "--all is not for racks: they list the locks that are held or waited for");
    int rc = rack_look_open(place + strlen(NET_SCHEME), &rack);
    if (rc)
        return cli_fail("ls", rc);
    rc = list(NULL, &rack, place);
    if (rack.silent)
        cli_say("ls", 0, "%u of %u hosts did not answer; what they hold is missing", rack.silent, rack.hosts);
    rack_look_close(&rack);
    return rc ? cli_fail("ls", rc) : 0;
}

static int run_ls(struct args_rest *rest)
{
    struct observer o;
    char place[PLACE_LEN];
    if (rest->count)
        return args_complain(&usage, "unexpected argument '%s'; 'pawl show NAME' shows one lock", rest->words[0]);
    int status = cli_place("ls", opts.space, place);
    if (status)
        return status;
    bool rack = false;
    status = cli_is_rack("ls", place, &rack);
    if (status || rack)
        return status ? status : list_rack(place);
    unsigned nodes;
    int rc = observer_nodes(place, &nodes);
    if (rc)
        return cli_fail("ls", rc);
    if (nodes > 1)
        return list_nodes(place, nodes);
    rc = observer_open(place, &o);
    if (rc == -ENOENT && !opts.space && !getenv("PAWL_SPACE"))
        return list(NULL, NULL, place) ? EXIT_UNAVAILABLE : 0;
    if (rc == -ENOENT)
        return cli_say("ls", EXIT_NO, "there is no space %s; 'pawl space list' lists those of this user", place);
    if (rc)
        return cli_fail("ls", rc);
    rc = list(&o, NULL, place);
    observer_close(&o);
    return rc ? cli_fail("ls", rc) : 0;
}

const struct command cmd_ls = {&usage, run_ls};
