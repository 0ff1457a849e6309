/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: what is understood, what is refused and in which words. */
#include "lib/args.h"
#include "tests/check.h"

#include <errno.h>
#include <unistd.h>

static bool shared, wait_given, json;
static const char *design;
static uint64_t locks, wait_ns, reads, zipf;
static struct arg_range seeds;

static const struct arg table[] = {
    {"shared", 's', ARG_FLAG, NULL, "share the lock", &shared, NULL},
    {"json", 0, ARG_FLAG, NULL, "print JSON", &json, NULL},
    {"design", 'd', ARG_STRING, "D", "which design", &design, NULL},
    {"locks", 'l', ARG_U64, "N", "how many locks", &locks, NULL},
    {"wait", 'w', ARG_DURATION, "SECONDS", "how long to wait", &wait_ns, &wait_given},
    {"reads", 0, ARG_FRACTION, "F", "share of readers", &reads, NULL},
    {"zipf", 0, ARG_THOUSANDTHS, "T", "exponent", &zipf, NULL},
    {"seeds", 0, ARG_RANGE, "A:B", "which seeds", &seeds, NULL},
    {"an-option-with-a-long-name", 0, ARG_STRING, "VALUE", "explained below", &design, NULL},
};

#define WORDS_MAX 15

static const struct args command = {
    .command = "pawl bench",
    .usage = "[OPTION]...",
    .about = "Measures.",
    .after = "Exit status: 0.",
    .table = table,
    .count = countof(table),
    .words_max = WORDS_MAX,
};

static struct args_rest rest;

/* Parses words separated by spaces; the output on `fd` is left in `printed`. */
static char printed[4096];

static int run(const char *line, int fd)
{
    static char copy[512];
    static char *argv[WORDS_MAX + 1];
    int argc = 0;
    shared = wait_given = json = false;
    design = NULL;
    locks = wait_ns = reads = zipf = 0;
    seeds = (struct arg_range){0};
    snprintf(copy, sizeof copy, "bench %s", line);
    for (char *save = NULL, *w = strtok_r(copy, " ", &save); w && argc < WORDS_MAX; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;

    FILE *capture = tmpfile();
    CHECK(capture);
    fflush(stdout);
    int kept = dup(fd);
    CHECK(kept >= 0 && dup2(fileno(capture), fd) >= 0);
    int status = args_parse(&command, argc, argv, &rest);
    fflush(stdout);
    CHECK(dup2(kept, fd) >= 0);
    close(kept);
    rewind(capture);
    printed[fread(printed, 1, sizeof printed - 1, capture)] = 0;
    fclose(capture);
    return status;
}

static void check_complaint(const char *line, const char *want)
{
    CHECK_EQ(run(line, STDERR_FILENO), ARGS_EXIT_USAGE);
    char whole[512];
    snprintf(whole, sizeof whole, "pawl bench: %s; see 'pawl bench --help'\n", want);
    CHECK_STR(printed, whole);
}

static void understands(void)
{
    CHECK_EQ(run("--design word -l 10M --wait=1.5s --reads 95% --zipf 0.99 --seeds 3:9 --json", 2), ARGS_RUN);
    CHECK_STR(design, "word");
    CHECK_EQ(locks, 10000000);
    CHECK_EQ(wait_ns, 1500000000);
    CHECK(wait_given && json && !shared);
    CHECK_EQ(reads, 950);
    CHECK_EQ(zipf, 990);
    CHECK(seeds.from == 3 && seeds.to == 9);
    CHECK_EQ(rest.count, 0);
    CHECK_STR(printed, "");

    CHECK_EQ(run("-sw5 -dword", 2), ARGS_RUN);
    CHECK(shared && wait_given);
    CHECK_EQ(wait_ns, 5 * NS_PER_S);
    CHECK_STR(design, "word");

    CHECK_EQ(run("", 2), ARGS_RUN);
    CHECK(!wait_given && !rest.count && !rest.split);
}

static void keeps_the_rest(void)
{
    CHECK_EQ(run("name -s other - -- cmd -s --json --", 2), ARGS_RUN);
    CHECK(shared && !json);
    CHECK_EQ(rest.count, 7);
    CHECK_EQ(rest.split, 3);
    CHECK_STR(rest.words[0], "name");
    CHECK_STR(rest.words[1], "other");
    CHECK_STR(rest.words[2], "-");
    CHECK_STR(rest.words[3], "cmd");
    CHECK_STR(rest.words[6], "--");

    CHECK_EQ(run("one two", 2), ARGS_RUN);
    CHECK(rest.count == 2 && rest.split == 2);
    CHECK_EQ(run("--", 2), ARGS_RUN);
    CHECK(rest.count == 0 && rest.split == 0);
}

static void complains(void)
{
    check_complaint("--foo", "unknown option '--foo'");
    check_complaint("--foo=bar", "unknown option '--foo'");
    check_complaint("--lock 1", "unknown option '--lock'"); /* no guessing from prefixes: scripts would break later */
    check_complaint("-sq", "unknown option '-q'");
    check_complaint("--locks", "option '--locks' needs a value (N)");
    check_complaint("-l", "option '-l' needs a value (N)");
    check_complaint("--json=yes", "option '--json' takes no value");
    check_complaint("--locks 12x", "option '--locks' needs a number such as 1000, 64K (64,000) or 64Ki (65,536), not '12x'");
    check_complaint("-l-1", "option '-l' needs a number such as 1000, 64K (64,000) or 64Ki (65,536), not '-1'");
    check_complaint("--wait=soon", "option '--wait' needs a duration such as 1.5s, 500ms or 10us, not 'soon'");
    check_complaint("--seeds 5:5", "option '--seeds' needs a range A:B with A below B, not '5:5'");
    check_complaint("--reads 2",
                    "option '--reads' needs a fraction between 0 and 1 with up to three decimals, such as 0.95 or 95%, not '2'");
}

static void helps(void)
{
    CHECK_EQ(run("--help --foo", STDOUT_FILENO), 0);
    CHECK(strstr(printed, "Usage: pawl bench [OPTION]...\n\nMeasures.\n\nOptions:\n"));
    CHECK(strstr(printed, "  -s, --shared                share the lock\n"));
    CHECK(strstr(printed, "      --seeds A:B             which seeds\n"));
    CHECK(strstr(printed, "      --an-option-with-a-long-name VALUE\n                              explained below\n"));
    CHECK(strstr(printed, "  -h, --help                  print this and exit\n\nExit status: 0.\n"));
    CHECK_EQ(run("-sh", STDOUT_FILENO), 0);
}

static void check_value(int (*parse)(const char *, uint64_t *), const char *text, int status, uint64_t want)
{
    uint64_t got = 77;
    int err = parse(text, &got);
    if (err != status || got != (status ? 77 : want)) /* unchanged on error */
        CHECK_FAIL("'%s' gave %d and %llu", text, err, (unsigned long long)got);
}

static void values(void)
{
    check_value(args_u64, "0", 0, 0);
    check_value(args_u64, "18446744073709551615", 0, UINT64_MAX);
    check_value(args_u64, "18446744073709551616", -ERANGE, 0);
    check_value(args_u64, "18446744073709552K", -ERANGE, 0);
    check_value(args_u64, "2G", 0, 2000000000);
    check_value(args_u64, "4K", 0, 4000);
    check_value(args_u64, "4k", 0, 4000);
    check_value(args_u64, "4Ki", 0, 4096);
    check_value(args_u64, "16Mi", 0, UINT64_C(16) << 20);
    check_value(args_u64, "1Gi", 0, UINT64_C(1) << 30);
    check_value(args_u64, "1T", 0, UINT64_C(1000000000000));
    check_value(args_u64, "1Ti", 0, UINT64_C(1) << 40);
    check_value(args_u64, "16777216Ti", -ERANGE, 0);
    check_value(args_u64, "4KiB", -EINVAL, 0);
    check_value(args_u64, "4KI", -EINVAL, 0);
    check_value(args_u64, "4i", -EINVAL, 0);
    check_value(args_u64, "", -EINVAL, 0);
    check_value(args_u64, " 1", -EINVAL, 0);
    check_value(args_u64, "+1", -EINVAL, 0);
    check_value(args_u64, "1.5K", -EINVAL, 0);
    check_value(args_duration, "10us", 0, 10000);
    check_value(args_duration, ".5", 0, 500000000);
    check_value(args_duration, "250ns", 0, 250);
    check_value(args_duration, "2min", 0, 120 * NS_PER_S);
    check_value(args_duration, "0.000000001s", 0, 1);
    check_value(args_duration, "0.0000000001s", -EINVAL, 0);
    check_value(args_duration, "99999999999s", -ERANGE, 0);
    check_value(args_duration, "1.s", -EINVAL, 0);
    check_value(args_duration, ".", -EINVAL, 0);
    check_value(args_thousandths, "1.2", 0, 1200);
    check_value(args_thousandths, "0.9999", -EINVAL, 0);
    check_value(args_thousandths, "99999999999999999999", -ERANGE, 0);
    check_value(args_thousandths, "18446744073709551.999", -ERANGE, 0);
    check_value(args_fraction, "1", 0, 1000);
    check_value(args_fraction, "1.001", -ERANGE, 0);
    check_value(args_fraction, "12.5%", 0, 125);
    check_value(args_fraction, "12.55%", -EINVAL, 0);
    check_value(args_fraction, "101%", -ERANGE, 0);
    check_value(args_fraction, "1x", -EINVAL, 0);

    struct arg_range r = {0};
    CHECK_EQ(args_range("0:1", &r), 0);
    CHECK_EQ(args_range("2:1", &r), -ERANGE);
    CHECK_EQ(args_range("1", &r), -EINVAL);
    CHECK_EQ(args_range("1:", &r), -EINVAL);
    CHECK_EQ(args_range(":1", &r), -EINVAL);
    CHECK_EQ(args_range("1:2:3", &r), -EINVAL);
    CHECK(r.from == 0 && r.to == 1);
}

int main(void)
{
    understands();
    keeps_the_rest();
    complains();
    helps();
    values();
    return 0;
}
