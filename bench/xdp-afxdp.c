/* SPDX-License-Identifier: Apache-2.0 */
/* The client's way past the network stack: an acquire through the kernel's switch by AF_XDP against an echo by AF_XDP, packet by
 * packet in turns, and both by a plain socket of the same host. In a lab: these are costs of processors, not of a network. */
#include "bench/xdp-rack.h"
#include "wire/afxdp.h"

#define SAMPLES 4000
#define WARM_UP 100
#define LOCKS 1000000

enum kind { ECHO, ACQUIRE, UDP_ECHO, UDP_ACQUIRE, KINDS };
static const char *const names[] = {"echo by AF_XDP", "acquire by AF_XDP", "echo by a socket", "acquire by a socket"};

static struct udp fast;
static int slow;
static uint64_t nonce;
static double samples[KINDS][SAMPLES];

static uint64_t ask(bool past_the_stack, const struct fission_packet *f, struct fission_packet *answer)
{
    static struct udp_batch batch;
    if (!past_the_stack)
        return bench_ask(slow, f, answer);
    const struct udp_out out = {.to = net_v4(htonl(lab_address(1, LAB_SWITCH)), RACK_PORT), .len = sizeof *f, .data = f};
    uint64_t start = kit_now();
    udp_send(&fast, &out, 1);
    for (;;) {
        unsigned n = udp_receive(&fast, &batch);
        uint64_t now = kit_now();
        for (unsigned i = 0; i < n; i++) {
            memcpy(answer, batch.packet[i].data, sizeof *answer);
            if (batch.packet[i].len == sizeof *answer && answer->head.nonce == f->head.nonce)
                return now - start;
        }
        if (now - start > 100 * NS_PER_MS)
            return 0;
    }
}

/* One request and, not measured, what undoes it; before it an echo the same way. */
static double once(enum kind kind, struct rng *rng)
{
    bool past = kind < UDP_ECHO;
    uint16_t port = past ? CLIENT_PORT : CLIENT_PORT + 1;
    struct fission_packet f = bench_packet(port, FISSION_ACQUIRE, FISSION_EXCLUSIVE, rng_below(rng, LOCKS), ++nonce), warm = f, a;
    warm.head.family = PACKET_ECHO;
    ask(past, &warm, &a);
    f.head.nonce = ++nonce;
    if (kind == ECHO || kind == UDP_ECHO)
        f.head.family = PACKET_ECHO;
    uint64_t ns = ask(past, &f, &a);
    if (!ns)
        return 0;
    if (f.head.family == PACKET_FISSION && a.head.type != FISSION_GRANT)
        kit_die("%s: an answer of type %u", names[kind], a.head.type);
    f.head.nonce = ++nonce;
    f.term = a.term;
    f.head.type = f.head.family == PACKET_FISSION ? FISSION_FREE : f.head.type;
    ask(past, &f, &a);
    return (double)ns;
}

int main(int argc, char **argv)
{
    struct kit k;
    struct rng rng;
    char why[AFXDP_WHY];
    double median[KINDS];
    kit_begin(&k, argc, argv, "acquire through the kernel's switch by AF_XDP, in a lab (processors, not a network)");
    unsigned n = (unsigned)(SAMPLES * k.scale), lost = 0;
    rng_seed(&rng, 1);
    rack_lease_ns = BENCH_LEASE_NS;
    rack_up("afxdp", 1, false);
    struct plane *p = rack_plane("fission", LOCKS, NULL, false);
    rack_attach(p, PLANE_GENERIC);
    bench_lease();
    slow = rack_socket(1, CLIENT_PORT + 1);
    if (lab_enter(&rack, 1, 1) || udp_open(&fast, net_v4(htonl(lab_address(1, 1)), CLIENT_PORT)))
        kit_die("no socket");
    if (afxdp_open(fast.at, &fast.fast, why))
        kit_die("%s", why);
    printf(" %s: %s, %s mode\n", afxdp_device(fast.fast), afxdp_copies(fast.fast), afxdp_mode(fast.fast));
    kit_pin(k.cpus[0]);
    for (unsigned i = 0; i < WARM_UP + n; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            double ns = once(kind, &rng);
            if (i < WARM_UP)
                continue;
            lost += ns == 0;
            samples[kind][i - WARM_UP] = ns != 0 ? ns : 1e9;
        }
    for (int kind = 0; kind < KINDS; kind++) {
        median[kind] = kit_percentile(samples[kind], n, 0.5);
        printf("  %-24s median %6.2f us, p99 %7.2f us\n", names[kind], median[kind] / 1e3,
               kit_percentile(samples[kind], n, 0.99) / 1e3);
    }
    printf("  %u of %u answers were lost\n", lost, n * KINDS);
    kit_judge(&k, "an acquire by AF_XDP, against an echo by AF_XDP", median[ACQUIRE] / median[ECHO], "x", 1.15);
    udp_close(&fast);
    close(slow);
    plane_close(p, PLANE_REMOVE);
    lab_down(rack.name);
    return kit_end(&k);
}
