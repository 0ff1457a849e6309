/* SPDX-License-Identifier: Apache-2.0 */
/* A client's end under libfabric. */
#include "fabric/ofi_port.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ofi_end {
    struct rdma_port port;
    struct ofi_port lib;
    struct flight_buffers *buffers;
    struct fid_mr *local; /* the buffers; null: the provider needs no registration */
    void *desc;
    fi_addr_t peer;
};

_Static_assert(sizeof(struct fi_context2) <= sizeof((struct flight *)0)->context, "a flight is its own context");

static struct ofi_end *end_of(struct rdma_port *p)
{
    return container_of(p, struct ofi_end, port);
}

/* ---- connecting ---- */

int ofi_end_open(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers, struct rdma_port **out,
                 struct verbs_way *mine)
{
    struct ofi_end *e = calloc(1, sizeof *e);
    if (!e)
        return explain(-ENOMEM, "out of memory for an endpoint");
    *mine = (struct verbs_way){0};
    e->buffers = buffers;
    int rc = like ? ofi_port_again(&e->lib, &container_of(like, const struct ofi_end, port)->lib)
                  : ofi_port_open(&e->lib, way->provider, way, NULL, false);
    if (rc) {
        free(e);
        return rc;
    }
    e->port = (struct rdma_port){
        .caps = e->lib.provider.caps, .ordered = e->lib.provider.ordered, .swaps = true, .ranges = e->lib.ranges};
    *out = &e->port;
    return 0;
}

int ofi_end_connect(struct rdma_port *p, const struct verbs_way *way)
{
    struct ofi_end *e = end_of(p);
    const struct fi_ep_attr *end = e->lib.info->ep_attr;
    if (end->protocol != way->protocol || end->protocol_version != way->protocol_version)
        return explain(
            -EPROTO,
            "the provider '%s' of the node speaks protocol %u version %u, and that of this machine %u version %u: the same "
            "version of libfabric is needed on both",
            way->provider, way->protocol, way->protocol_version, end->protocol, end->protocol_version);
    if (fi_av_insert(e->lib.av, way->address, 1, &e->peer, 0, NULL) != 1)
        return explain(-EADDRNOTAVAIL, "the provider '%s' does not take the node's address", way->provider);
    if (!(e->lib.info->domain_attr->mr_mode & FI_MR_LOCAL))
        return 0;
    size_t bytes = FLIGHTS * sizeof *e->buffers;
    int rc = fi_mr_reg(e->lib.domain, e->buffers, bytes, FI_READ | FI_WRITE | FI_SEND | FI_RECV, 0, 0, 0, &e->local, NULL);
    if (rc)
        return rdma_explain_registration(rc, way->provider, bytes, 0, ofi_error(rc));
    e->desc = fi_mr_desc(e->local);
    return 0;
}

void ofi_end_close(struct rdma_port *p)
{
    struct ofi_end *e = end_of(p);
    if (e->local)
        fi_close(&e->local->fid);
    ofi_port_close(&e->lib);
    free(e);
}

/* ---- verbs ---- */

/* Gathered stores: several ranges in one message. */
static ssize_t give_ranges(struct ofi_end *e, const struct verbs_way *way, struct flight *f)
{
    struct fi_ioc from = {.addr = f->buffers->operand, .count = f->words}, found = {.addr = f->buffers->result, .count = f->words};
    struct fi_rma_ioc to[FLIGHT_RANGES];
    for (unsigned i = 0; i < f->ranges; i++)
        to[i] = (struct fi_rma_ioc){.addr = way->base + f->range[i].offset, .count = f->range[i].words, .key = way->key};
    const struct fi_msg_atomic m = {.msg_iov = &from,
                                    .desc = &e->desc,
                                    .iov_count = 1,
                                    .addr = e->peer,
                                    .rma_iov = to,
                                    .rma_iov_count = f->ranges,
                                    .datatype = FI_UINT64,
                                    .op = FI_ATOMIC_WRITE,
                                    .context = f};
    return fi_fetch_atomicmsg(e->lib.ep, &m, &found, &e->desc, 1, FI_COMPLETION);
}

/* Later verbs in flight may pass a READ, and not an addition of 0. */
static enum fi_op how_to(struct flight *f)
{
    switch (f->verb) {
    case FAB_READ:
        memset(f->buffers->operand, 0, f->words * sizeof(uint64_t));
        return f->last ? FI_ATOMIC_READ : FI_SUM;
    case FAB_FAA:
        return FI_SUM;
    case FAB_CAS:
        return FI_CSWAP;
    default: /* of a WRITE nothing is masked */
        return f->masked ? FI_MSWAP : FI_ATOMIC_WRITE;
    }
}

int ofi_end_give(struct rdma_port *p, const struct verbs_way *way, struct flight *f)
{
    struct ofi_end *e = end_of(p);
    struct flight_buffers *b = f->buffers;
    enum fi_op how = how_to(f);
    uint64_t at = way->base + f->range[0].offset;
    ssize_t rc;
    if (f->ranges > 1)
        rc = give_ranges(e, way, f);
    else if (RDMA_MISTAKE(p->mistakes, RDMA_MISTAKE_MIXED) && f->verb == FAB_READ)
        rc = fi_read(e->lib.ep, b->result, f->words * sizeof(uint64_t), e->desc, e->peer, at, way->key, f);
    else if (how == FI_CSWAP || how == FI_MSWAP)
        rc = fi_compare_atomic(e->lib.ep, b->operand, f->words, e->desc, b->compare, e->desc, b->result, e->desc, e->peer, at,
                               way->key, FI_UINT64, how, f);
    else
        rc =
            fi_fetch_atomic(e->lib.ep, b->operand, f->words, e->desc, b->result, e->desc, e->peer, at, way->key, FI_UINT64, how, f);
    return (int)rc; /* FI_EAGAIN is EAGAIN */
}

void ofi_end_push(struct rdma_port *p)
{
    (void)p; /* nothing is kept back */
}

int ofi_end_look(struct rdma_port *p, struct rdma_done *done, unsigned max)
{
    const struct ofi_end *e = end_of(p);
    struct fi_cq_entry entries[16];
    ssize_t n = fi_cq_read(e->lib.cq, entries, min_u64(max, countof(entries)));
    for (ssize_t i = 0; i < n; i++)
        done[i] = (struct rdma_done){.flight = entries[i].op_context};
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        ssize_t read = fi_cq_readerr(e->lib.cq, &error, 0);
        *done = (struct rdma_done){.flight = read > 0 ? error.op_context : NULL, .error = error.err ? error.err : FI_EIO};
        return 1;
    }
    return n == -FI_EAGAIN ? 0 : (int)n;
}
