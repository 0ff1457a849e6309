/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"
#include "lib/json.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096 /* PIPE_BUF: a line is written as a whole, whatever other threads write */
#define STAMP_LEN 40

static struct {
    bool open, json, journal;
    uint64_t lost;
} logging;

/* As sd-daemon(7) has it: $JOURNAL_STREAM names device and inode of the stream to the journal. */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat s;
    char here[64];
    if (!stream || fstat(STDERR_FILENO, &s))
        return false;
    snprintf(here, sizeof here, "%" PRIu64 ":%" PRIu64, (uint64_t)s.st_dev, (uint64_t)s.st_ino);
    return !strcmp(here, stream);
}

void log_open(bool json)
{
    logging.json = json;
    logging.journal = is_journal();
    logging.lost = 0;
    logging.open = true;
}

bool log_parse(const char *text, bool *json)
{
    *json = !strcmp(text, "json");
    return *json || !strcmp(text, "text");
}

uint64_t log_lost(void)
{
    return __atomic_load_n(&logging.lost, __ATOMIC_RELAXED);
}

static const char *level_name(enum log_level level)
{
    return level == LOG_LEVEL_ERROR     ? "error"
           : level == LOG_LEVEL_WARNING ? "warning"
           : level == LOG_LEVEL_NOTICE  ? "notice"
                                        : "info";
}

static void print_time(char out[STAMP_LEN])
{
    struct timespec t;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &parts);
    size_t len = strftime(out, STAMP_LEN, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + len, STAMP_LEN - len, ".%03uZ", (unsigned)((uint64_t)t.tv_nsec / NS_PER_MS));
}

/* A value without blanks is written as it is, others in quotes. No value can begin another line or forge a field. */
static void add_value(FILE *out, const char *text)
{
    bool plain = *text && !strpbrk(text, " \"\\=");
    for (const char *c = text; *c && plain; c++)
        plain = (unsigned char)*c > ' ' && *c != 0x7f;
    if (plain) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < ' ' || *c == 0x7f)
            fprintf(out, "\\x%02x", (unsigned char)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void write_text(FILE *out, enum log_level level, const char *event, const struct log_field *fields)
{
    if (!logging.journal) { /* which has time and level already */
        char stamp[STAMP_LEN];
        print_time(stamp);
        fprintf(out, "%s %s ", stamp, level_name(level));
    }
    fputs(event, out);
    for (const struct log_field *f = fields; f->name; f++) {
        fprintf(out, " %s=", f->name);
        if (f->text)
            add_value(out, f->text);
        else
            fprintf(out, "%" PRIu64, f->number);
    }
    fputc('\n', out);
}

static void write_json(FILE *out, enum log_level level, const char *event, const struct log_field *fields)
{
    struct json j;
    char stamp[STAMP_LEN];
    print_time(stamp);
    json_open(&j, out);
    json_string(&j, "time", stamp);
    json_string(&j, "level", level_name(level));
    json_string(&j, "event", event);
    for (const struct log_field *f = fields; f->name; f++)
        if (f->text)
            json_string(&j, f->name, f->text);
        else
            json_u64(&j, f->name, f->number);
    json_finish(&j);
}

static void emit(const char *line, size_t len)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    bool takes =
        len <= LINE_MAX_BYTES && poll(&to, 1, 0) == 1 && to.revents & POLLOUT; /* a pipe that is full would stop the daemon */
    if (!takes || write(STDERR_FILENO, line, len) != (ssize_t)len)
        __atomic_fetch_add(&logging.lost, 1, __ATOMIC_RELAXED);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    char *line = NULL;
    size_t len = 0;
    if (!logging.open)
        return;
    FILE *out = open_memstream(&line, &len);
    if (!out)
        return;
    if (logging.journal)
        fprintf(out, "<%d>", (int)level);
    if (logging.json)
        write_json(out, level, event, fields);
    else
        write_text(out, level, event, fields);
    if (!fclose(out))
        emit(line, len);
    free(line);
}

bool log_may(struct log_limit *l, uint64_t now, uint64_t *withheld)
{
    if (!l->since_ns || now - l->since_ns >= LOG_LIMIT_NS) {
        l->since_ns = now;
        l->lines = 0;
    }
    if (l->lines == LOG_LIMIT_LINES) {
        l->withheld++;
        return false;
    }
    l->lines++;
    *withheld = l->withheld;
    l->withheld = 0;
    return true;
}
