/* SPDX-License-Identifier: Apache-2.0 */
#include "node/memory_kernel.h"
#include "node/kernel_internal.h"
#include "wire/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u /* of the map of memory: struct page of memory.bpf.c */

static int open_plane(struct memory_kernel *k, const struct memory_need *need)
{
    uint64_t pages = round_up(need->bytes, (uint64_t)PAGE) / PAGE;
    if (pages > UINT32_MAX)
        return explain(-EFBIG, "the lock memory is too large for the kernel: fewer --locks");
    const struct plane_options o = {.program = "memory",
                                    .settings = {.port = htons(need->at.port),
                                                 .space = need->space,
                                                 .locks = need->bytes,
                                                 .options = need->clients,
                                                 .keyed = need->ring != NULL,
                                                 .lease_ns = need->lease_ns},
                                    .pins = k->pins,
                                    .fresh = need->fresh,
                                    .life = need->life,
                                    .locks_max = (uint32_t)pages};
    int rc = kernel_check_memory(k->report, "the lock memory and its clients",
                                 pages * PAGE + need->clients * sizeof(struct verbs_client));
    if (!rc)
        rc = plane_open(&o, &k->plane);
    if (rc == -EEXIST) {
        char why[256];
        snprintf(why, sizeof why, "%s", explained());
        explain(rc, "%s; --fresh begins anew", why);
    }
    return rc;
}

static_assert(sizeof(struct memory_owner) == sizeof(struct plane_owner) &&
                  offsetof(struct memory_owner, by.number) == offsetof(struct plane_owner, number) &&
                  offsetof(struct memory_owner, life) == offsetof(struct plane_owner, life),
              "the kernel's side has its own declaration");

/* A client that connected with a key that is no longer valid has to show a valid one. */
static void forget_owners(struct memory_owner *owners, uint32_t clients, const struct seal_ring *ring)
{
    for (uint32_t i = 0; i < clients; i++) {
        bool valid = false;
        for (unsigned k = 0; k < ring->count && !valid; k++) {
            struct seal_key key = seal_member_key(&ring->key[k], owners[i].by.number);
            valid = !memcmp(&key, &owners[i].by.key, sizeof key);
        }
        if (!valid)
            memset(&owners[i], 0, sizeof owners[i]);
    }
}

static int open_keys(struct memory_kernel *k, const struct memory_need *need, struct memory_place *out)
{
    void *seals, *owners;
    uint64_t bytes;
    int rc = plane_map(k->plane, "seals", &seals, &bytes);
    if (!rc)
        rc = plane_map(k->plane, "owners", &owners, &bytes);
    if (rc)
        return rc;
    for (unsigned i = 0; i < need->ring->count; i++) {
        struct seal_key key = seal_member_key(&need->ring->key[i], 0);
        memcpy(((struct plane_seal *)seals)->key[i], &key, sizeof key);
    }
    out->owners = owners;
    forget_owners(out->owners, need->clients, need->ring);
    return 0;
}

/* For a link to it, wherever this process was started. */
static void name_map(struct memory_kernel *k)
{
    char folder[PATH_MAX];
    const char *whole = realpath(k->pins, folder) ? folder : k->pins;
    if (snprintf(k->pinned, sizeof k->pinned, "%s/words", whole) >= (int)sizeof k->pinned)
        k->pinned[0] = 0;
}

static int open_memory(void *ctx, const struct memory_need *need, struct memory_place *out)
{
    struct memory_kernel *k = ctx;
    void *words, *clients;
    uint64_t bytes;
    if (plane_missing())
        return explain(-ENOTSUP, "%s", plane_missing());
    if (!net_addr_is_v4(&need->at))
        return explain(-EAFNOSUPPORT, "the program for the kernel executes IPv4 packets only: --listen at an IPv4 address");
    int rc = open_plane(k, need);
    if (!rc && k->pins)
        name_map(k);
    if (!rc)
        rc = plane_map(k->plane, "words", &words, &bytes);
    if (!rc)
        rc = plane_map(k->plane, "clients", &clients, &bytes);
    if (rc)
        return rc;
    k->at = need->at;
    k->found = plane_found(k->plane);
    k->report("%s, life %" PRIu32 "; the verifier went through %" PRIu32 " instructions",
              k->found ? "goes on with the memory as it was" : "the memory is new", plane_live(k->plane)->life,
              plane_verified(k->plane));
    *out = (struct memory_place){.memory = words, .table = clients, .found = k->found, .life = plane_live(k->plane)->life};
    return need->ring ? open_keys(k, need, out) : 0;
}

static int attach_all(void *ctx, struct care *care)
{
    (void)care;
    struct memory_kernel *k = ctx;
    char *copy = strdup(k->devices), *rest = copy;
    int rc = copy ? 0 : explain(-ENOMEM, "out of memory");
    for (char *device; !rc && (device = strsep(&rest, ","));)
        rc = kernel_attach_one(k->report, k->plane, device, k->mode);
    free(copy);
    k->begun = !rc;
    return rc;
}

/* A request came by another interface, or with a head that the program leaves to the network stack. The program executes it all the
 * same: only the program holds the latch. Its tag is checked by then. */
static uint32_t execute(void *ctx, void *packet, uint32_t len)
{
    static const uint8_t none[FRAME_MAC];
    struct memory_kernel *k = ctx;
    uint8_t in[FRAME_HEADS + VERBS_PACKET_MAX], out[FRAME_HEADS + VERBS_PACKET_MAX];
    const struct udp_out request = {.to = k->at, .len = len, .data = packet};
    if (len > VERBS_PACKET_MAX)
        return 0;
    frame_put_together(in, k->at, none, none, &request);
    struct plane_run run = {.in = in, .in_len = FRAME_HEADS + len, .out = out, .out_len = sizeof out};
    if (plane_run(plane_program(k->plane, "inside"), &run) || run.verdict != XDP_TX || run.out_len != FRAME_HEADS + len)
        return 0;
    memcpy(packet, out + FRAME_HEADS, len);
    return len;
}

static void drops(void *ctx, struct memory_drops *out)
{
    const struct memory_kernel *k = ctx;
    struct plane_counters c;
    *out = (struct memory_drops){0};
    if (!k->plane || plane_count(k->plane, &c))
        return;
    *out = (struct memory_drops){.untagged = c.reason[PLANE_UNTAGGED],
                                 .forged = c.reason[PLANE_UNKNOWN] + c.reason[PLANE_EPOCH],
                                 .foreign = c.reason[PLANE_ALIEN],
                                 .malformed = c.reason[PLANE_SHORT] + c.reason[PLANE_CHECKSUM] + c.reason[PLANE_TYPE],
                                 .late = c.reason[PLANE_OUTDATED] + c.reason[PLANE_CONTENDED],
                                 .refused = c.reason[PLANE_REFUSED]};
}

static void report_end(const struct memory_kernel *k)
{
    struct plane_counters c;
    if (!plane_count(k->plane, &c))
        k->report("ended: %" PRIu64 " answered, %" PRIu64 " dropped, %" PRIu64 " passed", c.verdict[PLANE_ANSWERED],
                  c.verdict[PLANE_DROPPED], c.verdict[PLANE_PASSED]);
}

/* A process that could not take over leaves what it found: the program goes on. */
static void close_memory(void *ctx)
{
    struct memory_kernel *k = ctx;
    if (!k->plane)
        return;
    if (k->begun)
        report_end(k);
    bool keep = k->pins && (k->begun ? !k->remove : k->found);
    plane_close(k->plane, !keep ? PLANE_REMOVE : k->begun ? PLANE_DETACH : PLANE_LEAVE);
    k->plane = NULL;
}

struct memory_home memory_kernel_home(struct memory_kernel *k)
{
    return (struct memory_home){.ctx = k,
                                .caps = MEMORY_KERNEL_CAPS,
                                .open = open_memory,
                                .begin = attach_all,
                                .execute = execute,
                                .close = close_memory,
                                .drops = drops,
                                .pinned = k->pins ? k->pinned : NULL};
}
