/* SPDX-License-Identifier: Apache-2.0 */
/* Models: the numbers of the simulated cluster, each with its source.
 *
 * One table, so that a figure can be traced to what it rests on. A value is stated by the paper whose testbed the model is named
 * after; or derived from numbers of that paper, in which case the claims that have these numbers are inputs and get no verdict; or
 * found in the paper's artifact; or assumed, from a public source. No value is fitted to a result. */
#ifndef PAWL_WORLD_MODEL_H
#define PAWL_WORLD_MODEL_H

#include "lib/base.h"

/* name, unit, what it is */
#define MODEL_FIELDS_EACH(X)                                                                                                       \
    X(propagation_ns, "ns", "one way between two hosts, for a verb: wires, switch, PCIe; not the NICs' service times")             \
    X(jitter_ns, "ns", "added to each way, uniform between 0 and this")                                                            \
    X(outbound_ns, "ns", "NIC occupied by sending one verb")                                                                       \
    X(inbound_read_ns, "ns", "NIC occupied by serving one READ")                                                                   \
    X(inbound_write_ns, "ns", "NIC occupied by serving one WRITE or message")                                                      \
    X(inbound_atomic_ns, "ns", "NIC occupied by serving one atomic, when addresses differ")                                        \
    X(inbound_atomic16_ns, "ns", "the same, of 16 bytes")                                                                          \
    X(atomic_same_ns, "ns", "from one atomic on an address to the next on the same")                                               \
    X(read_same_ns, "ns", "a READ waits behind the atomics on its address, and keeps it for so long; 0: it passes them")           \
    X(rmw_window_ns, "ns", "between an atomic's read and its write, during which the CPU can come between")                        \
    X(tear_ns, "ns", "between the parts of a READ or WRITE of more than 8 bytes that is torn")                                     \
    X(loopback_ns, "ns", "one way through the NIC to the own host")                                                                \
    X(loopback_service_ns, "ns", "PCIe and NIC occupied by one verb to the own host, beside serving it")                           \
    X(contexts, "connections", "whose context fits the NIC's cache")                                                               \
    X(context_miss_ns, "ns", "NIC occupied by fetching a context")                                                                 \
    X(thread_pairs, "0 or 1", "1: each thread has a connection to each thread of a host; 0: one to the host")                      \
    X(local_ns, "ns", "a CPU's access to a word that other cores use too")                                                         \
    X(local_hit_ns, "ns", "the same, where no other core has used its cache line meanwhile; 0: as local_ns")                       \
    X(store_drain_ns, "ns", "a store stays in its core's store buffer for up to this")                                             \
    X(poll_ns, "ns", "pause between two READs of a word that is waited for")                                                       \
    X(retransmit_ns, "ns", "until a lost verb is sent again")                                                                      \
    X(retries, "times", "until a connection is given up")                                                                          \
    X(server_cores, "cores", "of a lock server")                                                                                   \
    X(server_service_ns, "ns", "of one core for one request")                                                                      \
    X(server_bound, "0 or 1", "1: a core serves the clients of its number, by messages; 0: any core serves any client")            \
    X(reply_ns, "ns", "more of that core, until its reply is reported delivered: lock servers by messages; 0: it does not wait")   \
    X(agent_service_ns, "ns", "of a host's core for one packet to its agents")                                                     \
    X(client_cores, "cores", "of a host, on which its clients take turns; 0: each client has one of its own")                      \
    X(client_cycle_ns, "ns", "of a client's core for one lock and unlock")                                                         \
    X(message_ns, "ns", "more for a message to another client: the connection turns to it")                                        \
    X(host_packet_ns, "ns", "one way through a host's packet software and NIC")                                                    \
    X(own_packet_ns, "ns", "a packet between a client and a lock server of its own host; 0: it goes through the switch")           \
    X(nic_packet_ns, "ns", "NIC occupied by one packet")                                                                           \
    X(switch_ns, "ns", "through the switch's pipeline")                                                                            \
    X(switch_packet_ps, "ps", "switch occupied by one packet: its line rate")                                                      \
    X(client_nodes, "hosts", "of the paper's testbed that run clients")                                                            \
    X(server_nodes, "hosts", "that hold locks; may be the same ones")                                                              \
    X(clients, "clients", "at most, all hosts together")                                                                           \
    X(lease_ns, "ns", "of a session")

#define MODEL_ENUM(name, unit, what) MODEL_##name,
enum model_field { MODEL_FIELDS_EACH(MODEL_ENUM) MODEL_FIELDS };
#undef MODEL_ENUM

struct model_value {
    uint64_t value;
    const char *source;
    enum model_kind { MODEL_ASSUMED, MODEL_STATED, MODEL_DERIVED, MODEL_ARTIFACT } kind;
};

struct model {
    const char *name;
    const char *about;
    struct model_value values[MODEL_FIELDS];
};

struct model_field_info {
    const char *name, *unit, *what;
};

static inline uint64_t model_get(const struct model *m, enum model_field field)
{
    return m->values[field].value;
}

/* Null if there is none of that name. */
const struct model *model_find(const char *name);

/* The models in order, null after the last. */
const struct model *model_at(unsigned index);

const struct model_field_info *model_field_info(enum model_field field);
const char *model_kind_name(enum model_kind kind); /* "assumed", ... */

/* For sensitivity runs on a copy: the source then says that the caller set it. -ENOENT if there is no such field. */
int model_set(struct model *m, const char *field, uint64_t value);

/* Calls `each` for every field, in the order of the table. */
void model_each(const struct model *m,
                void (*each)(void *ctx, const struct model_field_info *info, const struct model_value *value), void *ctx);

#endif
