/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/seal.h"

ONCE struct seal_key seal_derive(const struct seal_key *from, uint64_t purpose, uint64_t a, uint64_t b)
{
    struct seal_key out;
    for (uint64_t i = 0; i < countof(out.k); i++) {
        struct sip s;
        sip_begin(&s, from->k[0], from->k[1]);
        sip_word(&s, purpose << 8 | i);
        sip_word(&s, a);
        sip_word(&s, b);
        out.k[i] = sip_end(&s, 0, 3 * sizeof(uint64_t));
    }
    if (!seal_known(&out))
        out.k[0] = 1; /* all zero means that there is none */
    return out;
}

struct seal_key seal_member_key(const struct seal_key *cluster, uint64_t number)
{
    return seal_derive(cluster, SEAL_MEMBER, number, 0);
}

struct seal_key seal_host_key(const struct seal_key *cluster, uint32_t space, uint16_t machine, uint32_t life)
{
    return seal_derive(cluster, SEAL_HOST, (uint64_t)space << 32 | machine, life);
}

struct seal_asker seal_asker(const struct seal_ring *r)
{
    struct seal_asker a = {.number = r->number};
    if (r->count)
        a.key = r->number ? r->key[0] : seal_member_key(&r->key[0], 0);
    return a;
}

struct seal_key seal_wrap(const struct seal_key *key, const struct seal_key *member, uint64_t nonce, uint32_t life)
{
    struct seal_key pad = seal_derive(member, SEAL_WRAP, nonce, life);
    return (struct seal_key){{key->k[0] ^ pad.k[0], key->k[1] ^ pad.k[1]}};
}

uint64_t seal_tag(const struct seal_key *k, const struct packet_head *head, const void *rest, uint64_t rest_len)
{
    uint64_t word[sizeof *head / sizeof(uint64_t)], last = 0, at = 0, w;
    struct sip s;
    memcpy(word, head, sizeof word);
    sip_begin(&s, k->k[0], k->k[1]);
    sip_word(&s, word[0]);
    for (unsigned i = 2; i < countof(word); i++) /* without the tag */
        sip_word(&s, word[i]);
    for (; at + sizeof w <= rest_len; at += sizeof w) {
        memcpy(&w, (const char *)rest + at, sizeof w);
        sip_word(&s, w);
    }
    if (rest_len > at)
        memcpy(&last, (const char *)rest + at, rest_len - at);
    return sip_end(&s, last, sizeof *head - sizeof head->tag + rest_len);
}

struct seal_key seal_key_of(const struct seal_ring *r, unsigned which, const struct packet_head *h, uint16_t machines,
                            uint32_t life)
{
    uint16_t m = h->from.machine;
    assert(which < r->count && !r->number);
    if (m && m <= machines)
        return seal_host_key(&r->key[which], h->space, m, life);
    return seal_member_key(&r->key[which], m ? 0 : h->from.port);
}

bool seal_open_any(const struct seal_ring *r, void *data, uint32_t len, uint16_t machines, uint32_t life, struct seal_key *used)
{
    for (unsigned i = 0; i < r->count && seal_is_tagged(data, len); i++) {
        *used = seal_key_of(r, i, data, machines, life);
        if (seal_open(used, data, len))
            return true;
    }
    return false;
}

ONCE void seal_prove(const struct seal_ring *r, void *data, uint32_t len, uint64_t *proof)
{
    *proof = 0;
    if (r->admins)
        *proof = seal_tag_of(&r->admin[0], data, len);
}

ONCE bool seal_proved(const struct seal_ring *r, const void *data, uint32_t len, uint32_t proof_at)
{
    _Alignas(8) uint8_t bytes[PACKET_MAX];
    uint64_t proof;
    bool proved = !r->admins;
    assert(len <= sizeof bytes && proof_at + sizeof proof <= len);
    memcpy(bytes, data, len);
    memcpy(&proof, bytes + proof_at, sizeof proof);
    memset(bytes + proof_at, 0, sizeof proof);
    for (unsigned i = 0; i < r->admins && !proved; i++)
        proved = proof == seal_tag_of(&r->admin[i], bytes, len);
    return proved;
}

static uint64_t trail_tag(const struct seal_key *k, const uint8_t *data, uint32_t len, uint64_t number)
{
    uint64_t word, last = 0;
    uint32_t at = 0;
    struct sip s;
    sip_begin(&s, k->k[0], k->k[1]);
    sip_word(&s, number);
    for (; at + sizeof word <= len; at += (uint32_t)sizeof word) {
        memcpy(&word, data + at, sizeof word);
        sip_word(&s, word);
    }
    memcpy(&last, data + at, len - at);
    return sip_end(&s, last, sizeof number + len);
}

uint32_t seal_trail_put(const struct seal_asker *asker, void *data, uint32_t len)
{
    const struct seal_trail t = {.number = asker->number, .tag = trail_tag(&asker->key, data, len, asker->number)};
    memcpy((uint8_t *)data + len, &t, sizeof t);
    return len + (uint32_t)sizeof t;
}

bool seal_trail_open(const struct seal_key *key, const void *data, uint32_t *len)
{
    struct seal_trail t;
    if (*len < sizeof t)
        return false;
    uint32_t before = *len - (uint32_t)sizeof t;
    memcpy(&t, (const uint8_t *)data + before, sizeof t);
    if (t.tag != trail_tag(key, data, before, t.number))
        return false;
    *len = before;
    return true;
}

bool seal_trail_open_any(const struct seal_ring *r, const void *data, uint32_t *len, struct seal_asker *used)
{
    struct seal_trail t;
    if (*len < sizeof t)
        return false;
    memcpy(&t, (const uint8_t *)data + *len - sizeof t, sizeof t);
    for (unsigned i = 0; i < r->count; i++) {
        *used = (struct seal_asker){.key = seal_member_key(&r->key[i], t.number), .number = t.number};
        if (seal_trail_open(&used->key, data, len))
            return true;
    }
    return false;
}
