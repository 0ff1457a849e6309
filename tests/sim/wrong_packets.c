/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that no part of pawl sends, in the middle of a campaign. Now and then, before a host, server, switch or steward gets a
 * packet, copies of the process get others in its place. One gets the same packet with one field at an extreme, or of another
 * length; one gets packets that came before, late and twice; one gets the packet with one field of an earlier packet; one has no
 * room for its answers. A copy must drop or take each packet without an assertion that fails; then it ends, and the campaign goes
 * on as if it had never been, with the oracle. Fuzz targets send such packets to parts that have just begun; here locks are held,
 * queued for and on the move. */
#include "designs/packet/packet.h"
#include "lib/hash.h"
#include "tests/sim/runs.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 6
#define FIRST_OF_TYPE 2u /* packets of each type and receiver that are tried at once; */
#define ONE_IN 200u      /* later ones seldom */
#define COPIES_MAX 70    /* packets of one seed that copies get: seconds, also under a sanitizer */
#define EARLIER 128u     /* packets that each receiver has had, and that may come again */
#define SPLICED 12u      /* of them of the same type, whose fields come in another packet */
#define TYPES 256
#define LEN_MAX (2 * PACKET_MAX)

enum receiver { HOST, SERVER, SWITCH, STEWARD, RECEIVERS };
typedef void take_fn(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);

static take_fn *takes[RECEIVERS];
static uint64_t seen[RECEIVERS][TYPES], copies, run;
static const char *design_name;
static struct {
    uint32_t len;
    _Alignas(8) uint8_t data[PACKET_MAX];
} earlier[RECEIVERS][EARLIER];
static unsigned earlier_count[RECEIVERS];

/* In the copy of the process, which is not used for anything else. */
static void take(enum receiver who, void *state, const uint8_t *data, uint32_t len, uint64_t now, struct outbox *out)
{
    outbox_clear(out);
    takes[who](state, data, len, now, out);
}

static void take_wrong_ones(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    static const uint64_t extremes[] = {0, 1, 0x7f, UINT64_MAX, UINT64_MAX - 1};
    static uint8_t bytes[LEN_MAX];
    static const uint32_t widths[] = {1, 2, 4, 8};
    const uint32_t lens[] = {0,
                             1,
                             (uint32_t)sizeof(struct packet_head) - 1,
                             (uint32_t)sizeof(struct packet_head),
                             len - 1,
                             len - 8,
                             len + 8,
                             PACKET_MAX + 1};
    for (unsigned i = 0; i < countof(lens); i++) {
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, data, len);
        if (lens[i] <= LEN_MAX)
            take(who, state, bytes, lens[i], now, out);
    }
    for (unsigned w = 0; w < countof(widths); w++)
        for (uint32_t at = 0; at + widths[w] <= len; at += widths[w])
            for (unsigned i = 0; i < countof(extremes); i++) {
                memcpy(bytes, data, len);
                memcpy(bytes + at, &extremes[i], widths[w]);
                take(who, state, bytes, len, now, out);
            }
}

/* All that came before, the latest first and each twice: some of them since long ago. */
static void take_late_ones(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    takes[who](state, data, len, now, out);
    for (unsigned i = 0; i < EARLIER; i++) {
        unsigned n = (earlier_count[who] - 1 - i) % EARLIER;
        if (!earlier[who][n].len)
            continue;
        take(who, state, earlier[who][n].data, earlier[who][n].len, now, out);
        take(who, state, earlier[who][n].data, earlier[who][n].len, now, out);
    }
}

/* One field is that of an earlier packet, or the next one up or down. */
static void take_spliced_ones(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    static uint8_t bytes[LEN_MAX];
    static const uint32_t widths[] = {4, 8};
    unsigned spliced = 0;
    for (unsigned n = 0; n < EARLIER && spliced < SPLICED; n++) {
        const struct packet_head *h = (const void *)earlier[who][n].data;
        if (earlier[who][n].len != len || h->type != ((const struct packet_head *)data)->type)
            continue;
        spliced++;
        for (unsigned w = 0; w < countof(widths); w++)
            for (uint32_t at = 0; at + widths[w] <= len; at += widths[w]) {
                memcpy(bytes, data, len);
                memcpy(bytes + at, earlier[who][n].data + at, widths[w]);
                take(who, state, bytes, len, now, out);
            }
    }
    for (uint32_t at = 0; at + 8 <= len; at += 4)
        for (int by = -1; by <= 1; by += 2) {
            uint32_t field;
            memcpy(bytes, data, len);
            memcpy(&field, bytes + at, sizeof field);
            field += (uint32_t)by;
            memcpy(bytes + at, &field, sizeof field);
            take(who, state, bytes, len, now, out);
        }
}

/* The packet, and earlier ones, where no answer has room, or one. */
static void take_crowded(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    outbox_clear(out);
    out->packets = OUTBOX_PACKETS;
    takes[who](state, data, len, now, out);
    for (unsigned n = 0; n < EARLIER; n++) {
        outbox_clear(out);
        out->packets = OUTBOX_PACKETS - n % 2;
        if (earlier[who][n].len)
            takes[who](state, earlier[who][n].data, earlier[who][n].len, now, out);
    }
}

typedef void copy_fn(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);

static void in_copy(copy_fn *does, enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct packet_head *h = data;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        does(who, state, data, len, now, out);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status)
        CHECK_FAIL("%s: a wrong packet of type %u ended receiver %u with status %#x", design_name, h->type, who, (unsigned)status);
}

static void packet(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    static copy_fn *const copy[] = {take_wrong_ones, take_late_ones, take_spliced_ones, take_crowded};
    const struct packet_head *h = data;
    uint64_t n = len >= sizeof *h ? seen[who][h->type]++ : 0;
    if (len >= sizeof *h && len <= PACKET_MAX && copies < COPIES_MAX &&
        ((run < SEEDS && n < FIRST_OF_TYPE) || n % ONE_IN == mix64(run) % ONE_IN)) {
        copies++;
        for (unsigned i = 0; i < countof(copy); i++)
            in_copy(copy[i], who, state, data, len, now, out);
    }
    if (len <= PACKET_MAX) {
        unsigned at = earlier_count[who]++ % EARLIER;
        memcpy(earlier[who][at].data, data, len);
        earlier[who][at].len = len;
    }
    takes[who](state, data, len, now, out);
}

static void to_host(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    packet(HOST, state, data, len, now, out);
}

static void to_server(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    packet(SERVER, state, data, len, now, out);
}

static void to_switch(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    packet(SWITCH, state, data, len, now, out);
}

static void to_steward(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    packet(STEWARD, state, data, len, now, out);
}

static void test(const char *name, uint64_t until)
{
    struct design d = *design_named(name);
    struct packet_design p = *d.packet;
    struct run_sum sum = {0};
    design_name = name;
    uint64_t all = 0, seed = 0;
    takes[HOST] = p.packet;
    takes[SERVER] = p.server_packet;
    takes[SWITCH] = p.switch_packet;
    takes[STEWARD] = p.steward_packet;
    p.packet = to_host;
    p.server_packet = p.server_packet ? to_server : NULL;
    p.switch_packet = p.switch_packet ? to_switch : NULL;
    p.steward_packet = p.steward_packet ? to_steward : NULL;
    d.packet = &p;
    d.features &= ~(uint32_t)DESIGN_CALLS; /* the campaign's data server takes only the orders of its clients */
    for (; seed < SEEDS || world_now(&world_real) < until; seed++) {
        memset(seen, 0, sizeof seen);
        memset(earlier, 0, sizeof earlier);
        copies = 0;
        run = seed;
        run_campaign = seed % 2 ? CAMPAIGN_SWARM : CAMPAIGN_FIXED;
        run_clean(&sum, &d, d.tolerates, seed);
        all += copies;
    }
    print_sum(name, &sum);
    printf("  %" PRIu64 " packets were followed by wrong ones in copies\n", all);
    CHECK(all > seed);
}

int main(int argc, char **argv)
{
    static const char *const designs[] = {"srvlock", "netlock", "netlock-switches", "fisslock", "fisslock-racks"};
    for (unsigned i = 0; i < countof(designs); i++)
        if (argc < 2 || !strcmp(argv[1], designs[i]))
            test(designs[i], world_now(&world_real) + test_seconds() * NS_PER_S / countof(designs));
    return 0;
}
