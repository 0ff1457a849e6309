/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of 64 bits for short inputs. In steps of a word, so that a program in
 * the kernel can read a packet by checked accesses; unit/seal has the authors' vectors. Nothing of the operating system here. */
#ifndef PAWL_WIRE_SIPHASH_H
#define PAWL_WIRE_SIPHASH_H

#include <stdint.h>

struct sip {
    uint64_t a, b, c, d;
};

static inline __attribute__((always_inline)) uint64_t sip_turn(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline __attribute__((always_inline)) void sip_round(struct sip *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = sip_turn(s->b, 13) ^ s->a;
    s->d = sip_turn(s->d, 16) ^ s->c;
    s->a = sip_turn(s->a, 32) + s->d;
    s->c += s->b;
    s->d = sip_turn(s->d, 21) ^ s->a;
    s->b = sip_turn(s->b, 17) ^ s->c;
    s->c = sip_turn(s->c, 32);
}

static inline __attribute__((always_inline)) void sip_begin(struct sip *s, uint64_t k0, uint64_t k1)
{
    s->a = UINT64_C(0x736f6d6570736575) ^ k0;
    s->b = UINT64_C(0x646f72616e646f6d) ^ k1;
    s->c = UINT64_C(0x6c7967656e657261) ^ k0;
    s->d = UINT64_C(0x7465646279746573) ^ k1;
}

static inline __attribute__((always_inline)) void sip_word(struct sip *s, uint64_t word)
{
    s->d ^= word;
    sip_round(s);
    sip_round(s);
    s->a ^= word;
}

/* `rest`: the bytes after the last whole word, up to 7; `len`: of the whole input. */
static inline __attribute__((always_inline)) uint64_t sip_end(struct sip *s, uint64_t rest, uint64_t len)
{
    sip_word(s, rest | len << 56);
    s->c ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(s);
    return s->a ^ s->b ^ s->c ^ s->d;
}

#endif
