/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of packets at a coordinator (wire/seal.h). Free of I/O. A coordinator needs no list of hosts to check a host's tag: number
 * and life are in the packet, and the key follows from them and the cluster's. So hosts keep their keys while coordinators are
 * gone. */
#ifndef PAWL_CLUSTER_SEALS_H
#define PAWL_CLUSTER_SEALS_H

#include "cluster/coordinator.h"

/* Opens a packet for a coordinator. *used: the key, by which its answer is tagged. */
bool seals_open(const struct seal_ring *ring, void *data, uint32_t len, struct seal_key *used);

/* Puts the host's key into the WELCOME that answers a JOIN which was opened with that key. Other answers stay as they are. */
void seals_hand_out(const struct seal_ring *ring, const struct seal_key *used, const void *ask, void *answer);

/* The key of a packet that a coordinator sends to a host by itself, made with that key of the ring. */
struct seal_key seals_for_host(const struct seal_ring *ring, unsigned which, const void *packet);

/* Whether an open packet may be obeyed: it is no command that changes something, there is no admin key, or it has the proof.
 * Commands of other senders than holders of the cluster's key are refused by the coordinator. */
bool seals_admit(const struct seal_ring *ring, const void *data, uint32_t len);

/* The answer to a question with a wrong tag, or with one where there is no key, without a tag. Its length; 0: none. */
uint32_t seals_refuse(const void *data, uint32_t len, int code, struct coord_packet *answer);

#endif
