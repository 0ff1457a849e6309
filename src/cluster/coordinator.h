/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The coordinator of a rack: which machines are in it, under which numbers, where, and until when. Free of I/O, as packet designs
 * are: packets in, packets out.
 *
 *   JOIN      a host, lock server or switch asks to take part. It is retransmitted until it is answered, with the same nonce.
 *             With a key it says a life that the coordinator has told (generation), which is not below that of the member whose
 *             place it takes, or of hosts that are gone. A JOIN that was recorded is below: it is refused.
 *   WELCOME   the member's number and life, the space's config, the addresses of servers and switches
 *   REFUSED   why not. -EAGAIN: ask again later. COORD_ANEW: ask again now, with this generation. In answer to a BEAT: this life is over. COORD_NOT_LEADER: ask the leader, at `at`.
 *   BEAT      a heartbeat of a host, lock server or switch: its clock, or how many it has sent (stamp), the sum of its config (code), the addresses to which
 *             it sends for switches. A host: in which racks it has a lease (index, a bit each). A switch: which machine it looked
 *             for (index), how many locks name that machine (generation), and the version of its rules.
 *   BEAT_ACK  the acknowledgement of a heartbeat, with its stamp: the host's lease now counts from there. Addresses of the switches.
 *             To a switch: look for this machine (index), and use these rules. To a host, and to a lock
 *             server that can take more of them (server_grow): the number of locks (index), if it has grown.
 *   LEAVE     a host holds nothing and leaves; a lock server or switch has stopped, and decides nothing any more
 *   WHICH     from any program to a lock server or switch: which space do you serve?
 *   THIS      the space's name and identity
 *   HERE      from a host's pool to servers and switch: packets for the host go to this address (client/net.h)
 *   WAKE      between processes of one host: look again
 *   FIND      from any program: which index has this key? A new key gets an index, unless the asker only looks. stamp: that of the
 *             first answer, if the asker asks again; else 0
 *   KEY_OF    from any program: which key has this index?
 *   FOUND     the answer to both, with the key, its index and generation, a code, and the number of the latest round (stamp)
 *   RETIRE    to a host, in round `round`: do you use these keys? Keys that the host does not use it has to forget.
 *   RETIRED   which of them the host uses (index, a bit each), in which round (stamp). It has forgotten the others.
 *   VALUE     from a holder: the value beside this lock (values.h); or, `sets`, it is this from now on
 *   VALUED    the value, and a code. -ESTALE: it is a set of before this coordinator's term
 *   ROUSE     to a host: the switch has started anew; renew the lease there now
 *   WHO       from any program: which hosts are there, from this number on?
 *   HOSTS     the space's config, and some of the hosts
 *   CLAIMS    from any program to a host: what do your requests hold and wait for, from this one on?
 *   CLAIMED   some of them
 *   BREAK     from an operator: this session (role; code: its serial number) of host head.to.machine is lost. First to the
 *             coordinator, which logs it, then to the host, which does it.
 *   BROKEN    code: 0; of the coordinator: the operator may, or -EACCES; of the host: -ENOENT: there is no such session any more
 *   RULES     from an operator: which switch has which locks? With code 1: move slots head.index to head.generation - 1 to the
 *             switch that role names. With a key it repeats the latest life (stamp): a recorded one changes nothing.
 *   RULED     the rules, and the version that each switch uses; code: 0, -EINPROGRESS, or why not
 *
 * Every packet has the identity of the space, as far as its sender knows it. The coordinator refuses members of another space of the
 * same name, and those that know a later version of the configuration than its own: its state is not the one that they joined.
 * Members drop packets of such a coordinator, count them, and go on until their leases end.
 *
 * A host has a membership lease from the coordinator: for so long it goes on without hearing from one. Lock servers and switches
 * give lock leases, which are shorter and end the holds of a silent host. Which hosts there are is in the log. A coordinator that
 * restarts takes them for live until they say that they leave, or until the longest membership lease has ended (I16). A host's number
 * is used again, with a higher life, when the host is gone and the switch has found that no lock names it any more
 * (coordinator_hosts.c).
 *
 * Which member has the place of a lock server or switch is in the log (I17), so a coordinator that restarts does not give the place of
 * one that is silent for a moment to another one. A place is given to a member at another address when no host can use the old one
 * any more: the old one has said that it stopped; or it is silent, all hosts were told, and each has confirmed that it sends nothing
 * there, or is gone (coordinator_server.c, coordinator_switch.c). */
/* clang-format on */
#ifndef PAWL_CLUSTER_COORDINATOR_H
#define PAWL_CLUSTER_COORDINATOR_H

#include "cluster/limits.h"
#include "cluster/state.h"
#include "designs/core/design.h"
#include "designs/packet/packet.h"
#include "wire/udp.h"

#include <errno.h>

#define COORD_NAME_LEN 32
#define COORD_LIVE_WORDS 16 /* machines up to 1023 are told; where there are more, none */
#define COORD_LIVES_PER_S 4
#define COORD_NAMES_PER_S 2000u         /* new names that one address may add, and */
#define COORD_NAMES_AT_ONCE 16384u      /* at once: a program that begins brings its own */
#define COORD_HOSTS_SHARE 4u            /* of the numbers of hosts: what one address may have, but at least */
#define COORD_HOSTS_LEAST 8u            /* so many: users of one machine have a host each */
#define COORD_FOREIGN (-EREMCHG)        /* code of REFUSED: another space of that name, or an older version of its configuration */
#define COORD_NOT_LEADER (-EREMOTE)     /* code of REFUSED: this coordinator stands by; `at` says where the leader is, or nothing */
#define COORD_WRONG_KEY (-EKEYREJECTED) /* code of REFUSED: the packet is not tagged, or with another key. Said without a tag */
#define COORD_NO_KEY (-ENOKEY)          /* code of REFUSED: the packet is tagged, and the receiver has no key */
#define COORD_ADMIN_ONLY (-EPERM)       /* the command needs the admin key, and came with the cluster's alone */
#define COORD_ANEW (-ERESTART)          /* the packet may have been recorded: ask again, and repeat the number of this answer */
#define COORD_LIVES_AHEAD                                                                                                          \
    4096u /* reserved beyond those that may be used up within two leases: a quarter of an hour of a full disk */

enum coord_type {
    COORD_JOIN = 1,
    COORD_WELCOME,
    COORD_REFUSED,
    COORD_BEAT,
    COORD_BEAT_ACK,
    COORD_LEAVE,
    COORD_HERE,
    COORD_WAKE,
    COORD_FIND,
    COORD_KEY_OF,
    COORD_FOUND,
    COORD_ROUSE,
    COORD_WHO,
    COORD_HOSTS,
    COORD_CLAIMS,
    COORD_CLAIMED,
    COORD_RULES,
    COORD_RULED,
    COORD_WHICH,
    COORD_THIS,
    COORD_BREAK,
    COORD_BROKEN,
    COORD_RETIRE,
    COORD_RETIRED,
    COORD_SPACE, /* cluster/spaces.h */
    COORD_SPACES,
    COORD_VALUE,
    COORD_VALUED,
};

#define COORD_FORCE                                                                                                                \
    1 /* code of a lock server's or switch's JOIN: the operator says that no host uses the one in whose place it comes */

enum coord_role { COORD_HOST = 1, COORD_SERVER, COORD_SWITCH };

/* One form for all. head: nonce of the JOIN; from.machine the sender's number; epoch its life. head.space: the short id of the
 * space; 0: the sender knows the space by its name alone. */
struct coord_packet {
    struct packet_head head;
    struct rack_identity identity;
    uint64_t term; /* of the coordinator that sends: its first life, which is above those of all before it; 0: it does not lead.
                      RULES, BREAK, SPACE: the proof that the operator has the admin key (wire/seal.h) */
    uint32_t role;
    int32_t code; /* REFUSED; BEAT: coord_config_sum */
    uint64_t stamp;
    struct net_addr at; /* JOIN, BEAT: where a server or switch listens; none: where the packet came from. REFUSED: the leader.
                           WELCOME: its bytes `ip` are the host's key, wrapped (seals.h) */
    char space[COORD_NAME_LEN];
};
static_assert(sizeof(struct coord_packet) == 152, "no padding");

/* BEAT and BEAT_ACK go on: */
struct coord_beat {
    struct coord_packet packet;
    struct net_addr switches[RACKS_MAX]; /* none: unknown, or, with port COORD_AWAY: there is none, and nothing is to be sent */
    struct rack_rules rules;
    uint32_t places; /* of a host: version of the places of lock servers that it goes by. To a host: its version when it has taken
                        the place that packet.role (number + 1; 0: none), packet.at and packet.code (the least life that counts)
                        say */
};
static_assert(sizeof(struct coord_beat) == 416, "no padding");
#define COORD_AWAY 1

/* RULED goes on: */
struct coord_ruled {
    struct coord_packet packet;
    struct rack_rules rules;
    uint32_t racks; /* 0: the design knows one switch only */
    struct {
        struct net_addr at;        /* none: there is no switch */
        uint32_t life, version;    /* version: of the rules that it goes by */
        uint32_t silent_ms, heard; /* heard: it has been, and for so long it has not */
    } rack[RACKS_MAX];             /* of each switch, also of the only one and its backup */
};
static_assert(sizeof(struct coord_ruled) == 544, "no padding");

#define COORD_WELCOME_SERVERS 24u /* whose addresses fit one packet */

/* WELCOME goes on: */
struct coord_welcome {
    struct coord_packet packet; /* head.to.machine: the number; head.generation: the life */
    char design[COORD_NAME_LEN];
    struct rack_config config;
    struct net_addr switches[RACKS_MAX]; /* as in coord_beat */
    uint32_t first_server;               /* the servers below are this one and those that follow: head.index of the JOIN */
    uint32_t live_known;                 /* to a switch: `live` counts */
    struct rack_rules rules;             /* to a switch: by which it goes, if locks are divided */
    uint32_t places;                     /* to a host: version of the servers' places below */
    uint64_t live[COORD_LIVE_WORDS];     /* the hosts that there are, bit m of word m / 64; no other can hold anything */
    struct net_addr servers[COORD_WELCOME_SERVERS];
};
static_assert(sizeof(struct coord_welcome) <= PACKET_MAX, "fits");

/* A member's knowledge of the space that it joined: the latest welcome, and the addresses of all lock servers, by number. */
struct rack_welcome {
    struct coord_welcome said;
    struct seal_key key; /* a host's; none: packets are not tagged */
    struct net_addr servers[RACK_SERVERS_MAX];
};

/* FIND, KEY_OF and FOUND go on: */
struct coord_key {
    struct coord_packet packet; /* head.index, head.generation; code: 0, -ENOENT, -ENOSPC, -EINVAL; -EAGAIN: ask again soon */
    uint32_t look;              /* FIND: 1: do not add it; FOUND: the kind of keys, 0: dense */
    uint32_t len;
    char bytes[(DIRECTORY_KEY_MAX + 8) / 8 * 8];
};
static_assert(sizeof(struct coord_key) <= PACKET_MAX, "fits");

/* VALUE and VALUED go on: */
struct coord_value {
    struct coord_packet packet; /* head.index, head.generation; term: of a set, the coordinator's that the holder has heard of */
    uint64_t token, step;       /* of the hold; of the set among those of this hold */
    uint32_t sets;              /* 1: sets it */
    uint32_t len;
    uint8_t bytes[PAWL_VALUE_MAX];
};
static_assert(sizeof(struct coord_value) == 240, "no padding");

#define COORD_RETIRE_MAX 64u /* keys of one round: a bit each in the answer */

/* RETIRE goes on: */
struct coord_retire {
    struct coord_packet packet;
    uint64_t round;
    uint32_t count, pad;
    struct coord_retire_key {
        uint64_t index;
        uint32_t generation, pad;
    } key[COORD_RETIRE_MAX];
};
static_assert(sizeof(struct coord_retire) <= PACKET_MAX, "fits");

#define COORD_HOSTS_MAX 32

/* HOSTS goes on: */
struct coord_hosts {
    struct coord_packet packet; /* head.index: where to go on; 0: that was all */
    char design[COORD_NAME_LEN];
    uint64_t locks, lease_ns;
    uint32_t keys, sessions, requests, count;
    struct coord_host {
        struct net_addr at;
        uint32_t machine, life;
    } host[COORD_HOSTS_MAX];
};
static_assert(sizeof(struct coord_hosts) <= PACKET_MAX, "fits");

#define COORD_CLAIMS_MAX 14
#define COORD_LABEL_LEN 16

/* CLAIMED goes on: */
struct coord_claimed {
    struct coord_packet packet; /* head.index: where to go on; 0: that was all */
    uint32_t count, pad;
    struct coord_claim {
        uint64_t index, token;
        uint64_t left_ns, opened_s; /* of the session: what is left of its lease; since when it is */
        uint32_t session, pid;
        uint32_t mode, holds;
        uint32_t serial, pad; /* of the session: how often its number was used */
        char label[COORD_LABEL_LEN];
    } claim[COORD_CLAIMS_MAX];
};
static_assert(sizeof(struct coord_claimed) <= PACKET_MAX, "fits");

struct coord_member {
    uint64_t nonce;    /* of its JOIN; 0: adopted */
    uint64_t until_ns; /* its membership lease; 0: the number was never given */
    uint64_t asked_ns; /* when it sent the JOIN or heartbeat that renewed it last, by the host's clock */
    uint32_t life;
    uint32_t places; /* version of the lock servers' places that it goes by */
    bool live;
    bool unheard;   /* it joined a former coordinator, and was not heard of since */
    bool unwritten; /* it is not in the log yet */
    uint16_t key;   /* number of the key file with which it joined */
    uint8_t clean;  /* a bit for every switch that has no lock that names it */
    struct net_addr at;
    struct net_addr switches[RACKS_MAX]; /* where it sends to: what it said last, and when, by its own clock: */
    uint64_t said_ns;
    uint32_t racks;   /* in which it has a lease, a bit each */
    uint64_t retired; /* the latest round that it has answered */
};

/* Keys that come and go (coordinator_names.c). */
struct coord_names {
    uint32_t generation;    /* of keys that are new now; 0: none has begun */
    uint64_t generation_ns; /* when it began */
    uint64_t round;         /* the latest: above those of former coordinators */
    uint32_t count;         /* keys of the round under way; 0: there is none */
    struct {
        uint64_t cell;
        bool stays; /* a host uses it, or a client has asked for it */
    } key[COORD_RETIRE_MAX];
    uint64_t hand;     /* the cell at which the search for the next keys begins */
    uint64_t again_ns; /* when hosts that have not answered are asked again */
    uint32_t ask_next; /* the next host to be asked; beyond the last: none is */
    struct {
        uint64_t since_ns; /* when a key was retired last, or the first one found in use since clients ask */
        uint64_t keys;     /* in use, in the present pass over all keys, which began with this round: */
        uint64_t began;
        uint64_t round; /* with which the latest pass began that has ended without success; 0: none */
    } in_vain;
    bool wanted;       /* a client waits for an index; */
    uint64_t asked_ns; /* and when one asked last */
    uint64_t added;    /* keys, in the quarter of a second before the last one that has ended, and in the present one: */
    uint64_t adding;
    uint64_t adding_ns; /* when that one began */
};

struct coordinator {
    const struct design *design;
    char space[COORD_NAME_LEN];
    struct rack_config config;
    uint64_t open_ns;   /* by then hosts of former coordinators are gone that are neither in the log nor heard of */
    bool changed;       /* hosts of a former configuration may be left: no member is let in */
    bool settled;       /* none is left any more: the log is to say so */
    bool hosts_known;   /* hosts of former coordinators are in the log */
    bool hosts_changed; /* since they were written to the log last */
    uint64_t term;      /* of its packets: its first life, above those of all coordinators before it */
    uint32_t life;      /* the latest that was given */
    uint32_t lives;     /* that are reserved: up to this one */
    uint64_t life_ns;   /* when it was given */
    uint32_t gone;      /* the highest of hosts that are gone, or of the beginning */
    uint64_t start_ns;
    uint64_t beat_ns; /* between two heartbeats of a switch */
    bool fresh;       /* nothing of a former coordinator can be left */
    bool keyed;       /* packets were tagged: head.from.port of a sender that has not joined is the number of its key */
    bool logged;      /* the caller keeps a log: what is to outlast the coordinator is told when it is written */
    bool unwritten;   /* the latest answer must wait for that */
    struct coord_station {
        uint64_t nonce; /* of its JOIN; 0: there is none */
        uint32_t life;
        uint32_t rules;    /* a switch's: version of those that it goes by; RULES_NONE: it has not said */
        uint64_t heard_ns; /* 0: never */
        uint64_t said;     /* number of the JOIN or heartbeat that counted last */
        struct net_addr at;
        uint32_t version; /* of a lock server's place: rises with every change of it */
        bool away;        /* hosts are told to send nothing to this place */
        bool stopped;     /* the member in it has said that it decides nothing any more */
        bool unwritten;   /* it is not in the log yet: no member hears of it */
    } server[RACK_SERVERS_MAX], switch_[RACKS_MAX];
    unsigned servers; /* that have joined, of config.servers */
    struct rules rules;
    struct rules wanted;        /* a later version: sent to no member before the caller has it on disk (coordinator_set_rules) */
    struct net_addr own;        /* the coordinator's address; none: not known */
    struct net_addr own_switch; /* in the coordinator's process: it yields its place to another one; port 0: there is none */
    bool yield;                 /* another one wants it: the caller stops its own, which then says that it leaves */
    uint32_t rouse_next;        /* the next host to be roused; beyond the last: none is */
    struct packet_drops drops;
    struct coord_member *members; /* by number, 1 to config.machines; the caller's */
    struct directory *directory;  /* kept by the caller; null: keys are dense */
    struct coord_names names;
    struct limits new_names; /* that one address may add */
    struct values *values;   /* kept by the caller; null: there are none */
};

#define COORD_BEAT_NS (100 * NS_PER_MS) /* between two heartbeats of lock servers and switches */

struct coord_params {
    const struct design *design;
    const struct knobs *knobs; /* of the design; null: the usual ones */
    const char *space;
    struct rack_identity identity; /* of the space; id 0: derived from its name (coord_identity_of_name) */
    uint64_t locks, lease_ns, retry_ns;
    uint64_t member_ns; /* the membership lease; 0: as long as the lock lease */
    uint64_t beat_ns;   /* between two heartbeats of a switch; 0: COORD_BEAT_NS */
    uint16_t machines, sessions, requests, servers;
    uint16_t racks;                 /* switches among which locks are divided, if the design can; 0: two */
    bool backup;                    /* a second switch may join */
    uint32_t life;                  /* above every one that was given before */
    bool fresh;                     /* nothing of a former coordinator can be left */
    enum pawl_keys keys;            /* 0: dense */
    uint32_t group;                 /* dense keys that share a lock; 0: one */
    struct directory *directory;    /* if not; service_open has its own */
    struct values *values;          /* beside locks; service_open has its own; null: none */
    bool follows;                   /* if the log has more locks, the space has them: another coordinator has let it grow */
    const struct rack_config *like; /* design's options are those of this configuration; null: `knobs` and the design say */
    uint64_t mistakes;              /* on purpose (cluster/mistakes.h) */
    const struct rack_state *state; /* what the log says; null: there is none, which is for tests. Its lives are reserved. */
};

/* The configuration that the parameters ask for. -EINVAL with the reason in *why, or 0. */
int coordinator_config(const struct coord_params *p, struct rack_config *out, const char **why);

/* Why hosts cannot go on when the space gets more locks; null: they can. Then lock servers and switches that have joined with
 * fewer locks are refused, join anew, and learn from the hosts what they hold; or lock servers go on with more (server_grow). */
const char *coordinator_keeps_size(const struct coord_params *p);

/* -EINVAL with the reason in *why, or 0. `members` has machines + 1. */
int coordinator_init(struct coordinator *c, const struct coord_params *p, struct coord_member *members, uint64_t now,
                     const char **why);

/* The answer, if there is one, goes to where the packet came from. Its length; 0: none. `answer` has room for any packet. */
uint32_t coordinator_packet(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now,
                            void *answer);

/* A packet that is to be sent to one of the hosts, and where. Its length; 0: there is none. */
uint32_t coordinator_more(struct coordinator *c, void *packet, struct net_addr *to);

/* A packet that tells a lock server or switch of a host that has joined, and where it goes: one for each of them, from *station = 0
 * on. Its length; 0: all were told. They take no packet of a host of which they were not told. */
uint32_t coordinator_news(const struct coordinator *c, uint16_t machine, unsigned *station, void *packet, struct net_addr *to);

/* Hosts whose lease has ended; how many are live. */
unsigned coordinator_tick(struct coordinator *c, uint64_t now);

/* Rules that an operator asked for, or null: the caller writes them to disk, then sets them. */
const struct rules *coordinator_wants(const struct coordinator *c);
void coordinator_set_rules(struct coordinator *c, const struct rules *rules);

/* Hosts of a former configuration are gone: the caller writes that to its log, then calls coordinator_set_settled. */
bool coordinator_is_settled(const struct coordinator *c);
void coordinator_set_settled(struct coordinator *c);

/* The hosts that there are, bit m of word m / 64; no other can hold anything. False: they are not known, or too many. */
bool coordinator_live(const struct coordinator *c, uint64_t live[COORD_LIVE_WORDS], uint64_t now);

/* The life of a host that may have this number, to be kept in the log; 0: the number is free. */
uint32_t coordinator_host_life(const struct coordinator *c, uint16_t number);

/* The identity of a space whose state is kept nowhere: the same after every restart. */
struct rack_identity coord_identity_of_name(const char *space);

/* How many lives are to be reserved now; 0: enough are. */
uint32_t coordinator_lives_wanted(const struct coordinator *c, uint64_t now);

/* Equal sums: the same rack. */
int32_t coord_config_sum(const struct rack_config *config);

/* A packet of that type with its head filled in; the caller adds the rest. identity: null if the sender does not know it. */
void coord_make(struct coord_packet *p, enum coord_type type, const char *space, const struct rack_identity *identity,
                uint64_t nonce);

/* Whether that is a packet of the coordinator's family, complete, and for the space with this short id; 0: for any. */
const struct coord_packet *coord_check(const void *data, uint32_t len, uint32_t space);

/* The length of a question without the zeros behind it, which make its datagram as long as the answer. An answer is never longer
 * than the question: a datagram with another's address as its sender does not multiply. 0: the datagram is too short for its
 * answer. All other packets have the length `len`. */
uint32_t coord_unpadded(const void *data, uint32_t len);

/* Whether a packet comes from the coordinator of the very space that a member joined, with no older configuration. */
bool coord_knows(const struct rack_identity *member, const struct coord_packet *p);

/* Whether it comes from the latest coordinator of which the member has heard, or from a later one: then *term is its. Packets of
 * deposed leaders may be late, and a leader that was stopped may not know yet that it is deposed (I22). */
bool coord_is_current(uint64_t *term, const struct coord_packet *p);

/* The answer of a coordinator that stands by, if the packet is a question. */
uint32_t coord_stand_by(const void *data, uint32_t len, const uint64_t id[2], const char *space, struct net_addr leader,
                        void *answer);

/* The answer to a packet for a space that the receiver does not have, if the packet is a question. Its length; 0: none. */
uint32_t coord_unknown_space(const struct coord_packet *p, struct coord_packet *answer);

/* Whether a coordinator of this space says that it stands by. It does not know the version of the configuration. */
bool coord_stands_by(const struct rack_identity *member, const struct coord_packet *p);

#endif
