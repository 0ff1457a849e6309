/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file with the words of the options: "word = value", a flag alone or with yes or no, and comments from '#' on. */
#include "lib/args_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX 65536 /* of a configuration: a hundred lines of comments and some options */

struct settings {
    char *text; /* values point into it */
    const char *value[ARGS_MAX];
    struct place {
        unsigned line, column;
    } place[ARGS_MAX]; /* of each option's value; line 0: the file does not set it */
    bool dry;          /* values are checked, and not stored */
};

static struct {
    const char *path;
    struct settings now; /* it lives as long as the process */
    bool read;
} file;

const char *args_file_path(void)
{
    return file.path;
}

bool args_place(const struct args *a, const char *message, unsigned *line, unsigned *column)
{
    for (const char *at = strstr(message, "--"); at; at = strstr(at + 2, "--")) {
        size_t len = strcspn(at + 2, " ,.:;='");
        for (size_t i = 0; i < a->count && i < ARGS_MAX && file.read; i++)
            if (file.now.place[i].line && strlen(a->table[i].name) == len && !strncmp(a->table[i].name, at + 2, len)) {
                *line = file.now.place[i].line;
                *column = file.now.place[i].column;
                return true;
            }
    }
    return false;
}

static int complain(const struct args *a, unsigned line, const char *begin, const char *at, const char *format, const char *word)
{
    char what[256];
    snprintf(what, sizeof what, format, word);
    fprintf(stderr, "%s: %s:%u:%u: %s; see '%s --help'\n", a->command, file.path, line, (unsigned)(at - begin) + 1, what,
            a->command);
    return ARGS_EXIT_USAGE;
}

static char *skip_blanks(char *p)
{
    return p + strspn(p, " \t\r");
}

/* Cuts off a comment and blanks at the end. A '#' within a word is a part of it. */
static void cut(char *line)
{
    for (char *p = line; *p; p++)
        if (*p == '#' && (p == line || p[-1] == ' ' || p[-1] == '\t')) {
            *p = 0;
            break;
        }
    for (size_t len = strlen(line); len && strchr(" \t\r", line[len - 1]); len--)
        line[len - 1] = 0;
}

static int take_flag(const struct args *a, const struct arg *arg, bool dry, unsigned line, const char *begin, const char *value)
{
    bool yes = !*value || !strcmp(value, "yes") || !strcmp(value, "true");
    if (!yes && strcmp(value, "no") != 0 && strcmp(value, "false") != 0)
        return complain(a, line, begin, value, "a flag is yes or no, not '%s'", value);
    if (!dry)
        *(bool *)arg->to = yes;
    if (!dry && arg->seen)
        *arg->seen = yes;
    return 0;
}

static int take_value(const struct args *a, const struct arg *arg, bool dry, unsigned line, const char *begin, char *word,
                      char *value)
{
    char expected[160];
    union {
        uint64_t number;
        struct arg_range range;
        const char *text;
    } checked;
    struct arg to = *arg;
    to.to = dry ? &checked : arg->to;
    if (arg->kind == ARG_FLAG)
        return take_flag(a, arg, dry, line, begin, value);
    if (!*value)
        return complain(a, line, begin, value, "'%s' needs a value", word);
    if (args_store(&to, value)) {
        snprintf(expected, sizeof expected, "'%s' needs %s, not '%%s'", word, args_expectation(arg->kind));
        return complain(a, line, begin, value, expected, value);
    }
    if (!dry && arg->seen)
        *arg->seen = true;
    return 0;
}

static int take_line(const struct args *a, struct settings *s, char *begin, unsigned line)
{
    cut(begin);
    char *word = skip_blanks(begin), *end = word + strcspn(word, " \t="), *value = skip_blanks(end);
    if (!*word)
        return 0;
    bool equals = *value == '=';
    if (*value && !equals)
        return complain(a, line, begin, value, "'=' must come before '%s'", value);
    value = equals ? skip_blanks(value + 1) : value;
    *end = 0;
    for (size_t i = 0; i < a->count && i < ARGS_MAX; i++) {
        const struct arg *arg = &a->table[i];
        if (strcmp(arg->name, word) != 0 || !strcmp(word, "config") || !strcmp(word, "check"))
            continue;
        if (s->place[i].line)
            return complain(a, line, begin, word, "'%s' is set twice", word);
        int status = take_value(a, arg, s->dry, line, begin, word, value);
        s->value[i] = value;
        s->place[i] = (struct place){line, (unsigned)(value - begin) + 1};
        return status;
    }
    return complain(a, line, begin, word, "there is no option '%s'", word);
}

static int read_text(const struct args *a, struct settings *s)
{
    FILE *in = fopen(file.path, "re");
    s->text = in ? calloc(1, FILE_BYTES_MAX + 2) : NULL;
    size_t len = s->text ? fread(s->text, 1, FILE_BYTES_MAX + 1, in) : 0;
    int error = errno;
    bool failed = !in || !s->text || ferror(in);
    if (in)
        fclose(in);
    if (failed)
        return args_complain(a, "%s: %s", file.path, strerror(error));
    if (len > FILE_BYTES_MAX || memchr(s->text, 0, len))
        return args_complain(a, "%s: not a configuration: it is longer than %d bytes, or has bytes of value 0", file.path,
                             FILE_BYTES_MAX);
    return 0;
}

static int read_settings(const struct args *a, struct settings *s)
{
    assert(a->count <= ARGS_MAX);
    int status = read_text(a, s);
    unsigned line = 1;
    for (char *begin = s->text, *end; !status && begin; begin = end, line++) {
        end = strchr(begin, '\n');
        if (end)
            *end++ = 0;
        status = take_line(a, s, begin, line);
    }
    return status;
}

int args_file(const struct args *a, const char *path)
{
    file.path = path;
    int status = read_settings(a, &file.now);
    file.read = !status;
    return status;
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

int args_reload(const struct args *a, void (*changed)(const struct arg *arg, const char *value))
{
    static char *latest; /* values of the latest reload point into it */
    struct settings s = {.dry = true};
    int status = file.read ? read_settings(a, &s) : 0;
    if (status || !file.read) {
        free(s.text);
        return status;
    }
    for (size_t i = 0; i < a->count; i++)
        if (!is_same(s.value[i], file.now.value[i]))
            changed(&a->table[i], s.value[i]);
    memcpy(file.now.value, s.value, sizeof s.value); /* the first text stays: strings of options point into it */
    memcpy(file.now.place, s.place, sizeof s.place);
    free(latest);
    latest = s.text;
    return 0;
}
