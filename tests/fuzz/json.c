/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a string contains, what is written is one line that a strict reader takes for one string. */
#include "lib/json.h"
#include "tests/check.h"

#include <locale.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Steps over one escape sequence; the text is well-formed only if this finds one that JSON knows. */
static const char *skip_escape(const char *p)
{
    if (*p != 'u') {
        CHECK(*p && strchr("\"\\/bfnrt", *p));
        return p + 1;
    }
    CHECK_EQ(strspn(p + 1, "0123456789abcdef") >= 4, 1);
    return p + 5;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct json j;
    setlocale(LC_CTYPE, "C.UTF-8");
    CHECK(out);
    json_init(&j, out);
    json_bytes(&j, NULL, data, size);
    CHECK_EQ(json_finish(&j), 0);
    fclose(out);

    CHECK_EQ(strlen(text), len);
    CHECK(mbstowcs(NULL, text, 0) != (size_t)-1); /* well-formed UTF-8 */
    const char *p = text;
    CHECK_EQ(*p++, '"');
    while (*p != '"') {
        CHECK((unsigned char)*p >= 0x20);
        p = *p == '\\' ? skip_escape(p + 1) : p + 1;
    }
    CHECK_STR(p, "\"\n");
    free(text);
    return 0;
}
