/* SPDX-License-Identifier: Apache-2.0 */
/* pawl lab: a rack on this machine. */
#include "cli/commands.h"
#include "cli/common.h"
#include "workbench/lab/run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *name, *shape, *wire;
    uint64_t hosts, racks, rack;
    bool json;
    struct lab_run run;
} opts = {.name = "lab",
          .shape = "one-armed",
          .wire = "udp",
          .hosts = 2,
          .racks = 1,
          .rack = 1,
          .run = {.design = "fisslock", .ns = 10 * NS_PER_S, .workers = 2}};

static const struct arg table[] = {
    {"name", 0, ARG_STRING, "NAME", "name of the lab; default 'lab'", &opts.name, NULL},
    {"hosts", 0, ARG_U64, "N", "up: hosts of each rack; default 2", &opts.hosts, NULL},
    {"racks", 0, ARG_U64, "N", "up: racks of the lab; default 1", &opts.racks, NULL},
    {"switch", 0, ARG_STRING, "SHAPE", "up: one-armed (the default) or in-path", &opts.shape, NULL},
    {"rack", 0, ARG_U64, "N", "exec, unplug, plug: which rack; default 1", &opts.rack, NULL},
    {"design", 0, ARG_STRING, "D",
     "run: fisslock (the default), fisslock-stay or netlock, whose switch is in the kernel, or srvlock; fisslock-racks: one space "
     "of all racks; word, shiftlock, shiftlock64, alock, citron: a memory node in the kernel",
     &opts.run.design, NULL},
    {"seconds", 0, ARG_DURATION, "S", "run: seconds with faults, after which all faults end; default 10", &opts.run.ns, NULL},
    {"workers", 0, ARG_U64, "N", "run: processes of each host; default 2", &opts.run.workers, NULL},
    {"loss", 0, ARG_FRACTION, "F", "run: fraction of the UDP packets to a host that are lost; default 0",
     &opts.run.loss_thousandths, NULL},
    {"duplicate", 0, ARG_FRACTION, "F", "run: fraction of them that are duplicated; default 0", &opts.run.duplicate_thousandths,
     NULL},
    {"late", 0, ARG_FRACTION, "F", "run: fraction of them that arrive after the next one; default 0", &opts.run.late_thousandths,
     NULL},
    {"wire", 0, ARG_STRING, "WIRE", "run: udp (the default), or afxdp: one process of each host goes past the network stack",
     &opts.wire, NULL},
    {"faults", 0, ARG_FLAG, NULL, "run: pull cables, kill processes, kill and restart the switch or memory node", &opts.run.faults,
     NULL},
    {"moves", 0, ARG_FLAG, NULL, "run: fisslock-racks: keep moving locks between racks", &opts.run.moves, NULL},
    {"forgetful", 0, ARG_FLAG, NULL, "run: wrong on purpose: fisslock's switch keeps losing its locks, and tells no host",
     &opts.run.forgetful, NULL},
    {"careless", 0, ARG_FLAG, NULL, "run: wrong on purpose: the first process takes another lock than it uses", &opts.run.careless,
     NULL},
    {"seed", 0, ARG_U64, "N", "run: seed of the faults; default random", &opts.run.seed, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl lab",
    .usage = "up [--hosts N] [--switch SHAPE] [--racks N] | status | run [OPTION]... | exec MEMBER -- COMMAND...\n"
             "       pawl lab unplug HOST | plug HOST | down",
    .about =
        "A rack on this machine: hosts and the switch are network namespaces, cables are pairs of veth. MEMBER is the number of a\n"
        "host, or 'switch'. Host h of rack r has the address 10.77.r.h, the switch 10.77.r.254.\n\n"
        "'run' starts processes on all hosts that lock and unlock, in one space per rack or one for all, and judges their holds: "
        "no\n"
        "two that exclude each other at once, tokens that rise, no process stuck. 'exec' runs a command in a member. 'unplug' "
        "pulls\n"
        "a host's cable, 'plug' puts it back. 'down' ends the lab's processes and removes all of the lab, also of one that was\n"
        "killed half-way; other namespaces are not touched.",
    .after =
        "Needs root and ip(8). Exit status: 0 done, 1 there is no such lab, or (up) there is one already, or (run) an invariant\n"
        "was violated or a process is stuck, 2 wrong usage, 69 not possible here; 'exec' passes on its command's.",
    .words_max = INT_MAX,
    ARGS_TABLE(table),
};

static int fail(int rc)
{
    int status = rc == -ENOENT || rc == -EEXIST ? EXIT_NO : rc == -EINVAL ? EXIT_USAGE : EXIT_UNAVAILABLE;
    return cli_say("lab", status, "%s", explained());
}

static int up(void)
{
    struct lab lab = {.racks = (unsigned)min_u64(opts.racks, UINT32_MAX), .hosts = (unsigned)min_u64(opts.hosts, UINT32_MAX)};
    if (strcmp(opts.shape, "one-armed") != 0 && strcmp(opts.shape, "in-path") != 0)
        return args_complain(&usage, "a switch is one-armed or in-path, not '%s'", opts.shape);
    lab.in_path = !strcmp(opts.shape, "in-path");
    snprintf(lab.name, sizeof lab.name, "%s", strlen(opts.name) > LAB_NAME_MAX ? "" : opts.name);
    int rc = lab_up(&lab);
    if (rc)
        return fail(rc);
    printf("lab '%s' is up: %u rack%s of %u host%s, switch %s\n", lab.name, lab.racks, lab.racks > 1 ? "s" : "", lab.hosts,
           lab.hosts > 1 ? "s" : "", opts.shape);
    return 0;
}

static int status(const struct lab *lab)
{
    struct json j;
    char path[LAB_PATH];
    if (!opts.json) {
        printf("lab '%s', %s: %u rack%s of %u hosts, switch %s, %u processes\n", lab->name, lab->complete ? "up" : "half made",
               lab->racks, lab->racks == 1 ? "" : "s", lab->hosts, lab->in_path ? "in-path" : "one-armed", lab_processes(lab));
        for (unsigned r = 1; r <= lab->racks; r++)
            for (unsigned h = LAB_SWITCH; h <= lab->hosts; h++) {
                uint32_t a = lab_address(r, h);
                lab_namespace(lab, r, h, path);
                printf("  %-40s %u.%u.%u.%u%s\n", path, a >> 24, a >> 16 & 0xff, a >> 8 & 0xff, a & 0xff,
                       access(path, F_OK) ? "  missing" : "");
            }
        return 0;
    }
    json_open(&j, stdout);
    json_string(&j, "name", lab->name);
    json_string(&j, "id", lab->id);
    json_bool(&j, "complete", lab->complete);
    json_u64(&j, "racks", lab->racks);
    json_u64(&j, "hosts", lab->hosts);
    json_string(&j, "switch", lab->in_path ? "in-path" : "one-armed");
    json_u64(&j, "processes", lab_processes(lab));
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}

/* "switch" or the number of a host of the chosen rack. */
static int member_of(const struct lab *lab, const char *text, unsigned *out)
{
    uint64_t n = 0;
    bool is_switch = !strcmp(text, "switch");
    if (!opts.rack || opts.rack > lab->racks)
        return args_complain(&usage, "lab '%s' has racks 1 to %u", lab->name, lab->racks);
    if (!is_switch && (args_u64(text, &n) || !n || n > lab->hosts))
        return args_complain(&usage, "a member is 'switch' or a host from 1 to %u, not '%s'", lab->hosts, text);
    *out = is_switch ? LAB_SWITCH : (unsigned)n;
    return 0;
}

static int execute(const struct lab *lab, const struct args_rest *rest)
{
    unsigned member = 0;
    if (rest->count < 3 || rest->split != 2)
        return args_complain(&usage, "exec needs a member, '--' and a command");
    int status = member_of(lab, rest->words[1], &member);
    if (status)
        return status;
    int rc = lab_enter(lab, (unsigned)opts.rack, member);
    if (rc)
        return fail(rc);
    rest->words[rest->count] = NULL; /* exec needs an end where the parser left an older word */
    execvp(rest->words[2], rest->words + 2);
    return cli_say("lab", errno == ENOENT ? 127 : 126, "%s: %s", rest->words[2], strerror(errno));
}

static int plug(const struct lab *lab, const struct args_rest *rest, bool in)
{
    unsigned member = 0;
    if (rest->count != 2)
        return args_complain(&usage, "unplug and plug need the number of a host");
    int status = member_of(lab, rest->words[1], &member);
    if (status)
        return status;
    if (member == LAB_SWITCH)
        return args_complain(&usage, "unplug and plug are for hosts, not for the switch");
    int rc = lab_plug(lab, (unsigned)opts.rack, member, in);
    return rc ? fail(rc) : 0;
}

/* ---- run ---- */

static void print_outcome(const struct lab *lab, const struct lab_outcome *o)
{
    printf("%s, seed %" PRIu64 ": %" PRIu64 " holds by %u processes on %u hosts of %u rack%s\n", opts.run.design, o->seed, o->holds,
           o->processes, lab->racks * lab->hosts, lab->racks, lab->racks > 1 ? "s" : "");
    printf("  %u cables pulled, %u processes killed, %u control processes killed, %u switch restarts, %u of them without locks\n",
           o->cables_pulled, o->processes_killed, o->controls_killed, o->restarts + o->losses, o->losses);
    if (o->divided)
        printf("  locks moved between racks %u times\n", o->moves);
    if (o->packets_lost || o->packets_doubled || o->packets_late)
        printf("  %" PRIu64 " packets lost, %" PRIu64 " duplicated, %" PRIu64 " late\n", o->packets_lost, o->packets_doubled,
               o->packets_late);
    printf("  %" PRIu64 " violations, %u stuck\n", o->violations, o->stuck);
}

static int json_outcome(const struct lab *lab, const struct lab_outcome *o)
{
    struct json j;
    json_open(&j, stdout);
    json_string(&j, "design", opts.run.design);
    json_u64(&j, "seed", o->seed);
    json_u64(&j, "racks", lab->racks);
    json_u64(&j, "holds", o->holds);
    json_u64(&j, "cables_pulled", o->cables_pulled);
    json_u64(&j, "processes_killed", o->processes_killed);
    json_u64(&j, "controls_killed", o->controls_killed);
    json_u64(&j, "switch_restarts", o->restarts);
    json_u64(&j, "switch_losses", o->losses);
    json_u64(&j, "moves", o->moves);
    json_u64(&j, "packets_lost", o->packets_lost);
    json_u64(&j, "packets_doubled", o->packets_doubled);
    json_u64(&j, "packets_late", o->packets_late);
    json_u64(&j, "violations", o->violations);
    json_u64(&j, "stuck", o->stuck);
    return json_finish(&j);
}

static int run(const struct lab *lab)
{
    struct lab_outcome o;
    opts.run.afxdp = !strcmp(opts.wire, "afxdp");
    if (!opts.run.afxdp && strcmp(opts.wire, "udp") != 0)
        return args_complain(&usage, "--wire is udp or afxdp, not '%s'", opts.wire);
    int rc = lab_run(lab, &opts.run, &o);
    if (rc)
        return fail(rc);
    if (!opts.json)
        print_outcome(lab, &o);
    else if (json_outcome(lab, &o))
        return EXIT_UNAVAILABLE;
    return o.violations || o.stuck ? EXIT_NO : 0;
}

static int run_lab(struct args_rest *rest)
{
    struct lab lab = {0};
    if (!rest->count)
        return args_complain(&usage, "needs one of up, status, run, exec, unplug, plug and down");
    const char *verb = rest->words[0];
    bool alone = !strcmp(verb, "up") || !strcmp(verb, "run") || !strcmp(verb, "down") || !strcmp(verb, "status");
    if (alone && rest->count > 1)
        return args_complain(&usage, "unexpected argument '%s'", rest->words[1]);
    if (!strcmp(verb, "up"))
        return up();
    if (!strcmp(verb, "down")) {
        int rc = lab_down(opts.name);
        return rc ? fail(rc) : 0;
    }
    if (!alone && strcmp(verb, "exec") != 0 && strcmp(verb, "plug") != 0 && strcmp(verb, "unplug") != 0)
        return args_complain(&usage, "needs one of up, status, run, exec, unplug, plug and down, not '%s'", verb);
    int rc = lab_find(opts.name, &lab);
    if (rc)
        return fail(rc);
    if (!strcmp(verb, "status"))
        return status(&lab);
    if (!strcmp(verb, "run"))
        return run(&lab);
    return !strcmp(verb, "exec") ? execute(&lab, rest) : plug(&lab, rest, !strcmp(verb, "plug"));
}

const struct command cmd_lab = {&usage, run_lab};
