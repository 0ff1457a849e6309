/* SPDX-License-Identifier: Apache-2.0 */
/* Explanations of errors, in words, for the thread in which they happened. The function that first decides an error explains it. */
#ifndef PAWL_LIB_EXPLAIN_H
#define PAWL_LIB_EXPLAIN_H

#include <stddef.h>

/* Keeps the sentence, for pawl_explain() among others, and returns code. */
__attribute__((format(printf, 2, 3))) int explain(int code, const char *format, ...);

extern _Thread_local const char *explain_latest; /* null: none */

/* Ends the explanation of an earlier failure. */
static inline void explain_nothing(void)
{
    explain_latest = NULL;
}

/* The latest sentence of this thread; empty if there is none. */
const char *explained(void);

#endif
