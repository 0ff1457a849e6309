/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's text, character by character. */
#include "lib/json.h"
#include "tests/check.h"

#include <errno.h>

static char *text;
static size_t size;
static struct json j;

static void begin(void)
{
    FILE *out = open_memstream(&text, &size);
    CHECK(out);
    json_init(&j, out);
}

static void check_text(const char *want)
{
    CHECK_EQ(json_finish(&j), 0);
    fclose(j.out);
    CHECK_STR(text, want);
    free(text);
}

static void nests(void)
{
    begin();
    json_object(&j, NULL);
    json_string(&j, "design", "word");
    json_u64(&j, "ops", UINT64_MAX);
    json_i64(&j, "low", INT64_MIN);
    json_array(&j, "list");
    json_u64(&j, NULL, 1);
    json_object(&j, NULL);
    json_end(&j);
    json_array(&j, NULL);
    json_end(&j);
    json_end(&j);
    json_bool(&j, "yes", true);
    json_bool(&j, "no", false);
    json_null(&j, "none");
    json_string(&j, "nothing", NULL);
    json_end(&j);
    check_text("{\"design\": \"word\", \"ops\": 18446744073709551615, \"low\": -9223372036854775808, \"list\": [1, {}, []], "
               "\"yes\": true, \"no\": false, \"none\": null, \"nothing\": null}\n");
}

static void numbers(void)
{
    begin();
    json_array(&j, NULL);
    json_decimal(&j, NULL, 1234, 3);
    json_decimal(&j, NULL, 5, 3);
    json_decimal(&j, NULL, 7, 0);
    json_decimal(&j, NULL, UINT64_MAX, 19);
    json_double(&j, NULL, 0.5);
    json_double(&j, NULL, 1.0 / 0.0);
    json_double(&j, NULL, -0.0 / 0.0);
    json_end(&j);
    check_text("[1.234, 0.005, 7, 1.8446744073709551615, 0.5, null, null]\n");
}

static void strings(void)
{
    begin();
    json_array(&j, NULL);
    json_string(&j, NULL, "a\"b\\c/d");
    json_string(&j, NULL, "\b\t\n\v\f\r\x01\x1f\x7f");
    json_string(&j, NULL, "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x94\x92");
    json_bytes(&j, NULL, "a\0b", 3);
    json_bytes(&j, NULL, "\xe2\x82", 2);                /* cut short */
    json_string(&j, NULL, "\xff\xc0\xaf\xed\xa0\x80!"); /* never valid, overlong, a surrogate */
    json_string(&j, NULL, "\xf4\x90\x80\x80");          /* above U+10FFFF */
    json_string(&j, NULL, "\xe2\x28\xa1");              /* the bad byte costs only itself */
    json_end(&j);
#define BAD "\xef\xbf\xbd"
    check_text("[\"a\\\"b\\\\c/d\", \"\\b\\t\\n\\u000b\\f\\r\\u0001\\u001f\x7f\", "
               "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x94\x92\", \"a\\u0000b\", "
               "\"" BAD BAD "\", \"" BAD BAD BAD BAD BAD BAD "!\", \"" BAD BAD BAD BAD "\", \"" BAD "(" BAD "\"]\n");
}

static void a_full_disk_is_told(void)
{
    FILE *full = fopen("/dev/full", "w");
    CHECK(full);
    json_init(&j, full);
    json_u64(&j, NULL, 1);
    CHECK_EQ(json_finish(&j), -ENOSPC);
    fclose(full);
}

int main(void)
{
    nests();
    numbers();
    strings();
    a_full_disk_is_told();
    return 0;
}
