/* SPDX-License-Identifier: Apache-2.0 */
/* What variants of netlock do wrongly on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_NETLOCK_MISTAKES_H
#define PAWL_DESIGNS_NETLOCK_MISTAKES_H

#include "dataplane/mistake.h"

#include <stdint.h>

/* Those of the data plane are in the low bits. */
#define NETLOCK_BUST_PLANE 0xffu
#define NETLOCK_BUST_NO_LAPSE 0x100u              /* a host believes in leases for ever */
#define NETLOCK_BUST_HASTY_SERVER 0x200u          /* a server that lost its memory grants at once */
#define NETLOCK_BUST_HASTY_REVERT 0x400u          /* what was lent to a switch that died is granted at once */
#define NETLOCK_BUST_NO_DRAIN 0x800u              /* a lock moves while somebody holds it */
#define NETLOCK_BUST_ANY_GRANT 0x1000u            /* a host takes any grant for the slot */
#define NETLOCK_BUST_SILENT_EMPTY 0x2000u         /* NOTIFY is not sent again */
#define NETLOCK_BUST_NO_RESEND 0x4000u            /* PUSH is not sent again (pitfall 4) */
#define NETLOCK_BUST_DEAF_SERVER 0x8000u          /* a server grants what the switch asked to buffer only */
#define NETLOCK_BUST_TWICE UINT64_C(0x8000000)    /* a data server does what comes to it twice */
#define NETLOCK_BUST_FENCE (UINT64_C(1) << 56)    /* and whatever the token */
#define NETLOCK_BUST_UPGRADED (UINT64_C(1) << 57) /* NETLOCK_BUST_UPGRADE, of the data plane */
#define NETLOCK_BUST_CALLED (UINT64_C(1) << 58)   /* NETLOCK_BUST_LOW; and a server takes any NOTIFY for a call */
#define NETLOCK_BUST_HASTY_HEIR 0x200000u         /* a server that takes over grants at once */
#define NETLOCK_BUST_NO_STEWARD 0x400000u         /* a server grants without a lease from the steward */
#define NETLOCK_BUST_HASTY_RETURN 0x1000000u      /* the backup says that it has drained when it has not */
#define NETLOCK_BUST_USURPER 0x2000000u           /* a switch reigns without a lease from the steward */
#define NETLOCK_BUST_LOUD 0x10000000u             /* a server that lost locks to another gives leases all the same */
#define NETLOCK_BUST_CROWD 0x20000000u            /* deadlocks: threads of a session are taken for one */
#define NETLOCK_BUST_STALE 0x40000000u            /* who held once is taken to hold */

#endif
