/* SPDX-License-Identifier: Apache-2.0 */
/* The mistakes of the busted variants of citron (dataplane/mistake.h). */
#ifndef PAWL_DESIGNS_CITRON_MISTAKES_H
#define PAWL_DESIGNS_CITRON_MISTAKES_H

#include "dataplane/mistake.h"

#include <stdint.h>

enum citron_mistakes {
    CITRON_NO_ABORT = 1,      /* a client whose notifications were late goes on */
    CITRON_NO_WAIT = 2,       /* T_wait is not waited out */
    CITRON_NO_FENCE = 4,      /* a census does not shut out lost sessions */
    CITRON_BLIND_RELEASE = 8, /* releases of turns are additions, as printed */
    CITRON_BLIND_READER = 16, /* a reader does not look for writers after it took its place */
    CITRON_BLIND_SPLIT = 32,  /* the first half that goes gives back the node that both have */
    CITRON_TWICE_BACK = 64,   /* a client that does not know whether its ticket was taken back does so again */
    CITRON_ANY = INT32_MAX,   /* or one of its fabric */
};

#endif
