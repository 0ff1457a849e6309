/* SPDX-License-Identifier: Apache-2.0 */
/* Leaders and the log in etcd, over a simulated one whose requests are lost, late, or executed without an answer: every append is
 * in the log once, in order, or the term is over; a deposed leader changes nothing; damage is named by its key. */
#include "cluster/state.h"
#include "lib/explain.h"
#include "lib/hash.h"
#include "tests/check.h"
#include "world/sim_etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LEASE NS_PER_S
#define LOCKS 2000000u

static struct sim_etcd server;

struct one {
    struct sim_etcd_client client;
    struct store_etcd store;
    struct rack_state state;
};
static struct one a, b;

static void pass(uint64_t ns)
{
    a.client.now_ns += ns;
    b.client.now_ns += ns;
}

static void begin(struct one *o, const char *space)
{
    memset(o, 0, sizeof *o);
    sim_etcd_client_init(&o->client, &server, NULL);
    const struct leader_params p = {.etcd = &o->client.etcd,
                                    .prefix = "test",
                                    .space = space,
                                    .place = "etcd://here/test",
                                    .lease_ns = LEASE,
                                    .nonce = o == &a ? 1000 : 2000,
                                    .at = net_v4(1, o == &a ? 1 : 2)};
    CHECK_EQ(leader_open(&o->store.leader, &p), 0);
}

static void forget(struct one *o)
{
    if (o->store.store.ops)
        o->store.store.ops->close(&o->store.store);
    state_free(&o->state);
    memset(&o->state, 0, sizeof o->state);
}

static int open_it(struct one *o, enum store_how how)
{
    struct store_identity identity = {.space = "space", .id = {7, 8}};
    forget(o);
    if (how == STORE_FRESH) {
        o->state.config = (struct state_config){.design = "srvlock", .config = {.locks = LOCKS, .keys = PAWL_KEYS_NAMED}};
        o->state.lives = 5;
        directory_init(&o->state.directory, PAWL_KEYS_NAMED, LOCKS);
    }
    return store_etcd_open(&o->store, how, &identity, state_take, state_each, &o->state);
}

static int look(struct one *o)
{
    return leader_look(&o->store.leader, UINT64_MAX, NULL, NULL);
}

static int lead(struct one *o)
{
    int rc = look(o);
    return rc ? rc : leader_take(&o->store.leader);
}

static int append_name(struct one *o, unsigned i)
{
    uint8_t record[STATE_KEY_MAX];
    const struct state_key k = {.index = directory_index(&o->state.directory, i), .generation = 7};
    memcpy(record, &k, sizeof k);
    int len = snprintf((char *)record + sizeof k, 32, "name %u", i);
    const struct store_record r = {.type = STATE_NAME, .len = (uint16_t)(sizeof k + (size_t)len), .data = record};
    int rc = o->store.store.ops->append(&o->store.store, &r, 1);
    if (!rc && state_take(&o->state, &r))
        return -EPROTO;
    return rc;
}

static void restart(void)
{
    sim_etcd_free(&server);
    forget(&a);
    forget(&b);
    sim_etcd_init(&server, NULL, 1);
    begin(&a, "space");
    begin(&b, "space");
}

/* ---- leaders ---- */

static void test_leaders(void)
{
    restart();
    CHECK(!leader_is_vacant(&a.store.leader)); /* it has not looked */
    CHECK_EQ(lead(&a), 0);
    CHECK(leader_leads(&a.store.leader));
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    CHECK_EQ(look(&b), 0);
    CHECK(!leader_is_vacant(&b.store.leader));
    CHECK(net_addr_is(b.store.leader.seen.term.at, net_v4(1, 1)));
    /* Renewals keep it. */
    for (unsigned i = 0; i < 20; i++) {
        pass(LEASE / 4);
        CHECK(leader_renew(&a.store.leader));
        CHECK_EQ(look(&b), 0);
        CHECK(!leader_is_vacant(&b.store.leader));
    }
    /* Its own lease ends before the other may take over. */
    pass(LEASE - LEASE / 8000);
    CHECK(!leader_leads(&a.store.leader));
    CHECK(!leader_is_vacant(&b.store.leader));
    pass(LEASE / 2000);
    CHECK(leader_is_vacant(&b.store.leader));
    CHECK_EQ(leader_take(&b.store.leader), 0);
    CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
    CHECK_EQ(b.store.leader.number, 2);
    CHECK_EQ(append_name(&a, 0), -ESTALE);
    CHECK(strstr(explained(), "leads no more") != NULL);
    /* One that saw an older beat cannot take over. */
    CHECK_EQ(look(&a), 0);
    CHECK_EQ(append_name(&b, 0), 0);
    CHECK_EQ(leader_take(&a.store.leader), -EBUSY);
    /* A leader that resigns is followed at once. */
    leader_resign(&b.store.leader);
    CHECK_EQ(look(&a), 0);
    CHECK(leader_is_vacant(&a.store.leader));
    CHECK_EQ(leader_take(&a.store.leader), 0);
    CHECK_EQ(open_it(&a, STORE_CONTINUE), 0);
    CHECK_EQ(a.state.directory.count, 1);
}

/* The lease counts from before the request: one that took longer than it is void. */
static void test_slow_takeover(void)
{
    restart();
    a.client.fates[0] = SIM_ETCD_ANSWERED; /* of the look */
    a.client.fates[1] = SIM_ETCD_ANSWER_LOST;
    a.client.fate_count = 2;
    CHECK_EQ(lead(&a), 0); /* found out by reading */
    CHECK(leader_leads(&a.store.leader));
    restart();
    a.client.fates[0] = SIM_ETCD_ANSWERED;
    a.client.fates[1] = SIM_ETCD_LOST;
    a.client.fate_count = 2;
    CHECK_EQ(lead(&a), -EBUSY);
    /* A takeover that arrives late names a leader that does not lead; the next one waits for its lease and goes on. */
    restart();
    a.client.fates[0] = SIM_ETCD_ANSWERED;
    a.client.fates[1] = SIM_ETCD_LATE;
    a.client.fate_count = 2;
    CHECK_EQ(lead(&a), -EBUSY);
    sim_etcd_arrive(&server);
    CHECK(!leader_leads(&a.store.leader));
    CHECK_EQ(look(&a), 0);
    CHECK(!leader_is_vacant(&a.store.leader));
    pass(2 * LEASE);
    CHECK(leader_is_vacant(&a.store.leader));
    CHECK_EQ(leader_take(&a.store.leader), 0);
}

/* ---- unknown outcomes ---- */

static void count_names(struct one *o, unsigned names)
{
    CHECK_EQ(o->state.directory.count, names);
    for (unsigned i = 0; i < names; i++) {
        char name[32];
        uint64_t cell;
        int len = snprintf(name, sizeof name, "name %u", i);
        CHECK_EQ(directory_find(&o->state.directory, name, (uint32_t)len, &cell), 0);
        CHECK_EQ(cell, i);
    }
}

/* Every fate of two attempts of an append: it is in the log once; late copies change nothing, in this term and after it. */
static void test_unknown(void)
{
    for (unsigned first = 0; first < SIM_ETCD_FATES; first++)
        for (unsigned second = 0; second < SIM_ETCD_FATES; second++)
            for (unsigned arrive = 0; arrive < 3; arrive++) {
                restart();
                CHECK_EQ(lead(&a), 0);
                CHECK_EQ(open_it(&a, STORE_FRESH), 0);
                CHECK_EQ(append_name(&a, 0), 0);
                a.client.fates[0] = (enum sim_etcd_fate)first;
                a.client.fates[1] = (enum sim_etcd_fate)second;
                a.client.fate = 0;
                a.client.fate_count = 2;
                CHECK_EQ(append_name(&a, 1), 0);
                if (arrive == 0)
                    sim_etcd_arrive(&server);
                CHECK_EQ(append_name(&a, 2), 0);
                if (arrive == 1)
                    sim_etcd_arrive(&server);
                leader_resign(&a.store.leader);
                CHECK_EQ(lead(&b), 0);
                if (arrive == 2)
                    sim_etcd_arrive(&server);
                CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
                count_names(&b, 3);
            }
}

/* No answer until the lease ends: the term is over, and the next leader has the append or has it not, but nothing is doubled. */
static void test_never_answered(void)
{
    for (unsigned fate = SIM_ETCD_LOST; fate < SIM_ETCD_FATES; fate++) {
        restart();
        CHECK_EQ(lead(&a), 0);
        CHECK_EQ(open_it(&a, STORE_FRESH), 0);
        CHECK_EQ(append_name(&a, 0), 0);
        for (unsigned i = 0; i < countof(a.client.fates); i++)
            a.client.fates[i] = (enum sim_etcd_fate)fate;
        a.client.fate = 0;
        a.client.fate_count = countof(a.client.fates);
        a.store.leader.until_ns = a.client.now_ns + LEASE / 10; /* a few attempts */
        CHECK_EQ(append_name(&a, 1), -ESTALE);
        CHECK(!leader_leads(&a.store.leader));
        a.client.fate_count = 0;
        CHECK_EQ(look(&b), 0);
        pass(2 * LEASE);
        CHECK_EQ(look(&b), 0);
        CHECK(leader_is_vacant(&b.store.leader));
        CHECK_EQ(leader_take(&b.store.leader), 0);
        CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
        sim_etcd_arrive(&server);
        count_names(&b, fate == SIM_ETCD_ANSWER_LOST ? 2 : 1);
        CHECK_EQ(append_name(&b, fate == SIM_ETCD_ANSWER_LOST ? 2 : 1), 0);
    }
}

static void test_full(void)
{
    restart();
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    server.full = true;
    CHECK_EQ(append_name(&a, 0), -ENOSPC);
    CHECK(leader_leads(&a.store.leader));
    server.full = false;
    CHECK_EQ(append_name(&a, 0), 0);
    leader_resign(&a.store.leader);
    CHECK_EQ(lead(&b), 0);
    CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
    count_names(&b, 1);
}

/* ---- snapshots ---- */

static void test_snapshots(void)
{
    enum { NAMES = 60000 }; /* several pieces */
    restart();
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    for (unsigned i = 0; i < NAMES; i++) {
        char name[32];
        int len = snprintf(name, sizeof name, "name %u", i);
        CHECK_EQ(directory_put(&a.state.directory, directory_index(&a.state.directory, i), 7, name, (uint32_t)len), 0);
    }
    a.client.fates[0] = SIM_ETCD_ANSWER_LOST;
    a.client.fates[1] = SIM_ETCD_LATE;
    a.client.fate = 0;
    a.client.fate_count = 2;
    CHECK_EQ(a.store.store.ops->snapshot(&a.store.store, state_each, &a.state), 0);
    CHECK_EQ(append_name(&a, NAMES), 0);
    CHECK(server.compacted != 0);
    uint64_t commits = server.commits;
    CHECK_EQ(a.store.store.ops->snapshot(&a.store.store, state_each, &a.state), 0);
    CHECK(server.commits - commits >= 3); /* two pieces and the head */
    sim_etcd_arrive(&server);
    CHECK(sim_etcd_find(&server, "test/space/log/0000000000000001") == NULL);
    CHECK(sim_etcd_find(&server, "test/space/snap/00000001/00000000") == NULL);
    for (unsigned i = 0; i < server.count; i++)
        CHECK(server.pairs[i].len <= ETCD_VALUE_MAX);
    CHECK_EQ(append_name(&a, NAMES + 1), 0);
    leader_resign(&a.store.leader);
    CHECK_EQ(lead(&b), 0);
    CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
    count_names(&b, NAMES + 2);
    /* A leader that loses its term between the pieces and the head leaves the log as it was. */
    uint64_t generation = b.store.generation;
    CHECK_EQ(look(&a), 0);
    pass(2 * LEASE);
    CHECK_EQ(leader_take(&a.store.leader), 0);
    CHECK_EQ(b.store.store.ops->snapshot(&b.store.store, state_each, &b.state), -ESTALE);
    CHECK_EQ(open_it(&a, STORE_CONTINUE), 0);
    CHECK_EQ(a.store.generation, generation);
    count_names(&a, NAMES + 2);
    /* --fresh begins with nothing. */
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    CHECK_EQ(append_name(&a, 0), 0);
    leader_resign(&a.store.leader);
    CHECK_EQ(lead(&b), 0);
    CHECK_EQ(open_it(&b, STORE_CONTINUE), 0);
    count_names(&b, 1);
}

/* ---- damage ---- */

static void test_damage(void)
{
    enum { NAMES = 3 };
    uint64_t damaged = 0;
    for (unsigned pair = 0;; pair++) {
        restart();
        CHECK_EQ(lead(&a), 0);
        CHECK_EQ(open_it(&a, STORE_FRESH), 0);
        for (unsigned i = 0; i < NAMES; i++)
            CHECK_EQ(append_name(&a, i), 0);
        if (pair == server.count)
            break;
        bool lead_key = strstr(server.pairs[pair].key, "/beat") || strstr(server.pairs[pair].key, "/term");
        for (uint32_t byte = 0; byte < server.pairs[pair].len && !lead_key; byte++) {
            server.pairs[pair].value[byte] ^= 0x10;
            int rc = open_it(&a, STORE_CONTINUE);
            CHECK(rc == -EBADMSG || rc == -EINVAL); /* -EINVAL: another version, another space */
            CHECK(strstr(explained(), "key test/space/") || rc == -EINVAL || strstr(explained(), "another etcd cluster"));
            CHECK(strstr(explained(), "etcd://here/test") != NULL);
            server.pairs[pair].value[byte] ^= 0x10;
            damaged++;
        }
        CHECK_EQ(open_it(&a, STORE_CONTINUE), 0);
        count_names(&a, NAMES);
        char key[ETCD_KEY_LEN];
        snprintf(key, sizeof key, "%s", server.pairs[pair].key);
        if (strstr(key, "/beat") || strstr(key, "/term"))
            continue;
        sim_etcd_remove(&server, &server.pairs[pair]);
        int rc = open_it(&a, STORE_CONTINUE);
        CHECK_EQ(rc, strstr(key, "head") ? -ENOENT : -EBADMSG);
        if (rc == -EBADMSG)
            CHECK(strstr(explained(), key) != NULL);
        bool last = strstr(key, "/last");
        if (rc == -EBADMSG && (strstr(key, "/log/") || last)) {
            CHECK_EQ(open_it(&a, STORE_RESTORE), 0);
            CHECK_EQ(a.store.store.ops->snapshot(&a.store.store, state_each, &a.state), 0);
            CHECK_EQ(open_it(&a, STORE_CONTINUE), 0);
            CHECK_EQ(a.state.directory.count == NAMES, last);
        }
    }
    printf("%" PRIu64 " flipped bytes refused\n", damaged);
    CHECK(damaged > 300);
}

/* Values that are shorter than they were. */
static void test_cut(void)
{
    restart();
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    CHECK_EQ(append_name(&a, 0), 0);
    for (unsigned pair = 0; pair < server.count; pair++) {
        struct sim_etcd_pair *p = &server.pairs[pair];
        uint32_t whole = p->len;
        if (strstr(p->key, "/beat") || strstr(p->key, "/term"))
            continue;
        for (p->len = 0; p->len < whole; p->len++) {
            int rc = open_it(&a, STORE_CONTINUE);
            CHECK(rc == -EBADMSG || rc == -EINVAL);
        }
        CHECK_EQ(open_it(&a, STORE_CONTINUE), 0);
        count_names(&a, 1);
    }
}

/* As store_etcd.c has it before the records of an append. */
struct part {
    uint64_t number, before, check;
};

/* The checksum is right, and the records behind it cannot be: one is longer than the value, or shorter than the head of a record,
 * or of a type that there is not. */
static void test_forged(void)
{
    restart();
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    CHECK_EQ(append_name(&a, 0), 0);
    struct sim_etcd_pair *p = sim_etcd_find(&server, "test/space/log/0000000000000001");
    CHECK(p && p->len > sizeof(struct part) + 4);
    uint32_t whole = p->len;
    for (unsigned how = 0; how < 4; how++) {
        uint8_t *records = (uint8_t *)p->value + sizeof(struct part), type = records[0], length = records[2];
        struct part part;
        records[0] = how == 2 ? UINT8_MAX : type;
        records[2] = (uint8_t)(length + (how == 0));
        p->len = how == 1 ? (uint32_t)sizeof part + 2 : whole;
        memcpy(&part, p->value, sizeof part);
        part.check = hash_bytes(records, p->len - sizeof part, hash_bytes(&part, offsetof(struct part, check), 0));
        memcpy(p->value, &part, sizeof part);
        int rc = open_it(&a, STORE_CONTINUE);
        CHECK_EQ(rc, how == 3 ? 0 : -EBADMSG);
        CHECK(!rc || strstr(explained(), "a record that cannot be"));
        records[0] = type;
        records[2] = length;
        p->len = whole;
    }
    count_names(&a, 1);
}

/* Another cluster, another space, another version. */
static void test_foreign(void)
{
    restart();
    CHECK_EQ(open_it(&a, STORE_CONTINUE), -ENOENT);
    CHECK(strstr(explained(), "--fresh") != NULL);
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_FRESH), 0);
    server.cluster = 2;
    leader_resign(&a.store.leader);
    forget(&a);
    begin(&a, "space");
    CHECK_EQ(lead(&a), 0);
    CHECK_EQ(open_it(&a, STORE_CONTINUE), -EBADMSG);
    CHECK(strstr(explained(), "another etcd cluster") != NULL);
    CHECK_EQ(open_it(&a, STORE_RESTORE), 0);
    struct sim_etcd_pair *p = sim_etcd_find(&server, "test/space/lead/term");
    CHECK(p != NULL);
    p->value[8] ^= 64; /* the version */
    CHECK_EQ(look(&a), -EPROTO);
    CHECK(strstr(explained(), "version") != NULL);
    p->value[0] ^= 1;
    CHECK_EQ(look(&a), -EBADMSG);
    struct one c;
    memset(&c, 0, sizeof c);
    sim_etcd_client_init(&c.client, &server, NULL);
    char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    const struct leader_params long_ = {
        .etcd = &c.client.etcd, .prefix = longest, .space = "space", .place = "etcd://here/x", .lease_ns = LEASE, .nonce = 3};
    CHECK_EQ(leader_open(&c.store.leader, &long_), -ENAMETOOLONG);
}

int main(void)
{
    test_leaders();
    test_slow_takeover();
    test_unknown();
    test_never_answered();
    test_full();
    test_snapshots();
    test_damage();
    test_cut();
    test_forged();
    test_foreign();
    sim_etcd_free(&server);
    forget(&a);
    forget(&b);
    return 0;
}
