/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a lock and of the claims on it, and where they lie. All of it is arithmetic: nothing here touches memory. */
#ifndef PAWL_DESIGNS_CITRON_WORDS_H
#define PAWL_DESIGNS_CITRON_WORDS_H

#include "dataplane/mistake.h"
#include "designs/citron/tree.h"
#include "designs/core/design.h"

/* ---- internal nodes (3.4): {DCnt, DMax, TCnt, TMax} of 15 bits, Occ, and two flags for readers ---- */

/* Fields that a client waits for together lie in one half of the word, because a futex has 32 bits. */
#define NODE_COUNT_BITS 15
#define CITRON_HIGH 4 /* the lowest height of a high node: 16,384 units */
#if PAWL_WORKBENCH    /* tests with few clients count in fewer bits, those with small trees have lower high nodes */
extern unsigned citron_count_bits, citron_high;
#else
static const unsigned citron_count_bits = NODE_COUNT_BITS, citron_high = CITRON_HIGH;
#endif
#define NODE_COUNT_MAX ((uint32_t)FIELD_MAX(citron_count_bits))
#define NODE_DCNT 0
#define NODE_DMAX 15
#define NODE_BELOW (UINT64_C(1) << 30)  /* a leaf below has had readers (height 1 only) */
#define NODE_SHARED (UINT64_C(1) << 31) /* readers have this node */
#define NODE_TCNT 32
#define NODE_TMAX 47
#define NODE_OCC (UINT64_C(1) << 62) /* a writer has this node, or waits for claims below it */
#define NODE_COUNT_TOPS(bits)                                                                                                      \
    (UINT64_C(1) << (NODE_DCNT + (bits)-1) | UINT64_C(1) << (NODE_DMAX + (bits)-1) | UINT64_C(1) << (NODE_TCNT + (bits)-1) |       \
     UINT64_C(1) << (NODE_TMAX + (bits)-1))
#define NODE_TOPS                                                                                                                  \
    (NODE_COUNT_TOPS(citron_count_bits) | NODE_COUNT_TOPS(NODE_COUNT_BITS) | NODE_BELOW | NODE_SHARED | NODE_OCC |                 \
     UINT64_C(1) << 63)
#define NODE_T_MASK FIELD_MASK(NODE_TCNT, NODE_COUNT_BITS)
#define NODE_D_MASK FIELD_MASK(NODE_DCNT, 2 * NODE_COUNT_BITS)

/* Beside every internal node, for readers: {Cnt, Max} of those that have it, and of those below that have notified it. */
#define READERS_CNT 0
#define READERS_MAX 16
#define READERS_DCNT 32
#define READERS_DMAX 48
#define READERS_TOPS (UINT64_C(1) << 15 | UINT64_C(1) << 31 | UINT64_C(1) << 47 | UINT64_C(1) << 63)

/* A node counts up to 32,767 (3.4). A client that finds a crowd steps back and waits without being counted. Holders stay, and are
 * fewer than that: 4,096 units lie below the largest node that counts in this word. No client adds to a word in which it has seen
 * half of the maximum; the other half is for clients that could not know of the crowd (batch.c). */
#define NODE_LIMIT (NODE_COUNT_MAX / 2 + 1)
#define NODE_CROWD (1u << (NODE_COUNT_BITS - 2))
#define READERS_CLAIMS_MAX 32767u /* half of the maximum of 16 bits; more claims are refused */

static inline uint32_t node_field(uint64_t w, unsigned shift)
{
    return (uint32_t)field_get(w, shift, NODE_COUNT_BITS);
}
static inline uint32_t node_below(uint64_t w) /* notifications that have not been taken back */
{
    return (node_field(w, NODE_DMAX) - node_field(w, NODE_DCNT)) & NODE_COUNT_MAX;
}
static inline uint32_t node_queue(uint64_t w)
{
    return (node_field(w, NODE_TMAX) - node_field(w, NODE_TCNT)) & NODE_COUNT_MAX;
}
static inline uint32_t node_ticket_next(uint32_t ticket)
{
    return (ticket + 1) & NODE_COUNT_MAX;
}
static inline uint32_t readers_here(uint64_t w)
{
    return (uint32_t)((field_get(w, READERS_MAX, 16) - field_get(w, READERS_CNT, 16)) & 0xffff);
}
static inline uint32_t readers_below(uint64_t w)
{
    return (uint32_t)((field_get(w, READERS_DMAX, 16) - field_get(w, READERS_DCNT, 16)) & 0xffff);
}

/* ---- high nodes ----
 *
 * Every claim notifies a few high ancestors, and many claims share them: one address where atomics queue up. So the claims below a
 * high node are counted in several words, and each session uses one of them. A client that looks down reads them together. */

#define HIGH_STRIPES 4 /* two per machine of a small cluster; a READ of 64 nodes (m = 4) is 2 KiB */

/* In each of these words the lower half counts writers as `readers` counts {Cnt, Max}; the upper half counts readers. */
static inline bool node_is_high(struct tree_node n)
{
    return n.height >= citron_high;
}

/* ---- tall nodes ----
 *
 * A client that claims a leaf and a client that has the leaf's parent see each other in one word. All other ancestors are tall
 * nodes, of height 2 (1,024 units) and more. They are rarely locked. So the lock's head counts the claims on them: on high nodes in
 * one word, on the others in several. While these count none, clients read no ancestors but parents, and no notification is late.
 */

#define NODE_TALL 2
#define TALL_WORDS (1 + HIGH_STRIPES)
#define TALL_CNT 0
#define TALL_MAX 32
#define TALL_TOPS (UINT64_C(1) << 31 | UINT64_C(1) << 63)

static inline bool node_is_tall(struct tree_node n)
{
    return n.height >= NODE_TALL;
}
static inline unsigned tall_word(struct tree_node n, uint32_t slot) /* the word in which a session counts its claim */
{
    return node_is_high(n) ? 0 : 1 + slot % HIGH_STRIPES;
}
static inline uint32_t tall_count(uint64_t w)
{
    return (uint32_t)(w >> TALL_MAX) - (uint32_t)w;
}

/* ---- readers of a leaf: each has a place of its own, which names its owner and its units ---- */

#define LEAF_READERS 16 /* further readers go to the parent */
#define LEAF_READERS_BYTES (LEAF_READERS * sizeof(uint64_t))

/* valid 1, first 6, last 6, epoch's lower 3, serial 16; slot 12, record 12, serial's upper 4, epoch's next 4. Every session of a
 * slot counts serials from the same number: only the epoch tells the words of a former session from those of the present one. */
static inline uint64_t reader_word(uint32_t slot, uint32_t epoch, uint32_t record, uint64_t serial, uint32_t bounds)
{
    return 1 | (uint64_t)bounds << 1 | (uint64_t)(epoch & 7) << 13 | (serial & 0xffff) << 16 | (uint64_t)slot << 32 |
           (uint64_t)record << 44 | serial >> 16 << 56 | (uint64_t)(epoch >> 3 & 15) << 60;
}
#define READER_OWNER (~UINT64_C(0x1fff)) /* all but the bounds */
static inline uint32_t reader_bounds(uint64_t w)
{
    return (uint32_t)field_get(w, 1, 12);
}

/* The units of a leaf that lie in a range: the first and the last. */
static inline uint32_t bounds_of(struct tree_node leaf, uint64_t start, uint64_t end)
{
    uint64_t first = max_u64(start, tree_start(leaf)) - tree_start(leaf),
             last = min_u64(end, tree_end(leaf)) - tree_start(leaf) - 1;
    return (uint32_t)(first | last << 6);
}
static inline uint64_t bounds_mask(uint32_t bounds)
{
    return (UINT64_MAX >> (63 - (bounds >> 6))) & (UINT64_MAX << (bounds & 63));
}

/* ---- a lock in memory ---- */

struct citron_lock {
    uint64_t config;           /* below */
    uint64_t oldest;           /* the oldest block of tokens that is not void (token.c) */
    uint64_t tall[TALL_WORDS]; /* claims on tall nodes, as {Cnt, Max} of 32 bits each */
    uint64_t maximizer;        /* 3.9.1 */
    uint64_t sleepers;         /* shared memory: clients that may be asleep; while it is 0 no client needs to wake any */
    uint64_t changers;         /* holders that wait for more, at least; while it is 0 waiters need not look for them (yield.c) */
    _Alignas(CACHE_LINE) uint64_t blocks; /* blocks of tokens that have been taken */
    _Alignas(CACHE_LINE) uint64_t spill;  /* [N, infinity): a node without ancestors and descendants */
    uint64_t spill_readers;
    char pad[CACHE_LINE - 16];
};
static_assert(sizeof(struct citron_lock) % CACHE_LINE == 0, "the nodes behind it have cache lines of their own");

/* One READ has all of the head. */
enum { HEAD_CONFIG, HEAD_OLDEST, HEAD_TALL, CITRON_HEAD_WORDS = HEAD_TALL + TALL_WORDS };
static_assert(offsetof(struct citron_lock, oldest) == HEAD_OLDEST * sizeof(uint64_t) &&
                  offsetof(struct citron_lock, tall) == HEAD_TALL * sizeof(uint64_t),
              "read together");

/* Behind the head: the nodes, in level order; the readers' words of internal nodes; the stripes of high nodes; the tokens' words,
 * by part of the tree; the readers' places, by leaf. */
static inline uint64_t readers_offset(unsigned height)
{
    return sizeof(struct citron_lock) + tree_nodes(height) * sizeof(uint64_t);
}
static inline uint64_t stripes_offset(unsigned height)
{
    return round_up(readers_offset(height) + tree_nodes(height - 1) * sizeof(uint64_t), (uint64_t)CACHE_LINE);
}
static inline uint64_t parts_offset(unsigned height)
{
    uint64_t high = height < citron_high ? 0 : tree_nodes(height - citron_high);
    return stripes_offset(height) + high * HIGH_STRIPES * sizeof(uint64_t);
}
static inline uint64_t places_offset(unsigned height)
{
    uint64_t parts = height < citron_high ? 1 : tree_pow4(height - citron_high);
    return round_up(parts_offset(height) + parts * sizeof(uint64_t), (uint64_t)CACHE_LINE);
}

/* The heights of a space's trees, at first and at most. A tree has at least one internal node: a client that finds bits set for
 * long takes the leaf's parent. */
static inline unsigned citron_height_for(uint64_t units)
{
    unsigned height = tree_height_for(units);
    return height ? height : 1;
}
static inline unsigned citron_height_first(const struct space *s)
{
    return citron_height_for(s->range_units);
}
static inline unsigned citron_height_last(const struct space *s)
{
    return citron_height_for(max_u64(s->range_units, s->range_max));
}

/* ---- the configuration, one word: height + 1 (0: the lock is unused) and m, each as it is and as it will be; T_wait ---- */

#define CONFIG_WAIT_NS 64 /* the unit of T_wait: up to 16 ms */
#define CONFIG_WAIT_BITS 18
#define CONFIG_VERSION_BITS 28

struct citron_config {
    uint8_t height, height_next;
    uint8_t m, m_next;
    uint32_t wait;    /* 0: a client that claims looks up once more instead, and no client waits T_wait out */
    uint32_t version; /* so that no two configurations in a row look alike */
    bool set;         /* T_wait was set, and stays as it is */
    bool crowded;     /* there was a crowd: clients look before they add (batch.c) */
};

/* clang-format off */
#define CONFIG_HEIGHT       0
#define CONFIG_HEIGHT_NEXT  5
#define CONFIG_M           10
#define CONFIG_M_NEXT      13
#define CONFIG_WAIT        16
#define CONFIG_VERSION     34
#define CONFIG_CROWDED     (UINT64_C(1) << 62)
#define CONFIG_SET         (UINT64_C(1) << 63)
/* clang-format on */
static_assert(CONFIG_VERSION + CONFIG_VERSION_BITS == 62, "all bits are used");

static inline uint64_t config_word(struct citron_config c)
{
    return (uint64_t)(c.height + 1) << CONFIG_HEIGHT | (uint64_t)(c.height_next + 1) << CONFIG_HEIGHT_NEXT |
           (uint64_t)c.m << CONFIG_M | (uint64_t)c.m_next << CONFIG_M_NEXT | (uint64_t)c.wait << CONFIG_WAIT |
           (uint64_t)c.version << CONFIG_VERSION | (c.crowded ? CONFIG_CROWDED : 0) | (c.set ? CONFIG_SET : 0);
}
static inline struct citron_config config_of(uint64_t w)
{
    return (struct citron_config){
        .height = (uint8_t)(field_get(w, CONFIG_HEIGHT, 5) - 1),
        .height_next = (uint8_t)(field_get(w, CONFIG_HEIGHT_NEXT, 5) - 1),
        .m = (uint8_t)field_get(w, CONFIG_M, 3),
        .m_next = (uint8_t)field_get(w, CONFIG_M_NEXT, 3),
        .wait = (uint32_t)field_get(w, CONFIG_WAIT, CONFIG_WAIT_BITS),
        .version = (uint32_t)field_get(w, CONFIG_VERSION, CONFIG_VERSION_BITS),
        .set = w & CONFIG_SET,
        .crowded = w & CONFIG_CROWDED,
    };
}
static inline bool config_changing(struct citron_config c)
{
    return c.height != c.height_next || c.m != c.m_next;
}
/* While it changes (3.5.5), clients notify by the smaller m and for the larger tree, and look down by the larger m. */
static inline unsigned config_m_notify(struct citron_config c)
{
    return c.m < c.m_next ? c.m : c.m_next;
}
static inline unsigned config_m_check(struct citron_config c)
{
    return c.m > c.m_next ? c.m : c.m_next;
}
static inline unsigned config_height_notify(struct citron_config c)
{
    return c.height > c.height_next ? c.height : c.height_next;
}
static inline bool config_confirms(struct citron_config c)
{
    return !c.wait;
}
static inline uint64_t config_wait_ns(struct citron_config c)
{
    return (uint64_t)c.wait * CONFIG_WAIT_NS;
}

/* ---- claims: a hold's share of one node, or its intent to get it; a word each, in the hold's descriptor ---- */

enum claim_state {
    CLAIM_NONE,  /* no claim */
    CLAIM_WAIT,  /* wants the node and has nothing of it */
    CLAIM_QUEUE, /* may have a ticket, of unknown number */
    CLAIM_TURN,  /* has a ticket and nothing else */
    CLAIM_FLUX,  /* has a ticket (internal nodes), and may have the rest: in the middle of a step */
    CLAIM_HELD,  /* all steps were taken; the first of them may have failed: then a step back follows */
};

#define CLAIM_NODE_BITS 35 /* level order in the largest tree; 0: the spillover */
#define CLAIM_TICKET 35    /* or the bounds of a leaf */
#define CLAIM_BOUNDS_BITS 12
#define CLAIM_PLACE 47 /* of a reader in a leaf: the lower bits of its place */
#define CLAIM_PLACE_HIGH 59
#define CLAIM_TOP 50 /* the height and the m by which it notifies */
#define CLAIM_M 55
#define CLAIM_ALL (UINT64_C(1) << 58)                 /* with all bits of the leaves below (second fast path of 3.8) */
#define CLAIM_JOINT (UINT64_C(1) << CLAIM_PLACE_HIGH) /* of a writer's internal node: another hold of the session has it, too */
#define CLAIM_SHARED (UINT64_C(1) << 60)
#define CLAIM_STATE 61

#define CLAIMS_MAX 8
#define DESC_TOKEN CLAIMS_MAX        /* behind the claims, in the session's own books: the hold's token */
#define DESC_CHANGE (CLAIMS_MAX + 1) /* for other sessions: the hold waits for more (yield.c); 0 if not */
#define DESC_WORDS (CLAIMS_MAX + 2)  /* a multiple of 16 bytes */
static_assert(TREE_SPLIT_MAX + 1 <= CLAIMS_MAX, "a range's nodes and the spillover");

struct citron_claim {
    enum claim_state state;
    bool shared, all, joint;
    bool spill;
    struct tree_node node;
    uint32_t ticket; /* bounds, if a leaf */
    uint8_t m, top;
    uint8_t place;   /* of a reader in a leaf */
    uint8_t said;    /* the state as last published */
    bool took;       /* known to its owner alone: the bits of the leaf, or the place, are its own */
    bool cut;        /* the other part of it belongs to another hold (split.c) */
    bool granted;    /* from a census: the record says so (shared memory only); */
    uint32_t serial; /* which use of the record, */
    uint32_t epoch;  /* and of the slot; */
    bool changes;    /* its hold waits for more, */
    bool wanted;     /* and this claim is a part of that */
};

static inline bool claim_internal(const struct citron_claim *c)
{
    return c->spill || c->node.height > 0;
}

static inline uint64_t claim_word(const struct citron_claim *c, unsigned height_max)
{
    uint64_t node = c->spill ? 0 : tree_index(c->node, height_max);
    debug_assert(node < UINT64_C(1) << CLAIM_NODE_BITS && c->ticket <= FIELD_MAX(NODE_COUNT_BITS));
    return (uint64_t)c->state << CLAIM_STATE | (c->shared ? CLAIM_SHARED : 0) | (c->all ? CLAIM_ALL : 0) |
           (c->joint ? CLAIM_JOINT : 0) | (uint64_t)(c->place >> 3) << CLAIM_PLACE_HIGH | (uint64_t)(c->place & 7) << CLAIM_PLACE |
           (uint64_t)c->m << CLAIM_M | (uint64_t)c->top << CLAIM_TOP | (uint64_t)c->ticket << CLAIM_TICKET | node;
}

static inline struct citron_claim claim_of(uint64_t w, unsigned height_max)
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

static inline uint32_t turns_ahead(const struct citron_claim *c, uint64_t word)
{
    return (c->ticket - node_field(word, NODE_TCNT)) & NODE_COUNT_MAX;
}

#endif
