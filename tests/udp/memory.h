/* SPDX-License-Identifier: Apache-2.0 */
/* A memory node on loopback for tests, in a process of its own, and sessions on it. */
#ifndef PAWL_TESTS_UDP_MEMORY_H
#define PAWL_TESTS_UDP_MEMORY_H

#include "node/memory_rdma.h"
#include "tests/udp/rack.h"

#include <stdarg.h>

#define NODE_LEASE_NS (6 * NS_PER_S) /* a busy machine may stop any process for seconds, and none shall be lost by that */

struct node_test {
    const struct design *design;
    uint16_t port; /* 0: any */
    enum pawl_keys keys;
    uint64_t capacity;
    uint32_t sessions, holds;
    uint8_t node, nodes; /* of several; 0 of 0: there is one */
    bool fresh, local;
    const char *provider; /* the memory is reached by libfabric; null: by datagrams */
    uint64_t lease_ns;    /* 0: NODE_LEASE_NS */
    uint64_t mistakes;    /* of a node under libfabric */
};

/* Written by the node. */
static struct node_board {
    uint32_t ready, port;
} * node_board;

__attribute__((format(printf, 1, 2))) static inline void node_report(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
}

static inline void node_main(void *arg)
{
    static struct memory_node m;
    static struct memory_rdma ofi;
    static struct memory_home home;
    const struct node_test *t = arg;
    const uint64_t lease_ns = t->lease_ns ? t->lease_ns : NODE_LEASE_NS;
    bool ranges = t->design->features & DESIGN_RANGES;
    const struct memory_node_params p = {
        .layout = {.design = t->design,
                   .keys = t->keys,
                   .node = t->node,
                   .nodes = t->nodes,
                   .capacity = t->capacity,
                   .sessions = t->sessions,
                   .holds = t->holds,
                   .range_units = ranges ? 1024 : 0,
                   .range_max = ranges ? 4096 : 0,
                   .lease_ns = lease_ns,
                   .check_ns = lease_ns / 8},
        .home = t->provider ? &home : NULL,
        .space = rack_space,
        .at = net_v4(RACK_LOCALHOST, t->port),
        .local = t->local,
        .fresh = t->fresh,
    };
    ofi = (struct memory_rdma){
        .provider = t->provider, .at = p.at, .clients = MEMNODE_CLIENTS_MAX, .mistakes = t->mistakes, .report = node_report};
    int rc = t->provider ? memory_rdma_home(&ofi, &home) : 0;
    if (!rc)
        rc = memory_node_open(&m, &p);
    if (rc)
        CHECK_FAIL("memory_node_open: %d (%s)", rc, pawl_explain());
    node_board->port = m.udp.at.port;
    __atomic_store_n(&node_board->ready, 1, __ATOMIC_RELEASE);
    memory_node_run(&m, &rack_stop);
}

/* Ends the test where the library of the provider is missing. */
static inline void node_need_library(const char *provider)
{
    if (strcmp(provider, RDMA_VERBS) != 0 ? !ofi_version() : !ibv_loads())
        SKIP("%s", pawl_explain());
}

/* The space is rack_space. */
static inline pid_t node_start(const struct node_test *t)
{
    if (!node_board)
        node_board = shared_memory(sizeof *node_board);
    node_board->ready = 0;
    pid_t pid = child_start(node_main, (void *)(uintptr_t)t);
    WAIT_FOR(__atomic_load_n(&node_board->ready, __ATOMIC_ACQUIRE));
    return pid;
}

/* Removes the memory that a killed node left to clients on this machine (node_test.local). */
static inline void node_remove_files(void)
{
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/dev/shm/pawl.%u.node.%s.*", (unsigned)geteuid(), rack_space);
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* `query` follows the name of the space: "" or "?memory=verbs". */
static inline void node_where(const char *query, char out[RACK_WHERE_LEN + 32])
{
    snprintf(out, RACK_WHERE_LEN + 32, "pawl://127.0.0.1:%u/%s%s", node_board->port, rack_space, query);
}

static inline pawl *node_open_at(const char *query)
{
    char where[RACK_WHERE_LEN + 32];
    pawl *p = NULL;
    node_where(query, where);
    int rc = pawl_open(where, NULL, &p);
    if (rc)
        CHECK_FAIL("pawl_open(%s): %d: %s (%s)", where, rc, pawl_strerror(rc), pawl_explain());
    return p;
}

static inline pawl *node_open(void)
{
    return node_open_at("");
}

#endif
