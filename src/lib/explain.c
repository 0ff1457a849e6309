/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/explain.h"

#include "lib/thread_memory.h"

#include <stdarg.h>
#include <stdio.h>

#define SENTENCE_LEN 512 /* a path and what is wrong with it */

_Thread_local const char *explain_latest;

ONCE int explain(int code, const char *format, ...)
{
    static _Thread_local char *sentence;
    va_list args;
    if (!sentence)
        sentence = thread_memory(SENTENCE_LEN);
    va_start(args, format);
    if (sentence)
        vsnprintf(sentence, SENTENCE_LEN, format, args);
    va_end(args);
    explain_latest = sentence ? sentence : "out of memory, and so without an explanation";
    return code;
}

const char *explained(void)
{
    return explain_latest ? explain_latest : "";
}
