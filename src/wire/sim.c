/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORT_PAGES 256u /* of as many ports each: few hosts have more than a handful */
#define PS_PER_NS 1000u
/* A reordered packet comes as late as it takes to be overtaken, a delayed one much later; in passages of a host. */
#define REORDER_WAYS 4
#define DELAY_WAYS 500

struct port {
    struct sim_process *process;
    uint64_t generation;
    sim_wire_handler handler;
    void *ctx;
    uint64_t service_ns;
    unsigned cores, queued;
    uint64_t core_free_ns[]; /* one per core */
};

struct sim_wire {
    struct sim *sim;
    struct sim_switch_program program;
    bool switch_up, redundant;
    uint16_t own_port; /* see sim_wire_own; 0: none */
    uint64_t switch_free_ps;
    unsigned switch_pending; /* packets that wait for the pipeline: the next one does not overtake them */
    uint64_t up_ns[SIM_HOSTS_MAX], down_ns[SIM_HOSTS_MAX]; /* the last packet's arrival on each leg: the next is not earlier */
    struct port **ports[SIM_HOSTS_MAX][PORT_PAGES];
    struct sim_packet *free_packets, **packets; /* all that were ever made, to be freed */
    unsigned packet_count, packet_room;
    struct sim_wire_counts counts;
    sim_wire_tap tap; /* null: none */
    void *tap_ctx;
};

/* ---- packets ---- */

static struct sim_packet *packet_new(struct sim_wire *wire, const struct sim_packet *like, const void *data)
{
    struct sim_packet *packet = wire->free_packets;
    if (packet) {
        wire->free_packets = packet->next_free;
    } else {
        if (wire->packet_count == wire->packet_room) {
            size_t bytes = wire->packet_room * sizeof(struct sim_packet *);
            wire->packet_room = wire->packet_room ? 2 * wire->packet_room : 256;
            wire->packets = sim_realloc(wire->packets, bytes, wire->packet_room * sizeof(struct sim_packet *));
        }
        packet = sim_alloc(sizeof *packet);
        if (!wire->packets || !packet)
            abort(); /* the simulation cannot go on */
        wire->packets[wire->packet_count++] = packet;
    }
    packet->from = like->from;
    packet->to = like->to;
    packet->len = like->len;
    memcpy(packet->data, data, like->len);
    return packet;
}

static void packet_done(struct sim_wire *wire, struct sim_packet *packet)
{
    packet->next_free = wire->free_packets;
    wire->free_packets = packet;
}

/* ---- one leg of the way, with the faults that strike on it ---- */

static void leg_send(struct sim_wire *wire, struct sim_packet *packet, uint64_t arrival_ns, uint64_t *last_ns, sim_event_fn arrive)
{
    struct sim *sim = wire->sim;
    uint64_t way_ns = model_get(sim->model, MODEL_host_packet_ns);
    if (sim_fault_draw(sim, FAULT_LOSS)) {
        wire->counts.dropped++;
        packet_done(wire, packet);
        return;
    }
    if (sim_fault_draw(sim, FAULT_DELAY))
        arrival_ns += sim_fault_span(sim, way_ns * DELAY_WAYS);
    const void *lane = last_ns;
    if (sim_fault_draw(sim, FAULT_REORDER)) {
        lane = packet;
        arrival_ns += sim_fault_span(sim, way_ns * REORDER_WAYS);
    } else {
        *last_ns = arrival_ns = max_u64(arrival_ns, *last_ns);
    }
    if (sim_fault_draw(sim, FAULT_DUPLICATE)) {
        uint64_t again_ns = arrival_ns + sim_fault_span(sim, way_ns * REORDER_WAYS);
        struct sim_packet *again = packet_new(wire, packet, packet->data);
        sim_at_lane(sim, again_ns, again, arrive, wire, (uint64_t)(uintptr_t)again);
    }
    sim_at_lane(sim, arrival_ns, lane, arrive, wire, (uint64_t)(uintptr_t)packet);
}

static uint64_t jitter_ns(struct sim *sim)
{
    return sim_draw(sim, model_get(sim->model, MODEL_jitter_ns) + 1);
}

/* ---- at the receiver ---- */

static struct port *port_of(const struct sim_wire *wire, struct sim_addr addr)
{
    struct port *const *page = wire->ports[addr.host][addr.port / PORT_PAGES];
    return page ? page[addr.port % PORT_PAGES] : NULL;
}

static bool port_alive(const struct port *port)
{
    return port && port->process->alive && port->process->generation == port->generation && port->process->host->up;
}

/* The core, if any, is done with it. */
static void packet_handle(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    struct sim *sim = wire->sim;
    struct sim_packet *packet = (struct sim_packet *)(uintptr_t)tag;
    struct port *port = port_of(wire, packet->to);
    if (port_alive(port) && (!port->cores || port->generation == packet->queued_by)) { /* a queue ends with its process */
        struct sim_process *process = port->process;
        uint64_t paused_until_ns = max_u64(process->paused_until_ns, process->host->paused_until_ns);
        if (paused_until_ns <= sim->now_ns && sim_fault_stalls(process))
            paused_until_ns = process->paused_until_ns;
        if (paused_until_ns > sim->now_ns) {
            sim_at_lane(sim, paused_until_ns, packet, packet_handle, wire, tag);
            return;
        }
        port->queued -= port->cores ? 1 : 0;
        if (process->crashable && sim_fault_draw(sim, FAULT_CRASH_CLIENT)) {
            sim_faults_crash(process);
        } else {
            wire->counts.delivered++;
            sim_note(sim, "packet", packet->to.host, (uint64_t)packet->from.host << 16 | packet->from.port, packet->to.port);
            port->handler(port->ctx, packet->data, packet->len, packet->from);
        }
    }
    packet_done(wire, packet);
}

/* Up from the NIC: waits for a core. */
static void packet_up(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    struct sim *sim = wire->sim;
    struct sim_packet *packet = (struct sim_packet *)(uintptr_t)tag;
    struct port *port = port_of(wire, packet->to);
    if (!port_alive(port) || (port->cores && port->queued == SIM_WIRE_QUEUE_MAX)) {
        wire->counts.dropped++;
        packet_done(wire, packet);
        return;
    }
    if (!port->cores) {
        packet_handle(wire, tag);
        return;
    }
    unsigned first = 0;
    for (unsigned i = 1; i < port->cores; i++)
        if (port->core_free_ns[i] < port->core_free_ns[first])
            first = i;
    port->queued++;
    packet->queued_by = port->generation;
    wire->counts.queued_max = max_u64(wire->counts.queued_max, port->queued);
    uint64_t done_ns = sim_nic_serve(&port->core_free_ns[first], sim->now_ns, port->service_ns);
    sim_at_once(sim, done_ns, packet_handle, wire, tag);
}

static void packet_at_host(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    struct sim *sim = wire->sim;
    struct sim_packet *packet = (struct sim_packet *)(uintptr_t)tag;
    struct sim_host *host = sim->hosts[packet->to.host];
    if (!host->up) {
        wire->counts.dropped++;
        packet_done(wire, packet);
        return;
    }
    uint64_t in_ns = sim_nic_serve(&host->nic.packet_in_free_ns, sim->now_ns, model_get(sim->model, MODEL_nic_packet_ns));
    sim_at_once(sim, in_ns + model_get(sim->model, MODEL_host_packet_ns), packet_up, wire, tag);
}

/* ---- at the switch ---- */

void sim_switch_emit(struct sim_wire *wire, const struct sim_packet *packet)
{
    struct sim *sim = wire->sim;
    if (packet->to.host >= sim->host_count ||
        (packet->from.host < sim->host_count && sim_path_blocked_until(sim, packet->from.host, packet->to.host))) {
        wire->counts.dropped++;
        return;
    }
    wire->counts.emitted++;
    if (wire->tap)
        wire->tap(wire->tap_ctx, packet, true);
    uint64_t arrival_ns = sim->now_ns + model_get(sim->model, MODEL_switch_ns) + jitter_ns(sim);
    leg_send(wire, packet_new(wire, packet, packet->data), arrival_ns, &wire->down_ns[packet->to.host], packet_at_host);
}

/* The pipeline has taken it in. */
static void packet_switch(struct sim_wire *wire, struct sim_packet *packet)
{
    if (wire->switch_up) {
        wire->counts.switched++;
        sim_note(wire->sim, "switch", packet->from.host, packet->to.host, packet->to.port);
        if (wire->program.packet)
            wire->program.packet(wire->program.ctx, wire, packet);
        else
            sim_switch_emit(wire, packet);
    } else if (wire->redundant && packet->to.host != SIM_WIRE_SWITCH) {
        sim_switch_emit(wire, packet);
    } else {
        wire->counts.dropped++;
    }
    packet_done(wire, packet);
}

static void packet_taken(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    wire->switch_pending--;
    packet_switch(wire, (struct sim_packet *)(uintptr_t)tag);
}

/* Line rate in picoseconds, since a switch takes several packets per nanosecond. */
static void packet_at_switch(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    struct sim *sim = wire->sim;
    wire->switch_free_ps = max_u64(wire->switch_free_ps, sim->now_ns * PS_PER_NS) + model_get(sim->model, MODEL_switch_packet_ps);
    uint64_t taken_ns = wire->switch_free_ps / PS_PER_NS;
    if (taken_ns == sim->now_ns && !wire->switch_pending) {
        packet_switch(wire, (struct sim_packet *)(uintptr_t)tag);
        return;
    }
    wire->switch_pending++;
    sim_at_once(sim, taken_ns, packet_taken, wire, tag);
}

void sim_switch_crash(struct sim_wire *wire)
{
    wire->switch_up = false;
    if (wire->program.crash)
        wire->program.crash(wire->program.ctx);
}

void sim_switch_restart(struct sim_wire *wire)
{
    wire->switch_up = true;
}

/* ---- at the sender ---- */

/* Taken by the sender's own thread: no NIC, no switch, no core of the receiver. */
static void packet_own(void *arg, uint64_t tag)
{
    struct sim_wire *wire = arg;
    struct sim_packet *packet = (struct sim_packet *)(uintptr_t)tag;
    struct port *port = port_of(wire, packet->to);
    if (port_alive(port)) {
        port->queued += port->cores ? 1 : 0;
        packet->queued_by = port->generation;
    }
    packet_handle(wire, tag);
}

void sim_wire_send(struct sim_wire *wire, struct sim_addr from, struct sim_addr to, const void *data, uint32_t len)
{
    struct sim *sim = wire->sim;
    assert(from.host < sim->host_count && len <= SIM_PACKET_MAX);
    struct sim_host *host = sim->hosts[from.host];
    if (!host->up)
        return;
    wire->counts.sent++;
    const struct sim_packet head = {.from = from, .to = to, .len = len};
    struct sim_packet *packet = packet_new(wire, &head, data);
    if (wire->tap)
        wire->tap(wire->tap_ctx, packet, false);
    uint64_t own_ns = model_get(sim->model, MODEL_own_packet_ns);
    if (own_ns && wire->own_port && to.host == from.host && (to.port == wire->own_port || from.port == wire->own_port)) {
        sim_at_lane(sim, sim->now_ns + own_ns, host, packet_own, wire, (uint64_t)(uintptr_t)packet);
        return;
    }
    uint64_t out_ns = sim_nic_serve(&host->nic.packet_out_free_ns, sim->now_ns, model_get(sim->model, MODEL_nic_packet_ns));
    uint64_t arrival_ns = out_ns + model_get(sim->model, MODEL_host_packet_ns) + jitter_ns(sim);
    leg_send(wire, packet, arrival_ns, &wire->up_ns[from.host], packet_at_switch);
}

void sim_wire_inject(struct sim_wire *wire, const struct sim_packet *packet, bool down, uint64_t at_ns)
{
    struct sim_packet *p = packet_new(wire, packet, packet->data);
    sim_at_lane(wire->sim, at_ns, p, down ? packet_at_host : packet_at_switch, wire, (uint64_t)(uintptr_t)p);
}

/* ---- set-up ---- */

int sim_wire_bind(struct sim_wire *wire, struct sim_process *process, uint16_t port, unsigned cores, uint64_t service_ns,
                  sim_wire_handler handler, void *ctx)
{
    struct port ***page = &wire->ports[process->host->id][port / PORT_PAGES];
    if (!*page)
        *page = sim_alloc(PORT_PAGES * sizeof **page);
    if (!*page)
        return -ENOMEM;
    struct port *old = (*page)[port % PORT_PAGES];
    if (port_alive(old))
        return -EADDRINUSE;
    struct port *made = sim_alloc(sizeof *made + cores * sizeof made->core_free_ns[0]);
    if (!made)
        return -ENOMEM;
    *made = (struct port){.process = process,
                          .generation = process->generation,
                          .handler = handler,
                          .ctx = ctx,
                          .service_ns = service_ns,
                          .cores = cores};
    sim_give_back(old);
    (*page)[port % PORT_PAGES] = made;
    return 0;
}

void sim_wire_program(struct sim_wire *wire, const struct sim_switch_program *program)
{
    wire->program = program ? *program : (struct sim_switch_program){0};
}

void sim_wire_watch(struct sim_wire *wire, sim_wire_tap tap, void *ctx)
{
    wire->tap = tap;
    wire->tap_ctx = ctx;
}

void sim_wire_own(struct sim_wire *wire, uint16_t port)
{
    wire->own_port = port;
}

void sim_wire_redundant(struct sim_wire *wire)
{
    wire->redundant = true;
}

static void wire_switch_crashed(void *ctx)
{
    sim_switch_crash(ctx);
}

static void wire_switch_restarted(void *ctx)
{
    sim_switch_restart(ctx);
}

struct sim_wire *sim_wire_new(struct sim *sim)
{
    struct sim_wire *wire = sim_alloc(sizeof *wire);
    if (!wire)
        return NULL;
    wire->sim = sim;
    wire->switch_up = true;
    const struct sim_hooks hooks = {.ctx = wire, .switch_crashed = wire_switch_crashed, .switch_restarted = wire_switch_restarted};
    sim_hooks_add(sim, &hooks);
    return wire;
}

void sim_wire_free(struct sim_wire *wire)
{
    for (unsigned i = 0; i < wire->sim->host_count * PORT_PAGES; i++) {
        struct port **page = wire->ports[i / PORT_PAGES][i % PORT_PAGES];
        for (unsigned port = 0; page && port < PORT_PAGES; port++)
            sim_give_back(page[port]);
        sim_give_back(page);
    }
    for (unsigned i = 0; i < wire->packet_count; i++)
        sim_give_back(wire->packets[i]);
    sim_give_back(wire->packets);
    sim_give_back(wire);
}

const struct sim_wire_counts *sim_wire_counts(const struct sim_wire *wire)
{
    return &wire->counts;
}
