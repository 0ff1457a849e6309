/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Shared by an XDP data plane and its control process: settings, maps, counters. The kernel's side includes this, too: nothing of
 * the operating system here. Names of maps are in loader.c; the role of each map is explained where it is declared (frame.bpf.h,
 * X.bpf.c). */
#ifndef PAWL_DATAPLANE_XDP_PLANE_H
#define PAWL_DATAPLANE_XDP_PLANE_H

#include "dataplane/shards.h"
#include "wire/packet.h"

/* Layout of the pinned maps: a control process reuses the maps of an earlier one only if they have this layout. */
#define PLANE_LAYOUT 11u

/* Fixed when the program is loaded, so that the compiler of the kernel sees constants. */
struct plane_settings {
    uint16_t port;     /* UDP port of lock packets, as it is on the wire: big-endian */
    uint16_t machines; /* the highest number of a machine */
    uint32_t space;
    uint64_t locks;
    uint32_t options; /* the design's own */
    uint32_t generation;
    uint64_t lease_ns;    /* of hosts; 0: no host is ever taken for dead */
    uint64_t lease_ticks; /* the same in the kernel's ticks, with a margin; the loader fills it in */
    uint16_t racks;       /* FissLock: locks are divided among so many switches; 0: they are not. Then: */
    uint16_t rack;        /* which of them this is, from 0 on; `space` is its own, */
    uint32_t ip;          /* and its address: frames to others pass, since they may be for another rack's */
    uint32_t names;       /* FissLock: keys have names, so indexes have generations, which packets carry */
    uint32_t six;         /* nonzero: the switch is at an IPv6 address, and so are its hosts */
    uint32_t ip6[4];      /* that address; `ip` is SIX_SWITCH then */
    uint32_t keyed;       /* nonzero: packets are tagged (seal.bpf.h) */
    uint32_t simple;      /* nonzero: one try of a decision, for the verifier of an older kernel; the loader fills it in */
};

/* Which switch has which shard, as hosts are told. */
struct plane_rules {
    uint32_t version;
    uint32_t pad;
    uint64_t owner[RACK_SHARDS / 8]; /* a byte for each shard */
};

#define PLANE_REBUILDING 1u /* of plane_live.closed: hosts get leases, and report their holds */
#define PLANE_QUIET 2u      /* not even that */

/* The part that changes while the program runs: the control process writes it, the program reads it. */
struct plane_live {
    uint32_t layout; /* PLANE_LAYOUT, and whose state it is: for the next control process */
    uint32_t life;   /* larger every time the state was lost */
    uint32_t epoch;
    uint32_t closed;   /* nonzero: no decisions; packets of the design are dropped and counted, everything else goes on */
    uint32_t torn;     /* nonzero: the control process is changing several words of the state; if it dies then, they are void */
    uint32_t rules_at; /* which of the two tables counts */
    struct plane_settings settings;
    struct plane_rules rules[2];
    uint64_t shards; /* that are this switch's, a bit for each; changes only while it is quiet */
};

/* ---- IPv6 ---- */

/* Stand for addresses while a packet is in the program: six.bpf.h. Numbers as they would be on the wire. No network has such
 * addresses: they are reserved (RFC 1112). */
#define SIX_HOST(machine) __builtin_bswap32(0xf0000000u | (uint32_t)(machine))
#define SIX_SWITCH __builtin_bswap32(0xf0ffffffu)
#define SIX_STRANGER __builtin_bswap32(0xf1000000u) /* a sender that is not the machine that it says */
#define SIX_HOPS 64

struct six_head {
    uint8_t version; /* in its higher half */
    uint8_t flow[3];
    uint16_t len; /* of everything behind it */
    uint8_t next; /* which head comes next */
    uint8_t hops;
    uint32_t from[4];
    uint32_t to[4];
};
_Static_assert(sizeof(struct six_head) == 40, "as RFC 8200 has it");

/* Where a machine is. All zero: unknown. Numbers as they are on the wire, but for life and ifindex. */
struct plane_host {
    uint16_t mac[3];
    uint16_t pool_port; /* UDP port of its port PORT_POOL */
    uint32_t ip;        /* IPv6: SIX_HOST */
    uint32_t ifindex;   /* the switch's interface towards it */
    uint32_t life;      /* the host's: an older one's packets do not move its address */
    uint16_t asked;     /* FissLock: an ACQUIRE of it has passed */
    uint16_t apart;     /* FissLock: a closed switch does not wait for this host's reports: its holds are lost */
    uint64_t heard;     /* FissLock: at which tick it renewed its lease; 0: never; */
    uint64_t said_ns;   /* and when it sent the heartbeat that did, by its own clock, */
    uint32_t said_life; /* in this life */
    uint32_t pad;
    /* As the coordinator gave and saw them: the control process writes it, the program reads it. A packet in the host's name that
     * does not agree is not the host's. */
    uint32_t given_life; /* 0: not known */
    uint32_t given_ip;
    uint32_t ip6[4], given_ip6[4]; /* the same, of IPv6 */
};
_Static_assert(sizeof(struct plane_host) == 88, "no padding");

/* ---- keys ---- */

/* Keys of a host in a life, one for each of the cluster's keys that are valid; all zero: there is none. The control process writes
 * them, the program reads them. */
struct plane_seal {
    uint64_t key[2][2];
    uint32_t life;
    uint32_t which; /* with which the host tags: written by the program */
};
_Static_assert(sizeof(struct plane_seal) == 40, "no padding");

/* A memory node's client in a life: the key of the file with which it connected, and the number of that file. */
struct plane_owner {
    uint64_t key[2];
    uint64_t number;
    uint32_t life;
    uint32_t pad;
};

/* Behind a datagram of a memory node's client: struct seal_trail of wire/seal.h. */
struct plane_trail {
    uint64_t number;
    uint64_t tag;
};

/* The packet by which a host's pool says where it is: family PACKET_COORDINATOR, this type, the host's life as epoch. */
#define PLANE_HERE 7u

/* ---- counters ---- */

/* The outcome of a frame. */
enum plane_verdict {
    PLANE_PASSED,   /* to the network stack: it was not for us */
    PLANE_DROPPED,  /* bad; the reason is counted, too */
    PLANE_ABSORBED, /* it changed or confirmed state, and needs no answer */
    PLANE_ANSWERED, /* back to its sender */
    PLANE_SENT,     /* on to another machine */
    PLANE_DOUBLED,  /* one packet in, two out */
    PLANE_VERDICTS,
};

/* Why a frame was passed untouched, dropped or refused. */
enum plane_reason {
    PLANE_NOT_IPV4,  /* passed: ARP and whatever else */
    PLANE_IPV6,      /* passed: the switch has an IPv4 address */
    PLANE_VLAN,      /* passed: lock packets have no tag */
    PLANE_OPTIONS,   /* passed: an IPv4 head with options */
    PLANE_FRAGMENT,  /* passed: no lock packet is longer than an MTU */
    PLANE_OTHER,     /* passed: not UDP, or another port; at an IPv6 address: not IPv6 */
    PLANE_SHORT,     /* dropped: ends before its own lengths say, or before the head does */
    PLANE_CHECKSUM,  /* dropped: of IPv4 or UDP */
    PLANE_VERSION,   /* dropped: another version of the packet, or features that the program does not know */
    PLANE_FAMILY,    /* dropped: for the switch, but of no family it knows */
    PLANE_ALIEN,     /* dropped: of another space, or from a machine that does not exist */
    PLANE_EPOCH,     /* dropped: from another epoch */
    PLANE_INDEX,     /* dropped: beyond the locks */
    PLANE_TYPE,      /* dropped: a type that the design does not have, or fields out of range; a memory node says so */
    PLANE_CONTROL,   /* passed: of the coordinator's family, for the control process */
    PLANE_UNKNOWN,   /* dropped: to a machine whose address is unknown */
    PLANE_CONTENDED, /* dropped: other packets changed the word again and again; the sender retransmits */
    PLANE_CLOSED,    /* dropped: while the control process has it closed */
    PLANE_REFUSED, /* dropped: the design says that it must not take effect; a memory node says so to clients that were shut out */
    PLANE_LOST_TWIN, /* dropped on its way out: the note about its copies was gone */
    PLANE_FOREIGN,   /* dropped: of a lock that another rack's switch has; its host will hear so */
    PLANE_OUTDATED,  /* dropped: of an earlier generation of its index; a client's request that is too old, or comes too soon */
    PLANE_MANY,      /* dropped: a datagram with several packets that is not as it must be */
    PLANE_FORGED,    /* in the name of a host, and not from its address, or of a life that was not given */
    PLANE_UNTAGGED,  /* dropped: without the tag of the key of the member in whose name it is */
    PLANE_REASONS,
};

#define PLANE_FAMILIES 8u /* families and types are counted modulo these: packets with higher ones were dropped before */
#define PLANE_TYPES 32u

struct plane_counters {
    uint64_t verdict[PLANE_VERDICTS];
    uint64_t reason[PLANE_REASONS];
    uint64_t type[PLANE_FAMILIES][PLANE_TYPES];
    uint64_t singly; /* parts of datagrams that were not decided: their senders send them again, alone */
};

/* ---- two packets out of one ---- */

/* The ingress program writes a note about the two copies into a ring of its CPU, and the number of the note into the packet. The
 * driver queues at most DEV_MAP_BULK_SIZE (16) frames before they reach the egress program on the same CPU, and generic mode
 * none. */
#define TWIN_NOTES 64u
#define TWIN_WORDS 11u /* of 8 bytes: the longest packet that is doubled */

struct twin_note {
    uint32_t number;
    struct place to[2];
    uint32_t pad;
    uint64_t first[TWIN_WORDS]; /* what the first copy's packet becomes; the second is the packet as it was sent */
};

struct twin_ring {
    uint32_t next; /* number of the latest note */
    uint32_t last; /* number that the egress program saw last: seen again, it is the second copy */
    struct twin_note note[TWIN_NOTES];
};

/* ---- for measurements ---- */

#define COST_FRAME_WORDS 181 /* of 8 bytes: the longest frame, padded */
struct cost_case {
    uint64_t frame[COST_FRAME_WORDS];
    uint64_t lock[2]; /* FissLock's word and token */
    uint32_t words;   /* of the frame */
    uint32_t index;   /* of the first of so many locks */
    uint32_t locks;
    uint32_t pad;
};

#endif
