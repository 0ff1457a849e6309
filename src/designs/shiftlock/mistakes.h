/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of variants of shiftlock, on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_SHIFTLOCK_MISTAKES_H
#define PAWL_DESIGNS_SHIFTLOCK_MISTAKES_H

#include "dataplane/mistake.h"

#include <stdint.h>

enum shift_mistakes {
    SHIFT_LATE_RELEASE = 1, /* releases are not bound to the era: as in Algorithm 3, whatever has happened since */
    SHIFT_NAMELESS = 2,     /* messages do not say for which lock and era they are */
    SHIFT_MARKLESS = 4,     /* a waiting reader looks at the epoch before it looks at the recovery mark */
    SHIFT_GREEDY = 8,       /* writers hand over to writers, however long readers wait */
    SHIFT_STEP = 16,        /* a try in steps has the lock whatever its step has found */
    SHIFT_ANY = INT32_MAX,  /* or one of its fabric */
};

#endif
