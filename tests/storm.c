/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a daemon packets that no member sends: forged packets at a steady rate, or packets of all kinds that are made at random,
 * cut and changed, with a key or without. scripts/storm runs it against every daemon, scripts/operate-cost beside honest clients.
 *
 *   storm ADDRESS:PORT|nobody [--rate N] [--seconds S] [--key FILE] [--seed N] [--forged] [--host N] [--life N] [--id HEX]
 *
 * "nobody" is a socket that nothing reads: what sending costs by itself. */
#include "cluster/coordinator.h"
#include "dataplane/fission.h"
#include "dataplane/netlock_wire.h"
#include "designs/srvlock/srvlock.h"
#include "lib/args.h"
#include "lib/explain.h"
#include "lib/rng.h"
#include "wire/key_file.h"
#include "wire/verbs.h"
#include "world/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRAIL sizeof(struct seal_trail)
#define PAUSE_NS (200 * 1000)
#define LATE_NS (10 * NS_PER_MS)
#define MARK (UINT64_C(0x5a) << 56) /* nonces of packets whose length is known; their low bits say which */
#define MARKS 65536u
#define ANSWERS_MAX 64 /* batches of answers that are read between two batches of packets */

static struct {
    uint64_t rate, seconds, seed, host, life;
    const char *key, *id;
    bool forged;
} opts = {.rate = 20000, .seconds = 5, .seed = 1, .host = 1};

static const struct arg table[] = {
    {"rate", 0, ARG_U64, "N", "packets a second", &opts.rate, NULL},
    {"seconds", 0, ARG_U64, "N", "for how long", &opts.seconds, NULL},
    {"seed", 0, ARG_U64, "N", "of what is drawn", &opts.seed, NULL},
    {"host", 0, ARG_U64, "N", "in whose name", &opts.host, NULL},
    {"life", 0, ARG_U64, "N", "and in which life", &opts.life, NULL},
    {"id", 0, ARG_STRING, "HEX", "and in which space: its id, as 'pawl space list --json' prints it", &opts.id, NULL},
    {"key", 0, ARG_STRING, "FILE", "tags with this key", &opts.key, NULL},
    {"forged", 0, ARG_FLAG, NULL, "lock packets in the name of host N alone, with a wrong tag", &opts.forged, NULL},
};

static const struct args usage = {.command = "storm", .usage = "ADDRESS:PORT|nobody [options]", .words_max = 1, ARGS_TABLE(table)};

static struct rng rng;
static struct seal_ring ring;
static uint32_t space; /* the short id, learned from answers; 0: not known */
static uint64_t longer, answers, marked, sent_bytes, back_bytes;
static uint32_t lens_of[MARKS]; /* of the packets that were sent last */

/* ---- what is sent ---- */

struct shot {
    _Alignas(8) uint8_t bytes[PACKET_MAX + TRAIL];
    uint32_t len;
};

/* Numbers that programs compare with something: small ones, limits, and any. */
static uint64_t draw(void)
{
    switch (rng_below(&rng, 6)) {
    case 0:
        return rng_below(&rng, 4);
    case 1:
        return UINT64_C(1) << rng_below(&rng, 64);
    case 2:
        return UINT64_MAX - rng_below(&rng, 2);
    case 3:
        return (UINT64_C(1) << rng_below(&rng, 64)) - 1;
    case 4:
        return rng_below(&rng, 1000);
    default:
        return rng_next(&rng);
    }
}

static uint16_t draw_machine(void)
{
    static const uint16_t known[] = {MACHINE_NONE, 1, 2, MACHINE_SWITCH, MACHINE_STEWARD, MACHINE_OPERATOR};
    unsigned i = (unsigned)rng_below(&rng, countof(known) + 1);
    return i < countof(known) ? known[i] : (uint16_t)draw();
}

static void fill(struct shot *s)
{
    s->len = (uint32_t)rng_below(&rng, PACKET_MAX + 1);
    bool random = rng_below(&rng, 2);
    memset(s->bytes, 0, sizeof s->bytes);
    for (uint32_t i = 0; i + 8 <= s->len && random; i += 8) {
        uint64_t word = draw();
        memcpy(s->bytes + i, &word, sizeof word);
    }
}

/* Lengths that receivers look for, or any. */
static uint32_t draw_len(uint8_t family)
{
    static const uint32_t lens[] = {sizeof(struct coord_packet), sizeof(struct coord_beat),    sizeof(struct coord_welcome),
                                    sizeof(struct coord_hosts),  sizeof(struct coord_ruled),   sizeof(struct coord_key),
                                    sizeof(struct coord_value),  sizeof(struct coord_claimed), sizeof(struct coord_retire)};
    unsigned what = (unsigned)rng_below(&rng, 8);
    if (!what)
        return (uint32_t)(sizeof(struct packet_head) + rng_below(&rng, PACKET_MAX - sizeof(struct packet_head)));
    if (family == PACKET_COORDINATOR)
        return lens[rng_below(&rng, countof(lens))];
    return family == PACKET_FISSION   ? sizeof(struct fission_packet)
           : family == PACKET_NETLOCK ? (uint32_t)(sizeof(struct netlock_packet) + (what == 1 ? rng_below(&rng, 64) * 8 : 0))
                                      : sizeof(struct srv_packet);
}

static void make_packet(struct shot *s)
{
    struct packet_head *h = (struct packet_head *)(void *)s->bytes;
    fill(s);
    h->version = PACKET_VERSION;
    h->features = rng_below(&rng, 8) ? 0 : (uint8_t)draw();
    h->family = (uint8_t)(1 + rng_below(&rng, 6));
    h->type = (uint8_t)rng_below(&rng, 40);
    h->space = space && rng_below(&rng, 16) ? space : (uint32_t)draw();
    h->epoch = opts.life && rng_below(&rng, 2) ? (uint32_t)opts.life : (uint32_t)draw();
    h->index = draw();
    h->from = (struct place){draw_machine(), (uint16_t)draw()};
    h->to = (struct place){draw_machine(), (uint16_t)draw()};
    s->len = draw_len(h->family);
    h->nonce = MARK | marked++ % MARKS;
    lens_of[h->nonce % MARKS] = s->len;
    if (h->family == PACKET_COORDINATOR && s->len >= sizeof(struct coord_packet)) {
        struct coord_packet *p = (struct coord_packet *)(void *)s->bytes;
        p->space[sizeof p->space - 1] = 0;
        p->role = (uint32_t)rng_below(&rng, 5);
        if (rng_below(&rng, 2))
            snprintf(p->space, sizeof p->space, "%s", getenv("STORM_SPACE") ? getenv("STORM_SPACE") : "storm");
        if (rng_below(&rng, 2)) /* as senders have it that know the space by its name */
            memset(&p->identity, 0, sizeof p->identity);
    }
    if (!ring.count)
        return;
    if (rng_below(&rng, 2)) /* a holder of the key that has joined nothing; else in the name of a member */
        h->from = (struct place){MACHINE_NONE, 0};
    struct seal_key key = seal_member_key(&ring.key[0], h->from.machine ? 0 : h->from.port);
    if (h->from.machine && h->from.machine < 64)
        key = seal_host_key(&ring.key[0], h->space, h->from.machine, h->epoch);
    seal_put(&key, s->bytes, s->len);
}

/* For a memory node. */
static void make_verbs(struct shot *s)
{
    struct verbs_head *h = (struct verbs_head *)(void *)s->bytes;
    fill(s);
    s->len = (uint32_t)(sizeof *h + 8 * rng_below(&rng, 100));
    h->magic = VERBS_MAGIC;
    h->version = rng_below(&rng, 16) ? VERBS_VERSION : (uint8_t)draw();
    h->type = (uint8_t)(1 + rng_below(&rng, 7));
    h->status = 0;
    h->count = (uint16_t)rng_below(&rng, VERBS_COUNT_MAX + 2);
    h->len = rng_below(&rng, 8) ? (uint16_t)s->len : (uint16_t)draw();
    h->client = (uint32_t)rng_below(&rng, 8);
    h->features = 0;
    for (uint32_t at = sizeof *h; at + sizeof(struct verbs_op) <= s->len;) {
        struct verbs_op op = {.verb = (uint8_t)(1 + rng_below(&rng, 8)),
                              .width = (uint8_t)(8 << rng_below(&rng, 2)),
                              .room = (uint16_t)(8 * rng_below(&rng, 6)),
                              .offset = rng_below(&rng, 4) ? 8 * rng_below(&rng, 1 << 20) : draw()};
        memcpy(s->bytes + at, &op, sizeof op);
        at += (uint32_t)sizeof op + op.room;
    }
    const struct seal_asker asker = seal_asker(&ring);
    if (ring.count)
        s->len = seal_trail_put(&asker, s->bytes, s->len);
}

/* A lock packet that is right but for its tag: what costs its receiver the most. */
static void make_forged(struct shot *s)
{
    struct packet_head *h = (struct packet_head *)(void *)s->bytes;
    memset(s->bytes, 0, sizeof(struct srv_packet));
    *h = (struct packet_head){.version = PACKET_VERSION,
                              .features = PACKET_TAGGED,
                              .family = PACKET_SERVER,
                              .type = 1,
                              .space = space,
                              .epoch = (uint32_t)opts.life,
                              .index = rng_below(&rng, 10000),
                              .nonce = rng_next(&rng),
                              .tag = rng_next(&rng),
                              .from = {(uint16_t)opts.host, 1000},
                              .to = {MACHINE_SWITCH, PORT_POOL}};
    s->len = sizeof(struct srv_packet);
}

/* ---- sending ---- */

/* Whether an answer is longer than the packet whose nonce it repeats. */
static bool is_longer(const struct packet_head *h, uint32_t len)
{
    return h->nonce >> 56 == MARK >> 56 && len > lens_of[h->nonce % MARKS];
}

static void read_answers(struct udp *u)
{
    static struct udp_batch batch;
    for (unsigned k = 0; k < ANSWERS_MAX && udp_receive(u, &batch); k++)
        for (unsigned i = 0; i < batch.count; i++) {
            struct packet_head h;
            answers++;
            back_bytes += batch.packet[i].len;
            if (batch.packet[i].len < sizeof h)
                continue;
            memcpy(&h, batch.packet[i].data, sizeof h);
            if (h.version == PACKET_VERSION && h.space)
                space = h.space;
            if (h.version == PACKET_VERSION && is_longer(&h, batch.packet[i].len)) {
                longer++;
                fprintf(stderr, "storm: a packet of %u bytes was answered with family %u, type %u of %u\n",
                        lens_of[h.nonce % MARKS], h.family, h.type, batch.packet[i].len);
            }
        }
}

static uint64_t blow(struct udp *u, struct net_addr to)
{
    static struct shot shots[UDP_BATCH];
    struct udp_out out[UDP_BATCH];
    uint64_t begin = world_now(&world_real), end = begin + opts.seconds * NS_PER_S, sent = 0, now;
    while ((now = world_now(&world_real)) < end) {
        if (now - begin > sent * NS_PER_S / opts.rate + LATE_NS) /* it was stopped: what it did not send then is not sent later */
            begin = now - sent * NS_PER_S / opts.rate;
        if (sent * NS_PER_S > (now - begin) * opts.rate) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
            continue;
        }
        for (unsigned i = 0; i < UDP_BATCH; i++) {
            struct shot *s = &shots[i];
            if (opts.forged)
                make_forged(s);
            else if (rng_below(&rng, 16) == 0)
                fill(s);
            else if (rng_below(&rng, 3) == 0)
                make_verbs(s);
            else
                make_packet(s);
            sent_bytes += s->len;
            out[i] = (struct udp_out){.to = to, .len = (uint32_t)max_u64(s->len, 1), .data = s->bytes};
        }
        udp_send(u, out, UDP_BATCH);
        sent += UDP_BATCH;
        read_answers(u);
    }
    return sent;
}

int main(int argc, char **argv)
{
    struct args_rest rest;
    struct net_addr to, from;
    struct udp u, nobody = {.fd = -1};
    int status = args_parse(&usage, argc, argv, &rest);
    if (status != ARGS_RUN)
        return status;
    bool unread = rest.count == 1 && !strcmp(rest.words[0], "nobody");
    if (unread && udp_open(&nobody, net_v4(htonl(INADDR_LOOPBACK), 0)))
        return args_complain(&usage, "no socket");
    if (unread)
        to = nobody.at;
    else if (rest.count != 1 || net_addr_parse(rest.words[0], &to) || !opts.rate)
        return args_complain(&usage, "needs ADDRESS:PORT, and a rate");
    if (opts.key && key_file_read(opts.key, &ring)) {
        fprintf(stderr, "storm: %s\n", explained());
        return 1;
    }
    if (udp_source_for(to, &from) || udp_open(&u, from)) {
        fprintf(stderr, "storm: no socket\n");
        return 1;
    }
    struct rack_identity i = {.version = 0};
    if (opts.id && sscanf(opts.id, "%16" SCNx64 "%16" SCNx64, &i.id[0], &i.id[1]) == 2)
        space = rack_short_id(&i);
    rng_seed(&rng, opts.seed);
    uint64_t sent = blow(&u, to);
    printf("sent %llu answers %llu\n", (unsigned long long)sent, (unsigned long long)answers);
    udp_close(&u);
    udp_close(&nobody);
    if (back_bytes > sent_bytes)
        fprintf(stderr, "storm: %llu bytes were answered with %llu\n", (unsigned long long)sent_bytes,
                (unsigned long long)back_bytes);
    return longer || back_bytes > sent_bytes;
}
