/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the log: values cannot forge lines or fields, the journal gets its prefix, limits hold, and a reader that does not read
 * stops no daemon. */
#include "lib/log.h"
#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char text[65536];
static int kept = -1, ends[2];

/* Standard error is a pipe from here on. */
static void divert(void)
{
    CHECK_EQ(pipe(ends), 0);
    kept = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
}

/* It is what it was again; `text` has all that was written. */
static void restore(void)
{
    size_t len = 0;
    dup2(kept, STDERR_FILENO);
    close(kept);
    for (ssize_t n; len < sizeof text - 1 && (n = read(ends[0], text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = 0;
    close(ends[0]);
}

static void say(void)
{
    log_event(LOG_LEVEL_WARNING, "host lost", LOG_TEXT("space", "a b"), LOG_NUMBER("host", 3), LOG_TEXT("at", "127.0.0.1:7070"),
              LOG_TEXT("why", "one\nhost joined host=4 \"x\" \\"));
}

static void silent_before_it_is_opened(void)
{
    divert();
    say();
    restore();
    CHECK_STR(text, "");
}

static void text_is_one_line(void)
{
    divert();
    log_open(false);
    say();
    restore();
    CHECK(strstr(text,
                 "Z warning host lost space=\"a b\" host=3 at=127.0.0.1:7070 why=\"one\\x0ahost joined host=4 \\\"x\\\" \\\\\"\n"));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
    CHECK_EQ(log_lost(), 0);
}

static void json_is_one_object(void)
{
    divert();
    log_open(true);
    say();
    restore();
    CHECK(strstr(text, "\"level\""));
    CHECK(strstr(text, "\"event\""));
    CHECK(strstr(text, "one\\nhost joined host=4 \\\"x\\\" \\\\"));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);
}

static void the_journal_has_a_prefix(void)
{
    struct stat s;
    char stream[64];
    divert();
    CHECK_EQ(fstat(STDERR_FILENO, &s), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_open(false);
    say();
    restore();
    unsetenv("JOURNAL_STREAM");
    CHECK(!strncmp(text, "<4>host lost space=", 19));
}

static void a_full_pipe_does_not_block(void)
{
    divert();
    log_open(false);
    alarm(20); /* a write that blocks ends the test */
    for (unsigned i = 0; i < 5000; i++)
        say();
    alarm(0);
    uint64_t lost = log_lost();
    restore();
    CHECK(lost > 0);
    CHECK(strlen(text) > 4096);
}

static void limits_count(void)
{
    struct log_limit l = {0};
    uint64_t withheld = 77, now = 5 * NS_PER_S;
    for (unsigned i = 0; i < LOG_LIMIT_LINES; i++)
        CHECK(log_may(&l, now + i, &withheld) && !withheld);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(!log_may(&l, now + NS_PER_S, &withheld));
    CHECK(!log_may(&l, now + LOG_LIMIT_NS - 1, &withheld));
    CHECK(log_may(&l, now + LOG_LIMIT_NS, &withheld));
    CHECK_EQ(withheld, 1001);
}

static void formats_have_names(void)
{
    bool json = false;
    CHECK(log_parse("json", &json) && json);
    CHECK(log_parse("text", &json) && !json);
    CHECK(!log_parse("xml", &json));
}

int main(void)
{
    silent_before_it_is_opened();
    text_is_one_line();
    json_is_one_object();
    the_journal_has_a_prefix();
    a_full_pipe_does_not_block();
    limits_count();
    formats_have_names();
    return 0;
}
