/* SPDX-License-Identifier: Apache-2.0 */
/* A node's memory under libfabric: a registration for each client, whose key is the client's, and the thread that executes requests
 * of providers that leave that to the target's process. */
#include "fabric/ofi_port.h"
#include "lib/explain.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define SLEEP_MS 100  /* the longest sleep; providers wake the thread for requests, not all of them for connections */
#define COMPLETIONS 8 /* read at once; a target has none, but errors of its provider */
#define KEY_TRIES 8   /* random keys, of which one may be in use */

/* Of a client number. */
struct grant {
    struct fid_mr *mr; /* null: closed */
    uint32_t life, number;
};

struct ofi_target {
    struct ofi_target_params p;
    struct ofi_port port;
    void *memory;
    uint64_t bytes;
    struct verbs_way way;  /* of every client, but for the key */
    pthread_mutex_t mutex; /* of all calls to the provider, so that no request is being executed when a key is closed */
    pthread_t thread;
    bool started, stop;
    int bell; /* readable: the thread should stop */
    int fd;   /* readable: there are requests; -1: the provider has no such descriptor */
    struct grant *grants;
};

uint32_t ofi_target_caps(const struct ofi_target *t)
{
    return t->port.provider.caps;
}

/* ---- the thread ---- */

/* Executes requests that have come. */
static void look(struct ofi_target *t)
{
    struct fi_cq_entry entries[COMPLETIONS];
    struct fi_cq_err_entry error = {0};
    if (fi_cq_read(t->port.cq, entries, COMPLETIONS) == -FI_EAVAIL)
        fi_cq_readerr(t->port.cq, &error, 0); /* a client's connection broke: the client has the same error */
}

static void sleep_idle(const struct ofi_target *t, bool may_sleep)
{
    struct pollfd fds[] = {{.fd = t->bell, .events = POLLIN}, {.fd = t->fd, .events = POLLIN}};
    if (t->fd < 0)
        poll(fds, 1, 1);
    else if (may_sleep)
        poll(fds, 2, SLEEP_MS);
}

static void *progress(void *arg)
{
    struct ofi_target *t = arg;
    struct fid *queue = &t->port.cq->fid;
    uint64_t since = world_now(&world_real); /* when the thread was woken */
    while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&t->mutex);
        look(t);
        bool idle = t->fd < 0 || fi_trywait(t->port.fabric, &queue, 1) == 0;
        pthread_mutex_unlock(&t->mutex);
        if (!idle)
            since = world_now(&world_real);
        if (t->p.spin_ns && world_now(&world_real) - since < t->p.spin_ns)
            continue;
        sleep_idle(t, idle);
        since = world_now(&world_real);
    }
    return NULL;
}

/* ---- keys ---- */

static void close_grant(struct grant *g)
{
    if (g->mr)
        fi_close(&g->mr->fid);
    g->mr = NULL;
}

/* A key that other clients do not guess, unless the provider chooses keys. */
static int register_memory(struct ofi_target *t, struct fid_mr **out)
{
    const struct fi_domain_attr *domain = t->port.info->domain_attr;
    uint64_t mask = domain->mr_key_size >= sizeof(uint64_t) ? UINT64_MAX : (UINT64_C(1) << 8 * domain->mr_key_size) - 1;
    int rc = -FI_ENOKEY;
    for (unsigned i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++)
        rc = fi_mr_reg(t->port.domain, t->memory, t->bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, world_random(&world_real) & mask,
                       0, out, NULL);
    return rc;
}

static int open_grant(struct ofi_target *t, struct grant *g)
{
    struct rlimit locked = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_MEMLOCK, &locked);
    int rc = register_memory(t, &g->mr);
    return rc ? ofi_explain_registration(rc, t->p.provider, t->bytes, locked.rlim_cur) : 0;
}

int ofi_target_admit(struct ofi_target *t, uint32_t client, uint32_t life, uint32_t number, struct verbs_way *out)
{
    assert(client < t->p.clients);
    struct grant *g = &t->grants[client];
    pthread_mutex_lock(&t->mutex);
    bool begins = life > g->life;
    bool same = life == g->life && number == g->number && g->mr;
    int rc = begins || same || (life == g->life && number == g->number + 1 && g->mr) ? 0 : -EINVAL;
    if (!rc && !same) {
        if (OFI_MISTAKE(t->p.mistakes, OFI_MISTAKE_KEY))
            g->mr = NULL;
        close_grant(g);
        rc = open_grant(t, g);
        g->life = life;
        g->number = number;
    }
    if (!rc) {
        *out = t->way;
        out->key = fi_mr_key(g->mr);
    }
    pthread_mutex_unlock(&t->mutex);
    return rc;
}

void ofi_target_shut(struct ofi_target *t, uint32_t client)
{
    assert(client < t->p.clients);
    pthread_mutex_lock(&t->mutex);
    if (!OFI_MISTAKE(t->p.mistakes, OFI_MISTAKE_FENCE))
        close_grant(&t->grants[client]);
    pthread_mutex_unlock(&t->mutex);
}

/* ---- opening ---- */

static int tell_way(struct ofi_target *t)
{
    struct verbs_way *w = &t->way;
    const struct fi_info *info = t->port.info;
    size_t len = sizeof w->address;
    int rc = fi_getname(&t->port.ep->fid, w->address, &len);
    if (rc || len > sizeof w->address)
        return explain(rc ? rc : -ENAMETOOLONG, "the provider '%s' does not say its address: %s", t->p.provider,
                       ofi_error(rc ? rc : FI_ETOOSMALL));
    snprintf(w->provider, sizeof w->provider, "%s", t->port.provider.name);
    w->protocol = info->ep_attr->protocol;
    w->protocol_version = info->ep_attr->protocol_version;
    w->address_format = info->addr_format;
    w->address_len = (uint32_t)len;
    return 0;
}

void ofi_target_memory(struct ofi_target *t, void *memory, uint64_t bytes)
{
    t->memory = memory;
    t->bytes = bytes;
    t->way.base = t->port.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
}

static int start(struct ofi_target *t)
{
    sigset_t all, before;
    t->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->bell < 0)
        return explain(-errno, "eventfd: %s", strerror(errno));
    if (fi_control(&t->port.cq->fid, FI_GETWAIT, &t->fd))
        t->fd = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, progress, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->started = !rc;
    return rc ? explain(-rc, "cannot start the thread of the provider: %s", strerror(rc)) : 0;
}

int ofi_target_open(const struct ofi_target_params *p, struct ofi_target **out)
{
    struct ofi_target *t = calloc(1, sizeof *t);
    struct grant *grants = calloc(p->clients, sizeof *grants);
    if (!t || !grants) {
        free(t);
        free(grants);
        return explain(-ENOMEM, "out of memory for %u clients", p->clients);
    }
    t->p = *p;
    t->grants = grants;
    t->bell = t->fd = -1;
    pthread_mutex_init(&t->mutex, NULL);
    int rc = ofi_port_open(&t->port, p->provider, NULL, &p->at, true);
    if (rc == -FI_ENOSYS) /* a queue without a descriptor */
        rc = ofi_port_open(&t->port, p->provider, NULL, &p->at, false);
    if (!rc)
        rc = tell_way(t);
    if (!rc)
        rc = start(t);
    if (rc) {
        ofi_target_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void ofi_target_close(struct ofi_target *t)
{
    const uint64_t one = 1;
    if (!t)
        return;
    __atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
    if (t->bell >= 0 && write(t->bell, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
    if (t->started)
        pthread_join(t->thread, NULL);
    for (uint32_t i = 0; i < t->p.clients; i++)
        close_grant(&t->grants[i]);
    ofi_port_close(&t->port);
    if (t->bell >= 0)
        close(t->bell);
    pthread_mutex_destroy(&t->mutex);
    free(t->grants);
    free(t);
}
