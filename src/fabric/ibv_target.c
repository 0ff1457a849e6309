/* SPDX-License-Identifier: Apache-2.0 */
/* A node's memory under libibverbs: registered once, and a queue pair for each client, which is the client's key. The card executes
 * verbs; the process has no part in them. */
#include "fabric/ibv_lib.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct ibv_target {
    struct ibv_dock dock;
    struct net_addr at;
    struct ibv_cq *cq; /* required, and always empty */
    struct ibv_mr *mr;
};

/* A client that was told of the node, and has no queue pair yet. */
static char no_queue;

static void stop(void *target)
{
    struct ibv_target *t = target;
    if (t->mr)
        ibv_lib.dereg_mr(t->mr);
    if (t->cq)
        ibv_lib.destroy_cq(t->cq);
    ibv_dock_close(&t->dock);
    free(t);
}

static struct ibv_name name_of(const struct ibv_target *t)
{
    struct ibv_name name = {.lid = t->dock.lid, .mtu = (uint8_t)t->dock.mtu, .depth = t->dock.depth, .at = t->at};
    memcpy(name.gid, t->dock.gid.raw, sizeof name.gid);
    return name;
}

static int serve(const struct rdma_target_params *p, pthread_mutex_t *calls, void **out, struct verbs_way *way, uint32_t *caps)
{
    struct ibv_target *t = calloc(1, sizeof *t);
    (void)calls; /* no thread executes verbs */
    if (!t)
        return explain(-ENOMEM, "out of memory");
    t->at = p->at;
    int rc = ibv_dock_open(&t->dock, p->device, p->at);
    if (!rc) {
        t->cq = ibv_lib.create_cq(t->dock.context, 1, NULL, NULL, 0);
        rc = t->cq ? 0 : explain(-errno, "libibverbs cannot make a completion queue: %s", strerror(errno));
    }
    if (rc) {
        stop(t);
        return rc;
    }
    const struct ibv_name name = name_of(t);
    ibv_way_put(way, &name);
    *caps = IBV_CAPS;
    *out = t;
    return 0;
}

static int take_memory(void *target, void *memory, uint64_t bytes, struct verbs_way *way)
{
    struct ibv_target *t = target;
    struct rlimit locked = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_MEMLOCK, &locked);
    t->mr = ibv_lib.reg_mr(t->dock.pd, memory, bytes,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (!t->mr)
        return rdma_explain_registration(-errno, RDMA_VERBS, bytes, locked.rlim_cur, strerror(errno));
    way->base = (uint64_t)(uintptr_t)memory;
    way->key = t->mr->rkey;
    return 0;
}

/* A queue pair that is connected to the client's. The first question of a client has none: it learns by which device to come. */
static int open_queue(void *target, const struct verbs_way *peer, void **grant, struct verbs_way *way)
{
    struct ibv_target *t = target;
    struct ibv_name theirs, mine = name_of(t);
    struct ibv_qp *qp;
    if (!peer->address_len) {
        *grant = &no_queue;
        return 0;
    }
    int rc = ibv_way_get(peer, &theirs);
    if (!rc)
        rc = ibv_queue_make(&t->dock, t->cq, true, &qp);
    if (rc)
        return rc;
    mine.number = qp->qp_num;
    mine.first_packet = (uint32_t)world_random(&world_real) & 0xffffff;
    rc = ibv_queue_connect(&t->dock, qp, mine.first_packet, &theirs);
    if (rc) {
        ibv_lib.destroy_qp(qp);
        return rc;
    }
    ibv_way_put(way, &mine);
    *grant = qp;
    return 0;
}

static void close_queue(void *grant)
{
    if (grant != &no_queue && ibv_lib.destroy_qp(grant))
        abort(); /* a fence that is none must not be answered; the end of the process is one */
}

static const char *in_words(int code)
{
    return strerror(code);
}

const struct rdma_kind rdma_verbs = {
    .exchanges = true,
    .tells_loss = true,
    .open = ibv_end_open,
    .connect = ibv_end_connect,
    .close = ibv_end_close,
    .give = ibv_end_give,
    .push = ibv_end_push,
    .look = ibv_end_look,
    .arm = ibv_end_arm,
    .error = in_words,
    .serve = serve,
    .memory = take_memory,
    .grant = open_queue,
    .revoke = close_queue,
    .stop = stop,
};
