/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's log on a disk that tears, loses, flips and cuts: what was acknowledged is there, or the log is refused with the
 * name of the file and the byte. */
#include "cluster/state.h"
#include "lib/explain.h"
#include "tests/check.h"
#include "world/sim_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PATH "state"
#define NAMES 40u
#define LOCKS 100000u

static struct sim_disk disk;
static struct store_file file;
static struct rack_state state;

static void forget(void)
{
    state_free(&state);
    memset(&state, 0, sizeof state);
}

static int open_it(enum store_how how, const char *space)
{
    struct store_identity identity = {.id = {7, 8}};
    snprintf(identity.space, sizeof identity.space, "%s", space);
    if (how == STORE_FRESH) {
        state.config = (struct state_config){.design = "srvlock", .config = {.locks = LOCKS, .keys = PAWL_KEYS_NAMED}};
        state.lives = 5;
        directory_init(&state.directory, PAWL_KEYS_NAMED, LOCKS);
    }
    int rc = store_file_open(&file, &disk.disk, PATH, how, &identity, state_take, state_each, &state);
    CHECK(rc || (identity.id[0] == 7 && identity.id[1] == 8));
    return rc;
}

static void close_it(void)
{
    file.store.ops->close(&file.store);
    forget();
}

static void name_of(unsigned i, char out[32])
{
    snprintf(out, 32, "name %u%.*s", i, (int)(i % 9), "........");
}

static int append_name(unsigned i)
{
    char name[32];
    uint8_t record[STATE_KEY_MAX];
    struct directory d;
    uint64_t cell = i;
    name_of(i, name);
    directory_init(&d, PAWL_KEYS_NAMED, LOCKS);
    const struct state_key k = {.index = directory_index(&d, cell), .generation = 7};
    memcpy(record, &k, sizeof k);
    memcpy(record + sizeof k, name, strlen(name));
    const struct store_record r = {.type = STATE_NAME, .len = (uint16_t)(sizeof k + strlen(name)), .data = record};
    return file.store.ops->append(&file.store, &r, 1);
}

/* The first `least` names are there, in their order, and nothing else. How many are. */
static uint64_t names_there(uint64_t least)
{
    for (unsigned i = 0; i < state.directory.count; i++) {
        char name[32];
        uint64_t cell;
        name_of(i, name);
        CHECK_EQ(directory_find(&state.directory, name, (uint32_t)strlen(name), &cell), 0);
        CHECK_EQ(cell, i);
    }
    CHECK(state.directory.count >= least);
    return state.directory.count;
}

static void begin(unsigned names)
{
    sim_disk_free(&disk);
    sim_disk_init(&disk, NULL, names);
    CHECK_EQ(open_it(STORE_FRESH, "test"), 0);
    for (unsigned i = 0; i < names; i++)
        CHECK_EQ(append_name(i), 0);
    close_it();
}

/* Whether the log is whole, or refused with file and byte. `at`: 0: any byte. */
static bool whole_or_refused(uint64_t at)
{
    char where[64];
    int rc = open_it(STORE_CONTINUE, "test");
    if (!rc) {
        CHECK_EQ(names_there(NAMES), NAMES);
        CHECK_EQ(state.lives, 5);
        CHECK_EQ(append_name(NAMES), 0); /* and it goes on */
        close_it();
        return true;
    }
    forget();
    CHECK(rc == -EBADMSG || rc == -EINVAL);
    snprintf(where, sizeof where, "byte %" PRIu64, at);
    CHECK(!strncmp(explained(), PATH ": ", strlen(PATH) + 2) && strstr(explained(), at ? where : "byte "));
    return false;
}

static struct sim_disk_content copy;

static void save(const struct sim_disk_entry *e)
{
    copy.size = e->seen.size;
    copy.bytes = realloc(copy.bytes, copy.size);
    memcpy(copy.bytes, e->seen.bytes, copy.size);
}

static void put_back(struct sim_disk_entry *e)
{
    sim_disk_cut(e, 0);
    sim_disk_cut(e, copy.size);
    memcpy(e->seen.bytes, copy.bytes, copy.size);
    memcpy(e->durable.bytes, copy.bytes, copy.size);
}

/* Every byte, several bits; every length. */
/* A part of the bytes and lengths: all of those where one field follows another, and some of the others. PAWL_TEST_EVERY: all. */
static void flips_and_cuts(void)
{
    uint64_t whole = 0, refused = 0, end, stride = getenv("PAWL_TEST_EVERY") ? 1 : 509;
    begin(NAMES);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    end = file.end;
    close_it();
    struct sim_disk_entry *e = sim_disk_find(&disk, PATH);
    save(e);
    CHECK(end < copy.size);
    for (uint64_t at = 0; at < copy.size;
         at += at < 64 || (at >= 4000 && at < 4200) || (at >= end - 900 && at < end + 64) ? 1 : stride) {
        static const uint8_t bits[] = {1, 0x80, 0xff};
        sim_disk_flip(e, at, bits[at % countof(bits)]);
        bool is_whole = whole_or_refused(0);
        CHECK(at >= 4096 || !is_whole); /* the head is one block with one checksum */
        whole += is_whole;
        refused += !is_whole;
        put_back(e);
    }
    CHECK(whole && refused);
    /* Each byte of the log itself, whose latest append has a second copy. */
    for (uint64_t at = end - 900 > 45056 ? end - 900 : 45056; at < end; at++) {
        sim_disk_flip(e, at, 4);
        CHECK(whole_or_refused(0) || at < end - 16);
        put_back(e);
    }
    for (uint64_t size = 0; size < copy.size;
         size += size % 4096 < 64 || (size > end - 64 && size < end + 64) ? 1 : 2 * stride - 1) {
        sim_disk_cut(e, size);
        CHECK(!whole_or_refused(size));
        put_back(e);
    }
    printf("a log of %" PRIu64 " bytes: %" PRIu64 " flips were refused, %" PRIu64 " did no harm\n", copy.size, refused, whole);
}

/* A crash at every step of an append, of growing and of a snapshot, again and again: nothing that was acknowledged is lost. */
static void crashes(uint64_t seed)
{
    uint64_t acknowledged = 0, torn = 0;
    begin(0);
    rng_seed(&disk.random, seed);
    for (unsigned round = 0; round < 60; round++) {
        int rc = open_it(STORE_CONTINUE, "test");
        if (rc)
            CHECK_FAIL("seed %" PRIu64 ", round %u: %s", seed, round, explained());
        uint64_t have = names_there(acknowledged);
        CHECK(have <= acknowledged + 1); /* at most the one that was not */
        acknowledged = have;
        for (uint64_t more = rng_below(&disk.random, 5); more; more--)
            CHECK_EQ(append_name((unsigned)acknowledged++), 0);
        if (rng_chance(&disk.random, 1, 4)) {
            char name[32];
            for (uint64_t i = state.directory.count; i < acknowledged; i++) {
                name_of((unsigned)i, name);
                CHECK_EQ(directory_put(&state.directory, directory_index(&state.directory, i), 7, name, (uint32_t)strlen(name)), 0);
            }

            disk.syncs_left = (unsigned)rng_below(&disk.random, 3); /* a snapshot that fails leaves the log as it was */
            file.store.ops->snapshot(&file.store, state_each, &state);
            disk.syncs_left = 0;
        }
        disk.syncs_left =
            1 + (unsigned)rng_below(&disk.random, 2); /* the next one is not synced when the host crashes; or its growth */
        if (!append_name((unsigned)acknowledged))
            acknowledged++;
        disk.syncs_left = 0;
        close_it();
        sim_disk_crash(&disk);
        torn = disk.torn;
    }
    CHECK(torn);
}

static void refusals(void)
{
    begin(3);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    struct store_file other;
    struct store_identity identity = {.space = "test"};
    memset(&other, 0xff, sizeof other); /* all of it is set, also if it fails */
    CHECK_EQ(store_file_open(&other, &disk.disk, PATH, STORE_CONTINUE, &identity, state_take, NULL, &state), -EBUSY);
    close_it();
    CHECK_EQ(open_it(STORE_CONTINUE, "other"), -EINVAL);
    CHECK(strstr(explained(), "belongs to the space 'test'") && strstr(explained(), "byte"));
    forget();
    sim_disk_remove(sim_disk_find(&disk, PATH));
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), -ENOENT);
    CHECK(strstr(explained(), "--fresh"));
    CHECK(!sim_disk_find(&disk, PATH)); /* nothing is left behind */
    forget();
    CHECK_EQ(open_it(STORE_FRESH, "test"), 0);
    close_it();
    CHECK_EQ(open_it(STORE_FRESH, "test"), 0); /* the old one is kept */
    close_it();
    CHECK(sim_disk_find(&disk, PATH ".old"));
}

/* A full disk: what is there stays whole, and it goes on when there is room. */
static void full(void)
{
    begin(0);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    disk.bytes_max = 1;
    unsigned n = 0;
    while (!append_name(n))
        n++;
    CHECK(n > 1000);
    CHECK_EQ(append_name(n), -ENOSPC);
    disk.bytes_max = 0;
    CHECK_EQ(append_name(n), 0);
    close_it();
    sim_disk_crash(&disk);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    CHECK_EQ(names_there(n + 1), n + 1);
    close_it();
}

/* The records before the damage, and no more. */
static void restored(void)
{
    begin(NAMES);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    uint64_t end = file.end;
    close_it();
    sim_disk_flip(sim_disk_find(&disk, PATH), end - 500, 1);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), -EBADMSG);
    forget();
    CHECK_EQ(open_it(STORE_RESTORE, "test"), 0);
    CHECK(names_there(1) < NAMES);
    CHECK_EQ(file.store.ops->snapshot(&file.store, state_each, &state), 0);
    uint64_t left = state.directory.count;
    close_it();
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
    CHECK_EQ(names_there(left), left);
    close_it();
}

static bool is_there(const char *path)
{
    return sim_disk_find(&disk, path);
}

/* A start that fails leaves nothing behind, and what was there stays. */
static void failed_starts(void)
{
    sim_disk_free(&disk);
    sim_disk_init(&disk, NULL, 1);
    CHECK_EQ(open_it(STORE_CONTINUE, "test"), -ENOENT);
    CHECK(!is_there(PATH) && !is_there(PATH ".lock"));
    disk.bytes_max = 1;
    CHECK_EQ(open_it(STORE_FRESH, "test"), -ENOSPC);
    forget();
    CHECK(!is_there(PATH) && !is_there(PATH ".new") && !is_there(PATH ".lock"));
    begin(NAMES);
    disk.bytes_max = 1;
    CHECK_EQ(open_it(STORE_FRESH, "test"), -ENOSPC);
    forget();
    disk.bytes_max = 0;
    CHECK(is_there(PATH) && !is_there(PATH ".old"));
    CHECK(whole_or_refused(0));
}

/* ---- each operation of the disk fails once ---- */

static const struct disk_ops *works;
static uint64_t operations, fails_at; /* the operation that fails; 0: none */

static bool fails(void)
{
    return ++operations == fails_at;
}

static int fail_size(struct disk_file *f, uint64_t *out)
{
    return fails() ? -EIO : works->size(f, out);
}

static int fail_read(struct disk_file *f, void *to, uint64_t len, uint64_t at)
{
    return fails() ? -EIO : works->read(f, to, len, at);
}

static int fail_write(struct disk_file *f, const void *from, uint64_t len, uint64_t at)
{
    return fails() ? -EIO : works->write(f, from, len, at);
}

static int fail_extend(struct disk_file *f, uint64_t bytes)
{
    return fails() ? -EIO : works->extend(f, bytes);
}

static int fail_sync(struct disk_file *f)
{
    return fails() ? -EIO : works->sync(f);
}

static int fail_open(struct disk *d, const char *path, enum disk_open how, struct disk_file **out)
{
    return fails() ? -EIO : works->open(d, path, how, out);
}

static int fail_rename(struct disk *d, const char *from, const char *to)
{
    return fails() ? -EIO : works->rename(d, from, to);
}

/* Opens the log, appends a name and makes a snapshot. How many names were appended; *rc: why there is no snapshot. */
static unsigned go_on(unsigned names, int *rc)
{
    unsigned appended = 0;
    *rc = open_it(STORE_CONTINUE, "test");
    if (*rc) {
        forget();
        return 0;
    }
    names_there(names);
    if (!(*rc = append_name(names))) {
        char name[32];
        uint64_t cell;
        name_of(names, name);
        directory_loaded(&state.directory);
        CHECK_EQ(directory_add(&state.directory, name, (uint32_t)strlen(name), 7, &cell), 0);
        directory_wrote(&state.directory, state.directory.changed.count);
        appended++;
    }
    if (!*rc)
        *rc = file.store.ops->snapshot(&file.store, state_each, &state);
    close_it();
    return appended;
}

/* An operation that fails is handed on, and appends that were acknowledged are there when the disk works again. `crash`: what was
 * not synced is torn before the log is opened, and again after the failure. */
static void each_operation_fails(bool crash)
{
    bool struck = true;
    for (uint64_t n = 1; struck; n++) {
        int rc;
        begin(3);
        CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
        CHECK_EQ(append_name(3), 0);
        close_it();
        if (crash)
            sim_disk_crash(&disk);
        works = disk.disk.ops;
        const struct disk_ops ops = {.lock = works->lock,
                                     .open = fail_open,
                                     .close = works->close,
                                     .size = fail_size,
                                     .read = fail_read,
                                     .write = fail_write,
                                     .extend = fail_extend,
                                     .sync = fail_sync,
                                     .rename = fail_rename,
                                     .remove = works->remove};
        disk.disk.ops = &ops;
        operations = 0;
        fails_at = n;
        unsigned appended = go_on(4, &rc);
        struck = operations >= n;
        disk.disk.ops = works;
        CHECK(struck || !rc);
        if (crash)
            sim_disk_crash(&disk);
        CHECK_EQ(open_it(STORE_CONTINUE, "test"), 0);
        names_there(4 + appended);
        close_it();
    }
    printf("%" PRIu64 " operations of the disk failed\n", operations);
    CHECK(operations > 10);
}

int main(void)
{
    flips_and_cuts();
    for (uint64_t seed = 0; seed < 100; seed++)
        crashes(seed);
    refusals();
    full();
    restored();
    failed_starts();
    each_operation_fails(false);
    each_operation_fails(true);
    sim_disk_free(&disk);
    free(copy.bytes);
    return 0;
}
