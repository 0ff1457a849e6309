/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: IPv4, IPv6 and names, as text and as they travel; packets from one socket to another. */
#include "tests/check.h"
#include "wire/udp.h"
#include "world/world.h"

#include <errno.h>
#include <stdio.h>

static void round_trip(const char *text)
{
    struct net_addr a, b;
    char out[NET_ADDR_TEXT];
    CHECK_EQ(net_addr_parse(text, &a), 0);
    net_addr_print(a, out);
    if (strcmp(text, out))
        CHECK_FAIL("%s became %s", text, out);
    CHECK_EQ(net_addr_resolve(text, &b), 0);
    CHECK(net_addr_is(a, b) && !memcmp(&a, &b, sizeof a));
}

static void texts(void)
{
    static const char *const bad[] = {
        "",      ":",        "1.2.3.4",    "1.2.3.4:",     "1.2.3.4:x",      "1.2.3.4:70000", "1.2.3:4",    "::1:70",
        "[::1]", "[::1]:",   "[::1]70",    "[1.2.3.4]:70", "[fe80::1%lo]:7", "1.2.3.4:-7",    "1.2.3.4:+7", "1.2.3.4: 7",
        "[]:7",  "[:::1]:7", "1.2.3.4:7x", "a b:7x",       "[::1]:99999",    "256.1.1.1:7",   "1.2.3.4.5:7"};
    struct net_addr a;
    round_trip("127.0.0.1:7000");
    round_trip("0.0.0.0:0");
    round_trip("[::1]:7000");
    round_trip("[::]:1");
    round_trip("[2001:db8:1:2:3:4:5:6]:65535");
    round_trip("[fe80::1]:7");
    for (unsigned i = 0; i < countof(bad); i++) {
        if (!net_addr_parse(bad[i], &a))
            CHECK_FAIL("'%s' was taken for an address", bad[i]);
        if (net_addr_resolve(bad[i], &a) != -EINVAL)
            CHECK_FAIL("'%s' was resolved", bad[i]);
    }
    CHECK_EQ(net_addr_resolve("localhost:7000", &a), 0);
    CHECK(a.port == 7000 && net_addr_known(a));
    int rc = net_addr_resolve("no-such-host.invalid:7000", &a);
    CHECK(rc == -ENOENT || rc == -EAGAIN);
}

static void meaning(void)
{
    struct net_addr a, b;
    CHECK_EQ(net_addr_parse("10.0.0.1:4000", &a), 0);
    CHECK(net_addr_is_v4(&a) && net_addr_known(a) && net_addr_is(a, net_v4(htonl(0x0a000001), 4000)));
    CHECK_EQ(net_addr_v4(&a), htonl(0x0a000001));
    CHECK_EQ(net_addr_parse("[::ffff:10.0.0.1]:4000", &b), 0);
    CHECK(net_addr_is(a, b)); /* the same address */
    CHECK_EQ(net_addr_parse("[2001:db8::1]:4000", &b), 0);
    CHECK(!net_addr_is_v4(&b) && net_addr_known(b) && !net_addr_v4(&b) && !net_addr_is(a, b));
    CHECK_EQ(net_addr_parse("0.0.0.0:4000", &a), 0);
    CHECK(!net_addr_known(a));
    CHECK_EQ(net_addr_parse("[::]:4000", &a), 0);
    CHECK(!net_addr_known(a));
    CHECK(!net_addr_known((struct net_addr){.port = 1}));
}

/* From a socket at one address to one that listens at another; false: the kernel has no such address. */
static bool travels(const char *listen, const char *to, const char *from)
{
    static struct udp_batch batch;
    struct net_addr at, target, self;
    struct udp a, b;
    CHECK(!net_addr_parse(listen, &at) && !net_addr_parse(to, &target) && !net_addr_parse(from, &self));
    if (udp_open(&a, at))
        return false;
    CHECK_EQ(udp_open(&b, self), 0);
    const struct udp_out out = {.to = net_addr_at_port(target, a.at.port), .len = 5, .data = "hello"};
    udp_send(&b, &out, 1);
    CHECK_EQ(udp_wait(&a, &batch, 0, world_now(&world_real) + 10 * NS_PER_S), 1);
    CHECK(batch.packet[0].len == 5 && net_addr_is(batch.packet[0].from, b.at));
    const struct udp_out back = {.to = batch.packet[0].from, .len = 3, .data = "yes"};
    udp_send(&a, &back, 1);
    CHECK_EQ(udp_wait(&b, &batch, 0, world_now(&world_real) + 10 * NS_PER_S), 1);
    CHECK(batch.packet[0].len == 3);
    udp_close(&a);
    udp_close(&b);
    struct net_addr source;
    CHECK_EQ(udp_source_for(target, &source), 0);
    CHECK_EQ(net_addr_is_v4(&source), net_addr_is_v4(&target));
    return true;
}

int main(void)
{
    texts();
    meaning();
    CHECK(travels("127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0"));
    if (!travels("[::1]:0", "[::1]:0", "[::1]:0"))
        printf("this machine has no IPv6\n");
    else
        CHECK(travels("[::]:0", "127.0.0.1:0", "127.0.0.2:0")); /* one socket for both */
    return 0;
}
