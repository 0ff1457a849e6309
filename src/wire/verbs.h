/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The wire of a memory node: verbs on its memory, in datagrams.
 *
 * A request is one datagram: a head and verbs, executed in order. Each verb is followed by its room: the operands of an atomic,
 * the bytes of a WRITE, or empty bytes as long as a READ is to return. The answer is the same datagram with the results in the
 * rooms. So an answer is never longer than its request, no length changes on the way back, and a kernel program answers in place.
 *
 * A client numbers its requests. The node executes request n + 1 after n and no other. The latest VERBS_WINDOW requests can be
 * asked for again, and what their verbs found then comes from the node's reply cache: a verb takes effect once, however often its
 * packet comes. So a client has up to VERBS_WINDOW requests in flight, and all its verbs take effect in one order.
 *
 * READs are not kept in the reply cache. A READ that is asked for again reads again. That is no other order of the client's verbs
 * unless a verb that changes memory follows it in the same request: what such a READ found is kept, too.
 *
 * Little-endian, naturally aligned, no padding. Kernel programs include this file. */
#ifndef PAWL_WIRE_VERBS_H
#define PAWL_WIRE_VERBS_H

#include <stdint.h>

#define VERBS_MAGIC 0xd7u /* the first byte; lock packets begin with their version, which is small */
#define VERBS_VERSION 1u
#define VERBS_FEATURES 0u /* bits that a receiver must know; none yet, so any is refused */

#define VERBS_PACKET_MAX 1400u /* bytes of one datagram, as of lock packets (wire/packet.h) */
#define VERBS_COUNT_MAX 32u    /* verbs of one request: more than any design batches, few enough for a kernel program's loop */
#define VERBS_WINDOW 8u        /* requests in flight of one client; a power of two */
#define VERBS_KEPT_WORDS 32u   /* results of one request in the reply cache: 32 atomics of 64 bits or 16 of 128 */
#define VERBS_CONDS_MAX 8u     /* of one WAIT */
#define VERBS_NAME_LEN 32u     /* of a space, with its final 0 */

enum verbs_type {
    VERBS_CONNECT = 1, /* struct verbs_connect: a client number and a life */
    VERBS_BATCH = 2,   /* verbs; numbered */
    VERBS_WAIT = 3,    /* struct verbs_wait: answered when a condition no longer holds; `sequence` tells WAITs apart */
    VERBS_FENCE = 4,   /* struct verbs_fence: shuts a client out */
    VERBS_LEAVE = 5,   /* the client has ended; not answered */
    VERBS_ATTACH = 6,  /* struct verbs_attach: how the memory is reached where verbs are not packets, and a slot */
    VERBS_ANSWER = 0x80,
};

enum verbs_status {
    VERBS_OK = 0,
    VERBS_FENCED = 1,  /* this client was shut out, or the node has a new life: nothing was executed */
    VERBS_BAD = 2,     /* not a request that the node can execute: nothing was */
    VERBS_AGAIN = 3,   /* not now: the node waits for a lease to end, is busy with the client, or cannot park another WAIT */
    VERBS_FULL = 4,    /* CONNECT: all client numbers are in use */
    VERBS_UNKNOWN = 5, /* CONNECT: the node has no such space */
    VERBS_OTHER = 6,   /* CONNECT: the node speaks another version, which is in the head, or lacks a feature */
};

/* The first eight bytes are the same in every version: a node refuses a CONNECT of another version by name. */
struct verbs_head {
    uint8_t magic;
    uint8_t version;
    uint8_t type;
    uint8_t status;     /* of an answer; 0 in a request */
    uint16_t count;     /* verbs, or conditions of a WAIT */
    uint16_t len;       /* bytes of the packet, this head included */
    uint32_t space;     /* the short id that CONNECT told */
    uint32_t features;  /* that the receiver must know */
    uint32_t node_life; /* of the node's memory */
    uint32_t client;    /* the client's number */
    uint32_t life;      /* and how often that number had been given when the client got it */
    uint32_t unused;
    uint64_t sequence;
    uint64_t tag; /* told by CONNECT: a sender that cannot read the network does not guess it; room for a signature */
};
_Static_assert(sizeof(struct verbs_head) == 48, "no padding");

/* ---- verbs ---- */

enum verbs_verb {
    VERBS_READ = 1, /* word by word, in the order of the addresses: clients join READs of words that follow each other */
    VERBS_WRITE = 2,
    VERBS_CAS = 3,  /* compare, swap */
    VERBS_FAA = 4,  /* add */
    VERBS_SWAP = 5, /* value */
    VERBS_MCAS = 6, /* compare, compare_mask, swap, swap_mask */
    VERBS_MFAA = 7, /* add, top: field by field; `top` has the most significant bit of every field */
    VERBS_VERBS
};

struct verbs_op {
    uint8_t verb;
    uint8_t width;   /* of an atomic: 8 or 16 bytes; else 0 */
    uint16_t room;   /* bytes that follow: a multiple of 8 */
    uint32_t unused; /* 0 */
    uint64_t offset; /* in the node's memory: a multiple of 8, and of an atomic's width */
};
_Static_assert(sizeof(struct verbs_op) == 16, "no padding");

/* Operands of an atomic, in units of its width; 0: not an atomic. What it found is in the first unit of the answer. */
static inline uint32_t verbs_operands(uint8_t verb)
{
    switch (verb) {
    case VERBS_FAA:
    case VERBS_SWAP:
        return 1;
    case VERBS_CAS:
    case VERBS_MFAA:
        return 2;
    case VERBS_MCAS:
        return 4;
    default:
        return 0;
    }
}

/* ---- the other packets ---- */

/* Asked for again with the same nonce, a CONNECT has the same answer while the client lives. */
struct verbs_connect {
    struct verbs_head head;
    char name[VERBS_NAME_LEN]; /* of the space, filled up with 0 */
    uint64_t nonce;            /* not 0 */
    /* Of the answer, beside space, node_life, client, life and tag in the head: */
    uint64_t bytes;    /* of the node's memory; in the request: the client's process, if it would use the memory directly */
    uint64_t lease_ns; /* a client that is silent for longer may be shut out */
    uint32_t can;      /* enum verbs_can */
    uint32_t unused;
};
_Static_assert(sizeof(struct verbs_connect) == 112, "no padding");

enum verbs_can {
    VERBS_CAN_ATOMIC128 = 1 << 0,
    VERBS_CAN_MASKED = 1 << 1,
    VERBS_CAN_WAIT = 1 << 2,   /* WAITs are parked; otherwise a client polls */
    VERBS_CAN_NEAR = 1 << 3,   /* clients on the node's machine may use the memory directly, and this one has said so */
    VERBS_CAN_FABRIC = 1 << 4, /* verbs are not packets: a client attaches to the memory by another fabric (ATTACH) */
    VERBS_CAN_CPU = 1 << 5,    /* the node's atomics are atomic with those of its machine's CPUs */
};

#define VERBS_PROVIDER_LEN 64u /* with its final 0 */
#define VERBS_ADDRESS_MAX 128u /* of a provider; those of libfabric's have up to 64 */

/* How a node's memory is reached by libfabric or libibverbs; in a question, the end of the client that asks, where the node must
 * know it. */
struct verbs_way {
    char provider[VERBS_PROVIDER_LEN];
    uint32_t protocol, protocol_version; /* of the provider: those of both ends must be the same */
    uint32_t address_format;
    uint32_t address_len;
    uint8_t address[VERBS_ADDRESS_MAX];
    uint64_t key;  /* this client's */
    uint64_t base; /* the address of the first byte */
};
_Static_assert(sizeof(struct verbs_way) == 224, "no padding");

/* A client has one key at a time. Asked for its number again, it is the same key; the next number closes it and opens another. */
struct verbs_attach {
    struct verbs_head head;
    uint32_t number;   /* of the key; the first is 0 */
    int32_t code;      /* of the answer: 0 or a negative errno: of the slot, or of the key */
    uint64_t lease_ns; /* of the session for which a slot is wanted; 0: none is */
    uint64_t lease;    /* of the answer: the slot's lease word */
    uint32_t slot;     /* likewise: its number */
    uint32_t unused;
    uint64_t memory_life; /* likewise: of the memory in which that slot is (cluster/session.h) */
    struct verbs_way way; /* of the question and of the answer */
};
_Static_assert(sizeof(struct verbs_attach) == 312, "no padding");

struct verbs_cond {
    uint64_t offset;
    uint64_t mask;
    uint64_t value; /* waits while (word & mask) == value; of the answer: the word */
};

struct verbs_wait {
    struct verbs_head head;
    uint64_t park_ns;                        /* how long the node keeps it: the client asks again before that */
    struct verbs_cond cond[VERBS_CONDS_MAX]; /* as many as head.count; the packet ends after them */
};
_Static_assert(sizeof(struct verbs_wait) == 56 + 24 * VERBS_CONDS_MAX, "no padding");

struct verbs_fence {
    struct verbs_head head;
    uint32_t peer;
    uint32_t peer_life; /* this one and all before it */
};
_Static_assert(sizeof(struct verbs_fence) == 56, "no padding");

#endif
