/* SPDX-License-Identifier: Apache-2.0 */
/* The control process of FissLock's switch in the kernel. It rebuilds state that was lost, tells the coordinator that the switch is
 * there, looks for machines that are gone, and begins anew with other locks if the coordinator says so: as node/station.c does for
 * a switch in software. */
#include "cluster/host.h"
#include "dataplane/fission.h"
#include "designs/fisslock/racks.h"
#include "designs/fisslock/spill.h"
#include "designs/packet/parts.h"
#include "node/kernel_internal.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_NS (100 * NS_PER_MS)      /* how long one round lasts, */
#define ROUND_CLOSED_NS (5 * NS_PER_MS) /* and while others wait for the switch */
#define LEASE_DRIFT_DIVISOR 1000        /* clocks differ by one in ten thousand, and a tick or two */
#define SCAN_LOCKS (1u << 18)           /* looked at in one round */

struct care {
    struct member *member;
    struct rack_config config; /* the rack's own: with its number of the space */
    volatile struct plane_live *live;
    volatile struct plane_host *hosts; /* the kernel's */
    volatile struct plane_seal *seals; /* the kernel's keys */
    struct rebuild_lock *locks;
    struct rebuild rebuild;
    uint64_t heard[REBUILD_MACHINES_MAX];    /* as it was when last looked at, */
    uint64_t heard_ns[REBUILD_MACHINES_MAX]; /* and when it had changed */
    uint64_t look_next, look_found;          /* for the machine that the coordinator asks about */
    struct udp_batch batch;
    uint64_t joined; /* how often anew */
    struct figures_board board;
};

static uint64_t lease_at_most(const struct care *c)
{
    uint64_t lease = c->config.lease_ns;
    return lease + lease / LEASE_DRIFT_DIVISOR + 2 * ROUND_NS;
}

/* ---- which hosts live ---- */

/* The program counts packets of each host: a count that has changed since the last look means that the host lives. */
static void listen_to_kernel(struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->config.machines; m++) {
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

/* No packet reads the table that is not in use: those that did have left. */
static void publish_rules(struct care *c)
{
    uint32_t at = !(c->live->rules_at & 1);
    volatile struct plane_rules *to = &c->live->rules[at];
    uint64_t owner[RACK_SHARDS / 8];
    memcpy(owner, c->member->rules.owner, sizeof owner);
    for (unsigned i = 0; i < countof(owner); i++)
        to->owner[i] = owner[i];
    to->version = c->member->rules.version;
    __atomic_store_n(&c->live->rules_at, at, __ATOMIC_RELEASE);
    kernel_grace();
}

static uint64_t own_shards(const struct care *c)
{
    uint64_t shards = 0;
    for (unsigned s = 0; s < RACK_SHARDS; s++)
        shards |= (uint64_t)(c->member->rules.owner[s] == c->config.rack) << s;
    return shards;
}

static void be_quiet(struct care *c)
{
    __atomic_store_n(&c->live->closed, PLANE_QUIET, __ATOMIC_SEQ_CST);
    kernel_grace();
}

/* State was lost, and hosts hold locks that the switch does not know of (5.3), in the life that the coordinator gave. State that
 * the process before left does not count: hosts report again what they reported to it. */
static void begin_rebuilding(struct care *c, bool found)
{
    const struct coord_welcome *w = &c->member->welcome.said;
    be_quiet(c);
    if (found)
        memset(c->locks, 0, c->config.locks * sizeof *c->locks);
    /* From now on: until it was quiet the former life gave leases. */
    rebuild_begin(&c->rebuild, c->config.machines, world_now(&world_real) + lease_at_most(c));
    if (w->live_known)
        rebuild_expect(&c->rebuild, w->live, COORD_LIVE_WORDS);
    for (uint16_t m = 1; m <= c->config.machines; m++)
        c->hosts[m].apart = c->rebuild.state[m] == REBUILD_APART;
    publish_rules(c);
    c->live->shards = own_shards(c);
    c->live->life = w->packet.head.generation;
    c->live->epoch = c->config.lease_ns ? c->live->life : 0;
    __atomic_store_n(&c->live->closed, PLANE_REBUILDING, __ATOMIC_RELEASE);
    kernel_grace(); /* no packet that still knows the former life will find it open */
    c->look_next = c->look_found = 0;
}

static void take_config(struct care *c)
{
    const struct coord_welcome *w = &c->member->welcome.said;
    c->config = w->config.racks ? parts_config(&w->config, w->packet.head.to.port) : w->config;
}

/* Whether the state that was found goes by the same rules. If not, another switch may have had its locks meanwhile. */
static bool rules_are_found(const struct care *c)
{
    return c->live->rules[c->live->rules_at & 1].version == c->member->rules.version && c->live->shards == own_shards(c);
}

static int care_begin(struct care *c, struct plane *p, struct member *m)
{
    const struct coord_welcome *w = &m->welcome.said;
    void *hosts, *locks;
    uint64_t bytes;
    if (w->config.machines >= REBUILD_MACHINES_MAX || (w->config.racks && w->packet.head.to.port >= w->config.racks) ||
        !rack_rules_fine(&w->rules, (unsigned)max_u64(w->config.racks, 1)))
        return explain(-ERANGE, "the space has more hosts or racks than the program knows");
    int rc = plane_map(p, "hosts", &hosts, &bytes);
    if (!rc)
        rc = plane_map(p, "locks", &locks, &bytes);
    if (rc)
        return rc;
    c->member = m;
    take_config(c);
    c->live = plane_live(p);
    c->hosts = hosts;
    c->locks = locks;
    rc = kernel_map_seals(p, c->hosts, m->roster, &c->seals);
    if (rc)
        return rc;
    if (c->live->closed || (plane_found(p) && !rules_are_found(c))) {
        begin_rebuilding(c, plane_found(p));
    } else if (!plane_found(p)) {
        publish_rules(c);
        c->live->shards = own_shards(c);
    }
    listen_to_kernel(c, world_now(&world_real));
    return 0;
}

/* ---- packets that the kernel passed on ---- */

static void send_to_host(struct care *c, struct net_addr to, const struct fission_packet *p)
{
    struct seal_key key = kernel_key(c->seals, c->member->roster, p->head.to.machine);
    const struct udp_out out = {.to = to, .len = sizeof *p, .data = p, .key = seal_known(&key) ? &key : NULL};
    udp_send(member_udp(c->member), &out, 1);
}

static void answer_report(struct care *c, struct fission_packet *p, uint32_t len, struct net_addr from)
{
    const struct rack_config *config = &c->config;
    if (config->racks)
        len = racks_keep_own(&c->member->rules, config->rack, p, len);
    struct fission_rules rules = rules_of(config);
    rules.life = c->live->epoch;
    if (fission_verify(p, len, &rules) != FISSION_FINE || p->head.type != FISSION_REPORT ||
        !rebuild_report(&c->rebuild, c->locks, config->locks, p))
        return;
    struct fission_packet answer = *p;
    answer.count = 0;
    answer.head.to = p->head.from;
    answer.head.from.machine = MACHINE_SWITCH;
    send_to_host(c, from, &answer);
}

/* ---- the coordinator ---- */

static void on_coordinator(struct care *c, const void *data, uint32_t len)
{
    switch (member_hear(c->member, data, len)) {
    case MEMBER_NOTHING:
    case MEMBER_GROWN: /* of lock servers */
        break;
    case MEMBER_JOINED:
        c->joined++;
        take_config(c);
        begin_rebuilding(c, true);
        member_beat(c->member, 0, 0);
        break;
    case MEMBER_RULES:
        publish_rules(c);
        break;
    case MEMBER_STALE:
    case MEMBER_SUPERSEDED:
        be_quiet(c);
        break;
    }
}

/* When the time for it is over the switch goes on as it was. */
static void keep_rejoining(struct care *c)
{
    member_turn(c->member);
    if (!member_is_joining(c->member, host_now()))
        __atomic_store_n(&c->live->closed, c->rebuild.closed ? PLANE_REBUILDING : 0, __ATOMIC_RELEASE);
}

/* Whether the packet is open. One of a host of which the coordinator has not told yet, or of a later life of it, is asked about. */
static bool opens(struct roster *r, void *data, uint32_t len, struct net_addr from, struct seal_key *used)
{
    const struct packet_head *h = data;
    if (roster_opens(r, data, len, used))
        return true;
    bool host = h->from.machine && h->from.machine <= r->machines;
    r->untagged += !host || !seal_is_tagged(data, len) || roster_admits(r, h->from.machine, roster_life_of(h), from);
    return false;
}

static void receive(struct care *c)
{
    struct member *m = c->member;
    uint64_t until = world_now(&world_real) + (c->rebuild.closed || m->nonce_next ? ROUND_CLOSED_NS : ROUND_NS);
    while (udp_wait(member_udp(m), &c->batch, 0, until)) {
        for (unsigned i = 0; i < c->batch.count; i++) {
            void *data = c->batch.packet[i].data;
            uint32_t len = c->batch.packet[i].len;
            struct seal_key used = {.k = {0}};
            if (len >= sizeof(struct packet_head) && !opens(m->roster, data, len, c->batch.packet[i].from, &used))
                continue;
            if (len >= sizeof(struct packet_head) && member_asked(m, data, len, c->batch.packet[i].from, &used))
                continue;
            const struct packet_head *h = data;
            uint16_t machine = len >= sizeof *h ? h->from.machine : 0;
            if (machine && machine <= m->roster->machines &&
                !roster_admits(m->roster, machine, roster_life_of(h), c->batch.packet[i].from))
                continue;
            if (coord_check(data, len, m->welcome.said.config.space))
                on_coordinator(c, data, len);
            else if (len <= PACKET_MAX && !m->nonce_next)
                answer_report(c, data, len, c->batch.packet[i].from);
        }
        kernel_tell_hosts(c->hosts, c->seals, m->roster);
        member_ask_hosts(m, host_now());
        if (m->nonce_next)
            return; /* the coordinator is to be told at once */
    }
}

static uint16_t heir_of(const struct care *c, uint64_t now)
{
    for (uint16_t m = 1; m <= c->config.machines; m++)
        if (c->hosts[m].ip && c->hosts[m].asked && lives(c, m, now))
            return m;
    return MACHINE_NONE;
}

/* As fisslock_switch_scan does, beside a program that decides meanwhile. */
static void look(struct care *c, uint64_t now)
{
    uint16_t machine = c->member->look_for, heir = heir_of(c, now);
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
        tell.token += fission_base(lock->age, c->live->life);
        send_to_host(c, kernel_address(&c->hosts[heir], heir, ntohs(c->hosts[heir].pool_port)), &tell);
    }
    if (c->look_next < config->locks)
        return;
    member_beat(c->member, machine, c->look_found);
    c->member->look_for = 0;
    c->look_next = c->look_found = 0;
}

/* A while of it. True: the switch has opened just now. */
static bool care_round(struct care *c)
{
    member_ask_hosts(c->member, host_now());
    receive(c);
    uint64_t now = world_now(&world_real);
    listen_to_kernel(c, now);
    if (c->member->nonce_next) {
        keep_rejoining(c);
        return false;
    }
    bool was_closed = c->rebuild.closed;
    if (was_closed && !rebuild_closed(&c->rebuild, now, lives, c))
        c->live->closed = 0;
    if (c->member->look_for && !c->rebuild.closed)
        look(c, now);
    member_turn(c->member);
    return was_closed && !c->rebuild.closed;
}

/* ---- figures ---- */

/* The program counts packets that come. Whether it granted anything by them it does not count. */
static void publish(struct care *c, const struct plane *plane, uint64_t now)
{
    const struct member *m = c->member;
    struct plane_counters k;
    if (plane_count(plane, &k))
        return;
    const uint64_t *v = k.verdict, *r = k.reason;
    struct figures_part p = {
        .kind = FIGURES_GRANTER,
        .ready = !c->rebuild.closed && !m->nonce_next && !member_is_alone(m, host_now()),
        .at = m->join.at,
        .granter = {.is_switch = 1,
                    .life = m->welcome.said.packet.head.generation,
                    .term = m->term,
                    .alone = member_is_alone(m, host_now()),
                    .superseded = m->superseded,
                    .joined_anew = c->joined,
                    .locks = c->config.locks,
                    .memory_bytes = c->config.locks * sizeof *c->locks,
                    .packets = v[PLANE_DROPPED] + v[PLANE_ABSORBED] + v[PLANE_ANSWERED] + v[PLANE_SENT] + v[PLANE_DOUBLED],
                    .answers = v[PLANE_ANSWERED] + v[PLANE_SENT] + 2 * v[PLANE_DOUBLED],
                    .unroutable = r[PLANE_UNKNOWN],
                    .bad = r[PLANE_INDEX] + r[PLANE_TYPE],
                    .alien = r[PLANE_ALIEN] + r[PLANE_FOREIGN],
                    .stale = r[PLANE_EPOCH] + r[PLANE_OUTDATED] + r[PLANE_REFUSED] + m->roster->late,
                    .foreign = m->foreign,
                    .forged = r[PLANE_FORGED] + m->forged + m->roster->forged,
                    .unissued = m->roster->unknown,
                    .untagged = r[PLANE_UNTAGGED] + m->roster->untagged,
                    .family = PACKET_FISSION}};
    snprintf(p.space, sizeof p.space, "%s", m->welcome.said.packet.space);
    snprintf(p.design, sizeof p.design, "%s", m->welcome.said.design);
    memcpy(p.granter.in, k.type[PACKET_FISSION], sizeof k.type[PACKET_FISSION]);
    static_assert(PLANE_TYPES <= FIGURES_TYPES, "each has its count");
    p.granter.grants[GRANT_BY_SWITCH] = p.granter.grants[GRANT_BY_SERVER] = PACKET_UNCOUNTED;
    p.granter.grants[GRANT_BY_AGENT] = p.granter.in[FISSION_GRANT];
    memset(&p.granter.design, 0xff, sizeof p.granter.design); /* PACKET_UNCOUNTED */
    figures_publish(&c->board, &p);
}

/* ---- the run ---- */

/* Hosts report state that was lost; until then nothing is decided. The program is attached when it has everything that it tells
 * them. */
static int serve(const struct kernel_params *p, struct plane *plane, struct member *m)
{
    struct care *c = calloc(1, sizeof *c);
    int rc = c ? care_begin(c, plane, m) : explain(-ENOMEM, "out of memory");
    if (!rc)
        rc = kernel_attach(p, plane);
    assert(rc || (c && c->live));
    if (!rc && c->live->closed)
        p->report("closed until hosts have told what they hold, or their leases are over");
    if (!rc)
        p->report("switch of space '%s' is ready", p->station.member.space);
    if (!rc)
        figures_show(&c->board);
    while (!rc && !*p->station.member.stop && !m->outdated) {
        if (care_round(c))
            p->report("open; %" PRIu64 " locks are held from before", c->rebuild.held);
        if (figures_due(&c->board, world_now(&world_real)))
            publish(c, plane, world_now(&world_real));
    }
    if (!rc)
        figures_hide(&c->board);
    if (!rc && m->outdated)
        rc = explain(-ESTALE, "the space '%s' has more locks or other settings now: start the switch again",
                     p->station.member.space);
    free(c);
    return rc;
}

static int check_locks(const struct kernel_params *p, const char *program, uint64_t locks)
{
    char what[48];
    snprintf(what, sizeof what, "%" PRIu64 " locks", locks);
    if (locks > UINT32_MAX)
        return explain(-EFBIG, "a map of the kernel has fewer than 2^32 locks");
    return kernel_check_memory(p->report, what, plane_lock_bytes(program, locks));
}

int kernel_fission_run(const struct kernel_params *p, struct member *m, const char *program)
{
    struct plane *plane = NULL;
    if (p->station.policy.alloc_given || p->station.policy.levels_given)
        return explain(-PAWL_ENOTSUP, "the space has the design '%s', which has neither --alloc nor --priorities",
                       m->welcome.said.design);
    int rc = check_locks(p, program, m->welcome.said.config.locks);
    if (!rc)
        rc = kernel_open_plane(p, m, program, p->station.fresh, NULL, &plane);
    if (rc)
        return rc;
    rc = serve(p, plane, m);
    if (!rc)
        kernel_report_end(p, plane);
    if (m->outdated)
        plane_close(plane, PLANE_REMOVE); /* pinned state is that of the space as it was */
    else
        kernel_close_plane(p, plane);
    return rc;
}
