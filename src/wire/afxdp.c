/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/afxdp.h"
#include "wire/frame.h"
#include "world/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <linux/ip.h>
#include <linux/sockios.h>
#include <linux/udp.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRAME 2048u             /* bytes; what comes is cut off at that, and no packet of pawl is so long */
#define FRAMES 128u             /* in each direction: more than can be under way to one process */
#define PEERS 8u                /* machines that frames came from; the switch is one */
#define FRESH_NS (1 * NS_PER_S) /* for so long their Ethernet address counts */
#define QUEUES 16u              /* of the interface, at most; frames of further ones come by the ordinary socket */
#define BIND_TRIES 50u
#define KICKS 8u /* of the kernel for one batch: it takes 32 frames at a time */
#define BIND_NS (5 * NS_PER_MS)

/* One of the four rings that the kernel shares: of frames to fill, that were sent, that came, and to be sent. */
struct ring {
    uint32_t *producer, *consumer, *flags;
    void *entries;
    void *map;
    size_t bytes;
};

/* A socket on one queue of the interface, with memory and rings of its own. */
struct lane {
    int fd;
    uint8_t *memory;
    struct ring fill, done, come, go;
};

struct afxdp {
    int all, map, program, link; /* all: readable when one of the lanes is */
    struct net_addr at;
    char device[IF_NAMESIZE];
    uint32_t ifindex;
    uint8_t mac[ETH_ALEN];
    int copies; /* the error by which the driver refused to do without; 0: it does without */
    bool native;
    struct lane lane[QUEUES]; /* frames leave by the first */
    uint32_t lanes;
    uint32_t next; /* the lane that is looked at first, so that none starves */
    pthread_mutex_t sending;
    uint32_t spare[FRAMES]; /* frames to send with */
    uint32_t spares;
    struct {
        uint32_t ip;
        uint8_t mac[ETH_ALEN];
        uint64_t seen_ns;
    } peer[PEERS]; /* written by the receiver, read by the sender: under `sending` */
};

const char *afxdp_copies(const struct afxdp *a)
{
    return a->copies ? "copy" : "zero-copy";
}
const char *afxdp_why_copies(const struct afxdp *a)
{
    return a->copies ? strerror(-a->copies) : "";
}
const char *afxdp_mode(const struct afxdp *a)
{
    return a->native ? "native" : "generic";
}
const char *afxdp_device(const struct afxdp *a)
{
    return a->device;
}
int afxdp_fd(const struct afxdp *a)
{
    return a->all;
}
unsigned afxdp_queues(const struct afxdp *a)
{
    return a->lanes;
}

static int fail(char why[AFXDP_WHY], const char *what, int rc)
{
    snprintf(why, AFXDP_WHY, "%s: %s", what, strerror(-rc));
    return rc;
}

/* ---- the program ---- */

static int bpf(int command, union bpf_attr *attr)
{
    int rc = (int)syscall(SYS_bpf, command, attr, sizeof *attr);
    return rc < 0 ? -errno : rc;
}

#define LOAD(size, to, from, offset)                                                                                               \
    {                                                                                                                              \
        .code = BPF_LDX | (size) | BPF_MEM, .dst_reg = (to), .src_reg = (from), .off = (offset)                                    \
    }
#define UNLESS(reg, value, target, here)                                                                                           \
    {                                                                                                                              \
        .code = BPF_JMP32 | BPF_JNE | BPF_K, .dst_reg = (reg), .imm = (int)(value), .off = (short)((target) - (here)-1)            \
    }
#define SET(reg, value)                                                                                                            \
    {                                                                                                                              \
        .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (reg), .imm = (value)                                                      \
    }
#define PASS_AT 24

/* IPv4 packets without options, unfragmented UDP to this address and port, go to the socket of their queue; the rest passes. */
static int load_program(const struct afxdp *a)
{
    const struct bpf_insn code[] = {
        LOAD(BPF_W, 2, 1, offsetof(struct xdp_md, data)),
        LOAD(BPF_W, 3, 1, offsetof(struct xdp_md, data_end)),
        {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 4, .src_reg = 2},
        {.code = BPF_ALU64 | BPF_ADD, .dst_reg = 4, .imm = FRAME_HEADS},
        {.code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = 4, .src_reg = 3, .off = PASS_AT - 5},
        LOAD(BPF_H, 4, 2, offsetof(struct ethhdr, h_proto)),
        UNLESS(4, htons(ETH_P_IP), PASS_AT, 6),
        LOAD(BPF_B, 4, 2, sizeof(struct ethhdr)),
        UNLESS(4, 0x45, PASS_AT, 8),
        LOAD(BPF_B, 4, 2, sizeof(struct ethhdr) + offsetof(struct iphdr, protocol)),
        UNLESS(4, IPPROTO_UDP, PASS_AT, 10),
        LOAD(BPF_H, 4, 2, sizeof(struct ethhdr) + offsetof(struct iphdr, frag_off)),
        {.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = 4, .imm = htons(0x3fff)},
        UNLESS(4, 0, PASS_AT, 13),
        LOAD(BPF_W, 4, 2, sizeof(struct ethhdr) + offsetof(struct iphdr, daddr)),
        UNLESS(4, net_addr_v4(&a->at), PASS_AT, 15),
        LOAD(BPF_H, 4, 2, sizeof(struct ethhdr) + sizeof(struct iphdr) + offsetof(struct udphdr, dest)),
        UNLESS(4, htons(a->at.port), PASS_AT, 17),
        LOAD(BPF_W, 2, 1, offsetof(struct xdp_md, rx_queue_index)),
        {.code = BPF_LD | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = a->map},
        {.code = 0},
        SET(3, XDP_PASS), /* if there is no socket on that queue */
        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
        {.code = BPF_JMP | BPF_EXIT},
        SET(0, XDP_PASS),
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP,
                           .insns = (uint64_t)(uintptr_t)code,
                           .insn_cnt = countof(code),
                           .license = (uint64_t)(uintptr_t) "Apache-2.0"};
    return bpf(BPF_PROG_LOAD, &attr);
}

static int attach(struct afxdp *a, char why[AFXDP_WHY])
{
    union bpf_attr attr = {.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = QUEUES};
    a->map = bpf(BPF_MAP_CREATE, &attr);
    if (a->map < 0)
        return fail(why, "the kernel gives no map of sockets", a->map);
    a->program = load_program(a);
    if (a->program < 0)
        return fail(why, "the kernel refuses the program", a->program);
    for (int native = 1; native >= 0 && a->link < 0 && a->link != -EBUSY; native--) {
        attr = (union bpf_attr){.link_create = {.prog_fd = (uint32_t)a->program,
                                                .target_ifindex = a->ifindex,
                                                .attach_type = BPF_XDP,
                                                .flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE}};
        a->link = bpf(BPF_LINK_CREATE, &attr);
        a->native = native;
    }
    if (a->link == -EBUSY)
        return fail(why, "the interface has an XDP program already", a->link);
    return a->link < 0 ? fail(why, "the interface takes no XDP program", a->link) : 0;
}

/* Frames of these queues go to their sockets from now on. */
static int listen_there(const struct afxdp *a)
{
    int rc = 0;
    for (uint32_t key = 0; key < a->lanes && !rc; key++) {
        uint32_t value = (uint32_t)a->lane[key].fd;
        union bpf_attr attr = {.map_fd = (uint32_t)a->map, .key = (uint64_t)(uintptr_t)&key, .value = (uint64_t)(uintptr_t)&value};
        rc = bpf(BPF_MAP_UPDATE_ELEM, &attr);
    }
    return rc;
}

/* ---- rings ---- */

static int map_ring(const struct lane *l, struct ring *r, const struct xdp_ring_offset *at, size_t entry, uint64_t page)
{
    r->bytes = at->desc + FRAMES * entry;
    r->map = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, l->fd, (off_t)page);
    if (r->map == MAP_FAILED) {
        r->map = NULL;
        return -errno;
    }
    char *base = r->map;
    r->producer = (uint32_t *)(void *)(base + at->producer);
    r->consumer = (uint32_t *)(void *)(base + at->consumer);
    r->flags = (uint32_t *)(void *)(base + at->flags);
    r->entries = base + at->desc;
    return 0;
}

static int set_size(const struct lane *l, int option)
{
    const uint32_t size = FRAMES;
    return setsockopt(l->fd, SOL_XDP, option, &size, sizeof size) ? -errno : 0;
}

static int make_rings(struct lane *l)
{
    struct xdp_mmap_offsets at;
    socklen_t len = sizeof at;
    static const int options[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING};
    const uint64_t bytes = UINT64_C(2) * FRAMES * FRAME;
    l->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (l->memory == MAP_FAILED) {
        l->memory = NULL;
        return -errno;
    }
    const struct xdp_umem_reg memory = {.addr = (uint64_t)(uintptr_t)l->memory, .len = bytes, .chunk_size = FRAME};
    int rc = setsockopt(l->fd, SOL_XDP, XDP_UMEM_REG, &memory, sizeof memory) ? -errno : 0;
    for (size_t i = 0; i < countof(options) && !rc; i++)
        rc = set_size(l, options[i]);
    if (!rc && getsockopt(l->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &len))
        rc = -errno;
    if (!rc)
        rc = map_ring(l, &l->fill, &at.fr, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
    if (!rc)
        rc = map_ring(l, &l->done, &at.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
    if (!rc)
        rc = map_ring(l, &l->come, &at.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
    if (!rc)
        rc = map_ring(l, &l->go, &at.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < FRAMES; i++) /* the first half is to receive with, the second to send */
        ((uint64_t *)l->fill.entries)[i] = (uint64_t)i * FRAME;
    __atomic_store_n(l->fill.producer, FRAMES, __ATOMIC_RELEASE);
    return 0;
}

static int bind_to(const struct afxdp *a, const struct lane *l, uint32_t queue, uint16_t how)
{
    const struct sockaddr_xdp at = {.sxdp_family = AF_XDP,
                                    .sxdp_flags = (uint16_t)(how | XDP_USE_NEED_WAKEUP),
                                    .sxdp_ifindex = a->ifindex,
                                    .sxdp_queue_id = queue};
    return bind(l->fd, (const struct sockaddr *)(const void *)&at, sizeof at) ? -errno : 0;
}

static int bind_queue(struct afxdp *a, const struct lane *l, uint32_t queue)
{
    int rc = a->copies ? a->copies : bind_to(a, l, queue, XDP_ZEROCOPY);
    if (!rc)
        return 0;
    if (!queue)
        a->copies = rc;
    rc = bind_to(a, l, queue, XDP_COPY);
    for (unsigned i = 0; i < BIND_TRIES && rc == -EBUSY; i++) { /* the kernel frees a queue some time after its socket was closed */
        nanosleep(&(struct timespec){.tv_nsec = BIND_NS}, NULL);
        rc = bind_to(a, l, queue, XDP_COPY);
    }
    return rc;
}

/* ---- lanes ---- */

/* How many receive queues the interface has. */
static uint32_t count_queues(const struct afxdp *a)
{
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq r = {.ifr_data = (void *)&channels};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", a->device);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = fd >= 0 && !ioctl(fd, SIOCETHTOOL, &r);
    if (fd >= 0)
        close(fd);
    uint32_t n = known ? channels.rx_count + channels.combined_count : 1;
    return n < 1 ? 1 : n < QUEUES ? n : QUEUES;
}

static void close_lane(struct lane *l)
{
    struct ring *rings[] = {&l->fill, &l->done, &l->come, &l->go};
    if (l->fd >= 0)
        close(l->fd);
    for (size_t i = 0; i < countof(rings); i++)
        if (rings[i]->map)
            munmap(rings[i]->map, rings[i]->bytes);
    if (l->memory)
        munmap(l->memory, UINT64_C(2) * FRAMES * FRAME);
}

ONCE static int open_lane(struct afxdp *a, uint32_t queue, char why[AFXDP_WHY])
{
    struct lane *l = &a->lane[queue];
    *l = (struct lane){.fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)};
    int rc = l->fd < 0 ? fail(why, "no AF_XDP socket", -errno) : 0;
    if (!rc && (rc = make_rings(l)))
        fail(why, "no memory for frames", rc);
    if (!rc && (rc = bind_queue(a, l, queue)))
        fail(why, "the interface's queue is not free", rc);
    struct epoll_event readable = {.events = EPOLLIN};
    if (!rc && epoll_ctl(a->all, EPOLL_CTL_ADD, l->fd, &readable))
        rc = fail(why, "the socket cannot be waited for", -errno);
    if (rc)
        close_lane(l);
    else
        a->lanes++;
    return rc;
}

/* One for each queue. Without the first there is none; what comes by a queue without one comes by the ordinary socket. */
static int open_lanes(struct afxdp *a, char why[AFXDP_WHY])
{
    char dropped[AFXDP_WHY];
    a->all = epoll_create1(EPOLL_CLOEXEC);
    int rc = a->all < 0 ? fail(why, "no descriptor to wait with", -errno) : open_lane(a, 0, why);
    for (uint32_t i = 1, n = count_queues(a); i < n && !rc && !open_lane(a, i, dropped); i++)
        ;
    for (uint32_t i = 0; i < FRAMES; i++)
        a->spare[i] = (FRAMES + i) * FRAME;
    a->spares = FRAMES;
    return rc;
}

/* ---- opening ---- */

/* The interface that has the address. */
static int find_device(struct afxdp *a)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return -errno;
    for (const struct ifaddrs *i = all; i && !a->device[0]; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
            ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr.s_addr == net_addr_v4(&a->at))
            snprintf(a->device, sizeof a->device, "%s", i->ifa_name);
    freeifaddrs(all);
    a->ifindex = if_nametoindex(a->device);
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", a->device);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = a->ifindex ? ioctl(fd, SIOCGIFHWADDR, &r) : -1;
    if (fd >= 0)
        close(fd);
    if (rc)
        return -ENODEV;
    memcpy(a->mac, r.ifr_hwaddr.sa_data, ETH_ALEN);
    return 0;
}

ONCE int afxdp_open(struct net_addr at, struct afxdp **out, char why[AFXDP_WHY])
{
    if (!net_addr_is_v4(&at))
        return fail(why, "AF_XDP is for IPv4 here", -EAFNOSUPPORT);
    struct afxdp *a = calloc(1, sizeof *a);
    if (!a)
        return fail(why, "no memory", -ENOMEM);
    a->all = a->map = a->program = a->link = -1;
    a->at = at;
    pthread_mutex_init(&a->sending, NULL);
    int rc = find_device(a);
    if (rc)
        fail(why, "no interface has the address", rc);
    if (!rc)
        rc = attach(a, why);
    if (!rc)
        rc = open_lanes(a, why);
    if (!rc && (rc = listen_there(a)))
        fail(why, "the socket cannot be listened to", rc);
    if (rc) {
        afxdp_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

void afxdp_close(struct afxdp *a)
{
    if (!a)
        return;
    const int fds[] = {a->link, a->program, a->map, a->all}; /* the program goes first */
    for (size_t i = 0; i < countof(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (uint32_t i = 0; i < a->lanes; i++)
        close_lane(&a->lane[i]);
    pthread_mutex_destroy(&a->sending);
    free(a);
}

/* ---- frames ---- */

static void learn(struct afxdp *a, uint32_t ip, const uint8_t mac[ETH_ALEN])
{
    uint64_t now = world_now(&world_real);
    unsigned at = 0;
    for (unsigned i = 0; i < PEERS; i++) {
        if (a->peer[i].ip == ip) {
            at = i;
            break;
        }
        if (a->peer[i].seen_ns < a->peer[at].seen_ns)
            at = i; /* the peer that was silent for longest is replaced */
    }
    if (pthread_mutex_trylock(&a->sending))
        return; /* the next frame will do */
    a->peer[at].ip = ip;
    memcpy(a->peer[at].mac, mac, ETH_ALEN);
    a->peer[at].seen_ns = now;
    pthread_mutex_unlock(&a->sending);
}

/* The packet of a frame. */
static void take(struct afxdp *a, const uint8_t *frame, uint32_t len, struct udp_batch *batch)
{
    struct frame_packet p;
    if (!frame_take_apart(frame, len, a->at, &p))
        return;
    learn(a, net_addr_v4(&p.from), p.mac);
    memcpy(batch->packet[batch->count].data, p.data, p.len);
    batch->packet[batch->count].len = p.len;
    batch->packet[batch->count].from = p.from;
    batch->count++;
}

static void receive_from(struct afxdp *a, const struct lane *l, struct udp_batch *batch)
{
    uint32_t at = *l->come.consumer, end = __atomic_load_n(l->come.producer, __ATOMIC_ACQUIRE);
    uint32_t back = *l->fill.producer;
    if (at == end)
        return;
    for (; at != end && batch->count < UDP_BATCH; at++, back++) {
        const struct xdp_desc d = ((const struct xdp_desc *)l->come.entries)[at % FRAMES];
        if (d.addr < FRAMES * FRAME && d.len <= FRAME - d.addr % FRAME)
            take(a, l->memory + d.addr, d.len, batch);
        ((uint64_t *)l->fill.entries)[back % FRAMES] = d.addr - d.addr % FRAME;
    }
    __atomic_store_n(l->come.consumer, at, __ATOMIC_RELEASE);
    __atomic_store_n(l->fill.producer, back, __ATOMIC_RELEASE);
    if (__atomic_load_n(l->fill.flags, __ATOMIC_ACQUIRE) & XDP_RING_NEED_WAKEUP)
        recvfrom(l->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

unsigned afxdp_receive(struct afxdp *a, struct udp_batch *batch)
{
    batch->count = 0;
    for (uint32_t i = 0; i < a->lanes && batch->count < UDP_BATCH; i++) {
        receive_from(a, &a->lane[a->next], batch);
        a->next = a->next + 1 < a->lanes ? a->next + 1 : 0;
    }
    return batch->count;
}

/* Frames that have been sent can be used again. */
static void collect(struct afxdp *a)
{
    uint32_t at = *a->lane[0].done.consumer, end = __atomic_load_n(a->lane[0].done.producer, __ATOMIC_ACQUIRE);
    for (; at != end && a->spares < FRAMES; at++)
        a->spare[a->spares++] = (uint32_t)((const uint64_t *)a->lane[0].done.entries)[at % FRAMES];
    __atomic_store_n(a->lane[0].done.consumer, at, __ATOMIC_RELEASE);
}

/* The machine's Ethernet address, if a frame came from it lately. */
static const uint8_t *find_peer(const struct afxdp *a, uint32_t ip, uint64_t now)
{
    for (unsigned i = 0; i < PEERS; i++)
        if (a->peer[i].ip == ip)
            return now - a->peer[i].seen_ns < FRESH_NS ? a->peer[i].mac : NULL;
    return NULL;
}

unsigned afxdp_send(struct afxdp *a, const struct udp_out *packets, unsigned count)
{
    unsigned sent = 0;
    if (pthread_mutex_trylock(&a->sending))
        return 0;
    uint64_t now = world_now(&world_real);
    uint32_t at = *a->lane[0].go.producer;
    collect(a);
    for (const uint8_t *mac; sent < count && a->spares; sent++, at++) {
        const struct udp_out *p = &packets[sent];
        if (p->len > PACKET_MAX || !(mac = find_peer(a, net_addr_v4(&p->to), now)))
            break;
        uint32_t frame = a->spare[--a->spares];
        frame_put_together(a->lane[0].memory + frame, a->at, a->mac, mac, p);
        ((struct xdp_desc *)a->lane[0].go.entries)[at % FRAMES] = (struct xdp_desc){.addr = frame, .len = FRAME_HEADS + p->len};
    }
    __atomic_store_n(a->lane[0].go.producer, at, __ATOMIC_RELEASE);
    /* The kernel takes so many at a time. */
    for (unsigned i = 0; i < KICKS && sent && __atomic_load_n(a->lane[0].go.consumer, __ATOMIC_ACQUIRE) != at; i++)
        if (!(__atomic_load_n(a->lane[0].go.flags, __ATOMIC_ACQUIRE) & XDP_RING_NEED_WAKEUP) ||
            (sendto(a->lane[0].fd, NULL, 0, MSG_DONTWAIT, NULL, 0) && errno != EAGAIN))
            break;
    pthread_mutex_unlock(&a->sending);
    return sent;
}

const struct afxdp_driver driver_afxdp = {
    .open = afxdp_open,
    .close = afxdp_close,
    .fd = afxdp_fd,
    .receive = afxdp_receive,
    .send = afxdp_send,
};
