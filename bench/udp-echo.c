/* SPDX-License-Identifier: Apache-2.0 */
/* Locking over UDP on this machine against a bare echo between the same two processes, with the same polling: the median time until
 * a grant against that of an echo followed by the same trailing one-way packet, one after the other in turns; and cycles with 64
 * in flight against echo exchanges, in short blocks that take turns. A cycle is two exchanges, so half of the echo's is the most.
 */
#include "bench/pairs.h"
#include "workbench/lab/loopback.h"
#include "world/world.h"

#include <stdlib.h>

#define ROUNDS 21
#define TURNS 400
#define BLOCK_NS (40 * NS_PER_MS)
#define INFLIGHT PAWL_INFLIGHT_MAX
#define LOCKS 100000
#define SPIN_NS (50 * NS_PER_US) /* as the client's */

static struct udp udp;
static struct udp_batch batch;
static struct net_addr station;

struct echo {
    struct packet_head head;
    uint8_t rest[24]; /* as long as srvlock's */
};

static struct echo echo_packet(uint8_t type, uint64_t nonce)
{
    struct echo e = {.head = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = type, .nonce = nonce}};
    return e;
}

static void send_echo(uint8_t type, uint64_t nonce)
{
    const struct echo e = echo_packet(type, nonce);
    const struct udp_out out = {.to = station, .len = sizeof e, .data = &e};
    udp_send(&udp, &out, 1);
}

/* One exchange, then the packet that has no answer. */
static double echo_once(uint64_t nonce)
{
    uint64_t begin = kit_now();
    send_echo(1, nonce);
    for (bool back = false; !back;) {
        if (!udp_wait(&udp, &batch, SPIN_NS, world_now(&world_real) + NS_PER_S))
            send_echo(1, nonce); /* lost */
        for (unsigned i = 0; i < batch.count; i++)
            back = back || ((const struct packet_head *)(const void *)batch.packet[i].data)->nonce == nonce;
    }
    double took = (double)(kit_now() - begin);
    send_echo(0, nonce);
    return took;
}

static double lock_once(pawl *p, uint64_t key)
{
    pawl_grant g;
    uint64_t begin = kit_now();
    if (pawl_lock(p, pawl_id(key), PAWL_EXCLUSIVE, &g))
        kit_die("cannot lock: %s", pawl_explain());
    double took = (double)(kit_now() - begin);
    if (pawl_unlock(p, &g))
        kit_die("cannot unlock: %s", pawl_explain());
    return took;
}

static void latency(struct kit *k, pawl *p, const char *design)
{
    static double bare[TURNS], ours[TURNS], bares[ROUNDS], ourses[ROUNDS], ratio[ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    uint64_t n = 0;
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned j = 0; j < TURNS; j++) {
            n++;
            if (j % 2) /* the second of the two may find the other process awake */
                ours[j] = lock_once(p, n * 7919 % LOCKS);
            bare[j] = echo_once(n);
            if (j % 2 == 0)
                ours[j] = lock_once(p, n * 7919 % LOCKS);
        }
        bares[i] = kit_percentile(bare, TURNS, 0.5);
        ourses[i] = kit_percentile(ours, TURNS, 0.5);
        ratio[i] = ourses[i] / bares[i];
    }
    char what[128];
    snprintf(what, sizeof what, "%s: echo %.1f us, acquire %.1f us, ratio", design, kit_percentile(bares, rounds, 0.5) / 1000,
             kit_percentile(ourses, rounds, 0.5) / 1000);
    kit_judge(k, what, kit_percentile(ratio, rounds, 0.5), "x", 1.3);
}

/* ---- with many in flight ---- */

static double echo_block(void)
{
    static struct echo packets[UDP_BATCH];
    struct udp_out out[UDP_BATCH];
    uint64_t begin = kit_now(), end = begin + BLOCK_NS, exchanges = 0;
    for (unsigned i = 0; i < UDP_BATCH; i++) {
        packets[i] = echo_packet(1, i);
        out[i] = (struct udp_out){.to = station, .len = sizeof packets[i], .data = &packets[i]};
    }
    for (unsigned i = 0; i < INFLIGHT; i += UDP_BATCH)
        udp_send(&udp, out, UDP_BATCH);
    while (kit_now() < end) {
        unsigned n = udp_wait(&udp, &batch, SPIN_NS, world_now(&world_real) + 100 * NS_PER_MS);
        udp_send(&udp, out, n ? n : UDP_BATCH);
        exchanges += n;
    }
    double rate = (double)exchanges * 1e9 / (double)(kit_now() - begin);
    while (udp_wait(&udp, &batch, 0, world_now(&world_real) + 2 * NS_PER_MS)) /* those still under way */
        ;
    return rate;
}

static void throughput(struct kit *k, pawl *p, const char *design)
{
    static double bares[ROUNDS], ourses[ROUNDS], ratio[ROUNDS];
    unsigned rounds = (unsigned)max_u64(5, min_u64(ROUNDS, (uint64_t)(ROUNDS * k->scale)));
    for (unsigned i = 0; i < rounds; i++) {
        bares[i] = echo_block();
        ourses[i] = pairs_in_flight(p, LOCKS, BLOCK_NS);
        ratio[i] = ourses[i] / bares[i];
    }
    char what[128];
    snprintf(what, sizeof what, "%s: %.0f K exchanges/s, %.0f K cycles/s, ratio", design, kit_percentile(bares, rounds, 0.5) / 1000,
             kit_percentile(ourses, rounds, 0.5) / 1000);
    kit_judge_least(k, what, kit_percentile(ratio, rounds, 0.5), "x", 0.35);
}

static void measure(struct kit *k, const char *name)
{
    const struct design *d = design_find(name);
    struct loopback l;
    char place[LOOPBACK_PLACE_LEN];
    pawl *p;
    if (!d || !(d->substrates & DESIGN_ON_UDP))
        return;
    const struct loopback_params lp = {.design = d, .machines = 4, .sessions = 4, .requests = 256, .servers = 1, .locks = LOCKS};
    if (loopback_start(&l, &lp))
        kit_die("cannot start a rack on loopback");
    station = l.station;
    loopback_place(&l, 0, place);
    if (udp_open(&udp, net_addr_at_port(station, 0)) || pawl_open(place, NULL, &p))
        kit_die("cannot open %s: %s", place, pawl_explain());
    for (unsigned i = 0; i < 100; i++) { /* until everything has been touched once */
        echo_once(i);
        lock_once(p, i);
    }
    latency(k, p, name);
    throughput(k, p, name);
    pawl_close(p);
    udp_close(&udp);
    loopback_stop(&l);
}

int main(int argc, char **argv)
{
    struct kit k;
    kit_begin(&k, argc, argv, "locking over UDP on loopback against a bare echo between the same two processes");
    printf("medians of rounds of %d turns each; then %d in flight, in blocks of 40 ms\n", TURNS, INFLIGHT);
    measure(&k, "srvlock");
    measure(&k, "fisslock");
    measure(&k, "netlock");
    return kit_end(&k);
}
