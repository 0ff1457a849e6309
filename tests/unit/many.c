/* SPDX-License-Identifier: Apache-2.0 */
/* Several packets in one datagram (wire/many.h): made by the socket's side, taken apart, and refused as a whole if a byte of what
 * says how long it and its parts are is wrong. */
#include "wire/many.h"
#include "lib/hash.h"
#include "tests/check.h"
#include "wire/udp.h"

#include <string.h>

#define PART 88u

struct datagram {
    _Alignas(8) uint8_t data[PACKET_MAX + 8];
    uint32_t len;
};

static struct packet_head head(uint64_t nonce)
{
    return (struct packet_head){.version = PACKET_VERSION, .family = PACKET_FISSION, .type = 3, .space = 16, .nonce = nonce};
}

static struct datagram make(unsigned parts)
{
    struct datagram d = {.len = sizeof(struct many_front)};
    struct packet_head h = head(0);
    many_begin((struct many_front *)(void *)d.data, &h);
    for (unsigned i = 0; i < parts; i++) {
        uint32_t at = d.len;
        CHECK(many_add((struct many_front *)(void *)d.data, PART, &d.len));
        h = head(100 + i);
        h.index = i;
        memcpy(d.data + at, &h, sizeof h);
    }
    return d;
}

static unsigned count(const struct datagram *d)
{
    const struct packet_head *h;
    uint32_t at = 0, len;
    unsigned n = 0;
    for (unsigned i = 0; (h = many_next(d->data, &i, &at, &len)); n++) {
        CHECK_EQ(h->nonce, 100u + n);
        CHECK_EQ(len, PART);
    }
    CHECK_EQ(at, d->len);
    return n;
}

static void test_whole(void)
{
    for (unsigned parts = 1; parts <= 15; parts++) {
        struct datagram d = make(parts);
        CHECK(many_is(d.data, d.len));
        CHECK(many_sound(d.data, d.len));
        CHECK_EQ(count(&d), parts);
        for (uint32_t len = 0; len < d.len; len++) /* cut off anywhere */
            CHECK(!many_sound(d.data, len));
        CHECK(!many_sound(d.data, d.len + 8));
        CHECK(!packet_readable((const struct packet_head *)(const void *)d.data)); /* a receiver that does not know them */
    }
    struct datagram full = make(15);
    CHECK(!many_add((struct many_front *)(void *)full.data, PART, &full.len)); /* PACKET_MAX */
    struct many_front f = {.many.count = PACKET_MANY_MAX};
    uint32_t used = sizeof f;
    CHECK(!many_add(&f, 48, &used));
}

/* Every bit of the lengths and of the heads that are looked at. */
static void test_damaged(void)
{
    struct datagram good = make(4);
    struct many_front *f;
    for (unsigned bit = 8 * offsetof(struct many_front, many); bit < 8 * sizeof *f; bit++) {
        struct datagram d = good;
        d.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        unsigned mark = bit - 8 * (unsigned)offsetof(struct many_front, many.settled);
        CHECK_EQ(many_sound(d.data, d.len), mark < 32 && mark % 16 < 4); /* a mark of one of the four parts: an answer */
        CHECK(!many_sound(d.data, d.len) || many_is_answer(d.data));
    }
    struct datagram d = good;
    struct packet_head *part = (struct packet_head *)(void *)(d.data + sizeof *f + PART);
    part->features = PACKET_MANY; /* none in another */
    CHECK(!many_sound(d.data, d.len));
    d = good;
    part->version++;
    CHECK(!many_sound(d.data, d.len));
    d = good;
    part->family = PACKET_COORDINATOR; /* of one family */
    CHECK(!many_sound(d.data, d.len));
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++) {
            d = good;
            part = (struct packet_head *)(void *)(d.data + sizeof *f + i * PART);
            part->index = k; /* of part k */
            CHECK_EQ(many_sound(d.data, d.len), i == k);
        }
    d = make(2);
    f = (struct many_front *)(void *)d.data;
    f->many.eighths[0] = 5; /* shorter than a head */
    f->many.eighths[1] = 17;
    CHECK(!many_sound(d.data, d.len));
    d = make(2);
    f = (struct many_front *)(void *)d.data;
    f->many.settled = f->many.singly = 1; /* both */
    CHECK(!many_sound(d.data, d.len));
    struct packet_head h = head(1);
    CHECK(!many_takes(&h, 47) && !many_takes(&h, 50) && many_takes(&h, 48) && !many_takes(&h, PACKET_MAX));
    h.features = PACKET_TAGGED;
    CHECK(!many_takes(&h, 48));
}

/* The parts of an answer: those that count, and those that their sender sends again. */
static void test_marks(void)
{
    struct datagram d = make(6);
    struct many_front *f = (struct many_front *)(void *)d.data;
    const struct packet_head *h;
    unsigned answered = 0, singly = 0;
    uint32_t at = 0, len;
    CHECK(!many_is_answer(d.data));
    f->many.settled = 0x09;
    f->many.singly = 0x24;
    CHECK(many_sound(d.data, d.len) && many_is_answer(d.data));
    for (unsigned i = 0; (h = many_next(d.data, &i, &at, &len)); answered |= 1u << (i - 1))
        CHECK_EQ((const uint8_t *)h - d.data, (ptrdiff_t)(sizeof *f + (i - 1) * PART));
    for (unsigned i = 0; (h = many_next_singly(d.data, &i, &at, &len)); singly |= 1u << (i - 1))
        CHECK_EQ((const uint8_t *)h - d.data, (ptrdiff_t)(sizeof *f + (i - 1) * PART));
    CHECK_EQ(answered, 0x12);
    CHECK_EQ(singly, 0x24);
}

/* Random bytes are never read beyond their end (with the address sanitizer). */
static void test_random(void)
{
    uint64_t dice = 1;
    for (unsigned n = 0; n < 200000; n++) {
        struct datagram d = make(1 + n % 15);
        for (unsigned k = 0; k < 1 + n % 3; k++) {
            dice = mix64(dice);
            d.data[dice % d.len] = (uint8_t)(dice >> 32);
        }
        uint8_t *exact = malloc(d.len);
        CHECK(exact != NULL);
        memcpy(exact, d.data, d.len);
        if (many_is(exact, d.len) && many_sound(exact, d.len)) {
            const struct packet_head *h;
            uint32_t at = 0, len;
            for (unsigned i = 0; (h = many_next(exact, &i, &at, &len));)
                CHECK(len >= sizeof *h && (const uint8_t *)h + len <= exact + d.len);
        }
        free(exact);
    }
}

static void test_sockets(void)
{
    struct udp a, b;
    struct net_addr at;
    static struct udp_batch batch;
    struct {
        struct packet_head head;
        uint8_t rest[PART - sizeof(struct packet_head)];
    } p[40];
    struct udp_out out[40];
    CHECK_EQ(net_addr_parse("127.0.0.1:0", &at), 0);
    CHECK(!udp_open(&a, at) && !udp_open(&b, at));
    memset(p, 0, sizeof p);
    for (unsigned reads = 0; reads < 2; reads++) {
        unsigned seen = 0, datagrams = 0, want = reads ? 3 : 40;
        for (unsigned i = 0; i < 40; i++) {
            p[i].head = head(i);
            p[i].head.index = i;
            out[i] = (struct udp_out){.to = b.at, .len = sizeof p[i], .data = &p[i]};
            out[i].to.reads = reads ? PACKET_MANY : 0;
        }
        udp_send_together(&a, out, 40);
        for (unsigned tries = 0; datagrams < want && tries < 1000; tries++) {
            unsigned n = udp_wait(&b, &batch, 0, UINT64_MAX);
            for (unsigned i = 0; i < n; i++, datagrams++) {
                const void *data = batch.packet[i].data;
                const struct packet_head *h = data;
                uint32_t offset = 0, len;
                if (!reads) {
                    CHECK_EQ(h->nonce, seen++);
                    continue;
                }
                CHECK(many_is(data, batch.packet[i].len) && many_sound(data, batch.packet[i].len));
                for (unsigned k = 0; (h = many_next(data, &k, &offset, &len)); seen++)
                    CHECK_EQ(h->nonce, seen);
            }
        }
        CHECK_EQ(datagrams, want); /* 15, 15 and 10 */
        CHECK_EQ(seen, 40u);
    }
    for (unsigned i = 0; i < 6; i++) /* a second packet of a lock begins the next datagram */
        p[i].head.index = i % 3;
    udp_send_together(&a, out, 6);
    for (unsigned datagrams = 0, tries = 0; datagrams < 2 && tries < 1000; tries++) {
        unsigned n = udp_wait(&b, &batch, 0, UINT64_MAX);
        for (unsigned i = 0; i < n; i++, datagrams++) {
            const struct many_front *front = (const void *)batch.packet[i].data;
            CHECK(many_sound(front, batch.packet[i].len) && front->many.count == 3);
        }
        CHECK(datagrams <= 2);
    }
    udp_close(&a);
    udp_close(&b);
}

int main(void)
{
    test_whole();
    test_damaged();
    test_marks();
    test_random();
    test_sockets();
    return 0;
}
