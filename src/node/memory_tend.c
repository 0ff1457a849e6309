/* SPDX-License-Identifier: Apache-2.0 */
#include "node/memory_tend.h"
#include "lib/explain.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUND_NS (500 * NS_PER_MS)   /* how often it looks after sessions, at most */
#define CONNECT_NS (250 * NS_PER_MS) /* for which it asks at a time: its node may wait for leases of a former life */

static void disconnect(struct memory_tend *t)
{
    far_close(t->far);
    t->far = NULL;
}

static int connect_itself(struct memory_tend *t)
{
    int rc = far_open(&t->at, t->at.space, 0, world_now(&world_real) + CONNECT_NS, &t->far);
    if (rc)
        return rc;
    assert(t->far);
    t->far->node.fab.caps = t->care->header.caps;
    const struct fab_near_way way = {.far = &t->far->node.fab, .dead = &t->far->node.dead, .base = t->memory};
    far_near(&t->near, &way, &t->care->space);
    t->care->seat.ep = &t->near.ep;
    return 0;
}

/* False: it was told to stop. */
static bool pause_until(struct memory_tend *t, uint64_t until)
{
    const struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S)};
    int rc = 0;
    pthread_mutex_lock(&t->mutex);
    while (!t->stop && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&t->told, &t->mutex, &at);
    bool go_on = !t->stop;
    pthread_mutex_unlock(&t->mutex);
    return go_on;
}

/* An error of one round may be gone in the next; a client that was fenced connects anew. */
static void *rounds(void *arg)
{
    struct memory_tend *t = arg;
    do {
        int rc = t->far ? 0 : connect_itself(t);
        if (!rc)
            rc = care_tend(t->care);
        if (rc && t->far && t->far->node.dead)
            disconnect(t);
    } while (pause_until(t, world_now(&world_real) + care_pause_ns(t->care, ROUND_NS)));
    disconnect(t);
    return NULL;
}

/* The seat as care_begin makes it, without formatting: the memory may be an earlier process's. */
static void take_seat(struct memory_tend *t)
{
    struct care *c = t->care;
    layout_space(&c->header, 0, &c->space);
    c->none = (struct session){.slot = UINT32_MAX, .seen = t->seen};
    c->none.lease = &c->none.lease_copy;
    c->seat = (struct seat){.space = &c->space, .me = &c->none, .world = &world_real};
}

int memory_tend_start(struct memory_tend *t, const char *space, struct net_addr node, void *memory, struct care *care)
{
    pthread_condattr_t monotonic;
    *t = (struct memory_tend){.memory = memory, .care = care};
    t->at.coordinators = coord_list_one(net_addr_known(node) ? node : net_v4(INADDR_LOOPBACK, node.port));
    snprintf(t->at.space, sizeof t->at.space, "%s", space);
    t->seen = calloc(care->header.slot_count, sizeof *t->seen);
    if (!t->seen)
        return explain(-ENOMEM, "out of memory for %u sessions", care->header.slot_count);
    take_seat(t);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->told, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&t->mutex, NULL);
    int rc = pthread_create(&t->thread, NULL, rounds, t);
    if (!rc)
        return 0;
    free(t->seen);
    t->seen = NULL;
    return explain(-rc, "cannot start a thread: %s", strerror(rc));
}

void memory_tend_stop(struct memory_tend *t)
{
    if (!t->seen)
        return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->told);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->told);
    pthread_mutex_destroy(&t->mutex);
    free(t->seen);
    t->seen = NULL;
}
