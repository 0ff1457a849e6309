/* SPDX-License-Identifier: Apache-2.0 */
#include "client/far.h"
#include "client/near_path.h"
#include "client/offered.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "pawl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AGAIN_NS (20 * NS_PER_MS) /* between two questions to a node that waits */
#define ASK_NS (3 * NS_PER_S)     /* for which a place is asked what it is */

char *far_name(const struct net_where *w)
{
    char address[NET_ADDR_TEXT], *name;
    net_addr_print(w->coordinators.at[0], address);
    return asprintf(&name, "pawl://%s/%s", address, w->space) < 0 ? NULL : name;
}

static int explain_connect(int rc, const char *name)
{
    switch (rc) {
    case -ETIMEDOUT:
        return explain(rc, "the memory node of %s does not answer (is its 'pawl serve' running, and do datagrams reach it?)", name);
    case -EAGAIN:
        return explain(rc, "the memory node of %s has just started, and waits for leases from before to end", name);
    case -ENOSPC:
        return explain(-PAWL_ELIMIT, "%s: all client numbers are in use (start the node with more --sessions)", name);
    case -ENOENT:
        return explain(rc, "there is no space at %s", name);
    case -EPROTONOSUPPORT:
        return explain(rc, "the memory node of %s speaks another version of the wire; use the same release of pawl as the node",
                       name);
    default:
        return explain(rc, "%s: cannot connect: %s", name, strerror(-rc));
    }
}

int far_open(const struct net_where *w, const char *name, uint64_t process, uint64_t deadline, struct node_udp **out)
{
    const struct timespec moment = {.tv_nsec = AGAIN_NS};
    uint64_t nonce = world_random(&world_real) | 1;
    struct node_udp *u = calloc(1, sizeof *u);
    int rc = u ? node_udp_open(u, w->coordinators.at[0], w->self) : -ENOMEM;
    if (rc) {
        free(u);
        return explain(rc, "cannot open a socket: %s", strerror(-rc));
    }
    u->asker = w->coordinators.asker;
    while ((rc = fab_node_connect_near(&u->node, w->space, nonce, process, deadline)) == -EAGAIN &&
           world_now(&world_real) < deadline)
        nanosleep(&moment, NULL);
    if (rc) {
        far_close(u);
        return explain_connect(rc, name);
    }
    *out = u;
    return 0;
}

void far_close(struct node_udp *u)
{
    if (!u)
        return;
    fab_node_leave(&u->node, 0); /* of no use to one that has left already */
    node_udp_close(u);
    free(u);
}

/* The memory of a node in the kernel is a map. A process that may not ask the kernel for it uses packets. */
static int open_map(const char *path)
{
    union bpf_attr ask = {.pathname = (uintptr_t)path};
    return (int)syscall(SYS_bpf, BPF_OBJ_GET, &ask, sizeof ask);
}

void *far_map(const struct node_udp *u, const char *space)
{
    char path[NEAR_PATH];
    struct stat there;
    if (!(u->node.can & VERBS_CAN_NEAR))
        return NULL;
    near_path(space, u->node.node_life, path);
    bool is_map = !lstat(path, &there) && S_ISLNK(there.st_mode);
    int fd = is_map ? open_map(path) : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    bool whole = is_map || (!fstat(fd, &there) && (uint64_t)there.st_size == u->node.fab.size);
    void *at = whole ? mmap(NULL, u->node.fab.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

void far_near(struct fab_near *n, const struct fab_near_way *way, const struct space *s)
{
    fab_near_init(n, way, s->slots, space_slot_addr(s, s->slot_count));
    if (s->design->node_tends)
        n->ep.node = FAB_NODE(s->locks);
}

int far_attach(struct fab_ep *ep, const char *name, struct layout_header *out)
{
    union {
        struct layout_header header;
        uint64_t words[round_up(sizeof(struct layout_header), 8) / 8];
    } first;
    int rc = fab_read(ep, 0, first.words, sizeof first.words);
    if (rc)
        return explain_connect(rc == -FAB_EUNKNOWN ? -ETIMEDOUT : -EPROTO, name);
    const struct layout_header *h = &first.header;
    const char *fault = layout_fault(h, ep->size);
    char design[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(design, h->design, LAYOUT_DESIGN_LEN);
    if (fault && !design_find(design) && design_is_offered(design))
        return refuse_design(design);
    if (fault)
        return explain(-PAWL_ESEGMENT, "%s: %s", name, fault);
    rc = layout_adopt(h, ep);
    if (!rc)
        *out = *h;
    return rc;
}

int far_check_place(const struct net_where *w, const char *name, const struct layout_header *h)
{
    uint32_t nodes = h->nodes ? h->nodes : 1;
    if (nodes == w->nodes && h->node == w->node)
        return 0;
    return explain(-EINVAL,
                   "%s is memory node %u of %u of its space, and the place names it as %u of %u; name all nodes in their order, "
                   "as in pawl://A,B:PORT/SPACE",
                   name, h->node + 1u, nodes, w->node + 1, w->nodes);
}

int far_is_node(const char *place, bool *is_node)
{
    struct net_where w;
    struct coord_packet ask;
    struct coord_hosts answer;
    char address[COORD_LIST_TEXT];
    int rc = net_where_parse(place, &w);
    if (!rc && !net_addr_known(w.self) && udp_source_for(w.coordinators.at[0], &w.self))
        rc = explain(-EINVAL, "no route to pawl://%s", place);
    if (rc)
        return rc;
    coord_make(&ask, COORD_WHO, w.space, NULL, world_random(&world_real) | 1);
    ask.head.index = 1;
    rc = ask_leader(&w.coordinators, 0, w.self, &ask, sizeof ask, COORD_HOSTS, world_now(&world_real) + ASK_NS, &answer,
                    sizeof answer);
    coord_list_print(&w.coordinators, address);
    if (rc == -ENOENT)
        return net_where_no_space(w.space, address);
    if (rc == -ETIMEDOUT)
        return explain(rc, "no coordinator of '%s' answers at %s (start one with 'pawl serve')", w.space, address);
    if (rc && rc != -EPROTOTYPE)
        return explain(rc, "cannot ask %s: %s", address, strerror(-rc));
    *is_node = rc;
    return 0;
}
