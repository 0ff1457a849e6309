/* SPDX-License-Identifier: Apache-2.0 */
/* pawl doctor: what this machine can do and what to do about the rest; and which design offers what. */
#include "cli/doctor.h"
#include "cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    bool matrix, markdown, fix, json;
} opts;

static const struct arg table[] = {
    {"matrix", 0, ARG_FLAG, NULL, "designs by feature and substrate, each yes with the test that shows it", &opts.matrix, NULL},
    {"markdown", 0, ARG_FLAG, NULL, "with --matrix: as the table of docs/designs/README.md", &opts.markdown, NULL},
    {"fix", 0, ARG_FLAG, NULL, "make the place of system:, " SEGMENT_SYSTEM_DIR "; as root", &opts.fix, NULL},
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl doctor",
    .usage = "[--matrix [--markdown] | --fix] [--json]",
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

/* A folder that another user has made in its place becomes root's. The files in it stay as they are: any user may put files there.
 */
static int fix_system(void)
{
    if (geteuid())
        return cli_say("doctor", EXIT_UNAVAILABLE, "--fix makes " SEGMENT_SYSTEM_DIR " for all users, which root can do");
    int rc = mkdir(SEGMENT_SYSTEM_DIR, 0755) && errno != EEXIST ? -errno : 0;
    int fd = rc ? -1 : open(SEGMENT_SYSTEM_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (!rc && (fd < 0 || fchown(fd, 0, 0) || fchmod(fd, SEGMENT_SYSTEM_MODE)))
        rc = -errno;
    if (fd >= 0)
        close(fd);
    return rc ? cli_say("doctor", EXIT_UNAVAILABLE, "cannot make " SEGMENT_SYSTEM_DIR " a folder of root's: %s", strerror(-rc)) : 0;
}

static int run_doctor(struct args_rest *rest)
{
    if (opts.markdown && (!opts.matrix || opts.json))
        return args_complain(&usage, "--markdown goes with --matrix, and not with --json");
    if (opts.matrix && opts.fix)
        return args_complain(&usage, "--matrix and --fix exclude each other");
    int status = opts.fix ? fix_system() : 0;
    if (status)
        return status;
    return opts.matrix ? matrix_print(opts.json, opts.markdown) : examine();
}

const struct command cmd_doctor = {&usage, run_doctor};
