/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Mistakes on purpose. The suite proves its oracle with variants of the designs that have one step left out or done wrongly
 * (workbench/busted). A variant is a set of bits, and the code asks for a bit where the step is.
 *
 * Only the workbench's build contains that: elsewhere, in libpawl, in the daemons and in programs for the kernel, MISTAKE is
 * constant false, and the compiler leaves nothing of it. */
#ifndef PAWL_DATAPLANE_MISTAKE_H
#define PAWL_DATAPLANE_MISTAKE_H

#ifndef PAWL_WORKBENCH
#define PAWL_WORKBENCH 0
#endif

/* Whether the variant makes one of these mistakes. */
#define MISTAKE(set, bits) (PAWL_WORKBENCH && ((set) & (bits)) != 0)

/* The set itself, to be handed on. */
#define MISTAKES(set) (PAWL_WORKBENCH ? (set) : 0)

/* ---- of FissLock's decider; those of its hosts and servers follow in designs/fisslock/mistakes.h ---- */

enum fission_mistakes {
    FISSION_MISTAKE_TERM = 1 << 0,  /* a FREE or GRANT of any tenure ends this one */
    FISSION_MISTAKE_INCA = 1 << 1,  /* the incarnation is not compared (Fig. 10) */
    FISSION_MISTAKE_RETRY = 1 << 2, /* marked ACQUIREs are counted like new ones (pitfalls 3, 10) */
    FISSION_MISTAKE_FREES = 1 << 3, /* a RELEASE from the agent's machine frees the lock (4.2; pitfall 11) */
    FISSION_MISTAKE_HASTY = 1 << 4, /* a decider that lost its state does not wait for hosts that have not answered */
    FISSION_MISTAKE_EARLY = 1 << 5, /* a decider that lost its state does not wait for the last REPORT of a host */
    FISSION_MISTAKE_TOKEN = 1 << 6, /* tokens of a decider that lost its state begin anew */
    FISSION_MISTAKE_MUTED = 1 << 7, /* hosts that only reported are not asked in a census */
};
#define FISSION_MISTAKE_GENERATION (UINT32_C(1) << 25) /* packets of all generations of an index reach the stages */
#define FISSION_MISTAKE_FLOOR (UINT32_C(1) << 26)      /* tokens of a new generation go on where those of the index ended */
#define FISSION_MISTAKE_OPEN (UINT32_C(1) << 31)       /* the decider lets readers into a semaphore */

/* ---- of NetLock's switch; those of its other parts have the bits above (designs/netlock/mistakes.h) ---- */

enum netlock_plane_mistakes {
    NETLOCK_MISTAKE_BLIND_RELEASE = 1 << 0, /* Algorithm 2, line 8: the head goes, whichever request is released */
    NETLOCK_MISTAKE_TRUST_MODE = 1 << 1,    /* the mode of what is released is the one that the packet says */
    NETLOCK_MISTAKE_NO_SEEN = 1 << 2,       /* a duplicate ACQUIRE queues again */
    NETLOCK_MISTAKE_NO_END = 1 << 3,        /* lines 13 to 27: no test for the end of the queue */
    NETLOCK_MISTAKE_EAGER_DATA = 1 << 4,    /* bytes go to the data server though the request only waits */
    NETLOCK_MISTAKE_FIRST_QUEUE = 1 << 5,   /* the first waiter moves into the queue though it must wait there */
    NETLOCK_MISTAKE_EAGER_NORMAL = 1 << 6,  /* LAST ends the overflow though a request was passed on since */
    NETLOCK_MISTAKE_NO_PUSH_ORDER = 1 << 7, /* a push is taken whatever its number */
    NETLOCK_MISTAKE_UPGRADE = 1 << 8,       /* a reader writes though others read */
    NETLOCK_MISTAKE_LOW = 1 << 9,           /* a called request is granted, whatever has happened since; every NOTIFY is a call */
    NETLOCK_MISTAKE_PASSING = 1 << 10,      /* low priorities: new requests overtake waiters at the server */
    NETLOCK_MISTAKE_PLANE = (1 << 11) - 1,  /* all of these */
};

#endif
