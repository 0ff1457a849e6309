/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of etcd's gateway, whatever they contain: they are read within their bounds or refused. And bytes that are sent to etcd
 * as a value come back as they were. */
#include "node/etcd_json.h"
#include "tests/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    unsigned pairs;
    uint64_t sum;
    const uint8_t *wanted; /* null: any */
    size_t wanted_len;
};

static int take(void *ctx, const struct etcd_pair *p)
{
    struct seen *s = ctx;
    CHECK(strlen(p->key) < ETCD_KEY_LEN);
    for (uint32_t i = 0; i < p->len; i++)
        s->sum += ((const uint8_t *)p->value)[i];
    if (s->wanted)
        CHECK(p->len == s->wanted_len && (!p->len || !memcmp(p->value, s->wanted, p->len)));
    return s->pairs++ > 100 ? -E2BIG : 0;
}

static void round_trip(const uint8_t *data, size_t size)
{
    const struct etcd_transaction t = {
        .compare = {{.key = "a/key", .revision = UINT64_MAX}},
        .compares = 1,
        .change = {{.key = "a/key", .value = data, .len = (uint32_t)size}, {.key = "a", .end = "b"}},
        .changes = 2,
    };
    char *text = etcd_text_commit(&t), *answer = NULL;
    CHECK(text && strstr(text, "\"mod_revision\": \"18446744073709551615\"") && strstr(text, "requestDeleteRange"));
    const char *value = strstr(text, "\"value\": \"");
    CHECK(value);
    value += strlen("\"value\": \"");
    CHECK(asprintf(&answer,
                   "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"9\"},\"kvs\":[{\"key\":\"YS9rZXk=\",\"mod_revision\":\"8\","
                   "\"value\":\"%.*s\"}]}",
                   (int)strcspn(value, "\""), value) > 0);
    struct seen seen = {.wanted = data, .wanted_len = size};
    struct etcd_said said;
    CHECK_EQ(etcd_parse_read(answer, strlen(answer), &said, take, &seen), 0);
    CHECK(seen.pairs == 1 && said.cluster == 7 && said.revision == 9);
    free(text);
    free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct etcd_said said;
    struct seen seen = {0};
    char message[ETCD_MESSAGE_LEN];
    unsigned major, minor;
    const char *text = (const char *)data;
    int rc = etcd_parse_answer(text, size, &said);
    CHECK(!rc || rc == -EPROTO);
    rc = etcd_parse_read(text, size, &said, take, &seen);
    CHECK(!rc || rc == -EPROTO || rc == -E2BIG);
    rc = etcd_parse_version(text, size, &major, &minor);
    CHECK(rc == -EPROTO || (!rc && major < 1000 && minor < 1000));
    etcd_parse_error(text, size, message);
    CHECK(strlen(message) < sizeof message);
    for (const char *c = message; *c; c++)
        CHECK((unsigned char)*c >= ' ');
    round_trip(data, size);
    return 0;
}
