/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that bypass the network stack: a complete frame for this host is accepted, any other is not. */
#include "wire/frame.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <string.h>

#define BODY 80u

static const uint8_t mine[FRAME_MAC] = {2, 0, 0, 0, 0, 1}, theirs[FRAME_MAC] = {2, 0, 0, 0, 0, 2};
static struct net_addr me, them;
static uint8_t body[BODY];

enum { ETHER = 0, IP = 14, UDP = 34 };

static uint32_t make(uint8_t frame[2048])
{
    const struct udp_out out = {.to = me, .len = BODY, .data = body};
    memset(frame, 0xee, 2048);
    frame_put_together(frame, them, theirs, mine, &out);
    return FRAME_HEADS + BODY;
}

static void sum_ip(uint8_t *frame)
{
    uint32_t sum = 0;
    frame[IP + 10] = frame[IP + 11] = 0;
    for (unsigned i = 0; i < 20; i += 2)
        sum += (uint32_t)frame[IP + i] << 8 | frame[IP + i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    frame[IP + 10] = (uint8_t)(~sum >> 8);
    frame[IP + 11] = (uint8_t)~sum;
}

/* Of UDP; the head and what follows. */
static uint16_t sum_udp(const uint8_t *frame, bool pseudo_only)
{
    uint32_t sum = 17 + 8 + BODY;
    for (unsigned i = 0; i < 8; i += 2)
        sum += (uint32_t)frame[IP + 12 + i] << 8 | frame[IP + 13 + i];
    for (unsigned i = 0; i < 8 + BODY && !pseudo_only; i += 2)
        sum += i == 6 ? 0 : (uint32_t)frame[UDP + i] << 8 | frame[UDP + i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static bool taken(const uint8_t *frame, uint32_t len)
{
    struct frame_packet p;
    return frame_take_apart(frame, len, me, &p);
}

static void good(void)
{
    uint8_t frame[2048];
    struct frame_packet p;
    uint32_t len = make(frame);
    CHECK(frame_take_apart(frame, len, me, &p));
    CHECK(net_addr_is(p.from, them) && p.len == BODY && p.data == frame + FRAME_HEADS);
    CHECK(!memcmp(p.mac, theirs, FRAME_MAC) && !memcmp(p.data, body, BODY));
    CHECK(taken(frame, len + 6)); /* Ethernet pads what is short */
    put16(frame + UDP + 6, (uint16_t)~sum_udp(frame, false));
    CHECK(taken(frame, len)); /* with its checksum, */
    frame[FRAME_HEADS + 11] ^= 4;
    CHECK(!taken(frame, len));
    len = make(frame);
    put16(frame + UDP + 6, sum_udp(frame, true));
    CHECK(taken(frame, len)); /* or with what a card would have completed */
}

/* One thing is wrong; the head's checksum is right unless that is it. */
static void bad(void)
{
    static const struct {
        const char *what;
        unsigned at;
        uint8_t value;
    } cases[] = {{"VLAN", 12, 0x81},   {"IPv6", 12, 0x86},          {"version", IP, 0x65},     {"options", IP, 0x46},
                 {"TCP", IP + 9, 6},   {"fragments", IP + 6, 32},   {"an offset", IP + 7, 1},  {"another's address", IP + 19, 9},
                 {"port", UDP + 3, 9}, {"short IPv4", IP + 3, 107}, {"short UDP", UDP + 5, 7}, {"long UDP", UDP + 4, 2}};
    uint8_t frame[2048];
    for (size_t i = 0; i < countof(cases); i++) {
        uint32_t len = make(frame);
        CHECK(frame[cases[i].at] != cases[i].value);
        frame[cases[i].at] = cases[i].value;
        sum_ip(frame);
        if (taken(frame, len))
            CHECK_FAIL("%s", cases[i].what);
    }
    uint32_t len = make(frame);
    frame[IP + 11] ^= 1;
    CHECK(!taken(frame, len)); /* checksum of the head */
    make(frame);
    put16(frame + UDP + 6, 0x1234);
    CHECK(!taken(frame, len));
    make(frame);
    for (uint32_t cut = 0; cut < len; cut++)
        CHECK(!taken(frame, cut));
    make(frame);
    put16(frame + IP + 2, 28 + PACKET_MAX + 1); /* longer than any of ours */
    put16(frame + UDP + 4, 8 + PACKET_MAX + 1);
    sum_ip(frame);
    CHECK(!taken(frame, 2048));
}

int main(void)
{
    CHECK_EQ(net_addr_parse("10.0.0.1:4000", &me), 0);
    CHECK_EQ(net_addr_parse("10.0.0.2:5000", &them), 0);
    for (unsigned i = 0; i < BODY; i++)
        body[i] = (uint8_t)(i * 7);
    good();
    bad();
    return 0;
}
