/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"

#include "lib/thread_memory.h"

#include <stdarg.h>
#include <stdio.h>

#define SENTENCE_LEN 512 /* a path and what is wrong with it */

static _Thread_local char *sentence; /* null: none yet */
static _Thread_local bool no_room;   /* for the sentence */

int explain(int code, const char *format, ...)
{
    va_list args;
    if (!sentence)
        sentence = thread_memory(SENTENCE_LEN);
    no_room = !sentence;
    va_start(args, format);
    if (sentence)
        vsnprintf(sentence, SENTENCE_LEN, format, args);
    va_end(args);
    return code;
}

void explain_nothing(void)
{
    no_room = false;
    if (sentence)
        sentence[0] = 0;
}

const char *explained(void)
{
    return sentence ? sentence : no_room ? "out of memory, and so without an explanation" : "";
}
