/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of coordinators, the answers of one that stands by, and a service whose coordinator is deposed. */
#include "cluster/addresses.h"
#include "cluster/service.h"
#include "lib/explain.h"
#include "tests/check.h"
#include "world/sim_etcd.h"

#include <errno.h>
#include <stdlib.h>

/* ---- lists ---- */

static int parse(const char *text, struct coord_list *l)
{
    return coord_list_parse(text, strlen(text), l);
}

static void texts(void)
{
    static const char *const bad[] = {
        "",      ",",          "127.0.0.1",          "127.0.0.1:1,", ",127.0.0.1:1",       "127.0.0.1:0",
        "1.2.3", "1.2.3.4:7,", "1.2.3.4:7,,[::1]:7", "[::1],x y:7",  "1.2.3.4:7,1.2.3.4:0"};
    struct coord_list l;
    char text[COORD_LIST_TEXT];
    CHECK_EQ(parse("127.0.0.1,127.0.0.2:8,127.0.0.3:7", &l), 0);
    coord_list_print(&l, text);
    CHECK_STR(text, "127.0.0.1:7, 127.0.0.2:8, 127.0.0.3:7");
    CHECK_EQ(parse("[::1],[::3],[::2]:9", &l), 0);
    coord_list_print(&l, text);
    CHECK_STR(text, "[::1]:9, [::3]:9, [::2]:9");
    CHECK_EQ(coord_list_parse("127.0.0.1:7/space", strlen("127.0.0.1:7"), &l), 0);
    CHECK_EQ(l.count, 1);
    for (unsigned i = 0; i < countof(bad); i++)
        if (parse(bad[i], &l) != -EINVAL)
            CHECK_FAIL("'%s' was taken for a list of addresses", bad[i]);
    CHECK_EQ(parse("1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8:7", &l), 0);
    CHECK_EQ(parse("1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4,1.1.1.5,1.1.1.6,1.1.1.7,1.1.1.8,1.1.1.9:7", &l), -E2BIG);
    CHECK_EQ(parse("[::1],127.0.0.2,[::2]:9", &l), -EAFNOSUPPORT);
    static char longer[1000]; /* than an address can be, at the end and before it */
    memset(longer, 'x', sizeof longer - 1);
    CHECK_EQ(parse(longer, &l), -EINVAL);
    memcpy(longer + sizeof longer - sizeof ",127.0.0.1:7", ",127.0.0.1:7", sizeof ",127.0.0.1:7");
    CHECK_EQ(parse(longer, &l), -EINVAL);
    int rc = parse("no-such-host.invalid,127.0.0.1:7", &l);
    CHECK(rc == -ENOENT || rc == -EAGAIN);
}

static void turns(void)
{
    struct coord_list l, one = coord_list_one(net_v4(1, 7));
    CHECK_EQ(parse("127.0.0.1,127.0.0.2,127.0.0.3:7", &l), 0);
    struct net_addr first = coord_list_at(&l), other = net_v4(9, 9);
    coord_list_next(&l);
    CHECK(net_addr_is(coord_list_at(&l), l.at[1]));
    coord_list_follow(&l, first);
    CHECK(net_addr_is(coord_list_at(&l), first) && l.count == 3);
    coord_list_follow(&l, other); /* is added */
    CHECK(net_addr_is(coord_list_at(&l), other) && l.count == 4);
    coord_list_next(&l);
    CHECK(net_addr_is(coord_list_at(&l), first));
    coord_list_follow(&l, (struct net_addr){.port = 0}); /* it does not know: the next one */
    CHECK(net_addr_is(coord_list_at(&l), l.at[1]));
    coord_list_follow(&l, net_v4(8, 0)); /* no port: the next one, too */
    CHECK(net_addr_is(coord_list_at(&l), l.at[2]) && l.count == 4);
    for (unsigned i = 0; i < 2 * COORD_LIST_MAX; i++)
        coord_list_follow(&l, net_v4(100 + i, 7));
    CHECK_EQ(l.count, COORD_LIST_MAX); /* and no more */
    coord_list_next(&one);
    CHECK(net_addr_is(coord_list_at(&one), net_v4(1, 7)));
}

/* ---- one that stands by ---- */

static void stand_by(void)
{
    const uint64_t id[2] = {3, 4}, none[2] = {0, 0};
    const struct rack_identity ours = {.id = {3, 4}, .version = 9}, others = {.id = {3, 5}, .version = 1};
    struct coord_packet ask, answer;
    coord_make(&ask, COORD_JOIN, "space", NULL, 77);
    CHECK_EQ(coord_stand_by(&ask, sizeof ask, id, "space", net_v4(5, 6), &answer), sizeof answer);
    CHECK(answer.head.type == COORD_REFUSED && answer.code == COORD_NOT_LEADER && answer.head.nonce == 77 && !answer.term);
    CHECK(net_addr_is(answer.at, net_v4(5, 6)));
    CHECK(coord_stands_by(&ours, &answer) && !coord_stands_by(&others, &answer));
    CHECK_EQ(coord_stand_by(&ask, sizeof ask, none, "space", net_v4(5, 6), &answer), sizeof answer);
    CHECK(!coord_stands_by(&ours, &answer)); /* it has not read of which space it is */
    CHECK_EQ(coord_stand_by(&ask, sizeof ask, id, "other", net_v4(5, 6), &answer), 0);
    CHECK_EQ(coord_stand_by(&ask, sizeof ask - 1, id, "space", net_v4(5, 6), &answer), 0);
    coord_make(&ask, COORD_REFUSED, "space", NULL, 77); /* not a question: no two of them answer each other for ever */
    CHECK_EQ(coord_stand_by(&ask, sizeof ask, id, "space", net_v4(5, 6), &answer), 0);
    coord_make(&ask, COORD_LEAVE, "space", NULL, 77);
    CHECK_EQ(coord_stand_by(&ask, sizeof ask, id, "space", net_v4(5, 6), &answer), 0);
}

static void terms(void)
{
    struct coord_packet p;
    uint64_t term = 0;
    coord_make(&p, COORD_BEAT_ACK, "space", NULL, 1);
    p.term = 5;
    CHECK(coord_is_current(&term, &p) && term == 5);
    p.term = 4;
    CHECK(!coord_is_current(&term, &p) && term == 5);
    p.term = 5;
    CHECK(coord_is_current(&term, &p));
    p.term = 6;
    CHECK(coord_is_current(&term, &p) && term == 6);
}

/* ---- services on one etcd ---- */

struct one {
    struct sim_etcd_client client;
    struct store_etcd store;
    struct service service;
};

static struct sim_etcd server;
static struct one a, b;

/* One that stands by has the settings of the one that leads, or is refused. */
static void peek(const struct coord_params *p, const struct state_params *where)
{
    struct coord_params other = *p;
    CHECK_EQ(service_peek(p, where), 0);
    other.machines = 0;
    CHECK_EQ(service_peek(&other, where), -EINVAL);
    CHECK(strstr(explained(), "must not be 0"));
    for (other = *p, other.keys++; other.keys <= PAWL_KEYS_DENSE; other.keys++) {
        CHECK_EQ(service_peek(&other, where), -EINVAL);
        CHECK(strstr(explained(), "--keys as they were"));
    }
    other = *p;
    other.lease_ns *= 2;
    CHECK_EQ(service_peek(&other, where), -EINVAL);
    CHECK(strstr(explained(), "has another lease"));
    const uint64_t lease_ns = where->etcd->leader.seen.term.lease_ns;
    where->etcd->leader.seen.term.lease_ns = 0; /* none leads: the settings may change */
    int rc = service_peek(&other, where);
    CHECK(!rc || where->etcd->leader.seen.term.lease_ns == lease_ns);
}

static int start(struct one *o, uint64_t nonce, bool fresh)
{
    const struct coord_params p = {.design = design_find("srvlock"),
                                   .space = "space",
                                   .locks = 100,
                                   .lease_ns = 10 * NS_PER_S,
                                   .retry_ns = NS_PER_MS,
                                   .machines = 4,
                                   .sessions = 4,
                                   .requests = 4,
                                   .servers = 1,
                                   .fresh = fresh,
                                   .keys = PAWL_KEYS_NAMED};
    const struct state_params where = {.etcd = &o->store, .how = fresh ? STORE_FRESH : STORE_CONTINUE, .id = {8, 9}, .life = 50};
    const struct leader_params l = {.etcd = &o->client.etcd,
                                    .prefix = "",
                                    .space = "space",
                                    .place = "etcd://here",
                                    .lease_ns = NS_PER_S,
                                    .nonce = nonce,
                                    .at = net_v4((uint32_t)nonce, 7)};
    CHECK_EQ(leader_open(&o->store.leader, &l), 0);
    CHECK_EQ(store_etcd_look(&o->store, UINT64_MAX), 0);
    o->client.now_ns += fresh ? 0 : 2 * NS_PER_S;
    if (!fresh)
        peek(&p, &where);
    CHECK(leader_is_vacant(&o->store.leader));
    int rc = leader_take(&o->store.leader);
    return rc ? rc : service_open(&o->service, &p, &where, o->client.now_ns);
}

/* The index of a name; negative: there is no answer, or a refusal. */
static int64_t find(struct one *o, const char *name, uint64_t *term)
{
    static struct service_answer answer;
    struct coord_key k;
    memset(&k, 0, sizeof k);
    coord_make(&k.packet, COORD_FIND, "space", NULL, 1);
    k.len = (uint32_t)strlen(name);
    memcpy(k.bytes, name, k.len);
    CHECK(service_packet(&o->service, &k, sizeof k, net_v4(1, 1), o->client.now_ns, &answer));
    if (!service_commit(&o->service, &answer, 1, o->client.now_ns))
        return -ETIMEDOUT;
    memcpy(&k, answer.bytes, sizeof k);
    *term = k.packet.term;
    return k.packet.code ? k.packet.code : (int64_t)k.packet.head.index;
}

static void services(void)
{
    uint64_t term, later;
    sim_etcd_init(&server, NULL, 1);
    sim_etcd_client_init(&a.client, &server, NULL);
    sim_etcd_client_init(&b.client, &server, NULL);
    CHECK_EQ(start(&a, 10, true), 0);
    CHECK(service_leads(&a.service));
    int64_t x = find(&a, "x", &term), y = find(&a, "y", &term);
    CHECK(x >= 0 && y >= 0 && x != y && term);
    /* Another one takes over while the first was stopped: its clock has not gone on. */
    CHECK_EQ(start(&b, 20, false), 0);
    CHECK_EQ(find(&b, "x", &later), x);
    CHECK(later > term); /* members drop packets of the first one from now on */
    CHECK_EQ(find(&b, "y", &later), y);
    /* The first one believes in its lease. A known name changes nothing, so it answers, with its old term. */
    CHECK_EQ(find(&a, "x", &later), x);
    CHECK_EQ(later, term);
    /* A new name is refused by its term, and all that follows. */
    CHECK_EQ(find(&a, "z", &term), -ETIMEDOUT);
    CHECK_EQ(find(&a, "x", &term), -ETIMEDOUT);
    CHECK(!service_leads(&a.service));
    CHECK(find(&b, "z", &later) >= 0);
    /* By its own clock, too, it is silent when its lease is over: with nothing to write. */
    b.client.now_ns += NS_PER_S;
    CHECK_EQ(find(&b, "x", &later), -ETIMEDOUT);
    service_close(&a.service);
    service_close(&b.service);
    sim_etcd_free(&server);
}

int main(void)
{
    texts();
    turns();
    stand_by();
    terms();
    services();
    return 0;
}
