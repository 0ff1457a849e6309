/* SPDX-License-Identifier: Apache-2.0 */
/* pawl space: the spaces of this machine, and of services. */
#include "cli/commands.h"
#include "cli/show.h"
#include "cli/space_service.h"
#include "cluster/session.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *keys, *design, *permissions, *unit;
    uint64_t capacity, sessions, holds, units, max_units, locks, hosts, servers, group, lease_ns, member_ns;
    bool force, json;
} opts;

static struct {
    bool capacity, sessions, holds, units, max_units, locks, hosts;
} seen;

static const struct arg table[] = {
    {"keys", 0, ARG_STRING, "KIND", "create: kind of keys: named (the default), sparse (any u64) or dense (0 .. capacity-1)",
     &opts.keys, NULL},
    {"capacity", 0, ARG_U64, "N", "create: number of locks; default 16384", &opts.capacity, &seen.capacity},
    {"design", 0, ARG_STRING, "D", "create: design; default word; 'pawl doctor --matrix' lists them", &opts.design, NULL},
    {"locks", 0, ARG_U64, "N", "service: create: number of locks, default 1M; grow: the new number", &opts.locks, &seen.locks},
    {"sessions", 0, ARG_U64, "N", "create: sessions that can be open at once; default 256", &opts.sessions, &seen.sessions},
    {"holds", 0, ARG_U64, "N", "create: locks that a session can hold or wait for at once; default 256", &opts.holds, &seen.holds},
    {"unit", 0, ARG_STRING, "BYTES", "create, with ranges: size of a unit, such as 4096 or 64Ki; default 4Ki", &opts.unit, NULL},
    {"units", 0, ARG_U64, "N", "create, with ranges: units that a lock is made for; default 65536", &opts.units, &seen.units},
    {"max-units", 0, ARG_U64, "N", "create, with ranges: units that a lock can grow to; default 2^20", &opts.max_units,
     &seen.max_units},
    {"permissions", 0, ARG_STRING, "MODE", "create: permissions of the segment, in octal; default 0600, of system: 0666",
     &opts.permissions, NULL},
    {"hosts", 0, ARG_U64, "N", "service, create: hosts that can take part at once; default 64", &opts.hosts, &seen.hosts},
    {"servers", 0, ARG_U64, "N", "service, create: lock servers, all in the service's process; default 1 if the design has any",
     &opts.servers, NULL},
    {"group", 0, ARG_U64, "G", "service, create: dense keys that share a lock; default 1", &opts.group, NULL},
    {"lease", 0, ARG_DURATION, "S", "service, create: lock lease; default 2", &opts.lease_ns, NULL},
    {"membership-lease", 0, ARG_DURATION, "S", "service, create: how long hosts go on without the service; default 60",
     &opts.member_ns, NULL},
    {"force", 0, ARG_FLAG, NULL, "drop, grow: even if the space has live sessions, which are lost", &opts.force, NULL},
    CLI_KEY_OPTION,
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl space",
    .usage = "create NAME [OPTION]... | list [pawl://ADDRESS:PORT] | show [NAME] | drop NAME [--force] | grow NAME --locks N",
    .about =
        "Spaces: named sets of locks. NAME is a name, local:NAME, or a path that begins with '/': a segment of shared memory on\n"
        "this machine, of this user alone. system:NAME is one that all users of the machine share; 'pawl doctor --fix' makes the\n"
        "place for these. Or NAME is pawl://ADDRESS:PORT/SPACE: a space of a service that 'pawl serve' runs there.\n"
        "A client that opens a local space that does not exist creates it with the defaults; 'create' sets other values.\n"
        "'list' lists those of this user in /dev/shm and those of system:; segments elsewhere are not listed. With an address it "
        "lists the service's.",
    .after =
        "A space that is created on a service has a coordinator, an id and granters of its own, at the service's address and "
        "port.\n"
        "It is there again when the service is restarted. Options that are marked 'service' are for these alone. 'drop' keeps the\n"
        "state beside its old place, under the name SPACE.state.old; the space that the service was started with stays. 'grow' "
        "keeps\n"
        "all holds if keys have names and the design is srvlock, netlock, or fisslock without lock servers. Otherwise hosts join\n"
        "anew, so while there are any, it needs --force. With etcd it is for the coordinator that leads the space.\n\n"
        "Exit status: 0 done, 1 there is no such space, or (create) there is one already, or (drop, grow) it is in use,\n"
        "2 wrong usage, 69 the space cannot be used.",
    .words_max = 2,
    ARGS_TABLE(table),
};

/* ---- create ---- */

static int parse_options(pawl_options *o)
{
    int status = opts.keys ? cli_keys(&usage, opts.keys, &o->keys) : 0;
    if (status)
        return status;
    if (opts.permissions) {
        char *end;
        unsigned long mode = strtoul(opts.permissions, &end, 8);
        if (*end || end == opts.permissions || mode > 0777 || (mode & 0600) != 0600)
            return args_complain(&usage,
                                 "--permissions must be octal and let the owner read and write, such as 0600 or 0660, not '%s'",
                                 opts.permissions);
        o->permissions = (uint32_t)mode;
    }
    if (opts.sessions > SLOTS_MAX || opts.holds > RECORDS_MAX)
        return args_complain(&usage, "a space has at most %d sessions of at most %d holds", SLOTS_MAX, RECORDS_MAX);
    if (opts.unit && (cli_bytes(opts.unit, strlen(opts.unit), &o->unit_bytes) || !o->unit_bytes))
        return args_complain(&usage, "--unit must be a number of bytes, such as 4096 or 64Ki, not '%s'", opts.unit);
    if (o->unit_bytes & (o->unit_bytes - 1))
        return args_complain(&usage, "--unit must be a power of two of bytes, and '%s' is %" PRIu64 "; 4Ki is 4096", opts.unit,
                             o->unit_bytes);
    if ((seen.capacity && !opts.capacity) || (seen.sessions && !opts.sessions) || (seen.holds && !opts.holds) ||
        (seen.units && !opts.units) || (seen.max_units && !opts.max_units))
        return args_complain(&usage, "--capacity, --sessions, --holds, --units and --max-units must be at least 1");
    if (opts.units > RANGE_UNITS_MAX || opts.max_units > RANGE_UNITS_MAX || (opts.max_units && opts.units > opts.max_units))
        return args_complain(&usage, "--units must not exceed --max-units, nor either of them 2^%d", RANGE_UNITS_BITS);
    o->range_units = opts.units;
    o->range_max = opts.max_units;
    o->design = opts.design;
    o->capacity = opts.capacity;
    o->sessions = (uint32_t)opts.sessions;
    o->holds = (uint32_t)opts.holds;
    return 0;
}

static int create_space(const char *place)
{
    pawl_options o = {.flags = PAWL_MUST_CREATE};
    pawl *p;
    int status = parse_options(&o);
    if (status)
        return status;
    int rc = pawl_open(place, &o, &p);
    if (rc == -EEXIST)
        return cli_say("space", EXIT_NO, "%s exists already; 'pawl space show' describes it", place);
    if (rc)
        return cli_fail("space", rc);
    rc = pawl_close(p);
    if (rc)
        return cli_fail("space", rc);
    if (opts.json)
        return show_space("space", place, true);
    char users[USERS_LEN];
    cli_place_users(place, users);
    printf("%s was made, and %s\n", place, users);
    return 0;
}

/* ---- list ---- */

/* Files of that user which are no spaces: processes on this machine that use a rack or a memory node may have them open. */
static const char *use_of(const char *name)
{
    return !strncmp(name, "net.", 4)    ? "the memory of a rack's host on this machine, which its processes share"
           : !strncmp(name, "node.", 5) ? "the memory of a memory node on this machine"
                                        : NULL;
}

static void list_one(struct json *j, const char *scheme, const char *name)
{
    char place[PLACE_LEN];
    struct observer o;
    struct session_counts c = {0};
    snprintf(place, sizeof place, "%s%s", scheme, name);
    int rc = observer_open(place, &o);
    if (rc == -ENOENT)
        return; /* dropped since the folder was read */
    bool usable = !rc && !count_sessions(&o, &c);
    const char *use = usable ? NULL : use_of(name), *fault = usable || use ? NULL : pawl_explain();
    if (j) {
        json_object(j, NULL);
        json_string(j, "space", place);
        json_string(j, "design", usable ? o.space.design->name : NULL);
        json_string(j, "keys", usable ? cli_keys_name(o.segment->header.keys) : NULL);
        json_u64(j, "capacity", usable ? o.segment->header.capacity : 0);
        json_u64(j, "sessions_live", c.live);
        json_u64(j, "sessions_lost", c.lost);
        json_string(j, "fault", fault);
        json_string(j, "use", use);
        json_end(j);
    } else if (usable) {
        printf("%-10s %-7s %12" PRIu64 " %9" PRIu32 " %9" PRIu32 "  %s\n", o.space.design->name,
               cli_keys_name(o.segment->header.keys), o.segment->header.capacity, c.live, c.lost, place);
    } else {
        printf("%-10s %-7s %12s %9s %9s  %s (%s)\n", use ? "-" : "unusable", "", "", "", "", place, use ? use : fault);
    }
    if (!rc)
        observer_close(&o);
}

/* Lists the segments of a folder whose names begin with the prefix, without it. */
static int list_folder(struct json *j, const char *folder, const char *prefix, const char *scheme)
{
    struct dirent **names = NULL;
    int count = scandir(folder, &names, NULL, alphasort);
    if (count < 0)
        return -errno;
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.' && !strncmp(names[i]->d_name, prefix, strlen(prefix)))
            list_one(j, scheme, names[i]->d_name + strlen(prefix));
        free(names[i]);
    }
    free(names);
    return 0;
}

static int list_spaces(void)
{
    char prefix[32];
    struct json j;
    snprintf(prefix, sizeof prefix, "pawl.%u.", (unsigned)geteuid());
    if (access(SEGMENT_DIR, R_OK | X_OK))
        return cli_say("space", EXIT_UNAVAILABLE, "cannot list " SEGMENT_DIR ": %s", strerror(errno));
    if (opts.json) {
        json_init(&j, stdout);
        json_array(&j, NULL);
    } else {
        printf("%-10s %-7s %12s %9s %9s  %s\n", "DESIGN", "KEYS", "CAPACITY", "LIVE", "LOST", "SPACE");
    }
    int rc = list_folder(opts.json ? &j : NULL, SEGMENT_DIR, prefix, "local:");
    if (!rc && !segment_check_system())
        rc = list_folder(opts.json ? &j : NULL, SEGMENT_SYSTEM_DIR, "", "system:");
    if (rc)
        cli_say("space", 0, "the list is not complete: %s", strerror(-rc));
    return (opts.json && json_finish(&j)) || rc ? EXIT_UNAVAILABLE : 0;
}

/* ---- show, drop ---- */

static int report_drop(const char *place, const char *path)
{
    if (unlink(path))
        return cli_say("space", EXIT_UNAVAILABLE, "cannot remove %s: %s", path, strerror(errno));
    if (!opts.json)
        return 0;
    struct json j;
    json_open(&j, stdout);
    json_string(&j, "space", place);
    json_string(&j, "dropped", path);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

/* A segment that is damaged, or left from before the machine restarted, cannot list its sessions; no session can use it either. */
static int drop_unusable(const char *place)
{
    static const char ours[] = SEGMENT_DIR "/pawl"; /* .USER.NAME, or a folder's and then NAME */
    char path[PLACE_LEN];
    int rc = segment_place(place, path, sizeof path);
    if (rc)
        return cli_fail("space", rc);
    /* Elsewhere it may be anything, and this is not rm. */
    if (strncmp(path, ours, strlen(ours)))
        return cli_say("space", EXIT_UNAVAILABLE,
                       "%s is not a pawl segment, and files elsewhere than in " SEGMENT_DIR " are left alone", path);
    if (!opts.force)
        return cli_say("space", EXIT_UNAVAILABLE, "%s is not usable; --force drops it", place);
    return report_drop(place, path);
}

/* All sessions, waiters too, are told at once. All are declared lost before any of their locks is released: else another session
 * would be granted a lock of a space that is about to go. */
static int condemn_session(void *ctx, const struct inspect_session *s)
{
    const struct observer *o = ctx;
    int rc;
    do
        rc = session_condemn(&o->locker.seat, s->slot, s->epoch);
    while (rc == -EAGAIN); /* it renewed its lease just now, which it does a few times a second */
    return rc == -ENOENT ? 0 : rc;
}

static int drop_in_use(const char *place, struct observer *o)
{
    int rc = inspect_sessions(&o->locker, condemn_session, o);
    return rc ? cli_fail("space", rc) : report_drop(place, o->segment->path);
}

static int drop_space(const char *place)
{
    struct observer o;
    struct session_counts c;
    int rc = observer_open(place, &o);
    if (rc == -PAWL_ESEGMENT)
        return drop_unusable(place);
    if (rc == -ENOENT)
        return cli_say("space", EXIT_NO, "there is no space %s", place);
    if (rc)
        return cli_fail("space", rc);
    rc = count_sessions(&o, &c);
    int status;
    if (rc)
        status = cli_fail("space", rc);
    else if (c.live && !opts.force)
        status = cli_say("space", EXIT_NO, "%s has %u live session%s; end them, or use --force, which loses them", place, c.live,
                         c.live == 1 ? "" : "s");
    else
        status = drop_in_use(place, &o);
    observer_close(&o);
    return status;
}

/* ---- on a service ---- */

static bool is_service(const char *place)
{
    return !strncmp(place, "pawl://", strlen("pawl://"));
}

static int check_for_service(struct spaces_ask *ask)
{
    enum pawl_keys keys = 0;
    int status = opts.keys ? cli_keys(&usage, opts.keys, &keys) : 0;
    if (status)
        return status;
    if (opts.unit || opts.units || opts.max_units || opts.permissions)
        return args_complain(&usage, "--unit, --units, --max-units and --permissions are for local spaces");
    uint64_t locks = opts.locks ? opts.locks : opts.capacity;
    if ((seen.locks && !opts.locks) || (seen.capacity && !opts.capacity) || (seen.hosts && !opts.hosts) ||
        (seen.sessions && !opts.sessions) || (seen.holds && !opts.holds))
        return args_complain(&usage, "--locks, --hosts, --sessions and --holds must be at least 1");
    if (locks > PACKET_LOCKS_MAX || opts.hosts > 4096 || opts.sessions > 4096 || opts.holds > 4096)
        return args_complain(&usage, "--locks must be at most 4G, and --hosts, --sessions and --holds at most 4096");
    if (opts.servers > RACK_SERVERS_MAX || opts.group > UINT64_C(1) << 20 || (opts.group > 1 && keys != PAWL_KEYS_DENSE))
        return args_complain(&usage, "--servers must be at most %d, and --group at most 1M and with --keys dense",
                             RACK_SERVERS_MAX);
    if (opts.design && strlen(opts.design) >= sizeof ask->design)
        return args_complain(&usage, "there is no design '%s'", opts.design);
    *ask = (struct spaces_ask){.verb = ask->verb,
                               .force = opts.force,
                               .locks = locks,
                               .lease_ns = opts.lease_ns,
                               .member_ns = opts.member_ns,
                               .keys = keys,
                               .hosts = (uint32_t)opts.hosts,
                               .sessions = (uint32_t)opts.sessions,
                               .holds = (uint32_t)opts.holds,
                               .servers = (uint32_t)opts.servers,
                               .group = (uint32_t)opts.group};
    snprintf(ask->design, sizeof ask->design, "%s", opts.design ? opts.design : "");
    return 0;
}

static int run_on_service(const char *verb, const char *place)
{
    static const struct {
        const char *name;
        enum spaces_verb verb;
    } verbs[] = {{"create", SPACES_CREATE}, {"list", SPACES_LIST}, {"drop", SPACES_DROP}, {"grow", SPACES_GROW}};
    struct spaces_ask ask = {.verb = 0};
    for (unsigned i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verb, verbs[i].name))
            ask.verb = verbs[i].verb;
    int status = check_for_service(&ask);
    if (!status && ask.verb == SPACES_GROW && !ask.locks)
        status = args_complain(&usage, "'grow' needs --locks N, the new number of locks");
    return status ? status : space_service(&usage, place, &ask, opts.json);
}

/* Of a service, or of a memory node, whose memory says what it is. */
static int show_far(const char *place)
{
    struct spaces_ask ask = {.verb = SPACES_LIST};
    int status = space_show(&usage, place, &ask, opts.json);
    return status == SPACE_ON_NODE ? show_space("space", place, opts.json) : status;
}

static int run_space(struct args_rest *rest)
{
    char place[PLACE_LEN];
    const char *verb = rest->count ? rest->words[0] : "";
    const char *name = rest->count > 1 ? rest->words[1] : NULL;
    bool change = !strcmp(verb, "create") || !strcmp(verb, "drop") || !strcmp(verb, "grow");
    if (!strcmp(verb, "list") && !name)
        return list_spaces();
    if (!name && change)
        return args_complain(&usage, "'%s' needs the name of a space", verb);
    int status = cli_place("space", name, place);
    if (status)
        return status;
    if (is_service(place) && (change || !strcmp(verb, "list")))
        return run_on_service(verb, place);
    if (!strcmp(verb, "list"))
        return args_complain(&usage, "'list' takes no name but that of a service: pawl://ADDRESS:PORT");
    if (!strcmp(verb, "show"))
        return is_service(place) ? show_far(place) : show_space("space", place, opts.json);
    if (change && (opts.locks || opts.hosts || opts.servers || opts.group || opts.lease_ns || opts.member_ns))
        return args_complain(&usage, "--locks, --hosts, --servers, --group and leases are for spaces of a service; see --capacity");
    if (!strcmp(verb, "create"))
        return create_space(place);
    if (!strcmp(verb, "drop"))
        return drop_space(place);
    if (!strcmp(verb, "grow"))
        return args_complain(&usage, "a segment of shared memory does not grow: 'grow' is for spaces of a service");
    return args_complain(&usage, "needs one of create, list, show, drop and grow, not '%s'", verb);
}

const struct command cmd_space = {&usage, run_space};
