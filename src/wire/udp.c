/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/udp.h"
#include "wire/afxdp.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOW_SHARE 32u         /* looks past the stack for one at the socket: microseconds */
#define BUFFER_BYTES (4 << 20) /* of the kernel, in each direction, as far as it allows */

int net_addr_parse(const char *text, struct net_addr *out)
{
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(text, ':');
    struct in_addr ip;
    char *end;
    if (!colon || (size_t)(colon - text) >= sizeof host || !colon[1] || colon[1] == '-' || colon[1] == '+')
        return -EINVAL;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    errno = 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (errno || *end || port > UINT16_MAX || inet_pton(AF_INET, host, &ip) != 1)
        return -EINVAL;
    *out = (struct net_addr){.ip = ip.s_addr, .port = (uint16_t)port};
    return 0;
}

void net_addr_print(struct net_addr a, char out[NET_ADDR_TEXT])
{
    const struct in_addr ip = {.s_addr = a.ip};
    char host[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &ip, host, sizeof host);
    snprintf(out, NET_ADDR_TEXT, "%s:%u", host, a.port);
}

static struct sockaddr_in sockaddr_of(struct net_addr a)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = a.ip, .sin_port = htons(a.port)};
}

static struct net_addr net_addr_of(const struct sockaddr_in *s)
{
    return (struct net_addr){.ip = s->sin_addr.s_addr, .port = ntohs(s->sin_port)};
}

int udp_open(struct udp *u, struct net_addr at)
{
    struct sockaddr_in name = sockaddr_of(at);
    socklen_t len = sizeof name;
    int bytes = BUFFER_BYTES;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); /* less is slower, not wrong */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (bind(fd, (struct sockaddr *)&name, sizeof name) || getsockname(fd, (struct sockaddr *)&name, &len)) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *u = (struct udp){.fd = fd, .at = net_addr_of(&name)};
    return 0;
}

void udp_close(struct udp *u)
{
    if (u->fd >= 0)
        close(u->fd);
    u->fd = -1;
    afxdp_close(u->fast);
    u->fast = NULL;
}

int udp_source_for(struct net_addr to, struct net_addr *out)
{
    struct sockaddr_in name = sockaddr_of(to);
    socklen_t len = sizeof name;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, (struct sockaddr *)&name, sizeof name) || getsockname(fd, (struct sockaddr *)&name, &len) ? -errno : 0;
    close(fd);
    if (!rc)
        *out = (struct net_addr){.ip = name.sin_addr.s_addr};
    return rc;
}

static void make_ready(struct udp_batch *batch)
{
    for (unsigned i = 0; i < UDP_BATCH; i++) {
        batch->parts[i] = (struct iovec){.iov_base = batch->packet[i].data, .iov_len = sizeof batch->packet[i].data};
        batch->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &batch->names[i], .msg_namelen = sizeof batch->names[i], .msg_iov = &batch->parts[i], .msg_iovlen = 1};
    }
    batch->ready = true;
}

unsigned udp_receive(struct udp *u, struct udp_batch *batch)
{
    if (u->fast && (afxdp_receive(u->fast, batch) || ++u->looks % SLOW_SHARE))
        return batch->count;
    if (unlikely(!batch->ready))
        make_ready(batch);
    int n = recvmmsg(u->fd, batch->messages, UDP_BATCH, MSG_DONTWAIT, NULL);
    batch->count = n > 0 ? (unsigned)n : 0;
    for (unsigned i = 0; i < batch->count; i++) {
        batch->packet[i].from = net_addr_of(&batch->names[i]);
        batch->packet[i].len = batch->messages[i].msg_len;
        batch->messages[i].msg_hdr.msg_namelen = sizeof batch->names[i];
    }
    return batch->count;
}

unsigned udp_wait(struct udp *u, struct udp_batch *batch, uint64_t spin_ns, uint64_t deadline)
{
    uint64_t begin = world_now(&world_real), now;
    do {
        if (udp_receive(u, batch))
            return batch->count;
        now = world_now(&world_real);
    } while (now - begin < spin_ns && now < deadline);
    if (now >= deadline)
        return 0;
    uint64_t left = deadline - now;
    struct timespec patience = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    udp_sleep(u, deadline == DEADLINE_NEVER ? NULL : &patience);
    return udp_receive(u, batch);
}

void udp_poll_fds(const struct udp *u, struct pollfd fds[UDP_FDS])
{
    fds[0] = (struct pollfd){.fd = u->fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = u->fast ? afxdp_fd(u->fast) : -1, .events = POLLIN};
}

void udp_sleep(const struct udp *u, const struct timespec *patience)
{
    struct pollfd fds[UDP_FDS];
    udp_poll_fds(u, fds);
    ppoll(fds, UDP_FDS, patience, NULL);
}

void udp_send(struct udp *u, const struct udp_out *packets, unsigned count)
{
    struct mmsghdr messages[UDP_BATCH];
    struct iovec parts[UDP_BATCH];
    struct sockaddr_in names[UDP_BATCH];
    if (u->fast) {
        unsigned sent = afxdp_send(u->fast, packets, count);
        packets += sent;
        count -= sent;
    }
    for (unsigned done = 0; done < count;) {
        unsigned n = (unsigned)min_u64(count - done, UDP_BATCH);
        for (unsigned i = 0; i < n; i++) {
            const struct udp_out *p = &packets[done + i];
            names[i] = sockaddr_of(p->to);
            parts[i] = (struct iovec){.iov_base = (void *)(uintptr_t)p->data, .iov_len = p->len};
            messages[i].msg_hdr =
                (struct msghdr){.msg_name = &names[i], .msg_namelen = sizeof names[i], .msg_iov = &parts[i], .msg_iovlen = 1};
        }
        int sent =
            n == 1 ? (sendmsg(u->fd, &messages[0].msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1) : sendmmsg(u->fd, messages, n, MSG_DONTWAIT);
        done += sent > 0 ? (unsigned)sent : 1; /* one that cannot be sent is lost, the others are tried */
    }
}
