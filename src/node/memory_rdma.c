/* SPDX-License-Identifier: Apache-2.0 */
#include "node/memory_rdma.h"
#include "client/far.h"
#include "dataplane/mistake.h"
#include "fabric/shm.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUND_NS (500 * NS_PER_MS) /* how often the process looks after sessions, at most */
#define OWN_NS (5 * NS_PER_S)      /* for which the process tries to reach its own memory */

/* ---- clients ---- */

static void shut(void *ctx, uint32_t client)
{
    struct memory_rdma *o = ctx;
    rdma_target_shut(o->target, client);
}

/* For the process's own seat: as a FENCE packet (memnode.c). */
static int fence(void *ctx, uint32_t peer, uint64_t proof)
{
    struct memory_rdma *o = ctx;
    if (peer >= o->need.clients)
        return -EINVAL;
    struct verbs_client *c = &o->table[peer];
    uint32_t up_to = (uint32_t)min_u64((uint32_t)proof, c->life);
    if (c->fenced < up_to)
        c->fenced = up_to;
    if (!verbs_connected(c))
        shut(o, peer);
    return c->near && fab_shm_gone(c->near, 0) ? -EAGAIN : 0; /* a process that changes memory by itself: only its end is certain */
}

static int renew_own(void *ctx, uint32_t number, uint64_t deadline, struct verbs_way *way)
{
    struct memory_rdma *o = ctx;
    (void)deadline;
    return rdma_target_admit(o->target, o->need.clients, 1, number, way);
}

static uint32_t answer(struct verbs_head *h, enum verbs_status status)
{
    h->type |= VERBS_ANSWER;
    h->status = (uint8_t)status;
    return h->len;
}

/* The key, and a slot if one is wanted. */
static uint32_t attach(struct memory_rdma *o, struct verbs_attach *a)
{
    struct session_place place = {0};
    int rc = rdma_target_admit(o->target, a->head.client, a->head.life, a->number, &a->way);
    if (rc == -EINVAL)
        return answer(&a->head, VERBS_BAD); /* a packet that was delayed */
    if (rc)
        o->report("%s", explained());
    if (!rc && a->lease_ns)
        rc = care_connect(o->care, (uint64_t)a->head.client << 32 | a->head.life, a->lease_ns, &place);
    a->code = rc;
    a->slot = place.slot;
    a->lease = place.lease;
    a->memory_life = place.life;
    return answer(&a->head, VERBS_OK);
}

static uint32_t execute(void *ctx, void *packet, uint32_t len)
{
    struct memory_rdma *o = ctx;
    struct verbs_head *h = packet;
    if (h->len != len || h->version != VERBS_VERSION || h->features & ~VERBS_FEATURES || h->space != o->need.space || h->status)
        return 0;
    if (h->node_life != o->need.life)
        return answer(h, VERBS_FENCED);
    struct verbs_client *c = h->client < o->need.clients ? &o->table[h->client] : NULL;
    if (!c || h->life > c->life)
        return 0;
    if (h->life != c->life || h->life <= c->fenced)
        return answer(h, VERBS_FENCED);
    if (h->tag != c->tag)
        return 0;
    c->heard_ns = world_now(&world_real);
    if (h->type != VERBS_ATTACH || len != sizeof(struct verbs_attach))
        return answer(h, VERBS_BAD);
    return attach(o, packet);
}

/* ---- looking after sessions ---- */

struct hearing {
    struct memory_rdma *o;
    uint64_t now;
};

/* The process hears nothing of a client's verbs. A client with a slot counts as heard of: if it is silent, its session is lost, and
 * then it is fenced. One without a slot is taken for silent after two leases (memnode.c). */
static int hear_of(void *ctx, uint32_t slot, uint64_t lease)
{
    const struct hearing *h = ctx;
    const struct seat *seat = &h->o->care->seat;
    uint64_t proof;
    (void)lease;
    int rc = fab_read64(seat->ep, space_slot_addr(seat->space, slot) + offsetof(struct slot, proof), &proof);
    uint32_t client = (uint32_t)(proof >> 32);
    if (rc || client >= h->o->need.clients || h->o->table[client].life != (uint32_t)proof)
        return rc;
    h->o->table[client].heard_ns = h->now;
    return 0;
}

static void tend(void *ctx, uint64_t now)
{
    struct memory_rdma *o = ctx;
    struct hearing h = {.o = o, .now = now};
    if (!o->care || now < o->tend_ns)
        return;
    int rc = care_tend(o->care);
    if (!rc)
        rc = seat_slots(&o->care->seat, hear_of, &h);
    if (rc && !o->failed++)
        o->report("the process does not reach its own memory by the provider '%s'", o->provider);
    o->failed = rc ? o->failed : 0;
    o->tend_ns = world_now(&world_real) + care_pause_ns(o->care, ROUND_NS);
}

/* ---- the memory ---- */

static int open_memory(void *ctx, const struct memory_need *need, struct memory_place *out)
{
    struct memory_rdma *o = ctx;
    assert(need->clients <= o->clients);
    o->need = *need;
    void *memory = need->memory
                       ? need->memory
                       : mmap(NULL, need->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return explain(-errno, "cannot map %llu bytes of lock memory: %s (lower --locks, --sessions or --holds)",
                       (unsigned long long)need->bytes, strerror(errno));
    o->memory = memory;
    o->table = calloc(need->clients, sizeof *o->table);
    if (!o->table)
        return explain(-ENOMEM, "out of memory for %u clients", need->clients);
    *out = (struct memory_place){.memory = memory, .table = o->table, .life = need->life};
    return rdma_target_memory(o->target, memory, need->bytes);
}

/* Takes the process's seat. Locks are formatted by the CPU, since no client has a key yet. */
static int begin(void *ctx, struct care *care)
{
    struct memory_rdma *o = ctx;
    struct fab_ep here;
    struct verbs_way way = {0};
    const struct fab_rdma_io io = {.ctx = o, .renew = renew_own, .fence = fence, .lease_ns = o->need.lease_ns};
    fab_shm_init(&here, o->memory, o->need.bytes);
    here.caps = o->need.caps;
    o->seen = calloc(care->header.slot_count, sizeof *o->seen);
    int rc = o->seen ? care_begin(care, &here, 0, o->seen) : explain(-ENOMEM, "out of memory");
    if (!rc)
        rc = renew_own(o, 0, 0, &way);
    if (!rc)
        rc = fab_rdma_open(&way, o->need.bytes, &io, world_now(&world_real) + OWN_NS, &o->own);
    if (rc)
        return rc;
    care->seat.ep = fab_rdma_ep(o->own);
    care->seat.ep->caps = o->need.caps;
    if (o->need.memory) { /* it recovers from lost sessions of the local cohort */
        const struct fab_near_way near = {.far = care->seat.ep, .dead = fab_rdma_dead(o->own), .base = o->memory};
        far_near(&o->near, &near, &care->space);
        care->seat.ep = &o->near.ep;
    }
    o->care = care;
    return 0;
}

static void close_memory(void *ctx)
{
    struct memory_rdma *o = ctx;
    fab_rdma_close(o->own);
    rdma_target_close(o->target);
    if (o->memory)
        munmap(o->memory, o->need.bytes);
    free(o->table);
    free(o->seen);
    o->own = NULL;
    o->target = NULL;
    o->memory = NULL;
    o->table = NULL;
    o->seen = NULL;
    o->care = NULL;
}

int memory_rdma_home(struct memory_rdma *o, struct memory_home *out)
{
    const struct rdma_target_params p = {.provider = o->provider,
                                         .device = o->device,
                                         .at = o->at,
                                         .clients = o->clients + 1, /* the last is the process itself */
                                         .spin_ns = o->spin_ns,
                                         .mistakes = MISTAKES(o->mistakes)};
    if (!net_addr_known(o->at))
        return explain(-EINVAL, "--listen at the address of one interface: clients are told it");
    int rc = rdma_target_open(&p, &o->target);
    if (rc)
        return rc;
    *out = (struct memory_home){.ctx = o,
                                .caps = rdma_target_caps(o->target),
                                .can = VERBS_CAN_FABRIC,
                                .open = open_memory,
                                .begin = begin,
                                .execute = execute,
                                .shut = shut,
                                .tend = tend,
                                .takes_memory = !strcmp(o->provider, RDMA_VERBS),
                                .close = close_memory};
    return 0;
}
