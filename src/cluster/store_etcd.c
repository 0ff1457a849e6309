/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/store_etcd.h"
#include "cluster/mistakes.h"
#include "lib/explain.h"
#include "lib/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x31306465686c7770) /* "pwlhed01" */
#define PAGE_APPENDS 64u                   /* read at once: a megabyte at most */
#define PAGE_PIECES 2u                     /* likewise */
#define READ_LEASES 20u                    /* in which the log must be read: the lease is renewed between two pages */

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t generation, pieces, pad; /* of the snapshot */
    struct store_identity identity;
    uint64_t cluster;
    uint64_t seq;   /* of the last append that the snapshot contains */
    uint64_t check; /* of this; the first append continues it */
};

/* The value of `last`. */
struct last {
    uint64_t seq;
    uint64_t check;
};

/* Before the records of an append or a piece. */
struct part {
    uint64_t number; /* of the append; of a piece: its generation and its number */
    uint64_t before; /* the checksum that it continues */
    uint64_t check;
};

struct record {
    uint8_t type, pad;
    uint16_t len;
};
_Static_assert(sizeof(struct record) == 4, "no padding");

static struct store_etcd *etcd_of(struct store *s)
{
    return container_of(s, struct store_etcd, store);
}

static int damaged(const struct store_etcd *s, const char *key, const char *what)
{
    return explain(
        -EBADMSG,
        "%s: damaged at the key %s: %s. Restore etcd; or start with --restore, which goes on without what follows, or with "
        "--fresh, which begins a new space",
        s->leader.place, key, what);
}

/* ---- keys ---- */

static void key_log(const struct store_etcd *s, uint64_t seq, char out[ETCD_KEY_LEN])
{
    snprintf(out, ETCD_KEY_LEN, "%slog/%016" PRIx64, s->leader.prefix, seq);
}

static void key_snap(const struct store_etcd *s, uint32_t generation, uint32_t piece, char out[ETCD_KEY_LEN])
{
    snprintf(out, ETCD_KEY_LEN, "%ssnap/%08" PRIx32 "/%08" PRIx32, s->leader.prefix, generation, piece);
}

static void key_head(const struct store_etcd *s, char out[ETCD_KEY_LEN])
{
    snprintf(out, ETCD_KEY_LEN, "%slead/head", s->leader.prefix);
}

static void key_last(const struct store_etcd *s, char out[ETCD_KEY_LEN])
{
    snprintf(out, ETCD_KEY_LEN, "%slead/last", s->leader.prefix);
}

static struct last last_of(uint64_t seq)
{
    return (struct last){.seq = seq, .check = hash_bytes(&seq, sizeof seq, MAGIC)};
}

/* ---- records ---- */

static uint32_t cost(const struct store_record *r)
{
    return (uint32_t)sizeof(struct record) + r->len;
}

static uint32_t put(uint8_t *to, const struct store_record *r)
{
    const struct record head = {.type = r->type, .len = r->len};
    memcpy(to, &head, sizeof head);
    if (r->len)
        memcpy(to + sizeof head, r->data, r->len);
    return cost(r);
}

/* Fills in the head of a value with so many bytes of records. Its length; *chain is its checksum then. */
static uint32_t seal(uint8_t *value, uint32_t records, uint64_t number, uint64_t *chain)
{
    struct part part = {.number = number, .before = *chain};
    part.check = hash_bytes(value + sizeof part, records, hash_bytes(&part, offsetof(struct part, check), 0));
    memcpy(value, &part, sizeof part);
    *chain = part.check;
    return (uint32_t)sizeof part + records;
}

/* Hands out the records of a value. Null, or what is wrong with it. */
static const char *unseal(const struct etcd_pair *p, uint64_t number, uint64_t *chain, store_take take, void *ctx, int *rc)
{
    struct part part;
    const uint8_t *records = (const uint8_t *)p->value + sizeof part;
    if (p->len < sizeof part)
        return "too short";
    memcpy(&part, p->value, sizeof part);
    if (part.number != number || part.before != *chain)
        return "it does not continue the one before it";
    if (part.check != hash_bytes(records, p->len - sizeof part, hash_bytes(&part, offsetof(struct part, check), 0)))
        return "the checksum is wrong";
    for (uint32_t at = 0, room = p->len - (uint32_t)sizeof part; at < room && !*rc;) {
        struct record head;
        if (room - at < sizeof head)
            return "a record that cannot be";
        memcpy(&head, records + at, sizeof head);
        const struct store_record r = {.type = head.type, .len = head.len, .data = records + at + sizeof head};
        if (cost(&r) > room - at)
            return "a record that cannot be";
        *rc = take(ctx, &r);
        at += cost(&r);
    }
    if (*rc == -EINVAL)
        return "a record that cannot be";
    *chain = part.check;
    return NULL;
}

/* ---- appending ---- */

static int append(struct store *store, const struct store_record *records, unsigned count)
{
    struct store_etcd *s = etcd_of(store);
    bool guess = MISTAKE(s->leader.mistakes, COORD_MISTAKE_GUESS);
    char key[ETCD_KEY_LEN], end[ETCD_KEY_LEN];
    const struct last last = last_of(s->seq + 1);
    uint64_t chain = s->chain;
    uint32_t len = 0;
    for (unsigned i = 0; i < count; i++) {
        assert(len + cost(&records[i]) <= STORE_APPEND_MAX);
        len += put(s->buffer + sizeof(struct part) + len, &records[i]);
    }
    len = seal(s->buffer, len, s->seq + 1, &chain);
    key_log(s, s->seq + 1, key);
    key_last(s, end);
    const struct etcd_transaction t = {
        .compare = {{.key = key, .revision = 0}},
        .compares = !guess,
        .change = {{.key = key, .value = s->buffer, .len = len}, {.key = end, .value = &last, .len = sizeof last}},
        .changes = 2,
    };
    int rc = leader_commit(&s->leader, &t);
    if (rc)
        return rc;
    s->seq++;
    s->chain = chain;
    s->store.since_snapshot += len;
    return 0;
}

/* ---- a snapshot ---- */

struct writer {
    struct store_etcd *s;
    uint32_t generation, pieces, used;
    uint64_t chain;
};

static int write_piece(struct writer *w)
{
    struct store_etcd *s = w->s;
    char key[ETCD_KEY_LEN];
    uint32_t len = seal(s->buffer, w->used, (uint64_t)w->generation << 32 | w->pieces, &w->chain);
    key_snap(s, w->generation, w->pieces, key);
    const struct etcd_transaction t = {.change = {{.key = key, .value = s->buffer, .len = len}}, .changes = 1};
    w->pieces++;
    w->used = 0;
    return leader_commit(&s->leader, &t);
}

static int take_for_piece(void *to, const struct store_record *r)
{
    struct writer *w = to;
    int rc = sizeof(struct part) + w->used + cost(r) > ETCD_VALUE_MAX ? write_piece(w) : 0;
    if (!rc)
        w->used += put(w->s->buffer + sizeof(struct part) + w->used, r);
    return rc;
}

/* History before the snapshot is of no use, and etcd has room for little of it. */
static void compact(struct store_etcd *s)
{
    struct etcd *e = s->leader.etcd;
    e->ops->compact(e, s->head_revision, e->ops->now(e) + s->leader.lease_ns / 4); /* if it fails, the next one does it */
}

static int write_head(struct store_etcd *s, const struct writer *w)
{
    struct head h;
    const struct last last = last_of(s->seq);
    char head[ETCD_KEY_LEN], end[ETCD_KEY_LEN], log_from[ETCD_KEY_LEN], log_end[ETCD_KEY_LEN];
    char snap_from[ETCD_KEY_LEN], snap_end[ETCD_KEY_LEN];
    memset(&h, 0, sizeof h);
    h.magic = MAGIC;
    h.version = STORE_VERSION;
    h.generation = w->generation;
    h.pieces = w->pieces;
    h.identity = s->identity;
    h.cluster = s->leader.cluster;
    h.seq = s->seq;
    h.check = hash_bytes(&h, offsetof(struct head, check), w->chain);
    key_head(s, head);
    key_last(s, end);
    snprintf(log_from, sizeof log_from, "%slog/", s->leader.prefix);
    snprintf(log_end, sizeof log_end, "%slog0", s->leader.prefix); /* '0' follows '/': all that there are */
    key_snap(s, 0, 0, snap_from);
    key_snap(s, w->generation, 0, snap_end);
    const struct etcd_transaction t = {
        .compare = {{.key = head, .revision = s->head_revision}},
        .compares = 1,
        .change = {{.key = head, .value = &h, .len = sizeof h},
                   {.key = end, .value = &last, .len = sizeof last},
                   {.key = log_from, .end = log_end},
                   {.key = snap_from, .end = snap_end}},
        .changes = 4,
    };
    int rc = leader_commit(&s->leader, &t);
    if (!rc)
        rc = leader_look(&s->leader, s->leader.until_ns, NULL, NULL);
    if (rc)
        return rc;
    s->head_revision = s->leader.seen.head_revision;
    s->generation = w->generation;
    s->chain = h.check;
    s->store.since_snapshot = 0;
    compact(s);
    return 0;
}

static int snapshot(struct store *store, int (*each)(void *ctx, store_take take, void *to), void *ctx)
{
    struct store_etcd *s = etcd_of(store);
    struct writer w = {.s = s, .generation = s->generation + 1};
    int rc = each(ctx, take_for_piece, &w);
    if (!rc)
        rc = write_piece(&w);
    return rc ? rc : write_head(s, &w);
}

/* ---- reading ---- */

struct reader {
    struct store_etcd *s;
    struct head head;
    struct last last;
    bool found, ends; /* the head; how far the log goes, undamaged */
    uint64_t chain, next;
    bool pieces; /* of the snapshot; else appends */
    store_take take;
    void *ctx;
    int rc; /* of the last record, or 0 */
};

/* If it is damaged, the log can be read all the same: check_end() says so. */
static int take_last(struct reader *r, const struct etcd_pair *p)
{
    if (p->len == sizeof r->last)
        memcpy(&r->last, p->value, sizeof r->last);
    r->ends = p->len == sizeof r->last && r->last.check == last_of(r->last.seq).check;
    return 0;
}

static int take_head(void *ctx, const struct etcd_pair *p)
{
    struct reader *r = ctx;
    char key[ETCD_KEY_LEN];
    key_last(r->s, key);
    if (!strcmp(p->key, key))
        return take_last(r, p);
    key_head(r->s, key);
    if (strcmp(p->key, key) != 0)
        return 0;
    r->found = true;
    if (p->len != sizeof r->head)
        return damaged(r->s, p->key, "it has another length");
    memcpy(&r->head, p->value, sizeof r->head);
    return 0;
}

static int check_head(struct reader *r, enum store_how how, struct store_identity *identity)
{
    struct store_etcd *s = r->s;
    const struct head *h = &r->head;
    char key[ETCD_KEY_LEN];
    key_head(s, key);
    if (!r->found)
        return explain(-ENOENT,
                       "%s: the key %s is missing, and the space '%s' may have had names and holders. If it is new, start one "
                       "coordinator with --fresh; if it is not, name its etcd and prefix with --store",
                       s->leader.place, key, identity->space);
    if (h->magic != MAGIC)
        return damaged(s, key, "it is not the state of a space");
    if (h->version != STORE_VERSION)
        return explain(-EINVAL, "%s: has version %u of the format (key %s), and this is a pawl for version %u", s->leader.place,
                       h->version, key, STORE_VERSION);
    if (strncmp(h->identity.space, identity->space, sizeof h->identity.space) != 0)
        return explain(-EINVAL, "%s: belongs to the space '%.*s' (key %s), not to '%s'", s->leader.place, STORE_SPACE_LEN - 1,
                       h->identity.space, key, identity->space);
    if (h->cluster != s->leader.cluster && how == STORE_CONTINUE)
        return explain(
            -EBADMSG,
            "%s: was written by another etcd cluster (%" PRIx64 ", now %" PRIx64
            "): it is a copy, and may lack names that clients use. Name the addresses of the right cluster; or, after etcd was "
            "restored from a backup, start with --restore",
            s->leader.place, h->cluster, s->leader.cluster);
    *identity = s->identity = h->identity;
    s->generation = h->generation;
    s->head_revision = s->leader.seen.head_revision;
    return 0;
}

static int take_part(void *ctx, const struct etcd_pair *p)
{
    struct reader *r = ctx;
    char key[ETCD_KEY_LEN];
    uint64_t number = r->pieces ? (uint64_t)r->head.generation << 32 | r->next : r->next;
    if (r->pieces)
        key_snap(r->s, r->head.generation, (uint32_t)r->next, key);
    else
        key_log(r->s, r->next, key);
    const char *wrong = strcmp(key, p->key) ? "it is missing" : unseal(p, number, &r->chain, r->take, r->ctx, &r->rc);
    if (wrong)
        return damaged(r->s, key, wrong);
    r->next++;
    r->s->store.since_snapshot += r->pieces ? 0 : p->len;
    return r->rc;
}

/* All parts of a kind, page by page; a leader's lease is renewed between them. */
static int read_parts(struct reader *r, bool leads, uint64_t deadline)
{
    struct store_etcd *s = r->s;
    struct etcd *e = s->leader.etcd;
    char from[ETCD_KEY_LEN], end[ETCD_KEY_LEN];
    for (uint64_t before = UINT64_MAX; before != r->next;) {
        before = r->next;
        if (r->pieces) {
            key_snap(s, r->head.generation, (uint32_t)r->next, from);
            key_snap(s, r->head.generation, r->head.pieces, end);
        } else {
            key_log(s, r->next, from);
            snprintf(end, sizeof end, "%slog0", s->leader.prefix); /* '0' follows '/' */
        }
        if (leads && !leader_renew(&s->leader))
            return explain(-ESTALE, "%s: this coordinator leads no more", s->leader.place);
        int rc = e->ops->read(e, from, end, r->pieces ? PAGE_PIECES : PAGE_APPENDS, deadline, take_part, r);
        if (rc)
            return rc;
    }
    if (r->pieces && r->next != r->head.pieces) {
        key_snap(s, r->head.generation, (uint32_t)r->next, from);
        return damaged(s, from, "it is missing");
    }
    return 0;
}

/* Whether all appends are there that were made when `last` was read. One that stands by may find more. */
static int check_end(const struct reader *r)
{
    char key[ETCD_KEY_LEN];
    if (r->ends && r->next > r->last.seq)
        return 0;
    key_last(r->s, key);
    if (!r->ends)
        return damaged(r->s, key, "it is missing, or the checksum is wrong");
    key_log(r->s, r->next, key);
    return damaged(r->s, key, "it is missing");
}

static int load(struct store_etcd *s, enum store_how how, bool leads, struct store_identity *identity, store_take take, void *ctx)
{
    struct reader r = {.s = s, .take = take, .ctx = ctx, .pieces = true};
    struct etcd *e = s->leader.etcd;
    uint64_t deadline = e->ops->now(e) + READ_LEASES * s->leader.lease_ns;
    char key[ETCD_KEY_LEN];
    int rc = leader_look(&s->leader, deadline, take_head, &r);
    if (!rc)
        rc = check_head(&r, how, identity);
    if (!rc)
        rc = read_parts(&r, leads, deadline);
    if (rc)
        return rc;
    key_head(s, key);
    s->seq = r.head.seq;
    s->chain = r.head.check;
    if (hash_bytes(&r.head, offsetof(struct head, check), r.chain) != r.head.check)
        return damaged(s, key, "the checksum is wrong");
    r.pieces = false;
    r.next = s->seq + 1;
    r.chain = s->chain;
    rc = read_parts(&r, leads, deadline);
    s->seq = r.next - 1;
    s->chain = r.chain;
    return rc ? rc : check_end(&r);
}

/* ---- opening ---- */

static void close_all(struct store *store)
{
    struct store_etcd *s = etcd_of(store);
    free(s->buffer);
    s->buffer = NULL;
    s->store.ops = NULL;
}

static const struct store_ops ops = {.cost = cost, .append = append, .snapshot = snapshot, .close = close_all};

/* Of a damaged log what was before the damage counts: the caller writes a snapshot. */
static int open_existing(struct store_etcd *s, enum store_how how, struct store_identity *identity, store_take take, void *ctx)
{
    int rc = load(s, how, true, identity, take, ctx);
    return rc == -EBADMSG && how == STORE_RESTORE && s->head_revision ? 0 : rc;
}

/* The generation of a snapshot that is to be replaced, as far as it can be read. */
static int begin_fresh(struct store_etcd *s, const struct store_identity *identity)
{
    struct reader r = {.s = s};
    int rc = leader_look(&s->leader, s->leader.until_ns, take_head, &r);
    if (rc == -EBADMSG)
        rc = leader_look(&s->leader, s->leader.until_ns, NULL, NULL);
    s->identity = *identity;
    s->head_revision = s->leader.seen.head_revision;
    s->generation = r.head.generation;
    return rc;
}

int store_etcd_open(struct store_etcd *s, enum store_how how, struct store_identity *identity, store_take take,
                    int (*each)(void *ctx, store_take take, void *to), void *ctx)
{
    int rc = 0;
    s->store = (struct store){.ops = &ops};
    s->seq = s->chain = s->head_revision = 0;
    s->generation = 0;
    if (!s->buffer) /* else an attempt to open was given up in between */
        s->buffer = malloc(ETCD_VALUE_MAX);
    if (!s->buffer)
        rc = explain(-ENOMEM, "out of memory");
    else
        rc = how == STORE_FRESH ? begin_fresh(s, identity) : open_existing(s, how, identity, take, ctx);
    if (!rc && how == STORE_FRESH)
        rc = snapshot(&s->store, each, ctx);
    if (rc)
        close_all(&s->store);
    return rc;
}

int store_etcd_look(struct store_etcd *s, uint64_t deadline)
{
    struct reader r = {.s = s};
    int rc = leader_look(&s->leader, deadline, take_head, &r);
    if (!rc && r.found && r.head.magic == MAGIC)
        s->identity = r.head.identity;
    return rc;
}

int store_etcd_peek(struct store_etcd *s, struct store_identity *identity, store_take take, void *ctx)
{
    uint64_t before = s->leader.seen.head_revision;
    int rc = load(s, STORE_CONTINUE, false, identity, take, ctx);
    uint64_t now = s->leader.etcd->ops->now(s->leader.etcd);
    if (rc != -EBADMSG || leader_look(&s->leader, now + s->leader.lease_ns, NULL, NULL) || s->leader.seen.head_revision == before)
        return rc;
    return -EAGAIN; /* a snapshot replaced what was read */
}
