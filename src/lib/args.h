/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options from a table: parsing, checking, and the text of --help, all from the same rows. */
#ifndef PAWL_LIB_ARGS_H
#define PAWL_LIB_ARGS_H

#include "lib/base.h"

enum arg_kind {
    ARG_FLAG,        /* bool: present or not */
    ARG_STRING,      /* const char *: points into argv */
    ARG_U64,         /* uint64_t, counts and bytes alike: 1000; 64K, 10M, 2G, 1T are powers of 1000, 64Ki, 10Mi, 2Gi, 1Ti of 1024 */
    ARG_DURATION,    /* uint64_t nanoseconds: 10us, 500ms, 1.5s; a bare number is seconds */
    ARG_FRACTION,    /* uint64_t thousandths, at most 1000: 0.95 or 95% */
    ARG_THOUSANDTHS, /* uint64_t thousandths: 0.99, 1.2 */
    ARG_RANGE,       /* struct arg_range: A:B with A < B */
};

struct arg_range {
    uint64_t from, to; /* `to` is not part of it */
};

struct arg {
    const char *name; /* without the dashes */
    char letter;      /* 0: has no short form */
    enum arg_kind kind;
    const char *metavar; /* null for flags */
    const char *help;
    void *to;   /* of the kind's type; unchanged if the option is absent, so it holds the default */
    bool *seen; /* set if the option is given; may be null */
};

struct args {
    const char *command; /* "pawl bench" */
    const char *usage;   /* what follows the command in the usage line: "NAME [OPTION]... -- COMMAND..." */
    const char *about;   /* one paragraph */
    const char *after;   /* below the options: exit codes, examples; may be null */
    bool has_file;       /* --config and --check name a file with options; those on the command line count where both are given */
    int words_max;       /* words that are not options: more are wrong */
    const struct arg *table;
    size_t count;
};
#define ARGS_TABLE(rows) .table = (rows), .count = countof(rows)

/* Words that are not options, in their order. Options may stand before, between and after them, up to "--". */
struct args_rest {
    char **words;
    int count;
    int split; /* how many stood before "--"; all of them if there was none */
};

#define ARGS_RUN (-1)
#define ARGS_EXIT_USAGE 2 /* as of grep, diff and flock's own relatives: not 1, which is an answer */

/* argv[0] is skipped; argv is rearranged. Returns ARGS_RUN or the exit status: 0 after --help, 2 after a complaint. */
int args_parse(const struct args *a, int argc, char **argv, struct args_rest *rest);

/* For complaints of the caller's own, in the same form; returns the exit status 2. */
int args_complain(const struct args *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads the file of --config again, and tells which options have another value there; null: the file does not set it any more. The
 * options themselves stay as they are. 0, or 2 after a complaint: then nothing is told. */
int args_reload(const struct args *a, void (*changed)(const struct arg *arg, const char *value));

/* Values by themselves. -EINVAL: does not look like one; -ERANGE: too large, or (ranges) the end is not above the start. */
int args_u64(const char *text, uint64_t *value);
int args_duration(const char *text, uint64_t *ns);
int args_thousandths(const char *text, uint64_t *thousandths);
int args_fraction(const char *text, uint64_t *thousandths);
int args_range(const char *text, struct arg_range *range);

#endif
