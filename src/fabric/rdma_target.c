/* SPDX-License-Identifier: Apache-2.0 */
/* A node's memory: a key for each client, which is the client's alone. */
#include "fabric/rdma_port.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of a client number. */
struct grant {
    void *key; /* null: closed */
    uint32_t life, number;
    struct verbs_way way;
};

struct rdma_target {
    struct rdma_target_params p;
    const struct rdma_kind *kind;
    void *served;
    uint32_t caps;
    struct verbs_way way;  /* of every client, but for its key */
    pthread_mutex_t mutex; /* of all calls to the library, so that no verb is being executed when a key is closed */
    struct grant *grants;
};

const struct rdma_kind *rdma_kind_of(const char *provider)
{
    return strcmp(provider, RDMA_VERBS) != 0 ? &rdma_ofi : &rdma_verbs;
}

int rdma_explain_registration(int rc, const char *provider, uint64_t bytes, uint64_t limit, const char *why)
{
    if ((rc == -ENOMEM || rc == -EPERM || rc == -EAGAIN) && limit < bytes)
        return explain(-ENOMEM,
                       "%s: cannot register %" PRIu64 " KiB of lock memory for a client: %" PRIu64
                       " KiB may be locked; 'ulimit -l unlimited' in the shell that starts it raises the limit, or "
                       "LimitMEMLOCK=infinity in its systemd unit",
                       provider, bytes >> 10, limit >> 10);
    return explain(rc, "%s: cannot register %" PRIu64 " KiB of lock memory: %s", provider, bytes >> 10, why);
}

uint32_t rdma_target_caps(const struct rdma_target *t)
{
    return t->caps;
}

/* ---- keys ---- */

static void close_grant(const struct rdma_target *t, struct grant *g)
{
    if (g->key)
        t->kind->revoke(g->key);
    g->key = NULL;
}

int rdma_target_admit(struct rdma_target *t, uint32_t client, uint32_t life, uint32_t number, struct verbs_way *way)
{
    assert(client < t->p.clients);
    struct grant *g = &t->grants[client];
    pthread_mutex_lock(&t->mutex);
    bool begins = life > g->life;
    bool same = life == g->life && number == g->number && g->key;
    int rc = begins || same || (life == g->life && number == g->number + 1 && g->key) ? 0 : -EINVAL;
    if (!rc && !same) {
        if (RDMA_MISTAKE(t->p.mistakes, RDMA_MISTAKE_KEY))
            g->key = NULL;
        close_grant(t, g);
        g->way = t->way;
        rc = t->kind->grant(t->served, way, &g->key, &g->way);
        g->life = life;
        g->number = number;
    }
    if (!rc)
        *way = g->way;
    pthread_mutex_unlock(&t->mutex);
    return rc;
}

void rdma_target_shut(struct rdma_target *t, uint32_t client)
{
    assert(client < t->p.clients);
    pthread_mutex_lock(&t->mutex);
    if (!RDMA_MISTAKE(t->p.mistakes, RDMA_MISTAKE_FENCE))
        close_grant(t, &t->grants[client]);
    pthread_mutex_unlock(&t->mutex);
}

/* ---- opening ---- */

int rdma_target_memory(struct rdma_target *t, void *memory, uint64_t bytes)
{
    return t->kind->memory(t->served, memory, bytes, &t->way);
}

int rdma_target_open(const struct rdma_target_params *p, struct rdma_target **out)
{
    struct rdma_target *t = calloc(1, sizeof *t);
    struct grant *grants = calloc(p->clients, sizeof *grants);
    if (!t || !grants) {
        free(t);
        free(grants);
        return explain(-ENOMEM, "out of memory for %u clients", p->clients);
    }
    *t = (struct rdma_target){.p = *p, .kind = rdma_kind_of(p->provider), .grants = grants};
    pthread_mutex_init(&t->mutex, NULL);
    int rc = t->kind->serve(p, &t->mutex, &t->served, &t->way, &t->caps);
    if (rc) {
        rdma_target_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void rdma_target_close(struct rdma_target *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->p.clients; i++)
        close_grant(t, &t->grants[i]);
    if (t->served)
        t->kind->stop(t->served);
    pthread_mutex_destroy(&t->mutex);
    free(t->grants);
    free(t);
}
