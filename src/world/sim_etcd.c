/* SPDX-License-Identifier: Apache-2.0 */
#include "world/sim_etcd.h"
#include "lib/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED_ETCD UINT64_C(0x45544344)

/* A transaction or a read, with copies of all that it needs: its client may have ended when it arrives. */
struct sim_etcd_request {
    struct sim_etcd_request *next;
    struct sim_etcd *server;
    bool reads, arrived, abandoned; /* abandoned: the client waits no more */
    bool answered;                  /* the answer is not lost */
    struct etcd_transaction t;
    char keys[ETCD_COMPARES_MAX + 2 * ETCD_CHANGES_MAX][ETCD_KEY_LEN]; /* for a read: the first two */
    uint8_t *values[ETCD_CHANGES_MAX];
    unsigned limit;
    struct sim_etcd_pair *found; /* copies */
    unsigned count;
    int rc;
    uint64_t revision;
    struct sim_ticket waiter;
};

static struct sim_etcd_client *client_of(struct etcd *e)
{
    return container_of(e, struct sim_etcd_client, etcd);
}

static uint8_t *copy_of(const void *data, uint32_t len)
{
    uint8_t *out = malloc(len ? len : 1);
    assert(out);
    if (len)
        memcpy(out, data, len);
    return out;
}

/* ---- pairs ---- */

/* The first that is not below the key. */
static unsigned place_of(const struct sim_etcd *s, const char *key)
{
    unsigned low = 0, high = s->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (strcmp(s->pairs[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_etcd_pair *sim_etcd_find(struct sim_etcd *s, const char *key)
{
    unsigned i = place_of(s, key);
    return i < s->count && !strcmp(s->pairs[i].key, key) ? &s->pairs[i] : NULL;
}

void sim_etcd_remove(struct sim_etcd *s, struct sim_etcd_pair *p)
{
    unsigned i = (unsigned)(p - s->pairs);
    free(p->value);
    memmove(p, p + 1, (--s->count - i) * sizeof *p);
}

static void put(struct sim_etcd *s, const struct etcd_change *c)
{
    unsigned i = place_of(s, c->key);
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->pairs = realloc(s->pairs, s->room * sizeof *s->pairs);
        assert(s->pairs);
    }
    struct sim_etcd_pair *p = &s->pairs[i];
    if (i == s->count || strcmp(p->key, c->key) != 0) {
        memmove(p + 1, p, (s->count++ - i) * sizeof *p);
        *p = (struct sim_etcd_pair){.key = ""};
        snprintf(p->key, sizeof p->key, "%s", c->key);
    }
    free(p->value);
    p->value = copy_of(c->value, c->len);
    p->len = c->len;
    p->revision = s->revision;
}

/* ---- execution ---- */

static void execute_transaction(struct sim_etcd *s, struct sim_etcd_request *r)
{
    for (unsigned i = 0; i < r->t.compares; i++) {
        const struct sim_etcd_pair *p = sim_etcd_find(s, r->t.compare[i].key);
        if ((p ? p->revision : 0) != r->t.compare[i].revision) {
            s->refused++;
            r->rc = -ESTALE;
            return;
        }
    }
    if (s->full) {
        r->rc = -ENOSPC;
        return;
    }
    s->commits++;
    s->revision++;
    for (unsigned i = 0; i < r->t.changes; i++) {
        const struct etcd_change *c = &r->t.change[i];
        if (!c->end)
            put(s, c);
        for (unsigned at = c->end ? place_of(s, c->key) : s->count; at < s->count && strcmp(s->pairs[at].key, c->end) < 0;)
            sim_etcd_remove(s, &s->pairs[at]);
    }
    r->revision = s->revision;
}

static void execute_read(struct sim_etcd *s, struct sim_etcd_request *r)
{
    for (unsigned at = place_of(s, r->keys[0]); at < s->count && strcmp(s->pairs[at].key, r->keys[1]) < 0 && r->count < r->limit;
         at++) {
        r->found = realloc(r->found, (r->count + 1) * sizeof *r->found);
        assert(r->found);
        r->found[r->count] = s->pairs[at];
        r->found[r->count++].value = copy_of(s->pairs[at].value, s->pairs[at].len);
    }
}

static void forget(struct sim_etcd *s, struct sim_etcd_request *r)
{
    struct sim_etcd_request **at = &s->requests;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    for (unsigned i = 0; i < ETCD_CHANGES_MAX; i++)
        free(r->values[i]);
    for (unsigned i = 0; i < r->count; i++)
        free(r->found[i].value);
    free(r->found);
    free(r);
}

static void arrive(void *arg, uint64_t travel_ns)
{
    struct sim_etcd_request *r = arg;
    struct sim_etcd *s = r->server;
    r->arrived = true;
    s->late += r->abandoned && !r->reads;
    if (r->reads)
        execute_read(s, r);
    else
        execute_transaction(s, r);
    if (s->sim)
        sim_note(s->sim, r->reads ? "ETCD READ" : "ETCD TXN", 0, s->revision, (uint64_t)-r->rc);
    if (r->abandoned)
        forget(s, r);
    else if (s->sim && r->answered && r->waiter.task)
        sim_ticket_wake_at(r->waiter, sim_now(s->sim) + travel_ns);
}

void sim_etcd_arrive(struct sim_etcd *s)
{
    for (struct sim_etcd_request *r = s->requests, *next; r; r = next) {
        next = r->next;
        if (!r->arrived)
            arrive(r, 0);
    }
}

/* ---- requests ---- */

static struct sim_etcd_request *request_new(struct sim_etcd *s)
{
    struct sim_etcd_request *r = calloc(1, sizeof *r);
    assert(r);
    r->server = s;
    r->next = s->requests;
    s->requests = r;
    return r;
}

static const char *keep_key(struct sim_etcd_request *r, unsigned *used, const char *key)
{
    if (!key)
        return NULL;
    snprintf(r->keys[*used], ETCD_KEY_LEN, "%s", key);
    return r->keys[(*used)++];
}

static struct sim_etcd_request *transaction_new(struct sim_etcd *s, const struct etcd_transaction *t)
{
    struct sim_etcd_request *r = request_new(s);
    unsigned used = 0;
    r->t = *t;
    for (unsigned i = 0; i < t->compares; i++)
        r->t.compare[i].key = keep_key(r, &used, t->compare[i].key);
    for (unsigned i = 0; i < t->changes; i++) {
        struct etcd_change *c = &r->t.change[i];
        c->key = keep_key(r, &used, c->key);
        c->end = keep_key(r, &used, c->end);
        c->value = r->values[i] = copy_of(c->value, c->end ? 0 : c->len);
    }
    return r;
}

static enum sim_etcd_fate fate_of(struct sim_etcd_client *c)
{
    struct sim_etcd *s = c->server;
    if (!c->host)
        return c->fate < c->fate_count ? c->fates[c->fate++] : SIM_ETCD_ANSWERED;
    if (sim_now(s->sim) >= s->calm_ns)
        return SIM_ETCD_ANSWERED;
    if (c->cut_until_ns > sim_now(s->sim))
        return SIM_ETCD_LOST;
    if (!s->lossy || !rng_chance(&s->random, 1, s->lossy))
        return SIM_ETCD_ANSWERED;
    return (enum sim_etcd_fate)(1 + rng_below(&s->random, SIM_ETCD_FATES - 1));
}

/* Sends a request and waits for its answer. The request, which the caller forgets; null: no answer came. */
static struct sim_etcd_request *send_request(struct sim_etcd_client *c, struct sim_etcd_request *r, uint64_t deadline)
{
    struct sim_etcd *s = c->server;
    enum sim_etcd_fate fate = fate_of(c);
    r->answered = fate == SIM_ETCD_ANSWERED;
    if (!s->sim) {
        r->abandoned = fate != SIM_ETCD_ANSWERED;
        if (fate == SIM_ETCD_LOST)
            forget(s, r);
        else if (fate != SIM_ETCD_LATE)
            arrive(r, 0); /* which forgets it, if its answer is lost */
        return fate == SIM_ETCD_ANSWERED ? r : NULL;
    }
    uint64_t travel = 1 + rng_below(&s->random, s->travel_ns), back = 1 + rng_below(&s->random, s->travel_ns);
    uint64_t until = sim_host_clock_inverse(c->host, deadline);
    if (fate == SIM_ETCD_LATE)
        travel += rng_below(&s->random, s->late_ns);
    if (fate != SIM_ETCD_LOST)
        sim_at(s->sim, sim_now(s->sim) + travel, arrive, r, back);
    r->waiter = sim_ticket_take(sim_current(s->sim));
    int rc = sim_task_wait(sim_current(s->sim), until);
    r->waiter.task = NULL;
    if (!rc && r->arrived && r->answered)
        return r;
    if (r->arrived || fate == SIM_ETCD_LOST)
        forget(s, r);
    else
        r->abandoned = true;
    return NULL;
}

static int no_answer(void)
{
    return explain(-ETIMEDOUT, "etcd does not answer");
}

/* ---- the interface ---- */

static uint64_t etcd_now(struct etcd *e)
{
    const struct sim_etcd_client *c = client_of(e);
    return c->host ? sim_host_clock(c->host, sim_now(c->server->sim)) : c->now_ns;
}

static int etcd_check(struct etcd *e, uint64_t deadline, uint64_t *cluster)
{
    (void)deadline;
    *cluster = client_of(e)->server->cluster;
    return 0;
}

static int etcd_commit(struct etcd *e, const struct etcd_transaction *t, uint64_t deadline, uint64_t *revision)
{
    struct sim_etcd_client *c = client_of(e);
    struct sim_etcd_request *r = send_request(c, transaction_new(c->server, t), deadline);
    if (!r)
        return no_answer();
    int rc = r->rc;
    *revision = r->revision;
    forget(c->server, r);
    return rc == -ENOSPC ? explain(rc, "etcd: mvcc: database space exceeded") : rc;
}

static int etcd_read(struct etcd *e, const char *key, const char *end, unsigned limit, uint64_t deadline, etcd_take take, void *ctx)
{
    struct sim_etcd_client *c = client_of(e);
    struct sim_etcd_request *r = request_new(c->server);
    unsigned used = 0;
    int rc = 0;
    r->reads = true;
    r->limit = limit;
    keep_key(r, &used, key);
    keep_key(r, &used, end);
    r = send_request(c, r, deadline);
    if (!r)
        return no_answer();
    for (unsigned i = 0; i < r->count && !rc; i++) {
        const struct etcd_pair p = {
            .key = r->found[i].key, .value = r->found[i].value, .len = r->found[i].len, .revision = r->found[i].revision};
        rc = take(ctx, &p);
    }
    forget(c->server, r);
    return rc;
}

static int etcd_compact(struct etcd *e, uint64_t revision, uint64_t deadline)
{
    (void)deadline;
    client_of(e)->server->compacted = revision;
    return 0;
}

static void etcd_pause(struct etcd *e, uint64_t ns)
{
    struct sim_etcd_client *c = client_of(e);
    if (c->host)
        sim_task_wait(sim_current(c->server->sim), sim_now(c->server->sim) + ns);
    else
        c->now_ns += ns;
}

static const struct etcd_ops ops = {
    .now = etcd_now, .check = etcd_check, .commit = etcd_commit, .read = etcd_read, .compact = etcd_compact, .pause = etcd_pause};

/* ---- the beginning and the end ---- */

void sim_etcd_init(struct sim_etcd *s, struct sim *sim, uint64_t seed)
{
    *s = (struct sim_etcd){.sim = sim, .cluster = 1};
    rng_seed(&s->random, seed ^ SEED_ETCD);
}

void sim_etcd_free(struct sim_etcd *s)
{
    while (s->requests)
        forget(s, s->requests);
    while (s->count)
        sim_etcd_remove(s, &s->pairs[s->count - 1]);
    free(s->pairs);
    s->pairs = NULL;
    s->room = 0;
}

void sim_etcd_client_init(struct sim_etcd_client *c, struct sim_etcd *s, const struct sim_host *host)
{
    *c = (struct sim_etcd_client){.etcd.ops = &ops, .server = s, .host = host, .now_ns = NS_PER_S};
}
