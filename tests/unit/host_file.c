/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a host's memory: a damaged one is refused, one that others can reach, too, a change that a thread did not complete is
 * undone, sessions end with their threads and leases, and a life of the host ends once. */
#include "cluster/host.h"
#include "designs/packet/packet.h"
#include "lib/explain.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSIONS 3
#define REQUESTS (COORD_CLAIMS_MAX + 4) /* of a session: more than one packet tells of */

static char path[HOST_PATH_LEN];
static struct host host;
static struct outbox out;

static struct rack_welcome welcome(const char *design)
{
    struct rack_welcome w;
    memset(&w, 0, sizeof w);
    w.said.config = (struct rack_config){.space = 7,
                                         .machines = 2,
                                         .sessions = SESSIONS,
                                         .requests = REQUESTS,
                                         .servers = 1,
                                         .server = {3},
                                         .locks = 1000,
                                         .lease_ns = 3600 * NS_PER_S,
                                         .retry_ns = NS_PER_MS};
    snprintf(w.said.design, sizeof w.said.design, "%s", design);
    snprintf(w.said.packet.space, sizeof w.said.packet.space, "test");
    w.said.packet.head.to.machine = 1;
    w.said.packet.head.generation = 5;
    w.said.switches[0] = net_v4(1, 9);
    return w;
}

static int create(const char *where, const char *design)
{
    struct rack_welcome w = welcome(design);
    const struct coord_list coordinators = coord_list_one(net_v4(1, 1));
    return host_create(where, &w, &coordinators, net_v4(1, 2), host_now());
}

static void start(void)
{
    host_close(&host);
    unlink(path);
    CHECK_EQ(create(path, "srvlock"), 0);
    CHECK_EQ(host_open(path, &host), 0);
}

/* ---- the file ---- */

static void files(void)
{
    struct host other;
    start();
    CHECK_EQ(create(path, "srvlock"), -EEXIST);
    CHECK_EQ(create("/dev/shm/pawl-no-such-folder/host", "srvlock"), -ENOENT);
    char sibling[HOST_PATH_LEN + 8];
    snprintf(sibling, sizeof sibling, "%s.other", path);
    CHECK_EQ(create(sibling, "word"), -PAWL_ENOTSUP); /* no packets */
    CHECK_EQ(create(sibling, "no such design"), -PAWL_ENOTSUP);
    CHECK_EQ(access(sibling, F_OK), -1); /* nothing is left behind */
    CHECK_EQ(host_open(sibling, &other), -ENOENT);
    CHECK_EQ(host_open(path, &other), 0);
    CHECK(other.header->machine == 1 && other.header->life == 5 && host_lives(&other, host_now()));
    host_close(&other);
    host_close(&other); /* twice is once */
}

#define DAMAGED(...)                                                                                                               \
    do {                                                                                                                           \
        struct host_header *h = host.header, good = *h;                                                                            \
        __VA_ARGS__;                                                                                                               \
        struct host other_;                                                                                                        \
        int rc_ = host_open(path, &other_);                                                                                        \
        *h = good;                                                                                                                 \
        if (rc_ != -PAWL_ESEGMENT)                                                                                                 \
            CHECK_FAIL("%s: %d", #__VA_ARGS__, rc_);                                                                               \
    } while (0)

static void damage(void)
{
    struct host other;
    struct stat s;
    start();
    DAMAGED(h->magic ^= 1);
    DAMAGED(memset(h->design, 'x', sizeof h->design));
    DAMAGED(memset(h->space, 'x', sizeof h->space));
    DAMAGED(strcpy(h->design, "no such design"));
    DAMAGED(strcpy(h->design, "word"));
    DAMAGED(h->config.sessions = 0);
    DAMAGED(h->config.requests = 0);
    DAMAGED(h->config.locks = 0);
    DAMAGED(h->config.servers = RACK_SERVERS_MAX + 1);
    DAMAGED(h->config.sessions = 1 << 15, h->config.requests = 1 << 15);
    DAMAGED(h->config.sessions++); /* the parts are elsewhere */
    DAMAGED(h->bytes += 4096);
    DAMAGED(h->sessions_at += CACHE_LINE);
    DAMAGED(h->bells_at += CACHE_LINE);
    DAMAGED(h->uses_at += CACHE_LINE);
    DAMAGED(h->memory_at += 4096);
    DAMAGED(h->undo_at += 4096);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && !fstat(fd, &s));
    CHECK_EQ(ftruncate(fd, s.st_size + 4096), 0);
    CHECK_EQ(host_open(path, &other), -PAWL_ESEGMENT);
    CHECK_EQ(ftruncate(fd, s.st_size), 0);
    CHECK_EQ(host_open(path, &other), 0); /* all of it is as it was */
    host_close(&other);
    host_close(&host);
    CHECK_EQ(ftruncate(fd, (off_t)sizeof(struct host_header) - 1), 0);
    CHECK_EQ(host_open(path, &other), -PAWL_ESEGMENT);
    close(fd);
    unlink(path);
}

/* Another user may have put a file there on purpose. */
static void owners(void)
{
    struct host other;
    char command[HOST_PATH_LEN + 8];
    start();
    CHECK_EQ(chmod(path, 0660), 0);
    CHECK_EQ(host_open(path, &other), -EACCES);
    CHECK(strstr(explained(), "chmod 600"));
    CHECK_EQ(chmod(path, 0600), 0);
    if (!geteuid()) {
        CHECK_EQ(chown(path, 1, 1), 0);
        CHECK_EQ(host_open(path, &other), -EACCES);
        CHECK(strstr(explained(), "belongs to user 1"));
        CHECK_EQ(chown(path, 0, 0), 0);
    }
    CHECK_EQ(host_open(path, &other), 0);
    other.header->magic--; /* of a former layout */
    host_close(&other);
    CHECK_EQ(host_open(path, &other), -PAWL_ESEGMENT);
    snprintf(command, sizeof command, "rm %s", path);
    CHECK(strstr(explained(), command));
}

/* Parts of the file do not overlap, and each is as large as the configuration says. */
static void parts(void)
{
    start();
    const struct host_header *h = host.header;
    uint64_t requests = (uint64_t)SESSIONS * REQUESTS;
    CHECK(h->sessions_at >= sizeof *h && h->bells_at >= h->sessions_at + SESSIONS * sizeof(struct host_session));
    CHECK(h->uses_at >= h->bells_at + requests * sizeof(uint32_t) && h->memory_at >= h->uses_at + requests * sizeof(uint32_t));
    CHECK(h->undo_at >= h->memory_at + host.design->host_bytes(&h->config) && h->bytes > h->undo_at);
}

/* ---- the end ---- */

static void ends(void)
{
    uint32_t session;
    struct host other;
    start();
    outbox_clear(&out);
    CHECK_EQ(host_session_open(&host, 1, UINT64_MAX, &out, &session), 0);
    CHECK(!host_retire_if_idle(&host, &out));
    host_session_close(&host, session, &out);
    CHECK(host_retire_if_idle(&host, &out));
    CHECK_EQ(access(path, F_OK), -1);
    CHECK_EQ(host_session_open(&host, 1, UINT64_MAX, &out, &session), -ESTALE);
    CHECK(!host_lives(&host, host_now()));
    CHECK_EQ(create(path, "srvlock"), 0); /* the next life */
    host_retire(&host);
    CHECK_EQ(access(path, F_OK), 0); /* whose file stays */

    start();
    CHECK(host_lives(&host, host.header->until_ns - 1) && !host_lives(&host, host.header->until_ns));
    host.header->until_ns = host_now();
    CHECK_EQ(host_open(path, &other), -ESTALE);
    CHECK_EQ(access(path, F_OK), -1);
    CHECK_EQ(host.header->dead, 1);

    start();
    host.header->dead = 1; /* the process that found so was killed before it removed the file */
    CHECK_EQ(host_open(path, &other), -ESTALE);
    CHECK_EQ(access(path, F_OK), -1);
}

/* ---- sessions ---- */

static void *open_and_end(void *arg)
{
    CHECK_EQ(host_session_open(&host, 1, UINT64_MAX, &out, arg), 0);
    return NULL;
}

static uint32_t opened_by_a_thread_that_ended(void)
{
    pthread_t thread;
    uint32_t session;
    CHECK_EQ(pthread_create(&thread, NULL, open_and_end, &session), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return session;
}

static uint32_t state_of(uint32_t session)
{
    return host.sessions[session].state;
}

static bool look_after(uint32_t from)
{
    uint32_t session = from;
    outbox_clear(&out);
    return host_look_after(&host, &session, &out);
}

static void sessions(void)
{
    uint32_t s[SESSIONS], more;
    start();
    outbox_clear(&out);
    for (unsigned i = 0; i < SESSIONS; i++)
        CHECK_EQ(host_session_open(&host, (uint16_t)(10 + i), UINT64_MAX, &out, &s[i]), 0);
    CHECK_EQ(host_session_open(&host, 1, UINT64_MAX, &out, &more), -PAWL_ELIMIT);
    CHECK(!look_after(0)); /* all of them live */
    uint32_t serial = host.sessions[s[1]].serial;
    host_enter(&host, &out);
    CHECK_EQ(host_break(&host, SESSIONS, serial, &out), -ENOENT);
    CHECK_EQ(host_break(&host, s[1], serial + 1, &out), -ENOENT);
    CHECK_EQ(state_of(s[1]), HOST_SESSION_OPEN);
    CHECK_EQ(host_break(&host, s[1], serial, &out), 0);
    CHECK_EQ(state_of(s[1]), HOST_SESSION_LOST);
    CHECK_EQ(host_break(&host, s[1], serial, &out), 0); /* a duplicate */
    host_leave(&host, &out);
    CHECK(!look_after(0)); /* lost, and its number is its process's until that closes it (I6) */
    CHECK_EQ(host_session_open(&host, 1, UINT64_MAX, &out, &more), -PAWL_ELIMIT);
    host_session_close(&host, s[1], &out);
    host_enter(&host, &out);
    CHECK_EQ(host_break(&host, s[1], serial, &out), -ENOENT);
    host_leave(&host, &out);

    host.sessions[s[0]].until_ns = host_now(); /* its lease is over */
    CHECK(look_after(0));
    CHECK_EQ(state_of(s[0]), HOST_SESSION_LOST);
    host_session_close(&host, s[0], &out);
    CHECK_EQ(state_of(s[2]), HOST_SESSION_OPEN);

    uint32_t orphan = opened_by_a_thread_that_ended();
    CHECK_EQ(state_of(orphan), HOST_SESSION_OPEN);
    CHECK(!host_is_left(&host)); /* s[2] lives */
    CHECK(look_after(0));
    CHECK_EQ(state_of(orphan), HOST_SESSION_FREE);
    serial = host.sessions[orphan].serial;
    CHECK_EQ(opened_by_a_thread_that_ended(), orphan); /* its number is used again */
    CHECK_EQ(host.sessions[orphan].serial, serial + 1);
    host_session_close(&host, s[2], &out);
    CHECK(host_is_left(&host)); /* the orphan's process is gone */
}

/* ---- a change that is not completed ---- */

static void *change_and_end(void *arg)
{
    struct outbox *o = arg;
    host_enter(&host, o);
    outbox_touch(o, host.memory + 64, 64);
    memset(host.memory + 64, 0x5a, 64);
    return NULL;
}

static void undone(void)
{
    char before[64];
    pthread_t thread;
    start();
    memcpy(before, host.memory + 64, sizeof before);
    uint32_t bell = host.bells[0], last = host.bells[SESSIONS * REQUESTS - 1];
    CHECK_EQ(pthread_create(&thread, NULL, change_and_end, &out), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(memcmp(host.memory + 64, before, sizeof before) != 0);
    host_lock(&host);
    CHECK(!memcmp(host.memory + 64, before, sizeof before));                             /* I5 */
    CHECK(host.bells[0] == bell + 1 && host.bells[SESSIONS * REQUESTS - 1] == last + 1); /* a waiter may not have been woken */
    host_unlock(&host);
    host_lock(&host);
    CHECK_EQ(host.bells[0], bell + 1);
    host_unlock(&host);
}

/* ---- claims ---- */

static void claims(void)
{
    static struct coord_claimed c;
    uint32_t session;
    uint64_t now = host_now();
    start();
    CHECK_EQ(host_session_open(&host, 1, now + NS_PER_S, &out, &session), 0);
    host_claims(&host, 0, now, &c);
    CHECK(!c.count && !c.packet.head.index);
    host_enter(&host, &out);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct packet_ask ask = {.request = session * REQUESTS + i, .port = 1, .mode = PAWL_EXCLUSIVE, .index = 500 + i};
        CHECK_EQ(host.design->acquire(host.memory, &ask, now, &out), PACKET_WAIT);
        if (i % 8 == 7)
            outbox_clear(&out); /* the packets do not matter here */
    }
    outbox_clear(&out);
    host_claims(&host, 0, now, &c);
    CHECK_EQ(c.count, COORD_CLAIMS_MAX);
    CHECK_EQ(c.packet.head.index, COORD_CLAIMS_MAX); /* there are more */
    CHECK(c.claim[2].index == 502 && c.claim[2].left_ns == NS_PER_S && c.claim[2].session == session && !c.claim[2].holds);
    CHECK_EQ(c.claim[2].pid, (uint32_t)getpid());
    host.sessions[session].until_ns = UINT64_MAX;
    host_claims(&host, COORD_CLAIMS_MAX, now, &c);
    CHECK_EQ(c.count, REQUESTS - COORD_CLAIMS_MAX);
    CHECK_EQ(c.packet.head.index, 0); /* that was all */
    CHECK(c.claim[0].index == 500 + COORD_CLAIMS_MAX && c.claim[0].left_ns == UINT64_MAX);
    host_leave(&host, &out);
    host_session_close(&host, session, &out);
    host_claims(&host, 0, now, &c);
    CHECK_EQ(c.count, 0); /* its waits ended with the session */
}

/* ---- places ---- */

static void places(void)
{
    struct coord_beat ack;
    struct net_addr found;
    memset(&ack, 0, sizeof ack);
    start();
    CHECK(host_switch(host.header, 0, &found) && net_addr_is(found, net_v4(1, 9)));
    CHECK(!host_switch(host.header, 1, &found));
    CHECK(!host_move(host.header, &ack)); /* nothing is known of any */
    ack.switches[0] = net_v4(1, 9);
    CHECK(!host_move(host.header, &ack));
    ack.switches[0] = net_v4(2, 9);
    CHECK(host_move(host.header, &ack));
    CHECK(host_switch(host.header, 0, &found) && net_addr_is(found, net_v4(2, 9)));
    memset(&ack, 0, sizeof ack);
    ack.switches[0].port = COORD_AWAY;
    CHECK(host_move(host.header, &ack));
    CHECK(!host_switch(host.header, 0, &found));

    memset(&ack, 0, sizeof ack);
    uint32_t version = host_places_version(host.header);
    ack.places = version + 1;
    ack.packet.role = 2; /* of a lock server that is not there */
    ack.packet.at = net_v4(3, 4);
    CHECK(!host_move(host.header, &ack));
    CHECK_EQ(host_places_version(host.header), version);
    ack.packet.role = 1;
    CHECK(host_move(host.header, &ack));
    CHECK(host_server(host.header, 0, &found) && net_addr_is(found, net_v4(3, 4)));
    CHECK_EQ(host_places_version(host.header), version + 1);
    ack.packet.at = net_v4(3, 5); /* a late acknowledgement does not go back */
    CHECK(!host_move(host.header, &ack));
    CHECK(host_server(host.header, 0, &found) && net_addr_is(found, net_v4(3, 4)));
}

int main(void)
{
    snprintf(path, sizeof path, "/dev/shm/pawl-test-host-%d", (int)getpid());
    files();
    damage();
    owners();
    parts();
    ends();
    sessions();
    undone();
    claims();
    places();
    host_close(&host);
    unlink(path);
    return 0;
}
