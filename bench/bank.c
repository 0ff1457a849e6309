/* SPDX-License-Identifier: Apache-2.0 */
/* A bank on a real Redis under RedLock or under pawl: fills it, counts its money, runs clients, or stops a client for longer than
 * its lease. scripts/bank starts what it needs and compares. */
#include "bench/bank.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED 3 /* exit status of the client that was stopped */

static struct bank bank = {.workload = "mobile",
                           .tag = "x",
                           .port = 6379,
                           .accounts = 1000000,
                           .zipf = 900,
                           .tellers = 1,
                           .lifetime_ns = 10 * NS_PER_S,
                           .delay_ns = 200 * NS_PER_MS};
static struct crowd crowd = {.clients = 16, .ns = NS_PER_S, .stop_ns = 2 * NS_PER_S, .work = bank_work, .user = &bank};

static const struct arg table[] = {
    {.name = "redis", .kind = ARG_U64, .metavar = "PORT", .help = "port of Redis on loopback; default 6379", .to = &bank.port},
    {.name = "db", .kind = ARG_U64, .metavar = "N", .help = "its database; default 0", .to = &bank.db},
    {.name = "accounts", .kind = ARG_U64, .metavar = "N", .help = "accounts; default 1M", .to = &bank.accounts},
    {.name = "workload", .kind = ARG_STRING, .metavar = "W", .help = "mobile (default) or smallbank", .to = &bank.workload},
    {.name = "zipf", .kind = ARG_THOUSANDTHS, .metavar = "E", .help = "mobile: exponent; default 0.9", .to = &bank.zipf},
    {.name = "place", .kind = ARG_STRING, .metavar = "PLACE", .help = "pawl's space; without: RedLock", .to = &bank.at.place},
    {.name = "namespaces",
     .kind = ARG_STRING,
     .metavar = "FILES",
     .help = "network namespaces of the clients, with commas",
     .to = &bank.at.namespaces},
    {.name = "hosts", .kind = ARG_U64, .metavar = "N", .help = "rack on loopback: hosts of the clients", .to = &bank.at.hosts},
    {.name = "lease",
     .kind = ARG_DURATION,
     .metavar = "S",
     .help = "shared memory: of the sessions",
     .to = &bank.at.options.lease_ns},
    {.name = "tag", .kind = ARG_STRING, .metavar = "T", .help = "name of the space's fences in Redis", .to = &bank.tag},
    {.name = "unfenced", .kind = ARG_FLAG, .help = "write without tokens", .to = &bank.unfenced},
    {.name = "unlocked", .kind = ARG_FLAG, .help = "take no locks: the money need not add up", .to = &bank.unlocked},
    {.name = "lifetime", .kind = ARG_DURATION, .metavar = "S", .help = "RedLock: of a lock; default 10", .to = &bank.lifetime_ns},
    {.name = "delay",
     .kind = ARG_DURATION,
     .metavar = "S",
     .help = "RedLock: longest pause before the next try; default 0.2",
     .to = &bank.delay_ns},
    {.name = "clients", .kind = ARG_U64, .metavar = "N", .help = "run: processes; default 16", .to = &crowd.clients},
    {.name = "tellers",
     .kind = ARG_U64,
     .metavar = "N",
     .help = "run: transactions of a process at once, on one connection and session; default 1",
     .to = &bank.tellers},
    {.name = "seconds", .kind = ARG_DURATION, .metavar = "S", .help = "run: how long; default 1", .to = &crowd.ns},
    {.name = "kills", .kind = ARG_U64, .metavar = "N", .help = "run: clients killed meanwhile", .to = &crowd.kills},
    {.name = "stops", .kind = ARG_U64, .metavar = "N", .help = "run: clients stopped meanwhile", .to = &crowd.stops},
    {.name = "stop", .kind = ARG_DURATION, .metavar = "S", .help = "run: for how long; default 2", .to = &crowd.stop_ns},
};
static const struct args args = {.command = "bank",
                                 .usage = "fill | count | run | stop [OPTION]...",
                                 .about = "A bank on a real Redis: fills it, counts its money, runs clients, or stops a client\n"
                                          "beyond its lease between its reads and its writes. Results are JSON.",
                                 .words_max = 1,
                                 ARGS_TABLE(table)};

/* The first client transfers from account 0 to 1 and is stopped between its reads and its writes. The second waits until the first
 * one's lock has ended, and transfers from 1 to 2. If the first then writes what it has read, the second's withdrawal is undone. */
static int stop_transfer(unsigned number)
{
    static struct bank_client c;
    static struct crowd_report report;
    const struct bank_txn t = {.count = 2,
                               .locks = true,
                               .slot = {number, number + 1},
                               .writes = {true, true},
                               .change = {-10 - (int64_t)number, 10 + (int64_t)number}};
    int64_t balance[TXN_SLOTS];
    c.report = &report;
    if (bank_connect(&c, &bank, number) || bank_take(&c, &t))
        kit_die("client %u: %s", number, pawl_explain());
    bank_read(&c, &t, balance);
    if (!number)
        raise(SIGSTOP);
    int rc = bank_write(&c, &t, balance);
    bank_give(&c, &t);
    if (c.p)
        pawl_close(c.p);
    return rc ? REFUSED : 0;
}

static int stop(struct json *j)
{
    int status[2];
    pid_t pid[2] = {fork()};
    if (!pid[0])
        _exit(stop_transfer(0));
    if (waitpid(pid[0], &status[0], WUNTRACED) != pid[0] || !WIFSTOPPED(status[0]))
        kit_die("the first client did not stop");
    uint64_t begin = kit_now();
    pid[1] = fork();
    if (!pid[1])
        _exit(stop_transfer(1));
    waitpid(pid[1], &status[1], 0);
    double waited = (double)(kit_now() - begin) / NS_PER_S;
    kill(pid[0], SIGCONT);
    waitpid(pid[0], &status[0], 0);
    if (status[1] || !WIFEXITED(status[0]) || (WEXITSTATUS(status[0]) && WEXITSTATUS(status[0]) != REFUSED))
        kit_die("a client failed");
    json_double(j, "waited_s", waited);
    json_bool(j, "refused", WEXITSTATUS(status[0]) == REFUSED);
    return 0;
}

int main(int argc, char **argv)
{
    struct args_rest rest;
    struct json j;
    int rc = args_parse(&args, argc, argv, &rest);
    if (rc != ARGS_RUN)
        return rc;
    const char *what = rest.count ? rest.words[0] : "";
    bool known = !strcmp(bank.workload, "mobile") || !strcmp(bank.workload, "smallbank");
    if (!known || bank.accounts < 4 || bank.accounts > UINT32_MAX / 2 ||
        zipf_init(&bank.zipf_table, bank.accounts, (uint32_t)min_u64(bank.zipf, ZIPF_EXPONENT_MAX)))
        return args_complain(&args, "no such workload, or 4 to 2G accounts");
    if (!bank.tellers || bank.tellers > TELLERS_MAX)
        return args_complain(&args, "--tellers: 1 to %u", TELLERS_MAX);
    json_open(&j, stdout);
    if (!strcmp(what, "run")) {
        crowd.work = bank.tellers > 1 ? bank_flow : bank_work;
        rc = crowd_run(&crowd);
        crowd_json(&crowd, &j);
        crowd_free(&crowd);
    } else if (!strcmp(what, "stop")) {
        rc = stop(&j);
    } else if (!strcmp(what, "fill") || !strcmp(what, "count")) {
        redisContext *r = store_connect(&bank);
        if (*what == 'f')
            store_fill(&bank, r);
        json_i64(&j, "missing", store_missing(&bank, r));
        redisFree(r);
        rc = 0;
    } else
        return args_complain(&args, "fill, count, run or stop");
    return json_finish(&j) || rc ? 1 : 0;
}
