/* SPDX-License-Identifier: Apache-2.0 */
/* A host's memory on a real machine: a file in shared memory that all processes of the host map, with the state of a packet design
 * in it (designs/packet/packet.h), the host's sessions, and what the plumbing needs.
 *
 * It is changed under one robust mutex with an undo log: if a process dies in the middle of a change, the next process undoes it
 * (I5). Packets leave after the change is complete; if the process dies before it sent them, they are retransmitted.
 *
 * A session belongs to a process, which shows that it lives by a robust mutex, too. Its number is used again only when the process
 * has closed it or has ended: a process that was stopped for longer than its lease finds its session lost and not another's. */
#ifndef PAWL_CLUSTER_HOST_H
#define PAWL_CLUSTER_HOST_H

#include "cluster/addresses.h"
#include "cluster/coordinator.h"
#include "cluster/host_names.h"

#include <pthread.h>
#include <sys/types.h>

#define HOST_PATH_LEN 256

enum host_session_state { HOST_SESSION_FREE, HOST_SESSION_OPEN, HOST_SESSION_LOST };

struct host_session {
    pthread_mutex_t life; /* held by a thread of the process for as long as the session is its own */
    uint64_t until_ns;    /* its lease */
    uint32_t state;
    uint32_t serial; /* how often the number was used */
    uint32_t pid;
    uint32_t why;     /* enum pawl_why, of a session that was lost */
    uint32_t sleeper; /* the request for which a thread sleeps on the socket, + 1; 0: none */
    uint16_t port;    /* of the process's socket */
    uint64_t opened_s;
    char label[COORD_LABEL_LEN];
};

struct host_header {
    uint64_t magic;
    uint64_t bytes;
    char space[COORD_NAME_LEN], design[COORD_NAME_LEN];
    struct coord_list coordinators; /* any thread of the host reads it; changes with the mutex */
    uint64_t term;                  /* of the latest coordinator that was heard; likewise */
    uint64_t heard_ns, moved_ns;    /* when that was; when the host began to send to another one; atomic */
    struct host_places {            /* where to send to; changes (host_switch, host_server): the one at places_version % 2 counts */
        struct net_addr switches[RACKS_MAX], servers[RACK_SERVERS_MAX];
        uint32_t version; /* of the lock servers' places, as the coordinator counts them */
    } places[2];
    uint32_t places_version;
    struct net_addr pool; /* where the machine's own packets go to; port 0: not chosen yet */
    struct rack_config config;
    uint32_t life;
    uint16_t machine;
    struct seal_key key;                         /* of its packets in this life; none: they are not tagged */
    uint64_t nonce;                              /* of its JOIN: no other program knows it but the coordinator */
    uint64_t foreign;                            /* packets of a coordinator that has another space of that name */
    uint64_t forged;                             /* packets in the name of a coordinator or granter that are from elsewhere */
    uint32_t dead;                               /* its lease is over: start anew with another */
    uint64_t until_ns;                           /* its membership lease */
    uint64_t beat_ns, tick_ns, look_ns, here_ns; /* when the next of each is due */
    struct host_names names;                     /* keys that the coordinator may retire; under the mutex */
    pthread_mutex_t mutex;                       /* of the memory */
    pthread_mutex_t serving;                     /* held by the process that serves the pool */
    uint64_t sessions_at, bells_at, uses_at, undo_at, memory_at;
};

struct host {
    struct host_header *header; /* mapped */
    const struct packet_design *design;
    struct host_session *sessions;
    uint32_t *bells; /* by request: rises with every wake; a futex */
    uint32_t *uses;  /* by request: how often it was used */
    struct undo *undo;
    char *memory;
    char path[HOST_PATH_LEN];
    dev_t dev; /* of the file */
    ino_t ino;
};

/* The clock of hosts: goes on while the machine sleeps, since leases do. */
uint64_t host_now(void);

/* The file of a host that has joined: makes it, complete, in one step, or says -EEXIST. */
int host_create(const char *path, const struct rack_welcome *w, const struct coord_list *coordinators, struct net_addr self,
                uint64_t stamp);

/* Maps what is there. -ENOENT; -ESTALE: its time is over, and the file was removed; -PAWL_ESEGMENT: not such a file; -EACCES: not
 * this user's alone. The last two are explained. */
int host_open(const char *path, struct host *h);
void host_close(struct host *h);

/* Whether no live process has a session in it: its last processes were killed, or it was made just now. */
bool host_is_left(struct host *h);

/* No other life of this host begins while this one may hold anything: from now on no process finds the file. */
void host_retire(struct host *h);

/* The same if no session is open and no request is in use: then none can be any more, and the design sends what it sends at the
 * end. */
bool host_retire_if_idle(struct host *h, struct outbox *out);

/* Around every use of the memory. What comes out is added to the outbox; host_leave makes the change complete. */
void host_enter(struct host *h, struct outbox *out);
void host_leave(struct host *h, struct outbox *out);

/* The same for what needs no log and sends nothing (packet.h: the short way). */
void host_lock(struct host *h);
void host_unlock(struct host *h);

/* Whether everything of the host is still its own, by its lease. */
bool host_lives(const struct host *h, uint64_t now);

/* The address of a switch or lock server; false: it has none. Any thread of any process of the host. */
bool host_switch(const struct host_header *h, unsigned i, struct net_addr *out);
bool host_server(const struct host_header *h, unsigned i, struct net_addr *out);
/* The version of the lock servers' places. */
uint32_t host_places_version(const struct host_header *h);
/* Takes what the acknowledgement of a heartbeat says of places. Whether any has changed. Between host_enter and host_leave. */
bool host_move(struct host_header *h, const struct coord_beat *ack);

/* A free session for this process, whose calling thread holds its life from now on. -PAWL_ELIMIT: all are in use; -ESTALE: the
 * last session of the host has closed, and this life of the host is over. */
int host_session_open(struct host *h, uint16_t port, uint64_t until_ns, struct outbox *out, uint32_t *session);

/* Locks that its requests hold and wait for, from this request on; between host_enter and host_leave. */
void host_claims(const struct host *h, uint64_t from, uint64_t now, struct coord_claimed *out);
/* By the same thread. */
void host_session_close(struct host *h, uint32_t session, struct outbox *out);

/* Declares a session lost, with its holds and waits; between host_enter and host_leave. -ENOENT: it is not open any more. */
int host_break(struct host *h, uint32_t session, uint32_t serial, struct outbox *out);

/* Ends sessions whose process or lease has ended, with their holds and waits. One session per call: true if there may be more; the
 * caller sends the outbox first. */
bool host_look_after(struct host *h, uint32_t *session, struct outbox *out);

#endif
