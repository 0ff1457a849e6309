/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What every lock packet begins with. Switch programs include this file, and are compiled for the kernel, too: nothing of the
 * operating system here. Little-endian, naturally aligned, no padding. What follows the head is the design's. */
#ifndef PAWL_WIRE_PACKET_H
#define PAWL_WIRE_PACKET_H

#include <stdint.h>

#define PACKET_VERSION 1
#define PACKET_MAX 1400u /* bytes of one packet, head included: the usual MTU less Ethernet, IP and UDP heads and a tunnel's */

/* Whose packet it is: the byte `family`. */
enum packet_family {
    PACKET_ECHO = 1,        /* comes back as it is: for measuring */
    PACKET_COORDINATOR = 2, /* directory, membership, heartbeats */
    PACKET_SERVER = 3,      /* lock servers: srvlock, parlock, and those behind a switch */
    PACKET_FISSION = 4,
    PACKET_NETLOCK = 5,
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
    uint8_t version;     /* PACKET_VERSION */
    uint8_t head_len;    /* sizeof(struct packet_head): what comes after starts there */
    uint8_t family;      /* enum packet_family */
    uint8_t type;        /* the family's */
    uint32_t space;      /* which space; packets for another are dropped */
    uint32_t epoch;      /* of the rack's membership: packets from before a recovery are told apart */
    uint32_t generation; /* of the lock's index: an index is used again only with a higher one */
    uint64_t index;      /* which lock */
    uint64_t nonce;      /* of the request: its answer repeats it */
    struct place from;
    struct place to;
};
_Static_assert(sizeof(struct packet_head) == 40, "no padding");

#endif
