/* SPDX-License-Identifier: Apache-2.0 */
/* How a space lies in lock memory, on whatever fabric: header, slots, records, message rings, locks (with their keys), names,
 * values. */
#ifndef PAWL_CLUSTER_LAYOUT_H
#define PAWL_CLUSTER_LAYOUT_H

#include "designs/core/design.h"

#define LAYOUT_MAGIC UINT64_C(0x314c574150534b4c) /* reads "LKSPAWL1" in memory */
#define LAYOUT_VERSION 10
#define LAYOUT_FEATURES 0 /* bits that a reader must know; none yet, so any is refused */
#define LAYOUT_BYTE_ORDER UINT32_C(0x01020304)
#define LAYOUT_BOOT_ID_LEN 16
#define LAYOUT_DESIGN_LEN 32

#define LAYOUT_TABLE_NEEDS FAB_ATOMIC128 /* what sparse and named keys need of the fabric: see table.h */

#define LAYOUT_CAPACITY_MAX (UINT64_C(1) << 32) /* 2^40 indexes fit a hold record; this is what memory allows */
#define LAYOUT_NAME_BYTES 256                   /* one length byte and PAWL_NAME_MAX */

struct layout_header {
    uint64_t magic;
    uint32_t version;
    uint32_t features;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint8_t boot_id[LAYOUT_BOOT_ID_LEN];
    char design[LAYOUT_DESIGN_LEN];
    uint16_t keys;       /* enum pawl_keys */
    uint8_t node, nodes; /* which of how many memory nodes has this part of the space; 0 of 0: there is one */
    uint32_t slot_count;
    uint64_t lock_size;
    uint64_t capacity;
    uint64_t buckets; /* cells in the lock array: capacity, or the next power of two that leaves a table some air */
    uint64_t cell_bytes;
    uint32_t record_count;
    uint32_t ring_bytes;
    uint32_t desc_size;
    uint32_t caps; /* FAB_*: what the fabric was able to do when the space was made; every client relies on the same */
    uint64_t range_units, range_max, unit_bytes;                 /* 0 if the design has no ranges */
    uint64_t slots, records, ranges, rings, descs, cells, names; /* offsets; values lie behind: layout_values */
    uint64_t total_bytes;
    uint64_t token_base;
    uint64_t lease_ns;
    uint64_t margin_ns;
    uint64_t check_ns;
    uint64_t checksum; /* of all above, and of the knobs */
    /* A line of its own for the field that changes, and for fields that are only read when the space is opened. */
    _Alignas(CACHE_LINE) uint64_t token_floor; /* above every token of every lock that was forgotten to make room */
    struct knobs knobs;                        /* of the design */
};

#define LAYOUT_HEADER_BYTES 4096

/* Ranges, unless asked otherwise: 256 MiB of a file in pages, with room for 4 GiB: a default space of citron's has 1.2 GB of
 * addresses then, which fits whatever limits a process may have. What lies beyond is locked as one. */
#define LAYOUT_RANGE_UNITS (UINT64_C(1) << 16)
#define LAYOUT_RANGE_MAX (UINT64_C(1) << 20)
#define LAYOUT_UNIT_BYTES 4096
#define LAYOUT_UNIT_BYTES_MAX (UINT64_C(1) << 23) /* so that 2^40 units have fewer than 2^64 bytes */

struct layout_params {
    const struct design *design;
    enum pawl_keys keys;
    uint8_t node, nodes; /* as in the header */
    uint64_t capacity;
    uint32_t sessions;
    uint32_t holds;
    uint32_t ring_bytes; /* per session; 0 without messages */
    uint64_t lease_ns;
    uint64_t margin_ns;
    uint64_t check_ns;
    uint64_t birth;
    uint32_t caps;                               /* of the fabric that clients reach the space by */
    uint64_t range_units, range_max, unit_bytes; /* designs with ranges; 0: as above */
    const struct knobs *knobs;                   /* null: the design's usual ones */
};

/* Where the values beside locks are, the last of all; 0: there are none. Their memory is sparse, taken where values are set. */
uint64_t layout_values(const struct layout_header *h);

/* Whether the locks of a space lie in sparse memory: what is not touched costs nothing, and what is may be missing then. */
bool layout_is_sparse(const struct layout_header *h);

/* Whether locks of that design, found by such keys, work on a fabric with these capabilities: 0, or -PAWL_ENOTSUP, explained with
 * the names of the design and of what is missing, and with what to choose instead. */
int layout_check_caps(const struct design *design, enum pawl_keys keys, uint32_t caps);

/* An endpoint to a space does what the space was made for: no more, since others rely on less. -PAWL_ENOTSUP, explained, if it
 * cannot. */
int layout_adopt(const struct layout_header *h, struct fab_ep *ep);

/* Computes everything from the parameters. -EINVAL if one is out of bounds, -EFBIG if it would not fit, -PAWL_ENOTSUP as above. */
int layout_make(const struct layout_params *p, struct layout_header *out);

/* Notes during which run of the machine the space was made; changes the checksum. */
void layout_set_boot_id(struct layout_header *h, void (*read_boot_id)(uint8_t out[LAYOUT_BOOT_ID_LEN]));

/* Whether a header makes sense for memory of that size. Null if it does, else what is wrong with it. */
const char *layout_fault(const struct layout_header *h, uint64_t size);

/* The space that a header describes, at `base`. */
void layout_space(const struct layout_header *h, fab_addr base, struct space *out);

#endif
