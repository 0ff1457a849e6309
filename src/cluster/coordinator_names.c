/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's keys: how they get their indexes, and how they are retired when no host uses them.
 *
 * Retiring is done in rounds, if indexes are getting scarce. The coordinator asks all live hosts about some keys. A host that uses
 * a key (a request of it holds the lock, waits for it or has not heard that its release arrived; or it has the lock's agent) says
 * so. Every other key it forgets, in the same step, and asks for it again before it uses it again. A key of which all live hosts
 * have said that is retired: written to the log as gone. Hosts that are not live any more have lost their holds with their leases,
 * and begin anew with no keys. A round is not in the log: a coordinator that restarts begins another one, when it knows all hosts
 * that may be left from the former one (I16).
 *
 * A key with a value beside its lock stays, whichever host uses it (values.h).
 *
 * A client that asks for a key of the round under way keeps it in use. An answer that left before the round began, and arrives
 * after the host has forgotten the key, would undo that: so answers have the number of the latest round, and a host takes none that
 * is older than the latest round that it has answered (host_names.h).
 *
 * An index is used again with a higher generation, which all packets about the lock carry. Granters drop packets of a former one.
 * They take a later one as proof that no host uses the lock any more, whatever they knew of it: they begin with a free lock. So
 * nothing has to be asked of them.
 *
 * Generations are lives: they rise with time, over restarts, and are reserved in the log (I15). Tokens of a lock begin at its
 * generation, or at its granter's life if that is higher. A key that is retired rests until the next generation has begun. So a key
 * that comes back, with whichever index, has higher tokens than ever before (I2), and the coordinator remembers nothing of it. */
#include "cluster/coordinator_internal.h"
#include "cluster/mistakes.h"

#include <errno.h>

#define QUARTER_NS (NS_PER_S / COORD_LIVES_PER_S)
#define SPARE_SHARE 8u     /* of the locks: as many indexes at most are kept free ahead */
#define LOOKED_AT_MAX 4096 /* cells, in one search: well below a millisecond */
#define ASKED_SHARE 4u     /* of a lease: clients that wait for an index ask many times in that time */
#define AGAIN_RETRIES 4u   /* the time until a host is asked again, in the time until a lock packet is retransmitted */

static bool can_retire(const struct coordinator *c)
{
    return c->directory && c->design->packet->uses;
}

/* ---- generations ---- */

/* Begins the next generation. False: no life is reserved. */
static bool next_generation(struct coordinator *c, uint64_t now)
{
    uint32_t life = coord_next_life(c, now);
    if (!life)
        return false;
    assert(life > c->names.generation);
    c->names.generation = life;
    c->names.generation_ns = now;
    directory_wake(c->directory);
    return true;
}

/* ---- rounds ---- */

static uint64_t free_cells(const struct directory *d)
{
    return d->locks - d->used;
}

/* How many indexes should be free: as many as new keys came in a quarter of a second. A space whose keys stay retires none. */
static uint64_t wanted_cells(const struct coordinator *c)
{
    uint64_t recent = max_u64(c->names.added, c->names.adding);
    return min_u64(max_u64(recent, c->names.wanted), 1 + c->directory->locks / SPARE_SHARE);
}

static bool is_picked(const struct coord_names *n, uint64_t cell)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (n->key[i].cell == cell)
            return true;
    return false;
}

/* A key stays as long as there is a value beside its lock. */
static bool has_value(const struct coordinator *c, uint64_t cell)
{
    return c->values && values_has(c->values, directory_index(c->directory, cell), c->directory->key[cell].generation);
}

/* Picks the keys of the next round. Keys that a client asked for since the last look are passed over once. */
static void pick(struct coordinator *c, uint64_t most)
{
    struct coord_names *n = &c->names;
    const struct directory *d = c->directory;
    for (uint64_t looked = 0; looked < min_u64(LOOKED_AT_MAX, 2 * d->count) && n->count < min_u64(COORD_RETIRE_MAX, most);
         looked++) {
        uint64_t cell = n->hand < d->count ? n->hand : 0;
        struct directory_key *k = &d->key[cell];
        n->hand = cell + 1;
        if (k->state != DIRECTORY_USED || !k->written)
            continue;
        if (!k->asked && !is_picked(n, cell)) {
            n->key[n->count].cell = cell;
            n->key[n->count++].stays = has_value(c, cell);
        }
        k->asked = false;
    }
}

static void begin_round(struct coordinator *c, uint64_t now)
{
    struct coord_names *n = &c->names;
    const struct directory *d = c->directory;
    uint64_t wanted = wanted_cells(c), coming = free_cells(d) + d->resting.count;
    assert(!n->count);
    if (coming < wanted && !d->changed.count)
        pick(c, wanted - coming);
    if (!n->count)
        return;
    n->round++;
    n->ask_next = 1;
    n->again_ns = now + AGAIN_RETRIES * c->config.retry_ns;
}

static bool all_have_answered(const struct coordinator *c)
{
    bool any = false;
    for (uint16_t m = 1; m <= c->config.machines; m++) {
        any |= c->members[m].live && c->members[m].retired == c->names.round;
        if (c->members[m].live && c->members[m].retired != c->names.round && !MISTAKE(c->config.mistakes, COORD_MISTAKE_REUSE))
            return false;
    }
    return any || !MISTAKE(c->config.mistakes, COORD_MISTAKE_REUSE);
}

static void forget_passes(struct coord_names *n, uint64_t now)
{
    memset(&n->in_vain, 0, sizeof n->in_vain);
    n->in_vain.since_ns = now;
}

/* A key is in use. A pass has two looks at each key, since one look passes over keys that clients asked for. */
static void count_in_vain(struct coord_names *n, uint64_t used)
{
    if (!n->in_vain.keys++)
        n->in_vain.began = n->round;
    if (n->in_vain.keys <= 2 * used)
        return;
    n->in_vain.round = n->in_vain.began;
    n->in_vain.keys = 0;
}

/* Every live host has answered: the keys that none uses are gone, when the log says so. */
static void end_round(struct coordinator *c, uint64_t now)
{
    struct coord_names *n = &c->names;
    for (uint32_t i = 0; i < n->count; i++) {
        if (!n->key[i].stays && !has_value(c, n->key[i].cell) && !directory_retire(c->directory, n->key[i].cell))
            forget_passes(n, now);
        else
            count_in_vain(n, c->directory->used);
    }
    n->count = 0;
    n->wanted = false; /* a client that still waits asks again */
}

static void count_added(struct coord_names *n, uint64_t now)
{
    if (now - n->adding_ns < QUARTER_NS)
        return;
    n->added = now - n->adding_ns < 2 * QUARTER_NS ? n->adding : 0;
    n->adding = 0;
    n->adding_ns = now;
}

void coord_look_after_names(struct coordinator *c, uint64_t now)
{
    struct coord_names *n = &c->names;
    if (!can_retire(c) || c->changed || now < c->open_ns)
        return; /* hosts that are not known may use keys */
    count_added(n, now);
    if (n->count && all_have_answered(c))
        end_round(c, now);
    if (c->directory->resting.count && now - n->generation_ns >= QUARTER_NS)
        next_generation(c, now);
    if (!n->count)
        begin_round(c, now);
    if (n->count && now >= n->again_ns) {
        n->ask_next = 1;
        n->again_ns = now + AGAIN_RETRIES * c->config.retry_ns;
    }
}

uint32_t coord_retire_more(struct coordinator *c, void *packet, struct net_addr *to)
{
    struct coord_names *n = &c->names;
    struct coord_retire *p = packet;
    while (n->count && n->ask_next && n->ask_next <= c->config.machines) {
        const struct coord_member *m = &c->members[n->ask_next++];
        if (!m->live || m->retired == n->round || !net_addr_known(m->at))
            continue;
        memset(p, 0, sizeof *p);
        coord_make(&p->packet, COORD_RETIRE, c->space, &c->config.identity, m->nonce);
        p->packet.head.to.machine = (uint16_t)(n->ask_next - 1);
        p->packet.head.epoch = m->life;
        p->round = n->round;
        p->count = n->count;
        for (uint32_t i = 0; i < n->count; i++)
            p->key[i] = (struct coord_retire_key){.index = directory_index(c->directory, n->key[i].cell),
                                                  .generation = c->directory->key[n->key[i].cell].generation};
        *to = m->at;
        return sizeof *p;
    }
    return 0;
}

void coord_on_retired(struct coordinator *c, const struct coord_packet *p, struct net_addr from, uint64_t now)
{
    struct coord_names *n = &c->names;
    uint16_t number = p->head.from.machine;
    struct coord_member *m = number && number <= c->config.machines ? &c->members[number] : NULL;
    if (!n->count || !m || !m->live || m->life != p->head.epoch || p->stamp != n->round) {
        c->drops.stale++;
        return;
    }
    if (!coord_is_from_host(c, m, p, from))
        return;
    m->retired = n->round;
    for (uint32_t i = 0; i < n->count; i++)
        n->key[i].stays |= p->head.index >> i & 1 && !MISTAKE(c->config.mistakes, COORD_MISTAKE_REUSE);
    coord_look_after_names(c, now);
}

/* ---- asking ---- */

/* A client wants the key: if the round under way is about it, it stays. */
static void keep(struct coordinator *c, uint64_t cell)
{
    struct coord_names *n = &c->names;
    c->directory->key[cell].asked = true;
    for (uint32_t i = 0; i < n->count; i++)
        n->key[i].stays |= n->key[i].cell == cell;
}

/* No index is free for a new key. -EAGAIN: one may be soon. -ENOSPC: all keys were in use for a lease, and since this client asked
 * first: what was found before says nothing of what has been released since. */
static int none_free(struct coordinator *c, const struct coord_packet *question, uint64_t now)
{
    struct coord_names *n = &c->names;
    if (!can_retire(c))
        return -ENOSPC;
    n->wanted = true;
    if (now - n->asked_ns > c->config.lease_ns / ASKED_SHARE)
        forget_passes(n, now); /* no client has waited lately: it is not known which keys are in use */
    n->asked_ns = now;
    coord_look_after_names(c, now);
    bool since_asked = question->stamp && n->in_vain.round > question->stamp;
    return since_asked && now - n->in_vain.since_ns > c->config.lease_ns ? -ENOSPC : -EAGAIN;
}

static int add(struct coordinator *c, const struct coord_key *p, struct net_addr from, uint64_t now, uint64_t *cell)
{
    struct directory *d = c->directory;
    if (!limits_take(&c->new_names, from, COORD_NAMES_PER_S, COORD_NAMES_AT_ONCE, now)) {
        c->drops.limited++;
        return -EAGAIN;
    }
    bool dry = !free_cells(d) && d->resting.count; /* others rest until time has passed, unless they are needed now */
    if ((!c->names.generation || dry) && !next_generation(c, now))
        return -EAGAIN;
    int rc = directory_add(d, p->bytes, p->len, c->names.generation, cell);
    if (rc == -ENOSPC)
        return none_free(c, &p->packet, now);
    c->names.adding += !rc;
    return rc;
}

static int find(struct coordinator *c, const struct coord_key *p, struct net_addr from, uint64_t now, uint64_t *cell)
{
    struct directory *d = c->directory;
    const struct rack_identity *asker = &p->packet.identity;
    if (rack_id_known(asker) && asker->version != c->config.identity.version)
        return -EAGAIN; /* a member of a former configuration, which may have had fewer locks: it will end */
    int rc = directory_find(d, p->bytes, p->len, cell);
    if (!rc && d->key[*cell].state == DIRECTORY_LEAVING)
        return -EAGAIN;
    if (!rc && d->key[*cell].state == DIRECTORY_RESTING) { /* it is gone */
        if (!p->look && !next_generation(c, now))
            return -EAGAIN;
        rc = -ENOENT;
    }
    if (rc == -ENOENT && !p->look)
        return add(c, p, from, now, cell);
    if (!rc)
        keep(c, *cell);
    return rc;
}

uint32_t coord_on_key(struct coordinator *c, const struct coord_key *p, struct net_addr from, uint64_t now, void *answer)
{
    struct coord_key *a = answer;
    const char *bytes = p->bytes;
    uint32_t len = p->len;
    uint64_t index = p->packet.head.index, cell = UINT64_MAX;
    int code = -EINVAL;
    if (c->directory && p->packet.head.type == COORD_KEY_OF) {
        code = directory_key_of(c->directory, index, &bytes, &len);
    } else if (c->directory) {
        code = find(c, p, from, now, &cell);
        index = code ? index : directory_index(c->directory, cell);
        assert(code || c->directory->key[cell].state == DIRECTORY_USED); /* I7: no answer names an index that is being retired */
    }
    memset(a, 0, sizeof *a);
    coord_make(&a->packet, COORD_FOUND, c->space, &c->config.identity, p->packet.head.nonce);
    a->packet.head.to = p->packet.head.from;
    a->packet.head.index = index;
    a->packet.head.generation = cell == UINT64_MAX || code ? 0 : c->directory->key[cell].generation;
    a->packet.code = code;
    a->packet.stamp = c->names.round;
    a->look = c->config.keys;
    a->len = len;
    memcpy(a->bytes, bytes, len);
    return sizeof *a;
}
