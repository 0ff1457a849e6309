/* SPDX-License-Identifier: Apache-2.0 */
/* pawl serve: a rack's coordinator and its lock servers, or a memory node. */
#include "cli/commands.h"
#include "cli/daemon.h"
#include "cli/settings.h"
#include "node/etcd.h"
#include "node/memory_kernel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_LISTEN "127.0.0.1:7070"
#define DEFAULT_LEASE_NS (2 * NS_PER_S)
#define LEADER_LEASE_NS NS_PER_S /* a leader that dies is followed after it, and after a stall as long it steps down */
#define LEASE_MIN_NS (50 * NS_PER_MS)
#define DEFAULT_MEMBER_NS (60 * NS_PER_S)
#define LEASE_MAX_NS (3600 * NS_PER_S)
#define RETRY_NS (5 * NS_PER_MS) /* a round trip on one busy machine; lost packets are rarer than slow ones */
#define GROUP_MAX (UINT64_C(1) << 20)
#define LIFE_SHIFT 30 /* of world_birth: quarters of a second, of which 32 bits last until 2054 */

static struct {
    const char *listen, *join, *space, *design, *keys, *state, *store, *tune, *devices, *mode, *pins, *node;
    uint64_t locks, group, lease_ns, member_ns, hosts, sessions, holds, servers, own, spin_ns, racks;
    bool fresh, restore, force, member_seen, json, servers_seen, own_seen, backup, racks_seen, locks_seen, sessions_seen, remove,
        local;
} opts = {.listen = DEFAULT_LISTEN,
          .space = "default",
          .design = "srvlock",
          .keys = "named",
          .locks = 1000000,
          .group = 1,
          .lease_ns = DEFAULT_LEASE_NS,
          .member_ns = DEFAULT_MEMBER_NS,
          .hosts = 64,
          .sessions = 64,
          .holds = 256,
          .servers = 1};

static const struct arg serve_table[] = {
    {"listen", 0, ARG_STRING, "ADDRESS:PORT", "where to listen; default " DEFAULT_LISTEN, &opts.listen, NULL},
    {"space", 0, ARG_STRING, "NAME", "name of the space; default 'default'", &opts.space, NULL},
    {"design", 0, ARG_STRING, "D", "design of the space; default srvlock", &opts.design, NULL},
    {"keys", 0, ARG_STRING, "KIND", "named, sparse (any 64-bit number) or dense (0 to N-1); default named", &opts.keys, NULL},
    {"locks", 0, ARG_U64, "N", "locks of the space, one for each key; default 1M; designs with ranges: 256", &opts.locks,
     &opts.locks_seen},
    {"group", 0, ARG_U64, "G", "dense keys that share a lock: 0 to N*G-1; default 1", &opts.group, NULL},
    {"state", 0, ARG_STRING, "DIR",
     "folder for the space's state: names, rules, counters; default $XDG_STATE_HOME/pawl or ~/.local/state/pawl", &opts.state,
     NULL},
    {"store", 0, ARG_STRING, "etcd://A:2379,B:2379/PREFIX",
     "the state is in etcd 3.4 or later instead: several coordinators with the same --store stand by, and one leads", &opts.store,
     NULL},
    {"lease", 0, ARG_DURATION, "S",
     "lock lease: how long a host keeps its locks that does not reach their lock server or switch; default 2", &opts.lease_ns,
     NULL},
    {"membership-lease", 0, ARG_DURATION, "S",
     "how long hosts go on without a coordinator; default 60, or --lease if that is longer", &opts.member_ns, &opts.member_seen},
    {"hosts", 0, ARG_U64, "N", "hosts that can take part at once; default 64", &opts.hosts, NULL},
    {"sessions", 0, ARG_U64, "N", "open sessions of one host; default 64; on a memory node: of the space; default 256",
     &opts.sessions, &opts.sessions_seen},
    {"holds", 0, ARG_U64, "N", "locks that one session can hold or wait for at once; default 256", &opts.holds, NULL},
    {"servers", 0, ARG_U64, "N",
     "lock servers of the space, if its design has any; default 1; fisslock: default none, see pawl switch --room", &opts.servers,
     &opts.servers_seen},
    {"own", 0, ARG_U64, "N", "servers that run in this process; others join with --join; default all, with --store none", &opts.own,
     &opts.own_seen},
    {"racks", 0, ARG_U64, "N",
     "fisslock-racks, netlock-switches: switches among which the locks are divided; default 2; see pawl rules", &opts.racks,
     &opts.racks_seen},
    {"backup", 0, ARG_FLAG, NULL, "the switch has a backup: a second 'pawl switch' joins, and takes over if the first fails",
     &opts.backup, NULL},
    {"join", 0, ARG_STRING, "ADDRESS:PORT,...", "run a lock server for the rack of that coordinator, or of those, and nothing else",
     &opts.join, NULL},
    {"spin", 0, ARG_DURATION, "S", "poll for packets this long before sleeping; default 0", &opts.spin_ns, NULL},
    {"fresh", 0, ARG_FLAG, NULL,
     "begin a new space: no host holds anything from before, and no name counts; with --join: a server that grants at once",
     &opts.fresh, NULL},
    {"force", 0, ARG_FLAG, NULL,
     "with --join: take the place of a silent lock server, though hosts may still use it and hold its locks", &opts.force, NULL},
    {"restore", 0, ARG_FLAG, NULL,
     "go on with a state that is damaged, or an older copy: what is missing is lost, and all hosts must join anew", &opts.restore,
     NULL},
    {"dev", 0, ARG_STRING, "IF[,IF...]", "memory node: execute verbs in the kernel, on packets that arrive by these interfaces",
     &opts.devices, NULL},
    {"mode", 0, ARG_STRING, "MODE", "dev: native or generic; default native where the driver can, but generic on veth", &opts.mode,
     NULL},
    {"pin", 0, ARG_STRING, "DIR", "dev: a folder in a BPF file system: the memory outlives this process", &opts.pins, NULL},
    {"local", 0, ARG_FLAG, NULL, "memory node: clients on this machine use the memory directly; then all clients poll", &opts.local,
     NULL},
    {"node", 0, ARG_STRING, "I/N", "memory node: this is node I of N, which have a part of the locks each; default 1/1", &opts.node,
     NULL},
    {"remove", 0, ARG_FLAG, NULL, "dev, with --pin: remove the pinned memory at the end", &opts.remove, NULL},
    SETTINGS_TUNE_OPTION(&opts.tune),
    CLI_JSON_OPTION(&opts.json),
};

static const struct args serve_usage = {
    .command = "pawl serve",
    .usage = "[--space NAME] [--design D] [--locks N] [--listen ADDRESS:PORT] [--fresh|--restore] [OPTION]...\n"
             "       pawl serve --join ADDRESS:PORT [--space NAME] [--listen ADDRESS:PORT] [--fresh]",
    .about =
        "Runs the coordinator of a rack, and lock servers if the design has any. The coordinator keeps the list of hosts, "
        "gives them\n"
        "numbers and notices when they fail. For one-sided designs (word, shiftlock, shiftlock64, alock, citron) it runs a memory "
        "node:\n"
        "the lock memory, on which clients execute verbs by datagrams. Clients then open pawl://ADDRESS:PORT/NAME.",
    .after =
        "A space's state is a file, DIR/NAME.state. The first start of a space needs --fresh. Later ones go on with the file; a "
        "file that\n"
        "is missing, damaged or another space's is an error, since clients may hold locks by what was in it. --fresh keeps it as\n"
        "NAME.state.old, and is refused while members of the old space send heartbeats to this address.\n\n"
        "With --store the state is in etcd, under PREFIX/NAME/ (PREFIX: pawl unless set). Start one coordinator with --fresh, then "
        "any\n"
        "number without it, all with the same --store and settings. One leads; the others stand by, and take over when it has "
        "been\n"
        "silent for a second. Clients, lock servers and switches know all of them: pawl://A,B,C:7070/NAME, --join A,B,C:7070.\n\n"
        "Hosts that have joined need the coordinator to name a new key; otherwise they go on without it for the membership lease. "
        "Then they\n"
        "lose their locks. A host that is silent is waited for as long before another lock server is given the place of one that "
        "is "
        "lost, or\n"
        "other settings count. Unless --fresh, a lock server that starts grants nothing for one --lease: a host may hold something "
        "from\n"
        "before. There is no authentication: listen only where all senders can be trusted.\n\n"
        "With --group G there are G times as many dense keys as locks, so that a switch has room for all locks. Use it for keys "
        "that\n"
        "are requested rarely and evenly. Keys with the same remainder by N exclude each other, in one session, too.\n\n"
        "A named or sparse space has room for --locks keys at once. A key that no host uses gives its lock to another key when "
        "locks are\n"
        "scarce (srvlock, fisslock). A space can be restarted with a larger --locks, not with a smaller one.\n\n"
        "With --dev a memory node executes verbs by an XDP program, before the network stack sees the packet. With --pin, too, "
        "the\n"
        "memory stays when this process ends. After kill -9 the program goes on with the clients that are connected: none is\n"
        "fenced, and none can connect, until the next start takes over. That needs root, or CAP_BPF and CAP_NET_ADMIN.\n\n"
        "A space can have several memory nodes, with --locks locks each: start each with its --node, and otherwise the same\n"
        "options. Clients name all of them in their order: pawl://A,B:7070/NAME.\n\n"
        "Examples:\n"
        "  pawl serve --space test --locks 1M --fresh\n"
        "  pawl serve --space test --locks 1M\n"
        "  pawl serve --space test --design srvlock --servers 2 --own 1 --fresh\n"
        "  pawl serve --join 127.0.0.1:7070 --space test --listen 127.0.0.1:7080\n"
        "  pawl serve --space test --listen 10.0.0.1:7070 --store etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/pawl\n"
        "  pawl serve --space test --design fisslock-racks --racks 4 --fresh\n"
        "  pawl serve --space test --design shiftlock --lease 10\n"
        "  pawl serve --space test --design shiftlock --listen 10.0.0.1:7070 --dev eth0 --pin /sys/fs/bpf/test\n\n"
        "Runs until SIGINT or SIGTERM. Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not start.",
    ARGS_TABLE(serve_table),
};

/* The path of the space's state; makes the folder. 0, or the exit status after a complaint. */
static int state_path(char out[STORE_PATH_LEN])
{
    char folder[STORE_PATH_LEN - COORD_NAME_LEN - 16];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len = opts.state        ? snprintf(folder, sizeof folder, "%s", opts.state)
              : state && *state ? snprintf(folder, sizeof folder, "%s/pawl", state)
              : home && *home   ? snprintf(folder, sizeof folder, "%s/.local/state/pawl", home)
                                : -1;
    if (len <= 0 || (size_t)len >= sizeof folder)
        return cli_say("serve", EXIT_USAGE,
                       "there is no folder for the state of the space: set --state DIR, XDG_STATE_HOME or HOME");
    if (strchr(opts.space, '/'))
        return cli_say("serve", EXIT_USAGE, "the name of the space must not have a slash");
    for (char *slash = strchr(folder + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(folder, 0700) && errno != EEXIST)
            return cli_say("serve", EXIT_UNAVAILABLE, "%s: %s (--state DIR names another folder)", folder, strerror(errno));
        if (!slash)
            break;
        *slash = '/';
    }
    snprintf(out, STORE_PATH_LEN, "%s/%s.state", folder, opts.space);
    return 0;
}

/* ---- the run ---- */

static struct net_addr listening; /* of the coordinator */

static void say_ready(void)
{
    daemon_ready("coordinator", opts.space, listening, opts.json);
}

static struct station_params station_params(void)
{
    return (struct station_params){
        .member = {.space = opts.space, .deadline = daemon_deadline(), .patient = true, .stop = &cli_signal},
        .fresh = opts.fresh,
        .spin_ns = opts.spin_ns,
    };
}

static int run_server(struct net_addr at, const struct coord_list *coordinators)
{
    struct station_params p = station_params();
    p.member.at = at;
    p.member.coordinators = *coordinators;
    p.member.force = opts.force;
    if (opts.force)
        fprintf(
            stderr,
            "pawl serve: --force: a host that still uses the old lock server may hold a lock that this one grants to another\n");
    return daemon_run_station("serve", &p, opts.json);
}

/* With several coordinators: to the operator's log. */
static void say_role(const char *what)
{
    fprintf(stderr, "pawl serve: the coordinator of '%s' %s\n", opts.space, what);
    fflush(stderr);
}

/* Runs the coordinator, which is open, with its servers. */
static int run(struct coordinating *c, bool servers)
{
    const struct station_params like = station_params();
    uint64_t own = opts.own_seen ? opts.own : opts.store ? 0 : opts.servers;
    listening = c->udp.at;
    int rc = coordinating_serve(c, servers ? (unsigned)own : 0, &like, &cli_signal, say_ready);
    coordinating_close(c);
    return rc ? cli_say("serve", EXIT_UNAVAILABLE, "%s", explained()) : 0;
}

static int coordinate_with_etcd(const struct coord_params *p, const struct state_params *state, struct net_addr at, bool servers)
{
    struct coordinating_etcd e = {.place = opts.store, .lease_ns = LEADER_LEASE_NS, .report = say_role};
    struct coordinating c = {.stop = &cli_signal, .etcd = &e};
    int rc = etcd_open(opts.store, &e.etcd, &e.prefix);
    if (rc)
        return cli_say("serve", rc == -EINVAL ? EXIT_USAGE : EXIT_UNAVAILABLE, "%s", explained());
    rc = coordinating_open(&c, p, state, at);
    int status = rc ? cli_say("serve", EXIT_UNAVAILABLE, "%s", explained()) : run(&c, servers);
    etcd_close(e.etcd);
    return status;
}

static int coordinate(const struct design *d, const struct knobs *knobs, enum pawl_keys keys, struct net_addr at)
{
    char path[STORE_PATH_LEN];
    struct coordinating c = {.stop = &cli_signal};
    int status = opts.store ? 0 : state_path(path);
    if (status)
        return status;
    bool servers = d->packet->server_packet && (!d->packet->spills || opts.servers_seen);
    const struct coord_params p = {
        .design = d,
        .knobs = knobs,
        .space = opts.space,
        .locks = opts.locks,
        .lease_ns = opts.lease_ns,
        .member_ns = opts.member_seen ? opts.member_ns : max_u64(opts.member_ns, opts.lease_ns),
        .retry_ns = RETRY_NS,
        .machines = (uint16_t)opts.hosts,
        .sessions = (uint16_t)opts.sessions,
        .requests = (uint16_t)opts.holds,
        .servers = (uint16_t)(servers ? opts.servers : 0),
        .racks = (uint16_t)opts.racks,
        .backup = opts.backup,
        .fresh = opts.fresh,
        .keys = keys,
        .group = (uint32_t)opts.group,
    };
    const struct state_params state = {
        .disk = &disk_real,
        .path = path,
        .how = opts.fresh     ? STORE_FRESH
               : opts.restore ? STORE_RESTORE
                              : STORE_CONTINUE,
        .id = {world_random(&world_real), world_random(&world_real)},
        .life = (uint32_t)(world_birth(&world_real) >> LIFE_SHIFT),
    };
    if (opts.store)
        return coordinate_with_etcd(&p, &state, at, servers);
    int rc = coordinating_open(&c, &p, &state, at);
    return rc ? cli_say("serve", EXIT_UNAVAILABLE, "%s", explained()) : run(&c, servers);
}

/* ---- a memory node ---- */

#define NODE_SESSIONS 256
#define NODE_LOCKS_RANGES 256 /* files, say: each has an extent */

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    va_list args;
    if (opts.json)
        return; /* standard output is one JSON value */
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static enum plane_mode plane_mode(void)
{
    return !opts.mode ? PLANE_ANY : !strcmp(opts.mode, "native") ? PLANE_NATIVE : PLANE_GENERIC;
}

/* "2/3": the second of three. */
static bool parse_node(const char *text, uint8_t *node, uint8_t *nodes)
{
    char *end;
    unsigned long i = strtoul(text, &end, 10);
    if (end == text || *end != '/' || !i)
        return false;
    const char *rest = end + 1;
    unsigned long n = strtoul(rest, &end, 10);
    if (end == rest || *end || n > COORD_LIST_MAX || i > n)
        return false;
    *node = (uint8_t)(i - 1);
    *nodes = (uint8_t)n;
    return true;
}

static int serve_memory(const struct design *d, const struct knobs *knobs, enum pawl_keys keys, struct net_addr at)
{
    bool ranges = d->features & DESIGN_RANGES;
    struct memory_node m;
    struct memory_kernel kernel = {
        .devices = opts.devices, .mode = plane_mode(), .pins = opts.pins, .remove = opts.remove, .report = report};
    const struct memory_home home = memory_kernel_home(&kernel);
    uint8_t node = 0, nodes = 0;
    if (opts.node && !parse_node(opts.node, &node, &nodes))
        return cli_say("serve", EXIT_USAGE, "--node is I/N, node I of N up to %u, not '%s'", COORD_LIST_MAX, opts.node);
    if (nodes > 1 && opts.local)
        return cli_say("serve", EXIT_USAGE, "--local is for spaces with one memory node");
    const struct memory_node_params p = {
        .layout = {.design = d,
                   .node = node,
                   .nodes = nodes,
                   .knobs = knobs,
                   .keys = keys,
                   .capacity = ranges && !opts.locks_seen ? NODE_LOCKS_RANGES : opts.locks,
                   .sessions = (uint32_t)(opts.sessions_seen ? opts.sessions : NODE_SESSIONS),
                   .holds = (uint32_t)opts.holds,
                   .lease_ns = opts.lease_ns,
                   .check_ns = opts.lease_ns / 4},
        .home = opts.devices ? &home : NULL,
        .local = opts.local,
        .space = opts.space,
        .at = at,
        .fresh = opts.fresh,
        .spin_ns = opts.spin_ns,
    };
    if (strlen(opts.space) >= VERBS_NAME_LEN)
        return cli_say("serve", EXIT_USAGE, "the name of the space has more than %u bytes", VERBS_NAME_LEN - 1);
    int rc = memory_node_open(&m, &p);
    if (rc)
        return cli_say("serve", EXIT_UNAVAILABLE, "%s", explained());
    daemon_ready("memory node", opts.space, m.udp.at, opts.json);
    memory_node_run(&m, &cli_signal);
    memory_node_close(&m);
    return 0;
}

/* ---- what was asked for ---- */

/* Options of a node in the kernel. */
static int check_kernel(const struct args *usage, bool memory)
{
    if (opts.devices && !memory)
        return args_complain(usage, "--dev is for designs on a memory node, and '%s' has none; see 'pawl switch --dev'",
                             opts.design);
    if (opts.node && !memory)
        return args_complain(usage, "--node is for designs on memory nodes, and '%s' runs on none", opts.design);
    if (opts.local && (opts.devices || !memory))
        return args_complain(usage, "--local is for memory nodes in a process: atomics of the kernel's program are not the CPU's");
    if (!opts.devices && (opts.mode || opts.pins || opts.remove))
        return args_complain(usage, "--mode, --pin and --remove go with --dev");
    if (opts.mode && strcmp(opts.mode, "native") != 0 && strcmp(opts.mode, "generic") != 0)
        return args_complain(usage, "--mode is native or generic, not '%s'", opts.mode);
    if (opts.remove && !opts.pins)
        return args_complain(usage, "--remove goes with --pin");
    return 0;
}

/* Options that a memory node has no use for. */
static int check_memory(const struct args *usage)
{
    if (opts.servers_seen || opts.own_seen || opts.backup || opts.racks_seen || opts.group > 1 || opts.store)
        return args_complain(
            usage, "--servers, --own, --backup, --racks, --group and --store are not for the design '%s': it runs on a memory node",
            opts.design);
    return 0;
}

static int check_serve(const struct args *usage, const struct design **design)
{
    *design = design_find(opts.design);
    if (!*design || (*design)->kind == DESIGN_BUSTED)
        return args_complain(usage, "there is no design '%s'; 'pawl doctor --matrix' lists the designs", opts.design);
    if (!((*design)->substrates & (DESIGN_ON_UDP | DESIGN_ON_NODE)))
        return args_complain(usage, "the design '%s' does not run between machines", opts.design);
    if ((*design)->kind == DESIGN_BASELINE)
        return args_complain(usage, "the design '%s' is a baseline, which 'pawl bench' and 'pawl sim' compare others with",
                             opts.design);
    if ((*design)->substrates & DESIGN_ON_NODE && check_memory(usage))
        return EXIT_USAGE;
    if (check_kernel(usage, (*design)->substrates & DESIGN_ON_NODE_XDP))
        return EXIT_USAGE;
    const struct packet_design *packet = (*design)->packet;
    if (opts.backup && (!packet || !packet->steward_packet || packet->divides))
        return args_complain(usage, "--backup: the switch of the design '%s' has no backup", opts.design);
    if (opts.racks_seen && (!packet || !packet_divides(packet) || !opts.racks || opts.racks > RACKS_MAX))
        return args_complain(usage, "--racks is for the designs fisslock-racks and netlock-switches, and must be between 1 and %d",
                             RACKS_MAX);
    if (packet && packet->divides && !opts.servers_seen)
        opts.servers = opts.racks_seen ? opts.racks : RACKS_DEFAULT; /* each of the switches has its own */
    if (opts.store && opts.state)
        return args_complain(usage, "--state names a folder and --store an etcd: the state is in one of them");
    if (opts.store && strchr(opts.space, '/'))
        return args_complain(usage, "the name of the space must not have a slash");
    if (opts.fresh && opts.restore)
        return args_complain(usage, "--fresh begins with nothing, and --restore goes on with what is there: not both");
    if (opts.lease_ns < LEASE_MIN_NS || opts.lease_ns > LEASE_MAX_NS)
        return args_complain(usage, "--lease must be between 50 ms and an hour");
    if (opts.member_seen && (opts.member_ns < opts.lease_ns || opts.member_ns > LEASE_MAX_NS))
        return args_complain(usage, "--membership-lease must be between --lease and an hour");
    if (opts.force)
        return args_complain(usage, "--force goes with --join");
    if (!opts.hosts || opts.hosts > 4096 || !opts.sessions || opts.sessions > 4096 || !opts.holds || opts.holds > 4096)
        return args_complain(usage, "--hosts, --sessions and --holds must be between 1 and 4096");
    if (!opts.locks || opts.locks > UINT64_C(1) << 32)
        return args_complain(usage, "--locks must be between 1 and 4G");
    if (!opts.group || opts.group > GROUP_MAX || (opts.group > 1 && strcmp(opts.keys, cli_keys_name(PAWL_KEYS_DENSE)) != 0))
        return args_complain(usage, "--group must be between 1 and 1M, and goes with --keys dense");
    if (!opts.servers || opts.servers > RACK_SERVERS_MAX || (opts.own_seen && opts.own > opts.servers))
        return args_complain(usage, "--servers must be between 1 and %d, and --own no more than that", RACK_SERVERS_MAX);
    return 0;
}

static int run_serve(struct args_rest *rest)
{
    struct net_addr at;
    struct coord_list coordinators;
    const struct design *design = NULL;
    struct knobs knobs;
    enum pawl_keys keys = PAWL_KEYS_DENSE;
    int status = daemon_address(&serve_usage, "listen", opts.listen, &at);
    if (!status && opts.join)
        status = daemon_addresses(&serve_usage, "join", opts.join, &coordinators);
    else if (!status)
        status = check_serve(&serve_usage, &design);
    if (!status && !opts.join)
        status = cli_keys(&serve_usage, opts.keys, &keys);
    if (!status && !opts.join)
        status = settings_tune(&serve_usage, opts.tune, &design, 1, &knobs);
    if (status)
        return status;
    daemon_catch_signals();
    if (opts.join)
        return run_server(at, &coordinators);
    assert(design);
    if (design->substrates & DESIGN_ON_NODE)
        return serve_memory(design, &knobs, keys, at);
    return coordinate(design, &knobs, keys, at);
}

const struct command cmd_serve = {&serve_usage, run_serve};
