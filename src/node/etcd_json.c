/* SPDX-License-Identifier: Apache-2.0 */
#include "node/etcd_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_MAX 1000u /* of a number in a version */

/* ---- base64 ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The bytes with a zero behind them, which the caller frees; null: not base64, or out of memory. */
static uint8_t *decode(const char *text, size_t len, uint32_t *out_len)
{
    uint8_t *out = len % 4 ? NULL : malloc(len / 4 * 3 + 1);
    uint32_t used = 0;
    for (size_t i = 0; out && i < len; i += 4) {
        bool last = i + 4 == len;
        unsigned pad = last ? (unsigned)(text[i + 3] == '=') + (unsigned)(text[i + 3] == '=' && text[i + 2] == '=') : 0;
        int a = digit_of(text[i]), b = digit_of(text[i + 1]), c = pad > 1 ? 0 : digit_of(text[i + 2]),
            d = pad ? 0 : digit_of(text[i + 3]);
        if (a < 0 || b < 0 || c < 0 || d < 0) {
            free(out);
            return NULL;
        }
        uint32_t three = (uint32_t)a << 18 | (uint32_t)b << 12 | (uint32_t)c << 6 | (uint32_t)d;
        out[used++] = (uint8_t)(three >> 16);
        if (pad < 2)
            out[used++] = (uint8_t)(three >> 8);
        if (!pad)
            out[used++] = (uint8_t)three;
    }
    if (out)
        out[used] = 0;
    *out_len = used;
    return out;
}

/* ---- answers ---- */

/* A number, as a string or as it is. */
static bool number_of(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    const char *text = json_string_value(value);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && !*end;
}

static int head_of(const json_t *root, struct etcd_said *out)
{
    const json_t *header = json_object_get(root, "header");
    memset(out, 0, sizeof *out);
    out->succeeded = json_is_true(json_object_get(root, "succeeded"));
    return number_of(header, "cluster_id", &out->cluster) && number_of(header, "revision", &out->revision) ? 0 : -EPROTO;
}

int etcd_parse_answer(const char *text, size_t len, struct etcd_said *out)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    int rc = root ? head_of(root, out) : -EPROTO;
    json_decref(root);
    return rc;
}

static int parse_pair(const json_t *kv, etcd_take take, void *ctx)
{
    const json_t *key = json_object_get(kv, "key"), *value = json_object_get(kv, "value");
    struct etcd_pair p = {.len = 0};
    uint32_t key_len = 0;
    if (!json_is_string(key) || (value && !json_is_string(value)) || !number_of(kv, "mod_revision", &p.revision))
        return -EPROTO;
    uint8_t *name = decode(json_string_value(key), json_string_length(key), &key_len);
    uint8_t *bytes = value ? decode(json_string_value(value), json_string_length(value), &p.len) : decode("", 0, &p.len);
    int rc = -EPROTO;
    if (name && bytes && key_len < ETCD_KEY_LEN && strlen((const char *)name) == key_len) {
        p.key = (const char *)name;
        p.value = bytes;
        rc = take(ctx, &p);
    }
    free(name);
    free(bytes);
    return rc;
}

int etcd_parse_read(const char *text, size_t len, struct etcd_said *out, etcd_take take, void *ctx)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    int rc = root ? head_of(root, out) : -EPROTO;
    const json_t *kvs = json_object_get(root, "kvs");
    if (!rc && kvs && !json_is_array(kvs))
        rc = -EPROTO;
    for (size_t i = 0; !rc && i < json_array_size(kvs); i++)
        rc = parse_pair(json_array_get(kvs, i), take, ctx);
    json_decref(root);
    return rc;
}

int etcd_parse_version(const char *text, size_t len, unsigned *major, unsigned *minor)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    const char *version = json_string_value(json_object_get(root, "etcdserver"));
    char *end = NULL;
    unsigned long first = version ? strtoul(version, &end, 10) : 0,
                  second = end && *end == '.' ? strtoul(end + 1, &end, 10) : VERSION_MAX;
    int rc = version && *version >= '0' && *version <= '9' && first < VERSION_MAX && second < VERSION_MAX ? 0 : -EPROTO;
    *major = (unsigned)min_u64(first, VERSION_MAX);
    *minor = (unsigned)min_u64(second, VERSION_MAX);
    json_decref(root);
    return rc;
}

void etcd_parse_error(const char *text, size_t len, char out[ETCD_MESSAGE_LEN])
{
    json_t *root = json_loadb(text, len, 0, NULL);
    const char *message = json_string_value(json_object_get(root, "message"));
    if (!message)
        message = json_string_value(json_object_get(root, "error"));
    snprintf(out, ETCD_MESSAGE_LEN, "%s", message ? message : "");
    for (char *c = out; *c; c++) /* it goes to a terminal */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    json_decref(root);
}
