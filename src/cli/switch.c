/* SPDX-License-Identifier: Apache-2.0 */
/* pawl switch: the switch of a rack, in software or in the kernel. */
#include "cli/switch.h"
#include "cli/commands.h"
#include "cli/daemon.h"
#include "node/gate.h"
#include "node/kernel.h"

#include <net/if.h>
#include <stdarg.h>
#include <string.h>

#define DEFAULT_LISTEN "127.0.0.1:7071"
#define ROOM_MAX (UINT64_C(1) << 30)

static struct {
    struct daemon_options daemon;
    const char *listen, *join, *space, *alloc, *priorities, *devices, *mode, *design, *pins, *loop;
    uint64_t spin_ns, room, rack, locks, host_packets;
    bool fresh, force, soft, json, room_seen, rack_seen, remove;
} opts = {.listen = DEFAULT_LISTEN, .space = "default"};

static const struct arg table[] = {
    {"dev", 0, ARG_STRING, "IF[,IF...]", "in the kernel, on these interfaces: one is a one-armed switch, several an in-path one",
     &opts.devices, NULL},
    {"soft", 0, ARG_FLAG, NULL, "in software, over UDP", &opts.soft, NULL},
    {"join", 0, ARG_STRING, "ADDRESS:PORT", "the rack's coordinator (pawl serve)", &opts.join, NULL},
    {"space", 0, ARG_STRING, "NAME", "name of the space; default 'default'", &opts.space, NULL},
    {"listen", 0, ARG_STRING, "ADDRESS:PORT", "where lock packets are sent to; default " DEFAULT_LISTEN, &opts.listen, NULL},
    {"rack", 0, ARG_U64, "N",
     "number of the rack, from 1 on: waits for its place while another switch has that (fisslock, fisslock-racks); default the "
     "one that had this address, else one without a switch",
     &opts.rack, &opts.rack_seen},
    {"room", 0, ARG_U64, "N", "soft, fisslock: room for this many locks; the space's lock servers decide the others; default all",
     &opts.room, &opts.room_seen},
    {"alloc", 0, ARG_STRING, "HOW",
     "netlock: which locks are in the switch if not all fit: knapsack, those requested most, or random; default knapsack",
     &opts.alloc, NULL},
    {"priorities", 0, ARG_STRING, "on|off|N",
     "netlock: a waiting queue per priority, or one for all; N: the N highest of 8 in the switch, others at servers; default off",
     &opts.priorities, NULL},
    {"host-packets", 0, ARG_U64, "N",
     "soft: packets that one host may send a second: more are dropped, and counted; default 0: any number", &opts.host_packets,
     NULL},
    {"spin", 0, ARG_DURATION, "S", "soft: poll for packets this long before sleeping; default 0", &opts.spin_ns, NULL},
    {"mode", 0, ARG_STRING, "MODE", "dev: native or generic; default native where the driver can, but generic on veth", &opts.mode,
     NULL},
    {"design", 0, ARG_STRING, "D", "dev: fail unless the space has this design; default any", &opts.design, NULL},
    {"locks", 0, ARG_U64, "N", "dev: fail unless the space has this many locks; default any", &opts.locks, NULL},
    {"pin", 0, ARG_STRING, "DIR", "dev: a folder in a BPF file system: the locks outlive this process", &opts.pins, NULL},
    {"fresh", 0, ARG_FLAG, NULL, "dev: no host holds anything from before: all locks are free at once, pinned or not", &opts.fresh,
     NULL},
    {"force", 0, ARG_FLAG, NULL, "take the place of a silent switch, though hosts may still use it and hold its locks", &opts.force,
     NULL},
    {"loop", 0, ARG_STRING, "OUT,IN", "dev, in-path: both ends of a veth by which doubled packets come back", &opts.loop, NULL},
    {"remove", 0, ARG_FLAG, NULL, "dev, with --pin: remove the pinned locks at the end", &opts.remove, NULL},
    DAEMON_OPTIONS(&opts.daemon),
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl switch",
    .usage = "--dev IF[,IF...] --join ADDRESS:PORT --listen ADDRESS:PORT [OPTION]...\n"
             "       pawl switch --soft --join ADDRESS:PORT [--listen ADDRESS:PORT] [OPTION]...",
    .about =
        "Runs the switch of a rack with the program of the space's design. Every lock packet passes through it. In the kernel it\n"
        "is an XDP program, which decides before the network stack sees the packet; everything else passes untouched.",
    .after =
        "With --pin, the locks stay as they are between one end and the next start. After kill -9 the program goes on by itself,\n"
        "and the next start takes over without losing a packet. A program in the kernel needs root, or CAP_BPF and "
        "CAP_NET_ADMIN.\n\n"
        "A failed switch can be replaced by one at another address, a lease after it was last heard of (fisslock, "
        "fisslock-racks),\nwhen no host uses the old one any more. --force does not wait for that. One that was started with "
        "--rack before "
        "takes over\nwithin a lease, and clients keep their holds.\n\n"
        "A file of --config has the words of these options, as for 'pawl serve'. SIGHUP reads it again.\n\n"
        "Runs until SIGINT or SIGTERM, which detach it. Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not start.",
    .has_file = true,
    ARGS_TABLE(table),
};

/* ---- options ---- */

static int check_policy(struct switch_policy *out)
{
    out->alloc_given = opts.alloc;
    out->alloc_random = opts.alloc && !strcmp(opts.alloc, "random");
    out->levels_given = opts.priorities;
    if (opts.alloc && !out->alloc_random && strcmp(opts.alloc, "knapsack") != 0)
        return args_complain(&usage, "--alloc is knapsack or random");
    if (opts.priorities && !cli_priorities(opts.priorities, &out->levels))
        return args_complain(&usage, CLI_PRIORITIES_WRONG);
    return 0;
}

static int check_numbers(void)
{
    if (opts.room_seen && !opts.soft)
        return args_complain(&usage, "--room is for --soft: in the kernel there is room for all locks");
    if (opts.room_seen && (!opts.room || opts.room > ROOM_MAX))
        return args_complain(&usage, "--room must be between 1 and 1G");
    if (opts.host_packets && !opts.soft)
        return args_complain(&usage, "--host-packets is for --soft: the program in the kernel counts no packets of hosts");
    if (opts.rack_seen && (!opts.rack || opts.rack > RACKS_MAX))
        return args_complain(&usage, "--rack must be between 1 and %d", RACKS_MAX);
    return daemon_host_packets(&usage, opts.host_packets);
}

/* Before a coordinator is asked for anything. */
static int check_interfaces(const char *names)
{
    char name[IFNAMSIZ];
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (!*name || !if_nametoindex(name))
            return args_complain(&usage, "this machine has no interface '%s' ('ip link' lists them)", name);
    }
    return 0;
}

static int check_devices(struct kernel_params *out, char loop[2 * IFNAMSIZ])
{
    int status = check_interfaces(opts.devices);
    if (status)
        return status;
    if (opts.mode && strcmp(opts.mode, "native") != 0 && strcmp(opts.mode, "generic") != 0)
        return args_complain(&usage, "--mode is native or generic, not '%s'", opts.mode);
    if (!opts.loop && strchr(opts.devices, ','))
        return args_complain(&usage, "a switch with several ports needs --loop: doubled packets come back by it");
    out->mode = !opts.mode ? PLANE_ANY : !strcmp(opts.mode, "native") ? PLANE_NATIVE : PLANE_GENERIC;
    if (!opts.loop)
        return 0;
    snprintf(loop, 2 * IFNAMSIZ, "%s", opts.loop);
    out->loop_out = loop;
    char *comma = strchr(loop, ',');
    if (!comma)
        return args_complain(&usage, "--loop is OUT,IN: both ends of a veth");
    *comma = 0;
    out->loop_in = comma + 1;
    return 0;
}

/* ---- the run ---- */

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static int run_in_kernel(const struct station_params *station)
{
    char loop[2 * IFNAMSIZ];
    struct kernel_params p = {.station = *station,
                              .devices = opts.devices,
                              .pins = opts.pins,
                              .design = opts.design,
                              .locks = opts.locks,
                              .remove = opts.remove,
                              .ready = daemon_runs,
                              .report = report};
    int status = check_devices(&p, loop);
    if (status)
        return status;
    return daemon_status("switch", kernel_switch_run(&p));
}

static int run_switch(struct args_rest *rest)
{
    struct station_params p = {.member = {.is_switch = true, .patient = true, .stop = &cli_signal}};
    if (opts.soft == !!opts.devices)
        return args_complain(&usage, "either --dev, for a switch in the kernel, or --soft");
    if (!opts.join)
        return args_complain(&usage, "--join ADDRESS:PORT must name the rack's coordinator");
    int status = daemon_address(&usage, "listen", opts.listen, &p.member.at);
    if (!status)
        status = daemon_addresses(&usage, "join", opts.join, &p.member.coordinators);
    if (!status)
        status = check_policy(&p.policy);
    if (!status)
        status = check_numbers();
    if (status)
        return status;
    status = daemon_keys(&usage, &p.member.ring);
    if (status)
        return status;
    p.member.space = opts.space;
    p.member.rack = (unsigned)opts.rack;
    p.member.force = opts.force;
    p.member.deadline = daemon_deadline();
    p.switch_locks = opts.room;
    p.fresh = opts.fresh;
    p.spin_ns = opts.spin_ns;
    p.desk = &station_desk;
    p.host_packets = opts.host_packets;
    p.gate = opts.soft ? &gate_in_kernel : NULL;
    status = daemon_begin(&usage, &opts.daemon);
    if (!status)
        status = daemon_checked(&opts.daemon);
    if (status != DAEMON_RUN)
        return status;
    if (opts.force)
        log_event(LOG_LEVEL_WARNING, "place taken by force", LOG_TEXT("space", opts.space),
                  LOG_TEXT("why", "a host that still uses the old switch may hold a lock that this one grants to another"));
    status = opts.soft ? daemon_run_station("switch", &p, opts.json) : run_in_kernel(&p);
    daemon_end();
    return status;
}

const struct command cmd_switch = {&usage, run_switch};
