/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"

#include <stdarg.h>
#include <stdio.h>

#define SENTENCE_LEN 512 /* a path and what is wrong with it */

static _Thread_local char sentence[SENTENCE_LEN];

int explain(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return code;
}

void explain_nothing(void)
{
    sentence[0] = 0;
}

const char *explained(void)
{
    return sentence;
}
