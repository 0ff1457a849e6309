/* SPDX-License-Identifier: Apache-2.0 */
/* pawl rules: which of a space's switches has which locks, and another division while all is running. */
#include "cli/commands.h"
#include "cli/common.h"
#include "client/net.h"
#include "client/net_where.h"
#include "cluster/join.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define ASK_NS (3 * NS_PER_S)
#define ANEW_MAX 100u /* members that join meanwhile are quicker */
#define AGAIN_NS (50 * NS_PER_MS)

static struct {
    const char *space;
    struct arg_range shards;
    uint64_t to, wait_ns;
    bool shards_seen, to_seen, json;
} opts = {.wait_ns = 30 * NS_PER_S};

static const struct arg table[] = {
    {"space", 0, ARG_STRING, "URI", "pawl://ADDRESS:PORT/SPACE; default $PAWL_SPACE", &opts.space, NULL},
    {"shards", 0, ARG_RANGE, "A:B", "move shards A to B-1, of 64, to another rack", &opts.shards, &opts.shards_seen},
    {"to", 0, ARG_U64, "RACK", "the rack that gets them, from 1 on", &opts.to, &opts.to_seen},
    {"wait", 0, ARG_DURATION, "S", "how long to wait until all members use the new rules; default 30", &opts.wait_ns, NULL},
    CLI_KEY_OPTION,
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl rules",
    .usage = "[--space pawl://ADDRESS:PORT/SPACE] [--shards A:B --to RACK] [--wait S] [--json]",
    .about =
        "Shows how the locks of a space are divided among its racks, and moves some of them from one rack's switch to another's\n"
        "while clients go on (design fisslock-racks). Each lock is in one of 64 shards, by a hash, and each shard belongs to one "
        "rack.",
    .after = "No session loses a lock. The racks concerned pause until all hosts have reported what they hold there; the others do "
             "not.\n"
             "Shards of a rack whose switch failed can be moved, too, which takes a lease or two. The coordinator writes the\n"
             "rules to its disk before it sends them.\n\n"
             "Examples:\n"
             "  pawl rules --space pawl://127.0.0.1:7070/test\n"
             "  pawl rules --space pawl://127.0.0.1:7070/test --shards 0:32 --to 2\n\n"
             "Exit status: 0 done, 1 refused or not complete, 2 wrong usage, 69 no coordinator answers.",
    ARGS_TABLE(table),
};

static int ask(struct net_where *w, struct coord_ruled *out)
{
    struct coord_packet p;
    coord_make(&p, COORD_RULES, w->space, NULL, world_random(&world_real) | 1);
    p.code = opts.shards_seen;
    p.head.index = opts.shards.from;
    p.head.generation = (uint32_t)opts.shards.to;
    p.role = (uint32_t)opts.to - 1;
    for (unsigned i = 0;; i++) {
        uint64_t end = world_now(&world_real) + ASK_NS;
        seal_prove(&w->ring, &p, sizeof p, &p.term);
        int rc = ask_leader(&w->coordinators, 0, w->self, &p, sizeof p, COORD_RULED, end, out, sizeof *out);
        if (rc || out->packet.code != COORD_ANEW || i == ANEW_MAX)
            return rc;
        p.stamp = out->packet.stamp;
        p.head.nonce = world_random(&world_real) | 1;
    }
}

/* ---- printing ---- */

/* "0:2,5:6": shards of one rack. */
static void put_shards(char *out, size_t room, const struct rack_rules *r, unsigned rack)
{
    size_t used = 0;
    *out = 0;
    for (unsigned s = 0; s < RACK_SHARDS; s++) {
        unsigned end = s;
        while (end < RACK_SHARDS && r->owner[end] == rack)
            end++;
        if (end == s)
            continue;
        used += (size_t)snprintf(out + used, room - used, "%s%u:%u", used ? "," : "", s, end);
        s = end;
    }
}

static void print_rack(struct json *j, const struct coord_ruled *r, unsigned i)
{
    char shards[RACK_SHARDS * 8], at[NET_ADDR_TEXT] = "-";
    bool current = r->rack[i].version == r->rules.version;
    put_shards(shards, sizeof shards, &r->rules, i);
    if (net_addr_known(r->rack[i].at))
        net_addr_print(r->rack[i].at, at);
    if (!opts.json) {
        printf("rack %u at %-21s life %" PRIu32 "%s; shards %s\n", i + 1, at, r->rack[i].life,
               !net_addr_known(r->rack[i].at) ? ", has no switch"
               : current                      ? ""
                                              : ", does not go by these rules yet",
               *shards ? shards : "none");
        return;
    }
    json_object(j, NULL);
    json_u64(j, "rack", i + 1);
    json_string(j, "at", net_addr_known(r->rack[i].at) ? at : NULL);
    json_u64(j, "life", r->rack[i].life);
    json_bool(j, "current", current);
    json_decimal(j, "silent_seconds", r->rack[i].silent_ms, 3);
    json_string(j, "shards", shards);
    json_end(j);
}

static void print(const struct coord_ruled *r, bool complete)
{
    struct json j;
    if (opts.json) {
        json_open(&j, stdout);
        json_u64(&j, "version", r->rules.version);
        json_bool(&j, "complete", complete);
        json_array(&j, "racks");
    } else {
        printf("rules %" PRIu32 "%s\n", r->rules.version, complete ? "" : ", not yet used by all");
    }
    for (unsigned i = 0; i < r->racks && i < RACKS_MAX; i++)
        print_rack(&j, r, i);
    if (opts.json) {
        json_end(&j);
        json_finish(&j);
    }
}

/* ---- what was asked for ---- */

static int check(struct net_where *w)
{
    char place[PLACE_LEN];
    if (opts.shards_seen != opts.to_seen)
        return args_complain(&usage, "--shards and --to go together");
    if (opts.shards_seen && (opts.shards.to > RACK_SHARDS || !opts.to || opts.to > RACKS_MAX))
        return args_complain(&usage, "shards must be between 0 and %d, and racks between 1 and %d", RACK_SHARDS - 1, RACKS_MAX);
    int status = cli_place("rules", opts.space, place);
    if (status)
        return status;
    if (strncmp(place, NET_SCHEME, strlen(NET_SCHEME)) != 0)
        return args_complain(&usage, "--space is pawl://ADDRESS:PORT/SPACE: only such spaces have racks");
    int rc = net_where_parse(place + strlen(NET_SCHEME), w);
    return rc ? cli_fail("rules", rc) : 0;
}

static int run_rules(struct args_rest *rest)
{
    struct net_where w = {0};
    struct coord_ruled r;
    int status = check(&w);
    if (status)
        return status;
    int rc;
    for (uint64_t end = world_now(&world_real) + opts.wait_ns;;) {
        rc = ask(&w, &r);
        bool again = !rc && (r.packet.code == -EINPROGRESS || r.packet.code == -EBUSY || r.packet.code == -EAGAIN);
        if (!again || world_now(&world_real) >= end)
            break;
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    }
    char address[COORD_LIST_TEXT];
    coord_list_print(&w.coordinators, address);
    status = cli_shut("rules", rc, address);
    if (status)
        return status;
    if (rc)
        return cli_say("rules", EXIT_UNAVAILABLE, "no coordinator of a space '%s' answers", w.space);
    if (!r.racks)
        return cli_say("rules", EXIT_NO, "the locks of the space '%s' are not divided among racks", w.space);
    if (r.packet.code == -EINVAL)
        return cli_say("rules", EXIT_NO, "there are no such shards, or no such rack: it has %" PRIu32, r.racks);
    if (r.packet.code == -EACCES)
        return cli_say("rules", EXIT_NO,
                       "the coordinator takes rules from machines of the rack only: run it there, or on the coordinator's machine");
    if (r.packet.code == -EOPNOTSUPP)
        return cli_say("rules", EXIT_NO, "the design of the space '%s' divides its locks for good", w.space);
    if (r.packet.code == -EBUSY)
        return cli_say("rules", EXIT_NO, "the change before is not complete: a rack that loses shards has not heard of it yet");
    if (r.packet.code == -EAGAIN)
        return cli_say("rules", EXIT_NO,
                       "not yet: that rack has no switch, a host has no lease there, or the coordinator has just started");
    print(&r, !r.packet.code);
    return cli_flush(r.packet.code ? EXIT_NO : 0);
}

const struct command cmd_rules = {&usage, run_rules};
