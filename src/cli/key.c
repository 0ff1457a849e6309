/* SPDX-License-Identifier: Apache-2.0 */
/* pawl key: makes key files. */
#include "cli/commands.h"
#include "cli/common.h"
#include "lib/explain.h"
#include "wire/key_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static struct {
    const char *number;
    bool json;
} opts;

static const struct arg table[] = {
    {"host", 0, ARG_STRING, "N", "new: not a new key, but that of host N, from 1 to 65535, made from the cluster's (--key)",
     &opts.number, NULL},
    CLI_KEY_OPTION,
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl key",
    .usage = "new FILE\n"
             "       pawl key new FILE --host N --key CLUSTER-FILE\n"
             "       pawl key show FILE [--json]",
    .about =
        "Makes key files, and shows what is in one. With a key, every packet of a cluster carries a tag that other senders cannot\n"
        "make: 'pawl serve --key FILE', 'pawl switch --key FILE', and clients with --key FILE or PAWL_KEY=FILE.",
    .after =
        "The cluster's key belongs on machines that run coordinators, lock servers, switches and memory nodes, and with "
        "operators:\n"
        "its holder may do everything. Machines that only have clients get a key of their own each (--host N, every machine "
        "another\n"
        "N): its holder may join as a host, and can neither speak for another host nor break, move or drop anything.\n\n"
        "A file is text: a line 'cluster KEY' or 'host N KEY'. With two lines both keys are accepted, and the first one tags. To\n"
        "change the cluster's key without an interruption, start all daemons with OLD and NEW in one file ('cat OLD NEW'), give\n"
        "clients the new key, start all daemons with 'cat NEW OLD', and then with NEW alone when no host is left that joined with\n"
        "OLD. docs/operating.md has the steps.\n\n"
        "Only its owner may read a key file: others are refused, by everything that reads one.\n\n"
        "Exit status: 0 done, 2 wrong usage, 69 the file cannot be read or written.",
    .words_max = 2,
    ARGS_TABLE(table),
};

static int fail(void)
{
    return cli_say("key", EXIT_UNAVAILABLE, "%s", explained());
}

static int make_random(struct seal_ring *r)
{
    if (getrandom(r->key[0].k, sizeof r->key[0].k, 0) != sizeof r->key[0].k)
        return explain(-errno, "the system has no random numbers: %s", strerror(errno));
    r->count = 1;
    return 0;
}

static int make_host_key(const struct seal_ring *cluster, uint32_t number, struct seal_ring *r)
{
    if (!cluster->count)
        return explain(-EINVAL, "--host needs the cluster's key: --key FILE or PAWL_KEY");
    if (cluster->number)
        return explain(-EINVAL, "--host needs the cluster's key, and --key names that of host %u", cluster->number);
    r->number = number;
    for (r->count = 0; r->count < cluster->count; r->count++)
        r->key[r->count] = seal_member_key(&cluster->key[r->count], number);
    return 0;
}

static int make(const char *path)
{
    struct seal_ring r = {.count = 0}, cluster = {.count = 0};
    uint64_t number = 0;
    if (opts.number && (cli_bytes(opts.number, strlen(opts.number), &number) || !number || number > KEY_NUMBER_MAX))
        return args_complain(&usage, "--host must be between 1 and %u", KEY_NUMBER_MAX);
    if (!opts.number && cli_key_file)
        return args_complain(&usage, "--key goes with --host");
    int rc = opts.number ? key_file_find(NULL, &cluster) : make_random(&r);
    if (!rc && opts.number)
        rc = make_host_key(&cluster, (uint32_t)number, &r);
    if (!rc)
        rc = key_file_write(path, &r);
    explicit_bzero(&r, sizeof r);
    return rc ? fail() : 0;
}

/* Kinds and fingerprints: never a key. */
static int show(const char *path)
{
    struct seal_ring r = {.count = 0};
    if (key_file_read(path, &r))
        return fail();
    if (opts.json) {
        struct json j;
        json_open(&j, stdout);
        json_string(&j, "kind", r.number ? "host" : "cluster");
        json_u64(&j, "number", r.number);
        json_u64(&j, "keys", r.count);
        json_finish(&j);
        return 0;
    }
    for (unsigned i = 0; i < r.count; i++) {
        struct seal_key mark = seal_derive(&r.key[i], UINT64_MAX >> 8, 0, 0);
        if (r.number)
            printf("host %u", r.number);
        else
            printf("cluster");
        printf(" fingerprint %08x%s\n", (unsigned)(mark.k[0] >> 32), i ? ", accepted only" : "");
    }
    return 0;
}

static int run_key(struct args_rest *rest)
{
    const char *verb = rest->count ? rest->words[0] : "";
    if (rest->count != 2 || (strcmp(verb, "new") != 0 && strcmp(verb, "show") != 0))
        return args_complain(&usage, "it is 'new FILE' or 'show FILE'");
    if (!strcmp(verb, "show"))
        return show(rest->words[1]);
    return make(rest->words[1]);
}

const struct command cmd_key = {&usage, run_key};
