/* SPDX-License-Identifier: Apache-2.0 */
/* pawl serve: a service of spaces, each with its coordinator and granters; a lock server; or a memory node. */
#include "cli/commands.h"
#include "cli/daemon.h"
#include "cli/folder.h"
#include "cli/settings.h"
#include "node/etcd.h"
#include "node/gate.h"
#include "node/hosting.h"
#include "node/memory_kernel.h"
#include "node/memory_rdma.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_LISTEN "127.0.0.1:7070"
#define DEFAULT_DESIGN "fisslock"
#define DEFAULT_PROVIDER "tcp"
#define DEFAULT_LOCKS 1000000
#define DEFAULT_HOSTS 64
#define DEFAULT_SESSIONS 64
#define DEFAULT_HOLDS 256
#define DEFAULT_LEASE_NS (2 * NS_PER_S)
#define LEADER_LEASE_NS NS_PER_S /* a leader that dies is followed after it, and after a stall as long it steps down */
#define LEASE_MIN_NS (50 * NS_PER_MS)
#define DEFAULT_MEMBER_NS (60 * NS_PER_S)
#define LEASE_MAX_NS (3600 * NS_PER_S)
#define RETRY_NS (5 * NS_PER_MS) /* a round trip on one busy machine; lost packets are rarer than slow ones */
#define GROUP_MAX (UINT64_C(1) << 20)
#define LIFE_SHIFT 30 /* of world_birth: quarters of a second, of which 32 bits last until 2054 */

static struct {
    struct daemon_options daemon;
    const char *listen, *join, *space, *design, *keys, *state, *store, *tune, *devices, *mode, *pins, *node, *on, *provider;
    uint64_t locks, group, lease_ns, member_ns, hosts, sessions, holds, servers, own, spin_ns, racks, host_packets;
    bool fresh, restore, force, json, backup, remove, local, insecure;
    bool space_seen, design_seen, keys_seen, locks_seen, group_seen, lease_seen, member_seen, hosts_seen, sessions_seen, holds_seen,
        servers_seen, own_seen, racks_seen;
} opts = {.listen = DEFAULT_LISTEN,
          .space = "default",
          .design = DEFAULT_DESIGN,
          .keys = "named",
          .locks = DEFAULT_LOCKS,
          .group = 1,
          .lease_ns = DEFAULT_LEASE_NS,
          .member_ns = DEFAULT_MEMBER_NS,
          .hosts = DEFAULT_HOSTS,
          .sessions = DEFAULT_SESSIONS,
          .holds = DEFAULT_HOLDS,
          .servers = 1};

static const struct arg serve_table[] = {
    {"listen", 0, ARG_STRING, "ADDRESS:PORT", "where to listen; default " DEFAULT_LISTEN, &opts.listen, NULL},
    {"space", 0, ARG_STRING, "NAME", "name of the space; default 'default'", &opts.space, &opts.space_seen},
    {"design", 0, ARG_STRING, "D", "design of the space; default fisslock", &opts.design, &opts.design_seen},
    {"keys", 0, ARG_STRING, "KIND", "named, sparse (any 64-bit number) or dense (0 to N-1); default named", &opts.keys,
     &opts.keys_seen},
    {"locks", 0, ARG_U64, "N", "locks of the space, one for each key; default 1M; designs with ranges: 256", &opts.locks,
     &opts.locks_seen},
    {"group", 0, ARG_U64, "G", "dense keys that share a lock: 0 to N*G-1; default 1", &opts.group, &opts.group_seen},
    {"state", 0, ARG_STRING, "DIR",
     "folder for the space's state: names, rules, counters; default $XDG_STATE_HOME/pawl or ~/.local/state/pawl", &opts.state,
     NULL},
    {"store", 0, ARG_STRING, "etcd://A:2379,B:2379/PREFIX",
     "the state is in etcd 3.4 or later instead: several coordinators with the same --store stand by, and one leads", &opts.store,
     NULL},
    {"lease", 0, ARG_DURATION, "S",
     "lock lease: how long a host keeps its locks that does not reach their lock server or switch; default 2", &opts.lease_ns,
     &opts.lease_seen},
    {"membership-lease", 0, ARG_DURATION, "S",
     "how long hosts go on without a coordinator; default 60, or --lease if that is longer", &opts.member_ns, &opts.member_seen},
    {"hosts", 0, ARG_U64, "N", "hosts that can take part at once; default 64", &opts.hosts, &opts.hosts_seen},
    {"sessions", 0, ARG_U64, "N", "open sessions of one host; default 64; on a memory node: of the space; default 256",
     &opts.sessions, &opts.sessions_seen},
    {"holds", 0, ARG_U64, "N", "locks that one session can hold or wait for at once; default 256", &opts.holds, &opts.holds_seen},
    {"servers", 0, ARG_U64, "N",
     "lock servers of the space, if its design has any; default 1; fisslock: default none, see pawl switch --room", &opts.servers,
     &opts.servers_seen},
    {"own", 0, ARG_U64, "N",
     "lock servers that run in this process, others join with --join; fisslock: 1: the switch does, until 'pawl switch' takes its "
     "place; default all, with --store none",
     &opts.own, &opts.own_seen},
    {"racks", 0, ARG_U64, "N",
     "fisslock-racks, netlock-switches: switches among which the locks are divided; default 2; see pawl rules", &opts.racks,
     &opts.racks_seen},
    {"backup", 0, ARG_FLAG, NULL, "the switch has a backup: a second 'pawl switch' joins, and takes over if the first fails",
     &opts.backup, NULL},
    {"join", 0, ARG_STRING, "ADDRESS:PORT,...", "run a lock server for the rack of that coordinator, or of those, and nothing else",
     &opts.join, NULL},
    {"spin", 0, ARG_DURATION, "S", "poll for packets this long before sleeping; default 0", &opts.spin_ns, NULL},
    {"host-packets", 0, ARG_U64, "N",
     "packets that one host may send a lock server or switch of this process a second: more are dropped, and counted; default 0: "
     "any "
     "number",
     &opts.host_packets, NULL},
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
    {"on", 0, ARG_STRING, "FABRIC",
     "memory node: how clients reach it: udp (default), ofi, by libfabric, or verbs, by libibverbs; see --provider", &opts.on,
     NULL},
    {"provider", 0, ARG_STRING, "P",
     "on ofi: libfabric's provider, as tcp, shm, verbs or efa, default tcp; on verbs: the device, default that of --listen; see "
     "pawl doctor",
     &opts.provider, NULL},
    {"remove", 0, ARG_FLAG, NULL, "dev, with --pin: remove the pinned memory at the end", &opts.remove, NULL},
    {"insecure", 0, ARG_FLAG, NULL, "listen beyond loopback without a key: every sender of packets may take and free locks",
     &opts.insecure, NULL},
    SETTINGS_TUNE_OPTION(&opts.tune),
    DAEMON_OPTIONS(&opts.daemon),
    CLI_JSON_OPTION(&opts.json),
};

static const struct args serve_usage = {
    .command = "pawl serve",
    .usage = "[--space NAME] [--design D] [--locks N] [--listen ADDRESS:PORT] [--fresh|--restore] [OPTION]...\n"
             "       pawl serve --join ADDRESS:PORT [--space NAME] [--listen ADDRESS:PORT] [--fresh]",
    .about =
        "Runs a service of spaces. A space has a coordinator, which keeps the list of hosts, gives them numbers and notices when\n"
        "they fail, and granters: lock servers, or a switch. Without arguments it serves the space 'default' on loopback, with "
        "the\n"
        "design fisslock and its switch in this process. Clients open pawl://ADDRESS:PORT/NAME. For one-sided designs (word,\n"
        "shiftlock, shiftlock64, alock, citron) it runs a memory node: the lock memory, on which clients execute verbs by "
        "datagrams.",
    .after =
        "'pawl space create pawl://ADDRESS:PORT/OTHER' makes a further space in the running service, at the same port; see\n"
        "'pawl space --help'. Its state is in DIR/NAME.spaces/, and it is there again when the service is restarted.\n\n"
        "The switch of fisslock runs in this process until a 'pawl switch' joins: that one takes its place while all is running, "
        "and\n"
        "no hold is lost. When it ends, the switch of this process takes the place back. --own 0 leaves it out.\n\n"
        "A space's state is a file, DIR/NAME.state. Its first start needs --fresh, but for the space 'default' on loopback if\n"
        "--space is not given. Later starts go on with the file, with the settings in it unless options say otherwise; a file "
        "that\n"
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
        "before. With --key, packets are authenticated (see 'pawl key'); without, it listens on loopback only, unless\n"
        "--insecure is said.\n\n"
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
        "With --local clients on this machine use the memory directly. With --dev or --on verbs, too, that is for alock; --dev "
        "needs --pin.\n\n"
        "A space can have several memory nodes, with --locks locks each: start each with its --node, and otherwise the same\n"
        "options. Clients name all of them in their order: pawl://A,B:7070/NAME.\n\n"
        "With --on ofi clients reach the memory by libfabric (1.17 or later), with the provider of their network card or tcp. The\n"
        "UDP port then connects clients, tells them their keys and fences them. Providers have no 128-bit atomics, so keys are\n"
        "dense, and shiftlock64 takes the place of shiftlock. With --on verbs clients reach it by an InfiniBand or RoCE card, and "
        "the\n"
        "same is true; --listen is the address of the card's interface.\n\n"
        "Examples:\n"
        "  pawl serve\n"
        "  pawl serve --space test --locks 1M --fresh\n"
        "  pawl serve --space test\n"
        "  pawl serve --space test --design srvlock --servers 2 --own 1 --fresh\n"
        "  pawl serve --join 127.0.0.1:7070 --space test --listen 127.0.0.1:7080\n"
        "  pawl serve --space test --key FILE --listen 10.0.0.1:7070 --store "
        "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/pawl\n"
        "  pawl serve --space test --design fisslock-racks --racks 4 --fresh\n"
        "  pawl serve --space test --design shiftlock --lease 10\n"
        "  pawl serve --space test --design shiftlock --listen 10.0.0.1:7070 --insecure --dev eth0 --pin /sys/fs/bpf/test\n"
        "  pawl serve --space test --design shiftlock64 --keys dense --listen 10.0.0.1:7070 --insecure --on ofi --provider efa\n"
        "  pawl serve --space test --design shiftlock64 --keys dense --listen 10.0.0.1:7070 --insecure --on verbs\n\n"
        "A file of --config has the words of these options: 'lease = 5', and 'fresh' or 'fresh = yes' for a flag. '#' begins a\n"
        "comment. SIGHUP reads it again: log and http change at once, others at the next start.\n\n"
        "Runs until SIGINT or SIGTERM. Exit status: 0 ended by a signal, 2 wrong usage, 69 it could not start.",
    .has_file = true,
    ARGS_TABLE(serve_table),
};

/* The path of the space's state. 0, or the exit status after a complaint. */
static int state_path(char out[STORE_PATH_LEN])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const size_t room = STORE_PATH_LEN - 2 * COORD_NAME_LEN - 32; /* what comes after the folder, of further spaces, too */
    int len = opts.state        ? snprintf(out, room, "%s", opts.state)
              : state && *state ? snprintf(out, room, "%s/pawl", state)
              : home && *home   ? snprintf(out, room, "%s/.local/state/pawl", home)
                                : -1;
    if (len <= 0 || (size_t)len >= room)
        return cli_say("serve", EXIT_USAGE,
                       "there is no folder for the state of the space: set --state DIR, XDG_STATE_HOME or HOME");
    if (!*opts.space || strchr(opts.space, '/') || strlen(opts.space) >= COORD_NAME_LEN)
        return cli_say("serve", EXIT_USAGE, "the name of the space must have 1 to %d bytes, and no slash", COORD_NAME_LEN - 1);
    snprintf(out + len, STORE_PATH_LEN - (size_t)len, "/%s.state", opts.space);
    return 0;
}

/* ---- settings from the state ---- */

static struct {
    struct state_config config;
    bool known; /* there is a state, and it goes on */
} logged;

/* Options that were not given are as the state has them. */
static void take_logged(void)
{
    const struct rack_config *c = &logged.config.config;
    opts.design = opts.design_seen ? opts.design : logged.config.design;
    opts.keys = opts.keys_seen ? opts.keys : cli_keys_name(c->keys ? (enum pawl_keys)c->keys : PAWL_KEYS_DENSE);
    opts.locks = opts.locks_seen ? opts.locks : c->locks;
    opts.group = opts.group_seen ? opts.group : max_u64(c->group, 1);
    opts.lease_ns = opts.lease_seen ? opts.lease_ns : c->lease_ns;
    if (!opts.member_seen && !opts.lease_seen)
        opts.member_ns = rack_member_ns(c);
    opts.hosts = opts.hosts_seen ? opts.hosts : c->machines;
    opts.sessions = opts.sessions_seen ? opts.sessions : c->sessions;
    opts.holds = opts.holds_seen ? opts.holds : c->requests;
    if (!opts.servers_seen && c->servers) {
        opts.servers = c->servers;
        opts.servers_seen = true;
    }
    if (!opts.racks_seen && c->racks) {
        opts.racks = c->racks;
        opts.racks_seen = true;
    }
    opts.backup = opts.backup || c->switches == 2;
}

/* Reads the settings of a state that goes on. 0, or the exit status after a complaint. */
static int look_at_state(const char *path)
{
    if (opts.fresh || opts.restore || access(path, F_OK))
        return 0;
    if (service_settings(&disk_real, path, opts.space, &logged.config))
        return cli_say("serve", EXIT_UNAVAILABLE, "%s", explained());
    if (opts.design_seen && strcmp(opts.design, logged.config.design) != 0)
        return 0; /* which is refused later */
    logged.known = true;
    take_logged();
    return 0;
}

/* ---- the run ---- */

static void say_ready(struct net_addr at)
{
    daemon_ready("coordinator", opts.space, at, opts.json);
}

static void say_failure(const char *space, const char *what)
{
    log_event(LOG_LEVEL_ERROR, "granter missing", LOG_TEXT("space", space), LOG_TEXT("why", what));
}

static const struct seal_ring *ring; /* the cluster's keys */

static struct station_params station_params(void)
{
    return (struct station_params){
        .member = {.space = opts.space, .ring = ring, .deadline = daemon_deadline(), .patient = true, .stop = &cli_signal},
        .fresh = opts.fresh,
        .spin_ns = opts.spin_ns,
        .desk = &station_desk,
        .host_packets = opts.host_packets,
        .gate = &gate_in_kernel,
    };
}

static int run_server(struct net_addr at, const struct coord_list *coordinators)
{
    struct station_params p = station_params();
    p.member.at = at;
    p.member.coordinators = *coordinators;
    p.member.force = opts.force;
    if (opts.force)
        log_event(LOG_LEVEL_WARNING, "place taken by force", LOG_TEXT("space", opts.space),
                  LOG_TEXT("why", "a host that still uses the old lock server may hold a lock that this one grants to another"));
    return daemon_run_station("serve", &p, opts.json);
}

/* With several coordinators: to the operator's log. */
static void say_role(const char *space, const char *what)
{
    log_event(LOG_LEVEL_NOTICE, "coordinator's role", LOG_TEXT("space", space), LOG_TEXT("why", what));
}

static bool is_loopback(struct net_addr at)
{
    static const uint8_t v6[16] = {[15] = 1};
    return net_addr_is_v4(&at) ? at.ip[NET_V4_PREFIX] == 127 : !memcmp(at.ip, v6, sizeof v6);
}

/* Without a key only programs of this machine are served, unless the operator says otherwise. */
static int check_reach(struct net_addr at)
{
    if (ring->count || opts.insecure || is_loopback(at))
        return 0;
    return cli_say("serve", EXIT_USAGE,
                   "without a key it listens on loopback only, and --listen is %s: --key FILE ('pawl key new FILE' makes one), or "
                   "--insecure if every sender that reaches the address may be trusted",
                   opts.listen);
}

/* Without --space, on loopback, the first start needs no --fresh. Its new state begins when all leases of a former space at this
 * address have ended, and no member of one is heard. */
static bool is_first_start(const char *path, struct net_addr at)
{
    return !opts.space_seen && !opts.store && !opts.fresh && !opts.restore && is_loopback(at) && access(path, F_OK);
}

static struct coord_params coord_params(const struct design *d, const struct knobs *knobs, enum pawl_keys keys)
{
    bool servers = d->packet->server_packet && (!d->packet->spills || opts.servers_seen);
    return (struct coord_params){
        .design = d,
        .knobs = knobs,
        .like = logged.known && !opts.tune ? &logged.config.config : NULL,
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
}

/* Settings of spaces that are created later, unless the operator names others. */
static struct coord_params usual_params(void)
{
    return (struct coord_params){.design = design_find(DEFAULT_DESIGN),
                                 .locks = DEFAULT_LOCKS,
                                 .lease_ns = DEFAULT_LEASE_NS,
                                 .member_ns = DEFAULT_MEMBER_NS,
                                 .retry_ns = RETRY_NS,
                                 .machines = DEFAULT_HOSTS,
                                 .sessions = DEFAULT_SESSIONS,
                                 .requests = DEFAULT_HOLDS,
                                 .keys = PAWL_KEYS_NAMED};
}

static int host(struct hosting_params *p)
{
    struct coordinating_etcd e = {
        .place = opts.store, .lease_ns = LEADER_LEASE_NS, .report = say_role, .open = etcd_open, .close = etcd_close};
    int rc = opts.store ? etcd_open(opts.store, &e.etcd, &e.prefix) : 0;
    if (rc)
        return cli_say("serve", rc == -EINVAL ? EXIT_USAGE : EXIT_UNAVAILABLE, "%s", explained());
    p->etcd = opts.store ? &e : NULL;
    rc = hosting_run(p);
    int status = rc ? cli_say("serve", EXIT_UNAVAILABLE, "%s", explained()) : 0;
    if (opts.store)
        etcd_close(e.etcd);
    return status;
}

static int coordinate(const struct design *d, const struct knobs *knobs, enum pawl_keys keys, struct net_addr at, const char *path)
{
    char folder[STORE_PATH_LEN];
    bool first = is_first_start(path, at);
    opts.fresh = opts.fresh || first;
    struct folder made = {.made = 0};
    int rc = opts.fresh && !opts.store ? folder_make(&made, path) : 0;
    if (rc)
        return cli_say("serve", EXIT_UNAVAILABLE, "%s: %s (--state DIR names another folder)", made.path, strerror(-rc));
    if (first)
        log_event(LOG_LEVEL_NOTICE, "space begins", LOG_TEXT("space", opts.space), LOG_TEXT("state", path),
                  LOG_TEXT("why", "there is no state of it yet"));
    snprintf(folder, sizeof folder, "%.*sspaces", (int)(strlen(path) - strlen("state")), path); /* DIR/NAME.spaces */
    struct hosting_params p = {
        .at = at,
        .ring = *ring,
        .coord = coord_params(d, knobs, keys),
        .state = {.disk = &disk_real,
                  .path = path,
                  .how = opts.fresh     ? STORE_FRESH
                         : opts.restore ? STORE_RESTORE
                                        : STORE_CONTINUE,
                  .id = {world_random(&world_real), world_random(&world_real)},
                  .life = (uint32_t)(world_birth(&world_real) >> LIFE_SHIFT)},
        .stays_away = !opts.own_seen,
        .folder = opts.store ? NULL : folder,
        .usual = usual_params(),
        .spin_ns = opts.spin_ns,
        .host_packets = opts.host_packets,
        .gate = &gate_in_kernel,
        .listen_ns = first ? lease_surely_over(opts.lease_ns) : 0,
        .stop = &cli_signal,
        .ready = say_ready,
        .report = say_failure,
    };
    uint64_t all = p.coord.servers ? p.coord.servers : hosting_has_decider(d);
    p.own = (unsigned)(opts.own_seen ? min_u64(opts.own, all) : opts.store ? 0 : all);
    if (opts.store)
        p.state.path = NULL;
    int status = host(&p);
    if (status)
        folder_remove(&made);
    return status;
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

static bool on_verbs(void)
{
    return opts.on && !strcmp(opts.on, "verbs");
}

/* Clients reach the memory by a library, not by packets. */
static bool on_library(void)
{
    return on_verbs() || (opts.on && !strcmp(opts.on, "ofi"));
}

static int serve_memory(const struct design *d, const struct knobs *knobs, enum pawl_keys keys, struct net_addr at)
{
    bool ranges = d->features & DESIGN_RANGES;
    struct memory_node m;
    struct memory_kernel kernel = {
        .devices = opts.devices, .mode = plane_mode(), .pins = opts.pins, .remove = opts.remove, .report = report};
    struct memory_home home = memory_kernel_home(&kernel);
    struct memory_rdma rdma = {.provider = on_verbs()      ? RDMA_VERBS
                                           : opts.provider ? opts.provider
                                                           : DEFAULT_PROVIDER,
                               .device = on_verbs() ? opts.provider : NULL,
                               .at = at,
                               .clients = MEMNODE_CLIENTS_MAX,
                               .spin_ns = opts.spin_ns,
                               .report = report};
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
        .home = opts.devices || on_library() ? &home : NULL,
        .local = opts.local,
        .space = opts.space,
        .at = at,
        .ring = ring,
        .fresh = opts.fresh,
        .spin_ns = opts.spin_ns,
    };
    if (strlen(opts.space) >= VERBS_NAME_LEN)
        return cli_say("serve", EXIT_USAGE, "the name of the space has more than %u bytes", VERBS_NAME_LEN - 1);
    int rc = on_library() ? memory_rdma_home(&rdma, &home) : 0;
    if (!rc)
        rc = memory_node_open(&m, &p);
    if (rc)
        return cli_say("serve", EXIT_UNAVAILABLE, "%s", explained());
    daemon_ready("memory node", opts.space, m.udp.at, opts.json);
    memory_node_run(&m, &cli_signal);
    memory_node_close(&m);
    return 0;
}

/* ---- what was asked for ---- */

/* Options of a node under libfabric or libibverbs. */
static int check_fabric(const struct args *usage, const struct design *d)
{
    bool memory = d->substrates & DESIGN_ON_NODE;
    if (opts.on && strcmp(opts.on, "udp") != 0 && !on_library())
        return args_complain(usage, "--on is udp, ofi or verbs, not '%s'", opts.on);
    if (on_library() && !memory)
        return args_complain(usage, "--on %s is for designs on a memory node, and '%s' has none", opts.on, opts.design);
    if (on_library() && opts.devices)
        return args_complain(usage, "--on %s does not go with --dev", opts.on);
    if (on_library() && opts.local && !on_verbs())
        return args_complain(usage, "--on %s does not go with --local: the provider may read by atomics, which are not the CPU's",
                             opts.on);
    if (on_library() && opts.local && !d->node_tends)
        return args_complain(
            usage, "atomics of the card are not the CPU's: with --on verbs, --local is for alock, and not for '%s'", opts.design);
    if (opts.provider && !on_library())
        return args_complain(usage, "--provider goes with --on ofi and --on verbs");
    return 0;
}

/* Options of a node in the kernel. */
static int check_kernel(const struct args *usage, const struct design *d)
{
    bool memory = d->substrates & DESIGN_ON_NODE_XDP;
    if (opts.devices && !memory)
        return args_complain(usage, "--dev is for designs on a memory node, and '%s' has none; see 'pawl switch --dev'",
                             opts.design);
    if (opts.node && !memory)
        return args_complain(usage, "--node is for designs on memory nodes, and '%s' runs on none", opts.design);
    if (opts.local && !memory)
        return args_complain(usage, "--local is for designs on a memory node, and '%s' has none", opts.design);
    if (opts.local && opts.devices && !d->node_tends)
        return args_complain(
            usage, "atomics of the kernel's program are not the CPU's: with --dev, --local is for alock, and not for '%s'",
            opts.design);
    if (opts.local && opts.devices && !opts.pins)
        return args_complain(usage, "--local with --dev needs --pin: clients on this machine find the memory there");
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
    if (opts.host_packets)
        return args_complain(usage, "--host-packets is for lock servers and switches, and the design '%s' runs on a memory node",
                             opts.design);
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
        return args_complain(usage, "--design: there is no design '%s'; 'pawl doctor --matrix' lists the designs", opts.design);
    if (!((*design)->substrates & (DESIGN_ON_UDP | DESIGN_ON_NODE)))
        return args_complain(usage, "the design '%s' does not run between machines", opts.design);
    if ((*design)->kind == DESIGN_BASELINE)
        return args_complain(usage, "the design '%s' is a baseline, which 'pawl bench' and 'pawl sim' compare others with",
                             opts.design);
    if ((*design)->substrates & DESIGN_ON_NODE && check_memory(usage))
        return EXIT_USAGE;
    if (check_fabric(usage, *design))
        return EXIT_USAGE;
    if (check_kernel(usage, *design))
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
    if (!opts.locks || opts.locks > PACKET_LOCKS_MAX)
        return args_complain(usage, "--locks must be between 1 and 4G");
    if (!opts.group || opts.group > GROUP_MAX || (opts.group > 1 && strcmp(opts.keys, cli_keys_name(PAWL_KEYS_DENSE)) != 0))
        return args_complain(usage, "--group must be between 1 and 1M, and goes with --keys dense");
    if (!opts.servers || opts.servers > RACK_SERVERS_MAX || (opts.own_seen && opts.own > opts.servers))
        return args_complain(usage, "--servers must be between 1 and %d, and --own no more than that", RACK_SERVERS_MAX);
    return 0;
}

static int run_serve(struct args_rest *rest)
{
    char path[STORE_PATH_LEN] = "";
    struct net_addr at;
    struct coord_list coordinators;
    const struct design *design = NULL;
    struct knobs knobs;
    enum pawl_keys keys = PAWL_KEYS_DENSE;
    int status = daemon_address(&serve_usage, "listen", opts.listen, &at);
    if (!status && opts.join)
        status = daemon_addresses(&serve_usage, "join", opts.join, &coordinators);
    if (!status)
        status = daemon_host_packets(&serve_usage, opts.host_packets);
    const struct design *asked = design_find(opts.design);
    bool has_file = !opts.join && !opts.store && asked && asked->packet;
    if (!status && has_file)
        status = state_path(path);
    if (!status && has_file)
        status = look_at_state(path);
    if (!status && !opts.join)
        status = check_serve(&serve_usage, &design);
    if (!status && !opts.join)
        status = cli_keys(&serve_usage, opts.keys, &keys);
    if (!status && !opts.join)
        status = settings_tune(&serve_usage, opts.tune, &design, 1, &knobs);
    if (!status)
        status = daemon_keys(&serve_usage, &ring);
    if (!status)
        status = check_reach(at);
    if (!status)
        status = daemon_begin(&serve_usage, &opts.daemon);
    if (!status)
        status = daemon_checked(&opts.daemon);
    if (status != DAEMON_RUN)
        return status;
    assert(opts.join || design);
    if (opts.join)
        status = run_server(at, &coordinators);
    else if (design->substrates & DESIGN_ON_NODE)
        status = serve_memory(design, &knobs, keys, at);
    else
        status = coordinate(design, &knobs, keys, at, path);
    daemon_end();
    return status;
}

const struct command cmd_serve = {&serve_usage, run_serve};
