/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that one thread has received for another: a bounded queue. A packet that does not fit is lost, as in a socket's buffer.
 */
#ifndef PAWL_NODE_MAILBOX_H
#define PAWL_NODE_MAILBOX_H

#include "wire/udp.h"

#include <pthread.h>

#define MAILBOX_PACKETS 256u /* eight batches: as many as a coordinator answers with one sync of its log, and as many again */

struct mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    uint64_t put, taken; /* packets, ever: put - taken are in it */
    uint64_t lost;
    struct {
        struct net_addr from;
        struct seal_key key; /* as in a batch */
        uint32_t len;
        _Alignas(8) uint8_t data[PACKET_MAX];
    } packet[MAILBOX_PACKETS];
};

/* 0, or a negative code. */
int mailbox_init(struct mailbox *m);
void mailbox_destroy(struct mailbox *m);

void mailbox_put(struct mailbox *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key);

/* Waits for packets until the deadline (CLOCK_MONOTONIC; 0: does not wait), and hands out up to UDP_BATCH of them. How many. */
unsigned mailbox_wait(struct mailbox *m, struct udp_batch *batch, uint64_t deadline);

void mailbox_count(struct mailbox *m, uint64_t *waiting, uint64_t *lost);

#endif
