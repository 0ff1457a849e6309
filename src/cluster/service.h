/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator with its log: packets in, answers out when what they tell is on the disk. No socket and no clock: a process over
 * UDP (node/coordinating.c) and the simulated rack drive the same functions. A caller takes some packets, then commits once for all
 * of them, then sends the answers. */
#ifndef PAWL_CLUSTER_SERVICE_H
#define PAWL_CLUSTER_SERVICE_H

#include "cluster/coordinator.h"

struct service_answer {
    struct net_addr to;
    struct seal_key key; /* by which it is tagged; the caller's */
    uint32_t len;
    bool unwritten; /* it tells of something that is not in the log yet */
    _Alignas(8) uint8_t bytes[PACKET_MAX];
};

#define SERVICE_RECORDS 512u /* of one append */

/* Records of one append. What they point to stays until then; keys are in `bytes`. */
struct service_batch {
    struct store_record record[SERVICE_RECORDS];
    unsigned count;
    uint32_t used, bytes_used;
    uint8_t bytes[STORE_APPEND_MAX];
};

struct service {
    struct coordinator coordinator;
    struct coord_member *members;
    struct rack_state state;
    struct store_file file;
    struct store_etcd *etcd; /* the caller's; null: the state is in the file */
    struct store *store;     /* null: the state is in memory alone */
    uint32_t first_life;     /* of this coordinator: its steward's terms begin with it, too */
    uint64_t failed;         /* appends that failed */
    struct service *before;  /* of a former space, while its lives are read */
    struct {
        void *memory; /* null: the design has none */
        struct outbox *out;
        bool runs;  /* it begins when members of a former configuration are gone */
        bool fresh; /* the space began when this service was opened: nothing was assigned before */
    } steward;
    struct service_batch batch;
};

/* Reads the state, or makes it, and starts the coordinator. 0, or a negative code, explained. The configuration that `p` asks for
 * may differ from the one in the log in leases and numbers: then it has a higher version, and members of the old one are refused.
 */
int service_open(struct service *s, const struct coord_params *p, const struct state_params *where, uint64_t now);
void service_close(struct service *s);

/* Reads the settings of a space from the file with its state; its id is in settings->config.identity. 0; -ENOENT: there is no file;
 * or another negative code. All are explained. */
int service_settings(struct disk *disk, const char *path, const char *space, struct state_config *settings);
/* The same of a state in etcd, whose leader_open was called. */
int service_settings_etcd(struct store_etcd *store, const char *space, struct state_config *settings);

/* Parameters that ask for those settings: of the same design, options and numbers. `settings` stays. */
int service_params(const struct state_config *settings, struct coord_params *out);

/* Whether a coordinator that stands by could take over with these parameters: the log can be read, and is of that space. While one
 * leads, the configuration must be the same. */
int service_peek(const struct coord_params *p, const struct state_params *where);

/* Takes a packet. Whether there is an answer. */
bool service_packet(struct service *s, const void *data, uint32_t len, struct net_addr from, uint64_t now,
                    struct service_answer *out);

/* Writes what is not in the log yet, and drops those answers that must not be sent since it could not be written. How many are
 * left. With no answers it is for what time alone asks for: call it now and then. A coordinator that leads no more has none left
 * (I22). */
unsigned service_commit(struct service *s, struct service_answer *answers, unsigned count, uint64_t now);

/* Whether the coordinator may answer: it is the only one, or its lease as the leader has not ended. Renews the lease if that is
 * due. */
bool service_leads(struct service *s);

/* ---- the steward, which some designs have (service_steward.c) ---- */

/* For service_open and service_close. */
int service_steward_open(struct service *s, bool fresh);
void service_steward_close(struct service *s);

/* Whether a packet is for the steward, and not for service_packet. */
bool service_is_for_steward(const struct service *s, const void *data, uint32_t len);
/* Takes a packet for the steward. The packets that it returns go to the sender; they are there until the next call. */
const struct outbox *service_steward_packet(struct service *s, const void *data, uint32_t len, uint64_t now);
/* Call it now and then. */
void service_steward_tick(struct service *s, uint64_t now);

#endif
