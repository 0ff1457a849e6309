/* The coordinator of a rack: which machines are in it, under which numbers, where, and until when. Free of I/O, as packet designs
 * are: packets in, packets out.
 *
 *   JOIN     a host, lock server or switch wants to take part; sent again until it is answered, the nonce tells repetitions apart
 *   WELCOME  its number, its life, the space's config and the addresses of servers and switch
 *   REFUSED  why not: -EAGAIN is worth asking again; to a BEAT: this life is over
 *   BEAT     a host, lock server or switch is alive; stamp as its clock says, code: of its config. A switch says what it found
 *            when it looked for a machine in its locks: index its number, generation how many still name it
 *   BEATEN   the stamp again: the host's lease now counts from it. To a switch: look for this machine (index)
 *   LEAVE    a host has nothing left and goes
 *   HERE     from a host's pool to servers and switch: its packets come from this address (net.h)
 *   WAKE     between processes of one host: look again
 *   FIND     anybody: which index has this key? If nobody ever asked, it gets one, unless the asker only wants to know
 *   KEY_OF   anybody: which key has this index?
 *   FOUND    the answer to both, with the key, its index, and a code
 *   ROUSE    to a host: the switch has started anew, and should hear from it
 *   WHO      anybody: which hosts are there, from this number on?
 *   HOSTS    what the space is, and some of them
 *   CLAIMS   anybody to a host: what do your requests hold and wait for, from this one on?
 *   CLAIMED  some of them
 *
 * A host's number is used again when its lease has surely run out, with a higher life, and when the switch has found that no lock
 * names it any more. A coordinator that starts anew adopts the hosts, lock servers and switch that beat, if their config is its
 * own, and gives out no number until every lease of those that do not has ended. */
#ifndef PAWL_CLUSTER_COORDINATOR_H
#define PAWL_CLUSTER_COORDINATOR_H

#include "cluster/directory.h"
#include "designs/design.h"
#include "designs/packet.h"
#include "wire/udp.h"

#define COORD_NAME_LEN 32
#define COORD_LIVE_WORDS 16 /* machines up to 1023 are told; where there are more, none */
#define COORD_DRIFT_DIVISOR 10000u
#define COORD_LIVES_PER_S 4

enum coord_type {
    COORD_JOIN = 1,
    COORD_WELCOME,
    COORD_REFUSED,
    COORD_BEAT,
    COORD_BEATEN,
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
};

enum coord_role { COORD_HOST = 1, COORD_SERVER, COORD_SWITCH };

/* One form for all. head: nonce of the JOIN; from.machine the sender's number; epoch its life. */
struct coord_packet {
    struct packet_head head;
    uint32_t role;
    int32_t code; /* REFUSED; BEAT: coord_config_sum */
    uint64_t stamp;
    struct net_addr at; /* JOIN: where a server or switch listens; ip 0: where the packet came from. BEATEN: where the backup is */
    char space[COORD_NAME_LEN];
};

/* WELCOME goes on: */
struct coord_welcome {
    struct coord_packet packet; /* head.to.machine: the number; head.generation: the life */
    char design[COORD_NAME_LEN];
    struct rack_config config;
    struct net_addr servers[RACK_SERVERS_MAX];
    struct net_addr switch_at, backup_at;
    uint32_t live_known;             /* to a switch: */
    uint64_t live[COORD_LIVE_WORDS]; /* the hosts that there are, bit m of word m / 64; no other can hold anything */
};
_Static_assert(sizeof(struct coord_welcome) <= PACKET_MAX, "fits");

/* FIND, KEY_OF and FOUND go on: */
struct coord_key {
    struct coord_packet packet; /* head.index; code: 0, -ENOENT, -ENOSPC, -EINVAL */
    uint32_t look;              /* FIND: 1: do not add it; FOUND: the kind of keys, 0: dense */
    uint32_t len;
    char bytes[(DIRECTORY_KEY_MAX + 8) / 8 * 8];
};
_Static_assert(sizeof(struct coord_key) <= PACKET_MAX, "fits");

#define COORD_HOSTS_MAX 64

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
_Static_assert(sizeof(struct coord_hosts) <= PACKET_MAX, "fits");

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
        char label[COORD_LABEL_LEN];
    } claim[COORD_CLAIMS_MAX];
};
_Static_assert(sizeof(struct coord_claimed) <= PACKET_MAX, "fits");

struct coord_member {
    uint64_t nonce;    /* of its JOIN; 0: adopted */
    uint64_t until_ns; /* its lease; 0: the number was never given */
    uint32_t life;
    bool live;
    bool clean; /* no lock names it */
    struct net_addr at;
};

struct coordinator {
    const struct design *design;
    char space[COORD_NAME_LEN];
    struct rack_config config;
    uint64_t open_ns;    /* gives out numbers from then on */
    uint32_t life;       /* the latest that was given */
    uint32_t first_life; /* and at this time: */
    uint64_t start_ns;
    struct coord_station {
        uint64_t nonce; /* of its JOIN; 0: there is none */
        uint32_t life;
        struct net_addr at;
    } server[RACK_SERVERS_MAX], switch_[2];
    unsigned servers;    /* that have joined, of config.servers */
    uint32_t rouse_next; /* the next host to be roused; beyond the last: none is */
    struct packet_drops drops;
    struct coord_member *members; /* by number, 1 to config.machines; the caller's */
    struct directory *directory;  /* the caller's, who keeps it; null: keys are dense */
};

struct coord_params {
    const struct design *design;
    const char *space;
    uint64_t locks, lease_ns, retry_ns;
    uint16_t machines, sessions, requests, servers;
    bool backup;                 /* a second switch may join */
    uint32_t life;               /* above every one that was given before: wall-clock time in seconds does */
    bool fresh;                  /* nothing of a former coordinator can be left */
    enum pawl_keys keys;         /* 0: dense */
    struct directory *directory; /* if not; coordinating_open has its own */
    const char *journal; /* path of the file that keeps the directory; null: it ends with this process, which is for tests */
};

/* -EINVAL with the reason in *why, or 0. `members` has machines + 1. */
int coordinator_init(struct coordinator *c, const struct coord_params *p, struct coord_member *members, uint64_t now,
                     const char **why);

/* The answer, if there is one, goes to where the packet came from. Its length; 0: none. `answer` has room for any packet. */
uint32_t coordinator_packet(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now,
                            void *answer);

/* A packet that is to be sent to one of the hosts, and where. Its length; 0: there is none. */
uint32_t coordinator_more(struct coordinator *c, void *packet, struct net_addr *to);

/* Hosts whose lease has ended; how many are live. */
unsigned coordinator_tick(struct coordinator *c, uint64_t now);

uint32_t coord_space_id(const char *space);

/* Tells whether two speak of the same rack. */
int32_t coord_config_sum(const struct rack_config *config);

/* A packet of that type with its head filled in; the caller adds the rest. */
void coord_make(struct coord_packet *p, enum coord_type type, const char *space, uint64_t nonce);

/* Whether that is a packet of the coordinator's family for this space, complete. */
const struct coord_packet *coord_check(const void *data, uint32_t len, uint32_t space);

#endif
