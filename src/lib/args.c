/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/args_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_LEN 1024 /* of a complaint */
#define HELP_COLUMN 30   /* where explanations start; an option that is longer has them on the next line */

int args_complain(const struct args *a, const char *format, ...)
{
    va_list list;
    char message[MESSAGE_LEN];
    unsigned line, column;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    fprintf(stderr, "%s: ", a->command);
    if (args_place(a, message, &line, &column))
        fprintf(stderr, "%s:%u:%u: ", args_file_path(), line, column);
    fprintf(stderr, "%s; see '%s --help'\n", message, a->command);
    return ARGS_EXIT_USAGE;
}

/* ---- help ---- */

static void print_option(char letter, const char *name, const char *metavar, const char *help)
{
    int used = letter ? printf("  -%c, --%s", letter, name) : printf("      --%s", name);
    if (metavar)
        used += printf(" %s", metavar);
    if (used > HELP_COLUMN - 2) {
        printf("\n");
        used = 0;
    }
    printf("%*s%s\n", HELP_COLUMN - used, "", help);
}

static void print_help(const struct args *a)
{
    printf("Usage: %s %s\n\n%s\n\nOptions:\n", a->command, a->usage, a->about);
    for (size_t i = 0; i < a->count; i++)
        print_option(a->table[i].letter, a->table[i].name, a->table[i].metavar, a->table[i].help);
    print_option('h', "help", NULL, "print this and exit");
    if (a->after)
        printf("\n%s\n", a->after);
}

/* ---- storing a value ---- */

const char *args_expectation(enum arg_kind kind)
{
    switch (kind) {
    case ARG_U64:
        return "a number such as 1000, 64K (64,000) or 64Ki (65,536)";
    case ARG_DURATION:
        return "a duration such as 1.5s, 500ms or 10us";
    case ARG_FRACTION:
        return "a fraction between 0 and 1 with up to three decimals, such as 0.95 or 95%";
    case ARG_THOUSANDTHS:
        return "a number with up to three decimals, such as 0.99";
    case ARG_RANGE:
        return "a range A:B with A below B";
    default:
        return "a value";
    }
}

int args_store(const struct arg *arg, const char *value)
{
    switch (arg->kind) {
    case ARG_FLAG:
        *(bool *)arg->to = true;
        return 0;
    case ARG_STRING:
        *(const char **)arg->to = value;
        return 0;
    case ARG_U64:
        return args_u64(value, arg->to);
    case ARG_DURATION:
        return args_duration(value, arg->to);
    case ARG_FRACTION:
        return args_fraction(value, arg->to);
    case ARG_THOUSANDTHS:
        return args_thousandths(value, arg->to);
    case ARG_RANGE:
        return args_range(value, arg->to);
    }
    return -EINVAL;
}

/* `shown` is the option as the user wrote it. */
static int store(const struct args *a, const struct arg *arg, const char *shown, int shown_len, const char *value)
{
    if (args_store(arg, value))
        return args_complain(a, "option '%.*s' needs %s, not '%s'", shown_len, shown, args_expectation(arg->kind), value);
    if (arg->seen)
        *arg->seen = true;
    return 0;
}

/* ---- the command line ---- */

struct cursor {
    const struct args *a;
    char **argv;
    int argc, next;
};

static int value_missing(const struct cursor *c, const struct arg *arg, const char *shown, int shown_len)
{
    return args_complain(c->a, "option '%.*s' needs a value (%s)", shown_len, shown, arg->metavar ? arg->metavar : "VALUE");
}

static int parse_long(struct cursor *c, const char *word)
{
    size_t len = strcspn(word + 2, "=");
    const char *value = word[2 + len] ? word + 2 + len + 1 : NULL;
    int shown = (int)len + 2;
    for (size_t i = 0; i < c->a->count; i++) {
        const struct arg *arg = &c->a->table[i];
        if (strncmp(arg->name, word + 2, len) || arg->name[len])
            continue;
        if (arg->kind == ARG_FLAG && value)
            return args_complain(c->a, "option '%.*s' takes no value", shown, word);
        if (arg->kind != ARG_FLAG && !value) {
            if (c->next == c->argc)
                return value_missing(c, arg, word, shown);
            value = c->argv[c->next++];
        }
        return store(c->a, arg, word, shown, value);
    }
    return args_complain(c->a, "unknown option '%.*s'", shown, word);
}

/* "-x", several flags as "-sx", a value as "-w5" or "-w 5". Sets *help at -h. */
static int parse_short(struct cursor *c, const char *word, bool *help)
{
    for (const char *p = word + 1; *p; p++) {
        const struct arg *arg = NULL;
        const char shown[] = {'-', *p, 0};
        for (size_t i = 0; i < c->a->count && !arg; i++)
            if (c->a->table[i].letter == *p)
                arg = &c->a->table[i];
        if (!arg && *p == 'h') {
            *help = true;
            return 0;
        }
        if (!arg)
            return args_complain(c->a, "unknown option '%s'", shown);
        if (arg->kind == ARG_FLAG) {
            store(c->a, arg, shown, 2, NULL);
            continue;
        }
        if (!p[1] && c->next == c->argc)
            return value_missing(c, arg, shown, 2);
        return store(c->a, arg, shown, 2, p[1] ? p + 1 : c->argv[c->next++]);
    }
    return 0;
}

/* The file that --config or --check names. */
static int read_file(const struct args *a, int argc, char **argv)
{
    const char *path = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        for (unsigned word = 0; word < 2; word++) {
            const char *name = word ? "--check" : "--config";
            size_t len = strlen(name);
            if (!strncmp(argv[i], name, len) && (argv[i][len] == '=' || (!argv[i][len] && i + 1 < argc)))
                path = argv[i][len] ? argv[i] + len + 1 : argv[i + 1];
        }
    return path ? args_file(a, path) : 0;
}

int args_parse(const struct args *a, int argc, char **argv, struct args_rest *rest)
{
    struct cursor c = {.a = a, .argv = argv, .argc = argc, .next = 1};
    int kept = 1, split = -1;
    int wrong = a->has_file ? read_file(a, argc, argv) : 0;
    if (wrong)
        return wrong;
    while (c.next < argc) {
        char *word = argv[c.next++];
        bool help = false;
        int status = 0;
        if (split >= 0 || word[0] != '-' || !word[1])
            argv[kept++] = word; /* kept never overtakes next */
        else if (!strcmp(word, "--"))
            split = kept - 1;
        else if (!strcmp(word, "--help"))
            help = true;
        else if (word[1] == '-')
            status = parse_long(&c, word);
        else
            status = parse_short(&c, word, &help);
        if (status)
            return status;
        if (help) {
            print_help(a);
            return 0;
        }
    }
    if (kept - 1 > a->words_max)
        return args_complain(a, "unexpected argument '%s'", argv[1 + a->words_max]);
    *rest = (struct args_rest){.words = argv + 1, .count = kept - 1, .split = split < 0 ? kept - 1 : split};
    return ARGS_RUN;
}
