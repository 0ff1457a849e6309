/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a coordinator: answers to another question, of another space, cut short or of a coordinator that was deposed come
 * first. They change nothing. */
#include "cluster/join.h"
#include "tests/check.h"
#include "world/world.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define TERM 7
#define PATIENCE_NS (60 * NS_PER_S) /* on a busy machine */

static struct udp coordinator;
static struct net_addr coordinator_at;
static bool over;      /* the thread ends with the next question */
static unsigned asked; /* questions so far */
static void (*answer)(struct net_addr from, const struct coord_packet *ask);
static const struct rack_identity identity = {.id = {7, 8}, .version = 3};

static void say(struct net_addr to, struct coord_packet a, uint32_t len)
{
    const struct udp_out out = {.to = to, .len = len, .data = &a};
    udp_send(&coordinator, &out, 1);
}

/* As if the answer were fine, but for one thing. */
static void say_wrong(struct net_addr to, const struct coord_packet *ask, struct coord_packet a)
{
    struct coord_packet wrong = a;
    wrong.head.nonce = ask->head.nonce + 1;
    say(to, wrong, sizeof wrong);
    wrong = a;
    wrong.space[0] ^= 1;
    say(to, wrong, sizeof wrong);
    say(to, a, sizeof a - 1);
    wrong = a;
    wrong.term = TERM - 1;
    if (ask->head.type != COORD_JOIN)
        say(to, wrong, sizeof wrong);
}

static void answer_wrong_first(struct net_addr from, const struct coord_packet *ask)
{
    struct coord_packet a;
    coord_make(&a, COORD_REFUSED, "test", NULL, ask->head.nonce);
    a.term = TERM;
    a.code = -ENOENT;
    a.stamp = 11;
    if (ask->head.type == COORD_JOIN) {
        say_wrong(from, ask, a);
        a.code = -EPERM;
    } else {
        struct coord_packet foreign = a;
        foreign.head.nonce++;
        say(from, foreign, sizeof foreign);
        a.head.type = COORD_THIS;
        say_wrong(from, ask, a);
        a.stamp = 12;
    }
    say(from, a, sizeof a);
}

static void *coordinate(void *unused)
{
    static struct udp_batch batch;
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
        for (unsigned i = 0, n = udp_wait(&coordinator, &batch, 0, world_now(&world_real) + NS_PER_S / 10); i < n; i++) {
            asked++;
            __atomic_load_n(&answer, __ATOMIC_ACQUIRE)(batch.packet[i].from, (const void *)batch.packet[i].data);
        }
    return unused;
}

/* ---- questions ---- */

static int ask_to_join(struct join_params p, uint64_t wait_ns, struct rack_welcome *welcome)
{
    struct udp u;
    uint64_t stamp;
    CHECK_EQ(udp_open(&u, net_v4(0x0100007f, 0)), 0);
    p.coordinators.at[p.coordinators.count++] = coordinator_at;
    p.role = COORD_HOST;
    p.space = "test";
    p.deadline = world_now(&world_real) + wait_ns;
    int rc = join(&u, &p, welcome, &stamp);
    udp_close(&u);
    return rc;
}

static int ask_which(struct coord_list list, uint64_t wait_ns, struct coord_packet *got)
{
    struct coord_packet ask;
    coord_make(&ask, COORD_WHICH, "test", NULL, 99);
    return ask_leader(&list, TERM, net_v4(0x0100007f, 0), &ask, sizeof ask, COORD_THIS, world_now(&world_real) + wait_ns, got,
                      sizeof *got);
}

static void expect(void (*next)(struct net_addr from, const struct coord_packet *ask))
{
    __atomic_store_n(&answer, next, __ATOMIC_RELEASE);
}

static void test_wrong_first(void)
{
    struct rack_welcome welcome;
    struct coord_packet got;
    expect(answer_wrong_first);
    CHECK_EQ(ask_to_join((struct join_params){.force = true}, PATIENCE_NS, &welcome), -EPERM);
    CHECK_EQ(ask_which(coord_list_one(coordinator_at), PATIENCE_NS, &got), 0);
    CHECK(got.head.nonce == 99 && got.term == TERM && got.stamp == 12);
}

/* ---- welcomes ---- */

static struct coord_welcome fine_welcome(uint64_t nonce)
{
    struct coord_welcome w = {.config = {.identity = identity, .machines = 3, .servers = COORD_WELCOME_SERVERS + 2}};
    coord_make(&w.packet, COORD_WELCOME, "test", &identity, nonce);
    w.config.space = w.packet.head.space;
    return w;
}

static void welcome_with(struct net_addr to, const struct coord_welcome *w)
{
    const struct udp_out out = {.to = to, .len = sizeof *w, .data = w};
    udp_send(&coordinator, &out, 1);
}

/* Welcomes of no space, of another one and of a configuration that the host has left behind come first, and a refusal by another
 * space. More lock servers than a WELCOME has are asked for in turn. */
static void answer_welcome(struct net_addr from, const struct coord_packet *ask)
{
    struct coord_welcome w = fine_welcome(ask->head.nonce);
    struct coord_packet refused;
    memset(&w.packet.identity, 0, sizeof w.packet.identity);
    welcome_with(from, &w);
    if (rack_id_known(&ask->identity)) {
        w.packet.identity = (struct rack_identity){.id = {7, 9}, .version = 3};
        welcome_with(from, &w);
        coord_make(&refused, COORD_REFUSED, "test", &w.packet.identity, ask->head.nonce);
        refused.code = -EPERM;
        say(from, refused, sizeof refused);
        w.packet.identity = (struct rack_identity){.id = {7, 8}, .version = 2};
        welcome_with(from, &w);
    }
    w.packet.identity = identity;
    w.first_server = (uint32_t)ask->head.index;
    for (unsigned i = 0; i < COORD_WELCOME_SERVERS; i++)
        w.servers[i] = net_v4(2, (uint16_t)(100 + w.first_server + i));
    welcome_with(from, &w);
}

static void test_welcome(void)
{
    struct rack_welcome welcome;
    struct join_params p = {.force = false};
    expect(answer_welcome);
    for (unsigned knows = 0; knows < 2; knows++) {
        memset(&welcome, 0, sizeof welcome);
        CHECK_EQ(ask_to_join(p, PATIENCE_NS, &welcome), 0);
        p.identity = identity;
        for (unsigned i = 0; i < COORD_WELCOME_SERVERS + 2; i++)
            CHECK_EQ(welcome.servers[i].port, 100 + i);
    }
}

static void answer_nonsense(struct net_addr from, const struct coord_packet *ask)
{
    struct coord_welcome w = fine_welcome(ask->head.nonce);
    w.config.racks = RACKS_MAX + 1;
    welcome_with(from, &w);
}

/* The fields of a WELCOME about the space must agree with each other and with their limits. */
static void test_nonsense(void)
{
    struct rack_welcome known;
    struct coord_welcome w = fine_welcome(1);
    CHECK(join_take(&known, &w));
    w.config.identity.id[0]++;
    CHECK(!join_take(&known, &w));
    w = fine_welcome(1);
    w.packet.head.space++;
    CHECK(!join_take(&known, &w));
    w.config.space++;
    CHECK(!join_take(&known, &w));
    w = fine_welcome(1);
    w.config.identity.features = ~0u;
    CHECK(!join_take(&known, &w));
    w = fine_welcome(1);
    w.config.servers = RACK_SERVERS_MAX + 1;
    CHECK(!join_take(&known, &w));
    w = fine_welcome(1);
    w.config.racks = RACKS_MAX + 1;
    CHECK(!join_take(&known, &w));
    w = fine_welcome(1);
    w.first_server = w.config.servers + 1;
    CHECK(!join_take(&known, &w));
    expect(answer_nonsense);
    CHECK_EQ(ask_to_join((struct join_params){.force = false}, PATIENCE_NS, &known), -EPROTO);
}

/* ---- refusals ---- */

static int code;                /* of the refusal */
static struct net_addr follows; /* where it says that the leader is */

static void answer_refused(struct net_addr from, const struct coord_packet *ask)
{
    struct coord_packet a;
    coord_make(&a, COORD_REFUSED, "test", NULL, ask->head.nonce);
    a.code = -EBUSY; /* is no answer to a question, and no refusal of it */
    if (ask->head.type != COORD_JOIN)
        say(from, a, sizeof a);
    a.code = code;
    a.at = follows;
    say(from, a, sizeof a);
}

static void test_refused(void)
{
    static const int refusals[] = {COORD_FOREIGN, -ENOENT, -EPROTOTYPE, -EACCES, COORD_WRONG_KEY, COORD_NO_KEY};
    struct coord_list list = coord_list_one(coordinator_at);
    struct rack_welcome welcome;
    struct coord_packet got;
    expect(answer_refused);
    for (unsigned i = 0; i < countof(refusals); i++) {
        code = refusals[i];
        CHECK_EQ(ask_which(list, PATIENCE_NS, &got), code);
        CHECK_EQ(ask_to_join((struct join_params){.force = false}, PATIENCE_NS, &welcome), code);
    }
    code = COORD_FOREIGN; /* counts for a host that knows its space, too */
    CHECK_EQ(ask_to_join((struct join_params){.identity = identity}, PATIENCE_NS, &welcome), code);
    code = 5; /* no error at all */
    CHECK_EQ(ask_to_join((struct join_params){.force = false}, PATIENCE_NS, &welcome), -EPROTO);
    code = COORD_NOT_LEADER; /* and who leads is not known, or the coordinator names itself */
    CHECK_EQ(ask_which(list, NS_PER_S / 10, &got), -ETIMEDOUT);
    CHECK_EQ(ask_to_join((struct join_params){.force = false}, NS_PER_S / 10, &welcome), code);
    follows = coordinator_at;
    CHECK_EQ(ask_which(list, NS_PER_S / 10, &got), -ETIMEDOUT);
}

/* An asker with a key takes nothing that is not tagged, but for the hint that its key is wrong: if no better answer comes. */
static void test_untagged(void)
{
    struct coord_list list = coord_list_one(coordinator_at);
    struct join_params p = {.coordinators.asker.key = {{1, 2}}};
    struct rack_welcome welcome;
    struct coord_packet got;
    list.asker = p.coordinators.asker;
    expect(answer_wrong_first);
    CHECK_EQ(ask_which(list, NS_PER_S / 10, &got), -ETIMEDOUT);
    CHECK_EQ(ask_to_join(p, NS_PER_S / 10, &welcome), -ETIMEDOUT);
    expect(answer_refused);
    static const int hints[] = {COORD_WRONG_KEY, COORD_NO_KEY};
    for (unsigned i = 0; i < countof(hints); i++) {
        code = hints[i];
        CHECK_EQ(ask_which(list, NS_PER_S / 10, &got), code);
        CHECK_EQ(ask_to_join(p, NS_PER_S / 10, &welcome), code);
    }
}

int main(void)
{
    pthread_t thread;
    struct coord_packet ask, got;
    CHECK_EQ(udp_open(&coordinator, net_v4(0x0100007f, 0)), 0);
    coordinator_at = coordinator.at;
    expect(answer_wrong_first);
    CHECK_EQ(pthread_create(&thread, NULL, coordinate, NULL), 0);
    test_wrong_first();
    test_welcome();
    test_nonsense();
    test_refused();
    test_untagged();
    struct coord_list list = coord_list_one(coordinator_at);
    coord_make(&ask, COORD_WHICH, "test", NULL, 99); /* from an address that is not this machine's */
    CHECK(ask_leader(&list, 0, net_v4(0x010000e0, 0), &ask, sizeof ask, COORD_THIS, 0, &got, sizeof got) < 0);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK(asked >= 2);
    udp_close(&coordinator);
    return 0;
}
