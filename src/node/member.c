/* SPDX-License-Identifier: Apache-2.0 */
#include "node/member.h"
#include "cluster/host.h"
#include "lib/log.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_NS (20 * NS_PER_MS) /* how often whether to stop, while it joins */
#define LATER_NS NS_PER_S        /* for so long a patient member waits for the answer to its JOIN that it is not time yet */
#define LEARN_NS (3 * NS_PER_S)  /* of asking which hosts there are: longer than leaders change */

static struct member_socket *socket_of(const struct member *m)
{
    return m->owner;
}

/* ---- its log ---- */

static void say(const struct member *m, enum log_level level, const char *what, const char *why)
{
    char event[64], at[NET_ADDR_TEXT], coordinator[NET_ADDR_TEXT];
    snprintf(event, sizeof event, "%s %s", m->join.role == COORD_SWITCH ? "switch" : "lock server", what);
    net_addr_print(m->join.at, at);
    net_addr_print(coord_list_at(&m->join.coordinators), coordinator);
    log_event(level, event, LOG_TEXT("space", m->join.space), LOG_TEXT("at", at),
              LOG_NUMBER("life", m->welcome.said.packet.head.generation), LOG_TEXT("coordinator", coordinator),
              LOG_TEXT("why", why));
}

/* Once for each change: whether a coordinator answers heartbeats, and which term it has. */
static void watch_coordinator(const struct member *m, uint64_t now)
{
    struct member_socket *s = socket_of(m);
    bool alone = member_is_alone(m, now);
    if (alone && !s->said.alone)
        say(m, LOG_LEVEL_WARNING, "hears no coordinator",
            "heartbeats are not answered: hosts go on until their membership leases end");
    if (!alone && s->said.alone)
        say(m, LOG_LEVEL_NOTICE, "hears a coordinator again", "heartbeats are answered");
    if (s->said.term && m->term > s->said.term)
        say(m, LOG_LEVEL_NOTICE, "follows another coordinator", "it has a later term");
    s->said.alone = alone;
    s->said.term = m->term;
}

static void say_news(const struct member *m, enum member_news news)
{
    switch (news) {
    case MEMBER_NOTHING:
        break;
    case MEMBER_JOINED:
        say(m, LOG_LEVEL_NOTICE, "joined anew", "its former life is over, and it begins with empty state");
        socket_of(m)->said.superseded = false;
        break;
    case MEMBER_RULES:
        say(m, LOG_LEVEL_INFO, "has new rules", "locks were divided anew, and it keeps those that it has");
        break;
    case MEMBER_STALE:
        say(m, LOG_LEVEL_INFO, "joins anew", "new rules give it other locks");
        break;
    case MEMBER_GROWN:
        say(m, LOG_LEVEL_NOTICE, "gets more locks", "the space has grown");
        break;
    case MEMBER_SUPERSEDED:
        if (!socket_of(m)->said.superseded) /* not for each heartbeat that is refused */
            say(m, LOG_LEVEL_WARNING, "is superseded", "the coordinator says that its life is over: it decides nothing");
        socket_of(m)->said.superseded = true;
        break;
    }
}

enum member_news member_hear(struct member *m, const void *data, uint32_t len)
{
    enum member_news news = member_packet(m, data, len, host_now());
    say_news(m, news);
    return news;
}

void member_turn(struct member *m)
{
    uint64_t now = host_now();
    if (now >= m->due_ns)
        watch_coordinator(m, now);
    member_tick(m, now);
}

/* ---- joining ---- */

static int explain_join(int rc, const struct member_params *p)
{
    char coordinator[COORD_LIST_TEXT];
    coord_list_print(&p->coordinators, coordinator);
    switch (rc) {
    case -EINTR:
        return explain(rc, "a signal came before the coordinator at %s had let this member in", coordinator);
    case -ETIMEDOUT:
        return explain(rc, "no coordinator answers at %s (start one with 'pawl serve')", coordinator);
    case -EAGAIN:
        return explain(rc,
                       "the coordinator at %s waits: for lock servers, for a lease to end, or for hosts to leave another switch",
                       coordinator);
    case COORD_NOT_LEADER:
        return explain(-EAGAIN, "the coordinators at %s stand by, and none leads", coordinator);
    case -ENOSPC:
        return explain(rc, "the space '%s' has all its lock servers (see pawl serve --servers and --own)", p->space);
    case -EBUSY:
        return explain(rc, "another switch has that place, and was heard of less than a lease ago");
    case -EINVAL:
        return explain(rc, "the space '%s' has fewer racks", p->space);
    case -ENOENT:
        return explain(rc, "the coordinator at %s has no space '%s'", coordinator, p->space);
    case COORD_FOREIGN:
        return explain(rc, "the coordinator at %s has another space '%s' than the one that was joined", coordinator, p->space);
    case -EPROTONOSUPPORT:
        return explain(rc, "packets of the space '%s' have features that this build does not know", p->space);
    case COORD_WRONG_KEY:
        return explain(rc,
                       p->ring && p->ring->count ? "the coordinator at %s has another key (--key)"
                                                 : "the coordinator at %s takes members with its key only (--key FILE)",
                       coordinator);
    case COORD_NO_KEY:
        return explain(rc, "the coordinator at %s has no key, and this member has one (--key)", coordinator);
    case -EACCES:
        return explain(rc,
                       "the coordinator at %s lets in lock servers and switches with the cluster's key only, and for addresses of "
                       "their own machine",
                       coordinator);
    case -EPROTOTYPE:
        return explain(rc, "there is a memory node at %s, which has neither lock servers nor switches", coordinator);
    case -EOPNOTSUPP:
        return explain(rc, "the design of the space '%s' has no %s", p->space, p->is_switch ? "switch" : "lock servers");
    default:
        return explain(rc, "cannot join the space '%s': %s", p->space, pawl_strerror(rc));
    }
}

static void send_packet(const struct member *m, struct net_addr to, const void *packet, uint32_t len, uint32_t answer_len)
{
    join_send(member_udp(m), to, &m->join.coordinators.asker, packet, len, answer_len);
}

/* All packets of its own are tagged as those of a member of the cluster. */
static void take_ring(struct member *m, const struct seal_ring *ring)
{
    if (!ring || !ring->count)
        return;
    m->ring = ring;
    m->join.coordinators.asker = seal_asker(ring);
    member_udp(m)->key = m->join.coordinators.asker.key;
}

static void hear_until(struct member *m, struct udp_batch *batch, uint64_t until)
{
    struct seal_key used;
    udp_wait(member_udp(m), batch, 0, until);
    for (unsigned i = 0; i < batch->count; i++) {
        void *data = batch->packet[i].data;
        uint32_t len = batch->packet[i].len;
        if (len < sizeof(struct packet_head) || len > PACKET_MAX || ((struct packet_head *)data)->family != PACKET_COORDINATOR)
            continue;
        if (m->roster ? roster_opens(m->roster, data, len, &used) : join_opens(&m->join.coordinators.asker, data, len))
            member_packet(m, data, len, host_now());
    }
}

/* Whether the coordinator's answer is the last word: else it may be another one later. A hint is, if no better answer came. */
static bool is_final(const struct member *m)
{
    if (!m->refused || m->refused == -EAGAIN || m->refused == COORD_NOT_LEADER)
        return false;
    return !join_is_hint(&m->join.coordinators.asker, m->refused) || host_now() - m->refused_ns >= LATER_NS;
}

static int join_first(struct member *m, const struct member_params *p, struct udp_batch *batch)
{
    uint64_t now = world_now(&world_real), end = p->patient ? max_u64(p->deadline, now + LATER_NS) : p->deadline;
    bool waits = true;
    for (member_begin(m, host_now()); !m->roster && waits && !*p->stop && !is_final(m); now = world_now(&world_real)) {
        member_tick(m, host_now());
        hear_until(m, batch, now + LOOK_NS);
        bool later = (m->refused == -EAGAIN || m->refused == COORD_NOT_LEADER) && host_now() - m->refused_ns < LATER_NS;
        waits = now < end || (p->patient && later);
    }
    if (!m->roster && *p->stop)
        return -EINTR;
    return m->roster ? 0 : m->refused ? m->refused : -ETIMEDOUT;
}

/* A member that is ready knows the hosts that there are: their packets are admitted, and their leases renewed, if the coordinator
 * ends right afterwards. */
static void learn_hosts(struct member *m, const volatile sig_atomic_t *stop, struct udp_batch *batch)
{
    uint64_t end = host_now() + LEARN_NS;
    for (bool known = false; !known && !*stop && host_now() < end;) {
        uint64_t answers = m->roster->answers;
        uint16_t from = m->roster->wanted;
        member_ask_hosts(m, host_now());
        hear_until(m, batch, world_now(&world_real) + ROSTER_ASK_NS);
        known = m->roster->answers != answers && !m->roster->wanted;
        if (m->roster->answers == answers)
            m->roster->wanted = from; /* once more */
    }
}

static int join_and_learn(struct member *m, const struct member_params *p)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    int rc = batch ? join_first(m, p, batch) : -ENOMEM;
    if (!rc)
        learn_hosts(m, p->stop, batch);
    free(batch);
    return rc;
}

ONCE int member_open(struct member *m, const struct member_params *p)
{
    memset(m, 0, sizeof *m);
    struct member_socket *s = calloc(1, sizeof *s);
    if (!s)
        return explain(-ENOMEM, "out of memory");
    int rc = udp_open(&s->udp, p->at);
    if (rc) {
        char at[NET_ADDR_TEXT];
        free(s);
        net_addr_print(p->at, at);
        return explain(rc, "cannot listen at %s: %s (--listen; 'ss -lunp' shows the process that has a port)", at,
                       pawl_strerror(rc));
    }
    *m = (struct member){.join = {.coordinators = p->coordinators,
                                  .role = p->is_switch ? COORD_SWITCH : COORD_SERVER,
                                  .space = p->space,
                                  .at = net_addr_known(p->known_as) ? p->known_as : s->udp.at,
                                  .rack = p->rack,
                                  .force = p->force},
                         .at = s->udp.at,
                         .world = &world_real,
                         .send = send_packet,
                         .owner = s,
                         .lives_only = net_addr_known(p->known_as),
                         .every_ns = COORD_BEAT_NS};
    m->join.at.reads = p->reads;
    take_ring(m, p->ring);
    rc = join_and_learn(m, p);
    if (rc) {
        udp_close(&s->udp);
        free(s);
        return explain_join(rc, p);
    }
    say(m, LOG_LEVEL_INFO, "joined", "it asked to join");
    return 0;
}

void member_meet(struct member *m, unsigned server)
{
    struct udp_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return;
    member_ask_again(m, server);
    hear_until(m, batch, world_now(&world_real) + LOOK_NS);
    free(batch);
}

void member_close(struct member *m)
{
    say(m, LOG_LEVEL_INFO, "ends", "it was told to stop, or could not begin");
    udp_close(member_udp(m));
    free(m->owner);
    free(m->roster);
    m->roster = NULL;
}

/* ---- questions ---- */

bool member_asked(const struct member *m, const void *data, uint32_t len, struct net_addr from, const struct seal_key *used)
{
    const struct packet_head *h = data;
    if (h->family != PACKET_COORDINATOR || h->type != COORD_WHICH)
        return false;
    if (len == sizeof(struct coord_packet)) { /* the answer is not longer */
        struct coord_packet answer;
        coord_make(&answer, COORD_THIS, m->welcome.said.packet.space, &m->welcome.said.config.identity, h->nonce);
        answer.head.from = m->welcome.said.packet.head.to;
        answer.role = m->join.role;
        const struct udp_out out = {.to = from, .len = sizeof answer, .data = &answer, .key = seal_known(used) ? used : NULL};
        udp_send(member_udp(m), &out, 1);
    }
    return true;
}
