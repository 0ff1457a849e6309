/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that no part of pawl sends, in the middle of a campaign. Now and then, before a host, server, switch or steward gets a
 * packet, a copy of the process gets wrong ones in its place: the same packet with one field at an extreme, or of another length.
 * The copy must drop or take each of them without an assertion that fails; then it ends, and the campaign goes on as if it had
 * never been, with the oracle. Fuzz targets send such packets to parts that have just begun; here locks are held, queued for and on
 * the move. */
#include "designs/packet/packet.h"
#include "tests/sim/runs.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 6
#define FIRST_OF_TYPE 2u /* packets of each type and receiver that are tried at once; */
#define ONE_IN 400u      /* later ones seldom */
#define COPIES_MAX 400   /* of one design: seconds, also under a sanitizer */
#define TYPES 256
#define LEN_MAX (2 * PACKET_MAX)

enum receiver { HOST, SERVER, SWITCH, STEWARD, RECEIVERS };
typedef void take_fn(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);

static take_fn *takes[RECEIVERS];
static uint64_t seen[RECEIVERS][TYPES], copies;
static const char *design_name;

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

static void packet(enum receiver who, void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out)
{
    const struct packet_head *h = data;
    uint64_t n = len >= sizeof *h ? seen[who][h->type]++ : 0;
    if (len <= PACKET_MAX && copies < COPIES_MAX && (n < FIRST_OF_TYPE || n % ONE_IN == 0)) {
        copies++;
        fflush(NULL);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            take_wrong_ones(who, state, data, len, now, out);
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        if (status)
            CHECK_FAIL("%s: a wrong packet of type %u ended receiver %u with status %#x", design_name, h->type, who,
                       (unsigned)status);
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

static void test(const char *name)
{
    struct design d = *design_named(name);
    struct packet_design p = *d.packet;
    struct run_sum sum = {0};
    design_name = name;
    copies = 0;
    memset(seen, 0, sizeof seen);
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
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        run_campaign = seed % 2 ? CAMPAIGN_SWARM : CAMPAIGN_FIXED;
        run_clean(&sum, &d, d.tolerates, seed);
    }
    print_sum(name, &sum);
    printf("  %" PRIu64 " copies got wrong packets\n", copies);
    CHECK(copies > SEEDS);
}

int main(int argc, char **argv)
{
    static const char *const designs[] = {"srvlock", "netlock", "netlock-switches", "fisslock", "fisslock-racks"};
    for (unsigned i = 0; i < countof(designs); i++)
        if (argc < 2 || !strcmp(argv[1], designs[i]))
            test(designs[i]);
    return 0;
}
