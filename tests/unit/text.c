/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words and sets of named bits: every word is taken once, unknown names are refused, and no text runs over its end. */
#include "lib/text.h"
#include "tests/check.h"

static const char *color(unsigned bit)
{
    static const char *const names[] = {"red", "green", "blue"};
    return bit < countof(names) ? names[bit] : NULL;
}

static void words_of_a_list(void)
{
    static const char *const lists[][4] = {{"", ""}, {"one", "one"}, {"one,two", "one", "two"}, {",two,", "", "two", ""}};
    for (size_t i = 0; i < countof(lists); i++) {
        const char *list = lists[i][0];
        char word[TEXT_WORD_LEN];
        for (size_t k = 1; k < countof(lists[i]) && lists[i][k]; k++) {
            CHECK(text_next(&list, word));
            CHECK_STR(word, lists[i][k]);
        }
        CHECK(!list || lists[i][3]);
    }
    const char *list = NULL;
    char word[TEXT_WORD_LEN];
    CHECK(!text_next(&list, word));
    char many[2 * TEXT_WORD_LEN + 3];
    snprintf(many, sizeof many, "%0*d,b", 2 * TEXT_WORD_LEN, 0);
    list = many;
    CHECK(text_next(&list, word));
    CHECK_EQ(strlen(word), TEXT_WORD_LEN - 1); /* cut off, and the rest of it is no word of its own */
    CHECK(text_next(&list, word));
    CHECK_STR(word, "b");
    CHECK(!text_next(&list, word));
}

static void bits_by_name(void)
{
    uint32_t bits = 77;
    CHECK(bits_parse("blue,red", color, &bits));
    CHECK_EQ(bits, 5);
    CHECK(bits_parse("red,red", color, &bits));
    CHECK_EQ(bits, 1);
    static const char *const wrong[] = {"", "re", "redd", "red,", ",red", "red,pink", "red green"};
    for (size_t i = 0; i < countof(wrong); i++)
        CHECK(!bits_parse(wrong[i], color, &bits));
    CHECK_EQ(bits, 1); /* as it was */
    char text[32] = "";
    CHECK_STR(bits_text(5, color, ", ", text, sizeof text), "red, blue");
    CHECK_STR(bits_text(2, color, ", ", text, sizeof text), "red, bluegreen"); /* appended */
    CHECK_STR(bits_text(0, color, ", ", text, sizeof text), "red, bluegreen");
}

static void nothing_runs_over(void)
{
    char text[8] = "";
    for (int i = 0; i < 5; i++)
        text_add(text, sizeof text, "%d-", i);
    CHECK_STR(text, "0-1-2-3");
    text_add(text, sizeof text, "more");
    CHECK_STR(text, "0-1-2-3");
}

int main(void)
{
    words_of_a_list();
    bits_by_name();
    nothing_runs_over();
    return 0;
}
