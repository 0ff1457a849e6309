/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's switch in the kernel against the same switch in this process: real hosts and servers around both, packets that are
 * lost, doubled and late, locks that move in and out all the time. Whatever comes, both send the same packets and have the same
 * registers. */
#include "cluster/host.h"
#include "designs/netlock/switch.h"
#include "designs/packet/requests.h"
#include "lib/rng.h"
#include "tests/xdp/netlock_kit.h"

#define LOCKS 6
#define ALL_LOCKS 200 /* for Algorithm 3: more than there are slots, and most are not asked for */
#define REQUESTS 16   /* of a host */
#define FLYING 512
#define STEPS 25000
#define STEP_NS (20 * NS_PER_US)

static struct rack_config config;
static void *soft, *host[KIT_HOSTS + 1], *server[KIT_SERVERS];
static struct rng rng;
static bool converting;     /* holders may convert to the other mode */
static bool spread;         /* requests are for many locks: most are free */
static uint64_t now, until; /* until: beyond it what the clocks of both differ by would count */
static struct {
    uint32_t len;
    uint8_t bytes[PACKET_MAX];
} flying[FLYING];
static unsigned flying_count;
static struct {
    unsigned packets, datagrams, refused, together, singly, fans, fan_max, controls, codes[8], types[NETLOCK_TYPES], overflows,
        passed_on, low;
} seen;

static void fly(const void *packet, uint32_t len)
{
    unsigned times = rng_chance(&rng, 1, 50) ? 0 : rng_chance(&rng, 1, 30) ? 2 : 1;
    for (; times && flying_count < FLYING; times--) {
        flying[flying_count].len = len;
        memcpy(flying[flying_count++].bytes, packet, len);
    }
}

static void fly_all(struct outbox *box)
{
    for (unsigned i = 0; i < box->packets; i++)
        fly(outbox_packet(box, i), box->packet[i].len);
    outbox_clear(box);
}

/* ---- both switches ---- */

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(((struct kit_outs *)0)->out[0]));
}

static void sort(struct kit_outs *o)
{
    for (unsigned i = 0; i < o->count; i++) {
        struct netlock_packet *p = (void *)o->out[i].bytes;
        memset(o->out[i].bytes + o->out[i].len, 0, PACKET_MAX - o->out[i].len);
        if (p->head.type == NETLOCK_REFUSED && p->code == NETLOCK_QUOTA)
            p->stamp = 0;                      /* depends on the clock */
        if (p->head.type == NETLOCK_COMMANDED) /* packets that the program counts, its control process does not */
            memset(p + 1, 0, o->out[i].len - sizeof *p);
    }
    qsort(o->out, o->count, sizeof o->out[0], by_bytes);
}

static void same_registers(void)
{
    const uint8_t *a = soft, *b = kit_memory;
    for (unsigned i = 0; i < NETLOCK_ARRAYS; i++) {
        uint64_t from = kit_at.arrays_at[i], to = i + 1 < NETLOCK_ARRAYS ? kit_at.arrays_at[i + 1] : kit_at.arrays_at[i];
        if (i != NETLOCK_SINCE && i != NETLOCK_METER && memcmp(a + from, b + from, to - from) != 0)
            CHECK_FAIL("register array %u differs", i);
    }
    CHECK(!memcmp(a + kit_at.arrays_at[NETLOCK_TOKEN], b + kit_at.arrays_at[NETLOCK_TOKEN], kit_at.locks * sizeof(uint64_t)));
    for (unsigned m = 1; m <= KIT_HOSTS; m++) {
        struct netlock_machine x, y;
        memcpy(&x, a + kit_at.machines_at + m * sizeof x, sizeof x);
        memcpy(&y, b + kit_at.machines_at + m * sizeof y, sizeof y);
        CHECK(x.life == y.life && x.live == y.live && x.clean == y.clean);
    }
}

static void note(const struct kit_outs *o)
{
    for (unsigned i = 0; i < o->count; i++) {
        const struct netlock_packet *p = (const void *)o->out[i].bytes;
        seen.types[p->head.type]++;
        if (p->head.type == NETLOCK_REFUSED)
            seen.codes[p->code % countof(seen.codes)]++;
        if (p->head.type == NETLOCK_ACQUIRE) {
            seen.overflows += !!(p->flags & NETLOCK_OVERFLOW);
            seen.low += !!(p->flags & NETLOCK_LOW);
            seen.passed_on += !(p->flags & NETLOCK_OVERFLOW);
        }
    }
    seen.fans += o->count > 1;
    seen.fan_max = o->count > seen.fan_max ? o->count : seen.fan_max;
}

static void compare(struct kit_outs *a, struct kit_outs *b, const char *what, unsigned type)
{
    if (host_now() >= until) /* we were stopped between the one and the other */
        return;
    sort(a);
    sort(b);
    if (a->count != b->count)
        CHECK_FAIL("%s, type %u: %u packets leave the kernel, and %u this process", what, type, a->count, b->count);
    for (unsigned i = 0; i < a->count; i++)
        if (a->out[i].len != b->out[i].len || memcmp(a->out[i].bytes, b->out[i].bytes, a->out[i].len) != 0)
            CHECK_FAIL("%s, type %u: packet %u of %u differs", what, type, i, a->count);
    same_registers();
}

static struct kit_outs outs[2];

static void at_switches(const void *packet, uint32_t len)
{
    static struct outbox box;
    struct packet_head h;
    memcpy(&h, packet, sizeof h);
    outbox_clear(&box);
    netlock_switch_packet(soft, packet, len, now, &box);
    outs[1].count = 0;
    kit_add_outbox(&outs[1], &box);
    kit_packet(packet, len, now, &outs[0]);
    note(&outs[0]);
    seen.packets++;
    compare(&outs[0], &outs[1], "a packet", h.type);
    fly_all(&box);
}

/* A command of an operator to both. */
static void command(enum netlock_command_kind kind, uint64_t rate)
{
    static struct outbox box;
    union {
        struct {
            struct netlock_packet p;
            struct netlock_command c;
        };
        uint8_t bytes[NETLOCK_COMMAND_BYTES];
    } q = {.p.head = {.version = PACKET_VERSION,
                      .family = PACKET_NETLOCK,
                      .type = NETLOCK_COMMAND,
                      .space = config.space,
                      .nonce = 1,
                      .from = {MACHINE_OPERATOR, 1},
                      .to = {MACHINE_SWITCH, PORT_POOL}},
           .c = {.kind = (uint32_t)kind, .rate = rate}};
    outbox_clear(&box);
    netlock_switch_packet(soft, &q, sizeof q, now, &box);
    outs[1].count = 0;
    kit_add_outbox(&outs[1], &box);
    kit_packet(&q, sizeof q, now, &outs[0]);
    CHECK_EQ(outs[0].count, 1);
    const struct netlock_packet *a = (const void *)outs[0].out[0].bytes;
    CHECK(a->head.type == NETLOCK_COMMANDED && !a->stamp);
    compare(&outs[0], &outs[1], "a command", NETLOCK_COMMAND);
}

/* Locks in the switch by how many waiting queues they have. */
static void count_kinds(unsigned kinds[NETLOCK_PRIORITIES + 1])
{
    memset(kinds, 0, (NETLOCK_PRIORITIES + 1) * sizeof *kinds);
    for (uint64_t i = 0; i < config.locks; i++) {
        uint32_t lock = plane_match(switch_plane(kit_memory), i);
        if (lock != PLANE_NO_LOCK && switch_control(kit_memory, lock)->state == CONTROL_LIVE)
            kinds[plane_region(switch_plane(kit_memory), lock).levels]++;
    }
}

static void tick_switches(void)
{
    static struct outbox box, other;
    outbox_clear(&box);
    outbox_clear(&other);
    netlock_switch_tick(soft, now, &box);
    netlock_switch_tick(kit_memory, now, &other);
    outs[0].count = outs[1].count = 0;
    kit_add_outbox(&outs[0], &other);
    kit_add_outbox(&outs[1], &box);
    compare(&outs[0], &outs[1], "a tick", 0);
    fly_all(&box);
}

/* ---- hosts ---- */

static void use_lock(struct outbox *box)
{
    unsigned m = 1 + (unsigned)rng_below(&rng, KIT_HOSTS);
    uint32_t request = (uint32_t)rng_below(&rng, REQUESTS);
    struct packet_answer answer;
    if (requests_hold(host[m], request)) {
        if (converting && rng_chance(&rng, 1, 2))
            netlock_convert(host[m], request, rng_chance(&rng, 1, 2) ? PAWL_SHARED : PAWL_EXCLUSIVE, now, box);
        else if (rng_chance(&rng, 1, 2))
            netlock_release(host[m], request, now, box);
    } else if (requests_idle(host[m], request)) {
        const struct packet_ask ask = {.request = request,
                                       .port = (uint16_t)(5000 + request),
                                       .tenant = (uint16_t)(rng_chance(&rng, 1, 200) ? 64 : rng_below(&rng, 4)),
                                       .priority = (uint8_t)(rng_chance(&rng, 1, 200) ? NETLOCK_PRIORITIES : rng_below(&rng, 3)),
                                       .try = rng_chance(&rng, 1, 8),
                                       .mode = rng_chance(&rng, 2, 3) ? PAWL_SHARED : PAWL_EXCLUSIVE,
                                       .index = rng_below(&rng, spread ? config.locks : LOCKS)};
        netlock_acquire(host[m], &ask, now, box);
    } else if (rng_chance(&rng, 1, 8) && requests_outcome(host[m], request, &answer) == -EINPROGRESS) {
        netlock_give_up(host[m], request, -ETIMEDOUT, now, box);
    }
}

/* With a second part of one lock it is refused as a whole: no answer, and the state is that of the other switch, which never sees
 * it. */
static void refuse_equal_locks(struct test_many d)
{
    const struct many_front *front = (const void *)d.bytes;
    if (!test_many_add(&d, d.bytes + sizeof *front, front->many.eighths[0] * 8u))
        return;
    struct plane_counters before, after;
    CHECK_EQ(plane_count(kit, &before), 0);
    CHECK(!kit_datagram(&d, &outs[0]) && !outs[0].count);
    CHECK_EQ(plane_count(kit, &after), 0);
    CHECK_EQ(after.reason[PLANE_MANY], before.reason[PLANE_MANY] + 1);
    seen.refused++;
}

/* Packets of one machine to the switch, of those that fly, as parts of a datagram. Those that the program does not decide come
 * singly afterwards, as their sender would send them. */
static void deliver_together(uint16_t machine)
{
    static struct outbox box;
    struct test_many d = {0};
    uint64_t locks[PACKET_MANY_MAX];
    unsigned left = 0, parts = 0;
    for (unsigned i = 0; i < flying_count; i++) {
        struct packet_head h;
        memcpy(&h, flying[i].bytes, sizeof h);
        bool fits = h.to.machine == MACHINE_SWITCH && h.from.machine == machine && many_takes(&h, flying[i].len);
        if (fits && !d.len)
            test_many_begin(&d, &h);
        if (!fits || many_has(locks, parts, h.index) || !test_many_add(&d, flying[i].bytes, flying[i].len))
            flying[left++] = flying[i];
        else
            locks[parts++] = h.index;
    }
    flying_count = left;
    if (!d.len)
        return;
    refuse_equal_locks(d);
    uint16_t singly = kit_datagram(&d, &outs[0]);
    const struct packet_head *h;
    uint32_t at = 0, len;
    outbox_clear(&box);
    for (unsigned i = 0; (h = many_next(d.bytes, &i, &at, &len));)
        if (!(singly >> (i - 1) & 1))
            netlock_switch_packet(soft, h, len, now, &box);
    outs[1].count = 0;
    kit_add_outbox(&outs[1], &box);
    note(&outs[0]);
    compare(&outs[0], &outs[1], "a datagram", 0);
    fly_all(&box);
    seen.datagrams++;
    for (unsigned i = 0; (h = many_next(d.bytes, &i, &at, &len));) {
        seen.singly += singly >> (i - 1) & 1;
        seen.together += !(singly >> (i - 1) & 1);
        if (singly >> (i - 1) & 1)
            at_switches(h, len);
    }
}

static void deliver(struct outbox *box)
{
    if (rng_chance(&rng, 1, 16))
        deliver_together((uint16_t)(1 + rng_below(&rng, KIT_HOSTS)));
    if (!flying_count)
        return;
    static _Alignas(8) uint8_t packet[PACKET_MAX];
    unsigned i = (unsigned)rng_below(&rng, flying_count < 8 ? flying_count : 8);
    uint32_t len = flying[i].len;
    struct packet_head h;
    memcpy(packet, flying[i].bytes, len);
    memcpy(&h, packet, sizeof h);
    memmove(&flying[i], &flying[i + 1], (--flying_count - i) * sizeof flying[0]);
    if (h.to.machine == MACHINE_SWITCH)
        at_switches(packet, len);
    else if (h.to.machine > KIT_HOSTS)
        netlock_server_packet(server[h.to.machine - KIT_HOSTS - 1], packet, len, now, box);
    else
        netlock_host_packet(host[h.to.machine], packet, len, now, box);
}

static void *zeroed(uint64_t bytes)
{
    void *p = aligned_alloc(CACHE_LINE, round_up(bytes, CACHE_LINE));
    CHECK(p);
    memset(p, 0, bytes);
    return p;
}

static void set_up(uint64_t seed, uint64_t options)
{
    rng_seed(&rng, seed);
    config = kit_config(options & NETLOCK_CHURN ? LOCKS : ALL_LOCKS, options);
    now = host_now();
    kit_load(&config, now);
    soft = zeroed(kit_at.bytes);
    netlock_switch_init(soft, &config, KIT_LIFE, now);
    ((struct nl_switch *)soft)->twin = true;
    term_switch(soft, &config, KIT_LIFE, now);
    for (uint16_t m = 1; m <= KIT_HOSTS; m++) {
        host[m] = zeroed(netlock_host_bytes(&config));
        netlock_host_init(host[m], &config, m, 1, now);
    }
    for (uint16_t i = 0; i < KIT_SERVERS; i++) {
        server[i] = zeroed(netlock_server_bytes(&config));
        netlock_server_init(server[i], &config, config.server[i], 1, true, now);
        term_server(server[i], &config, KIT_LIFE, now);
    }
    flying_count = 0;
    memset(&seen, 0, sizeof seen);
}

static void tear_down(void)
{
    kit_close();
    free(soft);
    for (unsigned m = 1; m <= KIT_HOSTS; m++)
        free(host[m]);
    for (unsigned i = 0; i < KIT_SERVERS; i++)
        free(server[i]);
}

/* The kernel's own clock counts for quotas only: leases are long. */
enum clock { STEADY, LEAPING, REAL };

static uint64_t later(enum clock clock)
{
    switch (clock) {
    case STEADY:
        return now + STEP_NS;
    case LEAPING: /* after a while in which nothing ran, all timers are due at once */
        return now + (rng_chance(&rng, 1, 2000) ? rng_below(&rng, 300) * NS_PER_MS : STEP_NS / 5);
    default:
        return host_now();
    }
}

#define POLICY_STEPS 4000u /* between two changes of the policy */

/* Priorities are turned on and off, and those of lower ones wait at servers only, while some hold locks and some wait: queues of
 * another kind go, as they are empty. */
static void change_policy(unsigned step)
{
    static const uint32_t policies[] = {0, 8, 1, 0, 2};
    uint32_t levels = policies[step / POLICY_STEPS % countof(policies)];
    unsigned kinds[NETLOCK_PRIORITIES + 1], others = 0;
    if (step % POLICY_STEPS == 0)
        command(NETLOCK_COMMAND_PRIORITIES, levels);
    if (step % POLICY_STEPS != POLICY_STEPS - 1)
        return;
    count_kinds(kinds);
    for (unsigned i = 0; i < countof(kinds); i++)
        others += i == levels ? 0 : kinds[i];
    printf("%u locks have %u waiting queues each\n", kinds[levels], levels);
    CHECK(kinds[levels] && !others);
}

#define QUOTA_TRIES 20

/* False if the machine had too little time for us to reach the quota. */
static bool trial(uint64_t seed, uint64_t options, enum clock clock, bool policies)
{
    static struct outbox box;
    bool quota = clock == REAL;
    set_up(seed, options);
    if (quota) {
        CHECK_EQ(netlock_set_quota(soft, 1, 1, 50), 0); /* one in a second: */
        CHECK_EQ(netlock_set_quota(kit_memory, 1, 1, 50), 0);
    }
    until = quota ? host_now() + NS_PER_S * 9 / 10 : UINT64_MAX; /* before the first of them is due; loading took its time */
    for (unsigned i = 0; i < STEPS && now < until; i++) {
        uint64_t dice = rng_below(&rng, 10);
        now = later(clock);
        outbox_clear(&box);
        if (policies)
            change_policy(i);
        if (dice < 2)
            use_lock(&box);
        else
            deliver(&box);
        fly_all(&box);
        if (i % 16 == 0)
            tick_switches();
        for (unsigned m = 1; m <= KIT_HOSTS && i % 16 == 1; m++) {
            netlock_host_tick(host[m], now, &box);
            fly_all(&box);
        }
        for (unsigned s = 0; s < KIT_SERVERS && i % 16 == 2; s++) {
            netlock_server_tick(server[s], now, &box);
            fly_all(&box);
        }
        if (i == STEPS / 2) { /* a host starts anew */
            netlock_host_init(memset(host[2], 0, netlock_host_bytes(&config)), &config, 2, 2, now);
        }
    }
    printf("seed %" PRIu64 ": %u packets; %u grants, %u converted, %u released, %u gone, %u leased, %u notified, %u pushed; %u "
           "overflows (%u low), %u passed on; "
           "refused: held %u, quota %u, moving %u, policy %u; %u became several, at most %u; of %u datagrams %u parts, and %u "
           "singly\n",
           seed, seen.packets, seen.types[NETLOCK_GRANT], seen.types[NETLOCK_CONVERTED], seen.types[NETLOCK_RELEASED],
           seen.types[NETLOCK_GONE], seen.types[NETLOCK_LEASED], seen.types[NETLOCK_NOTIFY], seen.types[NETLOCK_PUSHED],
           seen.overflows, seen.low, seen.passed_on, seen.codes[NETLOCK_HELD], seen.codes[NETLOCK_QUOTA],
           seen.codes[NETLOCK_MOVING], seen.codes[NETLOCK_POLICY], seen.fans, seen.fan_max, seen.datagrams, seen.together,
           seen.singly);
    bool enough = !quota || seen.codes[NETLOCK_QUOTA];
    CHECK(!spread || (seen.together > 150 && seen.singly > 50 && seen.refused > 20));
    if (!quota && !spread) { /* else how much gets done depends on the machine */
        CHECK(seen.types[NETLOCK_GRANT] > 50 && seen.types[NETLOCK_RELEASED] && seen.types[NETLOCK_LEASED]);
        CHECK(converting == (seen.types[NETLOCK_CONVERTED] > 20));
        CHECK(seen.types[NETLOCK_NOTIFY] && seen.types[NETLOCK_PUSHED] && seen.overflows && seen.fans);
        CHECK(seen.low || !(options & NETLOCK_FEW));
        CHECK(seen.passed_on || !(options & NETLOCK_CHURN)); /* unless locks are moved, all are in the switch */
    }
    tear_down();
    return enough;
}

int main(void)
{
    const uint64_t small = UINT64_C(128) << NETLOCK_SLOTS_SHIFT;
    trial(1, NETLOCK_CHURN | small, STEADY, false);
    unsigned tries = 0;
    while (!trial(2, NETLOCK_CHURN | small, REAL, false))
        CHECK(++tries < QUOTA_TRIES);
    trial(3, NETLOCK_CHURN | NETLOCK_PRIORITY | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT, STEADY, false);
    trial(4, small, STEADY, false); /* Algorithm 3 */
    trial(5, UINT64_C(4096) << NETLOCK_SLOTS_SHIFT, STEADY, true);
    spread = true;
    trial(11, UINT64_C(4096) << NETLOCK_SLOTS_SHIFT, STEADY, false);
    spread = false;
    trial(9, NETLOCK_CHURN | NETLOCK_PRIORITY | NETLOCK_FEW | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT, STEADY, false);
    converting = true;
    trial(10, NETLOCK_CHURN | NETLOCK_PRIORITY | NETLOCK_FEW | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT, LEAPING, false);
    trial(6, NETLOCK_CHURN | small, STEADY, false);
    trial(7, NETLOCK_CHURN | NETLOCK_PRIORITY | UINT64_C(1024) << NETLOCK_SLOTS_SHIFT, LEAPING, false);
    trial(8, small, STEADY, false);
    converting = false;
    trial(52, NETLOCK_CHURN | small, LEAPING, false); /* overflowed and whole again between two ticks */
    return 0;
}
