/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that call libibverbs: the library, devices, and queue pairs, of which both ends of a connection have one. */
#ifndef PAWL_FABRIC_IBV_LIB_H
#define PAWL_FABRIC_IBV_LIB_H

#include "fabric/rdma_port.h"

#include <infiniband/verbs.h>

/* ---- the library: its functions that are not inline ---- */

struct ibv_functions {
    struct ibv_device **(*get_device_list)(int *count);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
    int (*query_gid)(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
                     size_t size);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *memory, size_t bytes, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_comp_channel *(*create_channel)(struct ibv_context *context);
    int (*destroy_channel)(struct ibv_comp_channel *channel);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *ctx, struct ibv_comp_channel *channel, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*fork_init)(void);
};

extern struct ibv_functions ibv_lib; /* after ibv_need */

/* 0, or -ENOTSUP, explained. */
int ibv_need(void);

/* ---- a port of a device ---- */

struct ibv_dock {
    struct ibv_context *context; /* null: closed */
    struct ibv_pd *pd;
    uint8_t port, gid_index, depth; /* depth: READs and atomics in flight */
    uint16_t lid;
    enum ibv_mtu mtu;
    union ibv_gid gid;
};

/* The port with that address, or the first active one of that device, or of any InfiniBand device. Explained. */
int ibv_dock_open(struct ibv_dock *d, const char *device, struct net_addr at);
void ibv_dock_close(struct ibv_dock *d);

/* ---- queue pairs ---- */

#define IBV_INLINE_BYTES 64u /* of a WRITE that travels in its request: a hold record with its notes, and every device has it */

/* The address of a way: the other end needs it to connect. */
struct ibv_name {
    uint8_t gid[16];
    uint32_t number, first_packet;
    uint16_t lid;
    uint8_t mtu, depth;
    uint32_t unused;
    struct net_addr at; /* of the node's interface */
};
_Static_assert(sizeof(struct ibv_name) == 56 && sizeof(struct ibv_name) <= VERBS_ADDRESS_MAX, "no padding");

#define IBV_FORMAT 0x50575150u /* "PWQP": the address of a way is an ibv_name */
#define IBV_VERSION 1u         /* of this */

/* `serves`: others read and write by it; else it issues verbs. Explained. */
int ibv_queue_make(const struct ibv_dock *d, struct ibv_cq *cq, bool serves, struct ibv_qp **out);
int ibv_queue_connect(const struct ibv_dock *d, struct ibv_qp *qp, uint32_t first_packet, const struct ibv_name *peer);

void ibv_way_put(struct verbs_way *way, const struct ibv_name *name);
int ibv_way_get(const struct verbs_way *way, struct ibv_name *name); /* -EPROTO, explained */

/* A client's end, as rdma_port.h explains. */
int ibv_end_open(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers, struct rdma_port **out,
                 struct verbs_way *mine);
int ibv_end_connect(struct rdma_port *p, const struct verbs_way *way);
void ibv_end_close(struct rdma_port *p);
int ibv_end_give(struct rdma_port *p, const struct verbs_way *way, struct flight *f);
void ibv_end_push(struct rdma_port *p);
int ibv_end_look(struct rdma_port *p, struct rdma_done *done, unsigned max);
int ibv_end_arm(struct rdma_port *p);

#endif
