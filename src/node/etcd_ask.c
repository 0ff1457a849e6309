/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to etcd's JSON gateway. Apart from answers, whose parser has names like those of lib/json.h. */
#include "lib/json.h"
#include "node/etcd_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *encode(const void *data, size_t len)
{
    const uint8_t *from = data;
    char *out = malloc((len + 2) / 3 * 4 + 1), *to = out;
    for (size_t i = 0; out && i < len; i += 3) {
        uint32_t three = (uint32_t)from[i] << 16;
        three |= i + 1 < len ? (uint32_t)from[i + 1] << 8 : 0;
        three |= i + 2 < len ? from[i + 2] : 0;
        *to++ = digits[three >> 18];
        *to++ = digits[three >> 12 & 63];
        *to++ = i + 1 < len ? digits[three >> 6 & 63] : '=';
        *to++ = i + 2 < len ? digits[three & 63] : '=';
    }
    if (out)
        *to = 0;
    return out;
}

static bool put_bytes(struct json *j, const char *name, const void *data, size_t len)
{
    char *text = encode(data, len);
    if (text)
        json_string(j, name, text);
    free(text);
    return text;
}

/* 64-bit numbers are strings in the gateway's JSON. */
static void put_number(struct json *j, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    json_string(j, name, text);
}

static bool put_change(struct json *j, const struct etcd_change *c)
{
    json_object(j, NULL);
    json_object(j, c->end ? "requestDeleteRange" : "requestPut");
    bool good = put_bytes(j, "key", c->key, strlen(c->key));
    good = good && (c->end ? put_bytes(j, "range_end", c->end, strlen(c->end)) : put_bytes(j, "value", c->value, c->len));
    json_end(j);
    json_end(j);
    return good;
}

static char *finish(struct json *j, char **text, bool good)
{
    int rc = json_finish(j);
    if (fclose(j->out) || rc || !good) {
        free(*text);
        return NULL;
    }
    return *text;
}

char *etcd_text_commit(const struct etcd_transaction *t)
{
    char *text = NULL;
    size_t len;
    struct json j;
    bool good = true;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return NULL;
    json_open(&j, out);
    json_array(&j, "compare");
    for (unsigned i = 0; i < t->compares; i++) {
        json_object(&j, NULL);
        good = put_bytes(&j, "key", t->compare[i].key, strlen(t->compare[i].key)) && good;
        json_string(&j, "target", "MOD");
        json_string(&j, "result", "EQUAL");
        put_number(&j, "mod_revision", t->compare[i].revision);
        json_end(&j);
    }
    json_end(&j);
    json_array(&j, "success");
    for (unsigned i = 0; i < t->changes; i++)
        good = put_change(&j, &t->change[i]) && good;
    json_end(&j);
    return finish(&j, &text, good);
}

char *etcd_text_read(const char *key, const char *end, unsigned limit)
{
    char *text = NULL;
    size_t len;
    struct json j;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return NULL;
    json_open(&j, out);
    bool good = put_bytes(&j, "key", key, strlen(key)) && put_bytes(&j, "range_end", end, strlen(end));
    put_number(&j, "limit", limit);
    return finish(&j, &text, good);
}

char *etcd_text_compact(uint64_t revision)
{
    char *text;
    return asprintf(&text, "{\"revision\":\"%" PRIu64 "\"}", revision) < 0 ? NULL : text;
}
