/* SPDX-License-Identifier: Apache-2.0 */
/* pawl serve: a rack's coordinator and its lock servers; pawl switch: its switch, in software or in the kernel. */
#include "cli/commands.h"
#include "cli/switch.h"
#include "node/node.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_LISTEN "127.0.0.1:7070"
#define DEFAULT_LEASE_NS (2 * NS_PER_S)
#define LEASE_MIN_NS (50 * NS_PER_MS)
#define LEASE_MAX_NS (3600 * NS_PER_S)
#define RETRY_NS (5 * NS_PER_MS) /* a round trip on one busy machine; lost packets are rarer than slow ones */
#define JOIN_NS (30 * NS_PER_S)
#define LOOK_MS 100
#define ROOM_MAX (UINT64_C(1) << 30)
#define GROUP_MAX (UINT64_C(1) << 20)
#define OWN_PORT 10   /* lock servers listen at the coordinator's port and this and up, so that hosts find them after a restart */
#define LIFE_SHIFT 30 /* of world_birth: quarters of a second, of which 32 bits last until 2054 */

static struct {
    const char *listen, *join, *space, *design, *keys, *state, *alloc, *priorities;
    uint64_t locks, group, lease_ns, hosts, sessions, holds, servers, own, spin_ns, room, racks, rack;
    bool fresh, soft, json, servers_seen, own_seen, room_seen, backup, racks_seen, rack_seen;
    struct switch_options xdp;
} opts = {.listen = DEFAULT_LISTEN,
          .space = "default",
          .design = "srvlock",
          .keys = "named",
          .locks = 1000000,
          .group = 1,
          .lease_ns = DEFAULT_LEASE_NS,
          .hosts = 64,
          .sessions = 64,
          .holds = 256,
          .servers = 1};

static const struct arg serve_table[] = {
    {"listen", 0, ARG_STRING, "ADDRESS:PORT", "where to listen; default " DEFAULT_LISTEN, &opts.listen, NULL},
    {"space", 0, ARG_STRING, "NAME", "of the space; default 'default'", &opts.space, NULL},
    {"design", 0, ARG_STRING, "D", "of the space; default srvlock", &opts.design, NULL},
    {"keys", 0, ARG_STRING, "KIND", "named, sparse (any 64-bit number) or dense (0 to N-1); default named", &opts.keys, NULL},
    {"locks", 0, ARG_U64, "N", "that the space has, for as many keys; default 1M", &opts.locks, NULL},
    {"group", 0, ARG_U64, "G", "dense keys that share a lock: 0 to N*G-1; default 1", &opts.group, NULL},
    {"state", 0, ARG_STRING, "DIR",
     "where keys that are not dense, and the rules of racks, are kept; default $XDG_STATE_HOME/pawl or ~/.local/state/pawl",
     &opts.state, NULL},
    {"lease", 0, ARG_DURATION, "S", "for which a silent host keeps what it holds; default 2", &opts.lease_ns, NULL},
    {"hosts", 0, ARG_U64, "N", "that can take part at once; default 64", &opts.hosts, NULL},
    {"sessions", 0, ARG_U64, "N", "of one host at once; default 64", &opts.sessions, NULL},
    {"holds", 0, ARG_U64, "N", "locks that one session can hold or wait for at once; default 256", &opts.holds, NULL},
    {"servers", 0, ARG_U64, "N",
     "lock servers of the space, if its design has any; default 1; fisslock: default none, see pawl switch --room", &opts.servers,
     &opts.servers_seen},
    {"own", 0, ARG_U64, "N", "of them run here, the others join; default all", &opts.own, &opts.own_seen},
    {"racks", 0, ARG_U64, "N",
     "fisslock-racks, netlock-switches: switches among which the locks are divided; default 2; see pawl rules", &opts.racks,
     &opts.racks_seen},
    {"backup", 0, ARG_FLAG, NULL, "the switch has a backup: a second 'pawl switch' joins, and takes over if the first is gone",
     &opts.backup, NULL},
    {"join", 0, ARG_STRING, "ADDRESS:PORT", "be a lock server of the rack with that coordinator, and nothing else", &opts.join,
     NULL},
    {"spin", 0, ARG_DURATION, "S", "look for packets for so long before sleeping; default 0", &opts.spin_ns, NULL},
    {"fresh", 0, ARG_FLAG, NULL, "nobody can hold anything from before: do not wait for a lease", &opts.fresh, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args serve_usage = {
    .command = "pawl serve",
    .usage = "[--space NAME] [--design D] [--locks N] [--listen ADDRESS:PORT] [OPTION]...\n"
             "       pawl serve --join ADDRESS:PORT [--space NAME] [--listen ADDRESS:PORT] [--fresh]",
    .about =
        "Runs the coordinator of a rack: it knows the space, gives hosts their numbers and notices when they are gone; and lock\n"
        "servers, if the design has any. Clients then open pawl://ADDRESS:PORT/NAME.",
    .after =
        "Unless --fresh, nothing is granted for one lease: a host may hold something from before. There is no authentication:\n"
        "listen where only friends can send packets.\n\n"
        "With --group G there are G times as many dense keys as locks. It is for keys that are all asked for alike, and seldom: "
        "then\n"
        "a switch has room for all of their locks. Keys that have the same remainder by N exclude each other, in one session, "
        "too.\n\n"
        "Which lock a name or a sparse number has is written to DIR/NAME.keys, and never changes: a coordinator that starts anew\n"
        "needs that file. It goes with --keys and --locks. In the same way DIR/NAME.rules says which rack has which locks.\n\n"
        "Examples:\n"
        "  pawl serve --space test --locks 1M\n"
        "  pawl serve --space test --design srvlock --servers 2 --own 1\n"
        "  pawl serve --join 127.0.0.1:7070 --space test --listen 127.0.0.1:7080\n"
        "  pawl serve --space test --design fisslock-racks --racks 4\n\n"
        "Runs until SIGINT or SIGTERM. Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not start.",
    .table = serve_table,
    .count = countof(serve_table),
};

static const struct arg switch_table[] = {
    {"dev", 0, ARG_STRING, "IF[,IF...]", "in the kernel, on these interfaces: one is a one-armed switch, several an in-path one",
     &opts.xdp.devices, NULL},
    {"soft", 0, ARG_FLAG, NULL, "in software, over UDP", &opts.soft, NULL},
    {"join", 0, ARG_STRING, "ADDRESS:PORT", "of the rack's coordinator (pawl serve)", &opts.join, NULL},
    {"space", 0, ARG_STRING, "NAME", "of the space; default 'default'", &opts.space, NULL},
    {"listen", 0, ARG_STRING, "ADDRESS:PORT", "where lock packets come to; default " DEFAULT_LISTEN " with port 7071", &opts.listen,
     NULL},
    {"rack", 0, ARG_U64, "N",
     "fisslock-racks, and soft netlock-switches: which rack's, from 1 on; default the one that had this address, else one that "
     "has none",
     &opts.rack, &opts.rack_seen},
    {"room", 0, ARG_U64, "N", "soft, fisslock: has room for so many locks; the space's lock servers decide the others; default all",
     &opts.room, &opts.room_seen},
    {"alloc", 0, ARG_STRING, "HOW",
     "netlock: which locks are in the switch, if not all fit: knapsack, those that are asked for most, or random; default knapsack",
     &opts.alloc, NULL},
    {"priorities", 0, ARG_STRING, "on|off|N",
     "netlock: a waiting queue per priority, or one for all; N: the N highest of 8 in the switch, others at servers; default off",
     &opts.priorities, NULL},
    {"spin", 0, ARG_DURATION, "S", "soft: look for packets for so long before sleeping; default 0", &opts.spin_ns, NULL},
    {"mode", 0, ARG_STRING, "MODE", "dev: native or generic; default native where the driver can, but generic on veth",
     &opts.xdp.mode, NULL},
    {"design", 0, ARG_STRING, "D", "dev: only if the space has this design; default whatever it has", &opts.xdp.design, NULL},
    {"locks", 0, ARG_U64, "N", "dev: only if it has so many locks; default however many", &opts.xdp.locks, NULL},
    {"pin", 0, ARG_STRING, "DIR", "dev: a folder in a BPF file system: the locks outlive this process", &opts.xdp.pins, NULL},
    {"fresh", 0, ARG_FLAG, NULL, "dev: nobody holds anything from before: all locks are free, pinned or not, at once", &opts.fresh,
     NULL},
    {"loop", 0, ARG_STRING, "OUT,IN", "dev, in-path: both ends of a veth by which doubled packets come back to us", &opts.xdp.loop,
     NULL},
    {"remove", 0, ARG_FLAG, NULL, "dev, with --pin: when it ends, forget the locks, too", &opts.xdp.remove, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args switch_usage = {
    .command = "pawl switch",
    .usage = "--dev IF[,IF...] --join ADDRESS:PORT --listen ADDRESS:PORT [OPTION]...\n"
             "       pawl switch --soft --join ADDRESS:PORT [--listen ADDRESS:PORT] [OPTION]...",
    .about =
        "Runs the switch of a rack, with the program of the space's design: every lock packet passes through it. In the kernel it\n"
        "is an XDP program, which decides before the network stack sees the packet; everything else passes untouched.",
    .after =
        "With --pin, the locks stay as they are between one end and the next start; after kill -9 the program goes on by itself,\n"
        "and the next start takes over without losing a packet. A program in the kernel needs root, or CAP_BPF and "
        "CAP_NET_ADMIN.\n\n"
        "A switch that is gone can be replaced by one at another address, a lease after it was last heard of (fisslock, "
        "fisslock-racks).\n\n"
        "Runs until SIGINT or SIGTERM, which detach it. Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not start.",
    .table = switch_table,
    .count = countof(switch_table),
};

/* ---- signals ---- */

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = number;
}

static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- stations ---- */

static void *run_station(void *arg)
{
    station_run(arg);
    return NULL;
}

static int open_station(const char *command, struct station *s, struct net_addr at, struct net_addr coordinator, bool is_switch)
{
    struct station_params p = {.at = at,
                               .coordinator = coordinator,
                               .space = opts.space,
                               .is_switch = is_switch,
                               .knobs = is_switch ? &opts.xdp.knobs : NULL,
                               .rack = (unsigned)opts.rack,
                               .switch_locks = opts.room,
                               .fresh = opts.fresh,
                               .spin_ns = opts.spin_ns,
                               .stop = &stopped};
    uint64_t patience = world_now(&world_real) + JOIN_NS;
    int rc;
    do { /* one that answers says when it will be; a signal may come meanwhile */
        p.deadline = world_now(&world_real) + NS_PER_S;
        rc = station_open(s, &p);
        p.at = s->join.at; /* what was asked may be answered later: of another it would be said that it takes another place */
        p.nonce = s->join.nonce;
    } while (!stopped && (rc == -EAGAIN || (rc == -ETIMEDOUT && world_now(&world_real) < patience)));
    if (!rc)
        return 0;
    const char *why = rc == -ETIMEDOUT ? "the coordinator does not answer"
                      : rc == -ENOSPC  ? "the rack has all its lock servers"
                      : rc == -EAGAIN
                          ? "the rack's lock servers are not there, it waits for a lease, or for hosts to leave another switch"
                      : rc == -EBUSY  ? "another switch has that place, and was heard of less than a lease ago"
                      : rc == -EINVAL ? "the space has fewer racks"
                      : rc == -ENOENT ? "the coordinator has no such space"
                      : rc == -PAWL_ELIMIT
                          ? "--room is less than the space has, and there are no lock servers for the others: pawl serve --servers"
                      : rc == -EOPNOTSUPP || rc == -PAWL_ENOTSUP ? "the space's design has no such part"
                                                                 : strerror(-rc);
    return cli_say(command, EXIT_UNAVAILABLE, "%s", why);
}

static void say_ready(const char *what, struct net_addr at)
{
    char text[NET_ADDR_TEXT];
    net_addr_print(at, text);
    if (opts.json) {
        struct json j;
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_string(&j, "role", what);
        json_string(&j, "space", opts.space);
        json_string(&j, "at", text);
        json_end(&j);
        json_finish(&j);
        return;
    }
    printf("%s of space '%s' at %s\n", what, opts.space, text);
    fflush(stdout);
}

/* A lock server or a switch, alone. */
static int run_alone(const char *command, struct net_addr at, struct net_addr coordinator, bool is_switch)
{
    struct station *s = calloc(1, sizeof *s);
    if (!s)
        return cli_say(command, EXIT_UNAVAILABLE, "out of memory");
    int status = open_station(command, s, at, coordinator, is_switch);
    if (!status && (opts.alloc || opts.priorities) &&
        strncmp(s->welcome.design, CLI_ALLOC_DESIGN, sizeof CLI_ALLOC_DESIGN - 1) != 0) {
        status = cli_say(command, EXIT_UNAVAILABLE, CLI_ALLOC_OTHER, s->welcome.design);
        station_close(s);
    } else if (!status) {
        say_ready(is_switch ? "switch" : "lock server", s->udp.at);
        station_run(s);
        station_close(s);
    }
    free(s);
    return status;
}

/* ---- the coordinator ---- */

static void *run_coordinator(void *arg)
{
    coordinating_run(arg);
    return NULL;
}

static int run_servers(struct coordinating *c, unsigned own)
{
    struct station *stations = calloc(own ? own : 1, sizeof *stations);
    pthread_t threads[RACK_SERVERS_MAX];
    unsigned running = 0;
    int status = 0;
    if (!stations) {
        stopped = SIGTERM;
        return cli_say("serve", EXIT_UNAVAILABLE, "out of memory");
    }
    struct net_addr at = c->udp.at;
    for (; running < own && !status; running++) {
        struct udp probe;
        at.port = (uint16_t)(c->udp.at.port + OWN_PORT + running);
        if (c->udp.at.port > UINT16_MAX - OWN_PORT - RACK_SERVERS_MAX || udp_open(&probe, at))
            at.port = 0; /* somebody else is there */
        else
            udp_close(&probe);
        status = open_station("serve", &stations[running], at, c->udp.at, false);
        if (!status && pthread_create(&threads[running], NULL, run_station, &stations[running]))
            status = cli_say("serve", EXIT_UNAVAILABLE, "cannot start a thread");
        if (status)
            break;
    }
    if (!status) {
        say_ready("coordinator", c->udp.at);
        while (!stopped) /* a signal may come between the look and the sleep */
            poll(NULL, 0, LOOK_MS);
    }
    stopped = stopped ? stopped : SIGTERM;
    for (unsigned i = 0; i < running; i++) {
        pthread_join(threads[i], NULL);
        station_close(&stations[i]);
    }
    free(stations);
    return status;
}

/* Where the space's files are, but for how their names end; the folder is made. 0, or the exit status after a complaint. */
static int state_path(char out[JOURNAL_PATH_LEN])
{
    char folder[JOURNAL_PATH_LEN - COORD_NAME_LEN - 8];
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len = opts.state        ? snprintf(folder, sizeof folder, "%s", opts.state)
              : state && *state ? snprintf(folder, sizeof folder, "%s/pawl", state)
              : home && *home   ? snprintf(folder, sizeof folder, "%s/.local/state/pawl", home)
                                : -1;
    if (len <= 0 || (size_t)len >= sizeof folder)
        return cli_say("serve", EXIT_USAGE, "where shall keys and rules be kept? --state DIR says");
    if (strchr(opts.space, '/'))
        return cli_say("serve", EXIT_USAGE, "the name of the space has a slash");
    for (char *slash = strchr(folder + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(folder, 0700) && errno != EEXIST)
            return cli_say("serve", EXIT_UNAVAILABLE, "%s: %s; --state DIR names another", folder, strerror(errno));
        if (!slash)
            break;
        *slash = '/';
    }
    snprintf(out, JOURNAL_PATH_LEN, "%s/%s", folder, opts.space);
    return 0;
}

static int coordinate(const struct design *d, enum pawl_keys keys, struct net_addr at)
{
    char path[JOURNAL_PATH_LEN], journal[JOURNAL_PATH_LEN + 8], rules[JOURNAL_PATH_LEN + 8];
    struct coordinating c = {.stop = &stopped};
    pthread_t thread;
    assert(d->packet);
    bool divided = d->packet->switch_rules, named = keys != PAWL_KEYS_DENSE;
    int status = named || divided ? state_path(path) : 0;
    if (status)
        return status;
    snprintf(journal, sizeof journal, "%s.keys", named ? path : "");
    snprintf(rules, sizeof rules, "%s.rules", divided ? path : "");
    bool servers = d->packet->server_packet && (!d->packet->spills || opts.servers_seen);
    const struct coord_params p = {
        .design = d,
        .space = opts.space,
        .locks = opts.locks,
        .lease_ns = opts.lease_ns,
        .retry_ns = RETRY_NS,
        .machines = (uint16_t)opts.hosts,
        .sessions = (uint16_t)opts.sessions,
        .requests = (uint16_t)opts.holds,
        .servers = (uint16_t)(servers ? opts.servers : 0),
        .racks = (uint16_t)opts.racks,
        .backup = opts.backup,
        .life = (uint32_t)(world_birth(&world_real) >> LIFE_SHIFT),
        .fresh = opts.fresh,
        .keys = keys,
        .group = (uint32_t)opts.group,
        .journal = named ? journal : NULL,
        .rules = divided ? rules : NULL,
    };
    const char *why;
    int rc = coordinating_open(&c, &p, at, &why);
    if (rc && (named || divided) && why)
        return cli_say("serve", EXIT_UNAVAILABLE, "%s: %s.*", why, path);
    if (rc)
        return cli_say("serve", EXIT_UNAVAILABLE, "%s", why ? why : strerror(-rc));
    unsigned own = servers ? (unsigned)(opts.own_seen ? opts.own : opts.servers) : 0;
    if (pthread_create(&thread, NULL, run_coordinator, &c)) {
        coordinating_close(&c);
        return cli_say("serve", EXIT_UNAVAILABLE, "cannot start a thread");
    }
    status = run_servers(&c, own);
    pthread_join(thread, NULL);
    coordinating_close(&c);
    return status;
}

/* ---- what was asked for ---- */

static int check_keys(const struct args *usage, enum pawl_keys *out)
{
    for (*out = PAWL_KEYS_NAMED; *out <= PAWL_KEYS_DENSE; ++*out)
        if (!strcmp(opts.keys, cli_keys_name(*out)))
            return 0;
    return args_complain(usage, "--keys is named, sparse or dense, not '%s'", opts.keys);
}

static int check_serve(const struct args *usage, const struct design **design)
{
    *design = design_find(opts.design);
    if (!*design || (*design)->kind == DESIGN_BUSTED)
        return args_complain(usage, "there is no design '%s'; 'pawl doctor --matrix' has those there are", opts.design);
    if (!((*design)->substrates & DESIGN_ON_UDP))
        return args_complain(usage, "the design '%s' does not run over UDP", opts.design);
    const struct packet_design *packet = (*design)->packet;
    if (opts.backup && (!packet || !packet->steward_packet || packet->divides))
        return args_complain(usage, "--backup: the design '%s' has no backup of a switch", opts.design);
    if (opts.racks_seen && (!packet || !packet_divides(packet) || !opts.racks || opts.racks > RACKS_MAX))
        return args_complain(usage, "--racks is for the designs fisslock-racks and netlock-switches, and from 1 to %d", RACKS_MAX);
    if (packet && packet->divides && !opts.servers_seen)
        opts.servers = opts.racks_seen ? opts.racks : RACKS_DEFAULT; /* each of the switches has its own */
    if (opts.lease_ns < LEASE_MIN_NS || opts.lease_ns > LEASE_MAX_NS)
        return args_complain(usage, "--lease is from 50 ms to an hour");
    if (!opts.hosts || opts.hosts > 4096 || !opts.sessions || opts.sessions > 4096 || !opts.holds || opts.holds > 4096)
        return args_complain(usage, "--hosts, --sessions and --holds are from 1 to 4096");
    if (!opts.locks || opts.locks > UINT64_C(1) << 32)
        return args_complain(usage, "--locks is from 1 to 4G");
    if (!opts.group || opts.group > GROUP_MAX || (opts.group > 1 && strcmp(opts.keys, cli_keys_name(PAWL_KEYS_DENSE)) != 0))
        return args_complain(usage, "--group is from 1 to 1M, and for --keys dense");
    if (!opts.servers || opts.servers > RACK_SERVERS_MAX || (opts.own_seen && opts.own > opts.servers))
        return args_complain(usage, "--servers is from 1 to %d, and --own is no more", RACK_SERVERS_MAX);
    return 0;
}

static int parse_address(const struct args *usage, const char *option, const char *text, struct net_addr *out)
{
    return net_addr_parse(text, out) ? args_complain(usage, "--%s: '%s' is not an IPv4 ADDRESS:PORT", option, text) : 0;
}

int cmd_serve(int argc, char **argv)
{
    struct args_rest rest;
    struct net_addr at, coordinator;
    const struct design *design = NULL;
    enum pawl_keys keys = PAWL_KEYS_DENSE;
    int status = args_parse(&serve_usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (rest.count)
        return args_complain(&serve_usage, "'%s' is one word too many", rest.words[0]);
    status = parse_address(&serve_usage, "listen", opts.listen, &at);
    if (!status && opts.join)
        status = parse_address(&serve_usage, "join", opts.join, &coordinator);
    else if (!status)
        status = check_serve(&serve_usage, &design);
    if (!status && !opts.join)
        status = check_keys(&serve_usage, &keys);
    if (status)
        return status;
    catch_signals();
    if (opts.join)
        return run_alone("serve", at, coordinator, false);
    assert(design);
    return coordinate(design, keys, at);
}

int cmd_switch(int argc, char **argv)
{
    struct args_rest rest;
    struct net_addr at, coordinator;
    opts.listen = "127.0.0.1:7071";
    int status = args_parse(&switch_usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    if (rest.count)
        return args_complain(&switch_usage, "'%s' is one word too many", rest.words[0]);
    if (opts.soft == !!opts.xdp.devices)
        return args_complain(&switch_usage, "either --dev, for a switch in the kernel, or --soft");
    if (!opts.join)
        return args_complain(&switch_usage, "which rack? --join ADDRESS:PORT names its coordinator");
    status = parse_address(&switch_usage, "listen", opts.listen, &at);
    if (!status)
        status = parse_address(&switch_usage, "join", opts.join, &coordinator);
    if (status)
        return status;
    if (opts.alloc && strcmp(opts.alloc, "knapsack") && strcmp(opts.alloc, "random"))
        return args_complain(&switch_usage, "--alloc is knapsack or random");
    if (opts.priorities && !cli_priorities(opts.priorities, &opts.xdp.levels))
        return args_complain(&switch_usage, CLI_PRIORITIES_WRONG);
    const struct design *netlock = design_find(CLI_ALLOC_DESIGN);
    opts.xdp.knobs = design_knobs(netlock);
    design_tune(netlock, &opts.xdp.knobs, "alloc-random", opts.alloc && !strcmp(opts.alloc, "random"));
    if (opts.xdp.levels)
        design_tune(netlock, &opts.xdp.knobs, "switch-priorities", opts.xdp.levels);
    catch_signals();
    if (opts.room_seen && !opts.soft)
        return args_complain(&switch_usage,
                             "--room is for --soft: in the kernel a lock takes 16 bytes, and finding out which are there "
                             "would take more; it has room for all");
    if (opts.room_seen && (!opts.room || opts.room > ROOM_MAX))
        return args_complain(&switch_usage, "--room is from 1 to 1G");
    if (opts.rack_seen && (!opts.rack || opts.rack > RACKS_MAX))
        return args_complain(&switch_usage, "--rack is from 1 to %d", RACKS_MAX);
    if (opts.soft)
        return run_alone("switch", at, coordinator, true);
    opts.xdp.space = opts.space;
    opts.xdp.rack = (unsigned)opts.rack;
    opts.xdp.alloc = opts.alloc;
    opts.xdp.levels_seen = opts.priorities;
    opts.xdp.fresh = opts.fresh;
    opts.xdp.at = at;
    opts.xdp.coordinator = coordinator;
    opts.xdp.stop = &stopped;
    return switch_xdp(&opts.xdp);
}
