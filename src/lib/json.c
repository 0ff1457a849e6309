/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, in place of each byte that is not UTF-8 */

void json_init(struct json *j, FILE *out)
{
    *j = (struct json){.out = out};
}

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none (RFC 3629: no surrogates, nothing overlong or above
 * U+10FFFF). */
static size_t utf8_length(const uint8_t *p, size_t left)
{
    uint8_t lead = p[0], low = 0x80, high = 0xbf;
    size_t len = 0;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        len = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        len = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        len = 4;
    if (!len || left < len)
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

static void put_control(FILE *out, uint8_t c)
{
    static const char letters[] = "btn\vfr"; /* 8 to 13; \v has no short form in JSON */
    if (c >= '\b' && c <= '\r' && c != '\v')
        fprintf(out, "\\%c", letters[c - '\b']);
    else
        fprintf(out, "\\u%04x", c);
}

static void put_quoted(FILE *out, const void *data, size_t len)
{
    const uint8_t *p = data;
    putc('"', out);
    while (len) {
        size_t step = utf8_length(p, len);
        if (!step)
            fputs(REPLACEMENT, out);
        else if (step > 1)
            fwrite(p, 1, step, out);
        else if (*p < 0x20)
            put_control(out, *p);
        else if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else
            putc(*p, out);
        step = step ? step : 1;
        p += step;
        len -= step;
    }
    putc('"', out);
}

/* Writes the separator between an element and its predecessor. */
static void begin_element(struct json *j, const char *key)
{
    assert(!j->done);
    if (!j->depth) {
        assert(!key);
        return;
    }
    struct json_level *level = &j->level[j->depth - 1];
    assert(level->array == !key);
    if (level->filled)
        fputs(", ", j->out);
    level->filled = true;
    if (key) {
        put_quoted(j->out, key, strlen(key));
        fputs(": ", j->out);
    }
}

static void end_element(struct json *j)
{
    if (!j->depth)
        j->done = true;
}

static void open_level(struct json *j, const char *key, bool array)
{
    begin_element(j, key);
    assert(j->depth < JSON_DEPTH_MAX);
    j->level[j->depth++] = (struct json_level){.array = array};
    putc(array ? '[' : '{', j->out);
}

void json_object(struct json *j, const char *key)
{
    open_level(j, key, false);
}

void json_array(struct json *j, const char *key)
{
    open_level(j, key, true);
}

void json_end(struct json *j)
{
    assert(j->depth > 0);
    putc(j->level[--j->depth].array ? ']' : '}', j->out);
    end_element(j);
}

void json_string(struct json *j, const char *key, const char *value)
{
    if (value)
        json_bytes(j, key, value, strlen(value));
    else
        json_null(j, key);
}

void json_bytes(struct json *j, const char *key, const void *value, size_t len)
{
    begin_element(j, key);
    put_quoted(j->out, value, len);
    end_element(j);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
    begin_element(j, key);
    fprintf(j->out, "%" PRIu64, value);
    end_element(j);
}

void json_u64_if(struct json *j, const char *key, bool known, uint64_t value)
{
    if (known)
        json_u64(j, key, value);
    else
        json_null(j, key);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
    begin_element(j, key);
    fprintf(j->out, "%" PRId64, value);
    end_element(j);
}

void json_bool(struct json *j, const char *key, bool value)
{
    begin_element(j, key);
    fputs(value ? "true" : "false", j->out);
    end_element(j);
}

void json_null(struct json *j, const char *key)
{
    begin_element(j, key);
    fputs("null", j->out);
    end_element(j);
}

void json_decimal(struct json *j, const char *key, uint64_t value, unsigned decimals)
{
    assert(decimals < 20); /* 10^19 is the largest power of ten in 64 bits */
    uint64_t unit = 1;
    for (unsigned i = 0; i < decimals; i++)
        unit *= 10;
    begin_element(j, key);
    fprintf(j->out, "%" PRIu64, value / unit);
    if (decimals)
        fprintf(j->out, ".%0*" PRIu64, (int)decimals, value % unit);
    end_element(j);
}

void json_double(struct json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    begin_element(j, key);
    fprintf(j->out, "%.9g", value);
    end_element(j);
}

void json_bits(struct json *j, const char *key, uint32_t bits, bit_name_fn name)
{
    json_array(j, key);
    for (unsigned bit = 0; name(bit); bit++)
        if (bits >> bit & 1)
            json_string(j, NULL, name(bit));
    json_end(j);
}

void json_open(struct json *j, FILE *out)
{
    json_init(j, out);
    json_object(j, NULL);
}

int json_finish(struct json *j)
{
    if (!j->done)
        json_end(j);
    assert(j->done);
    putc('\n', j->out);
    if (fflush(j->out))
        return -errno;
    return ferror(j->out) ? -EIO : 0; /* an earlier write failed; its errno is long gone */
}
