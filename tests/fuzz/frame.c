/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of the kernel's switch, with FissLock's decider behind it: the program itself, compiled to run here. Nothing is read
 * or written beyond the frame, whose end is the end of readable memory; a frame that passes is untouched; a frame that is dropped
 * for a reason changes no lock. */
#include "lib/base.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the kernel calls its programs by their sections */
#include "dataplane/xdp/fission.bpf.c"
#pragma GCC diagnostic pop

#include "tests/fuzz/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS 3
#define LOCKS 8

static struct plane_host host[HOSTS + 1];
static struct lock lock_of[LOCKS];
static struct twin_ring ring;
static struct plane_settings wanted = {
    .port = bpf_htons(PORT), .machines = HOSTS, .space = SPACE, .locks = LOCKS, .lease_ns = 1, .lease_ticks = 100};

void *kernel_map(const void *map, const void *key)
{
    uint32_t k;
    memcpy(&k, key, sizeof k);
    if (map == &counters)
        return &counted;
    if (map == &rings)
        return &ring;
    if (map == &ways)
        return &way;
    if (map == &hosts)
        return k <= HOSTS ? &host[k] : NULL;
    if (map == &locks)
        return k < LOCKS ? &lock_of[k] : NULL;
    return NULL;
}

static void make_fields_sound(struct fission_packet *p, uint32_t len)
{
    p->client.machine = (uint16_t)(1 + p->client.machine % HOSTS);
    p->mode = (uint8_t)(1 + p->mode % 2);
    p->old_mode = (uint8_t)(1 + p->old_mode % 2);
    p->term &= 3;
    p->inca &= 3;
    p->flags &= 0x3ff;
    p->hops %= FISSION_HOPS_MAX;
    p->priority %= 8;
    p->count = 0;
    if (wanted.racks && p->head.type == FISSION_LEASE) /* with whatever room there is */
        p->count = (uint16_t)((len - sizeof *p) / sizeof(struct fission_entry));
}

static void one_frame(const uint8_t *bytes, uint32_t len, uint8_t how)
{
    struct lock before[LOCKS];
    struct in_frame in = {.size = sizeof(struct fission_packet)};
    bool why;
    uint8_t *frame = place_frame(bytes, len);
    make_sound(frame, len, how, PACKET_FISSION, LOCKS, HOSTS, &in);
    for (unsigned i = 0; i < in.count; i++)
        make_fields_sound((void *)(in.first + i * in.size), in.count > 1 ? in.size : len - (uint32_t)FRAME_HEADS);
    if (wanted.racks && how & HOW_FRAME && len >= FRAME_HEADS) {
        memcpy(&wanted.ip, frame + sizeof(struct ether) + offsetof(struct iphdr, daddr), sizeof wanted.ip);
        set_constant(&settings, &wanted, sizeof wanted);
    }
    memcpy(before, lock_of, sizeof lock_of);
    int verdict = run_frame(frame, len, &why);
    kernel_ticks += how & HOW_LATER ? 30 : 0; /* a lease has 100 */
    if (why)
        CHECK(!memcmp(before, lock_of, sizeof lock_of));
    if (verdict == XDP_REDIRECT)
        run_copies(frame, len, 2, twin_out);
    if (!wanted.racks)
        six_there_and_back(bytes, len, how);
}

/* As the only switch, or as the one of the second of two racks. */
static void all_frames(const uint8_t *data, size_t size, uint16_t racks)
{
    wanted.racks = racks;
    wanted.rack = racks ? 1 : 0;
    live.shards = racks ? UINT64_C(0x5555555555555555) : 0;
    set_constant(&settings, &wanted, sizeof wanted);
    memset(lock_of, 0, sizeof lock_of);
    memset(&ring, 0, sizeof ring);
    kernel_ticks = 1000;
    for (uint32_t i = 0; i <= HOSTS; i++)
        host[i] = (struct plane_host){
            .ip = i == HOSTS ? 0 : 0x0100000a + (i << 24), .pool_port = 1, .ifindex = 1 + i % 2, .heard = i ? 1000 : 0};
    each_frame(data, size, one_frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!low)
        set_up_frames(&wanted);
    all_frames(data, size, 0);
    all_frames(data, size, 2);
    return 0;
}
