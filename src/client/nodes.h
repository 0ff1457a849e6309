/* SPDX-License-Identifier: Apache-2.0 */
/* A session on several memory nodes: one handle for sessions at each of them. */
#ifndef PAWL_CLIENT_NODES_H
#define PAWL_CLIENT_NODES_H

#include "client/handle.h"
#include "client/net_where.h"

struct nodes {
    struct pawl handle;
    struct net_where where; /* the nodes in their order */
    pawl_options options;   /* of sessions that are opened later */
    uint64_t capacity;      /* locks of each node */
    bool lost;              /* a session is, so this client is (I8); atomic */
    enum pawl_why why;      /* as that session told it; under the ring's lock */
    struct nodes_at {
        struct pawl *session; /* null: not used so far; atomic */
        pthread_mutex_t opening;
        /* A thread that opens the session for operations in flight. Under the ring's lock. */
        struct nodes *nodes;
        enum { OPENER_NONE, OPENER_RUNS, OPENER_DONE } opener;
        pthread_t thread;
        int opened; /* its result */
    } at[COORD_LIST_MAX];

    /* Operations in flight: each is one of a node's session. Under the ring's lock, but for the bell. */
    struct {
        unsigned node;
        uint64_t id;    /* there */
        bool early;     /* the session is being opened: the operation has not begun there */
        uint64_t until; /* for which an early one waits */
    } tasks[PAWL_INFLIGHT_MAX];
    int bell; /* readable: the library's thread should look up */
};

static inline struct nodes *nodes_of(struct pawl *p)
{
    return container_of(p, struct nodes, handle);
}

#define NODES_OPEN_NS (15 * NS_PER_S)  /* as for the first node: longer than a lease, which a node may have to wait out */
#define NODES_TRY_NS (500 * NS_PER_MS) /* for which a call that does not wait asks a node for a session */

int nodes_open(const struct net_where *w, const pawl_options *o, struct pawl **out);

/* ---- for nodes_async.c ---- */

/* The session at a node if there is one, else null. */
struct pawl *nodes_opened(const struct nodes *s, unsigned node);

/* The session at a node, opened until the deadline if need be; -PAWL_ELOST if one of the sessions is lost. Errors are explained. */
int nodes_want(struct nodes *s, unsigned node, uint64_t deadline, struct pawl **out);

/* A key's node, and the key as it is called there. -ERANGE; -PAWL_ELOST as above. */
int nodes_place(struct nodes *s, pawl_key *key, unsigned *node);

/* The session there, opened until the deadline if need be; that of a grant. */
int nodes_find(struct nodes *s, pawl_key *key, uint64_t deadline, unsigned *node, struct pawl **out);
int nodes_of_grant(const struct nodes *s, const pawl_grant *g, struct pawl **out);

/* A grant of a node's session, as the application has it. */
pawl_grant nodes_grant(unsigned node, const pawl_grant *there);

/* After a call that said so, every later call says that the client is lost. */
int nodes_told(struct nodes *s, int rc);

/* ---- nodes_async.c ---- */

int nodes_async_init(struct nodes *s);
void nodes_async_free(struct nodes *s); /* no thread opens a session any more */
int nodes_admit(struct pawl *p, const pawl_request *r, uint64_t *index);
int nodes_begin(struct pawl *p, struct async_op *op);
void nodes_pump(struct pawl *p);
void nodes_cancel(struct pawl *p, struct async_op *op);
int nodes_wait(struct pawl *p, uint64_t deadline);
void nodes_changed(struct pawl *p);
void *nodes_thread(void *arg);

#endif
