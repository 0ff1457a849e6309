/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of variants of alock, on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_ALOCK_MISTAKES_H
#define PAWL_DESIGNS_ALOCK_MISTAKES_H

#include "dataplane/mistake.h"

enum alock_mistakes {
    ALOCK_UNFENCED = 1, /* the local leader looks across before the others see that it is the victim */
    ALOCK_GREEDY = 2,   /* budgets do not end */
    ALOCK_HEARSAY = 4,  /* a step out of the queue whose outcome is unknown is judged by what the step before it had found */
};

#endif
