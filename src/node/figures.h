/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the parts that run in a process, for its operator. Each part (a coordinator, a lock server or switch, a memory node)
 * has a thread of its own, which counts without atomics and publishes a copy of its counters now and then. So the paths of packets
 * pay an increment. A reader of figures, which has another thread, takes the copies. */
#ifndef PAWL_NODE_FIGURES_H
#define PAWL_NODE_FIGURES_H

#include "cluster/coordinator.h"
#include "dataplane/memnode.h"
#include "node/watch.h"

#include <pthread.h>
#include <stdio.h>

#define FIGURES_NS (100 * NS_PER_MS) /* between two copies */
#define FIGURES_PARTS 512u           /* of a process: 64 spaces with a coordinator and some lock servers each */
#define FIGURES_TYPES 40u            /* of packets: netlock has the most, 37 */

/* Which part of a rack decided a grant, as its packet says. */
enum { GRANT_BY_SWITCH, GRANT_BY_SERVER, GRANT_BY_AGENT, GRANT_DECIDERS };

struct coordinator_figures {
    uint64_t leads, term, stands_by;
    uint64_t hosts, hosts_max, granters, granters_wanted;
    uint64_t keys, locks;
    uint64_t log_bytes, appended_bytes, appends_failed; /* appended: since the latest snapshot */
    uint64_t mailbox_lost, mailbox_waiting;
    struct packet_drops drops;
    struct watch_counts watch;
};

struct granter_figures {
    uint64_t is_switch, life, term, alone, superseded, joined_anew;
    uint64_t locks, memory_bytes;
    uint64_t packets, answers, unroutable, echoes;
    uint64_t bad, alien, unreadable, foreign, stale; /* dropped */
    uint64_t untagged;                               /* likewise: without the tag of their sender's key */
    uint64_t forged, unissued;                       /* likewise: in the name of another member; of a life that was not given */
    uint64_t not_admin, limited;                     /* likewise: commands without the admin key; more than a host may send */
    uint64_t in[FIGURES_TYPES], out[FIGURES_TYPES];  /* lock packets by type */
    uint64_t grants[GRANT_DECIDERS];
    uint64_t moves; /* of locks between switch and servers */
    uint8_t family;
    struct packet_figures design;
};

struct memory_figures {
    uint64_t ready, life, clients, bytes, untagged, strays;
    struct memnode_counts counts;
};

enum figures_kind { FIGURES_COORDINATOR, FIGURES_GRANTER, FIGURES_MEMORY };

struct figures_part {
    enum figures_kind kind;
    bool ready; /* it does its work */
    char space[COORD_NAME_LEN];
    char design[COORD_NAME_LEN];
    struct net_addr at;
    union {
        struct coordinator_figures coordinator;
        struct granter_figures granter;
        struct memory_figures memory;
    };
};

/* The place from which readers take the copy of a part. */
struct figures_board {
    pthread_mutex_t mutex;
    uint64_t due_ns;
    uint64_t published_ns; /* CLOCK_MONOTONIC */
    struct figures_part part;
    bool shown;
};

/* From then on the part belongs to the figures of the process; until then not any more. */
void figures_show(struct figures_board *b);
void figures_hide(struct figures_board *b);

/* Whether a copy is due. Then the caller fills `part` of its own, and publishes it. */
static inline bool figures_due(struct figures_board *b, uint64_t now)
{
    if (likely(now < b->due_ns))
        return false;
    b->due_ns = now + FIGURES_NS;
    return true;
}
void figures_publish(struct figures_board *b, const struct figures_part *part);

/* Copies of all parts. How many; the caller frees *out. */
unsigned figures_collect(struct figures_part **out);

/* Whether all parts have published a copy within that time: the threads go on. */
bool figures_live(uint64_t within_ns);

/* The process has said that it is ready; whether all its parts are. */
void figures_set_ready(void);
bool figures_ready(void);

/* The type of a lock packet by which a lock is granted, of a family; 0: there is none. */
uint8_t figures_grant_type(uint8_t family);

/* In the text format of Prometheus. */
void figures_write(FILE *out);

#endif
