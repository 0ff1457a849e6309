/* SPDX-License-Identifier: Apache-2.0 */
/* What variants of fisslock do wrongly on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_FISSLOCK_MISTAKES_H
#define PAWL_DESIGNS_FISSLOCK_MISTAKES_H

#include "dataplane/mistake.h"

#include <stdint.h>

enum fisslock_mistakes {
    FISSLOCK_BUSTED_KEEP = 1 << 29,   /* agents that stay outlast the host's lease */
    FISSLOCK_BUSTED_NONCE = 1 << 20,  /* a GRANT is for whatever the task asked last (pitfall 1) */
    FISSLOCK_BUSTED_ADOPT = 1 << 21,  /* a forwarded packet is proof enough that the agent is here */
    FISSLOCK_BUSTED_FLOOR = 1 << 22,  /* GRANTs of tenures that ended here are taken */
    FISSLOCK_BUSTED_CENSUS = 1 << 23, /* who cannot be accounted for is taken for gone */
    FISSLOCK_BUSTED_LEASE = 1 << 25,  /* the host does not look whether its lease runs */
    FISSLOCK_BUSTED_DOUBT = 1 << 26,  /* who takes over asks nobody who holds */
    FISSLOCK_BUSTED_STICKY = 1 << 24, /* the writers' bits stay when the writer has gone (pitfall 13) */
    FISSLOCK_BUSTED_REUSE = 1 << 27,  /* a host that lost its memory takes an earlier life's tenures for its own */
    FISSLOCK_BUSTED_SILENT = 1 << 28, /* a host tells a decider that lost its state that it holds nothing shared */
    FISSLOCK_BUSTED_STALE = 1 << 30,  /* who held when the agent heard of it is taken to hold now */
    FISSLOCK_BUSTED_CROWD = 1 << 19,  /* threads of a session are taken for one */
};

#define FISSLOCK_BUSTED_RASH (UINT64_C(1) << 50)     /* a probe that has come back is proof enough of a deadlock */
#define FISSLOCK_BUSTED_UNPAUSED (UINT64_C(1) << 41) /* a server goes on deciding what it has lent */
#define FISSLOCK_BUSTED_BLANK (UINT64_C(1) << 42)    /* a free lock moves without its token */
#define FISSLOCK_BUSTED_ROUND (UINT64_C(1) << 43)    /* any HAND is the answer to a CALL */
#define FISSLOCK_BUSTED_AMNESIA (UINT64_C(1) << 44)  /* nobody is asked what a server that lost its memory had granted */

#endif
