/* SPDX-License-Identifier: Apache-2.0 */
/* Packets in the simulated cluster: hosts around one switch.
 *
 * A packet's way: the sender's NIC (packet rate) and software - the switch (line rate, latency), whose program sees every
 * packet and says what leaves - the receiver's NIC and software - a handler, at once or served by cores with a queue.
 * Without faults packets between two hosts keep their order. The fault layer loses, doubles, delays and reorders them on
 * both legs, blocks paths, and crashes the switch.
 *
 * Handlers and the program are called between events, not in a task: they must not wait. A handler may wake a task. */
#ifndef PAWL_WIRE_SIM_H
#define PAWL_WIRE_SIM_H

#include "world/sim.h"

#define SIM_PACKET_MAX 1500u          /* the usual MTU */
#define SIM_WIRE_SWITCH SIM_HOSTS_MAX /* the switch itself, as a host id */
#define SIM_WIRE_QUEUE_MAX 4096u      /* requests that wait for a server's cores: a NIC's receive rings */

struct sim_addr {
    uint32_t host;
    uint16_t port;
};

struct sim_packet {
    struct sim_addr from, to;
    uint32_t len;
    uint64_t queued_by; /* the generation of the process in whose queue it waits */
    struct sim_packet *next_free;
    uint8_t data[SIM_PACKET_MAX];
};

struct sim_wire;

typedef void (*sim_wire_handler)(void *ctx, const void *packet, uint32_t len, struct sim_addr from);

/* The program of the switch. The packet is its to change; whatever it passes to sim_switch_emit leaves, any number of
 * times. A program that emits nothing has dropped the packet. */
struct sim_switch_program {
    void *ctx;
    void (*packet)(void *ctx, struct sim_wire *wire, struct sim_packet *packet);
    void (*crash)(void *ctx); /* its state is lost */
};

/* Null if there is no memory. One per simulation, made before the harness adds its own hooks. */
struct sim_wire *sim_wire_new(struct sim *sim);
void sim_wire_free(struct sim_wire *wire);

/* Null: the switch forwards. Without a program it does, too. */
void sim_wire_program(struct sim_wire *wire, const struct sim_switch_program *program);

/* Packets of that port to and from its own host do not leave the host, where the model says so (own_packet_ns). */
void sim_wire_own(struct sim_wire *wire, uint16_t port);

/* While the switch is down, packets that are not for itself go around it: there is another. */
void sim_wire_redundant(struct sim_wire *wire);

/* Packets for that port of the process's host go to the handler for as long as this generation of the process lives.
 * cores 0: at once; else each takes service_ns of one of that many cores, first come, first served.
 * 0, -EADDRINUSE or -ENOMEM. */
int sim_wire_bind(struct sim_wire *wire, struct sim_process *process, uint16_t port, unsigned cores, uint64_t service_ns,
                  sim_wire_handler handler, void *ctx);

/* From a host. Never fails: what cannot be sent is lost. */
void sim_wire_send(struct sim_wire *wire, struct sim_addr from, struct sim_addr to, const void *data, uint32_t len);

/* From the switch's program: this packet, as it is now, leaves for packet->to. */
void sim_switch_emit(struct sim_wire *wire, const struct sim_packet *packet);

/* Sees every packet that leaves a host or the switch (`down`). */
typedef void (*sim_wire_tap)(void *ctx, const struct sim_packet *packet, bool down);
void sim_wire_watch(struct sim_wire *wire, sim_wire_tap tap, void *ctx);

/* A packet without a sender, such as a recorded one: it arrives at the switch, or at packet->to (`down`), at that time. */
void sim_wire_inject(struct sim_wire *wire, const struct sim_packet *packet, bool down, uint64_t at_ns);

/* Faults by hand. */
void sim_switch_crash(struct sim_wire *wire);
void sim_switch_restart(struct sim_wire *wire);

struct sim_wire_counts {
    uint64_t sent, delivered, switched, emitted, dropped, queued_max;
};

const struct sim_wire_counts *sim_wire_counts(const struct sim_wire *wire);

#endif
