/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator with a million names on a real disk: it starts within half a second of processor time, and with little memory. */
#include "cluster/service.h"
#include "lib/explain.h"
#include "tests/check.h"
#include "tests/unit/coordinator_kit.h"
#include "world/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define NAMES 1000000u
#define EACH 20000u /* names of one commit */
#define START_NS (NS_PER_S / 2)
#define MEMORY_KB (150 << 10)

static char folder[] = "/tmp/pawl-names-XXXXXX", path[64];
static struct service service;

static void start(enum store_how how)
{
    struct coord_params p = coordinator_rack("srvlock", 64);
    p.locks = NAMES;
    p.sessions = 64;
    p.requests = 256;
    p.life = 0; /* the state has it */
    p.fresh = how == STORE_FRESH;
    p.keys = PAWL_KEYS_NAMED;
    const struct state_params where = {.disk = &disk_real, .path = path, .how = how, .id = {1, 2}, .life = 1};
    if (service_open(&service, &p, &where, NS_PER_S))
        CHECK_FAIL("%s", explained());
}

static uint32_t name_of(unsigned i, char out[32])
{
    return (uint32_t)snprintf(out, 32, "customer/%u/account", i);
}

int main(void)
{
    char name[32];
    uint64_t index, again;
    struct rusage use;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/test.state", folder);
    start(STORE_FRESH);
    for (unsigned i = 0; i < NAMES; i++) {
        uint32_t len = name_of(i, name);
        CHECK_EQ(directory_add(&service.state.directory, name, len, 7, &index), 0);
        if (i % EACH == EACH - 1)
            service_commit(&service, NULL, 0, NS_PER_S);
    }
    CHECK_EQ(service.state.directory.changed.count, 0);
    CHECK_EQ(service.failed, 0);
    uint32_t first = service.first_life;
    service_close(&service);

    uint64_t before = world_clock(CLOCK_PROCESS_CPUTIME_ID);
    start(STORE_CONTINUE);
    uint64_t took = world_clock(CLOCK_PROCESS_CPUTIME_ID) - before;
    CHECK_EQ(service.state.directory.count, NAMES);
    CHECK(service.first_life > first); /* I15 */
    uint32_t len = name_of(NAMES - 1, name);
    CHECK_EQ(directory_find(&service.state.directory, name, len, &again), 0);
    CHECK_EQ(again, index);
    service_close(&service);
    getrusage(RUSAGE_SELF, &use);
    printf("%u names: started in %" PRIu64 " ms of processor time, %ld MB\n", NAMES, took / NS_PER_MS, use.ru_maxrss >> 10);
#ifndef PAWL_CHECKED
    CHECK(took < START_NS && use.ru_maxrss < MEMORY_KB);
#endif
    unlink(path);
    snprintf(path + strlen(path), 8, ".lock");
    unlink(path);
    rmdir(folder);
    return 0;
}
