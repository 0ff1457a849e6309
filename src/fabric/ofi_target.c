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

struct ofi_target {
    struct rdma_target_params p;
    struct ofi_port port;
    void *memory;
    uint64_t bytes;
    pthread_mutex_t *calls; /* of all calls to the provider, so that no request is being executed when a key is closed */
    pthread_t thread;
    bool started, stop;
    int bell; /* readable: the thread should stop */
    int fd;   /* readable: there are requests; -1: the provider has no such descriptor */
};

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
        pthread_mutex_lock(t->calls);
        look(t);
        bool idle = t->fd < 0 || fi_trywait(t->port.fabric, &queue, 1) == 0;
        pthread_mutex_unlock(t->calls);
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

static int open_key(void *target, const struct verbs_way *peer, void **grant, struct verbs_way *way)
{
    struct ofi_target *t = target;
    struct rlimit locked = {.rlim_cur = RLIM_INFINITY};
    struct fid_mr *mr;
    (void)peer; /* any end that has the key */
    getrlimit(RLIMIT_MEMLOCK, &locked);
    int rc = register_memory(t, &mr);
    if (rc)
        return rdma_explain_registration(rc, t->p.provider, t->bytes, locked.rlim_cur, ofi_error(rc));
    way->key = fi_mr_key(mr);
    *grant = mr;
    return 0;
}

static void close_key(void *grant)
{
    struct fid_mr *mr = grant;
    fi_close(&mr->fid);
}

/* ---- opening ---- */

static int tell_way(const struct ofi_target *t, struct verbs_way *w)
{
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

static int take_memory(void *target, void *memory, uint64_t bytes, struct verbs_way *way)
{
    struct ofi_target *t = target;
    t->memory = memory;
    t->bytes = bytes;
    way->base = t->port.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
    return 0;
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

static void stop(void *target)
{
    struct ofi_target *t = target;
    const uint64_t one = 1;
    __atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
    if (t->bell >= 0 && write(t->bell, &one, sizeof one) < 0)
        assert(errno == EAGAIN); /* it is readable already */
    if (t->started)
        pthread_join(t->thread, NULL);
    ofi_port_close(&t->port);
    if (t->bell >= 0)
        close(t->bell);
    free(t);
}

static int serve(const struct rdma_target_params *p, pthread_mutex_t *calls, void **out, struct verbs_way *way, uint32_t *caps)
{
    struct ofi_target *t = calloc(1, sizeof *t);
    if (!t)
        return explain(-ENOMEM, "out of memory");
    t->p = *p;
    t->calls = calls;
    t->bell = t->fd = -1;
    int rc = ofi_port_open(&t->port, p->provider, NULL, &p->at, true);
    if (rc == -FI_ENOSYS) /* a queue without a descriptor */
        rc = ofi_port_open(&t->port, p->provider, NULL, &p->at, false);
    if (!rc)
        rc = tell_way(t, way);
    if (!rc)
        rc = start(t);
    if (rc) {
        stop(t);
        return rc;
    }
    *caps = t->port.provider.caps;
    *out = t;
    return 0;
}

const struct rdma_kind rdma_ofi = {
    .open = ofi_end_open,
    .connect = ofi_end_connect,
    .close = ofi_end_close,
    .give = ofi_end_give,
    .push = ofi_end_push,
    .look = ofi_end_look,
    .error = ofi_error,
    .serve = serve,
    .memory = take_memory,
    .grant = open_key,
    .revoke = close_key,
    .stop = stop,
};
