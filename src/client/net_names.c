/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a rack's named or sparse space. The coordinator assigns their indexes, once and for all. */
#include "client/net.h"
#include "client/rack_look.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_NS (15 * NS_PER_S) /* for which the coordinator is asked: it may be restarting */

static int check(const struct net *n, pawl_key key, enum pawl_mode mode)
{
    const struct rack_config *c = &n->host.header->config;
    uint64_t keys = c->locks * (c->group ? c->group : 1);
    bool named = n->handle.keys == PAWL_KEYS_NAMED;
    if (mode != PAWL_SHARED && mode != PAWL_EXCLUSIVE)
        return explain(-EINVAL, "the mode must be shared or exclusive");
    if (named != !!key.name)
        return explain(-EINVAL, "this space has %s keys", handle_keys_name(n->handle.keys));
    if (named && key.id > PAWL_NAME_MAX)
        return explain(-ENAMETOOLONG, "the name has %" PRIu64 " bytes, more than %d", key.id, PAWL_NAME_MAX);
    if (named && !key.id)
        return explain(-EINVAL, "a name has 1 to %d bytes", PAWL_NAME_MAX);
    if (n->handle.keys == PAWL_KEYS_DENSE && key.id >= keys)
        return explain(-ERANGE, "the key %" PRIu64 " is not below the space's %" PRIu64 " %s", key.id, keys,
                       keys == c->locks ? "locks" : "keys");
    return 0;
}

static int ask(struct net *n, const char *bytes, uint32_t len, bool look, uint64_t deadline, uint64_t *index)
{
    const struct host_header *h = n->host.header;
    struct coord_key question, answer;
    char address[COORD_LIST_TEXT];
    struct coord_list coordinators = h->coordinators;
    uint64_t now = world_now(&world_real);
    memset(&question, 0, sizeof question);
    coord_make(&question.packet, COORD_FIND, h->space, &h->config.identity, world_random(&world_real) | 1);
    question.look = look;
    question.len = len;
    memcpy(question.bytes, bytes, len);
    uint64_t until = now + (deadline == DEADLINE_TRY ? min_u64(h->config.lease_ns, ASK_NS) : ASK_NS);
    bool in_time = deadline == DEADLINE_TRY || deadline > until; /* a caller whose deadline is later does not get a time-out */
    until = in_time ? until : deadline;
    coord_list_print(&coordinators, address);
    int rc = ask_leader(&coordinators, __atomic_load_n(&h->term, __ATOMIC_ACQUIRE), n->udp.at, &question.packet, sizeof question,
                        COORD_FOUND, until, &answer, sizeof answer);
    if (rc == -ETIMEDOUT)
        return explain(in_time ? -EAGAIN : rc,
                       "the coordinator at %s does not answer which lock the key has: it has stopped, or its disk is full",
                       address);
    if (rc)
        return explain(rc, "cannot ask %s: %s", address, strerror(-rc));
    rc = answer.packet.code;
    if (rc == -ENOSPC)
        return explain(rc, "the space '%s' has its %" PRIu64 " keys, and no room for another (--locks of 'pawl serve')", h->space,
                       h->config.locks);
    if (!rc && (answer.packet.head.index >= h->config.locks || answer.len != len || memcmp(answer.bytes, bytes, len)))
        rc = -EPROTO;
    if (rc == -ENOENT && look)
        return rc;
    if (rc)
        return explain(rc < 0 ? rc : -EPROTO, "the coordinator at %s refuses the key: %s", address,
                       pawl_strerror(rc < 0 ? rc : -EPROTO));
    *index = answer.packet.head.index;
    return 0;
}

/* With names_lock. A key that does not fit into memory is asked for again. */
static void remember(struct net *n, const char *bytes, uint32_t len, uint64_t index)
{
    uint64_t order;
    if (n->names.count == n->indexes_room) {
        uint64_t room = n->indexes_room ? 2 * n->indexes_room : 256, *indexes = realloc(n->indexes, room * sizeof *indexes);
        if (!indexes)
            return;
        n->indexes = indexes;
        n->indexes_room = room;
    }
    if (!n->names.locks) /* the directory counts keys here, and does not assign indexes */
        n->names = (struct directory){.keys = n->handle.keys, .locks = UINT64_MAX, .step = 1, .unstep = 1};
    if (!directory_add(&n->names, bytes, len, &order))
        n->indexes[order] = index;
}

static bool remembers(struct net *n, const char *bytes, uint32_t len, uint64_t *index)
{
    uint64_t order;
    if (!n->names.count || directory_find(&n->names, bytes, len, &order))
        return false;
    *index = n->indexes[order];
    return true;
}

int net_index(struct net *n, pawl_key key, enum pawl_mode mode, bool look, uint64_t deadline, uint64_t *index)
{
    int rc = check(n, key, mode);
    if (rc)
        return rc;
    *index = key.id;
    if (likely(n->handle.keys == PAWL_KEYS_DENSE)) {
        uint64_t locks = n->host.header->config.locks;
        if (unlikely(key.id >= locks)) /* neighbours, which are often wanted together, have different locks */
            *index = key.id % locks;
        return 0;
    }
    const char *bytes = key.name ? key.name : (const char *)&key.id;
    uint32_t len = key.name ? (uint32_t)key.id : (uint32_t)sizeof key.id;
    pthread_mutex_lock(&n->names_lock);
    bool known = remembers(n, bytes, len, index);
    pthread_mutex_unlock(&n->names_lock);
    if (known)
        return 0;
    rc = ask(n, bytes, len, look, deadline, index);
    if (rc)
        return rc;
    pthread_mutex_lock(&n->names_lock);
    remember(n, bytes, len, *index);
    pthread_mutex_unlock(&n->names_lock);
    return 0;
}

int net_query(struct pawl *p, pawl_key key, pawl_state *out)
{
    struct net *n = net_of(p);
    const struct host_header *h = n->host.header;
    struct rack_look look;
    struct inspect_lock lock;
    char address[NET_ADDR_TEXT], ip[NET_ADDR_TEXT], place[2 * NET_ADDR_TEXT + COORD_NAME_LEN + 16];
    uint64_t index;
    int rc = net_index(n, key, PAWL_SHARED, true, DEADLINE_NEVER, &index);
    if (rc && rc != -ENOENT)
        return rc;
    if (rc) { /* no client ever asked for it */
        *out = (pawl_state){0};
        return 0;
    }
    net_addr_print(coord_list_at(&h->coordinators), address);
    net_addr_print_ip(n->udp.at, ip);
    snprintf(place, sizeof place, "%s/%s?host=%s", address, h->space, ip);
    rc = rack_look_open(place, &look);
    if (rc)
        return rc;
    rack_look_lock(&look, index, &lock);
    if (look.silent)
        rc = explain(-EAGAIN, "%u of %u hosts do not answer", look.silent, look.hosts);
    else
        *out = (pawl_state){.mode = lock.view.mode, .holders = lock.holders, .waiters = lock.waiters, .token = lock.view.token};
    rack_look_close(&look);
    return rc;
}

void net_names_free(struct net *n)
{
    directory_free(&n->names);
    free(n->indexes);
}
