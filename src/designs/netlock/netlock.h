/* SPDX-License-Identifier: Apache-2.0 */
/* NetLock (SIGCOMM'20): hot locks in the switch, the others and what overflows in lock servers. See docs/designs/netlock.md.
 *
 * Every lock has a home, the server number (index mod servers). The home owns the lock, unless it has lent it to the switch.
 * Lending goes by rounds, which the switch numbers:
 *
 *   TAKE (switch)      the switch has a place for it and passes requests on as OVERFLOW; the server grants nothing more
 *   HANDOVER (server)  no client holds it: from here on the switch grants, the server pushes what it has buffered
 *   GIVE (switch)      its queue in the switch has drained: from here on the server grants
 *
 * so at any time one of them grants and the other knows that it does not. Every message is retransmitted until it is answered, and
 * ignored if its round is over. A switch that lost its memory has a higher life: then all lent locks are the server's again, once
 * every lease that the old switch gave has ended. A server that lost its memory also waits for that before it grants anything. It
 * learns from the switch which locks it owns: those whose requests the switch passes on without OVERFLOW after the server has asked
 * (SYNC).
 *
 * A hold belongs to its host's lease at its granter, the switch or a server. The host asks for a lease by LEASE. The host counts it
 * from the time of its request, by its own clock; the granter counts it from the arrival of the request, by its clock, which may
 * run faster by the drift that is allowed. */
#ifndef PAWL_DESIGNS_NETLOCK_NETLOCK_H
#define PAWL_DESIGNS_NETLOCK_NETLOCK_H

#include "dataplane/netlock_wire.h"
#include "designs/netlock/mistakes.h"
#include "designs/packet/clients.h"
#include "designs/packet/parts.h"

/* A token is a term of the steward's and a count of grants. */
#define NETLOCK_TOKEN_BITS 32
#define NETLOCK_TERM_TICK_SHIFT 28              /* of nanoseconds: about a quarter of a second */
#define NETLOCK_FIRST_PAUSE_NS (10 * NS_PER_US) /* a round trip between machines */

#define NETLOCK_MEASURE_NS (2 * NS_PER_MS) /* servers report, and the switch allocates anew, this often: some hundred requests */

/* How it is to work, packed into rack_config.options: campaigns draw these bits, and the coordinator sends them to all parts. The
 * code reads the unpacked form, struct netlock_policy. */
#define NETLOCK_SLOTS_EACH_MAX 255u /* the lowest 8 bits */
#define NETLOCK_PROFILE_SHIFT 8     /* 6 bits */
#define NETLOCK_PROFILE_MAX 63u
#define NETLOCK_ALLOC_RANDOM 0x10000u
#define NETLOCK_CHURN 0x20000u
#define NETLOCK_PRIORITY 0x40000u
#define NETLOCK_SERVERS_ONLY 0x80000u
#define NETLOCK_CHAIN 0x100000u
#define NETLOCK_FEW 0x800000u
#define NETLOCK_TOGGLE 0x4000000u
#define NETLOCK_SLOTS_SHIFT 32 /* 24 bits; 0: 100,000 (5) */
#define NETLOCK_SLOTS_DEFAULT 100000u
#define NETLOCK_SLOTS_MAX 0xffffffu
#define NETLOCK_LEVELS_SHIFT 56 /* priorities with queues of their own in the switch, 4 bits; 0: all, if there are any */
#define NETLOCK_LEVELS_MASK 15u
#define NETLOCK_PIPES_SHIFT 61 /* less one, 3 bits */
#define NETLOCK_PIPES_MAX 8u

struct netlock_policy {
    uint32_t slots;      /* queue slots of the shared queue */
    uint32_t pipes;      /* of the switch, which share no state (5) */
    uint32_t levels;     /* priorities that have a waiting queue in the switch; 0: one queue for all. At the start: it may change */
    uint32_t slots_each; /* of every lock in the switch; 0: by the contention that was measured */
    uint64_t profile_ns; /* locks are chosen once, after so long, and stay; 0: as the workload moves */
    bool alloc_random;   /* instead of Algorithm 3. At the start, too */
    bool servers_only;   /* no lock is in the switch */
    bool chain;          /* the baseline `netchain`: exclusive words in the switch, clients try again (6.1) */
    bool churn;          /* for trials: locks move in and out all the time */
    bool few;            /* for trials: few priorities have queues in the switch; with `churn`, of every lock others */
    bool toggle;         /* for trials: original and backup take turns */
};

/* Unpacks the options (design.c). */
struct netlock_policy netlock_policy(uint64_t options);

/* The options with what the knobs say. */
uint64_t netlock_tune(uint64_t options, const struct knobs *knobs);

/* How long servers count requests before they report. */
static inline uint64_t netlock_measure_ns(const struct rack_config *c)
{
    uint64_t profile_ns = netlock_policy(c->options).profile_ns;
    return profile_ns ? profile_ns : NETLOCK_MEASURE_NS;
}

/* The part of the policy that hosts need. */
static inline bool netlock_is_chain(const struct rack_config *c)
{
    return c->options & NETLOCK_CHAIN;
}

/* Which of the switch's words guards a lock: with more locks than slots, several share one (6.1). */
static inline uint64_t netlock_word(const struct rack_config *c, uint64_t index)
{
    return netlock_is_chain(c) ? index % min_u64(c->locks, netlock_policy(c->options).slots) : index;
}

static inline unsigned netlock_home(const struct rack_config *c, uint64_t index)
{
    assert(c->servers);
    return (unsigned)(index % c->servers);
}

/* A packet with its head filled in; null: the outbox is full. */
static inline struct netlock_packet *netlock_packet_new(struct outbox *out, const struct rack_config *c, enum netlock_type type,
                                                        uint32_t life, struct place from, struct place to)
{
    struct netlock_packet *p = outbox_add(out, sizeof *p);
    if (p)
        netlock_head(p, c->space, type, life, from, to);
    return p;
}

/* Whether the bytes of a request for a data server are in order: for one of the space's servers, the request's own, and not too
 * many. */
static inline bool netlock_sound_payload(const struct rack_config *c, const struct netlock_packet *p, uint32_t len)
{
    return rack_server_on(c, p->data.machine) < c->servers && p->data.port == PORT_SERVER && len >= sizeof *p &&
           len - sizeof *p <= NETLOCK_PAYLOAD_MAX && netlock_request_of(p->stamp) == netlock_request_of(p->head.nonce) &&
           p->stamp >> NETLOCK_SLOT_BITS;
}

/* A request was granted by its own packet: its bytes go on to the data server, which answers instead (4.1). */
static inline void netlock_to_data(struct netlock_packet *d, const struct netlock_packet *p, uint32_t len, struct place granter,
                                   uint32_t life)
{
    memcpy(d, p, len);
    d->head.type = NETLOCK_DATA;
    d->head.to = p->data;
    d->flags = 0;
    d->client = granter;
    d->life = life;
}

/* ---- the host's side (host.c, host_call.c) ---- */

uint64_t netlock_host_bytes(const struct rack_config *config);
void netlock_host_init(void *host, const struct rack_config *config, uint16_t machine, uint32_t life, uint64_t now);
int netlock_acquire(void *host, const struct packet_ask *ask, uint64_t now, struct outbox *out);
void netlock_thread(void *host, uint32_t request, uint32_t thread, uint64_t now, struct outbox *out);
int netlock_give_up(void *host, uint32_t request, int why, uint64_t now, struct outbox *out);
int netlock_convert(void *host, uint32_t request, enum pawl_mode mode, uint64_t now, struct outbox *out);
int netlock_release(void *host, uint32_t request, uint64_t now, struct outbox *out);
int netlock_call(void *host, uint32_t request, const void *bytes, uint32_t len, uint64_t now, struct outbox *out);
int netlock_reply(void *host, uint32_t request, void *reply, uint32_t room, uint32_t *len, struct outbox *out);
struct packet_grants netlock_host_grants(const void *host);
void netlock_host_packet(void *host, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t netlock_host_tick(void *host, uint64_t now, struct outbox *out);
void netlock_host_renew(void *host, uint64_t now, struct outbox *out);
void netlock_server_since(void *host, uint16_t machine, uint32_t life, struct outbox *out);
uint64_t netlock_expiry(const void *host, uint32_t session);
void netlock_session_dead(void *host, uint32_t session, uint64_t now, struct outbox *out);

/* ---- the switch (switch.c, control.c) ---- */

uint64_t netlock_switch_bytes(const struct rack_config *config);
void netlock_switch_init(void *state, const struct rack_config *config, uint32_t life, uint64_t now);
void netlock_switch_number(void *state, uint16_t number);
void netlock_switch_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t netlock_switch_tick(void *state, uint64_t now, struct outbox *out);

/* For a program in the kernel that has the switch's memory, too: where everything is; whether memory that a process left is a
 * switch of this rack; and that the program is there (plane.h). */
struct netlock_memory;
struct plane_kernel;
void netlock_switch_describe(const struct rack_config *c, struct netlock_memory *m);
bool netlock_switch_is(const void *state, const struct rack_config *c);
void netlock_switch_in_kernel(void *state, const struct plane_kernel *kernel);

/* Policies (4.4), at any time. A tenant's quota in requests per second, 0: none; so many may come at once. -EINVAL: no such tenant,
 * or a rate that cannot be counted. */
int netlock_set_quota(void *state, uint16_t tenant, uint64_t per_second, uint32_t burst);
/* Random allocation, or Algorithm 3. */
void netlock_set_random(void *state, bool on);
/* So many priorities have a waiting queue in the switch; 0: there is one queue for all. -EINVAL: there are not as many;
 * -EOPNOTSUPP: netchain has none. */
int netlock_set_priorities(void *state, uint64_t levels);

/* ---- the steward (steward.c) ---- */

uint64_t netlock_steward_bytes(const struct rack_config *config);
void netlock_steward_init(void *state, const struct rack_config *config, uint32_t life, bool fresh, uint64_t now);
void netlock_steward_packet(void *state, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t netlock_steward_tick(void *state, uint64_t now, struct outbox *out);
uint32_t netlock_steward_since(void *state, uint32_t life);
void netlock_steward_hosts(void *state, const uint64_t *hosts, unsigned words);

/* The steward's latest assignments, as BEAT and TERM carry them. */
struct netlock_table {
    uint32_t steward;      /* its life: a member takes nothing of an earlier one; 0: none was heard */
    uint32_t term;         /* of the active switch */
    uint32_t active_life;  /* of its memory */
    uint32_t count;        /* of slots */
    uint16_t number;       /* of the active switch */
    const uint64_t *hosts; /* that a TERM is to name; null: none */
    struct netlock_slot slots[RACK_SERVERS_MAX];
};

/* The hosts that a TERM names; null: it names none, or is not complete. */
const uint64_t *netlock_hosts_read(const struct netlock_packet *p, uint32_t len);
/* -EINVAL unless a BEAT or TERM of that length is complete. */
int netlock_table_read(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, struct netlock_table *out);
/* A TERM that answers a BEAT of this life, later than the latest one: until when the lease lasts; 0: it does not count. An answer
 * counts once. `steward` is that of the table that the member has: TERM and FOLLOW of a later one raise it, and what an earlier one
 * says does not count. */
uint64_t netlock_table_hear(const struct rack_config *c, const struct netlock_packet *p, uint32_t len, uint32_t life,
                            uint64_t latest, uint64_t now, struct packet_drops *drops, uint32_t *steward,
                            struct netlock_table *out);
struct netlock_packet *netlock_table_write(const struct rack_config *c, const struct netlock_table *table, enum netlock_type type,
                                           uint32_t life, struct place from, struct place to, struct outbox *out);

/* A heartbeat to the steward, of a switch or server whose lease lasts until then; null: no room. */
struct netlock_packet *netlock_beat(const struct rack_config *c, const struct netlock_table *table, uint32_t life,
                                    struct place from, uint64_t now, uint64_t until, struct outbox *out);

/* The lease that the steward gives (steward.h). With one switch and one server there is none that could take over. Of several lock
 * switches each has a configuration of its own, with its own servers. */
static inline uint64_t netlock_term_ns(const struct rack_config *c)
{
    return c->switches > 1 || c->servers > 1 ? c->lease_ns : rack_member_ns(c);
}

/* The lease of a switch. If it has a backup it is so short that hosts, whose leases from it end later, hear of the backup's term
 * while their holds are valid still. */
#define NETLOCK_BRIEF_SHARE 4u
static inline uint64_t netlock_switch_term_ns(const struct rack_config *c)
{
    return c->switches > 1 ? c->lease_ns / NETLOCK_BRIEF_SHARE : netlock_term_ns(c);
}

/* The pause before a retransmission: short at first, when all parts of the rack start at once. */
static inline uint64_t netlock_pause(const struct rack_config *c, uint8_t *asked)
{
    uint64_t pause = min_u64(NETLOCK_FIRST_PAUSE_NS << *asked, 4 * c->retry_ns);
    *asked += *asked < 16;
    return pause;
}

/* ---- the lock server (server.c) ---- */

uint64_t netlock_server_bytes(const struct rack_config *config);
void netlock_server_grow(void *server, uint64_t locks);
void netlock_server_init(void *server, const struct rack_config *config, uint16_t machine, uint32_t life, bool fresh, uint64_t now);
void netlock_server_packet(void *server, const void *data, uint32_t len, uint64_t now, struct outbox *out);
uint64_t netlock_server_tick(void *server, uint64_t now, struct outbox *out);
const struct packet_drops *netlock_server_drops(const void *server);
struct packet_figures netlock_switch_figures(const void *state);
void netlock_server_apply(void *server, pawl_apply apply, void *ctx);

extern const struct design design_netlock, design_netlock_switches;

#endif
