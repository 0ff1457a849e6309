/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <string.h>

static_assert(FRAME_HEADS == sizeof(struct ethhdr) + sizeof(struct iphdr) + sizeof(struct udphdr), "one after the other");
static_assert(FRAME_MAC == ETH_ALEN, "of Ethernet");

static uint16_t add_up(const void *data, size_t len, uint64_t sum)
{
    const uint8_t *b = data;
    for (; len > 1; b += 2, len -= 2) {
        uint16_t word;
        memcpy(&word, b, sizeof word);
        sum += word;
    }
    if (len)
        sum += *b; /* the low byte of a little-endian word */
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Checksums of incoming frames may be incomplete. A sender on the same machine leaves the sum of the pseudo-head for a network
 * card, as in dataplane/xdp/frame.bpf.h. */
static bool is_sound(const struct iphdr *ip, const struct udphdr *udp, const uint8_t *data)
{
    uint64_t pseudo = (uint64_t)add_up(&ip->saddr, 8, 0) + htons(IPPROTO_UDP) + udp->len;
    if (!udp->check || udp->check == add_up(NULL, 0, pseudo))
        return true;
    return add_up(data, ntohs(udp->len) - sizeof *udp, pseudo + add_up(udp, sizeof *udp, 0)) == 0xffff;
}

bool frame_take_apart(const uint8_t *frame, uint32_t len, struct net_addr at, struct frame_packet *out)
{
    struct ethhdr eth;
    struct iphdr ip;
    struct udphdr udp;
    if (len < FRAME_HEADS)
        return false;
    memcpy(&eth, frame, sizeof eth);
    memcpy(&ip, frame + sizeof eth, sizeof ip);
    memcpy(&udp, frame + sizeof eth + sizeof ip, sizeof udp);
    if (eth.h_proto != htons(ETH_P_IP) || ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_UDP ||
        (ip.frag_off & htons(0x3fff)) || ip.daddr != net_addr_v4(&at) || udp.dest != htons(at.port))
        return false;
    uint32_t udp_len = ntohs(udp.len), bytes = udp_len - (uint32_t)sizeof udp;
    if (udp_len < sizeof udp || ntohs(ip.tot_len) < sizeof ip + udp_len || len - FRAME_HEADS < bytes || bytes > PACKET_MAX)
        return false;
    if (add_up(&ip, sizeof ip, 0) != 0xffff || !is_sound(&ip, &udp, frame + FRAME_HEADS))
        return false;
    *out = (struct frame_packet){.from = net_v4(ip.saddr, ntohs(udp.source)), .len = bytes, .data = frame + FRAME_HEADS};
    memcpy(out->mac, eth.h_source, sizeof out->mac);
    return true;
}

void frame_put_together(uint8_t *frame, struct net_addr at, const uint8_t from[FRAME_MAC], const uint8_t to[FRAME_MAC],
                        const struct udp_out *p)
{
    struct ethhdr eth = {.h_proto = htons(ETH_P_IP)};
    memcpy(eth.h_dest, to, ETH_ALEN);
    memcpy(eth.h_source, from, ETH_ALEN);
    const struct udphdr udp = {.source = htons(at.port), .dest = htons(p->to.port), .len = htons((uint16_t)(sizeof udp + p->len))};
    struct iphdr ip = {.version = 4,
                       .ihl = 5,
                       .tot_len = htons((uint16_t)(sizeof ip + sizeof udp + p->len)),
                       .frag_off = htons(0x4000),
                       .ttl = 64,
                       .protocol = IPPROTO_UDP,
                       .saddr = net_addr_v4(&at),
                       .daddr = net_addr_v4(&p->to)};
    ip.check = (uint16_t)~add_up(&ip, sizeof ip, 0);
    memcpy(frame, &eth, sizeof eth);
    memcpy(frame + sizeof eth, &ip, sizeof ip);
    memcpy(frame + sizeof eth + sizeof ip, &udp, sizeof udp);
    memcpy(frame + FRAME_HEADS, p->data, p->len);
    if (p->key && p->len >= sizeof(struct packet_head)) {
        struct packet_head head;
        seal_head(p->key, p->data, p->len, &head);
        memcpy(frame + FRAME_HEADS, &head, sizeof head);
    }
}
