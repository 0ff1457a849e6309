/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a campaign's clients: inside of the files campaign*.c. */
#ifndef PAWL_WORKBENCH_TRIAL_CAMPAIGN_OPS_H
#define PAWL_WORKBENCH_TRIAL_CAMPAIGN_OPS_H

#include "lib/rng.h"
#include "workbench/trial/campaign.h"
#include "workbench/trial/cluster.h"
#include "workbench/trial/rack.h"

#define CAMPAIGN_CLIENTS_MAX 16
#define CAMPAIGN_LOCKS_MAX 200

/* Of each lock: what its data server keeps, and under which tokens it was written and read last. */
struct campaign_data {
    uint64_t value, written, read;
    uint64_t generation; /* of the index: another one is of another name */
};
#define CAMPAIGN_ORDERS_MAX 65536u /* more than all clients of a run give */

/* Campaign 3: the lock that a task asks for, or has asked for last, and since when (0: for none). */
struct campaign_ask {
    bool asks;
    uint64_t lock, since_ns;
};
/* The value beside a lock: which holders must see, which were set. Values are numbered in the order in which sets begin; those of
 * one hold are set one after the other, so token and number order them. */
struct campaign_value {
    uint64_t token, number; /* 0: none */
};
#define CAMPAIGN_VALUES_MAX 16384u
struct campaign_values {
    uint64_t count; /* sets that have begun */
    struct campaign_value_set {
        uint64_t token;
        uint32_t lock, len;
    } set[CAMPAIGN_VALUES_MAX];
    struct campaign_value least[CAMPAIGN_LOCKS_MAX];   /* that a look which begins now may find */
    struct campaign_value removed[CAMPAIGN_LOCKS_MAX]; /* the latest set of none that has begun */
};

#define CAMPAIGN_TASKS_MAX ((CAMPAIGN_CLIENTS_MAX + 1) * ACTORS_MAX)

struct campaign {
    const struct design *design;
    struct cluster cluster; /* of a one-sided design, */
    struct rack rack;       /* or of one with packets */
    struct sim *sim;        /* of either */
    unsigned clients, *clients_done;
    uint64_t safety_ns;
    struct oracle oracle;
    struct rng random, swarm; /* swarm: of what campaign 2 draws beside campaign 1 */
    struct swarm_mix mix;
    uint64_t locks;
    uint64_t units;                                    /* of a lock, if the design has ranges: what it is made for; else 0 */
    uint64_t op[CAMPAIGN_CLIENTS_MAX + 1][ACTORS_MAX]; /* number of the operation that may be cancelled; 0: none */
    uint64_t ops;
    struct campaign_result done; /* as far as it is counted while the clients work */
    bool calls;                  /* data servers are asked to do something */
    uint64_t orders;
    struct campaign_data data[CAMPAIGN_LOCKS_MAX];
    uint8_t fates[CAMPAIGN_ORDERS_MAX]; /* of orders */
    bool shared, convert, timeout;
    bool nests;       /* takes locks in any order while it holds others: deadlocks are found */
    bool patient;     /* and then has no deadline: it gets on because they are */
    uint64_t long_ns; /* a long hold lasts up to this */
    uint64_t seed;
    bool beside; /* campaign 3 */
    struct campaign_ask asks[CAMPAIGN_TASKS_MAX];
    /* Until when a granter may know of a request that has ended: of a task; of a session that is dead or lost. */
    uint64_t asked_until[CAMPAIGN_LOCKS_MAX][CAMPAIGN_TASKS_MAX], gone_until[CAMPAIGN_LOCKS_MAX];
    struct campaign_values values;
    bool busy; /* hardly a pause between operations, on few locks, and no client gives up */
};

struct key_text {
    char name[32];
};

static inline struct campaign *campaign_of(const struct actor *a)
{
    return a->user;
}

/* Of the oracle: a violation has a line in the trace, at the time when it is known. */
void campaign_violated(void *ctx, const char *text);

/* Every task holds on its own. */
static inline unsigned campaign_who(const struct actor *a)
{
    return a->client * ACTORS_MAX + a->number;
}

pawl_key campaign_key(const struct actor *a, uint64_t lock, struct key_text *text);

/* Tells the oracle of a grant; and before it gives it back. */
void campaign_granted(struct actor *a, uint64_t lock, const struct hold *h);
int campaign_give_back(struct actor *a, uint64_t lock, const struct hold *h);
/* The same for several locks: at once, where the actor can, or one by one. The first error. */
int campaign_give_back_several(struct actor *a, const uint64_t *locks, const struct hold *holds, unsigned count, bool together);

/* One operation from beginning to end: 0, or what it ended with. */
int campaign_one_lock(struct actor *a);
int campaign_several_locks(struct actor *a);
int campaign_busy_lock(struct actor *a);
int campaign_tune(struct actor *a); /* an operator's: changes how a lock is laid out while others use it */
int campaign_nested_locks(struct actor *a);
int campaign_order(struct actor *a); /* something to be done by the lock's data server */

/* One operation of campaign 3; its books; and one that dies, or loses its session, asks no more. */
int campaign_beside(struct actor *a);
void campaign_asks(struct actor *a, uint64_t lock);
void campaign_answered(struct actor *a, int rc);
void campaign_asker_gone(struct campaign *c, unsigned who);

/* Campaign 3: reads or sets the value of a lock that is held (campaign_values.c). 0 or -PAWL_ELOST. */
int campaign_value(struct actor *a, uint64_t lock, const struct hold *h);

/* Whether a node, in its present life, has forgotten locks to make room. */
bool campaign_forgot(const struct cluster *cl);

/* Converts to the other mode. */
int campaign_convert(struct actor *a, uint64_t lock, struct hold *h);

/* The work of a data server. */
size_t campaign_apply(void *user, const pawl_work *w, void *out, size_t room);

/* Around an operation: sometimes another task cancels it. */
void campaign_maybe_cancel(struct actor *a);
void campaign_no_more_cancel(struct actor *a);
uint64_t campaign_draw_deadline(struct actor *a);

#define CAMPAIGN_BUSY_NS (4 * NS_PER_US) /* pauses and holds, at most: about a way to the lock and back */

/* Codes that an operation may end with in a world full of faults, the lock not being held. */
bool campaign_excusable(int rc);

/* The work of an actor from the beginning to the end: the last client audits, all others work. */
bool campaign_work(struct actor *a);

#endif
