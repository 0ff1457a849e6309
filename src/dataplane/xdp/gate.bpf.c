/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* A filter of the socket of a lock server or switch that is a process: datagrams with a wrong tag end here, on the processor that
 * delivers them, before the process is woken for them. The process checks the tag of every packet again. The filter refuses only
 * packets that the process would refuse, too. */
#include "dataplane/xdp/gate.h"
#include "wire/siphash.h"

#include <linux/bpf.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

#define INLINE static __attribute__((always_inline)) inline
#define WORD sizeof(uint64_t)
#define WORDS_MAX (PACKET_MAX / WORD)
#define TAKE_ALL 0xffffu /* bytes of the datagram that reach the socket */

const volatile struct gate_settings settings SEC(".rodata.settings");

/* Keys by machine's number; those of number 0 are of coordinators, lock servers and switches. Limit: as the loader makes it. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, uint32_t);
    __type(value, struct plane_seal);
} seals SEC(".maps");

/* A copy of the datagram, whose words can be read one by one; and how many were refused. One entry per CPU. */
struct gate_work {
    uint64_t word[WORDS_MAX + 1];
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct gate_work);
} works SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, uint64_t);
} refused SEC(".maps");

/* seal_tag of wire/seal.c. Looked at once by the verifier, not once for each key. */
__attribute__((noinline)) uint64_t gate_tag(uint32_t len, uint64_t k0, uint64_t k1)
{
    uint32_t zero = 0, rest = len % WORD, whole = len / WORD;
    struct gate_work *g = bpf_map_lookup_elem(&works, &zero);
    struct sip s;
    if (!g || whole > WORDS_MAX)
        return 0;
    sip_begin(&s, k0, k1);
    sip_word(&s, g->word[0]);
    for (uint32_t i = 2; i < WORDS_MAX && i < whole; i++) /* without the tag, the second word */
        sip_word(&s, g->word[i]);
    uint64_t last = rest ? g->word[whole] & (((uint64_t)1 << 8 * rest) - 1) : 0;
    return sip_end(&s, last, len - WORD);
}

/* seal_member_key of wire/seal.c: the key of a file that a host has. */
INLINE void member_key(const volatile uint64_t from[2], uint64_t number, uint64_t out[2])
{
    for (uint64_t i = 0; i < 2; i++) {
        struct sip s;
        sip_begin(&s, from[0], from[1]);
        sip_word(&s, GATE_MEMBER << 8 | i);
        sip_word(&s, number);
        sip_word(&s, 0);
        out[i] = sip_end(&s, 0, 3 * WORD);
    }
    if (!(out[0] | out[1]))
        out[0] = 1;
}

INLINE int is_right(const uint64_t key[2], uint32_t len, uint64_t tag)
{
    return (key[0] | key[1]) && gate_tag(len, key[0], key[1]) == tag;
}

INLINE int is_open(const struct packet_head *h, uint32_t len)
{
    uint32_t number = h->from.machine <= settings.machines ? h->from.machine : MACHINE_NONE;
    int asks = h->from.machine == MACHINE_NONE && h->from.port;
    const struct plane_seal *seal = bpf_map_lookup_elem(&seals, &number);
    if (!seal || h->version != PACKET_VERSION || !(h->features & PACKET_TAGGED))
        return 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t key[2] = {seal->key[i][0], seal->key[i][1]};
        if (asks && (key[0] | key[1]))
            member_key(settings.key[i], h->from.port, key);
        if (is_right(key, len, h->tag))
            return 1;
    }
    return 0;
}

SEC("socket") int gate(struct __sk_buff *skb)
{
    uint32_t zero = 0, len = skb->len;
    struct gate_work *g = bpf_map_lookup_elem(&works, &zero);
    uint64_t *count = bpf_map_lookup_elem(&refused, &zero);
    if (!g || !count)
        return TAKE_ALL;
    len -= (uint32_t)sizeof(struct udphdr); /* a socket's filter sees the UDP head, too */
    asm volatile("" : "+r"(len));           /* what is checked is what is used */
    if (len >= sizeof(struct packet_head) && len <= PACKET_MAX && !bpf_skb_load_bytes(skb, sizeof(struct udphdr), g, len) &&
        is_open((const struct packet_head *)g, len))
        return TAKE_ALL;
    ++*count;
    return 0;
}

char licence[] SEC("license") = "GPL";
