/* SPDX-License-Identifier: Apache-2.0 */
/* What variants of citron do wrongly on purpose (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_CITRON_MISTAKES_H
#define PAWL_DESIGNS_CITRON_MISTAKES_H

#include "dataplane/mistake.h"

enum citron_mistakes {
    CITRON_NO_ABORT = 1,      /* who made itself known too late goes on */
    CITRON_NO_WAIT = 2,       /* T_wait is not waited out */
    CITRON_NO_FENCE = 4,      /* counts anew without having shut out the lost */
    CITRON_BLIND_RELEASE = 8, /* releases of turns are additions, as printed */
    CITRON_BLIND_READER = 16, /* a reader does not look for writers after it took its place */
    CITRON_BLIND_SPLIT = 32,  /* the first half that goes takes the node that both have with it */
    CITRON_ANY = 63,
};

#endif
