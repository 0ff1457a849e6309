/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_add(char *out, size_t room, const char *format, ...)
{
    size_t len = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + len, room - len, format, args);
    va_end(args);
}

bool text_next(const char **list, char word[TEXT_WORD_LEN])
{
    if (!*list)
        return false;
    size_t len = strcspn(*list, ",");
    snprintf(word, TEXT_WORD_LEN, "%.*s", (int)min_u64(len, TEXT_WORD_LEN), *list);
    *list = (*list)[len] ? *list + len + 1 : NULL;
    return true;
}

bool bits_parse(const char *list, bit_name_fn name, uint32_t *bits)
{
    uint32_t found = 0;
    for (char word[TEXT_WORD_LEN]; text_next(&list, word);) {
        unsigned bit = 0;
        while (name(bit) && strcmp(name(bit), word) != 0)
            bit++;
        if (!name(bit))
            return false;
        found |= 1u << bit;
    }
    *bits = found;
    return true;
}

char *bits_text(uint32_t bits, bit_name_fn name, const char *between, char *out, size_t room)
{
    const char *before = "";
    for (unsigned bit = 0; name(bit); bit++)
        if (bits >> bit & 1) {
            text_add(out, room, "%s%s", before, name(bit));
            before = between;
        }
    return out;
}
