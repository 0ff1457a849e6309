/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to a NetLock host, packet by packet: refusals of each kind, answers of another granter, of another lock or of a former
 * conversion, a switch that is elsewhere, what a data server says of a call, and probes for deadlocks. */
#include "designs/packet/chase.h"
#include "tests/unit/netlock_host_kit.h"

static const struct place backup = {MACHINE_SWITCH, 1};
static struct netlock_packet asked;

static uint64_t stale(void)
{
    return ((struct requests *)host)->busy.drops.stale;
}

static uint64_t bad(void)
{
    return ((struct requests *)host)->busy.drops.bad;
}

static void asks(bool try, enum pawl_mode mode)
{
    const struct packet_ask a = {.request = REQUEST, .port = 100, .mode = mode, .index = 2, .try = try};
    start();
    gets_lease(the_switch);
    gets_lease(the_server);
    outbox_clear(&out);
    CHECK_EQ(netlock_acquire(host, &a, now, &out), PACKET_WAIT);
    asked = sent(NETLOCK_ACQUIRE, the_switch);
}

static void holds(enum pawl_mode mode)
{
    asks(false, mode);
    hears(asked, NETLOCK_GRANT, the_switch, 0);
    CHECK(result() == 0 && requests_hold(host, REQUEST));
}

/* ---- probes for deadlocks ---- */

/* A request of machine 2 waits behind that one of this host, says the server. How often this host takes it out of the queue. */
static unsigned in_the_way(uint64_t nonce)
{
    struct {
        struct netlock_packet p;
        struct chase_step step[2];
    } chase = {.step = {{.id = nonce + NETLOCK_SERIAL_STEP, .machine = 2, .kind = CHASE_WAIT},
                        {.id = nonce, .machine = 1, .kind = CHASE_QUEUED}}};
    unsigned taken = 0;
    netlock_head(&chase.p, config.space, NETLOCK_CHASE, 7, the_server, (struct place){1, PORT_POOL});
    chase.p.head.index = asked.head.index;
    chase.p.head.nonce = chase.step[0].id;
    chase.p.client = (struct place){2, 100};
    chase.p.mode = NETLOCK_SHARED;
    chase.p.room = 1;
    chase.p.count = countof(chase.step);
    outbox_clear(&out);
    netlock_host_packet(host, &chase, sizeof chase, now, &out);
    for (unsigned i = 0; i < out.packets; i++) {
        const struct netlock_packet *p = (const struct netlock_packet *)outbox_packet(&out, i);
        CHECK(p->head.type != NETLOCK_CANCEL || (p->head.nonce == nonce && p->head.index == asked.head.index));
        taken += p->head.type == NETLOCK_CANCEL;
    }
    return taken;
}

/* A late ACQUIRE of a request that has ended waits at a server that lost its memory. It has no thread, so no probe finds a cycle
 * through it. */
static void late_request(void)
{
    asks(false, PAWL_EXCLUSIVE);
    CHECK_EQ(in_the_way(asked.head.nonce), 0); /* it waits */
    hears(asked, NETLOCK_GONE, the_switch, 0); /* and then under another nonce */
    uint64_t latest = sent(NETLOCK_ACQUIRE, the_switch).head.nonce;
    CHECK_EQ(in_the_way(asked.head.nonce), 1);
    CHECK_EQ(in_the_way(latest), 0);
    CHECK_EQ(in_the_way(latest + NETLOCK_SERIAL_STEP), 0); /* none of this host, or of a former life */
    CHECK_EQ(in_the_way(asked.head.nonce - 64 * NETLOCK_SERIAL_STEP), 0);

    holds(PAWL_EXCLUSIVE);
    CHECK_EQ(in_the_way(asked.head.nonce), 0);
    outbox_clear(&out);
    CHECK_EQ(netlock_release(host, REQUEST, now, &out), 0);
    hears(sent(NETLOCK_RELEASE, the_switch), NETLOCK_RELEASED, the_switch, 0);
    CHECK_EQ(in_the_way(asked.head.nonce), 1);
}

/* ---- refusals ---- */

static void refusals(void)
{
    asks(true, PAWL_EXCLUSIVE);
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_QUOTA);
    CHECK_EQ(result(), -EAGAIN); /* a try does not wait for its quota */
    asks(false, PAWL_EXCLUSIVE);
    asked.stamp = 7 * RETRY_NS;
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_QUOTA);
    CHECK_EQ(result(), -EINPROGRESS);
    CHECK(!out.packets); /* not before its time, */
    outbox_clear(&out);
    now += 7 * RETRY_NS - 1;
    netlock_host_tick(host, now, &out);
    for (unsigned i = 0; i < out.packets; i++)
        CHECK(((const struct packet_head *)outbox_packet(&out, i))->type != NETLOCK_ACQUIRE);
    CHECK(asks_again().head.nonce != asked.head.nonce); /* and under another nonce */

    asks(false, PAWL_EXCLUSIVE);
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_POLICY);
    CHECK_EQ(result(), -EINVAL);
    asks(false, PAWL_EXCLUSIVE); /* a request that waits is not told that the lock is held */
    uint64_t before = bad();
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_HELD);
    CHECK(result() == -EINPROGRESS && bad() == before + 1);
    hears(asked, NETLOCK_REFUSED, the_switch, 99);
    CHECK(result() == -EINPROGRESS && bad() == before + 2);
    hears(asked, NETLOCK_GONE, the_switch, 0); /* it asks anew at once */
    CHECK(sent(NETLOCK_ACQUIRE, the_switch).head.nonce != asked.head.nonce);
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_POLICY); /* of the former nonce */
    CHECK_EQ(result(), -EINPROGRESS);
}

/* ---- grants ---- */

static void grants(void)
{
    asks(false, PAWL_EXCLUSIVE);
    struct netlock_packet other = asked;
    other.head.index = 3;
    hears(other, NETLOCK_GRANT, the_switch, 0); /* of another lock: given back */
    CHECK_EQ(sent(NETLOCK_RELEASE, the_switch).head.index, 3);
    CHECK_EQ(result(), -EINPROGRESS);
    uint64_t before = bad();
    other = asked;
    other.mode = 3;
    hears(other, NETLOCK_GRANT, the_switch, 0);
    other = asked;
    other.head.nonce += config.sessions * config.requests; /* of no request */
    hears(other, NETLOCK_GRANT, the_switch, 0);
    other = asked;
    other.head.family ^= 1; /* of another design */
    hears(other, NETLOCK_GRANT, the_switch, 0);
    CHECK(bad() == before + 3 && !out.packets && result() == -EINPROGRESS);

    hears(asked, NETLOCK_GRANT, the_switch, 0);
    CHECK_EQ(result(), 0);
    hears(asked, NETLOCK_GRANT, the_switch, 0); /* doubled */
    CHECK(!out.packets && requests_hold(host, REQUEST));
    hears(asked, NETLOCK_GRANT, the_server, 0); /* another granter has granted it, too */
    CHECK_EQ(sent(NETLOCK_RELEASE, the_server).head.nonce, asked.head.nonce);
    CHECK(requests_hold(host, REQUEST));
    struct netlock_packet former = asked;
    former.head.nonce ^= UINT64_C(1) << 63; /* of another life of the host: */
    hears(former, NETLOCK_GRANT, the_server, 0);
    CHECK(!out.packets); /* the server would take that number for the latest */
    hears(former, NETLOCK_GRANT, the_switch, 0);
    CHECK_EQ(sent(NETLOCK_RELEASE, the_switch).head.nonce, former.head.nonce);
    uint64_t dropped = stale();
    hears(asked, NETLOCK_GONE, the_switch, 0);
    hears(asked, NETLOCK_REFUSED, the_switch, NETLOCK_HELD);
    CHECK(stale() == dropped + 2 && requests_hold(host, REQUEST) && !out.packets);
    before = bad();
    hears(asked, NETLOCK_PUSH, the_switch, 0); /* nothing for a host */
    CHECK_EQ(bad(), before + 1);
    other = asked;
    other.head.index = 3;
    dropped = stale();
    hears(other, NETLOCK_RELEASED, the_switch, 0);
    CHECK(stale() == dropped + 1 && requests_hold(host, REQUEST));
}

/* ---- conversions ---- */

static struct netlock_packet converts(enum pawl_mode from, enum pawl_mode to)
{
    holds(from);
    outbox_clear(&out);
    CHECK_EQ(netlock_convert(host, REQUEST, to, now, &out), PACKET_WAIT);
    return sent(NETLOCK_CONVERT, the_switch);
}

static void conversions(void)
{
    struct netlock_packet c = converts(PAWL_SHARED, PAWL_EXCLUSIVE), other = c;
    uint64_t dropped = stale();
    other.count++; /* of a conversion that was not */
    hears(other, NETLOCK_CONVERTED, the_switch, 0);
    other = c;
    other.mode = NETLOCK_SHARED;
    hears(other, NETLOCK_CONVERTED, the_switch, 0);
    hears(c, NETLOCK_CONVERTED, the_server, 0); /* not its granter */
    CHECK_EQ(stale(), dropped + 3);
    CHECK_EQ(result(), -EINPROGRESS);
    hears(c, NETLOCK_CONVERTED, the_switch, 0);
    CHECK_EQ(result(), 0);
    hears(c, NETLOCK_CONVERTED, the_switch, 0); /* doubled */
    CHECK_EQ(stale(), dropped + 4);

    c = converts(PAWL_SHARED, PAWL_EXCLUSIVE);
    other = c;
    other.count++;
    hears(other, NETLOCK_REFUSED, the_switch, NETLOCK_DEADLOCK);
    CHECK_EQ(result(), -EINPROGRESS);
    hears(c, NETLOCK_REFUSED, the_switch, NETLOCK_DEADLOCK);
    CHECK_EQ(result(), -EDEADLK);
    CHECK(requests_hold(host, REQUEST)); /* what it had */
}

/* ---- switches ---- */

static void elsewhere(uint16_t switches)
{
    asks(false, PAWL_EXCLUSIVE);
    ((struct requests *)host)->config.switches = switches;
    struct netlock_packet p = asked;
    uint64_t dropped = stale();
    p.life = 6; /* a later term than this host knows */
    p.round = 1;
    hears(p, NETLOCK_ELSEWHERE, the_server, 0); /* a server does not say so */
    CHECK(stale() == dropped + 1 && !out.packets);
    p.round = 2;
    hears(p, NETLOCK_ELSEWHERE, the_switch, 0);
    CHECK(stale() == dropped + 2 && !out.packets);
    p.round = 0; /* where it is already */
    hears(p, NETLOCK_ELSEWHERE, the_switch, 0);
    CHECK(stale() == dropped + 3 && !out.packets);
    p.round = 1;
    p.life = 5;
    hears(p, NETLOCK_ELSEWHERE, the_switch, 0);
    CHECK(stale() == dropped + 4 && !out.packets);
    p.life = 6;
    hears(p, NETLOCK_ELSEWHERE, the_switch, 0);
    if (switches < 2)
        CHECK(stale() == dropped + 5 && !out.packets);
    else
        CHECK_EQ(sent(NETLOCK_LEASE, the_switch).head.to.port, 1);
    dropped = stale();
    hears(asked, NETLOCK_GRANT, backup, 0); /* of the other switch, in the term of this one */
    CHECK(stale() == dropped + 1 && result() == -EINPROGRESS);
    uint64_t alien = ((struct requests *)host)->busy.drops.alien;
    hears(asked, NETLOCK_GRANT, (struct place){2, PORT_SERVER}, 0); /* of a machine that grants nothing */
    CHECK(((struct requests *)host)->busy.drops.alien == alien + 1 && result() == -EINPROGRESS);
}

/* ---- data servers ---- */

static struct netlock_packet calls(void)
{
    holds(PAWL_EXCLUSIVE);
    outbox_clear(&out);
    CHECK_EQ(netlock_call(host, REQUEST, "deed", 4, now, &out), PACKET_WAIT);
    CHECK_EQ(result(), -EINPROGRESS);
    return sent(NETLOCK_DATA, the_server);
}

/* The answer to a call, with its code and what follows. */
static void data_says(struct netlock_packet p, uint8_t code, uint32_t more)
{
    struct {
        struct netlock_packet p;
        uint8_t bytes[8];
    } whole = {.p = p, .bytes = "reply"};
    outbox_clear(&out);
    netlock_turn_round(&whole.p, NETLOCK_ANSWER, 7, the_server);
    whole.p.code = code;
    netlock_host_packet(host, &whole, (uint32_t)sizeof p + more, now, &out);
}

static void data(void)
{
    char reply[8] = "";
    uint32_t len;
    struct netlock_packet p = calls();
    data_says(p, NETLOCK_DONE, 5);
    CHECK(result() == 0 && requests_hold(host, REQUEST));
    CHECK_EQ(netlock_reply(host, REQUEST, reply, sizeof reply, &len, &out), 0);
    CHECK(len == 5 && !strcmp(reply, "reply"));
    CHECK_EQ(netlock_reply(host, REQUEST, reply, sizeof reply, &len, &out), -ENOENT); /* once */

    p = calls(); /* a reply without bytes, and a caller without room */
    data_says(p, NETLOCK_DONE, 0);
    CHECK(!netlock_reply(host, REQUEST, NULL, 0, &len, &out) && !len);
    CHECK_EQ(netlock_call(host, REQUEST, NULL, 0, now, &out), PACKET_WAIT); /* a deed without bytes */

    p = calls();
    data_says(p, NETLOCK_NO_SERVICE, 0);
    CHECK(result() == -PAWL_ENOTSUP && requests_hold(host, REQUEST)); /* the hold from before the call stays */
    p = calls();
    data_says(p, NETLOCK_FORGOTTEN, 0);
    CHECK(result() == -PAWL_EUNKNOWN && requests_hold(host, REQUEST));
    p = calls();
    data_says(p, NETLOCK_FENCED, 0); /* a later holder has been there: the hold is lost */
    CHECK(result() == -PAWL_ELOST && !requests_hold(host, REQUEST));
    CHECK_EQ(netlock_call(host, REQUEST, "deed", 4, now, &out), -PAWL_ELOST);

    p = calls();
    CHECK_EQ(netlock_give_up(host, REQUEST, -ETIMEDOUT, now, &out), PACKET_WAIT);
    data_says(p, NETLOCK_FENCED, 0); /* it was given up, and not done */
    CHECK(result() == -ETIMEDOUT && requests_hold(host, REQUEST));

    p = calls();
    uint64_t dropped = stale(), wrong = bad();
    struct netlock_packet other = p;
    other.head.index = 3;
    data_says(other, NETLOCK_NO_SERVICE, 0); /* of another lock */
    other = p;
    other.stamp += NETLOCK_SERIAL_STEP;
    data_says(other, NETLOCK_NO_SERVICE, 0); /* of another deed */
    data_says(p, NETLOCK_VOIDED, 0);         /* which this host has not asked for */
    CHECK(stale() == dropped + 3 && result() == -EINPROGRESS);
    other = p;
    other.stamp++;
    data_says(other, NETLOCK_NO_SERVICE, 0); /* of another request */
    data_says(p, 99, 0);
    CHECK(bad() == wrong + 2 && result() == -EINPROGRESS);
    data_says(p, NETLOCK_DONE, 0);
    CHECK_EQ(result(), 0);
}

/* The server's place was given to another one: a grant of the old one, to which the switch passed the request on, is not taken. */
static void replaced(void)
{
    asks(false, PAWL_EXCLUSIVE);
    uint64_t dropped = stale();
    netlock_server_since(host, SERVER, 8, &out);
    netlock_server_since(host, SERVER, 6, &out);     /* a late one changes nothing */
    netlock_server_since(host, SERVER + 1, 9, &out); /* no server's */
    hears(asked, NETLOCK_GRANT, the_server, 0);      /* in life 7 */
    CHECK(stale() == dropped + 1 && result() == -EINPROGRESS);
    hears(asked, NETLOCK_GRANT, the_switch, 0);
    CHECK_EQ(result(), 0);
}

/* A head leaves nothing of what was in the memory before. */
static void heads(void)
{
    struct netlock_packet p;
    memset(&p, 0xff, sizeof p);
    netlock_head(&p, 3, NETLOCK_GRANT, 4, (struct place){1, 2}, (struct place){5, 6});
    CHECK(p.head.family == PACKET_NETLOCK && p.head.type == NETLOCK_GRANT && p.head.version == PACKET_VERSION && p.head.space == 3);
    CHECK(p.head.epoch == 4 && p.head.from.machine == 1 && p.head.from.port == 2 && p.head.to.machine == 5 && p.head.to.port == 6);
    CHECK(!p.head.nonce && !p.head.index && !p.head.tag && !p.head.generation && !p.head.features);
}

/* A request that is pushed to the switch after its host has begun another life was given up, and its number is not noted. */
static void pushes(void)
{
    const struct netlock_packet p = {.head = {.type = NETLOCK_PUSH}, .mode = NETLOCK_EXCLUSIVE, .stamp = 6, .client = {1, 100}};
    struct netlock_pass of_former = {0}, of_latest = {0};
    netlock_pass_of_push(&of_former, &p, 7, false);
    netlock_pass_of_push(&of_latest, &p, 6, false);
    CHECK(of_former.op == NETLOCK_OP_PUSH && !of_former.mode);
    CHECK(of_latest.op == NETLOCK_OP_PUSH && of_latest.mode == NETLOCK_EXCLUSIVE);
}

int main(void)
{
    heads();
    pushes();
    late_request();
    refusals();
    grants();
    conversions();
    elsewhere(1);
    elsewhere(2);
    data();
    replaced();
    free(host);
    return 0;
}
