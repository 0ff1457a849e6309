/* SPDX-License-Identifier: Apache-2.0 */
/* A session on a rack: pawl://HOST:PORT/SPACE.
 *
 * The process joins the memory of its host (cluster/host.h), which the first one makes after the coordinator gave the host a
 * number. Calls change that memory directly; packets go out through a socket of the handle's own. The thread that waits receives:
 * it takes the right to receive, handles every packet, for itself and for others, and passes the right on. The library's thread
 * renews the session, and in one process of the host serves the pool: packets for the machine as a whole, retransmission, and the
 * cleanup after dead processes. */
#ifndef PAWL_CLIENT_NET_H
#define PAWL_CLIENT_NET_H

#include "client/handle.h"
#include "cluster/host.h"
#include "lib/spin.h"

#define NET_SCHEME "pawl://"

#define NET_NONE UINT32_MAX
#define NET_LOOK_AT_ONCE UINT32_MAX /* as the bell that was seen: no bell is odd */

/* The object that an operation in flight waits for: its request in the host's memory. NET_NONE: for a request that is idle. */
struct net_task {
    uint32_t request, bell; /* bell: as it was when last looked at */
    uint64_t deadline;
    struct host_name name; /* of an operation that names a lock */
    int why;               /* of giving up */
    bool given_up;
    bool late;    /* its deadline had passed when it was submitted: it is a try */
    bool unnamed; /* which lock its key has is not known yet; the thread that asks the coordinator finds out (net_naming.c), */
    uint64_t naming_until; /* and asks until then */
};

struct net {
    struct pawl handle;
    struct host host;
    uint32_t session, serial;
    struct udp udp;
    struct udp pool; /* fd -1 unless this process serves */
    bool serves;
    uint64_t lease_ns;
    struct spin spin; /* by the thread that has the right to receive */
    uint16_t tenant;
    uint8_t priority;
    uint64_t busy_ns; /* when a thread last received */
    uint64_t sent;    /* packets of the design */
    uint32_t ticks;   /* rounds of retransmissions */
    uint64_t here_ns; /* when data servers are told again where this process is */

    uint32_t *owners; /* by request: the thread that holds its lock; 0: none (net_wait.c) */
    bool hands_over;  /* a thread has released a lock of another */

    uint32_t spare;            /* an unused request that is not among `idle`; NET_NONE: there is none */
    pthread_mutex_t receiving; /* the right to receive from udp */
    struct udp_batch received; /* by the thread that has that right */
    struct udp_batch served;   /* received from the pool, by the library's thread */

    /* Under the lock of the handle's ring: */
    uint32_t *idle; /* unused requests, a ring; those released last are at its end */
    uint32_t idle_first, idle_count;
    uint32_t *waiting; /* requests of threads that wait without the right */
    uint32_t waiting_count;

    struct net_task tasks[PAWL_INFLIGHT_MAX];
    struct outbox batch;       /* of submitted requests: sent together */
    int poll_fd;               /* what pawl_fd gives: readable if the ring's event is; -1: the program has not called pawl_fd */
    bool hears;                /* poll_fd is readable if the socket is, too: while operations are in flight */
    bool naming, naming_stops; /* the thread that asks for submitted keys was started; has to end */
    pthread_t naming_thread;
    pthread_cond_t naming_wakes;

    /* Keys that were asked for lately (net_names.c). */
    pthread_mutex_t names_lock;
    struct net_names *names; /* null: none yet */

    uint64_t value_steps; /* values that were set; under handle.setting */
};

extern const struct session_ops net_ops;

/* The session of a handle; null if it is of another kind. */
static inline struct net *net_of(pawl *p)
{
    return p->ops == &net_ops ? container_of(p, struct net, handle) : NULL;
}

int net_open(const char *place, const pawl_options *o, const struct knobs *knobs, struct pawl **out);
int net_close(struct pawl *p);
int net_query(struct pawl *p, pawl_key key, pawl_state *out);

/* ---- net_all.c ---- */

int net_lock_all(struct pawl *p, const pawl_want *wants, unsigned count, uint64_t deadline, pawl_grant *grants);
int net_unlock_all(struct pawl *p, const pawl_grant *grants, unsigned count);

/* ---- net_async.c ---- */

int net_admit(struct pawl *p, const pawl_request *r, uint64_t *index);
int net_begin(struct pawl *p, struct async_op *op);
void net_pump(struct pawl *p);
void net_cancel(struct pawl *p, struct async_op *op);
int net_wait(struct pawl *p, uint64_t deadline);
void net_hear(struct pawl *p);
int net_fd(struct pawl *p);
/* With the ring's lock: packets make pawl_fd readable, or not. */
void net_set_hears(struct net *n, bool hears);

/* ---- what the files of a rack session share ---- */

/* This thread's outbox, empty. */
struct outbox *net_outbox(void);

/* Sends what is in it through one of the handle's sockets, and rings the bells that it names. Then it is empty. */
void net_flush(struct net *n, struct udp *through, struct outbox *out);
/* The same, several packets to one receiver in one datagram, if it reads that. Not for retransmissions: a datagram that does not
 * come through is followed by single packets. */
void net_flush_together(struct net *n, struct udp *through, struct outbox *out);
void net_ring(struct net *n, uint32_t request);
static inline uint32_t net_bell(const struct net *n, uint32_t request)
{
    return __atomic_load_n(&n->host.bells[request], __ATOMIC_ACQUIRE) & ~1u;
}

/* Packets of this socket are tagged with the host's key, if it has one, and others are dropped. */
void net_use_key(const struct net *n, struct udp *u);

/* Handles packets that came to a socket. */
void net_dispatch(struct net *n, struct udp *through, const struct udp_batch *batch);

/* Handles what comes to the handle's socket within this time, or waits while another thread does. Without a request. */
void net_listen(struct net *n, uint64_t until);

/* Receives until the request's bell is no longer `seen`, or the deadline. The caller has the right to receive. */
void net_receive(struct net *n, uint32_t request, uint32_t seen, uint64_t deadline);

/* Waits for the outcome of the request, and until when the session certainly lives (0: it does not). `seen`: the bell before the
 * request was made. At the deadline the request is given up, with -ETIMEDOUT. */
int net_await(struct net *n, uint32_t request, uint32_t seen, uint64_t deadline, struct packet_answer *out, uint64_t *expiry);
void net_pass_on(struct net *n);
void net_give_up(struct net *n, uint32_t request, int why, struct outbox *out);
/* -EINPROGRESS: there is none yet. */
int net_outcome(struct net *n, uint32_t request, struct outbox *box, struct packet_answer *out, uint64_t *expiry);

/* Does what is due for the host as a whole: retransmission, dead processes, the coordinator. */
void net_duties(struct net *n, struct udp *through, bool tick); /* tick: even if it is not due */
/* Asks for the host's leases now: at the coordinator, and at all that grant. */
void net_renew(struct net *n);
/* Tells data servers the address of this process, so that they answer directly and not through the switch. */
void net_say_here(struct net *n);
void net_say_leave(struct net *n, struct udp *through); /* the host holds nothing any more */

/* Whether the deadline has passed already. Such a call is a try that fails with -ETIMEDOUT: a free lock is granted. */
static inline bool net_late(uint64_t deadline, uint64_t now)
{
    return deadline != DEADLINE_TRY && deadline <= now;
}

/* Until when an answer to a call is waited for: a try must be answered within a lease, or no granter can say whether the lock is
 * held (-EAGAIN). */
static inline uint64_t net_patience(const struct net *n, uint64_t deadline, uint64_t now)
{
    return deadline == DEADLINE_TRY || net_late(deadline, now) ? now + n->host.header->config.lease_ns : deadline;
}

/* A key lost its lock between being found and being requested (-ESTALE), in a call that began then. 0: it is to be found again; or
 * the code with which the call ends, explained. */
int net_find_again(const struct net *n, uint64_t deadline, uint64_t began);

bool net_valid(struct net *n);
enum pawl_why net_why(struct pawl *p);
uint64_t net_expiry_locked(const struct net *n); /* on the host's clock, between host_enter and host_leave; 0: lost */
uint64_t net_grant_clock(uint64_t at);           /* from the host's clock to that of grants; 0 if it is past */

/* Explains an error; 0 is none. */
int net_failed(const struct net *n, int rc);

/* Whether a data server can be told that, and what it has answered. */
int net_check_call(struct net *n, const pawl_call *call);
int net_take_reply(struct net *n, uint32_t request, pawl_call *call, struct outbox *out);

/* Takes an unused request, or -PAWL_ELIMIT; gives it back. `locked`: the caller has the ring's lock. */
int net_take_request(struct net *n, bool locked, uint32_t *out);
void net_give_request(struct net *n, bool locked, uint32_t request);
pawl_grant net_grant(const struct net *n, uint32_t request, uint64_t index, const struct packet_answer *a, uint64_t expiry);
/* The request of a grant, or -PAWL_ENOTOWNER. */
int net_request_of(struct net *n, const pawl_grant *g, uint32_t *out);
/* Begin something in the host's memory; its packets are in `out`. Negative: it failed; -EBUSY: all requests that are not held wait
 * for the acknowledgement of their release; -ESTALE: the host has forgotten the key, which has to be asked for again. *bell: the
 * bell before it began, for net_await. ask->thread: the thread that waits; 0: none does. net_end releases, and gives the request
 * back. */
int net_begin_lock(struct net *n, struct packet_ask *ask, const struct host_name *name, const pawl_call *call, bool locked,
                   uint32_t *bell, struct outbox *out);
int net_begin_convert(struct net *n, uint32_t request, enum pawl_mode mode, uint32_t thread, uint32_t *bell, struct outbox *out);
int net_begin_call(struct net *n, uint32_t request, const pawl_call *call, uint32_t *bell, struct outbox *out);
int net_end(struct net *n, uint32_t request, bool locked, struct outbox *out);
/* The short way, without a packet, beside the lock's own agent: no packet. False: not this time. */
bool net_lock_at_once(struct net *n, const struct host_name *name, enum pawl_mode mode, pawl_grant *out);
bool net_unlock_at_once(struct net *n, uint32_t request);
/* A whole call. `call`: something that the lock's data server does under it; `out` is then null if the lock is not kept. Errors are
 * explained, except -ESTALE: the name is outdated. */
int net_lock_name(struct net *n, const struct host_name *name, enum pawl_mode mode, uint32_t limit, uint64_t deadline,
                  pawl_call *call, pawl_grant *out);

/* The calling thread as an owner, 0 if its session takes no part; it owns the lock of a request; it releases or changes a lock that
 * may belong to another thread. */
uint32_t net_owner(const struct net *n);
void net_owns(struct net *n, uint32_t request, uint32_t owner);
void net_touches(struct net *n, uint32_t request);

/* A key's lock. The first time the coordinator is asked, until the deadline at most. `look`: -ENOENT if the key has no lock yet;
 * else it gets one. Errors are explained. */
int net_find(struct net *n, pawl_key key, enum pawl_mode mode, bool look, uint64_t deadline, struct host_name *out);
void net_names_free(struct net *n);
/* Whether the space can have such a key; explained. */
int net_check_key(const struct net *n, pawl_key key, enum pawl_mode mode);
/* The same as net_find, without asking: -EINPROGRESS if the coordinator has to be asked. */
int net_find_known(struct net *n, pawl_key key, enum pawl_mode mode, struct host_name *out);
/* Until when the coordinator is asked for a key. *gives_up: the caller's deadline is later, and the call says -EAGAIN then. */
uint64_t net_ask_until(const struct net *n, uint64_t deadline, uint64_t now, bool *gives_up);

/* ---- net_values.c ---- */

int net_set_value(struct pawl *p, const pawl_grant *g, const void *bytes, uint32_t len);
int net_get_value(struct pawl *p, const pawl_grant *g, void *bytes, uint32_t *len);

/* ---- net_naming.c: submitted operations whose lock has to be asked for ---- */

/* With the ring's lock: there is such an operation. Starts the thread the first time. */
int net_naming_begin(struct net *n);
/* Before the session ends. */
void net_naming_end(struct net *n);

/* The library's thread. */
void *net_thread(void *arg);

/* Removes the files of all hosts of a space on this machine, which must be unused. */
void net_remove_hosts(const char *space);

#endif
