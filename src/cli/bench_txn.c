/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_txn.h"
#include "cli/common.h"

#include <inttypes.h>
#include <string.h>

#define TRACE "trace"
#define SCALE_MAX UINT64_C(10000000) /* subscribers, accounts: rows are numbered by 32 bits */

static int name_all(const struct args *usage, const char *workload)
{
    char names[256] = "";
    size_t len = 0;
    for (unsigned i = 0; i < txn_preset_count; i++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s, ", txn_presets[i].name);
    return args_complain(usage, "there is no workload '%s'; there are %sand " TRACE, workload, names);
}

/* Options that go with transactions alone, or not with them. */
static int check_options(const struct args *usage, const struct bench_txn_options *o, const struct bench_params *p)
{
    const struct workload *w = &p->workload;
    const char *lone = o->file           ? "file"
                       : o->write        ? "write-trace"
                       : o->scale_seen   ? "scale"
                       : o->timeout_seen ? "timeout"
                       : o->sorted       ? "sorted"
                       : o->together     ? "together"
                                         : NULL;
    if (!o->workload)
        return lone ? args_complain(usage, "--%s goes with --workload", lone) : 0;
    bool trace = !strcmp(o->workload, TRACE);
    if (trace != !!o->file)
        return args_complain(usage, trace ? "--workload trace needs --file FILE" : "--file goes with --workload trace");
    if (trace && (o->scale_seen || o->write))
        return args_complain(usage, "--%s does not go with --workload trace", o->write ? "write-trace" : "scale");
    if (o->write && !o->ops_seen)
        return args_complain(usage, "--write-trace needs --ops N: the number of transactions");
    if (w->length_count || w->io || w->zipf || w->reads || w->objects || w->hot || o->locks_seen || p->partitioned || p->parted ||
        p->deaths)
        return args_complain(usage, "--workload chooses locks and modes itself: it goes with none of --locks, --reads, --zipf, "
                                    "--objects, --range, --io, --hotspot, --local, --lock-nodes and --deaths");
    return 0;
}

static int check_together(const struct args *usage, const struct bench_params *p)
{
    for (unsigned i = 0; i < p->design_count && p->workload.together && p->simulated; i++)
        if (!p->designs[i]->packet)
            return args_complain(
                usage, "all locks by one call is for packet designs on sim, and '%s' is none: --sorted takes them one by one",
                p->designs[i]->name);
    return 0;
}

/* Transactions that take locks in different orders wait for each other: one of them must be able to give up. */
static int check_deadlocks(const struct args *usage, const struct txn_params *txn, const struct bench_params *p)
{
    if (!txn->sorted && !p->workload.together && !p->workload.timeout_ns)
        return args_complain(usage, "transactions that take their locks in different orders can deadlock: --sorted, --together or "
                                    "--timeout TIME");
    for (unsigned i = 0; i < p->design_count && p->workload.timeout_ns; i++)
        if (!(p->designs[i]->features & DESIGN_TIMEOUT))
            return args_complain(usage, "waiters of the design '%s' cannot give up: --sorted and --timeout 0", p->designs[i]->name);
    return 0;
}

int bench_choose_txn(const struct args *usage, const struct bench_txn_options *o, struct bench_params *p)
{
    static struct txn_params txn;
    struct workload *w = &p->workload;
    char why[TXN_WHY_LEN] = "";
    int status = check_options(usage, o, p);
    if (status || !o->workload)
        return status;
    const struct txn_preset *preset = txn_preset_find(o->workload);
    bool trace = !strcmp(o->workload, TRACE);
    if (!preset && !trace)
        return name_all(usage, o->workload);
    if (o->scale_seen && (!o->scale || o->scale > SCALE_MAX))
        return args_complain(usage, "--scale must be between 1 and %" PRIu64, SCALE_MAX);
    txn = (struct txn_params){.kind = trace ? TXN_TRACE : preset->kind,
                              .scale = o->scale_seen ? o->scale
                                       : preset      ? preset->scale
                                                     : 0,
                              .hosts = p->nodes ? p->nodes : 1,
                              .sorted = o->sorted || (preset && preset->sorted)};
    if (trace && txn_trace_read(o->file, &txn.trace, why))
        return args_complain(usage, "%s", why);
    if (txn_prepare(&txn))
        return cli_say("bench", EXIT_UNAVAILABLE, "out of memory");
    if (txn_locks(&txn) > ZIPF_ITEMS_MAX)
        return args_complain(usage, "%s has %" PRIu64 " locks, and a benchmark at most %" PRIu64, o->workload, txn_locks(&txn),
                             ZIPF_ITEMS_MAX);
    w->txn = &txn;
    w->locks = txn_locks(&txn);
    w->together = o->together || (preset && preset->together && !o->sorted); /* sorted: one by one, which one-sided designs need */
    w->retries = preset && preset->retries;
    w->moves_data = preset && preset->moves_data;
    if (preset && !o->hold_seen)
        w->hold_ns = preset->hold_ns;
    if (preset && !o->timeout_seen)
        w->timeout_ns = preset->timeout_ns;
    status = check_together(usage, p);
    return status ? status : check_deadlocks(usage, &txn, p);
}

int bench_write_trace(const struct bench_txn_options *o, const struct bench_params *p)
{
    char why[TXN_WHY_LEN];
    if (txn_trace_write(o->write, p->workload.txn, p->clients, p->ops, p->workload.seed, why))
        return cli_say("bench", EXIT_UNAVAILABLE, "%s", why);
    printf("%" PRIu64 " transactions of %s written to %s\n", p->ops, o->workload, o->write);
    return 0;
}
