/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of libibverbs: reliable connections. Both ends learn of each other by the control wire of the memory node (ATTACH),
 * so librdmacm is not needed. */
#include "fabric/ibv_lib.h"
#include "lib/explain.h"

#include <errno.h>
#include <string.h>

#define TIMEOUT 14   /* 4.096 us << 14 = 67 ms before a packet is sent again, */
#define RETRIES 6    /* so often; 7 would be for ever with rdma_rxe */
#define RNR_TIMER 12 /* required, and without a meaning here: no queue pair receives */
#define HOPS 64

#define SERVES (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

ONCE int ibv_queue_make(const struct ibv_dock *d, struct ibv_cq *cq, bool serves, struct ibv_qp **out)
{
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = serves ? 1 : FLIGHTS,
                                            .max_recv_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = serves ? 0 : IBV_INLINE_BYTES}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = d->port, .qp_access_flags = serves ? SERVES : 0};
    struct ibv_qp *qp = ibv_lib.create_qp(d->pd, &init);
    if (!qp)
        return explain(-errno, "libibverbs cannot make a queue pair: %s", strerror(errno));
    int rc = ibv_lib.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc) {
        ibv_lib.destroy_qp(qp);
        return explain(-rc, "libibverbs cannot prepare a queue pair: %s", strerror(rc));
    }
    *out = qp;
    return 0;
}

int ibv_queue_connect(const struct ibv_dock *d, struct ibv_qp *qp, uint32_t first_packet, const struct ibv_name *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)min_u64(d->mtu, peer->mtu),
        .dest_qp_num = peer->number,
        .rq_psn = peer->first_packet,
        .max_dest_rd_atomic = (uint8_t)min_u64(d->depth, peer->depth),
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {
            .is_global = 1, .dlid = peer->lid, .port_num = d->port, .grh = {.sgid_index = d->gid_index, .hop_limit = HOPS}}};
    memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof peer->gid);
    int rc = ibv_lib.modify_qp(qp, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc)
        return explain(-rc, "libibverbs does not take the address of the other end: %s", strerror(rc));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = TIMEOUT,
                                .retry_cnt = RETRIES,
                                .rnr_retry = RETRIES,
                                .sq_psn = first_packet,
                                .max_rd_atomic = (uint8_t)min_u64(d->depth, peer->depth)};
    rc = ibv_lib.modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc ? explain(-rc, "libibverbs cannot use the connection: %s", strerror(rc)) : 0;
}

void ibv_way_put(struct verbs_way *way, const struct ibv_name *name)
{
    strcpy(way->provider, RDMA_VERBS);
    way->protocol = IBV_FORMAT;
    way->protocol_version = IBV_VERSION;
    way->address_format = IBV_FORMAT;
    way->address_len = sizeof *name;
    memcpy(way->address, name, sizeof *name);
}

int ibv_way_get(const struct verbs_way *way, struct ibv_name *name)
{
    if (way->protocol != IBV_FORMAT || way->protocol_version != IBV_VERSION || way->address_len != sizeof *name)
        return explain(-EPROTO,
                       "the other end speaks version %u of connections by libibverbs, and this one %u: the same version of pawl is "
                       "needed on both",
                       way->protocol_version, IBV_VERSION);
    memcpy(name, way->address, sizeof *name);
    return 0;
}
