/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of variants of word, on purpose (dataplane/mistake.h). Variants with a whole acquire of their own are in
 * workbench/busted/word.c. */
#ifndef PAWL_DESIGNS_WORD_MISTAKES_H
#define PAWL_DESIGNS_WORD_MISTAKES_H

#include "dataplane/mistake.h"

enum word_mistakes {
    WORD_MISTAKE_RUMOUR = 1 << 0, /* a holder takes the waiters flag for a waiter */
    WORD_MISTAKE_MUTE = 1 << 1,   /* a holder is told of no waiter */
};

#endif
