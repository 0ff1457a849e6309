#include "cli/switch_care.h"
#include "dataplane/fission.h"
#include "world/world.h"

#include <errno.h>
#include <string.h>

#define ROUND_NS (100 * NS_PER_MS)      /* how long one round lasts, */
#define ROUND_CLOSED_NS (5 * NS_PER_MS) /* and while others wait for us */
#define BEAT_NS (100 * NS_PER_MS)       /* between two signs of life */
#define LEASE_DRIFT_DIVISOR 1000        /* clocks differ by one in ten thousand, and a tick or two */
#define SCAN_LOCKS (1u << 18)           /* looked at in one round */

static uint64_t lease_at_most(const struct care *c)
{
    uint64_t lease = c->welcome->config.lease_ns;
    return lease + lease / LEASE_DRIFT_DIVISOR + 2 * ROUND_NS;
}

/* ---- who lives ---- */

/* The kernel hears them; what has changed since the last look was heard in between. */
static void listen_to_kernel(struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->welcome->config.machines; m++) {
        uint64_t heard = c->hosts[m].heard;
        if (heard == c->heard[m])
            continue;
        c->heard[m] = heard;
        c->heard_ns[m] = now;
        rebuild_heard(&c->rebuild, m);
    }
}

static bool lives(const void *ctx, uint16_t machine, uint64_t now)
{
    const struct care *c = ctx;
    return c->heard_ns[machine] && now - c->heard_ns[machine] <= lease_at_most(c);
}

/* ---- beginning ---- */

/* State was lost, and hosts hold what nobody here knows of (5.3). A process that takes over meanwhile begins anew, with a life of
 * its own, so that hosts tell it what they told the one before. */
static void begin_rebuilding(struct care *c, bool found, uint64_t now)
{
    const struct rack_config *config = &c->welcome->config;
    if (found) {
        memset(c->locks, 0, config->locks * sizeof *c->locks);
        c->live->life = c->welcome->packet.head.generation;
        c->live->epoch = config->lease_ns ? c->live->life : 0;
    }
    rebuild_begin(&c->rebuild, config->machines, now + lease_at_most(c));
    if (c->welcome->live_known)
        rebuild_expect(&c->rebuild, c->welcome->live, COORD_LIVE_WORDS);
}

int care_begin(struct care *c, struct plane *p, struct udp *udp, const struct coord_welcome *w, const struct join_params *j)
{
    void *hosts, *locks;
    uint64_t bytes, now = world_now(&world_real);
    if (w->config.machines >= REBUILD_MACHINES_MAX)
        return -ERANGE;
    int rc = plane_map(p, "hosts", &hosts, &bytes);
    if (!rc)
        rc = plane_map(p, "locks", &locks, &bytes);
    if (rc)
        return rc;
    c->udp = udp;
    c->welcome = w;
    c->join = j;
    c->live = plane_live(p);
    c->hosts = hosts;
    c->locks = locks;
    if (c->live->closed)
        begin_rebuilding(c, plane_found(p), now);
    listen_to_kernel(c, now);
    return 0;
}

/* ---- packets that the kernel passed to us ---- */

static void answer_report(struct care *c, const struct fission_packet *p, uint32_t len, struct net_addr from)
{
    const struct rack_config *config = &c->welcome->config;
    const struct fission_rules rules = {
        .space = config->space, .epoch = c->live->epoch, .machines = config->machines, .locks = config->locks};
    if (fission_verify(p, len, &rules) != FISSION_FINE || p->head.type != FISSION_REPORT ||
        !rebuild_report(&c->rebuild, c->locks, config->locks, p))
        return;
    struct fission_packet answer = *p;
    answer.count = 0;
    answer.head.to = p->head.from;
    answer.head.from.machine = MACHINE_SWITCH;
    const struct udp_out out = {.to = from, .len = sizeof answer, .data = &answer};
    udp_send(c->udp, &out, 1);
}

static void receive(struct care *c)
{
    uint64_t until = world_now(&world_real) + (c->rebuild.closed ? ROUND_CLOSED_NS : ROUND_NS);
    while (udp_wait(c->udp, &c->batch, 0, until))
        for (unsigned i = 0; i < c->batch.count; i++) {
            const void *data = c->batch.packet[i].data;
            uint32_t len = c->batch.packet[i].len;
            const struct coord_packet *p = coord_check(data, len, c->welcome->config.space);
            if (p && p->head.type == COORD_BEATEN && p->head.nonce == c->join->nonce &&
                p->head.index <= c->welcome->config.machines)
                c->look_for = (uint16_t)p->head.index;
            else if (!p && len <= PACKET_MAX)
                answer_report(c, data, len, c->batch.packet[i].from);
        }
}

/* ---- the coordinator ---- */

static void beat(struct care *c, uint64_t machine, uint64_t found)
{
    struct coord_beat b;
    struct coord_packet *p = &b.packet;
    memset(&b, 0, sizeof b);
    coord_make(p, COORD_BEAT, c->welcome->packet.space, c->join->nonce);
    p->head.from.machine = MACHINE_SWITCH;
    p->head.epoch = c->welcome->packet.head.generation;
    p->head.index = machine;
    p->head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    p->role = COORD_SWITCH;
    p->at = c->join->at;
    p->code = coord_config_sum(&c->welcome->config);
    const struct udp_out out = {.to = c->join->coordinator, .len = sizeof b, .data = &b};
    udp_send(c->udp, &out, 1);
}

static uint16_t heir_of(const struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->welcome->config.machines; m++)
        if (c->hosts[m].ip && c->hosts[m].asked && lives(c, m, now))
            return m;
    return MACHINE_NONE;
}

/* As fisslock_switch_scan does, beside a program that decides meanwhile. */
static void look(struct care *c, uint64_t now)
{
    uint16_t machine = c->look_for, heir = heir_of(c, now);
    const struct rack_config *config = &c->welcome->config;
    uint64_t end = min_u64(c->look_next + SCAN_LOCKS, config->locks);
    bool gone = !lives(c, machine, now);
    for (; c->look_next < end; c->look_next++) {
        struct rebuild_lock *lock = &c->locks[c->look_next];
        uint64_t word = __atomic_load_n(&lock->word, __ATOMIC_RELAXED);
        struct fission_packet tell;
        if (!(word & FISSION_WORD_HELD) || fission_word_machine(word) != machine)
            continue;
        c->look_found++;
        if (!gone || !rebuild_clear(lock, (uint32_t)config->options, heir, &tell) || !tell.head.to.machine)
            continue;
        tell.head.space = config->space;
        tell.head.epoch = c->live->epoch;
        tell.head.index = c->look_next;
        tell.token += (uint64_t)c->live->life << FISSION_TOKEN_LIFE_SHIFT;
        const struct net_addr at = {.ip = c->hosts[heir].ip, .port = ntohs(c->hosts[heir].pool_port)};
        const struct udp_out out = {.to = at, .len = sizeof tell, .data = &tell};
        udp_send(c->udp, &out, 1);
    }
    if (c->look_next < config->locks)
        return;
    beat(c, machine, c->look_found);
    c->look_for = 0;
    c->look_next = c->look_found = 0;
}

bool care_round(struct care *c)
{
    receive(c);
    uint64_t now = world_now(&world_real);
    listen_to_kernel(c, now);
    bool was_closed = c->rebuild.closed;
    if (was_closed && !rebuild_closed(&c->rebuild, now, lives, c))
        c->live->closed = 0;
    if (c->look_for && !c->rebuild.closed)
        look(c, now);
    if (now >= c->beat_ns) {
        c->beat_ns = now + BEAT_NS;
        beat(c, 0, 0);
    }
    return was_closed && !c->rebuild.closed;
}
