/* SPDX-License-Identifier: Apache-2.0 */
/* Packets in the simulated cluster. */
#include "tests/unit/sim_kit.h"
#include "wire/sim.h"

#define SERVER_PORT 7
#define CLIENT_PORT 9

struct net {
    struct sim sim;
    struct sim_wire *wire;
    struct sim_process *server, *client;
    uint64_t served, answered, last_ns, disorder, next;
    uint64_t state; /* the switch program's */
};

static struct sim_addr server_addr(void)
{
    return (struct sim_addr){.host = 0, .port = SERVER_PORT};
}

static struct sim_addr client_addr(void)
{
    return (struct sim_addr){.host = 1, .port = CLIENT_PORT};
}

static void serve(void *ctx, const void *packet, uint32_t len, struct sim_addr from)
{
    struct net *net = ctx;
    net->served++;
    sim_wire_send(net->wire, server_addr(), from, packet, len);
}

static void take_answer(void *ctx, const void *packet, uint32_t len, struct sim_addr from)
{
    struct net *net = ctx;
    uint64_t number;
    (void)from;
    CHECK_EQ(len, sizeof number);
    memcpy(&number, packet, sizeof number);
    net->answered++;
    net->last_ns = sim_now(&net->sim);
    net->disorder += number < net->next;
    net->next = max_u64(net->next, number + 1);
}

static void net_open(struct net *net, const struct sim_config *config, unsigned cores)
{
    memset(net, 0, sizeof *net);
    CHECK_EQ(sim_init(&net->sim, config), 0);
    net->wire = sim_wire_new(&net->sim);
    net->server = sim_process_new(sim_host_new(&net->sim));
    net->client = sim_process_new(sim_host_new(&net->sim));
    CHECK_EQ(sim_wire_bind(net->wire, net->server, SERVER_PORT, cores, 1000, serve, net), 0);
    CHECK_EQ(sim_wire_bind(net->wire, net->client, CLIENT_PORT, 0, 0, take_answer, net), 0);
    CHECK_EQ(sim_wire_bind(net->wire, net->client, CLIENT_PORT, 0, 0, take_answer, net), -EADDRINUSE);
}

static void net_close(struct net *net)
{
    sim_wire_free(net->wire);
    sim_free(&net->sim);
}

static void send_number(void *arg, uint64_t number)
{
    struct net *net = arg;
    sim_wire_send(net->wire, client_addr(), server_addr(), &number, sizeof number);
}

static void send_many(struct net *net, uint64_t count, uint64_t every_ns)
{
    for (uint64_t i = 0; i < count; i++)
        sim_at(&net->sim, i * every_ns, send_number, net, i);
}

/* Throughput is cores / service time, whatever is offered above. */
static void test_cores(void)
{
    static struct net net;
    const struct sim_config config = {.seed = 1};
    for (unsigned cores = 1; cores <= 8; cores *= 2) {
        net_open(&net, &config, cores);
        send_many(&net, 3000, 20); /* 50 per microsecond, more than 8 cores serve */
        CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
        CHECK_EQ(net.answered, 3000);
        CHECK_EQ(net.disorder, 0);
        CHECK_BETWEEN(net.last_ns, 3000 * 1000 / cores, 3000 * 1000 / cores + 20000);
        CHECK(sim_wire_counts(net.wire)->queued_max > 1000);
        net_close(&net);
    }
    net_open(&net, &config, 1);
    send_many(&net, SIM_WIRE_QUEUE_MAX + 1000, 10);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK(net.answered < SIM_WIRE_QUEUE_MAX + 1000);
    CHECK_EQ(net.answered + sim_wire_counts(net.wire)->dropped, SIM_WIRE_QUEUE_MAX + 1000);
    net_close(&net);
}

static void test_latency(void)
{
    static struct net net;
    const struct sim_config config = {.seed = 1, .model = model_find("netlock-testbed")};
    net_open(&net, &config, 0);
    send_many(&net, 1, 0);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    uint64_t least_ns = 4 * model_get(config.model, MODEL_host_packet_ns) + 2 * model_get(config.model, MODEL_switch_ns);
    CHECK_BETWEEN(net.last_ns, least_ns, least_ns + 4 * model_get(config.model, MODEL_jitter_ns) + 500);
    net_close(&net);
}

static void test_faults(void)
{
    static const uint32_t mixes[] = {FAULT_BIT(FAULT_LOSS), FAULT_BIT(FAULT_DUPLICATE), FAULT_BIT(FAULT_REORDER)};
    static struct net net;
    for (unsigned i = 0; i < countof(mixes); i++) {
        const struct sim_config config = {.seed = 3, .faults = mixes[i], .safety_ns = NS_PER_S};
        net_open(&net, &config, 0);
        send_many(&net, 5000, 1000);
        CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
        const uint64_t *counts = net.sim.faults.counts;
        CHECK(counts[FAULT_LOSS] + counts[FAULT_DUPLICATE] + counts[FAULT_REORDER] > 0);
        if (mixes[i] == FAULT_BIT(FAULT_LOSS))
            CHECK_EQ(net.answered, 5000 - counts[FAULT_LOSS]);
        if (mixes[i] == FAULT_BIT(FAULT_DUPLICATE))
            CHECK(net.answered >= 5000 + counts[FAULT_DUPLICATE]); /* doubled early, the copy passes every later leg */
        if (mixes[i] != FAULT_BIT(FAULT_LOSS))
            CHECK(net.disorder > 0);
        net_close(&net);
    }
}

/* Answers even numbers itself, doubles those divisible by three, drops those divisible by five, forwards the rest. */
static void program_packet(void *ctx, struct sim_wire *wire, struct sim_packet *packet)
{
    struct net *net = ctx;
    uint64_t number;
    memcpy(&number, packet->data, sizeof number);
    if (packet->to.host == 1) {
        sim_switch_emit(wire, packet);
        return;
    }
    net->state++;
    if (number % 5 == 0)
        return;
    if (number % 2 == 0) {
        packet->to = packet->from;
        packet->from = (struct sim_addr){.host = SIM_WIRE_SWITCH};
    }
    sim_switch_emit(wire, packet);
    if (number % 3 == 0)
        sim_switch_emit(wire, packet);
}

static void program_crash(void *ctx)
{
    ((struct net *)ctx)->state = 0;
}

static void test_switch(void)
{
    static struct net net;
    const struct sim_config config = {.seed = 1};
    net_open(&net, &config, 0);
    const struct sim_switch_program program = {.ctx = &net, .packet = program_packet, .crash = program_crash};
    sim_wire_program(net.wire, &program);
    send_many(&net, 30, 1000);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    /* Of 30 numbers 24 are not divisible by five, 8 of these by three; 12 of them odd, 4 of these by three. */
    CHECK_EQ(net.answered, 24 + 8);
    CHECK_EQ(net.served, 12 + 4);
    CHECK_EQ(net.state, 30);
    sim_switch_crash(net.wire);
    CHECK_EQ(net.state, 0);
    send_number(&net, 1);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.answered, 24 + 8);
    sim_switch_restart(net.wire);
    send_number(&net, 1);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.answered, 24 + 8 + 1);
    net_close(&net);
}

static void test_switch_fault(void)
{
    static struct net net;
    uint64_t crashes = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        const struct sim_config config = {.seed = seed, .faults = FAULT_BIT(FAULT_CRASH_SWITCH), .safety_ns = 100 * NS_PER_MS};
        net_open(&net, &config, 0);
        send_many(&net, 1000, 200 * NS_PER_US); /* until after the safety phase */
        CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
        crashes += net.sim.faults.counts[FAULT_CRASH_SWITCH];
        CHECK_EQ(net.next, 1000); /* works again in the end */
        net_close(&net);
    }
    CHECK(crashes > 0);
}

static void test_process(void)
{
    static struct net net;
    const struct sim_config config = {.seed = 1};
    net_open(&net, &config, 2);
    send_number(&net, 1);
    sim_process_pause(net.server, NS_PER_MS);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.answered, 1);
    CHECK(net.last_ns > NS_PER_MS);
    sim_partition(&net.sim, 0, 1, 10 * NS_PER_MS); /* requests pass, answers do not */
    send_number(&net, 2);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.served, 2);
    CHECK_EQ(net.answered, 1);
    sim_process_crash(net.server);
    send_number(&net, 3);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.served, 2);
    sim_process_restart(net.server);
    CHECK_EQ(sim_wire_bind(net.wire, net.server, SERVER_PORT, 2, NS_PER_MS, serve, &net), 0);
    /* Packets that wait for a core when its process dies are not served by the next process. */
    send_number(&net, 4);
    sim_run(&net.sim, sim_now(&net.sim) + 100 * NS_PER_US);
    sim_process_crash(net.server);
    sim_process_restart(net.server);
    CHECK_EQ(sim_wire_bind(net.wire, net.server, SERVER_PORT, 2, 1000, serve, &net), 0);
    CHECK_EQ(sim_run(&net.sim, UINT64_MAX), SIM_IDLE);
    CHECK_EQ(net.served, 2);
    net_close(&net);
}

int main(void)
{
    test_cores();
    test_latency();
    test_faults();
    test_switch();
    test_switch_fault();
    test_process();
    return 0;
}
