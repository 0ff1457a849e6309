/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric over libfabric, with its provider tcp (PAWL_TEST_PROVIDER: another): verbs against a model, the order of batches, keys
 * that are closed, connections that break while verbs are in flight, and errors that say what is wrong.
 * PAWL_TEST_PROVIDER=libibverbs: the same over libibverbs, on an RDMA device with the address 127.0.0.1, as far as it applies; and
 * what a CPU's atomics do there. */
#include "fabric/rdma.h"
#include "lib/explain.h"
#include "lib/rng.h"
#include "tests/udp/cut.h"
#include "tests/udp/rack.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define BYTES 65536u
#define CLIENTS 8u
#define WORD 1024u /* the first word that tests use */

static const char *provider;
static bool over_verbs; /* libibverbs */
static struct rdma_target *target;
static uint64_t *memory;

static struct rdma_target *open_target(uint64_t mistakes)
{
    const struct rdma_target_params p = {
        .provider = provider, .at = net_v4(RACK_LOCALHOST, 0), .clients = CLIENTS, .mistakes = mistakes};
    struct rdma_target *t = NULL;
    int rc = rdma_target_open(&p, &t);
    if (rc == -ENOTSUP || rc == -ENODEV)
        SKIP("%s", explained());
    CHECK_OK(rc);
    CHECK_OK(rdma_target_memory(t, memory, BYTES));
    return t;
}

/* ---- endpoints ---- */

struct peer {
    uint32_t client, life;
    struct fab_rdma *o;
    struct fab_ep *ep;
    bool refused; /* the node does not give it another key */
    bool silent;  /* the node's process is gone */
};

static int renew(void *ctx, uint32_t number, uint64_t deadline, struct verbs_way *way)
{
    const struct peer *p = ctx;
    if (p->silent) {
        pause_ns(deadline > pawl_now() ? deadline - pawl_now() : 0);
        return -ETIMEDOUT;
    }
    return p->refused ? -FAB_EFENCED : rdma_target_admit(target, p->client, p->life, number, way);
}

static int fence(void *ctx, uint32_t peer, uint64_t proof)
{
    (void)ctx, (void)proof;
    rdma_target_shut(target, peer);
    return 0;
}

static void open_peer(struct peer *p, uint32_t client, uint32_t life, uint64_t mistakes, uint64_t lease_ns)
{
    struct verbs_way way = {0};
    *p = (struct peer){.client = client, .life = life};
    const struct fab_rdma_io io = {.ctx = p, .renew = renew, .fence = fence, .lease_ns = lease_ns, .mistakes = mistakes};
    CHECK_OK(rdma_target_admit(target, client, life, 0, &way));
    int rc = fab_rdma_open(&way, BYTES, &io, pawl_in(LIMIT_NS), &p->o);
    if (rc)
        CHECK_FAIL("fab_rdma_open: %d (%s)", rc, explained());
    p->ep = fab_rdma_ep(p->o);
}

/* ---- verbs ---- */

static void verbs(void)
{
    struct peer p;
    uint64_t old, words[512], more[512];
    open_peer(&p, 0, 1, 0, LIMIT_NS);
    CHECK(fab_has(p.ep->caps, FAB_ORDERED) == !over_verbs && !(p.ep->caps & (FAB_ATOMIC128 | FAB_CPU_ATOMIC64 | FAB_WAIT)));
    for (unsigned i = 0; i < 512; i++)
        words[i] = mix64(i);
    CHECK_OK(fab_write(p.ep, 8 * WORD, words, sizeof words)); /* in pieces */
    CHECK_OK(fab_read(p.ep, 8 * WORD, more, sizeof more));
    CHECK(!memcmp(words, more, sizeof words) && !memcmp(words, memory + WORD, sizeof words));
    CHECK_OK(fab_cas64(p.ep, 8 * WORD, words[0], 7, &old));
    CHECK_EQ(old, words[0]);
    CHECK_OK(fab_cas64(p.ep, 8 * WORD, 8, 9, &old)); /* refused */
    CHECK_EQ(old, 7);
    CHECK_OK(fab_faa64(p.ep, 8 * WORD, UINT64_MAX, &old));
    CHECK_OK(fab_swap64(p.ep, 8 * WORD, 0x1122334455667788, &old));
    CHECK_EQ(old, 6);
    CHECK_OK(fab_mcas64(p.ep, 8 * WORD, 0x88, 0xff, 0xaa00, 0xff00, &old)); /* lowered */
    CHECK_EQ(memory[WORD], 0x112233445566aa88);
    CHECK_OK(fab_mfaa64(p.ep, 8 * WORD, 0x0000000000ff0001, UINT64_C(0x8080808080808080), &old));
    CHECK_EQ(memory[WORD], 0x112233445565aa89); /* no carry from field to field */
    CHECK_RC(fab_read64(p.ep, BYTES, &old), -EFAULT);
    CHECK_RC(fab_cas128(p.ep, 8 * WORD, 0, 0, &(u128){0}), -EOPNOTSUPP);
    CHECK_OK(fab_write64(p.ep, 8 * WORD, 5));
    CHECK_RC(fab_wait(p.ep, 8 * WORD, UINT32_MAX, 5, pawl_in(20 * NS_PER_MS)), -ETIMEDOUT);
    CHECK_OK(fab_wait(p.ep, 8 * WORD, UINT32_MAX, 4, pawl_in(LIMIT_NS)));
    CHECK_OK(fab_rdma_set_own(p.o, 8 * WORD, 64));
    fab_own_store64(p.ep, 8 * WORD, 77);
    CHECK_EQ(fab_own_load64(p.ep, 8 * WORD), 77);
    CHECK_OK(fab_read64(p.ep, 8 * WORD, &old)); /* behind the store */
    CHECK_EQ(old, 77);
    fab_rdma_close(p.o);
}

/* Batches of a fetch-and-add and a READ of the same word: how many READs did not see the addition. */
static unsigned out_of_order(uint64_t mistakes, uint32_t client, unsigned batches, unsigned enough)
{
    struct peer p;
    unsigned wrong = 0;
    open_peer(&p, client, 1, mistakes, LIMIT_NS);
    for (unsigned i = 0; i < batches && wrong < enough; i++) {
        uint64_t seen = 0;
        struct fab_op ops[] = {{.verb = FAB_FAA, .width = 8, .addr = 8 * WORD, .swap = 1},
                               {.verb = FAB_READ, .addr = 8 * WORD, .len = 8, .buf = &seen},
                               {.verb = FAB_FAA, .width = 8, .addr = 8 * WORD, .swap = 1}};
        fab_keep_order(p.ep, ops, countof(ops));
        int rc = fab_batch(p.ep, ops, countof(ops));
        if (rc == -FAB_EUNKNOWN)
            continue; /* a busy machine */
        CHECK_OK(rc);
        wrong += seen != (uint64_t)ops[0].old + 1 || ops[2].old != ops[0].old + 1;
    }
    fab_rdma_close(p.o);
    return wrong;
}

static void order(void)
{
    unsigned bare = out_of_order(RDMA_MISTAKE_MIXED, 1, 200000, 3);
    unsigned ours = out_of_order(0, 2, 5000, 1);
    printf("order: %u READs of the bare provider passed an atomic or were passed, and %u of ours\n", bare, ours);
    CHECK(bare > 0);
    CHECK_EQ(ours, 0);
}

/* ---- keys ---- */

/* A client goes on under a new key: its verbs under the old one take no effect any more. 1: one did. */
static int old_key(uint64_t mistakes)
{
    struct rdma_target *before = target;
    struct peer p;
    struct verbs_way way = {0};
    uint64_t old;
    target = open_target(mistakes);
    open_peer(&p, 3, 1, 0, LIMIT_NS);
    CHECK_OK(fab_write64(p.ep, 8 * WORD, 100));
    CHECK_OK(rdma_target_admit(target, 3, 1, 1, &way)); /* as another thread of the client would */
    CHECK_RC(rdma_target_admit(target, 3, 1, 0, &way), -EINVAL);
    CHECK_RC(rdma_target_admit(target, 3, 1, 3, &way), -EINVAL);
    int rc = fab_faa64(p.ep, 8 * WORD, 1, &old);
    bool took_effect = memory[WORD] != 100;
    CHECK(took_effect ? !rc : rc == -FAB_EUNKNOWN);
    if (!took_effect) { /* its next verb is under the new key, which is the one that was told already */
        CHECK_OK(fab_faa64(p.ep, 8 * WORD, 1, &old));
        CHECK_EQ(old, 100);
        CHECK_EQ(fab_rdma_renewals(p.o), 1);
    }
    fab_rdma_close(p.o);
    rdma_target_close(target);
    target = before;
    return took_effect;
}

static long times_asleep(void)
{
    struct rusage used;
    CHECK_EQ(getrusage(RUSAGE_THREAD, &used), 0);
    return used.ru_nvcsw;
}

/* A client that is shut out, and none but that one. 1: a verb of it took effect. */
static int shut_out(uint64_t mistakes)
{
    struct rdma_target *before = target;
    struct peer p, q;
    uint64_t old, begin;
    long slept;
    target = open_target(mistakes);
    open_peer(&p, 4, 1, 0, LIMIT_NS);
    open_peer(&q, 5, 1, 0, LIMIT_NS);
    CHECK_OK(fab_write64(p.ep, 8 * WORD, 200));
    CHECK_OK(fab_fence(q.ep, 4, 0));
    p.refused = true;
    begin = pawl_now();
    slept = times_asleep();
    int rc = fab_faa64(p.ep, 8 * WORD, 1, &old);
    slept = times_asleep() - slept;
    bool took_effect = memory[WORD] != 200;
    if (!took_effect) {
        CHECK_RC(rc, -FAB_EUNKNOWN);
        long took_ms = (long)((pawl_now() - begin) / NS_PER_MS);
        printf("shut out: the library says so after %ld ms, in which the client slept %ld times\n", took_ms, slept);
        CHECK(!over_verbs || slept < 20 + took_ms / 5); /* by events: every 10 ms; naps of 50 us were one each millisecond */
        CHECK_RC(fab_faa64(p.ep, 8 * WORD, 1, &old), -FAB_EFENCED); /* it has asked */
        CHECK_RC(fab_read64(p.ep, 8 * WORD, &old), -FAB_EFENCED);
        CHECK_EQ(memory[WORD], 200);
    }
    CHECK_OK(fab_faa64(q.ep, 8 * WORD, 1, &old));
    fab_rdma_close(p.o);
    open_peer(&p, 4, 2, 0, LIMIT_NS); /* the number's next life */
    CHECK_OK(fab_faa64(p.ep, 8 * WORD, 1, &old));
    fab_rdma_close(p.o);
    fab_rdma_close(q.o);
    rdma_target_close(target);
    target = before;
    return took_effect;
}

/* ---- a node that is gone ---- */

#define SILENT_LEASE_NS (3 * NS_PER_S)

/* The outcome of verbs is unknown while the node may come back, for a lease. Then the endpoint ends. */
static void node_gone(void)
{
    struct rdma_target *before = target;
    struct peer p;
    uint64_t old, begin = 0;
    int rc;
    target = open_target(0);
    open_peer(&p, 6, 1, 0, SILENT_LEASE_NS);
    CHECK_OK(fab_faa64(p.ep, 8 * WORD, 1, &old));
    rdma_target_close(target);
    p.silent = true;
    begin = pawl_now();
    WAIT_FOR((rc = fab_faa64(p.ep, 8 * WORD, 1, &old)) != -FAB_EUNKNOWN);
    uint64_t took = pawl_now() - begin;
    printf("gone: the endpoint ends after %.1f s, with a lease of %.0f s\n", (double)took / 1e9, (double)SILENT_LEASE_NS / 1e9);
    CHECK_RC(rc, -FAB_EFENCED);
    CHECK(took >= SILENT_LEASE_NS && took < 2 * SILENT_LEASE_NS); /* the library takes a second or two to tell the loss */
    begin = pawl_now();
    CHECK_RC(fab_read64(p.ep, 8 * WORD, &old), -FAB_EFENCED);
    CHECK(pawl_now() - begin < SILENT_LEASE_NS / 8);
    fab_rdma_close(p.o);
    target = before;
}

/* ---- connections that break ---- */

#define CUTS 6   /* outcomes that are unknown, at least */
#define BURST 80 /* stores, more than the endpoint has in flight: so the provider looks at its connection in between */

static uint32_t cutting;
static uint64_t progress; /* verbs that have ended well: a connection that is made anew is not cut before the first */

static void *cutter(void *arg)
{
    struct rng r;
    uint64_t before = 0;
    (void)arg;
    for (rng_seed(&r, 1); __atomic_load_n(&cutting, __ATOMIC_ACQUIRE);) {
        pause_ns(NS_PER_MS + rng_below(&r, 30 * NS_PER_MS));
        if (__atomic_load_n(&progress, __ATOMIC_ACQUIRE) == before)
            continue;
        before = __atomic_load_n(&progress, __ATOMIC_ACQUIRE);
        cut_connections();
    }
    return NULL;
}

/* Stores of which the last is i; the connection breaks among them. */
static void burst(struct fab_ep *ep, uint64_t i)
{
    for (unsigned k = 0; k <= BURST; k++) {
        fab_post64(ep, 8 * (WORD + 1), k < BURST ? k : i);
        if (k == BURST / 2)
            cut_connections();
    }
}

/* Additions of one client, behind a store each, while its connection is cut again and again. After an unknown outcome the word is
 * what it will stay, and no addition took effect without the store before it. */
static void cuts(void)
{
    struct peer p;
    pthread_t thread;
    uint64_t sum = 0, unknown = 0, old, seen, stored;
    open_peer(&p, 6, 1, 0, LIMIT_NS);
    CHECK_OK(fab_write64(p.ep, 8 * WORD, 0));
    cutting = 1;
    CHECK_EQ(pthread_create(&thread, NULL, cutter, NULL), 0);
    for (uint64_t i = 1, limit = pawl_in(6 * LIMIT_NS); unknown < CUTS || i < 16; i++) {
        CHECK(pawl_now() < limit);
        if (i % 4 == 0)
            burst(p.ep, BURST + i);
        else
            fab_post64(p.ep, 8 * (WORD + 1), BURST + i);
        int rc = fab_faa64(p.ep, 8 * WORD, 1, &old);
        if (rc) {
            CHECK_RC(rc, -FAB_EUNKNOWN);
            unknown++;
            WAIT_FOR(!(rc = fab_read64(p.ep, 8 * WORD, &seen)) || rc != -FAB_EUNKNOWN);
            CHECK_OK(rc);
            CHECK(seen == sum || seen == sum + 1);
            sum = seen;
        } else {
            CHECK_EQ(old, sum);
            sum++;
        }
        WAIT_FOR(!(rc = fab_read64(p.ep, 8 * (WORD + 1), &stored)) || rc != -FAB_EUNKNOWN);
        CHECK_OK(rc);
        CHECK_EQ(stored, BURST + i); /* no store is lost */
        __atomic_fetch_add(&progress, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&cutting, 0, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pause_ns(50 * NS_PER_MS);
    CHECK_EQ(memory[WORD], sum);
    printf("cuts: %" PRIu64 " additions, %" PRIu64 " of unknown outcome, %u keys\n", sum, unknown, fab_rdma_renewals(p.o) + 1);
    CHECK(fab_rdma_renewals(p.o) > 0);
    fab_rdma_close(p.o);
}

/* ---- errors ---- */

static void refuse_way(const struct verbs_way *way, uint64_t patience_ns, int code, const char *says)
{
    struct peer p = {.client = 7, .life = 1};
    const struct fab_rdma_io io = {.ctx = &p, .renew = renew, .fence = fence, .lease_ns = LIMIT_NS};
    struct fab_rdma *o;
    p.refused = true;
    CHECK_RC(fab_rdma_open(way, BYTES, &io, pawl_in(patience_ns), &o), code);
    if (!strstr(explained(), says))
        CHECK_FAIL("'%s' does not say '%s'", explained(), says);
}

/* dlopen needs a descriptor. */
static void without_library(void *arg)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    (void)arg;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK(!ofi_version());
    CHECK(strstr(explained(), "apt-get install libfabric1"));
}

static int count_tcp(void *ctx, const struct ofi_provider *p)
{
    if (strstr(p->name, "tcp") && !p->missing)
        ++*(unsigned *)ctx;
    return 0;
}

static void errors(void)
{
    struct verbs_way way = {0}, other;
    const struct rdma_target_params unknown = {.provider = "no-such", .at = net_v4(RACK_LOCALHOST, 0), .clients = 1};
    struct rdma_target *t;
    unsigned count = 0;
    CHECK_RC(rdma_target_open(&unknown, &t), -ENODEV);
    CHECK(strstr(explained(), "no provider 'no-such'") && strstr(explained(), "pawl doctor"));
    CHECK_OK(rdma_target_admit(target, 7, 1, 0, &way));
    other = way;
    other.protocol_version++;
    refuse_way(&other, LIMIT_NS, -EPROTO, "the same version of libfabric");
    other = way;
    other.key ^= 1;
    refuse_way(&other, LIMIT_NS, -EACCES, "refuses this client's key");
    other = way;
    other.address[2] ^= 1; /* of the port: no process listens there */
    refuse_way(&other, 0, -EHOSTUNREACH, "link is down");
    CHECK_RC(rdma_explain_registration(-ENOMEM, "verbs", 64 << 20, 8 << 20, ""), -ENOMEM);
    CHECK(strstr(explained(), "ulimit -l unlimited") && strstr(explained(), "65536 KiB") && strstr(explained(), "8192 KiB"));
    CHECK_OK(ofi_providers(count_tcp, &count));
    CHECK(count > 0);
}

/* ---- libibverbs ---- */

/* A process may pin no more than the limit says. */
static void give_up_locking(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    CHECK_EQ(syscall(SYS_capget, &head, data), 0);
    data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    CHECK_EQ(syscall(SYS_capset, &head, data), 0);
}

static void with_low_limit(void *arg)
{
    const struct rlimit little = {.rlim_cur = 4096, .rlim_max = 4096};
    const struct rdma_target_params p = {.provider = provider, .at = net_v4(RACK_LOCALHOST, 0), .clients = 1};
    struct rdma_target *t;
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    give_up_locking();
    CHECK_OK(rdma_target_open(&p, &t));
    CHECK_RC(rdma_target_memory(t, memory, BYTES), -ENOMEM);
    if (!strstr(explained(), "64 KiB") || !strstr(explained(), "4 KiB") || !strstr(explained(), "ulimit -l unlimited"))
        CHECK_FAIL("'%s' does not say what is needed, what is allowed and how to raise it", explained());
    rdma_target_close(t);
    refuse_way(arg, LIMIT_NS, -ENOMEM, "ulimit -l unlimited"); /* a client's buffers */
}

static void verbs_errors(void)
{
    struct verbs_way way = {0}, other;
    struct rdma_target_params bad = {.provider = provider, .device = "no-such", .at = net_v4(RACK_LOCALHOST, 0), .clients = 1};
    struct rdma_target *t;
    CHECK_RC(rdma_target_open(&bad, &t), -ENODEV);
    CHECK(strstr(explained(), "no RDMA device 'no-such'") && strstr(explained(), "pawl doctor"));
    bad.device = NULL;
    bad.at.ip[15] ^= 2;
    CHECK_RC(rdma_target_open(&bad, &t), -ENODEV);
    CHECK(strstr(explained(), "has the address 127.0.0.3"));
    CHECK_OK(rdma_target_admit(target, 7, 1, 0, &way));
    other = way;
    other.protocol_version++;
    refuse_way(&other, LIMIT_NS, -EPROTO, "the same version of pawl");
    refuse_way(&way, LIMIT_NS, -FAB_EFENCED, "grants no access");
    child_join(child_start(with_low_limit, &way));
}

/* ---- the device's atomics and the CPU's ---- */

#define MIXED_NS (240 * NS_PER_S) /* for which a mistake is waited for; two processors that run at once make many in a second */
#define MIXED_BATCHES 64u         /* of additions, between two looks at their sum */
#define MIXED_BATCH 16u

/* A word that one thread changes by the device's atomics, and another by the CPU's. */
static struct {
    uint32_t inside; /* the device's holder is */
    uint32_t stop;
    uint64_t turns[2], doubles; /* of the device and the CPU; times that both were inside */
} mix;

/* A device in software executes an atomic on the processor of the thread that issues it. There no other thread runs between its
 * load and its store, so the CPU's thread has another processor. */
static void pin_to(unsigned processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
}

static void *add_by_cpu(void *arg)
{
    (void)arg;
    pin_to(1);
    for (; !__atomic_load_n(&mix.stop, __ATOMIC_ACQUIRE); mix.turns[1]++)
        __atomic_fetch_add(&memory[WORD], 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void add_by_device(struct fab_ep *ep)
{
    for (unsigned i = 0; i < MIXED_BATCHES; i++, mix.turns[0] += MIXED_BATCH) {
        struct fab_op ops[MIXED_BATCH];
        for (unsigned k = 0; k < MIXED_BATCH; k++)
            ops[k] = (struct fab_op){.verb = FAB_FAA, .width = 8, .addr = 8 * WORD, .swap = 1};
        CHECK_OK(fab_batch(ep, ops, MIXED_BATCH));
    }
}

static void *lock_by_cpu(void *arg)
{
    (void)arg;
    pin_to(1);
    while (!__atomic_load_n(&mix.stop, __ATOMIC_ACQUIRE)) {
        uint64_t free = 0;
        if (!__atomic_compare_exchange_n(&memory[WORD], &free, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            continue;
        if (__atomic_load_n(&mix.inside, __ATOMIC_SEQ_CST))
            __atomic_fetch_add(&mix.doubles, 1, __ATOMIC_SEQ_CST);
        mix.turns[1]++;
        __atomic_store_n(&memory[WORD], 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void lock_by_device(struct fab_ep *ep)
{
    uint64_t old;
    for (unsigned i = 0; i < MIXED_BATCHES * MIXED_BATCH && !__atomic_load_n(&mix.doubles, __ATOMIC_SEQ_CST); i++) {
        CHECK_OK(fab_cas64(ep, 8 * WORD, 0, 1, &old));
        if (old)
            continue;
        __atomic_store_n(&mix.inside, 1, __ATOMIC_SEQ_CST);
        CHECK_OK(fab_read64(ep, 8 * WORD, &old)); /* so long it is inside */
        __atomic_store_n(&mix.inside, 0, __ATOMIC_SEQ_CST);
        mix.turns[0]++;
        CHECK_OK(fab_write64(ep, 8 * WORD, 0));
    }
}

/* One round, from a word that is 0. */
static void mix_round(struct fab_ep *ep, void *(*by_cpu)(void *), void (*by_device)(struct fab_ep *))
{
    pthread_t thread;
    memory[WORD] = 0;
    mix.stop = 0;
    CHECK_EQ(pthread_create(&thread, NULL, by_cpu, NULL), 0);
    by_device(ep);
    __atomic_store_n(&mix.stop, 1, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* The device's atomics are not atomic with the CPU's: additions are lost, and two get a lock. So FAB_CPU_ATOMIC64 is not among the
 * capabilities, and no session changes by the CPU a word that the device changes by atomics. */
static void mixed(void)
{
    struct peer p;
    cpu_set_t before;
    uint64_t lost = 0, limit = pawl_in(MIXED_NS);
    open_peer(&p, 6, 1, 0, LIMIT_NS);
    CHECK_EQ(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
    CHECK(CPU_COUNT(&before) >= 2);
    pin_to(0);
    for (uint64_t sum = 0; !lost && pawl_now() < limit; sum = mix.turns[0] + mix.turns[1]) {
        mix_round(p.ep, add_by_cpu, add_by_device);
        lost += mix.turns[0] + mix.turns[1] - sum - memory[WORD];
    }
    printf("mixed: %" PRIu64 " additions of the device, %" PRIu64 " of the CPU: %" PRIu64 " are lost\n", mix.turns[0], mix.turns[1],
           lost);
    CHECK(lost > 0);
    mix.turns[0] = mix.turns[1] = 0;
    limit = pawl_in(MIXED_NS);
    while (!mix.doubles && pawl_now() < limit)
        mix_round(p.ep, lock_by_cpu, lock_by_device);
    printf("mixed: a lock by compare-and-swap of the device (%" PRIu64 " turns) and of the CPU (%" PRIu64 "): %" PRIu64
           " times both had it\n",
           mix.turns[0], mix.turns[1], mix.doubles);
    CHECK(mix.doubles > 0);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
    fab_rdma_close(p.o);
}

static void all_of_verbs(void)
{
    target = open_target(0);
    verbs();
    CHECK_EQ(out_of_order(0, 2, 500, 1), 0);
    CHECK_EQ(shut_out(0), 0);
    CHECK_EQ(shut_out(RDMA_MISTAKE_FENCE), 1);
    node_gone();
    verbs_errors();
    mixed();
}

static void all_of_libfabric(void)
{
    child_join(child_start(without_library, NULL)); /* before the library is loaded here */
    target = open_target(0);
    verbs();
    order();
    CHECK_EQ(old_key(0), 0);
    CHECK_EQ(old_key(RDMA_MISTAKE_KEY), 1);
    CHECK_EQ(shut_out(0), 0);
    CHECK_EQ(shut_out(RDMA_MISTAKE_FENCE), 1);
    node_gone();
    cuts();
    errors();
}

int main(void)
{
    provider = getenv("PAWL_TEST_PROVIDER");
    provider = provider ? provider : "tcp";
    over_verbs = !strcmp(provider, RDMA_VERBS);
    CHECK_EQ(posix_memalign((void **)&memory, 4096, BYTES), 0);
    memset(memory, 0, BYTES);
    if (over_verbs)
        all_of_verbs();
    else
        all_of_libfabric();
    rdma_target_close(target);
    free(memory);
    return 0;
}
