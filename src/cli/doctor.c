/* SPDX-License-Identifier: Apache-2.0 */
/* pawl doctor: what this machine can do and what to do about the rest; and which design offers what. */
#include "cli/doctor.h"
#include "cli/commands.h"

static struct {
    bool matrix, markdown, json;
} opts;

static const struct arg table[] = {
    {"matrix", 0, ARG_FLAG, NULL, "designs by feature and substrate, each yes with the test that shows it", &opts.matrix, NULL},
    {"markdown", 0, ARG_FLAG, NULL, "with --matrix: as the table of docs/designs/README.md", &opts.markdown, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl doctor",
    .usage = "[--matrix [--markdown]] [--json]",
    .about = "Checks what pawl needs on this machine, and says how to get what is missing. 'could' marks what pawl can do without.",
    .after = "Exit status: 0 pawl has all it needs, 1 something is missing, 2 wrong usage.",
    ARGS_TABLE(table),
};

static const char *const state_names[] = {"ok", "missing", "could"};

static void print_check(const struct check *c)
{
    printf("%-8s %-16s %s\n", state_names[c->state], c->name, c->found);
    if (c->advice)
        printf("%-25s -> %s\n", "", c->advice);
}

static void json_check(struct json *j, const struct check *c)
{
    json_object(j, NULL);
    json_string(j, "name", c->name);
    json_string(j, "state", state_names[c->state]);
    json_string(j, "found", c->found);
    json_string(j, "advice", c->advice);
    json_end(j);
}

static int examine(void)
{
    struct json j;
    bool missing = false;
    if (opts.json) {
        json_open(&j, stdout);
        json_string(&j, "version", PAWL_VERSION);
        json_array(&j, "checks");
    }
    for (size_t i = 0; i < check_count; i++) {
        struct check c = {.name = checks[i].name};
        checks[i].run(&c);
        missing = missing || c.state == CHECK_MISSING;
        if (opts.json)
            json_check(&j, &c);
        else
            print_check(&c);
    }
    if (opts.json) {
        json_end(&j);
        fabrics_print(&j);
        json_bool(&j, "fit", !missing);
        if (json_finish(&j))
            return EXIT_UNAVAILABLE;
    } else {
        fabrics_print(NULL);
        printf("\n%s\n", missing ? "Something that pawl needs is missing." : "Nothing that pawl needs is missing.");
    }
    return missing ? EXIT_NO : 0;
}

static int run_doctor(struct args_rest *rest)
{
    if (opts.markdown && (!opts.matrix || opts.json))
        return args_complain(&usage, "--markdown goes with --matrix, and not with --json");
    return opts.matrix ? matrix_print(opts.json, opts.markdown) : examine();
}

const struct command cmd_doctor = {&usage, run_doctor};
