/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/layout.h"
#include "designs/core/value.h"
#include "lib/explain.h"
#include "lib/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TOTAL_MAX (UINT64_C(1) << 46) /* what a fabric address can name, with room to spare */

static uint64_t add_bytes(uint64_t sum, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static uint64_t checksum(const struct layout_header *h)
{
    uint64_t sum = add_bytes(LAYOUT_MAGIC, h, offsetof(struct layout_header, checksum));
    return add_bytes(sum, &h->knobs, sizeof h->knobs);
}

/* Small tables of numbers have room to spare: nearly all keys then lie where they are looked for first, and the processor guesses
 * that branch. */
#define ROOMY_MIN 256  /* below, everything lies in the cache anyway */
#define ROOMY_MAX 4096 /* above, the memory is better spent otherwise */
#define ROOMY_FACTOR 16

/* A table at most three quarters full keeps its probe sequences short. */
static uint64_t buckets_for(enum pawl_keys keys, uint64_t capacity)
{
    if (keys == PAWL_KEYS_DENSE)
        return capacity;
    bool roomy = keys == PAWL_KEYS_SPARSE && capacity >= ROOMY_MIN && capacity <= ROOMY_MAX;
    uint64_t least = roomy ? capacity * ROOMY_FACTOR : 4;
    uint64_t buckets = 4;
    while (buckets / 4 * 3 < capacity || buckets < least)
        buckets *= 2;
    return buckets;
}

/* Bytes of one lock and, in a table, its key. A power of two below a line, so that none straddles two lines. */
static uint64_t cell_bytes(enum pawl_keys keys, uint64_t lock_size)
{
    uint64_t need = lock_size + (keys == PAWL_KEYS_DENSE ? 0 : 16);
    uint64_t bytes = 16;
    while (bytes < need && bytes < CACHE_LINE)
        bytes *= 2;
    return need <= bytes ? bytes : round_up(need, (uint64_t)CACHE_LINE);
}

/* Fills in what the locks' sizes depend on. False: out of bounds. */
static bool make_ranges(const struct layout_params *p, struct layout_header *h)
{
    h->lock_size = p->design->lock_size;
    if (!(p->design->features & DESIGN_RANGES))
        return !p->range_units && !p->range_max && !p->unit_bytes;
    h->range_units = p->range_units ? p->range_units : LAYOUT_RANGE_UNITS;
    h->range_max = p->range_max ? p->range_max : max_u64(h->range_units, LAYOUT_RANGE_MAX);
    h->unit_bytes = p->unit_bytes ? p->unit_bytes : LAYOUT_UNIT_BYTES;
    if (h->range_max > RANGE_UNITS_MAX || h->range_units > h->range_max || h->unit_bytes > LAYOUT_UNIT_BYTES_MAX ||
        h->unit_bytes & (h->unit_bytes - 1))
        return false;
    if (p->design->lock_bytes)
        h->lock_size = p->design->lock_bytes(h->range_units, h->range_max, &h->knobs);
    return h->lock_size > 0 && h->lock_size <= TOTAL_MAX;
}

bool layout_is_sparse(const struct layout_header *h)
{
    char name[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(name, h->design, LAYOUT_DESIGN_LEN);
    return design_find(name)->lock_bytes != NULL;
}

/* ---- capabilities ---- */

#define CAPS_TEXT_LEN 192 /* all names, with commas between */

static const char *caps_text(uint32_t caps, char out[CAPS_TEXT_LEN])
{
    out[0] = 0;
    return bits_text(caps, fab_cap_name, ", ", out, CAPS_TEXT_LEN);
}

int layout_check_caps(const struct design *design, enum pawl_keys keys, uint32_t caps)
{
    char missing[CAPS_TEXT_LEN];
    if (design->needs & ~caps && design->instead)
        return explain(-PAWL_ENOTSUP, "the design '%s' needs a fabric with %s; choose the design '%s'", design->name,
                       caps_text(design->needs & ~caps, missing), design->instead);
    if (design->needs & ~caps)
        return explain(-PAWL_ENOTSUP,
                       "the design '%s' needs a fabric with %s; choose another design ('pawl sim --list' says what each needs)",
                       design->name, caps_text(design->needs & ~caps, missing));
    if (keys != PAWL_KEYS_DENSE && !fab_has(caps, LAYOUT_TABLE_NEEDS)) /* table.c claims key and state of a cell at once */
        return explain(-PAWL_ENOTSUP, "%s keys of the design '%s' need a fabric with %s; choose dense keys",
                       keys == PAWL_KEYS_NAMED ? "named" : "sparse", design->name, caps_text(LAYOUT_TABLE_NEEDS & ~caps, missing));
    return 0;
}

int layout_adopt(const struct layout_header *h, struct fab_ep *ep)
{
    char missing[CAPS_TEXT_LEN];
    if (h->caps & ~ep->caps)
        return explain(-PAWL_ENOTSUP, "the space was made for a fabric with %s, which this connection lacks; make the space anew",
                       caps_text(h->caps & ~ep->caps, missing));
    ep->caps = h->caps;
    return 0;
}

/* ---- the layout ---- */

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = round_up(here + bytes, (uint64_t)CACHE_LINE);
    return here;
}

static uint64_t values_bytes(const struct design *d, const struct layout_header *h)
{
    bool has = d && d->features & DESIGN_VALUES && fab_has(h->caps, VALUE_NEEDS);
    return has ? round_up(h->buckets * sizeof(struct value_cell), (uint64_t)LAYOUT_HEADER_BYTES) : 0;
}

uint64_t layout_values(const struct layout_header *h)
{
    char name[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(name, h->design, LAYOUT_DESIGN_LEN);
    uint64_t bytes = values_bytes(design_find(name), h);
    return bytes ? h->total_bytes - bytes : 0;
}

ONCE int layout_make(const struct layout_params *p, struct layout_header *out)
{
    if (!p->capacity || p->capacity > LAYOUT_CAPACITY_MAX || !p->sessions || p->sessions > SLOTS_MAX || !p->holds ||
        p->holds > RECORDS_MAX || p->keys < PAWL_KEYS_NAMED || p->keys > PAWL_KEYS_DENSE || p->caps >> FAB_CAPS ||
        (p->nodes && p->node >= p->nodes) || strlen(p->design->name) >= LAYOUT_DESIGN_LEN)
        return -EINVAL;
    int refused = layout_check_caps(p->design, p->keys, p->caps);
    if (refused)
        return refused;
    struct layout_header h = {
        .magic = LAYOUT_MAGIC,
        .version = LAYOUT_VERSION,
        .features = LAYOUT_FEATURES,
        .byte_order = LAYOUT_BYTE_ORDER,
        .header_bytes = LAYOUT_HEADER_BYTES,
        .keys = (uint16_t)p->keys,
        .node = p->node,
        .nodes = p->nodes,
        .capacity = p->capacity,
        .buckets = buckets_for(p->keys, p->capacity),
        .slot_count = p->sessions,
        .record_count = p->holds,
        .ring_bytes = p->ring_bytes,
        .desc_size = p->design->desc_size,
        .caps = p->caps,
        .knobs = p->knobs ? *p->knobs : design_knobs(p->design),
        .token_base = p->birth,
        .lease_ns = p->lease_ns,
        .margin_ns = p->margin_ns,
        .check_ns = p->check_ns,
    };
    memcpy(h.design, p->design->name, strlen(p->design->name));
    if (!design_knobs_fine(p->design, &h.knobs) || !make_ranges(p, &h))
        return -EINVAL;
    h.cell_bytes = cell_bytes(p->keys, h.lock_size);
    if (h.cell_bytes > TOTAL_MAX / h.buckets)
        return -EFBIG;
    uint64_t at = LAYOUT_HEADER_BYTES;
    h.slots = place(&at, (uint64_t)h.slot_count * sizeof(struct slot));
    h.records = place(&at, (uint64_t)h.slot_count * h.record_count * sizeof(uint64_t));
    h.ranges = place(&at, h.range_units ? (uint64_t)h.slot_count * h.record_count * sizeof(struct record_range) : 0);
    h.rings = place(&at, (uint64_t)h.slot_count * h.ring_bytes);
    h.descs = place(&at, (uint64_t)h.slot_count * h.record_count * h.desc_size);
    h.cells = place(&at, h.buckets * h.cell_bytes);
    h.names = place(&at, h.keys == PAWL_KEYS_NAMED ? h.buckets * LAYOUT_NAME_BYTES : 0);
    h.total_bytes = round_up(at, (uint64_t)LAYOUT_HEADER_BYTES) + values_bytes(p->design, &h);
    if (h.total_bytes > TOTAL_MAX)
        return -EFBIG;
    h.checksum = checksum(&h);
    *out = h;
    return 0;
}

void layout_set_boot_id(struct layout_header *h, void (*read_boot_id)(uint8_t out[LAYOUT_BOOT_ID_LEN]))
{
    read_boot_id(h->boot_id);
    h->checksum = checksum(h);
}

const char *layout_fault(const struct layout_header *h, uint64_t size)
{
    if (size < LAYOUT_HEADER_BYTES || h->magic != LAYOUT_MAGIC)
        return "it is not a pawl segment";
    if (h->byte_order != LAYOUT_BYTE_ORDER)
        return "it was made on a machine of another byte order";
    if (h->version != LAYOUT_VERSION)
        return "it has another layout version; it was made by another release of pawl";
    if (h->features & ~(uint32_t)LAYOUT_FEATURES)
        return "it uses features that this release does not know";
    if (h->checksum != checksum(h))
        return "its header is damaged";
    if (h->total_bytes != size)
        return "its size is not what its header says";
    /* The checksum is right, so these hold unless the header was forged. Offsets are used without further checks. */
    char name[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(name, h->design, LAYOUT_DESIGN_LEN);
    const struct design *design = design_find(name);
    if (!design)
        return "it uses a design that this release does not have";
    struct layout_header again;
    struct layout_params p = {
        .design = design,
        .keys = (enum pawl_keys)h->keys,
        .node = h->node,
        .nodes = h->nodes,
        .capacity = h->capacity,
        .sessions = h->slot_count,
        .holds = h->record_count,
        .ring_bytes = h->ring_bytes,
        .birth = h->token_base,
        .caps = h->caps,
        .lease_ns = h->lease_ns,
        .margin_ns = h->margin_ns,
        .check_ns = h->check_ns,
        .range_units = h->range_units,
        .range_max = h->range_max,
        .unit_bytes = h->unit_bytes,
        .knobs = &h->knobs,
    };
    if (h->ring_bytes > LAYOUT_HEADER_BYTES * 4 || layout_make(&p, &again))
        return "its header is inconsistent";
    memcpy(again.boot_id, h->boot_id, sizeof again.boot_id);
    if (checksum(&again) != h->checksum)
        return "its header is inconsistent";
    return NULL;
}

void layout_space(const struct layout_header *h, fab_addr base, struct space *out)
{
    char name[LAYOUT_DESIGN_LEN + 1] = {0};
    memcpy(name, h->design, LAYOUT_DESIGN_LEN);
    *out = (struct space){
        .design = design_find(name),
        .slots = base + h->slots,
        .records = base + h->records,
        .ranges = base + h->ranges,
        .descs = base + h->descs,
        .desc_size = h->desc_size,
        .desc_record = design_find(name) ? design_find(name)->desc_record : 0,
        .values = layout_values(h) ? base + layout_values(h) : 0,
        .locks = base + h->cells + (h->keys == PAWL_KEYS_DENSE ? 0 : 16),
        .lock_count = h->buckets,
        .lock_stride = h->cell_bytes,
        .slot_count = h->slot_count,
        .record_count = h->record_count,
        .range_units = h->range_units,
        .range_max = h->range_max,
        .unit_bytes = h->unit_bytes,
        .token_base = h->token_base,
        .lease_ns = h->lease_ns,
        .margin_ns = h->margin_ns,
        .check_ns = h->check_ns,
        .knobs = h->knobs,
    };
}
