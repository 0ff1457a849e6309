/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a session on a rack: the host that it belongs to, and the session itself. */
#include "client/memory.h"
#include "client/net.h"
#include "client/net_where.h"
#include "client/nodes.h"
#include "client/offered.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "wire/afxdp.h"
#include "world/world.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define OPEN_NS (15 * NS_PER_S) /* for which a coordinator is asked: longer than a lease, which it may have to wait out */
#define DEFAULT_LEASE_NS (10 * NS_PER_S)
#define SPIN_NS (50 * NS_PER_US) /* a round trip on one machine, most often */
#define OPEN_TRIES_MAX 20
#define LEFT_NS (500 * NS_PER_MS) /* for which the coordinator is asked whether it still knows the host's memory */
#define TURN_NS (5 * NS_PER_MS)   /* how often a process that waits for its turn looks */
#define SEGMENT_DIR "/dev/shm"

/* ---- the host ---- */

/* The same address in another network namespace is another host, perhaps of another coordinator: containers share SEGMENT_DIR more
 * often than the network. The kernel's cookie of a namespace is never used again. Its inode is, which is how a new namespace used
 * to find the memory of one that is gone; it is asked where the kernel has no cookies (before 5.14). 0 if it tells neither. */
static uint64_t network_namespace(int socket)
{
    struct stat st;
    uint64_t cookie;
    socklen_t len = sizeof cookie;
    if (!getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) && len == sizeof cookie)
        return cookie;
    return stat("/proc/thread-self/ns/net", &st) ? 0 : st.st_ino;
}

/* One file per host, coordinators and space. */
static void host_path(const struct net_where *w, int socket, char out[HOST_PATH_LEN])
{
    uint64_t which = hash_bytes(w->self.ip, sizeof w->self.ip, network_namespace(socket));
    uint64_t all = 0;
    for (uint32_t i = 0; i < w->coordinators.count; i++) /* in whatever order they are named */
        all += hash_bytes((const char *)&w->coordinators.at[i], sizeof w->coordinators.at[i], which);
    snprintf(out, HOST_PATH_LEN, "%s/pawl.%u.net.%s.%016" PRIx64, SEGMENT_DIR, (unsigned)geteuid(), w->space, all);
}

void net_remove_hosts(const char *space)
{
    char pattern[HOST_PATH_LEN];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/pawl.%u.net.%s.*", SEGMENT_DIR, (unsigned)geteuid(), space);
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* A host that speaks IPv4 reaches no server or switch at an IPv6 address, and the other way round. */
static int check_families(const struct net_where *w, const struct rack_welcome *welcome)
{
    const struct net_addr *other = NULL;
    bool v4 = net_addr_is_v4(&w->self);
    for (unsigned i = 0; i < RACK_SERVERS_MAX; i++)
        if (net_addr_known(welcome->servers[i]) && net_addr_is_v4(&welcome->servers[i]) != v4)
            other = &welcome->servers[i];
    for (unsigned i = 0; i < RACKS_MAX; i++)
        if (net_addr_known(welcome->said.switches[i]) && net_addr_is_v4(&welcome->said.switches[i]) != v4)
            other = &welcome->said.switches[i];
    if (!other)
        return 0;
    char address[NET_ADDR_TEXT];
    net_addr_print(*other, address);
    return explain(-EAFNOSUPPORT, "this host speaks IPv%d (its way to the coordinator), and the rack has a member at %s",
                   v4 ? 4 : 6, address);
}

static void leave_again(struct net *n, const struct join_params *j, const struct rack_welcome *welcome)
{
    struct coord_packet p;
    coord_make(&p, COORD_LEAVE, j->space, &welcome->said.config.identity, welcome->said.packet.head.nonce);
    p.head.from.machine = welcome->said.packet.head.to.machine;
    p.head.epoch = welcome->said.packet.head.generation;
    const struct udp_out out = {.to = coord_list_at(&j->coordinators),
                                .len = sizeof p,
                                .data = &p,
                                .key = seal_known(&welcome->key) ? &welcome->key : NULL};
    udp_send(&n->udp, &out, 1);
}

ONCE static int join_and_create(struct net *n, const struct net_where *w, const char *path)
{
    struct rack_welcome welcome;
    uint64_t stamp;
    struct join_params j = {.coordinators = w->coordinators, .role = COORD_HOST, .space = w->space, .deadline = w->deadline};
    char address[COORD_LIST_TEXT];
    memset(&welcome, 0, sizeof welcome);
    coord_list_print(&w->coordinators, address);
    int rc = join(&n->udp, &j, &welcome, &stamp);
    switch (rc) {
    case 0:
        break;
    case -EPROTOTYPE:
        return rc; /* there is a memory node */
    case -ETIMEDOUT:
        return explain(rc, "no coordinator answers at %s (start one with 'pawl serve')", address);
    case COORD_NOT_LEADER:
        return explain(
            -EAGAIN, "the coordinators at %s stand by, and none leads: their etcd does not answer, or one has just ended", address);
    case -EAGAIN:
        return explain(rc, "the rack at %s is not complete: a lock server or the switch is missing, or it has just started",
                       address);
    case -ENOSPC:
        return explain(rc, "the rack at %s has no room for another host", address);
    case -EUSERS:
        return explain(rc, "the rack at %s has as many hosts of this machine's address as one address may have", address);
    case COORD_WRONG_KEY:
        return explain(rc,
                       w->ring.count ? "%s: the key is not one of the rack's (--key FILE, PAWL_KEY)"
                                     : "%s: the rack takes packets with its key only (--key FILE, PAWL_KEY)",
                       address);
    case COORD_NO_KEY:
        return explain(rc,
                       "%s: the rack has no key, and this client has one (--key FILE, PAWL_KEY): its packets would not be checked",
                       address);
    case -ENOENT:
        return net_where_no_space(w->space, address);
    case -EPROTONOSUPPORT:
        return explain(rc, "packets of the space '%s' at %s have features that this build does not know", w->space, address);
    default:
        return explain(rc, "%s refuses: %s", address, pawl_strerror(rc));
    }
    if (!design_find(welcome.said.design))
        return refuse_design(welcome.said.design);
    rc = check_families(w, &welcome);
    if (!rc) {
        rc = host_create(path, &welcome, &j.coordinators, w->self, stamp);
        if (rc == -ENOSPC)
            explain(rc, "%s: there is no room for the host's memory: the file system is full", path);
        else if (rc && rc != -EEXIST)
            explain(rc, "%s: cannot make the host's memory: %s", path, pawl_strerror(rc));
    }
    if (rc)
        leave_again(n, &j, &welcome); /* the number is not used */
    return rc == -EEXIST ? 0 : rc;
}

/* One process of a host at a time joins: it binds an abstract socket, whose name is free again when the process has ended. The
 * socket, or -EADDRINUSE. */
static int take_turn(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "pawl-join-%016" PRIx64, hash_bytes(path, strlen(path), 0));
    if (!bind(fd, (struct sockaddr *)&name, sizeof name))
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* Whether the coordinator has another space of that name, or another configuration, than the one that the host has joined: the
 * space began anew, or has grown, since the host's last process was killed. A coordinator that does not answer may be away for a
 * moment: then the host goes on as it is. */
static bool is_outdated(const struct net *n, const struct net_where *w)
{
    const struct rack_identity *joined = &n->host.header->config.identity;
    struct coord_list coordinators = w->coordinators;
    struct coord_packet ask;
    struct coord_hosts answer;
    coord_make(&ask, COORD_WHO, w->space, NULL, world_random(&world_real) | 1);
    ask.head.index = 1;
    uint64_t deadline = min_u64(w->deadline, world_now(&world_real) + LEFT_NS);
    int rc = ask_leader(&coordinators, 0, w->self, &ask, sizeof ask, COORD_HOSTS, deadline, &answer, sizeof answer);
    return !rc && (!rack_same_space(joined, &answer.packet.identity) || joined->version < answer.packet.identity.version);
}

/* Opens the host's memory. One in which no process has a session is no longer used if the coordinator does not know it. */
static int open_memory(struct net *n, const struct net_where *w, const char *path, bool made)
{
    int rc = host_open(path, &n->host);
    if (!rc)
        net_use_key(n, &n->udp);
    if (rc || made || !host_is_left(&n->host) || !is_outdated(n, w))
        return rc;
    net_say_leave(n, &n->udp); /* a coordinator of another configuration does not wait for it then */
    n->udp.opens = false;
    n->udp.key = (struct seal_key){.k = {0}};
    host_retire(&n->host);
    host_close(&n->host);
    return -ESTALE;
}

/* The host's memory, made by this process if it is its turn. */
static int open_or_make(struct net *n, const struct net_where *w, const char *path, int *turn)
{
    const struct timespec moment = {.tv_nsec = TURN_NS};
    for (bool made = false;;) {
        int rc = open_memory(n, w, path, made);
        bool late = world_now(&world_real) >= w->deadline;
        if (rc != -ENOENT && rc != -ESTALE)
            return rc;
        if (*turn >= 0) {
            rc = late ? explain(-ETIMEDOUT, "%s: was removed repeatedly while opening", path) : join_and_create(n, w, path);
            if (rc)
                return rc;
            made = true;
            continue; /* open what was made, however long it took */
        }
        *turn = take_turn(path);
        if (*turn >= 0)
            continue; /* another process may have made it in between */
        if (*turn != -EADDRINUSE)
            return explain(*turn, "cannot open a socket: %s", strerror(-*turn));
        if (late)
            return explain(-EAGAIN,
                           "another process of this host is about to join, and has not done so yet: no coordinator answers, or "
                           "the rack is not complete");
        nanosleep(&moment, NULL);
    }
}

static int open_host(struct net *n, const struct net_where *w)
{
    char path[HOST_PATH_LEN];
    int turn = -EADDRINUSE;
    host_path(w, n->udp.fd, path);
    int rc = open_or_make(n, w, path, &turn);
    if (turn >= 0)
        close(turn);
    return rc;
}

/* ---- handles ---- */

/* Past the network stack if that is possible, else by a plain socket. */
static void take_fast_way(struct net *n)
{
    char why[AFXDP_WHY] = "this static program lacks it ('pkg-config --static --libs pawl' names it to the linker)";
    if (!wire_afxdp || wire_afxdp->open(n->udp.at, &n->udp.fast, why))
        fprintf(stderr, "pawl: AF_XDP is not possible here, UDP is used instead: %s\n", why);
}

static void free_net(struct net *n)
{
    if (n->poll_fd >= 0)
        close(n->poll_fd);
    udp_close(&n->udp);
    udp_close(&n->pool);
    host_close(&n->host);
    free(n->idle);
    free(n->waiting);
    free(n->owners);
    net_names_free(n);
    handle_free(&n->handle);
    free(n);
}

/* Configuration of the space; refused if the options require another one. */
static int check_requirements(struct net *n, const pawl_options *o)
{
    const struct host_header *h = n->host.header;
    assert(h);
    n->handle.design = design_find(h->design);
    n->handle.keys = h->config.keys ? (enum pawl_keys)h->config.keys : PAWL_KEYS_DENSE;
    if (o->design && strcmp(o->design, h->design))
        return explain(-EINVAL, "the space '%s' has the design '%s', not '%s'", h->space, h->design, o->design);
    if (o->keys && o->keys != n->handle.keys)
        return explain(-EINVAL, "the space '%s' has %s keys", h->space, handle_keys_name(n->handle.keys));
    if (o->capacity > h->config.locks || o->holds > h->config.requests)
        return explain(-EINVAL, "the space '%s' has %" PRIu64 " locks, and a session can hold %u", h->space, h->config.locks,
                       h->config.requests);
    if (o->tenant >= PACKET_TENANTS)
        return explain(-EINVAL, "the tenant must be between 0 and %u, not %u", PACKET_TENANTS - 1, o->tenant);
    if (o->flags & PAWL_MUST_CREATE)
        return explain(-EEXIST, "the space '%s' exists already: 'pawl serve' creates the spaces of racks", h->space);
    return 0;
}

/* The session, in a host that is open. */
static int open_session(struct net *n)
{
    const struct host_header *h = n->host.header;
    const uint32_t requests = h->config.requests;
    n->idle = calloc(requests, sizeof *n->idle);
    n->waiting = calloc(requests + PAWL_INFLIGHT_MAX, sizeof *n->waiting);
    n->owners = calloc(requests, sizeof *n->owners);
    int rc = n->idle && n->waiting && n->owners ? handle_start(&n->handle, net_thread, n) : -ENOMEM;
    if (rc == -PAWL_ELIMIT)
        explain(rc, "all %u sessions of this host are in use", h->config.sessions);
    for (uint32_t i = 0; i < requests && !rc; i++)
        n->idle[n->idle_count++] = n->session * requests + i;
    return rc;
}

static int open_socket(struct net *n, struct net_where *w)
{
    int rc = net_addr_known(w->self) ? 0 : udp_source_for(w->coordinators.at[0], &w->self);
    if (!rc)
        rc = udp_open(&n->udp, w->self);
    if (rc)
        return explain(rc, "cannot open a socket: %s", strerror(-rc));
    if (w->afxdp)
        take_fast_way(n);
    return 0;
}

static int open_once(struct net_where w, const pawl_options *o, struct pawl **out)
{
    struct net *n = calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    n->pool.fd = n->udp.fd = n->poll_fd = -1;
    n->lease_ns = o->lease_ns ? o->lease_ns : DEFAULT_LEASE_NS;
    n->spin.most_ns = SPIN_NS;
    n->tenant = o->tenant;
    n->priority = (uint8_t)min_u64(o->priority, PACKET_PRIORITIES - 1);
    n->spare = NET_NONE;
    pthread_mutex_init(&n->receiving, NULL);
    pthread_mutex_init(&n->names_lock, NULL);
    pthread_cond_init(&n->naming_wakes, NULL);
    int rc = handle_init(&n->handle, &net_ops);
    if (!rc)
        rc = open_socket(n, &w);
    if (!rc)
        rc = open_host(n, &w);
    if (!rc)
        rc = check_requirements(n, o);
    if (!rc)
        rc = open_session(n);
    if (rc) {
        free_net(n);
        return rc;
    }
    *out = &n->handle;
    return 0;
}

ONCE int net_open(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out)
{
    struct net_where w;
    int rc = net_where_parse(place, &w);
    if (rc)
        return rc;
    if (o->key)
        rc = net_where_key(&w, o->key);
    if (rc)
        return rc;
    w.deadline = world_now(&world_real) + (o->open_ns ? o->open_ns : OPEN_NS);
    rc = -ESTALE;
    for (unsigned i = 0; i < OPEN_TRIES_MAX && rc == -ESTALE; i++) /* the host's last process may be leaving just now */
        rc = open_once(w, o, out);
    if (rc != -EPROTOTYPE)
        return rc;
    if (w.coordinators.count > 1)
        return nodes_open(&w, o, out);
    w.nodes = 1;
    return memory_far_open(&w, o, out);
}

int net_close(struct pawl *p)
{
    if (!handle_is_ours(p)) /* threads, sockets and the host's memory are the parent's: a child leaves its copies alone */
        return 0;
    net_naming_end(net_of(p));
    handle_stop(p, NULL);
    free_net(net_of(p));
    return 0;
}
