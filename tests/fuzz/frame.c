/* Frames as the kernel's switch takes them apart, with FissLock's decider behind: the program itself, compiled to run here. Nothing
 * is read or written beyond the frame, whose end is the end of what can be read; what passes is untouched; what is dropped for a
 * reason changes no lock.
 *
 * Input: frames, each after a byte with its length (in units of 4 bytes) and one that says which heads are made sound around it. */
#include "lib/base.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the kernel calls its programs by their sections */
#include "dataplane/xdp/fission.bpf.c"
#pragma GCC diagnostic pop

#include "tests/check.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS 3
#define LOCKS 8
#define PORT 4747
#define SPACE 7
#define LOW ((void *)0x10000000) /* an address in a frame's context has 32 bits */

static struct plane_counters counted;
static struct plane_host host[HOSTS + 1];
static struct lock lock_of[LOCKS];
static struct twin_ring ring;
static uint8_t *memory, *end_of_memory;

void *kernel_map(const void *map, const void *key)
{
    uint32_t k;
    memcpy(&k, key, sizeof k);
    if (map == &counters)
        return &counted;
    if (map == &rings)
        return &ring;
    if (map == &hosts)
        return k <= HOSTS ? &host[k] : NULL;
    if (map == &locks)
        return k < LOCKS ? &lock_of[k] : NULL;
    return NULL;
}

/* The program has its settings as constants; here they are written once. */
static void set_up(void)
{
    const struct plane_settings wanted = {
        .port = bpf_htons(PORT), .machines = HOSTS, .space = SPACE, .locks = LOCKS, .lease_ns = 1, .lease_ticks = 100};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)&settings & ~(page - 1);
    uint64_t bytes = round_up(64 * 1024, page);
    CHECK_EQ(mprotect((void *)at, (uintptr_t)&settings + sizeof settings - at, PROT_READ | PROT_WRITE), 0);
    memcpy((void *)(uintptr_t)&settings, &wanted, sizeof wanted);
    memory = mmap(LOW, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(memory == LOW);
    end_of_memory = memory + bytes;
    CHECK_EQ(mprotect(end_of_memory, page, PROT_NONE), 0);
}

static uint16_t sum(const uint8_t *b, size_t len, uint64_t s)
{
    for (size_t i = 0; i < len; i++)
        s += i & 1 ? (uint64_t)b[i] << 8 : b[i];
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return (uint16_t)s;
}

/* Heads around the packet, so that more than one in a billion gets through. */
static void make_sound(uint8_t *frame, uint32_t len, uint8_t how)
{
    struct ether *eth = (void *)frame;
    struct iphdr *ip = (void *)(eth + 1);
    struct udphdr *udp = (void *)(ip + 1);
    struct packet_head *h = (void *)(udp + 1);
    if (len < FRAME_HEADS)
        return;
    if (how & 1) {
        eth->protocol = bpf_htons(ETH_P_IP);
        *(uint8_t *)ip = 0x45;
        ip->frag_off = 0;
        ip->protocol = IPPROTO_UDP;
        ip->tot_len = bpf_htons((uint16_t)(len - sizeof *eth));
        udp->dest = bpf_htons(PORT);
        udp->len = bpf_htons((uint16_t)(len - sizeof *eth - sizeof *ip));
    }
    if (how & 2 && len >= FRAME_HEADS + sizeof *h) {
        h->version = PACKET_VERSION;
        h->head_len = sizeof *h;
        h->family = how & 32 ? PACKET_COORDINATOR : PACKET_FISSION;
        h->type = (uint8_t)(h->type % 16);
        h->space = SPACE;
        h->epoch = h->generation = 0;
        h->index %= LOCKS + 1;
        h->from.machine %= HOSTS + 2;
        if (how & 16)
            h->to.machine = MACHINE_SWITCH;
    }
    if (how & 64 && len >= FRAME_HEADS + sizeof(struct fission_packet)) {
        struct fission_packet *p = (void *)h;
        p->client.machine = (uint16_t)(1 + p->client.machine % HOSTS);
        p->mode = (uint8_t)(1 + p->mode % 2);
        p->old_mode = (uint8_t)(1 + p->old_mode % 2);
        p->term &= 3;
        p->inca &= 3;
        p->flags &= 0x3ff;
        p->hops %= FISSION_HOPS_MAX;
        p->priority %= 8;
        p->count = 0;
    }
    if (how & 4) {
        ip->check = 0;
        ip->check = (uint16_t)~sum((uint8_t *)ip, sizeof *ip, 0);
    }
    if (how & 8)
        udp->check = 0;
}

static void one_frame(const uint8_t *bytes, uint32_t len, uint8_t how)
{
    static uint8_t before[1024];
    struct lock locks_before[LOCKS];
    struct plane_counters reasons = counted;
    uint8_t *frame = end_of_memory - len;
    memcpy(frame, bytes, len);
    make_sound(frame, len, how);
    memcpy(before, frame, len);
    memcpy(locks_before, lock_of, sizeof lock_of);
    struct xdp_md ctx = {.data = (uint32_t)(uintptr_t)frame, .data_end = (uint32_t)(uintptr_t)end_of_memory, .ingress_ifindex = 1};
    int verdict = plane(&ctx);
    kernel_ticks += how & 128 ? 30 : 0; /* a lease has 100 */
    CHECK(verdict == XDP_DROP || verdict == XDP_PASS || verdict == XDP_TX || verdict == XDP_REDIRECT);
    uint64_t counts = 0, why = 0;
    for (unsigned i = 0; i < PLANE_VERDICTS; i++)
        counts += counted.verdict[i] - reasons.verdict[i];
    for (unsigned i = 0; i < PLANE_REASONS; i++)
        why += counted.reason[i] - reasons.reason[i];
    CHECK_EQ(counts, 1);
    CHECK(why <= 1 && (why || verdict != XDP_PASS));
    if (verdict == XDP_PASS)
        CHECK(!memcmp(before, frame, len));
    if (why && !(counted.reason[PLANE_UNKNOWN] - reasons.reason[PLANE_UNKNOWN])) /* decided, but nobody knows where it should go */
        CHECK(!memcmp(locks_before, lock_of, sizeof lock_of));
    for (unsigned copy = 0; copy < 2 && verdict == XDP_REDIRECT; copy++) {
        uint8_t *again = end_of_memory - 2048 - len;
        memcpy(again, frame, len);
        ctx.data = (uint32_t)(uintptr_t)again;
        ctx.data_end = ctx.data + len;
        int out = twin_out(&ctx);
        CHECK(out == XDP_PASS || out == XDP_DROP);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!memory)
        set_up();
    memset(lock_of, 0, sizeof lock_of);
    memset(&ring, 0, sizeof ring);
    kernel_ticks = 1000;
    for (uint32_t i = 0; i <= HOSTS; i++)
        host[i] = (struct plane_host){
            .ip = i == HOSTS ? 0 : 0x0100000a + (i << 24), .pool_port = 1, .ifindex = 1 + i % 2, .heard = i ? 1000 : 0};
    while (size > 2) {
        uint32_t len = data[0] * 4u;
        uint8_t how = data[1];
        data += 2;
        size -= 2;
        len = len < size ? len : (uint32_t)size;
        one_frame(data, len, how);
        data += len;
        size -= len;
    }
    return 0;
}
