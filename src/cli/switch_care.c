/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/switch_care.h"
#include "dataplane/fission.h"
#include "designs/packet/parts.h"
#include "world/world.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUND_NS (100 * NS_PER_MS)      /* how long one round lasts, */
#define ROUND_CLOSED_NS (5 * NS_PER_MS) /* and while others wait for us */
#define BEAT_NS (100 * NS_PER_MS)       /* between two signs of life */
#define LEASE_DRIFT_DIVISOR 1000        /* clocks differ by one in ten thousand, and a tick or two */
#define SCAN_LOCKS (1u << 18)           /* looked at in one round */
#define JOINING_SHARE 4                 /* of a lease: if the coordinator is gone meanwhile, it goes on as it was */
#define GRACE_US 20000                  /* where the kernel has no barrier: longer than a packet can take */

static uint64_t lease_at_most(const struct care *c)
{
    uint64_t lease = c->welcome.config.lease_ns;
    return lease + lease / LEASE_DRIFT_DIVISOR + 2 * ROUND_NS;
}

/* ---- who lives ---- */

/* The kernel hears them; what has changed since the last look was heard in between. */
static void listen_to_kernel(struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->welcome.config.machines; m++) {
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

/* A packet passes the program under the kernel's read lock: those that came before this have left. */
static void grace(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
        usleep(GRACE_US);
}

/* Nobody reads the table that is not in use: whoever did is gone. */
static void publish_rules(struct care *c)
{
    uint32_t at = !(c->live->rules_at & 1);
    volatile struct plane_rules *to = &c->live->rules[at];
    uint64_t owner[RACK_SLOTS / 8];
    memcpy(owner, c->rules.owner, sizeof owner);
    for (unsigned i = 0; i < countof(owner); i++)
        to->owner[i] = owner[i];
    to->version = c->rules.version;
    __atomic_store_n(&c->live->rules_at, at, __ATOMIC_RELEASE);
    grace();
}

static uint64_t own_slots(const struct care *c)
{
    uint64_t slots = 0;
    for (unsigned s = 0; s < RACK_SLOTS; s++)
        slots |= (uint64_t)(c->rules.owner[s] == c->config.rack) << s;
    return slots;
}

static void be_quiet(struct care *c)
{
    __atomic_store_n(&c->live->closed, PLANE_QUIET, __ATOMIC_SEQ_CST);
    grace();
}

/* State was lost, and hosts hold what nobody here knows of (5.3), in the life that the coordinator gave. Of a state that somebody
 * left nothing counts: hosts tell us what they told the one before. */
static void begin_rebuilding(struct care *c, bool found)
{
    be_quiet(c);
    if (found)
        memset(c->locks, 0, c->config.locks * sizeof *c->locks);
    /* From now on: until it was quiet the former life gave leases. */
    rebuild_begin(&c->rebuild, c->config.machines, world_now(&world_real) + lease_at_most(c));
    if (c->welcome.live_known)
        rebuild_expect(&c->rebuild, c->welcome.live, COORD_LIVE_WORDS);
    for (uint16_t m = 1; m <= c->config.machines; m++)
        c->hosts[m].apart = c->rebuild.state[m] == REBUILD_APART;
    publish_rules(c);
    c->live->slots = own_slots(c);
    c->live->life = c->welcome.packet.head.generation;
    c->live->epoch = c->config.lease_ns ? c->live->life : 0;
    __atomic_store_n(&c->live->closed, PLANE_REBUILDING, __ATOMIC_RELEASE);
    grace(); /* no packet that still knows the former life will find it open */
    c->look_for = 0;
    c->look_next = c->look_found = 0;
}

/* What the coordinator's welcome says. */
static void take_welcome(struct care *c, const struct coord_welcome *w)
{
    c->welcome = *w;
    c->rules = w->rules;
    c->config = w->config.racks ? parts_config(&w->config, w->packet.head.to.port) : w->config;
}

/* Whether what was found goes by the same rules. If not, others may have had its locks meanwhile. */
static bool rules_are_found(const struct care *c)
{
    return c->live->rules[c->live->rules_at & 1].version == c->rules.version && c->live->slots == own_slots(c);
}

int care_begin(struct care *c, struct plane *p, struct udp *udp, const struct coord_welcome *w, const struct join_params *j)
{
    void *hosts, *locks;
    uint64_t bytes;
    if (w->config.machines >= REBUILD_MACHINES_MAX || (w->config.racks && w->packet.head.to.port >= w->config.racks) ||
        !rack_rules_fine(&w->rules, (unsigned)max_u64(w->config.racks, 1)))
        return -ERANGE;
    int rc = plane_map(p, "hosts", &hosts, &bytes);
    if (!rc)
        rc = plane_map(p, "locks", &locks, &bytes);
    if (rc)
        return rc;
    c->udp = udp;
    take_welcome(c, w);
    c->join = *j;
    c->live = plane_live(p);
    c->hosts = hosts;
    c->locks = locks;
    if (c->live->closed || (plane_found(p) && !rules_are_found(c))) {
        begin_rebuilding(c, plane_found(p));
    } else if (!plane_found(p)) {
        publish_rules(c);
        c->live->slots = own_slots(c);
    }
    listen_to_kernel(c, world_now(&world_real));
    return 0;
}

/* ---- packets that the kernel passed to us ---- */

static void answer_report(struct care *c, const struct fission_packet *p, uint32_t len, struct net_addr from)
{
    const struct rack_config *config = &c->config;
    const struct fission_rules rules = {
        .space = config->space, .life = c->live->epoch, .machines = config->machines, .locks = config->locks};
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

/* ---- the coordinator ---- */

static void tell(struct care *c, const void *packet, uint32_t len)
{
    const struct udp_out out = {.to = c->join.coordinator, .len = len, .data = packet};
    udp_send(c->udp, &out, 1);
}

static void beat(struct care *c, uint64_t machine, uint64_t found)
{
    struct coord_beat b;
    struct coord_packet *p = &b.packet;
    memset(&b, 0, sizeof b);
    coord_make(p, COORD_BEAT, c->welcome.packet.space, c->join.nonce);
    p->head.from = c->welcome.packet.head.to;
    p->head.epoch = c->welcome.packet.head.generation;
    p->head.index = machine;
    p->head.generation = (uint32_t)min_u64(found, UINT32_MAX);
    p->role = COORD_SWITCH;
    p->at = c->join.at;
    p->code = coord_config_sum(&c->welcome.config);
    b.rules = c->rules;
    tell(c, &b, sizeof b);
}

/* As if the state were lost: with rules by which this switch has other locks than before, or because its place was given away.
 * The answer says which hosts can hold something, so that nothing may be granted between question and answer. */
static void join_anew(struct care *c, uint64_t now)
{
    if (c->nonce_next)
        return;
    be_quiet(c);
    c->nonce_next = world_random(&world_real) | 1;
    c->joining_until_ns = now + c->config.lease_ns / JOINING_SHARE;
}

/* It is time to ask once more, or too late: much may be granted from now on. */
static void keep_joining(struct care *c, uint64_t now)
{
    if (now >= c->joining_until_ns) {
        c->nonce_next = 0;
        __atomic_store_n(&c->live->closed, c->rebuild.closed ? PLANE_REBUILDING : 0, __ATOMIC_RELEASE);
        return;
    }
    struct join_params j = c->join;
    j.nonce = c->nonce_next;
    j.rack = c->welcome.packet.head.to.port + 1u; /* its own place */
    struct coord_packet p = join_packet(&j);
    tell(c, &p, sizeof p);
}

static void on_welcome(struct care *c, const struct coord_welcome *w, uint64_t now)
{
    if (!c->nonce_next || now >= c->joining_until_ns || w->packet.head.nonce != c->nonce_next || w->packet.role != c->join.role ||
        memcmp(&w->config, &c->welcome.config, sizeof w->config) != 0 || w->packet.head.to.port != c->welcome.packet.head.to.port ||
        !rack_rules_fine(&w->rules, (unsigned)max_u64(w->config.racks, 1)))
        return;
    take_welcome(c, w);
    c->join.nonce = c->nonce_next;
    c->nonce_next = 0;
    begin_rebuilding(c, true);
    beat(c, 0, 0);
}

static void on_beaten(struct care *c, const struct coord_beat *b, uint64_t now)
{
    if (b->packet.head.index <= c->config.machines)
        c->look_for = (uint16_t)b->packet.head.index;
    if (!c->config.racks || b->rules.version <= c->rules.version || !rack_rules_fine(&b->rules, c->config.racks))
        return;
    if (rules_concern(&c->rules, &b->rules, c->config.rack)) {
        join_anew(c, now);
        return;
    }
    c->rules = b->rules;
    publish_rules(c);
}

static void on_coordinator(struct care *c, const struct coord_packet *p, uint64_t now)
{
    if (p->head.type == COORD_WELCOME)
        on_welcome(c, (const struct coord_welcome *)p, now);
    else if (p->head.type == COORD_BEATEN && p->head.nonce == c->join.nonce)
        on_beaten(c, (const struct coord_beat *)p, now);
    else if (p->head.type == COORD_REFUSED && p->head.nonce == c->join.nonce && p->code == -ESTALE)
        join_anew(c, now);
}

static void receive(struct care *c)
{
    uint64_t until = world_now(&world_real) + (c->rebuild.closed || c->nonce_next ? ROUND_CLOSED_NS : ROUND_NS);
    while (udp_wait(c->udp, &c->batch, 0, until)) {
        uint64_t now = world_now(&world_real);
        for (unsigned i = 0; i < c->batch.count; i++) {
            const void *data = c->batch.packet[i].data;
            uint32_t len = c->batch.packet[i].len;
            const struct coord_packet *p = coord_check(data, len, c->welcome.config.space);
            if (p)
                on_coordinator(c, p, now);
            else if (len <= PACKET_MAX && !c->nonce_next)
                answer_report(c, data, len, c->batch.packet[i].from);
        }
        if (c->nonce_next)
            return; /* which is to be told at once */
    }
}

static uint16_t heir_of(const struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->welcome.config.machines; m++)
        if (c->hosts[m].ip && c->hosts[m].asked && lives(c, m, now))
            return m;
    return MACHINE_NONE;
}

/* As fisslock_switch_scan does, beside a program that decides meanwhile. */
static void look(struct care *c, uint64_t now)
{
    uint16_t machine = c->look_for, heir = heir_of(c, now);
    const struct rack_config *config = &c->config;
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
    if (c->nonce_next) {
        keep_joining(c, now);
        return false;
    }
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
