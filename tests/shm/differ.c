/* SPDX-License-Identifier: Apache-2.0 */
/* Range designs on shared memory beside a trivially correct table and beside the kernel's own locks. Ten million operations in all
 * if there is time (make soak). */
#include "tests/differ.h"
#include "client/memory.h"
#include "tests/shm/space.h"

#define OPS_ALL (10 * UINT64_C(1000000))
#define SESSIONS 4
#define HELD_SHORT 120

#define MADE_FOR 16384 /* units; short ranges lie within, long ones reach beyond */

static pawl *open_design(const char *design, const char *suffix)
{
    char where[192];
    const pawl_options o = {.design = design,
                            .keys = PAWL_KEYS_DENSE,
                            .capacity = 1,
                            .sessions = SESSIONS + 2,
                            .unit_bytes = 4096,
                            .range_units = MADE_FOR,
                            .range_max = 65536};
    pawl *p;
    snprintf(where, sizeof where, "%s.%s", space_where(), suffix);
    CHECK_OK(pawl_open(where, &o, &p));
    return p;
}

static void remove_space(const char *suffix)
{
    char path[192];
    snprintf(path, sizeof path, "%s.%s", space_path(), suffix);
    unlink(path);
}

static uint64_t compare(const struct design *design, uint64_t length_max, unsigned held_max, bool plain, uint64_t ops,
                        uint64_t until_ns)
{
    struct differ d = {.design = design, .locker_count = SESSIONS, .held_max = held_max, .plain = plain, .length_max = length_max};
    pawl *sessions[SESSIONS], *kernel = design == design_find("ofd") ? NULL : open_design("ofd", "kernel");
    for (unsigned i = 0; i < SESSIONS; i++) {
        sessions[i] = open_design(design->name, "design");
        d.lockers[i] = &memory_of(sessions[i])->locker;
    }
    d.units = length_max <= 64 ? MADE_FOR / 2 : 2 * MADE_FOR;
    d.shadow = kernel ? &memory_of(kernel)->locker : NULL;
    rng_seed(&d.random, length_max + pawl_now() % 1000);
    while (d.ops < ops && (d.ops % 1024 || pawl_now() < until_ns))
        differ_step(&d);
    differ_end(&d);
    bool citron =
        !strncmp(design->name, "citron", strlen("citron")); /* 4.6: none up to 64 units; of what changes it says nothing */
    if (length_max <= 64 && (differ_is_exact(design) || (citron && plain)))
        CHECK_EQ(d.falsely, 0);
    for (unsigned i = 0; i < SESSIONS; i++)
        CHECK_OK(pawl_close(sessions[i]));
    if (kernel)
        CHECK_OK(pawl_close(kernel));
    remove_space("design");
    remove_space("kernel");
    return d.ops;
}

int main(void)
{
    unsigned count = 0;
    uint64_t ops = 0;
    space_where();
    for (const struct design *d = NULL; (d = design_next(d));)
        count += d->features & DESIGN_RANGES && d->substrates & DESIGN_ON_SHM && d->kind != DESIGN_BUSTED;
    CHECK(count);
    uint64_t each_ns = test_seconds() * NS_PER_S / 20 / count;
    for (const struct design *d = NULL; (d = design_next(d));)
        if (d->features & DESIGN_RANGES && d->substrates & DESIGN_ON_SHM && d->kind != DESIGN_BUSTED) {
            ops += compare(d, 64, HELD_SHORT, true, OPS_ALL / count / 3 + 1, pawl_in(each_ns));
            ops += compare(d, 64, HELD_SHORT, false, OPS_ALL / count / 3 + 1, pawl_in(each_ns));
            ops += compare(d, 4096, 40, false, OPS_ALL / count / 3 + 1, pawl_in(each_ns));
        }
    printf("%" PRIu64 " operations in all\n", ops);
    return 0;
}
