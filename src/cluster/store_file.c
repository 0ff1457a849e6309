/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/store_file.h"
#include "lib/explain.h"
#include "lib/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x313074736c776170) /* "pawlst01", as it lies there */
#define BLOCK 4096u                        /* no write to one block changes another, even if it is torn */
#define SPARE_BYTES (BLOCK + STORE_APPEND_MAX)
#define LOG_AT ((uint64_t)BLOCK + 2 * SPARE_BYTES)
#define GROW_BYTES (UINT64_C(256) << 10) /* the file grows by so much, */
#define GROW_SHARE 8                     /* or by this share of it */
#define READ_BYTES (UINT32_C(1) << 20)   /* at once; more than any append */
#define COMMIT 255u

struct head {
    uint64_t magic;
    uint32_t version, pad;
    struct store_identity identity;
    uint8_t rest[BLOCK - 2 * sizeof(uint64_t) - sizeof(struct store_identity) - sizeof(uint64_t)];
    uint64_t check;
};
_Static_assert(sizeof(struct head) == BLOCK, "one block");

struct spare {
    uint64_t seq;    /* of this append */
    uint64_t start;  /* where it begins in the log; all before it is whole */
    uint64_t chain;  /* the checksum of the record before */
    uint64_t extent; /* the file is at least as large */
    uint64_t len;    /* of the append, which follows */
    uint64_t check;  /* of the spare with this field 0, and of the append */
};

struct record {
    uint32_t check;
    uint8_t type, pad;
    uint16_t len;
};
_Static_assert(sizeof(struct record) == 8, "no padding");

static struct store_file *file_of(struct store *s)
{
    return container_of(s, struct store_file, store);
}

static const struct disk_ops *ops_of(const struct store_file *s)
{
    return s->disk->ops;
}

static int damaged(const struct store_file *s, uint64_t at, const char *what)
{
    return explain(-EBADMSG,
                   "%s: damaged at byte %" PRIu64
                   ": %s. Put a good copy in its place; or start with --restore, which goes on without "
                   "what follows, or with --fresh, which begins a new space",
                   s->path, at, what);
}

/* ---- records ---- */

static uint64_t chain_of(uint64_t chain, const struct record *r, const void *data)
{
    return hash_bytes(data, r->len, chain ^ (uint64_t)r->type << 56 ^ (uint64_t)r->len << 40);
}

static uint32_t cost(const struct store_record *r)
{
    return (uint32_t)sizeof(struct record) + r->len;
}

static uint32_t put(uint8_t *to, const struct store_record *r, uint64_t *chain)
{
    struct record head = {.type = r->type, .len = r->len};
    *chain = chain_of(*chain, &head, r->data);
    head.check = (uint32_t)*chain;
    memcpy(to, &head, sizeof head);
    if (r->len)
        memcpy(to + sizeof head, r->data, r->len);
    return cost(r);
}

static uint32_t put_commit(uint8_t *to, uint64_t seq, uint64_t *chain)
{
    const struct store_record commit = {.type = COMMIT, .len = sizeof seq, .data = &seq};
    return put(to, &commit, chain);
}

/* The record at the beginning of these bytes, if it is whole: its length with its head; 0: it is not. */
static uint32_t get(const uint8_t *from, uint64_t room, uint64_t *chain, struct store_record *out)
{
    struct record head;
    if (room < sizeof head)
        return 0;
    memcpy(&head, from, sizeof head);
    if (!head.type || head.pad || head.len > room - sizeof head)
        return 0;
    uint64_t next = chain_of(*chain, &head, from + sizeof head);
    if (head.check != (uint32_t)next)
        return 0;
    *chain = next;
    *out = (struct store_record){.type = head.type, .len = head.len, .data = from + sizeof head};
    return cost(out);
}

/* ---- spares ---- */

static uint64_t spare_at(uint64_t seq)
{
    return BLOCK + seq % 2 * SPARE_BYTES;
}

static uint64_t spare_check(const struct spare *spare, const uint8_t *append)
{
    struct spare zero = *spare;
    zero.check = 0;
    return hash_bytes(append, spare->len, hash_bytes(&zero, sizeof zero, 0));
}

static int write_spare(struct store_file *s, const struct spare *spare, const uint8_t *append)
{
    int rc = ops_of(s)->write(s->file, spare, sizeof *spare, spare_at(spare->seq));
    return rc ? rc : ops_of(s)->write(s->file, append, spare->len, spare_at(spare->seq) + sizeof *spare);
}

static bool read_spare(const struct store_file *s, unsigned which, struct spare *out, uint8_t append[STORE_APPEND_MAX])
{
    struct spare spare;
    if (ops_of(s)->read(s->file, &spare, sizeof spare, spare_at(which)) || spare.len > STORE_APPEND_MAX || spare.seq % 2 != which ||
        spare.start < LOG_AT || spare.start > spare.extent ||
        ops_of(s)->read(s->file, append, spare.len, spare_at(which) + sizeof spare) || spare.check != spare_check(&spare, append))
        return false;
    *out = spare;
    return true;
}

/* ---- appending ---- */

/* Room for an append is made before it is written: a full disk is found here, and what is in the log stays whole. */
static int grow(struct store_file *s, uint64_t to)
{
    if (to <= s->extent)
        return 0;
    uint64_t extent = to + max_u64(GROW_BYTES, to / GROW_SHARE);
    int rc = ops_of(s)->extend(s->file, extent);
    if (!rc)
        rc = ops_of(s)->sync(s->file);
    if (!rc)
        s->extent = extent;
    return rc;
}

static int append(struct store *store, const struct store_record *records, unsigned count)
{
    struct store_file *s = file_of(store);
    uint64_t chain = s->chain;
    uint32_t len = 0;
    for (unsigned i = 0; i < count; i++) {
        assert(records[i].type && records[i].type < COMMIT && len + cost(&records[i]) + 16 <= STORE_APPEND_MAX);
        len += put(s->buffer + len, &records[i], &chain);
    }
    len += put_commit(s->buffer + len, s->seq + 1, &chain);
    int rc = grow(s, s->end + len);
    struct spare spare = {.seq = s->seq + 1, .start = s->end, .chain = s->chain, .extent = s->extent, .len = len};
    spare.check = spare_check(&spare, s->buffer);
    if (!rc)
        rc = ops_of(s)->write(s->file, s->buffer, len, s->end);
    if (!rc)
        rc = write_spare(s, &spare, s->buffer);
    if (!rc)
        rc = ops_of(s)->sync(s->file);
    if (rc) /* the next one goes to the same place, with the same number: it replaces this one */
        return rc;
    s->seq++;
    s->end += len;
    s->chain = chain;
    assert(s->seq == spare.seq && s->end == spare.start + len); /* I18: both copies are of the append that counts */
    s->store.since_snapshot += len;
    return 0;
}

/* ---- a whole file ---- */

struct writer {
    struct store_file *s;
    uint32_t used; /* of the buffer */
};

static int write_out(struct writer *w)
{
    struct store_file *s = w->s;
    int rc = ops_of(s)->write(s->file, s->buffer, w->used, s->end);
    s->end += w->used;
    w->used = 0;
    return rc;
}

static int take_for_file(void *to, const struct store_record *r)
{
    struct writer *w = to;
    int rc = w->used + cost(r) + 16 > READ_BYTES ? write_out(w) : 0;
    if (!rc)
        w->used += put(w->s->buffer + w->used, r, &w->s->chain);
    return rc;
}

/* To s->file, which is empty. Both spares say that all of it is whole; the number of appends goes on. */
static int write_whole(struct store_file *s, int (*each)(void *ctx, store_take take, void *to), void *ctx)
{
    struct head *h = calloc(1, sizeof *h);
    struct writer w = {.s = s};
    if (!h)
        return -ENOMEM;
    h->magic = MAGIC;
    h->version = STORE_VERSION;
    h->identity = s->identity;
    h->check = hash_bytes(h, offsetof(struct head, check), 0);
    s->end = LOG_AT;
    s->extent = 0;
    s->chain = h->check;
    s->seq += 2;
    int rc = ops_of(s)->write(s->file, h, sizeof *h, 0);
    free(h);
    if (!rc)
        rc = each(ctx, take_for_file, &w);
    if (!rc) {
        w.used += put_commit(s->buffer + w.used, s->seq, &s->chain);
        rc = write_out(&w);
    }
    if (!rc)
        rc = grow(s, s->end);
    for (unsigned i = 0; i < 2 && !rc; i++) {
        struct spare spare = {.seq = s->seq - i, .start = s->end, .chain = s->chain, .extent = s->extent};
        spare.check = spare_check(&spare, s->buffer);
        rc = write_spare(s, &spare, s->buffer);
    }
    return rc ? rc : ops_of(s)->sync(s->file);
}

static int snapshot(struct store *store, int (*each)(void *ctx, store_take take, void *to), void *ctx)
{
    struct store_file *s = file_of(store), next = *s;
    char temporary[STORE_PATH_LEN + 8];
    snprintf(temporary, sizeof temporary, "%s.new", s->path);
    int rc = ops_of(s)->open(s->disk, temporary, DISK_EMPTY, &next.file);
    if (rc)
        return rc;
    rc = write_whole(&next, each, ctx);
    if (!rc)
        rc = ops_of(s)->rename(s->disk, temporary, s->path);
    if (rc) {
        ops_of(s)->close(next.file);
        return rc;
    }
    if (s->file)
        ops_of(s)->close(s->file);
    next.store.since_snapshot = 0;
    *s = next;
    return 0;
}

/* ---- reading ---- */

/* Where the log must be whole, and the latest append. */
struct tail {
    struct spare spare;
    uint8_t append[STORE_APPEND_MAX];
};

/* The valid spare with the highest number. The other one may be torn, if the latest append was. */
static int find_tail(const struct store_file *s, uint64_t size, struct tail *out)
{
    if (size < LOG_AT)
        return damaged(s, size, "the file ends here, and was longer");
    struct tail *other = malloc(sizeof *other);
    if (!other)
        return -ENOMEM;
    bool first = read_spare(s, 0, &out->spare, out->append), second = read_spare(s, 1, &other->spare, other->append);
    if (second && (!first || other->spare.seq > out->spare.seq))
        *out = *other;
    free(other);
    if (!first && !second)
        return damaged(s, BLOCK, "neither of the two latest appends can be read");
    if (size < out->spare.extent)
        return damaged(s, size, "the file ends here, and was longer");
    return 0;
}

/* Applies records up to `until`, where the log must be whole. */
static int read_log(struct store_file *s, uint64_t until, store_take take, void *ctx)
{
    uint64_t held = 0; /* bytes of the buffer that are not yet read */
    while (s->end + held < until || held) {
        uint64_t more = min_u64(READ_BYTES - held, until - s->end - held), used = 0;
        int rc = ops_of(s)->read(s->file, s->buffer + held, more, s->end + held);
        if (rc)
            return rc == -ENODATA ? damaged(s, s->end + held, "the file ends here") : rc;
        held += more;
        for (struct store_record r; used < held;) {
            uint32_t len = get(s->buffer + used, held - used, &s->chain, &r);
            if (!len)
                break;
            rc = r.type == COMMIT ? 0 : take(ctx, &r);
            if (rc)
                return rc == -EINVAL ? damaged(s, s->end + used, "a record that cannot be") : rc;
            used += len;
        }
        if (!used)
            return damaged(s, s->end, "the checksum of a record is wrong");
        memmove(s->buffer, s->buffer + used, held - used);
        held -= used;
        s->end += used;
    }
    return 0;
}

/* Whether these bytes are one whole append with that number. */
static bool is_append(const uint8_t *bytes, uint64_t room, uint64_t chain, uint64_t seq, uint32_t *len)
{
    struct store_record r;
    uint32_t used = 0, n;
    do {
        n = get(bytes + used, room - used, &chain, &r);
        used += n;
    } while (n && r.type != COMMIT);
    *len = used;
    return n && r.len == sizeof seq && !memcmp(r.data, &seq, sizeof seq);
}

/* Applies an append that was read to the buffer. */
static int apply(struct store_file *s, uint32_t len, store_take take, void *ctx)
{
    int rc = 0;
    struct store_record r;
    for (uint32_t used = 0; used < len && !rc;) {
        used += get(s->buffer + used, len - used, &s->chain, &r);
        rc = r.type == COMMIT ? 0 : take(ctx, &r);
        if (rc == -EINVAL)
            rc = damaged(s, s->end + used, "a record that cannot be");
    }
    s->end += len;
    s->seq++;
    return rc;
}

/* The latest append: from the log, or from its spare. Then one that came after it, if it is whole: its spare is damaged, or it was
 * not acknowledged; both are well with it in the log. */
static int read_tail(struct store_file *s, const struct tail *t, store_take take, void *ctx)
{
    int rc = 0;
    uint32_t len;
    s->seq = t->spare.seq - (t->spare.len != 0);
    if (t->spare.len) {
        if (s->chain != t->spare.chain || !is_append(t->append, t->spare.len, s->chain, t->spare.seq, &len) || len != t->spare.len)
            return damaged(s, s->end, "the log does not lead to its latest append");
        rc = ops_of(s)->read(s->file, s->buffer, len, s->end);
        if (rc || memcmp(s->buffer, t->append, len) != 0) { /* synced before the next append relies on it */
            memcpy(s->buffer, t->append, len);
            rc = ops_of(s)->write(s->file, s->buffer, len, s->end);
            if (!rc)
                rc = ops_of(s)->sync(s->file);
        }
        if (!rc)
            rc = apply(s, len, take, ctx);
    }
    uint64_t room = min_u64(STORE_APPEND_MAX, s->extent - min_u64(s->end, s->extent));
    if (!rc)
        rc = ops_of(s)->read(s->file, s->buffer, room, s->end);
    if (rc || !is_append(s->buffer, room, s->chain, s->seq + 1, &len))
        return rc;
    struct spare spare = {.seq = s->seq + 1, .start = s->end, .chain = s->chain, .extent = s->extent, .len = len};
    spare.check = spare_check(&spare, s->buffer);
    rc = write_spare(s, &spare, s->buffer); /* before the next append goes to the spare that is valid */
    if (!rc)
        rc = ops_of(s)->sync(s->file);
    return rc ? rc : apply(s, len, take, ctx);
}

static int read_head(struct store_file *s, uint64_t size, struct store_identity *identity)
{
    struct head h;
    int rc = ops_of(s)->read(s->file, &h, sizeof h, 0);
    if (rc)
        return rc == -ENODATA ? damaged(s, size, "the file ends here") : rc;
    if (h.magic != MAGIC && h.check != hash_bytes(&h, offsetof(struct head, check), 0))
        return explain(-EINVAL, "%s: not the state of a space (byte 0)", s->path);
    if (h.magic != MAGIC || h.check != hash_bytes(&h, offsetof(struct head, check), 0))
        return damaged(s, 0, "the checksum of the head is wrong");
    if (h.version != STORE_VERSION)
        return explain(-EINVAL, "%s: has version %u of the format (byte 8), and this is a pawl for version %u", s->path, h.version,
                       STORE_VERSION);
    if (strncmp(h.identity.space, identity->space, sizeof h.identity.space) != 0)
        return explain(-EINVAL, "%s: belongs to the space '%.*s' (byte 16), not to '%s'", s->path, STORE_SPACE_LEN - 1,
                       h.identity.space, identity->space);
    *identity = s->identity = h.identity;
    s->chain = h.check;
    s->end = LOG_AT;
    return 0;
}

static int load(struct store_file *s, enum store_how how, struct store_identity *identity, store_take take, void *ctx)
{
    uint64_t size = 0;
    int rc = ops_of(s)->size(s->file, &size);
    struct tail *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    if (!rc)
        rc = read_head(s, size, identity);
    if (!rc) {
        rc = find_tail(s, size, t);
        if (!rc || (rc == -EBADMSG && how == STORE_RESTORE)) {
            bool whole = !rc;
            s->extent = whole ? t->spare.extent : size;
            rc = read_log(s, whole ? t->spare.start : size, take, ctx);
            if (!rc && whole)
                rc = read_tail(s, t, take, ctx);
        }
    }
    free(t);
    return rc;
}

/* ---- opening ---- */

static const struct store_ops ops;

static void close_all(struct store *store)
{
    struct store_file *s = file_of(store);
    if (s->file)
        ops_of(s)->close(s->file);
    if (s->lock)
        ops_of(s)->close(s->lock);
    free(s->buffer);
    s->file = s->lock = NULL;
    s->buffer = NULL;
}

static int open_fresh(struct store_file *s, struct store_identity *identity, int (*each)(void *ctx, store_take take, void *to),
                      void *ctx)
{
    char old[STORE_PATH_LEN + 8];
    snprintf(old, sizeof old, "%s.old", s->path);
    int rc = ops_of(s)->rename(s->disk, s->path, old);
    bool had = !rc;
    s->identity = *identity;
    rc = rc && rc != -ENOENT ? rc : snapshot(&s->store, each, ctx);
    if (rc && had)
        ops_of(s)->rename(s->disk, old, s->path);
    return rc ? explain(rc, "%s: cannot be made: %s", s->path, strerror(-rc)) : 0;
}

static int missing(const struct store_file *s, const struct store_identity *identity)
{
    return explain(-ENOENT,
                   "%s: missing, and the space '%s' may have had names and holders. If it is new, start with --fresh; if it is "
                   "not, name its folder with --state",
                   s->path, identity->space);
}

static int open_existing(struct store_file *s, enum store_how how, struct store_identity *identity, store_take take, void *ctx)
{
    int rc = ops_of(s)->open(s->disk, s->path, DISK_EXISTING, &s->file);
    if (rc == -ENOENT)
        return missing(s, identity);
    if (!rc)
        rc = load(s, how, identity, take, ctx);
    if (rc == -EBADMSG && how == STORE_RESTORE && s->end)
        return 0; /* the caller has what was before the damage, and writes a snapshot */
    return rc == -EBADMSG || rc == -EINVAL || !rc ? rc : explain(rc, "%s: cannot be read: %s", s->path, strerror(-rc));
}

/* A file that could not be opened, and is not there, leaves nothing behind. */
static void clear_up(struct store_file *s, const char *lock)
{
    char temporary[STORE_PATH_LEN + 8];
    struct disk_file *there;
    int rc = s->lock ? ops_of(s)->open(s->disk, s->path, DISK_EXISTING, &there) : -EBUSY;
    if (!rc)
        ops_of(s)->close(there);
    if (rc != -ENOENT)
        return;
    snprintf(temporary, sizeof temporary, "%s.new", s->path);
    ops_of(s)->remove(s->disk, temporary);
    ops_of(s)->remove(s->disk, lock);
}

int store_file_open(struct store_file *s, struct disk *disk, const char *path, enum store_how how, struct store_identity *identity,
                    store_take take, int (*each)(void *ctx, store_take take, void *to), void *ctx)
{
    char beside[STORE_PATH_LEN + 8];
    memset(s, 0, sizeof *s);
    s->store.ops = &ops;
    s->disk = disk;
    if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path)
        return explain(-ENAMETOOLONG, "%.64s...: the path is too long", path);
    s->buffer = malloc(READ_BYTES);
    if (!s->buffer)
        return explain(-ENOMEM, "out of memory");
    snprintf(beside, sizeof beside, "%s.lock", path);
    int rc = disk->ops->lock(disk, beside, &s->lock);
    if (rc) {
        s->lock = NULL;
        rc = rc == -EBUSY    ? explain(rc, "%s: another coordinator uses it", path)
             : rc == -ENOENT ? missing(s, identity) /* its folder is */
                             : explain(rc, "%s: %s", beside, strerror(-rc));
    } else {
        rc = how == STORE_FRESH ? open_fresh(s, identity, each, ctx) : open_existing(s, how, identity, take, ctx);
    }
    if (rc)
        clear_up(s, beside);
    if (rc)
        close_all(&s->store);
    return rc;
}

static const struct store_ops ops = {.cost = cost, .append = append, .snapshot = snapshot, .close = close_all};
