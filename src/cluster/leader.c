/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/leader.h"
#include "cluster/mistakes.h"
#include "cluster/store_file.h"
#include "lib/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC UINT64_C(0x31306d72746c7770) /* "pwltrm01" */
#define KEYS_READ 8u                       /* four are there */
#define ATTEMPTS 4u                        /* in a lease, of one change */
#define PAUSE_SHARE 50u                    /* of a lease: between two attempts */

static const struct etcd_ops *ops_of(const struct leader *l)
{
    return l->etcd->ops;
}

static uint64_t now_of(const struct leader *l)
{
    return ops_of(l)->now(l->etcd);
}

static void key_of(const struct leader *l, const char *name, char out[ETCD_KEY_LEN])
{
    snprintf(out, ETCD_KEY_LEN, "%slead/%s", l->prefix, name);
}

/* ---- opening ---- */

int leader_open(struct leader *l, const struct leader_params *p)
{
    memset(l, 0, sizeof *l);
    l->etcd = p->etcd;
    l->lease_ns = p->lease_ns;
    l->nonce = p->nonce;
    l->at = p->at;
    l->mistakes = p->mistakes;
    snprintf(l->place, sizeof l->place, "%s", p->place);
    if (snprintf(l->prefix, sizeof l->prefix, "%s%s%s/", p->prefix, *p->prefix ? "/" : "", p->space) >= (int)sizeof l->prefix)
        return explain(-ENAMETOOLONG, "%s: the prefix and the name of the space have more than %zu bytes", p->place,
                       sizeof l->prefix - 2);
    return ops_of(l)->check(l->etcd, now_of(l) + p->lease_ns, &l->cluster);
}

/* ---- looking ---- */

struct look {
    const struct leader *l;
    struct leader_seen seen;
    etcd_take log;
    void *ctx;
};

static void take_term(struct look *k, const struct etcd_pair *p)
{
    struct leader_term *t = &k->seen.term;
    k->seen.term_revision = p->revision;
    k->seen.damaged = p->len != sizeof *t;
    if (k->seen.damaged)
        return;
    memcpy(t, p->value, sizeof *t);
    k->seen.damaged = t->magic != MAGIC;
    k->seen.version = t->version != STORE_VERSION ? t->version : 0;
}

static int take_key(void *ctx, const struct etcd_pair *p)
{
    struct look *k = ctx;
    const char *name = p->key + strlen(k->l->prefix) + strlen("lead/");
    if (!strcmp(name, "term")) {
        take_term(k, p);
    } else if (!strcmp(name, "beat")) {
        k->seen.beat_revision = p->revision;
    } else {
        if (!strcmp(name, "head"))
            k->seen.head_revision = p->revision;
        return k->log ? k->log(k->ctx, p) : 0;
    }
    return 0;
}

int leader_look(struct leader *l, uint64_t deadline, etcd_take log, void *ctx)
{
    struct look k = {.l = l, .log = log, .ctx = ctx};
    char from[ETCD_KEY_LEN], end[ETCD_KEY_LEN];
    key_of(l, "", from);
    snprintf(end, sizeof end, "%slead0", l->prefix); /* '0' follows '/' */
    int rc = ops_of(l)->read(l->etcd, from, end, KEYS_READ, deadline, take_key, &k);
    if (rc)
        return rc;
    if (k.seen.damaged)
        return explain(-EBADMSG, "%s: the key %sterm is not one of pawl's", l->place, from);
    if (k.seen.version)
        return explain(-EPROTO, "%s: has version %u of the format (key %sterm), and this is a pawl for version %u", l->place,
                       k.seen.version, from, STORE_VERSION);
    if (!l->seen_ns || k.seen.term_revision != l->seen.term_revision || k.seen.beat_revision != l->seen.beat_revision)
        l->seen_ns = now_of(l); /* after it was read: the leader's lease began before */
    l->seen = k.seen;
    return 0;
}

bool leader_is_vacant(const struct leader *l)
{
    uint64_t lease = l->seen.term.lease_ns;
    if (!l->seen_ns)
        return false;
    return !l->seen.term_revision || now_of(l) - l->seen_ns >= lease + 2 * (lease / LEADER_DRIFT_DIVISOR) + (lease != 0);
}

/* ---- the lease ---- */

static void extend(struct leader *l, uint64_t from)
{
    uint64_t until = from + l->lease_ns - 2 * (l->lease_ns / LEADER_DRIFT_DIVISOR) - 1;
    assert(until < from + l->lease_ns); /* I22: by any clock it ends before another coordinator may take over */
    l->until_ns = max_u64(l->until_ns, until);
    l->renew_ns = max_u64(l->renew_ns, from + l->lease_ns / LEADER_RENEWALS);
}

bool leader_leads(const struct leader *l)
{
    if (l->term && MISTAKE(l->mistakes, COORD_MISTAKE_DEPOSED))
        return true;
    return l->term && now_of(l) < l->until_ns;
}

static int end_term(struct leader *l, const char *why)
{
    l->term = 0;
    return explain(-ESTALE, "%s: this coordinator leads no more: %s", l->place, why);
}

static uint64_t attempt_until(const struct leader *l, uint64_t last)
{
    return min_u64(last, now_of(l) + l->lease_ns / ATTEMPTS);
}

/* ---- taking over ---- */

/* One transaction; if its outcome is unknown, the keys say whether it was made. */
int leader_take(struct leader *l)
{
    char term[ETCD_KEY_LEN], beat[ETCD_KEY_LEN];
    uint64_t before = now_of(l), revision = 0;
    assert(!leader_leads(l) || MISTAKES(l->mistakes)); /* I22: what it led is over */
    struct leader_term next = {.magic = MAGIC,
                               .version = STORE_VERSION,
                               .number = l->seen.term.number + 1,
                               .lease_ns = l->lease_ns,
                               .nonce = l->nonce,
                               .at = l->at};
    key_of(l, "term", term);
    key_of(l, "beat", beat);
    const struct etcd_transaction t = {
        .compare = {{.key = term, .revision = l->seen.term_revision}, {.key = beat, .revision = l->seen.beat_revision}},
        .compares = 2,
        .change = {{.key = term, .value = &next, .len = sizeof next},
                   {.key = beat, .value = &next.number, .len = sizeof next.number}},
        .changes = 2,
    };
    int rc = ops_of(l)->commit(l->etcd, &t, attempt_until(l, UINT64_MAX), &revision);
    l->nonce++; /* a late request of this one is not taken for a later one */
    if (rc && rc != -ESTALE) {
        rc = leader_look(l, attempt_until(l, UINT64_MAX), NULL, NULL);
        if (!rc && (l->seen.term.nonce != next.nonce || l->seen.term.number != next.number))
            rc = -ESTALE;
        revision = l->seen.term_revision;
    }
    if (rc)
        return rc == -ESTALE ? explain(-EBUSY, "%s: another coordinator took over", l->place) : rc;
    l->until_ns = l->renew_ns = 0;
    extend(l, before);
    l->term = revision;
    l->number = next.number;
    return leader_leads(l) ? 0 : end_term(l, "taking over took longer than its lease");
}

/* ---- changes ---- */

/* After a comparison that failed, though an earlier attempt may have been made: whether the term is still this one. */
static int find_out(struct leader *l)
{
    int rc = leader_look(l, attempt_until(l, l->until_ns), NULL, NULL);
    if (rc)
        return rc;
    return l->seen.term_revision == l->term ? 0 : -ESTALE;
}

int leader_commit(struct leader *l, const struct etcd_transaction *changes)
{
    char term[ETCD_KEY_LEN], beat[ETCD_KEY_LEN];
    struct etcd_transaction t = *changes;
    uint64_t first = now_of(l), revision;
    bool unknown = false;
    key_of(l, "term", term);
    key_of(l, "beat", beat);
    assert(t.compares < ETCD_COMPARES_MAX && t.changes < ETCD_CHANGES_MAX);
    t.compare[t.compares++] = (struct etcd_compare){.key = term, .revision = l->term};
    t.change[t.changes++] = (struct etcd_change){.key = beat, .value = &first, .len = sizeof first};
    while (leader_leads(l)) {
        uint64_t before = now_of(l);
        if (MISTAKE(l->mistakes, COORD_MISTAKE_DEPOSED))
            l->until_ns = before + l->lease_ns;
        int rc = ops_of(l)->commit(l->etcd, &t, attempt_until(l, l->until_ns), &revision);
        if (rc == -ESTALE && unknown) {
            rc = find_out(l);
            before = first;
        }
        if (!rc) {
            assert(l->term == t.compare[t.compares - 1].revision); /* I22: committed under its term */
            extend(l, before);
            return 0;
        }
        if (rc == -ESTALE && MISTAKE(l->mistakes, COORD_MISTAKE_DEPOSED))
            return 0;
        if (rc == -ESTALE)
            return end_term(l, "another one took over");
        if (rc == -ENOSPC && !unknown)
            return rc;
        if (MISTAKE(l->mistakes, COORD_MISTAKE_GUESS))
            return rc;
        unknown = true;
        ops_of(l)->pause(l->etcd, l->lease_ns / PAUSE_SHARE);
    }
    return end_term(l, unknown ? "etcd did not answer in time" : "its lease has ended");
}

bool leader_renew(struct leader *l)
{
    static const struct etcd_transaction nothing;
    if (leader_leads(l) && now_of(l) >= l->renew_ns)
        leader_commit(l, &nothing);
    if (l->term && !leader_leads(l))
        end_term(l, "its lease has ended");
    return l->term;
}

void leader_resign(struct leader *l)
{
    char term[ETCD_KEY_LEN];
    const struct leader_term none = {.magic = MAGIC, .version = STORE_VERSION, .number = l->number};
    uint64_t revision;
    key_of(l, "term", term);
    const struct etcd_transaction t = {
        .compare = {{.key = term, .revision = l->term}},
        .compares = 1,
        .change = {{.key = term, .value = &none, .len = sizeof none}},
        .changes = 1,
    };
    if (l->term)
        ops_of(l)->commit(l->etcd, &t, attempt_until(l, UINT64_MAX), &revision); /* if it fails, the lease ends */
    l->term = 0;
}
