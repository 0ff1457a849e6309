/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* NetLock's packets. Hosts speak to the switch and do not know which part answers: the switch, or the lock server behind it (4.1).
 */
/* clang-format off */
/*
 *   host to the switch, which may pass it to a server     and back
 *   ACQUIRE  nonce, mode, priority, tenant, flags         GRANT     nonce, ticket, mode, token
 *   RELEASE  nonce, ticket                                RELEASED  nonce: it has ended, whatever it was
 *   CANCEL   nonce: a waiter that gave up                 GONE      nonce: it is not known here; ask anew
 *   CONVERT  nonce, ticket, mode, count: the number of    CONVERTED nonce, count, mode, token
 *            this conversion of the hold
 *   STAY     the same: the conversion was given up        REFUSED   count, DEADLOCK
 *                                                         REFUSED   nonce, code, stamp: how long to wait before asking again
 *   LEASE    stamp (also to servers)                      LEASED    stamp
 *
 *   a host to a server, when there is a new term          and back
 *   HOLD     nonce, mode, token, count: a hold that the   KNOWN     nonce, stamp; code: 0, or the server does not take it
 *            switch of an earlier term granted; stamp;
 *            life: the new term; pushed: life of the server
 *
 *   switch to server                                      and back
 *   ACQUIRE, CANCEL, RELEASE passed on: FORWARDED,        PUSH      round, pushed: one request of q2, with its client
 *            round, count; OVERFLOW: buffer only (4.3)              stamp: the life of its host
 *                                                         LAST      round, count: q2 is empty
 *   NOTIFY   round, count, pushed, room: q1 is empty
 *   PUSHED   round, pushed: all below that have come;
 *            of a later round: the others never will
 *   TAKE     round: this lock is to move to the switch    HANDOVER  round, token: no client holds it any more; the switch grants
 *   GIVE     round, count, pushed, token: the server      GIVEN     round
 *            grants this lock
 *   SYNCED   round, token: the term                       SYNC      life: asks for the term, and says that it is there
 *                                                         REPORT    count demands follow: locks that were asked for
 *   TAKE_MANY   round, count indexes follow               HANDOVER_MANY  round, count indexes and tokens follow: these locks
 *   TAKEN_MANY  round, count indexes follow: live                    have neither holders nor waiters
 *
 *   switch or server to the steward                       and back
 *   BEAT     stamp; what the latest TERM said;            TERM      stamp; ticket: life of the sender of BEAT; life: term of the
 *            ticket: life of the steward that it follows            active switch, round: its number, pushed: its life;
 *                                                                   count slots follow, and with HOSTS the hosts that there are
 *                                                         FOLLOW    ticket: the same. TERMs of earlier stewards are void
 *   a switch that is not active, to a host
 *   ELSEWHERE  life, round: term and number of the active switch
 *
 *   an operator to a switch                               and back
 *   COMMAND  a command follows                            COMMANDED stamp: 0 or why not, an errno; the status follows
 *
 *   a granter, or a host that holds the lock, to a data server (4.1, one round trip)
 *   DATA     nonce, mode, ticket, token: the hold;        ANSWER    stamp; code: enum netlock_done; the hold under which it was
 *            stamp: the number of the call; pushed: life            done, with its granter; bytes follow
 *            of the data server; client, life: the
 *            granter, if it sends the packet; bytes follow
 *   An ACQUIRE with PAYLOAD has data, stamp, pushed and bytes, too.
 *
 * ACQUIRE and DATA have the generation of the index, if keys have names. All other packets name a request by a nonce, which is used
 * once, or are about the index.
 *
 * The head's epoch is the life of the packet's maker; in packets that the switch passes on, `life` is the switch's.
 */
/* clang-format on */
#ifndef PAWL_DATAPLANE_NETLOCK_WIRE_H
#define PAWL_DATAPLANE_NETLOCK_WIRE_H

#include "wire/packet.h"

enum netlock_type {
    NETLOCK_ACQUIRE = 1,
    NETLOCK_RELEASE,
    NETLOCK_CANCEL,
    NETLOCK_LEASE,
    NETLOCK_GRANT,
    NETLOCK_RELEASED,
    NETLOCK_GONE,
    NETLOCK_REFUSED,
    NETLOCK_LEASED,
    NETLOCK_PUSH,
    NETLOCK_PUSHED,
    NETLOCK_NOTIFY,
    NETLOCK_LAST,
    NETLOCK_TAKE,
    NETLOCK_HANDOVER,
    NETLOCK_GIVE,
    NETLOCK_GIVEN,
    NETLOCK_SYNC,
    NETLOCK_SYNCED,
    NETLOCK_REPORT,
    NETLOCK_TAKE_MANY,
    NETLOCK_HANDOVER_MANY,
    NETLOCK_TAKEN_MANY,
    NETLOCK_BEAT,
    NETLOCK_TERM,
    NETLOCK_ELSEWHERE,
    NETLOCK_COMMAND,
    NETLOCK_COMMANDED,
    NETLOCK_DATA,
    NETLOCK_ANSWER,
    NETLOCK_CONVERT,
    NETLOCK_STAY,
    NETLOCK_CONVERTED,
    NETLOCK_PROBE, /* see designs/netlock/deadlock.h */
    NETLOCK_CHASE,
    NETLOCK_FOLLOW,
    NETLOCK_HOLD,
    NETLOCK_KNOWN,
    NETLOCK_TYPES
};

#define NETLOCK_SHARED 1u
#define NETLOCK_EXCLUSIVE 2u

#define NETLOCK_TRY 1u       /* flag of ACQUIRE: refuse rather than queue */
#define NETLOCK_FORWARDED 2u /* the switch has seen it: life, round, count are its */
#define NETLOCK_OVERFLOW 4u  /* the lock is in the switch: buffer it in q2, do not grant it */
#define NETLOCK_BOUNCED 8u   /* came too late for q2, back to the switch */
#define NETLOCK_PAYLOAD 16u  /* ACQUIRE: names a data server, and bytes for it follow (one round trip, 4.1) */
#define NETLOCK_VOID 32u     /* DATA: given up; what has not been done yet is not to be done */
#define NETLOCK_SURE 64u     /* PROBE, CHASE: once more along the way on which the first came back */
/* Priorities that have no queue in the switch. ACQUIRE with OVERFLOW: has such a priority; LAST: requests in q2 have; NOTIFY: no
 * request is in the switch, so the server may push such requests. */
#define NETLOCK_LOW 32u

#define NETLOCK_BEAT_EMPTY 1u  /* BEAT of a switch that was to retire: its queues are empty, and will stay so */
#define NETLOCK_BEAT_LEASED 2u /* BEAT: has a lease from a steward */
#define NETLOCK_BEAT_BRIEF 4u  /* BEAT of a switch: takes a short lease if it has a backup, and understands HOSTS */
#define NETLOCK_TERM_CLEAN 1u  /* TERM: no client holds anything from the term before */
#define NETLOCK_TERM_RETIRE 2u /* TERM: the queues of the active switch are to drain */
#define NETLOCK_TERM_HOSTS 4u  /* TERM: names the hosts that there are; no other holds anything from a term before */

#define NETLOCK_SLOT_BITS 20u /* of a nonce: which of its host's requests; above: a serial number, whose lowest bit is 0 */
#define NETLOCK_SERIAL_STEP (UINT64_C(2) << NETLOCK_SLOT_BITS)
#define NETLOCK_CANCELLED (UINT64_C(1) << NETLOCK_SLOT_BITS) /* just above a nonce: it has ended before it came */

#define NETLOCK_STEPS 1024u /* conversions of a hold that a switch tells apart */

struct netlock_packet {
    struct packet_head head;
    uint8_t mode;
    uint8_t priority; /* 0 is the highest */
    uint8_t flags;
    uint8_t code; /* REFUSED: enum netlock_refusal */
    uint32_t ticket;
    uint64_t token;
    uint64_t stamp;
    uint32_t life; /* of the granter, as hosts and servers know it; of a switch: its term */
    uint32_t round;
    uint32_t count;
    uint32_t pushed;
    uint32_t room;
    uint16_t tenant;
    uint16_t unused;
    struct place client; /* whose request it is, where `from` is not the client */
    struct place data;   /* PAYLOAD: the data server */
};
_Static_assert(sizeof(struct netlock_packet) == 104, "no padding");

enum netlock_refusal {
    NETLOCK_HELD = 1, /* try: the lock is held */
    NETLOCK_QUOTA,    /* the tenant is over its quota: again after `stamp` nanoseconds */
    NETLOCK_MOVING,   /* try: readers have it, and it is just moving or overflows: ask once more */
    NETLOCK_POLICY,   /* no such priority or tenant */
    NETLOCK_DEADLOCK, /* CONVERT: another reader wants to write, too; STAY: it is as it was */
    NETLOCK_LATE,     /* KNOWN: the hold has ended, or other requests may have been granted since */
};

/* Body of a REPORT: how often a lock was asked for since the last one, and by how many at once. */
struct netlock_demand {
    uint64_t index;
    uint32_t rate, contention;
};
#define NETLOCK_REPORT_MAX 64u

/* Body of a HANDOVER_MANY; TAKE_MANY and TAKEN_MANY are followed by indexes alone. */
struct netlock_handed {
    uint64_t index, token;
};
#define NETLOCK_MANY_MAX 64u

/* Body of BEAT and TERM: the locks whose index is `slot` modulo the number of servers belong to one of them. */
struct netlock_slot {
    uint16_t slot, owner;
    uint32_t term;
    uint32_t life;  /* of that server */
    uint32_t first; /* no server has had them before */
};

/* Body of a TERM with HOSTS, behind the slots: bit m of word m / 64 is host m. Where there are more machines, none are named. */
#define NETLOCK_HOST_WORDS 16u

enum netlock_command_kind {
    NETLOCK_COMMAND_STATUS = 1,
    NETLOCK_COMMAND_QUOTA,      /* tenant, rate in requests per second (0: none), burst */
    NETLOCK_COMMAND_RANDOM,     /* rate: 1 for random allocation, 0 for Algorithm 3 */
    NETLOCK_COMMAND_PRIORITIES, /* rate: so many priorities have a waiting queue in the switch; 0: one queue for all */
};

struct netlock_command {
    uint32_t kind, tenant;
    uint64_t rate; /* STATUS: what one server serves in a second; tenant: the first whose quota is asked for */
    uint32_t burst, unused;
    uint64_t proof; /* that the operator has the admin key (wire/seal.h); 0: there is none */
};

struct netlock_status {
    uint32_t term;   /* of the switch */
    uint32_t active; /* whether it may grant */
    uint32_t slots, locks, random;
    uint32_t priorities;       /* that have a waiting queue in the switch; 0: there are none */
    uint32_t pipes, pipe_used; /* that share no state; slots taken in the fullest of them */
    uint64_t granted, passed_on, overflowed, moved_in, moved_out, over_quota, expired, bad;
    uint64_t in_p99_ns;       /* for how long moves stop a lock: on its way in, */
    uint64_t in_alone_p99_ns; /* the same without the drain of its queue; */
    uint64_t out_p99_ns;      /* on its way out, without */
    uint64_t servers_needed;  /* beside the switch, for what was measured last (4.3) */
    uint64_t quota_rate;      /* of the first tenant, from the command's on, that has a quota: requests a second; 0: none has */
    uint32_t quota_tenant, quota_burst;
};

/* A COMMAND is filled up with zeros to the length of its answer, which is never longer than the question. */
#define NETLOCK_COMMAND_BYTES (sizeof(struct netlock_packet) + sizeof(struct netlock_status))

/* Outcome of an operation of a data server. */
enum netlock_done {
    NETLOCK_DONE,
    NETLOCK_VOIDED,     /* it was not done, and will not be */
    NETLOCK_FENCED,     /* the same: a later holder of the lock has been here */
    NETLOCK_FORGOTTEN,  /* the data server has lost its memory since: the outcome is unknown */
    NETLOCK_NO_SERVICE, /* it was not done: it keeps no data */
    NETLOCK_DONES
};

/* Bytes for a data server, and from it: few, so that they fit into one packet and into memory. */
#define NETLOCK_PAYLOAD_MAX 512u
_Static_assert(sizeof(struct netlock_packet) + NETLOCK_PAYLOAD_MAX <= PACKET_MAX, "in one packet");

static inline uint32_t netlock_request_of(uint64_t nonce)
{
    return (uint32_t)(nonce & ((1u << NETLOCK_SLOT_BITS) - 1));
}

/* The head of a packet that its maker, of that life, sends. */
static inline void netlock_head(struct netlock_packet *p, uint32_t space, enum netlock_type type, uint32_t life, struct place from,
                                struct place to)
{
    p->head.version = PACKET_VERSION;
    p->head.features = 0;
    p->head.family = PACKET_NETLOCK;
    p->head.type = (uint8_t)type;
    p->head.space = space;
    p->head.tag = 0;
    p->head.epoch = life;
    p->head.generation = 0;
    p->head.index = 0;
    p->head.nonce = 0;
    p->head.from = from;
    p->head.to = to;
}

#endif
