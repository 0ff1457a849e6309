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
    bool admin, json;
} opts;

static const struct arg table[] = {
    {"host", 0, ARG_STRING, "N", "new: not a new key, but that of host N, from 1 to 65535, made from the cluster's (--key)",
     &opts.number, NULL},
    {"admin", 0, ARG_FLAG, NULL, "new: a file for operators: the cluster's key (--key), and a new admin key beside it", &opts.admin,
     NULL},
    CLI_KEY_OPTION,
    CLI_JSON_OPTION(&opts.json),
};

static const struct args usage = {
    .command = "pawl key",
    .usage = "new FILE\n"
             "       pawl key new FILE --host N --key CLUSTER-FILE\n"
             "       pawl key new FILE --admin --key CLUSTER-FILE\n"
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
        "With an admin key the cluster's key alone shows, and changes nothing: 'pawl break', 'pawl rules --shards', 'pawl policy' "
        "that\n"
        "sets something, and 'pawl space create', 'drop' and 'grow' need the admin key, too. Start coordinators, and switches of\n"
        "netlock, with the file that --admin makes, and use it for commands.\n\n"
        "A file is text: a line 'cluster KEY' or 'host N KEY', and beside the cluster's a line 'admin KEY'. With two lines of a "
        "kind\n"
        "both keys are accepted, and the first one tags. To change keys without an interruption, start all daemons with OLD and "
        "NEW\n"
        "in one file ('cat OLD NEW'), give clients the new key, start all daemons with 'cat NEW OLD', and then with NEW alone when "
        "no\n"
        "host is left that joined with OLD. docs/operating.md has the steps.\n\n"
        "Only its owner may read a key file: others are refused, by everything that reads one.\n\n"
        "Exit status: 0 done, 2 wrong usage, 69 the file cannot be read or written.",
    .words_max = 2,
    ARGS_TABLE(table),
};

static int fail(void)
{
    return cli_say("key", EXIT_UNAVAILABLE, "%s", explained());
}

static int make_random(struct seal_key *key)
{
    if (getrandom(key->k, sizeof key->k, 0) != sizeof key->k)
        return explain(-errno, "the system has no random numbers: %s", strerror(errno));
    return 0;
}

/* The cluster's keys, from which others are made or beside which they stand. */
static int find_cluster(const char *option, struct seal_ring *cluster)
{
    int rc = key_file_find(NULL, cluster);
    if (rc)
        return rc;
    if (!cluster->count)
        return explain(-EINVAL, "--%s needs the cluster's key: --key FILE or PAWL_KEY", option);
    if (cluster->number)
        return explain(-EINVAL, "--%s needs the cluster's key, and --key names that of host %u", option, cluster->number);
    return 0;
}

static int make_host_key(uint32_t number, struct seal_ring *r)
{
    struct seal_ring cluster;
    int rc = find_cluster("host", &cluster);
    r->number = number;
    for (r->count = 0; !rc && r->count < cluster.count; r->count++)
        r->key[r->count] = seal_member_key(&cluster.key[r->count], number);
    explicit_bzero(&cluster, sizeof cluster);
    return rc;
}

static int make_admin_key(struct seal_ring *r)
{
    int rc = find_cluster("admin", r);
    memset(r->admin, 0, sizeof r->admin); /* those of the cluster's file stay there */
    r->admins = 1;
    return rc ? rc : make_random(&r->admin[0]);
}

static int make(const char *path)
{
    struct seal_ring r = {.count = 0};
    uint64_t number = 0;
    int rc;
    if (opts.number && (cli_bytes(opts.number, strlen(opts.number), &number) || !number || number > KEY_NUMBER_MAX))
        return args_complain(&usage, "--host must be between 1 and %u", KEY_NUMBER_MAX);
    if (opts.number && opts.admin)
        return args_complain(&usage, "--host and --admin exclude each other");
    if (!opts.number && !opts.admin && cli_key_file)
        return args_complain(&usage, "--key goes with --host or --admin");
    if (opts.number) {
        rc = make_host_key((uint32_t)number, &r);
    } else if (opts.admin) {
        rc = make_admin_key(&r);
    } else {
        r.count = 1;
        rc = make_random(&r.key[0]);
    }
    if (!rc)
        rc = key_file_write(path, &r);
    explicit_bzero(&r, sizeof r);
    return rc ? fail() : 0;
}

static void print_fingerprints(const char *kind, const struct seal_key *keys, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct seal_key mark = seal_derive(&keys[i], UINT64_MAX >> 8, 0, 0);
        printf("%s fingerprint %08x%s\n", kind, (unsigned)(mark.k[0] >> 32), i ? ", accepted only" : "");
    }
}

/* Kinds and fingerprints: never a key. */
static int show(const char *path)
{
    struct seal_ring r = {.count = 0};
    char kind[32] = "cluster";
    if (key_file_read(path, &r))
        return fail();
    if (opts.json) {
        struct json j;
        json_open(&j, stdout);
        json_string(&j, "kind", r.number ? "host" : "cluster");
        json_u64(&j, "number", r.number);
        json_u64(&j, "keys", r.count);
        json_u64(&j, "admin_keys", r.admins);
        json_finish(&j);
        return 0;
    }
    if (r.number)
        snprintf(kind, sizeof kind, "host %u", r.number);
    print_fingerprints(kind, r.key, r.count);
    print_fingerprints("admin", r.admin, r.admins);
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
