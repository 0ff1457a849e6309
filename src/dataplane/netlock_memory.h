/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* clang-format off */
/* The memory of NetLock's switch as the program in the kernel and its control process share it: one block, the control process's
 * own (designs/netlock/switch.h), in which the program finds by offsets what concerns it. Nothing of the operating system here.
 *
 * Each part and the side that writes it:
 *   registers of a lock      the program, under the lock's latch; the control process only while the lock is closed
 *   registers of a request   the packet that has its claim; the control process after a grace period, when its host is not admitted
 *   machines                 `until_ns` is exchanged by compare-and-swap from both sides; the rest is the control process's
 *   everything else          the control process */
/* clang-format on */
#ifndef PAWL_DATAPLANE_NETLOCK_MEMORY_H
#define PAWL_DATAPLANE_NETLOCK_MEMORY_H

#include "dataplane/netlock.h"

/* A host, as the switch knows it. */
struct netlock_machine {
    uint64_t until_ns; /* its lease; 0: ended */
    uint64_t said_ns;  /* when the host sent the heartbeat that renewed it last, by its own clock in its life */
    uint32_t life;
    bool live;
    bool clean; /* has heard of this life of the switch, so holds nothing from the one before */
};
_Static_assert(sizeof(struct netlock_machine) == 24, "in shared memory");

struct netlock_quota {
    uint32_t rate, burst; /* requests per 2^20 us; 0: no quota */
};

struct netlock_lent {
    uint64_t filled; /* of the steward's slot with its number: locks that the switch has taken in before clients asked for them */
    uint32_t life;
    uint32_t pad;
};

#define NETLOCK_SERVERS_MAX 64u
#define NETLOCK_CLOSING (UINT64_C(1) << 63) /* packets that are under way go on, no other begins */
#define NETLOCK_CELL_MAX 24u                /* bytes of the largest thing that an index leads to; the memory is as much longer */

/* Where everything lies, in bytes from the beginning. Constants to the kernel's compiler. */
struct netlock_memory {
    uint64_t bytes;
    uint64_t arrays_at[NETLOCK_ARRAYS];
    uint64_t open_at;        /* per lock, 64 bits: its index + 1, or NETLOCK_CLOSING with that; 0: it is not there */
    uint64_t active_at;      /* per lock, 32 bits: packets between their first pass and their last */
    uint64_t notify_at;      /* per lock, 32 bits: whether the server is told that the queue is empty */
    uint64_t claims_at;      /* per request, 32 bits: 1 while a packet of it passes */
    uint64_t quota_at;       /* per tenant */
    uint64_t machines_at;    /* per host */
    uint64_t servers_at;     /* per server, struct netlock_lent */
    uint64_t owner_at;       /* per steward's slot, 16 bits: number of the server that has its locks, + 1; 0: none */
    uint64_t until_at;       /* 64 bits: until when the switch may grant, by CLOCK_BOOTTIME */
    uint64_t term_at;        /* 32 bits: of the switch, as the active one */
    uint64_t version_at;     /* 32 bits: of the table of locks */
    uint64_t levels_at;      /* 32 bits: how many priorities have queues of their own; 0: there is one queue for all */
    uint64_t generations_at; /* per index, 32 bits: the latest generation that was requested */
    uint64_t unfinished_at;  /* 64 bits: packets that wanted too many passes */
    uint64_t lease_ns;
    uint32_t locks, requests, stride, tenants;
    uint32_t servers;
    uint16_t server[NETLOCK_SERVERS_MAX]; /* their machines' numbers */
};

/* Orders of the control process to the program, in one piece as packets see it. */
enum netlock_order_kind {
    NETLOCK_ORDER_PASS = 1, /* one pass of `pass` */
    NETLOCK_ORDER_CLOSE,    /* packets of the lock are dropped until it is opened again; not done while one is under way */
    NETLOCK_ORDER_IF_EMPTY, /* the same, unless its queues are not empty or a packet is under way: then nothing, and `done` is 0 */
    NETLOCK_ORDER_OPEN,     /* as `index` */
    NETLOCK_ORDER_REMOVE,   /* closed, and not found any more */
};

struct netlock_order {
    uint32_t kind;
    uint32_t lock;
    uint64_t index;
    uint32_t done;
    uint32_t pad;
    struct netlock_pass pass;
};

#endif
