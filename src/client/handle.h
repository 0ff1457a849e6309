/* SPDX-License-Identifier: Apache-2.0 */
/* What a pawl handle is inside. */
#ifndef PAWL_CLIENT_HANDLE_H
#define PAWL_CLIENT_HANDLE_H

#include "client/async.h"
#include "client/fast.h"
#include "client/net.h"
#include "client/segment.h"

struct pawl {
    struct fast *fast;
    struct net *net; /* a session over packets: then nothing of what follows is used */
    struct locker locker;
    struct fab_ep ep;
    struct space space;
    struct session session;
    uint64_t lease_ns;
    struct segment *segment;
    struct async async;
    pthread_t thread; /* opens the session, renews it, looks after the dead, closes it */
    bool stop;
    /* How opening ended, told by the thread to whoever opens. */
    pthread_mutex_t started_lock;
    pthread_cond_t started_cond;
    bool started;
    int start_result, close_result;
};

/* As pawl_open, for benchmarks and tests. A segment that it makes has these knobs; null: the design's usual ones. */
int pawl_open_tuned(const char *where, const pawl_options *options, const struct knobs *knobs, pawl **out);

/* -PAWL_EFORKED in a child of the process that opened it. */
static inline bool handle_is_ours(const struct pawl *p)
{
    return likely(p->fast->alive == FAST_ALIVE);
}

#endif
