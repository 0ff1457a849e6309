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

/* ---- of NetLock's switch ---- */

#define NETLOCK_BUST_BLIND_RELEASE 1u   /* Algorithm 2, line 8: whoever releases, the head goes */
#define NETLOCK_BUST_TRUST_MODE 2u      /* the releaser says what it held */
#define NETLOCK_BUST_NO_SEEN 4u         /* a doubled ACQUIRE queues again */
#define NETLOCK_BUST_NO_END 8u          /* lines 13 to 27: no test for the end of the queue */
#define NETLOCK_BUST_EAGER_DATA 16u     /* bytes go to the data server though the request only waits */
#define NETLOCK_BUST_FIRST_QUEUE 32u    /* a release pops the first waiting queue that has somebody */
#define NETLOCK_BUST_EAGER_NORMAL 64u   /* LAST ends the overflow though somebody was passed on since */
#define NETLOCK_BUST_NO_PUSH_ORDER 128u /* a push is taken whatever its number */
#define NETLOCK_BUST_UPGRADE 256u       /* a reader writes though others read */
#define NETLOCK_BUST_LOW 512u           /* who was called is granted, whatever has happened since */
#define NETLOCK_BUST_PASSING 1024u      /* low priorities: who comes overtakes those who wait at the server */

#endif
