/* The coordinator of a rack: which machines are in it, under which numbers, where, and until when. Free of I/O, as packet designs
 * are: packets in, packets out.
 *
 *   JOIN     a host, lock server or switch wants to take part; sent again until it is answered, the nonce tells repetitions apart
 *   WELCOME  its number, its life, the space's config and the addresses of servers and switch
 *   REFUSED  why not: -EAGAIN is worth asking again; to a BEAT: this life is over
 *   BEAT     a host is alive; stamp as its clock says
 *   BEATEN   the stamp again: the host's lease now counts from it
 *   LEAVE    a host has nothing left and goes
 *   HERE     from a host's pool to servers and switch: its packets come from this address (net.h)
 *   WAKE     between processes of one host: look again
 *
 * A host's number is used again when its lease has surely run out, with a higher life. A coordinator that starts anew adopts the
 * hosts that beat, and gives out no number until every lease of those that do not has ended. */
#ifndef PAWL_CLUSTER_COORDINATOR_H
#define PAWL_CLUSTER_COORDINATOR_H

#include "designs/design.h"
#include "designs/packet.h"
#include "wire/udp.h"

#define COORD_NAME_LEN 32
#define COORD_DRIFT_DIVISOR 10000u

enum coord_type {
    COORD_JOIN = 1,
    COORD_WELCOME,
    COORD_REFUSED,
    COORD_BEAT,
    COORD_BEATEN,
    COORD_LEAVE,
    COORD_HERE,
    COORD_WAKE,
};

enum coord_role { COORD_HOST = 1, COORD_SERVER, COORD_SWITCH };

/* One form for all. head: nonce of the JOIN; from.machine the sender's number; epoch its life. */
struct coord_packet {
    struct packet_head head;
    uint32_t role;
    int32_t code; /* REFUSED */
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
};
_Static_assert(sizeof(struct coord_welcome) <= PACKET_MAX, "fits");

struct coord_member {
    uint64_t nonce;    /* of its JOIN; 0: adopted */
    uint64_t until_ns; /* its lease; 0: the number was never given */
    uint32_t life;
    bool live;
    struct net_addr at;
};

struct coordinator {
    const struct design *design;
    char space[COORD_NAME_LEN];
    struct rack_config config;
    uint64_t open_ns; /* gives out numbers from then on */
    uint32_t life;    /* the latest that was given */
    struct {
        uint64_t nonce;
        uint32_t life;
        struct net_addr at;
    } server[RACK_SERVERS_MAX], switch_[2];
    unsigned servers; /* that have joined, of config.servers */
    struct packet_drops drops;
    struct coord_member *members; /* by number, 1 to config.machines; the caller's */
};

struct coord_params {
    const struct design *design;
    const char *space;
    uint64_t locks, lease_ns, retry_ns;
    uint16_t machines, sessions, requests, servers;
    bool backup;   /* a second switch may join */
    uint32_t life; /* above every one that was given before: wall-clock time in seconds does */
    bool fresh;    /* nothing of a former coordinator can be left */
};

/* -EINVAL with the reason in *why, or 0. `members` has machines + 1. */
int coordinator_init(struct coordinator *c, const struct coord_params *p, struct coord_member *members, uint64_t now,
                     const char **why);

/* The answer, if there is one, goes to where the packet came from. Its length; 0: none. `answer` has room for any packet. */
uint32_t coordinator_packet(struct coordinator *c, const void *data, uint32_t len, struct net_addr from, uint64_t now,
                            void *answer);

/* Hosts whose lease has ended; how many are live. */
unsigned coordinator_tick(struct coordinator *c, uint64_t now);

uint32_t coord_space_id(const char *space);

/* A packet of that type with its head filled in; the caller adds the rest. */
void coord_make(struct coord_packet *p, enum coord_type type, const char *space, uint64_t nonce);

/* Whether that is a packet of the coordinator's family for this space, complete. */
const struct coord_packet *coord_check(const void *data, uint32_t len, uint32_t space);

#endif
