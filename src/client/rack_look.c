/* SPDX-License-Identifier: Apache-2.0 */
#include "client/rack_look.h"
#include "cluster/join.h"
#include "lib/explain.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_NS (3 * NS_PER_S)     /* for which the coordinator is asked */
#define HOST_NS (300 * NS_PER_MS) /* and each host: one that is gone stays in the list until its lease ends */

/* ---- asking ---- */

static int ask_coordinator(const struct rack_look *l, struct coord_packet *ask, uint32_t len, enum coord_type type, void *answer,
                           uint32_t answer_len)
{
    char address[COORD_LIST_TEXT];
    struct coord_list coordinators = l->where.coordinators;
    coord_list_print(&coordinators, address);
    int rc = ask_leader(&coordinators, 0, l->where.self, ask, len, type, world_now(&world_real) + ASK_NS, answer, answer_len);
    if (rc == -ENOENT)
        return net_where_no_space(l->where.space, address);
    if (rc == -ETIMEDOUT)
        return explain(rc, "no coordinator of '%s' answers at %s (start one with 'pawl serve')", l->where.space, address);
    if (rc == COORD_WRONG_KEY || rc == COORD_NO_KEY)
        return explain(rc,
                       rc == COORD_NO_KEY ? "%s: the rack has no key, and this program has one (--key, PAWL_KEY)"
                                          : "%s: the rack takes packets with its key only (--key FILE, PAWL_KEY)",
                       address);
    if (rc == -EPROTOTYPE)
        return explain(-PAWL_ENOTSUP, "'%s' at %s is a memory node, which has no coordinator", l->where.space, address);
    return rc ? explain(rc, "cannot ask %s: %s", address, strerror(-rc)) : 0;
}

static int add(struct rack_look *l, const struct coord_claim *claim, const struct coord_host *h)
{
    if (l->count == l->room) {
        uint64_t room = l->room ? 2 * l->room : 64;
        struct rack_claim *claims = realloc(l->claims, room * sizeof *claims);
        if (!claims)
            return -ENOMEM;
        l->claims = claims;
        l->room = room;
    }
    l->claims[l->count] = (struct rack_claim){.claim = *claim, .machine = h->machine, .life = h->life, .at = h->at};
    l->claims[l->count++].claim.label[COORD_LABEL_LEN - 1] = 0;
    return 0;
}

/* Asks a host by the host's own key, which follows from the cluster's. While that is being changed, the host has one of two. */
static int ask_at(const struct rack_look *l, struct net_addr at, uint32_t life, const struct coord_packet *ask,
                  enum coord_type type, uint64_t patience, void *answer, uint32_t answer_len)
{
    const struct seal_ring *r = &l->where.ring;
    int rc = -ETIMEDOUT;
    assert(!r->number);
    for (unsigned i = 0; i < max_u64(r->count, 1) && rc == -ETIMEDOUT; i++) {
        struct seal_asker asker = {.number = 0};
        if (r->count)
            asker.key = seal_host_key(&r->key[i], ask->head.space, ask->head.to.machine, life);
        rc = exchange(at, &asker, l->where.self, ask, sizeof *ask, type, world_now(&world_real) + patience, answer, answer_len);
    }
    return rc;
}

static int ask_host(struct rack_look *l, const struct coord_host *h)
{
    struct coord_claimed answer;
    uint64_t from = 0;
    int rc;
    do {
        struct coord_packet ask;
        coord_make(&ask, COORD_CLAIMS, l->where.space, &l->about.packet.identity, world_random(&world_real) | 1);
        ask.head.to.machine = (uint16_t)h->machine;
        ask.head.epoch = h->life;
        ask.head.index = from;
        rc = ask_at(l, h->at, h->life, &ask, COORD_CLAIMED, HOST_NS, &answer, sizeof answer);
        for (uint32_t i = 0; !rc && i < min_u64(answer.count, COORD_CLAIMS_MAX); i++)
            rc = add(l, &answer.claim[i], h);
        if (!rc && answer.packet.head.index && answer.packet.head.index <= from)
            rc = -EPROTO; /* it must get on */
        from = rc ? 0 : answer.packet.head.index;
    } while (from);
    return rc;
}

/* The coordinator knows of it first: it says whether this operator may, logs that, and gives the ticket for the host. */
static int announce_break(const struct rack_look *l, const struct rack_claim *c, struct coord_packet ask, uint64_t *ticket)
{
    struct coord_packet answer;
    ask.stamp = c->claim.pid;
    ask.head.index = c->claim.index;
    ask.head.epoch = 0;
    seal_prove(&l->where.ring, &ask, sizeof ask, &ask.term);
    int rc = ask_coordinator(l, &ask, sizeof ask, COORD_BROKEN, &answer, sizeof answer);
    if (rc == COORD_ADMIN_ONLY)
        return explain(rc, "the rack takes commands with its admin key only, which the key file has not (--key FILE, PAWL_KEY)");
    if (rc || answer.code == -ENOENT)
        return rc ? rc : -ENOENT;
    *ticket = answer.stamp;
    return answer.code == -EACCES ? explain(-EACCES, "the coordinator takes commands from machines of the rack only")
           : answer.code == -EAGAIN
               ? explain(-EAGAIN, "the coordinator has not heard of host %u since it started: try again", c->machine)
               : answer.code;
}

int rack_look_break(const struct rack_look *l, const struct rack_claim *c)
{
    struct coord_packet ask, answer;
    char address[NET_ADDR_TEXT];
    coord_make(&ask, COORD_BREAK, l->where.space, &l->about.packet.identity, world_random(&world_real) | 1);
    ask.head.to.machine = (uint16_t)c->machine;
    ask.head.epoch = c->life;
    ask.role = c->claim.session;
    ask.code = (int32_t)c->claim.serial;
    uint64_t ticket = 0;
    int rc = announce_break(l, c, ask, &ticket);
    if (rc)
        return rc;
    ask.stamp = ticket;
    rc = ask_at(l, c->at, c->life, &ask, COORD_BROKEN, ASK_NS, &answer, sizeof answer);
    if (!rc)
        return answer.code == -ENOENT ? -ENOENT : answer.code ? -EPROTO : 0;
    net_addr_print(c->at, address);
    return rc == -ETIMEDOUT ? explain(rc, "host %u at %s does not answer", c->machine, address)
                            : explain(rc, "cannot ask host %u at %s: %s", c->machine, address, strerror(-rc));
}

static int list_host(struct rack_look *l, const struct coord_host *h, bool silent)
{
    struct rack_host *list = realloc(l->list, (l->hosts + 1u) * sizeof *list);
    if (!list)
        return -ENOMEM;
    l->list = list;
    l->list[l->hosts++] = (struct rack_host){.host = *h, .silent = silent};
    l->silent += silent;
    return 0;
}

static int by_index(const void *a, const void *b)
{
    const struct rack_claim *x = a, *y = b;
    if (x->claim.index != y->claim.index)
        return x->claim.index < y->claim.index ? -1 : 1;
    return x->claim.holds != y->claim.holds ? (x->claim.holds ? -1 : 1) : 0;
}

ONCE int rack_look_open(const char *place, struct rack_look *l)
{
    uint64_t from = 1;
    explain_nothing();
    memset(l, 0, sizeof *l);
    int rc = net_where_parse(place, &l->where);
    if (!rc && !net_addr_known(l->where.self) && udp_source_for(l->where.coordinators.at[0], &l->where.self))
        rc = explain(-EINVAL, "no route to pawl://%s", place);
    if (!rc && l->where.ring.number)
        rc = explain(-EACCES, "what hosts hold is told to holders of the cluster's key only, and the key file has that of host %u",
                     l->where.ring.number);
    while (!rc && from) {
        struct coord_packet ask;
        coord_make(&ask, COORD_WHO, l->where.space, NULL, world_random(&world_real) | 1);
        ask.head.index = from;
        rc = ask_coordinator(l, &ask, sizeof ask, COORD_HOSTS, &l->about, sizeof l->about);
        l->about.design[COORD_NAME_LEN - 1] = 0;
        for (uint32_t i = 0; !rc && i < min_u64(l->about.count, COORD_HOSTS_MAX); i++) {
            int answered = ask_host(l, &l->about.host[i]);
            rc = answered == -ENOMEM ? answered : list_host(l, &l->about.host[i], answered != 0);
        }
        if (!rc && l->about.packet.head.index && l->about.packet.head.index <= from)
            rc = -EPROTO;
        from = rc ? 0 : l->about.packet.head.index;
    }
    if (rc) {
        rack_look_close(l);
        return rc;
    }
    if (l->count)
        qsort(l->claims, l->count, sizeof *l->claims, by_index);
    return 0;
}

void rack_look_close(struct rack_look *l)
{
    free(l->claims);
    free(l->list);
}

enum pawl_keys rack_look_keys(const struct rack_look *l)
{
    return l->about.keys ? (enum pawl_keys)l->about.keys : PAWL_KEYS_DENSE;
}

/* ---- keys ---- */

static int ask_key(const struct rack_look *l, struct coord_key *ask, struct coord_key *answer)
{
    int rc = ask_coordinator(l, &ask->packet, sizeof *ask, COORD_FOUND, answer, sizeof *answer);
    return rc ? rc : answer->packet.code > 0 ? -EPROTO : answer->packet.code;
}

int rack_look_find(const struct rack_look *l, pawl_key key, uint64_t *index)
{
    struct coord_key ask, answer;
    *index = key.id;
    if (rack_look_keys(l) == PAWL_KEYS_DENSE)
        return key.id < l->about.locks
                   ? 0
                   : explain(-ERANGE, "the locks of this space end at %llu", (unsigned long long)l->about.locks - 1);
    memset(&ask, 0, sizeof ask);
    coord_make(&ask.packet, COORD_FIND, l->where.space, NULL, world_random(&world_real) | 1);
    ask.look = 1;
    ask.len = (uint32_t)(key.name ? key.id : sizeof key.id);
    if (ask.len - 1 >= DIRECTORY_KEY_MAX)
        return explain(-EINVAL, "a name has 1 to %d bytes", PAWL_NAME_MAX);
    memcpy(ask.bytes, key.name ? key.name : (const char *)&key.id, ask.len);
    int rc = ask_key(l, &ask, &answer);
    if (!rc)
        *index = answer.packet.head.index;
    return rc;
}

/* The key of an index, which lies in `answer` if it is a name. */
static int key_of(const struct rack_look *l, uint64_t index, struct coord_key *answer, pawl_key *key)
{
    struct coord_key ask;
    *key = pawl_id(index);
    if (rack_look_keys(l) == PAWL_KEYS_DENSE)
        return 0;
    memset(&ask, 0, sizeof ask);
    coord_make(&ask.packet, COORD_KEY_OF, l->where.space, NULL, world_random(&world_real) | 1);
    ask.packet.head.index = index;
    int rc = ask_key(l, &ask, answer);
    if (!rc && rack_look_keys(l) == PAWL_KEYS_NAMED)
        *key = pawl_bytes(answer->bytes, answer->len);
    else if (!rc && answer->len == sizeof key->id)
        memcpy(&key->id, answer->bytes, sizeof key->id);
    return rc;
}

/* ---- what was seen ---- */

/* The first claim on that lock, or where it would be. */
static uint64_t first_of(const struct rack_look *l, uint64_t index)
{
    uint64_t low = 0, high = l->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (l->claims[middle].claim.index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void rack_look_lock(const struct rack_look *l, uint64_t index, struct inspect_lock *out)
{
    *out = (struct inspect_lock){.index = index};
    for (uint64_t i = first_of(l, index); i < l->count && l->claims[i].claim.index == index; i++) {
        const struct coord_claim *c = &l->claims[i].claim;
        if (!c->holds) {
            out->waiters++;
            continue;
        }
        out->holders++;
        out->view.mode = (enum pawl_mode)c->mode;
        out->view.token = max_u64(out->view.token, c->token);
    }
}

int rack_look_locks(const struct rack_look *l, inspect_lock_fn fn, void *ctx)
{
    int rc = 0;
    for (uint64_t i = 0; i < l->count && !rc; i++) {
        struct coord_key answer;
        struct inspect_lock lock;
        uint64_t index = l->claims[i].claim.index;
        if (i && l->claims[i - 1].claim.index == index)
            continue;
        rack_look_lock(l, index, &lock);
        rc = key_of(l, index, &answer, &lock.key);
        if (!rc)
            rc = fn(ctx, &lock);
    }
    return rc;
}

int rack_look_claims(const struct rack_look *l, uint64_t index, inspect_claim_fn fn, void *ctx)
{
    int rc = 0;
    uint64_t now = world_now(&world_real);
    for (uint64_t i = first_of(l, index); i < l->count && l->claims[i].claim.index == index && !rc; i++) {
        const struct coord_claim *c = &l->claims[i].claim;
        struct inspect_claim claim = {.holds = c->holds,
                                      .mode = (enum pawl_mode)c->mode,
                                      .session = {.slot = c->session,
                                                  .machine = l->claims[i].machine,
                                                  .pid = c->pid,
                                                  .health = c->left_ns ? SESSION_LIVE : SESSION_EXPIRED,
                                                  .lease_ns = PAWL_LEASE_FOREVER,
                                                  .expiry_ns = add_saturating(now, c->left_ns),
                                                  .opened_s = c->opened_s}};
        memcpy(claim.session.label, c->label, sizeof c->label);
        char ip[NET_ADDR_TEXT];
        net_addr_print_ip(l->claims[i].at, ip);
        snprintf(claim.session.host, sizeof claim.session.host, "%.*s", (int)sizeof claim.session.host - 1, ip);
        rc = fn(ctx, &claim);
    }
    return rc;
}
