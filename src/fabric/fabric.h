/* SPDX-License-Identifier: Apache-2.0 */
/* A fabric: memory of another host, and short messages between clients.
 *
 * A protocol that works one-sidedly is straight-line code over these calls: each verb returns when it has completed. The
 * simulation switches to another task meanwhile, shared memory completes at once, a network polls. So the verbs on shared
 * memory are inline, and cost one predicted branch more than the bare instruction.
 *
 * Promises of every fabric
 *   verbs     READ, WRITE, and CAS, FAA and SWAP of 64 bits. Masked forms exist on every fabric, as verbs or built by lower.c;
 *             128-bit atomics only with FAB_ATOMIC128, for nothing smaller can stand in for them;
 *   order     a verb that has completed took effect before any later verb of this endpoint does. Of verbs of one endpoint to one
 *             node that are in flight together (a batch, posted writes), READs keep their order among themselves, WRITEs
 *             among themselves, atomics among themselves, and a READ does not pass an earlier WRITE. FAB_ORDER_MIXED and
 *             FAB_ORDER_WRITE_AFTER_READ promise the rest. Where they are missing, an op with `fence` set waits for all before it;
 *   atomicity atomics on one word are atomic with each other, also those of different widths. They are atomic with the CPU's only
 *             with FAB_CPU_ATOMIC64 and FAB_CPU_ATOMIC128, and with a plain WRITE only there, too;
 *   reads     a READ or WRITE is atomic for each aligned 8 bytes and no more;
 *   unknown   a verb that returns -FAB_EUNKNOWN took effect once or not at all, and if so then before any later verb of
 *             this endpoint does: a caller that reads again afterwards sees the outcome;
 *   fencing   after fab_fence(peer) returns 0 no verb that the peer issued before takes effect any more.
 * Messages promise nothing: they may be lost, doubled, late or out of order. */
#ifndef PAWL_FABRIC_FABRIC_H
#define PAWL_FABRIC_FABRIC_H

#include "lib/base.h"
#include "lib/bits.h"
#include "world/world.h"

/* ---- addresses: 16 bits of node, 48 bits of offset in that node's memory ---- */

typedef uint64_t fab_addr;

#define FAB_OFFSET_BITS 48
#define FAB_NODE(addr) ((uint32_t)((addr) >> FAB_OFFSET_BITS))
#define FAB_OFFSET(addr) ((addr)&FIELD_MAX(FAB_OFFSET_BITS))
#define FAB_ADDR(node, offset) (((uint64_t)(node) << FAB_OFFSET_BITS) | (offset))

/* A client of a memory node (node.h) has no memory in the fabric: its endpoint is on ELSEWHERE. What belongs to it lies at the
 * memory node, under addresses with the number HELD: they say that no client reaches it by CPU instructions. */
#define FAB_NODE_ELSEWHERE 0xffffu
#define FAB_NODE_HELD 0xfffeu

/* ---- errors, beside errno's: returned negative ---- */

enum {
    FAB_EUNKNOWN = 2001, /* the connection broke: the verb took effect or did not */
    FAB_EFENCED = 2002,  /* this endpoint was shut out of that node's memory; the verb did not take effect */
};

/* ---- capabilities ---- */

/* Fixed when a space is made, and part of its header: every endpoint to one node has the same ones, so the values stay. */
enum fab_caps {
    FAB_ATOMIC128 = 1 << 0,              /* CAS, FAA and SWAP of 128 bits; the masked forms of that width as those of 64 bits */
    FAB_MASKED_SWAP = 1 << 1,            /* SWAP that replaces the bits of swap_mask only: a verb, one round trip, wait-free */
    FAB_MASKED_CAS = 1 << 2,             /* CAS with compare_mask and swap_mask, likewise; a masked SWAP can be built from it */
    FAB_MASKED_FAA = 1 << 3,             /* FAA field by field, likewise */
    FAB_CPU_ATOMIC64 = 1 << 4,           /* 64-bit atomics are atomic with the CPU's own, and with plain WRITEs */
    FAB_CPU_ATOMIC128 = 1 << 5,          /* 128-bit atomics are, too; implies FAB_CPU_ATOMIC64 */
    FAB_ORDER_MIXED = 1 << 6,            /* READs and WRITEs do not pass earlier atomics, atomics not earlier READs and WRITEs */
    FAB_ORDER_WRITE_AFTER_READ = 1 << 7, /* WRITEs do not pass earlier READs; on RDMA they may */
    FAB_WAIT = 1 << 8,                   /* the node wakes waiters when a word changes; elsewhere they poll */
    FAB_SHARED_CLOCK = 1 << 9,           /* all endpoints read one clock */
    FAB_KERNEL_LIFE = 1 << 10,           /* the kernel marks a dead peer's robust mutex */
    FAB_MESSAGES = 1 << 11,              /* fab_send and fab_recv */
};
#define FAB_CAPS 12 /* how many */

/* Capabilities that go together on most fabrics. */
#define FAB_MASKED (FAB_MASKED_SWAP | FAB_MASKED_CAS | FAB_MASKED_FAA)
#define FAB_ORDERED (FAB_ORDER_MIXED | FAB_ORDER_WRITE_AFTER_READ)

static inline bool fab_has(uint32_t caps, uint32_t all)
{
    return (caps & all) == all;
}

/* "atomic128", "masked-swap", … in the order of the bits; null beyond the last. */
const char *fab_cap_name(unsigned bit);

/* "all", "none" or a comma-separated list; false if a name is unknown. */
bool fab_caps_parse(const char *list, uint32_t *caps);

/* ---- verbs as data: for batches, and below the inline layer ---- */

enum fab_verb {
    FAB_READ,  /* len bytes into buf */
    FAB_WRITE, /* len bytes from buf */
    FAB_CAS,   /* if (word & compare_mask) == (compare & compare_mask): word = (word & ~swap_mask) | (swap & swap_mask) */
    FAB_FAA,   /* word += swap, field by field: swap_mask has the top bit of every field, 0 means one field */
    FAB_SWAP,  /* word = (word & ~swap_mask) | (swap & swap_mask); all bits unless masked */
    FAB_VERBS
};

#define FAB_LEN_MAX 4096 /* of one READ or WRITE: a page, as much as any protocol here moves at once */
#define FAB_BATCH_MAX 64 /* verbs of one batch: a send queue's usual depth */

struct fab_op {
    uint8_t verb;
    uint8_t width; /* of an atomic: 8 or 16 bytes */
    uint16_t len;  /* of a READ or WRITE; a multiple of 8, aligned to 8 */
    bool masked;
    bool fence; /* takes effect after all earlier verbs of this endpoint to that node; free where their order is promised anyway */
    bool again; /* not masked; may be executed more than once, and before the verb in front of it, if it is once more after that:
                   the last result counts. So it travels with that one where a fabric builds it from several (lower.c) */
    fab_addr addr;
    void *buf;
    u128 compare, compare_mask; /* of a masked verb: bits that are not compared are a guess, for fabrics that lack it (lower.c) */
    u128 swap, swap_mask;
    u128 old; /* out: what an atomic found */
};

/* ---- waiting ---- */

/* Wait while (word & mask) == value. Futexes have 32 bits, so the mask lies within one half of the word. */
struct fab_cond {
    fab_addr addr;
    uint64_t mask;
    uint64_t value;
};

/* One or two words of another node, read together: width 8 or 16. */
struct fab_pair {
    fab_addr addr;
    uint8_t width;
    u128 mask;
    u128 value;
};

#define FAB_CONDS_MAX 64 /* futex_waitv takes 128; the rest is kept for callers that wait for several operations at once */

/* ---- messages ---- */

#define FAB_MSG_MAX 48 /* with its header one cache line */

struct fab_msg {
    uint32_t from; /* the sender's endpoint id */
    uint32_t len;
    uint8_t data[FAB_MSG_MAX];
};

/* ---- endpoints ---- */

struct fab_ep;

/* See fab_own_load64, fab_own_store64 and fab_private_store64. FAB_OWN_LOCAL, of own_inside only: fab_local_store64, to a word that
 * others write, too. */
enum fab_own { FAB_OWN_LOAD, FAB_OWN_STORE, FAB_OWN_PRIVATE, FAB_OWN_LOCAL };

struct fab_ops {
    /* Executes n verbs in order; n <= FAB_BATCH_MAX. One round trip if they go to one node. 0 or the first error;
     * with -FAB_EUNKNOWN the outcome of every verb of the batch is unknown. */
    int (*batch)(struct fab_ep *, struct fab_op *ops, unsigned n);
    /* Sends a WRITE without waiting for it. An error surfaces at the next verb. */
    void (*post)(struct fab_ep *, const struct fab_op *op);
    int (*wait)(struct fab_ep *, const struct fab_cond *conds, unsigned n, uint64_t deadline);
    int (*poll)(struct fab_ep *, const struct fab_pair *pair, uint64_t deadline, u128 *seen);
    int (*watch)(struct fab_ep *, fab_addr addr, uint64_t *words, unsigned n, uint64_t deadline); /* null: not needed there */
    int (*wake)(struct fab_ep *, fab_addr addr, uint64_t mask, unsigned n);
    int (*send)(struct fab_ep *, uint32_t to, const void *data, uint32_t len);
    int (*recv)(struct fab_ep *, struct fab_msg *out, uint64_t deadline);
    int (*fence)(struct fab_ep *, uint32_t peer, uint64_t peer_proof);
    uint64_t (*local)(struct fab_ep *, enum fab_verb, fab_addr addr, uint64_t compare, uint64_t value);
    uint64_t (*own)(struct fab_ep *, enum fab_own, fab_addr addr, uint64_t value);
    /* Between `enter` and `leave` the task calls nothing but own_inside, which is `own` without a mutex. Null: that would spare
     * nothing. */
    void (*enter)(struct fab_ep *);
    void (*leave)(struct fab_ep *);
    uint64_t (*own_inside)(struct fab_ep *, enum fab_own, fab_addr addr, uint64_t value);
    void (*local_fence)(struct fab_ep *);
};

/* A client's access to the fabric. One task at a time uses an endpoint, except on shared memory, where an
 * endpoint has no state of its own and any number may. */
struct fab_ep {
    char *base; /* shared memory: the segment as mapped here; null elsewhere */
    uint64_t size;
    const struct fab_ops *ops;
    struct world *world;
    uint32_t caps;
    uint32_t id;    /* the sender of messages, and the peer that fab_fence shuts out; on shared memory the session's slot */
    uint32_t node;  /* the node whose memory is local to this endpoint */
    uint32_t spin;  /* shared memory: how many times to look before sleeping */
    uint32_t calls; /* whose verbs leave together with those of this endpoint (together.h); 0: it is alone */
    uint32_t rings; /* shared memory: how many message rings there are, */
    fab_addr ring0; /* and where they start */
    struct fab_counts {
        uint64_t atomics, reads, writes, sends, round_trips;
    } counts; /* kept where a verb is expensive enough to count: everywhere but on shared memory */
};

static inline bool fab_is_shm(const struct fab_ep *ep)
{
    return likely(ep->base != NULL);
}

static inline void *fab_shm_ptr(const struct fab_ep *ep, fab_addr addr)
{
    debug_assert(addr < ep->size);
    return ep->base + addr;
}

/* ---- 64-bit verbs ---- */

int fab_atomic64(struct fab_ep *ep, enum fab_verb verb, fab_addr addr, uint64_t compare, uint64_t value, uint64_t *old);

static inline int fab_cas64(struct fab_ep *ep, fab_addr addr, uint64_t expect, uint64_t desired, uint64_t *old)
{
    if (fab_is_shm(ep)) {
        __atomic_compare_exchange_n((uint64_t *)fab_shm_ptr(ep, addr), &expect, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
        *old = expect; /* unchanged if the exchange took place */
        return 0;
    }
    return fab_atomic64(ep, FAB_CAS, addr, expect, desired, old);
}

static inline int fab_faa64(struct fab_ep *ep, fab_addr addr, uint64_t add, uint64_t *old)
{
    if (fab_is_shm(ep)) {
        *old = __atomic_fetch_add((uint64_t *)fab_shm_ptr(ep, addr), add, __ATOMIC_SEQ_CST);
        return 0;
    }
    return fab_atomic64(ep, FAB_FAA, addr, 0, add, old);
}

static inline int fab_swap64(struct fab_ep *ep, fab_addr addr, uint64_t value, uint64_t *old)
{
    if (fab_is_shm(ep)) {
        *old = __atomic_exchange_n((uint64_t *)fab_shm_ptr(ep, addr), value, __ATOMIC_SEQ_CST);
        return 0;
    }
    return fab_atomic64(ep, FAB_SWAP, addr, 0, value, old);
}

/* Several words: by way of the table on every fabric. */
int fab_read(struct fab_ep *ep, fab_addr addr, void *buf, uint16_t len);
int fab_write(struct fab_ep *ep, fab_addr addr, const void *buf, uint16_t len);
void fab_post(struct fab_ep *ep, fab_addr addr, const void *buf, uint16_t len); /* without waiting: see fab_post64 */

static inline int fab_read64(struct fab_ep *ep, fab_addr addr, uint64_t *value)
{
    if (fab_is_shm(ep)) {
        *value = __atomic_load_n((uint64_t *)fab_shm_ptr(ep, addr), __ATOMIC_ACQUIRE);
        return 0;
    }
    return fab_read(ep, addr, value, sizeof *value);
}

static inline int fab_write64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep)) {
        __atomic_store_n((uint64_t *)fab_shm_ptr(ep, addr), value, __ATOMIC_RELEASE);
        return 0;
    }
    return fab_write(ep, addr, &value, sizeof value);
}

/* A write without waiting. It takes effect before any later READ or WRITE of this endpoint to that node; before a later atomic only
 * with FAB_ORDER_MIXED, or if that atomic has `fence` set. */
static inline void fab_post64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep))
        __atomic_store_n((uint64_t *)fab_shm_ptr(ep, addr), value, __ATOMIC_RELEASE);
    else
        fab_post(ep, addr, &value, sizeof value);
}

/* ---- everything else goes through the table ---- */

/* Masked: only the bits of compare_mask are compared, only those of swap_mask replaced. */
int fab_mcas64(struct fab_ep *ep, fab_addr addr, uint64_t compare, uint64_t compare_mask, uint64_t swap, uint64_t swap_mask,
               uint64_t *old);
/* Adds field by field; `top` marks every field's most significant bit. */
int fab_mfaa64(struct fab_ep *ep, fab_addr addr, uint64_t add, uint64_t top, uint64_t *old);

int fab_read128(struct fab_ep *ep, fab_addr addr, u128 *value); /* not one atomic access: see the promise on reads */
int fab_cas128(struct fab_ep *ep, fab_addr addr, u128 expect, u128 desired, u128 *old);
int fab_faa128(struct fab_ep *ep, fab_addr addr, u128 add, u128 *old);
int fab_swap128(struct fab_ep *ep, fab_addr addr, u128 value, u128 *old);
int fab_mcas128(struct fab_ep *ep, fab_addr addr, u128 compare, u128 compare_mask, u128 swap, u128 swap_mask, u128 *old);
int fab_mfaa128(struct fab_ep *ep, fab_addr addr, u128 add, u128 top, u128 *old);

/* Several verbs in order, in one round trip if they go to one node. Masked verbs that the fabric lacks split the batch. */
int fab_batch(struct fab_ep *ep, struct fab_op *ops, unsigned n);

/* Sets `fence` so that these verbs take effect in the order in which they stand; does nothing where that is promised. */
void fab_keep_order(const struct fab_ep *ep, struct fab_op *ops, unsigned n);

/* ---- waiting: the only way ---- */

/* Returns 0 once a condition no longer holds (or for no reason: look again), -ETIMEDOUT at the deadline, -ECANCELED if the
 * operation was cancelled meanwhile, or a fabric error. Without conditions it sleeps until the deadline. */
int fab_wait_any(struct fab_ep *ep, const struct fab_cond *conds, unsigned n, uint64_t deadline);

static inline int fab_wait(struct fab_ep *ep, fab_addr addr, uint64_t mask, uint64_t value, uint64_t deadline)
{
    const struct fab_cond cond = {.addr = addr, .mask = mask, .value = value};
    return fab_wait_any(ep, &cond, 1, deadline);
}

/* Waits while (words & mask) == value, by one READ per look, and says what the last look saw: a caller that waits for another
 * node's memory need not read again what ended the wait. Each word is of one moment, the two may not be. Not on shared memory. */
int fab_poll(struct fab_ep *ep, const struct fab_pair *pair, uint64_t deadline, u128 *seen);

/* The same for up to FAB_WATCH_MAX words that follow each other in memory, while they are as in `words`, which then has what was
 * found. Only where the session has no memory of its own. */
#define FAB_WATCH_MAX 8 /* conditions of a WAIT to a memory node */
int fab_watch(struct fab_ep *ep, fab_addr addr, uint64_t *words, unsigned n, uint64_t deadline);

/* Wakes up to n waiters on that half of the word. Changing a word does not wake by itself on shared memory. */
void fab_wake(struct fab_ep *ep, fab_addr addr, uint64_t mask, unsigned n);

/* ---- messages ---- */

/* 0, or -EAGAIN if the receiver's ring is full, or -ENOTCONN: it may be lost in any case. */
int fab_send(struct fab_ep *ep, uint32_t to, const void *data, uint32_t len);
int fab_recv(struct fab_ep *ep, struct fab_msg *out, uint64_t deadline);

/* ---- fencing ---- */

/* Shuts a peer out. Peer and proof are what it left in its session slot to be recognised by: on shared memory its process id and
 * that process's start time, elsewhere its endpoint id and its generation. -EAGAIN: not yet certain, ask again. */
int fab_fence(struct fab_ep *ep, uint32_t peer, uint64_t proof);

/* ---- memory of this endpoint's own node, by CPU instructions ---- */

static inline uint64_t fab_local_load64(struct fab_ep *ep, fab_addr addr)
{
    if (fab_is_shm(ep))
        return __atomic_load_n((uint64_t *)fab_shm_ptr(ep, addr), __ATOMIC_ACQUIRE);
    return ep->ops->local(ep, FAB_READ, addr, 0, 0);
}

/* A plain store: other cores may see it late (x86's store buffer). fab_local_fence or an atomic makes it visible. */
static inline void fab_local_store64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep))
        __atomic_store_n((uint64_t *)fab_shm_ptr(ep, addr), value, __ATOMIC_RELEASE);
    else
        ep->ops->local(ep, FAB_WRITE, addr, 0, value);
}

static inline uint64_t fab_local_cas64(struct fab_ep *ep, fab_addr addr, uint64_t expect, uint64_t desired)
{
    if (fab_is_shm(ep)) {
        __atomic_compare_exchange_n((uint64_t *)fab_shm_ptr(ep, addr), &expect, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
        return expect;
    }
    return ep->ops->local(ep, FAB_CAS, addr, expect, desired);
}

static inline uint64_t fab_local_swap64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep))
        return __atomic_exchange_n((uint64_t *)fab_shm_ptr(ep, addr), value, __ATOMIC_SEQ_CST);
    return ep->ops->local(ep, FAB_SWAP, addr, 0, value);
}

static inline uint64_t fab_local_faa64(struct fab_ep *ep, fab_addr addr, uint64_t add)
{
    if (fab_is_shm(ep))
        return __atomic_fetch_add((uint64_t *)fab_shm_ptr(ep, addr), add, __ATOMIC_SEQ_CST);
    return ep->ops->local(ep, FAB_FAA, addr, 0, add);
}

/* Words that only this process writes, and others read once in a blue moon if at all: they stay in its cache, and the simulation
 * lets no time pass. Stores go through the store buffer like all others. */
static inline uint64_t fab_own_load64(struct fab_ep *ep, fab_addr addr)
{
    return fab_is_shm(ep) ? fab_local_load64(ep, addr) : ep->ops->own(ep, FAB_OWN_LOAD, addr, 0);
}

static inline void fab_own_store64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep))
        fab_local_store64(ep, addr, value);
    else
        ep->ops->own(ep, FAB_OWN_STORE, addr, value);
}

/* Words of the session's own descriptors that no other session reads: where the session has no memory of its own, they stay with
 * the client and cost no verb. */
static inline void fab_private_store64(struct fab_ep *ep, fab_addr addr, uint64_t value)
{
    if (fab_is_shm(ep))
        fab_local_store64(ep, addr, value);
    else
        ep->ops->own(ep, FAB_OWN_PRIVATE, addr, value);
}

/* Orders this task's earlier local stores before its later local loads (x86: mfence). */
static inline void fab_local_fence(struct fab_ep *ep)
{
    if (fab_is_shm(ep))
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    else
        ep->ops->local_fence(ep);
}

#endif
