/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an interface does what a switch needs: the program answers an echo, and the answer leaves. */
#include "dataplane/xdp/internal.h"
#include "wire/seal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <string.h>
#include <time.h>

#include <bpf/bpf.h>

#define TEST_FRAMES 8u /* more than another program on the interface sends while it lasts, most likely */
#define TEST_MS 1000u  /* until the driver has counted them: it does so at once, or when its other end has read them */

/* The heads, and a packet: a memory node's program answers frames that have room for its own head. */
#define ECHO_BYTES (sizeof(struct packet_head) + 64)

struct echo_frame {
    uint8_t bytes[sizeof(struct ethhdr) + sizeof(struct six_head) + sizeof(struct udphdr) + ECHO_BYTES];
    uint32_t len;
    uint32_t head_at; /* where the packet begins */
};

static void append(struct echo_frame *f, const void *bytes, size_t len)
{
    memcpy(f->bytes + f->len, bytes, len);
    f->len += (uint32_t)len;
}

static uint32_t sum_words(const void *bytes, size_t len, uint32_t sum)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i += 2) {
        uint16_t word;
        memcpy(&word, at + i, sizeof word);
        sum += word;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* From the interface to itself: no machine takes the answer, and a switch in between drops it. The UDP checksum is left for a card
 * to complete. `key`: none, or that of lock servers and switches. */
static struct echo_frame make_echo(const uint8_t mac[6], const struct plane_settings *s, const struct seal_key *key)
{
    struct echo_frame f = {0};
    _Alignas(8) uint8_t packet[ECHO_BYTES] = {0};
    struct ethhdr eth = {.h_proto = htons(s->six ? ETH_P_IPV6 : ETH_P_IP)};
    struct udphdr udp = {.source = s->port, .dest = s->port, .len = htons(sizeof udp + sizeof packet)};
    struct iphdr four = {.version = 4, .ihl = 5, .ttl = 1, .protocol = IPPROTO_UDP, .saddr = s->ip, .daddr = s->ip};
    struct six_head six = {.version = 6 << 4, .len = udp.len, .next = IPPROTO_UDP, .hops = 1};
    const struct packet_head head = {.version = PACKET_VERSION, .family = PACKET_ECHO, .type = ECHO_ASK, .space = s->space};
    memcpy(eth.h_dest, mac, 6);
    memcpy(eth.h_source, mac, 6);
    memcpy(six.from, s->ip6, sizeof six.from);
    memcpy(six.to, s->ip6, sizeof six.to);
    four.tot_len = htons(sizeof four + sizeof udp + sizeof packet);
    four.check = (uint16_t)~sum_words(&four, sizeof four, 0);
    if (s->six)
        udp.check = (uint16_t)sum_words(six.from, sizeof six.from + sizeof six.to, htons(IPPROTO_UDP) + udp.len);
    memcpy(packet, &head, sizeof head);
    if (seal_known(key))
        seal_put(key, packet, sizeof packet);
    append(&f, &eth, sizeof eth);
    append(&f, s->six ? (const void *)&six : &four, s->six ? sizeof six : sizeof four);
    append(&f, &udp, sizeof udp);
    f.head_at = f.len;
    append(&f, packet, sizeof packet);
    return f;
}

static struct seal_key own_key(const struct plane *p, const struct plane_settings *s)
{
    uint32_t zero = 0;
    struct plane_seal seal = {.life = 0};
    struct seal_key key = {.k = {0}};
    int fd = s->keyed ? plane_map_fd(p, "seals") : -1;
    if (fd >= 0 && !bpf_map_lookup_elem(fd, &zero, &seal))
        memcpy(key.k, seal.key[0], sizeof key.k);
    return key;
}

/* Its flags, and how many packets it has sent; false: it is gone. */
static bool look_at(const char *device, unsigned *flags, uint32_t *sent)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_PACKET && a->ifa_data && !strcmp(a->ifa_name, device)) {
            const struct rtnl_link_stats *s = a->ifa_data;
            *flags = a->ifa_flags;
            *sent = s->tx_packets;
            found = true;
        }
    freeifaddrs(all);
    return found;
}

static int answers(struct plane *p, const struct echo_frame *f, uint32_t ifindex)
{
    struct packet_head back;
    uint8_t out[sizeof f->bytes];
    struct plane_run run = {.in = f->bytes, .in_len = f->len, .out = out, .out_len = sizeof out, .ifindex = ifindex};
    int rc = plane_run(plane_program(p, "plane"), &run);
    if (rc)
        return explain(rc, "the kernel does not run the program: %s", strerror(-rc));
    memcpy(&back, out + f->head_at, sizeof back);
    return run.verdict == XDP_TX && back.type == ECHO_BACK ? 0 : explain(-EIO, "the program does not answer an echo");
}

/* Natively the driver itself sends the answers. Whether so many have left. */
static int leaves(struct plane *p, const char *device, const struct echo_frame *f, uint32_t ifindex, bool *left)
{
    unsigned flags;
    uint32_t before, now;
    struct xdp_md context = {.data_end = f->len, .ingress_ifindex = ifindex};
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f->bytes, .data_size_in = f->len, .ctx_in = &context,
                .ctx_size_in = sizeof context, .repeat = TEST_FRAMES, .flags = BPF_F_TEST_XDP_LIVE_FRAMES);
    if (!look_at(device, &flags, &before))
        return -ENODEV;
    int rc = bpf_prog_test_run_opts(plane_program(p, "plane"), &opts);
    if (rc)
        return rc;
    *left = false;
    for (unsigned ms = 0; ms < TEST_MS && !*left; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        *left = look_at(device, &flags, &now) && now - before >= TEST_FRAMES;
    }
    return 0;
}

int plane_self_test(struct plane *p, const char *device, enum plane_mode mode, const char **note)
{
    uint8_t mac[6];
    unsigned flags = 0;
    uint32_t ifindex = 0, sent;
    bool left = true;
    *note = NULL;
    int rc = plane_device(device, &ifindex, mac);
    if (rc)
        return rc;
    struct plane_settings s = p->live->settings;
    struct seal_key key = own_key(p, &s);
    const struct echo_frame f = make_echo(mac, &s, &key);
    rc = answers(p, &f, ifindex);
    if (rc)
        return rc;
    if (!look_at(device, &flags, &sent))
        return explain(-ENODEV, "there is no interface '%s'", device);
    if (!(flags & IFF_UP))
        *note = "the interface is down, and carries no packets ('ip link set ... up')";
    else if (!(flags & IFF_RUNNING))
        *note = "the interface has no carrier: the cable, or its other end, is not there";
    if (*note || mode != PLANE_NATIVE)
        return 0;
    rc = leaves(p, device, &f, ifindex, &left);
    if (rc)
        *note = "this kernel cannot try whether packets leave in native mode";
    if (rc || left)
        return 0;
    if (plane_is_veth(device))
        return explain(-EOPNOTSUPP,
                       "%s sends nothing in native mode: the other end of a veth needs a native XDP program, too (one that passes "
                       "everything); or choose --mode generic",
                       device);
    *note = "its driver has not counted the answers to echoes as sent: if hosts get none, choose --mode generic";
    return 0;
}
