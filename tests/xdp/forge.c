/* SPDX-License-Identifier: Apache-2.0 */
/* Forged packets against switches in the kernel that have a key: every type of the design's packets, and of the coordinator's, in
 * the name of the holder's host, of lock servers, switches, stewards, operators and coordinators; without a tag, with the keys of
 * another cluster, of another host, of a former life, of a key file, and with the right tag of another packet. None changes a byte
 * of the switch's memory, each is counted, and none is answered. Nor does a datagram of the holder's own with two packets of one
 * lock. */
#include "cluster/coordinator.h"
#include "cluster/host.h"
#include "dataplane/fission.h"
#include "dataplane/netlock_wire.h"
#include "tests/xdp/netlock_kit.h"

#define LOCKS 16
#define LOCK 5
#define HIGHEST UINT32_MAX
#define TYPES 24 /* more than any family has */

enum tagging { UNTAGGED, OTHER_CLUSTER, OTHER_HOST, FORMER_LIFE, KEY_FILE, DAMAGED, TAGGINGS };
static const char *const tagging_names[] = {"without a tag",           "with another cluster's key",
                                            "with another host's key", "with a former life's key",
                                            "with the key of a file",  "with another packet's tag"};

static struct {
    struct plane *p;
    uint8_t family;
    uint32_t len;
    struct {
        void *at, *before;
        uint64_t bytes;
    } map[3];
    unsigned maps;
} target;
static unsigned attacks;

/* ---- what must not change ---- */

static void watch(const char *name)
{
    unsigned i = target.maps++;
    CHECK_EQ(plane_map(target.p, name, &target.map[i].at, &target.map[i].bytes), 0);
    target.map[i].before = malloc(target.map[i].bytes);
    CHECK(target.map[i].before != NULL);
}

static void look(void)
{
    for (unsigned i = 0; i < target.maps; i++)
        memcpy(target.map[i].before, target.map[i].at, target.map[i].bytes);
}

static void watch_no_more(void)
{
    while (target.maps)
        free(target.map[--target.maps].before);
}

/* ---- attacks ---- */

static struct seal_key key_of(enum tagging how)
{
    const struct seal_key cluster = {{0x1234, 77}}, other = {{0x9999, 77}};
    switch (how) {
    case OTHER_CLUSTER:
        return seal_host_key(&other, 1, 1, 5);
    case OTHER_HOST:
        return keyed_key(2, 0);
    case FORMER_LIFE:
        return seal_host_key(&cluster, 1, 1, 4);
    default:
        return seal_member_key(&cluster, 7);
    }
}

static void tag(struct test_frame *f, enum tagging how)
{
    _Alignas(8) uint8_t packet[PACKET_MAX];
    uint32_t len = f->len - (uint32_t)FRAME_HEADS;
    memcpy(packet, f->packet, len);
    struct packet_head *h = (struct packet_head *)(void *)packet;
    struct seal_key key = how == DAMAGED ? keyed_key(h->from.machine, 0) : key_of(how);
    if (how != UNTAGGED)
        seal_put(&key, packet, len);
    if (how == DAMAGED)
        h->nonce ^= 1;
    memcpy(f->packet, packet, len);
    test_udp_sum(f);
}

/* Dropped and counted; or it passes as it is, for the control process to judge, which has the same keys. */
static void attack(const char *what, const struct packet_head *h, const struct test_frame *f, bool may_pass)
{
    struct plane_counters before, after;
    struct test_frame out;
    struct plane_run run = {.in = f->bytes, .in_len = f->len, .out = out.bytes, .out_len = sizeof out.bytes};
    CHECK_EQ(plane_count(target.p, &before), 0);
    CHECK_EQ(plane_run(plane_program(target.p, "plane"), &run), 0);
    CHECK_EQ(plane_count(target.p, &after), 0);
    bool passed = run.verdict == XDP_PASS && run.out_len == f->len && !memcmp(out.bytes, f->bytes, f->len);
    if (run.verdict != XDP_DROP && !(may_pass && passed))
        CHECK_FAIL("family %u, type %u from %u, %s: verdict %u", h->family, h->type, h->from.machine, what, run.verdict);
    enum plane_reason why = passed ? PLANE_CONTROL : PLANE_UNTAGGED;
    if (after.reason[why] != before.reason[why] + 1)
        CHECK_FAIL("family %u, type %u from %u, %s: not counted", h->family, h->type, h->from.machine, what);
    for (unsigned i = 0; i < target.maps; i++)
        if (memcmp(target.map[i].at, target.map[i].before, target.map[i].bytes) != 0)
            CHECK_FAIL("family %u, type %u from %u, %s: map %u has changed", h->family, h->type, h->from.machine, what, i);
    attacks++;
}

/* Of the holder's lock, or of the coordinator; highest numbers wherever the packet has one. */
static struct test_frame forged(uint8_t family, uint8_t type, struct place from, enum tagging how)
{
    _Alignas(8) uint8_t packet[PACKET_MAX] = {0};
    struct packet_head *h = (struct packet_head *)(void *)packet;
    *h = test_head(family, type);
    h->index = LOCK;
    h->from = from;
    h->epoch = family == PACKET_COORDINATOR || family == PACKET_NETLOCK ? HIGHEST : 0;
    h->nonce = HIGHEST;
    uint32_t len = family == target.family ? target.len : sizeof(struct coord_packet);
    if (family == PACKET_FISSION) {
        ((struct fission_packet *)(void *)h)->client = from;
        ((struct fission_packet *)(void *)h)->mode = FISSION_EXCLUSIVE;
    } else if (family == PACKET_NETLOCK) {
        ((struct netlock_packet *)(void *)h)->client = from;
        ((struct netlock_packet *)(void *)h)->mode = NETLOCK_EXCLUSIVE;
    }
    struct test_frame f = test_frame(packet, len);
    tag(&f, how);
    return f;
}

static void attack_all(void)
{
    const struct place froms[] = {{1, 5001},           {1, PORT_POOL},       {TEST_MACHINES + 1, PORT_SERVER},
                                  {MACHINE_SWITCH, 0}, {MACHINE_STEWARD, 0}, {MACHINE_OPERATOR, 9},
                                  {MACHINE_NONE, 0}};
    const uint8_t families[] = {target.family, PACKET_COORDINATOR, PACKET_ECHO};
    look();
    for (enum tagging how = 0; how < TAGGINGS; how++)
        for (size_t i = 0; i < countof(froms); i++)
            for (size_t k = 0; k < countof(families); k++)
                for (uint8_t type = 0; type < TYPES; type++) {
                    struct test_frame f = forged(families[k], type, froms[i], how);
                    struct packet_head h;
                    memcpy(&h, f.packet, sizeof h);
                    bool here = h.from.machine && h.from.machine <= keyed.machines && type == COORD_HERE;
                    bool hint = h.from.machine == MACHINE_NONE && how == UNTAGGED;
                    attack(tagging_names[how], &h, &f, families[k] == PACKET_COORDINATOR && (here || hint));
                }
}

/* The frame is dropped, counted once for that reason, and changes nothing. */
static void refused(const struct test_frame *f, unsigned reason)
{
    struct plane_counters before, after;
    struct test_frame out;
    look();
    CHECK_EQ(plane_count(target.p, &before), 0);
    CHECK_EQ(test_pass(target.p, f, &out), XDP_DROP);
    CHECK_EQ(plane_count(target.p, &after), 0);
    CHECK_EQ(after.reason[reason], before.reason[reason] + 1);
    for (unsigned i = 0; i < target.maps; i++)
        CHECK(!memcmp(target.map[i].at, target.map[i].before, target.map[i].bytes));
    attacks++;
}

/* A datagram of host 2, rightly tagged, with a part in the name of host 1: the part changes nothing. */
static void part_of_another(const void *part, uint32_t len)
{
    struct packet_head first;
    struct test_many d;
    memcpy(&first, part, sizeof first);
    first.from.machine = 2;
    test_many_begin(&d, &first);
    CHECK(test_many_add(&d, part, len));
    struct test_frame f = test_frame(d.bytes, d.len);
    refused(&f, PLANE_UNTAGGED);
}

/* A datagram of the holder's host, rightly tagged, in which the packet is twice: refused as a whole, since both are of one lock. */
static void equal_locks(const void *part, uint32_t len)
{
    struct packet_head first;
    struct test_many d;
    memcpy(&first, part, sizeof first);
    test_many_begin(&d, &first);
    CHECK(test_many_add(&d, part, len) && test_many_add(&d, part, len));
    struct test_frame f = test_frame(d.bytes, d.len), out;
    CHECK_EQ(test_pass(target.p, &f, &out), XDP_DROP); /* the program notes which of the cluster's keys the host uses */
    refused(&f, PLANE_MANY);
}

/* ---- switches ---- */

static struct fission_packet of_holder(uint8_t type)
{
    struct fission_packet f = {.head = test_head(PACKET_FISSION, type), .mode = FISSION_EXCLUSIVE, .old_mode = FISSION_EXCLUSIVE};
    f.client = f.head.from;
    f.head.index = LOCK;
    return f;
}

static void fission(void)
{
    static const uint8_t before[] = {FISSION_LEASE, FISSION_ACQUIRE};
    target.p = test_plane_leased("fission", LOCKS, 3600 * NS_PER_S);
    target.family = PACKET_FISSION;
    target.len = sizeof(struct fission_packet);
    for (size_t i = 0; i < countof(before); i++) {
        struct fission_packet f = of_holder(before[i]);
        struct test_frame in = test_frame(&f, sizeof f), out;
        CHECK_EQ(test_pass(target.p, &in, &out), XDP_TX);
    }
    watch("locks");
    watch("hosts");
    watch("seals");
    attack_all();
    struct fission_packet end = of_holder(FISSION_FREE);
    part_of_another(&end, sizeof end);
    equal_locks(&end, sizeof end);
    printf("fission: %u attacks changed nothing, and were counted\n", attacks);
    watch_no_more();
    plane_close(target.p, PLANE_REMOVE);
}

static void netlock(void)
{
    const struct rack_config c = kit_config(LOCKS, 0);
    unsigned before = attacks;
    kit_load(&c, host_now());
    target.p = kit;
    target.family = PACKET_NETLOCK;
    target.len = sizeof(struct netlock_packet);
    watch("memory");
    watch("hosts");
    watch("seals");
    attack_all();
    struct netlock_packet release = {.head = test_head(PACKET_NETLOCK, NETLOCK_RELEASE), .mode = NETLOCK_EXCLUSIVE};
    release.head.index = LOCK;
    part_of_another(&release, sizeof release);
    struct netlock_packet acquire = {
        .head = test_head(PACKET_NETLOCK, NETLOCK_ACQUIRE), .mode = NETLOCK_EXCLUSIVE, .client = release.head.from};
    acquire.head.index = LOCK;
    equal_locks(&acquire, sizeof acquire);
    printf("netlock: %u attacks changed nothing, and were counted\n", attacks - before);
    watch_no_more();
    kit_close();
}

int main(void)
{
    CHECK_EQ(setenv("PAWL_TEST_KEY", "1", 1), 0);
    fission();
    netlock();
    return 0;
}
