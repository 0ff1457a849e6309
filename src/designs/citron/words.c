/* SPDX-License-Identifier: Apache-2.0 */
/* The words that nodes, claims and configurations are made of, where they lie, and batches of verbs on them. */
#include "designs/citron/citron.h"

#include <string.h>

/* ---- the configuration ---- */

#define CONFIG_HEIGHT 0
#define CONFIG_HEIGHT_NEXT 5
#define CONFIG_M 10
#define CONFIG_M_NEXT 13
#define CONFIG_WAIT 16
#define CONFIG_GENERATION 34
#define CONFIG_CROWDED (UINT64_C(1) << 62)
#define CONFIG_SET (UINT64_C(1) << 63)
static_assert(CONFIG_GENERATION + CONFIG_GENERATION_BITS == 62, "all bits are used");

uint64_t config_word(struct citron_config c)
{
    return (uint64_t)(c.height + 1) << CONFIG_HEIGHT | (uint64_t)(c.height_next + 1) << CONFIG_HEIGHT_NEXT |
           (uint64_t)c.m << CONFIG_M | (uint64_t)c.m_next << CONFIG_M_NEXT | (uint64_t)c.wait << CONFIG_WAIT |
           (uint64_t)c.generation << CONFIG_GENERATION | (c.crowded ? CONFIG_CROWDED : 0) | (c.set ? CONFIG_SET : 0);
}

struct citron_config config_of(uint64_t w)
{
    return (struct citron_config){
        .height = (uint8_t)(field_get(w, CONFIG_HEIGHT, 5) - 1),
        .height_next = (uint8_t)(field_get(w, CONFIG_HEIGHT_NEXT, 5) - 1),
        .m = (uint8_t)field_get(w, CONFIG_M, 3),
        .m_next = (uint8_t)field_get(w, CONFIG_M_NEXT, 3),
        .wait = (uint32_t)field_get(w, CONFIG_WAIT, CONFIG_WAIT_BITS),
        .generation = (uint32_t)field_get(w, CONFIG_GENERATION, CONFIG_GENERATION_BITS),
        .set = w & CONFIG_SET,
        .crowded = w & CONFIG_CROWDED,
    };
}

/* ---- claims ---- */

uint64_t claim_word(const struct citron_claim *c, unsigned height_max)
{
    uint64_t node = c->spill ? 0 : tree_index(c->node, height_max);
    debug_assert(node < UINT64_C(1) << CLAIM_NODE_BITS && c->ticket <= FIELD_MAX(NODE_COUNT_BITS));
    return (uint64_t)c->state << CLAIM_STATE | (c->shared ? CLAIM_SHARED : 0) | (c->all ? CLAIM_ALL : 0) |
           (c->joint ? CLAIM_JOINT : 0) | (uint64_t)(c->place >> 3) << CLAIM_PLACE_HIGH | (uint64_t)(c->place & 7) << CLAIM_PLACE |
           (uint64_t)c->m << CLAIM_M | (uint64_t)c->top << CLAIM_TOP | (uint64_t)c->ticket << CLAIM_TICKET | node;
}

struct citron_claim claim_of(uint64_t w, unsigned height_max)
{
    uint64_t index = field_get(w, 0, CLAIM_NODE_BITS);
    struct citron_claim c = {
        .state = (enum claim_state)field_get(w, CLAIM_STATE, 3),
        .shared = w & CLAIM_SHARED,
        .all = w & CLAIM_ALL,
        .spill = !index,
        .ticket = (uint32_t)field_get(w, CLAIM_TICKET, NODE_COUNT_BITS),
        .m = (uint8_t)field_get(w, CLAIM_M, 3),
        .top = (uint8_t)field_get(w, CLAIM_TOP, 5),
    };
    if (index)
        c.node = tree_at(index, height_max);
    if (!claim_internal(&c)) {
        c.place = (uint8_t)(field_get(w, CLAIM_PLACE, 3) | field_get(w, CLAIM_PLACE_HIGH, 1) << 3);
        c.ticket &= (uint32_t)FIELD_MAX(CLAIM_BOUNDS_BITS);
        c.took = true;
    } else {
        c.joint = w & CLAIM_JOINT;
    }
    return c;
}

/* ---- where things lie ---- */

/* A tree of one leaf would have nowhere to turn to when bits of it stay set. */
static unsigned height_for(uint64_t units)
{
    unsigned height = tree_height_for(units);
    return height ? height : 1;
}

static uint64_t readers_offset(unsigned height)
{
    return sizeof(struct citron_lock) + tree_nodes(height) * sizeof(uint64_t);
}

static uint64_t stripes_offset(unsigned height)
{
    return round_up(readers_offset(height) + tree_nodes(height - 1) * sizeof(uint64_t), (uint64_t)CACHE_LINE);
}

static uint64_t parts_offset(unsigned height)
{
    uint64_t high = height < citron_high ? 0 : tree_nodes(height - citron_high);
    return stripes_offset(height) + high * HIGH_STRIPES * sizeof(uint64_t);
}

static uint64_t places_offset(unsigned height)
{
    uint64_t parts = height < citron_high ? 1 : tree_pow4(height - citron_high);
    return round_up(parts_offset(height) + parts * sizeof(uint64_t), (uint64_t)CACHE_LINE);
}

uint64_t citron_lock_bytes(uint64_t range_units, uint64_t range_max, const struct knobs *knobs)
{
    unsigned height = height_for(max_u64(range_units, range_max));
    return places_offset(height) + tree_pow4(height) * LEAF_READERS_BYTES;
}

unsigned citron_height_first(const struct space *s)
{
    return height_for(s->range_units);
}

unsigned citron_height_last(const struct space *s)
{
    return height_for(max_u64(s->range_units, s->range_max));
}

fab_addr job_node(const struct citron_job *j, struct tree_node n)
{
    return j->lock + sizeof(struct citron_lock) + (tree_index(n, j->height_max) - 1) * sizeof(uint64_t);
}

fab_addr job_readers(const struct citron_job *j, struct tree_node n)
{
    debug_assert(n.height);
    return j->lock + readers_offset(j->height_max) + (tree_index(n, j->height_max) - 1) * sizeof(uint64_t);
}

fab_addr job_stripes(const struct citron_job *j, struct tree_node n)
{
    debug_assert(node_is_high(n));
    return j->lock + stripes_offset(j->height_max) + (tree_index(n, j->height_max) - 1) * HIGH_STRIPES * sizeof(uint64_t);
}

fab_addr job_part(const struct citron_job *j, uint64_t number)
{
    return j->lock + parts_offset(j->height_max) + number * sizeof(uint64_t);
}

struct citron_known job_known(const struct citron_job *j, struct tree_node above, bool shared)
{
    if (!node_is_high(above) && !shared)
        return (struct citron_known){job_node(j, above), UINT64_C(1) << NODE_DMAX, UINT64_C(1) << NODE_DCNT, NODE_TOPS};
    fab_addr addr =
        !node_is_high(above) ? job_readers(j, above) : job_stripes(j, above) + j->seat->me->slot % HIGH_STRIPES * sizeof(uint64_t);
    if (shared)
        return (struct citron_known){addr, UINT64_C(1) << READERS_DMAX, UINT64_C(1) << READERS_DCNT, READERS_TOPS};
    return (struct citron_known){addr, UINT64_C(1) << READERS_MAX, UINT64_C(1) << READERS_CNT, READERS_TOPS};
}

uint32_t known_count(struct tree_node above, bool shared, uint64_t word)
{
    if (shared)
        return readers_below(word);
    return node_is_high(above) ? readers_here(word) : node_below(word);
}

fab_addr job_places(const struct citron_job *j, struct tree_node leaf)
{
    return j->lock + places_offset(j->height_max) + leaf.number * LEAF_READERS_BYTES;
}

fab_addr job_claim_node(const struct citron_job *j, const struct citron_claim *c)
{
    return c->spill ? j->lock + offsetof(struct citron_lock, spill) : job_node(j, c->node);
}

fab_addr job_claim_readers(const struct citron_job *j, const struct citron_claim *c)
{
    return c->spill ? j->lock + offsetof(struct citron_lock, spill_readers) : job_readers(j, c->node);
}

fab_addr citron_desc_addr(const struct space *s, uint32_t slot, uint32_t record)
{
    return s->descs + ((uint64_t)slot * s->record_count + record) * s->desc_size;
}

static fab_addr own_desc(const struct citron_job *j)
{
    return citron_desc_addr(j->seat->space, j->seat->me->slot, j->h->record);
}

fab_addr job_desc(const struct citron_job *j, unsigned claim)
{
    return own_desc(j) + claim * sizeof(uint64_t);
}

/* ---- batches ---- */

static struct fab_op *next_op(struct citron_batch *b)
{
    assert(b->n < FAB_BATCH_MAX);
    return &b->ops[b->n++];
}

unsigned batch_read(struct citron_batch *b, fab_addr addr, void *buf, uint16_t len)
{
    *next_op(b) = (struct fab_op){.verb = FAB_READ, .addr = addr, .buf = buf, .len = len};
    return b->n - 1;
}

unsigned batch_read64(struct citron_batch *b, fab_addr addr)
{
    return batch_read(b, addr, &b->values[b->n], sizeof(uint64_t));
}

unsigned batch_write64(struct citron_batch *b, fab_addr addr, uint64_t value)
{
    uint64_t *at = &b->values[b->n];
    *at = value;
    *next_op(b) = (struct fab_op){.verb = FAB_WRITE, .addr = addr, .buf = at, .len = sizeof(uint64_t)};
    return b->n - 1;
}

unsigned batch_mcas(struct citron_batch *b, fab_addr addr, uint64_t compare, uint64_t compare_mask, uint64_t swap,
                    uint64_t swap_mask)
{
    *next_op(b) = (struct fab_op){.verb = FAB_CAS,
                                  .width = 8,
                                  .masked = compare_mask != UINT64_MAX || swap_mask != UINT64_MAX,
                                  .addr = addr,
                                  .compare = compare,
                                  .compare_mask = compare_mask,
                                  .swap = swap,
                                  .swap_mask = swap_mask};
    return b->n - 1;
}

unsigned batch_mfaa(struct citron_batch *b, fab_addr addr, uint64_t add, uint64_t tops)
{
    *next_op(b) = (struct fab_op){.verb = FAB_FAA, .width = 8, .masked = true, .addr = addr, .swap = add, .swap_mask = tops};
    return b->n - 1;
}

unsigned batch_faa(struct citron_batch *b, fab_addr addr, uint64_t add)
{
    *next_op(b) = (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = addr, .swap = add};
    return b->n - 1;
}

void citron_add_head(const struct citron_job *j, struct citron_batch *b, uint64_t head[CITRON_HEAD_WORDS])
{
    batch_read(b, job_header(j, 0), head, CITRON_HEAD_WORDS * sizeof(uint64_t));
}

void citron_add_tall(const struct citron_job *j, struct citron_batch *b, const struct citron_claim *c, bool come)
{
    if (c->spill || !node_is_tall(c->node))
        return;
    const size_t word = HEAD_TALL + tall_word(c->node, j->seat->me->slot);
    batch_mfaa(b, job_header(j, word * sizeof(uint64_t)), UINT64_C(1) << (come ? TALL_MAX : TALL_CNT), TALL_TOPS);
}

/* ---- jobs ---- */

void job_start(struct citron_job *j, const struct seat *seat, struct hold *h, uint64_t deadline)
{
    memset(j, 0, sizeof *j);
    j->seat = seat;
    j->h = h;
    j->index = h->index;
    j->lock = space_lock_addr(seat->space, h->index);
    j->height_max = citron_height_last(seat->space);
    j->deadline = deadline;
    j->shared = h->mode == PAWL_SHARED;
    j->start = h->start;
    j->end = h->end;
    j->pending = -1;
    j->trip_ns = 1; /* a batch comes before anybody waits */
    j->patience_ns = job_patience_ns(j);
    j->exact = h->exact;
}

/* Of claims [from, to), from a copy: the same batch may say something else later. */
static void write_claims(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to)
{
    assert(b->said + (to - from) <= countof(b->words));
    uint64_t *words = &b->words[b->said];
    for (unsigned i = from; i < to; i++)
        words[i - from] = i < j->count ? claim_word(&j->claims[i], j->height_max) : 0;
    b->said += to - from;
    *next_op(b) = (struct fab_op){.verb = FAB_WRITE,
                                  .addr = own_desc(j) + from * sizeof(uint64_t),
                                  .buf = words,
                                  .len = (uint16_t)((to - from) * sizeof(uint64_t))};
}

void job_say(struct citron_job *j, struct citron_batch *b, unsigned from, unsigned to, enum claim_state state)
{
    for (unsigned i = from; i < to; i++)
        j->claims[i].state = j->claims[i].said = state;
    if (j->published) {
        write_claims(j, b, from, to);
        return;
    }
    write_claims(j, b, 0, CLAIMS_MAX);
    enum record_state may = j->shared ? RECORD_TRY_S : RECORD_TRY_X;
    uint64_t word = record_word(may, j->h->serial, j->h->index);
    batch_write64(b, space_record_addr(j->seat->space, j->seat->me->slot, j->h->record), word);
    if (!fab_is_shm(j->seat->ep))
        __atomic_store_n(&j->seat->me->shadow[j->h->record], word, __ATOMIC_RELEASE);
    j->published = true;
}

/* ---- shared memory: a batch, verb by verb ---- */

static uint64_t verb_result(const struct fab_op *op, uint64_t word)
{
    uint64_t compared = (uint64_t)op->compare_mask, swapped = (uint64_t)op->swap_mask;
    if (op->verb == FAB_FAA)
        return op->masked ? masked_add64(word, (uint64_t)op->swap, swapped) : word + (uint64_t)op->swap;
    if ((word ^ (uint64_t)op->compare) & compared)
        return word;
    return (word & ~swapped) | ((uint64_t)op->swap & swapped);
}

/* Nobody can be shut out here who is merely stopped. So between its reading of a word and its compare-and-swap a process looks
 * whether it was declared lost: if it was, others may have counted anew without it; and if they have done so since, the word is
 * another, for counters do not return. */
static int atomic_here(const struct seat *seat, struct fab_op *op)
{
    uint64_t *word = fab_shm_ptr(seat->ep, op->addr), seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    const uint64_t live = lease_word(SLOT_LIVE, seat->me->epoch, 0) >> LEASE_EPOCH_SHIFT;
    for (;;) {
        if (unlikely(__atomic_load_n(seat->me->lease, __ATOMIC_ACQUIRE) >> LEASE_EPOCH_SHIFT != live))
            return -FAB_EFENCED;
        if (likely(__atomic_compare_exchange_n(word, &seen, verb_result(op, seen), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)))
            break;
    }
    op->old = seen;
    return 0;
}

static void copy_here(uint64_t *to, const uint64_t *from, unsigned words)
{
    for (unsigned i = 0; i < words; i++)
        __atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static int run_here(const struct seat *seat, struct citron_batch *b)
{
    for (unsigned i = 0; i < b->n; i++) {
        struct fab_op *op = &b->ops[i];
        if (op->verb == FAB_READ)
            copy_here(op->buf, fab_shm_ptr(seat->ep, op->addr), op->len / 8);
        else if (op->verb == FAB_WRITE)
            copy_here(fab_shm_ptr(seat->ep, op->addr), op->buf, op->len / 8);
        else if (atomic_here(seat, op))
            return -FAB_EFENCED;
    }
    return 0;
}

/* Maybe it was said, maybe not: then once more. Until then others may take it for one that queues, and wait for it (say_turns). */
static void forget_said(struct citron_job *j)
{
    j->published = false;
    for (unsigned i = 0; i < j->count; i++)
        j->claims[i].said = CLAIM_QUEUE;
}

int job_run(struct citron_job *j, struct citron_batch *b)
{
    if (fab_is_shm(j->seat->ep))
        return run_here(j->seat, b);
    if (!b->n)
        return 0;
    uint64_t before = world_now(j->seat->world);
    int rc = fab_batch(j->seat->ep, b->ops, b->n);
    j->trip_ns = world_now(j->seat->world) - before;
    if (unlikely(rc))
        forget_said(j);
    return rc;
}

void job_wake(const struct citron_job *j, fab_addr addr)
{
    uint64_t sleepers;
    if (!fab_is_shm(j->seat->ep))
        return;
    fab_read64(j->seat->ep, j->lock + offsetof(struct citron_lock, sleepers), &sleepers);
    if (likely(!sleepers))
        return;
    fab_wake(j->seat->ep, addr, UINT32_MAX, UINT16_MAX);
    fab_wake(j->seat->ep, addr, UINT64_C(0xffffffff) << 32, UINT16_MAX);
}
