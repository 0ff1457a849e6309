/* SPDX-License-Identifier: Apache-2.0 */
/* pawl bench: how fast locks are, on this machine or in the simulated cluster. */
#include "cli/bench.h"
#include "cli/bench_compare.h"
#include "cli/bench_txn.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "cli/sim.h"
#include "client/net.h"
#include "cluster/layout.h"
#include "workbench/bench/workload_io.h"
#include "workbench/lab/lab.h"
#include "world/sim.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SHM_SECONDS_NS (1 * NS_PER_S)
#define SIM_SECONDS_NS (20 * NS_PER_MS)
#define SHM_ROUNDS 3
#define DEFAULT_LOCKS 1000
#define LEASE_MIN_NS (2 * NS_PER_MS) /* of the simulation: sessions renew theirs in time */

static struct bench_params params = {
    .workload = {.locks = DEFAULT_LOCKS, .seed = 1, .units = LAYOUT_RANGE_UNITS, .hot_every_ns = 300 * NS_PER_MS}};

/* Other options, and those that params depends on in more than one way. */
static struct {
    const char *designs, *on, *model, *set, *tune, *range, *io, *space, *wire, *provider;
    uint64_t nodes, lock_nodes, racks, clients, rounds;
    bool json;
    bool design_seen, nodes_seen, lock_nodes_seen, racks_seen, lease_seen, warmup_seen, clients_seen, seconds_seen, rounds_seen,
        units_seen, held_seen, max_units_seen;
} opts = {.designs = "word", .on = "shm"};

static struct bench_txn_options txns;

static const struct arg table[] = {
    {"design", 0, ARG_STRING, "D[,D...]", "designs to measure, in alternating rounds; default word", &opts.designs,
     &opts.design_seen},
    {"on", 0, ARG_STRING, "WHERE",
     "shm: processes of this machine (default); udp: the same over packets; lab: network namespaces as hosts, and the switch in "
     "the kernel; node: a memory node on loopback; node-xdp: one in the kernel, in a lab; ofi: one under libfabric; verbs: one "
     "under libibverbs; sim: the "
     "simulated cluster",
     &opts.on, NULL},
    {"space", 0, ARG_STRING, "WHERE",
     "udp, node: a running rack or node, pawl://HOST:PORT/SPACE, of any design; default: a new one on loopback", &opts.space, NULL},
    {"wire", 0, ARG_STRING, "WIRE",
     "lab, or --space: udp (the default), or afxdp: the first client of each host bypasses the network stack where possible",
     &opts.wire, NULL},
    {"provider", 0, ARG_STRING, "P", "ofi: libfabric's provider, such as tcp, verbs or efa; default tcp; verbs: the device",
     &opts.provider, NULL},
    {"model", 0, ARG_STRING, "TESTBED", "sim: the model of the cluster; default 'default'", &opts.model, NULL},
    {"set", 0, ARG_STRING, "FIELD=N[,...]", "sim: override model parameters", &opts.set, NULL},
    SETTINGS_TUNE_OPTION(&opts.tune),
    {"nodes", 0, ARG_U64, "N", "sim, udp, lab, node-xdp: hosts of clients; default the model's, or 1", &opts.nodes,
     &opts.nodes_seen},
    {"clients", 0, ARG_U64, "N", "clients; default one per core; sim: the model's", &opts.clients, &opts.clients_seen},
    {"threads", 0, ARG_FLAG, NULL, "shm: clients are threads with their own handles, not processes", &params.threads, NULL},
    {"locks", 0, ARG_U64, "N", "number of locks; default 1000; with --range 1", &params.workload.locks, &txns.locks_seen},
    {"reads", 0, ARG_FRACTION, "F", "fraction of shared acquisitions; default 0", &params.workload.reads, NULL},
    {"objects", 0, ARG_U64, "N", "objects, divided evenly among the locks, whose popularity --zipf describes; default one per lock",
     &params.workload.objects, NULL},
    {"zipf", 0, ARG_THOUSANDTHS, "T", "exponent of the locks' popularity; default 0: uniform", &params.workload.zipf, NULL},
    {"range", 0, ARG_STRING, "L[,L...]", "lock ranges of L units; with several lengths, clients take them in turn", &opts.range,
     NULL},
    {"units", 0, ARG_U64, "N", "--range: units of a lock; default 65536", &params.workload.units, &opts.units_seen},
    {"max-units", 0, ARG_U64, "N", "--range on sim: units that a lock can grow to; default --units", &params.workload.max_units,
     &opts.max_units_seen},
    {"io", 0, ARG_STRING, "WORKLOAD", "sim: btio, oltp or io500: ranges, and data moved under them", &opts.io, NULL},
    {"room", 0, ARG_U64, "N", "sim, fisslock: locks that fit into the switch; servers decide the others; default all", &params.room,
     NULL},
    {"racks", 0, ARG_U64, "N", "sim, fisslock-racks and netlock-switches: racks with a switch each; default 2", &opts.racks,
     &opts.racks_seen},
    {"lease", 0, ARG_DURATION, "TIME", "sim: the lock lease; default the model's, and of packet designs one that does not end",
     &params.lease_ns, &opts.lease_seen},
    {"hotspot", 0, ARG_U64, "N", "sim, packet designs: half of the operations are on N locks; default 0", &params.workload.hot,
     NULL},
    {"hotspot-every", 0, ARG_DURATION, "S", "time after which the hotspot moves to other locks and back; default 300ms",
     &params.workload.hot_every_ns, NULL},
    {"series", 0, ARG_DURATION, "S", "sim: also count operations in intervals of this length", &params.series_ns, NULL},
    {"held", 0, ARG_U64, "N", "--range on shm: ranges that others hold throughout; default 0", &params.workload.held,
     &opts.held_seen},
    {"local", 0, ARG_FRACTION, "F",
     "sim: fraction of clients on the host of the lock memory; packet designs: of operations on locks of the own host's part",
     &params.local, &params.parted},
    {"local-by-key", 0, ARG_FLAG, NULL, "--lock-nodes: one number chooses the lock and whether it is local, as in ALock's artifact",
     &params.by_key, NULL},
    {"lock-nodes", 0, ARG_U64, "N", "sim: clients and locks on N hosts each; --local is then of the operations", &opts.lock_nodes,
     &opts.lock_nodes_seen},
    {"workload", 0, ARG_STRING, "NAME",
     "transactions instead of single locks: tpcc, tatp, smallbank, tpcc-shiftlock, tatp-shiftlock, tpcc-netlock or trace",
     &txns.workload, NULL},
    {"scale", 0, ARG_U64, "N", "--workload: warehouses of each host, subscribers or accounts; default as in the paper", &txns.scale,
     &txns.scale_seen},
    {"sorted", 0, ARG_FLAG, NULL, "--workload: locks in ascending order; default as in the paper", &txns.sorted, NULL},
    {"together", 0, ARG_FLAG, NULL, "--workload: all locks of a transaction by one call, pawl_lock_all", &txns.together, NULL},
    {"timeout", 0, ARG_DURATION, "TIME",
     "--workload: a transaction that has not got all locks by then releases them and is given up; 0: never; default as in the "
     "paper",
     &params.workload.timeout_ns, &txns.timeout_seen},
    {"file", 0, ARG_STRING, "FILE", "--workload trace: lines of txn,type,lock,mode, where mode is S or X", &txns.file, NULL},
    {"write-trace", 0, ARG_STRING, "FILE", "--workload: write --ops transactions to a file instead of running them", &txns.write,
     NULL},
    {"names", 0, ARG_FLAG, NULL, "keys are names, not numbers", &params.workload.names, NULL},
    {"hold", 0, ARG_U64, "NS", "nanoseconds that a lock is held; default 0; with --workload as in the paper",
     &params.workload.hold_ns, &txns.hold_seen},
    {"deaths", 0, ARG_U64, "N",
     "sim: one operation in N ends with the death of the client while it holds the lock; default 0: none", &params.deaths, NULL},
    {"think", 0, ARG_U64, "NS", "nanoseconds between two operations of a client; default 0", &params.workload.think_ns, NULL},
    {"seconds", 0, ARG_DURATION, "S", "length of a round; default 1; sim: virtual seconds, default 20ms", &params.seconds_ns,
     &opts.seconds_seen},
    {"warmup", 0, ARG_DURATION, "S", "sim: virtual seconds before the measuring begins; default 0", &params.warmup_ns,
     &opts.warmup_seen},
    {"ops", 0, ARG_U64, "N", "operations of a round, of all clients together, instead of --seconds", &params.ops, &txns.ops_seen},
    {"rounds", 0, ARG_U64, "R", "number of rounds, of which medians are printed; default 3; sim: 1", &opts.rounds,
     &opts.rounds_seen},
    {"seed", 0, ARG_U64, "N", "seed of the choice of locks and of the simulation; default 1", &params.workload.seed, NULL},
    {"json", 0, ARG_FLAG, NULL, "print one JSON object; with several designs an array of them", &opts.json, NULL},
};

static const struct args usage = {
    .command = "pawl bench",
    .usage =
        "[--design D[,D...]] [--on shm|udp|lab|node|node-xdp|ofi|verbs|sim] [OPTION]...\n       pawl bench compare BEFORE.json "
        "AFTER.json [--json]",
    .about = "Runs clients that lock and unlock, and prints throughput and latencies. With several designs the rounds alternate, "
             "and each\n"
             "design is compared with the last one. On shared memory one acquisition in eight is timed. Every grant is validated.\n"
             "'compare' reads two results of --json and tells whether they differ by more than their noise.",
    .after =
        "Examples:\n"
        "  pawl bench --clients 4 --locks 1M --zipf 0.99 --reads 0.9\n"
        "  pawl bench --design word,pthread --clients 1 --rounds 11 --seconds 0.2\n"
        "  pawl bench --design citron,ofd --range 1 --units 1M --held 1000\n"
        "  pawl bench --on udp --space pawl://10.0.0.1:7070/test --wire afxdp --clients 1\n"
        "  pawl bench --on lab --design fisslock,netlock,srvlock --nodes 2\n"
        "  pawl bench --on node --design shiftlock,cas-backoff,dslr --clients 16 --locks 1\n"
        "  pawl bench --on ofi --provider tcp --design shiftlock64,word --clients 4\n"
        "  pawl bench --on udp --design fisslock --workload tpcc --scale 100 --together\n"
        "  pawl bench --on sim --model shiftlock-testbed --design word,cas-backoff --locks 10M\n\n"
        "Ctrl-C ends it with what was measured so far.\n"
        "Exit status: 0 measured, 1 two clients held a lock that only one may hold, 2 wrong usage, 69 the benchmark could not run.",
    .words_max = 3,
    ARGS_TABLE(table),
};

/* ---- signals ---- */

static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < countof(signals); i++) {
        struct sigaction before;
        if (!sigaction(signals[i], NULL, &before) && before.sa_handler != SIG_IGN)
            cli_catch(signals[i], 0);
    }
}

/* ---- options ---- */

static unsigned substrate(const struct bench_params *p)
{
    return p->simulated ? DESIGN_ON_SIM
           : p->node    ? p->lab        ? DESIGN_ON_NODE_XDP
                          : p->verbs    ? DESIGN_ON_VERBS
                          : p->provider ? DESIGN_ON_OFI
                                        : DESIGN_ON_NODE
           : p->packets ? DESIGN_ON_UDP
                        : DESIGN_ON_SHM;
}

static int add_design(struct bench_params *p, const char *name)
{
    const struct design *d = design_find(name);
    if (!d)
        return args_complain(&usage, "there is no design '%s'; 'pawl doctor --matrix' lists the designs", name);
    if (!(d->substrates & substrate(p)))
        return args_complain(&usage, "the design '%s' does not run on %s", name,
                             p->lab && !p->node ? "udp, and so in no lab" : opts.on);
    if (p->lab && d->packet && d->packet->racks)
        return args_complain(&usage, "the design '%s' has several switches, and the lab of a benchmark has one", name);
    if (p->workload.reads && !(d->features & DESIGN_SHARED))
        return args_complain(&usage, "the design '%s' has no shared locks, so --reads must be 0", name);
    if (p->deaths && !(p->simulated && d->features & DESIGN_RECOVERY && !d->packet))
        return args_complain(&usage, "deaths are for --on sim and designs that survive them, and '%s' does not", name);
    if ((opts.range || opts.io) && !(d->features & DESIGN_RANGES))
        return args_complain(&usage, "the design '%s' has no ranges", name);
    if (p->design_count == BENCH_DESIGNS_MAX)
        return args_complain(&usage, "at most %d designs at once", BENCH_DESIGNS_MAX);
    for (unsigned i = 0; i < p->design_count; i++)
        if (p->designs[i] == d)
            return args_complain(&usage, "the design '%s' is named twice", name);
    p->designs[p->design_count++] = d;
    return 0;
}

static int choose_designs(struct bench_params *p)
{
    const char *list = opts.designs;
    for (char name[TEXT_WORD_LEN]; text_next(&list, name);) {
        int status = add_design(p, name);
        if (status)
            return status;
    }
    return 0;
}

/* On a copy of the model: its source then says so. */
static int set_field(void *ctx, const char *field, uint64_t value)
{
    struct bench_params *p = ctx;
    static struct model copy;
    if (p->model != &copy)
        copy = *p->model;
    p->model = &copy;
    if (!model_set(&copy, field, value))
        return 0;
    return args_complain(&usage, "models have no field '%s'; 'pawl bench --on sim --json' lists the fields", field);
}

static int choose_substrate(struct bench_params *p)
{
    p->simulated = !strcmp(opts.on, "sim");
    p->packets = !strcmp(opts.on, "lab") || !strcmp(opts.on, "udp");
    bool ofi = !strcmp(opts.on, "ofi");
    p->verbs = !strcmp(opts.on, "verbs");
    p->node = !strcmp(opts.on, "node") || !strcmp(opts.on, "node-xdp") || ofi || p->verbs;
    p->provider = opts.provider ? opts.provider : ofi ? "tcp" : NULL;
    if (opts.provider && !ofi && !p->verbs)
        return args_complain(&usage, "--provider goes with --on ofi and --on verbs");
    p->lab = !strcmp(opts.on, "lab") || !strcmp(opts.on, "node-xdp");
    bool hosts = p->packets || p->lab; /* has several */
    if (!p->simulated && !p->packets && !p->node && strcmp(opts.on, "shm"))
        return args_complain(&usage, "there is no substrate '%s'; there are shm, udp, lab, node, node-xdp, ofi, verbs and sim",
                             opts.on);
    if (p->simulated && p->threads)
        return args_complain(&usage, "--threads is for --on shm: simulated clients have neither threads nor processes");
    if ((p->packets || p->node) && p->threads)
        return args_complain(&usage, "--threads is for --on shm");
    if (p->node && opts.held_seen)
        return args_complain(&usage, "--held is for --on shm");
    if (p->node && p->lab && (opts.units_seen || opts.max_units_seen))
        return args_complain(&usage, "--units is not for --on node-xdp: 'pawl serve' lays locks out for %d",
                             (int)LAYOUT_RANGE_UNITS);
    if (!p->simulated && (opts.model || (opts.nodes_seen && !hosts) || p->parted || opts.lock_nodes_seen))
        return args_complain(&usage, "%s is for --on sim: shared memory is one machine, and all of it is local",
                             opts.model             ? "--model"
                             : opts.nodes_seen      ? "--nodes"
                             : opts.lock_nodes_seen ? "--lock-nodes"
                                                    : "--local");
    if (!p->simulated && (opts.set || opts.warmup_seen))
        return args_complain(&usage, "%s is for --on sim", opts.set ? "--set" : "--warmup");
    if (!p->simulated)
        return 0;
    p->model = sim_model(&usage, opts.model ? opts.model : "default");
    return p->model ? settings_each(&usage, "set", opts.set, set_field, p) : EXIT_USAGE;
}

/* A rack that runs has its design and its keys. */
static int choose_rack(struct bench_params *p)
{
    static char place[PLACE_LEN], fast[PLACE_LEN], design[COORD_NAME_LEN];
    if (opts.wire && p->node)
        return args_complain(&usage, "--wire is not for memory nodes: their clients have a socket");
    if ((opts.space || opts.wire) && !p->packets && !p->node)
        return args_complain(&usage, "--%s is for --on udp%s", opts.space ? "space" : "wire", opts.space ? "" : " and --on lab");
    if (opts.space && p->lab)
        return args_complain(&usage, "--space is for --on udp: a lab has its own");
    if (opts.wire && strcmp(opts.wire, "udp") != 0 && strcmp(opts.wire, "afxdp") != 0)
        return args_complain(&usage, "--wire is udp or afxdp, not '%s'", opts.wire);
    p->fast = opts.wire && !strcmp(opts.wire, "afxdp");
    if (p->fast && !opts.space && !p->lab)
        return args_complain(&usage, "--wire afxdp needs --on lab or --space: loopback cannot bypass the network stack");
    if (!opts.space)
        return 0;
    if (opts.nodes_seen)
        return args_complain(&usage, "--nodes is not for --space: all clients are on this host");
    if (strncmp(opts.space, NET_SCHEME, strlen(NET_SCHEME)) != 0)
        return args_complain(&usage, "--space: '%s' is not pawl://HOST:PORT/SPACE", opts.space);
    int status = cli_place("bench", opts.space, place);
    memcpy(fast, place, sizeof fast);
    if (!status)
        status = cli_wire("bench", opts.wire, fast);
    if (status)
        return status;
    pawl *rack;
    const pawl_options wishes = {.design = opts.design_seen ? opts.designs : NULL,
                                 .keys = p->workload.names ? PAWL_KEYS_NAMED : 0,
                                 .capacity = p->workload.locks};
    int rc = pawl_open(place, &wishes, &rack);
    if (rc)
        return cli_fail("bench", rc);
    snprintf(design, sizeof design, "%s", rack->design->name);
    p->workload.names = rack->keys == PAWL_KEYS_NAMED;
    bool is_node = !net_of(rack);
    pawl_close(rack);
    if (is_node != p->node)
        return args_complain(&usage, "%s is a %s: --on %s", place, is_node ? "memory node" : "rack", is_node ? "node" : "udp");
    opts.designs = design;
    p->place = place;
    p->fast_place = fast;
    return 0;
}

static uint64_t default_clients(const struct bench_params *p)
{
    cpu_set_t allowed;
    if (p->simulated)
        return model_get(p->model, MODEL_clients);
    return sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : (uint64_t)CPU_COUNT(&allowed);
}

static int out_of_bounds(const char *option, uint64_t min, uint64_t max)
{
    return args_complain(&usage, "--%s must be between %" PRIu64 " and %" PRIu64, option, min, max);
}

/* Racks, and for how long their locks are leased. */
static int choose_racks(struct bench_params *p)
{
    if ((opts.racks_seen || opts.lease_seen) && !p->simulated)
        return args_complain(&usage, "--%s is for --on sim", opts.racks_seen ? "racks" : "lease");
    if (opts.lease_seen && p->lease_ns < LEASE_MIN_NS)
        return args_complain(&usage, "--lease must be at least 2ms");
    if (opts.racks_seen && (opts.racks < 2 || opts.racks > RACKS_MAX))
        return out_of_bounds("racks", 2, RACKS_MAX);
    for (unsigned i = 0; i < p->design_count && opts.racks_seen; i++)
        if (!p->designs[i]->packet || !packet_divides(p->designs[i]->packet))
            return args_complain(
                &usage, "the locks of '%s' are not divided among racks: --racks is for fisslock-racks and netlock-switches",
                p->designs[i]->name);
    p->racks = (unsigned)opts.racks;
    return 0;
}

/* Hosts and clients. */
static int choose_members(struct bench_params *p)
{
    assert(!p->simulated || p->model);
    uint64_t clients = opts.clients_seen ? opts.clients : default_clients(p);
    uint64_t nodes = opts.lock_nodes_seen ? opts.lock_nodes
                     : opts.nodes_seen    ? opts.nodes
                     : p->simulated       ? model_get(p->model, MODEL_client_nodes)
                                          : p->packets || p->lab;
    if (!clients || clients > BENCH_CLIENTS_MAX)
        return out_of_bounds("clients", 1, BENCH_CLIENTS_MAX);
    if ((p->simulated || p->packets || p->lab) && (!nodes || nodes > SIM_HOSTS_MAX - 2))
        return out_of_bounds(opts.lock_nodes_seen ? "lock-nodes" : "nodes", 1, SIM_HOSTS_MAX - 2);
    if (p->lab && nodes > LAB_HOSTS_MAX)
        return args_complain(&usage, "a lab has at most %d hosts", LAB_HOSTS_MAX);
    if (p->by_key && !opts.lock_nodes_seen)
        return args_complain(&usage, "--local-by-key goes with --lock-nodes");
    if (opts.lock_nodes_seen && (opts.nodes_seen || p->workload.names))
        return args_complain(&usage, "--lock-nodes goes with neither --nodes nor --names");
    p->clients = (unsigned)clients;
    p->nodes = (unsigned)nodes;
    p->partitioned = opts.lock_nodes_seen;
    p->residents = p->partitioned ? 0 : (unsigned)(clients * p->local / 1000);
    return 0;
}

static int check_locks(const struct bench_params *p)
{
    const struct workload *w = &p->workload;
    if (!w->locks || w->locks > ZIPF_ITEMS_MAX)
        return out_of_bounds("locks", 1, ZIPF_ITEMS_MAX);
    if (p->partitioned && w->locks < p->nodes)
        return args_complain(&usage, "--locks must be at least --lock-nodes: every host has some");
    if (w->objects && (w->objects < w->locks || w->objects > ZIPF_ITEMS_MAX))
        return out_of_bounds("objects", w->locks, ZIPF_ITEMS_MAX);
    if (w->objects && opts.range)
        return args_complain(&usage, "--objects does not go with --range");
    if (w->zipf > ZIPF_EXPONENT_MAX)
        return out_of_bounds("zipf", 0, ZIPF_EXPONENT_MAX / 1000);
    if ((p->room || w->hot) && !p->simulated)
        return args_complain(&usage, "--room and --hotspot are for --on sim");
    if (w->hot > w->locks / 3 || (w->hot && !w->hot_every_ns))
        return args_complain(&usage, "--hotspot must be at most a third of --locks, and --hotspot-every more than 0");
    for (unsigned i = 0; i < p->design_count; i++) {
        const struct design *d = p->designs[i];
        if (d->packet && (p->partitioned || (w->names && !p->place)))
            return args_complain(&usage, "the packet design '%s' goes with neither --lock-nodes nor --names", d->name);
        if (w->hot && !d->packet)
            return args_complain(&usage, "--hotspot is for packet designs, and '%s' is none", d->name);
    }
    return 0;
}

static int choose_rounds(struct bench_params *p)
{
    uint64_t rounds = opts.rounds_seen ? opts.rounds : p->simulated ? 1 : SHM_ROUNDS;
    if (!rounds || rounds > BENCH_ROUNDS_MAX)
        return out_of_bounds("rounds", 1, BENCH_ROUNDS_MAX);
    if (txns.ops_seen && (opts.seconds_seen || opts.warmup_seen))
        return args_complain(&usage, "--ops does not go with --%s", opts.seconds_seen ? "seconds" : "warmup");
    if (txns.ops_seen && !p->ops)
        return args_complain(&usage, "--ops must be at least 1");
    if (opts.seconds_seen && !p->seconds_ns)
        return args_complain(&usage, "--seconds must be more than 0");
    p->rounds = (unsigned)rounds;
    if (!opts.seconds_seen)
        p->seconds_ns = p->simulated ? SIM_SECONDS_NS : SHM_SECONDS_NS;
    return 0;
}

/* L[,L...] */
static int choose_lengths(struct workload *w)
{
    const char *list = opts.range;
    for (char text[TEXT_WORD_LEN]; text_next(&list, text); w->length_count++) {
        uint64_t *length = &w->lengths[w->length_count];
        if (w->length_count == WORKLOAD_LENGTHS_MAX)
            return args_complain(&usage, "--range has at most %d lengths", WORKLOAD_LENGTHS_MAX);
        if (args_u64(text, length) || !*length || *length > workload_units(w))
            return args_complain(&usage, "--range: '%s' must be between 1 and %" PRIu64 " units", text, workload_units(w));
    }
    return 0;
}

/* The workload itself determines which locks and ranges are locked. */
static int choose_io(const struct bench_params *p, struct workload *w)
{
    for (unsigned io = IO_BTIO; io <= IO_IO500; io++)
        if (!strcmp(opts.io, workload_io_name((enum workload_io)io)))
            w->io = (enum workload_io)io;
    if (!w->io)
        return args_complain(&usage, "there is no workload '%s'; there are btio, oltp and io500", opts.io);
    const char *fault = workload_io_fault(w->io, p->clients, p->nodes);
    if (fault)
        return args_complain(&usage, "%s", fault);
    if (w->io == IO_OLTP && p->ops)
        return args_complain(&usage, "oltp's clients depend on each other: --seconds, not --ops");
    if (!p->simulated || opts.range || txns.locks_seen || opts.held_seen || p->partitioned)
        return args_complain(&usage, "--io is for --on sim, and chooses locks and ranges itself");
    if (w->units < 2 || w->units > ZIPF_ITEMS_MAX || (opts.max_units_seen && w->max_units < w->units))
        return args_complain(&usage, "--units must be between 2 and %" PRIu64 ", and no more than --max-units", ZIPF_ITEMS_MAX);
    w->locks = w->io == IO_OLTP ? OLTP_FILES : 1;
    w->lengths[w->length_count++] = 1;
    return 0;
}

static int choose_ranges(const struct bench_params *p, struct workload *w)
{
    if (opts.io)
        return choose_io(p, w);
    if (!opts.range)
        return opts.units_seen || opts.held_seen
                   ? args_complain(&usage, "--%s goes with --range", opts.units_seen ? "units" : "held")
                   : 0;
    if (p->partitioned || (p->simulated && w->held))
        return args_complain(&usage, "--range does not go with --%s%s", p->partitioned ? "lock-nodes" : "held",
                             p->partitioned ? "" : " in the simulation");
    if (w->units < 2 || w->units > ZIPF_ITEMS_MAX)
        return out_of_bounds("units", 2, ZIPF_ITEMS_MAX);
    if (w->held > BENCH_HELD_MAX || w->held > w->units / 4)
        return args_complain(&usage, "--held must be at most %d, and at most a quarter of --units", BENCH_HELD_MAX);
    if (!txns.locks_seen)
        w->locks = 1;
    return choose_lengths(w);
}

static int choose_knobs(struct bench_params *p)
{
    static struct knobs knobs[BENCH_DESIGNS_MAX];
    if (opts.tune && (p->lab || p->place))
        return args_complain(&usage, "--tune is not for --on lab, --on node-xdp or --space");
    p->knobs = knobs;
    return settings_tune(&usage, opts.tune, p->designs, p->design_count, knobs);
}

static int choose(struct bench_params *p)
{
    int status = choose_substrate(p);
    if (!status)
        status = choose_rack(p);
    if (!status)
        status = choose_designs(p);
    if (!status)
        status = choose_knobs(p);
    if (!status)
        status = choose_racks(p);
    if (!status)
        status = choose_members(p);
    if (!status)
        status = check_locks(p);
    if (!status)
        status = choose_rounds(p);
    if (!status)
        status = choose_ranges(p, &p->workload);
    return status ? status : bench_choose_txn(&usage, &txns, p);
}

/* ---- the run ---- */

static int run(struct bench_params *p, struct bench_result *results)
{
    struct progress progress;
    char why[BENCH_WHY_LEN] = "";
    uint64_t violations = 0;
    catch_signals();
    p->interrupted = &cli_signal;
    p->progress = &progress;
    progress_start(&progress, p->ops ? "operations" : p->simulated ? "virtual microseconds" : "seconds", bench_progress_total(p));
    int rc = bench_run(p, results, why);
    progress_end(&progress);
    p->progress = NULL;
    if (rc)
        return cli_say("bench", EXIT_UNAVAILABLE, "%s", why);
    int status = bench_print(p, results, opts.json, &violations);
    if (violations)
        cli_say("bench", 0, "%" PRIu64 " times two clients held a lock that only one may hold", violations);
    if (cli_signal)
        return 128 + cli_signal;
    return status ? status : violations ? EXIT_NO : 0;
}

static int run_bench(struct args_rest *rest)
{
    if (rest->count) {
        if (strcmp(rest->words[0], "compare") != 0)
            return args_complain(&usage, "unexpected argument '%s'", rest->words[0]);
        if (rest->count != 3)
            return args_complain(&usage, "'compare' takes two files that 'pawl bench --json' wrote");
        return bench_compare(rest->words[1], rest->words[2], opts.json);
    }
    int status = choose(&params);
    if (status)
        return status;
    if (txns.write)
        return bench_write_trace(&txns, &params);
    struct bench_result *results = calloc(BENCH_DESIGNS_MAX, sizeof *results);
    if (!results)
        return cli_say("bench", EXIT_UNAVAILABLE, "out of memory");
    status = run(&params, results);
    free(results);
    return status;
}

const struct command cmd_bench = {&usage, run_bench};
