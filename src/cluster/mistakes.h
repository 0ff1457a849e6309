/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of the coordinator's variants, made on purpose (dataplane/mistake.h). The bits of designs lie below. */
#ifndef PAWL_CLUSTER_MISTAKES_H
#define PAWL_CLUSTER_MISTAKES_H

#include "dataplane/mistake.h"
#include "lib/base.h"

#define COORD_MISTAKE_CLOCK (UINT64_C(1) << 48)     /* lives begin at what the wall clock shows */
#define COORD_MISTAKE_ANONYMOUS (UINT64_C(1) << 49) /* missing state: begins with none, under no id of its own */
#define COORD_MISTAKE_EARLY (UINT64_C(1) << 50)     /* answers are sent before the log is synced */
#define COORD_MISTAKE_LEASE (UINT64_C(1) << 51)     /* the lease that was given before is not known */
#define COORD_MISTAKE_PLACES (UINT64_C(1) << 52)    /* members' places are not in the log, and a superseded server goes on */
#define COORD_MISTAKE_TORN (UINT64_C(1) << 53)      /* damage is taken for an append that was not completed */
#define COORD_MISTAKE_HASTY (UINT64_C(1) << 54)     /* the successor of a lock server or switch waits for lock leases only */
#define COORD_MISTAKE_OUTLIVES (UINT64_C(1) << 55)  /* a host goes on when its membership lease has ended */
#define COORD_MISTAKE_DEPOSED (UINT64_C(1) << 56)   /* a deposed leader answers, and members take packets of any term */
#define COORD_MISTAKE_AHEAD (UINT64_C(1) << 57)     /* answers are sent before etcd has committed what they tell */
#define COORD_MISTAKE_GUESS (UINT64_C(1) << 58)     /* a transaction without an answer is taken for one that was not made */
#define COORD_MISTAKE_REUSE (UINT64_C(1) << 59)     /* an index is used again when one host has let go of it */
#define COORD_MISTAKE_STEWARD (UINT64_C(1) << 61)   /* every steward takes itself for the first one */
#define COORD_MISTAKE_UNSAVED (UINT64_C(1) << 44)   /* values are not in the log */
#define COORD_MISTAKE_JOIN (UINT64_C(1) << 46) /* a JOIN that is repeated does not renew the lease, which its answer gives anew */
#define COORD_MISTAKE_LATE (UINT64_C(1) << 45) /* a value that was set late replaces a later one */

#endif
