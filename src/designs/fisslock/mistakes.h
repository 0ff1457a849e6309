/* SPDX-License-Identifier: Apache-2.0 */
/* The mistakes that variants of fisslock make on purpose: rack_config.mistakes. The low eight bits, 25, 26 and 31 are the decider's
 * (enum fission_mistakes in dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_FISSLOCK_MISTAKES_H
#define PAWL_DESIGNS_FISSLOCK_MISTAKES_H

#include "dataplane/mistake.h"

#include <stdint.h>

enum fisslock_mistakes {
    /* of a host */
    FISSLOCK_MISTAKE_NONCE = 1 << 8,   /* a GRANT is for whatever the request asks now (pitfall 1) */
    FISSLOCK_MISTAKE_ADOPT = 1 << 9,   /* any forwarded packet proves that the agent is here */
    FISSLOCK_MISTAKE_FLOOR = 1 << 10,  /* GRANTs of tenures that ended here are accepted */
    FISSLOCK_MISTAKE_CENSUS = 1 << 11, /* ordinals that are not accounted for are ignored */
    FISSLOCK_MISTAKE_STICKY = 1 << 12, /* the writers' bits stay when the last writer has left (pitfall 13) */
    FISSLOCK_MISTAKE_LEASE = 1 << 13,  /* the host does not check whether its lease runs */
    FISSLOCK_MISTAKE_KEEP = 1 << 14,   /* agents that stay outlast the host's lease */
    FISSLOCK_MISTAKE_DOUBT = 1 << 15,  /* a host that takes over a shared tenure does not look for its holders */
    FISSLOCK_MISTAKE_REUSE = 1 << 16,  /* a host that lost its memory goes on with tenures of its former life */
    FISSLOCK_MISTAKE_SILENT = 1 << 17, /* a host does not report shared holds to a decider that lost its state */

    FISSLOCK_MISTAKE_LINE = 1 << 30,   /* when a census is over, the next one waits until an agent's time has come */
    FISSLOCK_MISTAKE_RUMOUR = 1 << 28, /* a holder takes an agent on its host for waiters */
    FISSLOCK_MISTAKE_MUTE = 1 << 29,   /* a holder whose agent is on another host is told of no waiter */

    FISSLOCK_MISTAKE_LEAK = 1 << 27, /* FREE is sent once: if it is lost, the agent stays for ever */

    /* of looking for deadlocks */
    FISSLOCK_MISTAKE_STALE = 1 << 18, /* what the agent last heard of a holder is taken for the present */
    FISSLOCK_MISTAKE_CROWD = 1 << 19, /* the threads of a session are taken for one */
    FISSLOCK_MISTAKE_RASH = 1 << 20,  /* one round is taken for a proof of deadlock */

    /* of moving locks between switch and servers */
    FISSLOCK_MISTAKE_UNPAUSED = 1 << 21, /* a server goes on deciding a lock that it has lent */
    FISSLOCK_MISTAKE_BLANK = 1 << 22,    /* a free lock moves without its token */
    FISSLOCK_MISTAKE_ROUND = 1 << 23,    /* any HAND is taken for the answer to a CALL */
    FISSLOCK_MISTAKE_AMNESIA = 1 << 24,  /* a server that lost its memory goes on without asking the hosts */
};

/* of semaphores, at the agent */
#define FISSLOCK_MISTAKE_PLACES (UINT64_C(1) << 32) /* it takes places of any limit, and grants one more */
#define FISSLOCK_MISTAKE_GUESS (UINT64_C(1) << 33)  /* an agent that has taken over grants places before a census */

#endif
