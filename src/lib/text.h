/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words in text, and sets of bits that have names. */
#ifndef PAWL_LIB_TEXT_H
#define PAWL_LIB_TEXT_H

#include "lib/base.h"

#define TEXT_WORD_LEN 64 /* longer than any name that is listed */

/* Appends to a string; what does not fit is cut off. */
__attribute__((format(printf, 3, 4))) void text_add(char *out, size_t room, const char *format, ...);

/* Takes the next word from a list with commas between them; a word that is too long is cut off. *list is null after the last one.
 * False: there was none. */
bool text_next(const char **list, char word[TEXT_WORD_LEN]);

/* The name of a bit by its number; null beyond the last. */
typedef const char *(*bit_name_fn)(unsigned bit);

/* A list of names; false if one is unknown. */
bool bits_parse(const char *list, bit_name_fn name, uint32_t *bits);

/* The names with `between` between them, appended to `out`. Returns out. */
char *bits_text(uint32_t bits, bit_name_fn name, const char *between, char *out, size_t room);

#endif
