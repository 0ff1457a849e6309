/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of variants of netlock, on purpose (dataplane/mistake.h has those of the switch program). */
#ifndef PAWL_DESIGNS_NETLOCK_MISTAKES_H
#define PAWL_DESIGNS_NETLOCK_MISTAKES_H

#include "dataplane/mistake.h"

enum netlock_mistakes {
    NETLOCK_MISTAKE_NO_LAPSE = 1 << 11,     /* a host believes in leases for ever */
    NETLOCK_MISTAKE_HASTY_SERVER = 1 << 12, /* a server that lost its memory grants at once */
    NETLOCK_MISTAKE_HASTY_REVERT = 1 << 13, /* locks that were lent to a switch that died are granted at once */
    NETLOCK_MISTAKE_NO_DRAIN = 1 << 14,     /* a lock moves while it is held */
    NETLOCK_MISTAKE_ANY_GRANT = 1 << 15,    /* a host takes any grant for the request */
    NETLOCK_MISTAKE_SILENT_EMPTY = 1 << 16, /* NOTIFY is not retransmitted */
    NETLOCK_MISTAKE_NO_RESEND = 1 << 17,    /* PUSH is not retransmitted (pitfall 4) */
    NETLOCK_MISTAKE_DEAF_SERVER = 1 << 18,  /* a server grants requests that the switch asked it to buffer only */
    NETLOCK_MISTAKE_TWICE = 1 << 19,        /* a data server executes duplicates */
    NETLOCK_MISTAKE_FENCE = 1 << 20,        /* and whatever the token */
    NETLOCK_MISTAKE_HASTY_HEIR = 1 << 21,   /* a server that takes over grants at once */
    NETLOCK_MISTAKE_NO_STEWARD = 1 << 22,   /* a server grants without a lease from the steward */
    NETLOCK_MISTAKE_HASTY_RETURN = 1 << 23, /* the backup says that it has drained when it has not */
    NETLOCK_MISTAKE_SUPERSEDED = 1 << 24,   /* a switch grants without a lease from the steward */
    NETLOCK_MISTAKE_LOUD = 1 << 25,         /* a server that lost locks to another goes on giving leases */
    NETLOCK_MISTAKE_CROWD = 1 << 26,        /* deadlocks: the threads of a session are taken for one */
    NETLOCK_MISTAKE_STALE = 1 << 27,        /* deadlocks: a former holder is taken for one */
    NETLOCK_MISTAKE_RECALL = 1 << 28,       /* a NOTIFY that is retransmitted counts as an arrival, and each is answered by LAST */
    NETLOCK_MISTAKE_GENERATION = 1 << 29,   /* switch and servers take requests of all generations of an index */
    NETLOCK_MISTAKE_FLOOR = 1 << 30,        /* the tokens of a new generation begin where those of the index ended */
};

#define NETLOCK_MISTAKE_HEARSAY (UINT64_C(1) << 33) /* a switch takes the hosts that it has heard of for all that there are */
#define NETLOCK_MISTAKE_MUMBLE (UINT64_C(1) << 34)  /* a host confirms a term before servers have acknowledged its holds */
#define NETLOCK_MISTAKE_RASH (UINT64_C(1) << 35)    /* a server converts holds before all hosts have reported */
#define NETLOCK_MISTAKE_LONG (UINT64_C(1) << 36)    /* a switch with a backup takes a whole lease from the steward */
#define NETLOCK_MISTAKE_GROW (UINT64_C(1) << 32)    /* a server that gets more locks forgets which of them are held */
#define NETLOCK_MISTAKE_OLD_STEWARD                                                                                                \
    (UINT64_C(1) << 31) /* members take TERMs of earlier stewards, and need not follow the present one */

#endif
