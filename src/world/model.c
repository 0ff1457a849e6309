/* SPDX-License-Identifier: Apache-2.0 */
#include "world/model.h"

#include <errno.h>
#include <string.h>

#define MODEL_INFO(name, unit, what) [MODEL_##name] = {#name, unit, what},
static const struct model_field_info infos[MODEL_FIELDS] = {MODEL_FIELDS_EACH(MODEL_INFO)};

#define VALUE(field, v, from, k) [MODEL_##field] = {.value = (v), .source = (from), .kind = (k)}
#define STATED(field, v, from) VALUE(field, v, from, MODEL_STATED)
#define DERIVED(field, v, from) VALUE(field, v, from, MODEL_DERIVED)
#define ARTIFACT(field, v, from) VALUE(field, v, from, MODEL_ARTIFACT)
#define ASSUMED(field, v, from) VALUE(field, v, from, MODEL_ASSUMED)

/* ---- sources that several models share ---- */

#define HERD "Kalia et al., HERD, SIGCOMM'14"
#define KALIA "Kalia et al., Design Guidelines for High Performance RDMA Systems, USENIX ATC'16"
#define PCIE "Neugebauer et al., Understanding PCIe Performance, SIGCOMM'18: about half a microsecond per DMA read"
#define TSO "x86 store buffers hold some 50 entries and drain within a few cache misses: Sewell et al., x86-TSO, CACM 2010"
#define PASS "no source of this testbed says that they wait for atomics"
#define FENCE "chosen, so that a store can wait in its buffer while a verb comes and goes"
#define IBTA "InfiniBand Architecture Specification 1.2.1, 9.7.6.1.3: 4.096 us times 2^8; exponent chosen below common leases"

/* Values that no testbed states: the same in all models of testbeds, and of them those that are the same in all. */
#define COMMON                                                                                                                     \
    ASSUMED(rmw_window_ns, 150, PCIE "; a quarter to a third of it between the read's sampling and the write"),                    \
        ASSUMED(store_drain_ns, 200, TSO), OF_ALL
#define OF_ALL                                                                                                                     \
    ASSUMED(tear_ns, 50, "one cache line after another over PCIe: " PCIE),                                                         \
        ASSUMED(local_ns, 60, "transfer of a modified line between cores: Molka et al., ICPP'15, Haswell-EP memory performance"),  \
        ASSUMED(retransmit_ns, 1048576, IBTA),                                                                                     \
        ASSUMED(retries, 7, "ibv_modify_qp: retry_cnt has three bits and is commonly set to its maximum")

/* Clients that are threads with a core each, whose own time is not known; packet software as quick at agents as at servers. */
#define EVERY_WORD ASSUMED(local_hit_ns, 0, "each access is charged: so that interleavings vary")
#define OWN_CORES ASSUMED(client_cores, 0, "each client has a core"), ASSUMED(client_cycle_ns, 0, "not said")
#define BY_HOST ASSUMED(thread_pairs, 0, "no source of this testbed says that threads are connected in pairs")
#define ANY_CORE ASSUMED(server_bound, 0, "no source of this testbed says that clients stay with a core")
#define AGENTS ASSUMED(agent_service_ns, 444, "as a lock server: NetLock 5")
#define NO_TURNS ASSUMED(message_ns, 0, "connections to all clients"), ASSUMED(reply_ns, 0, "replies are sent and forgotten")
#define BY_SWITCH ASSUMED(own_packet_ns, 0, "packets to the own host go through the switch")
#define NEUTRAL EVERY_WORD, OWN_CORES, AGENTS, NO_TURNS, BY_SWITCH, BY_HOST, ANY_CORE

/* Loopback and READs of one address, where the testbed says nothing of them. */
#define UNSAID ASSUMED(read_same_ns, 0, PASS), ASSUMED(loopback_ns, 450, "propagation without cable and switch")

#define CONTEXTS ASSUMED(contexts, 450, "ALock 2: message rate falls beyond 450 connections")

/* NICs of the mlx5 generation: their common values, and those with one 100 Gb/s port. */
#define MLX5_ATOMICS                                                                                                               \
    ASSUMED(inbound_atomic_ns, 20, "spread atomics near 50 M/s on mlx5: " KALIA ", Connect-IB"),                                   \
        ASSUMED(inbound_atomic16_ns, 20, "as inbound_atomic_ns"),                                                                  \
        ASSUMED(atomic_same_ns, 446, "one counter: 2.24 M/s: " KALIA ", sequencer")
#define MLX5_COMMON(read, loopback)                                                                                                \
    ASSUMED(inbound_read_ns, read, "READs about a quarter below WRITEs: " KALIA ", Connect-IB"),                                   \
        ASSUMED(loopback_service_ns, loopback, "each verb crosses PCIe twice: twice outbound and inbound"), CONTEXTS,              \
        ASSUMED(context_miss_ns, 100, PCIE ", overlapped by several outstanding reads")
#define MLX5_NIC                                                                                                                   \
    ASSUMED(outbound_ns, 10, "ConnectX-5 data sheet: up to 200 M messages/s; half of it for verbs with an answer"),                \
        ASSUMED(inbound_write_ns, 10, "as outbound_ns"), MLX5_COMMON(13, 40)

#define CONNECTX3_NIC                                                                                                              \
    ARTIFACT(propagation_ns, 2350,                                                                                                 \
             "results of ALock's artifact, commit dd622fe: WRITEs take 3.6 us to a near node and 6.0 to a far one; 7 of 10 nodes " \
             "are near each other, so 4.9 us in the mean; half of it less service and jitter"),                                    \
        ARTIFACT(loopback_ns, 780, "the same: 1.8 us for a WRITE through the own NIC; half of it less service"),                   \
        ASSUMED(outbound_ns, 28, "as inbound_write_ns"), ASSUMED(read_same_ns, 0, PASS),                                           \
        ASSUMED(inbound_read_ns, 38, "ConnectX-3: 26 M READs/s: " HERD),                                                           \
        ASSUMED(inbound_write_ns, 28, "ConnectX-3: 35 M WRITEs/s: " HERD),                                                         \
        ASSUMED(inbound_atomic_ns, 370, "ConnectX-3: 2.7 M atomics/s, whatever the address: " KALIA),                              \
        ASSUMED(inbound_atomic16_ns, 370, "as inbound_atomic_ns"), ASSUMED(atomic_same_ns, 370, "as inbound_atomic_ns"),           \
        ASSUMED(context_miss_ns, 200, PCIE ", PCIe 3.0 x8 and fewer outstanding reads")

#define QM8700_SWITCH                                                                                                              \
    ASSUMED(switch_ns, 130, "QM8700 series data sheet"),                                                                           \
        ASSUMED(switch_packet_ps, 64, "QM8700 series data sheet: 15.8 G messages/s")

static const struct model models[] = {
    {
        .name = "default",
        .about = "a small rack of today: two clients' hosts and one server behind one switch, 100 Gb/s NICs; not a paper's testbed",
        .values = {COMMON, NEUTRAL, MLX5_NIC, MLX5_ATOMICS, UNSAID,
                   ASSUMED(propagation_ns, 950, "a 2 us round trip: ShiftLock 1, Citron 3.5.5"),
                   ASSUMED(jitter_ns, 100, "a few per cent of the round trip"),
                   ASSUMED(poll_ns, 1000, "half a round trip, so that polling does not fill the NIC"),
                   ASSUMED(server_cores, 8, "a lock server of today"),
                   ASSUMED(server_service_ns, 444, "NetLock 5: 18 M requests/s on 8 cores"),
                   ASSUMED(host_packet_ns, 1500, "kernel-bypass packet I/O: a 7 us round trip less the switch: NetLock 6.2"),
                   ASSUMED(nic_packet_ns, 10, "100 Gb/s at minimal frames is 149 M packets/s; DPDK reaches about 100 M"),
                   ASSUMED(switch_ns, 800, "NetLock 6.2: under 1 us"), ASSUMED(switch_packet_ps, 250, "NetLock 6.2: 4 G packets/s"),
                   ASSUMED(client_nodes, 2, "chosen"), ASSUMED(server_nodes, 1, "chosen"), ASSUMED(clients, 64, "chosen"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "ShiftLock 4.1")},
    },
    {
        .name = "shiftlock-testbed",
        .about = "6 machines, one of them the lock server; ConnectX-5 100 Gb/s, QM8790 InfiniBand switch",
        .values =
            {COMMON,
             EVERY_WORD,
             OWN_CORES,
             AGENTS,
             BY_SWITCH,
             STATED(thread_pairs, 0,
                    "3.2: clients are not connected with each other but by dynamic connections; one to the server"),
             MLX5_NIC,
             QM8700_SWITCH,
             DERIVED(inbound_atomic16_ns, 33,
                     "4.6 Table 3, RI: 29 to 30 M atomics/s from 120 clients on; 4.3: the NIC is the limit"),
             DERIVED(
                 inbound_atomic_ns, 33,
                 "4.2: where locks are drawn alike, designs with 8-byte atomics (CAS, DSLR, MCS) have the goodput of ShiftLock; "
                 "4.6 calls 8 bytes quicker, without a number"),
             DERIVED(atomic_same_ns, 262,
                     "2.3: 240 clients make 15.5 K cycles/s on one lock, 269 ns for an atomic; Table 4: 413 us for 6.8 retries of "
                     "240 clients, 254 ns"),
             STATED(message_ns, 1000, "3.2: up to 1 us until a dynamic connection turns to another client"),
             ARTIFACT(reply_ns, 2050, "server.rs: a handler waits until its reply is delivered; Table 3: a round trip of 2.05 us"),
             STATED(propagation_ns, 982, "4.6 Table 3: first atomic 2.05 us with 5 clients; half of it less service and jitter"),
             ASSUMED(read_same_ns, 13,
                     "4.6: the NIC queues up accesses to one address, READs and atomics; how long a READ keeps it is not said: "
                     "as inbound_read_ns"),
             ASSUMED(jitter_ns, 50, "InfiniBand, one switch: a few per cent of the round trip"),
             ASSUMED(loopback_ns, 482, "4.1: messages within a node are compensated by 1 us, half of it per way"),
             ARTIFACT(poll_ns, 1862, "client.rs: 4,096 cycles at 2.2 GHz between two READs of a client that waits"),
             ARTIFACT(server_cores, 47, "server.rs: 47 handlers"),
             ARTIFACT(server_bound, 1, "server.rs: a client stays with the handler of its number"),
             ASSUMED(server_service_ns, 200, "Kalia et al., eRPC, NSDI'19: 10 M small RPCs/s per core, and as much for the lock"),
             ASSUMED(host_packet_ns, 1100, "two-sided verbs over the same network"),
             ASSUMED(nic_packet_ns, 10, "as outbound_ns"),
             STATED(client_nodes, 5, "4.1"),
             STATED(server_nodes, 1, "4.1"),
             STATED(clients, 240, "4.1: one on each of 48 x 5 cores"),
             STATED(lease_ns, 10 * NS_PER_MS, "4.1")},
    },
    {
        .name = "alock-testbed",
        .about = "20 CloudLab machines, locks partitioned over all of them; E5-2450, ConnectX-3",
        .values = {COMMON,
                   ASSUMED(local_hit_ns, 5, "a hit in the core's own cache, and the instructions around it: Molka et al., ICPP'15"),
                   CONNECTX3_NIC,
                   AGENTS,
                   NO_TURNS,
                   BY_SWITCH,
                   ANY_CORE,
                   ARTIFACT(thread_pairs, 1,
                            "main.cc, rdma.h: a thread is a peer of every thread of every node; 6.2 counts 1,280 at a NIC, of 10 "
                            "nodes with 8 threads"),
                   ASSUMED(client_cores, 0, "6: a thread each"),
                   ARTIFACT(client_cycle_ns, 200,
                            "results, commit dd622fe: throughput against mean latency; the driver's own time"),
                   ASSUMED(jitter_ns, 100, "a few per cent of the round trip"),
                   ASSUMED(loopback_service_ns, 132,
                           "2: loopback drains PCIe; each verb crosses it twice: outbound and inbound, doubled"),
                   STATED(contexts, 450, "2 and 6.2: message rate falls beyond 450 connections"),
                   ASSUMED(poll_ns, 0, "the spinlock repeats its CAS at once (6)"),
                   STATED(server_cores, 8, "6: 8 cores, 16 threads"),
                   ASSUMED(server_service_ns, 444, "NetLock 5, a CPU of the same family"),
                   ASSUMED(host_packet_ns, 1500, "as the default"),
                   ASSUMED(nic_packet_ns, 28, "as outbound_ns"),
                   ASSUMED(switch_ns, 200, "SX6036 data sheet: 170 ns and more"),
                   ASSUMED(switch_packet_ps, 250, "not reached"),
                   STATED(client_nodes, 20, "6: 5, 10 and 20 are used"),
                   STATED(server_nodes, 20, "6: locks partitioned equally across nodes"),
                   STATED(clients, 240, "6.2: up to 240 threads"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "ShiftLock 4.1; the paper has none")},
    },
    {
        .name = "citron-testbed",
        .about = "4 machines, one of them the lock server; ConnectX-6 on PCIe 3.0 x16, QM8790 InfiniBand switch",
        .values = {COMMON, NEUTRAL, QM8700_SWITCH, UNSAID, MLX5_ATOMICS, MLX5_COMMON(12, 36),
                   STATED(propagation_ns, 950, "3.5.5: a round trip of about 2 us; half of it less service and jitter"),
                   ASSUMED(jitter_ns, 50, "InfiniBand, one switch: a few per cent of the round trip"),
                   ASSUMED(outbound_ns, 9, "ConnectX-6 data sheet: 215 M messages/s; half of it for verbs with an answer"),
                   ASSUMED(inbound_write_ns, 9, "as outbound_ns"), ASSUMED(poll_ns, 0, "3.5: clients spin with READs"),
                   STATED(server_cores, 18, "4.1: 18 RPC server threads"),
                   ASSUMED(server_service_ns, 200,
                           "Kalia et al., eRPC, NSDI'19: 10 M small RPCs/s per core; 2.2's handler takes 100 ns"),
                   ASSUMED(host_packet_ns, 1100, "eRPC over the same network: 2.3 us round trips, NSDI'19"),
                   ASSUMED(nic_packet_ns, 9, "as outbound_ns"), STATED(client_nodes, 3, "4.1"), STATED(server_nodes, 1, "4.1"),
                   STATED(clients, 192, "4.1: 3 x 64 threads"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "3.10: several milliseconds, 10 as an example")},
    },
    {
        .name = "fisslock-testbed",
        .about = "4 machines as 8 nodes of one CPU and one ConnectX-5 each, Tofino switch (wedge100BF-32x)",
        .values = {COMMON,
                   EVERY_WORD,
                   MLX5_NIC,
                   MLX5_ATOMICS,
                   UNSAID,
                   AGENTS,
                   NO_TURNS,
                   BY_HOST,
                   ANY_CORE,
                   ARTIFACT(own_packet_ns, 120,
                            "ParLock net.cc, lock.cc: a client's thread decides locks of its own host itself, under a mutex; two "
                            "transfers of a line each way (local_ns)"),
                   ARTIFACT(client_cores, 5, "conf.h, microbench.cc: clients are coroutines of the 5 sending cores of a node"),
                   DERIVED(client_cycle_ns, 3600, "7.7: 1.99 times 5.65 M cycles/s by 40 sending cores"),
                   ASSUMED(propagation_ns, 1200, "as ShiftLock's, with an Ethernet switch"),
                   ASSUMED(jitter_ns, 200, "DPDK polls and sends in batches (2.3)"),
                   ASSUMED(poll_ns, 0, "not used"),
                   STATED(server_cores, 8, "7.1: 8 cores as lock managers, on one server or one on each node"),
                   DERIVED(server_service_ns, 1300, "7.5: SrvLock has about 3 M cycles/s of two messages each, on 8 cores"),
                   ASSUMED(host_packet_ns, 1500, "DPDK: NetLock 6.2 has a 7 us round trip with an older NIC"),
                   ASSUMED(nic_packet_ns, 10, "100 Gb/s at minimal frames is 149 M packets/s; DPDK reaches about 100 M"),
                   ASSUMED(switch_ns, 800, "NetLock 6.2: under 1 us"),
                   ASSUMED(switch_packet_ps, 250, "NetLock 6.2: more than 4 G packets/s"),
                   STATED(client_nodes, 8, "7.1"),
                   STATED(server_nodes, 8, "7.1: one agent core on each node"),
                   STATED(clients, 160, "7.3; TPC-C has 1,200 (7.4)"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "7.4: requests abort after 10 ms")},
    },
    {
        .name = "netlock-testbed",
        .about = "12 servers with a 40 Gb/s XL710 each, Tofino switch; for DSLR and DrTM ConnectX-3 of the same age",
        .values = {COMMON, NEUTRAL, CONNECTX3_NIC, CONTEXTS,
                   ASSUMED(jitter_ns, 500, "6.2: p99 is 4 us above the median; an eighth of it on each leg"),
                   ASSUMED(loopback_service_ns, 132, "each verb crosses PCIe twice: outbound and inbound, doubled"),
                   ASSUMED(poll_ns, 0, "DSLR and DrTM read again at once"), STATED(server_cores, 8, "6.1"),
                   STATED(server_service_ns, 444, "5: 18 M requests/s on 8 cores"),
                   STATED(host_packet_ns, 2900,
                          "6.2: 7.1 us on average, dominated by client software and NIC; half of it less the switch"),
                   STATED(nic_packet_ns, 55, "5: a client generates 18 M requests/s"), ASSUMED(switch_ns, 800, "6.2: under 1 us"),
                   STATED(switch_packet_ps, 250, "6.2: more than 4 G packets/s"),
                   STATED(client_nodes, 10, "6.3: 10 + 2, also 6 + 6"), STATED(server_nodes, 2, "6.3"),
                   ARTIFACT(clients, 40, "console.py: 4 sending cores on each of 10 hosts"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "ShiftLock 4.1; the paper gives no figure")},
    },
    {
        .name = "quick",
        .about = "no testbed: a fabric as quick as local memory, and store buffers that drain slowly; here a missing fence shows",
        .values = {OF_ALL,
                   UNSAID,
                   CONTEXTS,
                   NEUTRAL,
                   ASSUMED(inbound_atomic16_ns, 5, FENCE),
                   ASSUMED(propagation_ns, 5, FENCE),
                   ASSUMED(jitter_ns, 20, FENCE),
                   ASSUMED(outbound_ns, 5, FENCE),
                   ASSUMED(inbound_read_ns, 5, FENCE),
                   ASSUMED(inbound_write_ns, 5, FENCE),
                   ASSUMED(inbound_atomic_ns, 5, FENCE),
                   ASSUMED(atomic_same_ns, 10, FENCE),
                   ASSUMED(rmw_window_ns, 5, FENCE),
                   ASSUMED(store_drain_ns, 2000, FENCE),
                   ASSUMED(loopback_service_ns, 40, "as the default"),
                   ASSUMED(context_miss_ns, 100, "as the default"),
                   ASSUMED(poll_ns, 1000, "as the default"),
                   ASSUMED(server_cores, 8, "as the default"),
                   ASSUMED(server_service_ns, 444, "as the default"),
                   ASSUMED(host_packet_ns, 1500, "as the default"),
                   ASSUMED(nic_packet_ns, 10, "as the default"),
                   ASSUMED(switch_ns, 800, "as the default"),
                   ASSUMED(switch_packet_ps, 250, "as the default"),
                   ASSUMED(client_nodes, 2, "chosen"),
                   ASSUMED(server_nodes, 1, "chosen"),
                   ASSUMED(clients, 64, "chosen"),
                   ASSUMED(lease_ns, 10 * NS_PER_MS, "ShiftLock 4.1")},
    },
};

const struct model *model_at(unsigned index)
{
    return index < countof(models) ? &models[index] : NULL;
}

const struct model *model_find(const char *name)
{
    for (unsigned i = 0; i < countof(models); i++)
        if (!strcmp(models[i].name, name))
            return &models[i];
    return NULL;
}

const struct model_field_info *model_field_info(enum model_field field)
{
    assert(field < MODEL_FIELDS);
    return &infos[field];
}

const char *model_kind_name(enum model_kind kind)
{
    static const char *const names[] = {
        [MODEL_ASSUMED] = "assumed", [MODEL_STATED] = "stated", [MODEL_DERIVED] = "derived", [MODEL_ARTIFACT] = "artifact"};
    return names[kind];
}

int model_set(struct model *m, const char *field, uint64_t value)
{
    for (unsigned i = 0; i < MODEL_FIELDS; i++)
        if (!strcmp(infos[i].name, field)) {
            m->values[i] = (struct model_value){.value = value, .source = "set by the caller", .kind = MODEL_ASSUMED};
            return 0;
        }
    return -ENOENT;
}

void model_each(const struct model *m,
                void (*each)(void *ctx, const struct model_field_info *info, const struct model_value *value), void *ctx)
{
    for (unsigned i = 0; i < MODEL_FIELDS; i++)
        each(ctx, &infos[i], &m->values[i]);
}
