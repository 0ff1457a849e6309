/* SPDX-License-Identifier: Apache-2.0 */
#include "node/mailbox.h"
#include "world/world.h"

int mailbox_init(struct mailbox *m)
{
    pthread_condattr_t clock;
    int rc = pthread_condattr_init(&clock);
    if (rc)
        return -rc;
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&m->arrived, &clock);
    pthread_condattr_destroy(&clock);
    return rc ? -rc : -pthread_mutex_init(&m->mutex, NULL);
}

void mailbox_destroy(struct mailbox *m)
{
    pthread_cond_destroy(&m->arrived);
    pthread_mutex_destroy(&m->mutex);
}

void mailbox_put(struct mailbox *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *key)
{
    if (len > PACKET_MAX)
        return;
    pthread_mutex_lock(&m->mutex);
    if (m->put - m->taken < MAILBOX_PACKETS) {
        unsigned i = m->put++ % MAILBOX_PACKETS;
        m->packet[i].from = from;
        m->packet[i].key = *key;
        m->packet[i].len = len;
        memcpy(m->packet[i].data, data, len);
        if (m->put - m->taken == 1)
            pthread_cond_signal(&m->arrived);
    } else {
        m->lost++;
    }
    pthread_mutex_unlock(&m->mutex);
}

unsigned mailbox_wait(struct mailbox *m, struct udp_batch *batch, uint64_t deadline)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline / NS_PER_S), .tv_nsec = (long)(deadline % NS_PER_S)};
    bool late = !deadline;
    batch->count = 0;
    pthread_mutex_lock(&m->mutex);
    while (m->put == m->taken && !late)
        late = pthread_cond_timedwait(&m->arrived, &m->mutex, &until) != 0;
    while (m->put != m->taken && batch->count < UDP_BATCH) {
        unsigned i = m->taken++ % MAILBOX_PACKETS, to = batch->count++;
        batch->packet[to].from = m->packet[i].from;
        batch->packet[to].key = m->packet[i].key;
        batch->packet[to].len = m->packet[i].len;
        memcpy(batch->packet[to].data, m->packet[i].data, m->packet[i].len);
    }
    pthread_mutex_unlock(&m->mutex);
    return batch->count;
}

void mailbox_count(struct mailbox *m, uint64_t *waiting, uint64_t *lost)
{
    pthread_mutex_lock(&m->mutex);
    *waiting = m->put - m->taken;
    *lost = m->lost;
    pthread_mutex_unlock(&m->mutex);
}
