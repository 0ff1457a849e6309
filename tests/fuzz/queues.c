/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as the kernel's switch takes them apart, with NetLock's queues behind: the program itself, compiled to run here, on the
 * memory of a switch that is active and has a lock of each server in it. As fuzz/frame, and: whatever comes, no queue has more in
 * it than it has slots, and no pass leaves a lock of the program's taken. */
#include "cluster/host.h"
#include "designs/netlock/kernel.h"
#include "designs/netlock/netlock.h"
#include "tests/term.h"
#include "wire/many.h" /* before a name of the program that its functions use, too */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the kernel calls its programs by their sections */
#include "dataplane/xdp/netlock.bpf.c"
#pragma GCC diagnostic pop

#include "tests/fuzz/frame.h"
#include "tests/fuzz/queues.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS 3
#define SERVERS 2
#define LIFE 7
#define NOW (100 * NS_PER_S)
#define FIRST 2 /* of the first server, which is on this machine: in the switch */
#define OTHER 3 /* of the other */

static const struct rack_config config = {.space = SPACE,
                                          .machines = HOSTS,
                                          .sessions = 2,
                                          .requests = 8,
                                          .servers = SERVERS,
                                          .server = {HOSTS + 1, HOSTS + 2},
                                          .locks = 1000, /* more than there are slots: only what is wanted comes in */
                                          .lease_ns = 10 * NS_PER_S,
                                          .retry_ns = NS_PER_MS,
                                          .options = NETLOCK_PRIORITY | NETLOCK_FEW | UINT64_C(512) << NETLOCK_SLOTS_SHIFT};

static struct plane_host host[HOSTS + SERVERS + 1];
static struct latch latch;
static struct fan_work work[FAN_WORKS];
static uint32_t number;
static struct in_switch {
    uint64_t index;
    uint32_t lock;
    bool is_there;
} table[16], first_table[16];
static uint8_t *block, *first_block; /* the switch's memory, and as every input finds it */
static struct netlock_memory layout;

static struct in_switch *find(uint64_t index)
{
    for (size_t i = 0; i < countof(table); i++)
        if (table[i].is_there && table[i].index == index)
            return &table[i];
    return NULL;
}

void *kernel_map(const void *map, const void *key)
{
    uint32_t k;
    uint64_t index;
    memcpy(&k, key, sizeof k);
    if (map == &counters)
        return &counted;
    if (map == &ways)
        return &way;
    if (map == &memory)
        return block;
    if (map == &latches)
        return k < layout.locks ? &latch : NULL;
    if (map == &hosts)
        return k < countof(host) ? &host[k] : NULL;
    if (map == &works)
        return k < FAN_WORKS ? &work[k] : NULL;
    if (map == &fan_numbers)
        return &number;
    if (map != &here)
        return NULL;
    memcpy(&index, key, sizeof index);
    struct in_switch *t = find(index);
    return t ? &t->lock : NULL;
}

void kernel_map_set(const void *map, const void *key, const void *value)
{
    uint64_t index;
    memcpy(&index, key, sizeof index);
    struct in_switch *t = find(index);
    CHECK(map == &here);
    for (size_t i = 0; i < countof(table) && !t && value; i++)
        t = table[i].is_there ? NULL : &table[i];
    CHECK(t || !value);
    if (t)
        *t = (struct in_switch){.index = index, .is_there = value != NULL};
    if (value)
        memcpy(&t->lock, value, sizeof t->lock);
}

/* ---- the control process ---- */

static int give_order(void *ctx, struct netlock_order *o)
{
    (void)ctx;
    uint8_t *frame = place_frame((const void *)o, sizeof *o);
    struct xdp_md md = context(frame, sizeof *o);
    int verdict = order(&md);
    memcpy(o, frame, sizeof *o);
    return verdict == XDP_PASS ? 0 : -EINVAL;
}

static void no_grace(void *ctx)
{
    (void)ctx;
}

static struct outbox said;

static struct netlock_packet packet(uint8_t type, uint16_t machine, uint16_t port, uint64_t index)
{
    return (struct netlock_packet){.head = {.version = PACKET_VERSION,
                                            .family = PACKET_NETLOCK,
                                            .type = type,
                                            .space = SPACE,
                                            .epoch = 1,
                                            .index = index,
                                            .from = {machine, port},
                                            .to = {MACHINE_SWITCH, PORT_POOL}},
                                   .life = LIFE};
}

static void tell(const void *p, uint32_t len)
{
    outbox_clear(&said);
    netlock_switch_packet(block, p, len, NOW, &said);
}

static struct netlock_packet from_server(uint8_t type, uint64_t index)
{
    return packet(type, config.server[index % SERVERS], PORT_SERVER, index);
}

/* As tests/xdp/netlock_hand.h has it. */
static void bring_in(uint64_t index)
{
    struct {
        struct netlock_packet p;
        struct netlock_demand d;
    } report = {from_server(NETLOCK_REPORT, index), {index, 1000, 60}};
    uint32_t round = 0;
    report.p.count = 1;
    tell(&report, sizeof report);
    for (uint64_t now = NOW; !round && now < NOW + NS_PER_S; now += NS_PER_MS) {
        outbox_clear(&said);
        netlock_switch_tick(block, now, &said);
        for (unsigned i = 0; i < said.packets; i++) {
            const struct netlock_packet *p = (const void *)outbox_packet(&said, i);
            if (p->head.type == NETLOCK_TAKE && p->head.index == index)
                round = p->round;
        }
    }
    CHECK(round);
    struct netlock_packet p = from_server(NETLOCK_HANDOVER, index);
    p.round = round;
    p.token = 1000;
    tell(&p, sizeof p);
    CHECK(said.packets);
    uint32_t count = ((const struct netlock_packet *)(const void *)outbox_packet(&said, 0))->count;
    p = from_server(NETLOCK_LAST, index);
    p.round = round;
    p.count = count;
    tell(&p, sizeof p);
    CHECK(find(index));
}

static void set_up(void)
{
    static const struct plane_kernel kernel = {.order = give_order, .grace = no_grace};
    static const struct plane_settings wanted = {.port = bpf_htons(PORT), .machines = HOSTS, .space = SPACE, .locks = 1000};
    set_up_frames(&wanted);
    netlock_switch_describe(&config, &layout);
    set_constant(&at, &layout, sizeof layout);
    block = calloc(1, layout.bytes);
    first_block = malloc(layout.bytes);
    CHECK(block && first_block);
    kernel_boot_ns = NOW;
    netlock_switch_init(block, &config, LIFE, NOW);
    netlock_switch_in_kernel(block, &kernel);
    term_switch(block, &config, LIFE, NOW);
    for (uint64_t s = 0; s < SERVERS; s++) {
        struct netlock_packet p = from_server(NETLOCK_SYNC, s);
        tell(&p, sizeof p);
    }
    for (unsigned i = 0; i < 2 * HOSTS; i++) {
        struct netlock_packet p = packet(NETLOCK_LEASE, (uint16_t)(1 + i % HOSTS), PORT_POOL, 0);
        tell(&p, sizeof p);
    }
    bring_in(FIRST);
    bring_in(OTHER);
    memcpy(first_block, block, layout.bytes);
    memcpy(first_table, table, sizeof table);
}

/* ---- frames ---- */

static void make_fields_sound(struct netlock_packet *p)
{
    p->head.epoch = 1;
    p->head.index = p->head.index % 4 ? FIRST + p->head.index % 2 : p->head.index;
    p->head.nonce = (p->head.nonce % 4 + 1) * NETLOCK_SERIAL_STEP + p->head.nonce / 4 % 8;
    p->head.type = p->head.from.machine > HOSTS ? p->head.type : (uint8_t)(NETLOCK_ACQUIRE + p->head.type % 4);
    p->mode = (uint8_t)(NETLOCK_SHARED + p->mode % 2);
    p->flags &= NETLOCK_TRY;
    p->tenant %= 2;
    p->priority %= NETLOCK_PRIORITIES;
    p->life = LIFE;
    p->client.machine = (uint16_t)(1 + p->client.machine % HOSTS);
    p->round %= 4;
    p->count %= 8;
    p->ticket %= 64;
}

static void one_frame(const uint8_t *bytes, uint32_t len, uint8_t how)
{
    static uint8_t *before;
    struct in_frame in = {.size = sizeof(struct netlock_packet)};
    bool why;
    uint8_t *frame = place_frame(bytes, len);
    make_sound(frame, len, how, PACKET_NETLOCK, config.locks, HOSTS + SERVERS, &in);
    for (unsigned i = 0; i < in.count; i++)
        make_fields_sound((void *)(in.first + i * in.size));
    if (!before)
        before = malloc(layout.bytes);
    CHECK(before);
    memcpy(before, block, layout.bytes);
    int verdict = run_frame(frame, len, &why);
    kernel_boot_ns += how & HOW_LATER ? 3 * NS_PER_S : 1000;
    if (why)
        CHECK(!memcmp(before, block, layout.bytes));
    if (verdict == XDP_REDIRECT)
        run_copies(frame, len, FAN_MAX, fan_out);
    check_queues((void *)block, &config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!low)
        set_up();
    memcpy(block, first_block, layout.bytes);
    memcpy(table, first_table, sizeof table);
    memset(work, 0, sizeof work);
    number = 0;
    kernel_boot_ns = NOW;
    for (uint32_t i = 0; i < countof(host); i++)
        host[i] = (struct plane_host){
            .ip = i == HOSTS ? 0 : 0x0100000a + (i << 24), .pool_port = 1, .ifindex = i == HOSTS + 1 ? 0 : 1 + i % 2};
    each_frame(data, size, one_frame);
    for (uint32_t i = 0; i < layout.requests; i++) /* no packet is in a pass */
        CHECK_EQ(*(uint32_t *)(void *)(block + layout.claims_at + 4 * (uint64_t)i), 0);
    for (uint32_t i = 0; i < layout.locks; i++)
        CHECK_EQ(*(uint32_t *)(void *)(block + layout.active_at + 4 * (uint64_t)i), 0);
    return 0;
}
