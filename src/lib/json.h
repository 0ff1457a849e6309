/* SPDX-License-Identifier: Apache-2.0 */
/* A writer of JSON: what is written is well-formed whatever the strings contain, or an assertion fails. */
#ifndef PAWL_LIB_JSON_H
#define PAWL_LIB_JSON_H

#include "lib/text.h"
#include <stdio.h>

#define JSON_DEPTH_MAX 16 /* the deepest output has five levels */

struct json {
    FILE *out;
    unsigned depth;
    struct json_level {
        bool array;
        bool filled; /* the next element needs a comma */
    } level[JSON_DEPTH_MAX];
    bool done; /* the one top-level value is complete */
};

void json_init(struct json *j, FILE *out);
void json_open(struct json *j, FILE *out); /* the same, and begins the top-level object */

/* In an object every element has a key; in an array and at the top the key is null. */
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end(struct json *j); /* of the innermost object or array */

void json_string(struct json *j, const char *key, const char *value); /* null is written as null */
void json_bytes(struct json *j, const char *key, const void *value, size_t len);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_u64_if(struct json *j, const char *key, bool known, uint64_t value); /* null if it is not */
void json_i64(struct json *j, const char *key, int64_t value);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
/* value / 10^decimals, digit by digit: 1234 with 3 decimals is 1.234. */
void json_decimal(struct json *j, const char *key, uint64_t value, unsigned decimals);
void json_double(struct json *j, const char *key, double value); /* null if not finite: JSON has no word for it */

/* The names of the bits that are set, as an array. */
void json_bits(struct json *j, const char *key, uint32_t bits, bit_name_fn name);

/* Ends the top-level object or array if it is open, and the line, and flushes. 0, or a negative errno if any of the output was
 * lost. */
int json_finish(struct json *j);

#endif
