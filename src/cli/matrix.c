/* SPDX-License-Identifier: Apache-2.0 */
/* Which design offers what on which substrate, and the test that shows it. The designs themselves say what they offer; a yes
 * without a test here, or with one that does not exist, fails the test cli/matrix. */
#include "cli/doctor.h"

#include <string.h>

/* Bit numbers of design.h's flags. */
enum { EXCLUSIVE, SHARED, TOKENS, RECOVERY, TIMEOUT, CONVERT, RANGES, ASYNC, DEADLOCK, CALLS, SPLIT, BAST, SEMAPHORE, VALUES };
enum { SHM, SIM, UDP, NODE, NODE_XDP, OFI, VERBS };
static_assert(1 << VALUES == DESIGN_VALUES && VALUES + 1 == DESIGN_FEATURES, "features in the order of their bits");
static_assert(1 << VERBS == DESIGN_ON_VERBS && VERBS + 1 == DESIGN_SUBSTRATES, "substrates in the order of their bits");

/* A design that offers everything but ranges; its tests of the contract, of recovery and of asynchronous operations. A test on
 * shared memory of that name runs for each such design (tests/meson.build). */
#define WHOLE(contract, recovery, async)                                                                                           \
    [EXCLUSIVE] = (contract), [SHARED] = (contract), [TOKENS] = (contract), [RECOVERY] = (recovery), [TIMEOUT] = (contract),       \
    [CONVERT] = (contract), [ASYNC] = (async)

/* On a memory node. */
#define FAR(test) [EXCLUSIVE] = (test), [TOKENS] = (test), [RECOVERY] = (test), [TIMEOUT] = (test)
#define FAR_OFI [EXCLUSIVE] = "udp/node_ofi", [TOKENS] = "udp/node_ofi", [RECOVERY] = "udp/ofi_trial", [TIMEOUT] = "udp/node_ofi"
#define FAR_OFI_WHOLE FAR_OFI, [SHARED] = "udp/node_ofi", [CONVERT] = "udp/node_ofi", [ASYNC] = "udp/node_ofi"
#define FAR_VERBS FAR("rdma-vm/run")
#define FAR_VERBS_WHOLE FAR_WHOLE("rdma-vm/run", "rdma-vm/run")
#define FAR_WHOLE(test, async) FAR(test), [SHARED] = (test), [CONVERT] = (test), [ASYNC] = (async)

static const struct proof {
    const char *design;
    unsigned substrate;
    const char *tests[DESIGN_FEATURES];
} proofs[] = {
    {"word",
     SHM,
     {WHOLE("shm/contract", "shm/kill", "shm/async"), [BAST] = "udp/beside", [SEMAPHORE] = "udp/beside", [VALUES] = "udp/beside"}},
    {"word",
     SIM,
     {WHOLE("sim/word", "sim/word", "sim/word"), [BAST] = "sim/beside", [SEMAPHORE] = "sim/beside", [VALUES] = "sim/beside"}},
    {"word",
     NODE,
     {FAR_WHOLE("udp/node", "udp/node_async"), [BAST] = "udp/beside", [SEMAPHORE] = "udp/beside", [VALUES] = "udp/beside"}},
    {"word", NODE_XDP, {FAR_WHOLE("lab/node", "lab/node"), [BAST] = "lab/node", [SEMAPHORE] = "lab/node", [VALUES] = "lab/node"}},
    {"word", OFI, {FAR_OFI_WHOLE, [BAST] = "udp/node_ofi", [SEMAPHORE] = "udp/node_ofi"}},
    {"word", VERBS, {FAR_VERBS_WHOLE, [BAST] = "rdma-vm/run", [SEMAPHORE] = "rdma-vm/run"}},
    {"shiftlock", SHM, {WHOLE("shm/contract", "shm/kill", "shm/async")}},
    {"shiftlock", SIM, {WHOLE("sim/shiftlock", "sim/shiftlock", "sim/shiftlock")}},
    {"shiftlock", NODE, {FAR_WHOLE("udp/node", "udp/node_async")}},
    {"shiftlock", NODE_XDP, {FAR_WHOLE("lab/node", "lab/node")}},
    {"shiftlock64", SHM, {WHOLE("shm/contract", "shm/kill", "shm/async")}},
    {"shiftlock64", SIM, {WHOLE("sim/shiftlock", "sim/shiftlock", "sim/shiftlock")}},
    {"shiftlock64", NODE, {FAR_WHOLE("udp/node", "udp/node_async")}},
    {"shiftlock64", NODE_XDP, {FAR_WHOLE("lab/node", "lab/node")}},
    {"shiftlock64", OFI, {FAR_OFI_WHOLE}},
    {"shiftlock64", VERBS, {FAR_VERBS_WHOLE}},
    {"alock", SHM, {[EXCLUSIVE] = "shm/kill", [TOKENS] = "shm/kill", [RECOVERY] = "shm/kill", [TIMEOUT] = "shm/kill"}},
    {"alock", SIM, {[EXCLUSIVE] = "sim/alock", [TOKENS] = "sim/alock", [RECOVERY] = "sim/alock", [TIMEOUT] = "sim/alock"}},
    {"alock", NODE, {FAR("udp/node")}},
    {"alock", NODE_XDP, {FAR("lab/node")}},
    {"alock", OFI, {FAR_OFI}},
    {"alock", VERBS, {FAR_VERBS}},
    {"fisslock",
     SIM,
     {WHOLE("sim/fisslock", "sim/fisslock", "sim/fisslock"), [DEADLOCK] = "sim/deadlock", [BAST] = "sim/beside",
      [SEMAPHORE] = "sim/beside", [VALUES] = "sim/beside"}},
    {"fisslock",
     UDP,
     {WHOLE("udp/contract", "udp/kill", "udp/contract"), [DEADLOCK] = "udp/deadlock", [BAST] = "udp/beside",
      [SEMAPHORE] = "udp/beside", [VALUES] = "udp/beside"}},
    {"fisslock-stay",
     SIM,
     {WHOLE("sim/fisslock", "sim/fisslock", "sim/fisslock"), [DEADLOCK] = "sim/fisslock", [BAST] = "sim/beside",
      [SEMAPHORE] = "sim/beside", [VALUES] = "sim/beside"}},
    {"fisslock-stay",
     UDP,
     {WHOLE("udp/contract", "udp/kill", "udp/contract"), [DEADLOCK] = "udp/deadlock", [BAST] = "udp/beside",
      [SEMAPHORE] = "udp/beside", [VALUES] = "udp/beside"}},
    {"fisslock-racks",
     SIM,
     {WHOLE("sim/fisslock", "sim/fisslock", "sim/fisslock"), [DEADLOCK] = "sim/deadlock", [BAST] = "sim/beside",
      [SEMAPHORE] = "sim/beside", [VALUES] = "sim/beside"}},
    {"fisslock-racks",
     UDP,
     {WHOLE("udp/contract", "udp/racks", "udp/contract"), [DEADLOCK] = "udp/deadlock", [BAST] = "udp/beside",
      [SEMAPHORE] = "udp/beside", [VALUES] = "udp/beside"}},
    {"citron", SHM, {WHOLE("shm/contract", "shm/kill", "shm/async"), [RANGES] = "shm/ranges", [SPLIT] = "shm/changes"}},
    {"citron", SIM, {WHOLE("sim/citron", "sim/citron", "sim/citron"), [RANGES] = "sim/citron", [SPLIT] = "sim/citron"}},
    {"citron", NODE, {FAR_WHOLE("udp/node", "udp/node_async"), [RANGES] = "udp/node", [SPLIT] = "udp/node"}},
    {"citron", NODE_XDP, {FAR_WHOLE("lab/node", "lab/node"), [RANGES] = "lab/node", [SPLIT] = "lab/node"}},
    {"citron", OFI, {FAR_OFI_WHOLE, [RANGES] = "udp/node_ofi", [SPLIT] = "udp/node_ofi"}},
    {"citron", VERBS, {FAR_VERBS_WHOLE, [RANGES] = "rdma-vm/run", [SPLIT] = "rdma-vm/run"}},
    {"netlock", SIM, {WHOLE("sim/netlock", "sim/netlock", "sim/netlock"), [DEADLOCK] = "sim/deadlock", [CALLS] = "sim/netlock"}},
    {"netlock", UDP, {WHOLE("udp/contract", "udp/kill", "udp/contract"), [DEADLOCK] = "udp/deadlock", [CALLS] = "udp/kv"}},
    {"netlock-switches", SIM, {WHOLE("sim/netlock", "sim/netlock", "sim/netlock"), [DEADLOCK] = "sim/deadlock"}},
    {"netlock-switches", UDP, {WHOLE("udp/contract", "udp/kill", "udp/contract"), [DEADLOCK] = "udp/deadlock"}},
    {"cas", SHM, {[EXCLUSIVE] = "shm/baselines", [TIMEOUT] = "shm/baselines"}},
    {"cas", SIM, {[EXCLUSIVE] = "sim/cas", [TIMEOUT] = "sim/cas"}},
    {"cas", NODE, {[EXCLUSIVE] = "udp/node_baselines", [TIMEOUT] = "udp/node_baselines"}},
    {"cas-backoff", SHM, {[EXCLUSIVE] = "shm/baselines", [TIMEOUT] = "shm/baselines"}},
    {"cas-backoff", SIM, {[EXCLUSIVE] = "sim/cas", [TIMEOUT] = "sim/cas"}},
    {"cas-backoff", NODE, {[EXCLUSIVE] = "udp/node_baselines", [TIMEOUT] = "udp/node_baselines"}},
    {"spin", SHM, {[EXCLUSIVE] = "shm/baselines", [TIMEOUT] = "shm/baselines"}},
    {"spin", SIM, {[EXCLUSIVE] = "sim/baselines", [TIMEOUT] = "sim/baselines"}},
    {"mcs", SIM, {[EXCLUSIVE] = "sim/baselines"}},
    {"dslr", SIM, {[EXCLUSIVE] = "sim/baselines", [SHARED] = "sim/baselines", [RECOVERY] = "sim/baselines"}},
    {"dslr", NODE, {[EXCLUSIVE] = "udp/node_baselines", [SHARED] = "udp/node_baselines", [RECOVERY] = "udp/node_baselines"}},
    {"drtm", SIM, {[EXCLUSIVE] = "sim/baselines", [SHARED] = "sim/baselines", [TIMEOUT] = "sim/baselines"}},
    {"drtm", NODE, {[EXCLUSIVE] = "udp/node_baselines", [SHARED] = "udp/node_baselines", [TIMEOUT] = "udp/node_baselines"}},
    {"rmarw", SIM, {[EXCLUSIVE] = "sim/baselines", [SHARED] = "sim/baselines"}},
    {"rpc", SIM, {[EXCLUSIVE] = "sim/baselines", [SHARED] = "sim/baselines", [TIMEOUT] = "sim/baselines"}},
    {"rpc-retry", SIM, {[EXCLUSIVE] = "sim/baselines", [SHARED] = "sim/baselines", [TIMEOUT] = "sim/baselines"}},
    {"srvlock",
     SIM,
     {WHOLE("sim/srvlock", "sim/srvlock", "sim/srvlock"), [BAST] = "sim/beside", [SEMAPHORE] = "sim/beside",
      [VALUES] = "sim/beside"}},
    {"srvlock",
     UDP,
     {WHOLE("udp/contract", "udp/kill", "udp/contract"), [BAST] = "udp/beside", [SEMAPHORE] = "udp/beside",
      [VALUES] = "udp/beside"}},
    {"fisslock-local",
     SIM,
     {WHOLE("sim/fisslock", "sim/fisslock", "sim/fisslock"), [DEADLOCK] = "sim/fisslock", [BAST] = "sim/beside",
      [SEMAPHORE] = "sim/beside", [VALUES] = "sim/beside"}},
    {"parlock",
     SIM,
     {WHOLE("sim/srvlock", "sim/srvlock", "sim/srvlock"), [BAST] = "sim/beside", [SEMAPHORE] = "sim/beside",
      [VALUES] = "sim/beside"}},
    {"netchain",
     SIM,
     {[EXCLUSIVE] = "sim/netlock",
      [TOKENS] = "sim/netlock",
      [RECOVERY] = "sim/netlock",
      [TIMEOUT] = "sim/netlock",
      [ASYNC] = "sim/netlock"}},
    {"mutex", SHM, {WHOLE("shm/contract", "shm/kill", "shm/async"), [RANGES] = "shm/ranges"}},
    {"mutex", SIM, {WHOLE("sim/ranges", "sim/ranges", "sim/ranges"), [RANGES] = "sim/ranges"}},
    {"itree", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [TIMEOUT] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"maple", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [TIMEOUT] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"list-server", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [TIMEOUT] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"list-onesided", SIM, {[EXCLUSIVE] = "sim/ranges", [TIMEOUT] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"segments-exact", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"segments-over", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"segments-under", SIM, {[EXCLUSIVE] = "sim/ranges", [SHARED] = "sim/ranges", [RANGES] = "sim/ranges"}},
    {"pthread", SHM, {[EXCLUSIVE] = "shm/baselines", [RECOVERY] = "shm/baselines", [TIMEOUT] = "shm/baselines"}},
    {"pthread-rw", SHM, {[EXCLUSIVE] = "shm/baselines", [SHARED] = "shm/baselines", [TIMEOUT] = "shm/baselines"}},
    {"ofd", SHM, {[EXCLUSIVE] = "shm/ranges", [SHARED] = "shm/ranges", [RECOVERY] = "shm/kill-ranges", [RANGES] = "shm/ranges"}},
};

const char *matrix_test(const struct design *d, unsigned feature, unsigned substrate)
{
    for (size_t i = 0; i < countof(proofs); i++)
        if (!strcmp(proofs[i].design, d->name) && proofs[i].substrate == substrate)
            return proofs[i].tests[feature];
    return NULL;
}

/* Designs that are wrong on purpose are not listed. */
static bool is_shown(const struct design *d, unsigned substrate)
{
    return d->kind != DESIGN_BUSTED && d->substrates >> substrate & 1;
}

/* Values need 128-bit atomics, which neither libfabric's providers nor libibverbs have. */
static bool is_offered(const struct design *d, unsigned feature, unsigned substrate)
{
    return d->features >> feature & 1 && !(feature == VALUES && substrate >= OFI);
}

static const char *cell(const struct design *d, unsigned feature, unsigned substrate)
{
    const char *test = matrix_test(d, feature, substrate);
    if (!is_offered(d, feature, substrate))
        return NULL;
    return test ? test : "untested";
}

/* ---- for people ---- */

static void print_row(bool markdown, const char *design, const char *on, const char *const cells[DESIGN_FEATURES])
{
    printf(markdown ? "| %s | %s |" : "%-14s %-8s", design, on);
    for (unsigned f = 0; f < DESIGN_FEATURES; f++) {
        if (!markdown)
            printf(" %-*s", f + 1 < DESIGN_FEATURES ? 18 : 0, cells[f] ? cells[f] : "-");
        else if (cells[f])
            printf(" yes: `%s` |", cells[f]);
        else
            printf(" no |");
    }
    putchar('\n');
}

static void print_header(bool markdown)
{
    printf(markdown ? "| %s | %s |" : "%-14s %-8s", "design", "on");
    for (unsigned f = 0; f < DESIGN_FEATURES; f++)
        if (markdown)
            printf(" %s |", design_feature_name(f));
        else
            printf(" %-*s", f + 1 < DESIGN_FEATURES ? 18 : 0, design_feature_name(f));
    putchar('\n');
    for (unsigned f = 0; f < DESIGN_FEATURES + 2 && markdown; f++)
        printf("%s---|", f ? "" : "|");
    if (markdown)
        putchar('\n');
}

static void print_matrix(bool markdown)
{
    print_header(markdown);
    for (const struct design *d = NULL; (d = design_next(d));)
        for (unsigned s = 0; s < DESIGN_SUBSTRATES; s++) {
            const char *cells[DESIGN_FEATURES];
            for (unsigned f = 0; f < DESIGN_FEATURES; f++)
                cells[f] = cell(d, f, s);
            if (is_shown(d, s))
                print_row(markdown, d->name, design_substrate_name(s), cells);
        }
}

/* ---- for programs ---- */

static void json_row(struct json *j, const struct design *d, unsigned substrate)
{
    json_object(j, NULL);
    json_string(j, "design", d->name);
    json_string(j, "on", design_substrate_name(substrate));
    json_object(j, "features");
    for (unsigned f = 0; f < DESIGN_FEATURES; f++) {
        json_object(j, design_feature_name(f));
        bool offered = is_offered(d, f, substrate);
        json_bool(j, "offered", offered);
        json_string(j, "test", offered ? matrix_test(d, f, substrate) : NULL);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

int matrix_print(bool json, bool markdown)
{
    struct json j;
    if (!json) {
        print_matrix(markdown);
        return 0;
    }
    json_init(&j, stdout);
    json_array(&j, NULL);
    for (const struct design *d = NULL; (d = design_next(d));)
        for (unsigned s = 0; s < DESIGN_SUBSTRATES; s++)
            if (is_shown(d, s))
                json_row(&j, d, s);
    return json_finish(&j) ? EXIT_UNAVAILABLE : 0;
}
