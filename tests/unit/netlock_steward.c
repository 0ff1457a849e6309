/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock's steward, heartbeats by hand: which switch it elects, which server gets which slot, in which term, and how long it waits
 * when it has lost its memory. Then the policies of a switch that people set: quotas. */
#include "designs/netlock/steward.h"
#include "designs/netlock/switch.h"
#include "designs/netlock/switches.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>

#define SERVERS 3
#define FIRST_SERVER 5 /* its machine */
#define LEASE_NS NS_PER_S
#define OVER_NS (LEASE_NS + 2 * (LEASE_NS / LEASE_DRIFT_DIVISOR) + 1)
#define BRIEF_NS (LEASE_NS / NETLOCK_BRIEF_SHARE) /* a lease of a switch that has a backup */
#define BRIEF_OVER_NS (BRIEF_NS + 2 * (BRIEF_NS / LEASE_DRIFT_DIVISOR) + 1)
#define LIFE 100

static const struct rack_config config = {.space = 7,
                                          .machines = 4,
                                          .sessions = 1,
                                          .requests = 1,
                                          .servers = SERVERS,
                                          .server = {FIRST_SERVER, FIRST_SERVER + 1, FIRST_SERVER + 2},
                                          .switches = 2,
                                          .locks = 16,
                                          .lease_ns = LEASE_NS,
                                          .retry_ns = NS_PER_MS};
static struct steward s;
static struct outbox out;
static uint64_t now;
static struct netlock_table said; /* by the latest answer */
static uint8_t flags;
static bool named; /* it has a list of hosts: */
static uint64_t hosts[NETLOCK_HOST_WORDS];
static bool older;              /* members are of a build that takes whole leases only */
static uint32_t follows = LIFE; /* life of the steward that members follow */

static const struct place original = {MACHINE_SWITCH, 0}, backup = {MACHINE_SWITCH, 1};

static struct place server(unsigned i)
{
    return (struct place){(uint16_t)(FIRST_SERVER + i), PORT_SERVER};
}

static void begin(bool fresh, uint64_t options)
{
    struct rack_config c = config;
    c.options = options;
    memset(&s, 0, sizeof s);
    now = 7 * LEASE_NS;
    netlock_steward_init(&s, &c, LIFE, fresh, now);
    CHECK_EQ(netlock_steward_bytes(&c), sizeof s);
}

/* Whether it is answered: then it has a lease, and what the steward says is in `said`. */
static bool beat_with(struct place from, uint32_t life, const struct netlock_table *t, uint8_t more, uint64_t until)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    outbox_clear(&out);
    struct netlock_packet *p = netlock_beat(&config, t, life, from, now, until, &out);
    p->flags |= more;
    if (older)
        p->flags &= (uint8_t)~NETLOCK_BEAT_BRIEF;
    p->ticket = follows;
    uint32_t len = out.packet[0].len;
    memcpy(packet, p, len);
    outbox_clear(&out);
    netlock_steward_packet(&s, packet, len, now, &out);
    if (!out.packets)
        return false;
    CHECK_EQ(out.packets, 1);
    const struct netlock_packet *a = (const void *)outbox_packet(&out, 0);
    if (a->head.type == NETLOCK_FOLLOW) {
        CHECK(a->head.epoch == LIFE && a->ticket == life && a->head.to.machine == from.machine && a->head.to.port == from.port);
        return false;
    }
    CHECK(a->head.type == NETLOCK_TERM && a->head.to.machine == from.machine && a->head.to.port == from.port);
    CHECK(a->head.from.machine == MACHINE_STEWARD && a->head.epoch == LIFE && a->stamp == now && a->ticket == life);
    CHECK_EQ(netlock_table_read(&config, a, out.packet[0].len, &said), 0);
    flags = a->flags;
    const uint64_t *list = netlock_hosts_read(a, out.packet[0].len);
    named = list;
    if (named)
        memcpy(hosts, list, sizeof hosts);
    CHECK(named == !!(flags & NETLOCK_TERM_HOSTS));
    return true;
}

static bool beat(struct place from, uint32_t life)
{
    const struct netlock_table none = {0};
    return beat_with(from, life, &none, 0, 0);
}

static const struct netlock_slot *slot(unsigned i)
{
    for (uint32_t n = 0; n < said.count; n++)
        if (said.slots[n].slot == i)
            return &said.slots[n];
    return NULL;
}

/* ---- a rack that begins ---- */

/* Each slot goes to the server of its number, and the original switch is active; both have a lease to come. */
static void fresh(void)
{
    begin(true, 0);
    CHECK(beat(backup, 4));
    CHECK(!said.term && !said.count);
    CHECK(beat(server(1), 2));
    CHECK_EQ(said.count, 1);
    CHECK(slot(1)->owner == 1 && slot(1)->life == 2 && slot(1)->first && slot(1)->term > LIFE);
    now += OVER_NS - 1;
    CHECK(beat(backup, 4));
    CHECK(!said.term && said.count == 1);
    CHECK(beat(server(1), 2) && beat(server(2), 9));
    CHECK(slot(2)->owner == 2 && slot(2)->life == 9 && !slot(0));
    uint32_t before = slot(2)->term;
    now++;
    CHECK(beat(server(2), 9));
    CHECK(slot(0)->owner == 1 && slot(0)->first); /* as many slots each: the lower number */
    CHECK(slot(0)->term > before);
    CHECK(said.number == 1 && said.active_life == 4 && said.term > before && !(flags & NETLOCK_TERM_CLEAN));
}

/* The first one that is elected finds nothing that is held. It loses that when it is elected again. */
static void clean(void)
{
    begin(true, 0);
    CHECK(beat(original, 3));
    CHECK(said.number == 0 && said.active_life == 3 && flags & NETLOCK_TERM_CLEAN);
    uint32_t term = said.term;
    CHECK_EQ(term, LIFE + 1);
    CHECK(beat(original, 3));
    CHECK(said.term == term && flags & NETLOCK_TERM_CLEAN);
    CHECK(beat(original, 4)); /* its memory was lost */
    CHECK(said.term == term + 1 && said.active_life == 4 && !(flags & NETLOCK_TERM_CLEAN));
    CHECK(!beat(original, 3)); /* from before */
}

/* Terms rise at least by one each time, and with time: a steward that starts anew begins above all that were given. */
static void terms(void)
{
    begin(true, 0);
    now += UINT64_C(40) << NETLOCK_TERM_TICK_SHIFT;
    CHECK(beat(original, 1));
    CHECK_EQ(said.term, LIFE + 40);
    for (uint32_t life = 2; life < 5; life++) {
        CHECK(beat(original, life));
        CHECK_EQ(said.term, LIFE + 39 + life);
    }
    const struct netlock_table t = {.term = LIFE + 500, .count = 1, .slots = {{.slot = 1, .term = LIFE + 600}}};
    CHECK(beat_with(server(0), 1, &t, 0, 0)); /* one that the steward does not know of */
    CHECK_EQ(slot(0)->term, LIFE + 601);
}

/* ---- changes ---- */

static void begin_all(uint64_t options)
{
    begin(true, options);
    CHECK(beat(original, 1) && beat(backup, 1));
    for (unsigned i = 0; i < SERVERS; i++)
        CHECK(beat(server(i), 1));
    CHECK(said.count == SERVERS && said.number == 0);
}

static void others_beat(unsigned without)
{
    for (unsigned i = 0; i < SERVERS; i++)
        if (i != without)
            CHECK(beat(server(i), 1));
    CHECK(beat(backup, 1));
}

/* A server that is silent for a lease loses its slots to the one with the fewest, and does not get them back. */
static void server_lost(void)
{
    begin_all(0);
    uint64_t last = now;
    while (now + LEASE_NS / 4 < last + OVER_NS) {
        now += LEASE_NS / 4;
        others_beat(2);
        CHECK(beat(original, 1));
        CHECK_EQ(slot(2)->owner, 2);
    }
    now = last + OVER_NS - 1;
    others_beat(2);
    CHECK_EQ(slot(2)->owner, 2);
    uint32_t term = slot(2)->term;
    now++;
    others_beat(2);
    CHECK(beat(original, 1));
    CHECK(slot(2)->owner == 0 && slot(2)->life == 1 && slot(2)->term > term && !slot(2)->first);
    CHECK(slot(0)->owner == 0 && slot(1)->owner == 1);
    CHECK(beat(server(2), 1));
    CHECK_EQ(slot(2)->owner, 0);
    /* The next one goes to the server with nothing, for all that it is not its own. */
    now += OVER_NS - 1;
    CHECK(beat(server(2), 1) && beat(server(0), 1) && beat(original, 1));
    now++;
    CHECK(beat(server(2), 1));
    CHECK(slot(1)->owner == 2 && slot(0)->owner == 0 && slot(2)->owner == 0);
    CHECK(beat(server(0), 2)); /* lost its memory: both of its slots are given anew, in one term, and the other one's own to it */
    CHECK(slot(0)->owner == 0 && slot(0)->life == 2 && slot(2)->owner == 2 && slot(0)->term == slot(2)->term);
}

/* The backup takes over when the original is lost, drains when that one is back, and gives the term back when it has nothing left.
 */
static void switch_lost(void)
{
    begin_all(0);
    now += BRIEF_OVER_NS - 1;
    others_beat(SERVERS);
    CHECK(said.number == 0 && !(flags & NETLOCK_TERM_RETIRE));
    uint32_t term = said.term;
    now++;
    CHECK(beat(backup, 1));
    CHECK(said.number == 1 && said.active_life == 1 && said.term > term && !(flags & NETLOCK_TERM_CLEAN));
    term = said.term;
    CHECK(beat(original, 2));
    CHECK(said.number == 1 && said.term == term && flags & NETLOCK_TERM_RETIRE);
    const struct netlock_table old = {.term = term - 1, .number = 1}, held = {.term = term, .number = 1};
    CHECK(beat_with(backup, 1, &old, NETLOCK_BEAT_EMPTY, 0)); /* of another term */
    CHECK_EQ(said.number, 1);
    CHECK(beat_with(original, 2, &held, NETLOCK_BEAT_EMPTY, 0)); /* not the active one */
    CHECK_EQ(said.number, 1);
    CHECK(beat_with(backup, 1, &held, NETLOCK_BEAT_EMPTY, 0));
    CHECK(said.number == 0 && said.active_life == 2 && said.term > term);
    CHECK(!(flags & (NETLOCK_TERM_RETIRE | NETLOCK_TERM_CLEAN))); /* of the term before the backup's something may be left */
    CHECK_EQ(s.counts.returns, 1);
}

/* A switch of an older build takes whole leases, and is waited for as long. */
static void switch_of_older_build(void)
{
    older = true;
    begin_all(0);
    now += OVER_NS - 1;
    CHECK(beat(backup, 1));
    CHECK_EQ(said.number, 0);
    now++;
    CHECK(beat(backup, 1));
    CHECK_EQ(said.number, 1);
    older = false;
}

/* Switches hear of the hosts that there are; servers, and switches that would not understand, do not. */
static void names_hosts(void)
{
    const uint64_t there[NETLOCK_HOST_WORDS] = {2, 0, 5}, none[NETLOCK_HOST_WORDS] = {0};
    begin_all(0);
    CHECK(beat(original, 1) && !named);
    netlock_steward_hosts(&s, there, NETLOCK_HOST_WORDS);
    CHECK(beat(original, 1) && named && !memcmp(hosts, there, sizeof hosts) && said.count == SERVERS);
    CHECK(beat(server(1), 1) && !named);
    older = true;
    CHECK(beat(original, 1) && !named);
    older = false;
    netlock_steward_hosts(&s, none, NETLOCK_HOST_WORDS);
    CHECK(beat(backup, 1) && named && !memcmp(hosts, none, sizeof hosts));
    netlock_steward_hosts(&s, NULL, NETLOCK_HOST_WORDS);
    CHECK(beat(backup, 1) && !named);
    netlock_steward_hosts(&s, there, NETLOCK_HOST_WORDS - 1); /* from a coordinator that counts hosts in fewer words */
    CHECK(beat(backup, 1) && !named);
    const uint16_t machines = s.config.machines;
    s.config.machines = 64 * NETLOCK_HOST_WORDS; /* more than the list can name */
    netlock_steward_hosts(&s, there, NETLOCK_HOST_WORDS);
    CHECK(!s.hosts_known);
    s.config.machines = machines;
}

/* A table whose length is not that of its slots and hosts says nothing. */
static void cut_tables(void)
{
    const uint64_t there[NETLOCK_HOST_WORDS] = {2, 0, 5};
    struct netlock_table t;
    begin_all(0);
    netlock_steward_hosts(&s, there, NETLOCK_HOST_WORDS);
    CHECK(beat(original, 1) && named);
    const struct netlock_packet *a = (const void *)outbox_packet(&out, 0);
    uint32_t whole = out.packet[0].len, slots = whole - (uint32_t)sizeof there;
    for (uint32_t len = 0; len <= whole; len += 4) {
        CHECK_EQ(netlock_table_read(&config, a, len, &t), len == whole || len == slots ? 0 : -EINVAL);
        CHECK_EQ(netlock_hosts_read(a, len) != NULL, len == whole);
    }
}

/* If leases have ended since the active one was elected, it gives back a clean term. */
static void returned_clean(bool late)
{
    begin_all(0);
    now += BRIEF_OVER_NS;
    CHECK(beat(backup, 1));
    const struct netlock_table held = {.term = said.term, .number = 1};
    for (uint64_t until = now + OVER_NS - 1; now < until; now += min_u64(until - now, LEASE_NS / 4))
        CHECK(beat(backup, 1) && beat(original, 1));
    now += late;
    CHECK(beat(original, 1) && beat_with(backup, 1, &held, NETLOCK_BEAT_EMPTY, 0));
    CHECK(said.number == 0 && !!(flags & NETLOCK_TERM_CLEAN) == late);
}

/* In trials both switches take turns. */
static void toggles(void)
{
    begin_all(NETLOCK_TOGGLE);
    CHECK(!(flags & NETLOCK_TERM_RETIRE));
    for (uint64_t until = 7 * LEASE_NS + 2 * LEASE_NS; now < until; now += LEASE_NS / 4) {
        CHECK(beat(original, 1) && beat(backup, 1));
        CHECK(!(flags & NETLOCK_TERM_RETIRE));
    }
    CHECK(beat(original, 1));
    CHECK(flags & NETLOCK_TERM_RETIRE && said.number == 0);
}

/* ---- a steward that lost its memory ---- */

static const struct netlock_table before = {
    .term = 40,
    .active_life = 1,
    .number = 1,
    .count = 2,
    .slots = {{.slot = 0, .owner = 2, .term = 30, .life = 1}, {.slot = 2, .owner = 1, .term = 41, .life = 1}}};

/* As soon as all were heard, one of them with a lease, it goes on with what they have. */
static void remembers(void)
{
    begin(false, 0);
    CHECK(!beat_with(original, 1, &before, 0, 0) && !beat(backup, 1) && !beat(server(0), 1) && !beat(server(1), 1));
    CHECK(beat_with(server(2), 1, &before, 0, now + 1));
    CHECK(said.term == 40 && said.number == 1 && said.active_life == 1);
    CHECK(slot(0)->owner == 2 && slot(0)->term == 30 && slot(2)->owner == 1 && slot(2)->term == 41 && !slot(0)->first);
    CHECK(slot(1)->owner == 1 && slot(1)->term > LIFE && !slot(1)->first);
    begin(false, 0); /* the latest of what they say */
    struct netlock_table later = before;
    later.term = 50;
    later.number = 0;
    later.slots[0].term = 60;
    later.slots[0].owner = 0;
    CHECK(!beat_with(original, 1, &later, 0, 0) && !beat_with(backup, 1, &before, 0, 0) && !beat(server(0), 1) &&
          !beat(server(1), 1));
    CHECK(beat_with(server(2), 1, &before, 0, now + 1));
    CHECK(said.term == 50 && said.number == 0 && slot(0)->owner == 0 && slot(0)->term == 60);
}

/* A member's report counts when the member follows this steward. A TERM of the one before that comes late is void then: the
 * member could take up an assignment that it has not reported. */
static void late_term(uint64_t mistakes)
{
    struct rack_config c = config;
    struct netlock_table mine = {0}, taken;
    struct packet_drops dropped = {0};
    uint64_t until = now + 1, late_stamp;
    c.mistakes = mistakes;
    begin(false, 0);
    s.config.mistakes = mistakes;
    follows = 0;
    late_stamp = now; /* of a BEAT that the steward before has answered */
    CHECK(!beat_with(original, 1, &before, 0, until) && !beat(backup, 1) && !beat(server(0), 1) && !beat(server(1), 1));
    CHECK_EQ(beat(server(2), 1), mistakes != 0);
    const struct netlock_packet *follow = (const void *)outbox_packet(&out, 0);
    CHECK_EQ(follow->head.type, mistakes ? NETLOCK_TERM : NETLOCK_FOLLOW);
    now++;
    if (!mistakes)
        CHECK(!netlock_table_hear(&c, follow, sizeof *follow, 1, 0, now, &dropped, &mine.steward, &taken) && mine.steward == LIFE);
    struct outbox *box = calloc(1, sizeof *box);
    const struct netlock_table old = {.term = 45, .number = 0, .active_life = 1};
    struct netlock_packet *late =
        netlock_table_write(&c, &old, NETLOCK_TERM, LIFE - 1, (struct place){MACHINE_STEWARD, PORT_POOL}, original, box);
    late->stamp = late_stamp;
    late->ticket = 1;
    uint64_t lease = netlock_table_hear(&c, late, box->packet[0].len, 1, 0, now, &dropped, &mine.steward, &taken);
    CHECK_EQ(lease != 0, mistakes != 0);
    free(box);
    follows = LIFE + 1; /* and a steward that was deposed gives no lease to a member that follows another one */
    uint64_t all = s.drops.stale;
    CHECK(!beat(backup, 1) && s.drops.stale == all + 1);
    follows = LIFE;
}

/* Else it waits until all leases have ended, and gives everything anew. */
static void forgets(void)
{
    begin(false, 0);
    CHECK(!beat_with(original, 1, &before, 0, 0) && !beat(backup, 1) && !beat(server(0), 1) && !beat(server(1), 1));
    CHECK(!beat_with(server(2), 1, &before, 0, now)); /* its lease has just ended */
    CHECK_EQ(netlock_steward_tick(&s, now, &out), now + LEASE_NS / LEASE_SHARE);
    now += OVER_NS - 1;
    CHECK(!beat(original, 1) && !beat(server(2), 1) && !beat(server(0), 1));
    now++;
    CHECK(beat(server(2), 1));
    CHECK(said.number == 0 && said.active_life == 1 && said.term > LIFE && !(flags & NETLOCK_TERM_CLEAN));
    CHECK(slot(0)->owner == 0 && slot(2)->owner == 2 && slot(0)->term > LIFE && !slot(0)->first);
}

/* ---- what is no heartbeat ---- */

static uint64_t drops(void)
{
    return s.drops.bad + s.drops.alien + s.drops.stale + s.drops.unreadable;
}

static void dropped(const struct netlock_packet *p, uint32_t len)
{
    uint64_t all = drops();
    outbox_clear(&out);
    netlock_steward_packet(&s, p, len, now, &out);
    CHECK_EQ(out.packets, 0);
    CHECK_EQ(drops(), all + 1);
}

static void bad_packets(void)
{
    struct {
        struct netlock_packet p;
        struct netlock_slot slots[SERVERS + 1];
    } sound, b;
    begin_all(0);
    outbox_clear(&out);
    memset(&sound, 0, sizeof sound);
    memcpy(&sound, netlock_beat(&config, &before, 1, original, now, 0, &out), out.packet[0].len);
    const uint32_t len = (uint32_t)(sizeof b.p + 2 * sizeof b.slots[0]);
    CHECK_EQ(out.packet[0].len, len);
#define DROPPED(change, length)                                                                                                    \
    do {                                                                                                                           \
        b = sound;                                                                                                                 \
        change;                                                                                                                    \
        dropped(&b.p, length);                                                                                                     \
    } while (0)
    DROPPED(b.p.head.version++, len);
    DROPPED(b.p.head.type = NETLOCK_TERM, len);
    DROPPED(b.p.head.epoch = 0, len);
    DROPPED(b.p.count++, len);
    DROPPED(b.p.count = SERVERS + 1, (uint32_t)sizeof b);
    DROPPED(b.p.round = STEWARD_SWITCHES, len);
    DROPPED(b.slots[1].slot = SERVERS, len);
    DROPPED(b.slots[1].owner = SERVERS, len);
    DROPPED(b.slots[0].term = 0, len);
    DROPPED(b.p.head.from.port = STEWARD_SWITCHES, len);
    DROPPED(b.p.head.from.machine = FIRST_SERVER + SERVERS, len);
    DROPPED(b.p.head.from.machine = 1, len);
    DROPPED(b.p.stamp--, len); /* overtaken by a later one of the same life */
    outbox_clear(&out);
    netlock_steward_packet(&s, &sound, len, now, &out);
    CHECK_EQ(out.packets, 1);
}

/* ---- policies ---- */

/* Rates are counted in requests per 2^20 of 1,024 ns: one request per second can be told, and up to four billion. */
static void quotas(void)
{
    struct rack_config c = config;
    void *w = calloc(1, netlock_switch_bytes(&c));
    CHECK(w);
    netlock_switch_init(w, &c, 1, now);
    CHECK_EQ(netlock_set_quota(w, 1, 1000000, 64), 0);
    struct netlock_quota q = plane_quota_of(switch_plane(w), 1);
    CHECK(q.burst == 64 && q.rate == (UINT64_C(1000000) << 30) / NS_PER_S);
    CHECK_EQ(netlock_set_quota(w, 1, 1, 0), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, 1, 0, 0), 0);
    CHECK_EQ(netlock_set_quota(w, 1, 1, UINT32_MAX >> 10), 0);
    CHECK_EQ(netlock_set_quota(w, 1, 1, (UINT32_MAX >> 10) + 1), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, 1, UINT64_C(3999999999), 1), 0);
    CHECK_EQ(netlock_set_quota(w, 1, UINT64_C(4000000000), 1), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, 1, UINT64_C(1) << 33, 1), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, PACKET_TENANTS, 1, 1), -EINVAL);
    CHECK_EQ(netlock_set_quota(w, PACKET_TENANTS - 1, 1, 1), 0);
    free(w);
}

/* Each of several switches has a steward of its own, with memory of its own. */
static void several(void)
{
    struct rack_config one = config, two = config;
    one.racks = 1;
    two.racks = 2;
    uint64_t first = switches_steward_bytes(&one), bytes = switches_steward_bytes(&two), written = 0;
    uint8_t *memory = calloc(1, bytes);
    CHECK(memory && bytes > first);
    switches_steward_init(memory, &two, LIFE, true, now);
    for (uint64_t i = first; i < bytes; i++)
        written += memory[i] != 0;
    CHECK(written);
    free(memory);
}

/* One switch and one server have membership leases. When neither has one, and both follow this steward, no member has. */
static void alone(void)
{
    struct netlock_table mine = {.term = 40, .active_life = 1, .count = 1, .slots = {{.term = 30, .life = 1}}};
    for (unsigned leased = 0; leased < 2; leased++) {
        begin(false, 0);
        struct rack_config one = s.config;
        one.servers = one.switches = 1;
        one.member_us = 30 * LEASE_NS / 1000;
        netlock_steward_init(memset(&s, 0, sizeof s), &one, LIFE, false, now);
        follows = LIFE - 1;
        CHECK(!beat_with(original, 1, &mine, 0, 0) && !beat_with(server(0), 1, &mine, 0, leased ? now + 1 : 0));
        follows = LIFE; /* what was said before does not count */
        CHECK(!beat_with(original, 1, &mine, 0, 0));
        CHECK(beat_with(server(0), 1, &mine, 0, leased ? now + 1 : 0));
        CHECK(said.number == 0 && said.active_life == 1 && !(flags & NETLOCK_TERM_CLEAN) && slot(0)->life == 1 && !slot(0)->first);
        if (leased)
            CHECK(said.term == 40 && slot(0)->term == 30);
        else
            CHECK(said.term > LIFE && slot(0)->term > LIFE);
    }
}

/* A switch that has a backup counts no longer a lease than the steward, which elects the backup when that one is over. With the
 * mistake it counts a whole lease, and both switches grant: campaigns meet that once in many thousand seeds. */
static void counts_as_steward(uint64_t mistakes)
{
    struct rack_config c = config;
    struct netlock_table mine = {0}, taken;
    struct packet_drops dropped = {0};
    c.mistakes = mistakes;
    begin_all(0);
    uint64_t asked = now;
    CHECK(beat(original, 1));
    const struct netlock_packet *term = (const void *)outbox_packet(&out, 0);
    uint64_t until = netlock_table_hear(&c, term, out.packet[0].len, 1, 0, now, &dropped, &mine.steward, &taken);
    now = asked + BRIEF_OVER_NS;
    CHECK(until > asked && beat(backup, 1) && said.number == 1); /* elected */
    CHECK_EQ(until > now, mistakes != 0);
}

int main(void)
{
    several();
    alone();
    fresh();
    clean();
    terms();
    server_lost();
    switch_lost();
    switch_of_older_build();
    names_hosts();
    cut_tables();
    returned_clean(false);
    returned_clean(true);
    toggles();
    remembers();
    forgets();
    late_term(0);
    late_term(NETLOCK_MISTAKE_OLD_STEWARD);
    counts_as_steward(0);
    counts_as_steward(NETLOCK_MISTAKE_LONG);
    bad_packets();
    quotas();
    return 0;
}
