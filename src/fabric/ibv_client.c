/* SPDX-License-Identifier: Apache-2.0 */
/* A client's end under libibverbs: a queue pair that issues verbs. */
#include "fabric/ibv_lib.h"
#include "lib/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A work request points to its operand, so it lives as long as its flight. */
struct posted {
    struct ibv_send_wr wr;
    struct ibv_sge part;
};

struct ibv_end {
    struct rdma_port port;
    struct ibv_dock dock;
    struct flight_buffers *buffers;
    struct ibv_mr *local;             /* the buffers */
    struct ibv_comp_channel *channel; /* of the queue's events */
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint32_t first_packet;
    struct posted posted[FLIGHTS];
    struct ibv_send_wr *first, *last; /* given, and not posted; null: none */
    struct flight *given[FLIGHTS];    /* in their order, by number modulo FLIGHTS: from `told` on */
    unsigned told, ended, next;       /* numbers of verbs: those before are told to the endpoint, have ended well, were given */
    int failed;                       /* to post; 0: nothing */
};

static struct ibv_end *end_of(struct rdma_port *p)
{
    return container_of(p, struct ibv_end, port);
}

/* ---- connecting ---- */

static int make_parts(struct ibv_end *e)
{
    size_t bytes = FLIGHTS * sizeof *e->buffers;
    struct rlimit locked = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_MEMLOCK, &locked);
    e->local = ibv_lib.reg_mr(e->dock.pd, e->buffers, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!e->local)
        return rdma_explain_registration(-errno, RDMA_VERBS, bytes, locked.rlim_cur, strerror(errno));
    e->channel = ibv_lib.create_channel(e->dock.context);
    if (e->channel && !fcntl(e->channel->fd, F_SETFL, O_NONBLOCK))
        e->cq = ibv_lib.create_cq(e->dock.context, FLIGHTS, NULL, e->channel, 0);
    if (!e->cq)
        return explain(-errno, "libibverbs cannot make a completion queue: %s", strerror(errno));
    return ibv_queue_make(&e->dock, e->cq, false, &e->qp);
}

/* The interface that leads to the node. */
static int open_dock(struct ibv_end *e, const struct verbs_way *way)
{
    struct ibv_name node;
    struct net_addr from;
    int rc = ibv_way_get(way, &node);
    if (rc)
        return rc;
    rc = udp_source_for(node.at, &from);
    return rc ? explain(rc, "no route to the node: %s", strerror(-rc)) : ibv_dock_open(&e->dock, NULL, from);
}

ONCE int ibv_end_open(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers,
                      struct rdma_port **out, struct verbs_way *mine)
{
    struct ibv_end *e = calloc(1, sizeof *e);
    (void)like;
    if (!e)
        return explain(-ENOMEM, "out of memory for an endpoint");
    e->port = (struct rdma_port){.caps = IBV_CAPS, .ordered = true, .ranges = 1};
    e->buffers = buffers;
    e->first_packet = (uint32_t)world_random(&world_real) & 0xffffff;
    int rc = open_dock(e, way);
    if (!rc)
        rc = make_parts(e);
    if (rc) {
        ibv_end_close(&e->port);
        return rc;
    }
    struct ibv_name name = {.number = e->qp->qp_num,
                            .first_packet = e->first_packet,
                            .lid = e->dock.lid,
                            .mtu = (uint8_t)e->dock.mtu,
                            .depth = e->dock.depth};
    memcpy(name.gid, e->dock.gid.raw, sizeof name.gid);
    *mine = (struct verbs_way){0};
    ibv_way_put(mine, &name);
    *out = &e->port;
    return 0;
}

int ibv_end_connect(struct rdma_port *p, const struct verbs_way *way)
{
    struct ibv_end *e = end_of(p);
    struct ibv_name node;
    int rc = ibv_way_get(way, &node);
    return rc ? rc : ibv_queue_connect(&e->dock, e->qp, e->first_packet, &node);
}

void ibv_end_close(struct rdma_port *p)
{
    struct ibv_end *e = end_of(p);
    if (e->qp)
        ibv_lib.destroy_qp(e->qp);
    if (e->cq)
        ibv_lib.destroy_cq(e->cq);
    if (e->channel)
        ibv_lib.destroy_channel(e->channel);
    if (e->local)
        ibv_lib.dereg_mr(e->local);
    ibv_dock_close(&e->dock);
    free(e);
}

/* ---- verbs ---- */

/* The operand of a WRITE that travels in the request, else the place of the result. */
static void fill(const struct ibv_end *e, const struct verbs_way *way, const struct flight *f, struct posted *r)
{
    static const enum ibv_wr_opcode how[FAB_VERBS] = {[FAB_READ] = IBV_WR_RDMA_READ,
                                                      [FAB_WRITE] = IBV_WR_RDMA_WRITE,
                                                      [FAB_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
                                                      [FAB_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD};
    uint64_t at = way->base + f->range[0].offset;
    uint32_t key = (uint32_t)way->key, bytes = f->words * (uint32_t)sizeof(uint64_t);
    bool writes = f->verb == FAB_WRITE;
    r->part = (struct ibv_sge){
        .addr = (uint64_t)(uintptr_t)(writes ? f->buffers->operand : f->buffers->result), .length = bytes, .lkey = e->local->lkey};
    r->wr = (struct ibv_send_wr){.wr_id = (uint64_t)(uintptr_t)f,
                                 .sg_list = &r->part,
                                 .num_sge = 1,
                                 .opcode = how[f->verb],
                                 .send_flags = (f->fence ? IBV_SEND_FENCE : 0u) |
                                               (writes && bytes <= IBV_INLINE_BYTES ? IBV_SEND_INLINE : 0u)};
    if (f->verb <= FAB_WRITE) {
        r->wr.wr.rdma.remote_addr = at;
        r->wr.wr.rdma.rkey = key;
        return;
    }
    r->wr.wr.atomic.remote_addr = at;
    r->wr.wr.atomic.rkey = key;
    r->wr.wr.atomic.compare_add = f->verb == FAB_CAS ? f->buffers->compare[0] : f->buffers->operand[0];
    r->wr.wr.atomic.swap = f->buffers->operand[0];
}

/* Verbs of a batch are posted together. */
int ibv_end_give(struct rdma_port *p, const struct verbs_way *way, struct flight *f)
{
    struct ibv_end *e = end_of(p);
    struct posted *r = &e->posted[f->buffers - e->buffers];
    assert(f->verb != FAB_SWAP && !f->masked && f->ranges == 1);
    fill(e, way, f, r);
    if (e->last)
        e->last->next = &r->wr;
    else
        e->first = &r->wr;
    e->last = &r->wr;
    assert(e->next - e->told < FLIGHTS);
    e->given[e->next++ % FLIGHTS] = f;
    return 0;
}

/* In the codes of the endpoint. */
static int code_of(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS           ? 0
           : status == IBV_WC_REM_ACCESS_ERR  ? EACCES
           : status == IBV_WC_RETRY_EXC_ERR   ? ETIMEDOUT
           : status == IBV_WC_WR_FLUSH_ERR    ? ECONNABORTED
           : status == IBV_WC_REM_INV_REQ_ERR ? EINVAL
                                              : EIO;
}

void ibv_end_push(struct rdma_port *p)
{
    struct ibv_end *e = end_of(p);
    struct ibv_send_wr *refused;
    if (e->first && !e->failed) {
        e->last->send_flags |= IBV_SEND_SIGNALED;
        e->failed = ibv_post_send(e->qp, e->first, &refused);
    }
    e->first = e->last = NULL;
}

/* A queue pair ends its verbs in order: with one that has ended, those before it have. */
static void note_end(struct ibv_end *e, const struct flight *f)
{
    while (e->ended != e->next && e->given[e->ended++ % FLIGHTS] != f)
        ;
}

int ibv_end_look(struct rdma_port *p, struct rdma_done *done, unsigned max)
{
    struct ibv_end *e = end_of(p);
    struct ibv_wc wc;
    unsigned n = 0;
    ibv_end_push(p);
    if (e->failed)
        return -e->failed; /* the endpoint goes on with another queue pair */
    while (n < max) {
        if (e->told != e->ended) {
            done[n++] = (struct rdma_done){.flight = e->given[e->told++ % FLIGHTS]};
            continue;
        }
        int count = ibv_poll_cq(e->cq, 1, &wc);
        if (count <= 0)
            return count < 0 ? -EIO : (int)n;
        if (wc.status == IBV_WC_SUCCESS)
            note_end(e, (const struct flight *)(uintptr_t)wc.wr_id);
        else /* the outcome of those before it is unknown, too */
            done[n++] = (struct rdma_done){.flight = (struct flight *)(uintptr_t)wc.wr_id, .error = code_of(wc.status)};
    }
    return (int)n;
}

int ibv_end_arm(struct rdma_port *p)
{
    const struct ibv_end *e = end_of(p);
    struct ibv_cq *cq;
    void *ctx;
    while (!ibv_lib.get_cq_event(e->channel, &cq, &ctx))
        ibv_lib.ack_cq_events(cq, 1);
    ibv_req_notify_cq(e->cq, 0);
    return e->channel->fd;
}
