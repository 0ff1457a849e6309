/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that are tagged with a key: PACKET_TAGGED. The tag is SipHash-2-4 over the datagram without the tag itself.
 *
 * All keys come from the cluster's, which coordinators, lock servers, switches, memory nodes and operators have:
 *
 *   member key N     of senders that have joined nothing yet, by the number of their key file. 0: the cluster's own, also between
 *                    coordinators, lock servers and switches. A host's key file has member key N and nothing else.
 *   host key         of a host's number and life in a space. The coordinator gives it to the host at joining, wrapped with the
 *                    member key. It tags every packet to and from the host, so that no host can speak for another.
 *
 *   admin key        beside the cluster's, and independent of it, in the files of operators and of the daemons that obey them. An
 *                    operator's command is tagged as every packet, and has a proof made with the admin key.
 *   ticket           by which a host knows that the coordinator allows the break of a session: from the nonce of the host's JOIN.
 *
 * A key file has up to two keys of a kind: the first tags, both are accepted. docs/operating.md says what that protects from. */
#ifndef PAWL_WIRE_SEAL_H
#define PAWL_WIRE_SEAL_H

#include "lib/base.h"
#include "wire/packet.h"
#include "wire/siphash.h"

#include <string.h>

struct seal_key {
    uint64_t k[2]; /* both 0: there is none */
};

static inline bool seal_known(const struct seal_key *k)
{
    return k->k[0] | k->k[1];
}

#define SEAL_KEYS 2u /* that are valid at a time */

/* The contents of a key file. */
struct seal_ring {
    uint32_t count;  /* of keys; 0: packets are not tagged */
    uint32_t number; /* 0: the cluster's keys; else member keys of this number */
    struct seal_key key[SEAL_KEYS];
    uint32_t admins; /* admin keys; 0: commands need the cluster's key alone */
    struct seal_key admin[SEAL_KEYS];
};

/* By which a program asks that has joined nothing. */
struct seal_asker {
    struct seal_key key; /* a member key; none: packets are not tagged */
    uint64_t number;     /* its number, which goes into head.from.port */
};

/* Purposes of derived keys. */
enum { SEAL_MEMBER = 1, SEAL_HOST = 2, SEAL_WRAP = 3, SEAL_TICKET = 4 };

/* A key that comes from another one, for one purpose. */
struct seal_key seal_derive(const struct seal_key *from, uint64_t purpose, uint64_t a, uint64_t b);
struct seal_key seal_member_key(const struct seal_key *cluster, uint64_t number);
struct seal_key seal_host_key(const struct seal_key *cluster, uint32_t space, uint16_t machine, uint32_t life);

/* The ticket for the break of that session of a host. */
static inline uint64_t seal_ticket(uint64_t nonce, uint32_t life, uint32_t session, uint32_t serial)
{
    return seal_derive(&(struct seal_key){{nonce, life}}, SEAL_TICKET, session, serial).k[0];
}

/* The tagging key of a file. */
struct seal_asker seal_asker(const struct seal_ring *r);

/* Wraps and unwraps a host key, for the JOIN with this nonce. */
struct seal_key seal_wrap(const struct seal_key *key, const struct seal_key *member, uint64_t nonce, uint32_t life);

/* ---- tags ---- */

/* The tag of a datagram that lies in two parts: a whole head, and what follows it. */
uint64_t seal_tag(const struct seal_key *k, const struct packet_head *head, const void *rest, uint64_t rest_len);

/* The same of a datagram in one piece. It has at least a head. */
static inline uint64_t seal_tag_of(const struct seal_key *k, const void *data, uint32_t len)
{
    return seal_tag(k, data, (const char *)data + sizeof(struct packet_head), len - sizeof(struct packet_head));
}

static inline bool seal_is_tagged(const void *data, uint32_t len)
{
    const struct packet_head *h = data;
    return len >= sizeof *h && len <= PACKET_MAX && h->version == PACKET_VERSION && h->features & PACKET_TAGGED;
}

static inline void seal_put(const struct seal_key *k, void *data, uint32_t len)
{
    struct packet_head *h = data;
    h->features |= PACKET_TAGGED;
    h->tag = seal_tag_of(k, data, len);
}

/* The head of a packet that is sent tagged, while the packet itself stays as it is. */
static inline void seal_head(const struct seal_key *k, const void *data, uint32_t len, struct packet_head *out)
{
    memcpy(out, data, sizeof *out);
    out->features |= PACKET_TAGGED;
    out->tag = seal_tag(k, out, (const char *)data + sizeof *out, len - sizeof *out);
}

/* Whether the tag is right. Then the packet is as it was before it was tagged. */
static inline bool seal_open(const struct seal_key *k, void *data, uint32_t len)
{
    struct packet_head *h = data;
    if (!seal_is_tagged(data, len) || h->tag != seal_tag_of(k, data, len))
        return false;
    h->features &= (uint8_t)~PACKET_TAGGED;
    h->tag = 0;
    return true;
}

/* ---- proofs of the admin key ---- */

/* Sets the proof of an operator's command, which lies in the packet; 0: there is no admin key. The packet does not change after it,
 * but for its tag. */
void seal_prove(const struct seal_ring *r, void *data, uint32_t len, uint64_t *proof);

/* The kind of key with which an operator's command came, for the log. `proved`: with the proof that was needed. */
static inline const char *seal_role(const struct seal_ring *r, bool proved)
{
    return !r || !r->count ? "none" : r->admins && proved ? "admin" : "cluster";
}

/* Whether the command of an open packet counts: the proof, which lies at that offset, is right, or none is needed. */
bool seal_proved(const struct seal_ring *r, const void *data, uint32_t len, uint32_t proof_at);

/* ---- datagrams without a head: a memory node's ---- */

/* Follows the datagram. */
struct seal_trail {
    uint64_t number; /* of the member key */
    uint64_t tag;    /* over the datagram and the number */
};

/* Writes the trail behind `len` bytes; there is room. The length of both. */
uint32_t seal_trail_put(const struct seal_asker *asker, void *data, uint32_t len);

/* Whether the trail's tag is right. *len: without the trail then. */
bool seal_trail_open(const struct seal_key *key, const void *data, uint32_t *len);

/* The same with either of the cluster's keys, by the number in the trail. */
bool seal_trail_open_any(const struct seal_ring *r, const void *data, uint32_t *len, struct seal_asker *used);

/* ---- receivers that have the cluster's keys ---- */

/* The key of a packet by its head: host keys of numbers up to `machines` in that life, member keys otherwise. `which` of the
 * ring's. */
struct seal_key seal_key_of(const struct seal_ring *r, unsigned which, const struct packet_head *h, uint16_t machines,
                            uint32_t life);

/* Opens a packet with either key of the ring. *used: the key, by which the answer is tagged. */
bool seal_open_any(const struct seal_ring *r, void *data, uint32_t len, uint16_t machines, uint32_t life, struct seal_key *used);

#endif
