/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a coordinator, given what it does not expect: records that cannot be, configurations that are not the space's, and a
 * disk on which each call fails once. What was acknowledged is there when the disk works again. */
#include "cluster/service.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"
#include "world/sim_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "state"
#define NAMES 12u
#define CALLS_MAX 2000u /* of the disk in one pass: far more than there are */

static struct sim_disk disk;
static struct service service;
static uint64_t now = NS_PER_S;

/* ---- a disk whose n-th call fails ---- */

static uint64_t calls, fails_at; /* 0: never */
static int fails_with;

static int fails(void)
{
    return ++calls == fails_at ? fails_with : 0;
}

static int faulty_lock(struct disk *d, const char *path, struct disk_file **out)
{
    (void)d;
    int rc = fails();
    return rc ? rc : disk.disk.ops->lock(&disk.disk, path, out);
}

static int faulty_open(struct disk *d, const char *path, enum disk_open how, struct disk_file **out)
{
    (void)d;
    int rc = fails();
    return rc ? rc : disk.disk.ops->open(&disk.disk, path, how, out);
}

static void faulty_close(struct disk_file *f)
{
    disk.disk.ops->close(f);
}

static int faulty_size(struct disk_file *f, uint64_t *out)
{
    int rc = fails();
    return rc ? rc : disk.disk.ops->size(f, out);
}

static int faulty_read(struct disk_file *f, void *to, uint64_t len, uint64_t at)
{
    int rc = fails();
    return rc ? rc : disk.disk.ops->read(f, to, len, at);
}

static int faulty_write(struct disk_file *f, const void *from, uint64_t len, uint64_t at)
{
    int rc = fails();
    return rc ? rc : disk.disk.ops->write(f, from, len, at);
}

static int faulty_extend(struct disk_file *f, uint64_t bytes)
{
    int rc = fails();
    return rc ? rc : disk.disk.ops->extend(f, bytes);
}

static int faulty_sync(struct disk_file *f)
{
    int rc = fails();
    return rc ? rc : disk.disk.ops->sync(f);
}

static int faulty_rename(struct disk *d, const char *from, const char *to)
{
    (void)d;
    int rc = fails();
    return rc ? rc : disk.disk.ops->rename(&disk.disk, from, to);
}

static int faulty_remove(struct disk *d, const char *path)
{
    (void)d;
    int rc = fails();
    return rc ? rc : disk.disk.ops->remove(&disk.disk, path);
}

static struct disk faulty = {.ops = &(const struct disk_ops){.lock = faulty_lock,
                                                             .open = faulty_open,
                                                             .close = faulty_close,
                                                             .size = faulty_size,
                                                             .read = faulty_read,
                                                             .write = faulty_write,
                                                             .extend = faulty_extend,
                                                             .sync = faulty_sync,
                                                             .rename = faulty_rename,
                                                             .remove = faulty_remove}};

/* ---- a service on it ---- */

static struct coord_params rack(const char *design)
{
    struct coord_params p = coordinator_rack(design, 3);
    p.locks = 1000;
    p.keys = PAWL_KEYS_NAMED;
    return p;
}

static int open_with(struct coord_params p, enum store_how how)
{
    const struct state_params where = {.disk = &faulty, .path = PATH, .how = how, .id = {7, 8}, .life = 5};
    p.fresh = how == STORE_FRESH;
    return service_open(&service, &p, &where, now);
}

static int open_it(enum store_how how)
{
    return open_with(rack("srvlock"), how);
}

static uint32_t name_of(unsigned i, char out[32])
{
    return (uint32_t)snprintf(out, 32, "name %u", i);
}

/* Names that are not in the directory yet, up to `count`; a lock server joins, too. */
static void add_names(unsigned count)
{
    char name[32];
    uint64_t index;
    for (unsigned i = (unsigned)service.state.directory.count; i < count; i++)
        CHECK_EQ(directory_add(&service.state.directory, name, name_of(i, name), 7, &index), 0);
    struct coord_packet p;
    struct service_answer a;
    coord_make(&p, COORD_JOIN, "test", &service.coordinator.config.identity, 40);
    p.role = COORD_SERVER;
    p.at = net_v4(2, 70);
    service_packet(&service, &p, sizeof p, net_v4(2, 70), now, &a);
}

/* The names of the first `least`, in their order, and no others. How many there are. */
static uint64_t names_there(uint64_t least)
{
    const struct directory *d = &service.state.directory;
    char name[32];
    uint64_t index;
    for (unsigned i = 0; i < d->count; i++) {
        CHECK_EQ(directory_find(d, name, name_of(i, name), &index), 0);
        CHECK_EQ(index, i);
    }
    if (d->count < least)
        CHECK_FAIL("%" PRIu64 " names are there instead of %" PRIu64, d->count, least);
    return d->count;
}

/* Opens, writes, opens again, and makes a snapshot, while call `at` of the disk fails. The number of names that were acknowledged.
 */
static uint64_t use_it(uint64_t at, int error, bool restore)
{
    uint64_t acknowledged = 0;
    calls = 0;
    fails_at = at;
    fails_with = error;
    for (unsigned pass = 0; pass < 4; pass++) {
        enum store_how how = !pass ? STORE_FRESH : restore ? STORE_RESTORE : STORE_CONTINUE;
        int rc = open_it(how);
        if (rc && pass == 0)
            rc = open_it(STORE_FRESH); /* the disk works again */
        if (rc) {
            CHECK(calls >= fails_at && fails_at && strstr(explained(), PATH));
            CHECK_EQ(rc = open_it(STORE_CONTINUE), 0);
        }
        names_there(acknowledged);
        add_names((pass + 1) * NAMES / 4);
        service_commit(&service, NULL, 0, now);
        acknowledged = service.state.directory.count - service.state.directory.changed.count;
        CHECK(service.failed <= 1 && (!service.state.directory.changed.count || service.failed));
        service_commit(&service, NULL, 0, now); /* what failed is written now */
        CHECK_EQ(service.state.directory.changed.count, 0);
        acknowledged = service.state.directory.count;
        if (pass == 2 && service.store->ops->snapshot(service.store, state_each, &service.state))
            CHECK(calls >= fails_at && fails_at);
        service_close(&service);
        sim_disk_crash(&disk); /* nothing that was not synced is left */
    }
    fails_at = 0;
    CHECK_EQ(open_it(STORE_CONTINUE), 0);
    CHECK_EQ(names_there(acknowledged), acknowledged);
    CHECK(service.state.server[0].life && service.state.server[0].at.port == net_v4(2, 70).port); /* I17 */
    service_close(&service);
    return calls;
}

static void begin(uint64_t seed)
{
    sim_disk_free(&disk);
    sim_disk_init(&disk, NULL, seed);
}

static void every_call_fails(int error, bool restore)
{
    uint64_t n = 0, all = 1;
    for (; n <= all && n < CALLS_MAX; n++) {
        begin(n);
        uint64_t used = use_it(n, error, restore);
        all = n ? all : used;
    }
    printf("%" PRIu64 " calls of the disk, each of them failed once (%s)\n", all, strerror(-error));
    CHECK(n > 50 && n < CALLS_MAX);
}

/* ---- the space is another one ---- */

#define REFUSED(text, ...)                                                                                                         \
    do {                                                                                                                           \
        struct coord_params p = rack("srvlock");                                                                                   \
        __VA_ARGS__;                                                                                                               \
        CHECK_EQ(open_with(p, STORE_CONTINUE), -EINVAL);                                                                           \
        if (!strstr(explained(), text))                                                                                            \
            CHECK_FAIL("%s: %s", #__VA_ARGS__, explained());                                                                       \
    } while (0)

static void other_configurations(void)
{
    begin(1);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    uint32_t version = service.coordinator.config.identity.version;
    const uint64_t *id = service.coordinator.config.identity.id;
    CHECK(id[0] == 7 && id[1] == 8); /* that of the file (open_with), as members will know it */
    service_close(&service);
    REFUSED("design", p = rack("netlock"));
    REFUSED("can grow but not shrink", p.locks = 999);
    REFUSED("--keys", p.keys = PAWL_KEYS_SPARSE);
    REFUSED("must not be 0", p.machines = 0);
    struct coord_params p = rack("srvlock");
    p.lease_ns *= 2; /* another configuration of the same space */
    CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
    CHECK_EQ(service.coordinator.config.identity.version, version + 1);
    CHECK_EQ(service.state.lease_ns, p.lease_ns);
    service_close(&service);
    p.lease_ns /= 2; /* the longer leases may still run (I16) */
    CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
    CHECK_EQ(service.state.lease_ns, 2 * p.lease_ns);
    CHECK_EQ(service.coordinator.config.identity.version, version + 2);
    service_close(&service);

    begin(2);
    p = rack("fisslock-racks");
    p.servers = 0;
    p.racks = 2;
    CHECK_EQ(open_with(p, STORE_FRESH), 0);
    service_close(&service);
    p.racks = 3;
    CHECK_EQ(open_with(p, STORE_CONTINUE), -EINVAL);
    CHECK(strstr(explained(), "2 racks"));
    p.racks = 2;
    CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
    service_close(&service);

    begin(3);
    for (enum pawl_keys keys = PAWL_KEYS_NAMED; keys <= PAWL_KEYS_DENSE; keys++) { /* as the refusal names them */
        static const char *const said[] = {[PAWL_KEYS_NAMED] = "named", [PAWL_KEYS_SPARSE] = "sparse", [PAWL_KEYS_DENSE] = "dense"};
        p = rack("srvlock");
        p.keys = keys;
        CHECK_EQ(open_with(p, STORE_FRESH), 0);
        service_close(&service);
        p.keys = keys == PAWL_KEYS_NAMED ? PAWL_KEYS_SPARSE : PAWL_KEYS_NAMED;
        CHECK_EQ(open_with(p, STORE_CONTINUE), -EINVAL);
        CHECK(strstr(explained(), said[keys]));
        p.keys = keys;
        p.group++;
        CHECK_EQ(open_with(p, STORE_CONTINUE), -EINVAL);
        CHECK(strstr(explained(), "--keys as they were"));
        p.group--;
        p.locks++; /* it grows */
        CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
        CHECK_EQ(service.coordinator.config.locks, p.locks);
        service_close(&service);
    }
}

/* Each growth has a part of the directory of its own. */
static void grows_too_often(void)
{
    struct coord_params p = rack("srvlock");
    begin(4);
    CHECK_EQ(open_with(p, STORE_FRESH), 0);
    service_close(&service);
    for (unsigned i = 1; i < DIRECTORY_PARTS_MAX; i++) {
        p.locks++;
        CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
        service_close(&service);
    }
    p.locks++;
    CHECK_EQ(open_with(p, STORE_CONTINUE), -ERANGE);
    CHECK(strstr(explained(), "cannot grow again"));
    p.locks--;
    CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
    service_close(&service);
}

/* All lives are given: no later one would be above them. */
static void no_life_left(void)
{
    begin(1);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    const uint32_t last = UINT32_MAX - 1;
    const struct store_record r = {.type = STATE_LIVES, .len = sizeof last, .data = &last};
    CHECK_EQ(service.store->ops->append(service.store, &r, 1), 0);
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), -EOVERFLOW);
    CHECK(strstr(explained(), "--fresh"));
}

/* ---- answers that tell of what is not written ---- */

static struct service_answer asks(const char *name, bool look)
{
    struct service_answer a;
    struct coord_key k;
    memset(&k, 0, sizeof k);
    coord_make(&k.packet, COORD_FIND, "test", &service.coordinator.config.identity, 9);
    k.look = look;
    k.len = (uint32_t)strlen(name);
    memcpy(k.bytes, name, k.len);
    CHECK(service_packet(&service, &k, sizeof k, net_v4(1, 9), now, &a));
    CHECK_EQ(((const struct coord_packet *)(const void *)a.bytes)->head.type, COORD_FOUND);
    return a;
}

static struct service_answer asks_for(const char *name)
{
    return asks(name, false);
}

static struct service_answer joins(uint64_t nonce)
{
    struct service_answer a;
    struct coord_packet p;
    coord_make(&p, COORD_JOIN, "test", &service.coordinator.config.identity, nonce);
    p.role = COORD_SERVER;
    p.at = net_v4(2, 70);
    CHECK(service_packet(&service, &p, sizeof p, p.at, now, &a));
    return a;
}

static int code_of(const struct service_answer *a)
{
    return ((const struct coord_packet *)(const void *)a->bytes)->code;
}

static void withheld(void)
{
    begin(1);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    struct service_answer a[4] = {asks_for("known")};
    CHECK_EQ(service_commit(&service, a, 1, now), 1);
    CHECK_EQ(code_of(&a[0]), 0);
    a[0] = joins(40); /* tells of a place */
    a[1] = asks_for("known");
    a[2] = asks_for("new");
    a[3] = asks("nobody's", true);
    const int none = code_of(&a[3]);
    CHECK(a[0].unwritten && none);
    calls = 0;
    fails_at = 1;
    fails_with = -EIO;
    disk.syncs_left = 1;                              /* and all that follow */
    CHECK_EQ(service_commit(&service, a, 4, now), 3); /* I17: the place is not told */
    CHECK_EQ(code_of(&a[0]), 0);                      /* a known key is found */
    CHECK_EQ(code_of(&a[1]), -EIO);                   /* I7: the new one is not */
    CHECK_EQ(code_of(&a[2]), none);                   /* an unknown key is not found, whatever the log contains */
    fails_at = 0;
    disk.syncs_left = 0;
    a[0] = joins(40);
    a[1] = asks_for("new");
    CHECK_EQ(service_commit(&service, a, 2, now), 2);
    CHECK_EQ(code_of(&a[1]), 0);
    service_close(&service);
}

/* ---- logs that no coordinator writes ---- */

static int append(uint8_t type, const void *data, uint16_t len)
{
    const struct store_record r = {.type = type, .len = len, .data = data};
    return service.store->ops->append(service.store, &r, 1);
}

/* Records of the log that cannot be are damage, in the latest append and before it; --restore goes on with what is before them. */
static void strange_records(bool latest)
{
    uint32_t lives = 9000;
    begin(2);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    add_names(2);
    service_commit(&service, NULL, 0, now);
    CHECK_EQ(append(STATE_LIVES, &lives, sizeof lives - 1), 0);
    if (!latest)
        CHECK(!append(STATE_LIVES, &lives, sizeof lives) && !append(STATE_LIVES, &lives, sizeof lives));
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
    CHECK(strstr(explained(), "a record that cannot be") && strstr(explained(), PATH));
    CHECK_EQ(open_it(STORE_RESTORE), 0);
    CHECK(names_there(2) == 2 && service.state.lives != lives);
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), 0);
    service_close(&service);
    CHECK_EQ(open_it(STORE_FRESH), 0); /* without data, and of a type that is not known */
    CHECK_EQ(append(200, NULL, 0), 0);
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
}

#define BLOCK 4096u /* of store_file.c */

/* Both copies of the latest appends are gone: refused, and restored up to the first bad record. */
static void both_slots(void)
{
    begin(3);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    add_names(3);
    service_commit(&service, NULL, 0, now);
    service_close(&service);
    struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
    sim_disk_flip(e, BLOCK + 1, 1);
    sim_disk_flip(e, BLOCK + BLOCK + STORE_APPEND_MAX + 1, 1);
    CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
    CHECK(strstr(explained(), "byte 4096"));
    uint32_t before = 0;
    CHECK_EQ(open_it(STORE_RESTORE), 0);
    CHECK_EQ(names_there(3), 3);
    before = service.first_life;
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), 0);
    CHECK(service.first_life > before); /* I15 */
    service_close(&service);
}

/* The head: another magic with a right checksum, another version. */
static void heads(void)
{
    struct head {
        uint64_t magic;
        uint32_t version, pad;
        uint8_t rest[BLOCK - 24];
        uint64_t check;
    } * h;
    for (unsigned i = 0; i < 2; i++) {
        begin(4);
        CHECK_EQ(open_it(STORE_FRESH), 0);
        service_close(&service);
        struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
        h = (struct head *)(void *)e->seen.bytes;
        *(i ? &h->version : (uint32_t *)(void *)&h->magic) += 1;
        h->check = hash_bytes(h, offsetof(struct head, check), 0);
        CHECK_EQ(open_it(STORE_CONTINUE), i ? -EINVAL : -EBADMSG);
        CHECK(strstr(explained(), i ? "version 2" : "byte 0"));
        CHECK(open_it(STORE_RESTORE) < 0); /* nothing in it can be trusted */
    }
}

/* ---- appends that are whole by their checksums and cannot be ---- */

#define SPARE_BYTES (BLOCK + STORE_APPEND_MAX) /* of store_file.c, from here on */
#define COMMIT 255u

struct spare {
    uint64_t seq, start, chain, extent, len, check;
};

struct record {
    uint32_t check;
    uint8_t type, pad;
    uint16_t len;
};

static uint8_t *append_of(struct spare *s)
{
    return (uint8_t *)(s + 1);
}

/* The append has one record, which the checksums fit. */
static void put_record(struct spare *s, uint8_t type, uint16_t len, uint64_t data)
{
    uint8_t *to = append_of(s);
    uint64_t chain = hash_bytes(&data, len, s->chain ^ (uint64_t)type << 56 ^ (uint64_t)len << 40);
    struct record head = {.check = (uint32_t)chain, .type = type, .len = len};
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, &data, len);
    s->len = sizeof head + len;
}

static void too_long(struct spare *s)
{
    s->len = STORE_APPEND_MAX + 1;
}

static void others_place(struct spare *s)
{
    s->seq++;
}

static void before_log(struct spare *s)
{
    s->start = BLOCK;
}

static void behind_end(struct spare *s)
{
    s->start = s->extent + 1;
}

static void other_chain(struct spare *s)
{
    s->chain ^= 1;
}

static void torn_record(struct spare *s)
{
    append_of(s)[sizeof(struct record)] ^= 1;
}

static void more_behind(struct spare *s)
{
    s->len += sizeof(struct record);
}

static void other_number(struct spare *s)
{
    put_record(s, COMMIT, sizeof s->seq, s->seq + 2);
}

static void short_commit(struct spare *s)
{
    put_record(s, COMMIT, sizeof(uint32_t), s->seq);
}

static void no_commit(struct spare *s)
{
    put_record(s, STATE_LIVES, sizeof(uint32_t), 9000);
}

/* Both copies of the latest appends are refused, or the log does not lead to them. */
static void strange_appends(void)
{
    static const struct {
        void (*change)(struct spare *s);
        const char *says;
    } cases[] = {{too_long, "neither of the two"},   {others_place, "neither of the two"}, {before_log, "neither of the two"},
                 {behind_end, "neither of the two"}, {other_chain, "does not lead"},       {torn_record, "does not lead"},
                 {more_behind, "does not lead"},     {other_number, "does not lead"},      {short_commit, "does not lead"},
                 {no_commit, "does not lead"}};
    for (unsigned i = 0; i < countof(cases); i++) {
        begin(6);
        CHECK_EQ(open_it(STORE_FRESH), 0);
        add_names(2);
        service_commit(&service, NULL, 0, now);
        service_close(&service);
        struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
        for (unsigned which = 0; which < 2; which++) {
            struct spare *s = (struct spare *)(void *)(e->seen.bytes + BLOCK + which * SPARE_BYTES);
            cases[i].change(s);
            s->check = 0;
            s->check = hash_bytes(append_of(s), s->len, hash_bytes(s, sizeof *s, 0));
        }
        CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
        if (!strstr(explained(), cases[i].says))
            CHECK_FAIL("case %u: %s", i, explained());
    }
}

/* The latest append is in the log, and its copy is torn: it counts, and is copied before the next one; each call of the disk fails
 * once meanwhile. */
static void torn_copy(void)
{
    uint64_t all = 1;
    for (uint64_t n = 0; n <= all; n++) {
        begin(7);
        CHECK_EQ(open_it(STORE_FRESH), 0);
        add_names(2);
        service_commit(&service, NULL, 0, now);
        service_close(&service);
        struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
        struct spare s[2];
        for (unsigned which = 0; which < 2; which++)
            memcpy(&s[which], e->seen.bytes + BLOCK + which * SPARE_BYTES, sizeof s[which]);
        sim_disk_flip(e, BLOCK + (s[1].seq > s[0].seq) * SPARE_BYTES, 1);
        calls = 0;
        fails_at = n;
        fails_with = -EIO;
        int rc = open_it(STORE_CONTINUE);
        if (!n)
            all = calls;
        fails_at = 0;
        CHECK(!rc || (n && strstr(explained(), PATH)));
        if (rc)
            CHECK_EQ(open_it(STORE_CONTINUE), 0);
        CHECK_EQ(names_there(2), 2);
        service_close(&service);
        CHECK_EQ(open_it(STORE_CONTINUE), 0);
        CHECK_EQ(names_there(2), 2);
        service_close(&service);
    }
}

/* Records that the reader does not take, as if it had no memory: in the log, and in the latest append. */
static unsigned taken, takes_until;

static int take_some(void *to, const struct store_record *r)
{
    (void)to, (void)r;
    return taken++ == takes_until ? -ENOMEM : 0;
}

static void reader_fails(void)
{
    struct store_identity identity = {.space = "test"};
    struct store_file file;
    begin(8);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    add_names(3);
    service_commit(&service, NULL, 0, now);
    service_close(&service);
    unsigned all = 0;
    for (takes_until = UINT32_MAX; takes_until; takes_until = takes_until == UINT32_MAX ? all - 1 : takes_until - 1) {
        taken = 0;
        int rc = store_file_open(&file, &disk.disk, PATH, STORE_CONTINUE, &identity, take_some, NULL, NULL);
        CHECK_EQ(rc, takes_until == UINT32_MAX ? 0 : -ENOMEM);
        if (!rc) {
            all = taken;
            file.store.ops->close(&file.store);
        }
    }
    CHECK(all > 3);
}

/* A log that ends with its latest append, whose copies are gone: restored as a whole. One that ends within a record is not. */
static void cut_log(unsigned behind)
{
    begin(9);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    add_names(3);
    service_commit(&service, NULL, 0, now);
    uint64_t end = service.file.end;
    service_close(&service);
    struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
    sim_disk_cut(e, end + behind);
    CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
    CHECK_EQ(open_it(STORE_RESTORE), 0);
    CHECK_EQ(names_there(3), 3);
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), 0);
    CHECK_EQ(names_there(3), 3);
    service_close(&service);
}

/* ---- settings ---- */

static int no_records(void *ctx, store_take take, void *to)
{
    (void)ctx, (void)take, (void)to;
    return 0;
}

static int short_settings(void *ctx, store_take take, void *to)
{
    const struct state_config c = {.design = "srvlock"};
    (void)ctx;
    return take(to, &(struct store_record){.type = STATE_CONFIG, .len = sizeof c - 1, .data = &c});
}

static void make_log(int (*each)(void *ctx, store_take take, void *to))
{
    struct store_identity identity = {.space = "test"};
    struct store_file file;
    begin(10);
    CHECK_EQ(store_file_open(&file, &disk.disk, PATH, STORE_FRESH, &identity, NULL, each, NULL), 0);
    file.store.ops->close(&file.store);
}

/* A log without settings, or with some that cannot be; settings of designs that this build has not. */
static void strange_settings(void)
{
    struct state_config c = {.design = "no-such-design"};
    struct coord_params p;
    make_log(no_records);
    CHECK_EQ(open_it(STORE_CONTINUE), -EBADMSG);
    CHECK(strstr(explained(), "configuration of the space cannot be read"));
    CHECK_EQ(service_settings(&disk.disk, PATH, "test", &c), 0);
    CHECK_EQ(c.config.locks, 0);
    make_log(short_settings);
    CHECK_EQ(service_settings(&disk.disk, PATH, "test", &c), -EBADMSG);
    for (unsigned i = 0; i < 3; i++) {
        memset(c.design, i ? 0 : 'x', sizeof c.design);
        if (i)
            snprintf(c.design, sizeof c.design, "%s", i == 1 ? "no-such-design" : "word");
        CHECK_EQ(service_params(&c, &p), -EINVAL);
        CHECK(strstr(explained(), "this build does not have"));
    }
    snprintf(c.design, sizeof c.design, "srvlock");
    CHECK_EQ(service_params(&c, &p), 0);
}

/* ---- more than one append has room for ---- */

/* As many short names as one append has no records for, long ones beyond its bytes, values, and hosts. */
static void many_at_once(void)
{
    struct coord_params p = rack("srvlock");
    char name[DIRECTORY_KEY_MAX + 1];
    uint64_t index;
    p.machines = 200;
    begin(11);
    CHECK_EQ(open_with(p, STORE_FRESH), 0);
    struct directory *d = &service.state.directory;
    for (unsigned i = 0; i < 800; i++) {
        int len = snprintf(name, sizeof name, i < 600 ? "%u" : "%0200u", i);
        CHECK_EQ(directory_add(d, name, (uint32_t)len, 7, &index), 0);
    }
    for (unsigned i = 0; i < 300; i++) {
        memset(name, (int)i, PAWL_VALUE_MAX);
        struct value *v = values_of(&service.state.values, i, 7);
        CHECK(v && !values_set(&service.state.values, v, i + 1, 0, name, PAWL_VALUE_MAX));
    }
    for (uint16_t m = 1; m <= p.machines; m++)
        service.members[m] = (struct coord_member){.live = true, .nonce = m, .life = m + p.life - 1, .unwritten = true};
    service_commit(&service, NULL, 0, now);
    service.coordinator.hosts_changed = true;
    calls = 0;
    fails_at = 1;
    fails_with = -EIO;
    service_commit(&service, NULL, 0, now);
    CHECK(service.failed == 1 && service.coordinator.hosts_changed && !service.state.host[p.machines]);
    fails_at = 0;
    service_commit(&service, NULL, 0, now);
    CHECK(!d->changed.count && !service.state.values.changed_count && service.failed == 1);
    service_close(&service);
    CHECK_EQ(open_with(p, STORE_CONTINUE), 0);
    CHECK_EQ(service.state.directory.count, 800);
    CHECK_EQ(service.state.values.count, 300);
    for (uint16_t m = 1; m <= p.machines; m++)
        CHECK_EQ(service.state.host[m], m + p.life - 1);
    service_close(&service);
}

/* A log of replaced records becomes a snapshot, and stays small. */
static void garbage(void)
{
    begin(5);
    CHECK_EQ(open_it(STORE_FRESH), 0);
    add_names(3);
    service_commit(&service, NULL, 0, now);
    uint32_t lives = service.state.lives;
    for (unsigned i = 0; i < 20000; i++)
        CHECK_EQ(append(STATE_LIVES, &lives, sizeof lives), 0);
    uint64_t before = service.store->since_snapshot;
    CHECK(before > 256 << 10);
    service_commit(&service, NULL, 0, now);
    CHECK(service.store->since_snapshot < 1000);
    service_close(&service);
    CHECK_EQ(open_it(STORE_CONTINUE), 0);
    CHECK_EQ(names_there(3), 3);
    service_close(&service);
}

/* ---- records ---- */

static struct rack_state state;

static int take(enum state_record type, const void *data, size_t len)
{
    const struct store_record r = {.type = (uint8_t)type, .len = (uint16_t)len, .data = data};
    return state_take(&state, &r);
}

static int take_config(struct state_config c)
{
    return take(STATE_CONFIG, &c, sizeof c);
}

static void start(struct state_config *c, enum pawl_keys keys, uint16_t racks)
{
    state_free(&state);
    memset(&state, 0, sizeof state);
    memset(c, 0, sizeof *c);
    *c = (struct state_config){.design = "srvlock", .config = {.locks = 10, .keys = keys, .racks = racks}};
}

#define BAD(config, ...)                                                                                                           \
    do {                                                                                                                           \
        struct state_config bad_ = (config), *c_ = &bad_;                                                                          \
        __VA_ARGS__;                                                                                                               \
        CHECK_EQ(take_config(bad_), -EINVAL);                                                                                      \
    } while (0)

static int take_name(enum state_record type, uint64_t index, uint32_t generation, const char *bytes)
{
    struct {
        struct state_key key;
        char bytes[8];
    } r = {.key = {.index = index, .generation = generation}};
    memcpy(r.bytes, bytes, strlen(bytes));
    return take(type, &r, (uint16_t)(sizeof r.key + strlen(bytes)));
}

/* A name has one lock, and a lock one name, until it has gone. */
static void names(struct state_config c)
{
    CHECK_EQ(take_name(STATE_NAME, 1, 7, "a"), 0);
    CHECK_EQ(take_name(STATE_NAME, 1, 7, "a"), 0);       /* once more */
    CHECK_EQ(take_name(STATE_NAME, 1, 8, "a"), -EINVAL); /* another generation of a key that has not gone */
    CHECK_EQ(take_name(STATE_NAME, 2, 7, "a"), -EINVAL); /* a second lock */
    CHECK_EQ(take_name(STATE_NAME, 1, 7, "b"), -EINVAL); /* two keys */
    CHECK_EQ(take_name(STATE_NAME, 10, 7, "b"), -EINVAL);
    CHECK_EQ(take_name(STATE_NAME, 2, 7, ""), -EINVAL);
    CHECK_EQ(take(STATE_NAME, "a", 1), -EINVAL);
    CHECK_EQ(state.directory.used, 1);
    CHECK_EQ(take_name(STATE_GONE, 1, 7, "a"), -EINVAL); /* too long */
    CHECK_EQ(take_name(STATE_GONE, 10, 7, ""), -EINVAL);
    CHECK_EQ(take_name(STATE_GONE, 1, 6, ""), 0); /* that one has gone before */
    CHECK_EQ(state.directory.used, 1);
    CHECK_EQ(take_name(STATE_GONE, 1, 7, ""), 0);
    CHECK_EQ(state.directory.used, 0);
    CHECK_EQ(take_name(STATE_NAME, 1, 8, "b"), 0);
    c.config.locks = 12; /* it grows */
    CHECK_EQ(take_config(c), 0);
    CHECK_EQ(take_name(STATE_NAME, 11, 8, "c"), 0);
}

static void rules_records(void)
{
    struct rules rules = state.rules;
    rules.now.version += 2;
    CHECK_EQ(take(STATE_RULES, &rules, sizeof rules - 1), -EINVAL);
    CHECK_EQ(take(STATE_RULES, &rules, sizeof rules), 0);
    struct rules bad = rules;
    bad.now.version--; /* rules do not go back */
    CHECK_EQ(take(STATE_RULES, &bad, sizeof bad), -EINVAL);
    bad = rules;
    memset(bad.now.owner, 0xff, sizeof bad.now.owner);
    CHECK_EQ(take(STATE_RULES, &bad, sizeof bad), -EINVAL);
    bad = rules;
    memset(bad.before.owner, 0xff, sizeof bad.before.owner);
    CHECK_EQ(take(STATE_RULES, &bad, sizeof bad), -EINVAL);
    CHECK_EQ(state.rules.now.version, rules.now.version);
}

static void records(void)
{
    struct state_config c;
    uint32_t life = 9;
    uint64_t lease = 77;
    start(&c, PAWL_KEYS_NAMED, 2);
    CHECK_EQ(take(STATE_LIVES, &life, sizeof life), -EINVAL); /* the configuration comes first */
    CHECK_EQ(take(STATE_CONFIG, &c, sizeof c - 1), -EINVAL);
    BAD(c, c_->config.locks = 0);
    BAD(c, c_->config.servers = RACK_SERVERS_MAX + 1);
    BAD(c, c_->config.racks = RACKS_MAX + 1);
    BAD(c, memset(c_->design, 'x', sizeof c_->design));
    CHECK_EQ(take_config(c), 0);
    BAD(c, c_->config.locks--); /* a space does not shrink */
    BAD(c, c_->config.keys = PAWL_KEYS_SPARSE);
    c.config.lease_ns = 5;
    CHECK_EQ(take_config(c), 0);
    CHECK_EQ(state.config.config.lease_ns, 5);

    CHECK_EQ(take(STATE_LIVES, &life, sizeof life - 1), -EINVAL);
    CHECK_EQ(take(STATE_LIVES, &life, sizeof life), 0);
    CHECK_EQ(take(STATE_LEASE, &lease, sizeof lease + 1), -EINVAL);
    CHECK_EQ(take(STATE_LEASE, &lease, sizeof lease), 0);
    CHECK(state.lives == life && state.lease_ns == lease);
    CHECK_EQ(take((enum state_record)200, &lease, sizeof lease), -EINVAL);

    names(c);

    struct state_station t = {.life = 3, .place = RACKS_MAX};
    CHECK_EQ(take(STATE_STATION, &t, sizeof t - 1), -EINVAL);
    CHECK_EQ(take(STATE_STATION, &t, sizeof t), -EINVAL);
    t.place = RACKS_MAX - 1;
    CHECK_EQ(take(STATE_STATION, &t, sizeof t), 0);
    t.serves = 1;
    t.place = RACK_SERVERS_MAX;
    CHECK_EQ(take(STATE_STATION, &t, sizeof t), -EINVAL);
    t.place = RACK_SERVERS_MAX - 1;
    CHECK_EQ(take(STATE_STATION, &t, sizeof t), 0);
    CHECK(state.switch_[RACKS_MAX - 1].life == 3 && state.server[RACK_SERVERS_MAX - 1].life == 3);

    rules_records();

    struct rules one = state.rules;
    start(&c, PAWL_KEYS_DENSE, 0);
    CHECK_EQ(take_config(c), 0);
    CHECK_EQ(take_name(STATE_NAME, 1, 7, "a"), -EINVAL); /* a space of numbers has no names */
    rules_init(&one, 1);
    CHECK_EQ(take(STATE_RULES, &one, sizeof one), 0); /* a space that is not divided has one rack */
    state_free(&state);
}

static void host_records(void)
{
    struct state_config c;
    start(&c, PAWL_KEYS_DENSE, 0);
    CHECK_EQ(take_config(c), 0);
    struct state_hosts hosts = {.member_ns = 99, .settled = 2};
    CHECK_EQ(take(STATE_HOSTS, &hosts, sizeof hosts - 1), -EINVAL);
    CHECK_EQ(take(STATE_HOSTS, &hosts, sizeof hosts), 0);
    CHECK(state.hosts.member_ns == 99 && state.hosts.settled == 2);
    struct state_host host = {.life = 8, .number = STATE_HOSTS_MAX};
    CHECK_EQ(take(STATE_HOST, &host, sizeof host - 1), -EINVAL);
    CHECK_EQ(take(STATE_HOST, &host, sizeof host), 0);
    CHECK_EQ(state.host[STATE_HOSTS_MAX], 8);
    host.number++;
    CHECK_EQ(take(STATE_HOST, &host, sizeof host), -EINVAL);
    host.number = 0;
    CHECK_EQ(take(STATE_HOST, &host, sizeof host), -EINVAL);
    state_free(&state);
}

/* A snapshot has all records, and says where it was stopped. */
struct copy {
    unsigned left, count;
    struct rack_state state;
};

static int copy_record(void *to, const struct store_record *r)
{
    struct copy *c = to;
    if (c->count++ == c->left)
        return -ENOSPC;
    return state_take(&c->state, r);
}

static void snapshots(void)
{
    struct state_config c;
    struct state_station server = {.life = 3, .place = 1, .serves = 1}, station = {.life = 4, .place = 1};
    struct state_host host = {.life = 9, .number = 7};
    const unsigned all = 13;
    start(&c, PAWL_KEYS_NAMED, 2);
    CHECK(!take_config(c) && !take_name(STATE_NAME, 1, 7, "a") && !take_name(STATE_NAME, 2, 7, "b"));
    CHECK(!take(STATE_STATION, &server, sizeof server) && !take(STATE_STATION, &station, sizeof station));
    CHECK(!take(STATE_HOST, &host, sizeof host));
    for (c.config.locks = 12; c.config.locks <= 14; c.config.locks += 2) /* the space has grown twice */
        CHECK_EQ(take_config(c), 0);
    CHECK_EQ(take_name(STATE_NAME, 11, 7, "c"), 0);
    for (unsigned left = 0; left <= all; left++) {
        struct copy to = {.left = left};
        CHECK_EQ(state_each(&state, copy_record, &to), left < all ? -ENOSPC : 0);
        CHECK_EQ(to.count, left < all ? left + 1 : all);
        if (left == all)
            CHECK(to.state.host[7] == 9 && to.state.directory.used == 3 && to.state.directory.parts == 3 &&
                  to.state.server[1].life == 3 && to.state.switch_[1].life == 4 &&
                  !memcmp(&to.state.rules, &state.rules, sizeof state.rules));
        state_free(&to.state);
    }
    state_free(&state);
}

int main(void)
{
    records();
    host_records();
    snapshots();
    other_configurations();
    grows_too_often();
    no_life_left();
    withheld();
    strange_records(true);
    strange_records(false);
    both_slots();
    heads();
    strange_appends();
    torn_copy();
    reader_fails();
    cut_log(0);
    cut_log(4);
    strange_settings();
    many_at_once();
    garbage();
    every_call_fails(-EIO, false);
    every_call_fails(-ENOSPC, false);
    every_call_fails(-EIO, true);
    sim_disk_free(&disk);
    return 0;
}
