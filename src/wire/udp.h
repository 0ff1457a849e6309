/* SPDX-License-Identifier: Apache-2.0 */
/* Packets over UDP: sockets, batches, and waiting that spins briefly before it sleeps. IPv4 and IPv6. */
#ifndef PAWL_WIRE_UDP_H
#define PAWL_WIRE_UDP_H

#include "lib/base.h"
#include "wire/packet.h"
#include "wire/seal.h"

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Plain data: travels in packets and lies in shared memory. */
struct net_addr {
    _Alignas(8) uint8_t ip[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d; all zero: none */
    uint16_t port;              /* in the machine's order */
    uint16_t reads;             /* enum packet_features: those that the receiver there reads beside the space's */
    uint16_t pad[2];
};
static_assert(sizeof(struct net_addr) == 24, "no padding");

#define NET_ADDR_TEXT 56 /* "[" an IPv6 address "]:" a port */

/* "127.0.0.1:7000" or "[::1]:7000". -EINVAL if it is neither. An address with a zone is refused, since it has a meaning on one
 * machine only, and addresses travel. */
int net_addr_parse(const char *text, struct net_addr *out);

/* The same with a host name instead of the address: asks the resolver, and may wait for it. -EINVAL: not of that form; -ENOENT: no
 * such host, or it has no address; -EAGAIN: the resolver does not answer. */
int net_addr_resolve(const char *text, struct net_addr *out);
void net_addr_print(struct net_addr a, char out[NET_ADDR_TEXT]);

/* The address without its port. */
void net_addr_print_ip(struct net_addr a, char out[NET_ADDR_TEXT]);

#define NET_V4_PREFIX 12u /* bytes of ::ffff: before an IPv4 address */

/* ip: in the order of the network. */
static inline struct net_addr net_v4(uint32_t ip, uint16_t port)
{
    struct net_addr a = {.ip = {[10] = 0xff, [11] = 0xff}, .port = port};
    memcpy(a.ip + NET_V4_PREFIX, &ip, sizeof ip);
    return a;
}

static inline bool net_addr_is_v4(const struct net_addr *a)
{
    static const uint8_t prefix[NET_V4_PREFIX] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(a->ip, prefix, sizeof prefix);
}

/* In the order of the network; 0 if it is no IPv4 address. */
static inline uint32_t net_addr_v4(const struct net_addr *a)
{
    uint32_t ip;
    memcpy(&ip, a->ip + NET_V4_PREFIX, sizeof ip);
    return net_addr_is_v4(a) ? ip : 0;
}

/* Whether it names a machine: it is neither absent nor the address that stands for all of this machine's. */
static inline bool net_addr_known(struct net_addr a)
{
    static const uint8_t none[sizeof a.ip];
    return net_addr_is_v4(&a) ? net_addr_v4(&a) != 0 : memcmp(a.ip, none, sizeof none) != 0;
}

static inline bool net_addr_is(struct net_addr a, struct net_addr b)
{
    return !memcmp(a.ip, b.ip, sizeof a.ip) && a.port == b.port;
}

/* Whether both are on one machine: the addresses are the same, whatever the ports. */
static inline bool net_addr_same_ip(struct net_addr a, struct net_addr b)
{
    return !memcmp(a.ip, b.ip, sizeof a.ip);
}

/* Whether it is 127.0.0.1 or ::1: a program on this machine. Other addresses of loopback stand for hosts, where several are on one
 * machine. */
static inline bool net_addr_is_localhost(const struct net_addr *a)
{
    static const uint8_t v6[sizeof a->ip] = {[15] = 1}, v4[sizeof a->ip] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    return !memcmp(a->ip, v4, sizeof v4) || !memcmp(a->ip, v6, sizeof v6);
}

/* The same machine, another port. */
static inline struct net_addr net_addr_at_port(struct net_addr a, uint16_t port)
{
    a.port = port;
    return a;
}

struct afxdp;

struct udp {
    int fd;
    struct net_addr at;
    struct afxdp *fast;  /* past the network stack (wire/afxdp.h); null: it is not */
    unsigned looks;      /* there */
    struct seal_key key; /* tags packets whose udp_out has no key of its own; none: they are not tagged */
    bool opens;          /* packets that it does not open are dropped, and counted: */
    uint64_t refused;
};

/* Port 0: any. -EADDRINUSE and others. */
int udp_open(struct udp *u, struct net_addr at);
void udp_close(struct udp *u);

/* Which of this machine's addresses packets to that one are sent from. */
int udp_source_for(struct net_addr to, struct net_addr *out);

#define UDP_BATCH 32u

/* An address as the kernel has it. */
union net_name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
socklen_t net_addr_name(const struct net_addr *a, union net_name *out);

/* Zeroed before its first use; large: not on a stack that is short. It does not move. */
struct udp_batch {
    unsigned count;
    bool ready; /* what follows points to the packets */
    struct mmsghdr messages[UDP_BATCH];
    struct iovec parts[UDP_BATCH];
    union net_name names[UDP_BATCH];
    struct {
        struct net_addr from;
        struct seal_key
            key;      /* that opened it, at a receiver that has many (cluster/seals.h); none: it was not tagged, or is not open */
        uint32_t len; /* more than PACKET_MAX: was cut off; 0: was dropped, since the socket's key does not open it */
        _Alignas(8) uint8_t data[PACKET_MAX + sizeof(struct seal_trail) + 8];
    } packet[UDP_BATCH];
};

struct udp_out {
    struct net_addr to;
    uint32_t len;
    const void *data;
    const struct seal_key *key; /* null: that of the socket */
};

/* Receives without waiting: 0 to UDP_BATCH packets. With a way past the stack the socket is looked at now and then only. */
unsigned udp_receive(struct udp *u, struct udp_batch *batch);

/* Waits for packets: looks again and again for spin_ns, then sleeps until the deadline (CLOCK_MONOTONIC). How many came. */
unsigned udp_wait(struct udp *u, struct udp_batch *batch, uint64_t spin_ns, uint64_t deadline);

/* Sleeps until something may be there, or for so long (null: without end). */
void udp_sleep(const struct udp *u, const struct timespec *patience);
#define UDP_FDS 2
void udp_poll_fds(const struct udp *u, struct pollfd fds[UDP_FDS]); /* the same for callers that poll other files, too */

/* Never fails: what cannot be sent is lost. */
void udp_send(struct udp *u, const struct udp_out *packets, unsigned count);

/* The same. Packets to one receiver that reads PACKET_MANY leave as parts of one datagram. */
void udp_send_together(struct udp *u, const struct udp_out *packets, unsigned count);
#define UDP_TOGETHER_MAX 64u /* packets */

#endif
