/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a rack's named or sparse space. The coordinator assigns their indexes, and may retire keys that no host uses: what a
 * process remembers is good for as long as its host has not forgotten the key (cluster/host_names.h). */
#include "client/net.h"
#include "client/rack_look.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "world/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_NS (15 * NS_PER_S)        /* for which the coordinator is asked: it may be restarting */
#define PAUSE_NS (NS_PER_MS / 4)      /* until the coordinator is asked again, if it retires keys: a round trip to the hosts; */
#define PAUSE_MAX_NS (50 * NS_PER_MS) /* then twice as long every time, up to this */

int net_check_key(const struct net *n, pawl_key key, enum pawl_mode mode)
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

/* ---- keys that were asked for lately ---- */

#define NAMES_MAX                                                                                                                  \
    8192u /* about a megabyte of a process with names of the usual length; others cost a round trip to the coordinator */
#define NO_NAME UINT32_MAX

struct known {
    char *bytes; /* null: unused */
    uint32_t len;
    uint32_t next;         /* in its bucket */
    uint32_t older, newer; /* in the order of use */
    struct host_name name;
};

struct net_names {
    uint32_t count, oldest, newest;
    uint32_t bucket[NAMES_MAX];
    struct known known[NAMES_MAX];
};

static uint32_t *bucket_of(struct net_names *m, const char *bytes, uint32_t len)
{
    return &m->bucket[hash_bytes(bytes, len, 0) % NAMES_MAX];
}

static uint32_t find_known(struct net_names *m, const char *bytes, uint32_t len)
{
    uint32_t i = m ? *bucket_of(m, bytes, len) : NO_NAME;
    while (i != NO_NAME && (m->known[i].len != len || memcmp(m->known[i].bytes, bytes, len) != 0))
        i = m->known[i].next;
    return i;
}

static void unlink_age(struct net_names *m, const struct known *k)
{
    *(k->older == NO_NAME ? &m->oldest : &m->known[k->older].newer) = k->newer;
    *(k->newer == NO_NAME ? &m->newest : &m->known[k->newer].older) = k->older;
}

static void link_newest(struct net_names *m, uint32_t i)
{
    struct known *k = &m->known[i];
    k->older = m->newest;
    k->newer = NO_NAME;
    *(m->newest == NO_NAME ? &m->oldest : &m->known[m->newest].newer) = i;
    m->newest = i;
}

/* Leaves the place unused. */
static void forget(struct net_names *m, uint32_t i)
{
    struct known *k = &m->known[i];
    uint32_t *at = bucket_of(m, k->bytes, k->len);
    while (*at != i)
        at = &m->known[*at].next;
    *at = k->next;
    unlink_age(m, k);
    free(k->bytes);
    k->bytes = NULL;
}

static struct net_names *make_names(void)
{
    struct net_names *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    memset(m->bucket, 0xff, sizeof m->bucket);
    m->oldest = m->newest = NO_NAME;
    return m;
}

/* With names_lock. A key that does not fit into memory is asked for again. */
static void remember(struct net *n, const char *bytes, uint32_t len, const struct host_name *name)
{
    if (!n->names)
        n->names = make_names();
    struct net_names *m = n->names;
    char *copy = m ? malloc(len) : NULL;
    if (!copy)
        return;
    memcpy(copy, bytes, len);
    uint32_t i = find_known(m, bytes, len);
    if (i == NO_NAME)
        i = m->count < NAMES_MAX ? m->count++ : m->oldest;
    if (m->known[i].bytes)
        forget(m, i);
    uint32_t *bucket = bucket_of(m, bytes, len);
    m->known[i] = (struct known){.bytes = copy, .len = len, .next = *bucket, .name = *name};
    *bucket = i;
    link_newest(m, i);
}

/* Whether the key is known, to this process and to its host. */
static bool remembers(struct net *n, const char *bytes, uint32_t len, struct host_name *out)
{
    const struct host_names *host = &n->host.header->names;
    pthread_mutex_lock(&n->names_lock);
    uint32_t i = find_known(n->names, bytes, len);
    bool known = i != NO_NAME;
    if (known) {
        struct known *k = &n->names->known[i];
        unlink_age(n->names, k);
        link_newest(n->names, i);
        if (unlikely(k->name.round != __atomic_load_n(&host->round, __ATOMIC_ACQUIRE))) {
            host_lock(&n->host);
            known = host_names_know(host, &k->name);
            k->name.round = known ? max_u64(k->name.round, host->round) : k->name.round;
            host_unlock(&n->host);
        }
        *out = k->name;
    }
    pthread_mutex_unlock(&n->names_lock);
    return known;
}

/* ---- asking the coordinator ---- */

static int explain_refusal(const struct host_header *h, int rc, const char *address)
{
    if (rc == -ENOSPC)
        return explain(rc, "the space '%s' has its %" PRIu64 " keys, all in use, and no room for another (--locks of 'pawl serve')",
                       h->space, h->config.locks);
    if (rc == -EAGAIN)
        return explain(rc,
                       "the space '%s' has no lock for another key: locks of keys that are not used any more become free when "
                       "every host has answered",
                       h->space);
    if (rc == -EIO)
        return explain(
            rc,
            "the coordinator at %s cannot write the new key to its log: its disk is full or fails; keys that it knows are "
            "found, and the new one when there is room",
            address);
    return explain(rc < 0 ? rc : -EPROTO, "the coordinator at %s refuses the key: %s", address,
                   pawl_strerror(rc < 0 ? rc : -EPROTO));
}

static bool is_answer(const struct net *n, const struct coord_key *a, const char *bytes, uint32_t len)
{
    uint64_t locks = n->host.design->host_grow ? PACKET_LOCKS_MAX : n->host.header->config.locks;
    return a->packet.head.index < locks && a->len == len && !memcmp(a->bytes, bytes, len);
}

/* The space may have grown, and the host not have heard of it yet. */
static void make_room(struct net *n, uint64_t index)
{
    struct outbox *out = net_outbox();
    if (index < n->host.header->config.locks)
        return;
    host_enter(&n->host, out);
    n->host.design->host_grow(n->host.memory, index + 1, out);
    host_leave(&n->host, out);
}

/* One question and its answer. -EAGAIN: to be asked again soon, with the stamp of the first answer. */
ONCE static int ask_once(struct net *n, struct coord_key *question, uint64_t until, struct host_name *out)
{
    const struct host_header *h = n->host.header;
    struct coord_key answer;
    uint64_t first = question->packet.stamp;
    coord_make(&question->packet, COORD_FIND, h->space, &h->config.identity, world_random(&world_real) | 1);
    question->packet.stamp = first;
    struct coord_list coordinators = h->coordinators;
    int rc = ask_leader(&coordinators, __atomic_load_n(&h->term, __ATOMIC_ACQUIRE), n->udp.at, &question->packet, sizeof *question,
                        COORD_FOUND, until, &answer, sizeof answer);
    if (rc)
        return rc == -EAGAIN ? -EIO : rc;
    rc = answer.packet.code;
    if (!first)
        question->packet.stamp = answer.packet.stamp;
    if (rc)
        return rc < 0 ? rc : -EPROTO;
    if (!is_answer(n, &answer, question->bytes, question->len))
        return -EPROTO;
    make_room(n, answer.packet.head.index);
    *out = (struct host_name){
        .index = answer.packet.head.index, .generation = answer.packet.head.generation, .round = answer.packet.stamp};
    host_lock(&n->host);
    bool current = host_names_current(&h->names, out->round);
    host_unlock(&n->host);
    return current ? 0 : -EAGAIN; /* it was overtaken by a round that this host has answered */
}

uint64_t net_ask_until(const struct net *n, uint64_t deadline, uint64_t now, bool *gives_up)
{
    bool try = deadline == DEADLINE_TRY || net_late(deadline, now);
    uint64_t until = now + (try ? min_u64(n->host.header->config.lease_ns, ASK_NS) : ASK_NS);
    *gives_up = deadline == DEADLINE_TRY || deadline > until; /* a caller whose deadline is later does not get a time-out */
    return *gives_up || try ? until : deadline;
}

ONCE static int ask(struct net *n, const char *bytes, uint32_t len, bool look, uint64_t deadline, struct host_name *out)
{
    const struct host_header *h = n->host.header;
    struct coord_key question;
    char address[COORD_LIST_TEXT];
    uint64_t now = world_now(&world_real);
    memset(&question, 0, sizeof question);
    question.look = look;
    question.len = len;
    memcpy(question.bytes, bytes, len);
    bool in_time;
    uint64_t until = net_ask_until(n, deadline, now, &in_time);
    coord_list_print(&h->coordinators, address);
    int rc = ask_once(n, &question, until, out);
    for (uint64_t pause = PAUSE_NS; rc == -EAGAIN && world_now(&world_real) + pause < until;
         pause = min_u64(2 * pause, PAUSE_MAX_NS)) {
        const struct timespec moment = {.tv_nsec = (long)pause};
        nanosleep(&moment, NULL);
        rc = ask_once(n, &question, until, out);
    }
    if (rc == -ETIMEDOUT)
        return explain(in_time ? -EAGAIN : rc,
                       "the coordinator at %s does not answer which lock the key has: it has stopped, or its disk is full",
                       address);
    return !rc || (rc == -ENOENT && look) ? rc : explain_refusal(h, rc, address);
}

/* The bytes by which the coordinator knows a key. */
static const char *bytes_of(const pawl_key *key, uint32_t *len)
{
    *len = key->name ? (uint32_t)key->id : (uint32_t)sizeof key->id;
    return key->name ? key->name : (const char *)&key->id;
}

int net_find_known(struct net *n, pawl_key key, enum pawl_mode mode, struct host_name *out)
{
    int rc = net_check_key(n, key, mode);
    if (rc)
        return rc;
    *out = (struct host_name){.index = key.id};
    if (likely(n->handle.keys == PAWL_KEYS_DENSE)) {
        uint64_t locks = n->host.header->config.locks;
        if (unlikely(key.id >= locks)) /* neighbours, which are often wanted together, have different locks */
            out->index = key.id % locks;
        return 0;
    }
    uint32_t len;
    const char *bytes = bytes_of(&key, &len);
    return remembers(n, bytes, len, out) ? 0 : -EINPROGRESS;
}

int net_find(struct net *n, pawl_key key, enum pawl_mode mode, bool look, uint64_t deadline, struct host_name *out)
{
    uint32_t len;
    int rc = net_find_known(n, key, mode, out);
    if (likely(rc != -EINPROGRESS))
        return rc;
    const char *bytes = bytes_of(&key, &len);
    rc = ask(n, bytes, len, look, deadline, out);
    if (rc)
        return rc;
    pthread_mutex_lock(&n->names_lock);
    remember(n, bytes, len, out);
    pthread_mutex_unlock(&n->names_lock);
    return 0;
}

ONCE int net_query(struct pawl *p, pawl_key key, pawl_state *out)
{
    struct net *n = net_of(p);
    const struct host_header *h = n->host.header;
    struct rack_look look;
    struct inspect_lock lock;
    char address[NET_ADDR_TEXT], ip[NET_ADDR_TEXT], place[2 * NET_ADDR_TEXT + COORD_NAME_LEN + 16];
    struct host_name name;
    if (net_why(p))
        return net_failed(n, -PAWL_ELOST);
    int rc = net_find(n, key, PAWL_SHARED, true, DEADLINE_NEVER, &name);
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
    rack_look_lock(&look, name.index, &lock);
    if (look.silent)
        rc = explain(-EAGAIN, "%u of %u hosts do not answer", look.silent, look.hosts);
    else
        *out = (pawl_state){.mode = lock.view.mode, .holders = lock.holders, .waiters = lock.waiters, .token = lock.view.token};
    rack_look_close(&look);
    return rc;
}

void net_names_free(struct net *n)
{
    for (uint32_t i = 0; n->names && i < n->names->count; i++)
        free(n->names->known[i].bytes);
    free(n->names);
}

/* ---- keys that are retired as soon as they are found ---- */

int net_find_again(const struct net *n, uint64_t deadline, uint64_t began)
{
    uint64_t now = world_now(&world_real), lease = n->host.header->config.lease_ns;
    bool try = deadline == DEADLINE_TRY || net_late(deadline, began);
    if (!try && net_late(deadline, now))
        return explain(-ETIMEDOUT, "the keys have lost their locks to others again and again until the deadline");
    if (now - began < lease)
        return 0;
    if (deadline == DEADLINE_TRY)
        return explain(-EAGAIN, "the keys have lost their locks to others for a lease");
    return try ? -ETIMEDOUT
               : explain(-ENOSPC, "the keys have lost their locks to others for a lease: the space has too few locks (--locks)");
}
