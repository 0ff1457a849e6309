/* SPDX-License-Identifier: Apache-2.0 */
/* pawl policy: what NetLock's switch counts and does, and other policies while it runs. */
#include "cli/policy.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/daemon.h"
#include "cli/switch.h"
#include "lib/explain.h"
#include "wire/key_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SERVER_RATE 18000000u /* requests per second of the paper's servers (5) */

static struct {
    const char *at, *space, *alloc, *priorities;
    uint64_t tenant, rate, burst, server_rate, rack;
    uint32_t levels;
    bool json, tenant_seen, rate_seen;
} opts = {.at = "127.0.0.1:7071", .space = "default", .burst = 16, .server_rate = SERVER_RATE};

static const struct arg table[] = {
    {"at", 0, ARG_STRING, "ADDRESS:PORT", "address of the switch; default 127.0.0.1:7071", &opts.at, NULL},
    {"space", 0, ARG_STRING, "NAME", "name of the space; default 'default'", &opts.space, NULL},
    {"rack", 0, ARG_U64, "N", "netlock-switches: number of the switch, from 1 on", &opts.rack, NULL},
    {"tenant", 0, ARG_U64, "N", "tenant whose quota is set, 0 to 63", &opts.tenant, &opts.tenant_seen},
    {"rate", 0, ARG_U64, "N", "the tenant's quota, in requests per second; 0: none", &opts.rate, &opts.rate_seen},
    {"burst", 0, ARG_U64, "N", "requests above the rate that may come at once; default 16", &opts.burst, NULL},
    {"alloc", 0, ARG_STRING, "HOW", "which locks are in the switch: knapsack or random", &opts.alloc, NULL},
    {"priorities", 0, ARG_STRING, "on|off|N",
     "a waiting queue per priority, or one for all; N: the N highest of 8 in the switch, others at servers", &opts.priorities,
     NULL},
    {"server-rate", 0, ARG_U64, "N", "requests per second of one server, to compute how many servers are needed; default 18M",
     &opts.server_rate, NULL},
    CLI_KEY_OPTION,
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl policy",
    .usage = "[--at ADDRESS:PORT] [--space NAME] [--tenant N --rate N [--burst N]] [--alloc HOW] [--priorities on|off|N]",
    .about =
        "Shows the state and counters of the switch of a rack with the design netlock, and sets policies while it runs: quotas of\n"
        "tenants, priorities, and how locks are chosen for the switch. A backup has its own policies, which are set there.",
    .after =
        "Each setting is applied or refused as a whole. The times for which moves stop a lock are: on its way in, from the "
        "decision\n"
        "until the switch grants the first waiter, with the drain of the queue and without it (alone); on its way out, from the\n"
        "empty queue until the server has the lock.\n\n"
        "Examples:\n"
        "  pawl policy --space test\n"
        "  pawl policy --space test --tenant 3 --rate 10K\n"
        "  pawl policy --space test --priorities 2   # 0 and 1 wait in the switch, 2 to 7 at the locks' servers\n\n"
        "Exit status: 0 done, 1 refused, 2 wrong usage, 69 no switch answers.",
    ARGS_TABLE(table),
};

static struct policy_switch target;

static int failed(const char *what, int rc)
{
    if (rc == -ETIMEDOUT)
        return cli_say("policy", EXIT_UNAVAILABLE, "no switch of a space '%s' with the design netlock answers at %s", opts.space,
                       opts.at);
    if (rc == -EAGAIN)
        return cli_say("policy", EXIT_NO, "%s: the switch at %s is not the active switch, or has just started", what, opts.at);
    if (rc == -EOPNOTSUPP)
        return cli_say("policy", EXIT_NO, "%s: cannot be changed while this switch runs", what);
    if (rc == COORD_ADMIN_ONLY)
        return cli_say("policy", EXIT_NO, "%s: the switch at %s takes commands with the admin key only, which the key file has not",
                       what, opts.at);
    return cli_say("policy", EXIT_NO, "%s was refused: there is no such tenant, or a value is too large", what);
}

/* ---- printing ---- */

static void print(const struct netlock_status *s)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"term", s->term},
        {"slots", s->slots},
        {"locks", s->locks},
        {"pipes", s->pipes},
        {"pipe_slots_used", s->pipe_used},
        {"granted", s->granted},
        {"passed_on", s->passed_on},
        {"overflowed", s->overflowed},
        {"moved_in", s->moved_in},
        {"moved_out", s->moved_out},
        {"over_quota", s->over_quota},
        {"expired", s->expired},
        {"bad_packets", s->bad},
        {"stop_in_p99_ns", s->in_p99_ns},
        {"stop_in_alone_p99_ns", s->in_alone_p99_ns},
        {"stop_out_p99_ns", s->out_p99_ns},
        {"servers_needed", s->servers_needed},
    };
    struct json j;
    if (opts.json) {
        json_open(&j, stdout);
        json_bool(&j, "active", s->active);
        json_string(&j, "alloc", s->random ? "random" : "knapsack");
        json_bool(&j, "priorities", s->priorities);
        json_u64(&j, "switch_priorities", s->priorities);
    } else {
        printf("%s, alloc %s, priorities %s", s->active ? "active" : "not active", s->random ? "random" : "knapsack",
               s->priorities ? "on" : "off");
        if (s->priorities && s->priorities < PACKET_PRIORITIES)
            printf(", %" PRIu32 " of %u in the switch", s->priorities, PACKET_PRIORITIES);
        putchar('\n');
    }
    for (size_t i = 0; i < countof(rows); i++)
        if (opts.json)
            json_u64(&j, rows[i].name, rows[i].value);
        else
            printf("%-20s %16" PRIu64 "\n", rows[i].name, rows[i].value);
    policy_quotas(&target, opts.json ? &j : NULL);
    if (opts.json)
        json_finish(&j);
}

/* ---- what was asked for ---- */

bool cli_priorities(const char *word, uint32_t *out)
{
    bool digit = word[0] >= '1' && (unsigned)(word[0] - '0') <= PACKET_PRIORITIES && !word[1];
    *out = !strcmp(word, "on") ? PACKET_PRIORITIES : digit ? (uint32_t)(word[0] - '0') : 0;
    return *out || !strcmp(word, "off");
}

static int check(struct net_addr *at)
{
    int wrong = daemon_address(&usage, "at", opts.at, at);
    if (wrong)
        return wrong;
    if (!at->port)
        return args_complain(&usage, "--at: '%s' has no port", opts.at);
    if (opts.rack > RACKS_MAX)
        return args_complain(&usage, "--rack must be between 1 and %d", RACKS_MAX);
    if (opts.tenant_seen != opts.rate_seen)
        return args_complain(&usage, "--tenant and --rate go together");
    if (opts.tenant > UINT16_MAX || opts.burst > UINT32_MAX)
        return args_complain(&usage, "--tenant or --burst is too large");
    if (opts.alloc && strcmp(opts.alloc, "knapsack") && strcmp(opts.alloc, "random"))
        return args_complain(&usage, "--alloc is knapsack or random");
    if (opts.priorities && !cli_priorities(opts.priorities, &opts.levels))
        return args_complain(&usage, CLI_PRIORITIES_WRONG);
    return 0;
}

static int run_policy(struct args_rest *rest)
{
    struct net_addr at;
    struct netlock_status status = {0};
    struct seal_ring ring;
    int exit = check(&at);
    if (exit)
        return exit;
    if (key_file_find(NULL, &ring))
        return cli_say("policy", EXIT_UNAVAILABLE, "%s", explained());
    target = (struct policy_switch){.at = at, .space = opts.space, .rack = (uint32_t)opts.rack, .ring = ring};
    const struct {
        const char *what;
        bool wanted;
        struct netlock_command c;
    } commands[] = {
        {"the quota",
         opts.tenant_seen,
         {.kind = NETLOCK_COMMAND_QUOTA, .tenant = (uint32_t)opts.tenant, .rate = opts.rate, .burst = (uint32_t)opts.burst}},
        {"--alloc", opts.alloc, {.kind = NETLOCK_COMMAND_RANDOM, .rate = opts.alloc && !strcmp(opts.alloc, "random")}},
        {"--priorities", opts.priorities, {.kind = NETLOCK_COMMAND_PRIORITIES, .rate = opts.levels}},
    };
    for (size_t i = 0; i < countof(commands); i++) {
        int rc = commands[i].wanted ? policy_ask(&target, &commands[i].c, &status) : 0;
        if (rc)
            return failed(commands[i].what, rc);
    }
    const struct netlock_command show = {.kind = NETLOCK_COMMAND_STATUS, .rate = opts.server_rate};
    int rc = policy_ask(&target, &show, &status);
    if (rc && rc != -EAGAIN) /* a switch that is not active has counted, too */
        return failed("the status", rc);
    print(&status);
    return cli_flush(0);
}

const struct command cmd_policy = {&usage, run_policy};
