/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of segments: whatever lies in the file, a header that is accepted describes a space that lies inside of it. The first
 * byte says whether the checksum is made right, as a forger would. */
#include "cluster/layout.h"
#include "fabric/shm.h"
#include "tests/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As layout.c computes it; a fuzzer does not guess 64 bits. */
static uint64_t add_bytes(uint64_t sum, const void *from, size_t len)
{
    const unsigned char *bytes = from;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static uint64_t checksum(const struct layout_header *h)
{
    uint64_t sum = add_bytes(LAYOUT_MAGIC, h, offsetof(struct layout_header, checksum));
    return add_bytes(sum, &h->knobs, sizeof h->knobs);
}

/* An array of `count` things of `bytes` at `at` lies behind the header and within `total`. */
static void check_array(uint64_t at, uint64_t count, uint64_t bytes, uint64_t total)
{
    CHECK(at >= LAYOUT_HEADER_BYTES && at <= total && at % 8 == 0);
    CHECK(!bytes || count <= (total - at) / bytes);
}

static void check_accepted(const struct layout_header *h)
{
    struct space space;
    const uint64_t total = h->total_bytes;
    layout_space(h, 0, &space);
    CHECK(space.design);
    CHECK(h->keys >= PAWL_KEYS_NAMED && h->keys <= PAWL_KEYS_DENSE);
    check_array(space.slots, space.slot_count, sizeof(struct slot), total);
    check_array(space.records, (uint64_t)space.slot_count * space.record_count, sizeof(uint64_t), total);
    check_array(h->rings, space.slot_count, h->ring_bytes, total);
    CHECK(space.lock_count >= h->capacity && space.lock_stride >= h->lock_size);
    check_array(space.locks, space.lock_count - 1, space.lock_stride, total - h->lock_size);
    if (h->keys != PAWL_KEYS_DENSE)
        CHECK(space.lock_count && !(space.lock_count & (space.lock_count - 1)));
    if (h->keys == PAWL_KEYS_NAMED)
        check_array(h->names, space.lock_count, LAYOUT_NAME_BYTES, total);
    /* None overlaps the next. */
    CHECK(h->records >= h->slots + h->slot_count * sizeof(struct slot));
    CHECK(h->ranges >= h->records + (uint64_t)h->slot_count * h->record_count * sizeof(uint64_t));
    CHECK(h->rings >= h->ranges + (h->range_units ? (uint64_t)h->slot_count * h->record_count * sizeof(struct record_range) : 0));
    CHECK(!h->range_units == !(space.design->features & DESIGN_RANGES) && h->range_units <= h->range_max);
    CHECK(h->range_max <= RANGE_UNITS_MAX && !(h->unit_bytes & (h->unit_bytes - 1)));
    CHECK(h->cells >= h->rings + (uint64_t)h->slot_count * h->ring_bytes);
    CHECK(h->names >= h->cells + space.lock_count * space.lock_stride);
}

/* A sound header to start from, then changed by the input: pairs of an offset and a byte. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union {
        struct layout_header h;
        uint8_t bytes[sizeof(struct layout_header)];
    } u;
    memset(&u, 0, sizeof u);
    if (size < 4)
        return 0;
    const struct layout_params p = {
        .design = design_find(data[0] & 2 ? "mutex" : "word"),
        .keys = (enum pawl_keys)(data[1] % 3 + 1),
        .capacity = (uint64_t)data[2] * 100 + 1,
        .sessions = data[3] % 16u + 1,
        .holds = data[3] / 16u + 1,
        .ring_bytes = 4224,
        .birth = 1,
        .caps = FAB_SHM_CAPS,
    };
    CHECK(!layout_make(&p, &u.h));
    CHECK_EQ(checksum(&u.h), u.h.checksum);
    CHECK(!layout_fault(&u.h, u.h.total_bytes));
    check_accepted(&u.h);
    for (size_t i = 4; i + 1 < size; i += 2)
        u.bytes[(data[i] + (i % 4 ? 0u : 128u)) % sizeof u.bytes] = data[i + 1];
    if (data[0] & 1)
        u.h.checksum = checksum(&u.h);
    if (!layout_fault(&u.h, u.h.total_bytes))
        check_accepted(&u.h);
    CHECK(layout_fault(&u.h, u.h.total_bytes + 1));
    CHECK(layout_fault(&u.h, 0));
    return 0;
}
