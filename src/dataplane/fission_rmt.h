/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* FissLock's decider on the modelled pipeline (rmt.h): the same stage functions, each with its own register array. */
#ifndef PAWL_DATAPLANE_FISSION_RMT_H
#define PAWL_DATAPLANE_FISSION_RMT_H

#include "dataplane/fission.h"
#include "dataplane/rmt.h"

/* Fig. 12 as printed: 18 bits per lock. */
extern const struct rmt_program fission_rmt_bare;

/* With terms (which suppress duplicates), 16 bits of machine and incarnation, the write-waiter and the starvation bit, and tokens.
 */
extern const struct rmt_program fission_rmt_full;

/* One pass of a packet. The policy has FISSION_BARE for the bare program. Returns the destinations. */
uint32_t fission_rmt_decide(struct rmt *rmt, const struct fission_packet *p, const struct fission_policy *policy,
                            struct fission_meta *m);

/* A datagram with several requests (wire/many.h). Each touches the same arrays, so each takes a pass of its own: the first when the
 * datagram arrives, the others when it has gone around. False: it would go around more often than a packet may. */
bool fission_rmt_decide_many(struct rmt *rmt, const struct fission_packet *p, unsigned count, const struct fission_policy *policy,
                             struct fission_meta *m, uint32_t *destinations);

#endif
