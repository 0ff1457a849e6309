/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that call libfabric: the library, and one endpoint of it with its queue and registered buffers. */
#ifndef PAWL_FABRIC_OFI_PORT_H
#define PAWL_FABRIC_OFI_PORT_H

#include "fabric/rdma_port.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define OFI_VERSION FI_VERSION(1, 17)

struct ofi_port {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct ofi_provider provider;
    unsigned ranges; /* that one atomic may have, all of them executed at once */
};

/* One end. `way`: the other end that it will reach, null: none; `at`: the interface that others will reach; of both one. `sleeps`:
 * its queue has a descriptor to wait for. Explained. */
int ofi_port_open(struct ofi_port *p, const char *provider, const struct verbs_way *way, const struct net_addr *at, bool sleeps);

/* Another end of the same kind: the provider need not be found again, which takes a tenth of a second. */
int ofi_port_again(struct ofi_port *p, const struct ofi_port *like);
void ofi_port_close(struct ofi_port *p);

/* A client's end, as rdma_port.h explains. */
int ofi_end_open(const struct verbs_way *way, const struct rdma_port *like, struct flight_buffers *buffers, struct rdma_port **out,
                 struct verbs_way *mine);
int ofi_end_connect(struct rdma_port *p, const struct verbs_way *way);
void ofi_end_close(struct rdma_port *p);
int ofi_end_give(struct rdma_port *p, const struct verbs_way *way, struct flight *f);
void ofi_end_push(struct rdma_port *p);
int ofi_end_look(struct rdma_port *p, struct rdma_done *done, unsigned max);

/* Libfabric's words for an error code of its own, positive or negative. */
const char *ofi_error(int code);

#endif
