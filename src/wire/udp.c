/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/udp.h"
#include "wire/afxdp.h"
#include "wire/many.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLOW_SHARE 32u         /* looks past the stack for one at the socket: microseconds */
#define BUFFER_BYTES (4 << 20) /* of the kernel, in each direction, as far as it allows */

/* The port after the last colon, and the host before it, without brackets. */
ONCE static int split(const char *text, char *host, size_t room, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return -EINVAL;
    errno = 0;
    unsigned long number = strtoul(colon + 1, &end, 10);
    if (errno || *end || number > UINT16_MAX)
        return -EINVAL;
    size_t len = (size_t)(colon - text);
    bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
    if (brackets) {
        text++;
        len -= 2;
    }
    if (!len || len >= room || (!brackets && memchr(text, ':', len)))
        return -EINVAL;
    memcpy(host, text, len);
    host[len] = 0;
    *port = (uint16_t)number;
    return brackets;
}

int net_addr_parse(const char *text, struct net_addr *out)
{
    char host[INET6_ADDRSTRLEN];
    struct in_addr ip;
    struct net_addr a = {.port = 0};
    int brackets = split(text, host, sizeof host, &a.port);
    if (brackets < 0)
        return brackets;
    if (brackets && inet_pton(AF_INET6, host, a.ip) != 1)
        return -EINVAL;
    if (!brackets && inet_pton(AF_INET, host, &ip) != 1)
        return -EINVAL;
    *out = brackets ? a : net_v4(ip.s_addr, a.port);
    return 0;
}

static struct net_addr net_addr_of(const union net_name *s)
{
    if (likely(s->any.sa_family == AF_INET))
        return net_v4(s->v4.sin_addr.s_addr, ntohs(s->v4.sin_port));
    struct net_addr a = {.port = ntohs(s->v6.sin6_port)};
    memcpy(a.ip, &s->v6.sin6_addr, sizeof a.ip);
    return a;
}

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_" /* of host names */

ONCE int net_addr_resolve(const char *text, struct net_addr *out)
{
    char host[NI_MAXHOST];
    uint16_t port;
    struct addrinfo *found = NULL;
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_ADDRCONFIG};
    if (!net_addr_parse(text, out))
        return 0;
    int rc = split(text, host, sizeof host, &port);
    if (rc)
        return -EINVAL; /* a name has no brackets */
    if (strspn(host, "0123456789.") == strlen(host) || strspn(host, NAME_CHARS) != strlen(host))
        return -EINVAL; /* an address that is none: the resolver would take "127.1" for one */
    rc = getaddrinfo(host, NULL, &wanted, &found);
    for (const struct addrinfo *i = found; i && !rc; i = i->ai_next) {
        union net_name name = {0};
        if ((i->ai_family != AF_INET && i->ai_family != AF_INET6) || i->ai_addrlen > sizeof name)
            continue;
        memcpy(&name, i->ai_addr, i->ai_addrlen);
        if (i->ai_family == AF_INET6 && name.v6.sin6_scope_id)
            continue; /* of one link: it has no meaning elsewhere */
        *out = net_addr_at_port(net_addr_of(&name), port);
        freeaddrinfo(found);
        return 0;
    }
    if (found)
        freeaddrinfo(found);
    return rc == EAI_AGAIN ? -EAGAIN : rc == EAI_MEMORY ? -ENOMEM : -ENOENT;
}

void net_addr_print_ip(struct net_addr a, char out[NET_ADDR_TEXT])
{
    bool v4 = net_addr_is_v4(&a);
    inet_ntop(v4 ? AF_INET : AF_INET6, a.ip + (v4 ? NET_V4_PREFIX : 0), out, NET_ADDR_TEXT);
}

void net_addr_print(struct net_addr a, char out[NET_ADDR_TEXT])
{
    char ip[NET_ADDR_TEXT];
    net_addr_print_ip(a, ip);
    snprintf(out, NET_ADDR_TEXT, net_addr_is_v4(&a) ? "%.46s:%u" : "[%.46s]:%u", ip, a.port);
}

socklen_t net_addr_name(const struct net_addr *a, union net_name *out)
{
    if (likely(net_addr_is_v4(a))) {
        out->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = net_addr_v4(a), .sin_port = htons(a->port)};
        return sizeof out->v4;
    }
    out->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    memcpy(&out->v6.sin6_addr, a->ip, sizeof a->ip);
    return sizeof out->v6;
}

int udp_open(struct udp *u, struct net_addr at)
{
    union net_name name = {0};
    socklen_t len = net_addr_name(&at, &name);
    int bytes = BUFFER_BYTES;
    int fd = socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); /* less is slower, not wrong */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (bind(fd, &name.any, len) || getsockname(fd, &name.any, &len)) {
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
    if (u->fast)
        wire_afxdp->close(u->fast);
    u->fast = NULL;
}

int udp_source_for(struct net_addr to, struct net_addr *out)
{
    union net_name name = {0};
    socklen_t len = net_addr_name(&to, &name);
    int fd = socket(name.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, &name.any, len) || getsockname(fd, &name.any, &len) ? -errno : 0;
    close(fd);
    if (!rc)
        *out = net_addr_at_port(net_addr_of(&name), 0);
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

static void open_all(struct udp *u, struct udp_batch *batch)
{
    for (unsigned i = 0; i < batch->count; i++) {
        if (seal_open(&u->key, batch->packet[i].data, batch->packet[i].len))
            continue;
        batch->packet[i].len = 0;
        u->refused++;
    }
}

static unsigned receive(struct udp *u, struct udp_batch *batch)
{
    if (u->fast && (wire_afxdp->receive(u->fast, batch) || ++u->looks % SLOW_SHARE))
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

unsigned udp_receive(struct udp *u, struct udp_batch *batch)
{
    unsigned count = receive(u, batch);
    if (count && u->opens)
        open_all(u, batch);
    return count;
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
    fds[1] = (struct pollfd){.fd = u->fast ? wire_afxdp->fd(u->fast) : -1, .events = POLLIN};
}

void udp_sleep(const struct udp *u, const struct timespec *patience)
{
    struct pollfd fds[UDP_FDS];
    udp_poll_fds(u, fds);
    ppoll(fds, UDP_FDS, patience, NULL);
}

static const struct seal_key *key_of(const struct udp *u, const struct udp_out *p)
{
    return p->key ? p->key : seal_known(&u->key) ? &u->key : NULL;
}

/* The packet as it is sent: with a key, a head of its own with the tag, and the rest. How many parts. */
static unsigned put_parts(const struct udp *u, const struct udp_out *p, struct packet_head *head, struct iovec parts[2])
{
    const struct seal_key *key = key_of(u, p);
    parts[0] = (struct iovec){.iov_base = (void *)(uintptr_t)p->data, .iov_len = p->len};
    if (!key || p->len < sizeof *head)
        return 1;
    uint32_t rest = p->len - (uint32_t)sizeof *head;
    parts[1] = (struct iovec){.iov_base = (char *)(uintptr_t)p->data + sizeof *head, .iov_len = rest};
    seal_head(key, p->data, p->len, head);
    parts[0] = (struct iovec){.iov_base = head, .iov_len = sizeof *head};
    return rest ? 2 : 1;
}

/* Past the stack, as far as that is possible. How many. */
static unsigned send_fast(struct udp *u, const struct udp_out *packets, unsigned count)
{
    struct udp_out out[UDP_BATCH];
    unsigned n = (unsigned)min_u64(count, UDP_BATCH);
    for (unsigned i = 0; i < n; i++) {
        out[i] = packets[i];
        out[i].key = key_of(u, &packets[i]);
    }
    return wire_afxdp->send(u->fast, out, n);
}

void udp_send(struct udp *u, const struct udp_out *packets, unsigned count)
{
    struct mmsghdr messages[UDP_BATCH];
    struct iovec parts[UDP_BATCH][2];
    struct packet_head heads[UDP_BATCH];
    union net_name names[UDP_BATCH];
    if (u->fast) {
        unsigned sent = send_fast(u, packets, count);
        packets += sent;
        count -= sent;
    }
    for (unsigned done = 0; done < count;) {
        unsigned n = (unsigned)min_u64(count - done, UDP_BATCH);
        for (unsigned i = 0; i < n; i++) {
            const struct udp_out *p = &packets[done + i];
            socklen_t len = net_addr_name(&p->to, &names[i]);
            unsigned pieces = put_parts(u, p, &heads[i], parts[i]);
            messages[i].msg_hdr =
                (struct msghdr){.msg_name = &names[i], .msg_namelen = len, .msg_iov = parts[i], .msg_iovlen = pieces};
        }
        int sent =
            n == 1 ? (sendmsg(u->fd, &messages[0].msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1) : sendmmsg(u->fd, messages, n, MSG_DONTWAIT);
        done += sent > 0 ? (unsigned)sent : 1; /* one that cannot be sent is lost, the others are tried */
    }
}

static bool fits_together(const struct udp_out *p)
{
    return p->to.reads & PACKET_MANY && many_takes(p->data, p->len);
}

/* One datagram from several pieces. `to`: its receiver and key. */
static void send_gathered(const struct udp *u, const struct udp_out *to, const struct iovec *parts, unsigned count)
{
    _Alignas(8) uint8_t whole[PACKET_MAX];
    uint32_t used = 0;
    union net_name name;
    socklen_t len = net_addr_name(&to->to, &name);
    for (unsigned i = 0; i < count; i++) {
        memcpy(whole + used, parts[i].iov_base, parts[i].iov_len); /* many_add has seen that it fits */
        used += (uint32_t)parts[i].iov_len;
    }
    if (key_of(u, to))
        seal_put(key_of(u, to), whole, used);
    sendto(u->fd, whole, used, MSG_DONTWAIT, &name.any, len);
}

/* The packets from `first` on that go to the same receiver, as one datagram. Marks those that it has sent; none if it would be one
 * alone. */
static void send_parts(const struct udp *u, const struct udp_out *packets, unsigned count, unsigned first, bool *sent)
{
    struct many_front front;
    struct iovec parts[1 + PACKET_MANY_MAX] = {{.iov_base = &front, .iov_len = sizeof front}};
    uint32_t used = sizeof front;
    unsigned which[PACKET_MANY_MAX] = {0};
    uint64_t locks[PACKET_MANY_MAX] = {0};
    many_begin(&front, packets[first].data);
    for (unsigned i = first; i < count; i++) {
        const struct udp_out *p = &packets[i];
        const struct packet_head *h = p->data;
        if (sent[i] || !fits_together(p) || !net_addr_is(p->to, packets[first].to) || h->family != front.head.family ||
            key_of(u, p) != key_of(u, &packets[first]) || many_has(locks, front.many.count, h->index) ||
            !many_add(&front, p->len, &used))
            continue;
        which[front.many.count - 1] = i;
        locks[front.many.count - 1] = h->index;
        parts[front.many.count] = (struct iovec){.iov_base = (void *)(uintptr_t)p->data, .iov_len = p->len};
    }
    if (front.many.count < 2)
        return;
    send_gathered(u, &packets[first], parts, 1u + front.many.count);
    for (unsigned i = 0; i < front.many.count; i++)
        sent[which[i]] = true;
}

void udp_send_together(struct udp *u, const struct udp_out *packets, unsigned count)
{
    bool sent[UDP_TOGETHER_MAX] = {false};
    struct udp_out alone[UDP_TOGETHER_MAX];
    unsigned n = 0;
    assert(count <= UDP_TOGETHER_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (!sent[i] && !u->fast && fits_together(&packets[i]))
            send_parts(u, packets, count, i, sent);
        if (!sent[i])
            alone[n++] = packets[i];
    }
    udp_send(u, alone, n);
}
