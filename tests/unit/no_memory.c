/* SPDX-License-Identifier: Apache-2.0 */
/* The memory runs out: each allocation of a coordinator, a roster, a memory node and a question fails once, in turn. The
 * call is refused with -ENOMEM and has changed nothing, so that it succeeds when it is made again. The linker sends allocations
 * here
 * (--wrap). */
#include "cluster/join.h"
#include "cluster/roster.h"
#include "cluster/service.h"
#include "dataplane/memnode.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"
#include "world/disk.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 1200u /* more than any of the directory's first allocations has room for */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *before, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *before, size_t bytes);

static uint64_t allocations, fails_at; /* the allocation that fails; 0: none */

static bool fails(void)
{
    return ++allocations == fails_at;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *before, size_t bytes)
{
    return fails() ? NULL : __real_realloc(before, bytes);
}

/* From now on: allocation `at` fails. */
static void fail(uint64_t at)
{
    allocations = 0;
    fails_at = at;
}

/* Whether the allocation that was to fail was asked for. */
static bool failed(void)
{
    bool did = fails_at && allocations >= fails_at;
    fails_at = 0;
    return did;
}

/* ---- keys and values ---- */

static uint32_t name_of(unsigned i, char out[32])
{
    return (uint32_t)snprintf(out, 32, "name %u", i);
}

/* Every key is added once, the allocation notwithstanding. How often memory was missing. */
static unsigned add_all(struct directory *d)
{
    unsigned refused = 0;
    char name[32];
    uint64_t cell, found;
    for (unsigned i = 0; i < KEYS; i++) {
        uint32_t len = name_of(i, name);
        int rc = directory_add(d, name, len, 7, &cell);
        if (rc) {
            CHECK_EQ(rc, -ENOMEM);
            CHECK_EQ(directory_find(d, name, len, &found), -ENOENT);
            CHECK_EQ(directory_add(d, name, len, 7, &cell), 0);
            refused++;
        }
        CHECK_EQ(cell, i);
        CHECK_EQ(directory_find(d, name, len, &found), 0);
        CHECK_EQ(found, cell);
        if (i % 100 == 99)
            directory_wrote(d, d->changed.count);
    }
    return refused;
}

static unsigned retire_all(struct directory *d)
{
    unsigned refused = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        int rc = directory_retire(d, i);
        if (rc) {
            CHECK(rc == -ENOMEM && d->key[i].state == DIRECTORY_USED);
            CHECK_EQ(directory_retire(d, i), 0);
            refused++;
        }
    }
    directory_wrote(d, d->changed.count);
    directory_wake(d);
    CHECK_EQ(d->used, 0);
    return refused;
}

static unsigned load_all(struct directory *d)
{
    unsigned refused = 0;
    char name[32];
    for (unsigned i = 0; i < KEYS; i++) {
        uint64_t index = directory_index(d, i);
        uint32_t len = name_of(i, name);
        int rc = directory_put(d, index, 7, name, len);
        if (rc) {
            CHECK_EQ(rc, -ENOMEM);
            CHECK_EQ(directory_put(d, index, 7, name, len), 0);
            refused++;
        }
    }
    directory_loaded(d);
    CHECK(d->used == KEYS && !d->free_first);
    return refused;
}

static unsigned test_directory(uint64_t at)
{
    struct directory d, copy;
    directory_init(&d, PAWL_KEYS_NAMED, KEYS);
    directory_init(&copy, PAWL_KEYS_NAMED, KEYS);
    fail(at);
    unsigned refused = add_all(&d) + retire_all(&d) + load_all(&copy);
    CHECK_EQ(refused, failed());
    directory_free(&d);
    directory_free(&copy);
    return refused;
}

static unsigned test_values(uint64_t at)
{
    struct values v = {0};
    unsigned refused = 0;
    fail(at);
    for (uint64_t i = 0; i < KEYS; i++) {
        const struct value value = {.index = i, .generation = 7, .token = i + 1, .len = 1};
        int rc = values_put(&v, &value);
        if (rc) {
            CHECK(rc == -ENOMEM && !values_has(&v, i, 7));
            CHECK_EQ(values_put(&v, &value), 0);
            refused++;
        }
        const struct value former = {.index = i, .generation = 6, .token = 1, .len = 1};
        CHECK_EQ(values_put(&v, &former), 0); /* is forgotten, also when the last value has just filled the memory */
        CHECK(values_has(&v, i, 7) && !values_has(&v, i, 6));
    }
    CHECK_EQ(refused, failed());
    values_free(&v);
    return refused;
}

/* ---- a coordinator with a log ---- */

static char folder[] = "/tmp/pawl-no-memory-XXXXXX", path[64];

/* Opens the space; refused once if the memory runs out. A former space's lives that cannot be read count as none. */
static unsigned open_space(enum store_how how)
{
    static struct service service;
    struct coord_params p = coordinator_rack("netlock", 3);
    p.keys = PAWL_KEYS_NAMED;
    p.fresh = how == STORE_FRESH;
    const struct state_params where = {.disk = &disk_real, .path = path, .how = how, .id = {7, 8}, .life = 5};
    int rc = service_open(&service, &p, &where, NS_PER_S);
    unsigned refused = rc != 0;
    if (rc) {
        CHECK_EQ(rc, -ENOMEM);
        CHECK_EQ(service_open(&service, &p, &where, NS_PER_S), 0);
    }
    CHECK(service.first_life >= 5);
    service_close(&service);
    return refused;
}

static unsigned test_service(uint64_t at)
{
    static const enum store_how order[] = {STORE_FRESH, STORE_CONTINUE, STORE_RESTORE, STORE_FRESH};
    fail(at);
    unsigned refused = 0;
    for (unsigned i = 0; i < countof(order); i++)
        refused += open_space(order[i]);
    bool did = failed();
    CHECK(refused <= did);
    return did;
}

/* ---- what is made at once ---- */

static unsigned test_parts(uint64_t at)
{
    const struct rack_config rack = {.machines = 3};
    static _Alignas(16) uint8_t memory[64];
    const struct memnode_params p = {.space = "test", .memory = memory, .bytes = sizeof memory, .clients = 2, .lease_ns = NS_PER_S};
    fail(at);
    struct roster *r = roster_make(&rack, NULL, false);
    struct memnode *n = memnode_new(&p);
    CHECK_EQ(!r + !n, failed());
    unsigned refused = !r + !n;
    free(r);
    memnode_free(n);
    return refused;
}

static unsigned test_questions(uint64_t at)
{
    struct net_addr here = net_v4(0x0100007f, 0);
    struct coord_packet ask, got;
    struct coord_list list = coord_list_one(net_v4(0x0100007f, 9));
    struct join_params p = {.coordinators = list, .role = COORD_HOST, .space = "test"}; /* its deadline is over */
    struct rack_welcome welcome;
    struct udp u;
    uint64_t stamp;
    coord_make(&ask, COORD_WHICH, "test", NULL, 99);
    CHECK_EQ(udp_open(&u, here), 0);
    fail(at);
    int joined = join(&u, &p, &welcome, &stamp),
        asked = ask_leader(&list, 0, here, &ask, sizeof ask, COORD_THIS, 0, &got, sizeof got);
    CHECK((joined == -ETIMEDOUT || joined == -ENOMEM) && (asked == -ETIMEDOUT || asked == -ENOMEM));
    CHECK_EQ((joined == -ENOMEM) + (asked == -ENOMEM), failed());
    udp_close(&u);
    return (joined == -ENOMEM) + (asked == -ENOMEM);
}

static void each_allocation(const char *what, unsigned (*test)(uint64_t at))
{
    unsigned count = 0;
    test(0);
    while (test(count + 1))
        count++;
    printf("%s: each of %u allocations has failed\n", what, count);
    CHECK(count);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/state", folder);
    each_allocation("keys", test_directory);
    each_allocation("values", test_values);
    each_allocation("a coordinator", test_service);
    each_allocation("rosters and memory nodes", test_parts);
    each_allocation("questions", test_questions);
    char file[96];
    static const char *const left[] = {"", ".lock", ".old", ".new"};
    for (unsigned i = 0; i < countof(left); i++) {
        snprintf(file, sizeof file, "%s%s", path, left[i]);
        unlink(file);
    }
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
