/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric of the simulated cluster.
 *
 * A verb's way: the client's NIC sends it (outbound rate) - propagation - the target's NIC serves it (inbound rate, spacing
 * of atomics on one address) - it takes effect on the node's memory - propagation - the task goes on. Verbs of one
 * endpoint to one node take effect in the order that the capabilities promise; everything else races.
 *
 * Adversities beyond those of common simulators
 *   tearing    a READ or WRITE of more than 8 bytes may take effect in two parts, some time apart;
 *   windows    without FAB_CPU_ATOMIC64 or 128 an atomic reads first and writes rmw_window_ns later: what the CPU or a plain
 *              WRITE put there in between is lost;
 *   buffers    a local store stays in the endpoint's store buffer for a while (x86-TSO), seen by its own loads only;
 *   passing    without FAB_ORDER_MIXED or FAB_ORDER_WRITE_AFTER_READ a verb may linger at its node, and later ones of a
 *              batch pass it wherever their order is not promised;
 *   stragglers a verb whose completion was an error may take effect after the error was returned, though before any later
 *              verb of the endpoint; verbs in flight of a crashed process still arrive, until it is fenced.
 *
 * Failures as the caller sees them
 *   loss       a verb is sent again after retransmit_ns; after `retries` of them it ends with -FAB_EUNKNOWN;
 *   partition  the same, for as long as the path is blocked;
 *   server down  -FAB_EUNKNOWN after all retries; once it has restarted, every endpoint made before gets -FAB_EFENCED from
 *              that node until sim_ep_reconnect;
 *   fenced     -FAB_EFENCED from then on. What a CPU does (fab_local_*) no fence reaches.
 *
 * An endpoint belongs to one generation of a process. Its id is the process's, shared by all endpoints of the process; the
 * proof for fab_fence is the process's generation. A task uses one endpoint: the store buffer is the endpoint's. */
#ifndef PAWL_FABRIC_SIM_H
#define PAWL_FABRIC_SIM_H

#include "fabric/fabric.h"
#include "world/sim.h"

struct sim_fabric;

/* Default capabilities of the fabric; messages it always has, FAB_SHARED_CLOCK and FAB_KERNEL_LIFE never. */
#define SIM_FABRIC_CAPS (FAB_MASKED | FAB_ATOMIC128 | FAB_ORDERED)

/* Fabrics that break their promises, on purpose: the oracle must catch what designs do on them. */
enum sim_fabric_mistakes {
    SIM_FABRIC_UNORDERED = 1 << 0, /* verbs pass each other although the capabilities promise their order */
    SIM_FABRIC_UNFENCED = 1 << 1,  /* fab_op.fence is ignored */
    SIM_FABRIC_SPLIT = 1 << 2,     /* masked verbs read, and write some time later, as if built from a READ and a WRITE */
    SIM_FABRIC_MISTAKES = (1 << 3) - 1,
};

/* A fault at one request of a process, which a test chooses: to try every request in turn. */
enum sim_strike_how {
    SIM_STRIKE_LOST,   /* it never takes effect, and its outcome is unknown */
    SIM_STRIKE_UNSURE, /* it takes effect, and its outcome is unknown */
    SIM_STRIKE_STALL,  /* the process pauses before it, for longer than a lease */
    SIM_STRIKE_KINDS
};

struct sim_strike {
    uint32_t process; /* its id */
    uint64_t request; /* the number of the request, from 1, over all lives of the process */
    enum sim_strike_how how;
    uint64_t seen; /* requests until now */
    /* Not null: whether the next request of any process is struck, and in which way; until faults end. */
    bool (*choose)(struct sim_strike *s, uint32_t process);
};

/* Null if there is no memory. One per simulation, made before the harness adds its own hooks. */
struct sim_fabric *sim_fabric_new(struct sim *sim, uint32_t caps);
void sim_fabric_break(struct sim_fabric *fabric, uint32_t mistakes);
void sim_fabric_free(struct sim_fabric *fabric);

/* The strikes are the caller's, and live as long as the fabric. */
void sim_fabric_strike(struct sim_fabric *fabric, struct sim_strike *strikes, unsigned count);

/* An endpoint of a living process, connected to every host that exists or comes. Null if there is no memory. */
struct fab_ep *sim_ep_new(struct sim_fabric *fabric, struct sim_process *process);

/* The endpoint is used so seldom that its connections' contexts are never in a NIC's cache and take no place of others there. To be
 * called before its first verb. */
void sim_ep_use_rarely(struct fab_ep *fab);

/* The endpoint receives the messages of senders whose number leaves that remainder; else any endpoint of a process receives any of
 * its messages. */
void sim_ep_receive_from(struct fab_ep *fab, uint32_t remainder, uint32_t divisor);

/* Its connections leave the NICs' caches of contexts. The next verb on one brings it back. */
void sim_ep_forget_contexts(struct fab_ep *fab);

/* No task uses it any more. What it has in flight still takes effect. Endpoints of a crashed process are freed this way
 * too, or with the fabric. */
void sim_ep_free(struct fab_ep *fab);

/* Connects to the hosts as they are now, after restarts. A fenced process stays fenced. */
void sim_ep_reconnect(struct fab_ep *fab);

/* The same of one host. */
void sim_ep_reconnect_to(struct fab_ep *fab, uint32_t host);

/* A node's memory as a debugger or an oracle sees it: no time passes, no fault strikes. */
void *sim_fabric_peek(struct sim_fabric *fabric, fab_addr addr, uint64_t len);

#endif
