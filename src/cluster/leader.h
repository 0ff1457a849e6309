/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Which of several coordinators leads: keys in etcd, under PREFIX/SPACE/lead/.
 *
 *   term   the leader's term, its lease, its address. Its revision changes when another coordinator takes over, and then only.
 *   beat   changes with every renewal
 *   head, last   of the log (store_etcd.c)
 *
 * A coordinator that stands by reads them again and again. When `term` and `beat` have not changed for the lease in `term`, it takes
 * over: one transaction, which fails if either has changed since.
 *
 * - *No change of a deposed leader is made.* Every change compares the revision of `term` with the one by which its leader took over.
 *   This does not depend on clocks.
 * - *A deposed leader is silent.* Its lease counts from before it sent the renewal. A stand-by counts from after it read that
 *   renewal's revision. Clocks that differ by less than COORD_DRIFT in speed make the first end before the second. Packets that the
 *   leader sent before its lease ended may be late; members drop them by their term (coordinator.h).
 * - *An unknown outcome is found out, or the term ends.* A change without an answer is sent again, as it was, until the answer comes
 *   or the lease ends. Then the coordinator stands by, and the next leader reads what was committed. A late request of the old term
 *   is refused by its comparison.
 *
 * Free of I/O but for the calls of world/etcd.h. */
/* clang-format on */
#ifndef PAWL_CLUSTER_LEADER_H
#define PAWL_CLUSTER_LEADER_H

#include "wire/udp.h"
#include "world/etcd.h"

#define LEADER_DRIFT_DIVISOR 10000u /* clocks differ by less than this share, as everywhere (COORD_DRIFT_DIVISOR) */
#define LEADER_RENEWALS 4u          /* in a lease: three may be lost */
#define LEADER_PLACE_LEN 512u

/* The value of `term`. */
struct leader_term {
    uint64_t magic;
    uint32_t version, pad;
    uint64_t number;   /* rises by one with every leader */
    uint64_t lease_ns; /* 0: the leader has resigned */
    uint64_t nonce;    /* of the process that leads */
    struct net_addr at;
};
_Static_assert(sizeof(struct leader_term) == 64, "no padding");

struct leader_params {
    struct etcd *etcd;
    const char *prefix; /* without a slash at its end */
    const char *space;
    const char *place; /* for messages: how an operator names the store */
    uint64_t lease_ns;
    uint64_t nonce;     /* random, not 0 */
    struct net_addr at; /* where clients reach this coordinator; none: they find out by trying */
    uint64_t mistakes;
};

struct leader {
    struct etcd *etcd;
    char prefix[ETCD_KEY_LEN - 48]; /* of all keys of the space, with a slash at its end */
    char place[LEADER_PLACE_LEN];
    uint64_t lease_ns, nonce, mistakes;
    struct net_addr at;
    uint64_t cluster; /* etcd's id */
    /* As it was read last: */
    struct leader_seen {
        struct leader_term term;
        uint64_t term_revision, beat_revision, head_revision; /* 0: the key is missing */
        bool damaged;                                         /* `term` cannot be read */
        uint32_t version;                                     /* of the format, if it is another one */
    } seen;
    uint64_t seen_ns; /* since when it is so, by the clock after it was read first */
    /* While it leads: */
    uint64_t term;     /* the revision of `term`; 0: it does not lead */
    uint64_t number;   /* of the term */
    uint64_t until_ns; /* its lease */
    uint64_t renew_ns; /* when the next renewal is due */
};

/* Finds etcd, of a version that can be used. 0, or a negative code, explained. Nothing is changed. */
int leader_open(struct leader *l, const struct leader_params *p);

/* Reads which coordinator leads; `log` takes the keys that are about the log, as far as they are there (null: of no interest). */
int leader_look(struct leader *l, uint64_t deadline, etcd_take log, void *ctx);

/* Whether the coordinator that was seen last leads no more: it has been silent for its lease, has resigned, or there was none. */
bool leader_is_vacant(const struct leader *l);

/* Takes over. 0: this coordinator leads; -EBUSY: another one does, or may; or no answer came. */
int leader_take(struct leader *l);

bool leader_leads(const struct leader *l); /* by its lease, now */

/* Renews the lease if that is due. False: it leads no more. */
bool leader_renew(struct leader *l);

/* Makes these changes under the leader's term: adds the comparison of the term, and a renewal of the lease. 0; -ENOSPC: refused,
 * and nothing is changed; -ESTALE: this coordinator leads no more, and the changes were made or not. The other comparison, if there
 * is one, must be of a key that only the leader changes, and that the transaction changes: it tells a repetition apart. */
int leader_commit(struct leader *l, const struct etcd_transaction *changes);

/* Lets another one take over at once. */
void leader_resign(struct leader *l);

#endif
