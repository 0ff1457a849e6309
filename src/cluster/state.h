/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Durable state of a space: identity and configuration, names, rules, places of lock servers and switches, and
 * counters. All of it is in one log (store.h), as records; a coordinator that restarts reads them.
 *
 *   CONFIG    the space's configuration with its version. Hosts, servers and switches of another one are not taken for ours.
 *   LIVES     lives up to this one may have been given. They are reserved ahead, so that giving one costs no write, and a coordinator
 *             that restarts begins above all of them, whatever its clock says (I15).
 *   LEASE     the longest lock lease that a host may still have
 *   HOSTS     the longest membership lease that a host may still have, and the version of the configuration before which no host is
 *             left
 *   HOST      a host's number and life, written before the host is welcome; life 0: the number is free. A coordinator that restarts
 *             takes the hosts in its log for live until they leave or their leases have ended (I16).
 *   NAME      a key with its index and generation; written before a client hears of them (I7)
 *   GONE      the key that has this index and generation is retired; written before the index is used again
 *   VALUE     a value beside a lock; written before its holder hears that it is set (I26)
 *   RULES     which switch has which locks; written before a switch hears of it
 *   STATION   which lock server or switch has a place, and its life; written before it is welcome there (I17)
 *
 * No record is needed by another to be understood, but for CONFIG, which comes first. If a later one has more locks, the space has
 * grown, and the sizes before say which index a key has; a snapshot has a CONFIG of each size. */
/* clang-format on */
#ifndef PAWL_CLUSTER_STATE_H
#define PAWL_CLUSTER_STATE_H

#include "cluster/directory.h"
#include "cluster/rules.h"
#include "cluster/store_etcd.h"
#include "cluster/values.h"
#include "wire/udp.h"

#define STATE_DESIGN_LEN 32

enum state_record {
    STATE_CONFIG = 1,
    STATE_LIVES,
    STATE_LEASE,
    STATE_NAME,
    STATE_RULES,
    STATE_STATION,
    STATE_HOSTS,
    STATE_HOST,
    STATE_GONE = 16,
    STATE_VALUE,
};

struct state_config {
    char design[STATE_DESIGN_LEN];
    struct rack_config config;
};

/* NAME and GONE. The bytes of the key follow in NAME. */
struct state_key {
    uint64_t index;
    uint32_t generation;
    uint32_t zero;
};
#define STATE_KEY_MAX (sizeof(struct state_key) + DIRECTORY_KEY_MAX)

/* VALUE. The bytes follow. */
struct state_value {
    uint64_t index, token, step;
    uint32_t generation;
    uint32_t zero;
};
#define STATE_VALUE_MAX (sizeof(struct state_value) + PAWL_VALUE_MAX)

struct state_station {
    struct net_addr at; /* unknown: no member ever had the place */
    uint32_t life;
    uint16_t place;  /* of a switch: its number; of a lock server: its number, and */
    uint16_t serves; /* 1 */
};

#define STATE_HOSTS_MAX 4096u /* numbers of hosts */

struct state_hosts {
    uint64_t member_ns; /* the longest membership lease that a host may still have */
    uint32_t settled;   /* hosts of configurations before this version are gone; 0: hosts are not in the log */
    uint32_t pad;
};

struct state_host {
    uint32_t life;
    uint16_t number;
    uint16_t pad;
};

struct rack_state {
    struct state_config config;
    uint32_t lives;    /* that may have been given: up to this one */
    uint64_t lease_ns; /* the longest lock lease that a host may still have */
    struct state_hosts hosts;
    uint32_t host[STATE_HOSTS_MAX + 1]; /* lives of hosts, by number; 0: the number is free, and no lock names it */
    struct rules rules;
    struct state_station server[RACK_SERVERS_MAX], switch_[RACKS_MAX];
    struct directory directory; /* if keys are not dense */
    struct values values;
};

/* Where the state is. */
struct state_params {
    struct store_etcd *etcd; /* in etcd, whose leader the caller is; null: in a file */
    struct disk *disk;
    const char *path; /* of the file; null, with no etcd: the state ends with the process, which is for tests */
    enum store_how how;
    uint64_t id[2]; /* STORE_FRESH: random */
    uint32_t life;  /* STORE_FRESH: the first life. Nothing relies on it; it keeps tokens above those of a former space. */
};

static inline bool state_has_names(const struct rack_config *c)
{
    return c->keys == PAWL_KEYS_NAMED || c->keys == PAWL_KEYS_SPARSE;
}

/* The record of a key in `out`, and its length. */
uint16_t state_name(const struct directory *d, uint64_t cell, bool gone, uint8_t out[STATE_KEY_MAX]);

/* The same of a value. */
uint16_t state_value(const struct value *v, uint8_t out[STATE_VALUE_MAX]);

/* Takes a record of the log: for store_file_open. -EINVAL: it cannot be. */
int state_take(void *state, const struct store_record *r);

/* Hands out records that mean this state: a snapshot. Names that are not in the log yet are left out. */
int state_each(void *state, store_take take, void *to);

void state_free(struct rack_state *s);

#endif
