/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The head of every lock packet. Switch programs include this file, and are compiled for the kernel, too: nothing of the
 * operating system here. Little-endian, naturally aligned, no padding. What follows the head is the design's. */
#ifndef PAWL_WIRE_PACKET_H
#define PAWL_WIRE_PACKET_H

#include <stdint.h>

#define PACKET_VERSION 2
#define PACKET_MAX 1400u /* bytes of one packet, head included: the usual MTU less Ethernet, IP and UDP heads and a tunnel's */
#define PACKET_LOCKS_MAX (UINT64_C(1) << 32) /* of a space: more than granters have memory for */

/* Bits of the head's `features`: what a receiver must know to read the packet. A packet with an unknown bit is refused as a whole
 * and counted, so that a member of an older build changes nothing by a packet that it misreads. */
enum packet_features {
    PACKET_TAGGED = 1 << 0, /* `tag` authenticates the datagram (wire/seal.h) */
    PACKET_MANY = 1 << 1,   /* a struct packet_many follows the head, and then so many packets (wire/many.h) */
};
#ifndef PACKET_FEATURES    /* a test has a build with others */
#define PACKET_FEATURES 0u /* those that this build reads and may send */
#endif

/* Whose packet it is: the byte `family`. */
enum packet_family {
    PACKET_ECHO = 1,        /* comes back, as enum packet_echo says: for measuring */
    PACKET_COORDINATOR = 2, /* directory, membership, heartbeats */
    PACKET_SERVER = 3,      /* lock servers: srvlock, parlock, and those behind a switch */
    PACKET_FISSION = 4,
    PACKET_NETLOCK = 5,
};

/* Types of PACKET_ECHO. An answer is not answered, so that two members do not send one to and fro for ever. */
enum packet_echo {
    ECHO_COUNT = 0, /* one way: a process counts it, and does not answer */
    ECHO_ASK = 1,   /* comes back as ECHO_BACK, as long as it is */
    ECHO_BACK = 2,
};

/* A sender or receiver: a machine of the rack by its number, and a port there. The coordinator's directory says which address a
 * machine has. A machine's agents have port 0, its lock server has 1; a process that waits has one of its own. */
struct place {
    uint16_t machine;
    uint16_t port;
};

#define MACHINE_NONE 0u          /* no machine has number 0 */
#define MACHINE_MAX 0xfff0u      /* the highest number of a machine */
#define MACHINE_SWITCH 0xffffu   /* the switch; with several, the one that has the lock */
#define MACHINE_STEWARD 0xfffeu  /* says which of them decide, if the design has one; with the coordinator */
#define MACHINE_OPERATOR 0xfffdu /* a person's command, at whatever port it has */
#define PORT_POOL 0u
#define PORT_SERVER 1u /* the machine's lock server, if it has one */

struct packet_head {
    uint8_t version;     /* PACKET_VERSION: it says how long the head is, too */
    uint8_t features;    /* enum packet_features */
    uint8_t family;      /* enum packet_family */
    uint8_t type;        /* the family's */
    uint32_t space;      /* the short id of the space, bound to its long one at joining; packets for another are dropped */
    uint64_t tag;        /* PACKET_TAGGED: over the rest of the packet; else 0 */
    uint32_t epoch;      /* of the rack's membership: packets from before a recovery are told apart */
    uint32_t generation; /* of the lock's index: an index is used again only with a higher one */
    uint64_t index;      /* which lock */
    uint64_t nonce;      /* of the request: its answer repeats it */
    struct place from;
    struct place to;
};
_Static_assert(sizeof(struct packet_head) == 48, "no padding");

#define PACKET_MANY_MAX 16u /* what a switch decides in a bounded loop */

/* Body of a packet with PACKET_MANY. The marks have a bit for each part, and are set in answers only: a switch in the kernel sends
 * the datagram back as its answer. */
struct packet_many {
    uint8_t count; /* packets that follow: 1 to PACKET_MANY_MAX */
    uint8_t zero[3];
    uint16_t settled;                 /* the part has no answer: its bytes mean nothing */
    uint16_t singly;                  /* the part was not decided, and changed nothing: its sender sends it again, alone */
    uint8_t eighths[PACKET_MANY_MAX]; /* the length of each, in units of 8 bytes */
};
_Static_assert(sizeof(struct packet_many) == 24, "no padding");

/* Whether this build reads the packet. The first thing that every receiver asks about a packet that is as long as a head. */
static inline _Bool packet_readable(const struct packet_head *h)
{
    return h->version == PACKET_VERSION && !(h->features & ~PACKET_FEATURES);
}

#endif
