/* SPDX-License-Identifier: Apache-2.0 */
/* Packets over UDP: sockets, batches, and waiting that spins briefly before it sleeps. IPv4. */
#ifndef PAWL_WIRE_UDP_H
#define PAWL_WIRE_UDP_H

#include "lib/base.h"
#include "wire/packet.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

/* Plain data: travels in packets and lies in shared memory. One word, which can be exchanged as a whole. */
struct net_addr {
    _Alignas(8) uint32_t ip; /* in the order of the network; 0: none */
    uint16_t port;           /* in the machine's */
    uint16_t pad;
};

#define NET_ADDR_TEXT 24

/* "127.0.0.1:7000". -EINVAL if it is not that. */
int net_addr_parse(const char *text, struct net_addr *out);
void net_addr_print(struct net_addr a, char out[NET_ADDR_TEXT]);

static inline bool net_addr_is(struct net_addr a, struct net_addr b)
{
    return a.ip == b.ip && a.port == b.port;
}

static inline bool net_addr_known(struct net_addr a)
{
    return a.ip != 0;
}

struct afxdp;

struct udp {
    int fd;
    struct net_addr at;
    struct afxdp *fast; /* past the network stack (wire/afxdp.h); null: it is not */
    unsigned looks;     /* there */
};

/* Port 0: any. -EADDRINUSE and others. */
int udp_open(struct udp *u, struct net_addr at);
void udp_close(struct udp *u);

/* Which of this machine's addresses packets to that one are sent from. */
int udp_source_for(struct net_addr to, struct net_addr *out);

#define UDP_BATCH 32u

/* Zeroed before its first use; large: not on a stack that is short. It does not move. */
struct udp_batch {
    unsigned count;
    bool ready; /* what follows points to the packets */
    struct mmsghdr messages[UDP_BATCH];
    struct iovec parts[UDP_BATCH];
    struct sockaddr_in names[UDP_BATCH];
    struct {
        struct net_addr from;
        uint32_t len; /* more than PACKET_MAX: was cut off */
        _Alignas(8) uint8_t data[PACKET_MAX + 8];
    } packet[UDP_BATCH];
};

struct udp_out {
    struct net_addr to;
    uint32_t len;
    const void *data;
};

/* What there is, without waiting: 0 to UDP_BATCH packets. With a way past the stack the socket is looked at now and then only. */
unsigned udp_receive(struct udp *u, struct udp_batch *batch);

/* Waits for packets: looks again and again for spin_ns, then sleeps until the deadline (CLOCK_MONOTONIC). How many came. */
unsigned udp_wait(struct udp *u, struct udp_batch *batch, uint64_t spin_ns, uint64_t deadline);

/* Sleeps until something may be there, or for so long (null: without end). */
void udp_sleep(const struct udp *u, const struct timespec *patience);
#define UDP_FDS 2
void udp_poll_fds(const struct udp *u, struct pollfd fds[UDP_FDS]); /* the same for callers that poll other files, too */

/* Never fails: what cannot be sent is lost. */
void udp_send(struct udp *u, const struct udp_out *packets, unsigned count);

#endif
